//! Files at whose operations other tasks may go on, over a disk that tears, fills up and fails.

use arrow_buffer::Buffer;
use serac_storage::durability::file_system::{FaultFileSystem, FileSystem, FolderLock, StorageFile};
use serac_sync::simulation::one_in;
use serac_sync::{point, thread};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A file system whose operations take simulated time.
#[derive(Debug, Clone)]
pub struct SimulatedDisk(pub FaultFileSystem);

#[derive(Debug)]
struct SimulatedFile(Arc<dyn StorageFile>);

/// An operation takes its time: now and then a long one.
fn pass_time() {
    point();
    if one_in(8) {
        (0..20).for_each(|_| thread::yield_now());
    }
}

impl StorageFile for SimulatedFile {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        pass_time();
        // In two pieces: a crash may come between them.
        let middle = bytes.len() / 2;
        self.0.write_all_at(&bytes[..middle], offset)?;
        pass_time();
        self.0.write_all_at(&bytes[middle..], offset + middle as u64)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        point();
        self.0.read_at(bytes, offset)
    }

    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn sync(&self) -> io::Result<()> {
        pass_time();
        let result = self.0.sync();
        pass_time();
        result
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        pass_time();
        self.0.allocate(len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        pass_time();
        self.0.set_len(len)
    }
}

impl FileSystem for SimulatedDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        pass_time();
        Ok(Arc::new(SimulatedFile(self.0.create(path)?)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        pass_time();
        Ok(Arc::new(SimulatedFile(self.0.open(path)?)))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        point();
        Ok(Arc::new(SimulatedFile(self.0.open_to_read(path)?)))
    }

    fn map(&self, path: &Path) -> io::Result<Buffer> {
        point();
        self.0.map(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        point();
        self.0.list(folder)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        point();
        self.0.exists(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        pass_time();
        self.0.create_folder(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        pass_time();
        self.0.link(from, to)
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Result<Arc<dyn FolderLock>, String>> {
        pass_time();
        self.0.lock(path, holder)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        pass_time();
        self.0.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        pass_time();
        self.0.remove(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        pass_time();
        let result = self.0.sync_dir(path);
        pass_time();
        result
    }
}
