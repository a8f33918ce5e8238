//! The files that durability rests on, behind a trait, so that tests can make them fail.

use std::fmt::Debug;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// An open file that is written at given places.
pub trait StorageFile: Send + Sync + Debug {
    /// Writes all of `bytes` at `offset`.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes what was written durable.
    fn sync(&self) -> io::Result<()>;
    /// Reserves disk space for the first `len` bytes, so that writing them cannot run out of space; new bytes read as zero.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Cuts the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
}

/// What the log and the checkpoints need of a file system. Reading is plain `std::fs`.
pub trait FileSystem: Send + Sync + Debug {
    /// Makes or empties a file.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>>;
    /// Opens a file for writing as it is.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>>;
    /// Replaces `to` by `from`, atomically.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// The operating system's files.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFileSystem;

#[derive(Debug)]
struct RealFile(fs::File);

impl StorageFile for RealFile {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        // SAFETY: the descriptor is open; the call touches no memory of ours.
        match unsafe { libc::posix_fallocate(self.0.as_raw_fd(), 0, len as libc::off_t) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
}

impl FileSystem for RealFileSystem {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(RealFile(fs::OpenOptions::new().write(true).create(true).truncate(true).open(path)?)))
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(RealFile(fs::OpenOptions::new().write(true).open(path)?)))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }
}

/// Files that fail on purpose, for tests: a real file system with faults switched on by number.
#[derive(Debug, Clone, Default)]
pub struct FaultFileSystem {
    faults: Arc<Faults>,
}

/// The switches of a [`FaultFileSystem`].
#[derive(Debug, Default)]
pub struct Faults {
    /// While set, reserving space fails with "no space left".
    pub disk_full: std::sync::atomic::AtomicBool,
    /// The n-th sync from now fails (0: none does), and all later ones.
    pub fail_sync_in: std::sync::atomic::AtomicU64,
    /// The n-th write from now writes only half and fails (0: none does), and all later ones fail.
    pub fail_write_in: std::sync::atomic::AtomicU64,
}

impl FaultFileSystem {
    /// The switches.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }
}

/// Counts `counter` down to one, at which it stays: true from then on.
fn due(counter: &std::sync::atomic::AtomicU64) -> bool {
    use std::sync::atomic::Ordering::SeqCst;
    counter.fetch_update(SeqCst, SeqCst, |n| (n > 1).then(|| n - 1)).is_err_and(|n| n == 1)
}

#[derive(Debug)]
struct FaultFile {
    file: Arc<dyn StorageFile>,
    faults: Arc<Faults>,
}

impl StorageFile for FaultFile {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if due(&self.faults.fail_write_in) {
            self.file.write_all_at(&bytes[..bytes.len() / 2], offset)?;
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.file.write_all_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        if due(&self.faults.fail_sync_in) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.file.sync()
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        if self.faults.disk_full.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.file.allocate(len)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
}

impl FileSystem for FaultFileSystem {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(FaultFile { file: RealFileSystem.create(path)?, faults: self.faults.clone() }))
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(FaultFile { file: RealFileSystem.open(path)?, faults: self.faults.clone() }))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFileSystem.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        RealFileSystem.remove(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        RealFileSystem.sync_dir(path)
    }
}
