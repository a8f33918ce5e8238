//! Columns that joins merge: `l FULL JOIN r USING (a)` has one column `a`, which is `coalesce(l.a,
//! r.a)` (SQL:2023, 7.10). The planner takes the left table's, which is NULL in rows of the right
//! one alone, and for `*` that of the table whose name comes first in the alphabet. So joins that
//! are RIGHT or FULL, and all under `*` and GROUP BY, are written with ON, and the merged columns are written
//! out. Which columns a NATURAL join merges is seen in its plan.

use super::rewrite::call;
use crate::error::{Result, SqlError};
use crate::session::fold;
use crate::visits::{visit, visit_mut, visit_own_expressions_mut};
use datafusion::common::JoinConstraint as PlanConstraint;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ExcludeSelectItem, Expr, GroupByExpr, Ident, JoinConstraint, JoinOperator, ObjectName, OrderByKind,
    Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement, TableFactor, TableWithJoins,
    VisitMut, Visitor, VisitorMut, WildcardAdditionalOptions,
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
pub(super) fn name_of(factor: &TableFactor) -> Option<Ident> {
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

/// Whether a join merges columns whose names its text has.
fn has_names(operator: &JoinOperator) -> bool {
    matches!(constraint_of(&mut operator.clone()), Some(JoinConstraint::Using(_)))
}
fn is_natural(operator: &JoinOperator) -> bool {
    matches!(constraint_of(&mut operator.clone()), Some(JoinConstraint::Natural))
}
fn is_left(operator: &JoinOperator) -> bool {
    matches!(operator, JoinOperator::Left(_) | JoinOperator::LeftOuter(_))
}
fn has_wildcard(select: &Select) -> bool {
    select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_)))
}

/// Whether all joins that merge columns are to be written out: under `*`, and where rows are
/// grouped, because the planner takes the name of a merged column for that of any of its tables.
fn needs_all(select: &Select) -> bool {
    let groups = match &select.group_by {
        GroupByExpr::Expressions(keys, modifiers) => !keys.is_empty() || !modifiers.is_empty(),
        GroupByExpr::All(_) => true,
    };
    groups || has_wildcard(select)
}

/// Finds a join that [`write_out`] has left.
struct Left;

impl Visitor for Left {
    type Break = SqlError;

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<SqlError> {
        let mut joins = select.from.iter().flat_map(|from| &from.joins).map(|join| &join.join_operator);
        if has_wildcard(select) && joins.any(|join| is_left(join) && has_names(join)) {
            let what = "* of a LEFT join that has USING with a column of one of several tables before it";
            return ControlFlow::Break(SqlError::unsupported(what));
        }
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
/// 0A000 if there is one: its columns would be NULL where they have a value. The same for counts of
/// rows that are not written out.
pub(crate) fn check_joins(statement: &Statement) -> Result<()> {
    let left = visit(statement, &mut Left);
    match if left.is_break() { left } else { visit(statement, &mut super::whole_rows::Left) } {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Writes the joins with ON. None, and nothing is changed, where it cannot be told which table a
/// column is of.
fn with_conditions(from: &TableWithJoins) -> Option<(TableWithJoins, Vec<Merged>)> {
    let mut from = from.clone();
    let first = name_of(&from.relation)?;
    let mut merged: Vec<Merged> = Vec::new();
    for (i, join) in from.joins.iter_mut().enumerate() {
        let right = name_of(&join.relation)?;
        let operator = join.join_operator.clone();
        if matches!(operator, JoinOperator::CrossJoin(_)) {
            continue;
        }
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

/// Puts merged columns in the place of their names, in the query itself and not in subqueries.
fn put_values(node: &mut impl VisitMut, merged: &[Merged]) {
    visit_own_expressions_mut(node, &mut |expr| {
        if let Expr::Identifier(name) = &*expr
            && let Some(column) = merged.iter().find(|column| fold(&column.name) == fold(name))
        {
            *expr = column.value.clone();
        }
    });
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

/// Whether a join of a FROM is to be written out: always those that DataFusion's planner gets
/// wrong, which are also those behind one another that merge columns; all that merge columns where
/// [`needs_all`] says so.
fn merges(from: &TableWithJoins, all: bool) -> bool {
    let joins = || from.joins.iter().map(|join| &join.join_operator);
    joins().any(is_ours) || joins().filter(|join| has_names(join)).count() > usize::from(!all)
}

fn merge(select: &Select, order: &mut [Expr]) -> Option<Select> {
    let mut select = select.clone();
    let mut merged_by_from = Vec::new();
    let all = needs_all(&select);
    for from in &mut select.from {
        let mut columns = Vec::new();
        if merges(from, all) {
            let written;
            (written, columns) = with_conditions(from)?;
            *from = written;
        }
        merged_by_from.push(columns);
    }
    let merged: Vec<Merged> = merged_by_from.iter().flatten().cloned().collect();
    let mut items = Vec::new();
    for mut item in std::mem::take(&mut select.projection) {
        match &item {
            SelectItem::Wildcard(options) => {
                if *options != WildcardAdditionalOptions::default() {
                    return None;
                }
                for (from, merged) in select.from.iter().zip(&merged_by_from) {
                    items.extend(all_columns(from, merged)?);
                }
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
        put_values(key, &unnamed);
    }
    select.projection = items;
    put_values(&mut select.projection, &merged);
    put_values(&mut select.distinct, &merged);
    put_values(&mut select.selection, &merged);
    put_values(&mut select.group_by, &merged);
    put_values(&mut select.having, &merged);
    Some(select)
}

/// Writes out the merged columns of a query, as far as its text tells which they are.
pub(super) fn write_out(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let all = needs_all(select);
    if !select.from.iter().any(|from| merges(from, all)) {
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

/// Whether there is a NATURAL join in a statement.
pub(crate) fn has_natural_joins(statement: &Statement) -> bool {
    struct Natural;
    impl Visitor for Natural {
        type Break = ();
        fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
            match select.from.iter().flat_map(|from| &from.joins).any(|join| is_natural(&join.join_operator)) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    visit(statement, &mut Natural).is_break()
}

/// The joins of a plan that merge columns: the relation on the right side, and the columns' names
/// in the order of the left side.
fn merging_joins(plan: &LogicalPlan) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let _ = plan.apply_with_subqueries(|plan| {
        if let LogicalPlan::Join(join) = plan
            && join.join_constraint == PlanConstraint::Using
        {
            let right = match join.right.as_ref() {
                LogicalPlan::SubqueryAlias(alias) => Some(alias.alias.table()),
                LogicalPlan::TableScan(scan) => Some(scan.table_name.table()),
                _ => None,
            };
            let is_merged = |name: &str| join.on.iter().any(|(l, _)| l.try_as_col().is_some_and(|l| l.name == name));
            let mut names: Vec<String> = Vec::new();
            for field in join.left.schema().fields() {
                if is_merged(field.name()) && !names.contains(field.name()) {
                    names.push(field.name().clone());
                }
            }
            found.extend(right.map(|right| (right.to_owned(), names)));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    found
}

/// Writes NATURAL joins with USING, as far as the plan tells which columns they merge. Whether
/// there were some.
pub(crate) fn name_natural_columns(statement: &mut Statement, plan: &LogicalPlan) -> bool {
    struct Namer {
        joins: Vec<(String, Vec<String>)>,
        changed: bool,
    }
    impl VisitorMut for Namer {
        type Break = ();
        fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
            for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
                let Some(right) = name_of(&join.relation).filter(|_| is_natural(&join.join_operator)) else { continue };
                let mut known = self.joins.iter().filter(|(name, _)| *name == fold(&right)).map(|(_, names)| names);
                let Some(names) = known.next().filter(|names| known.all(|others| others == *names)) else { continue };
                if let Some(constraint) = constraint_of(&mut join.join_operator) {
                    let name = |name: &String| ObjectName::from(vec![Ident::with_quote('"', name)]);
                    *constraint = JoinConstraint::Using(names.iter().map(name).collect());
                    self.changed = true;
                }
            }
            ControlFlow::Continue(())
        }
    }
    let mut namer = Namer { joins: merging_joins(plan), changed: false };
    let _ = visit_mut(statement, &mut namer);
    namer.changed
}
