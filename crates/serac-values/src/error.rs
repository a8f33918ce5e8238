//! Errors as SQL clients know them: an SQLSTATE, a message, perhaps a detail, and a position in the
//! statement.

use crate::sql_terms::in_sql_terms;
use datafusion::arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::common::utils::datafusion_strsim::levenshtein;
use datafusion::error::DataFusionError;
use serac_engine::catalog::definition::SqlType;
use serac_engine::{EngineError, FailingRow};
use serac_numeric::NumericError;
use serac_storage::{Blocker, ColumnType, StorageError};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// An error of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError {
    /// Five characters, as PostgreSQL uses them.
    pub sqlstate: &'static str,
    /// The message.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// A way to mend it.
    pub hint: Option<Box<str>>,
    /// The column, relation, function or constraint that it is about.
    pub name: Option<String>,
    /// The table of the violated constraint.
    pub table: Option<Box<ConstrainedTable>>,
    /// The position in the text: line and column, from 1.
    pub position: Option<(u32, u32)>,
    /// The running transaction that is in the way, of a conflict.
    pub blocker: Option<Arc<Blocker>>,
}

/// The table of a violated constraint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConstrainedTable {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// The row that NOT NULL or a CHECK refuses, until a session has told of it.
    pub row: Option<Arc<FailingRow>>,
}

/// Result of a statement.
pub type Result<T, E = SqlError> = std::result::Result<T, E>;

impl SqlError {
    /// An error without detail.
    pub fn new(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self {
            sqlstate,
            message: message.into(),
            detail: None,
            hint: None,
            name: None,
            table: None,
            position: None,
            blocker: None,
        }
    }

    /// The error of an unknown column of a relation.
    pub fn no_column(column: &str, relation: &str) -> Self {
        Self::new(sqlstate::UNDEFINED_COLUMN, format!("column \"{column}\" of relation \"{relation}\" does not exist"))
            .named(column)
    }

    /// The error of a column that a list names again.
    pub fn column_twice(column: &str) -> Self {
        Self::new(sqlstate::DUPLICATE_COLUMN, format!("column \"{column}\" specified more than once"))
    }

    /// The same about a column, relation, function or constraint.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// The same about a table with a violated constraint.
    #[must_use]
    pub fn of_table(self, schema: impl Into<String>, name: impl Into<String>) -> Self {
        let table = ConstrainedTable { schema: schema.into(), name: name.into(), row: None };
        Self { table: Some(Box::new(table)), ..self }
    }

    /// The error with a detail.
    #[must_use]
    pub fn explained(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    /// The error with a hint.
    #[must_use]
    pub fn hinted(self, hint: impl Into<Box<str>>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Appends a text to its detail, if it has one.
    #[must_use]
    pub fn also(self, more: impl fmt::Display) -> Self {
        let detail = self.detail.as_ref().map_or_else(|| more.to_string(), |detail| format!("{detail}\n{more}"));
        self.explained(detail)
    }

    /// Removes the position: a position in a text that the user has not written has no meaning.
    #[must_use]
    pub fn unplaced(self) -> Self {
        Self { position: None, ..self }
    }

    /// Wraps the error in DataFusion's external one, which DataFusion passes on to its caller.
    pub fn external(self) -> DataFusionError {
        DataFusionError::External(Box::new(self))
    }

    /// The error of a statement that is nested too deeply.
    pub fn too_deep() -> Self {
        Self::new(sqlstate::STATEMENT_TOO_COMPLEX, "the statement is nested too deeply")
    }

    /// The error of a statement with too large a plan.
    pub fn too_complex() -> Self {
        Self::new(sqlstate::STATEMENT_TOO_COMPLEX, "the statement, with the views that it names, is too complex")
    }

    /// A panic in a statement is an error like any other.
    pub fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Self::new(sqlstate::INTERNAL_ERROR, format!("internal error: {text}"))
    }

    /// The error of a number out of a type's range.
    pub fn out_of_range(column_type: ColumnType) -> Self {
        let message = match column_type {
            ColumnType::Decimal { precision, .. } => return Self::of_digits(precision == 38),
            other => format!("{} out of range", SqlType::from(other).to_string().to_lowercase()),
        };
        Self::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, message)
    }

    /// The error of a decimal with too many digits: for any decimal (`are_all`), or for its own
    /// type.
    fn of_digits(are_all: bool) -> Self {
        let overflow = Self::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow");
        match are_all {
            true => overflow.explained("Numbers of fixed digits that are computed have 38 digits at the most."),
            false => overflow,
        }
    }

    /// The error of an unsupported feature (0A000).
    pub fn unsupported(what: impl fmt::Display) -> Self {
        Self::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("{what} is not supported"))
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ERROR {}: {}", self.sqlstate, self.message)?;
        if let Some(detail) = &self.detail {
            write!(f, "\nDETAIL: {detail}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nHINT: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SqlError {}

impl From<&EngineError> for SqlError {
    fn from(error: &EngineError) -> Self {
        let error_alone = Self {
            detail: error.detail().map(Into::into),
            hint: error.hint().map(Into::into),
            name: error.name().map(Into::into),
            blocker: error.blocker().cloned(),
            ..Self::new(error.sqlstate(), error.to_string())
        };
        let Some((schema, name)) = error.constrained_table() else { return error_alone };
        let row = error.failing_row().cloned();
        let table = ConstrainedTable { schema: schema.into(), name: name.into(), row };
        Self { table: Some(Box::new(table)), ..error_alone }
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
            ArrowError::DivideByZero => Self::new(sqlstate::DIVISION_BY_ZERO, "division by zero"),
            ArrowError::ArithmeticOverflow(m) => {
                Self::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, format!("value out of range: {m}"))
            }
            ArrowError::CastError(m)
                if m.contains("overflow") || m.contains("out of range") || m.contains("too large") =>
            {
                too_large(m).unwrap_or_else(|| Self::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, m.clone()))
            }
            ArrowError::CastError(m) | ArrowError::ParseError(m) => too_large(m)
                .or_else(|| unreadable(m))
                .unwrap_or_else(|| Self::new(sqlstate::INVALID_TEXT_REPRESENTATION, in_sql_terms(m))),
            ArrowError::InvalidArgumentError(m)
                if m.contains("too large to store") || m.contains("too small to store") =>
            {
                Self::of_digits(m.contains("precision 38"))
            }
            ArrowError::CsvError(m) => Self::new(sqlstate::BAD_COPY_FILE_FORMAT, m.clone()),
            ArrowError::IoError(m, _) => Self::new(sqlstate::IO_ERROR, m.clone()),
            ArrowError::ExternalError(inner) => from_external(inner.as_ref()),
            ArrowError::ComputeError(m) if m == "Timestamp out of range" => {
                Self::new(sqlstate::DATETIME_FIELD_OVERFLOW, "timestamp out of range")
            }
            ArrowError::ComputeError(m) if m.contains("Regular expression did not compile") => wrong_pattern(m),
            other => Self::new(sqlstate::INTERNAL_ERROR, in_sql_terms(&other.to_string())),
        }
    }
}

/// The error of a number out of a type's range; `None` for another message.
fn too_large(message: &str) -> Option<SqlError> {
    let of_cast = message.strip_prefix("Can't cast value ").and_then(|rest| rest.rsplit_once(" to type "));
    let of_decimal = || message.strip_prefix("value of ")?.split_once(" is out of range ");
    let (_, data_type) = of_cast.or_else(of_decimal)?;
    Some(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, format!("{} out of range", in_sql_terms(data_type))))
}

/// The error of a text that cannot be cast, in PostgreSQL's words; `None` for another message.
fn unreadable(message: &str) -> Option<SqlError> {
    let rest = ["Cannot cast string '", "Cannot cast value '"].iter().find_map(|start| message.strip_prefix(start))?;
    let (value, data_type) = rest.rsplit_once("' to value of ")?;
    let name = in_sql_terms(data_type.strip_suffix(" type")?);
    let digits = value.strip_prefix(['-', '+']).unwrap_or(value);
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if is_number && matches!(name.as_str(), "smallint" | "integer" | "bigint") {
        return Some(SqlError::new(
            sqlstate::NUMERIC_VALUE_OUT_OF_RANGE,
            format!("value \"{value}\" is out of range for type {name}"),
        ));
    }
    Some(SqlError::new(
        sqlstate::INVALID_TEXT_REPRESENTATION,
        format!("invalid input syntax for type {name}: \"{value}\""),
    ))
}

fn from_external(error: &(dyn std::error::Error + Send + Sync + 'static)) -> SqlError {
    if let Some(error) = error.downcast_ref::<EngineError>() {
        error.into()
    } else if let Some(error) = error.downcast_ref::<SqlError>() {
        error.clone()
    } else if let Some(error) = error.downcast_ref::<NumericError>() {
        error.into()
    } else if let Some(error) = error.downcast_ref::<DataFusionError>() {
        error.into()
    } else if let Some(error) = error.downcast_ref::<ArrowError>() {
        error.into()
    } else if let Some(error) = error.downcast_ref::<StorageError>() {
        match error {
            StorageError::WriteConflict { blocker, .. } => SqlError {
                blocker: blocker.clone(),
                ..SqlError::new(sqlstate::SERIALIZATION_FAILURE, error.to_string())
            },
            StorageError::Corrupt { .. } => SqlError::new(sqlstate::DATA_CORRUPTED, error.to_string()),
            _ => SqlError::new(sqlstate::INTERNAL_ERROR, error.to_string()),
        }
    } else {
        match error.to_string() {
            text if text.contains("regex parse error") => wrong_pattern(&text),
            text => SqlError::new(sqlstate::INTERNAL_ERROR, text),
        }
    }
}

/// The error of an invalid or too large regular expression.
fn wrong_pattern(text: &str) -> SqlError {
    SqlError::new(
        sqlstate::INVALID_REGULAR_EXPRESSION,
        format!("invalid regular expression: {}", text.lines().last().unwrap_or_default().trim()),
    )
}

/// The text between the first two single quotes from `start` on.
fn quoted<'m>(message: &'m str, start: &str) -> Option<&'m str> {
    message.split_once(start)?.1.split('\'').nth(1)
}

/// Planning errors have no types of their own, only texts.
fn from_plan(message: &str) -> SqlError {
    if message.starts_with("table '") && message.contains("not found") {
        let name = quoted(message, "table ").unwrap_or_default();
        let prefixes = ["serac.pg_search_path.", "serac.public.", "serac."];
        let short = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
        return SqlError::new(sqlstate::UNDEFINED_TABLE, format!("relation \"{short}\" does not exist")).named(short);
    }
    if let Some(name) = quoted(message, "Invalid function").or_else(|| quoted(message, "table function")) {
        // The planner suggests the nearest name, however far it is.
        let near = |other: &&str| levenshtein(name, other) <= 1 + name.len() / 4;
        let suggested = quoted(message, "Did you mean").filter(near);
        let hint = suggested.map(|other| format!("Perhaps you mean \"{other}\".").into());
        return SqlError {
            hint,
            ..SqlError::new(sqlstate::UNDEFINED_FUNCTION, format!("function \"{name}\" does not exist")).named(name)
        };
    }
    if let Some(call) = quoted(message, "No function matches the given name and argument types") {
        let candidates = message.split_once("Candidate functions:").map_or("", |(_, candidates)| candidates);
        let candidates: Vec<&str> = candidates.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let candidates: Vec<String> = candidates.into_iter().map(in_sql_terms).collect();
        let detail = (!candidates.is_empty()).then(|| format!("There is {}.", candidates.join(", ")));
        let call = &in_sql_terms(call);
        let name = call.split('(').next().unwrap_or(call);
        return SqlError {
            detail,
            ..SqlError::new(sqlstate::UNDEFINED_FUNCTION, format!("function {call} does not exist")).named(name)
        };
    }
    for (clause, sqlstate) in [
        ("LIMIT", sqlstate::INVALID_ROW_COUNT_IN_LIMIT_CLAUSE),
        ("OFFSET", sqlstate::INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE),
    ] {
        if message.starts_with(&format!("{clause} must be >=")) {
            return SqlError::new(sqlstate, format!("{clause} must not be negative"));
        }
    }
    let sqlstates = [
        ("must be in GROUP BY", sqlstate::GROUPING_ERROR),
        ("must appear in the GROUP BY", sqlstate::GROUPING_ERROR),
        ("require unique expression names", sqlstate::DUPLICATE_COLUMN),
        ("different number of columns", sqlstate::SYNTAX_ERROR),
        ("non-boolean predicate", sqlstate::DATATYPE_MISMATCH),
        ("Order by column out of bounds", sqlstate::INVALID_COLUMN_REFERENCE),
        ("Cannot coerce", sqlstate::UNDEFINED_FUNCTION),
        ("Failed to coerce types", sqlstate::UNDEFINED_FUNCTION),
        ("Cannot infer common argument type", sqlstate::UNDEFINED_FUNCTION),
    ];
    let known = sqlstates.iter().find(|(text, _)| message.contains(text));
    SqlError::new(
        known.map_or(sqlstate::SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION, |(_, sqlstate)| sqlstate),
        in_sql_terms(message),
    )
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
            DataFusionError::External(inner) => from_external(inner.as_ref()),
            DataFusionError::Context(_, inner) => Self::from(inner.as_ref()),
            DataFusionError::Diagnostic(diagnostic, inner) => {
                let position = diagnostic.span.map(|span| (span.start.line as u32, span.start.column as u32));
                Self { position, ..Self::from(inner.as_ref()) }
            }
            DataFusionError::Shared(inner) => Self::from(inner.as_ref()),
            DataFusionError::Collection(all) if !all.is_empty() => Self::from(&all[0]),
            DataFusionError::SchemaError(inner, _) => match inner.as_ref() {
                SchemaError::FieldNotFound { field, valid_fields } => {
                    let relation = field.relation.as_ref().map(|relation| relation.table());
                    let known = |relation| {
                        valid_fields.iter().any(|f| f.relation.as_ref().is_some_and(|r| r.table() == relation))
                    };
                    match relation {
                        Some(relation) if !valid_fields.is_empty() && !known(relation) => Self::new(
                            sqlstate::UNDEFINED_TABLE,
                            format!("missing FROM-clause entry for table \"{relation}\""),
                        )
                        .named(relation),
                        _ => {
                            Self::new(sqlstate::UNDEFINED_COLUMN, format!("column \"{}\" does not exist", field.name()))
                                .named(field.name())
                        }
                    }
                }
                SchemaError::AmbiguousReference { field } => {
                    Self::new(sqlstate::AMBIGUOUS_COLUMN, format!("column reference \"{}\" is ambiguous", field.name()))
                        .named(field.name())
                }
                other => Self::new(sqlstate::DUPLICATE_COLUMN, other.to_string()),
            },
            DataFusionError::Plan(m) => from_plan(m),
            DataFusionError::Internal(m) if m.starts_with("Failed to coerce types") => from_plan(m),
            DataFusionError::NotImplemented(m) if m.starts_with("Unsupported SQL type") => {
                let name = m.trim_start_matches("Unsupported SQL type").trim();
                Self::new(sqlstate::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist")).named(name)
            }
            DataFusionError::NotImplemented(m) => Self::new(sqlstate::FEATURE_NOT_SUPPORTED, in_sql_terms(m)),
            DataFusionError::ResourcesExhausted(m) => Self::new(sqlstate::OUT_OF_MEMORY, m.clone()),
            DataFusionError::IoError(e) => Self::new(sqlstate::IO_ERROR, e.to_string()),
            DataFusionError::ObjectStore(e) => Self::new(sqlstate::IO_ERROR, e.to_string()),
            DataFusionError::ParquetError(e) => Self::new(sqlstate::IO_ERROR, e.to_string()),
            DataFusionError::Execution(m) if m.to_lowercase().contains("divide by zero") => {
                Self::new(sqlstate::DIVISION_BY_ZERO, "division by zero")
            }
            DataFusionError::Execution(m) if m == "Scalar subquery returned more than one row" => Self::new(
                sqlstate::CARDINALITY_VIOLATION,
                "more than one row returned by a subquery used as an expression",
            ),
            DataFusionError::Execution(m)
                if let Some(rest) = m.strip_prefix("Placeholder '")
                    && let Some((parameter, "was not provided a value for execution.")) = rest.split_once("' ") =>
            {
                Self::new(sqlstate::UNDEFINED_PARAMETER, format!("there is no parameter {parameter}"))
            }
            DataFusionError::Execution(m) if m.starts_with("negative count not allowed") => {
                Self::new(sqlstate::SUBSTRING_ERROR, "negative substring length not allowed")
            }
            DataFusionError::Execution(m) if m == "field position must not be zero" => {
                Self::new(sqlstate::INVALID_PARAMETER_VALUE, m.clone())
            }
            DataFusionError::Execution(m) => Self::new(sqlstate::DATA_EXCEPTION, in_sql_terms(m)),
            other => Self::new(sqlstate::INTERNAL_ERROR, in_sql_terms(&other.strip_backtrace())),
        }
    }
}
