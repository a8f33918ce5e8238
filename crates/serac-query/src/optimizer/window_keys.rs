//! Windows that do not see that their rows are in order.
//!
//! If two columns are equal, DataFusion names one of them in the order of the rows. It then looks
//! for a key of PARTITION BY with the other in it, as `-b` is where `a = b` and the order is that
//! of `-a`. It does not find the key, and refuses the window. So such windows get their rows from
//! an operator that does not tell which columns are equal.

use crate::optimizer::unknown::Unknown;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use std::sync::Arc;

/// Hides equal columns from windows. Comes before the rules that look for sorts.
#[derive(Debug)]
pub struct WindowKeys;

/// The keys of PARTITION BY, if the plan is a window.
fn keys(plan: &Arc<dyn ExecutionPlan>) -> &[Arc<dyn PhysicalExpr>] {
    let all: &[_] = match (plan.downcast_ref::<WindowAggExec>(), plan.downcast_ref::<BoundedWindowAggExec>()) {
        (Some(window), _) => window.window_expr(),
        (None, Some(window)) => window.window_expr(),
        (None, None) => &[],
    };
    all.first().map_or(&[], |window| window.partition_by())
}

impl PhysicalOptimizerRule for WindowKeys {
    fn name(&self) -> &str {
        "window_keys"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let is_blind = keys(&node).iter().any(|key| !key.is::<Column>())
                && !node.children()[0].equivalence_properties().eq_group().is_empty();
            if !is_blind {
                return Ok(Transformed::no(node));
            }
            let rows = Unknown::new(node.children()[0].clone(), "UnknownOrderExec", true);
            let rows: Arc<dyn ExecutionPlan> = Arc::new(rows);
            Ok(Transformed::yes(replace_children_if_necessary(node, vec![rows])?))
        })
        .data()
    }
}
