//! Plans as bytes: they give the same rows in another session, name no address and no secret, and
//! bytes that are no plan are refused.

use crate::server::*;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use datafusion::functions_aggregate::expr_fn::{avg, count, max, sum};
use datafusion::logical_expr::{JoinType, col, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use datafusion_proto::bytes::{
    logical_plan_from_bytes_with_extension_codec, logical_plan_to_bytes_with_extension_codec,
    physical_plan_from_bytes_with_extension_codec, physical_plan_from_bytes_with_proto_converter,
    physical_plan_to_bytes_with_extension_codec, physical_plan_to_bytes_with_proto_converter,
};
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use datafusion_proto::physical_plan::{
    DeduplicatingProtoConverter, DefaultPhysicalProtoConverter, PhysicalExtensionCodec,
};
use futures::StreamExt;
use rand::{Rng, RngCore};
use serac_export::flight::{FlightOptions, Token};
use serac_remote::{Remote, RemoteCodec, RemoteError, RemoteOptions};
use std::sync::Arc;
use std::time::Duration;

async fn run(plan: &Arc<dyn ExecutionPlan>, ctx: &SessionContext) -> Result<RecordBatch> {
    let batches = datafusion::physical_plan::collect(plan.clone(), ctx.task_ctx()).await?;
    Ok(sorted(&concat_batches(&plan.schema(), &batches)?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_gives_the_same_rows_in_another_session() {
    let db = database();
    every(&db, 24_000).await;
    execute(&db, "CREATE TABLE few (k BIGINT); INSERT INTO few VALUES (17), (900), (23001)").await;
    let token = Some(Token::new("a-secret").unwrap());
    let served = serve(&db, FlightOptions { token, ..FlightOptions::default() }).await;
    let server =
        |address: String| Remote::new(RemoteOptions::new([address]).named("main").with_token("a-secret")).unwrap();
    let here = server(address(&served));
    let ctx = summarizing_session();
    for table in ["every", "few"] {
        register(&ctx, table, here.table("public", table).await.unwrap());
    }
    let every = async || ctx.table("every").await.unwrap();
    let few = ctx.table("few").await.unwrap();
    let frames = [
        every().await.filter(col("s").gt(lit(450_i16)).and(col("x").like(lit("%1_ %")))).unwrap(),
        every().await.aggregate(vec![col("id") % lit(7_i64)], vec![count(lit(1)), sum(col("i"))]).unwrap(),
        few.join(every().await, JoinType::Inner, &["k"], &["id"], None).unwrap(),
        every()
            .await
            .filter(col("b"))
            .unwrap()
            .sort(vec![col("id").sort(false, false)])
            .unwrap()
            .limit(0, Some(9))
            .unwrap(),
        every()
            .await
            .aggregate(vec![col("s")], vec![count(lit(1)), sum(col("i")), avg(col("n")), max(col("x"))])
            .unwrap(),
    ];
    // A worker reaches the server by another address.
    let there = server(format!("http://localhost:{}", served.address.port()));
    let codecs = [RemoteCodec::new([here.clone()]), RemoteCodec::new([there])];
    for frame in frames {
        let plan = frame.create_physical_plan().await.unwrap();
        let bytes = physical_plan_to_bytes_with_extension_codec(plan.clone(), &codecs[0]).unwrap();
        let written = String::from_utf8_lossy(&bytes);
        assert!(!written.contains("a-secret") && !written.contains("127.0.0.1"), "{written}");
        // What is written after the plan was made is not in its snapshot.
        execute(&db, "UPDATE every SET i = i + 1, s = 499 WHERE id = 100; DELETE FROM every WHERE id = 17").await;
        execute(&db, "INSERT INTO every (id, b) SELECT max(id) + 1, true FROM every").await;
        let (shown, wanted) = (text(&plan), run(&plan, &ctx).await.unwrap());
        for codec in &codecs {
            let other = session();
            let read = physical_plan_from_bytes_with_extension_codec(&bytes, &other.task_ctx(), codec).unwrap();
            assert_eq!(text(&read), shown);
            assert_eq!(run(&read, &other).await.unwrap(), wanted);
        }
        // The plan that was made first holds the snapshot; what comes later does not.
        drop(plan);
        nothing_is_held(&db).await;
        let other = session();
        let read = physical_plan_from_bytes_with_extension_codec(&bytes, &other.task_ctx(), &codecs[1]).unwrap();
        let error = run(&read, &other).await.unwrap_err();
        assert!(matches!(RemoteError::of(&error), Some(RemoteError::LeaseLost { .. })), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_a_join_reach_the_server_from_a_plan_that_travelled() {
    let db = database();
    every(&db, 24_000).await;
    execute(&db, "CREATE TABLE few (k BIGINT); INSERT INTO few VALUES (17), (900), (23001)").await;
    let served = serve(&db, FlightOptions::default()).await;
    let remote = remote(&served);
    let ctx = session_of(&remote, &["every", "few"]).await;
    let (few, every) = (ctx.table("few").await.unwrap(), ctx.table("every").await.unwrap());
    let frame = few.join(every, JoinType::Inner, &["k"], &["id"], None).unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    // This converter keeps the filter of the join and that of the scan together.
    let (codec, converter) = (RemoteCodec::new([remote]), DeduplicatingProtoConverter {});
    let bytes = physical_plan_to_bytes_with_proto_converter(plan.clone(), &codec, &converter).unwrap();
    let other = session();
    let read = physical_plan_from_bytes_with_proto_converter(&bytes, &other.task_ctx(), &codec, &converter).unwrap();
    assert_eq!(run(&read, &other).await.unwrap().num_rows(), 3);
    let scan = scans(&read).into_iter().find(|scan| scan.schema().fields().len() > 1).unwrap();
    assert_eq!(metric(&scan, "rows_received"), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_logical_plan_travels_too() {
    let db = database();
    every(&db, 3_000).await;
    let served = serve(&db, FlightOptions::default()).await;
    let remote = remote(&served);
    let (ctx, codec) = (session_of(&remote, &["every"]).await, RemoteCodec::new([remote.clone()]));
    let pinned = remote.snapshot().await.unwrap();
    register(&ctx, "pinned", pinned.table("public", "every").await.unwrap());
    execute(&db, "DELETE FROM every WHERE id >= 1000").await;
    // Rows that do not fulfil a constraint may be left out: so one sees that it has travelled.
    let bounded = remote.table("public", "every").await.unwrap().with_constraint(col("id").lt(lit(0_i64))).unwrap();
    register(&ctx, "bounded", bounded);
    for (name, most) in [("every", 990), ("pinned", 2_970), ("bounded", 0)] {
        let frame = ctx.table(name).await.unwrap().filter(col("id").gt_eq(lit(0_i64))).unwrap();
        let bytes = logical_plan_to_bytes_with_extension_codec(frame.logical_plan(), &codec).unwrap();
        let other = session();
        let read = logical_plan_from_bytes_with_extension_codec(&bytes, &other.task_ctx(), &codec).unwrap();
        let found = rows(other.execute_logical_plan(read).await.unwrap()).await;
        assert_eq!(found, rows(frame).await);
        assert_eq!(found.num_rows(), most);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_no_plan_are_refused() {
    let db = database();
    every(&db, 3_000).await;
    let served = serve(&db, FlightOptions::default()).await;
    let remote = remote(&served);
    let ctx = session_of(&remote, &["every"]).await;
    let servers = RemoteCodec::new([remote.clone()]);
    let codec: &dyn PhysicalExtensionCodec = &servers;
    let plan = ctx.table("every").await.unwrap().filter(col("s").gt(lit(1_i16))).unwrap();
    let plan = plan.create_physical_plan().await.unwrap();
    let scan: Arc<dyn ExecutionPlan> = Arc::new(scans(&plan).remove(0));
    let mut bytes = Vec::new();
    let converter = DefaultPhysicalProtoConverter {};
    codec.try_encode(scan.clone(), &mut bytes, &converter).unwrap();
    let decode = |bytes: &[u8], codec: &dyn PhysicalExtensionCodec| {
        codec.try_decode(bytes, &[], &ctx.task_ctx(), &converter).map_err(|error| error.to_string())
    };
    assert_eq!(text(&decode(&bytes, codec).unwrap()), text(&scan));
    // A server that the codec was not given.
    let stranger = RemoteCodec::new([Remote::new(RemoteOptions::new(["grpc://127.0.0.1:1"])).unwrap()]);
    let error = decode(&bytes, &stranger).unwrap_err();
    assert!(error.contains(remote.name()) && error.contains("does not know"), "{error}");
    assert!(codec.try_decode(&bytes, std::slice::from_ref(&scan), &ctx.task_ctx(), &converter).is_err());
    // Cut, changed and made up.
    let mut rng = serac_testing::rng();
    for length in 0..bytes.len() {
        // A prefix of a message may be one: it is shorter by whole fields.
        let _ = decode(&bytes[..length], codec);
    }
    assert!(decode(&bytes[..20], codec).is_err() && decode(&[], codec).is_err());
    let mut refused = 0;
    for _ in 0..20_000 {
        let mut changed = bytes.clone();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..changed.len());
            changed[at] = rng.random();
        }
        refused += usize::from(decode(&changed, codec).is_err());
        let mut random = vec![0; rng.random_range(0..200)];
        rng.fill_bytes(&mut random);
        let with_head = [&bytes[..13], &random].concat();
        let _ = decode(&with_head, codec);
        assert!(decode(&random, codec).is_err());
    }
    assert!(refused > 5_000, "{refused}");
    // Plans that can be read and name nonsense: errors, not panics.
    let other = session();
    for _ in 0..200 {
        let mut changed = bytes.clone();
        let at = rng.random_range(13..changed.len());
        changed[at] = rng.random();
        if let Ok(plan) = decode(&changed, codec) {
            tokio::time::timeout(Duration::from_secs(20), async {
                let partitions = plan.properties().partitioning.partition_count().min(8);
                for partition in 0..partitions {
                    if let Ok(mut stream) = plan.execute(partition, other.task_ctx()) {
                        while let Some(Ok(_)) = stream.next().await {}
                    }
                }
            })
            .await
            .expect("it ends");
        }
    }
    // Other nodes and tables are others' work.
    let empty: Arc<dyn ExecutionPlan> = Arc::new(datafusion::physical_plan::empty::EmptyExec::new(plan.schema()));
    assert!(codec.try_encode(empty, &mut Vec::new(), &converter).is_err());
    let codec: &dyn LogicalExtensionCodec = &servers;
    let view: Arc<dyn TableProvider> = Arc::new(datafusion::datasource::empty::EmptyTable::new(plan.schema()));
    assert!(codec.try_encode_table_provider(&"every".into(), view, &mut Vec::new()).is_err());
    let table = codec.try_decode_table_provider(&bytes[..13], &"t".into(), plan.schema(), &ctx.task_ctx());
    assert!(table.is_err());
}
