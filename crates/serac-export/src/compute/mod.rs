//! Programs that run beside the data: "computation to the data" (Mainlining Databases §5).
//!
//! A **job** names input tables or queries and a list of **stages**. A stage is a program of any
//! language. It finds its inputs as Arrow in memory that is mapped, not sent, and writes Arrow.
//! The output of a stage is the input of the next one, and the last output is the job's.
//!
//! ```text
//!  snapshot ──▶ sealed memfd per input ──▶ program ──▶ memfd ──▶ program ──▶ memfd ──▶ rows
//!               (Arrow IPC stream)         (stage 1)   sealed    (stage 2)   sealed    checked
//! ```
//!
//! **The environment of a program** names its inputs, counted from 1:
//!
//! | variable | value |
//! |---|---|
//! | `SERAC_INPUTS` | how many inputs there are |
//! | `SERAC_INPUT_n` | the path of the n-th input, `/proc/self/fd/N`: it can be read or mapped |
//! | `SERAC_INPUT_n_FD` | its descriptor, `N` |
//! | `SERAC_INPUT_n_NAME` | its name |
//!
//! Each input is a file in memory (memfd) that holds a stream of Arrow IPC, whose buffers lie on
//! multiples of 64 bytes. So an Arrow library reads it as a file or maps it without a copy.
//! Standard input is the first input. The output is a stream of Arrow IPC on standard output. The
//! file is sealed against changes, so all programs may share it.
//!
//! **Isolation** (`sandbox`). A program has a file system of its own: programs and libraries of
//! the system, the paths that the job grants, an empty `/tmp`. It has no network, no processes but
//! its own, no privileges, and no system calls that it does not need. A system that cannot isolate
//! a program gets an error, never a program without isolation.
//!
//! **Limits** ([`Limits`]) are watched while a program runs (`supervise`): processor time,
//! memory, time, output, processes. A program that passes one is killed with all its descendants.
//! The same happens when its statement is cancelled, and when this process dies.
//!
//! **Memory** of inputs, outputs and programs is charged to an [`Account`], which may refuse it.
//!
//! **Rights.** A program is not trusted: a superuser runs it, or lets others do so. WebAssembly is
//! trusted: it reaches only its input.

mod account;
mod error;
mod job;
#[cfg(target_os = "linux")]
mod sandbox;
mod stream_file;
#[cfg(target_os = "linux")]
mod supervise;
#[cfg(feature = "wasm")]
mod wasm;

pub use account::{Account, Unlimited};
pub use error::{ComputeError, PassedLimit, Result};
pub use job::{JobDescription, JobInput, Limits, ProgramStage, Stage};
pub use stream_file::{MappedStream, StreamFile, StreamFileWriter};

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Whether programs are kept apart from the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    /// Programs are isolated; where the system cannot isolate them, they do not run.
    #[default]
    Full,
    /// Programs run as any program of this user does. For a user's own shell only.
    None,
}

/// An input of a job's first stage.
#[derive(Debug)]
pub struct Input {
    /// Its name.
    pub name: String,
    /// Its rows.
    pub stream: StreamFile,
}

/// The resources that a stage has used.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// The program.
    pub program: String,
    /// Processor time of all its processes.
    pub cpu: Duration,
    /// Time from its start to its end.
    pub wall: Duration,
    /// The most memory that it had at a time, in bytes.
    pub peak_memory: u64,
    /// Bytes of its output.
    pub output_bytes: u64,
}

/// The outcome of a job.
#[derive(Debug)]
pub struct Outcome {
    /// The last stage's output. It comes from a program, so its reader must check it.
    pub output: StreamFile,
    /// The resources that each stage has used.
    pub stages: Vec<Usage>,
}

/// Makes sure that this build and system can run a job, as far as that is known before it has
/// inputs.
///
/// # Errors
/// [`ComputeError::Job`], [`ComputeError::Unsupported`], or [`ComputeError::Start`] for a program
/// that is not there.
pub fn check_runnable(job: &JobDescription) -> Result<()> {
    job.check()?;
    for (number, stage) in job.stages.iter().enumerate() {
        match stage {
            #[cfg(target_os = "linux")]
            Stage::Program(program) => sandbox::check_file(program)?,
            #[cfg(not(target_os = "linux"))]
            Stage::Program(_) => return Err(no_programs()),
            Stage::Wasm(_) if !cfg!(feature = "wasm") => return Err(no_modules()),
            Stage::Wasm(_) if number == 0 && job.inputs.len() != 1 => return Err(not_one_input(job.inputs.len())),
            Stage::Wasm(_) => {}
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn no_programs() -> ComputeError {
    ComputeError::Unsupported("running programs on this system".to_owned())
}
fn no_modules() -> ComputeError {
    ComputeError::Unsupported("WebAssembly in this build".to_owned())
}
fn not_one_input(count: usize) -> ComputeError {
    ComputeError::Job(format!("a module has one input, and not {count}"))
}

/// Runs the stages of a job in order, on this thread. `cancelled`: ends it when it becomes true.
/// Its memory is not charged.
///
/// # Errors
/// An error of the job, a missing feature of the system, a program's failure, or a passed limit.
pub fn run(job: &JobDescription, inputs: Vec<Input>, isolation: Isolation, cancelled: &AtomicBool) -> Result<Outcome> {
    let nobody: Arc<dyn Account> = Arc::new(Unlimited);
    run_charged(job, inputs, isolation, cancelled, &nobody)
}

/// As [`run`]. The account is charged for the memory of its programs and for their outputs. Inputs
/// have been charged as they were written. A program is ended when the account refuses.
///
/// # Errors
/// As for [`run`], and the errors of the account.
pub fn run_charged(
    job: &JobDescription,
    inputs: Vec<Input>,
    isolation: Isolation,
    cancelled: &AtomicBool,
    account: &Arc<dyn Account>,
) -> Result<Outcome> {
    job.check()?;
    let mut inputs = inputs;
    let mut stages = Vec::with_capacity(job.stages.len());
    let mut output = None;
    for stage in &job.stages {
        let (stream, usage) = run_stage(stage, &job.limits, &inputs, isolation, cancelled, account)?;
        stages.push(usage);
        inputs.clear();
        if let Some(stream) = output.replace(stream) {
            drop(stream);
        }
        if let Some(stream) = &output {
            inputs.push(Input { name: "input".to_owned(), stream: stream.try_clone()? });
        }
    }
    let output = output.ok_or_else(|| ComputeError::Job("a job needs a stage".to_owned()))?;
    Ok(Outcome { output, stages })
}

fn run_stage(
    stage: &Stage,
    limits: &Limits,
    inputs: &[Input],
    isolation: Isolation,
    cancelled: &AtomicBool,
    account: &Arc<dyn Account>,
) -> Result<(StreamFile, Usage)> {
    match stage {
        #[cfg(target_os = "linux")]
        Stage::Program(program) => supervise::run(program, limits, inputs, isolation, cancelled, account),
        #[cfg(not(target_os = "linux"))]
        Stage::Program(_) => Err(no_programs()),
        #[cfg(feature = "wasm")]
        Stage::Wasm(module) => wasm::run(module, limits, inputs, cancelled, account),
        #[cfg(not(feature = "wasm"))]
        Stage::Wasm(_) => Err(no_modules()),
    }
}
