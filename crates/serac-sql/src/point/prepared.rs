//! Prepared statements, and a session's state for those of the point path.

use crate::description::Description;
use crate::error::{Result, SqlError};
use crate::kept_plans::CatalogVersion;
use crate::parsed::{Arguments, Parsed, Source};
use crate::point::plan::Plan;
use crate::point::rows::Rows;
use crate::row_locks::OnHeld;
use crate::wire::field_type;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Field, SchemaRef};
use datafusion::common::ScalarValue;
use serac_engine::Catalog;
use serac_parser::tree::{self, Lock, LockWait, QueryBody, StatementKind, TableExpr, TableKind};
use serac_pg::TypeId;
use serac_storage::ColumnType;
use std::sync::Arc;

/// The known path of a statement.
#[derive(Clone, Debug)]
pub(crate) enum PathChoice {
    Nothing,
    /// It is for the other path.
    Other(PointDependencies),
    /// It has a plan.
    Point(Arc<Plan>, PointDependencies),
}

/// The dependencies of a statement.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PointDependencies {
    pub(super) catalog: CatalogVersion,
    /// The catalog of the session's temporary tables.
    pub(super) temporary: Option<CatalogVersion>,
    /// The version of roles, owners and grants: the present one, not that of the transaction's
    /// catalog.
    pub(super) security: u64,
    pub(super) settings: u64,
}

impl PointDependencies {
    /// Whether nothing else holds now. Without a count in a catalog, which all sessions share.
    pub(super) fn is(
        &self,
        catalog: &Arc<Catalog>,
        temporary: Option<&Arc<Catalog>>,
        security: u64,
        settings: u64,
    ) -> bool {
        let same_temporary = match (&self.temporary, temporary) {
            (None, None) => true,
            (Some(a), Some(b)) => a.is(b),
            _ => false,
        };
        self.catalog.is(catalog) && same_temporary && (self.security, self.settings) == (security, settings)
    }
}

/// The description of a statement that a client has got.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(super) description: Arc<Description>,
    /// The numbers of the parameters' types that the client had named.
    pub(super) named: Arc<[u32]>,
    /// The state under which that was last found to hold.
    pub(super) under: PointDependencies,
}

/// A prepared statement, made by [`Session::prepare`](crate::Session::prepare). For the session
/// that has prepared it.
///
/// Once it has been [described](crate::Session::describe), its columns are fixed: if DDL has
/// changed them, it is refused with SQLSTATE 0A000, before it has an effect. The client reads and
/// writes values as it was told.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(super) statement: Arc<Parsed>,
    /// Whether it is of a kind for the point path.
    pub(super) is_candidate: bool,
    pub(super) is_deep: bool,
    /// The number of arguments that EXECUTE must give to a statement that PREPARE has made.
    arguments: usize,
    pub(super) known: PathChoice,
    pub(super) told: Option<Told>,
}

/// The message for a statement whose columns differ from those that were described. Drivers know
/// it.
pub const CHANGED_PLAN: &str = "cached plan must not change result type";

pub(crate) fn changed_plan() -> SqlError {
    SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, CHANGED_PLAN)
}

/// Whether two schemas are the same to a client: their columns' names, and types on the wire.
pub(crate) fn has_same_columns(first: Option<&SchemaRef>, second: Option<&SchemaRef>) -> bool {
    match (first, second) {
        (None, None) => true,
        (Some(first), Some(second)) => {
            let column = |(first, second): (&Arc<Field>, &Arc<Field>)| {
                first.name() == second.name() && field_type(first) == field_type(second)
            };
            Arc::ptr_eq(first, second)
                || (first.fields().len() == second.fields().len()
                    && first.fields().iter().zip(second.fields()).all(column))
        }
        _ => false,
    }
}

impl Prepared {
    /// A statement whose parameters have types of these numbers; 0 for types that are inferred.
    pub(crate) fn new(statement: Parsed, types: Arc<[u32]>) -> Self {
        let is_deep = statement.is_deep();
        let is_candidate = statement.query_or_change().is_some_and(may_be_point);
        let statement = Arc::new(statement.with_arguments(Arguments { types, values: None }));
        Self { statement, is_candidate, is_deep, arguments: 0, known: PathChoice::Nothing, told: None }
    }

    /// Gives parameters the types that the client has named, where these are not 0.
    pub(super) fn name_types(&mut self, named: &[u32]) {
        let known = self.statement.source().arguments().types.clone();
        let type_of = |at: usize| {
            let [named, known] = [named, &known[..]].map(|types| types.get(at).copied().unwrap_or(0));
            if named == 0 { known } else { named }
        };
        let types: Arc<[u32]> = (0..named.len().max(known.len())).map(type_of).collect();
        if types.iter().enumerate().all(|(at, oid)| known.get(at).copied().unwrap_or(0) == *oid) {
            return;
        }
        let statement = self.statement.as_ref().clone();
        self.statement = Arc::new(statement.with_arguments(Arguments { types, values: None }));
        self.known = PathChoice::Nothing;
    }

    /// Finds out how many arguments EXECUTE must give.
    pub(crate) fn count_arguments(&mut self) {
        let source = self.statement.source();
        self.arguments = source.parameter_count().max(source.arguments().types.len());
    }

    /// Refuses a wrong number of EXECUTE's arguments for the parameters of the statement `name`. A
    /// statement without parameters takes any, as in PostgreSQL.
    pub(crate) fn check_arguments(&self, name: &str, given: usize) -> Result<()> {
        if given == self.arguments || self.arguments == 0 {
            return Ok(());
        }
        let message = format!("wrong number of parameters for prepared statement \"{name}\"");
        let detail = Some(format!("Expected {} parameters but got {given}.", self.arguments));
        Err(SqlError { detail, ..SqlError::new(sqlstate::SYNTAX_ERROR, message) })
    }

    /// The statement with values for its parameters. Their types are those that the client has
    /// named, or, if it has not asked for the statement's, their own; texts may be of any.
    pub(super) fn with_values(&self, values: &[ScalarValue]) -> Parsed {
        let own = |value: &ScalarValue| match serac_binder::type_of_arrow(&value.data_type()) {
            None | Some(TypeId::TEXT) => 0,
            Some(id) if matches!(id.element(), Some(TypeId::TEXT | TypeId::NUMERIC)) => 0,
            Some(id) => id.0,
        };
        let named = |at: usize| self.statement.source().arguments().types.get(at).copied().filter(|oid| *oid != 0);
        let known = || values.iter().enumerate().map(|(at, value)| named(at).unwrap_or_else(|| own(value))).collect();
        let types = self.told.as_ref().map_or_else(known, |told| told.named.clone());
        let arguments = Arguments { types, values: Some(values.into()) };
        self.statement.as_ref().clone().with_arguments(arguments)
    }

    /// Notes the client's description.
    pub(super) fn tell(&mut self, description: &Arc<Description>, named: &[u32], under: PointDependencies) {
        self.told = Some(Told { description: description.clone(), named: named.into(), under });
    }

    /// Refuses a plan of the point path with other columns than the client was told of.
    pub(super) fn check_told(&mut self) -> Result<()> {
        let (Some(told), PathChoice::Point(plan, under)) = (&mut self.told, &self.known) else { return Ok(()) };
        if told.under == *under {
            return Ok(());
        }
        if !has_same_columns(told.description.schema.as_ref(), plan.schema.as_ref()) {
            return Err(changed_plan());
        }
        told.under = under.clone();
        Ok(())
    }

    /// The statement, with its text.
    pub fn parsed(&self) -> &Parsed {
        &self.statement
    }

    pub(super) fn plan(&self) -> Option<&Arc<Plan>> {
        match &self.known {
            PathChoice::Point(plan, _) => Some(plan),
            _ => None,
        }
    }

    /// Whether the statement has been compiled for the point path.
    pub fn is_point(&self) -> bool {
        self.plan().is_some()
    }

    /// The types of the parameters of a statement of the point path.
    pub fn parameter_types(&self) -> Option<&[ColumnType]> {
        self.plan().map(|plan| &plan.parameters[..])
    }

    /// The types of the columns of those rows in [`Rows`].
    pub fn column_types(&self) -> &[ColumnType] {
        self.plan().map_or(&[], |plan| &plan.types)
    }

    /// The number of characters that its columns of CHAR(n) show; empty without such columns.
    pub fn column_widths(&self) -> &[Option<usize>] {
        self.plan().map_or(&[], |plan| &plan.widths)
    }

    /// Rows that the statement has given, as a batch.
    ///
    /// # Errors
    /// SQLSTATE 42809 for a statement that gives no rows.
    pub fn batch(&self, rows: &Rows) -> Result<RecordBatch> {
        match self.plan().and_then(|plan| Some((plan, plan.schema.as_ref()?))) {
            Some((plan, schema)) => rows.batch(schema, &plan.types),
            None => Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, "the statement gives no rows")),
        }
    }

    /// The columns of the rows that a statement of the point path gives; `None` without rows.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.plan().and_then(|plan| plan.schema.as_ref())
    }
}

/// Whether a statement is of a kind that the point path knows, and bound in no time.
pub(crate) fn may_be_point(source: &Source) -> bool {
    let is_short = source.len() <= MOST_BYTES;
    match source.statement() {
        StatementKind::Query(query) => is_short && query.with.is_none() && is_of_a_relation_or_none(query),
        StatementKind::Insert(insert) => {
            let has_few_rows = |query: &tree::Query| match &query.body {
                QueryBody::Values(rows) => rows.len() <= MOST_ROWS,
                _ => false,
            };
            insert.with.is_none() && insert.source.as_deref().is_none_or(has_few_rows)
        }
        StatementKind::Update(update) => is_short && update.with.is_none() && update.from.is_empty(),
        StatementKind::Delete(delete) => is_short && delete.with.is_none() && delete.using.is_empty(),
        _ => false,
    }
}

fn is_of_a_relation_or_none(query: &tree::Query) -> bool {
    let QueryBody::Select(select) = &query.body else { return false };
    matches!(&select.from[..], [] | [TableExpr { kind: TableKind::Relation { sample: None, .. }, .. }])
}

/// A query's action at rows that another transaction holds; an inner `None` if it claims no rows.
pub(crate) fn claim_of(statement: &StatementKind) -> Option<Option<OnHeld>> {
    let StatementKind::Query(query) = statement else { return Some(None) };
    let says = |wait: LockWait| query.locks.iter().any(|lock| lock.wait == wait);
    let names_tables = |lock: &Lock| !lock.of.is_empty();
    match &query.locks[..] {
        [] => Some(None),
        locks if locks.iter().any(names_tables) => None,
        _ if says(LockWait::NoWait) => Some(Some(OnHeld::Fail)),
        _ if says(LockWait::SkipLocked) => Some(Some(OnHeld::Skip)),
        _ => Some(Some(OnHeld::Wait)),
    }
}

/// Rows of an INSERT.
pub(crate) const MOST_ROWS: usize = 64;

/// Bytes of other statements: to bind them takes next to no time.
pub(crate) const MOST_BYTES: usize = 8_192;
