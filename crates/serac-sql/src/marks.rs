//! Parameters that are written `?`, as ODBC, JDBC and ADBC have them.

use crate::error::{Result, SqlError};
use serac_parser::{TokenKind, places_of_tokens};
use std::borrow::Cow;

/// The text with `$1`, `$2`, … in the place of parameters that are written `?`; marks within
/// strings, names and comments stay, and so does the operator `@?`.
///
/// # Errors
/// SQLSTATE 42601 for a text that cannot be read.
pub fn number_parameters(sql: &str) -> Result<Cow<'_, str>> {
    if !sql.contains('?') {
        return Ok(Cow::Borrowed(sql));
    }
    let tokens = places_of_tokens(sql).map_err(|error| SqlError {
        position: Some(error.line_and_column(sql)),
        ..SqlError::new(error.sqlstate, error.message)
    })?;
    let (mut numbered, mut at, mut number) = (String::with_capacity(sql.len() + 8), 0, 0);
    for (kind, span) in tokens {
        // A mark may stand right behind another operator.
        if matches!(&kind, TokenKind::Operator(symbol) if symbol.ends_with('?') && symbol != "@?") {
            let mark = span.end as usize - 1;
            number += 1;
            numbered.push_str(&sql[at..mark]);
            numbered.push_str(&format!("${number}"));
            at = span.end as usize;
        }
    }
    numbered.push_str(&sql[at..]);
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
        assert_eq!(numbered("SELECT a FROM t WHERE b=? AND c @? ?"), "SELECT a FROM t WHERE b=$1 AND c @? $2");
        assert!(number_parameters("SELECT ? 'open").is_err());
    }
}
