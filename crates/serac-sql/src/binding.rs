//! The binder's way from a query's tree to its plan ([`serac_binder`]).
//!
//! It is taken by queries that the binder understands whole; all others are planned from sqlparser's
//! tree ([`crate::query::plan`]). What a query means is decided once: where it was described, it is
//! planned the same way when it runs.

use crate::catalog::Shared;
use crate::error::{Result, SqlError};
use crate::parsed::Source;
use crate::pg_catalog::is_system_schema;
use crate::planner::{Names, check_size, functions};
use crate::scan::SeracTable;
use crate::{deep, same_names};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue, TableReference};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::execution::SessionState;
use datafusion::logical_expr::planner::{ContextProvider, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    AggregateUDF, BinaryExpr, Expr, LogicalPlan, Operator, ScalarUDF, TableSource, WindowUDF, cast,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use serac_binder::{
    BindError, BoundQuery, Environment, OutputColumn, Relation, StatementError, arrow_type, type_of_arrow,
};
use serac_parser::tree::Name;
use serac_pg::TypeId;
use std::collections::HashMap;
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
    let shared = functions(state).shared().clone();
    let source = source.filter(|_| !shared.disabled_passes.read().contains(&BIND));
    let bound = match source {
        Some(source) => bound(state, &shared, source).await?.ok(),
        None => None,
    };
    shared.ways.note(bound.is_some());
    let (Some(query), Some(source)) = (bound, source) else { return Ok(None) };
    let names = shown(&query, source, postgresql_names);
    let BoundQuery { plan, parameters, .. } = query;
    let plan = match &source.arguments().values {
        Some(values) if !parameters.is_empty() => with_values(plan, &parameters, values)?,
        _ => plan,
    };
    Ok(Some(Bound { plan, names, parameters }))
}

/// The plan with values in the place of its parameters.
fn with_values(plan: LogicalPlan, types: &[TypeId], values: &[ScalarValue]) -> Result<LogicalPlan> {
    let mut given = Vec::with_capacity(types.len());
    for (at, id) in types.iter().enumerate() {
        let missing = || SqlError::new("42P02", format!("there is no parameter ${}", at + 1));
        let value = values.get(at).ok_or_else(missing)?;
        let value = match arrow_type(*id) {
            Some(stored) if value.data_type() != stored => value.cast_to(&stored)?,
            _ => value.clone(),
        };
        given.push(value);
    }
    Ok(plan.with_param_values(given)?)
}

/// A bound query, or what of it the binder does not know.
///
/// # Errors
/// What is wrong with it.
pub(crate) async fn bound(
    state: &SessionState,
    shared: &Arc<Shared>,
    source: &Source,
) -> Result<Result<BoundQuery, &'static str>> {
    let Some(query) = source.query() else { return Ok(Err("this grammar")) };
    let mut session = InSession { names: Names::new(state), relations: HashMap::new() };
    for name in serac_binder::relations(query) {
        deep::check()?;
        session.find(shared, &name).await?;
    }
    let types: Vec<TypeId> = source.arguments().types.iter().copied().map(TypeId).collect();
    match serac_binder::bind_query(&session, query, &types) {
        Ok(bound) => {
            check_size(&bound.plan)?;
            Ok(if has_subquery_in_values(&bound.plan)? { Err("a subquery in VALUES") } else { Ok(bound) })
        }
        Err(BindError::Statement(error)) => Err(placed(error, source)),
        Err(BindError::Unknown(what)) => Ok(Err(what)),
        // The other way says what is wrong, if something is.
        Err(BindError::Plan(_)) => Ok(Err("what the planner refuses")),
    }
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
    relations: HashMap<Vec<String>, Relation>,
}

fn key(name: &Name) -> Vec<String> {
    name.parts.iter().map(|part| part.name.clone()).collect()
}

impl InSession<'_> {
    /// Looks a relation up. One that is not found, or of another kind than the binder knows, is not known to it.
    async fn find(&mut self, shared: &Arc<Shared>, name: &Name) -> Result<()> {
        let key = key(name);
        let reference = match &key[..] {
            [table] => TableReference::bare(table.as_str()),
            [schema, table] => TableReference::partial(schema.as_str(), table.as_str()),
            [catalog, schema, table] => TableReference::full(catalog.as_str(), schema.as_str(), table.as_str()),
            _ => return Ok(()),
        };
        if self.relations.contains_key(&key) || shared.lent.read().tables.contains_key(reference.table()) {
            return Ok(());
        }
        let resolved = self.names.resolved(reference.clone());
        if is_system_schema(&resolved.schema) {
            return Ok(());
        }
        let Ok(schema) = self.names.state().schema_for_ref(resolved.clone()) else { return Ok(()) };
        if let Some(provider) = schema.table(&resolved.table).await?
            && let Some(relation) = relation(provider, reference)
        {
            self.relations.insert(key, relation);
        }
        Ok(())
    }
}

/// A table or a view; none for what the binder does not know.
fn relation(provider: Arc<dyn TableProvider>, name: TableReference) -> Option<Relation> {
    let mut key = Vec::new();
    if let Some(table) = provider.downcast_ref::<SeracTable>() {
        let definition = &table.table().definition;
        if definition.visible_columns().iter().any(|column| column.sql_type.fixed_length) {
            return None;
        }
        key = definition.primary_key().filter(|key| key.constraint).map_or_else(Vec::new, |key| key.columns.clone());
    } else if !provider.is::<ViewTable>() {
        return None;
    }
    let schema = provider.schema();
    let types = schema.fields().iter().map(|field| type_of_arrow(field.data_type()));
    let types = types.collect::<Option<_>>()?;
    Some(Relation { source: provider_as_source(provider), name, types, key })
}

impl Environment for InSession<'_> {
    fn relation(&self, name: &Name) -> Result<Relation, BindError> {
        self.relations.get(&key(name)).cloned().ok_or(BindError::Unknown("this relation"))
    }
    fn scalar(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.names.get_function_meta(name)
    }
    fn aggregate(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.names.get_aggregate_meta(name)
    }
    fn cast(&self, expr: &Expr, from: TypeId, to: TypeId, _: &DFSchema) -> Result<Option<Expr>, BindError> {
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
