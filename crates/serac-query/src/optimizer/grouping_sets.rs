//! Grouping sets hide properties that DataFusion's physical plans assume of their rows.
//!
//! DataFusion assumes that the rows of an aggregation keep the properties of the rows below: that
//! two columns are equal, or that one is constant. That does not hold if a grouping set leaves a
//! column out, which then is NULL; but a sort by the column would be dropped. DataFusion also
//! assumes that no two groups have the same columns, though one may have NULL where another leaves
//! the column out. So each step of such an aggregation is followed by an operator that passes rows
//! on and states no properties.

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use std::fmt;
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
                true => Transformed::yes(Arc::new(Unknown::new(node)) as _),
                false => Transformed::no(node),
            })
        })
        .data()
    }
}

/// The rows below, of which nothing is known.
#[derive(Debug)]
struct Unknown {
    rows: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl Unknown {
    fn new(rows: Arc<dyn ExecutionPlan>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(rows.schema()),
            rows.output_partitioning().clone(),
            rows.pipeline_behavior(),
            rows.boundedness(),
        );
        Self { rows, properties: Arc::new(properties) }
    }
}

impl DisplayAs for Unknown {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GroupingSetsExec")
    }
}

impl ExecutionPlan for Unknown {
    fn name(&self) -> &str {
        "GroupingSetsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.rows]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(children[0].clone())))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.rows.execute(partition, context)
    }
}
