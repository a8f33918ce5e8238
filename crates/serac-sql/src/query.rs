//! Queries: planned in the session, run on threads of their own.
//!
//! A long query runs on the database's query threads. So the session can answer a cancellation or a
//! timeout while an operator computes, and short transactions do not queue behind it. A query over
//! a handful of rows runs on the calling thread: handing it over would take longer.

use crate::binding::{self, Bound};
use crate::column_types::RelationPlan;
use crate::deep;
use crate::error::{Result, SqlError};
use crate::foreign::table::is_foreign_scan;
use crate::parsed::{Arguments, Source};
use crate::plan_text::logical_text;
use crate::planner::in_planner;
use crate::query_runtime::DEEP_PLANS;
use crate::result::Output;
use crate::session::Session;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::source_as_provider;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::functions_table::generate_series::GenerateSeriesTable;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, execute_stream};
use futures::{FutureExt, StreamExt, TryStreamExt};
use serac_engine::{DecimalForm, Table};
use serac_files::{is_file_scan, is_frame_scan};
use serac_numeric_functions::wanted::IsWanted;
use serac_parser::tree::Expr;
use serac_pg::TypeId;
use serac_query::abandonable_join::{Wanted, count_calls, while_wanted};
use serac_query::scan::{SeracScanExec, SeracTable};
use serac_query::shared::SharedScanExec;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Batches that a query may be ahead of its reader.
const BATCHES_AHEAD: usize = 2;
/// The same of each of several streams that are read one after the other.
const BATCHES_IN_TURN: usize = 8;
/// Rows, or combinations of rows of several tables, up to which a query is short.
const SHORT_ROWS: usize = 2_000;
/// Calls of functions up to which a query is short: each may take milliseconds.
const FEW_CALLS: usize = 16;

/// Levels of a plan, with the expressions in it, from which on it is deep.
const DEEP_PLAN: usize = 100;

/// Whether a plan has so many levels ([`DEEP_PLAN`]) that it needs a large stack.
fn is_deep(plan: &Arc<dyn ExecutionPlan>) -> bool {
    fn expr_has_more(expr: &Arc<dyn PhysicalExpr>, levels: usize) -> bool {
        levels == 0 || expr.children().into_iter().any(|child| expr_has_more(child, levels - 1))
    }

    fn has_more(plan: &Arc<dyn ExecutionPlan>, levels: usize) -> bool {
        if levels == 0 {
            return true;
        }
        let mut is_deep = false;
        let _ = plan.apply_expressions(&mut |expr| {
            is_deep = expr_has_more(expr, levels - 1);
            Ok(if is_deep { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        });
        is_deep || plan.children().into_iter().any(|child| has_more(child, levels - 1))
    }
    has_more(plan, DEEP_PLAN)
}

/// A plan, and its known properties before it runs.
pub(crate) struct Ready {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    wanted: Option<Wanted>,
    /// It runs where it is.
    is_short: bool,
    /// Its streams are read one after the other.
    is_in_turn: bool,
}

/// A mark in the configuration of a statement that stores rows.
struct Storing;

/// Whether none of a plan's streams waits for the reader of another one.
fn has_independent_streams(plan: &Arc<dyn ExecutionPlan>) -> bool {
    !plan.is::<RepartitionExec>() && plan.children().into_iter().all(has_independent_streams)
}

impl Ready {
    /// A data frame's plan.
    async fn of(frame: DataFrame) -> Result<Self> {
        let (state, plan) = frame.into_parts();
        let plan = state.optimize(&plan).map_err(in_planner)?;
        Self::of_optimized(state, plan, Ok).await
    }

    /// The plan of an optimized one, changed before it is looked at.
    async fn of_optimized(
        mut state: SessionState,
        plan: LogicalPlan,
        change: impl FnOnce(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>,
    ) -> Result<Self> {
        let is_wanted = IsWanted::default();
        state.config_mut().options_mut().extensions.insert(is_wanted.clone());
        // Functions get the options that were there when the statement began, without this.
        let options = state.config_options().clone();
        state.execution_props_mut().config_options = Some(options);
        let context = state.task_ctx();
        let plan = state.query_planner().create_physical_plan(&plan, &state).await.map_err(in_planner)?;
        let plan = change(plan)?;
        let is_deep = is_deep(&plan);
        if is_deep {
            // Relaxed: see `give_back_after_deep_plans`.
            DEEP_PLANS.fetch_add(1, Ordering::Relaxed);
        }
        if !is_deep && is_short(&plan, context.session_config().target_partitions()) {
            return Ok(Self { plan, context, wanted: None, is_short: true, is_in_turn: false });
        }
        let is_in_turn = state.config().get_extension::<Storing>().is_some()
            && plan.output_partitioning().partition_count() > 1
            && has_independent_streams(&plan);
        let plan = while_wanted(plan, &is_wanted)?;
        Ok(Self { plan, context, wanted: Some(Wanted(is_wanted)), is_short: false, is_in_turn })
    }
}

/// A plan that can run, and its logical plan in text where that `is_verbose`.
async fn ready_to_explain(frame: DataFrame, is_verbose: bool) -> Result<(Ready, Option<String>)> {
    let logical = match is_verbose {
        true => Some(logical_text(&frame.clone().into_optimized_plan()?)),
        false => None,
    };
    Ok((Ready::of(frame).await?, logical))
}

/// Whether a plan for `threads` threads touches a handful of rows, and calls few functions. Such a
/// plan keeps the thread that would receive its cancellation.
fn is_short(plan: &Arc<dyn ExecutionPlan>, threads: usize) -> bool {
    /// An upper bound of the combinations of rows; `None` if it is not known.
    fn combinations(plan: &Arc<dyn ExecutionPlan>, threads: usize) -> Option<usize> {
        // A scan may look at far more rows than it gives; that of a single block leaves nothing for
        // a second thread.
        let scan = plan.downcast_ref::<SeracScanExec>();
        if scan.is_some_and(|scan| !scan.is_selective())
            && (threads == 1 || plan.output_partitioning().partition_count() > 1)
        {
            return None;
        }
        match &plan.children()[..] {
            // Each row of an UNNEST may become many.
            _ if is_file_scan(plan) || is_frame_scan(plan) || is_foreign_scan(plan) => None,
            _ if plan.is::<UnnestExec>() || plan.is::<SharedScanExec>() => None,
            [] => {
                let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new()).ok()?;
                statistics.num_rows.get_value().map(|rows| (*rows).max(1))
            }
            children => children.iter().try_fold(1usize, |all, child| all.checked_mul(combinations(child, threads)?)),
        }
    }
    let most = match count_calls(plan) {
        0 => SHORT_ROWS,
        calls => FEW_CALLS / calls,
    };
    combinations(plan, threads).is_some_and(|rows| rows <= most)
}

/// The plan with decimals of up to 18 digits in 64 bits, if all that it does is to read columns of
/// a table.
fn with_short_decimals(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = plan.downcast_ref::<SeracScanExec>() {
        return Ok(Arc::new(scan.with_short_decimals()));
    }
    let only_columns = |projection: &ProjectionExec| projection.expr().iter().all(|column| column.expr.is::<Column>());
    let passes = plan.is::<CooperativeExec>() || plan.downcast_ref::<ProjectionExec>().is_some_and(only_columns);
    let child = plan.children().first().filter(|_| passes).map(|&child| child.clone());
    match child {
        Some(child) => Ok(replace_children_if_necessary(plan, vec![with_short_decimals(child)?])?),
        None => Ok(plan),
    }
}

/// Whether a query reads nothing but other tables and series of numbers.
pub(crate) fn is_apart(plan: &LogicalPlan, table: &Table) -> Result<bool> {
    let mut apart = true;
    plan.apply_with_subqueries(|plan| {
        if let LogicalPlan::TableScan(scan) = plan {
            let source = source_as_provider(&scan.source)?;
            apart &= match source.downcast_ref::<SeracTable>() {
                Some(read) => !Arc::ptr_eq(&read.table().data, &table.data),
                None => source.is::<GenerateSeriesTable>(),
            };
        }
        Ok(if apart { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(apart)
}

/// Rows under the names of `names`, and their columns.
pub(crate) fn shown_rows(names: SchemaRef, rows: SendableRecordBatchStream) -> (SchemaRef, SendableRecordBatchStream) {
    let schema = with_types(&names, &rows.schema());
    (schema.clone(), named(rows, schema))
}

/// The columns of `names` with the types of `types`: the types of a query before coercion may
/// differ from its result's. Every column is nullable: nullability is derived differently before
/// and after optimizing, and a result must match its description.
pub(crate) fn with_types(names: &Schema, types: &Schema) -> SchemaRef {
    let field = |(named, field): (&FieldRef, &FieldRef)| {
        named.as_ref().clone().with_data_type(field.data_type().clone()).with_nullable(true)
    };
    let fields: Vec<Field> = names.fields().iter().zip(types.fields()).map(field).collect();
    Arc::new(Schema::new_with_metadata(fields, names.metadata().clone()))
}

/// The columns of `names` with the types that a plan's have once it is analyzed.
pub(crate) fn analyzed(state: &SessionState, plan: LogicalPlan, names: &Schema) -> Result<SchemaRef> {
    let coerced = state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {}).map_err(in_planner)?;
    Ok(with_types(names, coerced.schema().as_arrow()))
}

/// The batches of `stream` with the columns' names in `schema`.
fn named(stream: SendableRecordBatchStream, schema: SchemaRef) -> SendableRecordBatchStream {
    let is_said = |(given, said): (&FieldRef, &FieldRef)| {
        given.name() == said.name() && given.is_nullable() && given.metadata() == said.metadata()
    };
    if stream.schema().fields().iter().zip(schema.fields()).all(is_said) {
        return stream;
    }
    let renamed = schema.clone();
    let batches = stream.map(move |batch| {
        let batch = batch?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(renamed.clone(), batch.columns().to_vec(), &options)?)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}

impl Session {
    /// DataFusion's state for a statement.
    pub(crate) fn state(&self) -> SessionState {
        self.shared.at_its_time(&self.ctx.state_ref())
    }

    /// The session's state for rows that are stored. Rows of one source keep their order. Batches
    /// that are distributed over several threads would come back in any order, and each block would
    /// hold values of the whole range. So would batches of several parts of a file by turns.
    pub(crate) fn storing_state(&self) -> SessionState {
        let mut state = self.state();
        state.config_mut().options_mut().optimizer.enable_round_robin_repartition = false;
        state.config_mut().set_extension(Arc::new(Storing));
        state
    }

    /// The result of a planning future, on a thread that plans.
    pub(crate) fn planning<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T>> + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send {
        // Boxed: all of its state would lie in the futures around it, each of which is moved over
        // the stack of its caller.
        deep::planned(self.query_runtime.handle(), self.work_memory.of_all(), future.boxed())
    }

    /// The rows of a query, whose columns may have the same name.
    pub(crate) async fn rows(&self, query: Source) -> Result<(SchemaRef, SendableRecordBatchStream)> {
        self.rows_with(query, DecimalForm::Decimal128).await
    }

    async fn rows_with(&self, query: Source, decimals: DecimalForm) -> Result<(SchemaRef, SendableRecordBatchStream)> {
        let (state, postgresql_names) = (self.state(), self.postgresql_names);
        let planned = self.planning(async move {
            let (plan, names) = binding::optimized(&state, &query, postgresql_names).await?;
            let change = |plan| match decimals {
                DecimalForm::Decimal64 => Ok(with_short_decimals(plan)?),
                DecimalForm::Decimal128 => Ok(plan),
            };
            Ok((Ready::of_optimized(state, plan, change).await?, names))
        });
        let (ready, names) = planned.await?;
        Ok(shown_rows(names, self.run_ready(ready)?))
    }

    /// Rows that are all there before the first is given, in the session's memory.
    pub(crate) async fn completed(&self, mut rows: SendableRecordBatchStream) -> Result<SendableRecordBatchStream> {
        let schema = rows.schema();
        let pool: Arc<dyn MemoryPool> = self.work_memory.clone();
        let memory = MemoryConsumer::new("rows that are written").register(&pool);
        let (mut all, mut counter) = (Vec::new(), RecordBatchMemoryCounter::new());
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            memory.try_grow(counter.count_batch(&batch))?;
            all.push(batch);
        }
        let rows = futures::stream::iter(all).map(move |batch| {
            // It is given back with the last of them.
            let _ = &memory;
            Ok(batch)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    /// The columns of a query's result and the types of its parameters.
    pub(crate) async fn bound_columns(&self, query: &Source) -> Result<(SchemaRef, Vec<TypeId>)> {
        let (state, query, postgresql_names) = (self.state(), query.clone(), self.postgresql_names);
        let columns = async move {
            let Bound { plan, names, parameters, .. } = binding::plan(&state, &query, postgresql_names).await?;
            Ok((analyzed(&state, plan, &names)?, parameters))
        };
        self.planning(columns).await
    }

    /// The types of the parameters of a prepared query or change.
    pub(crate) async fn parameter_types(&self, prepared: &Source) -> Result<Vec<TypeId>> {
        let (state, prepared) = (self.state(), prepared.clone());
        self.planning(async move { binding::parameter_types(&state, &prepared).await }).await
    }

    /// The parameters of a prepared query or change as the EXECUTE at `text` gives them.
    pub(crate) async fn given(&self, prepared: &Source, text: &Source, given: &[Expr]) -> Result<Arguments> {
        let types = self.parameter_types(prepared).await?;
        let values = self.arguments_of(text, given, &types).await?;
        Ok(Arguments { types: types.iter().map(|id| id.0).collect(), values: Some(values.into()) })
    }

    /// The values of the arguments that the EXECUTE or CALL at `text` gives for parameters of these
    /// types.
    pub(crate) async fn arguments_of<'e>(
        &self,
        text: &Source,
        given: impl IntoIterator<Item = &'e Expr>,
        types: &[TypeId],
    ) -> Result<Vec<ScalarValue>> {
        let (state, text, types) = (self.state(), text.clone(), types.to_vec());
        let given: Vec<Expr> = given.into_iter().cloned().collect();
        let frame = async move {
            let given: Vec<&Expr> = given.iter().collect();
            let row = binding::arguments(&state, &text, &given, &types)?;
            Ok(DataFrame::new(state, row))
        };
        let rows = self.collect(self.planning(frame).await?).await?;
        let row = rows.iter().find(|rows| rows.num_rows() > 0).expect("it is a row");
        Ok(row
            .columns()
            .iter()
            .map(|column| ScalarValue::try_from_array(column, 0))
            .collect::<datafusion::error::Result<_>>()?)
    }

    /// The data frame of a query whose columns become a relation's, and the columns with their
    /// names and types.
    pub(crate) async fn frame_of_relation(&self, query: &Source) -> Result<(DataFrame, SchemaRef)> {
        let (state, query) = (self.state(), query.clone());
        let bound = self.planning(async move { binding::of_relation(&state, &query).await });
        let RelationPlan { plan, columns } = bound.await?;
        Ok((DataFrame::new(self.storing_state(), plan), columns))
    }

    /// The data frame of a query that was put together as text.
    pub(crate) async fn frame_of(&self, sql: &str) -> Result<DataFrame> {
        let (state, query) = (self.state(), Source::of_query(sql)?);
        let frame = async move {
            let plan = binding::plan(&state, &query, false).await?.plan;
            Ok(DataFrame::new(state, plan))
        };
        self.planning(frame).await.map_err(SqlError::unplaced)
    }

    /// The rows of a data frame, as they come.
    pub(crate) async fn stream(&self, frame: DataFrame) -> Result<SendableRecordBatchStream> {
        self.run_ready(self.planning(Ready::of(frame)).await?)
    }

    /// The rows of a plan, as they come.
    pub(crate) fn run_ready(&self, ready: Ready) -> Result<SendableRecordBatchStream> {
        let Ready { plan, context, wanted, is_short, is_in_turn } = ready;
        if is_short {
            return Ok(execute_stream(plan, context)?);
        }
        let rows = match is_in_turn {
            true => self.in_turn(&plan, &context),
            false => self.running(plan.schema(), BATCHES_AHEAD, move || execute_stream(plan, context)),
        };
        Ok(match wanted {
            Some(wanted) => wanted.until_dropped(rows),
            None => rows,
        })
    }

    /// The rows of a stream, which runs on the query threads up to `ahead` batches before its
    /// reader.
    fn running(
        &self,
        schema: SchemaRef,
        ahead: usize,
        rows: impl FnOnce() -> datafusion::error::Result<SendableRecordBatchStream> + Send + 'static,
    ) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStream::builder(schema, ahead);
        let sender = builder.tx();
        let run = async move {
            let mut batches = rows()?;
            while let Some(batch) = batches.next().await {
                // An error ends the task; so does a missing receiver.
                if sender.send(Ok(batch?)).await.is_err() {
                    break;
                }
            }
            Ok(())
        };
        builder.spawn_on(run, self.query_runtime.handle());
        builder.build()
    }

    /// The rows of a plan's streams, one stream after the other. All of them run at once, as far as
    /// their readers let them.
    fn in_turn(&self, plan: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>) -> SendableRecordBatchStream {
        let run = |partition| {
            let (plan, context) = (plan.clone(), context.clone());
            self.running(plan.schema(), BATCHES_IN_TURN, move || plan.execute(partition, context))
        };
        let streams: Vec<_> = (0..plan.output_partitioning().partition_count()).map(run).collect();
        let rows = futures::stream::iter(streams).flatten();
        Box::pin(RecordBatchStreamAdapter::new(plan.schema(), rows))
    }

    /// A query's plan to be shown, and its logical plan in text where that `is_verbose`.
    pub(crate) async fn planned_to_explain(&self, query: Source, is_verbose: bool) -> Result<(Ready, Option<String>)> {
        let (state, postgresql_names) = (self.state(), self.postgresql_names);
        let planned = async move {
            let plan = binding::plan(&state, &query, postgresql_names).await?.plan;
            ready_to_explain(DataFrame::new(state, plan), is_verbose).await
        };
        self.planning(planned).await
    }

    /// The same of a plan.
    pub(crate) async fn frame_to_explain(&self, frame: DataFrame, is_verbose: bool) -> Result<(Ready, Option<String>)> {
        self.planning(async move { ready_to_explain(frame, is_verbose).await }).await
    }

    /// The columns of a statement's result and its plans, as the binder gives them.
    ///
    /// # Errors
    /// The errors of the statement.
    pub(crate) async fn bound_lines(&self, source: Source) -> Result<Vec<String>> {
        let state = self.state();
        self.planning(async move { binding::lines(&state, &source).await }).await
    }

    /// All rows of a data frame.
    pub(crate) async fn collect(&self, frame: DataFrame) -> Result<Vec<RecordBatch>> {
        Ok(self.collect_with_schema(frame).await?.1)
    }

    /// All rows of a data frame and their columns. The frame's own schema is not coerced yet, for
    /// example if the results of a CASE have different types.
    pub(crate) async fn collect_with_schema(&self, frame: DataFrame) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        let rows = self.stream(frame).await?;
        let schema = rows.schema();
        Ok((schema, rows.try_collect().await?))
    }

    pub(crate) async fn query(&mut self, query: Source) -> Result<Output> {
        let decimals = std::mem::take(&mut self.next_decimals);
        let (schema, stream) = self.rows_with(query, decimals).await?;
        Ok(Output::Rows { schema, stream })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::common::{Column, SchemaError};
    use datafusion::error::DataFusionError;

    #[test]
    fn names_that_the_planner_loses_are_none_of_the_users() {
        let lost =
            SchemaError::FieldNotFound { field: Box::new(Column::new(Some("oo"), "x")), valid_fields: Vec::new() };
        let lost = DataFusionError::SchemaError(Box::new(lost), Box::new(None));
        assert_eq!(SqlError::from(&lost).sqlstate, sqlstate::UNDEFINED_COLUMN);
        assert_eq!(in_planner(lost).sqlstate, sqlstate::INTERNAL_ERROR);
        let twice = || DataFusionError::Plan("Projections require unique expression names".into());
        assert_eq!(in_planner(twice()).sqlstate, sqlstate::INTERNAL_ERROR);
        // A function's own error stays.
        assert_eq!(
            in_planner(SqlError::new(sqlstate::UNDEFINED_TABLE, "no such sequence").external()).sqlstate,
            sqlstate::UNDEFINED_TABLE
        );
    }
}
