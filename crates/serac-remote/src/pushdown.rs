//! The rule of the optimizer by which servers compute aggregates and first rows.
//!
//! ```text
//! AggregateExec: Final                        AggregateExec: Final
//!   RepartitionExec or CoalescePartitions       RepartitionExec or CoalescePartitions
//!     AggregateExec: Partial            ─▶        UnionExec
//!       UnionExec                                   the scan of a shard, which gives states
//!         the scan of a shard                       the scan of another
//!         the scan of another                       AggregateExec: Partial
//!         a table of this process                     a table of this process
//! ```
//! The last step merges what comes, as it does without the rule. A sort with a limit stays where it
//! is, too: the scans below it give the first rows of each partition, among which are those of all.
//!
//! The rule looks through projections of columns, unions, and operators that only move batches
//! between partitions.

use crate::scan::RemoteScanExec;
use crate::summary::PartialAggregate;
use datafusion::arrow::compute::SortOptions;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning, replace_children_if_necessary};
use std::sync::Arc;

/// A scan whose server computes aggregates and first rows.
pub trait SummarizedScan {
    /// The scan that gives the states of an aggregation's first step; `None` if the server cannot
    /// compute them exactly.
    fn aggregated(&self, partial: &PartialAggregate) -> Option<Arc<dyn ExecutionPlan>>;

    /// The scan that gives only the first `rows` rows of each partition, by these columns. `None`
    /// if the server orders them otherwise.
    fn first_rows(&self, by: &[(usize, SortOptions)], rows: usize) -> Option<Arc<dyn ExecutionPlan>>;
}

impl SummarizedScan for RemoteScanExec {
    fn aggregated(&self, partial: &PartialAggregate) -> Option<Arc<dyn ExecutionPlan>> {
        self.aggregated(partial).map(|scan| Arc::new(scan) as _)
    }

    fn first_rows(&self, by: &[(usize, SortOptions)], rows: usize) -> Option<Arc<dyn ExecutionPlan>> {
        self.first_rows(by, rows).map(|scan| Arc::new(scan) as _)
    }
}

/// A leaf of a plan as a scan, if it is one.
type AsScan = fn(&dyn ExecutionPlan) -> Option<&dyn SummarizedScan>;

/// Lets servers compute the first step of aggregations, and the first rows of sorts with a limit,
/// where that is exact. It comes after DataFusion's rules:
///
/// ```
/// use datafusion::execution::SessionStateBuilder;
/// use serac_remote::RemoteSummaries;
/// use std::sync::Arc;
///
/// let state = SessionStateBuilder::new()
///     .with_default_features()
///     .with_physical_optimizer_rule(Arc::new(RemoteSummaries::default()))
///     .build();
/// ```
#[derive(Clone, Debug)]
pub struct RemoteSummaries(AsScan);

impl Default for RemoteSummaries {
    /// For scans of [`RemoteTable`](crate::RemoteTable)s.
    fn default() -> Self {
        Self(|plan| plan.downcast_ref::<RemoteScanExec>().map(|scan| scan as _))
    }
}

impl RemoteSummaries {
    /// For the scans that `as_scan` knows.
    pub fn of_scans(as_scan: AsScan) -> Self {
        Self(as_scan)
    }

    fn step(&self, aggregate: &AggregateExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let is_first = *aggregate.mode() == AggregateMode::Partial;
        if !is_first && !matches!(aggregate.mode(), AggregateMode::Single | AggregateMode::SinglePartitioned) {
            return Ok(None);
        }
        let Some(partial) = PartialAggregate::of(aggregate)? else { return Ok(None) };
        let Some(states) = self.aggregated(aggregate.input(), &partial)? else { return Ok(None) };
        if is_first {
            return Ok(Some(states));
        }
        // The only step of an aggregation over one partition becomes the last one.
        if states.output_partitioning().partition_count() != 1 {
            return Ok(None);
        }
        let last = AggregateExec::try_new(
            AggregateMode::Final,
            aggregate.group_expr().as_final(),
            aggregate.aggr_expr().to_vec(),
            aggregate.filter_expr().to_vec(),
            states,
            aggregate.input_schema(),
        )?;
        Ok(Some(Arc::new(last)))
    }

    /// The plan that gives the states of rows, if a server computes some of them.
    fn aggregated(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        partial: &PartialAggregate,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        if let Some(scan) = self.0(plan.as_ref()) {
            return Ok(scan.aggregated(partial));
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            return match partial.below(projection) {
                Some(below) => self.aggregated(projection.input(), &below),
                None => Ok(None),
            };
        }
        if let Some(union) = plan.downcast_ref::<UnionExec>() {
            let inputs = union.inputs().iter().map(|input| self.aggregated(input, partial));
            let inputs = inputs.collect::<Result<Vec<_>>>()?;
            if inputs.iter().all(Option::is_none) {
                return Ok(None);
            }
            let here = union.inputs().iter().zip(inputs).map(|(input, states)| match states {
                Some(states) => Ok(states),
                None => partial.over(input.clone()),
            });
            return UnionExec::try_new(here.collect::<Result<_>>()?).map(Some);
        }
        match moved(plan) {
            Some(input) => self.aggregated(input, partial)?.map(|states| again(plan, states)).transpose(),
            None => Ok(None),
        }
    }

    fn sorted(&self, sort: &SortExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(rows) = sort.fetch() else { return Ok(None) };
        let key =
            |at: &Arc<dyn datafusion::physical_expr::PhysicalExpr>| at.downcast_ref::<Column>().map(Column::index);
        let by = sort.expr().iter().map(|by| Some((key(&by.expr)?, by.options))).collect::<Option<Vec<_>>>();
        let Some(by) = by else { return Ok(None) };
        let Some(input) = self.first_rows(sort.input(), &by, rows)? else { return Ok(None) };
        again(&(Arc::new(sort.clone()) as _), input).map(Some)
    }

    /// The plan that leaves out rows which are not among the first ones, if a server does so.
    fn first_rows(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        by: &[(usize, SortOptions)],
        rows: usize,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        if let Some(scan) = self.0(plan.as_ref()) {
            return Ok(scan.first_rows(by, rows));
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            // A volatile value is computed for each row: the server's summary would compute fewer.
            if projection.expr().iter().any(|item| is_volatile(&item.expr)) {
                return Ok(None);
            }
            let mut below = Vec::with_capacity(by.len());
            for &(at, options) in by {
                let expr = &projection.expr()[at].expr;
                match expr.downcast_ref::<Column>() {
                    Some(column) => below.push((column.index(), options)),
                    // All rows have the same value.
                    None if expr.is::<Literal>() => {}
                    None => return Ok(None),
                }
            }
            let input = self.first_rows(projection.input(), &below, rows)?;
            return input.map(|input| again(plan, input)).transpose();
        }
        if let Some(union) = plan.downcast_ref::<UnionExec>() {
            let inputs = union.inputs().iter().map(|input| self.first_rows(input, by, rows));
            let inputs = inputs.collect::<Result<Vec<_>>>()?;
            if inputs.iter().all(Option::is_none) {
                return Ok(None);
            }
            let inputs = union.inputs().iter().zip(inputs).map(|(input, first)| first.unwrap_or_else(|| input.clone()));
            return UnionExec::try_new(inputs.collect()).map(Some);
        }
        match moved(plan) {
            Some(input) => self.first_rows(input, by, rows)?.map(|first| again(plan, first)).transpose(),
            None => Ok(None),
        }
    }
}

/// The input of an operator that gives all of its rows, as they are.
fn moved(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    if let Some(repartition) = plan.downcast_ref::<RepartitionExec>() {
        let is_round_robin = matches!(repartition.partitioning(), Partitioning::RoundRobinBatch(_));
        return is_round_robin.then(|| repartition.input());
    }
    if let Some(coalesce) = plan.downcast_ref::<CoalescePartitionsExec>() {
        return coalesce.fetch().is_none().then(|| coalesce.input());
    }
    plan.downcast_ref::<CooperativeExec>().map(CooperativeExec::input)
}

/// An operator over another input.
fn again(plan: &Arc<dyn ExecutionPlan>, input: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    replace_children_if_necessary(plan.clone(), vec![input])
}

impl PhysicalOptimizerRule for RemoteSummaries {
    fn name(&self) -> &str {
        "remote_summaries"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let step = |plan: Arc<dyn ExecutionPlan>| {
            let other = if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
                self.step(aggregate)?
            } else if let Some(sort) = plan.downcast_ref::<SortExec>() {
                self.sorted(sort)?
            } else {
                None
            };
            Ok(other.map_or_else(|| Transformed::no(plan), Transformed::yes))
        };
        plan.transform_up(step).data()
    }
}
