//! What bindings for other languages share: the databases that a process has open, connections
//! without futures, and rows that outlive their statement.
//!
//! | module | what |
//! |---|---|
//! | `process` | values that belong to the process that has made them |
//! | `database` | databases that the process has open |
//! | `slot` | a session together with the open stream of its query |
//! | `connection` `rows` | a session that any thread may use, and the rows that it streams |
//! | `statement` | prepared statements |
#![warn(missing_docs)]

mod connection;
mod database;
mod process;
mod rows;
mod slot;
mod statement;

pub use connection::{Connection, Outcome, validated};
pub use database::{DatabaseUse, Options, close_all};
pub use process::OfProcess;
pub use rows::RowReader;
pub use slot::{SessionSlot, Started};
pub use statement::Statement;
