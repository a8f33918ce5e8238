//! Arrow IPC messages from outside, read without trust.
//!
//! Arrow's own reader checks values, but trusts the types, lengths and places in a header. It
//! slices, multiplies and allocates by them, and panics if they are wrong. So messages of clients
//! and files are read here:
//!
//! ```text
//! header ──verify (flatbuffers)──▶ Schema ──every field checked──▶ arrow-schema
//!                                  │ else
//!                                  ▼
//!        nodes, buffers ──bounds, sizes, decompression within limits──▶ ArrayData::build (values) ──▶ RecordBatch
//! ```
//! The memory that a small message can take is bounded: its rows ([`MAX_ROWS`]), its unpacked bytes
//! ([`MAX_BODY`]), and the bytes that its views and codes name ([`MAX_NAMED`]). Dictionaries stay
//! for the messages that follow. All dictionaries of a stream together take no more than one
//! message may ([`MAX_BODY`]).
//!
//! Types that no table and no parameter has (structures, maps, unions, runs) are refused: SQLSTATE
//! 0A000.

use datafusion::arrow::array::{
    Array, ArrayData, ArrayDataBuilder, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, make_array, new_empty_array,
};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, Field, Schema, SchemaRef, UInt64Type};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::convert::fb_to_schema;
use datafusion::arrow::ipc::{self, CompressionType, MessageHeader, MetadataVersion};
use serac_values::time_range::check_times;
use serac_values::{Result, SqlError};
use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

/// Rows of a message: columns of NULLs have no bytes, however many their rows are.
const MAX_ROWS: usize = 1 << 24;
/// Elements of all rows' lists in a message.
const MAX_ELEMENTS: usize = 1 << 28;
/// Bytes of a message's header.
const MAX_HEADER: usize = 64 << 20;
/// Bytes of a message's body, and of the body unpacked.
const MAX_BODY: usize = 1 << 30;
/// Bytes that a column's views, or codes of a dictionary, name.
const MAX_NAMED: usize = 1 << 30;
/// Lists within lists.
const MAX_DEPTH: usize = 8;
/// Columns of a schema.
const MAX_COLUMNS: usize = 1 << 14;
/// The word that stands before the length of a header in a stream.
const CONTINUATION: u32 = u32::MAX;
/// Zeros before the first message of a file.
const MAX_PADDING: usize = 128;
/// The beginning of an Arrow file, padded to eight bytes or more. A stream follows.
const FILE_MAGIC: &[u8; 8] = b"ARROW1\0\0";

/// The content of a message.
#[derive(Debug)]
pub enum ArrowMessage {
    /// The columns of the batches that follow.
    Schema(SchemaRef),
    /// Rows.
    Batch(RecordBatch),
    /// Nothing for the reader: the words of a dictionary, or a message without content.
    Nothing,
}

/// Reads the messages of one stream, in order.
#[derive(Debug, Default)]
pub struct ArrowMessages {
    schema: Option<SchemaRef>,
    /// By their numbers in the schema.
    dictionaries: HashMap<i64, Dictionary>,
}

/// The words of a dictionary.
#[derive(Debug)]
struct Dictionary {
    words: ArrayRef,
    /// Bytes that it keeps: those of the message, or of its unpacked buffers.
    bytes: usize,
}

fn malformed(what: impl std::fmt::Display) -> SqlError {
    SqlError::new(sqlstate::PROTOCOL_VIOLATION, format!("malformed Arrow message: {what}"))
}
fn too_large(what: &str) -> SqlError {
    SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, format!("an Arrow message is too large: {what}"))
}
fn of_values(error: ArrowError) -> SqlError {
    SqlError::new(sqlstate::INVALID_BINARY_REPRESENTATION, format!("malformed Arrow values: {error}"))
}

// ---- schemas

/// Refuses a field from which Arrow cannot make a type.
fn check_field(field: ipc::Field<'_>, depth: usize) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(SqlError::new(sqlstate::STATEMENT_TOO_COMPLEX, "lists of an Arrow schema are nested too deeply"));
    }
    let is_width = |width: i32| matches!(width, 8 | 16 | 32 | 64);
    if let Some(dictionary) = field.dictionary() {
        let has_codes = dictionary.indexType().is_some_and(|codes| is_width(codes.bitWidth()));
        if !has_codes || field.children().is_some_and(|children| !children.is_empty()) {
            return Err(malformed("a dictionary whose codes are of no known type"));
        }
    }
    let only_child = || match field.children() {
        Some(children) if children.len() == 1 => check_field(children.get(0), depth + 1),
        _ => Err(malformed("a list without one kind of elements")),
    };
    let unit = |unit: ipc::TimeUnit| (0..=3).contains(&unit.0);
    let is_known = match field.type_type() {
        ipc::Type::Null
        | ipc::Type::Bool
        | ipc::Type::Binary
        | ipc::Type::BinaryView
        | ipc::Type::LargeBinary
        | ipc::Type::Utf8
        | ipc::Type::Utf8View
        | ipc::Type::LargeUtf8 => true,
        ipc::Type::Int => field.type_as_int().is_some_and(|int| is_width(int.bitWidth())),
        ipc::Type::FixedSizeBinary => field.type_as_fixed_size_binary().is_some_and(|t| t.byteWidth() > 0),
        ipc::Type::FloatingPoint => {
            field.type_as_floating_point().is_some_and(|float| (0..=2).contains(&float.precision().0))
        }
        ipc::Type::Date => field.type_as_date().is_some_and(|date| (0..=1).contains(&date.unit().0)),
        ipc::Type::Time => field.type_as_time().is_some_and(|time| match time.bitWidth() {
            32 => (0..=1).contains(&time.unit().0),
            64 => (2..=3).contains(&time.unit().0),
            _ => false,
        }),
        ipc::Type::Timestamp => field.type_as_timestamp().is_some_and(|time| unit(time.unit())),
        ipc::Type::Interval => field.type_as_interval().is_some_and(|interval| (0..=2).contains(&interval.unit().0)),
        ipc::Type::Duration => field.type_as_duration().is_some_and(|duration| unit(duration.unit())),
        ipc::Type::Decimal => field.type_as_decimal().is_some_and(|decimal| {
            let most = match decimal.bitWidth() {
                32 => 9,
                64 => 18,
                128 => 38,
                256 => 76,
                _ => 0,
            };
            let (precision, scale) = (decimal.precision(), decimal.scale());
            (1..=most).contains(&precision) && (-most..=precision).contains(&scale)
        }),
        ipc::Type::List | ipc::Type::LargeList => {
            only_child()?;
            true
        }
        ipc::Type::FixedSizeList => {
            only_child()?;
            field.type_as_fixed_size_list().is_some_and(|list| list.listSize() >= 0)
        }
        other => {
            let name = other.variant_name().unwrap_or("unknown");
            return Err(SqlError::unsupported(format!("reading Arrow values of the type {name}")));
        }
    };
    if is_known { Ok(()) } else { Err(malformed("a field of no known type")) }
}

fn schema_of(message: ipc::Message<'_>) -> Result<SchemaRef> {
    let schema = message.header_as_schema().ok_or_else(|| malformed("there is no schema"))?;
    let fields = schema.fields().ok_or_else(|| malformed("a schema without fields"))?;
    if schema.endianness() != ipc::Endianness::Little {
        return Err(SqlError::unsupported("Arrow of another byte order"));
    }
    if fields.len() > MAX_COLUMNS {
        return Err(SqlError::new(
            sqlstate::TOO_MANY_COLUMNS,
            format!("an Arrow schema may have {MAX_COLUMNS} columns at the most"),
        ));
    }
    fields.iter().try_for_each(|field| check_field(field, 0))?;
    Ok(Arc::new(fb_to_schema(schema)))
}

// ---- batches

/// The nodes and buffers of a batch, as they are taken.
struct Reading<'a> {
    nodes: Box<dyn Iterator<Item = &'a ipc::FieldNode> + 'a>,
    buffers: Box<dyn Iterator<Item = &'a ipc::Buffer> + 'a>,
    variadic: Box<dyn Iterator<Item = i64> + 'a>,
    body: &'a Buffer,
    compression: Option<CompressionType>,
    dictionaries: &'a HashMap<i64, Dictionary>,
    /// Bytes that buffers may still have.
    room: usize,
}

/// The number of rows, and how many of them are NULL.
#[derive(Clone, Copy)]
struct Node {
    rows: usize,
    nulls: usize,
}

impl<'a> Reading<'a> {
    fn new(batch: ipc::RecordBatch<'a>, body: &'a Buffer, dictionaries: &'a HashMap<i64, Dictionary>) -> Result<Self> {
        let nodes = batch.nodes().ok_or_else(|| malformed("a batch without nodes"))?;
        let buffers = batch.buffers().ok_or_else(|| malformed("a batch without buffers"))?;
        let compression = batch.compression().map(|compression| compression.codec());
        Ok(Self {
            nodes: Box::new(nodes.iter()),
            buffers: Box::new(buffers.iter()),
            variadic: Box::new(batch.variadicBufferCounts().into_iter().flatten()),
            body,
            compression,
            dictionaries,
            room: MAX_BODY,
        })
    }

    fn node(&mut self, most: usize) -> Result<Node> {
        let node = self.nodes.next().ok_or_else(|| malformed("it has fewer nodes than its schema"))?;
        let number = |number: i64| usize::try_from(number).map_err(|_| malformed("a negative number of rows"));
        let (rows, nulls) = (number(node.length())?, number(node.null_count())?);
        if rows > most {
            return Err(too_large("the number of its rows or elements"));
        }
        if nulls > rows { Err(malformed("more NULLs than rows")) } else { Ok(Node { rows, nulls }) }
    }

    /// The next buffer.
    fn buffer(&mut self) -> Result<Buffer> {
        let place = self.buffers.next().ok_or_else(|| malformed("it has fewer buffers than its schema"))?;
        let (Ok(from), Ok(length)) = (usize::try_from(place.offset()), usize::try_from(place.length())) else {
            return Err(malformed("a buffer at a negative place"));
        };
        if from.checked_add(length).is_none_or(|to| to > self.body.len()) {
            return Err(malformed("a buffer outside of the body"));
        }
        let packed = self.body.slice_with_length(from, length);
        let buffer = match self.compression {
            Some(codec) if length > 0 => self.unpacked(&packed, codec)?,
            _ => packed,
        };
        self.room = self.room.checked_sub(buffer.len()).ok_or_else(|| too_large("its buffers"))?;
        Ok(buffer)
    }

    /// The next buffer, of values of a fixed width, cut to the bytes that there must be.
    fn fixed(&mut self, bytes: usize) -> Result<Buffer> {
        let buffer = self.buffer()?;
        // Arrow takes the whole buffer for values, and panics if its length is no multiple of the
        // width.
        match buffer.len() < bytes {
            true => Err(malformed("a buffer is too short for its rows")),
            false => Ok(buffer.slice_with_length(0, bytes)),
        }
    }

    /// Unpacks a buffer with its length before it: -1 for one that is not compressed.
    fn unpacked(&self, packed: &Buffer, codec: CompressionType) -> Result<Buffer> {
        let (length, rest) = packed.split_first_chunk::<8>().ok_or_else(|| malformed("a compressed buffer"))?;
        let length = i64::from_le_bytes(*length);
        if length == -1 {
            return Ok(packed.slice(8));
        }
        let length = usize::try_from(length).map_err(|_| malformed("a compressed buffer's length"))?;
        if length > self.room {
            return Err(too_large("what it unpacks to"));
        }
        let wrong = |error: std::io::Error| malformed(format!("a compressed buffer: {error}"));
        let mut bytes = Vec::new();
        // Not more than the announced length, and one byte that must not be there.
        let most = length as u64 + 1;
        let read = match codec {
            CompressionType::LZ4_FRAME => lz4_flex::frame::FrameDecoder::new(rest).take(most).read_to_end(&mut bytes),
            CompressionType::ZSTD => {
                let decoder = zstd::stream::read::Decoder::new(rest).map_err(wrong)?;
                decoder.take(most).read_to_end(&mut bytes)
            }
            _ => return Err(SqlError::unsupported("this compression of Arrow messages")),
        };
        read.map_err(wrong)?;
        if bytes.len() == length { Ok(Buffer::from_vec(bytes)) } else { Err(malformed("a compressed buffer")) }
    }

    /// The bits that say which rows are not NULL; `None` if no row is NULL.
    fn validity(&mut self, node: Node) -> Result<Option<Buffer>> {
        let least = if node.nulls > 0 { node.rows.div_ceil(8) } else { 0 };
        Ok(Some(self.fixed(least)?).filter(|_| node.nulls > 0))
    }

    /// An array of a field, of `most` rows at the most.
    fn array(&mut self, field: &Field, most: usize) -> Result<ArrayRef> {
        let node = self.node(most)?;
        let data_type = field.data_type();
        let builder = |validity: Option<Buffer>| {
            ArrayData::builder(data_type.clone())
                .len(node.rows)
                .null_bit_buffer(validity)
                .null_count(node.nulls)
                .align_buffers(true)
        };
        let offsets = |width: usize| if node.rows == 0 { 0 } else { (node.rows + 1) * width };
        let builder = match data_type {
            DataType::Null => {
                if node.nulls != node.rows {
                    return Err(malformed("a column of NULLs that has values"));
                }
                ArrayData::builder(DataType::Null).len(node.rows)
            }
            DataType::Utf8 | DataType::Binary | DataType::LargeUtf8 | DataType::LargeBinary => {
                let width = if matches!(data_type, DataType::Utf8 | DataType::Binary) { 4 } else { 8 };
                let builder = builder(self.validity(node)?);
                builder.add_buffer(self.fixed(offsets(width))?).add_buffer(self.buffer()?)
            }
            DataType::Utf8View | DataType::BinaryView => {
                let count = self.variadic.next().ok_or_else(|| malformed("a column of views without a count"))?;
                let mut builder = builder(self.validity(node)?).add_buffer(self.fixed(node.rows * 16)?);
                for _ in 0..count {
                    builder = builder.add_buffer(self.buffer()?);
                }
                builder
            }
            DataType::List(element) | DataType::LargeList(element) => {
                let width = if matches!(data_type, DataType::List(_)) { 4 } else { 8 };
                let builder = builder(self.validity(node)?).add_buffer(self.fixed(offsets(width))?);
                builder.add_child_data(self.array(element, MAX_ELEMENTS)?.to_data())
            }
            DataType::FixedSizeList(element, size) => {
                let builder = builder(self.validity(node)?);
                let elements = self.array(element, MAX_ELEMENTS)?;
                if node.rows.checked_mul(*size as usize).is_none_or(|count| count > elements.len()) {
                    return Err(malformed("lists with fewer elements than they have"));
                }
                builder.add_child_data(elements.to_data())
            }
            DataType::Dictionary(codes, words) => {
                #[allow(deprecated)]
                let id = field.dict_id().ok_or_else(|| malformed("a dictionary without a number"))?;
                // A dictionary whose rows are all NULL need not come.
                let known = self.dictionaries.get(&id).map(|dictionary| dictionary.words.clone());
                let words = known.unwrap_or_else(|| new_empty_array(words));
                let width = codes.primitive_width().ok_or_else(|| malformed("the codes of a dictionary"))?;
                let builder = builder(self.validity(node)?);
                builder.add_buffer(self.fixed(node.rows * width)?).add_child_data(words.to_data())
            }
            plain => {
                let builder = builder(self.validity(node)?);
                let least = match plain {
                    DataType::Boolean => node.rows.div_ceil(8),
                    DataType::FixedSizeBinary(width) => node.rows.saturating_mul(*width as usize),
                    other => {
                        let width = other.primitive_width();
                        width.ok_or_else(|| malformed(format!("a column of {other}")))? * node.rows
                    }
                };
                builder.add_buffer(self.fixed(least)?)
            }
        };
        built(builder)
    }
}

/// The array, whose values have been checked.
fn built(builder: ArrayDataBuilder) -> Result<ArrayRef> {
    let array = make_array(builder.build().map_err(of_values)?);
    check_values(&array)?;
    Ok(array)
}

/// Refuses values that their type does not have and that Arrow accepts. Also refuses views and
/// codes that name far more bytes than there are.
fn check_values(array: &ArrayRef) -> Result<()> {
    check_times(array)?;
    let named = match array.data_type() {
        DataType::Decimal128(precision, _) => {
            let decimals = array.as_primitive::<Decimal128Type>();
            return decimals.validate_decimal_precision(*precision).map_err(|_| overflow());
        }
        DataType::Decimal256(precision, _) => {
            let decimals = array.as_primitive::<Decimal256Type>();
            return decimals.validate_decimal_precision(*precision).map_err(|_| overflow());
        }
        DataType::Utf8View => lengths(array.as_string_view().views()),
        DataType::BinaryView => lengths(array.as_binary_view().views()),
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let words = dictionary.values();
            let word_bytes = match words.data_type() {
                DataType::Utf8
                | DataType::Binary
                | DataType::LargeUtf8
                | DataType::LargeBinary
                | DataType::Utf8View
                | DataType::BinaryView => longest(words)?,
                _ => 0,
            };
            word_bytes.saturating_mul(dictionary.len())
        }
        _ => 0,
    };
    if named > MAX_NAMED { Err(too_large("the texts that it names")) } else { Ok(()) }
}
fn overflow() -> SqlError {
    SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow")
}
/// The sum of the lengths that views state.
fn lengths(views: &[u128]) -> usize {
    views.iter().map(|view| *view as u32 as usize).sum()
}
/// Bytes of the longest text or binary value.
fn longest(words: &ArrayRef) -> Result<usize> {
    let lengths = datafusion::arrow::compute::kernels::length::length(words).map_err(of_values)?;
    let lengths = cast(&lengths, &DataType::UInt64).map_err(of_values)?;
    Ok(lengths.as_primitive::<UInt64Type>().iter().flatten().max().unwrap_or(0) as usize)
}

impl ArrowMessages {
    /// Reads the next message: its header, and its body.
    ///
    /// # Errors
    /// SQLSTATE 08P01 or 22P03 for malformed messages, 54000 for messages that are too large, 0A000
    /// for unknown types and forms, 22003 and 22008 for values that their types do not have.
    pub fn read(&mut self, header: &[u8], body: &Buffer) -> Result<ArrowMessage> {
        let message = ipc::root_as_message(header).map_err(|error| malformed(format!("its header: {error}")))?;
        if message.version() < MetadataVersion::V4 {
            return Err(SqlError::unsupported("Arrow messages of a version before 4"));
        }
        let schema = || self.schema.clone().ok_or_else(|| malformed("it comes before a schema"));
        match message.header_type() {
            MessageHeader::NONE => Ok(ArrowMessage::Nothing),
            MessageHeader::Schema => {
                let schema = schema_of(message)?;
                self.dictionaries.clear();
                self.schema = Some(schema.clone());
                Ok(ArrowMessage::Schema(schema))
            }
            MessageHeader::RecordBatch => {
                let schema = schema()?;
                let batch = message.header_as_record_batch().ok_or_else(|| malformed("there is no batch"))?;
                let rows = usize::try_from(batch.length()).map_err(|_| malformed("a negative number of rows"))?;
                if rows > MAX_ROWS {
                    return Err(too_large("the number of its rows"));
                }
                let mut reading = Reading::new(batch, body, &self.dictionaries)?;
                let columns = schema.fields().iter().map(|field| reading.array(field, MAX_ROWS));
                let columns = columns.collect::<Result<Vec<_>>>()?;
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                let batch = RecordBatch::try_new_with_options(schema, columns, &options).map_err(of_values)?;
                Ok(ArrowMessage::Batch(batch))
            }
            MessageHeader::DictionaryBatch => {
                let schema = schema()?;
                let batch = message.header_as_dictionary_batch().ok_or_else(|| malformed("there is no dictionary"))?;
                if batch.isDelta() {
                    return Err(SqlError::unsupported("a dictionary in several messages"));
                }
                #[allow(deprecated)]
                let of_schema = schema.fields_with_dict_id(batch.id()).first().map(|field| field.data_type().clone());
                let Some(DataType::Dictionary(_, words)) = of_schema else {
                    return Err(malformed("a dictionary that is none of its schema's"));
                };
                let data = batch.data().ok_or_else(|| malformed("a dictionary without words"))?;
                let words = Field::new("", *words, true);
                // The dictionary that it replaces goes first.
                self.dictionaries.remove(&batch.id());
                let kept: usize = self.dictionaries.values().map(|dictionary| dictionary.bytes).sum();
                let room = MAX_BODY.saturating_sub(kept);
                let (words, bytes) = {
                    let mut reading = Reading { room, ..Reading::new(data, body, &self.dictionaries)? };
                    let words = reading.array(&words, MAX_ROWS)?;
                    // Buffers that are not packed lie in the message, which is kept as a whole.
                    (words, body.len().max(room - reading.room))
                };
                if bytes > room {
                    return Err(too_large("its dictionaries"));
                }
                self.dictionaries.insert(batch.id(), Dictionary { words, bytes });
                Ok(ArrowMessage::Nothing)
            }
            other => {
                let name = other.variant_name().unwrap_or("unknown");
                Err(malformed(format!("a message of the kind {name}")))
            }
        }
    }
}

/// The batches of a stream of bytes, in Arrow's stream format or its file format.
pub struct ArrowStream<R> {
    input: R,
    messages: ArrowMessages,
    schema: SchemaRef,
    ended: bool,
}

impl<R: Read> ArrowStream<R> {
    /// Reads up to the schema.
    pub fn new(mut input: R) -> Result<Self> {
        let mut first = [0; 8];
        input.read_exact(&mut first).map_err(unreadable)?;
        let is_file = first == *FILE_MAGIC;
        let mut stream =
            Self { input, messages: ArrowMessages::default(), schema: Arc::new(Schema::empty()), ended: false };
        let (mut continuation, mut length) = (number(&first[..4]), number(&first[4..]));
        if is_file {
            // Zeros that align the first message.
            for _ in 0..MAX_PADDING / 4 {
                continuation = number(&stream.bytes(4)?);
                if continuation != 0 {
                    break;
                }
            }
            length = number(&stream.bytes(4)?);
        }
        if continuation != CONTINUATION {
            return Err(SqlError::new(sqlstate::BAD_COPY_FILE_FORMAT, "the input is no Arrow stream"));
        }
        let (header, body) = stream.rest_of_message(length)?.ok_or_else(|| malformed("there is no schema"))?;
        match stream.messages.read(&header, &body)? {
            ArrowMessage::Schema(schema) => stream.schema = schema,
            _ => return Err(malformed("it does not begin with a schema")),
        }
        Ok(stream)
    }

    /// The columns of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Exactly `count` bytes. Memory is allocated for bytes that come, not for the announced
    /// number.
    fn bytes(&mut self, count: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = (&mut self.input).take(count as u64).read_to_end(&mut bytes).map_err(unreadable)?;
        if read == count {
            Ok(bytes)
        } else {
            Err(SqlError::new(sqlstate::BAD_COPY_FILE_FORMAT, "the Arrow stream ends too early"))
        }
    }

    fn message(&mut self) -> Result<Option<(Vec<u8>, Buffer)>> {
        let mut head = Vec::new();
        if (&mut self.input).take(8).read_to_end(&mut head).map_err(unreadable)? == 0 {
            return Ok(None);
        }
        let head: [u8; 8] = head
            .try_into()
            .map_err(|_| SqlError::new(sqlstate::BAD_COPY_FILE_FORMAT, "the Arrow stream ends too early"))?;
        if number(&head[..4]) != CONTINUATION {
            return Err(SqlError::new(sqlstate::BAD_COPY_FILE_FORMAT, "there is no Arrow message where one is wanted"));
        }
        self.rest_of_message(number(&head[4..]))
    }

    /// The header of this length and the body; `None` at the end of the stream.
    fn rest_of_message(&mut self, length: u32) -> Result<Option<(Vec<u8>, Buffer)>> {
        let length = length as usize;
        if length == 0 {
            return Ok(None);
        }
        if length > MAX_HEADER {
            return Err(too_large("its header"));
        }
        let header = self.bytes(length)?;
        let message = ipc::root_as_message(&header).map_err(|error| malformed(format!("its header: {error}")))?;
        let body = usize::try_from(message.bodyLength()).ok().filter(|bytes| *bytes <= MAX_BODY);
        let body = self.bytes(body.ok_or_else(|| too_large("its body"))?)?;
        Ok(Some((header, Buffer::from_vec(body))))
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>> {
        while let Some((header, body)) = self.message()? {
            match self.messages.read(&header, &body)? {
                ArrowMessage::Batch(batch) => return Ok(Some(batch)),
                ArrowMessage::Schema(_) => return Err(malformed("it has a second schema")),
                ArrowMessage::Nothing => {}
            }
        }
        Ok(None)
    }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}
fn unreadable(error: std::io::Error) -> SqlError {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            SqlError::new(sqlstate::BAD_COPY_FILE_FORMAT, "the Arrow stream ends too early")
        }
        _ => SqlError::new(sqlstate::IO_ERROR, format!("could not read: {error}")),
    }
}

impl<R: Read> Iterator for ArrowStream<R> {
    type Item = Result<RecordBatch>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let batch = self.batch().transpose();
        self.ended = !matches!(batch, Some(Ok(_)));
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{
        BooleanArray, Date32Array, Decimal128Array, DictionaryArray, FixedSizeBinaryArray, FixedSizeListArray,
        Int64Array, LargeStringArray, ListArray, NullArray, StringArray, StringViewArray, StructArray,
        Time64MicrosecondArray,
    };
    use datafusion::arrow::buffer::OffsetBuffer;
    use datafusion::arrow::datatypes::Int32Type;
    use datafusion::arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
    use rand::Rng;

    const ROWS: i64 = 50;

    fn texts() -> impl Iterator<Item = Option<String>> {
        (0..ROWS).map(|i| (i % 3 != 0).then(|| format!("a text that is long: {i}")))
    }

    fn batch() -> RecordBatch {
        let item = Arc::new(Field::new("item", DataType::Int64, true));
        let numbers: ArrayRef = Arc::new((0..2 * ROWS).map(|i| (i % 5 != 0).then_some(i)).collect::<Int64Array>());
        let lengths = (0..ROWS as usize).map(|i| i % 3);
        let lists = ListArray::new(item.clone(), OffsetBuffer::from_lengths(lengths), numbers.clone(), None);
        let words: Vec<Option<&str>> =
            (0..ROWS).map(|i| [Some("one"), None, Some("another")][i as usize % 3]).collect();
        let decimals: Decimal128Array = (0..ROWS).map(|i| (i % 4 != 0).then_some(i128::from(i) * 1_001)).collect();
        RecordBatch::try_from_iter_with_nullable([
            ("numbers", numbers.slice(0, ROWS as usize), true),
            ("texts", Arc::new(texts().collect::<StringArray>()) as ArrayRef, true),
            ("views", Arc::new(texts().collect::<StringViewArray>()), true),
            ("large", Arc::new(texts().collect::<LargeStringArray>()), true),
            ("flags", Arc::new((0..ROWS).map(|i| (i % 7 != 0).then_some(i % 2 == 0)).collect::<BooleanArray>()), true),
            ("days", Arc::new(Date32Array::from_iter_values(0..ROWS as i32)), true),
            ("times", Arc::new(Time64MicrosecondArray::from_iter_values(0..ROWS)), true),
            ("decimals", Arc::new(decimals.with_precision_and_scale(12, 2).unwrap()), true),
            ("ids", Arc::new(FixedSizeBinaryArray::try_from_iter((0..ROWS).map(|i| [i as u8; 16])).unwrap()), true),
            ("words", Arc::new(words.into_iter().collect::<DictionaryArray<Int32Type>>()), true),
            ("nothing", Arc::new(NullArray::new(ROWS as usize)), true),
            ("lists", Arc::new(lists), true),
            ("pairs", Arc::new(FixedSizeListArray::new(item, 2, numbers, None)), true),
        ])
        .unwrap()
    }

    fn stream(batch: &RecordBatch, compression: Option<CompressionType>) -> Vec<u8> {
        let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
        for from in [0, 20] {
            writer.write(&batch.slice(from, 20)).unwrap();
        }
        writer.into_inner().unwrap()
    }

    fn read(bytes: &[u8]) -> Result<Vec<RecordBatch>> {
        ArrowStream::new(bytes)?.collect()
    }

    #[test]
    fn what_arrow_writes_is_read() {
        let batch = batch();
        for compression in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
            let read = read(&stream(&batch, compression)).unwrap();
            assert_eq!(read, [batch.slice(0, 20), batch.slice(20, 20)], "{compression:?}");
        }
        let mut writer = FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        assert_eq!(read(&writer.into_inner().unwrap()).unwrap(), [batch]);
    }

    #[test]
    fn what_no_table_has_and_what_is_out_of_range_is_refused() {
        let pair = StructArray::try_from(vec![("a", Arc::new(Int64Array::from(vec![1; 40])) as ArrayRef)]).unwrap();
        let time: ArrayRef = Arc::new(Time64MicrosecondArray::from(vec![86_400_000_000; 40]));
        let day: ArrayRef = Arc::new(Date32Array::from(vec![i32::MAX - 1; 40]));
        let decimal = Decimal128Array::from(vec![10i128.pow(12); 40]).with_data_type(DataType::Decimal128(12, 2));
        for (column, sqlstate) in [
            (Arc::new(pair) as ArrayRef, sqlstate::FEATURE_NOT_SUPPORTED),
            (time, sqlstate::DATETIME_FIELD_OVERFLOW),
            (day, sqlstate::DATETIME_FIELD_OVERFLOW),
            (Arc::new(decimal), sqlstate::NUMERIC_VALUE_OUT_OF_RANGE),
        ] {
            let bytes = stream(&RecordBatch::try_from_iter([("a", column)]).unwrap(), None);
            assert_eq!(read(&bytes).unwrap_err().sqlstate, sqlstate);
        }
    }

    /// A message of one column of NULLs, whose rows are counted so.
    fn nulls(rows: i64) -> (Vec<u8>, Buffer) {
        use datafusion::arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext};
        let batch = RecordBatch::try_from_iter([("a", Arc::new(NullArray::new(123_456_789)) as ArrayRef)]).unwrap();
        let mut tracker = DictionaryTracker::new(false);
        let (options, mut context) = (IpcWriteOptions::default(), IpcWriteContext::default());
        let (_, encoded) = IpcDataGenerator::default().encode(&batch, &mut tracker, &options, &mut context).unwrap();
        let mut header = encoded.ipc_message;
        let (known, wanted) = (123_456_789i64.to_le_bytes(), rows.to_le_bytes());
        for at in 0..header.len() - 8 {
            if header[at..at + 8] == known {
                header[at..at + 8].copy_from_slice(&wanted);
            }
        }
        (header, Buffer::from_vec(encoded.arrow_data))
    }

    #[test]
    fn little_input_does_not_become_much() {
        let schema = Some(Arc::new(Schema::new(vec![Field::new("a", DataType::Null, true)])));
        let mut messages = ArrowMessages { schema, ..ArrowMessages::default() };
        for (rows, sqlstate) in [
            (1_000, None),
            (1 << 40, Some(sqlstate::PROGRAM_LIMIT_EXCEEDED)),
            (i64::MAX, Some(sqlstate::PROGRAM_LIMIT_EXCEEDED)),
            (-1, Some(sqlstate::PROTOCOL_VIOLATION)),
        ] {
            let (header, body) = nulls(rows);
            let read = messages.read(&header, &body);
            assert_eq!(read.err().map(|error| error.sqlstate), sqlstate, "{rows} rows");
        }
        // What says of itself that it is short, and is not.
        let zeros: ArrayRef = Arc::new(Int64Array::from(vec![0; 1 << 20]));
        for codec in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
            let mut bytes = stream(&RecordBatch::try_from_iter([("a", zeros.clone())]).unwrap(), Some(codec));
            let (length, shorter) = (160u64.to_le_bytes(), 16u64.to_le_bytes());
            let at = bytes.windows(8).rposition(|part| part == length).unwrap();
            bytes[at..at + 8].copy_from_slice(&shorter);
            assert!(read(&bytes).is_err(), "{codec:?}");
            bytes[at..at + 8].copy_from_slice(&(1u64 << 60).to_le_bytes());
            assert_eq!(read(&bytes).unwrap_err().sqlstate, sqlstate::PROGRAM_LIMIT_EXCEEDED, "{codec:?}");
        }
        // Dictionaries, each of which may be as large as all together.
        let word: ArrayRef = Arc::new(StringArray::from(vec![" ".repeat(MAX_BODY / 2)]));
        let words = DictionaryArray::<Int32Type>::try_new(vec![0; 40].into(), word).unwrap();
        let words: ArrayRef = Arc::new(words);
        let columns = [("a", words.clone()), ("b", words.clone()), ("c", words)];
        let bytes = stream(&RecordBatch::try_from_iter(columns).unwrap(), Some(CompressionType::ZSTD));
        assert!(bytes.len() < MAX_BODY / 100);
        let error = read(&bytes).unwrap_err();
        assert_eq!(
            (error.sqlstate, error.message.as_str()),
            (sqlstate::PROGRAM_LIMIT_EXCEEDED, "an Arrow message is too large: what it unpacks to")
        );
        // A length that nothing follows is no reason to make room.
        let mut bytes = stream(&batch(), None);
        bytes.truncate(8);
        bytes[4..8].copy_from_slice(&(MAX_HEADER as u32).to_le_bytes());
        assert_eq!(read(&bytes).unwrap_err().sqlstate, sqlstate::BAD_COPY_FILE_FORMAT);
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        let mut rng = serac_testing::rng();
        let rounds = if serac_testing::stress() { 3_000_000 } else { 20_000 };
        let whole = batch();
        let codecs = [None, None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)];
        let good: Vec<Vec<u8>> = (0..whole.num_columns())
            .flat_map(|column| codecs.map(|codec| stream(&whole.project(&[column]).unwrap(), codec)))
            .collect();
        let numbers = [u64::MAX, i64::MAX as u64, 1 << 31, 1 << 40, 0, 1, 8, 63];
        for _ in 0..rounds {
            let mut bytes = good[rng.random_range(0..good.len())].clone();
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..bytes.len());
                match rng.random_range(0..4) {
                    0 => bytes[at] ^= 1 << rng.random_range(0..8),
                    1 => bytes[at] = rng.random(),
                    2 => {
                        let number = numbers[rng.random_range(0..numbers.len())].to_le_bytes();
                        let count = 8.min(bytes.len() - at);
                        bytes[at..at + count].copy_from_slice(&number[..count]);
                    }
                    _ => bytes.truncate(at.max(1)),
                }
            }
            for batch in read(&bytes).into_iter().flatten() {
                // Whoever reads the values finds them.
                for column in batch.columns() {
                    let _ = cast(column, &DataType::Utf8);
                }
            }
        }
    }
}
