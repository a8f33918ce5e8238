//! Arrow out: what leaves the engine as Arrow, without a step of export (Mainlining Databases §5).
//!
//! In process, [`serac_engine::Transaction::scan_arrow`] gives record batches; [`c_stream()`] hands them to another language through Arrow's C
//! stream interface (feature `ffi`). Over the network, [`flight`] serves them to Arrow Flight clients (feature `flight`). In all of them a frozen
//! block is its own buffers, not a copy.
#![warn(missing_docs)]

#[cfg(feature = "flight")]
pub mod admission;
#[cfg(feature = "ffi")]
mod c_stream;
#[cfg(feature = "flight")]
pub mod flight;
#[cfg(feature = "flight")]
pub mod listen;

#[cfg(feature = "ffi")]
pub use c_stream::c_stream;
