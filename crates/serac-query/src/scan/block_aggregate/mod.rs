//! `BlockAggregateExec`: an aggregation over a scan, block by block, without batches in between.
//!
//! Sums, averages, counts and extremes of integers and decimals of at most 18 digits are computed
//! on the blocks' 64-bit integers, in place of DataFusion's 128-bit decimals
//! ([`serac_operators::arithmetic`], [`serac_operators::aggregate`]). Rows are grouped
//!
//! - by nothing;
//! - by indexed columns with few values (the CUBIT aggregate of the CUBIT paper, §F). The rows of a
//!   combination of values are the intersection of the values' bitvectors and the filter's, and
//!   values are added under that mask. More combinations, or few rows, are group numbers by slot;
//! - by one column of integers or dates that lie close together: the value less the smallest is the
//!   group's number. Nothing is hashed;
//! - by the values of columns that have few ([`values`]).
//!
//! A task for each partition of the scan shares its blocks. Each has its own groups, if there is
//! memory for that, and they are merged as they are read. Conditions on the outcome (HAVING) are
//! tested before it becomes rows. The outcome is final: it replaces both steps of DataFusion's
//! aggregation and the distribution of rows between them. [`BlockAggregation`] decides where.
//!
//! Samples may miss most of the values. If many rows or groups are not among those that were
//! expected, or the memory is too small, the computation ends, and DataFusion's aggregation begins
//! with the first block.

mod program;
mod rule;
mod values;
mod worker;

pub use rule::BlockAggregation;

use super::exec::{BlockScan, SeracScanExec, SessionScans};
use super::group_columns::GroupColumn;
use super::plan::{properties, replace_nodes};
use datafusion::arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Float64Array, Int16Array, Int32Array, Int64Array, RecordBatch,
    RecordBatchOptions, UInt64Array,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{EmitTo, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::execution_plan::{EmissionType, reset_plan_states};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::future::{BoxFuture, FutureExt, Shared};
use futures::{StreamExt, TryStreamExt};
use program::Compiled;
use serac_engine::table::bitmap::BitmapReader;
use serac_operators::aggregate::{Groups, Merged, States};
use serac_storage::{ColumnForm, ColumnType};
use serac_values::SqlError;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use values::SharedNumbers;
use worker::{Outside, Worker, overflow};

/// Bytes of groups that all tasks together may have, so that each has its own; with more they share
/// them.
const OWN_BYTES: usize = 1 << 28;
/// Groups by values that are expected at the most.
const FEW_GROUPS: usize = 1_024;
/// Blocks after which a task gives way to others.
const BLOCKS_PER_TURN: usize = 16;

/// The grouping of rows.
#[derive(Clone, Debug)]
enum Grouping {
    Nothing,
    /// By the values of indexed columns.
    Bitmaps(Vec<BitmapReader>),
    /// By a column's values, most of which are expected among `len` numbers from `first` on.
    Keys {
        column: usize,
        first: i64,
        len: usize,
    },
    /// By the values of columns of the table, of which the most that are expected have numbers
    /// below `len`.
    Values {
        columns: Vec<(usize, ColumnForm)>,
        len: usize,
    },
}

/// An output column, behind those of the groups.
#[derive(Clone, Debug)]
enum Output {
    Rows,
    Count(usize),
    /// A sum, and the count of its values if they may be NULL.
    Sum(usize, Option<usize>),
    Extreme(usize, Option<usize>),
    /// An average of a sum and a count, divided as DataFusion does.
    Average(usize, Option<usize>, Arc<AggregateFunctionExpr>),
}

/// A condition on an output that is never NULL.
#[derive(Clone, Debug)]
struct Having {
    output: usize,
    operator: Operator,
    bound: i128,
    text: String,
}

impl Having {
    fn holds(&self, value: i128) -> bool {
        match self.operator {
            Operator::Gt => value > self.bound,
            Operator::GtEq => value >= self.bound,
            Operator::Lt => value < self.bound,
            Operator::LtEq => value <= self.bound,
            _ => value == self.bound,
        }
    }
}

/// The plan of the computation.
#[derive(Debug)]
struct Plan {
    grouping: Grouping,
    compiled: Compiled,
    states: States,
    outputs: Vec<Output>,
    schema: SchemaRef,
}

/// The groups of a whole table.
#[derive(Debug)]
struct Outcome {
    groups: Merged,
    /// Groups with keys outside the expected range, or with more numbers than expected.
    outside: Option<(Vec<i64>, Merged)>,
    columns: Arc<[GroupColumn]>,
    numbers: Option<Arc<SharedNumbers>>,
    _memory: MemoryReservation,
}

/// `None` if it has ended early.
type Running = Shared<BoxFuture<'static, Result<Option<Arc<Outcome>>, Arc<DataFusionError>>>>;

/// Aggregates the rows of a scan; see the module.
#[derive(Debug)]
pub struct BlockAggregateExec {
    scan: Arc<dyn ExecutionPlan>,
    plan: Arc<Plan>,
    /// The conditions of a filter above: groups for which they do not hold need not become rows.
    having: Vec<Having>,
    /// The aggregation that begins where this one ends early; `None` where it never does.
    otherwise: Option<Arc<dyn ExecutionPlan>>,
    /// Begun by the partition that is asked first.
    running: Arc<OnceLock<Running>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

fn without_numbers() -> DataFusionError {
    DataFusionError::Internal("groups by values have lost their numbers".into())
}

fn is_short_of_memory(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

fn shared_error(error: &Arc<DataFusionError>) -> DataFusionError {
    DataFusionError::Shared(error.clone())
}

impl BlockAggregateExec {
    fn new(
        scan: Arc<dyn ExecutionPlan>,
        plan: Plan,
        otherwise: Option<Arc<dyn ExecutionPlan>>,
        partitions: usize,
    ) -> Self {
        Self {
            properties: properties(plan.schema.clone(), partitions, EmissionType::Final),
            scan,
            otherwise,
            plan: Arc::new(plan),
            having: Vec::new(),
            running: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// Whether another plan comes to the same groups and numbers.
    fn computes_the_same(&self, other: &Self) -> bool {
        let same_groups = match (&self.plan.grouping, &other.plan.grouping) {
            (Grouping::Nothing, Grouping::Nothing) => true,
            (Grouping::Bitmaps(a), Grouping::Bitmaps(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a.index(), b.index()))
            }
            (
                Grouping::Keys { column: a, first, len },
                Grouping::Keys { column: b, first: other_first, len: other_len },
            ) => (a, first, len) == (b, other_first, other_len),
            (Grouping::Values { columns: a, .. }, Grouping::Values { columns: b, .. }) => a == b,
            _ => false,
        };
        let scans = (self.scan(), other.scan());
        same_groups
            && self.plan.compiled == other.plan.compiled
            && self.plan.states == other.plan.states
            && matches!(scans, (Ok(a), Ok(b)) if a.finds_the_same(b))
    }

    /// The aggregation, with the computation of another that computes the same.
    fn sharing(&self, other: &Self) -> Self {
        Self {
            scan: self.scan.clone(),
            plan: self.plan.clone(),
            having: self.having.clone(),
            otherwise: self.otherwise.clone(),
            running: other.running.clone(),
            properties: self.properties.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    fn scan(&self) -> Result<&SeracScanExec> {
        let scan = SeracScanExec::find(&self.scan);
        scan.ok_or_else(|| DataFusionError::Internal("the aggregation of blocks has lost its scan".into()))
    }

    /// The computation, as tasks of their own: the tasks end even if a partition of the output is
    /// never read.
    fn run(&self, context: &TaskContext) -> Result<Running> {
        let (scan, plan) = (self.scan()?.clone(), self.plan.clone());
        let reservation = MemoryConsumer::new("BlockAggregate").register(context.memory_pool());
        let numbers = match &self.plan.grouping {
            Grouping::Values { columns, .. } => {
                let memory = MemoryConsumer::new("BlockAggregate").register(context.memory_pool());
                Some(Arc::new(SharedNumbers::new(columns.len(), memory)))
            }
            _ => None,
        };
        let (metrics, session) = (self.metrics.clone(), SessionScans::of(context));
        let handed_over = self.otherwise.is_some().then(|| MetricBuilder::new(&metrics).global_counter("handed_over"));
        let hands_over = handed_over.is_some();
        let run = async move {
            let columns: Arc<[GroupColumn]> = match &plan.grouping {
                Grouping::Bitmaps(indexes) => indexes.iter().map(GroupColumn::new).collect(),
                _ => Arc::from([]),
            };
            let len = plan.group_count(&columns);
            let workers = scan.partitions();
            let bytes = len * plan.states.words() * 8;
            // Memory that a task does not write takes no pages, but it may take them later.
            let shared = workers * bytes > OWN_BYTES || reservation.try_grow(workers * bytes).is_err();
            if shared {
                reservation.try_grow(bytes)?;
            }
            let make = || Arc::new(Groups::new(len, &plan.states, shared && workers > 1));
            let first = make();
            let outside = Arc::new(Outside::default());
            let has_failed = Arc::new(AtomicBool::new(false));
            let task = |partition: usize| {
                let (outside, has_failed) = (outside.clone(), has_failed.clone());
                let groups = if shared || partition == 0 { first.clone() } else { make() };
                let mut blocks = BlockScan::new(&scan, partition, session.clone())?;
                let mut worker =
                    Worker::new(plan.clone(), columns.clone(), groups.clone(), outside.clone(), numbers.clone());
                let time = MetricBuilder::new(&metrics).elapsed_compute(partition);
                Ok::<_, DataFusionError>(async move {
                    loop {
                        let timer = time.timer();
                        for _ in 0..BLOCKS_PER_TURN {
                            if blocks.gives_way() {
                                break;
                            }
                            let Some(no) = blocks.next() else { return Ok(groups) };
                            // Relaxed: the flag saves work and tells nothing else.
                            worker.add(&mut blocks, no).inspect_err(|_| has_failed.store(true, Ordering::Relaxed))?;
                            if has_failed.load(Ordering::Relaxed) || hands_over && outside.is_large() {
                                return Ok(groups);
                            }
                        }
                        drop(timer);
                        tokio::task::yield_now().await;
                    }
                })
            };
            let mut others: Vec<SpawnedTask<Result<Arc<Groups>>>> = Vec::new();
            for partition in 1..workers {
                others.push(SpawnedTask::spawn(task(partition)?));
            }
            let mut parts = vec![task(0)?.await];
            for other in others {
                parts.push(other.join_unwind().await.map_err(|e| DataFusionError::External(Box::new(e)))?);
            }
            // All tasks have ended, so that their memory is free for who takes over.
            let parts = parts.into_iter().collect::<Result<Vec<_>>>()?;
            drop(first);
            if hands_over && outside.is_large() {
                return Ok(None);
            }
            // The last holder of shared groups reads them.
            let groups = Merged::new(parts.into_iter().filter_map(Arc::into_inner).collect());
            let outside = Arc::into_inner(outside).and_then(|outside| outside.into_groups(&plan.states));
            Ok(Some(Arc::new(Outcome { groups, outside, columns, numbers, _memory: reservation })))
        };
        let ended = move |outcome: Result<_>| {
            let outcome = match outcome {
                Err(error) if handed_over.is_some() && is_short_of_memory(&error) => None,
                outcome => outcome?,
            };
            if let (None, Some(handed_over)) = (&outcome, handed_over) {
                handed_over.add(1);
            }
            Ok(outcome)
        };
        Ok(run.map(|outcome| ended(outcome).map_err(Arc::new)).boxed().shared())
    }
}

impl Plan {
    /// The number of groups with numbers. For keys, one for NULL and one for rows outside the range
    /// follow those of the range. For values, one for rows with other numbers.
    fn group_count(&self, columns: &[GroupColumn]) -> usize {
        match &self.grouping {
            Grouping::Nothing => 1,
            Grouping::Bitmaps(_) => GroupColumn::combinations(columns),
            Grouping::Keys { len, .. } => len + 2,
            Grouping::Values { len, .. } => len + 1,
        }
    }

    /// The columns by which groups are told apart, of these groups.
    fn group_arrays(
        &self,
        outcome: &Outcome,
        numbers: &[usize],
        keys: impl Fn(usize) -> Option<i64>,
    ) -> Result<Vec<ArrayRef>> {
        Ok(match &self.grouping {
            Grouping::Nothing => Vec::new(),
            Grouping::Bitmaps(_) => GroupColumn::values(&outcome.columns, numbers),
            Grouping::Values { columns, .. } => {
                let Some(values) = &outcome.numbers else { return Err(without_numbers()) };
                let numbers: Vec<usize> =
                    numbers.iter().filter_map(|&number| keys(number)).map(|n| n as usize).collect();
                let types: Vec<&DataType> =
                    self.schema.fields().iter().take(columns.len()).map(|f| f.data_type()).collect();
                values.arrays(&numbers, &types)?
            }
            Grouping::Keys { .. } => {
                let keys = numbers.iter().map(|&number| keys(number));
                vec![match self.schema.field(0).data_type() {
                    DataType::Int16 => Arc::new(keys.map(|k| k.map(|k| k as i16)).collect::<Int16Array>()) as ArrayRef,
                    DataType::Int32 => Arc::new(keys.map(|k| k.map(|k| k as i32)).collect::<Int32Array>()),
                    DataType::Date32 => Arc::new(keys.map(|k| k.map(|k| k as i32)).collect::<Date32Array>()),
                    _ => Arc::new(keys.collect::<Int64Array>()),
                }]
            }
        })
    }

    fn batch(&self, groups: &Merged, numbers: &[usize], mut arrays: Vec<ArrayRef>) -> Result<RecordBatch> {
        let counts = |count: Option<usize>| -> Vec<u64> {
            let count = |&group: &usize| count.map_or_else(|| groups.rows(group), |count| groups.count(count, group));
            numbers.iter().map(count).collect()
        };
        // A group without a value has no sum. Every group has a row, but for that of an aggregation
        // without GROUP BY, which may be empty.
        let present = |count: Option<usize>| {
            let known = count.is_none() && !matches!(self.grouping, Grouping::Nothing);
            let counts = if known { Vec::new() } else { counts(count) };
            counts.contains(&0).then(|| NullBuffer::from_iter(counts.iter().map(|&count| count > 0)))
        };
        for output in &self.outputs {
            let data_type = self.schema.field(arrays.len()).data_type();
            arrays.push(match output {
                Output::Rows => Arc::new(Int64Array::from_iter_values(counts(None).into_iter().map(|n| n as i64))),
                Output::Count(count) => {
                    Arc::new(Int64Array::from_iter_values(counts(Some(*count)).into_iter().map(|n| n as i64)))
                }
                Output::Sum(sum, count) => {
                    let sums = groups.sums(*sum, numbers).map_err(overflow)?;
                    number_array(sums, present(*count), data_type)?
                }
                Output::Extreme(extreme, count) => {
                    let values = numbers.iter().map(|&group| groups.extreme(*extreme, group).into()).collect();
                    number_array(values, present(*count), data_type)?
                }
                Output::Average(sum, count, aggregate) => {
                    let state = aggregate.state_fields()?;
                    let counts = counts(*count);
                    let present = present(*count);
                    let sums = groups.sums(*sum, numbers).map_err(overflow)?;
                    // An average may have fewer digits than its sum.
                    let sums: ArrayRef = match state[1].data_type() {
                        decimal @ DataType::Decimal128(..) => {
                            Arc::new(Decimal128Array::new(sums.into(), present.clone()).with_data_type(decimal.clone()))
                        }
                        other => number_array(sums, present.clone(), other)?,
                    };
                    let mut accumulator = aggregate.create_groups_accumulator()?;
                    let all: Vec<usize> = (0..numbers.len()).collect();
                    let counts: ArrayRef = Arc::new(UInt64Array::new(counts.into(), present));
                    // There is no carry in 128 bits.
                    let carries: Option<ArrayRef> =
                        (state.len() == 3).then(|| Arc::new(Int64Array::from(vec![0; numbers.len()])) as ArrayRef);
                    let states: Vec<ArrayRef> = [counts, sums].into_iter().chain(carries).collect();
                    accumulator.merge_batch(&states, &all, numbers.len())?;
                    accumulator.evaluate(EmitTo::All)?
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(numbers.len()));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?)
    }

    /// Leaves out the groups for which a condition does not hold.
    fn retain(&self, groups: &Merged, numbers: &mut Vec<usize>, having: &Having) -> Result<()> {
        let values = match self.outputs[having.output] {
            Output::Sum(sum, None) => groups.sums(sum, numbers).map_err(overflow)?,
            Output::Rows => numbers.iter().map(|&group| groups.rows(group).into()).collect(),
            // Other columns have no conditions.
            _ => return Ok(()),
        };
        let mut values = values.into_iter();
        numbers.retain(|_| values.next().is_some_and(|value| having.holds(value)));
        Ok(())
    }

    /// A part of the groups' numbers, as rows; the last part has the keys outside the range, too.
    fn part(&self, outcome: &Outcome, having: &[Having], part: usize, parts: usize) -> Result<Vec<Vec<usize>>> {
        let len = match &self.grouping {
            // Without groups there is one row, even for an empty input.
            Grouping::Nothing => return Ok(if part == 0 { vec![vec![0]] } else { Vec::new() }),
            Grouping::Bitmaps(_) => outcome.groups.len(),
            Grouping::Keys { len, .. } => len + 1,
            Grouping::Values { len, .. } => *len,
        };
        let cut = |part: usize| (len as u128 * part as u128 / parts as u128) as usize;
        let met = outcome.groups.met(cut(part)..cut(part + 1));
        if having.is_empty() {
            return Ok(met.chunks(BATCH_ROWS).map(<[usize]>::to_vec).collect());
        }
        let mut wanted = Vec::new();
        for numbers in met.chunks(BATCH_ROWS) {
            let mut numbers = numbers.to_vec();
            having.iter().try_for_each(|having| self.retain(&outcome.groups, &mut numbers, having))?;
            wanted.append(&mut numbers);
        }
        Ok(wanted.chunks(BATCH_ROWS).map(<[usize]>::to_vec).collect())
    }
}

/// Rows of a batch of groups.
const BATCH_ROWS: usize = 8_192;

/// Numbers in a type that sums and extremes have.
fn number_array(values: Vec<i128>, nulls: Option<NullBuffer>, data_type: &DataType) -> Result<ArrayRef> {
    if let DataType::Decimal128(precision, scale) = *data_type {
        let most = 10i128.pow(precision.into());
        // The result of a group without values has no meaning.
        let is_there = |at: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(at));
        let exceeds = |(at, value): (usize, &i128)| is_there(at) && value.unsigned_abs() >= most.unsigned_abs();
        if values.iter().enumerate().any(exceeds) {
            return Err(SqlError::out_of_range(ColumnType::Decimal { precision, scale }).external());
        }
        return Ok(Arc::new(Decimal128Array::new(values.into(), nulls).with_data_type(data_type.clone())));
    }
    if *data_type == DataType::Float64 {
        return Ok(Arc::new(Float64Array::new(values.into_iter().map(|v| v as f64).collect(), nulls)));
    }
    let narrow: Result<Vec<i64>, _> = values.into_iter().map(i64::try_from).collect();
    let narrow = narrow.map_err(|_| SqlError::out_of_range(ColumnType::Int64).external())?;
    let narrow = Int64Array::new(narrow.into(), nulls);
    Ok(match data_type {
        DataType::Int64 => Arc::new(narrow),
        // Extremes of narrower columns.
        DataType::Int16 | DataType::Int32 => cast(&narrow, data_type)?,
        DataType::Date32 => cast(&cast(&narrow, &DataType::Int32)?, data_type)?,
        _ => cast(&narrow, data_type)?,
    })
}

impl DisplayAs for BlockAggregateExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: by=[", self.name())?;
        match &self.plan.grouping {
            Grouping::Nothing => {}
            Grouping::Bitmaps(indexes) => {
                let names: Vec<_> = indexes.iter().map(|index| index.index().definition.name.as_str()).collect();
                f.write_str(&names.join(", "))?;
            }
            Grouping::Keys { first, len, .. } => {
                write!(f, "{}: about {} to {}", self.plan.schema.field(0).name(), first, first + *len as i64 - 1)?;
            }
            Grouping::Values { columns, .. } => {
                let fields = self.plan.schema.fields().iter().take(columns.len());
                let names: Vec<_> = fields.map(|field| field.name().as_str()).collect();
                f.write_str(&names.join(", "))?;
            }
        }
        let aggregates =
            self.plan.schema.fields().iter().skip(self.plan.schema.fields().len() - self.plan.outputs.len());
        let aggregates: Vec<_> = aggregates.map(|field| field.name().as_str()).collect();
        write!(f, "], aggregates=[{}]", aggregates.join(", "))?;
        if !self.having.is_empty() {
            let having: Vec<_> = self.having.iter().map(|having| having.text.as_str()).collect();
            write!(f, ", having=[{}]", having.join(", "))?;
        }
        Ok(())
    }
}

impl ExecutionPlan for BlockAggregateExec {
    fn name(&self) -> &str {
        if matches!(self.plan.grouping, Grouping::Bitmaps(_)) { "CubitAggregateExec" } else { "BlockAggregateExec" }
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.scan]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let scan = children[0].clone();
        let over_scan = |plan: &Arc<dyn ExecutionPlan>| {
            reset_plan_states(replace_nodes(plan.clone(), |_: &SeracScanExec| Ok(Some(scan.clone())))?)
        };
        Ok(Arc::new(Self {
            otherwise: self.otherwise.as_ref().map(over_scan).transpose()?,
            scan,
            plan: self.plan.clone(),
            having: self.having.clone(),
            running: Arc::default(),
            properties: self.properties.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let running = match self.running.get() {
            Some(running) => running.clone(),
            None => {
                let running = self.run(&context)?;
                self.running.get_or_init(|| running).clone()
            }
        };
        let (plan, parts, schema) = (self.plan.clone(), self.properties.partitioning.partition_count(), self.schema());
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let (having, otherwise) = (self.having.clone(), self.otherwise.clone());
        let batches = futures::stream::once(async move {
            let Some(outcome) = running.await.map_err(|error| shared_error(&error))? else {
                let otherwise = otherwise.ok_or_else(|| DataFusionError::Internal("no other aggregation".into()))?;
                let batches = otherwise.execute(partition, context)?.inspect_ok(move |batch| {
                    baseline.record_output(batch.num_rows());
                });
                return Ok(batches.boxed());
            };
            let mut outside = partition + 1 == parts && outcome.outside.is_some();
            let mut numbers = plan.part(&outcome, &having, partition, parts)?.into_iter();
            let batches = std::iter::from_fn(move || {
                let batch = match numbers.next() {
                    Some(numbers) => {
                        let key = |number: usize| match plan.grouping {
                            Grouping::Keys { first, len, .. } => (number < len).then(|| first + number as i64),
                            _ => Some(number as i64),
                        };
                        let arrays = plan.group_arrays(&outcome, &numbers, key);
                        arrays.and_then(|arrays| plan.batch(&outcome.groups, &numbers, arrays))
                    }
                    None if outside => {
                        outside = false;
                        let (keys, groups) = outcome.outside.as_ref()?;
                        let all: Vec<usize> = (0..keys.len()).collect();
                        let arrays = plan.group_arrays(&outcome, &all, |number| Some(keys[number]));
                        arrays.and_then(|arrays| plan.batch(groups, &all, arrays))
                    }
                    None => return None,
                };
                batch.iter().for_each(|batch| baseline.record_output(batch.num_rows()));
                Some(batch)
            });
            Ok::<_, DataFusionError>(futures::stream::iter(batches).boxed())
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches.try_flatten())))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, _: Option<usize>) -> Result<Arc<Statistics>> {
        let rows = match &self.plan.grouping {
            Grouping::Nothing => Precision::Exact(1),
            Grouping::Bitmaps(indexes) => {
                Precision::Inexact(indexes.iter().map(|index| index.index().entries.value_count() as usize).product())
            }
            Grouping::Values { .. } => Precision::Inexact(FEW_GROUPS),
            Grouping::Keys { len, .. } => Precision::Inexact(
                self.scan().map_or(*len, |scan| len.min(&(scan.estimated_rows() as usize)).to_owned()),
            ),
        };
        Ok(Arc::new(Statistics { num_rows: rows, ..Statistics::new_unknown(&self.schema()) }))
    }
}
