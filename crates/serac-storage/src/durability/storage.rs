//! Everything of one database behind one handle: opening and recovery, background threads,
//! checkpoints, closing.
//!
//! # A database's folder
//! ```text
//! LOCK            held by the process that has the database open; its process id
//! MANIFEST        what the newest checkpoint consists of; and MANIFEST.copy
//! data/           the checkpoint's Arrow files
//! log/            log segments
//! salvaged-<n>/   what an opening that salvaged left out
//! ```
//! # A folder that is moved
//! The lock is one on a file, while everything else goes by the folder's path. So
//! [`FolderLock::check`] compares the lock's file with the one at the path, before a file in the
//! folder is replaced or removed and before a commit is acknowledged. If the folder or its LOCK was
//! moved or removed, all writing ends: nothing is acknowledged any more, and the files at the path
//! are left alone.
//! # Opening
//! take the lock → read the manifest → map its files (in parallel): their blocks are frozen →
//! replay newer committed transactions of the log, in commit order, to the same row ids → cut an
//! unfinished end → remove data files that the manifest does not name → continue the log behind its
//! end. Tables are complete before collectors and other threads get to see them.
//!
//! # Closing
//! [`Storage::close`] waits for a running checkpoint, so that the folder has no writer once the
//! lock is given back. It refuses commits from then on; earlier commits are written. A second
//! caller of `close` waits until the first has finished. The storage's own threads do not: the
//! first waits for them. The engine decides whether a last checkpoint is made before:
//! [`Storage::unwritten`] gives the log that an opening would replay and the cost of a checkpoint.

use crate::block::HotBlock;
use crate::block::block_memory::{block_memory_bytes, keep_ready};
use crate::durability::checkpoint::{
    CheckpointFolder, CheckpointReport, CheckpointTable, DATA_FOLDER, FoundFiles, MANIFEST, MANIFEST_COPY, Manifest,
    Mapped, NamedFiles, forget_unnamed_files, unneeded_files, unwritten_bytes, write_table,
};
use crate::durability::file_system::{FileSystem, FolderGuard, FolderLock, RealFileSystem, create_folders};
use crate::durability::redo::{RedoOperation, read_operations};
use crate::durability::salvage::Aside;
use crate::durability::wal::frame::SEGMENT_HEADER_BYTES;
use crate::durability::wal::{
    Durability, LogManager, LogOptions, LogPosition, LogRecovery, LogStart, recover, remove_segments_before,
};
use crate::error::{Result, StorageError};
use crate::freeze::background;
use crate::freeze::compact::selection::CompactionGroups;
use crate::freeze::compact::{CompactionPlan, CompactionReport, RowFollower, compact_cold_blocks};
use crate::freeze::frozen::FreezeFormat;
use crate::freeze::{freeze_cold_blocks, is_cold};
use crate::ids::{BlockNo, TableId, Timestamp};
use crate::table::data_table::{DataTable, TableMetrics};
use crate::types::TableSchema;
use crate::uptime::now_ms;
use crate::version::blocker::Waiting;
use crate::version::gc::{GcStats, Parking};
use crate::version::transaction::{Action, Snapshot, Transaction, TransactionManager};
use serac_sync::OnceLock;
use serac_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use serac_sync::thread::{JoinHandle, ThreadId};
use serac_sync::time::{Duration, Instant};
use serac_sync::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// A catalog of up to so many bytes stands in every data file.
const SMALL_CATALOG_BYTES: usize = 64 << 10;
/// The file that the process locks that has the database open.
const LOCK: &str = "LOCK";
/// The folder of the log's segments.
const LOG_FOLDER: &str = "log";

/// The options with which a storage is opened.
#[derive(Clone, Debug)]
pub struct StorageOptions {
    /// The database's folder; `None` for a database in memory only.
    pub path: Option<PathBuf>,
    /// The point at which a commit is acknowledged.
    pub durability: Durability,
    /// Files.
    pub file_system: Arc<dyn FileSystem>,
    /// The most collector threads; with zero, [`Storage::run_gc`] must be called. All but the first
    /// sleep until there is a backlog of transactions to collect or blocks to freeze.
    pub gc_threads: usize,
    /// Time between collector runs while there is work.
    pub gc_interval: Duration,
    /// Blocks that no transaction has changed for so long freeze; `None` to freeze only on demand
    /// ([`Storage::freeze_table`]).
    pub freeze_after: Option<Duration>,
    /// The blocks that are compacted together before they freeze.
    pub compaction: CompactionGroups,
    /// Threads that compact a table at the most. All but one are started when there are many
    /// groups, and end with them.
    pub compaction_threads: usize,
    /// Bytes of a log segment, unless one record is longer.
    pub log_segment_bytes: u64,
    /// Bytes that the file of a small log segment has; a longer one has a power of two times as
    /// many.
    pub log_allocation_bytes: u64,
    /// Bytes of a running transaction's changes from which on they go to the log before its commit.
    pub log_spill_bytes: usize,
    /// Bytes of log from which on the engine makes a checkpoint by itself.
    pub checkpoint_log_bytes: u64,
    /// Bytes at which a data file is complete.
    pub data_file_bytes: u64,
    /// Open even if durable data is damaged or missing: with the whole blocks of the checkpoint,
    /// all of which are read, and with the log before the damage. The parts that are left out are
    /// kept in a folder of their own.
    pub salvage: bool,
    /// Whether this process lets others work through it, by a socket in the folder. The storage
    /// only writes it into LOCK, so that others wait for the socket while the database is being
    /// opened or closed. The caller that sets it makes the socket.
    pub serves_others: bool,
}

/// The text behind the process's number in LOCK if that process
/// [serves others](StorageOptions::serves_others).
const SERVES: &str = " SOCKET";

impl StorageOptions {
    fn compaction_plan(&self) -> CompactionPlan {
        CompactionPlan { groups: self.compaction, threads: self.compaction_threads }
    }
}

impl Default for StorageOptions {
    fn default() -> Self {
        // One for every two cores: with as many collectors as cores, they and the transactions that
        // they clean up after take turns.
        let background_threads =
            serac_sync::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).clamp(1, 4));
        Self {
            path: None,
            durability: Durability::Full,
            file_system: Arc::new(RealFileSystem),
            gc_threads: background_threads,
            gc_interval: Duration::from_millis(10),
            // A block freezes and thaws at most once in this time, under any workload. Orders that
            // go cold for good run as fast at 10 ms as at 10 s (`serac-bench transform`). Updates
            // of any row of a table are seven times slower at 10 ms, where most of them thaw a
            // block, than from 100 ms on. Larger tables move that point up, so it is set high.
            freeze_after: Some(Duration::from_secs(10)),
            compaction: CompactionGroups::default(),
            compaction_threads: background_threads,
            log_segment_bytes: 64 << 20,
            log_allocation_bytes: 64 << 10,
            log_spill_bytes: 4 << 20,
            checkpoint_log_bytes: 512 << 20,
            data_file_bytes: 32 << 20,
            salvage: false,
            serves_others: false,
        }
    }
}

/// The engine's part in recovery: it knows the tables.
pub trait RecoveryCatalog {
    /// Takes the state that the checkpoint kept and makes its tables with
    /// [`Storage::create_table`].
    ///
    /// # Errors
    /// An error when the state cannot be understood.
    fn restore(&mut self, storage: &Storage, state: &str) -> Result<()>;
    /// Applies a logged record of the engine's, in commit order.
    ///
    /// # Errors
    /// An error when the record cannot be understood.
    fn apply_meta(&mut self, storage: &Storage, payload: &[u8]) -> Result<()>;
}

/// The findings of opening a database.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// The checkpoint's timestamp, if the database has one.
    pub checkpoint_ts: Option<u64>,
    /// Rows in it.
    pub rows_loaded: u64,
    /// Transactions replayed from the log.
    pub transactions_replayed: u64,
    /// The timestamp of the newest commit in the checkpoint and the log.
    pub newest_commit: u64,
    /// Bytes of log read.
    pub log_bytes: u64,
    /// Damaged parts of the checkpoint that were left out, to salvage the rest.
    pub lost: Vec<String>,
    /// The folder that keeps the parts that were left out.
    pub kept_aside: Option<PathBuf>,
    /// The description of an unfinished end that was cut off the log, if there was one.
    pub cut: Option<String>,
    /// Time spent on the checkpoint.
    pub load_time: Duration,
    /// Time spent on the log.
    pub replay_time: Duration,
}

/// Figures of a storage.
#[derive(Clone, Debug, Default)]
pub struct StorageMetrics {
    /// Transactions committed.
    pub commits: u64,
    /// Aborted transactions that had changes.
    pub aborts: u64,
    /// Snapshots held.
    pub active_snapshots: usize,
    /// Finished transactions, deferred actions and cooling blocks that wait for the collector.
    pub gc_backlog: usize,
    /// Undo records unlinked.
    pub gc_unlinked: u64,
    /// Bytes of undo segments in use.
    pub undo_bytes: usize,
    /// Bytes written to the log.
    pub log_bytes_written: u64,
    /// Syncs of the log.
    pub log_syncs: u64,
    /// Checkpoints written by this process.
    pub checkpoints: u64,
    /// Time spent on them.
    pub checkpoint_time: Duration,
    /// Bytes of blocks' memory in this process: hot blocks, version columns in huge pages, and the
    /// memory that frozen blocks have kept.
    pub block_memory_bytes: usize,
    /// Bytes held besides: halves and pieces of huge pages that are not used, and huge pages that
    /// are ready for growing tables.
    pub idle_block_memory_bytes: usize,
    /// Tables, with their figures.
    pub tables: Vec<(TableId, String, TableMetrics)>,
}

type Tables = BTreeMap<TableId, Arc<DataTable>>;

/// Set once: the follower of rows that compaction moves. Until then no row is moved.
#[derive(Default)]
struct Follower(OnceLock<Arc<dyn RowFollower>>);

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Follower")
    }
}

/// An open database's storage.
#[derive(Debug)]
pub struct Storage {
    options: StorageOptions,
    manager: Arc<TransactionManager>,
    tables: Arc<RwLock<Tables>>,
    follower: Arc<Follower>,
    parking: Arc<Parking>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    log_thread: Mutex<Option<JoinHandle<()>>>,
    /// One checkpoint at a time. The files that a manifest on the disk names.
    checkpoint_latch: Mutex<NamedFiles>,
    /// The snapshot's timestamp of the newest checkpoint.
    checkpoint_ts: AtomicU64,
    // Figures of checkpoints.
    checkpoints: AtomicU64,
    checkpoint_nanos: AtomicU64,
    lock: Mutex<Option<Arc<dyn FolderLock>>>,
    /// The log position of a checkpoint if this process writes no log.
    unlogged_position: LogPosition,
    closed: AtomicBool,
    /// Held by the closing thread.
    closing: Mutex<()>,
    /// The threads for which closing waits, and the one that closes.
    own_threads: Mutex<Vec<ThreadId>>,
}

/// The log that an opening would replay, and the bytes that a checkpoint would write instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unwritten {
    /// Bytes of log that an opening would read; zero if nothing was committed since the last
    /// checkpoint.
    pub log_bytes: u64,
    /// About how many bytes of blocks a checkpoint would write.
    pub block_bytes: u64,
}

/// The state of replaying logged transactions.
struct Replay<'a> {
    catalog: &'a mut dyn RecoveryCatalog,
    ts: Timestamp,
    /// Without a manifest: the changes that each block's file has already.
    found: &'a Option<FoundFiles>,
}

impl Replay<'_> {
    /// Whether an operation is not in the data files.
    fn is_newer(&self, operation: &RedoOperation<'_>) -> bool {
        let Some(found) = self.found else { return true };
        let (table, row) = match operation {
            RedoOperation::Meta(_) => return found.state.as_ref().is_none_or(|(state_ts, _)| self.ts.0 > *state_ts),
            RedoOperation::Insert { table, row, .. }
            | RedoOperation::Update { table, row, .. }
            | RedoOperation::Delete { table, row }
            | RedoOperation::Append { table, first: row, .. } => (*table, *row),
        };
        found.times.get(&(table, row.block())).is_none_or(|ts| self.ts > *ts)
    }
}

/// The parts that opening has made, for [`Storage::assemble`].
#[derive(Default)]
struct Opened {
    tables: Tables,
    log_thread: Option<JoinHandle<()>>,
    lock: Option<Arc<dyn FolderLock>>,
    named: NamedFiles,
    checkpoint_ts: u64,
    unlogged_position: LogPosition,
}

/// Gives the catalog's state in a snapshot, and its tables.
pub type StateOf<'a> = dyn Fn(&Snapshot) -> (String, Vec<TableId>) + 'a;

/// The data files of a snapshot that are written: the snapshot's transaction, the catalog's state,
/// and the tables.
type WrittenTables = (Transaction, String, Vec<CheckpointTable>, CheckpointReport);

/// Refuses a folder that has something, but for the empty folders of a backup that has failed.
fn check_free(target: &Path, files: &dyn FileSystem) -> Result<()> {
    let names = |folder: &Path| match files.exists(folder)? {
        true => files.list(folder),
        false => Ok(Vec::new()),
    };
    let check = || {
        if target.as_os_str().is_empty() {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "it has no name"));
        }
        let is_other = |name: &String| ![LOCK, DATA_FOLDER, LOG_FOLDER].contains(&name.as_str());
        let is_free = !names(target)?.iter().any(is_other)
            && names(&target.join(DATA_FOLDER))?.is_empty()
            && names(&target.join(LOG_FOLDER))?.is_empty();
        if is_free { Ok(()) } else { Err(std::io::Error::new(std::io::ErrorKind::AlreadyExists, "it is not empty")) }
    };
    check().map_err(|error| StorageError::io(format!("cannot write a backup into {}", target.display()), error))
}

/// Removes the files of a backup that has failed.
fn remove_backup(target: &Path, files: &dyn FileSystem) -> std::io::Result<()> {
    let data = target.join(DATA_FOLDER);
    for name in [MANIFEST, MANIFEST_COPY] {
        let file = target.join(name);
        if files.exists(&file)? {
            files.remove(&file)?;
        }
    }
    files.list(&data)?.into_iter().try_for_each(|name| files.remove(&data.join(name)))
}

/// Makes the database's folders where they are missing, and takes its lock.
fn take_folder(path: &Path, files: &dyn FileSystem, serves_others: bool) -> Result<Arc<dyn FolderLock>> {
    let cannot = |what: &str, path: &Path, e| StorageError::io(format!("cannot {what} {}", path.display()), e);
    create_folders(files, path).map_err(|e| cannot("make", path, e))?;
    let holder = format!("{}{}", std::process::id(), if serves_others { SERVES } else { "" });
    let lock = files.lock(&path.join(LOCK), &holder).map_err(|e| cannot("lock", path, e))?.map_err(|other| {
        let (number, serves_others) = other.strip_suffix(SERVES).map_or((&*other, false), |number| (number, true));
        StorageError::Locked { path: path.to_owned(), holder: number.trim().parse().ok(), serves_others }
    })?;
    let data = path.join(DATA_FOLDER);
    for folder in [&data, &path.join(LOG_FOLDER)] {
        if !files.exists(folder).map_err(|e| cannot("look for", folder, e))? {
            files.create_folder(folder).map_err(|e| cannot("make", folder, e))?;
        }
    }
    // A process that was killed may have left its last steps in the operating system's cache alone.
    // The state that recovery builds upon must be on the disk.
    for folder in [path, &data] {
        files.sync_dir(folder).map_err(|e| cannot("sync", folder, e))?;
    }
    Ok(lock)
}

/// The manifest of the database in `path`; a new database gets one. To salvage without a whole
/// manifest, also the data files of which it was made.
fn find_manifest(
    path: &Path,
    files: &dyn FileSystem,
    salvage: bool,
    aside: &mut Aside<'_>,
    report: &mut RecoveryReport,
) -> Result<(Manifest, Option<FoundFiles>)> {
    let place = path.join(MANIFEST);
    let problem = match Manifest::read(&place, files) {
        Ok(Some(manifest)) => {
            if !salvage {
                renew_copy(&manifest, path, files)?;
            }
            return Ok((manifest, None));
        }
        Err(error) => error,
        Ok(None) => {
            let is_empty = |folder: &str| {
                let folder = path.join(folder);
                let names = files.list(&folder);
                names
                    .map_err(|e| StorageError::io(format!("cannot read {}", folder.display()), e))
                    .map(|n| n.is_empty())
            };
            // A database without rows and log, whose manifest has its tables, has a copy with the
            // same content.
            let has_no_other = match Manifest::read(&path.join(MANIFEST_COPY), files) {
                Ok(copy) => copy.is_none_or(|copy| copy.state.is_none()),
                Err(StorageError::Corrupt { .. }) => false,
                Err(error) => return Err(error),
            };
            if has_no_other && is_empty(DATA_FOLDER)? && is_empty(LOG_FOLDER)? {
                let manifest = Manifest::of_new_database();
                manifest.write_new(path, files)?;
                Manifest::put_in_place(path, files)?;
                return Ok((manifest, None));
            }
            let detail = "the file is missing, although there are data files, log segments or a copy of it".into();
            StorageError::Corrupt { file: place.clone(), offset: 0, detail }
        }
    };
    if !salvage || matches!(problem, StorageError::OtherVersion { .. }) {
        return Err(problem);
    }
    aside.link(&place)?;
    let copy = path.join(MANIFEST_COPY);
    match Manifest::read(&copy, files) {
        Ok(Some(manifest)) => {
            report.lost.push(format!("{MANIFEST}, for which {MANIFEST_COPY} stood in: {problem}"));
            manifest.write_new(path, files)?;
            Manifest::put_in_place(path, files)?;
            Ok((manifest, None))
        }
        Err(error @ StorageError::OtherVersion { .. }) => Err(error),
        Ok(None) | Err(_) => {
            aside.link(&copy)?;
            let mut found = FoundFiles::find(path, files)?;
            report.lost.push(format!("{MANIFEST}, for which the data files themselves stood in: {problem}"));
            for (name, error) in std::mem::take(&mut found.lost) {
                report.lost.push(format!("a data file: {error}"));
                aside.link(&path.join(DATA_FOLDER).join(name))?;
            }
            Ok((Manifest::of_found_files(&found), Some(found)))
        }
    }
}

/// Makes the manifest's copy equal to the manifest again, if a process has ended between replacing
/// the two: opening is about to remove the files that the older one names. On a full disk the copy
/// goes.
fn renew_copy(manifest: &Manifest, path: &Path, files: &dyn FileSystem) -> Result<()> {
    let read = |name| files.read(&path.join(name)).ok();
    if read(MANIFEST) == read(MANIFEST_COPY) {
        return Ok(());
    }
    match manifest.write_new(path, files).and_then(|()| Manifest::put_in_place(path, files)) {
        Err(error) if error.is_disk_full() => {
            let copy = path.join(MANIFEST_COPY);
            if files.exists(&copy).map_err(|e| StorageError::io(format!("cannot look for {}", copy.display()), e))? {
                remove(files, &copy)?;
            }
            files.sync_dir(path).map_err(|e| StorageError::io(format!("cannot sync {}", path.display()), e))
        }
        result => result,
    }
}

impl Storage {
    /// Opens or makes a storage and recovers its content.
    ///
    /// # Errors
    /// [`StorageError::Locked`], [`StorageError::Corrupt`], [`StorageError::Io`] if a thread cannot
    /// be started, or an error of the files.
    pub fn open(options: StorageOptions, catalog: &mut dyn RecoveryCatalog) -> Result<(Arc<Self>, RecoveryReport)> {
        let mut report = RecoveryReport::default();
        let Some(path) = options.path.clone() else {
            let manager = TransactionManager::new(Timestamp::ZERO, None);
            return Ok((Self::assemble(options, manager, Opened::default())?, report));
        };
        let file_system = options.file_system.clone();
        let files = &*file_system;
        let lock = take_folder(&path, files, options.serves_others)?;

        // Tables are restored into a storage without a log; the real one takes them over.
        let staging = Self::assemble(
            StorageOptions { gc_threads: 0, ..options.clone() },
            TransactionManager::new(Timestamp::ZERO, None),
            Opened::default(),
        )?;
        let started = Instant::now();
        let mut aside = Aside::new(&path, files);
        let (mut manifest, found) = find_manifest(&path, files, options.salvage, &mut aside, &mut report)?;
        let mut newest = Timestamp(manifest.checkpoint_ts);
        if let Some(state) = &manifest.state {
            report.checkpoint_ts = Some(manifest.checkpoint_ts);
            catalog.restore(&staging, state)?;
        }
        let mapped = staging.map_checkpoint(&path, &manifest)?;
        report.rows_loaded = mapped.rows;
        report.lost.extend(mapped.lost);
        for name in mapped.damaged {
            aside.link(&path.join(DATA_FOLDER).join(name))?;
        }
        report.load_time = started.elapsed();
        let started = Instant::now();
        let log_folder = path.join(LOG_FOLDER);
        let start = if found.is_some() { LogStart::Anywhere } else { LogStart::At(manifest.log) };
        let recovery = LogRecovery { directory: &log_folder, files, start, checkpoint_ts: newest };
        let salvage = options.salvage.then_some(&mut aside);
        let lost_before_log = report.lost.len();
        let lost = &mut report.lost;
        let recovered = recover(&recovery, salvage, &mut |ts, redo| {
            staging.replay(&mut Replay { catalog: &mut *catalog, ts, found: &found }, redo, lost)
        })?;
        report.lost.extend(recovered.lost);
        if report.lost.len() > lost_before_log {
            // Not all of its changes are in tables: the next checkpoint takes the log away.
            recovered.tail.keep(&log_folder, &mut aside)?;
        }
        report.log_bytes = recovered.bytes;
        report.transactions_replayed = recovered.transactions;
        report.cut = recovered.cut;
        newest = recovered.newest;
        report.newest_commit = newest.0;
        if recovered.is_damaged && found.is_none() {
            // The manifest names records that are gone, and would ask for them again.
            aside.link(&path.join(MANIFEST))?;
            aside.link(&path.join(MANIFEST_COPY))?;
            manifest.log = recovered.tail.position();
            manifest.write_new(&path, files)?;
            Manifest::put_in_place(&path, files)?;
        }
        report.replay_time = started.elapsed();
        let named: NamedFiles = manifest.files().map(str::to_owned).collect();
        for file in unneeded_files(&path, files, &named, &[])? {
            // Files of a checkpoint that was not finished.
            if options.salvage {
                aside.take(&file)?;
            } else {
                remove(files, &file)?;
            }
        }
        if aside.folder().is_some() {
            // The manifest describes the rest of the folder.
            aside.link(&path.join(MANIFEST))?;
        }
        report.kept_aside = aside.folder().map(Path::to_owned);

        let unlogged_position = recovered.tail.position_behind();
        let (log, log_thread) = if options.durability == Durability::Off {
            (None, None)
        } else {
            let segment_bytes = options.log_segment_bytes.max(SEGMENT_HEADER_BYTES as u64 + 1024);
            let log_options = LogOptions {
                directory: log_folder,
                segment_bytes,
                allocation_bytes: options.log_allocation_bytes.clamp(512, segment_bytes),
                spill_bytes: options.log_spill_bytes,
                durability: options.durability,
                file_system: options.file_system.clone(),
                guard: FolderGuard::new(&lock),
            };
            let (log, thread) = LogManager::start(log_options, newest, recovered.tail)?;
            (Some(log), Some(thread))
        };
        let tables = std::mem::take(&mut *staging.tables.write());
        // Before a collector or the compactor can meet one of their blocks.
        tables.values().for_each(|table| table.recover_finish());
        let checkpoint_ts = manifest.checkpoint_ts;
        let opened = Opened { tables, log_thread, lock: Some(lock), named, checkpoint_ts, unlogged_position };
        Ok((Self::assemble(options, TransactionManager::new(newest, log), opened)?, report))
    }

    /// Puts the storage together and starts its threads. If one cannot be started, the storage is
    /// closed again.
    fn assemble(options: StorageOptions, manager: Arc<TransactionManager>, opened: Opened) -> Result<Arc<Self>> {
        let own_threads: Vec<_> = opened.log_thread.iter().map(|thread| thread.thread().id()).collect();
        let storage = Self {
            parking: manager.gc().parking().clone(),
            options,
            manager,
            tables: Arc::new(RwLock::new(opened.tables)),
            follower: Arc::default(),
            threads: Mutex::default(),
            log_thread: Mutex::new(opened.log_thread),
            checkpoint_latch: Mutex::new(opened.named),
            checkpoint_ts: AtomicU64::new(opened.checkpoint_ts),
            checkpoints: AtomicU64::new(0),
            checkpoint_nanos: AtomicU64::new(0),
            lock: Mutex::new(opened.lock),
            unlogged_position: opened.unlogged_position,
            closed: AtomicBool::new(false),
            closing: Mutex::default(),
            own_threads: Mutex::new(own_threads),
        };
        storage.start_threads()?;
        Ok(Arc::new(storage))
    }

    fn start_threads(&self) -> Result<()> {
        let own = |thread: JoinHandle<()>| {
            self.own_threads.lock().push(thread.thread().id());
            self.threads.lock().push(thread);
        };
        let options = &self.options;
        for i in 0..options.gc_threads {
            let collector = Collector {
                number: i + 1,
                parking: self.parking.clone(),
                manager: Arc::downgrade(&self.manager),
                interval: options.gc_interval,
                // One of them freezes too.
                freezing: options.freeze_after.filter(|_| i == 0).map(|after| (after, self.tables.clone())),
            };
            own(background::spawn(format!("serac-gc-{i}"), "a collector", move || collector.run())?);
        }
        if let Some(freeze_after) = options.freeze_after
            && options.gc_threads > 0
            && options.compaction != CompactionGroups::Off
        {
            let compactor = Compactor {
                parking: self.parking.clone(),
                manager: Arc::downgrade(&self.manager),
                tables: self.tables.clone(),
                follower: self.follower.clone(),
                plan: options.compaction_plan(),
                freeze_after,
            };
            own(background::spawn("serac-compaction".into(), "the compactor", move || compactor.run())?);
        }
        Ok(())
    }

    fn checkpoint_folder<'a>(&'a self, path: &'a Path) -> CheckpointFolder<'a> {
        let (files, file_bytes) = (&*self.options.file_system, self.options.data_file_bytes);
        CheckpointFolder { path, files, file_bytes, is_backup: false, stop: &|| false }
    }

    fn map_checkpoint(&self, path: &Path, manifest: &Manifest) -> Result<Mapped> {
        let folder = self.checkpoint_folder(path);
        let mut mapped = Mapped::default();
        let mut jobs = Vec::new();
        for entry in &manifest.tables {
            match self.table(entry.id) {
                Some(table) => jobs.extend(entry.files.iter().map(|file| (table.clone(), file))),
                None => {
                    let detail = format!("it has data of table {}, which its catalog does not know", entry.id.0);
                    if !self.options.salvage {
                        return Err(StorageError::Corrupt { file: path.join(MANIFEST), offset: 0, detail });
                    }
                    mapped.lost.push(detail);
                    mapped.damaged.extend(entry.files.iter().map(|file| file.seal.name.clone()));
                }
            }
        }
        let next = serac_sync::atomic::AtomicUsize::new(0);
        let workers = serac_sync::thread::available_parallelism().map_or(1, usize::from).min(jobs.len().max(1));
        serac_sync::thread::scope(|scope| {
            let work = || -> Result<Mapped> {
                let mut mapped = Mapped::default();
                while let Some((table, file)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    mapped.add(folder, table, file, self.options.salvage)?;
                }
                Ok(mapped)
            };
            // This thread is one of them: a small database needs no other.
            let helper = |_| serac_sync::thread::spawn_helper(scope, work);
            let helpers: Vec<_> = (1..workers).filter_map(helper).collect();
            let own = work();
            let others = helpers.into_iter().map(|helper| helper.join().expect("mapping does not panic"));
            std::iter::once(own).chain(others).try_fold(mapped, |mut all, part| {
                let part = part?;
                all.rows += part.rows;
                all.lost.extend(part.lost);
                all.damaged.extend(part.damaged);
                Ok(all)
            })
        })
    }

    /// Replays a transaction. A failure is an error, or, to salvage without a manifest, noted in
    /// `lost`.
    fn replay(&self, replay: &mut Replay<'_>, redo: &[u8], lost: &mut Vec<String>) -> Result<()> {
        for operation in read_operations(redo)? {
            if !replay.is_newer(&operation) {
                continue;
            }
            match self.replay_operation(replay.catalog, operation) {
                Err(error) if replay.found.is_some() => lost.push(format!("a change in the log: {error}")),
                result => result?,
            }
        }
        Ok(())
    }

    fn replay_operation(&self, catalog: &mut dyn RecoveryCatalog, operation: RedoOperation<'_>) -> Result<()> {
        // A table that the catalog no longer has was dropped later on; its rows are not needed.
        match operation {
            RedoOperation::Meta(payload) => catalog.apply_meta(self, payload),
            RedoOperation::Insert { table, row, values } => {
                self.table(table).map_or(Ok(()), |table| table.recover_insert(row, &values))
            }
            RedoOperation::Update { table, row, columns, values } => {
                self.table(table).map_or(Ok(()), |table| table.recover_update(row, &columns, &values))
            }
            RedoOperation::Delete { table, row } => self.table(table).map_or(Ok(()), |table| table.recover_delete(row)),
            RedoOperation::Append { table, first, ipc } => {
                let Some(table) = self.table(table) else { return Ok(()) };
                let mut at = first;
                for batch in arrow_ipc::reader::StreamReader::try_new(ipc, None)? {
                    let batch = batch?;
                    table.recover_append(at, &batch)?;
                    at = crate::ids::RowId::from_u64(at.as_u64() + batch.num_rows() as u64);
                }
                Ok(())
            }
        }
    }

    /// Begins a transaction.
    pub fn begin(&self) -> Transaction {
        self.manager.begin()
    }

    /// Timestamps and the collector.
    pub fn manager(&self) -> &Arc<TransactionManager> {
        &self.manager
    }

    /// The options with which the storage was opened.
    pub fn options(&self) -> &StorageOptions {
        &self.options
    }

    /// Makes an empty table. Not transactional: the table is not visible until the catalog names
    /// it.
    ///
    /// # Errors
    /// [`StorageError::Limit`]; [`StorageError::InvalidInput`] when the number is taken.
    pub fn create_table(&self, id: TableId, name: &str, schema: TableSchema) -> Result<Arc<DataTable>> {
        let table = DataTable::new(id, name, schema)?;
        let mut tables = self.tables.write();
        if tables.contains_key(&id) {
            return Err(StorageError::InvalidInput(format!("table number {} is taken", id.0)));
        }
        tables.insert(id, table.clone());
        Ok(table)
    }

    /// Forgets a table. Its memory is freed when the last snapshot and the last reader are done
    /// with it.
    pub fn drop_table(&self, id: TableId) {
        self.tables.write().remove(&id);
    }

    /// A table by number.
    pub fn table(&self, id: TableId) -> Option<Arc<DataTable>> {
        self.tables.read().get(&id).cloned()
    }

    /// Writes a checkpoint of a new snapshot; `state` gives the catalog's state in that snapshot
    /// and its tables. Then drops the log that is no longer needed.
    ///
    /// # Errors
    /// When files cannot be written, or the storage is closed; the database goes on with the old
    /// checkpoint and the log.
    pub fn checkpoint(&self, state: &StateOf<'_>) -> Result<CheckpointReport> {
        let Some(path) = &self.options.path else { return Ok(CheckpointReport::default()) };
        let mut named = self.checkpoint_latch.lock();
        // SeqCst: as in `close`, which takes the latch after setting it.
        if self.closed.load(Ordering::SeqCst) {
            return Err(StorageError::Closed);
        }
        self.check_folder()?;
        let began = Instant::now();
        // This checkpoint may need the room of files that a failed attempt could not remove, or
        // that have become unneeded since.
        self.remove_unneeded(path, &named)?;
        let (report, position) = self.write_checkpoint(path, state, &mut named).inspect_err(|_| {
            forget_unnamed_files(&self.all_tables(), &named);
            // The first error counts.
            let _ = self.remove_unneeded(path, &named);
        })?;
        // Relaxed: a figure.
        self.checkpoint_ts.store(report.checkpoint_ts, Ordering::Relaxed);
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        let removed = self.remove_unneeded(path, &named);
        self.check_folder()?;
        match self.manager.log() {
            Some(log) => log.truncate_before(position)?,
            None => remove_segments_before(&path.join(LOG_FOLDER), position.segment, &*self.options.file_system)?,
        }
        removed?;
        self.checkpoint_nanos.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Ok(report)
    }

    /// Writes the data files and the manifest. `named` tracks the files that the manifests on the
    /// disk may name.
    fn write_checkpoint(
        &self,
        path: &Path,
        state: &StateOf<'_>,
        named: &mut NamedFiles,
    ) -> Result<(CheckpointReport, LogPosition)> {
        if let Some(log) = self.manager.log() {
            log.begin_checkpoint();
        }
        let folder = self.checkpoint_folder(path);
        let (txn, state, tables, report) = self.write_tables(folder, state)?;
        let position = match self.manager.log() {
            Some(log) => log.position_for(txn.snapshot().start())?,
            None => self.unlogged_position,
        };
        let manifest = Manifest::new(txn.snapshot().start(), position, state, tables);
        self.check_folder()?;
        manifest.write_new(path, folder.files)?;
        let new: NamedFiles = manifest.files().map(str::to_owned).collect();
        named.extend(new.iter().cloned());
        serac_sync::linger();
        self.check_folder()?;
        Manifest::put_in_place(path, folder.files)?;
        *named = new;
        Ok((report, position))
    }

    /// Writes the data files of a new snapshot, for a manifest with these tables and this state.
    fn write_tables(&self, folder: CheckpointFolder<'_>, state: &StateOf<'_>) -> Result<WrittenTables> {
        let txn = self.begin();
        let (state, ids) = state(txn.snapshot());
        serac_sync::linger();
        let catalog: Arc<str> = state.as_str().into();
        if let Some(log) = self.manager.log() {
            // The content of a checkpoint must be durable as a whole, log first.
            log.wait_durable(txn.snapshot().start())?;
        }
        let mut report = CheckpointReport { checkpoint_ts: txn.snapshot().start().0, ..Default::default() };
        let mut tables = Vec::new();
        for id in ids {
            let Some(table) = self.table(id) else { continue };
            // A long catalog is written to the files of one table alone.
            let catalog = (catalog.len() <= SMALL_CATALOG_BYTES || report.blocks_written == 0).then_some(&catalog);
            tables.push(write_table(folder, &table, catalog, txn.snapshot(), &mut report)?);
        }
        let data = folder.path.join(DATA_FOLDER);
        folder.files.sync_dir(&data).map_err(|e| StorageError::io(format!("cannot sync {}", data.display()), e))?;
        Ok((txn, state, tables, report))
    }

    /// Writes a copy of the database, as it is in a new snapshot, into the folder `target`, which
    /// must not exist, or be empty. It can be opened as any database. Transactions go on
    /// meanwhile, and checkpoints wait. `state` is as for [`checkpoint`](Self::checkpoint). When
    /// `stop` returns true, the backup ends with an error.
    ///
    /// # Errors
    /// When the folder is not empty, or files cannot be written, or the storage is closed. What was
    /// written is removed then, but for the folder.
    pub fn backup(
        &self,
        target: &Path,
        state: &StateOf<'_>,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<CheckpointReport> {
        let _no_checkpoint = self.checkpoint_latch.lock();
        // SeqCst: as for a checkpoint.
        if self.closed.load(Ordering::SeqCst) {
            return Err(StorageError::Closed);
        }
        let files = &*self.options.file_system;
        check_free(target, files)?;
        let lock = take_folder(target, files, false)?;
        // Another backup may have been faster.
        check_free(target, files)?;
        let written =
            self.write_backup(CheckpointFolder { is_backup: true, stop, ..self.checkpoint_folder(target) }, state);
        if written.is_err() {
            // The first error counts.
            let _ = remove_backup(target, files);
        }
        drop(lock);
        written
    }

    fn write_backup(&self, folder: CheckpointFolder<'_>, state: &StateOf<'_>) -> Result<CheckpointReport> {
        let (txn, state, tables, report) = self.write_tables(folder, state)?;
        // The log of the copy begins behind the checkpoint.
        let manifest = Manifest::new(txn.snapshot().start(), LogPosition::BEGINNING, state, tables);
        manifest.write_new(folder.path, folder.files)?;
        Manifest::put_in_place(folder.path, folder.files)?;
        Ok(report)
    }

    fn all_tables(&self) -> Vec<Arc<DataTable>> {
        self.tables.read().values().cloned().collect()
    }

    /// Whether the folder is still this process's own: all that is written or removed goes by its
    /// path.
    fn check_folder(&self) -> Result<()> {
        let lock = self.lock.lock().clone();
        lock.map_or(Ok(()), |lock| lock.check()).map_err(|error| StorageError::LogFailed(error.to_string()))
    }

    fn remove_unneeded(&self, path: &Path, named: &NamedFiles) -> Result<()> {
        self.check_folder()?;
        let files = &*self.options.file_system;
        unneeded_files(path, files, named, &self.all_tables())?.iter().try_for_each(|file| remove(files, file))
    }

    /// The changes that are not in a checkpoint yet.
    pub fn unwritten(&self) -> Unwritten {
        let Some(log) = self.manager.log().filter(|_| self.options.path.is_some()) else {
            return Unwritten::default();
        };
        if log.newest_commit().0 <= self.checkpoint_ts.load(Ordering::Relaxed) {
            return Unwritten::default();
        }
        let block_bytes = self.all_tables().iter().map(|table| unwritten_bytes(table)).sum();
        Unwritten { log_bytes: log.live_bytes(), block_bytes }
    }

    /// See [`TransactionManager::defer`].
    pub fn defer(&self, action: Action) {
        self.manager.defer(action);
    }

    /// Makes a collector run at once.
    pub fn run_gc(&self) -> GcStats {
        self.manager.gc().run_once(&self.manager)
    }

    /// Moves everything in the heaps of `table`'s hot blocks together, however little garbage there
    /// is.
    pub fn vacuum_table(&self, table: &DataTable) {
        for no in (0..table.block_count()).map(BlockNo) {
            if let Some(block) = table.block(no) {
                self.manager.gc().vacuum(&block, no, true);
            }
        }
    }

    /// Sets the follower of the rows that compaction moves; until then, and without compaction in
    /// the options, no row is moved. Called once, when all holders of row ids are in place.
    pub fn set_follower(&self, follower: Arc<dyn RowFollower>) {
        let _ = self.follower.0.set(follower);
    }

    /// Compacts the blocks of `table` that no transaction is changing, however cold they are. Call
    /// it outside a transaction. Emptied blocks are recycled when they would freeze.
    ///
    /// # Errors
    /// An error when the log does not take the moves: they are rolled back.
    pub fn compact_table(&self, table: &Arc<DataTable>) -> Result<CompactionReport> {
        let Some(follower) = self.follower.0.get() else { return Ok(CompactionReport::default()) };
        compact_cold_blocks(&self.manager, table, &**follower, self.options.compaction_plan(), &|_| true, &|| false)
    }

    /// Compacts and freezes every block of `table` that can be: waits for up to `patience` until
    /// the transactions that run now have ended. Blocks that were frozen for another format than
    /// the table has now are brought into that. Call it outside a transaction. Returns the numbers
    /// of frozen blocks and of all blocks. A table whose format is [`FreezeFormat::Never`] is not
    /// changed.
    pub fn freeze_table(&self, table: &Arc<DataTable>, patience: Duration) -> (u32, u32) {
        if table.freeze_format() == FreezeFormat::Never {
            let metrics = table.metrics();
            return (metrics.frozen_blocks, metrics.blocks);
        }
        let (started, mut compacts) = (Instant::now(), true);
        table.refreeze();
        table.close_insertion_heads();
        loop {
            // Again and again: versions of transactions that have just ended may still be there.
            self.run_gc();
            // A table that cannot be compacted freezes as it is.
            compacts = compacts && self.compact_table(table).is_ok_and(|report| report.moved > 0 || report.stayed == 0);
            freeze_cold_blocks(&self.manager, table, |_| true);
            self.run_gc();
            let metrics = table.metrics();
            if metrics.frozen_blocks == metrics.blocks || started.elapsed() >= patience {
                return (metrics.frozen_blocks, metrics.blocks);
            }
            serac_sync::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The transactions that wait for others, longest first.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.manager.waits().waiting()
    }

    /// Figures.
    pub fn metrics(&self) -> StorageMetrics {
        let (commits, aborts) = self.manager.counts();
        let log = self.manager.log().map(|log| log.figures()).unwrap_or_default();
        let (block_memory_bytes, idle_block_memory_bytes) = block_memory_bytes();
        StorageMetrics {
            commits,
            aborts,
            active_snapshots: self.manager.active_count(),
            gc_backlog: self.manager.gc().backlog(),
            gc_unlinked: self.manager.gc().unlinked_total(),
            undo_bytes: self.manager.undo_pool().outstanding_bytes(),
            log_bytes_written: log.bytes,
            log_syncs: log.syncs,
            checkpoints: self.checkpoints.load(Ordering::Relaxed),
            checkpoint_time: Duration::from_nanos(self.checkpoint_nanos.load(Ordering::Relaxed)),
            block_memory_bytes,
            idle_block_memory_bytes,
            tables: self.tables.read().values().map(|t| (t.id(), t.name().to_owned(), t.metrics())).collect(),
        }
    }

    /// Whether [`close`](Self::close) has been called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Writes the log's queue, stops the threads and gives the folder back. Other calls do nothing:
    /// they wait for the first one's end.
    ///
    /// # Errors
    /// An error when the log cannot be written.
    pub fn close(&self) -> Result<()> {
        let me = serac_sync::thread::current().id();
        let is_own = self.own_threads.lock().contains(&me);
        let closing = if is_own { self.closing.try_lock() } else { Some(self.closing.lock()) };
        // One of our own threads: the closing thread waits for it.
        let Some(_one_at_a_time) = closing else { return Ok(()) };
        if self.closed.swap(true, Ordering::SeqCst) {
            return self.manager.log().map_or(Ok(()), |log| log.end());
        }
        // Deferred actions run here, and may drop handles of the database.
        self.own_threads.lock().push(me);
        // A running checkpoint needs the log. Later ones find the storage closed, so from now on
        // the data folder has no writer.
        drop(self.checkpoint_latch.lock());
        self.manager.refuse_commits();
        self.parking.stop();
        for thread in self.threads.lock().drain(..) {
            // The collector's thread may itself hold the last reference.
            if thread.thread().id() != me {
                let _ = thread.join();
            }
        }
        let mut result = Ok(());
        if let Some(log) = self.manager.log() {
            log.close();
            if let Some(thread) = self.log_thread.lock().take() {
                let _ = thread.join();
            }
            result = log.end();
        }
        // Memory that has become unneeded since the collectors stopped is free two epochs later.
        for _ in 0..3 {
            self.run_gc();
        }
        self.lock.lock().take();
        result
    }
}

fn remove(files: &dyn FileSystem, file: &Path) -> Result<()> {
    files.remove(file).map_err(|e| StorageError::io(format!("cannot remove {}", file.display()), e))
}

impl Drop for Storage {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

/// Transactions retired in one run of the collector from which on the next one follows soon.
const BUSY: usize = 512;

/// A collector thread.
struct Collector {
    /// Counted from one; all but the first only help.
    number: usize,
    parking: Arc<Parking>,
    manager: Weak<TransactionManager>,
    interval: Duration,
    /// The idle time after which a block freezes, and the tables whose blocks freeze.
    freezing: Option<(Duration, Arc<RwLock<Tables>>)>,
}

impl Collector {
    fn run(&self) {
        if self.number == 1 {
            self.lead();
        } else {
            self.help();
        }
    }

    /// Sleeps for as long as there is too little work.
    fn help(&self) {
        while self.parking.park(&self.parking.work, Duration::from_secs(1)) {
            let Some(manager) = self.manager.upgrade() else { return };
            while manager.gc().has_work_for(self.number, &manager) && !self.parking.is_stopped() {
                manager.gc().run_once(&manager);
            }
        }
    }

    fn lead(&self) {
        let mut idle_runs = 0u32;
        let mut busy = false;
        let mut looked = Instant::now();
        loop {
            // With nothing to do, look less and less often, down to once a second. With much to do,
            // come back before the newly written memory leaves the caches.
            let pause = if busy { self.interval / 10 } else { self.interval * 2u32.pow(idle_runs.min(7)) };
            if !self.parking.park(&self.parking.work, pause.min(Duration::from_secs(1))) {
                return;
            }
            let Some(manager) = self.manager.upgrade() else { return };
            if let Some((after, tables)) = &self.freezing
                && looked.elapsed() >= *after / 4
            {
                looked = Instant::now();
                freeze_cold_tables(&manager, &tables.read(), *after);
            }
            keep_ready();
            if manager.gc().backlog() == 0 {
                idle_runs = idle_runs.saturating_add(1);
                busy = false;
                continue;
            }
            idle_runs = 0;
            manager.gc().call_for_help(&manager);
            busy = manager.gc().run_once(&manager).retired >= BUSY;
        }
    }
}

/// The thread that compacts cold blocks, before they freeze.
struct Compactor {
    parking: Arc<Parking>,
    manager: Weak<TransactionManager>,
    tables: Arc<RwLock<Tables>>,
    follower: Arc<Follower>,
    plan: CompactionPlan,
    freeze_after: Duration,
}

impl Compactor {
    fn run(&self) {
        let pause = (self.freeze_after / 4).max(Duration::from_millis(1));
        while self.parking.park(&self.parking.end, pause) {
            let Some(manager) = self.manager.upgrade() else { return };
            let Some(follower) = self.follower.0.get() else { continue };
            let tables: Vec<_> = self.tables.read().values().cloned().collect();
            for table in tables {
                // Half the time that it takes to freeze, so that moves come first.
                let (now, after) = (now_ms(), self.freeze_after.as_millis() as u64 / 2);
                let is_cold = |block: &HotBlock| is_cold(block, now, after);
                let stop = || self.parking.is_stopped();
                // A full log is reported to committing transactions; compaction is tried again next
                // time.
                let _ = compact_cold_blocks(&manager, &table, &**follower, self.plan, &is_cold, &stop);
            }
        }
    }
}

fn freeze_cold_tables(manager: &TransactionManager, tables: &Tables, after: Duration) {
    let (now, after) = (now_ms(), after.as_millis() as u64);
    for table in tables.values() {
        freeze_cold_blocks(manager, table, |block| is_cold(block, now, after));
    }
}
