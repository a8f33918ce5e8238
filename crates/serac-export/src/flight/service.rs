//! The Flight calls.

use super::lease::Leases;
use super::request::{ScanRequest, SnapshotUse};
use super::stream::{BlockStream, Body};
use super::ticket::{Ticket, What};
use super::{FlightOptions, status_of};
use arrow_array::RecordBatchReader;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, Criteria, Empty, FlightData,
    FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest, HandshakeResponse, PollInfo, PutResult,
    RenewFlightEndpointRequest, SchemaAsIpc, SchemaResult,
};
use arrow_ipc::writer::IpcWriteOptions;
use futures::StreamExt;
use futures::stream::BoxStream;
use hyper::body::Incoming;
use prost::Message;
use serac_engine::roles::{Access, RoleId};
use serac_engine::{ArrowScan, Database, Transaction};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;
use tonic::{Request, Response, Status, Streaming};

const DO_GET: &str = "/arrow.flight.protocol.FlightService/DoGet";
const CANCEL: &str = "CancelFlightInfo";
const RENEW: &str = "RenewFlightEndpoint";
/// Bytes of a request: a descriptor, a ticket, an action.
const MAX_REQUEST_BYTES: usize = 1 << 20;

/// The tables of a database as flights.
#[derive(Clone, Debug)]
pub(super) struct Flights {
    database: Database,
    options: FlightOptions,
    leases: Arc<Leases>,
}

/// A transaction all of whose snapshot is durable: nothing may leave the process before it is.
async fn begin_durable(database: &Database) -> Result<Transaction, Status> {
    let txn = database.begin();
    let (durable, wait) = oneshot::channel();
    let notify = move |outcome| {
        let _ = durable.send(outcome);
    };
    txn.snapshot().ticket().on_durable(Box::new(notify));
    let failed = |error: String| Status::unavailable(format!("the log has failed: {error}"));
    wait.await.map_err(|_| failed("it is closed".into()))?.map_err(|error| failed(error.to_string()))?;
    Ok(txn)
}

fn timestamp(time: SystemTime) -> prost_types::Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    prost_types::Timestamp { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() as i32 }
}

impl Flights {
    pub(super) fn new(database: Database, options: FlightOptions) -> Self {
        let leases = Arc::new(Leases::new(options.clone()));
        Self { database, options, leases }
    }
    pub(super) fn leases(&self) -> &Arc<Leases> {
        &self.leases
    }

    /// What callers may do.
    fn access(&self, txn: &Transaction) -> Result<Access, Status> {
        let role = match &self.options.role {
            Some(name) => txn.catalog().security.role_named(name).map_err(|error| status_of(&error))?.id,
            None => RoleId::BOOTSTRAP,
        };
        Ok(txn.access(role))
    }
    /// Refuses a scan of what callers may not read.
    fn check(&self, txn: &Transaction, scan: &ArrowScan) -> Result<(), Status> {
        scan.check_access(&self.access(txn)?).map_err(|error| status_of(&error))
    }
    /// The scan that a request asks for, if callers may read all of it.
    fn scan_in(&self, txn: &Transaction, request: &ScanRequest) -> Result<ArrowScan, Status> {
        let scan = request.scan(txn)?;
        self.check(txn, &scan)?;
        Ok(scan)
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

    fn info(&self, request: &ScanRequest, scan: ArrowScan, held: bool) -> Result<FlightInfo, Status> {
        let mut info = FlightInfo::new()
            .try_with_schema(&scan.schema())
            .map_err(|error| Status::internal(error.to_string()))?
            .with_total_records(-1)
            .with_total_bytes(-1);
        let mut ranges = self.ranges(&scan, request.endpoints);
        let (what, until) = if held {
            let (id, until) = self.leases.hold(scan)?;
            (What::Lease(id), Some(timestamp(until)))
        } else {
            // What comes later lies in later blocks.
            ranges.last_mut().expect("there is one at least").end = u32::MAX;
            (What::Request(request.clone()), None)
        };
        for blocks in ranges {
            let ticket = Ticket { what: what.clone(), blocks: Some(blocks) };
            let mut endpoint = FlightEndpoint::new().with_ticket(arrow_flight::Ticket::new(ticket.to_bytes()));
            endpoint.expiration_time = until;
            info = info.with_endpoint(endpoint);
        }
        Ok(info)
    }

    /// The scan of a ticket. What it may read counts as it is now, not as it was when the ticket was given.
    async fn scan(&self, ticket: &[u8]) -> Result<ArrowScan, Status> {
        let ticket = Ticket::from_bytes(ticket)?;
        let scan = match ticket.what {
            What::Lease(id) => {
                let scan = self.leases.scan(id)?;
                self.check(&self.database.begin(), &scan)?;
                scan
            }
            What::Request(request) => self.scan_in(&begin_durable(&self.database).await?, &request)?,
        };
        Ok(match ticket.blocks {
            Some(blocks) => scan.within(blocks),
            None => scan,
        })
    }

    async fn blocks(&self, request: http::Request<Incoming>) -> Result<BlockStream, Status> {
        let decoder = tonic_prost::ProstDecoder::<arrow_flight::Ticket>::new(tonic::codec::BufferSettings::default());
        let mut messages = Streaming::new_request(decoder, request.into_body(), None, Some(MAX_REQUEST_BYTES));
        let ticket = messages.message().await?.ok_or_else(|| Status::invalid_argument("there is no ticket"))?;
        let source = self.leases.stream(self.scan(&ticket.ticket).await?)?;
        Ok(BlockStream::new(source, self.options.message_bytes))
    }

    /// Answers any call: a DoGet with the blocks' own memory, the others through the service below.
    pub(super) async fn answer(self, request: http::Request<Incoming>) -> http::Response<Body> {
        if let Err(status) = self.authenticate(request.headers()) {
            return status.into_http();
        }
        if request.uri().path() != DO_GET {
            let mut service = FlightServiceServer::new(self).max_decoding_message_size(MAX_REQUEST_BYTES);
            let Ok(response) = tonic::codegen::Service::call(&mut service, request).await;
            return response.map(Body::Other);
        }
        match self.blocks(request).await {
            Ok(stream) => {
                let mut response = http::Response::new(Body::Blocks(stream));
                let grpc = http::HeaderValue::from_static("application/grpc");
                response.headers_mut().insert(http::header::CONTENT_TYPE, grpc);
                response
            }
            Err(status) => status.into_http(),
        }
    }
}

fn unsupported<T>(what: &str) -> Result<T, Status> {
    Err(Status::unimplemented(format!("{what} is not supported")))
}

type Answers<T> = BoxStream<'static, Result<T, Status>>;

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
        let txn = self.database.begin();
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
            let scan = request.scan(&txn)?;
            // What callers may not read is not there for them.
            if self.check(&txn, &scan).is_err() {
                continue;
            }
            let info = self.info(&request, scan, false)?;
            flights.push(Ok(info.with_descriptor(FlightDescriptor::new_path(path))));
        }
        Ok(Response::new(futures::stream::iter(flights).boxed()))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        let descriptor = request.into_inner();
        let request = ScanRequest::from_descriptor(&descriptor)?;
        let held = request.snapshot == SnapshotUse::Held;
        let txn = if held { begin_durable(&self.database).await? } else { self.database.begin() };
        let info = self.info(&request, self.scan_in(&txn, &request)?, held)?;
        Ok(Response::new(info.with_descriptor(descriptor)))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        let scan = self.scan_in(&self.database.begin(), &ScanRequest::from_descriptor(request.get_ref())?)?;
        let schema = scan.schema();
        let result = SchemaAsIpc::new(&schema, &IpcWriteOptions::default()).try_into();
        result.map(Response::new).map_err(|error: arrow_schema::ArrowError| Status::internal(error.to_string()))
    }

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        let action = request.into_inner();
        let unreadable = |error| Status::invalid_argument(format!("the action's body cannot be read: {error}"));
        let lease_of = |endpoint: &FlightEndpoint| {
            let ticket =
                endpoint.ticket.as_ref().ok_or_else(|| Status::invalid_argument("the endpoint has no ticket"))?;
            Ok::<_, Status>(match Ticket::from_bytes(&ticket.ticket)?.what {
                What::Lease(id) => Some(id),
                What::Request(_) => None,
            })
        };
        let body = match action.r#type.as_str() {
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
                    if let Some(id) = lease_of(endpoint)? {
                        ended |= self.leases.end(id);
                    }
                }
                let status = if ended { CancelStatus::Cancelled } else { CancelStatus::NotCancellable };
                CancelFlightInfoResult { status: status.into() }.encode_to_vec()
            }
            other => return unsupported(&format!("the action \"{other}\"")),
        };
        Ok(Response::new(futures::stream::iter([Ok(arrow_flight::Result { body: body.into() })]).boxed()))
    }

    async fn list_actions(&self, _: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        let action =
            |name: &str, description: &str| Ok(ActionType { r#type: name.into(), description: description.into() });
        let actions = [
            action(CANCEL, "gives up the snapshot that is held for a flight"),
            action(RENEW, "holds the snapshot of an endpoint for longer"),
        ];
        Ok(Response::new(futures::stream::iter(actions).boxed()))
    }

    /// Not reached over the network: [`Flights::answer`] answers DoGet.
    async fn do_get(&self, _: Request<arrow_flight::Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        unsupported("DoGet through this service")
    }
    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        unsupported("a handshake")
    }
    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        unsupported("PollFlightInfo")
    }
    async fn do_put(&self, _: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        unsupported("writing over Flight")
    }
    async fn do_exchange(&self, _: Request<Streaming<FlightData>>) -> Result<Response<Self::DoExchangeStream>, Status> {
        unsupported("DoExchange")
    }
}
