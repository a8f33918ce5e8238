//! Parameters that are not written `$1`: `?`, as ODBC, JDBC and ADBC have them, and the `:1` and
//! `:name` of Python's DB-API.

use crate::error::{Result, SqlError};
use crate::parsed::syntax_error;
use serac_parser::{PlainKind, PlainToken, plain_tokens};
use std::borrow::Cow;
use std::ops::Range;

/// The way in which the parameters of a text are told apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParameterMarks {
    /// By their numbers.
    Numbers,
    /// By these names, in the order of their numbers.
    Names(Vec<String>),
}

/// A text whose parameters are all written `$1`, `$2`, ….
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MarkedText<'t> {
    /// The text.
    pub text: Cow<'t, str>,
    /// How its parameters were written.
    pub marks: ParameterMarks,
}

/// What encloses a token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Enclosure {
    Parenthesis,
    /// `ARRAY[…]`, and brackets in it.
    Constructor,
    /// `a[…]`, in which a colon stands between the bounds of a slice.
    Subscript,
}

/// The text with `$1`, `$2`, … in the place of parameters that are written `:1`, `:name`, or, where
/// there are no others, `?`. A parameter in a subscript, where the colon belongs to slices, stands
/// in parentheses: `a[(:i)]`. Where a name is longer than its number, blanks follow, so that
/// positions in the text stay.
///
/// # Errors
/// SQLSTATE 42601 for a text that cannot be read, or whose parameters have names and numbers.
pub fn mark_parameters(sql: &str) -> Result<MarkedText<'_>> {
    let unnamed = |text| MarkedText { text, marks: ParameterMarks::Numbers };
    if !sql.contains([':', '?']) {
        return Ok(unnamed(Cow::Borrowed(sql)));
    }
    let tokens = plain_tokens(sql).map_err(|error| syntax_error(error, sql))?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let has_dollars = tokens.iter().any(|token| {
        let digits = text_of(sql, token).strip_prefix('$');
        token.kind == PlainKind::Other && digits.is_some_and(is_number)
    });
    let marks = colon_marks(sql, &tokens);
    if marks.is_empty() {
        return if has_dollars { Ok(unnamed(Cow::Borrowed(sql))) } else { number_parameters(sql).map(unnamed) };
    }
    let numbered = marks.iter().filter(|mark| is_number(&sql[mark.start + 1..mark.end])).count();
    if numbered != 0 && numbered != marks.len() || numbered == 0 && has_dollars {
        let message = "the parameters of a statement have either names or numbers";
        return Err(SqlError::new(sqlstate::SYNTAX_ERROR, message));
    }
    let mut names: Vec<String> = Vec::new();
    let mut text = String::with_capacity(sql.len());
    let mut copied = 0;
    for mark in &marks {
        let name = &sql[mark.start + 1..mark.end];
        text.push_str(&sql[copied..mark.start]);
        copied = mark.end;
        if numbered != 0 {
            text.push('$');
            text.push_str(name);
            continue;
        }
        let known = names.iter().position(|known| known == name);
        let at = known.unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        let width = mark.len();
        text.push_str(&format!("{:<width$}", format!("${}", at + 1)));
    }
    text.push_str(&sql[copied..]);
    let marks = if numbered == 0 { ParameterMarks::Names(names) } else { ParameterMarks::Numbers };
    Ok(MarkedText { text: Cow::Owned(text), marks })
}

fn text_of<'t>(sql: &'t str, token: &PlainToken) -> &'t str {
    &sql[token.span.start as usize..token.span.end as usize]
}

/// The places of `:1` and `:name`.
fn colon_marks(sql: &str, tokens: &[PlainToken]) -> Vec<Range<usize>> {
    let mut marks = Vec::new();
    let mut around = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| &tokens[at]);
        let PlainKind::Sign(sign) = token.kind else { continue };
        match sign {
            b'(' => around.push(Enclosure::Parenthesis),
            b'[' => {
                let follows_operand = before.is_some_and(|before| match &before.kind {
                    PlainKind::Name(name) => name != "array",
                    PlainKind::Sign(sign) => matches!(sign, b')' | b']'),
                    PlainKind::Operator => false,
                    PlainKind::Other => true,
                });
                around.push(if follows_operand { Enclosure::Subscript } else { Enclosure::Constructor });
            }
            b')' | b']' => {
                around.pop();
            }
            b':' if around.last() != Some(&Enclosure::Subscript) => {
                let Some(next) = tokens.get(at + 1).filter(|next| next.span.start == token.span.end) else { continue };
                let text = text_of(sql, next);
                let is_mark = match next.kind {
                    PlainKind::Name(_) => !text.starts_with('"') && !text.contains('&'),
                    PlainKind::Other => text.bytes().all(|byte| byte.is_ascii_digit()),
                    PlainKind::Operator | PlainKind::Sign(_) => false,
                };
                if is_mark {
                    marks.push(token.span.start as usize..next.span.end as usize);
                }
            }
            _ => {}
        }
    }
    marks
}

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
    fn names_and_numbers_become_numbers() {
        let marked = |sql: &str| {
            let MarkedText { text, marks } = mark_parameters(sql).unwrap();
            let names = match marks {
                ParameterMarks::Numbers => Vec::new(),
                ParameterMarks::Names(names) => names,
            };
            (text.into_owned(), names.join(","))
        };
        let own = |text: &str, names: &str| (text.to_owned(), names.to_owned());
        assert_eq!(marked("SELECT 1"), own("SELECT 1", ""));
        assert_eq!(marked("SELECT $2::int, a->'x' ? 'y'"), own("SELECT $2::int, a->'x' ? 'y'", ""));
        assert_eq!(marked("SELECT ?, ?"), own("SELECT $1, $2", ""));
        assert_eq!(marked("SELECT :2, :1::int"), own("SELECT $2, $1::int", ""));
        assert_eq!(
            marked("SELECT :Name, ':x', \":y\", x::int -- :z\n, :b, :Name"),
            own("SELECT $1   , ':x', \":y\", x::int -- :z\n, $2, $1   ", "Name,b")
        );
        assert_eq!(
            marked("SELECT ARRAY[:a, :b], c[1:d], c[:e], c[(:f)]"),
            own("SELECT ARRAY[$1, $2], c[1:d], c[:e], c[($3)]", "a,b,f")
        );
        assert!(mark_parameters("SELECT :a, :1").is_err());
        assert!(mark_parameters("SELECT :a, $1").is_err());
        assert!(mark_parameters("SELECT :a, 'open").is_err());
    }

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
