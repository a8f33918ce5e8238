//! Functions that users make (CREATE FUNCTION): their parameters and result, and the description of
//! their job. The engine keeps the description and does not read it.

use crate::catalog::DEFAULT_SCHEMA;
use crate::catalog::definition::SqlType;
use crate::error::{Result, exists, missing};
use crate::security::{Object, ObjectKind};
use crate::transaction::Transaction;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// The language of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FunctionLanguage {
    /// Programs of the machine: not trusted, so superusers make them.
    External,
    /// WebAssembly: trusted.
    Wasm,
}

impl fmt::Display for FunctionLanguage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::External => "external",
            Self::Wasm => "wasm",
        })
    }
}

/// A parameter of a function, or a column that it gives.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FunctionColumn {
    /// Name.
    pub name: String,
    /// Type.
    pub sql_type: SqlType,
}

/// A function that gives a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FunctionDefinition {
    /// Name. A database has one function of a name, for any parameters.
    pub name: String,
    /// The parameters.
    pub parameters: Vec<FunctionColumn>,
    /// The columns that it gives.
    pub returns: Vec<FunctionColumn>,
    /// Its language.
    pub language: FunctionLanguage,
    /// The description of its job.
    pub body: String,
}

impl Transaction {
    /// CREATE FUNCTION, or CREATE OR REPLACE FUNCTION. A function belongs to the role that makes
    /// it; other roles may execute it once that is granted.
    ///
    /// # Errors
    /// [`EngineError::Exists`](crate::EngineError::Exists).
    /// [`EngineError::Denied`](crate::EngineError::Denied) for a role that may not create in the
    /// schema `public`, is no superuser where one is needed, or does not own the function that it
    /// replaces.
    pub fn create_function(&mut self, function: FunctionDefinition, replace: bool) -> Result<()> {
        self.check_create(DEFAULT_SCHEMA)?;
        if function.language == FunctionLanguage::External {
            self.acting().check_superuser("make functions that run programs")?;
        }
        let object = Object::Function(function.name.clone());
        if self.catalog.functions.contains_key(&function.name) {
            if !replace {
                return exists("function", &function.name);
            }
            self.acting().check_owner(&object)?;
        }
        let owner = self.role;
        self.change_catalog(|catalog| {
            if catalog.functions.insert(function.name.clone(), Arc::new(function)).is_none() {
                catalog.note_created(object, ObjectKind::Function, owner);
            }
            Ok(())
        })
    }

    /// DROP FUNCTION.
    ///
    /// # Errors
    /// [`EngineError::Missing`](crate::EngineError::Missing);
    /// [`EngineError::Denied`](crate::EngineError::Denied) for a role that does not own it.
    pub fn drop_function(&mut self, name: &str) -> Result<()> {
        if !self.catalog.functions.contains_key(name) {
            return missing("function", name);
        }
        self.acting().check_owner(&Object::Function(name.to_owned()))?;
        self.change_catalog(|catalog| {
            catalog.functions.remove(name);
            Ok(())
        })
    }
}
