//! Jobs and functions of SQL: the memory that they take, the rights with which they read, and the
//! types of their values. They run a program that echoes its input.
#![cfg(target_os = "linux")]

use datafusion::arrow::util::display::array_value_to_string;
use serac_engine::Database;
use serac_server::LocalPrograms;
use serac_sql::{Session, SqlDatabase, SqlError, SqlOptions, StatementResult};
use std::sync::Arc;

/// A database, and the runner of its jobs.
fn database(memory_limit: Option<usize>, most_bytes: u64) -> (SqlDatabase, LocalPrograms) {
    let programs = LocalPrograms::new(most_bytes);
    let options = SqlOptions { memory_limit, programs: Some(Arc::new(programs.clone())), ..SqlOptions::default() };
    (SqlDatabase::new(Database::in_memory().unwrap(), &options).unwrap(), programs)
}

/// The rows of the last statement, as text: `a,b;c,d`.
async fn told(session: &mut Session, statements: &str) -> Result<String, SqlError> {
    let Some(StatementResult::Rows { batches, .. }) = session.execute(statements).await?.pop() else {
        return Ok(String::new());
    };
    let mut rows = Vec::new();
    for batch in &batches {
        for row in 0..batch.num_rows() {
            let values = batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
            rows.push(values.collect::<Vec<_>>().join(","));
        }
    }
    Ok(rows.join(";"))
}

async fn good(session: &mut Session, statements: &str) -> String {
    told(session, statements).await.unwrap_or_else(|error| panic!("{statements}: {error}"))
}

async fn state(session: &mut Session, statements: &str) -> &'static str {
    match told(session, statements).await {
        Ok(rows) => panic!("{statements}: {rows}"),
        Err(error) => error.sqlstate,
    }
}

/// The job that gives back the rows of a query.
fn echo(query: &str) -> String {
    let query = query.replace('\'', "''");
    format!(r#"{{"inputs": [{{"query": "{query}"}}], "stages": [{{"program": "/bin/cat"}}]}}"#)
}

fn function(name: &str, columns: &str, query: &str) -> String {
    format!("CREATE FUNCTION {name}() RETURNS TABLE ({columns}) LANGUAGE external AS '{}'", echo(query))
}

/// About 24 MB of rows.
const MANY: &str = "SELECT i AS a, i * 2 AS b, i * 3 AS c FROM generate_series(1, 1000000) AS s (i)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inputs_are_charged_to_the_sessions_memory_and_to_that_of_all_jobs() {
    let call = format!("CALL serac_run('{}')", echo(MANY));
    let (db, programs) = database(Some(16 << 20), 1 << 30);
    let mut session = Session::new(&db);
    assert_eq!(state(&mut session, &call).await, "53200");
    good(&mut session, &function("many", "a BIGINT, b BIGINT, c BIGINT", MANY)).await;
    assert_eq!(state(&mut session, "SELECT count(*) FROM many()").await, "53200");
    assert_eq!((programs.held_bytes(), db.query_memory()), (0, 0));
    // Less than that has room.
    let small = format!("CALL serac_run('{}')", echo("SELECT 1 AS a"));
    assert_eq!(good(&mut session, &small).await, "1");

    let (db, programs) = database(None, 16 << 20);
    let mut session = Session::new(&db);
    assert_eq!(state(&mut session, &call).await, "53400");
    assert_eq!(programs.held_bytes(), 0);
    assert_eq!(good(&mut session, &small).await, "1");
    assert_eq!(programs.held_bytes(), 0);
    // More inputs than the job says.
    let (db, _) = database(None, 1 << 30);
    let bounded = call.replace("\"}]}", "\"}], \"limits\": {\"input_bytes\": 1000000}}");
    assert_eq!(state(&mut Session::new(&db), &bounded).await, "54000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_is_refused_before_an_input_is_read() {
    let (db, _) = database(None, 1 << 30);
    let mut session = Session::new(&db);
    // Reading this input is an error of its own.
    let failing = echo("SELECT 1 / 0 AS a");
    assert_eq!(state(&mut session, &format!("CALL serac_run('{failing}')")).await, "22012");
    let missing = failing.replace("/bin/cat", "/bin/no-such-program");
    assert_eq!(state(&mut session, &format!("CALL serac_run('{missing}')")).await, "58P01");
    let create = format!("CREATE FUNCTION f() RETURNS TABLE (a INT) LANGUAGE external AS '{missing}'");
    good(&mut session, &create).await;
    assert_eq!(state(&mut session, "SELECT * FROM f()").await, "58P01");
    let second = failing.replace("}], \"stages\"", "}, {\"query\": \"DROP TABLE t\"}], \"stages\"");
    assert_eq!(state(&mut session, &format!("CALL serac_run('{second}')")).await, "42601");
    good(&mut session, "CREATE ROLE other; SET ROLE other").await;
    assert_eq!(state(&mut session, &format!("CALL serac_run('{failing}')")).await, "42501");
    // This build lacks WebAssembly, or the module is invalid.
    let module = failing.replace(r#""program": "/bin/cat""#, r#""wasm": """#);
    let (state, expected) = (state(&mut session, &format!("CALL serac_run('{module}')")).await, ["0A000", "22012"]);
    assert!(expected.contains(&state), "{state}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_assigned_to_a_functions_columns_as_by_insert() {
    let (db, _) = database(None, 1 << 30);
    let mut session = Session::new(&db);
    let cases = [
        ("a SMALLINT", "SELECT 70000 AS a", Err("22003")),
        ("a SMALLINT", "SELECT 2.4 AS a", Ok("2")),
        ("a INT", "SELECT '12' AS a", Err("42804")),
        ("a NUMERIC(5,2)", "SELECT 1234.5 AS a", Err("22003")),
        ("a NUMERIC(5,2)", "SELECT 123.456 AS a", Ok("123.46")),
        ("a VARCHAR(3)", "SELECT 'long' AS a", Err("22001")),
        ("a VARCHAR(3)", "SELECT 'abc' AS a", Ok("abc")),
        ("a CHAR(3)", "SELECT 'a  ' AS a", Ok("a")),
        ("a TEXT", "SELECT 17 AS a", Ok("17")),
        ("a REAL", "SELECT 1e300::float8 AS a", Err("22003")),
        ("a DATE", "SELECT true AS a", Err("42804")),
        ("a TIMESTAMP(0)", "SELECT TIMESTAMP '2024-01-01 00:00:00.6' AS a", Ok("2024-01-01T00:00:01")),
        ("a JSONB", "SELECT '{' AS a", Err("22P02")),
        ("a BIGINT", "SELECT NULL::bigint AS a", Ok("")),
    ];
    for (column, query, expected) in cases {
        good(&mut session, &function("f", column, query)).await;
        let found = told(&mut session, "SELECT * FROM f()").await;
        let found = found.as_ref().map(String::as_str).map_err(|error| error.sqlstate);
        assert_eq!(found, expected, "{column} from {query}");
        good(&mut session, "DROP FUNCTION f").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_reads_a_functions_inputs_with_its_owners_rights() {
    let (db, _) = database(None, 1 << 30);
    let mut session = Session::new(&db);
    good(&mut session, "CREATE TABLE secret (a INT); INSERT INTO secret VALUES (7)").await;
    good(&mut session, "CREATE ROLE maker; CREATE ROLE reader; GRANT CREATE ON SCHEMA public TO maker").await;
    good(&mut session, &function("secrets", "a INT", "SELECT a FROM secret")).await;
    good(&mut session, "GRANT EXECUTE ON FUNCTION secrets TO maker").await;
    // Its owner may execute the function, but not read its inputs.
    good(&mut session, "SET ROLE maker").await;
    good(&mut session, "CREATE MATERIALIZED VIEW kept AS SELECT a FROM secrets() WITH NO DATA").await;
    good(&mut session, "CREATE VIEW seen AS SELECT a FROM secrets()").await;
    good(&mut session, "RESET ROLE").await;
    assert_eq!(state(&mut session, "REFRESH MATERIALIZED VIEW kept").await, "42501");
    assert_eq!(state(&mut session, "SELECT * FROM seen").await, "42501");
    good(&mut session, "GRANT SELECT ON secret TO maker").await;
    good(&mut session, "REFRESH MATERIALIZED VIEW kept").await;
    assert_eq!(good(&mut session, "SELECT * FROM kept").await, "7");
    // A reader of the view needs no right on its inputs, as with its tables.
    good(&mut session, "GRANT SELECT ON seen TO reader; SET ROLE reader").await;
    assert_eq!(good(&mut session, "SELECT * FROM seen").await, "7");
    assert_eq!(state(&mut session, "SELECT * FROM secrets()").await, "42501");
    assert_eq!(state(&mut session, "SELECT * FROM secret").await, "42501");
}
