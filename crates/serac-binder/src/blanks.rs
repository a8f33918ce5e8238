//! The blanks at the end of a CHAR, which do not count where it is compared.
//!
//! A CHAR(n) is stored without them; its length says how many there are. A CHAR without a length
//! keeps those that it was given. An expression of such a value is the text without them, so that
//! it is compared, grouped and sorted as it should be. Where the value is shown or stored,
//! [`with_blanks`] takes what stands below.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, cast};
use serac_pg::{ModifiedType, TypeId};

/// Whether values of a type keep the blanks that they were given: CHAR without a length.
pub(crate) fn keeps_blanks(of: ModifiedType) -> bool {
    of.id == TypeId::BPCHAR && of.length().is_none()
}

/// A text without blanks at its end.
pub(crate) fn without_blanks(expr: Expr) -> Expr {
    match expr {
        Expr::Literal(ScalarValue::Utf8View(Some(text)), metadata) if !text.ends_with(' ') => {
            Expr::Literal(ScalarValue::Utf8View(Some(text)), metadata)
        }
        other => cast(datafusion::functions::string::rtrim().call(vec![other]), DataType::Utf8View),
    }
}

/// The same, computed now if it is a constant, so that indexes are asked for it.
pub(crate) fn compared_without_blanks(expr: Expr) -> Expr {
    match expr {
        Expr::Literal(ScalarValue::Utf8View(Some(text)), metadata) => {
            Expr::Literal(ScalarValue::Utf8View(Some(text.trim_end_matches(' ').to_owned())), metadata)
        }
        other => without_blanks(other),
    }
}

/// The text that [`without_blanks`] has been made of; `None` if the expression is not made so.
pub(crate) fn given_blanks(expr: &Expr) -> Option<&Expr> {
    let Expr::Cast(cast) = expr else { return None };
    match cast.expr.as_ref() {
        Expr::ScalarFunction(call) if call.func.name() == "rtrim" && call.args.len() == 1 => call.args.first(),
        _ => None,
    }
}

/// A value of CHAR as it is shown and stored.
pub(crate) fn with_blanks(expr: Expr) -> Expr {
    given_blanks(&expr).cloned().unwrap_or(expr)
}

/// A column of a plan as a value of its type.
pub(crate) fn read(column: Expr, of: ModifiedType) -> Expr {
    if keeps_blanks(of) { without_blanks(column) } else { column }
}
