//! Sessions: one per connection. The code that runs their statements is in the modules above this
//! one, as parts of `impl Session`, from `front` on.
//!
//! Every statement runs in a transaction: the one that BEGIN opened, or its own. A statement that
//! fails leaves nothing behind; inside an opened transaction nothing but ROLLBACK (or ROLLBACK TO)
//! is then accepted, as in PostgreSQL. Queries run on DataFusion over the transaction's snapshot;
//! an acknowledged commit is durable at the database's level, and so is everything a result shows.

use crate::advisory_locks::SessionLocks;
use crate::beginning::Beginning;
use crate::channels::Listener;
use crate::copy::streams::CopyStreams;
use crate::database::SqlDatabase;
use crate::exported_snapshots::SessionExports;
use crate::identifiers::{CATALOG, SEARCH_PATH};
use crate::identity::Identity;
use crate::limits::CancelHandle;
use crate::notices::{Notice, Notices, Severity};
use crate::pipeline::pass::Resources;
use crate::pipeline::rules::Rules;
use crate::planner::Functions;
use crate::point::prepared::Prepared;
use crate::point::state::PointState;
use crate::query_runtime::QueryRuntime;
use crate::registry::registry;
use crate::repeated_texts::RepeatedTexts;
use crate::resolver::TransactionCatalog;
use crate::session_env::SessionEnv;
use crate::session_expressions::SessionExpressions;
use crate::setting_values::SessionValues;
use crate::transaction::{Running, TransactionStatus};
use crate::work_memory::WorkMemory;
use datafusion::common::config::ConfigNonZeroUsize;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::prelude::{SessionConfig, SessionContext};
use serac_copy::Format;
use serac_engine::security::Login;
use serac_engine::{Database, DecimalForm, Expressions};
use serac_files::FrameProvider;
use serac_query::scan::{ScanProgress, ScanSharing};
use serac_storage::CommitTicket;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// A connection's state.
pub struct Session {
    pub(crate) shared: Arc<SessionEnv>,
    pub(crate) ctx: SessionContext,
    pub(crate) query_runtime: Arc<QueryRuntime>,
    pub(crate) copy_streams: CopyStreams,
    pub(crate) scan_progress: Arc<ScanProgress>,
    pub(crate) running: Option<Running>,
    /// The commit that must be durable before the error of the last statement is shown.
    pub(crate) error_ticket: Option<CommitTicket>,
    pub(crate) prepared: HashMap<String, Prepared>,
    pub(crate) point: PointState,
    pub(crate) repeated_texts: RepeatedTexts,
    /// Evaluates defaults and checks for the engine.
    pub(crate) expressions: Arc<dyn Expressions>,
    pub(crate) cancel: CancelHandle,
    pub(crate) notices: Notices,
    pub(crate) work_memory: Arc<WorkMemory>,
    /// Bytes of it that were in use when the statement began.
    pub(crate) memory_before: usize,
    /// Whether tasks of an abandoned query may still hold a part of it.
    pub(crate) has_abandoned: bool,
    /// Whether columns of results without a name get PostgreSQL's.
    pub(crate) postgresql_names: bool,
    /// The form in which the next query gives short decimals that are columns of a table.
    pub(crate) next_decimals: DecimalForm,
    /// The login of a connected role.
    pub(crate) login: Option<Login>,
    /// Whether a setting of the query engine's own has been made.
    pub(crate) has_engine_setting: bool,
    /// The session's first state; `None` if it is not needed.
    pub(crate) beginning: Option<Box<Beginning>>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("status", &self.transaction_status()).finish_non_exhaustive()
    }
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
        // The replacements of DataFusion's arithmetic are nullable in its schema.
        options.execution.skip_physical_aggregate_schema_check = true;
        options.execution.time_zone = Some("UTC".into());
        // A file for each batch of rows that wait for their partition. With more in one file, the
        // reader may wait for the next batch in a file whose writer waits for the reader, while the
        // batch is in another (apache/datafusion#24883).
        if let Ok(one) = ConfigNonZeroUsize::try_new(1) {
            options.execution.max_spill_file_size_bytes = one;
        }
        options.optimizer.prefer_existing_sort = false;
        // The rule pushes a LIMIT down to an aggregation past windows, and finds the sort key by a
        // name that a projection gives to another column.
        options.optimizer.enable_topk_aggregation = false;
        if let Some(limit) = db.memory_limit {
            // The memory that sorts reserve for merging must leave most of it for sorting.
            let share = limit / (5 * db.threads.max(1));
            options.execution.sort_spill_reservation_bytes = options.execution.sort_spill_reservation_bytes.min(share);
        }
        let work_memory = Arc::new(WorkMemory::new(db.runtime.memory_pool.clone()));
        let cancel = CancelHandle::default();
        let shared = Arc::new(SessionEnv {
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
            values: SessionValues::new(&db.defaults),
            work_memory: work_memory.clone(),
            client_settings: Default::default(),
            settings: Default::default(),
            client_changes: Default::default(),
            initial_settings: Default::default(),
            time_style: Default::default(),
            changed_settings: Default::default(),
            sequence_values: Default::default(),
            time: Default::default(),
            statement_time: Default::default(),
            cursors: Default::default(),
            prepared_statements: Default::default(),
            advisory_locks: Arc::new(SessionLocks::new(&db.advisory_locks)),
            exports: SessionExports::new(&db.exported_snapshots),
            listener: Listener::new(&db.channels),
            frames: OnceLock::new(),
            lent_functions: Default::default(),
            cancel: cancel.clone(),
            cancels_before: Default::default(),
        });
        config.set_extension(Arc::new(Functions::new(shared.clone(), registry())));
        config.set_extension(shared.scan_sharing.clone());
        let scan_progress = Arc::new(ScanProgress::default());
        config.set_extension(scan_progress.clone());
        let runtime = RuntimeEnv { memory_pool: work_memory.clone(), ..db.runtime.as_ref().clone() };
        let resources = Resources::new(work_memory.clone());
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(Arc::new(runtime))
            // A rule of the optimizer looks for it. All others are with `Functions`.
            .with_aggregate_functions(vec![first_value_udaf()]);
        let state = Rules::new(&resources, &[]).put_into(state).build();
        let ctx = SessionContext::new_with_state(state);
        ctx.register_catalog(CATALOG, Arc::new(TransactionCatalog(shared.clone())));
        let _ = shared.state.set(ctx.state_weak_ref());
        let session = Self {
            expressions: Arc::new(SessionExpressions(shared.clone())),
            shared,
            ctx,
            query_runtime: db.query_runtime.clone(),
            copy_streams: CopyStreams::default(),
            scan_progress,
            running: None,
            error_ticket: None,
            prepared: HashMap::new(),
            point: PointState::default(),
            repeated_texts: RepeatedTexts::default(),
            cancel,
            notices: Notices::default(),
            work_memory,
            memory_before: 0,
            has_abandoned: false,
            postgresql_names: false,
            next_decimals: DecimalForm::default(),
            login: None,
            has_engine_setting: false,
            beginning: None,
        };
        session.shared.set_work_memory(db.defaults.work_mem);
        session
    }

    /// The engine below.
    pub fn database(&self) -> &Database {
        &self.shared.database
    }

    /// Sets the defaults that clients of PostgreSQL rely on: READ COMMITTED, waiting for
    /// transactions in the way at every level, its text format in COPY, and its names of result
    /// columns.
    pub fn as_for_postgresql(&mut self) {
        self.copy_streams.format = Format::Text;
        self.shared.values.set_for_postgresql();
        self.name_columns_as_postgresql();
    }

    /// Gives columns of results that have no name PostgreSQL's, several the same perhaps: `sum`,
    /// `?column?`.
    pub fn name_columns_as_postgresql(&mut self) {
        self.postgresql_names = true;
    }

    /// Lets the next query, where its rows come from a table as they are, give decimals of up to 18
    /// digits in this form. Others come in 128 bits.
    pub fn set_next_decimals(&mut self, form: DecimalForm) {
        self.next_decimals = form;
    }

    /// Lets all transactions of the session only read, from now on. No statement takes that back.
    pub fn only_read(&mut self) {
        self.shared.values.only_read();
    }

    /// Sets, once, the identity of the session.
    pub fn identify(&mut self, identity: Identity) {
        let _ = self.shared.identity.set(identity);
    }

    /// Sets, once, what finds the program's frames for the session's statements.
    pub fn lend_frames(&mut self, provider: Arc<dyn FrameProvider>) {
        let _ = self.shared.frames.set(provider);
    }

    /// Whether a transaction is open.
    pub fn transaction_status(&self) -> TransactionStatus {
        match &self.running {
            Some(running) if running.failed => TransactionStatus::Failed,
            Some(running) if running.is_block() => TransactionStatus::Open,
            _ => TransactionStatus::Idle,
        }
    }

    /// How far the scans of the session's statement are, to be read from any thread.
    pub fn scan_progress(&self) -> Arc<ScanProgress> {
        self.scan_progress.clone()
    }

    /// A handle with which another thread cancels this session's statements.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }
}

impl Session {
    /// The notices of the session's statements.
    pub fn notices(&self) -> Notices {
        self.notices.clone()
    }

    /// Sends a notice, unless `client_min_messages` suppresses it.
    pub(crate) fn say(&self, severity: Severity, sqlstate: &'static str, message: impl Into<String>) {
        let wanted = self.setting("client_min_messages").unwrap_or_default().to_lowercase();
        let unsaid = match wanted.as_str() {
            "warning" => severity == Severity::Notice,
            "error" => true,
            _ => false,
        };
        if !unsaid {
            self.notices.push(Notice { severity, sqlstate, message: message.into() });
        }
    }

    /// Sends the notice that an object to be made exists.
    pub(crate) fn say_exists(&self, sqlstate: &'static str, what: &str) {
        self.say(Severity::Notice, sqlstate, format!("{what} already exists, skipping"));
    }

    /// Sends the notice that an object to be changed or dropped does not exist.
    pub(crate) fn say_missing(&self, what: &str) {
        self.say(Severity::Notice, sqlstate::SUCCESSFUL_COMPLETION, format!("{what} does not exist, skipping"));
    }
}
