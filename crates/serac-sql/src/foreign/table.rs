//! A foreign table as a relation, and its scan.
//!
//! The scan is that of [`serac_remote`], as a leaf. Around it, values become those of the declared
//! columns: checked as values of any program are, and NUMERIC without digits read from its text.

use crate::column_types::{field_of, of_column};
use crate::deep;
use crate::error::{Result, SqlError};
use crate::foreign::exclusion::is_excluded;
use crate::foreign::servers::{ServerSnapshots, told};
use crate::session_env::SessionEnv;
use crate::statement_snapshot::StatementSnapshot;
use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, Schema, SchemaRef};
use datafusion::catalog::{Session as PlanningSession, TableProvider};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, Result as PlanResult, Statistics, internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties, displayable,
};
use futures::StreamExt;
use serac_engine::catalog::definition::SqlType;
use serac_engine::catalog::foreign::{ForeignTable, ServerDefinition};
use serac_engine::security::{Columns, Privilege};
use serac_query::scan::check_scan;
use serac_remote::{PartialAggregate, Remote, RemoteError, RemoteScanExec, RemoteTable, SummarizedScan};
use serac_storage::ColumnType;
use serac_values::arrow_input::given;
use serac_values::assignment::assign;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How often a planner that waits for a server looks whether it is still waited for.
const LOOK: Duration = Duration::from_millis(20);

/// The result of work that waits for a server while a statement is planned. Other statements are
/// planned meanwhile.
///
/// # Errors
/// Its own; 57014 once nobody waits for the plan.
pub(crate) async fn while_planning<T>(work: impl Future<Output = PlanResult<T>>) -> PlanResult<T> {
    let mut work = std::pin::pin!(deep::away(work));
    loop {
        match tokio::time::timeout(LOOK, &mut work).await {
            Ok(done) => return done,
            Err(_) => deep::check()?,
        }
    }
}

/// The error of a plan or a stream of a foreign table.
fn in_sql(error: DataFusionError, table: &str) -> DataFusionError {
    match RemoteError::of(&error) {
        Some(remote) => told(remote, table).external(),
        None => error,
    }
}

/// Whether CHECK constraints exclude foreign tables: unless `constraint_exclusion` is off.
fn excludes_by_constraints(shared: &SessionEnv) -> bool {
    shared.client_settings.read().get("constraint_exclusion").is_none_or(|set| set != "off")
}

/// A foreign table as a statement sees it.
#[derive(Debug)]
pub(crate) struct ForeignRelation {
    table: Arc<ForeignTable>,
    server: Arc<ServerDefinition>,
    connection: Remote,
    remote: RemoteTable,
    snapshots: Arc<ServerSnapshots>,
    schema: SchemaRef,
    /// The columns that may be read.
    columns: Columns,
    /// Whether CHECK constraints may exclude it from a query.
    is_excludable: bool,
}

impl ForeignRelation {
    /// The table for the running statement. Nothing is sent.
    ///
    /// # Errors
    /// 42704 if its server is not there, and those of the server's options.
    pub(crate) fn new(shared: &SessionEnv, view: &StatementSnapshot, table: &Arc<ForeignTable>) -> Result<Self> {
        let definition = &table.definition;
        let server = view.catalog.server(&table.server)?.clone();
        let connection = shared.sql.servers.get(&server)?;
        let remote = connection.declared_table(&table.remote_schema, &table.remote_table, definition.exported_schema());
        let fields = definition.columns.iter().map(|column| {
            let field = Field::new(&column.name, column.sql_type.column_type.arrow(), column.nullable);
            field_of(field, of_column(column.sql_type))
        });
        Ok(Self {
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            columns: shared.access(view).columns(definition, Privilege::Select),
            is_excludable: !definition.checks.is_empty() && excludes_by_constraints(shared),
            table: table.clone(),
            server,
            connection,
            remote,
            snapshots: view.servers.clone(),
        })
    }

    fn name(&self) -> &str {
        &self.table.definition.name
    }

    /// Whether the server evaluates a filter, exactly.
    fn is_pushed(&self, filter: &Expr) -> PlanResult<bool> {
        Ok(self.remote.supports_filters_pushdown(&[filter])? == [TableProviderFilterPushDown::Exact])
    }
}

#[async_trait]
impl TableProvider for ForeignRelation {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> PlanResult<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| {
            Ok(match self.is_pushed(filter)? {
                true => TableProviderFilterPushDown::Exact,
                // It may contradict a CHECK.
                false if !filter.is_volatile() && self.is_excludable => TableProviderFilterPushDown::Inexact,
                false => TableProviderFilterPushDown::Unsupported,
            })
        };
        filters.iter().map(support).collect()
    }

    async fn scan(
        &self,
        session: &dyn PlanningSession,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        check_scan(&self.columns, self.name(), &self.schema, projection, filters)?;
        let Some(state) = session.as_any().downcast_ref::<SessionState>() else {
            return internal_err!("a foreign table is planned in a session");
        };
        let columns = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let is_excluded = || is_excluded(state, &self.table.definition, &self.schema, filters);
        if self.is_excludable && is_excluded().map_err(SqlError::external)? {
            return Ok(Arc::new(EmptyExec::new(Arc::new(self.schema.project(&columns)?))));
        }
        let (mut pushed, mut left) = (Vec::with_capacity(filters.len()), Vec::new());
        let support = self.remote.supports_filters_pushdown(&filters.iter().collect::<Vec<_>>())?;
        for (filter, support) in filters.iter().zip(support) {
            if support == TableProviderFilterPushDown::Exact {
                pushed.push(filter.clone());
            } else if self.is_pushed(filter)? || !self.is_excludable {
                // A request does not have room for all of them. A filter that was taken for the
                // sake of constraints alone is evaluated above the scan.
                left.push(filter.clone());
            }
        }
        // A limit holds for the rows that fulfil all filters.
        let limit = limit.filter(|_| pushed.len() == filters.len());
        let mut read = columns.clone();
        for column in left.iter().flat_map(Expr::column_refs) {
            let at = self.schema.index_of(&column.name)?;
            if !read.contains(&at) {
                read.push(at);
            }
        }
        let planned = while_planning(async {
            let snapshot = self.snapshots.of(&self.server, &self.connection).await?;
            self.remote.in_snapshot(&snapshot).scan(session, Some(&read), &pushed, limit).await
        });
        let scan = planned.await.map_err(|error| in_sql(error, self.name()))?;
        let schema = Arc::new(self.schema.project(&read)?);
        let types = schema.fields().iter().map(|field| {
            let definition = &self.table.definition;
            definition.column(field.name()).map(|at| definition.columns[at].sql_type)
        });
        let rows = ForeignRows { table: self.table.clone(), types: types.collect(), schema: schema.clone() };
        let scan = Arc::new(ForeignScanExec::new(scan, rows));
        let Some(condition) = conjunction(left) else { return Ok(scan) };
        let condition = state.create_physical_expr(condition, &DFSchema::try_from(schema.as_ref().clone())?)?;
        let kept = schema.fields().iter().take(columns.len()).enumerate().map(|(at, field)| {
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), at));
            (column, field.name().clone())
        });
        Ok(Arc::new(ProjectionExec::try_new(kept, Arc::new(FilterExec::try_new(condition, scan)?))?))
    }
}

/// Whether an operator reads a foreign table: its rows come from elsewhere, and may take their
/// time.
pub(crate) fn is_foreign_scan(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<ForeignScanExec>()
}

/// The rows of a foreign table: how those of the server become them.
#[derive(Clone, Debug)]
struct ForeignRows {
    table: Arc<ForeignTable>,
    /// The types of the columns; `None` for numbers that the server has computed.
    types: Vec<Option<SqlType>>,
    schema: SchemaRef,
}

impl ForeignRows {
    fn value(&self, at: usize, array: &ArrayRef) -> Result<ArrayRef> {
        let field = self.schema.field(at);
        let Some(sql_type) = self.types[at] else { return Ok(array.clone()) };
        let values = assign(&given(array)?, sql_type, field.name())?;
        if let (DataType::Decimal128(precision, _), ColumnType::Decimal { .. }) =
            (values.data_type(), sql_type.column_type)
        {
            values.as_primitive::<Decimal128Type>().validate_decimal_precision(*precision)?;
        }
        Ok(sql_type.kept_values(&values)?)
    }

    fn of(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch.columns().iter().enumerate().map(|(at, array)| self.value(at, array));
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns.collect::<Result<_>>()?, &options)?)
    }

    fn name(&self) -> &str {
        &self.table.definition.name
    }
}

/// Reads a foreign table.
#[derive(Clone, Debug)]
pub(crate) struct ForeignScanExec {
    /// The scan of the server's table, which has the same columns.
    scan: Arc<dyn ExecutionPlan>,
    rows: ForeignRows,
    properties: Arc<PlanProperties>,
}

impl ForeignScanExec {
    fn new(scan: Arc<dyn ExecutionPlan>, rows: ForeignRows) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(rows.schema.clone()),
            scan.output_partitioning().clone(),
            scan.pipeline_behavior(),
            scan.boundedness(),
        );
        Self { scan, rows, properties: Arc::new(properties) }
    }

    /// The same around another scan of the same columns.
    fn around(&self, scan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self::new(scan, self.rows.clone()))
    }

    /// Whether the server's values of all columns of a predicate are those of the foreign table.
    fn is_of_servers_values(&self, predicate: &Arc<dyn PhysicalExpr>) -> bool {
        collect_columns(predicate).iter().all(|column| self.has_servers_values(column.index()))
    }

    /// Whether the server's values of a column are those of the foreign table.
    fn has_servers_values(&self, at: usize) -> bool {
        let sql_type = self.rows.types.get(at).copied().flatten();
        let (own, servers) = (self.rows.schema.fields(), self.scan.schema());
        let is_same = own.get(at).zip(servers.fields().get(at));
        sql_type.is_some_and(|of| !of.column_type.is_document())
            && is_same.is_some_and(|(own, servers)| own.data_type() == servers.data_type())
    }

    /// The scan of the server's table, if it is one.
    fn remote(&self) -> Option<&RemoteScanExec> {
        self.scan.downcast_ref()
    }
}

/// Foreign tables as the rule `remote_summaries` knows them.
pub(crate) fn summarized(plan: &dyn ExecutionPlan) -> Option<&dyn SummarizedScan> {
    plan.downcast_ref::<ForeignScanExec>().map(|scan| scan as _)
}

impl SummarizedScan for ForeignScanExec {
    fn aggregated(&self, partial: &PartialAggregate) -> Option<Arc<dyn ExecutionPlan>> {
        let is_known = partial.columns().all(|column| self.has_servers_values(column));
        let scan = self.remote().filter(|_| is_known)?.aggregated(partial)?;
        let types = partial.origins().into_iter().map(|origin| self.rows.types[origin?]).collect();
        let rows = ForeignRows { table: self.rows.table.clone(), types, schema: partial.schema() };
        Some(Arc::new(Self::new(Arc::new(scan), rows)))
    }

    fn first_rows(&self, by: &[(usize, SortOptions)], rows: usize) -> Option<Arc<dyn ExecutionPlan>> {
        let is_known = by.iter().all(|&(column, _)| self.has_servers_values(column));
        let scan = self.remote().filter(|_| is_known)?.first_rows(by, rows)?;
        Some(self.around(Arc::new(scan)))
    }
}

impl DisplayAs for ForeignScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scan = displayable(self.scan.as_ref()).one_line().to_string();
        let scan = scan.trim_end().split_once(": ").map_or("", |(_, rest)| rest);
        write!(f, "{}: server={}, {scan}", self.name(), self.rows.table.server)
    }
}

impl ExecutionPlan for ForeignScanExec {
    fn name(&self) -> &'static str {
        "ForeignScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        self.scan.apply_expressions(f)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> PlanResult<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("a foreign scan has no children") }
    }

    fn reset_state(self: Arc<Self>) -> PlanResult<Arc<dyn ExecutionPlan>> {
        Ok(self.around(self.scan.clone().reset_state()?))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        let (rows, schema) = (self.rows.clone(), self.rows.schema.clone());
        let batches = self.scan.execute(partition, context)?.map(move |batch| match batch {
            Ok(batch) => rows.of(&batch).map_err(SqlError::external),
            Err(error) => Err(in_sql(error, rows.name())),
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.scan.metrics()
    }

    fn statistics_from_inputs(&self, inputs: &[Arc<Statistics>], args: &StatisticsArgs) -> PlanResult<Arc<Statistics>> {
        self.scan.statistics_from_inputs(inputs, args)
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        self.scan.with_fetch(limit).map(|scan| self.around(scan))
    }

    fn fetch(&self) -> Option<usize> {
        self.scan.fetch()
    }

    fn try_swapping_with_projection(&self, projection: &ProjectionExec) -> PlanResult<Option<Arc<dyn ExecutionPlan>>> {
        let Some(scan) = self.scan.try_swapping_with_projection(projection)? else { return Ok(None) };
        // The scan has taken the columns as they are.
        let mut columns = Vec::with_capacity(scan.schema().fields().len());
        for field in scan.schema().fields() {
            columns.push(self.rows.schema.index_of(field.name())?);
        }
        let types = columns.iter().map(|&column| self.rows.types[column]).collect();
        let schema = Arc::new(self.rows.schema.project(&columns)?);
        let rows = ForeignRows { table: self.rows.table.clone(), types, schema };
        Ok(Some(Arc::new(Self::new(scan, rows))))
    }

    fn handle_child_pushdown_result(
        &self,
        phase: FilterPushdownPhase,
        pushed: ChildPushdownResult,
        options: &ConfigOptions,
    ) -> PlanResult<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let ChildPushdownResult { parent_filters, self_filters } = pushed;
        let is_known: Vec<bool> =
            parent_filters.iter().map(|parent| self.is_of_servers_values(&parent.filter)).collect();
        let known = parent_filters.into_iter().zip(&is_known).filter(|(_, is_known)| **is_known);
        let known = ChildPushdownResult { parent_filters: known.map(|(parent, _)| parent).collect(), self_filters };
        let answer = self.scan.handle_child_pushdown_result(phase, known, options)?;
        let mut answers = answer.filters.into_iter();
        let filters = is_known.iter().map(|is_known| match is_known {
            true => answers.next().unwrap_or(PushedDown::No),
            false => PushedDown::No,
        });
        let filters = filters.collect();
        Ok(FilterPushdownPropagation { filters, updated_node: answer.updated_node.map(|scan| self.around(scan)) })
    }
}
