//! Arrow's C stream interface, for programs in other languages in the same process.

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use serac_engine::ArrowScan;

/// The rows of a scan as a C stream. The receiver of the stream owns it and all of its arrays. Each
/// array keeps the memory of its block until its `release` is called, from any thread, also after
/// the stream, the transaction and the database have gone.
pub fn c_stream(scan: ArrowScan) -> FFI_ArrowArrayStream {
    FFI_ArrowArrayStream::new(Box::new(scan))
}
