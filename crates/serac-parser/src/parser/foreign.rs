//! CREATE SERVER, CREATE FOREIGN TABLE and IMPORT FOREIGN SCHEMA.

use super::Parser;
use crate::error::Result;
use crate::tree::{CreateForeignTable, CreateServer, ImportForeignSchema, ImportedTables, StatementKind};

impl Parser<'_> {
    /// CREATE SERVER, of which CREATE has been read.
    pub(super) fn create_server(&mut self) -> Result<StatementKind> {
        self.at += 1;
        let if_not_exists = self.if_not_exists()?;
        let name = self.ident()?;
        let kind = if self.take_word("type") { Some(self.text()?) } else { None };
        let version = if self.take_word("version") { Some(self.text()?) } else { None };
        self.expect_words(&["foreign", "data", "wrapper"])?;
        let wrapper = self.ident()?;
        let options = self.foreign_options(false)?;
        let create = CreateServer { if_not_exists, name, kind, version, wrapper, options };
        Ok(StatementKind::CreateServer(Box::new(create)))
    }

    /// CREATE FOREIGN TABLE, of which these words have been read. One that is a partition has no
    /// grammar here.
    pub(super) fn create_foreign_table(&mut self) -> Result<StatementKind> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.relation_name()?;
        if self.is_word("partition") {
            return Ok(self.other(&["create", "foreign table"]));
        }
        let elements = self.in_parentheses(|parser| match parser.is_sign(b')') {
            true => Ok(Vec::new()),
            false => parser.list(Self::table_element),
        })?;
        let mut inherits = Vec::new();
        if self.take_word("inherits") {
            inherits = self.in_parentheses(|parser| parser.list(Self::relation_name))?;
        }
        self.expect_word("server")?;
        let server = self.ident()?;
        let options = self.foreign_options(false)?;
        let create = CreateForeignTable { if_not_exists, name, elements, inherits, server, options };
        Ok(StatementKind::CreateForeignTable(Box::new(create)))
    }

    pub(super) fn import_foreign_schema(&mut self) -> Result<StatementKind> {
        self.expect_words(&["import", "foreign", "schema"])?;
        let schema = self.ident()?;
        let names = |parser: &mut Self| parser.in_parentheses(|parser| parser.list(Self::relation_name));
        let tables = if self.take_words(&["limit", "to"]) {
            ImportedTables::Only(names(self)?)
        } else if self.take_word("except") {
            ImportedTables::Except(names(self)?)
        } else {
            ImportedTables::All
        };
        self.expect_words(&["from", "server"])?;
        let server = self.ident()?;
        self.expect_word("into")?;
        let into = self.ident()?;
        let options = self.foreign_options(false)?;
        let import = ImportForeignSchema { schema, tables, server, into, options };
        Ok(StatementKind::ImportForeignSchema(Box::new(import)))
    }
}
