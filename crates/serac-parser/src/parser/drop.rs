//! DROP and COMMENT.

use super::Parser;
use crate::error::Result;
use crate::tree::{Comment, CommentTarget, Drop, DropDatabase, DropRole, DropType, Name, ObjectKind, StatementKind};

/// First words of the objects that PostgreSQL's DROP and COMMENT know and that SeracDB does not
/// have.
const OTHERS: [&str; 19] = [
    "access",
    "aggregate",
    "cast",
    "collation",
    "conversion",
    "event",
    "extension",
    "foreign",
    "language",
    "operator",
    "policy",
    "procedural",
    "publication",
    "rule",
    "server",
    "statistics",
    "subscription",
    "tablespace",
    "trigger",
];

impl Parser<'_> {
    fn is_other_object(&self, word: &str) -> bool {
        OTHERS.contains(&word) || matches!(word, "text" | "transform")
    }
    pub(super) fn drop_statement(&mut self) -> Result<StatementKind> {
        self.at += 1;
        let word = self.word().unwrap_or_default().to_owned();
        let kind = match word.as_str() {
            "table" => ObjectKind::Table,
            "index" => ObjectKind::Index,
            "view" => ObjectKind::View,
            "materialized" => ObjectKind::MaterializedView,
            "sequence" => ObjectKind::Sequence,
            "schema" => ObjectKind::Schema,
            "server" => ObjectKind::Server,
            "foreign" if self.word_ahead(1) == Some("table") => {
                self.at += 1;
                ObjectKind::ForeignTable
            }
            "type" | "domain" => return self.drop_type(word == "domain"),
            "function" | "procedure" | "routine" => return self.drop_function(),
            "database" => return self.drop_database(),
            "owned" => return self.drop_owned(),
            "user" if self.is_user_mapping() => return Ok(self.other(&["drop", "user mapping"])),
            "role" | "user" | "group" => {
                self.at += 1;
                let if_exists = self.if_exists();
                return Ok(StatementKind::DropRole(DropRole { if_exists, roles: self.roles()? }));
            }
            word if self.is_other_object(word) => return Ok(self.other(&["drop", word])),
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        if kind == ObjectKind::MaterializedView {
            self.expect_word("view")?;
        }
        let concurrently = kind == ObjectKind::Index && self.take_word("concurrently");
        let if_exists = self.if_exists();
        let names = match kind {
            ObjectKind::Schema | ObjectKind::Server => self.list(Self::single_name)?,
            _ => self.list(|parser| {
                let name = parser.name()?;
                Ok(parser.without_database(name, 3))
            })?,
        };
        let cascade = self.cascade();
        Ok(StatementKind::Drop(Drop { kind, concurrently, if_exists, names, cascade }))
    }

    fn single_name(&mut self) -> Result<Name> {
        let name = self.ident()?;
        Ok(Name { span: name.span, parts: vec![name] })
    }

    fn drop_type(&mut self, is_domain: bool) -> Result<StatementKind> {
        self.at += 1;
        let if_exists = self.if_exists();
        let types = self.list(Self::type_name)?;
        let cascade = self.cascade();
        Ok(StatementKind::DropType(DropType { is_domain, if_exists, types, cascade }))
    }

    fn drop_database(&mut self) -> Result<StatementKind> {
        self.at += 1;
        let if_exists = self.if_exists();
        let name = self.ident()?;
        let has_with = self.take_word("with");
        let mut options = Vec::new();
        if has_with || self.is_sign(b'(') {
            options = self.in_parentheses(|parser| parser.list(|parser| parser.one_of(&["force"])))?;
        }
        Ok(StatementKind::DropDatabase(DropDatabase { if_exists, name, options }))
    }
    pub(super) fn comment(&mut self) -> Result<StatementKind> {
        self.at += 1;
        self.expect_word("on")?;
        let word = self.word().unwrap_or_default().to_owned();
        let named = |kind| (kind, false);
        let (kind, is_single) = match word.as_str() {
            "table" => named(ObjectKind::Table),
            "index" => named(ObjectKind::Index),
            "view" => named(ObjectKind::View),
            "materialized" => named(ObjectKind::MaterializedView),
            "sequence" => named(ObjectKind::Sequence),
            "column" => named(ObjectKind::Column),
            "schema" => (ObjectKind::Schema, true),
            "database" => (ObjectKind::Database, true),
            "role" => (ObjectKind::Role, true),
            "type" | "domain" => {
                self.at += 1;
                let name = self.type_name()?;
                return self.comment_on(CommentTarget::Type { is_domain: word == "domain", name });
            }
            "constraint" => {
                self.at += 1;
                let name = self.ident()?;
                self.expect_word("on")?;
                let is_domain = self.is_word("domain") && self.is_column_name(1);
                if is_domain {
                    self.at += 1;
                }
                let on = match is_domain {
                    true => CommentTarget::DomainConstraint { name, domain: self.name()? },
                    false => CommentTarget::Constraint { name, table: self.name()? },
                };
                return self.comment_on(on);
            }
            "function" | "procedure" | "routine" => {
                let kind = self.routine_kind()?;
                let on = CommentTarget::Function(kind, self.function_with_types()?);
                return self.comment_on(on);
            }
            "large" => return Ok(self.other(&["comment", "on large object"])),
            word if self.is_other_object(word) => return Ok(self.other(&["comment on", word])),
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        if kind == ObjectKind::MaterializedView {
            self.expect_word("view")?;
        }
        let name = if is_single { self.single_name()? } else { self.name()? };
        let name = self.without_database(name, if kind == ObjectKind::Column { 4 } else { 3 });
        self.comment_on(CommentTarget::Object(kind, name))
    }

    fn comment_on(&mut self, on: CommentTarget) -> Result<StatementKind> {
        self.expect_word("is")?;
        let text = if self.take_word("null") { None } else { Some(self.text()?) };
        Ok(StatementKind::Comment(Comment { on, text }))
    }
}
