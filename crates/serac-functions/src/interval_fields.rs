//! Intervals of a type with fields, as in `INTERVAL HOUR TO MINUTE`, or with a number of digits of
//! a second.

use super::definition::{Definition, Types};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, IntervalMonthDayNanoArray};
use datafusion::arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNano};
use serac_values::SqlError;
use serac_values::intervals::{INTERVAL, Parts, intervals, is_interval};
use serac_values::text_types::is_text_or_null;
use serac_values::texts_as_intervals::{Fields, parse_styled, rounded};
use serac_values::time_style::IntervalStyle;
use std::sync::Arc;

/// Texts or intervals converted to a type with fields, or with a number of digits, or both.
fn modified(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    modified_styled(args, IntervalStyle::Postgres)
}

/// The same where texts are read in a style.
pub(super) fn modified_styled(args: &[ArrayRef], style: IntervalStyle) -> Result<ArrayRef, SqlError> {
    let (names, digits) = (args[1].as_string_view(), args[2].as_primitive::<Int64Type>());
    let one = |row: usize| -> Result<Option<IntervalMonthDayNano>, SqlError> {
        if args[0].is_null(row) {
            return Ok(None);
        }
        let fields = if names.is_valid(row) { Fields::of(names.value(row)) } else { None };
        let parts = match args[0].as_string_view_opt() {
            Some(texts) => parse_styled(texts.value(row), fields, style)?,
            None => Parts::of(intervals(&args[0]).value(row)),
        };
        let parts = fields.map_or(parts, |fields| fields.cut(parts));
        let parts = if digits.is_valid(row) { rounded(parts, digits.value(row))? } else { parts };
        Ok(Some(parts.interval()?))
    };
    let all = (0..args[0].len()).map(one).collect::<Result<IntervalMonthDayNanoArray, SqlError>>()?;
    Ok(Arc::new(all))
}

/// The types for an operand of this modified type.
fn modified_types(given: &[DataType]) -> Option<Types> {
    let [value, _, _] = given else { return None };
    let value = match value {
        value if is_interval(value) => INTERVAL,
        value if is_text_or_null(value) => DataType::Utf8View,
        DataType::Time64(_) => INTERVAL,
        _ => return None,
    };
    Some((vec![value, DataType::Utf8View, DataType::Int64], INTERVAL))
}

/// The function's name.
const MODIFIED: &str = "interval_modified";

pub(super) const DEFINITIONS: &[Definition] = &[Definition { name: MODIFIED, types: modified_types, body: modified }];
