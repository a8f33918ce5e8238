//! Parameters that are written `?`, as ODBC, JDBC and ADBC have them.

use crate::dialect::PostgreSql;
use crate::error::Result;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use std::borrow::Cow;

/// The text with `$1`, `$2`, … in the place of parameters that are written `?`; marks within strings, names and comments stay.
///
/// # Errors
/// SQLSTATE 42601 for a text that cannot be read.
pub fn number_parameters(sql: &str) -> Result<Cow<'_, str>> {
    if !sql.contains('?') {
        return Ok(Cow::Borrowed(sql));
    }
    let tokens = Tokenizer::new(&PostgreSql, sql).tokenize_with_location().map_err(ParserError::from)?;
    let is_mark = |token: &Token| *token == Token::Question || *token == Token::Placeholder("?".into());
    let mut marks = tokens.iter().filter(|token| is_mark(&token.token)).map(|token| token.span.start).peekable();
    let mut numbered = String::with_capacity(sql.len() + 8);
    let (mut line, mut column, mut number) = (1, 1, 0);
    for character in sql.chars() {
        if marks.next_if(|place| (place.line, place.column) == (line, column)).is_some() {
            number += 1;
            numbered.push_str(&format!("${number}"));
        } else {
            numbered.push(character);
        }
        (line, column) = if character == '\n' { (line + 1, 1) } else { (line, column + 1) };
    }
    Ok(Cow::Owned(numbered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_numbered_where_they_are_parameters() {
        let numbered = |sql: &str| number_parameters(sql).unwrap().into_owned();
        assert_eq!(
            numbered("SELECT a FROM t WHERE b = ? AND c IN (?,?)"),
            "SELECT a FROM t WHERE b = $1 AND c IN ($2,$3)"
        );
        assert_eq!(
            numbered("INSERT INTO t VALUES (?, '?''?', \"?\")\n, (?)"),
            "INSERT INTO t VALUES ($1, '?''?', \"?\")\n, ($2)"
        );
        assert_eq!(numbered("SELECT 'ü', ? -- ?\n, /* ? */ ?"), "SELECT 'ü', $1 -- ?\n, /* ? */ $2");
        assert_eq!(numbered("SELECT $1"), "SELECT $1");
        assert!(number_parameters("SELECT ? 'open").is_err());
    }
}
