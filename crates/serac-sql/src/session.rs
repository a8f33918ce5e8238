//! Sessions: one per connection. Statements, transactions, prepared statements, settings.
//!
//! Every statement runs in a transaction: the one that BEGIN opened, or its own. A statement that fails leaves nothing behind; inside an
//! opened transaction nothing but ROLLBACK (or ROLLBACK TO) is then accepted, as in PostgreSQL. Queries run on DataFusion over the transaction's
//! snapshot; an acknowledged commit is durable at the database's level, and so is everything a result shows.

use crate::activity::Connections;
use crate::advisory_locks::{AdvisoryLocks, SessionLocks};
use crate::catalog::{Shared, TransactionCatalog};
use crate::channels::{Channels, Listener};
use crate::conflicts::Conflicts;
use crate::copy::CopyStreams;
use crate::deep::{self, Roomy};
use crate::dialect::{PostgreSql, Steps};
use crate::error::{Result, SqlError};
use crate::expressions::SessionExpressions;
use crate::identifiers::{CATALOG, SEARCH_PATH, fold, prepared_name};
use crate::identity::Identity;
use crate::limits::{CancelHandle, Limits, SessionDefaults};
use crate::locate::located;
use crate::maintenance::parse_statement;
use crate::nesting;
use crate::notices::Notices;
use crate::parsed::{Kind, Parsed, Source};
use crate::pipeline::{Resources, Rules, over_tokens};
use crate::planner::Functions;
use crate::point::{Outcome, PointState, Prepared};
use crate::programs::{self, Programs};
use crate::query::{Output, QueryRuntime};
use crate::row_stream::{RowStream, StatementStream};
use crate::session_state::Beginning;
use crate::settings::is_all;
use crate::transactions::{Isolation, Modes, OpenStatement, Running};
use crate::visits::visit_expressions_mut;
use crate::work_memory::WorkMemory;
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SessionStateBuilder, SessionStateDefaults};
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::sqlparser::ast::{
    CloseCursor, CopyTarget, DiscardObject, Expr, Reset, Statement, UnaryOperator, Value,
};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};
use futures::TryStreamExt;
use serac_copy::Format;
use serac_engine::roles::Login;
use serac_engine::{Database, DecimalForm, Expressions};
use serac_functions::{Arrays, IntervalArithmetic, JsonOperators, Quotients, UuidComparisons};
use serac_parser::tree::StatementKind;
use serac_query::scan::{Convoys, ScanSharing};
use serac_storage::CommitTicket;
use std::collections::HashMap;
use std::ops::ControlFlow;
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
    match (statement.tree(), statement.other()) {
        (Some(change), _) => tag_of(change),
        (None, Some(Statement::ShowVariable { .. } | Statement::ShowTables { .. } | Statement::ShowColumns { .. })) => {
            "SHOW"
        }
        (None, Some(Statement::Explain { .. } | Statement::ExplainTable { .. })) => "EXPLAIN",
        (None, Some(Statement::Fetch { .. })) => "FETCH",
        (None, Some(Statement::Call(_))) => "CALL",
        _ => "SELECT",
    }
}

/// The same of a query or a change.
pub(crate) fn tag_of(tree: &StatementKind) -> &'static str {
    match tree {
        StatementKind::Insert(_) => "INSERT 0",
        StatementKind::Update(_) => "UPDATE",
        StatementKind::Delete(_) => "DELETE",
        StatementKind::Merge(_) => "MERGE",
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

/// COPY's switches may be ON or OFF, of which the parser does not know.
pub(crate) fn copy_switches(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is = |token: &Token, words: &[&str]| match token {
        Token::Word(word) => word.quote_style.is_none() && words.iter().any(|w| word.value.eq_ignore_ascii_case(w)),
        _ => false,
    };
    let of_value = |token: &Token| !matches!(token, Token::Whitespace(_));
    if !tokens.iter().map(|token| &token.token).find(|token| of_value(token)).is_some_and(|first| is(first, &["copy"]))
    {
        return tokens;
    }
    let mut before = Token::EOF;
    for token in tokens.iter_mut().filter(|token| of_value(&token.token)) {
        if is(&before, &["freeze", "header"]) {
            if is(&token.token, &["on"]) {
                token.token = Token::make_keyword("TRUE");
            } else if is(&token.token, &["off"]) {
                token.token = Token::make_keyword("FALSE");
            }
        }
        before = token.token.clone();
    }
    tokens
}

/// Whether a text may have a sign of a sign; comments may stand between.
fn may_have_two_signs(sql: &str) -> bool {
    let is_sign = |byte: u8| matches!(byte, b'-' | b'+');
    let mut last = b' ';
    sql.bytes().filter(|byte| !byte.is_ascii_whitespace()).any(|byte| {
        let (before, now) = (std::mem::replace(&mut last, byte), byte);
        is_sign(before) && is_sign(now) || before == b'/' && now == b'*'
    })
}

/// Parses a script.
///
/// # Errors
/// SQLSTATE 42601, with the place.
pub fn parse(sql: &str) -> Result<Vec<Parsed>> {
    match transaction_word(sql) {
        Some(statement) => Ok(vec![Parsed::of_statement(statement.clone())]),
        None => Parsed::of_script(sql),
    }
}

/// BEGIN, COMMIT, END, ROLLBACK and ABORT with nothing else, parsed once for all: many a transaction has as many of these as of other statements.
fn transaction_word(sql: &str) -> Option<&'static Statement> {
    static WORDS: LazyLock<Vec<(&str, Statement)>> = LazyLock::new(|| {
        let parsed = |word| Some((word, parse_one(word, (1, 1)).ok()?));
        ["BEGIN", "COMMIT", "END", "ROLLBACK", "ABORT"].into_iter().filter_map(parsed).collect()
    });
    let word = sql.trim();
    let word = word.strip_suffix(';').unwrap_or(word);
    WORDS.iter().find(|(known, _)| word.eq_ignore_ascii_case(known)).map(|(_, statement)| statement)
}

/// sqlparser's tree of a single statement that begins at `place`.
///
/// # Errors
/// 0A000 for what is right, and not known there.
pub(crate) fn parse_one(sql: &str, place: (u64, u64)) -> Result<Statement> {
    let mut tokens = Tokenizer::new(&PostgreSql, sql).tokenize_with_location().map_err(ParserError::from)?;
    if place != (1, 1) {
        let move_to = |at: &mut Location| {
            at.column += if at.line == 1 { place.1 - 1 } else { 0 };
            at.line += place.0 - 1;
        };
        tokens.iter_mut().for_each(|token| {
            move_to(&mut token.span.start);
            move_to(&mut token.span.end);
        });
    }
    let levels = nesting::estimate(&tokens)?;
    if levels > nesting::MAX_ESTIMATE {
        return Err(SqlError::too_deep());
    }
    match levels > nesting::SHALLOW {
        true => deep::with_room(|| statement_of(sql, tokens, true)),
        false => statement_of(sql, tokens, false),
    }
}

/// Takes `pg_catalog` away from the names of functions: all functions are of this schema, which some
/// clients say.
fn unqualify_functions(statement: &mut Statement) {
    let _ = visit_expressions_mut(statement, |expr| {
        if let Expr::Function(function) = expr
            && function.name.0.len() == 2
            && function.name.0[0].as_ident().is_some_and(|schema| fold(schema) == "pg_catalog")
        {
            function.name.0.remove(0);
        }
        ControlFlow::<()>::Continue(())
    });
}

/// Puts a sign that has a sign before it in parentheses: written without, `- -2` would be the
/// beginning of a comment.
fn part_signs(statement: &mut Statement) {
    let is_signed = |expr: &Expr| matches!(expr, Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, .. });
    let _ = visit_expressions_mut(statement, |expr| {
        if is_signed(expr)
            && let Expr::UnaryOp { expr: operand, .. } = expr
            && is_signed(operand)
        {
            let signed = std::mem::replace(operand, Box::new(Expr::value(Value::Null)));
            **operand = Expr::Nested(signed);
        }
        ControlFlow::<()>::Continue(())
    });
}

/// The statement that tokens are. `is_nested` where it may be nested so deeply that it matters.
fn statement_of(sql: &str, tokens: Vec<TokenWithSpan>, is_nested: bool) -> Result<Statement> {
    let _steps = Steps::of(tokens.len());
    let parser = Parser::new(&PostgreSql).with_recursion_limit(nesting::PARSER_CALLS);
    let mut parser = parser.with_tokens_with_locations(over_tokens(tokens));
    let start = parser.index();
    let parsed = parse_statement(&mut parser).and_then(|statement| match parser.peek_token_ref().token {
        Token::EOF => Ok(statement),
        _ => parser.expected("end of statement", parser.peek_token()),
    });
    let mut statement =
        parsed.map_err(|error| crate::copy::wrong_character(&parser, start).unwrap_or_else(|| not_known(error)))?;
    if is_nested {
        nesting::balance(&mut statement);
        nesting::check(&statement)?;
    }
    crate::clauses::check(&statement)?;
    if sql.contains("pg_catalog.") {
        unqualify_functions(&mut statement);
    }
    if may_have_two_signs(sql) {
        part_signs(&mut statement);
    }
    Ok(statement)
}

/// The error of a text that is right by the grammar. Words that have no meaning are errors of
/// syntax all the same.
fn not_known(error: ParserError) -> SqlError {
    let error = SqlError::from(error);
    match error.message.strip_prefix("syntax error: Expected") {
        Some(expected) => {
            SqlError { sqlstate: "0A000", message: format!("this is not supported: expected{expected}"), ..error }
        }
        None => error,
    }
}

/// Whether the script begins with COPY … FROM STDIN, after which a shell finds the data.
pub fn reads_stdin(sql: &str) -> bool {
    // The word first: most statements do not have it, and need not be parsed for this.
    sql.as_bytes().windows(5).any(|word| word.eq_ignore_ascii_case(b"stdin"))
        && parse(sql).is_ok_and(|statements| {
            let first = statements.first().and_then(Parsed::other);
            matches!(first, Some(Statement::Copy { to: false, target: CopyTarget::Stdin, .. }))
        })
}

/// Whether a statement is COPY, whose progress can be shown ([`Session::copy_progress`]).
pub fn is_copy(statement: &Parsed) -> bool {
    matches!(statement.other(), Some(Statement::Copy { .. }))
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
            advisory_locks: Arc::new(SessionLocks::new(&db.advisory_locks)),
            listener: Listener::new(&db.channels),
        });
        config.set_extension(Arc::new(Functions::new(shared.clone())));
        config.set_extension(shared.scan_sharing.clone());
        let work_memory = Arc::new(WorkMemory::new(db.runtime.memory_pool.clone()));
        let runtime = RuntimeEnv { memory_pool: work_memory.clone(), ..db.runtime.as_ref().clone() };
        let resources = Resources { work_memory: work_memory.clone(), memory_limit: db.memory_limit };
        // DataFusion's, of which one takes `d['key']` for a field of a structure, come behind ours.
        let mut expr_planners: Vec<Arc<dyn ExprPlanner>> = vec![
            Arc::new(Quotients),
            Arc::new(IntervalArithmetic),
            Arc::new(UuidComparisons),
            Arc::new(JsonOperators),
            Arc::new(Arrays),
        ];
        expr_planners.extend(SessionStateDefaults::default_expr_planners());
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(Arc::new(runtime))
            .with_expr_planners(expr_planners)
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
    /// COPY … FROM STDIN and TO STDOUT, and its names of the columns of results.
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
        if let Some(other) = statement.other() {
            if let Some(result) = self.control(other).await {
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
        if let Some(other) = statement.other()
            && let Some(result) = self.control(other).await
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
        let Some(other) = statement.other() else { return statement.only_shows() };
        match other {
            Statement::Execute { name: Some(name), .. } => {
                let prepared = self.prepared.get(&prepared_name(name));
                prepared.is_some_and(|prepared| self.only_shows(prepared.parsed()))
            }
            Statement::Explain { .. }
            | Statement::ExplainTable { .. }
            | Statement::ShowVariable { .. }
            | Statement::ShowTables { .. }
            | Statement::ShowColumns { .. } => true,
            _ => false,
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
        let (statement, mut source) = match statement.into_kind() {
            Kind::Bound(source) => return self.run_bound(source).await,
            Kind::Other(statement, source) => (*statement, source),
        };
        if let Some(text) = source.as_ref().filter(|source| source.acts()) {
            match &statement {
                Statement::CreateTable(_) | Statement::Copy { .. } => {
                    source = Some(Box::pin(self.run_changes_of_query(text)).await?);
                }
                Statement::CreateView(_) => {
                    return Err(SqlError::unsupported("a view whose query changes or claims rows"));
                }
                _ => {}
            }
        }
        match statement {
            Statement::ShowTables { .. } | Statement::ShowColumns { .. } => {
                let query = self.shown_relations(&statement).await?;
                self.query(query).await
            }
            Statement::ExplainTable { table_name, .. } => self.describe_relation(&table_name).await,
            Statement::Explain { .. } => Box::pin(self.explain(statement, source)).await,
            Statement::ShowVariable { ref variable } if is_all(variable) => {
                let batch = self.show_all()?;
                let rows = StatementResult::Rows { tag: "SHOW", schema: batch.schema(), batches: vec![batch] };
                Ok(Output::Done(rows))
            }
            Statement::ShowVariable { ref variable } => match self.shown_setting(variable) {
                Some((name, value)) => {
                    let schema = Arc::new(Schema::new(vec![Field::new(&name, DataType::Utf8, true)]));
                    let column = Arc::new(StringArray::from(vec![value])) as ArrayRef;
                    let batch = RecordBatch::try_new(schema.clone(), vec![column])?;
                    Ok(Output::Done(StatementResult::Rows { tag: "SHOW", schema, batches: vec![batch] }))
                }
                None => {
                    let query = self.shown_engine_setting(variable)?;
                    self.query(query).await
                }
            },
            Statement::Execute { name: Some(name), parameters, .. } => {
                let statement = self.executed(&prepared_name(&name), &parameters, source.as_ref()).await?;
                // Its text is another statement's.
                Box::pin(self.run(statement)).await.map_err(SqlError::unplaced)
            }
            other => {
                let result = self.run_command(other, source).await?;
                self.running.as_mut().expect("it runs").check_statement_end()?;
                Ok(Output::Done(result))
            }
        }
    }

    /// Runs a query or a change.
    async fn run_bound(&mut self, source: Source) -> Result<Output> {
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

    /// Runs a statement that is neither a query nor a change, and whose text is at `text`.
    pub(crate) async fn run_command(&mut self, statement: Statement, text: Option<Source>) -> Result<StatementResult> {
        match statement {
            Statement::Copy { source, to, target, options, legacy_options, .. } => {
                let options = crate::copy::all_options(options, &legacy_options)?;
                self.copy(source, text, to, target, options).await
            }
            Statement::Prepare { name, statement, data_types } => {
                let parsed = Parsed::inside(*statement, text);
                check_preparable(&parsed)?;
                let name = fold(&name);
                if self.prepared.contains_key(&name) {
                    return Err(SqlError::new("42P05", format!("prepared statement \"{name}\" already exists")));
                }
                let mut prepared = Prepared::new(parsed, data_types);
                prepared.count_arguments();
                self.prepared.insert(name, prepared);
                Ok(StatementResult::command("PREPARE"))
            }
            Statement::Deallocate { name, .. } => {
                let name = fold(&name);
                if name == "all" {
                    self.prepared.clear();
                } else if self.prepared.remove(&name).is_none() {
                    return Err(SqlError::new("26000", format!("prepared statement \"{name}\" does not exist")));
                }
                Ok(StatementResult::command("DEALLOCATE"))
            }
            Statement::Call(function) if programs::is_run(&function) => self.call_job(&function).await,
            Statement::Set(set) => self.set(set).await,
            Statement::Reset(reset) => self.reset(&reset.reset),
            Statement::Declare { stmts } => self.declare(stmts, text).await,
            Statement::Fetch { name, direction, into, .. } => self.fetch(&name, &direction, into.is_some()),
            Statement::Close { cursor } => self.close_cursor(&cursor),
            Statement::Discard { object_type } => self.discard(object_type),
            Statement::LISTEN { channel } => self.listen(&channel),
            Statement::UNLISTEN { channel } => self.unlisten(&channel),
            Statement::NOTIFY { channel, payload } => self.notify(&channel, payload.as_deref()),
            other => self.define(other, text.as_ref()).await,
        }
    }

    /// DISCARD: lets go of what the session keeps. ALL of it is what a pool does before it gives a connection to somebody else.
    fn discard(&mut self, what: DiscardObject) -> Result<StatementResult> {
        let tag = StatementResult::command(format!("DISCARD {what}"));
        match what {
            // Plans are made anew for other settings.
            DiscardObject::PLANS => self.shared.note_setting(),
            DiscardObject::SEQUENCES => *self.shared.sequence_values.write() = Default::default(),
            DiscardObject::TEMP => self.drop_temporary_tables()?,
            DiscardObject::ALL => {
                if self.transaction_status() != TransactionStatus::Idle {
                    return Err(SqlError::new("25001", "DISCARD ALL cannot run inside a transaction block"));
                }
                self.close_cursor(&CloseCursor::All)?;
                self.shared.listener.unlisten_all();
                self.shared.advisory_locks.release_session();
                self.prepared.clear();
                *self.shared.sequence_values.write() = Default::default();
                self.reset(&Reset::ALL)?;
                self.reset_roles()?;
                self.drop_temporary_tables()?;
            }
        }
        Ok(tag)
    }

    /// EXECUTE of a statement of the point path; none for others.
    async fn execute_named(&mut self, statement: &Parsed) -> Result<Option<Outcome>> {
        let Some(Statement::Execute { name: Some(name), .. }) = statement.other() else { return Ok(None) };
        let Some(text) = statement.source() else { return Ok(None) };
        let Some(prepared) = self.prepared.remove_entry(&prepared_name(name)) else {
            return Ok(None);
        };
        let mut executed = Executed { session: self, prepared: Some(prepared) };
        let Executed { session, prepared: Some((name, prepared)) } = &mut executed else { unreachable!("it is there") };
        // The error is one of the statement, which is run on the other path.
        if prepared.check_arguments(name, text.given().unwrap_or_default().len()).is_err() {
            return Ok(None);
        }
        session.execute_point(prepared, text).await.map_err(SqlError::unplaced)
    }
    /// Whether a statement claims rows.
    pub(crate) fn claims(&self, statement: &Parsed) -> bool {
        match statement.other() {
            Some(Statement::Execute { name: Some(name), .. }) => {
                let prepared = self.prepared.get(&prepared_name(name));
                prepared.is_some_and(|prepared| prepared.parsed().claims())
            }
            _ => statement.claims(),
        }
    }

    /// A statement that PREPARE has made, for so many arguments.
    pub(crate) fn prepared(&self, name: &str, arguments: usize) -> Result<&Prepared> {
        let missing = || SqlError::new("26000", format!("prepared statement \"{name}\" does not exist"));
        let prepared = self.prepared.get(name).ok_or_else(missing)?;
        prepared.check_arguments(name, arguments)?;
        Ok(prepared)
    }
    /// The statement that the EXECUTE at `text` runs.
    async fn executed(&self, name: &str, arguments: &[Expr], text: Option<&Source>) -> Result<Parsed> {
        let prepared = self.prepared(name, arguments.len())?;
        let Some(source) = prepared.source().cloned() else { return prepared.with_expressions(arguments) };
        Ok(Parsed::of_source(match text.filter(|_| !arguments.is_empty()) {
            Some(text) => {
                let given = self.given(&source, text).await?;
                source.with(given)
            }
            None => source,
        }))
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

/// PREPARE takes what gives or changes rows. EXECUTE is not among it, so no statement can execute
/// itself.
fn check_preparable(statement: &Parsed) -> Result<()> {
    match statement.other() {
        None | Some(Statement::Call(_)) => Ok(()),
        _ => Err(SqlError::new("42601", "PREPARE takes SELECT, INSERT, UPDATE, DELETE, MERGE, VALUES or CALL")),
    }
}

/// A statement that is neither a query nor a change, with expressions in the place of its
/// parameters.
pub(crate) fn with_parameters(statement: &Statement, parameters: &[Expr]) -> Result<Statement> {
    let mut statement = statement.clone();
    let mut unbound = None;
    let _ = visit_expressions_mut(&mut statement, |expr| {
        if let Expr::Value(value) = expr
            && let Value::Placeholder(placeholder) = &value.value
        {
            let number = placeholder.trim_start_matches('$').parse::<usize>().ok();
            match number.and_then(|n| parameters.get(n.checked_sub(1)?)) {
                Some(parameter) => *expr = Expr::Nested(Box::new(parameter.clone())),
                None => unbound = Some(placeholder.clone()),
            }
        }
        ControlFlow::<()>::Continue(())
    });
    match unbound {
        Some(placeholder) => Err(SqlError::new("42P02", format!("there is no parameter {placeholder}"))),
        None => Ok(statement),
    }
}
