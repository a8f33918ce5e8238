//! Jobs: what they are, what they read, and how their rows are read.

use crate::error::Result;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::execution::memory_pool::MemoryReservation;
use std::fmt;
use std::io::Read;
use std::sync::atomic::AtomicBool;

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
