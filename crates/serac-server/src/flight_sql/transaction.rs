//! Transactions and savepoints by id.
//!
//! A transaction has a session of its own, or is the one of the client's session. When it has
//! ended, the session waits for the next transaction of the same connection. A client may prepare
//! statements in one transaction and use them in the next (ADBC's cursors do); they then run in the
//! same session.

use super::FlightSql;
use super::expiring_map::{Id, Owner, random_id};
use super::session_lease::{Kind, SessionLease};
use super::status::error;
use serac_export::flight::Caller;
use serac_sql::TransactionStatus;
use std::sync::Arc;
use tonic::Status;

/// A transaction that a client has begun.
#[derive(Clone)]
pub(super) struct OpenTransaction {
    pub(super) seat: Arc<SessionLease>,
}

/// The name of a savepoint, as it must be written in SQL text.
fn quoted(name: &str) -> Result<String, Status> {
    if name.is_empty() {
        return Err(error(sqlstate::INVALID_NAME, "a savepoint needs a name"));
    }
    Ok(format!("\"{}\"", name.replace('"', "\"\"")))
}

impl FlightSql {
    fn spare_key(caller: &Caller) -> Vec<u8> {
        format!("{}/{}/{}", caller.connection, caller.role.0, caller.user.as_deref().unwrap_or_default()).into_bytes()
    }

    pub(super) async fn begin_transaction(&self, caller: &Caller) -> Result<Id, Status> {
        let seat = match self.client_seat(caller)? {
            Some(seat) => seat,
            None => match self.spare.remove(&Owner::of(caller), &Self::spare_key(caller)) {
                Some(seat) => seat,
                None => self.new_seat(caller, Kind::Transactions)?,
            },
        };
        self.run_text(&seat, "BEGIN".into(), true).await?;
        let id = random_id();
        if let Err(full) = self.transactions.keep(Owner::of(caller), id, OpenTransaction { seat: seat.clone() }) {
            self.run_text(&seat, "ROLLBACK".into(), false).await?;
            return Err(full);
        }
        Ok(id)
    }

    async fn run_text(&self, seat: &Arc<SessionLease>, sql: String, anew: bool) -> Result<(), Status> {
        let mut session = if anew { seat.take_anew().await? } else { seat.take().await? };
        if anew && session.transaction_status() != TransactionStatus::Idle {
            return Err(error(sqlstate::ACTIVE_SQL_TRANSACTION, "the session has a transaction already"));
        }
        seat.attend(async move { session.execute(&sql).await.map(|_| ()) }).await
    }

    pub(super) async fn end_transaction(&self, caller: &Caller, id: &[u8], commits: bool) -> Result<(), Status> {
        let OpenTransaction { seat } = self.transactions.take(&Owner::of(caller), id)?;
        let mut session = seat.take().await?;
        let status = session.transaction_status();
        let sql = if commits { "COMMIT" } else { "ROLLBACK" };
        let ended = seat.attend(async move { session.execute(sql).await.map(|_| ()) }).await;
        if Self::session_key(caller).is_none() {
            // Without room for it, the session is dropped.
            let _ = self.spare.keep_instead(Owner::of(caller), Self::spare_key(caller), seat, |_| true);
        }
        ended?;
        match status {
            TransactionStatus::Failed if commits => Err(error(
                sqlstate::IN_FAILED_SQL_TRANSACTION,
                "a statement of the transaction had failed: it has been rolled back",
            )),
            TransactionStatus::Idle => {
                Err(error(sqlstate::NO_ACTIVE_SQL_TRANSACTION, "the transaction has ended before"))
            }
            _ => Ok(()),
        }
    }

    /// The savepoint's id: its transaction's, and its name.
    pub(super) async fn begin_savepoint(
        &self,
        caller: &Caller,
        transaction: &[u8],
        name: &str,
    ) -> Result<Vec<u8>, Status> {
        let OpenTransaction { seat } = self.transactions.get(&Owner::of(caller), transaction)?;
        self.run_text(&seat, format!("SAVEPOINT {}", quoted(name)?), false).await?;
        Ok([transaction, name.as_bytes()].concat())
    }

    pub(super) async fn end_savepoint(&self, caller: &Caller, savepoint: &[u8], releases: bool) -> Result<(), Status> {
        let unknown = || error(sqlstate::INVALID_SAVEPOINT_SPECIFICATION, "the savepoint does not exist");
        let (transaction, name) = savepoint.split_at_checked(size_of::<Id>()).ok_or_else(unknown)?;
        let name = quoted(std::str::from_utf8(name).map_err(|_| unknown())?)?;
        let OpenTransaction { seat } = self.transactions.get(&Owner::of(caller), transaction)?;
        let sql = if releases { format!("RELEASE SAVEPOINT {name}") } else { format!("ROLLBACK TO SAVEPOINT {name}") };
        self.run_text(&seat, sql, false).await
    }
}
