//! Statements, prepared or not: their results, and the tickets for these.

use super::expiring_map::{Id, Owner, random_id};
use super::parameters::Parameters;
use super::session_lease::{Awaited, SessionLease};
use super::status::{error, of_arrow, status_of};
use super::stream::{self, Cancellable, DIFFERENT_TYPES, Work, types_of};
use super::{FlightSql, form};
use arrow_flight::sql::{
    ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult, Any, CommandPreparedStatementQuery,
    CommandStatementQuery, DoPutPreparedStatementResult, DoPutUpdateResult, ProstMessageExt, TicketStatementQuery,
};
use arrow_flight::{FlightDescriptor, FlightEndpoint, FlightInfo, Ticket};
use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::StreamExt;
use parking_lot::Mutex;
use prost::Message;
use serac_engine::DecimalForm;
use serac_export::flight::{Batches, Caller};
use serac_sql::tree::{Persistence, StatementKind, Transaction};
use serac_sql::{Description, Parsed, Prepared, Session, SqlError, StatementResult, number_parameters, runs_explained};
use serac_storage::ColumnType;
use std::sync::Arc;
use tokio::task::coop::consume_budget;
use tonic::Status;

/// A statement that a client has prepared.
pub(super) struct PreparedStatement {
    pub(super) seat: Arc<SessionLease>,
    prepared: Prepared,
    description: Arc<Description>,
    /// Rows of parameters for the next executions.
    bound: Mutex<Option<Arc<Parameters>>>,
}

/// Bytes of the rows that the executions of a statement for many rows of parameters may give.
const MOST_RETURNED: usize = 256 << 20;
/// Batches with this few rows are collected into one.
const BATCHES_TOGETHER: usize = 1_024;

/// The rows of one execution after the other.
#[derive(Default)]
struct Returned {
    /// The tag's word and the columns of the first execution, whose names hold for all.
    form: Option<(&'static str, SchemaRef)>,
    batches: Vec<RecordBatch>,
    /// Small batches, which become one.
    small: Vec<RecordBatch>,
    bytes: usize,
}

impl Returned {
    /// # Errors
    /// When they are too many, or have other types than those before.
    fn add(&mut self, tag: &'static str, schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<(), SqlError> {
        let (_, first) = self.form.get_or_insert_with(|| (tag, schema.clone()));
        if !types_of(first).eq(types_of(&schema)) {
            return Err(SqlError::new(sqlstate::DATATYPE_MISMATCH, DIFFERENT_TYPES));
        }
        for batch in batches {
            self.bytes += batch.get_array_memory_size();
            if self.bytes > MOST_RETURNED {
                let message = format!("the statement returns more than {MOST_RETURNED} bytes for all its parameters");
                return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message));
            }
            self.small.push(batch);
            if self.small.len() == BATCHES_TOGETHER {
                self.put_together()?;
            }
        }
        Ok(())
    }

    fn put_together(&mut self) -> Result<(), SqlError> {
        let Some((_, schema)) = self.form.as_ref().filter(|_| !self.small.is_empty()) else { return Ok(()) };
        let before: usize = self.small.iter().map(RecordBatch::get_array_memory_size).sum();
        let together = concat_batches(schema, &self.small)?;
        self.bytes = self.bytes - before + together.get_array_memory_size();
        self.batches.push(together);
        self.small.clear();
        Ok(())
    }

    /// The rows of all; `None` if no execution gives rows.
    fn finish(mut self) -> Result<Option<StatementResult>, SqlError> {
        self.put_together()?;
        let batches = self.batches;
        Ok(self.form.map(|(tag, schema)| StatementResult::Rows { tag, schema, batches }))
    }
}

/// Rows that have been computed.
pub(super) struct Finished {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

/// A statement that has run, or can run, for a client.
pub(super) enum Flight {
    /// A query that runs when its ticket is shown.
    Planned(Option<SchemaRef>),
    /// Another statement, which has run.
    Done(StatementResult),
}

/// Whether a statement only gives rows, so that it can run when they are asked for.
fn is_query(statement: &Parsed) -> bool {
    match statement.statement() {
        StatementKind::Explain(explain) => !runs_explained(explain),
        StatementKind::Show(_) | StatementKind::Describe(_) => true,
        StatementKind::DescribeQuery(_) | StatementKind::Summarize(_) => true,
        _ => statement.only_shows(),
    }
}

/// Refuses a statement whose effect a session of its own would lose at once.
fn check_lone(statement: &StatementKind) -> Result<(), Status> {
    use Transaction::{Begin, Commit, Release, Rollback, RollbackTo, Savepoint};
    let is_temporary = |persistence: &Persistence| *persistence == Persistence::Temporary;
    let what = match statement {
        StatementKind::Transaction(Begin { .. } | Commit { .. } | Rollback { .. } | RollbackTo(_)) => {
            "a transaction by statements"
        }
        StatementKind::Transaction(Savepoint(_) | Release(_)) => "a savepoint by statements",
        StatementKind::Set(_) => "a setting",
        StatementKind::Prepare(_) | StatementKind::Execute(_) | StatementKind::Deallocate(_) => {
            "a statement prepared by a statement"
        }
        StatementKind::CreateTable(create) if is_temporary(&create.persistence) => "a temporary table",
        StatementKind::CreateTableAs(create) if is_temporary(&create.persistence) => "a temporary table",
        _ => return Ok(()),
    };
    let message = format!("{what} needs a session: let the client keep cookies, or begin a transaction");
    Err(error(sqlstate::FEATURE_NOT_SUPPORTED, message))
}

fn check(seat: &SessionLease, statement: &Parsed) -> Result<(), Status> {
    let statement = statement.statement();
    if seat.is_lone() {
        check_lone(statement)?;
    }
    match statement {
        StatementKind::Listen(_) => Err(error(
            sqlstate::FEATURE_NOT_SUPPORTED,
            "LISTEN is not supported here: notifications come by PostgreSQL's protocol",
        )),
        StatementKind::Copy(copy) if copy.file.is_none() => Err(error(
            sqlstate::FEATURE_NOT_SUPPORTED,
            "COPY through the connection is not supported here: ingest batches instead",
        )),
        _ => Ok(()),
    }
}

/// The statement of a text, for a session. A parse error is an error of the session's transaction.
async fn single(session: &mut Session, sql: &str) -> Result<Parsed, Status> {
    let mut statements = session.parse_elsewhere(sql).await.map_err(|error| status_of(&error))?;
    match (statements.pop(), statements.is_empty()) {
        (Some(statement), true) => Ok(statement),
        _ => {
            session.fail_transaction();
            Err(error(sqlstate::SYNTAX_ERROR, "one statement is wanted, neither none nor several"))
        }
    }
}

/// As [`single`], for a statement that is to run.
async fn runnable(session: &mut Session, seat: &SessionLease, sql: &str) -> Result<Parsed, Status> {
    let statement = single(session, sql).await?;
    check(seat, &statement).inspect_err(|_| session.fail_transaction())?;
    Ok(statement)
}

/// A flight with at most one endpoint.
pub(super) fn flight_info(
    descriptor: FlightDescriptor,
    schema: Option<&Schema>,
    ticket: Option<Vec<u8>>,
    rows: i64,
) -> Result<FlightInfo, Status> {
    let mut info = FlightInfo::new().with_descriptor(descriptor).with_total_records(rows).with_total_bytes(-1);
    if let Some(schema) = schema {
        info = info.try_with_schema(schema).map_err(of_arrow)?;
    }
    if let Some(ticket) = ticket {
        info = info.with_endpoint(FlightEndpoint::new().with_ticket(Ticket::new(ticket)));
    }
    Ok(info)
}

/// A ticket: a mark by which it is cancelled, and the statement to run, or nothing if it has been
/// run.
fn ticket(mark: Id, command: Option<Any>) -> Vec<u8> {
    let command = command.map(|command| command.encode_to_vec()).unwrap_or_default();
    TicketStatementQuery { statement_handle: [mark.as_slice(), &command].concat().into() }.as_any().encode_to_vec()
}

/// The client's answer for a change.
pub(super) fn update_result(rows: u64) -> Bytes {
    DoPutUpdateResult { record_count: rows as i64 }.encode_to_vec().into()
}

/// The rows that a result has changed, or has.
fn count(result: &StatementResult) -> u64 {
    match result {
        StatementResult::Command { rows, .. } => *rows,
        rows => rows.row_count() as u64,
    }
}

/// Reads to the end; returns the number of rows.
async fn drain((_, mut batches): (SchemaRef, Batches)) -> Result<u64, Status> {
    let mut rows = 0;
    while let Some(batch) = batches.next().await {
        rows += batch?.num_rows() as u64;
    }
    Ok(rows)
}

impl PreparedStatement {
    fn is_query(&self) -> bool {
        is_query(self.prepared.parsed())
    }

    /// The columns of its rows, if they do not depend on parameters: the type of `$1 + 1` does, and
    /// its name.
    fn schema(&self) -> Option<SchemaRef> {
        self.description.schema.clone().filter(|_| self.description.parameters.is_empty())
    }

    pub(super) fn bind(&self, batches: Vec<RecordBatch>) -> Result<(), Status> {
        let parameters = Parameters::new(&batches, &self.description.parameters)?;
        *self.bound.lock() = Some(Arc::new(parameters));
        Ok(())
    }

    /// The rows of parameters for one execution.
    fn parameters(&self, given: Option<&[RecordBatch]>) -> Result<Arc<Parameters>, Status> {
        if let Some(batches) = given {
            return Parameters::new(batches, &self.description.parameters).map(Arc::new);
        }
        match self.bound.lock().clone() {
            Some(bound) => Ok(bound),
            None if self.description.parameters.is_empty() => Ok(Arc::new(Parameters::none())),
            None => Err(error(sqlstate::PROTOCOL_VIOLATION, "the statement has parameters, and no values were given")),
        }
    }

    /// Runs it for each row of parameters, all in one transaction; returns the last result, and the
    /// number of changed rows.
    async fn execute(&self, parameters: Arc<Parameters>) -> Result<(StatementResult, u64), Status> {
        check(&self.seat, self.prepared.parsed())?;
        let mut session = self.seat.take().await?;
        let mut prepared = self.prepared.clone();
        let work = |awaited: Awaited| async move {
            if parameters.len() > 1 {
                session.begin_implicit();
            }
            let (mut changed, mut returned, mut command) = (0, Returned::default(), String::new());
            for row in parameters.rows() {
                // One execution may take no time in which others have their turn.
                consume_budget().await;
                awaited.check().inspect_err(|_| session.fail_transaction())?;
                let row = row.inspect_err(|_| session.fail_transaction())?;
                let result = session.execute_prepared(&mut prepared, &row).await?;
                changed += count(&result);
                if parameters.len() == 1 {
                    // It may be committed, so nothing fails behind it.
                    return Ok((result, changed));
                }
                match result {
                    StatementResult::Rows { tag, schema, batches } => {
                        returned.add(tag, schema, batches).inspect_err(|_| session.fail_transaction())?;
                    }
                    StatementResult::Command { tag, .. } => command = tag,
                }
            }
            let returned = returned.finish().inspect_err(|_| session.fail_transaction())?;
            if let Some(committed) = session.end_implicit()? {
                committed.durable().await?;
            }
            let result = returned.unwrap_or(StatementResult::Command { tag: command, rows: changed });
            Ok((result, changed))
        };
        self.seat.attend_caller(work).await
    }
}

impl FlightSql {
    /// Plans a query, or runs another statement.
    async fn plan(&self, seat: &Arc<SessionLease>, sql: &str) -> Result<Flight, Status> {
        let mut session = seat.take().await?;
        let statement = runnable(&mut session, seat, sql).await?;
        if is_query(&statement) {
            let describe = async move { session.describe_statement(statement, &[]).await };
            return Ok(Flight::Planned(seat.attend(describe).await?.schema));
        }
        Ok(Flight::Done(seat.attend(async move { session.execute_statement(statement).await }).await?))
    }

    /// The flight of a finished statement: its rows are kept until they are fetched.
    fn done(
        &self,
        caller: &Caller,
        descriptor: FlightDescriptor,
        result: StatementResult,
    ) -> Result<FlightInfo, Status> {
        let rows = count(&result) as i64;
        match result {
            StatementResult::Command { .. } => flight_info(descriptor, Some(&Schema::empty()), None, rows),
            StatementResult::Rows { schema, batches, .. } => {
                let mark = random_id();
                self.results.keep(Owner::of(caller), mark, Arc::new(Finished { schema: schema.clone(), batches }))?;
                flight_info(descriptor, Some(&schema), Some(ticket(mark, None)), rows)
            }
        }
    }

    pub(super) async fn query_info(
        &self,
        caller: &Caller,
        query: CommandStatementQuery,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo, Status> {
        let seat = self.seat(caller, query.transaction_id.as_deref())?;
        match self.plan(&seat, &query.query).await? {
            Flight::Planned(schema) => {
                let ticket = ticket(random_id(), Some(query.as_any()));
                flight_info(descriptor, schema.as_deref(), Some(ticket), -1)
            }
            Flight::Done(result) => self.done(caller, descriptor, result),
        }
    }

    /// The schema of a query, without an execution.
    pub(super) async fn query_schema(
        &self,
        caller: &Caller,
        query: &CommandStatementQuery,
    ) -> Result<SchemaRef, Status> {
        let seat = self.seat(caller, query.transaction_id.as_deref())?;
        let mut session = seat.take().await?;
        let statement = single(&mut session, &query.query).await?;
        let description = seat.attend(async move { session.describe_statement(statement, &[]).await }).await?;
        Ok(description.schema.unwrap_or_else(|| Schema::empty().into()))
    }

    /// The rows of a ticket.
    pub(super) async fn ticket_rows(&self, caller: &Caller, handle: &Bytes) -> Result<(SchemaRef, Batches), Status> {
        let unknown = || error(sqlstate::PROTOCOL_VIOLATION, "this is no ticket of this server");
        let (mark, command) = handle.split_at_checked(size_of::<Id>()).ok_or_else(unknown)?;
        if command.is_empty() {
            let finished = self.results.get(&Owner::of(caller), mark)?;
            let batches: Vec<_> = finished.batches.iter().cloned().map(Ok).collect();
            return Ok((finished.schema.clone(), futures::stream::iter(batches).boxed()));
        }
        let command = Any::decode(command).map_err(|_| unknown())?;
        if let Ok(Some(query)) = command.unpack::<CommandStatementQuery>() {
            let seat = self.seat(caller, query.transaction_id.as_deref())?;
            let cancellable = Cancellable::new(&self.running, mark);
            let mut session = seat.take().await?;
            // A ticket comes from a client: it may have any content.
            let statement = runnable(&mut session, &seat, &query.query).await?;
            let work = Work::Statement(Box::new(statement));
            let decimals = form::decimals(caller);
            return stream::rows(seat, session, work, decimals, self.options.stall, Some(cancellable)).await;
        }
        match command.unpack::<CommandPreparedStatementQuery>() {
            Ok(Some(query)) => self.prepared_rows(caller, &query.prepared_statement_handle, Some(mark)).await,
            _ => Err(unknown()),
        }
    }

    pub(super) async fn update(&self, caller: &Caller, sql: &str, transaction: Option<&[u8]>) -> Result<Bytes, Status> {
        let seat = self.seat(caller, transaction)?;
        let mut session = seat.take().await?;
        let statement = runnable(&mut session, &seat, sql).await?;
        if is_query(&statement) {
            let work = Work::Statement(Box::new(statement));
            let rows = stream::rows(seat, session, work, DecimalForm::default(), self.options.stall, None).await?;
            return Ok(update_result(drain(rows).await?));
        }
        let result = seat.attend(async move { session.execute_statement(statement).await }).await?;
        Ok(update_result(count(&result)))
    }

    pub(super) async fn prepare(
        &self,
        caller: &Caller,
        request: ActionCreatePreparedStatementRequest,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let seat = self.seat(caller, request.transaction_id.as_deref())?;
        let mut session = seat.take().await?;
        let numbered = number_parameters(&request.query).inspect_err(|_| session.fail_transaction());
        let sql = numbered.map_err(|error| status_of(&error))?.into_owned();
        runnable(&mut session, &seat, &sql).await?;
        let prepare = async move {
            let prepared = session.prepare_elsewhere(&sql, &[]).await?;
            let mut prepared =
                prepared.ok_or_else(|| SqlError::new(sqlstate::SYNTAX_ERROR, "there is no statement"))?;
            let description = session.describe(&mut prepared, &[]).await?;
            Ok((prepared, description))
        };
        let (prepared, description) = seat.attend(prepare).await?;
        // Texts in the form that every client can send.
        let fields = description.parameters.iter().enumerate().map(|(i, parameter)| {
            let data_type = match parameter {
                None | Some(ColumnType::Utf8 | ColumnType::Json | ColumnType::JsonText) => DataType::Utf8,
                Some(ColumnType::Binary) => DataType::Binary,
                Some(other) => other.arrow(),
            };
            Field::new(format!("${}", i + 1), data_type, true)
        });
        let parameter_schema = form::bytes_of(&Schema::new(fields.collect::<Vec<_>>()))?;
        let dataset_schema = match &description.schema {
            Some(schema) => form::bytes_of(&form::schema(caller, schema.clone()))?,
            None => Bytes::new(),
        };
        let id = random_id();
        let statement = PreparedStatement { seat, prepared, description, bound: Mutex::default() };
        self.prepared.keep(Owner::of(caller), id, Arc::new(statement))?;
        let prepared_statement_handle = Bytes::copy_from_slice(&id);
        Ok(ActionCreatePreparedStatementResult { prepared_statement_handle, dataset_schema, parameter_schema })
    }

    /// Binds rows of parameters for the next executions as a query.
    pub(super) fn bind(&self, caller: &Caller, handle: &[u8], batches: Vec<RecordBatch>) -> Result<Bytes, Status> {
        self.prepared.get(&Owner::of(caller), handle)?.bind(batches)?;
        // A few clients take a missing field for an empty handle.
        let prepared_statement_handle = Some(Bytes::copy_from_slice(handle));
        Ok(DoPutPreparedStatementResult { prepared_statement_handle }.encode_to_vec().into())
    }

    pub(super) async fn prepared_info(
        &self,
        caller: &Caller,
        query: CommandPreparedStatementQuery,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo, Status> {
        let statement = self.prepared.get(&Owner::of(caller), &query.prepared_statement_handle)?;
        let parameters = statement.parameters(None)?;
        if statement.is_query() {
            let ticket = ticket(random_id(), Some(query.as_any()));
            return flight_info(descriptor, statement.schema().as_deref(), Some(ticket), -1);
        }
        let (result, _) = statement.execute(parameters).await?;
        self.done(caller, descriptor, result)
    }

    pub(super) fn prepared_schema(&self, caller: &Caller, handle: &[u8]) -> Result<SchemaRef, Status> {
        let statement = self.prepared.get(&Owner::of(caller), handle)?;
        Ok(statement.description.schema.clone().unwrap_or_else(|| Schema::empty().into()))
    }

    pub(super) async fn prepared_rows(
        &self,
        caller: &Caller,
        handle: &[u8],
        mark: Option<&[u8]>,
    ) -> Result<(SchemaRef, Batches), Status> {
        let statement = self.prepared.get(&Owner::of(caller), handle)?;
        if !statement.is_query() {
            return Err(error(
                sqlstate::WRONG_OBJECT_TYPE,
                "the statement is no query: its ticket comes from GetFlightInfo",
            ));
        }
        let parameters = statement.parameters(None)?;
        if parameters.len() == 0 {
            let schema = self.prepared_schema(caller, handle)?;
            return Ok((schema, futures::stream::empty().boxed()));
        }
        let cancellable = mark.map(|mark| Cancellable::new(&self.running, mark));
        self.prepared_rows_of(&statement, parameters, form::decimals(caller), cancellable).await
    }

    /// Runs a prepared statement for its changes, for each row of parameters; without any, with
    /// those that were bound.
    pub(super) async fn prepared_update(
        &self,
        caller: &Caller,
        handle: &[u8],
        batches: Vec<RecordBatch>,
    ) -> Result<Bytes, Status> {
        let statement = self.prepared.get(&Owner::of(caller), handle)?;
        let given = batches.iter().any(|batch| batch.num_columns() > 0).then_some(batches.as_slice());
        let parameters = statement.parameters(given)?;
        if statement.is_query() {
            if parameters.len() == 0 {
                return Ok(update_result(0));
            }
            let rows = self.prepared_rows_of(&statement, parameters, DecimalForm::default(), None).await?;
            return Ok(update_result(drain(rows).await?));
        }
        let (_, changed) = statement.execute(parameters).await?;
        Ok(update_result(changed))
    }

    async fn prepared_rows_of(
        &self,
        statement: &Arc<PreparedStatement>,
        parameters: Arc<Parameters>,
        decimals: DecimalForm,
        cancellable: Option<Cancellable>,
    ) -> Result<(SchemaRef, Batches), Status> {
        let session = statement.seat.take().await?;
        let work = Work::Prepared(statement.prepared.clone(), parameters);
        stream::rows(statement.seat.clone(), session, work, decimals, self.options.stall, cancellable).await
    }
}
