//! The paths of a plan's columns down to the scans that read them, by their places. A path ends at
//! an operator below which rows with other values may not be left out.
//!
//! At a join on such a column, a path leads into both inputs: a row of the other input with another
//! value meets none but rows that are left out.

use super::exec::SeracScanExec;
use super::key_filter::KeyFilterBuildExec;
use datafusion::common::{JoinType, NullEquality, Result};
use datafusion::physical_expr::PhysicalExpr;
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
use datafusion::physical_plan::union::UnionExec;
use std::sync::Arc;

/// Columns of a plan, and which of the keys each of them is.
pub(super) type Keys = Vec<(usize, usize)>;

/// A scan in the place of another, of which these columns are keys.
pub(super) type Replace<'a> = dyn Fn(&SeracScanExec, &[(usize, usize)]) -> Option<SeracScanExec> + 'a;

/// The plan with the results of `replace` in place of the scans that the paths of `keys` lead to.
/// `None` if there is none.
pub(super) fn replace_scans(
    plan: &Arc<dyn ExecutionPlan>,
    keys: &[(usize, usize)],
    replace: &Replace<'_>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = plan.downcast_ref::<SeracScanExec>() {
        return Ok(replace(scan, keys).map(|scan| Arc::new(scan) as _));
    }
    let mut children: Vec<_> = plan.children().into_iter().cloned().collect();
    let mut is_replaced = false;
    for (child, keys) in children.iter_mut().zip(steps(plan.as_ref(), keys)) {
        if !keys.is_empty()
            && let Some(replaced) = replace_scans(child, &keys, replace)?
        {
            *child = replaced;
            is_replaced = true;
        }
    }
    Ok(if is_replaced { Some(replace_children_if_necessary(plan.clone(), children)?) } else { None })
}

/// The columns of each input that the columns come from.
fn steps(plan: &dyn ExecutionPlan, keys: &[(usize, usize)]) -> Vec<Keys> {
    if plan.fetch().is_some() {
        return Vec::new();
    }
    let through = |of: &dyn Fn(usize) -> Option<usize>| -> Keys {
        keys.iter().filter_map(|&(column, key)| Some((of(column)?, key))).collect()
    };
    if plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<KeyFilterBuildExec>()
    {
        return vec![keys.to_vec()];
    }
    if plan.is::<UnionExec>() {
        return vec![keys.to_vec(); plan.children().len()];
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        return vec![match filter.projection().as_ref() {
            Some(places) => through(&|column| places.get(column).copied()),
            None => keys.to_vec(),
        }];
    }
    let place = |expr: &Arc<dyn PhysicalExpr>| expr.downcast_ref::<Column>().map(Column::index);
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        return vec![through(&|column| place(&projection.expr().get(column)?.expr))];
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        // All rows of a group have its keys.
        let groups = aggregate.group_expr();
        return vec![through(&|column| place(&groups.expr().get(column)?.0).filter(|_| !groups.has_grouping_set()))];
    }
    match plan.downcast_ref::<HashJoinExec>() {
        Some(join) => join_steps(join, keys),
        None => Vec::new(),
    }
}

fn join_steps(join: &HashJoinExec, keys: &[(usize, usize)]) -> Vec<Keys> {
    use JoinType::{Full, Inner, Left, LeftAnti, LeftMark, LeftSemi, Right, RightAnti, RightMark, RightSemi};
    let left = join.left().schema().fields().len();
    let right = join.right().schema().fields().len();
    // The columns of the inputs in the join's output, before its projection.
    let (of_left, of_right) = match join.join_type() {
        Inner => (0..left, left..left + right),
        Left | LeftSemi | LeftAnti | LeftMark => (0..left, 0..0),
        Right => (0..0, left..left + right),
        RightSemi | RightAnti | RightMark => (0..0, 0..right),
        Full => (0..0, 0..0),
    };
    let mut steps = vec![Keys::new(), Keys::new()];
    for &(column, key) in keys {
        let Some(column) = join.projection.as_ref().map_or(Some(column), |places| places.get(column).copied()) else {
            continue;
        };
        if of_left.contains(&column) {
            steps[0].push((column, key));
        } else if of_right.contains(&column) {
            steps[1].push((column - of_right.start, key));
        }
    }
    // NOT IN asks whether the other input has NULL, or any row.
    if !join.null_aware && join.null_equality() == NullEquality::NullEqualsNothing {
        let place = |expr: &Arc<dyn PhysicalExpr>| expr.downcast_ref::<Column>().map(Column::index);
        let own = steps.clone();
        for (left, right) in join.on() {
            let (Some(left), Some(right)) = (place(left), place(right)) else { continue };
            for (from, to, step) in [(left, right, 1), (right, left, 0)] {
                let met = own[1 - step].iter().filter(|(column, _)| *column == from).map(|&(_, key)| (to, key));
                let new: Keys = met.filter(|met| !steps[step].contains(met)).collect();
                steps[step].extend(new);
            }
        }
    }
    steps
}
