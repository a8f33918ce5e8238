//! The errors of binding.

use datafusion::error::DataFusionError;
use serac_parser::tree::Span;

/// An error of a statement, in PostgreSQL's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementError {
    /// The SQLSTATE: five characters.
    pub sqlstate: &'static str,
    /// The message.
    pub message: String,
    /// The hint: a way to mend it.
    pub hint: Option<&'static str>,
    /// The detail.
    pub detail: Option<String>,
    /// The place of the error.
    pub span: Option<Span>,
}

/// The reason why there is no plan.
#[derive(Debug)]
pub enum BindError {
    /// The statement is wrong, or uses a feature that SeracDB does not have (0A000).
    Statement(StatementError),
    /// DataFusion refuses the binder's plan.
    Plan(DataFusionError),
}

/// The place of parts without a place in the tree: the operators of BETWEEN, IN and their kin.
/// Errors of these parts have no place.
pub(crate) const NO_PLACE: Span = Span { start: 0, end: 0 };

/// A result of binding.
pub type Result<T, E = BindError> = std::result::Result<T, E>;

impl BindError {
    /// An error of the statement, at a place that is not empty if it is known.
    pub fn new(sqlstate: &'static str, message: impl Into<String>, span: Span) -> Self {
        let span = Some(span).filter(|span| *span != NO_PLACE);
        Self::Statement(StatementError { sqlstate, message: message.into(), hint: None, detail: None, span })
    }

    /// The error of a feature that PostgreSQL has and SeracDB has not; at [`NO_PLACE`], of the
    /// statement as a whole.
    pub(crate) fn unsupported(what: impl std::fmt::Display, span: Span) -> Self {
        Self::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("{what} is not supported"), span)
    }

    /// The same error for a statement that is right but has no plan.
    #[must_use]
    pub(crate) fn refused(self, what: impl std::fmt::Display, span: Span) -> Self {
        match self {
            // An error of a function's own.
            Self::Plan(DataFusionError::External(_)) | Self::Statement(_) => self,
            Self::Plan(_) => Self::unsupported(what, span),
        }
    }

    /// An error of the statement as a whole.
    pub fn without_place(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self::Statement(StatementError { sqlstate, message: message.into(), hint: None, detail: None, span: None })
    }

    /// The same of the statement as a whole.
    #[must_use]
    pub(crate) fn unplaced(self) -> Self {
        match self {
            Self::Statement(error) => Self::Statement(StatementError { span: None, ..error }),
            other => other,
        }
    }

    /// Adds a detail.
    #[must_use]
    pub fn detailed(self, detail: String) -> Self {
        match self {
            Self::Statement(error) => Self::Statement(StatementError { detail: Some(detail), ..error }),
            other => other,
        }
    }

    /// Adds a hint.
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
