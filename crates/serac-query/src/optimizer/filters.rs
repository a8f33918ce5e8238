//! DataFusion's rule that pushes filters down to tables, except filters that must not go below an
//! aggregation of all rows, alone or among grouping sets. Such an aggregation has a row even if its
//! input is empty. The rule looks at the columns that a condition names, and `1 < (SELECT …)` has
//! no columns. The rule's comparisons are first brought into one form, in which it recognises them.

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::GroupingSet;
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, lit};
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// DataFusion's pushdown of filters, with filters over aggregations of all rows held back.
#[derive(Debug, Default)]
pub struct Filters(PushDownFilter);

/// Whether a condition without columns stands on an aggregation of all rows, perhaps with other
/// conditions between.
fn stands_on_aggregation(plan: &LogicalPlan) -> bool {
    let (mut plan, mut without_columns) = (plan, false);
    while let LogicalPlan::Filter(filter) = plan {
        without_columns |= split_conjunction(&filter.predicate).iter().any(|condition| !condition.any_column_refs());
        plan = &filter.input;
    }
    without_columns && matches!(plan, LogicalPlan::Aggregate(aggregate) if aggregates_all_rows(&aggregate.group_expr))
}

fn aggregates_all_rows(keys: &[Expr]) -> bool {
    match keys {
        [] | [Expr::GroupingSet(GroupingSet::Rollup(_) | GroupingSet::Cube(_))] => true,
        [Expr::GroupingSet(GroupingSet::GroupingSets(sets))] => sets.iter().any(Vec::is_empty),
        _ => false,
    }
}

/// Comparisons of a column with a value, the column on the left, and 0 in place of -0. DataFusion's
/// rule drops comparisons that others imply, and expects this form. Otherwise it takes `1 = a` and
/// `a = 1` for different conditions, and does not rank `1 < a` above `a >= 1`.
fn in_one_form(predicate: Expr) -> Expr {
    let mut conditions = split_conjunction_owned(predicate);
    if conditions.len() > 1 {
        for condition in &mut conditions {
            let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else { continue };
            if let (Expr::Literal(..), Expr::Column(_), Some(swapped)) = (left.as_ref(), right.as_ref(), op.swap()) {
                std::mem::swap(left, right);
                *op = swapped;
            }
            if let (Expr::Column(_), Expr::Literal(value, _)) = (left.as_ref(), right.as_mut()) {
                match value {
                    ScalarValue::Float32(Some(number)) if *number == 0.0 => *number = 0.0,
                    ScalarValue::Float64(Some(number)) if *number == 0.0 => *number = 0.0,
                    _ => {}
                }
            }
        }
    }
    conjunction(conditions).unwrap_or_else(|| lit(true))
}

impl OptimizerRule for Filters {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if stands_on_aggregation(&plan) {
            return Ok(Transformed::no(plan));
        }
        let plan = match plan {
            LogicalPlan::Filter(mut filter) => {
                filter.predicate = in_one_form(filter.predicate);
                LogicalPlan::Filter(filter)
            }
            other => other,
        };
        self.0.rewrite(plan, config)
    }
}
