//! Columns, block by block: selections on them, and their values at positions.
//!
//! A block that all snapshots see alike is read as a whole, a frozen one without a copy. A block is
//! not read at all if its smallest and largest value decide. Few rows of a block are read one by
//! one.

use crate::access::{Costs, Known, Path, integers_of, keep_qualifying, keys};
use crate::clustered::{is_clustered, select_in_order};
use crate::error::{OperatorError, Result};
use crate::settings::{Access, Settings, Switch};
use crate::snapshot::{Column, Snapshot, push_visible};
use crate::statement::{Aggregate, Bounds};
use crate::values::{Aggregation, NumberKind, Values, ValuesBuilder, integer_range, qualifying};
use crate::variable::{Origin, Positions, TableRows, Variable};
use arrow_array::{Array, ArrayRef, UInt64Array};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use serac_engine::TableIndex;
use serac_index::sorting::sort;
use serac_operators::row_order::sort_rows;
use serac_operators::selection::{Runs, Selection};
use serac_storage::{BlockNo, ColumnId, RowBuffer, RowId, ScanColumn};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// If fewer rows of a block than this are wanted, each is read by itself.
const FEW_ROWS: u64 = 24;
/// Rows between two checks for cancellation.
const ROWS_BETWEEN_CHECKS: usize = 4_096;

/// The rows of a column whose values lie within the bounds, ascending.
///
/// # Errors
/// A cancelled statement, memory, a damaged file.
pub fn select(snapshot: &Snapshot, column: &Column<'_>, bounds: Bounds) -> Result<Selection> {
    if let Some(found) = select_by_index(snapshot, column, bounds, 1)? {
        return Ok(found);
    }
    let (base, bits) = scan(snapshot, column, bounds)?;
    Ok(represent(&base, bits, snapshot.settings()))
}

/// The visible rows of a column's table, and a bit for each: whether its value lies within the
/// bounds.
///
/// # Errors
/// As [`select`].
pub fn scan(snapshot: &Snapshot, column: &Column<'_>, bounds: Bounds) -> Result<(Arc<Runs>, BooleanBuffer)> {
    let rows = column.data().approximate_rows();
    let _taken = snapshot.memory().take(rows / 8)?;
    let (mut base, mut bits) = (Runs::default(), BooleanBufferBuilder::new(rows as usize));
    snapshot.for_each_block(column.data(), |mut reader| {
        push_visible(&mut base, &reader);
        snapshot.memory().check(base.bytes() as u64)?;
        let visible = reader.visible().clone();
        match verdict(&reader, column, bounds) {
            Some(qualifies) => bits.append_n(visible.len(), qualifies),
            None => bits.append_buffer(&qualifying(&reader.columns(&[column.scanned()], &visible)?[0], bounds)),
        }
        Ok(())
    })?;
    let base = Arc::new(base);
    snapshot.note_visible(column.rows, &base);
    Ok((base, bits.finish()))
}

/// Whether all values of a block lie within the bounds (true), or none does (false). `None` if its
/// zone does not tell.
fn verdict(reader: &serac_storage::BlockReader<'_>, column: &Column<'_>, bounds: Bounds) -> Option<bool> {
    if column.kind != NumberKind::Integers {
        return None;
    }
    let (zone, (min, max)) = (reader.zone(column.id())?, integer_range(bounds));
    if zone.max < min || zone.min > max || min > max {
        Some(false)
    } else if zone.min >= min && zone.max <= max && !column.is_nullable() {
        Some(true)
    } else {
        None
    }
}

/// The rows of the base whose bits are set, in the smallest representation.
pub fn represent(base: &Arc<Runs>, bits: BooleanBuffer, settings: &Settings) -> Selection {
    let (all, count) = (bits.len() as u64, bits.count_set_bits() as u64);
    if count == 0 {
        return Selection::List(Vec::new());
    }
    if count == all {
        return Selection::Range(Runs::clone(base));
    }
    let run_bytes = size_of::<Range<u64>>() + size_of::<u64>();
    let most_runs = (count * 8).min(all / 8) as usize / run_bytes;
    if bits.set_slices().take(most_runs + 1).count() <= most_runs {
        let mut runs = Runs::default();
        for (from, to) in bits.set_slices() {
            base.slice(from as u64..to as u64).ranges().iter().for_each(|range| runs.push(range.clone()));
        }
        return Selection::Range(runs);
    }
    let inverts = match settings.inverse {
        Switch::On => count * 2 > all,
        Switch::Off => false,
        Switch::Auto => (all - count) * 64 < all,
    };
    if inverts {
        let rank_rows = Selection::bits(base.clone(), !&bits).to_list();
        return Selection::Inverse { base: base.clone(), except: rank_rows };
    }
    let selected = Selection::Bits { base: base.clone(), bits, count };
    if count * 64 <= all { Selection::List(selected.to_list()) } else { selected }
}

/// Ascending rows, as ranges where they lie together.
pub(crate) fn ascending(rows: Vec<u64>) -> Selection {
    let runs = rows.chunk_by(|a, b| a + 1 == *b).take(rows.len() / 4 + 1).count();
    if rows.is_empty() || runs > rows.len() / 4 {
        return Selection::List(rows);
    }
    let mut all = Runs::default();
    rows.chunk_by(|a, b| a + 1 == *b).for_each(|run| all.push(run[0]..run[0] + run.len() as u64));
    Selection::Range(all)
}

/// The index of a column alone.
fn index_of<'t>(column: &Column<'t>) -> Option<&'t Arc<TableIndex>> {
    column.table.indexes.iter().find(|index| index.definition.columns == [column.at])
}

/// Whether selects on the column may use an index, or the order of the rows.
pub(crate) fn has_index(column: &Column<'_>) -> bool {
    index_of(column).is_some() || is_clustered(column)
}

/// Finds the costs of an indexed column's access paths, if they are not known.
///
/// # Errors
/// A damaged file.
pub(crate) fn find_out_paths(snapshot: &Snapshot, column: &Column<'_>) -> Result<Option<Arc<Known>>> {
    let Some(index) = index_of(column) else { return Ok(None) };
    snapshot.paths().find_out(column.data(), snapshot.storage(), column.at, column.column_type, index)
}

/// As [`select`], by the order of the rows or by an index. `None` if there is neither, or if a scan
/// that this many `selects` share is cheaper.
pub(crate) fn select_by_index(
    snapshot: &Snapshot,
    column: &Column<'_>,
    bounds: Bounds,
    selects: usize,
) -> Result<Option<Selection>> {
    let access = snapshot.settings().access;
    if access == Access::Scan || bounds == Bounds::default() {
        return Ok(None);
    }
    if !has_index(column) {
        return Ok(None);
    }
    let Some((least, most, value)) = integers_of(column.column_type) else { return Ok(None) };
    let (min, max) = integer_range(bounds);
    if min > max || min > most || max < least {
        return Ok(Some(Selection::List(Vec::new())));
    }
    let (min, max) = (min.max(least), max.min(most));
    if is_clustered(column)
        && let Some(found) = select_in_order(snapshot, column, bounds, min..=max)?
    {
        return Ok(Some(found));
    }
    let Some(index) = index_of(column) else { return Ok(None) };
    let (data, storage) = (column.data(), snapshot.storage());
    let (most_entries, costs) = match access {
        Access::Index => {
            (u64::MAX, snapshot.paths().known(data, column.at).map_or(Costs::ASSUMED, |known| known.costs))
        }
        _ => match find_out_paths(snapshot, column)?.map(|known| (known.path(min, max, selects), known.costs)) {
            Some((Path::Index { most_entries }, costs)) => (most_entries, costs),
            Some((Path::Scan, _)) | None => return Ok(None),
        },
    };
    let (mut rows, mut ended) = (Vec::new(), Ok(()));
    index.candidates(&keys(min, max, value), |row| {
        if rows.len().is_multiple_of(ROWS_BETWEEN_CHECKS) {
            // The entries, a second time while they are sorted, and the result.
            ended = snapshot.check().and_then(|()| snapshot.memory().check(rows.len() as u64 * 24));
        }
        rows.push(row.as_u64());
        if ended.is_err() || rows.len() as u64 > most_entries {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    ended?;
    if rows.len() as u64 > most_entries {
        return Ok(None);
    }
    sort_rows(&mut rows);
    let (mut found, mut buffer) = (Vec::with_capacity(rows.len()), RowBuffer::default());
    for rows in rows.chunk_by(|one, other| RowId::from_u64(*one).block() == RowId::from_u64(*other).block()) {
        snapshot.check()?;
        if !costs.reads_singly(rows.len()) {
            keep_qualifying(data, storage, column.id(), rows, bounds, &mut found)?;
            continue;
        }
        let pin = serac_storage::pin();
        for &row in rows {
            let is_there = data.read_pinned(storage, RowId::from_u64(row), &[column.id()], &mut buffer, &pin)?;
            if is_there && buffer.integer(0).is_some_and(|value| (min..=max).contains(&value)) {
                found.push(row);
            }
        }
    }
    Ok(Some(ascending(found)))
}

/// All values of a column, in row order.
///
/// # Errors
/// As [`select`].
pub fn whole(snapshot: &Snapshot, column: &Column<'_>) -> Result<Values> {
    let rows = column.data().approximate_rows();
    let _taken = snapshot.memory().take(rows.saturating_mul(column.kind.width()))?;
    let mut values = ValuesBuilder::new(column.kind, rows as usize);
    snapshot.for_each_block(column.data(), |mut reader| {
        let visible = reader.visible().clone();
        values.append(&reader.columns(&[column.scanned()], &visible)?[0]);
        Ok(())
    })?;
    Ok(values.finish())
}

/// An aggregate of all values of a column.
///
/// # Errors
/// As [`select`], and [`OperatorError::Overflow`].
pub fn aggregate(snapshot: &Snapshot, column: &Column<'_>, aggregate: Aggregate) -> Result<Variable> {
    aggregation(snapshot, column)?.result(aggregate)
}

/// The numbers from which all aggregates of a column follow.
pub(crate) fn aggregation(snapshot: &Snapshot, column: &Column<'_>) -> Result<Aggregation> {
    let mut all = Aggregation::new(column.kind);
    snapshot.for_each_block(column.data(), |mut reader| {
        let visible = reader.visible().clone();
        all.note(&*reader.columns(&[column.scanned()], &visible)?[0]);
        Ok(())
    })?;
    Ok(all)
}

/// The values of a column in rows of its table, in their order.
///
/// # Errors
/// As [`select`], and [`OperatorError::RowDeleted`].
pub fn gather(snapshot: &Snapshot, column: &Column<'_>, rows: &Selection) -> Result<Values> {
    let mut gathered = gather_all(snapshot, std::slice::from_ref(column), rows)?;
    Ok(gathered.pop().unwrap_or_else(|| ValuesBuilder::new(column.kind, 0).finish()))
}

/// As [`gather`], of several columns of one table: each block is looked at once for all of them.
pub(crate) fn gather_all(snapshot: &Snapshot, columns: &[Column<'_>], rows: &Selection) -> Result<Vec<Values>> {
    let len = rows.len();
    let width = columns.iter().map(|column| column.kind.width()).sum();
    let _taken = snapshot.memory().take(len.saturating_mul(width))?;
    if rows.ascends() {
        let mut gathering = Gathering::new(snapshot, columns, len);
        rows.for_each_range(|range| gathering.add(range))?;
        return gathering.finish();
    }
    // The rows are read in their order, each once, and their values then put in the wanted order.
    let list = rows.to_list();
    let _sorting = snapshot.memory().take(len.saturating_mul(32))?;
    let mut order: Vec<(u64, u64)> = list.iter().copied().zip(0..).collect();
    sort(&mut order, Ord::cmp, || snapshot.check())?;
    let (mut places, mut distinct) = (vec![0; list.len()], 0);
    let mut gathering = Gathering::new(snapshot, columns, len);
    let mut last = None;
    for (row, place) in order {
        if last != Some(row) {
            gathering.add(row..row + 1)?;
            distinct += 1;
            last = Some(row);
        }
        places[place as usize] = distinct - 1;
    }
    let places = UInt64Array::from(places);
    gathering.finish()?.iter().map(|values| values.take(&places)).collect()
}

/// Values of ascending rows that are being gathered.
struct Gathering<'g> {
    snapshot: &'g Snapshot,
    columns: &'g [Column<'g>],
    ids: Vec<ColumnId>,
    scanned: Vec<ScanColumn>,
    values: Vec<ValuesBuilder>,
    /// The block of `ranges`, which are rows of it that are still to be read.
    block: BlockNo,
    ranges: Vec<Range<u32>>,
    count: u64,
    buffer: RowBuffer,
}

impl<'g> Gathering<'g> {
    fn new(snapshot: &'g Snapshot, columns: &'g [Column<'g>], len: u64) -> Self {
        Self {
            snapshot,
            columns,
            ids: columns.iter().map(Column::id).collect(),
            scanned: columns.iter().map(Column::scanned).collect(),
            values: columns.iter().map(|column| ValuesBuilder::new(column.kind, len as usize)).collect(),
            block: BlockNo(0),
            ranges: Vec::new(),
            count: 0,
            buffer: RowBuffer::default(),
        }
    }

    fn append(&mut self, arrays: &[ArrayRef]) {
        self.values.iter_mut().zip(arrays).for_each(|(values, array)| values.append(array));
    }

    /// A range of rows of one block, behind those before.
    fn add(&mut self, range: Range<u64>) -> Result<()> {
        let first = RowId::from_u64(range.start);
        if first.block() != self.block {
            self.flush()?;
            self.block = first.block();
        }
        let (from, count) = (first.slot().0, range.end - range.start);
        let to = from + count as u32;
        self.count += count;
        match self.ranges.last_mut() {
            Some(last) if last.end == from => last.end = to,
            _ => self.ranges.push(from..to),
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.ranges.is_empty() {
            return Ok(());
        }
        self.snapshot.check()?;
        let (ranges, count) = (std::mem::take(&mut self.ranges), std::mem::take(&mut self.count));
        self.read(&ranges, count)?;
        self.ranges = ranges;
        self.ranges.clear();
        Ok(())
    }

    fn read(&mut self, ranges: &[Range<u32>], count: u64) -> Result<()> {
        let Some(first) = self.columns.first() else { return Ok(()) };
        let (data, storage) = (first.data(), self.snapshot.storage());
        if count < FEW_ROWS {
            let pin = serac_storage::pin();
            for slot in ranges.iter().cloned().flatten() {
                let row = RowId::new(self.block, serac_storage::Slot(slot));
                if !data.read_pinned(storage, row, &self.ids, &mut self.buffer, &pin)? {
                    return Err(OperatorError::RowDeleted);
                }
                for (at, values) in self.values.iter_mut().enumerate() {
                    values.push(self.buffer.value(at));
                }
            }
            return Ok(());
        }
        let Some(mut reader) = data.read_block(storage, self.block) else { return Err(OperatorError::RowDeleted) };
        let visible = reader.visible().clone();
        if !has_all(&visible, ranges) {
            return Err(OperatorError::RowDeleted);
        }
        if count == visible.len() as u64 {
            self.append(&reader.columns(&self.scanned, &visible)?);
            return Ok(());
        }
        let lies_together = ranges.len() as u64 * 16 <= count;
        let is_cheap = reader.stats().frozen || count * 8 >= visible.len() as u64;
        if matches!(visible, serac_storage::Selection::All(_)) && lies_together && is_cheap {
            for (array, values) in reader.columns(&self.scanned, &visible)?.iter().zip(&mut self.values) {
                for range in ranges {
                    values.append(&array.slice(range.start as usize, range.len()));
                }
            }
            return Ok(());
        }
        let slots = serac_storage::Selection::Positions(ranges.iter().cloned().flatten().collect());
        self.append(&reader.columns(&self.scanned, &slots)?);
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Values>> {
        self.flush()?;
        Ok(self.values.into_iter().map(ValuesBuilder::finish).collect())
    }
}

/// Whether all slots of ascending ranges are among the visible ones.
fn has_all(visible: &serac_storage::Selection, ranges: &[Range<u32>]) -> bool {
    match visible {
        serac_storage::Selection::All(n) => ranges.last().is_none_or(|range| range.end <= *n),
        serac_storage::Selection::Positions(slots) => {
            let mut rest = slots.as_slice();
            ranges.iter().all(|range| {
                rest = &rest[rest.partition_point(|slot| *slot < range.start)..];
                // Slots ascend, so the last one is in its place only if all are there.
                rest.get(range.len() - 1) == Some(&(range.end - 1)) && rest[0] == range.start
            })
        }
    }
}

/// Checks for cancellation at one call in [`ROWS_BETWEEN_CHECKS`].
fn check_now_and_then(snapshot: &Snapshot, calls: &mut usize) -> Result<()> {
    *calls += 1;
    if calls.is_multiple_of(ROWS_BETWEEN_CHECKS) { snapshot.check() } else { Ok(()) }
}

/// Positions as numbers: places in a vector as they are, rows as their ranks among the visible rows
/// of their table.
///
/// # Errors
/// [`OperatorError::RowsGone`], [`OperatorError::RowDeleted`], [`OperatorError::Cancelled`].
pub fn numbers(snapshot: &Snapshot, positions: &Positions) -> Result<Vec<u64>> {
    let _taken = snapshot.memory().take(positions.len().saturating_mul(8))?;
    let Origin::Table(rows) = &positions.origin else { return Ok(positions.selection.to_list()) };
    snapshot.check_there(rows)?;
    let visible = snapshot.visible(rows)?;
    let mut numbers = Vec::with_capacity(positions.len() as usize);
    let mut ranges = 0;
    positions.selection.for_each_range(|range| {
        check_now_and_then(snapshot, &mut ranges)?;
        let len = range.end - range.start;
        match (visible.rank(range.start), visible.rank(range.end - 1)) {
            // Ranks ascend, so all rows between are there.
            (Some(first), Some(last)) if last - first == len - 1 => {
                numbers.extend(first..=last);
                Ok(())
            }
            _ => Err(OperatorError::RowDeleted),
        }
    })?;
    Ok(numbers)
}

/// Positions as rows of a table. Positions in another table, or in a vector, are taken as numbers
/// of rows.
///
/// # Errors
/// As [`numbers`], and [`OperatorError::PositionOutOfRange`].
pub fn rows_of(snapshot: &Snapshot, rows: &TableRows, positions: &Positions) -> Result<Arc<Selection>> {
    if let Origin::Table(own) = &positions.origin
        && own.id() == rows.id()
    {
        return Ok(positions.selection.clone());
    }
    let visible = snapshot.visible(rows)?;
    let mut found = numbers(snapshot, positions)?;
    let mut looked_up = 0;
    for number in &mut found {
        check_now_and_then(snapshot, &mut looked_up)?;
        *number = visible.row(*number).ok_or(OperatorError::PositionOutOfRange(*number, visible.len()))?;
    }
    Ok(Arc::new(Selection::List(found)))
}
