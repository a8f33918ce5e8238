//! Functions in FROM whose rows come from a job.
//!
//! Planning asks the catalog for the columns that a function gives. The queries of its inputs are
//! planned with the statement. Their rows go to the job as they come, in the statement's snapshot.
//! The job runs when its first row is wanted, once for each place at which the statement names the
//! function. The plans of its inputs are no children of its own plan: the optimizer would drop the
//! order of their rows as unused.
//!
//! **Arguments** are values that are known when the statement is planned. A query of an input names
//! them `$1`, `$2` and so on; a program finds them in its environment, as text.
//!
//! **Rights.** The caller of a function must have EXECUTE on it. Its inputs are read with the
//! caller's rights. In a view, and while a materialized view is refreshed, the view's owner is the
//! caller, as with the view's tables. Names without a schema mean the schema `public`, for any
//! `search_path` of the caller.
//!
//! **Values** are assigned to the types that the function says, as those of an INSERT are to its
//! columns. A value that does not fit is an error.

use crate::binding::{self, Bound};
use crate::column_types::{field_of, of_column};
use crate::error::SqlError;
use crate::parsed::Arguments;
use crate::programs::job::Programs;
use crate::programs::rows::{EndAtDrop, input_query, read_rows};
use crate::session_env::{SessionEnv, owner_planned_for, planned_for};
use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
};
use futures::TryStreamExt;
use serac_engine::catalog::function::{FunctionColumn, FunctionDefinition};
use serac_engine::security::{Object, Privilege, RoleId};
use serac_storage::ColumnType;
use serac_values::arrow_input::given;
use serac_values::assignment::{assign, check_assignment};
use serac_values::text_types::is_text;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A call of a function in FROM.
pub(crate) struct FunctionTable {
    shared: Arc<SessionEnv>,
    definition: Arc<FunctionDefinition>,
    /// The values of the arguments, of the parameters' types.
    arguments: Vec<ScalarValue>,
    schema: SchemaRef,
    /// The owner of the view that names it; `None` outside of views. Inputs are planned when the
    /// view's query has been.
    view_owner: Option<RoleId>,
}

impl fmt::Debug for FunctionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionTable").field("function", &self.definition.name).finish_non_exhaustive()
    }
}

fn external(error: SqlError) -> DataFusionError {
    error.external()
}

/// The columns that a function gives.
fn schema_of(columns: &[FunctionColumn]) -> SchemaRef {
    let field = |column: &FunctionColumn| {
        let field = serac_storage::marked(Field::new(&column.name, column.sql_type.column_type.arrow(), true));
        // Arrow does not tell JSON from JSONB.
        let is_json = column.sql_type.column_type == ColumnType::JsonText;
        if is_json { field_of(field, of_column(column.sql_type)) } else { field }
    };
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

impl FunctionTable {
    /// The call of the function with this name, if it exists. `arguments`: literals.
    ///
    /// # Errors
    /// The errors of the arguments, or 42501.
    pub(crate) fn of(shared: &Arc<SessionEnv>, name: &str, arguments: &[Expr]) -> Result<Option<Self>, SqlError> {
        let Some(view) = shared.view() else { return Ok(None) };
        let Some(definition) = view.catalog.functions.get(name).cloned() else { return Ok(None) };
        shared.access(&view).check(&Object::Function(name.to_owned()), Privilege::Execute)?;
        let parameters = &definition.parameters;
        if arguments.len() != parameters.len() {
            let (wanted, given) = (parameters.len(), arguments.len());
            let message = format!("function {name} takes {wanted} arguments, but {given} were given");
            return Err(SqlError::new(sqlstate::UNDEFINED_FUNCTION, message).named(name));
        }
        let value = |(parameter, argument): (&FunctionColumn, &Expr)| {
            let Expr::Literal(value, _) = argument else {
                let message = format!("the argument {} of function {name} must be a constant", parameter.name);
                return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message).named(name));
            };
            let value = assign(&value.to_array()?, parameter.sql_type, &parameter.name)?;
            Ok(ScalarValue::try_from_array(&value, 0)?)
        };
        let arguments = parameters.iter().zip(arguments).map(value).collect::<Result<Vec<_>, SqlError>>()?;
        let schema = schema_of(&definition.returns);
        let view_owner = owner_planned_for();
        Ok(Some(Self { shared: shared.clone(), definition, arguments, schema, view_owner }))
    }

    /// The arguments as text; `None` for NULL.
    fn texts(&self) -> Result<Vec<Option<String>>> {
        let text = |value: &ScalarValue| match value.cast_to(&DataType::Utf8)? {
            ScalarValue::Utf8(text) => Ok(text),
            other => internal_err!("{other} is no text"),
        };
        self.arguments.iter().map(text).collect()
    }

    /// The arguments as the parameters of its inputs.
    fn parameters(&self) -> Arguments {
        let types = self.definition.parameters.iter().map(|parameter| of_column(parameter.sql_type).id.0).collect();
        Arguments { types, values: Some(self.arguments.clone().into()) }
    }

    async fn plan(&self, state: &SessionState, projection: Option<&Vec<usize>>) -> Result<FunctionExec, SqlError> {
        let view =
            self.shared.view().ok_or_else(|| SqlError::new(sqlstate::INTERNAL_ERROR, "no statement is running"))?;
        // Also so that a function that reads itself is found out.
        let caller = self.view_owner.unwrap_or_else(|| view.access.role());
        let function = Object::Function(self.definition.name.clone());
        planned_for(&function, caller, self.plan_for_caller(state, projection)).await
    }

    async fn plan_for_caller(
        &self,
        state: &SessionState,
        projection: Option<&Vec<usize>>,
    ) -> Result<FunctionExec, SqlError> {
        let name = &self.definition.name;
        let programs = self.shared.sql.programs();
        let programs = programs.ok_or_else(|| SqlError::unsupported("running programs in this process"))?;
        let job = programs.job(&self.definition.body)?;
        job.check_runnable()?;
        let texts = self.texts()?;
        let arguments = self.parameters();
        let mut inputs: Vec<Arc<dyn ExecutionPlan>> = Vec::new();
        for (input, query) in job.inputs() {
            let planned = async {
                let source = input_query(&query)?.with(arguments.clone());
                let Bound { plan, names, .. } = Box::pin(binding::plan(state, &source, false)).await?;
                let plan = binding::under_names(plan, &names)?;
                state.create_physical_plan(&plan).await.map_err(crate::planner::in_planner)
            };
            let plan: Arc<dyn ExecutionPlan> = planned.await.map_err(|error: SqlError| {
                let detail = format!("in the input \"{input}\" of function {name}");
                error.unplaced().also(detail)
            })?;
            let is_one = plan.output_partitioning().partition_count() == 1;
            inputs.push(if is_one { plan } else { Arc::new(CoalescePartitionsExec::new(plan)) });
        }
        let shown = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => self.schema.clone(),
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(shown),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Ok(FunctionExec {
            definition: self.definition.clone(),
            all: self.schema.clone(),
            projection: projection.cloned(),
            inputs,
            programs,
            arguments: texts,
            properties: Arc::new(properties),
        })
    }
}

#[async_trait]
impl TableProvider for FunctionTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(state) = state.as_any().downcast_ref::<SessionState>() else {
            return internal_err!("a function is called outside of a session");
        };
        Ok(Arc::new(self.plan(state, projection).await.map_err(external)?))
    }
}

/// Runs the job of a function.
pub(crate) struct FunctionExec {
    definition: Arc<FunctionDefinition>,
    /// The columns that the function gives, and which of them are wanted.
    all: SchemaRef,
    projection: Option<Vec<usize>>,
    /// The plans of its inputs, each of one partition.
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    programs: Arc<dyn Programs>,
    arguments: Vec<Option<String>>,
    properties: Arc<PlanProperties>,
}

impl fmt::Debug for FunctionExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionExec").field("function", &self.definition.name).finish_non_exhaustive()
    }
}

impl DisplayAs for FunctionExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FunctionExec: function={}, inputs={}", self.definition.name, self.inputs.len())
    }
}

impl ExecutionPlan for FunctionExec {
    fn name(&self) -> &str {
        "FunctionExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut job = self.programs.job(&self.definition.body).map_err(external)?;
        job.set_arguments(&self.arguments);
        job.charge_to(
            MemoryConsumer::new(format!("function {}", self.definition.name)).register(context.memory_pool()),
        );
        let inputs = self.inputs.iter().map(|input| input.execute(0, context.clone())).collect::<Result<Vec<_>>>()?;
        let name = self.definition.name.clone();
        let memory = MemoryConsumer::new(format!("rows of function {name}")).register(context.memory_pool());
        let (all, projection) = (self.all.clone(), self.projection.clone());
        let definition = self.definition.clone();
        let rows = async move {
            for mut input in inputs {
                job.begin_input(&input.schema()).map_err(external)?;
                while let Some(batch) = input.try_next().await? {
                    job.write_input(&batch).map_err(external)?;
                }
            }
            let cancelled = Arc::new(AtomicBool::new(false));
            let _end = EndAtDrop(cancelled.clone());
            let work = move || {
                let (given, batches) = read_rows(job.run(&cancelled)?, |bytes| {
                    // Relaxed: see `EndAtDrop`.
                    match cancelled.load(Ordering::Relaxed) {
                        true => Err(SqlError::new(sqlstate::QUERY_CANCELED, "canceling statement due to user request")),
                        false => Ok(memory.try_grow(bytes)?),
                    }
                })?;
                check_columns(&definition, &given)?;
                let batch = |batch: RecordBatch| of_function(&batch, &definition, &all, projection.as_deref());
                let batches = batches.into_iter().map(batch).collect::<Result<Vec<_>, SqlError>>()?;
                // The rows are charged while more of them may be read.
                Ok((batches, memory))
            };
            let done: Result<_, SqlError> = match tokio::task::spawn_blocking(work).await {
                Ok(done) => done,
                Err(panic) => Err(SqlError::new(sqlstate::INTERNAL_ERROR, format!("internal error: {panic}"))),
            };
            let (batches, memory) = done.map_err(external)?;
            Ok::<_, DataFusionError>(futures::stream::iter(batches.into_iter().map(Ok)).inspect_ok(move |_| {
                let _ = &memory;
            }))
        };
        let stream = futures::stream::once(rows).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream)))
    }
}

/// Refuses a job's output that lacks the columns of its function, by position, or whose columns
/// PostgreSQL would not assign to them. A text may stand for a document.
fn check_columns(function: &FunctionDefinition, given: &Schema) -> Result<(), SqlError> {
    let (name, wanted) = (&function.name, &function.returns);
    if given.fields().len() != wanted.len() {
        let (given, wanted) = (given.fields().len(), wanted.len());
        let message = format!("the program of function {name} gave {given} columns, and is to give {wanted}");
        return Err(SqlError::new(sqlstate::DATATYPE_MISMATCH, message).named(name));
    }
    for (field, column) in given.fields().iter().zip(wanted) {
        let is_document = column.sql_type.column_type.is_document() && is_text(field.data_type());
        if !is_document {
            let checked = check_assignment(field.data_type(), column.sql_type, &column.name);
            checked.map_err(|error| error.also(format!("in the output of function {name}")))?;
        }
    }
    Ok(())
}

/// A batch of a job as rows of its function.
fn of_function(
    batch: &RecordBatch,
    function: &FunctionDefinition,
    all: &SchemaRef,
    projection: Option<&[usize]>,
) -> Result<RecordBatch, SqlError> {
    let every: Vec<usize>;
    let columns = match projection {
        Some(columns) => columns,
        None => {
            every = (0..all.fields().len()).collect();
            &every
        }
    };
    let column = |&at: &usize| {
        let column = &function.returns[at];
        let values = assign(&given(batch.column(at))?, column.sql_type, &column.name)?;
        Ok(column.sql_type.fit(&values)?)
    };
    let arrays = columns.iter().map(column).collect::<Result<Vec<ArrayRef>, SqlError>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let schema = Arc::new(all.project(columns)?);
    Ok(RecordBatch::try_new_with_options(schema, arrays, &options)?)
}
