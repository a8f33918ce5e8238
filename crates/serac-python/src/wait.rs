//! Waiting for the database with Python's lock released, so that other threads run, and with an eye
//! on signals, so that Ctrl-C cancels the statement.
//!
//! Python runs signal handlers in its main thread alone. When that thread runs a statement, another
//! thread does the work ([`elsewhere`]): a statement may compute for long without a pause in which
//! the main thread could look. A wait in which nothing computes stays in its thread
//! ([`here`]).

use crate::ending::{self, Inside};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use serac_connection::SharedSession;
use seracdb::SqlError;
use std::pin::pin;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// The time between two looks at signals.
pub const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Whether this is the thread in which Python runs the handlers of signals.
fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    static THREADING: PyOnceLock<(Py<PyAny>, Py<PyAny>)> = PyOnceLock::new();
    let functions = THREADING.get_or_try_init(py, || -> PyResult<_> {
        let threading = py.import("threading")?;
        Ok((threading.getattr("main_thread")?.unbind(), threading.getattr("get_ident")?.unbind()))
    });
    let (main_thread, get_ident) = functions?;
    // Asked each time: after a fork another thread may be the main one.
    main_thread.bind(py).call0()?.getattr("ident")?.eq(get_ident.bind(py).call0()?)
}

/// The result of work that a signal may have interrupted.
fn outcome<T>(py: Python<'_>, result: Result<T, SqlError>, interrupted: Option<PyErr>) -> PyResult<T> {
    match (result, interrupted) {
        (_, Some(exception)) => Err(exception),
        (Ok(value), None) => Ok(value),
        (Err(error), None) => Err(crate::error::of_sql(py, &error)),
    }
}

/// Does the work of a statement with Python's lock released. If this is the main thread, a handler
/// of a signal that raises an exception, as that of Ctrl-C does, cancels the session's statement.
/// The exception is raised when the work has ended.
///
/// # Errors
/// The error of the work, or the exception of the handler.
pub fn elsewhere<T: Send + 'static>(
    py: Python<'_>,
    session: &SharedSession,
    work: impl FnOnce() -> Result<T, SqlError> + Send + 'static,
) -> PyResult<T> {
    if !is_main_thread(py)? {
        let result = ending::released(py, work);
        return outcome(py, result, None);
    }
    let (sender, mut receiver) = sync_channel(1);
    // The thread of the last statement does it, if it still waits for work.
    session.runtime().spawn_blocking(move || {
        let _ = sender.send(work());
    });
    let mut interrupted = None;
    loop {
        // By a unique reference, which alone may go where Python's lock is not held.
        let receiving = &mut receiver;
        match py.detach(move || receiving.recv_timeout(BETWEEN_LOOKS)) {
            Ok(result) => return outcome(py, result, interrupted),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the thread of a statement has ended before the statement"));
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Err(exception) = py.check_signals() {
                    interrupted = Some(exception);
                }
                // Again and again: the first time the statement may not have begun.
                if interrupted.is_some() {
                    session.cancel_handle().cancel();
                }
            }
        }
    }
}

/// Waits in this thread, with Python's lock released, for something that does not compute: a commit
/// on its way to the disk, another transaction. Signals are as for [`elsewhere`].
///
/// # Errors
/// As there.
pub fn here<T: Send>(
    py: Python<'_>,
    session: &SharedSession,
    part: impl Future<Output = Result<T, SqlError>> + Send,
) -> PyResult<T> {
    let looks = is_main_thread(py)?;
    let (result, interrupted) = ending::released(py, || {
        session.runtime().block_on(async {
            let mut part = pin!(part);
            let mut interrupted = None;
            loop {
                match tokio::time::timeout(BETWEEN_LOOKS, part.as_mut()).await {
                    Ok(result) => return (result, interrupted),
                    Err(_) if !looks => {}
                    Err(_) => {
                        if let Err(exception) = session.id().amid(|| Python::attach(|py| py.check_signals())) {
                            interrupted = Some(exception);
                            session.cancel_handle().cancel();
                        }
                    }
                }
            }
        })
    });
    outcome(py, result, interrupted)
}

/// Does work that a consumer of Arrow asks for, in a thread that may or may not have Python's lock:
/// without it.
pub fn released<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let mut work = Some(work);
    let done = Inside::attach(|py| work.take().map(|work| py.detach(work)));
    match (done.flatten(), work) {
        (Some(done), _) => done,
        // Python is ending, or in the middle of a collection.
        (None, Some(work)) => work(),
        (None, None) => unreachable!("the work has been done, and gave its result"),
    }
}
