//! Python code that a statement calls: to find or read a frame, to compute a function.
//!
//! It runs on a thread of the database, which takes Python's lock for it. No thread waits for the
//! database while it has Python's lock, so the two cannot wait for each other. The statement has
//! its session meanwhile: the called code cannot use the same connection, and is told so
//! ([`SessionId::amid`]).

use crate::ending::{self, Inside};
use pyo3::prelude::*;
use serac_connection::SessionId;
use seracdb::SqlError;

/// Characters of a traceback that an error keeps: its end says most.
const MOST_TRACEBACK: usize = 8_000;

/// Calls Python code for a session's statement, with Python's lock.
///
/// # Errors
/// The error of the code.
pub fn call<T>(session: SessionId, code: impl FnOnce(Python<'_>) -> Result<T, SqlError>) -> Result<T, SqlError> {
    let called = session.amid(|| Inside::attach(code));
    called.unwrap_or_else(|| Err(ending::refused()))
}

/// An exception of the user's code as an error of the statement: 38000, with the traceback in the
/// detail. `what` is the code.
pub fn told(py: Python<'_>, exception: &PyErr, what: &str) -> SqlError {
    let class = exception.get_type(py);
    let class = class.name().map(|name| name.to_string()).unwrap_or_default();
    let message = exception.value(py).str().map(|text| text.to_string()).unwrap_or_default();
    let shown = if message.is_empty() { class } else { format!("{class}: {message}") };
    let error = SqlError::new(sqlstate::EXTERNAL_ROUTINE_EXCEPTION, format!("{what} has failed: {shown}"));
    match traceback(py, exception) {
        Ok(traceback) => error.explained(traceback),
        Err(_) => error,
    }
}

/// The same of code of the package that looks for frames: its own errors stay as they are.
pub fn told_of_frame(py: Python<'_>, exception: &PyErr, what: &str) -> SqlError {
    own(py, exception).unwrap_or_else(|| told(py, exception, what))
}

/// An error that the package has raised, and not the user's code.
fn own(py: Python<'_>, exception: &PyErr) -> Option<SqlError> {
    let kept = [
        sqlstate::UNDEFINED_TABLE,
        sqlstate::AMBIGUOUS_ALIAS,
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        sqlstate::PROTOCOL_VIOLATION,
    ];
    let value = exception.value(py);
    let code: String = value.getattr("sqlstate").ok()?.extract().ok()?;
    let sqlstate = kept.into_iter().find(|kept| *kept == code)?;
    let text = |name: &str| value.getattr(name).ok()?.extract::<String>().ok();
    Some(SqlError { detail: text("detail"), name: text("name"), ..SqlError::new(sqlstate, text("message")?) })
}

/// The traceback as Python prints it, its end if it is long.
fn traceback(py: Python<'_>, exception: &PyErr) -> PyResult<String> {
    let parts = (exception.get_type(py), exception.value(py), exception.traceback(py));
    let lines = py.import("traceback")?.call_method1("format_exception", parts)?;
    let text: String = lines.extract::<Vec<String>>()?.concat();
    let text = text.trim_end();
    let from = text.len().saturating_sub(MOST_TRACEBACK);
    let from = (from..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    Ok(text[from..].to_owned())
}
