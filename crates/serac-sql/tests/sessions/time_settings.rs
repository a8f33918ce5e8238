//! The parts of results that follow a session's time zone, DateStyle and IntervalStyle, and those
//! that do not.

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions, StatementResult};

fn database() -> SqlDatabase {
    SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions::default()).unwrap()
}

/// The first column of all rows, as texts.
async fn values(session: &mut Session, sql: &str) -> Vec<String> {
    let results = session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let Some(StatementResult::Rows { batches, .. }) = results.into_iter().next_back() else {
        panic!("{sql} gives rows")
    };
    let mut values = Vec::new();
    for batch in batches {
        let column = cast(batch.column(0), &DataType::Utf8).unwrap();
        let text = |row| if column.is_null(row) { "NULL".into() } else { column.as_string::<i32>().value(row).into() };
        values.extend((0..batch.num_rows()).map(text));
    }
    values
}

async fn value(session: &mut Session, sql: &str) -> String {
    values(session, sql).await.pop().unwrap_or_default()
}

async fn refused(session: &mut Session, sql: &str) -> &'static str {
    session.execute(sql).await.err().map_or("00000", |error| error.sqlstate)
}

#[tokio::test]
async fn prepared_statements_are_read_under_the_settings_of_each_execution() {
    let mut session = Session::new(&database());
    let query = "SELECT $1::text || ' ' || ($1::date)::text || ' ' || TIMESTAMPTZ '2020-07-01 00:00'";
    session.execute(&format!("PREPARE p(timestamptz) AS {query}")).await.unwrap();
    let execute = "EXECUTE p('2020-07-01 23:00')";
    let utc = "2020-07-01 23:00:00+00 2020-07-01 2020-07-01 00:00:00+00";
    assert_eq!(value(&mut session, execute).await, utc);
    session.execute("SET TimeZone = 'Asia/Kolkata'").await.unwrap();
    let kolkata = "2020-07-01 23:00:00+05:30 2020-07-01 2020-07-01 00:00:00+05:30";
    assert_eq!(value(&mut session, execute).await, kolkata);
    // A value in UTC is shown there on the next day.
    let next = "2020-07-02 04:30:00+05:30 2020-07-02 2020-07-01 00:00:00+05:30";
    assert_eq!(value(&mut session, "EXECUTE p('2020-07-01 23:00Z')").await, next);
    session.execute("SET DateStyle = german").await.unwrap();
    let german = "01.07.2020 23:00:00 IST 01.07.2020 01.07.2020 00:00:00 IST";
    assert_eq!(value(&mut session, execute).await, german);
    session.execute("RESET ALL").await.unwrap();
    assert_eq!(value(&mut session, execute).await, utc);
}

#[tokio::test]
async fn transactions_undo_settings_of_times() {
    let mut session = Session::new(&database());
    let noon = "SELECT TIMESTAMPTZ '2020-07-01 12:00'::text";
    session.execute("SET TIME ZONE 'America/New_York'").await.unwrap();
    session.execute("BEGIN; SET LOCAL TIME ZONE 'Asia/Tokyo'").await.unwrap();
    assert_eq!(value(&mut session, noon).await, "2020-07-01 12:00:00+09");
    session.execute("COMMIT").await.unwrap();
    assert_eq!(value(&mut session, noon).await, "2020-07-01 12:00:00-04");
    session.execute("BEGIN; SET TimeZone = 'UTC'; SET DateStyle = 'sql'; ROLLBACK").await.unwrap();
    assert_eq!(value(&mut session, noon).await, "2020-07-01 12:00:00-04");
    session.execute("BEGIN; SAVEPOINT s; SET DateStyle = 'sql'; ROLLBACK TO s; COMMIT").await.unwrap();
    assert_eq!(value(&mut session, "SHOW DateStyle").await, "ISO, MDY");
    session.execute("SELECT set_config('timezone', 'europe/rome', false)").await.unwrap();
    assert_eq!(value(&mut session, "SHOW TimeZone").await, "Europe/Rome");
    session.execute("RESET TIME ZONE").await.unwrap();
    assert_eq!(value(&mut session, "SHOW TimeZone").await, "UTC");
    for wrong in ["TimeZone = 'PST'", "TimeZone = ''", "DateStyle = 'iso, foo'", "IntervalStyle = 'iso'"] {
        assert_eq!(refused(&mut session, &format!("SET {wrong}")).await, "22023", "{wrong}");
    }
}

/// Constants in stored definitions keep the meaning that they had when the definition was made.
#[tokio::test]
async fn what_is_kept_does_not_depend_on_who_reads_it() {
    let database = database();
    let mut session = Session::new(&database);
    session.execute("SET TimeZone = 'America/New_York'; SET DateStyle = 'iso, dmy'").await.unwrap();
    session
        .execute(
            "CREATE TABLE t (id INT, a TIMESTAMPTZ DEFAULT '01/07/2020 10:00', d DATE DEFAULT '02/03/2020',
                 CHECK (a > '01/02/2020'), before BOOLEAN GENERATED ALWAYS AS (d < '03/04/2020') STORED);
             ALTER TABLE t ADD COLUMN e DATE DEFAULT '04/05/2020';
             ALTER TABLE t ALTER COLUMN e SET DEFAULT '05/06/2020';
             CREATE INDEX ON t (id) WHERE d > '01/02/2020';
             CREATE VIEW v AS SELECT id, a >= '01/07/2020 10:00' AS is_late, a::date AS day FROM t",
        )
        .await
        .unwrap();
    let mut other = Session::new(&database);
    for insert in ["INSERT INTO t (id) VALUES (1)", "INSERT INTO t (id) SELECT 2"] {
        other.execute(insert).await.unwrap();
    }
    session.execute("INSERT INTO t (id) VALUES (3)").await.unwrap();
    let all = "SELECT a::text || ' ' || d || ' ' || before || ' ' || e FROM t ORDER BY id";
    let row = "2020-07-01 14:00:00+00 2020-03-02 true 2020-06-05";
    assert_eq!(values(&mut other, all).await, [row; 3]);
    // In January, as the session that made the table has read it.
    assert_eq!(refused(&mut other, "INSERT INTO t VALUES (4, '2020-01-15')").await, "23514");
    assert_eq!(values(&mut other, "SELECT is_late::text || ' ' || day FROM v").await, ["true 2020-07-01"; 3]);
    other.execute("SET TimeZone = 'Asia/Tokyo'").await.unwrap();
    other.execute("INSERT INTO t VALUES (4, '2020-07-02 02:00', '2020-01-01')").await.unwrap();
    // Casts of columns are the reader's.
    assert_eq!(value(&mut other, "SELECT is_late::text || ' ' || day FROM v WHERE id = 4").await, "true 2020-07-02");
    let mut utc = Session::new(&database);
    assert_eq!(value(&mut utc, "SELECT is_late::text || ' ' || day FROM v WHERE id = 4").await, "true 2020-07-01");
}

#[tokio::test]
async fn what_is_stored_must_not_depend_on_settings() {
    let mut session = Session::new(&database());
    session.execute("CREATE TABLE t (a TIMESTAMPTZ, b TIMESTAMP, x TEXT)").await.unwrap();
    for index in ["a::date", "date_trunc('day', a)", "b::text", "x::date", "a + INTERVAL '1 day'", "b::timestamptz"] {
        assert_eq!(refused(&mut session, &format!("CREATE INDEX ON t (({index}))")).await, "42P17", "{index}");
    }
    for index in ["(a AT TIME ZONE 'UTC')::date", "date_trunc('day', b)", "b + INTERVAL '1 day'"] {
        session.execute(&format!("CREATE INDEX ON t (({index}))")).await.unwrap();
    }
    let generated = "CREATE TABLE g (a TIMESTAMPTZ, d DATE GENERATED ALWAYS AS (a::date) STORED)";
    assert_eq!(refused(&mut session, generated).await, "42P17");
}

#[tokio::test]
async fn copies_follow_the_settings() {
    let mut session = Session::new(&database());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.csv").display().to_string();
    session.execute("CREATE TABLE t (a TIMESTAMPTZ, d DATE, i INTERVAL)").await.unwrap();
    session.execute("SET TimeZone = 'Europe/Berlin'; SET DateStyle = 'sql, dmy'").await.unwrap();
    session.execute("SET IntervalStyle = 'sql_standard'").await.unwrap();
    session.execute("INSERT INTO t VALUES ('01/07/2020 12:00', '02/03/2020', '-1 day 2 hours')").await.unwrap();
    session.execute(&format!("COPY t TO '{file}'")).await.unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "01/07/2020 12:00:00 CEST,02/03/2020,-1 2:00:00\n");
    session.execute(&format!("COPY t FROM '{file}'; RESET ALL")).await.unwrap();
    let all = "SELECT a::text || ' ' || d || ' ' || i FROM t";
    assert_eq!(values(&mut session, all).await, ["2020-07-01 10:00:00+00 2020-03-02 -1 days -02:00:00"; 2]);
}
