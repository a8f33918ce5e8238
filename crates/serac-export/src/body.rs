//! Arrays as the body of a message: their buffers one behind the other, without a copy of the
//! values.
//!
//! [`flight`](crate::flight) sends the body as it is; an [`image`](crate::image) gives each of its
//! buffers a place elsewhere.

use arrow_array::cast::AsArray;
use arrow_array::types::{BinaryType, ByteArrayType, LargeBinaryType, LargeUtf8Type, Utf8Type};
use arrow_array::{AnyDictionaryArray, Array, ArrayRef, GenericListArray, OffsetSizeTrait, RecordBatch, UnionArray};
use arrow_buffer::{ArrowNativeType, BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer};
use arrow_cast::cast;
use arrow_ipc::{DictionaryBatchArgs, FieldNode, MessageArgs, MessageHeader, MetadataVersion, RecordBatchArgs};
use arrow_schema::{ArrowError, DataType};
use arrow_select::concat::concat;
use bytes::{Buf, Bytes};
use smallvec::{SmallVec, smallvec};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::slice;
use std::sync::Arc;

/// The alignment of a buffer in the body.
const ALIGNMENT: usize = 64;
static PADDING: [u8; ALIGNMENT] = [0; ALIGNMENT];

/// Bytes in several pieces.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    pub(crate) pieces: VecDeque<Bytes>,
    remaining: usize,
}

impl Pieces {
    pub(crate) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.remaining += piece.len();
            self.pieces.push_back(piece);
        }
    }

    pub(crate) fn push_front(&mut self, piece: Bytes) {
        self.remaining += piece.len();
        self.pieces.push_front(piece);
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

/// A buffer in a form that [`Bytes`] can own.
struct Shared(Buffer);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A buffer of an array, which may stand in several parts.
pub(crate) type Parts = SmallVec<[Buffer; 1]>;

/// The buffers of a batch, and their description in the header.
pub(crate) struct Body<L = fn(&Buffer) -> bool> {
    pub(crate) nodes: Vec<FieldNode>,
    /// The places of buffers in the body if they stand one behind the other.
    pub(crate) places: Vec<arrow_ipc::Buffer>,
    pub(crate) variadic: Vec<i64>,
    /// The buffers, one for each place.
    pub(crate) buffers: Vec<Parts>,
    bytes: usize,
    /// Whether a heap of views, or the words of a dictionary, may be given with more than the array
    /// names.
    lends: L,
}

impl Default for Body {
    fn default() -> Self {
        Self::lending(|_| false)
    }
}

impl<L: Fn(&Buffer) -> bool> Body<L> {
    /// A body to which whole heaps are given that `lends` knows.
    pub(crate) fn lending(lends: L) -> Self {
        Self { nodes: Vec::new(), places: Vec::new(), variadic: Vec::new(), buffers: Vec::new(), bytes: 0, lends }
    }

    fn lends(&self, heaps: &[Buffer]) -> bool {
        !heaps.is_empty() && heaps.iter().all(&self.lends)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The buffers one behind the other, with the padding between them.
    pub(crate) fn into_pieces(self) -> Pieces {
        let mut pieces = Pieces::default();
        for (parts, place) in self.buffers.into_iter().zip(&self.places) {
            parts.into_iter().for_each(|part| pieces.push(Bytes::from_owner(Shared(part))));
            let bytes = place.length() as usize;
            pieces.push(Bytes::from_static(&PADDING[..bytes.next_multiple_of(ALIGNMENT) - bytes]));
        }
        pieces
    }

    fn push(&mut self, buffer: Buffer) {
        self.push_parts(smallvec![buffer]);
    }

    /// Appends a buffer that stands in several.
    fn push_joined(&mut self, parts: impl IntoIterator<Item = Buffer>) {
        self.push_parts(parts.into_iter().collect());
    }

    fn push_parts(&mut self, parts: Parts) {
        let bytes = parts.iter().map(Buffer::len).sum::<usize>();
        self.places.push(arrow_ipc::Buffer::new(self.bytes as i64, bytes as i64));
        self.bytes += bytes.next_multiple_of(ALIGNMENT);
        self.buffers.push(parts);
    }

    /// Appends the number of rows, and the bitmap of those that are not NULL.
    fn push_validity(&mut self, parts: &[ArrayRef]) {
        let (rows, nulls) = (rows_of(parts), parts.iter().map(|part| part.null_count()).sum::<usize>());
        self.nodes.push(FieldNode::new(rows as i64, nulls as i64));
        self.push(match (parts, nulls) {
            (_, 0) => Buffer::from(&[]),
            ([whole], _) => whole.nulls().map_or_else(|| Buffer::from(&[]), |nulls| nulls.inner().sliced()),
            _ => {
                let mut bits = BooleanBufferBuilder::new(rows);
                for part in parts {
                    match part.nulls() {
                        Some(nulls) => bits.append_buffer(nulls.inner()),
                        None => bits.append_n(part.len(), true),
                    }
                }
                bits.finish().into_inner()
            }
        });
    }

    fn push_views(&mut self, views: &Buffer, heaps: &[Buffer]) {
        self.push(views.clone());
        heaps.iter().for_each(|heap| self.push(heap.clone()));
        self.variadic.push(heaps.len() as i64);
    }

    /// Appends offsets, which then begin at 0. Returns the range of values to which they belong.
    fn push_offsets<O: OffsetSizeTrait>(&mut self, offsets: &OffsetBuffer<O>) -> Range<usize> {
        let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
        self.push(if first == O::zero() {
            offsets.inner().inner().clone()
        } else {
            offsets.iter().map(|offset| *offset - first).collect::<Vec<O>>().into()
        });
        first.as_usize()..last.as_usize()
    }

    fn push_bytes<T: ByteArrayType>(&mut self, parts: &[ArrayRef]) {
        let arrays = || parts.iter().map(|part| part.as_bytes::<T>());
        if let [whole] = parts {
            self.push_offsets(whole.as_bytes::<T>().offsets());
        } else {
            let mut offsets = Vec::with_capacity(rows_of(parts) + 1);
            let mut end = T::Offset::usize_as(0);
            offsets.push(end);
            for array in arrays() {
                let first = array.offsets()[0];
                offsets.extend(array.offsets()[1..].iter().map(|offset| *offset - first + end));
                end = offsets[offsets.len() - 1];
            }
            self.push(offsets.into());
        }
        self.push_joined(arrays().map(|array| {
            let (first, last) = (array.offsets()[0].as_usize(), array.offsets()[array.len()].as_usize());
            array.values().slice_with_length(first, last - first)
        }));
    }

    fn push_fixed(&mut self, parts: &[ArrayRef], width: usize) {
        self.push_joined(parts.iter().map(|part| {
            let data = part.to_data();
            data.buffers()[0].slice_with_length(data.offset() * width, data.len() * width)
        }));
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
            return Err(ArrowError::NotYetImplemented("dictionaries within other types in messages of Arrow".into()));
        }
        self.push_array(array)
    }

    fn push_array(&mut self, array: &ArrayRef) -> Result<(), ArrowError> {
        // Arrays of the type Null have no validity of their own.
        if *array.data_type() == DataType::Null {
            self.nodes.push(FieldNode::new(array.len() as i64, array.len() as i64));
            return Ok(());
        }
        if let Some(union) = array.as_union_opt() {
            self.nodes.push(FieldNode::new(array.len() as i64, 0));
            return self.push_union(union);
        }
        let array = &if self.lends(heaps_of(array)) { array.clone() } else { exact(array) };
        if self.push_plain(slice::from_ref(array)) {
            return Ok(());
        }
        self.push_validity(slice::from_ref(array));
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
            other => return Err(ArrowError::NotYetImplemented(format!("arrays of type {other} in messages of Arrow"))),
        }
        Ok(())
    }

    /// Appends a column that stands in several arrays; dictionaries have the same words.
    ///
    /// # Errors
    /// An error for types that no table has.
    pub(crate) fn push_column(&mut self, parts: &[ArrayRef]) -> Result<(), ArrowError> {
        if let [whole] = parts {
            return self.push_array(whole);
        }
        if self.push_plain(parts) {
            return Ok(());
        }
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        self.push_array(&concat(&parts)?)
    }

    /// Appends arrays uncopied, if they are of a type whose values can be concatenated by their
    /// buffers.
    fn push_plain(&mut self, parts: &[ArrayRef]) -> bool {
        let data_type = parts[0].data_type();
        if !is_plain(data_type) {
            return false;
        }
        self.push_validity(parts);
        match data_type {
            DataType::Utf8 => self.push_bytes::<Utf8Type>(parts),
            DataType::Binary => self.push_bytes::<BinaryType>(parts),
            DataType::LargeUtf8 => self.push_bytes::<LargeUtf8Type>(parts),
            DataType::LargeBinary => self.push_bytes::<LargeBinaryType>(parts),
            other => self.push_fixed(parts, width_of(other).expect("they are of a fixed width")),
        }
        true
    }
}

fn rows_of(parts: &[ArrayRef]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

/// The bytes of a value, or of a dictionary's code, for types whose values have the same width.
fn width_of(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::FixedSizeBinary(width) => Some(*width as usize),
        DataType::Dictionary(codes, _) => codes.primitive_width(),
        other => other.primitive_width(),
    }
}

fn is_plain(data_type: &DataType) -> bool {
    let has_offsets =
        matches!(data_type, DataType::Utf8 | DataType::Binary | DataType::LargeUtf8 | DataType::LargeBinary);
    has_offsets || width_of(data_type).is_some()
}

/// Whether [`Body::push_column`] copies at most a bit per value of columns of this type.
pub(crate) fn joins_cheaply(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Null | DataType::Boolean) || is_plain(data_type)
}

/// The values of a dictionary. Their numbers in the stream are those of the schema: in the order of
/// the columns.
pub(crate) fn words_of(column: &ArrayRef) -> Option<&ArrayRef> {
    column.as_any_dictionary_opt().map(AnyDictionaryArray::values)
}

/// The heaps of an array of views.
fn heaps_of(array: &ArrayRef) -> &[Buffer] {
    let texts = array.as_string_view_opt().map(|array| array.data_buffers());
    texts.or_else(|| array.as_binary_view_opt().map(|array| array.data_buffers())).unwrap_or_default()
}

/// The header of a message of `rows` rows: a batch, or the dictionary with this number.
pub(crate) fn header(
    body: &Body,
    places: &[arrow_ipc::Buffer],
    body_bytes: usize,
    rows: usize,
    dictionary: Option<i64>,
) -> Vec<u8> {
    let mut builder = flatbuffers::FlatBufferBuilder::new();
    let nodes = builder.create_vector(&body.nodes);
    let buffers = builder.create_vector(places);
    let variadic = (!body.variadic.is_empty()).then(|| builder.create_vector(&body.variadic));
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
            bodyLength: body_bytes as i64,
            custom_metadata: None,
        },
    );
    builder.finish(message, None);
    builder.finished_data().to_vec()
}

/// The batch with dictionaries of just the words that its rows have.
pub(crate) fn with_own_words(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let column = |column: &ArrayRef| match words_of(column) {
        Some(words) => cast(&cast(column, words.data_type())?, column.data_type()),
        None => Ok(column.clone()),
    };
    RecordBatch::try_new(batch.schema(), batch.columns().iter().map(column).collect::<Result<_, _>>()?)
}

/// The array with exact heaps: the heap of an array of views holds only the bytes that the views
/// name. An array with all rows of a frozen block already has such a heap. The heap of a hot block
/// also holds overwritten and uncommitted bytes, and that of a filtered array the bytes of the rows
/// that are gone; these must not leave the engine.
pub fn exact(array: &ArrayRef) -> ArrayRef {
    /// Whether the views name each byte of the heaps once. Their lengths alone do not tell: rows
    /// that a join repeats name some bytes twice.
    fn is_exact(views: &[u128], nulls: Option<&NullBuffer>, heaps: &[Buffer]) -> bool {
        let held: usize = heaps.iter().map(Buffer::len).sum();
        // All texts are short, and stand in the views themselves.
        if held == 0 {
            return true;
        }
        let valid = |row: usize| nulls.is_none_or(|nulls| nulls.is_valid(row));
        // Heap, start and length of the bytes of a long value.
        let place = |row: usize| {
            let view = views[row];
            (view as u32 > 12 && valid(row)).then_some(((view >> 64) as u32, (view >> 96) as u32, view as u32))
        };
        let named: usize = (0..views.len()).filter_map(place).map(|(.., length)| length as usize).sum();
        if named != held {
            return false;
        }
        let mut places: Vec<_> = (0..views.len()).filter_map(place).collect();
        places.sort_unstable();
        let mut ends = vec![0; heaps.len()];
        places.iter().all(|&(heap, start, length)| std::mem::replace(&mut ends[heap as usize], start + length) == start)
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
    use arrow_array::{StringViewArray, UInt64Array};

    #[test]
    fn only_bytes_that_views_name_leave() {
        let texts = ["a text that all may read", "a text that is a secret."];
        let all: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
        let rows = |rows: &[u64]| arrow_select::take::take(&all, &UInt64Array::from(rows.to_vec()), None).unwrap();
        let heap = |array: &ArrayRef| {
            array.as_string_view().data_buffers().iter().flat_map(|heap| heap.to_vec()).collect::<Vec<u8>>()
        };
        // Each byte is named once, in any order: the array is lent as it is.
        for all in [&all, &rows(&[1, 0])] {
            assert_eq!(
                exact(all).as_string_view().data_buffers()[0].as_ptr(),
                all.as_string_view().data_buffers()[0].as_ptr()
            );
        }
        // The lengths of a row that comes twice add up to the heap.
        let twice = rows(&[0, 0]);
        assert_eq!(heap(&twice).len(), texts.concat().len());
        assert!(!heap(&exact(&twice)).windows(6).any(|bytes| bytes == b"secret"));
        assert_eq!(exact(&twice).as_string_view().iter().collect::<Vec<_>>(), [Some(texts[0]); 2]);
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
