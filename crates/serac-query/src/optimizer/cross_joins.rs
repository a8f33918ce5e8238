//! DataFusion's rule that makes joins of cross joins and conditions, but for conditions of joins
//! that it would lose.
//!
//! The rule takes inner joins apart and puts them together again by their conditions. It uses a
//! pair of keys only if one lies in the relations joined so far and the other in the next input; it
//! forgets pairs that it does not use. So pairs that may not be used first become part of the
//! join's filter, which it keeps. These are `a.x + b.x = c.x` while a and b are not joined, and
//! keys without a hash.

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, NullEquality, Result};
use datafusion::logical_expr::logical_plan::Join;
use datafusion::logical_expr::utils::{can_hash, conjunction};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, binary_expr};
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// DataFusion's rule for cross joins, with its unusable key pairs moved into filters.
#[derive(Debug, Default)]
pub struct CrossJoins(EliminateCrossJoin);

/// Whether the columns of a key may come from several inputs.
fn is_spread(key: &Expr) -> bool {
    let columns = key.column_refs();
    let mut relations = columns.iter().map(|column: &&Column| column.relation.as_ref());
    let Some(first) = relations.next() else { return true };
    columns.len() > 1 && (first.is_none() || relations.any(|relation| relation != first))
}

/// Whether the rule may not use a pair of keys of a join.
fn may_be_lost((left, right): &(Expr, Expr), join: &Join) -> bool {
    is_spread(left) || is_spread(right) || !left.get_type(join.left.schema()).is_ok_and(|kind| can_hash(&kind))
}

fn has_pairs_to_lose(plan: &LogicalPlan) -> Result<bool> {
    let mut has = false;
    plan.apply_with_subqueries(|plan| {
        if let LogicalPlan::Join(join) = plan {
            has |= join.join_type == JoinType::Inner && join.on.iter().any(|pair| may_be_lost(pair, join));
        }
        Ok(if has { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(has)
}

/// The join, with these pairs in its filter.
fn with_filters(mut join: Join) -> Transformed<LogicalPlan> {
    let (lost, kept): (Vec<_>, Vec<_>) =
        std::mem::take(&mut join.on).into_iter().partition(|pair| may_be_lost(pair, &join));
    join.on = kept;
    if lost.is_empty() {
        return Transformed::no(LogicalPlan::Join(join));
    }
    let equal = match join.null_equality {
        NullEquality::NullEqualsNothing => Operator::Eq,
        NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
    };
    let conditions = lost.into_iter().map(|(left, right)| binary_expr(left, equal, right));
    join.filter = conjunction(join.filter.take().into_iter().chain(conditions));
    Transformed::yes(LogicalPlan::Join(join))
}

impl OptimizerRule for CrossJoins {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if !has_pairs_to_lose(&plan)? {
            return self.0.rewrite(plan, config);
        }
        let plan = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Join(join) if join.join_type == JoinType::Inner => Ok(with_filters(join)),
            other => Ok(Transformed::no(other)),
        })?;
        self.0.rewrite(plan.data, config)
    }
}
