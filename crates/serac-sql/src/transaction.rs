//! The running transaction of a session as a value: modes, savepoints, and undoing. The statements
//! about it are in [`crate::transactions`].

use crate::channels::PendingNotifications;
use crate::error::{Result, SqlError};
use crate::foreign::servers::ServerSnapshots;
use crate::identifiers::TEMPORARY_SCHEMA;
use crate::limits::CancelHandle;
use crate::session_roles::SessionRoles;
use crate::setting_values::{Progress, SettingsMark};
use serac_engine::{Savepoint, Table, Transaction};
use serac_parser::tree::{IsolationLevel, TransactionMode, TransactionModeKind};
use std::sync::Arc;

/// A place to roll back to, in both transactions.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    main: Savepoint,
    notifications: usize,
    temporary: Option<Box<Savepoint>>,
}

/// The isolation level of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Isolation {
    /// As READ COMMITTED, but for its name.
    ReadUncommitted,
    ReadCommitted,
    /// REPEATABLE READ.
    #[default]
    Snapshot,
    Serializable,
}

impl Isolation {
    /// In the order of their numbers.
    const ALL: [Self; 4] = [Self::ReadUncommitted, Self::ReadCommitted, Self::Snapshot, Self::Serializable];
    /// The level with this name in SQL.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Some(match name.to_lowercase().as_str() {
            "read uncommitted" => Self::ReadUncommitted,
            "read committed" => Self::ReadCommitted,
            "repeatable read" | "snapshot" => Self::Snapshot,
            "serializable" => Self::Serializable,
            _ => return None,
        })
    }

    /// Whether each statement has a snapshot of its own.
    pub(crate) fn is_of_statements(self) -> bool {
        matches!(self, Self::ReadUncommitted | Self::ReadCommitted)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "read uncommitted",
            Self::ReadCommitted => "read committed",
            Self::Snapshot => "repeatable read",
            Self::Serializable => "serializable",
        }
    }
}

/// The modes of transactions: ISOLATION LEVEL, READ ONLY and READ WRITE, DEFERRABLE.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Modes {
    pub(crate) isolation: Isolation,
    pub(crate) read_only: bool,
    /// No effect: a serializable transaction that only reads never fails, and never waits for its
    /// snapshot.
    pub(crate) deferrable: bool,
}

impl Modes {
    /// As one byte, of which the highest bit is not set.
    pub(crate) fn bits(self) -> u8 {
        self.isolation as u8 | u8::from(self.read_only) << 2 | u8::from(self.deferrable) << 3
    }

    /// The inverse of [`bits`](Self::bits).
    pub(crate) fn from_bits(bits: u8) -> Self {
        let isolation = Isolation::ALL[usize::from(bits & 3)];
        Self { isolation, read_only: bits & 4 != 0, deferrable: bits & 8 != 0 }
    }

    /// Sets the given `modes`.
    pub(crate) fn set(&mut self, modes: &[TransactionMode]) {
        for TransactionMode { kind, span: _ } in modes {
            match kind {
                TransactionModeKind::ReadOnly(is_so) => self.read_only = *is_so,
                TransactionModeKind::Isolation(level) => {
                    self.isolation = match level {
                        IsolationLevel::ReadUncommitted => Isolation::ReadUncommitted,
                        IsolationLevel::ReadCommitted => Isolation::ReadCommitted,
                        IsolationLevel::RepeatableRead | IsolationLevel::Snapshot => Isolation::Snapshot,
                        IsolationLevel::Serializable => Isolation::Serializable,
                    }
                }
                TransactionModeKind::Deferrable(is_so) => self.deferrable = *is_so,
            }
        }
    }
}

/// A session's transaction as others see it, up to its end.
#[derive(Debug)]
pub(crate) struct Shown(pub(crate) CancelHandle);

impl Shown {
    pub(crate) fn show(&self, txn: &Transaction) {
        self.0.note_transaction(txn.number());
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.0.note_transaction(0);
    }
}

/// The owner of a transaction: a statement, a group of statements or a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// One statement's.
    Statement,
    /// A transaction of statements that were sent together.
    Implicit,
    /// BEGIN's.
    Explicit,
}

/// The roles as which a transaction acts.
#[derive(Clone, Debug)]
pub(crate) struct RunningRoles {
    /// The roles with which the session acted when the transaction began. It gets them again when
    /// the transaction is rolled back.
    pub(crate) before: SessionRoles,
    /// The roles after SET ROLE, for longer than the transaction.
    pub(crate) set: Option<SessionRoles>,
    /// Whether SET LOCAL ROLE has changed it.
    pub(crate) is_local: bool,
}

/// A savepoint of SAVEPOINT.
#[derive(Debug)]
pub(crate) struct NamedSavepoint {
    pub(crate) name: String,
    pub(crate) mark: Mark,
    /// Whether the transaction was READ ONLY: SET TRANSACTION after a savepoint holds up to its
    /// end.
    pub(crate) read_only: bool,
    /// The session's roles at the savepoint.
    pub(crate) roles: SessionRoles,
    pub(crate) running_roles: RunningRoles,
    pub(crate) settings: SettingsMark,
}

/// The running transaction.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) txn: Transaction,
    /// Says to others which transaction that is.
    pub(crate) shown: Shown,
    /// The transaction on the session's temporary tables, if it has used any.
    pub(crate) temporary: Option<Transaction>,
    /// The snapshots of other servers.
    pub(crate) servers: Arc<ServerSnapshots>,
    pub(crate) scope: Scope,
    pub(crate) failed: bool,
    /// Whether a statement has begun in it, or it has another one's snapshot: its modes are then
    /// fixed.
    pub(crate) started: bool,
    /// Whether that was so before the present statement.
    pub(crate) was_started: bool,
    pub(crate) roles: RunningRoles,
    pub(crate) savepoints: Vec<NamedSavepoint>,
    /// The mark at the beginning of the running statement, in a block.
    pub(crate) begun: Option<Mark>,
    pub(crate) notifications: Arc<PendingNotifications>,
    /// Whether cursors go with it.
    pub(crate) has_cursors: bool,
}

impl Running {
    /// Lets the present statement, which reads no data, leave the modes open.
    pub(crate) fn unstart(&mut self) {
        self.started = self.was_started;
    }

    /// How far it is.
    pub(crate) fn progress(&self) -> Progress {
        Progress { is_started: self.started, has_savepoint: !self.savepoints.is_empty() }
    }

    /// Takes over modes that have been set; those of one that has started stay what they are.
    pub(crate) fn follow_modes(&mut self, modes: Modes) {
        if !self.started {
            self.txn.set_serializable(modes.isolation == Isolation::Serializable);
        }
    }

    /// Whether it goes on after the statement.
    pub(crate) fn is_block(&self) -> bool {
        self.scope != Scope::Statement
    }

    /// Undoes the changes that no savepoint keeps, so that no transaction need wait for them. From
    /// now on only a statement that ends the transaction, or rolls back to a savepoint, is
    /// accepted.
    pub(crate) fn fail(&mut self) {
        match self.savepoints.last() {
            Some(savepoint) => {
                let mark = savepoint.mark.clone();
                self.rollback_to(&mark);
            }
            None => {
                self.restart();
                self.txn.release_locks();
            }
        }
        self.begun = None;
        self.txn.pass_on();
        self.failed = true;
    }

    pub(crate) fn mark(&mut self) -> Mark {
        let temporary = self.temporary.as_mut().map(|txn| Box::new(txn.savepoint()));
        Mark { main: self.txn.savepoint(), notifications: self.notifications.len(), temporary }
    }

    pub(crate) fn rollback_to(&mut self, mark: &Mark) {
        self.txn.rollback_to(&mark.main);
        self.notifications.truncate(mark.notifications);
        match (&mut self.temporary, &mark.temporary) {
            (Some(temporary), Some(mark)) => temporary.rollback_to(mark),
            // It began after the mark.
            (temporary, _) => *temporary = None,
        }
    }

    /// Whether a table had its data at the newest savepoint, or before the transaction where there
    /// is none.
    pub(crate) fn had_data(&self, table: &Table) -> bool {
        let mark = self.savepoints.last().map(|savepoint| &savepoint.mark);
        let id = table.definition.id;
        match &self.temporary {
            // Without a savepoint of its own, it began behind the newest.
            Some(temporary) if table.definition.schema == TEMPORARY_SCHEMA => {
                temporary.had_data(mark.and_then(|mark| mark.temporary.as_deref()), id)
            }
            None if table.definition.schema == TEMPORARY_SCHEMA => true,
            _ => self.txn.had_data(mark.map(|mark| &mark.main), id),
        }
    }

    /// Undoes what the statement that runs has done. One with a transaction of its own begins again
    /// with a snapshot of the present.
    pub(crate) fn undo_statement(&mut self) {
        match self.begun.take() {
            Some(begun) => {
                self.rollback_to(&begun);
                self.begun = Some(begun);
            }
            None => self.restart(),
        }
    }

    /// The index of the newest savepoint with a name.
    pub(crate) fn named_savepoint(&self, name: &str) -> Result<usize> {
        let missing =
            || SqlError::new(sqlstate::INVALID_SAVEPOINT_SPECIFICATION, format!("savepoint \"{name}\" does not exist"));
        self.savepoints.iter().rposition(|savepoint| savepoint.name == name).ok_or_else(missing)
    }

    pub(crate) fn savepoint_count(&self) -> usize {
        self.savepoints.len()
    }

    /// Lets the snapshots of other servers go. Who still plans with them finds none again.
    pub(crate) fn release_servers(&mut self) {
        std::mem::take(&mut self.servers).release();
    }

    /// Gives the transaction a snapshot of the present.
    pub(crate) fn refresh(&mut self) {
        self.txn.refresh();
        self.release_servers();
        if let Some(temporary) = &mut self.temporary {
            temporary.refresh();
        }
    }

    /// Undoes everything, and begins again with a snapshot of the present.
    pub(crate) fn restart(&mut self) {
        self.txn.restart();
        self.release_servers();
        self.notifications.truncate(0);
        self.shown.show(&self.txn);
        if let Some(temporary) = &mut self.temporary {
            temporary.restart();
        }
    }

    pub(crate) fn check_statement_end(&mut self) -> Result<()> {
        self.txn.check_statement_end()?;
        Ok(self.temporary.as_mut().map_or(Ok(()), Transaction::check_statement_end)?)
    }
}

/// Whether a transaction is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransactionStatus {
    /// No transaction.
    Idle,
    /// Open.
    Open,
    /// Open, and a statement has failed in it.
    Failed,
}
