//! generate_series (start, stop, step) of timestamps, in microseconds; DataFusion's are of
//! nanoseconds, which hold no other years than 1677 to 2262. Numbers with digits of their own are
//! supported, too. Other types use DataFusion's.

use super::styled::later;
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, LargeBinaryBuilder, ListBuilder, TimestampMicrosecondBuilder,
};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, IntervalMonthDayNanoType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::functions_nested::range::gen_series_udf;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use serac_engine::Infinity;
use serac_numeric::Numeric;
use serac_values::SqlError;
use serac_values::intervals::{INTERVAL, Parts, is_interval};
use serac_values::time_zones::Zone;
use std::sync::Arc;

/// Values of a series at the most.
const MOST_VALUES: usize = 100_000_000;
/// The same of numbers with digits of their own, each of which takes more memory.
const MOST_NUMBERS: usize = 1_000_000;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Series {
    inner: Arc<ScalarUDF>,
    /// The zone whose clocks count days and months.
    zone: Zone,
    signature: Signature,
}

/// The function.
pub(super) fn function() -> ScalarUDF {
    function_in(Zone::utc())
}

/// The function in a session of a time zone.
pub(super) fn function_in(zone: Zone) -> ScalarUDF {
    ScalarUDF::from(Series { inner: gen_series_udf(), zone, signature: Signature::user_defined(Volatility::Immutable) })
}

/// The type of the timestamps of a series; `None` for a series of other values.
fn timestamps(given: &[DataType]) -> Option<DataType> {
    let [start, stop, step] = given else { return None };
    if !is_interval(step) && !serac_values::text_types::is_text(step) {
        return None;
    }
    let zone = [start, stop].into_iter().find_map(|bound| match bound {
        DataType::Timestamp(_, zone) => Some(zone.clone()),
        _ => None,
    })?;
    Some(DataType::Timestamp(TimeUnit::Microsecond, zone))
}

fn too_long(most: usize) -> SqlError {
    SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, format!("a series has more than {most} values"))
}

/// Whether a series is one of numbers with digits of their own.
fn is_of_numbers(given: &[DataType]) -> bool {
    matches!(given.len(), 2 | 3) && given.contains(&DataType::LargeBinary)
}

/// A bound of a series of numbers, or its step.
fn bound(numbers: &ArrayRef, row: usize, what: &str) -> Result<Numeric, SqlError> {
    let number = Numeric::of_stored(numbers.as_binary::<i64>().value(row))?;
    match number.finite() {
        Some(_) => Ok(number),
        None if number.is_nan() => {
            Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("{what} cannot be NaN")))
        }
        None => Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("{what} cannot be infinity"))),
    }
}

fn series_of_numbers(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let zero = Numeric::from_integer(0);
    let mut lists = ListBuilder::new(LargeBinaryBuilder::new());
    let mut count = 0;
    for row in 0..args[0].len() {
        if args.iter().any(|argument| argument.is_null(row)) {
            lists.append(false);
            continue;
        }
        let (mut value, last) = (bound(&args[0], row, "start value")?, bound(&args[1], row, "stop value")?);
        let step = match args.get(2) {
            Some(steps) => bound(steps, row, "step size")?,
            None => Numeric::from_integer(1),
        };
        if step == zero {
            return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, "step size cannot equal zero"));
        }
        let is_up = step > zero;
        while if is_up { value <= last } else { value >= last } {
            count += 1;
            if count > MOST_NUMBERS {
                return Err(too_long(MOST_NUMBERS));
            }
            lists.values().append_value(value.to_stored());
            value = value.plus(&step)?;
        }
        lists.append(true);
    }
    Ok(Arc::new(lists.finish()))
}

fn series(args: &[ArrayRef], of: &DataType, zone: &Zone) -> Result<ArrayRef, SqlError> {
    let [start, stop] = [&args[0], &args[1]].map(|bound| bound.as_primitive::<TimestampMicrosecondType>());
    let steps = args[2].as_primitive::<IntervalMonthDayNanoType>();
    let utc: Tz = "+00:00".parse()?;
    let has_zone = !zone.is_utc() && matches!(of, DataType::Timestamp(_, Some(_)));
    let values = TimestampMicrosecondBuilder::new().with_data_type(of.clone());
    let mut lists = ListBuilder::new(values).with_field(Field::new_list_field(of.clone(), true));
    let mut count = 0;
    for row in 0..steps.len() {
        if start.is_null(row) || stop.is_null(row) || steps.is_null(row) {
            lists.append(false);
            continue;
        }
        let (mut value, last, step) = (start.value(row), stop.value(row), steps.value(row));
        for (bound, what) in [(value, "start"), (last, "stop")] {
            if Infinity::of_micros(bound).is_some() {
                let message = format!("{what} value cannot be infinity");
                return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
            }
        }
        let Parts { months, days, micros } = Parts::of(step);
        let length = (i128::from(months) * 30 + i128::from(days)) * 86_400_000_000 + i128::from(micros);
        if length == 0 {
            return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, "step size cannot equal zero"));
        }
        // A series that would take too long is not begun.
        if (i128::from(last) - i128::from(value)) / length > MOST_VALUES as i128 {
            return Err(too_long(MOST_VALUES));
        }
        let is_within = |value| if length > 0 { value <= last } else { value >= last };
        while is_within(value) {
            count += 1;
            if count > MOST_VALUES {
                return Err(too_long(MOST_VALUES));
            }
            lists.values().append_value(value);
            let next = match has_zone {
                true => later(value, Parts::of(step), zone),
                false => TimestampMicrosecondType::add_month_day_nano(value, step, utc),
            };
            value = next.ok_or_else(|| SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "timestamp out of range"))?;
        }
        lists.append(true);
    }
    Ok(Arc::new(lists.finish()))
}

impl ScalarUDFImpl for Series {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        if let Some(of) = timestamps(given) {
            return Ok(vec![of.clone(), of, INTERVAL]);
        }
        if is_of_numbers(given) {
            return Ok(vec![DataType::LargeBinary; given.len()]);
        }
        let fields: Vec<FieldRef> =
            given.iter().map(|t| Arc::new(Field::new("", t.clone(), true)) as FieldRef).collect();
        let fields = fields_with_udf(&fields, self.inner.as_ref())?;
        Ok(fields.iter().map(|field| field.data_type().clone()).collect())
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match timestamps(given) {
            _ if is_of_numbers(given) => Ok(DataType::new_list(DataType::LargeBinary, true)),
            Some(of) => Ok(DataType::new_list(of, true)),
            None => self.inner.return_type(given),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let given: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        if is_of_numbers(&given) {
            let apply = |arrays: &[ArrayRef]| series_of_numbers(arrays).map_err(SqlError::external);
            return make_scalar_function(apply, Vec::new())(&args.args);
        }
        let Some(of) = timestamps(&given) else { return self.inner.invoke_with_args(args) };
        let apply = |arrays: &[ArrayRef]| series(arrays, &of, &self.zone).map_err(SqlError::external);
        make_scalar_function(apply, Vec::new())(&args.args)
    }
}

#[cfg(test)]
mod tests {
    use super::super::times::TIMESTAMP;
    use super::*;

    #[test]
    fn only_timestamps_are_ours() {
        let int = DataType::Int64;
        assert_eq!(timestamps(&[int.clone(), int.clone(), int]), None);
        assert_eq!(timestamps(&[TIMESTAMP, DataType::Date32, INTERVAL]), Some(TIMESTAMP));
    }
}
