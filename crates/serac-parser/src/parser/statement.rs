//! Finds the statement of a text by its first words; EXPLAIN.

use super::Parser;
use crate::error::Result;
use crate::lexer::Kind;
use crate::tree::{CommandOption, Explain, Ident, Statement, StatementKind, Text, Value};

impl Parser<'_> {
    /// A statement of a script.
    pub(super) fn statement(&mut self) -> Result<Statement> {
        if self.is_one_of(&["begin", "end"]) {
            let start = self.start();
            let kind = self.transaction()?;
            return Ok(self.read_since(start, kind));
        }
        self.inner_statement()
    }

    /// A statement as it may stand in the body of a function.
    pub(super) fn inner_statement(&mut self) -> Result<Statement> {
        let start = self.start();
        let Some(word) = self.word() else {
            if !self.is_sign(b'(') {
                return Err(self.unexpected());
            }
            let kind = StatementKind::Query(Box::new(self.query()?));
            return Ok(self.read_since(start, kind));
        };
        let kind = match word {
            "select" | "values" | "table" | "from" => StatementKind::Query(Box::new(self.query()?)),
            "with" | "insert" | "update" | "delete" | "merge" => self.change_or_query()?,
            "explain" => StatementKind::Explain(Box::new(self.explain()?)),
            "describe" | "desc" => self.describe()?,
            "summarize" => {
                self.at += 1;
                StatementKind::Summarize(Box::new(self.query_or_table()?))
            }
            "create" => self.create()?,
            "alter" => self.alter()?,
            "drop" => self.drop_statement()?,
            "refresh" => self.refresh()?,
            "comment" => self.comment()?,
            "truncate" => self.truncate()?,
            "lock" => self.lock_table()?,
            "vacuum" | "analyze" | "analyse" => self.vacuum()?,
            "cluster" => self.cluster()?,
            "reindex" => self.reindex()?,
            "freeze" if self.word_ahead(1) == Some("table") => self.freeze()?,
            "checkpoint" => {
                self.at += 1;
                StatementKind::Checkpoint
            }
            "backup" => {
                self.expect_words(&["backup", "to"])?;
                StatementKind::Backup(self.text()?)
            }
            "copy" => self.copy()?,
            "call" => self.call_statement()?,
            "do" => self.do_statement()?,
            "set" => self.set()?,
            "reset" => {
                self.at += 1;
                StatementKind::Reset(self.reset()?)
            }
            "show" => self.show()?,
            "start" | "commit" | "rollback" | "abort" | "savepoint" | "release" => self.transaction()?,
            "prepare" => self.prepare()?,
            "execute" => StatementKind::Execute(self.execute()?),
            "deallocate" => self.deallocate()?,
            "declare" => self.declare()?,
            "fetch" | "move" => self.fetch_or_move()?,
            "close" => self.close()?,
            "listen" => self.listen()?,
            "unlisten" => self.unlisten()?,
            "notify" => self.notify()?,
            "discard" => self.discard()?,
            "grant" => self.grant()?,
            "revoke" => self.revoke()?,
            "reassign" => self.reassign()?,
            "import" => self.import_foreign_schema()?,
            "load" | "security" => {
                let word = word.to_owned();
                self.other(&[&word])
            }
            _ => return Err(self.unexpected()),
        };
        Ok(self.read_since(start, kind))
    }

    /// Skips a statement that has no grammar here: up to a semicolon that stands in no parentheses.
    pub(super) fn other(&mut self, words: &[&str]) -> StatementKind {
        let mut depth = 0usize;
        loop {
            match self.kind() {
                Kind::End | Kind::Wrong(_) => break,
                Kind::Sign(b';') if depth == 0 => break,
                Kind::Sign(b'(') => depth += 1,
                Kind::Sign(b')') => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
        }
        StatementKind::Other(words.join(" "))
    }

    fn explain(&mut self) -> Result<Explain> {
        self.at += 1;
        let mut options = Vec::new();
        if self.is_sign(b'(') && !self.opens_query(self.at) {
            if *self.kind_ahead(1) == Kind::Sign(b'(') {
                return Err(self.unexpected_inside());
            }
            options = self.command_options()?;
        } else {
            self.take_option(&["analyze", "analyse"], &mut options);
            self.take_option(&["verbose"], &mut options);
        }
        let options = options.into_iter().map(|CommandOption { name, value, .. }| {
            let value = value.map(|value| match value {
                Value::Word(Ident { name, .. }) => name,
                Value::Text(Text { text, .. }) => text,
                Value::Number(number) => format!("{}{}", if number.negative { "-" } else { "" }, number.digits),
            });
            (name, value)
        });
        let options = options.collect();
        let start = self.start();
        let kind = match self.word() {
            Some("select" | "values" | "table" | "from" | "with" | "insert" | "update" | "delete" | "merge") => None,
            Some("declare" | "execute" | "refresh") => None,
            Some("create") => Some(self.create_explained()?),
            None if self.is_sign(b'(') => None,
            _ => return Err(self.unexpected()),
        };
        let statement = match kind {
            Some(kind) => self.read_since(start, kind),
            None => self.inner_statement()?,
        };
        Ok(Explain { options, statement: Box::new(statement) })
    }
}
