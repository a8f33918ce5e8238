//! Messages between client and server over Flight: the bodies of actions, in JSON, and the fields
//! of their results, beside the headers of Arrow IPC.
//!
//! A result is a FlightData message. `data_header` has a message header of Arrow IPC (the schema, a
//! dictionary, or a record batch) and `app_metadata` an [`Entry`] in JSON. `data_body` has the
//! bytes that are too few to be fetched.

use super::transport::Place;
use serde::{Deserialize, Serialize};

/// Opens a session: [`Connect`] gives [`Connected`].
pub const CONNECT: &str = "RdmaConnect";
/// Says where the blocks of a ticket lie: [`Scan`] gives [`Entry`]s.
pub const DIRECTORY: &str = "RdmaDirectory";
/// Writes the blocks of a ticket into the client's memory: [`Write`] gives [`Entry`]s.
pub const WRITE: &str = "RdmaWrite";
/// Holds a lease for longer: [`Of`] gives [`Renewed`].
pub const RENEW: &str = "RdmaRenew";
/// Ends a lease: [`Of`] gives nothing.
pub const RELEASE: &str = "RdmaRelease";
/// Ends a session and its leases: [`Of`] gives nothing.
pub const DISCONNECT: &str = "RdmaDisconnect";

/// Places that a client may give for one [`Write`].
pub const MOST_SLOTS: usize = 1024;

/// Asks for a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connect {
    /// The transport's name.
    pub transport: String,
    /// The address of the client's endpoint.
    pub address: Vec<u8>,
}

/// A session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Connected {
    /// Its number.
    pub session: u64,
    /// The address of the server's endpoint, to which the client connects its own.
    pub address: Vec<u8>,
}

/// Asks where blocks lie.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scan {
    /// The session. Without one the directory lends nothing: all blocks are to be fetched.
    pub session: Option<u64>,
    /// The ticket of an endpoint of GetFlightInfo, with a held snapshot.
    pub ticket: Vec<u8>,
    /// The first block that is wanted.
    #[serde(default)]
    pub from: u32,
}

/// Asks for blocks in the client's memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Write {
    /// The scan to write.
    pub scan: Scan,
    /// The targets. Each takes the messages of one block, or of a part of one.
    pub slots: Vec<Place>,
}

/// Names a session, or one of its leases.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Of {
    /// The session.
    pub session: u64,
    /// The lease.
    #[serde(default)]
    pub lease: u64,
}

/// The renewed time of a lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Renewed {
    /// The time in milliseconds.
    pub milliseconds: u64,
}

/// Bytes of a message's body.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Piece {
    /// The offset in the body.
    pub at: u64,
    /// The length.
    pub length: u64,
    /// The place in the server's memory; `None` if the bytes are the next ones of `data_body`.
    /// Bytes that no piece names are zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

/// One result of a [`DIRECTORY`] or a [`WRITE`]. Blocks come in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Entry {
    /// The beginning, with the schema in the header.
    Begin {
        /// The lease of the memory that the directory names; `None` if the server lends no memory.
        lease: Option<u64>,
        /// The time of the lease, counted from the request.
        milliseconds: u64,
    },
    /// A message that the client reads: its header is there.
    Lent {
        /// The block.
        block: u32,
        /// Bytes of the body.
        bytes: u64,
        /// The places of its bytes.
        pieces: Vec<Piece>,
    },
    /// Messages that the server has written: a part of the data is there. This entry's header is
    /// there.
    Written {
        /// The block.
        block: u32,
        /// The number of the client's place.
        slot: u32,
        /// The offset of the body in it.
        at: u64,
        /// Bytes of the body.
        bytes: u64,
        /// Whether it is the last in this place, to which the server writes no more.
        last: bool,
        /// Whether it is the last of the block.
        complete: bool,
    },
    /// Blocks to fetch by DoGet.
    Get {
        /// The first of them.
        block: u32,
        /// The first behind them.
        end: u32,
        /// The ticket.
        ticket: Vec<u8>,
    },
    /// There is no room for more: ask again, from this block on.
    Rest {
        /// The block.
        block: u32,
    },
}
