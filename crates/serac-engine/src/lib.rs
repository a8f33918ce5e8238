//! The engine of SeracDB: the embedded API under SQL.
//!
//! A [`Database`] is a folder or memory. A [`Transaction`] reads and writes rows of the tables in its [`Catalog`], through all constraints and
//! indexes, and changes the catalog. Knows no SQL: defaults, checks and views are texts that it keeps.

mod access;
pub mod bitmap;
pub mod catalog;
mod catalog_changes;
mod cluster;
mod column_filter;
pub mod comments;
mod constraint_ddl;
mod database;
mod ddl;
pub mod definition;
mod entries;
mod error;
mod export;
mod expressions;
mod foreign_key;
pub mod function;
pub mod json;
pub mod json_text;
mod lock;
mod moves;
mod parent_pins;
pub mod procedure;
mod read_set;
mod referential_action;
pub mod roles;
mod salvage;
pub mod sequence;
mod statement;
pub mod statistics;
mod table;
mod transaction;
pub mod values;
mod watch;
mod write;

pub use access::{IndexAccess, KeyRange};
pub use catalog::{Catalog, DEFAULT_SCHEMA};
pub use cluster::{SortedRows, sorted};
pub use column_filter::ColumnFilter;
pub use database::Database;
pub use error::{EngineError, Result};
pub use export::{ArrowScan, ColumnsRead, DecimalForm, TYPE_KEY, VarlenForm, into_form, with_type};
pub use expressions::Expressions;
pub use lock::LOCK_TIMEOUT;
pub use procedure::{Procedure, Resolved, RetryPolicy};
pub use read_set::ReadSet;
pub use serac_operators::select::Comparison;
pub use statement::{ColumnUpdate, RowsUpdate};
pub use table::{Table, TableIndex};
pub use transaction::{Savepoint, Transaction};
pub use watch::Watch;
