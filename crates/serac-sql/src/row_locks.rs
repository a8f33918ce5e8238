//! What SELECT … FOR UPDATE and its relatives do at a row ([`OnHeld`]).
//!
//! There is one strength: FOR UPDATE, FOR NO KEY UPDATE, FOR SHARE and FOR KEY SHARE all claim a row for one transaction, as if it were updated. That is never too weak; readers
//! that only share wait for each other. A row that another transaction holds is waited for, or is an error (NOWAIT), or is left out (SKIP LOCKED).

use crate::error::{Result, SqlError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use serac_engine::{Table, Transaction};
use serac_parser::tree::LockWait;
use serac_storage::RowId;
use std::sync::Arc;

/// What a claim (SELECT … FOR UPDATE) does at a row that a running transaction holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnHeld {
    Wait,
    /// NOWAIT.
    Fail,
    /// SKIP LOCKED.
    Skip,
}

impl OnHeld {
    /// Claims a row for a transaction; false if it is to be left out.
    pub(crate) fn claim(self, txn: &mut Transaction, table: &Arc<Table>, row: RowId) -> Result<bool> {
        match (txn.lock_row(table, row), self) {
            (Ok(()), _) => Ok(true),
            (Err(error), Self::Fail) if error.blocker().is_some() => {
                let message = format!("could not obtain lock on row in relation \"{}\"", table.name());
                Err(SqlError::new("55P03", message))
            }
            (Err(error), Self::Skip) if error.blocker().is_some() => Ok(false),
            (Err(error), _) => Err(error.into()),
        }
    }
}

impl From<LockWait> for OnHeld {
    fn from(wait: LockWait) -> Self {
        match wait {
            LockWait::Wait => Self::Wait,
            LockWait::NoWait => Self::Fail,
            LockWait::SkipLocked => Self::Skip,
        }
    }
}

/// Locking clauses as the parser takes them: of two strengths, of one table or of all, and behind
/// LIMIT. Its tree is made for all statements that claim rows: the point path compiles those of a
/// single table, and others tell by it what they are.
pub(crate) fn row_locks(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|token| is_word(&token.token, &["for"])) {
        return tokens;
    }
    let mut written = Vec::with_capacity(tokens.len());
    // Clauses that LIMIT follows, and in how many parentheses they are.
    let mut later: Vec<(usize, Vec<TokenWithSpan>)> = Vec::new();
    let (mut depth, mut at) = (0usize, 0);
    while at < tokens.len() {
        let mut words = Words { tokens: &tokens, at };
        let mut clauses = Vec::new();
        if is_word(&tokens[at].token, &["for"]) {
            while let Some(clause) = words.locking_clause() {
                clauses.extend(clause);
            }
        }
        if !clauses.is_empty() {
            at = words.at;
            match words.is_next(&["limit", "offset", "fetch"]) {
                true => later.push((depth, clauses)),
                false => written.extend(clauses),
            }
            continue;
        }
        let token = &tokens[at].token;
        let ends_query = matches!(token, Token::RParen | Token::SemiColon | Token::EOF)
            || is_word(token, &["on", "returning"])
            || is_word(token, &["with"]) && Words { tokens: &tokens, at: at + 1 }.is_next(&["no", "data"]);
        while ends_query && let Some((_, clauses)) = later.pop_if(|(of, _)| *of >= depth) {
            written.extend(clauses);
        }
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        written.push(tokens[at].clone());
        at += 1;
    }
    written.extend(later.into_iter().flat_map(|(_, clauses)| clauses));
    written
}

fn is_word(token: &Token, words: &[&str]) -> bool {
    match token {
        Token::Word(word) => {
            word.quote_style.is_none() && words.iter().any(|wanted| word.value.eq_ignore_ascii_case(wanted))
        }
        _ => false,
    }
}

/// Tokens, from one on.
#[derive(Clone, Copy)]
struct Words<'t> {
    tokens: &'t [TokenWithSpan],
    at: usize,
}

impl<'t> Words<'t> {
    /// The next one that is not white, if it is such.
    fn take(&mut self, is_such: impl Fn(&Token) -> bool) -> Option<&'t TokenWithSpan> {
        let white = |token: &TokenWithSpan| matches!(token.token, Token::Whitespace(_));
        let rest = self.tokens.get(self.at..)?;
        let next = rest.iter().position(|token| !white(token))?;
        let found = Some(&rest[next]).filter(|token| is_such(&token.token))?;
        self.at += next + 1;
        Some(found)
    }
    fn word(&mut self, word: &str) -> Option<&'t TokenWithSpan> {
        self.take(|token| is_word(token, &[word]))
    }
    fn is_next(mut self, words: &[&str]) -> bool {
        self.take(|token| is_word(token, words)).is_some()
    }
    fn name(&mut self) -> Option<Vec<TokenWithSpan>> {
        let is_part = |token: &Token| matches!(token, Token::Word(_));
        let mut name = vec![self.take(is_part)?.clone()];
        while let Some(point) = self.take(|token| *token == Token::Period) {
            name.extend([point.clone(), self.take(is_part)?.clone()]);
        }
        Some(name)
    }
    /// A locking clause as the parser takes it, if one comes next.
    fn locking_clause(&mut self) -> Option<Vec<TokenWithSpan>> {
        let mut words = *self;
        let mut clause = vec![words.word("for")?.clone()];
        let is_weaker = words.word("no").is_some();
        let is_of_key = words.word("key").is_some();
        let strength = match (is_weaker, is_of_key) {
            (false, false) => words.take(|token| is_word(token, &["update", "share"]))?,
            (true, true) => words.word("update")?,
            (false, true) => words.word("share")?,
            (true, false) => return None,
        };
        clause.push(strength.clone());
        if let Some(of) = words.word("of") {
            let (name, mut is_alone) = (words.name()?, true);
            while words.take(|token| *token == Token::Comma).is_some() {
                words.name()?;
                is_alone = false;
            }
            if is_alone {
                clause.push(of.clone());
                clause.extend(name);
            }
        }
        if let Some(nowait) = words.word("nowait") {
            clause.push(nowait.clone());
        } else if let Some(skip) = words.word("skip") {
            clause.extend([skip.clone(), words.word("locked")?.clone()]);
        }
        *self = words;
        Some(clause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::PostgreSql;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    #[test]
    fn clauses_are_written_as_the_parser_takes_them() {
        for (given, written) in [
            ("SELECT 1 FROM t FOR NO KEY UPDATE OF t, u NOWAIT", "SELECT 1 FROM t FOR UPDATE NOWAIT"),
            ("SELECT 1 FROM t FOR KEY SHARE; SELECT 2", "SELECT 1 FROM t FOR SHARE; SELECT 2"),
            (
                "SELECT (SELECT 1 FROM t FOR UPDATE FOR SHARE OF s.t SKIP LOCKED LIMIT (1) OFFSET 2) FROM u",
                "SELECT (SELECT 1 FROM t LIMIT (1) OFFSET 2 FOR UPDATE FOR SHARE OF s.t SKIP LOCKED) FROM u",
            ),
            (
                "INSERT INTO t SELECT 1 FROM u FOR UPDATE LIMIT 1 ON CONFLICT DO NOTHING",
                "INSERT INTO t SELECT 1 FROM u LIMIT 1 FOR UPDATE ON CONFLICT DO NOTHING",
            ),
            ("SELECT substring(a FOR b), 'for update' LIMIT 1", "SELECT substring(a FOR b), 'for update' LIMIT 1"),
        ] {
            let tokens = |sql: &str| Tokenizer::new(&PostgreSql, sql).tokenize_with_location().unwrap();
            let text = |tokens: Vec<TokenWithSpan>| {
                let seen = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_)));
                seen.map(|token| token.token.to_string()).collect::<Vec<_>>()
            };
            assert_eq!(text(row_locks(tokens(given))), text(tokens(written)), "{given}");
        }
    }
}
