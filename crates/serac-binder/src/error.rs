//! What may be wrong with a statement.

use datafusion::error::DataFusionError;
use serac_parser::tree::Span;

/// What is wrong with a statement, as PostgreSQL says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementError {
    /// Five characters.
    pub sqlstate: &'static str,
    /// What is wrong.
    pub message: String,
    /// What may be done about it.
    pub hint: Option<&'static str>,
    /// Where.
    pub span: Option<Span>,
}

/// Why there is no plan.
#[derive(Debug)]
pub enum BindError {
    /// The statement is wrong.
    Statement(StatementError),
    /// The binder does not know this yet.
    Unknown(&'static str),
    /// DataFusion refuses what the binder makes.
    Plan(DataFusionError),
}

/// A result of binding.
pub type Result<T, E = BindError> = std::result::Result<T, E>;

impl BindError {
    /// An error of the statement.
    pub fn new(sqlstate: &'static str, message: impl Into<String>, span: Span) -> Self {
        Self::Statement(StatementError { sqlstate, message: message.into(), hint: None, span: Some(span) })
    }
    /// With what may be done about it.
    #[must_use]
    pub fn hinted(self, hint: &'static str) -> Self {
        match self {
            Self::Statement(error) => Self::Statement(StatementError { hint: Some(hint), ..error }),
            other => other,
        }
    }
}

impl From<DataFusionError> for BindError {
    fn from(error: DataFusionError) -> Self {
        Self::Plan(error)
    }
}
