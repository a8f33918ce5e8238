//! A shared query as a table of logical plans.

use crate::optimizer::has_hazard;
use async_trait::async_trait;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, DFSchema, Result, internal_err};
use datafusion::logical_expr::logical_plan::{Filter, Limit, Projection, SubqueryAlias};
use datafusion::logical_expr::{Expr, LogicalPlan, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use std::collections::HashSet;
use std::sync::Arc;

/// A query whose rows are computed once.
#[derive(Clone, Debug)]
pub(super) struct SharedQuery {
    /// Greater than those of the queries that its plan reads.
    pub(super) number: u64,
    /// Differs from the names of the statement's others.
    pub(super) name: String,
    /// The plan's columns under names that differ.
    pub(super) schema: SchemaRef,
    /// The plan before the optimizer.
    pub(super) analyzed: LogicalPlan,
    /// The plan without regard to its readers.
    pub(super) optimized: LogicalPlan,
    /// Filters get into it.
    pub(super) takes_filters: bool,
    /// All columns are computed: they may have side effects.
    pub(super) has_all_columns: bool,
    /// The places of the columns by which its rows are sorted. Its readers get them in this order.
    pub(super) order: Vec<usize>,
}

/// A plan that gives its rows in an order of its own, with the keys of that order among its
/// columns, and these. Keys that the plan does not give come behind its columns. `None` for the
/// order of a table, or of a function of rows: to keep it could need a sort.
pub(super) fn with_sort_keys(plan: &LogicalPlan) -> Result<Option<(LogicalPlan, Vec<Column>)>> {
    Ok(match plan {
        LogicalPlan::Sort(sort) if sort.expr.iter().any(|key| key.expr.is_volatile()) => None,
        LogicalPlan::Sort(sort) => {
            let columns = plan.schema().columns().into_iter().map(Expr::Column).collect();
            let keys = sort.expr.iter().map(|key| key.expr.clone()).collect();
            Some(projected(columns, Arc::new(plan.clone()), keys)?)
        }
        LogicalPlan::Projection(projection) => match with_sort_keys(&projection.input)? {
            Some((input, keys)) => {
                let keys = keys.into_iter().map(Expr::Column).collect();
                Some(projected(projection.expr.clone(), Arc::new(input), keys)?)
            }
            None => None,
        },
        LogicalPlan::SubqueryAlias(alias) => match with_sort_keys(&alias.input)? {
            Some((input, keys)) => {
                let own = |key: Column| Column::new(Some(alias.alias.clone()), key.name);
                let plan = SubqueryAlias::try_new(Arc::new(input), alias.alias.clone())?;
                Some((LogicalPlan::SubqueryAlias(plan), keys.into_iter().map(own).collect()))
            }
            None => None,
        },
        LogicalPlan::Filter(filter) => match with_sort_keys(&filter.input)? {
            Some((input, keys)) => {
                let filter = Filter::try_new(filter.predicate.clone(), Arc::new(input))?;
                Some((LogicalPlan::Filter(filter), keys))
            }
            None => None,
        },
        LogicalPlan::Limit(limit) => with_sort_keys(&limit.input)?
            .map(|(input, keys)| (LogicalPlan::Limit(Limit { input: Arc::new(input), ..limit.clone() }), keys)),
        _ => None,
    })
}

/// A projection of these expressions, and of the keys that are not among them.
fn projected(mut exprs: Vec<Expr>, input: Arc<LogicalPlan>, keys: Vec<Expr>) -> Result<(LogicalPlan, Vec<Column>)> {
    let mut places = Vec::new();
    for key in keys {
        let known = exprs.iter().position(|expr| expr.clone().unalias() == key);
        places.push(known.unwrap_or(exprs.len()));
        if known.is_none() {
            let name = format!("__serac_order_{}", exprs.len());
            exprs.push(key.alias(name));
        }
    }
    let projection = Projection::try_new(exprs, input)?;
    let columns = projection.schema.columns();
    let keys = places.into_iter().map(|at| columns[at].clone()).collect();
    Ok((LogicalPlan::Projection(projection), keys))
}

impl SharedQuery {
    /// The columns of a plan under names that differ.
    pub(super) fn schema_of(plan: &LogicalPlan) -> SchemaRef {
        let mut names = HashSet::new();
        let field = |field: &Arc<Field>| {
            let mut name = field.name().clone();
            while !names.insert(name.clone()) {
                name = format!("{}:{}", field.name(), names.len());
            }
            field.as_ref().clone().with_name(name)
        };
        Arc::new(Schema::new(plan.schema().fields().iter().map(field).collect::<Vec<_>>()))
    }
}

/// The rows of a shared query. It is read in a plan that has the query ([`super::plan`]).
#[derive(Debug)]
pub(crate) struct SharedTable(pub(super) Arc<SharedQuery>);

impl SharedTable {
    /// The optimized plan of the query.
    pub(crate) fn plan(&self) -> &LogicalPlan {
        &self.0.optimized
    }

    /// The column of that plan that has a name here.
    pub(crate) fn column(&self, name: &str) -> Option<Column> {
        let at = self.0.schema.index_of(name).ok()?;
        Some(Column::from(self.0.optimized.schema().qualified_field(at)))
    }
}

#[async_trait]
impl TableProvider for SharedTable {
    fn schema(&self) -> SchemaRef {
        self.0.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _: &dyn Session,
        _: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        internal_err!("the query \"{}\" of WITH is read outside of its statement", self.0.name)
    }

    /// The readers test their filters themselves. A filter that may fail, or that asks another
    /// query, is left to them alone: in the query, it would be tested for other rows.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let schema = DFSchema::try_from(self.0.schema.as_ref().clone())?;
        let is_taken = |filter: &&Expr| {
            let is_apart = |part: &Expr| {
                matches!(
                    part,
                    Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::OuterReferenceColumn(..)
                )
            };
            self.0.takes_filters
                && !filter.is_volatile()
                && !filter.exists(|part| Ok(is_apart(part))).unwrap_or(true)
                && !has_hazard(&unqualified((*filter).clone()), &schema)
        };
        Ok(filters
            .iter()
            .map(|filter| match is_taken(filter) {
                true => TableProviderFilterPushDown::Inexact,
                false => TableProviderFilterPushDown::Unsupported,
            })
            .collect())
    }
}

/// The expression over columns without qualifiers.
fn unqualified(expr: Expr) -> Expr {
    datafusion::logical_expr::expr_rewriter::unnormalize_col(expr)
}
