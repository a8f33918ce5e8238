//! What a Flight server makes of a table's rows for its clients: groups with aggregates, or the
//! first rows in an order ([`serac_client::flight::Summary`]).
//!
//! The operators are DataFusion's, over the scan that the client would get otherwise. They count
//! their memory among that of queries, and spill. A summary has the same rows in the same order
//! every time, so that a client goes on where a stream has broken: groups are sorted, and rows have
//! their number as the last sort key.

use crate::database::SqlDatabase;
use crate::error::{Result, SqlError};
use crate::work_memory::WorkMemory;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::functions_aggregate::{count::count_udaf, min_max::max_udaf, min_max::min_udaf, sum::sum_udaf};
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::{CastExpr, Column, lit};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionConfig;
use futures::{Stream, StreamExt};
use serac_client::flight::{Aggregate, AggregateFunction, AggregateName, Summary, Top};
use serac_engine::ArrowScan;
use serac_remote::{SHORT_DIGITS, is_exact};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time after which a scan lets other work of its thread go on, and notices that nobody wants
/// its rows any more.
const TURN: Duration = Duration::from_millis(5);

fn refused(message: String) -> SqlError {
    SqlError::new(sqlstate::DATATYPE_MISMATCH, message)
}

fn has_extremes(field: &Field) -> bool {
    is_exact(field) && !matches!(field.data_type(), DataType::Boolean | DataType::FixedSizeBinary(_))
}

/// The type of the sum of a column's values, and of the values while they are added.
fn sum_of(field: &Field) -> Option<DataType> {
    match field.data_type() {
        DataType::Int16 | DataType::Int32 | DataType::Int64 => Some(DataType::Decimal128(38, 0)),
        DataType::Decimal128(digits, scale) if *digits <= SHORT_DIGITS => Some(DataType::Decimal128(38, *scale)),
        DataType::Decimal128(_, scale) => Some(DataType::Decimal256(76, *scale)),
        _ => None,
    }
}

/// The place of a column and its field.
fn column_of<'s>(schema: &'s Schema, name: &str) -> Result<(usize, &'s FieldRef)> {
    schema.fields().find(name).ok_or_else(|| {
        SqlError::new(sqlstate::UNDEFINED_COLUMN, format!("column \"{name}\" is not one of the columns asked for"))
    })
}

/// The place of a column that has groups.
fn group_of<'s>(schema: &'s Schema, name: &str) -> Result<(usize, &'s FieldRef)> {
    let (at, field) = column_of(schema, name)?;
    match is_exact(field) {
        true => Ok((at, field)),
        false => Err(refused(format!(
            "column \"{name}\" has no groups and no order here: equal values of its type may differ"
        ))),
    }
}

/// The field of a function's values.
fn value_of(schema: &Schema, AggregateFunction(name, column): &AggregateFunction) -> Result<Field> {
    let Some(column) = column else {
        return match name {
            AggregateName::Count => Ok(Field::new("count", DataType::Int64, false)),
            _ => Err(refused(format!("{} needs a column", name.name()))),
        };
    };
    let (_, field) = column_of(schema, column)?;
    let shown = format!("{}({column})", name.name());
    let none = || refused(format!("there is no {} of the type of column \"{column}\"", name.name()));
    Ok(match name {
        AggregateName::Count => Field::new(shown, DataType::Int64, false),
        AggregateName::Sum => Field::new(shown, sum_of(field).ok_or_else(none)?, true),
        AggregateName::Min | AggregateName::Max if has_extremes(field) => {
            field.as_ref().clone().with_name(shown).with_nullable(true)
        }
        AggregateName::Min | AggregateName::Max => return Err(none()),
    })
}

/// The columns of a summary of rows with these columns.
///
/// # Errors
/// 42804 and 42703, for columns that have no such summary.
pub fn summary_schema(rows: &SchemaRef, summary: &Summary) -> Result<SchemaRef> {
    match summary {
        Summary::Top(top) => {
            top.by.iter().try_for_each(|key| group_of(rows, &key.column).map(|_| ()))?;
            Ok(rows.clone())
        }
        Summary::Aggregate(Aggregate { groups, functions }) => {
            let groups = groups.iter().map(|name| group_of(rows, name).map(|(_, field)| field.clone()));
            let values = functions.iter().map(|function| value_of(rows, function).map(Arc::new));
            Ok(Arc::new(Schema::new(groups.chain(values).collect::<Result<Vec<_>>>()?)))
        }
    }
}

/// The rows of a scan as a partition of a plan.
#[derive(Debug)]
struct ScannedRows {
    scan: ArrowScan,
    /// The columns of the scan, and, if rows are numbered, their numbers.
    schema: SchemaRef,
    is_numbered: bool,
}

impl ScannedRows {
    fn new(scan: ArrowScan, columns: &SchemaRef, is_numbered: bool) -> Self {
        let mut fields = columns.fields().to_vec();
        if is_numbered {
            fields.push(Arc::new(Field::new("number", DataType::UInt64, false)));
        }
        Self { scan, schema: Arc::new(Schema::new(fields)), is_numbered }
    }

    /// The batch with numbers from `first` on, if rows are numbered.
    fn batch(schema: &SchemaRef, is_numbered: bool, batch: &RecordBatch, first: u64) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let numbers =
            is_numbered.then(|| Arc::new(UInt64Array::from_iter_values(first..first + rows as u64)) as ArrayRef);
        let columns = batch.columns().iter().cloned().chain(numbers).collect();
        Ok(with_columns(schema, columns, rows)?)
    }
}

fn with_columns(
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> std::result::Result<RecordBatch, datafusion::arrow::error::ArrowError> {
    RecordBatch::try_new_with_options(schema.clone(), columns, &RecordBatchOptions::new().with_row_count(Some(rows)))
}

/// The position of a scan that is being read.
struct Reading {
    scan: ArrowScan,
    schema: SchemaRef,
    is_numbered: bool,
    /// Rows so far.
    rows: u64,
    turn: Instant,
}

impl Reading {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if self.turn.elapsed() >= TURN {
                tokio::task::yield_now().await;
                self.turn = Instant::now();
            }
            let Some(block) = self.scan.next_block() else { return Ok(None) };
            let Some(batch) = block? else { continue };
            let batch = ScannedRows::batch(&self.schema, self.is_numbered, &batch, self.rows)?;
            self.rows += batch.num_rows() as u64;
            return Ok(Some(batch));
        }
    }
}

impl PartitionStream for ScannedRows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (scan, schema) = (self.scan.clone(), self.schema.clone());
        let reading = Reading { scan, schema, is_numbered: self.is_numbered, rows: 0, turn: Instant::now() };
        let batches = futures::stream::try_unfold(reading, |mut reading| async move {
            let batch = reading.next().await.map_err(SqlError::external)?;
            Ok(batch.map(|batch| (batch, reading)))
        });
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches))
    }
}

fn column(schema: &Schema, at: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(schema.field(at).name(), at))
}

fn leaf(rows: ScannedRows) -> Result<(Arc<dyn ExecutionPlan>, SchemaRef)> {
    let schema = rows.schema.clone();
    let leaf = StreamingTableExec::try_new(schema.clone(), vec![Arc::new(rows)], None, [], false, None)?;
    Ok((Arc::new(leaf), schema))
}

/// The plan of an aggregate, whose columns are in the order of the request.
fn grouped(rows: ScannedRows, Aggregate { groups, functions }: &Aggregate) -> Result<Arc<dyn ExecutionPlan>> {
    let (input, schema) = leaf(rows)?;
    let keys = groups.iter().map(|name| column_of(&schema, name).map(|(at, _)| (column(&schema, at), name.clone())));
    let keys: Vec<_> = keys.collect::<Result<_>>()?;
    let mut values = Vec::with_capacity(functions.len());
    for (number, function) in functions.iter().enumerate() {
        let AggregateFunction(name, of) = function;
        let of = of.as_ref().map(|of| column_of(&schema, of)).transpose()?;
        let argument = of.map_or_else(|| lit(1_i64), |(at, _)| column(&schema, at));
        let (of_name, argument) = match name {
            AggregateName::Count => (count_udaf(), argument),
            AggregateName::Min => (min_udaf(), argument),
            AggregateName::Max => (max_udaf(), argument),
            AggregateName::Sum => {
                let wide = value_of(&schema, function)?.data_type().clone();
                (sum_udaf(), Arc::new(CastExpr::new(argument, wide, None)) as _)
            }
        };
        // Numbers, as a function may stand twice.
        let value = AggregateExprBuilder::new(of_name, vec![argument]).schema(schema.clone()).alias(number.to_string());
        values.push(Arc::new(value.build()?));
    }
    let filters = vec![None; values.len()];
    let by = PhysicalGroupBy::new_single(keys);
    let plan = AggregateExec::try_new(AggregateMode::Single, by, values, filters, input, schema)?;
    let grouped = plan.schema();
    let order = (0..groups.len()).map(|at| PhysicalSortExpr::new_default(column(&grouped, at)));
    Ok(match LexOrdering::new(order) {
        Some(order) => Arc::new(SortExec::new(order, Arc::new(plan))),
        None => Arc::new(plan),
    })
}

/// The plan of first rows, with the number of each as the last column.
fn first(rows: ScannedRows, top: &Top) -> Result<Arc<dyn ExecutionPlan>> {
    let (input, schema) = leaf(rows)?;
    let mut order = Vec::with_capacity(top.by.len() + 1);
    for key in &top.by {
        let (at, _) = column_of(&schema, &key.column)?;
        let options = SortOptions { descending: key.descending, nulls_first: key.nulls_first };
        order.push(PhysicalSortExpr::new(column(&schema, at), options));
    }
    order.push(PhysicalSortExpr::new_default(column(&schema, schema.fields().len() - 1)));
    let order = LexOrdering::new(order).expect("the number of the row is a key");
    let rows = usize::try_from(top.rows).unwrap_or(usize::MAX);
    Ok(Arc::new(SortExec::new(order, input).with_fetch(Some(rows))))
}

impl SqlDatabase {
    /// A summary of the rows of a scan, for a thread that runs queries. Nothing is read before its
    /// first batch is asked for. Its columns are those of [`summary_schema`].
    ///
    /// # Errors
    /// As for [`summary_schema`]; those of a query, in the stream.
    pub fn summarize(
        &self,
        scan: ArrowScan,
        summary: &Summary,
    ) -> Result<(SchemaRef, impl Stream<Item = Result<RecordBatch>> + Send + use<>)> {
        use datafusion::arrow::array::RecordBatchReader;
        let columns = scan.schema();
        let schema = summary_schema(&columns, summary)?;
        let plan = match summary {
            Summary::Aggregate(aggregate) => grouped(ScannedRows::new(scan, &columns, false), aggregate)?,
            Summary::Top(top) => first(ScannedRows::new(scan, &columns, true), top)?,
        };
        let batches = execute_stream(plan, Arc::new(self.summary_context()))?;
        let wanted = schema.clone();
        let batches = batches.map(move |batch| {
            let batch = batch?;
            // Without the numbers of rows.
            let columns = batch.columns()[..wanted.fields().len()].to_vec();
            Ok(with_columns(&wanted, columns, batch.num_rows())?)
        });
        Ok((schema, batches))
    }

    /// The memory of one summary is bounded as that of a session's queries.
    fn summary_context(&self) -> TaskContext {
        let memory = WorkMemory::new(self.runtime.memory_pool.clone());
        let most = self.defaults.max_work_mem;
        let own_limit = memory.set_limit(self.defaults.work_mem.or(most), most);
        let mut config = SessionConfig::new().with_target_partitions(1);
        if let Some(limit) = own_limit.into_iter().chain(self.memory_limit).min() {
            // The memory that sorts reserve for merging must leave most of it for sorting.
            let reserved = &mut config.options_mut().execution.sort_spill_reservation_bytes;
            *reserved = (*reserved).min(limit / 5);
        }
        let runtime = RuntimeEnv { memory_pool: Arc::new(memory), ..self.runtime.as_ref().clone() };
        TaskContext::default().with_session_config(config).with_runtime(Arc::new(runtime))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serac_engine::TYPE_KEY;
    use std::collections::HashMap;

    #[test]
    fn types_whose_equal_values_differ_have_no_groups() {
        let told = |oid: &str| HashMap::from([(TYPE_KEY.to_owned(), oid.to_owned())]);
        for (data_type, oid, wanted) in [
            (DataType::Int64, None, true),
            (DataType::Utf8View, None, true),
            (DataType::Utf8View, Some("1043:14"), true),
            (DataType::Utf8View, Some("1042:10"), false),
            (DataType::Utf8View, Some("1700:-1"), false),
            (DataType::LargeUtf8, None, false),
            (DataType::Float64, None, false),
            (DataType::Interval(datafusion::arrow::datatypes::IntervalUnit::MonthDayNano), None, false),
        ] {
            let field = Field::new("c", data_type.clone(), true).with_metadata(oid.map(told).unwrap_or_default());
            assert_eq!(is_exact(&field), wanted, "{data_type} {oid:?}");
        }
    }

    #[test]
    fn sums_have_room_for_all_rows() {
        let sum = |digits| sum_of(&Field::new("n", DataType::Decimal128(digits, 3), true));
        assert_eq!(sum(19), Some(DataType::Decimal128(38, 3)));
        assert_eq!(sum(20), Some(DataType::Decimal256(76, 3)));
        assert_eq!(sum_of(&Field::new("n", DataType::Float64, true)), None);
    }
}
