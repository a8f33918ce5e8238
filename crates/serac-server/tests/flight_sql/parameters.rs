//! Many rows of parameters for a prepared statement: bounded in memory, and cancelled between two
//! executions, too.

use super::*;
use datafusion::arrow::array::NullArray;

/// Rows of parameters that are executed for so long that there is time to cancel them.
const MANY: usize = 1 << 20;

/// Rows of NULLs, which take no bytes.
fn nulls(columns: usize, rows: usize) -> RecordBatch {
    let column = |i: usize| (format!("${}", i + 1), Arc::new(NullArray::new(rows)) as ArrayRef);
    RecordBatch::try_from_iter((0..columns).map(column)).unwrap()
}

async fn with_table() -> (Served, FlightSqlServiceClient<Channel>) {
    let served = Served::open().await;
    let mut client = served.client().await;
    client.execute_update("CREATE TABLE t (a BIGINT, b BIGINT)".into(), None).await.unwrap();
    client.execute_update("CREATE INDEX t_a ON t (a)".into(), None).await.unwrap();
    (served, client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_without_bytes_are_bounded_by_their_number() {
    let (served, mut client) = with_table().await;
    let mut prepared = client.prepare("INSERT INTO t VALUES ($1, $2)".into(), None).await.unwrap();
    prepared.set_parameters(nulls(2, 1 << 24)).unwrap();
    let refused = code(prepared.execute_update().await.unwrap_err());
    assert!(refused.contains("54000"), "{refused}");
    prepared.set_parameters(nulls(2, 3)).unwrap();
    assert_eq!(prepared.execute_update().await.unwrap(), 3);
    assert_eq!(number(&mut client, "SELECT count(*) FROM t", None).await, 3);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_returned_for_many_rows_of_parameters_are_bounded() {
    let (served, mut client) = with_table().await;
    let insert = "INSERT INTO t VALUES ($1, 1) RETURNING b, repeat('x', 100000) AS x";
    let mut prepared = client.prepare(insert.into(), None).await.unwrap();
    prepared.set_parameters(nulls(1, 4_000)).unwrap();
    let refused = code(prepared.execute().await.unwrap_err());
    assert!(refused.contains("54000"), "{refused}");
    assert_eq!(number(&mut client, "SELECT count(*) FROM t", None).await, 0);
    prepared.set_parameters(nulls(1, 2_500)).unwrap();
    let info = prepared.execute().await.unwrap();
    let returned = rows(&mut client, info).await;
    assert_eq!(returned.iter().map(RecordBatch::num_rows).sum::<usize>(), 2_500);
    assert_eq!(number(&mut client, "SELECT count(*) FROM t", None).await, 2_500);
    served.end().await;
}

/// By itself it is committed when its rows are there, so it does not fail for their number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_returned_for_one_row_of_parameters_are_no_error_of_a_change_that_is_done() {
    let (served, mut client) = with_table().await;
    let insert = "INSERT INTO t SELECT g, $1 FROM generate_series(1, 2800) g RETURNING repeat('x', 100000) AS x";
    let mut prepared = client.prepare(insert.into(), None).await.unwrap();
    prepared.set_parameters(nulls(1, 1)).unwrap();
    let info = prepared.execute().await;
    assert_eq!(number(&mut client, "SELECT count(*) FROM t", None).await, 2_800);
    assert_eq!(info.unwrap().total_records, 2_800);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_ends_what_runs_for_many_rows() {
    let (served, mut client) = with_table().await;
    let mut prepared = client.prepare("INSERT INTO t VALUES ($1, 1)".into(), None).await.unwrap();
    prepared.set_parameters(nulls(1, MANY)).unwrap();
    let gone = tokio::time::timeout(Duration::from_millis(300), prepared.execute_update()).await;
    assert!(gone.is_err(), "there is time to go");
    // The table can be changed once it has no writers.
    let until = Instant::now() + Duration::from_secs(60);
    while let Err(error) = client.execute_update("ALTER TABLE t ADD COLUMN c BIGINT".into(), None).await {
        assert!(Instant::now() < until, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(number(&mut client, "SELECT count(*) FROM t", None).await, 0);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_for_many_rows_waits_for_its_reader_and_is_cancelled() {
    let (served, mut client) = with_table().await;
    let mut prepared = client.prepare("SELECT b FROM t WHERE a = $1".into(), None).await.unwrap();
    prepared.set_parameters(nulls(1, MANY)).unwrap();
    let info = prepared.execute().await.unwrap();
    let mut raw = FlightServiceClient::new(served.channel().await);
    let mut stream = raw.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap().into_inner();
    stream.next().await.unwrap().unwrap();
    assert!(cancels(&mut raw, &info).await, "it is running");
    let status = stream.try_collect::<Vec<FlightData>>().await.unwrap_err();
    assert_eq!(status.code(), Code::Cancelled, "{status}");
    served.end().await;
}
