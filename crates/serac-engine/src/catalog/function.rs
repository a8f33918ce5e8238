//! Functions that users make (CREATE FUNCTION): their parameters and result, and the description of
//! their job. The engine keeps the description and does not read it.

use crate::catalog::definition::SqlType;
use serde::{Deserialize, Serialize};
use std::fmt;

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
