//! Statements that meet a running transaction's locks, or rows that were changed since their
//! snapshot.
//!
//! A READ COMMITTED statement is undone, waits until the transaction in its way has ended
//! (`serac_storage::version::waits`), and begins again on a new snapshot. So it continues from the
//! state that the other has left. At the other levels, a row that was changed since the snapshot is
//! an error in any case, so waiting helps only if the change is rolled back. Claims (SELECT … FOR
//! UPDATE) wait all the same, and so do all statements in sessions of
//! [clients of PostgreSQL](Session::as_for_postgresql). Other sessions get the conflict at once.

use crate::error::{Result, SqlError};
use crate::limits::Limits;
use crate::parsed::Parsed;
use crate::session::Session;
use crate::transaction::Mark;
use serac_engine::EngineError;
use serac_parser::tree::StatementKind;
use std::time::Duration;
use tokio::time::Instant;

/// The time for which a READ COMMITTED statement begins again if it meets newer changes each time,
/// without a transaction to wait for. On a busy machine, others may be first for seconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// The number of tries without a pause.
const QUICK_TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(1);

/// The conflicts of a statement since its last wait.
#[derive(Debug, Default)]
pub(crate) struct Conflicts {
    tries: u32,
    until: Option<Instant>,
}

impl Conflicts {
    /// Gives others time; false if there has been enough of it.
    async fn pause(&mut self) -> bool {
        self.tries += 1;
        if self.tries <= QUICK_TRIES {
            tokio::task::yield_now().await;
            return true;
        }
        tokio::time::sleep(PAUSE).await;
        Instant::now() < *self.until.get_or_insert_with(|| Instant::now() + PATIENCE)
    }
}

impl Session {
    /// Whether a statement may be begun again when it meets a conflict.
    pub(crate) fn may_wait(&self, statement: &Parsed) -> bool {
        !takes_stream(statement.statement())
            && (self.shared.values.is_for_postgresql() || self.is_read_committed() || self.claims(statement))
    }

    pub(crate) fn is_read_committed(&self) -> bool {
        self.running.is_some() && self.shared.values.modes().isolation.is_of_statements()
    }

    /// Undoes a statement that has met a conflict, and waits until it can be begun again, as the
    /// session's transaction is ready for then. `claims`: it is a SELECT … FOR UPDATE.
    ///
    /// # Errors
    /// The conflict, if waiting does not help; 40P01 for a deadlock, 55P03 after too long a wait,
    /// and the errors that end statements from outside.
    pub(crate) async fn make_way(
        &mut self,
        error: SqlError,
        claims: bool,
        conflicts: &mut Conflicts,
        limits: &mut Limits,
    ) -> Result<()> {
        self.make_way_from(None, error, claims, conflicts, limits).await
    }

    /// As [`make_way`](Self::make_way); with a `mark`, undoes only the statement's changes since
    /// it.
    pub(crate) async fn make_way_from(
        &mut self,
        mark: Option<&Mark>,
        error: SqlError,
        claims: bool,
        conflicts: &mut Conflicts,
        limits: &mut Limits,
    ) -> Result<()> {
        let read_committed = self.is_read_committed();
        let waits = claims || self.shared.values.is_for_postgresql();
        let timeout = self.shared.values.lock_timeout();
        let Some(running) = &mut self.running else { return Err(error) };
        if error.sqlstate != sqlstate::SERIALIZATION_FAILURE || !(read_committed || (waits && error.blocker.is_some()))
        {
            return Err(error);
        }
        match mark {
            Some(mark) => running.rollback_to(mark),
            None => running.undo_statement(),
        }
        let turn = match &error.blocker {
            Some(blocker) => running.txn.wait_for(blocker).map_err(|refused| deadlock(refused, &error))?,
            None => None,
        };
        let wait = async {
            match (turn, timeout) {
                (Some(turn), None) => turn.await,
                (Some(turn), Some(timeout)) => {
                    let in_time = tokio::time::timeout(timeout, turn).await;
                    in_time.map_err(|_| {
                        SqlError::new(sqlstate::LOCK_NOT_AVAILABLE, "canceling statement due to lock timeout")
                    })?;
                }
                (None, _) => return if conflicts.pause().await { Ok(false) } else { Err(error) },
            }
            Ok(true)
        };
        if limits.keep(wait).await? {
            *conflicts = Conflicts::default();
        }
        let running = self.running.as_mut().expect("it runs");
        if read_committed || !running.is_block() {
            running.refresh();
        }
        self.refresh_view();
        Ok(())
    }
}

/// Whether a statement's input comes only once: it waits for a transaction in the way of a piece of
/// the input (`copy`), and does not begin again.
fn takes_stream(statement: &StatementKind) -> bool {
    matches!(statement, StatementKind::Copy(copy) if copy.from && copy.file.is_none())
}

/// Adds the place of the conflict to the deadlock.
fn deadlock(refused: EngineError, conflict: &SqlError) -> SqlError {
    SqlError { detail: Some(conflict.message.clone()), ..refused.into() }
}
