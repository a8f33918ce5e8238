//! The one error type of the engine, with SQLSTATEs and messages in PostgreSQL's manner.

use crate::catalog::definition::TableDefinition;
use crate::json::InvalidJson;
use crate::values::OwnedValue;
use serac_storage::{Blocker, StorageError};
use std::sync::Arc;

/// A row that NOT NULL or a CHECK refuses.
#[derive(Debug)]
pub struct FailingRow {
    /// The table.
    pub table: TableDefinition,
    /// A value for each of its columns.
    pub values: Vec<OwnedValue>,
}

/// A row is equal to itself alone: values have no equality that NaN shares.
impl PartialEq for FailingRow {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}
impl Eq for FailingRow {}

/// An error that an SQL text of a definition (a default, a check) raises, or the reason why it
/// could not be evaluated.
#[derive(Debug)]
pub struct ExpressionError {
    /// Its SQLSTATE.
    pub sqlstate: &'static str,
    /// The message.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// A way to mend it.
    pub hint: Option<Box<str>>,
    /// The column, relation or constraint that it is about.
    pub name: Option<String>,
    /// Schema and name of the table whose constraint does not hold.
    pub table: Option<(String, String)>,
    /// The row for which it does not.
    pub row: Option<Arc<FailingRow>>,
}

/// The errors of the engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// From the storage.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A concurrent transaction got in the way; trying again may succeed.
    #[error("could not serialize access: {0}")]
    Conflict(String),
    /// As [`Conflict`](Self::Conflict), with a transaction that is still running.
    #[error("could not serialize access: {0}")]
    Blocked(String, Arc<Blocker>),
    /// An object is used by a concurrent transaction.
    #[error("{0}")]
    InUse(String),
    /// An object with a name does not exist.
    #[error("{kind} \"{name}\" does not exist")]
    Missing {
        /// "table", "column", …
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A relation is of another kind than is asked for.
    #[error("\"{name}\" is not a {wanted}")]
    OtherKind {
        /// "table", "sequence"
        wanted: &'static str,
        /// The relation's name.
        name: String,
        /// Its kind: "view", …
        kind: &'static str,
    },
    /// An object with a name exists already.
    #[error("{kind} \"{name}\" already exists")]
    Exists {
        /// "table", "column", …
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A table cannot be truncated, as others refer to it.
    #[error("cannot truncate a table referenced in a foreign key constraint")]
    TruncatesReferenced {
        /// The referring and the referenced table.
        detail: String,
    },
    /// A parameter has a value that it cannot have.
    #[error("{0}")]
    InvalidParameter(String),
    /// An object depends on the one that is to be dropped.
    #[error("cannot drop {what} because {dependent} depends on it")]
    Dependent {
        /// The object that is to be dropped.
        what: String,
        /// The object that depends on it.
        dependent: String,
    },
    /// A NULL in a NOT NULL column.
    #[error("null value in column \"{column}\" of relation \"{table}\" violates not-null constraint")]
    NotNull {
        /// The table's schema.
        schema: String,
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// The row, where it is known.
        row: Option<Arc<FailingRow>>,
    },
    /// A duplicate key.
    #[error("duplicate key value violates unique constraint \"{constraint}\"")]
    Unique {
        /// The table's schema.
        schema: String,
        /// The table.
        table: String,
        /// The constraint or index.
        constraint: String,
        /// "Key (a, b)=(1, 2) already exists."
        detail: String,
    },
    /// A foreign key without its parent, or a parent that is still referenced.
    #[error(
        "{operation} on table \"{table}\" violates foreign key constraint \"{constraint}\"{}",
        on_child(.operation, .child)
    )]
    ForeignKey {
        /// "insert or update", or "update or delete".
        operation: &'static str,
        /// The table changed.
        table: String,
        /// Schema and name of the table with the constraint.
        child: Box<(String, String)>,
        /// The constraint.
        constraint: String,
        /// The key.
        detail: String,
    },
    /// A foreign key that references columns without a unique key.
    #[error("there is no unique constraint matching given keys for referenced table \"{table}\"")]
    ForeignKeyTarget {
        /// The referenced table.
        table: String,
    },
    /// A CHECK constraint does not hold.
    #[error("new row for relation \"{table}\" violates check constraint \"{constraint}\"")]
    Check {
        /// The table's schema.
        schema: String,
        /// The table.
        table: String,
        /// The constraint.
        constraint: String,
        /// The row, where it is known.
        row: Option<Arc<FailingRow>>,
    },
    /// A foreign key whose columns differ in type from the referenced ones: apart from integers,
    /// keys are compared by their bytes.
    #[error("foreign key constraint \"{constraint}\" cannot be implemented")]
    ForeignKeyTypes {
        /// The constraint.
        constraint: String,
        /// The columns.
        detail: String,
    },
    /// A row for a table that does not have all its columns yet
    /// ([`TableDefinition::unnamed_columns`]).
    #[error("table \"{table}\" takes no rows before its last {missing} columns are named")]
    Incomplete {
        /// The table.
        table: String,
        /// The number of columns without a name.
        missing: u32,
    },
    /// A string longer than its column.
    #[error("value too long for type {sql_type}")]
    TooLong {
        /// "character varying(10)".
        sql_type: String,
    },
    /// A text that is no JSON.
    #[error("{}", .0.message())]
    InvalidJson(#[from] InvalidJson),
    /// A number that a column of integers has no room for.
    #[error("{sql_type} out of range")]
    OutOfRange {
        /// The column's type.
        sql_type: String,
    },
    /// A value that a sequence does not have.
    #[error("setval: value {value} is out of bounds for sequence \"{sequence}\" ({min}..{max})")]
    OutOfBounds {
        /// The sequence.
        sequence: String,
        /// The rejected value.
        value: i64,
        /// Its smallest value.
        min: i64,
        /// Its largest value.
        max: i64,
    },
    /// A sequence ran out.
    #[error("nextval: reached the end of sequence \"{0}\"")]
    SequenceExhausted(String),
    /// An SQL text of a definition raises an error or cannot be evaluated.
    #[error("{}", .0.message)]
    Expression(Box<ExpressionError>),
    /// The definition makes no sense.
    #[error("{0}")]
    InvalidDefinition(String),
    /// A call of a procedure, or what it returned, does not fit its signature.
    #[error("{0}")]
    InvalidCall(String),
    /// Raised by a stored procedure, to roll its transaction back.
    #[error("{0}")]
    Raised(String),
    /// A role may not do this.
    #[error("{0}")]
    Denied(String),
    /// A login is refused.
    #[error("{message}")]
    Login {
        /// Its SQLSTATE.
        sqlstate: &'static str,
        /// The reason.
        message: String,
    },
    /// A grant that makes no sense.
    #[error("{0}")]
    InvalidGrant(String),
    /// The change of an object that every database has under this name.
    #[error("{kind} name \"{name}\" is reserved")]
    Reserved {
        /// "role"
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A column with the name of one that each table has.
    #[error("column name \"{0}\" conflicts with a system column name")]
    SystemColumn(String),
    /// The grantee has granted the revoked privilege on.
    #[error("dependent privileges exist")]
    DependentPrivileges,
    /// Not supported.
    #[error("{0}")]
    Unsupported(String),
    /// The client has cancelled the work.
    #[error("canceling statement due to user request")]
    Cancelled,
    /// Work that would take more memory than there is for it.
    #[error("out of memory: {wanted} bytes more are wanted, and there are {limit} in all")]
    OutOfMemory {
        /// Bytes that are wanted.
        wanted: u64,
        /// Bytes that there are.
        limit: u64,
    },
}

/// Names the table whose constraint a change of a parent violates; an error about a child names its
/// own table already.
fn on_child(operation: &str, (_, child): &(String, String)) -> String {
    if operation == "insert or update" { String::new() } else { format!(" on table \"{child}\"") }
}

impl EngineError {
    /// The five-character SQLSTATE.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::Storage(error) if error.is_disk_full() => sqlstate::DISK_FULL,
            Self::Storage(error) => match error {
                StorageError::WriteConflict { .. } => sqlstate::SERIALIZATION_FAILURE,
                StorageError::Deadlock => sqlstate::DEADLOCK_DETECTED,
                StorageError::Limit(_) => sqlstate::PROGRAM_LIMIT_EXCEEDED,
                StorageError::InvalidInput(_) => sqlstate::DATA_EXCEPTION,
                StorageError::Locked { .. } => sqlstate::OBJECT_IN_USE,
                StorageError::Corrupt { .. } => sqlstate::DATA_CORRUPTED,
                StorageError::OtherVersion { .. } => sqlstate::FEATURE_NOT_SUPPORTED,
                StorageError::LogFailed(_) | StorageError::Io { .. } | StorageError::DiskFull => sqlstate::IO_ERROR,
                StorageError::Closed => sqlstate::ADMIN_SHUTDOWN,
                StorageError::Arrow(_) => sqlstate::INTERNAL_ERROR,
            },
            Self::Conflict(_) | Self::Blocked(..) => sqlstate::SERIALIZATION_FAILURE,
            Self::InUse(_) => sqlstate::OBJECT_IN_USE,
            Self::Missing { kind, .. } => match *kind {
                "column" => sqlstate::UNDEFINED_COLUMN,
                "schema" => sqlstate::INVALID_SCHEMA_NAME,
                "constraint" | "index" | "role" | "server" => sqlstate::UNDEFINED_OBJECT,
                "procedure" | "function" => sqlstate::UNDEFINED_FUNCTION,
                _ => sqlstate::UNDEFINED_TABLE,
            },
            Self::OtherKind { .. } => sqlstate::WRONG_OBJECT_TYPE,
            Self::TruncatesReferenced { .. } => sqlstate::FEATURE_NOT_SUPPORTED,
            Self::InvalidParameter(_) => sqlstate::INVALID_PARAMETER_VALUE,
            Self::Exists { kind, .. } => match *kind {
                "column" => sqlstate::DUPLICATE_COLUMN,
                "schema" => sqlstate::DUPLICATE_SCHEMA,
                "constraint" | "role" | "server" => sqlstate::DUPLICATE_OBJECT,
                "function" => sqlstate::DUPLICATE_FUNCTION,
                _ => sqlstate::DUPLICATE_TABLE,
            },
            Self::Dependent { .. } | Self::DependentPrivileges => sqlstate::DEPENDENT_OBJECTS_STILL_EXIST,
            Self::Denied(_) => sqlstate::INSUFFICIENT_PRIVILEGE,
            Self::Login { sqlstate, .. } => sqlstate,
            Self::InvalidGrant(_) => sqlstate::INVALID_GRANT_OPERATION,
            Self::Reserved { .. } => sqlstate::RESERVED_NAME,
            Self::SystemColumn(_) => sqlstate::DUPLICATE_COLUMN,
            Self::NotNull { .. } => sqlstate::NOT_NULL_VIOLATION,
            Self::Unique { .. } => sqlstate::UNIQUE_VIOLATION,
            Self::ForeignKey { .. } => sqlstate::FOREIGN_KEY_VIOLATION,
            Self::ForeignKeyTarget { .. } => sqlstate::INVALID_FOREIGN_KEY,
            Self::ForeignKeyTypes { .. } => sqlstate::DATATYPE_MISMATCH,
            Self::Check { .. } => sqlstate::CHECK_VIOLATION,
            Self::Incomplete { .. } => sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
            Self::TooLong { .. } => sqlstate::STRING_DATA_RIGHT_TRUNCATION,
            Self::InvalidJson(error) => error.sqlstate(),
            Self::SequenceExhausted(_) => sqlstate::SEQUENCE_GENERATOR_LIMIT_EXCEEDED,
            Self::OutOfRange { .. } | Self::OutOfBounds { .. } => sqlstate::NUMERIC_VALUE_OUT_OF_RANGE,
            Self::Expression(error) => error.sqlstate,
            Self::InvalidDefinition(_) => sqlstate::INVALID_TABLE_DEFINITION,
            Self::InvalidCall(_) => sqlstate::UNDEFINED_FUNCTION,
            Self::Raised(_) => sqlstate::RAISE_EXCEPTION,
            Self::Unsupported(_) => sqlstate::FEATURE_NOT_SUPPORTED,
            Self::Cancelled => sqlstate::QUERY_CANCELED,
            Self::OutOfMemory { .. } => sqlstate::OUT_OF_MEMORY,
        }
    }

    /// Whether a concurrent transaction got in the way, so that the same transaction may succeed
    /// with a new snapshot.
    pub fn is_conflict(&self) -> bool {
        self.sqlstate() == sqlstate::SERIALIZATION_FAILURE
    }

    /// The running transaction that is in the way, if the error is about one: see
    /// [`crate::Transaction::wait_for`].
    pub fn blocker(&self) -> Option<&Arc<Blocker>> {
        match self {
            Self::Storage(StorageError::WriteConflict { blocker, .. }) => blocker.as_ref(),
            Self::Blocked(_, blocker) => Some(blocker),
            _ => None,
        }
    }

    /// The column, relation or constraint that the error is about.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Missing { name, .. }
            | Self::OtherKind { name, .. }
            | Self::Exists { name, .. }
            | Self::SequenceExhausted(name) => Some(name),
            Self::NotNull { column, .. } => Some(column),
            Self::Unique { constraint, .. } | Self::ForeignKey { constraint, .. } | Self::Check { constraint, .. } => {
                Some(constraint)
            }
            Self::ForeignKeyTarget { table } => Some(table),
            Self::ForeignKeyTypes { constraint, .. } => Some(constraint),
            Self::Expression(error) => error.name.as_deref(),
            _ => None,
        }
    }

    /// Schema and name of the table with the violated constraint.
    pub fn constrained_table(&self) -> Option<(&str, &str)> {
        match self {
            Self::NotNull { schema, table, .. }
            | Self::Unique { schema, table, .. }
            | Self::Check { schema, table, .. } => Some((schema, table)),
            Self::ForeignKey { child, .. } => Some((&child.0, &child.1)),
            Self::Expression(error) => error.table.as_ref().map(|(schema, table)| (schema.as_str(), table.as_str())),
            _ => None,
        }
    }

    /// The row that NOT NULL or a CHECK refuses, where it is known.
    pub fn failing_row(&self) -> Option<&Arc<FailingRow>> {
        match self {
            Self::NotNull { row, .. } | Self::Check { row, .. } => row.as_ref(),
            Self::Expression(error) => error.row.as_ref(),
            _ => None,
        }
    }

    /// More about the error, for a second line.
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::Unique { detail, .. }
            | Self::ForeignKey { detail, .. }
            | Self::ForeignKeyTypes { detail, .. }
            | Self::TruncatesReferenced { detail } => Some(detail),
            Self::InvalidJson(error) => error.detail(),
            Self::Expression(error) => error.detail.as_deref(),
            _ => None,
        }
    }

    /// A way to mend it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Expression(error) => error.hint.as_deref(),
            _ => None,
        }
    }
}

/// Result of an engine operation.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

pub(crate) fn missing<T>(kind: &'static str, name: impl Into<String>) -> Result<T> {
    Err(EngineError::Missing { kind, name: name.into() })
}
pub(crate) fn exists<T>(kind: &'static str, name: impl Into<String>) -> Result<T> {
    Err(EngineError::Exists { kind, name: name.into() })
}
