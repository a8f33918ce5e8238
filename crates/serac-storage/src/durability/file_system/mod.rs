//! The files that durability rests on, behind a trait, so that tests can make them fail.

mod fault;

pub use fault::{FaultFileSystem, Faults};

use arrow_buffer::Buffer;
use std::fmt::Debug;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// An open file that is read and written at given places.
pub trait StorageFile: Send + Sync + Debug {
    /// Writes all of `bytes` at `offset`.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Reads bytes from `offset` on, and returns how many: fewer than there is room for, zero at
    /// the end of the file.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
    /// The file's length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Makes the written bytes durable.
    fn sync(&self) -> io::Result<()>;
    /// Reserves disk space for the first `len` bytes, so that writing them cannot run out of space;
    /// new bytes read as zero.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Cuts the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
}

/// The lock's holder has the database to itself; dropping the lock releases it.
pub trait FolderLock: Send + Sync + Debug {
    /// Checks that the lock's file is still the one at its path. If it is not, the folder at its
    /// path may be another process's database.
    ///
    /// # Errors
    /// An error when the lock's file was moved, removed or replaced.
    fn check(&self) -> io::Result<()>;
}

/// Says whether the folder of an open database is still where it was opened.
#[derive(Clone, Debug, Default)]
pub struct FolderGuard(Option<Weak<dyn FolderLock>>);

impl FolderGuard {
    /// The guard of the folder with this lock.
    pub fn new(lock: &Arc<dyn FolderLock>) -> Self {
        Self(Some(Arc::downgrade(lock)))
    }

    /// Checks the lock. Without one, a folder is taken for the caller's own.
    ///
    /// # Errors
    /// As for [`FolderLock::check`]; also when the lock has been given back.
    pub fn check(&self) -> io::Result<()> {
        match self.0.as_ref().map(Weak::upgrade) {
            None => Ok(()),
            Some(Some(lock)) => lock.check(),
            Some(None) => Err(io::Error::other("the database's folder has been given back")),
        }
    }
}

/// The file system as the log and the checkpoints need it: everything that they read, write or ask
/// goes through it.
pub trait FileSystem: Send + Sync + Debug {
    /// Makes or empties a file.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>>;
    /// Opens a file for reading and writing as it is.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>>;
    /// Opens a file for reading.
    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>>;
    /// All bytes of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open_to_read(path)?;
        let mut bytes = vec![0; file.length()? as usize];
        let mut filled = 0;
        while filled < bytes.len() {
            match file.read_at(&mut bytes[filled..], filled as u64)? {
                0 => bytes.truncate(filled),
                read => filled += read,
            }
        }
        Ok(bytes)
    }

    /// The bytes of an immutable file, without reading them; they stay when the file is removed. An
    /// empty file is an error.
    fn map(&self, path: &Path) -> io::Result<Buffer>;
    /// The names in a folder, sorted.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;
    /// Whether there is a file or a folder of that name.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Makes a folder that its owner alone may look into.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// Gives a file a second name: the bytes stay as long as one of them is left.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Replaces `to` by `from`, atomically.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Takes the lock file at `path`, and writes `holder` into it. If another process has it,
    /// returns the holder text of that process.
    fn lock(&self, path: &Path, holder: &str) -> io::Result<Result<Arc<dyn FolderLock>, String>>;
}

/// Makes `path` and the folders above that are missing, each durably: once this returns, a loss of
/// power leaves them.
///
/// # Errors
/// An error when a folder cannot be made or synced.
pub fn create_folders(files: &dyn FileSystem, path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    let above = parent(path);
    if !files.exists(path)? {
        create_folders(files, &above)?;
        match files.create_folder(path) {
            // Another process was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => result?,
        }
    }
    // Also when it was there: who made it may have been killed before this.
    match files.sync_dir(&above) {
        // Folders that we may not list cannot be synced.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result,
    }
}

/// The folder in which `path` is an entry.
fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(above) if above.as_os_str().is_empty() => PathBuf::from("."),
        Some(above) => above.to_owned(),
        None => path.to_owned(),
    }
}

/// Whether an error says that the disk, or the owner's share of it, is full.
pub fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
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

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(bytes, offset)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    #[cfg(not(target_vendor = "apple"))]
    fn allocate(&self, len: u64) -> io::Result<()> {
        // SAFETY: the descriptor is open; the call touches no memory of ours.
        match unsafe { libc::posix_fallocate(self.0.as_raw_fd(), 0, len as libc::off_t) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    #[cfg(target_vendor = "apple")]
    fn allocate(&self, len: u64) -> io::Result<()> {
        const BYTES_PER_BLOCK: u64 = 512;
        let metadata = self.0.metadata()?;
        let missing = len.saturating_sub(metadata.blocks() * BYTES_PER_BLOCK);
        if missing > 0 {
            let mut wanted = libc::fstore_t {
                fst_flags: libc::F_ALLOCATEALL,
                fst_posmode: libc::F_PEOFPOSMODE,
                fst_offset: 0,
                fst_length: missing as libc::off_t,
                fst_bytesalloc: 0,
            };
            // SAFETY: the descriptor is open, and the struct lives until the call has returned.
            if unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_PREALLOCATE, &raw mut wanted) } == -1 {
                return Err(io::Error::last_os_error());
            }
        }
        // The call allocates behind the end of the file, which it does not move.
        if metadata.len() < len { self.0.set_len(len) } else { Ok(()) }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
}

/// Takes an exclusive `flock`; false if another process has it.
fn flock(file: &fs::File) -> io::Result<bool> {
    // SAFETY: the descriptor is open; the call touches no memory of ours.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::EWOULDBLOCK) => Ok(false),
        error => Err(error),
    }
}

/// A file with an exclusive `flock`, in a folder that has another. If the file is removed, the
/// folder's lock still keeps other processes out. Not all file systems lock folders (NFS does not).
#[derive(Debug)]
struct LockFile {
    file: fs::File,
    folder: Option<fs::File>,
    path: PathBuf,
    /// The file's, and its file system's, numbers.
    id: (u64, u64),
}

fn id_of(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Times that a lock file is opened anew because it was replaced meanwhile.
const MOST_REPLACED: usize = 100;

impl LockFile {
    fn take(path: &Path, holder: &str) -> io::Result<Result<Self, String>> {
        for _ in 0..MOST_REPLACED {
            let taken = Self::try_take(path, holder)?;
            if !matches!(&taken, Ok(lock) if lock.check().is_err()) {
                return Ok(taken);
            }
        }
        Err(io::Error::other("it is replaced again and again"))
    }

    fn try_take(path: &Path, holder: &str) -> io::Result<Result<Self, String>> {
        use std::io::{Read, Write};
        let mut file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        if !flock(&file)? {
            let mut other = String::new();
            let _ = file.read_to_string(&mut other);
            return Ok(Err(other));
        }
        let id = id_of(&file.metadata()?);
        let mut lock = Self { file, folder: None, path: path.to_owned(), id };
        // If folders cannot be read or locked, the file's lock must do.
        if let Ok(folder) = fs::File::open(parent(path)) {
            match flock(&folder) {
                Ok(true) => lock.folder = Some(folder),
                // Its holder's file was removed, and says nothing any more.
                Ok(false) => return Ok(Err(String::new())),
                Err(_) => {}
            }
        }
        // Only for others to be told: on a full disk they are not.
        match lock.file.set_len(0).and_then(|()| lock.file.write_all(holder.as_bytes())) {
            Err(error) if !is_disk_full(&error) => Err(error),
            _ => Ok(Ok(lock)),
        }
    }
}

impl FolderLock for LockFile {
    fn check(&self) -> io::Result<()> {
        let path = self.path.display();
        match fs::metadata(&self.path) {
            Ok(found) if id_of(&found) == self.id => Ok(()),
            Ok(_) => Err(io::Error::other(format!("{path} is another file: the database's folder was replaced"))),
            Err(error) => {
                let why = format!("{path} was removed, or the database's folder was moved or removed: {error}");
                Err(io::Error::new(error.kind(), why))
            }
        }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // The folder first: the next holder of the file's lock finds it free.
        for file in self.folder.iter().chain([&self.file]) {
            // Closing a file alone would leave the lock to a child process that was forked
            // meanwhile, until it executes its program. SAFETY: the descriptor is open; the call
            // touches no memory of ours.
            unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
        }
    }
}

impl FileSystem for RealFileSystem {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        let options = fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        Ok(Arc::new(RealFile(options)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(RealFile(fs::OpenOptions::new().read(true).write(true).open(path)?)))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(RealFile(fs::File::open(path)?)))
    }

    fn map(&self, path: &Path) -> io::Result<Buffer> {
        crate::durability::mapping::map(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().into_string().ok());
        let names: io::Result<Vec<Option<String>>> = fs::read_dir(folder)?.map(name).collect();
        // A name that is not UTF-8 is not ours.
        let mut names: Vec<String> = names?.into_iter().flatten().collect();
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o700).create(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
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

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Result<Arc<dyn FolderLock>, String>> {
        Ok(LockFile::take(path, holder)?.map(|lock| Arc::new(lock) as Arc<dyn FolderLock>))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_with_its_holder_although_a_child_process_has_a_copy_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("LOCK");
        let lock = LockFile::take(&path, "first").unwrap().unwrap();
        // As a fork copies it.
        let _copies = (lock.file.try_clone().unwrap(), lock.folder.as_ref().unwrap().try_clone().unwrap());
        assert_eq!(LockFile::take(&path, "second").unwrap().unwrap_err(), "first");
        drop(lock);
        LockFile::take(&path, "third").unwrap().unwrap();
    }

    #[test]
    fn a_lock_whose_file_is_removed_keeps_others_out_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("LOCK");
        let lock = LockFile::take(&path, "first").unwrap().unwrap();
        lock.check().unwrap();
        fs::remove_file(&path).unwrap();
        assert!(lock.check().unwrap_err().to_string().contains("was removed"));
        // Its file is a new one, which is free; the folder is not.
        assert_eq!(LockFile::take(&path, "second").unwrap().unwrap_err(), "");
        assert!(lock.check().unwrap_err().to_string().contains("was replaced"));
        drop(lock);
        LockFile::take(&path, "third").unwrap().unwrap().check().unwrap();
    }

    #[test]
    fn a_lock_says_that_its_folder_was_moved() {
        let outer = tempfile::tempdir().unwrap();
        let (first, second) = (outer.path().join("first"), outer.path().join("second"));
        fs::create_dir(&first).unwrap();
        let lock = LockFile::take(&first.join("LOCK"), "one").unwrap().unwrap();
        fs::rename(&first, &second).unwrap();
        assert!(lock.check().is_err());
        fs::create_dir(&first).unwrap();
        let other = LockFile::take(&first.join("LOCK"), "other").unwrap().unwrap();
        assert!(lock.check().is_err());
        other.check().unwrap();
        assert_eq!(LockFile::take(&second.join("LOCK"), "third").unwrap().unwrap_err(), "one");
    }
}
