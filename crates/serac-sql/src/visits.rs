//! Walks over statements, compiled once each.
//!
//! A walk of sqlparser is compiled anew, with all of its syntax tree, for each type of visitor:
//! some 1,300 functions and 400 KB of code. Here every walk has the same few visitors, behind which
//! the one that is meant is called through a table of functions.

use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, Statement, TableFactor, ValueWithSpan, Visit, VisitMut, Visitor, VisitorMut,
};
use std::ops::ControlFlow;

/// Calls the visitor that is meant.
struct Any<'v, B>(&'v mut dyn Visitor<Break = B>);

impl<B> Visitor for Any<'_, B> {
    type Break = B;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<B> {
        self.0.pre_visit_query(query)
    }
    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<B> {
        self.0.post_visit_query(query)
    }
    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<B> {
        self.0.pre_visit_select(select)
    }
    fn post_visit_select(&mut self, select: &Select) -> ControlFlow<B> {
        self.0.post_visit_select(select)
    }
    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<B> {
        self.0.pre_visit_relation(relation)
    }
    fn post_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<B> {
        self.0.post_visit_relation(relation)
    }
    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<B> {
        self.0.pre_visit_table_factor(factor)
    }
    fn post_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<B> {
        self.0.post_visit_table_factor(factor)
    }
    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<B> {
        self.0.pre_visit_expr(expr)
    }
    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<B> {
        self.0.post_visit_expr(expr)
    }
    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<B> {
        self.0.pre_visit_statement(statement)
    }
    fn post_visit_statement(&mut self, statement: &Statement) -> ControlFlow<B> {
        self.0.post_visit_statement(statement)
    }
    fn pre_visit_value(&mut self, value: &ValueWithSpan) -> ControlFlow<B> {
        self.0.pre_visit_value(value)
    }
    fn post_visit_value(&mut self, value: &ValueWithSpan) -> ControlFlow<B> {
        self.0.post_visit_value(value)
    }
}

/// Calls the visitor that is meant.
struct AnyMut<'v, B>(&'v mut dyn VisitorMut<Break = B>);

impl<B> VisitorMut for AnyMut<'_, B> {
    type Break = B;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<B> {
        self.0.pre_visit_query(query)
    }
    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<B> {
        self.0.post_visit_query(query)
    }
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<B> {
        self.0.pre_visit_select(select)
    }
    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<B> {
        self.0.post_visit_select(select)
    }
    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<B> {
        self.0.pre_visit_relation(relation)
    }
    fn post_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<B> {
        self.0.post_visit_relation(relation)
    }
    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<B> {
        self.0.pre_visit_table_factor(factor)
    }
    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<B> {
        self.0.post_visit_table_factor(factor)
    }
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<B> {
        self.0.pre_visit_expr(expr)
    }
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<B> {
        self.0.post_visit_expr(expr)
    }
    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<B> {
        self.0.pre_visit_statement(statement)
    }
    fn post_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<B> {
        self.0.post_visit_statement(statement)
    }
    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<B> {
        self.0.pre_visit_value(value)
    }
    fn post_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<B> {
        self.0.post_visit_value(value)
    }
}

/// Walks over `node`.
pub(crate) fn visit<B>(node: &impl Visit, visitor: &mut dyn Visitor<Break = B>) -> ControlFlow<B> {
    node.visit(&mut Any(visitor))
}

/// Walks over `node`, which may be changed on the way.
pub(crate) fn visit_mut<B>(node: &mut impl VisitMut, visitor: &mut dyn VisitorMut<Break = B>) -> ControlFlow<B> {
    node.visit(&mut AnyMut(visitor))
}

/// Calls a function where an expression begins or ends.
struct Expressions<F>(F);

impl<F: FnMut(&Expr) -> ControlFlow<()>> Visitor for Expressions<F> {
    type Break = ();
    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.0(expr)
    }
}

impl<F: FnMut(&mut Expr) -> ControlFlow<()>> VisitorMut for Expressions<F> {
    type Break = ();
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.0(expr)
    }
}

/// Calls a function with each expression in `node`, before those in it, as long as that does not
/// break.
pub(crate) fn visit_expressions<E>(node: &impl Visit, mut f: impl FnMut(&Expr) -> ControlFlow<E>) -> ControlFlow<E> {
    let mut broken = None;
    let mut keep = |expr: &Expr| keep_break(&mut broken, f(expr));
    let _ = visit(node, &mut Expressions(&mut keep));
    broken.map_or(ControlFlow::Continue(()), ControlFlow::Break)
}

/// Calls a function with each expression in `node`, after those in it, as long as that does not
/// break.
pub(crate) fn visit_expressions_mut<E>(
    node: &mut impl VisitMut,
    mut f: impl FnMut(&mut Expr) -> ControlFlow<E>,
) -> ControlFlow<E> {
    let mut broken = None;
    let mut keep = |expr: &mut Expr| keep_break(&mut broken, f(expr));
    let _ = visit_mut(node, &mut Expressions(&mut keep));
    broken.map_or(ControlFlow::Continue(()), ControlFlow::Break)
}

/// Keeps the value of a break, so that all walks break with the same type.
fn keep_break<E>(broken: &mut Option<E>, flow: ControlFlow<E>) -> ControlFlow<()> {
    match flow {
        ControlFlow::Continue(()) => ControlFlow::Continue(()),
        ControlFlow::Break(value) => {
            *broken = Some(value);
            ControlFlow::Break(())
        }
    }
}

/// Calls a function where an expression of the query itself begins.
struct Own<F> {
    /// Queries around the walk's place, below the node it began with.
    depth: usize,
    f: F,
}

impl<F: FnMut(&mut Expr)> VisitorMut for Own<F> {
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
        if self.depth == 0 {
            (self.f)(expr);
        }
        ControlFlow::Continue(())
    }
}

/// Calls a function with each expression in `node`, before those in it, but for those in
/// subqueries, whose names may be of their own columns.
pub(crate) fn visit_own_expressions_mut(node: &mut impl VisitMut, f: &mut dyn FnMut(&mut Expr)) {
    let _ = visit_mut(node, &mut Own { depth: 0, f });
}
