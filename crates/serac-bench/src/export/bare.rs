//! The baseline: a Flight server that only sends record batches that it holds ready, in the
//! ordinary way of arrow-flight on tonic.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest,
    HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use std::net::SocketAddr;
use std::sync::Arc;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

/// Batches by the command that asks for them.
#[derive(Clone)]
pub struct BareServer {
    flights: Arc<Vec<(String, SchemaRef, Vec<RecordBatch>)>>,
}

impl BareServer {
    /// Serves the flights on a free port, as long as the runtime runs.
    ///
    /// # Errors
    /// When no port is free.
    pub fn start(flights: Vec<(String, SchemaRef, Vec<RecordBatch>)>) -> std::io::Result<SocketAddr> {
        let incoming = TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?.with_nodelay(Some(true));
        let address = incoming.local_addr()?;
        let service = FlightServiceServer::new(Self { flights: Arc::new(flights) });
        tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
        Ok(address)
    }

    fn find(&self, name: &[u8]) -> Result<&(String, SchemaRef, Vec<RecordBatch>), Status> {
        self.flights
            .iter()
            .find(|flight| flight.0.as_bytes() == name)
            .ok_or_else(|| Status::not_found("no such flight"))
    }
}

type Answers<T> = BoxStream<'static, Result<T, Status>>;

fn unsupported<T>() -> Result<T, Status> {
    Err(Status::unimplemented("this server sends batches"))
}

#[tonic::async_trait]
impl FlightService for BareServer {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<PutResult>;
    type DoExchangeStream = Answers<FlightData>;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<ActionType>;

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        let (name, schema, _) = self.find(&request.get_ref().cmd)?;
        let info = FlightInfo::new().try_with_schema(schema).map_err(|error| Status::internal(error.to_string()))?;
        let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(name.clone()));
        Ok(Response::new(info.with_endpoint(endpoint).with_descriptor(request.into_inner())))
    }

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        let (_, schema, batches) = self.find(&request.get_ref().ticket)?;
        let batches = futures::stream::iter(batches.clone().into_iter().map(Ok));
        // One message per batch. Where the encoder splits a batch, it sends the heaps of views with
        // every part.
        let encoder = FlightDataEncoderBuilder::new().with_schema(schema.clone()).with_max_flight_data_size(usize::MAX);
        let encoded = encoder.build(batches);
        Ok(Response::new(encoded.map_err(Status::from).boxed()))
    }

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        unsupported()
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        unsupported()
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        unsupported()
    }

    async fn get_schema(&self, _: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        unsupported()
    }

    async fn do_put(&self, _: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        unsupported()
    }

    async fn do_exchange(&self, _: Request<Streaming<FlightData>>) -> Result<Response<Self::DoExchangeStream>, Status> {
        unsupported()
    }

    async fn do_action(&self, _: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        unsupported()
    }

    async fn list_actions(&self, _: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        unsupported()
    }
}
