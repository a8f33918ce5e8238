//! What a scan gives, and what of a query the server does.

use crate::server::*;
use datafusion::common::ScalarValue;
use datafusion::common::stats::Precision;
use datafusion::functions_aggregate::expr_fn::{count, sum};
use datafusion::logical_expr::{Expr, JoinType, col, in_list, lit, not};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::prelude::DataFrame;
use serac_export::flight::FlightOptions;

/// A constant of an Arrow type, from its text.
fn constant(text: &str, data_type: datafusion::arrow::datatypes::DataType) -> Expr {
    lit(ScalarValue::try_from_string(text.to_owned(), &data_type).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_filter_that_the_server_tests_gives_the_rows_of_sql() {
    use datafusion::arrow::datatypes::{DataType, TimeUnit};
    let db = database();
    every(&db, 24_000).await;
    let served = serve(&db, FlightOptions::default()).await;
    let remote = remote(&served);
    let ctx = session_of(&remote, &["every"]).await;
    let timestamp = |text: &str| constant(text, DataType::Timestamp(TimeUnit::Microsecond, None));
    let instant = |text: &str| constant(text, DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())));
    let decimal = |text: &str| constant(text, DataType::Decimal128(12, 3));
    let cases: Vec<(Expr, &str)> = vec![
        (col("id").gt_eq(lit(23_990_i64)), "id >= 23990"),
        (lit(20_i64).gt(col("id")), "20 > id"),
        (col("b"), "b"),
        (not(col("b")).and(col("id").lt(lit(500_i64))), "NOT b AND id < 500"),
        (col("s").eq(lit(-123_i16)), "s = -123"),
        (col("s").eq(lit(-123_i64)), "s = -123"),
        (col("i").between(lit(-300_i32), lit(-30_i32)), "i BETWEEN -300 AND -30"),
        (col("i").not_eq(lit(-3_i32)).and(col("id").lt(lit(30_i64))), "i <> -3 AND id < 30"),
        (col("r").gt(lit(3_400_f32)), "r > 3400"),
        (col("d").lt_eq(lit(1.25)), "d <= 1.25"),
        (col("n").lt(decimal("-4990.001")), "n < -4990.001"),
        (
            col("big").gt(constant("110000000000000000.00001", DataType::Decimal128(30, 5))),
            "big > 110000000000000000.00001",
        ),
        (col("dt").eq(constant("1990-03-01", DataType::Date32)), "dt = '1990-03-01'"),
        (col("tm").lt(constant("00:01:00.5", DataType::Time64(TimeUnit::Microsecond))), "tm < '00:01:00.5'"),
        (col("ts").gt(timestamp("1999-12-31T23:00:00.000001")), "ts > '1999-12-31 23:00:00.000001'"),
        (col("tz").lt_eq(instant("2000-01-01T00:01:00.5Z")), "tz <= '2000-01-01 00:01:00.5Z'"),
        (col("v").eq(lit("v17003")), "v = 'v17003'"),
        (col("x").gt(lit("a text that is long, of row 999")), "x > 'a text that is long, of row 999'"),
        (in_list(col("id"), vec![lit(5_i64), lit(23_001_i64), lit(99_999_i64)], false), "id IN (5, 23001, 99999)"),
        (
            in_list(col("v"), ["v1", "v2", "v3", "v4", "v20000"].map(lit).to_vec(), false),
            "v IN ('v1', 'v2', 'v3', 'v4', 'v20000')",
        ),
        (col("y").eq(lit(ScalarValue::BinaryView(Some(b"bytes 77".to_vec())))), "y = 'bytes 77'"),
    ];
    for (filter, sql) in cases {
        let frame = ctx.table("every").await.unwrap().filter(filter).unwrap();
        let plan = frame.clone().create_physical_plan().await.unwrap();
        let shown = text(&plan);
        assert!(!shown.contains("FilterExec") && shown.contains("filter=["), "{sql}: {shown}");
        let found = rows(frame).await;
        let wanted = query(&db, &format!("SELECT * FROM every WHERE {sql} ORDER BY id")).await;
        assert!(wanted.num_rows() > 0, "{sql}");
        assert_eq!(found.columns(), wanted.columns(), "{sql}");
    }
    drop(ctx);
    nothing_is_held(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_cannot_test_stays_with_datafusion() {
    let db = database();
    every(&db, 3_000).await;
    let served = serve(&db, FlightOptions::default()).await;
    let ctx = session_of(&remote(&served), &["every"]).await;
    let cases: Vec<(Expr, &str, &str)> = vec![
        (col("x").like(lit("%row 12_ %")), "x LIKE '%row 12_ %'", ""),
        (col("id").eq(lit(7_i64)).or(col("s").is_null()), "id = 7 OR s IS NULL", ""),
        ((col("id") % lit(10_i64)).eq(lit(3_i64)), "id % 10 = 3", ""),
        // A number that comes as text is compared as text.
        (col("free").eq(lit("2.5000000000000000")), "CAST(free AS TEXT) = '2.5000000000000000'", ""),
        // A part of it goes to the server.
        (col("i").is_null().and(col("id").lt(lit(100_i64))), "i IS NULL AND id < 100", "filter=[id < \"100\"]"),
    ];
    for (filter, sql, pushed) in cases {
        let frame = ctx.table("every").await.unwrap().filter(filter).unwrap();
        let shown = text(&frame.clone().create_physical_plan().await.unwrap());
        assert!(shown.contains("FilterExec") && shown.contains(pushed), "{sql}: {shown}");
        assert_eq!(shown.contains("filter=["), !pushed.is_empty(), "{sql}: {shown}");
        let wanted = query(&db, &format!("SELECT * FROM every WHERE {sql} ORDER BY id")).await;
        assert_eq!(rows(frame).await.columns(), wanted.columns(), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_columns_and_rows_that_a_query_needs_are_sent() {
    let db = database();
    every(&db, 24_000).await;
    let served = serve(&db, FlightOptions::default()).await;
    let ctx = session_of(&remote(&served), &["every"]).await;
    let table = async || ctx.table("every").await.unwrap();
    let run = async |frame: DataFrame| {
        let plan = frame.create_physical_plan().await.unwrap();
        let batches = datafusion::physical_plan::collect(plan.clone(), ctx.task_ctx()).await.unwrap();
        (plan.clone(), scans(&plan), batches)
    };
    // Columns, one of them only in the filter.
    let frame = table().await.filter(col("s").eq(lit(5_i16))).unwrap().select_columns(&["x", "id"]).unwrap();
    let (_, scan, batches) = run(frame).await;
    assert_eq!(scan[0].schema().fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(), ["x", "id"]);
    assert_eq!(scan[0].properties().partitioning.partition_count(), 4);
    let sent = metric(&scan[0], "rows_received");
    assert_eq!(sent, batches.iter().map(|batch| batch.num_rows()).sum::<usize>());
    assert_eq!(sent as i64, number(&query(&db, "SELECT count(*) FROM every WHERE s = 5").await, 0));
    // No columns.
    let frame = table().await.aggregate(vec![], vec![count(lit(1))]).unwrap();
    let (_, scan, batches) = run(frame).await;
    assert_eq!(scan[0].schema().fields().len(), 0);
    assert_eq!(number(&batches[0], 0), 23_760);
    // A limit, of each partition.
    let (plan, scan, batches) = run(table().await.limit(0, Some(10)).unwrap()).await;
    assert!(text(&plan).contains("limit=10"), "{}", text(&plan));
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 10);
    assert!(metric(&scan[0], "rows_received") <= 40);
    let (_, scan, batches) = run(table().await.filter(col("b")).unwrap().limit(3, Some(2)).unwrap()).await;
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 2);
    assert!(metric(&scan[0], "rows_received") <= 20);
    // A filter above a limit is not tested below it.
    let frame = table().await.limit(0, Some(5)).unwrap().filter(col("id").gt(lit(20_000_i64))).unwrap();
    let (plan, _, batches) = run(frame).await;
    assert!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>() <= 5, "{}", text(&plan));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_a_join_are_sent_to_the_server() {
    let db = database();
    every(&db, 24_000).await;
    execute(
        &db,
        "CREATE TABLE few (k BIGINT, w TEXT); INSERT INTO few VALUES (17, 'a'), (900, 'b'), (23001, 'c'), (NULL, 'd')",
    )
    .await;
    execute(
        &db,
        "CREATE TABLE wide (k BIGINT); INSERT INTO wide SELECT 10000 + g * 2 FROM generate_series(1, 1000) AS t (g)",
    )
    .await;
    let served = serve(&db, FlightOptions::default()).await;
    let ctx = session_of(&remote(&served), &["every", "few", "wide"]).await;
    for (small, sql, most) in [
        ("few", "SELECT e.id, e.x, f.k FROM every e JOIN few f ON f.k = e.id ORDER BY e.id", 3),
        // The bounds of the keys go to the server; the rest of the filter is tested here.
        ("wide", "SELECT e.id, e.x, f.k FROM every e JOIN wide f ON f.k = e.id ORDER BY e.id", 2_100),
    ] {
        let large = ctx.table("every").await.unwrap();
        let frame = ctx
            .table(small)
            .await
            .unwrap()
            .join(large, JoinType::Inner, &["k"], &["id"], None)
            .unwrap()
            .select(vec![col("id"), col("x"), col("k")])
            .unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        assert!(text(&plan).contains("dynamic=["), "{}", text(&plan));
        let batches = datafusion::physical_plan::collect(plan.clone(), ctx.task_ctx()).await.unwrap();
        let found = sorted(&datafusion::arrow::compute::concat_batches(&plan.schema(), &batches).unwrap());
        assert_eq!(found.columns(), query(&db, sql).await.columns(), "{small}");
        let scans = scans(&plan);
        let large = scans.iter().find(|scan| scan.schema().field_with_name("id").is_ok()).unwrap();
        let sent = metric(large, "rows_received");
        assert!(sent <= most, "{sent} rows of {small} were sent: {}", text(&plan));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn estimates_come_from_the_server_and_are_called_estimates() {
    let db = database();
    every(&db, 24_000).await;
    let served = serve(&db, FlightOptions::default()).await;
    let ctx = session_of(&remote(&served), &["every"]).await;
    let frame = ctx.table("every").await.unwrap().select_columns(&["id", "s"]).unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    let scan = &scans(&plan)[0];
    let statistics = StatisticsContext::new().compute(scan, &StatisticsArgs::new()).unwrap();
    let Precision::Inexact(all) = statistics.num_rows else { panic!("{:?}", statistics.num_rows) };
    assert!((23_000..25_000).contains(&all), "{all} rows");
    let Precision::Inexact(values) = statistics.column_statistics[1].distinct_count else { panic!("no estimate") };
    assert!((500..2_000).contains(&values), "{values}, and there are 1,000");
    let partitions = 0..scan.properties().partitioning.partition_count();
    let of = |partition| {
        StatisticsContext::new().compute(scan, &StatisticsArgs::new().with_partition(Some(partition))).unwrap()
    };
    let parts = partitions.map(|partition| *of(partition).num_rows.get_value().unwrap());
    assert_eq!(parts.sum::<usize>(), all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_has_changed_since_it_was_registered_says_so() {
    let db = database();
    execute(&db, "CREATE TABLE t (a BIGINT NOT NULL, b TEXT); INSERT INTO t VALUES (1, 'x')").await;
    let served = serve(&db, FlightOptions::default()).await;
    let remote = remote(&served);
    let ctx = session_of(&remote, &["t"]).await;
    let error = |table: &str| {
        let (ctx, table) = (ctx.clone(), table.to_owned());
        async move { ctx.table(&table).await.unwrap().collect().await.unwrap_err() }
    };
    // A new column changes nothing for those that are known.
    execute(&db, "ALTER TABLE t ADD COLUMN c INTEGER").await;
    assert_eq!(ctx.table("t").await.unwrap().collect().await.unwrap()[0].num_columns(), 2);
    execute(&db, "ALTER TABLE t ALTER COLUMN a DROP NOT NULL").await;
    let message = error("t").await.to_string();
    assert!(message.contains("has changed since it was registered") && message.contains("\"a\""), "{message}");
    execute(&db, "ALTER TABLE t DROP COLUMN b").await;
    let message = error("t").await.to_string();
    assert!(message.contains("column \"b\" does not exist"), "{message}");
    execute(&db, "DROP TABLE t").await;
    let message = error("t").await.to_string();
    assert!(message.contains("relation \"t\" does not exist"), "{message}");
    let message = remote.table("public", "t").await.unwrap_err().to_string();
    assert!(message.contains("relation \"t\" does not exist"), "{message}");
    nothing_is_held(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_of_several_servers_are_one_table() {
    let mut servers = Vec::new();
    for shard in 0..3 {
        let db = database();
        execute(&db, "CREATE TABLE t (id BIGINT, note TEXT)").await;
        let insert =
            format!("INSERT INTO t SELECT g * 3 + {shard}, 'row ' || g FROM generate_series(0, 19999) AS t (g)");
        execute(&db, &insert).await;
        let served = serve(&db, FlightOptions::default()).await;
        servers.push((db, served));
    }
    let mut tables = Vec::new();
    for (_, served) in &servers {
        tables.push(remote(served).table("public", "t").await.unwrap());
    }
    let ctx = session();
    register(&ctx, "t", serac_remote::RemoteTable::of_shards(tables.clone()).unwrap());
    let frame = ctx.table("t").await.unwrap().aggregate(vec![], vec![count(lit(1)), sum(col("id"))]).unwrap();
    let plan = frame.clone().create_physical_plan().await.unwrap();
    assert_eq!(scans(&plan)[0].snapshots().count(), 3);
    let found = &frame.collect().await.unwrap()[0];
    assert_eq!((number(found, 0), number(found, 1)), (60_000, (0..60_000).sum()));
    let frame = ctx.table("t").await.unwrap().filter(col("note").eq(lit("row 7"))).unwrap();
    assert_eq!(rows(frame).await.num_rows(), 3);
    // Other columns make no shard.
    execute(&servers[0].0, "CREATE TABLE other (id BIGINT)").await;
    let other = remote(&servers[0].1).table("public", "other").await.unwrap();
    let error = serac_remote::RemoteTable::of_shards([tables[0].clone(), other]).unwrap_err().to_string();
    assert!(error.contains("other columns"), "{error}");
    // Nor do numbers that come as text beside texts.
    execute(&servers[0].0, "CREATE TABLE numbers (id BIGINT, note NUMERIC)").await;
    let numbers = remote(&servers[0].1).table("public", "numbers").await.unwrap();
    let error = serac_remote::RemoteTable::of_shards([tables[0].clone(), numbers]).unwrap_err().to_string();
    assert!(error.contains("PostgreSQL's type 1700"), "{error}");
    assert!(serac_remote::RemoteTable::of_shards([]).is_err());
    drop((ctx, plan));
    for (db, _) in &servers {
        nothing_is_held(db).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_leave_out_shards_that_they_contradict() {
    let mut servers = Vec::new();
    for (shard, region) in ["EU", "US", "APAC"].into_iter().enumerate() {
        let db = database();
        execute(&db, "CREATE TABLE t (id BIGINT, region TEXT)").await;
        let (from, to) = (shard * 10_000, shard * 10_000 + 9_999);
        let insert = format!("INSERT INTO t SELECT g, '{region}' FROM generate_series({from}, {to}) AS t (g)");
        execute(&db, &insert).await;
        let served = serve(&db, FlightOptions::default()).await;
        servers.push((db, served));
    }
    let constraints = [
        col("id").lt(lit(10_000_i64)).and(col("region").eq(lit("EU"))),
        col("id").between(lit(10_000_i64), lit(19_999_i64)).and(in_list(col("region"), vec![lit("US")], false)),
        lit(20_000_i64).lt_eq(col("id")),
    ];
    let mut tables = Vec::new();
    for ((_, served), constraint) in servers.iter().zip(constraints) {
        let table = remote(served).table("public", "t").await.unwrap();
        tables.push(table.with_constraint(constraint).unwrap());
    }
    let ctx = session();
    register(&ctx, "t", serac_remote::RemoteTable::of_shards(tables.clone()).unwrap());
    let cases = [
        (col("id").eq(lit(12_345_i64)), 1, 1),
        (col("id").lt(lit(10_000_i64)), 1, 10_000),
        (col("id").gt_eq(lit(19_999_i64)).and(col("id").lt(lit(20_001_i64))), 2, 2),
        (in_list(col("id"), (0..40).map(|id| lit(id * 500_i64)).collect(), false), 2, 40),
        // The last shard says nothing of regions.
        (col("region").eq(lit("US")), 2, 10_000),
        // A filter that the server does not test chooses shards, too, and is tested here.
        (col("id").eq(lit(5_i64)).or(col("id").gt(lit(29_000_i64))), 2, 1_000),
        (col("id").is_null(), 0, 0),
        (col("id").lt(lit(0_i64)).and(col("region").eq(lit("US"))), 0, 0),
        ((col("id") % lit(10_000_i64)).eq(lit(7_i64)), 3, 3),
    ];
    for (filter, read, wanted) in cases {
        let frame = ctx.table("t").await.unwrap().filter(filter.clone()).unwrap();
        let plan = frame.clone().create_physical_plan().await.unwrap();
        assert_eq!(scans(&plan).iter().flat_map(|scan| scan.snapshots()).count(), read, "{filter}: {}", text(&plan));
        // Servers that the query does not read hold nothing for it.
        assert_eq!(servers.iter().filter(|(db, _)| active(db) > 0).count(), read, "{filter}");
        drop(plan);
        assert_eq!(rows(frame.clone()).await.num_rows(), wanted, "{filter}");
        let counted = frame.aggregate(vec![], vec![count(lit(1))]).unwrap().collect().await.unwrap();
        assert_eq!(number(&counted[0], 0), wanted as i64, "{filter}");
        for (db, _) in &servers {
            nothing_is_held(db).await;
        }
    }
    // Constraints of one table add up.
    let both = tables[2].clone().with_constraint(col("id").lt(lit(25_000_i64))).unwrap();
    register(&ctx, "both", both);
    let above = ctx.table("both").await.unwrap().filter(col("id").gt(lit(26_000_i64))).unwrap();
    assert!(scans(&above.create_physical_plan().await.unwrap()).is_empty());
    let error = tables[0].clone().with_constraint(col("id").gt(col("region"))).unwrap_err().to_string();
    assert!(error.contains("is not a comparison"), "{error}");
    drop(ctx);
    for (db, _) in &servers {
        nothing_is_held(db).await;
    }
}
