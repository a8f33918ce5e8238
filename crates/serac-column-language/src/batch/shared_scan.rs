//! Several selects on one column in one pass.

use crate::column::{ascending, represent};
use crate::error::{OperatorError, Result};
use crate::settings::{BatchHeuristic, Multiselect, Settings, Switch};
use crate::snapshot::{Column, Snapshot, push_visible};
use crate::statement::Bounds;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int16Type, Int32Type, Int64Type};
use arrow_array::{Array, Int64Array};
use serac_operators::multiselect::{
    self, Algorithm, Append, BlockSource, Inverse, MultiselectSettings, Slices, UseBlock, multiselect,
};
use serac_operators::range_words::RangeValue;
use serac_operators::selection::{Runs, Selection};
use serac_storage::{BlockNo, ColumnType};
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The blocks of a column of which the snapshot sees rows.
struct ColumnBlocks<'c, A> {
    snapshot: &'c Snapshot,
    column: &'c Column<'c>,
    blocks: Vec<ColumnBlock>,
    arrow: PhantomData<fn() -> A>,
}

struct ColumnBlock {
    no: BlockNo,
    rows: usize,
    zone: Option<RangeInclusive<i64>>,
}

impl<A> BlockSource<A::Native, OperatorError> for ColumnBlocks<'_, A>
where
    A: ArrowPrimitiveType,
{
    fn blocks(&self) -> usize {
        self.blocks.len()
    }

    fn rows(&self, block: usize) -> usize {
        self.blocks[block].rows
    }

    fn read(&self, block: usize, use_block: UseBlock<'_, A::Native>) -> Result<()> {
        self.snapshot.check()?;
        let no = self.blocks[block].no;
        let Some(mut reader) = self.column.data().read_block(self.snapshot.storage(), no) else {
            // The rows are pinned, and a snapshot sees the same rows at any time.
            return Err(OperatorError::RowDeleted);
        };
        let visible = reader.visible().clone();
        let array = &reader.columns(&[self.column.scanned()], &visible)?[0];
        let array = array.as_primitive::<A>();
        use_block(array.values(), array.nulls());
        Ok(())
    }

    fn zone(&self, block: usize) -> Option<RangeInclusive<i64>> {
        self.blocks[block].zone.clone()
    }
}

/// The settings of a multiselect, from a client's settings.
fn settings_of(settings: &Settings) -> MultiselectSettings {
    let smart = settings.batch_heuristic == BatchHeuristic::Smart;
    MultiselectSettings {
        threads: settings.threads as usize,
        append: match settings.multiselect {
            Multiselect::Block => Append::Block,
            Multiselect::NoBlock => Append::NoBlock,
            Multiselect::Auto if smart => Append::Auto,
            Multiselect::Auto => Append::NoBlock,
        },
        inverse: match settings.inverse {
            Switch::On => Inverse::On,
            Switch::Off => Inverse::Off,
            Switch::Auto => Inverse::Auto,
        },
        algorithm: if smart { Algorithm::Auto } else { Algorithm::Compare },
        chunk_bytes: settings.chunk_kib as usize * 1024,
        selects_per_task: settings.selects_per_task as usize,
        ..MultiselectSettings::default()
    }
}

fn predicates(bounds: &[Bounds]) -> Vec<multiselect::Bounds> {
    bounds.iter().map(|bounds| multiselect::Bounds { low: bounds.lower, high: bounds.upper }).collect()
}

fn evaluate<T: RangeValue>(
    snapshot: &Snapshot,
    source: &impl BlockSource<T, OperatorError>,
    base: &Arc<Runs>,
    bounds: &[Bounds],
) -> Result<Vec<Selection>> {
    let go_on = |bytes: u64| {
        snapshot.check()?;
        snapshot.memory().check(bytes)
    };
    let settings = settings_of(snapshot.settings());
    let selections = multiselect(source, base, &predicates(bounds), &settings, &go_on)?;
    // Rows that lie together are kept as ranges, as a select outside a batch keeps them.
    let smallest = |selection| match selection {
        Selection::List(rows) => ascending(rows),
        Selection::Bits { base, bits, .. } => represent(&base, bits, snapshot.settings()),
        Selection::Inverse { base, except } if except.is_empty() => Selection::Range(Runs::clone(&base)),
        other => other,
    };
    Ok(selections.into_iter().map(smallest).collect())
}

/// Whether selects on the column can be evaluated together.
pub(crate) fn takes(column: &Column<'_>) -> bool {
    matches!(column.column_type, ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64)
}

/// For each of the bounds, the rows of a column whose values lie within.
///
/// # Errors
/// A cancelled batch, memory, a damaged file.
pub(crate) fn select_column(snapshot: &Snapshot, column: &Column<'_>, bounds: &[Bounds]) -> Result<Vec<Selection>> {
    let (mut base, mut blocks) = (Runs::default(), Vec::new());
    snapshot.for_each_block(column.data(), |reader| {
        push_visible(&mut base, &reader);
        snapshot.memory().check(base.bytes() as u64)?;
        let zone = reader.zone(column.id()).map(|zone| zone.min..=zone.max);
        blocks.push(ColumnBlock { no: reader.block_no(), rows: reader.visible().len(), zone });
        Ok(())
    })?;
    let base = Arc::new(base);
    snapshot.note_visible(column.rows, &base);
    fn run<A: ArrowPrimitiveType<Native: RangeValue>>(
        snapshot: &Snapshot,
        column: &Column<'_>,
        blocks: Vec<ColumnBlock>,
        base: &Arc<Runs>,
        bounds: &[Bounds],
    ) -> Result<Vec<Selection>> {
        let source = ColumnBlocks::<A> { snapshot, column, blocks, arrow: PhantomData };
        evaluate(snapshot, &source, base, bounds)
    }
    match column.column_type {
        ColumnType::Int16 => run::<Int16Type>(snapshot, column, blocks, &base, bounds),
        ColumnType::Int32 => run::<Int32Type>(snapshot, column, blocks, &base, bounds),
        _ => run::<Int64Type>(snapshot, column, blocks, &base, bounds),
    }
}

/// For each of the bounds, the places in a vector whose values lie within.
///
/// # Errors
/// A cancelled batch, memory.
pub(crate) fn select_values(snapshot: &Snapshot, values: &Int64Array, bounds: &[Bounds]) -> Result<Vec<Selection>> {
    let mut base = Runs::default();
    base.push(0..values.len() as u64);
    let source = Slices(vec![(&values.values()[..], values.nulls())]);
    evaluate(snapshot, &source, &Arc::new(base), bounds)
}
