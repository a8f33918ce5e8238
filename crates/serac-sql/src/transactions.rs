//! A session's transactions: BEGIN to COMMIT, savepoints, and writes to tables.
//!
//! Temporary tables live in a small database of the session's own, with a transaction of its own
//! beside the one on the database. Both begin, roll back and commit together. No other session sees
//! temporary tables, so their commit cannot fail once the other has succeeded.
//!
//! **Blocks**, as in PostgreSQL. A transaction belongs to one statement, to an implicit block, or
//! to BEGIN ([`Scope`]):
//!
//! ```text
//! statement of its own       begins and commits its transaction
//! statements sent together   begin_implicit ──▶ Implicit ──end_implicit──▶ committed
//!                                                  │  COMMIT, ROLLBACK: ended, with a warning; the next statement begins a new block
//!                                                  │  an error: rolled back
//!                                                  ▼ BEGIN
//!                            BEGIN ───────────▶ Explicit ──COMMIT, ROLLBACK──▶ ended
//!                                                  │  an error
//!                                                  ▼
//!                                                failed: only what ends it, or leads back to a savepoint, is accepted
//! ```
//! An error is one of any kind: of a statement, of its syntax, or of the client's protocol
//! ([`Session::fail_transaction`]). So is a statement whose future is dropped halfway, or that
//! panics outside of its limits ([`OpenStatement`]).
//!
//! **Savepoints** lead back to rows, catalog, notifications, cursors, settings and roles as they
//! were. Locks stay, of rows apart.
//!
//! **A result must be durable.** A statement that commits waits for its own log. A statement that
//! does not commit, as in a block, waits for the newest commit that its transaction has read
//! ([`Session::close_statement`]). So does a failed statement ([`Session::error_is_durable`]). Rows
//! that leave before the statement ends wait for the whole snapshot.
//!
//! **Isolation.** A transaction has one snapshot ([`Isolation::Snapshot`]), or one for each
//! statement ([`Isolation::ReadCommitted`]), or one and validation at the commit
//! ([`Isolation::Serializable`], see `serac_engine::ReadSet`). Statements that meet a conflict are
//! handled in [`crate::conflicts`].

use crate::error::{Result, SqlError};
use crate::identifiers::TEMPORARY_SCHEMA;
use crate::notices::Severity;
use crate::parsed::Parsed;
use crate::pg_catalog::image::LazyImage;
use crate::result::{Started, StatementResult, durable};
use crate::session::Session;
use crate::session_env::NOT_ASKED;
use crate::session_roles::SessionRoles;
use crate::setting_values::Progress;
use crate::statement_snapshot::StatementSnapshot;
use crate::transaction::{Isolation, Modes, NamedSavepoint, Running, RunningRoles, Scope, Shown, TransactionStatus};
use serac_engine::security::{Object, Privilege};
use serac_engine::{Catalog, Database, Table, Transaction};
use serac_parser::tree::{Name, Set, SetChange, StatementKind, Transaction as Control, TransactionMode};
use serac_storage::{CommitTicket, Snapshot};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A session in which a statement has begun. If this is dropped before the statement has ended (its
/// future was dropped, or it has panicked), that is an error like any other. The statement is
/// undone, and its transaction has failed.
pub(crate) struct OpenStatement<'s>(Option<&'s mut Session>);

impl<'s> OpenStatement<'s> {
    pub(crate) fn new(session: &'s mut Session) -> Self {
        Self(Some(session))
    }

    /// The session, for the code that ends the statement.
    pub(crate) fn into_session(mut self) -> &'s mut Session {
        self.0.take().expect("it is given away once")
    }
}

impl Deref for OpenStatement<'_> {
    type Target = Session;
    fn deref(&self) -> &Session {
        self.0.as_ref().expect("it has not been given away")
    }
}
impl DerefMut for OpenStatement<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        self.0.as_mut().expect("it has not been given away")
    }
}

impl Drop for OpenStatement<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.0.take() {
            session.fail_transaction();
        }
    }
}

impl Session {
    pub(crate) fn begin(&mut self, scope: Scope, modes: Modes) {
        let mut txn = self.begin_in(&self.shared.database);
        txn.set_serializable(modes.isolation == Isolation::Serializable);
        let temporary = self.shared.temporary_database.get().map(|database| self.begin_in(database));
        let (failed, started, savepoints) = (false, false, Vec::new());
        let roles = RunningRoles { before: self.shared.roles.read().clone(), set: None, is_local: false };
        txn.set_role(roles.before.current);
        if scope == Scope::Statement {
            // Relaxed: see `SessionEnv::time`.
            self.shared.time.store(0, Ordering::Relaxed);
        } else {
            self.shared.start_time();
        }
        self.shared.statement_time.store(0, Ordering::Relaxed);
        let shown = Shown(self.cancel.clone());
        shown.show(&txn);
        let notifications = self.shared.listener.notifications.clone();
        self.shared.values.set_transaction(Some(modes));
        self.running = Some(Running {
            txn,
            shown,
            temporary,
            servers: Arc::default(),
            scope,
            failed,
            started,
            was_started: false,
            roles,
            savepoints,
            begun: None,
            notifications,
            has_cursors: false,
        });
    }

    fn begin_in(&self, database: &Database) -> Transaction {
        let mut txn = database.begin();
        txn.set_expressions(self.expressions.clone());
        txn
    }

    /// Begins the statement's own transaction again, with a new snapshot; false in a block.
    pub(crate) fn restart(&mut self) -> bool {
        let Some(running) = self.running.as_mut().filter(|running| !running.is_block()) else { return false };
        running.restart();
        self.refresh_view();
        true
    }

    /// Gives queries the transaction's present view.
    pub(crate) fn refresh_view(&self) {
        let part = |txn: &Transaction| (txn.catalog().clone(), txn.snapshot().clone(), txn.own_bitmap_changes());
        let view = self.running.as_ref().map(|running| {
            let (catalog, snapshot, own) = part(&running.txn);
            let reads = running.txn.reads().cloned();
            let access = running.txn.access(self.current_role());
            let temporary = running.temporary.as_ref().map(part);
            let path = self.path(&catalog, &access);
            let servers = running.servers.clone();
            let image = LazyImage::default();
            let (before, transaction) = (None, running.txn.number());
            StatementSnapshot {
                catalog,
                snapshot,
                transaction,
                own,
                before,
                reads,
                image,
                temporary,
                servers,
                access,
                path,
            }
        });
        *self.shared.view.write() = view;
    }

    /// Lets queries see the transaction's present state, without the later writes of the running
    /// statement.
    pub(crate) fn read_before_writes(&mut self) -> Result<()> {
        let running = self.running.as_mut().expect("it runs");
        let temporary = running.temporary.as_mut().map(Transaction::snapshot_until_now).transpose()?;
        let before = (running.txn.snapshot_until_now()?, temporary);
        if let Some(view) = &mut *self.shared.view.write() {
            view.before = Some(before);
        }
        Ok(())
    }

    pub(crate) fn end(&mut self) -> Option<Running> {
        // A view left behind would keep old versions alive.
        *self.shared.view.write() = None;
        let running = self.running.take()?;
        self.shared.values.set_transaction(None);
        running.notifications.truncate(0);
        if running.has_cursors {
            self.shared.cursors.lock().end();
        }
        if running.roles.is_local || running.roles.set.is_some() {
            self.act_as(running.roles.before.clone());
        }
        self.unset();
        self.shared.advisory_locks.end_transaction();
        self.shared.exports.end_transaction();
        Some(running)
    }

    fn act_as(&mut self, roles: SessionRoles) {
        *self.shared.roles.write() = roles;
        self.shared.note_setting();
    }

    /// Begins a statement, in a transaction of its own if there is no open one.
    pub(crate) fn open_statement(&mut self) -> Result<()> {
        self.check_not_failed()?;
        match &mut self.running {
            Some(running) => {
                if self.shared.values.modes().isolation.is_of_statements() {
                    running.refresh();
                }
                running.was_started = std::mem::replace(&mut running.started, true);
                // Relaxed: as in `begin`.
                self.shared.statement_time.store(NOT_ASKED, Ordering::Relaxed);
                if running.is_block() {
                    running.begun = Some(running.mark());
                }
            }
            None => self.begin_statement(),
        }
        Ok(())
    }

    /// Begins a statement's own transaction.
    pub(crate) fn begin_statement(&mut self) {
        self.begin(Scope::Statement, self.shared.values.default_modes());
    }

    /// Refuses, in a failed transaction, a statement that does not end it.
    ///
    /// # Errors
    /// SQLSTATE 25P02.
    pub fn check_not_failed(&self) -> Result<()> {
        if self.transaction_status() == TransactionStatus::Failed {
            let message = "current transaction is aborted, commands ignored until end of transaction block";
            return Err(SqlError::new(sqlstate::IN_FAILED_SQL_TRANSACTION, message));
        }
        Ok(())
    }

    /// Ends a statement: commits its own transaction. Its result must not be shown before the
    /// promise is kept; `None` if it may be shown at once.
    pub(crate) fn close_statement(&mut self) -> Result<Option<CommitTicket>> {
        match self.running.as_mut().filter(|running| running.is_block()) {
            Some(running) => {
                running.begun = None;
                if self.shared.values.modes().isolation.is_of_statements() {
                    running.release_servers();
                }
                running.txn.pass_on();
                Ok(running.txn.snapshot().unacknowledged_reads())
            }
            None => self.commit_now(),
        }
    }

    /// Ends a failed statement: undoes its changes. Returns the error to show.
    pub(crate) fn close_failed_statement(&mut self, error: SqlError) -> SqlError {
        let error = self.without_secrets(self.with_failing_row(error));
        self.error_ticket = self.running.as_ref().and_then(|running| running.txn.snapshot().unacknowledged_reads());
        self.fail_transaction();
        error
    }

    /// Waits until the state that the last error of a statement reveals is durable: a client must
    /// not learn too early of another transaction's key. The `async` functions here have done so
    /// for their errors.
    ///
    /// # Errors
    /// When the log has failed.
    pub async fn error_is_durable(&mut self) -> Result<()> {
        match self.error_ticket.take() {
            Some(ticket) => durable(ticket).await,
            None => Ok(()),
        }
    }

    /// The error, once it may be shown; that of the log if it has failed meanwhile.
    pub(crate) async fn shown(&mut self, error: SqlError) -> SqlError {
        match self.error_is_durable().await {
            Ok(()) => error,
            Err(log) => log,
        }
    }

    /// Ends the scope of an error: the implicit block, or the statement's own transaction. A
    /// transaction that BEGIN opened has then failed. Errors of statements come here by themselves.
    /// A caller that finds others (of a protocol, say) reports them here, so that the client's next
    /// COMMIT is a rollback.
    pub fn fail_transaction(&mut self) {
        match self.running.as_mut().filter(|running| running.scope == Scope::Explicit) {
            Some(running) if running.failed => {}
            Some(running) => {
                running.fail();
                self.shared.exports.end_transaction();
                // In a transaction with one snapshot, statements behind a ROLLBACK TO SAVEPOINT
                // still read those of other servers.
                if self.shared.values.modes().isolation.is_of_statements() {
                    running.release_servers();
                }
                if running.savepoints.is_empty() {
                    self.shared.advisory_locks.end_transaction();
                }
            }
            None => drop(self.end()),
        }
    }

    /// An error ends the transaction, or has it fail.
    pub(crate) fn failing<T>(&mut self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.fail_transaction();
        }
        result
    }

    /// Begins an implicit block for statements that the client has sent together, if no transaction
    /// is open.
    pub fn begin_implicit(&mut self) {
        if self.running.is_none() {
            self.begin(Scope::Implicit, self.shared.values.default_modes());
        }
    }

    /// Whether an implicit block is open.
    pub fn is_implicit(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.scope == Scope::Implicit)
    }

    /// Commits the implicit block; `None` without an open one. The end of the statements must not
    /// be shown before it is [durable](Started::durable).
    ///
    /// # Errors
    /// The reason why it cannot commit; it has then been rolled back.
    pub fn end_implicit(&mut self) -> Result<Option<Started>> {
        if !self.is_implicit() {
            return Ok(None);
        }
        Ok(Some(Started { affected: 0, ticket: self.commit_now()? }))
    }

    /// Commits the running transaction; returns its promise.
    fn commit_now(&mut self) -> Result<Option<CommitTicket>> {
        let held = match &self.running {
            Some(running) if running.has_cursors => self.shared.cursors.lock().take_held(),
            _ => Vec::new(),
        };
        let notifications = self.shared.listener.notifications.take();
        let kept = self.shared.changed_settings.kept();
        // Until the changes are visible to all.
        let _locks = self.shared.advisory_locks.until_committed();
        let Some(running) = self.end() else { return Ok(None) };
        let ticket = running.txn.commit()?;
        if let Some(temporary) = running.temporary {
            temporary.commit()?;
        }
        if !notifications.is_empty() {
            let process = self.shared.identity.get().map_or(0, |identity| identity.process);
            self.shared.listener.post(process, notifications, &ticket);
        }
        if !held.is_empty() {
            self.shared.cursors.lock().keep(held);
        }
        if let Some(roles) = running.roles.set {
            self.act_as(roles);
        }
        self.keep_settings(kept);
        Ok(Some(ticket))
    }

    /// Rolls back the open transaction, if any.
    pub fn rollback(&mut self) {
        self.end();
    }

    /// The transaction on the database, to write.
    pub(crate) fn txn(&mut self) -> Result<&mut Transaction> {
        let running = self.running.as_mut().expect("statements run in a transaction");
        if self.shared.values.modes().read_only {
            return Err(SqlError::new(sqlstate::READ_ONLY_SQL_TRANSACTION, "cannot write in a read-only transaction"));
        }
        Ok(&mut running.txn)
    }

    /// The transaction that writes to relations of a schema.
    pub(crate) fn txn_for(&mut self, schema: &str) -> Result<&mut Transaction> {
        if schema != TEMPORARY_SCHEMA {
            return self.txn();
        }
        let missing = self.running.as_ref().expect("statements run in a transaction").temporary.is_none();
        if self.shared.temporary_database.get().is_none() {
            self.access().check(&Object::Database, Privilege::Temporary)?;
        }
        if missing {
            let txn = self.begin_in(self.temporary_database()?);
            self.running.as_mut().expect("just seen").temporary = Some(txn);
        }
        Ok(self.running.as_mut().and_then(|running| running.temporary.as_mut()).expect("just made sure of"))
    }

    /// The transaction that writes to a table.
    pub(crate) fn txn_of(&mut self, table: &Table) -> Result<&mut Transaction> {
        self.txn_for(&table.definition.schema)
    }

    /// The database of the session's temporary tables: in memory, without a log, and gone with the
    /// session.
    fn temporary_database(&self) -> Result<&Database> {
        if self.shared.temporary_database.get().is_none() {
            let database = Database::in_memory()?;
            let mut txn = database.begin();
            txn.create_schema(TEMPORARY_SCHEMA)?;
            txn.commit()?;
            let _ = self.shared.temporary_database.set(database);
        }
        Ok(self.shared.temporary_database.get().expect("just made sure of"))
    }

    /// The catalog of the session's temporary tables, in schema "pg_temp"; `None` before the first.
    pub fn temporary_catalog(&self) -> Option<Arc<Catalog>> {
        self.shared.temporary_database.get().map(Database::catalog)
    }

    /// Schema and name of the relation that a name means: unqualified, a temporary table goes
    /// before others.
    pub(crate) fn locate(&self, name: &Name) -> Result<(String, String)> {
        self.shared.view().expect("a statement is running").locate(name)
    }

    /// Schema and name of the relation that a statement is to make.
    pub(crate) fn locate_new(&self, name: &Name) -> Result<(String, String)> {
        self.shared.view().expect("a statement is running").locate_new(name)
    }

    pub(crate) fn table(&self, name: &Name) -> Result<Arc<Table>> {
        let (schema, name) = self.locate(name)?;
        let view = self.shared.view().expect("a statement is running");
        if schema != TEMPORARY_SCHEMA {
            view.access.check_usage(&schema)?;
        }
        Ok(view.of(&schema).0.table(&schema, &name)?.clone())
    }

    /// The snapshot in which the statement sees a table.
    pub(crate) fn snapshot_of(&self, table: &Table) -> Snapshot {
        let view = self.shared.view().expect("a statement is running");
        view.of(&table.definition.schema).1.clone()
    }

    /// Sets the modes of the transaction that BEGIN opened; without one, has no effect.
    pub(crate) fn set_modes(&mut self, modes: Modes) -> Result<()> {
        let Some(running) = self.running.as_mut().filter(|running| running.is_block()) else { return Ok(()) };
        self.shared.values.change_modes(modes, running.progress())?;
        running.follow_modes(modes);
        Ok(())
    }

    /// SET TRANSACTION SNAPSHOT.
    fn adopt_snapshot(&mut self, name: &str) -> Result<()> {
        let Some(running) = self.running.as_mut().filter(|running| running.is_block()) else {
            let message = "SET TRANSACTION SNAPSHOT can only be used in transaction blocks";
            return Err(SqlError::new(sqlstate::NO_ACTIVE_SQL_TRANSACTION, message));
        };
        let Progress { is_started, has_savepoint } = running.progress();
        if is_started || has_savepoint {
            let message = "SET TRANSACTION SNAPSHOT must be called before any query";
            return Err(SqlError::new(sqlstate::ACTIVE_SQL_TRANSACTION, message));
        }
        match self.shared.values.modes().isolation {
            Isolation::Snapshot => {}
            Isolation::Serializable => {
                return Err(SqlError::unsupported("SET TRANSACTION SNAPSHOT in a serializable transaction"));
            }
            Isolation::ReadUncommitted | Isolation::ReadCommitted => {
                let message =
                    "a snapshot-importing transaction must have isolation level SERIALIZABLE or REPEATABLE READ";
                return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
            }
        }
        let snapshot = self.shared.sql.exported_snapshots.named(name)?;
        running.txn.adopt(&snapshot);
        // Its modes are fixed: another level would give up the snapshot, or not know its reads.
        running.started = true;
        Ok(())
    }

    /// Statements that run outside of any statement's own transaction.
    pub(crate) async fn control(&mut self, statement: &Parsed) -> Option<Result<StatementResult>> {
        if let Some(result) = self.maintain(statement.statement()).await {
            return Some(self.failing(result));
        }
        if let Some(result) = self.set_roles(statement.statement()) {
            return Some(self.failing(result));
        }
        Some(match self.start_control(statement)? {
            Ok((result, started)) => started.durable().await.map(|()| result),
            Err(error) => Err(error),
        })
    }

    /// Statements about transactions: BEGIN, COMMIT, ROLLBACK and the like; `None` for any other. A
    /// commit is not waited for: its result must not be shown before it is
    /// [durable](Started::durable).
    ///
    /// # Errors
    /// The errors of the statement.
    pub fn start_control(&mut self, statement: &Parsed) -> Option<Result<(StatementResult, Started)>> {
        if self.transaction_status() == TransactionStatus::Failed && !ends_transaction(statement) {
            return None;
        }
        let done = |tag: &str| (StatementResult::command(tag), Started { affected: 0, ticket: None });
        let result = match statement.statement() {
            StatementKind::Transaction(control) => match control {
                Control::Commit { chain } => self.end_block(true, *chain),
                Control::Rollback { chain } => self.end_block(false, *chain),
                Control::Begin { start, modes } => {
                    self.begin_block(modes).map(|()| done(if *start { "START TRANSACTION" } else { "BEGIN" }))
                }
                Control::Savepoint(name) => self.savepoint(&name.name).map(|()| done("SAVEPOINT")),
                Control::Release(name) => self.release_savepoint(&name.name).map(|()| done("RELEASE")),
                Control::RollbackTo(name) => self.rollback_to_savepoint(&name.name).map(|()| done("ROLLBACK")),
                Control::Prepare(_) | Control::CommitPrepared(_) | Control::RollbackPrepared(_) => return None,
            },
            StatementKind::Set(Set { scope: _, change }) => match change {
                SetChange::Characteristics(modes) => self.set_default_modes(modes).map(|()| done("SET")),
                SetChange::Transaction(modes) => {
                    let mut wanted = self.shared.values.modes();
                    wanted.set(modes);
                    self.set_modes(wanted).map(|()| done("SET"))
                }
                SetChange::Snapshot(name) => self.adopt_snapshot(&name.text).map(|()| done("SET")),
                SetChange::Setting(_) => return None,
            },
            _ => return None,
        };
        Some(self.failing(result))
    }

    /// COMMIT and ROLLBACK; `chain`: the next transaction begins at once, with the same modes.
    fn end_block(&mut self, commits: bool, chain: bool) -> Result<(StatementResult, Started)> {
        let word = if commits { "COMMIT" } else { "ROLLBACK" };
        let modes = match &self.running {
            Some(running) if running.scope == Scope::Explicit => self.shared.values.modes(),
            _ if chain => {
                let message = format!("{word} AND CHAIN can only be used in transaction blocks");
                return Err(SqlError::new(sqlstate::NO_ACTIVE_SQL_TRANSACTION, message));
            }
            _ => {
                self.say(Severity::Warning, sqlstate::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
                self.shared.values.default_modes()
            }
        };
        // A failed transaction is rolled back in any case.
        let commits = commits && self.transaction_status() != TransactionStatus::Failed;
        let ticket = if commits {
            self.commit_now()?
        } else {
            self.end();
            None
        };
        if chain {
            self.begin(Scope::Explicit, modes);
        }
        let tag = if commits { "COMMIT" } else { "ROLLBACK" };
        Ok((StatementResult::command(tag), Started { affected: 0, ticket }))
    }

    /// BEGIN.
    fn begin_block(&mut self, modes: &[TransactionMode]) -> Result<()> {
        let Some(running) = &self.running else {
            let mut wanted = self.shared.values.default_modes();
            wanted.set(modes);
            self.shared.values.check_modes(wanted)?;
            self.begin(Scope::Explicit, wanted);
            return Ok(());
        };
        let (mut wanted, scope) = (self.shared.values.modes(), running.scope);
        wanted.set(modes);
        if scope == Scope::Explicit {
            self.say(Severity::Warning, sqlstate::ACTIVE_SQL_TRANSACTION, "there is already a transaction in progress");
        }
        self.set_modes(wanted)?;
        self.running.as_mut().expect("it is open").scope = Scope::Explicit;
        Ok(())
    }

    /// The block that BEGIN has opened, which alone has savepoints.
    fn block(&mut self, statement: &str) -> Result<&mut Running> {
        let no_block = || {
            SqlError::new(
                sqlstate::NO_ACTIVE_SQL_TRANSACTION,
                format!("{statement} can only be used in transaction blocks"),
            )
        };
        self.running.as_mut().filter(|running| running.scope == Scope::Explicit).ok_or_else(no_block)
    }

    fn savepoint(&mut self, name: &str) -> Result<()> {
        let (roles, settings) = (self.shared.roles.read().clone(), self.shared.changed_settings.mark());
        let read_only = self.shared.values.modes().read_only;
        let running = self.block("SAVEPOINT")?;
        let (name, mark, running_roles) = (name.to_owned(), running.mark(), running.roles.clone());
        running.savepoints.push(NamedSavepoint { name, mark, read_only, roles, running_roles, settings });
        Ok(())
    }

    fn release_savepoint(&mut self, name: &str) -> Result<()> {
        let running = self.block("RELEASE SAVEPOINT")?;
        let at = running.named_savepoint(name)?;
        let read_only = running.savepoints[at].read_only;
        running.savepoints.truncate(at);
        self.shared.values.set_read_only(read_only);
        self.shared.cursors.lock().release(at);
        Ok(())
    }

    fn rollback_to_savepoint(&mut self, name: &str) -> Result<()> {
        let running = self.block("ROLLBACK TO SAVEPOINT")?;
        let at = running.named_savepoint(name)?;
        running.savepoints.truncate(at + 1);
        let savepoint = &running.savepoints[at];
        let (mark, roles, settings) = (savepoint.mark.clone(), savepoint.roles.clone(), savepoint.settings.clone());
        running.roles = savepoint.running_roles.clone();
        let read_only = savepoint.read_only;
        running.rollback_to(&mark);
        running.txn.set_role(roles.current);
        running.failed = false;
        self.shared.values.set_read_only(read_only);
        self.shared.cursors.lock().roll_back(at);
        // Plans are made anew for another role.
        if *self.shared.roles.read() != roles {
            self.act_as(roles);
        }
        self.roll_settings_back(settings);
        Ok(())
    }
}

/// Whether a statement ends a transaction, or rolls back to a savepoint in it: a failed transaction
/// accepts only these.
pub fn ends_transaction(statement: &Parsed) -> bool {
    use Control::{Commit, Rollback, RollbackTo};
    matches!(statement.statement(), StatementKind::Transaction(Commit { .. } | Rollback { .. } | RollbackTo(_)))
}

/// Whether a statement is about transactions alone: it takes nothing and gives nothing.
pub fn controls_transaction(statement: &Parsed) -> bool {
    matches!(statement.statement(), StatementKind::Transaction(_))
}
