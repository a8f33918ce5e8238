//! CREATE SERVER, CREATE FOREIGN TABLE, IMPORT FOREIGN SCHEMA, and DROP SERVER.
//!
//! Servers and foreign tables are made by superusers alone: whoever makes one decides where the
//! server connects to, and with which token.

use super::clauses::{done, refuse_any};
use crate::column_types::kept_types;
use crate::error::{Result, SqlError};
use crate::foreign::servers::{WRAPPER, remote_of, told, unknown_option};
use crate::identifiers::TEMPORARY_SCHEMA;
use crate::notices::Severity;
use crate::parsed::Source;
use crate::result::StatementResult;
use crate::session::Session;
use datafusion::arrow::datatypes::{FieldRef, SchemaRef};
use serac_engine::catalog::definition::{ColumnDefinition, SqlType, TableDefinition};
use serac_engine::catalog::foreign::{ForeignTable, ServerDefinition};
use serac_engine::security::Object;
use serac_parser::tree::{
    CreateForeignTable, CreateServer, ForeignOption, ImportForeignSchema, ImportedTables, Name, TableElement,
};
use tokio::task::JoinSet;

/// The most columns of an imported table.
const MOST_COLUMNS: usize = 1_600;

/// The values of options, each of which may stand once.
fn values(options: &[ForeignOption]) -> Result<Vec<(String, String)>> {
    let mut values: Vec<(String, String)> = Vec::with_capacity(options.len());
    for ForeignOption { action: _, name, value } in options {
        if values.iter().any(|(known, _)| *known == name.name) {
            let message = format!("option \"{}\" provided more than once", name.name);
            return Err(SqlError::new(sqlstate::DUPLICATE_OBJECT, message).named(&name.name));
        }
        values.push((name.name.clone(), value.as_ref().map_or_else(String::new, |value| value.text.clone())));
    }
    Ok(values)
}

impl Session {
    pub(super) fn create_server(&mut self, create: &CreateServer) -> Result<StatementResult> {
        let CreateServer { if_not_exists, name, kind, version, wrapper, options } = create;
        refuse_any(&[("TYPE of a server", kind.is_some()), ("VERSION of a server", version.is_some())])?;
        self.access().check_superuser("create a server")?;
        if wrapper.name != WRAPPER {
            let message = format!("foreign-data wrapper \"{}\" does not exist", wrapper.name);
            return Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, message).named(&wrapper.name));
        }
        let server = ServerDefinition { name: name.name.clone(), options: values(options)? };
        remote_of(&server)?;
        if *if_not_exists && self.txn()?.catalog().servers.contains_key(&server.name) {
            self.say_exists(sqlstate::DUPLICATE_OBJECT, &format!("server \"{}\"", server.name));
        } else {
            self.txn()?.create_server(server)?;
        }
        done("CREATE SERVER")
    }

    /// Drops a server; with `cascade` its foreign tables, too, and the views that read them.
    pub(super) fn drop_server(&mut self, name: &Name, cascade: bool) -> Result<()> {
        let name = name.to_string();
        self.access().check_superuser("drop a server")?;
        if cascade {
            let tables = self.txn()?.catalog().foreign_tables().filter(|table| table.server == name).cloned();
            for table in tables.collect::<Vec<_>>() {
                let TableDefinition { schema, name, .. } = &table.definition;
                let what = format!("foreign table \"{name}\"");
                self.drop_readers(&(schema.clone(), name.clone()), &what, true, &[])?;
                let message = format!("drop cascades to {what}");
                self.say(Severity::Notice, sqlstate::SUCCESSFUL_COMPLETION, message);
                self.txn()?.drop_dependent(schema, name)?;
            }
        }
        Ok(self.txn()?.drop_server(&name)?)
    }

    pub(super) async fn create_foreign_table(
        &mut self,
        source: &Source,
        create: &CreateForeignTable,
    ) -> Result<StatementResult> {
        let CreateForeignTable { if_not_exists, name, elements, inherits, server, options } = create;
        let is_like = elements.iter().any(|element| matches!(element, TableElement::Like(_)));
        refuse_any(&[("INHERITS", !inherits.is_empty()), ("LIKE for creating foreign tables", is_like)])?;
        self.access().check_superuser("create a foreign table")?;
        let (schema, name) = self.locate_new(name)?;
        refuse_any(&[("a temporary foreign table", schema == TEMPORARY_SCHEMA)])?;
        let object = Object::relation(&schema, &name);
        if *if_not_exists && self.txn()?.catalog().kind_of(&object).is_some() {
            self.say_exists(sqlstate::DUPLICATE_TABLE, &format!("relation \"{name}\""));
            return done("CREATE FOREIGN TABLE");
        }
        let (mut remote_schema, mut remote_table) = (schema.clone(), name.clone());
        for (option, value) in values(options)? {
            match option.as_str() {
                "schema_name" => remote_schema = value,
                "table_name" => remote_table = value,
                _ => return Err(unknown_option(&option, "schema_name, table_name")),
            }
        }
        let mut builder = self.builder(TableDefinition::new(schema, name, Vec::new()), source);
        let (constraints, _) = self.listed_columns(elements, &mut builder)?;
        for constraint in constraints {
            builder.constraint(constraint)?;
        }
        let is_keyed = !builder.definition.keys.is_empty() || !builder.expression_keys.is_empty();
        let has = |of: &dyn Fn(&ColumnDefinition) -> bool| builder.definition.columns.iter().any(of);
        refuse_any(&[
            ("a key constraint on a foreign table", is_keyed),
            ("a foreign key constraint on a foreign table", !builder.definition.foreign_keys.is_empty()),
            ("a default or an identity column of a foreign table", has(&|column| column.default.is_some())),
            ("a generated column of a foreign table", has(&|column| column.generation.is_some())),
        ])?;
        self.with_usual_constants(&mut builder.definition, &builder.written)?;
        for check in &builder.definition.checks {
            self.check_expression(&builder.definition, &check.expression).await?;
        }
        let server = server.name.clone();
        self.txn()?.create_foreign_table(ForeignTable {
            definition: builder.definition,
            server,
            remote_schema,
            remote_table,
        })?;
        done("CREATE FOREIGN TABLE")
    }

    pub(super) async fn import_foreign_schema(&mut self, import: &ImportForeignSchema) -> Result<StatementResult> {
        let ImportForeignSchema { schema, tables, server, into, options } = import;
        if let Some(option) = options.first() {
            return Err(unknown_option(&option.name.name, "none"));
        }
        self.access().check_superuser("import a foreign schema")?;
        let catalog = self.txn()?.catalog().clone();
        let (definition, _) = (catalog.server(&server.name)?, catalog.schema(&into.name)?);
        let (remote, of) = (self.shared.sql.servers.get(definition)?, schema.name.clone());
        // On the threads that have the connections. The task ends if the statement does.
        let mut listing = JoinSet::new();
        listing.spawn_on(async move { remote.tables(&of).await }, self.query_runtime.handle());
        let listed = match listing.join_next().await {
            Some(Ok(listed)) => listed.map_err(|error| told(&error, &schema.name))?,
            _ => return Err(SqlError::new(sqlstate::FDW_ERROR, "the tables of the server could not be listed")),
        };
        if listed.is_empty() {
            let message = format!("schema \"{}\" is not present on foreign server \"{}\"", schema.name, server.name);
            let error = SqlError::new(sqlstate::FDW_SCHEMA_NOT_FOUND, message).named(&schema.name);
            return Err(error.explained("It has no table that may be read there."));
        }
        let is_named = |names: &[Name], table: &str| {
            names.iter().any(|name| name.parts.last().is_some_and(|last| last.name == *table))
        };
        for (table, columns) in listed {
            let is_wanted = match tables {
                ImportedTables::All => true,
                ImportedTables::Only(names) => is_named(names, &table),
                ImportedTables::Except(names) => !is_named(names, &table),
            };
            if is_wanted {
                let definition = TableDefinition::new(&into.name, &table, imported_columns(&table, &columns)?);
                let (server, remote_schema) = (server.name.clone(), schema.name.clone());
                let table = ForeignTable { definition, server, remote_schema, remote_table: table };
                self.txn()?.create_foreign_table(table)?;
            }
        }
        done("IMPORT FOREIGN SCHEMA")
    }
}

/// The columns of a server's table as those of a foreign one.
fn imported_columns(table: &str, columns: &SchemaRef) -> Result<Vec<ColumnDefinition>> {
    if columns.fields().len() > MOST_COLUMNS {
        let message = format!("table \"{table}\" has more than {MOST_COLUMNS} columns");
        return Err(SqlError::new(sqlstate::FDW_ERROR, message));
    }
    // SQL can write no such name.
    let is_name = |name: &str| !name.is_empty() && !name.contains('\0');
    if !is_name(table) || !columns.fields().iter().all(|field| is_name(field.name())) {
        let message = format!("table \"{table}\" or one of its columns has no name, or one with a zero byte");
        return Err(SqlError::new(sqlstate::FDW_ERROR, message));
    }
    let types = kept_types(columns)?;
    let column = |(field, sql_type): (&FieldRef, SqlType)| {
        let nullable = field.is_nullable();
        ColumnDefinition { nullable, ..ColumnDefinition::new(field.name(), sql_type) }
    };
    Ok(columns.fields().iter().zip(types).map(column).collect())
}
