//! From a connection's first byte to its role: the Hello, and the answer to it.
//!
//! The password comes in clear, as with Flight. On a port that other machines reach it goes through
//! TLS, unless the server's operator allows plain text.

use super::read::{ReadError, read_frame};
use super::server::OperatorServerState;
use crate::pg::Account;
use serac_column_language::frames::{ClientFrame, Sender, ServerFrame, VERSION};
use serac_engine::security::Login;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tracing::warn;

/// A client that has logged in.
pub(super) struct LoggedIn {
    pub(super) user: String,
    pub(super) login: Login,
    /// The permit of a connection.
    pub(super) seat: OwnedSemaphorePermit,
}

/// The reason why a client is refused.
struct Refusal {
    wants_password: bool,
    why: String,
}

fn refused<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { wants_password: false, why: why.into() })
}

/// Logs a client in; `None` if it was refused, and has been told why.
pub(super) async fn log_in<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    shared: &OperatorServerState,
    address: Option<SocketAddr>,
) -> Option<LoggedIn> {
    let frame = match read_frame(stream, Sender::Stranger).await {
        Ok(Some(frame)) => frame,
        Ok(None) | Err(ReadError::Io(_)) => return None,
        Err(ReadError::Frame(error)) => {
            say(stream, &ServerFrame::Refused { wants_password: false, why: &error.to_string() }).await;
            return None;
        }
    };
    let (mut user, mut result) = ("", refused("the first frame is no Hello"));
    if let Ok(ClientFrame::Hello { version, user: name, password }) = ClientFrame::read(frame.kind, &frame.body) {
        user = name;
        result = match version {
            VERSION => enter(name, password, shared).await,
            other => refused(format!("version {other} of the protocol is not spoken, but version {VERSION} is")),
        };
    }
    match result {
        Ok(logged_in) => {
            let name = concat!("SeracDB ", env!("CARGO_PKG_VERSION"));
            say(stream, &ServerFrame::Welcome { version: VERSION, name }).await;
            Some(logged_in)
        }
        Err(Refusal { wants_password, why }) => {
            if !wants_password {
                warn!(why, user, address = address.map(tracing::field::display), "login refused");
            }
            say(stream, &ServerFrame::Refused { wants_password, why: &why }).await;
            None
        }
    }
}

/// Sends a frame. A client that has gone is found out when more is read of it.
async fn say<S: AsyncWrite + Unpin>(stream: &mut S, frame: &ServerFrame<'_>) {
    let mut out = Vec::new();
    frame.put(&mut out);
    let _ = stream.write_all(&out).await;
    let _ = stream.flush().await;
}

async fn enter(user: &str, password: Option<&str>, shared: &OperatorServerState) -> Result<LoggedIn, Refusal> {
    if shared.seats.available_permits() == 0 {
        return refused("sorry, too many clients already");
    }
    let database = shared.db.database();
    let account = || Account::of(user, &shared.options.users, database);
    let begun = account();
    if begun.wants_password {
        let wrong = || refused(format!("password authentication failed for user \"{user}\""));
        let Some(password) = password else {
            return Err(Refusal { wants_password: true, why: "the server wants a password".into() });
        };
        if !shared.passwords.is_of(user, &begun, password.into()).await {
            return wrong();
        }
        // It may have become another while the password was hashed.
        if !account().is(&begun) {
            return wrong();
        }
    }
    let role = begun.role(user).or_else(|error| refused(error.message.to_string()))?;
    let login = database.log_in_as(role).or_else(|error| refused(error.to_string()))?;
    match shared.seats.clone().try_acquire_owned() {
        Ok(seat) => Ok(LoggedIn { user: user.into(), login, seat }),
        Err(_) => refused("sorry, too many clients already"),
    }
}
