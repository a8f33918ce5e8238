//! Bound expressions, and how one becomes one of another type.

use crate::error::{BindError, Result};
use crate::types::{arrow_type, integer_digits};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::{Expr, ExprSchemable, cast as cast_to};
use serac_parser::tree::Span;
use serac_pg::casts::cast;
use serac_pg::{CastContext, TypeId};

/// An expression and its type.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) expr: Expr,
    pub(crate) id: TypeId,
    pub(crate) span: Span,
}

impl Bound {
    pub(crate) fn new(expr: Expr, id: TypeId, span: Span) -> Self {
        Self { expr, id, span }
    }
    pub(crate) fn null(id: TypeId, span: Span) -> Result<Self> {
        let null = ScalarValue::try_from(&stored(id, None)?)?;
        Ok(Self::new(Expr::Literal(null, None), id, span))
    }
    /// The same as a value of `to`, where `context` allows that.
    pub(crate) fn into_type(self, to: TypeId, context: CastContext, schema: &DFSchema) -> Result<Self> {
        let Self { expr, id, span } = self;
        if id == to {
            return Ok(Self { expr, id, span });
        }
        if cast(id, to, context).is_none() {
            return Err(BindError::new("42846", format!("cannot cast type {id} to {to}"), span));
        }
        if id == TypeId::UNKNOWN {
            return of_unknown(expr, to, span);
        }
        // These are stored alike.
        let is_text = |id| matches!(id, TypeId::TEXT | TypeId::VARCHAR);
        if is_text(id) && is_text(to) {
            return Ok(Self { expr, id: to, span });
        }
        if let Some(expr) = constant(&expr, to) {
            return Ok(Self { expr, id: to, span });
        }
        let given = match to {
            TypeId::NUMERIC => Some(expr.get_type(schema)?),
            _ => None,
        };
        Ok(Self { expr: cast_to(expr, stored(to, given.as_ref().map(|given| (id, given)))?), id: to, span })
    }
    /// The same where the type needs no cast that is told.
    pub(crate) fn implicitly(self, to: TypeId, schema: &DFSchema) -> Result<Self> {
        self.into_type(to, CastContext::Implicit, schema)
    }
}

/// The Arrow type of values of `to` that are made of values of another type.
fn stored(to: TypeId, from: Option<(TypeId, &DataType)>) -> Result<DataType> {
    if let Some(stored) = arrow_type(to) {
        return Ok(stored);
    }
    match (to, from) {
        (TypeId::NUMERIC, Some((id, _))) if integer_digits(id).is_some() => {
            Ok(DataType::Decimal128(integer_digits(id).unwrap_or(38), 0))
        }
        _ => Err(BindError::Unknown("values of this type")),
    }
}

/// A quoted constant or NULL of a type.
fn of_unknown(expr: Expr, to: TypeId, span: Span) -> Result<Bound> {
    let Expr::Literal(ScalarValue::Utf8(text), _) = expr else {
        return Err(BindError::Unknown("an expression of unknown type"));
    };
    let Some(text) = text else {
        return match to {
            TypeId::NUMERIC => Ok(Bound::new(Expr::Literal(ScalarValue::Decimal128(None, 1, 0), None), to, span)),
            _ => Bound::null(to, span),
        };
    };
    if matches!(to, TypeId::TEXT | TypeId::VARCHAR) {
        return Ok(Bound::new(Expr::Literal(ScalarValue::Utf8View(Some(text)), None), to, span));
    }
    if to == TypeId::NUMERIC {
        return match decimal(text.trim()) {
            Some(number) => Ok(Bound::new(number, to, span)),
            None => Err(BindError::Unknown("this number")),
        };
    }
    if to == TypeId::UUID || to == TypeId::INTERVAL {
        return Err(BindError::Unknown("a constant of this type"));
    }
    let literal = Expr::Literal(ScalarValue::Utf8(Some(text)), None);
    Ok(Bound::new(Expr::Cast(Cast::new(Box::new(literal), stored(to, None)?)), to, span))
}

/// A whole number as a constant of another type of numbers; none if it is none, or does not fit.
fn constant(expr: &Expr, to: TypeId) -> Option<Expr> {
    let Expr::Literal(value, _) = expr else { return None };
    let number = match value {
        ScalarValue::Int16(Some(number)) => i64::from(*number),
        ScalarValue::Int32(Some(number)) => i64::from(*number),
        ScalarValue::Int64(Some(number)) => *number,
        _ => return None,
    };
    let value = match to {
        TypeId::INT2 => ScalarValue::Int16(Some(number.try_into().ok()?)),
        TypeId::INT4 => ScalarValue::Int32(Some(number.try_into().ok()?)),
        TypeId::INT8 => ScalarValue::Int64(Some(number)),
        TypeId::FLOAT8 if number.unsigned_abs() < 1 << 53 => ScalarValue::Float64(Some(number as f64)),
        TypeId::NUMERIC => return decimal(&number.to_string()),
        _ => return None,
    };
    Some(Expr::Literal(value, None))
}

/// Digits, perhaps with a sign and a point, as a decimal with as many; none if it has too many, or an exponent.
pub(crate) fn decimal(text: &str) -> Option<Expr> {
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) || whole.len() + fraction.len() == 0 {
        return None;
    }
    let digits = format!("{}{fraction}", whole.trim_start_matches('0'));
    let precision = u8::try_from(digits.len().max(fraction.len()).max(1)).ok().filter(|digits| *digits <= 38)?;
    let value: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    let value = if is_negative { -value } else { value };
    let scale = i8::try_from(fraction.len()).ok()?;
    Some(Expr::Literal(ScalarValue::Decimal128(Some(value), precision, scale), None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_keep_their_digits() {
        let of = |text| match decimal(text) {
            Some(Expr::Literal(ScalarValue::Decimal128(Some(value), precision, scale), _)) => {
                Some((value, precision, scale))
            }
            _ => None,
        };
        assert_eq!(of("1.50"), Some((150, 3, 2)));
        assert_eq!(of("-.005"), Some((-5, 3, 3)));
        assert_eq!(of("0"), Some((0, 1, 0)));
        assert_eq!(of("007"), Some((7, 1, 0)));
        assert_eq!(of("1e3"), None);
        assert_eq!(of(""), None);
        assert_eq!(of("."), None);
        let (longest, too_long) = ("9".repeat(38), "9".repeat(39));
        assert_eq!(of(&longest).map(|(_, precision, _)| precision), Some(38));
        assert_eq!(of(&too_long), None);
    }
}
