//! Servers and foreign tables: tables of other SeracDB servers, as the catalog knows them. The
//! engine keeps their definitions, and connects to nobody.

use crate::catalog::definition::TableDefinition;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Another server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerDefinition {
    /// Name.
    pub name: String,
    /// The options, in order. Their values may be secrets.
    pub options: Vec<(String, String)>,
}

impl fmt::Debug for ServerDefinition {
    /// Without the values of options.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options: Vec<&String> = self.options.iter().map(|(name, _)| name).collect();
        f.debug_struct("ServerDefinition").field("name", &self.name).field("options", &options).finish()
    }
}

/// A table of another server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ForeignTable {
    /// Name, columns and CHECK constraints. It has no number of data: there are no rows here.
    pub definition: TableDefinition,
    /// The server.
    pub server: String,
    /// The table's schema at the server.
    pub remote_schema: String,
    /// The table's name at the server.
    pub remote_table: String,
}
