//! Aggregates of whole partitions, by the accumulators that GROUP BY has.

use super::chunk::Chunk;
use datafusion::arrow::array::{Array, ArrayRef, UInt32Array};
use datafusion::arrow::compute::take;
use datafusion::common::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::GroupsAccumulatorAdapter;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use std::sync::Arc;

/// Rows that an accumulator takes at once.
const ROWS_AT_ONCE: usize = 1 << 16;

/// The number of each row's partition in a chunk.
pub(super) fn partition_numbers(chunk: &Chunk) -> Vec<usize> {
    let mut numbers = Vec::with_capacity(chunk.rows);
    chunk.partitions().enumerate().for_each(|(number, rows)| numbers.resize(rows.end, number));
    numbers
}

/// The aggregate of each row's partition.
pub(super) fn of_partitions(
    chunk: &Chunk,
    numbers: &[usize],
    aggregate: &Arc<AggregateFunctionExpr>,
    values: &[&ArrayRef],
) -> Result<ArrayRef> {
    let mut groups: Box<dyn GroupsAccumulator> = match aggregate.groups_accumulator_supported() {
        true => aggregate.create_groups_accumulator()?,
        false => {
            let aggregate = aggregate.clone();
            Box::new(GroupsAccumulatorAdapter::new(move || aggregate.create_accumulator()))
        }
    };
    let partitions = chunk.partition_count();
    for from in (0..chunk.rows).step_by(ROWS_AT_ONCE) {
        let rows = ROWS_AT_ONCE.min(chunk.rows - from);
        let values: Vec<ArrayRef> = values.iter().map(|column| column.slice(from, rows)).collect();
        groups.update_batch(&values, &numbers[from..from + rows], None, partitions)?;
    }
    let results = groups.evaluate(EmitTo::All)?;
    let rows = UInt32Array::from_iter_values(numbers.iter().map(|number| *number as u32));
    Ok(take(results.as_ref(), &rows, None)?)
}
