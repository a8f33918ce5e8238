//! Documents as the texts that were given, which PostgreSQL's type `json` keeps: blanks, the order
//! of keys, equal keys and escapes stay as they are.
//!
//! A text is checked once ([`check`]) and read part by part afterwards. No function here is
//! recursive. So a document that is only read may be as deep as memory allows; a document that is
//! checked has at most `MOST_LEVELS` levels.

use crate::json::{InvalidJson, MOST_LEVELS, as_text, write_string};
use arrow_array::{ArrayRef, cast::AsArray};
use std::borrow::Cow;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token {
    ObjectStart,
    ObjectEnd,
    ArrayStart,
    ArrayEnd,
    Comma,
    Colon,
    String,
    Number,
    Word,
    Null,
    End,
}

/// Reads a text token by token.
#[derive(Clone, Debug)]
struct Lexer<'d> {
    text: &'d str,
    /// The beginning of the last token, and its end.
    start: usize,
    end: usize,
    /// Whether the characters that escapes stand for are checked as well.
    escapes: bool,
}

/// A letter, a digit, or another byte that PostgreSQL takes as part of a word.
fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

impl<'d> Lexer<'d> {
    fn new(text: &'d str, escapes: bool) -> Self {
        Self { text, start: 0, end: 0, escapes }
    }

    fn token(&self) -> &'d str {
        &self.text[self.start..self.end]
    }

    fn wrong<T>(detail: String) -> Result<T, InvalidJson> {
        Err(InvalidJson::Syntax(detail))
    }

    /// The error that the token which ends at a place is invalid.
    fn invalid<T>(&self, end: usize) -> Result<T, InvalidJson> {
        Self::wrong(format!("Token \"{}\" is invalid.", &self.text[self.start..end]))
    }

    /// The error that another token is expected in place of the last one.
    fn expected<T>(&self, what: &str) -> Result<T, InvalidJson> {
        match self.start == self.text.len() {
            true => Self::wrong("The input string ended unexpectedly.".into()),
            false => Self::wrong(format!("Expected {what}, but found \"{}\".", self.token())),
        }
    }

    /// The next token.
    fn next(&mut self) -> Result<Token, InvalidJson> {
        let bytes = self.text.as_bytes();
        self.start = self.end;
        while bytes.get(self.start).is_some_and(|byte| is_blank(*byte)) {
            self.start += 1;
        }
        let Some(&first) = bytes.get(self.start) else {
            self.end = self.start;
            return Ok(Token::End);
        };
        self.end = self.start + 1;
        Ok(match first {
            b'{' => Token::ObjectStart,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayStart,
            b']' => Token::ArrayEnd,
            b',' => Token::Comma,
            b':' => Token::Colon,
            b'"' => {
                self.end = self.string()?;
                Token::String
            }
            b'-' | b'0'..=b'9' => {
                self.end = self.number()?;
                Token::Number
            }
            _ => {
                let mut end = self.start;
                while bytes.get(end).is_some_and(|byte| is_of_word(*byte)) {
                    end += 1;
                }
                match &self.text[self.start..end] {
                    // No letter can be part of two characters.
                    "" => return self.invalid(self.end),
                    "true" | "false" => {
                        self.end = end;
                        Token::Word
                    }
                    "null" => {
                        self.end = end;
                        Token::Null
                    }
                    _ => return self.invalid(end),
                }
            }
        })
    }

    /// The end of the number that begins here.
    fn number(&self) -> Result<usize, InvalidJson> {
        let bytes = self.text.as_bytes();
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        let digits = |mut at: usize| {
            while byte(at).is_ascii_digit() {
                at += 1;
            }
            at
        };
        let mut at = self.start + usize::from(byte(self.start) == b'-');
        let mut is_wrong = !byte(at).is_ascii_digit();
        at = if byte(at) == b'0' { at + 1 } else { digits(at) };
        if byte(at) == b'.' {
            at += 1;
            is_wrong |= !byte(at).is_ascii_digit();
            at = digits(at);
        }
        if matches!(byte(at), b'e' | b'E') {
            at += 1;
            at += usize::from(matches!(byte(at), b'+' | b'-'));
            is_wrong |= !byte(at).is_ascii_digit();
            at = digits(at);
        }
        while bytes.get(at).is_some_and(|byte| is_of_word(*byte)) {
            is_wrong = true;
            at += 1;
        }
        if is_wrong { self.invalid(at) } else { Ok(at) }
    }

    /// The end of the string that begins here.
    fn string(&self) -> Result<usize, InvalidJson> {
        let bytes = self.text.as_bytes();
        let of_low = || Self::wrong("Unicode low surrogate must follow a high surrogate.".into());
        let mut at = self.start + 1;
        // A first half of a character waits for the second.
        let mut is_half = false;
        loop {
            let Some(&byte) = bytes.get(at) else { return self.invalid(at) };
            if self.escapes && is_half && byte != b'\\' {
                return of_low();
            }
            match byte {
                b'"' => return Ok(at + 1),
                0..32 => return Self::wrong(format!("Character with value 0x{byte:02x} must be escaped.")),
                b'\\' => {
                    at += 1;
                    let Some(&escape) = bytes.get(at) else { return self.invalid(at) };
                    if self.escapes && is_half && escape != b'u' {
                        return of_low();
                    }
                    match escape {
                        b'u' => {
                            let mut code = 0;
                            for _ in 0..4 {
                                at += 1;
                                let Some(&digit) = bytes.get(at) else { return self.invalid(at) };
                                let Some(digit) = (digit as char).to_digit(16) else {
                                    let message = "\"\\u\" must be followed by four hexadecimal digits.";
                                    return Self::wrong(message.into());
                                };
                                code = code * 16 + digit;
                            }
                            match code {
                                _ if !self.escapes => {}
                                0xD800..0xDC00 if is_half => {
                                    let message = "Unicode high surrogate must not follow a high surrogate.";
                                    return Self::wrong(message.into());
                                }
                                0xD800..0xDC00 => is_half = true,
                                0xDC00..0xE000 if is_half => is_half = false,
                                0xDC00..0xE000 => return of_low(),
                                _ if is_half => return of_low(),
                                0 => return Err(InvalidJson::Zero),
                                _ => {}
                            }
                        }
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                        _ => {
                            let escape = self.text[at..].chars().next().unwrap_or_default();
                            return Self::wrong(format!("Escape sequence \"\\{escape}\" is invalid."));
                        }
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// The value that comes next, of a text that has been checked.
    fn value(&mut self) -> Option<&'d str> {
        let mut token = self.next().ok()?;
        let (from, mut level) = (self.start, 0usize);
        loop {
            match token {
                Token::ObjectStart | Token::ArrayStart => level += 1,
                Token::ObjectEnd | Token::ArrayEnd => level = level.checked_sub(1)?,
                Token::End => return None,
                _ => {}
            }
            if level == 0 {
                return Some(&self.text[from..self.end]);
            }
            token = self.next().ok()?;
        }
    }
}

/// Whether a text is a document that PostgreSQL's json takes, and no deeper than documents may be.
/// `escapes`: whether all of its strings can be read as well.
fn checked(text: &str, escapes: bool) -> Result<(), InvalidJson> {
    let mut lexer = Lexer::new(text, escapes);
    // The containers around this place: true for an object.
    let mut inside: Vec<bool> = Vec::new();
    let mut token = lexer.next()?;
    let key = |lexer: &mut Lexer<'_>| match lexer.next()? {
        Token::Colon => lexer.next(),
        _ => lexer.expected("\":\""),
    };
    loop {
        // A value begins.
        match token {
            Token::ObjectStart | Token::ArrayStart if inside.len() > MOST_LEVELS => return Err(InvalidJson::Depth),
            Token::ObjectStart => {
                inside.push(true);
                match lexer.next()? {
                    Token::String => {
                        token = key(&mut lexer)?;
                        continue;
                    }
                    Token::ObjectEnd => inside.pop(),
                    _ => return lexer.expected("string or \"}\""),
                };
            }
            Token::ArrayStart => {
                inside.push(false);
                token = lexer.next()?;
                if token != Token::ArrayEnd {
                    continue;
                }
                inside.pop();
            }
            Token::String | Token::Number | Token::Word | Token::Null => {}
            _ => return lexer.expected("JSON value"),
        }
        // A value has ended.
        token = loop {
            match (inside.last(), lexer.next()?) {
                (None, Token::End) => return Ok(()),
                (None, _) => return lexer.expected("end of input"),
                (Some(true), Token::ObjectEnd) | (Some(false), Token::ArrayEnd) => {
                    inside.pop();
                }
                (Some(false), Token::Comma) => break lexer.next()?,
                (Some(true), Token::Comma) => match lexer.next()? {
                    Token::String => break key(&mut lexer)?,
                    _ => return lexer.expected("string"),
                },
                (Some(true), _) => return lexer.expected("\",\" or \"}\""),
                (Some(false), _) => return lexer.expected("\",\" or \"]\""),
            }
        };
    }
}

/// Whether a text is a document. The characters that its escapes stand for are not checked.
///
/// # Errors
/// The error in the text.
pub fn check(text: &str) -> Result<(), InvalidJson> {
    checked(text, false)
}

/// The error in a text that is no document of jsonb.
pub(crate) fn error_of(text: &str) -> Option<InvalidJson> {
    checked(text, true).err()
}

/// Whether all strings of a document can be read.
///
/// # Errors
/// The error in one of the escapes.
pub fn check_escapes(text: &str) -> Result<(), InvalidJson> {
    let mut lexer = Lexer::new(text, true);
    while text.contains('\\') && lexer.next()? != Token::End {}
    Ok(())
}

/// Checks documents (LargeUtf8); arrays of other types are as they are.
///
/// # Errors
/// The error in one of the documents.
pub fn check_documents(array: &ArrayRef) -> Result<(), InvalidJson> {
    let Some(documents) = array.as_string_opt::<i64>() else { return Ok(()) };
    documents.iter().flatten().try_for_each(check)
}

/// A document without the blanks around it.
pub fn trimmed(document: &str) -> &str {
    document.trim_matches(|c: char| c.is_ascii() && is_blank(c as u8))
}

/// The values right inside an array or an object, with their keys as they are written.
#[derive(Clone, Debug)]
struct Parts<'d> {
    lexer: Lexer<'d>,
    is_object: bool,
    is_done: bool,
}

impl<'d> Parts<'d> {
    /// The parts of a document; none if it is neither an array nor an object.
    fn of(document: &'d str) -> Self {
        let mut lexer = Lexer::new(document, false);
        let first = lexer.next();
        let is_object = matches!(first, Ok(Token::ObjectStart));
        Self { lexer, is_object, is_done: !is_object && !matches!(first, Ok(Token::ArrayStart)) }
    }

    fn part(&mut self) -> Option<(&'d str, &'d str)> {
        if self.is_object {
            // A comma stands before all but the first.
            let key = match self.lexer.next().ok()? {
                Token::Comma => self.lexer.next().ok()?,
                other => other,
            };
            if key != Token::String {
                return None;
            }
            let key = self.lexer.token();
            self.lexer.next().ok()?;
            return Some((key, self.lexer.value()?));
        }
        let before = self.lexer.clone();
        match self.lexer.next().ok()? {
            Token::Comma => {}
            Token::ArrayEnd => return None,
            _ => self.lexer = before,
        }
        Some(("", self.lexer.value()?))
    }
}

impl<'d> Iterator for Parts<'d> {
    type Item = (&'d str, &'d str);
    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let part = self.part();
        self.is_done = part.is_none();
        part
    }
}

/// Whether a key, as it is written in the document, stands for the text `key`.
fn is_key(written: &str, key: &str) -> bool {
    match written.contains('\\') {
        true => as_text(written).is_some_and(|text| text == key),
        false => written.get(1..written.len() - 1) == Some(key),
    }
}

/// The member of an object with this key, the last of several.
pub fn member<'d>(document: &'d str, key: &str) -> Option<&'d str> {
    let parts = Parts::of(document);
    let is_object = parts.is_object;
    parts.filter(|(own, _)| is_object && is_key(own, key)).last().map(|(_, value)| value)
}

/// The elements of an array; empty for other values.
pub fn elements(document: &str) -> impl Iterator<Item = &str> {
    let parts = Parts::of(document);
    let is_object = parts.is_object;
    parts.filter(move |_| !is_object).map(|(_, value)| value)
}

/// The element of an array with this number, from 0; from the end where that is negative.
pub fn element(document: &str, number: i64) -> Option<&str> {
    let number = match usize::try_from(number) {
        Ok(number) => number,
        Err(_) => elements(document).count().checked_sub(usize::try_from(number.unsigned_abs()).ok()?)?,
    };
    elements(document).nth(number)
}

/// The keys and values of an object, all of equal keys; empty for other values.
pub fn members(document: &str) -> impl Iterator<Item = (Cow<'_, str>, &str)> {
    let parts = Parts::of(document);
    let is_object = parts.is_object;
    parts.filter_map(move |(key, value)| Some((as_text(key).filter(|_| is_object)?, value)))
}

/// A step of a path: all members with its key, or the element with its number.
enum Step<'d, 'p> {
    Members(Parts<'d>, &'p str),
    Element(Option<&'d str>),
}

impl<'d, 'p> Step<'d, 'p> {
    fn of(document: &'d str, step: &'p str) -> Self {
        let parts = Parts::of(document);
        if parts.is_object {
            return Self::Members(parts, step);
        }
        let number = step.trim_start().parse::<i32>().ok();
        Self::Element(number.and_then(|number| element(document, number.into())))
    }
}

impl<'d> Iterator for Step<'d, '_> {
    type Item = &'d str;
    fn next(&mut self) -> Option<&'d str> {
        match self {
            Self::Members(parts, key) => parts.find(|(own, _)| is_key(own, key)).map(|(_, value)| value),
            Self::Element(element) => element.take(),
        }
    }
}

/// The value at a path of keys and element numbers: the last match, if keys are equal.
pub fn at_path<'d>(document: &'d str, path: &[&str]) -> Option<&'d str> {
    let Some(first) = path.first() else { return Some(trimmed(document)) };
    let mut found = None;
    let mut steps = vec![Step::of(document, first)];
    while let Some(step) = steps.last_mut() {
        match step.next() {
            None => {
                steps.pop();
            }
            Some(value) => match path.get(steps.len()) {
                None => found = Some(value),
                Some(next) => steps.push(Step::of(value, next)),
            },
        }
    }
    found
}

/// A document without blanks, and without members of objects that are `null`.
pub fn without_nulls(document: &str) -> String {
    let mut out = String::with_capacity(document.len());
    let mut lexer = Lexer::new(document, false);
    // The containers around this place: whether each is an object, and whether it has a member or
    // element already.
    let mut inside: Vec<(bool, bool)> = Vec::new();
    while let Ok(mut token) = lexer.next() {
        match token {
            Token::End => break,
            Token::Comma | Token::Colon => continue,
            Token::ObjectEnd | Token::ArrayEnd => {
                inside.pop();
                out.push_str(lexer.token());
                continue;
            }
            _ => {}
        }
        let mut key = None;
        if inside.last().is_some_and(|(is_object, _)| *is_object) {
            key = as_text(lexer.token());
            let value = lexer.next().and_then(|_| lexer.next());
            let Ok(value) = value else { break };
            if value == Token::Null {
                continue;
            }
            token = value;
        }
        if let Some((_, has_parts)) = inside.last_mut()
            && std::mem::replace(has_parts, true)
        {
            out.push(',');
        }
        if let Some(key) = key {
            quote(&mut out, &key);
            out.push(':');
        }
        match token {
            Token::ObjectStart | Token::ArrayStart => {
                inside.push((token == Token::ObjectStart, false));
                out.push_str(lexer.token());
            }
            Token::String => quote(&mut out, &as_text(lexer.token()).unwrap_or_default()),
            _ => out.push_str(lexer.token()),
        }
    }
    out
}

/// Writes a string with its quotes.
pub fn quote(out: &mut String, text: &str) {
    write_string(out, text).expect("writes to memory succeed");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Json, normalized};
    use proptest::prelude::*;

    fn wrong(text: &str) -> String {
        match check(text) {
            Err(InvalidJson::Syntax(detail)) => detail,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn texts_are_refused_as_postgresql_does() {
        for (text, detail) in [
            ("", "The input string ended unexpectedly."),
            ("  ", "The input string ended unexpectedly."),
            ("''", "Token \"'\" is invalid."),
            ("\"abc", "Token \"\"abc\" is invalid."),
            ("\"abc\ndef\"", "Character with value 0x0a must be escaped."),
            (r#""\v""#, r#"Escape sequence "\v" is invalid."#),
            (r#""\u00""#, r#""\u" must be followed by four hexadecimal digits."#),
            (r#""\u"#, r#"Token ""\u" is invalid."#),
            ("01", "Token \"01\" is invalid."),
            ("1f2", "Token \"1f2\" is invalid."),
            ("1.3ex100", "Token \"1.3ex100\" is invalid."),
            ("-", "Token \"-\" is invalid."),
            ("[1,2", "The input string ended unexpectedly."),
            ("[1,2}", "Expected \",\" or \"]\", but found \"}\"."),
            ("[1,]", "Expected JSON value, but found \"]\"."),
            ("{\"a\"", "The input string ended unexpectedly."),
            ("{\"a\":1,3}", "Expected string, but found \"3\"."),
            ("{\"a\",\"b\"}", "Expected \":\", but found \",\"."),
            ("{1:\"a\"}", "Expected string or \"}\", but found \"1\"."),
            ("{\"a\":1:\"b\":2}", "Expected \",\" or \"}\", but found \":\"."),
            ("true false", "Expected end of input, but found \"false\"."),
            ("trues", "Token \"trues\" is invalid."),
        ] {
            assert_eq!(wrong(text), detail, "{text}");
        }
        assert_eq!(check(&"[".repeat(1 << 20)), Err(InvalidJson::Depth));
        assert_eq!(check(&"{\"a\":".repeat(1 << 18)), Err(InvalidJson::Depth));
        for text in [r#""\u0000""#, r#""\ud83d""#, " { } ", "[ ]", "-0.50E+3", r#"{"a":1,"a":[{}]}"#] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn escapes_are_checked_where_they_are_read() {
        assert_eq!(check_escapes(r#"["\u0000"]"#), Err(InvalidJson::Zero));
        for (text, fits) in [
            (r#""\ud83d\ude04""#, true),
            (r#""\ud83d""#, false),
            (r#""\ud83dX""#, false),
            (r#""\ud83d\n""#, false),
            (r#""\ud83d\ud83d""#, false),
            (r#""\ude04\ud83d""#, false),
            (r#"{"\u0061":"\\u0000"}"#, true),
        ] {
            assert_eq!(check_escapes(text).is_ok(), fits, "{text}");
        }
    }

    #[test]
    fn parts_keep_their_texts() {
        let document = r#" { "a" : [1 , { "x":  1e3 } ,"z\u0041"] , "b" : null , "a": {"y":2}, "\u0063":3 } "#;
        assert_eq!(member(document, "a"), Some(r#"{"y":2}"#));
        assert_eq!(
            (member(document, "b"), member(document, "c"), member(document, "d")),
            (Some("null"), Some("3"), None)
        );
        assert_eq!(at_path(document, &["a", "1"]), Some(r#"{ "x":  1e3 }"#));
        assert_eq!(at_path(document, &["a", "-1"]).and_then(as_text).as_deref(), Some("zA"));
        assert_eq!(at_path(document, &["a", "1", "x"]), Some("1e3"));
        assert_eq!((at_path(document, &["a", "q"]), at_path(document, &["a", "9"])), (None, None));
        assert_eq!(at_path(" [1] ", &[]), Some("[1]"));
        let keys: Vec<_> = members(document).map(|(key, _)| key.into_owned()).collect();
        assert_eq!(keys, ["a", "b", "a", "c"]);
        assert_eq!(elements(" [ 1,[2 ], {} ] ").collect::<Vec<_>>(), ["1", "[2 ]", "{}"]);
        assert_eq!((elements("{\"a\":1}").count(), elements("[]").count(), members("[1]").count()), (0, 0, 0));
        assert_eq!((element("[1,2]", -2), element("[1,2]", -3), element("7", 0)), (Some("1"), None, None));
    }

    #[test]
    fn nulls_are_stripped() {
        let stripped = without_nulls(r#" {"a": {"b": null, "c" : [null, {"d":null} ], "\u0065":"\/"}, "f": null} "#);
        assert_eq!(stripped, r#"{"a":{"c":[null,{}],"e":"/"}}"#);
        assert_eq!((without_nulls("[1, null ]").as_str(), without_nulls(" null").as_str()), ("[1,null]", "null"));
    }

    proptest! {
        #[test]
        fn what_is_a_document_to_one_is_one_to_the_other(text in "[\\[\\]{}:,\"a1e.\\\\ \n-]{0,12}") {
            match Json::parse(&text) {
                Ok(_) => prop_assert_eq!(check(&text), Ok(())),
                Err(InvalidJson::Syntax(_)) => {
                    prop_assert!(check(&text).is_err() || check_escapes(&text).is_err(), "{}", text);
                }
                Err(_) => {}
            }
            if let (Ok(()), Ok(normal)) = (check(&text), normalized(&text)) {
                prop_assert_eq!(check(&normal), Ok(()));
                prop_assert_eq!(elements(&normal).count(), elements(&text).count());
            }
        }
    }
}
