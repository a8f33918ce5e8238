//! Functions that depend on a session's settings of times ([`TimeStyle`]). They are casts of times
//! and of texts that are times, sums of times and intervals, parts of times, and functions that
//! write values of any type.
//!
//! A plan says what it computes: each function here has the settings under which it was bound. A
//! session with the default settings does not come here.

use super::casts::{is_relative_time, with_converted_elements};
use super::date_parts::EXTRACT_PARTS_OF_INSTANTS;
use super::interval_fields::modified_styled;
use super::times::{TIMESTAMP, on_clocks, with_zone};
use super::truncated_times::truncated_in;
use super::{formats, series, times};
use crate::sql_result::SqlResult;
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, IntervalMonthDayNano, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use serac_engine::Infinity;
use serac_values::intervals::{INTERVAL, MICROS_PER_DAY, Parts, intervals};
use serac_values::text_types::{is_text, is_text_or_null};
use serac_values::texts_as_intervals::parse_styled;
use serac_values::texts_as_times::{is_relative, is_time, read_at};
use serac_values::time_range::times_as;
use serac_values::time_zones::Zone;
use serac_values::wire::{
    Purpose, arrays_of_texts, dimensions, element_of, has_styled, is_list, styled_texts, type_with_texts, with_texts,
};
use serac_values::{SqlError, TimeStyle};
use std::sync::Arc;

/// Functions that write values of any type as texts.
const OF_TEXTS: [&str; 6] = ["concat", "concat_ws", "format", "quote_literal", "quote_nullable", "record_out"];
/// The same as documents.
const OF_DOCUMENTS: [&str; 11] = [
    "array_to_json",
    "json_build_array",
    "json_build_object",
    "json_object_of_arrays",
    "json_of_elements",
    "jsonb_build_array",
    "jsonb_build_object",
    "jsonb_object_of_arrays",
    "row_to_json",
    "to_json",
    "to_jsonb",
];

fn is_with_zone(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(TimeUnit::Microsecond, Some(_)))
}

fn out_of_range() -> SqlError {
    SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "timestamp out of range")
}

/// Whether a cast from one type to another depends on the settings. Types of lists are compared by
/// their elements.
pub fn depends_on_style(from: &DataType, to: &DataType) -> bool {
    let innermost = |mut data_type| {
        while let Some(element) = element_of(data_type) {
            data_type = element;
        }
        data_type.clone()
    };
    let (from, to) = (innermost(from), innermost(to));
    let is_day = |t: &DataType| matches!(t, DataType::Date32 | DataType::Timestamp(_, None));
    match (&from, &to) {
        (from, to) if is_text(to) => has_styled(from),
        (from, to) if is_text(from) => has_styled(to) || matches!(to, DataType::Time64(_)),
        (from, to) if is_with_zone(from) => is_day(to) || matches!(to, DataType::Time64(_)),
        (from, to) => is_day(from) && is_with_zone(to),
    }
}

/// Whether values are texts, or arrays of them.
fn is_of_texts(data_type: &DataType) -> bool {
    element_of(data_type).map_or_else(|| is_text(data_type), is_of_texts)
}

/// Values as others of a type, by the settings, where these count.
fn converted(values: &ArrayRef, to: &DataType, style: &TimeStyle, now: Option<i64>) -> SqlResult {
    let from = values.data_type();
    if from == to {
        return Ok(values.clone());
    }
    match (is_list(from), is_list(to)) {
        (true, true) => {
            let convert = |elements: &ArrayRef, to: &DataType| match depends_on_style(elements.data_type(), to) {
                true => Some(converted(elements, to, style, now)),
                false => None,
            };
            return with_converted_elements(values, to, &convert);
        }
        (false, true) => {
            return converted(&arrays_of_texts(values, dimensions(to))?, to, style, now);
        }
        _ if is_text(to) => return Ok(cast(&styled_texts(values, style)?, to)?),
        _ => {}
    }
    if is_text(from) && *to == INTERVAL {
        let texts = cast(values, &DataType::Utf8View)?;
        let interval =
            |text: &str| -> SqlResult<IntervalMonthDayNano> { parse_styled(text, None, style.intervals)?.interval() };
        let all = texts.as_string_view().iter().map(|text| text.map(interval).transpose());
        let all = all.collect::<SqlResult<datafusion::arrow::array::IntervalMonthDayNanoArray>>()?;
        return Ok(Arc::new(all));
    }
    if is_text(from) {
        return read_at(values, to, now, style);
    }
    if is_with_zone(to) {
        let local = times_as(values, &TIMESTAMP)?;
        let local = local.as_primitive::<TimestampMicrosecondType>();
        let instant = |local| match Infinity::of_micros(local) {
            Some(_) => Ok(local),
            None => style.zone.instant(local).ok_or_else(out_of_range),
        };
        let instants = local.try_unary::<_, TimestampMicrosecondType, SqlError>(instant)?;
        return Ok(Arc::new(instants.with_timezone("UTC")));
    }
    times_as(&on_clocks(values, &style.zone)?, to)
}

/// The time after an interval, as clocks of a zone count days and months.
pub(super) fn later(micros: i64, Parts { months, days, micros: time }: Parts, zone: &Zone) -> Option<i64> {
    if Infinity::of_micros(micros).is_some() {
        return Some(micros);
    }
    let mut at = micros;
    if months != 0 {
        let months = IntervalMonthDayNano::new(months, 0, 0);
        let utc: Tz = "+00:00".parse().ok()?;
        at = zone.instant(TimestampMicrosecondType::add_month_day_nano(zone.local(at)?, months, utc)?)?;
    }
    if days != 0 {
        at = zone.instant(zone.local(at)?.checked_add(i64::from(days).checked_mul(MICROS_PER_DAY)?)?)?;
    }
    at.checked_add(time)
}

/// The computation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Kernel {
    /// The argument as a value of a type.
    Cast(DataType),
    /// The function of arguments in which times are texts.
    Written(Arc<ScalarUDF>, Purpose),
    /// The sum of a time and an interval, or their difference.
    Sum { is_difference: bool },
    /// `date_trunc`.
    Truncated,
    /// The function of times as clocks show them.
    OnClocks(Arc<ScalarUDF>),
    /// The time at which clocks show the function's result.
    Instant(Arc<ScalarUDF>),
    /// The offset of clocks at a time: seconds divided by the first number, modulo the second one.
    Ahead(Arc<ScalarUDF>, i64, i64),
    /// `CURRENT_DATE`.
    Today,
    /// Intervals of types with fields.
    Modified,
}

/// A function with the settings under which it was bound.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Styled {
    kernel: Kernel,
    style: Arc<TimeStyle>,
    signature: Signature,
}

impl Styled {
    fn function(kernel: Kernel, style: &Arc<TimeStyle>, volatility: Volatility) -> Arc<ScalarUDF> {
        let signature = match kernel {
            Kernel::Today => Signature::nullary(volatility),
            _ => Signature::user_defined(volatility),
        };
        Arc::new(ScalarUDF::from(Self { kernel, style: style.clone(), signature }))
    }

    fn inner(&self) -> Option<&Arc<ScalarUDF>> {
        match &self.kernel {
            Kernel::Written(inner, _) | Kernel::OnClocks(inner) | Kernel::Instant(inner) | Kernel::Ahead(inner, ..) => {
                Some(inner)
            }
            _ => None,
        }
    }

    /// The type of an argument as the function inside takes it.
    fn inner_type(&self, given: &DataType) -> DataType {
        match self.kernel {
            Kernel::Written(..) => type_with_texts(given),
            _ => given.clone(),
        }
    }

    fn inner_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let inner = self.inner().expect("there is a function inside");
        let fields = given.iter().map(|given| Arc::new(Field::new("", self.inner_type(given), true)) as FieldRef);
        let fields = fields_with_udf(&fields.collect::<Vec<_>>(), inner.as_ref())?;
        Ok(fields.iter().map(|field| field.data_type().clone()).collect())
    }

    /// An argument as the function inside takes it.
    fn inner_value(&self, value: ColumnarValue, to: &DataType) -> Result<ColumnarValue> {
        let convert = |array: &ArrayRef| -> SqlResult {
            let array = match &self.kernel {
                Kernel::Written(_, purpose) => with_texts(array, &self.style, *purpose)?,
                Kernel::OnClocks(_) if is_with_zone(array.data_type()) => {
                    cast(&on_clocks(array, &self.style.zone)?, array.data_type())?
                }
                _ => array.clone(),
            };
            if array.data_type() == to { Ok(array) } else { Ok(cast(&array, to)?) }
        };
        Ok(match value {
            ColumnarValue::Array(array) => ColumnarValue::Array(convert(&array).map_err(SqlError::external)?),
            ColumnarValue::Scalar(value) => {
                let array = convert(&value.to_array()?).map_err(SqlError::external)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)
            }
        })
    }

    /// Calls the function inside.
    fn call_inner(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let inner = self.inner().expect("there is a function inside");
        let given: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let types = self.inner_types(&given)?;
        let fields = args.arg_fields.iter().zip(&types);
        let arg_fields =
            fields.map(|(field, to)| Arc::new(field.as_ref().clone().with_data_type(to.clone()))).collect();
        let values = args.args.into_iter().zip(&types).map(|(value, to)| self.inner_value(value, to));
        inner.invoke_with_args(ScalarFunctionArgs { args: values.collect::<Result<_>>()?, arg_fields, ..args })
    }

    /// The results of arguments that are arrays.
    fn apply(&self, args: &[ArrayRef]) -> SqlResult {
        let zone = &self.style.zone;
        match &self.kernel {
            Kernel::Cast(to) => converted(&args[0], to, &self.style, None),
            Kernel::Sum { is_difference } => {
                let times = args[0].as_primitive::<TimestampMicrosecondType>();
                let sum = |(time, interval): (Option<i64>, Option<IntervalMonthDayNano>)| {
                    let Some((time, interval)) = time.zip(interval) else { return Ok(None) };
                    let parts = Parts::of(interval);
                    let parts = match is_difference {
                        false => Some(parts),
                        true => parts.months.checked_neg().zip(parts.days.checked_neg()).and_then(|(months, days)| {
                            Some(Parts { months, days, micros: parts.micros.checked_neg()? })
                        }),
                    };
                    parts.and_then(|parts| later(time, parts, zone)).map(Some).ok_or_else(out_of_range)
                };
                let sums = times.iter().zip(intervals(&args[1])).map(sum);
                let sums = sums.collect::<SqlResult<datafusion::arrow::array::TimestampMicrosecondArray>>()?;
                Ok(Arc::new(sums.with_timezone("UTC")))
            }
            Kernel::Truncated => truncated_in(args, Some(zone)),
            Kernel::Ahead(_, unit, most) => {
                let times = args.last().ok_or_else(out_of_range)?.as_primitive::<TimestampMicrosecondType>();
                let ahead = |time| match Infinity::of_micros(time) {
                    Some(_) => None,
                    None => i32::try_from(zone.of_utc(time) / 1_000_000 / unit % most).ok(),
                };
                Ok(Arc::new(times.iter().map(|time| time.and_then(ahead)).collect::<Int32Array>()))
            }
            Kernel::Modified => modified_styled(args, self.style.intervals),
            _ => Err(SqlError::new(sqlstate::INTERNAL_ERROR, "a function inside of another one is called by itself")),
        }
    }

    /// The date on which a time lies.
    fn date(&self, micros: i64) -> Option<i32> {
        i32::try_from(self.style.zone.local(micros)?.div_euclid(MICROS_PER_DAY)).ok()
    }
}

fn literal(array: &ArrayRef) -> Result<Expr> {
    Ok(Expr::Literal(ScalarValue::try_from_array(array, 0)?, None))
}

impl ScalarUDFImpl for Styled {
    fn name(&self) -> &str {
        match &self.kernel {
            Kernel::Cast(to) => match to {
                DataType::Date32 => "date_of_session",
                DataType::Timestamp(_, None) => "timestamp_of_session",
                DataType::Timestamp(..) => "timestamptz_of_session",
                DataType::Interval(_) => "interval_of_session",
                DataType::Time64(_) => "time_of_session",
                _ => "text_of_session",
            },
            Kernel::Sum { is_difference: false } => "timestamptz_pl_interval",
            Kernel::Sum { is_difference: true } => "timestamptz_mi_interval",
            Kernel::Truncated => "date_trunc",
            Kernel::Today => "current_date",
            Kernel::Modified => "interval_modified",
            _ => self.inner().map_or("styled", |inner| inner.name()),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match (&self.kernel, given) {
            (Kernel::Written(..), _) => {
                self.inner_types(given)?;
                Ok(given.to_vec())
            }
            (Kernel::OnClocks(_) | Kernel::Instant(_) | Kernel::Ahead(..), _) => self.inner_types(given),
            (Kernel::Sum { .. }, [_, _]) => Ok(vec![with_zone(), INTERVAL]),
            (Kernel::Truncated, [_, time, zone @ ..]) => {
                Ok([vec![DataType::Utf8View, time.clone()], vec![DataType::Utf8View; zone.len()]].concat())
            }
            (Kernel::Modified, [value, _, _]) => {
                let value = if is_text_or_null(value) { DataType::Utf8View } else { INTERVAL };
                Ok(vec![value, DataType::Utf8View, DataType::Int64])
            }
            _ => Ok(given.to_vec()),
        }
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(match (&self.kernel, given) {
            (Kernel::Cast(to), _) => to.clone(),
            (Kernel::Sum { .. } | Kernel::Instant(_), _) => with_zone(),
            (Kernel::Truncated, [_, time, ..]) => time.clone(),
            (Kernel::Ahead(..), _) => DataType::Int32,
            (Kernel::Today, _) => DataType::Date32,
            (Kernel::Modified, _) => INTERVAL,
            _ => match self.inner() {
                Some(inner) => inner.return_type(&self.inner_types(given)?)?,
                None => return Err(DataFusionError::Internal("a function of other arguments".into())),
            },
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        if let (Some(inner), Kernel::OnClocks(_) | Kernel::Ahead(..)) = (self.inner(), &self.kernel) {
            return inner.return_field_from_args(args);
        }
        let given: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        Ok(Arc::new(Field::new(self.name(), self.return_type(&given)?, true)))
    }

    /// A text relative to the present is read when the present is known.
    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let Some(now) = info.query_execution_start_time().map(|now| now.timestamp_micros()) else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        match (&self.kernel, &args[..]) {
            (Kernel::Today, _) => {
                let date = self.date(now).ok_or_else(|| out_of_range().external())?;
                Ok(ExprSimplifyResult::Simplified(Expr::Literal(ScalarValue::Date32(Some(date)), None)))
            }
            (Kernel::Cast(to), [Expr::Literal(value, _)]) if is_relative_time(value, to) => {
                let time = converted(&value.to_array()?, to, &self.style, Some(now)).map_err(SqlError::external)?;
                Ok(ExprSimplifyResult::Simplified(literal(&time)?))
            }
            _ => Ok(ExprSimplifyResult::Original(args)),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_ahead = matches!(self.kernel, Kernel::Ahead(..))
            && args.arg_fields.last().is_some_and(|field| is_with_zone(field.data_type()));
        match &self.kernel {
            Kernel::Today => {
                Err(SqlError::new(sqlstate::INTERNAL_ERROR, "the day is known when a statement is planned").external())
            }
            // It names a zone.
            Kernel::Instant(_) if args.args.len() == 7 => self.call_inner(args),
            Kernel::Instant(_) => {
                let local = self.call_inner(args)?;
                let instant = |local: &ArrayRef| -> SqlResult {
                    converted(&cast(local, &TIMESTAMP)?, &with_zone(), &self.style, None)
                };
                let apply = |arrays: &[ArrayRef]| instant(&arrays[0]).map_err(SqlError::external);
                make_scalar_function(apply, Vec::new())(&[local])
            }
            Kernel::Written(..) | Kernel::OnClocks(_) => self.call_inner(args),
            Kernel::Ahead(..) if !is_ahead => self.call_inner(args),
            _ => {
                let apply = |arrays: &[ArrayRef]| self.apply(arrays).map_err(SqlError::external);
                make_scalar_function(apply, Vec::new())(&args.args)
            }
        }
    }
}

/// The functions of a session whose settings of times are not the defaults.
#[derive(Debug, Clone)]
pub struct StyledFunctions(pub Arc<TimeStyle>);

impl StyledFunctions {
    fn function(&self, kernel: Kernel) -> Arc<ScalarUDF> {
        Styled::function(kernel, &self.0, Volatility::Immutable)
    }

    /// The function of a name that depends on the settings, in place of `usual`; `None` if it does
    /// not depend on them.
    pub fn scalar(&self, name: &str, usual: &Arc<ScalarUDF>) -> Option<Arc<ScalarUDF>> {
        let Self(style) = self;
        let zone = || style.zone.clone();
        let function = match name {
            name if OF_TEXTS.contains(&name) => self.function(Kernel::Written(usual.clone(), Purpose::Text)),
            name if OF_DOCUMENTS.contains(&name) => self.function(Kernel::Written(usual.clone(), Purpose::Document)),
            "interval_modified" => self.function(Kernel::Modified),
            "to_char" => Arc::new(formats::function_in(name, zone())?),
            _ if style.zone.is_utc() => return None,
            "date_trunc" | "datetrunc" => self.function(Kernel::Truncated),
            "current_date" => Styled::function(Kernel::Today, style, Volatility::Stable),
            "make_timestamptz" => self.function(Kernel::Instant(usual.clone())),
            "age" => Arc::new(times::age_in(zone())),
            "generate_series" => Arc::new(series::function_in(zone())),
            name => Arc::new(formats::function_in(name, zone())?),
        };
        Some(function)
    }

    /// The implementation of a field of times, in place of `usual`.
    pub fn date_part(&self, field: Option<&str>, usual: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
        if self.0.zone.is_utc() || EXTRACT_PARTS_OF_INSTANTS.contains(&usual.name()) {
            return usual;
        }
        self.function(match field {
            Some("timezone") => Kernel::Ahead(usual, 1, i64::MAX),
            Some("timezone_hour") => Kernel::Ahead(usual, 3_600, i64::MAX),
            Some("timezone_minute") => Kernel::Ahead(usual, 60, 60),
            _ => Kernel::OnClocks(usual),
        })
    }

    /// Whether a cast depends on these settings.
    fn counts(&self, from: &DataType, to: &DataType) -> bool {
        depends_on_style(from, to) && (!self.0.zone.is_utc() || is_of_texts(from) || is_of_texts(to))
    }

    /// A value as one of another type, where that depends on the settings.
    ///
    /// # Errors
    /// A constant is wrong: the error says how.
    pub fn cast(&self, expr: &Expr, to: &DataType, schema: &DFSchema) -> Result<Option<Expr>> {
        if !self.counts(&expr.get_type(schema)?, to) {
            return Ok(None);
        }
        if let Expr::Literal(value, _) = expr {
            if value.is_null() {
                return Ok(None);
            }
            if !value.try_as_str().flatten().is_some_and(is_relative) || !is_time(to) {
                let value = converted(&value.to_array()?, to, &self.0, None).map_err(SqlError::external)?;
                return Ok(Some(literal(&value)?));
            }
            let function = Styled::function(Kernel::Cast(to.clone()), &self.0, Volatility::Stable);
            return Ok(Some(function.call(vec![expr.clone()])));
        }
        Ok(Some(self.function(Kernel::Cast(to.clone())).call(vec![expr.clone()])))
    }

    /// A text as a value of a type of times; `None` if it depends on the time of reading, or on no
    /// settings.
    ///
    /// # Errors
    /// The error in the text.
    pub fn read(&self, text: &str, to: &DataType) -> SqlResult<Option<ScalarValue>> {
        let is_read = depends_on_style(&DataType::Utf8View, to) && !(is_time(to) && is_relative(text));
        if !is_read {
            return Ok(None);
        }
        let text = ScalarValue::Utf8View(Some(text.to_owned())).to_array()?;
        let value = converted(&text, to, &self.0, None)?;
        Ok(Some(ScalarValue::try_from_array(&value, 0)?))
    }

    /// A value as one of another type, where that depends on the settings.
    ///
    /// # Errors
    /// The error in the text; 0A000 for one that depends on the time of reading.
    pub fn value(&self, value: &ScalarValue, to: &DataType) -> SqlResult<Option<ScalarValue>> {
        if !self.counts(&value.data_type(), to) {
            return Ok(None);
        }
        let value = converted(&value.to_array()?, to, &self.0, None)?;
        Ok(Some(ScalarValue::try_from_array(&value, 0)?))
    }

    /// Values as others of a type, where that depends on the settings.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn array(&self, values: &ArrayRef, to: &DataType) -> SqlResult<Option<ArrayRef>> {
        let counts = self.counts(values.data_type(), to);
        counts.then(|| converted(values, to, &self.0, None)).transpose()
    }

    /// The sum of a time and an interval, or their difference; `None` for other operands.
    ///
    /// # Errors
    /// DataFusion's.
    pub fn operate(&self, operator: Operator, left: &Expr, right: &Expr, schema: &DFSchema) -> Result<Option<Expr>> {
        if self.0.zone.is_utc() || !matches!(operator, Operator::Plus | Operator::Minus) {
            return Ok(None);
        }
        let is_difference = operator == Operator::Minus;
        let (of_left, of_right) = (left.get_type(schema)?, right.get_type(schema)?);
        let is_interval = |given: &DataType| matches!(given, DataType::Interval(_));
        let (time, interval) = if is_with_zone(&of_left) && is_interval(&of_right) {
            (left, right)
        } else if is_with_zone(&of_right) && is_interval(&of_left) && !is_difference {
            (right, left)
        } else {
            return Ok(None);
        };
        Ok(Some(self.function(Kernel::Sum { is_difference }).call(vec![time.clone(), interval.clone()])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_clocks() {
        let zone = Zone::of_full_name("America/New_York").unwrap();
        let parts = |months, days, micros| Parts { months, days, micros };
        // 2020-03-07 12:00 there, the day before clocks are put forward.
        let noon = 1_583_600_400_000_000;
        let hour = 3_600_000_000;
        assert_eq!(later(noon, parts(0, 1, 0), &zone), Some(noon + 23 * hour));
        assert_eq!(later(noon, parts(0, 0, 24 * hour), &zone), Some(noon + 24 * hour));
        assert_eq!(later(noon, parts(1, 0, 0), &zone), Some(noon + (31 * 24 - 1) * hour));
    }

    #[test]
    fn only_times_depend_on_settings() {
        let (text, date) = (DataType::Utf8View, DataType::Date32);
        assert!(depends_on_style(&text, &date) && depends_on_style(&date, &text));
        assert!(depends_on_style(&DataType::new_list(date.clone(), true), &text));
        assert!(depends_on_style(&date, &with_zone()) && depends_on_style(&with_zone(), &TIMESTAMP));
        assert!(!depends_on_style(&date, &TIMESTAMP) && !depends_on_style(&text, &DataType::Int32));
    }
}
