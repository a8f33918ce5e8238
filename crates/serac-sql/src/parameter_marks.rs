//! Parameters that are written `?`, as ODBC, JDBC and ADBC have them.

use crate::error::Result;
use crate::parsed::syntax_error;
use serac_parser::{PlainKind, PlainToken, plain_tokens};
use std::borrow::Cow;

/// The text with `$1`, `$2`, … in the place of parameters that are written `?`; marks within
/// strings, names and comments stay.
///
/// # Errors
/// SQLSTATE 42601 for a text that cannot be read.
pub fn number_parameters(sql: &str) -> Result<Cow<'_, str>> {
    if !sql.contains('?') {
        return Ok(Cow::Borrowed(sql));
    }
    let tokens = plain_tokens(sql).map_err(|error| syntax_error(error, sql))?;
    let mut numbered = String::with_capacity(sql.len() + 8);
    let (mut copied, mut number) = (0, 0);
    for PlainToken { span, .. } in tokens.iter().filter(|token| token.kind == PlainKind::Operator) {
        let operator = &sql[span.start as usize..span.end as usize];
        // Operators have it, too: `@?`, `?|`, `?&`, `?-`, `?#`.
        let is_mark =
            |at: &usize| !operator[..*at].ends_with('@') && !operator[at + 1..].starts_with(['|', '&', '-', '#']);
        for at in operator.match_indices('?').map(|(at, _)| at).filter(is_mark) {
            let at = span.start as usize + at;
            number += 1;
            numbered.push_str(&sql[copied..at]);
            numbered.push_str(&format!("${number}"));
            copied = at + 1;
        }
    }
    numbered.push_str(&sql[copied..]);
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
        assert_eq!(numbered("a=? AND b ?| ? AND c @? ?::text"), "a=$1 AND b ?| $2 AND c @? $3::text");
        assert!(number_parameters("SELECT ? 'open").is_err());
    }
}
