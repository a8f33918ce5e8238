//! The order that a subquery in FROM gives its rows, for expressions that depend on it:
//! `string_agg(x, ',')` or `row_number() OVER ()` over `(SELECT x FROM t ORDER BY x)`.
//!
//! A plan has no order between its operators, so that rules drop the sort, or mix its rows. Here,
//! the aggregate or the window gets the keys of the sort as its own ORDER BY. Projections on the
//! way hand on the keys that they would leave out.
//!
//! ```text
//! Aggregate(string_agg(s.x))                   Aggregate(string_agg(s.x ORDER BY s.#order))
//!   SubqueryAlias(s)                             SubqueryAlias(s)
//!     Projection(x)                 becomes        Projection(x, y AS #order)
//!       Sort(y)                                      Sort(y)
//! ```

use crate::shared::Shared;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::Sort as SortKey;
use datafusion::logical_expr::logical_plan::{Aggregate, Filter, Limit, Projection, SubqueryAlias, Window};
use datafusion::logical_expr::{Expr, LogicalPlan, WindowFunctionDefinition};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keeps the order of rows that a query gives.
#[derive(Debug, Default)]
pub struct GivenOrders {
    /// Numbers for names.
    last: AtomicU64,
}

/// Window functions whose values depend on the order of equal rows.
const OF_ROWS: [&str; 6] = ["row_number", "lag", "lead", "first_value", "last_value", "nth_value"];

impl AnalyzerRule for GivenOrders {
    fn name(&self) -> &str {
        "given_orders"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| {
            let (input, takes_order) = match &plan {
                LogicalPlan::Aggregate(aggregate) => (&aggregate.input, aggregate.aggr_expr.iter().any(has_no_order)),
                LogicalPlan::Window(window) => (&window.input, window.window_expr.iter().any(has_no_order)),
                _ => return Ok(Transformed::no(plan)),
            };
            let shown = plan.schema().columns();
            let Some((input, keys)) = takes_order.then(|| self.ordered(input)).transpose()?.flatten() else {
                return Ok(Transformed::no(plan));
            };
            let input = Arc::new(input);
            let with_keys = |exprs: Vec<Expr>| -> Result<Vec<Expr>> {
                exprs.into_iter().map(|expr| with_order(expr, &keys)).collect()
            };
            let ordered = match plan {
                LogicalPlan::Aggregate(Aggregate { group_expr, aggr_expr, .. }) => {
                    LogicalPlan::Aggregate(Aggregate::try_new(input, group_expr, with_keys(aggr_expr)?)?)
                }
                LogicalPlan::Window(Window { window_expr, .. }) => {
                    LogicalPlan::Window(Window::try_new(with_keys(window_expr)?, input)?)
                }
                other => other,
            };
            // A window passes on columns that were added below it.
            Ok(Transformed::yes(match ordered.schema().fields().len() == shown.len() {
                true => ordered,
                false => {
                    let shown = shown.into_iter().map(Expr::Column).collect();
                    LogicalPlan::Projection(Projection::try_new(shown, Arc::new(ordered))?)
                }
            }))
        })
        .data()
    }
}

impl GivenOrders {
    /// The plan, and the keys by which its rows are sorted, as columns of it; `None` if it has no
    /// order.
    fn ordered(&self, plan: &LogicalPlan) -> Result<Option<(LogicalPlan, Vec<SortKey>)>> {
        let input = match plan {
            LogicalPlan::Sort(sort) => return Ok(Some((plan.clone(), sort.expr.clone()))),
            LogicalPlan::Projection(projection) => &projection.input,
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            LogicalPlan::Filter(filter) => &filter.input,
            LogicalPlan::Limit(limit) => &limit.input,
            // A query that is computed once lacks columns for the keys. This place computes its
            // own.
            plan => match Shared::of(plan).filter(|shared| !shared.is_certain()) {
                Some(shared) => return self.ordered(shared.input()),
                None => return Ok(None),
            },
        };
        let Some((input, keys)) = self.ordered(input)? else { return Ok(None) };
        let input = Arc::new(input);
        Ok(Some(match plan {
            LogicalPlan::Filter(filter) => {
                (LogicalPlan::Filter(Filter::try_new(filter.predicate.clone(), input)?), keys)
            }
            LogicalPlan::Limit(limit) => (LogicalPlan::Limit(Limit { input, ..limit.clone() }), keys),
            LogicalPlan::SubqueryAlias(alias) => {
                let below = input.schema().columns();
                let alias = SubqueryAlias::try_new(input, alias.alias.clone())?;
                let above = alias.schema.columns();
                let renamed = |column: Column| match below.iter().position(|own| *own == column) {
                    Some(at) => above[at].clone(),
                    None => column,
                };
                let keys = of_columns(keys, renamed)?;
                (LogicalPlan::SubqueryAlias(alias), keys)
            }
            LogicalPlan::Projection(projection) => {
                let mut exprs = projection.expr.clone();
                let mut columns = Vec::with_capacity(keys.len());
                for key in &keys {
                    let known = exprs.iter().position(|expr| expr.clone().unalias() == key.expr);
                    columns.push(match known {
                        Some(at) => at,
                        None => {
                            // Relaxed: the numbers differ, and nothing else follows from them.
                            let number = self.last.fetch_add(1, Ordering::Relaxed);
                            exprs.push(key.expr.clone().alias(format!("#order_{number}")));
                            exprs.len() - 1
                        }
                    });
                }
                let projection = Projection::try_new(exprs, input)?;
                let column = |at: usize| Expr::Column(Column::from(projection.schema.qualified_field(at)));
                let keys = keys.into_iter().zip(columns).map(|(key, at)| SortKey { expr: column(at), ..key });
                let keys = keys.collect();
                (LogicalPlan::Projection(projection), keys)
            }
            _ => return Ok(None),
        }))
    }
}

/// Keys over other columns.
fn of_columns(keys: Vec<SortKey>, rename: impl Fn(Column) -> Column) -> Result<Vec<SortKey>> {
    let renamed = |key: SortKey| {
        let expr = key.expr.transform_up(|part| match part {
            Expr::Column(column) => Ok(Transformed::yes(Expr::Column(rename(column)))),
            other => Ok(Transformed::no(other)),
        });
        Ok(SortKey { expr: expr.data()?, ..key })
    };
    keys.into_iter().map(renamed).collect()
}

/// Whether it depends on the order of its rows, and does not have its own.
fn has_no_order(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => has_no_order(&alias.expr),
        Expr::AggregateFunction(call) => {
            let is_of_order = matches!(call.func.name(), "array_agg" | "string_agg");
            is_of_order && is_unordered(&call.params.order_by) && !call.params.distinct
        }
        Expr::WindowFunction(window) => {
            let is_of_rows = match &window.fun {
                WindowFunctionDefinition::WindowUDF(function) => OF_ROWS.contains(&function.name()),
                WindowFunctionDefinition::AggregateUDF(_) => false,
            };
            is_of_rows && is_unordered(&window.params.order_by)
        }
        _ => false,
    }
}

/// Whether keys order nothing. A window without an order has a constant.
fn is_unordered(keys: &[SortKey]) -> bool {
    keys.iter().all(|key| matches!(key.expr, Expr::Literal(..)))
}

/// The same with an order, if it lacks one.
fn with_order(expr: Expr, keys: &[SortKey]) -> Result<Expr> {
    if !has_no_order(&expr) {
        return Ok(expr);
    }
    // The column keeps its name.
    let name = expr.schema_name().to_string();
    let ordered = match expr {
        Expr::Alias(mut alias) => {
            *alias.expr = with_order(*alias.expr, keys)?.unalias();
            return Ok(Expr::Alias(alias));
        }
        Expr::AggregateFunction(mut call) => {
            call.params.order_by = keys.to_vec();
            Expr::AggregateFunction(call)
        }
        Expr::WindowFunction(mut window) => {
            window.params.order_by = keys.to_vec();
            Expr::WindowFunction(window)
        }
        other => other,
    };
    Ok(ordered.alias(name))
}
