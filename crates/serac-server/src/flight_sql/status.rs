//! Errors as gRPC has them.

use arrow_flight::error::FlightError;
use datafusion::arrow::error::ArrowError;
use serac_sql::SqlError;
use tonic::{Code, Status};

/// The gRPC status of an error of SQL. Its SQLSTATE stands before the message, and in the header
/// `sqlstate`.
pub(super) fn status_of(error: &SqlError) -> Status {
    let code = match error.sqlstate {
        sqlstate::FEATURE_NOT_SUPPORTED => Code::Unimplemented,
        sqlstate::SERIALIZATION_FAILURE | sqlstate::DEADLOCK_DETECTED => Code::Aborted,
        sqlstate::INSUFFICIENT_PRIVILEGE => Code::PermissionDenied,
        sqlstate::DUPLICATE_TABLE
        | sqlstate::DUPLICATE_OBJECT
        | sqlstate::DUPLICATE_SCHEMA
        | sqlstate::DUPLICATE_PREPARED_STATEMENT => Code::AlreadyExists,
        sqlstate::UNDEFINED_TABLE
        | sqlstate::UNDEFINED_FUNCTION
        | sqlstate::UNDEFINED_OBJECT
        | sqlstate::INVALID_CATALOG_NAME
        | sqlstate::INVALID_SCHEMA_NAME
        | sqlstate::INVALID_SQL_STATEMENT_NAME => Code::NotFound,
        sqlstate::OBJECT_IN_USE => Code::Unavailable,
        sqlstate::QUERY_CANCELED => Code::Cancelled,
        state => match &state[..2] {
            "22" | "42" | "08" | "21" => Code::InvalidArgument,
            "23" | "25" | "3B" | "55" => Code::FailedPrecondition,
            "28" => Code::Unauthenticated,
            "53" | "54" => Code::ResourceExhausted,
            _ => Code::Internal,
        },
    };
    let more: Vec<&str> = error.detail.as_deref().into_iter().chain(error.hint.as_deref()).collect();
    let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join(" ")) };
    let mut status = Status::new(code, format!("{}: {}{more}", error.sqlstate, error.message));
    status.metadata_mut().insert("sqlstate", tonic::metadata::MetadataValue::from_static(error.sqlstate));
    status
}

pub(super) fn of_arrow(error: ArrowError) -> Status {
    status_of(&error.into())
}

pub(super) fn of_flight(error: FlightError) -> Status {
    match error {
        FlightError::Arrow(error) => of_arrow(error),
        other => self::error(sqlstate::INTERNAL_ERROR, other.to_string()),
    }
}

pub(super) fn error(sqlstate: &'static str, message: impl Into<String>) -> Status {
    status_of(&SqlError::new(sqlstate, message))
}
