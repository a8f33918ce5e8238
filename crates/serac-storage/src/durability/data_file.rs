//! Data files: ordinary Arrow IPC files, each with blocks of one table as record batches, written
//! once and mapped.
//!
//! ```text
//! ARROW1 | schema | batch: metadata, body | batch: metadata, body | … | end mark | footer | footer's length | ARROW1
//! '----------------- checked in pieces of 64 KiB ------------------' '---- the tail, checked by the manifest ----'
//! ```
//! Row `i` of a batch is slot `i` of its block, so a block's buffers are the file's bytes (64-byte
//! aligned in a page-aligned mapping). If a block has empty slots, the file has a last column
//! [`PRESENCE_COLUMN`], false for empty slots. A bit-packed column is a list of as many Booleans
//! per row as a value has bits, lowest first. The footer has the value that the bits count from.
//!
//! **Reading.** Opening reads the tail and each batch's metadata. The footer's custom metadata (key
//! `serac`, JSON) saves opening a read of the data: the block's number, format, smallest and
//! largest values, and the checksums of all pieces. It also names the file's table and checkpoint.
//! A second key (`serac.catalog`) has the catalog of that time, and a third one (`serac.tail`) the
//! tail's checksum. They serve a database that must be salvaged from its data files alone. A piece
//! is checked when a column that touches it is first used (`DataFile::verify`): only a reader of
//! damaged bytes gets the error.

use crate::block::layout::BlockLayout;
use crate::durability::file_system::{FileSystem, StorageFile};
use crate::error::{Result, StorageError};
use crate::freeze::frozen::{BlockSource, FreezeFormat, FrozenBlock, Zone, is_form};
use crate::ids::{BlockNo, MAX_BLOCKS_PER_TABLE, TableId};
use crate::types::TableSchema;
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::Buffer;
use arrow_ipc::reader::FileDecoder;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_ipc::{Block as BatchPlace, Footer};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use serac_sync::atomic::{AtomicBool, Ordering};
use serde::{Deserialize, Serialize};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The column that says which rows of a batch are rows of the table.
pub const PRESENCE_COLUMN: &str = "__serac_present";
/// The footer's key of our metadata.
const METADATA_KEY: &str = "serac";
/// The footer's key of the tail's checksum, and the text before its eight digits.
const TAIL_KEY: &str = "serac.tail";
const TAIL_MARK: &str = "the tail's CRC-32 with zeros here: ";
const TAIL_DIGITS: usize = 8;
/// The footer's key of the catalog.
const CATALOG_KEY: &str = "serac.catalog";
/// Bytes with a checksum of their own.
const PIECE_BYTES: usize = 64 << 10;

/// The manifest's entry for a data file: sizes and checksums.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileSeal {
    /// Name in the data folder.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// The offset of the tail.
    pub tail_from: u64,
    /// CRC-32 of the tail.
    pub tail_crc32: u32,
}

/// The footer's custom metadata.
#[derive(Debug, Serialize, Deserialize)]
struct FileMetadata {
    table: TableId,
    checkpoint_ts: u64,
    tail_from: u64,
    piece_bytes: usize,
    /// CRC-32 of each piece before the tail.
    crc32: Vec<u32>,
    /// One for each batch.
    blocks: Vec<BlockEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct BlockEntry {
    block: u32,
    format: FreezeFormat,
    thaws: u32,
    zones: Vec<Option<Zone>>,
    /// From what packed columns count; empty if no column is packed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    bases: Vec<Option<i64>>,
}

/// Writes sequentially, with a checksum of every piece.
#[derive(Debug)]
struct PieceWriter {
    sink: BufWriter<SequentialFile>,
    at: u64,
    full: Vec<u32>,
    piece: crc32fast::Hasher,
}

#[derive(Debug)]
struct SequentialFile {
    file: Arc<dyn StorageFile>,
    at: u64,
}

impl Write for SequentialFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file.write_all_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl PieceWriter {
    /// The checksums of everything written so far.
    fn checksums(&self) -> Vec<u32> {
        let mut all = self.full.clone();
        if !(self.at as usize).is_multiple_of(PIECE_BYTES) {
            all.push(self.piece.clone().finalize());
        }
        all
    }
}

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let room = PIECE_BYTES - self.at as usize % PIECE_BYTES;
        let bytes = &bytes[..bytes.len().min(room)];
        self.sink.write_all(bytes)?;
        self.piece.update(bytes);
        self.at += bytes.len() as u64;
        if bytes.len() == room {
            self.full.push(std::mem::take(&mut self.piece).finalize());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.sink.flush()
    }
}

/// The schema of a file for blocks whose columns are `arrays`.
fn file_schema(schema: &TableSchema, arrays: &[ArrayRef], has_gaps: bool) -> SchemaRef {
    let mut fields: Vec<Field> = schema
        .columns
        .iter()
        .zip(arrays)
        // A slot without a row may hold NULL in any column.
        .map(|(column, array)| Field::new(&column.name, array.data_type().clone(), column.nullable || has_gaps))
        .collect();
    if has_gaps {
        fields.push(Field::new(PRESENCE_COLUMN, DataType::Boolean, false));
    }
    Arc::new(Schema::new(fields))
}

/// A block on its way into a file.
pub(crate) struct BlockBatch {
    entry: BlockEntry,
    batch: RecordBatch,
}

impl BlockBatch {
    /// The block as a record batch.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] when the block lies in a damaged file.
    pub(crate) fn new(no: BlockNo, block: &FrozenBlock, schema: &TableSchema) -> Result<Self> {
        block.check_all()?;
        let mut arrays = block.file_arrays(schema);
        let schema = file_schema(schema, &arrays, block.presence().is_some());
        if let Some(presence) = block.presence() {
            arrays.push(Arc::new(BooleanArray::new(presence.clone(), None)));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(block.slot_limit() as usize));
        let batch = RecordBatch::try_new_with_options(schema, arrays, &options)?;
        let (format, thaws) = (block.format(), block.thaws());
        let entry = BlockEntry { block: no.0, format, thaws, zones: block.zones(), bases: block.bases() };
        Ok(Self { entry, batch })
    }

    /// The schema of the file that it fits.
    pub(crate) fn schema(&self) -> &SchemaRef {
        self.batch.schema_ref()
    }

    /// Whether the file can hold no other block: an Arrow file has one dictionary per column, and
    /// one width of packed values.
    pub(crate) fn stays_alone(&self) -> bool {
        stays_alone(self.batch.schema_ref())
    }
}

fn stays_alone(schema: &Schema) -> bool {
    schema
        .fields()
        .iter()
        .any(|field| matches!(field.data_type(), DataType::Dictionary(..) | DataType::FixedSizeList(..)))
}

/// The origin of a data file: its table, checkpoint and catalog.
#[derive(Debug, Clone)]
pub(crate) struct FileOrigin {
    pub(crate) table: TableId,
    /// The checkpoint's timestamp.
    pub(crate) checkpoint_ts: u64,
    /// The catalog as the checkpoint has it.
    pub(crate) catalog: Option<Arc<str>>,
}

/// A data file that is being written.
pub(crate) struct DataFileWriter {
    name: String,
    path: PathBuf,
    origin: FileOrigin,
    writer: FileWriter<PieceWriter>,
    blocks: Vec<BlockEntry>,
}

impl DataFileWriter {
    /// Makes the file `name` in `folder`.
    ///
    /// # Errors
    /// An error when that fails.
    pub(crate) fn create(
        folder: &Path,
        name: String,
        origin: FileOrigin,
        schema: &Schema,
        files: &dyn FileSystem,
    ) -> Result<Self> {
        let path = folder.join(&name);
        let file = files.create(&path).map_err(|e| StorageError::io(format!("cannot make {}", path.display()), e))?;
        let sink = BufWriter::with_capacity(1 << 20, SequentialFile { file, at: 0 });
        let sink = PieceWriter { sink, at: 0, full: Vec::new(), piece: crc32fast::Hasher::new() };
        let options = IpcWriteOptions::try_new(64, false, arrow_ipc::MetadataVersion::V5)?;
        let writer =
            FileWriter::try_new_with_options(sink, schema, options).map_err(|error| write_error(&path, error))?;
        Ok(Self { name, path, origin, writer, blocks: Vec::new() })
    }

    /// The schema of its batches.
    pub(crate) fn schema(&self) -> &SchemaRef {
        self.writer.schema()
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.writer.get_ref().at
    }

    /// Adds a block.
    ///
    /// # Errors
    /// An error when it cannot be written.
    pub(crate) fn write(&mut self, block: BlockBatch) -> Result<()> {
        self.writer.write(&block.batch).map_err(|error| write_error(&self.path, error))?;
        self.blocks.push(block.entry);
        Ok(())
    }

    /// Completes the file, syncs and maps it.
    ///
    /// # Errors
    /// An error when one of these fails.
    pub(crate) fn finish(mut self, files: &dyn FileSystem) -> Result<Arc<DataFile>> {
        let path = self.path;
        let io = |e| StorageError::io(format!("cannot write {}", path.display()), e);
        let tail_from = self.writer.get_ref().at;
        let crc32 = self.writer.get_ref().checksums();
        let FileOrigin { table, checkpoint_ts, catalog } = self.origin;
        let (piece_bytes, blocks) = (PIECE_BYTES, std::mem::take(&mut self.blocks));
        let metadata = FileMetadata { table, checkpoint_ts, tail_from, piece_bytes, crc32, blocks };
        let metadata = serde_json::to_string(&metadata).expect("metadata is plain data");
        self.writer.write_metadata(METADATA_KEY, metadata);
        if let Some(catalog) = catalog {
            self.writer.write_metadata(CATALOG_KEY, &*catalog);
        }
        self.writer.write_metadata(TAIL_KEY, format!("{TAIL_MARK}{}", "0".repeat(TAIL_DIGITS)));
        self.writer.finish().map_err(|error| write_error(&path, error))?;
        let sink = self.writer.into_inner().map_err(|error| write_error(&path, error))?;
        let bytes = sink.at;
        let file = sink.sink.into_inner().map_err(|e| io(e.into_error()))?.file;
        // The tail's checksum comes into the tail when that is there.
        let mut tail = vec![0; (bytes - tail_from) as usize];
        read_all(&*file, &mut tail, tail_from).map_err(io)?;
        // `None` if a catalog contains the mark: then the file cannot be salvaged without a
        // manifest.
        if let Some((digits_at, _)) = stated_tail_crc32(&tail) {
            let digits = format!("{:08x}", crc32_of_tail(&tail));
            file.write_all_at(digits.as_bytes(), tail_from + digits_at as u64).map_err(io)?;
        }
        file.sync().map_err(io)?;
        let mapped = files.map(&path).map_err(io)?;
        let tail_crc32 = crc32fast::hash(mapped.get(tail_from as usize..).unwrap_or_default());
        DataFile::over(path, mapped, FileSeal { name: self.name, bytes, tail_from, tail_crc32 })
    }
}

fn read_all(file: &dyn StorageFile, bytes: &mut [u8], from: u64) -> std::io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], from + filled as u64)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
    }
    Ok(())
}

/// The offset and the value of the tail's own checksum, which is written as digits.
fn stated_tail_crc32(tail: &[u8]) -> Option<(usize, u32)> {
    let at = tail.windows(TAIL_MARK.len()).rposition(|window| window == TAIL_MARK.as_bytes())? + TAIL_MARK.len();
    let digits = std::str::from_utf8(tail.get(at..at + TAIL_DIGITS)?).ok()?;
    Some((at, u32::from_str_radix(digits, 16).ok()?))
}

/// The checksum of a tail, with zeros where that stands.
fn crc32_of_tail(tail: &[u8]) -> u32 {
    let mut plain = tail.to_vec();
    if let Some((at, _)) = stated_tail_crc32(tail) {
        plain[at..at + TAIL_DIGITS].fill(b'0');
    }
    crc32fast::hash(&plain)
}

/// The error of Arrow's writer, with the file's name.
fn write_error(path: &Path, error: ArrowError) -> StorageError {
    match error {
        ArrowError::IoError(_, error) => StorageError::io(format!("cannot write {}", path.display()), error),
        error => error.into(),
    }
}

/// A mapped data file.
#[derive(Debug)]
pub struct DataFile {
    path: PathBuf,
    seal: FileSeal,
    bytes: Buffer,
    metadata: FileMetadata,
    /// The pieces that have been verified.
    verified: Vec<AtomicBool>,
}

impl DataFile {
    /// Maps the file that `seal` describes.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] when its length or tail does not match the seal.
    pub(crate) fn open(folder: &Path, seal: FileSeal, files: &dyn FileSystem) -> Result<Arc<Self>> {
        let path = folder.join(&seal.name);
        let bytes = files.map(&path).map_err(|e| StorageError::io(format!("cannot read {}", path.display()), e))?;
        Self::over(path, bytes, seal)
    }

    /// Maps a file that no manifest describes: its tail has a checksum of its own.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] when it is not a whole data file.
    pub(crate) fn open_unnamed(folder: &Path, name: &str, files: &dyn FileSystem) -> Result<Arc<Self>> {
        let path = folder.join(name);
        let bytes = files.map(&path).map_err(|e| StorageError::io(format!("cannot read {}", path.display()), e))?;
        let corrupt = |detail: String| StorageError::Corrupt { file: path.clone(), offset: 0, detail };
        let tail_from = metadata_of(&bytes).map_err(|e| corrupt(e.to_string()))?.tail_from;
        let tail = bytes.get(tail_from as usize..).ok_or_else(|| corrupt("its tail lies outside of it".into()))?;
        if stated_tail_crc32(tail).is_none_or(|(_, stated)| stated != crc32_of_tail(tail)) {
            return Err(corrupt("the checksum of its tail is wrong".into()));
        }
        let tail_crc32 = crc32fast::hash(tail);
        let seal = FileSeal { name: name.to_owned(), bytes: bytes.len() as u64, tail_from, tail_crc32 };
        Self::over(path, bytes, seal)
    }

    fn over(path: PathBuf, bytes: Buffer, seal: FileSeal) -> Result<Arc<Self>> {
        let corrupt = |offset: u64, detail: String| StorageError::Corrupt { file: path.clone(), offset, detail };
        if bytes.len() as u64 != seal.bytes {
            return Err(corrupt(0, format!("it has {} bytes, not {}", bytes.len(), seal.bytes)));
        }
        let tail = bytes.get(seal.tail_from as usize..).unwrap_or_default();
        if crc32fast::hash(tail) != seal.tail_crc32 {
            return Err(corrupt(seal.tail_from, "the checksum of its tail is wrong".into()));
        }
        let footer = footer_of(&bytes).map_err(|e| corrupt(seal.tail_from, e.to_string()))?;
        let metadata = metadata_of(&bytes).map_err(|e| corrupt(seal.tail_from, e.to_string()))?;
        let pieces = (seal.tail_from as usize).div_ceil(metadata.piece_bytes.max(1));
        let batches = footer.recordBatches().map_or(0, |batches| batches.len());
        let fits = metadata.piece_bytes > 0 && metadata.crc32.len() == pieces && metadata.blocks.len() == batches;
        if !fits || seal.tail_from > seal.bytes {
            return Err(corrupt(seal.tail_from, "its metadata does not fit its content".into()));
        }
        let verified = metadata.crc32.iter().map(|_| AtomicBool::new(false)).collect();
        Ok(Arc::new(Self { path, seal, bytes, metadata, verified }))
    }

    /// The manifest's entry for the file.
    pub fn seal(&self) -> &FileSeal {
        &self.seal
    }

    /// Writes a durable copy of the same name into `folder`. Damaged bytes are copied as they are.
    ///
    /// # Errors
    /// An error when it cannot be written.
    pub(crate) fn copy_to(&self, folder: &Path, files: &dyn FileSystem) -> Result<()> {
        let path = folder.join(&self.seal.name);
        let copy = || {
            let copy = files.create(&path)?;
            copy.write_all_at(&self.bytes, 0)?;
            copy.sync()
        };
        copy().map_err(|error| StorageError::io(format!("cannot write {}", path.display()), error))
    }

    /// Its table.
    pub(crate) fn table(&self) -> TableId {
        self.metadata.table
    }

    /// The timestamp of the checkpoint that wrote it.
    pub(crate) fn checkpoint_ts(&self) -> u64 {
        self.metadata.checkpoint_ts
    }

    /// The catalog of that checkpoint, if the file has it.
    pub(crate) fn catalog(&self) -> Option<&str> {
        custom_metadata(&footer_of(&self.bytes).ok()?, CATALOG_KEY)
    }

    /// Batches in it.
    pub(crate) fn batch_count(&self) -> usize {
        self.metadata.blocks.len()
    }

    /// The block that a batch was.
    pub(crate) fn block_no(&self, batch: u32) -> BlockNo {
        BlockNo(self.metadata.blocks[batch as usize].block)
    }

    /// Whether it can hold only one block.
    pub(crate) fn stays_alone(&self) -> bool {
        footer_of(&self.bytes).is_ok_and(|footer| {
            footer.schema().is_some_and(|schema| stays_alone(&arrow_ipc::convert::fb_to_schema(schema)))
        })
    }

    fn corrupt(&self, offset: usize, detail: impl Into<String>) -> StorageError {
        StorageError::Corrupt { file: self.path.clone(), offset: offset as u64, detail: detail.into() }
    }

    /// Checks the pieces that `buffer` touches. A buffer outside of the mapping is not checked
    /// here.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] when a piece is damaged.
    pub(crate) fn verify(&self, buffer: &Buffer) -> Result<()> {
        match (buffer.as_ptr() as usize).checked_sub(self.bytes.as_ptr() as usize) {
            Some(from) if !buffer.is_empty() && from < self.bytes.len() => self.verify_range(from, buffer.len()),
            _ => Ok(()),
        }
    }

    fn verify_range(&self, from: usize, len: usize) -> Result<()> {
        let (size, end) = (self.metadata.piece_bytes, self.seal.tail_from as usize);
        if len == 0 || from.checked_add(len).is_none_or(|to| to > end) {
            return Err(self.corrupt(from, "a part lies outside of what is checked"));
        }
        for piece in from / size..=(from + len - 1) / size {
            // Relaxed: the bytes do not change; at worst a piece is checked twice.
            if !self.verified[piece].load(Ordering::Relaxed) {
                let bytes = &self.bytes[piece * size..end.min((piece + 1) * size)];
                if crc32fast::hash(bytes) != self.metadata.crc32[piece] {
                    return Err(self.corrupt(piece * size, format!("the checksum of {} bytes is wrong", bytes.len())));
                }
                self.verified[piece].store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// The bytes of a message, of which the metadata is checked.
    fn message(&self, place: &BatchPlace) -> Result<Buffer> {
        let outside = || self.corrupt(0, "a batch lies outside of the file");
        let number = |number: i64| usize::try_from(number).map_err(|_| outside());
        let (from, metadata) = (number(place.offset())?, number(place.metaDataLength().into())?);
        let len = metadata.checked_add(number(place.bodyLength())?).ok_or_else(outside)?;
        if from.checked_add(len).is_none_or(|to| to > self.seal.tail_from as usize) {
            return Err(outside());
        }
        self.verify_range(from, metadata)?;
        let message = self.bytes.slice_with_length(from, len);
        // The message's own bytes say the same: a mark, the length of the rest of the metadata,
        // that rest, which has the body's length.
        let told = message.get(4..8).and_then(|length| length.try_into().ok()).map(u32::from_le_bytes);
        let head = message.get(8..metadata).and_then(|head| arrow_ipc::root_as_message(head).ok());
        match head {
            Some(head)
                if told.is_some_and(|told| told as usize == metadata - 8)
                    && head.bodyLength() == place.bodyLength() =>
            {
                Ok(message)
            }
            _ => Err(self.corrupt(from, "a batch is not where the footer says")),
        }
    }

    /// Frozen blocks over the given batches, in their order.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] when the file's structure or a presence column is damaged, or does
    /// not fit the table.
    pub(crate) fn blocks(
        self: &Arc<Self>,
        table: &TableSchema,
        layout: &BlockLayout,
        batches: &[u32],
    ) -> Result<Vec<(BlockNo, FrozenBlock)>> {
        let footer = footer_of(&self.bytes)?;
        let schema = footer.schema().filter(is_readable).ok_or_else(|| self.corrupt(0, "it has no schema"))?;
        let schema = Arc::new(arrow_ipc::convert::fb_to_schema(schema));
        let columns = table.columns.len();
        if schema.fields().len() != columns && schema.fields().len() != columns + 1 {
            return Err(self.corrupt(0, format!("it has {} columns, the table {columns}", schema.fields().len())));
        }
        // What is decoded is not validated, so that its types are checked before.
        let types = schema.fields().iter().map(|field| field.data_type());
        let mut pairs = types.clone().zip(&table.columns);
        if let Some((found, column)) = pairs.find(|(found, column)| !is_form(column.column_type, found)) {
            return Err(self.corrupt(0, format!("{found} is no form of the column \"{}\"", column.name)));
        }
        if types.skip(columns).any(|found| *found != DataType::Boolean) {
            return Err(self.corrupt(0, "the presence column is not boolean"));
        }
        let decoder = FileDecoder::new(schema.clone(), footer.version()).with_require_alignment(true);
        // SAFETY: the files are our own and were valid when written. Nothing is read before its
        // checksum was verified: the tail by `over` (and `open_unnamed`), metadata by `message`,
        // data by `FrozenBlock::check`, before the block is published.
        let mut decoder = unsafe { decoder.with_skip_validation(true) };
        for place in footer.dictionaries().into_iter().flatten() {
            let message = self.message(place)?;
            decoder
                .read_dictionary(place, &message)
                .map_err(|e| self.corrupt(place.offset() as usize, e.to_string()))?;
        }
        let places = footer.recordBatches().ok_or_else(|| self.corrupt(0, "it has no batches"))?;
        let read = |&batch: &u32| {
            if batch as usize >= places.len() {
                return Err(self.corrupt(0, format!("it has no batch {batch}")));
            }
            let (place, entry) = (places.get(batch as usize), &self.metadata.blocks[batch as usize]);
            let corrupt = |detail: &str| self.corrupt(place.offset() as usize, detail);
            let message = self.message(place)?;
            if !has_whole_lists(&schema, &message) {
                return Err(corrupt("its schema says another width of packed values"));
            }
            let rows = decoder.read_record_batch(place, &message).map_err(|e| corrupt(&e.to_string()))?;
            let rows = rows.ok_or_else(|| corrupt("a batch is missing"))?;
            if rows.num_rows() > layout.slot_count() as usize || entry.block >= MAX_BLOCKS_PER_TABLE {
                return Err(corrupt("a batch does not fit the table"));
            }
            let limit = rows.num_rows() as u32;
            let presence = match rows.columns().get(columns).map(|column| column.as_boolean()) {
                None => None,
                Some(presence) => {
                    self.verify(presence.values().inner())?;
                    Some(presence.values().clone())
                }
            };
            let arrays = &rows.columns()[..columns];
            let told = (&*entry.zones, &*entry.bases);
            let block = FrozenBlock::from_file_arrays(table, entry.format, limit, presence, arrays, told, entry.thaws)
                .map_err(|e| corrupt(&e.to_string()))?;
            Ok((BlockNo(entry.block), block.with_source(BlockSource::new(self.clone(), batch, columns))))
        };
        batches.iter().map(read).collect()
    }
}

fn custom_metadata<'a>(footer: &Footer<'a>, key: &str) -> Option<&'a str> {
    footer.custom_metadata().into_iter().flatten().find(|pair| pair.key() == Some(key))?.value()
}

fn metadata_of(bytes: &Buffer) -> Result<FileMetadata> {
    let metadata = footer_of(bytes).map(|footer| custom_metadata(&footer, METADATA_KEY).unwrap_or_default())?;
    let broken = |e| StorageError::from(ArrowError::IpcError(format!("a data file's metadata: {e}")));
    serde_json::from_str(metadata).map_err(broken)
}

/// Whether Arrow can make a schema of a footer's: it panics at what it does not know.
fn is_readable(schema: &arrow_ipc::Schema<'_>) -> bool {
    use arrow_ipc::{DateUnit, Endianness, IntervalUnit, Precision, TimeUnit, Type};
    let is_known = |field: arrow_ipc::Field<'_>| match field.type_type() {
        Type::Bool | Type::Utf8 | Type::Binary | Type::Utf8View | Type::BinaryView => true,
        Type::Int => field.type_as_int().is_some_and(|int| matches!(int.bitWidth(), 8 | 16 | 32 | 64)),
        Type::FloatingPoint => {
            field.type_as_floating_point().is_some_and(|float| (0..=Precision::ENUM_MAX).contains(&float.precision().0))
        }
        Type::Decimal => field.type_as_decimal().is_some_and(|decimal| {
            let fits = u8::try_from(decimal.precision()).is_ok() && i8::try_from(decimal.scale()).is_ok();
            fits && matches!(decimal.bitWidth(), 32 | 64 | 128 | 256)
        }),
        Type::Date => field.type_as_date().is_some_and(|date| (0..=DateUnit::ENUM_MAX).contains(&date.unit().0)),
        Type::Time => field.type_as_time().is_some_and(|time| match time.bitWidth() {
            32 => matches!(time.unit(), TimeUnit::SECOND | TimeUnit::MILLISECOND),
            64 => matches!(time.unit(), TimeUnit::MICROSECOND | TimeUnit::NANOSECOND),
            _ => false,
        }),
        Type::Timestamp => field.type_as_timestamp().is_some_and(|at| (0..=TimeUnit::ENUM_MAX).contains(&at.unit().0)),
        Type::Interval => {
            field.type_as_interval().is_some_and(|length| (0..=IntervalUnit::ENUM_MAX).contains(&length.unit().0))
        }
        Type::FixedSizeBinary => field.type_as_fixed_size_binary().is_some_and(|bytes| bytes.byteWidth() > 0),
        Type::FixedSizeList => {
            let is_bit = |bit: arrow_ipc::Field<'_>| bit.type_type() == Type::Bool && bit.dictionary().is_none();
            let bits = field.children().filter(|bits| bits.len() == 1 && is_bit(bits.get(0)));
            bits.is_some() && field.type_as_fixed_size_list().is_some_and(|list| (1..=64).contains(&list.listSize()))
        }
        _ => false,
    };
    let has_known_codes = |field: arrow_ipc::Field<'_>| match field.dictionary() {
        Some(dictionary) => dictionary.indexType().is_some_and(|int| matches!(int.bitWidth(), 8 | 16 | 32 | 64)),
        None => true,
    };
    let fields = schema.fields();
    schema.endianness() == Endianness::Little
        && fields.is_some_and(|fields| fields.iter().all(|field| is_known(field) && has_known_codes(field)))
}

/// Whether a record batch has as many values for each list as the lists of a readable schema say:
/// Arrow panics if there are fewer. A node describes an array, and that of a list stands before
/// that of its values.
fn has_whole_lists(schema: &Schema, message: &[u8]) -> bool {
    let head = message.get(8..).and_then(|head| arrow_ipc::root_as_message(head).ok());
    let Some(nodes) = head.and_then(|head| head.header_as_record_batch()?.nodes()) else { return false };
    let mut nodes = nodes.iter();
    schema.fields().iter().all(|field| match (field.data_type(), nodes.next()) {
        (DataType::FixedSizeList(_, width), Some(list)) => {
            let values = list.length().checked_mul((*width).into());
            nodes.next().is_some_and(|node| Some(node.length()) == values && node.null_count() == 0)
        }
        (_, node) => node.is_some(),
    })
}

fn footer_of(bytes: &Buffer) -> Result<Footer<'_>> {
    let broken = |detail: String| StorageError::from(arrow_schema::ArrowError::IpcError(detail));
    let end = bytes.len().checked_sub(10).ok_or_else(|| broken("a data file is too short".into()))?;
    let len = arrow_ipc::reader::read_footer_length(bytes[end..].try_into().expect("ten bytes"))?;
    let from = end.checked_sub(len).ok_or_else(|| broken("a data file's footer is too long".into()))?;
    arrow_ipc::root_as_footer(&bytes[from..end]).map_err(|e| broken(format!("a data file's footer: {e:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durability::file_system::RealFileSystem;
    use crate::types::{ColumnSchema, ColumnType};
    use arrow_array::{Array, Decimal64Array, Int32Array, StringViewArray};

    fn schema() -> TableSchema {
        let column = |name: &str, column_type| ColumnSchema { name: name.into(), column_type, nullable: true };
        TableSchema {
            columns: vec![
                column("number", ColumnType::Int32),
                column("text", ColumnType::Utf8),
                column("price", ColumnType::Decimal { precision: 9, scale: 2 }),
            ],
        }
    }

    fn block(presence: Option<&[bool]>) -> FrozenBlock {
        let prices = Decimal64Array::from(vec![150, -1, 99]).with_precision_and_scale(9, 2).unwrap();
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(vec![Some(7), None, Some(-3)])),
            Arc::new(StringViewArray::from(vec!["short", "a text that is longer than a view", "x"])),
            Arc::new(prices),
        ];
        let presence = presence.map(|bits| bits.iter().copied().collect());
        let block = FrozenBlock::from_arrays(&schema(), FreezeFormat::View, 3, presence, &arrays, &[None; 3], 0);
        block.unwrap().with_zones(&schema())
    }

    fn write(folder: &Path, blocks: &[(u32, &FrozenBlock)]) -> Arc<DataFile> {
        let mut writer = None;
        for (no, block) in blocks {
            let batch = BlockBatch::new(BlockNo(*no), block, &schema()).unwrap();
            let writer = writer.get_or_insert_with(|| {
                let origin = FileOrigin { table: TableId(1), checkpoint_ts: 7, catalog: Some("all".into()) };
                DataFileWriter::create(folder, "file.arrow".into(), origin, batch.schema(), &RealFileSystem).unwrap()
            });
            writer.write(batch).unwrap();
        }
        writer.unwrap().finish(&RealFileSystem).unwrap()
    }

    #[test]
    fn blocks_come_back_from_a_file_without_a_copy_and_any_reader_finds_the_rows() {
        let folder = tempfile::tempdir().unwrap();
        let layout = BlockLayout::new(&schema()).unwrap();
        let written = write(folder.path(), &[(4, &block(None)), (9, &block(None))]);
        let file = DataFile::open(folder.path(), written.seal().clone(), &RealFileSystem).unwrap();
        let blocks = file.blocks(&schema(), &layout, &[0, 1]).unwrap();
        assert_eq!(blocks.iter().map(|(no, _)| no.0).collect::<Vec<_>>(), [4, 9]);
        let mapping = file.bytes.as_ptr() as usize..file.bytes.as_ptr() as usize + file.bytes.len();
        for (_, found) in &blocks {
            assert_eq!(found.zone(crate::ids::ColumnId(0)), Some(Zone { min: -3, max: 7 }));
            found.check_all().unwrap();
            let arrays = found.arrays(&schema());
            assert_eq!(arrays, block(None).arrays(&schema()));
            for buffer in arrays.iter().flat_map(|array| array.to_data().buffers().to_vec()) {
                assert!(mapping.contains(&(buffer.as_ptr() as usize)) && (buffer.as_ptr() as usize).is_multiple_of(64));
            }
        }
        let plain = std::fs::File::open(folder.path().join("file.arrow")).unwrap();
        let batches: Vec<_> =
            arrow_ipc::reader::FileReader::try_new(plain, None).unwrap().map(|batch| batch.unwrap()).collect();
        assert_eq!(batches.len(), 2);
        assert_eq!(batches[0].columns(), block(None).arrays(&schema()));
        assert_eq!(batches[0].schema().field(1).name(), "text");
    }

    /// Packed values are lists of bits in the file, and the mapped bits answer readers.
    #[test]
    fn packed_values_come_back_as_bits() {
        let folder = tempfile::tempdir().unwrap();
        let layout = BlockLayout::new(&schema()).unwrap();
        let packed = block(None).reencode(FreezeFormat::Compact);
        assert_eq!(packed.bases(), [Some(-3), None, Some(-1)]);
        let file = write(folder.path(), &[(4, &packed)]);
        assert!(file.stays_alone());
        let (_, found) = file.blocks(&schema(), &layout, &[0]).unwrap().remove(0);
        found.check_all().unwrap();
        assert_eq!(found.bases(), packed.bases());
        assert_eq!(found.arrays(&schema()), packed.arrays(&schema()));
        let mapping = file.bytes.as_ptr() as usize..file.bytes.as_ptr() as usize + file.bytes.len();
        assert!(found.addresses().all(|buffer| mapping.contains(&buffer.start)));
        // Seven is ten above the base, and -3 is the base. The lowest bit comes first.
        let plain = std::fs::File::open(folder.path().join("file.arrow")).unwrap();
        let batch = arrow_ipc::reader::FileReader::try_new(plain, None).unwrap().next().unwrap().unwrap();
        let lists = batch.column(0).as_fixed_size_list();
        assert!(lists.is_valid(0) && lists.is_null(1) && lists.is_valid(2));
        assert_eq!(lists.value(0).as_boolean(), &BooleanArray::from(vec![false, true, false, true]));
        assert_eq!(lists.value(2).as_boolean(), &BooleanArray::from(vec![false; 4]));
    }

    #[test]
    fn empty_slots_are_told_by_the_presence_column() {
        let folder = tempfile::tempdir().unwrap();
        let layout = BlockLayout::new(&schema()).unwrap();
        let file = write(folder.path(), &[(0, &block(Some(&[true, true, false])))]);
        let (_, found) = file.blocks(&schema(), &layout, &[0]).unwrap().remove(0);
        assert_eq!((found.rows(), found.slot_limit()), (2, 3));
        assert_eq!(found.zone(crate::ids::ColumnId(0)), Some(Zone { min: 7, max: 7 }));
        let plain = std::fs::File::open(folder.path().join("file.arrow")).unwrap();
        let batch = arrow_ipc::reader::FileReader::try_new(plain, None).unwrap().next().unwrap().unwrap();
        let present = batch.column_by_name(PRESENCE_COLUMN).unwrap().as_boolean();
        assert_eq!(present.iter().collect::<Vec<_>>(), [Some(true), Some(true), Some(false)]);
    }

    /// A tail whose checksum is right, and that says what cannot be, is damage: wherever a bit of
    /// it is another, the file is refused or read, and nothing panics.
    #[test]
    fn a_tail_that_says_what_cannot_be_is_damage() {
        [FreezeFormat::View, FreezeFormat::Compact].into_iter().for_each(refuses_other_tails);
    }

    fn refuses_other_tails(format: FreezeFormat) {
        let folder = tempfile::tempdir().unwrap();
        let layout = BlockLayout::new(&schema()).unwrap();
        let block = block(None).reencode(format);
        let written = write(folder.path(), &[(4, &block), (9, &block)]);
        let path = folder.path().join("file.arrow");
        let whole = std::fs::read(&path).unwrap();
        let tail_from = written.seal().tail_from as usize;
        let read = |bytes: &[u8]| {
            // Aligned, as a mapping is.
            let mut aligned = arrow_buffer::MutableBuffer::new(bytes.len());
            aligned.extend_from_slice(bytes);
            let tail_crc32 = crc32fast::hash(&bytes[tail_from..]);
            let seal = FileSeal { tail_crc32, bytes: bytes.len() as u64, ..written.seal().clone() };
            let file = DataFile::over(path.clone(), aligned.into(), seal)?;
            for (_, block) in file.blocks(&schema(), &layout, &[0, 1])? {
                block.check_all()?;
                block.arrays(&schema());
            }
            Ok(())
        };
        read(&whole).unwrap();
        let is_refused = |bytes: &[u8], what: &dyn std::fmt::Display| match read(bytes) {
            Ok(()) => false,
            Err(StorageError::Corrupt { .. }) => true,
            Err(other) => panic!("{what}: {other}"),
        };
        let mut refused = 0;
        for at in tail_from..whole.len() {
            for bit in 0..8 {
                let mut other = whole.clone();
                other[at] ^= 1 << bit;
                refused += u32::from(is_refused(&other, &format!("byte {at}, bit {bit}")));
            }
        }
        assert!(refused > 1_000, "{refused}");
        let (told, other) = ("\"piece_bytes\":65536", "\"piece_bytes\":    0");
        let at = whole.windows(told.len()).rposition(|window| window == told.as_bytes()).unwrap();
        let mut without_pieces = whole.clone();
        without_pieces[at..at + other.len()].copy_from_slice(other.as_bytes());
        assert!(is_refused(&without_pieces, &other));
    }

    /// Every bit of the file is vouched for: flipping any makes the opening or the first use of
    /// what it belongs to fail.
    #[test]
    fn damage_anywhere_is_found() {
        [FreezeFormat::View, FreezeFormat::Compact].into_iter().for_each(finds_damage);
    }

    fn finds_damage(format: FreezeFormat) {
        let folder = tempfile::tempdir().unwrap();
        let layout = BlockLayout::new(&schema()).unwrap();
        let block = block(None).reencode(format);
        let written = write(folder.path(), &[(4, &block)]);
        let seal = written.seal().clone();
        let path = folder.path().join("file.arrow");
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            // Another file under the same name: the mapped one keeps its bytes.
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, &damaged).unwrap();
            let read = || {
                let file = DataFile::open(folder.path(), seal.clone(), &RealFileSystem)?;
                file.blocks(&schema(), &layout, &[0])?[0].1.check_all()
            };
            assert!(matches!(read(), Err(StorageError::Corrupt { .. })), "byte {at}");
        }
        // The same without the manifest's word. Two digits say the same number in capitals; nothing
        // else may be another.
        let undamaged = block.arrays(&schema());
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, &damaged).unwrap();
            let read = || {
                let file = DataFile::open_unnamed(folder.path(), "file.arrow", &RealFileSystem)?;
                let (_, block) = file.blocks(&schema(), &layout, &[0])?.remove(0);
                block.check_all().map(|()| block.arrays(&schema()))
            };
            match read() {
                Ok(arrays) => assert!(whole[at].eq_ignore_ascii_case(&damaged[at]) && arrays == undamaged, "byte {at}"),
                Err(error) => assert!(matches!(error, StorageError::Corrupt { .. }), "byte {at}: {error}"),
            }
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert!(matches!(DataFile::open(folder.path(), seal, &RealFileSystem), Err(StorageError::Corrupt { .. })));
    }
}
