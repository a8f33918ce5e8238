//! The position of an error's subject in a script.
//!
//! The binder gives positions in queries and changes. Everything else is found here, by name, once
//! an error has happened.

use crate::error::SqlError;
use crate::parsed::line_and_column;
use serac_parser::{PlainKind, PlainToken, plain_tokens};

/// SQLSTATEs of errors about a name that stands in the statement.
const ABOUT_NAMES: [&str; 9] = [
    sqlstate::UNDEFINED_COLUMN,
    sqlstate::AMBIGUOUS_COLUMN,
    sqlstate::UNDEFINED_TABLE,
    sqlstate::UNDEFINED_FUNCTION,
    sqlstate::UNDEFINED_OBJECT,
    sqlstate::DUPLICATE_COLUMN,
    sqlstate::DUPLICATE_TABLE,
    sqlstate::DUPLICATE_OBJECT,
    sqlstate::INVALID_SCHEMA_NAME,
];
/// Words before the name of a relation.
const BEFORE_RELATIONS: [&str; 12] =
    ["from", "join", "into", "update", "table", "truncate", "copy", "using", "references", "view", "exists", "on"];

fn is_word(kind: &PlainKind, name: &str) -> bool {
    matches!(kind, PlainKind::Name(word) if word == name)
}

/// The error with the position of its subject, if that can be found: it happened in the given
/// statement of the script.
pub fn located(error: SqlError, script: &str, statement: usize) -> SqlError {
    let position = error.position.or_else(|| find(&error, script, statement));
    SqlError { position, ..error }
}

fn find(error: &SqlError, script: &str, statement: usize) -> Option<(u32, u32)> {
    if !ABOUT_NAMES.contains(&error.sqlstate) {
        return None;
    }
    let tokens = plain_tokens(script).ok()?;
    let is_end = |token: &PlainToken| token.kind == PlainKind::Sign(b';');
    let tokens = tokens.split(is_end).filter(|tokens| !tokens.is_empty()).nth(statement)?;
    let parts: Vec<&str> = error.name.as_ref()?.split('.').collect();
    let last = parts.last()?;
    let token = |at: usize| tokens.get(at).map(|token| &token.kind);
    let matches: Vec<usize> = (0..tokens.len()).filter(|&at| is_word(&tokens[at].kind, last)).collect();
    let before = |at: usize| at.checked_sub(1).and_then(token);
    let likely = |at: &&usize| {
        let (before, after) = (before(**at), token(**at + 1));
        let called = after == Some(&PlainKind::Sign(b'('));
        match error.sqlstate {
            sqlstate::UNDEFINED_FUNCTION => called,
            sqlstate::UNDEFINED_TABLE | sqlstate::DUPLICATE_TABLE | sqlstate::INVALID_SCHEMA_NAME => {
                after == Some(&PlainKind::Sign(b'.'))
                    || before.is_some_and(|token| match token {
                        PlainKind::Sign(b',' | b'.') => true,
                        _ => BEFORE_RELATIONS.iter().any(|word| is_word(token, word)),
                    })
            }
            _ => !called && after != Some(&PlainKind::Sign(b'.')) && !before.is_some_and(|token| is_word(token, "as")),
        }
    };
    let mut at = *matches.iter().find(likely).or(matches.first())?;
    // A qualified name begins with its qualifiers.
    for part in parts.iter().rev().skip(1) {
        if before(at) == Some(&PlainKind::Sign(b'.')) && at >= 2 && is_word(&tokens[at - 2].kind, part) {
            at -= 2;
        }
    }
    Some(line_and_column(script, tokens[at].span.start as usize))
}
