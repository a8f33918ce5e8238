//! The operator language: statements of one line each. Their physical operators work on whole
//! columns, and variables connect them.
//!
//! It stands on the engine as SQL does. A database of the language is a schema, a table is a table
//! of the same catalog, with the same transactions, blocks and indexes. It knows no SQL and no
//! sockets.
//!
//! | module | concept |
//! |---|---|
//! | [`statement`] | what can be said, as data |
//! | [`parse`] | from a line to a statement |
//! | [`context`] | a client's variables, its batch and its settings |
//! | [`operators`], [`memory`] | what all clients share |
//! | [`snapshot`] | what one statement, or one batch, sees: a catalog, a storage snapshot, pinned tables |
//! | [`evaluate()`] | the operators, as functions of a snapshot and their inputs |
//! | `access` | whether an index or a scan finds rows sooner: percentiles of columns, measured costs |
//! | `clustered` | ranges of rows that lie in the order of a column |
//! | [`column`](mod@column) | selections on columns and values at positions, block by block |
//! | [`values`] | vectors of numbers, and what is computed on them |
//! | [`variable`] | what a name may stand for |
//! | [`load`] | a client's CSV file, chunk by chunk |
//! | [`frames`] | what clients and servers of the language say to each other |
//! | [`error`] | what can be wrong |
#![warn(missing_docs)]

mod access;
mod batch;
mod change;
mod clustered;
pub mod column;
pub mod context;
pub mod error;
pub mod evaluate;
pub mod frames;
mod info;
pub mod load;
pub mod memory;
pub mod operators;
pub mod output;
pub mod parse;
mod print;
mod rights;
pub mod settings;
pub mod snapshot;
pub mod statement;
mod token;
pub mod values;
pub mod variable;

pub use context::{Context, Outcome};
pub use error::{OperatorError, Report, Result, StatementError};
pub use evaluate::evaluate;
pub use load::Load;
pub use memory::Cancel;
pub use operators::Operators;
pub use output::Output;
pub use settings::Settings;
pub use snapshot::Snapshot;
pub use statement::Statement;
pub use values::Values;
pub use variable::{Positions, Variable};
