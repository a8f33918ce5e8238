//! Rows that are sorted as numbers.

use super::keys::{KeyRange, bits_of};
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::interleave;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use std::ops::Range;

/// Bits by which rows are divided into parts, at the most.
const MOST_PART_BITS: u32 = 12;
/// Rows of a part that are expected.
const ROWS_OF_PART: usize = 256;
/// Rows whose numbers are made before other tasks run.
const ROWS_AT_ONCE: usize = 1 << 20;

/// A number of a row.
pub(super) trait Number: Copy + Ord + Default {
    fn of(number: u128) -> Self;
    /// The bits from `bit` on.
    fn bits_from(self, bit: u32) -> usize;
    /// The lowest bits.
    fn lowest(self, bits: u32) -> usize;
}

impl Number for u64 {
    fn of(number: u128) -> Self {
        number as u64
    }

    fn bits_from(self, bit: u32) -> usize {
        self.checked_shr(bit).unwrap_or(0) as usize
    }

    fn lowest(self, bits: u32) -> usize {
        (self & ((1 << bits) - 1)) as usize
    }
}
impl Number for u128 {
    fn of(number: u128) -> Self {
        number
    }

    fn bits_from(self, bit: u32) -> usize {
        self.checked_shr(bit).unwrap_or(0) as usize
    }

    fn lowest(self, bits: u32) -> usize {
        (self & ((1 << bits) - 1)) as usize
    }
}

/// Rows with their keys.
pub(super) struct Rows {
    pub(super) schema: SchemaRef,
    pub(super) batches: Vec<RecordBatch>,
    /// The sort keys of each batch.
    pub(super) keys: Vec<Vec<ArrayRef>>,
    pub(super) ranges: Vec<KeyRange>,
}

impl Rows {
    fn key_bits(&self) -> u32 {
        self.ranges.iter().map(KeyRange::bits).sum()
    }

    /// The bits of a row's place: its batch and its row there.
    fn place_bits(&self) -> (u32, u32) {
        let of_batch = bits_of(self.batches.len().saturating_sub(1) as u128);
        let rows = self.batches.iter().map(RecordBatch::num_rows).max().unwrap_or(0);
        (of_batch, bits_of(rows.saturating_sub(1) as u128))
    }

    /// The bits of a row's number.
    pub(super) fn bits(&self) -> u32 {
        let (of_batch, of_row) = self.place_bits();
        self.key_bits() + of_batch + of_row
    }
}

/// Rows in order. They are given from the first to the last.
pub(super) struct Sorted<N> {
    rows: Rows,
    row_bits: u32,
    place_bits: u32,
    numbers: Vec<N>,
    /// Parts of the numbers that are not sorted yet, the first one last.
    parts: Vec<Range<usize>>,
    given: usize,
}

impl<N: Number> Sorted<N> {
    /// Rows whose numbers have no more bits than `N`.
    pub(super) async fn new(mut rows: Rows) -> Result<Self> {
        let count: usize = rows.batches.iter().map(RecordBatch::num_rows).sum();
        let (of_batch, row_bits) = rows.place_bits();
        let place_bits = of_batch + row_bits;
        let mut unsorted: Vec<N> = Vec::with_capacity(count);
        let mut packed: Vec<u128> = Vec::new();
        let mut waits = ROWS_AT_ONCE;
        for (at, keys) in std::mem::take(&mut rows.keys).into_iter().enumerate() {
            packed.clear();
            packed.resize(rows.batches[at].num_rows(), 0);
            for (range, column) in rows.ranges.iter().zip(&keys) {
                range.pack(column, &mut packed)?;
            }
            let batch = (at as u128) << row_bits;
            unsorted.extend(
                packed
                    .iter()
                    .enumerate()
                    .map(|(row, keys)| N::of(keys.checked_shl(place_bits).unwrap_or(0) | batch | row as u128)),
            );
            if unsorted.len() >= waits {
                waits += ROWS_AT_ONCE;
                tokio::task::yield_now().await;
            }
        }
        // Divided by the first bits of the keys.
        let wanted = bits_of((count / ROWS_OF_PART) as u128);
        let key_bits = rows.key_bits();
        let part_bits = key_bits.min(MOST_PART_BITS).min(wanted);
        let first_bit = place_bits + key_bits - part_bits;
        let mut ends = vec![0; 1 << part_bits];
        unsorted.iter().for_each(|number| ends[number.bits_from(first_bit)] += 1);
        let mut before = 0;
        let mut parts = Vec::with_capacity(ends.len());
        for end in &mut ends {
            let rows = *end;
            parts.push(before..before + rows);
            *end = before;
            before += rows;
        }
        parts.reverse();
        let mut numbers = vec![N::default(); count];
        for some in unsorted.chunks(ROWS_AT_ONCE) {
            for number in some {
                let place = &mut ends[number.bits_from(first_bit)];
                numbers[*place] = *number;
                *place += 1;
            }
            tokio::task::yield_now().await;
        }
        Ok(Self { rows, row_bits, place_bits, numbers, parts, given: 0 })
    }

    /// The next rows, up to `most`; `None` at the end.
    pub(super) fn next(&mut self, most: usize) -> Result<Option<RecordBatch>> {
        let from = self.given;
        let to = self.numbers.len().min(from + most);
        if from == to {
            return Ok(None);
        }
        while let Some(part) = self.parts.pop_if(|part| part.start < to) {
            self.numbers[part].sort_unstable();
        }
        self.given = to;
        let places: Vec<(usize, usize)> = self.numbers[from..to]
            .iter()
            .map(|number| {
                let place = number.lowest(self.place_bits);
                (place >> self.row_bits, place & ((1 << self.row_bits) - 1))
            })
            .collect();
        let batches = &self.rows.batches;
        let columns = (0..self.rows.schema.fields().len()).map(|at| {
            let columns: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(at).as_ref()).collect();
            interleave(&columns, &places)
        });
        let columns: Vec<ArrayRef> = columns.collect::<std::result::Result<_, _>>()?;
        let of_rows = RecordBatchOptions::new().with_row_count(Some(to - from));
        Ok(Some(RecordBatch::try_new_with_options(self.rows.schema.clone(), columns, &of_rows)?))
    }
}
