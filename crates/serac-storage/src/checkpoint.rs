//! Checkpoints: a snapshot of all tables as ordinary Arrow files, and the manifest that names them (§3.4).
//!
//! ```text
//! MANIFEST                                     one line of CRC, then JSON; replaced atomically by rename
//! data/<checkpoint>-<table>.arrow              one record batch per block whose rows fill it without gaps
//! data/<checkpoint>-<table>-gaps.arrow         one record batch per block with gaps, with a last column `__serac_slot`
//! data/<checkpoint>-<table>-<n>[-gaps].arrow   the n-th checkpoint of the same moment
//! ```
//! A checkpoint is written by a transaction of its own, beside all others: it holds what its snapshot sees. It counts only once the
//! manifest names it; files that no manifest names are left over from a crash and removed at the next open or checkpoint.

use crate::data_table::DataTable;
use crate::error::{Result, StorageError};
use crate::file_system::{FileSystem, StorageFile};
use crate::ids::{BlockNo, ColumnId, RowId, Slot, TableId, Timestamp};
use crate::redo::without_foreign_bytes;
use crate::scan::{ScanColumn, Selection};
use crate::transaction::Snapshot;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{DataType, Field, Schema};
use serde::{Deserialize, Serialize};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FORMAT_VERSION: u32 = 1;
/// Name of the manifest in the database's folder.
pub const MANIFEST: &str = "MANIFEST";
/// The folder of the Arrow files.
pub const DATA_FOLDER: &str = "data";
/// The column that says in which slots the rows of a block with gaps lie.
pub const SLOT_COLUMN: &str = "__serac_slot";

/// One Arrow file of a checkpoint.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckpointFile {
    /// Name in the data folder.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// CRC-32 of all bytes.
    pub crc32: u32,
    /// Whether the last column holds slots.
    pub has_gaps: bool,
    /// The block of each record batch.
    pub blocks: Vec<u32>,
}

/// A table in a checkpoint.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckpointTable {
    /// Number.
    pub id: TableId,
    /// Its files.
    pub files: Vec<CheckpointFile>,
}

/// What the manifest says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Manifest {
    format_version: u32,
    /// The snapshot's timestamp: log up to here is not needed.
    pub checkpoint_ts: u64,
    /// The engine's state, as it gave it.
    pub state: String,
    /// The tables.
    pub tables: Vec<CheckpointTable>,
}

/// What a checkpoint did.
#[derive(Debug, Clone, Copy, Default)]
pub struct CheckpointReport {
    /// The snapshot's timestamp.
    pub checkpoint_ts: u64,
    /// Tables written.
    pub tables: usize,
    /// Rows written.
    pub rows: u64,
    /// Bytes written.
    pub bytes: u64,
}

impl Manifest {
    pub(crate) fn new(checkpoint_ts: Timestamp, state: String, tables: Vec<CheckpointTable>) -> Self {
        Self { format_version: FORMAT_VERSION, checkpoint_ts: checkpoint_ts.0, state, tables }
    }

    /// Reads the manifest of the database in `folder`, if there is one.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] when it is damaged.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(MANIFEST);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StorageError::io(format!("cannot read {}", path.display()), error)),
        };
        let corrupt = |detail: &str| StorageError::Corrupt { file: path.clone(), offset: 0, detail: detail.into() };
        let (crc, json) = text.split_once('\n').ok_or_else(|| corrupt("it has no checksum line"))?;
        if format!("{:08x}", crc32fast::hash(json.as_bytes())) != crc {
            return Err(corrupt("its checksum is wrong"));
        }
        let manifest: Self = serde_json::from_str(json).map_err(|e| corrupt(&e.to_string()))?;
        if manifest.format_version != FORMAT_VERSION {
            return Err(corrupt(&format!("format version {} is not known", manifest.format_version)));
        }
        Ok(Some(manifest))
    }

    /// Writes the manifest and puts it in the old one's place.
    pub(crate) fn publish(&self, folder: &Path, files: &dyn FileSystem) -> Result<()> {
        let json = serde_json::to_string(self).expect("a manifest is plain data");
        let text = format!("{:08x}\n{json}", crc32fast::hash(json.as_bytes()));
        let (temporary, path) = (folder.join("MANIFEST.new"), folder.join(MANIFEST));
        let write = || -> std::io::Result<()> {
            let file = files.create(&temporary)?;
            file.write_all_at(text.as_bytes(), 0)?;
            file.sync()?;
            files.rename(&temporary, &path)?;
            files.sync_dir(folder)
        };
        write().map_err(|e| StorageError::io(format!("cannot write {}", path.display()), e))
    }

    /// Removes files of the data folder that the manifest does not name.
    pub(crate) fn remove_others(&self, folder: &Path, files: &dyn FileSystem) -> Result<()> {
        let data = folder.join(DATA_FOLDER);
        let io = |e| StorageError::io(format!("cannot clean {}", data.display()), e);
        for entry in std::fs::read_dir(&data).map_err(io)? {
            let path = entry.map_err(io)?.path();
            let named = path
                .file_name()
                .and_then(|n| n.to_str())
                .is_some_and(|name| self.tables.iter().flat_map(|t| &t.files).any(|f| f.name == name));
            if !named {
                files.remove(&path).map_err(io)?;
            }
        }
        Ok(())
    }
}

/// Writes sequentially through the [`FileSystem`], counting and summing.
struct CheckedWriter {
    file: Arc<dyn StorageFile>,
    at: u64,
    crc: crc32fast::Hasher,
}

impl Write for CheckedWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file.write_all_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        self.crc.update(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct TableFile {
    name: String,
    writer: FileWriter<BufWriter<CheckedWriter>>,
    schema: Arc<Schema>,
    has_gaps: bool,
    blocks: Vec<u32>,
}

impl TableFile {
    fn create(
        folder: &Path,
        name: String,
        schema: Arc<Schema>,
        has_gaps: bool,
        files: &dyn FileSystem,
    ) -> Result<Self> {
        let path = folder.join(DATA_FOLDER).join(&name);
        let file = files.create(&path).map_err(|e| StorageError::io(format!("cannot make {}", path.display()), e))?;
        let sink = BufWriter::with_capacity(1 << 20, CheckedWriter { file, at: 0, crc: crc32fast::Hasher::new() });
        let options = IpcWriteOptions::try_new(64, false, arrow_ipc::MetadataVersion::V5)?;
        let writer = FileWriter::try_new_with_options(sink, &schema, options)?;
        Ok(Self { name, writer, schema, has_gaps, blocks: Vec::new() })
    }
    fn finish(self) -> Result<CheckpointFile> {
        let io = |e| StorageError::io(format!("cannot write {}", self.name), e);
        let sink = self.writer.into_inner()?.into_inner().map_err(|e| io(e.into_error()))?;
        sink.file.sync().map_err(io)?;
        Ok(CheckpointFile {
            name: self.name.clone(),
            bytes: sink.at,
            crc32: sink.crc.finalize(),
            has_gaps: self.has_gaps,
            blocks: self.blocks,
        })
    }
}

/// A file name that no checkpoint has yet. Without commits in between, the newest checkpoint has the same timestamp, and its files must stay whole until the
/// manifest names others.
fn free_name(folder: &Path, checkpoint: Timestamp, table: TableId, suffix: &str) -> String {
    let data = folder.join(DATA_FOLDER);
    let names = (1u32..).map(|attempt| match attempt {
        1 => format!("{}-{}{suffix}.arrow", checkpoint.0, table.0),
        _ => format!("{}-{}-{attempt}{suffix}.arrow", checkpoint.0, table.0),
    });
    names.into_iter().find(|name| !data.join(name).exists()).expect("there are more names than files")
}

/// Writes what `snapshot` sees of `table`. Returns its entry for the manifest and the number of rows.
pub(crate) fn write_table(
    folder: &Path,
    table: &DataTable,
    snapshot: &Snapshot,
    files: &dyn FileSystem,
) -> Result<(CheckpointTable, u64)> {
    let plain = table.schema().arrow();
    let columns: Vec<ScanColumn> = (0..plain.fields().len() as u16).map(|c| ScanColumn::arrow(ColumnId(c))).collect();
    let mut open: [Option<TableFile>; 2] = [None, None];
    let mut rows = 0;
    for no in 0..table.block_count() {
        let Some(mut reader) = table.read_block(snapshot, BlockNo(no)) else { continue };
        let selection = reader.visible().clone();
        let mut arrays = reader.columns(&columns, &selection)?;
        let has_gaps = matches!(selection, Selection::Positions(_));
        if let Selection::Positions(positions) = &selection {
            arrays.push(Arc::new(UInt32Array::from(positions.clone())) as ArrayRef);
        }
        if open[usize::from(has_gaps)].is_none() {
            let mut fields: Vec<Field> = plain.fields().iter().map(|f| f.as_ref().clone()).collect();
            if has_gaps {
                fields.push(Field::new(SLOT_COLUMN, DataType::UInt32, false));
            }
            let name = free_name(folder, snapshot.start(), table.id(), if has_gaps { "-gaps" } else { "" });
            open[usize::from(has_gaps)] =
                Some(TableFile::create(folder, name, Arc::new(Schema::new(fields)), has_gaps, files)?);
        }
        let file = open[usize::from(has_gaps)].as_mut().expect("just opened");
        let options = RecordBatchOptions::new().with_row_count(Some(selection.len()));
        let batch = RecordBatch::try_new_with_options(file.schema.clone(), arrays, &options)?;
        file.writer.write(&without_foreign_bytes(&batch)?)?;
        file.blocks.push(no);
        rows += selection.len() as u64;
    }
    let mut written = Vec::new();
    for mut file in open.into_iter().flatten() {
        file.writer.finish()?;
        written.push(file.finish()?);
    }
    Ok((CheckpointTable { id: table.id(), files: written }, rows))
}

/// Loads a file of a checkpoint into `table`. Returns the number of rows.
pub(crate) fn load_file(folder: &Path, table: &DataTable, file: &CheckpointFile) -> Result<u64> {
    let path: PathBuf = folder.join(DATA_FOLDER).join(&file.name);
    let bytes = std::fs::read(&path).map_err(|e| StorageError::io(format!("cannot read {}", path.display()), e))?;
    let corrupt = |detail: String| StorageError::Corrupt { file: path.clone(), offset: 0, detail };
    if bytes.len() as u64 != file.bytes {
        return Err(corrupt(format!("it has {} bytes, not {}", bytes.len(), file.bytes)));
    }
    if crc32fast::hash(&bytes) != file.crc32 {
        return Err(corrupt("its checksum is wrong".into()));
    }
    let reader = arrow_ipc::reader::FileReader::try_new(std::io::Cursor::new(bytes), None)?;
    let mut rows = 0;
    let mut blocks = file.blocks.iter();
    for batch in reader {
        let batch = batch?;
        let block = BlockNo(*blocks.next().ok_or_else(|| corrupt("it has more batches than blocks".into()))?);
        rows += batch.num_rows() as u64;
        if file.has_gaps {
            load_with_gaps(table, block, &batch)?;
        } else {
            table.recover_append(RowId::new(block, Slot(0)), &batch)?;
        }
    }
    Ok(rows)
}

/// Loads the runs of neighbouring slots one by one.
fn load_with_gaps(table: &DataTable, block: BlockNo, batch: &RecordBatch) -> Result<()> {
    let last = batch.num_columns() - 1;
    let slots = batch
        .column(last)
        .as_primitive_opt::<UInt32Type>()
        .ok_or_else(|| StorageError::InvalidInput(format!("the last column is not {SLOT_COLUMN}")))?
        .clone();
    let rows = batch.project(&(0..last).collect::<Vec<_>>())?;
    let mut from = 0;
    while from < slots.len() {
        let mut to = from + 1;
        while to < slots.len() && slots.value(to) == slots.value(to - 1) + 1 {
            to += 1;
        }
        table.recover_append(RowId::new(block, Slot(slots.value(from))), &rows.slice(from, to - from))?;
        from = to;
    }
    Ok(())
}
