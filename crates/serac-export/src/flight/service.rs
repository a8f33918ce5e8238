//! The Flight calls.

use super::door::Door;
use super::extension::{Caller, Extension};
use super::lease::{Held, Leases, WantedRows};
use super::message::Messages;
use super::remote_memory::{self, Remote, RemoteSessions};
use super::request;
use super::stream::{BatchStream, BlockStream, Body};
use super::{FlightOptions, status_of};
use crate::lookup;
use crate::rdma::RdmaOptions;
use crate::rdma::transport::Transport;
use arrow_array::RecordBatchReader;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, Criteria, Empty, FlightData,
    FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest, HandshakeResponse, Location, PollInfo, PutResult,
    RenewFlightEndpointRequest, SchemaAsIpc, SchemaResult,
};
use arrow_ipc::writer::IpcWriteOptions;
use arrow_schema::SchemaRef;
use futures::StreamExt;
use futures::stream::BoxStream;
use hyper::body::Incoming;
use prost::Message;
use serac_client::flight::{
    EndpointEstimates, FlightEstimates, HOLD, HeldSnapshot, ScanRequest, SnapshotUse, Ticket, What,
};
use serac_engine::security::{Access, RoleId};
use serac_engine::{ArrowScan, Database, Transaction};
use serde::Serialize;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Request, Response, Status, Streaming};

const DO_GET: &str = "/arrow.flight.protocol.FlightService/DoGet";
const DO_PUT: &str = "/arrow.flight.protocol.FlightService/DoPut";
const CANCEL: &str = "CancelFlightInfo";
const RENEW: &str = "RenewFlightEndpoint";
/// Bytes of a request: a descriptor, a ticket, an action.
const MAX_REQUEST_BYTES: usize = 1 << 20;

/// The tables of a database as flights.
#[derive(Clone, Debug)]
pub(super) struct Flights {
    pub(super) database: Database,
    pub(super) options: FlightOptions,
    leases: Arc<Leases>,
    streams: Arc<Semaphore>,
    extension: Option<Arc<dyn Extension>>,
    pub(super) remote: Option<Arc<Remote>>,
}

/// A transaction whose snapshot is durable.
async fn begin_durable(database: &Database) -> Result<Transaction, Status> {
    let begun = lookup::begin_durable(database).await;
    begun.map_err(|error| Status::unavailable(format!("the log has failed: {error}")))
}

fn timestamp(time: SystemTime) -> prost_types::Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    prost_types::Timestamp { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() as i32 }
}

/// The ticket in bytes of a client.
///
/// # Errors
/// INVALID_ARGUMENT, if they are no ticket.
pub(super) fn ticket_of(bytes: &[u8]) -> Result<Ticket, Status> {
    let unreadable = |error| Status::invalid_argument(format!("this is no ticket of this server: {error}"));
    Ticket::from_bytes(bytes).map_err(unreadable)
}

/// Metadata of a flight or an endpoint.
fn metadata(estimates: &impl Serialize) -> bytes::Bytes {
    serde_json::to_vec(estimates).expect("estimates are plain data").into()
}

impl Flights {
    pub(super) fn new(database: Database, options: FlightOptions) -> Self {
        let leases = Arc::new(Leases::new(options.clone()));
        let streams = Arc::new(Semaphore::new(options.max_streams.min(Semaphore::MAX_PERMITS)));
        Self { database, options, leases, streams, extension: None, remote: None }
    }

    pub(super) fn extend(&mut self, extension: Arc<dyn Extension>) {
        self.extension = Some(extension);
    }

    pub(super) fn share_memory(&mut self, transport: Arc<dyn Transport>, options: RdmaOptions) {
        self.remote = Some(Arc::new(Remote::new(RemoteSessions::new(transport, options, self.options.lease))));
    }

    pub(super) fn leases(&self) -> &Arc<Leases> {
        &self.leases
    }

    /// Drops expired snapshots.
    pub(super) fn sweep(&self) {
        self.leases.sweep();
        if let Some(extension) = &self.extension {
            extension.sweep();
        }
        if let Some(remote) = self.remote.clone() {
            // Revoking keys takes time.
            let flights = self.clone();
            tokio::task::spawn_blocking(move || flights.sweep_remote(&remote));
        }
    }

    /// The extension, if a command or a ticket is for it.
    fn extension_for(&self, command: &[u8]) -> Option<&Arc<dyn Extension>> {
        self.extension.as_ref().filter(|extension| extension.speaks(command))
    }

    /// Room for a stream.
    pub(super) fn stream_permit(&self) -> Result<OwnedSemaphorePermit, Status> {
        self.streams.clone().try_acquire_owned().map_err(|_| {
            let streams = self.options.max_streams;
            Status::resource_exhausted(format!("the server sends {streams} streams already, and not more at a time"))
        })
    }

    /// The role as which the caller reads.
    fn role(&self, caller: &Caller, txn: &Transaction) -> Result<RoleId, Status> {
        if let Some(extension) = &self.extension {
            return extension.role(caller, txn.catalog());
        }
        match &self.options.role {
            Some(name) => Ok(txn.catalog().security.role_named(name).map_err(|error| status_of(&error))?.id),
            None => Ok(RoleId::BOOTSTRAP),
        }
    }

    /// The privileges of the caller.
    pub(super) fn access(&self, caller: &Caller, txn: &Transaction) -> Result<Access, Status> {
        Ok(txn.access(self.role(caller, txn)?))
    }

    /// Refuses a scan of columns that callers may not read.
    fn check(&self, caller: &Caller, txn: &Transaction, scan: &ArrowScan) -> Result<(), Status> {
        scan.check_access(&self.access(caller, txn)?).map_err(|error| status_of(&error))
    }

    /// The rows that a request asks for, if callers may read all of them.
    fn rows_in(&self, caller: &Caller, txn: &Transaction, request: &ScanRequest) -> Result<WantedRows, Status> {
        let summary = request::summary(request)?;
        let scan = request::scan(request, txn.snapshot(), txn.catalog())?;
        self.check(caller, txn, &scan)?;
        Ok(WantedRows { scan, summary })
    }

    /// The rows that a request asks for in a held snapshot, if callers may read all of them, then
    /// and now.
    fn rows_held(&self, caller: &Caller, held: &Held, request: &ScanRequest) -> Result<WantedRows, Status> {
        let summary = request::summary(request)?;
        let scan = request::scan(request, &held.snapshot, &held.catalog)?;
        let txn = self.database.begin();
        let access = txn.access_at(self.role(caller, &txn)?, held.catalog.clone());
        scan.check_access(&access).map_err(|error| status_of(&error))?;
        Ok(WantedRows { scan, summary })
    }

    /// The extension, which makes summaries of rows.
    fn summarizing(&self) -> Result<&Arc<dyn Extension>, Status> {
        self.extension.as_ref().ok_or_else(|| Status::unimplemented("this server has no aggregates and first rows"))
    }

    /// The columns of the rows that a client gets.
    fn schema_of(&self, rows: &WantedRows) -> Result<SchemaRef, Status> {
        match &rows.summary {
            Some(summary) => self.summarizing()?.summary_schema(&rows.scan.schema(), summary),
            None => Ok(rows.scan.schema()),
        }
    }

    /// Whether a call with these headers may be answered.
    fn authenticate(&self, headers: &http::HeaderMap) -> Result<(), Status> {
        match &self.options.token {
            Some(token) => token.check(headers),
            None if self.database.catalog().security.has_passwords() => Err(Status::unauthenticated(
                "roles have passwords here, and the server was started without a token for Flight",
            )),
            None => Ok(()),
        }
    }

    /// Ranges of blocks, at least one.
    fn ranges(&self, scan: &ArrowScan, endpoints: Option<u32>) -> Vec<std::ops::Range<u32>> {
        let blocks = scan.blocks().end;
        let by_size = || blocks.div_ceil(self.options.blocks_per_endpoint.max(1));
        let endpoints = endpoints.unwrap_or_else(by_size).min(blocks).max(1);
        let bound = |i: u32| (u64::from(blocks) * u64::from(i) / u64::from(endpoints)) as u32;
        (0..endpoints).map(|i| bound(i)..bound(i + 1)).collect()
    }

    /// The flight of some rows, whose tickets have `what` and are good up to `until`.
    fn info(
        &self,
        request: &ScanRequest,
        rows: &WantedRows,
        what: &What,
        until: Option<SystemTime>,
    ) -> Result<FlightInfo, Status> {
        let scan = &rows.scan;
        let mut ranges = self.ranges(scan, request.endpoints);
        let mut info = FlightInfo::new()
            .try_with_schema(self.schema_of(rows)?.as_ref())
            .map_err(|error| Status::internal(error.to_string()))?
            .with_total_records(-1)
            .with_total_bytes(-1);
        if what.lease().is_none() {
            // Rows inserted later lie in later blocks.
            ranges.last_mut().expect("there is one at least").end = u32::MAX;
        }
        for blocks in ranges {
            let rows = scan.rows_in(blocks.start..blocks.end.min(scan.blocks().end));
            let ticket = Ticket { what: what.clone(), blocks: Some(blocks) };
            let mut endpoint = FlightEndpoint::new()
                .with_ticket(arrow_flight::Ticket::new(ticket.to_bytes()))
                .with_app_metadata(metadata(&EndpointEstimates { rows }));
            endpoint.expiration_time = until.map(timestamp);
            endpoint.location = self.options.locations.iter().map(|uri| Location { uri: uri.clone() }).collect();
            info = info.with_endpoint(endpoint);
        }
        Ok(info)
    }

    /// The flight that a request asks for. Unless it names a snapshot, or wants the latest state,
    /// a snapshot is held for it.
    async fn flight(&self, caller: &Caller, request: &ScanRequest) -> Result<FlightInfo, Status> {
        let (rows, what, until) = match request.snapshot {
            SnapshotUse::Held => {
                let txn = begin_durable(&self.database).await?;
                let rows = self.rows_in(caller, &txn, request)?;
                // Before a snapshot is held for what is refused.
                self.schema_of(&rows)?;
                let (id, until) = self.leases.hold(Held::with_rows(&txn, rows.clone()))?;
                (rows, What::Lease(id), Some(until))
            }
            SnapshotUse::Latest => {
                let rows = self.rows_in(caller, &self.database.begin(), request)?;
                (rows, What::Request(Box::new(request.clone())), None)
            }
            SnapshotUse::Lease(id) => {
                let (held, until) = self.leases.held(id)?;
                (self.rows_held(caller, &held, request)?, What::Request(Box::new(request.clone())), Some(until))
            }
        };
        let scan = &rows.scan;
        let known = scan.statistics();
        let distinct = scan.positions().map(|column| known.distinct.get(column).copied().flatten()).collect();
        let summaries = self.extension.is_some();
        let estimates = FlightEstimates { rows: scan.rows_in(scan.blocks()), distinct, summaries };
        Ok(self.info(request, &rows, &what, until)?.with_app_metadata(metadata(&estimates)))
    }

    /// The rows of a ticket. The caller's present privileges count, not those when the ticket was
    /// given.
    async fn rows(&self, caller: &Caller, ticket: &[u8]) -> Result<WantedRows, Status> {
        let ticket = ticket_of(ticket)?;
        let WantedRows { scan, summary } = match ticket.what {
            What::Lease(id) => {
                let rows = self.leases.rows(id)?;
                self.check(caller, &self.database.begin(), &rows.scan)?;
                rows
            }
            What::Request(request) => match request.snapshot {
                SnapshotUse::Lease(id) => self.rows_held(caller, &self.leases.held(id)?.0, &request)?,
                SnapshotUse::Held | SnapshotUse::Latest => {
                    self.rows_in(caller, &begin_durable(&self.database).await?, &request)?
                }
            },
        };
        let scan = match ticket.blocks {
            Some(blocks) => scan.within(blocks),
            None => scan,
        };
        Ok(WantedRows { scan, summary })
    }

    /// The scan of a ticket, as for [`rows`](Self::rows).
    ///
    /// # Errors
    /// INVALID_ARGUMENT, also for a ticket that wants something else than a table's rows.
    pub(super) async fn scan(&self, caller: &Caller, ticket: &[u8]) -> Result<ArrowScan, Status> {
        match self.rows(caller, ticket).await? {
            WantedRows { scan, summary: None } => Ok(scan),
            WantedRows { .. } => Err(Status::invalid_argument("the ticket is one of aggregates or first rows")),
        }
    }

    async fn get(&self, caller: &Caller, request: http::Request<Incoming>) -> Result<Body, Status> {
        let decoder = tonic_prost::ProstDecoder::<arrow_flight::Ticket>::new(tonic::codec::BufferSettings::default());
        let mut messages = Streaming::new_request(decoder, request.into_body(), None, Some(MAX_REQUEST_BYTES));
        let ticket = messages.message().await?.ok_or_else(|| Status::invalid_argument("there is no ticket"))?;
        let (permit, message_bytes) = (self.stream_permit()?, self.options.message_bytes);
        if let Some(extension) = self.extension_for(&ticket.ticket) {
            let (schema, batches) = extension.get(caller, &ticket.ticket).await?;
            return Ok(Body::Batches(BatchStream::new(Messages::new(&schema, message_bytes), batches, permit)));
        }
        let WantedRows { scan, summary } = self.rows(caller, &ticket.ticket).await?;
        if let Some(summary) = summary {
            let (schema, batches) = self.summarizing()?.summarize(scan, &summary)?;
            return Ok(Body::Batches(BatchStream::new(Messages::new(&schema, message_bytes), batches, permit)));
        }
        let messages = Messages::new(&scan.schema(), message_bytes);
        Ok(Body::Blocks(BlockStream::new(messages, self.leases.stream(scan), permit)))
    }

    /// The caller.
    async fn admit(&self, headers: &http::HeaderMap) -> Result<Caller, Status> {
        match &self.extension {
            Some(extension) => extension.admit(headers).await,
            None => self.authenticate(headers).map(|()| Caller::default()),
        }
    }

    /// Answers any call: a DoGet with the blocks' own memory, the others through the service below.
    pub(super) async fn answer(
        self,
        connection: u64,
        door: &Door,
        mut request: http::Request<Incoming>,
    ) -> http::Response<Body> {
        let admitted = self.admit(request.headers()).await;
        let caller = match admitted.and_then(|caller| door.enter().map(|()| caller)) {
            Ok(caller) => Caller { connection, ..caller },
            Err(status) => return status.into_http(),
        };
        let headers = caller.headers.clone();
        let mut response = if request.uri().path() == DO_GET {
            match self.get(&caller, request).await {
                Ok(body) => {
                    let mut response = http::Response::new(body);
                    let grpc = http::HeaderValue::from_static("application/grpc");
                    response.headers_mut().insert(http::header::CONTENT_TYPE, grpc);
                    response
                }
                Err(status) => status.into_http(),
            }
        } else {
            let longest = if request.uri().path() == DO_PUT { self.options.max_message } else { MAX_REQUEST_BYTES };
            request.extensions_mut().insert(caller);
            let mut service = FlightServiceServer::new(self).max_decoding_message_size(longest);
            let Ok(response) = tonic::codegen::Service::call(&mut service, request).await;
            response.map(Body::Other)
        };
        response.headers_mut().extend(headers);
        response
    }
}

/// The caller, as [`Flights::answer`] has identified it.
fn caller<T>(request: &Request<T>) -> Caller {
    request.extensions().get::<Caller>().cloned().unwrap_or_default()
}

type Answers<T> = BoxStream<'static, Result<T, Status>>;

fn results(bodies: Vec<bytes::Bytes>) -> Response<Answers<arrow_flight::Result>> {
    let results = bodies.into_iter().map(|body| Ok(arrow_flight::Result { body }));
    Response::new(futures::stream::iter(results).boxed())
}

fn unsupported<T>(what: &str) -> Result<T, Status> {
    Err(Status::unimplemented(format!("{what} is not supported")))
}

#[async_trait::async_trait]
impl FlightService for Flights {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<PutResult>;
    type DoExchangeStream = Answers<FlightData>;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<ActionType>;

    /// All tables, as flights of their latest state. The criteria are a prefix of `schema.table`.
    async fn list_flights(&self, request: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        let (txn, caller) = (self.database.begin(), caller(&request));
        let prefix = String::from_utf8_lossy(&request.get_ref().expression).into_owned();
        let mut flights = Vec::new();
        for table in txn.catalog().tables() {
            let definition = &table.definition;
            if !format!("{}.{}", definition.schema, definition.name).starts_with(&prefix) {
                continue;
            }
            let request =
                ScanRequest { snapshot: SnapshotUse::Latest, ..ScanRequest::new(&definition.schema, &definition.name) };
            let path = vec![definition.schema.clone(), definition.name.clone()];
            let scan = request::scan(&request, txn.snapshot(), txn.catalog())?;
            // A table that the caller may not read is not listed.
            if self.check(&caller, &txn, &scan).is_err() {
                continue;
            }
            let rows = WantedRows { scan, summary: None };
            let info = self.info(&request, &rows, &What::Request(Box::new(request.clone())), None)?;
            flights.push(Ok(info.with_descriptor(FlightDescriptor::new_path(path))));
        }
        Ok(Response::new(futures::stream::iter(flights).boxed()))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        let caller = caller(&request);
        let descriptor = request.into_inner();
        if let Some(extension) = self.extension_for(&descriptor.cmd) {
            return extension.flight_info(&caller, descriptor).await.map(Response::new);
        }
        let info = self.flight(&caller, &request::from_descriptor(&descriptor)?).await?;
        Ok(Response::new(info.with_descriptor(descriptor)))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        let (caller, descriptor) = (caller(&request), request.get_ref());
        let schema = match self.extension_for(&descriptor.cmd) {
            Some(extension) => extension.schema(&caller, &descriptor.cmd).await?,
            None => {
                let request = request::from_descriptor(descriptor)?;
                let rows = match request.snapshot {
                    SnapshotUse::Lease(id) => self.rows_held(&caller, &self.leases.held(id)?.0, &request)?,
                    SnapshotUse::Held | SnapshotUse::Latest => {
                        self.rows_in(&caller, &self.database.begin(), &request)?
                    }
                };
                self.schema_of(&rows)?
            }
        };
        let result = SchemaAsIpc::new(&schema, &IpcWriteOptions::default()).try_into();
        result.map(Response::new).map_err(|error: arrow_schema::ArrowError| Status::internal(error.to_string()))
    }

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        let caller = caller(&request);
        let action = request.into_inner();
        if let Some(extension) = &self.extension
            && let Some(bodies) = extension.act(&caller, &action).await?
        {
            return Ok(results(bodies));
        }
        if let Some(answer) = self.act_remote(&caller, &action).await {
            return answer.map(Response::new);
        }
        let unreadable = |error| Status::invalid_argument(format!("the action's body cannot be read: {error}"));
        let lease_of = |endpoint: &FlightEndpoint| {
            let ticket =
                endpoint.ticket.as_ref().ok_or_else(|| Status::invalid_argument("the endpoint has no ticket"))?;
            Ok::<_, Status>(ticket_of(&ticket.ticket)?.what.lease())
        };
        let body = match action.r#type.as_str() {
            HOLD => {
                let (lease, _) = self.leases.hold(Held::of(&begin_durable(&self.database).await?))?;
                metadata(&HeldSnapshot { lease, seconds: self.options.lease.as_secs_f64() }).into()
            }
            RENEW => {
                let request = RenewFlightEndpointRequest::decode(action.body).map_err(unreadable)?;
                let mut endpoint = request.endpoint.ok_or_else(|| Status::invalid_argument("there is no endpoint"))?;
                if let Some(id) = lease_of(&endpoint)? {
                    endpoint.expiration_time = Some(timestamp(self.leases.renew(id)?));
                }
                endpoint.encode_to_vec()
            }
            CANCEL => {
                let request = CancelFlightInfoRequest::decode(action.body).map_err(unreadable)?;
                let mut ended = false;
                for endpoint in request.info.iter().flat_map(|info| &info.endpoint) {
                    let ticket = endpoint.ticket.as_ref().map_or(&[][..], |ticket| &ticket.ticket);
                    if let Some(extension) = self.extension_for(ticket) {
                        ended |= extension.cancel(&caller, ticket);
                    } else if let Some(id) = lease_of(endpoint)? {
                        ended |= self.leases.end(id);
                    }
                }
                let status = if ended { CancelStatus::Cancelled } else { CancelStatus::NotCancellable };
                CancelFlightInfoResult { status: status.into() }.encode_to_vec()
            }
            other => return unsupported(&format!("the action \"{other}\"")),
        };
        Ok(results(vec![body.into()]))
    }

    async fn list_actions(&self, _: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        let action =
            |name: &str, description: &str| Ok(ActionType { r#type: name.into(), description: description.into() });
        let actions = [
            action(CANCEL, "cancels a flight's statement, or gives up the snapshot that is held for it"),
            action(HOLD, "holds a snapshot of all tables"),
            action(RENEW, "holds the snapshot of an endpoint for longer"),
        ];
        let more = self.extension.iter().flat_map(|extension| extension.actions()).map(Ok);
        let remote = self.remote.iter().flat_map(|_| remote_memory::actions()).map(Ok);
        let actions: Vec<_> = actions.into_iter().chain(remote).chain(more).collect();
        Ok(Response::new(futures::stream::iter(actions).boxed()))
    }

    /// Not reached over the network: [`Flights::answer`] answers DoGet.
    async fn do_get(&self, _: Request<arrow_flight::Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        unsupported("DoGet through this service")
    }

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        let Some(extension) = &self.extension else { return unsupported("a handshake") };
        let caller = caller(&request);
        let (answer, headers) = extension.handshake(&caller, request.into_inner()).await?;
        let mut response = Response::new(futures::stream::iter([Ok(answer)]).boxed());
        response.metadata_mut().as_mut().extend(headers);
        Ok(response)
    }

    /// The result of GetFlightInfo, at once: a statement runs when its ticket is shown, or has
    /// already run.
    async fn poll_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        let info = self.get_flight_info(request).await?;
        Ok(info.map(|info| PollInfo { info: Some(info), progress: Some(1.0), ..PollInfo::default() }))
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        let caller = caller(&request);
        let mut messages = request.into_inner();
        let first = messages.message().await?.ok_or_else(|| Status::invalid_argument("there is no message"))?;
        let command = first.flight_descriptor.as_ref().map_or(&[][..], |descriptor| &descriptor.cmd);
        let Some(extension) = self.extension_for(command) else { return unsupported("writing to a flight of a table") };
        let app_metadata = extension.put(&caller, first, messages).await?;
        Ok(Response::new(futures::stream::iter([Ok(PutResult { app_metadata })]).boxed()))
    }

    async fn do_exchange(&self, _: Request<Streaming<FlightData>>) -> Result<Response<Self::DoExchangeStream>, Status> {
        unsupported("DoExchange")
    }
}
