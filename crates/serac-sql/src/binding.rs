//! The way from the tree of a query or a change to its plan ([`serac_binder`]).
//!
//! A statement that the binder does not support is refused here (0A000). No other way leads to a
//! plan.

use crate::column_types::{RelationPlan, columns_of, field_of, is_view, of_column, of_stored};
use crate::deep;
use crate::error::{Result, SqlError};
use crate::expressions::replaced;
use crate::files;
use crate::frames::frame_table;
use crate::identifiers::{CATALOG_SCHEMA, SEARCH_PATH, TEMPORARY_SCHEMA, quote};
use crate::kept_expression::KeptExpression;
use crate::lent_calls;
use crate::limits::cancelled;
use crate::parsed::Source;
use crate::pg_catalog::image::{relation_number, table_number};
use crate::pg_catalog::system_table;
use crate::plan_text::logical_text;
use crate::planner::{Names, check_size, functions, in_planner};
use crate::rows_to_come::RowsToCome;
use crate::session_env::{SessionEnv, owner_planned_for};
use crate::session_roles::target_columns;
use crate::statement_snapshot::StatementSnapshot;
use crate::table_schema::TARGET;
use datafusion::arrow::array::{AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue, TableReference};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{
    AggregateUDF, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, ScalarUDF, TableSource, WindowUDF,
    cast, lit,
};
use futures::FutureExt;
use serac_binder::{
    BindError, BoundBody, BoundPart, BoundQuery, BoundStatement, ColumnOrigin, Definition, DefinitionText, Environment,
    FileCall, Generation, IndexPart, LentFunction, OutputColumn, Place, Relation, Sharing, StatementError, Target,
    TimeField, UniqueIndex, arrow_type, dimensions, is_registered, of_dimensions, type_of_arrow,
};
use serac_engine::catalog::definition::{ColumnDefinition, KeyDefinition};
use serac_engine::json::normalized;
use serac_engine::json_text::check as check_document;
use serac_engine::security::Columns;
use serac_engine::{DEFAULT_SCHEMA, EngineError, Table};
use serac_functions::{StyledFunctions, cast_of_text, cast_value, is_endless_part};
use serac_parser::tree::{Expr as Tree, Ident, Name, Query, Span, StatementKind, TypeName};
use serac_pg::{ArrayText, ModifiedType, Signature, TypeId};
use serac_query::scan::{CTID_COLUMN, HiddenColumns, Readable, SeracTable};
use serac_query::shared;
use serac_values::TimeStyle;
use serac_values::free_numbers::{of_list_parameter, of_parameter};
use serac_values::texts_as_times::{is_relative, is_time};
use serac_values::wire::{is_list, styled_texts, told_type, with_origin};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// The pass's name.
pub(crate) const BIND: &str = "bind";

/// A query's plan.
pub(crate) struct Bound {
    pub(crate) plan: LogicalPlan,
    /// The columns of its result, with the names that are shown.
    pub(crate) names: SchemaRef,
    /// The types of its parameters.
    pub(crate) parameters: Vec<TypeId>,
    /// The name of a column that is a row.
    pub(crate) row: Option<String>,
}

/// The plan of a query, neither analysed nor optimized, with the values of its parameters as far as
/// these are given.
///
/// # Errors
/// The errors of the query, or of a parameter's value.
pub(crate) async fn plan(state: &SessionState, source: &Source, postgresql_names: bool) -> Result<Bound> {
    let shared = functions(state).shared().clone();
    let BoundQuery { mut plan, columns, parameters, .. } = bound(state, &shared, source).await?;
    if let Some(values) = source.arguments().values.as_ref().filter(|_| !parameters.is_empty()) {
        plan = with_values(state, plan, &parameters, values)?;
    }
    let names = shown(&plan, &columns, source, postgresql_names);
    let row = columns.iter().find(|column| column.id == TypeId::RECORD).map(|column| column.name.clone());
    Ok(Bound { plan, names, parameters, row })
}

/// The optimized plan of a query, and the columns of its result, with the names that are shown.
///
/// # Errors
/// The errors of the query, of a parameter's value, or of a constant.
pub(crate) async fn optimized(
    state: &SessionState,
    source: &Source,
    postgresql_names: bool,
) -> Result<(LogicalPlan, SchemaRef)> {
    let (shared, types) = (functions(state).shared().clone(), source.types());
    let kept = source.kept();
    if let Some(kept) = kept
        && let Some(found) = kept.find_optimized(&shared, &types, postgresql_names)?
    {
        return Ok(found);
    }
    let Bound { plan, names, parameters, .. } = plan(state, source, postgresql_names).await?;
    // As `SessionState::optimize` does.
    let analyzed = state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {}).map_err(in_planner)?;
    let kept = kept.filter(|_| parameters.is_empty()).map(|kept| (kept, analyzed.clone()));
    let optimized = state.optimizer().optimize(analyzed, state, |_, _| {}).map_err(in_planner)?;
    if let Some((kept, analyzed)) = kept {
        kept.keep_optimized(&shared, &types, &analyzed, &optimized, (&names, postgresql_names))?;
    }
    Ok((optimized, names))
}

/// The plan with values in the place of its parameters.
fn with_values(
    state: &SessionState,
    plan: LogicalPlan,
    types: &[TypeId],
    values: &[ScalarValue],
) -> Result<LogicalPlan> {
    let mut given = Vec::with_capacity(types.len());
    for (at, id) in types.iter().enumerate() {
        let missing = || SqlError::new(sqlstate::UNDEFINED_PARAMETER, format!("there is no parameter ${}", at + 1));
        let value = values.get(at).ok_or_else(missing)?;
        given.push(match value.try_as_str() {
            Some(Some(name)) if is_registered(*id) => registered(state, name, *id)?,
            _ => match styled_value(functions(state).shared(), value, *id)? {
                Some(value) => value,
                None => as_stored(value, *id)?,
            },
        });
    }
    Ok(plan.with_param_values(given)?)
}

/// The number of the catalog object of a kind that a text names.
fn registered(state: &SessionState, name: &str, kind: TypeId) -> Result<ScalarValue> {
    let session = InSession::over_nothing(state, functions(state).shared());
    let unsupported = || SqlError::unsupported("the name of a catalog object as a parameter");
    let number = session.registered("pg_reg_oid", kind, &lit(name)).ok_or_else(unsupported)?;
    let number = state.create_physical_expr(number, &DFSchema::empty())?;
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)?;
    Ok(ScalarValue::try_from_array(&number.evaluate(&row)?.into_array(1)?, 0)?)
}

/// The value of a parameter as one of its type, by the session's settings of times; `None` if they
/// do not count.
fn styled_value(shared: &SessionEnv, value: &ScalarValue, id: TypeId) -> Result<Option<ScalarValue>> {
    let Some(style) = shared.styled_functions().filter(|_| !value.is_null()) else { return Ok(None) };
    match stored_type(value, id) {
        Some(stored) => style.value(value, &stored),
        None => Ok(None),
    }
}

/// The number of dimensions of a parameter that is an array, or a text that may become one; one for
/// other values.
fn dimensions_of(value: &ScalarValue) -> usize {
    match value.try_as_str() {
        Some(text) => text.map_or(1, ArrayText::dimensions_of),
        None => dimensions(&value.data_type()).max(1),
    }
}

/// The Arrow type in which a parameter of a type is stored that has this value.
fn stored_type(value: &ScalarValue, id: TypeId) -> Option<DataType> {
    let stored = arrow_type(id)?;
    Some(if id.element().is_some() { of_dimensions(stored, dimensions_of(value)) } else { stored })
}

/// The value of a parameter as one of its type.
fn as_stored(value: &ScalarValue, id: TypeId) -> Result<ScalarValue> {
    if id == TypeId::NUMERIC
        && let Some(number) = of_parameter(value)?
    {
        return Ok(number);
    }
    if id.element() == Some(TypeId::NUMERIC) {
        let texts = of_dimensions(DataType::new_list(DataType::Utf8View, true), dimensions_of(value));
        return match value.try_as_str() {
            Some(Some(_)) => of_list_parameter(&cast_value(value, &texts)?),
            _ => of_list_parameter(value),
        };
    }
    // A document may be one of the other type.
    match (value.try_as_str(), id) {
        (Some(Some(text)), TypeId::JSON) => {
            check_document(text).map_err(EngineError::from)?;
            return Ok(ScalarValue::LargeUtf8(Some(text.to_owned())));
        }
        (Some(Some(text)), TypeId::JSONB) => {
            let document = normalized(text).map_err(EngineError::from)?;
            return Ok(ScalarValue::LargeUtf8(Some(document.into_owned())));
        }
        _ => {}
    }
    let stored = stored_type(value, id).filter(|stored| value.data_type() != *stored);
    let Some(stored) = stored else { return Ok(value.clone()) };
    // A text is read as a quoted constant.
    if let Some(Some(text)) = value.try_as_str().filter(|_| type_of_arrow(&stored) != Some(TypeId::TEXT)) {
        match serac_binder::value_of_text(text, id) {
            Ok(Some(value)) => return Ok(value),
            Err(BindError::Statement(error)) => return Err(SqlError::new(error.sqlstate, error.message)),
            Ok(None) | Err(_) => {}
        }
    }
    cast_value(value, &stored)
}

/// The plan with these names of its columns.
///
/// # Errors
/// 42701 where two are the same.
pub(crate) fn under_names(plan: LogicalPlan, names: &Schema) -> Result<LogicalPlan> {
    let own = plan.schema().columns();
    if own.iter().zip(names.fields()).all(|(own, name)| own.relation.is_none() && own.name == *name.name()) {
        return Ok(plan);
    }
    let renamed = own.into_iter().zip(names.fields()).map(|(own, name)| Expr::Column(own).alias(name.name()));
    Ok(LogicalPlanBuilder::from(plan).project(renamed.collect::<Vec<_>>())?.build()?)
}

/// A query whose columns become a relation's.
///
/// # Errors
/// The errors of the query; 42701 if two of its columns have one name.
pub(crate) async fn of_relation(state: &SessionState, source: &Source) -> Result<RelationPlan> {
    let Bound { mut plan, names: columns, row, .. } = plan(state, source, true).await?;
    if let Some(column) = row {
        return Err(SqlError::unsupported(format!("the column \"{column}\" of rows")));
    }
    if source.is_without_data() {
        plan = LogicalPlanBuilder::from(plan).limit(0, Some(0))?.build()?;
    }
    let mut seen = HashSet::new();
    if let Some(again) = columns.fields().iter().find(|field| !seen.insert(field.name())) {
        let message = format!("column \"{}\" specified more than once", again.name());
        return Err(SqlError::new(sqlstate::DUPLICATE_COLUMN, message).named(again.name()));
    }
    let plan = under_names(plan, &columns)?;
    Ok(RelationPlan { plan, columns })
}

/// The types of the parameters of a prepared query or change.
///
/// # Errors
/// The errors of the statement.
pub(crate) async fn parameter_types(state: &SessionState, prepared: &Source) -> Result<Vec<TypeId>> {
    let shared = functions(state).shared().clone();
    Ok(bound_statement(state, &shared, prepared).await?.parameters)
}

/// The plan of a row with the arguments that the EXECUTE or CALL at `text` gives for parameters of
/// these types, and the types of the parameters in the arguments.
///
/// # Errors
/// The errors of the arguments.
pub(crate) fn bound_arguments(
    state: &SessionState,
    text: &Source,
    given: &[&Tree],
    types: &[TypeId],
) -> Result<(LogicalPlan, Vec<TypeId>)> {
    // They have no subqueries.
    let session = InSession::over_nothing(state, functions(state).shared());
    known(serac_binder::bind_arguments(&session, given, types, &text.types()), text)
}

/// The same plan with the values of the parameters.
///
/// # Errors
/// As there; 42P02 for a parameter without a value.
pub(crate) fn arguments(state: &SessionState, text: &Source, given: &[&Tree], types: &[TypeId]) -> Result<LogicalPlan> {
    let (plan, parameters) = bound_arguments(state, text, given, types)?;
    match parameters.is_empty() {
        true => Ok(plan),
        false => with_values(state, plan, &parameters, text.arguments().values.as_deref().unwrap_or_default()),
    }
}

/// The type that the statement at `source` names.
///
/// # Errors
/// 42704 if the type does not exist; 0A000 if it is not supported here.
pub(crate) fn named_type(name: &TypeName, source: &Source) -> Result<TypeId> {
    known(serac_binder::type_of(name), source)
}

/// A statement that changes or claims rows as it runs, or is described.
pub(crate) struct BoundWithNames {
    pub(crate) parts: Vec<BoundPart>,
    pub(crate) body: BoundBody,
    /// The columns of its result, with the shown names; empty if it has no result.
    pub(crate) names: SchemaRef,
    /// The types of its parameters.
    pub(crate) parameters: Vec<TypeId>,
}

impl BoundWithNames {
    /// The plan of its result.
    pub(crate) fn result(&self) -> Option<&LogicalPlan> {
        match &self.body {
            BoundBody::Query(plan, _) => Some(plan),
            BoundBody::Change(change) => change.returning().map(|returning| &returning.plan),
        }
    }

    /// Whether `is_such` holds for all expressions of its plans, except those of its parts.
    pub(crate) fn has_only(&mut self, is_such: impl Fn(&Expr) -> bool) -> bool {
        let plans = match &mut self.body {
            BoundBody::Query(plan, _) => vec![plan],
            BoundBody::Change(change) => change.plans_mut(),
        };
        let mut all = true;
        for plan in plans {
            let _ = plan.apply(|node| {
                node.apply_expressions(|expr| {
                    all = all && is_such(expr);
                    Ok(TreeNodeRecursion::Continue)
                })
            });
        }
        all
    }
}

/// A query that another statement has, and that changes or claims rows.
///
/// # Errors
/// The errors of the statement.
pub(crate) async fn acting_query(state: &SessionState, source: &Source) -> Result<BoundQuery> {
    let shared = functions(state).shared().clone();
    bound(state, &shared, source).await
}

/// A change, or a query that changes or claims rows, with the values of its parameters as far as
/// these are given.
///
/// # Errors
/// The errors of the statement, or of a parameter's value.
pub(crate) async fn statement(state: &SessionState, source: &Source, postgresql_names: bool) -> Result<BoundWithNames> {
    let shared = functions(state).shared().clone();
    let mut bound = bound_statement(state, &shared, source).await?;
    if let Some(values) = source.arguments().values.as_ref().filter(|_| !bound.parameters.is_empty()) {
        let parameters = bound.parameters.clone();
        for plan in bound.plans_mut() {
            *plan = with_values(state, plan.clone(), &parameters, values)?;
        }
    }
    Ok(named(bound, source, postgresql_names))
}

/// A statement with the names that its columns are shown under.
fn named(bound: BoundStatement, source: &Source, postgresql_names: bool) -> BoundWithNames {
    let BoundStatement { parts, body, parameters } = bound;
    let names = match &body {
        BoundBody::Query(plan, columns) => shown(plan, columns, source, postgresql_names),
        BoundBody::Change(change) => match change.returning() {
            Some(returning) => shown(&returning.plan, &returning.columns, source, postgresql_names),
            None => Arc::new(Schema::empty()),
        },
    };
    BoundWithNames { parts, body, names, parameters }
}

/// A query or a change that reads a single table, and no view, or a query that reads nothing, for
/// the point path: without the locking clause that it may have. `digits` are those of parameters
/// that are fixed numbers. `None` if it reads another relation, or has an error.
pub(crate) fn of_one_table(
    state: &SessionState,
    source: &Source,
    postgresql_names: bool,
    digits: Vec<Option<(u8, i8)>>,
) -> Option<BoundWithNames> {
    let shared = functions(state).shared().clone();
    let is_query = matches!(source.statement(), StatementKind::Query(_));
    let read = serac_binder::relations_of_statement(source.statement());
    let tables = InSession::over_nothing(state, &shared);
    if has_ctid(source) || read.len() > usize::from(is_query) || !read.iter().all(|name| tables.table(name).is_ok()) {
        return None;
    }
    // Tables are found without waiting.
    let session = InSession::knowing(state, &shared, source, read).now_or_never()?.ok()?;
    let session = InSession { digits, may_wait: false, ..session };
    let without_locks;
    let statement = match source.statement() {
        StatementKind::Query(query) if !query.locks.is_empty() => {
            without_locks = StatementKind::Query(Box::new(Query { locks: Vec::new(), ..query.as_ref().clone() }));
            &without_locks
        }
        statement => statement,
    };
    let mut bound = serac_binder::bind_statement(&session, statement, &source.types()).ok()?;
    settle(bound.plans_mut()).ok()?;
    bound.parts.is_empty().then(|| named(bound, source, postgresql_names))
}

/// The dimensions of the parameters of a statement with values; empty if no array has several.
/// Those with more than one have another Arrow type, and so the statement is bound for them.
fn dimensions_of_parameters(source: &Source) -> Vec<usize> {
    let values = source.arguments().values.as_deref().unwrap_or_default();
    let all: Vec<usize> = values.iter().map(dimensions_of).collect();
    if all.iter().all(|dimensions| *dimensions == 1) { Vec::new() } else { all }
}

async fn bound_statement(state: &SessionState, shared: &Arc<SessionEnv>, source: &Source) -> Result<BoundStatement> {
    if source.query().is_some() {
        return Ok(bound(state, shared, source).await?.into());
    }
    let statement = source.statement();
    let dimensions = dimensions_of_parameters(source);
    let kept = source.kept().filter(|_| dimensions.is_empty());
    if let Some(kept) = kept
        && let Some(bound) = kept.find(shared, &source.types())?
    {
        return Ok(bound);
    }
    let session = InSession::knowing(state, shared, source, serac_binder::relations_of_statement(statement)).await?;
    let session = InSession { dimensions, values: source.arguments().values.clone(), ..session };
    let mut bound = known(serac_binder::bind_statement(&session, statement, &source.types()), source)?;
    settle(bound.plans_mut())?;
    if let Some(kept) = kept {
        kept.keep(shared, source.types(), &bound)?;
    }
    Ok(bound)
}

/// Takes the marks of queries that are named once away.
///
/// # Errors
/// 0A000 if a query with volatile functions is named in plans that run one after the other.
fn settle(plans: Vec<&mut LogicalPlan>) -> Result<()> {
    let mut volatile = HashSet::new();
    for plan in plans {
        check_size(plan)?;
        if !shared::volatile_queries(plan)?.into_iter().all(|query| volatile.insert(query)) {
            return Err(SqlError::unsupported("a volatile query of WITH that several parts of a statement name"));
        }
        *plan = shared::settled(std::mem::take(plan))?;
    }
    Ok(())
}

/// The columns of a statement's result and its plans, line by line.
///
/// # Errors
/// The errors of the statement.
pub(crate) async fn lines(state: &SessionState, source: &Source) -> Result<Vec<String>> {
    let shared = functions(state).shared().clone();
    let columns = |columns: &[OutputColumn]| {
        let column = |column: &OutputColumn| format!("{} {}", quote(&column.name), column.id);
        format!("Columns: {}", columns.iter().map(column).collect::<Vec<_>>().join(", "))
    };
    let mut statement = bound_statement(state, &shared, source).await?;
    let mut lines = match &statement.body {
        BoundBody::Query(_, own) => vec![columns(own)],
        BoundBody::Change(change) => {
            change.returning().map(|returning| columns(&returning.columns)).into_iter().collect()
        }
    };
    for plan in statement.plans_mut() {
        lines.extend(logical_text(plan).lines().map(str::to_owned));
    }
    Ok(lines)
}

/// The bound statement, or its error with a position.
///
/// # Errors
/// The errors of the statement at `source`.
fn known<T>(bound: Result<T, BindError>, source: &Source) -> Result<T> {
    bound.map_err(|error| match error {
        BindError::Statement(error) => placed(error, source),
        BindError::Plan(error) => in_planner(error),
    })
}

/// A bound query.
///
/// # Errors
/// The errors of the query.
async fn bound(state: &SessionState, shared: &Arc<SessionEnv>, source: &Source) -> Result<BoundQuery> {
    let query = source.query().ok_or_else(|| SqlError::unsupported("a change in the place of a query"))?;
    let dimensions = dimensions_of_parameters(source);
    let kept = source.kept().filter(|_| dimensions.is_empty());
    if let Some(kept) = kept
        && let Some(BoundStatement { parts, body: BoundBody::Query(plan, columns), parameters }) =
            kept.find(shared, &source.types())?
    {
        return Ok(BoundQuery { parts, plan, columns, parameters });
    }
    let session = InSession::knowing(state, shared, source, serac_binder::relations(query)).await?;
    let values = source.arguments().values.clone();
    let session = InSession { dimensions, values, ..session.with_parts(source.parts()) };
    let mut bound = known(serac_binder::bind_query(&session, query, &source.types(), source.may_change()), source)?;
    settle(bound.parts.iter_mut().flat_map(BoundPart::plans_mut).chain([&mut bound.plan]).collect())?;
    if let Some(kept) = kept {
        let BoundQuery { parts, plan, columns, parameters } = bound.clone();
        kept.keep(
            shared,
            source.types(),
            &BoundStatement { parts, body: BoundBody::Query(plan, columns), parameters },
        )?;
    }
    Ok(bound)
}

/// An expression that stands in no query, over columns of `schema`.
///
/// # Errors
/// The errors of the expression.
pub(crate) fn definition(state: &SessionState, kept: &KeptExpression<'_>, schema: &DFSchema) -> Result<Definition> {
    let session = InSession::over_nothing(state, functions(state).shared());
    // An expression that the statement itself computes is not kept.
    let is_kept = !matches!(kept.place, Place::Transform | Place::CopyFilter);
    let style_of_constants = session.style_of_constants.clone().filter(|_| !is_kept);
    let session = InSession { style_of_constants, kept_at: is_kept.then_some(kept.place), ..session };
    definition_in(session, kept, schema).map(|(definition, _)| definition)
}

/// The text of an expression that a table keeps: its constants have the same meaning without the
/// session's settings of times.
///
/// # Errors
/// The errors of the expression; 0A000 for constants that cannot be written so.
pub(crate) fn usual_text(state: &SessionState, kept: &KeptExpression<'_>, schema: &DFSchema) -> Result<String> {
    let session = InSession::over_nothing(state, functions(state).shared());
    let session = InSession { kept_at: Some(kept.place), ..session };
    if session.style_of_constants.is_none() {
        return Ok(kept.text.to_owned());
    }
    let (_, constants) = definition_in(session, kept, schema)?;
    Ok(replaced(kept.text, replacements(kept.text, 0, constants)?))
}

/// The same for the query of a view, which stands at `span` in the text of its statement. Returns
/// the parts that are to be replaced, with their places in the query.
///
/// # Errors
/// As there.
pub(crate) async fn usual_constants(state: &SessionState, source: &Source, span: Span) -> Result<Vec<(Span, String)>> {
    let shared = functions(state).shared().clone();
    let Some(query) = source.query().filter(|_| shared.styled_functions().is_some()) else { return Ok(Vec::new()) };
    let session = InSession::knowing(state, &shared, source, serac_binder::relations(query)).await?;
    known(serac_binder::bind_query(&session, query, &source.types(), false), source)?;
    let text = &source.text()[span.start as usize..span.end as usize];
    replacements(text, span.start, session.constants.into_inner())
}

/// The texts that replace constants in a text that begins at `start`.
fn replacements(text: &str, start: u32, constants: Vec<StyledConstant>) -> Result<Vec<(Span, String)>> {
    let replacement = |StyledConstant { span, text: constant, usual }: StyledConstant| {
        let span = Span { start: span.start.saturating_sub(start), end: span.end.saturating_sub(start) };
        let written = text.get(span.start as usize..span.end as usize);
        if written != Some(&quoted(&constant)) {
            let what = format!("the constant \"{constant}\", under the session's settings, in what is kept");
            return Err(SqlError::unsupported(what));
        }
        Ok((span, quoted(&usual)))
    };
    let mut all = constants.into_iter().map(replacement).collect::<Result<Vec<_>>>()?;
    // A query may be bound twice.
    all.sort_by_key(|(span, _)| span.start);
    all.dedup();
    Ok(all)
}

/// A text as a constant in quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn definition_in(
    session: InSession<'_>,
    kept: &KeptExpression<'_>,
    schema: &DFSchema,
) -> Result<(Definition, Vec<StyledConstant>)> {
    let KeptExpression { text, place, table, column } = *kept;
    let column_of = |name: &str| table.and_then(|table| Some(&table.columns[table.column(name)?]));
    let types: Vec<_> = schema.fields().iter().map(|field| of_stored(field, column_of(field.name()))).collect();
    // A hidden column has the type that its expression had.
    let column = column
        .filter(|column| !column.hidden)
        .map(|column| (column.name.as_str(), Some(of_column(column.sql_type).id)));
    // A stored value does not depend on its reader.
    let is_stored = matches!(place, Place::Generation | Place::Index | Place::Predicate);
    let session = InSession { style: session.style.filter(|_| !is_stored), ..session };
    let table = table.map_or("", |table| table.name.as_str());
    let text = DefinitionText { text, place, table, schema, types: &types, column };
    let bound = serac_binder::bind_definition(&session, text).map_err(|error| match error {
        BindError::Statement(error) => told(error, None),
        BindError::Plan(error) => SqlError::from(error).unplaced(),
    });
    Ok((bound?, session.constants.into_inner()))
}

fn placed(error: StatementError, source: &Source) -> SqlError {
    let position = error.span.map(|span| source.line_and_column(span.start as usize));
    told(error, position)
}

fn told(error: StatementError, position: Option<(u32, u32)>) -> SqlError {
    let StatementError { sqlstate, message, hint, detail, .. } = error;
    // Messages quote their subject, except for functions, and columns with a qualifier.
    let qualified = || message.strip_prefix("column ")?.split(' ').next()?.rsplit('.').next();
    let called = || message.strip_prefix("function ")?.split('(').next();
    let name = message.split('"').nth(1).or_else(qualified).or_else(called).map(str::to_owned);
    SqlError { position, name, detail, hint: hint.map(Into::into), ..SqlError::new(sqlstate, message) }
}

/// The columns of the result with their types. Columns without a name get PostgreSQL's names, or
/// their text.
fn shown(plan: &LogicalPlan, columns: &[OutputColumn], source: &Source, postgresql_names: bool) -> SchemaRef {
    let schema = plan.schema().as_arrow();
    let name = |column: &OutputColumn| match column.text.filter(|_| !postgresql_names) {
        Some(span) => {
            let text = source.text().get(span.start as usize..span.end as usize);
            text.unwrap_or(&column.name).to_owned()
        }
        None => column.name.clone(),
    };
    let fields = schema.fields().iter().zip(columns);
    let field = |(field, column): (&FieldRef, &OutputColumn)| {
        let field = field_of(field.as_ref().clone().with_name(name(column)), column.modified_type());
        match column.origin {
            Some(ColumnOrigin { relation, column }) => with_origin(field, relation, column),
            None => field,
        }
    };
    let fields: Vec<Field> = fields.map(field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The meaning of names in a session.
struct InSession<'s> {
    names: Names<'s>,
    shared: Arc<SessionEnv>,
    /// The relations of finished parts, from the next one on.
    parts: RefCell<VecDeque<Arc<dyn TableSource>>>,
    /// The digits of NUMERIC parameters that are fixed numbers.
    digits: Vec<Option<(u8, i8)>>,
    /// The values of the statement's parameters, as far as they are given.
    values: Option<Arc<[ScalarValue]>>,
    /// The place of an expression that the database keeps.
    kept_at: Option<Place>,
    /// Whether it is bound on a thread that may wait for a disk.
    may_wait: bool,
    /// Whether the statement may name the places of rows: tables have them.
    has_ctid: bool,
    /// The dimensions of parameters that are arrays, or texts of them; empty if all have one.
    dimensions: Vec<usize>,
    /// Why one cannot be read, too: a query of WITH may have its name.
    relations: HashMap<Vec<String>, Result<Relation>>,
    /// The frames of the program that the statement names.
    frames: RefCell<HashMap<String, Relation>>,
    /// The functions for the session's settings of times; `None` for the default settings.
    style: Option<StyledFunctions>,
    /// The same for constants. Tables and views keep constants in the form of the default settings.
    style_of_constants: Option<StyledFunctions>,
    /// Constants with another meaning without the settings.
    constants: RefCell<Vec<StyledConstant>>,
}

/// A quoted constant with another meaning without the settings of the session.
#[derive(Clone, Debug)]
pub(crate) struct StyledConstant {
    /// The place of the constant.
    span: Span,
    /// The text between its quotes.
    text: String,
    /// The text that says the same without settings.
    usual: String,
}

fn key(name: &Name) -> Vec<String> {
    name.parts.iter().map(|part| part.name.clone()).collect()
}

impl<'s> InSession<'s> {
    /// An environment without relations.
    fn over_nothing(state: &'s SessionState, shared: &Arc<SessionEnv>) -> Self {
        let style = shared.styled_functions();
        Self {
            style_of_constants: style.clone().filter(|_| owner_planned_for().is_none()),
            style,
            constants: RefCell::default(),
            names: Names::new(state),
            shared: shared.clone(),
            parts: RefCell::default(),
            digits: Vec::new(),
            values: None,
            kept_at: None,
            may_wait: true,
            has_ctid: false,
            dimensions: Vec::new(),
            relations: HashMap::new(),
            frames: RefCell::default(),
        }
    }

    /// An environment with the relations of these names that exist, for the statement at `source`.
    async fn knowing(
        state: &'s SessionState,
        shared: &Arc<SessionEnv>,
        source: &Source,
        names: Vec<Name>,
    ) -> Result<Self> {
        let mut session = Self { has_ctid: has_ctid(source), ..Self::over_nothing(state, shared) };
        for name in names {
            deep::check()?;
            session.find(&name).await;
        }
        Ok(session)
    }

    /// The same with finished parts of the statement, whose rows are in these relations.
    fn with_parts(self, parts: &[Arc<dyn TableSource>]) -> Self {
        Self { parts: RefCell::new(parts.iter().cloned().collect()), ..self }
    }

    /// The expression that computes the number of a catalog object, or its name.
    fn registered(&self, function: &str, kind: TypeId, object: &Expr) -> Option<Expr> {
        let function = self.names.scalar(function)?;
        Some(function.call(vec![lit(kind.name()), object.clone()]))
    }

    /// The statement's snapshot.
    ///
    /// # Errors
    /// 57014 if it has ended: it was cancelled, and this binding is abandoned.
    fn view(&self) -> Result<StatementSnapshot> {
        self.shared.view().ok_or_else(cancelled)
    }

    /// The table with a name, whose rows are to be changed.
    fn table(&self, name: &Name) -> Result<Arc<Table>> {
        let view = self.view()?;
        let (schema, name) = view.locate(name)?;
        if schema != TEMPORARY_SCHEMA {
            view.access.check_usage(&schema)?;
        }
        match view.of(&schema).0.table(&schema, &name) {
            Err(EngineError::OtherKind { kind: "view", .. }) => {
                Err(SqlError::unsupported(format!("a change of view \"{name}\"")))
            }
            Err(EngineError::OtherKind { kind: "foreign table", .. }) => {
                Err(SqlError::unsupported(format!("a change of foreign table \"{name}\"")))
            }
            table => Ok(table?.clone()),
        }
    }

    /// The program's frame of a name; `None` if there is none, or if it is not looked for: in a
    /// view, or on a thread that may not wait.
    fn frame(&self, name: &Name) -> Result<Option<Relation>> {
        let [only] = &name.parts[..] else { return Ok(None) };
        if !self.may_wait || owner_planned_for().is_some() {
            return Ok(None);
        }
        let key = &only.name;
        if let Some(known) = self.frames.borrow().get(key) {
            return Ok(Some(known.clone()));
        }
        let Some(table) = frame_table(&self.shared, key)? else { return Ok(None) };
        let found = relation(Arc::new(table), TableReference::bare(key.as_str()), || 0);
        self.frames.borrow_mut().insert(key.clone(), found.clone());
        Ok(Some(found))
    }

    /// Looks a relation up. A missing relation is unknown to the binder.
    async fn find(&mut self, name: &Name) {
        let key = key(name);
        let reference = match &key[..] {
            [table] => TableReference::bare(table.as_str()),
            [schema, table] => TableReference::partial(schema.as_str(), table.as_str()),
            [catalog, schema, table] => TableReference::full(catalog.as_str(), schema.as_str(), table.as_str()),
            _ => return,
        };
        if self.relations.contains_key(&key) {
            return;
        }
        let resolved = self.names.resolved(reference.clone());
        let Ok(schema) = self.names.state().schema_for_ref(resolved.clone()) else { return };
        let found = schema.table(&resolved.table).await.transpose();
        if let Some(found) = found {
            let number = || number_of(&self.shared, &resolved.schema, &resolved.table);
            let found = found.map(|provider| {
                let table = provider.downcast_ref::<SeracTable>().filter(|_| self.has_ctid);
                let provider = table.map_or(provider.clone(), |table| Arc::new(table.with_ctid()));
                relation(provider, reference, number)
            });
            self.relations.insert(key, found.map_err(SqlError::from));
        }
    }
}

/// Whether the text of a statement has the word `ctid`; `productid` is another one.
fn has_ctid(source: &Source) -> bool {
    let is_of_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
    source.text_of_statement().split(|c: char| !is_of_word(c)).any(|word| word.eq_ignore_ascii_case(CTID_COLUMN))
}

/// The number of a relation that is no table, by its name.
fn number_of(shared: &SessionEnv, schema: &str, name: &str) -> u32 {
    let Some(view) = shared.view().filter(|_| schema == SEARCH_PATH) else { return relation_number(schema, name) };
    relation_number(schema_in_path(&view, name), name)
}

/// The schema of the search path in which the resolver finds a relation.
fn schema_in_path<'v>(view: &'v StatementSnapshot, name: &str) -> &'v str {
    let schema = if owner_planned_for().is_some() { DEFAULT_SCHEMA } else { view.schema_of(name) };
    let is_system = schema != TEMPORARY_SCHEMA && system_table::is_table(CATALOG_SCHEMA, name);
    if is_system { CATALOG_SCHEMA } else { schema }
}

/// A table or a view. `number` gives that of a relation that is no table.
fn relation(provider: Arc<dyn TableProvider>, name: TableReference, number: impl FnOnce() -> u32) -> Relation {
    let schema = columns_of(&provider);
    let definition = provider.downcast_ref::<SeracTable>().map(|table| &table.table().definition);
    let shown = definition.map_or(schema.fields().len(), |definition| definition.visible_columns().len());
    let column = |at: usize| definition.and_then(|definition| definition.visible_columns().get(at));
    let types =
        schema.fields().iter().take(shown).enumerate().map(|(at, field)| of_stored(field, column(at))).collect();
    let mut key = Vec::new();
    if let Some(definition) = definition {
        key = definition.primary_key().filter(|key| key.constraint).map_or_else(Vec::new, |key| key.columns.clone());
    }
    let number = definition.map_or_else(number, table_number);
    let ctid = schema.fields().iter().rposition(|field| field.name() == CTID_COLUMN).filter(|at| *at >= shown);
    let has_system_columns = !is_view(&provider);
    Relation { source: provider_as_source(provider), name, types, key, number, ctid, has_system_columns }
}

/// The error of a part of the statement.
fn at_span(error: SqlError, span: Span) -> BindError {
    let SqlError { sqlstate, message, detail, .. } = error;
    let wrong = BindError::new(sqlstate, message, span);
    match detail {
        Some(detail) => wrong.detailed(detail),
        None => wrong,
    }
}

impl InSession<'_> {
    /// The Arrow type of an expression that is cast to a type. An array keeps its dimensions; those
    /// of a text are known if it is a constant or a parameter.
    fn cast_type(&self, expr: &Expr, to: TypeId, schema: &DFSchema) -> Result<Option<DataType>, BindError> {
        let Some(stored) = arrow_type(to) else { return Ok(None) };
        if !is_list(&stored) || to.is_vector() {
            return Ok(Some(stored));
        }
        let dimensions = match expr {
            Expr::Literal(value, _) => dimensions_of(value),
            Expr::Placeholder(parameter) => {
                let number = parameter.id.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
                number.and_then(|number| self.dimensions.get(number.checked_sub(1)?)).copied().unwrap_or(1)
            }
            other => dimensions(&other.get_type(schema)?),
        };
        Ok(Some(of_dimensions(stored, dimensions)))
    }

    /// A quoted constant by the session's settings; `None` if they do not count.
    fn styled_constant(&self, text: &str, to: &DataType, span: Span) -> Result<Option<Expr>, BindError> {
        let Some(style) = &self.style_of_constants else { return Ok(None) };
        let wrong = |error: SqlError| at_span(error, span);
        let Some(value) = style.read(text, to).map_err(wrong)? else { return Ok(None) };
        let usual = StyledFunctions(TimeStyle::usual().clone());
        let as_usual = usual.read(text, to).ok().flatten();
        if as_usual.as_ref() != Some(&value) {
            let shown = styled_texts(&value.to_array()?, TimeStyle::usual()).map_err(wrong)?;
            let usual = shown.as_string_view().value(0).to_owned();
            self.constants.borrow_mut().push(StyledConstant { span, text: text.to_owned(), usual });
        }
        Ok(Some(Expr::Literal(value, None)))
    }

    /// A function with the session's settings, where it depends on them.
    fn styled(&self, name: &str, function: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
        // An interval with fields is a constant.
        let style = if name == "interval_modified" { &self.style_of_constants } else { &self.style };
        style.as_ref().and_then(|style| style.scalar(name, &function)).unwrap_or(function)
    }
}

impl Environment for InSession<'_> {
    fn relation(&self, name: &Name) -> Result<Relation, BindError> {
        match self.relations.get(&key(name)) {
            Some(Ok(relation)) => Ok(relation.clone()),
            Some(Err(error)) => Err(BindError::Plan(error.clone().external())),
            None => self.frame(name).map_err(|error| at_span(error, name.span))?.ok_or_else(|| {
                BindError::new(sqlstate::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"), name.span)
            }),
        }
    }

    fn schema_of(&self, name: &Ident) -> Option<String> {
        self.shared.view().map(|view| schema_in_path(&view, &name.name).to_owned())
    }

    fn target(&self, name: &Name) -> Result<Target, BindError> {
        let table = self.table(name).map_err(|error| match error.sqlstate {
            sqlstate::UNDEFINED_TABLE | sqlstate::INVALID_SCHEMA_NAME if system_table::is_named(name) => {
                let message = format!("a change of system table \"{name}\" is not supported");
                BindError::new(sqlstate::FEATURE_NOT_SUPPORTED, message, name.span)
            }
            sqlstate::UNDEFINED_TABLE if matches!(self.frame(name), Ok(Some(_))) => {
                let message = format!("\"{name}\" is a frame of the program, which is only read");
                BindError::new(sqlstate::WRONG_OBJECT_TYPE, message, name.span)
            }
            sqlstate::UNDEFINED_TABLE => BindError::new(sqlstate::UNDEFINED_TABLE, error.message, name.span),
            _ => BindError::Plan(error.external()),
        })?;
        let view = self.view().map_err(|error| BindError::Plan(error.external()))?;
        let hidden = HiddenColumns { ctid: self.has_ctid, ..HiddenColumns::ROW_ID };
        let provider = Arc::new(self.shared.provider(&view, &table, hidden));
        let relation = relation(provider, TableReference::bare(TARGET), || 0);
        let definition = &table.definition;
        let generation = |column: &ColumnDefinition| match column {
            ColumnDefinition { generation: Some(_), .. } => Generation::Expression,
            ColumnDefinition { always_generated: true, .. } => Generation::Identity,
            _ => Generation::No,
        };
        let generations = definition.visible_columns().iter().map(generation).collect();
        let unique = table.indexes.iter().map(|index| &index.definition).filter(|index| index.unique);
        let index = |index: &KeyDefinition| {
            let part = |(at, column): (usize, &usize)| match index.expressions.get(at) {
                Some(Some(text)) => IndexPart::Expression(text.clone()),
                _ => IndexPart::Column(*column),
            };
            let parts = index.columns.iter().enumerate().map(part).collect();
            let (name, predicate) = (index.name.clone(), index.predicate.clone());
            UniqueIndex { name, is_constraint: index.constraint, parts, predicate }
        };
        Ok(Target { relation, name: table.name().to_owned(), generations, indexes: unique.map(index).collect() })
    }

    fn rows_to_come(&self, schema: SchemaRef, target: Option<&Target>) -> Arc<dyn TableSource> {
        // A statement is bound the same way again.
        if target.is_none()
            && let Some(done) = self.parts.borrow_mut().pop_front()
        {
            return done;
        }
        let rows: Arc<dyn TableProvider> = Arc::new(RowsToCome::new(schema));
        let provider = match target.map(|target| source_as_provider(&target.relation.source)) {
            Some(Ok(provider)) => Some(provider),
            _ => None,
        };
        let table = provider.as_ref().and_then(|provider| provider.downcast_ref::<SeracTable>());
        let (Some(table), Some(view)) = (table, self.shared.view()) else { return provider_as_source(rows) };
        let columns = match target_columns(&view.access, table.table()) {
            Columns::All => return provider_as_source(rows),
            // Values for the columns behind those that users see come from the statement.
            Columns::Some(columns) => {
                let visible = table.table().definition.visible_columns().len();
                Columns::Some(columns.iter().copied().take(visible).collect())
            }
            Columns::None => Columns::None,
        };
        provider_as_source(Arc::new(Readable { rows, columns, table: table.table().name().into() }))
    }

    fn digits_of_parameters(&self) -> Vec<Option<(u8, i8)>> {
        self.digits.clone()
    }

    fn type_of_field(&self, field: &Field) -> Option<ModifiedType> {
        told_type(field).map(|(id, modifier)| ModifiedType { id: TypeId(id), modifier })
    }

    fn dimensions_of_parameters(&self) -> Vec<usize> {
        self.dimensions.clone()
    }

    fn scalar(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        Some(self.styled(name, self.names.scalar(name)?))
    }

    fn aggregate(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.names.aggregate(name)
    }

    fn scalar_of(&self, name: &str, signature: &Signature) -> Option<Arc<ScalarUDF>> {
        let is_known = match name {
            "to_char" => true,
            // The digits of its results are those of a pattern.
            "to_number" => true,
            "round" | "trunc" => signature.arguments == [TypeId::FLOAT8],
            _ => false,
        };
        self.scalar(name).filter(|_| is_known)
    }

    fn date_part(&self, field: &str, is_extract: bool) -> Option<TimeField> {
        let (name, argument) = serac_functions::date_part_function(field, is_extract);
        let function = self.names.scalar(name)?;
        let function = match &self.style {
            Some(style) => style.date_part(argument.as_deref(), function),
            None => function,
        };
        Some(TimeField { function, argument, is_endless: is_endless_part(field) })
    }

    fn cast_by_settings(
        &self,
        expr: &Expr,
        from: TypeId,
        to: TypeId,
        span: Span,
        schema: &DFSchema,
    ) -> Result<Option<Expr>, BindError> {
        if self.style.is_none() && self.style_of_constants.is_none() {
            return Ok(None);
        }
        let Some(stored) = self.cast_type(expr, to, schema)? else { return Ok(None) };
        if from != TypeId::UNKNOWN {
            let is_known = arrow_type(from).is_some() && from != TypeId::UUID && to != TypeId::JSON;
            let style = self.style.as_ref().filter(|_| is_known && !is_registered(from) && !is_registered(to));
            return Ok(style.map(|style| style.cast(expr, &stored, schema)).transpose()?.flatten());
        }
        // Each element of an array is read for itself.
        let Expr::Literal(value, _) = expr else { return Ok(None) };
        let Some(text) = value.try_as_str().flatten().filter(|_| to.element().is_none()) else { return Ok(None) };
        if let Some(constant) = self.styled_constant(text, &stored, span)? {
            return Ok(Some(constant));
        }
        // `today` and its kin are read when the statement runs.
        let style = self.style.as_ref().filter(|_| is_time(&stored) && is_relative(text));
        Ok(style.map(|style| style.cast(expr, &stored, schema)).transpose()?.flatten())
    }

    fn cast(&self, expr: &Expr, from: TypeId, to: TypeId, schema: &DFSchema) -> Result<Option<Expr>, BindError> {
        let is_text = |id| matches!(id, TypeId::UNKNOWN | TypeId::TEXT | TypeId::VARCHAR | TypeId::BPCHAR);
        if is_registered(to) && is_text(from) {
            return Ok(self.registered("pg_reg_oid", to, expr));
        }
        if is_registered(from) && is_text(to) {
            return Ok(self
                .registered("pg_reg_text", from, expr)
                .zip(arrow_type(to))
                .map(|(name, text)| cast(name, text)));
        }
        if let Some(element) = from.element().filter(|element| is_registered(*element)) {
            let names = self.registered("pg_reg_texts", element, expr);
            return match to.element() {
                _ if is_text(to) => {
                    let texts = TypeId::TEXT.array().and_then(arrow_type);
                    Ok(names
                        .zip(texts)
                        .zip(arrow_type(to))
                        .map(|((names, texts), text)| cast(cast(names, texts), text)))
                }
                Some(TypeId::TEXT | TypeId::VARCHAR) => {
                    Ok(names.zip(arrow_type(to)).map(|(names, texts)| cast(names, texts)))
                }
                Some(other) if is_registered(other) || other == TypeId::OID => Ok(Some(expr.clone())),
                _ => Ok(None),
            };
        }
        if to == TypeId::UUID && is_text(from) {
            return Ok(self.names.scalar("uuid_in").map(|read| read.call(vec![expr.clone()])));
        }
        if from == TypeId::UUID && is_text(to) {
            let write = self.names.scalar("uuid_out");
            return Ok(write.zip(arrow_type(to)).map(|(write, text)| cast(write.call(vec![expr.clone()]), text)));
        }
        // Arrow makes JSONB of texts, and does not distinguish JSON from it.
        let by = |name: &str| Ok(self.names.scalar(name).map(|function| function.call(vec![expr.clone()])));
        match (from.element().unwrap_or(from), to.element().unwrap_or(to)) {
            (TypeId::JSON, TypeId::JSONB) if from == TypeId::JSON => return by("json_jsonb"),
            (_, TypeId::JSON) if to == TypeId::JSON && is_text(from) => return by("json_in"),
            (TypeId::JSONB, TypeId::JSON) => {}
            (TypeId::JSON, TypeId::JSONB) | (_, TypeId::JSON) => return Ok(None),
            _ => {}
        }
        // The pass `casts` makes functions of those that Arrow does by other rules.
        let is_uuid = from == TypeId::UUID || to == TypeId::UUID;
        let from_stored =
            from == TypeId::UNKNOWN || from.element() == Some(TypeId::NUMERIC) || arrow_type(from).is_some();
        let stored = self.cast_type(expr, to, schema)?.filter(|_| from_stored && !is_uuid);
        // A constant without a type is read at once; the text of a text constant is read when it is
        // reached.
        let late = |stored: &DataType| (from != TypeId::UNKNOWN).then(|| cast_of_text(expr, stored)).flatten();
        Ok(stored.map(|stored| late(&stored).unwrap_or_else(|| cast(expr.clone(), stored))))
    }

    fn window(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.names.window(name)
    }

    fn has_table_function(&self, name: &str) -> bool {
        self.names.has_table_function(name)
    }

    fn table_function(&self, name: &str, arguments: &[Expr]) -> Result<Option<Relation>, BindError> {
        if !self.names.has_table_function(name) {
            return Ok(None);
        }
        let source = self.names.table_function(name, arguments.to_vec())?;
        Ok(Some(relation(source_as_provider(&source)?, TableReference::bare(name), || 0)))
    }

    fn lent_function(&self, name: &str, span: Span) -> Result<Option<LentFunction>, BindError> {
        // A view has none: its reader's are not meant.
        if owner_planned_for().is_some() {
            return Ok(None);
        }
        let Some(function) = lent_calls::lent_function(&self.shared, name) else { return Ok(None) };
        let refused = |what: &str| {
            let message = format!("function {name} of the program is not supported in {what}");
            Err(BindError::new(sqlstate::FEATURE_NOT_SUPPORTED, message, span))
        };
        match self.kept_at {
            Some(place) => refused(place.clause()),
            // Compiled statements call functions in the middle of the storage's work.
            None if !self.may_wait => refused("compiled statements"),
            None => {
                let computed_by = lent_calls::implementation(&self.shared, &function);
                Ok(Some(LentFunction { signature: function.signature.clone(), computed_by }))
            }
        }
    }

    fn lent_rows(&self, name: &str, arguments: &[Expr], span: Span) -> Result<Relation, BindError> {
        let Some(function) = lent_calls::lent_function(&self.shared, name) else {
            let message = format!("function {name} does not exist");
            return Err(BindError::new(sqlstate::UNDEFINED_FUNCTION, message, span));
        };
        let table = lent_calls::rows(self.names.state(), &self.shared, &function, arguments, self.values.as_deref());
        let table = table.map_err(|error| at_span(error, span))?;
        Ok(relation(Arc::new(table), TableReference::bare(name), || 0))
    }

    fn reads_files(&self, name: &str) -> bool {
        files::reads_files(name)
    }

    fn files(&self, call: &FileCall<'_>) -> Result<Relation, BindError> {
        if !self.may_wait {
            return Err(BindError::new(sqlstate::FEATURE_NOT_SUPPORTED, "files are not looked at here", call.span));
        }
        let found = self.view().and_then(|view| files::files(self.names.state(), &self.shared, &view, call));
        match found {
            Ok(table) => Ok(relation(Arc::new(table), TableReference::bare(call.function.unwrap_or("file")), || 0)),
            Err(error) => Err(at_span(error, call.span)),
        }
    }

    fn work_table(&self, name: &str, schema: SchemaRef) -> Option<Arc<dyn TableSource>> {
        Some(provider_as_source(Arc::new(CteWorkTable::new(name, schema))))
    }

    fn shared_query(&self, name: &str, plan: &LogicalPlan, sharing: Sharing) -> Option<LogicalPlan> {
        let sharing = match sharing {
            Sharing::Worthwhile => shared::Sharing::Worthwhile,
            Sharing::Always => shared::Sharing::Always,
        };
        Some(shared::shared(name, plan.clone(), sharing))
    }

    fn operate(&self, operator: Operator, left: Expr, right: Expr, schema: &DFSchema) -> Result<Expr, BindError> {
        if let Some(style) = &self.style
            && let Some(operated) = style.operate(operator, &left, &right, schema)?
        {
            return Ok(operated);
        }
        Ok(serac_functions::operate(operator, left, right, schema)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Session, SqlDatabase, SqlOptions};
    use serac_engine::Database;

    /// A statement that was cancelled has ended while it is still bound on another thread.
    #[tokio::test]
    async fn what_is_bound_for_a_statement_that_has_ended_is_cancelled() {
        let db = SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions::default()).unwrap();
        let mut session = Session::new(&db);
        session.execute("CREATE TABLE t (a INT)").await.unwrap();
        for sql in ["INSERT INTO t VALUES (1)", "UPDATE t SET a = 1", "DELETE FROM t"] {
            let parsed = crate::parse(sql).unwrap().remove(0);
            let bound = statement(&session.state(), parsed.source(), false).await;
            assert_eq!(bound.err().map(|error| error.sqlstate), Some(sqlstate::QUERY_CANCELED), "{sql}");
        }
    }
}
