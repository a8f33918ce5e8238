//! Servers and foreign tables.

use super::{ForeignOption, Ident, Name, TableElement, Text};

/// CREATE SERVER.
#[derive(Clone, Debug)]
pub struct CreateServer {
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// The server.
    pub name: Ident,
    /// TYPE.
    pub kind: Option<Text>,
    /// VERSION.
    pub version: Option<Text>,
    /// FOREIGN DATA WRAPPER.
    pub wrapper: Ident,
    /// OPTIONS.
    pub options: Vec<ForeignOption>,
}

/// CREATE FOREIGN TABLE.
#[derive(Clone, Debug)]
pub struct CreateForeignTable {
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// The table.
    pub name: Name,
    /// Columns, constraints and LIKE.
    pub elements: Vec<TableElement>,
    /// INHERITS.
    pub inherits: Vec<Name>,
    /// SERVER.
    pub server: Ident,
    /// OPTIONS.
    pub options: Vec<ForeignOption>,
}

/// IMPORT FOREIGN SCHEMA.
#[derive(Clone, Debug)]
pub struct ImportForeignSchema {
    /// The schema at the server.
    pub schema: Ident,
    /// Its tables that are imported.
    pub tables: ImportedTables,
    /// FROM SERVER.
    pub server: Ident,
    /// INTO: the schema of the foreign tables.
    pub into: Ident,
    /// OPTIONS.
    pub options: Vec<ForeignOption>,
}

/// The tables that IMPORT FOREIGN SCHEMA takes.
#[derive(Clone, Debug)]
pub enum ImportedTables {
    /// All.
    All,
    /// LIMIT TO: these.
    Only(Vec<Name>),
    /// EXCEPT: all others.
    Except(Vec<Name>),
}
