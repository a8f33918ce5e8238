//! Tables as Arrow Flight streams.
//!
//! GetFlightInfo takes a descriptor (a path, or a command: see [`ScanRequest`]) and gives one
//! endpoint per range of blocks. By default it holds a snapshot in the server, whose number is in
//! the tickets, so that all endpoints read the same state, at any time and by any client. See
//! [`FlightOptions`] for its time and limits. DoGet streams the blocks: those of frozen blocks go
//! from the block's memory to the socket without being copied in between.
//!
//! | module | concept |
//! |---|---|
//! | `request` | the request of a client ([`serac_client::flight`]), as a scan |
//! | `remote_memory` | one-sided access (RDMA) |
//! | `lease` | snapshots held for tickets |
//! | `message` | record batches as gRPC messages |
//! | `stream` | the answer to a DoGet |
//! | `service` | the other calls |
//! | `extension` | answers beside the flights of tables: Flight SQL |
//! | `token` | the token of callers |
//! | `corked` | frames of HTTP/2 that the kernel joins |
//! | `door` | connections that wait for their first good call |
//! | `server` | connections, and the end |

mod corked;
mod door;
mod extension;
mod lease;
mod message;
mod remote_memory;
mod request;
mod server;
mod service;
mod stream;
mod token;

pub use crate::body::exact;
pub use extension::{Batches, Caller, Extension, Form};
pub use serac_client::flight::{
    Aggregate, AggregateFunction, AggregateName, Condition, Decimals, ScanRequest, SnapshotUse, SortKey, Strings,
    Summary, Top,
};
pub use server::FlightServer;
pub use token::Token;

use serac_engine::EngineError;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls::ServerConfig;
use tonic::Status;

/// Limits of a Flight server.
#[derive(Clone, Debug)]
pub struct FlightOptions {
    /// The token that every call must show; an [`Extension`] checks callers itself. Without either,
    /// any client may call while no role has a password, and no client once a role has one.
    pub token: Option<Token>,
    /// The role as which callers read; by default the bootstrap role, which may read everything.
    pub role: Option<String>,
    /// Certificate and key; `None` for connections without TLS.
    pub tls: Option<Arc<ServerConfig>>,
    /// The most connections with an admitted call; calls on others are refused above that.
    pub max_connections: usize,
    /// The time that a connection may take from its beginning to its first admitted call.
    pub login_timeout: Duration,
    /// The time that a snapshot is held for tickets after GetFlightInfo, or after its last renewal.
    /// While it is held, versions that it sees are kept.
    pub lease: Duration,
    /// Snapshots held at a time.
    pub max_leases: usize,
    /// The time that a stream may stall, because its client does not read, before it loses its
    /// snapshot.
    pub stall: Duration,
    /// Streams at a time, of all connections; 128 at most on each.
    pub max_streams: usize,
    /// Blocks of an endpoint, unless the request names a number of endpoints.
    pub blocks_per_endpoint: u32,
    /// The size from which a block's rows are sent in several messages, and up to which several
    /// blocks go in one. Most gRPC libraries take at most 4 MiB unless told otherwise.
    pub message_bytes: usize,
    /// The longest message of a client with data for the server, in bytes. Other messages have at
    /// most 1 MiB.
    pub max_message: usize,
    /// Where clients can read the endpoints of tables, as URIs: addresses of this server, since
    /// tickets name snapshots that it holds. Clients read at any of them; at the address that they
    /// have asked if there is none.
    pub locations: Vec<String>,
}

impl Default for FlightOptions {
    fn default() -> Self {
        Self {
            token: None,
            role: None,
            tls: None,
            max_connections: 1024,
            login_timeout: Duration::from_secs(60),
            lease: Duration::from_secs(60),
            max_leases: 64,
            stall: Duration::from_secs(60),
            max_streams: 256,
            blocks_per_endpoint: 128,
            message_bytes: 3 << 20,
            max_message: 256 << 20,
            locations: Vec::new(),
        }
    }
}

/// The gRPC status of an error of the engine.
fn status_of(error: &EngineError) -> Status {
    let message = error.to_string();
    match error {
        EngineError::Denied(_) => Status::permission_denied(message),
        EngineError::Missing { .. } => Status::not_found(message),
        EngineError::InvalidDefinition(_) => Status::invalid_argument(message),
        EngineError::Unsupported(_) => Status::unimplemented(message),
        EngineError::Conflict(_) => Status::aborted(message),
        _ => Status::internal(message),
    }
}
