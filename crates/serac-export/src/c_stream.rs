//! Arrow's C stream interface, for programs in other languages in the same process.

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use serac_engine::ArrowScan;

/// The rows of a scan as a C stream. Whoever gets the stream owns it and everything that comes out
/// of it: each array keeps the memory of its block until its `release` is called, from whatever
/// thread, also after the stream, the transaction and the database have gone.
pub fn c_stream(scan: ArrowScan) -> FFI_ArrowArrayStream {
    FFI_ArrowArrayStream::new(Box::new(scan))
}
