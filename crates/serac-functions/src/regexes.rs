//! The functions regexp_…, where PostgreSQL's set-returning ones return an array here, which is
//! unnested. Also the regular expression for a pattern of SIMILAR TO.
//!
//! Patterns are PostgreSQL's ([`patterns`]). As there, `.` matches a line's end unless the flags
//! say otherwise. The first matching alternative is taken, where PostgreSQL takes the longest.

pub(super) mod patterns;

use super::definition::{Definition, Types};
use crate::sql_result::SqlResult;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanBuilder, Int32Builder, ListBuilder, StringArray, StringBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, Int32Type};
use patterns::Options;
use regex::{Captures, Regex, RegexBuilder};
use serac_values::SqlError;
use serac_values::text_types::is_text_or_null;
use std::sync::Arc;

fn list(element: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(element, true)))
}
fn texts(given: &[DataType], result: DataType) -> Option<Types> {
    let all = given.iter().all(is_text_or_null);
    (all && (2..=3).contains(&given.len())).then(|| (vec![DataType::Utf8View; given.len()], result))
}

/// Texts first, then the types that `rest` gives for each place: a text or a number.
fn mixed(given: &[DataType], texts: usize, rest: &str, least: usize, result: DataType) -> Option<Types> {
    let is_number = |given: &DataType| given.is_integer() || given.is_null();
    let places = "t".repeat(texts) + rest;
    let is_taken = (least..=places.len()).contains(&given.len())
        && given.iter().zip(places.chars()).all(|(given, place)| match place {
            't' => is_text_or_null(given),
            // A constant in quotes is a number.
            _ => is_number(given) || *given == DataType::Utf8,
        });
    let types = places.chars().take(given.len()).map(|place| match place {
        't' => DataType::Utf8View,
        _ => DataType::Int32,
    });
    is_taken.then(|| (types.collect(), result))
}

/// A pattern with its flags, and whether all matches are wanted.
pub(super) fn compiled(pattern: &str, flags: &str) -> SqlResult<(Regex, bool)> {
    let mut options = Options::default();
    flags.chars().try_for_each(|flag| options.set(flag))?;
    let regex = patterns::translated(pattern, &mut options)?;
    let built = RegexBuilder::new(&regex)
        .case_insensitive(options.ignore_case)
        .dot_matches_new_line(options.dot_is_any)
        .multi_line(options.lines)
        .build();
    let regex = built.map_err(|error| patterns::wrong(error.to_string().lines().last().unwrap_or_default()))?;
    Ok((regex, options.all))
}

/// The matches in a text, or the first. An empty match may follow another match at its end. If only
/// `proper` ones count, it may not, nor stand at an end of the text.
fn matches<'t>(regex: &Regex, text: &'t str, all: bool, proper: bool) -> Vec<Captures<'t>> {
    let (mut found, mut start, mut last_end) = (Vec::new(), 0, 0);
    while let Some(captures) = regex.captures_at(text, start) {
        let (from, to) = captures.get(0).map_or((start, start), |whole| (whole.start(), whole.end()));
        let next = behind(text, &captures);
        if !proper || (from < text.len() && to > last_end) {
            found.push(captures);
        }
        last_end = to;
        match next {
            Some(next) if all => start = next,
            _ => break,
        }
    }
    found
}

/// The arguments of a row, without NULLs.
struct Row<'a> {
    regex: &'a Regex,
    /// Whether the flags ask for all matches.
    all: bool,
    text: &'a str,
    args: &'a [ArrayRef],
    row: usize,
}

impl<'a> Row<'a> {
    fn text_at(&self, argument: usize) -> &'a str {
        self.args[argument].as_string_view().value(self.row)
    }

    /// A number with a minimum and a default.
    fn number(&self, argument: usize, name: &str, least: i32, left_out: i32) -> SqlResult<i32> {
        let given = self.args.get(argument).map(|array| array.as_primitive::<Int32Type>().value(self.row));
        let value = given.unwrap_or(left_out);
        match value >= least {
            true => Ok(value),
            false => Err(SqlError::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("invalid value for parameter \"{name}\": {value}"),
            )),
        }
    }

    /// The byte at which the search begins, if the argument is a character's number; `None` if that
    /// is behind the text.
    fn start(&self, argument: usize) -> SqlResult<Option<usize>> {
        let characters = self.number(argument, "start", 1, 1)? as usize - 1;
        if characters == 0 {
            return Ok(Some(0));
        }
        let ends = self.text.char_indices().map(|(at, _)| at).chain([self.text.len()]);
        Ok(ends.skip(1).nth(characters - 1))
    }

    /// # Errors
    /// 22023 where the flags ask for all matches.
    fn has_no_global(&self, name: &str) -> SqlResult<()> {
        match self.all {
            true => Err(SqlError::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("{name}() does not support the \"global\" option"),
            )),
            false => Ok(()),
        }
    }
}

/// Calls `f` for rows without NULL; without arguments for the others. The flags are the argument of
/// that number.
fn each(args: &[ArrayRef], flags_at: usize, mut f: impl FnMut(Option<Row<'_>>) -> SqlResult<()>) -> SqlResult<()> {
    let (texts, patterns) = (args[0].as_string_view(), args[1].as_string_view());
    let flags_of = args.get(flags_at).map(|array| array.as_string_view());
    // Most often it is one pattern for all rows.
    let mut last: Option<(&str, &str, (Regex, bool))> = None;
    for row in 0..args[0].len() {
        if args.iter().any(|array| array.is_null(row)) {
            f(None)?;
            continue;
        }
        let (pattern, flags) = (patterns.value(row), flags_of.map_or("", |flags| flags.value(row)));
        let (regex, all) = match &mut last {
            Some((known, known_flags, compiled)) if *known == pattern && *known_flags == flags => &*compiled,
            other => &other.insert((pattern, flags, compiled(pattern, flags)?)).2,
        };
        f(Some(Row { regex, all: *all, text: texts.value(row), args, row }))?;
    }
    Ok(())
}

/// The match of a number, from 1, from a place on.
fn nth<'t>(regex: &Regex, text: &'t str, start: usize, number: i32) -> Option<Captures<'t>> {
    let (mut start, mut number) = (start, number);
    loop {
        let captures = regex.captures_at(text, start)?;
        number -= 1;
        if number == 0 {
            return Some(captures);
        }
        start = behind(text, &captures)?;
    }
}

/// The position where the search goes on after a match: after an empty one, one letter further.
fn behind(text: &str, captures: &Captures<'_>) -> Option<usize> {
    let whole = captures.get(0)?;
    match whole.is_empty() {
        true => text[whole.end()..].chars().next().map(|letter| whole.end() + letter.len_utf8()),
        false => Some(whole.end()),
    }
}

fn regexp_count(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let mut counts = Int32Builder::new();
    each(args, 3, |row| {
        let Some(row) = row else {
            counts.append_null();
            return Ok(());
        };
        row.has_no_global("regexp_count")?;
        let (mut start, mut count) = (row.start(2)?, 0);
        while let Some(at) = start
            && let Some(found) = row.regex.captures_at(row.text, at)
        {
            count += 1;
            start = behind(row.text, &found);
        }
        counts.append_value(count);
        Ok(())
    })?;
    Ok(Arc::new(counts.finish()))
}

/// The part that a group has found, of the match of a number.
fn part_found<'t>(row: &Row<'t>, number: i32, group: i32) -> SqlResult<Option<regex::Match<'t>>> {
    let Some(start) = row.start(2)? else { return Ok(None) };
    Ok(nth(row.regex, row.text, start, number).and_then(|found| found.get(group as usize)))
}

fn regexp_instr(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let mut places = Int32Builder::new();
    each(args, 5, |row| {
        let Some(row) = row else {
            places.append_null();
            return Ok(());
        };
        row.start(2)?;
        let number = row.number(3, "n", 1, 1)?;
        let is_end = row.number(4, "endoption", 0, 0)?;
        if is_end > 1 {
            return Err(SqlError::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("invalid value for parameter \"endoption\": {is_end}"),
            ));
        }
        row.has_no_global("regexp_instr")?;
        let group = row.number(6, "subexpr", 0, 0)?;
        let place = part_found(&row, number, group)?.map_or(0, |part| {
            let end = if is_end == 1 { part.end() } else { part.start() };
            row.text[..end].chars().count() as i32 + 1
        });
        places.append_value(place);
        Ok(())
    })?;
    Ok(Arc::new(places.finish()))
}

fn regexp_substr(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let mut texts = StringBuilder::new();
    each(args, 4, |row| {
        let Some(row) = row else {
            texts.append_null();
            return Ok(());
        };
        row.start(2)?;
        let number = row.number(3, "n", 1, 1)?;
        row.has_no_global("regexp_substr")?;
        let group = row.number(5, "subexpr", 0, 0)?;
        texts.append_option(part_found(&row, number, group)?.map(|part| part.as_str()));
        Ok(())
    })?;
    Ok(Arc::new(texts.finish()))
}

fn regexp_like(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let mut found = BooleanBuilder::new();
    each(args, 2, |row| {
        let Some(row) = row else {
            found.append_null();
            return Ok(());
        };
        row.has_no_global("regexp_like")?;
        found.append_value(row.regex.is_match(row.text));
        Ok(())
    })?;
    Ok(Arc::new(found.finish()))
}

/// The groups of a match; without parentheses, all of it.
fn append_groups(regex: &Regex, found: &Captures<'_>, groups: &mut ListBuilder<StringBuilder>) {
    let first = usize::from(regex.captures_len() > 1);
    for part in found.iter().skip(first) {
        groups.values().append_option(part.map(|part| part.as_str()));
    }
    groups.append(true);
}

fn regexp_match(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let mut rows = ListBuilder::new(StringBuilder::new());
    each(args, 2, |row| {
        let Some(row) = row else {
            rows.append_null();
            return Ok(());
        };
        row.has_no_global("regexp_match")
            .map_err(|error| error.explained("The function regexp_matches gives all of them."))?;
        match row.regex.captures(row.text) {
            Some(found) => append_groups(row.regex, &found, &mut rows),
            None => rows.append_null(),
        }
        Ok(())
    })?;
    Ok(Arc::new(rows.finish()))
}

/// Puts a replacement in the place of a match: `\1` is a group's part of it, `\&` all of it.
fn append_replacement(replacement: &str, found: &Captures<'_>, out: &mut String) {
    let mut rest = replacement;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let group = match rest[at + 1..].chars().next() {
            Some('&') => 0,
            Some(digit @ '1'..='9') => digit as usize - '0' as usize,
            Some('\\') => {
                out.push('\\');
                rest = &rest[at + 2..];
                continue;
            }
            _ => {
                out.push('\\');
                rest = &rest[at + 1..];
                continue;
            }
        };
        out.push_str(found.get(group).map_or("", |part| part.as_str()));
        rest = &rest[at + 2..];
    }
    out.push_str(rest);
}

/// regexp_replace (text, pattern, replacement [, flags]), or with a start, a number of a match and
/// flags.
fn regexp_replace(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let has_start = args.get(3).is_some_and(|array| *array.data_type() == DataType::Int32);
    let mut texts = StringBuilder::new();
    let mut out = String::new();
    each(args, if has_start { 5 } else { 3 }, |row| {
        let Some(row) = row else {
            texts.append_null();
            return Ok(());
        };
        let (mut start, mut number) = (Some(0), if row.all { 0 } else { 1 });
        if has_start {
            start = row.start(3)?;
            number = row.number(4, "n", 0, number)?;
        }
        let (replacement, mut copied, mut at) = (row.text_at(2), 0, 0);
        out.clear();
        while let Some(from) = start
            && let Some(found) = row.regex.captures_at(row.text, from)
        {
            at += 1;
            if number == 0 || at == number {
                let whole = found.get(0).map_or(from..from, |whole| whole.range());
                out.push_str(&row.text[copied..whole.start]);
                append_replacement(replacement, &found, &mut out);
                copied = whole.end;
            }
            if at == number {
                break;
            }
            start = behind(row.text, &found);
        }
        out.push_str(&row.text[copied..]);
        texts.append_value(&out);
        Ok(())
    })?;
    Ok(Arc::new(texts.finish()))
}

fn regexp_matches(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let mut rows = ListBuilder::new(ListBuilder::new(StringBuilder::new()));
    each(args, 2, |row| {
        let Some(Row { regex, all, text, .. }) = row else {
            rows.append_null();
            return Ok(());
        };
        for found in matches(regex, text, all, false) {
            append_groups(regex, &found, rows.values());
        }
        rows.append(true);
        Ok(())
    })?;
    Ok(Arc::new(rows.finish()))
}

fn split(args: &[ArrayRef], name: &str) -> SqlResult<ArrayRef> {
    let mut rows = ListBuilder::new(StringBuilder::new());
    each(args, 2, |row| {
        let Some(row) = row else {
            rows.append_null();
            return Ok(());
        };
        row.has_no_global(name)?;
        let Row { regex, text, .. } = row;
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

/// The pattern of SIMILAR TO as a regular expression, with its escape character. Followed by a
/// double quote, the escape character separates the part that SUBSTRING returns from the one before
/// it, which matches as little as possible, and from the one behind it.
fn regex_of_similar(pattern: &str, escape: Option<char>) -> SqlResult<String> {
    let mut regex = String::from("^(?:");
    let has_parts = escape.is_some_and(|escape| pattern.contains(&format!("{escape}\"")));
    let (mut characters, mut in_brackets, mut part) = (pattern.chars(), false, 0);
    while let Some(character) = characters.next() {
        let is_escape = Some(character) == escape;
        match character {
            _ if is_escape && !in_brackets && characters.as_str().starts_with('"') => {
                characters.next();
                part += 1;
                regex.push_str(match part {
                    1 => ")(",
                    2 => ")(?:",
                    _ => {
                        let message =
                            "SQL regular expression may not contain more than two escape-double-quote separators";
                        return Err(SqlError::new(sqlstate::INVALID_USE_OF_ESCAPE_CHARACTER, message));
                    }
                });
            }
            _ if is_escape => regex.extend(characters.next().into_iter().flat_map(|plain| ['\\', plain])),
            _ if in_brackets => {
                in_brackets = character != ']';
                regex.push(character);
            }
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            '(' => regex.push_str("(?:"),
            '.' | '^' | '$' | '\\' => regex.extend(['\\', character]),
            _ => {
                in_brackets = character == '[';
                regex.push(character);
            }
        }
        if has_parts && part == 0 && !is_escape && !in_brackets && matches!(character, '%' | '*' | '+' | '?' | '}') {
            regex.push('?');
        }
    }
    Ok(regex + ")$")
}

fn similar_to_escape(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let (patterns, escapes) = (args[0].as_string_view(), args.get(1).map(|escapes| escapes.as_string_view()));
    let regex = |row: usize| -> SqlResult<Option<String>> {
        let escape = match escapes {
            None => Some('\\'),
            Some(escapes) if escapes.is_null(row) => return Ok(None),
            Some(escapes) => {
                let mut characters = escapes.value(row).chars();
                let escape = characters.next();
                if characters.next().is_some() {
                    return Err(SqlError::new(sqlstate::INVALID_ESCAPE_SEQUENCE, "invalid escape string"));
                }
                escape
            }
        };
        patterns.is_valid(row).then(|| regex_of_similar(patterns.value(row), escape)).transpose()
    };
    Ok(Arc::new((0..patterns.len()).map(regex).collect::<SqlResult<StringArray>>()?))
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
    Definition { name: "regexp_count", types: |given| mixed(given, 2, "nt", 2, DataType::Int32), body: regexp_count },
    Definition {
        name: "regexp_instr",
        types: |given| mixed(given, 2, "nnntn", 2, DataType::Int32),
        body: regexp_instr,
    },
    Definition {
        name: "regexp_substr",
        types: |given| mixed(given, 2, "nntn", 2, DataType::Utf8),
        body: regexp_substr,
    },
    Definition { name: "regexp_like", types: |given| mixed(given, 2, "t", 2, DataType::Boolean), body: regexp_like },
    Definition {
        name: "regexp_match",
        types: |given| mixed(given, 2, "t", 2, list(DataType::Utf8)),
        body: regexp_match,
    },
    Definition {
        name: "regexp_replace",
        types: |given| {
            let by_flags = || mixed(given, 3, "t", 3, DataType::Utf8);
            by_flags().or_else(|| mixed(given, 3, "nnt", 4, DataType::Utf8))
        },
        body: regexp_replace,
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
