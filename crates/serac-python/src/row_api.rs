//! Rows of tables by key, without SQL: the classes `RowTransaction` and `RowTable`.
//!
//! They work in the transaction of a procedure's call, or in the one that a connection has open.
//! A procedure has all rights, as every procedure has; a connection those of its user. Values of
//! columns are assigned as in SQL, defaults and generated columns are computed, and all constraints
//! hold.

use crate::error::{self, IntoPython};
use crate::lent_transaction::LentTransaction;
use crate::objects;
use crate::parameters;
use crate::procedures;
use crate::python_types::PythonTypes;
use crate::session::Core;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMapping, PyString, PyTuple};
use seracdb::engine::catalog::definition::{ColumnDefinition, SqlType};
use seracdb::engine::security::{Access, Object, Privilege};
use seracdb::engine::values::{OwnedValue, value_at};
use seracdb::engine::{Catalog, ColumnUpdate, EngineError, IndexAccess, KeyRange, Table, TableIndex, Transaction};
use seracdb::{RowBuffer, RunningStatement, ScalarValue, SqlError, TransactionStatus, Value, columns};
use smallvec::SmallVec;
use std::ops::{Bound as Limit, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows that a scan gives at most.
const MOST_ROWS: usize = 1 << 20;
/// Rows between two looks at whether the statement still runs.
const BETWEEN_CHECKS: usize = 256;

/// Values of a key, or of some columns.
type Values = SmallVec<[OwnedValue; 4]>;

/// The transaction in which rows are read and written.
enum Source {
    /// That of a procedure's call.
    Lent(Arc<LentTransaction>),
    /// The one that a connection has open.
    Session { core: Arc<Core>, has_ended: AtomicBool },
}

/// Whether work on rows takes so long that Python's lock is released for it in any case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Read,
    LongRead,
    Write,
}

impl Source {
    /// Runs `work`, which gets the privileges that it must check; `None` if it has all.
    fn run<T: Send + 'static>(
        &self,
        py: Python<'_>,
        kind: Work,
        work: impl Fn(&mut Transaction, Option<&Access>) -> Result<T, EngineError> + Send + Sync + 'static,
    ) -> PyResult<T> {
        match self {
            Self::Lent(lent) => {
                procedures::check(py, lent)?;
                match kind {
                    Work::LongRead => lent.run_released(py, |txn| work(txn, None)),
                    Work::Read | Work::Write => lent.run(py, |txn| work(txn, None)),
                }
            }
            Self::Session { core, has_ended } => {
                // Relaxed: threads that share a connection agree on their own on its transactions.
                if has_ended.load(Ordering::Relaxed) {
                    return Err(error::interface("the transaction has ended"));
                }
                core.run(py, move |locked, runtime| {
                    let session = locked.idle();
                    if session.transaction_status() == TransactionStatus::Idle {
                        let message = "the transaction has ended: begin another one";
                        return Err(SqlError::new(sqlstate::NO_ACTIVE_SQL_TRANSACTION, message));
                    }
                    let writes = kind == Work::Write;
                    runtime.block_on(session.run_on_rows(writes, |txn, access| work(txn, Some(access))))
                })
            }
        }
    }
}

/// A transaction without SQL: that of a procedure, or one of a connection.
#[pyclass(frozen, weakref, module = "seracdb")]
pub struct RowTransaction {
    source: Arc<Source>,
}

impl RowTransaction {
    /// The transaction of a procedure's call.
    pub fn lent(lent: &Arc<LentTransaction>) -> Self {
        Self { source: Arc::new(Source::Lent(lent.clone())) }
    }
}

#[pymethods]
impl RowTransaction {
    /// The transaction that a connection has open.
    #[new]
    fn new(py: Python<'_>, connection: &Bound<'_, crate::connection::Connection>) -> PyResult<Self> {
        let core = connection.get().core().clone();
        core.check(py)?;
        Ok(Self { source: Arc::new(Source::Session { core, has_ended: AtomicBool::new(false) }) })
    }

    /// A table, by its name as it is.
    #[pyo3(signature = (name, *, schema="public"))]
    fn table(&self, name: String, schema: &str) -> RowTable {
        RowTable { source: self.source.clone(), schema: schema.to_owned(), name }
    }

    /// Ends the use of a connection's transaction.
    fn _end(&self) {
        if let Source::Session { has_ended, .. } = &*self.source {
            has_ended.store(true, Ordering::Relaxed);
        }
    }

    fn __repr__(&self) -> &'static str {
        "<seracdb.RowTransaction>"
    }
}

/// A table as the transaction knows it.
#[derive(Clone)]
struct Known {
    catalog: Arc<Catalog>,
    table: Arc<Table>,
}

impl Known {
    fn definition(&self, at: usize) -> &ColumnDefinition {
        &self.table.definition.columns[at]
    }

    fn column(&self, name: &str) -> Result<usize, SqlError> {
        let found = self.table.definition.column(name).filter(|&at| !self.definition(at).hidden);
        found.ok_or_else(|| SqlError::no_column(name, self.table.name()))
    }

    /// The positions of the named columns; of all, without names.
    fn columns(&self, py: Python<'_>, names: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<usize>> {
        let Some(names) = names.filter(|names| !names.is_none()) else {
            let all = &self.table.definition.columns;
            return Ok((0..all.len()).filter(|&at| !all[at].hidden).collect());
        };
        if names.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("columns are a list of names"));
        }
        names.try_iter()?.map(|name| self.column(&name?.extract::<String>()?).python(py)).collect()
    }

    /// The index of a name; without one, that of the primary key.
    fn index(&self, name: Option<&str>) -> Result<Arc<TableIndex>, SqlError> {
        let wanted = |index: &&Arc<TableIndex>| match name {
            Some(name) => index.definition.name == name,
            None => index.definition.primary,
        };
        let index = self.table.indexes.iter().find(wanted).ok_or_else(|| match name {
            Some(name) => {
                let message = format!("table \"{}\" has no index \"{name}\"", self.table.name());
                SqlError::new(sqlstate::UNDEFINED_OBJECT, message).named(name)
            }
            None => {
                let message = format!("table \"{}\" has no primary key: name an index", self.table.name());
                SqlError::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            }
        })?;
        let of_expressions = index.definition.expressions.iter().any(Option::is_some);
        if of_expressions || index.definition.predicate.is_some() {
            return Err(SqlError::unsupported("rows by an index of expressions, or of some rows"));
        }
        Ok(index.clone())
    }

    /// The index by whose whole key there is one row at most.
    fn unique_index(&self, name: Option<&str>) -> Result<Arc<TableIndex>, SqlError> {
        let index = self.index(name)?;
        if index.definition.unique {
            return Ok(index);
        }
        let message = format!("the index \"{}\" is not unique: use scan()", index.definition.name);
        Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message).named(&index.definition.name))
    }

    /// Values of the first columns of an index: a tuple of them, or one.
    fn key(&self, index: &TableIndex, key: &Bound<'_, PyAny>, is_whole: bool) -> PyResult<Values> {
        let key_columns = &index.definition.columns;
        let parts: SmallVec<[Bound<'_, PyAny>; 4]> = match key.cast::<PyTuple>() {
            Ok(tuple) => tuple.iter().collect(),
            Err(_) => SmallVec::from_iter([key.clone()]),
        };
        if parts.len() > key_columns.len() || (is_whole && parts.len() < key_columns.len()) {
            let (name, wanted, given) = (&index.definition.name, key_columns.len(), parts.len());
            let message = format!("a key of \"{name}\" has {wanted} values, {given} are given");
            return Err(error::programming(sqlstate::DATATYPE_MISMATCH, &message));
        }
        parts.iter().zip(key_columns).map(|(part, &at)| compared(part, self.definition(at).sql_type)).collect()
    }

    /// Values of columns by their names.
    fn assigned(&self, values: &Bound<'_, PyAny>) -> PyResult<(Vec<usize>, Values)> {
        let py = values.py();
        let wrong = |_| PyTypeError::new_err("a row is a dict: the values of columns by their names");
        let (mut columns, mut fields) = (Vec::new(), Values::new());
        for item in values.cast::<PyMapping>().map_err(wrong)?.items()?.iter() {
            let (name, object): (String, Bound<'_, PyAny>) = item.extract()?;
            let at = self.column(&name).python(py)?;
            let definition = self.definition(at);
            fields.push(assigned(&object, definition.sql_type, &definition.name)?);
            columns.push(at);
        }
        Ok((columns, fields))
    }

    fn check(&self, access: Option<&Access>, privilege: Privilege, columns: &[usize]) -> Result<(), EngineError> {
        access.map_or(Ok(()), |access| access.check_columns(&self.table.definition, privilege, columns))
    }

    /// A row of these columns as a dict.
    fn row<'py>(&self, py: Python<'py>, columns: &[usize], row: &[OwnedValue]) -> PyResult<Bound<'py, PyDict>> {
        let types = PythonTypes::get(py)?;
        let dict = PyDict::new(py);
        for (&at, value) in columns.iter().zip(row) {
            let definition = self.definition(at);
            let object = objects::object(py, types, value.as_value(), definition.sql_type.column_type)?;
            dict.set_item(&definition.name, object)?;
        }
        Ok(dict)
    }
}

/// An object as a column takes it that it is assigned to.
///
/// # Errors
/// As in SQL, and for an object that is no value of SQL.
pub fn assigned(object: &Bound<'_, PyAny>, of: SqlType, column: &str) -> PyResult<OwnedValue> {
    let py = object.py();
    let types = PythonTypes::get(py)?;
    if let Some(exact) = parameters::exact(types, object, of.column_type)? {
        return Ok(OwnedValue::from(&exact.value()));
    }
    let scalar = match of.column_type.is_document() && !is_text_or_null(types, object)? {
        true => ScalarValue::Utf8(Some(types.json_dumps.bind(py).call1((object,))?.extract()?)),
        false => parameters::scalar(types, object)?,
    };
    let assigned = || -> Result<OwnedValue, SqlError> {
        if scalar.is_null() {
            return Ok(OwnedValue::Fixed(Value::Null));
        }
        let array = scalar.to_array()?;
        if !matches!(scalar, ScalarValue::Utf8(_)) {
            columns::check_assignment(array.data_type(), of, column)?;
        }
        let array = columns::assign(&array, of, column)?;
        Ok(OwnedValue::from(&value_at(&array, 0, of.column_type)))
    };
    assigned().python(py)
}

/// Whether a column of documents takes the object as SQL does: a text is one of JSON. Others become
/// documents themselves, lists too.
fn is_text_or_null(types: &PythonTypes, object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_text = object.is_none() || object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>();
    Ok(is_text || object.is_instance(types.json.bind(object.py()))?)
}

/// An object as a value that a column is compared with.
///
/// # Errors
/// `TypeError` if the column cannot have it.
fn compared(object: &Bound<'_, PyAny>, of: SqlType) -> PyResult<OwnedValue> {
    let py = object.py();
    let types = PythonTypes::get(py)?;
    let value = match parameters::exact(types, object, of.column_type)? {
        Some(exact) => OwnedValue::from(&exact.value()),
        None => {
            let constant: ScalarValue = parameters::constant(types, object, of.column_type)?;
            let array = constant.to_array().map_err(SqlError::from).python(py)?;
            OwnedValue::from(&value_at(&array, 0, of.column_type))
        }
    };
    Ok(match value {
        // Columns keep no blanks at the end.
        OwnedValue::Bytes(text) if of.fixed_length => OwnedValue::Bytes(without_blanks(&text).into()),
        value => value,
    })
}

fn without_blanks(text: &[u8]) -> &[u8] {
    let kept = text.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
    &text[..kept]
}

fn values(owned: &[OwnedValue]) -> SmallVec<[Value<'_>; 8]> {
    owned.iter().map(OwnedValue::as_value).collect()
}

/// The first values of a row that was read.
fn first(buffer: &RowBuffer, count: usize) -> Vec<OwnedValue> {
    (0..count).map(|at| OwnedValue::from(&buffer.value(at))).collect()
}

/// A table, row by row.
#[pyclass(frozen, weakref, module = "seracdb")]
pub struct RowTable {
    source: Arc<Source>,
    #[pyo3(get)]
    schema: String,
    #[pyo3(get)]
    name: String,
}

impl RowTable {
    fn known(&self, py: Python<'_>) -> PyResult<Known> {
        let (schema, name) = (self.schema.clone(), self.name.clone());
        self.source.run(py, Work::Read, move |txn, access| {
            access.map_or(Ok(()), |access| access.check_usage(&schema))?;
            let catalog = txn.catalog().clone();
            let table = catalog.table(&schema, &name)?.clone();
            Ok(Known { catalog, table })
        })
    }
}

#[pymethods]
impl RowTable {
    /// The row with a key; None if there is none.
    #[pyo3(signature = (key, *, columns=None, index=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        columns: Option<&Bound<'py, PyAny>>,
        index: Option<&str>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let known = self.known(py)?;
        let index = known.unique_index(index).python(py)?;
        let (key, columns) = (known.key(&index, key, true)?, known.columns(py, columns)?);
        let (own, wanted) = (known.clone(), columns.clone());
        let row = self.source.run(py, Work::Read, move |txn, access| {
            own.check(access, Privilege::Select, &wanted)?;
            own.check(access, Privilege::Select, &index.definition.columns)?;
            let way = IndexAccess::new(&own.catalog, &own.table, &index, &wanted);
            let mut buffer = RowBuffer::default();
            Ok(txn.get(&way, &values(&key), &mut buffer)?.map(|_| first(&buffer, wanted.len())))
        })?;
        row.map(|row| known.row(py, &columns, &row)).transpose()
    }

    /// Inserts a row. Returns the columns of it that are asked for.
    #[pyo3(signature = (row, *, returning=None))]
    fn insert<'py>(
        &self,
        py: Python<'py>,
        row: &Bound<'py, PyAny>,
        returning: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let known = self.known(py)?;
        let (columns, fields) = known.assigned(row)?;
        let returning = returning.filter(|returning| !returning.is_none());
        let returning = returning.map(|names| known.columns(py, Some(names))).transpose()?;
        let (own, wanted) = (known.clone(), returning.clone());
        let row = self.source.run(py, Work::Write, move |txn, access| {
            own.check(access, Privilege::Insert, &columns)?;
            let Some(wanted) = &wanted else {
                txn.insert_given(&own.table, &columns, &values(&fields))?;
                return Ok(Vec::new());
            };
            own.check(access, Privilege::Select, wanted)?;
            let before = txn.savepoint();
            let inserted = txn.insert_given(&own.table, &columns, &values(&fields))?;
            let mut buffer = RowBuffer::default();
            txn.read_row(&own.table, inserted, &mut buffer)?;
            let returned = wanted.iter().map(|&at| {
                let value = buffer.value(at);
                objects::check(value, own.definition(at).sql_type.column_type)?;
                Ok(OwnedValue::from(&value))
            });
            let returned: Result<Vec<_>, SqlError> = returned.collect();
            returned.map_err(|error| {
                // A caller that gets an error finds no row.
                txn.rollback_to(&before);
                procedures::into_engine(error)
            })
        })?;
        returning.map(|columns| known.row(py, &columns, &row)).transpose()
    }

    /// Updates columns of the row with a key. Whether there is one.
    #[pyo3(signature = (key, changes, *, index=None))]
    fn update(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        changes: &Bound<'_, PyAny>,
        index: Option<&str>,
    ) -> PyResult<bool> {
        let known = self.known(py)?;
        let index = known.unique_index(index).python(py)?;
        let key = known.key(&index, key, true)?;
        let (columns, fields) = known.assigned(changes)?;
        if columns.is_empty() {
            return Err(PyValueError::new_err("an update changes a column at least"));
        }
        self.source.run(py, Work::Write, move |txn, access| {
            known.check(access, Privilege::Update, &columns)?;
            known.check(access, Privilege::Select, &index.definition.columns)?;
            let way = IndexAccess::new(&known.catalog, &known.table, &index, &[]);
            let Some(row) = txn.get(&way, &values(&key), &mut RowBuffer::default())? else { return Ok(false) };
            let plan = ColumnUpdate::new(&known.catalog, &known.table, &columns);
            txn.update_given(&plan, row, &values(&fields))?;
            Ok(true)
        })
    }

    /// Deletes the row with a key. Whether there was one.
    #[pyo3(signature = (key, *, index=None))]
    fn delete(&self, py: Python<'_>, key: &Bound<'_, PyAny>, index: Option<&str>) -> PyResult<bool> {
        let known = self.known(py)?;
        let index = known.unique_index(index).python(py)?;
        let key = known.key(&index, key, true)?;
        self.source.run(py, Work::Write, move |txn, access| {
            if let Some(access) = access {
                let definition = &known.table.definition;
                access.check(&Object::relation(&definition.schema, &definition.name), Privilege::Delete)?;
            }
            known.check(access, Privilege::Select, &index.definition.columns)?;
            known.table.check_changeable()?;
            let way = IndexAccess::new(&known.catalog, &known.table, &index, &[]);
            let Some(row) = txn.get(&way, &values(&key), &mut RowBuffer::default())? else { return Ok(false) };
            txn.delete(&known.table, row)?;
            Ok(true)
        })
    }

    /// The rows of a range of keys, in the order of the index.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, columns=None, index=None, reverse=false, limit=1_000))]
    #[allow(clippy::too_many_arguments, reason = "the arguments of a call in Python, most of them by name")]
    fn scan<'py>(
        &self,
        py: Python<'py>,
        start: Option<&Bound<'py, PyAny>>,
        stop: Option<&Bound<'py, PyAny>>,
        prefix: Option<&Bound<'py, PyAny>>,
        columns: Option<&Bound<'py, PyAny>>,
        index: Option<&str>,
        reverse: bool,
        limit: usize,
    ) -> PyResult<Vec<Bound<'py, PyDict>>> {
        if limit > MOST_ROWS {
            return Err(PyValueError::new_err(format!("a scan gives at most {MOST_ROWS} rows")));
        }
        let known = self.known(py)?;
        let index = known.index(index).python(py)?;
        let equal = prefix.map(|prefix| known.key(&index, prefix, false)).transpose()?.unwrap_or_default();
        let bound = |value: Option<&Bound<'py, PyAny>>| {
            let Some(value) = value.filter(|value| !value.is_none()) else { return Ok(None) };
            let Some(&at) = index.definition.columns.get(equal.len()) else {
                let message = "the prefix is the whole key, so there is no range behind it";
                return Err(error::programming(sqlstate::DATATYPE_MISMATCH, message));
            };
            compared(value, known.definition(at).sql_type).map(Some)
        };
        let (start, stop, columns) = (bound(start)?, bound(stop)?, known.columns(py, columns)?);
        let (own, wanted) = (known.clone(), columns.clone());
        let rows = self.source.run(py, Work::LongRead, move |txn, access| {
            own.check(access, Privilege::Select, &wanted)?;
            own.check(access, Privilege::Select, &index.definition.columns)?;
            let equal = values(&equal);
            let mut range = KeyRange::prefix(&equal);
            if let Some(start) = &start {
                range = range.from(Limit::Included(start.as_value()));
            }
            if let Some(stop) = &stop {
                range = range.to(Limit::Excluded(stop.as_value()));
            }
            if reverse {
                range = range.backwards();
            }
            let way = IndexAccess::new(&own.catalog, &own.table, &index, &wanted);
            let (mut rows, mut buffer) = (Vec::new(), RowBuffer::default());
            let statement = RunningStatement::of_this_thread();
            if limit == 0 {
                return Ok(rows);
            }
            txn.scan(&way, &range, &mut buffer, |_, buffer| {
                rows.push(first(buffer, wanted.len()));
                if rows.len() % BETWEEN_CHECKS == 0
                    && statement.as_ref().is_some_and(|statement| statement.check().is_err())
                {
                    return Err(EngineError::Cancelled);
                }
                Ok(if rows.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            })?;
            Ok(rows)
        })?;
        rows.iter().map(|row| known.row(py, &columns, row)).collect()
    }

    fn __repr__(&self) -> String {
        format!("<seracdb.RowTable {}.{}>", self.schema, self.name)
    }
}
