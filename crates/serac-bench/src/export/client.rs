//! The client of figure 15: it fetches the table by one of the mechanisms, and puts all rows
//! through a [`LinearUnit`].
//!
//! It runs as a process of its own (this program with `export --client`), which answers each line
//! with a line of JSON. One-sided access over the loopback transport needs both sides in one
//! process, so for that the client is a set of threads of the server's process, whose names begin
//! with [`THREADS`].

use super::linear_unit::{LinearUnit, Totals};
use super::{rows, vectorised};
use crate::setup::{cpu_seconds, text};
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use arrow_flight::{CancelFlightInfoRequest, FlightClient, FlightDescriptor, FlightInfo, Ticket};
use futures::TryStreamExt;
use serac_client::client::{Client as FolderClient, Options};
use serac_client::image::SnapshotRequest;
use serac_export::rdma::RdmaClient;
use serac_export::rdma::client::Slots;
use serac_export::rdma::transport::Transport;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Runtime;

/// The beginning of the names of the client's threads.
pub const THREADS: &str = "figure-client";
/// Bytes that may be on their way in HTTP/2. The default of 64 KiB would make the client the limit.
const WINDOW_BYTES: u32 = 16 << 20;

/// The way by which the table gets to the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Mechanism {
    /// DoGet of Arrow Flight.
    Flight,
    /// The wire protocol of [`vectorised`].
    Vectorised,
    /// PostgreSQL's wire protocol, as the server speaks it to all clients, with values as text.
    Postgres,
    /// The server writes into the client's memory.
    ClientRdma {
        /// Whether the client works on each block as soon as it is there, or waits for the last.
        partial: bool,
    },
    /// The client reads the server's memory. Hot blocks come by DoGet.
    ServerRdma,
    /// Mapped data files, and copies of hot blocks.
    SharedMemory,
}

impl Mechanism {
    pub const ALL: [Self; 7] = [
        Self::Flight,
        Self::Vectorised,
        Self::Postgres,
        Self::ClientRdma { partial: false },
        Self::ClientRdma { partial: true },
        Self::ServerRdma,
        Self::SharedMemory,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Flight => "Flight, DoGet",
            Self::Vectorised => "vectorised protocol",
            Self::Postgres => "PostgreSQL's protocol",
            Self::ClientRdma { partial: false } => "client-side RDMA",
            Self::ClientRdma { partial: true } => "client-side RDMA, partial",
            Self::ServerRdma => "server-side RDMA",
            Self::SharedMemory => "shared memory",
        }
    }

    /// Whether the mechanism goes over the loopback transport, within a process.
    pub fn is_one_sided(self) -> bool {
        matches!(self, Self::ClientRdma { .. } | Self::ServerRdma)
    }
}

/// The places where the client finds the table, and the weights of its linear unit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Servers {
    pub table: String,
    pub flight: SocketAddr,
    pub vectorised: SocketAddr,
    pub postgres: SocketAddr,
    /// The folder whose holder gives images; `None` if shared memory is not measured.
    pub folder: Option<PathBuf>,
    pub weights: Vec<f64>,
}

/// The figures of a run. Times count from the request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// The time until the analysis could begin: with the first rows under partial availability,
    /// with the last ones otherwise.
    pub begin_ms: f64,
    /// The time until all rows were there. Under partial availability most rows have gone through
    /// the unit by then.
    pub arrival_ms: f64,
    /// The time until all rows had gone through the unit.
    pub result_ms: f64,
    pub totals: Totals,
    /// Processor time of the client, the unit's included.
    pub cpu_seconds: f64,
    /// Batches that came by DoGet where the mechanism is one-sided.
    pub fetched: Option<usize>,
    /// Bytes that the server copied for an image.
    pub copied: Option<u64>,
}

/// A connection to PostgreSQL's port.
struct Postgres(BufReader<TcpStream>);

impl Postgres {
    fn connect(address: SocketAddr) -> Result<Self, String> {
        const VERSION: i32 = 196_608;
        let parameters = b"user\0serac\0database\0serac\0\0";
        let mut startup = (parameters.len() as i32 + 8).to_be_bytes().to_vec();
        startup.extend_from_slice(&VERSION.to_be_bytes());
        startup.extend_from_slice(parameters);
        let mut socket = TcpStream::connect(address).map_err(text)?;
        socket.set_nodelay(true).map_err(text)?;
        socket.write_all(&startup).map_err(text)?;
        let mut connection = Self(BufReader::with_capacity(rows::BUFFER_BYTES, socket));
        connection.read_until(b'Z')?;
        Ok(connection)
    }

    /// Reads messages up to one of this type, which must come.
    fn read_until(&mut self, wanted: u8) -> Result<(), String> {
        let mut body = Vec::new();
        loop {
            match rows::read_message(&mut self.0, &mut body)? {
                b'E' => return Err(String::from_utf8_lossy(&body).into_owned()),
                kind if kind == wanted => return Ok(()),
                _ => {}
            }
        }
    }

    fn query(&mut self, sql: &str, schema: &SchemaRef) -> Result<Vec<Vec<ArrayRef>>, String> {
        let mut message = vec![b'Q'];
        message.extend_from_slice(&(sql.len() as i32 + 5).to_be_bytes());
        message.extend_from_slice(sql.as_bytes());
        message.push(0);
        self.0.get_mut().write_all(&message).map_err(text)?;
        self.read_until(b'T')?;
        let (chunks, _) = rows::receive(schema, &mut self.0)?;
        self.read_until(b'Z')?;
        Ok(chunks)
    }
}

/// The client of figure 15, connected to all servers.
pub struct Client {
    servers: Servers,
    schema: SchemaRef,
    runtime: Runtime,
    flight: FlightClient,
    /// `None` for a client in a process of its own.
    rdma: Option<RdmaClient>,
    postgres: Postgres,
    folder: Option<FolderClient>,
    /// A flight whose snapshot the server holds for this client.
    held: Option<FlightInfo>,
    /// Seconds of processor time that the client has used.
    cpu: fn() -> f64,
}

async fn connect_flight(address: SocketAddr) -> Result<FlightClient, String> {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).map_err(text)?;
    let endpoint = endpoint.initial_stream_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES);
    Ok(FlightClient::new(endpoint.connect().await.map_err(text)?))
}

fn ticket_of(info: &FlightInfo) -> Result<Ticket, String> {
    let endpoint = info.endpoint.first().ok_or("the flight has no endpoint")?;
    endpoint.ticket.clone().ok_or_else(|| "the endpoint has no ticket".into())
}

fn columns_of(batches: &[RecordBatch]) -> Vec<Vec<ArrayRef>> {
    batches.iter().map(|batch| batch.columns().to_vec()).collect()
}

impl Client {
    /// Connects to all servers. With a transport it has one-sided access.
    pub fn connect(servers: Servers, transport: Option<Arc<dyn Transport>>, cpu: fn() -> f64) -> Result<Self, String> {
        // One worker reads from sockets while the caller's thread decodes. Reads of the server's
        // memory run on a third.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(1)
            .thread_name(THREADS)
            .enable_all()
            .build()
            .map_err(text)?;
        let (flight, rdma, schema) = runtime.block_on(async {
            let mut flight = connect_flight(servers.flight).await?;
            let descriptor = FlightDescriptor::new_cmd(command(&servers.table, "latest"));
            let info = flight.get_flight_info(descriptor).await.map_err(text)?;
            let schema = info.try_decode_schema().map_err(text)?;
            let rdma = match transport {
                Some(transport) => {
                    let rdma = RdmaClient::connect(connect_flight(servers.flight).await?, transport).await;
                    let rdma = rdma.map_err(text)?;
                    if !rdma.is_connected() {
                        return Err("the server has no one-sided access".to_owned());
                    }
                    Some(rdma)
                }
                None => None,
            };
            Ok((flight, rdma, schema))
        })?;
        let folder = servers.folder.as_ref().map(|folder| FolderClient::connect(folder, &Options::default()));
        let (folder, postgres) = (folder.transpose().map_err(text)?, Postgres::connect(servers.postgres)?);
        Ok(Self { servers, schema: Arc::new(schema), runtime, flight, rdma, postgres, folder, held: None, cpu })
    }

    /// Fetches the table and puts it through a new unit.
    pub fn run(&mut self, mechanism: Mechanism) -> Result<Measured, String> {
        let mut unit = LinearUnit::new(self.servers.weights.clone());
        let (mut first_ms, mut fetched, mut copied, mut lease) = (None, None, None, None);
        let cpu_before = (self.cpu)();
        let begun = Instant::now();
        let ms = || begun.elapsed().as_secs_f64() * 1e3;
        let mut chunks: Vec<Vec<ArrayRef>> = Vec::new();
        match mechanism {
            Mechanism::Flight => chunks = self.by_flight()?,
            Mechanism::Vectorised => {
                let mut socket = TcpStream::connect(self.servers.vectorised).map_err(text)?;
                chunks = vectorised::receive(&self.schema, &mut socket)?.0;
            }
            Mechanism::Postgres => {
                let sql = format!("SELECT * FROM {}", self.servers.table);
                chunks = self.postgres.query(&sql, &self.schema)?;
            }
            Mechanism::ClientRdma { partial: true } => {
                fetched = Some(self.one_sided(mechanism, |columns| {
                    first_ms.get_or_insert_with(ms);
                    unit.add(&columns)
                })?);
            }
            Mechanism::ClientRdma { partial: false } | Mechanism::ServerRdma => {
                fetched = Some(self.one_sided(mechanism, |columns| {
                    chunks.push(columns);
                    Ok(())
                })?);
            }
            Mechanism::SharedMemory => {
                let folder = self.folder.as_mut().ok_or("this client has no folder")?;
                let snapshot = folder.snapshot(&SnapshotRequest::new([("public", self.servers.table.as_str())]));
                let snapshot = snapshot.map_err(text)?;
                let table = snapshot.tables.first().ok_or("the image has no table")?;
                chunks = columns_of(&table.batches);
                (copied, lease) = (Some(snapshot.copied_bytes), Some(snapshot.lease));
            }
        }
        let arrival_ms = ms();
        chunks.iter().try_for_each(|columns| unit.add(columns))?;
        let result_ms = ms();
        let cpu_seconds = (self.cpu)() - cpu_before;
        drop(chunks);
        if let (Some(lease), Some(folder)) = (lease, &mut self.folder) {
            folder.end_lease(lease).map_err(text)?;
        }
        // Versions that a held snapshot sees are kept, which would make later runs slower.
        if let Some(info) = self.held.take() {
            let request = CancelFlightInfoRequest::new(info);
            self.runtime.block_on(self.flight.cancel_flight_info(request)).map_err(text)?;
        }
        let (begin_ms, totals) = (first_ms.unwrap_or(arrival_ms), unit.totals());
        Ok(Measured { begin_ms, arrival_ms, result_ms, totals, cpu_seconds, fetched, copied })
    }

    fn by_flight(&mut self) -> Result<Vec<Vec<ArrayRef>>, String> {
        let descriptor = FlightDescriptor::new_cmd(command(&self.servers.table, "held"));
        let flight = &mut self.flight;
        let (info, batches) = self.runtime.block_on(async {
            let info = flight.get_flight_info(descriptor).await.map_err(text)?;
            let batches = flight.do_get(ticket_of(&info)?).await.map_err(text)?;
            let batches: Vec<RecordBatch> = batches.try_collect().await.map_err(text)?;
            Ok::<_, String>((info, batches))
        })?;
        self.held = Some(info);
        Ok(columns_of(&batches))
    }

    /// Hands each batch to `take` as it comes, and returns the number of batches that came by
    /// DoGet.
    fn one_sided(
        &mut self,
        mechanism: Mechanism,
        mut take: impl FnMut(Vec<ArrayRef>) -> Result<(), String>,
    ) -> Result<usize, String> {
        let descriptor = FlightDescriptor::new_cmd(command(&self.servers.table, "held"));
        let rdma = self.rdma.as_mut().ok_or("this client has no one-sided access")?;
        let before = rdma.ways();
        let info = self.runtime.block_on(async {
            let info = rdma.flight().get_flight_info(descriptor).await.map_err(text)?;
            let ticket = ticket_of(&info)?;
            if mechanism == Mechanism::ServerRdma {
                let mut batches = rdma.read(ticket);
                while let Some(batch) = batches.next().await.map_err(text)? {
                    take(batch.columns().to_vec())?;
                }
            } else {
                let mut batches = rdma.receive(ticket, Slots::default());
                while let Some(batch) = batches.next().await.map_err(text)? {
                    take(batch.columns().to_vec())?;
                }
            }
            Ok::<_, String>(info)
        })?;
        self.held = Some(info);
        let ways = rdma.ways();
        if ways.lost > before.lost {
            return Err("the connection for one-sided access was lost on the way".into());
        }
        Ok(ways.fetched - before.fetched)
    }
}

/// The request for the whole table as it is stored.
fn command(table: &str, snapshot: &str) -> String {
    json!({ "table": table, "decimals": "decimal64", "snapshot": snapshot, "endpoints": 1 }).to_string()
}

/// The client as a process: the first line of its input has the servers, each further one names a
/// mechanism.
pub fn serve() -> Result<(), String> {
    let say = |answer: &Json| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}").and_then(|()| out.flush()).map_err(text)
    };
    say(&json!({ "ready": "linear unit" }))?;
    let mut client = None;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(text)?;
        let answer = match client.as_mut() {
            None => connect(&line).map(|connected| {
                client = Some(connected);
                json!({})
            }),
            Some(client) => answer(client, &line),
        };
        say(&answer.unwrap_or_else(|error| json!({ "error": error })))?;
    }
    Ok(())
}

fn connect(servers: &str) -> Result<Client, String> {
    Client::connect(serde_json::from_str(servers).map_err(text)?, None, cpu_seconds)
}

fn answer(client: &mut Client, mechanism: &str) -> Result<Json, String> {
    let measured = client.run(serde_json::from_str(mechanism).map_err(text)?)?;
    serde_json::to_value(measured).map_err(text)
}
