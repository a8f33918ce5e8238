//! Selects on the column that a table is clustered by: ranges of rows, found without reading them.
//!
//! The rows of a clustered table are written in the order of its column, a load or a
//! `create(idx,…)` at a time. Rows that are inserted or updated later are not in order, and
//! compaction moves rows. So each block is asked which of its rows lie in order (see
//! [`DataTable::find_in_order`]):
//! ```text
//! block         values       select(c,20,45)
//! 0             1 … 17       nothing, by the smallest and the largest value
//! 1             17 … 31      slots from the first value ≥ 20, by binary search
//! 2             31 … 44      all slots
//! 3             44 … 60      slots up to the last value < 45, by binary search
//! 4             50, 3, 21 …  not in order, or being written: its values are read
//! ```
//! The outcome is a [`Selection::Range`] with a range for each block. Whether the index was made as
//! `sorted` or as `btree` makes no difference: the smallest and largest values of the blocks are
//! the inner nodes, and the blocks are the leaves.
//!
//! The usual access paths are taken in two cases: if more than a quarter of the rows is not in
//! order, or if the index finds the few rows of the range sooner than the rows out of order are
//! read.

use crate::column::find_out_paths;
use crate::error::Result;
use crate::snapshot::{Column, Snapshot};
use crate::statement::Bounds;
use crate::values::qualifying;
use serac_operators::selection::{Runs, Selection};
use serac_storage::{BlockNo, DataTable, RowId, Slot};
use std::ops::{Range, RangeInclusive};

/// One row in this many may be out of order.
const MOST_UNORDERED: u64 = 4;

/// Whether the rows of the column's table are written in its order.
pub(crate) fn is_clustered(column: &Column<'_>) -> bool {
    let cluster = column.table.definition.cluster.first();
    cluster.is_some_and(|(at, order)| *at == column.at && !order.descending)
}

/// A part of a block that has, or may have, rows of the range.
enum Found {
    /// Slots of a block: all their rows, and no others of the block.
    Slots(BlockNo, Range<u32>),
    /// A block that is to be read.
    Block(BlockNo),
}

/// The parts of blocks that have rows of the range, and the number of rows that are to be read.
/// `None` if these are too many.
fn look_up(
    snapshot: &Snapshot,
    column: &Column<'_>,
    wanted: &RangeInclusive<i64>,
) -> Result<Option<(Vec<Found>, u64)>> {
    let data: &DataTable = column.data();
    let most = data.approximate_rows() / MOST_UNORDERED;
    let (mut found, mut slots, mut unordered) = (Vec::new(), Vec::new(), 0);
    for no in (0..data.block_count()).map(BlockNo) {
        snapshot.check()?;
        if data.find_in_order(snapshot.storage(), no, column.id(), wanted, &mut slots)? {
            found.extend(slots.drain(..).map(|slots| Found::Slots(no, slots)));
        } else if let Some(block) = data.block(no) {
            unordered += u64::from(block.slot_limit());
            if unordered > most {
                return Ok(None);
            }
            found.push(Found::Block(no));
        }
        snapshot.memory().check((found.len() * size_of::<Found>()) as u64)?;
    }
    Ok(Some((found, unordered)))
}

/// The rows whose values, from `wanted`, lie within the bounds. `None` if the usual access paths
/// are better.
///
/// # Errors
/// A cancelled statement, memory, a damaged file.
pub(crate) fn select_in_order(
    snapshot: &Snapshot,
    column: &Column<'_>,
    bounds: Bounds,
    wanted: RangeInclusive<i64>,
) -> Result<Option<Selection>> {
    let Some((found, unordered)) = look_up(snapshot, column, &wanted)? else { return Ok(None) };
    if unordered > 0
        && let Some(known) = find_out_paths(snapshot, column)?
        && known.index_cost(*wanted.start(), *wanted.end()) < unordered as f64 * known.costs.scanned_row
    {
        return Ok(None);
    }
    let mut rows = Runs::default();
    for found in found {
        let no = match found {
            Found::Slots(no, slots) => {
                let row = |slot| RowId::new(no, Slot(slot)).as_u64();
                rows.push(row(slots.start)..row(slots.end));
                continue;
            }
            Found::Block(no) => no,
        };
        snapshot.check()?;
        let Some(mut reader) = column.data().read_block(snapshot.storage(), no) else { continue };
        let visible = reader.visible().clone();
        let bits = qualifying(&reader.columns(&[column.scanned()], &visible)?[0], bounds);
        let first = RowId::new(no, Slot(0)).as_u64();
        match &visible {
            serac_storage::Selection::All(_) => {
                bits.set_slices().for_each(|(from, to)| rows.push(first + from as u64..first + to as u64));
            }
            serac_storage::Selection::Positions(slots) => {
                let row = |at: usize| first + u64::from(slots[at]);
                bits.set_indices().for_each(|at| rows.push(row(at)..row(at) + 1));
            }
        }
        snapshot.memory().check(rows.bytes() as u64)?;
    }
    // A list of rows that lie alone takes less than their ranges.
    Ok(Some(if rows.bytes() as u64 > rows.len() * size_of::<u64>() as u64 {
        Selection::List(rows.iter().collect())
    } else {
        Selection::Range(rows)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::Operators;
    use crate::settings::Settings;
    use crate::statement::{ColumnName, TableName};
    use serac_engine::Database;
    use serac_engine::security::RoleId;
    use std::fmt::Write;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    /// Selects from `low` to `high` by the order alone; none where that does not help. And how many
    /// rows a select finds, whatever its way.
    fn select(operators: &Operators, low: i64, high: i64) -> (Option<Selection>, u64) {
        let table = TableName { database: "d".into(), table: "t".into() };
        let name = ColumnName { table: table.clone(), column: "k".into() };
        let settings = Settings::default();
        let names = std::iter::once(&table);
        let (snapshot, _) = Snapshot::open(operators, RoleId::BOOTSTRAP, names, &settings, &Arc::default()).unwrap();
        let column = snapshot.column(&name).unwrap();
        assert!(is_clustered(&column));
        let bounds = Bounds { lower: Some(low), upper: Some(high + 1) };
        let in_order = select_in_order(&snapshot, &column, bounds, low..=high).unwrap();
        (in_order, crate::column::select(&snapshot, &column, bounds).unwrap().len())
    }

    #[test]
    fn rows_in_order_are_ranges_and_a_change_costs_its_block_alone() {
        let operators = Operators::new(Arc::new(Database::in_memory().unwrap()));
        let mut context = operators.context();
        let mut all = |script: &str| {
            let mut printed = String::new();
            script.lines().for_each(|line| _ = context.execute(1, line, &mut printed).unwrap());
        };
        all("create(db,\"d\")\ncreate(tbl,\"t\",d,2)\ncreate(col,\"k\",d.t)\ncreate(col,\"v\",d.t)");
        all("create(idx,d.t.k,sorted,clustered)");
        let rows = 400_000;
        let mut file = String::from("d.t.k,d.t.v\n");
        (0..rows).for_each(|row| writeln!(file, "{},{row}", row * 7 % rows).unwrap());
        let loading = operators.context();
        let mut load = loading.begin_load(1, "t.csv");
        load.push(file.as_bytes()).map_err(|error| error.to_string()).unwrap();
        load.finish().unwrap();
        let storage = operators.database().storage();
        let calm = || {
            let deadline = Instant::now() + Duration::from_secs(20);
            while select(&operators, 0, rows).0.is_none_or(|found| found.representation() != "range") {
                assert!(Instant::now() < deadline, "the collector takes no versions off the blocks");
                storage.run_gc();
            }
        };
        calm();
        let blocks = operators.database().catalog().table("d", "t").unwrap().data.block_count() as usize;
        assert!(blocks > 3, "{blocks}");
        let ranges = |low: i64, high: i64| match select(&operators, low, high).0 {
            Some(Selection::Range(runs)) => (runs.len(), runs.ranges().len()),
            other => panic!("{other:?}"),
        };
        let (found, count) = ranges(1_000, 300_999);
        assert!(found == 300_000 && count <= blocks, "{found} rows in {count} ranges of {blocks} blocks");
        let found_in = |low: i64, high: i64| select(&operators, low, high).1;
        assert_eq!((found_in(5, 5), found_in(rows, rows + 9)), (1, 0));
        // A row out of order: its block is read, and the others are not.
        all("p=select(d.t.k,1000,1001)\nrelational_update(d.t.k,p,350000)");
        let (found, count) = ranges(1_000, 300_999);
        assert!(found == 299_999 && count <= blocks + 1, "{found} rows in {count} ranges of {blocks} blocks");
        assert_eq!(found_in(350_000, 350_000), 2);
        calm();
        assert_eq!(found_in(350_000, 350_000), 2);
    }
}
