//! Statements that a connection has parsed, so that the same text is not parsed again.

use crate::error;
use crate::session::Core;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use seracdb::{ParameterMarks, Prepared, SqlError, located, mark_parameters};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;

/// Statements that a connection keeps.
const MOST_STATEMENTS: usize = 128;

/// The objects of a statement's parameters.
pub type Given<'py> = SmallVec<[Bound<'py, PyAny>; 8]>;

/// A statement.
pub struct Compiled {
    /// The text as the user has written it.
    pub text: String,
    marks: ParameterMarks,
    /// Locked for short moments alone: never while the thread waits for something, or runs code of
    /// Python.
    pub prepared: Mutex<Prepared>,
}

impl Compiled {
    /// Parses a text of one statement; `None` if there is none in it.
    ///
    /// # Errors
    /// The error of the text.
    pub fn new(py: Python<'_>, core: &Arc<Core>, text: &str) -> PyResult<Option<Arc<Self>>> {
        let own = text.to_owned();
        core.run_for_caller(py, move |locked, runtime| {
            let marked = mark_parameters(&own)?;
            let session = locked.idle();
            let prepared = runtime.block_on(session.prepare_elsewhere(&marked.text, &[]));
            let prepared = prepared.map_err(|error| located(error, &own, 0))?;
            let marks = marked.marks;
            let compiled = |prepared| Arc::new(Self { marks, prepared: Mutex::new(prepared), text: own.clone() });
            Ok::<_, SqlError>(prepared.map(compiled))
        })
    }

    /// The objects of the parameters, in the order of their numbers.
    ///
    /// # Errors
    /// If they are not given by name where the text has names, or in order where it has not.
    pub fn bind<'py>(&self, parameters: &Bound<'py, PyAny>) -> PyResult<Given<'py>> {
        match &self.marks {
            ParameterMarks::Numbers => in_order(parameters),
            ParameterMarks::Names(names) => names.iter().map(|name| by_name(parameters, name)).collect(),
        }
    }

    /// The objects of the parameters of a call: in order, or by name.
    ///
    /// # Errors
    /// As for [`bind`](Self::bind).
    pub fn bind_call<'py>(
        &self,
        in_order: &Bound<'py, PyTuple>,
        by_names: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Given<'py>> {
        match (&self.marks, by_names) {
            (ParameterMarks::Names(_), Some(by_names)) if in_order.is_empty() => self.bind(by_names),
            (_, Some(by_names)) if !by_names.is_empty() => {
                Err(wrong("the statement takes its parameters in their order, without names"))
            }
            // In the order in which the names first stand in the text.
            _ => Ok(in_order.iter().collect()),
        }
    }
}

fn wrong(message: &str) -> PyErr {
    error::programming(sqlstate::UNDEFINED_PARAMETER, message)
}

fn in_order<'py>(parameters: &Bound<'py, PyAny>) -> PyResult<Given<'py>> {
    if let Ok(tuple) = parameters.cast::<PyTuple>() {
        return Ok(tuple.iter().collect());
    }
    if let Ok(list) = parameters.cast::<PyList>() {
        return Ok(list.iter().collect());
    }
    if parameters.is_instance_of::<PyDict>() || parameters.is_instance_of::<PyString>() {
        return Err(wrong("the statement takes its parameters in their order: give a tuple or a list"));
    }
    parameters.try_iter()?.collect()
}

fn by_name<'py>(parameters: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let missing = || wrong(&format!("there is no value for the parameter \"{name}\""));
    if let Ok(dict) = parameters.cast::<PyDict>() {
        return dict.get_item(name)?.ok_or_else(missing);
    }
    if parameters.is_instance_of::<PyTuple>() || parameters.is_instance_of::<PyList>() {
        return Err(wrong("the statement takes its parameters by their names: give a dict"));
    }
    parameters.get_item(name).map_err(|_| missing())
}

#[derive(Default)]
struct Kept {
    statements: HashMap<String, (u64, Arc<Compiled>)>,
    uses: u64,
}

/// The statements with parameters that a connection has run last.
#[derive(Default)]
pub struct Statements(Mutex<Kept>);

impl Statements {
    /// The statement of a text: a kept one, or a new one, which is kept. `None` if there is none in
    /// it.
    ///
    /// # Errors
    /// The error of the text.
    pub fn get(&self, py: Python<'_>, core: &Arc<Core>, text: &str) -> PyResult<Option<Arc<Compiled>>> {
        {
            let mut kept = self.0.lock();
            kept.uses += 1;
            let uses = kept.uses;
            if let Some((used, compiled)) = kept.statements.get_mut(text) {
                *used = uses;
                return Ok(Some(compiled.clone()));
            }
        }
        let Some(compiled) = Compiled::new(py, core, text)? else { return Ok(None) };
        let mut kept = self.0.lock();
        if kept.statements.len() >= MOST_STATEMENTS {
            let oldest = kept.statements.iter().min_by_key(|(_, (used, _))| *used).map(|(text, _)| text.clone());
            oldest.and_then(|text| kept.statements.remove(&text));
        }
        let used = kept.uses;
        kept.statements.insert(text.to_owned(), (used, compiled.clone()));
        Ok(Some(compiled))
    }
}
