//! A session's transactions: BEGIN to COMMIT, savepoints, and who writes to which table.
//!
//! Temporary tables live in a small database of the session's own, with a transaction of its own beside the one on the database. Both begin, roll
//! back and commit together; as nobody else sees temporary tables, their commit cannot fail once the other has succeeded.

use crate::catalog::{TEMPORARY_SCHEMA, View};
use crate::error::{Result, SqlError};
use crate::expressions::SessionExpressions;
use crate::session::{Session, StatementResult, fold, resolve};
use datafusion::sql::sqlparser::ast::{ObjectName, Statement, TransactionAccessMode, TransactionMode};
use serac_engine::{Catalog, Database, Savepoint, Table, Transaction};
use serac_storage::Snapshot;
use std::sync::Arc;

/// A place to roll back to, in both transactions.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    main: Savepoint,
    temporary: Option<Box<Savepoint>>,
}

/// The running transaction.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) txn: Transaction,
    /// The transaction on the session's temporary tables, if it has had some.
    pub(crate) temporary: Option<Transaction>,
    pub(crate) explicit: bool,
    pub(crate) failed: bool,
    read_only: bool,
    savepoints: Vec<(String, Mark)>,
}

impl Running {
    pub(crate) fn mark(&mut self) -> Mark {
        Mark { main: self.txn.savepoint(), temporary: self.temporary.as_mut().map(|txn| Box::new(txn.savepoint())) }
    }
    pub(crate) fn rollback_to(&mut self, mark: &Mark) {
        self.txn.rollback_to(&mark.main);
        match (&mut self.temporary, &mark.temporary) {
            (Some(temporary), Some(mark)) => temporary.rollback_to(mark),
            // It began after the mark.
            (temporary, _) => *temporary = None,
        }
    }
    pub(crate) fn check_statement_end(&mut self) -> Result<()> {
        self.txn.check_statement_end()?;
        Ok(self.temporary.as_mut().map_or(Ok(()), Transaction::check_statement_end)?)
    }
}

impl Session {
    pub(crate) fn begin(&mut self, explicit: bool, read_only: bool) {
        let txn = self.begin_in(&self.shared.database);
        let temporary = self.shared.temporary_database.get().map(|database| self.begin_in(database));
        self.running = Some(Running { txn, temporary, explicit, failed: false, read_only, savepoints: Vec::new() });
    }
    fn begin_in(&self, database: &Database) -> Transaction {
        let mut txn = database.begin();
        txn.set_expressions(Arc::new(SessionExpressions(self.shared.clone())));
        txn
    }
    /// Begins the statement's own transaction again, with a new snapshot; false in a transaction that BEGIN opened.
    pub(crate) fn restart(&mut self) -> bool {
        let Some(running) = self.running.as_mut().filter(|running| !running.explicit) else { return false };
        running.txn.restart();
        if let Some(temporary) = &mut running.temporary {
            temporary.restart();
        }
        self.shared.lent.write().clear();
        self.refresh_view();
        true
    }
    /// Lets queries see what the transaction sees now.
    pub(crate) fn refresh_view(&self) {
        let part = |txn: &Transaction| (txn.catalog().clone(), txn.snapshot().clone(), txn.own_bitmap_changes());
        let view = self.running.as_ref().map(|running| {
            let (catalog, snapshot, own) = part(&running.txn);
            View { catalog, snapshot, own, temporary: running.temporary.as_ref().map(part) }
        });
        *self.shared.view.write() = view;
    }
    pub(crate) fn end(&mut self) -> Option<Running> {
        // A view left behind would keep old versions alive.
        *self.shared.view.write() = None;
        self.running.take()
    }
    pub(crate) async fn commit(&mut self) -> Result<()> {
        let Some(running) = self.end() else { return Ok(()) };
        let ticket = running.txn.commit()?;
        if let Some(temporary) = running.temporary {
            temporary.commit()?;
        }
        let (sender, receiver) = tokio::sync::oneshot::channel();
        ticket.on_durable(Box::new(move |result| {
            let _ = sender.send(result);
        }));
        match receiver.await {
            Ok(result) => result.map(|_| ()).map_err(SqlError::from),
            Err(_) => Err(SqlError::new("58030", "the log ended before the commit was durable")),
        }
    }
    /// The transaction on the database, to write.
    pub(crate) fn txn(&mut self) -> Result<&mut Transaction> {
        let running = self.running.as_mut().expect("statements run in a transaction");
        if running.read_only {
            return Err(SqlError::new("25006", "cannot write in a read-only transaction"));
        }
        Ok(&mut running.txn)
    }
    /// The transaction that writes to relations of a schema.
    pub(crate) fn txn_for(&mut self, schema: &str) -> Result<&mut Transaction> {
        if schema != TEMPORARY_SCHEMA {
            return self.txn();
        }
        let missing = self.running.as_ref().expect("statements run in a transaction").temporary.is_none();
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
    /// The database of the session's temporary tables: in memory, without a log, and gone with the session.
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

    /// The catalog of the session's temporary tables, in schema "pg_temp"; none before the first.
    pub fn temporary_catalog(&self) -> Option<Arc<Catalog>> {
        self.shared.temporary_database.get().map(Database::catalog)
    }

    /// Schema and name of the relation that a name means: unqualified, a temporary table goes before others.
    pub(crate) fn locate(&self, name: &ObjectName) -> Result<(String, String)> {
        let (schema, short) = resolve(name)?;
        let view = self.shared.view().expect("a statement is running");
        let schema = if name.0.len() == 1 { view.schema_of(&short).to_owned() } else { schema };
        Ok((schema, short))
    }
    pub(crate) fn table(&self, name: &ObjectName) -> Result<Arc<Table>> {
        let (schema, name) = self.locate(name)?;
        let view = self.shared.view().expect("a statement is running");
        Ok(view.of(&schema).0.table(&schema, &name)?.clone())
    }
    /// The snapshot in which the statement sees a table.
    pub(crate) fn snapshot_of(&self, table: &Table) -> Snapshot {
        let view = self.shared.view().expect("a statement is running");
        view.of(&table.definition.schema).1.clone()
    }

    /// Statements about transactions, which run outside of any statement's own.
    pub(crate) async fn control(&mut self, statement: &Statement) -> Option<Result<StatementResult>> {
        if let Some(result) = self.maintain(statement).await {
            return Some(result);
        }
        let no_transaction = || SqlError::new("25P01", "there is no transaction in progress");
        let done = |tag: &str| Ok(StatementResult::command(tag));
        Some(match statement {
            Statement::StartTransaction { modes, .. } => {
                if self.running.is_some() {
                    return Some(Err(SqlError::new("25001", "there is already a transaction in progress")));
                }
                let read_only =
                    modes.iter().any(|m| matches!(m, TransactionMode::AccessMode(TransactionAccessMode::ReadOnly)));
                self.begin(true, read_only);
                done("BEGIN")
            }
            Statement::Commit { .. } => match &self.running {
                None => done("COMMIT"),
                Some(running) if running.failed => {
                    self.end();
                    done("ROLLBACK")
                }
                Some(_) => self.commit().await.map(|()| StatementResult::command("COMMIT")),
            },
            Statement::Rollback { savepoint: None, .. } => {
                self.end();
                done("ROLLBACK")
            }
            Statement::Rollback { savepoint: Some(name), .. } => {
                let Some(running) = &mut self.running else { return Some(Err(no_transaction())) };
                let name = fold(name);
                let Some(at) = running.savepoints.iter().rposition(|(n, _)| *n == name) else {
                    return Some(Err(SqlError::new("3B001", format!("savepoint \"{name}\" does not exist"))));
                };
                let (_, mark) = running.savepoints[at].clone();
                running.rollback_to(&mark);
                running.savepoints.truncate(at + 1);
                running.failed = false;
                done("ROLLBACK")
            }
            Statement::Savepoint { name } => match &mut self.running {
                Some(running) if running.failed => return None,
                Some(running) => {
                    let savepoint = running.mark();
                    running.savepoints.push((fold(name), savepoint));
                    done("SAVEPOINT")
                }
                None => Err(SqlError::new("25P01", "SAVEPOINT can only be used in transaction blocks")),
            },
            Statement::ReleaseSavepoint { name } => match &mut self.running {
                Some(running) if running.failed => return None,
                Some(running) => {
                    let name = fold(name);
                    match running.savepoints.iter().rposition(|(n, _)| *n == name) {
                        Some(at) => {
                            running.savepoints.truncate(at);
                            done("RELEASE")
                        }
                        None => Err(SqlError::new("3B001", format!("savepoint \"{name}\" does not exist"))),
                    }
                }
                None => Err(no_transaction()),
            },
            _ => return None,
        })
    }
}
