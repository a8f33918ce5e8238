//! The rule that decides which aggregations are computed on blocks.

use super::super::exec::SeracScanExec;
use super::super::group_columns::{column_of, indexes_of};
use super::super::plan::replace_nodes;
use super::program::{Compiled, Source};
use super::values::form_of;
use super::worker::MASKED_GROUPS;
use super::{BlockAggregateExec, FEW_GROUPS, Grouping, Having, Output, Plan};
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::{DataType, Date32Type, Int16Type, Int32Type, Int64Type, Schema};
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, Literal};
use datafusion::physical_expr::split_conjunction;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode, Partitioning};
use serac_engine::Table;
use serac_operators::aggregate::States;
use serac_storage::{BlockNo, ColumnForm, ColumnId, ScanColumn, Snapshot};
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

/// Combinations of indexed values at the most.
const MOST_COMBINATIONS: u64 = 1_024;
/// Group numbers by slot are written for whole blocks: at least one row in this many must be
/// wanted.
const MOST_ROWS_PER_WANTED: f64 = 8.0;
/// A range of keys may always have this many numbers, …
const SMALL_RANGE: u64 = 65_536;
/// … this many for each row that is expected, …
const NUMBERS_PER_ROW: f64 = 8.0;
/// … and never more than these.
const LARGEST_RANGE: u64 = 1 << 26;
/// If joins filter the rows, so that their number cannot be estimated, at most this many.
const LARGEST_RANGE_OF_JOINED: u64 = 1 << 20;
/// Columns by whose values rows are grouped at the most, …
const MOST_COLUMNS: usize = 8;
/// … and rows that are grouped so at least.
const FEWEST_ROWS: f64 = 16_384.0;
/// Blocks that are looked at to find how many values columns have, …
const BLOCKS_WITH_VALUES: u64 = 4;
/// … and rows of each.
const ROWS_WITH_VALUES: usize = 2_048;
/// A group must have this many of the sampled rows on the average.
const FEWEST_ROWS_OF_GROUP: usize = 4;
/// Groups by values with numbers of their own: far more than are expected, of which those that are
/// not there take no memory.
const NUMBERED_GROUPS: usize = 65_536;
/// Blocks that are looked at to find a column's range.
const SAMPLED_BLOCKS: u32 = 8;

/// Computes aggregations over scans block by block, if all aggregates are of numbers that it knows;
/// the header of `scan::block_aggregate` describes it. An aggregation that a query has twice (a
/// common table expression that is used twice) is computed once.
#[derive(Debug)]
pub struct BlockAggregation {
    /// The memory of the session's queries. If it is limited, a range of keys is used only if its
    /// groups take a small part of it.
    pub memory: Arc<dyn MemoryPool>,
}

impl PhysicalOptimizerRule for BlockAggregation {
    fn name(&self) -> &str {
        "block_aggregation"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = replace_nodes(plan, |aggregate| self.aggregated(aggregate))?;
        let known: RefCell<Vec<BlockAggregateExec>> = RefCell::default();
        let plan = replace_nodes(plan, |aggregate: &BlockAggregateExec| {
            let mut known = known.borrow_mut();
            let same = known.iter().find(|known| known.computes_the_same(aggregate));
            let sharing = same.map(|same| Arc::new(aggregate.sharing(same)) as _);
            if sharing.is_none() {
                known.push(aggregate.sharing(aggregate));
            }
            Ok(sharing)
        })?;
        let plan = replace_nodes(plan, filter_below)?;
        replace_nodes(plan, having_below)
    }
}

/// The conditions of HAVING that the aggregation can test itself, before groups become rows. The
/// filter stays: there may be more to it.
fn having_below(filter: &FilterExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(aggregate) = filter.input().downcast_ref::<BlockAggregateExec>() else { return Ok(None) };
    let conditions = split_conjunction(filter.predicate());
    let having: Vec<Having> = conditions.into_iter().filter_map(|condition| having_of(aggregate, condition)).collect();
    if having.is_empty() {
        return Ok(None);
    }
    let below = BlockAggregateExec { having, ..aggregate.sharing(aggregate) };
    Ok(Some(Arc::new(FilterExecBuilder::from(filter).with_input(Arc::new(below)).build()?)))
}

/// A sum or a number of rows that is compared with a constant of its type.
fn having_of(aggregate: &BlockAggregateExec, condition: &Arc<dyn PhysicalExpr>) -> Option<Having> {
    let comparison = condition.downcast_ref::<BinaryExpr>()?;
    let (column, operator, constant) = match comparison.left().downcast_ref::<Column>() {
        Some(column) => (column, *comparison.op(), comparison.right()),
        None => (comparison.right().downcast_ref()?, comparison.op().swap()?, comparison.left()),
    };
    let (plan, schema) = (&aggregate.plan, &aggregate.plan.schema);
    let groups = schema.fields().len() - plan.outputs.len();
    let output = column.index().checked_sub(groups)?;
    let bound = match (constant.downcast_ref::<Literal>()?.value(), schema.field(column.index()).data_type()) {
        (ScalarValue::Int64(Some(bound)), DataType::Int64) => i128::from(*bound),
        (ScalarValue::Decimal128(Some(bound), _, scale), DataType::Decimal128(_, of)) if scale == of => *bound,
        _ => return None,
    };
    let known = matches!(operator, Operator::Gt | Operator::GtEq | Operator::Lt | Operator::LtEq | Operator::Eq);
    let is_number = matches!(plan.outputs[output], Output::Rows | Output::Sum(_, None));
    // The only row of an aggregation without groups may have no sum.
    let has_groups = !matches!(plan.grouping, Grouping::Nothing);
    (known && is_number && has_groups).then(|| Having { output, operator, bound, text: condition.to_string() })
}

/// HAVING before the groups are dealt out: most go no further.
fn filter_below(filter: &FilterExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(dealt) = filter.input().downcast_ref::<RepartitionExec>() else { return Ok(None) };
    let Partitioning::Hash(keys, partitions) = dealt.partitioning() else { return Ok(None) };
    if dealt.input().downcast_ref::<BlockAggregateExec>().is_none() {
        return Ok(None);
    }
    let output_of = |at: usize| match filter.projection() {
        Some(projection) => projection.iter().position(|&kept| kept == at),
        None => Some(at),
    };
    let key = |key: &Arc<dyn PhysicalExpr>| -> Option<Arc<dyn PhysicalExpr>> {
        let column = key.downcast_ref::<Column>()?;
        Some(Arc::new(Column::new(column.name(), output_of(column.index())?)))
    };
    let Some(keys) = keys.iter().map(key).collect::<Option<Vec<_>>>() else { return Ok(None) };
    let below = Arc::new(FilterExecBuilder::from(filter).with_input(dealt.input().clone()).build()?);
    Ok(Some(Arc::new(RepartitionExec::try_new(below, Partitioning::Hash(keys, *partitions))?)))
}

/// The first step of an aggregation whose last step is given; the last step itself if there is only
/// one.
fn first_step(last: &AggregateExec) -> Option<&AggregateExec> {
    match last.mode() {
        AggregateMode::Single => Some(last),
        AggregateMode::Final | AggregateMode::FinalPartitioned => {
            let mut below = last.input();
            while below.downcast_ref::<RepartitionExec>().is_some()
                || below.downcast_ref::<CoalescePartitionsExec>().is_some()
            {
                below = below.children()[0];
            }
            below.downcast_ref::<AggregateExec>().filter(|first| *first.mode() == AggregateMode::Partial)
        }
        _ => None,
    }
}

fn is_plain(aggregate: &AggregateExec) -> bool {
    aggregate.limit_options().is_none()
        && aggregate.filter_expr().iter().all(Option::is_none)
        && !aggregate.group_expr().has_grouping_set()
        && *aggregate.input_order_mode() == InputOrderMode::Linear
}

/// The smallest and the largest value of a column in sampled blocks, widened a little.
fn sampled_range(table: &Table, snapshot: &Snapshot, column: usize) -> Option<(i64, i64)> {
    let blocks = table.data.block_count();
    let mut range: Option<(i64, i64)> = None;
    let sampled = blocks.min(SAMPLED_BLOCKS);
    for i in 0..sampled {
        // The first, the last, and blocks in between.
        let no = if sampled < 2 { 0 } else { u64::from(i) * u64::from(blocks - 1) / u64::from(sampled - 1) };
        let Some(mut reader) = table.data.read_block(snapshot, BlockNo(no as u32)) else { continue };
        let visible = reader.visible().clone();
        let array = reader.columns(&[ScanColumn::arrow(ColumnId(column as u16))], &visible).ok()?.remove(0);
        let mut note = |value: i64| {
            let (low, high) = range.unwrap_or((value, value));
            range = Some((low.min(value), high.max(value)));
        };
        match array.data_type() {
            DataType::Int16 => array.as_primitive::<Int16Type>().iter().flatten().for_each(|v| note(v.into())),
            DataType::Int32 => array.as_primitive::<Int32Type>().iter().flatten().for_each(|v| note(v.into())),
            DataType::Date32 => array.as_primitive::<Date32Type>().iter().flatten().for_each(|v| note(v.into())),
            DataType::Int64 => array.as_primitive::<Int64Type>().iter().flatten().for_each(note),
            _ => return None,
        }
    }
    let (low, high) = range?;
    let margin = (high.abs_diff(low) / 16 + 16) as i64;
    let lowest = if low >= 0 { 0 } else { i64::MIN };
    Some((low.saturating_sub(margin).max(lowest), high.saturating_add(margin)))
}

impl BlockAggregation {
    fn aggregated(&self, last: &AggregateExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(first) = first_step(last) else { return Ok(None) };
        if !is_plain(first) || !is_plain(last) {
            return Ok(None);
        }
        let projection = first.input().downcast_ref::<ProjectionExec>();
        let below = projection.map_or(first.input(), |projection| projection.input());
        let Some(scan) = SeracScanExec::find(below) else { return Ok(None) };
        if scan.fetch().is_some() {
            return Ok(None);
        }
        let source = Source { scan, projection };
        let mut compiled = Compiled::default();
        let Some(grouping) = self.grouping(first, &source, &mut compiled) else { return Ok(None) };
        let (schema, input) = (last.schema(), first.input().schema());
        let groups = first.group_expr().expr().len();
        let mut outputs = Vec::new();
        let mut smallest = Vec::new();
        for (i, aggregate) in first.aggr_expr().iter().enumerate() {
            let Some(output) = output_of(aggregate, &source, &input, &mut compiled, &mut smallest) else {
                return Ok(None);
            };
            if !fits(&output, schema.field(groups + i).data_type(), aggregate, &input) {
                return Ok(None);
            }
            outputs.push(output);
        }
        // With a grouping, a sum only needs to know that its group has rows, not how many.
        let counted = |output: &Output| matches!(output, Output::Rows | Output::Average(_, None, _));
        let states = States {
            rows: matches!(grouping, Grouping::Nothing) || outputs.iter().any(counted),
            counts: compiled.nullable.len(),
            sums: compiled.sums.len(),
            extremes: smallest,
        };
        if let (Grouping::Keys { len, .. } | Grouping::Values { len, .. }, MemoryLimit::Finite(limit)) =
            (&grouping, self.memory.memory_limit())
            && len * states.words() * 8 > limit / 8
        {
            return Ok(None);
        }
        let plan = Plan { grouping, compiled, states, outputs, schema };
        let partitions = last.properties().output_partitioning().partition_count();
        let scan: Arc<dyn ExecutionPlan> = Arc::new(scan.clone());
        // The groups of others are known beforehand.
        let may_end = matches!(plan.grouping, Grouping::Keys { .. } | Grouping::Values { .. });
        let otherwise = may_end.then(|| reset_plan_states(Arc::new(last.clone()))).transpose()?;
        let aggregate: Arc<dyn ExecutionPlan> = Arc::new(BlockAggregateExec::new(scan, plan, otherwise, partitions));
        Ok(Some(match last.properties().output_partitioning() {
            // Joins above may rely on it.
            Partitioning::Hash(keys, n) if *n > 1 => {
                Arc::new(RepartitionExec::try_new(aggregate, Partitioning::Hash(keys.clone(), *n))?)
            }
            _ => aggregate,
        }))
    }

    fn grouping(&self, first: &AggregateExec, source: &Source<'_>, compiled: &mut Compiled) -> Option<Grouping> {
        let (by, scan) = (first.group_expr(), source.scan);
        if by.is_empty() {
            return Some(Grouping::Nothing);
        }
        let indexes = indexes_of(by, source.projection, scan).filter(|indexes| {
            let combinations = indexes.iter().map(|index| index.index().entries.value_count().max(1));
            combinations.fold(1u64, u64::saturating_mul) <= MOST_COMBINATIONS
                && scan.estimated_rows() * MOST_ROWS_PER_WANTED >= indexes[0].row_count() as f64
        });
        let masked = |indexes: &Vec<_>| {
            let values = indexes
                .iter()
                .map(|index: &serac_engine::table::bitmap::BitmapReader| index.index().entries.value_count());
            values.product::<u64>() <= MASKED_GROUPS as u64
        };
        match indexes {
            Some(indexes) if masked(&indexes) => Some(Grouping::Bitmaps(indexes)),
            indexes => {
                let keys = self.keys(first, source, compiled);
                keys.or_else(|| indexes.map(Grouping::Bitmaps)).or_else(|| values(first, source))
            }
        }
    }

    /// Grouping by one column of integers that lie close together.
    fn keys(&self, first: &AggregateExec, source: &Source<'_>, compiled: &mut Compiled) -> Option<Grouping> {
        let ([(expr, _)], scan) = (first.group_expr().expr(), source.scan) else { return None };
        let key = column_of(expr, source.projection, scan)?;
        let data_type = scan.full_schema().field(key).data_type();
        if !matches!(data_type, DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Date32) {
            return None;
        }
        let (low, high) = sampled_range(scan.table(), scan.snapshot(), key)?;
        let len = high.abs_diff(low).checked_add(1)?;
        let largest = if scan.has_key_filters() { LARGEST_RANGE_OF_JOINED } else { LARGEST_RANGE };
        let close = len <= SMALL_RANGE || len as f64 <= scan.estimated_rows() * NUMBERS_PER_ROW;
        if !close || len > largest {
            return None;
        }
        let (column, _) = compiled.column(source, key)?;
        Some(Grouping::Keys { column, first: low, len: len as usize })
    }
}

/// Grouping by columns that have few values, as far as samples say.
fn values(first: &AggregateExec, source: &Source<'_>) -> Option<Grouping> {
    let (by, scan) = (first.group_expr().expr(), source.scan);
    if by.len() > MOST_COLUMNS || scan.estimated_rows() < FEWEST_ROWS {
        return None;
    }
    let schema = first.schema();
    let column = |(at, (expr, _)): (usize, &(Arc<dyn PhysicalExpr>, String))| {
        let column = column_of(expr, source.projection, scan)?;
        let column_type = scan.table().definition.columns.get(column)?.sql_type.column_type;
        Some((column, form_of(column_type, schema.field(at).data_type())?))
    };
    let columns: Vec<_> = by.iter().enumerate().map(column).collect::<Option<_>>()?;
    has_few(scan.table(), scan.snapshot(), &columns).then_some(Grouping::Values { columns, len: NUMBERED_GROUPS })
}

/// Whether columns seem to have few combinations of values: sampled blocks have few, and mostly the
/// same ones.
fn has_few(table: &Table, snapshot: &Snapshot, columns: &[(usize, ColumnForm)]) -> bool {
    let columns = columns.iter().map(|&(at, form)| ScanColumn { id: ColumnId(at as u16), form });
    let columns: Vec<ScanColumn> = columns.collect();
    let blocks = u64::from(table.data.block_count());
    let sampled = blocks.min(BLOCKS_WITH_VALUES);
    let (mut all, mut of_blocks, mut rows) = (HashSet::new(), 0, 0);
    for i in 0..sampled {
        let no = BlockNo(((2 * i + 1) * blocks / (2 * sampled)) as u32);
        let Some(mut reader) = table.data.read_block(snapshot, no) else { continue };
        let visible = reader.visible().clone().first(ROWS_WITH_VALUES);
        let Ok(arrays) = reader.columns(&columns, &visible) else { return false };
        let fields = arrays.iter().map(|array| SortField::new(array.data_type().clone())).collect();
        let Ok(keys) = RowConverter::new(fields).and_then(|converter| converter.convert_columns(&arrays)) else {
            return false;
        };
        let own: HashSet<OwnedRow> = keys.iter().map(|key| key.owned()).collect();
        of_blocks += own.len();
        rows += visible.len();
        all.extend(own);
    }
    let returns = sampled < 2 || all.len() * 10 <= of_blocks * 7;
    returns && all.len() <= FEW_GROUPS && all.len() * FEWEST_ROWS_OF_GROUP <= rows
}

/// The computation of an aggregate; `None` if it is not supported.
fn output_of(
    aggregate: &AggregateFunctionExpr,
    source: &Source<'_>,
    schema: &Schema,
    compiled: &mut Compiled,
    smallest: &mut Vec<bool>,
) -> Option<Output> {
    let arguments = aggregate.expressions();
    let ([argument], false, true) = (&arguments[..], aggregate.is_distinct(), aggregate.order_bys().is_empty()) else {
        return None;
    };
    match aggregate.fun().name() {
        "count" => {
            if argument.downcast_ref::<Literal>().is_some_and(|literal| !literal.value().is_null()) {
                return Some(Output::Rows);
            }
            if argument.downcast_ref::<Column>().is_some()
                && let Some(column) = column_of(argument, source.projection, source.scan)
                && !source.scan.table().definition.columns[column].nullable
            {
                return Some(Output::Rows);
            }
            let step = compiled.compile(argument, source, schema)?.step;
            Some(compiled.nullable_of(step, source).map_or(Output::Rows, Output::Count))
        }
        "sum" => {
            let step = compiled.compile(argument, source, schema)?.step;
            let (sum, count) = compiled.sum(step, source);
            Some(Output::Sum(sum, count))
        }
        "avg" => {
            // Integers are averaged as floating-point numbers; their sum is one only at the end.
            let summed = argument.downcast_ref::<CastExpr>().filter(|cast| *cast.cast_type() == DataType::Float64);
            let summed = summed.map(CastExpr::expr).filter(|inner| is_integer(inner, schema)).unwrap_or(argument);
            let step = compiled.compile(summed, source, schema)?.step;
            let (sum, count) = compiled.sum(step, source);
            Some(Output::Average(sum, count, Arc::new(aggregate.clone())))
        }
        name @ ("min" | "max") => {
            let step = compiled.compile(argument, source, schema)?.step;
            let column = compiled.program.column(step)?;
            let count = compiled.nullable_of(step, source);
            compiled.extremes.push((column, count));
            smallest.push(name == "min");
            Some(Output::Extreme(compiled.extremes.len() - 1, count))
        }
        _ => None,
    }
}

fn is_integer(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    let data_type = expr.data_type(schema);
    data_type.is_ok_and(|data_type| matches!(data_type, DataType::Int16 | DataType::Int32 | DataType::Int64))
}

/// Whether the output's numbers are those of its type.
fn fits(output: &Output, data_type: &DataType, aggregate: &AggregateFunctionExpr, schema: &Schema) -> bool {
    let argument = &aggregate.expressions()[0];
    let scale = |data_type: &DataType| match data_type {
        DataType::Decimal128(_, scale) => Some(*scale),
        _ => None,
    };
    let of_argument = argument.data_type(schema).ok().and_then(|data_type| scale(&data_type));
    match output {
        Output::Rows | Output::Count(_) => *data_type == DataType::Int64,
        // Integers add up to BIGINT, decimals keep their scale.
        Output::Sum(..) => *data_type == DataType::Int64 || (of_argument.is_some() && scale(data_type) == of_argument),
        Output::Extreme(..) => argument.data_type(schema).is_ok_and(|of_argument| of_argument == *data_type),
        Output::Average(..) => aggregate.state_fields().is_ok_and(|state| {
            aggregate.groups_accumulator_supported()
                && *state[0].data_type() == DataType::UInt64
                && match of_argument {
                    Some(_) => state.len() == 3 && scale(state[1].data_type()) == of_argument,
                    None => state.len() == 2 && *state[1].data_type() == DataType::Float64,
                }
        }),
    }
}
