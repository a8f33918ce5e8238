//! The gather (§4.3, §4.4): from a hot block to the columns of a frozen one, in place.
//!
//! Values of a fixed width, and views, stay where they are. The frozen block shares the hot one's
//! memory, which has no writers any more (see [`crate::freeze`]). Bitmaps are copied. The bytes of
//! long values are copied only where that gains memory. A heap chunk that is nearly full of living
//! values is taken over as it is: chunks never change, and live while they are referenced. The live
//! values of other chunks go, without the garbage, to a chunk of the column's own. The views are
//! redirected to it as a vacuum redirects them ([`crate::freeze::vacuum`]): readers of the hot
//! block may still be copying. A chunk that a column does not name is an empty buffer in the
//! column's heap.

use super::column::{Encoding, FrozenColumn};
use super::packed::Packed;
use super::strings::{Dictionary, Viewed, views_of};
use super::zone::zone_of;
use super::{FreezeFormat, FrozenBlock, KeptMemory, held};
use crate::block::block_memory::SparePages;
use crate::block::column_orders::ColumnOrders;
use crate::block::layout::{ALLOCATION_OFFSET, bitmap_bytes, value_bytes};
use crate::block::view::{ArrowView, chunk_of, is_in_heap, view_len, view_of};
use crate::block::{Cell, HotBlock};
use crate::freeze::vacuum::Step;
use crate::ids::{ColumnId, Slot};
use crate::types::{PhysicalType, TableSchema};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};

/// A heap chunk is taken over if at most one part in this many of it, or of all the column's
/// chunks, would be garbage.
const CHUNK_GARBAGE: usize = 16;

/// The bits of `bitmap` as a buffer of its own.
fn bits_of(bitmap: &[u8], len: usize) -> BooleanBuffer {
    BooleanBuffer::new(Buffer::from_slice_ref(bitmap), 0, len)
}

impl FrozenBlock {
    /// Gathers the rows of `block` into the target format.
    ///
    /// The caller has made sure that there is no writer, now or later, and that no row has a
    /// version (see [`crate::freeze`]).
    pub(crate) fn gather(block: &HotBlock, schema: &TableSchema, format: FreezeFormat) -> Self {
        let layout = block.layout();
        // Empty slots behind the last row are not kept; a thaw makes them free.
        let words = block.presence_words();
        let last = words.iter().rposition(|word| *word != 0);
        let limit = last.map_or(0, |at| at as u32 * 64 + 64 - words[at].leading_zeros());
        let rows = limit as usize;
        // SAFETY: a freezing block has no writer except `gather_views`, which has no slice of this
        // kind.
        let settled = |offset: usize, bytes: usize| unsafe { block.settled(offset, bytes) };
        let presence = bits_of(settled(ALLOCATION_OFFSET, bitmap_bytes(rows)), rows);
        let presence = (presence.count_set_bits() < rows).then_some(presence);
        let nulls_of = |offset: usize| {
            let validity = bits_of(settled(offset, bitmap_bytes(rows)), rows);
            // An empty slot may count as NULL or as valid. It counts as valid, so that columns
            // without NULLs need no bitmap.
            let nulls = NullBuffer::new(match &presence {
                Some(presence) => &validity | &!presence,
                None => validity,
            });
            (nulls.null_count() > 0).then_some(nulls)
        };
        let mut kept = Vec::new();
        let mut lend = |offset: usize, bytes: usize| {
            kept.push(offset..offset + bytes);
            // SAFETY: a freezing block has no writer, nor has one that was frozen.
            unsafe { block.lend(offset, bytes) }
        };
        let columns = layout.column_ids().zip(layout.columns()).zip(&schema.columns);
        let columns = columns
            .map(|((id, column), schema)| {
                let nulls = nulls_of(column.validity_offset);
                let (offset, bytes) = (column.value_offset, value_bytes(column.physical, rows));
                let holds = held(presence.as_ref(), nulls.as_ref());
                let mut zone = None;
                let encoding = if column.physical == PhysicalType::View {
                    let encoded = {
                        let heap = block.heap().buffers(id);
                        let heap = heap.iter().map(|buffer| buffer.as_slice()).collect();
                        let views = settled(offset, bytes).as_chunks().0;
                        encode(&Viewed { views, heap, holds: holds.as_ref() }, format)
                    };
                    encoded.unwrap_or_else(|()| {
                        let (heap, heap_bytes) = gather_views(block, id, rows, holds.as_ref());
                        Encoding::Views { views: lend(offset, bytes), heap, heap_bytes }
                    })
                } else {
                    // SAFETY: as above.
                    let values = unsafe { block.lend(offset, bytes) };
                    zone = zone_of(schema.column_type, &values, holds.as_ref());
                    let is_compact = format == FreezeFormat::Compact;
                    let packed = is_compact.then(|| Packed::pack(column.physical, &values, holds.as_ref())).flatten();
                    packed.map_or_else(|| Encoding::Plain(lend(offset, bytes)), Encoding::Packed)
                };
                FrozenColumn { physical: column.physical, encoding, nulls, zone }
            })
            .collect();
        let kept_bytes = kept.iter().map(std::ops::Range::len).sum::<usize>();
        let spare = SparePages::between(kept);
        let kept = (kept_bytes > 0).then(|| KeptMemory::new(block.memory().clone(), kept_bytes, &spare));
        block.leave(spare);
        Self {
            format,
            limit,
            presence,
            columns,
            thaws: block.thaws(),
            source: None,
            kept,
            orders: ColumnOrders::default(),
        }
    }

    /// The same rows in the target format; columns that have the encoding already are shared. They
    /// have been [`check`](Self::check)ed.
    pub(crate) fn reencode(&self, format: FreezeFormat) -> Self {
        let reencoded = |column: &FrozenColumn| {
            if column.is_encoded_as(format) {
                return column.clone();
            }
            let views = column.physical(self.limit as usize).values;
            let holds = held(self.presence.as_ref(), column.nulls.as_ref());
            if column.physical != PhysicalType::View {
                let encoding = match &column.encoding {
                    Encoding::Plain(values) => Packed::pack(column.physical, values, holds.as_ref())
                        .map_or_else(|| column.encoding.clone(), Encoding::Packed),
                    _ => Encoding::Plain(views),
                };
                return FrozenColumn { encoding, ..column.clone() };
            }
            let viewed = Viewed {
                views: views.as_chunks().0,
                heap: column.heap().iter().map(|buffer| buffer.as_slice()).collect(),
                holds: holds.as_ref(),
            };
            let encoding = encode(&viewed, format).unwrap_or_else(|()| match &column.encoding {
                Encoding::Views { .. } => column.encoding.clone(),
                _ => to_views(&viewed, column.heap()),
            });
            FrozenColumn { encoding, ..column.clone() }
        };
        let mut columns: Vec<FrozenColumn> = self.columns.iter().map(reencoded).collect();
        let kept = self.kept.as_ref().and_then(|kept| kept.after(&self.columns, &columns));
        if self.kept.is_some() && kept.is_none() {
            columns.iter_mut().for_each(FrozenColumn::detach);
        }
        let presence = self.presence.clone();
        Self {
            format,
            limit: self.limit,
            presence,
            columns,
            thaws: self.thaws,
            source: None,
            kept,
            orders: ColumnOrders::default(),
        }
    }
}

/// The values in the encoding that the format asks for; an error if the column is to have views.
fn encode(viewed: &Viewed<'_>, format: FreezeFormat) -> Result<Encoding, ()> {
    match format {
        FreezeFormat::View | FreezeFormat::Never => None,
        FreezeFormat::Utf8 => viewed.to_strings().map(Encoding::Offsets),
        FreezeFormat::Dictionary => viewed.to_dictionary().map(Encoding::Dictionary),
        FreezeFormat::Compact => viewed
            .to_dictionary()
            .map(|dictionary| {
                let codes = Packed::pack_codes(&dictionary.codes, dictionary.words.len(), viewed.holds);
                Encoding::PackedCodes(codes, Dictionary::new(Vec::new().into(), dictionary.words))
            })
            .or_else(|| viewed.to_strings().map(Encoding::Offsets)),
    }
    .ok_or(())
}

/// Values whose bytes lie in one buffer, as views of them or of a copy.
fn to_views(viewed: &Viewed<'_>, heap: &[Buffer]) -> Encoding {
    let long = viewed.long_bytes();
    let views = |copy: &mut Option<Vec<u8>>| {
        let view = |i: usize| {
            let view = ArrowView::from_le_bytes(viewed.views[i]);
            match copy {
                _ if !viewed.holds(i) => 0,
                Some(copy) if is_in_heap(view) => {
                    let copied = view_of(viewed.value(i), 0, copy.len());
                    copy.extend_from_slice(viewed.value(i));
                    copied
                }
                _ => view,
            }
        };
        views_of((0..viewed.views.len()).map(view))
    };
    let bytes = heap.iter().map(Buffer::len).sum::<usize>();
    if bytes.saturating_sub(long) <= bytes / CHUNK_GARBAGE {
        return Encoding::Views { views: views(&mut None), heap: heap.to_vec(), heap_bytes: bytes };
    }
    let mut copy = Some(Vec::with_capacity(long));
    let views = views(&mut copy);
    let heap = copy.into_iter().filter(|copy| !copy.is_empty()).map(Buffer::from).collect();
    Encoding::Views { views, heap, heap_bytes: long }
}

/// Makes a variable-length column of a block that is freezing name chunks of its own only, which
/// are returned with the memory they occupy. Slots without a value get an empty view.
fn gather_views(
    block: &HotBlock,
    column: ColumnId,
    rows: usize,
    holds: Option<&BooleanBuffer>,
) -> (Vec<Buffer>, usize) {
    let offset = block.layout().column(column).value_offset;
    // SAFETY: a freezing block has no writer except this function, which has no slice of this kind
    // then.
    let views =
        || unsafe { block.settled(offset, 16 * rows) }.as_chunks::<16>().0.iter().map(|v| ArrowView::from_le_bytes(*v));
    let is_held = |slot: usize| holds.is_none_or(|holds| holds.value(slot));
    let count = || {
        let mut living = vec![0; block.heap().capacities(column).len()];
        let held = views().enumerate().filter(|&(slot, view)| is_in_heap(view) && is_held(slot));
        held.for_each(|(_, view)| living[chunk_of(view)] += view_len(view));
        living
    };
    let living = block.heap().latch().live_of(column);
    debug_assert_eq!(living, count(), "chunks count their named bytes");
    let empty = holds.map(|holds| !holds);
    let empty = empty.iter().flat_map(|empty| empty.set_indices()).map(|slot| Slot(slot as u32));
    let stale: Vec<Slot> = empty.filter(|&slot| block.read_cell(column, slot).bits != 0).collect();
    let capacities = block.heap().capacities(column);
    let is_dense = |bytes: usize, living: usize| bytes.saturating_sub(living) <= bytes / CHUNK_GARBAGE;
    let all_dense = is_dense(capacities.iter().sum(), living.iter().sum());
    let is_taken = |(&bytes, &living): (&usize, &usize)| living > 0 && (all_dense || is_dense(bytes, living));
    let mut named: Vec<bool> = capacities.iter().zip(&living).map(is_taken).collect();
    if !stale.is_empty() || living.iter().zip(&named).any(|(living, named)| *living > 0 && !named) {
        let scattered: Vec<(u32, ArrowView)> = views()
            .enumerate()
            .filter(|&(slot, view)| is_in_heap(view) && is_held(slot) && !named[chunk_of(view)])
            .map(|(slot, view)| (slot as u32, view))
            .collect();
        let mut step = Step::new(block.heap());
        for slot in stale {
            if let Some(view) = block.view(column, slot) {
                step.latch.release(column, view);
            }
            block.write_cell(column, slot, Cell { bits: 0, ..block.read_cell(column, slot) });
        }
        step.latch.gather(column, &scattered, |slot, view| {
            named.resize(named.len().max(chunk_of(view) + 1), false);
            named[chunk_of(view)] = true;
            block.redirect(column, Slot(slot), view);
        });
    }
    let (chunks, capacities) = (block.heap().buffers(column), block.heap().capacities(column));
    let last = named.iter().rposition(|named| *named).map_or(0, |last| last + 1);
    let none = Buffer::from(&[] as &[u8]);
    let heap = (0..last).map(|chunk| if named[chunk] { chunks[chunk].clone() } else { none.clone() }).collect();
    (heap, (0..last).filter(|&chunk| named[chunk]).map(|chunk| capacities[chunk]).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::layout::BlockLayout;
    use crate::ids::BlockNo;
    use crate::types::{ColumnSchema, ColumnType};
    use crate::value::Value;
    use arrow_array::Array;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use serac_sync::atomic::Ordering;
    use std::sync::Arc;

    fn schema() -> TableSchema {
        let types = [ColumnType::Int64, ColumnType::Utf8, ColumnType::Boolean, ColumnType::Utf8];
        let column = |(i, &column_type): (usize, &ColumnType)| ColumnSchema {
            name: format!("c{i}"),
            column_type,
            nullable: true,
        };
        TableSchema { columns: types.iter().enumerate().map(column).collect() }
    }

    /// The value of a slot and column: NULL, in the view, or in the heap.
    fn text(slot: u32, column: u32, round: u32) -> Option<String> {
        match (slot * 7 + column) % 10 {
            0 => None,
            1 | 2 => Some(format!("s{slot}")),
            _ => Some(format!("value {round} of slot {slot} in column {column}")),
        }
    }

    /// A block of `rows` slots of which `empty` of a hundred hold no row, and the values of the
    /// others. Every value of a slot is written `rounds` times.
    fn block(rows: u32, empty: u32, rounds: u32, rng: &mut StdRng) -> (HotBlock, Vec<bool>) {
        let block = HotBlock::new(Arc::new(BlockLayout::new(&schema()).unwrap()), BlockNo(9));
        let present: Vec<bool> = (0..rows).map(|_| rng.random_range(0..100) >= empty).collect();
        for round in 0..rounds {
            for slot in 0..rows {
                let texts = [1, 3].map(|column| text(slot, column, round));
                let text = |i: usize| texts[i].as_ref().map_or(Value::Null, |text| Value::Bytes(text.as_bytes()));
                let values = [Value::Int64(slot.into()), text(0), Value::Bool(slot % 3 == 0), text(1)];
                let mut latch = block.latch_heap(block.layout().column_ids());
                for (column, value) in values.iter().enumerate() {
                    block.release_view(ColumnId(column as u16), Slot(slot), &mut latch);
                    block.write_value(ColumnId(column as u16), Slot(slot), value, &mut latch);
                }
                block.set_present(Slot(slot), true);
            }
        }
        for slot in (0..rows).filter(|slot| !present[*slot as usize]) {
            block.set_present(Slot(slot), false);
            block.release_row(Slot(slot));
        }
        block.insert_cursor().store(rows, Ordering::Release);
        (block, present)
    }

    fn check(frozen: &FrozenBlock, present: &[bool], round: u32) {
        let arrays = frozen.arrays(&schema());
        arrays.iter().for_each(|array| array.to_data().validate_full().unwrap());
        assert_eq!(frozen.rows() as usize, present.iter().filter(|present| **present).count());
        let mut bytes = Vec::new();
        for slot in (0..present.len() as u32).filter(|slot| present[*slot as usize]) {
            assert!(frozen.is_present(Slot(slot)));
            assert_eq!(frozen.read_cell(ColumnId(0), Slot(slot)), Cell { null: false, bits: slot.into() });
            assert_eq!(frozen.read_cell(ColumnId(2), Slot(slot)).bits, u128::from(slot % 3 == 0));
            for column in [1, 3] {
                let cell = frozen.read_cell(ColumnId(column), Slot(slot));
                let wanted = text(slot, column.into(), round);
                assert_eq!(cell.null, wanted.is_none());
                if let Some(wanted) = wanted {
                    bytes.clear();
                    frozen.read_view(ColumnId(column), cell.bits, &mut bytes);
                    assert_eq!(bytes, wanted.as_bytes());
                }
            }
        }
    }

    #[test]
    fn values_stay_where_they_are_and_outlive_the_hot_block() {
        let mut rng = StdRng::seed_from_u64(1);
        for (rows, empty, rounds) in
            [(1, 0, 1), (1_000, 0, 1), (20_000, 0, 1), (20_000, 3, 2), (20_000, 60, 1), (700, 95, 5)]
        {
            for format in [FreezeFormat::View, FreezeFormat::Utf8, FreezeFormat::Dictionary, FreezeFormat::Compact] {
                let (hot, present) = block(rows, empty, rounds, &mut rng);
                let present = &present[..present.iter().rposition(|present| *present).map_or(0, |last| last + 1)];
                if present.is_empty() {
                    continue;
                }
                let place = hot.layout().column(ColumnId(0)).value_offset;
                // SAFETY: the block has no writer.
                let values = unsafe { hot.settled(place, 8) }.as_ptr();
                let frozen = FrozenBlock::gather(&hot, &schema(), format);
                match frozen.columns[0].values_buffer() {
                    Some(buffer) => assert_eq!(buffer.as_ptr(), values, "not copied"),
                    None => assert_eq!(format, FreezeFormat::Compact),
                }
                check(&frozen, present, rounds - 1);
                // A reader of the hot block finds the same.
                let mut bytes = Vec::new();
                for slot in (0..present.len() as u32).filter(|slot| present[*slot as usize]) {
                    if let (Some(view), Some(wanted)) = (hot.view(ColumnId(3), Slot(slot)), text(slot, 3, rounds - 1)) {
                        bytes.clear();
                        // SAFETY: no other thread has the block.
                        unsafe { hot.heap().read(std::iter::once((ColumnId(3), view)), &mut bytes) };
                        assert_eq!(bytes, wanted.as_bytes());
                    }
                }
                drop(hot);
                check(&frozen, present, rounds - 1);
                // The other formats, and back; lent arrays stay unchanged.
                let lent = frozen.arrays(&schema());
                let mut again = frozen;
                for format in [
                    FreezeFormat::Utf8,
                    FreezeFormat::Compact,
                    FreezeFormat::View,
                    FreezeFormat::Compact,
                    FreezeFormat::Dictionary,
                    FreezeFormat::Compact,
                    FreezeFormat::Utf8,
                    FreezeFormat::View,
                ] {
                    again = again.reencode(format);
                    check(&again, present, rounds - 1);
                }
                lent.iter().for_each(|array| array.to_data().validate_full().unwrap());
            }
        }
    }

    #[test]
    fn a_column_names_little_but_its_own_values() {
        let mut rng = StdRng::seed_from_u64(2);
        for (empty, rounds) in [(0, 1), (5, 1), (50, 2)] {
            let (hot, present) = block(20_000, empty, rounds, &mut rng);
            let frozen = FrozenBlock::gather(&hot, &schema(), FreezeFormat::View);
            for column in [1u32, 3] {
                let slots = (0..present.len() as u32).filter(|slot| present[*slot as usize]);
                let long = slots
                    .filter_map(|slot| text(slot, column, rounds - 1))
                    .map(|text| text.len())
                    .filter(|len| *len > 12);
                let long: usize = long.sum();
                let held = frozen.columns[column as usize].heap_bytes();
                assert!(held >= long && held - long <= held / CHUNK_GARBAGE, "{held} bytes for {long}");
            }
        }
    }
}
