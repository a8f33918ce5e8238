//! Outer joins that can be simpler ones.
//!
//! An outer join adds rows with NULLs. If an operator above drops all rows in which one of these
//! columns is NULL, it need not add them. DataFusion's rule sees that where a filter stands right
//! on the join. This rule carries the columns down from filters and from the keys of joins, through
//! joins, projections, groups.
//!
//! If a filter keeps only the rows in which a key of the added side is NULL, a left join becomes an
//! anti-join: no row that has met another is made, to be dropped.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, JoinType, NullEquality, Result, ScalarValue};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Distinct, Expr, Filter, Join, JoinConstraint, LogicalPlan, Operator, Projection,
};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use std::collections::HashSet;
use std::sync::Arc;

/// Makes inner and anti-joins of outer joins; see the module.
#[derive(Debug, Default)]
pub struct OuterJoins;

impl OptimizerRule for OuterJoins {
    fn name(&self) -> &str {
        "outer_joins"
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        simplified(plan, &Columns::new())
    }
}

/// Columns with which an operator above drops all rows in which one of them is NULL.
type Columns = HashSet<Column>;

fn simplified(plan: LogicalPlan, dropped: &Columns) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Filter(filter) => match anti_join(&filter)? {
            Some(plan) => {
                let below = simplified(plan, dropped)?;
                Ok(Transformed::yes(below.data))
            }
            None => {
                let mut dropped = dropped.clone();
                dropped.extend(untrue_with(&filter.predicate));
                below(LogicalPlan::Filter(filter), |_| dropped.clone())
            }
        },
        LogicalPlan::Join(join) => simplified_join(join, dropped),
        LogicalPlan::Projection(projection) => {
            let at = positions(&projection.schema, dropped);
            let dropped: Columns = at.into_iter().flat_map(|at| null_with(&projection.expr[at])).collect();
            below(LogicalPlan::Projection(projection), |_| dropped.clone())
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let at = positions(&alias.schema, dropped);
            let columns = alias.input.schema().columns();
            let dropped: Columns = at.into_iter().filter_map(|at| columns.get(at).cloned()).collect();
            below(LogicalPlan::SubqueryAlias(alias), |_| dropped.clone())
        }
        LogicalPlan::Aggregate(aggregate) => {
            let dropped = among_groups(&aggregate, dropped);
            below(LogicalPlan::Aggregate(aggregate), |_| dropped.clone())
        }
        LogicalPlan::Sort(ref sort) if sort.fetch.is_none() => below(plan, |_| dropped.clone()),
        LogicalPlan::Distinct(Distinct::All(_)) => below(plan, |_| dropped.clone()),
        plan => below(plan, |_| Columns::new()),
    }
}

/// The plan with simpler inputs, of which `dropped` gives the columns.
fn below(plan: LogicalPlan, dropped: impl Fn(usize) -> Columns) -> Result<Transformed<LogicalPlan>> {
    let mut at = 0;
    plan.map_children(|input| {
        let columns = dropped(at);
        at += 1;
        simplified(input, &columns)
    })
}

/// The places of columns in a schema.
fn positions(schema: &DFSchema, columns: &Columns) -> Vec<usize> {
    columns.iter().filter_map(|column| schema.maybe_index_of_column(column)).collect()
}

/// A row with a NULL group is the only one of which its group is made.
fn among_groups(aggregate: &Aggregate, dropped: &Columns) -> Columns {
    if aggregate.group_expr.iter().any(|group| matches!(group, Expr::GroupingSet(_))) {
        return Columns::new();
    }
    let groups = positions(&aggregate.schema, dropped).into_iter().filter_map(|at| aggregate.group_expr.get(at));
    groups.flat_map(null_with).collect()
}

fn simplified_join(mut join: Join, dropped: &Columns) -> Result<Transformed<LogicalPlan>> {
    use JoinType::{Full, Inner, Left, LeftAnti, LeftMark, LeftSemi, Right, RightAnti, RightMark, RightSemi};
    // The dropped columns of each side.
    let left = join.left.schema().fields().len();
    let gives_left = !matches!(join.join_type, RightSemi | RightAnti | RightMark);
    let mut own = [Columns::new(), Columns::new()];
    for at in positions(&join.schema, dropped) {
        let (side, input, at) = match at {
            at if gives_left && at < left => (0, &join.left, at),
            at => (1, &join.right, if gives_left { at - left } else { at }),
        };
        own[side].extend(input.schema().columns().get(at).cloned());
    }
    let join_type = match (join.join_type, own[0].is_empty(), own[1].is_empty()) {
        (Left, _, false) | (Right, false, _) | (Full, false, false) => Inner,
        (Full, false, true) => Left,
        (Full, true, false) => Right,
        (other, ..) => other,
    };
    let is_simpler = join_type != join.join_type;
    join.join_type = join_type;
    // Whether the operators above see the rows of a side as they are, and whether rows of it that
    // meet none make no difference.
    let (seen, met) = match join_type {
        Inner => ([true, true], [true, true]),
        Left | LeftAnti => ([true, false], [false, true]),
        Right | RightAnti => ([false, true], [true, false]),
        LeftSemi => ([true, false], [true, true]),
        RightSemi => ([false, true], [true, true]),
        Full => ([false, false], [false, false]),
        LeftMark => ([true, false], [false, false]),
        RightMark => ([false, true], [false, false]),
    };
    let unmet = unmet(&join);
    for (side, unmet) in unmet.into_iter().enumerate() {
        if !seen[side] {
            own[side].clear();
        }
        if met[side] {
            own[side].extend(unmet);
        }
    }
    let simplified = below(LogicalPlan::Join(join), |side| own[side].clone())?;
    Ok(if is_simpler { Transformed::yes(simplified.data) } else { simplified })
}

/// The columns of both sides with which a row meets none if one of them is NULL.
fn unmet(join: &Join) -> [Columns; 2] {
    if join.null_aware {
        return [Columns::new(), Columns::new()];
    }
    let mut unmet = [Columns::new(), Columns::new()];
    if join.null_equality == NullEquality::NullEqualsNothing {
        for (left, right) in &join.on {
            unmet[0].extend(null_with(left));
            unmet[1].extend(null_with(right));
        }
    }
    for column in join.filter.iter().flat_map(untrue_with) {
        match (join.left.schema().has_column(&column), join.right.schema().has_column(&column)) {
            (true, false) => drop(unmet[0].insert(column)),
            (false, true) => drop(unmet[1].insert(column)),
            _ => {}
        }
    }
    unmet
}

/// An anti-join in the place of a filter on an outer join, if the filter keeps no row that has met
/// another. The columns of the other side are NULL then.
fn anti_join(filter: &Filter) -> Result<Option<LogicalPlan>> {
    let LogicalPlan::Join(join) = filter.input.as_ref() else { return Ok(None) };
    let is_mirrored = join.join_type == JoinType::Right;
    if !(is_mirrored || join.join_type == JoinType::Left) || join.null_aware {
        return Ok(None);
    }
    let never_null = std::mem::take(&mut unmet(join)[usize::from(!is_mirrored)]);
    let is_unmet = |condition: &&Expr| match condition {
        Expr::IsNull(value) => matches!(value.as_ref(), Expr::Column(column) if never_null.contains(column)),
        _ => false,
    };
    let conditions = split_conjunction(&filter.predicate);
    if !conditions.iter().any(is_unmet) {
        return Ok(None);
    }
    let rest = conjunction(conditions.into_iter().filter(|condition| !is_unmet(condition)).cloned());
    let (kept, other) = if is_mirrored { (&join.right, &join.left) } else { (&join.left, &join.right) };
    let on = join.on.iter().cloned().map(|(left, right)| if is_mirrored { (right, left) } else { (left, right) });
    let anti = Join::try_new(
        kept.clone(),
        other.clone(),
        on.collect(),
        join.filter.clone(),
        JoinType::LeftAnti,
        JoinConstraint::On,
        join.null_equality,
        false,
    )?;
    let left = join.left.schema().fields().len();
    let columns = join.schema.iter().enumerate().map(|(at, (qualifier, field))| match (at < left) != is_mirrored {
        true => Ok(Expr::Column(Column::new(qualifier.cloned(), field.name()))),
        false => {
            let null = Expr::Literal(ScalarValue::try_from(field.data_type())?, None);
            Ok(null.alias_qualified(qualifier.cloned(), field.name()))
        }
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let projection = Projection::try_new_with_schema(columns, Arc::new(LogicalPlan::Join(anti)), join.schema.clone())?;
    let projection = LogicalPlan::Projection(projection);
    Ok(Some(match rest {
        Some(rest) => LogicalPlan::Filter(Filter::try_new(rest, Arc::new(projection))?),
        None => projection,
    }))
}

/// The columns with which an expression is NULL if one of them is.
fn null_with(expr: &Expr) -> Columns {
    match expr {
        Expr::Column(column) => [column.clone()].into(),
        Expr::Alias(alias) => null_with(&alias.expr),
        Expr::Cast(cast) => null_with(&cast.expr),
        Expr::Not(inner) | Expr::Negative(inner) => null_with(inner),
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if is_comparison(*op) || matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply) =>
        {
            let mut columns = null_with(left);
            columns.extend(null_with(right));
            columns
        }
        Expr::Like(like) | Expr::SimilarTo(like) => null_with(&like.expr),
        Expr::InList(list) if !list.list.is_empty() => null_with(&list.expr),
        _ => Columns::new(),
    }
}

fn is_comparison(op: Operator) -> bool {
    matches!(op, Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq)
}

/// The columns with which a condition is not true if one of them is NULL.
fn untrue_with(condition: &Expr) -> Columns {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            let mut columns = untrue_with(left);
            columns.extend(untrue_with(right));
            columns
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let right = untrue_with(right);
            untrue_with(left).into_iter().filter(|column| right.contains(column)).collect()
        }
        Expr::IsNotNull(value) | Expr::IsTrue(value) | Expr::IsFalse(value) | Expr::IsNotUnknown(value) => {
            null_with(value)
        }
        Expr::Between(between) => null_with(&between.expr),
        other => null_with(other),
    }
}
