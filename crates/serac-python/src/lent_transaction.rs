//! The transaction of a statement, lent to Python code that the statement calls.
//!
//! The statement has the transaction by a unique reference, which it lends until the call ends
//! ([`LentTransaction::lend`]). Objects of Python may live longer, and go to other threads: they
//! reach the transaction through a lock, and are refused once the statement has taken it back.
//!
//! No thread waits for that lock while it has Python's, but the one that takes the transaction
//! back; and no thread that has the lock waits for Python's.

use crate::{ending, error};
use parking_lot::Mutex;
use pyo3::prelude::*;
use seracdb::engine::{EngineError, Transaction};
use seracdb::{RunningStatement, SqlError};
use std::ptr::NonNull;
use std::sync::Arc;

/// A transaction while its statement calls Python code.
pub struct LentTransaction {
    /// From the reference of the lender; `None` once that has taken it back.
    txn: Mutex<Option<NonNull<Transaction>>>,
    /// The statement; `None` if the transaction belongs to no statement.
    statement: Option<RunningStatement>,
    /// The last error of the transaction, and the exception as which the code has seen it.
    raised: Mutex<Option<(Py<PyAny>, EngineError)>>,
}

/// A transaction may be used from any thread, as [`LentTransaction`] lets it.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Transaction>();
};

// SAFETY: the transaction behind the pointer moves between threads ([`Transaction`] is `Send`), and
// is reached under the lock alone, by one thread at a time.
unsafe impl Send for LentTransaction {}
// SAFETY: as above.
unsafe impl Sync for LentTransaction {}

/// Why a lent transaction cannot be used.
enum Unusable {
    Ended,
    InUse,
}

impl Unusable {
    fn exception(self) -> PyErr {
        match self {
            Self::Ended => error::interface("the procedure has ended, and its transaction cannot be used any more"),
            Self::InUse => {
                error::programming(sqlstate::OBJECT_IN_USE, "another thread uses the transaction of the procedure")
            }
        }
    }
}

impl LentTransaction {
    /// Lends a transaction to `work`.
    pub fn lend<T>(
        txn: &mut Transaction,
        statement: Option<RunningStatement>,
        work: impl FnOnce(&Arc<Self>) -> T,
    ) -> T {
        /// Takes it back, also after a panic.
        struct Borrower(Arc<LentTransaction>);
        impl Drop for Borrower {
            fn drop(&mut self) {
                // Waits for a thread that is using it.
                self.0.txn.lock().take();
                let raised = self.0.raised.lock().take();
                // Without the lock: an exception that goes may run code of Python.
                drop(raised);
            }
        }
        let txn = Mutex::new(Some(NonNull::from(txn)));
        let borrower = Borrower(Arc::new(Self { txn, statement, raised: Mutex::default() }));
        work(&borrower.0)
    }

    /// The statement that the code belongs to.
    pub fn statement(&self) -> Option<&RunningStatement> {
        self.statement.as_ref()
    }

    /// Uses the transaction.
    fn with<T>(&self, work: impl FnOnce(&mut Transaction) -> T) -> Result<T, Unusable> {
        let mut txn = self.txn.try_lock().ok_or(Unusable::InUse)?;
        let txn = txn.as_mut().ok_or(Unusable::Ended)?;
        // SAFETY: the pointer comes from the unique reference of `lend`, which does not use it
        // before it has taken the pointer out, under the lock that is held here. No other call has
        // the lock, so this is the only reference.
        Ok(work(unsafe { txn.as_mut() }))
    }

    /// Runs `work` on the transaction. Python's lock is released only where `work` waits for a lock
    /// of the database: then it is tried a second time.
    ///
    /// # Errors
    /// The exception of the error of `work`; that of a transaction which has gone, or is in use.
    pub fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl Fn(&mut Transaction) -> Result<T, EngineError> + Send + Sync,
    ) -> PyResult<T> {
        let without_waiting = |txn: &mut Transaction| {
            let timeout = txn.lock_timeout();
            txn.set_lock_timeout(std::time::Duration::ZERO);
            let done = work(txn);
            txn.set_lock_timeout(timeout);
            done
        };
        match self.with(without_waiting) {
            Ok(Err(EngineError::InUse(_))) => self.run_released(py, work),
            done => self.told(py, done),
        }
    }

    /// The same with Python's lock released all the time, for work that takes long.
    ///
    /// # Errors
    /// As there.
    pub fn run_released<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Transaction) -> Result<T, EngineError> + Send,
    ) -> PyResult<T> {
        let done = ending::released(py, || self.with(work));
        self.told(py, done)
    }

    fn told<T>(&self, py: Python<'_>, done: Result<Result<T, EngineError>, Unusable>) -> PyResult<T> {
        let error = match done {
            Err(unusable) => return Err(unusable.exception()),
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => error,
        };
        let exception = error::of_sql(py, &SqlError::from(&error));
        let raised = (exception.value(py).clone().into_any().unbind(), error);
        let before = self.raised.lock().replace(raised);
        drop(before);
        Err(exception)
    }

    /// The error of the transaction that the code has seen as this exception.
    pub fn error_of(&self, py: Python<'_>, exception: &PyErr) -> Option<EngineError> {
        let raised = self.raised.lock().take();
        let (seen, error) = raised?;
        seen.bind(py).is(exception.value(py)).then_some(error)
    }
}
