//! The state that a session loses when the process that holds the folder ends, and the effect on
//! its next statements.
//!
//! | the session had | its next statements |
//! |---|---|
//! | nothing of its own | run in a new session |
//! | state ([`serac_sql::Session::has_state`]) | one ends with 08006, the others run in a new session |
//! | an open transaction | the first ends with 08006, the others with 25P02 up to the end of the transaction |
//!
//! So no statement changes its meaning in a new session, and the rest of a transaction does not
//! commit by itself. If a statement ran when the holder ended, it fails with 08006.

use serac_client::client::Client;
use serac_client::wire::{Failure, Status};
use serac_sql::tree::{StatementKind, Transaction};
use serac_sql::{Parsed, parse};

/// The state of a session at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Had {
    /// An open transaction, also one that has failed.
    pub(super) transaction: bool,
    /// State of its own.
    pub(super) state: bool,
}

impl Had {
    /// The state of a client's session between two statements.
    pub(super) fn of(client: &Client) -> Self {
        Self { transaction: client.status() != Status::Idle, state: client.has_state() }
    }

    /// Its state if the session ended while `text` ran.
    pub(super) fn within(self, text: &str) -> Self {
        let begins = || {
            let begins = |statement: &Parsed| {
                matches!(statement.statement(), StatementKind::Transaction(Transaction::Begin { .. }))
            };
            parse(text).is_ok_and(|statements| statements.iter().any(begins))
        };
        Self { transaction: !is_end(text) && (self.transaction || begins()), ..self }
    }
}

/// Whether a text is the end of a transaction, and nothing else.
fn is_end(text: &str) -> bool {
    let statements = parse(text);
    let Ok([end]) = statements.as_deref() else { return false };
    matches!(
        end.statement(),
        StatementKind::Transaction(Transaction::Commit { chain: false } | Transaction::Rollback { chain: false })
    )
}

/// A session with state has ended.
#[derive(Debug)]
pub(super) struct Loss {
    /// The failure of the next statement; `None` if it was reported already.
    untold: Option<Failure>,
    /// Whether a transaction was open and has not ended yet.
    pub(super) is_in_transaction: bool,
}

/// The handling of a statement after a loss.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// It was the end of the transaction that was lost: it is done, as a ROLLBACK.
    RolledBack,
    /// It ends with this.
    Fails(Failure),
}

impl Loss {
    /// The loss of a session with this state; `None` without state. `failure` reports it, and
    /// `is_told` says whether a statement has ended with it.
    pub(super) fn of(had: Had, failure: &Failure, is_told: bool) -> Option<Self> {
        let untold = (!is_told).then(|| failure.clone());
        (had.transaction || had.state && !is_told).then_some(Self { untold, is_in_transaction: had.transaction })
    }

    /// The handling of a statement. Sets the loss to `None` when it is over.
    pub(super) fn meets(this: &mut Option<Self>, text: &str) -> Option<Next> {
        let loss = this.as_mut()?;
        let untold = loss.untold.take();
        let is_over = !loss.is_in_transaction || is_end(text);
        if is_over {
            *this = None;
        }
        Some(match untold {
            Some(failure) => Next::Fails(failure),
            None if is_over => Next::RolledBack,
            None => {
                let message = "current transaction is aborted, commands ignored until end of transaction block";
                Next::Fails(
                    Failure::new(sqlstate::IN_FAILED_SQL_TRANSACTION, message)
                        .with_detail("The process that had the database open has ended within the transaction."),
                )
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(transaction: bool, state: bool, is_told: bool) -> Option<Loss> {
        Loss::of(Had { transaction, state }, &Failure::new(sqlstate::CONNECTION_FAILURE, "gone"), is_told)
    }

    /// SQLSTATEs, and the tag ROLLBACK, of statements after a loss; "" for a statement that runs.
    fn become_of(mut loss: Option<Loss>, texts: &[&str]) -> Vec<String> {
        let of = |text: &&str| match Loss::meets(&mut loss, text) {
            None => String::new(),
            Some(Next::RolledBack) => "ROLLBACK".into(),
            Some(Next::Fails(failure)) => failure.sqlstate.into(),
        };
        texts.iter().map(of).collect()
    }

    #[test]
    fn a_lost_transaction_goes_on_failing_up_to_its_end() {
        let texts = ["INSERT INTO t VALUES (1)", "ROLLBACK TO s", "COMMIT; SELECT 1", "commit ;", "SELECT 1"];
        assert_eq!(
            become_of(lost(true, false, false), &texts),
            [
                sqlstate::CONNECTION_FAILURE,
                sqlstate::IN_FAILED_SQL_TRANSACTION,
                sqlstate::IN_FAILED_SQL_TRANSACTION,
                "ROLLBACK",
                ""
            ]
        );
        assert_eq!(
            become_of(lost(true, true, true), &texts),
            [
                sqlstate::IN_FAILED_SQL_TRANSACTION,
                sqlstate::IN_FAILED_SQL_TRANSACTION,
                sqlstate::IN_FAILED_SQL_TRANSACTION,
                "ROLLBACK",
                ""
            ]
        );
        for end in ["COMMIT", "END", "ROLLBACK", "ABORT", "COMMIT WORK", "END TRANSACTION"] {
            assert_eq!(become_of(lost(true, false, false), &[end, "SELECT 1"]), [sqlstate::CONNECTION_FAILURE, ""]);
            assert_eq!(become_of(lost(true, false, true), &[end, "SELECT 1"]), ["ROLLBACK", ""]);
        }
    }

    #[test]
    fn lost_state_is_told_once() {
        assert_eq!(become_of(lost(false, true, false), &["SELECT 1", "SELECT 1"]), [sqlstate::CONNECTION_FAILURE, ""]);
        assert!(lost(false, true, true).is_none() && lost(false, false, false).is_none());
    }

    #[test]
    fn what_ran_may_have_begun_or_ended_a_transaction() {
        let of = |transaction, text| Had { transaction, state: false }.within(text).transaction;
        assert!(of(false, "BEGIN; INSERT INTO t VALUES (1)") && of(true, "INSERT INTO t VALUES (1)"));
        assert!(of(true, "SELECT 1; COMMIT") && of(false, "START TRANSACTION"));
        assert!(!of(false, "SELECT 'begin'") && !of(true, "COMMIT"));
    }
}
