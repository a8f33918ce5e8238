//! Correlated subqueries that DataFusion's own rules turn into joins correctly, and plans that give
//! the same rows each time they run.

use super::outer::{free, has_subquery, lateral, refers, refers_below, subquery_of};
use crate::shared::Shared;
use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, Result};
use datafusion::logical_expr::logical_plan::Distinct;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use serac_functions::has_part;
use std::collections::HashSet;

/// Whether a plan in the term of a recursive query reads the rows of the step before, which can be
/// read once.
pub(super) fn reads_step(plan: &LogicalPlan) -> Result<bool> {
    let (mut read, mut own): (HashSet<String>, HashSet<String>) = (HashSet::new(), HashSet::new());
    plan.apply_with_subqueries(|plan| {
        match plan {
            LogicalPlan::TableScan(scan)
                if source_as_provider(&scan.source).is_ok_and(|source| source.is::<CteWorkTable>()) =>
            {
                read.insert(scan.table_name.table().to_owned());
            }
            LogicalPlan::RecursiveQuery(query) => {
                own.insert(query.name.clone());
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(!read.is_subset(&own))
}

/// Whether references are in filters alone, and nothing that stands above these changes its meaning
/// when they are tested after it.
fn pulls_up(plan: &LogicalPlan, equalities: bool, conditions: &mut Vec<Expr>) -> bool {
    if free(plan).is_empty() {
        return true;
    }
    if !leaves_subqueries(plan) {
        return false;
    }
    match plan {
        LogicalPlan::Filter(filter) => {
            let correlated = split_conjunction(&filter.predicate).into_iter().filter(|c| c.contains_outer());
            let before = conditions.len();
            conditions.extend(correlated.cloned());
            // One filter on the way: DataFusion loses the columns of a second one. It does not look
            // into subqueries of a condition, as in `outer.x IN (…)`.
            !refers_below(plan)
                && !conditions[before..].iter().any(has_subquery)
                && (!equalities || conditions[before..].iter().all(is_equality))
                && free(&filter.input).is_empty()
        }
        LogicalPlan::Projection(projection) => !refers(plan) && pulls_up(&projection.input, equalities, conditions),
        LogicalPlan::SubqueryAlias(alias) => {
            let before = conditions.len();
            // Above the alias are no columns but those that it has.
            let is_there = |column: &&Column| alias.input.schema().has_column(column);
            pulls_up(&alias.input, equalities, conditions)
                && conditions[before..].iter().all(|condition| condition.column_refs().iter().all(is_there))
        }
        LogicalPlan::Distinct(Distinct::All(input)) => !equalities && pulls_up(input, equalities, conditions),
        LogicalPlan::Join(join) => {
            join.join_type == JoinType::Inner
                && lateral(join).is_none()
                && !refers(plan)
                && pulls_up(&join.left, equalities, conditions)
                && pulls_up(&join.right, equalities, conditions)
        }
        _ => false,
    }
}

/// Whether an expression of this operator is left to DataFusion: it is no correlated subquery, or
/// one of which DataFusion makes a join.
pub(super) fn is_left(operator: &LogicalPlan, expr: &Expr) -> bool {
    let Some(subquery) = subquery_of(expr) else { return true };
    let plan = subquery.subquery.as_ref();
    let is_filter = matches!(operator, LogicalPlan::Filter(_));
    free(plan).is_empty()
        || match expr {
            Expr::ScalarSubquery(_) => {
                (is_filter || matches!(operator, LogicalPlan::Projection(_))) && is_simple_value(plan)
            }
            _ => is_filter && is_simple(plan),
        }
}

/// Whether all subqueries of the operator are left to DataFusion. The joins that this rule makes of
/// the others evaluate the rows below twice, and DataFusion does not pull conditions up from both.
fn leaves_subqueries(operator: &LogicalPlan) -> bool {
    !has_part(operator, |part| !is_left(operator, part))
}

/// Whether it is `column = expression of the query around`.
fn is_equality(condition: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else { return false };
    let is_column = |expr: &Expr| match expr {
        Expr::Cast(cast) => matches!(*cast.expr, Expr::Column(_)),
        other => matches!(other, Expr::Column(_)),
    };
    (is_column(left) && !right.any_column_refs()) || (is_column(right) && !left.any_column_refs())
}

/// The columns that projections compute, whatever they are named: DataFusion adds the columns of
/// conditions to each projection above them.
fn computed_columns(plan: &LogicalPlan) -> Vec<Column> {
    match plan {
        LogicalPlan::Projection(projection) => {
            let columns = projection.schema.columns().into_iter().zip(&projection.expr);
            let computed = columns.filter(|(column, expr)| !matches!(expr, Expr::Column(own) if own == column));
            let computed = computed.map(|(column, _)| column);
            computed.chain(computed_columns(&projection.input)).collect()
        }
        LogicalPlan::SubqueryAlias(alias) => computed_columns(&alias.input),
        _ => Vec::new(),
    }
}

/// DataFusion renames the columns of conditions and those of the result to one relation, where
/// names must differ.
fn names_differ(plan: &LogicalPlan, conditions: &[Expr]) -> bool {
    let mut columns: Vec<Column> = plan.schema().columns();
    let computed = computed_columns(plan);
    for condition in conditions {
        for column in condition.column_refs() {
            if computed.iter().any(|other| other.name == column.name) {
                return false;
            }
            if columns.iter().any(|other| other.name == column.name && other != column) {
                return false;
            }
            columns.push(column.clone());
        }
    }
    true
}

/// Whether DataFusion makes a join of EXISTS or IN over it.
pub(super) fn is_simple(plan: &LogicalPlan) -> bool {
    let mut conditions = Vec::new();
    pulls_up(plan, false, &mut conditions) && names_differ(plan, &conditions)
}

/// Whether DataFusion makes a join of its value: it is an aggregate over rows that equalities find,
/// or a single row found by a key.
pub(super) fn is_simple_value(plan: &LogicalPlan) -> bool {
    fn aggregate(plan: &LogicalPlan, conditions: &mut Vec<Expr>) -> bool {
        match plan {
            _ if !leaves_subqueries(plan) => false,
            LogicalPlan::Projection(projection) => !refers(plan) && aggregate(&projection.input, conditions),
            LogicalPlan::SubqueryAlias(alias) => aggregate(&alias.input, conditions),
            LogicalPlan::Aggregate(aggregate) => {
                aggregate.group_expr.is_empty() && !refers(plan) && pulls_up(&aggregate.input, true, conditions)
            }
            _ => false,
        }
    }
    let mut conditions = Vec::new();
    if aggregate(plan, &mut conditions) {
        return !conditions.is_empty() && names_differ(plan, &conditions);
    }
    gives_one_row(plan) && is_simple(plan) && !is_distinct(plan)
}

/// Whether DataFusion makes a join of LATERAL over it.
pub(super) fn is_simple_lateral(plan: &LogicalPlan) -> bool {
    is_simple_value(plan) || (is_simple(plan) && !is_distinct(plan))
}

/// Whether rows that are told apart by more columns might be more.
fn is_distinct(plan: &LogicalPlan) -> bool {
    plan.exists(|plan| Ok(matches!(plan, LogicalPlan::Distinct(_)))).unwrap_or(true)
}

/// Whether it has one row, and no less.
pub(super) fn has_a_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_a_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_a_row(&alias.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        _ => false,
    }
}

/// Whether it has one row at the most for each of the outer rows.
pub(super) fn gives_one_row(plan: &LogicalPlan) -> bool {
    plan.max_rows().is_some_and(|rows| rows <= 1)
}

/// Whether two runs in one snapshot give the same values of these columns (of all without them).
pub(crate) fn is_repeatable(plan: &LogicalPlan, columns: Option<&[Column]>) -> bool {
    let mut steady = true;
    let _ = plan.apply_expressions(|expr| {
        steady &= !expr.is_volatile();
        let _ = expr.apply(|expr| {
            if let Some(subquery) = super::outer::subquery_of(expr) {
                steady &= is_repeatable(&subquery.subquery, None);
            }
            Ok(TreeNodeRecursion::Continue)
        });
        Ok(TreeNodeRecursion::Continue)
    });
    if !steady {
        return false;
    }
    let all_of = |exprs: &mut dyn Iterator<Item = &Expr>| {
        let mut columns: Vec<Column> = Vec::new();
        exprs.for_each(|expr| columns.extend(expr.column_refs().into_iter().cloned()));
        columns
    };
    match plan {
        LogicalPlan::TableScan(_) | LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_) => true,
        LogicalPlan::Filter(filter) => {
            let columns = columns.map(|columns| {
                columns.iter().cloned().chain(all_of(&mut [&filter.predicate].into_iter())).collect::<Vec<_>>()
            });
            is_repeatable(&filter.input, columns.as_deref())
        }
        LogicalPlan::Projection(projection) => {
            let columns = columns.map(|columns| {
                let indices = columns.iter().filter_map(|column| projection.schema.maybe_index_of_column(column));
                all_of(&mut indices.map(|i| &projection.expr[i]))
            });
            is_repeatable(&projection.input, columns.as_deref())
        }
        LogicalPlan::Aggregate(aggregate) => {
            let grouped = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
            let needed = |i: usize| {
                let wanted = |columns: &[Column]| {
                    columns.iter().any(|column| aggregate.schema.maybe_index_of_column(column) == Some(grouped + i))
                };
                columns.is_none_or(wanted)
            };
            let mut needed = aggregate.aggr_expr.iter().enumerate().filter(|(i, _)| needed(*i));
            needed.all(|(_, expr)| is_exact(expr, &aggregate.input)) && is_repeatable(&aggregate.input, None)
        }
        LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::Unnest(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::Distinct(Distinct::All(_)) => plan.inputs().iter().all(|input| is_repeatable(input, None)),
        plan => match Shared::of(plan) {
            Some(shared) => shared.is_certain() || is_repeatable(shared.input(), None),
            None => false,
        },
    }
}

/// Whether an aggregate does not depend on the order of rows.
fn is_exact(expr: &Expr, input: &LogicalPlan) -> bool {
    let Expr::AggregateFunction(function) = expr.clone().unalias() else { return false };
    match function.func.name() {
        "count" | "min" | "max" | "bool_and" | "bool_or" | "grouping" => true,
        // The aggregates of free numbers.
        "numeric_sum"
        | "numeric_avg"
        | "numeric_var_samp"
        | "numeric_var_pop"
        | "numeric_stddev_samp"
        | "numeric_stddev_pop" => true,
        "sum" | "avg" => function.params.args.iter().all(|argument| {
            let is_float = |t: DataType| matches!(t, DataType::Float16 | DataType::Float32 | DataType::Float64);
            argument.get_type(input.schema()).is_ok_and(|data_type| !is_float(data_type))
        }),
        _ => false,
    }
}
