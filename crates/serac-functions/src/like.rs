//! like_escape (pattern, escape): the pattern of a LIKE with an escape character of its own, as one
//! that is escaped by backslashes.

use super::definition::Definition;
use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
use datafusion::arrow::datatypes::DataType;
use serac_values::SqlError;
use serac_values::text_types::is_text_or_null;
use std::sync::Arc;

/// The pattern, in which `escape` escapes: a character, or nothing if none does.
///
/// # Errors
/// 22025 for more than a character.
pub fn escape(pattern: &str, escape: &str) -> Result<String, SqlError> {
    let mut letters = escape.chars();
    let (escape, None) = (letters.next(), letters.next()) else {
        let message = "invalid escape string: it must be empty or one character";
        return Err(SqlError::new("22025", message));
    };
    let mut escaped = String::with_capacity(pattern.len() + 4);
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        if Some(letter) == escape {
            // What follows stands for itself; a character that escapes nothing is LIKE's to judge.
            let next = letters.next();
            if next.is_none_or(|next| matches!(next, '%' | '_' | '\\')) {
                escaped.push('\\');
            }
            escaped.extend(next);
        } else {
            if letter == '\\' {
                escaped.push('\\');
            }
            escaped.push(letter);
        }
    }
    Ok(escaped)
}

pub(super) static DEFINITIONS: &[Definition] = &[Definition {
    name: "like_escape",
    types: |given| match given {
        [pattern, escape] if [pattern, escape].into_iter().all(is_text_or_null) => {
            Some((vec![DataType::Utf8; 2], DataType::Utf8))
        }
        _ => None,
    },
    body: |args: &[ArrayRef]| {
        let rows = args[0].as_string::<i32>().iter().zip(args[1].as_string::<i32>());
        let escaped = rows.map(|(pattern, by)| pattern.zip(by).map(|(pattern, by)| escape(pattern, by)).transpose());
        Ok(Arc::new(escaped.collect::<Result<StringArray, SqlError>>()?))
    },
}];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_escaped_by_backslashes() {
        for (pattern, by, escaped) in [
            ("a##b", "#", "a#b"),
            ("x/_%", "/", "x\\_%"),
            ("a\\b", "#", "a\\\\b"),
            ("a\\_b", "", "a\\\\_b"),
            ("#\\", "#", "\\\\"),
            ("a#", "#", "a\\"),
        ] {
            assert_eq!(escape(pattern, by).unwrap(), escaped, "{pattern} by {by}");
        }
        assert_eq!(escape("a", "##").unwrap_err().sqlstate, "22025");
    }
}
