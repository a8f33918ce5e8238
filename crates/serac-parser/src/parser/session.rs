//! SET, RESET, SHOW and transactions.

use super::Parser;
use crate::error::{ParseError, Result};
use crate::lexer::Kind;
use crate::tree::{
    Discard, IntervalFields, IsolationLevel, Name, Reset, Set, SetChange, SetConstraints, SetScope, SetSetting,
    SetValue, Show, Span, StatementKind, Transaction, TransactionMode, TransactionModeKind, Value,
};

impl Parser<'_> {
    // ---- settings

    pub(super) fn set(&mut self) -> Result<StatementKind> {
        self.at += 1;
        if self.is_word("constraints") && !self.is_setting_behind(1) {
            self.at += 1;
            let names = if self.take_word("all") { Vec::new() } else { self.list(Self::relation_name)? };
            let deferred = self.either("deferred", "immediate")?;
            return Ok(StatementKind::SetConstraints(SetConstraints { names, deferred }));
        }
        let is_characteristics = self.are_words(&["session", "characteristics"]) && !self.is_setting_behind(2);
        let is_authorization = self.are_words(&["session", "authorization"]);
        let mut scope = None;
        if !is_characteristics
            && !is_authorization
            && self.is_one_of(&["local", "session"])
            && !self.is_setting_behind(1)
        {
            scope = Some(if self.take_ident().name == "local" { SetScope::Local } else { SetScope::Session });
        }
        Ok(StatementKind::Set(Set { scope, change: self.setting_or_modes()? }))
    }

    /// The subject of SET: a setting, or the modes of transactions.
    pub(super) fn setting_or_modes(&mut self) -> Result<SetChange> {
        if self.is_word("transaction") && !self.is_setting_behind(1) && self.word_ahead(1) != Some("snapshot") {
            self.at += 1;
            return Ok(SetChange::Transaction(self.transaction_modes(true)?));
        }
        if self.are_words(&["session", "characteristics"]) && !self.is_setting_behind(2) {
            self.at += 2;
            self.expect_words(&["as", "transaction"])?;
            return Ok(SetChange::Characteristics(self.transaction_modes(true)?));
        }
        self.setting()
    }

    /// The subject of SET, as functions may have it.
    pub(super) fn setting(&mut self) -> Result<SetChange> {
        if self.is_setting_behind(1) {
            return self.plain_setting(true);
        }
        let start = self.span();
        let word = self.word().unwrap_or_default().to_owned();
        let set = |name: &str, span: Span, value| {
            let name = Self::named(name, span);
            Ok(SetChange::Setting(SetSetting { name: Name { span, parts: vec![name] }, value }))
        };
        let one = |value| SetValue::List(vec![value]);
        match word.as_str() {
            "transaction" => {
                self.at += 1;
                self.expect_word("snapshot")?;
                Ok(SetChange::Snapshot(self.text()?))
            }
            "time" => {
                self.at += 1;
                self.expect_word("zone")?;
                let span = start.to(self.last_span());
                let value = self.time_zone()?;
                set("timezone", span, value)
            }
            "catalog" => {
                self.at += 1;
                let at = self.span();
                self.text()?;
                Err(ParseError::new(sqlstate::FEATURE_NOT_SUPPORTED, "current database cannot be changed", at.start))
            }
            "schema" => {
                self.at += 1;
                let value = one(Value::Text(self.text()?));
                set("search_path", start, value)
            }
            "names" => {
                self.at += 1;
                let value = if self.is_text(0) {
                    one(Value::Text(self.text()?))
                } else {
                    self.take_word("default");
                    SetValue::Default
                };
                set("client_encoding", start, value)
            }
            "role" => {
                self.at += 1;
                let value = one(self.role_value()?);
                set("role", start, value)
            }
            "session" => {
                self.at += 1;
                self.expect_word("authorization")?;
                let span = start.to(self.last_span());
                let value = if self.take_word("default") { SetValue::Default } else { one(self.role_value()?) };
                set("session_authorization", span, value)
            }
            "xml" => {
                self.at += 1;
                self.expect_word("option")?;
                let span = start.to(self.last_span());
                let value = one(Value::Word(self.one_of(&["document", "content"])?));
                set("xmloption", span, value)
            }
            _ => self.plain_setting(true),
        }
    }

    /// A word that is not reserved, or a text.
    fn role_value(&mut self) -> Result<Value> {
        if self.is_text(0) { Ok(Value::Text(self.text()?)) } else { Ok(Value::Word(self.unreserved()?)) }
    }
    pub(super) fn setting_name(&mut self) -> Result<Name> {
        let mut parts = vec![self.ident()?];
        while self.take_sign(b'.') {
            parts.push(self.ident()?);
        }
        Ok(Name { span: parts[0].span.to(self.last_span()), parts })
    }

    /// `name = value`, `name TO value`, and `name FROM CURRENT` where that may be.
    pub(super) fn plain_setting(&mut self, may_be_current: bool) -> Result<SetChange> {
        let name = self.setting_name()?;
        if may_be_current && self.take_word("from") {
            self.expect_word("current")?;
            return Ok(SetChange::Setting(SetSetting { name, value: SetValue::Current }));
        }
        if !self.take_operator("=") {
            self.expect_word("to")?;
        }
        let value = match self.take_word("default") {
            true => SetValue::Default,
            false => SetValue::List(self.list(Self::value)?),
        };
        Ok(SetChange::Setting(SetSetting { name, value }))
    }

    fn time_zone(&mut self) -> Result<SetValue> {
        let one = |value| Ok(SetValue::List(vec![value]));
        match self.kind() {
            Kind::String(_) => one(Value::Text(self.text()?)),
            Kind::Quoted(_) | Kind::Word(_, None) => one(Value::Word(self.take_ident())),
            Kind::Word(word, _) if matches!(word.as_str(), "default" | "local") => {
                self.at += 1;
                Ok(SetValue::Default)
            }
            Kind::Word(word, _) if word == "interval" => {
                self.at += 1;
                self.zone_interval()
            }
            _ => one(Value::Number(self.number()?)),
        }
    }

    fn zone_interval(&mut self) -> Result<SetValue> {
        let precision = match self.is_sign(b'(') {
            true => Some(self.in_parentheses(Self::integer)?),
            false => None,
        };
        let text = self.text()?;
        let at = self.span();
        let fields = if precision.is_none() { self.interval_fields(&mut Vec::new())? } else { None };
        if !matches!(fields, None | Some(IntervalFields::Hour | IntervalFields::HourToMinute | IntervalFields::Minute))
        {
            return Err(ParseError::at("time zone interval must be HOUR or HOUR TO MINUTE", at));
        }
        Ok(SetValue::Interval { text, fields, precision })
    }

    /// The subject of RESET, and of SHOW, whose word has been read.
    fn reset_name(&mut self) -> Result<Name> {
        let start = self.span();
        let (words, name): (&[&str], _) = match self.word() {
            Some("time") if self.word_ahead(1) == Some("zone") => (&["time", "zone"], "timezone"),
            Some("transaction") if self.word_ahead(1) == Some("isolation") => {
                (&["transaction", "isolation", "level"], "transaction_isolation")
            }
            Some("session") if self.word_ahead(1) == Some("authorization") => {
                (&["session", "authorization"], "session_authorization")
            }
            _ => return self.setting_name(),
        };
        self.expect_words(words)?;
        let span = start.to(self.last_span());
        Ok(Name { parts: vec![Self::named(name, span)], span })
    }
    pub(super) fn reset(&mut self) -> Result<Reset> {
        if self.take_word("all") { Ok(Reset::All) } else { Ok(Reset::Setting(self.reset_name()?)) }
    }
    pub(super) fn show(&mut self) -> Result<StatementKind> {
        self.at += 1;
        if self.is_word("columns") && matches!(self.word_ahead(1), Some("from" | "in")) {
            self.at += 2;
            return Ok(StatementKind::Show(Show::Columns(self.relation_name()?)));
        }
        Ok(StatementKind::Show(match self.reset()? {
            Reset::All => Show::All,
            Reset::Setting(name) => Show::Setting(name),
        }))
    }
    pub(super) fn discard(&mut self) -> Result<StatementKind> {
        self.at += 1;
        Ok(StatementKind::Discard(
            match self.one_of(&["all", "plans", "sequences", "temp", "temporary"])?.name.as_str() {
                "all" => Discard::All,
                "plans" => Discard::Plans,
                "sequences" => Discard::Sequences,
                _ => Discard::Temporary,
            },
        ))
    }

    // ---- transactions

    fn transaction_modes(&mut self, is_needed: bool) -> Result<Vec<TransactionMode>> {
        let mut modes = Vec::new();
        loop {
            let start = self.span();
            let must_come = is_needed && modes.is_empty() || !modes.is_empty() && self.take_sign(b',');
            let start = if must_come { self.span() } else { start };
            let kind = match self.word() {
                Some("isolation") => {
                    self.at += 1;
                    self.expect_word("level")?;
                    TransactionModeKind::Isolation(self.isolation_level()?)
                }
                Some("read") => {
                    self.at += 1;
                    TransactionModeKind::ReadOnly(self.either("only", "write")?)
                }
                Some("deferrable") => {
                    self.at += 1;
                    TransactionModeKind::Deferrable(true)
                }
                Some("not") => {
                    self.at += 1;
                    self.expect_word("deferrable")?;
                    TransactionModeKind::Deferrable(false)
                }
                _ if must_come => return Err(self.unexpected()),
                _ => return Ok(modes),
            };
            modes.push(TransactionMode { kind, span: start.to(self.last_span()) });
        }
    }

    fn isolation_level(&mut self) -> Result<IsolationLevel> {
        Ok(match self.one_of(&["read", "repeatable", "serializable", "snapshot"])?.name.as_str() {
            "read" => match self.either("uncommitted", "committed")? {
                true => IsolationLevel::ReadUncommitted,
                false => IsolationLevel::ReadCommitted,
            },
            "repeatable" => {
                self.expect_word("read")?;
                IsolationLevel::RepeatableRead
            }
            "snapshot" => IsolationLevel::Snapshot,
            _ => IsolationLevel::Serializable,
        })
    }

    /// A statement about transactions, by its first word.
    pub(super) fn transaction(&mut self) -> Result<StatementKind> {
        let word = self.take_ident().name;
        Ok(StatementKind::Transaction(match word.as_str() {
            "begin" => {
                self.take_work();
                Transaction::Begin { start: false, modes: self.transaction_modes(false)? }
            }
            "start" => {
                self.expect_word("transaction")?;
                Transaction::Begin { start: true, modes: self.transaction_modes(false)? }
            }
            "commit" if self.take_word("prepared") => Transaction::CommitPrepared(self.text()?),
            "commit" | "end" => {
                self.take_work();
                Transaction::Commit { chain: self.chain()? }
            }
            "savepoint" => Transaction::Savepoint(self.ident()?),
            "release" => {
                self.take_savepoint();
                Transaction::Release(self.ident()?)
            }
            "rollback" if self.take_word("prepared") => Transaction::RollbackPrepared(self.text()?),
            "rollback" => {
                self.take_work();
                match self.take_word("to") {
                    true => {
                        self.take_savepoint();
                        Transaction::RollbackTo(self.ident()?)
                    }
                    false => Transaction::Rollback { chain: self.chain()? },
                }
            }
            _ => {
                self.take_work();
                Transaction::Rollback { chain: self.chain()? }
            }
        }))
    }

    fn take_work(&mut self) {
        let _ = self.take_word("work") || self.take_word("transaction");
    }

    /// The word SAVEPOINT, where a savepoint may have it for a name.
    fn take_savepoint(&mut self) {
        if !matches!(self.kind_ahead(1), Kind::End | Kind::Sign(_)) {
            self.take_word("savepoint");
        }
    }

    fn chain(&mut self) -> Result<bool> {
        if !self.take_word("and") {
            return Ok(false);
        }
        let is_not = self.take_word("no");
        self.expect_word("chain")?;
        Ok(!is_not)
    }
}
