//! SeracDB in a program: transactions and analysis on one copy of the data, which is Apache Arrow.
//!
//! This crate is the face of the embedded database. Its only code is [`Builder`] and the functions
//! that use it. The crates behind it may change their borders; this one keeps its names.
//!
//! ```
//! use seracdb::prelude::*;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let db = seracdb::in_memory()?;
//! let mut session = Session::new(&db);
//! session.execute("CREATE TABLE account (id INT PRIMARY KEY, balance NUMERIC(12, 2))").await?;
//! session.execute("INSERT INTO account VALUES (1, 100), (2, 20)").await?;
//! let results = session.execute("SELECT sum(balance) FROM account").await?;
//! assert!(matches!(&results[..], [StatementResult::Rows { batches, .. }] if batches[0].num_rows() == 1));
//! # Ok(())
//! # }
//! ```
//!
//! | what | where |
//! |---|---|
//! | a database | [`open`], [`in_memory`], [`Builder`] |
//! | SQL, asynchronous, results as Arrow | [`Session`], [`StatementResult`] |
//! | statements by key, without a runtime | [`Session::prepare`], [`Session::run_prepared`] |
//! | parameters of any statement | [`ScalarValue`], [`mark_parameters`], [`Session::stream_prepared`] |
//! | Arrow, and files, into a table | [`Session::ingest`], [`Session::ingest_files`] |
//! | functions of the program in statements | [`Session::lend_function`], [`LentFunction`] |
//! | Arrow of the program as a relation of queries | [`Session::lend_frames`], [`FrameProvider`] |
//! | rows without SQL, and stored procedures | [`engine::Database::begin`], [`engine::Database::transact`], [`engine::Procedure`] |
//! | tables as Arrow | [`engine::Transaction::scan_arrow`], and `export` (feature `export`) for Flight and the C stream interface |
//!
//! Each row of the table has an example in the folder `examples`.
#![warn(missing_docs)]

pub use arrow;
pub use serac_engine as engine;
#[cfg(feature = "export")]
pub use serac_export as export;
pub use serac_sql::CopyProgress;
pub use serac_sql::scan::ScanProgress;
pub use serac_sql::{
    AggregateBody, Blocked, CancelHandle, Description, Frame, FrameProvider, FrameRows, FunctionBody, GroupState,
    IfExists, IngestFiles, IngestTarget, LentFunction, MarkedText, Notice, Notification, ParameterMarks, Parsed,
    Prepared, RowStream, Rows, RunningStatement, ScalarBody, ScalarValue, Session, SessionDefaults, SqlDatabase,
    SqlError, SqlOptions, Start, Started, StatementResult, StatementStream, Still, TableBody, TransactionStatus,
    Volatility, acts_in_transaction, located, mark_parameters,
};
pub use serac_storage::durability::checkpoint::CheckpointReport;
pub use serac_storage::{ColumnType, Durability, FreezeFormat, RowBuffer, StorageOptions, Value};

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Values and types of results as clients of PostgreSQL know them.
pub mod wire {
    /// NUMERIC's number among types.
    pub const NUMERIC: u32 = 1700;
    pub use serac_sql::free_numbers::{of_parameter as number_of, shown, shown_schema};
    pub use serac_sql::wire::{WireColumn, element_of, field_type, to_wire, wire_type};
}

/// Values and types as columns of tables have them.
pub mod columns {
    pub use serac_sql::{assign, check_assignment, type_named};
}

/// The names that most programs need.
pub mod prelude {
    pub use crate::engine::Database;
    pub use crate::{Builder, Durability, Rows, Session, SqlDatabase, SqlError, StatementResult, Value};
}

/// Opens or makes the database in the folder `path`: each commit is on the disk before it is
/// acknowledged.
///
/// # Errors
/// If it is open in another process, or damaged, or its files cannot be used.
pub fn open(path: impl AsRef<Path>) -> Result<SqlDatabase, SqlError> {
    Builder::new().path(path.as_ref()).open()
}

/// An empty database in memory. It ends with its last handle.
///
/// # Errors
/// If there is no folder to which queries can spill.
pub fn in_memory() -> Result<SqlDatabase, SqlError> {
    Builder::new().open()
}

/// How a database is opened.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    storage: StorageOptions,
    sql: SqlOptions,
}

impl Builder {
    /// A database in memory, with a thread for each processor, and no limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// The folder of the database. It is made if it does not exist.
    pub fn path(mut self, path: impl Into<PathBuf>) -> Self {
        self.storage.path = Some(path.into());
        self
    }

    /// When a commit is acknowledged: by default when its log is on the disk.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.storage.durability = durability;
        self
    }

    /// Blocks that no transaction has changed for this long freeze by themselves; with `None` they
    /// freeze only on demand.
    pub fn freeze_after(mut self, time: Option<Duration>) -> Self {
        self.storage.freeze_after = time;
        self
    }

    /// Bytes that all queries together may use before they spill or fail.
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.sql.memory_limit = Some(bytes);
        self
    }

    /// Threads of a query.
    pub fn threads(mut self, threads: usize) -> Self {
        self.sql.threads = Some(threads);
        self
    }

    /// How long a statement may take, unless its session sets `statement_timeout`.
    pub fn statement_timeout(mut self, time: Duration) -> Self {
        self.sql.session.statement_timeout = Some(time);
        self
    }

    /// All options of the storage, for options that have no method here.
    pub fn storage(mut self, change: impl FnOnce(&mut StorageOptions)) -> Self {
        change(&mut self.storage);
        self
    }

    /// All options of SQL, for options that have no method here.
    pub fn sql(mut self, change: impl FnOnce(&mut SqlOptions)) -> Self {
        change(&mut self.sql);
        self
    }

    /// Opens or makes the database.
    ///
    /// # Errors
    /// As [`open`].
    pub fn open(self) -> Result<SqlDatabase, SqlError> {
        SqlDatabase::new(engine::Database::open_with(self.storage)?, &self.sql)
    }
}

/// The Rust in the documents, compiled.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/book/src/guides/embed.md")]
    mod embed {}
    #[doc = include_str!("../../../docs/book/src/guides/export.md")]
    mod export {}
}
