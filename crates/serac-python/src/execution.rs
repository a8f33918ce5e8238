//! Running a statement: on the point path in the calling thread, or on the path for any.

use crate::compiled::{Compiled, Given};
use crate::error::{self, IntoPython};
use crate::parameters;
use crate::python_types::PythonTypes;
use crate::session::Core;
use crate::wait;
use pyo3::prelude::*;
use serac_connection::{Outcome, begins_transaction};
use seracdb::{ColumnType, Rows, Start, StatementResult, TransactionStatus, Value, located};
use smallvec::SmallVec;
use std::sync::Arc;

/// What has become of a statement.
pub enum Execution {
    /// It ran on the point path: how many rows it has found or changed. What it gives stands in the
    /// rows that its caller has lent.
    Point(u64),
    /// It ran on the path for any.
    Other(Outcome),
}

/// Runs a statement.
///
/// # Errors
/// Those of the parameters and of the statement.
pub fn run(
    py: Python<'_>,
    core: &Arc<Core>,
    compiled: &Arc<Compiled>,
    given: &Given<'_>,
    rows: &mut Rows,
) -> PyResult<Execution> {
    let types = PythonTypes::get(py)?;
    if let Some(affected) = run_point(py, core, compiled, given, types, rows)? {
        return Ok(Execution::Point(affected));
    }
    let scalars = given.iter().map(|object| parameters::scalar(types, object)).collect::<PyResult<Vec<_>>>()?;
    let compiled = compiled.clone();
    core.run_for_caller(py, move |locked, _| {
        // A copy: others may prepare to run the statement while this runs.
        let mut prepared = compiled.prepared.lock().clone();
        let outcome = locked.run_prepared(&mut prepared, &scalars);
        *compiled.prepared.lock() = prepared;
        outcome.map(Execution::Other).map_err(|error| located(error, &compiled.text, 0))
    })
}

/// Runs a statement on the point path; `None` if it, or this execution of it, is not for that.
fn run_point(
    py: Python<'_>,
    core: &Arc<Core>,
    compiled: &Compiled,
    given: &Given<'_>,
    types: &PythonTypes,
    rows: &mut Rows,
) -> PyResult<Option<u64>> {
    core.check(py)?;
    let wanted: SmallVec<[ColumnType; 8]> = match compiled.prepared.lock().parameter_types() {
        Some(wanted) => wanted.into(),
        None => return Ok(None),
    };
    if wanted.len() != given.len() {
        let (wanted, given) = (wanted.len(), given.len());
        let message = format!("the statement has {wanted} parameters, {given} are given");
        return Err(error::programming(sqlstate::PROTOCOL_VIOLATION, &message));
    }
    let mut exact: SmallVec<[parameters::Exact<'_>; 8]> = SmallVec::new();
    for (object, column_type) in given.iter().zip(&wanted) {
        match parameters::exact(types, object, *column_type)? {
            Some(value) => exact.push(value),
            None => return Ok(None),
        }
    }
    let values: SmallVec<[Value<'_>; 8]> = exact.iter().map(parameters::Exact::value).collect();
    let mut locked = core.lock(py)?;
    // The rows of a query that still come are moved to their result on the other path.
    if locked.idle_now().is_none() {
        return Ok(None);
    }
    if !core.session().autocommit() && begins_transaction(compiled.prepared.lock().parsed()) {
        let begun = locked.begin_if_needed();
        begun.python(py)?;
    }
    let session = locked.idle();
    let mut prepared = compiled.prepared.lock();
    if prepared.parameter_types() != Some(&wanted[..]) {
        // Another thread has run it meanwhile, after DDL.
        return Ok(None);
    }
    let started = match session.start_prepared(&mut prepared, &values, rows) {
        Ok(Start::Ran(started)) => {
            drop(prepared);
            started
        }
        // Also if DDL has given its parameters other types.
        Ok(Start::Other) => return Ok(None),
        Ok(Start::Blocked(blocked)) => {
            let mut own = prepared.clone();
            drop(prepared);
            let resumed = session.resume_prepared(blocked, &mut own, &values, rows);
            match wait::here(py, core.session(), resumed)? {
                Some(started) => started,
                None => return Ok(None),
            }
        }
        Err(error) => {
            drop(prepared);
            let durable = wait::here(py, core.session(), session.error_is_durable());
            // An exception that is made may have Python collect, and run finalizers.
            drop(locked);
            durable?;
            return Err(error).python(py);
        }
    };
    drop(locked);
    let affected = started.affected;
    if !started.is_durable() {
        wait::here(py, core.session(), started.durable())?;
    }
    Ok(Some(affected))
}

/// Runs a text without parameters: one statement, or a script, of which the last result counts.
///
/// # Errors
/// The error of the first statement that fails.
pub fn run_text(py: Python<'_>, core: &Arc<Core>, text: &str) -> PyResult<Outcome> {
    if let Some(outcome) = run_known(py, core, text)? {
        return Ok(outcome);
    }
    let text = text.to_owned();
    core.run_for_caller(py, move |locked, runtime| {
        let statements = runtime.block_on(locked.idle().parse_elsewhere(&text))?;
        let mut outcome = Outcome::Changed(None);
        for (at, statement) in statements.into_iter().enumerate() {
            // What is left of the rows before is not wanted.
            drop(std::mem::replace(&mut outcome, Outcome::Changed(None)));
            outcome = locked.run(statement).map_err(|error| located(error, &text, at))?;
        }
        Ok(outcome)
    })
}

/// Runs a text on the point path, in this thread, if a text that differs from it in constants alone
/// has been run before.
fn run_known(py: Python<'_>, core: &Arc<Core>, text: &str) -> PyResult<Option<Outcome>> {
    let mut locked = core.lock(py)?;
    let Some(session) = locked.idle_now() else { return Ok(None) };
    if !core.session().autocommit() && session.transaction_status() == TransactionStatus::Idle {
        // Whether it needs a transaction is known when it is parsed.
        return Ok(None);
    }
    let result = wait::here(py, core.session(), session.execute_known(text))?;
    Ok(result.map(|result| locked.outcome_of(result)))
}

/// A statement about transactions, as BEGIN and COMMIT.
///
/// # Errors
/// That of the statement.
pub fn control(py: Python<'_>, core: &Arc<Core>, text: &str) -> PyResult<Vec<StatementResult>> {
    let mut locked = core.lock(py)?;
    if let Some(session) = locked.idle_now() {
        return wait::here(py, core.session(), session.execute(text));
    }
    drop(locked);
    let text = text.to_owned();
    core.run(py, move |locked, runtime| runtime.block_on(locked.idle().execute(&text)))
}
