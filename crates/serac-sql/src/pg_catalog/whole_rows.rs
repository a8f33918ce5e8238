//! `count(t.*)` where an outer join may have no row of `t`: it counts the rows that are there. The
//! planner takes it for `count(*)`.
//!
//! `t` becomes a subquery with a column more, which is never NULL but where the join has no row:
//! `(SELECT *, true AS "…" FROM t) AS t`. That column is counted.

use super::merged_columns::name_of;
use crate::error::SqlError;
use crate::identifiers::{fold, quote};
use crate::query::query_of;
use crate::visits::{visit, visit_own_expressions_mut};
use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, JoinOperator, Query,
    Select, SelectItem, SetExpr, TableAlias, TableFactor, TableWithJoins, Visitor,
};
use std::ops::ControlFlow;

/// The start of the name of a column that no user has.
const PRESENT: &str = "\u{1f}present ";

/// The argument of `count(t.*)`, and the table.
fn counted(function: &mut Function) -> Option<(Ident, &mut FunctionArgExpr)> {
    let [name] = &function.name.0[..] else { return None };
    let FunctionArguments::List(list) = &mut function.args else { return None };
    let distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
    let [FunctionArg::Unnamed(argument)] = &mut list.args[..] else { return None };
    let FunctionArgExpr::QualifiedWildcard(table) = argument else { return None };
    let table = table.0.last()?.as_ident()?.clone();
    (name.as_ident().map(fold)? == "count" && !distinct).then_some((table, argument))
}

/// Whether one of these joins may have rows without a partner.
fn is_outer(from: &TableWithJoins) -> bool {
    use JoinOperator::{FullOuter, Left, LeftOuter, Right, RightOuter};
    let outer = |join: &JoinOperator| matches!(join, Left(_) | LeftOuter(_) | Right(_) | RightOuter(_) | FullOuter(_));
    from.joins.iter().any(|join| outer(&join.join_operator))
}

fn factors(from: &mut TableWithJoins) -> impl Iterator<Item = &mut TableFactor> {
    std::iter::once(&mut from.relation).chain(from.joins.iter_mut().map(|join| &mut join.relation))
}

/// Writes out what a query counts of the tables that outer joins join.
pub(super) fn write_out(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let is_wildcard = |i: &SelectItem| matches!(i, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    // Such would have the column, too.
    if !select.from.iter().any(is_outer) || select.projection.iter().any(is_wildcard) {
        return;
    }
    let outer = select.from.iter_mut().filter(|from| is_outer(from)).flat_map(factors);
    let mut tables: Vec<(String, bool)> = outer.filter_map(|table| Some((fold(&name_of(table)?), false))).collect();
    // The columns take the place of what is counted.
    let mut count = |expr: &mut Expr| {
        if let Expr::Function(function) = expr
            && let Some((table, argument)) = counted(function)
            && let Some((name, is_counted)) = tables.iter_mut().find(|(name, _)| *name == fold(&table))
        {
            let column = Ident::with_quote('"', format!("{PRESENT}{name}"));
            *argument = FunctionArgExpr::Expr(Expr::CompoundIdentifier(vec![table, column]));
            *is_counted = true;
        }
    };
    visit_own_expressions_mut(&mut select.projection, &mut count);
    visit_own_expressions_mut(&mut select.having, &mut count);
    visit_own_expressions_mut(&mut query.order_by, &mut count);
    for table in select.from.iter_mut().flat_map(factors) {
        let Some(name) = name_of(table) else { continue };
        if !tables.contains(&(fold(&name), true)) {
            continue;
        }
        let lateral = matches!(table, TableFactor::Derived { lateral: true, .. });
        let present = quote(&format!("{PRESENT}{}", fold(&name)));
        let Ok(rows) = query_of(&format!("SELECT *, true AS {present} FROM {table}")) else { continue };
        let alias = TableAlias { explicit: true, name, columns: Vec::new(), at: None };
        *table = TableFactor::Derived { lateral, subquery: Box::new(rows), alias: Some(alias), sample: None };
    }
}

/// Finds what [`write_out`] has left.
pub(super) struct Left;

impl Visitor for Left {
    type Break = SqlError;

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<SqlError> {
        if !select.from.iter().any(is_outer) {
            return ControlFlow::Continue(());
        }
        visit(&select.projection, &mut LeftCounts)?;
        visit(&select.having, &mut LeftCounts)
    }
}

struct LeftCounts;

impl Visitor for LeftCounts {
    type Break = SqlError;

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        if let Expr::Function(function) = expr
            && counted(&mut function.clone()).is_some()
        {
            return ControlFlow::Break(SqlError::unsupported("count of a table's rows beside all of its columns"));
        }
        ControlFlow::Continue(())
    }
}
