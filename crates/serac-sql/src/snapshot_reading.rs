//! Reading tables as a whole, beside SQL, in a session's transaction: for images in shared memory.

use crate::error::{Result, SqlError};
use crate::limits::Limits;
use crate::session::Session;
use crate::transactions::OpenStatement;
use serac_engine::Transaction;
use serac_engine::security::Access;
use std::panic::AssertUnwindSafe;

/// A session's snapshot for reads beside SQL. All of it is durable.
pub struct SnapshotReading<'s> {
    txn: &'s Transaction,
    access: Access,
    limits: &'s Limits,
}

impl std::fmt::Debug for SnapshotReading<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotReading").field("txn", self.txn).finish_non_exhaustive()
    }
}

impl SnapshotReading<'_> {
    /// The transaction.
    pub fn transaction(&self) -> &Transaction {
        self.txn
    }

    /// The privileges of the current user.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// To be called now and then.
    ///
    /// # Errors
    /// 57014 when the reading is cancelled or its time is over.
    pub fn check(&self) -> Result<()> {
        self.limits.check()
    }
}

impl Session {
    /// Lets `read` read, as a statement does: in the open transaction, or in one of its own. It may
    /// block.
    ///
    /// # Errors
    /// The error of `read`, which is an error of the transaction; 25P02 in one that has failed.
    pub async fn read_snapshot<T>(&mut self, read: impl FnOnce(&SnapshotReading<'_>) -> Result<T>) -> Result<T> {
        self.abandoned_has_ended().await;
        self.start_statement()?;
        let open = OpenStatement::new(self);
        let mut limits = open.limits();
        let result = match limits.keep(open.snapshot_is_durable()).await {
            Err(error) => Err(error),
            Ok(()) => {
                let running = open.running.as_ref().expect("a statement is running");
                let reading = SnapshotReading { txn: &running.txn, access: open.access(), limits: &limits };
                let made = std::panic::catch_unwind(AssertUnwindSafe(|| read(&reading)));
                made.unwrap_or_else(|panic| Err(SqlError::of_panic(&*panic)))
            }
        };
        open.into_session().finish_statement(result).await
    }
}
