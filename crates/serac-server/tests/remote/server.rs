//! A database served over Flight on a free port, and sessions of DataFusion that read it.

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::compute::{concat_batches, sort_to_indices, take_record_batch};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::prelude::{DataFrame, SessionConfig, SessionContext};
use serac_engine::{Database, Table};
use serac_export::flight::{FlightOptions, FlightServer};
use serac_remote::{Remote, RemoteOptions, RemoteScanExec, RemoteSummaries, RemoteTable};
use serac_server::{FlightSql, FlightSqlOptions};
use serac_sql::{Session, SqlDatabase, SqlOptions, StatementResult};
use serac_storage::StorageOptions;
use serac_testing::Served;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// A database whose blocks freeze only when a test asks for it.
pub fn database() -> SqlDatabase {
    let options = StorageOptions { freeze_after: None, ..StorageOptions::default() };
    SqlDatabase::new(Database::open_with(options).unwrap(), &SqlOptions::default()).unwrap()
}

pub async fn execute(db: &SqlDatabase, sql: &str) {
    Session::new(db).execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// The rows of a query, as one batch.
pub async fn query(db: &SqlDatabase, sql: &str) -> RecordBatch {
    match Session::new(db).execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")).pop() {
        Some(StatementResult::Rows { schema, batches, .. }) => concat_batches(&schema, &batches).unwrap(),
        other => panic!("{sql} gives {other:?}"),
    }
}

/// Transactions one after the other, each of which moves 3 from a row of the table `here` to one of
/// `there`.
pub struct Transfers {
    rounds: Arc<AtomicI64>,
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Transfers {
    /// Both tables have the rows 0 to `rows`.
    pub fn start(db: &SqlDatabase, rows: i64) -> Self {
        let (rounds, stop) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicBool::new(false)));
        let (db, done, is_over) = (db.clone(), rounds.clone(), stop.clone());
        let task = tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                let round = done.load(Ordering::Relaxed);
                let (from, to) = (round * 3_701 % rows, round * 4_111 % rows);
                let sql = format!(
                    "BEGIN; UPDATE here SET balance = balance - 3 WHERE id = {from};
                     UPDATE there SET balance = balance + 3 WHERE id = {to}; COMMIT"
                );
                execute(&db, &sql).await;
                done.store(round + 1, Ordering::Relaxed);
            }
        });
        Self { rounds, stop, task }
    }

    /// Waits until two more have been committed.
    pub async fn go_on(&self) {
        let before = self.rounds.load(Ordering::Relaxed);
        while self.rounds.load(Ordering::Relaxed) < before + 2 && !self.task.is_finished() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Stops them, and says how many there were.
    pub async fn stop(self) -> i64 {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
        self.rounds.load(Ordering::Relaxed)
    }
}

fn table_of(db: &SqlDatabase, name: &str) -> Arc<Table> {
    db.database().catalog().table("public", name).unwrap().clone()
}

pub fn freeze(db: &SqlDatabase, name: &str) {
    let (frozen, blocks) = db.database().storage().freeze_table(&table_of(db, name).data, Duration::from_secs(20));
    assert_eq!(frozen, blocks, "blocks of {name} that are frozen");
}

/// Snapshots that something holds.
pub fn active(db: &SqlDatabase) -> usize {
    db.database().storage().manager().active_count()
}

/// Waits until nothing holds a snapshot.
pub async fn nothing_is_held(db: &SqlDatabase) {
    serac_testing::until("all snapshots are released", async || active(db) == 0).await;
}

pub async fn serve(db: &SqlDatabase, options: FlightOptions) -> Served {
    let FlightOptions { token, role, stall, .. } = options.clone();
    let sql = FlightSqlOptions { token, role, stall, ..FlightSqlOptions::default() };
    serve_by(bind(db, options).await.with_extension(Arc::new(FlightSql::new(db.clone(), sql))))
}

/// Serves rows alone, as a server does that has no aggregates and first rows.
pub async fn serve_rows(db: &SqlDatabase, options: FlightOptions) -> Served {
    serve_by(bind(db, options).await)
}

async fn bind(db: &SqlDatabase, options: FlightOptions) -> FlightServer {
    FlightServer::bind(db.database().clone(), "127.0.0.1:0".parse().unwrap(), options).await.unwrap()
}

fn serve_by(server: FlightServer) -> Served {
    let address = server.local_address().unwrap();
    Served::start(address, |stop| server.run(stop))
}

/// The address of a server.
pub fn address(served: &Served) -> String {
    format!("grpc://{}", served.address)
}

/// A server, as clients reach it.
pub fn remote(served: &Served) -> Remote {
    Remote::new(RemoteOptions::new([address(served)])).unwrap()
}

/// A session with four partitions.
pub fn session() -> SessionContext {
    SessionContext::new_with_config(SessionConfig::new().with_target_partitions(4))
}

/// A session with four partitions and the rule by which servers compute aggregates and first rows.
pub fn summarizing_session() -> SessionContext {
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(SessionConfig::new().with_target_partitions(4))
        .with_physical_optimizer_rule(Arc::new(RemoteSummaries::default()));
    SessionContext::new_with_state(state.build())
}

/// A session that knows tables of a server.
pub async fn session_of(remote: &Remote, tables: &[&str]) -> SessionContext {
    let ctx = session();
    for table in tables {
        register(&ctx, table, remote.table("public", table).await.unwrap());
    }
    ctx
}

pub fn register(ctx: &SessionContext, name: &str, table: RemoteTable) {
    ctx.register_table(name, Arc::new(table)).unwrap();
}

/// All rows of a frame as one batch, in the order of its first column, which is a BIGINT.
pub async fn rows(frame: DataFrame) -> RecordBatch {
    let schema = Arc::new(frame.schema().as_arrow().clone());
    sorted(&concat_batches(&schema, &frame.collect().await.unwrap()).unwrap())
}

pub fn sorted(batch: &RecordBatch) -> RecordBatch {
    take_record_batch(batch, &sort_to_indices(batch.column(0), None, None).unwrap()).unwrap()
}

/// The first value of a BIGINT column.
pub fn number(batch: &RecordBatch, column: usize) -> i64 {
    batch.column(column).as_primitive::<Int64Type>().value(0)
}

/// The remote scans of a plan, from left to right.
pub fn scans(plan: &Arc<dyn ExecutionPlan>) -> Vec<RemoteScanExec> {
    match plan.downcast_ref::<RemoteScanExec>() {
        Some(scan) => vec![scan.clone()],
        None => plan.children().into_iter().flat_map(scans).collect(),
    }
}

/// A figure of a scan.
pub fn metric(scan: &RemoteScanExec, name: &str) -> usize {
    scan.metrics().unwrap().sum_by_name(name).map_or(0, |value| value.as_usize())
}

pub fn text(plan: &Arc<dyn ExecutionPlan>) -> String {
    displayable(plan.as_ref()).indent(false).to_string()
}

/// The table `every` with `rows` rows in several blocks, some of them frozen. All columns but the
/// first have NULLs.
pub async fn every(db: &SqlDatabase, rows: i64) {
    execute(
        db,
        "CREATE TABLE every (id BIGINT NOT NULL, b BOOLEAN, s SMALLINT, i INTEGER, r REAL, d DOUBLE PRECISION,
         n NUMERIC(12,3), big NUMERIC(30,5), dt DATE, tm TIME, ts TIMESTAMP, tz TIMESTAMPTZ, v VARCHAR(20), x TEXT,
         y BYTEA, u UUID, free NUMERIC, j JSONB, c CHAR(6), t JSON)",
    )
    .await;
    let insert = |from: i64, to: i64| {
        format!(
            "INSERT INTO every SELECT g, CASE WHEN g % 3 > 0 THEN g % 2 = 0 END, CASE WHEN g % 4 > 0 THEN g % 1000 - 500 END,
             CASE WHEN g % 5 > 0 THEN g * -3 END, CASE WHEN g % 6 > 0 THEN g / 7.0 END, CASE WHEN g % 7 > 0 THEN g / 3.0 END,
             CASE WHEN g % 8 > 0 THEN g * 1.001 - 5000 END, CASE WHEN g % 9 > 0 THEN g * 4611686018427.38790 END,
             CASE WHEN g % 10 > 0 THEN DATE '1990-01-01' + CAST(g % 9000 AS INTEGER) END,
             CASE WHEN g % 11 > 0 THEN TIME '00:00:00' + g * INTERVAL '2.003 seconds' END,
             CASE WHEN g % 12 > 0 THEN TIMESTAMP '2000-01-01' - g * INTERVAL '77.000001 seconds' END,
             CASE WHEN g % 13 > 0 THEN TIMESTAMPTZ '2000-01-01Z' + g * INTERVAL '1.000003 seconds' END,
             CASE WHEN g % 14 > 0 THEN 'v' || g END, CASE WHEN g % 15 > 0 THEN 'a text that is long, of row ' || g || ' ü' END,
             CASE WHEN g % 16 > 0 THEN CAST('bytes ' || g AS BYTEA) END,
             CASE WHEN g % 17 > 0 THEN CAST(lpad(CAST(g AS TEXT), 32, '0') AS UUID) END, g / 8.0,
             CAST('{{\"n\": ' || g || '}}' AS JSONB), 'c' || g % 50,
             CAST('{{\"b\": 1,  \"a\": ' || g || '}}' AS JSON)
             FROM generate_series({from}, {to}) AS t (g)"
        )
    };
    let middle = rows * 2 / 3;
    execute(db, &insert(0, middle - 1)).await;
    freeze(db, "every");
    execute(db, &insert(middle, rows - 1)).await;
    execute(db, "DELETE FROM every WHERE id % 100 = 7").await;
}
