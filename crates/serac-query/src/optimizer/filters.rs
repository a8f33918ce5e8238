//! DataFusion's rule that pushes filters down to tables, except filters that must not go below an
//! aggregation of all rows, alone or among grouping sets. Such an aggregation has a row even if its
//! input is empty. The rule looks at the columns that a condition names, and `1 < (SELECT …)` has
//! no columns. The rule's comparisons are first brought into one form, in which it recognises them.
//!
//! The rule puts conditions into another order. It keeps one of several comparisons of a column,
//! and puts that one last. LIKE comes after what the rule takes for cheap. So in
//! `a > 0 AND a > 1 AND 10 / a > 2`, the quotient would be computed for rows that the others drop.
//! Conditions that may fail are therefore tested after those that cannot.
//!
//! A condition over a column that is a constant in one branch of a UNION becomes true or false at
//! that branch's table. The rule drops a condition that is true. A scan with a false one becomes an
//! empty relation.

use crate::optimizer::guarded_branches::has_hazard;
use crate::scan::may_read_all;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::GroupingSet;
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, EmptyRelation, Expr, LogicalPlan, lit};
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// DataFusion's pushdown of filters, with filters over aggregations of all rows held back.
#[derive(Debug, Default)]
pub struct Filters(PushDownFilter);

/// Whether a condition without columns stands on an aggregation of all rows, perhaps with other
/// conditions between.
fn stands_on_aggregation(plan: &LogicalPlan) -> bool {
    let (mut plan, mut without_columns) = (plan, false);
    while let LogicalPlan::Filter(filter) = plan {
        without_columns |= split_conjunction(&filter.predicate).iter().any(|condition| !condition.any_column_refs());
        plan = &filter.input;
    }
    without_columns && matches!(plan, LogicalPlan::Aggregate(aggregate) if aggregates_all_rows(&aggregate.group_expr))
}

fn aggregates_all_rows(keys: &[Expr]) -> bool {
    match keys {
        [] | [Expr::GroupingSet(GroupingSet::Rollup(_) | GroupingSet::Cube(_))] => true,
        [Expr::GroupingSet(GroupingSet::GroupingSets(sets))] => sets.iter().any(Vec::is_empty),
        _ => false,
    }
}

/// Comparisons of a column with a value, the column on the left, and 0 in place of -0. DataFusion's
/// rule drops comparisons that others imply, and expects this form. Otherwise it takes `1 = a` and
/// `a = 1` for different conditions, and does not rank `1 < a` above `a >= 1`.
fn in_one_form(predicate: Expr) -> Expr {
    let mut conditions = split_conjunction_owned(predicate);
    if conditions.len() > 1 {
        for condition in &mut conditions {
            let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else { continue };
            if let (Expr::Literal(..), Expr::Column(_), Some(swapped)) = (left.as_ref(), right.as_ref(), op.swap()) {
                std::mem::swap(left, right);
                *op = swapped;
            }
            if let (Expr::Column(_), Expr::Literal(value, _)) = (left.as_ref(), right.as_mut()) {
                match value {
                    ScalarValue::Float32(Some(number)) if *number == 0.0 => *number = 0.0,
                    ScalarValue::Float64(Some(number)) if *number == 0.0 => *number = 0.0,
                    _ => {}
                }
            }
        }
    }
    conjunction(conditions).unwrap_or_else(|| lit(true))
}

/// The conditions in an order in which those that may fail come last; `None` if they are in one.
/// Conditions with volatile functions stay where they are.
fn safe_first(conditions: &[&Expr], schema: &DFSchema) -> Option<Vec<Expr>> {
    if conditions.len() < 2 {
        return None;
    }
    let hazards: Vec<bool> = conditions.iter().map(|condition| has_hazard(condition, schema)).collect();
    if hazards.is_sorted() || conditions.iter().any(|condition| condition.is_volatile()) {
        return None;
    }
    let of_kind = |wanted: bool| conditions.iter().zip(&hazards).filter(move |(_, hazard)| **hazard == wanted);
    Some(of_kind(false).chain(of_kind(true)).map(|(condition, _)| (*condition).clone()).collect())
}

/// As [`safe_first`], for the conditions that are joined by AND.
fn with_safe_first(predicate: &Expr, schema: &DFSchema) -> Option<Expr> {
    conjunction(safe_first(&split_conjunction(predicate), schema)?)
}

/// A scan without filters that are true; no rows if a filter is false or NULL.
fn without_constants(mut plan: LogicalPlan) -> Transformed<LogicalPlan> {
    let LogicalPlan::TableScan(scan) = &mut plan else { return Transformed::no(plan) };
    let value = |filter: &Expr| match filter {
        Expr::Literal(ScalarValue::Boolean(value), _) => Some(*value),
        _ => None,
    };
    let is_empty = scan.filters.iter().any(|filter| matches!(value(filter), Some(None | Some(false))));
    if is_empty && may_read_all(&scan.source) {
        let schema = scan.projected_schema.clone();
        return Transformed::yes(LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, schema }));
    }
    let before = scan.filters.len();
    scan.filters.retain(|filter| value(filter) != Some(Some(true)));
    let is_new = scan.filters.len() < before;
    Transformed::new_transformed(plan, is_new)
}

/// The plan, whose own conditions that may fail come last.
fn in_safe_order(mut plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let is_new = match &mut plan {
        LogicalPlan::Filter(filter) => match with_safe_first(&filter.predicate, filter.input.schema()) {
            Some(predicate) => {
                filter.predicate = predicate;
                true
            }
            None => false,
        },
        LogicalPlan::Join(join) => match join.filter.as_ref().and_then(|all| with_safe_first(all, &join.schema)) {
            Some(predicate) => {
                join.filter = Some(predicate);
                true
            }
            None => false,
        },
        LogicalPlan::TableScan(scan) if scan.filters.len() > 1 => {
            let schema = DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?;
            match safe_first(&scan.filters.iter().collect::<Vec<_>>(), &schema) {
                Some(filters) => {
                    scan.filters = filters;
                    true
                }
                None => false,
            }
        }
        _ => false,
    };
    Ok(Transformed::new_transformed(plan, is_new))
}

impl OptimizerRule for Filters {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if stands_on_aggregation(&plan) {
            return Ok(Transformed::no(plan));
        }
        let plan = match plan {
            LogicalPlan::Filter(mut filter) => {
                filter.predicate = in_one_form(filter.predicate);
                LogicalPlan::Filter(filter)
            }
            other => other,
        };
        self.0.rewrite(plan, config)?.transform_data(in_safe_order)?.transform_data(|plan| Ok(without_constants(plan)))
    }
}
