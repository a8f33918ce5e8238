//! Values as a table's columns keep them: lengths checked, without CHAR's trailing blanks, times
//! rounded, JSONB in its normal form, JSON and numbers checked.
//!
//! Batches go through [`Table::fit`], single values through [`Table::fit_value`]. CHECK constraints
//! are SQL and the business of the callers.

use crate::catalog::definition::{ColumnDefinition, SqlType};
use crate::error::{EngineError, Result};
use crate::infinity::Infinity;
use crate::json::{normal_documents, normalized};
use crate::json_text::{check, check_documents};
use crate::table::Table;
use crate::values::value_at;
use arrow_array::cast::AsArray;
use arrow_array::types::{IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, RecordBatch, StringViewArray};
use arrow_buffer::IntervalMonthDayNano;
use arrow_schema::{DataType, IntervalUnit, TimeUnit};
use serac_numeric::Numeric;
use serac_storage::{ColumnType, StorageError, Value};
use std::borrow::Cow;
use std::sync::Arc;

impl Table {
    /// The batch, whose columns are `columns` of the table, as the table keeps it: what
    /// [`fit_values`](Self::fit_values) gives, NOT NULL checked.
    ///
    /// # Errors
    /// As there, and [`EngineError::NotNull`].
    pub fn fit(&self, columns: &[usize], batch: &RecordBatch) -> Result<RecordBatch> {
        let batch = self.fit_values(columns, batch)?;
        self.check_not_null(columns, &batch)?;
        Ok(batch)
    }

    /// Checks NOT NULL on a batch whose columns are `columns` of the table.
    ///
    /// # Errors
    /// [`EngineError::NotNull`], of the first row and its first column that has a NULL; with the
    /// row, if `columns` are all of the table's.
    pub fn check_not_null(&self, columns: &[usize], batch: &RecordBatch) -> Result<()> {
        let Some((row, column)) = self.first_null(columns, batch) else { return Ok(()) };
        let all = &self.definition.columns;
        let error = self.null_in(&all[column].name);
        if !columns.iter().copied().eq(0..all.len()) {
            return Err(error);
        }
        Err(error.of_row(self, &self.values_of(columns, batch, row)))
    }

    /// A row of a batch that has all columns of the table.
    pub fn row_of<'b>(&self, batch: &'b RecordBatch, row: usize) -> Vec<Value<'b>> {
        row_of(&self.definition.columns, batch, row)
    }

    /// A row of a batch whose columns are `columns` of the table.
    pub(super) fn values_of<'b>(&self, columns: &[usize], batch: &'b RecordBatch, row: usize) -> Vec<Value<'b>> {
        row_of(columns.iter().map(|&column| &self.definition.columns[column]), batch, row)
    }

    /// The first row in which a column is NULL that must not be, and the first such column of it.
    pub(super) fn first_null(&self, columns: &[usize], batch: &RecordBatch) -> Option<(usize, usize)> {
        let missing = |(array, &column): (&ArrayRef, &usize)| {
            let is_wrong = !self.definition.columns[column].nullable && array.null_count() > 0;
            let row = is_wrong.then(|| (0..array.len()).find(|&row| array.is_null(row))).flatten()?;
            Some((row, column))
        };
        batch.columns().iter().zip(columns).filter_map(missing).min()
    }

    /// The batch, whose columns are `columns` of the table, as the table keeps values: lengths
    /// checked, without CHAR's trailing blanks, times rounded, JSONB in its normal form, JSON and
    /// numbers checked.
    ///
    /// # Errors
    /// [`EngineError::TooLong`], [`EngineError::InvalidJson`], [`StorageError::InvalidInput`] for
    /// bytes that are no number.
    pub fn fit_values(&self, columns: &[usize], batch: &RecordBatch) -> Result<RecordBatch> {
        let mut arrays: Vec<ArrayRef> = batch.columns().to_vec();
        for (array, &column) in arrays.iter_mut().zip(columns) {
            *array = self.definition.columns[column].sql_type.kept_values(array)?;
        }
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(batch.schema(), arrays, &options)
            .map_err(serac_storage::StorageError::from)?)
    }

    /// Converts the value to the form that the column (by position) keeps: NOT NULL, type and
    /// length checked, without CHAR's trailing blanks. JSON must be in its normal form
    /// ([`normalized`]).
    ///
    /// # Errors
    /// [`EngineError::NotNull`], [`EngineError::TooLong`], [`EngineError::InvalidJson`], and the
    /// error of a value of another type.
    pub fn fit_value(&self, column: usize, value: &mut Value<'_>) -> Result<()> {
        fit_value(self, &self.definition.columns[column], value)
    }
}

impl SqlType {
    /// The values as a column of this type keeps them: lengths checked, without CHAR's trailing
    /// blanks, times rounded, JSONB in its normal form, JSON and numbers checked.
    ///
    /// # Errors
    /// [`EngineError::TooLong`], [`EngineError::InvalidJson`], [`StorageError::InvalidInput`] for
    /// bytes that are no number.
    pub fn kept_values(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let fitted = if self.length.is_some() { self.fit(array)? } else { array.clone() };
        match self.column_type {
            ColumnType::Json => return Ok(normal_documents(&fitted)?),
            ColumnType::JsonText => check_documents(&fitted)?,
            ColumnType::Numeric => check_numbers(&fitted)?,
            _ => {}
        }
        Ok(fitted)
    }

    /// The part of a text that a column of this type keeps. A CHAR(n) loses trailing blanks, a
    /// VARCHAR the blanks beyond its length, and a NAME all but its first 63 bytes.
    ///
    /// # Errors
    /// [`EngineError::TooLong`].
    pub(crate) fn kept<'t>(&self, text: &'t str) -> Result<&'t str> {
        let Some(limit) = self.length else { return Ok(text) };
        if *self == Self::NAME {
            return Ok(&text[..text.floor_char_boundary(limit as usize)]);
        }
        let text = if self.fixed_length { text.trim_end_matches(' ') } else { text };
        if text.len() <= limit as usize {
            return Ok(text);
        }
        match text.char_indices().nth(limit as usize) {
            None => Ok(text),
            Some((end, _)) if text[end..].bytes().all(|byte| byte == b' ') => Ok(&text[..end]),
            Some(_) => Err(EngineError::TooLong { sql_type: self.to_string() }),
        }
    }

    /// A time in microseconds, rounded to the digits of a second that a column of this type keeps.
    /// A time halfway between two is rounded away from 2000, or from midnight. `None` if it is no
    /// time of a day any more.
    pub(crate) fn rounded(&self, micros: i64) -> Option<i64> {
        /// Microseconds from 1970 to 2000.
        const YEAR_2000: i64 = 946_684_800_000_000;
        let Some(digits) = self.length.filter(|digits| *digits < 6) else { return Some(micros) };
        let (from, end) = match self.column_type {
            ColumnType::Time => (0, 86_400_000_000),
            ColumnType::Timestamp { .. } if Infinity::of_micros(micros).is_some() => return Some(micros),
            ColumnType::Timestamp { .. } => (YEAR_2000, i64::MAX),
            _ => return Some(micros),
        };
        let unit = 10_i64.pow(6 - digits);
        let distance = micros.saturating_sub(from);
        let nearest = distance.saturating_add(unit / 2 * distance.signum()) / unit * unit + from;
        (nearest < end).then_some(nearest)
    }

    /// An interval, as it is stored, with its time rounded to the digits of a second that a column
    /// of this type keeps, away from zero.
    pub(crate) fn rounded_interval(&self, bits: i128) -> i128 {
        let Some(digits) = self.length.filter(|digits| *digits < 9) else { return bits };
        let (nanos, unit) = ((bits >> 64) as i64, 10_i64.pow(9 - digits));
        let nearest = nanos.saturating_add(unit / 2 * nanos.signum()) / unit * unit;
        i128::from(nearest) << 64 | bits & i128::from(u64::MAX)
    }

    /// Values as a column of this type keeps them: lengths checked, without CHAR's trailing blanks,
    /// times rounded.
    ///
    /// # Errors
    /// [`EngineError::TooLong`].
    pub fn fit(&self, array: &ArrayRef) -> Result<ArrayRef> {
        if self.length.is_none() {
            return Ok(array.clone());
        }
        if let ColumnType::Time | ColumnType::Timestamp { .. } | ColumnType::Interval = self.column_type {
            return self.rounded_array(array);
        }
        let Some(strings) = array.as_string_view_opt() else { return Ok(array.clone()) };
        let mut is_kept = true;
        for text in strings.iter().flatten() {
            is_kept &= self.kept(text)?.len() == text.len();
        }
        if is_kept {
            return Ok(array.clone());
        }
        let kept = strings.iter().map(|text| text.map(|text| self.kept(text)).transpose());
        Ok(Arc::new(kept.collect::<Result<StringViewArray>>()?))
    }

    /// Times with the digits that the column keeps.
    fn rounded_array(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let of_one = |micros| {
            let rounded = self.rounded(micros);
            rounded.ok_or_else(|| EngineError::TooLong { sql_type: self.to_string() })
        };
        Ok(match array.data_type() {
            DataType::Time64(TimeUnit::Microsecond) => {
                let times = array.as_primitive::<Time64MicrosecondType>();
                Arc::new(times.try_unary::<_, Time64MicrosecondType, EngineError>(of_one)?)
            }
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                let times = array.as_primitive::<TimestampMicrosecondType>();
                let times = times.try_unary::<_, TimestampMicrosecondType, EngineError>(of_one)?;
                Arc::new(times.with_timezone_opt(zone.clone()))
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                let of_one = |interval: IntervalMonthDayNano| {
                    let bits = self.rounded_interval(i128::from(interval.nanoseconds) << 64);
                    IntervalMonthDayNano::new(interval.months, interval.days, (bits >> 64) as i64)
                };
                let intervals = array.as_primitive::<IntervalMonthDayNanoType>();
                Arc::new(intervals.unary::<_, IntervalMonthDayNanoType>(of_one))
            }
            // Another type is refused where it is written.
            _ => array.clone(),
        })
    }
}

/// A row of a batch with these columns.
fn row_of<'b, 'c>(
    columns: impl IntoIterator<Item = &'c ColumnDefinition>,
    batch: &'b RecordBatch,
    row: usize,
) -> Vec<Value<'b>> {
    let columns = batch.columns().iter().zip(columns);
    columns.map(|(array, column)| value_at(array, row, column.sql_type.column_type)).collect()
}

/// Checks numbers in their stored form (LargeBinary); arrays of other types are refused where they
/// are written.
///
/// # Errors
/// [`StorageError::InvalidInput`].
fn check_numbers(array: &ArrayRef) -> Result<()> {
    let Some(numbers) = array.as_binary_opt::<i64>() else { return Ok(()) };
    numbers.iter().flatten().try_for_each(check_number)
}

/// Checks a number in its stored form.
///
/// # Errors
/// [`StorageError::InvalidInput`].
fn check_number(stored: &[u8]) -> Result<()> {
    let number = Numeric::of_stored(stored);
    number.map(drop).map_err(|error| StorageError::InvalidInput(error.to_string()).into())
}

/// See [`Table::fit_value`]. In place, because a value that is handed on goes through memory.
fn fit_value(table: &Table, column: &ColumnDefinition, value: &mut Value<'_>) -> Result<()> {
    if value.is_null() && !column.nullable {
        return Err(table.null_in(&column.name));
    }
    if !column.sql_type.column_type.accepts(value) {
        return Err(StorageError::InvalidInput(format!(
            "{value:?} is no value of column \"{}\" of type {}",
            column.name, column.sql_type
        ))
        .into());
    }
    if let Value::Int64(micros) = value {
        let rounded = column.sql_type.rounded(*micros);
        *micros = rounded.ok_or_else(|| EngineError::TooLong { sql_type: column.sql_type.to_string() })?;
        return Ok(());
    }
    if let (Value::Int128(bits), ColumnType::Interval) = (&mut *value, column.sql_type.column_type) {
        *bits = column.sql_type.rounded_interval(*bits);
        return Ok(());
    }
    let Value::Bytes(bytes) = value else { return Ok(()) };
    if column.sql_type.column_type == ColumnType::Json
        && let Cow::Owned(normal) = normalized(std::str::from_utf8(bytes).expect("checked above"))?
    {
        let message = format!("the document of column \"{}\" is not in normal form: {normal}", column.name);
        return Err(StorageError::InvalidInput(message).into());
    }
    if column.sql_type.column_type == ColumnType::Numeric {
        return check_number(bytes);
    }
    if column.sql_type.column_type == ColumnType::JsonText {
        check(std::str::from_utf8(bytes).expect("checked above"))?;
    }
    let Some(limit) = column.sql_type.length else { return Ok(()) };
    if column.sql_type.fixed_length || bytes.len() > limit as usize {
        let text = std::str::from_utf8(bytes).expect("checked above");
        *bytes = column.sql_type.kept(text)?.as_bytes();
    }
    Ok(())
}

/// The values, checked against their columns.
pub(super) fn check_values<'v, 'r>(
    table: &Table,
    columns: impl Iterator<Item = &'r ColumnDefinition>,
    values: &'v [Value<'v>],
) -> Result<Cow<'v, [Value<'v>]>> {
    let mut checked = Cow::Borrowed(values);
    let mut count = 0;
    for (i, column) in columns.enumerate() {
        count += 1;
        let Some(&value) = values.get(i) else { continue };
        let mut kept = value;
        fit_value(table, column, &mut kept)?;
        let is_changed = match (kept, value) {
            (Value::Bytes(kept), Value::Bytes(given)) => kept.len() < given.len(),
            (Value::Int64(kept), Value::Int64(given)) => kept != given,
            _ => false,
        };
        if is_changed {
            checked.to_mut()[i] = kept;
        }
    }
    if values.len() != count {
        return Err(StorageError::InvalidInput(format!(
            "{count} values are needed for table \"{}\", but {} were given",
            table.name(),
            values.len()
        ))
        .into());
    }
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_to_their_columns() {
        let of = |length, fixed_length| SqlType { length, fixed_length, ..ColumnType::Utf8.into() };
        let kept = |of: SqlType, text: &'static str| of.kept(text).ok();
        assert_eq!(kept(SqlType::NAME, "abc  "), Some("abc  "));
        let long: &'static str = "äöü".repeat(20).leak();
        assert_eq!(kept(SqlType::NAME, long), Some(&long[..62]));
        assert_eq!(kept(of(Some(3), false), "äb   "), Some("äb "));
        assert_eq!((kept(of(Some(3), false), "äbc d"), kept(of(Some(3), true), "abcd")), (None, None));
        assert_eq!((kept(of(Some(3), true), "a     "), kept(of(None, true), "a b  ")), (Some("a"), Some("a b  ")));
        assert_eq!(kept(of(None, false), "a  "), Some("a  "));
    }
}
