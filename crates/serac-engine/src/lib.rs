//! The engine of SeracDB: the embedded API under SQL.
//!
//! A [`Database`] is a folder or memory. A [`Transaction`] reads and writes rows of the tables in
//! its [`Catalog`], through all constraints and indexes, and changes the catalog. The engine knows
//! no SQL: defaults, checks and views are texts that it keeps.
//!
//! A module uses those of its own line and of the lines before it.
//!
//! | modules | what |
//! |---|---|
//! | `catalog::{comments, definition, foreign, function, sequence}` `constraint::parent_pins` `error` `float_text` `infinity` `json` `json_text` `security` `table::{bitmap, index, lock, statistics}` `values` `watch` | values, definitions, roles, and parts of a table |
//! | `constraint::{end_key, pending}` `table` `transaction::read_set` | tables |
//! | `catalog` `salvage` `security::access` | the catalog, and what a role may do |
//! | `catalog::procedure` `database_inner` `transaction` | a database, its transactions, and procedures, which are named transactions |
//! | `constraint` `ddl` `security::ddl` `table::{access, export, given, statement, write}` | statements of a transaction |
//! | `database` `security::login` `transact` | the handle of a database |

pub mod catalog;
mod constraint;
mod database;
mod database_inner;
mod ddl;
mod error;
pub mod float_text;
mod infinity;
pub mod json;
pub mod json_text;
mod salvage;
pub mod security;
pub mod table;
mod transact;
mod transaction;
pub mod values;
mod watch;

pub use catalog::procedure::{Procedure, Resolved, RetryPolicy};
pub use catalog::{Catalog, DEFAULT_SCHEMA};
pub use database::Database;
pub use ddl::cluster::{SortedRows, sorted};
pub use error::{EngineError, ExpressionError, FailingRow, Result};
pub use infinity::Infinity;
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
