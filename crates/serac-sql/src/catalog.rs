//! The catalog as DataFusion sees it: always the running transaction's.

use crate::advisory_locks::SessionLocks;
use crate::channels::Listener;
use crate::column_types::{QueryView, RelationPlan};
use crate::cursors::Cursors;
use crate::error::SqlError;
use crate::expressions::indexed_expressions;
use crate::identifiers::{
    CATALOG_SCHEMA, INFORMATION_SCHEMA, SEARCH_PATH, TEMPORARY_SCHEMA, is_system_schema, resolve,
};
use crate::identity::Identity;
use crate::maintenance::{SYSTEM_VIEWS, system_view};
use crate::parsed::Source;
use crate::pg_catalog::{self, LazyImage};
use crate::roles::{SessionRoles, readable, target_columns};
use crate::session::SqlDatabase;
use crate::session_functions::SequenceValues;
use crate::setting_list::SessionValues;
use crate::settings::ChangedSettings;
use async_trait::async_trait;
use datafusion::arrow::datatypes::{Schema as ArrowSchema, TimestampMicrosecondType};
use datafusion::arrow::temporal_conversions::as_datetime;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlanBuilder, col};
use futures::FutureExt;
use parking_lot::{Mutex, RwLock};
use serac_engine::bitmap::OwnChanges;
use serac_engine::catalog::Schema;
use serac_engine::roles::{Access, Columns, Object, Privilege, RoleId};
use serac_engine::{Catalog, DEFAULT_SCHEMA, Database, ReadSet, Table};
use serac_parser::tree::Name;
use serac_pg::TypeId;
use serac_query::scan::{ScanSharing, SeracTable, denied};
use serac_storage::Snapshot;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::SystemTime;

/// What statements of a session see.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) snapshot: Snapshot,
    /// What the transaction has changed in bitmap indexes.
    pub(crate) own: OwnChanges,
    /// What queries see instead while a statement reads nothing of what it writes: of the
    /// transaction, and of that on temporary tables.
    pub(crate) before: Option<(Snapshot, Option<Snapshot>)>,
    /// Where a serializable transaction notes what it reads.
    pub(crate) reads: Option<ReadSet>,
    /// The objects under PostgreSQL's numbers, once they are needed.
    pub(crate) image: LazyImage,
    /// Of the session's own database, if it has one.
    pub(crate) temporary: Option<(Arc<Catalog>, Snapshot, OwnChanges)>,
    /// What the current user may do.
    pub(crate) access: Access,
    /// Whether the transaction may change nothing but temporary relations.
    pub(crate) read_only: bool,
    /// The schemas in which unqualified names are looked up, in order: those of the setting that are there and that the user may use.
    pub(crate) path: Arc<[String]>,
    /// The settings that are the session's fields.
    pub(crate) settings: SessionValues,
}

impl View {
    /// The catalog and the snapshot in which a schema's relations are.
    pub(crate) fn of(&self, schema: &str) -> (&Arc<Catalog>, &Snapshot) {
        match &self.temporary {
            Some((catalog, snapshot, _)) if schema == TEMPORARY_SCHEMA => (catalog, snapshot),
            _ => (&self.catalog, &self.snapshot),
        }
    }
    /// The snapshot in which queries read a schema's relations if they do not see what the running
    /// statement writes.
    fn before(&self, schema: &str) -> Option<&Snapshot> {
        match &self.before {
            Some((_, temporary)) if schema == TEMPORARY_SCHEMA => temporary.as_ref(),
            before => before.as_ref().map(|(snapshot, _)| snapshot),
        }
    }
    /// What the transaction has changed in the bitmap indexes of a schema's tables.
    fn own(&self, schema: &str) -> &OwnChanges {
        match &self.temporary {
            Some((_, _, own)) if schema == TEMPORARY_SCHEMA => own,
            _ => &self.own,
        }
    }
    /// Whether the current user may read the whole of a table, or owns it: what system views say of its rows is for such users alone.
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
        // Without any there is nothing to be found: no schema has this name.
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
    /// Schema and name of a relation that is to be made: unqualified, in the first schema of the path.
    pub(crate) fn locate_new(&self, name: &Name) -> Result<(String, String), SqlError> {
        let (schema, short) = resolve(name)?;
        match (name.parts.len(), self.path.first()) {
            (1, Some(first)) => Ok((first.clone(), short)),
            (1, None) => Err(SqlError::new("3F000", "no schema has been selected to create in")),
            _ => Ok((schema, short)),
        }
    }
}

/// Of [`Shared::statement_time`]: few statements are asked when they began.
pub(crate) const NOT_ASKED: i64 = i64::MIN;

/// A statement that PREPARE has made, as others see it.
#[derive(Debug)]
pub(crate) struct PreparedStatement {
    /// The text of PREPARE.
    pub(crate) statement: String,
    pub(crate) made: SystemTime,
    pub(crate) parameters: Vec<TypeId>,
}

/// The parts of a session that DataFusion reaches back to.
pub(crate) struct Shared {
    pub(crate) database: Database,
    pub(crate) view: RwLock<Option<View>>,
    /// Where the session's temporary tables are, once it has had one.
    pub(crate) temporary_database: OnceLock<Database>,
    pub(crate) state: OnceLock<Weak<RwLock<SessionState>>>,
    /// Whether queries may use bitmap indexes.
    pub(crate) bitmap_indexes: AtomicBool,
    /// The optional passes of the pipeline that do not work.
    pub(crate) disabled_passes: RwLock<Vec<&'static str>>,
    /// Whether its scans go with those of others, and with which.
    pub(crate) scan_sharing: Arc<ScanSharing>,
    /// Who the session is, if that was said.
    pub(crate) identity: OnceLock<Identity>,
    /// As whom the session acts.
    pub(crate) roles: RwLock<SessionRoles>,
    /// The database with what queries need.
    pub(crate) sql: SqlDatabase,
    /// What clients of PostgreSQL have set.
    pub(crate) client_settings: RwLock<HashMap<&'static str, String>>,
    /// Changes with every setting that plans depend on.
    pub(crate) settings: AtomicU64,
    /// Changes with every setting of clients.
    pub(crate) client_changes: AtomicU64,
    /// What the running transaction has set.
    pub(crate) changed_settings: ChangedSettings,
    /// Values that this session got from sequences.
    pub(crate) sequence_values: RwLock<SequenceValues>,
    /// What `now()` is in the running transaction, in microseconds since 1970; zero until somebody asks.
    pub(crate) time: AtomicI64,
    /// What `statement_timestamp()` is, in microseconds since 1970; zero where that is `now()`, [`NOT_ASKED`] where it is to be looked at a clock.
    pub(crate) statement_time: AtomicI64,
    /// The session's cursors.
    pub(crate) cursors: Mutex<Cursors>,
    /// What `pg_prepared_statements` shows of the statements that PREPARE has made, by name.
    pub(crate) prepared_statements: Mutex<BTreeMap<String, PreparedStatement>>,
    /// Its advisory locks.
    pub(crate) advisory_locks: Arc<SessionLocks>,
    /// To what the session listens.
    pub(crate) listener: Listener,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl Shared {
    pub(crate) fn view(&self) -> Option<View> {
        self.view.read().clone()
    }
    /// What `now()` is: one time for a transaction, in microseconds since 1970.
    pub(crate) fn time(&self) -> i64 {
        // Relaxed: the session's own statements change it.
        let known = self.time.load(Ordering::Relaxed);
        if known != 0 { known } else { self.start_time() }
    }
    /// When the running statement began, in microseconds since 1970: `now()` unless it is one of several in a transaction.
    pub(crate) fn statement_time(&self) -> i64 {
        // Relaxed: as in `time`.
        match self.statement_time.load(Ordering::Relaxed) {
            0 => self.time(),
            NOT_ASKED => {
                let now = crate::clock::micros(SystemTime::now());
                self.statement_time.store(now, Ordering::Relaxed);
                now
            }
            known => known,
        }
    }
    /// Makes the present what `now()` is.
    pub(crate) fn start_time(&self) -> i64 {
        let now = crate::clock::micros(SystemTime::now());
        // Relaxed: as in `time`.
        self.time.store(now, Ordering::Relaxed);
        now
    }
    /// The session's state for a statement, at the transaction's time.
    pub(crate) fn at_its_time(&self, state: &RwLock<SessionState>) -> SessionState {
        let mut state = state.read().clone();
        state.mark_start_execution();
        let time = as_datetime::<TimestampMicrosecondType>(self.time());
        state.execution_props_mut().query_execution_start_time = time.map(|time| time.and_utc());
        state
    }
    /// A table as the running statement sees it, with or without row ids.
    pub(crate) fn provider(&self, view: &View, table: &Arc<Table>, with_row_id: bool) -> SeracTable {
        let schema = &table.definition.schema;
        let before = view.before(schema);
        // Relaxed: the session's own statements change it.
        let uses_bitmaps = before.is_none() && self.bitmap_indexes.load(Ordering::Relaxed);
        let own = uses_bitmaps.then(|| view.own(schema));
        let reads = view.reads.clone().filter(|_| schema != TEMPORARY_SCHEMA);
        let columns = match with_row_id {
            true => target_columns(&view.access, table),
            false => readable(&self.access(view), table),
        };
        let has_expressions = table.definition.columns.last().is_some_and(|column| column.hidden);
        let state = self.state.get().and_then(Weak::upgrade).filter(|_| has_expressions);
        let expressions = state.map_or_else(Vec::new, |state| indexed_expressions(&state.read(), &table.definition));
        let snapshot = before.unwrap_or(view.of(schema).1).clone();
        let provider = SeracTable::new(table.clone(), snapshot, own, with_row_id);
        provider.noting(reads).allowing(columns).knowing(expressions)
    }
    /// What the current user may do, or, while the query of a view is planned, the view's owner.
    pub(crate) fn access(&self, view: &View) -> Access {
        match owner_planned_for() {
            Some(owner) => view.access.of(owner),
            None => view.access.clone(),
        }
    }
}

thread_local! {
    /// The views whose queries this thread is planning, each in the one before, with their owners.
    /// Planning does not leave its thread: an abandoned planner and its session's next one know
    /// nothing of each other.
    static PLANNED_VIEWS: RefCell<Vec<(Object, RoleId)>> = const { RefCell::new(Vec::new()) };
}

/// Views in views in views.
const MAX_VIEWS: usize = 100;

/// The owner of the view whose query is being planned.
pub(crate) fn owner_planned_for() -> Option<RoleId> {
    PLANNED_VIEWS.with_borrow(|views| views.last().map(|(_, owner)| *owner))
}

/// Plans for a view's owner until it is dropped.
pub(crate) struct PlannedFor;

impl PlannedFor {
    pub(crate) fn new(view: &Object, owner: RoleId) -> Result<Self, SqlError> {
        PLANNED_VIEWS.with_borrow_mut(|views| {
            if views.iter().any(|(other, _)| other == view) {
                let kind =
                    if matches!(view, Object::Function(_)) { "the inputs of function" } else { "rules for relation" };
                let name = view.name();
                let message = format!("infinite recursion detected in {kind} \"{name}\"");
                return Err(SqlError::new("42P17", message).named(name));
            }
            if views.len() >= MAX_VIEWS {
                return Err(SqlError::new("54001", "views are nested too deeply"));
            }
            views.push((view.clone(), owner));
            Ok(Self)
        })
    }
}

impl Drop for PlannedFor {
    fn drop(&mut self) {
        PLANNED_VIEWS.with_borrow_mut(Vec::pop);
    }
}

#[derive(Debug)]
pub(crate) struct TransactionCatalog(pub(crate) Arc<Shared>);

impl CatalogProvider for TransactionCatalog {
    fn schema_names(&self) -> Vec<String> {
        let Some(view) = self.0.view() else { return Vec::new() };
        let temporary = view.temporary.is_some().then(|| TEMPORARY_SCHEMA.to_owned());
        let system = [CATALOG_SCHEMA, INFORMATION_SCHEMA].map(str::to_owned);
        let shown = |name: &&String| view.access.check_usage(name).is_ok();
        view.catalog.schemas.keys().filter(shown).cloned().chain(temporary).chain(system).collect()
    }
    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let system = is_system_schema(name);
        let known = system || name == SEARCH_PATH || self.0.view().is_some_and(|view| view.schema(name).is_some());
        known.then(|| Arc::new(TransactionSchema { shared: self.0.clone(), name: name.into() }) as _)
    }
}

#[derive(Debug)]
struct TransactionSchema {
    shared: Arc<Shared>,
    name: String,
}

#[async_trait]
impl SchemaProvider for TransactionSchema {
    fn table_names(&self) -> Vec<String> {
        if is_system_schema(&self.name) {
            return pg_catalog::table_names(&self.name);
        }
        let Some(view) = self.shared.view() else { return Vec::new() };
        let Some(schema) = view.schema(&self.name) else { return Vec::new() };
        let tables = schema.tables.values().filter(|table| readable(&view.access, table) != Columns::None);
        let may_read = |name: &&String| view.access.may(&Object::relation(&self.name, name), Privilege::Select);
        tables.map(|table| table.name().to_owned()).chain(schema.views.keys().filter(may_read).cloned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        table_of(&self.shared, &self.name, name).await
    }

    fn table_exist(&self, name: &str) -> bool {
        if is_system_schema(&self.name) {
            return pg_catalog::is_table(&self.name, name);
        }
        let Some(view) = self.shared.view() else { return false };
        let schema = if self.name == SEARCH_PATH { view.schema_of(name) } else { &self.name };
        SYSTEM_VIEWS.contains(&name)
            || (self.name == SEARCH_PATH && pg_catalog::is_table(CATALOG_SCHEMA, name))
            || view.schema(schema).is_some_and(|s| s.tables.contains_key(name) || s.views.contains_key(name))
    }
}

/// A relation of the running statement.
pub(crate) async fn table_of(shared: &Arc<Shared>, schema: &str, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
    let in_path = schema == SEARCH_PATH;
    let Some(view) = shared.view() else { return Ok(None) };
    if name == "pg_stat_activity" && (in_path || schema == CATALOG_SCHEMA) {
        return system_view(name, &view, &shared.sql);
    }
    if is_system_schema(schema) {
        return pg_catalog::table(shared, schema, name).await;
    }
    let schema_name = match in_path {
        // A view means what its names meant when it was made, which had other schemas written out.
        true if owner_planned_for().is_some() => DEFAULT_SCHEMA,
        true => view.schema_of(name),
        false => schema,
    };
    // System tables come before those of users, as in PostgreSQL, but behind temporary ones.
    if in_path && schema_name != TEMPORARY_SCHEMA && pg_catalog::is_table(CATALOG_SCHEMA, name) {
        return pg_catalog::table(shared, CATALOG_SCHEMA, name).await;
    }
    let Some(schema) = view.schema(schema_name) else { return Ok(None) };
    let access = shared.access(&view);
    let refused = |error: SqlError| DataFusionError::External(Box::new(error));
    let known = schema.tables.contains_key(name) || schema.views.contains_key(name);
    if schema_name != TEMPORARY_SCHEMA && (known || !SYSTEM_VIEWS.contains(&name)) {
        access.check_usage(schema_name).map_err(|error| refused(error.into()))?;
    }
    if let Some(table) = schema.tables.get(name) {
        // A view of a table that its owner may not read any more can be described, and not scanned.
        if readable(&access, table) == Columns::None && owner_planned_for().is_none() {
            return Err(refused(denied(name)));
        }
        if table.definition.materialized.as_ref().is_some_and(|materialized| !materialized.populated) {
            let message = format!("materialized view \"{name}\" has not been populated");
            return Err(refused(SqlError::new("55000", message).named(name)));
        }
        return Ok(Some(Arc::new(shared.provider(&view, table, false))));
    }
    let Some(definition) = schema.views.get(name).cloned() else {
        return system_view(name, &view, &shared.sql);
    };
    let object = Object::relation(schema_name, name);
    access.check(&object, Privilege::Select).map_err(|error| refused(error.into()))?;
    let mut query = planned_for_owner(shared, &object, &definition.query).await.map_err(refused)?;
    if !definition.columns.is_empty() {
        let columns = query.plan.schema().columns();
        // Those behind the last that has a name of the view's keep their own.
        let names = definition.columns.iter().map(Some).chain(std::iter::repeat(None));
        let renamed = columns.into_iter().zip(names.clone()).map(|(column, name)| match name {
            Some(name) => col(column).alias(name),
            None => col(column),
        });
        query.plan = LogicalPlanBuilder::from(query.plan).project(renamed.collect::<Vec<_>>())?.build()?;
        let fields = query.columns.fields().iter().zip(names).map(|(field, name)| match name {
            Some(name) => Arc::new(field.as_ref().clone().with_name(name)),
            None => field.clone(),
        });
        query.columns = Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()));
    }
    Ok(Some(Arc::new(QueryView::new(query, definition.query.clone()))))
}

/// The plan of a view's query, with the rights of the view's owner.
pub(crate) async fn planned_for_owner(
    shared: &Arc<Shared>,
    object: &Object,
    query: &str,
) -> Result<RelationPlan, SqlError> {
    let view = shared.view().ok_or_else(|| SqlError::new("XX000", "no statement is running"))?;
    let _for_owner = PlannedFor::new(object, view.access.security().owner(object))?;
    let state = shared.state.get().and_then(Weak::upgrade);
    let state = state.ok_or_else(|| SqlError::new("XX000", "the session has ended"))?;
    let state = state.read().clone();
    view_plan(&state, query).await.map_err(SqlError::unplaced)
}

async fn view_plan(state: &SessionState, query: &str) -> Result<RelationPlan, SqlError> {
    let source = Source::of_query(query)?;
    // Boxed, so that the futures around it need not know of the trees.
    async move { crate::binding::of_relation(state, &source).await }.boxed().await
}
