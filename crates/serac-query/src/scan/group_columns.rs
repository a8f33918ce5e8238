//! Groups by bitvectors: the values of indexed columns, combinations of which are groups.

use super::exec::SeracScanExec;
use datafusion::arrow::array::ArrayRef;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::PhysicalGroupBy;
use datafusion::physical_plan::projection::ProjectionExec;
use serac_engine::table::bitmap::BitmapReader;
use serac_engine::values::array_of;
use serac_index::cubit::container::Words;
use serac_index::cubit::{Bitvector, Key, Predicate, Shared};
use serac_storage::{BlockNo, Slot};
use std::ops::Bound;
use std::sync::Arc;

/// The values of a column that groups rows, with their bitvectors.
#[derive(Debug)]
pub(super) struct GroupColumn {
    index: BitmapReader,
    keys: Vec<Key>,
    vectors: Shared<Bitvector>,
}

/// The table's column below a projection, if it is a bare column.
pub(super) fn column_of(
    expr: &Arc<dyn PhysicalExpr>,
    projection: Option<&ProjectionExec>,
    scan: &SeracScanExec,
) -> Option<usize> {
    let mut at = expr.downcast_ref::<Column>()?.index();
    if let Some(projection) = projection {
        at = projection.expr()[at].expr.downcast_ref::<Column>()?.index();
    }
    scan.column_of(at)
}

/// The bitmap indexes on the columns that rows are grouped by, if all have one.
pub(super) fn indexes_of(
    by: &PhysicalGroupBy,
    projection: Option<&ProjectionExec>,
    scan: &SeracScanExec,
) -> Option<Vec<BitmapReader>> {
    let index_of = |expr: &Arc<dyn PhysicalExpr>| -> Option<BitmapReader> {
        let column = column_of(expr, projection, scan)?;
        scan.indexes().iter().find(|index| index.index().definition.column == column).cloned()
    };
    by.expr().iter().map(|(expr, _)| index_of(expr)).collect()
}

impl GroupColumn {
    /// The group column of an index.
    pub(super) fn new(index: &BitmapReader) -> Self {
        let all = Predicate::Range(Bound::Unbounded, Bound::Unbounded);
        let keys: Vec<Key> = index.counts(all).into_iter().map(|(key, _)| key).collect();
        Self { index: index.clone(), vectors: Shared::new(keys.len()), keys }
    }

    /// The values' bitvectors, which the threads of a query make together.
    pub(super) fn vectors(&self) -> impl Iterator<Item = &Bitvector> {
        self.vectors.all(|value| self.index.query(Predicate::Equals(&self.keys[value])))
    }

    /// Combinations of values.
    pub(super) fn combinations(columns: &[Self]) -> usize {
        columns.iter().map(|column| column.keys.len()).product()
    }

    /// The columns' values in each of these groups.
    pub(super) fn values(columns: &[Self], groups: &[usize]) -> Vec<ArrayRef> {
        let mut stride = 1;
        let mut arrays = Vec::new();
        for column in columns {
            let index = column.index.index();
            let values: Vec<_> = column.keys.iter().map(|key| index.value(key)).collect();
            let of_groups: Vec<_> =
                groups.iter().map(|number| values[number / stride % values.len()].clone()).collect();
            arrays.push(array_of(&of_groups, index.column_type));
            stride *= values.len();
        }
        arrays
    }

    /// Calls `f` with each group that has `wanted` rows in a block, and with these rows as bits.
    pub(super) fn for_each_group(columns: &[Self], block: BlockNo, wanted: &[u64], mut f: impl FnMut(usize, &[u64])) {
        fn combine(
            columns: &[GroupColumn],
            block: BlockNo,
            (group, stride): (usize, usize),
            rows: &[u64],
            f: &mut impl FnMut(usize, &[u64]),
        ) {
            let Some((column, rest)) = columns.split_first() else { return f(group, rows) };
            for (value, vector) in column.vectors().enumerate() {
                let Some(container) = vector.block(block) else { continue };
                let mut words = Words::default();
                container.or_into(&mut words);
                let both: Vec<u64> = rows.iter().zip(words.words()).map(|(a, b)| a & b).collect();
                if both.iter().any(|word| *word != 0) {
                    combine(rest, block, (group + value * stride, stride * column.keys.len()), &both, f);
                }
            }
        }
        combine(columns, block, (0, 1), wanted, &mut f);
    }
}

/// Group numbers of the rows of a block, by slot.
#[derive(Debug, Default)]
pub(super) struct BlockGroups {
    block: Option<BlockNo>,
    numbers: Vec<u32>,
}

impl BlockGroups {
    /// Makes the numbers those of `block`.
    pub(super) fn load(&mut self, block: BlockNo, columns: &[GroupColumn]) {
        if self.block == Some(block) {
            return;
        }
        self.block = Some(block);
        self.numbers.clear();
        let mut stride = 1;
        for column in columns {
            for (value, vector) in column.vectors().enumerate() {
                let Some(container) = vector.block(block) else { continue };
                let add = value as u32 * stride;
                // The first column sees every slot that has a row.
                container.for_each(|slot| {
                    let slot = usize::from(slot);
                    if slot >= self.numbers.len() {
                        self.numbers.resize(slot + 1, 0);
                    }
                    self.numbers[slot] += add;
                });
            }
            stride *= column.keys.len() as u32;
        }
    }

    /// The number of a row of the block.
    pub(super) fn number(&self, slot: Slot) -> u32 {
        self.numbers[slot.0 as usize]
    }
}
