//! CREATE and DROP of servers and foreign tables.

use crate::catalog::foreign::{ForeignTable, ServerDefinition};
use crate::ddl::check_unique_names;
use crate::error::{EngineError, Result, exists, missing};
use crate::security::{Object, ObjectKind};
use crate::transaction::Transaction;
use std::sync::Arc;

impl Transaction {
    /// CREATE SERVER.
    ///
    /// # Errors
    /// [`EngineError::Exists`]; [`EngineError::Denied`] for a role that is no superuser.
    pub fn create_server(&mut self, server: ServerDefinition) -> Result<()> {
        self.acting().check_superuser("create a server")?;
        if self.catalog.servers.contains_key(&server.name) {
            return exists("server", server.name);
        }
        self.change_catalog(|catalog| {
            catalog.servers.insert(server.name.clone(), Arc::new(server));
            Ok(())
        })
    }

    /// DROP SERVER.
    ///
    /// # Errors
    /// [`EngineError::Missing`]; [`EngineError::Dependent`] while it has foreign tables;
    /// [`EngineError::Denied`] for a role that is no superuser.
    pub fn drop_server(&mut self, name: &str) -> Result<()> {
        self.acting().check_superuser("drop a server")?;
        self.catalog.server(name)?;
        if let Some(table) = self.catalog.foreign_tables().find(|table| table.server == name) {
            let (what, dependent) = (format!("server \"{name}\""), &table.definition.name);
            return Err(EngineError::Dependent { what, dependent: format!("foreign table \"{dependent}\"") });
        }
        self.change_catalog(|catalog| {
            catalog.servers.remove(name);
            Ok(())
        })
    }

    /// CREATE FOREIGN TABLE.
    ///
    /// # Errors
    /// [`EngineError::Exists`]; [`EngineError::Missing`] for the server or the schema;
    /// [`EngineError::Denied`] for a role that is no superuser.
    pub fn create_foreign_table(&mut self, table: ForeignTable) -> Result<()> {
        self.acting().check_superuser("create a foreign table")?;
        self.catalog.server(&table.server)?;
        let definition = &table.definition;
        self.catalog.schema(&definition.schema)?.check_free(&definition.name)?;
        check_unique_names("column", definition.columns.iter().map(|column| &column.name))?;
        let (schema, name) = (definition.schema.clone(), definition.name.clone());
        let owner = self.role;
        self.change_catalog(|catalog| {
            catalog.schema_mut(&schema)?.foreign_tables.insert(name.clone(), Arc::new(table));
            catalog.note_created(Object::Relation(schema, name), ObjectKind::ForeignTable, owner);
            Ok(())
        })
    }

    /// DROP FOREIGN TABLE.
    ///
    /// # Errors
    /// [`EngineError::Missing`]; [`EngineError::Denied`] for a role that does not own it.
    pub fn drop_foreign_table(&mut self, schema: &str, name: &str) -> Result<()> {
        if !self.catalog.schema(schema)?.foreign_tables.contains_key(name) {
            return missing("foreign table", name);
        }
        self.check_may_drop(schema, name)?;
        self.drop_dependent(schema, name)
    }
}
