//! Errors of SQL as those of ADBC. Drivers of ADBC 1.1 have no vendor codes beside SQLSTATEs: the
//! place marks errors with details. The details are `detail`, `position` (line and column, from
//! 1), `name`, `schema` and `table`.

use adbc_core::error::{Error, Status};
use seracdb::SqlError;

/// Result of a function of ADBC, or of SQL.
pub type Result<T, E = Error> = std::result::Result<T, E>;

fn status(error: &SqlError) -> Status {
    match error.sqlstate {
        sqlstate::FEATURE_NOT_SUPPORTED => Status::NotImplemented,
        sqlstate::QUERY_CANCELED if error.message.contains("timeout") => Status::Timeout,
        sqlstate::QUERY_CANCELED => Status::Cancelled,
        sqlstate::INSUFFICIENT_PRIVILEGE => Status::Unauthorized,
        sqlstate::UNDEFINED_TABLE
        | sqlstate::UNDEFINED_COLUMN
        | sqlstate::UNDEFINED_FUNCTION
        | sqlstate::UNDEFINED_OBJECT
        | sqlstate::INVALID_SCHEMA_NAME
        | sqlstate::INVALID_CATALOG_NAME => Status::NotFound,
        sqlstate::DUPLICATE_TABLE
        | sqlstate::DUPLICATE_SCHEMA
        | sqlstate::DUPLICATE_OBJECT
        | sqlstate::DUPLICATE_FUNCTION => Status::AlreadyExists,
        other => match &other[..2] {
            "22" => Status::InvalidData,
            "23" => Status::Integrity,
            "28" => Status::Unauthenticated,
            "42" => Status::InvalidArguments,
            "25" | "55" => Status::InvalidState,
            // Conflicts of transactions: who gets them tries again, as after a failed connection.
            "08" | "40" | "53" | "58" => Status::IO,
            _ => Status::Internal,
        },
    }
}

/// The error as ADBC has it.
pub fn of_sql(error: SqlError) -> Error {
    let mut details = Vec::new();
    let mut detail = |name: &str, value: Option<String>| {
        details.extend(value.map(|value| (name.to_owned(), value.into_bytes())));
    };
    detail("detail", error.detail.clone());
    detail("position", error.position.map(|(line, column)| format!("{line}:{column}")));
    detail("name", error.name.clone());
    detail("schema", error.table.as_ref().map(|table| table.schema.clone()));
    detail("table", error.table.as_ref().map(|table| table.name.clone()));
    let mut sqlstate = [0; 5];
    for (to, from) in sqlstate.iter_mut().zip(error.sqlstate.bytes()) {
        *to = from.cast_signed();
    }
    let message = error.message.replace('\0', " ");
    Error { message, status: status(&error), vendor_code: 0, sqlstate, details: Some(details) }
}

/// The error of a wrong use of the driver.
pub fn error(status: Status, message: impl Into<String>) -> Error {
    Error::with_message_and_status(message, status)
}

/// The error of what the driver does not have.
pub fn unsupported(what: &str) -> Error {
    error(Status::NotImplemented, format!("{what} is not supported"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_sqlstate_and_details() {
        let error = of_sql(SqlError {
            position: Some((2, 7)),
            ..SqlError::new(sqlstate::UNIQUE_VIOLATION, "twice\0").explained("Key (1).").of_table("public", "t")
        });
        assert_eq!((error.status, error.message.as_str()), (Status::Integrity, "twice "));
        assert_eq!(error.sqlstate.map(|unit| char::from(unit as u8)), ['2', '3', '5', '0', '5']);
        let details = error.details.unwrap();
        let detail = |name: &str| details.iter().find(|(own, _)| own == name).map(|(_, value)| &value[..]);
        assert_eq!(detail("position"), Some(&b"2:7"[..]));
        assert_eq!((detail("table"), detail("name")), (Some(&b"t"[..]), None));
    }

    #[test]
    fn classes_of_errors_have_statuses() {
        let of = |sqlstate| status(&SqlError::new(sqlstate, ""));
        assert_eq!(of(sqlstate::UNDEFINED_TABLE), Status::NotFound);
        assert_eq!(of(sqlstate::SERIALIZATION_FAILURE), Status::IO);
        assert_eq!(of(sqlstate::SYNTAX_ERROR), Status::InvalidArguments);
        assert_eq!(of(sqlstate::DIVISION_BY_ZERO), Status::InvalidData);
        assert_eq!(of(sqlstate::INTERNAL_ERROR), Status::Internal);
        assert_eq!(of(sqlstate::QUERY_CANCELED), Status::Cancelled);
    }
}
