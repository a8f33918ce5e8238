//! The result of a statement: rows one by one, or as a stream of Arrow.
//!
//! A row's values are read from the batch in which they came: its columns are converted once, to
//! the types that clients of PostgreSQL know.

use crate::error::{SeracError, c_text, change, guarded, place, quietly};
use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use embedded::engine::values::{display, value_at};
use embedded::{ColumnType, SqlError, Value, wire};
use serac_connection::{Outcome, RowReader};
use std::ffi::{CString, c_char};
use std::ptr::null;

/// The result of a statement.
#[derive(Debug)]
pub struct SeracResult {
    changed: u64,
    /// The names of the columns.
    names: Vec<CString>,
    schema: Option<SchemaRef>,
    /// The rows that are left; `None` without rows, or when they were taken as a stream.
    rows: Option<RowReader>,
    batch: Option<Batch>,
    /// The texts of the row that were asked for, each with a zero byte at its end.
    texts: Vec<Option<Vec<u8>>>,
}

/// The batch of the present row.
#[derive(Debug)]
struct Batch {
    columns: Vec<(ArrayRef, ColumnType)>,
    rows: usize,
    at: usize,
}

impl SeracResult {
    fn new(outcome: Outcome) -> Self {
        let (changed, rows) = match outcome {
            Outcome::Changed(changed) => (changed.unwrap_or(0), None),
            Outcome::Rows(rows) => (0, Some(RowReader::new(rows))),
        };
        let schema = rows.as_ref().map(|rows| rows.stored_schema().clone());
        let names = schema.iter().flat_map(|schema| schema.fields()).map(|field| c_text(field.name())).collect();
        Self { changed, names, schema, rows, batch: None, texts: Vec::new() }
    }

    /// Moves to the next row. Returns whether there is one.
    fn next(&mut self) -> Result<bool, SqlError> {
        self.texts.clear();
        if let Some(batch) = &mut self.batch {
            batch.at += 1;
            if batch.at < batch.rows {
                return Ok(true);
            }
        }
        self.batch = None;
        let Some(rows) = &mut self.rows else { return Ok(false) };
        while let Some(batch) = rows.next_stored()? {
            if batch.num_rows() > 0 {
                let column = |array: &ArrayRef| Ok((wire::to_wire(array)?, wire::wire_type(array.data_type())));
                let columns = batch.columns().iter().map(column).collect::<Result<Vec<_>, SqlError>>()?;
                self.batch = Some(Batch { columns, rows: batch.num_rows(), at: 0 });
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The value of a column of the present row; `None` if there is none.
    fn value(&self, column: usize) -> Option<(Value<'_>, ColumnType)> {
        let batch = self.batch.as_ref()?;
        let (array, column_type) = batch.columns.get(column)?;
        Some((value_at(array, batch.at, *column_type), *column_type))
    }

    /// The value of a column as PostgreSQL writes it, with a zero byte at its end.
    fn text(&mut self, column: usize) -> Option<&[u8]> {
        let width = self.batch.as_ref()?.columns.len();
        self.texts.resize(width, None);
        if self.texts.get(column)?.is_none() {
            let (value, column_type) = self.value(column).filter(|(value, _)| !value.is_null())?;
            let mut text = display(&value, column_type).into_bytes();
            text.push(0);
            self.texts[column] = Some(text);
        }
        self.texts[column].as_deref()
    }
}

/// Gives a result to the caller who wants it.
///
/// # Safety
/// The rule of pointers.
pub unsafe fn give(result: *mut *mut SeracResult) -> impl FnOnce(Outcome) {
    // SAFETY: as said.
    let place = unsafe { place(result, "result") }.ok();
    move |outcome| {
        if let Some(place) = place {
            *place = Box::into_raw(Box::new(SeracResult::new(outcome)));
        }
    }
}

/// The rows that a statement without rows has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_result_changed(result: *const SeracResult) -> u64 {
    // SAFETY: the rule of pointers.
    unsafe { result.as_ref() }.map_or(0, |result| result.changed)
}

/// Whether the statement gives rows. There may be none of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_result_has_rows(result: *const SeracResult) -> bool {
    // SAFETY: the rule of pointers.
    unsafe { result.as_ref() }.is_some_and(|result| result.schema.is_some())
}

/// The number of columns; 0 without rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_result_column_count(result: *const SeracResult) -> usize {
    // SAFETY: the rule of pointers.
    unsafe { result.as_ref() }.map_or(0, |result| result.names.len())
}

/// The name of a column, from 0; NULL if there is no such column.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_result_column_name(result: *const SeracResult, column: usize) -> *const c_char {
    // SAFETY: the rule of pointers.
    unsafe { result.as_ref() }.and_then(|result| result.names.get(column)).map_or(null(), |name| name.as_ptr())
}

/// Takes all rows that are left as a stream of Arrow. The stream belongs to the caller, and stays
/// when the result is closed. Rows that have not come when the connection is closed are an error.
/// The values of NUMERIC without digits are texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_result_stream(
    result: *mut SeracResult,
    stream: *mut FFI_ArrowArrayStream,
) -> *mut SeracError {
    guarded(|| {
        // SAFETY: the rule of pointers.
        let result = unsafe { change(result, "result")? };
        if stream.is_null() {
            return Err(SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, "stream is NULL"));
        }
        let none = || {
            let message = "the statement gives no rows, or they were taken";
            SqlError::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        };
        if result.batch.is_some() {
            let message = "rows of the result have been read one by one: read the rest so, too";
            return Err(SqlError::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        let rows = result.rows.take().ok_or_else(none)?;
        // SAFETY: the rule of pointers. The place is written, and not read.
        unsafe { stream.write(FFI_ArrowArrayStream::new(Box::new(rows))) };
        Ok(())
    })
}

/// Moves to the next row, at first to the first one. `has_row` tells whether there is one. The
/// values of the row before, and their texts, end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_result_next(result: *mut SeracResult, has_row: *mut bool) -> *mut SeracError {
    guarded(|| {
        // SAFETY: the rule of pointers.
        let result = unsafe { change(result, "result")? };
        if has_row.is_null() {
            return Err(SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, "has_row is NULL"));
        }
        // SAFETY: the rule of pointers. The place is written, and not read.
        unsafe { has_row.write(false) };
        let has = result.next()?;
        // SAFETY: the same.
        unsafe { has_row.write(has) };
        Ok(())
    })
}

/// Whether the value of a column, from 0, is NULL in the present row; true where there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_result_is_null(result: *const SeracResult, column: usize) -> bool {
    // SAFETY: the rule of pointers.
    let result = unsafe { result.as_ref() };
    let value = || result.and_then(|result| result.value(column));
    quietly(true, || value().is_none_or(|(value, _)| value.is_null()))
}

/// The value of a column, from 0, as an integer: that of integers and truth values, days since
/// 1970-01-01 of a date, microseconds of times; 0 for others.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_result_int64(result: *const SeracResult, column: usize) -> i64 {
    // SAFETY: the rule of pointers.
    let result = unsafe { result.as_ref() };
    quietly(0, || match result.and_then(|result| result.value(column)) {
        Some((_, ColumnType::Decimal { .. })) | None => 0,
        Some((Value::Bool(truth), _)) => truth.into(),
        Some((value, _)) => value.integer().unwrap_or(0),
    })
}

/// The value of a column, from 0, as a floating-point number: that of numbers; 0 for others.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_result_double(result: *mut SeracResult, column: usize) -> f64 {
    // SAFETY: the rule of pointers.
    let result = unsafe { result.as_mut() };
    quietly(0.0, || {
        let Some(result) = result else { return 0.0 };
        match result.value(column) {
            Some((Value::Float64(float), _)) => float,
            Some((Value::Float32(float), _)) => float.into(),
            Some((_, ColumnType::Decimal { .. } | ColumnType::Numeric)) => {
                let text = result.text(column).and_then(|text| std::str::from_utf8(&text[..text.len() - 1]).ok());
                text.and_then(|text| text.parse().ok()).unwrap_or(0.0)
            }
            Some((Value::Int16(integer), ColumnType::Int16)) => integer.into(),
            Some((Value::Int32(integer), ColumnType::Int32)) => integer.into(),
            Some((Value::Int64(integer), ColumnType::Int64)) => integer as f64,
            _ => 0.0,
        }
    })
}

/// The value of a column, from 0, as SQL writes it, whatever its type is; NULL for NULL, and where
/// there is none. `length`, which may be NULL, gets its bytes without the zero byte at the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_result_text(
    result: *mut SeracResult,
    column: usize,
    length: *mut usize,
) -> *const c_char {
    // SAFETY: the rule of pointers.
    let result = unsafe { result.as_mut() };
    let text = quietly(None, || result.and_then(|result| result.text(column)));
    if !length.is_null() {
        // SAFETY: the rule of pointers.
        unsafe { length.write(text.map_or(0, |text| text.len() - 1)) };
    }
    text.map_or(null(), |text| text.as_ptr().cast())
}

/// The bytes of a column of BYTEA or of texts, from 0; NULL for NULL, and for other types. `length`
/// gets their number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_result_bytes(
    result: *const SeracResult,
    column: usize,
    length: *mut usize,
) -> *const u8 {
    // SAFETY: the rule of pointers.
    let result = unsafe { result.as_ref() };
    let bytes = quietly(None, || match result.and_then(|result| result.value(column)) {
        Some((_, ColumnType::Numeric)) => None,
        Some((Value::Bytes(bytes), _)) => Some(bytes),
        _ => None,
    });
    if !length.is_null() {
        // SAFETY: the rule of pointers.
        unsafe { length.write(bytes.map_or(0, <[u8]>::len)) };
    }
    bytes.map_or(null(), <[u8]>::as_ptr)
}

/// Closes a result. A query of which rows are left ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_result_close(result: *mut SeracResult) {
    if !result.is_null() {
        // SAFETY: the rule of pointers: it was made by `give`, and is given back once.
        quietly((), || drop(unsafe { Box::from_raw(result) }));
    }
}
