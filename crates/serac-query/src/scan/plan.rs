//! Common parts of the physical plans of this folder, and of the rules that put them into queries.

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::{ExecutionPlan, Partitioning, PlanProperties};
use std::sync::Arc;

/// Properties of a plan whose partitions have rows of any kind in any order.
pub(super) fn properties(schema: SchemaRef, partitions: usize, emission: EmissionType) -> Arc<PlanProperties> {
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(schema),
        Partitioning::UnknownPartitioning(partitions),
        emission,
        Boundedness::Bounded,
    ))
}

/// The plan, from the leaves up, with nodes of a kind replaced by the result of `other`, if it
/// gives one.
pub(super) fn replace_nodes<T: ExecutionPlan>(
    plan: Arc<dyn ExecutionPlan>,
    other: impl Fn(&T) -> Result<Option<Arc<dyn ExecutionPlan>>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|plan| {
        Ok(match plan.downcast_ref::<T>().map(&other).transpose()?.flatten() {
            Some(other) => Transformed::yes(other),
            None => Transformed::no(plan),
        })
    })
    .data()
}
