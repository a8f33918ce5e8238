//! The names of columns of indexes.

use serac_parser::parse_expression;
use serac_parser::tree::{Expr, ExprKind, Postfix, Special};

/// The name of a column of an index, which is an expression's text: its function's.
pub(crate) fn index_column_name(expression: &str) -> String {
    parse_expression(expression).map_or_else(|_| "expr".into(), |expr| name_of_index_part(&expr))
}

/// The same of an expression.
pub(crate) fn name_of_index_part(expr: &Expr) -> String {
    let named = |name: &str| name.to_owned();
    match &expr.kind {
        ExprKind::Name(name) => name.parts.last().map_or_else(String::new, |part| part.name.clone()),
        ExprKind::Call(call) => call.name.parts.last().map_or_else(String::new, |part| part.name.clone()),
        ExprKind::Cast { operand, .. } => name_of_index_part(operand),
        ExprKind::Postfix(operand, rest) if rest.iter().all(|postfix| matches!(postfix, Postfix::Cast(..))) => {
            name_of_index_part(operand)
        }
        ExprKind::Case { .. } => named("case"),
        ExprKind::Special(special) => named(match &**special {
            Special::Substring { .. } => "substring",
            Special::Extract(..) => "extract",
            Special::Coalesce(_) => "coalesce",
            Special::NullIf(..) => "nullif",
            Special::Greatest(_) => "greatest",
            Special::Least(_) => "least",
            _ => "expr",
        }),
        _ => named("expr"),
    }
}
