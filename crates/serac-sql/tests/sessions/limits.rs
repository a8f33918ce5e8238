//! Statements that are cancelled, that take too long, or that want too much memory: they end with
//! an error, and the session goes on.

use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::ScalarValue;
use futures::stream;
use serac_engine::Database;
use serac_sql::{
    IngestTarget, Session, SqlDatabase, SqlOptions, StatementResult, StatementStream, TransactionStatus, parse,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Would run for hours.
const ENDLESS: &str = "SELECT count(*) FROM generate_series(1, 1000000000000) AS a (x) WHERE x % 1000003 = 7";
/// The same in a join that gives no row for a long time.
const ENDLESS_JOIN: &str = "SELECT count(*) FROM generate_series(1, 1000) AS a (x), generate_series(1, 1000000000000) AS b (y) \
    WHERE (x + y) % 1000003 = 7 AND x > y";

/// Far below the endless query's time, far above the time to end it.
const SOON: Duration = Duration::from_secs(20);

fn database(memory_limit: Option<usize>) -> SqlDatabase {
    SqlDatabase::new(
        Database::in_memory().unwrap(),
        &SqlOptions { memory_limit, threads: Some(2), ..SqlOptions::default() },
    )
    .unwrap()
}

async fn number(session: &mut Session, sql: &str) -> i64 {
    match session.execute(sql).await.unwrap().pop() {
        Some(StatementResult::Rows { batches, .. }) => {
            let number = cast(batches[0].column(0), &DataType::Int64).unwrap();
            number.as_primitive::<Int64Type>().value(0)
        }
        other => panic!("{other:?}"),
    }
}

async fn cancel_after_a_moment(session: &mut Session, sql: &str) -> &'static str {
    let handle = session.cancel_handle();
    let canceller = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        handle.cancel();
    });
    let started = Instant::now();
    let error = session.execute(sql).await.unwrap_err();
    assert!(started.elapsed() < SOON, "cancelled after {:?}", started.elapsed());
    canceller.await.unwrap();
    error.sqlstate
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_constant_that_each_row_gets_is_counted_for_each_row() {
    let mut session = Session::new(&database(Some(100 << 20)));
    // A copy has 960,000 bytes of views for itself: 123 MB in a batch of 128 rows. Batches of slow
    // functions are cut to so few.
    for array in ["array_repeat(repeat('x', 20), 60000)::varchar[]", "array_repeat(repeat('x', 20), 60000)"] {
        let many = format!("SELECT count({array}) FROM generate_series(1, 100000)");
        assert_eq!(session.execute(&many).await.unwrap_err().sqlstate, "53200", "{array}");
        let few = format!("SELECT count({array}) FROM generate_series(1, 20)");
        assert_eq!(number(&mut session, &few).await, 20, "{array}");
        // A function takes it as it is.
        let length = format!("SELECT sum(array_length({array}, 1)) FROM generate_series(1, 100000)");
        assert_eq!(number(&mut session, &length).await, 6_000_000_000, "{array}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_is_refused_has_given_its_memory_back() {
    let db = database(Some(100 << 20));
    let mut session = Session::new(&db);
    let made = "CREATE TABLE t (a INTEGER, s TEXT); \
                INSERT INTO t SELECT x, repeat('some text ', 20) FROM generate_series(1, 100000) AS g (x)";
    session.execute(made).await.unwrap();
    let mut refused = 0;
    for _ in 0..200 {
        // One thread computes within the limit, the other is refused meanwhile, if the machine runs
        // both at once.
        if let Err(error) = session.execute("SELECT count(lpad(s, 10000, 'ab')) FROM t").await {
            assert_eq!(error.sqlstate, "53200");
            assert_eq!(db.query_memory(), 0);
            refused += 1;
            if refused == 5 {
                break;
            }
        }
    }
    assert!(refused > 0);
    // The same for a query whose rows are not taken to their end, when the next statement runs.
    let db = database(Some(1 << 30));
    let mut session = Session::new(&db);
    session.execute(made).await.unwrap();
    for statement in parse("SELECT lpad(s, 10000, 'ab') FROM t; SELECT 1").unwrap() {
        let StatementStream::Rows(mut rows) = session.stream_statement(statement).await.unwrap() else { panic!() };
        assert!(rows.next().await.is_ok_and(|rows| rows.is_some()));
    }
    assert_eq!(db.query_memory(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_statement_does_nothing_and_the_session_goes_on() {
    let db = database(None);
    let mut session = Session::new(&db);
    session.execute("CREATE TABLE t (n BIGINT)").await.unwrap();
    // Without a running statement, there is nothing to cancel; the next statement is not meant.
    session.cancel_handle().cancel();
    assert_eq!(number(&mut session, "SELECT count(*) FROM t").await, 0);

    assert_eq!(cancel_after_a_moment(&mut session, ENDLESS).await, "57014");
    assert_eq!(cancel_after_a_moment(&mut session, ENDLESS_JOIN).await, "57014");
    assert_eq!(cancel_after_a_moment(&mut session, &format!("INSERT INTO t {ENDLESS}")).await, "57014");
    // Pairs of many rows without a match: the threads are free again all the same.
    let many = "CREATE TABLE many (t TEXT); INSERT INTO many SELECT 'number ' || value FROM generate_series(1, 60000) AS g (value)";
    session.execute(many).await.unwrap();
    let pairs = "SELECT count(*) FROM many a, many b WHERE a.t || b.t LIKE '%nothing%'";
    assert_eq!(cancel_after_a_moment(&mut session, pairs).await, "57014");
    // Products of which an aggregation takes each row, more of them than there are threads.
    let few = "CREATE TABLE few (n INTEGER); INSERT INTO few SELECT value FROM generate_series(1, 500) AS g (value)";
    session.execute(few).await.unwrap();
    let product = "SELECT sum(a.n + b.n + c.n) FROM few a, few b, few c, few d";
    let equal = "SELECT sum(length(a.t || b.t)) FROM many a JOIN many b ON length(a.t) = length(b.t)";
    for endless in [product, equal, product, equal] {
        assert_eq!(cancel_after_a_moment(&mut session, endless).await, "57014");
    }
    // Joins that have partners for each row, and give none before their end.
    let lost = "SELECT count(*) FROM many a JOIN many b ON length(a.t) = length(b.t) AND a.t || b.t LIKE '%nothing%'";
    let partners = "EXISTS (SELECT 1 FROM many b WHERE right(b.t, 2) = right(a.t, 1 + c.n % 2)";
    let semi = format!("SELECT count(*) FROM many a, few c WHERE {partners} AND a.t || b.t LIKE '%nothing%')");
    let anti = format!("SELECT count(*) FROM many a, few c WHERE NOT {partners})");
    for endless in [lost, semi.as_str(), anti.as_str(), lost, semi.as_str(), anti.as_str()] {
        assert_eq!(cancel_after_a_moment(&mut session, endless).await, "57014");
    }
    assert_eq!(cancel_after_a_moment(&mut session, "SELECT pg_sleep(1000)").await, "57014");
    assert_eq!(cancel_after_a_moment(&mut session, "SELECT t, pg_sleep(1) FROM many").await, "57014");
    let started = Instant::now();
    assert_eq!(number(&mut session, "SELECT count(*) FROM many WHERE t LIKE '%9'").await, 6_000);
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    let folder = tempfile::tempdir().unwrap();
    let copy = format!("COPY ({ENDLESS}) TO '{}'", folder.path().join("t.csv").display());
    assert_eq!(cancel_after_a_moment(&mut session, &copy).await, "57014");
    assert_eq!(session.transaction_status(), TransactionStatus::Idle);
    assert_eq!(number(&mut session, "SELECT count(*) FROM t").await, 0);

    session.execute("BEGIN; INSERT INTO t VALUES (1); SAVEPOINT s").await.unwrap();
    let update = format!("UPDATE t SET n = ({ENDLESS})");
    assert_eq!(cancel_after_a_moment(&mut session, &update).await, "57014");
    assert_eq!(session.transaction_status(), TransactionStatus::Failed);
    session.execute("ROLLBACK TO s; COMMIT").await.unwrap();
    assert_eq!(number(&mut session, "SELECT sum(n) FROM t").await, 1);
}

#[tokio::test]
async fn the_rows_of_a_query_come_as_they_are_found() {
    let db = database(None);
    let mut session = Session::new(&db);
    let statement = |sql: &str| parse(sql).unwrap().remove(0);
    let endless = "SELECT x FROM generate_series(1, 1000000000000) AS a (x)";
    let stream = async |session: &mut Session, sql: &str, batches: usize| {
        let StatementStream::Rows(mut rows) = session.stream_statement(statement(sql)).await.unwrap() else {
            panic!("{sql} gives rows");
        };
        assert_eq!(rows.schema().fields().len(), 1);
        let mut count = 0;
        for _ in 0..batches {
            count += rows.next().await.unwrap().unwrap().num_rows();
        }
        count
    };
    assert!(stream(&mut session, endless, 3).await > 3);
    assert_eq!(session.transaction_status(), TransactionStatus::Idle, "dropping the rows ends the statement");
    session.execute("CREATE TABLE t (n BIGINT); BEGIN; INSERT INTO t VALUES (1)").await.unwrap();
    assert!(stream(&mut session, endless, 1).await > 0);
    assert_eq!(session.transaction_status(), TransactionStatus::Open);
    assert_eq!(stream(&mut session, "SELECT n FROM t", 1).await, 1);
    assert_eq!(stream(&mut session, "INSERT INTO t VALUES (2), (3) RETURNING n", 1).await, 2);
    session.execute("COMMIT").await.unwrap();
    assert!(matches!(
        session.stream_statement(statement("DELETE FROM t WHERE n = 3")).await.unwrap(),
        StatementStream::Command { rows: 1, .. }
    ));

    // Errors that come in the middle end the statement, and fail an open transaction.
    let failing = "SELECT 10 / (500000 - x) FROM generate_series(1, 1000000000000) AS a (x)";
    for (before, status) in [("SELECT 1", TransactionStatus::Idle), ("BEGIN", TransactionStatus::Failed)] {
        session.execute(before).await.unwrap();
        let StatementStream::Rows(mut rows) = session.stream_statement(statement(failing)).await.unwrap() else {
            panic!("a query gives rows");
        };
        let error = loop {
            match rows.next().await {
                Ok(batch) => assert!(batch.is_some(), "the query does not end well"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.sqlstate, "22012");
        assert!(rows.next().await.unwrap().is_none());
        drop(rows);
        assert_eq!(session.transaction_status(), status);
    }
    session.execute("ROLLBACK").await.unwrap();

    // A cancellation that comes between two batches counts too.
    let handle = session.cancel_handle();
    let StatementStream::Rows(mut rows) = session.stream_statement(statement(endless)).await.unwrap() else {
        panic!("a query gives rows");
    };
    rows.next().await.unwrap().unwrap();
    handle.cancel();
    assert_eq!(rows.next().await.unwrap_err().sqlstate, "57014");
    drop(rows);
    assert_eq!(number(&mut session, "SELECT count(*) FROM t").await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_ends_at_its_timeout() {
    let db = database(None);
    let mut session = Session::new(&db);
    session.execute("CREATE TABLE t (n BIGINT); SET statement_timeout = 100").await.unwrap();
    for sql in [
        ENDLESS.to_owned(),
        ENDLESS_JOIN.to_owned(),
        format!("INSERT INTO t {ENDLESS}"),
        format!("EXPLAIN ANALYZE {ENDLESS}"),
    ] {
        let started = Instant::now();
        let error = session.execute(&sql).await.unwrap_err();
        assert_eq!(error.sqlstate, "57014");
        assert!(error.message.contains("timeout"), "{error}");
        assert!(started.elapsed() >= Duration::from_millis(100) && started.elapsed() < SOON);
        assert_eq!(number(&mut session, "SELECT count(*) FROM t").await, 0);
    }
    let Some(StatementResult::Rows { batches, .. }) = session.execute("SHOW statement_timeout").await.unwrap().pop()
    else {
        panic!("SHOW gives a row");
    };
    assert_eq!(batches[0].column(0).as_string::<i32>().value(0), "100ms");
    session.execute("SET statement_timeout = 0").await.unwrap();
    assert_eq!(session.execute("SET statement_timeout = soon").await.unwrap_err().sqlstate, "22023");
    assert_eq!(number(&mut session, "SELECT count(*) FROM generate_series(1, 3000000)").await, 3_000_000);
}

/// Nested calls take the planner long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_ends_at_its_timeout_while_it_is_planned() {
    let db = database(None);
    let mut session = Session::new(&db);
    let nested = |value: &str| format!("{}{value}{}", "abs(".repeat(150), ")".repeat(150));
    session.execute("CREATE TABLE t (n INT)").await.unwrap();
    session.execute("SET statement_timeout = 20").await.unwrap();
    for sql in [
        format!("CREATE TABLE g (a INT, b INT GENERATED ALWAYS AS ({}) STORED)", nested("a")),
        format!("CREATE TABLE g (a INT, CHECK ({} > 0))", nested("a")),
        format!("CREATE TABLE g (a INT DEFAULT {})", nested("1")),
        format!("ALTER TABLE t ALTER n SET DEFAULT {}", nested("1")),
    ] {
        let started = Instant::now();
        let error = session.execute(&sql).await.unwrap_err();
        assert_eq!(error.sqlstate, "57014", "{error}");
        assert!(started.elapsed() < SOON, "{sql}");
    }
    session.execute("SET statement_timeout = 0; CREATE TABLE g (a INT); INSERT INTO t DEFAULT VALUES").await.unwrap();
    assert_eq!(number(&mut session, "SELECT count(*) FROM t WHERE n IS NULL").await, 1);
}

/// Expressions that a table keeps compute for each row, and never wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expressions_of_a_table_end_with_their_statement() {
    let db = database(None);
    let mut session = Session::new(&db);
    session.execute("CREATE TABLE t (n INT, v NUMERIC)").await.unwrap();
    session.execute("INSERT INTO t SELECT n, n FROM generate_series(1, 40000) s(n)").await.unwrap();
    let slow = "power(v + 1, 100.5)";
    session
        .execute(&format!(
            "CREATE TABLE c (v NUMERIC CHECK ({slow} > 0)); CREATE TABLE g (v NUMERIC, w NUMERIC GENERATED ALWAYS AS ({slow}) STORED)"
        ))
        .await
        .unwrap();
    let long = [
        format!("CREATE INDEX i ON t (n) WHERE {slow} > 0"),
        format!("CREATE INDEX i ON t (({slow}))"),
        format!("ALTER TABLE t ADD w NUMERIC GENERATED ALWAYS AS ({slow}) STORED"),
        "INSERT INTO c SELECT v FROM t".to_owned(),
        "INSERT INTO g SELECT v FROM t".to_owned(),
    ];
    for sql in &long {
        assert_eq!(cancel_after_a_moment(&mut session, sql).await, "57014", "{sql}");
    }
    session.execute("SET statement_timeout = 100").await.unwrap();
    for sql in &long {
        let started = Instant::now();
        let error = session.execute(sql).await.unwrap_err();
        assert_eq!(error.sqlstate, "57014", "{sql}: {error}");
        assert!(started.elapsed() < SOON, "{sql}");
    }
    session.execute("SET statement_timeout = 0; CREATE INDEX i ON t (n)").await.unwrap();
    assert_eq!(number(&mut session, "SELECT (SELECT count(*) FROM c) + (SELECT count(*) FROM g)").await, 0);
}

/// Functions of a query that has ended give its threads back. They would take minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_functions_end_with_their_statement() {
    let db = database(None);
    let mut session = Session::new(&db);
    session.execute("CREATE TABLE t (n INT, v NUMERIC)").await.unwrap();
    session.execute("INSERT INTO t SELECT n, n FROM generate_series(1, 100000) s(n)").await.unwrap();
    session.execute("SET statement_timeout = 100").await.unwrap();
    for slow in [
        "SELECT sum(power(v + 1, 100.5)) FROM t",
        "SELECT count(*) FROM t WHERE power(v + 1, 100.5) > 0",
        "SELECT n FROM t ORDER BY power(v + 1, 100.5)",
        "UPDATE t SET v = power(v + 1, 100.5)",
        "SELECT sum(length(md5(repeat(n::text, 100000)))) FROM t",
    ] {
        for _ in 0..2 {
            assert_eq!(session.execute(slow).await.unwrap_err().sqlstate, "57014", "{slow}");
        }
        // All threads are free for the next query.
        session.execute("SET statement_timeout = '20s'").await.unwrap();
        assert_eq!(number(&mut session, "SELECT count(*) FROM t WHERE v > 0").await, 100_000, "{slow}");
        session.execute("SET statement_timeout = 100").await.unwrap();
    }
}

/// Statements by key run on the thread that receives cancellations, so they leave it when they
/// compute for long.
#[tokio::test]
async fn statements_by_key_that_compute_for_long_run_elsewhere() {
    let db = database(None);
    let (mut session, mut other) = (Session::new(&db), Session::new(&db));
    session.execute("CREATE TABLE t (id INT PRIMARY KEY, v NUMERIC)").await.unwrap();
    session.execute("INSERT INTO t SELECT n, n FROM generate_series(1, 3000) s(n)").await.unwrap();
    other.execute("SELECT v FROM t WHERE id = 1; SELECT v FROM t WHERE id = 2").await.unwrap();
    let slow = "UPDATE t SET v = power(v + 1, 900.5) WHERE id BETWEEN 1 AND 2000";
    let handle = session.cancel_handle();
    let cancelled = async {
        // The statement is running, and this thread answers others.
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            other.execute("SELECT v FROM t WHERE id = 3").await.unwrap();
        }
        handle.cancel();
    };
    let (ended, ()) = tokio::join!(session.execute(slow), cancelled);
    assert_eq!(ended.unwrap_err().sqlstate, "57014");
    session.execute("SET statement_timeout = 100").await.unwrap();
    assert_eq!(session.execute(slow).await.unwrap_err().sqlstate, "57014");
    session.execute("SET statement_timeout = 0").await.unwrap();
    assert_eq!(number(&mut session, "SELECT count(*) FROM t WHERE v <> id").await, 0);
    session.execute("UPDATE t SET v = round(sqrt(v), 3) WHERE id = 9").await.unwrap();
    assert_eq!(number(&mut session, "SELECT v::int FROM t WHERE id = 9").await, 3);
}

/// What a statement computes before it leaves its thread is not done twice.
#[tokio::test]
async fn effects_happen_once_wherever_a_statement_ends() {
    let db = database(None);
    let mut session = Session::new(&db);
    session.execute("CREATE TABLE t (id INT PRIMARY KEY, e INT, x TEXT)").await.unwrap();
    session.execute("INSERT INTO t VALUES (1, 60000, 'x'); CREATE SEQUENCE s").await.unwrap();
    let slow = "length(sqrt(2::numeric * 10::numeric ^ e)::text) > 0, upper(x), lower(x)";
    for round in 1..4 {
        session.execute(&format!("SELECT pg_try_advisory_lock(7), {slow} FROM t WHERE id = 1")).await.unwrap();
        for held in [1, 0] {
            let unlocked = number(&mut session, "SELECT pg_advisory_unlock(7)::int").await;
            assert_eq!(unlocked, held, "round {round}");
        }
        session.execute(&format!("SELECT nextval('s'), {slow} FROM t WHERE id = 1")).await.unwrap();
        assert_eq!(number(&mut session, "SELECT currval('s')").await, round);
    }
}

/// Constants of a statement are computed once, when it is compiled. They may take minutes, and
/// gigabytes.
#[tokio::test]
async fn constants_end_with_their_statement() {
    let db = database(None);
    let mut session = Session::new(&db);
    let number = |n: usize| format!("length(sqrt(2::numeric * 10::numeric ^ 30000 + {n})::text)");
    let numbers: Vec<String> = (0..120).map(number).collect();
    let numbers_in_row = numbers.join(", ");
    session.execute("SET statement_timeout = 200").await.unwrap();
    for slow in [format!("SELECT {numbers_in_row}"), format!("SELECT greatest({numbers_in_row})")] {
        for round in 0..4 {
            let begun = Instant::now();
            let outcome = session.execute(&slow).await;
            assert!(begun.elapsed() < Duration::from_secs(8), "round {round} took {:?}", begun.elapsed());
            assert_eq!(outcome.unwrap_err().sqlstate, "57014");
        }
    }
    // The same of parameters.
    let parameters = numbers.iter().map(|number| number.replace("30000", "$1::int"));
    let nested = format!("SELECT greatest({})", parameters.collect::<Vec<_>>().join(", "));
    let mut prepared = session.prepare(&nested).unwrap();
    assert!(prepared.is_point());
    for _ in 0..2 {
        let begun = Instant::now();
        let outcome = session.execute_prepared(&mut prepared, &[ScalarValue::Int32(Some(30_000))]).await;
        assert!(begun.elapsed() < Duration::from_secs(8), "it took {:?}", begun.elapsed());
        assert_eq!(outcome.unwrap_err().sqlstate, "57014");
    }
    session.execute("SET statement_timeout = 0").await.unwrap();
    let large = session.prepare("SELECT repeat('a', 5000000)").unwrap();
    assert!(large.is_point());
    assert!(format!("{large:?}").len() < 1_000_000, "the plan keeps the text");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_the_memory_limit_a_query_spills_or_fails() {
    let db = database(Some(16 << 20));
    let (mut session, mut other) = (Session::new(&db), Session::new(&db));
    session
        .execute(
            "CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, s TEXT);
             INSERT INTO t SELECT value, (value * 7919::BIGINT) % 600011, 'some text that is not short ' || value \
               FROM generate_series(1, 600000) AS g (value)",
        )
        .await
        .unwrap();

    // A sort spills, and is right.
    let sorted = "SELECT count(*) FROM (SELECT k, lag(k) OVER (ORDER BY k) AS before FROM t) AS x WHERE k < before";
    assert_eq!(number(&mut session, sorted).await, 0);
    // Packed, these numbers fit.
    session.execute("SET serac.disabled_passes = 'packed_sort'").await.unwrap();
    let analyzed = session.execute("EXPLAIN ANALYZE SELECT id, k FROM t ORDER BY k").await.unwrap().pop();
    session.execute("RESET serac.disabled_passes").await.unwrap();
    let Some(StatementResult::Rows { batches, .. }) = analyzed else { panic!("EXPLAIN gives rows") };
    let plan = pretty_format_batches(&batches).unwrap().to_string();
    assert!(plan.contains("spill_count=") && !plan.contains("spill_count=0,"), "{plan}");

    // So do joins, one below the other.
    let joined = "SELECT count(*) FROM t AS a JOIN t AS b ON a.s = b.s AND a.k = b.k JOIN t AS c ON c.s = b.s";
    assert_eq!(number(&mut session, joined).await, 600_000);
    session.execute("BEGIN; DELETE FROM t WHERE id <= 10").await.unwrap();
    // All rows of both sides that a full join keeps have one key.
    let full = "SELECT count(*) FROM (SELECT *, 1 AS one FROM t) AS a FULL JOIN (SELECT *, 1 AS one FROM t) AS b \
                ON a.one = b.one AND a.s > b.s";
    let update = format!("UPDATE t SET k = ({full})");
    assert_eq!(session.execute(&update).await.unwrap_err().sqlstate, "53200");
    assert_eq!(session.transaction_status(), TransactionStatus::Failed);

    // Both sessions go on, and all memory is back.
    assert_eq!(number(&mut other, "SELECT count(*) FROM t").await, 600_000);
    session.execute("ROLLBACK").await.unwrap();
    assert_eq!(number(&mut session, sorted).await, 0);
    assert_eq!(number(&mut session, "SELECT count(*) FROM t").await, 600_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_of_parsing_does_not_double_with_each_level() {
    let started = Instant::now();
    let nested = |open: &str, inner: &str, close: &str| format!("{}{inner}{}", open.repeat(40), close.repeat(40));
    let calls = [("abs(", ")"), ("coalesce(1, ", ", 2)"), ("ARRAY[", "]"), ("ROW(1, ", ")"), ("f(a => ", ")")];
    for (open, close) in calls {
        parse(&format!("SELECT {}", nested(open, "1", close))).unwrap();
    }
    // A CAST or an INTERVAL that is wrong is tried again as a function of this name.
    for open in ["CAST(", "interval(", "extract(year FROM ", "CASE WHEN ("] {
        assert_eq!(parse(&format!("SELECT {}1", open.repeat(40))).unwrap_err().sqlstate.len(), 5, "{open}");
    }
    // A stored expression is parsed whenever it is needed.
    let mut session = Session::new(&database(None));
    let kept = format!("CREATE TABLE t (a BIGINT DEFAULT {0}, CHECK ({0} = 1))", nested("abs(", "1", ")"));
    session.execute(&format!("{kept}; INSERT INTO t VALUES (DEFAULT)")).await.unwrap();
    assert_eq!(number(&mut session, &format!("SELECT {} + sum(a)::BIGINT FROM t", nested("abs(", "1", ")"))).await, 2);
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}

/// Runs `work` beside other work of its thread. Returns the longest time for which that had to
/// wait, and the time of all.
async fn beside_others<T>(work: impl Future<Output = T>) -> (Duration, Duration) {
    let began = Instant::now();
    let (mut longest, mut last) = (Duration::ZERO, began);
    let mut running = std::pin::pin!(work);
    loop {
        let is_done = tokio::select! {
            _ = &mut running => true,
            () = tokio::time::sleep(Duration::from_millis(1)) => false,
        };
        longest = longest.max(last.elapsed());
        last = Instant::now();
        if is_done {
            return (longest, began.elapsed());
        }
    }
}

/// Other work of a thread goes on while CHECKs and generated columns of many rows are computed.
#[tokio::test(flavor = "current_thread")]
async fn slow_checks_of_many_rows_leave_the_thread_to_others() {
    let mut session = Session::new(&database(None));
    let slow = "md5(repeat(t, 100000)) <> ''";
    let create = format!(
        "CREATE TABLE checked (t TEXT CHECK ({slow})); \
         CREATE TABLE made (t TEXT, m BOOLEAN GENERATED ALWAYS AS ({slow}) STORED)"
    );
    session.execute(&create).await.unwrap();
    let texts: Vec<String> = (0..200).map(|row| format!("a{row}")).collect();
    let rows: Vec<String> = texts.iter().map(|text| format!("('{text}')")).collect();
    for table in ["checked", "made"] {
        let insert = format!("INSERT INTO {table} (t) VALUES {}", rows.join(", "));
        let (longest, all) = beside_others(async { session.execute(&insert).await.unwrap() }).await;
        assert!(longest < all / 2, "INSERT: the thread was busy for {longest:?} of {all:?}");
        let batch = RecordBatch::try_from_iter([("t", Arc::new(StringArray::from(texts.clone())) as ArrayRef)]);
        let batch = batch.unwrap();
        let (schema, target) = (batch.schema(), IngestTarget { table: table.into(), ..IngestTarget::default() });
        let ingest = async { session.ingest(&target, &schema, stream::iter([Ok(batch)])).await.unwrap() };
        let (longest, all) = beside_others(ingest).await;
        assert!(longest < all / 2, "batches: the thread was busy for {longest:?} of {all:?}");
    }
}

/// The text of a large value is not made only to name the column that has it.
#[tokio::test]
async fn values_of_subqueries_are_not_written_down() {
    let mut session = Session::new(&database(None));
    let sql = "EXPLAIN ANALYZE SELECT cardinality(ARRAY(SELECT repeat('y', 500) FROM generate_series(1, 2000)))";
    let Some(StatementResult::Rows { batches, .. }) = session.execute(sql).await.unwrap().pop() else { panic!() };
    let text = pretty_format_batches(&batches).unwrap().to_string();
    assert!(text.contains("scalar_subquery"), "{text}");
    assert!(text.len() < 100_000, "{} bytes", text.len());
}

/// Joins of all kinds whose build side does not fit into the memory, beside the same ones in
/// memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_spill() {
    let (small, large) = (database(Some(16 << 20)), database(None));
    let (mut small, mut large) = (Session::new(&small), Session::new(&large));
    let made = "CREATE TABLE a (k BIGINT, s TEXT, n NUMERIC(12,2));
                CREATE TABLE b (k BIGINT, s TEXT);
                INSERT INTO a SELECT nullif(x % 70001, 3), 'the text of row ' || x, x FROM generate_series(1, 200000) AS g (x);
                INSERT INTO b SELECT nullif(x * 3 % 90001, 3), 'another text of row ' || x FROM generate_series(1, 200000) AS g (x)";
    for session in [&mut small, &mut large] {
        session.execute(made).await.unwrap();
    }
    let joins = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"].map(|join| {
        format!(
            "SELECT count(*) * 1000 + count(a.s) * 10 + count(b.s) + sum(length(a.s)) + sum(length(b.s)) + sum(a.n)::BIGINT \
             FROM a {join} b ON a.k = b.k AND a.n < b.k * 3"
        )
    });
    let others = ["IN (SELECT k FROM b WHERE length(s) > 24)", "NOT IN (SELECT k FROM b WHERE k % 7 = 1)"]
        .map(|condition| format!("SELECT count(*) + sum(length(s)) FROM a WHERE k {condition}"));
    let exists = ["", "NOT "].map(|not| {
        format!(
            "SELECT count(*) + sum(length(s)) FROM a WHERE {not}EXISTS (SELECT FROM b WHERE b.k = a.k AND b.s > a.s)"
        )
    });
    for sql in joins.into_iter().chain(others).chain(exists) {
        assert_eq!(number(&mut small, &sql).await, number(&mut large, &sql).await, "{sql}");
    }
    let analyzed = "EXPLAIN ANALYZE SELECT count(*) FROM a JOIN b ON a.k = b.k AND a.s < b.s";
    let analyzed = small.execute(analyzed).await.unwrap().pop();
    let Some(StatementResult::Rows { batches, .. }) = analyzed else { panic!("EXPLAIN gives rows") };
    let plan = pretty_format_batches(&batches).unwrap().to_string();
    let join = plan.lines().find(|line| line.contains("spilled_rows=")).unwrap_or_else(|| panic!("{plan}"));
    assert!(!join.contains("spilled_rows=0,"), "{plan}");
}

/// DataFusion's join of loops would read its inputs again to spill them, and give rows twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_without_equal_keys_give_all_rows_or_fail() {
    let queries = [
        ("SELECT count(*) FROM a JOIN a AS b ON a.i = b.i LEFT JOIN m ON m.i > a.i + b.i + 5000", 3000),
        (
            "SELECT count(*) FROM a JOIN a AS b ON a.i = b.i WHERE NOT EXISTS (SELECT FROM m WHERE m.i > a.i + b.i + 5000)",
            3000,
        ),
        ("SELECT count(*) FROM (SELECT i FROM a ORDER BY t) AS a LEFT JOIN m ON m.i < a.i - 2990", 3036),
    ];
    let mut failed = 0;
    for limit in [30 << 10, 100 << 10, 200 << 10, 1 << 20, 64 << 20] {
        let db = database(Some(limit));
        let mut session = Session::new(&db);
        let made = "CREATE TABLE a AS SELECT x AS i, 'text ' || x AS t FROM generate_series(1, 3000) AS g (x);
                    CREATE TABLE m AS SELECT x AS i FROM generate_series(1, 5000) AS g (x)";
        session.execute(made).await.unwrap();
        for (sql, expected) in queries {
            match session.execute(sql).await {
                Ok(_) => assert_eq!(number(&mut session, sql).await, expected, "{limit}: {sql}"),
                Err(error) => {
                    assert_eq!(error.sqlstate, "53200", "{limit}: {sql}: {}", error.message);
                    failed += 1;
                    assert!(limit < 64 << 20, "{sql}");
                }
            }
        }
    }
    assert!(failed > 0, "no join had too little memory");
}
