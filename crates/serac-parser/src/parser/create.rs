//! CREATE of indexes, views, sequences, schemas, databases, types and domains.

use super::Parser;
use crate::error::{ParseError, Result};
use crate::lexer::Kind;
use crate::tree::{
    CheckOption, ColumnType, CreateDatabase, CreateDomain, CreateIndex, CreateMaterializedView, CreateSchema,
    CreateSequence, CreateType, CreateTypeKind, CreateView, DatabaseOption, Persistence, RefreshMaterializedView,
    RoleWord, SequenceOption, SequenceOptionKind, StatementKind,
};

/// First words of the objects that PostgreSQL's CREATE makes and that SeracDB does not have.
const OTHERS: [&str; 21] = [
    "access",
    "aggregate",
    "cast",
    "collation",
    "constraint",
    "conversion",
    "default",
    "event",
    "extension",
    "foreign",
    "language",
    "operator",
    "policy",
    "procedural",
    "publication",
    "rule",
    "statistics",
    "subscription",
    "tablespace",
    "text",
    "transform",
];
/// First words behind which OR REPLACE is allowed, of these objects and of those below.
const REPLACED: [&str; 8] =
    ["aggregate", "constraint", "language", "procedural", "rule", "transform", "trigger", "trusted"];

impl Parser<'_> {
    pub(super) fn create(&mut self) -> Result<StatementKind> {
        self.at += 1;
        let or_replace = self.take_word("or");
        if or_replace {
            self.expect_word("replace")?;
        }
        let word = self.word().unwrap_or_default().to_owned();
        match word.as_str() {
            "foreign" if !or_replace && self.take_words(&["foreign", "table"]) => return self.create_foreign_table(),
            "function" => return self.create_function(or_replace, false),
            "procedure" => return self.create_function(or_replace, true),
            "temporary" | "temp" | "local" | "global" | "unlogged" => return self.create_persistent(or_replace),
            "view" | "recursive" => return self.create_view(or_replace, Persistence::Permanent),
            _ => {}
        }
        let is_other = match or_replace {
            true => REPLACED.contains(&word.as_str()),
            false => OTHERS.contains(&word.as_str()) || matches!(word.as_str(), "trigger" | "trusted"),
        };
        if is_other {
            return Ok(self.other(&["create", &word]));
        }
        if or_replace {
            return Err(self.unexpected());
        }
        match word.as_str() {
            "table" => {
                self.at += 1;
                self.create_table(Persistence::Permanent, false)
            }
            "unique" | "index" => self.create_index(),
            "materialized" => self.create_materialized(Persistence::Permanent),
            "sequence" => self.create_sequence(Persistence::Permanent),
            "schema" => self.create_schema(),
            "server" => self.create_server(),
            "database" => self.create_database(),
            "type" => self.create_type(),
            "domain" => self.create_domain(),
            "assertion" => Ok(self.other(&["create", "assertion"])),
            "user" if self.is_user_mapping() => Ok(self.other(&["create", "user mapping"])),
            "role" => self.create_role(RoleWord::Role),
            "user" => self.create_role(RoleWord::User),
            "group" => self.create_role(RoleWord::Group),
            _ => Err(self.unexpected()),
        }
    }

    /// Whether USER MAPPING comes, not a user of this name.
    pub(super) fn is_user_mapping(&self) -> bool {
        self.are_words(&["user", "mapping"]) && matches!(self.word_ahead(2), Some("for" | "if"))
    }

    /// The statement behind CREATE TEMPORARY or UNLOGGED.
    fn create_persistent(&mut self, or_replace: bool) -> Result<StatementKind> {
        let persistence = self.persistence()?;
        match self.word() {
            Some("view" | "recursive") => self.create_view(or_replace, persistence),
            _ if or_replace => Err(self.unexpected()),
            Some("table") => {
                self.at += 1;
                self.create_table(persistence, false)
            }
            Some("sequence") => self.create_sequence(persistence),
            Some("materialized") if persistence == Persistence::Unlogged => self.create_materialized(persistence),
            _ => Err(self.unexpected()),
        }
    }

    /// TEMPORARY or UNLOGGED, if it comes.
    pub(super) fn persistence(&mut self) -> Result<Persistence> {
        if self.take_word("unlogged") {
            return Ok(Persistence::Unlogged);
        }
        let is_said = self.take_word("local") || self.take_word("global");
        if self.take_word("temporary") || self.take_word("temp") {
            return Ok(Persistence::Temporary);
        }
        if is_said { Err(self.unexpected()) } else { Ok(Persistence::Permanent) }
    }

    /// CREATE TABLE … AS or CREATE MATERIALIZED VIEW, as EXPLAIN has it.
    pub(super) fn create_explained(&mut self) -> Result<StatementKind> {
        self.at += 1;
        let persistence = self.persistence()?;
        if self.is_word("materialized") && persistence != Persistence::Temporary {
            return self.create_materialized(persistence);
        }
        self.expect_word("table")?;
        self.create_table(persistence, true)
    }

    // ---- indexes and views

    fn create_index(&mut self) -> Result<StatementKind> {
        let unique = self.take_word("unique");
        self.expect_word("index")?;
        let concurrently = self.take_word("concurrently");
        let if_not_exists = self.if_not_exists()?;
        let has_name = if_not_exists || !self.is_word("on");
        let name = if has_name { Some(self.ident()?) } else { None };
        self.expect_word("on")?;
        let table = self.relation()?;
        let method = if self.take_word("using") { Some(self.ident()?) } else { None };
        let elements = self.index_elements()?;
        let include = if self.take_word("include") { self.index_elements()? } else { Vec::new() };
        let nulls_distinct = self.nulls_distinct()?;
        let options = self.with_options(true)?;
        let tablespace = self.tablespace()?;
        let filter = if self.take_word("where") { Some(self.kept(Self::expr)?) } else { None };
        Ok(StatementKind::CreateIndex(Box::new(CreateIndex {
            unique,
            concurrently,
            if_not_exists,
            name,
            table: table.name,
            only: table.only,
            method,
            elements,
            include,
            nulls_distinct,
            options,
            tablespace,
            filter,
        })))
    }

    fn create_view(&mut self, or_replace: bool, persistence: Persistence) -> Result<StatementKind> {
        let recursive = self.take_word("recursive");
        self.expect_word("view")?;
        let name = self.relation_name()?;
        let columns = match recursive {
            true => self.in_parentheses(|parser| parser.list(Self::ident))?,
            false => self.column_list()?,
        };
        let options = self.with_options(true)?;
        self.expect_word("as")?;
        let query = Box::new(self.query()?);
        let mut check = None;
        if self.take_word("with") {
            let at = self.last_span();
            let is_local = self.take_word("local");
            if !is_local {
                self.take_word("cascaded");
            }
            self.expect_words(&["check", "option"])?;
            check = Some(if is_local { CheckOption::Local } else { CheckOption::Cascaded });
            if recursive {
                let message = "WITH CHECK OPTION not supported on recursive views";
                return Err(ParseError::new(sqlstate::FEATURE_NOT_SUPPORTED, message, at.start));
            }
        }
        let view = CreateView { or_replace, persistence, recursive, name, columns, options, query, check };
        Ok(StatementKind::CreateView(Box::new(view)))
    }

    fn create_materialized(&mut self, persistence: Persistence) -> Result<StatementKind> {
        self.expect_words(&["materialized", "view"])?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.relation_name()?;
        let columns = self.column_list()?;
        let storage = self.table_storage(false)?;
        self.expect_word("as")?;
        let query = Box::new(self.query()?);
        let with_data = self.with_data()?;
        let view = CreateMaterializedView { persistence, if_not_exists, name, columns, storage, query, with_data };
        Ok(StatementKind::CreateMaterializedView(Box::new(view)))
    }
    pub(super) fn refresh(&mut self) -> Result<StatementKind> {
        self.expect_words(&["refresh", "materialized", "view"])?;
        let concurrently = self.take_word("concurrently");
        let name = self.relation_name()?;
        let with_data = self.with_data()?;
        Ok(StatementKind::Refresh(RefreshMaterializedView { concurrently, name, with_data }))
    }

    // ---- sequences

    fn create_sequence(&mut self, persistence: Persistence) -> Result<StatementKind> {
        self.at += 1;
        let if_not_exists = self.if_not_exists()?;
        let name = self.relation_name()?;
        let options = self.sequence_options()?;
        Ok(StatementKind::CreateSequence(Box::new(CreateSequence { persistence, if_not_exists, name, options })))
    }

    /// Options of a sequence; perhaps none.
    pub(super) fn sequence_options(&mut self) -> Result<Vec<SequenceOption>> {
        let mut options = Vec::new();
        while self.is_sequence_option() {
            options.push(self.sequence_option()?);
        }
        Ok(options)
    }

    /// Options of a sequence in parentheses, if these come; then at least one.
    pub(super) fn sequence_options_in_parentheses(&mut self) -> Result<Vec<SequenceOption>> {
        if !self.is_sign(b'(') {
            return Ok(Vec::new());
        }
        self.in_parentheses(|parser| {
            let first = parser.sequence_option()?;
            let mut options = vec![first];
            options.extend(parser.sequence_options()?);
            Ok(options)
        })
    }
    pub(super) fn is_sequence_option(&self) -> bool {
        self.is_one_of(&[
            "as",
            "cache",
            "cycle",
            "increment",
            "logged",
            "maxvalue",
            "minvalue",
            "no",
            "owned",
            "restart",
            "sequence",
            "start",
            "unlogged",
        ])
    }
    pub(super) fn sequence_option(&mut self) -> Result<SequenceOption> {
        use SequenceOptionKind as K;
        let start = self.span();
        if !self.is_sequence_option() {
            return Err(self.unexpected());
        }
        let word = self.take_ident();
        let kind = match word.name.as_str() {
            "as" => K::Type(self.simple_type()?),
            "cache" => K::Cache(self.number()?),
            "cycle" => K::Cycle(true),
            "logged" => K::Logged(true),
            "unlogged" => K::Logged(false),
            "increment" => {
                self.take_word("by");
                K::Increment(self.number()?)
            }
            "maxvalue" => K::Max(Some(self.number()?)),
            "minvalue" => K::Min(Some(self.number()?)),
            "no" => match self.one_of(&["maxvalue", "minvalue", "cycle"])?.name.as_str() {
                "maxvalue" => K::Max(None),
                "minvalue" => K::Min(None),
                _ => K::Cycle(false),
            },
            "owned" => {
                self.expect_word("by")?;
                K::OwnedBy(self.name()?)
            }
            "sequence" => {
                self.expect_word("name")?;
                K::Name(self.name()?)
            }
            "start" => {
                self.take_word("with");
                K::Start(self.number()?)
            }
            _ => {
                let is_said = self.take_word("with") || self.is_number() || self.is_sign_of_number();
                K::Restart(if is_said { Some(self.number()?) } else { None })
            }
        };
        Ok(SequenceOption { kind, span: start.to(self.last_span()) })
    }

    // ---- schemas, databases, types

    fn create_schema(&mut self) -> Result<StatementKind> {
        self.at += 1;
        let if_not_exists = self.if_not_exists()?;
        let name = if self.is_word("authorization") { None } else { Some(self.ident()?) };
        let owner = match self.take_word("authorization") {
            true => Some(self.role()?),
            false => None,
        };
        let mut elements = Vec::new();
        while self.is_one_of(&["create", "grant"]) {
            let start = self.start();
            if if_not_exists {
                let message = "CREATE SCHEMA IF NOT EXISTS cannot include schema elements";
                return Err(ParseError::new(sqlstate::FEATURE_NOT_SUPPORTED, message, start.span.start));
            }
            let kind = if self.is_word("grant") { self.grant_privileges()? } else { self.create_in_schema()? };
            elements.push(self.read_since(start, kind));
        }
        Ok(StatementKind::CreateSchema(Box::new(CreateSchema { if_not_exists, name, owner, elements })))
    }

    fn create_in_schema(&mut self) -> Result<StatementKind> {
        let mut ahead = 1;
        while matches!(
            self.word_ahead(ahead),
            Some("temporary" | "temp" | "local" | "global" | "unlogged" | "or" | "replace" | "unique" | "constraint")
        ) {
            ahead += 1;
        }
        match self.word_ahead(ahead) {
            Some("table" | "view" | "recursive" | "sequence" | "index" | "trigger") => {
                self.in_schema = true;
                let created = self.create();
                self.in_schema = false;
                created
            }
            _ => {
                self.at += ahead;
                Err(self.unexpected())
            }
        }
    }

    fn create_database(&mut self) -> Result<StatementKind> {
        self.at += 1;
        let name = self.ident()?;
        self.take_word("with");
        Ok(StatementKind::CreateDatabase(CreateDatabase { name, options: self.database_options()? }))
    }
    pub(super) fn database_options(&mut self) -> Result<Vec<DatabaseOption>> {
        let mut options = Vec::new();
        loop {
            let start = self.span();
            let name = match self.kind() {
                Kind::Quoted(_) | Kind::Word(_, None) => self.take_ident(),
                Kind::Word(word, _) => match word.as_str() {
                    "connection" => {
                        self.at += 1;
                        self.expect_word("limit")?;
                        Self::named("connection_limit", start.to(self.last_span()))
                    }
                    "encoding" | "location" | "owner" | "tablespace" | "template" => self.take_ident(),
                    _ => return Ok(options),
                },
                _ => return Ok(options),
            };
            self.take_operator("=");
            let value = if self.take_word("default") {
                None
            } else if self.is_sign_of_number() || self.is_number() {
                Some(crate::tree::Value::Number(self.signed_integer()?))
            } else {
                Some(self.word_or_text()?)
            };
            options.push(DatabaseOption { name, value });
        }
    }

    fn create_type(&mut self) -> Result<StatementKind> {
        self.at += 1;
        let name = self.name()?;
        let kind = if self.is_sign(b'(') {
            CreateTypeKind::Base(self.storage_options(false)?)
        } else if !self.take_word("as") {
            CreateTypeKind::Shell
        } else if self.take_word("enum") {
            CreateTypeKind::Enum(self.in_parentheses(|parser| match parser.is_sign(b')') {
                true => Ok(Vec::new()),
                false => parser.list(Self::text),
            })?)
        } else if self.take_word("range") {
            CreateTypeKind::Range(self.storage_options(false)?)
        } else {
            CreateTypeKind::Composite(self.in_parentheses(|parser| match parser.is_sign(b')') {
                true => Ok(Vec::<ColumnType>::new()),
                false => parser.list(Self::column_type),
            })?)
        };
        Ok(StatementKind::CreateType(Box::new(CreateType { name, kind })))
    }

    fn create_domain(&mut self) -> Result<StatementKind> {
        self.at += 1;
        let name = self.name()?;
        self.take_word("as");
        let type_name = self.type_name()?;
        let constraints = self.column_constraints()?;
        Ok(StatementKind::CreateDomain(Box::new(CreateDomain { name, type_name, constraints })))
    }
}
