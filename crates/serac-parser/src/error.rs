//! Errors of syntax.

use crate::tree::Span;
use std::fmt;

/// The reason why a text is no statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Its SQLSTATE, in five characters.
    pub sqlstate: &'static str,
    /// The message.
    pub message: String,
    /// The byte of the text at which the error is.
    pub position: u32,
}

impl ParseError {
    pub(crate) fn new(sqlstate: &'static str, message: impl Into<String>, position: u32) -> Self {
        Self { sqlstate, message: message.into(), position }
    }
    pub(crate) fn at(message: impl Into<String>, span: Span) -> Self {
        Self::new(sqlstate::SYNTAX_ERROR, message, span.start)
    }

    /// Line and column of the error in its text, in characters from 1.
    pub fn line_and_column(&self, sql: &str) -> (u32, u32) {
        let before = sql.get(..self.position as usize).unwrap_or(sql);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() as u32 + 1;
        let column = before.rsplit('\n').next().unwrap_or(before).chars().count() as u32 + 1;
        (line, column)
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ParseError {}

/// A result of parsing.
pub(crate) type Result<T> = std::result::Result<T, ParseError>;
