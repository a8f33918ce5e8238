//! Files in memory, for a database that an input damages.

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::compute::concat_batches;
use serac_engine::{Database, Table};
use serac_sql::{Session, SqlDatabase, SqlOptions};
use serac_storage::StorageOptions;
use serac_storage::durability::file_system::{FileSystem, FolderLock, StorageFile};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A folder's files, in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryFiles(Arc<Mutex<BTreeMap<PathBuf, Entry>>>);

/// A file; `None` is a folder.
type Entry = Option<Arc<MemoryFile>>;

#[derive(Debug, Default)]
struct MemoryFile(Mutex<Vec<u8>>);

/// The lock of a folder in memory: no other process can open it.
#[derive(Debug)]
struct NoLock;

impl FolderLock for NoLock {
    fn check(&self) -> io::Result<()> {
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The longest file that an input may ask for.
const MOST_BYTES: u64 = 64 << 20;

impl StorageFile for MemoryFile {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.allocate(offset.saturating_add(bytes.len() as u64))?;
        let mut content = lock(&self.0);
        content[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = lock(&self.0);
        let rest = usize::try_from(offset).ok().and_then(|offset| content.get(offset..)).unwrap_or_default();
        let count = rest.len().min(bytes.len());
        bytes[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(lock(&self.0).len() as u64)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        assert!(len <= MOST_BYTES, "a file of {len} bytes");
        let mut content = lock(&self.0);
        let length = content.len().max(len as usize);
        content.resize(length, 0);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        assert!(len <= MOST_BYTES, "a file of {len} bytes");
        lock(&self.0).resize(len as usize, 0);
        Ok(())
    }
}

impl MemoryFiles {
    /// Another folder with copies of the files: changes there do not show here.
    pub(crate) fn copy(&self) -> Self {
        let copy = |entry: &Entry| entry.as_ref().map(|file| Arc::new(MemoryFile(Mutex::new(lock(&file.0).clone()))));
        Self(Arc::new(Mutex::new(lock(&self.0).iter().map(|(path, entry)| (path.clone(), copy(entry))).collect())))
    }

    /// Puts a file in place.
    pub(crate) fn put(&self, path: &Path, bytes: Vec<u8>) {
        lock(&self.0).insert(path.to_owned(), Some(Arc::new(MemoryFile(Mutex::new(bytes)))));
    }

    /// Takes a file away.
    pub(crate) fn forget(&self, path: &Path) {
        lock(&self.0).remove(path);
    }

    /// The files in a folder, with their bytes, in the order of names.
    pub(crate) fn files_in(&self, folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = lock(&self.0);
        let files = entries.iter().filter(|(path, _)| path.parent() == Some(folder));
        files.filter_map(|(path, entry)| Some((path.clone(), lock(&entry.as_ref()?.0).clone()))).collect()
    }

    /// The options of a database on these files: no background threads.
    pub(crate) fn options(&self) -> StorageOptions {
        StorageOptions {
            path: Some(PathBuf::from(FOLDER)),
            file_system: Arc::new(self.clone()),
            gc_threads: 0,
            gc_interval: Duration::from_secs(3_600),
            freeze_after: None,
            ..StorageOptions::default()
        }
    }

    fn entry(&self, path: &Path) -> io::Result<Arc<MemoryFile>> {
        lock(&self.0).get(path).cloned().flatten().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// The folder of the database.
pub(crate) const FOLDER: &str = "/database";

impl FileSystem for MemoryFiles {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        let file = Arc::<MemoryFile>::default();
        lock(&self.0).insert(path.to_owned(), Some(file.clone()));
        Ok(file)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.entry(path)?)
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.entry(path)?)
    }

    fn map(&self, path: &Path) -> io::Result<Buffer> {
        let file = self.entry(path)?;
        let content = lock(&file.0);
        if content.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // Aligned, as a mapping is.
        let mut bytes = MutableBuffer::new(content.len());
        bytes.extend_from_slice(&content[..]);
        Ok(bytes.into())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let entries = lock(&self.0);
        if !entries.contains_key(folder) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let names = entries.keys().filter(|path| path.parent() == Some(folder));
        Ok(names.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(path == Path::new("/") || lock(&self.0).contains_key(path))
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        match lock(&self.0).insert(path.to_owned(), None) {
            Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
            None => Ok(()),
        }
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.entry(from)?;
        lock(&self.0).insert(to.to_owned(), Some(file));
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut entries = lock(&self.0);
        let entry = entries.remove(from).ok_or(io::ErrorKind::NotFound)?;
        entries.insert(to.to_owned(), entry);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        lock(&self.0).remove(path).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, _: &Path, _: &str) -> io::Result<Result<Arc<dyn FolderLock>, String>> {
        Ok(Ok(Arc::new(NoLock)))
    }
}

/// Opens a database on these files. An error must have an SQLSTATE.
pub(crate) fn open(options: StorageOptions) -> Option<Database> {
    let opened = Database::open_with(options);
    opened.inspect_err(|error| crate::check_sqlstate(error.sqlstate(), error)).ok()
}

/// Rows of all tables by the tables' names, or the error of the table that has damaged ones.
pub(crate) fn rows(database: &Database) -> Vec<(String, Result<RecordBatch, String>)> {
    let transaction = database.begin();
    let of_table = |table: &Arc<Table>| {
        let columns: Vec<usize> = (0..table.definition.columns.len()).collect();
        let mut scan = transaction.scan_arrow(table, &columns, &[]).expect("these are its columns");
        let schema = scan.schema();
        let blocks = std::iter::from_fn(|| scan.next_block()).filter_map(Result::transpose);
        let rows = blocks.collect::<Result<Vec<RecordBatch>, _>>().and_then(|all| concat_batches(&schema, &all));
        (table.name().to_owned(), rows.map_err(|error| error.to_string()))
    };
    transaction.catalog().tables().map(of_table).collect()
}

/// The files of a database that has run these statements and `then`, copied while it is open.
pub(crate) fn after(script: &str, then: impl FnOnce(&Database)) -> MemoryFiles {
    let files = MemoryFiles::default();
    let database = Database::open_with(files.options()).expect("a new database opens");
    let options = SqlOptions { threads: Some(1), ..SqlOptions::default() };
    let sql = SqlDatabase::new(database, &options).expect("SQL runs on it");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let mut session = Session::new(&sql);
    runtime.block_on(session.execute(script)).unwrap_or_else(|error| panic!("{error}"));
    then(sql.database());
    files.copy()
}
