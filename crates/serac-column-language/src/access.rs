//! Access paths: whether an index or a scan finds the rows of a select sooner.
//!
//! ```text
//! scan   = rows of blocks whose zones do not decide × row + rows that come out × listed
//! index  = entries × entry + min(entries × single, blocks × block + entries × row of a block)
//! ```
//! The entries are estimated from percentiles of the column. These, and the blocks that a range
//! lies in, come from a sample of rows, spread evenly over the table. The costs are measured on the
//! lies in, come from a sample of rows, spread evenly over the table. The costs are measured on the
//! table itself, in a few milliseconds. They depend on the machine, on the width of the values, and
//! on whether blocks are frozen. Rows that lie in the order of a clustered index need no entries
//! and no scan (see [`crate::clustered`]). These paths are used only if too many rows do not lie in
//! that order.
//!
//! Estimates and costs are found when an index is made and when they are first needed. They are
//! found again when the table has grown or shrunk by a tenth, or when a fifth of its blocks has
//! been frozen or thawed. A small table has assumed costs.

use crate::error::Result;
use crate::statement::Bounds;
use crate::values::qualifying;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use serac_engine::{KeyRange, TableIndex};
use serac_operators::row_order::sort_rows;
use serac_operators::selection::{Runs, Selection};
use serac_storage::{
    BlockNo, BlockReader, ColumnId, ColumnType, DataTable, RowBuffer, RowId, ScanColumn, Slot, Snapshot, TableId, Value,
};
use std::collections::HashMap;
use std::fmt;
use std::hint::black_box;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Blocks that are sampled at the most.
const SAMPLED_BLOCKS: u32 = 256;
/// Rows that are sampled, about.
const SAMPLED_ROWS: u32 = 1 << 16;
/// A table with fewer rows has assumed costs.
const MEASURED_ROWS: u64 = 1 << 17;
/// Blocks that are read as a scan does, to measure it.
const SCANNED_BLOCKS: u32 = 5;
/// Entries of the index that are visited, to measure a visit.
const VISITED_ENTRIES: usize = 1 << 13;
/// Rows that are read one by one, to measure such a read.
const SINGLE_ROWS: u32 = 256;
/// Rows of a block that are read together, to measure such a read.
const BLOCK_ROWS: usize = 1 << 11;
/// Columns with known statistics, at the most. When there are more, all are dropped and found anew.
const MOST_COLUMNS: usize = 4_096;
/// The share of a scan's time that may be lost by trying an index first.
const CHEAP_TRY: f64 = 0.08;
/// Entries above the estimate for which a chosen index is not yet left for a scan.
const FEW_ENTRIES: u64 = 16;
/// Uses between two counts of the frozen blocks.
const USES_BETWEEN_WALKS: u32 = 32;
/// The least cost of one of many selects that share a scan, as a share of a scan for one alone.
const SHARED_SCAN: f64 = 0.25;

/// The costs of access paths, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Costs {
    /// A row of a scan.
    pub(crate) scanned_row: f64,
    /// A row that a scan puts on a list.
    pub(crate) listed_row: f64,
    /// An entry of the index, with the sorting of its row.
    pub(crate) entry: f64,
    /// A row that is read by itself.
    pub(crate) single_row: f64,
    /// A block of which some rows are read together.
    pub(crate) block: f64,
    /// Each of these rows.
    pub(crate) block_row: f64,
}

impl Costs {
    /// The costs of small tables: estimates.
    pub(crate) const ASSUMED: Self =
        Self { scanned_row: 0.5, listed_row: 4.0, entry: 15.0, single_row: 150.0, block: 2_000.0, block_row: 5.0 };

    /// Whether this many rows of a block are better read one by one.
    pub(crate) fn reads_singly(&self, rows: usize) -> bool {
        rows as f64 * (self.single_row - self.block_row) <= self.block
    }
}

/// The known ranges of a block with sampled rows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct SampledBlock {
    /// The range in its zone map.
    pub(crate) zone: Option<(i64, i64)>,
    /// The range that its values lie in, estimated from the sampled values.
    pub(crate) sampled: Option<(i64, i64)>,
}

/// The statistics of a column.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ColumnStatistics {
    /// Rows of the table.
    pub(crate) rows: u64,
    /// Its blocks.
    pub(crate) blocks: u32,
    /// The share of rows with a value.
    pub(crate) present: f64,
    /// The smallest value, and the value up to which each thousandth of the values lies, as far as
    /// a sample tells. Ten for each percentile, so that few rows are estimated well, too. Empty if
    /// there are no values.
    pub(crate) quantiles: Vec<i64>,
    pub(crate) sampled: Vec<SampledBlock>,
}

/// The quantiles, beside the smallest value.
const QUANTILES: usize = 1_000;

impl ColumnStatistics {
    /// Samples a column of integers.
    ///
    /// # Errors
    /// A damaged file.
    fn take(data: &DataTable, snapshot: &Snapshot, column: ColumnId) -> Result<Self> {
        let (blocks, mut sampled, mut values, mut seen) = (data.block_count(), Vec::new(), Vec::new(), 0);
        let taken = blocks.min(SAMPLED_BLOCKS);
        for no in spread(blocks, taken) {
            let Some(mut reader) = data.read_block(snapshot, BlockNo(no)) else { continue };
            let slots = some_slots(&reader, SAMPLED_ROWS.div_ceil(taken));
            let zone = reader.zone(column).map(|zone| (zone.min, zone.max));
            let array = &reader.columns(&[ScanColumn::arrow(column)], &slots)?[0];
            let first = values.len();
            push_integers(array, &mut values);
            seen += array.len();
            sampled.push(SampledBlock { zone, sampled: range_of_block(&values[first..]) });
        }
        let present = if seen == 0 { 0.0 } else { values.len() as f64 / seen as f64 };
        Ok(Self::of(data.approximate_rows(), blocks, present, values, sampled))
    }

    /// The statistics of sampled values.
    fn of(rows: u64, blocks: u32, present: f64, mut values: Vec<i64>, sampled: Vec<SampledBlock>) -> Self {
        values.sort_unstable();
        let quantiles = match values.len() {
            0 => Vec::new(),
            count => (0..=QUANTILES).map(|at| values[at * (count - 1) / QUANTILES]).collect(),
        };
        Self { rows, blocks, present, quantiles, sampled }
    }

    /// The value up to which this percentage of the values lies.
    fn percentile(&self, percent: usize) -> Option<i64> {
        self.quantiles.get(percent * QUANTILES / 100).copied()
    }

    /// The share of the values up to a number.
    fn share_up_to(&self, number: i64) -> f64 {
        let at = self.quantiles.partition_point(|value| *value <= number);
        let (Some(&before), Some(&after)) = (self.quantiles.get(at.wrapping_sub(1)), self.quantiles.get(at)) else {
            return if at == 0 { 0.0 } else { 1.0 };
        };
        // Differences of large numbers are exact: as floats, neighbours may be the same.
        let part = number.abs_diff(before) as f64 / after.abs_diff(before) as f64;
        ((at - 1) as f64 + part) / QUANTILES as f64
    }

    /// The estimated number of rows with values from `min` to `max`.
    pub(crate) fn rows_within(&self, min: i64, max: i64) -> f64 {
        let below = min.checked_sub(1).map_or(0.0, |before| self.share_up_to(before));
        (self.share_up_to(max) - below).max(0.0) * self.present * self.rows as f64
    }

    /// The share of sampled blocks for which `holds` is true; 1 if no block was sampled.
    fn share_of_blocks(&self, holds: impl Fn(&SampledBlock) -> bool) -> f64 {
        match self.sampled.len() {
            0 => 1.0,
            all => self.sampled.iter().filter(|block| holds(block)).count() as f64 / all as f64,
        }
    }

    /// The share of the blocks whose values a scan looks at.
    fn scanned_blocks(&self, min: i64, max: i64) -> f64 {
        let is_decided = |(low, high)| high < min || low > max || (low >= min && high <= max);
        self.share_of_blocks(|block| !block.zone.is_some_and(is_decided))
    }

    /// The blocks that values from `min` to `max` may lie in; one at least.
    fn touched_blocks(&self, min: i64, max: i64) -> f64 {
        let touches = |(low, high): (i64, i64)| high >= min && low <= max;
        (self.share_of_blocks(|block| block.sampled.is_some_and(touches)) * f64::from(self.blocks)).max(1.0)
    }

    /// The cost of a scan for values from `min` to `max`, which `rows` rows have.
    fn scan(&self, costs: &Costs, min: i64, max: i64, rows: f64) -> f64 {
        // With more rows, the outcome is a bitmap.
        let listed = if rows * 64.0 <= self.rows as f64 { rows } else { 0.0 };
        self.scanned_blocks(min, max) * self.rows as f64 * costs.scanned_row + listed * costs.listed_row
    }

    /// The cost of this many entries of the index, whose rows lie in this many blocks.
    fn index(costs: &Costs, entries: f64, blocks: f64) -> f64 {
        // The expected number of blocks with at least one entry, if all blocks have as many rows.
        let met = blocks * -(-entries / blocks).exp_m1();
        let together = met * costs.block + entries * costs.block_row;
        entries * costs.entry + together.min(entries * costs.single_row)
    }
}

/// The statistics of an indexed column, and the costs of its access paths.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) statistics: ColumnStatistics,
    pub(crate) costs: Costs,
    /// Blocks that were frozen when these were found.
    frozen_blocks: u32,
    /// The number of times that they were used.
    uses: AtomicU32,
}

/// The access path of a select.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Path {
    Scan,
    /// By the index. If there are more entries than this, the estimate was wrong, and a scan takes
    /// over.
    Index {
        most_entries: u64,
    },
}

impl Known {
    /// Whether about as many blocks are frozen as were. It is looked at now and then, as it is a
    /// walk over the blocks.
    fn has_blocks_of(&self, data: &DataTable) -> bool {
        // Relaxed: a counter.
        !self.uses.fetch_add(1, Ordering::Relaxed).is_multiple_of(USES_BETWEEN_WALKS) || {
            let now = data.metrics();
            now.frozen_blocks.abs_diff(self.frozen_blocks) * 5 <= now.blocks
        }
    }

    /// The most rows with values from `min` to `max` for which the index is cheaper than this part
    /// of a scan.
    fn most_rows(&self, min: i64, max: i64, part: f64) -> u64 {
        let (statistics, costs) = (&self.statistics, &self.costs);
        let blocks = statistics.touched_blocks(min, max);
        let index_is_cheaper =
            |rows: f64| ColumnStatistics::index(costs, rows, blocks) <= statistics.scan(costs, min, max, rows) * part;
        let (mut fewer, mut more) = (0, statistics.rows);
        while fewer < more {
            let middle = fewer + (more - fewer).div_ceil(2);
            if index_is_cheaper(middle as f64) { fewer = middle } else { more = middle - 1 }
        }
        fewer
    }

    /// The access path to the rows with values from `min` to `max`. This many `selects` share a
    /// scan.
    pub(crate) fn path(&self, min: i64, max: i64, selects: usize) -> Path {
        let (statistics, costs) = (&self.statistics, &self.costs);
        let part = (1.0 / selects.max(1) as f64).max(SHARED_SCAN);
        let most = self.most_rows(min, max, part) as f64;
        // Entries are counted exactly while they are collected. If collecting costs little of a
        // scan, the estimate need not be right: the index is tried for more entries, and left at
        // its limit.
        let is_cheap_to_try = most * costs.entry <= statistics.scan(costs, min, max, most) * part * CHEAP_TRY;
        let (tried, left) = if is_cheap_to_try { (1.5, 1.0) } else { (1.0, 1.25) };
        if statistics.rows_within(min, max) > most * tried {
            return Path::Scan;
        }
        Path::Index { most_entries: (most * left) as u64 + FEW_ENTRIES }
    }

    /// The cost of the rows with values from `min` to `max` by the index, in nanoseconds.
    pub(crate) fn index_cost(&self, min: i64, max: i64) -> f64 {
        let (rows, blocks) = (self.statistics.rows_within(min, max), self.statistics.touched_blocks(min, max));
        ColumnStatistics::index(&self.costs, rows, blocks)
    }

    /// The share of rows up to which the index is cheaper, for ranges of the smallest values.
    pub(crate) fn crossover(&self) -> f64 {
        let quantiles = &self.statistics.quantiles;
        let (Some(&min), Some(&max)) = (quantiles.first(), quantiles.last()) else { return 0.0 };
        let (mut below, mut above) = (min.saturating_sub(1), max);
        let is_beyond = |max: i64| self.statistics.rows_within(min, max) > self.most_rows(min, max, 1.0) as f64;
        if !is_beyond(max) {
            return 1.0;
        }
        while below < above {
            let middle = (i128::from(below) + (i128::from(above) - i128::from(below) + 1) / 2) as i64;
            if is_beyond(middle) { above = middle - 1 } else { below = middle }
        }
        self.statistics.rows_within(min, below) / (self.statistics.rows as f64).max(1.0)
    }
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent =
            |at: usize| self.statistics.percentile(at).map_or_else(|| "none".into(), |value| value.to_string());
        write!(
            f,
            "percentiles 0, 25, 50, 75, 100: {}, {}, {}, {}, {}; selects up to {:.2} % of the rows use it",
            percent(0),
            percent(25),
            percent(50),
            percent(75),
            percent(100),
            self.crossover() * 100.0
        )
    }
}

/// The range that a block's values lie in: that of a sample of them, widened by some of its gaps.
fn range_of_block(sample: &[i64]) -> Option<(i64, i64)> {
    let (min, max) = (sample.iter().copied().min()?, sample.iter().copied().max()?);
    let gaps = (max.abs_diff(min) / sample.len() as u64).saturating_mul(4);
    Some((min.saturating_sub_unsigned(gaps), max.saturating_add_unsigned(gaps)))
}

/// `wanted` of the numbers below `all`, spread evenly.
fn spread(all: u32, wanted: u32) -> impl Iterator<Item = u32> {
    (0..wanted).map(move |i| ((2 * u64::from(i) + 1) * u64::from(all) / (2 * u64::from(wanted))) as u32)
}

/// Some of a block's visible slots, spread evenly.
fn some_slots(reader: &BlockReader<'_>, wanted: u32) -> serac_storage::Selection {
    let all = reader.visible().len() as u32;
    let places: Vec<u32> = spread(all, wanted.min(all)).collect();
    reader.visible().narrow(&places)
}

/// The integers of an array that are not NULL.
fn push_integers(array: &ArrayRef, values: &mut Vec<i64>) {
    match array.data_type() {
        arrow_schema::DataType::Int16 => {
            values.extend(array.as_primitive::<Int16Type>().iter().flatten().map(i64::from))
        }
        arrow_schema::DataType::Int32 => {
            values.extend(array.as_primitive::<Int32Type>().iter().flatten().map(i64::from))
        }
        _ => values.extend(array.as_primitive::<Int64Type>().iter().flatten()),
    }
}

/// Makes the value of a number.
pub(crate) type MakeValue = fn(i64) -> Value<'static>;

/// The smallest and the largest number of a type of integers, and the function that makes values.
pub(crate) fn integers_of(column_type: ColumnType) -> Option<(i64, i64, MakeValue)> {
    match column_type {
        ColumnType::Int16 => Some((i16::MIN.into(), i16::MAX.into(), |v| Value::Int16(v as i16))),
        ColumnType::Int32 => Some((i32::MIN.into(), i32::MAX.into(), |v| Value::Int32(v as i32))),
        ColumnType::Int64 => Some((i64::MIN, i64::MAX, Value::Int64)),
        _ => None,
    }
}

/// The keys from `min` to `max`.
pub(crate) fn keys(min: i64, max: i64, value: MakeValue) -> KeyRange<'static> {
    KeyRange::prefix(&[]).from(Bound::Included(value(min))).to(Bound::Included(value(max)))
}

/// The rows of one block, ascending, whose values lie within the bounds, as a snapshot sees them.
/// If the rows are read together, the block is opened once for all of them.
///
/// # Errors
/// A damaged file.
pub(crate) fn keep_qualifying(
    data: &DataTable,
    snapshot: &Snapshot,
    column: ColumnId,
    rows: &[u64],
    bounds: Bounds,
    found: &mut Vec<u64>,
) -> Result<()> {
    let Some(&first) = rows.first() else { return Ok(()) };
    let block = RowId::from_u64(first).block();
    let Some(mut reader) = data.read_block(snapshot, block) else { return Ok(()) };
    let wanted = rows.iter().map(|row| RowId::from_u64(*row).slot().0);
    let slots: Vec<u32> = match reader.visible() {
        serac_storage::Selection::All(n) => wanted.take_while(|slot| slot < n).collect(),
        serac_storage::Selection::Positions(visible) => {
            let mut rest = visible.as_slice();
            wanted
                .filter(|slot| {
                    rest = &rest[rest.partition_point(|other| other < slot)..];
                    rest.first() == Some(slot)
                })
                .collect()
        }
    };
    let slots = serac_storage::Selection::Positions(slots);
    let array = &reader.columns(&[ScanColumn::arrow(column)], &slots)?[0];
    let serac_storage::Selection::Positions(slots) = slots else { return Ok(()) };
    let first = RowId::new(block, Slot(0)).as_u64();
    found.extend(qualifying(array, bounds).set_indices().map(|at| first + u64::from(slots[at])));
    Ok(())
}

/// Nanoseconds for each of `count`.
fn each(begun: Instant, count: usize) -> f64 {
    begun.elapsed().as_nanos() as f64 / count.max(1) as f64
}

fn median(mut times: Vec<f64>) -> Option<f64> {
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

impl Costs {
    /// Measures the costs on a table and one of its indexes. Each row is read once, as by a select,
    /// so its memory is as cold as a select finds it.
    ///
    /// # Errors
    /// A damaged file.
    fn measure(
        data: &DataTable,
        snapshot: &Snapshot,
        column: ColumnId,
        index: &TableIndex,
        statistics: &ColumnStatistics,
        value: MakeValue,
    ) -> Result<Self> {
        let mut costs = Self::ASSUMED;
        let percentile = |percent: usize| statistics.percentile(percent).unwrap_or(0);
        let middle = Bounds { lower: Some(percentile(40)), upper: Some(percentile(60)) };

        let (mut scans, mut dense) = (Vec::new(), Vec::new());
        for no in spread(statistics.blocks, statistics.blocks.min(SCANNED_BLOCKS)) {
            let begun = Instant::now();
            let Some(mut reader) = data.read_block(snapshot, BlockNo(no)) else { continue };
            let visible = reader.visible().clone();
            black_box(qualifying(&reader.columns(&[ScanColumn::arrow(column)], &visible)?[0], middle));
            scans.push(each(begun, visible.len()));
            // Few rows of the block together, and many.
            let rows = |wanted: usize| {
                let slots = some_slots(&reader, wanted as u32);
                reader.row_ids(&slots).values().to_vec()
            };
            let (few, many) = (rows(BLOCK_ROWS / 16), rows(BLOCK_ROWS));
            let (mut times, mut found) = ([0.0; 2], Vec::with_capacity(BLOCK_ROWS));
            for (time, rows) in times.iter_mut().zip([&few, &many]) {
                let begun = Instant::now();
                keep_qualifying(data, snapshot, column, rows, middle, &mut found)?;
                *time = each(begun, 1);
            }
            if many.len() > few.len() {
                let row = ((times[1] - times[0]) / (many.len() - few.len()) as f64).max(0.1);
                dense.push((row, (times[0] - row * few.len() as f64).max(1.0)));
            }
        }
        costs.scanned_row = median(scans).unwrap_or(costs.scanned_row);
        costs.block_row = median(dense.iter().map(|(row, _)| *row).collect()).unwrap_or(costs.block_row);
        costs.block = median(dense.iter().map(|(_, block)| *block).collect()).unwrap_or(costs.block);

        let mut entries = Vec::with_capacity(VISITED_ENTRIES);
        let begun = Instant::now();
        index.candidates(&keys(percentile(50), percentile(100), value), |row| {
            entries.push(row.as_u64());
            if entries.len() < VISITED_ENTRIES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        sort_rows(&mut entries);
        if entries.len() > VISITED_ENTRIES / 2 {
            costs.entry = each(begun, entries.len());
        }

        let (mut singles, mut buffer, pin) = (0, RowBuffer::default(), serac_storage::pin());
        let rows: Vec<u64> = spread(entries.len() as u32, SINGLE_ROWS.min(entries.len() as u32))
            .map(|at| entries[at as usize])
            .collect();
        let begun = Instant::now();
        for &row in &rows {
            singles += usize::from(data.read_pinned(snapshot, RowId::from_u64(row), &[column], &mut buffer, &pin)?);
        }
        if singles > 0 {
            costs.single_row = each(begun, rows.len()).max(costs.block_row);
        }
        drop(pin);

        let mut base = Runs::default();
        base.push(0..1 << 16);
        let bits = (0..1 << 16).map(|at| at % 101 == 0).collect();
        let selection = Selection::bits(Arc::new(base), bits);
        let begun = Instant::now();
        costs.listed_row = each(begun, black_box(selection.to_list()).len());
        Ok(costs)
    }
}

/// The known statistics and costs of indexed columns, for all clients.
#[derive(Debug, Default)]
pub(crate) struct AccessPaths(Mutex<HashMap<(TableId, usize), Arc<Known>>>);

impl AccessPaths {
    /// The known statistics and costs of a column, which may be out of date.
    pub(crate) fn known(&self, data: &DataTable, column: usize) -> Option<Arc<Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&(data.id(), column)).cloned()
    }

    /// The statistics and costs of an indexed column of integers. They are found if they are
    /// missing or out of date. `None` for other columns.
    ///
    /// # Errors
    /// A damaged file.
    pub(crate) fn find_out(
        &self,
        data: &DataTable,
        snapshot: &Snapshot,
        column: usize,
        column_type: ColumnType,
        index: &TableIndex,
    ) -> Result<Option<Arc<Known>>> {
        let Some((_, _, value)) = integers_of(column_type) else { return Ok(None) };
        let (rows, known) = (data.approximate_rows(), self.known(data, column));
        if let Some(known) = known
            && known.statistics.rows.abs_diff(rows) * 10 <= rows
            && known.has_blocks_of(data)
        {
            return Ok(Some(known));
        }
        let frozen_blocks = data.metrics().frozen_blocks;
        let id = ColumnId(column as u16);
        let statistics = ColumnStatistics::take(data, snapshot, id)?;
        let costs = if rows < MEASURED_ROWS {
            Costs::ASSUMED
        } else {
            Costs::measure(data, snapshot, id, index, &statistics, value)?
        };
        let known = Arc::new(Known { statistics, costs, frozen_blocks, uses: AtomicU32::new(0) });
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST_COLUMNS {
            all.clear();
        }
        all.insert((data.id(), column), known.clone());
        Ok(Some(known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COSTS: Costs =
        Costs { scanned_row: 0.4, listed_row: 3.0, entry: 12.0, single_row: 180.0, block: 3_000.0, block_row: 6.0 };
    const ROWS_OF_BLOCK: usize = 1_000;

    /// A column in memory, with the statistics that a sample of a row in `every` gives.
    struct Column {
        values: Vec<i64>,
        known: Known,
        has_zones: bool,
    }

    impl Column {
        fn new(values: Vec<i64>, every: usize, has_zones: bool, costs: Costs) -> Self {
            let range = |values: &[i64]| values.iter().copied().min().zip(values.iter().copied().max());
            let (mut sample, mut sampled) = (Vec::new(), Vec::new());
            for block in values.chunks(ROWS_OF_BLOCK) {
                let some: Vec<i64> = block.iter().copied().skip(every / 2).step_by(every).collect();
                sampled.push(SampledBlock { zone: range(block).filter(|_| has_zones), sampled: range_of_block(&some) });
                sample.extend(some);
            }
            let blocks = values.len().div_ceil(ROWS_OF_BLOCK) as u32;
            let statistics = ColumnStatistics::of(values.len() as u64, blocks, 1.0, sample, sampled);
            Self { values, known: Known { statistics, costs, frozen_blocks: 0, uses: AtomicU32::new(0) }, has_zones }
        }
        /// What a scan and the index really take, by the costs.
        fn takes(&self, min: i64, max: i64) -> (f64, f64) {
            let costs = &self.known.costs;
            let (mut scan, mut index, mut rows) = (0.0, 0.0, 0);
            for block in self.values.chunks(ROWS_OF_BLOCK) {
                let within = block.iter().filter(|value| (min..=max).contains(*value)).count();
                let (low, high) = (*block.iter().min().unwrap(), *block.iter().max().unwrap());
                let is_decided = high < min || low > max || (low >= min && high <= max);
                if !(self.has_zones && is_decided) {
                    scan += block.len() as f64 * costs.scanned_row;
                }
                index += within as f64 * costs.entry;
                index += if within == 0 {
                    0.0
                } else if costs.reads_singly(within) {
                    within as f64 * costs.single_row
                } else {
                    costs.block + within as f64 * costs.block_row
                };
                rows += within;
            }
            scan += if rows * 64 <= self.values.len() { rows as f64 * costs.listed_row } else { 0.0 };
            (scan, index)
        }
        /// By how much the chosen path is slower than the better one, over ranges from narrow to
        /// all.
        fn worst(&self) -> f64 {
            let mut sorted = self.values.clone();
            sorted.sort_unstable();
            let mut worst: f64 = 1.0;
            for step in 0..=80 {
                let count = (sorted.len() as f64 * 10f64.powf(-4.0 + f64::from(step) / 20.0)).max(1.0) as usize;
                for from in [0, sorted.len() / 3, sorted.len() - count] {
                    let to = (from + count).min(sorted.len()) - 1;
                    let (min, max) = (sorted[from], sorted[to]);
                    let (scan, index) = self.takes(min, max);
                    let within = self.values.iter().filter(|value| (min..=max).contains(*value)).count() as u64;
                    // Less is over before it can be told apart.
                    if scan.min(index) < 10_000.0 {
                        continue;
                    }
                    let chosen = match self.known.path(min, max, 1) {
                        Path::Scan => scan,
                        Path::Index { most_entries } if within <= most_entries => index,
                        Path::Index { most_entries } => scan + most_entries as f64 * self.known.costs.entry,
                    };
                    worst = worst.max(chosen / scan.min(index));
                }
            }
            worst
        }
    }

    /// Numbers without a pattern (splitmix64), the same in each run. Multiples of a number would
    /// not do: those of a range lie in more blocks than random ones, an equal share in each.
    fn mixed(count: u64) -> impl Iterator<Item = i64> {
        (1..=count).map(|i| {
            let mut number = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((number ^ (number >> 31)) % 1_000_000) as i64
        })
    }

    #[test]
    fn the_chosen_path_is_the_better_one_or_nearly_so() {
        let uniform: Vec<i64> = mixed(200_000).collect();
        let mut ascending = uniform.clone();
        ascending.sort_unstable();
        let mostly_ascending: Vec<i64> = ascending.iter().zip(mixed(200_000)).map(|(v, m)| v + m / 20).collect();
        let skewed: Vec<i64> = uniform.iter().map(|v| v * v / 1_000_000).collect();
        for (name, values) in
            [("uniform", uniform), ("ascending", ascending), ("mostly ascending", mostly_ascending), ("skewed", skewed)]
        {
            for has_zones in [false, true] {
                for costs in
                    [COSTS, Costs { entry: 60.0, ..COSTS }, Costs { scanned_row: 2.0, ..COSTS }, Costs::ASSUMED]
                {
                    // As many as are sampled of a real table with so many rows.
                    let worst = Column::new(values.clone(), 3, has_zones, costs).worst();
                    assert!(worst <= 1.1, "{name}, zones {has_zones}, {costs:?}: {worst}");
                }
            }
        }
    }

    #[test]
    fn a_clustered_range_is_worth_an_index_where_blocks_have_no_zones() {
        let ascending: Vec<i64> = (0..200_000).collect();
        let hot = Column::new(ascending.clone(), 10, false, COSTS);
        let unclustered = Column::new(mixed(200_000).collect(), 10, false, COSTS);
        assert!(hot.known.crossover() > unclustered.known.crossover() * 1.2);
        // With zones, a scan reads the blocks at the ends of the range alone.
        let frozen = Column::new(ascending, 10, true, COSTS);
        assert_eq!(frozen.known.path(20_000, 150_000, 1), Path::Scan);
        assert!(matches!(frozen.known.path(20_000, 20_000, 1), Path::Index { .. }));
    }

    #[test]
    fn an_index_is_left_when_it_has_many_more_entries_than_were_expected() {
        let column = Column::new(mixed(200_000).collect(), 10, false, COSTS);
        let Path::Index { most_entries } = column.known.path(0, 100, 1) else { panic!("few rows") };
        assert!((16..100_000).contains(&most_entries), "{most_entries}");
        // A scan that many share is worth more.
        let shared = column.known.path(0, 100, 100);
        assert!(matches!(shared, Path::Index { most_entries: fewer } if fewer < most_entries), "{shared:?}");
    }

    #[test]
    fn a_table_without_rows_has_a_path() {
        let empty = Column::new(Vec::new(), 1, false, COSTS);
        assert!(matches!(empty.known.path(i64::MIN, i64::MAX, 1), Path::Index { .. }));
        assert_eq!(empty.known.statistics.rows_within(i64::MIN, i64::MAX), 0.0);
        assert!(empty.known.to_string().contains("none"));
    }

    #[test]
    fn a_block_of_few_and_far_values_has_a_range() {
        assert_eq!(range_of_block(&[]), None);
        assert_eq!(range_of_block(&[3]), Some((3, 3)));
        for sample in [&[i64::MIN, i64::MAX][..], &[i64::MAX, 0, i64::MIN]] {
            assert_eq!(range_of_block(sample), Some((i64::MIN, i64::MAX)));
        }
    }

    proptest! {
        #[test]
        fn estimates_follow_the_values(
            values in prop::collection::vec(prop_oneof![-50i64..50, Just(7), any::<i64>()], 100..600),
            (one, other) in (prop_oneof![-60i64..60, any::<i64>()], prop_oneof![-60i64..60, any::<i64>()]),
            // Numbers that are neighbours as floats.
            moved in prop_oneof![Just(0i64), Just(1 << 62), Just(i64::MIN + 100)],
        ) {
            let values: Vec<i64> = values.into_iter().map(|value| value.wrapping_add(moved)).collect();
            let (one, other) = (one.wrapping_add(moved), other.wrapping_add(moved));
            let (min, max) = (one.min(other), one.max(other));
            let statistics = ColumnStatistics::of(values.len() as u64, 1, 1.0, values.clone(), Vec::new());
            let within = values.iter().filter(|value| (min..=max).contains(*value)).count() as f64;
            // Each end is off by a percentile at the most.
            let error = (statistics.rows_within(min, max) - within).abs() / values.len() as f64;
            prop_assert!(error <= 0.04, "{} against {}", statistics.rows_within(min, max), within);
            prop_assert_eq!(statistics.rows_within(i64::MIN, i64::MAX), values.len() as f64);
        }
    }
}
