//! The gather (§4.3, §4.4): from a hot block to the columns of a frozen one.
//!
//! Values of a fixed width, validity and views are copied into one allocation. The bytes of long values are copied only where that gains something: a heap
//! chunk of the hot block that is nearly full of one column's living values is taken over as it is, since chunks never change and live as long as
//! anybody holds them. What lies in other chunks goes, without the garbage, to a heap of the column's own.

use super::column::{Encoding, FrozenColumn};
use super::strings::Viewed;
use super::{FreezeFormat, FrozenBlock, zone_of};
use crate::block::HotBlock;
use crate::heap::{INLINE_BYTES, View, view_len};
use crate::layout::{REGION_ALIGNMENT, bitmap_bytes, value_bytes};
use crate::types::{PhysicalType, TableSchema};
use arrow_buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer};

/// Bytes after which a gathered heap goes on in another buffer: a view's offset has 32 bits.
const HEAP_BUFFER_BYTES: usize = 1 << 30;
/// A chunk is taken over if at most this part of it would be garbage for the column.
const CHUNK_GARBAGE: usize = 16;

fn align(bytes: usize) -> usize {
    bytes.next_multiple_of(REGION_ALIGNMENT)
}

/// The bits of `bitmap` as a buffer of its own.
fn bits_of(bitmap: &[u8], len: usize) -> BooleanBuffer {
    BooleanBuffer::new(Buffer::from_slice_ref(bitmap), 0, len)
}

impl FrozenBlock {
    /// Gathers what `block` holds into the target format.
    ///
    /// The caller has made sure that nobody writes and that no row has a version (see [`crate::freeze`]).
    pub(crate) fn gather(block: &HotBlock, schema: &TableSchema, format: FreezeFormat) -> Self {
        let layout = block.layout();
        // Empty slots behind the last row are not kept; a thaw makes them free.
        let words = block.presence_words();
        let last = words.iter().rposition(|word| *word != 0);
        let limit = last.map_or(0, |at| at as u32 * 64 + 64 - words[at].leading_zeros());
        let rows = limit as usize;
        // SAFETY: nobody writes to a block that is freezing.
        let settled = |offset: usize, bytes: usize| unsafe { block.settled(offset, bytes) };
        let presence = bits_of(settled(layout.allocation_offset(), bitmap_bytes(rows)), rows);
        let presence = (presence.count_set_bits() < rows).then_some(presence);
        let nulls_of = |offset: usize| {
            let validity = bits_of(settled(offset, bitmap_bytes(rows)), rows);
            // Whether an empty slot counts as NULL does not matter; that it does not keeps columns without NULLs free of a bitmap.
            let nulls = NullBuffer::new(match &presence {
                Some(presence) => &validity | &!presence,
                None => validity,
            });
            (nulls.null_count() > 0).then_some(nulls)
        };
        let nulls: Vec<Option<NullBuffer>> = layout.columns().iter().map(|c| nulls_of(c.validity_offset)).collect();
        let (heap, capacities) = (block.heap().buffers(), block.heap().capacities());

        // What keeps its physical form goes into one allocation.
        let total = layout.columns().iter().map(|c| align(value_bytes(c.physical, rows))).sum();
        let mut values = MutableBuffer::with_capacity(total);
        let mut places = Vec::with_capacity(layout.columns().len());
        for (column, nulls) in layout.columns().iter().zip(&nulls) {
            let bytes = settled(column.value_offset, value_bytes(column.physical, rows));
            let from = values.len();
            let encoding = if column.physical == PhysicalType::View {
                let holds = held(presence.as_ref(), nulls.as_ref());
                let heap_bytes = heap.iter().map(|buffer| buffer.as_slice()).collect();
                let viewed = Viewed { views: bytes.as_chunks().0, heap: heap_bytes, holds: holds.as_ref() };
                encode(&viewed, format).map_err(|()| gather_views(&viewed, &heap, &capacities, &mut values))
            } else {
                values.extend_from_slice(bytes);
                Err((Vec::new(), 0))
            };
            let len = values.len() - from;
            values.resize(align(values.len()), 0);
            places.push((from, len, encoding));
        }
        let values: Buffer = values.into();
        let columns = places
            .into_iter()
            .zip(layout.columns().iter().zip(&schema.columns))
            .zip(nulls)
            .map(|(((from, len, encoding), (column, schema)), nulls)| {
                let encoding = encoding.unwrap_or_else(|(heap, heap_bytes)| {
                    let values = values.slice_with_length(from, len);
                    match column.physical {
                        PhysicalType::View => Encoding::Views { views: values, heap, heap_bytes },
                        _ => Encoding::Plain(values),
                    }
                });
                let zone = match &encoding {
                    Encoding::Plain(values) => zone_of(schema.column_type, values, nulls.as_ref(), presence.as_ref()),
                    _ => None,
                };
                FrozenColumn { physical: column.physical, encoding, nulls, zone }
            })
            .collect();
        Self { format, limit, presence, columns, thaws: block.thaws(), source: None }
    }

    /// The same rows in the target format; columns that have the encoding already are shared. They have been [`check`](Self::check)ed.
    pub(crate) fn reencode(&self, format: FreezeFormat) -> Self {
        let reencoded = |column: &FrozenColumn| {
            if column.physical != PhysicalType::View || column.is_encoded_as(format) {
                return column.clone();
            }
            let views = column.physical(self.limit as usize).values;
            let holds = held(self.presence.as_ref(), column.nulls.as_ref());
            let viewed = Viewed {
                views: views.as_chunks().0,
                heap: column.heap().iter().map(|buffer| buffer.as_slice()).collect(),
                holds: holds.as_ref(),
            };
            let encoding = encode(&viewed, format).unwrap_or_else(|()| {
                if matches!(column.encoding, Encoding::Views { .. }) {
                    return column.encoding.clone();
                }
                let capacities: Vec<usize> = column.heap().iter().map(Buffer::len).collect();
                let mut views = MutableBuffer::with_capacity(views.len());
                let (heap, heap_bytes) = gather_views(&viewed, column.heap(), &capacities, &mut views);
                Encoding::Views { views: views.into(), heap, heap_bytes }
            });
            FrozenColumn { encoding, ..column.clone() }
        };
        let columns = self.columns.iter().map(reencoded).collect();
        Self { format, limit: self.limit, presence: self.presence.clone(), columns, thaws: self.thaws, source: None }
    }
}

/// Which slots have a value; none if all do.
fn held(presence: Option<&BooleanBuffer>, nulls: Option<&NullBuffer>) -> Option<BooleanBuffer> {
    match (presence, nulls) {
        (Some(presence), Some(nulls)) => Some(presence & nulls.inner()),
        (Some(presence), None) => Some(presence.clone()),
        (None, nulls) => nulls.map(|nulls| nulls.inner().clone()),
    }
}

/// The values in the encoding that the format asks for; an error if that is views.
fn encode(viewed: &Viewed<'_>, format: FreezeFormat) -> Result<Encoding, ()> {
    match format {
        FreezeFormat::View | FreezeFormat::Never => None,
        FreezeFormat::Utf8 => viewed.to_strings().map(Encoding::Offsets),
        FreezeFormat::Dictionary => viewed.to_dictionary().map(Encoding::Dictionary),
    }
    .ok_or(())
}

/// What becomes of a chunk of the hot block's heap.
#[derive(Clone, Copy)]
enum Chunk {
    /// The column keeps it, under this number.
    Taken(u32),
    /// Its living values are copied.
    Copied,
}

/// Appends the views to `out`, made to name the heap that is returned with the memory it occupies. Slots without a value get an empty view.
fn gather_views(
    viewed: &Viewed<'_>,
    chunks: &[Buffer],
    capacities: &[usize],
    out: &mut MutableBuffer,
) -> (Vec<Buffer>, usize) {
    let mut living = vec![0usize; chunks.len()];
    for i in 0..viewed.views.len() {
        let view = View::from_le_bytes(viewed.views[i]);
        if view_len(view) > INLINE_BYTES && viewed.holds(i) {
            living[(view >> 64) as u32 as usize] += view_len(view);
        }
    }
    let (mut heap, mut heap_bytes, mut copied) = (Vec::new(), 0, 0);
    let fates: Vec<Chunk> = (0..chunks.len())
        .map(|i| {
            if living[i] > 0 && capacities[i].saturating_sub(living[i]) <= capacities[i] / CHUNK_GARBAGE {
                heap.push(chunks[i].clone());
                heap_bytes += capacities[i];
                return Chunk::Taken(heap.len() as u32 - 1);
            }
            copied += living[i];
            Chunk::Copied
        })
        .collect();
    let from = out.len();
    out.extend_from_slice(viewed.views.as_flattened());
    let unchanged = |(i, fate): (usize, &Chunk)| match fate {
        Chunk::Taken(no) => *no as usize == i,
        Chunk::Copied => living[i] == 0,
    };
    if viewed.holds.is_none() && fates.iter().enumerate().all(unchanged) {
        return (heap, heap_bytes);
    }
    // Copied values go behind the chunks that were taken.
    let mut full = Vec::new();
    let mut current: Vec<u8> = Vec::with_capacity(copied.min(HEAP_BUFFER_BYTES));
    for (i, bytes) in out.as_slice_mut()[from..].as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let view = View::from_le_bytes(*bytes);
        if !viewed.holds(i) {
            *bytes = [0; 16];
        } else if view_len(view) > INLINE_BYTES {
            // Length and prefix stay.
            let stays = view & View::from(u64::MAX);
            let view = match fates[(view >> 64) as u32 as usize] {
                Chunk::Taken(no) => stays | View::from(no) << 64 | view >> 96 << 96,
                Chunk::Copied => {
                    if !current.is_empty() && current.len() + view_len(view) > HEAP_BUFFER_BYTES {
                        copied -= current.len();
                        full.push(std::mem::replace(&mut current, Vec::with_capacity(copied.min(HEAP_BUFFER_BYTES))));
                    }
                    let (no, offset) = (heap.len() + full.len(), current.len());
                    current.extend_from_slice(viewed.value(i));
                    stays | (no as View) << 64 | (offset as View) << 96
                }
            };
            *bytes = view.to_le_bytes();
        }
    }
    full.push(current);
    for buffer in full.into_iter().filter(|buffer| !buffer.is_empty()) {
        heap_bytes += buffer.capacity();
        heap.push(buffer.into());
    }
    (heap, heap_bytes)
}
