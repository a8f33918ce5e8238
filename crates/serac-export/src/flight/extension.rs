//! What a server answers beside the flights of tables, and who may call: Flight SQL, in
//! `serac-server`.
//!
//! A server asks its extension first: whose call it is, and whether a command or a ticket is for
//! it. What it is not for are flights of tables.

use arrow_array::RecordBatch;
use arrow_flight::{Action, ActionType, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use futures::stream::BoxStream;
use http::HeaderMap;
use serac_engine::Catalog;
use serac_engine::security::RoleId;
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use tonic::{Status, Streaming};

/// Which of Arrow's types a client wants where there is a choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// Texts and binary values as views; with offsets otherwise.
    pub views: bool,
    /// Texts of few different values as dictionaries.
    pub dictionaries: bool,
    /// Decimals of up to 18 digits in 64 bits; in 128 otherwise.
    pub short_decimals: bool,
}

impl Default for Form {
    fn default() -> Self {
        Self { views: true, dictionaries: false, short_decimals: false }
    }
}

/// Who calls.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The user, if it is known who that is.
    pub user: Option<Arc<str>>,
    /// The role as which it calls.
    pub role: RoleId,
    /// What the extension keeps of how that was found out.
    pub proof: Option<Arc<dyn Any + Send + Sync>>,
    /// What the client calls its session, if it has one.
    pub session: Option<Arc<str>>,
    /// The number of the connection, which no other connection of the server has had.
    pub connection: u64,
    /// How the client wants columns.
    pub form: Form,
    /// Headers that the answer carries.
    pub headers: HeaderMap,
}

impl Default for Caller {
    /// Somebody without a name, who may do what the bootstrap role may.
    fn default() -> Self {
        Self {
            user: None,
            role: RoleId::BOOTSTRAP,
            proof: None,
            session: None,
            connection: 0,
            form: Form::default(),
            headers: HeaderMap::new(),
        }
    }
}

/// Record batches that come one after the other, each when it is asked for.
pub type Batches = BoxStream<'static, Result<RecordBatch, Status>>;

/// See the module.
#[async_trait::async_trait]
pub trait Extension: Debug + Send + Sync + 'static {
    /// Whose call it is that has these headers. It may give the answer headers; the connection is
    /// filled in by the server.
    ///
    /// # Errors
    /// UNAUTHENTICATED, for what nobody may call.
    async fn admit(&self, headers: &HeaderMap) -> Result<Caller, Status>;

    /// Answers a handshake of one whom [`admit`](Self::admit) let in.
    ///
    /// # Errors
    /// What is wrong with it.
    async fn handshake(
        &self,
        caller: &Caller,
        requests: Streaming<HandshakeRequest>,
    ) -> Result<(HandshakeResponse, HeaderMap), Status>;

    /// Whether a descriptor's command, or a ticket, is for this.
    fn speaks(&self, command: &[u8]) -> bool;

    /// The role as which the caller reads tables.
    ///
    /// # Errors
    /// UNAUTHENTICATED, if it is none any more.
    fn role(&self, caller: &Caller, catalog: &Catalog) -> Result<RoleId, Status>;

    /// GetFlightInfo of a command.
    ///
    /// # Errors
    /// What is wrong with it.
    async fn flight_info(&self, caller: &Caller, descriptor: FlightDescriptor) -> Result<FlightInfo, Status>;

    /// GetSchema of a command.
    ///
    /// # Errors
    /// What is wrong with it.
    async fn schema(&self, caller: &Caller, command: &[u8]) -> Result<SchemaRef, Status>;

    /// DoGet of a ticket. The batches are asked for as the client reads them.
    ///
    /// # Errors
    /// What is wrong with it.
    async fn get(&self, caller: &Caller, ticket: &[u8]) -> Result<(SchemaRef, Batches), Status>;

    /// DoPut: the first message, which has the descriptor, and those that follow. What the client
    /// is told about it.
    ///
    /// # Errors
    /// What is wrong with it.
    async fn put(&self, caller: &Caller, first: FlightData, rest: Streaming<FlightData>) -> Result<Bytes, Status>;

    /// The actions that there are.
    fn actions(&self) -> Vec<ActionType>;

    /// An action: the bodies of its results; none for one that is not for this.
    ///
    /// # Errors
    /// What is wrong with it.
    async fn act(&self, caller: &Caller, action: &Action) -> Result<Option<Vec<Bytes>>, Status>;

    /// Cancels what is done for a ticket; whether there was something.
    fn cancel(&self, caller: &Caller, ticket: &[u8]) -> bool;

    /// Gives up what nobody has asked for in a long time. Called about every second.
    fn sweep(&self);
}
