//! The runner of the jobs of SQL ([`serac_sql::Programs`]): the programs of this machine, isolated
//! ([`serac_export::compute`]).
//!
//! **Memory.** A job's inputs, outputs and programs are charged to two accounts: the memory of the
//! session's queries, and that of all jobs together. Either may refuse them.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::execution::memory_pool::MemoryReservation;
use serac_export::compute::{
    self, Account, ComputeError, Input, Isolation, JobDescription, StreamFile, StreamFileWriter,
};
use serac_sql::SqlError;
use std::io::{Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Runs programs of this machine, isolated from it.
#[derive(Clone, Debug)]
pub struct LocalPrograms {
    /// Bytes of all jobs.
    held: Arc<AtomicU64>,
    most_bytes: u64,
}

impl Default for LocalPrograms {
    fn default() -> Self {
        Self::new(Self::MOST_BYTES)
    }
}

/// The account to which the jobs of a session are charged.
struct JobAccount {
    session: Option<MemoryReservation>,
    all: LocalPrograms,
}

impl Account for JobAccount {
    fn grow(&self, bytes: u64) -> Result<(), ComputeError> {
        let most = self.all.most_bytes;
        let grown = |held: u64| held.checked_add(bytes).filter(|held| *held <= most);
        // Relaxed: a sum, on which no other data depends.
        if self.all.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_err() {
            let message = format!("jobs of at most {most} bytes run at a time, their inputs and outputs included");
            return Err(ComputeError::Refused { sqlstate: sqlstate::CONFIGURATION_LIMIT_EXCEEDED, message });
        }
        let wanted = usize::try_from(bytes).unwrap_or(usize::MAX);
        let charged = self.session.as_ref().map_or(Ok(()), |session| session.try_grow(wanted));
        charged.map_err(|error| {
            self.all.held.fetch_sub(bytes, Ordering::Relaxed);
            let SqlError { sqlstate, message, .. } = SqlError::from(error);
            ComputeError::Refused { sqlstate, message }
        })
    }

    fn shrink(&self, bytes: u64) {
        if let Some(session) = &self.session {
            session.shrink(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        self.all.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// An error of a job, as SQL's clients know it.
pub fn job_error(error: &ComputeError) -> SqlError {
    let told = SqlError::new(error.sqlstate(), error.to_string());
    match error.detail() {
        Some(errors) => told.explained(errors),
        None => told,
    }
}

fn told(error: ComputeError) -> SqlError {
    job_error(&error)
}

impl serac_sql::Programs for LocalPrograms {
    fn job(&self, description: &str) -> Result<Box<dyn serac_sql::Job>, SqlError> {
        let description = JobDescription::from_json(description).map_err(told)?;
        let left = description.limits.input_bytes;
        let account: Arc<dyn Account> = Arc::new(JobAccount { session: None, all: self.clone() });
        Ok(Box::new(LocalJob { description, programs: self.clone(), account, inputs: Vec::new(), begun: None, left }))
    }
}

impl LocalPrograms {
    /// Bytes that all jobs have at a time, unless another number is said.
    pub const MOST_BYTES: u64 = 8 << 30;

    /// A runner whose jobs have at most this many bytes at a time: inputs, outputs, and memory of
    /// programs.
    pub fn new(most_bytes: u64) -> Self {
        Self { held: Arc::default(), most_bytes }
    }

    /// Bytes that the jobs have that run now.
    pub fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// To be given to [`serac_sql::SqlOptions`].
    pub fn shared() -> Option<Arc<dyn serac_sql::Programs>> {
        Some(Arc::new(Self::default()))
    }
}

struct LocalJob {
    description: JobDescription,
    programs: LocalPrograms,
    account: Arc<dyn Account>,
    inputs: Vec<StreamFile>,
    begun: Option<StreamFileWriter>,
    /// Bytes that further inputs may have.
    left: u64,
}

impl LocalJob {
    fn finish_input(&mut self) -> Result<(), SqlError> {
        if let Some(begun) = self.begun.take() {
            let input = begun.finish().map_err(told)?;
            self.left = self.left.saturating_sub(input.len());
            self.inputs.push(input);
        }
        Ok(())
    }
}

impl serac_sql::Job for LocalJob {
    fn inputs(&self) -> Vec<(String, String)> {
        // The description was checked, so that each has a query.
        let inputs = self.description.inputs.iter();
        inputs.filter_map(|input| Some((input.name().to_owned(), input.query().ok()?))).collect()
    }

    fn runs_programs(&self) -> bool {
        self.description.runs_programs()
    }

    fn check_runnable(&self) -> Result<(), SqlError> {
        compute::check_runnable(&self.description).map_err(told)
    }

    fn charge_to(&mut self, memory: MemoryReservation) {
        self.account = Arc::new(JobAccount { session: Some(memory), all: self.programs.clone() });
    }

    fn set_arguments(&mut self, arguments: &[Option<String>]) {
        self.description.set_arguments(arguments);
    }

    fn begin_input(&mut self, schema: &Schema) -> Result<(), SqlError> {
        self.finish_input()?;
        self.begun = Some(StreamFileWriter::charged(schema, self.left, &self.account).map_err(told)?);
        Ok(())
    }

    fn write_input(&mut self, batch: &RecordBatch) -> Result<(), SqlError> {
        match &mut self.begun {
            Some(begun) => begun.write(batch).map_err(told),
            None => Err(SqlError::new(sqlstate::INTERNAL_ERROR, "rows of no input")),
        }
    }

    fn run(mut self: Box<Self>, cancelled: &AtomicBool) -> Result<Box<dyn Read + Send>, SqlError> {
        self.finish_input()?;
        let Self { description, account, inputs, .. } = *self;
        let names = description.inputs.iter().map(|input| input.name().to_owned());
        let inputs = names.zip(inputs).map(|(name, stream)| Input { name, stream }).collect();
        let outcome = compute::run_charged(&description, inputs, Isolation::Full, cancelled, &account).map_err(told)?;
        for stage in &outcome.stages {
            tracing::debug!(
                program = stage.program,
                cpu = ?stage.cpu,
                wall = ?stage.wall,
                peak_memory = stage.peak_memory,
                output_bytes = stage.output_bytes,
                "a stage of a job has run"
            );
        }
        Ok(Box::new(Cursor::new(outcome.output.map().map_err(told)?)))
    }
}
