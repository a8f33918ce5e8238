//! A frozen block: canonical Arrow, immutable, without a version column (§4).
//!
//! Every slot up to the limit has a value in every column; whether the slot holds a row is the presence bitmap's business (none where all do).
//! Values are Arrow's physical types in one allocation, 64-byte aligned (DECIMAL of up to 18 digits as scaled 64-bit integers, which Arrow calls
//! Decimal64); the bytes of long variable-length values lie in gathered heaps, one column behind the other, without garbage. All buffers are
//! reference-counted: what is lent out lives as long as anyone holds it, whatever becomes of the block.

use crate::block::{Cell, HotBlock};
use crate::heap::{INLINE_BYTES, View, view_len};
use crate::ids::{BlockNo, ColumnId, Slot};
use crate::layout::{BlockLayout, REGION_ALIGNMENT, bitmap_bytes, value_bytes};
use crate::types::{ColumnType, PhysicalType, TableSchema};
use arrow_buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer};
use std::sync::Arc;

/// Bytes after which a gathered heap goes on in another buffer: a view's offset has 32 bits.
const HEAP_BUFFER_BYTES: usize = 1 << 30;

/// The smallest and the largest value of a column in a block: integers, dates, times and scaled decimals as 64-bit integers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zone {
    /// Smallest.
    pub min: i64,
    /// Largest.
    pub max: i64,
}

/// One column of a frozen block.
#[derive(Debug)]
pub(crate) struct FrozenColumn {
    physical: PhysicalType,
    values: Buffer,
    nulls: Option<NullBuffer>,
    heap: Vec<Buffer>,
    zone: Option<Zone>,
}

/// See the module.
#[derive(Debug)]
pub struct FrozenBlock {
    limit: u32,
    presence: Option<BooleanBuffer>,
    columns: Vec<FrozenColumn>,
    /// How often the block has been thawed before.
    thaws: u32,
}

fn align(bytes: usize) -> usize {
    bytes.next_multiple_of(REGION_ALIGNMENT)
}

impl FrozenBlock {
    /// Gathers what `block` holds.
    ///
    /// The caller has made sure that nobody writes and that no row has a version (see [`crate::freeze`]).
    pub(crate) fn gather(block: &HotBlock, schema: &TableSchema) -> Self {
        let layout = block.layout();
        // Empty slots behind the last row are not kept; a thaw makes them free.
        let words = block.presence_words();
        let last = words.iter().rposition(|word| *word != 0);
        let limit = last.map_or(0, |at| at as u32 * 64 + 64 - words[at].leading_zeros());
        let rows = limit as usize;
        let copy = |offset: usize, bytes: usize, out: &mut MutableBuffer| {
            let from = out.len();
            out.resize(align(from + bytes), 0);
            block.copy_out_init(offset, &mut out[from..from + bytes]);
        };
        let mut presence = MutableBuffer::new(bitmap_bytes(rows));
        copy(layout.allocation_offset(), bitmap_bytes(rows), &mut presence);
        let presence = BooleanBuffer::new(presence.into(), 0, rows);
        // All values in one allocation.
        let total: usize = layout.columns().iter().map(|c| align(value_bytes(c.physical, rows))).sum();
        let mut values = MutableBuffer::with_capacity(align(total));
        let mut places = Vec::with_capacity(layout.columns().len());
        for column in layout.columns() {
            places.push((values.len(), value_bytes(column.physical, rows)));
            copy(column.value_offset, value_bytes(column.physical, rows), &mut values);
        }
        let mut nulls_of = Vec::with_capacity(places.len());
        for column in layout.columns() {
            let mut validity = MutableBuffer::new(bitmap_bytes(rows));
            copy(column.validity_offset, bitmap_bytes(rows), &mut validity);
            // Whether an empty slot counts as NULL does not matter; that it does not keeps columns without NULLs free of a bitmap.
            let nulls = NullBuffer::new(&BooleanBuffer::new(validity.into(), 0, rows) | &!&presence);
            nulls_of.push((nulls.null_count() > 0).then_some(nulls));
        }
        let mut heaps = Vec::with_capacity(places.len());
        for ((column, &(from, bytes)), nulls) in layout.columns().iter().zip(&places).zip(&nulls_of) {
            heaps.push(match column.physical {
                PhysicalType::View => {
                    let holds = |i: usize| presence.value(i) && nulls.as_ref().is_none_or(|nulls| nulls.is_valid(i));
                    gather_heap(block, &mut values[from..from + bytes], holds)
                }
                _ => Vec::new(),
            });
        }
        let values: Buffer = values.into();
        let all_present = presence.count_set_bits() == rows;
        let columns = layout
            .columns()
            .iter()
            .zip(&schema.columns)
            .zip(places.into_iter().zip(nulls_of).zip(heaps))
            .map(|((column, schema), (((from, bytes), nulls), heap))| {
                let values = values.slice_with_length(from, bytes);
                let present = (!all_present).then_some(&presence);
                let zone = zone_of(schema.column_type, &values, nulls.as_ref(), present);
                FrozenColumn { physical: column.physical, values, nulls, heap, zone }
            })
            .collect();
        Self { limit, presence: (!all_present).then_some(presence), columns, thaws: block.thaws() }
    }

    /// A new hot block with the same rows, to become number `no` of its table.
    pub(crate) fn thaw(&self, layout: &Arc<BlockLayout>, no: BlockNo) -> HotBlock {
        let block = HotBlock::thawed(layout.clone(), no, self.thaws + 1);
        let layout = block.layout();
        // SAFETY: the block is new: nobody else has it.
        unsafe {
            for (column, place) in self.columns.iter().zip(layout.columns()) {
                block.exclusive(place.value_offset, column.values.len()).copy_from_slice(&column.values);
                if let Some(nulls) = &column.nulls {
                    let bits = nulls.inner().inner().as_slice();
                    let bits = &bits[..bitmap_bytes(self.limit as usize).min(bits.len())];
                    block.exclusive(place.validity_offset, bits.len()).copy_from_slice(bits);
                }
            }
        }
        for (column, place) in self.columns.iter().enumerate() {
            if place.physical == PhysicalType::View {
                let id = ColumnId(column as u16);
                for slot in (0..self.limit).map(Slot).filter(|&slot| self.is_present(slot)) {
                    let cell = self.read_cell(id, slot);
                    if !cell.null && view_len(cell.bits) > INLINE_BYTES {
                        let mut bytes = Vec::with_capacity(view_len(cell.bits));
                        self.read_view(id, cell.bits, &mut bytes);
                        block.write_cell(id, slot, Cell { null: false, bits: block.heap().append(&bytes) });
                    }
                }
            }
        }
        match &self.presence {
            None => block.set_present_range(0, self.limit),
            Some(presence) => presence.set_indices().for_each(|slot| block.set_present(Slot(slot as u32), true)),
        }
        // Release: pairs with `slot_limit`.
        block.insert_cursor().store(self.limit, std::sync::atomic::Ordering::Release);
        block
    }

    /// Slots below which rows lie.
    pub fn slot_limit(&self) -> u32 {
        self.limit
    }
    /// Which slots hold rows; none if all do.
    pub fn presence(&self) -> Option<&BooleanBuffer> {
        self.presence.as_ref()
    }
    /// Rows.
    pub fn rows(&self) -> u32 {
        self.presence.as_ref().map_or(self.limit, |presence| presence.count_set_bits() as u32)
    }
    /// Whether the slot holds a row.
    #[inline]
    pub fn is_present(&self, slot: Slot) -> bool {
        slot.0 < self.limit && self.presence.as_ref().is_none_or(|presence| presence.value(slot.0 as usize))
    }
    /// The smallest and largest value of a column; none where that is not known (or there is no value).
    pub fn zone(&self, column: ColumnId) -> Option<Zone> {
        self.columns[column.0 as usize].zone
    }
    /// Bytes of the gathered heaps.
    pub fn heap_bytes(&self) -> usize {
        self.columns.iter().flat_map(|column| &column.heap).map(Buffer::capacity).sum()
    }
    /// Bytes of all buffers.
    pub fn bytes(&self) -> usize {
        let of =
            |column: &FrozenColumn| column.values.len() + column.nulls.as_ref().map_or(0, |nulls| nulls.buffer().len());
        self.heap_bytes() + self.columns.iter().map(of).sum::<usize>()
    }

    /// Reads a cell; the slot must lie below the limit.
    #[inline]
    pub fn read_cell(&self, column: ColumnId, slot: Slot) -> Cell {
        let (column, i) = (&self.columns[column.0 as usize], slot.0 as usize);
        let null = column.nulls.as_ref().is_some_and(|nulls| nulls.is_null(i));
        let bits = match column.physical {
            PhysicalType::Bit => u128::from(column.values[i / 8] >> (i % 8) & 1),
            physical => {
                let width = value_bytes(physical, 1);
                let mut bytes = [0; 16];
                bytes[..width].copy_from_slice(&column.values[i * width..(i + 1) * width]);
                u128::from_le_bytes(bytes)
            }
        };
        Cell { null, bits }
    }
    /// The bytes that a view of `column` names.
    pub fn read_view(&self, column: ColumnId, view: View, out: &mut Vec<u8>) {
        let len = view_len(view);
        if len <= INLINE_BYTES {
            out.extend_from_slice(&view.to_le_bytes()[4..4 + len]);
        } else {
            let heap = &self.columns[column.0 as usize].heap[(view >> 64) as u32 as usize];
            let offset = (view >> 96) as u32 as usize;
            out.extend_from_slice(&heap[offset..offset + len]);
        }
    }

    /// A column's values, validity and heap, as they are.
    pub(crate) fn buffers(&self, column: ColumnId) -> (Buffer, Option<NullBuffer>, &[Buffer]) {
        let column = &self.columns[column.0 as usize];
        (column.values.clone(), column.nulls.clone(), &column.heap)
    }
}

/// Copies the long values that the views name into heaps without garbage and makes the views name those. Slots without a value get an empty one.
fn gather_heap(block: &HotBlock, views: &mut [u8], holds: impl Fn(usize) -> bool) -> Vec<Buffer> {
    let mut full: Vec<Buffer> = Vec::new();
    let mut heap: Vec<u8> = Vec::new();
    for (i, bytes) in views.chunks_exact_mut(16).enumerate() {
        let view = View::from_le_bytes(bytes.try_into().expect("16 bytes"));
        let view = if !holds(i) {
            0
        } else if view_len(view) > INLINE_BYTES {
            if !heap.is_empty() && heap.len() + view_len(view) > HEAP_BUFFER_BYTES {
                full.push(std::mem::take(&mut heap).into());
            }
            let offset = heap.len();
            block.read_view(view, &mut heap);
            // Length and prefix stay.
            view & u128::from(u64::MAX) | (full.len() as u128) << 64 | (offset as u128) << 96
        } else {
            view
        };
        bytes.copy_from_slice(&view.to_le_bytes());
    }
    if !heap.is_empty() {
        heap.shrink_to_fit();
        full.push(heap.into());
    }
    full
}

fn zone_of(
    column_type: ColumnType,
    values: &Buffer,
    nulls: Option<&NullBuffer>,
    presence: Option<&BooleanBuffer>,
) -> Option<Zone> {
    fn of<T: Copy + Ord + Into<i64>>(
        values: &[T],
        nulls: Option<&NullBuffer>,
        presence: Option<&BooleanBuffer>,
    ) -> Option<Zone> {
        let (min, max) = if nulls.is_none() && presence.is_none() {
            (values.iter().min()?, values.iter().max()?)
        } else {
            let holds = |i: usize| nulls.is_none_or(|n| n.is_valid(i)) && presence.is_none_or(|p| p.value(i));
            let held = || values.iter().enumerate().filter(|(i, _)| holds(*i)).map(|(_, value)| value);
            (held().min()?, held().max()?)
        };
        Some(Zone { min: (*min).into(), max: (*max).into() })
    }
    match column_type {
        ColumnType::Int16 => of(values.typed_data::<i16>(), nulls, presence),
        ColumnType::Int32 | ColumnType::Date => of(values.typed_data::<i32>(), nulls, presence),
        ColumnType::Int64 | ColumnType::Time | ColumnType::Timestamp { .. } => {
            of(values.typed_data::<i64>(), nulls, presence)
        }
        ColumnType::Decimal { precision, .. } if precision <= 18 => of(values.typed_data::<i64>(), nulls, presence),
        _ => None,
    }
}
