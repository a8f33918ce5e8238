//! The path of a plan's columns down to the scans that read them, by their places. It ends at an
//! operator below which rows with other values may not be left out.

use super::exec::SeracScanExec;
use datafusion::common::{JoinType, Result};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use std::sync::Arc;

/// The plan with the result of `replace` in place of the scan, all of whose `columns` are the
/// plan's `keys`. `None` if there is no such scan.
pub(super) fn replace_scan(
    plan: &Arc<dyn ExecutionPlan>,
    keys: &[usize],
    replace: &dyn Fn(&SeracScanExec, &[usize]) -> Option<SeracScanExec>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = plan.downcast_ref::<SeracScanExec>() {
        return Ok(replace(scan, keys).map(|scan| Arc::new(scan) as _));
    }
    let Some((child, keys)) = step(plan.as_ref(), keys) else { return Ok(None) };
    let mut children: Vec<_> = plan.children().into_iter().cloned().collect();
    let Some(replaced) = replace_scan(&children[child], &keys, replace)? else { return Ok(None) };
    children[child] = replaced;
    Ok(Some(replace_children_if_necessary(plan.clone(), children)?))
}

/// The child that the columns come from, and which of its columns they are.
fn step(plan: &dyn ExecutionPlan, keys: &[usize]) -> Option<(usize, Vec<usize>)> {
    if plan.fetch().is_some() {
        return None;
    }
    let through = |places: &[usize]| keys.iter().map(|&key| places.get(key).copied()).collect::<Option<Vec<usize>>>();
    if plan.is::<RepartitionExec>() || plan.is::<CoalescePartitionsExec>() || plan.is::<CooperativeExec>() {
        return Some((0, keys.to_vec()));
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        return Some((0, filter.projection().as_ref().map_or(Some(keys.to_vec()), |places| through(places))?));
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let of = |&key: &usize| projection.expr().get(key)?.expr.downcast_ref::<Column>().map(Column::index);
        return Some((0, keys.iter().map(of).collect::<Option<_>>()?));
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        // All rows of a group have its keys.
        let groups = aggregate.group_expr();
        let of = |&key: &usize| groups.expr().get(key)?.0.downcast_ref::<Column>().map(Column::index);
        return (!groups.has_grouping_set()).then(|| Some((0, keys.iter().map(of).collect::<Option<_>>()?)))?;
    }
    let join = plan.downcast_ref::<HashJoinExec>()?;
    let keys = join.projection.as_ref().map_or(Some(keys.to_vec()), |places| through(places))?;
    let left = join.left().schema().fields().len();
    use JoinType::{Inner, Left, LeftAnti, LeftMark, LeftSemi, Right, RightAnti, RightMark, RightSemi};
    match join.join_type() {
        Inner | Left | LeftSemi | LeftAnti | LeftMark if keys.iter().all(|&key| key < left) => Some((0, keys)),
        Inner | Right if keys.iter().all(|&key| key >= left) => Some((1, keys.iter().map(|key| key - left).collect())),
        RightSemi | RightAnti | RightMark if keys.iter().all(|&key| key < join.right().schema().fields().len()) => {
            Some((1, keys))
        }
        _ => None,
    }
}
