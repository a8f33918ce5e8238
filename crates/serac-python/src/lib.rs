//! SeracDB in Python: the module `_seracdb`, on which the package `seracdb` in `python/` is built.
//!
//! | module | what |
//! |---|---|
//! | `error` `wait` | exceptions, Python's lock and signals |
//! | `python_types` `objects` `parameters` | values of SQL as objects of Python, and back |
//! | `session` `rows` | a session of `serac_connection`, and its rows, beside Python's lock |
//! | `arrow_io` | Arrow's C interface |
//! | `ending` `raising` | threads in Python code when Python ends, and the exception that ends it |
//! | `callback` `frames` | Python code that statements call, and frames that they find by name |
//! | `values` `functions` | columns of objects, and Python functions in SQL |
//! | `compiled` `execution` | statements that are kept, and how one runs |
//! | `work` | what a session is doing, for progress bars |
//! | `batches` `connection` `cursor` `server` `statement` `table` | the classes |
//! | `provider` | tables for DataFusion |
//! | `lent_transaction` `row_api` `procedures` | rows by key without SQL, and stored procedures |
//!
//! The library is an ADBC driver, too ([`serac_adbc`]), of the databases that the package has open.
//! The package has its own code in Python where no speed is needed: `connect`, contexts of
//! transactions, conversions to frames, the classes of exceptions.

mod arrow_io;
mod batches;
mod callback;
mod compiled;
mod connection;
mod cursor;
mod ending;
mod error;
mod execution;
mod frames;
mod functions;
mod lent_transaction;
mod objects;
mod parameters;
mod procedures;
mod provider;
mod python_types;
mod raising;
mod row_api;
mod rows;
mod server;
mod session;
mod statement;
mod table;
mod values;
mod wait;
mod work;

// The entry points of ADBC leave with the library.
pub use serac_adbc::{AdbcDriverInit, AdbcSeracdbInit};

/// The module. Nothing starts when it is imported: threads begin with the first database.
///
/// It needs no global lock of Python's (`gil_used`): its classes are frozen, what changes in them
/// stands behind locks, and no thread waits for such a lock while it has a lock that a thread needs
/// which Python stops.
#[pyo3::pymodule(gil_used = false)]
mod _seracdb {
    use crate::error::IntoPython;
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::batches::Batches;
    #[pymodule_export]
    use crate::connection::Connection;
    #[pymodule_export]
    use crate::cursor::Cursor;
    #[pymodule_export]
    use crate::procedures::{create_procedure, drop_procedure};
    #[pymodule_export]
    use crate::row_api::{RowTable, RowTransaction};
    #[pymodule_export]
    use crate::server::Server;
    #[pymodule_export]
    use crate::statement::Statement;
    #[pymodule_export]
    use crate::table::Scan;

    /// The version of the package.
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "Python's name")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// The names of a statement's parameters, in the order in which they first stand in its text.
    #[pyfunction]
    fn parameter_names(py: Python<'_>, sql: &str) -> PyResult<Vec<String>> {
        match seracdb::mark_parameters(sql).python(py)?.marks {
            seracdb::ParameterMarks::Names(names) => Ok(names),
            seracdb::ParameterMarks::Numbers => Ok(Vec::new()),
        }
    }

    /// Ends all servers and closes all databases in folders: what they owe to the disk is written.
    #[pyfunction]
    fn close_all(py: Python<'_>) -> PyResult<()> {
        crate::ending::released(py, || crate::server::stop_all().and(serac_connection::close_all())).python(py)
    }

    /// The same at the end of Python: no Python code is called any more, and all statements are
    /// cancelled.
    #[pyfunction]
    fn end(py: Python<'_>) -> PyResult<()> {
        crate::ending::begin(py);
        let stopped = py.detach(crate::server::stop_all).python(py);
        let finished = crate::ending::finish(py);
        let closed = py.detach(serac_connection::close_all).python(py);
        stopped.and(finished).and(closed)
    }
}
