//! PostgreSQL's protocol, version 3.0, so that clients of PostgreSQL connect to SeracDB.
//!
//! This crate speaks the protocol itself, without a library, because statements of the point path
//! take less time than a general message layer does. The connection's task processes the messages
//! in order, without a future, a channel or an allocation for each. It sends their answers
//! together.
//!
//! | module | |
//! |---|---|
//! | [`message`] | messages and their parts |
//! | [`wire`] | the bytes of a connection, in both directions |
//! | [`login`] | a connection up to its first statement |
//! | [`connection`] | a connection from then on |
//! | [`reactor`] | the threads where connections wait |
//! | [`simple`] | scripts, and how results are sent |
//! | [`extended`] | prepared statements and portals |
//! | [`names`] | what a client has named |
//! | [`rows`], [`report`] | results and errors as messages |
//! | [`copy`] | COPY from and to the client |
//! | [`account`] | which role a name is, and what it must show |
//! | [`scram`] | passwords |

mod account;
mod connection;
mod copy;
mod extended;
mod login;
mod message;
mod names;
mod reactor;
mod report;
mod rows;
mod scram;
mod server;
mod simple;
mod wire;

pub(crate) use account::Account;
pub(crate) use scram::Mock;
pub use scram::Verifier;
pub use server::{PgOptions, PgServer};
pub(crate) use simple::complete_tag;

use serac_sql::SqlError;
use std::borrow::Cow;
use std::io;

/// The error that ends a statement, or the connection.
#[derive(Debug)]
pub(crate) enum WireError {
    /// The client is told, and the connection goes on, or ends if that is fatal.
    Sql { error: SqlError, fatal: bool },
    /// The client cannot be told any more.
    Io,
}

impl WireError {
    fn error(sqlstate: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::Sql { error: SqlError::new(sqlstate, message.into()), fatal: false }
    }

    fn fatal(sqlstate: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::Sql { error: SqlError::new(sqlstate, message.into()), fatal: true }
    }

    /// The same, and the connection ends.
    fn made_fatal(self) -> Self {
        match self {
            Self::Sql { error, .. } => Self::Sql { error, fatal: true },
            Self::Io => Self::Io,
        }
    }
}

impl From<SqlError> for WireError {
    fn from(error: SqlError) -> Self {
        Self::Sql { error, fatal: false }
    }
}
impl From<io::Error> for WireError {
    fn from(_: io::Error) -> Self {
        Self::Io
    }
}
