//! The errors of a job.

use std::fmt;

/// The errors of a job.
#[derive(Debug)]
pub enum ComputeError {
    /// The description is wrong.
    Job(String),
    /// The system cannot isolate a program.
    NoIsolation(String),
    /// This build or system does not run stages of this kind.
    Unsupported(String),
    /// A program could not be started.
    Start {
        /// Its name.
        program: String,
        /// The reason.
        reason: String,
    },
    /// A program ended otherwise than with success.
    Failed {
        /// Its name.
        program: String,
        /// Its end: "exit code 1", "signal 11".
        how: String,
        /// The end of its standard error.
        errors: String,
    },
    /// A program passed a limit, and was killed.
    Limit {
        /// Its name.
        program: String,
        /// The limit.
        limit: PassedLimit,
        /// The end of its standard error.
        errors: String,
    },
    /// There is no room for its memory.
    Refused {
        /// The SQLSTATE.
        sqlstate: &'static str,
        /// The reason.
        message: String,
    },
    /// The statement was cancelled.
    Cancelled,
    /// The system refused a resource that a job needs.
    Io(String),
}

/// A limit that a program has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PassedLimit {
    /// Seconds of processor time.
    Cpu(u64),
    /// Bytes of memory.
    Memory(u64),
    /// Seconds.
    Wall(u64),
    /// Bytes of output.
    Output(u64),
    /// Steps of WebAssembly.
    Fuel(u64),
    /// Bytes of all inputs.
    Input(u64),
}

impl fmt::Display for PassedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(seconds) => write!(f, "{seconds} s of processor time"),
            Self::Memory(bytes) => write!(f, "{bytes} bytes of memory"),
            Self::Wall(seconds) => write!(f, "{seconds} s"),
            Self::Output(bytes) => write!(f, "{bytes} bytes of output"),
            Self::Fuel(steps) => write!(f, "{steps} steps"),
            Self::Input(bytes) => write!(f, "{bytes} bytes of input"),
        }
    }
}

impl fmt::Display for ComputeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(what) => write!(f, "the job is wrong: {what}"),
            Self::NoIsolation(why) => write!(f, "this system cannot isolate programs: {why}"),
            Self::Unsupported(what) => write!(f, "{what} is not supported"),
            Self::Start { program, reason } => write!(f, "{program} could not be started: {reason}"),
            Self::Failed { program, how, .. } => write!(f, "{program} ended with {how}"),
            Self::Limit { program, limit, .. } => write!(f, "{program} passed its limit of {limit}"),
            Self::Refused { message, .. } => f.write_str(message),
            Self::Cancelled => f.write_str("canceling statement due to user request"),
            Self::Io(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for ComputeError {}

impl ComputeError {
    /// Its SQLSTATE.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::Job(_) => sqlstate::INVALID_PARAMETER_VALUE,
            Self::NoIsolation(_) | Self::Unsupported(_) => sqlstate::FEATURE_NOT_SUPPORTED,
            Self::Start { .. } => sqlstate::UNDEFINED_FILE,
            Self::Failed { .. } => sqlstate::EXTERNAL_ROUTINE_EXCEPTION,
            Self::Limit { limit: PassedLimit::Memory(_), .. } => sqlstate::OUT_OF_MEMORY,
            Self::Limit { .. } => sqlstate::PROGRAM_LIMIT_EXCEEDED,
            Self::Refused { sqlstate, .. } => sqlstate,
            Self::Cancelled => sqlstate::QUERY_CANCELED,
            Self::Io(_) => sqlstate::IO_ERROR,
        }
    }

    /// The program's standard error, if it wrote any.
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::Failed { errors, .. } | Self::Limit { errors, .. } if !errors.is_empty() => Some(errors),
            _ => None,
        }
    }

    pub(super) fn io(what: &str, error: impl fmt::Display) -> Self {
        Self::Io(format!("{what}: {error}"))
    }
}

/// A result whose error is a [`ComputeError`].
pub type Result<T> = std::result::Result<T, ComputeError>;
