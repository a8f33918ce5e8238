//! What bindings for other languages share: the databases that a process has open, connections
//! without futures, and rows that outlive their statement.
//!
//! | module | what |
//! |---|---|
//! | `process` | values that belong to the process that has made them |
//! | `database` | databases that the process has open |
//! | `nested` | code of the program that a statement calls |
//! | `slot` | a session together with the open stream of its query |
//! | `session` `rows` | a session that threads share, and the rows that it streams |
//! | `connection` `statement` | calls that block, and prepared statements |
#![warn(missing_docs)]

mod connection;
mod database;
mod nested;
mod process;
mod rows;
mod session;
mod slot;
mod statement;

pub use connection::{Connection, check_committed, validated};
pub use database::{DatabaseUse, Options, close_all};
pub use nested::{Running, SessionId};
pub use process::{OfProcess, PerProcess};
pub use rows::{Failure, Next, QueryRows, RowReader};
pub use session::{Locked, Outcome, SharedSession, begins_transaction};
pub use statement::Statement;
