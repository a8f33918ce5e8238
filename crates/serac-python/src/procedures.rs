//! Stored procedures in Python: `CALL name(…)` runs `function(tx, …)` in the caller's transaction.
//!
//! A procedure runs on the thread of its statement, with Python's lock, which it takes once. It
//! belongs to the database and not to the connection that has made it: any session may call it,
//! those of clients on the network, too. So the database holds the function until the procedure is
//! dropped, or the database closed.
//!
//! **Ends.** When the statement is cancelled or its time is over, [`Watch`] has Python raise an
//! exception in the thread of the procedure, again and again until the procedure ends. Python
//! raises it between two of its instructions: code that waits in a library ends when that returns.

use crate::callback;
use crate::connection::Connection;
use crate::ending::{self, Inside};
use crate::error::IntoPython;
use crate::lent_transaction::LentTransaction;
use crate::objects;
use crate::python_types::PythonTypes;
use crate::raising;
use crate::row_api::{RowTransaction, assigned};
use crate::values::{self, Failure};
use crate::wait;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyIterator, PyList, PyTuple};
use seracdb::engine::catalog::definition::SqlType;
use seracdb::engine::catalog::procedure::{Parameter, Rows};
use seracdb::engine::values::OwnedValue;
use seracdb::engine::{EngineError, ExpressionError, Procedure, Transaction};
use seracdb::{RunningStatement, SqlError, Value, columns};
use std::collections::BTreeSet;
use std::ffi::c_ulong;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// Rows that a procedure returns at most.
const MOST_ROWS: usize = 1 << 20;
/// SQLSTATEs of programs that are kept, beside those of the database.
const MOST_SQLSTATES: usize = 1_000;
/// The procedure that every database has.
const OWN_PROCEDURE: &str = "serac_run";

/// The classes and functions of Python that procedures need.
struct Classes {
    /// `seracdb.Error`.
    error: Py<PyAny>,
    /// `threading.get_ident`.
    get_ident: Py<PyAny>,
}

fn classes(py: Python<'_>) -> PyResult<&Classes> {
    static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();
    CLASSES.get_or_try_init(py, || {
        let named = |module: &str, name: &str| Ok::<_, PyErr>(py.import(module)?.getattr(name)?.unbind());
        Ok(Classes { error: named("seracdb._errors", "Error")?, get_ident: named("threading", "get_ident")? })
    })
}

/// Has a statement that is cancelled end the procedure that it runs.
struct Watch {
    task: AbortHandle,
    /// The number of the procedure's thread, until that has ended.
    thread: Arc<Mutex<Option<c_ulong>>>,
}

impl Watch {
    /// Watches the statement of a procedure in this thread; `None` where no runtime is at hand.
    fn start(py: Python<'_>, statement: RunningStatement) -> PyResult<Option<Self>> {
        let Ok(runtime) = Handle::try_current() else { return Ok(None) };
        let thread: c_ulong = classes(py)?.get_ident.bind(py).call0()?.extract()?;
        let thread = Arc::new(Mutex::new(Some(thread)));
        let shared = thread.clone();
        let task = runtime.spawn(async move {
            loop {
                tokio::time::sleep(wait::BETWEEN_LOOKS).await;
                if statement.check().is_err() {
                    let shared = shared.clone();
                    // Not here: Python's lock is waited for.
                    let _ = tokio::task::spawn_blocking(move || raise(&shared)).await;
                }
            }
        });
        Ok(Some(Self { task: task.abort_handle(), thread }))
    }
}

impl Drop for Watch {
    /// Nothing is raised in this thread any more.
    fn drop(&mut self) {
        self.task.abort();
        let Some(thread) = self.thread.lock().take() else { return };
        Python::try_attach(|py| raising::take_back(py, thread));
    }
}

/// Raises the exception of cancelled procedures in a thread.
fn raise(thread: &Mutex<Option<c_ulong>>) {
    Inside::attach(|py| {
        // Locked until it is set, so that it is not set behind the end of the watch.
        let thread = thread.lock();
        if let Some(thread) = *thread {
            raising::raise_in(py, thread);
        }
    });
}

/// Ends a procedure whose statement is cancelled.
///
/// # Errors
/// The exception of cancelled procedures.
pub fn check(py: Python<'_>, lent: &LentTransaction) -> PyResult<()> {
    match lent.statement().map(RunningStatement::check) {
        Some(Err(error)) => Err(PyErr::from_value(raising::cancelled(py)?.call1((error.message,))?)),
        _ => Ok(()),
    }
}

/// The code of a procedure.
struct Code {
    name: String,
    function: Py<PyAny>,
    parameters: Vec<SqlType>,
    names: Vec<String>,
    returns: Vec<SqlType>,
}

impl Code {
    fn what(&self) -> String {
        format!("procedure {}", self.name)
    }

    fn run(&self, txn: &mut Transaction, arguments: &[Value<'_>]) -> Result<Rows, EngineError> {
        let statement = RunningStatement::of_this_thread();
        // Where a thread of a runtime may block: the code may wait, and run statements of its own.
        let ran = tokio::task::block_in_place(|| {
            Inside::attach(|py| LentTransaction::lend(txn, statement, |lent| self.run_with(py, lent, arguments)))
        });
        ran.unwrap_or_else(|| Err(into_engine(ending::refused())))
    }

    fn run_with(
        &self,
        py: Python<'_>,
        lent: &Arc<LentTransaction>,
        arguments: &[Value<'_>],
    ) -> Result<Rows, EngineError> {
        let watch = lent.statement().map_or(Ok(None), |statement| Watch::start(py, statement.clone()));
        let result = watch.map_err(Failure::from).and_then(|watch| {
            let result = self.call(py, lent, arguments);
            drop(watch);
            result
        });
        // Also of code that has caught the exception of cancelled procedures.
        if let Some(Err(error)) = lent.statement().map(RunningStatement::check) {
            return Err(into_engine(error));
        }
        result.map_err(|failure| match failure {
            Failure::Wrong(error) => into_engine(error),
            Failure::Exception(exception) => self.error_of(py, lent, &exception),
        })
    }

    /// Calls the function, and takes the rows that it returns.
    fn call(&self, py: Python<'_>, lent: &Arc<LentTransaction>, arguments: &[Value<'_>]) -> Result<Rows, Failure> {
        let types = PythonTypes::get(py)?;
        let tx = Bound::new(py, RowTransaction::lent(lent))?.into_any();
        let mut given = vec![tx];
        for (value, of) in arguments.iter().zip(&self.parameters) {
            given.push(objects::object(py, types, *value, of.column_type)?);
        }
        let result = self.function.bind(py).call1(PyTuple::new(py, given)?)?;
        if self.returns.is_empty() {
            return match result.is_none() {
                true => Ok(Rows::new()),
                false => {
                    let message = format!("{} gave a result, and is declared to return nothing", self.what());
                    Err(SqlError::new(sqlstate::DATATYPE_MISMATCH, message).into())
                }
            };
        }
        if result.is_none() {
            return Ok(Rows::new());
        }
        let is_many = result.is_instance_of::<PyList>() || result.cast::<PyIterator>().is_ok();
        if !is_many {
            return Ok(vec![self.row(&result)?]);
        }
        let mut rows = Rows::new();
        for row in result.try_iter()? {
            if rows.len() == MOST_ROWS {
                let message = format!("{} returns more than {MOST_ROWS} rows", self.what());
                return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message).into());
            }
            rows.push(self.row(&row?)?);
        }
        Ok(rows)
    }

    fn row(&self, row: &Bound<'_, PyAny>) -> Result<Vec<OwnedValue>, Failure> {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let fields = values::fields(row, &names, &self.what())?;
        let columns = self.names.iter().zip(&self.returns);
        let assigned = fields.iter().zip(columns).map(|(field, (name, of))| assigned(field, *of, name));
        Ok(assigned.collect::<PyResult<_>>()?)
    }

    /// An exception as the error of the statement. An error of the transaction stays what it is: a
    /// conflict is tried again.
    fn error_of(&self, py: Python<'_>, lent: &LentTransaction, exception: &PyErr) -> EngineError {
        if let Some(error) = lent.error_of(py, exception) {
            return error;
        }
        let Ok(classes) = classes(py) else { return EngineError::Raised(exception.to_string()) };
        let value = exception.value(py);
        let is_a = |class: &Py<PyAny>| value.is_instance(class.bind(py)).unwrap_or(false);
        if raising::cancelled(py).is_ok_and(|class| value.is_instance(class).unwrap_or(false)) {
            let why = lent.statement().and_then(|statement| statement.check().err());
            return why.map_or(EngineError::Cancelled, into_engine);
        }
        let error = callback::told(py, exception, &self.what());
        if !is_a(&classes.error) {
            return into_engine(error.named(&self.name));
        }
        // One that says its SQLSTATE.
        let text = |name: &str| value.getattr(name).ok()?.extract::<String>().ok();
        let sqlstate = text("sqlstate").and_then(|code| kept_sqlstate(&code));
        let Some(sqlstate) = sqlstate else { return into_engine(error.named(&self.name)) };
        into_engine(SqlError {
            sqlstate,
            message: text("message").unwrap_or_default(),
            detail: text("detail").or(error.detail),
            hint: text("hint").map(Into::into),
            name: text("name"),
            ..SqlError::new(sqlstate, "")
        })
    }
}

/// An SQLSTATE that outlives the text in which a program has said it. `None` if it is none, or if
/// programs have said too many.
fn kept_sqlstate(code: &str) -> Option<&'static str> {
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let is_code = code.len() == 5 && code.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    // Classes of no error.
    if !is_code || ["00", "01", "02"].iter().any(|class| code.starts_with(class)) {
        return None;
    }
    let mut kept = KEPT.lock();
    if kept.get(code).is_none() && kept.len() < MOST_SQLSTATES {
        kept.insert(Box::leak(code.into()));
    }
    kept.get(code).copied()
}

/// An error as one of the transaction.
pub fn into_engine(error: SqlError) -> EngineError {
    let SqlError { sqlstate, message, detail, hint, name, .. } = error;
    EngineError::Expression(Box::new(ExpressionError { sqlstate, message, detail, hint, name, table: None, row: None }))
}

/// Names and types as those of parameters and of columns.
type Declared = Vec<(String, String)>;

fn declared(of: Declared) -> Result<(Vec<String>, Vec<SqlType>), SqlError> {
    let (mut names, mut types) = (Vec::new(), Vec::new());
    for (name, named) in of {
        if names.contains(&name) {
            let message = format!("the name \"{name}\" is used more than once");
            return Err(SqlError::new(sqlstate::INVALID_FUNCTION_DEFINITION, message).named(name));
        }
        types.push(columns::type_named(&named)?);
        names.push(name);
    }
    Ok((names, types))
}

/// Gives a database a procedure, in the place of an earlier one of the same name.
#[pyfunction]
pub fn create_procedure(
    py: Python<'_>,
    connection: &Bound<'_, Connection>,
    name: String,
    function: Py<PyAny>,
    parameters: Declared,
    returns: Declared,
) -> PyResult<()> {
    if name.is_empty() || name == OWN_PROCEDURE {
        let message = format!("\"{name}\" is no name of a procedure of the program");
        return Err(crate::error::programming(sqlstate::INVALID_NAME, &message));
    }
    let (names, types) = declared(parameters).python(py)?;
    let (columns, returns) = declared(returns).python(py)?;
    let all = |names: &[String], types: &[SqlType]| -> Vec<Parameter> {
        names.iter().zip(types).map(|(name, of)| Parameter::new(name, of.column_type)).collect()
    };
    let (parameters, rows) = (all(&names, &types), all(&columns, &returns));
    let code = Code { name: name.clone(), function, parameters: types, names: columns, returns };
    let procedure = Procedure::new(parameters, rows, move |txn, arguments| code.run(txn, arguments));
    let core = connection.get().core();
    core.check(py)?;
    let usage = ending::released(py, || core.session().another_use()).python(py)?;
    usage.database().database().register_procedure(name, procedure);
    ending::released(py, || usage.close()).python(py)
}

/// Takes a procedure from a database; whether there was one of the name.
#[pyfunction]
pub fn drop_procedure(py: Python<'_>, connection: &Bound<'_, Connection>, name: &str) -> PyResult<bool> {
    let core = connection.get().core();
    core.check(py)?;
    let usage = ending::released(py, || core.session().another_use()).python(py)?;
    let was_there = usage.database().database().unregister_procedure(name);
    ending::released(py, || usage.close()).python(py)?;
    Ok(was_there)
}
