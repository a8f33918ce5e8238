//! Aggregates and first rows that servers compute: the answers are those of rows that are sent, and
//! few rows are sent.

use crate::foreign::{here, make_server, plan, refused, run, shown};
use crate::server::*;
use arrow_flight::{FlightClient, FlightDescriptor, Ticket as FlightTicket};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int16Array, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, Int64Type, i256};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::functions_aggregate::expr_fn::{avg, count, max, min, sum};
use datafusion::logical_expr::{Expr, JoinType, col, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{DataFrame, SessionContext};
use futures::TryStreamExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serac_client::flight::{MOST_FUNCTIONS, MOST_KEYS, MOST_TOP_ROWS};
use serac_engine::Database;
use serac_export::flight::FlightOptions;
use serac_remote::RemoteTable;
use serac_sql::{Session, SqlDatabase, SqlOptions};
use serac_testing::Served;
use std::sync::Arc;
use std::time::Duration;
use tonic::Code;
use tonic::transport::Endpoint;

/// Aggregates and first rows that servers compute all of.
const PUSHED: [&str; 23] = [
    "SELECT k, c FROM (VALUES (499), (3), (NULL)) AS few (k) JOIN (SELECT s, count(*) AS c FROM every GROUP BY s) AS g
     ON s = k ORDER BY k",
    "SELECT count(*), sum(id), min(id), max(id) FROM every",
    "SELECT b, count(*), count(s), sum(s), sum(i), sum(id), sum(n), sum(big) FROM every GROUP BY b ORDER BY b",
    "SELECT count(*), max(c) FROM (SELECT b, count(*) AS c FROM every GROUP BY b) AS few",
    "SELECT avg(s), avg(i), avg(id), avg(n), avg(big) FROM every",
    "SELECT min(s), max(i), min(n), max(big), min(dt), max(tm), min(ts), max(tz), min(v), max(x) FROM every",
    "SELECT b, min(v), max(x), max(dt), avg(n) FROM every GROUP BY b ORDER BY b",
    "SELECT b, count(id), count(free), count(j), count(d), count(c) FROM every WHERE s > 400 GROUP BY b ORDER BY b",
    "SELECT b, sum(n) FROM every WHERE dt < DATE '1990-02-01' AND i < 0 GROUP BY b ORDER BY b",
    "SELECT count(DISTINCT b) FROM every",
    "SELECT DISTINCT b FROM every ORDER BY b",
    "SELECT count(*), sum(n), avg(i), max(v) FROM every WHERE id < 0",
    "SELECT b, sum(n) FROM every WHERE id < 0 GROUP BY b",
    "SELECT b, sum(n) FROM every GROUP BY b HAVING count(*) > 10 ORDER BY sum(n) DESC",
    "SELECT sum(s) + 1 AS more, count(*) * 2 FROM every WHERE b",
    "SELECT id, x FROM every ORDER BY tm DESC NULLS LAST, id LIMIT 7",
    "SELECT id, n, big FROM every ORDER BY n NULLS FIRST, big DESC, id LIMIT 300",
    "SELECT v, x, y FROM every ORDER BY v DESC, x, y NULLS FIRST, id LIMIT 20 OFFSET 5",
    "SELECT j, free, c, t, d FROM every ORDER BY id DESC LIMIT 5",
    "SELECT id FROM every WHERE s > 5 ORDER BY u, id LIMIT 9",
    "SELECT id, 'x' AS y FROM every ORDER BY y, b, ts, tz, id LIMIT 30",
    "SELECT id FROM every WHERE id < 0 ORDER BY id LIMIT 4",
    "SELECT count(*) FROM (SELECT id FROM every ORDER BY dt, id LIMIT 13) AS few",
];

/// Statements whose aggregates and first rows are computed here.
const NOT_PUSHED: [&str; 13] = [
    "SELECT id FROM every ORDER BY id LIMIT 0",
    "SELECT sum(d) > 0, avg(r) > 0 FROM every",
    "SELECT c, count(*) FROM every GROUP BY c ORDER BY c",
    "SELECT min(c), max(c) FROM every",
    "SELECT free, count(*) FROM every WHERE id < 50 GROUP BY free ORDER BY free",
    "SELECT sum(free), avg(free) FROM every",
    "SELECT d, count(*) FROM every WHERE id < 50 GROUP BY d ORDER BY d",
    "SELECT count(*) FILTER (WHERE s > 3) FROM every",
    "SELECT sum(s + 1) FROM every",
    "SELECT b, string_agg(v, ',' ORDER BY id) FROM every WHERE id < 40 GROUP BY b ORDER BY b",
    "SELECT count(*) FROM every WHERE v LIKE 'v1%'",
    "SELECT id FROM every ORDER BY c, d, free, id LIMIT 5",
    "SELECT id FROM every ORDER BY s + 1, id LIMIT 5",
];

/// A session whose schema `copy` has the table of a server.
async fn copied(served: &Served, table: &str) -> Session {
    let mut session = here();
    make_server(&mut session, "s", served.address, "").await;
    let import = format!("CREATE SCHEMA copy; IMPORT FOREIGN SCHEMA public LIMIT TO ({table}) FROM SERVER s INTO copy");
    run(&mut session, &import).await;
    session
}

fn is_pushed(plan: &str) -> bool {
    plan.contains("aggregate=[") || plan.contains("top=[")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_those_of_the_server_also_after_changes() {
    let there = database();
    every(&there, 12_000).await;
    let served = serve(&there, FlightOptions::default()).await;
    let mut session = copied(&served, "every").await;
    let mut own = Session::new(&there);
    let there_of = |sql: &str| sql.replace("FROM every", "FROM copy.every");
    for round in 0..2 {
        for (sql, wanted) in PUSHED.map(|sql| (sql, true)).into_iter().chain(NOT_PUSHED.map(|sql| (sql, false))) {
            let plan = plan(&mut session, &there_of(sql)).await;
            assert_eq!(is_pushed(&plan), wanted, "{sql}: {plan}");
            assert_eq!(shown(&mut session, &there_of(sql)).await, shown(&mut own, sql).await, "round {round}: {sql}");
        }
        // Changes in hot and in frozen blocks, and rows without a value.
        run(
            &mut own,
            "UPDATE every SET n = -n, s = 499, v = 'other' WHERE id % 9 = 4; DELETE FROM every WHERE id % 5 = 2;
             UPDATE every SET s = NULL, n = NULL, b = NULL WHERE id % 11 = 3;
             INSERT INTO every (id) SELECT max(id) + g FROM every, generate_series(1, 30) AS t (g) GROUP BY g",
        )
        .await;
    }
    run(&mut session, "SET serac.disabled_passes = 'remote_summaries'").await;
    for sql in PUSHED {
        let plan = plan(&mut session, &there_of(sql)).await;
        assert!(!is_pushed(&plan), "{sql}: {plan}");
        assert_eq!(shown(&mut session, &there_of(sql)).await, shown(&mut own, sql).await, "without the pass: {sql}");
    }
    run(&mut session, "RESET serac.disabled_passes").await;
    run(&mut own, "DELETE FROM every").await;
    for sql in PUSHED {
        assert_eq!(shown(&mut session, &there_of(sql)).await, shown(&mut own, sql).await, "of no rows: {sql}");
    }
    nothing_is_held(&there).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sums_beyond_their_types_are_exact_or_an_error() {
    let there = database();
    execute(
        &there,
        "CREATE TABLE numbers (k INTEGER NOT NULL, a BIGINT, n NUMERIC(19,2), w NUMERIC(38,0), i INTEGER);
         INSERT INTO numbers SELECT g, CASE WHEN g % 2 = 0 THEN 9223372036854775807 ELSE -5 END, 99999999999999999.99,
             CASE WHEN g < 60 THEN 1e37 ELSE -1e37 END, 2147483647 FROM generate_series(0, 119) AS t (g)",
    )
    .await;
    freeze(&there, "numbers");
    execute(&there, "INSERT INTO numbers SELECT k + 120, a, n, w, i FROM numbers").await;
    let served = serve(&there, FlightOptions::default()).await;
    let mut session = copied(&served, "numbers").await;
    let mut own = Session::new(&there);
    for sql in [
        "SELECT sum(a), avg(a), sum(n), avg(n), sum(i), count(*) FROM numbers",
        "SELECT a, sum(a), sum(n), min(w), max(w) FROM numbers GROUP BY a ORDER BY a",
        // The parts do not fit into 38 digits, but their sum does.
        "SELECT sum(w) FROM numbers",
        "SELECT avg(w) FROM numbers",
    ] {
        let there_of = sql.replace("FROM numbers", "FROM copy.numbers");
        let plan = plan(&mut session, &there_of).await;
        assert!(plan.contains("aggregate=["), "{plan}");
        assert_eq!(shown(&mut session, &there_of).await, shown(&mut own, sql).await, "{sql}");
    }
    let sql = "SELECT sum(w) FROM numbers WHERE w > 0";
    let wanted = refused(&mut own, sql).await;
    let error = refused(&mut session, &sql.replace("numbers", "copy.numbers")).await;
    assert_eq!((error.sqlstate, &error.message), (wanted.sqlstate, &wanted.message));
    assert_eq!(error.sqlstate, "22003");
    // DataFusion's sum of a BIGINT is one: it does not become another number.
    let ctx = summarizing_session();
    register(&ctx, "numbers", remote(&served).table("public", "numbers").await.unwrap());
    let frame = ctx.table("numbers").await.unwrap().aggregate(Vec::new(), vec![sum(col("a"))]).unwrap();
    let error = frame.collect().await.unwrap_err().to_string();
    assert!(error.contains("a sum is out of range"), "{error}");
}

/// Three shards of a table, the last one in the session's own database, and the same rows in one
/// table of the first shard.
async fn shards() -> (Vec<SqlDatabase>, Vec<Served>, Session) {
    let columns = "id BIGINT NOT NULL, region TEXT, day DATE, price NUMERIC(12,2), n INTEGER";
    let rows =
        "SELECT g, CASE WHEN g % 8 > 0 THEN 'region ' || g % 5 END, DATE '2026-01-01' + CAST(g % 300 AS INTEGER),
                CASE WHEN g % 6 > 0 THEN g * 1.37 - 900 END, CASE WHEN g % 9 > 0 THEN g % 100 - 50 END
                FROM generate_series(0, 2999) AS t (g)";
    let mut session = here();
    let (mut databases, mut servers) = (Vec::new(), Vec::new());
    for shard in 0..2 {
        let db = database();
        let create = format!(
            "CREATE TABLE sale ({columns}); INSERT INTO sale SELECT * FROM ({rows}) AS all_rows (id) WHERE id % 3 = {shard}"
        );
        execute(&db, &create).await;
        if shard == 0 {
            freeze(&db, "sale");
        }
        let served = serve(&db, FlightOptions::default()).await;
        make_server(&mut session, &format!("s{shard}"), served.address, "").await;
        let foreign = format!(
            "CREATE FOREIGN TABLE sale_{shard} ({columns}, CHECK (id % 3 = {shard})) SERVER s{shard} OPTIONS (table_name 'sale')"
        );
        run(&mut session, &foreign).await;
        databases.push(db);
        servers.push(served);
    }
    let local = format!(
        "CREATE TABLE sale_2 ({columns}); INSERT INTO sale_2 SELECT * FROM ({rows}) AS all_rows (id) WHERE id % 3 = 2;
         CREATE VIEW sale AS SELECT * FROM sale_0 UNION ALL SELECT * FROM sale_1 UNION ALL SELECT * FROM sale_2;
         CREATE TABLE whole ({columns}); INSERT INTO whole {rows}"
    );
    run(&mut session, &local).await;
    (databases, servers, session)
}

fn count_of(plan: &str, part: &str) -> usize {
    plan.matches(part).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_of_a_view_compute_their_parts_beside_local_tables() {
    let (databases, servers, mut session) = shards().await;
    for (sql, scans) in [
        ("SELECT region, count(*), sum(n), avg(price) FROM sale GROUP BY region ORDER BY region", 2),
        ("SELECT count(*), sum(price), min(day), max(id) FROM sale", 2),
        ("SELECT region, max(price) FROM sale WHERE n > 7 AND region <> 'region 1' GROUP BY region ORDER BY region", 2),
        // One shard cannot have such a row.
        ("SELECT region, count(*) FROM sale WHERE id IN (4, 5, 8, 10) GROUP BY region ORDER BY region", 1),
        ("SELECT count(*), sum(n) FROM sale WHERE id = 3", 1),
        ("SELECT count(*), sum(n), min(day) FROM sale WHERE id = 5", 0),
        ("SELECT r, sum(n) FROM (SELECT n, region AS r, id FROM sale) AS other GROUP BY r ORDER BY r", 2),
        ("SELECT * FROM sale ORDER BY price DESC NULLS LAST, id LIMIT 10", 2),
        ("SELECT id FROM sale WHERE day > DATE '2026-05-01' ORDER BY region, n DESC, id LIMIT 25 OFFSET 4", 2),
        ("SELECT id FROM sale WHERE id IN (4, 5, 8, 10) ORDER BY n, id LIMIT 2", 1),
    ] {
        let plan = plan(&mut session, sql).await;
        assert_eq!(count_of(&plan, "aggregate=[") + count_of(&plan, "top=["), scans, "{sql}: {plan}");
        let wanted = shown(&mut session, &sql.replace("FROM sale", "FROM whole")).await;
        assert_eq!(shown(&mut session, sql).await, wanted, "{sql}");
    }
    drop(servers);
    for db in &databases {
        nothing_is_held(db).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_aggregates_over_shards_are_those_of_one_table() {
    let seed = serac_testing::seed();
    let mut random = StdRng::seed_from_u64(seed);
    let (_databases, _servers, mut session) = shards().await;
    let mut pushed = 0;
    let rounds = if serac_testing::stress() { 500 } else { 40 };
    for round in 0..rounds {
        let mut some = |all: &[&'static str], most: usize| -> Vec<&'static str> {
            let count = random.random_range(0..=most);
            all.choose_multiple(&mut random, count).copied().collect()
        };
        let groups = some(&["region", "day", "n", "price"], 2);
        let functions = [
            "count(*)",
            "count(region)",
            "sum(n)",
            "sum(id)",
            "sum(price)",
            "min(day)",
            "max(region)",
            "avg(price)",
            "avg(n)",
            "min(id)",
            "max(n)",
            "count(DISTINCT n)",
        ];
        let functions = some(&functions, 5);
        let filters =
            ["n > 3", "price < 500", "region = 'region 2'", "id % 2 = 0", "id IN (3, 4, 6, 7)", "day IS NULL"];
        let filters = some(&filters, 2);
        let condition = filters.iter().fold("true".to_owned(), |all, filter| format!("{all} AND {filter}"));
        let keys = some(&["region", "day DESC", "n NULLS FIRST", "price DESC NULLS LAST"], 3);
        let limit = random.random_range(1..60);
        let sql = if groups.is_empty() && functions.is_empty() {
            let keys: Vec<_> = keys.into_iter().chain(["id"]).collect();
            format!("SELECT * FROM sale WHERE {condition} ORDER BY {} LIMIT {limit}", keys.join(", "))
        } else {
            let columns: Vec<_> = groups.iter().chain(&functions).copied().collect();
            let (by, order) = match groups.is_empty() {
                true => (String::new(), String::new()),
                false => (format!(" GROUP BY {}", groups.join(", ")), format!(" ORDER BY {}", groups.join(", "))),
            };
            format!("SELECT {} FROM sale WHERE {condition}{by}{order}", columns.join(", "))
        };
        pushed += usize::from(is_pushed(&plan(&mut session, &sql).await));
        let wanted = shown(&mut session, &sql.replace("FROM sale", "FROM whole")).await;
        assert_eq!(shown(&mut session, &sql).await, wanted, "seed {seed}, round {round}: {sql}");
    }
    assert!(pushed > rounds / 4, "seed {seed}: {pushed} of {rounds} are computed by servers");
}

/// The rows of a frame in the order of all columns, its plan, and the rows that servers have sent.
async fn collected(ctx: &SessionContext, frame: DataFrame) -> (RecordBatch, Arc<dyn ExecutionPlan>, usize) {
    let names: Vec<Expr> = frame.schema().columns().into_iter().map(Expr::Column).collect();
    let sorted = frame.sort(names.into_iter().map(|name| name.sort(true, true)).collect()).unwrap();
    let plan = sorted.create_physical_plan().await.unwrap();
    let batches = datafusion::physical_plan::collect(plan.clone(), ctx.task_ctx()).await.unwrap();
    let rows = concat_batches(&plan.schema(), &batches).unwrap();
    let received = scans(&plan).iter().map(|scan| metric(scan, "rows_received")).sum();
    (rows, plan, received)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_send_few_rows_to_datafusion() {
    let (one, two) = (database(), database());
    every(&one, 40_000).await;
    every(&two, 20_000).await;
    let (first, second) = (serve(&one, FlightOptions::default()).await, serve(&two, FlightOptions::default()).await);
    let [pushing, plain] = [summarizing_session(), session()];
    let tables = async || {
        let (one, two) =
            (remote(&first).table("public", "every").await, remote(&second).table("public", "every").await);
        [one.unwrap(), two.unwrap()]
    };
    for ctx in [&pushing, &plain] {
        let [one, two] = tables().await;
        register(ctx, "every", one.clone());
        register(ctx, "both", RemoteTable::of_shards([one, two]).unwrap());
    }
    let functions = || {
        vec![
            count(lit(1)),
            count(col("s")),
            sum(col("i")),
            sum(col("n")),
            sum(col("big")),
            min(col("x")),
            max(col("tz")),
            avg(col("n")),
            avg(col("i")),
        ]
    };
    for table in ["every", "both"] {
        type Query = Box<dyn Fn(DataFrame) -> DataFrame>;
        let queries: Vec<(Query, &str, usize)> = vec![
            (Box::new(move |frame| frame.aggregate(Vec::new(), functions()).unwrap()), "aggregate=[", 1),
            (Box::new(move |frame| frame.aggregate(vec![col("b")], functions()).unwrap()), "aggregate=[b, ", 3),
            (
                Box::new(move |frame| {
                    let few = frame.filter(col("s").gt(lit(200_i16))).unwrap();
                    few.aggregate(vec![col("b")], vec![count(lit(1)), max(col("v"))]).unwrap()
                }),
                "filter=[s > ",
                3,
            ),
            (
                Box::new(|frame| {
                    let by = vec![col("tm").sort(false, false), col("id").sort(true, false)];
                    frame.sort(by).unwrap().limit(0, Some(11)).unwrap()
                }),
                "top=[tm DESC NULLS LAST, id ASC NULLS LAST], rows=11",
                11,
            ),
        ];
        for (query, part, rows) in queries {
            let (found, plan, received) = collected(&pushing, query(pushing.table(table).await.unwrap())).await;
            assert!(text(&plan).contains(part), "{}", text(&plan));
            let partitions: usize = scans(&plan).iter().map(|scan| scan.blocks().count()).sum();
            assert!(partitions > 1 && received <= rows * partitions, "{received} rows of {partitions} partitions");
            let (wanted, plan, all) = collected(&plain, query(plain.table(table).await.unwrap())).await;
            assert!(!is_pushed(&text(&plan)) && all > 5_000, "{all} rows: {}", text(&plan));
            assert_eq!(found.columns(), wanted.columns(), "{part} of {table}");
        }
    }
    // The keys of a join choose groups.
    let keys = RecordBatch::try_from_iter([("k", Arc::new(Int16Array::from(vec![3, 77, -199])) as ArrayRef)]).unwrap();
    let mut answers = Vec::new();
    for ctx in [&pushing, &plain] {
        let groups = ctx.table("every").await.unwrap();
        let groups = groups.aggregate(vec![col("s")], vec![count(lit(1)), sum(col("n"))]).unwrap();
        let few = ctx.read_batch(keys.clone()).unwrap();
        answers.push(collected(ctx, few.join(groups, JoinType::Inner, &["k"], &["s"], None).unwrap()).await);
    }
    let [(found, plan, received), (wanted, ..)] = &answers[..] else { unreachable!() };
    assert!(text(plan).contains("aggregate=[s, ") && text(plan).contains("dynamic=["), "{}", text(plan));
    assert_eq!(found.columns(), wanted.columns());
    assert!(found.num_rows() == 3 && *received <= 3 * 4, "{received} rows");
    drop(answers);
    // As many groups as rows: they are computed here.
    let ids = pushing.table("every").await.unwrap().aggregate(vec![col("id")], vec![count(lit(1))]).unwrap();
    let plan = ids.create_physical_plan().await.unwrap();
    assert!(!is_pushed(&text(&plan)), "{}", text(&plan));
    drop(plan);
    for db in [&one, &two] {
        nothing_is_held(db).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_without_a_value_have_no_average_in_datafusion() {
    let db = database();
    execute(
        &db,
        "CREATE TABLE t (k INTEGER NOT NULL, s SMALLINT, i BIGINT, n NUMERIC(12,2));
         INSERT INTO t SELECT g % 3, v, v, v FROM (SELECT g, CASE WHEN g % 3 = 1 THEN g END AS v
             FROM generate_series(1, 900) AS t (g)) AS numbers",
    )
    .await;
    let served = serve(&db, FlightOptions::default()).await;
    for groups in [vec![], vec![col("k")]] {
        for condition in [lit(true), col("k").eq(lit(2))] {
            let mut answers = Vec::new();
            for ctx in [summarizing_session(), session()] {
                register(&ctx, "t", remote(&served).table("public", "t").await.unwrap());
                let averages = ["s", "i", "n"].map(|column| avg(col(column)));
                let rows = ctx.table("t").await.unwrap().filter(condition.clone()).unwrap();
                answers.push(collected(&ctx, rows.aggregate(groups.clone(), averages.to_vec()).unwrap()).await);
            }
            let [(found, plan, _), (wanted, ..)] = &answers[..] else { unreachable!() };
            assert!(is_pushed(&text(plan)), "{}", text(plan));
            assert_eq!(found.columns(), wanted.columns(), "{groups:?}, {condition}");
            assert!(wanted.columns()[groups.len()].null_count() > 0 || groups.is_empty());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_summaries_sends_rows() {
    let there = database();
    every(&there, 3_000).await;
    let served = serve_rows(&there, FlightOptions::default()).await;
    let mut session = copied(&served, "every").await;
    let mut own = Session::new(&there);
    for sql in PUSHED {
        let there_of = sql.replace("FROM every", "FROM copy.every");
        let plan = plan(&mut session, &there_of).await;
        assert!(!is_pushed(&plan), "{plan}");
        assert_eq!(shown(&mut session, &there_of).await, shown(&mut own, sql).await, "{sql}");
    }
    // It refuses what a client asks for nevertheless.
    let mut client = client(&served).await;
    for request in [
        r#"{"table": "every", "aggregate": {"groups": ["b"]}}"#,
        r#"{"table": "every", "top": {"by": [{"column": "id"}], "rows": 1}}"#,
    ] {
        let info = client.get_flight_info(FlightDescriptor::new_cmd(request)).await;
        assert_eq!(status(info).code(), Code::Unimplemented, "{request}");
        let ticket = format!(
            r#"{{"request": {}, "blocks": {{"start": 0, "end": 1}}}}"#,
            request.replace("{\"table\"", "{\"snapshot\": \"latest\", \"table\"")
        );
        assert_eq!(status(client.do_get(FlightTicket::new(ticket)).await).code(), Code::Unimplemented);
    }
}

async fn client(served: &Served) -> FlightClient {
    let channel = Endpoint::from_shared(format!("http://{}", served.address)).unwrap().connect().await.unwrap();
    FlightClient::new(channel)
}

fn status<T>(outcome: Result<T, arrow_flight::error::FlightError>) -> tonic::Status {
    match outcome {
        Err(arrow_flight::error::FlightError::Tonic(status)) => *status,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is not refused"),
    }
}

/// The rows of all endpoints of a request.
async fn asked(client: &mut FlightClient, request: &str) -> Result<Vec<RecordBatch>, arrow_flight::error::FlightError> {
    let info = client.get_flight_info(FlightDescriptor::new_cmd(request.to_owned())).await?;
    let schema = info.clone().try_decode_schema().unwrap();
    let mut all = Vec::new();
    for endpoint in info.endpoint {
        let stream = client.do_get(endpoint.ticket.unwrap()).await?;
        let batches: Vec<RecordBatch> = stream.try_collect().await?;
        assert!(batches.iter().all(|batch| *batch.schema() == schema), "{request}");
        all.extend(batches);
    }
    Ok(all)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_answered_as_documented_or_refused() {
    let db = database();
    every(&db, 5_000).await;
    let served = serve(&db, FlightOptions::default()).await;
    let mut client = client(&served).await;
    let request = r#"{"table": "every", "endpoints": 1, "filter": [["id", "<", 1000]], "aggregate":
        {"groups": ["b"], "functions": [["count", null], ["sum", "s"], ["sum", "big"], ["min", "v"], ["max", "v"]]}}"#;
    for snapshot in ["held", "latest"] {
        let request = request.replace("\"endpoints\"", &format!("\"snapshot\": \"{snapshot}\", \"endpoints\""));
        let rows = asked(&mut client, &request).await.unwrap();
        let rows = concat_batches(&rows[0].schema(), &rows).unwrap();
        let names: Vec<_> = rows.schema().fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!(names, ["b", "count", "sum(s)", "sum(big)", "min(v)", "max(v)"]);
        let sql = "SELECT b, count(*), sum(s), CAST(sum(big) AS TEXT), min(v), max(v) FROM every WHERE id < 1000 GROUP BY b ORDER BY b NULLS FIRST";
        let wanted = query(&db, sql).await;
        for at in [0, 1, 4, 5] {
            assert_eq!(rows.column(at), wanted.column(at));
        }
        assert_eq!(*rows.column(2).data_type(), DataType::Decimal128(38, 0));
        assert_eq!(*rows.column(3).data_type(), DataType::Decimal256(76, 5));
        for row in 0..rows.num_rows() {
            let sum = wanted.column(2).as_primitive::<Int64Type>().value(row);
            assert_eq!(rows.column(2).as_primitive::<Decimal128Type>().value(row), i128::from(sum));
            let digits = wanted.column(3).as_string_view().value(row).replace('.', "");
            assert_eq!(rows.column(3).as_primitive::<Decimal256Type>().value(row), i256::from_string(&digits).unwrap());
        }
    }
    let top = r#"{"table": "every", "columns": ["id", "s"], "endpoints": 1, "top": {"by": [{"column": "s", "descending": true}], "rows": 5}}"#;
    let rows = asked(&mut client, top).await.unwrap();
    // Equal rows in the order of the table.
    let wanted = query(&db, "SELECT id, s FROM every ORDER BY s DESC NULLS LAST, id LIMIT 5").await;
    assert_eq!(
        pretty_format_batches(&rows).unwrap().to_string(),
        pretty_format_batches(&[wanted]).unwrap().to_string()
    );

    let many = |one: &str, count: usize| vec![one; count].join(", ");
    let aggregate = |groups: &str, functions: &str| {
        format!(r#"{{"table": "every", "aggregate": {{"groups": [{groups}], "functions": [{functions}]}}}}"#)
    };
    let top = |by: &str, rows: u64| format!(r#"{{"table": "every", "top": {{"by": [{by}], "rows": {rows}}}}}"#);
    let with = |request: String, more: &str| request.replace("{\"table\"", &format!("{{{more}, \"table\""));
    for (request, code) in [
        (aggregate(&many("\"b\"", MOST_KEYS + 1), ""), Code::InvalidArgument),
        (aggregate("", &many(r#"["count", null]"#, MOST_FUNCTIONS + 1)), Code::InvalidArgument),
        (aggregate("", ""), Code::InvalidArgument),
        (aggregate("\"gone\"", ""), Code::NotFound),
        (aggregate("", r#"["sum", "gone"]"#), Code::NotFound),
        (aggregate("", r#"["median", "s"]"#), Code::InvalidArgument),
        (aggregate("", r#"["sum", null]"#), Code::InvalidArgument),
        (aggregate("", r#"["sum"]"#), Code::InvalidArgument),
        (aggregate("", r#"["sum", "d"]"#), Code::InvalidArgument),
        (aggregate("", r#"["sum", "free"]"#), Code::InvalidArgument),
        (aggregate("", r#"["min", "c"]"#), Code::InvalidArgument),
        (aggregate("", r#"["max", "j"]"#), Code::InvalidArgument),
        (aggregate("\"r\"", ""), Code::InvalidArgument),
        (aggregate("\"c\"", ""), Code::InvalidArgument),
        (aggregate("\"free\"", ""), Code::InvalidArgument),
        (aggregate("\"t\"", ""), Code::InvalidArgument),
        (with(aggregate("\"b\"", ""), r#""columns": ["b"]"#), Code::InvalidArgument),
        (with(aggregate("\"b\"", ""), r#""limit": 3"#), Code::InvalidArgument),
        (with(aggregate("\"b\"", ""), r#""strings": "utf8""#), Code::InvalidArgument),
        (with(aggregate("\"b\"", ""), r#""decimals": "decimal64""#), Code::InvalidArgument),
        (with(aggregate("\"b\"", ""), r#""top": {"by": [{"column": "b"}], "rows": 1}"#), Code::InvalidArgument),
        (with(aggregate("\"b\"", ""), r#""unknown": 1"#), Code::InvalidArgument),
        (aggregate("\"b\"", "").replace("\"groups\"", "\"having\": 1, \"groups\""), Code::InvalidArgument),
        (top("", 5), Code::InvalidArgument),
        (top(&many(r#"{"column": "b"}"#, MOST_KEYS + 1), 5), Code::InvalidArgument),
        (top(r#"{"column": "b"}"#, MOST_TOP_ROWS + 1), Code::InvalidArgument),
        (top(r#"{"column": "b"}"#, 0), Code::InvalidArgument),
        (top(r#"{"column": "b", "collation": "de"}"#, 5), Code::InvalidArgument),
        (top(r#"{"column": "d"}"#, 5), Code::InvalidArgument),
        (top(r#"{"column": "gone"}"#, 5), Code::InvalidArgument),
        (with(top(r#"{"column": "b"}"#, 5), r#""columns": ["id"]"#), Code::InvalidArgument),
        (with(top(r#"{"column": "b"}"#, 5), r#""dictionaries": ["v"]"#), Code::InvalidArgument),
    ] {
        let outcome = asked(&mut client, &request).await;
        let status = status(outcome);
        assert_eq!(status.code(), code, "{request}: {}", status.message());
    }
    for good in [
        aggregate(&many("\"b\"", 1), &many(r#"["count", null]"#, MOST_FUNCTIONS)),
        top(r#"{"column": "b", "nulls_first": true}"#, 1),
        top(&many(r#"{"column": "b"}"#, MOST_KEYS), MOST_TOP_ROWS),
    ] {
        asked(&mut client, &good).await.unwrap_or_else(|error| panic!("{good}: {error}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_of_summaries_need_privileges() {
    let db = database();
    every(&db, 100).await;
    execute(&db, "CREATE ROLE reader; GRANT SELECT (id, b) ON every TO reader").await;
    let options = FlightOptions { role: Some("reader".into()), ..FlightOptions::default() };
    let served = serve(&db, options).await;
    let mut client = client(&served).await;
    let aggregate = |group: &str, of: &str| {
        format!(r#"{{"table": "every", "aggregate": {{"groups": ["{group}"], "functions": [["max", "{of}"]]}}}}"#)
    };
    asked(&mut client, &aggregate("b", "id")).await.unwrap();
    for (group, of) in [("b", "s"), ("s", "id")] {
        assert_eq!(status(asked(&mut client, &aggregate(group, of)).await).code(), Code::PermissionDenied);
    }
}

/// A database whose queries have little memory.
fn small_database(bytes: usize) -> SqlDatabase {
    let options = SqlOptions { memory_limit: Some(bytes), ..SqlOptions::default() };
    SqlDatabase::new(Database::in_memory().unwrap(), &options).unwrap()
}

async fn many_rows(db: &SqlDatabase, rows: i64) {
    let sql = format!(
        "CREATE TABLE t (id BIGINT NOT NULL, k BIGINT, note TEXT);
         INSERT INTO t SELECT g, g % 7, repeat('a note ' || g, 4) FROM generate_series(1, {rows}) AS t (g)"
    );
    execute(db, &sql).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_of_a_server_is_limited() {
    let db = small_database(6 << 20);
    let whole = database();
    for db in [&db, &whole] {
        many_rows(db, 100_000).await;
    }
    let served = serve(&db, FlightOptions::default()).await;
    let mut client = client(&served).await;
    // Groups that do not fit, and first rows that do not: they spill, or the server says why not.
    let groups = r#"{"table": "t", "snapshot": "latest", "endpoints": 1, "aggregate": {"groups": ["note"], "functions": [["sum", "id"]]}}"#;
    let first =
        r#"{"table": "t", "snapshot": "latest", "endpoints": 1, "top": {"by": [{"column": "note"}], "rows": 90000}}"#;
    for (request, rows) in [(groups, 100_000), (first, 90_000)] {
        match asked(&mut client, request).await {
            Ok(batches) => assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), rows),
            Err(error) => {
                let status = status::<()>(Err(error));
                assert_eq!(status.code(), Code::ResourceExhausted, "{}", status.message());
                assert!(status.message().starts_with("53"), "{}", status.message());
            }
        }
        serac_testing::until("the memory is given back", async || db.query_memory() == 0).await;
    }
    // Few groups fit.
    let mut session = copied(&served, "t").await;
    let sql = "SELECT k, count(*), max(note) FROM t GROUP BY k ORDER BY k";
    let there_of = sql.replace("FROM t", "FROM copy.t");
    assert!(is_pushed(&plan(&mut session, &there_of).await));
    assert_eq!(shown(&mut session, &there_of).await, shown(&mut Session::new(&whole), sql).await);
    nothing_is_held(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_ends_the_work() {
    let db = small_database(512 << 20);
    many_rows(&db, 300_000).await;
    let served = serve(&db, FlightOptions { stall: Duration::from_secs(1), ..FlightOptions::default() }).await;
    let groups = r#"{"table": "t", "snapshot": "latest", "endpoints": 1, "aggregate": {"groups": ["note"], "functions": [["count", null]]}}"#;
    // It goes before there is a row.
    let mut one = client(&served).await;
    let info = one.get_flight_info(FlightDescriptor::new_cmd(groups)).await.unwrap();
    let ticket = info.endpoint[0].ticket.clone().unwrap();
    let mut begun = one.do_get(ticket.clone()).await.unwrap();
    serac_testing::until("the work has begun", async || db.query_memory() > 0).await;
    assert!(tokio::time::timeout(Duration::from_millis(1), begun.try_next()).await.is_err(), "there is a row already");
    drop((begun, one));
    serac_testing::until("the work has ended", async || db.query_memory() == 0 && active(&db) == 0).await;
    // It does not read on.
    let mut other = client(&served).await;
    let mut begun = other.do_get(ticket).await.unwrap();
    begun.try_next().await.unwrap().unwrap();
    serac_testing::until("the work is given up", async || db.query_memory() == 0 && active(&db) == 0).await;
    let error = loop {
        match begun.try_next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a stream that was given up ends as a whole one"),
            Err(error) => break error,
        }
    };
    assert_eq!(status::<()>(Err(error)).code(), Code::DeadlineExceeded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_is_cancelled_ends_the_servers_work() {
    let db = database();
    many_rows(&db, 300_000).await;
    let served = serve(&db, FlightOptions::default()).await;
    let mut session = copied(&served, "t").await;
    run(&mut session, "SET statement_timeout = '40ms'").await;
    let sql = "SELECT max(c) FROM (SELECT note, count(*) AS c FROM copy.t GROUP BY note) AS groups";
    let error = refused(&mut session, sql).await;
    assert_eq!(error.sqlstate, "57014");
    nothing_is_held(&db).await;
    serac_testing::until("the work has ended", async || db.query_memory() == 0).await;
}
