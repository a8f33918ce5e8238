//! Bound expressions, and how one becomes one of another type.

use crate::blanks::{compared_without_blanks, without_blanks};
use crate::error::{BindError, NO_PLACE, Result};
use crate::number_forms::function_of_numbers;
use crate::parameters::OpenParameter;
use crate::statement::ColumnOrigin;
use crate::types::{arrow_type, integer_digits, is_registered, stored_as};
use datafusion::arrow::datatypes::{DataType, Fields};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{Expr, ExprSchemable, bitwise_and, cast as cast_to, lit};
use serac_numeric::{Numeric, NumericError};
use serac_parser::tree::Span;
use serac_pg::casts::cast;
use serac_pg::{CastContext, ModifiedType, NO_MODIFIER, TypeId};

/// Bytes that a name keeps.
const NAME_BYTES: usize = 63;

/// An expression and its type.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) expr: Expr,
    pub(crate) id: TypeId,
    /// The modifier of its type, if PostgreSQL knows one for the expression. A CHAR(n) is there
    /// without the blanks at its end: its length says how many there are.
    pub(crate) modifier: i32,
    pub(crate) span: Span,
    /// The column of a table or a view that it is.
    pub(crate) origin: Option<ColumnOrigin>,
    /// The parameter that it is, if that had no type.
    pub(crate) parameter: Option<OpenParameter>,
}

impl Bound {
    pub(crate) fn new(expr: Expr, id: TypeId, span: Span) -> Self {
        Self { expr, id, modifier: NO_MODIFIER, span, origin: None, parameter: None }
    }

    /// An expression of a type with a modifier.
    pub(crate) fn of_type(expr: Expr, of: ModifiedType, span: Span) -> Self {
        Self { modifier: of.modifier, ..Self::new(expr, of.id, span) }
    }

    /// Its type and modifier.
    pub(crate) fn modified_type(&self) -> ModifiedType {
        ModifiedType { id: self.id, modifier: self.modifier }
    }

    /// Checks that the value may be a column of a query. `with_names` writes rows and names in it.
    pub(crate) fn is_shown(&self) -> Result<()> {
        match self.id {
            TypeId::RECORD => Ok(()),
            id if id.element().is_some_and(is_registered) => Ok(()),
            _ => self.exact(),
        }
    }

    /// Checks that the Arrow value is complete: a row or an array of catalog names is an error.
    pub(crate) fn exact(&self) -> Result<()> {
        match self.id {
            TypeId::RECORD => Err(BindError::unsupported("a row as a value of this type", NO_PLACE)),
            id if id.element().is_some_and(is_registered) => {
                Err(BindError::unsupported("an array of the names of catalog objects", self.span))
            }
            _ => Ok(()),
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

    /// NULL of a type. As a number it has no digits, but is in the fixed form.
    pub(crate) fn null(id: TypeId, span: Span) -> Result<Self> {
        let stored = match id {
            TypeId::NUMERIC => Some(DataType::Decimal128(1, 0)),
            id if id.element() == Some(TypeId::NUMERIC) => Some(DataType::new_list(DataType::Decimal128(1, 0), true)),
            TypeId::RECORD => Some(DataType::Struct(Fields::empty())),
            id => arrow_type(id),
        };
        let stored = stored.ok_or_else(|| BindError::unsupported(format!("a value of type {id}"), span))?;
        let null = ScalarValue::try_from(&stored)?;
        Ok(Self::new(Expr::Literal(null, None), id, span))
    }

    /// The same as a value of `to`, where `context` allows that.
    pub(crate) fn into_type(self, to: TypeId, context: CastContext, schema: &DFSchema) -> Result<Self> {
        let (from, span) = (self.id, self.span);
        self.plain(to, context, schema)?.ok_or_else(|| no_cast(from, to, span))
    }

    /// The same as a value of `to`, if `context` allows that. `None` if Arrow computes the cast by
    /// other rules than PostgreSQL, or reads fewer texts.
    pub(crate) fn plain(self, to: TypeId, context: CastContext, schema: &DFSchema) -> Result<Option<Self>> {
        if self.id == to {
            return Ok(Some(self));
        }
        let Self { expr, id, span, parameter, .. } = self;
        if cast(id, to, context).is_none() {
            return Err(BindError::new(sqlstate::CANNOT_COERCE, format!("cannot cast type {id} to {to}"), span));
        }
        if id == TypeId::UNKNOWN {
            return match parameter {
                Some(parameter) => parameter.into_type(to, span).map(Some),
                None => of_unknown(expr, to, context, span),
            };
        }
        // Only the environment makes JSONB of JSON.
        let is_made = id.element() == Some(TypeId::JSON) && to.element() == Some(TypeId::JSONB);
        if stored_as(id) == stored_as(to) && id.element().is_some() && !is_made {
            return Ok(Some(Self::new(expr, to, span)));
        }
        // These are stored alike, but for blanks at the end of a CHAR(n), which mean nothing.
        let is_text = |id| matches!(id, TypeId::TEXT | TypeId::VARCHAR | TypeId::BPCHAR | TypeId::NAME);
        if to == TypeId::VOID {
            return Ok(Some(Self::new(nothing(expr), to, span)));
        }
        if (is_text(id) || id == TypeId::VOID) && is_text(to) {
            // A name has 63 bytes at most.
            if to == TypeId::NAME && context == CastContext::Explicit {
                return Ok(None);
            }
            if to == TypeId::BPCHAR {
                return Ok(Some(Self::new(as_char(expr, context), to, span)));
            }
            return Ok(Some(Self::new(expr, to, span)));
        }
        if let Some(expr) = constant(&expr, to) {
            return Ok(Some(Self::new(expr, to, span)));
        }
        let expr = match (id, to) {
            (_, TypeId::NUMERIC) => as_number(expr, id)?,
            (TypeId::NUMERIC, _) => of_number(expr, to, schema)?,
            (TypeId::INT2 | TypeId::INT4, to) if to == TypeId::OID || is_registered(to) => {
                let bits = bitwise_and(cast_to(expr, DataType::Int64), lit(i64::from(u32::MAX)));
                Some(cast_to(bits, DataType::UInt32))
            }
            // The same bits with a sign.
            (from, TypeId::INT4) if from == TypeId::OID || is_registered(from) => {
                const HALF: i64 = 1 << 31;
                let bits = bitwise_and(cast_to(expr, DataType::Int64) + lit(HALF), lit(i64::from(u32::MAX)));
                Some(cast_to(bits - lit(HALF), DataType::Int32))
            }
            _ => arrow_type(to).filter(|_| is_alike(id, to)).map(|stored| cast_to(expr, stored)),
        };
        Ok(expr.map(|expr| Self::new(expr, to, span)))
    }

    /// A constant or a parameter of no type as a text.
    pub(crate) fn into_text(self) -> Result<Self> {
        match self.id {
            TypeId::UNKNOWN => self.into_type(TypeId::TEXT, CastContext::Implicit, &DFSchema::empty()),
            _ => Ok(self),
        }
    }
}

/// The empty text, as which a value of VOID is stored; NULL for NULL.
fn nothing(text: Expr) -> Expr {
    let is_null = (Box::new(Expr::IsNull(Box::new(text))), Box::new(text_constant(None)));
    Expr::Case(Case::new(None, vec![is_null], Some(Box::new(text_constant(Some(String::new()))))))
}

fn text_constant(text: Option<String>) -> Expr {
    Expr::Literal(ScalarValue::Utf8View(text), None)
}

/// A text as a CHAR. Constants that are cast implicitly are compared with another.
fn as_char(text: Expr, context: CastContext) -> Expr {
    match context {
        CastContext::Implicit => compared_without_blanks(text),
        CastContext::Assignment | CastContext::Explicit => without_blanks(text),
    }
}

/// The error for a cast that PostgreSQL has and SeracDB does not have.
pub(crate) fn no_cast(from: TypeId, to: TypeId, span: Span) -> BindError {
    match from {
        TypeId::UNKNOWN => BindError::unsupported(format!("a constant of type {to}"), span),
        from => BindError::unsupported(format!("a cast of type {from} to {to}"), span),
    }
}

/// Whether Arrow's cast, or its replacement here, equals PostgreSQL's. It does not if it rounds,
/// writes or reads texts otherwise, or if the session's time zone counts.
pub(crate) fn is_alike(from: TypeId, to: TypeId) -> bool {
    use TypeId as T;
    let is_integer = |id| matches!(id, T::INT2 | T::INT4 | T::INT8);
    match (from, to) {
        (T::INT8, T::OID) => true,
        (T::INT8, to) if is_registered(to) => true,
        (from, to) if is_integer(from) => {
            is_integer(to) || matches!(to, T::FLOAT4 | T::FLOAT8 | T::NUMERIC | T::TEXT | T::VARCHAR | T::BOOL)
        }
        (T::UNKNOWN | T::NUMERIC, _) => true,
        (T::TEXT | T::VARCHAR | T::BPCHAR | T::NAME, T::TEXT | T::VARCHAR | T::BPCHAR) => true,
        (T::FLOAT4 | T::FLOAT8 | T::TEXT | T::VARCHAR, T::NUMERIC) => true,
        (T::BOOL, T::INT4 | T::TEXT | T::VARCHAR) => true,
        (T::FLOAT4, T::FLOAT8) => true,
        (T::DATE, T::TIMESTAMP | T::TEXT | T::VARCHAR) => true,
        (T::TIMESTAMP, T::DATE | T::TIME) => true,
        (T::OID, T::INT8 | T::TEXT | T::VARCHAR) => true,
        (T::JSONB, T::JSON) => true,
        (T::JSON | T::JSONB, T::TEXT | T::VARCHAR) => true,
        (from, to) if from == T::OID || is_registered(from) => to == T::OID || is_registered(to),
        _ => false,
    }
}

/// A value of type `from` as a number; `None` for a type without this cast here.
fn as_number(expr: Expr, from: TypeId) -> Result<Option<Expr>> {
    let function = match from {
        TypeId::FLOAT4 => "float4_numeric",
        TypeId::FLOAT8 => "float8_numeric",
        TypeId::TEXT | TypeId::VARCHAR => "numeric_in",
        other => return Ok(integer_digits(other).map(|digits| cast_to(expr, DataType::Decimal128(digits, 0)))),
    };
    Ok(Some(function_of_numbers(function)?.call(vec![expr])))
}

/// A number as a value of another type; `None` for a type without this cast here.
fn of_number(expr: Expr, to: TypeId, schema: &DFSchema) -> Result<Option<Expr>> {
    let function = match (to, expr.get_type(schema)?) {
        (TypeId::TEXT | TypeId::VARCHAR, DataType::Decimal128(..)) => {
            return Ok(Some(cast_to(expr, DataType::Utf8View)));
        }
        // Both the digits and the power of ten are exact as floats, so that their quotient is
        // rounded once.
        (TypeId::FLOAT8, DataType::Decimal128(..=15, 0..=22)) => return Ok(Some(cast_to(expr, DataType::Float64))),
        (TypeId::TEXT | TypeId::VARCHAR, _) => "numeric_out",
        (TypeId::FLOAT4, _) => "numeric_float4",
        (TypeId::FLOAT8, _) => "numeric_float8",
        (TypeId::INT2, _) => "numeric_int2",
        (TypeId::INT4, _) => "numeric_int4",
        (TypeId::INT8, _) => "numeric_int8",
        _ => return Ok(None),
    };
    Ok(Some(function_of_numbers(function)?.call(vec![expr])))
}

/// A quoted constant or NULL of a type; `None` if its text is not read here.
fn of_unknown(expr: Expr, to: TypeId, context: CastContext, span: Span) -> Result<Option<Bound>> {
    let text = match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => text,
        Expr::Literal(ScalarValue::Utf8(None), _) => return Bound::null(to, span).map(Some),
        _ => return Ok(None),
    };
    if to == TypeId::NAME {
        let short = (0..=text.len().min(NAME_BYTES)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let name = ScalarValue::Utf8View(Some(text[..short].to_owned()));
        return Ok(Some(Bound::new(Expr::Literal(name, None), to, span)));
    }
    let expr = match to {
        TypeId::TEXT | TypeId::VARCHAR => Some(text_constant(Some(text))),
        TypeId::VOID => Some(text_constant(Some(String::new()))),
        TypeId::BPCHAR => Some(as_char(text_constant(Some(text)), context)),
        TypeId::NUMERIC => match text.parse() {
            Ok(number) => Some(number_constant(&number)),
            Err(NumericError { sqlstate, message, .. }) => return Err(BindError::new(sqlstate, message, span)),
        },
        _ => crate::constants::read(&text, to, span)?.map(|value| Expr::Literal(value, None)),
    };
    Ok(expr.map(|expr| Bound::new(expr, to, span)))
}

/// A whole number as a constant of another type of numbers; `None` if it is no such constant, or
/// does not fit.
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
        // Every INTEGER is a number of an object.
        TypeId::OID if !matches!(value, ScalarValue::Int64(_)) => ScalarValue::UInt32(Some(number as u32)),
        TypeId::OID => ScalarValue::UInt32(Some(number.try_into().ok()?)),
        TypeId::FLOAT8 if number.unsigned_abs() < 1 << 53 => ScalarValue::Float64(Some(number as f64)),
        TypeId::NUMERIC => return Some(number_constant(&Numeric::from_integer(number))),
        _ => return None,
    };
    Some(Expr::Literal(value, None))
}

/// A number as a constant, with no more digits than it has; free if it has too many, or is not
/// finite.
pub(crate) fn number_constant(number: &Numeric) -> Expr {
    let fixed = number.finite().and_then(|finite| {
        let (value, scale) = (finite.unscaled().small()?, finite.scale());
        let digits = value.unsigned_abs().checked_ilog10().map_or(1, |log| log + 1).max(scale);
        let precision = u8::try_from(digits).ok().filter(|digits| *digits <= 38)?;
        Some(ScalarValue::Decimal128(Some(value), precision, i8::try_from(scale).ok()?))
    });
    Expr::Literal(fixed.unwrap_or_else(|| ScalarValue::LargeBinary(Some(number.to_stored()))), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_keep_their_digits() {
        let of = |text: &str| match number_constant(&text.parse().unwrap()) {
            Expr::Literal(ScalarValue::Decimal128(Some(value), precision, scale), _) => Some((value, precision, scale)),
            Expr::Literal(ScalarValue::LargeBinary(Some(bytes)), _) => {
                assert_eq!(
                    Numeric::of_stored(&bytes).unwrap().to_string(),
                    text.parse::<Numeric>().unwrap().to_string()
                );
                None
            }
            other => panic!("{other}"),
        };
        assert_eq!(of("1.50"), Some((150, 3, 2)));
        assert_eq!(of("-.005"), Some((-5, 3, 3)));
        assert_eq!(of("0"), Some((0, 1, 0)));
        assert_eq!(of("007"), Some((7, 1, 0)));
        assert_eq!(of("1e3"), Some((1000, 4, 0)));
        assert_eq!(of("1e-38"), Some((1, 38, 38)));
        assert_eq!((of("1e-39"), of("1e38"), of("NaN"), of("-Infinity")), (None, None, None, None));
        let (longest, too_long) = ("9".repeat(38), "9".repeat(39));
        assert_eq!(of(&longest).map(|(_, precision, _)| precision), Some(38));
        assert_eq!(of(&too_long), None);
    }
}
