//! The class `Connection`: a session of a database.

use crate::compiled::Statements;
use crate::ending;
use crate::error::{self, IntoPython};
use crate::execution;
use crate::functions::{Aggregate, Table};
use crate::parameters;
use crate::provider;
use crate::python_types::PythonTypes;
use crate::server::{self, ServeOptions, Server};
use crate::session::{Core, Lent};
use crate::statement::Statement;
use crate::table::{self, Condition, Scan};
use crate::work::Progress;
use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use serac_connection::{DatabaseUse, Locked, Options, check_committed};
use seracdb::{
    CheckpointReport, FunctionBody, IfExists, IngestFiles, IngestTarget, LentFunction, TransactionStatus, Volatility,
};
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The path of a database in memory.
const IN_MEMORY: &str = ":memory:";

/// A connection, without what Python code does in `seracdb/_connection.py`.
#[pyclass(frozen, subclass, weakref, module = "seracdb._seracdb")]
pub struct Connection {
    core: Arc<Core>,
    statements: Statements,
}

impl Connection {
    /// What its objects share.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The statements that it keeps.
    pub fn statements(&self) -> &Statements {
        &self.statements
    }
}

/// What a checkpoint or a backup has: tables, rows, blocks that were written, blocks whose files
/// were there, bytes.
type Report = (usize, u64, u64, u64, u64);

fn report(written: CheckpointReport) -> Report {
    (written.tables, written.rows, written.blocks_written, written.blocks_kept, written.bytes)
}

fn if_exists_of(name: &str) -> PyResult<IfExists> {
    match name {
        "append" => Ok(IfExists::Append),
        "replace" => Ok(IfExists::Replace),
        "fail" => Ok(IfExists::Fail),
        other => {
            Err(PyValueError::new_err(format!("if_exists is \"append\", \"replace\" or \"fail\", not \"{other}\"")))
        }
    }
}

#[pymethods]
impl Connection {
    #[new]
    #[pyo3(signature = (path, durability, memory_limit, threads, read_only, autocommit, scan_variables, of=None))]
    #[allow(clippy::too_many_arguments, reason = "the arguments of connect(), which alone calls it")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        durability: Option<&str>,
        memory_limit: Option<usize>,
        threads: Option<usize>,
        read_only: bool,
        autocommit: bool,
        scan_variables: bool,
        of: Option<&Bound<'_, Self>>,
    ) -> PyResult<Self> {
        if of.is_none() && path.as_os_str().is_empty() {
            return Err(PyValueError::new_err("the path of a database is not empty: \":memory:\" is in memory"));
        }
        if threads == Some(0) {
            return Err(PyValueError::new_err("a query has at least one thread"));
        }
        let mut options = Options { memory_limit, threads, ..Options::default() };
        if let Some(durability) = durability {
            options.set("durability", durability).map_err(|error| PyValueError::new_err(error.message))?;
        }
        let of = match of {
            Some(of) => {
                of.get().core.check(py)?;
                Some(of.get().core.clone())
            }
            None => None,
        };
        let lent = Lent::new(py, scan_variables);
        let core = ending::released(py, || {
            let usage = match of {
                Some(of) => of.session().another_use()?,
                None if path.as_os_str() == IN_MEMORY => DatabaseUse::in_memory(options)?,
                None => DatabaseUse::in_folder(&path, options, !read_only)?,
            };
            Ok(Core::new(usage, lent, autocommit, read_only))
        });
        Ok(Self { core: core.python(py)?, statements: Statements::default() })
    }

    /// Prepares a statement.
    fn prepare(&self, py: Python<'_>, sql: &str) -> PyResult<Statement> {
        Statement::new(py, &self.core, sql)
    }

    /// Whether each statement outside of transactions is one.
    #[getter]
    fn get_autocommit(&self, py: Python<'_>) -> PyResult<bool> {
        self.core.check(py)?;
        Ok(self.core.session().autocommit())
    }

    #[setter]
    fn set_autocommit(&self, py: Python<'_>, autocommit: bool) -> PyResult<()> {
        let mut locked = self.core.lock(py)?;
        let is_open = |locked: &mut Locked<'_>| {
            locked.idle_now().is_none_or(|session| session.transaction_status() != TransactionStatus::Idle)
        };
        if autocommit != self.core.session().autocommit() && is_open(&mut locked) {
            drop(locked);
            let message = "autocommit cannot be changed inside a transaction, or while rows are being read";
            return Err(error::programming(sqlstate::ACTIVE_SQL_TRANSACTION, message));
        }
        locked.set_autocommit(autocommit);
        Ok(())
    }

    /// The state of the transaction: "idle", "open" or "failed".
    #[getter]
    fn transaction_status(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.core.check(py)?;
        let status = self.core.lock(py)?.idle_now().map(|session| session.transaction_status());
        let status = match status {
            Some(status) => status,
            // The rows of a query still come: it is looked at when they have.
            None => self.core.run(py, |locked, _| Ok(locked.idle().transaction_status()))?,
        };
        Ok(match status {
            TransactionStatus::Idle => "idle",
            TransactionStatus::Open => "open",
            TransactionStatus::Failed => "failed",
        })
    }

    /// Runs a statement about transactions, as BEGIN and SAVEPOINT.
    fn _control(&self, py: Python<'_>, statement: &str) -> PyResult<()> {
        execution::control(py, &self.core, statement).map(drop)
    }

    /// Commits the open transaction; without one, does nothing.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        if self.transaction_status(py)? == "idle" {
            return Ok(());
        }
        let results = execution::control(py, &self.core, "COMMIT")?;
        check_committed(&results).python(py)
    }

    /// Rolls back the open transaction; without one, does nothing.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        if self.transaction_status(py)? != "idle" {
            execution::control(py, &self.core, "ROLLBACK")?;
        }
        Ok(())
    }

    /// The frames that are registered, by name.
    #[getter]
    fn _registered(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        self.core.check(py)?;
        Ok(self.core.lent().frames.registered(py).clone().unbind())
    }

    /// Whether the variables of the code that runs a statement are found in FROM.
    #[getter]
    fn get_scan_variables(&self) -> bool {
        self.core.lent().frames.scans_variables()
    }

    #[setter]
    fn set_scan_variables(&self, scan: bool) {
        self.core.lent().frames.set_scans_variables(scan);
    }

    /// Lends the statements a function. `kind`: "scalar", "aggregate", "merging" (an aggregate
    /// whose states merge), or "table".
    #[allow(clippy::too_many_arguments, reason = "the arguments of create_function() and its kin, which alone call it")]
    fn _lend_function(
        &self,
        py: Python<'_>,
        name: String,
        kind: &str,
        parameters: Vec<String>,
        returns: Option<String>,
        columns: Vec<(String, String)>,
        volatility: &str,
        is_strict: bool,
        object: &Bound<'_, PyAny>,
        is_arrow: bool,
    ) -> PyResult<()> {
        self.core.check(py)?;
        let code = self.core.lent().functions.keep(&name, object, is_arrow)?;
        let volatility = match volatility {
            "immutable" => Volatility::Immutable,
            "stable" => Volatility::Stable,
            _ => Volatility::Volatile,
        };
        let returns = returns.unwrap_or_default();
        let body = match kind {
            "scalar" => FunctionBody::Scalar { returns, volatility, is_strict, body: Arc::new(code) },
            "table" => FunctionBody::Table { columns, body: Arc::new(Table::new(code)) },
            other => {
                let body = Arc::new(Aggregate::new(code, other == "merging"));
                FunctionBody::Aggregate { returns, is_strict, body }
            }
        };
        let function = LentFunction { name, parameters, body };
        self.core.run(py, move |locked, _| locked.idle().lend_function(function))
    }

    /// Takes a lent function back. Whether there was one.
    fn _take_function_back(&self, py: Python<'_>, name: String) -> PyResult<bool> {
        let was_there = self.core.run(py, move |locked, _| Ok(locked.idle().take_function_back(&name)))?;
        self.core.lent().functions.forget(py);
        Ok(was_there)
    }

    /// Puts the rows of a frame into a table. Returns how many there are.
    fn _append(
        &self,
        py: Python<'_>,
        table: String,
        frame: &Bound<'_, PyAny>,
        schema: Option<String>,
        create: bool,
        if_exists: &str,
    ) -> PyResult<u64> {
        let if_exists = if_exists_of(if_exists)?;
        let target = IngestTarget { catalog: None, schema, table, temporary: false, create, if_exists };
        table::append(py, &self.core, target, frame)
    }

    /// Puts the rows of files into a table. Returns how many there are.
    #[allow(clippy::too_many_arguments, reason = "the arguments of ingest(), which alone calls it")]
    fn _ingest(
        &self,
        py: Python<'_>,
        paths: Vec<PathBuf>,
        table: String,
        schema: Option<String>,
        create: bool,
        if_exists: &str,
        function: Option<String>,
        options: Vec<(String, Bound<'_, PyAny>)>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<u64> {
        let if_exists = if_exists_of(if_exists)?;
        let target = IngestTarget { catalog: None, schema, table, temporary: false, create, if_exists };
        let path = |path: PathBuf| {
            let wrong = |path: OsString| PyValueError::new_err(format!("the path {path:?} is not in UTF-8"));
            path.into_os_string().into_string().map_err(wrong)
        };
        let paths = paths.into_iter().map(path).collect::<PyResult<_>>()?;
        let types = PythonTypes::get(py)?;
        let option = |(name, value): (String, Bound<'_, PyAny>)| Ok((name, parameters::scalar(types, &value)?));
        let options = options.into_iter().map(option).collect::<PyResult<_>>()?;
        table::ingest(py, &self.core, target, IngestFiles { paths, function, options }, progress)
    }

    /// A scan of a table: the arguments of `Scan`.
    #[allow(clippy::too_many_arguments, reason = "the arguments of Scan, whose class alone calls it")]
    fn _scan(
        &self,
        py: Python<'_>,
        schema: &str,
        table: &str,
        columns: Option<Vec<String>>,
        filter: Vec<Condition<'_>>,
        stored: bool,
    ) -> PyResult<Scan> {
        Scan::new(py, &self.core, schema, table, columns, &filter, stored)
    }

    /// A table for a session of datafusion-python.
    fn _table_provider<'py>(
        &self,
        py: Python<'py>,
        schema: String,
        table: String,
        session: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        provider::capsule(py, &self.core, schema, table, session)
    }

    /// Serves the database to clients on the network: the arguments of `ServeOptions`.
    #[allow(clippy::too_many_arguments, reason = "the arguments of serve(), which alone calls it")]
    fn _serve(
        &self,
        py: Python<'_>,
        pg: Option<&str>,
        flight: Option<&str>,
        metrics: Option<&str>,
        users: HashMap<String, String>,
        token: Option<String>,
        tls: Option<(PathBuf, PathBuf)>,
        allow_remote: bool,
        max_connections: Option<usize>,
        shutdown_timeout: Option<f64>,
    ) -> PyResult<Server> {
        let address = |name, text: Option<&str>| text.map(|text| server::address(name, text)).transpose();
        let (pg, flight, metrics) = (address("pg", pg)?, address("flight", flight)?, address("metrics", metrics)?);
        let seconds = |seconds| {
            let wrong = |_| PyValueError::new_err("shutdown_timeout is a number of seconds, and not negative");
            Duration::try_from_secs_f64(seconds).map_err(wrong)
        };
        let shutdown_timeout = shutdown_timeout.map(seconds).transpose()?;
        let options =
            ServeOptions { pg, flight, metrics, users, token, tls, allow_remote, max_connections, shutdown_timeout };
        Server::start(py, &self.core, options)
    }

    /// Writes a copy of the database into a folder. Returns what `report` gives.
    fn _backup(&self, py: Python<'_>, folder: PathBuf) -> PyResult<Report> {
        let written = self.core.run(py, move |locked, runtime| runtime.block_on(locked.idle().backup(&folder)));
        written.map(report)
    }

    /// Writes a checkpoint. Returns what `report` gives.
    fn _checkpoint(&self, py: Python<'_>) -> PyResult<Report> {
        self.core.run(py, |locked, runtime| runtime.block_on(locked.idle().checkpoint())).map(report)
    }

    /// How far the connection's statement is: the seconds since it began, whether it computes now,
    /// a number that changes whenever it has computed, and (what is done, all of it, what it is);
    /// all is 0 if it is not known. None without a statement.
    fn _progress(&self) -> Option<Progress> {
        self.core.work().progress()
    }

    /// Cancels the statement that another thread runs on this connection.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.core.check(py)?;
        self.core.session().cancel_handle().cancel();
        Ok(())
    }

    /// What statements have said beside their results since the last call: (severity, SQLSTATE,
    /// message).
    fn notices(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, &'static str, String)>> {
        let mut locked = self.core.lock(py)?;
        let notices = locked.idle_now().map(|session| session.notices().take()).unwrap_or_default();
        let told = notices.into_iter().map(|notice| (notice.severity.name(), notice.sqlstate, notice.message));
        Ok(told.collect())
    }

    /// Closes the connection. An open transaction is rolled back.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.core.close(py)
    }

    /// Whether the connection is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.core.session().is_closed()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.core.lent().frames.traverse(&visit)?;
        visit.call(self.core.lent().functions.objects())
    }

    fn __clear__(&self, py: Python<'_>) {
        self.core.lent().frames.registered(py).clear();
        self.core.lent().functions.objects().bind(py).clear();
    }
}
