//! The engine of SeracDB: the embedded API under SQL.
//!
//! A [`Database`] is a folder or memory. A [`Transaction`] reads and writes rows of the tables in
//! its [`Catalog`], through all constraints and indexes, and changes the catalog. The engine knows
//! no SQL: defaults, checks and views are texts that it keeps.

pub mod catalog;
mod constraint;
mod database;
mod ddl;
mod error;
pub mod float_text;
pub mod json;
pub mod json_text;
mod salvage;
pub mod security;
pub mod table;
mod transaction;
pub mod values;
mod watch;

pub use catalog::procedure::{Procedure, Resolved, RetryPolicy};
pub use catalog::{Catalog, DEFAULT_SCHEMA};
pub use database::Database;
pub use ddl::cluster::{SortedRows, sorted};
pub use error::{EngineError, ExpressionError, FailingRow, Result};
pub use serac_operators::select::Comparison;
pub use table::access::IndexAccess;
pub use table::column_filter::ColumnFilter;
pub use table::export::{ArrowScan, ColumnsRead, DecimalForm, TYPE_KEY, VarlenForm, into_form, with_type};
pub use table::expressions::Expressions;
pub use table::index::KeyRange;
pub use table::lock::LOCK_TIMEOUT;
pub use table::statement::{ColumnUpdate, RowsUpdate};
pub use table::{Table, TableIndex};
pub use transaction::read_set::ReadSet;
pub use transaction::{Savepoint, Transaction};
pub use watch::Watch;
