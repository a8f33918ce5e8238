//! The order of rows from one stream (`generate_series`, `unnest`, a window) or from a small table
//! on the way to the client, and into aggregates and windows without an order of their own.
//! DataFusion distributes the batches of such a stream over several threads, so that all of them
//! compute an expression above it, and scans a table by several threads. The batches come back in
//! any order. Without ORDER BY any order is right, but PostgreSQL gives the stream's and that of
//! the inserts, and people rely on it.

use crate::scan::SeracScanExec;
use crate::shared::{SharedQueryExec, WithExec};
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::output_requirements::OutputRequirementExec;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};
use std::sync::Arc;

/// The pass of this module. It comes right after the pass that distributes rows.
#[derive(Debug)]
pub struct SourceOrder;

impl PhysicalOptimizerRule for SourceOrder {
    fn name(&self) -> &str {
        "source_order"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        kept(plan, true)
    }
}

/// A plan whose streams are not distributed if `is_seen` is the order of its rows.
fn kept(plan: Arc<dyn ExecutionPlan>, is_seen: bool) -> Result<Arc<dyn ExecutionPlan>> {
    let passes_on = plan.is::<ProjectionExec>()
        || plan.is::<FilterExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<UnnestExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<OutputRequirementExec>()
        || plan.is::<WithExec>()
        || plan.is::<SharedQueryExec>();
    let numbers = plan.is::<BoundedWindowAggExec>() || plan.is::<WindowAggExec>();
    let collects = plan.downcast_ref::<AggregateExec>().is_some_and(collects_in_order)
        || numbers && plan.required_input_ordering().iter().all(Option::is_none);
    let is_seen = (is_seen && passes_on) || collects;
    let children: Vec<Arc<dyn ExecutionPlan>> = plan
        .children()
        .into_iter()
        .map(|child| match child.downcast_ref::<RepartitionExec>() {
            Some(dealt) if is_seen && deals_out_one(dealt) => kept(dealt.input().clone(), true),
            _ => match child.downcast_ref::<SeracScanExec>().filter(|_| is_seen) {
                Some(scan) => Ok(scan.in_stored_order().map_or_else(|| child.clone(), |scan| Arc::new(scan) as _)),
                None => kept(child.clone(), is_seen),
            },
        })
        .collect::<Result<_>>()?;
    replace_children_if_necessary(plan, children)
}

/// Whether the batches of one stream are dealt out as they come.
fn deals_out_one(dealt: &RepartitionExec) -> bool {
    matches!(dealt.partitioning(), Partitioning::RoundRobinBatch(_))
        && dealt.input().output_partitioning().partition_count() == 1
}

/// Whether a result shows the order of the rows: `array_agg`, `string_agg`, `json_agg` and the
/// like.
fn collects_in_order(aggregate: &AggregateExec) -> bool {
    aggregate.aggr_expr().iter().any(|call| call.fun().name().ends_with("_agg"))
}
