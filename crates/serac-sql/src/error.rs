//! Errors as SQL clients know them: an SQLSTATE, a message, perhaps a detail, and a position in the statement.

use datafusion::arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;
use serac_engine::EngineError;
use serac_storage::StorageError;
use std::fmt;

/// An error of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError {
    /// Five characters, as PostgreSQL uses them.
    pub sqlstate: &'static str,
    /// What is wrong.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// Where in the text: line and column, from 1.
    pub position: Option<(u64, u64)>,
}

/// Result of a statement.
pub type Result<T, E = SqlError> = std::result::Result<T, E>;

impl SqlError {
    /// An error without detail.
    pub fn new(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self { sqlstate, message: message.into(), detail: None, position: None }
    }
    pub(crate) fn unsupported(what: impl fmt::Display) -> Self {
        Self::new("0A000", format!("{what} is not supported"))
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ERROR {}: {}", self.sqlstate, self.message)?;
        if let Some(detail) = &self.detail {
            write!(f, "\nDETAIL: {detail}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SqlError {}

impl From<&EngineError> for SqlError {
    fn from(error: &EngineError) -> Self {
        Self { detail: error.detail().map(Into::into), ..Self::new(error.sqlstate(), error.to_string()) }
    }
}
impl From<EngineError> for SqlError {
    fn from(error: EngineError) -> Self {
        Self::from(&error)
    }
}
impl From<StorageError> for SqlError {
    fn from(error: StorageError) -> Self {
        EngineError::from(error).into()
    }
}
impl From<ArrowError> for SqlError {
    fn from(error: ArrowError) -> Self {
        Self::from(&error)
    }
}
impl From<&ArrowError> for SqlError {
    fn from(error: &ArrowError) -> Self {
        match error {
            ArrowError::DivideByZero => Self::new("22012", "division by zero"),
            ArrowError::ArithmeticOverflow(m) => Self::new("22003", format!("value out of range: {m}")),
            ArrowError::CastError(m)
                if m.contains("overflow") || m.contains("out of range") || m.contains("too large") =>
            {
                Self::new("22003", m.clone())
            }
            ArrowError::CastError(m) | ArrowError::ParseError(m) => Self::new("22P02", m.clone()),
            ArrowError::InvalidArgumentError(m)
                if m.contains("too large to store") || m.contains("too small to store") =>
            {
                Self::new("22003", "numeric field overflow")
            }
            ArrowError::CsvError(m) => Self::new("22P04", m.clone()),
            ArrowError::IoError(m, _) => Self::new("58030", m.clone()),
            ArrowError::ExternalError(inner) => from_external(inner.as_ref()),
            other => Self::new("XX000", other.to_string()),
        }
    }
}
impl From<ParserError> for SqlError {
    fn from(error: ParserError) -> Self {
        let text = match error {
            ParserError::TokenizerError(m) | ParserError::ParserError(m) => m,
            ParserError::RecursionLimitExceeded => return Self::new("54001", "the statement is nested too deeply"),
        };
        // The parser puts the place at the end of its text.
        let place = text.rsplit_once(" at Line: ").and_then(|(message, place)| {
            let (line, column) = place.split_once(", Column: ")?;
            Some((message.to_owned(), (line.trim().parse().ok()?, column.trim().parse().ok()?)))
        });
        match place {
            Some((message, position)) => {
                Self { position: Some(position), ..Self::new("42601", format!("syntax error: {message}")) }
            }
            None => Self::new("42601", format!("syntax error: {text}")),
        }
    }
}

fn from_external(error: &(dyn std::error::Error + Send + Sync + 'static)) -> SqlError {
    if let Some(error) = error.downcast_ref::<EngineError>() {
        error.into()
    } else if let Some(error) = error.downcast_ref::<SqlError>() {
        error.clone()
    } else if let Some(error) = error.downcast_ref::<DataFusionError>() {
        error.into()
    } else if let Some(error) = error.downcast_ref::<ArrowError>() {
        error.into()
    } else if let Some(error) = error.downcast_ref::<StorageError>() {
        match error {
            StorageError::WriteConflict { .. } => SqlError::new("40001", error.to_string()),
            _ => SqlError::new("XX000", error.to_string()),
        }
    } else {
        SqlError::new("XX000", error.to_string())
    }
}

impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> Self {
        Self::from(&error)
    }
}
impl From<&DataFusionError> for SqlError {
    fn from(error: &DataFusionError) -> Self {
        match error {
            DataFusionError::ArrowError(inner, _) => Self::from(inner.as_ref()),
            DataFusionError::SQL(inner, _) => (**inner).clone().into(),
            DataFusionError::External(inner) => from_external(inner.as_ref()),
            DataFusionError::Context(_, inner) => Self::from(inner.as_ref()),
            DataFusionError::Diagnostic(diagnostic, inner) => {
                let position = diagnostic.span.map(|span| (span.start.line, span.start.column));
                Self { position, ..Self::from(inner.as_ref()) }
            }
            DataFusionError::Shared(inner) => Self::from(inner.as_ref()),
            DataFusionError::Collection(all) if !all.is_empty() => Self::from(&all[0]),
            DataFusionError::SchemaError(inner, _) => match inner.as_ref() {
                SchemaError::FieldNotFound { field, .. } => {
                    Self::new("42703", format!("column \"{}\" does not exist", field.name()))
                }
                SchemaError::AmbiguousReference { field } => {
                    Self::new("42702", format!("column reference \"{}\" is ambiguous", field.name()))
                }
                other => Self::new("42701", other.to_string()),
            },
            DataFusionError::Plan(m) if m.starts_with("table '") && m.contains("not found") => {
                let name = m.split('\'').nth(1).unwrap_or_default();
                let short = name.strip_prefix("serac.pg_search_path.");
                let short = short
                    .or_else(|| name.strip_prefix("serac.public."))
                    .or_else(|| name.strip_prefix("serac."))
                    .unwrap_or(name);
                Self::new("42P01", format!("relation \"{short}\" does not exist"))
            }
            DataFusionError::Plan(m) if m.contains("Invalid function") => {
                Self::new("42883", m.lines().next().unwrap_or(m).to_owned())
            }
            DataFusionError::Plan(m) => Self::new("42000", m.clone()),
            DataFusionError::NotImplemented(m) => Self::new("0A000", m.clone()),
            DataFusionError::ResourcesExhausted(m) => Self::new("53200", m.clone()),
            DataFusionError::IoError(e) => Self::new("58030", e.to_string()),
            DataFusionError::ObjectStore(e) => Self::new("58030", e.to_string()),
            DataFusionError::ParquetError(e) => Self::new("58030", e.to_string()),
            DataFusionError::Execution(m) if m.to_lowercase().contains("divide by zero") => {
                Self::new("22012", "division by zero")
            }
            DataFusionError::Execution(m) => Self::new("22000", m.clone()),
            other => Self::new("XX000", other.strip_backtrace()),
        }
    }
}
