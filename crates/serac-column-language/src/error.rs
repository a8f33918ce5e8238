//! The errors of statements.

use serac_engine::EngineError;
use std::fmt;

/// An error. Each kind that the language tells apart is a variant.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The line is no statement.
    #[error("syntax error: {0}")]
    Syntax(String),
    /// A line longer than this limit is not parsed.
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
        /// The number of arguments.
        found: usize,
    },
    /// Too few or too many names on the left.
    #[error("{command} gives {expected}, but {found} names stand on the left")]
    WrongResultCount {
        /// The command.
        command: String,
        /// "2 results", …
        expected: &'static str,
        /// The number of names.
        found: usize,
    },
    /// A word that is no number stands in a number's place.
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
    /// An argument is of the wrong kind.
    #[error("{what} is {found}, but {expected} belongs here")]
    WrongKind {
        /// The argument.
        what: String,
        /// Its kind.
        found: String,
        /// The kind that is expected.
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
        /// The number of missing columns.
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
        /// The problem with the line.
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
        /// The problem with the field.
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
    /// A statement that may not stand in a batch.
    #[error("{0} may not stand in a batch")]
    InBatch(&'static str),
    /// A statement that must stand in a batch, or behind `single_core`.
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
        /// The bytes that are wanted.
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

/// The result of a statement's work.
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

/// The error of the statement in one line of the input.
#[derive(Debug)]
pub struct Report {
    /// The line, from 1.
    pub line: u64,
    /// The error.
    pub error: OperatorError,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.error)
    }
}

/// The failure of a statement: one report, or, for `batch_execute`, one for each failed statement
/// of the batch. It is shown as a line of text for each report.
#[derive(Debug)]
pub struct StatementError {
    reports: Vec<Report>,
}

impl StatementError {
    /// The failure of one statement.
    pub fn new(line: u64, error: OperatorError) -> Self {
        Self { reports: vec![Report { line, error }] }
    }

    /// The failures of several statements; `Ok` if there are none.
    pub fn of_batch(reports: Vec<Report>) -> std::result::Result<(), Self> {
        if reports.is_empty() { Ok(()) } else { Err(Self { reports }) }
    }

    /// The reports, at least one, in the order of the lines.
    pub fn reports(&self) -> &[Report] {
        &self.reports
    }

    /// The reports, by value.
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
