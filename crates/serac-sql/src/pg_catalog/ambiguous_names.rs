//! Names in a subquery that several of its relations have.
//!
//! In `SELECT … FROM a WHERE id IN (SELECT id FROM b, c)`, DataFusion's planner, which finds the
//! last `id` in `b` and in `c`, looks at the query around the subquery instead, and takes `a.id`.
//! The plan tells where that may have happened: an operator refers to a column of an outer query
//! whose name several relations of an inner one have. Whether it was written without its table, and
//! so is ambiguous (42702), is seen in the text. Columns that joins merge are written with their
//! tables by then ([`super::merged_columns`]).

use crate::error::{Result, SqlError};
use crate::identifiers::fold;
use crate::visits::visit;
use datafusion::common::TableReference;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::{Expr as PlanExpr, LogicalPlan};
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, Statement, TableFactor, TableWithJoins, Visitor,
};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// An outer column that may have been meant as one of several inner ones.
#[derive(Debug, PartialEq, Eq)]
struct Suspect {
    name: String,
    /// The relations of the query that names it.
    named_in: BTreeSet<String>,
    /// The relations that have a column of the name: of that query, or of one between it and the outer one.
    of: Vec<TableReference>,
}

/// The relations that an operator's columns are of.
fn relations_below(plan: &LogicalPlan, found: &mut BTreeSet<String>) {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => drop(found.insert(alias.alias.table().to_owned())),
        LogicalPlan::TableScan(scan) => drop(found.insert(scan.table_name.table().to_owned())),
        other => other.inputs().into_iter().for_each(|input| relations_below(input, found)),
    }
}

/// The relations below an operator that have a column of the name, if they are several.
fn several(plan: &LogicalPlan, name: &str) -> Option<Vec<TableReference>> {
    if matches!(plan, LogicalPlan::SubqueryAlias(_) | LogicalPlan::TableScan(_)) {
        return None;
    }
    let columns = plan.schema().columns_with_unqualified_name(name);
    if columns.len() > 1 {
        return Some(columns.into_iter().filter_map(|column| column.relation).collect());
    }
    plan.inputs().into_iter().find_map(|input| several(input, name))
}

/// Whether the operator has a column of the name below it.
fn has_column(plan: &LogicalPlan, name: &str) -> bool {
    let is_leaf = matches!(plan, LogicalPlan::SubqueryAlias(_) | LogicalPlan::TableScan(_));
    plan.schema().has_column_with_unqualified_name(name)
        || !is_leaf && plan.inputs().into_iter().any(|input| has_column(input, name))
}

/// The operators of queries around one, the innermost first.
struct Around<'p> {
    plan: &'p LogicalPlan,
    next: Option<&'p Around<'p>>,
}

fn suspects_in(plan: &LogicalPlan, around: Option<&Around<'_>>, found: &mut Vec<Suspect>) {
    let here = Around { plan, next: around };
    let _ = plan.apply_expressions(|expr| {
        expr.apply(|expr| {
            match expr {
                PlanExpr::OuterReferenceColumn(_, column) => {
                    let scopes = std::iter::successors(Some(&here), |around| around.next);
                    let scope = scopes.map(|around| around.plan).find(|scope| has_column(scope, &column.name));
                    if let Some(of) = scope.and_then(|scope| several(scope, &column.name)) {
                        let mut named_in = BTreeSet::new();
                        relations_below(plan, &mut named_in);
                        let suspect = Suspect { name: column.name.clone(), named_in, of };
                        if !found.contains(&suspect) {
                            found.push(suspect);
                        }
                    }
                }
                PlanExpr::ScalarSubquery(subquery)
                | PlanExpr::Exists(Exists { subquery, .. })
                | PlanExpr::InSubquery(InSubquery { subquery, .. })
                | PlanExpr::SetComparison(SetComparison { subquery, .. }) => {
                    suspects_in(&subquery.subquery, Some(&here), found);
                }
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })
    });
    for input in plan.inputs() {
        match input {
            // LATERAL, whose names may be of what stands before it.
            LogicalPlan::Subquery(subquery) => suspects_in(&subquery.subquery, Some(&here), found),
            other => suspects_in(other, around, found),
        }
    }
}

/// A SELECT that is being visited.
struct Level {
    /// The names of its relations, and whether all have one.
    relations: BTreeSet<String>,
    all_named: bool,
}

fn add(factor: &TableFactor, level: &mut Level) {
    let name = match factor {
        TableFactor::NestedJoin { table_with_joins, alias: None } => return add_all(table_with_joins, level),
        TableFactor::Table { name, alias: None, .. } => name.0.last().and_then(|part| part.as_ident()),
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::NestedJoin { alias, .. } => alias.as_ref().map(|alias| &alias.name),
        _ => None,
    };
    match name {
        Some(name) => drop(level.relations.insert(fold(name))),
        None => level.all_named = false,
    }
}
fn add_all(from: &TableWithJoins, level: &mut Level) {
    add(&from.relation, level);
    from.joins.iter().for_each(|join| add(&join.relation, level));
}

struct Names<'s> {
    suspects: &'s [Suspect],
    levels: Vec<Level>,
}

impl Names<'_> {
    fn enter(&mut self, select: &Select) {
        let mut level = Level { relations: BTreeSet::new(), all_named: true };
        select.from.iter().for_each(|from| add_all(from, &mut level));
        self.levels.push(level);
    }
    /// Whether a name that is written without its table is ambiguous.
    fn is_ambiguous(&self, name: &str) -> bool {
        let Some(level) = self.levels.last() else { return false };
        self.suspects.iter().any(|suspect| {
            let is_here = match level.all_named {
                true => level.relations == suspect.named_in,
                false => level.relations.is_subset(&suspect.named_in),
            };
            let has_all = |level: &Level| suspect.of.iter().all(|relation| level.relations.contains(relation.table()));
            suspect.name == name && is_here && self.levels.iter().any(has_all)
        })
    }
}

fn ambiguous(ident: &Ident) -> SqlError {
    let name = fold(ident);
    let start = ident.span.start;
    let position = (start.line > 0).then_some((start.line, start.column));
    SqlError { position, ..SqlError::new("42702", format!("column reference \"{name}\" is ambiguous")).named(name) }
}

/// Whether a SELECT gives a column of this name, which ORDER BY means first.
fn gives(select: &Select, name: &str) -> bool {
    select.projection.iter().any(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => fold(alias) == name,
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().is_some_and(|part| fold(part) == name),
        SelectItem::UnnamedExpr(Expr::Identifier(ident)) => fold(ident) == name,
        _ => false,
    })
}

impl Visitor for Names<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        // ORDER BY is the query's, and names what its SELECT sees.
        if let (SetExpr::Select(select), Some(order)) = (query.body.as_ref(), &query.order_by)
            && let OrderByKind::Expressions(keys) = &order.kind
        {
            self.enter(select);
            for key in keys {
                if !matches!(&key.expr, Expr::Identifier(ident) if gives(select, &fold(ident))) {
                    visit(&key.expr, self)?;
                }
            }
            self.levels.pop();
        }
        ControlFlow::Continue(())
    }
    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<SqlError> {
        self.enter(select);
        ControlFlow::Continue(())
    }
    fn post_visit_select(&mut self, _: &Select) -> ControlFlow<SqlError> {
        self.levels.pop();
        ControlFlow::Continue(())
    }
    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        match expr {
            Expr::Identifier(ident) if self.is_ambiguous(&fold(ident)) => ControlFlow::Break(ambiguous(ident)),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Looks for names in subqueries, of which the plan has taken one for an outer query's, and which
/// several tables of the subquery have.
///
/// # Errors
/// 42702 for such a name.
pub(crate) fn check_ambiguous_names(statement: &Statement, plan: &LogicalPlan) -> Result<()> {
    let mut suspects = Vec::new();
    suspects_in(plan, None, &mut suspects);
    if suspects.is_empty() {
        return Ok(());
    }
    match visit(statement, &mut Names { suspects: &suspects, levels: Vec::new() }) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}
