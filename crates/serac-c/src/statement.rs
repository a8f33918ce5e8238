//! Prepared statements.

use crate::database::SeracConnection;
use crate::error::{SeracError, change, guarded, look, not_utf8, place, text};
use crate::result::{SeracResult, give};
use embedded::{ScalarValue, SqlError};
use serac_connection::Statement;
use std::ffi::c_char;

/// A prepared statement, with the values of its parameters.
#[derive(Debug)]
pub struct SeracStatement {
    statement: Statement,
    parameters: Vec<ScalarValue>,
}

/// Prepares one statement. Its parameters are written `$1`, `?` or `:name`. On keys it runs without
/// planning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_prepare(
    connection: *const SeracConnection,
    sql: *const c_char,
    statement: *mut *mut SeracStatement,
) -> *mut SeracError {
    guarded(|| {
        // SAFETY: the rule of pointers.
        let (place, connection, sql) =
            unsafe { (place(statement, "statement")?, look(connection, "connection")?, text(sql, "sql")?) };
        let statement = Statement::new(&connection.0, sql)?;
        let parameters = vec![ScalarValue::Null; statement.parameter_count()?];
        *place = Box::into_raw(Box::new(SeracStatement { statement, parameters }));
        Ok(())
    })
}

/// The number of a statement's parameters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_statement_parameter_count(statement: *const SeracStatement) -> usize {
    // SAFETY: the rule of pointers.
    unsafe { statement.as_ref() }.map_or(0, |statement| statement.parameters.len())
}

/// Gives a parameter its value.
unsafe fn bind(
    statement: *mut SeracStatement,
    parameter: usize,
    value: impl FnOnce() -> Result<ScalarValue, SqlError>,
) -> *mut SeracError {
    guarded(|| {
        // SAFETY: the rule of pointers.
        let statement = unsafe { change(statement, "statement")? };
        let place = parameter.checked_sub(1).and_then(|at| statement.parameters.get_mut(at));
        let none = || SqlError::new(sqlstate::UNDEFINED_PARAMETER, format!("there is no parameter ${parameter}"));
        *place.ok_or_else(none)? = value()?;
        Ok(())
    })
}

/// Binds NULL to a parameter, from 1. Before its first value a parameter is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_bind_null(statement: *mut SeracStatement, parameter: usize) -> *mut SeracError {
    // SAFETY: the rule of pointers.
    unsafe { bind(statement, parameter, || Ok(ScalarValue::Null)) }
}

/// Binds a truth value to a parameter, from 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_bind_bool(
    statement: *mut SeracStatement,
    parameter: usize,
    value: bool,
) -> *mut SeracError {
    // SAFETY: the rule of pointers.
    unsafe { bind(statement, parameter, || Ok(ScalarValue::Boolean(Some(value)))) }
}

/// Binds an integer to a parameter, from 1. As a constant in a text it is of type INTEGER if it has
/// room there, and of type BIGINT if not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_bind_int64(
    statement: *mut SeracStatement,
    parameter: usize,
    value: i64,
) -> *mut SeracError {
    let scalar = match i32::try_from(value) {
        Ok(value) => ScalarValue::Int32(Some(value)),
        Err(_) => ScalarValue::Int64(Some(value)),
    };
    // SAFETY: the rule of pointers.
    unsafe { bind(statement, parameter, || Ok(scalar)) }
}

/// Binds a floating-point number to a parameter, from 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_bind_double(
    statement: *mut SeracStatement,
    parameter: usize,
    value: f64,
) -> *mut SeracError {
    // SAFETY: the rule of pointers.
    unsafe { bind(statement, parameter, || Ok(ScalarValue::Float64(Some(value)))) }
}

/// Binds a text of `length` bytes to a parameter, from 1. It becomes a value of the type that its
/// place needs: numbers with decimals, dates, times, UUIDs, documents are bound as their texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_bind_text(
    statement: *mut SeracStatement,
    parameter: usize,
    value: *const c_char,
    length: usize,
) -> *mut SeracError {
    let value = || {
        // SAFETY: the rule of pointers.
        let bytes = unsafe { bytes(value.cast(), length)? };
        let text = std::str::from_utf8(bytes).map_err(|_| not_utf8())?;
        Ok(ScalarValue::Utf8(Some(text.to_owned())))
    };
    // SAFETY: the rule of pointers.
    unsafe { bind(statement, parameter, value) }
}

/// Binds `length` bytes to a parameter, from 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_bind_bytes(
    statement: *mut SeracStatement,
    parameter: usize,
    value: *const u8,
    length: usize,
) -> *mut SeracError {
    let value = || {
        // SAFETY: the rule of pointers.
        let bytes = unsafe { bytes(value, length)? };
        Ok(ScalarValue::Binary(Some(bytes.to_vec())))
    };
    // SAFETY: the rule of pointers.
    unsafe { bind(statement, parameter, value) }
}

/// Bytes at a pointer, which may be NULL if there are none.
///
/// # Safety
/// The rule of pointers; there are so many bytes.
unsafe fn bytes<'a>(pointer: *const u8, length: usize) -> Result<&'a [u8], SqlError> {
    if length == 0 {
        return Ok(&[]);
    }
    if length > isize::MAX.unsigned_abs() {
        return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "the value is too long"));
    }
    // SAFETY: as said.
    unsafe { look(pointer, "value")? };
    // SAFETY: as said; the pointer is not NULL, and no object has more bytes than were allowed.
    Ok(unsafe { std::slice::from_raw_parts(pointer, length) })
}

/// Runs the statement with the values that its parameters have, which it keeps. `result` may be
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_statement_execute(
    statement: *mut SeracStatement,
    result: *mut *mut SeracResult,
) -> *mut SeracError {
    guarded(|| {
        // SAFETY: the rule of pointers.
        unsafe {
            let give = give(result);
            let SeracStatement { statement, parameters } = change(statement, "statement")?;
            give(statement.execute(parameters)?);
        }
        Ok(())
    })
}

/// Closes a statement. Its results stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_statement_close(statement: *mut SeracStatement) {
    if !statement.is_null() {
        // SAFETY: the rule of pointers: it was made by `serac_prepare`, and is given back
        // once.
        crate::error::quietly((), || drop(unsafe { Box::from_raw(statement) }));
    }
}
