//! The actions of SELECT … FOR UPDATE and its relatives at a row ([`OnHeld`]).
//!
//! There is one strength. FOR UPDATE, FOR NO KEY UPDATE, FOR SHARE and FOR KEY SHARE all claim a
//! row for one transaction, as if it were updated. That is never too weak; readers that only share
//! wait for each other. A row that another transaction holds is waited for, or is an error
//! (NOWAIT), or is left out (SKIP LOCKED).

use crate::error::{Result, SqlError};
use serac_engine::{Table, Transaction};
use serac_parser::tree::LockWait;
use serac_storage::RowId;
use std::sync::Arc;

/// The action of a claim (SELECT … FOR UPDATE) at a row that a running transaction holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnHeld {
    Wait,
    /// NOWAIT.
    Fail,
    /// SKIP LOCKED.
    Skip,
}

impl OnHeld {
    /// Claims a row for a transaction; false if it is to be left out.
    pub(crate) fn claim(self, txn: &mut Transaction, table: &Arc<Table>, row: RowId) -> Result<bool> {
        match (txn.lock_row(table, row), self) {
            (Ok(()), _) => Ok(true),
            (Err(error), Self::Fail) if error.blocker().is_some() => {
                let message = format!("could not obtain lock on row in relation \"{}\"", table.name());
                Err(SqlError::new(sqlstate::LOCK_NOT_AVAILABLE, message))
            }
            (Err(error), Self::Skip) if error.blocker().is_some() => Ok(false),
            (Err(error), _) => Err(error.into()),
        }
    }
}

impl From<LockWait> for OnHeld {
    fn from(wait: LockWait) -> Self {
        match wait {
            LockWait::Wait => Self::Wait,
            LockWait::NoWait => Self::Fail,
            LockWait::SkipLocked => Self::Skip,
        }
    }
}
