//! A server of lineitem, and real workers that read it by `serac-remote`.

use crate::setup::{lineitem, text};
use arrow::array::AsArray;
use arrow::compute::sum;
use arrow::datatypes::Int64Type;
use datafusion::logical_expr::{col, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::{StreamExt, TryStreamExt};
use serac_engine::Table;
use serac_export::flight::{FlightOptions, FlightServer};
use serac_remote::{Remote, RemoteOptions, RemoteScanExec};
use serac_sql::SqlDatabase;
use serac_storage::StorageOptions;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Names of threads, by which their CPU time is found.
pub const SERVER_THREADS: &str = "scale-server";
pub const WORKER_THREADS: &str = "scale-worker";
/// Quantities of lineitem are 1 to 50: the filter leaves those below this.
pub const FILTER_BELOW: i64 = 4;

/// A server in this process, with threads of its own.
pub struct Server {
    pub db: SqlDatabase,
    pub table: Arc<Table>,
    pub address: SocketAddr,
    _runtime: Runtime,
}

impl Server {
    /// Loads lineitem, freezes it and serves it on a free port of loopback.
    pub fn start(sf: f64) -> Result<Self, String> {
        let (db, table) = lineitem(sf, StorageOptions { freeze_after: None, ..StorageOptions::default() })?;
        let (frozen, blocks) = db.database().storage().freeze_table(&table.data, Duration::from_secs(60));
        if frozen < blocks {
            return Err(format!("{frozen} of {blocks} blocks froze"));
        }
        let runtime = Builder::new_multi_thread().thread_name(SERVER_THREADS).enable_all().build().map_err(text)?;
        let address = runtime.block_on(async {
            let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
            let server = FlightServer::bind(db.database().clone(), any_port, FlightOptions::default()).await;
            let server = server.map_err(text)?;
            let address = server.local_address().map_err(text)?;
            tokio::spawn(server.run(std::future::pending()));
            Ok::<_, String>(address)
        })?;
        Ok(Self { db, table, address, _runtime: runtime })
    }
}

/// How workers read a table together.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    pub is_filtered: bool,
    /// Streams that a worker reads at a time.
    pub streams: usize,
    /// Partitions for each of them.
    pub partitions_of_stream: usize,
}

/// A worker: threads and connections of its own, and its part of the partitions.
pub struct Worker {
    runtime: Runtime,
    session: SessionContext,
    scan: RemoteScanExec,
    streams: usize,
}

/// The amount that a worker has read, and a sum that shows whether it is the right data.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Read {
    pub rows: u64,
    pub messages: u64,
    /// The sum of the first column.
    pub sum: i64,
}

impl std::ops::Add for Read {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        let Self { rows, messages, sum } = other;
        Self { rows: self.rows + rows, messages: self.messages + messages, sum: self.sum.wrapping_add(sum) }
    }
}

/// The remote scan at the bottom of a plan.
fn scan_of(plan: &Arc<dyn ExecutionPlan>) -> Option<RemoteScanExec> {
    match plan.downcast_ref::<RemoteScanExec>() {
        Some(scan) => Some(scan.clone()),
        None => plan.children().into_iter().find_map(scan_of),
    }
}

impl Worker {
    /// Worker `number` of `workers`, each of which plans by itself: the table does not change.
    pub fn connect(
        address: SocketAddr,
        table: &str,
        reading: Reading,
        number: usize,
        workers: usize,
    ) -> Result<Self, String> {
        let builder = &mut Builder::new_multi_thread();
        let runtime = builder.worker_threads(reading.streams).thread_name(WORKER_THREADS).enable_all().build();
        let runtime = runtime.map_err(text)?;
        let partitions = workers * reading.streams * reading.partitions_of_stream;
        let session = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(partitions));
        let planned = async {
            let remote = Remote::new(RemoteOptions::new([format!("grpc://{address}")])).map_err(text)?;
            let mut frame = session.read_table(Arc::new(remote.table("public", table).await.map_err(text)?));
            if reading.is_filtered {
                frame = frame.and_then(|frame| frame.filter(col("l_quantity").lt(lit(FILTER_BELOW))));
            }
            let plan = frame.map_err(text)?.create_physical_plan().await.map_err(text)?;
            scan_of(&plan).ok_or_else(|| "the plan has no remote scan".to_owned())
        };
        let scan = runtime.block_on(planned)?.split(workers).swap_remove(number);
        Ok(Self { runtime, session, scan, streams: reading.streams })
    }

    /// Reads its partitions, some at a time.
    pub fn read(&self) -> Result<Read, String> {
        let partitions = 0..self.scan.properties().partitioning.partition_count();
        let read = async |partition: usize| {
            let mut stream = self.scan.execute(partition, self.session.task_ctx()).map_err(text)?;
            let reading = tokio::spawn(async move {
                let mut read = Read::default();
                while let Some(batch) = stream.next().await {
                    let batch = batch.map_err(text)?;
                    let first = sum(batch.column(0).as_primitive::<Int64Type>()).unwrap_or(0);
                    read = read + Read { rows: batch.num_rows() as u64, messages: 1, sum: first };
                }
                Ok::<_, String>(read)
            });
            reading.await.map_err(text)?
        };
        let all = futures::stream::iter(partitions).map(read).buffer_unordered(self.streams);
        self.runtime.block_on(all.try_fold(Read::default(), |one, other| async move { Ok(one + other) }))
    }
}
