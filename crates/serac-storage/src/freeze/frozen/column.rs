//! A column of a frozen block, in one of six encodings.
//!
//! | encoding | Arrow type | columns |
//! |---|---|---|
//! | plain | the column's | of a fixed width |
//! | views | Utf8View, BinaryView | of variable length |
//! | offsets | Utf8, Binary | of variable length |
//! | dictionary | Dictionary(UInt16, Utf8 or Binary), sorted | of variable length |
//! | packed | the column's, decoded | of a fixed width |
//! | packed codes | as dictionary, decoded | of variable length |
//!
//! Packed columns (see `packed`) are those of `compact` blocks. A data file has packed values as a
//! FixedSizeList of Booleans, and a dictionary with packed codes as an ordinary dictionary.
//!
//! In every encoding, a value of variable length can also be had as a view into the column's heap:
//! offsets and dictionaries keep their bytes in one buffer, which is a heap. So cells look like
//! those of a hot block. A reader that wants views pays 16 bytes a row, never a copy of the bytes.

use super::format::FreezeFormat;
use super::packed::{Comparison, Packed, range_of};
use super::strings::{ColumnDictionary, Dictionary, Strings, views_of};
use super::zone::Zone;
use crate::block::Cell;
use crate::block::atomic_copy::prefetch;
use crate::block::layout::value_bytes;
use crate::block::view::{ArrowView, chunk_of, inline_bytes, is_in_heap, offset_of, view_len};
use crate::error::{Result, StorageError};
use crate::table::column_form::{ColumnForm, Selection};
use crate::table::column_values::ColumnValues;
use crate::types::{ColumnType, PhysicalType};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt16Type;
use arrow_array::{Array, ArrayRef, BooleanArray, DictionaryArray, FixedSizeListArray, PrimitiveArray, UInt32Array};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_schema::{DataType, Field};
use arrow_select::take::take;
use serac_sync::OnceLock;
use std::slice;
use std::sync::Arc;

/// The encoding of a column's values.
#[derive(Debug, Clone)]
pub(crate) enum Encoding {
    /// Values of a fixed width, or bits.
    Plain(Buffer),
    /// A view per slot.
    Views {
        /// 16 bytes per slot.
        views: Buffer,
        /// The buffers that the views' indexes name.
        heap: Vec<Buffer>,
        /// Memory that the heap occupies.
        heap_bytes: usize,
    },
    /// A string per slot, back to back.
    Offsets(Strings),
    /// A code per slot.
    Dictionary(Dictionary),
    /// Values of a fixed width in as few bits as hold them.
    Packed(Packed),
    /// A code per slot, in as few bits as hold it. The dictionary has words alone. Each code names
    /// one of them.
    PackedCodes(Packed, Dictionary),
}

/// One column of a frozen block.
#[derive(Debug, Clone)]
pub(crate) struct FrozenColumn {
    pub(super) physical: PhysicalType,
    pub(super) encoding: Encoding,
    pub(super) nulls: Option<NullBuffer>,
    pub(super) zone: Option<Zone>,
}

/// The `i`-th value, of `N` bytes.
#[inline]
fn bytes_of<const N: usize>(values: &[u8], i: usize) -> [u8; N] {
    values[i * N..(i + 1) * N].try_into().expect("as many as were taken")
}

/// Whether arrays of this type are columns of a frozen block ([`FrozenColumn::from_array`]).
pub(crate) fn is_form(column_type: ColumnType, data_type: &DataType) -> bool {
    match (column_type.physical(), data_type) {
        (PhysicalType::View, DataType::Utf8View | DataType::BinaryView | DataType::Utf8 | DataType::Binary) => true,
        (PhysicalType::View, DataType::Dictionary(key, words)) => {
            **key == DataType::UInt16 && matches!(**words, DataType::Utf8 | DataType::Binary)
        }
        (PhysicalType::Bit, DataType::Boolean) => true,
        (PhysicalType::Fixed(_), DataType::FixedSizeList(bit, width)) => {
            *bit.data_type() == DataType::Boolean && (1..=64).contains(width)
        }
        (PhysicalType::Fixed(width), data_type) => {
            data_type.primitive_width() == Some(width.into()) || *data_type == DataType::FixedSizeBinary(width.into())
        }
        _ => false,
    }
}

impl FrozenColumn {
    /// Whether the column is as a block of this format should have it.
    pub(crate) fn is_encoded_as(&self, format: FreezeFormat) -> bool {
        match self.encoding {
            // A value that was not packed may be packed.
            Encoding::Plain(_) => format != FreezeFormat::Compact || self.physical == PhysicalType::Bit,
            Encoding::Views { .. } => format == FreezeFormat::View,
            Encoding::Offsets(_) => matches!(format, FreezeFormat::Utf8 | FreezeFormat::Compact),
            Encoding::Dictionary(_) => matches!(format, FreezeFormat::Dictionary | FreezeFormat::Compact),
            Encoding::Packed(_) | Encoding::PackedCodes(..) => format == FreezeFormat::Compact,
        }
    }

    /// Whether a slot is NULL.
    pub(crate) fn has_nulls(&self) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.null_count() > 0)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        match &self.encoding {
            Encoding::Plain(_) | Encoding::Packed(_) => 0,
            Encoding::Views { heap_bytes, .. } => *heap_bytes,
            Encoding::Offsets(strings) => strings.bytes.len(),
            Encoding::Dictionary(dictionary) | Encoding::PackedCodes(_, dictionary) => dictionary.words.bytes.len(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let values = match &self.encoding {
            Encoding::Plain(values) => values.len(),
            Encoding::Views { views, .. } => views.len(),
            Encoding::Offsets(strings) => strings.offsets.inner().inner().len(),
            Encoding::Dictionary(dictionary) => {
                2 * dictionary.codes.len() + (4 + size_of::<ArrowView>()) * dictionary.words.len()
            }
            Encoding::Packed(packed) => packed.bits.len(),
            Encoding::PackedCodes(codes, dictionary) => {
                codes.bits.len() + (4 + size_of::<ArrowView>()) * dictionary.words.len()
            }
        };
        values + self.heap_bytes() + self.nulls.as_ref().map_or(0, |nulls| nulls.buffer().len())
    }

    /// Values of a fixed width or views, which may lie in the hot block's memory.
    pub(super) fn values_buffer(&self) -> Option<&Buffer> {
        match &self.encoding {
            Encoding::Plain(values) | Encoding::Views { views: values, .. } => Some(values),
            _ => None,
        }
    }

    /// Copies that buffer, so that the column leaves the hot block's memory.
    pub(super) fn detach(&mut self) {
        if let Encoding::Plain(values) | Encoding::Views { views: values, .. } = &mut self.encoding {
            *values = Buffer::from_slice_ref(values.as_slice());
        }
    }

    /// All of the column's memory.
    pub(super) fn buffers(&self) -> Vec<&Buffer> {
        let mut buffers = match &self.encoding {
            Encoding::Plain(values) => vec![values],
            Encoding::Views { views, .. } => vec![views],
            Encoding::Offsets(strings) => vec![strings.offsets.inner().inner()],
            Encoding::Dictionary(dictionary) => {
                vec![dictionary.codes.inner(), dictionary.words.offsets.inner().inner()]
            }
            Encoding::Packed(packed) => vec![&packed.bits],
            Encoding::PackedCodes(codes, dictionary) => vec![&codes.bits, dictionary.words.offsets.inner().inner()],
        };
        buffers.extend(self.heap());
        buffers.extend(self.nulls.as_ref().map(NullBuffer::buffer));
        buffers
    }

    /// The buffers that the views of [`values`](Self::values) name.
    pub(crate) fn heap(&self) -> &[Buffer] {
        match &self.encoding {
            Encoding::Plain(_) | Encoding::Packed(_) => &[],
            Encoding::Views { heap, .. } => heap,
            Encoding::Offsets(strings) => slice::from_ref(&strings.bytes),
            Encoding::Dictionary(dictionary) | Encoding::PackedCodes(_, dictionary) => {
                slice::from_ref(&dictionary.words.bytes)
            }
        }
    }

    /// The values of a fixed width of the first `len` slots or more, or a view per slot. Views of
    /// offsets and of a dictionary are made here, and packed values are decoded.
    fn values(&self, len: usize) -> Buffer {
        match &self.encoding {
            Encoding::Plain(values) | Encoding::Views { views: values, .. } => values.clone(),
            Encoding::Offsets(strings) => views_of((0..strings.len()).map(|i| strings.view(i))),
            Encoding::Dictionary(dictionary) => {
                let words = dictionary.views();
                views_of(dictionary.codes.iter().map(|&code| words[code as usize]))
            }
            Encoding::Packed(packed) => packed.physical(self.physical, len),
            Encoding::PackedCodes(codes, dictionary) => {
                let words = dictionary.views();
                views_of(codes.codes(len).map(|code| words[code as usize]))
            }
        }
    }

    /// The values of the first `len` slots in their physical form: views for those of variable
    /// length.
    pub(crate) fn physical(&self, len: usize) -> ColumnValues {
        ColumnValues { physical: self.physical, len, values: self.values(len), nulls: self.nulls.clone() }.truncate(len)
    }

    /// As [`physical`](Self::physical), of the given slots.
    pub(crate) fn physical_at(&self, len: usize, slots: &[u32]) -> ColumnValues {
        let values = match &self.encoding {
            Encoding::Plain(_) | Encoding::Views { .. } => return self.physical(len).select(slots),
            Encoding::Offsets(strings) => views_of(slots.iter().map(|&slot| strings.view(slot as usize))),
            Encoding::Dictionary(dictionary) => {
                let (codes, words) = (&dictionary.codes, dictionary.views());
                views_of(slots.iter().map(|&slot| words[codes[slot as usize] as usize]))
            }
            // From a quarter of the slots on, reading all is faster than finding each.
            Encoding::Packed(_) if slots.len() > len / 4 => return self.physical(len).select(slots),
            Encoding::Packed(packed) => packed.physical_at(self.physical, slots),
            Encoding::PackedCodes(codes, dictionary) => {
                let words = dictionary.views();
                views_of(slots.iter().map(|&slot| words[codes.distance(slot as usize) as usize]))
            }
        };
        let nulls = self.nulls.as_ref().map(|nulls| slots.iter().map(|&slot| nulls.is_valid(slot as usize)).collect());
        ColumnValues { physical: self.physical, len: slots.len(), values, nulls: nulls.map(NullBuffer::new) }
    }

    /// The first `len` slots as an Arrow array over the column's own buffers, in its own encoding;
    /// short decimals as Decimal64. Packed values and codes are decoded.
    pub(crate) fn array(&self, column_type: ColumnType, len: usize) -> ArrayRef {
        let nulls = self.nulls.as_ref().map(|nulls| nulls.slice(0, len));
        match &self.encoding {
            Encoding::Plain(_) | Encoding::Views { .. } | Encoding::Packed(_) => {
                self.physical(len).into_array(column_type, ColumnForm::Stored, || self.heap().to_vec())
            }
            Encoding::Offsets(strings) => strings.array(column_type, len, nulls),
            Encoding::Dictionary(dictionary) => {
                let codes = PrimitiveArray::<UInt16Type>::new(dictionary.codes.slice(0, len), nulls);
                let words = dictionary.words.array(column_type, dictionary.words.len(), None);
                // SAFETY: codes below the number of words are an invariant of the dictionary.
                Arc::new(unsafe { DictionaryArray::new_unchecked(codes, words) })
            }
            Encoding::PackedCodes(codes, dictionary) => {
                let codes = PrimitiveArray::<UInt16Type>::new(codes.codes(len).collect(), nulls);
                let words = dictionary.words.array(column_type, dictionary.words.len(), None);
                // SAFETY: codes below the number of words are an invariant of packed codes, which
                // are never read from a file.
                Arc::new(unsafe { DictionaryArray::new_unchecked(codes, words) })
            }
        }
    }

    /// The format of values of variable length whose arrays are as this column's; `None` for values
    /// of a fixed width.
    pub(crate) fn given_format(&self) -> Option<FreezeFormat> {
        match self.encoding {
            Encoding::Plain(_) | Encoding::Packed(_) => None,
            Encoding::Views { .. } => Some(FreezeFormat::View),
            Encoding::Offsets(_) => Some(FreezeFormat::Utf8),
            Encoding::Dictionary(_) | Encoding::PackedCodes(..) => Some(FreezeFormat::Dictionary),
        }
    }

    /// The column as a data file has it: its [`array`](Self::array), or packed values as a list of
    /// their bits, which [`base`](Self::base) belongs to.
    pub(super) fn file_array(&self, column_type: ColumnType, len: usize) -> ArrayRef {
        let Encoding::Packed(packed) = &self.encoding else { return self.array(column_type, len) };
        let (width, bits) = packed.listed();
        let nulls = self.nulls.as_ref().map(|nulls| nulls.slice(0, len));
        let (bit, bits) = (Field::new("bit", DataType::Boolean, false), BooleanArray::new(bits, None));
        Arc::new(FixedSizeListArray::new(Arc::new(bit), width as i32, Arc::new(bits), nulls))
    }

    /// The value from which packed values count.
    pub(super) fn base(&self) -> Option<i64> {
        match &self.encoding {
            Encoding::Packed(packed) => Some(packed.base),
            _ => None,
        }
    }

    /// The selected slots whose integer compares with `constant` as asked; `None` if the column is
    /// not packed. The column's values are integers of some kind.
    pub(crate) fn select(&self, comparison: Comparison, constant: i64, selection: &Selection) -> Option<Selection> {
        let Encoding::Packed(packed) = &self.encoding else { return None };
        Some(packed.select(packed.range(comparison, constant), self.nulls.as_ref(), selection))
    }

    /// The selected slots whose bytes compare with `constant` as asked; `None` if the column has no
    /// packed codes.
    pub(crate) fn select_bytes(
        &self,
        comparison: Comparison,
        constant: &[u8],
        selection: &Selection,
    ) -> Option<Selection> {
        let Encoding::PackedCodes(codes, dictionary) = &self.encoding else { return None };
        // The words ascend, so that codes compare as they do.
        let (at, is_word) = dictionary.search(constant);
        let last = dictionary.words.len().saturating_sub(1) as u64;
        let (comparison, at) = match (is_word, comparison) {
            (true, comparison) => (comparison, at as i128),
            // No code is equal to -1.
            (false, Comparison::Equal | Comparison::NotEqual) => (comparison, -1),
            (false, Comparison::Less | Comparison::LessOrEqual) => (Comparison::Less, at as i128),
            (false, Comparison::Greater | Comparison::GreaterOrEqual) => (Comparison::GreaterOrEqual, at as i128),
        };
        Some(codes.select(range_of(comparison, at, last), self.nulls.as_ref(), selection))
    }

    /// As [`array`](Self::array), of the selected ones of `len` slots. Selecting all slots copies
    /// nothing; other selections share the heap or the dictionary.
    pub(crate) fn array_at(&self, column_type: ColumnType, len: usize, selection: &Selection) -> ArrayRef {
        match selection {
            Selection::All(n) => self.array(column_type, *n as usize),
            Selection::Positions(slots) if matches!(self.encoding, Encoding::Packed(_)) => {
                self.physical_at(len, slots).into_array(column_type, ColumnForm::Stored, Vec::new)
            }
            Selection::Positions(slots) => {
                let (array, slots) = (self.array(column_type, len), UInt32Array::from(slots.clone()));
                take(&array, &slots, None).expect("the slots lie in the block")
            }
        }
    }

    /// Codes and words, if the column is a dictionary, and the words have the column's Arrow type.
    pub(crate) fn dictionary(&self, column_type: ColumnType) -> Option<ColumnDictionary> {
        let (dictionary, packed) = match &self.encoding {
            Encoding::Dictionary(dictionary) => (dictionary, None),
            Encoding::PackedCodes(codes, dictionary) => (dictionary, Some(codes.clone())),
            _ => return None,
        };
        if column_type.is_document() || column_type == ColumnType::Numeric {
            return None;
        }
        Some(ColumnDictionary {
            dictionary: dictionary.clone(),
            packed,
            decoded: OnceLock::new(),
            nulls: self.nulls.clone(),
            is_binary: column_type == ColumnType::Binary,
        })
    }

    /// The column whose [`array`](Self::array) or [`file_array`](Self::file_array) is `array`.
    /// Nothing is copied, except for bits and offsets that do not start at the head of their
    /// buffer. Packed values have a `base`.
    pub(super) fn from_array(
        column_type: ColumnType,
        array: &ArrayRef,
        zone: Option<Zone>,
        base: Option<i64>,
    ) -> Result<Self> {
        if !is_form(column_type, array.data_type()) {
            let other = array.data_type();
            return Err(StorageError::InvalidInput(format!("{other} is no form of a frozen {column_type:?} column")));
        }
        let physical = column_type.physical();
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
        let encoding = match (physical, array.data_type()) {
            (PhysicalType::View, DataType::Utf8View | DataType::BinaryView) => {
                let data = array.to_data();
                let (views, heap) = data.buffers().split_first().expect("an array of views has a buffer of views");
                let views = views.slice_with_length(16 * data.offset(), 16 * data.len());
                let heap_bytes = heap.iter().map(Buffer::len).sum();
                Encoding::Views { views, heap: heap.to_vec(), heap_bytes }
            }
            (PhysicalType::View, DataType::Dictionary(..)) => {
                let dictionary = array.as_dictionary::<UInt16Type>();
                let words = Strings::of(dictionary.values());
                Encoding::Dictionary(Dictionary::new(dictionary.keys().values().clone(), words))
            }
            (PhysicalType::View, _) => Encoding::Offsets(Strings::of(array)),
            (PhysicalType::Bit, _) => Encoding::Plain(array.as_boolean().values().clone().sliced()),
            (PhysicalType::Fixed(_), DataType::FixedSizeList(_, width)) => {
                let (list, width) = (array.as_fixed_size_list(), *width as usize);
                let bits = list.values().as_boolean().values();
                let wanted = width * list.len();
                let damaged = |detail: &str| StorageError::InvalidInput(format!("packed values {detail}"));
                let base = base.ok_or_else(|| damaged("have no base"))?;
                if bits.len() < wanted || bits.inner().len() < (bits.offset() + wanted).div_ceil(8) {
                    return Err(damaged("have too few bits"));
                }
                let bits = bits.slice(0, wanted).sliced();
                Encoding::Packed(Packed { base, width: width as u32, len: list.len(), bits })
            }
            (PhysicalType::Fixed(width), _) => {
                let data = array.to_data();
                let width = usize::from(width);
                Encoding::Plain(data.buffers()[0].slice_with_length(width * data.offset(), width * data.len()))
            }
        };
        Ok(Self { physical, encoding, nulls, zone })
    }

    /// Asks for the memory of a cell, ahead of its use.
    #[inline]
    pub(super) fn prefetch(&self, i: usize) {
        let (values, width) = match &self.encoding {
            Encoding::Plain(values) | Encoding::Views { views: values, .. } => {
                (values.as_ptr(), value_bytes(self.physical, 1))
            }
            Encoding::Offsets(strings) => (strings.offsets.as_ptr().cast(), 4),
            Encoding::Dictionary(dictionary) => (dictionary.codes.as_ptr().cast(), 2),
            Encoding::Packed(packed) | Encoding::PackedCodes(packed, _) => return prefetch(packed.place(i)),
        };
        let at = if self.physical == PhysicalType::Bit { i / 8 } else { i * width };
        prefetch(values.wrapping_add(at));
    }

    /// Asks for the bytes that a long value's view names.
    #[inline]
    pub(super) fn prefetch_text(&self, i: usize) {
        if let Encoding::Views { views, .. } = &self.encoding {
            self.prefetch_view(u128::from_le_bytes(bytes_of(views, i)));
        }
    }

    /// As [`prefetch_text`](Self::prefetch_text), of a view that was read.
    #[inline]
    pub(super) fn prefetch_view(&self, view: ArrowView) {
        if let Encoding::Views { heap, .. } = &self.encoding
            && is_in_heap(view)
            && let Some(chunk) = heap.get(chunk_of(view))
        {
            prefetch(chunk.as_ptr().wrapping_add(offset_of(view)));
        }
    }

    #[inline]
    pub(super) fn read_cell(&self, i: usize) -> Cell {
        let null = self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(i));
        let bits = match (&self.encoding, self.physical) {
            (Encoding::Plain(values), PhysicalType::Bit) => u128::from(values[i / 8] >> (i % 8) & 1),
            (Encoding::Plain(values), PhysicalType::Fixed(2)) => u16::from_le_bytes(bytes_of(values, i)).into(),
            (Encoding::Plain(values), PhysicalType::Fixed(4)) => u32::from_le_bytes(bytes_of(values, i)).into(),
            (Encoding::Plain(values), PhysicalType::Fixed(8)) => u64::from_le_bytes(bytes_of(values, i)).into(),
            (Encoding::Plain(values) | Encoding::Views { views: values, .. }, _) => {
                u128::from_le_bytes(bytes_of(values, i))
            }
            (Encoding::Offsets(strings), _) => strings.view(i),
            (Encoding::Dictionary(dictionary), _) => dictionary.views()[dictionary.codes[i] as usize],
            // A value has as many bits as its column.
            (Encoding::Packed(packed), PhysicalType::Fixed(2)) => (packed.value(i) as u16).into(),
            (Encoding::Packed(packed), PhysicalType::Fixed(4)) => (packed.value(i) as u32).into(),
            (Encoding::Packed(packed), PhysicalType::Fixed(8)) => (packed.value(i) as u64).into(),
            (Encoding::Packed(packed), _) => i128::from(packed.value(i)) as u128,
            (Encoding::PackedCodes(codes, dictionary), _) => dictionary.views()[codes.distance(i) as usize],
        };
        Cell { null, bits }
    }

    pub(super) fn read_view(&self, view: ArrowView, out: &mut Vec<u8>) {
        if is_in_heap(view) {
            out.extend_from_slice(self.heap_value(view));
        } else {
            out.extend_from_slice(inline_bytes(&view.to_le_bytes()));
        }
    }

    /// The bytes that the view of a long value names.
    #[inline]
    pub(super) fn heap_value(&self, view: ArrowView) -> &[u8] {
        &self.heap()[chunk_of(view)][offset_of(view)..][..view_len(view)]
    }
}
