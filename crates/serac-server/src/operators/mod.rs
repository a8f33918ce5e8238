//! The port of the operator language: frames (`serac_column_language::frames`) over a Unix socket
//! or TCP.
//!
//! A connection has a task, which reads, writes and keeps the time, and a thread, which runs the
//! client's statements in order. They meet in a `link`:
//!
//! ```text
//!            task                     link                    thread
//! socket ──▶ read ──▶ frames, at most a few MiB ─────────▶ statements, loads
//! socket ◀── write ◀─ answers, at most a few hundred KiB ◀─┘      ▲
//!            time, stop, client's end ── cancel ──────────────────┘
//! ```
//! A full side of the link blocks its writer: a client that sends too fast, or a statement whose
//! client does not read. A thread that waits for a slow client is its own connection's, so no other
//! client waits with it.
//!
//! **The end of a client.** A client that has stopped sending may still read: its running statement
//! has a second to end, and is then cancelled. The statement of an unwritable client is cancelled
//! at once. A load without its end is rolled back.
//!
//! **The end of the server.** `shutdown` begins no more statements and lets running ones end. The
//! caller of [`OperatorsServer::run`] does the rest: it closes the database and reports that to the
//! client with the [`Farewell`].
//!
//! | module | |
//! |---|---|
//! | `server` | the listener, the connections, the end |
//! | `login` | from a connection's first byte to its role |
//! | `connection` | a connection's task |
//! | `link` | where task and thread meet |
//! | `worker` | a connection's thread |
//! | `read` | frames from a stream |

mod connection;
mod link;
mod login;
mod read;
mod server;
mod worker;

pub use read::{Frame, ReadError, read_frame};
pub use server::{Farewell, OperatorsOptions, OperatorsServer};
