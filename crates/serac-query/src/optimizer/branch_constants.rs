//! Constants of the branches of a UNION ALL do not order its rows.
//!
//! If a column has one value in each branch, DataFusion leaves it out of a sort above: each branch
//! is sorted by itself. If the sort has a limit, its branches share a filter, which drops rows that
//! are behind the last one kept so far. By the other keys alone, that is the last of any branch: of
//! `SELECT 1 AS k, a FROM t UNION ALL SELECT 2, a FROM u ORDER BY k, a LIMIT 5`, rows of t were
//! lost that have larger values than those of u. So such constants are hidden.

use crate::optimizer::unknown::Unknown;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::AcrossPartitions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use std::sync::Arc;

/// Hides constants that differ between branches. Comes before the rules that look for sorts.
#[derive(Debug)]
pub struct BranchConstants;

impl PhysicalOptimizerRule for BranchConstants {
    fn name(&self) -> &str {
        "branch_constants"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let constants = match node.is::<UnionExec>() || node.is::<InterleaveExec>() {
                true => node.equivalence_properties().constants(),
                false => Vec::new(),
            };
            let differs = constants.iter().any(|one| one.across_partitions == AcrossPartitions::Heterogeneous);
            Ok(match differs {
                true => Transformed::yes(Arc::new(Unknown::new(node, "UnknownOrderExec", true)) as _),
                false => Transformed::no(node),
            })
        })
        .data()
    }
}
