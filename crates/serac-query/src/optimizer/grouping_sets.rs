//! Grouping sets hide properties that DataFusion's physical plans assume of their rows.
//!
//! DataFusion assumes that the rows of an aggregation keep the properties of the rows below: that
//! two columns are equal, or that one is constant. That does not hold if a grouping set leaves a
//! column out, which then is NULL; but a sort by the column would be dropped. DataFusion also
//! assumes that no two groups have the same columns, though one may have NULL where another leaves
//! the column out. So each step of such an aggregation is followed by an operator that passes rows
//! on and states no properties.

use crate::optimizer::unknown::Unknown;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use std::sync::Arc;

/// Adds the operators above grouping sets. Comes before the rules that look for sorts.
#[derive(Debug)]
pub struct GroupingSets;

/// The column by which rows of different sets are told apart.
const GROUPING_ID: &str = "__grouping_id";

impl PhysicalOptimizerRule for GroupingSets {
    fn name(&self) -> &str {
        "grouping_sets"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let is_ours = |aggregate: &AggregateExec| {
            let group = aggregate.group_expr();
            group.groups().len() > 1 || group.expr().iter().any(|(_, name)| name == GROUPING_ID)
        };
        plan.transform_up(|node| {
            Ok(match node.downcast_ref::<AggregateExec>().is_some_and(is_ours) {
                true => Transformed::yes(Arc::new(Unknown::new(node, "GroupingSetsExec", false)) as _),
                false => Transformed::no(node),
            })
        })
        .data()
    }
}
