//! The catalog: immutable versions, published at commit.
//!
//! A transaction works with the version that was current at its snapshot, and with a private copy
//! once it runs DDL. Its changes there are put on top of the newest version when it commits
//! (`crate::catalog::catalog_changes`), so versions form a line. The version becomes current
//! inside the commit's critical section, together with the data. The log keeps whole versions, as
//! JSON: DDL is rare and a catalog is small, and replay needs no rules. A version is logged at the
//! end of its transaction. Rows of tables that the transaction has made come before, so the layout
//! of their data is logged when the table is made.

pub(crate) mod catalog_changes;
pub mod comments;
pub mod definition;
pub mod foreign;
pub mod function;
pub mod procedure;
pub mod sequence;

pub use crate::catalog::definition::DEFAULT_SCHEMA;

use crate::catalog::comments::Comments;
use crate::catalog::definition::{SequenceDefinition, TableDefinition, ViewDefinition};
use crate::catalog::foreign::{ForeignTable, ServerDefinition};
use crate::catalog::function::FunctionDefinition;
use crate::catalog::sequence::{Mark, Sequence};
use crate::error::{EngineError, Result, exists, missing};
use crate::security::{Object, ObjectKind, RoleId, Security};
use crate::table::Table;
use serac_storage::version::transaction::TransactionManager;
use serac_storage::{Storage, StorageError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The content of a schema. Tables, views, sequences and foreign tables share one name space.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// Tables by name.
    pub tables: BTreeMap<String, Arc<Table>>,
    /// Views by name.
    pub views: BTreeMap<String, Arc<ViewDefinition>>,
    /// Sequences by name.
    pub sequences: BTreeMap<String, Arc<Sequence>>,
    /// Foreign tables by name.
    pub foreign_tables: BTreeMap<String, Arc<ForeignTable>>,
}

impl Schema {
    /// Refuses a name that is not free.
    pub(crate) fn check_free(&self, name: &str) -> Result<()> {
        if self.is_free(name) { Ok(()) } else { exists("relation", name) }
    }

    /// Whether no relation or index of the schema has that name.
    pub fn is_free(&self, name: &str) -> bool {
        !self.is_relation(name) && !self.has_index(name)
    }

    /// The names of all relations.
    pub fn relations(&self) -> impl Iterator<Item = &String> {
        let others = self.sequences.keys().chain(self.foreign_tables.keys());
        self.tables.keys().chain(self.views.keys()).chain(others)
    }

    /// Whether a relation has that name.
    pub fn is_relation(&self, name: &str) -> bool {
        self.tables.contains_key(name)
            || self.views.contains_key(name)
            || self.sequences.contains_key(name)
            || self.foreign_tables.contains_key(name)
    }

    /// Whether one of the tables has an index with that name.
    pub fn has_index(&self, name: &str) -> bool {
        self.tables.values().any(|table| table.definition.index_names().any(|index| index == name))
    }
}

/// A version of the catalog.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Schemas by name.
    pub schemas: BTreeMap<String, Schema>,
    /// Functions that users have made, by name. They are in no schema.
    pub functions: BTreeMap<String, Arc<FunctionDefinition>>,
    /// Other servers, by name. They are in no schema, and belong to superusers.
    pub servers: BTreeMap<String, Arc<ServerDefinition>>,
    /// Roles, owners and grants.
    pub security: Arc<Security>,
    /// The comments on objects.
    pub comments: Comments,
}

impl Catalog {
    pub(crate) fn initial() -> Self {
        Self { schemas: BTreeMap::from([(DEFAULT_SCHEMA.to_owned(), Schema::default())]), ..Self::default() }
    }

    /// The kind of an object; `None` if the object does not exist. Procedures are registered by
    /// each process, so they are taken to be there.
    pub fn kind_of(&self, object: &Object) -> Option<ObjectKind> {
        match object {
            Object::Database => Some(ObjectKind::Database),
            Object::Procedure(_) => Some(ObjectKind::Procedure),
            Object::Function(name) => self.functions.contains_key(name).then_some(ObjectKind::Function),
            Object::Schema(name) => self.schemas.contains_key(name).then_some(ObjectKind::Schema),
            Object::Relation(schema, name) => {
                let schema = self.schemas.get(schema)?;
                let table = schema.tables.contains_key(name).then_some(ObjectKind::Table);
                let view = || schema.views.contains_key(name).then_some(ObjectKind::View);
                let sequence = || schema.sequences.contains_key(name).then_some(ObjectKind::Sequence);
                let foreign = || schema.foreign_tables.contains_key(name).then_some(ObjectKind::ForeignTable);
                table.or_else(view).or_else(sequence).or_else(foreign)
            }
        }
    }

    /// Notes who has made an object.
    pub(crate) fn note_created(&mut self, object: Object, kind: ObjectKind, owner: RoleId) {
        Arc::make_mut(&mut self.security).created(object, kind, owner);
    }

    /// Whether an object exists, and has a column, if one is named.
    pub(crate) fn has(&self, object: &Object, column: Option<&str>) -> bool {
        self.kind_of(object).is_some() && self.has_column(object, column)
    }

    /// Forgets owners, grants and comments of objects and columns that are gone.
    pub(crate) fn forget_gone(&mut self) {
        if self.security.outlives(|object, column| self.has(object, column)) {
            let mut security = self.security.as_ref().clone();
            security.forget_gone(|object, column| self.has(object, column));
            self.security = Arc::new(security);
        }
        if self.comments.outlive(|object, column| self.has(object, column)) {
            let mut comments = std::mem::take(&mut self.comments);
            comments.forget_gone(|object, column| self.has(object, column));
            self.comments = comments;
        }
    }

    /// Whether an object has a column, if one is named. The columns of views are those of their
    /// queries, which the catalog does not know.
    pub(crate) fn has_column(&self, object: &Object, column: Option<&str>) -> bool {
        match (object, column) {
            (Object::Relation(schema, name), Some(column)) => match self.table(schema, name) {
                Ok(table) => table.definition.column(column).is_some(),
                Err(_) => match self.foreign_table(schema, name) {
                    Ok(table) => table.definition.column(column).is_some(),
                    Err(_) => self.kind_of(object) == Some(ObjectKind::View),
                },
            },
            (_, column) => column.is_none(),
        }
    }

    /// A schema.
    ///
    /// # Errors
    /// [`EngineError::Missing`].
    pub fn schema(&self, name: &str) -> Result<&Schema> {
        self.schemas.get(name).map_or_else(|| missing("schema", name), Ok)
    }

    pub(crate) fn schema_mut(&mut self, name: &str) -> Result<&mut Schema> {
        self.schemas.get_mut(name).map_or_else(|| missing("schema", name), Ok)
    }

    /// The error of a relation that is not there, or is of another kind than is wanted.
    fn no_relation<T>(&self, schema: &str, name: &str, wanted: &'static str) -> Result<T> {
        let kind = match self.kind_of(&Object::Relation(schema.to_owned(), name.to_owned())) {
            Some(ObjectKind::View) => "view",
            Some(ObjectKind::Sequence) => "sequence",
            Some(ObjectKind::ForeignTable) => "foreign table",
            Some(_) => "table",
            None => return missing("relation", name),
        };
        Err(EngineError::OtherKind { wanted, name: name.to_owned(), kind })
    }

    /// A table.
    ///
    /// # Errors
    /// [`EngineError::Missing`], [`EngineError::OtherKind`].
    pub fn table(&self, schema: &str, name: &str) -> Result<&Arc<Table>> {
        self.schema(schema)?.tables.get(name).map_or_else(|| self.no_relation(schema, name, "table"), Ok)
    }

    /// A sequence.
    ///
    /// # Errors
    /// [`EngineError::Missing`], [`EngineError::OtherKind`].
    pub fn sequence(&self, schema: &str, name: &str) -> Result<&Arc<Sequence>> {
        self.schema(schema)?.sequences.get(name).map_or_else(|| self.no_relation(schema, name, "sequence"), Ok)
    }

    /// A foreign table.
    ///
    /// # Errors
    /// [`EngineError::Missing`], [`EngineError::OtherKind`].
    pub fn foreign_table(&self, schema: &str, name: &str) -> Result<&Arc<ForeignTable>> {
        let found = self.schema(schema)?.foreign_tables.get(name);
        found.map_or_else(|| self.no_relation(schema, name, "foreign table"), Ok)
    }

    /// A server.
    ///
    /// # Errors
    /// [`EngineError::Missing`].
    pub fn server(&self, name: &str) -> Result<&Arc<ServerDefinition>> {
        self.servers.get(name).map_or_else(|| missing("server", name), Ok)
    }

    /// All foreign tables.
    pub fn foreign_tables(&self) -> impl Iterator<Item = &Arc<ForeignTable>> {
        self.schemas.values().flat_map(|schema| schema.foreign_tables.values())
    }

    /// All sequences.
    pub fn sequences(&self) -> impl Iterator<Item = &Arc<Sequence>> {
        self.schemas.values().flat_map(|schema| schema.sequences.values())
    }

    /// All tables.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.schemas.values().flat_map(|schema| schema.tables.values())
    }

    /// Tables with a foreign key to `parent`, and the key's position.
    pub fn children_of<'a>(&'a self, parent: &'a TableDefinition) -> impl Iterator<Item = (&'a Arc<Table>, usize)> {
        self.tables().flat_map(move |table| {
            table
                .definition
                .foreign_keys
                .iter()
                .enumerate()
                .filter(move |(_, key)| key.parent_schema == parent.schema && key.parent_table == parent.name)
                .map(move |(i, _)| (table, i))
        })
    }

    /// Puts tables with new indexes, which are to be filled, in the place of all: recovery made
    /// them with a clock of its own.
    pub(crate) fn use_clock(&mut self, manager: &Arc<TransactionManager>) {
        for table in self.schemas.values_mut().flat_map(|schema| schema.tables.values_mut()) {
            *table = Arc::new(Table::new(table.definition.clone(), table.data.clone(), manager));
        }
    }

    pub(crate) fn state(&self, next_id: u32) -> CatalogState {
        CatalogState {
            next_id,
            security: self.security.as_ref().clone(),
            comments: self.comments.clone(),
            functions: self.functions.values().map(|function| function.as_ref().clone()).collect(),
            servers: self.servers.values().map(|server| server.as_ref().clone()).collect(),
            schemas: self
                .schemas
                .iter()
                .map(|(name, schema)| SchemaState {
                    name: name.clone(),
                    tables: schema.tables.values().map(|t| t.definition.clone()).collect(),
                    views: schema.views.values().map(|v| v.as_ref().clone()).collect(),
                    sequences: schema.sequences.values().map(|s| (s.definition.clone(), s.reserved())).collect(),
                    foreign_tables: schema.foreign_tables.values().map(|table| table.as_ref().clone()).collect(),
                })
                .collect(),
        }
    }

    /// The catalog that `state` describes; tables and sequences that `self` has already are taken
    /// over.
    pub(crate) fn follow(&self, state: &CatalogState, storage: &Storage) -> Result<Self> {
        state.check().map_err(|what| StorageError::InvalidInput(format!("the catalog is damaged: {what}")))?;
        let (security, comments) = (Arc::new(state.security.clone()), state.comments.clone());
        // An unchanged part keeps its allocation, so that a difference between catalogs is a
        // change.
        let function = |state: &FunctionDefinition| match self.functions.get(&state.name) {
            Some(known) if **known == *state => known.clone(),
            _ => Arc::new(state.clone()),
        };
        let functions = state.functions.iter().map(|state| (state.name.clone(), function(state))).collect();
        let server = |state: &ServerDefinition| match self.servers.get(&state.name) {
            Some(known) if **known == *state => known.clone(),
            _ => Arc::new(state.clone()),
        };
        let servers = state.servers.iter().map(|state| (state.name.clone(), server(state))).collect();
        let mut next = Self { security, comments, functions, servers, ..Self::default() };
        for schema in &state.schemas {
            let mut made = Schema::default();
            for definition in &schema.tables {
                let data = match storage.table(definition.id) {
                    Some(data) if data.schema().column_types().eq(definition.storage_schema().column_types()) => data,
                    Some(_) => {
                        let what =
                            format!("the catalog is damaged: the rows of table {} have other types", definition.name);
                        return Err(StorageError::InvalidInput(what).into());
                    }
                    None => storage.create_table(definition.id, &definition.name, definition.storage_schema())?,
                };
                made.tables
                    .insert(definition.name.clone(), Arc::new(Table::new(definition.clone(), data, storage.manager())));
            }
            for view in &schema.views {
                made.views.insert(view.name.clone(), Arc::new(view.clone()));
            }
            for (definition, reserved) in &schema.sequences {
                let sequence = match self.sequences().find(|s| s.definition.id == definition.id) {
                    Some(known) if known.definition == *definition => known.clone(),
                    // Values may have been reserved since the state was noted.
                    Some(known) => Arc::new(known.redefined(definition.clone())),
                    None => Arc::new(Sequence::recovered(definition.clone(), *reserved)),
                };
                made.sequences.insert(definition.name.clone(), sequence);
            }
            for table in &schema.foreign_tables {
                made.foreign_tables.insert(table.definition.name.clone(), Arc::new(table.clone()));
            }
            next.schemas.insert(schema.name.clone(), made);
        }
        for gone in self.tables().filter(|t| next.tables().all(|n| n.definition.id != t.definition.id)) {
            storage.drop_table(gone.definition.id);
        }
        Ok(next)
    }
}

/// A catalog as it is logged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CatalogState {
    pub(crate) next_id: u32,
    schemas: Vec<SchemaState>,
    /// Absent in databases from before there were roles.
    #[serde(default)]
    security: Security,
    #[serde(default)]
    comments: Comments,
    #[serde(default)]
    functions: Vec<FunctionDefinition>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    servers: Vec<ServerDefinition>,
}

impl CatalogState {
    /// Whether the definitions hold together: those of a damaged file may not.
    fn check(&self) -> std::result::Result<(), String> {
        let tables = || self.schemas.iter().flat_map(|schema| schema.tables.iter().map(move |table| (schema, table)));
        let mut numbers = BTreeSet::new();
        for (schema, table) in tables() {
            if table.schema != schema.name || !numbers.insert(table.id) {
                return Err(format!("table {} has another schema, or another table's number", table.name));
            }
            table.check_positions()?;
            for key in &table.foreign_keys {
                let parent = tables().find(|(_, parent)| parent.is(&key.parent_schema, &key.parent_table));
                if parent.is_some_and(|(_, parent)| key.parent_columns.iter().any(|&c| c >= parent.columns.len())) {
                    return Err(format!("foreign key {} has columns that its parent has not", key.name));
                }
            }
        }
        for schema in &self.schemas {
            for ForeignTable { definition, .. } in &schema.foreign_tables {
                if definition.schema != schema.name {
                    return Err(format!("foreign table {} has another schema", definition.name));
                }
                definition.check_positions()?;
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SchemaState {
    name: String,
    tables: Vec<TableDefinition>,
    views: Vec<ViewDefinition>,
    sequences: Vec<(SequenceDefinition, Option<Mark>)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    foreign_tables: Vec<ForeignTable>,
}

/// The engine's records in the log.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum MetaRecord {
    /// A new version of the catalog.
    Catalog(CatalogState),
    /// Data of a table that the transaction's version of the catalog will have, unless it is
    /// dropped again before.
    NewData(TableDefinition),
    /// Values of a sequence may have been given out up to here.
    Sequence { id: u32, reserved: Mark },
}

impl MetaRecord {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a meta record is plain data")
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes)
            .map_err(|e| EngineError::InvalidDefinition(format!("the catalog's log cannot be read: {e}")))
    }
}
