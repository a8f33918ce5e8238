//! Walks over statements, compiled once each.
//!
//! A walk of sqlparser is compiled anew, with all of its syntax tree, for each type of visitor:
//! some 1,300 functions and 400 KB of code. Here every walk has the same two visitors, behind which
//! the one that is meant is called through a table of functions.

use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, Statement, TableFactor, ValueWithSpan, Visit, VisitMut, Visitor, VisitorMut,
};
use std::ops::ControlFlow;

/// Calls the visitor that is meant.
struct Any<'v, V: ?Sized>(&'v mut V);

/// Calls a visitor, and keeps what it breaks with, so that all walks break with the same type.
struct Keeping<'v, V: ?Sized, B> {
    visitor: &'v mut V,
    broken: Option<B>,
}

impl<'v, V: ?Sized, B> Keeping<'v, V, B> {
    fn new(visitor: &'v mut V) -> Self {
        Self { visitor, broken: None }
    }
    fn end(self) -> ControlFlow<B> {
        self.broken.map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }
}

macro_rules! pass_on {
    ($trait:ident: $($method:ident($node:ty)),+) => {
        impl $trait for Any<'_, dyn $trait<Break = ()> + '_> {
            type Break = ();
            $(fn $method(&mut self, node: $node) -> ControlFlow<()> {
                self.0.$method(node)
            })+
        }
        impl<B> $trait for Keeping<'_, dyn $trait<Break = B> + '_, B> {
            type Break = ();
            $(fn $method(&mut self, node: $node) -> ControlFlow<()> {
                keep_break(&mut self.broken, self.visitor.$method(node))
            })+
        }
    };
}

pass_on!(Visitor:
    pre_visit_query(&Query), post_visit_query(&Query),
    pre_visit_select(&Select), post_visit_select(&Select),
    pre_visit_relation(&ObjectName), post_visit_relation(&ObjectName),
    pre_visit_table_factor(&TableFactor), post_visit_table_factor(&TableFactor),
    pre_visit_expr(&Expr), post_visit_expr(&Expr),
    pre_visit_statement(&Statement), post_visit_statement(&Statement),
    pre_visit_value(&ValueWithSpan), post_visit_value(&ValueWithSpan)
);
pass_on!(VisitorMut:
    pre_visit_query(&mut Query), post_visit_query(&mut Query),
    pre_visit_select(&mut Select), post_visit_select(&mut Select),
    pre_visit_relation(&mut ObjectName), post_visit_relation(&mut ObjectName),
    pre_visit_table_factor(&mut TableFactor), post_visit_table_factor(&mut TableFactor),
    pre_visit_expr(&mut Expr), post_visit_expr(&mut Expr),
    pre_visit_statement(&mut Statement), post_visit_statement(&mut Statement),
    pre_visit_value(&mut ValueWithSpan), post_visit_value(&mut ValueWithSpan)
);

/// Walks over `node`.
pub(crate) fn visit<B>(node: &impl Visit, visitor: &mut dyn Visitor<Break = B>) -> ControlFlow<B> {
    let mut keeping = Keeping::new(visitor);
    let _ = node.visit(&mut Any::<dyn Visitor<Break = ()>>(&mut keeping));
    keeping.end()
}

/// Walks over `node`, which may be changed on the way.
pub(crate) fn visit_mut<B>(node: &mut impl VisitMut, visitor: &mut dyn VisitorMut<Break = B>) -> ControlFlow<B> {
    let mut keeping = Keeping::new(visitor);
    let _ = node.visit(&mut Any::<dyn VisitorMut<Break = ()>>(&mut keeping));
    keeping.end()
}

/// Calls a function where an expression begins or ends.
struct Expressions<F>(F);

impl<E, F: FnMut(&Expr) -> ControlFlow<E>> Visitor for Expressions<F> {
    type Break = E;
    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<E> {
        self.0(expr)
    }
}

impl<E, F: FnMut(&mut Expr) -> ControlFlow<E>> VisitorMut for Expressions<F> {
    type Break = E;
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<E> {
        self.0(expr)
    }
}

/// Calls a function with each expression in `node`, before those in it, as long as that does not
/// break.
pub(crate) fn visit_expressions<E>(node: &impl Visit, f: impl FnMut(&Expr) -> ControlFlow<E>) -> ControlFlow<E> {
    visit(node, &mut Expressions(f))
}

/// Calls a function with each expression in `node`, after those in it, as long as that does not
/// break.
pub(crate) fn visit_expressions_mut<E>(
    node: &mut impl VisitMut,
    f: impl FnMut(&mut Expr) -> ControlFlow<E>,
) -> ControlFlow<E> {
    visit_mut(node, &mut Expressions(f))
}

/// Calls a function with the name of a relation.
struct Names<F>(F);

impl<E, F: FnMut(&ObjectName) -> ControlFlow<E>> Visitor for Names<F> {
    type Break = E;
    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<E> {
        self.0(relation)
    }
}

/// Calls a function with the name of each relation in `node`, as long as that does not break.
pub(crate) fn visit_relations<E>(node: &impl Visit, f: impl FnMut(&ObjectName) -> ControlFlow<E>) -> ControlFlow<E> {
    visit(node, &mut Names(f))
}

/// Keeps the value of a break.
fn keep_break<E>(broken: &mut Option<E>, flow: ControlFlow<E>) -> ControlFlow<()> {
    match flow {
        ControlFlow::Continue(()) => ControlFlow::Continue(()),
        ControlFlow::Break(value) => {
            *broken = Some(value);
            ControlFlow::Break(())
        }
    }
}
