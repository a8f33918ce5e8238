//! The variables of a client.

use crate::error::{OperatorError, Result};
use crate::memory::{Memory, Taken};
use crate::values::Values;
use arrow_array::{Float64Array, Int64Array};
use serac_operators::selection::Selection;
use serac_storage::{DataTable, RowPin, TableId};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes that a name costs beside its variable.
pub(crate) const NAME_BYTES: u64 = 64;

/// The pinned rows of a table in which positions were found. A row id names one row as long as this
/// lives. It does not keep the data of a dropped table in memory.
#[derive(Debug)]
pub struct TableRows {
    pin: RowPin,
    id: TableId,
    /// "database.table", for messages.
    pub(crate) name: String,
}

impl TableRows {
    /// Pins a table's rows. Called before the snapshot is taken in which positions are found.
    pub(crate) fn new(data: &Arc<DataTable>, name: String) -> Arc<Self> {
        Arc::new(Self { pin: data.pin_rows(), id: data.id(), name })
    }

    /// The rows.
    ///
    /// # Errors
    /// [`OperatorError::RowsGone`] when the table was dropped or rewritten.
    pub fn data(&self) -> Result<Arc<DataTable>> {
        self.pin.table().ok_or_else(|| OperatorError::RowsGone(self.name.clone()))
    }

    /// The number of the data: another one after the table's rows were written anew.
    pub fn id(&self) -> TableId {
        self.id
    }
}

/// The object that positions belong to.
#[derive(Clone, Debug)]
pub enum Origin {
    /// A table: they are row ids.
    Table(Arc<TableRows>),
    /// A value vector: they are places, from 0.
    Vector,
}

/// A position vector. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Positions {
    /// The object that they belong to.
    pub origin: Origin,
    /// The positions.
    pub selection: Arc<Selection>,
}

impl Positions {
    /// Positions.
    pub fn new(origin: Origin, selection: Selection) -> Self {
        Self { origin, selection: Arc::new(selection) }
    }

    /// The number of positions.
    pub fn len(&self) -> u64 {
        self.selection.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A moment: on the clock that never goes back, and since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub(crate) instant: Instant,
    pub(crate) since_1970: Duration,
}

impl Moment {
    /// Now.
    pub fn now() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { instant: Instant::now(), since_1970 }
    }
}

/// The content of a variable. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Variable {
    /// Of `select`, `join`, and the first result of a two-result aggregate.
    Positions(Positions),
    /// Of `fetch`, `add`, `sub`.
    Values(Values),
    /// Of `min`, `max`, `sum` of integers: a value vector of length 1.
    Scalar(i64),
    /// Of `avg`: a value vector of length 1, printed with two decimals.
    Decimal(f64),
    /// Of `time()`.
    Instant(Moment),
    /// Of `time(t)`.
    Duration(Duration),
}

impl Variable {
    /// Its kind, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Positions(_) => "a position vector",
            Self::Values(_) => "a value vector",
            Self::Scalar(_) => "a number",
            Self::Decimal(_) => "a decimal",
            Self::Instant(_) => "an instant",
            Self::Duration(_) => "a duration",
        }
    }

    /// The number of rows that it prints.
    pub fn rows(&self) -> u64 {
        match self {
            Self::Positions(positions) => positions.len(),
            Self::Values(values) => values.len() as u64,
            Self::Scalar(_) | Self::Decimal(_) | Self::Instant(_) | Self::Duration(_) => 1,
        }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> u64 {
        let held = match self {
            Self::Positions(positions) => {
                // Several selections may share a base, which counts for each: rather too much than
                // too little.
                let base = match &*positions.selection {
                    Selection::Bits { base, .. } | Selection::Inverse { base, .. } => base.bytes(),
                    Selection::List(_) | Selection::Range(_) => 0,
                };
                positions.selection.bytes() + base
            }
            Self::Values(values) => values.bytes(),
            _ => 0,
        };
        (held + size_of::<Self>()) as u64
    }

    fn wrong_kind<T>(&self, name: &str, expected: &str) -> Result<T> {
        let what = format!("\"{name}\"");
        Err(OperatorError::WrongKind { what, found: self.kind().into(), expected: expected.into() })
    }

    /// Its numbers, if it holds numbers.
    ///
    /// # Errors
    /// [`OperatorError::WrongKind`], about the variable `name`.
    pub fn values(&self, name: &str) -> Result<Values> {
        match self {
            Self::Values(values) => Ok(values.clone()),
            Self::Scalar(value) => Ok(Values::Integers(Int64Array::from(vec![*value]))),
            Self::Decimal(value) => Ok(Values::Floats(Float64Array::from(vec![*value]))),
            other => other.wrong_kind(name, "a value vector"),
        }
    }

    /// Its positions, if it holds positions.
    ///
    /// # Errors
    /// [`OperatorError::WrongKind`], about the variable `name`.
    pub fn positions(&self, name: &str) -> Result<&Positions> {
        match self {
            Self::Positions(positions) => Ok(positions),
            other => other.wrong_kind(name, "a position vector"),
        }
    }

    /// Its instant.
    ///
    /// # Errors
    /// [`OperatorError::WrongKind`], about the variable `name`.
    pub fn instant(&self, name: &str) -> Result<Moment> {
        match self {
            Self::Instant(moment) => Ok(*moment),
            other => other.wrong_kind(name, "an instant"),
        }
    }
}

/// A variable, and the memory that it takes.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) variable: Variable,
    _taken: Taken,
}

impl Held {
    /// # Errors
    /// [`OperatorError::OutOfMemory`].
    pub(crate) fn new(memory: &Arc<Memory>, name: &str, variable: Variable) -> Result<Self> {
        let taken = memory.take(variable.bytes() + name.len() as u64 + NAME_BYTES)?;
        Ok(Self { variable, _taken: taken })
    }
}
