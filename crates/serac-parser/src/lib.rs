//! From the text of a statement to its [tree].
//!
//! The parser goes from token to token and never back, except to look for a matching parenthesis.
//! So it finds an error at the token at which PostgreSQL finds it. Time and memory are linear in
//! the length of the text. [`MAX_DEPTH`] bounds the depth of a tree, and the stack grows while a
//! deep one is parsed.
#![warn(missing_docs)]

mod error;
mod keyword;
mod lexer;
mod parser;
pub mod tree;

pub use error::ParseError;
pub use lexer::{PlainKind, PlainToken, plain_tokens};

/// Levels of the grammar that a statement may have: a parenthesis takes two, a subquery three.
pub const MAX_DEPTH: usize = 5_000;

/// Parses a script: statements between semicolons.
///
/// # Errors
/// The first error of syntax (SQLSTATE 42601), of a string (22025, 22021), or of a statement that
/// is nested too deeply (54001). Statements that PostgreSQL's grammar accepts only to refuse them
/// have PostgreSQL's codes: 0A000, 22023, 42710, 42939, 42P20.
pub fn parse(sql: &str) -> Result<Vec<tree::Statement>, ParseError> {
    parser::Parser::new(sql)?.script()
}

/// Parses an expression that stands alone, as definitions keep it: a default, the condition of an
/// index.
///
/// # Errors
/// As for [`parse`].
pub fn parse_expression(sql: &str) -> Result<tree::Expr, ParseError> {
    parser::Parser::new(sql)?.expression_alone()
}

/// Parses the name of a type that stands alone, as arguments of functions name types.
///
/// # Errors
/// As for [`parse`].
pub fn parse_type(text: &str) -> Result<tree::TypeName, ParseError> {
    parser::Parser::new(text)?.type_alone()
}
