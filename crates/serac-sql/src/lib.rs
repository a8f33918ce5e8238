//! SQL on SeracDB: DataFusion plans and runs queries over our scans; statements that change things are ours.
#![warn(missing_docs)]

mod catalog;
mod copy;
mod ddl;
mod dml;
mod error;
mod expressions;
mod functions;
pub mod scan;
mod session;
mod types;

pub use error::{Result, SqlError};
pub use session::{CancelHandle, Session, SqlDatabase, SqlOptions, StatementResult, TransactionStatus, parse};
pub use types::format_uuid;
