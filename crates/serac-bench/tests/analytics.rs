//! Analytical workloads at a small size: their queries give the same as SQLite gives on the same
//! rows, and as without the optional passes over plans.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use rusqlite::Connection;
use rusqlite::types::Value;
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions, StatementResult};
use serac_workload::analytics::{Answer, Query, Workload};
use tokio::runtime::Runtime;

/// Rows of an answer as text.
type Rows = Vec<Vec<String>>;

const FORMAT: FormatOptions<'_> =
    FormatOptions::new().with_null("NULL").with_timestamp_format(Some("%Y-%m-%d %H:%M:%S"));

fn texts(batch: &RecordBatch) -> Rows {
    let columns: Vec<_> = batch.columns().iter().map(|c| ArrayFormatter::try_new(c, &FORMAT).unwrap()).collect();
    (0..batch.num_rows()).map(|row| columns.iter().map(|column| column.value(row).to_string()).collect()).collect()
}

struct Ours {
    session: Session,
    runtime: Runtime,
}

impl Ours {
    fn with(workload: &Workload) -> Self {
        let runtime = Runtime::new().unwrap();
        let database = Database::in_memory().unwrap();
        let db = SqlDatabase::new(database.clone(), &SqlOptions::default()).unwrap();
        let mut session = Session::new(&db);
        for table in &workload.tables {
            runtime.block_on(session.execute(&table.create_sql())).unwrap();
            let mut txn = database.begin();
            let target = txn.catalog().table("public", table.name).unwrap().clone();
            for batch in table.batches() {
                txn.insert_batch(&target, &batch).unwrap();
            }
            txn.commit().unwrap();
        }
        Self { session, runtime }
    }

    fn rows(&mut self, sql: &str) -> Rows {
        let results = self.runtime.block_on(self.session.execute(sql)).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let Some(StatementResult::Rows { batches, .. }) = results.last() else { return Vec::new() };
        batches.iter().flat_map(texts).collect()
    }
}

fn sqlite(workload: &Workload) -> Connection {
    let mut connection = Connection::open_in_memory().unwrap();
    connection.pragma_update(None, "case_sensitive_like", true).unwrap();
    for table in &workload.tables {
        connection.execute(&table.create_sql(), []).unwrap();
        let txn = connection.transaction().unwrap();
        for batch in table.batches() {
            let marks = vec!["?"; batch.num_columns()].join(", ");
            let mut insert = txn.prepare(&format!("INSERT INTO {} VALUES ({marks})", table.name)).unwrap();
            let columns: Vec<Vec<Value>> = batch.columns().iter().map(|column| values(column)).collect();
            for row in 0..batch.num_rows() {
                insert.execute(rusqlite::params_from_iter(columns.iter().map(|column| &column[row]))).unwrap();
            }
        }
        txn.commit().unwrap();
    }
    connection
}

/// The values of a column as SQLite has them. Dates and times are texts there.
fn values(column: &dyn Array) -> Vec<Value> {
    if *column.data_type() == DataType::Float64 {
        return column.as_primitive::<Float64Type>().values().iter().map(|value| Value::Real(*value)).collect();
    }
    let formatter = ArrayFormatter::try_new(column, &FORMAT).unwrap();
    let texts = (0..column.len()).map(|row| formatter.value(row).to_string());
    match column.data_type().is_integer() {
        true => texts.map(|text| Value::Integer(text.parse().unwrap())).collect(),
        false => texts.map(Value::Text).collect(),
    }
}

/// SQLite's answer, or `None` if it lacks a function of the query.
fn answer_of(connection: &Connection, sql: &str) -> Option<Rows> {
    let text = |value: Value| match value {
        Value::Null => "NULL".into(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => format!("{number:?}"),
        Value::Text(text) => text,
        Value::Blob(_) => panic!("no column has bytes"),
    };
    let mut statement = match connection.prepare(sql) {
        Ok(statement) => statement,
        Err(error) => {
            let error = error.to_string();
            assert!(error.contains("no such function") || error.contains("near "), "{sql}: {error}");
            return None;
        }
    };
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| (0..columns).map(|at| row.get(at).map(text)).collect()).unwrap();
    Some(rows.collect::<Result<_, _>>().unwrap())
}

fn same(a: &str, b: &str) -> bool {
    let close = |(a, b): (f64, f64)| (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0);
    a == b || a.parse().ok().zip(b.parse().ok()).is_some_and(close)
}

fn compare(query: &Query, kind: &str, expected: &Rows, mut found: Rows) {
    let mut expected = expected.clone();
    assert_eq!(found.len(), expected.len(), "{}: rows {kind}", query.name);
    match query.answer {
        Answer::Count => return,
        Answer::Rows => {}
        Answer::Sums(_) => {
            found.sort_unstable();
            expected.sort_unstable();
        }
    }
    for (found, expected) in found.iter().zip(&expected) {
        let equal = found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| same(a, b));
        assert!(equal, "{} {kind}: {found:?}, not {expected:?}", query.name);
    }
}

/// Runs every query of a workload. `beyond` names those for which SQLite lacks a function. Those of
/// `rare` may have no rows at this size. A query that begins behind all rows runs from the first
/// on.
fn check(workload: &Workload, beyond: &[&str], rare: &[&str]) {
    let (mut ours, theirs) = (Ours::with(workload), sqlite(workload));
    for table in &workload.tables {
        assert_eq!(ours.rows(&format!("SELECT count(*) FROM {}", table.name)), [[table.rows.to_string()]]);
    }
    // Without that pass, five tables in FROM give all combinations of their rows.
    let passes = "SELECT DISTINCT name FROM serac_passes WHERE optional AND name <> 'eliminate_cross_join'";
    let passes = ours.rows(passes);
    let disable = format!("SET serac.disabled_passes = '{}'", passes.concat().join(", "));
    let mut unanswered = Vec::new();
    for query in &workload.queries {
        let mut query = query.clone();
        let mut expected = ours.rows(&query.sql);
        if expected.is_empty()
            && let Some((all, _)) = query.sql.split_once(" OFFSET ")
        {
            query.sql = all.to_owned();
            expected = ours.rows(&query.sql);
        }
        assert!(!expected.is_empty() || rare.contains(&query.name.as_str()), "{} has no rows", query.name);
        match answer_of(&theirs, &query.sql) {
            Some(answer) => compare(&query, "in SQLite", &expected, answer),
            None => unanswered.push(query.name.clone()),
        }
        if let Some(sums) = query.sums().map(|sums| ours.rows(&sums)) {
            assert_eq!((sums.len(), &sums[0][0]), (1, &expected.len().to_string()), "{}", query.name);
        }
        ours.rows(&disable);
        compare(&query, "without passes", &expected, ours.rows(&query.sql));
        ours.rows("RESET serac.disabled_passes");
    }
    assert_eq!(unanswered, beyond);
}

#[test]
fn the_star_schema_benchmark() {
    check(&Workload::ssb(0.02), &[], &["Q3.2", "Q3.3", "Q3.4", "Q4.3"]);
}

#[test]
fn groups() {
    check(&Workload::groups(20_000), &["median, deviation by id4, id5", "regression by id2, id4"], &[]);
}

#[test]
fn joins() {
    check(&Workload::joins(20_000), &[], &[]);
}

#[test]
fn web_analytics() {
    check(&Workload::web(20_000), &["Q19", "Q29", "Q43"], &["Q41", "Q42"]);
}
