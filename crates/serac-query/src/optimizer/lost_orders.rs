//! Sorts that DataFusion's rules have lost. They push a sort down to the branches of a UNION ALL.
//! Then they do not see the rows' order if the branches give the key's column twice:
//! `SELECT a, a AS b FROM t UNION ALL SELECT a, a FROM u ORDER BY b`. The plan would be refused.
//! There, the rows are sorted once more.

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use std::sync::Arc;

/// Sorts again where an order was lost. Comes right before the plan is checked.
#[derive(Debug)]
pub struct LostOrders;

impl PhysicalOptimizerRule for LostOrders {
    fn name(&self) -> &str {
        "lost_orders"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let sorted = plan.transform_up(|plan| {
            let mut changed = false;
            let mut children = Vec::new();
            for (child, required) in plan.children().into_iter().zip(plan.required_input_ordering()) {
                let required = required.map(|required| required.into_single());
                let lost = match required {
                    Some(required) => {
                        let is_so = child.equivalence_properties().ordering_satisfy_requirement(required.clone())?;
                        (!is_so).then(|| LexOrdering::from(required))
                    }
                    None => None,
                };
                changed |= lost.is_some();
                children.push(match lost {
                    Some(order) => Arc::new(SortExec::new(order, child.clone()).with_preserve_partitioning(true)) as _,
                    None => child.clone(),
                });
            }
            match changed {
                true => Ok(Transformed::yes(replace_children_if_necessary(plan, children)?)),
                false => Ok(Transformed::no(plan)),
            }
        });
        Ok(sorted?.data)
    }
}
