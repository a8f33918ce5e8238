//! The operator that makes the groups of all grouping sets from the states of the finest level; the
//! header of `rounds` says how.

use super::levels::Levels;
use super::rounds::{RoundLimits, Rounds};
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::stream;
use std::fmt;
use std::sync::Arc;

/// Sets that EXPLAIN shows.
const MOST_SHOWN: usize = 64;

/// States of all grouping sets; see the module.
#[derive(Debug)]
pub struct GroupingLevelsExec {
    /// Gives the states of groups by all keys that any set has.
    finest: Arc<dyn ExecutionPlan>,
    levels: Arc<Levels>,
    limits: RoundLimits,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl GroupingLevelsExec {
    /// In the place of the first step of an aggregation with grouping sets.
    pub(super) fn new(first: &AggregateExec, limits: RoundLimits) -> Result<Self> {
        let levels = Levels::new(first)?;
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(first.schema()),
            first.properties().output_partitioning().clone(),
            EmissionType::Final,
            Boundedness::Bounded,
        ));
        let (finest, levels) = (Arc::new(levels.finest(first)?), Arc::new(levels));
        Ok(Self { finest, levels, limits, properties, metrics: ExecutionPlanMetricsSet::new() })
    }

    /// Whether a set has the keys of all.
    pub(super) fn has_finest(&self) -> bool {
        self.levels.has_finest()
    }
}

impl DisplayAs for GroupingLevelsExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels = &self.levels;
        let shown = levels.all.iter().take(MOST_SHOWN).map(|level| levels.shown(&level.keys));
        let more = levels.all.len().checked_sub(MOST_SHOWN).filter(|more| *more > 0);
        let sets: Vec<String> = shown.chain(more.map(|more| format!("{more} more"))).collect();
        let (finest, sets) = (levels.shown(&levels.finest_keys), sets.join(", "));
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "GroupingLevelsExec: finest={finest}, sets=[{sets}]")
            }
            DisplayFormatType::TreeRender => writeln!(f, "finest={finest}\nsets={sets}"),
        }
    }
}

impl ExecutionPlan for GroupingLevelsExec {
    fn name(&self) -> &str {
        "GroupingLevelsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.finest]
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
        Ok(Arc::new(Self {
            finest: children[0].clone(),
            levels: self.levels.clone(),
            limits: self.limits,
            properties: self.properties.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (levels, finest) = (self.levels.clone(), self.finest.execute(partition, context.clone())?);
        let rounds = Rounds::new(levels, finest, self.limits, (&self.metrics, partition), &context)?;
        let states =
            stream::try_unfold(rounds, |mut rounds| async { Ok(rounds.next().await?.map(|batch| (batch, rounds))) });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), states)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
