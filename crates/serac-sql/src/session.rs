//! Sessions: one per connection. Statements, transactions, prepared statements, settings.
//!
//! Every statement runs in a transaction: the one that BEGIN opened, or its own. A statement that fails leaves nothing behind; inside an
//! opened transaction nothing but ROLLBACK (or ROLLBACK TO) is then accepted, as in PostgreSQL. Queries run on DataFusion over the transaction's
//! snapshot; an acknowledged commit is durable at the database's level, and so is everything a result shows.

use crate::activity::Connections;
use crate::advisory_locks::{AdvisoryLocks, SessionLocks};
use crate::binding;
use crate::catalog::{PreparedStatement, Shared, TransactionCatalog};
use crate::channels::{Channels, Listener};
use crate::conflicts::Conflicts;
use crate::copy::CopyStreams;
use crate::deep::{self, Roomy};
use crate::error::{Result, SqlError};
use crate::expressions::SessionExpressions;
use crate::identifiers::{CATALOG, SEARCH_PATH};
use crate::identity::Identity;
use crate::limits::{CancelHandle, Limits, SessionDefaults};
use crate::locate::located;
use crate::notices::Notices;
use crate::parsed::{Arguments, Parsed, Source, is_bound};
use crate::pipeline::{Resources, Rules};
use crate::planner::Functions;
use crate::point::{Outcome, PointState, Prepared};
use crate::programs::{self, Programs};
use crate::query::{Output, QueryRuntime};
use crate::row_stream::{RowStream, StatementStream};
use crate::session_state::Beginning;
use crate::transactions::{Isolation, Modes, OpenStatement, Running};
use crate::work_memory::WorkMemory;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::TryStreamExt;
use serac_copy::Format;
use serac_engine::roles::Login;
use serac_engine::{Database, DecimalForm, Expressions};
use serac_parser::tree::{Discard, Execute, Prepare, Reset, StatementKind, Transaction};
use serac_query::scan::{Convoys, ScanSharing};
use serac_storage::CommitTicket;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, SystemTime};

/// Bytes of a text that is parsed where it has come from: that takes less than a millisecond.
const SHORT_TEXT: usize = 8 << 10;

/// How SQL runs on a database.
#[derive(Clone, Debug, Default)]
pub struct SqlOptions {
    /// Bytes that queries may use before they spill or fail; none for no limit.
    pub memory_limit: Option<usize>,
    /// Threads of a query; none for all.
    pub threads: Option<usize>,
    /// What holds for its sessions.
    pub session: SessionDefaults,
    /// What runs programs beside the data; none where they cannot be run.
    pub programs: Option<Arc<dyn Programs>>,
}

/// A database with what queries need. Sessions are made from it.
#[derive(Clone, Debug)]
pub struct SqlDatabase {
    database: Database,
    runtime: Arc<RuntimeEnv>,
    query_runtime: Arc<QueryRuntime>,
    threads: usize,
    pub(crate) memory_limit: Option<usize>,
    pub(crate) defaults: SessionDefaults,
    programs: Option<Arc<dyn Programs>>,
    connections: Connections,
    channels: Channels,
    pub(crate) advisory_locks: AdvisoryLocks,
    /// Scans that run beside each other.
    pub(crate) convoys: Arc<Convoys>,
    pub(crate) started: SystemTime,
}

impl SqlDatabase {
    /// SQL on `database`.
    ///
    /// # Errors
    /// When no folder for spilling can be had.
    pub fn new(database: Database, options: &SqlOptions) -> Result<Self> {
        let mut builder = RuntimeEnvBuilder::new();
        if let Some(limit) = options.memory_limit {
            builder = builder.with_memory_pool(Arc::new(FairSpillPool::new(limit)));
        }
        let threads = options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        Ok(Self {
            database,
            runtime: builder.build_arc()?,
            query_runtime: Arc::new(QueryRuntime::new(threads.max(1))?),
            threads,
            memory_limit: options.memory_limit,
            defaults: options.session,
            programs: options.programs.clone(),
            connections: Connections::default(),
            channels: Channels::default(),
            advisory_locks: AdvisoryLocks::default(),
            convoys: Arc::default(),
            started: SystemTime::now(),
        })
    }
    /// The engine below.
    pub fn database(&self) -> &Database {
        &self.database
    }
    /// Those who are connected.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }
    /// What runs programs beside the data.
    pub(crate) fn programs(&self) -> Option<Arc<dyn Programs>> {
        self.programs.clone()
    }
    /// Bytes that running queries hold.
    pub fn query_memory(&self) -> usize {
        self.runtime.memory_pool.reserved()
    }
    /// Whether commits are possible: false once the log has failed.
    pub fn can_commit(&self) -> bool {
        self.database.storage().manager().log().is_none_or(|log| !log.has_failed())
    }
}

/// What a statement gave.
#[derive(Clone, Debug)]
pub enum StatementResult {
    /// Rows.
    Rows {
        /// The tag's word, as PostgreSQL writes it before their number: "SELECT", "INSERT 0".
        tag: &'static str,
        /// Their columns.
        schema: SchemaRef,
        /// The rows, in order.
        batches: Vec<RecordBatch>,
    },
    /// A command's tag, as PostgreSQL writes it: "INSERT 0 3".
    Command {
        /// The tag.
        tag: String,
        /// Rows that it changed.
        rows: u64,
    },
}

impl StatementResult {
    pub(crate) fn command(tag: impl Into<String>) -> Self {
        Self::Command { tag: tag.into(), rows: 0 }
    }
    /// Rows of the result.
    pub fn row_count(&self) -> usize {
        match self {
            Self::Rows { batches, .. } => batches.iter().map(RecordBatch::num_rows).sum(),
            Self::Command { .. } => 0,
        }
    }
    /// The same as it leaves as Arrow ([`serac_values::free_numbers::shown`]).
    ///
    /// # Errors
    /// As there.
    pub fn shown(self) -> Result<Self> {
        match self {
            Self::Rows { tag, schema, batches } => {
                let batches = batches.into_iter().map(serac_values::free_numbers::shown).collect::<Result<_>>()?;
                Ok(Self::Rows { tag, schema: serac_values::free_numbers::shown_schema(&schema), batches })
            }
            command => Ok(command),
        }
    }
}

/// The word of the tag of a statement that gives rows.
pub fn row_tag(statement: &Parsed) -> &'static str {
    tag_of(statement.statement())
}

/// The same of its tree.
pub(crate) fn tag_of(tree: &StatementKind) -> &'static str {
    match tree {
        StatementKind::Insert(_) => "INSERT 0",
        StatementKind::Update(_) => "UPDATE",
        StatementKind::Delete(_) => "DELETE",
        StatementKind::Merge(_) => "MERGE",
        StatementKind::Show(_) => "SHOW",
        StatementKind::Explain(_) | StatementKind::Describe(_) => "EXPLAIN",
        StatementKind::Fetch(_) => "FETCH",
        StatementKind::Call(_) => "CALL",
        _ => "SELECT",
    }
}

/// Whether a transaction is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransactionStatus {
    /// None.
    Idle,
    /// Open.
    Open,
    /// Open, and a statement has failed in it.
    Failed,
}

/// A connection's state.
pub struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) ctx: SessionContext,
    pub(crate) query_runtime: Arc<QueryRuntime>,
    pub(crate) copy_streams: CopyStreams,
    pub(crate) running: Option<Running>,
    /// What must be durable before the error of the last statement is shown.
    pub(crate) error_ticket: Option<CommitTicket>,
    pub(crate) prepared: HashMap<String, Prepared>,
    pub(crate) point: PointState,
    /// What evaluates defaults and checks for the engine.
    pub(crate) expressions: Arc<dyn Expressions>,
    pub(crate) default_modes: Modes,
    pub(crate) cancel: CancelHandle,
    pub(crate) notices: Notices,
    pub(crate) statement_timeout: Option<Duration>,
    pub(crate) idle_in_transaction_timeout: Option<Duration>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) work_memory: Arc<WorkMemory>,
    /// Bytes of it that were in use when the statement began.
    memory_before: usize,
    /// Whether the tasks of a query whose rows were not wanted may still hold some of it.
    has_abandoned: bool,
    pub(crate) defaults: SessionDefaults,
    /// Whether columns of results without a name get PostgreSQL's.
    pub(crate) postgresql_names: bool,
    /// How the next query gives short decimals that are columns of a table.
    pub(crate) next_decimals: DecimalForm,
    /// How long a statement waits for a transaction in its way.
    pub(crate) lock_timeout: Option<Duration>,
    /// Whether it does so at all levels of isolation.
    pub(crate) waits_at_any_level: bool,
    /// Of a role that has connected.
    pub(crate) login: Option<Login>,
    /// How often a setting has been made by its name.
    pub(crate) parameters_set: u64,
    /// Whether a setting of the query engine's own has been made.
    pub(crate) has_engine_setting: bool,
    /// What the session was like at first; none if nobody asks.
    pub(crate) beginning: Option<Box<Beginning>>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("status", &self.transaction_status()).finish_non_exhaustive()
    }
}

/// Parses a script.
///
/// # Errors
/// SQLSTATE 42601, with the place.
pub fn parse(sql: &str) -> Result<Vec<Parsed>> {
    match transaction_word(sql) {
        Some(statement) => Ok(vec![statement.clone()]),
        None => Parsed::of_script(sql),
    }
}

/// BEGIN, COMMIT, END, ROLLBACK and ABORT with nothing else, parsed once for all: many a transaction has as many of these as of other statements.
fn transaction_word(sql: &str) -> Option<&'static Parsed> {
    static WORDS: LazyLock<Vec<(&str, Parsed)>> = LazyLock::new(|| {
        let parsed = |word| Some((word, Parsed::of_script(word).ok()?.pop()?));
        ["BEGIN", "COMMIT", "END", "ROLLBACK", "ABORT"].into_iter().filter_map(parsed).collect()
    });
    let word = sql.trim();
    let word = word.strip_suffix(';').unwrap_or(word);
    WORDS.iter().find(|(known, _)| word.eq_ignore_ascii_case(known)).map(|(_, statement)| statement)
}

/// Whether the script begins with COPY … FROM STDIN, after which a shell finds the data.
pub fn reads_stdin(sql: &str) -> bool {
    // The word first: most statements do not have it, and need not be parsed for this.
    sql.as_bytes().windows(5).any(|word| word.eq_ignore_ascii_case(b"stdin"))
        && parse(sql).is_ok_and(|statements| {
            statements.first().is_some_and(|first| match first.statement() {
                StatementKind::Copy(copy) => copy.from && copy.file.is_none(),
                _ => false,
            })
        })
}

/// Whether a statement is COPY, whose progress can be shown ([`Session::copy_progress`]).
pub fn is_copy(statement: &Parsed) -> bool {
    matches!(statement.statement(), StatementKind::Copy(_))
}

impl Session {
    /// A new session.
    pub fn new(db: &SqlDatabase) -> Self {
        let mut config = SessionConfig::new()
            .with_default_catalog_and_schema(CATALOG, SEARCH_PATH)
            .with_create_default_catalog_and_schema(false)
            .with_information_schema(false)
            .with_target_partitions(db.threads);
        let options = config.options_mut();
        // What stands in the place of DataFusion's arithmetic may give NULL as far as its schema
        // says.
        options.execution.skip_physical_aggregate_schema_check = true;
        options.execution.time_zone = Some("UTC".into());
        options.optimizer.prefer_existing_sort = false;
        // The rule hands a LIMIT down to an aggregation past windows, and finds the sort key by a name that a
        // projection gives to something else.
        options.optimizer.enable_topk_aggregation = false;
        if let Some(limit) = db.memory_limit {
            // What sorts keep back for merging must leave most of the memory for sorting.
            let share = limit / (5 * db.threads.max(1));
            options.execution.sort_spill_reservation_bytes = options.execution.sort_spill_reservation_bytes.min(share);
        }
        let shared = Arc::new(Shared {
            database: db.database.clone(),
            view: Default::default(),
            temporary_database: OnceLock::new(),
            state: OnceLock::new(),
            bitmap_indexes: true.into(),
            disabled_passes: Default::default(),
            scan_sharing: Arc::new(ScanSharing::new(db.convoys.clone())),
            identity: OnceLock::new(),
            roles: Default::default(),
            sql: db.clone(),
            client_settings: Default::default(),
            settings: Default::default(),
            client_changes: Default::default(),
            changed_settings: Default::default(),
            sequence_values: Default::default(),
            time: Default::default(),
            statement_time: Default::default(),
            cursors: Default::default(),
            prepared_statements: Default::default(),
            advisory_locks: Arc::new(SessionLocks::new(&db.advisory_locks)),
            listener: Listener::new(&db.channels),
        });
        config.set_extension(Arc::new(Functions::new(shared.clone())));
        config.set_extension(shared.scan_sharing.clone());
        let work_memory = Arc::new(WorkMemory::new(db.runtime.memory_pool.clone()));
        let runtime = RuntimeEnv { memory_pool: work_memory.clone(), ..db.runtime.as_ref().clone() };
        let resources = Resources { work_memory: work_memory.clone(), memory_limit: db.memory_limit };
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(Arc::new(runtime))
            // A rule of the optimizer looks for it. All others are with `Functions`.
            .with_aggregate_functions(vec![first_value_udaf()]);
        let state = Rules::new(&resources, &[]).put_into(state).build();
        let ctx = SessionContext::new_with_state(state);
        ctx.register_catalog(CATALOG, Arc::new(TransactionCatalog(shared.clone())));
        let _ = shared.state.set(ctx.state_weak_ref());
        let mut session = Self {
            expressions: Arc::new(SessionExpressions(shared.clone())),
            shared,
            ctx,
            query_runtime: db.query_runtime.clone(),
            copy_streams: CopyStreams::default(),
            running: None,
            error_ticket: None,
            prepared: HashMap::new(),
            point: PointState::default(),
            default_modes: Modes::default(),
            cancel: CancelHandle::default(),
            notices: Notices::default(),
            statement_timeout: db.defaults.statement_timeout,
            idle_in_transaction_timeout: db.defaults.idle_in_transaction_session_timeout,
            idle_timeout: db.defaults.idle_session_timeout,
            work_memory,
            memory_before: 0,
            has_abandoned: false,
            defaults: db.defaults,
            postgresql_names: false,
            next_decimals: DecimalForm::default(),
            lock_timeout: None,
            waits_at_any_level: false,
            login: None,
            parameters_set: 0,
            has_engine_setting: false,
            beginning: None,
        };
        session.set_work_memory(db.defaults.work_mem);
        session
    }

    /// The engine below.
    pub fn database(&self) -> &Database {
        &self.shared.database
    }
    /// Makes usual what clients of PostgreSQL rely on where they do not say: READ COMMITTED, waiting for transactions in the way at every level, its text format in
    /// COPY, and its names of the columns of results.
    pub fn as_for_postgresql(&mut self) {
        self.copy_streams.format = Format::Text;
        self.default_modes.isolation = Isolation::ReadCommitted;
        self.waits_at_any_level = true;
        self.name_columns_as_postgresql();
    }
    /// Gives columns of results that have no name PostgreSQL's, several the same perhaps: `sum`,
    /// `?column?`.
    pub fn name_columns_as_postgresql(&mut self) {
        self.postgresql_names = true;
    }
    /// Lets the next query, where its rows come from a table as they are, give decimals of up to 18 digits in this form. Others come in 128 bits.
    pub fn set_next_decimals(&mut self, form: DecimalForm) {
        self.next_decimals = form;
    }
    /// Says, once, who the session is.
    pub fn identify(&mut self, identity: Identity) {
        let _ = self.shared.identity.set(identity);
    }
    /// Whether a transaction is open.
    pub fn transaction_status(&self) -> TransactionStatus {
        match &self.running {
            Some(running) if running.failed => TransactionStatus::Failed,
            Some(running) if running.is_block() => TransactionStatus::Open,
            _ => TransactionStatus::Idle,
        }
    }
    /// A handle with which another thread cancels what this session runs.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// Parses a script for this session: an error of syntax is one of the open transaction.
    ///
    /// # Errors
    /// As for [`parse`].
    pub fn parse(&mut self, sql: &str) -> Result<Vec<Parsed>> {
        let statements = parse(sql);
        self.failing(statements)
    }

    /// As [`parse`](Self::parse), on another thread if the text is long: it can be cancelled, and
    /// takes no longer than a statement may.
    ///
    /// # Errors
    /// As there, and 57014.
    pub async fn parse_elsewhere(&mut self, sql: &str) -> Result<Vec<Parsed>> {
        if sql.len() <= SHORT_TEXT {
            return self.parse(sql);
        }
        let text = sql.to_owned();
        let memory = self.work_memory.of_all();
        let statements = self.limits().keep(deep::elsewhere(Some(memory), move || parse(&text))).await;
        self.failing(statements)
    }

    /// Runs a script, statement by statement, up to the first error. Nothing runs of a script with an error of syntax.
    ///
    /// # Errors
    /// What is wrong with the first statement that fails.
    pub async fn execute(&mut self, sql: &str) -> Result<Vec<StatementResult>> {
        if let Some(outcome) = self.execute_text(sql).await? {
            return Ok(vec![self.acknowledged(outcome).await?.shown()?]);
        }
        if let Some(statement) = transaction_word(sql)
            && let Some(result) = self.start_control(statement)
        {
            let (result, started) = result?;
            return started.durable().await.map(|()| vec![result]);
        }
        // In a box: what other statements may have to keep need not be moved for those above.
        Box::pin(self.execute_script(sql)).await
    }
    async fn execute_script(&mut self, sql: &str) -> Result<Vec<StatementResult>> {
        let mut results = Vec::new();
        for (i, statement) in self.parse_elsewhere(sql).await?.into_iter().enumerate() {
            let result = self.execute_statement(statement).await.map_err(|error| located(error, sql, i))?;
            results.push(result.shown()?);
        }
        Ok(results)
    }

    /// Runs one statement.
    ///
    /// # Errors
    /// What is wrong with it; it has then done nothing.
    pub async fn execute_statement(&mut self, statement: Parsed) -> Result<StatementResult> {
        let is_deep = statement.is_deep();
        self.execute_of_depth(statement, is_deep).await
    }
    /// The same where it is known whether the statement `is_deep`.
    pub(crate) async fn execute_of_depth(&mut self, statement: Parsed, is_deep: bool) -> Result<StatementResult> {
        if statement.query_or_change().is_none() {
            if let Some(result) = self.control(&statement).await {
                return result;
            }
            if let Some(outcome) = self.execute_named(&statement).await? {
                return self.acknowledged(outcome).await;
            }
        }
        // In a box: what planning may have to keep is a hundred kilobytes, which would be moved for BEGIN and COMMIT, too.
        Roomy::new(is_deep, self.execute_other(statement)).await
    }
    async fn execute_other(&mut self, mut statement: Parsed) -> Result<StatementResult> {
        let tag = row_tag(&statement);
        self.abandoned_has_ended().await;
        self.start_statement()?;
        let mut open = OpenStatement::new(self);
        let mut limits = open.limits();
        let mut conflicts = Conflicts::default();
        let result = loop {
            let again = open.may_wait(&statement).then(|| statement.clone());
            let run = async {
                match open.run(statement).await? {
                    Output::Done(result) => Ok(result),
                    Output::Rows { schema, stream } => {
                        Ok(StatementResult::Rows { tag, schema, batches: stream.try_collect().await? })
                    }
                }
            };
            match (limits.keep(run).await, again) {
                (Err(error), Some(again)) => {
                    let claims = open.claims(&again);
                    match open.make_way(error, claims, &mut conflicts, &mut limits).await {
                        Ok(()) => statement = again,
                        Err(error) => break Err(error),
                    }
                }
                (result, _) => break result,
            }
        };
        open.into_session().finish_statement(result).await
    }
    /// The limits of a statement that starts now.
    pub fn limits(&self) -> Limits {
        Limits::new(&self.cancel, self.statement_timeout)
    }

    /// Runs one statement and gives the rows of a query as they come. The statement ends with the last row, or when the stream is dropped.
    ///
    /// # Errors
    /// What is wrong with it; errors of a query may also come later, from the stream.
    pub async fn stream_statement(&mut self, statement: Parsed) -> Result<StatementStream<'_>> {
        let is_deep = statement.is_deep();
        self.stream_of_depth(statement, is_deep).await
    }
    /// The same where it is known whether the statement `is_deep`.
    pub(crate) async fn stream_of_depth(&mut self, statement: Parsed, is_deep: bool) -> Result<StatementStream<'_>> {
        if statement.query_or_change().is_none()
            && let Some(result) = self.control(&statement).await
        {
            return result.map(|result| StatementStream::done(self, result));
        }
        if !self.only_shows(&statement) {
            // As a whole, so that it can be begun again at a conflict.
            let result = self.execute_of_depth(statement, is_deep).await?;
            return Ok(StatementStream::done(self, result));
        }
        if let Some(outcome) = self.execute_named(&statement).await? {
            let result = self.acknowledged(outcome).await?;
            return Ok(StatementStream::done(self, result));
        }
        Roomy::new(is_deep, self.stream_other(statement)).await
    }
    async fn stream_other(&mut self, statement: Parsed) -> Result<StatementStream<'_>> {
        let tag = row_tag(&statement);
        self.abandoned_has_ended().await;
        self.start_statement()?;
        let mut open = OpenStatement::new(self);
        let mut limits = open.limits();
        let result = limits
            .keep(async {
                let output = open.run(statement).await?;
                if matches!(output, Output::Rows { .. }) {
                    // Rows are shown before the transaction ends, so what they show must be durable before.
                    open.snapshot_is_durable().await?;
                }
                Ok(output)
            })
            .await;
        let session = open.into_session();
        match result {
            Ok(Output::Rows { schema, stream }) => {
                Ok(StatementStream::Rows(RowStream::new(session, tag, schema, stream, limits)))
            }
            Ok(Output::Done(result)) => {
                let result = session.finish_statement(Ok(result)).await?;
                Ok(StatementStream::done(session, result))
            }
            Err(error) => Err(session.finish_statement::<()>(Err(error)).await.expect_err("it has failed")),
        }
    }
    /// Whether a statement changes and claims nothing, so that nobody can be in its way: its rows
    /// may be given as they come.
    fn only_shows(&self, statement: &Parsed) -> bool {
        match statement.statement() {
            StatementKind::Execute(execute) => {
                let prepared = self.prepared.get(&execute.name.name);
                prepared.is_some_and(|prepared| self.only_shows(prepared.parsed()))
            }
            StatementKind::Explain(_) | StatementKind::Describe(_) | StatementKind::Show(_) => true,
            _ => statement.only_shows(),
        }
    }

    /// Begins a statement, in a transaction of its own if none is open, and lets queries see what it sees.
    pub(crate) fn start_statement(&mut self) -> Result<()> {
        self.open_statement()?;
        self.memory_before = self.work_memory.used();
        self.shared.statement_time();
        self.refresh_view();
        Ok(())
    }

    /// Ends a statement: commits its own transaction and waits until that is durable, or undoes what a failed one has done.
    pub(crate) async fn finish_statement<T>(&mut self, result: Result<T>) -> Result<T> {
        let result = match result {
            Ok(result) => result,
            Err(error) => {
                let error = self.close_failed_statement(error);
                self.work_memory.given_back(self.memory_before).await;
                return Err(self.shown(error).await);
            }
        };
        match self.close_statement()? {
            Some(ticket) => {
                let durable = Self::durable(ticket).await;
                self.failing(durable).map(|()| result)
            }
            None => Ok(result),
        }
    }
    /// Waits for the memory of the last query, if its rows were not wanted to their end.
    pub(crate) async fn abandoned_has_ended(&mut self) {
        if std::mem::take(&mut self.has_abandoned) {
            self.work_memory.given_back(self.memory_before).await;
        }
    }
    /// Ends a query whose rows are not wanted any more.
    pub(crate) fn abandon_query(&mut self) {
        self.has_abandoned = true;
        self.abandon_statement();
    }
    /// Ends a statement that has not done anything.
    pub(crate) fn abandon_statement(&mut self) {
        if self.transaction_status() == TransactionStatus::Idle {
            self.end();
        }
    }

    /// Waits until everything that the transaction may see is durable.
    pub(crate) async fn snapshot_is_durable(&self) -> Result<()> {
        let ticket = self.shared.view().expect("a statement is running").snapshot.ticket();
        Self::durable(ticket).await
    }
    /// Waits until everything that the transaction has read so far is durable: rows that a query gives after [that](Self::snapshot_is_durable) may
    /// show what is newer than its snapshot, such as a sequence's next value.
    pub(crate) async fn reads_are_durable(&self) -> Result<()> {
        match self.running.as_ref().and_then(|running| running.txn.snapshot().unacknowledged_reads()) {
            Some(ticket) => Self::durable(ticket).await,
            None => Ok(()),
        }
    }

    // ---- statements

    pub(crate) async fn run(&mut self, statement: Parsed) -> Result<Output> {
        let source = statement.into_source();
        match source.kind() {
            kind if is_bound(kind) => self.run_bound(source).await,
            StatementKind::Show(shown) => self.show(shown).await,
            StatementKind::Describe(name) => self.describe_relation(name).await,
            StatementKind::Explain(explain) => Box::pin(self.explain(explain, source.clone().inside())).await,
            StatementKind::Execute(execute) => {
                let statement = self.executed(execute, &source).await?;
                // Its text is another statement's.
                Box::pin(self.run(statement)).await.map_err(SqlError::unplaced)
            }
            _ => {
                let result = self.run_command(source).await?;
                self.running.as_mut().expect("it runs").check_statement_end()?;
                Ok(Output::Done(result))
            }
        }
    }

    /// Runs a query or a change.
    pub(crate) async fn run_bound(&mut self, source: Source) -> Result<Output> {
        if !source.acts() {
            return self.query(source).await;
        }
        if let StatementKind::Insert(insert) = source.statement()
            && let Some(result) = self.insert_constants(insert)?
        {
            self.running.as_mut().expect("it runs").check_statement_end()?;
            return Ok(Output::Done(result));
        }
        // Boxed: what a change may have to keep need not be moved for other statements.
        Box::pin(self.run_changes(&source)).await
    }

    /// Runs a statement that gives no rows but those of FETCH, CALL and RETURNING.
    async fn run_command(&mut self, mut source: Source) -> Result<StatementResult> {
        if source.acts() {
            match source.kind() {
                StatementKind::CreateTableAs(_) | StatementKind::Copy(_) => {
                    source = Box::pin(self.run_changes_of_query(&source)).await?;
                }
                StatementKind::CreateView(_) | StatementKind::CreateMaterializedView(_) => {
                    return Err(SqlError::unsupported("a view whose query changes or claims rows"));
                }
                _ => {}
            }
        }
        match source.kind() {
            StatementKind::Copy(copy) => self.copy(copy, &source).await,
            StatementKind::Prepare(prepare) => self.prepare_named(prepare, &source).await,
            StatementKind::Deallocate(None) => {
                self.forget_prepared();
                Ok(StatementResult::command("DEALLOCATE ALL"))
            }
            StatementKind::Deallocate(Some(name)) => match self.prepared.remove(&name.name) {
                Some(_) => {
                    self.shared.prepared_statements.lock().remove(&name.name);
                    Ok(StatementResult::command("DEALLOCATE"))
                }
                None => Err(not_prepared(&name.name)),
            },
            StatementKind::Call(call) if programs::is_run(call) => self.call_job(call, &source).await,
            StatementKind::Set(set) => self.set(set).await,
            StatementKind::Reset(reset) => self.reset(reset),
            StatementKind::DeclareCursor(cursor) => self.declare(cursor, &source).await,
            StatementKind::Fetch(fetch) => self.fetch(fetch),
            StatementKind::CloseCursor(name) => self.close_cursor(name.as_ref()),
            StatementKind::Discard(what) => self.discard(*what),
            StatementKind::Listen(channel) => self.listen(&channel.name),
            StatementKind::Unlisten(channel) => self.unlisten(channel.as_ref()),
            StatementKind::Notify(channel, payload) => self.notify(&channel.name, payload.as_ref()),
            StatementKind::Transaction(Transaction::Prepare(_)) => Err(SqlError::unsupported("PREPARE TRANSACTION")),
            StatementKind::Transaction(Transaction::CommitPrepared(_)) => Err(SqlError::unsupported("COMMIT PREPARED")),
            StatementKind::Transaction(Transaction::RollbackPrepared(_)) => {
                Err(SqlError::unsupported("ROLLBACK PREPARED"))
            }
            _ => self.define(&source).await,
        }
    }

    /// PREPARE.
    ///
    /// # Errors
    /// 42P05, and what is wrong with the statement.
    async fn prepare_named(&mut self, prepare: &Prepare, source: &Source) -> Result<StatementResult> {
        let Prepare { name, types, statement: _ } = prepare;
        if self.prepared.contains_key(&name.name) {
            let message = format!("prepared statement \"{}\" already exists", name.name);
            return Err(SqlError::new("42P05", message));
        }
        let types = types.iter().map(|declared| binding::named_type(declared, source).map(|id| id.0));
        let mut prepared = Prepared::new(Parsed::of_source(source.clone().inside()), types.collect::<Result<_>>()?);
        prepared.count_arguments();
        let parameters = match prepared.parsed().query_or_change() {
            Some(bound) => self.parameter_types(bound).await?,
            None => prepared.parsed().source().types(),
        };
        let (statement, made) = (source.text_of_statement().to_owned(), SystemTime::now());
        let shown = PreparedStatement { statement, made, parameters };
        self.shared.prepared_statements.lock().insert(name.name.clone(), shown);
        self.prepared.insert(name.name.clone(), prepared);
        Ok(StatementResult::command("PREPARE"))
    }
    /// Forgets all statements that PREPARE has made.
    fn forget_prepared(&mut self) {
        self.prepared.clear();
        self.shared.prepared_statements.lock().clear();
    }

    /// DISCARD: lets go of what the session keeps. ALL of it is what a pool does before it gives a connection to somebody else.
    fn discard(&mut self, what: Discard) -> Result<StatementResult> {
        let word = match what {
            // Plans are made anew for other settings.
            Discard::Plans => {
                self.shared.note_setting();
                "PLANS"
            }
            Discard::Sequences => {
                *self.shared.sequence_values.write() = Default::default();
                "SEQUENCES"
            }
            Discard::Temporary => {
                self.drop_temporary_tables()?;
                "TEMP"
            }
            Discard::All => {
                if self.transaction_status() != TransactionStatus::Idle {
                    return Err(SqlError::new("25001", "DISCARD ALL cannot run inside a transaction block"));
                }
                self.close_cursor(None)?;
                self.shared.listener.unlisten_all();
                self.shared.advisory_locks.release_session();
                self.forget_prepared();
                *self.shared.sequence_values.write() = Default::default();
                self.reset(&Reset::All)?;
                self.reset_roles()?;
                self.drop_temporary_tables()?;
                "ALL"
            }
        };
        Ok(StatementResult::command(format!("DISCARD {word}")))
    }

    /// EXECUTE of a statement of the point path; none for others.
    async fn execute_named(&mut self, statement: &Parsed) -> Result<Option<Outcome>> {
        let StatementKind::Execute(execute) = statement.statement() else { return Ok(None) };
        let Some(prepared) = self.prepared.remove_entry(&execute.name.name) else { return Ok(None) };
        let mut executed = Executed { session: self, prepared: Some(prepared) };
        let Executed { session, prepared: Some((name, prepared)) } = &mut executed else { unreachable!("it is there") };
        // The error is one of the statement, which is run on the other path.
        if prepared.check_arguments(name, execute.arguments.len()).is_err() {
            return Ok(None);
        }
        let values = statement.source().arguments().values.as_deref().unwrap_or_default();
        session.execute_point(prepared, &execute.arguments, values).await.map_err(SqlError::unplaced)
    }
    /// Whether a statement claims rows.
    pub(crate) fn claims(&self, statement: &Parsed) -> bool {
        match statement.statement() {
            StatementKind::Execute(execute) => {
                self.prepared.get(&execute.name.name).is_some_and(|prepared| prepared.parsed().claims())
            }
            _ => statement.claims(),
        }
    }

    /// A statement that PREPARE has made, for so many arguments.
    pub(crate) fn prepared(&self, name: &str, arguments: usize) -> Result<&Prepared> {
        let prepared = self.prepared.get(name).ok_or_else(|| not_prepared(name))?;
        prepared.check_arguments(name, arguments)?;
        Ok(prepared)
    }
    /// The statement that the EXECUTE at `text` runs.
    async fn executed(&self, execute: &Execute, text: &Source) -> Result<Parsed> {
        let Execute { name, arguments } = execute;
        let source = self.prepared(&name.name, arguments.len())?.parsed().source().clone();
        if arguments.is_empty() {
            return Ok(Parsed::of_source(source));
        }
        let given = match source.kind() {
            StatementKind::Call(call) => {
                let types = self.parameters_of_call(call, &source).await?;
                let values = self.arguments_of(text, arguments, &types).await?;
                Arguments { types: types.iter().map(|id| id.0).collect(), values: Some(values.into()) }
            }
            _ => self.given(&source, text, arguments).await?,
        };
        Ok(Parsed::of_source(source.with(given)))
    }
}

/// A prepared statement that is out of the session's way while this runs it.
struct Executed<'s> {
    session: &'s mut Session,
    prepared: Option<(String, Prepared)>,
}

impl Drop for Executed<'_> {
    fn drop(&mut self) {
        self.session.prepared.extend(self.prepared.take());
    }
}

fn not_prepared(name: &str) -> SqlError {
    SqlError::new("26000", format!("prepared statement \"{name}\" does not exist"))
}
