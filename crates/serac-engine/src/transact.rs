//! Transactions as functions that run again when a concurrent transaction got in the way: those of
//! the caller, and named [`Procedure`]s.

use crate::catalog::procedure::{Procedure, RetryPolicy};
use crate::database::Database;
use crate::error::Result;
use crate::transaction::Transaction;
use arrow_array::RecordBatch;
use serac_storage::{CommitTicket, Value};
use std::sync::Arc;

impl Database {
    /// Runs `body` in a transaction, commits it, and waits until the commit is durable. After a
    /// conflict (SQLSTATE 40001) everything is rolled back and `body` runs again in a new snapshot.
    /// So `body` must not have effects of its own. An error of `body`'s rolls back and is returned.
    ///
    /// # Errors
    /// The errors of `body` and of the commit; a conflict, when all attempts of the default
    /// [`RetryPolicy`] have met one.
    pub fn transact<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        let (value, ticket) = self.transact_with(&RetryPolicy::default(), body)?;
        ticket.wait()?;
        Ok(value)
    }

    /// As [`transact`](Self::transact), under a policy of the caller's. The caller also waits for
    /// durability. Before the ticket says so, no data that `body` has read or written may leave the
    /// process.
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub fn transact_with<T>(
        &self,
        policy: &RetryPolicy,
        mut body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<(T, CommitTicket)> {
        let mut failed = 0;
        loop {
            let mut txn = self.begin();
            let outcome = body(&mut txn).and_then(|value| Ok((value, txn.commit()?)));
            failed += 1;
            match outcome {
                Err(error) if error.is_conflict() && failed < policy.attempts => policy.wait(failed),
                outcome => return outcome,
            }
        }
    }

    /// Gives a procedure a name, in place of the one that had it.
    pub fn register_procedure(&self, name: impl Into<String>, procedure: Procedure) {
        self.0.procedures.register(name.into(), procedure);
    }

    /// Takes a procedure's name away; whether there was one of it. Calls that run go on.
    pub fn unregister_procedure(&self, name: &str) -> bool {
        self.0.procedures.unregister(name)
    }

    /// The procedure with this name.
    ///
    /// # Errors
    /// [`EngineError::Missing`](crate::EngineError::Missing).
    pub fn procedure(&self, name: &str) -> Result<Arc<Procedure>> {
        self.0.procedures.find(name)
    }

    /// The names of all procedures, sorted.
    pub fn procedure_names(&self) -> Vec<String> {
        self.0.procedures.names()
    }

    /// Runs a named procedure as a transaction of its own, as [`transact`](Self::transact) does,
    /// and returns its rows.
    ///
    /// # Errors
    /// [`EngineError::Missing`](crate::EngineError::Missing);
    /// [`EngineError::InvalidCall`](crate::EngineError::InvalidCall) for arguments that do not fit;
    /// the procedure's own errors.
    pub fn call(&self, name: &str, arguments: &[Value<'_>]) -> Result<RecordBatch> {
        let procedure = self.procedure(name)?;
        self.transact(|txn| procedure.run(name, txn, arguments))
    }
}
