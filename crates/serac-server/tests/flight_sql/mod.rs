//! Clients of Flight SQL against the server: ADBC, and single messages.

mod parameters;

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    ActionBeginSavepointRequest, ActionBeginSavepointResult, ActionCancelQueryRequest, ActionCancelQueryResult,
    ActionEndSavepointRequest, Any, CommandGetCrossReference, CommandGetExportedKeys, CommandGetImportedKeys,
    CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetXdbcTypeInfo, CommandStatementIngest, CommandStatementQuery,
    ProstMessageExt, TableDefinitionOptions,
};
use arrow_flight::{Action, FlightClient, FlightData, FlightDescriptor, FlightInfo, Ticket};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int32Type, Int64Type, UInt8Type};
use futures::{StreamExt, TryStreamExt};
use prost::Message;
use rand::Rng;
use serac_engine::Database;
use serac_export::flight::{Caller, Extension, FlightOptions, FlightServer};
use serac_net::listen::Listener;
use serac_server::{FlightSql, FlightSqlOptions, Verifier, tls_config};
use serac_sql::{Session, SqlDatabase, SqlOptions};
use serac_storage::{BlockNo, StorageOptions};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::Code;
use tonic::transport::Channel;

struct Served {
    address: SocketAddr,
    /// With the Unix socket "flight".
    folder: tempfile::TempDir,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

fn database() -> SqlDatabase {
    let options = StorageOptions { freeze_after: None, ..StorageOptions::default() };
    SqlDatabase::new(Database::open_with(options).unwrap(), &SqlOptions::default()).unwrap()
}

impl Served {
    async fn new(options: FlightSqlOptions, flight: FlightOptions) -> Self {
        let db = database();
        let extension = Arc::new(FlightSql::new(db.clone(), options));
        let folder = tempfile::tempdir().unwrap();
        let tcp = Listener::tcp("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let unix = Listener::unix(&folder.path().join("flight")).unwrap();
        let server = FlightServer::new(db.database().clone(), vec![tcp, unix], flight).with_extension(extension);
        let address = server.local_address().unwrap();
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self { address, folder, stop, running }
    }

    async fn open() -> Self {
        Self::new(FlightSqlOptions::default(), FlightOptions::default()).await
    }

    async fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    async fn client(&self) -> FlightSqlServiceClient<Channel> {
        FlightSqlServiceClient::new(self.channel().await)
    }

    async fn end(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(Duration::from_secs(20), self.running).await.expect("it stops").unwrap();
    }

    /// Runs a part of clients.py.
    async fn python(&self, scheme: &str, arguments: &[&str]) {
        let python = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/bin/python");
        assert!(Path::new(python).exists(), "Python with ADBC is missing: run scripts/readers");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/flight_sql/clients.py");
        let uri = match scheme {
            "grpc+unix" => format!("{scheme}://{}", self.folder.path().join("flight").display()),
            _ => format!("{scheme}://{}", self.address),
        };
        let mut command = Command::new("timeout");
        command.args(["150", python, script, arguments[0], &uri]).args(&arguments[1..]);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && out.ends_with("done\n"), "{out}{err}");
    }
}

async fn rows(client: &mut FlightSqlServiceClient<Channel>, info: FlightInfo) -> Vec<RecordBatch> {
    let mut batches = Vec::new();
    for endpoint in info.endpoint {
        let stream = client.do_get(endpoint.ticket.unwrap()).await.unwrap();
        batches.extend(stream.try_collect::<Vec<_>>().await.unwrap());
    }
    batches
}

/// The only value of a query.
async fn number(client: &mut FlightSqlServiceClient<Channel>, sql: &str, txn: Option<bytes::Bytes>) -> i64 {
    let info = client.execute(sql.into(), txn).await.unwrap();
    let number = cast(rows(client, info).await[0].column(0), &DataType::Int64).unwrap();
    number.as_primitive::<Int64Type>().value(0)
}

/// Cancels a flight's statement; returns whether there was one.
async fn cancels(client: &mut FlightServiceClient<Channel>, info: &FlightInfo) -> bool {
    let body = ActionCancelQueryRequest { info: info.encode_to_vec().into() }.as_any().encode_to_vec();
    let action = Action { r#type: "CancelQuery".into(), body: body.into() };
    let result = client.do_action(action).await.unwrap().into_inner().next().await.unwrap().unwrap();
    let result: ActionCancelQueryResult = Any::decode(&*result.body).unwrap().unpack().unwrap().unwrap();
    result.result == 1
}

fn code(error: arrow_flight::error::FlightError) -> String {
    error.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adbc_runs_statements_and_transactions() {
    let served = Served::open().await;
    served.python("grpc", &["statements,transactions,sessions"]).await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adbc_connects_to_a_unix_socket_and_says_which_types_it_knows() {
    let served = Served::open().await;
    served.python("grpc+unix", &["forms"]).await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adbc_ingests_batches_for_pandas_and_polars() {
    let served = Served::open().await;
    served.python("grpc", &["ingest,frames,cancelling"]).await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adbc_finds_what_there_is() {
    let served = Served::open().await;
    served.python("grpc", &["metadata"]).await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_log_in_and_others_do_not() {
    let users = [("ada".to_owned(), Verifier::new("secret:with colon"))].into();
    let served = Served::new(FlightSqlOptions { users, ..FlightSqlOptions::default() }, FlightOptions::default()).await;
    served.python("grpc", &["passwords", "ada", "secret:with colon"]).await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_get_what_they_may_read() {
    let served = Served::open().await;
    served.python("grpc", &["roles"]).await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_encrypted_with_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output();
    if !made.is_ok_and(|output| output.status.success()) {
        println!("skipped: there is no openssl to make a certificate with");
        return;
    }
    let tls = Some(tls_config(&certificate, &key).unwrap());
    let served = Served::new(FlightSqlOptions::default(), FlightOptions { tls, ..FlightOptions::default() }).await;
    served.python("grpc+tls", &["encrypted", certificate.to_str().unwrap()]).await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_jdbc_driver_works() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/java"));
    let named = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("flight-sql-jdbc-driver");
    let files = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let Some(driver) = files.filter(|file| named(&file.file_name())).map(|file| file.path()).next() else {
        println!("skipped: the driver is missing (scripts/readers gets it if there are java and mvn)");
        return;
    };
    let served = Served::open().await;
    let url = format!("jdbc:arrow-flight-sql://{}/?useEncryption=false", served.address);
    let mut command = Command::new("timeout");
    command.args(["150", "java", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp"]).arg(driver);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/flight_sql/Jdbc.java")).arg(url);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.ends_with("done\n"), "{out}{err}");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn savepoints_and_timeouts_of_transactions() {
    let options = FlightSqlOptions { transaction_timeout: Duration::from_millis(800), ..FlightSqlOptions::default() };
    let flight = FlightOptions { lease: Duration::from_millis(400), ..FlightOptions::default() };
    let served = Served::new(options, flight).await;
    let mut client = served.client().await;
    client.execute_update("CREATE TABLE t (id BIGINT PRIMARY KEY)".into(), None).await.unwrap();
    let txn = client.begin_transaction().await.unwrap();
    assert_eq!(client.execute_update("INSERT INTO t VALUES (1)".into(), Some(txn.clone())).await.unwrap(), 1);
    let mut raw = FlightServiceClient::new(served.channel().await);
    let mut act = async |kind: &str, body: Any| {
        let action = Action { r#type: kind.into(), body: body.encode_to_vec().into() };
        let results = raw.do_action(action).await?.into_inner();
        Ok::<_, tonic::Status>(results.try_collect::<Vec<_>>().await?.pop())
    };
    let begin = ActionBeginSavepointRequest { transaction_id: txn.clone(), name: "here \"it\" is".into() };
    let savepoint = act("BeginSavepoint", begin.as_any()).await.unwrap().unwrap();
    let savepoint: ActionBeginSavepointResult = Any::decode(&*savepoint.body).unwrap().unpack().unwrap().unwrap();
    client.execute_update("INSERT INTO t VALUES (2)".into(), Some(txn.clone())).await.unwrap();
    let again = client.execute_update("INSERT INTO t VALUES (1)".into(), Some(txn.clone())).await;
    assert!(code(again.unwrap_err()).contains("23505"));
    let end = |action: i32| ActionEndSavepointRequest { savepoint_id: savepoint.savepoint_id.clone(), action }.as_any();
    assert_eq!(act("EndSavepoint", end(0)).await.unwrap_err().code(), Code::InvalidArgument);
    act("EndSavepoint", end(2)).await.unwrap();
    client.execute_update("INSERT INTO t VALUES (3)".into(), Some(txn.clone())).await.unwrap();
    act("EndSavepoint", end(1)).await.unwrap();
    assert_eq!(number(&mut client, "SELECT sum(id) FROM t", Some(txn.clone())).await, 4);
    // Batches go in with the transaction.
    let ingest = CommandStatementIngest {
        table_definition_options: Some(TableDefinitionOptions { if_not_exist: 1, if_exists: 1 }),
        table: "ingested".into(),
        transaction_id: Some(txn.clone()),
        ..CommandStatementIngest::default()
    };
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let batch = RecordBatch::try_from_iter([("x", column)]).unwrap();
    assert_eq!(client.execute_ingest(ingest, futures::stream::iter([Ok(batch)])).await.unwrap(), 2);
    assert_eq!(number(&mut client, "SELECT sum(x) FROM ingested", Some(txn.clone())).await, 3);
    assert!(code(client.execute("SELECT * FROM ingested".into(), None).await.unwrap_err()).contains("42P01"));
    assert_eq!(number(&mut client, "SELECT count(*) FROM t", None).await, 0);
    client.end_transaction(txn.clone(), arrow_flight::sql::EndTransaction::Commit).await.unwrap();
    assert_eq!(number(&mut client, "SELECT sum(id) FROM t", None).await, 4);
    assert_eq!(number(&mut client, "SELECT sum(x) FROM ingested", None).await, 3);
    assert!(client.execute("SELECT 1".into(), Some(txn)).await.is_err());

    // An abandoned transaction: its rows are gone, and its prepared statements do not continue
    // without it.
    let txn = client.begin_transaction().await.unwrap();
    let mut insert = client.prepare("INSERT INTO t VALUES (9)".into(), Some(txn.clone())).await.unwrap();
    assert_eq!(insert.execute_update().await.unwrap(), 1);
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        // Writers do not wait, so the row's key is free again once the transaction has been rolled
        // back.
        if client.execute_update("INSERT INTO t VALUES (9)".into(), None).await.is_ok() {
            break;
        }
        assert!(Instant::now() < until, "the transaction is still open");
    }
    assert!(code(insert.execute_update().await.unwrap_err()).contains("25P03"));
    let ended = client.end_transaction(txn, arrow_flight::sql::EndTransaction::Commit).await;
    assert!(code(ended.unwrap_err()).contains("does not exist"));
    // A commit of a failed transaction is no commit.
    for wrong in
        ["INSERT INTO t VALUES (9)", "SELEC 9", "SELECT 9; SELECT 10", "SELECT nothing FROM t", "RELEASE nowhere"]
    {
        let txn = client.begin_transaction().await.unwrap();
        client.execute_update("INSERT INTO t VALUES (10)".into(), Some(txn.clone())).await.unwrap();
        assert!(client.execute_update(wrong.into(), Some(txn.clone())).await.is_err(), "{wrong}");
        let ended = client.end_transaction(txn, arrow_flight::sql::EndTransaction::Commit).await;
        assert!(code(ended.unwrap_err()).contains("25P02"), "{wrong}");
    }
    assert_eq!(number(&mut client, "SELECT count(*) FROM t WHERE id = 10", None).await, 0);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_types_and_properties() {
    let served = Served::open().await;
    let mut client = served.client().await;
    for sql in [
        "CREATE TABLE p (a BIGINT, b TEXT, CONSTRAINT p_key PRIMARY KEY (b, a))",
        "CREATE TABLE c (id BIGINT PRIMARY KEY, x BIGINT, y TEXT,
            CONSTRAINT c_p FOREIGN KEY (x, y) REFERENCES p (a, b) ON DELETE CASCADE ON UPDATE SET NULL)",
    ] {
        client.execute_update(sql.into(), None).await.unwrap();
    }
    let text = |batch: &RecordBatch, column: &str| -> Vec<String> {
        let column = batch.column_by_name(column).unwrap().as_string::<i32>();
        column.iter().map(|text| text.unwrap().to_owned()).collect()
    };
    let table = |name: &str| name.to_owned();
    let keys = CommandGetPrimaryKeys { catalog: None, db_schema: Some("public".into()), table: table("p") };
    let info = client.get_primary_keys(keys).await.unwrap();
    let keys = rows(&mut client, info).await.remove(0);
    assert_eq!(
        (text(&keys, "column_name"), text(&keys, "key_name")),
        (vec!["b".into(), "a".into()], vec!["p_key".into(); 2])
    );
    assert_eq!(keys.column(4).as_primitive::<Int32Type>().values(), &[1, 2]);
    let exported = client
        .get_exported_keys(CommandGetExportedKeys { catalog: Some("serac".into()), db_schema: None, table: table("p") })
        .await
        .unwrap();
    let imported = client
        .get_imported_keys(CommandGetImportedKeys { catalog: None, db_schema: None, table: table("c") })
        .await
        .unwrap();
    let crossed = client
        .get_cross_reference(CommandGetCrossReference {
            pk_table: table("p"),
            fk_table: table("c"),
            ..CommandGetCrossReference::default()
        })
        .await
        .unwrap();
    for info in [exported, imported, crossed] {
        let keys = rows(&mut client, info).await.remove(0);
        assert_eq!(
            (text(&keys, "pk_table_name"), text(&keys, "pk_column_name")),
            (vec!["p".into(); 2], vec!["b".into(), "a".into()])
        );
        assert_eq!(
            (text(&keys, "fk_column_name"), text(&keys, "pk_key_name")),
            (vec!["y".into(), "x".into()], vec!["p_key".into(); 2])
        );
        // SET NULL, CASCADE.
        let rules = ["update_rule", "delete_rule"]
            .map(|rule| keys.column_by_name(rule).unwrap().as_primitive::<UInt8Type>().value(0));
        assert_eq!(rules, [2, 0]);
    }
    let none = CommandGetImportedKeys { catalog: Some("other".into()), db_schema: None, table: table("c") };
    let info = client.get_imported_keys(none).await.unwrap();
    assert_eq!(info.total_records, 0);
    let info = client.get_xdbc_type_info(CommandGetXdbcTypeInfo { data_type: None }).await.unwrap();
    let types = rows(&mut client, info).await.remove(0);
    assert!(types.num_rows() == 18 && text(&types, "type_name").contains(&"numeric".to_owned()), "{types:?}");
    let info = client.get_xdbc_type_info(CommandGetXdbcTypeInfo { data_type: Some(-5) }).await.unwrap();
    assert_eq!(text(&rows(&mut client, info).await[0], "type_name"), ["bigint"]);
    // Name, read-only, transactions: a union of several types arrives.
    let mut raw = FlightClient::new(served.channel().await);
    let command = CommandGetSqlInfo { info: vec![0, 3, 8] }.as_any().encode_to_vec();
    let info = raw.get_flight_info(FlightDescriptor::new_cmd(command)).await.unwrap();
    let stream = raw.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
    let properties = stream.try_collect::<Vec<_>>().await.unwrap().remove(0);
    let values = properties.column(1).as_union();
    assert_eq!(properties.num_rows(), 3);
    assert_eq!(values.value(0).as_string::<i32>().value(0), "SeracDB");
    assert!(!values.value(1).as_boolean().value(0));
    assert_eq!(values.value(2).as_primitive::<Int32Type>().value(0), 2);
    served.end().await;
}

/// The addresses of an array's buffers.
fn places(array: &dyn Array) -> Vec<*const u8> {
    array.to_data().buffers().iter().filter(|buffer| !buffer.is_empty()).map(|buffer| buffer.as_ptr()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_blocks_are_lent_to_queries() {
    let db = database();
    let mut session = Session::new(&db);
    for sql in [
        "CREATE TABLE t (id BIGINT, name TEXT, day DATE)",
        "INSERT INTO t SELECT value, 'a name that is long enough ' || value, DATE '2024-01-01' FROM generate_series(1, 200000) AS g (value)",
    ] {
        session.execute(sql).await.unwrap();
    }
    let table = db.database().catalog().table("public", "t").unwrap().clone();
    let (frozen, blocks) = db.database().storage().freeze_table(&table.data, Duration::from_secs(20));
    assert!(frozen == blocks && blocks > 2, "{frozen} of {blocks} blocks are frozen");
    let mut lent = Vec::new();
    for no in 0..table.data.block_count() {
        let block = table.data.block(BlockNo(no)).unwrap();
        let arrays = block.frozen().unwrap().arrays(table.data.schema());
        lent.extend(arrays.iter().flat_map(|array| places(array)));
    }
    let service = FlightSql::new(db.clone(), FlightSqlOptions::default());
    let caller = Caller::default();
    for sql in ["SELECT * FROM t", "SELECT day, name FROM t", "SELECT name AS n FROM t"] {
        let query = CommandStatementQuery { query: sql.into(), transaction_id: None };
        let descriptor = FlightDescriptor::new_cmd(query.as_any().encode_to_vec());
        let info = service.flight_info(&caller, descriptor).await.unwrap();
        let (_, batches) = service.get(&caller, &info.endpoint[0].ticket.as_ref().unwrap().ticket).await.unwrap();
        let batches: Vec<RecordBatch> = batches.try_collect().await.unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 200_000);
        for column in batches.iter().flat_map(|batch| batch.columns()) {
            assert!(
                places(column).iter().all(|place| lent.contains(place)),
                "{sql}: {} was copied",
                column.data_type()
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_polls_for_a_flight_has_it_at_once() {
    let served = Served::open().await;
    let mut raw = FlightServiceClient::new(served.channel().await);
    let query = CommandStatementQuery { query: "SELECT 41 + 1".into(), transaction_id: None };
    let descriptor = FlightDescriptor::new_cmd(query.as_any().encode_to_vec());
    let polled = raw.poll_flight_info(descriptor).await.unwrap().into_inner();
    // No descriptor: there is nothing more to wait for.
    assert_eq!((polled.flight_descriptor, polled.progress), (None, Some(1.0)));
    let batches = rows(&mut served.client().await, polled.info.unwrap()).await;
    assert_eq!(batches[0].column(0).as_primitive::<Int32Type>().value(0), 42);
    let wrong = CommandStatementQuery { query: "SELECT FROM nothing".into(), transaction_id: None };
    let wrong = raw.poll_flight_info(FlightDescriptor::new_cmd(wrong.as_any().encode_to_vec())).await.unwrap_err();
    assert!(wrong.message().contains("42P01"), "{wrong}");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_is_cancelled_by_its_flight() {
    let served = Served::open().await;
    let mut client = served.client().await;
    let info = client.execute("SELECT count(*) FROM generate_series(1, 100000000000)".into(), None).await.unwrap();
    let ticket = info.endpoint[0].ticket.clone().unwrap();
    let mut raw = FlightServiceClient::new(served.channel().await);
    let running = tokio::spawn(async move {
        let stream = raw.do_get(ticket).await?.into_inner();
        stream.try_collect::<Vec<FlightData>>().await
    });
    let mut raw = FlightServiceClient::new(served.channel().await);
    serac_testing::until("the query runs", async || cancels(&mut raw, &info).await).await;
    let status = tokio::time::timeout(Duration::from_secs(20), running).await.unwrap().unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Cancelled, "{status}");
    assert!(status.message().contains("57014"));
    assert_eq!(status.metadata().get("sqlstate").unwrap(), "57014");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_is_refused_and_the_server_goes_on() {
    let served = Served::open().await;
    let mut rng = serac_testing::rng();
    let mut client = FlightServiceClient::new(served.channel().await);
    let query = CommandStatementQuery { query: "SELECT 1 AS a".into(), transaction_id: Some(vec![7; 16].into()) };
    let good = query.as_any().encode_to_vec();
    let names = [
        "CreatePreparedStatement",
        "ClosePreparedStatement",
        "EndTransaction",
        "BeginSavepoint",
        "EndSavepoint",
        "CancelQuery",
        "CancelFlightInfo",
        "RenewFlightEndpoint",
        "nothing",
    ];
    for i in 0..if serac_testing::stress() { 20_000 } else { 300 } {
        let mut bytes = good.clone();
        match rng.random_range(0..3) {
            0 => bytes.truncate(rng.random_range(0..bytes.len())),
            1 => (0..4).for_each(|_| {
                let at = rng.random_range(0..bytes.len());
                bytes[at] = rng.random();
            }),
            _ => bytes = (0..rng.random_range(0..80)).map(|_| rng.random()).collect(),
        }
        let refused = match i % 4 {
            0 => client.get_flight_info(FlightDescriptor::new_cmd(bytes)).await.err(),
            1 => client.do_get(Ticket::new(bytes)).await.err(),
            2 => {
                let action = Action { r#type: names[rng.random_range(0..names.len())].into(), body: bytes.into() };
                client.do_action(action).await.err()
            }
            _ => {
                let header: Vec<u8> = (0..rng.random_range(0..40)).map(|_| rng.random()).collect();
                let message = FlightData {
                    flight_descriptor: Some(FlightDescriptor::new_cmd(bytes)),
                    data_header: header.into(),
                    ..FlightData::default()
                };
                client.do_put(futures::stream::iter([message])).await.err()
            }
        };
        if let Some(status) = refused {
            assert_ne!(status.code(), Code::Unknown, "{status}");
            assert!(!status.message().contains("panic"), "{status}");
        }
    }
    // A batch that is no Arrow, for a statement that is there.
    let mut sql = served.client().await;
    sql.execute_update("CREATE TABLE t (a BIGINT)".into(), None).await.unwrap();
    let ingest = CommandStatementIngest {
        table_definition_options: Some(TableDefinitionOptions { if_not_exist: 1, if_exists: 2 }),
        table: "t".into(),
        ..Default::default()
    };
    for header in [vec![], vec![1, 2, 3], vec![0xff; 64]] {
        let message = FlightData {
            flight_descriptor: Some(FlightDescriptor::new_cmd(ingest.as_any().encode_to_vec())),
            data_header: header.into(),
            ..FlightData::default()
        };
        let status = client.do_put(futures::stream::iter([message])).await.expect_err("it is refused");
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    }
    assert_eq!(number(&mut sql, "SELECT count(*) FROM t", None).await, 0);
    // A message that is longer than any that is taken.
    let long = vec![b'x'; 2 << 20];
    let status = client.get_flight_info(FlightDescriptor::new_cmd(long)).await.unwrap_err();
    assert!(matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted), "{status}");
    served.end().await;
}

/// A transaction's id is that of one transaction, up to its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_is_not_taken_for_another() {
    use arrow_flight::sql::EndTransaction::{Commit, Rollback};
    let served = Served::open().await;
    let mut client = served.client().await;
    client.execute_update("CREATE TABLE t (id BIGINT PRIMARY KEY)".into(), None).await.unwrap();
    // A transaction that a statement has ended cannot be ended again, as if later statements were
    // in it.
    for end in [Commit, Rollback] {
        let txn = client.begin_transaction().await.unwrap();
        client.execute_update("COMMIT".into(), Some(txn.clone())).await.unwrap();
        assert!(code(client.end_transaction(txn, end).await.unwrap_err()).contains("25P01"));
    }
    // A client with a session has one at a time.
    let mut raw = FlightServiceClient::new(served.channel().await);
    let offered = raw.list_actions(arrow_flight::Empty {}).await.unwrap();
    let cookie = offered.metadata().get("set-cookie").unwrap().to_str().unwrap().split(';').next().unwrap();
    client.set_header("cookie", cookie);
    let txn = client.begin_transaction().await.unwrap();
    client.execute_update("INSERT INTO t VALUES (1)".into(), Some(txn.clone())).await.unwrap();
    assert!(code(client.begin_transaction().await.unwrap_err()).contains("25001"));
    client.end_transaction(txn, Rollback).await.unwrap();
    assert_eq!(number(&mut client, "SELECT count(*) FROM t", None).await, 0);
    let txn = client.begin_transaction().await.unwrap();
    client.end_transaction(txn, Commit).await.unwrap();
    served.end().await;
}
