//! Versions of rows: before-images, transactions, waits, and garbage collection.

pub mod gc;
pub mod transaction;
pub mod undo;
mod wait_queues;
pub mod waits;
