//! ALTER of schemas, databases, types, domains, and of the system's settings.

use super::Parser;
use crate::error::Result;
use crate::tree::{
    AlterDatabase, AlterDomain, AlterSchema, AlterType, AttributeChange, DatabaseChange, DomainChange, Reset,
    SettingChange, StatementKind, TypeChange,
};

impl Parser<'_> {
    pub(super) fn alter_schema(&mut self) -> Result<StatementKind> {
        self.at += 1;
        let name = self.ident()?;
        let change = self.object_change(&["rename", "owner"])?;
        Ok(StatementKind::AlterSchema(AlterSchema { name, change }))
    }
    pub(super) fn alter_database(&mut self) -> Result<StatementKind> {
        use DatabaseChange as C;
        self.at += 1;
        let name = self.ident()?;
        let change = if self.is_word("set") && self.word_ahead(1) == Some("tablespace") && !self.is_setting_behind(2) {
            self.at += 2;
            C::SetTablespace(self.ident()?)
        } else if self.is_one_of(&["set", "reset"]) {
            C::Setting(self.setting_change()?)
        } else if self.is_one_of(&["rename"]) || self.are_words(&["owner", "to"]) {
            C::Object(self.object_change(&["rename", "owner"])?)
        } else if self.take_word("refresh") {
            self.expect_words(&["collation", "version"])?;
            C::RefreshCollation
        } else {
            self.take_word("with");
            C::Options(self.database_options()?)
        };
        Ok(StatementKind::AlterDatabase(Box::new(AlterDatabase { name, change })))
    }

    /// SET or RESET of a setting, in another statement.
    pub(super) fn setting_change(&mut self) -> Result<SettingChange> {
        if self.take_word("reset") {
            return Ok(SettingChange::Reset(self.reset()?));
        }
        self.expect_word("set")?;
        Ok(SettingChange::Set(self.setting_or_modes()?))
    }
    pub(super) fn alter_system(&mut self) -> Result<StatementKind> {
        self.at += 1;
        let sets = self.either("set", "reset")?;
        let change = match sets {
            true => SettingChange::Set(self.plain_setting(false)?),
            false if self.take_word("all") => SettingChange::Reset(Reset::All),
            false => SettingChange::Reset(Reset::Setting(self.setting_name()?)),
        };
        Ok(StatementKind::AlterSystem(change))
    }
    pub(super) fn alter_domain(&mut self) -> Result<StatementKind> {
        use DomainChange as C;
        self.at += 1;
        let name = self.name()?;
        let word = self.word().unwrap_or_default().to_owned();
        let change = match word.as_str() {
            "rename" if self.word_ahead(1) == Some("constraint") => {
                self.at += 2;
                let name = self.ident()?;
                self.expect_word("to")?;
                C::RenameConstraint(name, self.ident()?)
            }
            "set" if matches!(self.word_ahead(1), Some("default" | "not")) => {
                self.at += 1;
                match self.take_word("default") {
                    true => C::Default(Some(self.expr()?)),
                    false => {
                        self.expect_words(&["not", "null"])?;
                        C::NotNull(true)
                    }
                }
            }
            "drop" => {
                self.at += 1;
                match self.one_of(&["default", "not", "constraint"])?.name.as_str() {
                    "default" => C::Default(None),
                    "not" => {
                        self.expect_word("null")?;
                        C::NotNull(false)
                    }
                    _ => {
                        let if_exists = self.if_exists();
                        C::DropConstraint { if_exists, name: self.ident()?, cascade: self.cascade() }
                    }
                }
            }
            "add" => {
                self.at += 1;
                C::AddConstraint(self.table_constraint()?)
            }
            "validate" => {
                self.at += 1;
                self.expect_word("constraint")?;
                C::ValidateConstraint(self.ident()?)
            }
            _ => C::Object(self.object_change(&["rename", "owner", "set"])?),
        };
        Ok(StatementKind::AlterDomain(Box::new(AlterDomain { name, change })))
    }
    pub(super) fn alter_type(&mut self) -> Result<StatementKind> {
        use TypeChange as C;
        self.at += 1;
        let name = self.name()?;
        let next = self.word_ahead(1).unwrap_or_default().to_owned();
        let change = match (self.word().unwrap_or_default(), next.as_str()) {
            ("add", "value") => {
                self.at += 2;
                let if_not_exists = self.take_word("if");
                if if_not_exists {
                    self.expect_words(&["not", "exists"])?;
                }
                let value = self.text()?;
                let neighbor = match self.is_one_of(&["before", "after"]) {
                    true => Some((self.take_ident().name == "before", self.text()?)),
                    false => None,
                };
                C::AddValue { if_not_exists, value, neighbor }
            }
            ("rename", "value") => {
                self.at += 2;
                let value = self.text()?;
                self.expect_word("to")?;
                C::RenameValue(value, self.text()?)
            }
            ("rename", "attribute") => {
                self.at += 2;
                let name = self.ident()?;
                self.expect_word("to")?;
                let to = self.ident()?;
                C::RenameAttribute(name, to, self.cascade())
            }
            ("set", _) if *self.kind_ahead(1) == crate::lexer::Kind::Sign(b'(') => {
                self.at += 1;
                C::Properties(self.in_parentheses(|parser| {
                    parser.list(|parser| match parser.storage_option(false)? {
                        option if option.value.is_some() => Ok(option),
                        _ => Err(parser.unexpected()),
                    })
                })?)
            }
            ("add" | "drop" | "alter", _) => C::Attributes(self.list(Self::attribute_change)?),
            _ => C::Object(self.object_change(&["rename", "owner", "set"])?),
        };
        Ok(StatementKind::AlterType(Box::new(AlterType { name, change })))
    }

    fn attribute_change(&mut self) -> Result<AttributeChange> {
        let word = self.one_of(&["add", "drop", "alter"])?;
        self.expect_word("attribute")?;
        Ok(match word.name.as_str() {
            "add" => {
                let attribute = self.column_type()?;
                AttributeChange::Add(attribute, self.cascade())
            }
            "drop" => {
                let if_exists = self.if_exists();
                AttributeChange::Drop { if_exists, name: self.ident()?, cascade: self.cascade() }
            }
            _ => {
                let name = self.ident()?;
                if self.take_word("set") {
                    self.expect_word("data")?;
                }
                self.expect_word("type")?;
                let type_name = self.type_name()?;
                let collation = if self.take_word("collate") { Some(self.name()?) } else { None };
                AttributeChange::Type { name, type_name, collation, cascade: self.cascade() }
            }
        })
    }
}
