//! A record batch as the pieces of a gRPC message.
//!
//! A FlightData message is a flatbuffers header and a body: the arrays' buffers one behind the other. Encoders commonly copy the buffers into one
//! body, and the body into the message. Here the message is a list of pieces: the few bytes that must be made (gRPC and protobuf framing, the
//! header, padding), and between them the buffers themselves, reference-counted. The HTTP/2 layer writes the pieces with vectored writes, so that
//! the kernel's copy into the socket is the first that is made of a frozen block.

use arrow_array::cast::AsArray;
use arrow_array::types::ByteArrayType;
use arrow_array::{
    AnyDictionaryArray, Array, ArrayRef, GenericByteArray, GenericListArray, OffsetSizeTrait, RecordBatch, UnionArray,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow_cast::cast;
use arrow_flight::{FlightData, SchemaAsIpc};
use arrow_ipc::writer::IpcWriteOptions;
use arrow_ipc::{DictionaryBatchArgs, FieldNode, MessageArgs, MessageHeader, MetadataVersion, RecordBatchArgs};
use arrow_schema::{ArrowError, DataType, Schema};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

/// Where a buffer begins in the body: a multiple of this.
const ALIGNMENT: usize = 64;
static PADDING: [u8; ALIGNMENT] = [0; ALIGNMENT];

/// Bytes in several pieces.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    pieces: VecDeque<Bytes>,
    remaining: usize,
}

impl Pieces {
    pub(super) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.remaining += piece.len();
            self.pieces.push_back(piece);
        }
    }
}

impl From<Bytes> for Pieces {
    fn from(piece: Bytes) -> Self {
        let mut pieces = Self::default();
        pieces.push(piece);
        pieces
    }
}

impl Buf for Pieces {
    fn remaining(&self) -> usize {
        self.remaining
    }
    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }
    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let count = slices.len().min(self.pieces.len());
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(piece);
        }
        count
    }
    fn advance(&mut self, mut bytes: usize) {
        assert!(bytes <= self.remaining, "advanced by {bytes} of {} bytes", self.remaining);
        self.remaining -= bytes;
        while let Some(first) = self.pieces.front_mut() {
            if bytes < first.len() {
                first.advance(bytes);
                return;
            }
            bytes -= first.len();
            self.pieces.pop_front();
        }
    }
}

/// A buffer as what [`Bytes`] can own.
struct Shared(Buffer);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The buffers of a batch, and what the header says about them.
#[derive(Default)]
struct Body {
    nodes: Vec<FieldNode>,
    places: Vec<arrow_ipc::Buffer>,
    variadic: Vec<i64>,
    buffers: Vec<Buffer>,
    bytes: usize,
}

impl Body {
    fn push(&mut self, buffer: Buffer) {
        self.places.push(arrow_ipc::Buffer::new(self.bytes as i64, buffer.len() as i64));
        self.bytes += buffer.len().next_multiple_of(ALIGNMENT);
        self.buffers.push(buffer);
    }
    fn push_nulls(&mut self, nulls: Option<&NullBuffer>) {
        self.push(
            nulls.filter(|nulls| nulls.null_count() > 0).map_or_else(|| Buffer::from(&[]), |n| n.inner().sliced()),
        );
    }
    fn push_views(&mut self, views: &Buffer, heaps: &[Buffer]) {
        self.push(views.clone());
        heaps.iter().for_each(|heap| self.push(heap.clone()));
        self.variadic.push(heaps.len() as i64);
    }
    /// Appends offsets, from 0 on; which values they are of.
    fn push_offsets<O: OffsetSizeTrait>(&mut self, offsets: &OffsetBuffer<O>) -> Range<usize> {
        let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
        self.push(if first == O::zero() {
            offsets.inner().inner().clone()
        } else {
            offsets.iter().map(|offset| *offset - first).collect::<Vec<O>>().into()
        });
        first.as_usize()..last.as_usize()
    }
    fn push_bytes<T: ByteArrayType>(&mut self, array: &GenericByteArray<T>) {
        let values = self.push_offsets(array.offsets());
        self.push(array.values().slice_with_length(values.start, values.len()));
    }
    fn push_list<O: OffsetSizeTrait>(&mut self, list: &GenericListArray<O>) -> Result<(), ArrowError> {
        let values = self.push_offsets(list.offsets());
        self.push_child(&list.values().slice(values.start, values.len()))
    }
    fn push_union(&mut self, union: &UnionArray) -> Result<(), ArrowError> {
        self.push(union.type_ids().inner().clone());
        if let Some(offsets) = union.offsets() {
            self.push(offsets.inner().clone());
        }
        let DataType::Union(fields, _) = union.data_type() else { unreachable!("it is one") };
        fields.iter().try_for_each(|(id, _)| self.push_child(union.child(id)))
    }
    /// An array within another. Dictionaries are counted at the top only.
    fn push_child(&mut self, array: &ArrayRef) -> Result<(), ArrowError> {
        if words_of(array).is_some() {
            return Err(ArrowError::NotYetImplemented("dictionaries within other types over Flight".into()));
        }
        self.push_array(array)
    }

    fn push_array(&mut self, array: &ArrayRef) -> Result<(), ArrowError> {
        // These have no validity of their own.
        if *array.data_type() == DataType::Null {
            self.nodes.push(FieldNode::new(array.len() as i64, array.len() as i64));
            return Ok(());
        }
        if let Some(union) = array.as_union_opt() {
            self.nodes.push(FieldNode::new(array.len() as i64, 0));
            return self.push_union(union);
        }
        let array = &exact(array);
        self.nodes.push(FieldNode::new(array.len() as i64, array.null_count() as i64));
        self.push_nulls(array.nulls());
        match array.data_type() {
            DataType::Boolean => self.push(array.as_boolean().values().sliced()),
            DataType::Utf8View => {
                let array = array.as_string_view();
                self.push_views(array.views().inner(), array.data_buffers());
            }
            DataType::BinaryView => {
                let array = array.as_binary_view();
                self.push_views(array.views().inner(), array.data_buffers());
            }
            DataType::Utf8 => self.push_bytes(array.as_string::<i32>()),
            DataType::Binary => self.push_bytes(array.as_binary::<i32>()),
            DataType::LargeUtf8 => self.push_bytes(array.as_string::<i64>()),
            DataType::LargeBinary => self.push_bytes(array.as_binary::<i64>()),
            DataType::List(_) => self.push_list(array.as_list::<i32>())?,
            DataType::LargeList(_) => self.push_list(array.as_list::<i64>())?,
            DataType::FixedSizeList(..) => self.push_child(array.as_fixed_size_list().values())?,
            DataType::Map(..) => {
                let map = array.as_map();
                let entries = self.push_offsets(map.offsets());
                let entries: ArrayRef = Arc::new(map.entries().slice(entries.start, entries.len()));
                self.push_child(&entries)?;
            }
            DataType::Struct(_) => array.as_struct().columns().iter().try_for_each(|c| self.push_child(c))?,
            data_type => {
                let width = match data_type {
                    DataType::FixedSizeBinary(width) => Some(*width as usize),
                    DataType::Dictionary(codes, _) => codes.primitive_width(),
                    other => other.primitive_width(),
                };
                let Some(width) = width else {
                    return Err(ArrowError::NotYetImplemented(format!("arrays of type {data_type} over Flight")));
                };
                let data = array.to_data();
                self.push(data.buffers()[0].slice_with_length(data.offset() * width, data.len() * width));
            }
        }
        Ok(())
    }

    /// What stands before the body of a batch of so many rows, or of the dictionary with this number.
    fn header(&self, rows: usize, dictionary: Option<i64>) -> Vec<u8> {
        let mut builder = flatbuffers::FlatBufferBuilder::new();
        let nodes = builder.create_vector(&self.nodes);
        let buffers = builder.create_vector(&self.places);
        let variadic = (!self.variadic.is_empty()).then(|| builder.create_vector(&self.variadic));
        let batch = arrow_ipc::RecordBatch::create(
            &mut builder,
            &RecordBatchArgs {
                length: rows as i64,
                nodes: Some(nodes),
                buffers: Some(buffers),
                compression: None,
                variadicBufferCounts: variadic,
            },
        );
        let (header_type, header) = match dictionary {
            None => (MessageHeader::RecordBatch, batch.as_union_value()),
            Some(id) => {
                let args = DictionaryBatchArgs { id, data: Some(batch), isDelta: false };
                let dictionary = arrow_ipc::DictionaryBatch::create(&mut builder, &args);
                (MessageHeader::DictionaryBatch, dictionary.as_union_value())
            }
        };
        let message = arrow_ipc::Message::create(
            &mut builder,
            &MessageArgs {
                version: MetadataVersion::V5,
                header_type,
                header: Some(header),
                bodyLength: self.bytes as i64,
                custom_metadata: None,
            },
        );
        builder.finish(message, None);
        builder.finished_data().to_vec()
    }

    fn into_message(self, rows: usize, dictionary: Option<i64>) -> Result<Pieces, ArrowError> {
        if self.bytes > i32::MAX as usize {
            let message = format!("{rows} values of {} bytes do not fit into a message", self.bytes);
            return Err(ArrowError::InvalidArgumentError(message));
        }
        let header = FlightData { data_header: self.header(rows, dictionary).into(), ..FlightData::default() };
        let mut pieces = Pieces::from(framed(&header, self.bytes));
        for buffer in self.buffers {
            let padding = buffer.len().next_multiple_of(ALIGNMENT) - buffer.len();
            pieces.push(Bytes::from_owner(Shared(buffer)));
            pieces.push(Bytes::from_static(&PADDING[..padding]));
        }
        Ok(pieces)
    }
}

/// The gRPC message that carries `data` without a body, of which `body` bytes follow.
fn framed(data: &FlightData, body: usize) -> Bytes {
    // Field 1000 of FlightData, length-delimited.
    const BODY_TAG: u64 = 1000 << 3 | 2;
    let mut message = BytesMut::with_capacity(data.encoded_len() + 32);
    message.put_bytes(0, 5);
    data.encode(&mut message).expect("the buffer grows");
    if body > 0 {
        prost::encoding::encode_varint(BODY_TAG, &mut message);
        prost::encoding::encode_varint(body as u64, &mut message);
    }
    // gRPC: not compressed, and the length. A message that is too long for it has been split before.
    let length = u32::try_from(message.len() - 5 + body).expect("messages are limited");
    message[1..5].copy_from_slice(&length.to_be_bytes());
    message.freeze()
}

/// The message that begins a stream.
pub(super) fn schema_message(schema: &Schema) -> Pieces {
    framed(&FlightData::from(SchemaAsIpc::new(schema, &IpcWriteOptions::default())), 0).into()
}

/// Appends the messages of a batch: its dictionaries, which hold until the next come, and its rows, in one message unless its body is longer than `limit`.
///
/// # Errors
/// For types that no table has, and for a row that does not fit into a message.
pub(super) fn batch_messages(batch: RecordBatch, limit: usize, out: &mut VecDeque<Pieces>) -> Result<(), ArrowError> {
    let (rows, first) = (batch.num_rows(), out.len());
    let dictionaries = batch.columns().iter().enumerate().filter_map(|(at, column)| Some((at, words_of(column)?)));
    for (id, (at, words)) in dictionaries.enumerate() {
        let mut body = Body::default();
        body.push_array(words)?;
        if body.bytes > limit {
            let own = with_own_words(&batch)?;
            let is_smaller = words_of(own.column(at)).is_some_and(|own| own.len() < words.len());
            if is_smaller || rows > 1 {
                out.truncate(first);
                if is_smaller {
                    return batch_messages(own, limit, out);
                }
                batch_messages(own.slice(0, rows / 2), limit, out)?;
                return batch_messages(own.slice(rows / 2, rows - rows / 2), limit, out);
            }
        }
        out.push_back(body.into_message(words.len(), Some(id as i64))?);
    }
    row_messages(batch, limit, out)
}

fn row_messages(batch: RecordBatch, limit: usize, out: &mut VecDeque<Pieces>) -> Result<(), ArrowError> {
    let mut body = Body::default();
    batch.columns().iter().try_for_each(|column| body.push_array(column))?;
    let rows = batch.num_rows();
    if body.bytes > limit && rows > 1 {
        row_messages(batch.slice(0, rows / 2), limit, out)?;
        return row_messages(batch.slice(rows / 2, rows - rows / 2), limit, out);
    }
    out.push_back(body.into_message(rows, None)?);
    Ok(())
}

/// The values of a dictionary. Their numbers in the stream are those of the schema: in the order of the columns.
fn words_of(column: &ArrayRef) -> Option<&ArrayRef> {
    column.as_any_dictionary_opt().map(AnyDictionaryArray::values)
}

/// The batch with dictionaries of just the words that its rows have.
fn with_own_words(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let column = |column: &ArrayRef| match words_of(column) {
        Some(words) => cast(&cast(column, words.data_type())?, column.data_type()),
        None => Ok(column.clone()),
    };
    RecordBatch::try_new(batch.schema(), batch.columns().iter().map(column).collect::<Result<_, _>>()?)
}

/// The array; if it is one of views, holding just what they name. That of a frozen block whose rows are all there does already; the heap of a hot one
/// also holds what was overwritten, and what others have not committed, which is nobody's business.
fn exact(array: &ArrayRef) -> ArrayRef {
    fn is_exact(views: &[u128], nulls: Option<&NullBuffer>, heaps: &[Buffer]) -> bool {
        let held: usize = heaps.iter().map(Buffer::len).sum();
        let long = |view: u128| if view as u32 > 12 { view as u32 as usize } else { 0 };
        let named: usize = match nulls {
            None => views.iter().map(|&view| long(view)).sum(),
            Some(nulls) => nulls.valid_indices().map(|i| long(views[i])).sum(),
        };
        named == held
    }
    if let Some(text) = array.as_string_view_opt() {
        if !is_exact(text.views(), text.nulls(), text.data_buffers()) {
            return Arc::new(text.gc());
        }
    } else if let Some(bytes) = array.as_binary_view_opt()
        && !is_exact(bytes.views(), bytes.nulls(), bytes.data_buffers())
    {
        return Arc::new(bytes.gc());
    }
    array.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::types::UInt16Type;
    use arrow_array::{
        BooleanArray, DictionaryArray, FixedSizeListArray, Int64Array, ListArray, NullArray, StringArray,
        StringViewArray, StructArray,
    };
    use arrow_flight::decode::FlightRecordBatchStream;
    use arrow_schema::Field;
    use futures::TryStreamExt;

    fn batch() -> RecordBatch {
        let text = |i: i64| (i % 3 != 0).then(|| format!("a text that is long: {i}"));
        let words = |word: &dyn Fn(i64) -> Option<String>| -> ArrayRef {
            let texts: Vec<Option<String>> = (0..5_000).map(word).collect();
            Arc::new(texts.iter().map(Option::as_deref).collect::<DictionaryArray<UInt16Type>>())
        };
        RecordBatch::try_from_iter([
            ("id", Arc::new(Int64Array::from_iter_values(0..5_000)) as ArrayRef),
            ("view", Arc::new((0..5_000).map(text).collect::<StringViewArray>())),
            ("offsets", Arc::new((0..5_000).map(text).collect::<StringArray>())),
            ("flag", Arc::new((0..5_000).map(|i| (i % 7 != 0).then_some(i % 2 == 0)).collect::<BooleanArray>())),
            ("words", words(&|i| text(i % 2_000))),
            ("few", words(&|i| text(i / 4_000))),
        ])
        .unwrap()
    }

    /// The batches that a client makes of the messages.
    fn decode(schema: &Schema, messages: VecDeque<Pieces>) -> Vec<RecordBatch> {
        let messages = std::iter::once(schema_message(schema)).chain(messages).map(|mut pieces| {
            let mut bytes = pieces.copy_to_bytes(pieces.remaining());
            assert_eq!(bytes.get_u8(), 0, "not compressed");
            assert_eq!(bytes.get_u32() as usize, bytes.len());
            Ok(FlightData::decode(bytes).unwrap())
        });
        let stream = FlightRecordBatchStream::new_from_flight_data(futures::stream::iter(messages));
        futures::executor::block_on(stream.try_collect()).unwrap()
    }

    #[test]
    fn the_body_is_the_arrays_own_memory() {
        let batch = batch();
        let columns = batch.columns().iter().map(exact).collect();
        let batch = RecordBatch::try_new(batch.schema(), columns).unwrap();
        let mut messages = VecDeque::new();
        batch_messages(batch.clone(), usize::MAX, &mut messages).unwrap();
        let sent: Vec<*const u8> =
            messages.iter().flat_map(|message| &message.pieces).map(|piece| piece.as_ptr()).collect();
        let dictionaries =
            batch.columns().iter().filter_map(words_of).flat_map(|words| words.to_data().buffers().to_vec());
        let buffers = batch.columns().iter().flat_map(|c| c.to_data().buffers().to_vec()).chain(dictionaries);
        let nulls = batch.columns().iter().filter_map(|c| Some(c.nulls()?.buffer().clone()));
        for buffer in buffers.chain(nulls) {
            assert!(sent.contains(&buffer.as_ptr()), "a buffer of {} bytes was copied", buffer.len());
        }
        assert_eq!(decode(&batch.schema(), messages), [batch]);
    }

    /// Types that queries have and tables have not.
    fn nested() -> RecordBatch {
        let texts = |range: std::ops::Range<i64>| -> ArrayRef {
            Arc::new(
                range.map(|i| (i % 5 != 0).then(|| format!("a text within another: {i}"))).collect::<StringViewArray>(),
            )
        };
        let lengths = || (0..1_000).map(|i| i % 4);
        let total = lengths().sum::<usize>() as i64;
        let item = Arc::new(Field::new("item", DataType::Utf8View, true));
        let list = ListArray::new(item.clone(), OffsetBuffer::from_lengths(lengths()), texts(0..total), None);
        let pairs = FixedSizeListArray::new(item, 2, texts(0..2_000), None);
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter((0..1_000).map(|i| (i % 2 == 0).then_some(i))));
        let structure =
            StructArray::try_from(vec![("n", numbers.clone()), ("list", Arc::new(list.clone()) as ArrayRef)]);
        let large = cast(&texts(0..1_000), &DataType::LargeUtf8).unwrap();
        let fields = [(0, Field::new("n", DataType::Int64, true)), (1, Field::new("t", DataType::Utf8View, true))];
        let kinds: Vec<i8> = (0..1_000).map(|i| i8::from(i % 3 == 0)).collect();
        let union = UnionArray::try_new(
            fields.into_iter().map(|(i, f)| (i, Arc::new(f))).collect(),
            kinds.into(),
            None,
            vec![numbers, texts(0..1_000)],
        );
        RecordBatch::try_from_iter_with_nullable([
            ("list", Arc::new(list) as ArrayRef, true),
            ("pairs", Arc::new(pairs), true),
            ("structure", Arc::new(structure.unwrap()), true),
            ("large", large, true),
            ("nothing", Arc::new(NullArray::new(1_000)), true),
            ("union", Arc::new(union.unwrap()), true),
        ])
        .unwrap()
    }

    #[test]
    fn arrays_within_arrays_arrive() {
        let whole = nested();
        for (offset, rows) in [(0, 1_000), (1, 998), (500, 3), (7, 0)] {
            let batch = whole.slice(offset, rows);
            for limit in [10_000, usize::MAX] {
                let mut messages = VecDeque::new();
                batch_messages(batch.clone(), limit, &mut messages).unwrap();
                let schema = batch.schema();
                let received = decode(&schema, messages);
                let mut at = 0;
                for piece in &received {
                    assert_eq!(*piece, batch.slice(at, piece.num_rows()));
                    at += piece.num_rows();
                }
                assert_eq!((at, received.len() > 1), (rows, limit == 10_000 && rows > 100));
            }
        }
        let words: ArrayRef = Arc::new(["a", "b"].into_iter().collect::<DictionaryArray<UInt16Type>>());
        let structure = StructArray::try_from(vec![("words", words)]).unwrap();
        let batch = RecordBatch::try_from_iter([("s", Arc::new(structure) as ArrayRef)]).unwrap();
        assert!(batch_messages(batch, usize::MAX, &mut VecDeque::new()).is_err());
    }

    #[test]
    fn slices_and_long_batches_arrive_whole() {
        let whole = batch();
        for (offset, rows) in [(0, 5_000), (3, 4_001), (64, 1), (1_001, 0)] {
            let batch = whole.slice(offset, rows);
            for limit in [20_000, usize::MAX] {
                let mut messages = VecDeque::new();
                batch_messages(batch.clone(), limit, &mut messages).unwrap();
                assert!(messages.iter().all(|message| message.remaining() < limit.saturating_add(2_000)));
                // Two of dictionaries, and one of rows.
                assert_eq!(messages.len() > 3, limit == 20_000 && rows > 1, "{rows} rows");
                let schema = batch.schema();
                let received = arrow_select::concat::concat_batches(&schema, &decode(&schema, messages)).unwrap();
                assert_eq!(received, batch);
            }
        }
    }

    #[test]
    fn pieces_are_one_buffer() {
        let mut pieces = Pieces::default();
        for piece in [&b"abc"[..], b"", b"d", b"efgh"] {
            pieces.push(Bytes::from_static(piece));
        }
        let mut slices = [IoSlice::new(&[]); 2];
        assert_eq!((pieces.chunks_vectored(&mut slices), &*slices[0], &*slices[1]), (2, &b"abc"[..], &b"d"[..]));
        pieces.advance(2);
        assert_eq!((pieces.remaining(), pieces.chunk()), (6, &b"c"[..]));
        pieces.advance(2);
        assert_eq!((pieces.remaining(), pieces.chunk()), (4, &b"efgh"[..]));
        pieces.advance(4);
        assert_eq!((pieces.remaining(), pieces.chunk()), (0, &b""[..]));
    }
}
