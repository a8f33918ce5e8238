//! The point path: statements on a few rows of one table, found by an ordered index, without planning per execution.
//!
//! ```text
//! text ──parse, bind, analyse (once)──▶ Shape ──▶ Plan ──run──▶ index, DataTable, Transaction
//!                                         │ none: anything else
//!                                         ▼
//!                             the session's other path, each time
//! ```
//! A [`Plan`] is SELECT, INSERT … VALUES, UPDATE or DELETE on a table, whose filter is an equality, a list or a range on the first columns of an ordered
//! index ([`access`]), with any other conditions, RETURNING, ON CONFLICT, ORDER BY, LIMIT, and aggregates over all rows. What expressions mean is
//! the binder's to say, as on the other path; [`expression`] says how they are evaluated. Rows are written by the engine as on the other path,
//! so constraints, indexes and errors are the same.
//!
//! A plan holds for the catalog, the privileges, the current user and the settings it was made under; under others it is made again.
//! A statement that has to look at too many rows, or whose parameters are not exactly of the plan's types, takes the other path, that time.
//!
//! Who comes here: [`Session::run_prepared`] with typed parameters, EXECUTE, and texts that a session sees again ([`texts`]).

mod access;
mod compile;
mod compiler;
mod execute;
mod expression;
mod literal;
mod parameters;
mod plan;
mod rows;
mod shape;
mod texts;

use compile::may_be_point;
pub(crate) use literal::{constant_rows, constants_of};
pub use rows::Rows;

use crate::conflicts::Conflicts;
use crate::deep;
use crate::describe::Description;
use crate::error::{Result, SqlError};
use crate::limits::Limits;
use crate::parsed::{Arguments, Parsed};
use crate::session::{Session, StatementResult};
use crate::transactions::OpenStatement;
use crate::wire::field_type;
use bumpalo::Bump;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Field, SchemaRef};
use datafusion::common::ScalarValue;
use expression::Constants;
use literal::{constant, is_of, of_scalar};
use plan::{Action, Plan};
use serac_engine::values::OwnedValue;
use serac_engine::{Catalog, LOCK_TIMEOUT};
use serac_parser::tree::{Expr, ExprKind, StatementKind};
use serac_pg::TypeId;
use serac_storage::{ColumnType, CommitTicket, Value};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;
pub(crate) use texts::Texts;

/// What a session keeps for its point statements.
#[derive(Debug, Default)]
pub(crate) struct PointState {
    pub(crate) texts: Texts,
    /// Statements that may not come here.
    pub(crate) is_off: bool,
    /// Statements that have run here.
    executions: u64,
    scratch: Option<Box<execute::Scratch>>,
    rows: Rows,
}

/// What is known of a statement.
#[derive(Clone, Debug)]
enum Known {
    Nothing,
    /// It is for the other path.
    Other(Under),
    /// It has a plan.
    Point(Arc<Plan>, Under),
}

/// What a statement depends on.
#[derive(Clone, Debug)]
struct Under {
    catalog: Arc<Catalog>,
    /// Of the session's temporary tables.
    temporary: Option<Arc<Catalog>>,
    /// Of roles, owners and grants: they count as they are now, whatever the transaction's catalog.
    security: u64,
    settings: u64,
}

impl Under {
    fn is_same(&self, other: &Self) -> bool {
        self.is(&other.catalog, other.temporary.as_ref(), other.security, other.settings)
    }
    /// Whether nothing else holds now. Without a count in a catalog, which all sessions share.
    fn is(&self, catalog: &Arc<Catalog>, temporary: Option<&Arc<Catalog>>, security: u64, settings: u64) -> bool {
        let same_temporary = match (&self.temporary, temporary) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        Arc::ptr_eq(&self.catalog, catalog) && same_temporary && (self.security, self.settings) == (security, settings)
    }
}

/// What a client has been told of a statement.
#[derive(Clone, Debug)]
struct Told {
    description: Arc<Description>,
    /// The numbers of the parameters' types that the client had named.
    named: Arc<[u32]>,
    /// Under what that was found to hold last.
    under: Under,
}

/// A prepared statement, made by [`Session::prepare`]. For the session that has prepared it.
///
/// Once it has been [described](Session::describe), its columns are fixed: where DDL has changed them, it is refused with
/// SQLSTATE 0A000, before it does anything. The client reads and writes values as it was told.
#[derive(Clone, Debug)]
pub struct Prepared {
    statement: Arc<Parsed>,
    /// Whether it is of a kind for the point path.
    is_candidate: bool,
    is_deep: bool,
    /// How many arguments EXECUTE must give, of a statement that PREPARE has made.
    arguments: usize,
    known: Known,
    told: Option<Told>,
}

/// The message of a statement whose columns are others than those that were described. Drivers know it.
pub const CHANGED_PLAN: &str = "cached plan must not change result type";

fn changed_plan() -> SqlError {
    SqlError::new("0A000", CHANGED_PLAN)
}

/// Whether two schemas are the same to a client: their columns' names, and types on the wire.
fn has_same_columns(first: Option<&SchemaRef>, second: Option<&SchemaRef>) -> bool {
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
    /// One whose parameters have types of these numbers; 0 for those that are found out.
    pub(crate) fn new(statement: Parsed, types: Arc<[u32]>) -> Self {
        let is_deep = statement.is_deep();
        let is_candidate = statement.query_or_change().is_some_and(may_be_point);
        let statement = Arc::new(statement.with_arguments(Arguments { types, values: None }));
        Self { statement, is_candidate, is_deep, arguments: 0, known: Known::Nothing, told: None }
    }
    /// Gives parameters the types that the client has named, where these are not 0.
    fn name_types(&mut self, named: &[u32]) {
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
        self.known = Known::Nothing;
    }
    /// Finds out how many arguments EXECUTE must give.
    pub(crate) fn count_arguments(&mut self) {
        let source = self.statement.source();
        self.arguments = source.parameter_count().max(source.arguments().types.len());
    }
    /// Refuses more or fewer arguments of EXECUTE than the statement `name` has parameters; one
    /// without any takes what it is given, as in PostgreSQL.
    pub(crate) fn check_arguments(&self, name: &str, given: usize) -> Result<()> {
        if given == self.arguments || self.arguments == 0 {
            return Ok(());
        }
        let message = format!("wrong number of parameters for prepared statement \"{name}\"");
        let detail = Some(format!("Expected {} parameters but got {given}.", self.arguments));
        Err(SqlError { detail, ..SqlError::new("42601", message) })
    }
    /// The statement with values for its parameters. Their types are those that the client has
    /// named, or, if it has not asked for the statement's, their own; texts may be of any.
    fn with_values(&self, values: &[ScalarValue]) -> Parsed {
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
    /// Notes what the client is told.
    fn tell(&mut self, description: &Arc<Description>, named: &[u32], under: Under) {
        self.told = Some(Told { description: description.clone(), named: named.into(), under });
    }
    /// Refuses a plan of the point path with other columns than the client was told of.
    fn check_told(&mut self) -> Result<()> {
        let (Some(told), Known::Point(plan, under)) = (&mut self.told, &self.known) else { return Ok(()) };
        if told.under.is_same(under) {
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
    fn plan(&self) -> Option<&Arc<Plan>> {
        match &self.known {
            Known::Point(plan, _) => Some(plan),
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
    /// How many characters its columns of CHAR(n) show; empty if it has none.
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
            None => Err(SqlError::new("42809", "the statement gives no rows")),
        }
    }
    /// The columns of the rows that a statement of the point path gives; none if it gives none.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.plan().and_then(|plan| plan.schema.as_ref())
    }
}

/// The parameters of an execution.
enum Given<'a> {
    /// Values that are to be of the plan's types.
    Values(&'a [Value<'a>]),
    /// What becomes values of the plan's types, if it is exactly that.
    Exact(&'a Exact<'a>),
}

/// How a statement has begun.
#[derive(Debug)]
pub enum Start {
    /// It has run.
    Ran(Started),
    /// It is not for the point path.
    Other,
    /// Another transaction is in its way: it is open still, to be [resumed](Session::resume_prepared).
    Blocked(Blocked),
}

/// A statement that waits for another transaction: the conflict that it has met.
#[derive(Debug)]
pub struct Blocked(Box<SqlError>);

type Exact<'a> = dyn Fn(&[ColumnType]) -> Option<Vec<OwnedValue>> + Sync + 'a;

/// The result of a statement, which may be shown once what it has done or read is durable.
pub(crate) struct Outcome {
    result: StatementResult,
    ticket: Option<CommitTicket>,
}

impl Plan {
    fn result(&self, affected: u64, rows: &Rows) -> Result<StatementResult> {
        let tag = match &self.action {
            Action::Select { .. } => "SELECT",
            Action::Insert(_) => "INSERT 0",
            Action::Update { .. } => "UPDATE",
            Action::Delete { .. } => "DELETE",
        };
        if let Some(schema) = &self.schema {
            let batch = rows.batch(schema, &self.types)?;
            return Ok(StatementResult::Rows { tag, schema: schema.clone(), batches: vec![batch] });
        }
        Ok(StatementResult::Command { tag: format!("{tag} {affected}"), rows: affected })
    }
}

/// A statement that has run.
#[derive(Debug)]
pub struct Started {
    /// Rows that it found or changed.
    pub affected: u64,
    pub(crate) ticket: Option<CommitTicket>,
}

impl Started {
    /// Whether its own transaction is durable, so that its result may be shown.
    pub fn is_durable(&self) -> bool {
        self.ticket.as_ref().is_none_or(CommitTicket::is_acknowledged)
    }
    /// Waits until it is.
    ///
    /// # Errors
    /// When the log has failed.
    pub async fn durable(self) -> Result<()> {
        match self.ticket {
            Some(ticket) => Session::durable(ticket).await,
            None => Ok(()),
        }
    }
}

impl Session {
    /// Prepares one statement, in which `$1`, `$2`, … stand for parameters.
    ///
    /// # Errors
    /// SQLSTATE 42601 for what is not one statement.
    pub fn prepare(&mut self, sql: &str) -> Result<Prepared> {
        let prepared = self.prepare_if_any(sql)?;
        let none = || SqlError::new("42601", "cannot prepare anything but a single statement");
        let prepared = prepared.ok_or_else(none);
        self.failing(prepared)
    }
    /// As [`prepare`](Self::prepare); none for a text without a statement.
    ///
    /// # Errors
    /// As there.
    pub fn prepare_if_any(&mut self, sql: &str) -> Result<Option<Prepared>> {
        let statements = self.parse(sql)?;
        self.prepare_parsed(statements, &[])
    }
    /// As [`prepare_if_any`](Self::prepare_if_any), with a long text parsed
    /// [elsewhere](Self::parse_elsewhere). The parameters have types of the numbers `named`, as far
    /// as these are not 0.
    ///
    /// # Errors
    /// As there.
    pub async fn prepare_elsewhere(&mut self, sql: &str, named: &[u32]) -> Result<Option<Prepared>> {
        let statements = self.parse_elsewhere(sql).await?;
        self.prepare_parsed(statements, named)
    }
    fn prepare_parsed(&mut self, mut statements: Vec<Parsed>, named: &[u32]) -> Result<Option<Prepared>> {
        if statements.len() > 1 {
            self.fail_transaction();
            return Err(SqlError::new("42601", "cannot prepare anything but a single statement"));
        }
        let Some(statement) = statements.pop() else { return Ok(None) };
        let mut prepared = Prepared::new(statement, named.into());
        let idle = self.running.is_none();
        if idle {
            self.begin_statement();
        }
        self.know(&mut prepared);
        if idle {
            self.end();
        }
        Ok(Some(prepared))
    }

    /// Runs a prepared statement of the point path with parameters of its types, in the calling thread. `rows` become its result. The number of rows that it
    /// found or changed; none if the statement, or this execution of it, is not for the point path or has to wait for another transaction, and is to be run by
    /// [`execute_prepared`](Self::execute_prepared). Its own transaction is durable (at the database's level) when this returns.
    ///
    /// # Errors
    /// What is wrong with the statement, which has then done nothing; SQLSTATE 08P01 for parameters of other types or number.
    pub fn run_prepared(
        &mut self,
        prepared: &mut Prepared,
        parameters: &[Value<'_>],
        rows: &mut Rows,
    ) -> Result<Option<u64>> {
        let started = match self.start_point(prepared, &Given::Values(parameters), rows) {
            Ok(started) => started,
            Err(error) => {
                if let Some(ticket) = self.error_ticket.take() {
                    ticket.wait()?;
                }
                return Err(error);
            }
        };
        match started {
            Start::Ran(ran) => {
                if let Some(ticket) = ran.ticket {
                    let durable = ticket.wait().map_err(SqlError::from);
                    self.failing(durable)?;
                }
                Ok(Some(ran.affected))
            }
            Start::Other => Ok(None),
            Start::Blocked(Blocked(conflict)) => {
                if !self.may_wait(&prepared.statement) {
                    return Err(self.close_failed_statement(*conflict));
                }
                match self.running.as_mut().filter(|running| running.is_block()) {
                    Some(running) => running.undo_statement(),
                    None => drop(self.end()),
                }
                Ok(None)
            }
        }
    }

    /// As [`run_prepared`](Self::run_prepared), but it does not wait for the commit: what the statement gives must not be shown before it is
    /// [durable](Started::durable). Nor does it wait for a transaction that is in the way.
    ///
    /// # Errors
    /// As there; an error must not be shown before [`error_is_durable`](Self::error_is_durable) has returned.
    pub fn start_prepared(
        &mut self,
        prepared: &mut Prepared,
        parameters: &[Value<'_>],
        rows: &mut Rows,
    ) -> Result<Start> {
        self.start_point(prepared, &Given::Values(parameters), rows)
    }
    /// Goes on with a statement, of the same parameters, once nothing is in its way; none if it is not for the point path then.
    ///
    /// # Errors
    /// As for [`run_prepared`](Self::run_prepared), and those of waiting: deadlocks, timeouts, cancellation.
    pub async fn resume_prepared(
        &mut self,
        blocked: Blocked,
        prepared: &mut Prepared,
        parameters: &[Value<'_>],
        rows: &mut Rows,
    ) -> Result<Option<Started>> {
        self.run_after(*blocked.0, prepared, &Given::Values(parameters), rows).await
    }

    /// Runs a text if it is for the point path, and one that differs from it in constants alone has been seen before; none if not.
    ///
    /// # Errors
    /// What is wrong with it; it has then done nothing.
    pub async fn execute_known(&mut self, sql: &str) -> Result<Option<StatementResult>> {
        match self.execute_text(sql).await? {
            Some(outcome) => self.acknowledged(outcome).await.map(Some),
            None => Ok(None),
        }
    }

    /// Runs any prepared statement and gives the rows of a query as they come.
    ///
    /// # Errors
    /// What is wrong with it; errors of a query may also come later, from the stream.
    pub async fn stream_prepared(
        &mut self,
        prepared: &mut Prepared,
        parameters: &[ScalarValue],
    ) -> Result<crate::StatementStream<'_>> {
        self.revalidate(prepared).await?;
        let statement = prepared.with_values(parameters);
        Box::pin(self.stream_of_depth(statement, prepared.is_deep)).await.map_err(SqlError::unplaced)
    }

    /// Runs any prepared statement.
    ///
    /// # Errors
    /// What is wrong with it; it has then done nothing.
    pub async fn execute_prepared(
        &mut self,
        prepared: &mut Prepared,
        parameters: &[ScalarValue],
    ) -> Result<StatementResult> {
        let exact = |types: &[ColumnType]| -> Option<Vec<OwnedValue>> {
            (types.len() == parameters.len()).then_some(())?;
            parameters.iter().zip(types).map(|(scalar, column_type)| of_scalar(scalar, *column_type)).collect()
        };
        if let Some(outcome) = self.try_point(prepared, &exact).await? {
            return self.acknowledged(outcome).await;
        }
        self.revalidate(prepared).await?;
        let statement = prepared.with_values(parameters);
        Box::pin(self.execute_of_depth(statement, prepared.is_deep)).await.map_err(SqlError::unplaced)
    }

    /// What a statement depends on now, in the running transaction or outside of any.
    fn under(&self) -> Under {
        let (catalog, temporary) = match &self.running {
            Some(running) => {
                (running.txn.catalog().clone(), running.temporary.as_ref().map(|txn| txn.catalog().clone()))
            }
            None => (self.database().catalog(), self.temporary_catalog()),
        };
        Under { catalog, temporary, security: self.database().security_version(), settings: self.shared.settings() }
    }
    /// Whether what the client was told of a statement, if it was told anything, holds without a new look.
    pub fn is_as_told(&self, prepared: &Prepared) -> bool {
        // What these give hangs on cursors and statements, which change without the catalog.
        let of_others = matches!(prepared.statement.statement(), StatementKind::Fetch(_) | StatementKind::Execute(_));
        prepared.told.as_ref().is_none_or(|told| !of_others && told.under.is_same(&self.under()))
    }
    /// Looks again at what the client was told of a statement, if something has changed since.
    async fn revalidate(&mut self, prepared: &mut Prepared) -> Result<()> {
        if self.is_as_told(prepared) {
            return Ok(());
        }
        let Some(told) = prepared.told.clone() else { return Ok(()) };
        Box::pin(self.describe(prepared, &told.named)).await.map(|_| ())
    }
    /// Says what a statement takes and gives, whose parameters have types of the numbers `named`, as far as these are not
    /// 0. From then on it gives this, or is refused.
    ///
    /// # Errors
    /// What is wrong with the statement; SQLSTATE 0A000 if the client was told something else before.
    pub async fn describe(&mut self, prepared: &mut Prepared, named: &[u32]) -> Result<Arc<Description>> {
        if crate::transactions::controls_transaction(&prepared.statement) {
            return Ok(Arc::default());
        }
        if let Some(told) = &prepared.told
            && self.is_as_told(prepared)
        {
            return Ok(told.description.clone());
        }
        prepared.name_types(named);
        let (description, under) = self.looked_up(prepared, named).await?;
        if let Some(told) = &prepared.told {
            let known = told.description.clone();
            let is_same = has_same_columns(known.schema.as_ref(), description.schema.as_ref());
            self.failing(if is_same { Ok(()) } else { Err(changed_plan()) })?;
            prepared.tell(&known, named, under);
            return Ok(known);
        }
        let description = Arc::new(description);
        prepared.tell(&description, named, under);
        Ok(description)
    }
    /// What the statement takes and gives now, and under what.
    async fn looked_up(&mut self, prepared: &mut Prepared, named: &[u32]) -> Result<(Description, Under)> {
        let is_deep = prepared.is_deep;
        let look = async |session: &mut Self| {
            let under = session.under();
            // Only the binder tells a VARCHAR from a TEXT.
            if let Known::Point(plan, known) = &prepared.known
                && known.is_same(&under)
                && !plan.parameters.contains(&ColumnType::Utf8)
            {
                let parameters = plan.parameters.iter().copied().map(Some).collect();
                let description = Description { parameters, oids: Vec::new(), schema: plan.schema.clone() };
                return Ok((description, under));
            }
            let statement = prepared.statement.as_ref().clone();
            let description = session.description_of(statement, named).await?;
            Ok((description, under))
        };
        deep::Roomy::new(is_deep, self.looking(look)).await
    }

    /// The result of a statement, once it may be shown.
    pub(crate) async fn acknowledged(&mut self, outcome: Outcome) -> Result<StatementResult> {
        let durable = match outcome.ticket {
            Some(ticket) => Self::durable(ticket).await,
            None => Ok(()),
        };
        self.failing(durable).map(|()| outcome.result)
    }

    /// EXECUTE on the point path, if the statement and these arguments are for it. `values` are
    /// those of parameters in the arguments.
    pub(crate) async fn execute_point(
        &mut self,
        prepared: &mut Prepared,
        arguments: &[Expr],
        values: &[ScalarValue],
    ) -> Result<Option<Outcome>> {
        let value = |argument: &Expr, column_type: ColumnType| match &argument.kind {
            ExprKind::Parameter(number) => of_scalar(values.get((*number as usize).checked_sub(1)?)?, column_type),
            _ => constant(argument)?.value_of(column_type),
        };
        let exact = |types: &[ColumnType]| -> Option<Vec<OwnedValue>> {
            (types.len() == arguments.len()).then_some(())?;
            arguments.iter().zip(types).map(|(argument, column_type)| value(argument, *column_type)).collect()
        };
        self.try_point(prepared, &exact).await
    }

    /// Runs a statement on the point path if it is for it, with the parameters that `exact` gives for their types.
    async fn try_point(&mut self, prepared: &mut Prepared, exact: &Exact<'_>) -> Result<Option<Outcome>> {
        let mut rows = std::mem::take(&mut self.point.rows);
        let ran = self.run_point(prepared, Given::Exact(exact), &mut rows).await;
        let outcome = match ran {
            Ok(Some(ran)) => {
                let plan = prepared.plan().expect("it has run");
                plan.result(ran.affected, &rows).map(|result| Some(Outcome { result, ticket: ran.ticket }))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(self.shown(error).await),
        };
        self.point.rows = rows;
        outcome
    }

    /// Finds out what a statement is under the running transaction's catalog, whose view is set. Whether that was not known.
    fn know(&mut self, prepared: &mut Prepared) -> bool {
        let Some(running) = self.running.as_ref().filter(|running| !running.failed) else { return false };
        let (catalog, temporary) = (running.txn.catalog(), running.temporary.as_ref().map(|txn| txn.catalog()));
        let (security, settings) = (self.database().security_version(), self.shared.settings());
        match &prepared.known {
            Known::Other(known) | Known::Point(_, known) if known.is(catalog, temporary, security, settings) => {
                return false;
            }
            _ => {}
        }
        let under = Under { catalog: catalog.clone(), temporary: temporary.cloned(), security, settings };
        self.refresh_view();
        let plan = prepared.statement.query_or_change().and_then(|source| self.compile_point(source));
        prepared.known = match plan {
            Some(plan) => Known::Point(Arc::new(plan), under),
            None => Known::Other(under),
        };
        true
    }

    /// Runs a statement on the point path, and waits for transactions in its way; none if it is not for it.
    async fn run_point(
        &mut self,
        prepared: &mut Prepared,
        parameters: Given<'_>,
        rows: &mut Rows,
    ) -> Result<Option<Started>> {
        match self.start_point(prepared, &parameters, rows)? {
            Start::Ran(ran) => Ok(Some(ran)),
            Start::Other => Ok(None),
            // In a box, as it is seldom: what a future may hold is moved each time.
            Start::Blocked(Blocked(conflict)) => Box::pin(self.run_after(*conflict, prepared, &parameters, rows)).await,
        }
    }

    /// Begins a statement and runs it, if it is for the point path.
    fn start_point(&mut self, prepared: &mut Prepared, parameters: &Given<'_>, rows: &mut Rows) -> Result<Start> {
        if self.is_other(prepared) {
            return Ok(Start::Other);
        }
        self.open_statement()?;
        match self.run_once(prepared, parameters, rows) {
            Err(error) if error.sqlstate == "40001" => Ok(Start::Blocked(Blocked(Box::new(error)))),
            result => Ok(self.close_point(result)?.map_or(Start::Other, Start::Ran)),
        }
    }

    /// Runs a statement again that has met a conflict, when that is out of the way.
    async fn run_after(
        &mut self,
        mut error: SqlError,
        prepared: &mut Prepared,
        parameters: &Given<'_>,
        rows: &mut Rows,
    ) -> Result<Option<Started>> {
        let claims = prepared.statement.claims();
        let (mut conflicts, mut limits) = (Conflicts::default(), Limits::new(&self.cancel, self.statement_timeout));
        let mut open = OpenStatement::new(self);
        let result = loop {
            if let Err(error) = open.make_way(error, claims, &mut conflicts, &mut limits).await {
                break Err(error);
            }
            match open.run_once(prepared, parameters, rows) {
                Err(again) if again.sqlstate == "40001" => error = again,
                result => break result,
            }
        };
        open.into_session().close_point(result)
    }

    /// Ends a statement; none if it has not run, as it is not for the point path.
    fn close_point(&mut self, result: Result<Option<u64>>) -> Result<Option<Started>> {
        match result {
            Ok(Some(affected)) => {
                let ticket = self.close_statement()?;
                self.point.executions += 1;
                Ok(Some(Started { affected, ticket }))
            }
            Ok(None) => {
                self.abandon_statement();
                Ok(None)
            }
            Err(error) => Err(self.close_failed_statement(error)),
        }
    }

    /// Runs a statement in the transaction as it is; none if it is not for the point path. Nor is
    /// it if DDL holds the table: that is waited for on the other path, as whoever would end the
    /// waiting may need this thread. A panic is an error like any other.
    fn run_once(&mut self, prepared: &mut Prepared, parameters: &Given<'_>, rows: &mut Rows) -> Result<Option<u64>> {
        self.running.as_mut().expect("a statement is open").txn.set_lock_timeout(Duration::ZERO);
        let run = std::panic::AssertUnwindSafe(|| self.run_known(prepared, parameters, rows));
        let result = std::panic::catch_unwind(run).unwrap_or_else(|panic| Err(SqlError::of_panic(&*panic)));
        let running = self.running.as_mut().expect("a statement is open");
        running.txn.set_lock_timeout(LOCK_TIMEOUT);
        match result {
            Err(error) if error.sqlstate == "55006" => {
                running.undo_statement();
                Ok(None)
            }
            result => result,
        }
    }
    fn run_known(&mut self, prepared: &mut Prepared, parameters: &Given<'_>, rows: &mut Rows) -> Result<Option<u64>> {
        let is_new = self.know(prepared);
        prepared.check_told()?;
        let Some(plan) = prepared.plan() else { return Ok(None) };
        if is_new
            && prepared.told.is_some()
            && let Given::Values(values) = parameters
            && !(values.len() == plan.parameters.len()
                && values.iter().zip(&plan.parameters).all(|(v, t)| is_of(v, *t)))
        {
            // They are of the types of the plan before, of which the client was told.
            return Ok(None);
        }
        let exact = match parameters {
            Given::Exact(exact) => match exact(&plan.parameters) {
                Some(exact) => exact,
                None => return Ok(None),
            },
            Given::Values(_) => Vec::new(),
        };
        let exact: Vec<Value<'_>> = exact.iter().map(OwnedValue::as_value).collect();
        let parameters = match parameters {
            Given::Values(values) => values,
            Given::Exact(_) => &exact[..],
        };
        let mut scratch = self.point.scratch.take().unwrap_or_default();
        let result = self.run_plan(plan, parameters, &mut scratch, rows);
        self.point.scratch = Some(scratch);
        result
    }

    fn run_plan(
        &mut self,
        plan: &Plan,
        parameters: &[Value<'_>],
        scratch: &mut execute::Scratch,
        rows: &mut Rows,
    ) -> Result<Option<u64>> {
        if parameters.len() != plan.parameters.len() {
            let (wanted, given) = (plan.parameters.len(), parameters.len());
            return Err(SqlError::new("08P01", format!("the statement has {wanted} parameters, {given} are given")));
        }
        for (i, (value, column_type)) in parameters.iter().zip(&plan.parameters).enumerate() {
            if !is_of(value, *column_type) {
                let message = format!("parameter ${} is not a value of its type {column_type:?}", i + 1);
                return Err(SqlError::new("08P01", message));
            }
        }
        if plan.needs_view {
            self.refresh_view();
        }
        let mut with_time: SmallVec<[Value<'_>; 8]> = SmallVec::new();
        let parameters = if plan.has_time {
            with_time.extend_from_slice(parameters);
            with_time.push(Value::Int64(self.shared.time()));
            &with_time[..]
        } else {
            parameters
        };
        let running = self.running.as_mut().expect("a statement is open");
        let writes = !matches!(plan.action, Action::Select { lock: None, .. });
        let txn = if writes { self.txn()? } else { &mut running.txn };
        let arena = Bump::new();
        let affected = plan.run(txn, Constants { parameters, arena: &arena }, scratch, rows)?;
        if writes && affected.is_some() {
            txn.check_statement_end()?;
        }
        Ok(affected)
    }

    /// How many statements of this session have run on the point path.
    pub fn point_executions(&self) -> u64 {
        self.point.executions
    }

    /// Whether it is known, without a look at the transaction, that a statement is for the other path.
    fn is_other(&self, prepared: &Prepared) -> bool {
        if self.point.is_off || !prepared.is_candidate {
            return true;
        }
        let Known::Other(known) = &prepared.known else { return false };
        let (security, settings) = (self.database().security_version(), self.shared.settings());
        self.running.is_none()
            && known.is(&self.database().catalog(), self.temporary_catalog().as_ref(), security, settings)
    }
}
