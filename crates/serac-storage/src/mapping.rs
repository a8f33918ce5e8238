//! Files mapped into memory, read only: how [`crate::data_file`] reads.
//!
//! A mapping stays valid when its file is removed. It would not if the file were cut; checkpoint files never change once they are written.

use arrow_buffer::Buffer;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is never written.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length; every buffer over it holds the mapping, so none is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// The bytes of a whole file, page-aligned; slices of the buffer keep the mapping alive.
///
/// # Errors
/// When the file cannot be opened or mapped, or is empty.
pub(crate) fn map(path: &Path) -> io::Result<Buffer> {
    let file = File::open(path)?;
    let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    // SAFETY: a new mapping at a place of the system's choice. It outlives the descriptor.
    let start = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let start = NonNull::new(start.cast()).expect("the system maps nothing at zero");
    // SAFETY: `len` readable bytes, which live as long as the mapping, which the buffer owns.
    Ok(unsafe { Buffer::from_custom_allocation(start, len, Arc::new(Mapping { start, len })) })
}
