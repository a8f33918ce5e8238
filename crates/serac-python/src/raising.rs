//! The exception that ends Python code whose statement is cancelled. Python raises it in the code's
//! thread, between two of its instructions.

use pyo3::ffi::PyThreadState_SetAsyncExc;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::ffi::{c_long, c_ulong};
use std::ptr::null_mut;

/// `seracdb._procedures.ProcedureCancelled`.
///
/// # Errors
/// If the package is not whole.
pub fn cancelled(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static CANCELLED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = CANCELLED.get_or_try_init(py, || {
        Ok::<_, PyErr>(py.import("seracdb._procedures")?.getattr("ProcedureCancelled")?.unbind())
    })?;
    Ok(class.bind(py))
}

/// Raises it in a thread that is in Python code, by the thread's number.
pub fn raise_in(py: Python<'_>, thread: c_ulong) {
    let Ok(class) = cancelled(py) else { return };
    // SAFETY: this thread is attached to Python, and the object is a class of exceptions, which
    // lives for ever. The bits of the number are the same: so the call declares it.
    unsafe { PyThreadState_SetAsyncExc(thread as c_long, class.as_ptr()) };
}

/// Takes back what was raised in a thread, if Python has not raised it yet.
pub fn take_back(_: Python<'_>, thread: c_ulong) {
    // SAFETY: this thread is attached to Python. Without an exception the call only takes back.
    unsafe { PyThreadState_SetAsyncExc(thread as c_long, null_mut()) };
}
