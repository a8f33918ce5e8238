//! Jobs: their description, their inputs, and the reading of their rows.

use crate::error::Result;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::execution::memory_pool::MemoryReservation;
use std::fmt;
use std::io::Read;
use std::sync::atomic::AtomicBool;

/// A runner of jobs.
pub trait Programs: fmt::Debug + Send + Sync {
    /// Reads a job's description.
    ///
    /// # Errors
    /// The errors of the description.
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
    /// A missing feature of the process, or a missing program.
    fn check_runnable(&self) -> Result<()>;
    /// Charges the job's further memory to `memory`: inputs before they are written, outputs, and
    /// the memory of its programs. It gives the memory back with the last of its output.
    fn charge_to(&mut self, memory: MemoryReservation);
    /// Sets the arguments of the call, as text, for a function that is this job; `None` for NULL.
    fn set_arguments(&mut self, arguments: &[Option<String>]);
    /// Begins with the rows of the next input, which have these columns.
    ///
    /// # Errors
    /// An error of the system or of Arrow.
    fn begin_input(&mut self, schema: &Schema) -> Result<()>;
    /// Takes rows of it.
    ///
    /// # Errors
    /// An error of the system or of Arrow, or too many rows for a job.
    fn write_input(&mut self, batch: &RecordBatch) -> Result<()>;
    /// Runs it on this thread, and ends it when `cancelled` becomes true. The output comes from a
    /// program, and should be a stream of Arrow.
    ///
    /// # Errors
    /// The failure.
    fn run(self: Box<Self>, cancelled: &AtomicBool) -> Result<Box<dyn Read + Send>>;
}
