//! JSON documents as columns keep them: texts in the normal form of PostgreSQL's `jsonb`. Documents
//! with the same meaning are the same bytes.
//!
//! In normal form, an object's keys are sorted by length and then by bytes, each once (the last of
//! equal ones counts). Numbers have no exponent and keep their fraction's zeros. One blank stands
//! behind each comma and colon. Only characters that must be escaped are. A part of a document in
//! normal form is a slice of it: [`member`], [`element`] and [`at_path`] find it without building a
//! value.

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, LargeStringArray};
use jiter::{Jiter, JiterError, Peek};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::{self, Write};
use std::sync::Arc;

/// Arrays and objects inside each other at the most.
pub(crate) const MOST_LEVELS: usize = 512;
/// The most digits of a number before and behind the point: those of PostgreSQL's numeric.
const MOST_DIGITS: (usize, usize) = (131_072, 16_383);

/// A document.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number's digits, without an exponent.
    Number(String),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object: keys in the order of the normal form, each once.
    Object(Vec<(String, Json)>),
}

/// The reason why a text is no document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidJson {
    /// It is no JSON.
    #[error("{0}")]
    Syntax(String),
    /// It has `\u0000` in it, which no text can hold.
    #[error("\\u0000 cannot be converted to text")]
    Zero,
    /// A number has too many digits.
    #[error("a number has too many digits")]
    Digits,
    /// Arrays and objects lie too deep inside each other.
    #[error("arrays and objects are nested deeper than {MOST_LEVELS} levels")]
    Depth,
}

impl InvalidJson {
    /// The SQLSTATE.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::Syntax(_) => sqlstate::INVALID_TEXT_REPRESENTATION,
            Self::Zero => sqlstate::UNTRANSLATABLE_CHARACTER,
            Self::Digits => sqlstate::NUMERIC_VALUE_OUT_OF_RANGE,
            Self::Depth => sqlstate::STATEMENT_TOO_COMPLEX,
        }
    }

    /// The statement's error message for it.
    pub(crate) fn message(&self) -> &'static str {
        match self {
            Self::Syntax(_) => "invalid input syntax for type json",
            Self::Zero => "unsupported Unicode escape sequence",
            Self::Digits => "value overflows numeric format",
            Self::Depth => "stack depth limit exceeded",
        }
    }

    /// More about it.
    pub(crate) fn detail(&self) -> Option<&str> {
        match self {
            Self::Syntax(detail) => Some(detail),
            Self::Zero => Some("\\u0000 cannot be converted to text."),
            Self::Digits => None,
            Self::Depth => Some("Arrays and objects are nested deeper than 512 levels."),
        }
    }
}

impl From<JiterError> for InvalidJson {
    fn from(error: JiterError) -> Self {
        Self::Syntax(error.to_string())
    }
}

/// The order of an object's keys.
fn key_order(a: &str, b: &str) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// A number's digits without an exponent.
fn plain_number(written: &str) -> Result<String, InvalidJson> {
    let (sign, digits) = match written.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", written),
    };
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().map_err(|_| InvalidJson::Digits)?),
        None => (digits, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    // The digits, and how many of them stand before the point.
    let digits = format!("{whole}{fraction}");
    let point = whole.len() as i64 + exponent;
    if point > MOST_DIGITS.0 as i64 || digits.len() as i64 - point > MOST_DIGITS.1 as i64 {
        return Err(InvalidJson::Digits);
    }
    let (whole, fraction) = if point <= 0 {
        (String::new(), "0".repeat(-point as usize) + &digits)
    } else if point as usize >= digits.len() {
        (digits.clone() + &"0".repeat(point as usize - digits.len()), String::new())
    } else {
        let (whole, fraction) = digits.split_at(point as usize);
        (whole.to_owned(), fraction.to_owned())
    };
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    // Zero has no sign.
    let sign = if whole == "0" && fraction.bytes().all(|digit| digit == b'0') { "" } else { sign };
    Ok(if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") })
}

/// Whether two numbers without exponents are equal.
fn same_number(a: &str, b: &str) -> bool {
    fn value(number: &str) -> &str {
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
    }
    value(a) == value(b)
}

fn text_of(text: &str) -> Result<String, InvalidJson> {
    if text.contains('\0') { Err(InvalidJson::Zero) } else { Ok(text.to_owned()) }
}

fn read(jiter: &mut Jiter<'_>, peek: Peek, level: usize) -> Result<Json, InvalidJson> {
    if level > MOST_LEVELS {
        return Err(InvalidJson::Depth);
    }
    Ok(match peek {
        Peek::Null => {
            jiter.known_null()?;
            Json::Null
        }
        Peek::True | Peek::False => Json::Bool(jiter.known_bool(peek)?),
        Peek::String => Json::String(text_of(jiter.known_str()?)?),
        Peek::Array => {
            let mut elements = Vec::new();
            let mut next = jiter.known_array()?;
            while let Some(peek) = next {
                elements.push(read(jiter, peek, level + 1)?);
                next = jiter.array_step()?;
            }
            Json::Array(elements)
        }
        Peek::Object => {
            let mut members = Vec::new();
            let mut next = jiter.known_object()?.map(text_of);
            while let Some(key) = next {
                let key = key?;
                let peek = jiter.peek()?;
                members.push((key, read(jiter, peek, level + 1)?));
                next = jiter.next_key()?.map(text_of);
            }
            Json::object(members)
        }
        number => {
            let digits = jiter.known_number_bytes(number)?;
            Json::Number(plain_number(&String::from_utf8_lossy(digits))?)
        }
    })
}

impl Json {
    /// Reads a document.
    ///
    /// # Errors
    /// The error in the text.
    pub fn parse(text: &str) -> Result<Self, InvalidJson> {
        let parsed = || {
            let mut jiter = Jiter::new(text.as_bytes());
            let peek = jiter.peek()?;
            let value = read(&mut jiter, peek, 0)?;
            jiter.finish()?;
            Ok(value)
        };
        parsed().map_err(|error| match error {
            // PostgreSQL tells it in other words.
            InvalidJson::Syntax(_) => crate::json_text::error_of(text).unwrap_or(error),
            other => other,
        })
    }

    /// The object with these members; of those with one key, the last.
    pub fn object(mut members: Vec<(String, Self)>) -> Self {
        // A stable sort: equal keys keep their order.
        members.sort_by(|(a, _), (b, _)| key_order(a, b));
        members.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        Self::Object(members)
    }

    /// A member of an object.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        let at = members.binary_search_by(|(other, _)| key_order(other, key)).ok()?;
        Some(&members[at].1)
    }

    /// Whether the documents are equal, numbers by their values.
    pub fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => same_number(a, b),
            (Self::Array(a), Self::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.equals(b)),
            (Self::Object(a), Self::Object(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k == l && a.equals(b))
            }
            (a, b) => a == b,
        }
    }

    /// Whether all of `other` is in this document, as PostgreSQL's `@>` has it. An array contains
    /// another array if each element of that one is in an element of it. At the top, an array also
    /// contains a value that is one of its elements.
    pub fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Array(elements), Self::Array(_) | Self::Object(_)) => self.holds(other, elements),
            (Self::Array(elements), scalar) => elements.iter().any(|element| element.equals(scalar)),
            _ => self.holds(other, &[]),
        }
    }

    /// As [`contains`](Self::contains) below the top.
    fn holds(&self, other: &Self, elements: &[Self]) -> bool {
        match (self, other) {
            (Self::Object(_), Self::Object(wanted)) => {
                wanted.iter().all(|(key, value)| self.get(key).is_some_and(|own| own.holds_value(value)))
            }
            (Self::Array(_), Self::Array(wanted)) => {
                wanted.iter().all(|value| elements.iter().any(|own| own.holds_value(value)))
            }
            (a, b) => a.equals(b),
        }
    }

    fn holds_value(&self, other: &Self) -> bool {
        match self {
            Self::Array(elements) => self.holds(other, elements),
            _ => self.holds(other, &[]),
        }
    }

    /// Over several lines, as `jsonb_pretty` writes it.
    pub fn pretty(&self) -> String {
        let mut out = String::new();
        self.write_pretty(&mut out, 0);
        out
    }

    fn write_pretty(&self, out: &mut String, level: usize) {
        let line = |out: &mut String, level: usize| {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', 4 * level));
        };
        match self {
            Self::Array(elements) => {
                out.push('[');
                for (i, element) in elements.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    line(out, level + 1);
                    element.write_pretty(out, level + 1);
                }
                line(out, level);
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (i, (key, value)) in members.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    line(out, level + 1);
                    write_string(out, key).expect("writes to memory succeed");
                    out.push_str(": ");
                    value.write_pretty(out, level + 1);
                }
                line(out, level);
                out.push('}');
            }
            other => write!(out, "{other}").expect("writes to memory succeed"),
        }
    }
}

/// Writes a string with its quotes.
pub(crate) fn write_string(out: &mut impl Write, text: &str) -> fmt::Result {
    out.write_char('"')?;
    let mut from = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            8 => "\\b",
            12 => "\\f",
            0..32 => "",
            _ => continue,
        };
        out.write_str(&text[from..at])?;
        if escape.is_empty() {
            write!(out, "\\u{byte:04x}")?;
        } else {
            out.write_str(escape)?;
        }
        from = at + 1;
    }
    out.write_str(&text[from..])?;
    out.write_char('"')
}

/// In normal form.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(truth) => write!(f, "{truth}"),
            Self::Number(digits) => f.write_str(digits),
            Self::String(text) => write_string(f, text),
            Self::Array(elements) => {
                f.write_char('[')?;
                for (i, element) in elements.iter().enumerate() {
                    write!(f, "{}{element}", if i == 0 { "" } else { ", " })?;
                }
                f.write_char(']')
            }
            Self::Object(members) => {
                f.write_char('{')?;
                for (i, (key, value)) in members.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { ", " })?;
                    write_string(f, key)?;
                    write!(f, ": {value}")?;
                }
                f.write_char('}')
            }
        }
    }
}

/// A text's document in normal form; the text itself if it is.
///
/// # Errors
/// The error in the text.
pub fn normalized(text: &str) -> Result<Cow<'_, str>, InvalidJson> {
    let normal = Json::parse(text)?.to_string();
    Ok(if normal == text { Cow::Borrowed(text) } else { Cow::Owned(normal) })
}

/// Documents (LargeUtf8) in normal form; arrays of other types as they are.
///
/// # Errors
/// The error in one of the texts.
pub fn normal_documents(array: &ArrayRef) -> Result<ArrayRef, InvalidJson> {
    let Some(documents) = array.as_string_opt::<i64>() else { return Ok(array.clone()) };
    let normal = documents.iter().map(|document| document.map(normalized).transpose());
    let normal = normal.collect::<Result<Vec<_>, _>>()?;
    let changed = normal.iter().any(|document| matches!(document, Some(Cow::Owned(_))));
    Ok(if changed { Arc::new(normal.into_iter().collect::<LargeStringArray>()) } else { array.clone() })
}

/// Skips a value that comes next, and gives its text.
fn skipped<'d>(jiter: &mut Jiter<'d>) -> Option<&'d str> {
    let peek = jiter.peek().ok()?;
    let start = jiter.current_index();
    jiter.known_skip(peek).ok()?;
    std::str::from_utf8(jiter.slice_to_current(start)).ok()
}

/// The member of an object with this key, of a document in normal form.
pub fn member<'d>(document: &'d str, key: &str) -> Option<&'d str> {
    if !document.starts_with('{') {
        return None;
    }
    let mut jiter = Jiter::new(document.as_bytes());
    let mut next = jiter.known_object().ok()?.map(|other| key_order(other, key));
    while let Some(order) = next {
        match order {
            Ordering::Less => skipped(&mut jiter)?,
            Ordering::Equal => return skipped(&mut jiter),
            Ordering::Greater => return None,
        };
        next = jiter.next_key().ok()?.map(|other| key_order(other, key));
    }
    None
}

/// The elements of an array in normal form; empty for other values.
pub fn elements(document: &str) -> impl Iterator<Item = &str> {
    let mut jiter = Jiter::new(document.as_bytes());
    let mut first = document.starts_with('[');
    let mut more = first;
    std::iter::from_fn(move || {
        if !more {
            return None;
        }
        let next = if first { jiter.known_array() } else { jiter.array_step() };
        first = false;
        more = matches!(next, Ok(Some(_)));
        if more { skipped(&mut jiter) } else { None }
    })
}

/// The element of an array with this number, counted from 0, or from the end if the number is
/// negative. A value that is neither array nor object is the only element of an array, as in
/// PostgreSQL. The document is in normal form.
pub fn element(document: &str, number: i64) -> Option<&str> {
    if !document.starts_with(['[', '{']) {
        return matches!(number, 0 | -1).then_some(document);
    }
    let number = match usize::try_from(number) {
        Ok(number) => number,
        Err(_) => elements(document).count().checked_sub(usize::try_from(number.unsigned_abs()).ok()?)?,
    };
    elements(document).nth(number)
}

/// The keys and values of an object in normal form; empty for other values.
pub fn members(document: &str) -> impl Iterator<Item = (String, &str)> {
    let mut jiter = Jiter::new(document.as_bytes());
    let mut first = document.starts_with('{');
    let mut more = first;
    std::iter::from_fn(move || {
        if !more {
            return None;
        }
        let next = if first { jiter.known_object() } else { jiter.next_key() };
        let key = next.ok().flatten().map(str::to_owned);
        first = false;
        more = key.is_some();
        Some((key?, skipped(&mut jiter)?))
    })
}

/// The value at a path of keys and element numbers in a document in normal form.
pub fn at_path(document: &str, path: impl IntoIterator<Item = impl AsRef<str>>) -> Option<&str> {
    path.into_iter().try_fold(document, |document, step| {
        let step = step.as_ref();
        match document.starts_with('[') {
            true => element(document, step.trim_start().parse::<i32>().ok()?.into()),
            false => member(document, step),
        }
    })
}

/// A value in normal form as a text: strings without quotes and escapes; `None` for `null`.
pub fn as_text(value: &str) -> Option<Cow<'_, str>> {
    match value.as_bytes().first() {
        Some(b'n') => None,
        Some(b'"') if value.contains('\\') => {
            let text = Jiter::new(value.as_bytes()).next_str().ok()?.to_owned();
            Some(Cow::Owned(text))
        }
        Some(b'"') => Some(Cow::Borrowed(value.get(1..value.len() - 1)?)),
        _ => Some(Cow::Borrowed(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn normal(text: &str) -> String {
        normalized(text).unwrap().into_owned()
    }

    fn parsed(text: &str) -> Json {
        Json::parse(text).unwrap()
    }

    #[test]
    fn documents_have_one_normal_form() {
        for (written, becomes) in [
            ("{\"b\":1,\"a\":2}", r#"{"a": 2, "b": 1}"#),
            (r#" { "bb" : 1 , "c" : [ 1 ,2,[ ] , {}] } "#, r#"{"c": [1, 2, [], {}], "bb": 1}"#),
            (r#"{"a":1,"a":{"b":2},"a":3}"#, r#"{"a": 3}"#),
            (r#""\u00e4\/\n\t\u0001\u0008\"\\""#, "\"ä/\\n\\t\\u0001\\b\\\"\\\\\""),
            ("1e3", "1000"),
            ("1.5E-3", "0.0015"),
            ("-1.50", "-1.50"),
            ("12.345e2", "1234.5"),
            ("0.001e3", "1"),
            ("-0.0", "0.0"),
            ("123456789012345678901234567890.10", "123456789012345678901234567890.10"),
            ("true", "true"),
            ("null", "null"),
        ] {
            assert_eq!(normal(written), becomes, "{written}");
            assert_eq!(normal(becomes), becomes, "again");
        }
    }

    #[test]
    fn what_is_no_document_is_an_error() {
        for written in ["", "{", "{\"a\":}", "[1,]", "{a:1}", "'a'", "1 2", "nul", "\"\\ud800\"", "01", "NaN", "\"\n\""]
        {
            assert!(matches!(Json::parse(written), Err(InvalidJson::Syntax(_))), "{written}");
        }
        assert_eq!(Json::parse(r#""\u0000""#), Err(InvalidJson::Zero));
        assert_eq!(Json::parse(r#"{"a\u0000":1}"#), Err(InvalidJson::Zero));
        assert_eq!(Json::parse("1e200000"), Err(InvalidJson::Digits));
        assert_eq!(Json::parse("1e-99999999999999999999"), Err(InvalidJson::Digits));
        assert_eq!(Json::parse(&"[".repeat(100_000)), Err(InvalidJson::Depth));
    }

    #[test]
    fn parts_are_slices_of_the_document() {
        let document = normal(r#"{"name":"a \"b\"","list":[1,{"x":null},"z"],"n":null}"#);
        assert_eq!(member(&document, "name"), Some(r#""a \"b\"""#));
        assert_eq!(as_text(member(&document, "name").unwrap()).as_deref(), Some("a \"b\""));
        assert_eq!(member(&document, "missing"), None);
        assert_eq!(member(&document, "n").and_then(as_text), None);
        let list = member(&document, "list").unwrap();
        assert_eq!((element(list, 0), element(list, -1), element(list, 3)), (Some("1"), Some("\"z\""), None));
        assert_eq!((element(list, -4), element(&document, 0), member(list, "x")), (None, None, None));
        assert_eq!((element("7", 0), element("7", -1), element("7", 1)), (Some("7"), Some("7"), None));
        assert_eq!(at_path(&document, ["list", "1", "x"]), Some("null"));
        assert_eq!(at_path(&document, ["list", "x"]), None);
        assert_eq!(elements(list).collect::<Vec<_>>(), ["1", r#"{"x": null}"#, "\"z\""]);
        assert_eq!((elements("[]").count(), elements("1").count(), members("{}").count()), (0, 0, 0));
        let keys: Vec<String> = members(&document).map(|(key, _)| key).collect();
        assert_eq!(keys, ["n", "list", "name"]);
    }

    #[test]
    fn containment_is_that_of_postgresql() {
        for (whole, part, contains) in [
            (r#"{"a":1,"b":2}"#, r#"{"b":2}"#, true),
            (r#"{"a":1}"#, r#"{"a":1.0}"#, true),
            (r#"{"a":{"b":1,"c":2}}"#, r#"{"a":{"c":2}}"#, true),
            ("[1,2,[1,3]]", "[[1,3]]", true),
            ("[1,2,[1,3]]", "[1,3]", false),
            ("[1,2,2]", "[2,2,1,1]", true),
            (r#"["foo","bar"]"#, r#""bar""#, true),
            (r#""bar""#, r#"["bar"]"#, false),
            (r#"{"a":["x"]}"#, r#"{"a":"x"}"#, false),
            (r#"{"a":1}"#, "{}", true),
            ("[]", "{}", false),
            ("1", "1", true),
        ] {
            assert_eq!(parsed(whole).contains(&parsed(part)), contains, "{whole} @> {part}");
        }
    }

    #[test]
    fn documents_are_shown_over_several_lines() {
        let shown = "{\n    \"a\": [\n        1,\n        2\n    ],\n    \"b\": {\n    }\n}";
        assert_eq!(parsed(r#"{"a":[1,2],"b":{}}"#).pretty(), shown);
    }

    fn documents() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::Bool),
            any::<i32>().prop_map(|n| Json::Number(n.to_string())),
            "[a-z\"\\\\\n\u{1}ü]{0,6}".prop_map(Json::String),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Json::Array),
                prop::collection::vec(("[a-c\"]{0,2}", inner), 0..5).prop_map(Json::object),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(document in documents()) {
            let text = document.to_string();
            prop_assert_eq!(&Json::parse(&text).unwrap(), &document);
            prop_assert_eq!(&Json::parse(&document.pretty()).unwrap(), &document);
            prop_assert!(document.contains(&document));
            // The same parts, by slices and by values.
            match &document {
                Json::Object(all) => {
                    for (key, value) in all {
                        prop_assert_eq!(member(&text, key).unwrap(), value.to_string());
                    }
                    let found: Vec<_> = members(&text).map(|(key, value)| (key, parsed(value))).collect();
                    prop_assert_eq!(&found, all);
                }
                Json::Array(all) => {
                    for (i, value) in all.iter().enumerate() {
                        prop_assert_eq!(element(&text, i as i64).unwrap(), value.to_string());
                        prop_assert_eq!(element(&text, i as i64 - all.len() as i64).unwrap(), value.to_string());
                    }
                }
                Json::String(inside) => prop_assert_eq!(as_text(&text).unwrap(), inside.as_str()),
                _ => {}
            }
        }
    }
}
