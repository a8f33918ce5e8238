//! Columns that RIGHT and FULL joins merge: `l FULL JOIN r USING (a)` has one column `a`, which is `coalesce(l.a, r.a)` (SQL:2023, 7.10). The planner takes
//! the left table's, which is NULL in rows of the right one alone, so such joins are written with ON, and the merged columns are written out.

use super::rewrite::call;
use crate::error::{Result, SqlError};
use crate::session::fold;
use crate::visits::{visit, visit_mut};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, OrderByKind, Query,
    Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement, TableFactor, TableWithJoins, Visitor,
    VisitorMut, WildcardAdditionalOptions,
};
use std::ops::ControlFlow;

/// A column that joins have merged: its name, its value, and the tables that have it.
#[derive(Clone)]
struct Merged {
    name: Ident,
    value: Expr,
    tables: Vec<Ident>,
}

/// The name by which a relation's columns are called.
fn name_of(factor: &TableFactor) -> Option<Ident> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => {
            Some(alias.name.clone())
        }
        TableFactor::Table { name, alias: None, .. } => name.0.last()?.as_ident().cloned(),
        _ => None,
    }
}

fn constraint_of(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    use JoinOperator::{FullOuter, Inner, Join, Left, LeftOuter, Right, RightOuter};
    match operator {
        Join(on) | Inner(on) | Left(on) | LeftOuter(on) | Right(on) | RightOuter(on) | FullOuter(on) => Some(on),
        _ => None,
    }
}

/// Whether a join merges columns of which the left one is not the value.
fn is_ours(operator: &JoinOperator) -> bool {
    use JoinOperator::{FullOuter, Right, RightOuter};
    let (Right(on) | RightOuter(on) | FullOuter(on)) = operator else { return false };
    matches!(on, JoinConstraint::Using(_) | JoinConstraint::Natural)
}

/// Finds a join that [`write_out`] has left.
struct Left;

impl Visitor for Left {
    type Break = SqlError;

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<SqlError> {
        if select.from.iter().flat_map(|from| &from.joins).any(|join| is_ours(&join.join_operator)) {
            let what =
                "a RIGHT or FULL join that is NATURAL, or has USING with a column of one of several tables before it,";
            return ControlFlow::Break(SqlError::unsupported(what));
        }
        ControlFlow::Continue(())
    }
}

/// Says which joins are not written out.
///
/// # Errors
/// 0A000 if there is one: its columns would be NULL where they have a value.
pub(crate) fn check_joins(statement: &Statement) -> Result<()> {
    match visit(statement, &mut Left) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Writes the joins with ON. None, and nothing is changed, where it cannot be told which table a column is of.
fn with_conditions(from: &TableWithJoins) -> Option<(TableWithJoins, Vec<Merged>)> {
    let mut from = from.clone();
    let first = name_of(&from.relation)?;
    let mut merged: Vec<Merged> = Vec::new();
    for (i, join) in from.joins.iter_mut().enumerate() {
        let right = name_of(&join.relation)?;
        let operator = join.join_operator.clone();
        let constraint = constraint_of(&mut join.join_operator)?;
        let names: Vec<Ident> = match constraint {
            JoinConstraint::Using(names) => names
                .iter()
                .map(|name| match &name.0[..] {
                    [name] => name.as_ident().cloned(),
                    _ => None,
                })
                .collect::<Option<_>>()?,
            JoinConstraint::On(_) => continue,
            _ => return None,
        };
        let mut condition: Option<Expr> = None;
        for name in names {
            let of = |table: &Ident| Expr::CompoundIdentifier(vec![table.clone(), name.clone()]);
            let at = merged.iter().position(|known| fold(&known.name) == fold(&name));
            let at = match at {
                Some(at) => at,
                // Behind several tables, nobody knows here which of them has the column.
                None if i > 0 => return None,
                None => {
                    merged.push(Merged { name: name.clone(), value: of(&first), tables: vec![first.clone()] });
                    merged.len() - 1
                }
            };
            let column = &mut merged[at];
            let equal = Expr::BinaryOp {
                left: Box::new(column.value.clone()),
                op: BinaryOperator::Eq,
                right: Box::new(of(&right)),
            };
            condition = Some(match condition {
                None => equal,
                Some(before) => {
                    Expr::BinaryOp { left: Box::new(before), op: BinaryOperator::And, right: Box::new(equal) }
                }
            });
            column.value = match operator {
                JoinOperator::Right(_) | JoinOperator::RightOuter(_) => of(&right),
                JoinOperator::FullOuter(_) => call("coalesce", vec![column.value.clone(), of(&right)]),
                _ => column.value.clone(),
            };
            column.tables.push(right.clone());
        }
        *constraint = JoinConstraint::On(condition?);
    }
    Some((from, merged))
}

/// Puts merged columns in the place of their names, in the query itself and not in subqueries, whose names may be of their own columns.
struct Names<'a> {
    merged: &'a [Merged],
    depth: usize,
}

impl VisitorMut for Names<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }
    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let (0, Expr::Identifier(name)) = (self.depth, &*expr)
            && let Some(column) = self.merged.iter().find(|column| fold(&column.name) == fold(name))
        {
            *expr = column.value.clone();
        }
        ControlFlow::Continue(())
    }
}

/// All columns: the merged ones first, then what is left of each table.
fn all_columns(from: &TableWithJoins, merged: &[Merged]) -> Option<Vec<SelectItem>> {
    let first = merged
        .iter()
        .map(|column| SelectItem::ExprWithAlias { expr: column.value.clone(), alias: column.name.clone() });
    let tables = std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation));
    let rest = tables.map(|table| {
        let table = name_of(table)?;
        let is_of = |column: &&Merged| column.tables.contains(&table);
        let left_out: Vec<ObjectName> =
            merged.iter().filter(is_of).map(|column| ObjectName::from(vec![column.name.clone()])).collect();
        let exclude = (!left_out.is_empty()).then_some(ExcludeSelectItem::Multiple(left_out));
        let options = WildcardAdditionalOptions { opt_exclude: exclude, ..WildcardAdditionalOptions::default() };
        let kind = SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(vec![table]));
        Some(SelectItem::QualifiedWildcard(kind, options))
    });
    first.map(Some).chain(rest).collect()
}

fn merge(select: &Select, order: &mut [Expr]) -> Option<Select> {
    let mut select = select.clone();
    let mut merged = Vec::new();
    let several = select.from.len() > 1;
    for from in &mut select.from {
        if from.joins.iter().any(|join| is_ours(&join.join_operator)) {
            let (with_conditions, columns) = with_conditions(from)?;
            *from = with_conditions;
            merged.extend(columns);
        }
    }
    let mut items = Vec::new();
    for mut item in std::mem::take(&mut select.projection) {
        match &item {
            SelectItem::Wildcard(options) => {
                if several || *options != WildcardAdditionalOptions::default() {
                    return None;
                }
                items.extend(all_columns(&select.from[0], &merged)?);
                continue;
            }
            SelectItem::UnnamedExpr(Expr::Identifier(name)) if merged.iter().any(|c| fold(&c.name) == fold(name)) => {
                item = SelectItem::ExprWithAlias { expr: Expr::Identifier(name.clone()), alias: name.clone() };
            }
            _ => {}
        }
        items.push(item);
    }
    let named = |name: &Ident| {
        items.iter().any(|item| matches!(item, SelectItem::ExprWithAlias { alias, .. } if fold(alias) == fold(name)))
    };
    // In ORDER BY, names of the result come first.
    let unnamed: Vec<Merged> = merged.iter().filter(|column| !named(&column.name)).cloned().collect();
    for key in order {
        let _ = visit_mut(key, &mut Names { merged: &unnamed, depth: 0 });
    }
    select.projection = items;
    let mut names = Names { merged: &merged, depth: 0 };
    let _ = visit_mut(&mut select.projection, &mut names);
    let _ = visit_mut(&mut select.selection, &mut names);
    let _ = visit_mut(&mut select.group_by, &mut names);
    let _ = visit_mut(&mut select.having, &mut names);
    Some(select)
}

/// Writes out the merged columns of a query, as far as its text tells which they are.
pub(super) fn write_out(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    if !select.from.iter().flat_map(|from| &from.joins).any(|join| is_ours(&join.join_operator)) {
        return;
    }
    let mut none = Vec::new();
    let order = match query.order_by.as_mut().map(|order| &mut order.kind) {
        Some(OrderByKind::Expressions(keys)) => keys,
        _ => &mut none,
    };
    let mut keys: Vec<Expr> = order.iter().map(|key| key.expr.clone()).collect();
    if let Some(written) = merge(select, &mut keys) {
        **select = written;
        order.iter_mut().zip(keys).for_each(|(key, expr)| key.expr = expr);
    }
}
