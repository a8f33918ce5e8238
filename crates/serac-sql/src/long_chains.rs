//! Long chains of `+` and `-`, and of `||`, in what has been parsed: each becomes one call.

use crate::calls::call;
use crate::nesting::{Chain, operands};
use crate::visits::visit_mut;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Value, VisitMut, VisitorMut};
use serac_functions::CHAIN;
use std::ops::ControlFlow;

/// Operands from which on a chain becomes a call.
const LONG: usize = 100;

/// Makes calls of the long chains of what has been parsed.
pub(crate) fn gather(parsed: &mut impl VisitMut) {
    struct Gatherer;
    impl VisitorMut for Gatherer {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            gather_one(expr);
            ControlFlow::Continue(())
        }
    }
    let _ = visit_mut(parsed, &mut Gatherer);
}

fn gather_one(expr: &mut Expr) {
    let Some(chain) = Chain::of(expr) else { return };
    let goes_on = |expr: &Expr| Chain::of(expr) == Some(chain);
    let Some((operands, operators)) = operands(expr, LONG, goes_on) else { return };
    let sign = |operator: &BinaryOperator| match operator {
        BinaryOperator::Plus => '+',
        BinaryOperator::Minus => '-',
        _ => '|',
    };
    let operators = Expr::value(Value::SingleQuotedString(operators.iter().map(sign).collect()));
    *expr = call(CHAIN, std::iter::once(operators).chain(operands).collect());
}
