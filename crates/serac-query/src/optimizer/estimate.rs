//! Estimates over logical plans: how many rows a plan gives, and how many different values a column
//! of it has.
//!
//! Tables are sampled (rows that their filters leave) or have statistics (distinct values).
//! Operators above follow the textbook: values are independent, and the smaller value set of two
//! joined columns is contained in the larger. A caller that knows a plan's rows passes them on
//! ([`distinct_of`]): asking twice at each join would cost time exponential in the depth.

use crate::scan::SeracTable;
use crate::shared::SharedTable;
use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::{Column, JoinType};
use datafusion::logical_expr::{Aggregate, Distinct, Expr, Join, LogicalPlan, TableScan};

/// The assumed rows of an unknown input.
const UNKNOWN_ROWS: f64 = 1_000.0;
/// Share of rows that a condition leaves about which nothing is known.
pub(super) const UNKNOWN_SELECTIVITY: f64 = 0.25;
/// Share of rows that at least meet no row of another input: an anti-join is there for some.
pub(super) const LEAST_UNMET: f64 = 0.1;

fn scanned<T>(scan: &TableScan, f: impl FnOnce(&SeracTable) -> T) -> Option<T> {
    let provider = source_as_provider(&scan.source).ok()?;
    provider.downcast_ref::<SeracTable>().map(f)
}

fn of_shared<T>(scan: &TableScan, f: impl FnOnce(&SharedTable) -> T) -> Option<T> {
    let provider = source_as_provider(&scan.source).ok()?;
    provider.downcast_ref::<SharedTable>().map(f)
}

/// Rows that `plan` gives.
pub(super) fn rows(plan: &LogicalPlan) -> f64 {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let of_query = || of_shared(scan, |table| rows(table.plan()));
            let rows = scanned(scan, |table| table.estimated_rows(&scan.filters)).or_else(of_query);
            let rows = rows.unwrap_or(UNKNOWN_ROWS);
            scan.fetch.map_or(rows, |fetch| rows.min(fetch as f64))
        }
        LogicalPlan::Filter(filter) => rows(&filter.input) * UNKNOWN_SELECTIVITY,
        LogicalPlan::Aggregate(aggregate) => groups(aggregate),
        LogicalPlan::Distinct(Distinct::All(input)) => rows(input),
        LogicalPlan::Distinct(Distinct::On(on)) => rows(&on.input),
        LogicalPlan::Limit(limit) => {
            let fetch = limit.get_fetch_type().ok().and_then(|fetch| match fetch {
                datafusion::logical_expr::FetchType::Literal(Some(fetch)) => Some(fetch as f64),
                _ => None,
            });
            fetch.map_or_else(|| rows(&limit.input), |fetch| rows(&limit.input).min(fetch))
        }
        LogicalPlan::Union(union) => union.inputs.iter().map(|input| rows(input)).sum(),
        LogicalPlan::Join(join) => joined(join),
        LogicalPlan::EmptyRelation(empty) => f64::from(u8::from(empty.produce_one_row)),
        LogicalPlan::Values(values) => values.values.len() as f64,
        other => other.inputs().first().map_or(UNKNOWN_ROWS, |input| rows(input)),
    }
}

fn groups(aggregate: &Aggregate) -> f64 {
    let rows = rows(&aggregate.input);
    let groups: f64 = aggregate.group_expr.iter().map(|expr| distinct_of(&aggregate.input, rows, expr)).product();
    groups.min(rows).max(1.0)
}

fn joined(join: &Join) -> f64 {
    let (left, right) = (rows(&join.left), rows(&join.right));
    // The different values of each key, on both sides.
    let keys: Vec<(f64, f64)> =
        join.on.iter().map(|(l, r)| (distinct_of(&join.left, left, l), distinct_of(&join.right, right, r))).collect();
    // The share of a side's rows that meet others. What a side's own filters leave of its values is
    // as likely to be met as the rest.
    let has_filter = join.filter.is_some();
    let left_met = || {
        let all = join.on.iter().zip(&keys).map(|((key, _), (left, _))| domain_of(&join.left, key).ok_or(*left));
        met(keys.iter().map(|(_, r)| r).product::<f64>().min(right), combinations(all), has_filter)
    };
    let right_met = || {
        let all = join.on.iter().zip(&keys).map(|((_, key), (_, right))| domain_of(&join.right, key).ok_or(*right));
        met(keys.iter().map(|(l, _)| l).product::<f64>().min(left), combinations(all), has_filter)
    };
    let pairs: f64 = keys.iter().map(|(l, r)| l.max(*r)).product();
    let inner = left * right / pairs.max(1.0);
    match join.join_type {
        JoinType::Inner => inner,
        JoinType::Left => inner.max(left),
        JoinType::Right => inner.max(right),
        JoinType::Full => inner.max(left + right),
        JoinType::LeftSemi => left * left_met(),
        JoinType::RightSemi => right * right_met(),
        JoinType::LeftAnti => (left * (1.0 - left_met())).max(left * LEAST_UNMET),
        JoinType::RightAnti => (right * (1.0 - right_met())).max(right * LEAST_UNMET),
        JoinType::LeftMark => left,
        JoinType::RightMark => right,
    }
}

/// The share of rows that meet another input's, which has `own` different keys of `all` that there
/// may be. Of a condition beside the keys, it is assumed that some of the partners satisfy it.
pub(super) fn met(own: f64, all: f64, has_filter: bool) -> f64 {
    (own / all.max(1.0)).min(1.0) * if has_filter { 0.5 } else { 1.0 }
}

/// The combinations of keys that there may be: of each key the [domain](domain_of), or else its
/// different values. A table has no more than it has rows.
pub(super) fn combinations(keys: impl Iterator<Item = std::result::Result<(f64, f64), f64>>) -> f64 {
    let (mut all, mut most) = (1.0, 0.0f64);
    for key in keys {
        let (domain, rows) = key.unwrap_or_else(|distinct| (distinct, f64::INFINITY));
        all *= domain;
        most = most.max(rows);
    }
    all.min(most).max(1.0)
}

/// The different values of the table's column on which `expr` rests, before any filter, and the
/// table's rows.
pub(super) fn domain_of(plan: &LogicalPlan, expr: &Expr) -> Option<(f64, f64)> {
    match expr {
        Expr::Column(column) => domain(plan, column),
        Expr::Cast(cast) => domain_of(plan, &cast.expr),
        Expr::Alias(alias) => domain_of(plan, &alias.expr),
        _ => None,
    }
}

/// The number of different values of `expr` in `plan`, which has `rows` rows: at least 1, at most
/// `rows`.
pub(super) fn distinct_of(plan: &LogicalPlan, rows: f64, expr: &Expr) -> f64 {
    let rows = rows.max(1.0);
    let column = match expr {
        Expr::Column(column) => column,
        // Casts and aliases keep values distinct.
        Expr::Cast(cast) => return distinct_of(plan, rows, &cast.expr),
        Expr::Alias(alias) => return distinct_of(plan, rows, &alias.expr),
        Expr::Literal(..) => return 1.0,
        _ => return rows,
    };
    match domain(plan, column) {
        Some((domain, all_rows)) if all_rows > rows => {
            // All rows are spread evenly over `domain` values: the number of values among a part of
            // the rows.
            let missed = (1.0 - rows / all_rows).powf(all_rows / domain);
            (domain * (1.0 - missed)).clamp(1.0, rows)
        }
        Some((domain, _)) => domain.clamp(1.0, rows),
        None => rows,
    }
}

/// The different values of a table's column on which `column` rests, and the table's rows.
fn domain(plan: &LogicalPlan, column: &Column) -> Option<(f64, f64)> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let of_query = |table: &SharedTable| domain(table.plan(), &table.column(&column.name)?);
            let of_table = scanned(scan, |table| table.distinct_values(&column.name)).flatten();
            of_table.or_else(|| of_shared(scan, of_query).flatten())
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let at = alias.schema.index_of_column(column).ok()?;
            let (qualifier, field) = alias.input.schema().qualified_field(at);
            domain(&alias.input, &Column::new(qualifier.cloned(), field.name()))
        }
        LogicalPlan::Projection(projection) => {
            let at = projection.schema.index_of_column(column).ok()?;
            match projection.expr[at].clone().unalias() {
                Expr::Column(inner) => domain(&projection.input, &inner),
                _ => None,
            }
        }
        LogicalPlan::Aggregate(aggregate) => {
            let at = aggregate.schema.index_of_column(column).ok()?;
            match aggregate.group_expr.get(at)? {
                Expr::Column(inner) => domain(&aggregate.input, inner),
                _ => None,
            }
        }
        other => other
            .inputs()
            .into_iter()
            .find(|input| input.schema().has_column(column))
            .and_then(|input| domain(input, column)),
    }
}
