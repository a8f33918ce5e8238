//! The operator in the place of DataFusion's operators for windows.

use super::plan::WindowPlan;
use super::stream::Windows;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_expr::{OrderingRequirements, PhysicalExpr};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, InputOrderMode, PlanProperties, ReplaceChildrenOptions,
};
use futures::stream;
use std::fmt;
use std::sync::Arc;

/// Rows with the values of window functions; see the module.
#[derive(Debug)]
pub struct WindowExec {
    /// DataFusion's operator. It says which rows this one needs, and which it gives.
    replaced: Arc<dyn ExecutionPlan>,
    plan: Arc<WindowPlan>,
    metrics: ExecutionPlanMetricsSet,
}

/// The windows of DataFusion's operator, if its rows come in order.
fn windows(plan: &Arc<dyn ExecutionPlan>) -> Option<&[Arc<dyn WindowExpr>]> {
    if let Some(windows) = plan.downcast_ref::<WindowAggExec>() {
        return Some(windows.window_expr());
    }
    let windows = plan.downcast_ref::<BoundedWindowAggExec>()?;
    let is_known = windows.input_order_mode == InputOrderMode::Sorted && windows.state_observer().is_none();
    is_known.then(|| windows.window_expr())
}

impl WindowExec {
    /// In the place of an operator, if that is one for windows, all of which are known.
    pub(super) fn in_place_of(replaced: &Arc<dyn ExecutionPlan>) -> Result<Option<Self>> {
        let Some(windows) = windows(replaced).filter(|_| !replaced.boundedness().is_unbounded()) else {
            return Ok(None);
        };
        let plan = WindowPlan::of(windows, &replaced.children()[0].schema())?;
        Ok(plan.map(|plan| Self {
            replaced: replaced.clone(),
            plan: Arc::new(plan),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }
}

impl DisplayAs for WindowExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = windows(&self.replaced).unwrap_or_default().iter().map(|window| window.name());
        let functions = names.collect::<Vec<_>>().join(", ");
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => write!(f, "WindowExec: functions=[{functions}]"),
            DisplayFormatType::TreeRender => writeln!(f, "functions={functions}"),
        }
    }
}

impl ExecutionPlan for WindowExec {
    fn name(&self) -> &str {
        "WindowExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.replaced.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.replaced.children()
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        self.replaced.required_input_ordering()
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        self.replaced.input_distribution_requirements().into_per_child()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.replaced.input_distribution_requirements()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.replaced.maintains_input_order()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.replaced.apply_expressions(f)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let replaced = self
            .replaced
            .clone()
            .replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))?;
        match Self::in_place_of(&replaced)? {
            Some(windows) => Ok(Arc::new(windows)),
            None => internal_err!("the windows of {} are not known any more", self.name()),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.children()[0].execute(partition, context.clone())?;
        let windows = Windows::new(self.plan.clone(), self.schema(), input, (&self.metrics, partition), &context);
        let rows =
            stream::try_unfold(windows, |mut windows| async { Ok(windows.next().await?.map(|rows| (rows, windows))) });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.replaced.child_stats_requests(partition)
    }

    fn statistics_from_inputs(&self, given: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        self.replaced.statistics_from_inputs(given, args)
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}
