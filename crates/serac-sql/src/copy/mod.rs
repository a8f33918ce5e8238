//! COPY … FROM and TO files, or streams that the session was given, in the formats of `serac-copy`.
//!
//! A COPY is one statement: after an error nothing of it is there. Rows are read as a stream and
//! appended to blocks as they come, and written as the query gives them.

mod options;
pub(crate) mod streams;

use crate::conflicts::Conflicts;
use crate::error::{Result, SqlError};
use crate::generated;
use crate::identifiers::{TEMPORARY_SCHEMA, name_of};
use crate::kept_expression::KeptExpression;
use crate::parsed::{Parsed, Source as Query};
use crate::result::StatementResult;
use crate::session::Session;
use crate::session_roles::check_server_files;
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::common::DFSchema;
use futures::StreamExt;
use options::read_options;
use serac_binder::Place;
use serac_copy::{
    CopyInput, CopyProgress, FileSink, Format, Input, Options, Quotes, Rows, Sink, Source, SteadyInput, at_place,
    first_failing, in_file,
};
use serac_engine::Table;
use serac_engine::catalog::definition::ColumnDefinition;
use serac_engine::security::{Privilege, RoleId};
use serac_parser::tree::{Copy, CopySubject, Ident, Name, Span, StatementKind};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Rows of a clustered table that are put in order at a time.
const CLUSTERED_ROWS: usize = 1 << 20;

/// The shape of a COPY through the session's streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamedCopy {
    /// From the stream into a table.
    pub is_input: bool,
    /// Whether it is PostgreSQL's binary format, or another that is no text.
    pub is_binary: bool,
    /// Rows are lines, except for line ends within these quotes; `None` if rows are no lines, or
    /// have no quotes.
    pub quotes: Option<Quotes>,
}

/// The destination of COPY TO.
enum Output {
    File(FileSink),
    /// The session's stream, which takes all without waiting, or is the session's own.
    Stream(Sink),
}

impl Output {
    async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match self {
            Self::File(sink) => sink.write(batch).await,
            Self::Stream(sink) => sink.write(batch),
        }
    }

    async fn finish(self) -> Result<()> {
        match self {
            Self::File(sink) => sink.finish().await,
            Self::Stream(sink) => sink.finish(),
        }
    }
}

/// What COPY … FROM writes to.
pub(crate) struct CopyTarget {
    table: Arc<Table>,
    /// The columns of the data, by their places in the table.
    pub(crate) columns: Vec<usize>,
    options: Options,
    /// The condition of the rows that are kept.
    filter: Option<String>,
}

/// The default columns of a COPY: all but the generated ones. Empty if no column is generated.
fn copied_columns(table: &Table) -> Vec<Ident> {
    match generated::parts(&table.definition) {
        (computed, _) if computed.is_empty() => Vec::new(),
        (_, given) => name_of(given.iter().map(|&at| table.definition.columns[at].name.clone())).parts,
    }
}

/// The condition of a COPY, over the columns of its table.
fn copy_filter<'t>(table: &'t Table, filter: &'t str) -> KeptExpression<'t> {
    KeptExpression::over(&table.definition, filter, Place::CopyFilter)
}

/// The columns of whole rows that the condition of a COPY sees: those of expressions of indexes,
/// which are computed behind it, are no part of a row.
fn seen_by_filter(table: &Table, rows: &RecordBatch) -> Result<RecordBatch> {
    let visible: Vec<usize> = (0..table.definition.visible_columns().len()).collect();
    Ok(rows.project(&visible)?)
}

/// The first name that comes again.
fn twice(names: impl Iterator<Item = String>) -> Option<String> {
    let mut seen = HashSet::new();
    names.into_iter().find(|name| !seen.insert(name.clone()))
}

impl Session {
    /// Sets the input of the next COPY … FROM STDIN.
    pub fn set_copy_input(&mut self, input: Box<dyn Read + Send>) {
        self.set_waiting_copy_input(Box::new(SteadyInput(input)));
    }

    /// The same of an input that tells whether it lets its reader wait.
    pub fn set_waiting_copy_input(&mut self, input: Box<dyn CopyInput + Send>) {
        *self.copy_streams.input.lock() = Some(input);
    }

    /// Sets the output of the next COPY … TO STDOUT.
    pub fn set_copy_output(&mut self, output: Box<dyn Write + Send>) {
        *self.copy_streams.output.lock() = Some(output);
    }

    /// The shape of a statement that needs the session's streams; `None` for others.
    ///
    /// # Errors
    /// The SQLSTATE of an error in its options.
    pub fn streamed_copy(&self, statement: &Parsed) -> Result<Option<StreamedCopy>> {
        let copy = match statement.statement() {
            StatementKind::Copy(copy) if copy.file.is_none() => copy,
            _ => return Ok(None),
        };
        let options = read_options("", &copy.options, self.copy_streams.format)?;
        let options = Options { style: self.time_style(), ..options };
        Ok(Some(StreamedCopy {
            is_input: copy.from,
            is_binary: !matches!(options.format, Format::Csv | Format::Text),
            quotes: options.quotes(),
        }))
    }

    /// The progress of this session's COPY.
    pub fn copy_progress(&self) -> Arc<CopyProgress> {
        self.copy_streams.progress.clone()
    }

    /// The COPY at `source`.
    pub(crate) async fn copy(&mut self, copy: &Copy, source: &Query) -> Result<StatementResult> {
        // The target of a COPY from somewhere has its condition.
        let Copy { subject, from, program, file, options, filter: _ } = copy;
        self.copy_streams.progress.restart();
        if *program {
            return Err(SqlError::unsupported("COPY with a program"));
        }
        let missing = |what: &str| SqlError::new(sqlstate::PROTOCOL_VIOLATION, format!("the session has no {what}"));
        let (name, stream) = match file {
            Some(file) => (file.text.as_str(), false),
            None => (if *from { "STDIN" } else { "STDOUT" }, true),
        };
        let of_files = if *from { RoleId::READ_SERVER_FILES } else { RoleId::WRITE_SERVER_FILES };
        if !stream {
            check_server_files(&self.access(), of_files, "COPY to or from a file")
                .map_err(|error| error.also("STDIN and STDOUT are for everybody."))?;
        }
        let rows = match subject {
            CopySubject::Table { .. } if *from => {
                let target = self.copy_target(copy, source)?;
                let input = if stream {
                    Input::Stream(self.copy_streams.input.get_mut().take().ok_or_else(|| missing(name))?)
                } else {
                    Input::File(name.to_owned())
                };
                self.copy_from(target, name, input).await?
            }
            subject => {
                let options = read_options(name, options, self.copy_streams.format)?;
                let options = Options { style: self.time_style(), ..options };
                options.check_output()?;
                let query = match subject {
                    CopySubject::Query(_) => source.clone(),
                    CopySubject::Table { name, columns } => self.copied_rows(name, columns)?,
                };
                let file = (!stream).then_some(name);
                let output = self.copy_streams.output.get_mut().take_if(|_| stream);
                if stream && output.is_none() {
                    return Err(missing(name));
                }
                let copied = self.copy_to(query, file, output, &options).await;
                let is_of_table = matches!(subject, CopySubject::Table { .. });
                copied.map_err(|error| if is_of_table { error.unplaced() } else { error })?
            }
        };
        Ok(StatementResult::Command { tag: format!("COPY {rows}"), rows })
    }

    /// The query of the rows of a table that COPY writes.
    fn copied_rows(&self, table: &Name, columns: &[Ident]) -> Result<Query> {
        if let Some(column) = twice(columns.iter().map(|column| column.name.clone())) {
            return Err(SqlError::column_twice(&column));
        }
        if !columns.is_empty() {
            return Ok(Query::of_relation(table, columns));
        }
        // A relation that is no table is a view.
        let all = self.table(table).map(|table| copied_columns(&table)).unwrap_or_default();
        Ok(Query::of_relation(table, &all))
    }

    /// The target of the COPY … FROM at `source`, whose statement may run.
    ///
    /// # Errors
    /// The errors that PostgreSQL tells before it asks for data.
    pub(crate) fn copy_target(&self, copy: &Copy, source: &Query) -> Result<CopyTarget> {
        let CopySubject::Table { name: table, columns } = &copy.subject else {
            return Err(SqlError::new(sqlstate::INTERNAL_ERROR, "a query is no target of COPY"));
        };
        let name = copy.file.as_ref().map_or("STDIN", |file| file.text.as_str());
        let options = read_options(name, &copy.options, self.copy_streams.format)?;
        let options = Options { style: self.time_style(), ..options };
        let table = self.table(table)?;
        let mut targets = Vec::new();
        for Ident { name: column, span: _ } in columns {
            let at = table.definition.column(column);
            let at = at.ok_or_else(|| SqlError::no_column(column, table.name()))?;
            if targets.contains(&at) {
                return Err(SqlError::column_twice(column));
            }
            targets.push(at);
        }
        let all = &table.definition.columns;
        if let Some(&at) = targets.iter().find(|&&at| all[at].generation.is_some()) {
            let error = SqlError::new(
                sqlstate::INVALID_COLUMN_REFERENCE,
                format!("column \"{}\" is a generated column", all[at].name),
            );
            return Err(SqlError { detail: Some("Generated columns cannot be used in COPY.".into()), ..error });
        }
        if targets.is_empty() {
            targets = generated::parts(&table.definition).1;
        }
        self.check_privilege(&table, Privilege::Insert, &targets)?;
        let filter = copy.filter.as_ref().map(|filter| {
            let Span { start, end } = filter.span;
            source.text()[start as usize..end as usize].to_owned()
        });
        self.check_copy_filter(&table, filter.as_deref())?;
        let names: Vec<&str> = targets.iter().map(|&at| all[at].name.as_str()).collect();
        let options = options.for_columns(&table, &names)?;
        if self.shared.values.modes().read_only && table.definition.schema != TEMPORARY_SCHEMA {
            let message = "cannot execute COPY FROM in a read-only transaction";
            return Err(SqlError::new(sqlstate::READ_ONLY_SQL_TRANSACTION, message));
        }
        if options.freeze && self.running.as_ref().expect("it runs").had_data(&table) {
            let message = "cannot perform COPY FREEZE because the table was not created or truncated in the \
                           current subtransaction";
            return Err(SqlError::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        Ok(CopyTarget { table, columns: targets, options, filter })
    }

    async fn copy_from(&mut self, target: CopyTarget, name: &str, input: Input) -> Result<u64> {
        let CopyTarget { table, columns: targets, options, filter } = target;
        let (filter, progress) = (filter.as_deref(), self.copy_progress());
        let types = targets.iter().map(|&at| table.definition.columns[at].sql_type.column_type).collect();
        let mut source = Source::start(input, options, types, progress.clone())?;
        let (mut read_rows, mut rows, mut run, mut run_rows) = (0u64, 0, Vec::new(), 0);
        while let Some(read) = source.next().await.map_err(|e| in_file(e, name))? {
            let batch = &read.batch;
            if batch.num_columns() != targets.len() {
                return Err(SqlError::new(
                    sqlstate::BAD_COPY_FILE_FORMAT,
                    format!("\"{name}\" has {} columns, but {} are wanted", batch.num_columns(), targets.len()),
                ));
            }
            let complete = match self.checked_rows(&table, &targets, filter, batch) {
                Ok(complete) => complete,
                Err(error) => {
                    let first = self.first_wrong(&table, &targets, filter, &read, read_rows, error);
                    return Err(in_file(first, name));
                }
            };
            read_rows += batch.num_rows() as u64;
            rows += complete.num_rows() as u64;
            run_rows += complete.num_rows();
            run.push(complete);
            if table.definition.cluster.is_empty() || run_rows >= CLUSTERED_ROWS {
                self.insert_run(&table, std::mem::take(&mut run)).await?;
                run_rows = 0;
            }
            progress.rows.store(rows, Ordering::Relaxed);
            tokio::task::yield_now().await; // cancellation is seen between batches
        }
        self.insert_run(&table, run).await?;
        Ok(rows)
    }

    /// Checks the condition of a COPY before its rows come.
    fn check_copy_filter(&self, table: &Table, filter: Option<&str>) -> Result<()> {
        let Some(filter) = filter else { return Ok(()) };
        let empty = seen_by_filter(table, &RecordBatch::new_empty(table.definition.storage_schema().arrow()))?;
        let (filter, state) = (copy_filter(table, filter), self.state());
        filter.values(&state, &empty)?;
        // A whole row has all columns.
        let bound = filter.bound(&state, &DFSchema::try_from(empty.schema().as_ref().clone())?)?.expr;
        let named = bound.column_refs();
        let is_named = |column: &ColumnDefinition| named.iter().any(|named| named.name == column.name);
        let mut generated = table.definition.visible_columns().iter().filter(|column| column.generation.is_some());
        if let Some(column) = generated.find(|column| is_named(column)) {
            let error = SqlError::new(
                sqlstate::INVALID_COLUMN_REFERENCE,
                "generated columns are not supported in COPY FROM WHERE conditions",
            );
            return Err(error.explained(format!("Column \"{}\" is a generated column.", column.name)));
        }
        Ok(())
    }

    /// The rows for which the condition holds, as the table has them.
    fn checked_rows(
        &self,
        table: &Table,
        targets: &[usize],
        filter: Option<&str>,
        batch: &RecordBatch,
    ) -> Result<RecordBatch> {
        let mut given = self.given_rows(table, targets, batch)?;
        if let Some(filter) = filter {
            let holds = copy_filter(table, filter).values(&self.state(), &seen_by_filter(table, &given)?)?;
            given = filter_record_batch(&given, holds.as_boolean())?;
        }
        let complete = generated::complete(&self.state(), table, given)?;
        // As the engine does, which knows no lines.
        self.check_rows(table, &complete)?;
        Ok(complete)
    }

    /// The error of the first wrong row, with its line, or its number if rows are no lines.
    /// `before`: rows that were read before these.
    fn first_wrong(
        &self,
        table: &Table,
        targets: &[usize],
        filter: Option<&str>,
        read: &Rows,
        before: u64,
        error: SqlError,
    ) -> SqlError {
        let run = |from: usize, rows: usize| {
            self.checked_rows(table, targets, filter, &read.batch.slice(from, rows)).map(|_| ())
        };
        let (first, error) = first_failing(read.batch.num_rows(), error, run);
        let place = match read.lines.get(first) {
            Some(line) => format!("line {line}"),
            None => format!("row {}", before + first as u64 + 1),
        };
        at_place(error, &place)
    }

    /// Appends rows, in the order of the table's key if it has one. If another transaction is in
    /// the way of a batch, that batch waits and is appended again: a stream does not give its rows
    /// twice. Not so where foreign keys are checked at the statement's end: to go back would forget
    /// those of earlier batches.
    async fn insert_run(&mut self, table: &Arc<Table>, run: Vec<RecordBatch>) -> Result<()> {
        for batch in self.clustered(table, run)? {
            let mut conflicts = Conflicts::default();
            loop {
                let mark = self.running.as_mut().expect("it runs").mark();
                let Err(error) = self.txn_of(table)?.insert_batch(table, &batch) else { break };
                if !table.definition.foreign_keys.is_empty() {
                    return Err(error.into());
                }
                // The whole statement's timeout goes on beside these.
                let mut limits = self.limits();
                self.make_way_from(Some(&mark), error.into(), false, &mut conflicts, &mut limits).await?;
            }
        }
        Ok(())
    }

    async fn copy_to(
        &mut self,
        query: Query,
        file: Option<&str>,
        stream: Option<Box<dyn Write + Send>>,
        options: &Options,
    ) -> Result<u64> {
        let (_, mut batches) = self.rows(query).await?;
        // Rows leave before the statement ends.
        self.snapshot_is_durable().await?;
        let schema = batches.schema();
        let mut sink = match file {
            Some(path) => Output::File(FileSink::create(path, schema, options.clone()).await?),
            None => Output::Stream(Sink::new(stream.expect("a file or a stream"), &schema, options, true)?),
        };
        let progress = self.copy_progress();
        while let Some(batch) = batches.next().await {
            let batch = batch?;
            self.reads_are_durable().await?;
            sink.write(&batch).await?;
            progress.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
        sink.finish().await?;
        Ok(progress.rows())
    }
}
