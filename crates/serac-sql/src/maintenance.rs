//! `FREEZE TABLE t`, `CHECKPOINT`, `VACUUM`, `ANALYZE` and `SET CONSTRAINTS`, and the system views:
//! `serac_blocks`, `serac_indexes`, `serac_passes`, and those of [`backends`].

use crate::backends;
use crate::catalog::View;
use crate::error::{Result, SqlError};
use crate::identifiers::resolve;
use crate::parsed::Parsed;
use crate::pipeline;
use crate::session::{Session, SqlDatabase, StatementResult, TransactionStatus};
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use datafusion::catalog::{MemTable, TableProvider};
use serac_engine::roles::{Access, Object};
use serac_engine::{EngineError, Table};
use serac_index::cubit::Statistics;
use serac_parser::tree::{CommandOption, Discard, Ident, Name, SetConstraints, StatementKind, Vacuum};
use serac_storage::block::Block;
use serac_storage::{BlockNo, FreezeFormat};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Views of the system, by names that no schema has.
pub(crate) const SYSTEM_VIEWS: [&str; 6] =
    ["serac_blocks", "serac_indexes", "serac_activity", "serac_locks", "serac_metrics", "serac_passes"];

/// How long FREEZE TABLE waits for transactions that are running.
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
            | StatementKind::Vacuum(_)
    )
}

/// Refuses options that there are not. What the others ask for is done anyway, or has no meaning
/// here.
fn check_options(command: &str, options: &[CommandOption], known: &[&str]) -> Result<()> {
    match options.iter().find(|option| !known.contains(&option.name.name.as_str())) {
        Some(option) => Err(SqlError::new("42601", format!("unrecognized {command} option \"{}\"", option.name.name))),
        None => Ok(()),
    }
}

impl Session {
    /// Runs a statement of this module; none if it is another.
    pub(crate) async fn maintain(&mut self, statement: &StatementKind) -> Option<Result<StatementResult>> {
        if self.transaction_status() == TransactionStatus::Failed {
            return None;
        }
        Some(match statement {
            StatementKind::SetConstraints(constraints) => set_constraints(constraints),
            StatementKind::Analyze(analyze) => self.analyze(analyze),
            StatementKind::Vacuum(vacuum) => self.vacuum(vacuum).await,
            StatementKind::Checkpoint => self.checkpoint().await,
            StatementKind::FreezeTable(table) => self.freeze(table).await,
            _ => return None,
        })
    }

    /// Refuses a statement in a transaction block.
    fn check_no_block(&self, statement: &str) -> Result<()> {
        match self.transaction_status() {
            TransactionStatus::Idle => Ok(()),
            _ => Err(SqlError::new("25001", format!("{statement} cannot run inside a transaction block"))),
        }
    }

    /// ANALYZE: statistics are sampled when a query is planned, so nothing is out of date.
    fn analyze(&self, analyze: &Vacuum) -> Result<StatementResult> {
        let Vacuum { options, tables } = analyze;
        check_options("ANALYZE", options, &ANALYZE_OPTIONS)?;
        self.own_tables(tables).map(|_| StatementResult::command("ANALYZE"))
    }

    async fn vacuum(&mut self, vacuum: &Vacuum) -> Result<StatementResult> {
        let Vacuum { options, tables } = vacuum;
        check_options("VACUUM", options, &VACUUM_OPTIONS)?;
        let analyzes = options.iter().any(|option| option.name.name == "analyze");
        if !analyzes && tables.iter().any(|(_, columns)| !columns.is_empty()) {
            let message = "ANALYZE option must be specified when a column list is provided";
            return Err(SqlError::new("0A000", message));
        }
        self.check_no_block("VACUUM")?;
        let tables = self.own_tables(tables)?;
        let storage = self.database().storage().clone();
        let work = move || {
            storage.run_gc();
            tables.iter().for_each(|table| storage.vacuum_table(&table.data));
            Ok(StatementResult::command("VACUUM"))
        };
        blocking(work).await
    }

    async fn checkpoint(&mut self) -> Result<StatementResult> {
        self.check_no_block("CHECKPOINT")?;
        self.access_now().check_superuser("do CHECKPOINT")?;
        let database = self.database().clone();
        blocking(move || database.checkpoint().map_err(SqlError::from)).await?;
        Ok(StatementResult::command("CHECKPOINT"))
    }

    /// The named tables, which must be the current user's and have the columns; all of
    /// the user's if none is named.
    fn own_tables(&self, named: &[(Name, Vec<Ident>)]) -> Result<Vec<Arc<Table>>> {
        let access = self.access_now();
        if named.is_empty() {
            let owns = |table: &&Arc<Table>| access.owns(&Object::relation(&table.definition.schema, table.name()));
            let catalog = self.database().catalog();
            return Ok(catalog.tables().filter(owns).cloned().collect());
        }
        let table = |(name, columns): &(Name, Vec<Ident>)| {
            let table = self.own_table(name, &access)?;
            match columns.iter().find(|column| table.definition.column(&column.name).is_none()) {
                Some(column) => Err(SqlError::no_column(&column.name, table.name())),
                None => Ok(table),
            }
        };
        named.iter().map(table).collect()
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
            return Err(SqlError::new("55000", message));
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
            Err(SqlError::new("42809", message).named(named.to_string()))
        }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(SqlError::new("XX000", format!("the work ended early: {error}"))),
    }
}

/// One of [`SYSTEM_VIEWS`], or PostgreSQL's view of sessions, if it has the name.
pub(crate) fn system_view(
    name: &str,
    view: &View,
    sql: &SqlDatabase,
) -> datafusion::error::Result<Option<Arc<dyn TableProvider>>> {
    match name {
        "serac_blocks" => blocks_view(view).map(Some),
        "serac_indexes" => indexes_view(view).map(Some),
        "serac_activity" => backends::activity_view(sql, &view.access).map(Some),
        "serac_locks" => backends::locks_view(sql, view).map(Some),
        "serac_metrics" => backends::metrics_view(sql, &view.access).map(Some),
        "serac_passes" => {
            let passes = pipeline::view()?;
            Ok(Some(Arc::new(MemTable::try_new(passes.schema(), vec![vec![passes]])?)))
        }
        "pg_stat_activity" => backends::pg_stat_activity(sql, &view.access).map(Some),
        _ => Ok(None),
    }
}

fn text(values: Vec<String>) -> ArrayRef {
    Arc::new(StringArray::from(values))
}

/// Every index of every table, with the figures of the bitmap indexes as they are now.
fn indexes_view(view: &View) -> datafusion::error::Result<Arc<dyn TableProvider>> {
    let mut texts: [Vec<String>; 5] = Default::default();
    let mut numbers: [Vec<Option<i64>>; 11] = Default::default();
    let mut row = |names: [&str; 5], figures: [Option<u64>; 11]| {
        texts.iter_mut().zip(names).for_each(|(column, name)| column.push(name.to_owned()));
        numbers.iter_mut().zip(figures).for_each(|(column, figure)| column.push(figure.map(|n| n as i64)));
    };
    for (schema, entry) in &view.catalog.schemas {
        for (name, table) in entry.tables.iter().filter(|(_, table)| view.may_look_into(table)) {
            let columns = &table.definition.columns;
            for index in &table.indexes {
                let key = &index.definition;
                let names: Vec<_> = (0..key.columns.len()).map(|i| key.shown(i, &table.definition)).collect();
                let mut figures = [None; 11];
                figures[1] = Some(index.entries.len() as u64);
                row([schema, name, &index.definition.name, "btree", &names.join(", ")], figures);
            }
            for index in &table.bitmaps {
                let Statistics {
                    values,
                    rows,
                    bytes,
                    log_entries,
                    log_bits,
                    pending_bits,
                    publications,
                    merges,
                    helps,
                    longest_chain,
                    versions,
                    ..
                } = index.entries.statistics();
                let names = [schema, name, &index.definition.name, "bitmap", &columns[index.definition.column].name];
                let contents = [values, rows, bytes, log_entries, log_bits, pending_bits];
                let work = [publications, merges, helps, longest_chain, versions];
                let mut figures = contents.into_iter().chain(work);
                row(names, std::array::from_fn(|_| figures.next()));
            }
        }
    }
    let names = ["schema_name", "table_name", "index_name", "method", "columns"];
    let texts = names.into_iter().zip(texts).map(|(name, values)| (name, text(values), false));
    let names = [
        "values",
        "entries",
        "bytes",
        "log_entries",
        "log_bits",
        "pending_bits",
        "publications",
        "merges",
        "helps",
        "longest_chain",
        "versions",
    ];
    let numbers =
        names.into_iter().zip(numbers).map(|(name, values)| (name, Arc::new(Int64Array::from(values)) as _, true));
    let batch = RecordBatch::try_from_iter_with_nullable(texts.chain(numbers))?;
    Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
}

/// Every block of every table, as it is now.
fn blocks_view(view: &View) -> datafusion::error::Result<Arc<dyn TableProvider>> {
    let (mut schemas, mut tables, mut states, mut touched) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut numbers: [Vec<i64>; 8] = Default::default();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut formats: Vec<Option<&'static str>> = Vec::new();
    for (schema_name, schema) in &view.catalog.schemas {
        for (table_name, table) in schema.tables.iter().filter(|(_, table)| view.may_look_into(table)) {
            for no in 0..table.data.block_count() {
                let Some(block) = table.data.block(BlockNo(no)) else { continue };
                // The block table has it, and this function.
                let pins = Arc::strong_count(&block).saturating_sub(2);
                let (state, rows, versions, heap, garbage, bytes, idle) = match &*block {
                    Block::Hot(hot) => {
                        let versions = hot.versioned().load(std::sync::atomic::Ordering::Relaxed);
                        let (heap, garbage) = (hot.heap().bytes(), hot.heap().garbage_bytes());
                        let state = format!("{:?}", hot.temperature()).to_lowercase();
                        (state, hot.rows(), versions, heap, garbage, hot.bytes(), Some(hot.idle()))
                    }
                    Block::Frozen(frozen) => {
                        ("frozen".to_owned(), frozen.rows(), 0, frozen.heap_bytes(), 0, frozen.bytes(), None)
                    }
                };
                schemas.push(schema_name.clone());
                tables.push(table_name.clone());
                states.push(state);
                formats.push(block.frozen().map(|frozen| frozen.format().name()));
                touched.push(idle.map(|idle| now.saturating_sub(idle).as_micros() as i64));
                let empty = block.slot_limit() - rows;
                let counts = [no, rows, empty, versions].map(i64::from);
                let sizes = [heap, garbage, bytes, pins].map(|size| size as i64);
                numbers.iter_mut().zip(counts.into_iter().chain(sizes)).for_each(|(column, value)| column.push(value));
            }
        }
    }
    let [block, rows, empty, versions, heap, garbage, bytes, pins] =
        numbers.map(|values| Arc::new(Int64Array::from(values)) as ArrayRef);
    let touched = TimestampMicrosecondArray::from(touched).with_timezone("UTC");
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("schema_name", text(schemas), false),
        ("table_name", text(tables), false),
        ("block", block, false),
        ("state", text(states), false),
        ("format", Arc::new(StringArray::from(formats)) as ArrayRef, true),
        ("rows", rows, false),
        ("empty_slots", empty, false),
        ("versions", versions, false),
        ("heap_bytes", heap, false),
        ("garbage_bytes", garbage, false),
        ("bytes", bytes, false),
        ("pins", pins, false),
        ("last_touched", Arc::new(touched), true),
    ])?;
    Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
}
