//! Sorts and distributions that DataFusion's rules have lost. The plan would be refused.
//!
//! - They push a sort down to the branches of a UNION ALL. Then they do not see the rows' order if
//!   the branches give the key's column twice:
//!   `SELECT a, a AS b FROM t UNION ALL SELECT a, a FROM u ORDER BY b`.
//! - They push a projection down into a join, and forget that rows which are distributed by a key
//!   of one side are distributed by that of the other. An example is
//!   `sum(v) OVER (PARTITION BY p.k)` above a join on `p.k = q.j` whose column `q.j` is read no
//!   more.
//!
//! There, the rows are sorted or distributed once more. Rows of joins are not: both sides must be
//! distributed in one way.

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::{LexOrdering, OrderingRequirements};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ChildSatisfactionOptions, Distribution, ExecutionPlan, ExecutionPlanProperties};
use std::sync::Arc;

/// Sorts and distributes again where that was lost. Comes right before the plan is checked.
#[derive(Debug)]
pub struct LostRequirements;

/// The only child of an operator distributed as the operator requires it; `None` if it is.
fn distributed(plan: &Arc<dyn ExecutionPlan>, threads: usize) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let (children, required) = (plan.children(), plan.input_distribution_requirements());
    let [child] = children[..] else { return Ok(None) };
    let options = ChildSatisfactionOptions::new().with_allow_subset(true);
    if required.child_satisfaction(0, child.as_ref(), options)?.is_satisfied() {
        return Ok(None);
    }
    Ok(match required.per_child_distributions().next() {
        Some(Distribution::SinglePartition) => Some(Arc::new(CoalescePartitionsExec::new(child.clone()))),
        Some(by_keys @ Distribution::KeyPartitioned(_)) => {
            let partitioning = by_keys.clone().create_partitioning(threads);
            Some(Arc::new(RepartitionExec::try_new(child.clone(), partitioning)?))
        }
        _ => None,
    })
}

/// The child of an operator sorted as the operator requires it; `None` if it is.
fn sorted(
    child: &Arc<dyn ExecutionPlan>,
    required: Option<OrderingRequirements>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(required) = required.map(|required| required.into_single()) else { return Ok(None) };
    if child.equivalence_properties().ordering_satisfy_requirement(required.clone())? {
        return Ok(None);
    }
    let sort = SortExec::new(LexOrdering::from(required), child.clone()).with_preserve_partitioning(true);
    Ok(Some(Arc::new(sort)))
}

impl PhysicalOptimizerRule for LostRequirements {
    fn name(&self) -> &str {
        "lost_requirements"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let threads = config.execution.target_partitions;
        let whole = plan.transform_up(|plan| {
            let mut children: Vec<_> = plan.children().into_iter().cloned().collect();
            let mut changed = false;
            if let Some(child) = distributed(&plan, threads)? {
                (children, changed) = (vec![child], true);
            }
            for (child, required) in children.iter_mut().zip(plan.required_input_ordering()) {
                if let Some(other) = sorted(child, required)? {
                    (*child, changed) = (other, true);
                }
            }
            match changed {
                true => Ok(Transformed::yes(replace_children_if_necessary(plan, children)?)),
                false => Ok(Transformed::no(plan)),
            }
        });
        Ok(whole?.data)
    }
}
