//! From text to tokens, by PostgreSQL's lexical rules.
//!
//! Every byte is looked at a bounded number of times. Strings are unescaped here;
//! `standard_conforming_strings` is on.

use crate::error::{ParseError, Result};
use crate::keyword::{Keyword, keyword};
use crate::tree::Span;

/// A token with its place.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
    /// The number of parentheses and brackets that are open around it.
    pub(crate) nesting: u32,
}

/// The kind of a token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A word without quotes, folded to lower case.
    Word(String, Option<Keyword>),
    /// A quoted identifier.
    Quoted(String),
    /// A whole number, in decimal.
    Integer(String),
    /// A number with a point or an exponent.
    Numeric(String),
    /// A string.
    String(String),
    /// `B'…'`.
    Bits(String),
    /// `X'…'`.
    HexBits(String),
    /// `$1`.
    Parameter(u32),
    /// An operator.
    Operator(String),
    /// One of `( ) [ ] , ; . :`.
    Sign(u8),
    /// `::`.
    Cast,
    /// `..`.
    Dots,
    /// `:=`.
    Assign,
    /// `=>`.
    Arrow,
    /// The error of a text that is no token, as the last token. Only a parser that reaches it
    /// reports it.
    Wrong(Box<ParseError>),
    /// The end of the text.
    End,
}

/// A token, for callers that need no tree of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainToken {
    /// Its kind.
    pub kind: PlainKind,
    /// Its place in the text.
    pub span: Span,
}

/// The kind of a [`PlainToken`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlainKind {
    /// A word, folded to lower case, or the text in double quotes.
    Name(String),
    /// An operator.
    Operator,
    /// One of `( ) [ ] , ; . :`.
    Sign(u8),
    /// Any other.
    Other,
}

/// The tokens of a text.
///
/// # Errors
/// The first part that is no token.
pub fn plain_tokens(sql: &str) -> Result<Vec<PlainToken>> {
    let mut plain = Vec::new();
    for Token { kind, span, nesting: _ } in tokens(sql)? {
        let kind = match kind {
            Kind::Word(name, _) | Kind::Quoted(name) => PlainKind::Name(name),
            Kind::Operator(_) => PlainKind::Operator,
            Kind::Sign(sign) => PlainKind::Sign(sign),
            Kind::Wrong(error) => return Err(*error),
            Kind::End => break,
            _ => PlainKind::Other,
        };
        plain.push(PlainToken { kind, span });
    }
    Ok(plain)
}

/// The tokens of a text, the last one [`Kind::End`] or [`Kind::Wrong`].
pub(crate) fn tokens(sql: &str) -> Result<Vec<Token>> {
    if u32::try_from(sql.len()).is_err() {
        return Err(ParseError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "the text is too long", 0));
    }
    let mut lexer = Lexer { sql, bytes: sql.as_bytes(), at: 0 };
    let mut tokens = Vec::new();
    let mut nesting = 0u32;
    loop {
        let blanks = lexer.skip_blanks();
        let start = lexer.at;
        let kind = blanks.and_then(|()| lexer.next()).unwrap_or_else(|error| Kind::Wrong(Box::new(error)));
        let is_last = matches!(kind, Kind::End | Kind::Wrong(_));
        if matches!(kind, Kind::Sign(b')' | b']')) {
            nesting = nesting.saturating_sub(1);
        }
        let opens = matches!(kind, Kind::Sign(b'(' | b'['));
        tokens.push(Token { kind, span: lexer.span(start), nesting });
        nesting += u32::from(opens);
        if is_last {
            return Ok(tokens);
        }
    }
}

struct Lexer<'t> {
    sql: &'t str,
    bytes: &'t [u8],
    at: usize,
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0c | 0x0b)
}
fn is_operator(byte: u8) -> bool {
    b"~!@#^&|`?+-*/%<>=".contains(&byte)
}
fn starts_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}
fn goes_on_word(byte: u8) -> bool {
    starts_word(byte) || byte.is_ascii_digit() || byte == b'$'
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn span(&self, start: usize) -> Span {
        Span { start: start as u32, end: self.at as u32 }
    }

    fn text(&self, from: usize, to: usize) -> &str {
        self.sql.get(from..to).unwrap_or_default()
    }

    fn skip_while(&mut self, goes_on: impl Fn(u8) -> bool) {
        while self.bytes.get(self.at).is_some_and(|byte| goes_on(*byte)) {
            self.at += 1;
        }
    }

    /// An error at or near the text from `start` on.
    fn near(&self, message: &str, start: usize) -> ParseError {
        let text = self.text(start, self.sql.len());
        let place = if text.is_empty() { "end of input".to_owned() } else { format!("or near \"{text}\"") };
        ParseError::new(sqlstate::SYNTAX_ERROR, format!("{message} at {place}"), start as u32)
    }

    /// An error of half a character, with the text at its place: up to `end`, or one character.
    fn shown(&self, error: ParseError, end: Option<usize>) -> ParseError {
        let at = error.position as usize;
        let end = end.unwrap_or_else(|| at + self.text(at, self.sql.len()).chars().next().map_or(0, char::len_utf8));
        ParseError { message: format!("{} at or near \"{}\"", error.message, self.text(at, end)), ..error }
    }

    fn skip_blanks(&mut self) -> Result<()> {
        loop {
            self.skip_while(is_blank);
            match (self.peek(0), self.peek(1)) {
                (b'-', b'-') => self.skip_while(|byte| byte != b'\n' && byte != b'\r'),
                (b'/', b'*') => self.skip_comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn skip_comment(&mut self) -> Result<()> {
        let start = self.at;
        let mut depth = 0usize;
        loop {
            match (self.peek(0), self.peek(1)) {
                (b'/', b'*') => {
                    depth += 1;
                    self.at += 2;
                }
                (b'*', b'/') => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                _ if self.at >= self.bytes.len() => return Err(self.near("unterminated /* comment", start)),
                _ => self.at += 1,
            }
        }
    }

    fn next(&mut self) -> Result<Kind> {
        let start = self.at;
        let Some(&byte) = self.bytes.get(start) else { return Ok(Kind::End) };
        match (byte, self.peek(1)) {
            (b'\'', _) => self.string(start, 0, false).map(Kind::String),
            (b'e' | b'E', b'\'') => self.string(start, 1, true).map(Kind::String),
            (b'n' | b'N', b'\'') => self.string(start, 1, false).map(Kind::String),
            (b'b' | b'B', b'\'') => self.string(start, 1, false).map(Kind::Bits),
            (b'x' | b'X', b'\'') => self.string(start, 1, false).map(Kind::HexBits),
            (b'u' | b'U', b'&') if self.peek(2) == b'\'' => {
                let text = self.string(start, 2, false)?;
                self.unicode(text, start).map(Kind::String)
            }
            (b'u' | b'U', b'&') if self.peek(2) == b'"' => {
                self.at += 2;
                let text = self.quoted(start)?;
                self.unicode(text, start).map(Kind::Quoted)
            }
            (b'"', _) => self.quoted(start).map(Kind::Quoted),
            (b'$', digit) if digit.is_ascii_digit() => self.parameter(start),
            (b'$', _) => self.dollar(start),
            (digit, _) if digit.is_ascii_digit() => self.number(start),
            (b'.', digit) if digit.is_ascii_digit() => self.number(start),
            (byte, _) if starts_word(byte) => Ok(self.word(start)),
            (b':', b':') => Ok(self.take(2, Kind::Cast)),
            (b':', b'=') => Ok(self.take(2, Kind::Assign)),
            (b'.', b'.') => Ok(self.take(2, Kind::Dots)),
            (b'(' | b')' | b'[' | b']' | b',' | b';' | b'.' | b':', _) => Ok(self.take(1, Kind::Sign(byte))),
            (byte, _) if is_operator(byte) => Ok(self.operator(start)),
            _ => {
                let shown = self.text(start, self.sql.len()).chars().next().map_or_else(String::new, String::from);
                Err(ParseError::new(
                    sqlstate::SYNTAX_ERROR,
                    format!("syntax error at or near \"{shown}\""),
                    start as u32,
                ))
            }
        }
    }

    fn take(&mut self, bytes: usize, kind: Kind) -> Kind {
        self.at += bytes;
        kind
    }

    fn word(&mut self, start: usize) -> Kind {
        self.skip_while(goes_on_word);
        let word = self.text(start, self.at).to_ascii_lowercase();
        let keyword = keyword(&word);
        Kind::Word(word, keyword)
    }

    fn quoted(&mut self, start: usize) -> Result<String> {
        self.at += 1;
        let mut name = String::new();
        loop {
            let from = self.at;
            self.skip_while(|byte| byte != b'"');
            name.push_str(self.text(from, self.at));
            if self.at >= self.bytes.len() {
                return Err(self.near("unterminated quoted identifier", start));
            }
            self.at += 1;
            if self.peek(0) != b'"' {
                break;
            }
            name.push('"');
            self.at += 1;
        }
        if name.is_empty() {
            let shown = self.text(start, self.at).to_owned();
            let message = format!("zero-length delimited identifier at or near \"{shown}\"");
            return Err(ParseError::new(sqlstate::SYNTAX_ERROR, message, start as u32));
        }
        Ok(name)
    }

    /// A string whose quote comes `quote` bytes after its start. A string goes on behind blanks
    /// with a line break.
    fn string(&mut self, start: usize, quote: usize, has_escapes: bool) -> Result<String> {
        self.at += quote + 1;
        let mut text = Unescaped::default();
        loop {
            let from = self.at;
            self.skip_while(|byte| byte != b'\'' && !(has_escapes && byte == b'\\'));
            text.push_str(self.text(from, self.at), from).map_err(|error| self.shown(error, None))?;
            if self.at >= self.bytes.len() {
                let what = match self.bytes.get(start) {
                    Some(b'b' | b'B') => "unterminated bit string literal",
                    Some(b'x' | b'X') => "unterminated hexadecimal string literal",
                    _ => "unterminated quoted string",
                };
                return Err(self.near(what, start));
            }
            if self.peek(0) == b'\\' {
                self.escape(&mut text)?;
            } else if self.peek(1) == b'\'' {
                text.push_str("'", self.at).map_err(|error| self.shown(error, None))?;
                self.at += 2;
            } else {
                let quote = self.at;
                self.at += 1;
                if !self.goes_on_below() {
                    text.whole(quote).map_err(|error| self.shown(error, None))?;
                    return text.finish(start);
                }
            }
        }
    }

    /// Whether the string goes on in another line. If so, moves behind the quote there.
    fn goes_on_below(&mut self) -> bool {
        let after = self.at;
        let mut has_break = false;
        loop {
            match self.peek(0) {
                b'\n' | b'\r' => has_break = true,
                byte if is_blank(byte) => {}
                b'-' if self.peek(1) == b'-' => {
                    self.skip_while(|byte| byte != b'\n' && byte != b'\r');
                    continue;
                }
                b'\'' if has_break => {
                    self.at += 1;
                    return true;
                }
                _ => {
                    self.at = after;
                    return false;
                }
            }
            self.at += 1;
        }
    }

    fn escape(&mut self, text: &mut Unescaped) -> Result<()> {
        let start = self.at;
        let invalid =
            |at: usize| ParseError::new(sqlstate::INVALID_ESCAPE_SEQUENCE, "invalid Unicode escape", at as u32);
        self.at += 2;
        if !matches!(self.bytes.get(start + 1), Some(b'u' | b'U')) {
            text.whole(start).map_err(|error| self.shown(error, None))?;
        }
        match self.bytes.get(start + 1) {
            Some(b'b') => text.push_str("\u{8}", start),
            Some(b'f') => text.push_str("\u{c}", start),
            Some(b'n') => text.push_str("\n", start),
            Some(b'r') => text.push_str("\r", start),
            Some(b't') => text.push_str("\t", start),
            Some(b'v') => text.push_str("\u{b}", start),
            Some(digit @ b'0'..=b'7') => {
                let mut value = u32::from(digit - b'0');
                for _ in 0..2 {
                    if let digit @ b'0'..=b'7' = self.peek(0) {
                        value = value * 8 + u32::from(digit - b'0');
                        self.at += 1;
                    }
                }
                text.push_byte(value as u8, start)
            }
            Some(b'x') if self.peek(0).is_ascii_hexdigit() => {
                let from = self.at;
                self.at += 1;
                if self.peek(0).is_ascii_hexdigit() {
                    self.at += 1;
                }
                let value = u8::from_str_radix(self.text(from, self.at), 16).unwrap_or_default();
                text.push_byte(value, start)
            }
            Some(letter @ (b'u' | b'U')) => {
                let digits = if *letter == b'u' { 4 } else { 8 };
                let code = self.hex(digits).ok_or_else(|| invalid(start))?;
                text.push_code(code, start).map_err(|error| self.shown(error, Some(self.at)))
            }
            Some(_) => {
                // The character itself, which may be of several bytes.
                let character = self.text(start + 1, self.sql.len()).chars().next().unwrap_or_default();
                self.at = start + 1 + character.len_utf8();
                text.push_str(character.encode_utf8(&mut [0; 4]), start)
            }
            None => Ok(()),
        }
    }

    fn hex(&mut self, digits: usize) -> Option<u32> {
        let text = self.sql.get(self.at..self.at + digits)?;
        if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        self.at += digits;
        u32::from_str_radix(text, 16).ok()
    }

    /// The text of `U&'…'`. Its escape is a backslash, or the character behind UESCAPE.
    fn unicode(&mut self, text: String, start: usize) -> Result<String> {
        let after = self.at;
        self.skip_blanks()?;
        let from = self.at;
        self.skip_while(goes_on_word);
        let mut escape = '\\';
        if self.text(from, self.at).eq_ignore_ascii_case("uescape") {
            self.skip_blanks()?;
            let quote = self.at;
            let said = match self.peek(0) {
                b'\'' => self.string(quote, 0, false)?,
                _ => {
                    let error = self.near("UESCAPE must be followed by a simple string literal", quote);
                    if quote == self.bytes.len() {
                        return Err(error);
                    }
                    self.skip_while(goes_on_word);
                    let message = "UESCAPE must be followed by a simple string literal".to_owned();
                    let end = (self.at > quote).then_some(self.at);
                    return Err(self.shown(ParseError { message, ..error }, end));
                }
            };
            let mut characters = said.chars();
            escape = match (characters.next(), characters.next()) {
                (Some(one), None) if !one.is_ascii_hexdigit() && !"+'\" \t\n\r\u{c}".contains(one) => one,
                _ => {
                    let shown = self.text(quote, self.at).to_owned();
                    let message = format!("invalid Unicode escape character at or near \"{shown}\"");
                    return Err(ParseError::new(sqlstate::SYNTAX_ERROR, message, quote as u32));
                }
            };
        } else {
            self.at = after;
        }
        // The place that PostgreSQL reports for `behind`. PostgreSQL counts from behind the quote,
        // and counts a doubled quote once.
        let place = |behind: &str| start + 3 + text.len() - behind.len();
        let invalid = |behind: &str| {
            let at = place(behind) - escape.len_utf8();
            ParseError::new(sqlstate::SYNTAX_ERROR, "invalid Unicode escape", at as u32)
        };
        let mut out = Unescaped::default();
        let mut rest = text.as_str();
        while let Some((before, behind)) = rest.split_once(escape) {
            out.push_str(before, place(rest))?;
            let at = place(behind) - escape.len_utf8();
            if let Some(behind) = behind.strip_prefix(escape) {
                out.push_str(escape.encode_utf8(&mut [0; 4]), at)?;
                rest = behind;
                continue;
            }
            let (digits, skipped) = if behind.starts_with('+') { (6, 1) } else { (4, 0) };
            let code = behind.get(skipped..skipped + digits).ok_or_else(|| invalid(behind))?;
            if !code.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(invalid(behind));
            }
            out.push_code(u32::from_str_radix(code, 16).map_err(|_| invalid(behind))?, at)?;
            rest = behind.get(skipped + digits..).unwrap_or_default();
        }
        out.push_str(rest, place(rest))?;
        out.whole(place(""))?;
        out.finish(start)
    }

    fn parameter(&mut self, start: usize) -> Result<Kind> {
        self.at += 1;
        self.skip_while(|byte| byte.is_ascii_digit());
        let number = self.text(start + 1, self.at).parse::<u32>().ok().filter(|number| i32::try_from(*number).is_ok());
        if starts_word(self.peek(0)) {
            return Err(self.junk("trailing junk after parameter", start));
        }
        match number {
            Some(number) => Ok(Kind::Parameter(number)),
            None => {
                let shown = self.text(start, self.at).to_owned();
                let message = format!("parameter number too large at or near \"{shown}\"");
                Err(ParseError::new(sqlstate::SYNTAX_ERROR, message, start as u32))
            }
        }
    }

    fn junk(&mut self, message: &str, start: usize) -> ParseError {
        self.skip_while(goes_on_word);
        let shown = self.text(start, self.at).to_owned();
        ParseError::new(sqlstate::SYNTAX_ERROR, format!("{message} at or near \"{shown}\""), start as u32)
    }

    /// `$tag$…$tag$`.
    fn dollar(&mut self, start: usize) -> Result<Kind> {
        self.at += 1;
        let is_tag = |byte: u8| starts_word(byte) || byte.is_ascii_digit();
        self.skip_while(is_tag);
        if self.peek(0) != b'$' {
            self.at = start + 1;
            return Err(ParseError::new(sqlstate::SYNTAX_ERROR, "syntax error at or near \"$\"", start as u32));
        }
        self.at += 1;
        let tag = self.text(start, self.at).to_owned();
        let from = self.at;
        match self.text(from, self.sql.len()).find(&tag) {
            Some(length) => {
                self.at = from + length + tag.len();
                Ok(Kind::String(self.text(from, from + length).to_owned()))
            }
            None => Err(self.near("unterminated dollar-quoted string", start)),
        }
    }

    fn number(&mut self, start: usize) -> Result<Kind> {
        if self.peek(0) == b'0'
            && let Some(radix) = match self.peek(1) {
                b'x' | b'X' => Some(16),
                b'o' | b'O' => Some(8),
                b'b' | b'B' => Some(2),
                _ => None,
            }
        {
            return self.of_radix(start, radix);
        }
        self.digits();
        let mut is_whole = true;
        // `1..2` is a range.
        if self.peek(0) == b'.' && self.peek(1) != b'.' {
            is_whole = false;
            self.at += 1;
            self.digits();
        }
        if matches!(self.peek(0), b'e' | b'E') {
            let sign = usize::from(matches!(self.peek(1), b'+' | b'-'));
            if self.peek(1 + sign).is_ascii_digit() {
                is_whole = false;
                self.at += 1 + sign;
                self.digits();
            } else if sign == 1 {
                self.at += 2;
                let shown = self.text(start, self.at).to_owned();
                let message = format!("trailing junk after numeric literal at or near \"{shown}\"");
                return Err(ParseError::new(sqlstate::SYNTAX_ERROR, message, start as u32));
            }
        }
        if starts_word(self.peek(0)) {
            return Err(self.junk("trailing junk after numeric literal", start));
        }
        let digits = self.text(start, self.at).replace('_', "");
        Ok(if is_whole { Kind::Integer(digits) } else { Kind::Numeric(digits) })
    }

    /// Digits, between which there may be single underscores.
    fn digits(&mut self) {
        loop {
            self.skip_while(|byte| byte.is_ascii_digit());
            if self.peek(0) != b'_' || !self.peek(1).is_ascii_digit() || self.at == 0 {
                return;
            }
            self.at += 1;
        }
    }

    fn of_radix(&mut self, start: usize, radix: u32) -> Result<Kind> {
        self.at += 2;
        let from = self.at;
        self.skip_while(|byte| (byte as char).is_digit(radix) || byte == b'_');
        let digits = self.text(from, self.at).replace('_', "");
        if goes_on_word(self.peek(0)) {
            return Err(self.junk("trailing junk after numeric literal", start));
        }
        match u128::from_str_radix(&digits, radix) {
            Ok(value) => Ok(Kind::Integer(value.to_string())),
            Err(_) => {
                let shown = self.text(start, self.at).to_owned();
                let message = format!("invalid integer at or near \"{shown}\"");
                Err(ParseError::new(sqlstate::SYNTAX_ERROR, message, start as u32))
            }
        }
    }

    /// The longest operator: up to a comment, and without signs at its end unless one of its other
    /// characters allows them.
    fn operator(&mut self, start: usize) -> Kind {
        self.skip_while(is_operator);
        let whole = self.text(start, self.at);
        let comment = ["--", "/*"].iter().filter_map(|mark| whole.find(mark)).min();
        let mut operator = &whole[..comment.unwrap_or(whole.len())];
        while operator.len() > 1
            && operator.ends_with(['+', '-'])
            && !operator.contains(['~', '!', '@', '#', '^', '&', '|', '`', '?', '%'])
        {
            operator = &operator[..operator.len() - 1];
        }
        let kind = match operator {
            "=>" => Kind::Arrow,
            "!=" => Kind::Operator("<>".into()),
            other => Kind::Operator(other.into()),
        };
        self.at = start + operator.len();
        kind
    }
}

/// A text that is made of parts, among them bytes and halves of characters.
#[derive(Default)]
struct Unescaped {
    bytes: Vec<u8>,
    /// The first of two codes that are one character.
    first: Option<u32>,
}

impl Unescaped {
    fn invalid(at: usize) -> ParseError {
        ParseError::new(sqlstate::SYNTAX_ERROR, "invalid Unicode surrogate pair", at as u32)
    }

    fn push_str(&mut self, part: &str, at: usize) -> Result<()> {
        if !part.is_empty() {
            self.whole(at)?;
            self.bytes.extend_from_slice(part.as_bytes());
        }
        Ok(())
    }

    fn push_byte(&mut self, byte: u8, at: usize) -> Result<()> {
        self.whole(at)?;
        self.bytes.push(byte);
        Ok(())
    }

    fn push_code(&mut self, code: u32, at: usize) -> Result<()> {
        let code = match (self.first.take(), code) {
            (Some(first), 0xdc00..=0xdfff) => 0x1_0000 + ((first & 0x3ff) << 10) + (code & 0x3ff),
            (None, 0xd800..=0xdbff) => {
                self.first = Some(code);
                return Ok(());
            }
            (None, code) => code,
            (Some(_), _) => return Err(Self::invalid(at)),
        };
        match char::from_u32(code) {
            Some(character) if code != 0 => {
                self.bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                Ok(())
            }
            _ if (0xd800..0xe000).contains(&code) => Err(Self::invalid(at)),
            _ => Err(ParseError::new(sqlstate::SYNTAX_ERROR, "invalid Unicode escape value", at as u32)),
        }
    }

    fn whole(&self, at: usize) -> Result<()> {
        if self.first.is_some() { Err(Self::invalid(at)) } else { Ok(()) }
    }

    fn finish(self, at: usize) -> Result<String> {
        self.whole(at)?;
        let wrong = match String::from_utf8(self.bytes) {
            Ok(text) if !text.contains('\0') => return Ok(text),
            Ok(_) => "0x00".to_owned(),
            Err(error) => {
                let bytes = error.as_bytes().get(error.utf8_error().valid_up_to()..).unwrap_or_default();
                // The first byte tells the number of bytes.
                let length = match bytes.first() {
                    Some(0xc0..=0xdf) => 2,
                    Some(0xe0..=0xef) => 3,
                    Some(0xf0..=0xf7) => 4,
                    _ => 1,
                };
                bytes.iter().take(length).map(|byte| format!("0x{byte:02x}")).collect::<Vec<_>>().join(" ")
            }
        };
        let message = format!("invalid byte sequence for encoding \"UTF8\": {wrong}");
        Err(ParseError::new(sqlstate::CHARACTER_NOT_IN_REPERTOIRE, message, at as u32))
    }
}
