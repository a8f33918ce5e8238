//! Numbers in plans: their two forms, and keys of values.

use crate::error::{BindError, NO_PLACE, Result};
use crate::plan_parts::with_elements;
use crate::types::{dimensions, element_type};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Expr, ExprSchemable, ScalarUDF, cast};
use serac_numeric::Numeric;
use serac_numeric_functions::aggregates::{Choice, by_key};
use serac_numeric_functions::fixed::{Rounding, fixed};
use serac_numeric_functions::{FREE, keys, lists, scalar};
use std::sync::Arc;

/// Digits that a fixed number has at most.
pub(crate) const MOST_DIGITS: i16 = 38;

/// A function of numbers.
pub(crate) fn function_of_numbers(name: &str) -> Result<Arc<ScalarUDF>> {
    Ok(scalar::function(name)?)
}

pub(crate) fn is_free(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    Ok(expr.get_type(schema)? == FREE)
}

/// Whether a value is a free number, or an array of such.
pub(crate) fn has_free(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    Ok(*innermost(&expr.get_type(schema)?) == FREE)
}

pub(crate) fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(value, _) if value.is_null())
}

/// A number in its free form.
pub(crate) fn free(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    match expr.get_type(schema)? {
        FREE => Ok(expr),
        DataType::Decimal128(_, scale) => match expr {
            Expr::Literal(ScalarValue::Decimal128(value, ..), _) => {
                let stored = value.map(|value| Numeric::of_decimal(value, scale).to_stored());
                Ok(Expr::Literal(ScalarValue::LargeBinary(stored), None))
            }
            other => Ok(function_of_numbers("numeric")?.call(vec![other])),
        },
        _ => Ok(function_of_numbers("numeric")?.call(vec![expr])),
    }
}

/// The digits of a fixed number: all, and those behind the point.
pub(crate) fn digits(expr: &Expr, schema: &DFSchema) -> Result<Option<(i16, i16)>> {
    match expr.get_type(schema)? {
        DataType::Decimal128(precision, scale) => Ok(Some((precision.into(), scale.into()))),
        _ => Ok(None),
    }
}

/// Numbers in one form: fixed if all have one scale, otherwise free.
pub(crate) fn of_one_form(all: Vec<Expr>, schema: &DFSchema) -> Result<Vec<Expr>> {
    let mut common: Option<(i16, i16)> = None;
    let mut is_fixed = true;
    for expr in all.iter().filter(|expr| !is_null(expr)) {
        match (digits(expr, schema)?, common) {
            (Some((precision, scale)), Some((most, of_all))) if scale == of_all => {
                common = Some((precision.max(most), scale));
            }
            (Some(own), None) => common = Some(own),
            _ => is_fixed = false,
        }
    }
    if !is_fixed {
        return all.into_iter().map(|expr| free(expr, schema)).collect();
    }
    let (precision, scale) = common.unwrap_or((1, 0));
    let wanted = decimal(precision, scale)?;
    let as_wanted = |expr: Expr| match expr {
        expr if is_null(&expr) => Ok(Expr::Literal(ScalarValue::try_from(&wanted)?, None)),
        expr if expr.get_type(schema)? == wanted => Ok(expr),
        expr => Ok(cast(expr, wanted.clone())),
    };
    all.into_iter().map(as_wanted).collect()
}

pub(crate) fn decimal(precision: i16, scale: i16) -> Result<DataType> {
    match (u8::try_from(precision), i8::try_from(scale)) {
        (Ok(precision @ 1..=76), Ok(scale)) if precision > 38 => Ok(DataType::Decimal256(precision, scale)),
        (Ok(precision @ 1..=38), Ok(scale)) => Ok(DataType::Decimal128(precision, scale)),
        _ => Err(BindError::unsupported("a number of so many digits", NO_PLACE)),
    }
}

/// The type of the elements of an array of any depth, or of a value that is none.
fn innermost(data_type: &DataType) -> &DataType {
    element_type(data_type).map_or(data_type, innermost)
}

/// Values some of which may be numbers, or arrays of such, with numbers of one form: fixed if all
/// have one scale, or are only compared; otherwise free where they are shown (`is_shown`), and keys
/// where they are not.
pub(crate) fn arrays_of_one_form(all: Vec<Expr>, is_shown: bool, schema: &DFSchema) -> Result<Vec<Expr>> {
    let (mut whole, mut scale, mut scales, mut has_free) = (1, 0, Vec::new(), false);
    for expr in all.iter().filter(|expr| !is_null(expr)) {
        match innermost(&expr.get_type(schema)?) {
            DataType::Decimal128(precision, own) => {
                let (precision, own) = (i16::from(*precision), i16::from(*own));
                (whole, scale) = (whole.max(precision - own), scale.max(own));
                scales.push(own);
            }
            DataType::LargeBinary => has_free = true,
            _ => {}
        }
    }
    has_free |= whole + scale > MOST_DIGITS || (is_shown && scales.iter().any(|own| *own != scale));
    let in_form = |expr: Expr| {
        let given = expr.get_type(schema)?;
        let is_number = matches!(innermost(&given), DataType::Decimal128(..) | DataType::LargeBinary);
        if !is_number {
            return Ok(expr);
        }
        if !has_free {
            let wanted = with_elements(&given, decimal(whole + scale, scale)?);
            return Ok(if wanted == given { expr } else { cast(expr, wanted) });
        }
        Ok(match (element_type(&given).is_some(), is_shown) {
            (true, true) if *innermost(&given) == FREE => expr,
            (true, true) => lists::free(expr),
            (true, false) => lists::keys(expr),
            (false, true) => free(expr, schema)?,
            (false, false) => keys::of_numeric(expr),
        })
    };
    all.into_iter().map(in_form).collect()
}

/// Numbers as values that Arrow compares: decimals of one scale, or keys.
pub(crate) fn compared(all: Vec<Expr>, schema: &DFSchema) -> Result<Vec<Expr>> {
    let (mut whole, mut scale) = (1, 0);
    let mut has_free = false;
    for expr in all.iter().filter(|expr| !is_null(expr)) {
        match digits(expr, schema)? {
            Some((precision, own)) => (whole, scale) = (whole.max(precision - own), scale.max(own)),
            None => has_free = true,
        }
    }
    // Numbers that are only compared may have twice as many digits.
    match decimal(whole + scale, scale) {
        Ok(wanted) if !has_free => {
            let as_wanted = |expr: Expr| match expr.get_type(schema)? == wanted {
                true => Ok(expr),
                false => Ok(cast(expr, wanted.clone())),
            };
            all.into_iter().map(as_wanted).collect()
        }
        _ => Ok(all.into_iter().map(keys::of_numeric).collect()),
    }
}

/// A number with this precision and scale, as a cast makes it.
pub(crate) fn with_digits(expr: Expr, precision: i32, scale: i32, schema: &DFSchema) -> Result<Expr> {
    let (Ok(digits_of_all @ 1..=38), Ok(behind)) = (u8::try_from(precision), i8::try_from(scale)) else {
        return limited(expr, precision, scale);
    };
    if behind < 0 || scale > precision {
        return limited(expr, precision, scale);
    }
    let is_wider = |(own, own_scale): (i16, i16)| {
        own_scale <= i16::from(behind) && own - own_scale <= i16::from(digits_of_all) - i16::from(behind)
    };
    Ok(match digits(&expr, schema)? {
        Some(own) if is_wider(own) => cast(expr, DataType::Decimal128(digits_of_all, behind)),
        _ => fixed(expr, Rounding::Nearest, digits_of_all, behind),
    })
}

/// The same, if these digits are not those of fixed numbers.
pub(crate) fn limited(expr: Expr, precision: i32, scale: i32) -> Result<Expr> {
    let number = |number: i32| Expr::Literal(ScalarValue::Int32(Some(number)), None);
    Ok(function_of_numbers("numeric_limited")?.call(vec![expr, number(precision), number(scale)]))
}

/// The first value of a group that has one key.
pub(crate) fn first_of_key(value: Expr, key: Expr) -> Expr {
    let call = AggregateFunction::new_udf(by_key(Choice::First), vec![value, key], false, None, Vec::new(), None);
    Expr::AggregateFunction(call)
}

/// The form of a value beside the others of its column: of a number, or of an array of numbers, the
/// same as in [`of_one_form`], over plans.
pub(crate) fn common_form(types: &[DataType]) -> Result<DataType> {
    if types.iter().all(is_text) {
        return Ok(DataType::Utf8View);
    }
    if types.iter().all(|data_type| element_type(data_type).is_some()) {
        if types.iter().any(|data_type| dimensions(data_type) != dimensions(&types[0])) {
            return Err(BindError::unsupported("a column of arrays of several depths", NO_PLACE));
        }
        let elements: Vec<DataType> = types.iter().map(|data_type| innermost(data_type).clone()).collect();
        return Ok(with_elements(&types[0], common_form(&elements)?));
    }
    let mut common: Option<(u8, i8)> = None;
    for data_type in types {
        match (data_type, common) {
            (DataType::Decimal128(precision, scale), Some((most, of_all))) if *scale == of_all => {
                common = Some(((*precision).max(most), *scale));
            }
            (DataType::Decimal128(precision, scale), None) => common = Some((*precision, *scale)),
            (DataType::Decimal128(..) | DataType::LargeBinary, _) => return Ok(FREE),
            _ => return Err(BindError::unsupported("a column of several types", NO_PLACE)),
        }
    }
    Ok(common.map_or(FREE, |(precision, scale)| DataType::Decimal128(precision, scale)))
}

/// A column in a form that [`common_form`] gives.
pub(crate) fn in_form(expr: Expr, form: &DataType, schema: &DFSchema) -> Result<Expr> {
    match form {
        form if expr.get_type(schema)? == *form => Ok(expr),
        DataType::LargeBinary => free(expr, schema),
        form if *innermost(form) == FREE => Ok(lists::free(expr)),
        form => Ok(cast(expr, form.clone())),
    }
}

/// Whether texts are stored so: names of the catalog have another form than other texts.
pub(crate) fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::Utf8View)
}
