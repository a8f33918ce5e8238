//! A database with the resources of queries, from which sessions are made.

use crate::activity::Connections;
use crate::advisory_locks::AdvisoryLocks;
use crate::channels::Channels;
use crate::error::Result;
use crate::exported_snapshots::ExportedSnapshots;
use crate::foreign::servers::Servers;
use crate::limits::SessionDefaults;
use crate::programs::job::Programs;
use crate::query_runtime::QueryRuntime;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use serac_engine::Database;
use serac_query::scan::Convoys;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::runtime::Handle;

/// The settings of SQL on a database.
#[derive(Clone, Debug, Default)]
pub struct SqlOptions {
    /// Bytes that queries may use before they spill or fail; `None` for no limit.
    pub memory_limit: Option<usize>,
    /// Threads of a query; `None` for all.
    pub threads: Option<usize>,
    /// Defaults of its sessions.
    pub session: SessionDefaults,
    /// The runner of programs beside the data; `None` if they cannot be run.
    pub programs: Option<Arc<dyn Programs>>,
}

/// A database with the resources of queries. Sessions are made from it.
#[derive(Clone, Debug)]
pub struct SqlDatabase {
    pub(crate) database: Database,
    pub(crate) runtime: Arc<RuntimeEnv>,
    pub(crate) query_runtime: Arc<QueryRuntime>,
    pub(crate) threads: usize,
    pub(crate) memory_limit: Option<usize>,
    pub(crate) defaults: SessionDefaults,
    programs: Option<Arc<dyn Programs>>,
    connections: Connections,
    pub(crate) channels: Channels,
    pub(crate) advisory_locks: AdvisoryLocks,
    pub(crate) exported_snapshots: ExportedSnapshots,
    /// Other servers, whose tables are foreign tables here.
    pub(crate) servers: Arc<Servers>,
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
            exported_snapshots: ExportedSnapshots::default(),
            servers: Arc::default(),
            convoys: Arc::default(),
            started: SystemTime::now(),
        })
    }

    /// The engine below.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// The runtime of the threads that run queries. A program without a runtime of its own runs the
    /// futures of its sessions by [`Handle::block_on`].
    pub fn runtime(&self) -> &Handle {
        self.query_runtime.handle()
    }

    /// The connections.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// The runner of programs beside the data.
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
