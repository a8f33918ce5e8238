//! Columns that come as Arrow from outside: frames, files, parameters, the output of programs. Here
//! they are checked, and get forms in which the database has such values.
//!
//! | from outside | here |
//! |---|---|
//! | `LargeBinary`, which is numbers inside ([`crate::free_numbers`]) | `BinaryView` |
//! | `Duration` | intervals of days and parts of a day |
//! | intervals with parts of a microsecond | intervals of whole microseconds |
//! | dictionaries with a NULL among their words, or of other words than texts; runs | values |
//!
//! Refused are dates and times that do not exist, and texts with a zero byte, as SQL refuses them.

use crate::error::{Result, SqlError};
use crate::text_types::is_text;
use crate::time_range::{check_times, time_out_of_range};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Field, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, Schema, TimeUnit,
};
use std::sync::Arc;

const DAY_MICROS: i128 = 86_400_000_000;

/// A column that came as Arrow.
///
/// # Errors
/// 22008 for dates and times that do not exist, 22021 for texts with a zero byte, 54000 if it is
/// too large.
pub fn given(column: &ArrayRef) -> Result<ArrayRef> {
    Ok(match column.data_type() {
        DataType::LargeBinary => cast(column, &DataType::BinaryView)?,
        DataType::Duration(unit) => durations(column, *unit)?,
        DataType::Interval(IntervalUnit::MonthDayNano) => whole_microseconds(column),
        DataType::RunEndEncoded(_, values) => given(&cast(column, values.data_type())?)?,
        DataType::Dictionary(_, word_type) => {
            let words = column.as_any_dictionary().values();
            // Arrow's cast of a dictionary to views does not see a NULL among the words. A word
            // that is refused may be one that no row has.
            if is_text(word_type) && words.null_count() == 0 && check_texts(words).is_ok() {
                return Ok(column.clone());
            }
            given(&cast(column, word_type)?)?
        }
        _ => {
            check_times(column)?;
            check_texts(column)?;
            column.clone()
        }
    })
}

/// A batch whose columns came as Arrow ([`given`]).
///
/// # Errors
/// As there.
pub fn given_batch(batch: RecordBatch) -> Result<RecordBatch> {
    let columns = batch.columns().iter().map(given).collect::<Result<Vec<_>>>()?;
    let schema = batch.schema();
    let fields = schema.fields().iter().zip(&columns);
    let field = |(field, column): (&Arc<Field>, &ArrayRef)| match field.data_type() == column.data_type() {
        true => field.clone(),
        false => Arc::new(field.as_ref().clone().with_data_type(column.data_type().clone())),
    };
    let schema = Schema::new_with_metadata(fields.map(field).collect::<Vec<_>>(), schema.metadata().clone());
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.into(), columns, &options)?)
}

/// Counts of a unit as intervals.
fn durations(column: &ArrayRef, unit: TimeUnit) -> Result<ArrayRef> {
    let counts = cast(column, &DataType::Int64)?;
    let (factor, divisor) = match unit {
        TimeUnit::Second => (1_000_000, 1),
        TimeUnit::Millisecond => (1_000, 1),
        TimeUnit::Microsecond => (1, 1),
        TimeUnit::Nanosecond => (1, 1_000),
    };
    let interval = |count: i64| {
        let micros = i128::from(count) * factor / divisor;
        let days = i32::try_from(micros.div_euclid(DAY_MICROS)).map_err(|_| time_out_of_range("interval"))?;
        Ok::<_, SqlError>(IntervalMonthDayNano::new(0, days, micros.rem_euclid(DAY_MICROS) as i64 * 1_000))
    };
    let intervals = counts.as_primitive::<Int64Type>().try_unary::<_, IntervalMonthDayNanoType, _>(interval)?;
    Ok(Arc::new(intervals))
}

fn whole_microseconds(column: &ArrayRef) -> ArrayRef {
    let intervals = column.as_primitive::<IntervalMonthDayNanoType>();
    if intervals.values().iter().all(|interval| interval.nanoseconds % 1_000 == 0) {
        return column.clone();
    }
    let whole = |interval: IntervalMonthDayNano| IntervalMonthDayNano {
        nanoseconds: interval.nanoseconds / 1_000 * 1_000,
        ..interval
    };
    Arc::new(intervals.unary::<_, IntervalMonthDayNanoType>(whole))
}

/// Refuses texts with a zero byte, which no text of SQL has.
fn check_texts(column: &ArrayRef) -> Result<()> {
    let has_zero = match column.data_type() {
        DataType::Utf8 => {
            let texts = column.as_string::<i32>();
            bytes_between(texts.value_data(), texts.value_offsets()).contains(&0)
        }
        DataType::LargeUtf8 => {
            let texts = column.as_string::<i64>();
            bytes_between(texts.value_data(), texts.value_offsets()).contains(&0)
        }
        DataType::Utf8View => column.as_string_view().iter().flatten().any(|text| text.as_bytes().contains(&0)),
        _ => false,
    };
    if has_zero {
        let message = "invalid byte sequence for encoding \"UTF8\": 0x00";
        return Err(SqlError::new(sqlstate::CHARACTER_NOT_IN_REPERTOIRE, message));
    }
    Ok(())
}

/// The bytes of all values, those behind NULLs among them.
fn bytes_between<'a, O: Copy + TryInto<usize>>(bytes: &'a [u8], offsets: &[O]) -> &'a [u8] {
    let at = |offset: Option<&O>| offset.and_then(|&offset| offset.try_into().ok()).unwrap_or(0);
    &bytes[at(offsets.first())..at(offsets.last())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{
        Date32Array, DictionaryArray, DurationNanosecondArray, DurationSecondArray, Int8Array, Int32Array,
        IntervalMonthDayNanoArray, LargeStringArray, RunArray, StringArray, StringViewArray, Time64MicrosecondArray,
    };
    use datafusion::arrow::datatypes::Int32Type;

    fn refused(column: ArrayRef) -> &'static str {
        given(&column).unwrap_err().sqlstate
    }

    fn intervals(column: ArrayRef) -> Vec<Option<(i32, i32, i64)>> {
        let given = given(&column).unwrap();
        let parts = |interval: IntervalMonthDayNano| (interval.months, interval.days, interval.nanoseconds);
        given.as_primitive::<IntervalMonthDayNanoType>().iter().map(|interval| interval.map(parts)).collect()
    }

    #[test]
    fn durations_are_intervals_of_days_and_parts_of_a_day() {
        let seconds = DurationSecondArray::from(vec![Some(86_401), Some(-1), None]);
        let expected = [Some((0, 1, 1_000_000_000)), Some((0, -1, 86_399_000_000_000)), None];
        assert_eq!(intervals(Arc::new(seconds)), expected);
        let nanoseconds = DurationNanosecondArray::from(vec![1_999, -1_999, i64::MAX]);
        let expected = [(0, 0, 1_000), (0, -1, 86_399_999_999_000), (0, 106_751, 85_636_854_775_000)];
        assert_eq!(intervals(Arc::new(nanoseconds)), expected.map(Some));
        assert_eq!(refused(Arc::new(DurationSecondArray::from(vec![i64::MAX]))), sqlstate::DATETIME_FIELD_OVERFLOW);
    }

    #[test]
    fn parts_of_a_microsecond_are_cut() {
        let intervals_given = vec![IntervalMonthDayNano::new(1, 2, 3_999), IntervalMonthDayNano::new(0, 0, -1)];
        let expected = [Some((1, 2, 3_000)), Some((0, 0, 0))];
        assert_eq!(intervals(Arc::new(IntervalMonthDayNanoArray::from(intervals_given))), expected);
    }

    #[test]
    fn a_null_among_the_words_of_a_dictionary_is_null() {
        let words: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
        let column: ArrayRef = Arc::new(DictionaryArray::new(Int8Array::from(vec![Some(0), Some(1), None]), words));
        let values = crate::assignment::assign(&given(&column).unwrap(), serac_storage::ColumnType::Utf8.into(), "c");
        assert_eq!(values.unwrap().as_string_view().iter().collect::<Vec<_>>(), [Some("a"), None, None]);
    }

    #[test]
    fn runs_are_values() {
        let values = StringArray::from(vec![Some("a"), None]);
        let column: ArrayRef =
            Arc::new(RunArray::<Int32Type>::try_new(&Int32Array::from(vec![2, 3]), &values).unwrap());
        let values = given(&column).unwrap();
        assert_eq!(values.as_string::<i32>().iter().collect::<Vec<_>>(), [Some("a"), Some("a"), None]);
    }

    #[test]
    fn what_sql_refuses_is_refused() {
        let zero = "a\0";
        let words: ArrayRef = Arc::new(StringArray::from(vec!["a", zero]));
        let used = DictionaryArray::new(Int8Array::from(vec![1]), words.clone());
        for column in [
            Arc::new(StringArray::from(vec![zero])) as ArrayRef,
            Arc::new(LargeStringArray::from(vec![zero])),
            Arc::new(StringViewArray::from(vec![zero])),
            Arc::new(used),
        ] {
            assert_eq!(refused(column), sqlstate::CHARACTER_NOT_IN_REPERTOIRE);
        }
        // Neither a word that no row has, nor what a slice leaves out.
        let unused: ArrayRef = Arc::new(DictionaryArray::new(Int8Array::from(vec![0]), words.clone()));
        assert_eq!(given(&unused).unwrap().as_string::<i32>().value(0), "a");
        assert!(given(&words.slice(0, 1)).is_ok());
        for column in [
            Arc::new(Date32Array::from(vec![i32::MAX - 1])) as ArrayRef,
            Arc::new(Time64MicrosecondArray::from(vec![-1])),
            Arc::new(Time64MicrosecondArray::from(vec![86_400_000_000])),
        ] {
            assert_eq!(refused(column), sqlstate::DATETIME_FIELD_OVERFLOW);
        }
    }
}
