//! `-2 ^ 2` is 4: a sign binds more than `^` (PostgreSQL 15, section 4.1.6). The parser takes the
//! power first, so what it has made of such an expression is put right, in parentheses. A sign of a
//! sign gets them, too: written without, `- -2` would be the beginning of a comment.

use crate::visits::visit_mut;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Statement, UnaryOperator, Value, VisitorMut};
use std::ops::ControlFlow;

struct Signs;

fn is_signed(expr: &Expr) -> bool {
    matches!(expr, Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, .. })
}
fn is_power(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryOp { op: BinaryOperator::PGExp, .. })
}

impl VisitorMut for Signs {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::UnaryOp { op: op @ (UnaryOperator::Minus | UnaryOperator::Plus), expr: operand } = expr else {
            return ControlFlow::Continue(());
        };
        let nothing = || Expr::value(Value::Null);
        if is_signed(operand) {
            let signed = std::mem::replace(operand, Box::new(nothing()));
            **operand = Expr::Nested(signed);
        }
        if !is_power(operand) {
            return ControlFlow::Continue(());
        }
        let op = *op;
        let mut power = std::mem::replace(operand.as_mut(), nothing());
        let mut first = &mut power;
        while let Expr::BinaryOp { left, op: BinaryOperator::PGExp, .. } = first {
            first = left;
        }
        let base = std::mem::replace(first, nothing());
        *first = Expr::Nested(Box::new(Expr::UnaryOp { op, expr: Box::new(base) }));
        *expr = power;
        ControlFlow::Continue(())
    }
}

/// Puts the signs of a statement before the powers, which has just been parsed.
pub(crate) fn put_first(statement: &mut Statement) {
    let _ = visit_mut(statement, &mut Signs);
}

#[cfg(test)]
mod tests {
    #[test]
    fn signs_bind_more_than_powers() {
        for (written, meant) in [
            ("-2 ^ 2", "(-2) ^ 2"),
            ("-a ^ 2 ^ b", "(-a) ^ 2 ^ b"),
            ("+2 ^ 2", "(+2) ^ 2"),
            ("-(2 ^ 2)", "-(2 ^ 2)"),
            ("1 - 2 ^ 2", "1 - 2 ^ 2"),
            ("- -2 ^ 2", "(-(-2)) ^ 2"),
            ("-2 * 3 ^ 2", "-2 * 3 ^ 2"),
            ("- -2", "-(-2)"),
            ("- + - a", "-(+(-a))"),
            ("1 - -2", "1 - -2"),
        ] {
            let statement = crate::session::parse_one(&format!("SELECT {written}"), (1, 1)).unwrap();
            assert_eq!(statement.to_string(), format!("SELECT {meant}"), "{written}");
        }
    }
}
