//! The parts of a session that DataFusion reaches back to.

use crate::advisory_locks::SessionLocks;
use crate::channels::Listener;
use crate::cursors::Cursors;
use crate::database::SqlDatabase;
use crate::error::SqlError;
use crate::exported_snapshots::SessionExports;
use crate::identifiers::CATALOG;
use crate::identity::Identity;
use crate::lent::CheckedFunction;
use crate::limits::{CancelHandle, cancelled};
use crate::sequence_values::SequenceValues;
use crate::session_roles::SessionRoles;
use crate::setting_values::{ChangedSettings, SessionValues};
use crate::statement_snapshot::StatementSnapshot;
use crate::work_memory::WorkMemory;
use datafusion::arrow::datatypes::TimestampMicrosecondType;
use datafusion::arrow::temporal_conversions::as_datetime;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use parking_lot::{Mutex, RwLock};
use serac_engine::Database;
use serac_engine::security::{Access, Object, RoleId};
use serac_files::FrameProvider;
use serac_functions::StyledFunctions;
use serac_pg::TypeId;
use serac_query::scan::ScanSharing;
use serac_values::TimeStyle;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::SystemTime;

/// A value of [`SessionEnv::statement_time`]: few statements need the time when they began.
pub(crate) const NOT_ASKED: i64 = i64::MIN;

/// A statement that PREPARE has made, as others see it.
#[derive(Debug)]
pub(crate) struct PreparedStatement {
    /// The text of PREPARE, or that which the client has sent.
    pub(crate) statement: String,
    /// Whether PREPARE has made it, and not the protocol.
    pub(crate) is_of_sql: bool,
    pub(crate) made: SystemTime,
    pub(crate) parameters: Vec<TypeId>,
}

/// The parts of a session that DataFusion reaches back to.
pub(crate) struct SessionEnv {
    pub(crate) database: Database,
    pub(crate) view: RwLock<Option<StatementSnapshot>>,
    /// The session's temporary tables, once it has had one.
    pub(crate) temporary_database: OnceLock<Database>,
    pub(crate) state: OnceLock<Weak<RwLock<SessionState>>>,
    /// Whether queries may use bitmap indexes.
    pub(crate) bitmap_indexes: AtomicBool,
    /// The optional passes of the pipeline that do not work.
    pub(crate) disabled_passes: RwLock<Vec<&'static str>>,
    /// Whether its scans go with those of others, and with which.
    pub(crate) scan_sharing: Arc<ScanSharing>,
    /// The session's identity, if it was set.
    pub(crate) identity: OnceLock<Identity>,
    /// The roles as which the session acts.
    pub(crate) roles: RwLock<SessionRoles>,
    /// The database with the resources of queries.
    pub(crate) sql: SqlDatabase,
    /// The settings that only the session reads.
    pub(crate) values: SessionValues,
    /// The memory of the session's queries.
    pub(crate) work_memory: Arc<WorkMemory>,
    /// Settings of clients of PostgreSQL, and settings that users define.
    pub(crate) client_settings: RwLock<HashMap<String, String>>,
    /// Their values when the client had connected.
    pub(crate) initial_settings: RwLock<HashMap<String, String>>,
    /// Changes with every setting that plans depend on.
    pub(crate) settings: AtomicU64,
    /// The settings of times; `None` for the defaults.
    pub(crate) time_style: RwLock<Option<Arc<TimeStyle>>>,
    /// Changes with every setting of clients.
    pub(crate) client_changes: AtomicU64,
    /// The settings that the running transaction has changed.
    pub(crate) changed_settings: ChangedSettings,
    /// Values that this session got from sequences.
    pub(crate) sequence_values: RwLock<SequenceValues>,
    /// The value of `now()` in the running transaction, in microseconds since 1970; zero until it
    /// is read.
    pub(crate) time: AtomicI64,
    /// The value of `statement_timestamp()`, in microseconds since 1970; zero if it equals `now()`,
    /// [`NOT_ASKED`] if the clock must be read.
    pub(crate) statement_time: AtomicI64,
    /// The session's cursors.
    pub(crate) cursors: Mutex<Cursors>,
    /// The rows of `pg_prepared_statements`: the statements that have a name.
    pub(crate) prepared_statements: Mutex<BTreeMap<String, PreparedStatement>>,
    /// Its advisory locks.
    pub(crate) advisory_locks: Arc<SessionLocks>,
    /// The snapshots that its transaction has exported.
    pub(crate) exports: SessionExports,
    /// The channels to which the session listens.
    pub(crate) listener: Listener,
    /// Finds the frames that the program lends, if it lends any.
    pub(crate) frames: OnceLock<Arc<dyn FrameProvider>>,
    /// The functions that the program lends, by name.
    pub(crate) lent_functions: RwLock<HashMap<String, Arc<CheckedFunction>>>,
    /// Cancels its statements, from any thread.
    pub(crate) cancel: CancelHandle,
    /// How often it had been cancelled when the running statement began.
    pub(crate) cancels_before: AtomicU64,
}

impl fmt::Debug for SessionEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl SessionEnv {
    pub(crate) fn view(&self) -> Option<StatementSnapshot> {
        self.view.read().clone()
    }

    /// Whether a name is that of the session's database: the one by which the client has asked for
    /// it, or the one that all databases have.
    pub(crate) fn is_own_database(&self, name: &str) -> bool {
        name == CATALOG || self.identity.get().is_some_and(|identity| identity.database == name)
    }

    /// Notes that a statement begins.
    pub(crate) fn statement_begins(&self) {
        self.cancels_before.store(self.cancel.count(), Ordering::Relaxed);
    }

    /// For code of the program that computes for long: whether the statement still runs.
    ///
    /// # Errors
    /// 57014.
    pub(crate) fn check_running(&self) -> Result<(), SqlError> {
        // Relaxed: as in `CancelHandle`. A statement that has ended has no snapshot.
        let is_cancelled = self.cancel.count() != self.cancels_before.load(Ordering::Relaxed);
        if is_cancelled || self.view.read().is_none() { Err(cancelled()) } else { Ok(()) }
    }

    /// The functions for the settings of times; `None` for the default settings.
    pub(crate) fn styled_functions(&self) -> Option<StyledFunctions> {
        self.time_style.read().clone().map(StyledFunctions)
    }

    /// The value of `now()`: one time for a transaction, in microseconds since 1970.
    pub(crate) fn time(&self) -> i64 {
        // Relaxed: the session's own statements change it.
        let known = self.time.load(Ordering::Relaxed);
        if known != 0 { known } else { self.start_time() }
    }

    /// When the running statement began, in microseconds since 1970: `now()` unless it is one of
    /// several in a transaction.
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

    /// Makes the present the value of `now()`.
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

    /// The privileges of the current user, or, while the query of a view is planned, of the view's
    /// owner.
    pub(crate) fn access(&self, view: &StatementSnapshot) -> Access {
        match owner_planned_for() {
            Some(owner) => view.access.of(owner),
            None => view.access.clone(),
        }
    }
}

thread_local! {
    /// The views whose queries this thread is planning, each inside the one before, with their
    /// owners. Planning stays on its thread: an abandoned planner and its session's next one do not
    /// share this.
    static PLANNED_VIEWS: RefCell<Vec<(Object, RoleId)>> = const { RefCell::new(Vec::new()) };
}

/// Views in views in views.
pub(crate) const MAX_VIEWS: usize = 100;

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
                return Err(SqlError::new(sqlstate::INVALID_OBJECT_DEFINITION, message).named(name));
            }
            if views.len() >= MAX_VIEWS {
                return Err(SqlError::new(sqlstate::STATEMENT_TOO_COMPLEX, "views are nested too deeply"));
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

/// The views that a thread was planning before work of others, which it goes on with afterwards.
struct Before(Vec<(Object, RoleId)>);

impl Drop for Before {
    fn drop(&mut self) {
        PLANNED_VIEWS.set(std::mem::take(&mut self.0));
    }
}

/// Plans for a view's owner, as [`PlannedFor`], work that may wait. Other work that the thread does
/// meanwhile is not done for that owner, as that of another part of the same plan.
///
/// # Errors
/// Those of the view, and of the work.
pub(crate) async fn planned_for<T>(
    view: &Object,
    owner: RoleId,
    work: impl Future<Output = Result<T, SqlError>>,
) -> Result<T, SqlError> {
    let views = {
        let _within = PlannedFor::new(view, owner)?;
        PLANNED_VIEWS.with_borrow(Clone::clone)
    };
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|context| {
        let _before = Before(PLANNED_VIEWS.replace(views.clone()));
        work.as_mut().poll(context)
    })
    .await
}
