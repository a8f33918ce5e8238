//! The database's objects: catalogs, schemas, tables, keys.

use super::expiring_map::Owner;
use super::status::{of_arrow, of_flight, status_of};
use super::{FlightSql, form, info};
use arrow_flight::sql::metadata::{GetCatalogsBuilder, GetTablesBuilder};
use arrow_flight::sql::{Command, CommandGetDbSchemas, CommandGetTables, UpdateDeleteRules};
use datafusion::arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray, UInt8Array};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use serac_engine::catalog::definition::{ForeignKeyDefinition, ReferentialAction, TableDefinition};
use serac_engine::{Catalog, Table};
use serac_export::flight::Caller;
use serac_sql::parse;
use serac_storage::marked;
use std::collections::HashMap;
use std::sync::Arc;
use tonic::Status;

/// The one catalog.
const CATALOG: &str = "serac";
const TABLE: &str = "TABLE";
const VIEW: &str = "VIEW";
const FOREIGN: &str = "FOREIGN TABLE";
const TEMPORARY: &str = "LOCAL TEMPORARY";

/// The columns of a table as the caller sees them.
fn table_schema(caller: &Caller, definition: &TableDefinition) -> SchemaRef {
    let fields = definition.visible_columns().iter().map(|column| {
        let metadata = HashMap::from([
            ("ARROW:FLIGHT:SQL:CATALOG_NAME".to_owned(), CATALOG.to_owned()),
            ("ARROW:FLIGHT:SQL:SCHEMA_NAME".to_owned(), definition.schema.clone()),
            ("ARROW:FLIGHT:SQL:TABLE_NAME".to_owned(), definition.name.clone()),
            ("ARROW:FLIGHT:SQL:TYPE_NAME".to_owned(), column.sql_type.to_string()),
        ]);
        marked(Field::new(&column.name, column.sql_type.column_type.arrow(), column.nullable).with_metadata(metadata))
    });
    form::schema(caller, Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

/// A table that a request names; every part that is not said fits.
struct Named<'a> {
    catalog: Option<&'a str>,
    schema: Option<&'a str>,
    table: &'a str,
}

impl Named<'_> {
    fn is(&self, schema: &str, table: &str) -> bool {
        self.catalog.is_none_or(|catalog| catalog == CATALOG)
            && self.schema.is_none_or(|name| name == schema)
            && self.table == table
    }
}

/// A foreign key: the table that has it, and the table that it refers to.
struct Reference<'a> {
    child: &'a TableDefinition,
    key: &'a ForeignKeyDefinition,
    parent: &'a TableDefinition,
}

fn references(catalog: &Catalog) -> Vec<Reference<'_>> {
    let mut references = Vec::new();
    for child in catalog.tables().map(|table| &table.definition) {
        for key in &child.foreign_keys {
            // The engine keeps no foreign key without its parent.
            if let Ok(parent) = catalog.table(&key.parent_schema, &key.parent_table) {
                references.push(Reference { child, key, parent: &parent.definition });
            }
        }
    }
    references
}

fn rule(action: ReferentialAction) -> u8 {
    (match action {
        ReferentialAction::Cascade => UpdateDeleteRules::Cascade,
        ReferentialAction::Restrict => UpdateDeleteRules::Restrict,
        ReferentialAction::SetNull => UpdateDeleteRules::SetNull,
        ReferentialAction::NoAction => UpdateDeleteRules::NoAction,
        ReferentialAction::SetDefault => UpdateDeleteRules::SetDefault,
    }) as u8
}

/// A batch of columns, each with its name and whether it may hold NULL.
fn batch(columns: Vec<(&str, bool, ArrayRef)>) -> Result<RecordBatch, Status> {
    let field =
        |(name, nullable, array): &(&str, bool, ArrayRef)| Field::new(*name, array.data_type().clone(), *nullable);
    let schema: SchemaRef = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    RecordBatch::try_new(schema, columns.into_iter().map(|(_, _, array)| array).collect()).map_err(of_arrow)
}

fn texts<'a>(texts: impl Iterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(texts))
}

fn primary_keys(catalog: &Catalog, wanted: &Named<'_>) -> Result<RecordBatch, Status> {
    let mut rows = Vec::new();
    for definition in catalog.tables().map(|table| &table.definition) {
        let key = definition.primary_key().filter(|_| wanted.is(&definition.schema, &definition.name));
        for (i, &column) in key.iter().flat_map(|key| key.columns.iter().enumerate()) {
            let key = key.expect("it has columns");
            rows.push((definition, definition.columns[column].name.as_str(), i as i32 + 1, key.name.as_str()));
        }
    }
    rows.sort_by_key(|(definition, _, number, key)| (&definition.schema, &definition.name, *key, *number));
    batch(vec![
        ("catalog_name", true, texts(rows.iter().map(|_| CATALOG))),
        ("db_schema_name", true, texts(rows.iter().map(|row| row.0.schema.as_str()))),
        ("table_name", false, texts(rows.iter().map(|row| row.0.name.as_str()))),
        ("column_name", false, texts(rows.iter().map(|row| row.1))),
        ("key_sequence", false, Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.2)))),
        ("key_name", true, texts(rows.iter().map(|row| row.3))),
    ])
}

/// The columns of foreign keys, in the order of their own tables, or of those that they refer to.
fn foreign_keys(references: Vec<Reference<'_>>, by_parent: bool) -> Result<RecordBatch, Status> {
    let mut rows = Vec::new();
    for reference in &references {
        for (i, (&column, &parent)) in reference.key.columns.iter().zip(&reference.key.parent_columns).enumerate() {
            rows.push((reference, column, parent, i as i32 + 1));
        }
    }
    rows.sort_by_key(|(reference, _, _, number)| {
        let table = if by_parent { reference.child } else { reference.parent };
        (&table.schema, &table.name, &reference.key.name, *number)
    });
    let parent_key = |reference: &Reference<'_>| {
        let keys = reference.parent.keys.iter().filter(|key| key.unique);
        let mut fitting = keys.filter(|key| {
            key.columns.len() == reference.key.parent_columns.len()
                && key.columns.iter().all(|column| reference.key.parent_columns.contains(column))
        });
        fitting.next().map(|key| key.name.clone())
    };
    batch(vec![
        ("pk_catalog_name", true, texts(rows.iter().map(|_| CATALOG))),
        ("pk_db_schema_name", true, texts(rows.iter().map(|row| row.0.parent.schema.as_str()))),
        ("pk_table_name", false, texts(rows.iter().map(|row| row.0.parent.name.as_str()))),
        ("pk_column_name", false, texts(rows.iter().map(|row| row.0.parent.columns[row.2].name.as_str()))),
        ("fk_catalog_name", true, texts(rows.iter().map(|_| CATALOG))),
        ("fk_db_schema_name", true, texts(rows.iter().map(|row| row.0.child.schema.as_str()))),
        ("fk_table_name", false, texts(rows.iter().map(|row| row.0.child.name.as_str()))),
        ("fk_column_name", false, texts(rows.iter().map(|row| row.0.child.columns[row.1].name.as_str()))),
        ("key_sequence", false, Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.3)))),
        ("fk_key_name", true, texts(rows.iter().map(|row| row.0.key.name.as_str()))),
        ("pk_key_name", true, Arc::new(rows.iter().map(|row| parent_key(row.0)).collect::<StringArray>())),
        ("update_rule", false, Arc::new(UInt8Array::from_iter_values(rows.iter().map(|r| rule(r.0.key.on_update))))),
        ("delete_rule", false, Arc::new(UInt8Array::from_iter_values(rows.iter().map(|r| rule(r.0.key.on_delete))))),
    ])
}

impl FlightSql {
    /// The tables of the client's session, if it has any.
    async fn temporary_tables(&self, caller: &Caller) -> Result<Vec<Arc<Table>>, Status> {
        let Some(seat) = Self::session_key(caller).and_then(|key| self.clients.find(&Owner::of(caller), &key)) else {
            return Ok(Vec::new());
        };
        let catalog = seat.take().await?.temporary_catalog();
        Ok(catalog.iter().flat_map(|catalog| catalog.tables().cloned()).collect())
    }

    async fn tables(
        &self,
        caller: &Caller,
        catalog: &Catalog,
        request: CommandGetTables,
    ) -> Result<RecordBatch, Status> {
        let mut tables: GetTablesBuilder = request.clone().into_builder();
        for table in catalog.tables() {
            let definition = &table.definition;
            let schema = table_schema(caller, definition);
            tables.append(CATALOG, &definition.schema, &definition.name, TABLE, &schema).map_err(of_flight)?;
        }
        for table in catalog.foreign_tables() {
            let definition = &table.definition;
            let schema = table_schema(caller, definition);
            tables.append(CATALOG, &definition.schema, &definition.name, FOREIGN, &schema).map_err(of_flight)?;
        }
        for table in self.temporary_tables(caller).await? {
            let definition = &table.definition;
            let schema = table_schema(caller, definition);
            tables.append(CATALOG, &definition.schema, &definition.name, TEMPORARY, &schema).map_err(of_flight)?;
        }
        let seat = self.seat(caller, None)?;
        for (schema_name, schema) in &catalog.schemas {
            for view in schema.views.values() {
                let mut columns = Arc::new(Schema::empty());
                if request.include_schema {
                    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
                    let query = format!("SELECT * FROM {}.{}", quoted(schema_name), quoted(&view.name));
                    let query = parse(&query).map_err(|error| status_of(&error))?.pop().expect("one was written");
                    let mut session = seat.take().await?;
                    // The columns of a view are left out if the caller may not read it, or if it
                    // does not work any more.
                    let described = seat.attend(async move { session.describe_statement(query, &[]).await }).await;
                    if let Ok(Some(schema)) = described.map(|description| description.schema) {
                        columns = form::schema(caller, schema);
                    }
                }
                tables.append(CATALOG, schema_name, &view.name, VIEW, &columns).map_err(of_flight)?;
            }
        }
        tables.build().map_err(of_flight)
    }

    async fn schemas(
        &self,
        caller: &Caller,
        catalog: &Catalog,
        request: CommandGetDbSchemas,
    ) -> Result<RecordBatch, Status> {
        let mut schemas = request.into_builder();
        for schema in catalog.schemas.keys() {
            schemas.append(CATALOG, schema);
        }
        if let Some(table) = self.temporary_tables(caller).await?.first() {
            schemas.append(CATALOG, &table.definition.schema);
        }
        schemas.build().map_err(of_flight)
    }

    /// The answer to a command that asks for metadata; `None` for another command.
    pub(super) async fn metadata(&self, caller: &Caller, command: &Command) -> Result<Option<RecordBatch>, Status> {
        let catalog = self.db.database().catalog();
        Ok(Some(match command {
            Command::CommandGetCatalogs(_) => {
                let mut catalogs = GetCatalogsBuilder::new();
                catalogs.append(CATALOG);
                catalogs.build().map_err(of_flight)?
            }
            Command::CommandGetDbSchemas(request) => self.schemas(caller, &catalog, request.clone()).await?,
            Command::CommandGetTables(request) => self.tables(caller, &catalog, request.clone()).await?,
            Command::CommandGetTableTypes(_) => {
                batch(vec![("table_type", false, texts([FOREIGN, TEMPORARY, TABLE, VIEW].into_iter()))])?
            }
            Command::CommandGetPrimaryKeys(request) => {
                let wanted = Named {
                    catalog: request.catalog.as_deref(),
                    schema: request.db_schema.as_deref(),
                    table: &request.table,
                };
                primary_keys(&catalog, &wanted)?
            }
            Command::CommandGetExportedKeys(request) => {
                let wanted = Named {
                    catalog: request.catalog.as_deref(),
                    schema: request.db_schema.as_deref(),
                    table: &request.table,
                };
                let mut found = references(&catalog);
                found.retain(|reference| wanted.is(&reference.parent.schema, &reference.parent.name));
                foreign_keys(found, true)?
            }
            Command::CommandGetImportedKeys(request) => {
                let wanted = Named {
                    catalog: request.catalog.as_deref(),
                    schema: request.db_schema.as_deref(),
                    table: &request.table,
                };
                let mut found = references(&catalog);
                found.retain(|reference| wanted.is(&reference.child.schema, &reference.child.name));
                foreign_keys(found, false)?
            }
            Command::CommandGetCrossReference(request) => {
                let parent = Named {
                    catalog: request.pk_catalog.as_deref(),
                    schema: request.pk_db_schema.as_deref(),
                    table: &request.pk_table,
                };
                let child = Named {
                    catalog: request.fk_catalog.as_deref(),
                    schema: request.fk_db_schema.as_deref(),
                    table: &request.fk_table,
                };
                let mut found = references(&catalog);
                found.retain(|reference| {
                    parent.is(&reference.parent.schema, &reference.parent.name)
                        && child.is(&reference.child.schema, &reference.child.name)
                });
                foreign_keys(found, true)?
            }
            Command::CommandGetSqlInfo(request) => {
                let data = info::sql_info(&self.options)?;
                request.clone().into_builder(&data).build().map_err(of_flight)?
            }
            Command::CommandGetXdbcTypeInfo(request) => {
                info::types()?.record_batch(request.data_type).map_err(of_flight)?
            }
            _ => return Ok(None),
        }))
    }
}
