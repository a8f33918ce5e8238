//! Patterns of LIKE and ILIKE.
//!
//! - like_escape (pattern, escape): the pattern of a LIKE with an escape character of its own,
//!   rewritten to backslashes.
//! - like_pattern (text, pattern), ilike_pattern (text, pattern): the pattern. It is an error if it
//!   ends with a backslash that escapes nothing, and the comparison with the text gets there.

use super::definition::{Definition, no_function};
use datafusion::arrow::array::{ArrayRef, AsArray, StringArray, StringViewArray};
use datafusion::arrow::compute::{ilike, like};
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use serac_values::SqlError;
use serac_values::text_types::is_text_or_null;
use std::sync::Arc;

/// A pattern of the texts whose comparison with `pattern` reaches a backslash at its end that
/// escapes no character; `None` if there is no such backslash. The pattern before it must match a
/// part of the text, and more of the text must follow.
fn unfinished(pattern: &str) -> Option<String> {
    // The wildcards behind the last character that stands for itself: where the first `%` among
    // them is, and how many `_` follow that.
    let mut any: Option<(usize, usize)> = None;
    let mut letters = pattern.char_indices();
    while let Some((at, letter)) = letters.next() {
        match (letter, any) {
            ('\\', _) => {
                any = match letters.next() {
                    Some(_) => None,
                    None => {
                        let (end, singles) = any.map_or((at, 1), |(first, singles)| (first, singles.max(1)));
                        return Some(format!("{}{}%", &pattern[..end], "_".repeat(singles)));
                    }
                }
            }
            ('%', None) => any = Some((at, 0)),
            ('%', Some(_)) | ('_', None) => {}
            ('_', Some((first, singles))) => any = Some((first, singles + 1)),
            _ => any = None,
        }
    }
    None
}

/// Whether a constant pattern ends with an escape of nothing; `None` if it is no constant.
fn is_unfinished(pattern: &Expr) -> Option<bool> {
    let text = pattern.as_literal()?.try_as_str()?;
    Some(text.is_some_and(|text| unfinished(text).is_some()))
}

/// The pattern beside a text, checked.
#[derive(Debug, PartialEq, Eq, Hash)]
struct LikePattern {
    is_any_case: bool,
    signature: Signature,
}

/// The functions that check patterns.
pub(super) fn functions() -> [ScalarUDF; 2] {
    [false, true].map(|is_any_case| {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::from(LikePattern { is_any_case, signature })
    })
}

impl ScalarUDFImpl for LikePattern {
    fn name(&self) -> &str {
        if self.is_any_case { "ilike_pattern" } else { "like_pattern" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> PlanResult<Vec<DataType>> {
        match given {
            [text, pattern] if is_text_or_null(text) && is_text_or_null(pattern) => Ok(vec![DataType::Utf8View; 2]),
            _ => Err(no_function(self.name(), given)),
        }
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Utf8View)
    }

    fn simplify(&self, mut args: Vec<Expr>, _: &SimplifyContext) -> PlanResult<ExprSimplifyResult> {
        Ok(match args.get(1).and_then(is_unfinished) {
            Some(false) => ExprSimplifyResult::Simplified(args.swap_remove(1)),
            _ => ExprSimplifyResult::Original(args),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let patterns = arrays[1].as_string_view();
        let unfinished = patterns.iter().map(|pattern| pattern.and_then(unfinished)).collect::<StringViewArray>();
        let compare = if self.is_any_case { ilike } else { like };
        if compare(arrays[0].as_string_view(), &unfinished)?.true_count() > 0 {
            let message = "LIKE pattern must not end with escape character";
            return Err(SqlError::new(sqlstate::INVALID_ESCAPE_SEQUENCE, message).external());
        }
        let mut args = args.args;
        Ok(args.swap_remove(1))
    }
}

/// The pattern with the escape character `escape`; empty for no escapes.
///
/// # Errors
/// 22025 for more than a character.
pub fn escape(pattern: &str, escape: &str) -> Result<String, SqlError> {
    let mut letters = escape.chars();
    let (escape, None) = (letters.next(), letters.next()) else {
        let message = "invalid escape string: it must be empty or one character";
        return Err(SqlError::new(sqlstate::INVALID_ESCAPE_SEQUENCE, message));
    };
    let mut escaped = String::with_capacity(pattern.len() + 4);
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        if Some(letter) == escape {
            // The next character stands for itself; LIKE handles an escape at the end.
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
        assert_eq!(escape("a", "##").unwrap_err().sqlstate, sqlstate::INVALID_ESCAPE_SEQUENCE);
    }

    #[test]
    fn patterns_that_end_with_a_backslash_are_found() {
        let of = |pattern| unfinished(pattern).unwrap_or_default();
        for (pattern, reached) in [
            ("a\\", "a_%"),
            ("\\", "_%"),
            ("%\\", "_%"),
            ("a%\\", "a_%"),
            ("a_%_%_\\", "a___%"),
            ("a\\%\\", "a\\%_%"),
            ("a\\\\", ""),
            ("a\\%", ""),
            ("%b_\\", "%b__%"),
        ] {
            assert_eq!(of(pattern), reached, "{pattern}");
        }
    }
}
