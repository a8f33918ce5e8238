//! CREATE FUNCTION and DROP FUNCTION.

use crate::catalog::DEFAULT_SCHEMA;
use crate::catalog::function::{FunctionDefinition, FunctionLanguage};
use crate::error::{Result, exists, missing};
use crate::security::{Object, ObjectKind};
use crate::transaction::Transaction;
use std::sync::Arc;

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
