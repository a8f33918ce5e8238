//! A database's folder, and the processes that work in it.
//!
//! One process has a folder open: it holds the lock on the file `LOCK`, and what is in memory is
//! its memory. The others work through it, by a Unix socket in the folder (`SOCKET`), with the
//! frames of [`serac_client::wire`]. [`FolderDatabase`] is both sides: it opens the folder or
//! connects, and serves the others if it has opened.
//!
//! ```text
//!   process A (holder)                             process B
//!   FolderDatabase ── Session ──▶ database         FolderDatabase
//!        │                           ▲                  │
//!   FolderServer ── Session per ─────┘◀── SOCKET ──── Client
//!                   connection
//! ```
//!
//! **Opening** ([`database`]) is a loop: connect to the socket; if nobody answers, open the folder;
//! if the lock is held, wait and begin again. So of several processes that find a folder free, one
//! gets the lock and the others connect to it. `LOCK` says whether its holder serves others. If it
//! does, but nobody answers, it is about to (it recovers) or about to end (it closes the database),
//! and is waited for. If it does not, opening fails.
//!
//! **The socket** is touched by the holder of the lock alone. A holder that was killed leaves its
//! file behind. Who connects to that is refused by the system, and who opens the folder next
//! replaces it.
//!
//! **The end of a holder** ([`server`]) goes in this order:
//!
//! 1. The socket is removed. New clients wait for the lock.
//! 2. Clients that run nothing are told that the holder ends (Bye). Open transactions are rolled
//!    back.
//! 3. What runs may go on for [`FolderOptions::shutdown_timeout`], and is then cancelled; its
//!    client is told, too.
//! 4. The database is closed, which releases the lock.
//!
//! A client remembers the end, and goes on with its next statement where that is possible: it
//! connects to whoever has the folder then, or opens it. A session's own state (settings, prepared
//! statements, temporary tables, channels) ends with its holder. A statement that ran when its
//! holder was killed ends with SQLSTATE 08006, and so does the next one in a transaction that was
//! open, so that no statement runs in another transaction than it was meant for.
//!
//! **Who may connect**: processes of the holder's user, and of root, by the credentials that the
//! system has of a peer. They could read the files as well, so no password is asked for. A client
//! has the rights of the bootstrap superuser, or of the role that it names.
//!
//! | module | |
//! |---|---|
//! | [`database`] | to open or to connect, and sessions that do not show which |
//! | [`server`] | the listener, its limits, the end |
//! | [`connection`] | a connection: login, statements, results |
//! | [`running`] | which statement runs, and how it is cancelled |
//! | [`rows`] | record batches as messages |

mod connection;
mod database;
mod rows;
mod running;
mod server;

pub use connection::{Image, ImageSource};
pub use database::{
    CancelRunning, FolderDatabase, FolderError, FolderProgress, FolderSession, Opening, SessionOptions, Sink,
};
pub use server::{FolderOptions, FolderServer};
