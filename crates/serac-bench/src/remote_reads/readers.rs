//! Workers of another machine, in the part of one: they read by `serac-remote` and compute by
//! DataFusion, each query in a snapshot of its own.

use super::freshness::{Clients, Freshness, Progress, Taking};
use crate::affinity::pin_this_thread_to;
use crate::freeze::arrow_size;
use crate::setup::text;
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{Int32Type, Int64Type};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::error::DataFusionError;
use datafusion::functions_aggregate::expr_fn::{count, sum};
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{DataFrame, SessionConfig, SessionContext, col, lit};
use serac_remote::{Remote, RemoteOptions, RemoteScanExec, Snapshot};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout_at;

/// The tables that a query reads, all in one snapshot.
const TABLES: [&str; 4] = ["lineitem", "progress", "pgbench_branches", "pgbench_tellers"];
/// The columns of lineitem that a query reads: groups, and figures that are summed up.
const GROUPS: [&str; 2] = ["l_returnflag", "l_linestatus"];
const FIGURES: [&str; 4] = ["l_quantity", "l_extendedprice", "l_discount", "l_tax"];
/// The pause of a reader that only looks at snapshots.
const PAUSE: Duration = Duration::from_millis(50);
/// A query outside of phases may take this long.
const PATIENCE: Duration = Duration::from_secs(120);

/// The table that does not change, as a query must find it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expected {
    answer: String,
    rows: usize,
    /// Bytes of the read columns, as Arrow.
    bytes: usize,
}

impl Expected {
    pub fn row_bytes(&self) -> f64 {
        self.bytes as f64 / self.rows as f64
    }
}

/// The amount that readers have read, and what they saw.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    /// Whole queries of lineitem.
    pub queries: usize,
    /// Rows of lineitem, also those of queries that the end of the phase has cut.
    pub rows: usize,
    pub freshness: Freshness,
}

impl Reads {
    pub fn add(&mut self, other: Self) {
        self.queries += other.queries;
        self.rows += other.rows;
        self.freshness.add(other.freshness);
    }
}

/// A worker: threads and connections of its own.
pub struct Reader {
    runtime: Runtime,
    queries: Queries,
}

/// Queries of a reader, each in a new snapshot. The reader's threads have clones of it.
#[derive(Clone)]
struct Queries {
    remote: Remote,
    streams: usize,
}

fn scans<'p>(plan: &'p Arc<dyn ExecutionPlan>, found: &mut Vec<&'p RemoteScanExec>) {
    found.extend(plan.downcast_ref::<RemoteScanExec>());
    plan.children().into_iter().for_each(|child| scans(child, found));
}

/// The rows that the scans of a plan have given so far.
fn scanned(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let mut found = Vec::new();
    scans(plan, &mut found);
    found.iter().filter_map(|scan| scan.metrics()?.output_rows()).sum()
}

/// Runs a query. If it is cut, its plan stands in `running`.
async fn answer(
    session: &SessionContext,
    query: DataFrame,
    running: &mut Option<Arc<dyn ExecutionPlan>>,
) -> Result<Vec<RecordBatch>, String> {
    let plan = query.create_physical_plan().await.map_err(text)?;
    *running = Some(plan.clone());
    collect(plan, session.task_ctx()).await.map_err(text)
}

/// A query in the manner of TPC-H's first.
async fn sums(session: &SessionContext) -> Result<DataFrame, DataFusionError> {
    let sums = FIGURES.map(|name| sum(col(name))).into_iter().chain([count(lit(1))]).collect();
    let sorted = GROUPS.map(|name| col(name).sort(true, false)).to_vec();
    session.table("lineitem").await?.aggregate(GROUPS.map(col).to_vec(), sums)?.sort(sorted)
}

/// The clients' rows in a snapshot.
async fn progress(session: &SessionContext) -> Result<Vec<Progress>, String> {
    let query = session.table("progress").await.map_err(text)?;
    let query = query.sort(vec![col("client").sort(true, false)]).map_err(text)?;
    let mut rows = Vec::new();
    for batch in answer(session, query, &mut None).await? {
        let clients = batch.column(0).as_primitive::<Int32Type>();
        let [numbers, micros, moved] = [1, 2, 3].map(|column| batch.column(column).as_primitive::<Int64Type>());
        rows.extend((0..batch.num_rows()).map(|row| Progress {
            client: clients.value(row),
            number: numbers.value(row),
            micros: micros.value(row),
            moved: moved.value(row),
        }));
    }
    Ok(rows)
}

/// The sum of a column.
async fn total(session: &SessionContext, table: &str, column: &str) -> Result<i64, String> {
    let query = session.table(table).await.and_then(|table| table.aggregate(Vec::new(), vec![sum(col(column))]));
    let batches = answer(session, query.map_err(text)?, &mut None).await?;
    let sums = batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().iter().flatten());
    Ok(sums.sum())
}

impl Reader {
    /// A worker on some of the processors, which reads a number of streams at a time.
    pub fn new(address: &str, processors: Range<usize>, streams: usize) -> Result<Self, String> {
        let builder = &mut Builder::new_multi_thread();
        let builder = builder.worker_threads(streams).thread_name("remote-reader").enable_all();
        let runtime = builder.on_thread_start(move || _ = pin_this_thread_to(processors.clone())).build();
        let remote = Remote::new(RemoteOptions::new([format!("grpc://{address}")])).map_err(text)?;
        Ok(Self { runtime: runtime.map_err(text)?, queries: Queries { remote, streams } })
    }

    /// Runs the future on the worker's own threads.
    fn run<T>(&self, future: impl Future<Output = Result<T, String>> + Send + 'static) -> Result<T, String>
    where
        T: Send + 'static,
    {
        self.runtime.block_on(self.runtime.spawn(future)).map_err(text)?
    }

    /// Reads lineitem once, and returns what every query must find.
    pub fn expected(&self) -> Result<Expected, String> {
        let queries = self.queries.clone();
        self.run(async move {
            let expected = timeout_at((Instant::now() + PATIENCE).into(), queries.expected()).await;
            expected.map_err(|_| "the first query takes too long")?
        })
    }

    /// Queries until `end`. Without `expected`, it only looks at the clients' rows, in a new
    /// snapshot after each pause.
    pub fn read(&self, clients: &Arc<Clients>, expected: Option<&Expected>, end: Instant) -> Result<Reads, String> {
        let (queries, clients, expected) = (self.queries.clone(), clients.clone(), expected.cloned());
        self.run(async move {
            let (mut reads, mut running) = (Reads::default(), None);
            while Instant::now() < end {
                let query = queries.query(&clients, expected.as_ref(), &mut reads, &mut running);
                if let Ok(queried) = timeout_at(end.into(), query).await {
                    queried?;
                }
                reads.rows += running.take().as_ref().map_or(0, scanned);
            }
            Ok(reads)
        })
    }

    /// Judges a last snapshot, after the last transaction.
    pub fn last(&self, clients: &Arc<Clients>) -> Result<Freshness, String> {
        let (queries, clients) = (self.queries.clone(), clients.clone());
        self.run(async move {
            let (mut reads, mut running) = (Reads::default(), None);
            let query = queries.query(&clients, None, &mut reads, &mut running);
            let judged = timeout_at((Instant::now() + PATIENCE).into(), query).await;
            judged.map_err(|_| "the last query takes too long")??;
            Ok(reads.freshness)
        })
    }
}

impl Queries {
    /// A session whose tables are those of a snapshot.
    async fn session(&self, snapshot: &Arc<Snapshot>) -> Result<SessionContext, String> {
        let config = SessionConfig::new().with_target_partitions(self.streams);
        let session = SessionContext::new_with_config(config);
        for name in TABLES {
            let table = snapshot.table("public", name).await.map_err(text)?;
            session.register_table(name, Arc::new(table)).map_err(text)?;
        }
        Ok(session)
    }

    async fn expected(&self) -> Result<Expected, String> {
        let snapshot = self.remote.snapshot().await.map_err(text)?;
        let session = self.session(&snapshot).await?;
        let found = answer(&session, sums(&session).await.map_err(text)?, &mut None).await?;
        let read =
            session.table("lineitem").await.and_then(|table| table.select_columns(&[&GROUPS[..], &FIGURES].concat()));
        let batches = answer(&session, read.map_err(text)?, &mut None).await?;
        let sizes = batches.iter().flat_map(RecordBatch::columns).map(arrow_size);
        let (rows, bytes) = (batches.iter().map(RecordBatch::num_rows).sum(), sizes.sum::<Result<_, _>>()?);
        match rows {
            0 => Err("lineitem has no rows".into()),
            _ => Ok(Expected { answer: pretty_format_batches(&found).map_err(text)?.to_string(), rows, bytes }),
        }
    }

    /// A query in a new snapshot: the clients' rows and the balances, which must be of one moment;
    /// then lineitem and the clients' rows again, which must be the same. Without `expected`, it
    /// leaves lineitem out, and rests in its place.
    async fn query(
        &self,
        clients: &Clients,
        expected: Option<&Expected>,
        reads: &mut Reads,
        running: &mut Option<Arc<dyn ExecutionPlan>>,
    ) -> Result<(), String> {
        let (acknowledged, asked) = (clients.acknowledged(), clients.micros());
        let snapshot = self.remote.snapshot().await.map_err(text)?;
        let (taken, begun) = (clients.micros(), clients.begun());
        let session = self.session(&snapshot).await?;
        let rows = progress(&session).await?;
        reads.freshness.judge(&Taking { acknowledged, begun, asked, taken }, &rows);
        let moved: i64 = rows.iter().map(|row| row.moved).sum();
        for (table, column) in [("pgbench_branches", "bbalance"), ("pgbench_tellers", "tbalance")] {
            let balance = total(&session, table, column).await?;
            reads.freshness.same(&format!("amounts moved, and balances in {table}"), &moved, &balance);
        }
        match expected {
            Some(expected) => {
                let found = answer(&session, sums(&session).await.map_err(text)?, running).await?;
                reads.queries += 1;
                let found = pretty_format_batches(&found).map_err(text)?.to_string();
                reads.freshness.same("lineitem", &expected.answer, &found);
            }
            None => tokio::time::sleep(PAUSE).await,
        }
        reads.freshness.same("clients' rows, before and after", &rows, &progress(&session).await?);
        Ok(())
    }
}
