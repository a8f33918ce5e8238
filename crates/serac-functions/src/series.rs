//! generate_series (start, stop, step) of timestamps, in microseconds; DataFusion's are of
//! nanoseconds, which hold no other years than 1677 to 2262. Of other types it is DataFusion's.

use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListBuilder, TimestampMicrosecondBuilder};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, IntervalMonthDayNanoType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::functions_nested::range::gen_series_udf;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use serac_values::SqlError;
use serac_values::intervals::{INTERVAL, Parts, is_interval};
use std::sync::Arc;

/// Values of a series at the most.
const MOST_VALUES: usize = 100_000_000;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Series {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

/// The function.
pub(super) fn function() -> ScalarUDF {
    ScalarUDF::from(Series { inner: gen_series_udf(), signature: Signature::user_defined(Volatility::Immutable) })
}

/// The type of the timestamps of a series; none if it is one of others.
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

fn series(args: &[ArrayRef], of: &DataType) -> Result<ArrayRef, SqlError> {
    let [start, stop] = [&args[0], &args[1]].map(|bound| bound.as_primitive::<TimestampMicrosecondType>());
    let steps = args[2].as_primitive::<IntervalMonthDayNanoType>();
    let utc: Tz = "+00:00".parse()?;
    let values = TimestampMicrosecondBuilder::new().with_data_type(of.clone());
    let mut lists = ListBuilder::new(values).with_field(Field::new_list_field(of.clone(), true));
    let mut count = 0;
    for row in 0..steps.len() {
        if start.is_null(row) || stop.is_null(row) || steps.is_null(row) {
            lists.append(false);
            continue;
        }
        let (mut value, last, step) = (start.value(row), stop.value(row), steps.value(row));
        let Parts { months, days, micros } = Parts::of(step);
        let length = (i128::from(months) * 30 + i128::from(days)) * 86_400_000_000 + i128::from(micros);
        if length == 0 {
            return Err(SqlError::new("22023", "step size cannot equal zero"));
        }
        let is_within = |value| if length > 0 { value <= last } else { value >= last };
        while is_within(value) {
            count += 1;
            if count > MOST_VALUES {
                return Err(SqlError::new("54000", format!("a series has more than {MOST_VALUES} values")));
            }
            lists.values().append_value(value);
            let next = TimestampMicrosecondType::add_month_day_nano(value, step, utc);
            value = next.ok_or_else(|| SqlError::new("22008", "timestamp out of range"))?;
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
        let fields: Vec<FieldRef> =
            given.iter().map(|t| Arc::new(Field::new("", t.clone(), true)) as FieldRef).collect();
        let fields = fields_with_udf(&fields, self.inner.as_ref())?;
        Ok(fields.iter().map(|field| field.data_type().clone()).collect())
    }
    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match timestamps(given) {
            Some(of) => Ok(DataType::new_list(of, true)),
            None => self.inner.return_type(given),
        }
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let given: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let Some(of) = timestamps(&given) else { return self.inner.invoke_with_args(args) };
        let apply = |arrays: &[ArrayRef]| series(arrays, &of).map_err(SqlError::external);
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
