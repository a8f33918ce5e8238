//! Stored procedures: transactions as Rust functions with a signature, and a registry of those that
//! have a name.
//!
//! A server can [call](crate::Database::call) a [`Procedure`] by name with values from a client, and
//! return its rows as an Arrow batch. [`Database::transact`](crate::Database::transact) is for code
//! that is linked with the database.

use crate::catalog::Catalog;
use crate::error::{EngineError, Result, missing};
use crate::transaction::Transaction;
use crate::values::{OwnedValue, array_of};
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema};
use serac_storage::{ColumnType, Value};
use serac_sync::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How a transaction is tried again after a conflict: at once a few times, then after waits that
/// double and vary at random.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Attempts in all, at least one.
    pub attempts: u32,
    /// Attempts that follow their predecessor at once, or as soon as other threads have had their
    /// turn.
    pub eager: u32,
    /// The first wait after these.
    pub first_wait: Duration,
    /// The longest wait.
    pub longest_wait: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 100, eager: 4, first_wait: Duration::from_micros(20), longest_wait: Duration::from_millis(2) }
    }
}

impl RetryPolicy {
    /// Waits before the attempt after so many failed ones.
    pub(crate) fn wait(&self, failed: u32) {
        if failed <= self.eager {
            serac_sync::thread::yield_now();
            return;
        }
        let doubled = self.first_wait.saturating_mul(1 << (failed - self.eager - 1).min(16)).min(self.longest_wait);
        // Between half and all of it, so that transactions that met do not meet again.
        let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), failed) as f64 / u64::MAX as f64;
        serac_sync::thread::sleep(doubled.mul_f64(0.5 + random / 2.0));
    }
}

/// An object made from the catalog, for example an [`IndexAccess`](crate::IndexAccess), kept until
/// the catalog changes.
#[derive(Debug)]
pub struct Resolved<T>(Mutex<Option<(Arc<Catalog>, Arc<T>)>>);

impl<T> Default for Resolved<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Resolved<T> {
    /// The object that `make` makes of the transaction's catalog, or has made of it before.
    ///
    /// # Errors
    /// The errors of `make`.
    pub fn get(&self, txn: &Transaction, make: impl FnOnce(&Arc<Catalog>) -> Result<T>) -> Result<Arc<T>> {
        let mut kept = self.0.lock();
        match &*kept {
            Some((catalog, made)) if Arc::ptr_eq(catalog, txn.catalog()) => Ok(made.clone()),
            _ => {
                let made = Arc::new(make(txn.catalog())?);
                *kept = Some((txn.catalog().clone(), made.clone()));
                Ok(made)
            }
        }
    }
}

/// A named and typed parameter, or column of a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Name.
    pub name: String,
    /// Type.
    pub column_type: ColumnType,
}

impl Parameter {
    /// A parameter.
    pub fn new(name: impl Into<String>, column_type: ColumnType) -> Self {
        Self { name: name.into(), column_type }
    }
}

/// The rows that a procedure returns.
pub type Rows = Vec<Vec<OwnedValue>>;
type Body = dyn Fn(&mut Transaction, &[Value<'_>]) -> Result<Rows> + Send + Sync;

/// A named transaction.
pub struct Procedure {
    /// The parameters. Any value may be NULL.
    pub parameters: Vec<Parameter>,
    /// The columns of the rows that it returns.
    pub returns: Vec<Parameter>,
    body: Box<Body>,
}

impl std::fmt::Debug for Procedure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Procedure")
            .field("parameters", &self.parameters)
            .field("returns", &self.returns)
            .finish_non_exhaustive()
    }
}

impl Procedure {
    /// A procedure that runs `body`, again after conflicts.
    pub fn new(
        parameters: Vec<Parameter>,
        returns: Vec<Parameter>,
        body: impl Fn(&mut Transaction, &[Value<'_>]) -> Result<Rows> + Send + Sync + 'static,
    ) -> Self {
        Self { parameters, returns, body: Box::new(body) }
    }

    /// Runs the procedure in a transaction of the caller's, and returns its rows. `name` is its
    /// name in errors.
    ///
    /// # Errors
    /// [`EngineError::InvalidCall`] for arguments that do not fit, and the procedure's own errors.
    /// The caller must undo its changes so far.
    pub fn run(&self, name: &str, txn: &mut Transaction, arguments: &[Value<'_>]) -> Result<RecordBatch> {
        self.check(name, arguments)?;
        self.batch(&(self.body)(txn, arguments)?)
    }

    /// The columns of its rows.
    pub fn schema(&self) -> Schema {
        let field = |column: &Parameter| Field::new(&column.name, column.column_type.arrow(), true);
        Schema::new(self.returns.iter().map(field).collect::<Vec<_>>())
    }

    fn check(&self, name: &str, arguments: &[Value<'_>]) -> Result<()> {
        if arguments.len() != self.parameters.len() {
            return Err(EngineError::InvalidCall(format!(
                "procedure {name} takes {} arguments, but {} were given",
                self.parameters.len(),
                arguments.len()
            )));
        }
        for (parameter, argument) in self.parameters.iter().zip(arguments) {
            if !parameter.column_type.accepts(argument) {
                return Err(EngineError::InvalidCall(format!(
                    "argument {} of procedure {name} must be {}, not {argument:?}",
                    parameter.name,
                    crate::catalog::definition::SqlType::from(parameter.column_type)
                )));
            }
        }
        Ok(())
    }

    fn batch(&self, rows: &[Vec<OwnedValue>]) -> Result<RecordBatch> {
        let mut arrays = Vec::with_capacity(self.returns.len());
        for (i, column) in self.returns.iter().enumerate() {
            let values: Vec<OwnedValue> = rows.iter().filter_map(|row| row.get(i).cloned()).collect();
            let fits = |value: &OwnedValue| column.column_type.accepts(&value.as_value());
            if values.len() != rows.len() || !values.iter().all(fits) {
                return Err(EngineError::InvalidCall(format!(
                    "a procedure returned a value that is no {}",
                    column.name
                )));
            }
            arrays.push(array_of(&values, column.column_type));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let schema = Arc::new(self.schema());
        Ok(RecordBatch::try_new_with_options(schema, arrays, &options).map_err(serac_storage::StorageError::from)?)
    }
}

/// The named procedures of a database: code, so they are registered anew by each process.
#[derive(Debug, Default)]
pub(crate) struct Procedures(RwLock<BTreeMap<String, Arc<Procedure>>>);

impl Procedures {
    pub(crate) fn register(&self, name: String, procedure: Procedure) {
        let before = self.0.write().insert(name, Arc::new(procedure));
        // Without the lock: what the body holds may take long to drop.
        drop(before);
    }

    /// Whether there was one.
    pub(crate) fn unregister(&self, name: &str) -> bool {
        let before = self.0.write().remove(name);
        before.is_some()
    }

    /// # Errors
    /// [`EngineError::Missing`].
    pub(crate) fn find(&self, name: &str) -> Result<Arc<Procedure>> {
        self.0.read().get(name).map_or_else(|| missing("procedure", name), |found| Ok(found.clone()))
    }

    /// Sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.read().keys().cloned().collect()
    }
}
