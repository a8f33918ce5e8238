//! What can be wrong with a statement.

use serac_engine::EngineError;
use std::fmt;

/// What is wrong. Each kind that the language tells apart is a variant.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The line is no statement.
    #[error("syntax error: {0}")]
    Syntax(String),
    /// A longer line is not looked at.
    #[error("the line is longer than {0} bytes")]
    LineTooLong(usize),
    /// No such command.
    #[error("unknown command \"{0}\"")]
    UnknownCommand(String),
    /// Too few or too many arguments.
    #[error("{command} takes {expected}, but {found} were given")]
    WrongArgumentCount {
        /// The command.
        command: String,
        /// "2 arguments", "3 or 4 arguments", …
        expected: String,
        /// How many there are.
        found: usize,
    },
    /// Too few or too many names on the left.
    #[error("{command} gives {expected}, but {found} names stand on the left")]
    WrongResultCount {
        /// The command.
        command: String,
        /// "2 results", …
        expected: &'static str,
        /// How many names there are.
        found: usize,
    },
    /// What should be a number is none.
    #[error("bad number \"{0}\"")]
    BadNumber(String),
    /// A number that its place cannot hold.
    #[error("{0} is out of range for {1}")]
    OutOfRange(String, String),
    /// No such database.
    #[error("unknown database \"{0}\"")]
    UnknownDatabase(String),
    /// No such table.
    #[error("unknown table \"{0}\"")]
    UnknownTable(String),
    /// No such column.
    #[error("unknown column \"{0}\"")]
    UnknownColumn(String),
    /// No such variable.
    #[error("unknown variable \"{0}\"")]
    UnknownVariable(String),
    /// No such setting, or a value that it does not have.
    #[error("unknown setting: {0}")]
    UnknownSetting(String),
    /// Something of another kind was expected.
    #[error("{what} is {found}, but {expected} belongs here")]
    WrongKind {
        /// Which argument.
        what: String,
        /// What it is.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// Vectors that go together have different lengths.
    #[error("lengths differ: {0} and {1}")]
    LengthsDiffer(u64, u64),
    /// The name is taken.
    #[error("{0} \"{1}\" exists already")]
    Exists(&'static str, String),
    /// A table that does not have all its columns yet.
    #[error("table \"{table}\" is incomplete: {missing} columns are still to be named")]
    TableIncomplete {
        /// The table.
        table: String,
        /// How many are missing.
        missing: u32,
    },
    /// A table that has all its columns.
    #[error("table \"{0}\" has all its columns")]
    TableFull(String),
    /// A name that may not be given.
    #[error("bad name \"{0}\": {1}")]
    BadName(String, String),
    /// The client has no such file.
    #[error("cannot read file \"{0}\": {1}")]
    NoSuchFile(String, String),
    /// The first line of a file does not name the columns of a table.
    #[error("{file}, line {line}: bad header: {problem}")]
    BadHeader {
        /// The file.
        file: String,
        /// The line.
        line: u64,
        /// What is wrong.
        problem: String,
    },
    /// A line of a file is no row of the table.
    #[error("{file}, line {line}, field {field}: {problem}")]
    BadRow {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// The field, from 1.
        field: u64,
        /// What is wrong.
        problem: String,
    },
    /// A position at which there is nothing.
    #[error("position {0} is out of range: there are {1}")]
    PositionOutOfRange(u64, u64),
    /// The position of a row that was deleted.
    #[error("a row at these positions was deleted")]
    RowDeleted,
    /// The positions' table was dropped, or its rows were written anew.
    #[error("the rows at these positions are gone: table \"{0}\" was dropped or rewritten")]
    RowsGone(String),
    /// What may not stand in a batch.
    #[error("{0} may not stand in a batch")]
    InBatch(&'static str),
    /// What must stand in a batch, or behind `single_core`.
    #[error("not here: {0}")]
    NotHere(&'static str),
    /// A batch that has grown too long.
    #[error("a batch has at most {0} statements")]
    BatchTooLong(usize),
    /// A statement of the batch that this one depends on has failed.
    #[error("\"{0}\" is missing, because line {1} failed")]
    DependsOnFailed(String, u64),
    /// A result that 64 bits cannot hold.
    #[error("overflow: a result of {0} does not fit 64 bits")]
    Overflow(&'static str),
    /// A concurrent transaction was in the way.
    #[error("conflict with another transaction: {0}")]
    Conflict(String),
    /// Variables would take more memory than there is for them.
    #[error("out of memory limit: {wanted} bytes more than the {limit} bytes for variables")]
    OutOfMemory {
        /// What is wanted.
        wanted: u64,
        /// The limit.
        limit: u64,
    },
    /// A vector is longer than an operator takes.
    #[error("{0} takes at most {1} elements")]
    TooLong(&'static str, u64),
    /// The table has rules that only SQL can keep.
    #[error("table \"{0}\" cannot be changed here: {1}")]
    Refused(String, &'static str),
    /// The client has asked to stop, or has gone.
    #[error("cancelled")]
    Cancelled,
    /// The client does not take its result.
    #[error("the result cannot be sent: {0}")]
    Output(#[from] std::io::Error),
    /// The server is ending.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// From the engine: a constraint, a full disk, a damaged file.
    #[error("{0}")]
    Engine(EngineError),
}

/// Result of what a statement does.
pub type Result<T, E = OperatorError> = std::result::Result<T, E>;

impl From<EngineError> for OperatorError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::InUse(what) => Self::Conflict(what),
            EngineError::Cancelled => Self::Cancelled,
            EngineError::OutOfMemory { wanted, limit } => Self::OutOfMemory { wanted, limit },
            error if error.is_conflict() || error.sqlstate() == sqlstate::DEADLOCK_DETECTED => {
                Self::Conflict(error.to_string())
            }
            error => Self::Engine(error),
        }
    }
}

impl From<serac_storage::StorageError> for OperatorError {
    fn from(error: serac_storage::StorageError) -> Self {
        EngineError::from(error).into()
    }
}

/// What is wrong with the statement in one line of the input.
#[derive(Debug)]
pub struct Report {
    /// The line, from 1.
    pub line: u64,
    /// What is wrong.
    pub error: OperatorError,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.error)
    }
}

/// Why a statement failed: one report, or, of `batch_execute`, one for each statement of the batch
/// that failed. It is shown as a line of text for each.
#[derive(Debug)]
pub struct StatementError {
    reports: Vec<Report>,
}

impl StatementError {
    /// The failure of one statement.
    pub fn new(line: u64, error: OperatorError) -> Self {
        Self { reports: vec![Report { line, error }] }
    }
    /// The failures of several statements; none if there are none.
    pub fn of_batch(reports: Vec<Report>) -> std::result::Result<(), Self> {
        if reports.is_empty() { Ok(()) } else { Err(Self { reports }) }
    }
    /// The reports, at least one, in the order of the lines.
    pub fn reports(&self) -> &[Report] {
        &self.reports
    }
    /// The same, to be kept.
    pub fn into_reports(self) -> Vec<Report> {
        self.reports
    }
}

impl fmt::Display for StatementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, report) in self.reports.iter().enumerate() {
            write!(f, "{}{report}", if at == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for StatementError {}
