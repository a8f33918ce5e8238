//! Foreign tables: tables of other servers inside SQL, and views over shards.

use crate::server::*;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{FlightData, FlightDescriptor, FlightEndpoint, FlightInfo};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Int64Array, RecordBatch, StringViewArray};
use datafusion::arrow::compute::{cast, concat_batches};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::util::pretty::pretty_format_batches;
use futures::{Stream, StreamExt, TryStreamExt};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rand::Rng;
use serac_client::flight::{HeldSnapshot, ScanRequest, Ticket, What};
use serac_engine::Database;
use serac_export::flight::{FlightOptions, FlightServer, Token};
use serac_sql::{Session, SqlDatabase, SqlError, SqlOptions, StatementResult};
use serac_storage::StorageOptions;
use serac_testing::Served;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tonic::codegen::Service;
use tonic::{Request, Response, Status, Streaming};

/// A session of a database of its own, in memory.
pub fn here() -> Session {
    Session::new(&SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions::default()).unwrap())
}

pub async fn run(session: &mut Session, sql: &str) {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn batch(session: &mut Session, sql: &str) -> RecordBatch {
    match session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")).pop() {
        Some(StatementResult::Rows { schema, batches, .. }) => concat_batches(&schema, &batches).unwrap(),
        other => panic!("{sql} gives {other:?}"),
    }
}

/// The rows of a query as text.
pub async fn shown(session: &mut Session, sql: &str) -> String {
    pretty_format_batches(&[batch(session, sql).await]).unwrap().to_string()
}

pub async fn refused(session: &mut Session, sql: &str) -> SqlError {
    session.execute(sql).await.expect_err(sql)
}

pub async fn plan(session: &mut Session, sql: &str) -> String {
    shown(session, &format!("EXPLAIN {sql}")).await
}

/// Makes a server of a name, which is reached at an address.
pub async fn make_server(session: &mut Session, name: &str, address: SocketAddr, more: &str) {
    let sql = format!("CREATE SERVER {name} FOREIGN DATA WRAPPER seracdb OPTIONS (address 'grpc://{address}'{more})");
    run(session, &sql).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_all_types_and_filters_on_them_are_those_of_the_server() {
    let there = database();
    every(&there, 4_000).await;
    let served = serve(&there, FlightOptions::default()).await;
    let mut session = here();
    make_server(&mut session, "s", served.address, "").await;
    run(&mut session, "CREATE SCHEMA copy; IMPORT FOREIGN SCHEMA public LIMIT TO (every) FROM SERVER s INTO copy")
        .await;
    let mut own = Session::new(&there);
    let columns = "SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute
                   WHERE attrelid = (SELECT oid FROM pg_class WHERE relname = 'every') ORDER BY attnum";
    assert_eq!(shown(&mut session, columns).await, shown(&mut own, columns).await);
    let conditions = [
        "true",
        "b",
        "NOT b",
        "b IS NULL",
        "s < -100",
        "i IN (-30, -60, NULL, -90)",
        "r > 100.5",
        "d = 7 / 3.0",
        "n = -4000.5",
        "n BETWEEN -4900 AND -4800.25",
        "big > 4611686018427387.9",
        "dt < DATE '1990-03-01'",
        "tm = TIME '00:00:20.03'",
        "ts < TIMESTAMP '1999-12-31'",
        "tz >= TIMESTAMPTZ '2000-01-01 00:10:00Z'",
        "v = 'v15'",
        "v LIKE 'v1%'",
        "x > 'a text that is long, of row 5'",
        "y = CAST('bytes 33' AS BYTEA)",
        "u = '00000000-0000-0000-0000-000000000033'",
        "free = 4.5",
        "free > 499.5",
        "j = '{\"n\": 77}'::jsonb",
        "j ->> 'n' = '78'",
        "t ->> 'a' = '79'",
        "c = 'c7'",
        "c = 'c7   '",
        "c < 'c2'",
        "s + 1 = 5",
        "v IS NOT NULL AND s > 400",
    ];
    for condition in conditions {
        let query = |table: &str| format!("SELECT * FROM {table} WHERE {condition} ORDER BY id");
        let (found, wanted) = (batch(&mut session, &query("copy.every")).await, batch(&mut own, &query("every")).await);
        assert_eq!(found.columns(), wanted.columns(), "{condition}");
        assert_eq!(found.schema().fields().len(), wanted.schema().fields().len());
    }
    for query in [
        "SELECT count(*), sum(n), avg(free), min(tz), max(c), count(DISTINCT s) FROM every",
        "SELECT c, sum(i), max(free) FROM every GROUP BY c ORDER BY c",
        "SELECT id, x FROM every ORDER BY tm DESC NULLS LAST, id LIMIT 7",
        "SELECT e.id, o.v FROM every e JOIN every o ON e.free = o.free AND e.id < 20 ORDER BY 1",
        "SELECT count(*) FROM (SELECT id FROM every LIMIT 13) AS few",
        "SELECT id FROM every WHERE id IN (SELECT s FROM every WHERE s > 490) ORDER BY id",
    ] {
        let wanted = shown(&mut own, query).await;
        assert_eq!(
            shown(
                &mut session,
                &query.replace("FROM every", "FROM copy.every").replace("JOIN every", "JOIN copy.every")
            )
            .await,
            wanted
        );
    }
    // Conditions that are too long for one request together.
    let others = (0..8_000).map(|n| format!("'{n:040}'")).collect::<Vec<_>>().join(", ");
    let text = "a text that is long, of row 16 ü";
    let query =
        |table: &str| format!("SELECT id FROM {table} WHERE v IN ('v16', {others}) AND x IN ('{text}', {others})");
    assert_eq!(shown(&mut session, &query("copy.every")).await, shown(&mut own, &query("every")).await);
    let pushed = plan(&mut session, "SELECT id FROM copy.every WHERE s < -100 AND c = 'c7' LIMIT 3").await;
    assert!(pushed.contains("ForeignScanExec: server=s, table=[public.every]") && pushed.contains("s < "), "{pushed}");
    nothing_is_held(&there).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_and_transactions_read_one_snapshot_of_a_server_beside_writers() {
    let there = database();
    for table in ["here", "there"] {
        execute(&there, &format!("CREATE TABLE {table} (id BIGINT NOT NULL, balance BIGINT NOT NULL)")).await;
        execute(&there, &format!("INSERT INTO {table} SELECT g, 10 FROM generate_series(0, 9999) AS t (g)")).await;
    }
    let served = serve(&there, FlightOptions::default()).await;
    let mut session = here();
    make_server(&mut session, "s", served.address, "").await;
    run(&mut session, "IMPORT FOREIGN SCHEMA public FROM SERVER s INTO public").await;
    let total = "SELECT (SELECT sum(balance) FROM here) + (SELECT sum(balance) FROM there) AS total";
    let part = "SELECT sum(balance) FROM there";
    let transfers = Transfers::start(&there, 10_000);
    let (mut parts, whole) = (Vec::new(), shown(&mut session, total).await);
    assert!(whole.contains("200000"), "{whole}");
    for _ in 0..6 {
        assert_eq!(shown(&mut session, total).await, whole);
        parts.push(number(&batch(&mut session, &format!("SELECT CAST(({part}) AS BIGINT)")).await, 0));
        transfers.go_on().await;
    }
    assert!(parts.is_sorted() && parts[0] < parts[5], "{parts:?}");
    // A transaction with a snapshot of its own: all of its statements see one state.
    run(&mut session, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    let first = shown(&mut session, part).await;
    for _ in 0..4 {
        transfers.go_on().await;
        assert_eq!(shown(&mut session, part).await, first);
        assert_eq!(shown(&mut session, total).await, whole);
    }
    assert!(active(&there) > 0, "the transaction holds the snapshot");
    run(&mut session, "COMMIT").await;
    assert_ne!(shown(&mut session, part).await, first);
    // Also behind a failure that a savepoint undoes.
    run(&mut session, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    let first = shown(&mut session, part).await;
    run(&mut session, "SAVEPOINT a").await;
    refused(&mut session, "SELECT 1 / 0").await;
    transfers.go_on().await;
    run(&mut session, "ROLLBACK TO SAVEPOINT a").await;
    assert_eq!(shown(&mut session, part).await, first);
    run(&mut session, "COMMIT").await;
    // One whose statements have snapshots of their own.
    run(&mut session, "BEGIN ISOLATION LEVEL READ COMMITTED").await;
    let first = shown(&mut session, part).await;
    transfers.go_on().await;
    assert_ne!(shown(&mut session, part).await, first);
    run(&mut session, "ROLLBACK").await;
    transfers.stop().await;
    nothing_is_held(&there).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_are_released_however_a_query_ends() {
    let there = database();
    execute(&there, "CREATE TABLE t (id BIGINT NOT NULL)").await;
    execute(&there, "INSERT INTO t SELECT g FROM generate_series(1, 200000) AS t (g)").await;
    let served = serve(&there, FlightOptions::default()).await;
    let mut session = here();
    make_server(&mut session, "s", served.address, "").await;
    run(&mut session, "IMPORT FOREIGN SCHEMA public FROM SERVER s INTO public").await;
    // An error in the middle; statements that are dropped, cancelled, or take too long.
    assert_eq!(refused(&mut session, "SELECT sum(1 / (id - 150000)) FROM t").await.sqlstate, "22012");
    nothing_is_held(&there).await;
    let cross = "SELECT count(*) FROM t a, t b WHERE a.id + b.id = 3";
    let dropped = tokio::time::timeout(Duration::from_millis(300), session.execute(cross)).await;
    assert!(dropped.is_err());
    nothing_is_held(&there).await;
    let cancel = session.cancel_handle();
    let later = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        cancel.cancel();
    });
    assert_eq!(refused(&mut session, cross).await.sqlstate, "57014");
    later.await.unwrap();
    nothing_is_held(&there).await;
    run(&mut session, "SET statement_timeout = '300ms'").await;
    assert_eq!(refused(&mut session, cross).await.sqlstate, "57014");
    run(&mut session, "SET statement_timeout = 0").await;
    nothing_is_held(&there).await;
    // A cursor holds it up to its transaction's end.
    run(&mut session, "BEGIN; DECLARE c CURSOR FOR SELECT id FROM t ORDER BY id").await;
    assert!(shown(&mut session, "FETCH 2 FROM c").await.contains("| 2 "));
    run(&mut session, "COMMIT").await;
    nothing_is_held(&there).await;
    // A failed transaction.
    run(&mut session, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t").await;
    refused(&mut session, "SELECT 1 / 0").await;
    nothing_is_held(&there).await;
    run(&mut session, "ROLLBACK").await;
    // Changes that read the table, and prepared statements.
    run(&mut session, "CREATE TABLE own AS SELECT id FROM t WHERE id <= 5").await;
    run(&mut session, "INSERT INTO own SELECT id FROM t WHERE id BETWEEN 6 AND 8").await;
    run(&mut session, "DELETE FROM own USING t WHERE own.id = t.id AND t.id = 2").await;
    run(&mut session, "PREPARE p (BIGINT) AS SELECT id FROM t WHERE id = $1").await;
    execute(&there, "DELETE FROM t WHERE id = 3").await;
    for (id, rows) in [(7, 1), (3, 0), (8, 1)] {
        assert_eq!(batch(&mut session, &format!("EXECUTE p ({id})")).await.num_rows(), rows, "{id}");
    }
    assert_eq!(number(&batch(&mut session, "SELECT count(*) FROM own").await, 0), 7);
    nothing_is_held(&there).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_starts_anew_gives_one_error_and_then_rows() {
    let there = database();
    execute(&there, "CREATE TABLE t (id BIGINT NOT NULL); INSERT INTO t VALUES (1), (2)").await;
    let served = serve(&there, FlightOptions::default()).await;
    let address = served.address;
    let mut session = here();
    make_server(&mut session, "s", address, "").await;
    run(&mut session, "IMPORT FOREIGN SCHEMA public FROM SERVER s INTO public").await;
    run(&mut session, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t").await;
    served.end().await;
    let server = FlightServer::bind(there.database().clone(), address, FlightOptions::default()).await.unwrap();
    let served = Served::start(address, |stop| server.run(stop));
    let error = refused(&mut session, "SELECT count(*) FROM t").await;
    assert!(error.sqlstate == "08006" && error.message.contains("does not hold snapshot"), "{error}");
    run(&mut session, "ROLLBACK").await;
    assert_eq!(number(&batch(&mut session, "SELECT count(*) FROM t").await, 0), 2);
    served.end().await;
    let error = refused(&mut session, "SELECT count(*) FROM t").await;
    assert_eq!(error.sqlstate, "08001", "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_columns_than_the_servers_are_refused_when_the_table_is_read() {
    let there = database();
    execute(&there, "CREATE TABLE t (a BIGINT NOT NULL, v VARCHAR(10), n NUMERIC(8,2))").await;
    execute(&there, "INSERT INTO t VALUES (1, 'one', 1.5)").await;
    let token = Token::new("a-secret").unwrap();
    let served = serve(&there, FlightOptions { token: Some(token), ..FlightOptions::default() }).await;
    let mut session = here();
    make_server(&mut session, "s", served.address, ", token 'a-secret'").await;
    make_server(&mut session, "stranger", served.address, ", token 'another'").await;
    for (columns, code) in [
        ("a BIGINT NOT NULL, v VARCHAR(10), n NUMERIC(8,2)", None),
        ("n NUMERIC(8,2), a BIGINT", None),
        ("a INTEGER", Some("42804")),
        ("a BIGINT, v VARCHAR(5)", Some("42804")),
        ("v TEXT", Some("42804")),
        ("v VARCHAR(10) NOT NULL", Some("42804")),
        ("n NUMERIC(9,2)", Some("42804")),
        ("n NUMERIC", Some("42804")),
        ("b BIGINT", Some("HV00R")),
    ] {
        run(&mut session, &format!("CREATE FOREIGN TABLE t ({columns}) SERVER s")).await;
        match code {
            None => assert_eq!(batch(&mut session, "SELECT * FROM t").await.num_rows(), 1, "{columns}"),
            Some(code) => {
                let error = refused(&mut session, "SELECT * FROM t").await;
                assert_eq!(error.sqlstate, code, "{columns}: {error}");
            }
        }
        run(&mut session, "DROP FOREIGN TABLE t").await;
    }
    run(&mut session, "CREATE FOREIGN TABLE t (a BIGINT) SERVER s OPTIONS (table_name 'absent')").await;
    assert_eq!(refused(&mut session, "SELECT * FROM t").await.sqlstate, "HV00R");
    run(&mut session, "CREATE FOREIGN TABLE u (a BIGINT) SERVER stranger OPTIONS (table_name 't')").await;
    let error = refused(&mut session, "SELECT * FROM u").await;
    assert!(error.sqlstate == "28000" && !error.to_string().contains("another"), "{error}");
    let shown = shown(&mut session, "SELECT srvoptions::text FROM pg_foreign_server").await;
    assert!(!shown.contains("a-secret") && !shown.contains("another"), "{shown}");
    let error = refused(&mut session, "IMPORT FOREIGN SCHEMA nowhere FROM SERVER s INTO public").await;
    assert_eq!(error.sqlstate, "HV00Q", "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_is_given_up_and_can_be_cancelled_before() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut silent = Vec::new();
        while let Ok((socket, _)) = listener.accept().await {
            silent.push(socket);
        }
    });
    let mut session = here();
    make_server(&mut session, "s", address, ", call_timeout '0.3'").await;
    make_server(&mut session, "slow", address, ", call_timeout '600'").await;
    for server in ["s", "slow"] {
        run(&mut session, &format!("CREATE FOREIGN TABLE of_{server} (a BIGINT) SERVER {server}")).await;
    }
    let begun = Instant::now();
    for sql in ["SELECT * FROM of_s", "IMPORT FOREIGN SCHEMA public FROM SERVER s INTO public"] {
        let error = refused(&mut session, sql).await;
        assert!(error.sqlstate == "08001" && error.message.contains("has not answered for 0.3 seconds"), "{error}");
    }
    run(&mut session, "SET statement_timeout = '200ms'").await;
    for sql in ["SELECT * FROM of_slow", "IMPORT FOREIGN SCHEMA public FROM SERVER slow INTO public"] {
        assert_eq!(refused(&mut session, sql).await.sqlstate, "57014", "{sql}");
    }
    run(&mut session, "SET statement_timeout = 0").await;
    let cancel = session.cancel_handle();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        cancel.cancel();
    });
    assert_eq!(refused(&mut session, "SELECT * FROM of_slow").await.sqlstate, "57014");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_survive_a_restart_and_a_checkpoint() {
    let there = database();
    execute(&there, "CREATE TABLE t (id BIGINT NOT NULL); INSERT INTO t VALUES (1), (2)").await;
    let served = serve(&there, FlightOptions::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let options = StorageOptions { path: Some(folder.path().into()), ..StorageOptions::default() };
        SqlDatabase::new(Database::open_with(options).unwrap(), &SqlOptions::default()).unwrap()
    };
    let catalog = "SELECT relname, srvname, ftoptions::text FROM pg_foreign_table
                   JOIN pg_class ON pg_class.oid = ftrelid JOIN pg_foreign_server s ON s.oid = ftserver";
    let mut before = None;
    for round in 0..3 {
        let db = open();
        let mut session = Session::new(&db);
        if round == 0 {
            make_server(&mut session, "s", served.address, "").await;
            run(&mut session, "CREATE FOREIGN TABLE f (id BIGINT, CHECK (id > 0)) SERVER s OPTIONS (table_name 't')")
                .await;
            run(&mut session, "CREATE VIEW v AS SELECT id + 1 AS next FROM f").await;
        }
        let found = shown(&mut session, catalog).await;
        assert_eq!(*before.get_or_insert_with(|| found.clone()), found);
        assert_eq!(number(&batch(&mut session, "SELECT CAST(sum(next) AS BIGINT) FROM v").await, 0), 5);
        if round == 1 {
            run(&mut session, "CHECKPOINT").await;
        }
    }
}

/// The columns of the tables in the test of shards.
const COLUMNS: &str = "id BIGINT NOT NULL, day DATE, region TEXT, amount NUMERIC(10,2), note VARCHAR(20)";

/// Three servers with a part of the same rows each, and a session in which they are the view
/// `orders`, beside all of the rows in the table `own`.
async fn sharded(checks: [&str; 3]) -> (Vec<SqlDatabase>, Vec<Option<Served>>, Session) {
    let (mut session, mut databases, mut servers) = (here(), Vec::new(), Vec::new());
    run(&mut session, &format!("CREATE TABLE own ({COLUMNS})")).await;
    run(
        &mut session,
        "INSERT INTO own SELECT g, CASE WHEN g % 11 > 0 THEN DATE '2024-01-01' + CAST(g % 300 AS INTEGER) END,
         CASE g % 4 WHEN 0 THEN 'north' WHEN 1 THEN 'south' WHEN 2 THEN 'west' END, g * 1.25,
         CASE WHEN g % 5 > 0 THEN 'note ' || g % 40 END FROM generate_series(-300, 2699) AS t (g)",
    )
    .await;
    let mut parts = Vec::new();
    for (number, check) in checks.into_iter().enumerate() {
        let db = database();
        execute(&db, &format!("CREATE TABLE orders ({COLUMNS})")).await;
        let rows =
            shown_values(&mut session, &format!("SELECT * FROM own WHERE {check} IS NOT FALSE ORDER BY id")).await;
        if !rows.is_empty() {
            execute(&db, &format!("INSERT INTO orders VALUES {rows}")).await;
        }
        let served = serve(&db, FlightOptions::default()).await;
        make_server(&mut session, &format!("s{number}"), served.address, ", connect_timeout '0.5'").await;
        let create = format!(
            "CREATE FOREIGN TABLE orders_{number} ({COLUMNS}, CHECK ({check})) SERVER s{number} OPTIONS (table_name 'orders')"
        );
        run(&mut session, &create).await;
        parts.push(format!("SELECT * FROM orders_{number}"));
        databases.push(db);
        servers.push(Some(served));
    }
    run(&mut session, &format!("CREATE VIEW orders AS {}", parts.join(" UNION ALL "))).await;
    (databases, servers, session)
}

/// Rows as the list of VALUES.
async fn shown_values(session: &mut Session, sql: &str) -> String {
    let texts = "SELECT string_agg(format('(%s,%L,%L,%s,%L)', id, day, region, amount, note), ',') AS all_rows FROM";
    let all = batch(session, &format!("{texts} ({sql}) AS r")).await;
    let column = cast(all.column(0), &DataType::Utf8).unwrap();
    let column = column.as_string::<i32>();
    if column.is_null(0) { String::new() } else { column.value(0).to_owned() }
}

/// A random condition on the columns.
fn condition(rng: &mut impl Rng, depth: usize) -> String {
    if depth > 0 && rng.random_bool(0.5) {
        let (one, two) = (condition(rng, depth - 1), condition(rng, depth - 1));
        return match rng.random_range(0..5) {
            0 => format!("({one} OR {two})"),
            1 => format!("NOT ({one})"),
            _ => format!("({one} AND {two})"),
        };
    }
    let operator = ["=", "<>", "<", "<=", ">", ">="][rng.random_range(0..6)];
    let id = rng.random_range(-400_i64..2_800);
    let day = format!("DATE '2024-01-01' + {}", rng.random_range(-10..310));
    let region = ["'north'", "'south'", "'west'", "'nowhere'", "NULL"][rng.random_range(0..5)];
    match rng.random_range(0..11) {
        0 | 1 => format!("id {operator} {id}"),
        2 => format!("id IN ({id}, {}, {}, NULL)", id + 1, id + 30),
        3 => format!("id BETWEEN {id} AND {}", id + rng.random_range(-2_i64..900)),
        4 => format!("day {operator} {day}"),
        5 => format!("region {operator} {region}"),
        6 => format!("region IN ({region}, 'south')"),
        7 => "region IS NULL".into(),
        8 => format!("id % {} = {}", rng.random_range(2..5), rng.random_range(0..4)),
        9 => format!("amount {operator} {id}.25"),
        _ => format!("note LIKE '%{}%'", rng.random_range(0..40)),
    }
}

const BY_HASH: [&str; 3] = ["abs(id) % 3 = 0", "abs(id) % 3 = 1", "abs(id) % 3 = 2"];
const BY_RANGE: [&str; 3] = ["id < 500", "id >= 500 AND id < 1500", "id >= 1500"];
const BY_REGION: [&str; 3] = ["region IN ('north', 'south')", "region = 'west'", "region IS NULL AND id > 0"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_over_shards_gives_the_rows_of_one_table() {
    let mut rng = serac_testing::rng();
    for checks in [BY_HASH, BY_RANGE] {
        let (databases, _servers, mut session) = sharded(checks).await;
        for _ in 0..25 {
            let condition = condition(&mut rng, 3);
            for (select, rest) in [
                ("SELECT *", "ORDER BY id"),
                ("SELECT region, count(*), sum(amount), max(day)", "GROUP BY region ORDER BY region"),
                ("SELECT id", "ORDER BY amount DESC, id LIMIT 5"),
            ] {
                let of = |table: &str| format!("{select} FROM {table} WHERE {condition} {rest}");
                let (found, wanted) = (shown(&mut session, &of("orders")).await, shown(&mut session, &of("own")).await);
                assert_eq!(found, wanted, "{condition} {rest}");
            }
        }
        for db in &databases {
            nothing_is_held(db).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_that_a_filter_excludes_are_not_asked() {
    for (checks, gone, asked) in [
        (
            BY_HASH,
            1,
            ["id = 6", "id IN (3, 5, 8)", "id = 5 AND amount > 2", "abs(id) % 3 = 1 AND id = 2", "id = 3 OR id = 6"],
        ),
        (BY_RANGE, 1, ["id < 500", "id >= 1500", "id = 7", "id > 1499 AND id <> 3", "id IN (1, 2, 1700)"]),
        (
            BY_REGION,
            1,
            [
                "region = 'north'",
                "region IN ('south', 'east')",
                "region > 'westward'",
                "region = 'a' || 'b'",
                "region < 'o'",
            ],
        ),
    ] {
        let (_databases, mut servers, mut session) = sharded(checks).await;
        servers[gone].take().unwrap().end().await;
        for condition in asked {
            let of = |table: &str| format!("SELECT * FROM {table} WHERE {condition} ORDER BY id");
            let shown_plan = plan(&mut session, &of("orders")).await;
            assert!(!shown_plan.contains(&format!("server=s{gone}")), "{condition}: {shown_plan}");
            let (found, wanted) = (shown(&mut session, &of("orders")).await, shown(&mut session, &of("own")).await);
            assert_eq!(found, wanted, "{condition}");
        }
        // Rows of that shard, and rows that may be there.
        for condition in ["true", "id = 1000 AND region = 'west'", "region IS NULL", "note LIKE '%1%'", "id <> 3"] {
            if checks == BY_HASH && condition.starts_with("id = 1000") {
                // 1000 is of that shard by its hash.
                assert_eq!(1000 % 3, gone as i64);
            }
            let error = refused(&mut session, &format!("SELECT * FROM orders WHERE {condition}")).await;
            assert_eq!(error.sqlstate, "08001", "{condition}: {error}");
        }
        let prepared = match checks {
            BY_REGION => "PREPARE p (TEXT) AS SELECT id FROM orders WHERE region = $1",
            _ => "PREPARE p (BIGINT) AS SELECT id FROM orders WHERE id = $1",
        };
        run(&mut session, prepared).await;
        let (other, own) = if checks == BY_REGION { ("'north'", "'west'") } else { ("6", "1000") };
        for _ in 0..3 {
            run(&mut session, &format!("EXECUTE p ({other})")).await;
        }
        assert_eq!(refused(&mut session, &format!("EXECUTE p ({own})")).await.sqlstate, "08001");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_constraint_that_depends_on_settings_excludes_nothing() {
    let there = database();
    execute(&there, "CREATE TABLE t (at TIMESTAMPTZ); INSERT INTO t VALUES ('2024-01-01 20:00:00Z')").await;
    let served = serve(&there, FlightOptions::default()).await;
    let mut session = here();
    make_server(&mut session, "s", served.address, "").await;
    run(&mut session, "CREATE FOREIGN TABLE t (at TIMESTAMPTZ, CHECK (CAST(at AS DATE) = DATE '2024-01-01')) SERVER s")
        .await;
    for zone in ["UTC", "Asia/Tokyo"] {
        run(&mut session, &format!("SET timezone = '{zone}'")).await;
        let query = "SELECT count(*) FROM t WHERE at = TIMESTAMPTZ '2024-01-01 20:00:00Z'";
        assert_eq!(number(&batch(&mut session, query).await, 0), 1, "{zone}");
    }
}

/// The answers of a hostile server.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// Batches of other columns than it has said.
    OtherBatches,
    /// A text that is longer than its column's type.
    LongText,
    /// A number with more digits than its column's type.
    ManyDigits,
    /// A NULL where it has said that there is none.
    Null,
    /// Bytes that are no message.
    NoMessage,
    /// Rows without end.
    Endless,
    /// It has aggregates, and sends rows.
    Rows,
}

/// A server of the table `t (a BIGINT NOT NULL, v VARCHAR(3), n NUMERIC(4,1))` that lies.
struct Hostile(Lie);

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Hostile {
    /// The columns, which are all nullable if the server `may` send NULLs.
    fn schema(may: bool) -> Schema {
        let text = Field::new("v", DataType::Utf8View, true);
        let text = text.with_metadata([("postgresql.type".to_owned(), "1043:7".to_owned())].into());
        let fields = [Field::new("a", DataType::Int64, may), text, Field::new("n", DataType::Decimal128(4, 1), true)];
        Schema::new(fields.to_vec())
    }

    fn batch(&self) -> RecordBatch {
        let (text, digits) = (if matches!(self.0, Lie::LongText) { "long" } else { "abc" }, self.0);
        let number = if matches!(digits, Lie::ManyDigits) { 123_456 } else { 1_234 };
        let number = Decimal128Array::from(vec![number]).with_precision_and_scale(4, 1).unwrap();
        let a = Int64Array::from(vec![if matches!(self.0, Lie::Null) { None } else { Some(1) }]);
        let columns: Vec<ArrayRef> = vec![Arc::new(a), Arc::new(StringViewArray::from(vec![text])), Arc::new(number)];
        RecordBatch::try_new(Arc::new(Self::schema(true)), columns).unwrap()
    }

    async fn serve(self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = FlightServiceServer::new(self);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let service = service.clone();
                let answer = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    Service::call(&mut service.clone(), request)
                });
                let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(http.serve_connection(TokioIo::new(socket), answer));
            }
        });
        address
    }
}

fn unimplemented<T>() -> Result<T, Status> {
    Err(Status::unimplemented("no"))
}

#[tonic::async_trait]
impl FlightService for Hostile {
    type HandshakeStream = Answers<arrow_flight::HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<arrow_flight::PutResult>;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<arrow_flight::ActionType>;
    type DoExchangeStream = Answers<FlightData>;

    async fn handshake(
        &self,
        _: Request<Streaming<arrow_flight::HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        unimplemented()
    }

    async fn list_flights(
        &self,
        _: Request<arrow_flight::Criteria>,
    ) -> Result<Response<Self::ListFlightsStream>, Status> {
        let flights = futures::stream::iter(0_u64..).map(|n| {
            let path = vec!["public".to_owned(), format!("t{n}")];
            Ok(FlightInfo::new().with_descriptor(FlightDescriptor::new_path(path)))
        });
        Ok(Response::new(Box::pin(flights)))
    }

    async fn get_flight_info(&self, _: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        let request = ScanRequest::new("public", "t");
        let ticket = Ticket { what: What::Request(Box::new(request)), blocks: Some(0..u32::MAX) }.to_bytes();
        let endpoint = FlightEndpoint::new().with_ticket(arrow_flight::Ticket::new(ticket));
        let info = FlightInfo::new().try_with_schema(&Self::schema(false)).unwrap();
        let estimates = match self.0 {
            Lie::Rows => r#"{"rows": 1, "distinct": [], "summaries": true}"#,
            _ => "no estimates",
        };
        Ok(Response::new(info.with_endpoint(endpoint).with_app_metadata(estimates)))
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Result<Response<arrow_flight::PollInfo>, Status> {
        unimplemented()
    }

    async fn get_schema(&self, _: Request<FlightDescriptor>) -> Result<Response<arrow_flight::SchemaResult>, Status> {
        unimplemented()
    }

    async fn do_get(&self, _: Request<arrow_flight::Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        let lie = self.0;
        let batch = match lie {
            Lie::OtherBatches => self.batch().project(&[2, 0]).unwrap(),
            _ => self.batch(),
        };
        let encoded = FlightDataEncoderBuilder::new();
        let rows: Self::DoGetStream = match lie {
            Lie::NoMessage => Box::pin(futures::stream::iter([Ok(FlightData {
                data_header: vec![0xff; 64].into(),
                data_body: vec![0; 8].into(),
                ..FlightData::default()
            })])),
            Lie::Endless => {
                let batches = futures::stream::repeat_with(move || Ok(batch.clone()));
                Box::pin(encoded.build(batches).map_err(Status::from))
            }
            _ => Box::pin(encoded.build(futures::stream::iter([Ok(batch)])).map_err(Status::from)),
        };
        Ok(Response::new(rows))
    }

    async fn do_put(&self, _: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        unimplemented()
    }

    async fn do_action(&self, _: Request<arrow_flight::Action>) -> Result<Response<Self::DoActionStream>, Status> {
        let held = serde_json::to_vec(&HeldSnapshot { lease: 7, seconds: 60.0 }).unwrap();
        let held = arrow_flight::Result { body: held.into() };
        Ok(Response::new(Box::pin(futures::stream::iter([Ok(held)]))))
    }

    async fn list_actions(&self, _: Request<arrow_flight::Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        unimplemented()
    }

    async fn do_exchange(&self, _: Request<Streaming<FlightData>>) -> Result<Response<Self::DoExchangeStream>, Status> {
        unimplemented()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lies_gives_an_error() {
    for (lie, codes) in [
        (Lie::OtherBatches, &["HV000"][..]),
        (Lie::LongText, &["22001"]),
        (Lie::ManyDigits, &["22003", "XX000"]),
        (Lie::Null, &["HV000"]),
        (Lie::NoMessage, &["HV000", "08001"]),
        (Lie::Endless, &["57014"]),
        (Lie::Rows, &["HV000"]),
    ] {
        let address = Hostile(lie).serve().await;
        let mut session = here();
        make_server(&mut session, "s", address, ", call_timeout '5'").await;
        run(&mut session, "CREATE FOREIGN TABLE t (a BIGINT NOT NULL, v VARCHAR(3), n NUMERIC(4,1)) SERVER s").await;
        run(&mut session, "SET statement_timeout = '2s'").await;
        for sql in ["SELECT count(v), sum(n), max(a) FROM t", "CREATE TABLE own AS SELECT * FROM t WHERE n < 0"] {
            let is_empty =
                sql.starts_with("CREATE") && !matches!(lie, Lie::Endless | Lie::OtherBatches | Lie::NoMessage);
            match session.execute(sql).await {
                Err(error) => assert!(codes.contains(&error.sqlstate), "{lie:?}: {sql}: {error}"),
                Ok(_) => assert!(is_empty, "{lie:?}: {sql} gives rows"),
            }
        }
        let error = refused(&mut session, "IMPORT FOREIGN SCHEMA public FROM SERVER s INTO public").await;
        assert!(["HV000", "08001", "57014"].contains(&error.sqlstate), "{error}");
    }
}
