//! The point path: statements on a few rows of one table, found by an ordered index or inserted,
//! without planning per execution.
//!
//! ```text
//! text ──parse, bind, analyse (once)──▶ Shape ──▶ Plan ──run──▶ index, DataTable, Transaction
//!                                         │ none: anything else
//!                                         ▼
//!                             the session's other path, each time
//! ```
//! A [`Plan`] is SELECT, INSERT … VALUES, UPDATE or DELETE on a table, or SELECT without FROM. Its
//! filter is an equality, a list or a range on the first columns of an ordered index ([`access`]),
//! with any other conditions. It may have RETURNING, ON CONFLICT, ORDER BY, LIMIT, and aggregates
//! over all rows.
//! The binder decides the meaning of expressions, as on the other path; [`expression`] evaluates
//! them. Rows are written by the engine as on the other path, so constraints, indexes and errors
//! are the same.
//!
//! A plan holds for the catalog, the privileges, the current user and the settings it was made
//! under; under others it is made again. A statement that would look at too many rows, or whose
//! parameters are not exactly of the plan's types, takes the other path that time.
//!
//! Its callers are [`Session::run_prepared`] with typed parameters, `start_prepared` for the wire,
//! EXECUTE, and texts whose shape a session sees again ([`texts`]). The other path borrows the
//! constants of [`literal`].

mod access;
mod compile;
mod compiler;
mod execute;
mod expression;
pub(crate) mod literal;
mod parameters;
mod plan;
pub(crate) mod prepared;
mod rows;
mod shape;
pub(crate) mod state;
mod steps;
mod texts;

use crate::conflicts::Conflicts;
use crate::deep;
use crate::description::Description;
use crate::error::{Result, SqlError};
use crate::kept_plans::CatalogVersion;
use crate::limits::{ELSEWHERE, End, Limits};
use crate::parsed::{Parsed, Source};
use crate::point::prepared::{PathChoice, PointDependencies, Prepared, changed_plan, has_same_columns};
use crate::result::{PendingResult, Started, StatementResult, durable};
use crate::session::Session;
use crate::transactions::OpenStatement;
use bumpalo::Bump;
use datafusion::common::ScalarValue;
use expression::Constants;
use literal::{constant, is_of, of_scalar};
use plan::{Action, Plan};
pub use rows::Rows;
use serac_engine::LOCK_TIMEOUT;
use serac_engine::values::OwnedValue;
use serac_parser::tree::{Expr, ExprKind, StatementKind};
use serac_storage::{ColumnType, Value};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// The parameters of an execution.
enum ParameterValues<'a> {
    /// Values that are to be of the plan's types.
    Values(&'a [Value<'a>]),
    /// Values that convert exactly to the plan's types.
    Exact(&'a Exact<'a>),
}

/// The beginning of a statement.
#[derive(Debug)]
pub enum Start {
    /// It has run.
    Ran(Started),
    /// It is not for the point path.
    Other,
    /// Another transaction is in its way: it is open still, to be
    /// [resumed](Session::resume_prepared).
    Blocked(Blocked),
}

/// A statement that waits for another transaction: the conflict that it has met.
#[derive(Debug)]
pub struct Blocked(Box<SqlError>);

type Exact<'a> = dyn Fn(&[ColumnType]) -> Option<Vec<OwnedValue>> + Sync + 'a;

impl Plan {
    fn result(&self, affected: u64, rows: &Rows) -> Result<StatementResult> {
        let tag = match &self.action {
            Action::Row(_) | Action::Select { .. } => "SELECT",
            Action::Insert { .. } => "INSERT 0",
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

impl Session {
    /// Prepares one statement, in which `$1`, `$2`, … stand for parameters.
    ///
    /// # Errors
    /// SQLSTATE 42601 for a text that is not one statement.
    pub fn prepare(&mut self, sql: &str) -> Result<Prepared> {
        let prepared = self.prepare_if_any(sql)?;
        let none = || SqlError::new(sqlstate::SYNTAX_ERROR, "cannot prepare anything but a single statement");
        let prepared = prepared.ok_or_else(none);
        self.failing(prepared)
    }

    /// As [`prepare`](Self::prepare); `None` for a text without a statement.
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
            return Err(SqlError::new(
                sqlstate::SYNTAX_ERROR,
                "cannot insert multiple commands into a prepared statement",
            ));
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

    /// Runs a prepared statement of the point path with parameters of its types, in the calling
    /// thread. `rows` become its result. Returns the number of rows that it found or changed.
    /// `None` if the statement, or this execution of it, is not for the point path or has to wait
    /// for another transaction, or if DDL has given its parameters other types than
    /// [`parameter_types`](Prepared::parameter_types) told. Then
    /// [`execute_prepared`](Self::execute_prepared) must run it. Its own transaction is durable (at
    /// the database's level) when this returns.
    ///
    /// # Errors
    /// The errors of the statement, which then has no effect; SQLSTATE 08P01 for parameters of
    /// other types or number.
    pub fn run_prepared(
        &mut self,
        prepared: &mut Prepared,
        parameters: &[Value<'_>],
        rows: &mut Rows,
    ) -> Result<Option<u64>> {
        let started = match self.start_point(prepared, &ParameterValues::Values(parameters), rows) {
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

    /// As [`run_prepared`](Self::run_prepared), but it does not wait for the commit: the result
    /// must not be shown before it is [durable](Started::durable). It does not wait for a
    /// transaction that is in the way either.
    ///
    /// # Errors
    /// As there; an error must not be shown before [`error_is_durable`](Self::error_is_durable) has
    /// returned.
    pub fn start_prepared(
        &mut self,
        prepared: &mut Prepared,
        parameters: &[Value<'_>],
        rows: &mut Rows,
    ) -> Result<Start> {
        self.start_point(prepared, &ParameterValues::Values(parameters), rows)
    }

    /// Continues a statement, with the same parameters, once its way is free; `None` if it is not
    /// for the point path then.
    ///
    /// # Errors
    /// As for [`run_prepared`](Self::run_prepared), and those of waiting: deadlocks, timeouts,
    /// cancellation.
    pub async fn resume_prepared(
        &mut self,
        blocked: Blocked,
        prepared: &mut Prepared,
        parameters: &[Value<'_>],
        rows: &mut Rows,
    ) -> Result<Option<Started>> {
        self.run_after(*blocked.0, prepared, &ParameterValues::Values(parameters), rows).await
    }

    /// Runs a text on the point path, if a text that differs from it in constants alone has been
    /// seen before; `None` if not.
    ///
    /// # Errors
    /// The errors of the statement, which then has no effect.
    pub async fn execute_known(&mut self, sql: &str) -> Result<Option<StatementResult>> {
        match self.execute_text(sql).await? {
            Some(outcome) => self.acknowledged(outcome).await.map(Some),
            None => Ok(None),
        }
    }

    /// Runs any prepared statement and gives the rows of a query as they come.
    ///
    /// # Errors
    /// The errors of the statement; errors of a query may also come later, from the stream.
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
    /// The errors of the statement, which then has no effect.
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

    /// A statement's present dependencies, in the running transaction or outside of any.
    fn under(&self) -> PointDependencies {
        let (catalog, temporary) = match &self.running {
            Some(running) => {
                let temporary = running.temporary.as_ref().map(|txn| CatalogVersion::of(txn.catalog()));
                (CatalogVersion::of(running.txn.catalog()), temporary)
            }
            None => {
                let temporary = self.temporary_catalog().as_ref().map(CatalogVersion::of);
                (CatalogVersion::of(&self.database().catalog()), temporary)
            }
        };
        PointDependencies {
            catalog,
            temporary,
            security: self.database().security_version(),
            settings: self.shared.settings(),
        }
    }

    /// Whether the description that the client has of a statement, if it has one, still holds
    /// without a new look.
    pub fn is_as_told(&self, prepared: &Prepared) -> bool {
        // Their results depend on cursors and statements, which change without the catalog.
        let of_others = matches!(prepared.statement.statement(), StatementKind::Fetch(_) | StatementKind::Execute(_));
        prepared.told.as_ref().is_none_or(|told| !of_others && told.under == self.under())
    }

    /// Checks the client's description of a statement again, if its dependencies have changed.
    async fn revalidate(&mut self, prepared: &mut Prepared) -> Result<()> {
        if self.is_as_told(prepared) {
            return Ok(());
        }
        let Some(told) = prepared.told.clone() else { return Ok(()) };
        Box::pin(self.describe(prepared, &told.named)).await.map(|_| ())
    }

    /// Describes a statement's parameters and result. Parameters have the types of the OIDs
    /// `named`; those with the OID zero are inferred. From then on the statement gives this, or is
    /// refused; a FETCH gives the columns that its cursor has then.
    ///
    /// # Errors
    /// The errors of the statement; SQLSTATE 0A000 if the client was told otherwise before.
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
        if let Some(told) = &prepared.told
            && !matches!(prepared.statement.statement(), StatementKind::Fetch(_))
        {
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

    /// The statement's present description, and its dependencies.
    async fn looked_up(&mut self, prepared: &mut Prepared, named: &[u32]) -> Result<(Description, PointDependencies)> {
        let is_deep = prepared.is_deep;
        let look = async |session: &mut Self| {
            let under = session.under();
            // Only the binder tells a VARCHAR from a TEXT.
            if let PathChoice::Point(plan, known) = &prepared.known
                && *known == under
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
    pub(crate) async fn acknowledged(&mut self, outcome: PendingResult) -> Result<StatementResult> {
        let durable = match outcome.ticket {
            Some(ticket) => durable(ticket).await,
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
    ) -> Result<Option<PendingResult>> {
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

    /// Runs a statement on the point path if it is for it, with the parameters that `exact` gives
    /// for their types.
    async fn try_point(&mut self, prepared: &mut Prepared, exact: &Exact<'_>) -> Result<Option<PendingResult>> {
        let mut rows = std::mem::take(&mut self.point.rows);
        let ran = self.run_point(prepared, ParameterValues::Exact(exact), &mut rows).await;
        let outcome = match ran {
            Ok(Some(ran)) => {
                let plan = prepared.plan().expect("it has run");
                plan.result(ran.affected, &rows).map(|result| Some(PendingResult { result, ticket: ran.ticket }))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(self.shown(error).await),
        };
        rows.give_back();
        self.point.rows = rows;
        outcome
    }

    /// Chooses a statement's path under the running transaction's catalog, whose view is set.
    /// Returns the choice before, if this one is new.
    fn know(&mut self, prepared: &mut Prepared) -> Option<PathChoice> {
        let running = self.running.as_ref().filter(|running| !running.failed)?;
        let (catalog, temporary) = (running.txn.catalog(), running.temporary.as_ref().map(|txn| txn.catalog()));
        let (security, settings) = (self.database().security_version(), self.shared.settings());
        match &prepared.known {
            PathChoice::Other(known) | PathChoice::Point(_, known)
                if known.is(catalog, temporary, security, settings) =>
            {
                return None;
            }
            _ => {}
        }
        let (catalog, temporary) = (CatalogVersion::of(catalog), temporary.map(CatalogVersion::of));
        let under = PointDependencies { catalog, temporary, security, settings };
        self.refresh_view();
        let plan = prepared.statement.query_or_change().and_then(|source| self.compile_point(source));
        let known = match plan {
            Some(plan) => PathChoice::Point(Arc::new(plan), under),
            None => PathChoice::Other(under),
        };
        Some(std::mem::replace(&mut prepared.known, known))
    }

    /// Runs a statement on the point path, and waits for transactions in its way; `None` if it is
    /// not for the point path.
    async fn run_point(
        &mut self,
        prepared: &mut Prepared,
        parameters: ParameterValues<'_>,
        rows: &mut Rows,
    ) -> Result<Option<Started>> {
        match self.start_point(prepared, &parameters, rows)? {
            Start::Ran(ran) => Ok(Some(ran)),
            Start::Other => Ok(None),
            // Boxed, as it is rare: the possible content of a future is moved each time.
            Start::Blocked(Blocked(conflict)) => Box::pin(self.run_after(*conflict, prepared, &parameters, rows)).await,
        }
    }

    /// Begins a statement and runs it, if it is for the point path.
    fn start_point(
        &mut self,
        prepared: &mut Prepared,
        parameters: &ParameterValues<'_>,
        rows: &mut Rows,
    ) -> Result<Start> {
        if self.is_other(prepared) {
            return Ok(Start::Other);
        }
        self.open_statement()?;
        match self.run_once(prepared, parameters, rows) {
            Err(error) if error.sqlstate == sqlstate::SERIALIZATION_FAILURE => {
                Ok(Start::Blocked(Blocked(Box::new(error))))
            }
            result => Ok(self.close_point(result)?.map_or(Start::Other, Start::Ran)),
        }
    }

    /// Runs a statement again that has met a conflict, when that is out of the way.
    async fn run_after(
        &mut self,
        mut error: SqlError,
        prepared: &mut Prepared,
        parameters: &ParameterValues<'_>,
        rows: &mut Rows,
    ) -> Result<Option<Started>> {
        let claims = prepared.statement.claims();
        let (mut conflicts, mut limits) =
            (Conflicts::default(), Limits::new(&self.cancel, self.shared.values.statement_timeout()));
        let mut open = OpenStatement::new(self);
        let result = loop {
            if let Err(error) = open.make_way(error, claims, &mut conflicts, &mut limits).await {
                break Err(error);
            }
            match open.run_once(prepared, parameters, rows) {
                Err(again) if again.sqlstate == sqlstate::SERIALIZATION_FAILURE => error = again,
                result => break result,
            }
        };
        open.into_session().close_point(result)
    }

    /// Ends a statement; `None` if it has not run, because it is not for the point path.
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

    /// Runs a statement in the transaction as it is; `None` if it is not for the point path, or if
    /// DDL holds the table, or if it computes for long. The other path waits for DDL, because the
    /// thread that would end the wait may need this thread. A panic is an error like any other.
    fn run_once(
        &mut self,
        prepared: &mut Prepared,
        parameters: &ParameterValues<'_>,
        rows: &mut Rows,
    ) -> Result<Option<u64>> {
        self.running.as_mut().expect("a statement is open").txn.set_lock_timeout(Duration::ZERO);
        let run = std::panic::AssertUnwindSafe(|| self.run_known(prepared, parameters, rows));
        let result = std::panic::catch_unwind(run).unwrap_or_else(|panic| Err(SqlError::of_panic(&*panic)));
        let running = self.running.as_mut().expect("a statement is open");
        running.txn.set_lock_timeout(LOCK_TIMEOUT);
        match result {
            Err(error) if error.sqlstate == ELSEWHERE => {
                running.undo_statement();
                Ok(None)
            }
            result => result,
        }
    }

    fn run_known(
        &mut self,
        prepared: &mut Prepared,
        parameters: &ParameterValues<'_>,
        rows: &mut Rows,
    ) -> Result<Option<u64>> {
        let before = self.know(prepared);
        prepared.check_told()?;
        let Some(plan) = prepared.plan() else { return Ok(None) };
        if let (Some(before), ParameterValues::Values(values)) = (before, parameters) {
            // They are of the types of the plan before. Under others the same bits are another
            // value: 1.50 is stored as 150 under NUMERIC(10, 2), and 150 is 0.150 under (10, 3).
            if matches!(before, PathChoice::Point(before, _) if before.parameters != plan.parameters) {
                return Ok(None);
            }
            // They are of types of which the client was told.
            let fit = || values.iter().zip(&plan.parameters).all(|(value, own)| is_of(value, *own));
            if prepared.told.is_some() && !(values.len() == plan.parameters.len() && fit()) {
                return Ok(None);
            }
        }
        let exact = match parameters {
            ParameterValues::Exact(exact) => match exact(&plan.parameters) {
                Some(exact) => exact,
                None => return Ok(None),
            },
            ParameterValues::Values(_) => Vec::new(),
        };
        let exact: Vec<Value<'_>> = exact.iter().map(OwnedValue::as_value).collect();
        let parameters = match parameters {
            ParameterValues::Values(values) => values,
            ParameterValues::Exact(_) => &exact[..],
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
            return Err(SqlError::new(
                sqlstate::PROTOCOL_VIOLATION,
                format!("the statement has {wanted} parameters, {given} are given"),
            ));
        }
        for (i, (value, column_type)) in parameters.iter().zip(&plan.parameters).enumerate() {
            if !is_of(value, *column_type) {
                let message = format!("parameter ${} is not a value of its type {column_type:?}", i + 1);
                return Err(SqlError::new(sqlstate::PROTOCOL_VIOLATION, message));
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
        let end = plan.computes.then(|| End::of_shared_thread(&self.cancel, self.shared.values.statement_timeout()));
        let running = self.running.as_mut().expect("a statement is open");
        let writes = !matches!(plan.action, Action::Row(_) | Action::Select { lock: None, .. });
        let txn = if writes { self.txn()? } else { &mut running.txn };
        let arena = Bump::new();
        let mut run = || plan.run(txn, Constants { parameters, arena: &arena }, scratch, rows);
        let affected = match &end {
            Some(end) => end.within(run)?,
            None => run()?,
        };
        if writes && affected.is_some() {
            txn.check_statement_end()?;
        }
        Ok(affected)
    }

    /// The number of this session's statements that have run on the point path.
    pub fn point_executions(&self) -> u64 {
        self.point.executions
    }

    /// Whether it is known, without a look at the transaction, that a statement is for the other
    /// path.
    fn is_other(&self, prepared: &Prepared) -> bool {
        if !self.shared.values.has_point_path() || !prepared.is_candidate {
            return true;
        }
        let PathChoice::Other(known) = &prepared.known else { return false };
        let (security, settings) = (self.database().security_version(), self.shared.settings());
        self.running.is_none()
            && known.is(&self.database().catalog(), self.temporary_catalog().as_ref(), security, settings)
    }
}

impl Session {
    /// Describes the execution of a known statement; `None` if it is not for the point path, or
    /// finds no rows. The session's view of the database is set.
    pub(crate) fn shown_point(&self, source: &Source) -> Option<String> {
        if self.shared.values.has_point_path() { self.compile_point(source)?.shown() } else { None }
    }
}
