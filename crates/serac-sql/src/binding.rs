//! The binder's way from a query's tree to its plan ([`serac_binder`]).
//!
//! It is taken by queries that the binder understands whole; all others are planned from sqlparser's
//! tree ([`crate::query::plan`]). What a query means is decided once: where it was described, it is
//! planned the same way when it runs.

use crate::catalog::Shared;
use crate::dml::TARGET;
use crate::error::{Result, SqlError};
use crate::parsed::Source;
use crate::planner::{Names, check_size, functions};
use crate::scan::{ROW_ID_COLUMN, SeracTable};
use crate::{deep, same_names};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::planner::{ContextProvider, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    AggregateUDF, BinaryExpr, Expr, LogicalPlan, LogicalPlanBuilder, Operator, ScalarUDF, TableSource, WindowUDF, cast,
    lit,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use serac_binder::{
    BindError, BoundChange, BoundQuery, Environment, OutputColumn, Relation, StatementError, arrow_type, is_registered,
    type_of_arrow,
};
use serac_engine::Table;
use serac_parser::tree::Name;
use serac_pg::TypeId;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The pass's name, as sessions switch it off.
pub(crate) const BIND: &str = "bind";

/// How many queries of a session have been planned, by the way that they have gone.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    bound: AtomicU64,
    other: AtomicU64,
}

impl Ways {
    fn note(&self, is_bound: bool) {
        let count = if is_bound { &self.bound } else { &self.other };
        // Relaxed: the session's own statements count, and nothing hangs on it.
        count.fetch_add(1, Ordering::Relaxed);
    }
    /// By the binder, and the other way.
    pub(crate) fn counts(&self) -> (u64, u64) {
        // Relaxed: as in `note`.
        (self.bound.load(Ordering::Relaxed), self.other.load(Ordering::Relaxed))
    }
}

/// A query's plan, by the binder.
pub(crate) struct Bound {
    pub(crate) plan: LogicalPlan,
    /// The columns of its result, with the names that are shown.
    pub(crate) names: SchemaRef,
    /// The types of its parameters.
    pub(crate) parameters: Vec<TypeId>,
}

/// The plan of a query; none where the binder does not know it whole.
///
/// # Errors
/// What is wrong with the query, or with a value of a parameter.
pub(crate) async fn plan(
    state: &SessionState,
    source: Option<&Source>,
    postgresql_names: bool,
) -> Result<Option<Bound>> {
    let planned = planned(state, source, &[]).await?;
    functions(state).shared().ways.note(planned.is_some());
    let Some((query, source)) = planned else { return Ok(None) };
    let names = shown(&query, source, postgresql_names);
    let BoundQuery { plan, parameters, .. } = query;
    Ok(Some(Bound { plan, names, parameters }))
}

/// A bound query with the values of its parameters, as far as these are given.
async fn planned<'s>(
    state: &SessionState,
    source: Option<&'s Source>,
    targets: &[TypeId],
) -> Result<Option<(BoundQuery, &'s Source)>> {
    let shared = functions(state).shared().clone();
    let source = source.filter(|_| !shared.disabled_passes.read().contains(&BIND));
    let bound = match source {
        Some(source) => bound(state, &shared, source, targets).await?.ok(),
        None => None,
    };
    let (Some(mut query), Some(source)) = (bound, source) else { return Ok(None) };
    if let Some(values) = source.arguments().values.as_ref().filter(|_| !query.parameters.is_empty()) {
        query.plan = with_values(query.plan, &query.parameters, values)?;
    }
    Ok(Some((query, source)))
}

/// The plan with values in the place of its parameters.
fn with_values(plan: LogicalPlan, types: &[TypeId], values: &[ScalarValue]) -> Result<LogicalPlan> {
    let mut given = Vec::with_capacity(types.len());
    for (at, id) in types.iter().enumerate() {
        let missing = || SqlError::new("42P02", format!("there is no parameter ${}", at + 1));
        let value = values.get(at).ok_or_else(missing)?;
        given.push(as_stored(value, *id)?);
    }
    Ok(plan.with_param_values(given)?)
}

/// The value of a parameter as one of its type.
fn as_stored(value: &ScalarValue, id: TypeId) -> Result<ScalarValue> {
    let Some(stored) = arrow_type(id).filter(|stored| value.data_type() != *stored) else { return Ok(value.clone()) };
    // A text says what a quoted constant says.
    if let Some(Some(text)) = value.try_as_str().filter(|_| type_of_arrow(&stored) != Some(TypeId::TEXT)) {
        match serac_binder::value_of_text(text, id) {
            Ok(value) => return Ok(value),
            Err(BindError::Statement(error)) => return Err(SqlError::new(error.sqlstate, error.message)),
            Err(_) => {}
        }
    }
    Ok(value.cast_to(&stored)?)
}

/// The plan of a query whose columns become those of a relation, with their names; none where the
/// binder does not know it whole.
///
/// # Errors
/// What is wrong with the query; 42701 where two of its columns have one name.
pub(crate) async fn of_relation(state: &SessionState, source: Option<&Source>) -> Result<Option<LogicalPlan>> {
    let Some(Bound { mut plan, names, .. }) = plan(state, source, true).await? else { return Ok(None) };
    if source.is_some_and(Source::is_without_data) {
        plan = LogicalPlanBuilder::from(plan).limit(0, Some(0))?.build()?;
    }
    let mut seen = HashSet::new();
    if let Some(again) = names.fields().iter().find(|field| !seen.insert(field.name())) {
        let message = format!("column \"{}\" specified more than once", again.name());
        return Err(SqlError::new("42701", message).named(again.name()));
    }
    let own = plan.schema().columns();
    if own.iter().zip(names.fields()).all(|(own, shown)| own.relation.is_none() && own.name == *shown.name()) {
        return Ok(Some(plan));
    }
    let renamed = own.into_iter().zip(names.fields()).map(|(own, shown)| Expr::Column(own).alias(shown.name()));
    Ok(Some(LogicalPlanBuilder::from(plan).project(renamed.collect::<Vec<_>>())?.build()?))
}

/// A query whose rows go into columns of the types `targets`; none where the binder does not know it
/// whole.
///
/// # Errors
/// As for [`plan`].
pub(crate) async fn of_rows(
    state: &SessionState,
    source: Option<&Source>,
    targets: &[TypeId],
) -> Result<Option<BoundQuery>> {
    let planned = planned(state, source, targets).await?;
    if planned.is_some() {
        functions(state).shared().ways.note(true);
    }
    Ok(planned.map(|(query, _)| query))
}

/// The types of a prepared query's parameters, and the plan of a row with the arguments that the
/// EXECUTE at `text` gives for them; none where the binder does not know both whole.
///
/// # Errors
/// What is wrong with them.
pub(crate) async fn arguments(
    state: &SessionState,
    query: &Source,
    text: &Source,
) -> Result<Option<(Vec<TypeId>, LogicalPlan)>> {
    let shared = functions(state).shared().clone();
    let given = text.given().filter(|_| !shared.disabled_passes.read().contains(&BIND));
    let Some(given) = given else { return Ok(None) };
    let Ok(BoundQuery { parameters, .. }) = bound(state, &shared, query, &[]).await? else { return Ok(None) };
    // They have no subqueries.
    let session = InSession { names: Names::new(state), relations: HashMap::new() };
    let plan = known(serac_binder::bind_arguments(&session, given, &parameters), text)?;
    Ok(plan.ok().map(|plan| (parameters, plan)))
}

/// The rows of a table that an UPDATE or a DELETE changes; none where the binder does not know it
/// whole.
///
/// # Errors
/// What is wrong with it, or with a value of a parameter.
pub(crate) async fn change(state: &SessionState, source: &Source, target: &Arc<Table>) -> Result<Option<BoundChange>> {
    let shared = functions(state).shared().clone();
    let statement = source.statement().filter(|_| !shared.disabled_passes.read().contains(&BIND));
    let (Some(statement), Some(view)) = (statement, shared.view()) else { return Ok(None) };
    let session = InSession::knowing(state, &shared, serac_binder::relations_beside(statement)).await?;
    let provider = Arc::new(shared.provider(&view, target, true));
    let target = relation(provider, TableReference::bare(TARGET));
    let bound = serac_binder::bind_change(&session, statement, &target, &source.types());
    let bound = known(bound, source)?;
    shared.ways.note(bound.is_ok());
    let Ok(mut bound) = bound else { return Ok(None) };
    check_size(&bound.plan)?;
    if let Some(values) = source.arguments().values.as_ref().filter(|_| !bound.parameters.is_empty()) {
        bound.plan = with_values(bound.plan, &bound.parameters, values)?;
    }
    Ok(Some(bound))
}

/// What has been bound, or what of it the binder does not know.
fn known<T>(bound: Result<T, BindError>, source: &Source) -> Result<Result<T, &'static str>> {
    match bound {
        Ok(bound) => Ok(Ok(bound)),
        Err(BindError::Statement(error)) => Err(placed(error, source)),
        Err(BindError::Unknown(what)) => Ok(Err(what)),
        // Of a relation that is read.
        Err(BindError::Plan(error @ DataFusionError::External(_))) => Err(error.into()),
        // The other way says what is wrong, if something is.
        Err(BindError::Plan(_)) => Ok(Err("what the planner refuses")),
    }
}

/// A bound query, or what of it the binder does not know.
///
/// # Errors
/// What is wrong with it.
pub(crate) async fn bound(
    state: &SessionState,
    shared: &Arc<Shared>,
    source: &Source,
    targets: &[TypeId],
) -> Result<Result<BoundQuery, &'static str>> {
    let Some(query) = source.query() else { return Ok(Err("this grammar")) };
    let session = InSession::knowing(state, shared, serac_binder::relations(query)).await?;
    let bound = match known(serac_binder::bind_query(&session, query, &source.types(), targets), source)? {
        Ok(bound) => bound,
        unknown => return Ok(unknown),
    };
    check_size(&bound.plan)?;
    Ok(if has_subquery_in_values(&bound.plan)? { Err("a subquery in VALUES") } else { Ok(bound) })
}

/// Whether VALUES have a subquery, which DataFusion does not compute there.
fn has_subquery_in_values(plan: &LogicalPlan) -> Result<bool> {
    let mut has = false;
    plan.apply_with_subqueries(|plan| {
        if let LogicalPlan::Values(_) = plan {
            plan.apply_expressions(|expr| {
                has |= expr.exists(|part| {
                    Ok(matches!(
                        part,
                        Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_)
                    ))
                })?;
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(if has { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(has)
}

fn placed(error: StatementError, source: &Source) -> SqlError {
    let StatementError { sqlstate, message, hint, span } = error;
    let position = span.map(|span| source.line_and_column(span.start as usize));
    // Messages quote what they are about, but for columns with a qualifier.
    let qualified = || message.strip_prefix("column ")?.split(' ').next()?.rsplit('.').next();
    let name = message.split('"').nth(1).or_else(qualified).map(str::to_owned);
    SqlError { position, name, detail: hint.map(str::to_owned), ..SqlError::new(sqlstate, message) }
}

/// The columns of the result. Those without a name get PostgreSQL's, or their text.
fn shown(bound: &BoundQuery, source: &Source, postgresql_names: bool) -> SchemaRef {
    let schema = same_names::shown(bound.plan.schema().as_arrow());
    let name = |column: &OutputColumn| match column.text.filter(|_| !postgresql_names) {
        Some(span) => {
            let text = source.text().get(span.start as usize..span.end as usize);
            text.unwrap_or(&column.name).to_owned()
        }
        None => column.name.clone(),
    };
    let fields = schema.fields().iter().zip(&bound.columns);
    let fields: Vec<Field> = fields.map(|(field, column)| field.as_ref().clone().with_name(name(column))).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// What names mean to a session.
struct InSession<'s> {
    names: Names<'s>,
    /// Why one cannot be read, too: a query of WITH may have its name.
    relations: HashMap<Vec<String>, Result<Relation>>,
}

fn key(name: &Name) -> Vec<String> {
    name.parts.iter().map(|part| part.name.clone()).collect()
}

impl<'s> InSession<'s> {
    /// One that knows these relations, as far as they are there.
    async fn knowing(state: &'s SessionState, shared: &Arc<Shared>, names: Vec<Name>) -> Result<Self> {
        let mut session = Self { names: Names::new(state), relations: HashMap::new() };
        for name in names {
            deep::check()?;
            session.find(shared, &name).await;
        }
        Ok(session)
    }
    /// What computes the number of a catalog object, or its name.
    fn registered(&self, function: &str, kind: TypeId, object: &Expr) -> Option<Expr> {
        let function = self.names.get_function_meta(function)?;
        Some(function.call(vec![lit(kind.name()), object.clone()]))
    }
    /// Looks a relation up. One that is not found, or of another kind than the binder knows, is not known to it.
    async fn find(&mut self, shared: &Arc<Shared>, name: &Name) {
        let key = key(name);
        let reference = match &key[..] {
            [table] => TableReference::bare(table.as_str()),
            [schema, table] => TableReference::partial(schema.as_str(), table.as_str()),
            [catalog, schema, table] => TableReference::full(catalog.as_str(), schema.as_str(), table.as_str()),
            _ => return,
        };
        if self.relations.contains_key(&key) || shared.lent.read().tables.contains_key(reference.table()) {
            return;
        }
        let resolved = self.names.resolved(reference.clone());
        let Ok(schema) = self.names.state().schema_for_ref(resolved.clone()) else { return };
        let found = schema.table(&resolved.table).await.transpose();
        if let Some(found) = found {
            self.relations.insert(key, found.map(|provider| relation(provider, reference)).map_err(SqlError::from));
        }
    }
}

/// A table or a view.
fn relation(provider: Arc<dyn TableProvider>, name: TableReference) -> Relation {
    let schema = provider.schema();
    let fields = schema.fields().iter().filter(|field| field.name() != ROW_ID_COLUMN);
    let mut types: Vec<Option<TypeId>> = fields.map(|field| type_of_arrow(field.data_type())).collect();
    let mut key = Vec::new();
    if let Some(table) = provider.downcast_ref::<SeracTable>() {
        let definition = &table.table().definition;
        for (id, column) in types.iter_mut().zip(definition.visible_columns()) {
            // Blanks at the end of a CHAR(n) mean nothing.
            *id = id.filter(|_| !column.sql_type.fixed_length);
        }
        key = definition.primary_key().filter(|key| key.constraint).map_or_else(Vec::new, |key| key.columns.clone());
    }
    Relation { source: provider_as_source(provider), name, types, key }
}

impl Environment for InSession<'_> {
    fn relation(&self, name: &Name) -> Result<Relation, BindError> {
        match self.relations.get(&key(name)) {
            Some(Ok(relation)) => Ok(relation.clone()),
            Some(Err(error)) => Err(BindError::Plan(error.clone().external())),
            None => Err(BindError::Unknown("this relation")),
        }
    }
    fn scalar(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.names.get_function_meta(name)
    }
    fn aggregate(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.names.get_aggregate_meta(name)
    }
    fn cast(&self, expr: &Expr, from: TypeId, to: TypeId, _: &DFSchema) -> Result<Option<Expr>, BindError> {
        if is_registered(to) && matches!(from, TypeId::UNKNOWN | TypeId::TEXT | TypeId::VARCHAR) {
            return Ok(self.registered("pg_reg_oid", to, expr));
        }
        if is_registered(from) && matches!(to, TypeId::TEXT | TypeId::VARCHAR) {
            return Ok(self
                .registered("pg_reg_text", from, expr)
                .zip(arrow_type(to))
                .map(|(name, text)| cast(name, text)));
        }
        // The pass `casts` makes functions of those that Arrow does by other rules.
        let is_uuid = from == TypeId::UUID || to == TypeId::UUID;
        let from_stored = from == TypeId::NUMERIC || arrow_type(from).is_some();
        Ok(arrow_type(to).filter(|_| from_stored && !is_uuid).map(|stored| cast(expr.clone(), stored)))
    }
    fn window(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.names.get_window_meta(name)
    }
    fn table_function(&self, name: &str, arguments: &[Expr]) -> Option<Arc<dyn TableSource>> {
        self.names.get_table_function_source(name, arguments.to_vec()).ok()
    }
    fn operate(&self, operator: Operator, left: Expr, right: Expr, schema: &DFSchema) -> Result<Expr, BindError> {
        let Some(op) = symbol(operator) else { return Err(BindError::Unknown("this operator")) };
        let mut raw = RawBinaryExpr { op, left, right };
        for planner in self.names.get_expr_planners() {
            match planner.plan_binary_op(raw, schema)? {
                PlannerResult::Planned(expr) => return Ok(expr),
                PlannerResult::Original(same) => raw = same,
            }
        }
        Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(raw.left), operator, Box::new(raw.right))))
    }
}

/// An operator as session's planners know it; none for one that they do not see.
fn symbol(operator: Operator) -> Option<BinaryOperator> {
    Some(match operator {
        Operator::Plus => BinaryOperator::Plus,
        Operator::Minus => BinaryOperator::Minus,
        Operator::Multiply => BinaryOperator::Multiply,
        Operator::Divide => BinaryOperator::Divide,
        Operator::Modulo => BinaryOperator::Modulo,
        Operator::Eq => BinaryOperator::Eq,
        Operator::NotEq => BinaryOperator::NotEq,
        Operator::Lt => BinaryOperator::Lt,
        Operator::LtEq => BinaryOperator::LtEq,
        Operator::Gt => BinaryOperator::Gt,
        Operator::GtEq => BinaryOperator::GtEq,
        Operator::StringConcat => BinaryOperator::StringConcat,
        Operator::RegexMatch => BinaryOperator::PGRegexMatch,
        Operator::RegexIMatch => BinaryOperator::PGRegexIMatch,
        Operator::RegexNotMatch => BinaryOperator::PGRegexNotMatch,
        Operator::RegexNotIMatch => BinaryOperator::PGRegexNotIMatch,
        _ => return None,
    })
}
