//! Errors of remote tables. Inside DataFusion they are [`DataFusionError::External`];
//! [`RemoteError::of`] finds them again.

use arrow_flight::error::FlightError;
use datafusion::error::DataFusionError;
use std::error::Error;
use std::time::Duration;
use tonic::{Code, Status};

/// The error of a remote table.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// An option of the connection or the session cannot be used.
    #[error("{0}")]
    Options(String),
    /// No location of the server gives an answer.
    #[error("server \"{server}\" does not answer: {}", message_of(last))]
    Unreachable {
        /// The server's name.
        server: String,
        /// The error of the last attempt.
        last: Box<Status>,
    },
    /// The server refuses the request.
    #[error("server \"{server}\": {}", status.message())]
    Refused {
        /// The server's name.
        server: String,
        /// Its answer.
        status: Box<Status>,
    },
    /// The server does not hold the snapshot any more: it was not renewed in time, was released, or
    /// the server has started anew. No other snapshot can take its place in a running query.
    #[error(
        "server \"{server}\" does not hold snapshot {snapshot} any more (it holds one for {} seconds after each renewal, \
         and not beyond its end): run the query again, and it will read a new snapshot",
        lease.as_secs_f64()
    )]
    LeaseLost {
        /// The server's name.
        server: String,
        /// The number of the snapshot.
        snapshot: u64,
        /// How long the server holds a snapshot after a renewal.
        lease: Duration,
    },
    /// The table does not have the columns any more with which it was registered.
    #[error("table \"{table}\" has changed since it was registered: {detail}")]
    Changed {
        /// The table.
        table: String,
        /// The difference.
        detail: String,
    },
    /// The server's answer cannot be understood.
    #[error("server \"{server}\" gives an answer that cannot be read: {detail}")]
    Protocol {
        /// The server's name.
        server: String,
        /// Why not.
        detail: String,
    },
}

/// The text of a status, or that of its cause where it has none of its own.
fn message_of(status: &Status) -> String {
    match status.source().and_then(Error::source) {
        Some(cause) => format!("{}: {cause}", status.message()),
        None => status.message().to_owned(),
    }
}

impl RemoteError {
    /// The error behind an error of DataFusion, if it is one of this crate.
    pub fn of(error: &DataFusionError) -> Option<&Self> {
        match error.find_root() {
            DataFusionError::External(error) => error.downcast_ref(),
            _ => None,
        }
    }
}

impl From<RemoteError> for DataFusionError {
    fn from(error: RemoteError) -> Self {
        Self::External(Box::new(error))
    }
}

/// The status of an error of the Flight client.
pub(crate) fn status_of(error: FlightError) -> Status {
    match error {
        FlightError::Tonic(status) => *status,
        other => Status::data_loss(other.to_string()),
    }
}

/// Whether a status says that no server has answered, rather than what a server says.
pub(crate) fn is_unanswered(status: &Status) -> bool {
    let is_transport = status.source().is_some();
    is_transport || matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Unknown)
}

/// Whether another attempt may succeed: nobody has answered, the server has no room now, or it gave
/// up a stream whose client was slow. A stream that ends without a status is UNKNOWN, one that ends
/// within a message INTERNAL.
pub(crate) fn is_passing(status: &Status) -> bool {
    is_unanswered(status) || matches!(status.code(), Code::ResourceExhausted | Code::Internal)
}
