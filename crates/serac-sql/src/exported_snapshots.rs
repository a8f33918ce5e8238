//! Snapshots that transactions lend to others: `pg_export_snapshot()` gives a snapshot a name, and
//! `SET TRANSACTION SNAPSHOT` begins another session's transaction with it. So several connections
//! read parts of a table in one snapshot.
//!
//! A name is known until the transaction that exported it ends or fails, and no other snapshot gets
//! it. Transactions that have begun with the snapshot keep it for themselves.

use crate::error::{Result, SqlError};
use parking_lot::Mutex;
use serac_storage::Snapshot;
use std::collections::HashMap;
use std::sync::Arc;

/// Names that one transaction gives at the most.
const MOST_NAMES: usize = 1_000;

/// The exported snapshots of a database.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExportedSnapshots(Arc<Mutex<HashMap<String, Snapshot>>>);

impl ExportedSnapshots {
    /// The snapshot of a name.
    ///
    /// # Errors
    /// 22023 without one.
    pub(crate) fn named(&self, name: &str) -> Result<Snapshot> {
        let invalid =
            || SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("invalid snapshot identifier: \"{name}\""));
        self.0.lock().get(name).cloned().ok_or_else(invalid)
    }
}

/// The snapshots that a session's transaction has exported.
#[derive(Debug)]
pub(crate) struct SessionExports {
    all: ExportedSnapshots,
    own: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    known: Vec<String>,
    /// How many the session has given, over all its transactions: one that has failed may go on
    /// behind a savepoint, with the same number.
    given: u64,
}

impl SessionExports {
    /// None of `all` yet.
    pub(crate) fn new(all: &ExportedSnapshots) -> Self {
        Self { all: all.clone(), own: Mutex::default() }
    }

    /// Exports the snapshot of the transaction with a number; returns the name.
    ///
    /// # Errors
    /// 54000 for too many.
    pub(crate) fn export(&self, transaction: u64, snapshot: &Snapshot) -> Result<String> {
        let mut own = self.own.lock();
        if own.known.len() >= MOST_NAMES {
            let message = format!("a transaction exports at most {MOST_NAMES} snapshots");
            return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message));
        }
        own.given += 1;
        let name = format!("{:08X}-{:08X}-{}", transaction >> 32, transaction & 0xffff_ffff, own.given);
        self.all.0.lock().insert(name.clone(), snapshot.clone());
        own.known.push(name.clone());
        Ok(name)
    }

    /// The transaction has ended, or has failed.
    pub(crate) fn end_transaction(&self) {
        let known = std::mem::take(&mut self.own.lock().known);
        if !known.is_empty() {
            let mut all = self.all.0.lock();
            known.iter().for_each(|name| drop(all.remove(name)));
        }
    }
}

impl Drop for SessionExports {
    fn drop(&mut self) {
        self.end_transaction();
    }
}
