//! Group keys as words: the numbers of a key side by side in one number, and a text as its view.
//!
//! A key's place in the number follows from the types alone, because groups are made before all
//! values are known:
//!
//! ```text
//! | NULL? | key 2 | NULL? | key 1 |     | length | prefix | offset |
//! ```
//!
//! Keys are equal if their numbers are, and their texts. The number of a NULL is 0. The view of a
//! text that is NULL is one that no text has.

use datafusion::arrow::array::{Array, ArrayData, ArrayRef, AsArray, BinaryViewArray, StringViewArray, make_array};
use datafusion::arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use datafusion::arrow::datatypes::{ArrowNativeType, DataType, SchemaRef};
use datafusion::common::{Result, internal_err};
use std::sync::Arc;

/// The view of a text that is NULL.
pub(super) const NULL_VIEW: u128 = u128::MAX;
/// Texts up to this length are within their view.
const INLINE: usize = 12;
/// The bytes that the texts of one table may take: offsets of views are signed for other readers.
pub(super) const MOST_TEXT_BYTES: usize = i32::MAX as usize;

/// The numbers of a key.
pub(super) trait Packed: Copy + Eq + Default + Send + Sync + 'static {
    /// Sets bits from `shift` on, which are 0.
    fn put(&mut self, value: u128, shift: u32);
    /// The bits from `shift` on.
    fn bits(self, shift: u32) -> u128;
    /// A hash whose first bits are good.
    fn hash(self) -> u32;
}

/// An odd number of many bits, by the golden ratio.
pub(super) const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// Both halves of a product: each bit of a value changes many.
#[inline]
fn folded(value: u64) -> u64 {
    let product = u128::from(value ^ MIX >> 1) * u128::from(MIX);
    product as u64 ^ (product >> 64) as u64
}

impl Packed for () {
    fn put(&mut self, _: u128, _: u32) {}

    fn bits(self, _: u32) -> u128 {
        0
    }

    fn hash(self) -> u32 {
        0
    }
}

impl Packed for u64 {
    #[inline]
    fn put(&mut self, value: u128, shift: u32) {
        *self |= (value as u64) << shift;
    }

    #[inline]
    fn bits(self, shift: u32) -> u128 {
        u128::from(self >> shift)
    }

    #[inline]
    fn hash(self) -> u32 {
        (folded(self) >> 32) as u32
    }
}

impl Packed for u128 {
    #[inline]
    fn put(&mut self, value: u128, shift: u32) {
        *self |= value << shift;
    }

    #[inline]
    fn bits(self, shift: u32) -> u128 {
        self >> shift
    }

    #[inline]
    fn hash(self) -> u32 {
        (folded(self as u64 ^ folded((self >> 64) as u64)) >> 32) as u32
    }
}

/// The place of a key.
#[derive(Clone, Debug)]
enum Place {
    /// Bits of the number, and the bit above them that says that the key is NULL, if it may be.
    Bits {
        shift: u32,
        bits: u32,
        null: Option<u32>,
    },
    Text,
}

/// The places of all keys.
#[derive(Clone, Debug)]
pub(super) struct KeyLayout {
    schema: SchemaRef,
    places: Vec<Place>,
    /// The bits of the number.
    pub(super) bits: u32,
    pub(super) has_text: bool,
}

impl KeyLayout {
    /// The layout of keys; `None` if they do not fit into 128 bits and a text.
    pub(super) fn new(schema: SchemaRef) -> Option<Self> {
        let (mut bits, mut has_text) = (0, false);
        let mut places = Vec::new();
        for field in schema.fields() {
            if matches!(field.data_type(), DataType::Utf8View | DataType::BinaryView) {
                if std::mem::replace(&mut has_text, true) {
                    return None;
                }
                places.push(Place::Text);
                continue;
            }
            let (shift, width) = (bits, bits_of(field.data_type())?);
            bits += width;
            let null = field.is_nullable().then_some(bits);
            bits += u32::from(null.is_some());
            places.push(Place::Bits { shift, bits: width, null });
        }
        (bits <= 128 && !places.is_empty()).then_some(Self { schema, places, bits, has_text })
    }

    /// The numbers of rows, which become as many as rows.
    pub(super) fn pack<P: Packed>(&self, columns: &[ArrayRef], rows: usize, numbers: &mut Vec<P>) -> Result<()> {
        numbers.clear();
        numbers.resize(rows, P::default());
        for (place, column) in self.places.iter().zip(columns) {
            let Place::Bits { shift, bits, null } = *place else { continue };
            let nulls = column.logical_nulls().filter(|nulls| nulls.null_count() > 0);
            if nulls.is_some() && null.is_none() {
                return internal_err!("NULL in a key that is never NULL");
            }
            let nulls = nulls.as_ref().zip(null);
            if bits == 1 {
                let values = column.as_boolean().values().clone();
                put(numbers, values.iter().map(u128::from), nulls, shift);
                continue;
            }
            let data = column.to_data();
            match bits {
                8 => put(numbers, data.buffer::<u8>(0)[..rows].iter().map(|value| u128::from(*value)), nulls, shift),
                16 => put(numbers, data.buffer::<u16>(0)[..rows].iter().map(|value| u128::from(*value)), nulls, shift),
                32 => put(numbers, data.buffer::<u32>(0)[..rows].iter().map(|value| u128::from(*value)), nulls, shift),
                64 => put(numbers, data.buffer::<u64>(0)[..rows].iter().map(|value| u128::from(*value)), nulls, shift),
                _ => put(numbers, data.buffer::<i128>(0)[..rows].iter().map(|value| *value as u128), nulls, shift),
            }
        }
        Ok(())
    }

    /// The text among the keys of rows.
    pub(super) fn texts<'a>(&self, columns: &'a [ArrayRef], views: &mut Vec<u128>) -> Vec<&'a [u8]> {
        let at = self.places.iter().position(|place| matches!(place, Place::Text));
        let Some(column) = at.map(|at| &columns[at]) else { return Vec::new() };
        let (given, buffers) = match column.data_type() {
            DataType::Utf8View => (column.as_string_view().views(), column.as_string_view().data_buffers()),
            _ => (column.as_binary_view().views(), column.as_binary_view().data_buffers()),
        };
        views.clear();
        views.extend_from_slice(given);
        if let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) {
            views
                .iter_mut()
                .zip(nulls.iter())
                .filter(|(_, is_valid)| !is_valid)
                .for_each(|(view, _)| *view = NULL_VIEW);
        }
        buffers.iter().map(Buffer::as_slice).collect()
    }

    /// The columns of keys.
    pub(super) fn unpack<P: Packed>(&self, keys: Keys<P>) -> Result<Vec<ArrayRef>> {
        let Keys { numbers, views, heap } = keys;
        let mut texts = Some((views, heap));
        let columns = self.places.iter().zip(self.schema.fields()).map(|(place, field)| {
            let Place::Bits { shift, bits, null } = *place else {
                let (views, heap) = texts.take().unwrap_or_default();
                return Ok(texts_of(views, heap, field.data_type()));
            };
            let nulls =
                null.map(|null| BooleanBuffer::collect_bool(numbers.len(), |row| numbers[row].bits(null) & 1 == 0));
            let nulls = nulls.map(NullBuffer::new).filter(|nulls| nulls.null_count() > 0);
            fn all<T: ArrowNativeType>(values: impl Iterator<Item = T>) -> Buffer {
                Buffer::from_vec(values.collect::<Vec<T>>())
            }
            let values = numbers.iter().map(|number| number.bits(shift));
            let buffer = match bits {
                1 => BooleanBuffer::collect_bool(numbers.len(), |row| numbers[row].bits(shift) & 1 == 1).into_inner(),
                8 => all(values.map(|value| value as u8)),
                16 => all(values.map(|value| value as u16)),
                32 => all(values.map(|value| value as u32)),
                64 => all(values.map(|value| value as u64)),
                _ => all(values.map(|value| value as i128)),
            };
            let data = ArrayData::builder(field.data_type().clone()).len(numbers.len()).add_buffer(buffer).nulls(nulls);
            Ok(make_array(data.build()?))
        });
        columns.collect()
    }
}

/// Puts values at their place.
#[inline]
fn put<P: Packed>(
    numbers: &mut [P],
    values: impl Iterator<Item = u128>,
    nulls: Option<(&NullBuffer, u32)>,
    shift: u32,
) {
    match nulls {
        None => numbers.iter_mut().zip(values).for_each(|(number, value)| number.put(value, shift)),
        Some((nulls, null)) => {
            for ((number, value), is_valid) in numbers.iter_mut().zip(values).zip(nulls.iter()) {
                match is_valid {
                    true => number.put(value, shift),
                    false => number.put(1, null),
                }
            }
        }
    }
}

/// The bits of a type's values; `None` for types whose values are not equal exactly if their bits
/// are.
fn bits_of(data_type: &DataType) -> Option<u32> {
    use DataType as T;
    match data_type {
        T::Boolean => Some(1),
        T::Int8
        | T::Int16
        | T::Int32
        | T::Int64
        | T::UInt8
        | T::UInt16
        | T::UInt32
        | T::UInt64
        | T::Decimal64(..)
        | T::Decimal128(..)
        | T::Date32
        | T::Date64
        | T::Time32(_)
        | T::Time64(_)
        | T::Timestamp(..) => data_type.primitive_width().map(|bytes| 8 * bytes as u32),
        _ => None,
    }
}

fn texts_of(mut views: Vec<u128>, heap: Vec<u8>, data_type: &DataType) -> ArrayRef {
    let valid = BooleanBuffer::collect_bool(views.len(), |row| views[row] != NULL_VIEW);
    let nulls = Some(NullBuffer::new(valid)).filter(|nulls| nulls.null_count() > 0);
    if nulls.is_some() {
        views.iter_mut().filter(|view| **view == NULL_VIEW).for_each(|view| *view = 0);
    }
    let buffers: Vec<Buffer> = if heap.is_empty() { Vec::new() } else { vec![Buffer::from_vec(heap)] };
    match data_type {
        // SAFETY: `Keys::push` makes the views. Each is that of a text of a valid array: either
        // the text is within the view, or its bytes are in the heap from the view's offset on.
        DataType::Utf8View => Arc::new(unsafe { StringViewArray::new_unchecked(views.into(), buffers, nulls) }),
        // SAFETY: as above.
        _ => Arc::new(unsafe { BinaryViewArray::new_unchecked(views.into(), buffers, nulls) }),
    }
}

/// Keys of rows, which lie elsewhere.
#[derive(Clone, Copy)]
pub(super) struct KeyRows<'a, P> {
    pub(super) numbers: &'a [P],
    /// Empty without a text.
    pub(super) views: &'a [u128],
    /// The buffers of texts that are longer than a view.
    pub(super) heaps: &'a [&'a [u8]],
}

impl<'a, P: Packed> KeyRows<'a, P> {
    /// The bytes that a view points to; none if it has the text itself.
    #[inline]
    fn far(&self, view: u128) -> &'a [u8] {
        let len = view as u32 as usize;
        if len <= INLINE || view == NULL_VIEW {
            return &[];
        }
        let (buffer, offset) = ((view >> 64) as u32 as usize, (view >> 96) as u32 as usize);
        &self.heaps[buffer][offset..offset + len]
    }
}

/// Keys that are kept, with the bytes of their texts.
#[derive(Default)]
pub(super) struct Keys<P> {
    numbers: Vec<P>,
    views: Vec<u128>,
    heap: Vec<u8>,
}

impl<P: Packed> Keys<P> {
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.heap.len()
    }

    /// The bytes that they take.
    pub(super) fn size(&self) -> usize {
        self.numbers.capacity() * size_of::<P>() + self.views.capacity() * size_of::<u128>() + self.heap.capacity()
    }

    /// Adds the key of a row.
    #[inline]
    pub(super) fn push<const TEXT: bool>(&mut self, rows: KeyRows<'_, P>, row: usize) {
        self.numbers.push(rows.numbers[row]);
        if TEXT {
            let view = rows.views[row];
            let far = rows.far(view);
            if far.is_empty() {
                self.views.push(view);
            } else {
                let offset = self.heap.len() as u32;
                self.heap.extend_from_slice(far);
                self.views.push(u128::from(view as u64) | u128::from(offset) << 96);
            }
        }
    }

    /// Whether a key is that of a row.
    #[inline]
    pub(super) fn is_equal<const TEXT: bool>(&self, at: usize, rows: KeyRows<'_, P>, row: usize) -> bool {
        if self.numbers[at] != rows.numbers[row] {
            return false;
        }
        if !TEXT {
            return true;
        }
        let (own, other) = (self.views[at], rows.views[row]);
        if own == other && (own as u32 as usize <= INLINE || own == NULL_VIEW) {
            return true;
        }
        // The length and the prefix; shorter texts are different elsewhere.
        if own as u64 != other as u64 || own as u32 as usize <= INLINE {
            return false;
        }
        let offset = (own >> 96) as u32 as usize;
        let far = rows.far(other);
        self.heap[offset..offset + far.len()] == *far
    }

    /// The keys, with the buffers that `heaps` is to have.
    pub(super) fn rows<'a>(&'a self, heaps: &'a [&'a [u8]]) -> KeyRows<'a, P> {
        KeyRows { numbers: &self.numbers, views: &self.views, heaps }
    }

    pub(super) fn heap(&self) -> &[u8] {
        &self.heap
    }

    /// Forgets the keys, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.numbers.clear();
        self.views.clear();
        self.heap.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{BooleanArray, Date32Array, Decimal128Array, Int16Array, Int64Array};
    use datafusion::arrow::datatypes::{Field, Schema};
    use rand::Rng;
    use rand::rngs::StdRng;

    fn column(rng: &mut StdRng, kind: usize, rows: usize) -> ArrayRef {
        let mut some = |most: i64| -> Vec<Option<i64>> {
            (0..rows).map(|_| rng.random_bool(0.8).then(|| rng.random_range(-most..most))).collect()
        };
        match kind {
            0 => Arc::new(some(i64::MAX).into_iter().collect::<Int64Array>()),
            1 => Arc::new(some(300).into_iter().map(|value| value.map(|value| value as i16)).collect::<Int16Array>()),
            2 => Arc::new(some(3).into_iter().map(|value| value.map(|value| value > 0)).collect::<BooleanArray>()),
            3 => Arc::new(some(9999).into_iter().map(|value| value.map(|value| value as i32)).collect::<Date32Array>()),
            4 => {
                let values = some(i64::MAX).into_iter().map(|value| value.map(|value| i128::from(value) << 50));
                Arc::new(values.collect::<Decimal128Array>().with_precision_and_scale(38, 0).unwrap())
            }
            _ => {
                let text = |value: i64| match value {
                    ..0 => format!("a text that is longer than a view {value}"),
                    _ => "t".repeat(value as usize),
                };
                Arc::new(some(16).into_iter().map(|value| value.map(text)).collect::<StringViewArray>())
            }
        }
    }

    /// Whether rows are equal, column by column.
    fn are_equal(columns: &[ArrayRef], a: usize, b: usize) -> bool {
        columns.iter().all(|column| column.slice(a, 1).to_data() == column.slice(b, 1).to_data())
    }

    fn check<P: Packed>(rng: &mut StdRng, layout: &KeyLayout, columns: &[ArrayRef], rows: usize) {
        let (mut numbers, mut views) = (Vec::<P>::new(), Vec::new());
        layout.pack(columns, rows, &mut numbers).unwrap();
        let heaps = layout.texts(columns, &mut views);
        let given = KeyRows { numbers: &numbers, views: &views, heaps: &heaps };
        let mut keys = Keys::default();
        (0..rows).for_each(|row| match layout.has_text {
            true => keys.push::<true>(given, row),
            false => keys.push::<false>(given, row),
        });
        for _ in 0..4 * rows {
            let (a, b) = (rng.random_range(0..rows), rng.random_range(0..rows));
            let equal = match layout.has_text {
                true => keys.is_equal::<true>(a, given, b),
                false => keys.is_equal::<false>(a, given, b),
            };
            assert_eq!(equal, are_equal(columns, a, b), "rows {a} and {b} of {columns:?}");
        }
        let back = layout.unpack(keys).unwrap();
        assert!(back.iter().zip(columns).all(|(back, column)| back.to_data() == column.to_data()), "{columns:?}");
    }

    /// Keys are equal as their values are, and become them again.
    #[test]
    fn keys_are_their_values() {
        let mut rng = serac_testing::rng();
        let mut known = 0;
        for _ in 0..300 {
            let rows = rng.random_range(1..50);
            let count = rng.random_range(1..4);
            let more = rng.random_range(0..3);
            let columns: Vec<ArrayRef> = (0..count)
                .map(|_| {
                    let kind = rng.random_range(0..6);
                    // Slices begin within their buffers.
                    column(&mut rng, kind, rows + more).slice(more, rows)
                })
                .collect();
            let fields = columns.iter().map(|column| Field::new("k", column.data_type().clone(), true));
            let Some(layout) = KeyLayout::new(Arc::new(Schema::new(fields.collect::<Vec<_>>()))) else { continue };
            known += 1;
            match layout.bits {
                0 => check::<()>(&mut rng, &layout, &columns, rows),
                1..=64 => check::<u64>(&mut rng, &layout, &columns, rows),
                _ => check::<u128>(&mut rng, &layout, &columns, rows),
            }
        }
        assert!(known > 100, "{known} layouts");
    }
}
