//! Versions of rows: before-images, transactions, waits, and garbage collection.

pub mod blocker;
pub mod chain;
mod clock;
pub mod gc;
mod pruning;
pub mod transaction;
pub mod undo;
mod wait_queues;
pub mod waits;
