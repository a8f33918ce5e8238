//! The snapshot of a query: one for all its tables, renewed while it runs, and released after.

use crate::server::*;
use arrow_flight::{CancelFlightInfoRequest, FlightClient, FlightEndpoint, FlightInfo, Ticket};
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::functions_aggregate::expr_fn::sum;
use datafusion::logical_expr::{JoinType, col};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{DataFrame, SessionContext};
use futures::StreamExt;
use serac_export::flight::FlightOptions;
use serac_remote::RemoteError;
use serac_sql::SqlDatabase;
use serac_testing::Served;
use std::sync::Arc;
use std::time::Duration;

/// Two tables of accounts, over several blocks each.
async fn accounts(db: &SqlDatabase) {
    for table in ["here", "there"] {
        execute(db, &format!("CREATE TABLE {table} (id BIGINT NOT NULL, balance BIGINT NOT NULL, note TEXT)")).await;
        let insert = format!(
            "INSERT INTO {table} SELECT g, 10, 'a note that is not inline ' || g FROM generate_series(0, 49999) AS t (g)"
        );
        execute(db, &insert).await;
    }
    freeze(db, "here");
}

/// The sum of both tables, by a join of all their rows.
async fn total(ctx: &SessionContext) -> DataFrame {
    let there = ctx.table("there").await.unwrap();
    let there = there.select(vec![col("id").alias("other"), col("balance").alias("other_balance")]).unwrap();
    let both = ctx.table("here").await.unwrap().join(there, JoinType::Full, &["id"], &["other"], None).unwrap();
    both.aggregate(vec![], vec![sum(col("balance")), sum(col("other_balance"))]).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_tables_of_a_query_are_of_one_snapshot_beside_writers() {
    let db = database();
    accounts(&db).await;
    let served = serve(&db, FlightOptions::default()).await;
    let ctx = session_of(&remote(&served), &["here", "there"]).await;
    let transfers = Transfers::start(&db, 50_000);
    let mut moved = Vec::new();
    for _ in 0..8 {
        let found = &total(&ctx).await.collect().await.unwrap()[0];
        let (here, there) = (number(found, 0), number(found, 1));
        assert_eq!(here + there, 1_000_000, "{here} and {there}");
        moved.push(there);
        transfers.go_on().await;
    }
    let rounds = transfers.stop().await;
    assert!(rounds > 8 && moved.is_sorted() && moved[0] < moved[7], "{rounds} rounds, {moved:?}");
    // Each query has a snapshot of its own, and all of its scans share it.
    let frames = [total(&ctx).await, total(&ctx).await];
    let plans = futures::future::try_join_all(frames.iter().map(DataFrame::create_physical_plan)).await.unwrap();
    let ids = |plan: &Arc<dyn ExecutionPlan>| -> Vec<u64> {
        scans(plan).iter().flat_map(|scan| scan.snapshots().map(|snapshot| snapshot.id()).collect::<Vec<_>>()).collect()
    };
    let (one, two) = (ids(&plans[0]), ids(&plans[1]));
    assert!(one.len() == 2 && one[0] == one[1] && two[0] == two[1] && one[0] != two[0], "{one:?} {two:?}");
    drop(plans);
    nothing_is_held(&db).await;
}

/// The plan of all rows of `here`.
async fn plan_of_here(ctx: &SessionContext) -> Arc<dyn ExecutionPlan> {
    ctx.table("here").await.unwrap().create_physical_plan().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_is_given_up_releases_its_snapshot() {
    let db = database();
    accounts(&db).await;
    let served = serve(&db, FlightOptions::default()).await;
    let ctx = session_of(&remote(&served), &["here"]).await;
    let plan = plan_of_here(&ctx).await;
    assert_eq!(active(&db), 1);
    let mut stream = plan.execute(0, ctx.task_ctx()).unwrap();
    drop(plan);
    stream.next().await.unwrap().unwrap();
    // The plan has gone, the stream is there.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(active(&db) >= 1);
    drop(stream);
    nothing_is_held(&db).await;
    // A plan that nobody runs, and a frame that is dropped while it runs.
    drop(plan_of_here(&ctx).await);
    nothing_is_held(&db).await;
    let running = tokio::spawn(ctx.table("here").await.unwrap().collect());
    tokio::time::sleep(Duration::from_millis(30)).await;
    running.abort();
    let _ = running.await;
    nothing_is_held(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_renewed_for_as_long_as_a_scan_lives() {
    let db = database();
    accounts(&db).await;
    let lease = Duration::from_millis(600);
    let served = serve(&db, FlightOptions { lease, ..FlightOptions::default() }).await;
    let ctx = session_of(&remote(&served), &["here"]).await;
    let plan = plan_of_here(&ctx).await;
    execute(&db, "UPDATE here SET balance = 0").await;
    let mut balance = 0;
    for partition in 0..plan.properties().partitioning.partition_count() {
        tokio::time::sleep(lease * 2).await;
        let mut stream = plan.execute(partition, ctx.task_ctx()).unwrap();
        while let Some(batch) = stream.next().await {
            balance += batch.unwrap().column(1).as_primitive::<Int64Type>().values().iter().sum::<i64>();
        }
    }
    assert_eq!(balance, 500_000);
    drop(plan);
    nothing_is_held(&db).await;
}

/// Has the server forget a snapshot.
async fn forget(served: &Served, id: u64) {
    let channel = tonic::transport::Channel::from_shared(format!("http://{}", served.address)).unwrap();
    let mut client = FlightClient::new(channel.connect().await.unwrap());
    let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(format!(r#"{{"lease": {id}}}"#)));
    let info = FlightInfo::new().with_endpoint(endpoint);
    client.cancel_flight_info(CancelFlightInfoRequest::new(info)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_snapshot_is_an_error_that_says_what_to_do() {
    let db = database();
    accounts(&db).await;
    let served = serve(&db, FlightOptions::default()).await;
    let ctx = session_of(&remote(&served), &["here"]).await;
    let frame = ctx.table("here").await.unwrap();
    let plan = frame.clone().create_physical_plan().await.unwrap();
    let id = scans(&plan)[0].snapshots().next().unwrap().id();
    let mut begun = plan.execute(0, ctx.task_ctx()).unwrap();
    let mut count = begun.next().await.unwrap().unwrap().num_rows();
    forget(&served, id).await;
    let error = datafusion::physical_plan::collect(plan.clone(), ctx.task_ctx()).await.unwrap_err();
    let Some(RemoteError::LeaseLost { snapshot, .. }) = RemoteError::of(&error) else { panic!("{error:?}") };
    assert_eq!(*snapshot, id);
    let message = error.to_string();
    assert!(message.contains(&format!("snapshot {id}")) && message.contains("run the query again"), "{message}");
    // A stream that has begun has its rows.
    while let Some(batch) = begun.next().await {
        count += batch.unwrap().num_rows();
    }
    assert!(count > 10_000, "{count}");
    drop((plan, begun));
    // The same frame again reads a new snapshot.
    assert_eq!(rows(frame).await.num_rows(), 50_000);
    nothing_is_held(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_a_snapshot_keep_its_state() {
    let db = database();
    execute(&db, "CREATE TABLE t (n BIGINT); INSERT INTO t VALUES (1)").await;
    let served = serve(&db, FlightOptions { max_leases: 1, ..FlightOptions::default() }).await;
    let remote = remote(&served);
    let snapshot = remote.snapshot().await.unwrap();
    let error = remote.snapshot().await.unwrap_err().to_string();
    assert!(error.contains("holds 1 snapshots already"), "{error}");
    execute(&db, "UPDATE t SET n = 2; CREATE TABLE later (n BIGINT)").await;
    let (ctx, table) = (session(), snapshot.table("public", "t").await.unwrap());
    register(&ctx, "t", table);
    let error = snapshot.table("public", "later").await.unwrap_err();
    assert!(error.to_string().contains("relation \"later\" does not exist"), "{error}");
    for _ in 0..2 {
        assert_eq!(number(&rows(ctx.table("t").await.unwrap()).await, 0), 1);
    }
    assert!(!snapshot.is_lost());
    snapshot.release().await;
    assert_eq!(active(&db), 0);
    let error = ctx.table("t").await.unwrap().collect().await.unwrap_err();
    assert!(matches!(RemoteError::of(&error), Some(RemoteError::LeaseLost { .. })), "{error:?}");
    drop((ctx, snapshot));
    let snapshot = remote.snapshot().await.unwrap();
    drop(snapshot);
    nothing_is_held(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_queries_at_once_leave_no_snapshot_behind() {
    let db = database();
    accounts(&db).await;
    let served = serve(&db, FlightOptions::default()).await;
    let remote = remote(&served);
    let mut running = tokio::task::JoinSet::new();
    for query in 0..32 {
        let ctx = session_of(&remote, &["here", "there"]).await;
        running.spawn(async move {
            let frame = total(&ctx).await;
            let work = async {
                let found = &frame.collect().await.unwrap()[0];
                assert_eq!(number(found, 0) + number(found, 1), 1_000_000);
            };
            // Every other one is given up in the middle.
            if query % 2 == 0 {
                work.await;
            } else {
                let _ = tokio::time::timeout(Duration::from_millis(20 * query), work).await;
            }
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
    nothing_is_held(&db).await;
}
