//! From a line to tokens.

use crate::error::{OperatorError, Result};

/// A token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Token<'t> {
    /// Letters, digits, `_`.
    Word(&'t str),
    /// An integer, as it is written.
    Number(&'t str),
    /// The text between quotes.
    Text(&'t str),
    /// One of `( ) , = . -`.
    Mark(char),
}

impl Token<'_> {
    /// As it is written, for messages.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Word(text) | Self::Number(text) => (*text).to_owned(),
            Self::Text(text) => format!("\"{text}\""),
            Self::Mark(mark) => mark.to_string(),
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The tokens of a line, without its comment.
pub(crate) fn tokens(line: &str) -> Result<Vec<Token<'_>>> {
    let (bytes, mut at, mut found) = (line.as_bytes(), 0, Vec::new());
    let run = |from: usize| from + bytes[from..].iter().take_while(|byte| is_word(**byte)).count();
    while let Some(&byte) = bytes.get(at) {
        let next = bytes.get(at + 1);
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => at += 1,
            b'-' if next == Some(&b'-') => break,
            b'-' if next.is_some_and(u8::is_ascii_digit) => {
                let end = run(at + 1);
                found.push(Token::Number(&line[at..end]));
                at = end;
            }
            b'(' | b')' | b',' | b'=' | b'.' | b'-' => {
                found.push(Token::Mark(byte as char));
                at += 1;
            }
            b'"' => {
                let Some(len) = bytes[at + 1..].iter().position(|byte| *byte == b'"') else {
                    return Err(OperatorError::Syntax("a quoted string does not end".into()));
                };
                found.push(Token::Text(&line[at + 1..at + 1 + len]));
                at += len + 2;
            }
            _ if is_word(byte) => {
                let end = run(at);
                let text = &line[at..end];
                found.push(if byte.is_ascii_digit() { Token::Number(text) } else { Token::Word(text) });
                at = end;
            }
            _ => {
                let character = line[at..].chars().next().unwrap_or_default();
                return Err(OperatorError::Syntax(format!("unexpected character {character:?}")));
            }
        }
    }
    Ok(found)
}
