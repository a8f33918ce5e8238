//! Remote tables under datafusion-distributed: a coordinator and two workers on this machine, whose
//! leaves are scans of one server.

#[path = "remote/server.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod server;

use async_trait::async_trait;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::functions_aggregate::expr_fn::{count, sum};
use datafusion::logical_expr::{JoinType, col, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{DataFrame, SessionConfig, SessionContext};
use datafusion_distributed::{
    DesiredTaskCountEvent, DesiredTaskCountEventResponse, DistributedExt, DistributedLeafExec, ScaleUpLeafNodeEvent,
    ScaleUpLeafNodeEventResponse, SessionStateBuilderExt, Worker, WorkerQueryContext, WorkerResolver,
    display_plan_ascii,
};
use serac_export::flight::FlightOptions;
use serac_remote::{Remote, RemoteCodec, RemoteError, RemoteOptions, RemoteScanExec};
use server::*;
use std::sync::Arc;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use url::Url;

#[derive(Clone)]
struct Workers(Vec<Url>);

#[async_trait]
impl WorkerResolver for Workers {
    fn get_urls(&self) -> Result<Vec<Url>, DataFusionError> {
        Ok(self.0.clone())
    }
}

/// Runs a worker that reads these servers; returns its address.
async fn worker(codec: RemoteCodec) -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let worker = Worker::from_session_builder(move |context: WorkerQueryContext| {
        let codec = codec.clone();
        async move { Ok(context.builder.with_distributed_user_codec(codec).build()) }
    });
    let server = tonic::transport::Server::builder().add_service(worker.into_worker_server());
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    url
}

/// A scan runs in as many tasks as there are workers.
fn tasks(event: DesiredTaskCountEvent<'_>) -> Option<Result<DesiredTaskCountEventResponse>> {
    event.plan.downcast_ref::<RemoteScanExec>()?;
    Some(Ok(DesiredTaskCountEventResponse::desired(2)))
}

/// Each task reads a part of the scan.
fn parts(event: ScaleUpLeafNodeEvent<'_>) -> Option<Result<ScaleUpLeafNodeEventResponse>> {
    let scan = event.plan.downcast_ref::<RemoteScanExec>()?;
    let parts = scan.split(event.task_count).into_iter().map(|part| Arc::new(part) as Arc<dyn ExecutionPlan>);
    let leaf = DistributedLeafExec::try_new(event.plan.clone(), parts);
    Some(leaf.map(|leaf| ScaleUpLeafNodeEventResponse::new(Arc::new(leaf))))
}

/// A session whose queries run on two workers, and the server as the coordinator sees it. Each
/// process of a cluster has connections of its own.
async fn cluster(address: &str) -> (SessionContext, Remote) {
    let remote = || Remote::new(RemoteOptions::new([address]).named("main").with_partitions(6)).unwrap();
    let mut workers = Vec::new();
    for _ in 0..2 {
        workers.push(worker(RemoteCodec::new([remote()])).await);
    }
    let coordinator = remote();
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(SessionConfig::new().with_target_partitions(3))
        .with_distributed_worker_resolver(Workers(workers))
        .with_distributed_planner()
        .with_distributed_user_codec(RemoteCodec::new([coordinator.clone()]))
        .with_distributed_desired_task_count_handler(tasks)
        .with_distributed_scale_up_leaf_node_handler(parts)
        .build();
    (SessionContext::from(state), coordinator)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_on_workers_give_the_rows_of_sql() {
    let db = database();
    every(&db, 24_000).await;
    execute(&db, "CREATE TABLE few (k BIGINT, w TEXT); INSERT INTO few SELECT g * 10, 'w' || g FROM generate_series(1, 400) AS t (g)")
        .await;
    let served = serve(&db, FlightOptions::default()).await;
    let (ctx, remote) = cluster(&address(&served)).await;
    for table in ["every", "few"] {
        register(&ctx, table, remote.table("public", table).await.unwrap());
    }
    let every = async || ctx.table("every").await.unwrap();
    let groups = every()
        .await
        .aggregate(vec![(col("id") % lit(50_i64)).alias("g")], vec![count(lit(1)), sum(col("i"))])
        .unwrap();
    let filtered = every().await.filter(col("s").gt(lit(450_i16)).and(col("x").like(lit("%1_ %")))).unwrap();
    let few = ctx.table("few").await.unwrap();
    let joined = few.join(every().await, JoinType::Inner, &["k"], &["id"], None).unwrap();
    let joined = joined.filter(col("b")).unwrap().aggregate(vec![col("s")], vec![count(lit(1)).alias("n")]).unwrap();
    let joined = joined.select(vec![(col("s") + lit(0_i64)).alias("s"), col("n")]).unwrap();
    let cases: [(DataFrame, &str); 3] = [
        (groups, "SELECT id % 50 AS g, count(*), sum(i) FROM every GROUP BY 1 ORDER BY 1"),
        (
            filtered.select_columns(&["id", "x"]).unwrap(),
            "SELECT id, x FROM every WHERE s > 450 AND x LIKE '%1_ %' ORDER BY id",
        ),
        (
            joined.filter(col("s").is_not_null()).unwrap(),
            "SELECT CAST(s AS BIGINT), count(*) FROM every JOIN few ON k = id WHERE b AND s IS NOT NULL GROUP BY s ORDER BY s",
        ),
    ];
    for (frame, sql) in cases {
        let plan = frame.clone().create_physical_plan().await.unwrap();
        let shown = display_plan_ascii(plan.as_ref(), false);
        assert!(shown.contains("DistributedExec") && shown.contains("RemoteScanExec"), "{shown}");
        drop(plan);
        assert_eq!(rows(frame).await.columns(), query(&db, sql).await.columns(), "{sql}");
    }
    nothing_is_held(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_workers_read_one_snapshot_beside_writers() {
    let db = database();
    for table in ["here", "there"] {
        execute(&db, &format!("CREATE TABLE {table} (id BIGINT NOT NULL, balance BIGINT NOT NULL)")).await;
        execute(&db, &format!("INSERT INTO {table} SELECT g, 10 FROM generate_series(0, 199999) AS t (g)")).await;
    }
    let served = serve(&db, FlightOptions::default()).await;
    let (ctx, remote) = cluster(&address(&served)).await;
    for table in ["here", "there"] {
        register(&ctx, table, remote.table("public", table).await.unwrap());
    }
    let transfers = Transfers::start(&db, 200_000);
    let mut moved = Vec::new();
    for _ in 0..6 {
        let there = ctx.table("there").await.unwrap();
        let there = there.select(vec![col("id").alias("other"), col("balance").alias("other_balance")]).unwrap();
        let both = ctx.table("here").await.unwrap().join(there, JoinType::Inner, &["id"], &["other"], None).unwrap();
        let total = both.aggregate(vec![], vec![sum(col("balance")), sum(col("other_balance"))]).unwrap();
        let found = &total.collect().await.unwrap()[0];
        assert_eq!(number(found, 0) + number(found, 1), 4_000_000);
        moved.push(number(found, 1));
        transfers.go_on().await;
    }
    let rounds = transfers.stop().await;
    assert!(rounds > 6 && moved.is_sorted() && moved[0] < moved[5], "{rounds} rounds, {moved:?}");
    nothing_is_held(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_snapshot_is_told_to_the_coordinator() {
    let db = database();
    every(&db, 24_000).await;
    let served = serve(&db, FlightOptions::default()).await;
    let (ctx, remote) = cluster(&address(&served)).await;
    let snapshot = remote.snapshot().await.unwrap();
    register(&ctx, "every", snapshot.table("public", "every").await.unwrap());
    let frame = async || {
        let groups = vec![(col("id") % lit(5_i64)).alias("g")];
        ctx.table("every").await.unwrap().aggregate(groups, vec![count(lit(1))]).unwrap()
    };
    assert_eq!(rows(frame().await).await.num_rows(), 5);
    let plan = frame().await.create_physical_plan().await.unwrap();
    snapshot.release().await;
    let error = datafusion::physical_plan::collect(plan, ctx.task_ctx()).await.unwrap_err();
    // The error of a worker comes as text.
    let message = error.to_string();
    assert!(RemoteError::of(&error).is_some() || message.contains("run the query again"), "{message}");
    nothing_is_held(&db).await;
}
