//! One-sided access over Flight: the actions of [`crate::rdma`].
//!
//! A directory or a write begins with the ticket of a held snapshot, and with the check of a DoGet:
//! whether the caller may read the ticket's columns. Later, `Flights::sweep_remote` checks again
//! when privileges have changed, because the client's reads are not checked.

use super::extension::Caller;
use super::service::{Flights, ticket_of};
use crate::body::{Body, Pieces, header, with_own_words, words_of};
use crate::rdma::sessions::{Grant, Local, Owner, Session, SessionError, Sessions};
use crate::rdma::transport::{Memory, Place, Region, Transfer, TransportError};
use crate::rdma::wire::{
    CONNECT, Connect, Connected, DIRECTORY, DISCONNECT, Entry, MOST_SLOTS, Of, Piece, RELEASE, RENEW, Renewed, Scan,
    WRITE, Write,
};
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_flight::{Action, ActionType, FlightData, SchemaAsIpc};
use arrow_ipc::writer::IpcWriteOptions;
use arrow_schema::ArrowError;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use prost::Message;
use serac_client::flight::{Ticket, What};
use serac_engine::ArrowScan;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ops::Range;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tonic::Status;

/// Shorter pieces go with the directory: a registration would cost more.
const LEAST_LENT: usize = 4096;
/// Bytes of a block that may go with the directory. A block with more comes by DoGet.
const MOST_INLINE: usize = 64 << 10;
/// Bytes that the server writes to one of the client's places, however long it says that it is.
const MOST_SLOT_BYTES: u64 = 64 << 20;
/// The shortest place for blocks.
const LEAST_SLOT_BYTES: u64 = 4 << 10;
/// Results that wait for the client.
const RESULTS_AHEAD: usize = 4;

pub(super) type RemoteSessions = Sessions<Caller>;
type Results = BoxStream<'static, Result<arrow_flight::Result, Status>>;

/// The sessions, and the privileges for which they were last looked at.
#[derive(Debug)]
pub(super) struct Remote {
    sessions: RemoteSessions,
    /// Relaxed: a version that is looked at too late or twice does no harm.
    checked: AtomicU64,
}

impl Remote {
    pub(super) fn new(sessions: RemoteSessions) -> Self {
        Self { sessions, checked: AtomicU64::new(0) }
    }
}

impl Owner for Caller {
    fn is(&self, other: &Self) -> bool {
        (self.role, &self.user) == (other.role, &other.user)
    }
}

impl From<SessionError> for Status {
    fn from(error: SessionError) -> Self {
        let message = error.to_string();
        match error {
            SessionError::NoSession | SessionError::NoLease => Self::not_found(message),
            SessionError::Full(_) | SessionError::Transport(TransportError::NoRoom(_)) => {
                Self::resource_exhausted(message)
            }
            SessionError::OtherTransport(_) => Self::unimplemented(message),
            SessionError::Transport(TransportError::Invalid(_)) => Self::invalid_argument(message),
            SessionError::Transport(TransportError::Refused) => Self::failed_precondition(message),
            SessionError::Transport(TransportError::Broken(_)) => Self::unavailable(message),
        }
    }
}

fn internal(error: ArrowError) -> Status {
    Status::internal(error.to_string())
}

fn read_body<T: DeserializeOwned>(action: &Action) -> Result<T, Status> {
    serde_json::from_slice(&action.body)
        .map_err(|error| Status::invalid_argument(format!("the action's body cannot be read: {error}")))
}

fn result(body: impl Into<Bytes>) -> arrow_flight::Result {
    arrow_flight::Result { body: body.into() }
}

fn one(body: &impl Serialize) -> Results {
    let body = serde_json::to_vec(body).expect("it is plain data");
    futures::stream::iter([Ok(result(body))]).boxed()
}

/// The actions of one-sided access.
pub(super) fn actions() -> impl Iterator<Item = ActionType> {
    [
        (CONNECT, "opens a session for one-sided access"),
        (DIRECTORY, "leases the blocks of a ticket and says where they lie in the server's memory"),
        (WRITE, "has the blocks of a ticket written into the client's memory"),
        (RENEW, "holds a lease, and the snapshot of its ticket, for longer"),
        (RELEASE, "ends a lease"),
        (DISCONNECT, "ends a session and its leases"),
    ]
    .into_iter()
    .map(|(name, description)| ActionType { r#type: name.into(), description: description.into() })
}

/// A message of Arrow IPC in two parts.
struct Part {
    header: Vec<u8>,
    bytes: usize,
    body: Pieces,
}

impl Part {
    fn new(body: Body, rows: usize, dictionary: Option<i64>) -> Self {
        let bytes = body.bytes();
        let header = header(&body, &body.places, bytes, rows, dictionary);
        Self { header, bytes, body: body.into_pieces() }
    }
}

/// The messages of a batch: its dictionaries and its rows.
fn parts_of(batch: &RecordBatch) -> Result<Vec<Part>, ArrowError> {
    let mut parts = Vec::new();
    for (id, words) in batch.columns().iter().filter_map(words_of).enumerate() {
        let mut body = Body::default();
        body.push_column(slice::from_ref(words))?;
        parts.push(Part::new(body, words.len(), Some(id as i64)));
    }
    let mut body = Body::default();
    batch.columns().iter().try_for_each(|column| body.push_column(slice::from_ref(column)))?;
    parts.push(Part::new(body, batch.num_rows(), None));
    Ok(parts)
}

fn bytes_of(parts: &[Part]) -> usize {
    parts.iter().map(|part| part.bytes).sum()
}

/// The messages of a batch in groups of at most `limit` bytes; with several groups, each has a part
/// of the rows.
fn groups_of(batch: &RecordBatch, limit: usize) -> Result<Vec<Vec<Part>>, Status> {
    let parts = parts_of(batch).map_err(internal)?;
    let (bytes, rows) = (bytes_of(&parts), batch.num_rows());
    if bytes <= limit {
        return Ok(vec![parts]);
    }
    if rows <= 1 && parts.len() == 1 {
        let message = format!("a row of {bytes} bytes does not fit into a place of {limit} bytes");
        return Err(Status::resource_exhausted(message));
    }
    let middle = if rows > 1 { rows / 2 } else { rows };
    let halves = [0..middle, middle..rows].into_iter().filter(|half| !half.is_empty());
    let mut groups = Vec::new();
    for half in halves {
        let half = batch.slice(half.start, half.len());
        // Dictionaries would not become shorter otherwise.
        let half = if parts.len() > 1 { with_own_words(&half).map_err(internal)? } else { half };
        if half.num_rows() <= 1 {
            let parts = parts_of(&half).map_err(internal)?;
            let bytes = bytes_of(&parts);
            if bytes > limit {
                let message = format!("a row of {bytes} bytes does not fit into a place of {limit} bytes");
                return Err(Status::resource_exhausted(message));
            }
            groups.push(parts);
        } else {
            groups.extend(groups_of(&half, limit)?);
        }
    }
    Ok(groups)
}

/// Whether bytes are a frozen block's own.
fn is_frozen(piece: &Bytes, frozen: &[Range<usize>]) -> bool {
    let start = piece.as_ptr() as usize;
    piece.len() >= LEAST_LENT && frozen.iter().any(|range| range.start <= start && start + piece.len() <= range.end)
}

/// Results on their way to the client. It is given up when the client does not read for too long.
struct Sender {
    results: mpsc::Sender<Result<arrow_flight::Result, Status>>,
    runtime: tokio::runtime::Handle,
    stall: Duration,
}

/// The client has gone, or does not read.
struct Gone;

impl Sender {
    fn send(&self, result: Result<arrow_flight::Result, Status>) -> Result<(), Gone> {
        let sent = async { tokio::time::timeout(self.stall, self.results.send(result)).await };
        match self.runtime.block_on(sent) {
            Ok(Ok(())) => Ok(()),
            _ => Err(Gone),
        }
    }

    fn entry(&self, entry: &Entry, data_header: Vec<u8>, data_body: Vec<u8>) -> Result<(), Gone> {
        let app_metadata = serde_json::to_vec(entry).expect("it is plain data").into();
        let data = FlightData {
            data_header: data_header.into(),
            app_metadata,
            data_body: data_body.into(),
            ..FlightData::default()
        };
        self.send(Ok(result(data.encode_to_vec())))
    }
}

/// The reason why a stream of results ends.
enum End {
    Gone,
    Failed(Status),
}

impl From<Gone> for End {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}
impl From<Status> for End {
    fn from(status: Status) -> Self {
        Self::Failed(status)
    }
}
impl From<SessionError> for End {
    fn from(error: SessionError) -> Self {
        Self::Failed(error.into())
    }
}

/// The blocks that a directory or a write goes through.
struct Work {
    scan: ArrowScan,
    snapshot: u64,
    lease: Duration,
    most_leases: usize,
    sender: Sender,
}

impl Work {
    /// The rows of a block, if there are any.
    fn read(&self, block: u32) -> Result<Option<RecordBatch>, Status> {
        let one = self.scan.clone().within(block..block + 1).next_block();
        one.transpose().map(Option::flatten).map_err(internal)
    }

    fn schema(&self) -> Vec<u8> {
        let schema = self.scan.schema();
        FlightData::from(SchemaAsIpc::new(&schema, &IpcWriteOptions::default())).data_header.to_vec()
    }

    fn to_fetch(&self, blocks: Range<u32>) -> Entry {
        let (block, end) = (blocks.start, blocks.end);
        let ticket = Ticket { what: What::Lease(self.snapshot), blocks: Some(blocks) }.to_bytes();
        Entry::Get { block, end, ticket }
    }

    /// Sends tickets by which the client fetches all blocks.
    fn tickets(&self) -> Result<(), End> {
        let begin = Entry::Begin { lease: None, milliseconds: 0 };
        self.sender.entry(&begin, self.schema(), Vec::new())?;
        let blocks = self.scan.blocks();
        if !blocks.is_empty() {
            self.sender.entry(&self.to_fetch(blocks), Vec::new(), Vec::new())?;
        }
        Ok(())
    }

    /// Sends the places of blocks. The lease goes on when all places have been sent; otherwise it
    /// ends.
    fn directory(&self, session: &Session<Caller>) -> Result<(), End> {
        let until = Instant::now() + self.lease;
        let grant = Grant { reads: self.scan.columns_read(), snapshot: self.snapshot };
        let lease = session.begin(grant, until, self.most_leases)?;
        let told = self.tell(session, lease);
        if told.is_err() {
            session.end(lease);
        }
        told
    }

    fn tell(&self, session: &Session<Caller>, lease: u64) -> Result<(), End> {
        let milliseconds = self.lease.as_millis() as u64;
        self.sender.entry(&Entry::Begin { lease: Some(lease), milliseconds }, self.schema(), Vec::new())?;
        let (mut fetched, mut lent) = (None::<Range<u32>>, 0);
        let flush = |fetched: &mut Option<Range<u32>>| match fetched.take() {
            Some(blocks) => self.sender.entry(&self.to_fetch(blocks), Vec::new(), Vec::new()),
            None => Ok(()),
        };
        for block in self.scan.blocks() {
            let Some(batch) = self.read(block)? else { continue };
            let parts = parts_of(&batch).map_err(internal)?;
            let frozen = self.scan.frozen_memory(block);
            let pieces = || parts.iter().flat_map(|part| &part.body.pieces);
            let inline: usize = pieces().filter(|piece| !is_frozen(piece, &frozen)).map(Bytes::len).sum();
            let memories: Vec<_> = pieces().filter(|piece| is_frozen(piece, &frozen)).cloned().collect();
            let places = if memories.is_empty() || inline > MOST_INLINE {
                None
            } else {
                match session.leases.add(lease, memories) {
                    Ok(Some(places)) => Some(places),
                    Ok(None) => return Err(Status::from(SessionError::NoLease).into()),
                    Err(TransportError::NoRoom(_)) if lent > 0 => {
                        flush(&mut fetched)?;
                        self.sender.entry(&Entry::Rest { block }, Vec::new(), Vec::new())?;
                        return Ok(());
                    }
                    Err(TransportError::NoRoom(_)) => None,
                    Err(error) => return Err(SessionError::from(error).into()),
                }
            };
            let Some(places) = places else {
                fetched = Some(fetched.map_or(block, |blocks| blocks.start)..block + 1);
                continue;
            };
            flush(&mut fetched)?;
            lent += 1;
            let mut places = places.into_iter();
            for Part { header, bytes, body } in parts {
                let (mut pieces, mut data) = (Vec::new(), Vec::new());
                let (bytes, mut at) = (bytes as u64, 0);
                for piece in &body.pieces {
                    let length = piece.len() as u64;
                    let place = is_frozen(piece, &frozen).then(|| places.next().expect("all have a place"));
                    if place.is_none() {
                        data.extend_from_slice(piece);
                    }
                    pieces.push(Piece { at, length, place });
                    at += length;
                }
                self.sender.entry(&Entry::Lent { block, bytes, pieces }, header, data)?;
            }
        }
        flush(&mut fetched)?;
        Ok(())
    }

    /// Writes blocks to the client's places, and reports each.
    fn write(&self, session: &Session<Caller>, slots: &[Place]) -> Result<(), End> {
        let begin = Entry::Begin { lease: None, milliseconds: 0 };
        self.sender.entry(&begin, self.schema(), Vec::new())?;
        let shortest = slots.iter().map(|slot| slot.length).min().unwrap_or_default().min(MOST_SLOT_BYTES);
        let mut staging = None;
        let mut next = 0;
        for block in self.scan.blocks() {
            let Some(batch) = self.read(block)? else { continue };
            let groups = groups_of(&batch, shortest as usize)?;
            if next + groups.len() > slots.len() {
                if next == 0 {
                    let message = format!("block {block} needs {} places of {shortest} bytes", groups.len());
                    return Err(Status::resource_exhausted(message).into());
                }
                self.sender.entry(&Entry::Rest { block }, Vec::new(), Vec::new())?;
                return Ok(());
            }
            let frozen = self.scan.frozen_memory(block);
            let last_slot = next + groups.len() - 1;
            for parts in groups {
                write_group(session, &parts, slots[next], &frozen, &mut staging)?;
                let mut at = 0;
                let count = parts.len();
                for (number, part) in parts.into_iter().enumerate() {
                    let bytes = part.bytes as u64;
                    let last = number + 1 == count;
                    let complete = last && next == last_slot;
                    let entry = Entry::Written { block, slot: next as u32, at, bytes, last, complete };
                    self.sender.entry(&entry, part.header, Vec::new())?;
                    at += bytes;
                }
                next += 1;
            }
        }
        Ok(())
    }
}

/// Writes messages one behind the other to a place: pieces of frozen blocks without a copy, others
/// from a copy.
fn write_group(
    session: &Session<Caller>,
    parts: &[Part],
    slot: Place,
    frozen: &[Range<usize>],
    staging: &mut Option<(Arc<Region>, Local)>,
) -> Result<(), SessionError> {
    let bytes = bytes_of(parts);
    let mut sources = Vec::new();
    let mut transfers = Vec::new();
    // A run of bytes that are copied.
    let mut copied = None::<Range<usize>>;
    let remote = |at: usize, length: usize| {
        let part = slot.part(at as u64, length as u64);
        part.ok_or_else(|| TransportError::Invalid("the place is too short".into()))
    };
    let mut at = 0;
    for piece in parts.iter().flat_map(|part| &part.body.pieces) {
        let source = is_frozen(piece, frozen).then(|| session.local(Memory::Source(piece.clone())));
        match source {
            Some(Ok(source)) => {
                transfers.push(Transfer { local: source.place, remote: remote(at, piece.len())? });
                sources.push(source);
            }
            // Without room for its registration it is copied, like a hot block.
            None | Some(Err(TransportError::NoRoom(_))) => {
                if staging.as_ref().is_none_or(|(region, _)| region.length() < bytes) {
                    *staging = None;
                    let no_room = |error: std::io::Error| TransportError::NoRoom(error.to_string());
                    let region = Region::new(bytes).map_err(no_room)?;
                    let local = session.local(Memory::Private(region.clone()))?;
                    *staging = Some((region, local));
                }
                let (region, local) = staging.as_ref().expect("it was just made");
                region.fill(at, piece);
                let end = at + piece.len();
                match &mut copied {
                    Some(run) if run.end == at => run.end = end,
                    _ => {
                        if let Some(run) = copied.replace(at..end) {
                            transfers.push(staged(local, &run, remote(run.start, run.len())?));
                        }
                    }
                }
            }
            Some(Err(error)) => return Err(error.into()),
        }
        at += piece.len();
    }
    if let (Some(run), Some((_, local))) = (copied, staging.as_ref()) {
        transfers.push(staged(local, &run, remote(run.start, run.len())?));
    }
    Ok(session.endpoint.write(&transfers)?)
}

/// The transfer of a run of copied bytes: they lie in the region where they will lie in the place.
fn staged(local: &Local, run: &Range<usize>, remote: Place) -> Transfer {
    let local = local.place.part(run.start as u64, run.len() as u64).expect("the region is as long as the group");
    Transfer { local, remote }
}

impl Flights {
    fn remote(&self, action: &str) -> Result<&Arc<Remote>, Status> {
        let missing = || Status::unimplemented(format!("the action \"{action}\" is not supported"));
        self.remote.as_ref().ok_or_else(missing)
    }

    /// Answers an action, if it is for one-sided access.
    pub(super) async fn act_remote(&self, caller: &Caller, action: &Action) -> Option<Result<Results, Status>> {
        let name = action.r#type.as_str();
        if ![CONNECT, DIRECTORY, WRITE, RENEW, RELEASE, DISCONNECT].contains(&name) {
            return None;
        }
        Some(match self.remote(name) {
            Ok(remote) => self.answer_remote(remote, caller, action).await,
            Err(status) => Err(status),
        })
    }

    async fn answer_remote(&self, remote: &Arc<Remote>, caller: &Caller, action: &Action) -> Result<Results, Status> {
        let sessions = &remote.sessions;
        match action.r#type.as_str() {
            CONNECT => {
                let Connect { transport, address } = read_body(action)?;
                let (session, address) = sessions.connect(caller.clone(), &transport, &address)?;
                Ok(one(&Connected { session, address }))
            }
            DIRECTORY => {
                let scan: Scan = read_body(action)?;
                self.remote_work(remote, caller, scan, |work, session| match session {
                    Some(session) => work.directory(session),
                    None => work.tickets(),
                })
                .await
            }
            WRITE => {
                let Write { scan, slots } = read_body(action)?;
                if slots.is_empty() || slots.len() > MOST_SLOTS {
                    return Err(Status::invalid_argument(format!("there are 1 to {MOST_SLOTS} places to write to")));
                }
                if slots.iter().any(|slot| slot.length < LEAST_SLOT_BYTES) {
                    let message = format!("a place to write to has {LEAST_SLOT_BYTES} bytes at least");
                    return Err(Status::invalid_argument(message));
                }
                self.remote_work(remote, caller, scan, move |work, session| {
                    let none = || Status::invalid_argument("writing needs a session");
                    work.write(session.ok_or_else(none)?, &slots)
                })
                .await
            }
            RENEW => {
                let Of { session, lease } = read_body(action)?;
                let session = sessions.session(session, caller)?;
                let grant = session.grant(lease)?;
                self.check_columns(caller, &grant)?;
                let now = Instant::now();
                if !session.leases.renew(lease, now, now + sessions.lease) {
                    return Err(SessionError::NoLease.into());
                }
                // The snapshot may have been dropped: leased memory stays.
                let _ = self.leases().renew(grant.snapshot);
                Ok(one(&Renewed { milliseconds: sessions.lease.as_millis() as u64 }))
            }
            RELEASE => {
                let Of { session, lease } = read_body(action)?;
                let session = sessions.session(session, caller)?;
                if !session.end(lease) {
                    return Err(SessionError::NoLease.into());
                }
                Ok(futures::stream::empty().boxed())
            }
            _ => {
                let Of { session, .. } = read_body(action)?;
                if !sessions.disconnect(session, caller) {
                    return Err(SessionError::NoSession.into());
                }
                Ok(futures::stream::empty().boxed())
            }
        }
    }

    /// Does long work on a thread of its own, and hands out the results as they come.
    async fn remote_work(
        &self,
        remote: &Arc<Remote>,
        caller: &Caller,
        scan: Scan,
        work: impl FnOnce(&Work, Option<&Session<Caller>>) -> Result<(), End> + Send + 'static,
    ) -> Result<Results, Status> {
        let session = scan.session.map(|session| remote.sessions.session(session, caller)).transpose()?;
        let What::Lease(snapshot) = ticket_of(&scan.ticket)?.what else {
            return Err(Status::invalid_argument("one-sided access needs a ticket of a held snapshot"));
        };
        let permit = self.stream_permit()?;
        let from = scan.from;
        let scan = self.scan(caller, &scan.ticket).await?.within(from..u32::MAX);
        let (results, receiver) = mpsc::channel(RESULTS_AHEAD);
        let sender = Sender { results, runtime: tokio::runtime::Handle::current(), stall: self.options.stall };
        let (lease, most_leases) = (remote.sessions.lease, remote.sessions.options.max_leases);
        let details = Work { scan, snapshot, lease, most_leases, sender };
        tokio::task::spawn_blocking(move || {
            if let Err(End::Failed(status)) = work(&details, session.as_deref()) {
                // The client has gone if this fails.
                let _ = details.sender.send(Err(status));
            }
            drop(permit);
        });
        let results = futures::stream::unfold(receiver, async |mut receiver| {
            receiver.recv().await.map(|result| (result, receiver))
        });
        Ok(results.boxed())
    }

    fn check_columns(&self, caller: &Caller, grant: &Grant) -> Result<(), Status> {
        let access = self.access(caller, &self.database.begin())?;
        grant.reads.check_access(&access).map_err(|error| super::status_of(&error))
    }

    /// Ends expired leases, and the sessions of roles that may not read their leased columns any
    /// more.
    pub(super) fn sweep_remote(&self, remote: &Remote) {
        let version = self.database.security_version();
        // Before the look: a change meanwhile is looked at the next time.
        let changed = remote.checked.swap(version, Ordering::Relaxed) != version;
        remote.sessions.sweep(Instant::now(), |caller, grants| {
            !changed || grants.iter().all(|grant| self.check_columns(caller, grant).is_ok())
        });
    }
}
