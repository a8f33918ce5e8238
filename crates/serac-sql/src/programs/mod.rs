//! Jobs beside the data: `CALL serac_run('…')`.
//!
//! This crate knows what a job reads and what becomes of its rows. How it runs is its host's:
//! [`SqlOptions`](crate::SqlOptions) has something that is [`Programs`], or nothing runs.
//!
//! ```text
//!   CALL serac_run ──▶ Programs::job ──▶ inputs: each a query in the statement's transaction
//!                                         │ batches, as they come
//!                                         ▼
//!                      Job::run, on a thread of its own ──▶ bytes ──▶ read without trust ──▶ rows
//! ```
//!
//! **Who may.** Programs of the machine reach beyond the database's roles. So a superuser alone
//! calls them. A job of WebAssembly reads its inputs and nothing else: anybody may call it, with
//! the tables that he may read. Before an input is read, it is clear that the role may run the job,
//! and that this process can.
//!
//! **Memory.** A job's inputs, its outputs and what its programs take are charged to the memory of
//! the session's queries ([`Job::charge_to`]). What is refused ends the job (SQLSTATE 53200).
//!
//! **Cancelling.** A statement that is cancelled, whose time is over or whose client has gone drops
//! the future here, and that tells the job to end. It runs once: a job is no statement that a
//! conflict begins again.

mod table;

pub(crate) use table::FunctionTable;

use crate::ddl::stored_type;
use crate::error::{Result, SqlError};
use crate::parsed::Source;
use crate::session::{Session, StatementResult, parse};
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use futures::TryStreamExt;
use serac_copy::ArrowStream;
use serac_parser::tree::{Argument, Call, Expr};
use serac_pg::TypeId;
use serac_storage::ColumnType;
use serac_values::assignment::assign;
use serac_values::free_numbers::given_batch;
use std::fmt;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The procedure that runs a job.
pub(crate) const RUN: &str = "serac_run";

/// What can run jobs.
pub trait Programs: fmt::Debug + Send + Sync {
    /// Reads a job's description.
    ///
    /// # Errors
    /// What is wrong with it.
    fn job(&self, description: &str) -> Result<Box<dyn Job>>;
}

/// A job that has not run.
pub trait Job: Send {
    /// The names and queries of its inputs, in order.
    fn inputs(&self) -> Vec<(String, String)>;
    /// Whether it runs programs of the machine.
    fn runs_programs(&self) -> bool;
    /// Makes sure that this process can run it, as far as that is known before it has inputs.
    ///
    /// # Errors
    /// What the process cannot do, or a program that is not there.
    fn check_runnable(&self) -> Result<()>;
    /// Charges to `memory` what the job takes from now on: inputs before they are written, outputs,
    /// and the memory of its programs. It gives the memory back with the last of its output.
    fn charge_to(&mut self, memory: MemoryReservation);
    /// What a function that is this job was called with, as text; none for NULL.
    fn set_arguments(&mut self, arguments: &[Option<String>]);
    /// Begins with the rows of the next input, which have these columns.
    ///
    /// # Errors
    /// What the system or Arrow refuses.
    fn begin_input(&mut self, schema: &Schema) -> Result<()>;
    /// Takes rows of it.
    ///
    /// # Errors
    /// What the system or Arrow refuses, or that there are more than a job may read.
    fn write_input(&mut self, batch: &RecordBatch) -> Result<()>;
    /// Runs it on this thread, and ends it when `cancelled` becomes true. What it gives comes from
    /// a program, and is a stream of Arrow if that is right.
    ///
    /// # Errors
    /// How it failed.
    fn run(self: Box<Self>, cancelled: &AtomicBool) -> Result<Box<dyn Read + Send>>;
}

/// Tells a job to end when nobody waits for it any more.
struct EndAtDrop(Arc<AtomicBool>);

impl Drop for EndAtDrop {
    fn drop(&mut self) {
        // Relaxed: who looks does nothing else by it.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whether a CALL is that of a job.
pub(crate) fn is_run(call: &Call) -> bool {
    matches!(&call.name.parts[..], [name] if name.name == RUN)
}

/// The argument of such a CALL.
fn description_of(call: &Call) -> Result<&Expr> {
    let Call { name: _, arguments, star, distinct, variadic, order_by, within_group, filter, ignores_nulls, over } =
        call;
    let has_clauses = *star
        || *distinct
        || *variadic
        || !order_by.is_empty()
        || !within_group.is_empty()
        || filter.is_some()
        || ignores_nulls.is_some()
        || over.is_some();
    match &arguments[..] {
        [Argument { name: None, value }] if !has_clauses => Ok(value),
        _ => Err(SqlError::new("42883", format!("{RUN} takes the description of a job, as text")).named(RUN)),
    }
}

/// The query of an input, which changes nothing.
pub(crate) fn input_query(query: &str) -> Result<Source> {
    let not_a_query = || SqlError::new("42601", "an input of a job is one query");
    let mut statements = parse(query)?;
    let statement = statements.pop().filter(|_| statements.is_empty()).ok_or_else(not_a_query)?;
    match statement.only_shows() {
        true => Ok(statement.into_source()),
        false => Err(not_a_query()),
    }
}

/// Makes sure that a text is what an input of a job may be: one query, which changes nothing.
///
/// # Errors
/// 42601 for anything else.
pub fn check_job_input(query: &str) -> Result<()> {
    input_query(query).map(|_| ())
}

/// Batches of a stream that comes from outside, whose columns are of types that tables have.
///
/// # Errors
/// What is wrong with the stream. `grow` is told how many bytes each batch has, and may refuse.
pub(crate) fn read_rows(
    input: impl Read,
    mut grow: impl FnMut(usize) -> Result<()>,
) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let stream = ArrowStream::new(input)?;
    let stored = |field: &Arc<Field>| match field.extension_type_name() {
        Some("arrow.json") => Ok(ColumnType::Json),
        _ => Ok(stored_type(field.data_type())?.column_type),
    };
    let types = stream.schema().fields().iter().map(stored).collect::<Result<Vec<ColumnType>>>()?;
    let field = |(field, column_type): (&Arc<Field>, &ColumnType)| {
        serac_storage::marked(Field::new(field.name(), column_type.arrow(), true))
    };
    let schema = Arc::new(Schema::new(stream.schema().fields().iter().zip(&types).map(field).collect::<Vec<_>>()));
    let mut batches = Vec::new();
    for batch in stream {
        let batch = given_batch(batch?)?;
        // A value that its column's type does not have is an error, and no NULL.
        let columns = batch.columns().iter().zip(&types).zip(schema.fields());
        let columns = columns.map(|((column, column_type), field)| assign(column, (*column_type).into(), field.name()));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(schema.clone(), columns, &options)?;
        grow(batch.get_array_memory_size())?;
        batches.push(batch);
    }
    Ok((schema, batches))
}

impl Session {
    /// The CALL of a job at `source`.
    pub(crate) async fn call_job(&mut self, call: &Call, source: &Source) -> Result<StatementResult> {
        let text = self.arguments_of(source, [description_of(call)?], &[TypeId::TEXT]).await?.remove(0);
        let text = text.try_as_str().flatten();
        let text = text.ok_or_else(|| SqlError::new("22004", "the description of a job is NULL"))?;
        let (schema, batches) = self.run_job(text).await?;
        Ok(StatementResult::Rows { tag: "CALL", schema, batches })
    }

    /// Runs a job in the statement's transaction; its rows.
    pub(crate) async fn run_job(&mut self, description: &str) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        let programs = self.shared.sql.programs();
        let programs = programs.ok_or_else(|| SqlError::unsupported("running programs in this process"))?;
        let mut job = programs.job(description)?;
        if job.runs_programs() && !self.access().is_superuser() {
            let message = "only superusers run programs: others may be granted functions that do";
            return Err(SqlError::new("42501", format!("permission denied for {RUN}")).explained(message));
        }
        job.check_runnable()?;
        for (_, query) in job.inputs() {
            input_query(&query)?;
        }
        let pool: Arc<dyn MemoryPool> = self.work_memory.clone();
        job.charge_to(MemoryConsumer::new("a job").register(&pool));
        for (name, query) in job.inputs() {
            self.write_job_input(job.as_mut(), &query)
                .await
                .map_err(|error| error.unplaced().also(format!("in the input \"{name}\" of the job")))?;
        }
        let cancelled = Arc::new(AtomicBool::new(false));
        let _end = EndAtDrop(cancelled.clone());
        let memory = MemoryConsumer::new("rows of a job").register(&pool);
        let work = move || {
            let output = job.run(&cancelled)?;
            let rows = read_rows(output, |bytes| match cancelled.load(Ordering::Relaxed) {
                true => Err(SqlError::new("57014", "canceling statement due to user request")),
                false => Ok(memory.try_grow(bytes)?),
            });
            rows.map_err(|error| error.also("in the output of the job"))
        };
        match self.query_runtime.handle().spawn_blocking(work).await {
            Ok(rows) => rows,
            Err(panic) => Err(SqlError::new("XX000", format!("internal error: {panic}"))),
        }
    }

    /// Gives a job the rows of a query.
    async fn write_job_input(&mut self, job: &mut dyn Job, query: &str) -> Result<()> {
        let (schema, mut rows) = self.rows(input_query(query)?).await?;
        job.begin_input(&schema)?;
        while let Some(batch) = rows.try_next().await? {
            job.write_input(&batch)?;
        }
        Ok(())
    }
}

/// Reads the output of a job that ran elsewhere. As for the rows of one that ran here, columns are
/// of types that tables have.
///
/// # Errors
/// What is wrong with it.
pub fn read_job_output(output: impl Read) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    read_rows(output, |_| Ok(()))
}
