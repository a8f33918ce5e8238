//! `a IS [NOT] DISTINCT FROM b AND c`: the parser takes everything that follows for the second operand, where AND, OR and NOT bind less than it (PostgreSQL 15,
//! section 4.1.6). What stands in the operand without parentheses is put where it belongs.

use crate::visits::visit_mut;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Statement, UnaryOperator, Value, VisitorMut};
use std::ops::ControlFlow;

/// Whether an operator binds less than another one.
type BindsLess = fn(&BinaryOperator) -> bool;

/// The last operand of an expression, and which operators bind less than its own: they cannot have come there by themselves.
fn last_operand(expr: &mut Expr) -> Option<(&mut Expr, BindsLess)> {
    let logical: BindsLess = |op| matches!(op, BinaryOperator::And | BinaryOperator::Or);
    match expr {
        Expr::IsDistinctFrom(_, operand) | Expr::IsNotDistinctFrom(_, operand) => Some((operand, logical)),
        Expr::UnaryOp { op: UnaryOperator::Not, expr: operand } => Some((operand, logical)),
        Expr::BinaryOp { op: BinaryOperator::And, right, .. } => {
            Some((right, |op: &BinaryOperator| *op == BinaryOperator::Or))
        }
        _ => None,
    }
}

struct Operands;

impl VisitorMut for Operands {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Some((operand, binds_less)) = last_operand(expr) else { return ControlFlow::Continue(()) };
        if !matches!(operand, Expr::BinaryOp { op, .. } if binds_less(op)) {
            return ControlFlow::Continue(());
        }
        let nothing = || Expr::value(Value::Null);
        let mut top = std::mem::replace(operand, nothing());
        let mut first = &mut top;
        while matches!(first, Expr::BinaryOp { op, .. } if binds_less(op)) {
            let Expr::BinaryOp { left, .. } = first else { unreachable!("it has just been seen") };
            first = left;
        }
        *operand = std::mem::replace(first, nothing());
        *first = std::mem::replace(expr, nothing());
        *expr = top;
        ControlFlow::Continue(())
    }
}

/// Puts the operands of a statement right, which has just been parsed.
pub(crate) fn put_right(statement: &mut Statement) {
    let _ = visit_mut(statement, &mut Operands);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parentheses mean nothing any more.
    fn without_parentheses(statement: &mut Statement) {
        struct Inner;
        impl VisitorMut for Inner {
            type Break = ();
            fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
                if let Expr::Nested(inner) = expr {
                    *expr = std::mem::replace(inner.as_mut(), Expr::value(Value::Null));
                }
                ControlFlow::Continue(())
            }
        }
        let _ = visit_mut(statement, &mut Inner);
    }

    #[test]
    fn operators_bind_as_in_postgresql() {
        for (written, meant) in [
            ("a IS DISTINCT FROM b AND c", "(a IS DISTINCT FROM b) AND c"),
            ("a IS NOT DISTINCT FROM b OR c AND d", "(a IS NOT DISTINCT FROM b) OR (c AND d)"),
            ("a IS DISTINCT FROM b AND c OR d", "((a IS DISTINCT FROM b) AND c) OR d"),
            ("p AND a IS DISTINCT FROM b OR c", "(p AND (a IS DISTINCT FROM b)) OR c"),
            ("p AND a IS DISTINCT FROM b AND c OR d", "(p AND ((a IS DISTINCT FROM b) AND c)) OR d"),
            ("NOT a IS DISTINCT FROM b OR c", "(NOT (a IS DISTINCT FROM b)) OR c"),
            ("p OR a IS DISTINCT FROM b AND c", "p OR ((a IS DISTINCT FROM b) AND c)"),
            (
                "a IS DISTINCT FROM b AND c IS DISTINCT FROM d OR e",
                "((a IS DISTINCT FROM b) AND (c IS DISTINCT FROM d)) OR e",
            ),
            ("a IS DISTINCT FROM (b AND c)", "a IS DISTINCT FROM (b AND c)"),
            ("a IS DISTINCT FROM b + 1 AND NOT (c OR d)", "(a IS DISTINCT FROM (b + 1)) AND (NOT (c OR d))"),
        ] {
            let shape = |sql: &str| {
                let mut statement = crate::session::parse_one(&format!("SELECT {sql}"), (1, 1)).unwrap();
                without_parentheses(&mut statement);
                statement
            };
            assert_eq!(shape(written), shape(meant), "{written}");
        }
    }
}
