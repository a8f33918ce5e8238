//! Joins state properties of their rows that do not hold.
//!
//! - DataFusion assumes that a column that is constant in an input is constant behind an outer
//!   join, too. If the join fills rows of this input with NULL, the column has two values there.
//! - If both inputs are in an order, it assumes that the rows are in both orders, one behind the
//!   other. If a key occurs several times on the side whose order the join keeps, the rows of the
//!   other side repeat for each of them. The order of an input may come later, with the sort that a
//!   window below needs.
//!
//! With such a property, a sort is dropped, and an aggregation ends groups too early. So the input
//! that misleads is hidden behind an operator that states nothing. Above the joins that need the
//! order of both inputs, the operator hides the join itself.

use crate::optimizer::unknown::Unknown;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinType, Result};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, PiecewiseMergeJoinExec, SortMergeJoinExec, SymmetricHashJoinExec,
};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use std::sync::Arc;

/// Hides the inputs from which joins conclude too much. Comes after the rules that choose the sides
/// of joins, and before the rules that look for sorts.
#[derive(Debug)]
pub struct JoinClaims;

/// The name of the operator in plans.
const NAME: &str = "UnknownOrderExec";

impl PhysicalOptimizerRule for JoinClaims {
    fn name(&self) -> &str {
        "join_claims"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            if node.is::<SortMergeJoinExec>()
                || node.is::<PiecewiseMergeJoinExec>()
                || node.is::<SymmetricHashJoinExec>()
            {
                return Ok(Transformed::yes(unknown(node)));
            }
            let misleads = misleading_inputs(&node);
            if misleads == [false, false] {
                return Ok(Transformed::no(node));
            }
            let inputs = node.children().into_iter().cloned().zip(misleads);
            let inputs = inputs.map(|(input, misleads)| if misleads { unknown(input) } else { input }).collect();
            Ok(Transformed::yes(replace_children_if_necessary(node, inputs)?))
        })
        .data()
    }
}

fn unknown(rows: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    Arc::new(Unknown::new(rows, NAME, true))
}

/// Which of the two inputs of a join mislead it.
fn misleading_inputs(node: &Arc<dyn ExecutionPlan>) -> [bool; 2] {
    let (join_type, is_hash) = match (node.downcast_ref::<HashJoinExec>(), node.downcast_ref::<NestedLoopJoinExec>()) {
        (Some(join), _) => (*join.join_type(), true),
        (None, Some(join)) => (*join.join_type(), false),
        (None, None) => return [false, false],
    };
    let filled = match join_type {
        JoinType::Left => [false, true],
        JoinType::Right => [true, false],
        JoinType::Full => [true, true],
        _ => [false, false],
    };
    let inputs = node.children();
    let has_constants = |side: usize| !inputs[side].equivalence_properties().constants().is_empty();
    // Such hash joins keep the order of their right input, and of it alone.
    let keeps_order = is_hash && matches!(join_type, JoinType::Inner | JoinType::Right);
    let is_built_in_order = keeps_order && may_be_in_order(inputs[0]);
    [is_built_in_order || (filled[0] && has_constants(0)), filled[1] && has_constants(1)]
}

/// Whether rows are in an order, or may be in one when the rules that look for sorts have put them
/// below the operators that need them.
fn may_be_in_order(rows: &Arc<dyn ExecutionPlan>) -> bool {
    fn needs_order(plan: &Arc<dyn ExecutionPlan>) -> bool {
        !plan.is::<Unknown>()
            && (plan.required_input_ordering().iter().any(Option::is_some)
                || plan.children().into_iter().any(needs_order))
    }
    rows.output_ordering().is_some() || needs_order(rows)
}
