//! Messages that no client sends, made of good ones by mutation: the server neither ends nor
//! panics.
//!
//! A run prints its seed; `SERAC_SEED` repeats it. `SERAC_MESSAGES` says how many messages each
//! port gets.

use super::flight::flight_server;
use super::metrics::get;
use super::operators::{Said, Served};
use super::wire::{Client, bind, describe, execute, framed, parse, query, startup, sync};
use super::{database, postgresql_server};
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::{
    ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult, Any, CommandPreparedStatementQuery,
    CommandStatementIngest, ProstMessageExt, TableDefinitionOptions,
};
use arrow_flight::{Action, FlightData, FlightDescriptor};
use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, FixedSizeBinaryArray, FixedSizeListArray,
    Int64Array, LargeStringArray, ListArray, NullArray, RecordBatch, StringArray, StringViewArray, StructArray,
    Time64MicrosecondArray, TimestampMicrosecondArray, UnionArray,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Int32Type};
use futures::{StreamExt, TryStreamExt};
use prost::Message;
use rand::Rng;
use rand::rngs::StdRng;
use serac_column_language::frames::{ClientFrame, HEADER_BYTES, VERSION};
use serac_export::flight::FlightOptions;
use serac_server::operators::OperatorsOptions;
use serac_server::{FlightSqlOptions, HttpServer, PgOptions, Readiness};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;

/// Messages of a client of PostgreSQL's protocol before it goes.
const MESSAGES_OF_A_CLIENT: usize = 20;

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Counts the panics of the server's threads from now on.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let thread = std::thread::current();
            if thread.name().is_some_and(|name| name.starts_with("tokio") || name.starts_with("serac")) {
                // Relaxed: read when the test has ended.
                PANICS.fetch_add(1, Ordering::Relaxed);
            }
            usual(panic);
        }));
    });
}

/// The generator, and how many messages to send, of which there are so many usually.
fn seeded(usual: usize) -> (StdRng, usize) {
    watch_panics();
    let messages = serac_testing::number("SERAC_MESSAGES").map_or(usual, |messages| messages as usize);
    println!("SERAC_MESSAGES={messages}");
    (serac_testing::rng(), messages)
}

/// Changes a few bytes, or the length.
fn mutate(rng: &mut StdRng, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    for _ in 0..rng.random_range(1..4) {
        let at = rng.random_range(0..bytes.len());
        match rng.random_range(0..6) {
            0 => bytes[at] ^= 1 << rng.random_range(0..8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.random_range(0..5)],
            2 => bytes[at] = rng.random(),
            // A number that is too large, or negative.
            3 => {
                let number: u64 = [u64::MAX, i64::MAX as u64, 1 << 31, 1 << 40, 8][rng.random_range(0..5)];
                let number = number.to_le_bytes();
                let count = number.len().min(bytes.len() - at);
                bytes[at..at + count].copy_from_slice(&number[..count]);
            }
            4 => bytes.truncate(at.max(1)),
            _ => {
                let byte = bytes[at];
                bytes.insert(at, byte);
            }
        }
    }
}

/// All that a server says to a client that says this and no more.
async fn answer_to(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let _ = socket.write_all(bytes).await;
    let _ = socket.shutdown().await;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(60), socket.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "the server does not end the connection when the client has");
    answer
}

/// Batches with columns of most types.
fn batches() -> Vec<RecordBatch> {
    let texts = |rows: i64| (0..rows).map(|i| (i % 3 != 0).then(|| format!("a text that is long: {i}")));
    let item = Arc::new(Field::new("item", DataType::Int64, true));
    let numbers: ArrayRef = Arc::new((0..40).map(|i| (i % 5 != 0).then_some(i)).collect::<Int64Array>());
    let lists = ListArray::new(item.clone(), OffsetBuffer::from_lengths([1; 20]), numbers.slice(0, 20), None);
    let pairs = FixedSizeListArray::new(item, 2, numbers.clone(), None);
    let words: DictionaryArray<Int32Type> =
        texts(20).map(|t| t.map(|t| t[..8].to_owned())).collect::<Vec<_>>().iter().map(Option::as_deref).collect();
    let decimals = Decimal128Array::from_iter((0..20).map(|i| (i % 4 != 0).then_some(i * 1_001)));
    let plain = RecordBatch::try_from_iter_with_nullable([
        ("i", numbers.slice(0, 20), true),
        ("t", Arc::new(texts(20).collect::<StringArray>()) as ArrayRef, true),
        ("v", Arc::new(texts(20).collect::<StringViewArray>()), true),
        ("l", Arc::new(texts(20).collect::<LargeStringArray>()), true),
        ("b", Arc::new((0..20).map(|i| (i % 7 != 0).then_some(i % 2 == 0)).collect::<BooleanArray>()), true),
        ("d", Arc::new(Date32Array::from_iter_values(0..20)), true),
        ("m", Arc::new(Time64MicrosecondArray::from_iter_values(0..20)), true),
        ("s", Arc::new(TimestampMicrosecondArray::from_iter_values(0..20)), true),
        ("n", Arc::new(decimals.with_precision_and_scale(12, 2).unwrap()), true),
        ("y", cast(&(Arc::new(texts(20).collect::<StringArray>()) as ArrayRef), &DataType::Binary).unwrap(), true),
        ("u", Arc::new(FixedSizeBinaryArray::try_from_iter((0..20).map(|i| [i as u8; 16])).unwrap()), true),
        ("w", Arc::new(words), true),
        ("z", Arc::new(NullArray::new(20)), true),
    ]);
    let fields = [(0, Field::new("n", DataType::Int64, true)), (1, Field::new("b", DataType::Boolean, true))];
    let flags: ArrayRef = Arc::new(BooleanArray::from(vec![true; 20]));
    let union = UnionArray::try_new(
        fields.into_iter().map(|(id, field)| (id, Arc::new(field))).collect(),
        (0..20).map(|i| i8::from(i % 3 == 0)).collect::<Vec<_>>().into(),
        None,
        vec![numbers.slice(0, 20), flags.clone()],
    );
    let nested = RecordBatch::try_from_iter_with_nullable([
        ("lists", Arc::new(lists) as ArrayRef, true),
        ("pairs", Arc::new(pairs) as ArrayRef, true),
        ("both", Arc::new(StructArray::try_from(vec![("x", numbers.slice(0, 20)), ("y", flags)]).unwrap()), true),
        ("either", Arc::new(union.unwrap()), true),
    ]);
    vec![plain.unwrap(), nested.unwrap()]
}

/// The messages of batches: the schema, dictionaries, rows.
async fn messages(batch: &RecordBatch, columns: &[usize]) -> Vec<FlightData> {
    let batch = batch.project(columns).unwrap();
    let options = arrow_flight::encode::DictionaryHandling::Resend;
    let encoder = FlightDataEncoderBuilder::new().with_dictionary_handling(options);
    encoder.build(futures::stream::iter([Ok(batch)])).try_collect().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arrow_that_is_none_is_refused() {
    let (mut rng, count) = seeded(6_000);
    let db = database();
    let served = flight_server(&db, FlightSqlOptions::default(), FlightOptions::default()).await;
    let address = format!("http://{}", served.address);
    let channel = tonic::transport::Channel::from_shared(address).unwrap().connect().await.unwrap();
    let mut client = FlightServiceClient::new(channel);
    let prepare = ActionCreatePreparedStatementRequest { query: "SELECT $1::bigint + 1".into(), transaction_id: None };
    let action = Action { r#type: "CreatePreparedStatement".into(), body: prepare.as_any().encode_to_vec().into() };
    let mut results = client.do_action(action).await.unwrap().into_inner();
    let result = Any::decode(&*results.next().await.unwrap().unwrap().body).unwrap();
    let handle = result.unpack::<ActionCreatePreparedStatementResult>().unwrap().unwrap().prepared_statement_handle;
    let ingest = CommandStatementIngest {
        table_definition_options: Some(TableDefinitionOptions { if_not_exist: 1, if_exists: 3 }),
        table: "t".into(),
        ..CommandStatementIngest::default()
    };
    let commands = [
        ingest.as_any().encode_to_vec(),
        CommandPreparedStatementQuery { prepared_statement_handle: handle }.as_any().encode_to_vec(),
    ];
    let batches = batches();
    let mut done = 0;
    while done < count {
        let batch = &batches[usize::from(rng.random_range(0..8) == 0)];
        let columns: Vec<usize> =
            (0..rng.random_range(1..4)).map(|_| rng.random_range(0..batch.num_columns())).collect();
        let mut columns = columns;
        columns.sort_unstable();
        columns.dedup();
        let mut sent = messages(batch, &columns).await;
        done += sent.len();
        let broken = rng.random_range(0..sent.len());
        let message = &mut sent[broken];
        if message.data_body.is_empty() || rng.random_bool(0.7) {
            let mut header = message.data_header.to_vec();
            mutate(&mut rng, &mut header);
            message.data_header = header.into();
        } else {
            let mut body = message.data_body.to_vec();
            mutate(&mut rng, &mut body);
            message.data_body = body.into();
        }
        sent[0].flight_descriptor =
            Some(FlightDescriptor::new_cmd(commands[usize::from(rng.random_range(0..4) == 0)].clone()));
        let answer = match client.do_put(futures::stream::iter(sent)).await {
            Ok(answer) => answer.into_inner().try_collect::<Vec<_>>().await.map(|_| ()),
            Err(status) => Err(status),
        };
        if let Err(status) = answer {
            assert!(!matches!(status.code(), Code::Unknown | Code::Internal | Code::Cancelled), "{status}");
            assert!(!status.message().contains("panic"), "{status}");
        }
        assert_eq!(PANICS.load(Ordering::Relaxed), 0);
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_none_of_postgresqls_are_refused() {
    let (mut rng, count) = seeded(6_000);
    let served = postgresql_server(database(), PgOptions { max_message: 1 << 20, ..PgOptions::default() }).await;
    Client::open(served.address).await.run("CREATE TABLE t (a INTEGER PRIMARY KEY, m TIME, b BYTEA)").await;
    let good = [
        query("SELECT 1"),
        parse("s", "SELECT $1::int + 1, $2::text"),
        bind("p", "s", &["1", "x"]),
        describe(b'S', "s"),
        describe(b'P', "p"),
        execute("p", 0),
        parse("i", "INSERT INTO t (a, m) VALUES ($1, $2) ON CONFLICT DO NOTHING"),
        bind("", "i", &["7", "12:34:56"]),
        execute("", 1),
        sync(),
        query("COPY t FROM STDIN WITH (FORMAT binary)"),
        (
            b'd',
            b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x03\0\0\0\x04\0\0\0\x09\xff\xff\xff\xff\0\0\0\x01x\xff\xff".to_vec(),
        ),
        (b'c', Vec::new()),
        query("COPY t FROM STDIN"),
        (b'd', b"1\t12:00:00\t\\\\x00\n".to_vec()),
        (b'c', Vec::new()),
        query("COPY t TO STDOUT"),
        (b'C', b"Sp\0".to_vec()),
        (b'H', Vec::new()),
        sync(),
    ];
    for _ in 0..count / MESSAGES_OF_A_CLIENT {
        let mut bytes = startup(196_608, &[("user", "serac")]);
        if rng.random_range(0..20) == 0 {
            mutate(&mut rng, &mut bytes);
        }
        for _ in 0..MESSAGES_OF_A_CLIENT {
            let mut message = good[rng.random_range(0..good.len())].clone();
            if rng.random_bool(0.3) {
                mutate(&mut rng, &mut message.1);
            }
            let mut framed = framed(&message);
            if rng.random_range(0..50) == 0 {
                mutate(&mut rng, &mut framed);
            }
            bytes.extend_from_slice(&framed);
        }
        let answer = answer_to(served.address, &bytes).await;
        assert!(!answer.windows(6).any(|part| part == b"CXX000"), "{}", String::from_utf8_lossy(&answer));
        assert_eq!(PANICS.load(Ordering::Relaxed), 0);
    }
    assert_eq!(Client::open(served.address).await.run("SELECT 42").await[1], "42");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_are_none_of_the_operators_are_refused() {
    let (mut rng, count) = seeded(6_000);
    let served = Served::begin(database(), OperatorsOptions::default()).await;
    let mut before = served.client().await;
    let script = ["create(db,\"d\")", "create(tbl,\"t\",d,2)", "create(col,\"a\",d.t)", "create(col,\"b\",d.t)"];
    for (line, text) in (1..).zip(script) {
        assert_eq!(before.ask(line, text).await, Said::Done(line, true));
    }
    let statement = |text| ClientFrame::Statement { line: 7, text };
    let good = [
        statement("relational_insert(d.t,1,2)"),
        statement("p=select(d.t.a,0,5)"),
        statement("v=fetch(d.t.b,p)"),
        statement("x,y=join(v,p,v,p,hash)"),
        statement("print(v,p)"),
        statement("m=max(v)"),
        statement("relational_update(d.t.b,p,7)"),
        statement("relational_delete(d.t,p)"),
        statement("batch_queries()"),
        statement("batch_execute()"),
        statement("create(idx,d.t.a,btree,unclustered)"),
        statement("set(threads,2)"),
        statement("info()"),
        statement("load(\"t.csv\")"),
        ClientFrame::LoadBegin,
        ClientFrame::LoadChunk(b"d.t.a,d.t.b\n1,2\n-3,4\n"),
        ClientFrame::LoadChunk(b"5,2147483647\r\n6,"),
        ClientFrame::LoadEnd(Ok(())),
        ClientFrame::LoadEnd(Err("it is gone")),
        ClientFrame::Cancel { line: 7 },
    ];
    for _ in 0..count / MESSAGES_OF_A_CLIENT {
        let mut bytes = Vec::new();
        ClientFrame::Hello { version: VERSION, user: "", password: None }.put(&mut bytes);
        if rng.random_range(0..20) == 0 {
            mutate(&mut rng, &mut bytes);
        }
        // Often a whole load, which random frames seldom make.
        let first = if rng.random_bool(0.3) { 13 } else { good.len() };
        for at in first..first + MESSAGES_OF_A_CLIENT {
            let frame = good.get(at).unwrap_or_else(|| &good[rng.random_range(0..good.len())]);
            let mut framed = Vec::new();
            frame.put(&mut framed);
            if rng.random_bool(0.2) {
                // The body alone: a frame whose length is wrong ends its connection.
                let mut body = framed.split_off(HEADER_BYTES);
                mutate(&mut rng, &mut body);
                framed[1..].copy_from_slice(&(body.len() as u32).to_be_bytes());
                framed.extend_from_slice(&body);
            }
            if rng.random_range(0..50) == 0 {
                mutate(&mut rng, &mut framed);
            }
            bytes.extend_from_slice(&framed);
        }
        let answer = answer_to(served.address, &bytes).await;
        assert!(!answer.windows(8).any(|part| part == b"internal"), "{}", String::from_utf8_lossy(&answer));
        assert_eq!(PANICS.load(Ordering::Relaxed), 0);
    }
    let Said::Rows(_) = served.client().await.ask(1, "info()").await else { panic!("the server goes on") };
    served.end().await;
}

/// This many changed bytes, a few in each frame, so that connections last: the content of a frame
/// is wrong, and rarely its length. Statements keep the table small.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_changed_bytes_at_the_port_of_the_operators() {
    const MOST_TIME: Duration = Duration::from_secs(120);
    const FRAMES_OF_A_CLIENT: usize = 4_000;
    let (mut rng, wanted) = seeded(1_000_000);
    let options = OperatorsOptions {
        memory_limit: Some(64 << 20),
        statement_timeout: Some(Duration::from_secs(5)),
        ..OperatorsOptions::default()
    };
    let served = Served::begin(database(), options).await;
    let mut setup = served.client().await;
    let script = ["create(db,\"d\")", "create(tbl,\"t\",d,2)", "create(col,\"a\",d.t)", "create(col,\"b\",d.t)"];
    for (line, text) in (1..).zip(script) {
        assert_eq!(setup.ask(line, text).await, Said::Done(line, true));
    }
    let statements = [
        "relational_insert(d.t,1,2)",
        "p=select(d.t.a,0,5)",
        "p=select(p,d.t.b,null,2147483648)",
        "v=fetch(d.t.b,p)",
        "p,m=max(p,v)",
        "s=sum(d.t.a)",
        "w=add(v,v)",
        "print(v,w)",
        "relational_update(d.t.b,p,-7)",
        "relational_delete(d.t,p)",
        "batch_queries()",
        "batch_execute()",
        "set(batch_heuristic,smart)",
        "single_core()",
        "single_core_execute()",
        "t=time()",
    ];
    let (began, mut changed, mut frames, mut answered) = (std::time::Instant::now(), 0, 0, 0);
    while changed < wanted && began.elapsed() < MOST_TIME {
        let mut bytes = Vec::new();
        ClientFrame::Hello { version: VERSION, user: "", password: None }.put(&mut bytes);
        for line in 0..FRAMES_OF_A_CLIENT as u64 {
            let mut framed = Vec::new();
            let text = statements[rng.random_range(0..statements.len())];
            ClientFrame::Statement { line, text }.put(&mut framed);
            // In one frame in a few thousand, the header changes, too, to any bytes: a text that is
            // not UTF-8 ends its connection.
            let is_wild = rng.random_range(0..2 * FRAMES_OF_A_CLIENT) == 0;
            let from = if is_wild { 0 } else { HEADER_BYTES + 8 };
            for _ in 0..rng.random_range(1..9) {
                let at = rng.random_range(from..framed.len());
                let byte = match rng.random_range(0..3) {
                    0 => framed[at] ^ (1 << rng.random_range(0..8)),
                    1 => b"()[],.=\"-_0919ptdx \0\n"[rng.random_range(0..21)],
                    _ => rng.random(),
                };
                framed[at] = if is_wild { byte } else { byte & 0x7f };
                changed += 1;
            }
            frames += 1;
            bytes.extend_from_slice(&framed);
        }
        // Answers come while frames are sent.
        let (mut reader, mut writer) = TcpStream::connect(served.address).await.unwrap().into_split();
        let sending = tokio::spawn(async move {
            // The server may have ended the connection before all was sent.
            let _ = writer.write_all(&bytes).await;
            let _ = writer.shutdown().await;
        });
        let mut answer = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(60), reader.read_to_end(&mut answer)).await;
        assert!(read.is_ok(), "the server does not end the connection when the client has");
        sending.await.unwrap();
        assert!(!answer.windows(8).any(|part| part == b"internal"), "{}", String::from_utf8_lossy(&answer));
        assert_eq!(PANICS.load(Ordering::Relaxed), 0);
        let mut rest = &answer[..];
        while let [kind, a, b, c, d, body @ ..] = rest {
            answered += usize::from(*kind == b'D');
            let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
            rest = body.get(length..).unwrap_or_default();
        }
    }
    println!("{changed} bytes of {frames} frames were changed in {:?}, {answered} were answered", began.elapsed());
    assert!(answered > frames / 3, "connections last");
    let Said::Rows(_) = served.client().await.ask(1, "info()").await else { panic!("the server goes on") };
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_no_http_are_refused() {
    let (mut rng, count) = seeded(300);
    let readiness = Readiness::default();
    readiness.set(true);
    let server = HttpServer::bind(database(), "127.0.0.1:0".parse().unwrap(), readiness).await.unwrap();
    let address = server.local_address().unwrap();
    let running = tokio::spawn(server.run(std::future::pending()));
    let good = [
        "GET /metrics HTTP/1.1\r\nhost: here\r\nauthorization: Basic YTpi\r\n\r\n",
        "HEAD /ready HTTP/1.1\r\nhost: here\r\ncontent-length: 3\r\n\r\nabc",
        "POST /live HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ];
    for _ in 0..count {
        let mut bytes = good[rng.random_range(0..good.len())].as_bytes().to_vec();
        mutate(&mut rng, &mut bytes);
        answer_to(address, &bytes).await;
        assert_eq!(PANICS.load(Ordering::Relaxed), 0);
    }
    assert!(get(address, "/live", "").await.starts_with("HTTP/1.1 200"));
    running.abort();
}
