//! Errors of the database as the package's exceptions. Which class an SQLSTATE has is decided in
//! `seracdb/_errors.py`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use seracdb::SqlError;

fn module(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static ERRORS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let module = ERRORS.get_or_try_init(py, || py.import("seracdb._errors").map(|module| module.into_any().unbind()));
    module.map(|module| module.bind(py))
}

/// The exception of an error of the database.
pub fn of_sql(py: Python<'_>, error: &SqlError) -> PyErr {
    let exception = || {
        let details = PyDict::new(py);
        details.set_item("detail", error.detail.as_deref())?;
        details.set_item("hint", error.hint.as_deref())?;
        details.set_item("name", error.name.as_deref())?;
        details.set_item("position", error.position)?;
        if let Some(table) = &error.table {
            details.set_item("schema", &table.schema)?;
            details.set_item("table", &table.name)?;
        }
        module(py)?.call_method("of_sqlstate", (error.sqlstate, &error.message), Some(&details))
    };
    exception().map_or_else(|failed| failed, PyErr::from_value)
}

/// The exception `name` of DB-API with an SQLSTATE.
fn of_class(name: &str, sqlstate: &str, message: &str) -> PyErr {
    Python::attach(|py| {
        let exception = || {
            let details = PyDict::new(py);
            details.set_item("sqlstate", sqlstate)?;
            module(py)?.getattr(name)?.call((message,), Some(&details))
        };
        exception().map_or_else(|failed| failed, PyErr::from_value)
    })
}

/// The error of a wrong use of the package, and not of the database.
pub fn interface(message: &str) -> PyErr {
    of_class("InterfaceError", sqlstate::PROTOCOL_VIOLATION, message)
}

/// The error of a call that its object does not allow now.
pub fn programming(sqlstate: &str, message: &str) -> PyErr {
    of_class("ProgrammingError", sqlstate, message)
}

/// The error of a value that Python or SQL cannot represent.
pub fn data(sqlstate: &str, message: &str) -> PyErr {
    of_class("DataError", sqlstate, message)
}

/// Results of the database as results of Python.
pub trait IntoPython<T> {
    /// The value, or the exception of the error.
    fn python(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> IntoPython<T> for Result<T, SqlError> {
    fn python(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| of_sql(py, &error))
    }
}
