//! A server's answers beside the flights of tables, and its check of callers: Flight SQL, in
//! `serac-server`.
//!
//! A server asks its extension first for the caller, and whether a command or a ticket is the
//! extension's. Others are flights of tables. Summaries of their rows are the extension's, too: it
//! has the operators.

use arrow_array::RecordBatch;
use arrow_flight::{Action, ActionType, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use futures::stream::BoxStream;
use http::HeaderMap;
use serac_client::flight::Summary;
use serac_engine::security::RoleId;
use serac_engine::{ArrowScan, Catalog};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use tonic::{Status, Streaming};

/// The client's choice among Arrow's types.
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

/// The caller.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The user, if it is known.
    pub user: Option<Arc<str>>,
    /// The role as which it calls.
    pub role: RoleId,
    /// The extension's proof of the caller's identity.
    pub proof: Option<Arc<dyn Any + Send + Sync>>,
    /// The client's name for its session, if it has one.
    pub session: Option<Arc<str>>,
    /// The number of the connection, which no other connection of the server has had.
    pub connection: u64,
    /// The client's form of columns.
    pub form: Form,
    /// Headers that the answer carries.
    pub headers: HeaderMap,
}

impl Default for Caller {
    /// A caller without a name, with the rights of the bootstrap role.
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

/// Record batches in order, each made when it is asked for.
pub type Batches = BoxStream<'static, Result<RecordBatch, Status>>;

/// A server's answers beside the flights of tables.
#[async_trait::async_trait]
pub trait Extension: Debug + Send + Sync + 'static {
    /// The caller of the call with these headers. It may give the answer headers; the connection is
    /// filled in by the server.
    ///
    /// # Errors
    /// UNAUTHENTICATED, for a call without a right.
    async fn admit(&self, headers: &HeaderMap) -> Result<Caller, Status>;

    /// Answers a handshake of one whom [`admit`](Self::admit) let in.
    ///
    /// # Errors
    /// The error of the handshake.
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
    /// UNAUTHENTICATED, if it does not exist any more.
    fn role(&self, caller: &Caller, catalog: &Catalog) -> Result<RoleId, Status>;

    /// GetFlightInfo of a command.
    ///
    /// # Errors
    /// The error of the command.
    async fn flight_info(&self, caller: &Caller, descriptor: FlightDescriptor) -> Result<FlightInfo, Status>;

    /// GetSchema of a command.
    ///
    /// # Errors
    /// The error of the command.
    async fn schema(&self, caller: &Caller, command: &[u8]) -> Result<SchemaRef, Status>;

    /// DoGet of a ticket. The batches are asked for as the client reads them.
    ///
    /// # Errors
    /// The error of the ticket.
    async fn get(&self, caller: &Caller, ticket: &[u8]) -> Result<(SchemaRef, Batches), Status>;

    /// The columns of a summary of rows with these columns.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, for columns whose types have no such summary.
    fn summary_schema(&self, rows: &SchemaRef, summary: &Summary) -> Result<SchemaRef, Status>;

    /// A summary of the rows of a scan, which the caller may read. It has the same rows in the same
    /// order every time.
    ///
    /// # Errors
    /// As for [`summary_schema`](Self::summary_schema).
    fn summarize(&self, rows: ArrowScan, summary: &Summary) -> Result<(SchemaRef, Batches), Status>;

    /// DoPut: the first message, which has the descriptor, and the following ones. Returns the
    /// client's answer.
    ///
    /// # Errors
    /// The error of the put.
    async fn put(&self, caller: &Caller, first: FlightData, rest: Streaming<FlightData>) -> Result<Bytes, Status>;

    /// The extension's actions.
    fn actions(&self) -> Vec<ActionType>;

    /// An action: the bodies of its results; `None` for an action that is not for the extension.
    ///
    /// # Errors
    /// The error of the action.
    async fn act(&self, caller: &Caller, action: &Action) -> Result<Option<Vec<Bytes>>, Status>;

    /// Cancels the work for a ticket; returns whether there was any.
    fn cancel(&self, caller: &Caller, ticket: &[u8]) -> bool;

    /// Drops state that was not used for a long time. Called about every second.
    fn sweep(&self);
}
