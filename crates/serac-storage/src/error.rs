//! The one error type of the storage.

use crate::ids::RowId;
use crate::version::blocker::Blocker;
use std::path::PathBuf;
use std::sync::Arc;

/// The errors of the storage.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Another transaction wrote the row first (first updater wins). SQLSTATE 40001.
    #[error("could not serialize access to {row:?} of table \"{table}\": it was changed by a concurrent transaction")]
    WriteConflict {
        /// Table's name.
        table: String,
        /// The row.
        row: RowId,
        /// The transaction, if it is still running.
        blocker: Option<Arc<Blocker>>,
    },
    /// The transaction that is in the way waits for this one. SQLSTATE 40P01.
    #[error("deadlock detected")]
    Deadlock,
    /// A limit of the storage was reached. SQLSTATE 54000.
    #[error("limit reached: {0}")]
    Limit(String),
    /// Input that does not fit the table. SQLSTATE 22000.
    #[error("invalid input: {0}")]
    InvalidInput(String),
    /// The database is open in another process. SQLSTATE 55006.
    #[error("the database at {path} is open in another process{}: {}", shown_holder(*.holder), what_to_do(*.serves_others))]
    Locked {
        /// The database's folder.
        path: PathBuf,
        /// The number of that process, where it is known.
        holder: Option<u32>,
        /// Whether that process lets others work through it.
        serves_others: bool,
    },
    /// Durable bytes of the log or of a checkpoint are damaged or missing. SQLSTATE XX001.
    #[error("{file} is corrupt at byte {offset}: {detail}")]
    Corrupt {
        /// The damaged file.
        file: PathBuf,
        /// The offset in the file.
        offset: u64,
        /// The damage, in words.
        detail: String,
    },
    /// The database was written by another version of the program. SQLSTATE 0A000.
    #[error("{file}: the database has format version {found}, this program reads {ours}")]
    OtherVersion {
        /// The file that says so.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// The version of this program.
        ours: u32,
    },
    /// An earlier failed sync: the process no longer acknowledges writes. SQLSTATE 58030.
    #[error("the log failed and no write can be acknowledged until the database is opened again: {0}")]
    LogFailed(String),
    /// The database was closed; the transaction was rolled back. SQLSTATE 57P01.
    #[error("the database is closed")]
    Closed,
    /// The disk is full; the transaction was rolled back. SQLSTATE 53100.
    #[error("no space left for the log: the transaction was rolled back")]
    DiskFull,
    /// Input or output failed. SQLSTATE 58030, or 53100 where the disk is full.
    #[error("{context}: {source}")]
    Io {
        /// The operation that failed, with the file's name.
        context: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// Arrow refused data.
    #[error("arrow: {0}")]
    Arrow(#[from] arrow_schema::ArrowError),
}

fn shown_holder(holder: Option<u32>) -> String {
    holder.map_or(String::new(), |holder| format!(" (pid {holder})"))
}

fn what_to_do(serves_others: bool) -> &'static str {
    match serves_others {
        true => "work through that process (the shell and `serac load` do without --standalone), or end it first",
        false => "end it first, as it has the database for itself",
    }
}

/// Result of a storage operation.
pub type Result<T, E = StorageError> = std::result::Result<T, E>;

impl StorageError {
    /// Whether the disk is full. SQLSTATE 53100.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::DiskFull => true,
            Self::Io { source, .. } => crate::durability::file_system::is_disk_full(source),
            _ => false,
        }
    }

    /// A [`StorageError::Io`] with its context.
    pub fn io(context: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io { context: context.into(), source }
    }
}
