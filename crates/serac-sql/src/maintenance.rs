//! `FREEZE TABLE t`, `CHECKPOINT`, `BACKUP`, `VACUUM`, `ANALYZE` and `SET CONSTRAINTS`.

use crate::error::{Result, SqlError};
use crate::identifiers::{CATALOG_SCHEMA, TEMPORARY_SCHEMA, resolve};
use crate::notices::Severity;
use crate::parsed::Parsed;
use crate::pg_catalog::system_table;
use crate::result::StatementResult;
use crate::session::Session;
use crate::transaction::TransactionStatus;
use serac_engine::security::{Access, Object, RoleId};
use serac_engine::{EngineError, Table};
use serac_parser::tree::{CommandOption, Discard, Ident, Name, SetConstraints, StatementKind, Vacuum};
use serac_storage::FreezeFormat;
use serac_storage::durability::checkpoint::CheckpointReport;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The time that FREEZE TABLE waits for running transactions.
const FREEZE_PATIENCE: Duration = Duration::from_secs(5);

/// Options of VACUUM.
const VACUUM_OPTIONS: [&str; 10] = [
    "full",
    "freeze",
    "verbose",
    "analyze",
    "disable_page_skipping",
    "skip_locked",
    "index_cleanup",
    "process_toast",
    "truncate",
    "parallel",
];
/// Options of ANALYZE.
const ANALYZE_OPTIONS: [&str; 2] = ["verbose", "skip_locked"];

/// Whether a statement cannot run in a transaction block.
pub fn runs_outside_of_blocks(statement: &Parsed) -> bool {
    matches!(
        statement.statement(),
        StatementKind::Discard(Discard::All)
            | StatementKind::FreezeTable(_)
            | StatementKind::Checkpoint
            | StatementKind::Backup(_)
            | StatementKind::Vacuum(_)
    )
}

/// Whether a statement does something that the rollback of its transaction undoes. A driver whose
/// user ends transactions begins one before it.
pub fn acts_in_transaction(statement: &Parsed) -> bool {
    use StatementKind as Kind;
    match statement.statement() {
        Kind::Query(_) | Kind::Explain(_) => statement.source().acts(),
        Kind::Describe(_) | Kind::Set(_) | Kind::Reset(_) | Kind::Show(_) | Kind::Transaction(_) => false,
        Kind::Prepare(_) | Kind::Deallocate(_) | Kind::Fetch(_) | Kind::CloseCursor(_) => false,
        Kind::Listen(_) | Kind::Unlisten(_) | Kind::Discard(_) => false,
        _ => !runs_outside_of_blocks(statement),
    }
}

/// Refuses unknown options. The effect of the others happens anyway, or has no meaning here.
fn check_options(command: &str, options: &[CommandOption], known: &[&str]) -> Result<()> {
    match options.iter().find(|option| !known.contains(&option.name.name.as_str())) {
        Some(option) => Err(SqlError::new(
            sqlstate::SYNTAX_ERROR,
            format!("unrecognized {command} option \"{}\"", option.name.name),
        )),
        None => Ok(()),
    }
}

impl Session {
    /// Runs a statement of this module; `None` for another statement.
    pub(crate) async fn maintain(&mut self, statement: &StatementKind) -> Option<Result<StatementResult>> {
        if self.transaction_status() == TransactionStatus::Failed {
            return None;
        }
        Some(match statement {
            StatementKind::SetConstraints(constraints) => set_constraints(constraints),
            StatementKind::Analyze(analyze) => self.analyze(analyze),
            StatementKind::Vacuum(vacuum) => self.vacuum(vacuum).await,
            StatementKind::Checkpoint => self.checkpoint().await.map(|_| StatementResult::command("CHECKPOINT")),
            StatementKind::Backup(folder) => self
                .backup(Path::new(&folder.text))
                .await
                .map(|report| StatementResult::Command { tag: format!("BACKUP {}", report.rows), rows: report.rows }),
            StatementKind::FreezeTable(table) => self.freeze(table).await,
            _ => return None,
        })
    }

    /// Refuses a statement in a transaction block.
    fn check_no_block(&self, statement: &str) -> Result<()> {
        match self.transaction_status() {
            TransactionStatus::Idle => Ok(()),
            _ => Err(SqlError::new(
                sqlstate::ACTIVE_SQL_TRANSACTION,
                format!("{statement} cannot run inside a transaction block"),
            )),
        }
    }

    /// ANALYZE: statistics are sampled when a query is planned, so nothing is out of date.
    fn analyze(&mut self, analyze: &Vacuum) -> Result<StatementResult> {
        let Vacuum { options, tables } = analyze;
        check_options("ANALYZE", options, &ANALYZE_OPTIONS)?;
        self.own_tables("analyze", tables).map(|_| StatementResult::command("ANALYZE"))
    }

    async fn vacuum(&mut self, vacuum: &Vacuum) -> Result<StatementResult> {
        let Vacuum { options, tables } = vacuum;
        check_options("VACUUM", options, &VACUUM_OPTIONS)?;
        let analyzes = options.iter().any(|option| option.name.name == "analyze");
        if !analyzes && tables.iter().any(|(_, columns)| !columns.is_empty()) {
            let message = "ANALYZE option must be specified when a column list is provided";
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
        }
        self.check_no_block("VACUUM")?;
        let tables = self.own_tables("vacuum", tables)?;
        let storage = self.database().storage().clone();
        let temporary = self.shared.temporary_database.get().map(|database| database.storage().clone());
        let work = move || {
            storage.run_gc();
            for table in tables {
                let storage = match &temporary {
                    Some(temporary) if table.definition.schema == TEMPORARY_SCHEMA => temporary,
                    _ => &storage,
                };
                storage.vacuum_table(&table.data);
            }
            Ok(StatementResult::command("VACUUM"))
        };
        blocking(work).await
    }

    /// CHECKPOINT. A database in memory writes nothing.
    ///
    /// # Errors
    /// 42501 for others than superusers and members of `pg_checkpoint`, 25001 in a transaction
    /// block, 58030 or 53100 when files cannot be written.
    pub async fn checkpoint(&mut self) -> Result<CheckpointReport> {
        self.check_no_block("CHECKPOINT")?;
        let access = self.access_now();
        if !access.has_privileges_of(RoleId::CHECKPOINT) {
            access.check_superuser("do CHECKPOINT")?;
        }
        let database = self.database().clone();
        blocking(move || database.checkpoint().map_err(SqlError::from)).await
    }

    /// BACKUP: writes a copy of the database, as it is now, into a folder that does not exist or is
    /// empty.
    ///
    /// # Errors
    /// 42501 for others than superusers, 25001 in a transaction block, 58030 or 53100 for a folder
    /// that is not empty or cannot be written, 57014 when it is cancelled.
    pub async fn backup(&mut self, folder: &Path) -> Result<CheckpointReport> {
        self.check_no_block("BACKUP")?;
        self.access_now().check_superuser("do BACKUP")?;
        let (database, folder) = (self.database().clone(), folder.to_owned());
        let wanted = Arc::new(());
        // The caller gives the future up at a cancellation, and `wanted` with it.
        let asked = Arc::downgrade(&wanted);
        let write = move || Ok(database.backup(folder, || asked.strong_count() == 0)?);
        let written = async move {
            let written = blocking(write).await;
            drop(wanted);
            written
        };
        self.limits().keep(written).await
    }

    /// The named tables, which must have the columns. Tables that the current user may not maintain
    /// are left out with a warning. Without names, all tables of the user.
    fn own_tables(&mut self, what: &str, named: &[(Name, Vec<Ident>)]) -> Result<Vec<Arc<Table>>> {
        let access = self.access();
        let catalog = match &self.running {
            Some(running) => running.txn.catalog().clone(),
            None => self.database().catalog(),
        };
        let temporary = match self.running.as_ref().and_then(|running| running.temporary.as_ref()) {
            Some(temporary) => Some(temporary.catalog().clone()),
            None => self.temporary_catalog(),
        };
        let owns = |table: &Table| access.owns(&Object::relation(&table.definition.schema, table.name()));
        let of_database = access.owns(&Object::Database);
        if named.is_empty() {
            return Ok(catalog.tables().filter(|table| of_database || owns(table)).cloned().collect());
        }
        let path = self.path(&catalog, &access);
        let mut tables = Vec::new();
        for (name, columns) in named {
            let (schema, short) = resolve(name)?;
            let is_qualified = name.parts.len() > 1;
            let of_session = temporary.as_ref().filter(|_| !is_qualified || schema == TEMPORARY_SCHEMA);
            if let Some(table) = of_session.and_then(|temporary| temporary.table(TEMPORARY_SCHEMA, &short).ok()) {
                check_columns(table, columns)?;
                tables.push(table.clone());
                continue;
            }
            let is_system = match is_qualified {
                true => system_table::is_table(&schema, &short),
                false => system_table::is_table(CATALOG_SCHEMA, &short),
            };
            let skipped = if is_system {
                // It is made whenever it is read.
                (!of_database).then(|| format!("only superuser or database owner can {what} it"))
            } else {
                let has = |schema: &&String| catalog.kind_of(&Object::relation(schema, &short)).is_some();
                let found = if is_qualified { Some(&schema) } else { path.iter().find(has) };
                let missing = || EngineError::Missing { kind: "relation", name: short.clone() };
                let schema = found.ok_or_else(missing)?;
                access.check_usage(schema)?;
                match catalog.table(schema, &short) {
                    Ok(table) if of_database || owns(table) => {
                        check_columns(table, columns)?;
                        tables.push(table.clone());
                        None
                    }
                    Ok(_) => Some(format!("only table or database owner can {what} it")),
                    Err(EngineError::OtherKind { .. }) => {
                        Some(format!("cannot {what} non-tables or special system tables"))
                    }
                    Err(error) => return Err(error.into()),
                }
            };
            if let Some(why) = skipped {
                self.say(Severity::Warning, sqlstate::WARNING, format!("skipping \"{short}\" --- {why}"));
            }
        }
        Ok(tables)
    }

    /// The table of a name, which must be the current user's.
    fn own_table(&self, name: &Name, access: &Access) -> Result<Arc<Table>> {
        let table = self.find_table(name, access)?;
        access.check_usage(&table.definition.schema)?;
        access.check_owner(&Object::relation(&table.definition.schema, table.name()))?;
        Ok(table)
    }

    fn find_table(&self, name: &Name, access: &Access) -> Result<Arc<Table>> {
        let catalog = self.database().catalog();
        let (schema, table) = resolve(name)?;
        if name.parts.len() > 1 {
            return Ok(catalog.table(&schema, &table)?.clone());
        }
        let path = self.path(&catalog, access);
        let found = path.iter().find_map(|schema| catalog.table(schema, &table).ok());
        found.cloned().ok_or_else(|| EngineError::Missing { kind: "relation", name: table }.into())
    }

    async fn freeze(&mut self, name: &Name) -> Result<StatementResult> {
        self.check_no_block("FREEZE TABLE")?;
        let table = self.own_table(name, &self.access_now())?;
        if table.data.freeze_format() == FreezeFormat::Never {
            let message = format!("table \"{}\" does not freeze: its freeze_format is never", table.name());
            return Err(SqlError::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        let storage = self.database().storage().clone();
        let (frozen, blocks) = blocking(move || Ok(storage.freeze_table(&table.data, FREEZE_PATIENCE))).await?;
        let tag = if frozen == blocks {
            format!("FREEZE TABLE {blocks}")
        } else {
            format!("FREEZE TABLE {frozen} of {blocks}")
        };
        Ok(StatementResult::Command { tag, rows: frozen.into() })
    }
}

/// SET CONSTRAINTS: all are checked at the end of each statement.
fn set_constraints(constraints: &SetConstraints) -> Result<StatementResult> {
    let SetConstraints { names, deferred: _ } = constraints;
    match names.first() {
        None => Ok(StatementResult::command("SET CONSTRAINTS")),
        Some(named) => {
            let message = format!("constraint \"{named}\" is not deferrable");
            Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message).named(named.to_string()))
        }
    }
}

/// Refuses columns that a table does not have.
fn check_columns(table: &Table, columns: &[Ident]) -> Result<()> {
    match columns.iter().find(|column| table.definition.column(&column.name).is_none()) {
        Some(column) => Err(SqlError::no_column(&column.name, table.name())),
        None => Ok(()),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(SqlError::new(sqlstate::INTERNAL_ERROR, format!("the work ended early: {error}"))),
    }
}
