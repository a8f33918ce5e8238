//! Frames by name in FROM: those that a connection has registered, and the variables of the code
//! that runs a statement. `seracdb/_lent.py` decides which objects
//! are frames, and how often each can be read.
//!
//! A statement notes who has called it ([`Frames::caller`]) before it waits for the session, and
//! looks for names in the caller's variables only when the binder asks for one.

use crate::arrow_io::{self, Batches};
use crate::callback;
use crate::ending::{self, Inside};
use crate::python_types::PythonTypes;
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use parking_lot::Mutex;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serac_connection::SessionId;
use seracdb::{Frame, FrameProvider, FrameRows, SqlError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The code that runs a statement.
pub struct Caller(Mutex<Option<Py<PyAny>>>);

impl Caller {
    /// Forgets it, as its statement has ended: its variables live no longer than they do without.
    pub fn end(&self, _: Python<'_>) {
        let frame = self.0.lock().take();
        drop(frame);
    }
}

/// The frames that a connection's statements find.
pub struct Frames {
    session: SessionId,
    /// The registered ones, by name.
    registered: Py<PyDict>,
    /// Whether the caller's variables are looked at. Relaxed: it counts for the statements that
    /// begin after it was set, in the same thread.
    scans_variables: AtomicBool,
    /// The caller of the running statement.
    caller: Mutex<Option<Arc<Caller>>>,
}

impl Frames {
    /// No frames.
    pub fn new(py: Python<'_>, session: SessionId, scans_variables: bool) -> Arc<Self> {
        Arc::new(Self {
            session,
            registered: PyDict::new(py).unbind(),
            scans_variables: scans_variables.into(),
            caller: Mutex::default(),
        })
    }

    /// Shows the registered frames to Python's collector: they may refer to the connection.
    ///
    /// # Errors
    /// The collector's.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.registered)
    }

    /// The registered frames.
    pub fn registered<'py>(&self, py: Python<'py>) -> &Bound<'py, PyDict> {
        self.registered.bind(py)
    }

    /// Whether the variables of callers are looked at.
    pub fn scans_variables(&self) -> bool {
        self.scans_variables.load(Ordering::Relaxed)
    }

    /// Sets whether they are.
    pub fn set_scans_variables(&self, scans: bool) {
        self.scans_variables.store(scans, Ordering::Relaxed);
    }

    /// The code that runs a statement, for [`begin`](Self::begin); `None` if the connection does not
    /// look at variables.
    ///
    /// # Errors
    /// If the package is not whole.
    pub fn caller(&self, py: Python<'_>) -> PyResult<Option<Arc<Caller>>> {
        if !self.scans_variables() {
            return Ok(None);
        }
        let frame = PythonTypes::get(py)?.caller.bind(py).call0()?;
        Ok((!frame.is_none()).then(|| Arc::new(Caller(Mutex::new(Some(frame.unbind()))))))
    }

    /// A statement of the caller begins, and ends when the result is dropped. For the thread that
    /// has the session.
    pub fn begin(&self, caller: Arc<Caller>) -> CallersStatement<'_> {
        *self.caller.lock() = Some(caller);
        CallersStatement(self)
    }

    fn find(&self, py: Python<'_>, name: &str) -> PyResult<Option<PythonFrame>> {
        let caller = self.caller.lock().clone();
        let caller = caller.and_then(|caller| caller.0.lock().as_ref().map(|frame| frame.clone_ref(py)));
        let found = PythonTypes::get(py)?.find_frame.bind(py).call1((name, &self.registered, caller))?;
        if found.is_none() { Ok(None) } else { PythonFrame::new(self.session, &found).map(Some) }
    }
}

/// A statement that finds the variables of its caller, until this is dropped.
pub struct CallersStatement<'f>(&'f Frames);

impl Drop for CallersStatement<'_> {
    fn drop(&mut self) {
        *self.0.caller.lock() = None;
    }
}

fn frame_named(name: &str) -> String {
    format!("the frame \"{name}\"")
}

impl FrameProvider for Frames {
    fn frame(&self, name: &str) -> Result<Option<Arc<dyn Frame>>, SqlError> {
        let found = callback::call(self.session, |py| {
            self.find(py, name).map_err(|exception| callback::told_of_frame(py, &exception, &frame_named(name)))
        })?;
        Ok(found.map(|frame| Arc::new(frame) as Arc<dyn Frame>))
    }
}

/// A frame that a statement has found.
struct PythonFrame {
    session: SessionId,
    name: String,
    /// A `LentFrame`.
    lent: Py<PyAny>,
    schema: SchemaRef,
    rows: Option<usize>,
    /// The rows that were opened to learn their columns.
    opened: Mutex<Option<Batches>>,
}

impl PythonFrame {
    fn new(session: SessionId, lent: &Bound<'_, PyAny>) -> PyResult<Self> {
        let name: String = lent.getattr("name")?.extract()?;
        let rows: Option<usize> = lent.getattr("rows")?.extract()?;
        let once: bool = lent.getattr("once")?.extract()?;
        // A frame that can be read once is opened when it is read: describing does not open it.
        let teller = if once { lent.call_method0("schema")? } else { lent.py().None().into_bound(lent.py()) };
        let (schema, opened) = match teller.is_none() {
            false => (Arc::new(arrow_io::schema_of(&teller)?), None),
            true => {
                let frame = arrow_io::frame(&lent.call_method0("take")?)?;
                (frame.schema, Some(frame.batches))
            }
        };
        let (lent, opened) = (lent.clone().unbind(), Mutex::new(opened));
        Ok(Self { session, name, lent, schema, rows, opened })
    }
}

/// The names and types of columns, which all readings of a frame share.
fn columns(schema: &Schema) -> impl Iterator<Item = (&str, &DataType)> {
    schema.fields().iter().map(|field| (field.name().as_str(), field.data_type()))
}

impl Frame for PythonFrame {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn row_count(&self) -> Option<usize> {
        self.rows
    }

    fn read(&self) -> Result<FrameRows, SqlError> {
        let opened = self.opened.lock().take();
        let batches = match opened {
            Some(opened) => opened,
            None => {
                let again = |py: Python<'_>| arrow_io::frame(&self.lent.bind(py).call_method0("take")?);
                let again = callback::call(self.session, |py| {
                    again(py).map_err(|exception| callback::told_of_frame(py, &exception, &frame_named(&self.name)))
                })?;
                if !columns(&again.schema).eq(columns(&self.schema)) {
                    let message = format!("the columns of {} have changed meanwhile", frame_named(&self.name));
                    return Err(SqlError::new(sqlstate::DATATYPE_MISMATCH, message).named(&self.name));
                }
                again.batches
            }
        };
        Ok(Box::new(Rows::new(self.session, frame_named(&self.name), &self.name, batches)))
    }
}

/// Rows that the program gives as Arrow. The next ones may be made by Python code, which takes
/// Python's lock itself.
pub struct Rows {
    session: SessionId,
    /// The kind of their source, for messages, and its name.
    what: String,
    name: String,
    /// `None` once they are dropped.
    batches: Option<Batches>,
}

impl Rows {
    /// Rows for a statement of the session.
    pub fn new(session: SessionId, what: String, name: &str, batches: Batches) -> Self {
        Self { session, what, name: name.to_owned(), batches: Some(batches) }
    }
}

impl Iterator for Rows {
    type Item = Result<RecordBatch, SqlError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batches = self.batches.as_mut()?;
        let Some(_inside) = Inside::enter() else { return Some(Err(ending::refused().named(&self.name))) };
        let next = self.session.amid(|| batches.next())?;
        Some(next.map_err(|error| {
            let error = match &error {
                ArrowError::ExternalError(inner) => inner.downcast_ref::<SqlError>().cloned(),
                _ => None,
            }
            .unwrap_or_else(|| {
                let message = format!("{} has failed: {error}", self.what);
                SqlError::new(sqlstate::EXTERNAL_ROUTINE_EXCEPTION, message)
            });
            error.named(&self.name)
        }))
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        // Python code that cleans up is code of the statement, too.
        let _running = self.session.enter();
        match Inside::enter() {
            Some(_inside) => self.batches = None,
            None => std::mem::forget(self.batches.take()),
        }
    }
}
