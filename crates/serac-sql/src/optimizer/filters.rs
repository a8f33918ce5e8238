//! DataFusion's rule that brings filters down to tables, but for filters that it must not bring below an aggregation of all rows: that has a row even where
//! it aggregates none. The rule looks at the columns that a condition names, and `1 < (SELECT …)` names none.

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// See the module.
#[derive(Debug, Default)]
pub struct Filters(PushDownFilter);

/// Whether a condition without columns stands on an aggregation of all rows, be there others between.
fn stands_on_aggregation(plan: &LogicalPlan) -> bool {
    let (mut plan, mut without_columns) = (plan, false);
    while let LogicalPlan::Filter(filter) = plan {
        without_columns |= split_conjunction(&filter.predicate).iter().any(|condition| !condition.any_column_refs());
        plan = &filter.input;
    }
    without_columns && matches!(plan, LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty())
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
        self.0.rewrite(plan, config)
    }
}
