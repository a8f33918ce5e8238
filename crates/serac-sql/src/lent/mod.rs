//! Functions that the program lends a session: of rows, of groups, and with rows of their own.
//!
//! | module | what |
//! |---|---|
//! | `function` | what a program says of a function, and its types |
//! | `scalar` | functions of rows, for DataFusion |
//! | `aggregate` | aggregates, for DataFusion |
//! | `rows` | functions in FROM |
//!
//! A lent function is a session's own. It has no place in the catalog or the log, and nothing that
//! the database keeps may name it. It takes whole batches of Arrow, and its results are checked:
//! how many there are, and whether SQL would assign them to the type that it says it returns.

mod aggregate;
mod function;
mod rows;
mod scalar;

pub use aggregate::{AggregateBody, GroupState};
pub(crate) use aggregate::{aggregate_of, is_lent_aggregate};
pub(crate) use function::{CheckedBody, CheckedFunction};
pub use function::{FunctionBody, LentFunction, Still};
pub(crate) use rows::CalledRows;
pub use rows::TableBody;
pub use scalar::ScalarBody;
pub(crate) use scalar::{is_lent, scalar_of};
