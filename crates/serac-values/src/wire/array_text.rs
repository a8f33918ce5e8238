//! Arrays as texts: the elements between braces.

use crate::error::{Result, SqlError};

/// Ignored characters around elements: PostgreSQL knows no other white space there.
const BLANKS: [char; 6] = [' ', '\t', '\n', '\r', '\u{b}', '\u{c}'];

/// The elements of an array that is written as a text: `{a,"b c",NULL}`. `None` if the text is no
/// array, or has nested arrays.
pub fn array_elements(written: &str) -> Option<Vec<Option<String>>> {
    let inner = written.trim_matches(BLANKS).strip_prefix('{')?.strip_suffix('}')?;
    let mut elements = Vec::new();
    if inner.trim_matches(BLANKS).is_empty() {
        return Some(elements);
    }
    let (mut element, mut quoted, mut was_quoted) = (String::new(), false, false);
    let mut letters = inner.chars();
    // `None` if an element is empty and unquoted.
    let finish = |element: &mut String, was_quoted: bool| {
        let text = std::mem::take(element);
        match text.trim_matches(BLANKS) {
            _ if was_quoted => Some(Some(text)),
            "" => None,
            trimmed => Some((!trimmed.eq_ignore_ascii_case("null")).then(|| trimmed.to_owned())),
        }
    };
    while let Some(letter) = letters.next() {
        match letter {
            ',' if !quoted => {
                elements.push(finish(&mut element, was_quoted)?);
                was_quoted = false;
            }
            // Blanks around an element in quotes are not its own, and nothing else stands there.
            c if BLANKS.contains(&c) && was_quoted && !quoted => {}
            _ if was_quoted && !quoted => return None,
            '"' if !quoted && !element.trim_matches(BLANKS).is_empty() => return None,
            '"' => {
                if !quoted {
                    element.clear();
                }
                quoted = !quoted;
                was_quoted = true;
            }
            '\\' => element.push(letters.next()?),
            '{' | '}' if !quoted => return None,
            other => element.push(other),
        }
    }
    if quoted {
        return None;
    }
    elements.push(finish(&mut element, was_quoted)?);
    Some(elements)
}

/// The same of a text that must be an array.
///
/// # Errors
/// 22P02 for an invalid text, 0A000 for an array of several dimensions, or with bounds.
pub fn read_array(text: &str) -> Result<Vec<Option<String>>> {
    let start = text.trim_start_matches(BLANKS);
    if start.starts_with('[')
        || start.strip_prefix('{').is_some_and(|inner| inner.trim_start_matches(BLANKS).starts_with('{'))
    {
        return Err(several_dimensions());
    }
    let malformed =
        || SqlError::new(sqlstate::INVALID_TEXT_REPRESENTATION, format!("malformed array literal: \"{text}\""));
    array_elements(text).ok_or_else(malformed)
}

pub(super) fn several_dimensions() -> SqlError {
    SqlError::unsupported("an array with several dimensions, or with bounds of its own")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_stand_around_whole_elements() {
        let read =
            |text| array_elements(text).map(|all| all.into_iter().map(|one| one.unwrap_or("-".into())).collect());
        let elements = |all: &[&str]| Some(all.iter().map(|one| one.to_string()).collect::<Vec<String>>());
        assert_eq!(read("{a, \"b,\\\"c\" ,null,\"NULL\", x y }"), elements(&["a", "b,\"c", "-", "NULL", "x y"]));
        assert_eq!(read(" {} "), elements(&[]));
        assert_eq!(read("{\u{85},\u{a0}a\u{2003}}"), elements(&["\u{85}", "\u{a0}a\u{2003}"]));
        for wrong in ["{a\"b\"c}", "{\"a\"b}", "{a,}", "{,a}", "{\"a}", "{{a}}", "a", "{a"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(read_array("{{1},{2}}").unwrap_err().sqlstate, sqlstate::FEATURE_NOT_SUPPORTED);
    }
}
