//! Lineitem, or TPC-C's ORDER_LINE, exported as Arrow (§5 and figure 15 of the paper) by several
//! ways in turn, with no, some and all blocks hot.
//!
//! | way | server | client |
//! |---|---|---|
//! | in process | `scan_arrow` | keeps the batches |
//! | Flight | `serac_export`'s | pyarrow in a process of its own: the call, all batches, one table |
//! | bare Flight | [`bare`]: sends batches that it holds ready | the process of pyarrow |
//! | vectorised | [`vectorised`] over `scan_arrow` | makes Arrow arrays of it |
//! | rows | [`rows`] over `scan_arrow` | makes Arrow arrays of it |
//! | PostgreSQL's protocol | `serac_server`'s | connectorx in the process of pyarrow: the query, one Arrow table |
//!
//! Every way is checked in every run: the number of rows, and the sum of the first column.
//!
//! With `--linear-unit`, the ways of figure 15 with a client that computes ([`mechanisms`]).

mod bare;
mod client;
mod linear_unit;
mod mechanisms;
mod rows;
mod vectorised;

use crate::freeze::arrow_size;
use crate::peer::Peer;
use crate::recorder::{Output, Recorder};
use crate::report::{Report, median};
use crate::setup::{cpu_times, lineitem, order_line, text};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchReader};
use arrow::compute::{cast, sum};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use bare::BareServer;
use indicatif::{ProgressBar, ProgressStyle};
use serac_engine::{ArrowScan, DecimalForm, Table};
use serac_export::flight::{FlightOptions, FlightServer};
use serac_server::{PgOptions, PgServer};
use serac_sql::SqlDatabase;
use serac_storage::block::Block;
use serac_storage::{BlockNo, RowId, Slot, StorageOptions};
use serde_json::{Value as Json, json};
use std::io::BufReader;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(clap::Args, Debug)]
pub struct ExportArguments {
    /// Scale factor.
    #[arg(long, default_value_t = 1.0)]
    sf: f64,
    /// Exports ORDER_LINE of this number of warehouses in place of lineitem.
    #[arg(long, value_name = "WAREHOUSES")]
    order_line: Option<i32>,
    /// Percentages of blocks that are hot, ascending.
    #[arg(long, value_delimiter = ',', default_value = "0,50,100")]
    hot: Vec<u32>,
    /// Measured runs of each way, after one that warms up.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Only the ways whose name contains this.
    #[arg(long, default_value = "")]
    way: String,
    /// Measures figure 15: a client puts all values through a linear unit, over Flight, two wire
    /// protocols, RDMA (by the loopback transport) and shared memory.
    #[arg(long)]
    linear_unit: bool,
    #[command(flatten)]
    output: Output,
    /// Answers on standard output what standard input asks: for the client that this program
    /// starts.
    #[arg(long, hide = true)]
    client: bool,
}

/// The result of a run.
struct Outcome {
    ms: f64,
    /// Bytes that the client received: of Arrow data, or on the wire.
    bytes: usize,
    rows: usize,
    /// The sum of the first column.
    sum: i64,
}

/// A way by which batches get from the server to the client.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    InProcess(DecimalForm),
    Flight(DecimalForm),
    Bare(DecimalForm),
    Vectorised,
    Rows,
    Postgres,
}

const WAYS: [Way; 9] = [
    Way::InProcess(DecimalForm::Decimal64),
    Way::Flight(DecimalForm::Decimal64),
    Way::Bare(DecimalForm::Decimal64),
    Way::InProcess(DecimalForm::Decimal128),
    Way::Flight(DecimalForm::Decimal128),
    Way::Bare(DecimalForm::Decimal128),
    Way::Vectorised,
    Way::Rows,
    Way::Postgres,
];

fn name_of(decimals: DecimalForm) -> &'static str {
    match decimals {
        DecimalForm::Decimal64 => "decimal64",
        DecimalForm::Decimal128 => "decimal128",
    }
}

impl Way {
    fn name(self) -> String {
        match self {
            Self::InProcess(decimals) => format!("in process, {}", name_of(decimals)),
            Self::Flight(decimals) => format!("Flight, {}", name_of(decimals)),
            Self::Bare(decimals) => format!("bare Flight, {}", name_of(decimals)),
            Self::Vectorised => "vectorised wire".into(),
            Self::Rows => "rows as text".into(),
            Self::Postgres => "PostgreSQL's protocol, connectorx".into(),
        }
    }
}

/// A way's server: sends batches into a socket.
type Send =
    fn(&mut dyn Iterator<Item = Result<RecordBatch, arrow::error::ArrowError>>, &mut TcpStream) -> Result<(), String>;
/// A way's client: makes columns of the received bytes.
type Receive = fn(&SchemaRef, &mut TcpStream) -> Result<(Vec<Vec<ArrayRef>>, usize), String>;

/// The table that is exported.
#[derive(Clone)]
struct Source {
    db: SqlDatabase,
    table: Arc<Table>,
}

impl Source {
    /// Loads the table that the arguments name, and freezes it.
    fn load(arguments: &ExportArguments, options: StorageOptions) -> Result<Self, String> {
        let options = StorageOptions { freeze_after: None, ..options };
        let (db, table) = match arguments.order_line {
            Some(warehouses) => order_line(warehouses, options)?,
            None => lineitem(arguments.sf, options)?,
        };
        let (frozen, blocks) = db.database().storage().freeze_table(&table.data, Duration::from_secs(60));
        if frozen < blocks {
            return Err(format!("{frozen} of {blocks} blocks froze"));
        }
        Ok(Self { db, table })
    }

    fn scan(&self, decimals: DecimalForm) -> Result<ArrowScan, String> {
        let all: Vec<usize> = (0..self.table.definition.columns.len()).collect();
        Ok(self.db.database().begin().scan_arrow(&self.table, &all, &[]).map_err(text)?.with_decimals(decimals))
    }

    fn is_hot(&self, no: u32) -> bool {
        self.table.data.block(BlockNo(no)).is_some_and(|block| matches!(&*block, Block::Hot(_)))
    }

    /// Thaws blocks until `percent` in a hundred are hot, by an update of a row in each to its own
    /// values. Returns the percentage that is hot then.
    fn thaw(&self, percent: u32) -> Result<f64, String> {
        let blocks = self.table.data.block_count();
        // The blocks are spread over the table. The blocks of a smaller share are among those of a
        // greater one.
        let is_among = |no: u32| u64::from(no) * 37 % 100 < u64::from(percent);
        let mut txn = self.db.database().begin();
        for no in (0..blocks).filter(|&no| is_among(no) && !self.is_hot(no)) {
            let rows = self.scan(DecimalForm::Decimal128)?.within(no..no + 1).next().ok_or("an empty block")?;
            let row = rows.map_err(text)?.slice(0, 1).project(&[3]).map_err(text)?;
            txn.update_batch(&self.table, &[RowId::new(BlockNo(no), Slot(0))], &[3], &row).map_err(text)?;
        }
        txn.commit().map_err(text)?;
        // The collector runs until no row has an old version any more.
        for _ in 0..4 {
            self.db.database().storage().run_gc();
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok((0..blocks).filter(|&no| self.is_hot(no)).count() as f64 / f64::from(blocks) * 100.0)
    }
}

/// Runs the ways by turns, `runs` times after a first time that is not counted. Returns the
/// outcomes of each way.
fn by_turns<W: Copy, T>(
    ways: &[W],
    runs: usize,
    mut measure: impl FnMut(W) -> Result<T, String>,
) -> Result<Vec<Vec<T>>, String> {
    let mut outcomes: Vec<Vec<T>> = ways.iter().map(|_| Vec::new()).collect();
    for run in 0..runs + 1 {
        for (&way, outcomes) in ways.iter().zip(&mut outcomes) {
            let outcome = measure(way)?;
            if run > 0 {
                outcomes.push(outcome);
            }
        }
    }
    Ok(outcomes)
}

struct Export {
    source: Source,
    pyarrow: Peer,
    flight: SocketAddr,
    bare: SocketAddr,
    pg: SocketAddr,
}

impl Export {
    fn in_process(&self, decimals: DecimalForm) -> Result<Outcome, String> {
        let started = Instant::now();
        let batches: Vec<RecordBatch> = self.source.scan(decimals)?.collect::<Result<_, _>>().map_err(text)?;
        let ms = started.elapsed().as_secs_f64() * 1e3;
        let bytes = batches.iter().flat_map(|batch| batch.columns()).map(arrow_size).sum::<Result<_, _>>()?;
        let (rows, sum) = totals(batches.iter().map(|batch| batch.column(0)));
        Ok(Outcome { ms, bytes, rows, sum })
    }

    fn by_flight(&mut self, address: SocketAddr, command: &str) -> Result<Outcome, String> {
        self.ask(&json!({ "address": address.to_string(), "command": command }))
    }

    /// The query over PostgreSQL's protocol. Its bytes are those on the wire.
    fn by_postgres(&mut self) -> Result<Outcome, String> {
        let sent = |db: &SqlDatabase| db.connections().figures().bytes_out as usize;
        let before = sent(&self.source.db);
        let uri = format!("postgresql://serac@{}/serac", self.pg);
        let outcome =
            self.ask(&json!({ "uri": uri, "query": format!("SELECT * FROM {}", self.source.table.name()) }))?;
        Ok(Outcome { bytes: sent(&self.source.db) - before, ..outcome })
    }

    fn ask(&mut self, request: &Json) -> Result<Outcome, String> {
        let answer = self.pyarrow.ask(&request.to_string())?;
        let number = |name: &str| answer[name].as_i64().ok_or_else(|| format!("the client gave no {name}"));
        let ms = answer["ms"].as_f64().ok_or("the client gave no time")?;
        Ok(Outcome { ms, bytes: number("bytes")? as usize, rows: number("rows")? as usize, sum: number("sum")? })
    }

    /// Over a socket of its own, from the connection to the last array.
    fn by_wire(&self, send: Send, receive: Receive) -> Result<Outcome, String> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(text)?;
        let address = listener.local_addr().map_err(text)?;
        let schema = self.source.scan(DecimalForm::Decimal64)?.schema();
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let (mut socket, _) = listener.accept().map_err(text)?;
                socket.set_nodelay(true).map_err(text)?;
                send(&mut self.source.scan(DecimalForm::Decimal64)?, &mut socket)
            });
            let started = Instant::now();
            let mut socket = TcpStream::connect(address).map_err(text)?;
            let received = receive(&schema, &mut socket);
            let ms = started.elapsed().as_secs_f64() * 1e3;
            drop(socket);
            server.join().expect("the server does not panic")?;
            let (chunks, bytes) = received?;
            let (rows, sum) = totals(chunks.iter().map(|columns| &columns[0]));
            Ok(Outcome { ms, bytes, rows, sum })
        })
    }

    fn measure(&mut self, way: Way) -> Result<Outcome, String> {
        match way {
            Way::InProcess(decimals) => self.in_process(decimals),
            Way::Flight(decimals) => {
                let command = json!({
                    "table": self.source.table.name(), "decimals": name_of(decimals), "snapshot": "latest", "endpoints": 1,
                });
                self.by_flight(self.flight, &command.to_string())
            }
            Way::Bare(decimals) => self.by_flight(self.bare, name_of(decimals)),
            Way::Vectorised => self.by_wire(|batches, socket| vectorised::send(batches, socket), vectorised::receive),
            Way::Rows => self.by_wire(
                |batches, socket| rows::send(batches, socket),
                |schema, socket| rows::receive(schema, &mut BufReader::with_capacity(rows::BUFFER_BYTES, socket)),
            ),
            Way::Postgres => self.by_postgres(),
        }
    }
}

/// Rows, and the sum of an integer column.
fn totals<'a>(columns: impl Iterator<Item = &'a ArrayRef>) -> (usize, i64) {
    columns.fold((0, 0), |(rows, total), column| {
        let column = cast(column, &DataType::Int64).expect("the first column is of integers");
        (rows + column.len(), total + sum(column.as_primitive::<Int64Type>()).unwrap_or(0))
    })
}

pub fn run(arguments: &ExportArguments, report: &mut Report) -> Result<(), String> {
    if arguments.client {
        return client::serve();
    }
    if !arguments.hot.is_sorted() || arguments.hot.iter().any(|&percent| percent > 100) {
        return Err("--hot takes percentages, ascending".into());
    }
    if arguments.linear_unit {
        return mechanisms::run(arguments, report);
    }
    let ways: Vec<Way> = WAYS.into_iter().filter(|way| way.name().contains(&arguments.way)).collect();
    let (pyarrow, version) = Peer::start("flight_client.py", [""; 0])?;
    eprintln!("client: pyarrow {version}");
    let source = Source::load(arguments, StorageOptions::default())?;
    let unknown = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut export = Export { source, pyarrow, flight: unknown, bare: unknown, pg: unknown };
    let mut flights: Vec<(String, SchemaRef, Vec<RecordBatch>)> = Vec::new();
    for decimals in [DecimalForm::Decimal64, DecimalForm::Decimal128] {
        let scan = export.source.scan(decimals)?;
        flights.push((name_of(decimals).into(), scan.schema(), scan.collect::<Result<_, _>>().map_err(text)?));
    }
    let (rows, sum) = totals(flights[0].2.iter().map(|batch: &RecordBatch| batch.column(0)));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(text)?;
    runtime.block_on(async {
        export.bare = BareServer::start(flights).map_err(text)?;
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = FlightServer::bind(export.source.db.database().clone(), any_port, FlightOptions::default())
            .await
            .map_err(text)?;
        export.flight = server.local_address().map_err(text)?;
        tokio::spawn(server.run(std::future::pending()));
        let server = PgServer::bind(export.source.db.clone(), any_port, PgOptions::default()).await.map_err(text)?;
        export.pg = server.local_address().map_err(text)?;
        tokio::spawn(server.run(std::future::pending()));
        Ok::<_, String>(())
    })?;

    let mut recorder = Recorder::new("export", arguments, &arguments.output, report);
    recorder.note("ms: medians; MB: received by the client, in Arrow or from the wire; of bare: the rate, against the bare server's in the same runs".into());
    recorder.note(
        "server CPU: processor time of the Flight servers in the program itself, and in the system for it".into(),
    );
    let bar = ProgressBar::new((arguments.hot.len() * ways.len() * (arguments.runs + 1)) as u64);
    bar.set_style(ProgressStyle::with_template("{msg:44} {wide_bar} {percent}%, {eta} left").map_err(text)?);
    recorder.chart("Export", "% of blocks hot", "MB/s", false);
    for &percent in &arguments.hot {
        let hot = export.source.thaw(percent)?;
        let outcomes: Vec<Vec<(Outcome, f64, f64)>> = by_turns(&ways, arguments.runs, |way| {
            bar.set_message(format!("{percent} % hot, {}", way.name()));
            let before = cpu_times();
            let outcome = export.measure(way).map_err(|error| format!("{}: {error}", way.name()))?;
            let after = cpu_times();
            if (outcome.rows, outcome.sum) != (rows, sum) {
                let (name, got) = (way.name(), outcome.rows);
                return Err(format!("{name}: {got} of {rows} rows, or other values"));
            }
            bar.inc(1);
            Ok((outcome, after.0 - before.0, after.1 - before.1))
        })?;
        let ms = |at: usize| median(outcomes[at].iter().map(|(outcome, ..)| outcome.ms).collect());
        for (at, &way) in ways.iter().enumerate() {
            let bare = |decimals| ways.iter().position(|&way| way == Way::Bare(decimals));
            let of_bare = match way {
                Way::Flight(decimals) => bare(decimals).map(|bare| ms(bare) / ms(at)),
                _ => None,
            };
            let times: Vec<f64> = outcomes[at].iter().map(|(outcome, ..)| outcome.ms).collect();
            let cpu = |of: fn(&(Outcome, f64, f64)) -> f64| match way {
                Way::Flight(_) | Way::Bare(_) => json!(1e3 * median(outcomes[at].iter().map(of).collect())),
                _ => Json::Null,
            };
            let bytes = outcomes[at][0].0.bytes as f64;
            recorder.point(&way.name(), hot, bytes / 1e3 / ms(at));
            recorder.row(&[
                ("way", json!(way.name())),
                ("hot %", json!(hot)),
                ("ms", json!(ms(at))),
                ("least", json!(times.iter().copied().fold(f64::INFINITY, f64::min))),
                ("most", json!(times.iter().copied().fold(0.0, f64::max))),
                ("MB", json!(bytes / 1e6)),
                ("MB/s", json!(bytes / 1e3 / ms(at))),
                ("of bare", of_bare.map_or(Json::Null, |ratio| json!(ratio))),
                ("server CPU ms", cpu(|(_, program, _)| *program)),
                ("in the system", cpu(|(_, _, system)| *system)),
            ]);
        }
    }
    bar.finish_and_clear();
    recorder.write()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Date32Array, Decimal64Array, Int32Array, Int64Array, StringViewArray};

    /// Two batches of all types that lineitem has, with NULLs in the second.
    fn batches() -> (SchemaRef, Vec<RecordBatch>) {
        let batch = |from: i64, null: i64| {
            let ids = || (from..from + 1_001).map(move |i| (i % null != 1).then_some(i));
            let texts = ids().map(|i| i.map(|i| "ü".repeat(i as usize % 20)));
            let columns: [(&str, ArrayRef); 5] = [
                ("key", Arc::new(Int64Array::from_iter(ids()))),
                ("number", Arc::new(ids().map(|i| i.map(|i| -i as i32)).collect::<Int32Array>())),
                ("price", Arc::new(ids().collect::<Decimal64Array>().with_precision_and_scale(15, 2).unwrap())),
                ("date", Arc::new(ids().map(|i| i.map(|i| i as i32)).collect::<Date32Array>())),
                ("text", Arc::new(texts.collect::<StringViewArray>())),
            ];
            RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
        };
        let batches = vec![batch(0, i64::MAX), batch(1_001, 3)];
        (batches[0].schema(), batches)
    }

    /// The result of a receiver: the columns of all chunks, and the number of bytes that it read.
    type Received = Result<(Vec<Vec<ArrayRef>>, usize), String>;

    /// Checks that `receive` reads what `send` writes, and fails if the bytes are cut off.
    pub(super) fn arrives(
        send: impl Fn(Vec<RecordBatch>, &mut Vec<u8>),
        receive: impl Fn(&SchemaRef, &[u8]) -> Received,
    ) {
        let (schema, batches) = batches();
        let mut wire = Vec::new();
        send(batches.clone(), &mut wire);
        let (received, bytes) = receive(&schema, &wire).unwrap();
        assert_eq!(bytes, wire.len());
        equal(&schema, &batches, &received);
        for cut in [4, 9, wire.len() / 2, wire.len() - 1] {
            assert!(receive(&schema, &wire[..cut]).is_err(), "{cut} bytes");
        }
    }

    /// Whether the columns of all chunks are those of all batches, texts as Utf8.
    fn equal(schema: &SchemaRef, batches: &[RecordBatch], received: &[Vec<ArrayRef>]) {
        for (i, field) in schema.fields().iter().enumerate() {
            let concat = |arrays: Vec<ArrayRef>| {
                arrow::compute::concat(&arrays.iter().map(|array| &**array as &dyn Array).collect::<Vec<_>>()).unwrap()
            };
            let sent = concat(batches.iter().map(|batch| batch.column(i).clone()).collect());
            let got = concat(received.iter().map(|columns| columns[i].clone()).collect());
            assert_eq!(&*cast(&got, field.data_type()).unwrap(), &*sent, "{}", field.name());
        }
    }
}
