//! The snapshot of a session's statements.

use crate::error::SqlError;
use crate::foreign::servers::ServerSnapshots;
use crate::identifiers::{TEMPORARY_SCHEMA, resolve};
use crate::pg_catalog::image::LazyImage;
use crate::session_roles::readable;
use datafusion::error::Result;
use serac_engine::catalog::Schema;
use serac_engine::security::{Access, Columns, Object};
use serac_engine::table::bitmap::OwnChanges;
use serac_engine::{Catalog, ReadSet, Table};
use serac_parser::tree::Name;
use serac_storage::Snapshot;
use std::sync::Arc;

/// The snapshot of a session's statements.
#[derive(Clone, Debug)]
pub(crate) struct StatementSnapshot {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) snapshot: Snapshot,
    /// The transaction's number.
    pub(crate) transaction: u64,
    /// The transaction's changes to bitmap indexes.
    pub(crate) own: OwnChanges,
    /// The snapshots that queries see instead while a statement must not read its own writes: of
    /// the transaction, and of the one on temporary tables.
    pub(crate) before: Option<(Snapshot, Option<Snapshot>)>,
    /// The read set of a serializable transaction.
    pub(crate) reads: Option<ReadSet>,
    /// The objects under PostgreSQL's numbers, once they are needed.
    pub(crate) image: LazyImage,
    /// The state of the session's own database, if it has one.
    pub(crate) temporary: Option<(Arc<Catalog>, Snapshot, OwnChanges)>,
    /// The snapshots of other servers.
    pub(crate) servers: Arc<ServerSnapshots>,
    /// The privileges of the current user.
    pub(crate) access: Access,
    /// The schemas in which unqualified names are looked up, in order: those of the setting that
    /// are there and that the user may use.
    pub(crate) path: Arc<[String]>,
}

impl StatementSnapshot {
    /// The catalog and the snapshot in which a schema's relations are.
    pub(crate) fn of(&self, schema: &str) -> (&Arc<Catalog>, &Snapshot) {
        match &self.temporary {
            Some((catalog, snapshot, _)) if schema == TEMPORARY_SCHEMA => (catalog, snapshot),
            _ => (&self.catalog, &self.snapshot),
        }
    }

    /// The snapshot in which queries read a schema's relations if they must not see the running
    /// statement's writes.
    pub(crate) fn before(&self, schema: &str) -> Option<&Snapshot> {
        match &self.before {
            Some((_, temporary)) if schema == TEMPORARY_SCHEMA => temporary.as_ref(),
            before => before.as_ref().map(|(snapshot, _)| snapshot),
        }
    }

    /// The transaction's changes to the bitmap indexes of a schema's tables.
    pub(crate) fn own(&self, schema: &str) -> &OwnChanges {
        match &self.temporary {
            Some((_, _, own)) if schema == TEMPORARY_SCHEMA => own,
            _ => &self.own,
        }
    }

    /// Whether the current user may read the whole of a table, or owns it: system views show data
    /// about its rows to these users alone.
    pub(crate) fn may_look_into(&self, table: &Table) -> bool {
        let definition = &table.definition;
        self.access.is_superuser()
            || self.access.owns(&Object::relation(&definition.schema, &definition.name))
            || self.access.check_usage(&definition.schema).is_ok() && readable(&self.access, table) == Columns::All
    }

    pub(crate) fn schema(&self, name: &str) -> Option<&Schema> {
        self.of(name).0.schema(name).ok()
    }

    /// The schema that an unqualified name of a relation means.
    pub(crate) fn schema_of(&self, relation: &str) -> &str {
        match self.schema(TEMPORARY_SCHEMA) {
            Some(schema) if schema.tables.contains_key(relation) => return TEMPORARY_SCHEMA,
            _ => {}
        }
        // With an empty path no relation is found: no schema has this name.
        let first = self.path.first().map_or("", String::as_str);
        if self.path.len() < 2 {
            return first;
        }
        let has_index = |schema: &Schema| {
            schema.tables.values().any(|table| table.definition.index_names().any(|index| index == relation))
        };
        let has = |schema: &&String| {
            self.catalog.kind_of(&Object::relation(schema, relation)).is_some()
                || self.schema(schema).is_some_and(has_index)
        };
        self.path.iter().find(has).map_or(first, String::as_str)
    }

    /// Schema and name of the relation that a name means.
    pub(crate) fn locate(&self, name: &Name) -> Result<(String, String), SqlError> {
        let (schema, short) = resolve(name)?;
        let schema = if name.parts.len() == 1 { self.schema_of(&short).to_owned() } else { schema };
        Ok((schema, short))
    }

    /// Schema and name of a relation that is to be made: unqualified, in the first schema of the
    /// path.
    pub(crate) fn locate_new(&self, name: &Name) -> Result<(String, String), SqlError> {
        let (schema, short) = resolve(name)?;
        match (name.parts.len(), self.path.first()) {
            (1, Some(first)) => Ok((first.clone(), short)),
            (1, None) => Err(SqlError::new(sqlstate::INVALID_SCHEMA_NAME, "no schema has been selected to create in")),
            _ => Ok((schema, short)),
        }
    }
}
