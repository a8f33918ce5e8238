//! Locations that are dead or die, servers that start anew, credentials.

use crate::server::*;
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::functions_aggregate::expr_fn::{count, max};
use datafusion::logical_expr::{col, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_export::flight::{FlightOptions, FlightServer, Token};
use serac_net::tls::tls_config;
use serac_remote::{Remote, RemoteError, RemoteOptions};
use serac_sql::SqlDatabase;
use serac_testing::Served;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::process::Command;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tonic::Status;
use tonic::codegen::Service;

/// A way to a server that breaks: each connection ends after a number of bytes from the server.
struct Breaking {
    address: SocketAddr,
    /// Bytes that the next connections let through.
    bytes: Arc<AtomicU64>,
    broken: Arc<AtomicUsize>,
}

impl Breaking {
    async fn before(server: SocketAddr, bytes: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (bytes, broken) = (Arc::new(AtomicU64::new(bytes)), Arc::new(AtomicUsize::new(0)));
        let (limit, count) = (bytes.clone(), broken.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (limit, count) = (limit.load(Ordering::Relaxed), count.clone());
                tokio::spawn(async move {
                    let server = TcpStream::connect(server).await.unwrap();
                    let ((mut from_client, mut to_client), (from_server, mut to_server)) =
                        (client.into_split(), server.into_split());
                    let up = tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
                    let mut limited = from_server.take(limit);
                    if tokio::io::copy(&mut limited, &mut to_client).await.is_ok() && limited.limit() == 0 {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    let _ = to_client.shutdown().await;
                    up.abort();
                });
            }
        });
        Self { address, bytes, broken }
    }
}

fn of(addresses: &[SocketAddr]) -> RemoteOptions {
    RemoteOptions::new(addresses.iter().map(|address| format!("grpc://{address}"))).with_connections(1)
}

/// An address at which nobody listens.
async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

const ROWS: i64 = 60_000;

async fn numbers(db: &SqlDatabase) {
    execute(db, "CREATE TABLE t (id BIGINT NOT NULL, note TEXT)").await;
    let insert = format!(
        "INSERT INTO t SELECT g, repeat('a note ' || g, 1 + CAST(g % 5 AS INTEGER)) FROM generate_series(0, {}) AS t (g)",
        ROWS - 1
    );
    execute(db, &insert).await;
}

/// The rows of t, and how often its streams were begun anew.
async fn read(ctx: &SessionContext) -> datafusion::common::Result<(Vec<i64>, usize)> {
    let plan = ctx.table("t").await?.create_physical_plan().await?;
    let batches = datafusion::physical_plan::collect(plan.clone(), ctx.task_ctx()).await?;
    let all = concat_batches(&plan.schema(), &batches)?;
    let mut ids = all.column(0).as_primitive::<Int64Type>().values().to_vec();
    ids.sort_unstable();
    Ok((ids, metric(&scans(&plan)[0], "retries")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_location_falls_to_another() {
    let db = database();
    numbers(&db).await;
    let served = serve(&db, FlightOptions::default()).await;
    let dead = nobody().await;
    for addresses in [[dead, served.address], [served.address, dead]] {
        let remote = Remote::new(of(&addresses)).unwrap();
        for _ in 0..2 {
            let ctx = session_of(&remote, &["t"]).await;
            assert_eq!(read(&ctx).await.unwrap().0, (0..ROWS).collect::<Vec<_>>());
        }
    }
    let dead = Remote::new(of(&[nobody().await, nobody().await]).with_attempts(3)).unwrap();
    let error = dead.table("public", "t").await.unwrap_err();
    assert!(matches!(error, RemoteError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("cannot connect to http://127.0.0.1:"), "{error}");
    nothing_is_held(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_groups_or_first_rows_that_breaks_goes_on() {
    let db = database();
    numbers(&db).await;
    freeze(&db, "t");
    execute(&db, "UPDATE t SET note = 'changed' WHERE id % 10 = 0; INSERT INTO t SELECT id, note FROM t").await;
    let served = serve(&db, FlightOptions { message_bytes: 64 << 10, ..FlightOptions::default() }).await;
    let wanted = query(&db, "SELECT note, count(*), max(id) FROM t GROUP BY note ORDER BY note").await;
    let first = query(&db, "SELECT id, note FROM t ORDER BY note, id LIMIT 30000").await;
    let mut all_retries = [0, 0];
    for bytes in [150_000, 400_000, 900_000] {
        let broken = Breaking::before(served.address, bytes).await;
        for (number, wanted) in [&wanted, &first].into_iter().enumerate() {
            let remote = Remote::new(of(&[broken.address, served.address]).with_attempts(6)).unwrap();
            let ctx = summarizing_session();
            register(&ctx, "t", remote.table("public", "t").await.unwrap());
            let table = ctx.table("t").await.unwrap();
            let (note, id) = (col("note").sort(true, false), col("id").sort(true, false));
            let (frame, part) = match number {
                0 => {
                    let groups = table.aggregate(vec![col("note")], vec![count(lit(1)), max(col("id"))]).unwrap();
                    (groups.sort(vec![note]).unwrap(), "aggregate=[")
                }
                _ => (table.sort(vec![note, id]).unwrap().limit(0, Some(30_000)).unwrap(), "top=["),
            };
            let plan = frame.create_physical_plan().await.unwrap();
            assert!(text(&plan).contains(part), "{}", text(&plan));
            let batches = datafusion::physical_plan::collect(plan.clone(), ctx.task_ctx()).await.unwrap();
            let found = concat_batches(&plan.schema(), &batches).unwrap();
            assert_eq!(found.columns(), wanted.columns(), "{bytes} bytes");
            all_retries[number] += metric(&scans(&plan)[0], "retries");
        }
    }
    assert!(all_retries.iter().all(|retries| *retries > 2), "{all_retries:?} streams were begun anew");
    nothing_is_held(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_breaks_goes_on_without_a_row_twice_or_none() {
    let db = database();
    numbers(&db).await;
    freeze(&db, "t");
    execute(&db, "UPDATE t SET note = 'changed' WHERE id % 10 = 0").await;
    let served = serve(&db, FlightOptions { message_bytes: 64 << 10, ..FlightOptions::default() }).await;
    let mut all_retries = 0;
    for bytes in [40_000, 150_000, 400_000, 900_000] {
        let broken = Breaking::before(served.address, bytes).await;
        for addresses in
            [vec![broken.address, served.address], vec![served.address, broken.address], vec![broken.address]]
        {
            broken.bytes.store(bytes, Ordering::Relaxed);
            let remote = Remote::new(of(&addresses).with_attempts(6)).unwrap();
            let ctx = session_of(&remote, &["t"]).await;
            let (before, grow) = (broken.broken.load(Ordering::Relaxed), broken.bytes.clone());
            // With one address that always breaks, each connection gets further than the last.
            let growing = (addresses.len() == 1).then(|| {
                tokio::spawn(async move {
                    loop {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        grow.fetch_add(200_000, Ordering::Relaxed);
                    }
                })
            });
            let (ids, retries) = read(&ctx).await.unwrap();
            assert_eq!(ids, (0..ROWS).collect::<Vec<_>>(), "{bytes}");
            // A connection may break before a stream begins, which is no retry of the stream.
            assert!(broken.broken.load(Ordering::Relaxed) > before, "{bytes}: {retries} retries");
            all_retries += retries;
            growing.inspect(|growing| growing.abort());
        }
    }
    assert!(all_retries > 0);
    // A way that always breaks at the same place is an error in the end, not a part of the rows.
    let broken = Breaking::before(served.address, 300_000).await;
    let remote = Remote::new(of(&[broken.address]).with_attempts(2)).unwrap();
    let ctx = session_of(&remote, &["t"]).await;
    let error = read(&ctx).await.unwrap_err();
    assert!(matches!(RemoteError::of(&error), Some(RemoteError::Unreachable { .. })), "{error:?}");
}

/// What a proxy does with the streams of a server.
#[derive(Clone)]
enum Spoil {
    /// They end after some frames, as if they were whole: without a status.
    CutAfter(usize),
    /// Some bytes are others, mostly those before the values.
    Damage(Arc<Mutex<StdRng>>),
}

/// An answer on its way through a proxy. `None`: it is passed on as it is.
struct Spoiled {
    body: tonic::body::Body,
    spoil: Option<Spoil>,
}

/// Changes a few bytes of a message.
fn damage(data: &[u8], random: &mut StdRng) -> bytes::Bytes {
    let mut data = data.to_vec();
    for _ in 0..random.random_range(0..4) {
        let among = if random.random_range(0..4) == 0 { data.len() } else { data.len().min(600) };
        let at = random.random_range(0..among);
        data[at] = [0, 0xff, data[at] ^ 1 << random.random_range(0..8), random.random()][random.random_range(0..4)];
    }
    data.into()
}

impl http_body::Body for Spoiled {
    type Data = bytes::Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Self::Data>, Self::Error>>> {
        match &mut self.spoil {
            Some(Spoil::CutAfter(0)) => return Poll::Ready(None),
            Some(Spoil::CutAfter(frames)) => *frames -= 1,
            Some(Spoil::Damage(_)) | None => {}
        }
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let Some(Spoil::Damage(random)) = &self.spoil else { return frame };
        frame.map_ok(|frame| match frame.data_ref() {
            Some(data) if !data.is_empty() => http_body::Frame::data(damage(data, &mut random.lock().unwrap())),
            _ => frame,
        })
    }
}

/// A proxy that spoils streams, and passes other answers on.
async fn spoiling_proxy(server: SocketAddr, spoil: Spoil) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let channel = tonic::transport::Channel::from_shared(format!("http://{server}")).unwrap().connect_lazy();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (channel, spoil) = (channel.clone(), spoil.clone());
            let answer = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let mut channel = channel.clone();
                let spoil = request.uri().path().ends_with("/DoGet").then(|| spoil.clone());
                async move {
                    std::future::poll_fn(|cx| Service::<http::Request<_>>::poll_ready(&mut channel, cx)).await?;
                    let answer = Service::call(&mut channel, request.map(tonic::body::Body::new)).await?;
                    Ok::<_, tonic::transport::Error>(answer.map(|body| Spoiled { body, spoil }))
                }
            });
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(http.serve_connection(TokioIo::new(socket), answer));
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_ends_without_a_status_is_not_taken_for_whole() {
    let db = database();
    numbers(&db).await;
    let served = serve(&db, FlightOptions { message_bytes: 64 << 10, ..FlightOptions::default() }).await;
    for frames in [0, 1, 2, 7] {
        let proxy = spoiling_proxy(served.address, Spoil::CutAfter(frames)).await;
        let ctx = session_of(&Remote::new(of(&[proxy]).with_attempts(2)).unwrap(), &["t"]).await;
        let error = read(&ctx).await.unwrap_err();
        let message = error.to_string();
        let is_cut = message.contains("without a final status") || message.contains("Unexpected EOF");
        assert!(is_cut, "{frames}: {message}");
        let ctx = session_of(&Remote::new(of(&[proxy, served.address])).unwrap(), &["t"]).await;
        assert_eq!(read(&ctx).await.unwrap().0, (0..ROWS).collect::<Vec<_>>(), "{frames}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_messages_are_errors_or_valid_rows() {
    let db = database();
    every(&db, 2_000).await;
    let served = serve(&db, FlightOptions { message_bytes: 16 << 10, ..FlightOptions::default() }).await;
    let seed = serac_testing::seed();
    let damage = Spoil::Damage(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))));
    let proxy = spoiling_proxy(served.address, damage).await;
    let ctx = session_of(&Remote::new(of(&[proxy]).with_attempts(1)).unwrap(), &["every"]).await;
    let mut errors = 0;
    for round in 0..if serac_testing::stress() { 2_000 } else { 60 } {
        let frame = ctx.table("every").await.unwrap().select_columns(&["id", "x", "y", "b", "n", "d"]).unwrap();
        let read = tokio::time::timeout(Duration::from_secs(60), tokio::spawn(frame.collect())).await;
        let read = read.unwrap_or_else(|_| panic!("seed {seed}, round {round}: the stream does not end"));
        match read.unwrap_or_else(|panic| panic!("seed {seed}, round {round}: {panic}")) {
            Ok(batches) => {
                batches.iter().flat_map(|batch| batch.columns()).for_each(|c| c.to_data().validate_full().unwrap());
            }
            Err(error) => {
                assert!(RemoteError::of(&error).is_some(), "seed {seed}, round {round}: {error:?}");
                errors += 1;
            }
        }
    }
    assert!(errors > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_starts_anew_has_lost_the_snapshot_and_says_so() {
    let db = database();
    numbers(&db).await;
    let served = serve(&db, FlightOptions::default()).await;
    let address = served.address;
    let ctx = session_of(&remote(&served), &["t"]).await;
    let plan = ctx.table("t").await.unwrap().create_physical_plan().await.unwrap();
    served.end().await;
    let server = FlightServer::bind(db.database().clone(), address, FlightOptions::default()).await.unwrap();
    let served = Served::start(address, |stop| server.run(stop));
    let error = datafusion::physical_plan::collect(plan.clone(), ctx.task_ctx()).await.unwrap_err();
    assert!(matches!(RemoteError::of(&error), Some(RemoteError::LeaseLost { .. })), "{error:?}");
    drop(plan);
    assert_eq!(read(&ctx).await.unwrap().0, (0..ROWS).collect::<Vec<_>>());
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_says_nothing_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut silent = Vec::new();
        while let Ok((socket, _)) = listener.accept().await {
            silent.push(socket);
        }
    });
    let options = of(&[address]).with_attempts(2).with_call_timeout(Duration::from_millis(200));
    let begun = std::time::Instant::now();
    let error = Remote::new(options).unwrap().table("public", "t").await.unwrap_err();
    assert!(error.to_string().contains("has not answered for 0.2 seconds"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_streams_than_the_server_has_room_for_wait_or_say_so() {
    let db = database();
    numbers(&db).await;
    let served = serve(&db, FlightOptions { max_streams: 2, ..FlightOptions::default() }).await;
    let remote = Remote::new(of(&[served.address]).with_attempts(40)).unwrap();
    let ctx = session_of(&remote, &["t"]).await;
    assert_eq!(read(&ctx).await.unwrap().0, (0..ROWS).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_that_the_server_has_given_up_goes_on_where_it_was() {
    use futures::StreamExt;
    let db = database();
    numbers(&db).await;
    let options = FlightOptions { stall: Duration::from_secs(2), message_bytes: 16 << 10, ..FlightOptions::default() };
    let served = serve(&db, options).await;
    // Windows would hold all of it: the rows are made wide.
    execute(&db, "UPDATE t SET note = repeat(note, 10)").await;
    let remote = Remote::new(of(&[served.address]).with_partitions(1)).unwrap();
    let ctx = session_of(&remote, &["t"]).await;
    let plan = ctx.table("t").await.unwrap().create_physical_plan().await.unwrap();
    let mut stream = plan.execute(0, ctx.task_ctx()).unwrap();
    let mut ids = Vec::new();
    let mut was_slow = false;
    while let Some(batch) = stream.next().await {
        ids.extend_from_slice(batch.unwrap().column(0).as_primitive::<Int64Type>().values());
        if !was_slow && ids.len() > 500 {
            was_slow = true;
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..ROWS).collect::<Vec<_>>());
    assert!(metric(&scans(&plan)[0], "retries") > 0, "the server has not given the stream up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_of_groups_or_first_rows_goes_on_where_it_was() {
    use futures::StreamExt;
    let db = database();
    numbers(&db).await;
    execute(&db, "UPDATE t SET note = repeat(note, 10); INSERT INTO t SELECT t.* FROM t, generate_series(1, 2)").await;
    let options = FlightOptions { stall: Duration::from_secs(2), message_bytes: 16 << 10, ..FlightOptions::default() };
    let served = serve(&db, options).await;
    let remote = Remote::new(of(&[served.address]).with_partitions(1)).unwrap();
    let ctx = summarizing_session();
    register(&ctx, "t", remote.table("public", "t").await.unwrap());
    let table = ctx.table("t").await.unwrap();
    let groups = table.clone().aggregate(vec![col("note")], vec![count(lit(1)), max(col("id"))]).unwrap();
    let first = table.sort(vec![col("id").sort(true, false)]).unwrap().limit(0, Some(50_000)).unwrap();
    for (frame, part, wanted) in [(groups, "aggregate=[", ROWS as usize), (first, "top=[", 50_000)] {
        let plan = frame.create_physical_plan().await.unwrap();
        assert!(text(&plan).contains(part), "{}", text(&plan));
        let scan = &scans(&plan)[0];
        let mut stream = scan.execute(0, ctx.task_ctx()).unwrap();
        let mut notes = std::collections::HashMap::new();
        while let Some(batch) = stream.next().await {
            let batch = batch.unwrap();
            let of_rows = batch.column_by_name("note").unwrap().as_string_view();
            of_rows.iter().flatten().for_each(|note| *notes.entry(note.to_owned()).or_insert(0) += 1);
            if notes.len() == batch.num_rows() {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        }
        assert_eq!(notes.values().sum::<usize>(), wanted);
        assert!(part == "top=[" || notes.len() == wanted, "a group comes twice");
        assert!(metric(scan, "retries") > 0, "the server has not given the stream up");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_is_shown_with_every_call() {
    let db = database();
    numbers(&db).await;
    let token = Token::new("a-secret").unwrap();
    let served = serve(&db, FlightOptions { token: Some(token), ..FlightOptions::default() }).await;
    let remote = Remote::new(of(&[served.address]).with_token("a-secret")).unwrap();
    let ctx = session_of(&remote, &["t"]).await;
    let frame = ctx.table("t").await.unwrap().filter(col("id").lt(lit(10_i64))).unwrap();
    assert_eq!(rows(frame).await.num_rows(), 10);
    nothing_is_held(&db).await;
    for options in [of(&[served.address]), of(&[served.address]).with_token("another")] {
        let error = Remote::new(options).unwrap().table("public", "t").await.unwrap_err();
        assert!(matches!(error, RemoteError::Refused { .. }) && error.to_string().contains("token"), "{error}");
        assert!(!error.to_string().contains("another"));
    }
}

/// A certificate for this machine, which is its own authority.
fn certificate(folder: &Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
        .arg(folder.join("key.pem"))
        .arg("-out")
        .arg(folder.join("cert.pem"))
        .output()
        .expect("the command openssl makes the certificate");
    assert!(made.status.success(), "{made:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_encrypted_and_the_certificate_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    let tls = tls_config(&folder.path().join("cert.pem"), &folder.path().join("key.pem")).unwrap();
    let authority = std::fs::read(folder.path().join("cert.pem")).unwrap();
    let db = database();
    numbers(&db).await;
    let served = serve(&db, FlightOptions { tls: Some(tls), ..FlightOptions::default() }).await;
    let port = served.address.port();
    let options = |host: &str, scheme: &str| RemoteOptions::new([format!("{scheme}://{host}:{port}")]).with_attempts(1);
    let by_name = options("localhost", "grpc+tls").with_authority(authority.clone());
    let by_number = options("127.0.0.1", "grpc+tls").with_authority(authority.clone()).with_domain("localhost");
    for options in [by_name, by_number] {
        let ctx = session_of(&Remote::new(options).unwrap(), &["t"]).await;
        assert_eq!(read(&ctx).await.unwrap().0.len(), ROWS as usize);
    }
    for options in [
        // No authority, another name, no TLS.
        options("localhost", "grpc+tls"),
        options("127.0.0.1", "grpc+tls").with_authority(authority.clone()).with_domain("elsewhere"),
        options("127.0.0.1", "grpc"),
    ] {
        let options = options.with_call_timeout(Duration::from_secs(5));
        let error = Remote::new(options).unwrap().table("public", "t").await.unwrap_err();
        assert!(matches!(error, RemoteError::Unreachable { .. }), "{error}");
    }
}
