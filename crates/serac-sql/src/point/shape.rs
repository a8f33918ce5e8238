//! The shape of a planned query, if the point path can run it: one table, filtered, perhaps
//! aggregated as a whole, ordered and limited.
//!
//! The plan (bound and analysed, not optimised) is a chain of nodes over a scan. Going up the
//! chain, every expression is rewritten to one over the columns of the scan (`c0`, `c1`, …) and the
//! parameters (`$1`, `$2`, …). Above an aggregate it is over the aggregate's results.

use super::compiler::replace_columns;
use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{Expr, LogicalPlan, SortExpr};
use datafusion::prelude::Column;
use serac_engine::Table;
use serac_query::scan::SeracTable;
use std::sync::Arc;

/// A planned query in the form of the point path.
pub(super) struct Shape {
    /// The table; `None` for rows from elsewhere, or for the row of a SELECT without FROM.
    pub(super) table: Option<Arc<Table>>,
    /// The types of the scan's columns.
    pub(super) columns: Vec<DataType>,
    /// Conjuncts.
    pub(super) filters: Vec<Expr>,
    /// Aggregate calls over all rows.
    pub(super) aggregates: Option<Vec<Expr>>,
    /// Over the scan's columns, or the aggregates' results.
    pub(super) outputs: Vec<Expr>,
    pub(super) order: Vec<SortExpr>,
    pub(super) skip: Option<Expr>,
    pub(super) fetch: Option<Expr>,
}

/// The column at `at` of the rows that expressions see.
pub(super) fn leaf(at: usize) -> Expr {
    Expr::Column(Column::from_name(format!("c{at}")))
}

/// The place of a column that [`leaf`] has made; `None` for a parameter.
pub(super) fn place_of(column: &Column) -> Option<usize> {
    column.name.strip_prefix('c')?.parse().ok()
}

/// The expression with parameters as columns of their names.
fn parameters_as_columns(expr: Expr) -> Option<Expr> {
    let replaced = expr.transform_up(|part| match part {
        Expr::Placeholder(placeholder) => Ok(Transformed::yes(Expr::Column(Column::from_name(placeholder.id)))),
        other => Ok(Transformed::no(other)),
    });
    Some(replaced.ok()?.data)
}

/// `expr` over the columns of `schema`, as an expression over their definitions in `outputs`.
pub(super) fn rewrite(expr: Expr, schema: &DFSchema, outputs: &[Expr]) -> Option<Expr> {
    let expr = replace_columns(expr, |column| Some(outputs.get(schema.index_of_column(column).ok()?)?.clone()))?;
    parameters_as_columns(expr)
}

fn unaliased(expr: Expr) -> Expr {
    match expr {
        Expr::Alias(alias) => unaliased(*alias.expr),
        other => other,
    }
}

impl Shape {
    /// The shape of a plan; `None` if it has another operator.
    pub(super) fn of(plan: &LogicalPlan) -> Option<Self> {
        match plan {
            LogicalPlan::TableScan(scan)
                if scan.projection.is_none() && scan.filters.is_empty() && scan.fetch.is_none() =>
            {
                let provider = source_as_provider(&scan.source).ok()?;
                let columns: Vec<DataType> =
                    scan.projected_schema.fields().iter().map(|field| field.data_type().clone()).collect();
                Some(Self {
                    table: provider.downcast_ref::<SeracTable>().map(|provider| provider.table().clone()),
                    outputs: (0..columns.len()).map(leaf).collect(),
                    columns,
                    filters: Vec::new(),
                    aggregates: None,
                    order: Vec::new(),
                    skip: None,
                    fetch: None,
                })
            }
            LogicalPlan::EmptyRelation(relation) if relation.produce_one_row => Some(Self {
                table: None,
                columns: Vec::new(),
                filters: Vec::new(),
                aggregates: None,
                outputs: Vec::new(),
                order: Vec::new(),
                skip: None,
                fetch: None,
            }),
            LogicalPlan::SubqueryAlias(alias) => Self::of(&alias.input),
            LogicalPlan::Filter(filter) => {
                let mut shape = Self::of(&filter.input)?;
                if shape.aggregates.is_some() || shape.is_limited() || !shape.order.is_empty() {
                    return None;
                }
                let predicate = rewrite(filter.predicate.clone(), filter.input.schema(), &shape.outputs)?;
                shape.filters.extend(split_conjunction_owned(predicate));
                Some(shape)
            }
            LogicalPlan::Projection(projection) => {
                let mut shape = Self::of(&projection.input)?;
                let schema = projection.input.schema();
                let outputs =
                    projection.expr.iter().map(|expr| rewrite(unaliased(expr.clone()), schema, &shape.outputs));
                shape.outputs = outputs.collect::<Option<_>>()?;
                Some(shape)
            }
            LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => {
                let mut shape = Self::of(&aggregate.input)?;
                if shape.aggregates.is_some() || shape.is_limited() || !shape.order.is_empty() {
                    return None;
                }
                let calls = aggregate.aggr_expr.iter();
                let schema = aggregate.input.schema();
                let calls = calls.map(|call| rewrite(unaliased(call.clone()), schema, &shape.outputs));
                shape.aggregates = Some(calls.collect::<Option<_>>()?);
                shape.outputs = (0..aggregate.aggr_expr.len()).map(leaf).collect();
                Some(shape)
            }
            LogicalPlan::Sort(sort) => {
                let mut shape = Self::of(&sort.input)?;
                if shape.is_limited() || sort.fetch.is_some() || shape.aggregates.is_some() {
                    return None;
                }
                let keys = sort.expr.iter().map(|key| {
                    let expr = rewrite(key.expr.clone(), sort.input.schema(), &shape.outputs)?;
                    Some(SortExpr { expr, ..*key })
                });
                shape.order = keys.collect::<Option<_>>()?;
                Some(shape)
            }
            LogicalPlan::Limit(limit) => {
                let mut shape = Self::of(&limit.input)?;
                if shape.is_limited() || shape.aggregates.is_some() {
                    return None;
                }
                let bound = |expr: &Option<Box<Expr>>| match expr {
                    Some(expr) => parameters_as_columns((**expr).clone()).map(Some),
                    None => Some(None),
                };
                shape.skip = bound(&limit.skip)?;
                shape.fetch = bound(&limit.fetch)?;
                Some(shape)
            }
            _ => None,
        }
    }

    /// Whether it is one row of expressions.
    pub(super) fn is_row(&self) -> bool {
        let is_plain = self.filters.is_empty() && self.aggregates.is_none() && self.order.is_empty();
        self.table.is_none() && self.columns.is_empty() && is_plain && !self.is_limited()
    }

    pub(super) fn is_limited(&self) -> bool {
        self.skip.is_some() || self.fetch.is_some()
    }
}
