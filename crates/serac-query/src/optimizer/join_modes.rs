//! Whether the rows of a hash join are distributed over the threads.
//!
//! If they are, each thread builds and probes a part of the hash table, and all rows of both sides
//! are dealt out first. If not, one thread builds the whole table, and the rows of the probe side
//! stay where they are. DataFusion distributes unless the build side is tiny, whatever the probe
//! side is and however few threads there are. This rule compares the work: building takes several
//! times as long as dealing out, for each row. But all threads deal out, and all but one wait for
//! one that builds.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinType, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use std::sync::Arc;

/// Time to put a row into a hash table, if a row is dealt out in 1.
const BUILD_COST: f64 = 3.0;

/// Keeps the rows of hash joins from being distributed where that costs more than it saves. Comes
/// right after the rule that chooses the sides of joins.
#[derive(Debug)]
pub struct JoinModes;

impl PhysicalOptimizerRule for JoinModes {
    fn name(&self) -> &str {
        "join_modes"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let threads = config.execution.target_partitions;
        plan.transform_up(|node| match node.downcast_ref::<HashJoinExec>() {
            Some(join) if *join.partition_mode() == PartitionMode::Partitioned && is_better_whole(join, threads)? => {
                let whole = join.builder().with_partition_mode(PartitionMode::CollectLeft).build_exec()?;
                Ok(Transformed::yes(whole))
            }
            _ => Ok(Transformed::no(node)),
        })
        .data()
    }
}

fn rows(plan: &dyn ExecutionPlan) -> Result<Option<f64>> {
    let statistics = StatisticsContext::new().compute(plan, &StatisticsArgs::new())?;
    Ok(statistics.num_rows.get_value().map(|&rows| rows as f64))
}

/// Whether one thread had better build the whole table.
fn is_better_whole(join: &HashJoinExec, threads: usize) -> Result<bool> {
    let (Some(build), Some(probe)) = (rows(join.left().as_ref())?, rows(join.right().as_ref())?) else {
        return Ok(false);
    };
    let (build_keys, probe_keys): (Vec<_>, Vec<_>) = join.on().iter().map(|(b, p)| (b.clone(), p.clone())).unzip();
    // The probe side's scan leaves out most of the rows that meet none of the build side.
    let given = match join.join_type() {
        JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi | JoinType::Left => {
            rows(join)?.map_or(probe, |rows| rows.min(probe))
        }
        _ => probe,
    };
    let dealt = |plan: &Arc<dyn ExecutionPlan>, keys: &[Arc<dyn PhysicalExpr>], rows: f64| match is_dealt(plan, keys) {
        true => 0.0,
        false => rows,
    };
    let dealt = dealt(join.left(), &build_keys, build) + dealt(join.right(), &probe_keys, given);
    Ok(build * BUILD_COST * (threads.saturating_sub(1)) as f64 <= dealt)
}

/// Whether the rows of an input come distributed by these keys in any case.
fn is_dealt(plan: &Arc<dyn ExecutionPlan>, keys: &[Arc<dyn PhysicalExpr>]) -> bool {
    let places: Option<Vec<usize>> = keys.iter().map(|key| key.downcast_ref::<Column>().map(Column::index)).collect();
    let Some(places) = places else { return false };
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let below: Option<Vec<_>> =
            places.iter().map(|&at| projection.expr().get(at).map(|e| e.expr.clone())).collect();
        return below.is_some_and(|below| is_dealt(projection.input(), &below));
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let groups = aggregate.group_expr();
        let is_final = matches!(aggregate.mode(), AggregateMode::FinalPartitioned | AggregateMode::SinglePartitioned);
        return is_final && !groups.has_grouping_set() && (0..groups.expr().len()).eq(places);
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        let is_inner = *join.join_type() == JoinType::Inner && join.projection.is_none();
        let left = join.left().schema().fields().len();
        let by = |is_right: bool| {
            let own = join.on().iter().map(|(l, r)| if is_right { r } else { l });
            let own = own.map(|key| key.downcast_ref::<Column>().map(|key| key.index() + left * usize::from(is_right)));
            own.eq(places.iter().copied().map(Some))
        };
        return is_inner && *join.partition_mode() == PartitionMode::Partitioned && (by(false) || by(true));
    }
    false
}
