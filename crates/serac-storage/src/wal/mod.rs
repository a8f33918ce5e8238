//! The write-ahead log (§3.4).
//!
//! The log is a row of segment files, `log/<number>.wal`, each a header and frames. A frame is a transaction's redo at its commit, or a
//! part of a long one's before it. Frames stand in commit-timestamp order and carry consecutive sequence numbers.
//!
//! [`log_manager`] writes them; [`frame`] knows their form; [`reader`] reads them back and tells a torn tail from damage.

pub mod frame;
mod log_manager;
pub mod reader;

pub(crate) use log_manager::segment_name;
pub use log_manager::{Durability, LogFigures, LogManager, LogOptions};
