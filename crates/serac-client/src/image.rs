//! Images: tables as Arrow record batches whose buffers lie apart from their description.
//!
//! ```text
//! manifest (small, copied)                        range (large, in place)
//! pieces: where in the range what lies   ──────▶  | file of a checkpoint | sealed memory | … |
//! for each table a stream of Arrow IPC:              ▲
//!   schema, then per batch its dictionaries          │ offsets in the headers count from the
//!   and its header, all without bodies     ──────────┘ range's beginning
//! ```
//! An image has one *range* of addresses. The manifest says which *pieces* of the range come from
//! which *source*. A source is a file or sealed memory by an open descriptor, memory of another
//! machine by its address, or the client's own memory, which the other side has filled. The caller
//! puts the pieces in their places and gives the range to [`Manifest::read`], which makes arrays in
//! place.
//!
//! **Checks.** [`Manifest::decode`] and [`Manifest::read`] take any bytes: they end with an error,
//! never with a panic, and read no byte outside of the pieces. [`Manifest::read`] checks every
//! value for which Arrow has a rule (offsets, views, texts). [`Manifest::read_trusted`] leaves
//! these checks out, for a holder that is trusted to write valid arrays.

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_data::UnsafeFlag;
use arrow_ipc::reader::{RecordBatchDecoder, read_dictionary_impl};
use arrow_ipc::{FieldNode, Message, MessageHeader, MetadataVersion};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The first bytes of a manifest: its kind and version.
pub const MANIFEST_MARK: [u8; 8] = *b"SERACIM1";
/// The longest manifest, in bytes.
pub const MOST_MANIFEST_BYTES: usize = 256 << 20;
/// The longest range, in bytes.
pub const MOST_RANGE_BYTES: u64 = 1 << 44;
/// The most sources of an image.
pub const MOST_SOURCES: usize = 1 << 16;
/// The most pieces of an image.
pub const MOST_PIECES: usize = 1 << 20;
/// The most tables of an image.
pub const MOST_TABLES: usize = 1024;
/// The most columns of a table of an image.
pub const MOST_COLUMNS: usize = 1 << 16;
/// Buffers begin in the range at multiples of this, if their source allows it.
pub const ALIGNMENT: u64 = 64;
/// Pieces begin at multiples of this, in the range and in a mapped source. No system has longer
/// pages.
pub const PIECE_ALIGNMENT: u64 = 64 << 10;
/// How deeply types may contain each other.
const MOST_DEPTH: usize = 16;

/// The error of an image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The bytes are not a valid manifest or request.
    #[error("malformed image: {0}")]
    Malformed(String),
    /// Arrow refuses its arrays.
    #[error("malformed image: {0}")]
    Arrow(#[from] ArrowError),
    /// The system refuses a part of it.
    #[error("the image cannot be mapped: {0}")]
    Map(#[from] std::io::Error),
}

fn malformed(what: impl Into<String>) -> ImageError {
    ImageError::Malformed(what.into())
}

type Result<T> = std::result::Result<T, ImageError>;

/// Which tables an image is to show: JSON, `{"tables": [{"table": "lineitem"}]}`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRequest {
    /// The tables, all of the same snapshot.
    pub tables: Vec<TableRequest>,
    /// The form of short decimals.
    #[serde(default)]
    pub decimals: DecimalChoice,
    /// The form of texts and binary values.
    #[serde(default)]
    pub strings: StringChoice,
    /// How long the holder shall keep the image, in milliseconds; at most as long as it keeps any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
}

/// A table of an image.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableRequest {
    /// Its schema, in SQL's sense.
    #[serde(default = "default_namespace")]
    pub schema: String,
    /// Its name.
    pub table: String,
    /// Columns by name, in the order wanted; all if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
}

fn default_namespace() -> String {
    "public".into()
}

/// The form of decimals of up to 18 digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DecimalChoice {
    /// 64 bits, as they are stored: nothing is copied.
    #[default]
    Stored,
    /// 128 bits, which every Arrow implementation knows. The values are copied.
    Decimal128,
}

/// The form of texts and binary values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StringChoice {
    /// The form in which the table freezes. Blocks in another form are converted.
    #[default]
    Stored,
    /// Views.
    View,
    /// Offsets.
    Utf8,
    /// Dictionaries of 16-bit codes, each batch with its own.
    Dictionary,
}

impl SnapshotRequest {
    /// All columns of these tables, by schema and name.
    pub fn new<'a>(tables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let table =
            |(schema, table): (&str, &str)| TableRequest { schema: schema.into(), table: table.into(), columns: None };
        Self { tables: tables.into_iter().map(table).collect(), ..Self::default() }
    }

    /// The request as it is sent.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a request is plain data")
    }

    /// Reads a request.
    ///
    /// # Errors
    /// When the bytes are not a request, or it names no table, or too many tables or columns.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let request: Self = serde_json::from_slice(bytes).map_err(|error| malformed(format!("request: {error}")))?;
        let columns = request.tables.iter().filter_map(|table| table.columns.as_ref()).map(Vec::len).max();
        match request.tables.len() {
            1..=MOST_TABLES if columns.unwrap_or(0) <= MOST_COLUMNS => Ok(request),
            1..=MOST_TABLES => Err(malformed(format!("a table of an image has at most {MOST_COLUMNS} columns"))),
            _ => Err(malformed(format!("an image has 1 to {MOST_TABLES} tables"))),
        }
    }
}

/// Where pieces of the range come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A file that nobody changes.
    File {
        /// Its number among the descriptors that come with the manifest.
        descriptor: u32,
        /// Its length.
        bytes: u64,
    },
    /// Memory that is sealed against any change.
    Memory {
        /// Its number among the descriptors that come with the manifest.
        descriptor: u32,
        /// Its length.
        bytes: u64,
    },
    /// Memory of another machine, to be read from there.
    Remote {
        /// Its address there.
        address: u64,
        /// The key by which the network card knows it.
        key: u64,
        /// Its length.
        bytes: u64,
    },
    /// Nothing is to be done: the other side has put the bytes into their places.
    Placed {
        /// The number of bytes.
        bytes: u64,
    },
}

impl Source {
    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        match *self {
            Self::File { bytes, .. }
            | Self::Memory { bytes, .. }
            | Self::Remote { bytes, .. }
            | Self::Placed { bytes } => bytes,
        }
    }
}

/// A part of the range that comes from one source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where in the range it begins.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// The number of its source.
    pub source: u32,
    /// Where in the source it begins.
    pub source_offset: u64,
}

/// A table of an image, as the manifest has it.
#[derive(Clone, PartialEq, Debug)]
pub struct TableManifest {
    /// Its schema, in SQL's sense.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Messages of an Arrow IPC stream without bodies: the schema, and per batch its dictionaries
    /// and its header. The offsets of buffers count from the range's beginning.
    pub messages: Buffer,
}

/// The description of an image: its range, sources, pieces and tables.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Manifest {
    /// The length of the range in bytes.
    pub range_bytes: u64,
    /// Where pieces come from.
    pub sources: Vec<Source>,
    /// The pieces, by rising offsets in the range. No two overlap.
    pub pieces: Vec<Piece>,
    /// The tables, in the order of the request.
    pub tables: Vec<TableManifest>,
    /// Bytes of buffers that the holder shares where they lie. A buffer counts once for each batch
    /// that has it.
    pub shared_bytes: u64,
    /// Bytes of buffers that were copied for this image.
    pub copied_bytes: u64,
    /// How long the holder keeps the image from its answer on.
    pub lease: Duration,
}

/// A table of an image.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its schema, in SQL's sense.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its columns.
    pub schema: SchemaRef,
    /// Its rows. The batches live as long as anybody holds them.
    pub batches: Vec<RecordBatch>,
}

/// Appends a message of Arrow IPC behind its length.
pub fn put_message(out: &mut Vec<u8>, message: &[u8]) {
    let padded = message.len().next_multiple_of(8);
    out.extend_from_slice(&[0xff; 4]);
    out.extend_from_slice(&(padded as u32).to_le_bytes());
    out.extend_from_slice(message);
    out.resize(out.len() + padded - message.len(), 0);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Takes numbers and bytes off the front of a manifest.
struct Take<'a> {
    all: &'a Buffer,
    at: usize,
}

impl<'a> Take<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(count).ok_or_else(|| malformed("a length is too large"))?;
        let bytes = self.all.as_slice().get(self.at..end).ok_or_else(|| malformed("the manifest is cut off"))?;
        self.at = end;
        Ok(bytes)
    }

    fn long(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.bytes(8)?.try_into().expect("eight bytes")))
    }

    fn number(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes(4)?.try_into().expect("four bytes")))
    }

    fn text(&mut self) -> Result<String> {
        let length = self.number()? as usize;
        let text = std::str::from_utf8(self.bytes(length)?).map_err(|_| malformed("a name is no text"))?;
        Ok(text.into())
    }

    /// Reads the number of the following items, each of which takes at least `least_bytes` bytes.
    fn count(&mut self, what: &str, most: usize, least_bytes: usize) -> Result<usize> {
        let count = self.number()? as usize;
        if count > most || count > (self.all.len() - self.at) / least_bytes {
            return Err(malformed(format!("there are {count} {what}")));
        }
        Ok(count)
    }
}

impl Manifest {
    /// The manifest as it is sent: little-endian numbers.
    pub fn encode(&self) -> Vec<u8> {
        let messages: usize = self.tables.iter().map(|table| table.messages.len() + 64).sum();
        let mut out = Vec::with_capacity(64 + 32 * (self.sources.len() + self.pieces.len()) + messages);
        out.extend_from_slice(&MANIFEST_MARK);
        let lease = u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX);
        for figure in [self.range_bytes, self.shared_bytes, self.copied_bytes, lease] {
            out.extend_from_slice(&figure.to_le_bytes());
        }
        for count in [self.sources.len(), self.pieces.len(), self.tables.len()] {
            out.extend_from_slice(&(count as u32).to_le_bytes());
        }
        for source in &self.sources {
            let (kind, descriptor, address, key) = match *source {
                Source::File { descriptor, .. } => (0u32, descriptor, 0, 0),
                Source::Memory { descriptor, .. } => (1, descriptor, 0, 0),
                Source::Remote { address, key, .. } => (2, 0, address, key),
                Source::Placed { .. } => (3, 0, 0, 0),
            };
            out.extend_from_slice(&kind.to_le_bytes());
            out.extend_from_slice(&descriptor.to_le_bytes());
            [address, key, source.bytes()].iter().for_each(|figure| out.extend_from_slice(&figure.to_le_bytes()));
        }
        for piece in &self.pieces {
            [piece.offset, piece.bytes, piece.source_offset]
                .iter()
                .for_each(|figure| out.extend_from_slice(&figure.to_le_bytes()));
            out.extend_from_slice(&piece.source.to_le_bytes());
        }
        for table in &self.tables {
            put_text(&mut out, &table.namespace);
            put_text(&mut out, &table.name);
            out.extend_from_slice(&(table.messages.len() as u64).to_le_bytes());
            // Flatbuffers are read where they lie.
            out.resize(out.len().next_multiple_of(8), 0);
            out.extend_from_slice(&table.messages);
        }
        out
    }

    /// Reads a manifest. Only [`read`](Self::read) checks the messages of its tables.
    ///
    /// # Errors
    /// When the bytes are not a manifest, or contradict themselves.
    pub fn decode(bytes: Vec<u8>) -> Result<Self> {
        if bytes.len() > MOST_MANIFEST_BYTES {
            return Err(malformed("the manifest is too long"));
        }
        let mut all = Buffer::from_vec(bytes);
        if all.as_ptr().align_offset(8) != 0 {
            all = Buffer::from_slice_ref(all.as_slice());
        }
        let mut take = Take { all: &all, at: 0 };
        if take.bytes(8)? != MANIFEST_MARK {
            return Err(malformed("it is no manifest of this version"));
        }
        let (range_bytes, shared_bytes, copied_bytes) = (take.long()?, take.long()?, take.long()?);
        let lease = Duration::from_millis(take.long()?);
        let sources = take.count("sources", MOST_SOURCES, 1)?;
        let pieces = take.count("pieces", MOST_PIECES, 1)?;
        let tables = take.count("tables", MOST_TABLES, 1)?;
        let mut manifest = Self { range_bytes, shared_bytes, copied_bytes, lease, ..Self::default() };
        for _ in 0..sources {
            let (kind, descriptor) = (take.number()?, take.number()?);
            let (address, key, bytes) = (take.long()?, take.long()?, take.long()?);
            let source = match kind {
                0 => Source::File { descriptor, bytes },
                1 => Source::Memory { descriptor, bytes },
                2 => Source::Remote { address, key, bytes },
                3 => Source::Placed { bytes },
                _ => return Err(malformed(format!("there is no source of kind {kind}"))),
            };
            manifest.sources.push(source);
        }
        for _ in 0..pieces {
            let (offset, bytes, source_offset) = (take.long()?, take.long()?, take.long()?);
            manifest.pieces.push(Piece { offset, bytes, source: take.number()?, source_offset });
        }
        manifest.check_pieces()?;
        for _ in 0..tables {
            let (namespace, name) = (take.text()?, take.text()?);
            let length = usize::try_from(take.long()?).map_err(|_| malformed("a length is too large"))?;
            let padding = take.at.next_multiple_of(8) - take.at;
            take.bytes(padding)?;
            let from = take.at;
            take.bytes(length)?;
            let messages = all.slice_with_length(from, length);
            manifest.tables.push(TableManifest { namespace, name, messages });
        }
        if take.at != all.len() {
            return Err(malformed("there is something behind it"));
        }
        Ok(manifest)
    }

    /// Checks the range and its pieces: the pieces stand by rising offsets, do not overlap, and lie
    /// within the range and within their sources.
    ///
    /// # Errors
    /// When one of these does not hold.
    pub fn check_pieces(&self) -> Result<()> {
        if self.range_bytes > MOST_RANGE_BYTES {
            return Err(malformed("its range is too long"));
        }
        let mut free_from = 0;
        for piece in &self.pieces {
            let end = piece.offset.checked_add(piece.bytes);
            let end = end.filter(|&end| piece.offset >= free_from && piece.bytes > 0 && end <= self.range_bytes);
            let Some(end) = end else { return Err(malformed("a piece is out of place")) };
            let source = self.sources.get(piece.source as usize);
            let source_end = piece.source_offset.checked_add(piece.bytes);
            if source.zip(source_end).is_none_or(|(source, end)| end > source.bytes()) {
                return Err(malformed("a piece lies outside of its source"));
            }
            free_from = end;
        }
        Ok(())
    }

    /// The parts of the range that buffers of the tables take, by rising offsets. No two overlap.
    ///
    /// # Errors
    /// When a message is malformed, or a buffer lies outside of the range.
    pub(crate) fn buffer_places(&self) -> Result<Vec<Range<u64>>> {
        let mut places: Vec<Range<u64>> = Vec::new();
        for table in &self.tables {
            let mut rest = table.messages.clone();
            while !rest.is_empty() {
                let header = take_message(&mut rest)?;
                let message = message_of(&header)?;
                let batch = match message.header_type() {
                    MessageHeader::DictionaryBatch => message.header_as_dictionary_batch().and_then(|d| d.data()),
                    _ => message.header_as_record_batch(),
                };
                let Some(buffers) = batch.and_then(|batch| batch.buffers()) else { continue };
                for buffer in buffers {
                    let (from, bytes) = (u64::try_from(buffer.offset()).ok(), u64::try_from(buffer.length()).ok());
                    let (from, end) = (from.unwrap_or(u64::MAX), from.zip(bytes).and_then(|(f, b)| f.checked_add(b)));
                    let end = end.filter(|&end| end <= self.range_bytes);
                    let end = end.ok_or_else(|| malformed("a buffer lies outside of the range"))?;
                    if from < end {
                        places.push(from..end);
                    }
                }
            }
        }
        places.sort_unstable_by_key(|place| place.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for place in places {
            match merged.last_mut() {
                Some(last) if place.start <= last.end => last.end = last.end.max(place.end),
                _ => merged.push(place),
            }
        }
        Ok(merged)
    }

    /// Makes the tables' arrays over `range`, whose pieces are all in their places. Every value for
    /// which Arrow has a rule is checked, so the whole image may be read.
    ///
    /// # Errors
    /// When the manifest is malformed, or a value is not valid in its array.
    pub fn read(&self, range: &Buffer) -> Result<Vec<Table>> {
        self.read_with(range, &UnsafeFlag::new())
    }

    /// As [`read`](Self::read), without a check of any value.
    ///
    /// # Safety
    /// The bytes of the range must be the arrays that the manifest describes: offsets and views
    /// within their values, texts in UTF-8, codes within their dictionaries, and the stated numbers
    /// of NULLs. The bytes must not change as long as anybody holds the batches.
    ///
    /// # Errors
    /// When the manifest is malformed.
    pub unsafe fn read_trusted(&self, range: &Buffer) -> Result<Vec<Table>> {
        let mut skip = UnsafeFlag::new();
        // SAFETY: the caller vouches for the values.
        unsafe { skip.set(true) };
        self.read_with(range, &skip)
    }

    fn read_with(&self, range: &Buffer, skip_validation: &UnsafeFlag) -> Result<Vec<Table>> {
        self.check_pieces()?;
        if range.len() as u64 != self.range_bytes {
            return Err(malformed("the range has another length than the manifest says"));
        }
        self.tables.iter().map(|table| self.table(table, range, skip_validation)).collect()
    }

    fn table(&self, table: &TableManifest, range: &Buffer, skip_validation: &UnsafeFlag) -> Result<Table> {
        let mut rest = table.messages.clone();
        let header = take_message(&mut rest)?;
        let schema = Arc::new(schema_of(&message_of(&header)?)?);
        let ids = dictionary_ids(&schema)?;
        let mut places = Places::new(self);
        let (mut dictionaries, mut batches) = (HashMap::new(), Vec::new());
        while !rest.is_empty() {
            let header = take_message(&mut rest)?;
            let message = message_of(&header)?;
            let version = message.version();
            match message.header_type() {
                MessageHeader::DictionaryBatch => {
                    let batch = message.header_as_dictionary_batch().ok_or_else(|| malformed("no dictionary"))?;
                    let values = ids.get(&batch.id()).filter(|_| !batch.isDelta());
                    let values = values.ok_or_else(|| malformed("a dictionary is of no column"))?;
                    places.check(batch.data(), [values])?;
                    let skip = skip_validation.clone();
                    read_dictionary_impl(range, batch, &schema, &mut dictionaries, &version, false, skip)?;
                }
                MessageHeader::RecordBatch => {
                    let batch = message.header_as_record_batch().ok_or_else(|| malformed("no batch"))?;
                    places.check(Some(batch), schema.fields().iter().map(|field| field.data_type()))?;
                    if dictionaries.len() != ids.len() {
                        return Err(malformed("a dictionary is missing"));
                    }
                    let decoder = RecordBatchDecoder::try_new(range, batch, schema.clone(), &dictionaries, &version)?;
                    batches.push(decoder.with_skip_validation(skip_validation.clone()).read_record_batch()?);
                }
                _ => return Err(malformed("a message is out of place")),
            }
        }
        Ok(Table { namespace: table.namespace.clone(), name: table.name.clone(), schema, batches })
    }
}

/// Takes a message off the front of a stream without bodies.
fn take_message(stream: &mut Buffer) -> Result<Buffer> {
    let cut = || malformed("a message is cut off");
    let length = match *stream.as_slice() {
        [0xff, 0xff, 0xff, 0xff, a, b, c, d, ..] => u32::from_le_bytes([a, b, c, d]) as usize,
        _ => return Err(cut()),
    };
    if length > stream.len() - 8 || !length.is_multiple_of(8) {
        return Err(cut());
    }
    let message = stream.slice_with_length(8, length);
    stream.advance(8 + length);
    Ok(message)
}

fn message_of(header: &Buffer) -> Result<Message<'_>> {
    let message = arrow_ipc::root_as_message(header).map_err(|error| malformed(error.to_string()))?;
    if message.version() != MetadataVersion::V5 {
        return Err(malformed("a message is of another version of Arrow"));
    }
    Ok(message)
}

fn schema_of(message: &Message<'_>) -> Result<Schema> {
    let schema = message.header_as_schema().ok_or_else(|| malformed("a table has no schema"))?;
    let fields = schema.fields().ok_or_else(|| malformed("a schema has no columns"))?;
    if schema.endianness() != arrow_ipc::Endianness::Little || fields.len() > MOST_COLUMNS {
        return Err(malformed("a schema is of another order of bytes, or of too many columns"));
    }
    fields.iter().try_for_each(|field| check_field(field, 0))?;
    Ok(arrow_ipc::convert::fb_to_schema(schema))
}

/// Refuses a field at which Arrow's conversion would panic, and types that images do not have.
fn check_field(field: arrow_ipc::Field<'_>, depth: usize) -> Result<()> {
    use arrow_ipc::{Precision, Type};
    let is_int = |int: arrow_ipc::Int<'_>| matches!(int.bitWidth(), 8 | 16 | 32 | 64);
    let children = field.children().map_or(0, |children| children.len());
    let is_known = match field.type_type() {
        Type::Null
        | Type::Bool
        | Type::Utf8
        | Type::LargeUtf8
        | Type::Utf8View
        | Type::Binary
        | Type::LargeBinary
        | Type::BinaryView => true,
        Type::Int => field.type_as_int().is_some_and(is_int),
        Type::FloatingPoint => field
            .type_as_floating_point()
            .is_some_and(|float| matches!(float.precision(), Precision::HALF | Precision::SINGLE | Precision::DOUBLE)),
        Type::FixedSizeBinary => field.type_as_fixed_size_binary().is_some_and(|binary| binary.byteWidth() > 0),
        Type::Date => field.type_as_date().is_some_and(|date| date.unit().variant_name().is_some()),
        Type::Time => field.type_as_time().is_some_and(|time| {
            use arrow_ipc::TimeUnit;
            match time.bitWidth() {
                32 => matches!(time.unit(), TimeUnit::SECOND | TimeUnit::MILLISECOND),
                64 => matches!(time.unit(), TimeUnit::MICROSECOND | TimeUnit::NANOSECOND),
                _ => false,
            }
        }),
        Type::Timestamp => field.type_as_timestamp().is_some_and(|time| time.unit().variant_name().is_some()),
        Type::Duration => field.type_as_duration().is_some_and(|time| time.unit().variant_name().is_some()),
        Type::Interval => field.type_as_interval().is_some_and(|interval| interval.unit().variant_name().is_some()),
        Type::Decimal => field.type_as_decimal().is_some_and(|decimal| {
            let digits = match decimal.bitWidth() {
                32 => 9,
                64 => 18,
                128 => 38,
                256 => 76,
                _ => 0,
            };
            (1..=digits).contains(&decimal.precision()) && (-digits..=digits).contains(&decimal.scale())
        }),
        Type::List | Type::LargeList => children == 1,
        Type::FixedSizeList => children == 1 && field.type_as_fixed_size_list().is_some_and(|list| list.listSize() > 0),
        Type::Struct_ => true,
        _ => false,
    };
    let is_dictionary_known = field
        .dictionary()
        .is_none_or(|dictionary| depth == 0 && children == 0 && dictionary.indexType().is_some_and(is_int));
    if !is_known || !is_dictionary_known || depth > MOST_DEPTH || children > MOST_COLUMNS {
        return Err(malformed(format!("column {:?} is of a type that images do not have", field.name())));
    }
    field.children().into_iter().flatten().try_for_each(|child| check_field(child, depth + 1))
}

/// The types of the dictionaries' values by dictionary number. Each dictionary belongs to one
/// column.
#[allow(deprecated, reason = "Arrow keeps the number in the field, and names no other way to it")]
fn dictionary_ids(schema: &Schema) -> Result<HashMap<i64, DataType>> {
    let mut ids = HashMap::new();
    for field in schema.fields() {
        if let DataType::Dictionary(_, values) = field.data_type() {
            let id = field.dict_id().ok_or_else(|| malformed("a dictionary has no number"))?;
            if ids.insert(id, values.as_ref().clone()).is_some() {
                return Err(malformed("two columns have the same dictionary"));
            }
        }
    }
    Ok(ids)
}

/// Checks of batches' headers: that each array has the buffers of its type, long enough for its
/// rows, and that these lie in the pieces.
struct Places {
    /// Parts of the range that the pieces cover, by rising offsets.
    there: Vec<(u64, u64)>,
    /// The part in which the last buffer lay, by its index in `there`.
    last: usize,
}

impl Places {
    fn new(manifest: &Manifest) -> Self {
        let mut there: Vec<(u64, u64)> = Vec::new();
        for piece in &manifest.pieces {
            let end = piece.offset.saturating_add(piece.bytes);
            match there.last_mut() {
                Some(last) if last.1 == piece.offset => last.1 = end,
                _ => there.push((piece.offset, end)),
            }
        }
        Self { there, last: 0 }
    }

    /// Checks a batch with columns of these types.
    fn check<'t>(
        &mut self,
        batch: Option<arrow_ipc::RecordBatch<'_>>,
        types: impl IntoIterator<Item = &'t DataType>,
    ) -> Result<()> {
        let batch = batch.ok_or_else(|| malformed("a batch is missing"))?;
        let rows = u64::try_from(batch.length()).ok().filter(|&rows| rows < 1 << 31);
        let (Some(rows), Some(nodes), Some(buffers)) = (rows, batch.nodes(), batch.buffers()) else {
            return Err(malformed("a batch's header is not whole"));
        };
        if batch.compression().is_some() {
            return Err(malformed("a batch is compressed"));
        }
        for buffer in buffers {
            let (from, bytes) = (u64::try_from(buffer.offset()), u64::try_from(buffer.length()));
            let (Ok(from), Ok(bytes)) = (from, bytes) else { return Err(malformed("a buffer's place is negative")) };
            if !self.holds(from, bytes) {
                return Err(malformed("a buffer lies outside of the pieces"));
            }
        }
        let mut walk = Walk {
            nodes: nodes.iter(),
            buffers: buffers.iter(),
            variadic: batch.variadicBufferCounts().map(|counts| counts.iter()),
        };
        for data_type in types {
            if walk.array(data_type)? != rows {
                return Err(malformed("a column has another number of rows than its batch"));
            }
        }
        walk.end()
    }

    /// Whether pieces cover these bytes of the range. Zero bytes may lie anywhere before its end.
    fn holds(&mut self, from: u64, bytes: u64) -> bool {
        let Some(end) = from.checked_add(bytes) else { return false };
        let range_end = self.there.last().map_or(0, |last| last.1);
        if bytes == 0 {
            return end <= range_end;
        }
        let is_within = |part: Option<&(u64, u64)>| part.is_some_and(|part| part.0 <= from && end <= part.1);
        if !is_within(self.there.get(self.last)) {
            self.last = self.there.partition_point(|part| part.1 <= from);
        }
        is_within(self.there.get(self.last))
    }
}

/// The arrays of a batch's header, one after the other.
struct Walk<'a, N, B, V>
where
    N: Iterator<Item = &'a FieldNode>,
    B: Iterator<Item = &'a arrow_ipc::Buffer>,
    V: Iterator<Item = i64>,
{
    nodes: N,
    buffers: B,
    variadic: Option<V>,
}

impl<'a, N, B, V> Walk<'a, N, B, V>
where
    N: Iterator<Item = &'a FieldNode>,
    B: Iterator<Item = &'a arrow_ipc::Buffer>,
    V: Iterator<Item = i64>,
{
    fn buffer(&mut self, least_bytes: u64) -> Result<()> {
        let buffer = self.buffers.next().ok_or_else(|| malformed("a buffer is missing"))?;
        if (buffer.length() as u64) < least_bytes {
            return Err(malformed("a buffer is too short for its rows"));
        }
        Ok(())
    }

    /// Checks a buffer of at least `least` values of `width` bytes. Its length must be a multiple
    /// of `width`, because Arrow reports no error for a value that is cut off.
    fn values(&mut self, least: u64, width: u64) -> Result<()> {
        let buffer = self.buffers.next().ok_or_else(|| malformed("a buffer is missing"))?;
        let bytes = buffer.length() as u64;
        if least.checked_mul(width).is_none_or(|least| bytes < least) {
            return Err(malformed("a buffer is too short for its rows"));
        }
        if width > 0 && !bytes.is_multiple_of(width) {
            return Err(malformed("a buffer ends within a value"));
        }
        Ok(())
    }

    /// Checks an array, and returns its number of rows.
    fn array(&mut self, data_type: &DataType) -> Result<u64> {
        let node = self.nodes.next().ok_or_else(|| malformed("a column is missing"))?;
        let rows = u64::try_from(node.length()).ok().filter(|&rows| rows < 1 << 31);
        let Some(rows) = rows else { return Err(malformed("a column's number of rows cannot be")) };
        if !(0..=node.length()).contains(&node.null_count()) {
            return Err(malformed("a column's number of NULLs cannot be"));
        }
        if *data_type == DataType::Null {
            return if node.null_count() == node.length() { Ok(rows) } else { Err(malformed("NULLs have values")) };
        }
        self.buffer(if node.null_count() > 0 { rows.div_ceil(8) } else { 0 })?;
        // Without rows, there may be no offsets.
        let offsets = if rows == 0 { 0 } else { rows + 1 };
        match data_type {
            DataType::Boolean => self.buffer(rows.div_ceil(8))?,
            DataType::Utf8 | DataType::Binary => {
                self.values(offsets, 4)?;
                self.buffer(0)?;
            }
            DataType::LargeUtf8 | DataType::LargeBinary => {
                self.values(offsets, 8)?;
                self.buffer(0)?;
            }
            DataType::Utf8View | DataType::BinaryView => {
                self.values(rows, 16)?;
                let count = self.variadic.as_mut().and_then(Iterator::next);
                let count =
                    count.filter(|&count| count >= 0).ok_or_else(|| malformed("a count of heaps is missing"))?;
                (0..count).try_for_each(|_| self.buffer(0))?;
            }
            DataType::FixedSizeBinary(width) => self.values(rows, *width as u64)?,
            DataType::Dictionary(codes, _) => {
                let width = codes.primitive_width().ok_or_else(|| malformed("codes have no width"))?;
                self.values(rows, width as u64)?;
            }
            DataType::List(child) => {
                self.values(offsets, 4)?;
                self.array(child.data_type())?;
            }
            DataType::LargeList(child) => {
                self.values(offsets, 8)?;
                self.array(child.data_type())?;
            }
            DataType::FixedSizeList(child, size) => {
                if self.array(child.data_type())? < rows * *size as u64 {
                    return Err(malformed("a list is too short for its rows"));
                }
            }
            DataType::Struct(children) => {
                for child in children {
                    if self.array(child.data_type())? != rows {
                        return Err(malformed("a column has another number of rows than its structure"));
                    }
                }
            }
            other => {
                let width = other.primitive_width().ok_or_else(|| malformed("a column is of an unknown type"))?;
                self.values(rows, width as u64)?;
            }
        }
        Ok(rows)
    }

    fn end(mut self) -> Result<()> {
        let is_over = self.nodes.next().is_none()
            && self.buffers.next().is_none()
            && self.variadic.is_none_or(|mut counts| counts.next().is_none());
        if is_over { Ok(()) } else { Err(malformed("a batch has more buffers than columns")) }
    }
}
