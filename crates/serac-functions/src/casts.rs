//! Casts whose meaning in PostgreSQL differs from DataFusion's. They are casts of texts to
//! integers, truth values, dates and times, BYTEA (`\x00ff`), intervals (`1 day 02:03:04`) and
//! JSON. Casts of numbers that lose digits round and do not truncate, and numbers that are too
//! large or too small for a float fail. Arrays are cast element by element. Times, floats and
//! arrays have PostgreSQL's texts. Infinite times stay infinite. Each of these casts becomes a
//! function, which the optimizer does not unwrap in comparisons: `n::INTEGER = 2` holds for 2.3,
//! too.
//!
//! Casts whose results may be far larger than their arguments become functions as well, so that
//! [`accounted`](mod@super::accounted) counts them. These are casts of arrays, and of views of
//! texts, which many rows may share, to texts that each row has for itself.

use crate::typed::rewrite_typed;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder, FixedSizeBinaryArray, Int32Array, ListArray,
    UInt32Array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options, filter};
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, IntervalUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use serac_pg::char_text::char_of_text;
use serac_values::assignment::assign;
use serac_values::text_types::is_text;
use serac_values::texts_as_times::{is_relative, is_time, read, read_at};
use serac_values::time_range::{is_conversion_of_times, times_as};
use serac_values::wire::{
    arrays_of_texts, as_told, dimensions, element_of, is_list, object_number_of_text, place_of_text, to_wire, wire_type,
};
use serac_values::{SqlError, TimeStyle};
use std::sync::Arc;

/// Whether casts of texts to a type are done here.
fn is_read(data_type: &DataType) -> bool {
    is_time(data_type)
        || matches!(
            data_type,
            DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::Interval(IntervalUnit::MonthDayNano)
                | DataType::Boolean
                | DataType::Int16
                | DataType::Int32
                | DataType::Int64
        )
}

/// Whether values are of the type `"char"`.
fn is_char(data_type: &DataType) -> bool {
    *data_type == DataType::FixedSizeBinary(1)
}

/// Whether a `"char"` becomes another value, or is made of one.
fn is_cast_of_char(from: &DataType, to: &DataType) -> bool {
    let is_other = |other: &DataType| is_text(other) || *other == DataType::Int32;
    (is_char(from) && is_other(to)) || (is_char(to) && is_other(from))
}

/// A `"char"` as a text or a number with a sign, or made of one.
fn cast_of_char(values: &ArrayRef, to: &DataType) -> Result<ArrayRef, SqlError> {
    let of_bytes = |bytes: Vec<Option<[u8; 1]>>| -> Result<ArrayRef, SqlError> {
        let bytes = FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes.into_iter(), 1)?;
        Ok(Arc::new(bytes))
    };
    match (values.data_type(), to) {
        (from, DataType::Int32) if is_char(from) => {
            let number = |byte: Option<&[u8]>| byte.map(|byte| i32::from(byte[0].cast_signed()));
            Ok(Arc::new(values.as_fixed_size_binary().iter().map(number).collect::<Int32Array>()))
        }
        (from, _) if is_char(from) => Ok(cast(&to_wire(values)?, to)?),
        (DataType::Int32, _) => {
            let byte = |number: i32| i8::try_from(number).map(|byte| [byte.cast_unsigned()]);
            let bytes = values.as_primitive::<Int32Type>().iter().map(|number| number.map(byte).transpose());
            let out_of_range = |_| SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "\"char\" out of range");
            of_bytes(bytes.collect::<Result<_, _>>().map_err(out_of_range)?)
        }
        _ => {
            let texts = cast(values, &DataType::Utf8View)?;
            of_bytes(texts.as_string_view().iter().map(|text| text.map(|text| [char_of_text(text)])).collect())
        }
    }
}

/// Whether values are places of rows.
fn is_tid(data_type: &DataType) -> bool {
    *data_type == DataType::FixedSizeBinary(6)
}

/// Whether a place becomes a text, or is made of one.
fn is_cast_of_tid(from: &DataType, to: &DataType) -> bool {
    (is_tid(from) && is_text(to)) || (is_text(from) && is_tid(to))
}

/// Texts as places.
fn places(texts: &ArrayRef) -> Result<ArrayRef, SqlError> {
    let texts = cast(texts, &DataType::Utf8View)?;
    let places = texts.as_string_view().iter().map(|text| text.map(place_of_text).transpose());
    let places = places.collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(places.into_iter(), 6)?))
}

/// Whether a text becomes the number of an object.
fn is_object_number(from: &DataType, to: &DataType) -> bool {
    is_text(from) && *to == DataType::UInt32
}

/// Texts as numbers of objects.
fn object_numbers(texts: &ArrayRef) -> Result<ArrayRef, SqlError> {
    let texts = cast(texts, &DataType::Utf8View)?;
    let numbers = texts.as_string_view().iter().map(|text| text.map(object_number_of_text).transpose());
    Ok(Arc::new(numbers.collect::<Result<UInt32Array, _>>()?))
}

/// Whether numbers of one type lose digits in another.
fn is_rounded(from: &DataType, to: &DataType) -> bool {
    let is_integer = matches!(to, DataType::Int16 | DataType::Int32 | DataType::Int64);
    match from {
        DataType::Float32 | DataType::Float64 => is_integer,
        DataType::Decimal128(_, scale) => {
            (is_integer && *scale > 0) || matches!(to, DataType::Decimal128(_, fewer) if fewer < scale)
        }
        _ => false,
    }
}

/// Whether values may be too large or too small for a float.
fn is_narrowed(from: &DataType, to: &DataType) -> bool {
    (is_text(from) && to.is_floating()) || (*from == DataType::Float64 && *to == DataType::Float32)
}

/// Whether values are written otherwise than DataFusion does, as results are: `2020-01-31
/// 10:00:00`, `10:00:00.5`, 1 as the text of 1.0, `\x00ff`, `{1,2}`.
fn is_written(from: &DataType, to: &DataType) -> bool {
    let is_scalar = matches!(
        from,
        DataType::Timestamp(..)
            | DataType::Date32
            | DataType::Time64(_)
            | DataType::Float32
            | DataType::Float64
            | DataType::Interval(_)
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
    );
    let is_array = is_list(from) && *to != DataType::LargeUtf8;
    (is_scalar || is_array) && is_text(to)
}

/// Whether the elements of arrays are cast.
fn is_of_elements(from: &DataType, to: &DataType) -> bool {
    is_list(from) && is_list(to) && from != to
}

/// Whether a cast equals DataFusion's, and is here only to be counted.
fn is_counted(from: &DataType, to: &DataType) -> bool {
    *from == DataType::Utf8View && *to == DataType::Utf8
}

/// Whether a text becomes a document.
fn is_parsed(from: &DataType, to: &DataType) -> bool {
    *to == DataType::LargeUtf8 && matches!(from, DataType::Utf8 | DataType::Utf8View)
}

/// Whether a document, which may be a number with a fraction, becomes an integer.
fn is_number_of_document(from: &DataType, to: &DataType) -> bool {
    *from == DataType::LargeUtf8 && matches!(to, DataType::Int16 | DataType::Int32 | DataType::Int64)
}

/// Whether a time of day becomes an interval, or the other way round.
fn is_time_of_day(from: &DataType, to: &DataType) -> bool {
    matches!((from, to), (DataType::Time64(_), DataType::Interval(_)) | (DataType::Interval(_), DataType::Time64(_)))
}

/// Whether a text becomes an array: it is read, and is not an element.
fn is_array_of_text(from: &DataType, to: &DataType) -> bool {
    is_text(from) && is_list(to)
}

fn is_ours(from: &DataType, to: &DataType) -> bool {
    is_time_of_day(from, to)
        || is_conversion_of_times(from, to)
        || is_cast_of_char(from, to)
        || is_cast_of_tid(from, to)
        || is_object_number(from, to)
        || is_array_of_text(from, to)
        || (is_text(from) && is_read(to))
        || is_number_of_document(from, to)
        || is_parsed(from, to)
        || is_rounded(from, to)
        || is_narrowed(from, to)
        || is_of_elements(from, to)
        || is_written(from, to)
        || is_counted(from, to)
}

/// Whether a cast to a type may be one of ours.
fn may_be_ours(to: &DataType) -> bool {
    is_read(to)
        || is_text(to)
        || is_list(to)
        || is_char(to)
        || is_tid(to)
        || matches!(
            to,
            DataType::Time64(_)
                | DataType::Int16
                | DataType::Int32
                | DataType::Int64
                | DataType::UInt32
                | DataType::Float32
                | DataType::Float64
                | DataType::Decimal128(..)
        )
}

/// Values as others of a type, if that is [`is_ours`].
fn converted(values: &ArrayRef, to: &DataType) -> Result<ArrayRef, SqlError> {
    if is_time(to) && is_text(values.data_type()) {
        return read(values, to);
    }
    if is_conversion_of_times(values.data_type(), to) {
        return times_as(values, to);
    }
    if is_cast_of_char(values.data_type(), to) {
        return cast_of_char(values, to);
    }
    if is_tid(to) {
        return places(values);
    }
    if is_object_number(values.data_type(), to) {
        return object_numbers(values);
    }
    if is_array_of_text(values.data_type(), to) {
        return arrays_of_type(values, to);
    }
    if is_of_elements(values.data_type(), to) {
        return with_converted_elements(values, to, &|_, _| None);
    }
    if is_counted(values.data_type(), to) {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        return Ok(cast_with_options(values, to, &options)?);
    }
    if is_text(to) && !is_parsed(values.data_type(), to) {
        return Ok(cast(&as_told(values, &DataType::Utf8View)?, to)?);
    }
    let number;
    let values = match is_number_of_document(values.data_type(), to) {
        true => {
            let options = CastOptions { safe: false, ..CastOptions::default() };
            number = cast_with_options(values, &DataType::Decimal128(38, 10), &options)?;
            &number
        }
        false => values,
    };
    let values = assign(values, wire_type(to).into(), "?").map_err(|error| SqlError { detail: None, ..error })?;
    Ok(cast(&values, to)?)
}

/// The arrays that texts are.
fn arrays_of_type(texts: &ArrayRef, to: &DataType) -> Result<ArrayRef, SqlError> {
    let lists = arrays_of_texts(texts, dimensions(to))?;
    if lists.data_type() == to { Ok(lists) } else { with_converted_elements(&lists, to, &|_, _| None) }
}

/// A value as one of another type, as a cast converts it.
///
/// # Errors
/// The errors of the cast.
pub fn cast_value(value: &ScalarValue, to: &DataType) -> Result<ScalarValue, SqlError> {
    let from = value.data_type();
    match is_ours(&from, to) {
        true => Ok(ScalarValue::try_from_array(&converted(&value.to_array()?, to)?, 0)?),
        false => Ok(value.cast_to(to)?),
    }
}

/// Elements converted to a type by rules that differ from casts; `None` if casts apply.
pub(super) type OtherRules<'r> = &'r dyn Fn(&ArrayRef, &DataType) -> Option<Result<ArrayRef, SqlError>>;

/// Converts the elements of arrays to another type. `other` converts elements by rules of its own,
/// if it has any.
pub(super) fn with_converted_elements(
    lists: &ArrayRef,
    to: &DataType,
    other: OtherRules<'_>,
) -> Result<ArrayRef, SqlError> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let (Some(from), DataType::List(wanted)) = (element_of(lists.data_type()), to) else {
        return Ok(cast_with_options(lists, to, &options)?);
    };
    let lists = cast(lists, &DataType::List(Arc::new(Field::new_list_field(from.clone(), true))))?;
    let (_, offsets, elements, nulls) = lists.as_list::<i32>().clone().into_parts();
    // Values behind a NULL list are no elements.
    let is_there = |list: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(list));
    let mut kept = BooleanBufferBuilder::new(elements.len());
    kept.append_n(offsets[0] as usize, false);
    offsets.lengths().enumerate().for_each(|(list, length)| kept.append_n(length, is_there(list)));
    kept.append_n(elements.len() - kept.len(), false);
    let elements = filter(&elements, &BooleanArray::new(kept.finish(), None))?;
    let lengths = offsets.lengths().enumerate().map(|(list, length)| if is_there(list) { length } else { 0 });
    let offsets = OffsetBuffer::from_lengths(lengths);
    let elements = match wanted.data_type() {
        wanted if let Some(converted) = other(&elements, wanted) => converted?,
        wanted if wanted == elements.data_type() => elements,
        wanted if is_ours(elements.data_type(), wanted) => converted(&elements, wanted)?,
        wanted if wanted.is_numeric() && elements.data_type().is_numeric() => {
            let numbers = assign(&elements, wire_type(wanted).into(), "?");
            cast(&numbers.map_err(|error| SqlError { detail: None, ..error })?, wanted)?
        }
        wanted => cast_with_options(&elements, wanted, &options)?,
    };
    Ok(Arc::new(ListArray::try_new(wanted.clone(), offsets, elements, nulls)?))
}

/// The cast of a non-constant.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Converted {
    wanted: DataType,
    /// Whether the operand may be a text such as `today`.
    may_be_relative: bool,
    signature: Signature,
}

impl ScalarUDFImpl for Converted {
    fn name(&self) -> &str {
        match self.wanted {
            DataType::Date32 => "date",
            DataType::Timestamp(_, None) => "timestamp",
            DataType::Timestamp(_, Some(_)) => "timestamptz",
            DataType::Interval(_) => "interval_in",
            DataType::Int16 => "int2",
            DataType::Int32 => "int4",
            DataType::Int64 => "int8",
            DataType::UInt32 => "oidin",
            DataType::Float32 => "float4",
            DataType::Float64 => "float8",
            DataType::Decimal128(..) => "numeric",
            DataType::Time64(_) => "time",
            DataType::LargeUtf8 => super::accounted::DOCUMENT,
            DataType::Utf8 | DataType::Utf8View => super::accounted::TEXT,
            DataType::Boolean => "bool",
            _ if is_list(&self.wanted) => super::accounted::ARRAY,
            _ if is_char(&self.wanted) => "char",
            _ if is_tid(&self.wanted) => "tidin",
            _ => "bytea_in",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.wanted.clone())
    }

    /// A text relative to the present is read when the present is known.
    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let (Some(now), [Expr::Literal(value, _)]) = (info.query_execution_start_time(), &args[..]) else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        if !is_relative_time(value, &self.wanted) {
            return Ok(ExprSimplifyResult::Original(args));
        }
        let time = read_at(&value.to_array()?, &self.wanted, Some(now.timestamp_micros()), TimeStyle::usual());
        let time = time.map_err(SqlError::external)?;
        Ok(ExprSimplifyResult::Simplified(Expr::Literal(ScalarValue::try_from_array(&time, 0)?, None)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let apply = |arrays: &[ArrayRef]| converted(&arrays[0], &self.wanted).map_err(SqlError::external);
        make_scalar_function(apply, Vec::new())(&args.args)
    }
}

/// Whether a constant is a time such as `today`.
pub(super) fn is_relative_time(value: &ScalarValue, wanted: &DataType) -> bool {
    is_time(wanted) && value.try_as_str().flatten().is_some_and(is_relative)
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::Cast(Cast { expr, field }) = expr else { return Ok(Transformed::no(expr)) };
    let source = if may_be_ours(field.data_type()) { expr.get_type(schema).ok() } else { None };
    let Some(source) = source.filter(|source| is_ours(source, field.data_type())) else {
        return Ok(Transformed::no(Expr::Cast(Cast { expr, field })));
    };
    if let Expr::Literal(value, _) = &*expr {
        if is_relative_time(value, field.data_type()) {
            let signature = Signature::any(1, Volatility::Stable);
            let function = Converted { wanted: field.data_type().clone(), may_be_relative: true, signature };
            return Ok(Transformed::yes(ScalarUDF::from(function).call(vec![*expr])));
        }
        let value = converted(&value.to_array()?, field.data_type()).map_err(SqlError::external)?;
        return Ok(Transformed::yes(Expr::Literal(ScalarValue::try_from_array(&value, 0)?, None)));
    }
    let may_be_relative = is_text(&source) && is_time(field.data_type());
    Ok(Transformed::yes(late_cast(*expr, field.data_type(), may_be_relative)))
}

/// A cast to a type that is ours, which fails where it is reached: a branch of CASE may never be. A
/// constant in [`Expr::Cast`] fails when it is planned.
fn late_cast(expr: Expr, wanted: &DataType, may_be_relative: bool) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    let function = Converted { wanted: wanted.clone(), may_be_relative, signature };
    ScalarUDF::from(function).call(vec![expr])
}

/// Whether the value of a call is the same for all rows of a statement, and not for all statements:
/// of a stable function, and of a text as a time, since the text may be `now`.
pub fn is_of_statement(call: &Expr) -> bool {
    let Expr::ScalarFunction(call) = call else { return false };
    call.func.signature().volatility == Volatility::Stable
        || call.func.inner().downcast_ref::<Converted>().is_some_and(|cast| cast.may_be_relative)
}

/// The operand of a cast, and the type that it becomes: of DataFusion's cast, or of one of ours.
pub fn operand_of_cast(expr: &Expr) -> Option<(&Expr, &DataType)> {
    match expr {
        Expr::Cast(cast) => Some((&cast.expr, cast.field.data_type())),
        Expr::ScalarFunction(call) => {
            let converted = call.func.inner().downcast_ref::<Converted>()?;
            Some((call.args.first()?, &converted.wanted))
        }
        _ => None,
    }
}

/// A constant text of a type as a value of another one, if the cast is ours.
pub fn cast_of_text(expr: &Expr, wanted: &DataType) -> Option<Expr> {
    let Expr::Literal(value, _) = expr else { return None };
    let is_late = is_ours(&value.data_type(), wanted) && !is_relative_time(value, wanted);
    is_late.then(|| late_cast(expr.clone(), wanted, false))
}

/// An expression, whose types are coerced, with these functions in place of casts.
pub fn with_own_casts(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    Ok(expr.transform_up(|expr| rewrite(expr, schema))?.data)
}

/// Replaces casts by the functions of this module. Comes after types are coerced.
#[derive(Debug)]
pub struct Casts;

impl AnalyzerRule for Casts {
    fn name(&self) -> &str {
        "casts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_typed(plan, |part| matches!(part, Expr::Cast(to) if may_be_ours(to.field.data_type())), rewrite)
    }
}
