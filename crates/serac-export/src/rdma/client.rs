//! The client's side of one-sided access, on a Flight client.
//!
//! [`RdmaClient`] gives the batches of a ticket in two ways, [`RdmaClient::read`] (the client reads
//! the server's memory) and [`RdmaClient::receive`] (the server writes into the client's). Both
//! give the same batches as DoGet, and both fall back to it. They do so block by block if the
//! server lends no memory (for hot blocks, for example), and for all blocks if the two have no
//! transport in common.
//!
//! **A lease that ends.** The client counts a lease's time from before it asked for it, so that its
//! own count ends first. Its reads count only if the lease still runs afterwards. An access that
//! the server's memory refuses breaks the connection. The client makes a new one and asks again
//! from the wanted block on.

use super::transport::{Endpoint, Memory, Place, Region, Transfer, Transport, TransportError};
use super::wire::{
    CONNECT, Connect, Connected, DIRECTORY, DISCONNECT, Entry, Of, RELEASE, RENEW, Renewed, Scan, WRITE, Write,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::{Action, FlightClient, FlightData, Ticket};
use arrow_ipc::MessageHeader;
use arrow_ipc::reader::{read_dictionary, read_record_batch};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::Code;

/// The number of times that the connection may break without a block in between. After that, the
/// rest is fetched by DoGet.
const MOST_BREAKS: usize = 3;
/// The longest body of a message that a server may announce.
const MOST_BODY_BYTES: u64 = 2 << 30;
/// The longest directory that is kept.
const MOST_DIRECTORY_BYTES: usize = 256 << 20;

/// The errors of one-sided reads.
#[derive(Debug, thiserror::Error)]
pub enum RdmaError {
    /// A call of Flight has failed.
    #[error(transparent)]
    Flight(#[from] FlightError),
    /// The transport does not work here.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The bytes are no Arrow.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    /// The server's answer makes no sense.
    #[error("the server's answer cannot be understood: {0}")]
    Answer(String),
}

type Result<T> = std::result::Result<T, RdmaError>;

fn nonsense<T>(what: impl Into<String>) -> Result<T> {
    Err(RdmaError::Answer(what.into()))
}

/// The gRPC code of an error, if it is a status.
fn code_of(error: &RdmaError) -> Option<Code> {
    match error {
        RdmaError::Flight(FlightError::Tonic(status)) => Some(status.code()),
        _ => None,
    }
}

/// The memory that the server writes to.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    /// Places at a time. Each takes the messages of one block.
    pub count: usize,
    /// Bytes of each place. A block that does not fit comes in several parts.
    pub bytes: usize,
}

impl Default for Slots {
    fn default() -> Self {
        Self { count: 64, bytes: 4 << 20 }
    }
}

/// Counters of the ways by which data came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ways {
    /// Batches that the client read from the server's memory.
    pub read: usize,
    /// Batches that the server wrote into the client's memory.
    pub written: usize,
    /// Batches that came by DoGet.
    pub fetched: usize,
    /// The number of lost connections and leases.
    pub lost: usize,
}

/// A client of one-sided reads and writes.
#[derive(Debug)]
pub struct RdmaClient {
    flight: FlightClient,
    transport: Arc<dyn Transport>,
    session: Option<Session>,
    ways: Ways,
}

#[derive(Clone, Debug)]
struct Session {
    id: u64,
    endpoint: Arc<dyn Endpoint>,
}

impl RdmaClient {
    /// Asks the server for a connection of this transport. If it lacks the transport, all batches
    /// come by DoGet.
    ///
    /// # Errors
    /// When the server refuses the caller, or the transport has no endpoint.
    pub async fn connect(flight: FlightClient, transport: Arc<dyn Transport>) -> Result<Self> {
        let mut client = Self { flight, transport, session: None, ways: Ways::default() };
        match client.open().await {
            Err(error) if code_of(&error) == Some(Code::Unimplemented) => {}
            other => other?,
        }
        Ok(client)
    }

    /// Whether there is a connection for one-sided access.
    pub fn is_connected(&self) -> bool {
        self.session.is_some()
    }

    /// The number of the session, if it is open.
    pub fn session(&self) -> Option<u64> {
        self.session.as_ref().map(|session| session.id)
    }

    /// The ways by which batches came so far.
    pub fn ways(&self) -> Ways {
        self.ways
    }

    /// The Flight client, for everything else.
    pub fn flight(&mut self) -> &mut FlightClient {
        &mut self.flight
    }

    /// The batches of a ticket of a held snapshot, read from the server's memory where they lie
    /// frozen.
    pub fn read(&mut self, ticket: Ticket) -> Read<'_> {
        Read(Batches::new(self, ticket))
    }

    /// The batches of a ticket of a held snapshot, written by the server, each as soon as it is
    /// there.
    pub fn receive(&mut self, ticket: Ticket, slots: Slots) -> Receive<'_> {
        Receive { batches: Batches::new(self, ticket), slots, free: Vec::new(), written: None, held: Vec::new() }
    }

    /// Ends the session.
    ///
    /// # Errors
    /// When the server cannot be told.
    pub async fn disconnect(&mut self) -> Result<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        match self.act::<()>(DISCONNECT, &Of { session: session.id, lease: 0 }).await {
            Err(error) if code_of(&error) == Some(Code::NotFound) => Ok(()),
            other => other.map(drop),
        }
    }

    async fn open(&mut self) -> Result<()> {
        let endpoint = self.transport.open()?;
        let request = Connect { transport: self.transport.name().into(), address: endpoint.address() };
        let Some(Connected { session, address }) = self.act(CONNECT, &request).await? else {
            return nonsense("there is no session in it");
        };
        endpoint.connect(&address)?;
        self.session = Some(Session { id: session, endpoint });
        Ok(())
    }

    async fn results(&mut self, name: &str, body: &impl Serialize) -> Result<BoxStream<'static, Result<Bytes>>> {
        let body = serde_json::to_vec(body).expect("it is plain data");
        let results = self.flight.do_action(Action { r#type: name.into(), body: body.into() }).await?;
        Ok(results.map_err(RdmaError::from).boxed())
    }

    /// The only result of an action, if there is one.
    async fn act<T: DeserializeOwned>(&mut self, name: &str, body: &impl Serialize) -> Result<Option<T>> {
        let mut results = self.results(name, body).await?;
        let Some(result) = results.next().await else { return Ok(None) };
        serde_json::from_slice(&result?).map(Some).or_else(|error| nonsense(error.to_string()))
    }
}

/// A result of a directory or a write.
struct Told {
    entry: Entry,
    header: Bytes,
    data: Bytes,
}

impl Told {
    fn new(result: Bytes) -> Result<Self> {
        let data = FlightData::decode(result).or_else(|error| nonsense(error.to_string()))?;
        let entry = serde_json::from_slice(&data.app_metadata).or_else(|error| nonsense(error.to_string()))?;
        Ok(Self { entry, header: data.data_header, data: data.data_body })
    }

    fn schema(&self) -> Result<SchemaRef> {
        let data = FlightData { data_header: self.header.clone(), ..FlightData::default() };
        Ok(Arc::new(Schema::try_from(&data)?))
    }
}

/// The common state of both ways: the expected blocks, and the fallback.
struct Batches<'c> {
    client: &'c mut RdmaClient,
    ticket: Ticket,
    /// The first block that has not been given yet.
    from: u32,
    schema: Option<SchemaRef>,
    dictionaries: HashMap<i64, ArrayRef>,
    ready: VecDeque<RecordBatch>,
    told: VecDeque<Told>,
    lease: Option<Lease>,
    /// The batches of a DoGet, and the first block behind it.
    fetching: Option<(Box<FlightRecordBatchStream>, u32)>,
    breaks: usize,
    /// Everything that is left is fetched.
    by_get: bool,
    ended: bool,
}

struct Lease {
    id: u64,
    /// The end of the lease by the client's count.
    until: Instant,
    length: Duration,
}

impl<'c> Batches<'c> {
    fn new(client: &'c mut RdmaClient, ticket: Ticket) -> Self {
        let by_get = client.session.is_none();
        Self {
            client,
            ticket,
            from: 0,
            schema: None,
            dictionaries: HashMap::new(),
            ready: VecDeque::new(),
            told: VecDeque::new(),
            lease: None,
            fetching: None,
            breaks: 0,
            by_get,
            ended: false,
        }
    }

    fn scan(&self, session: Option<u64>) -> Scan {
        Scan { session, ticket: self.ticket.ticket.to_vec(), from: self.from }
    }

    /// A batch that is ready or that DoGet gives; `None` without one.
    async fn at_hand(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(batch) = self.ready.pop_front() {
            return Ok(Some(batch));
        }
        if let Some((stream, end)) = &mut self.fetching {
            match stream.next().await {
                Some(batch) => {
                    self.client.ways.fetched += 1;
                    return Ok(Some(batch?));
                }
                None => {
                    self.from = *end;
                    self.fetching = None;
                }
            }
        }
        Ok(None)
    }

    async fn fetch(&mut self, ticket: Ticket, end: u32) -> Result<()> {
        self.fetching = Some((Box::new(self.client.flight.do_get(ticket).await?), end));
        Ok(())
    }

    /// Fetches all that is left.
    async fn fetch_rest(&mut self) -> Result<()> {
        self.ended = true;
        if self.from == 0 {
            return self.fetch(self.ticket.clone(), u32::MAX).await;
        }
        let scan = self.scan(None);
        let mut results = self.client.results(DIRECTORY, &scan).await?;
        while let Some(result) = results.next().await {
            if let Entry::Get { ticket, end, .. } = Told::new(result?)?.entry {
                self.fetch(Ticket::new(ticket), end).await?;
            }
        }
        Ok(())
    }

    /// The connection is broken, or the lease has ended: makes another, or gives it up.
    async fn lost(&mut self, connection: bool) -> Result<()> {
        self.client.ways.lost += 1;
        self.breaks += 1;
        self.told.clear();
        self.dictionaries.clear();
        self.lease = None;
        if connection {
            self.client.session = None;
        }
        if self.breaks > MOST_BREAKS {
            self.by_get = true;
        } else if connection && self.client.open().await.is_err() {
            // If the server does not answer at all, the next call says so.
            self.by_get = true;
        }
        Ok(())
    }

    /// Notes that a block has been given.
    fn advance(&mut self, block: u32) {
        self.from = block + 1;
        self.breaks = 0;
    }

    fn decode(&mut self, header: &[u8], body: &Buffer) -> Result<Option<RecordBatch>> {
        let Some(schema) = &self.schema else { return nonsense("there is no schema before the blocks") };
        decode(schema, header, body, &mut self.dictionaries)
    }
}

/// Makes a batch of a message; `None` for a dictionary, which is kept.
fn decode(
    schema: &SchemaRef,
    header: &[u8],
    body: &Buffer,
    dictionaries: &mut HashMap<i64, ArrayRef>,
) -> Result<Option<RecordBatch>> {
    let message = arrow_ipc::root_as_message(header).or_else(|error| nonsense(error.to_string()))?;
    let check = |batch: arrow_ipc::RecordBatch<'_>| {
        let within = |place: &arrow_ipc::Buffer| {
            let end = place.offset().checked_add(place.length());
            place.offset() >= 0 && place.length() >= 0 && end.is_some_and(|end| end as u64 <= body.len() as u64)
        };
        match batch.buffers() {
            Some(places) if places.iter().all(within) => Ok(()),
            _ => nonsense("a buffer does not lie in the message"),
        }
    };
    match message.header_type() {
        MessageHeader::RecordBatch => {
            let Some(batch) = message.header_as_record_batch() else { return nonsense("there is no batch") };
            check(batch)?;
            let version = message.version();
            Ok(Some(read_record_batch(body, batch, schema.clone(), dictionaries, None, &version)?))
        }
        MessageHeader::DictionaryBatch => {
            let Some(batch) = message.header_as_dictionary_batch() else { return nonsense("there is no dictionary") };
            let Some(words) = batch.data() else { return nonsense("there are no words") };
            check(words)?;
            read_dictionary(body, batch, schema, dictionaries, &message.version())?;
            Ok(None)
        }
        other => nonsense(format!("a message is {other:?}")),
    }
}

fn no_memory(error: &std::io::Error) -> TransportError {
    TransportError::NoRoom(error.to_string())
}

/// Batches that the client reads. See [`RdmaClient::read`].
pub struct Read<'c>(Batches<'c>);

impl Read<'_> {
    /// The next batch; `None` after the last.
    ///
    /// # Errors
    /// When the snapshot is not held any more, and as DoGet.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.0.at_hand().await? {
                return Ok(Some(batch));
            }
            if self.0.ended {
                return Ok(None);
            }
            if self.0.by_get {
                self.0.fetch_rest().await?;
                continue;
            }
            let Some(told) = self.0.told.pop_front() else {
                self.ask().await?;
                continue;
            };
            match told.entry {
                Entry::Begin { .. } => self.0.schema = Some(told.schema()?),
                Entry::Lent { block, bytes, ref pieces } => {
                    if !self.renew().await? {
                        continue;
                    }
                    match self.fetch_lent(bytes, pieces, &told.data).await {
                        Ok(Some(body)) => {
                            if let Some(batch) = self.0.decode(&told.header, &body)? {
                                self.0.client.ways.read += 1;
                                self.0.advance(block);
                                self.0.ready.push_back(batch);
                            }
                        }
                        Ok(None) => self.0.lost(false).await?,
                        Err(RdmaError::Transport(TransportError::Refused | TransportError::Broken(_))) => {
                            self.0.lost(true).await?;
                        }
                        Err(RdmaError::Transport(TransportError::NoRoom(_))) => self.0.by_get = true,
                        Err(error) => return Err(error),
                    }
                }
                Entry::Get { block, end, ticket } => {
                    self.0.from = block;
                    self.0.fetch(Ticket::new(ticket), end).await?;
                }
                Entry::Rest { block } => {
                    self.release().await?;
                    self.0.from = block;
                    self.ask().await?;
                }
                Entry::Written { .. } => return nonsense("nothing was to be written"),
            }
            if self.0.told.is_empty() && !self.0.by_get && self.0.lease.is_some() {
                self.release().await?;
                self.0.ended = true;
            }
        }
    }

    /// Asks for the directory, and keeps it.
    async fn ask(&mut self) -> Result<()> {
        let asked = Instant::now();
        let scan = self.0.scan(self.0.client.session());
        let told = async {
            let mut results = self.0.client.results(DIRECTORY, &scan).await?;
            let (mut told, mut bytes) = (VecDeque::new(), 0);
            while let Some(result) = results.next().await {
                let result = result?;
                bytes += result.len();
                if bytes > MOST_DIRECTORY_BYTES {
                    return nonsense("the directory is too long");
                }
                told.push_back(Told::new(result)?);
            }
            Ok(told)
        };
        match told.await {
            Ok(told) => {
                let Some(Told { entry: Entry::Begin { lease: Some(id), milliseconds }, .. }) = told.front() else {
                    return nonsense("there is no lease");
                };
                let length = Duration::from_millis(*milliseconds);
                self.0.lease = Some(Lease { id: *id, until: asked + length, length });
                self.0.told = told;
                Ok(())
            }
            Err(error) => self.0.after(error).await,
        }
    }

    /// Renews the lease when half of it is over; false if it is lost.
    async fn renew(&mut self) -> Result<bool> {
        let now = Instant::now();
        let (Some(lease), Some(session)) = (&self.0.lease, self.0.client.session()) else {
            return nonsense("there is no lease");
        };
        if now + lease.length / 2 < lease.until {
            return Ok(true);
        }
        let of = Of { session, lease: lease.id };
        match self.0.client.act::<Renewed>(RENEW, &of).await {
            Ok(Some(Renewed { milliseconds })) => {
                if let Some(lease) = &mut self.0.lease {
                    lease.until = now + Duration::from_millis(milliseconds);
                }
                Ok(true)
            }
            Ok(None) => nonsense("there is no time in it"),
            Err(error) => self.0.after(error).await.map(|()| false),
        }
    }

    /// Gives the lease back.
    async fn release(&mut self) -> Result<()> {
        let (Some(lease), Some(session)) = (self.0.lease.take(), self.0.client.session()) else { return Ok(()) };
        match self.0.client.act::<()>(RELEASE, &Of { session, lease: lease.id }).await {
            Err(error) if code_of(&error) == Some(Code::NotFound) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Reads a message's body; `None` if the lease ended before the last byte was there.
    async fn fetch_lent(&mut self, bytes: u64, pieces: &[super::wire::Piece], data: &Bytes) -> Result<Option<Buffer>> {
        if bytes > MOST_BODY_BYTES {
            return nonsense(format!("a message has {bytes} bytes"));
        }
        let Some(Session { endpoint, .. }) = self.0.client.session.clone() else { return nonsense("no session") };
        let region = Region::new(bytes as usize).map_err(|error| no_memory(&error))?;
        let place = endpoint.register(Memory::Private(region.clone()))?;
        let registered = Registered { endpoint: endpoint.clone(), key: place.key };
        let (mut transfers, mut inline) = (Vec::new(), data.clone());
        for piece in pieces {
            let Some(local) = place.part(piece.at, piece.length).filter(|_| piece.at + piece.length <= bytes) else {
                return nonsense("a piece does not lie in its message");
            };
            match piece.place {
                Some(remote) if remote.length == piece.length => transfers.push(Transfer { local, remote }),
                Some(_) => return nonsense("a piece has another length"),
                None if inline.len() as u64 >= piece.length => {
                    region.fill(piece.at as usize, &inline.split_to(piece.length as usize));
                }
                None => return nonsense("the bytes of a piece are missing"),
            }
        }
        let read = tokio::task::spawn_blocking(move || endpoint.read(&transfers)).await;
        read.map_err(|error| RdmaError::Answer(error.to_string()))??;
        let in_time = self.0.lease.as_ref().is_some_and(|lease| Instant::now() < lease.until);
        drop(registered);
        let body = region.into_buffer().ok_or_else(|| TransportError::Broken("the memory is still in use".into()))?;
        Ok(in_time.then_some(body))
    }
}

/// A registration that ends when this is dropped.
struct Registered {
    endpoint: Arc<dyn Endpoint>,
    key: u32,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.endpoint.revoke(self.key);
    }
}

impl Batches<'_> {
    /// Handles an error of a call. A session that has ended is opened again, a server without room
    /// is asked by DoGet, and every other error is the caller's.
    async fn after(&mut self, error: RdmaError) -> Result<()> {
        match code_of(&error) {
            Some(Code::NotFound | Code::Unavailable | Code::FailedPrecondition) => {
                if self.breaks > MOST_BREAKS {
                    return Err(error);
                }
                self.lost(true).await
            }
            Some(Code::ResourceExhausted) => {
                self.by_get = true;
                Ok(())
            }
            _ => Err(error),
        }
    }
}

/// Batches that the server writes. See [`RdmaClient::receive`].
pub struct Receive<'c> {
    batches: Batches<'c>,
    slots: Slots,
    /// Places that nothing has been written to.
    free: Vec<Slot>,
    written: Option<Written>,
    /// Batches of a block that is not complete.
    held: Vec<RecordBatch>,
}

/// The batches that a call writes.
struct Written {
    results: BoxStream<'static, Result<Bytes>>,
    slots: Vec<Option<Slot>>,
    /// Messages in the place that is written to: header, beginning, bytes.
    parts: Vec<(Bytes, u64, u64)>,
}

struct Slot {
    region: Arc<Region>,
    place: Place,
    registered: Registered,
}

impl Receive<'_> {
    /// The next batch; `None` after the last. It is given as soon as the server has reported it.
    ///
    /// # Errors
    /// When the snapshot is not held any more, and as DoGet.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.batches.at_hand().await? {
                return Ok(Some(batch));
            }
            if self.batches.ended {
                return Ok(None);
            }
            if self.batches.by_get {
                self.forget();
                self.batches.fetch_rest().await?;
                continue;
            }
            if let Err(error) = self.advance().await {
                self.forget();
                match error {
                    RdmaError::Transport(TransportError::NoRoom(_)) => self.batches.by_get = true,
                    RdmaError::Transport(TransportError::Refused | TransportError::Broken(_)) => {
                        self.batches.lost(true).await?;
                    }
                    error => self.batches.after(error).await?,
                }
            }
        }
    }

    /// Abandons running transfers. Places that the server may still write to are closed.
    fn forget(&mut self) {
        self.written = None;
        self.free.clear();
        self.held.clear();
        self.batches.dictionaries.clear();
    }

    async fn begin(&mut self) -> Result<Written> {
        let Some(Session { id, endpoint }) = self.batches.client.session.clone() else { return nonsense("no session") };
        while self.free.len() < self.slots.count.max(1) {
            let region = Region::new(self.slots.bytes).map_err(|error| no_memory(&error))?;
            let place = endpoint.register(Memory::Writable(region.clone()))?;
            let registered = Registered { endpoint: endpoint.clone(), key: place.key };
            self.free.push(Slot { region, place, registered });
        }
        let slots = std::mem::take(&mut self.free);
        let write = Write { scan: self.batches.scan(Some(id)), slots: slots.iter().map(|slot| slot.place).collect() };
        let results = self.batches.client.results(WRITE, &write).await?;
        Ok(Written { results, slots: slots.into_iter().map(Some).collect(), parts: Vec::new() })
    }

    /// Takes one report.
    async fn advance(&mut self) -> Result<()> {
        if self.written.is_none() {
            self.written = Some(self.begin().await?);
        }
        let Some(written) = &mut self.written else { return Ok(()) };
        let Some(result) = written.results.next().await else {
            self.batches.ended = true;
            self.written = None;
            return Ok(());
        };
        let told = Told::new(result?)?;
        match told.entry {
            Entry::Begin { .. } => self.batches.schema = Some(told.schema()?),
            Entry::Written { block, slot, at, bytes, last, complete } => {
                written.parts.push((told.header, at, bytes));
                if !last {
                    return Ok(());
                }
                let slot = written.slots.get_mut(slot as usize).and_then(Option::take);
                let Some(Slot { region, registered, .. }) = slot else { return nonsense("it wrote to no place") };
                // From here on the server cannot write there, and the bytes never change.
                drop(registered);
                let Some(buffer) = region.into_buffer() else { return nonsense("the memory is still in use") };
                for (header, at, bytes) in std::mem::take(&mut written.parts) {
                    if at.checked_add(bytes).is_none_or(|end| end > buffer.len() as u64) {
                        return nonsense("a message does not lie in its place");
                    }
                    let body = buffer.slice_with_length(at as usize, bytes as usize);
                    self.held.extend(self.batches.decode(&header, &body)?);
                }
                if complete {
                    self.batches.client.ways.written += self.held.len();
                    self.batches.ready.extend(self.held.drain(..));
                    self.batches.advance(block);
                }
            }
            Entry::Rest { block } => {
                self.free.extend(written.slots.drain(..).flatten());
                self.written = None;
                self.batches.from = block;
            }
            Entry::Lent { .. } | Entry::Get { .. } => return nonsense("all was to be written"),
        }
        Ok(())
    }
}
