//! Checkpoints: a snapshot of all tables, as ordinary Arrow files, and the manifest that names them
//! (§3.4).
//!
//! ```text
//! MANIFEST                                    one line of CRC, then JSON; replaced atomically by rename
//! MANIFEST.copy                               the same once more, for the day on which the first one is damaged
//! data/<checkpoint>-<table>-<n>.arrow         data files (see `data_file`): a record batch per block
//! data/<checkpoint>-<table>-<n>-gaps.arrow    of blocks with empty slots, with a last column that tells them
//! ```
//! A checkpoint is written by a transaction of its own, beside all others. It counts only once the
//! manifest names it. Files that no manifest names are left over from a crash; the next open or
//! checkpoint removes them. Removing a file does not disturb a process that has mapped it.
//!
//! **There is always a manifest.** A new database gets an empty one, before its log. So if the
//! manifest is absent or unreadable, it was lost, and the database does not open by itself. Both
//! copies are written and synced before either takes its name. The previous checkpoint's files and
//! log are removed only once both names are durable. At any moment, each whole copy names a
//! checkpoint that is there, with the log after it.
//!
//! If both copies are lost, a manifest is made from the data files' own metadata (`FoundFiles`).
//! Each block is that of the newest file that has it, and a logged change of a block counts if it
//! is newer than that file. Rows that were deleted with the rest of their block may come back.
//!
//! **A checkpoint that fails** (on a full disk, say) removes its files of hot blocks and its
//! incomplete files. Complete files of frozen blocks stay, since these lie in them by then. Each
//! frozen block is written once, so this is bounded, and the next attempt has less to write. A file
//! is removed when no manifest that the disk may hold names it (`NamedFiles`) and no block lies
//! in it. This is checked before each checkpoint, too.
//!
//! **A frozen block is written once.** A written block is replaced, in the block table, by its twin
//! over the mapped file: the same rows in the file's memory. As long as that twin is in the block
//! table, checkpoints name the file again. No snapshot sees it otherwise: a block freezes only when
//! every running snapshot sees all of it, that of a checkpoint included. The twin may take its
//! place before the manifest is there, since its file is synced: should this checkpoint fail, the
//! next one names it.
//!
//! **Hot blocks** are written as the snapshot sees them, in files of their own. A hot block that
//! had no versions then, so that all snapshots saw the same, keeps its place in the file until it
//! is written to. After the collector has taken the last version of a slot, it raises the count of
//! settlements, and only then lowers the count of versioned slots. So if the count of settlements
//! is the same and no slot has a version, nothing was written (an abort counts too). After a
//! restart they are frozen blocks like the others.
//!
//! **A backup** is a checkpoint in another folder, by which the database's own state does not
//! change. Files in which blocks lie are copied. Blocks that are written do not move to their
//! files. A backup needs no log. No checkpoint is made beside it, so no file is removed meanwhile.
//!
//! **Files.** A file is complete at 32 MiB, so that a large table means few syncs. Blocks that thaw
//! leave holes in files; the others are not written again for that. The blocks of a file that has
//! more holes than blocks are written anew. So are those of a table's small files when there are
//! eight of them. Each byte written causes at most a few bytes to be written again. Blocks with
//! damaged bytes stay in their file.

use crate::block::{Block, FiledBlock, HotBlock};
use crate::durability::data_file::{BlockBatch, DataFile, DataFileWriter, FileOrigin, FileSeal};
use crate::durability::file_system::{FileSystem, StorageFile};
use crate::durability::redo::without_foreign_bytes;
use crate::durability::wal::LogPosition;
use crate::error::{Result, StorageError};
use crate::freeze::frozen::{FreezeFormat, FrozenBlock};
use crate::ids::{BlockNo, ColumnId, TableId, Timestamp};
use crate::table::column_form::{ColumnForm, ScanColumn, Selection};
use crate::table::data_table::DataTable;
use crate::table::scan::BlockReader;
use crate::version::transaction::Snapshot;
use arrow_array::{ArrayRef, UInt32Array};
use arrow_buffer::BooleanBufferBuilder;
use serac_sync::atomic::Ordering;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FORMAT_VERSION: u32 = 4;
/// Name of the manifest in the database's folder.
pub const MANIFEST: &str = "MANIFEST";
/// Name of its copy.
pub const MANIFEST_COPY: &str = "MANIFEST.copy";
/// The folder of the Arrow files.
pub const DATA_FOLDER: &str = "data";
/// This many files of a table, each with less than a quarter of the bytes of a complete file,
/// become one.
const SMALL_FILES: usize = 8;

/// One Arrow file of a checkpoint.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckpointFile {
    /// The file.
    #[serde(flatten)]
    pub seal: FileSeal,
    /// Its batches that are blocks of the checkpoint; the other batches were blocks of an earlier
    /// one.
    pub batches: Vec<u32>,
}

/// A table in a checkpoint.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckpointTable {
    /// Number.
    pub id: TableId,
    /// Its files.
    pub files: Vec<CheckpointFile>,
}

/// The content of the manifest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Manifest {
    format_version: u32,
    /// The snapshot's timestamp: commits up to here are in the checkpoint.
    pub checkpoint_ts: u64,
    /// The part of the log that is needed, and the manifest's knowledge of it.
    pub log: LogPosition,
    /// The engine's state, as it gave it; `None` before the first checkpoint.
    pub state: Option<String>,
    /// The tables.
    pub tables: Vec<CheckpointTable>,
}

/// The figures of one checkpoint.
#[derive(Debug, Clone, Copy, Default)]
pub struct CheckpointReport {
    /// The snapshot's timestamp.
    pub checkpoint_ts: u64,
    /// Tables in it.
    pub tables: usize,
    /// Rows in it.
    pub rows: u64,
    /// Blocks that were written.
    pub blocks_written: u64,
    /// Blocks that lie in files of earlier checkpoints.
    pub blocks_kept: u64,
    /// Bytes of data files written.
    pub bytes: u64,
}

/// Only the version: the rest may have another version's form.
#[derive(Deserialize)]
struct ManifestVersion {
    format_version: u32,
}

impl Manifest {
    pub(crate) fn new(checkpoint_ts: Timestamp, log: LogPosition, state: String, tables: Vec<CheckpointTable>) -> Self {
        Self { format_version: FORMAT_VERSION, checkpoint_ts: checkpoint_ts.0, log, state: Some(state), tables }
    }

    /// A manifest that names the files that were found without a manifest.
    pub(crate) fn of_found_files(found: &FoundFiles) -> Self {
        let (format_version, tables) = (FORMAT_VERSION, found.tables.clone());
        let state = found.state.as_ref().map(|(_, state)| state.clone());
        // The beginning of the log is not known.
        Self { format_version, checkpoint_ts: found.newest, log: LogPosition::BEGINNING, state, tables }
    }

    /// The manifest of a database without a checkpoint.
    pub(crate) fn of_new_database() -> Self {
        let log = LogPosition::BEGINNING;
        Self { format_version: FORMAT_VERSION, checkpoint_ts: 0, log, state: None, tables: Vec::new() }
    }

    /// Reads the manifest at `path`, if it exists.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] when it is damaged, [`StorageError::OtherVersion`].
    pub fn read(path: &Path, files: &dyn FileSystem) -> Result<Option<Self>> {
        let bytes = match files.read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StorageError::io(format!("cannot read {}", path.display()), error)),
        };
        let corrupt = |detail: &str| StorageError::Corrupt { file: path.to_owned(), offset: 0, detail: detail.into() };
        let text = std::str::from_utf8(&bytes).map_err(|_| corrupt("it is not a text"))?;
        let (crc, json) = text.split_once('\n').ok_or_else(|| corrupt("it has no checksum line"))?;
        if format!("{:08x}", crc32fast::hash(json.as_bytes())) != crc {
            return Err(corrupt("its checksum is wrong"));
        }
        let version: ManifestVersion = serde_json::from_str(json).map_err(|e| corrupt(&e.to_string()))?;
        if version.format_version != FORMAT_VERSION {
            let (found, ours) = (version.format_version, FORMAT_VERSION);
            return Err(StorageError::OtherVersion { file: path.to_owned(), found, ours });
        }
        serde_json::from_str(json).map(Some).map_err(|e| corrupt(&e.to_string()))
    }

    /// Writes both copies of the manifest, beside the old ones.
    pub(crate) fn write_new(&self, folder: &Path, files: &dyn FileSystem) -> Result<()> {
        let json = serde_json::to_string(self).expect("a manifest is plain data");
        let text = format!("{:08x}\n{json}", crc32fast::hash(json.as_bytes()));
        for name in [MANIFEST, MANIFEST_COPY] {
            let path = new_name(folder, name);
            let write = |file: Arc<dyn StorageFile>| file.write_all_at(text.as_bytes(), 0).and_then(|()| file.sync());
            files.create(&path).and_then(write).map_err(|error| {
                // They take room that is needed. One of them may not be there.
                for name in [MANIFEST, MANIFEST_COPY] {
                    let _ = files.remove(&new_name(folder, name));
                }
                StorageError::io(format!("cannot write {}", path.display()), error)
            })?;
        }
        Ok(())
    }

    /// Renames the files of [`write_new`](Self::write_new) over the old ones. If this fails, the
    /// disk may hold the old or the new ones.
    pub(crate) fn put_in_place(folder: &Path, files: &dyn FileSystem) -> Result<()> {
        let rename = |name| files.rename(&new_name(folder, name), &folder.join(name));
        rename(MANIFEST)
            .and_then(|()| rename(MANIFEST_COPY))
            .and_then(|()| files.sync_dir(folder))
            .map_err(|e| StorageError::io(format!("cannot replace {}", folder.join(MANIFEST).display()), e))
    }

    /// The files that it names.
    pub(crate) fn files(&self) -> impl Iterator<Item = &str> {
        self.tables.iter().flat_map(|table| &table.files).map(|file| file.seal.name.as_str())
    }
}

/// The commit up to which a block's changes are in the file in which it was found.
pub(crate) type BlockTimes = BTreeMap<(TableId, BlockNo), Timestamp>;

/// The content of data files without a manifest, from their own metadata.
#[derive(Debug, Default)]
pub(crate) struct FoundFiles {
    /// The newest catalog, behind the timestamp of its checkpoint.
    pub(crate) state: Option<(u64, String)>,
    pub(crate) tables: Vec<CheckpointTable>,
    pub(crate) times: BlockTimes,
    /// The newest checkpoint's timestamp.
    pub(crate) newest: u64,
    /// Unreadable files' names, and why they cannot be read.
    pub(crate) lost: Vec<(String, String)>,
}

impl FoundFiles {
    /// Looks at all data files of the database in `folder`.
    ///
    /// # Errors
    /// An error when the folder cannot be read.
    pub(crate) fn find(folder: &Path, files: &dyn FileSystem) -> Result<Self> {
        let data = folder.join(DATA_FOLDER);
        let names = files.list(&data).map_err(|e| StorageError::io(format!("cannot read {}", data.display()), e))?;
        let (mut found, mut whole) = (Self::default(), Vec::new());
        for name in names.into_iter().filter(|name| is_data_file(name)) {
            match DataFile::open_unnamed(&data, &name, files) {
                Ok(file) => whole.push(file),
                Err(error) => found.lost.push((name, error.to_string())),
            }
        }
        // If two files of one checkpoint have a block in common, the later file counts.
        let number = |file: &DataFile| {
            let name = file.seal().name.trim_end_matches(".arrow").trim_end_matches("-gaps");
            name.rsplit('-').next().and_then(|number| number.parse::<u32>().ok())
        };
        whole.sort_by_key(|file| (file.checkpoint_ts(), number(file)));
        let mut places: BTreeMap<(TableId, BlockNo), (usize, u32)> = BTreeMap::new();
        for (at, file) in whole.iter().enumerate() {
            found.newest = found.newest.max(file.checkpoint_ts());
            if let Some(catalog) = file.catalog() {
                found.state = Some((file.checkpoint_ts(), catalog.to_owned()));
            }
            for batch in 0..file.batch_count() as u32 {
                let block = (file.table(), file.block_no(batch));
                places.insert(block, (at, batch));
                found.times.insert(block, Timestamp(file.checkpoint_ts()));
            }
        }
        let mut entries: BTreeMap<(TableId, usize), CheckpointFile> = BTreeMap::new();
        for ((table, _), (at, batch)) in places {
            let new = || CheckpointFile { seal: whole[at].seal().clone(), batches: Vec::new() };
            entries.entry((table, at)).or_insert_with(new).batches.push(batch);
        }
        for ((id, _), file) in entries {
            match found.tables.last_mut() {
                Some(table) if table.id == id => table.files.push(file),
                _ => found.tables.push(CheckpointTable { id, files: vec![file] }),
            }
        }
        Ok(found)
    }
}

fn new_name(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.new"))
}

/// The data files named by the manifests that the disk may hold: one manifest, or two if a
/// checkpoint failed while it replaced the manifest.
pub(crate) type NamedFiles = BTreeSet<String>;

/// Whether a name in the data folder is that of a data file. What others have put there, as a
/// backup's folder, is theirs.
fn is_data_file(name: &str) -> bool {
    name.ends_with(".arrow")
}

/// The data files that neither a manifest names nor a block of `tables` lies in.
pub(crate) fn unneeded_files(
    folder: &Path,
    files: &dyn FileSystem,
    named: &NamedFiles,
    tables: &[Arc<DataTable>],
) -> Result<Vec<PathBuf>> {
    let data = folder.join(DATA_FOLDER);
    let names = files.list(&data).map_err(|e| StorageError::io(format!("cannot read {}", data.display()), e))?;
    let mut unneeded: BTreeSet<String> =
        names.into_iter().filter(|name| is_data_file(name) && !named.contains(name)).collect();
    if !unneeded.is_empty() {
        for file in tables.iter().flat_map(|table| files_of_blocks(table)) {
            unneeded.remove(&file.seal().name);
        }
    }
    let mut unneeded: Vec<PathBuf> = unneeded.into_iter().map(|name| data.join(name)).collect();
    unneeded.sort_unstable();
    Ok(unneeded)
}

/// Makes the hot blocks forget places in files that no manifest names: these files are about to go.
pub(crate) fn forget_unnamed_files(tables: &[Arc<DataTable>], named: &NamedFiles) {
    for block in tables.iter().flat_map(|table| (0..table.block_count()).filter_map(|no| table.block(BlockNo(no)))) {
        if let Some(hot) = block.hot()
            && hot.filed().is_some_and(|filed| !named.contains(&filed.file.seal().name))
        {
            hot.file(None);
        }
    }
}

/// About how many bytes a checkpoint would write of `table` now.
pub(crate) fn unwritten_bytes(table: &DataTable) -> u64 {
    let used = |hot: &HotBlock| {
        let slots = u64::from(table.layout().slot_count());
        let limit = u64::from(hot.insert_cursor().load(Ordering::Relaxed)).min(slots);
        table.layout().used_bytes() as u64 * limit / slots + hot.heap().live_bytes() as u64
    };
    let blocks = (0..table.block_count()).filter_map(|no| table.block(BlockNo(no)));
    blocks
        .map(|block| match &*block {
            Block::Frozen(block) if block.source().is_none() => block.bytes() as u64,
            Block::Hot(block) if block.filed().is_none() => used(block),
            _ => 0,
        })
        .sum()
}

/// The file of each block that lies in a file.
fn files_of_blocks(table: &DataTable) -> impl Iterator<Item = Arc<DataFile>> {
    (0..table.block_count()).filter_map(|no| match &*table.block(BlockNo(no))? {
        Block::Frozen(block) => block.source().map(|source| source.place().0.clone()),
        Block::Hot(block) => block.filed().map(|filed| filed.file),
    })
}

/// A data file that is being written, with the blocks in the block table that have its rows.
struct OpenFile {
    writer: DataFileWriter,
    hot: bool,
    blocks: Vec<(BlockNo, Arc<Block>, Written)>,
}

/// The state of a block in the block table.
#[derive(Clone, Copy, PartialEq)]
enum Written {
    /// Frozen: its twin over the file replaces it.
    Frozen,
    /// Hot, with its count of settlements when it was read; `None` if it had versions.
    Hot(Option<u64>),
}

/// The place and the settings of a checkpoint that is being written.
#[derive(Clone, Copy)]
pub(crate) struct CheckpointFolder<'a> {
    /// The database's folder.
    pub(crate) path: &'a Path,
    pub(crate) files: &'a dyn FileSystem,
    /// Bytes at which a data file is complete.
    pub(crate) file_bytes: u64,
    /// Whether the folder is that of a backup: files in which blocks lie are copied to it, and no
    /// block lies in its files from then on.
    pub(crate) is_backup: bool,
    /// Whether to end early, with an error. Asked for each block.
    pub(crate) stop: &'a (dyn Fn() -> bool + Sync),
}

/// One table's part of a checkpoint.
struct TableCheckpoint<'a> {
    folder: CheckpointFolder<'a>,
    table: &'a DataTable,
    origin: FileOrigin,
    snapshot: &'a Snapshot,
    open: Vec<OpenFile>,
    /// By name.
    done: BTreeMap<String, CheckpointFile>,
    names: u32,
    /// The names of the files that a backup copies.
    copied: BTreeSet<String>,
    report: CheckpointReport,
}

/// Writes the rows of `table` that `snapshot` sees, except those that lie in files already. A
/// backup copies these files. Returns the table's entry for the manifest, and adds to the report.
pub(crate) fn write_table(
    folder: CheckpointFolder<'_>,
    table: &DataTable,
    catalog: Option<&Arc<str>>,
    snapshot: &Snapshot,
    report: &mut CheckpointReport,
) -> Result<CheckpointTable> {
    let (open, done) = (Vec::new(), BTreeMap::new());
    let origin = FileOrigin { table: table.id(), checkpoint_ts: snapshot.start().0, catalog: catalog.cloned() };
    let (outworn, copied) = if folder.is_backup {
        (BTreeSet::new(), files_of_blocks(table).map(|file| file.seal().name.clone()).collect())
    } else {
        (outworn_files(table, folder.file_bytes), BTreeSet::new())
    };
    let mut part = TableCheckpoint { folder, table, origin, snapshot, open, done, names: 0, copied, report: *report };
    for no in (0..table.block_count()).map(BlockNo) {
        let Some(block) = table.block(no) else { continue };
        if (folder.stop)() {
            let interrupted = std::io::ErrorKind::Interrupted.into();
            return Err(StorageError::io(format!("cannot write into {}", folder.path.display()), interrupted));
        }
        match &*block {
            Block::Frozen(frozen) => {
                let place = frozen.source().map(|source| source.place());
                let place = place.filter(|(file, batch)| file.block_no(*batch) == no);
                match place.filter(|(file, _)| !outworn.contains(&file.seal().name)) {
                    Some((file, batch)) => part.keep(file, batch, frozen.rows())?,
                    None => match (BlockBatch::new(no, frozen, table.schema()), place) {
                        // Damaged bytes are not written anew. They stay where they are, and keep no
                        // checkpoint from being made.
                        (Err(StorageError::Corrupt { .. }), Some((file, batch))) => {
                            part.keep(file, batch, frozen.rows())?;
                        }
                        (batch, _) => part.write(no, frozen, batch?, &block, Written::Frozen)?,
                    },
                }
            }
            Block::Hot(hot) => match hot.filed() {
                Some(filed) if !outworn.contains(&filed.file.seal().name) => {
                    part.keep(&filed.file, filed.batch, hot.rows())?;
                }
                _ => {
                    if !folder.is_backup {
                        hot.file(None);
                    }
                    let settled = hot.settlements();
                    if let Some(seen) = as_seen(table, block.clone(), no, snapshot)? {
                        let batch = BlockBatch::new(no, &seen, table.schema())?;
                        part.write(no, &seen, batch, &block, Written::Hot(settled))?;
                    }
                }
            },
        }
    }
    while let Some(file) = part.open.pop() {
        part.finish(file)?;
    }
    *report = CheckpointReport { tables: part.report.tables + 1, ..part.report };
    Ok(CheckpointTable { id: table.id(), files: part.done.into_values().collect() })
}

impl TableCheckpoint<'_> {
    /// Names the file in which a block lies; in a backup, a copy of it.
    fn keep(&mut self, file: &DataFile, batch: u32, rows: u32) -> Result<()> {
        if self.folder.is_backup && !self.done.contains_key(&file.seal().name) {
            file.copy_to(&self.folder.path.join(DATA_FOLDER), self.folder.files)?;
            self.report.bytes += file.seal().bytes;
        }
        let new = || CheckpointFile { seal: file.seal().clone(), batches: Vec::new() };
        self.done.entry(file.seal().name.clone()).or_insert_with(new).batches.push(batch);
        self.report.rows += u64::from(rows);
        self.report.blocks_kept += 1;
        Ok(())
    }

    /// Writes a block, which `batch` was made of; `source` is the one in the block table that has
    /// these rows.
    fn write(
        &mut self,
        no: BlockNo,
        block: &FrozenBlock,
        batch: BlockBatch,
        source: &Arc<Block>,
        written: Written,
    ) -> Result<()> {
        let (alone, hot) = (batch.stays_alone(), written != Written::Frozen);
        let fits = |open: &OpenFile| open.hot == hot && open.writer.schema() == batch.schema();
        let at = match self.open.iter().position(fits) {
            Some(at) => at,
            None => {
                let name = self.free_name(block.presence().is_some())?;
                let data = self.folder.path.join(DATA_FOLDER);
                let origin = self.origin.clone();
                let writer = DataFileWriter::create(&data, name, origin, batch.schema(), self.folder.files)?;
                self.open.push(OpenFile { writer, hot, blocks: Vec::new() });
                self.open.len() - 1
            }
        };
        let file = &mut self.open[at];
        file.writer.write(batch)?;
        file.blocks.push((no, source.clone(), written));
        self.report.rows += u64::from(block.rows());
        self.report.blocks_written += 1;
        if alone || self.open[at].writer.bytes() >= self.folder.file_bytes {
            let file = self.open.swap_remove(at);
            self.finish(file)?;
        }
        Ok(())
    }

    fn finish(&mut self, file: OpenFile) -> Result<()> {
        let OpenFile { writer, hot, blocks } = file;
        let data = writer.finish(self.folder.files)?;
        let batches: Vec<u32> = (0..data.batch_count() as u32).collect();
        if !self.folder.is_backup {
            let frozen: &[u32] = if hot { &[] } else { &batches };
            let twins = data.blocks(self.table.schema(), self.table.layout(), frozen)?;
            self.settle(&data, &blocks, twins);
        }
        let seal = data.seal().clone();
        self.report.bytes += seal.bytes;
        self.done.insert(seal.name.clone(), CheckpointFile { seal, batches });
        Ok(())
    }

    /// Lets blocks lie in the file to which they were written. `twins` are the frozen ones in its
    /// memory.
    fn settle(
        &self,
        data: &Arc<DataFile>,
        blocks: &[(BlockNo, Arc<Block>, Written)],
        twins: Vec<(BlockNo, FrozenBlock)>,
    ) {
        let mut twins = twins.into_iter();
        for (batch, (no, block, written)) in blocks.iter().enumerate() {
            match written {
                Written::Frozen => {
                    let (written, twin) = twins.next().expect("a batch for every block");
                    assert_eq!(*no, written, "a file's batches are in the order in which they were written");
                    // If it was thawed meanwhile, so be it.
                    self.table.blocks().replace(*no, block, Arc::new(Block::Frozen(twin)));
                }
                Written::Hot(settled) => {
                    if let (Some(hot), Some(settled)) = (block.hot(), *settled) {
                        hot.file(Some(FiledBlock { file: data.clone(), batch: batch as u32, settlements: settled }));
                    }
                }
            }
        }
    }

    /// A file name that is not taken: an earlier checkpoint may be of the same moment.
    fn free_name(&mut self, has_gaps: bool) -> Result<String> {
        let suffix = if has_gaps { "-gaps" } else { "" };
        loop {
            self.names += 1;
            let name = format!("{}-{}-{}{suffix}.arrow", self.snapshot.start().0, self.table.id().0, self.names);
            let path = self.folder.path.join(DATA_FOLDER).join(&name);
            let io = |e| StorageError::io(format!("cannot look for {}", path.display()), e);
            if !self.copied.contains(&name) && !self.folder.files.exists(&path).map_err(io)? {
                return Ok(name);
            }
        }
    }
}

/// The files of which the blocks are to be written anew; see the module.
fn outworn_files(table: &DataTable, file_bytes: u64) -> BTreeSet<String> {
    let mut live: BTreeMap<String, (Arc<DataFile>, usize)> = BTreeMap::new();
    for file in files_of_blocks(table) {
        live.entry(file.seal().name.clone()).or_insert_with(|| (file, 0)).1 += 1;
    }
    let (mut outworn, mut small) = (BTreeSet::new(), Vec::new());
    for (name, (file, live)) in live {
        let all = file.batch_count();
        if 2 * live < all {
            outworn.insert(name);
        } else if file.seal().bytes * (live as u64) / (all as u64) < file_bytes / 4 && !file.stays_alone() {
            small.push(name);
        }
    }
    if small.len() >= SMALL_FILES {
        outworn.extend(small);
    }
    outworn
}

/// A hot block as the snapshot sees it, in the form of a frozen one; `None` if it sees no row.
fn as_seen(table: &DataTable, block: Arc<Block>, no: BlockNo, snapshot: &Snapshot) -> Result<Option<FrozenBlock>> {
    let (schema, thaws) = (table.schema(), block.hot().map_or(0, HotBlock::thaws));
    let Some(mut reader) = BlockReader::new(schema, block, no, snapshot) else { return Ok(None) };
    let stored = |i| ScanColumn { id: ColumnId(i as u16), form: ColumnForm::Stored };
    let columns: Vec<ScanColumn> = (0..schema.columns.len()).map(stored).collect();
    let visible = reader.visible().clone();
    let arrays = without_foreign_bytes(&reader.columns(&columns, &visible)?);
    let (limit, presence, arrays) = match visible {
        Selection::All(limit) => (limit, None, arrays),
        Selection::Positions(positions) => {
            let limit = positions.last().map_or(0, |last| last + 1);
            let mut presence = BooleanBufferBuilder::new(limit as usize);
            presence.append_n(limit as usize, false);
            // The content of an empty slot does not matter: the first row's values will do.
            let mut rows = vec![0; limit as usize];
            for (row, &slot) in positions.iter().enumerate() {
                presence.set_bit(slot as usize, true);
                rows[slot as usize] = row as u32;
            }
            let rows = UInt32Array::from(rows);
            let spread = |array: &ArrayRef| arrow_select::take::take(array, &rows, None);
            (limit, Some(presence.finish()), arrays.iter().map(spread).collect::<Result<_, _>>()?)
        }
    };
    let (format, no_zones) = (FreezeFormat::View, vec![None; columns.len()]);
    let seen = FrozenBlock::from_arrays(schema, format, limit, presence, &arrays, &no_zones, thaws)?;
    let seen = seen.with_zones(schema);
    Ok(Some(match table.freeze_format() {
        FreezeFormat::View | FreezeFormat::Never => seen,
        format => seen.reencode(format),
    }))
}

/// The result of mapping a checkpoint's files.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    pub(crate) rows: u64,
    /// Damaged parts that a salvage left out.
    pub(crate) lost: Vec<String>,
    /// Names of the files in which the damaged parts lie.
    pub(crate) damaged: Vec<String>,
}

impl Mapped {
    /// Maps a file and puts its blocks into `table`; to salvage, reads all of them and leaves out
    /// those that are damaged.
    pub(crate) fn add(
        &mut self,
        folder: CheckpointFolder<'_>,
        table: &DataTable,
        file: &CheckpointFile,
        salvage: bool,
    ) -> Result<()> {
        let data = match DataFile::open(&folder.path.join(DATA_FOLDER), file.seal.clone(), folder.files) {
            Err(error) if salvage => {
                self.damaged.push(file.seal.name.clone());
                self.lost.push(format!("{} blocks of table \"{}\": {error}", file.batches.len(), table.name()));
                return Ok(());
            }
            data => data?,
        };
        let parts: Vec<&[u32]> = if salvage { file.batches.chunks(1).collect() } else { vec![&file.batches] };
        for part in parts {
            let blocks = data.blocks(table.schema(), table.layout(), part);
            let whole = |blocks: &Vec<(BlockNo, FrozenBlock)>| match blocks {
                blocks if salvage => blocks.iter().try_for_each(|(_, block)| block.check_all()),
                _ => Ok(()),
            };
            match blocks.and_then(|blocks| whole(&blocks).map(|()| blocks)) {
                Err(error) if salvage => {
                    self.damaged.push(file.seal.name.clone());
                    self.lost.push(format!("a block of table \"{}\": {error}", table.name()));
                }
                blocks => {
                    for (no, block) in blocks? {
                        self.rows += u64::from(block.rows());
                        table.recover_frozen(no, block)?;
                    }
                }
            }
        }
        Ok(())
    }
}
