//! Connections: rows that outlive their statement, transactions, folders that are shared.

use arrow::array::{AsArray, RecordBatch, RecordBatchIterator, RecordBatchReader};
use arrow::datatypes::Int64Type;
use serac_connection::{Connection, DatabaseUse, Options, Outcome, RowReader, Statement};
use seracdb::{IngestTarget, ScalarValue, SqlError, TransactionStatus};

fn connection() -> Connection {
    Connection::new(DatabaseUse::in_memory(Options::default()).unwrap())
}

fn rows(outcome: Outcome) -> RowReader {
    match outcome {
        Outcome::Rows(rows) => RowReader::new(rows),
        Outcome::Changed(_) => panic!("it gives rows"),
    }
}

fn count(connection: &Connection, query: &str) -> i64 {
    let batches = rows(connection.execute(query).unwrap()).collect_all().unwrap();
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

const MANY: &str = "SELECT i FROM generate_series(1, 100000) AS g (i)";

#[test]
fn rows_outlive_the_next_statement_and_end_with_the_connection() {
    let connection = connection();
    let (first, second) = (rows(connection.execute(MANY).unwrap()), rows(connection.execute(MANY).unwrap()));
    assert_eq!(count(&connection, "SELECT count(*) FROM generate_series(1, 3)"), 3);
    let read = |reader: RowReader| reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>();
    assert_eq!((read(second), read(first)), (100_000, 100_000));
    let mut left = rows(connection.execute("SELECT i FROM generate_series(1, 10000000) AS g (i)").unwrap());
    connection.close().unwrap();
    let error = std::iter::from_fn(|| left.next_stored().transpose()).find_map(Result::err).unwrap();
    assert_eq!(error.sqlstate, sqlstate::CONNECTION_FAILURE);
    assert_eq!(connection.execute("SELECT 1").unwrap_err().sqlstate, sqlstate::CONNECTION_FAILURE);
}

#[test]
fn rows_of_one_connection_go_into_another_one() {
    let connection = connection();
    let other = Connection::new(connection.another_use().unwrap());
    let target = IngestTarget { table: "t".into(), create: true, ..IngestTarget::default() };
    let reader = rows(other.execute(MANY).unwrap());
    assert_eq!(connection.ingest(&target, reader).unwrap(), 100_000);
    // Rows that a statement of the same connection has given before.
    let reader = rows(connection.execute("SELECT i FROM t").unwrap());
    assert_eq!(connection.ingest(&target, reader).unwrap(), 100_000);
    assert_eq!(count(&connection, "SELECT count(*) FROM t"), 200_000);
}

#[test]
fn a_statement_that_reads_rows_of_its_own_connection_is_refused() {
    let connection = connection();
    connection.execute("CREATE TABLE t (i INT)").unwrap();
    let schema = rows(connection.execute("SELECT i FROM t").unwrap()).schema();
    let own = connection.clone();
    let batches = std::iter::once_with(move || match own.execute("SELECT 1") {
        Ok(_) => panic!("the connection is not free"),
        Err(error) => Err::<RecordBatch, _>(arrow::error::ArrowError::ExternalError(Box::new(error))),
    });
    let target = IngestTarget { table: "t".into(), ..IngestTarget::default() };
    let error = connection.ingest(&target, RecordBatchIterator::new(batches, schema)).unwrap_err();
    assert_eq!(error.sqlstate, sqlstate::OBJECT_IN_USE);
    assert_eq!(count(&connection, "SELECT count(*) FROM t"), 0);
}

#[test]
fn without_autocommit_reads_begin_a_transaction() {
    let connection = connection();
    let other = Connection::new(connection.another_use().unwrap());
    connection.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT); INSERT INTO t VALUES (1, 0)").unwrap();
    connection.set_autocommit(false).unwrap();
    assert_eq!(count(&connection, "SELECT n::BIGINT FROM t"), 0);
    assert_eq!(connection.transaction_status().unwrap(), TransactionStatus::Open);
    let mut update = Statement::new(&other, "UPDATE t SET n = $1 WHERE id = $2").unwrap();
    assert!(matches!(update.execute(&[5i64.into(), 1i64.into()]), Ok(Outcome::Changed(Some(1)))));
    assert_eq!(count(&connection, "SELECT n::BIGINT FROM t"), 0);
    // What it would write rests on a row that has changed.
    let error = connection.execute("UPDATE t SET n = n + 1").unwrap_err();
    assert_eq!(error.sqlstate, sqlstate::SERIALIZATION_FAILURE);
    assert_eq!(connection.commit().unwrap_err().sqlstate, sqlstate::IN_FAILED_SQL_TRANSACTION);
    connection.set_autocommit(true).unwrap();
    assert_eq!(count(&connection, "SELECT n::BIGINT FROM t"), 5);
}

#[test]
fn statements_take_parameters_of_other_types() {
    let connection = connection();
    connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT)").unwrap();
    let mut insert = Statement::new(&connection, "INSERT INTO t VALUES (:id, :name)").unwrap();
    assert_eq!(insert.parameter_names().unwrap(), ["id", "name"]);
    assert_eq!(insert.parameter_count().unwrap(), 2);
    let text = |text: &str| ScalarValue::Utf8(Some(text.into()));
    insert.execute(&[1i32.into(), text("a")]).unwrap();
    insert.execute(&[text("2"), text("b")]).unwrap();
    insert.execute(&[3i64.into(), ScalarValue::Null]).unwrap();
    assert_eq!(insert.execute(&[3i64.into()]).unwrap_err().sqlstate, sqlstate::PROTOCOL_VIOLATION);
    assert_eq!(count(&connection, "SELECT sum(id)::BIGINT FROM t WHERE name IS NULL OR name IN ('a', 'b')"), 6);
    // The types of its columns change under it.
    connection.execute("DROP TABLE t; CREATE TABLE t (id TEXT PRIMARY KEY, name TEXT)").unwrap();
    insert.execute(&[4i64.into(), text("d")]).unwrap();
    assert_eq!(count(&connection, "SELECT count(*) FROM t WHERE id = '4'"), 1);
}

#[test]
fn a_folder_is_open_once_with_one_set_of_options() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let refused = |result: Result<DatabaseUse, SqlError>| result.unwrap_err().sqlstate;
    assert_eq!(refused(DatabaseUse::in_folder(&path, Options::default(), false)), sqlstate::INVALID_CATALOG_NAME);
    let mut options = Options::default();
    assert!(options.set("threads", "2").unwrap() && !options.set("colour", "green").unwrap());
    assert_eq!(options.set("memory_limit", "much").unwrap_err().sqlstate, sqlstate::INVALID_PARAMETER_VALUE);
    let connection = Connection::new(DatabaseUse::in_folder(&path, options, true).unwrap());
    connection.execute("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)").unwrap();
    let other = Connection::new(DatabaseUse::in_folder(&path, Options::default(), true).unwrap());
    assert_eq!(count(&other, "SELECT count(*) FROM t"), 1);
    let differing = Options { threads: Some(3), ..options };
    assert_eq!(refused(DatabaseUse::in_folder(&path, differing, true)), sqlstate::OBJECT_IN_USE);
    connection.close().unwrap();
    other.close().unwrap();
    let again = Connection::new(DatabaseUse::in_folder(&path, differing, true).unwrap());
    assert_eq!(count(&again, "SELECT count(*) FROM t"), 1);
}
