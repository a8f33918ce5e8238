//! Bound expressions, and how one becomes one of another type.

use crate::error::{BindError, Result};
use crate::parameters::OpenParameter;
use crate::types::{arrow_type, integer_digits, is_registered};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{Expr, ExprSchemable, cast as cast_to};
use serac_parser::tree::Span;
use serac_pg::casts::cast;
use serac_pg::{CastContext, TypeId};

/// Bytes that a name keeps.
const NAME_BYTES: usize = 63;

/// An expression and its type.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) expr: Expr,
    pub(crate) id: TypeId,
    pub(crate) span: Span,
    /// It is a NUMERIC whose values have digits of their own in PostgreSQL, and all the same ones
    /// here: it may be compared and computed with, but not be shown.
    pub(crate) is_ragged: bool,
    /// The parameter that it is, if that had no type.
    pub(crate) parameter: Option<OpenParameter>,
}

impl Bound {
    pub(crate) fn new(expr: Expr, id: TypeId, span: Span) -> Self {
        Self { expr, id, span, is_ragged: false, parameter: None }
    }
    /// The same, with digits that may be others than PostgreSQL's.
    pub(crate) fn ragged(self, is_ragged: bool) -> Self {
        Self { is_ragged, ..self }
    }
    /// That it may be shown.
    pub(crate) fn exact(&self) -> Result<()> {
        match self.is_ragged {
            true => Err(BindError::Unknown("numbers of different digits")),
            false if is_registered(self.id) => Err(BindError::Unknown("the name of a catalog object")),
            false => Ok(()),
        }
    }
    /// The same, standing elsewhere.
    pub(crate) fn at(self, span: Span) -> Self {
        Self { span, ..self }
    }
    /// The same, of the type that another place has decided for the parameter that it is.
    pub(crate) fn renewed(self) -> Result<Self> {
        match self.parameter.as_ref().map(OpenParameter::decided) {
            None | Some(TypeId::UNKNOWN) => Ok(self),
            Some(decided) => self.into_type(decided, CastContext::Implicit, &DFSchema::empty()),
        }
    }
    pub(crate) fn null(id: TypeId, span: Span) -> Result<Self> {
        let null = ScalarValue::try_from(&stored(id, None)?)?;
        Ok(Self::new(Expr::Literal(null, None), id, span))
    }
    /// The same as a value of `to`, where `context` allows that.
    pub(crate) fn into_type(self, to: TypeId, context: CastContext, schema: &DFSchema) -> Result<Self> {
        let Self { expr, id, span, is_ragged, parameter } = self;
        if id == to {
            return Ok(Self { expr, id, span, is_ragged, parameter });
        }
        if cast(id, to, context).is_none() {
            return Err(BindError::new("42846", format!("cannot cast type {id} to {to}"), span));
        }
        if id == TypeId::UNKNOWN {
            return match parameter {
                Some(parameter) => parameter.into_type(to, span),
                None => of_unknown(expr, to, span),
            };
        }
        // These are stored alike.
        let is_text = |id| matches!(id, TypeId::TEXT | TypeId::VARCHAR | TypeId::NAME);
        if is_text(id) && is_text(to) {
            if to == TypeId::NAME && context == CastContext::Explicit {
                return Err(BindError::Unknown("a cast to a name"));
            }
            return Ok(Self::new(expr, to, span));
        }
        if let Some(expr) = constant(&expr, to) {
            return Ok(Self::new(expr, to, span));
        }
        let given = match to {
            TypeId::NUMERIC => Some(expr.get_type(schema)?),
            _ => None,
        };
        if id == TypeId::NUMERIC && to != TypeId::NUMERIC {
            if is_ragged && matches!(to, TypeId::TEXT | TypeId::VARCHAR) {
                return Err(BindError::Unknown("numbers of different digits"));
            }
            return Ok(Self::new(of_number(expr, to, schema)?, to, span));
        }
        if !is_alike(id, to) {
            return Err(BindError::Unknown("a cast that Arrow computes by other rules"));
        }
        Ok(Self::new(cast_to(expr, stored(to, given.as_ref().map(|given| (id, given)))?), to, span))
    }
    /// The same where the type needs no cast that is told.
    pub(crate) fn implicitly(self, to: TypeId, schema: &DFSchema) -> Result<Self> {
        self.into_type(to, CastContext::Implicit, schema)
    }
}

/// Whether Arrow's cast, or what is made here in its place, gives what PostgreSQL's does. It does
/// not where it rounds otherwise, writes or reads texts otherwise, or where the session's time zone
/// counts.
pub(crate) fn is_alike(from: TypeId, to: TypeId) -> bool {
    use TypeId as T;
    let is_integer = |id| matches!(id, T::INT2 | T::INT4 | T::INT8);
    match (from, to) {
        (from, to) if is_integer(from) => {
            is_integer(to)
                || matches!(to, T::FLOAT4 | T::FLOAT8 | T::NUMERIC | T::TEXT | T::VARCHAR | T::BOOL | T::OID)
                || is_registered(to)
        }
        (T::UNKNOWN | T::NUMERIC, _) | (T::TEXT | T::VARCHAR, T::TEXT | T::VARCHAR) => true,
        (T::BOOL, T::INT4 | T::TEXT | T::VARCHAR) => true,
        (T::FLOAT4, T::FLOAT8) => true,
        (T::DATE, T::TIMESTAMP | T::TEXT | T::VARCHAR) => true,
        (T::TIMESTAMP, T::DATE | T::TIME) => true,
        (T::OID, T::INT8 | T::TEXT | T::VARCHAR) => true,
        (from, to) if from == T::OID || is_registered(from) => to == T::OID || is_registered(to),
        _ => false,
    }
}

/// A number with digits behind the point as a value of another type.
fn of_number(expr: Expr, to: TypeId, schema: &DFSchema) -> Result<Expr> {
    let unknown = BindError::Unknown("a cast that Arrow computes by other rules");
    let DataType::Decimal128(precision, scale) = expr.get_type(schema)? else { return Err(unknown) };
    match to {
        TypeId::TEXT | TypeId::VARCHAR => Ok(cast_to(expr, stored(to, None)?)),
        // Both the digits and the power of ten are exact as floats, so that their quotient is
        // rounded once.
        TypeId::FLOAT8 if precision <= 15 && (0..=22).contains(&scale) => Ok(cast_to(expr, DataType::Float64)),
        // DataFusion compares `CAST(d AS INT) = 3` as `d = 3`, so that who casts rounds first.
        TypeId::INT2 | TypeId::INT4 | TypeId::INT8 if scale == 0 => Ok(cast_to(expr, stored(to, None)?)),
        _ => Err(unknown),
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
    if to == TypeId::NAME {
        let short = (0..=text.len().min(NAME_BYTES)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        return Ok(Bound::new(Expr::Literal(ScalarValue::Utf8View(Some(text[..short].to_owned())), None), to, span));
    }
    if matches!(to, TypeId::TEXT | TypeId::VARCHAR) {
        return Ok(Bound::new(Expr::Literal(ScalarValue::Utf8View(Some(text)), None), to, span));
    }
    if to == TypeId::NUMERIC {
        return match decimal(text.trim()) {
            Some(number) => Ok(Bound::new(number, to, span)),
            None if crate::constants::is_no_number(&text) => {
                let message = format!("invalid input syntax for type numeric: \"{text}\"");
                Err(BindError::new("22P02", message, span))
            }
            None => Err(BindError::Unknown("this number")),
        };
    }
    Ok(Bound::new(Expr::Literal(crate::constants::read(&text, to, span)?, None), to, span))
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
        TypeId::OID => ScalarValue::UInt32(Some(number.try_into().ok()?)),
        TypeId::FLOAT8 if number.unsigned_abs() < 1 << 53 => ScalarValue::Float64(Some(number as f64)),
        TypeId::NUMERIC => return decimal(&number.to_string()),
        _ => return None,
    };
    Some(Expr::Literal(value, None))
}

/// Digits, perhaps with a sign and a point, as a decimal with as many; none if it has too many, or
/// an exponent.
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
