//! Files mapped into memory, read only: how [`crate::data_file`] reads.
//!
//! A mapping stays valid when its file is removed. It would not if the file were cut; checkpoint files never change once they are written.

use arrow_buffer::Buffer;
use memmap2::Mmap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

/// The bytes of a whole file, page-aligned; slices of the buffer keep the mapping alive.
///
/// # Errors
/// When the file cannot be opened or mapped, or is empty.
pub(crate) fn map(path: &Path) -> io::Result<Buffer> {
    // SAFETY: nobody changes a checkpoint's file; see the module.
    let mapping = unsafe { Mmap::map(&File::open(path)?) }?;
    if mapping.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is empty"));
    }
    let start = NonNull::new(mapping.as_ptr().cast_mut()).expect("the system maps nothing at zero");
    // SAFETY: so many readable bytes, which live as long as the mapping, which the buffer owns.
    Ok(unsafe { Buffer::from_custom_allocation(start, mapping.len(), Arc::new(mapping)) })
}
