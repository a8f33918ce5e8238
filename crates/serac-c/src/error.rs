//! Errors, and the border between C and Rust: what comes as a pointer is checked, and panics are
//! caught.

use embedded::SqlError;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};

/// The error of a function.
#[derive(Debug)]
pub struct SeracError {
    sqlstate: CString,
    message: CString,
    detail: Option<CString>,
    position: Option<(u32, u32)>,
}

/// A text without the zero bytes that a text of C cannot have.
pub fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).expect("it has no zero byte")
}

impl From<SqlError> for SeracError {
    fn from(error: SqlError) -> Self {
        Self {
            sqlstate: c_text(error.sqlstate),
            message: c_text(&error.message),
            detail: error.detail.as_deref().map(c_text),
            position: error.position,
        }
    }
}

/// Runs the work of a function. A panic becomes an error (XX000).
pub fn guarded(work: impl FnOnce() -> Result<(), SqlError>) -> *mut SeracError {
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(SqlError::of_panic(&*panic)));
    match result {
        Ok(()) => null_mut(),
        Err(error) => Box::into_raw(Box::new(SeracError::from(error))),
    }
}

/// Runs the work of a function that has no errors. After a panic it gives `otherwise`.
pub fn quietly<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

fn is_null(what: &str) -> SqlError {
    SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, format!("{what} is NULL"))
}

/// The value behind a pointer.
///
/// # Errors
/// 22004 for NULL.
///
/// # Safety
/// **The rule of pointers.** A pointer that is not NULL is one that a function of this library has
/// given and that was not given back, or one to a value of its type that lives until the call ends.
/// The callers of the library keep that: its header says so.
pub unsafe fn look<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, SqlError> {
    // SAFETY: the rule of pointers.
    unsafe { pointer.as_ref() }.ok_or_else(|| is_null(what))
}

/// The value behind a pointer, to be changed.
///
/// # Errors
/// 22004 for NULL.
///
/// # Safety
/// The rule of pointers ([`look`]); no other thread uses the value.
pub unsafe fn change<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T, SqlError> {
    // SAFETY: as said.
    unsafe { pointer.as_mut() }.ok_or_else(|| is_null(what))
}

/// A place for a new object. It is NULL until the object is there.
///
/// # Errors
/// 22004 for NULL.
///
/// # Safety
/// The rule of pointers ([`look`]).
pub unsafe fn place<'a, T>(pointer: *mut *mut T, what: &str) -> Result<&'a mut *mut T, SqlError> {
    // SAFETY: as said. The place need not hold anything yet, so it is written before it is lent.
    unsafe {
        if pointer.is_null() {
            return Err(is_null(what));
        }
        pointer.write(null_mut());
        Ok(&mut *pointer)
    }
}

/// A text; `None` for NULL.
///
/// # Errors
/// 22021 for what is not UTF-8.
///
/// # Safety
/// The rule of pointers ([`look`]); the text ends with a zero byte.
pub unsafe fn text_if_any<'a>(pointer: *const c_char) -> Result<Option<&'a str>, SqlError> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: as said.
    unsafe { CStr::from_ptr(pointer) }.to_str().map(Some).map_err(|_| not_utf8())
}

/// A text.
///
/// # Errors
/// 22021 for what is not UTF-8, 22004 for NULL.
///
/// # Safety
/// As for [`text_if_any`].
pub unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, SqlError> {
    // SAFETY: as said.
    unsafe { text_if_any(pointer) }?.ok_or_else(|| is_null(what))
}

/// The error of a text that is not UTF-8.
pub fn not_utf8() -> SqlError {
    SqlError::new(sqlstate::CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding \"UTF8\"")
}

/// The five characters of the error's SQLSTATE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_error_sqlstate(error: *const SeracError) -> *const c_char {
    // SAFETY: the rule of pointers.
    unsafe { error.as_ref() }.map_or(null(), |error| error.sqlstate.as_ptr())
}

/// The error's message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_error_message(error: *const SeracError) -> *const c_char {
    // SAFETY: the rule of pointers.
    unsafe { error.as_ref() }.map_or(null(), |error| error.message.as_ptr())
}

/// More about the error; NULL if there is no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_error_detail(error: *const SeracError) -> *const c_char {
    // SAFETY: the rule of pointers.
    unsafe { error.as_ref() }.and_then(|error| error.detail.as_deref()).map_or(null(), CStr::as_ptr)
}

/// The line of the statement's text that the error is about, from 1; 0 if that is not known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_error_line(error: *const SeracError) -> u32 {
    // SAFETY: the rule of pointers.
    unsafe { error.as_ref() }.and_then(|error| error.position).map_or(0, |(line, _)| line)
}

/// The column of that line, in characters from 1; 0 if that is not known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_error_column(error: *const SeracError) -> u32 {
    // SAFETY: the rule of pointers.
    unsafe { error.as_ref() }.and_then(|error| error.position).map_or(0, |(_, column)| column)
}

/// Frees an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_error_free(error: *mut SeracError) {
    if !error.is_null() {
        // SAFETY: the rule of pointers: it was made by `guarded`, and is given back once.
        drop(unsafe { Box::from_raw(error) });
    }
}
