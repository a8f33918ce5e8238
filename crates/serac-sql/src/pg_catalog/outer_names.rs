//! Names of the query around a subquery that could be taken for something of its own.
//!
//! In `SELECT (SELECT max(k) FROM u WHERE u.k < a.x) FROM a`, where `u` has a column `a`, DataFusion takes `a.x` for a field of that column. A statement
//! that it has so misread is planned again with the schema before such names, `"…".a.x`, which nothing in the subquery matches: relations without a
//! schema match any.

use crate::identifiers::fold;
use crate::visits::{visit, visit_mut};
use datafusion::common::ExprSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr as PlanExpr, LogicalPlan};
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, SetExpr, Statement, TableFactor, TableWithJoins, Visitor, VisitorMut,
};
use std::ops::ControlFlow;

/// The schema of relations that have none: a name that no column has.
const NO_SCHEMA: &str = "\u{1f}";

/// A relation's name in a query, and what goes before it.
struct Relation {
    name: String,
    schema: Ident,
}

#[derive(Default)]
struct Names {
    levels: Vec<Vec<Relation>>,
    changed: bool,
}

fn add(factor: &TableFactor, relations: &mut Vec<Relation>) {
    let none = || Ident::with_quote('"', NO_SCHEMA);
    let alias = match factor {
        TableFactor::Table { name, alias: None, .. } => {
            let parts: Vec<&Ident> = name.0.iter().filter_map(|part| part.as_ident()).collect();
            if let [.., last] = &parts[..] {
                let schema = if parts.len() > 1 { parts[parts.len() - 2].clone() } else { none() };
                relations.push(Relation { name: fold(last), schema });
            }
            return;
        }
        TableFactor::Table { alias, .. } | TableFactor::Derived { alias, .. } | TableFactor::UNNEST { alias, .. } => {
            alias
        }
        TableFactor::NestedJoin { table_with_joins, .. } => return add_all(table_with_joins, relations),
        _ => return,
    };
    relations.extend(alias.iter().map(|alias| Relation { name: fold(&alias.name), schema: none() }));
}
fn add_all(from: &TableWithJoins, relations: &mut Vec<Relation>) {
    add(&from.relation, relations);
    from.joins.iter().for_each(|join| add(&join.relation, relations));
}
fn relations(body: &SetExpr, found: &mut Vec<Relation>) {
    match body {
        SetExpr::Select(select) => select.from.iter().for_each(|from| add_all(from, found)),
        SetExpr::SetOperation { left, right, .. } => {
            relations(left, found);
            relations(right, found);
        }
        _ => {}
    }
}

impl VisitorMut for Names {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let mut found = Vec::new();
        relations(&query.body, &mut found);
        self.levels.push(found);
        ControlFlow::Continue(())
    }
    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.levels.pop();
        ControlFlow::Continue(())
    }
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(parts) = expr
            && let [relation, _] = &parts[..]
            && let Some((own, around)) = self.levels.split_last()
        {
            let name = fold(relation);
            let is_own = own.iter().any(|relation| relation.name == name);
            let outer = around.iter().rev().flatten().find(|relation| relation.name == name);
            if let (false, Some(outer)) = (is_own, outer) {
                parts.insert(0, outer.schema.clone());
                self.changed = true;
            }
        }
        ControlFlow::Continue(())
    }
}

/// Whether there is a query in the statement's query.
pub(crate) fn has_subquery(statement: &Statement) -> bool {
    struct Queries(usize);
    impl Visitor for Queries {
        type Break = ();
        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.0 += 1;
            if self.0 > 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    visit(statement, &mut Queries(0)).is_break()
}

/// Whether the planner has taken a name for a field of what has no fields.
pub(crate) fn has_misread_names(plan: &LogicalPlan) -> bool {
    let is_misread = |plan: &LogicalPlan| {
        let mut misread = false;
        let _ = plan.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let PlanExpr::ScalarFunction(call) = expr
                    && call.func.name() == "get_field"
                    && let Some(PlanExpr::Column(column)) = call.args.first()
                {
                    let field = |input: &&LogicalPlan| input.schema().field_from_column(column).cloned().ok();
                    let field = plan.inputs().iter().find_map(field);
                    misread |= field.is_some_and(|field| !field.data_type().is_nested());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        });
        misread
    };
    let mut found = false;
    let _ = plan.apply_with_subqueries(|plan| {
        found |= is_misread(plan);
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found
}

/// Puts schemas before names of queries around. False if there are none.
pub(crate) fn qualify_outer_names(statement: &mut Statement) -> bool {
    let mut names = Names::default();
    let _ = visit_mut(statement, &mut names);
    names.changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_queries_around_are_qualified() {
        let qualified = |sql: &str| {
            let mut statement = crate::session::parse_one(sql, (1, 1)).unwrap();
            qualify_outer_names(&mut statement);
            statement.to_string().replace(NO_SCHEMA, "-")
        };
        for (written, becomes) in [
            ("SELECT (SELECT u.k + a.x FROM u) FROM a", "SELECT (SELECT u.k + \"-\".a.x FROM u) FROM a"),
            ("SELECT (SELECT a.x FROM u AS a) FROM a", "SELECT (SELECT a.x FROM u AS a) FROM a"),
            ("SELECT (SELECT a.x FROM u) FROM s.a", "SELECT (SELECT s.a.x FROM u) FROM s.a"),
            ("SELECT a.x FROM a WHERE b.y = 1", "SELECT a.x FROM a WHERE b.y = 1"),
        ] {
            assert_eq!(qualified(written), becomes, "{written}");
        }
    }
}
