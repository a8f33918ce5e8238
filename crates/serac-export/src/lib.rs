//! Arrow out: data leaves the engine as Arrow, without a step of export (Mainlining Databases §5).
//!
//! In process, [`serac_engine::Transaction::scan_arrow`] gives record batches; [`c_stream()`] hands
//! them to another language through Arrow's C stream interface (feature `ffi`). Over the network,
//! [`flight`] serves them to Arrow Flight clients (feature `flight`). In all of them a frozen block
//! is its own buffers, not a copy. An [`image`] leaves the buffers where they are, and says where.
//! Programs of any language run beside the data in [`compute`] (feature `compute`).
#![warn(missing_docs)]

#[cfg(feature = "flight")]
mod body;
#[cfg(feature = "ffi")]
mod c_stream;
#[cfg(feature = "compute")]
pub mod compute;
#[cfg(feature = "flight")]
pub mod flight;
#[cfg(feature = "flight")]
pub mod image;
#[cfg(feature = "flight")]
mod lookup;
#[cfg(feature = "flight")]
pub mod rdma;
#[cfg(feature = "flight")]
pub mod shared_memory;

#[cfg(feature = "ffi")]
pub use c_stream::c_stream;
