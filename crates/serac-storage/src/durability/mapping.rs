//! Files mapped into memory, read only: how [`crate::durability::data_file`] reads, and how a
//! buffer's file is found again.
//!
//! A mapping stays valid when its file is removed. It would not if the file were cut; checkpoint
//! files never change once they are written.
//!
//! **Sharing.** To hand a buffer to another process, ask [`mapped_file`] for the buffer's file, and
//! send the file's descriptor and the buffer's offset. All mappings of the process are in one list,
//! by their addresses: a buffer does not name its owner. No descriptor is kept open for that: there
//! may be more data files than a process may have open. [`MappedFile::open`] opens the file again
//! and checks that it is the same.

use arrow_buffer::Buffer;
use memmap2::Mmap;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

/// The mappings of the process by their first addresses. An entry goes before its memory does.
static MAPPINGS: RwLock<BTreeMap<usize, Weak<MappedFile>>> = RwLock::new(BTreeMap::new());

/// A file that is mapped as a whole. The buffers over it keep it.
#[derive(Debug)]
pub struct MappedFile {
    mapping: Mmap,
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl MappedFile {
    fn start(&self) -> usize {
        self.mapping.as_ptr() as usize
    }

    /// The file's length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "an empty file cannot be mapped")]
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// The buffer's offset in the file, if all of the buffer lies there.
    pub fn offset_of(&self, buffer: &Buffer) -> Option<u64> {
        let offset = (buffer.as_ptr() as usize).checked_sub(self.start())?;
        (offset < self.len() && buffer.len() <= self.len() - offset).then_some(offset as u64)
    }

    /// A descriptor of the file, to read; `None` if it has been removed since.
    ///
    /// # Errors
    /// An error when the process has no descriptor left, or the file cannot be opened.
    pub fn open(&self) -> io::Result<Option<OwnedFd>> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        // The mapping keeps the file's number from being reused.
        let found = file.metadata()?;
        let is_same = (found.dev(), found.ino(), found.len()) == (self.device, self.inode, self.len() as u64);
        Ok(is_same.then(|| file.into()))
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // The memory is given back after this, so no other mapping has the address yet.
        MAPPINGS.write().remove(&self.start());
    }
}

/// The mapped file in which all of a buffer lies, if there is one.
pub fn mapped_file(buffer: &Buffer) -> Option<Arc<MappedFile>> {
    let address = buffer.as_ptr() as usize;
    let file = MAPPINGS.read().range(..=address).next_back().and_then(|(_, file)| file.upgrade())?;
    file.offset_of(buffer).map(|_| file)
}

/// The bytes of a whole file, page-aligned; slices of the buffer keep the mapping alive.
///
/// # Errors
/// An error when the file cannot be opened or mapped, or is empty.
pub(crate) fn map(path: &Path) -> io::Result<Buffer> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    // SAFETY: a checkpoint's file never changes; see the module's header.
    let mapping = unsafe { Mmap::map(&file) }?;
    if mapping.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is empty"));
    }
    let path = std::path::absolute(path)?;
    let mapped = Arc::new(MappedFile { mapping, path, device: metadata.dev(), inode: metadata.ino() });
    MAPPINGS.write().insert(mapped.start(), Arc::downgrade(&mapped));
    let (start, bytes) = (mapped.mapping.as_ptr().cast_mut(), mapped.len());
    let start = NonNull::new(start).expect("the system maps nothing at zero");
    // SAFETY: so many readable bytes, which live as long as the mapping, which the buffer owns.
    Ok(unsafe { Buffer::from_custom_allocation(start, bytes, mapped) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_buffer_is_found_in_its_file_as_long_as_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        std::fs::write(&one, [1; 10_000]).unwrap();
        std::fs::write(&two, [2; 5_000]).unwrap();
        let (first, second) = (map(&one).unwrap(), map(&two).unwrap());
        for (buffer, offset, byte) in [(first.slice_with_length(4_000, 6_000), 4_000, 1), (second.clone(), 0, 2)] {
            let file = mapped_file(&buffer).unwrap();
            assert_eq!(file.offset_of(&buffer), Some(offset));
            let mut bytes = Vec::new();
            File::from(file.open().unwrap().unwrap()).read_to_end(&mut bytes).unwrap();
            assert_eq!((bytes.len(), bytes[0]), (file.len(), byte));
        }
        assert!(mapped_file(&Buffer::from_vec(vec![0u8; 100])).is_none());

        let file = mapped_file(&first).unwrap();
        std::fs::remove_file(&one).unwrap();
        assert!(file.open().unwrap().is_none(), "it was removed");
        std::fs::write(&one, [3; 10_000]).unwrap();
        assert!(file.open().unwrap().is_none(), "it is another one");
        let address = file.start();
        drop((file, first));
        assert!(!MAPPINGS.read().contains_key(&address));
    }
}
