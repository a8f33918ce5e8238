//! A database's folder, and the processes that work in it.
//!
//! One process has a folder open: it holds the lock on the file `LOCK` and the database in memory.
//! The others work through it, by a Unix socket in the folder (`SOCKET`), with the frames of
//! [`serac_client::wire`]. [`FolderDatabase`] is both sides: it opens the folder or connects, and
//! serves the others if it has opened.
//!
//! ```text
//!   process A (holder)                             process B
//!   FolderDatabase ── Session ──▶ database         FolderDatabase
//!        │                           ▲                  │
//!   FolderServer ── Session per ─────┘◀── SOCKET ──── Client
//!                   connection
//! ```
//!
//! **Opening** (`database`) is a loop: connect to the socket; without an answer, open the folder;
//! if the lock is held, wait and begin again. So of several processes that find a folder free, one
//! gets the lock and the others connect to it. `LOCK` says whether its holder serves others. If it
//! does, but does not answer, it is recovering or closing the database, and is waited for. If it
//! does not, opening fails.
//!
//! **The socket** is touched by the holder of the lock alone. A holder that was killed leaves its
//! file behind. A client that connects to that file is refused by the system, and the next process
//! that opens the folder replaces it.
//!
//! **The end of a holder** (`server`) goes in this order:
//!
//! 1. If it ends because its work is done, new clients are taken while an earlier client is busy,
//!    which may wait for their work (`a | b | c` with a command of the same folder at each place).
//!    Each new client may run one statement, and then gets the message. Otherwise new clients are
//!    refused.
//! 2. The socket is removed. New clients wait for the lock.
//! 3. Idle clients, without an open transaction, are told that the holder ends (Bye). So are
//!    clients whose transaction is idle for [`FolderOptions::shutdown_timeout`]; it is rolled back.
//! 4. Other transactions and running statements may continue: to their end if the holder's work is
//!    done ([`FolderDatabase::close_when_idle`]), otherwise for
//!    [`FolderOptions::shutdown_timeout`]. Then they are cancelled, and their clients are told.
//! 5. The database is closed, which releases the lock.
//!
//! A client remembers the end, and continues with its next statement if possible: it connects to
//! the folder's new holder, or opens the folder. A session's own state (settings, prepared
//! statements, temporary tables, channels) ends with its holder. If there was state, or an open
//! transaction, statements fail before a new session begins (`loss`). So no statement runs in a
//! session or transaction other than its own. A statement that ran when its holder was killed ends
//! with SQLSTATE 08006.
//!
//! **Handing over.** A server that is started anew may find that one of its clients has taken the
//! folder meanwhile. It asks that holder for the folder ([`open_to_serve`]). It gets the folder if
//! the holder was opened with [`Opening::hands_over`] and all of the holder's own sessions are
//! idle. Otherwise it asks again, until its patience ends. A holder that grants it goes through the
//! end above, in the same order. So the server gets the folder by its lock and by recovery, as any
//! process does. The holder and its clients leave the folder alone for a few seconds, in which they
//! only try to connect. If no server has come then, they open it. The holder's own sessions go on
//! through the server, and lose what clients' sessions lose.
//!
//! **Access**: processes of the holder's user, and of root, by the peer credentials of the system.
//! They could read the files as well, so no password is asked for. A client has the rights of the
//! bootstrap superuser, or of the role that it names.
//!
//! | module | |
//! |---|---|
//! | `database` | to open or to connect, and sessions that do not show which |
//! | `loss` | what becomes of statements whose session has ended |
//! | `server` | the listener, its limits, the end |
//! | `connection` | a connection: login, statements, results |
//! | `running` | which statement runs, and how it is cancelled |
//! | `rows` | record batches as messages |
//! | `images` | tables in shared memory |

mod connection;
mod database;
mod images;
mod loss;
mod rows;
mod running;
mod server;

pub use connection::{Image, ImageSource};
pub use database::{
    CancelRunning, FolderDatabase, FolderError, FolderProgress, FolderSession, FolderSnapshot, Opening, SessionOptions,
    Sink, open_to_serve,
};
pub use images::shared_memory;
pub use serac_export::shared_memory::{Descriptors, SharedMemory, SharedMemoryOptions};
pub use server::{FolderOptions, FolderServer};
