//! An operator that passes rows on and states nothing about them.

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::filter_pushdown::{FilterDescription, FilterPushdownPhase};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use std::fmt;
use std::sync::Arc;

/// The rows below, of whose order, equal columns and constants nothing is known.
#[derive(Debug)]
pub(super) struct Unknown {
    rows: Arc<dyn ExecutionPlan>,
    name: &'static str,
    /// Whether filters from above may work below.
    passes_filters: bool,
    properties: Arc<PlanProperties>,
}

impl Unknown {
    pub(super) fn new(rows: Arc<dyn ExecutionPlan>, name: &'static str, passes_filters: bool) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(rows.schema()),
            rows.output_partitioning().clone(),
            rows.pipeline_behavior(),
            rows.boundedness(),
        );
        Self { rows, name, passes_filters, properties: Arc::new(properties) }
    }
}

impl DisplayAs for Unknown {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl ExecutionPlan for Unknown {
    fn name(&self) -> &str {
        self.name
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
        Ok(Arc::new(Self::new(children[0].clone(), self.name, self.passes_filters)))
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        match self.passes_filters {
            true => FilterDescription::from_children(filters, &self.children()),
            false => Ok(FilterDescription::all_unsupported(&filters, &self.children())),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.rows.execute(partition, context)
    }
}
