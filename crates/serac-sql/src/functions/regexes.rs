//! regexp_matches, regexp_split_to_array and regexp_split_to_table, of which what gives several rows in PostgreSQL is an array here, which is unnested; the
//! regular expression that a pattern of SIMILAR TO is.
//!
//! Patterns are those of the operator `~`. As in PostgreSQL, `.` matches a line's end unless the flags say otherwise.

use super::{Definition, Types};
use crate::error::SqlError;
use crate::types::is_text_or_null;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListBuilder, StringArray, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field};
use regex::{Captures, Regex, RegexBuilder};
use std::sync::Arc;

type Outcome<T> = Result<T, SqlError>;

fn list(element: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(element, true)))
}
fn texts(given: &[DataType], result: DataType) -> Option<Types> {
    let all = given.iter().all(is_text_or_null);
    (all && (2..=3).contains(&given.len())).then(|| (vec![DataType::Utf8View; given.len()], result))
}

/// A pattern with its flags, and whether all matches are wanted.
pub(super) fn compiled(pattern: &str, flags: &str) -> Outcome<(Regex, bool)> {
    let (mut all, mut literal, mut extended) = (false, false, false);
    let (mut ignore_case, mut dot_is_any, mut lines) = (false, true, false);
    for flag in flags.chars() {
        match flag {
            'g' => all = true,
            'i' => ignore_case = true,
            'c' => ignore_case = false,
            'm' | 'n' => (dot_is_any, lines) = (false, true),
            's' => (dot_is_any, lines) = (true, false),
            'p' => (dot_is_any, lines) = (false, false),
            'w' => (dot_is_any, lines) = (true, true),
            'x' => extended = true,
            't' => extended = false,
            'q' => literal = true,
            'b' | 'e' => return Err(SqlError::unsupported(format!("the regular expression option \"{flag}\""))),
            other => {
                return Err(SqlError::new("22023", format!("invalid regular expression option: \"{other}\"")));
            }
        }
    }
    let pattern = if literal { regex::escape(pattern) } else { pattern.to_owned() };
    let regex = RegexBuilder::new(&pattern)
        .case_insensitive(ignore_case)
        .dot_matches_new_line(dot_is_any)
        .multi_line(lines)
        .ignore_whitespace(extended)
        .build();
    let regex = regex.map_err(|error| SqlError::new("2201B", format!("invalid regular expression: {error}")))?;
    Ok((regex, all))
}

/// The matches in a text, or the first. An empty match may follow another one at its end, unless only `proper` ones count: then it may not, nor stand at an end of
/// the text.
fn matches<'t>(regex: &Regex, text: &'t str, all: bool, proper: bool) -> Vec<Captures<'t>> {
    let (mut found, mut start, mut last_end) = (Vec::new(), 0, 0);
    while let Some(captures) = regex.captures_at(text, start) {
        let (from, to) = captures.get(0).map_or((start, start), |whole| (whole.start(), whole.end()));
        if !proper || (from < text.len() && to > last_end) {
            found.push(captures);
        }
        last_end = to;
        // Behind an empty match, a letter on.
        let next = if from == to { text[to..].chars().next().map(|letter| to + letter.len_utf8()) } else { Some(to) };
        match next {
            Some(next) if all => start = next,
            _ => break,
        }
    }
    found
}

/// Calls `f` for rows without NULL, with the pattern's regex, whether all matches are wanted, and the text; without them for the others.
fn each(args: &[ArrayRef], mut f: impl FnMut(Option<(&Regex, bool, &str)>) -> Outcome<()>) -> Outcome<()> {
    let given: Vec<_> = args.iter().map(|array| array.as_string_view()).collect();
    // Most often it is one pattern for all rows.
    let mut last: Option<(&str, &str, (Regex, bool))> = None;
    for row in 0..args[0].len() {
        if args.iter().any(|array| array.is_null(row)) {
            f(None)?;
            continue;
        }
        let (pattern, flags) = (given[1].value(row), given.get(2).map_or("", |flags| flags.value(row)));
        let (regex, all) = match &mut last {
            Some((known, known_flags, compiled)) if *known == pattern && *known_flags == flags => &*compiled,
            other => &other.insert((pattern, flags, compiled(pattern, flags)?)).2,
        };
        f(Some((regex, *all, given[0].value(row))))?;
    }
    Ok(())
}

fn regexp_matches(args: &[ArrayRef]) -> Outcome<ArrayRef> {
    let mut rows = ListBuilder::new(ListBuilder::new(StringBuilder::new()));
    each(args, |row| {
        let Some((regex, all, text)) = row else {
            rows.append_null();
            return Ok(());
        };
        for found in matches(regex, text, all, false) {
            // Without parentheses, all of it.
            let first = usize::from(regex.captures_len() > 1);
            for part in found.iter().skip(first) {
                rows.values().values().append_option(part.map(|part| part.as_str()));
            }
            rows.values().append(true);
        }
        rows.append(true);
        Ok(())
    })?;
    Ok(Arc::new(rows.finish()))
}

fn split(args: &[ArrayRef], name: &str) -> Outcome<ArrayRef> {
    let mut rows = ListBuilder::new(StringBuilder::new());
    each(args, |row| {
        let Some((regex, all, text)) = row else {
            rows.append_null();
            return Ok(());
        };
        if all {
            return Err(SqlError::new("22023", format!("{name}() does not support the \"global\" option")));
        }
        let mut from = 0;
        for found in matches(regex, text, true, true) {
            let Some(separator) = found.get(0) else { continue };
            rows.values().append_value(&text[from..separator.start()]);
            from = separator.end();
        }
        rows.values().append_value(&text[from..]);
        rows.append(true);
        Ok(())
    })?;
    Ok(Arc::new(rows.finish()))
}

/// The pattern of SIMILAR TO as a regular expression, with the character that takes other characters' meaning from them.
fn regex_of_similar(pattern: &str, escape: Option<char>) -> String {
    let mut regex = String::from("^(?s:");
    let (mut characters, mut in_brackets) = (pattern.chars(), false);
    while let Some(character) = characters.next() {
        match character {
            _ if Some(character) == escape => {
                if let Some(plain) = characters.next() {
                    regex.push_str(&regex::escape(plain.encode_utf8(&mut [0; 4])));
                }
            }
            _ if in_brackets => {
                in_brackets = character != ']';
                regex.push(character);
            }
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            '.' | '^' | '$' | '\\' => regex.extend(['\\', character]),
            _ => {
                in_brackets = character == '[';
                regex.push(character);
            }
        }
    }
    regex + ")$"
}

fn similar_to_escape(args: &[ArrayRef]) -> Outcome<ArrayRef> {
    let (patterns, escapes) = (args[0].as_string_view(), args.get(1).map(|escapes| escapes.as_string_view()));
    let regex = |row: usize| -> Outcome<Option<String>> {
        let escape = match escapes {
            None => Some('\\'),
            Some(escapes) if escapes.is_null(row) => return Ok(None),
            Some(escapes) => {
                let mut characters = escapes.value(row).chars();
                let escape = characters.next();
                if characters.next().is_some() {
                    return Err(SqlError::new("22019", "invalid escape string"));
                }
                escape
            }
        };
        Ok(patterns.is_valid(row).then(|| regex_of_similar(patterns.value(row), escape)))
    };
    Ok(Arc::new((0..patterns.len()).map(regex).collect::<Outcome<StringArray>>()?))
}

pub(super) static DEFINITIONS: &[Definition] = &[
    Definition {
        name: "similar_to_escape",
        types: |given| {
            let all = given.iter().all(is_text_or_null);
            (all && (1..=2).contains(&given.len())).then(|| (vec![DataType::Utf8View; given.len()], DataType::Utf8))
        },
        body: similar_to_escape,
    },
    Definition {
        name: "regexp_matches",
        types: |given| texts(given, list(list(DataType::Utf8))),
        body: regexp_matches,
    },
    Definition {
        name: "regexp_split_to_array",
        types: |given| texts(given, list(DataType::Utf8)),
        body: |args| split(args, "regexp_split_to_array"),
    },
    Definition {
        name: "regexp_split_to_table",
        types: |given| texts(given, list(DataType::Utf8)),
        body: |args| split(args, "regexp_split_to_table"),
    },
];
