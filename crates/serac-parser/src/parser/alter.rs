//! ALTER of tables and other relations.

use super::Parser;
use crate::error::{ParseError, Result};
use crate::lexer::Kind;
use crate::tree::{
    AlterAction, AlterActionKind, AlterAllInTablespace, AlterRelation, AlterSequence, ColumnChange, Enable,
    EnableWhich, IdentityChange, RelationKind, ReplicaIdentity, SequenceOptionKind, StatementKind,
};

/// First words of the objects that PostgreSQL's ALTER changes and that SeracDB does not have.
const OTHERS: [&str; 18] = [
    "aggregate",
    "collation",
    "conversion",
    "event",
    "extension",
    "foreign",
    "language",
    "large",
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
    pub(super) fn alter(&mut self) -> Result<StatementKind> {
        self.at += 1;
        let word = self.word().unwrap_or_default().to_owned();
        let kind = match word.as_str() {
            "table" => RelationKind::Table,
            "index" => RelationKind::Index,
            "view" => RelationKind::View,
            "materialized" => RelationKind::MaterializedView,
            "sequence" => RelationKind::Sequence,
            "schema" => return self.alter_schema(),
            "database" => return self.alter_database(),
            "type" => return self.alter_type(),
            "domain" => return self.alter_domain(),
            "function" | "procedure" | "routine" => return self.alter_function(),
            "system" => return self.alter_system(),
            "default" => return self.default_privileges(),
            "user" if self.is_user_mapping() => return Ok(self.other(&["alter", "user mapping"])),
            "role" | "user" | "group" => return self.alter_role(),
            "text" => return Ok(self.other(&["alter", "text search"])),
            _ if OTHERS.contains(&word.as_str()) => return Ok(self.other(&["alter", &word])),
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        if kind == RelationKind::MaterializedView {
            self.expect_word("view")?;
        }
        if self.is_word("all")
            && matches!(kind, RelationKind::Table | RelationKind::Index | RelationKind::MaterializedView)
        {
            return self.alter_all(kind);
        }
        let if_exists = self.if_exists();
        let (name, only) = match kind {
            RelationKind::Table => {
                let relation = self.relation()?;
                (relation.name, relation.only)
            }
            _ => (self.relation_name()?, false),
        };
        let is_option = self.is_sequence_option() && !self.are_words(&["no", "inherit"]);
        if kind == RelationKind::Sequence && is_option && !self.are_words(&["no", "force"]) {
            let options = self.sequence_options()?;
            return Ok(StatementKind::AlterSequence(Box::new(AlterSequence { if_exists, name, options })));
        }
        let actions = self.alter_actions(kind, if_exists)?;
        Ok(StatementKind::AlterRelation(Box::new(AlterRelation { kind, if_exists, name, only, actions })))
    }

    fn alter_all(&mut self, kind: RelationKind) -> Result<StatementKind> {
        self.expect_words(&["all", "in", "tablespace"])?;
        let from = self.ident()?;
        let owners = match self.take_word("owned") {
            true => {
                self.expect_word("by")?;
                self.roles()?
            }
            false => Vec::new(),
        };
        self.expect_words(&["set", "tablespace"])?;
        let to = self.ident()?;
        let nowait = self.take_word("nowait");
        Ok(StatementKind::AlterAllInTablespace(AlterAllInTablespace { kind, from, owners, to, nowait }))
    }

    fn alter_actions(&mut self, kind: RelationKind, if_exists: bool) -> Result<Vec<AlterAction>> {
        let start = self.span();
        if let Some(alone) = self.action_alone(kind, if_exists)? {
            return Ok(vec![AlterAction { kind: alone, span: start.to(self.last_span()) }]);
        }
        self.list(|parser| {
            let start = parser.span();
            let kind = parser.alter_action()?;
            Ok(AlterAction { kind, span: start.to(parser.last_span()) })
        })
    }

    /// A change that allows no others beside it, if one comes.
    fn action_alone(&mut self, kind: RelationKind, if_exists: bool) -> Result<Option<AlterActionKind>> {
        use AlterActionKind as K;
        use RelationKind as R;
        let has_columns = matches!(kind, R::Table | R::View | R::MaterializedView);
        if self.take_word("rename") {
            if self.take_word("to") {
                return Ok(Some(K::RenameTo(self.ident()?)));
            }
            if kind == R::Table && self.take_word("constraint") {
                let name = self.ident()?;
                self.expect_word("to")?;
                return Ok(Some(K::RenameConstraint(name, self.ident()?)));
            }
            if !has_columns {
                return Err(self.unexpected());
            }
            self.take_word("column");
            let name = self.ident()?;
            self.expect_word("to")?;
            return Ok(Some(K::RenameColumn(name, self.ident()?)));
        }
        if kind != R::Index && self.take_words(&["set", "schema"]) {
            return Ok(Some(K::SetSchema(self.ident()?)));
        }
        let may_depend = matches!(kind, R::Index | R::MaterializedView) && !if_exists;
        if may_depend && (self.is_word("depends") || self.are_words(&["no", "depends"])) {
            let is_not = self.take_word("no");
            self.expect_words(&["depends", "on", "extension"])?;
            return Ok(Some(K::DependsOnExtension(!is_not, self.ident()?)));
        }
        if matches!(kind, R::Table | R::Index) && self.take_word("attach") {
            self.expect_word("partition")?;
            let name = self.relation_name()?;
            let bounds = if kind == R::Table { Some(self.partition_bounds()?) } else { None };
            return Ok(Some(K::AttachPartition(name, bounds)));
        }
        if kind == R::Table && self.take_word("detach") {
            self.expect_word("partition")?;
            let name = self.relation_name()?;
            let finalize = self.take_word("finalize");
            let concurrently = !finalize && self.take_word("concurrently");
            return Ok(Some(K::DetachPartition { name, concurrently, finalize }));
        }
        Ok(None)
    }

    fn alter_action(&mut self) -> Result<AlterActionKind> {
        use AlterActionKind as K;
        if self.is_word("options") {
            return Ok(K::ForeignOptions(self.foreign_options(true)?));
        }
        let word = self.one_of(&[
            "add", "alter", "validate", "drop", "set", "cluster", "enable", "disable", "force", "inherit", "no", "of",
            "not", "owner", "reset", "replica",
        ])?;
        Ok(match word.name.as_str() {
            "add" => self.add()?,
            "alter" => self.alter_column()?,
            "validate" => {
                self.expect_word("constraint")?;
                K::ValidateConstraint(self.ident()?)
            }
            "drop" if self.take_word("constraint") => {
                let if_exists = self.if_exists();
                K::DropConstraint { if_exists, name: self.ident()?, cascade: self.cascade() }
            }
            "drop" => {
                self.take_word("column");
                let if_exists = self.if_exists();
                K::DropColumn { if_exists, name: self.ident()?, cascade: self.cascade() }
            }
            "set" => self.set_of_relation()?,
            "cluster" => {
                self.expect_word("on")?;
                K::ClusterOn(self.ident()?)
            }
            "enable" => self.enable(true)?,
            "disable" => self.enable(false)?,
            "force" => {
                self.expect_words(&["row", "level", "security"])?;
                K::ForceRowSecurity(true)
            }
            "inherit" => K::Inherit(self.relation_name()?),
            "no" if self.take_word("force") => {
                self.expect_words(&["row", "level", "security"])?;
                K::ForceRowSecurity(false)
            }
            "no" => {
                self.expect_word("inherit")?;
                K::NoInherit(self.relation_name()?)
            }
            "of" => K::Of(self.name()?),
            "not" => {
                self.expect_word("of")?;
                K::NotOf
            }
            "owner" => {
                self.expect_word("to")?;
                K::OwnerTo(self.role()?)
            }
            "reset" => K::ResetOptions(self.storage_options(true)?),
            _ => {
                self.expect_word("identity")?;
                let word = self.one_of(&["nothing", "full", "default", "using"])?;
                K::ReplicaIdentity(match word.name.as_str() {
                    "nothing" => ReplicaIdentity::Nothing,
                    "full" => ReplicaIdentity::Full,
                    "default" => ReplicaIdentity::Default,
                    _ => {
                        self.expect_word("index")?;
                        ReplicaIdentity::Index(self.ident()?)
                    }
                })
            }
        })
    }

    fn add(&mut self) -> Result<AlterActionKind> {
        if self.is_table_constraint() {
            return Ok(AlterActionKind::AddConstraint(Box::new(self.table_constraint()?)));
        }
        self.take_word("column");
        let if_not_exists = self.if_not_exists()?;
        let column = Box::new(self.column_definition()?);
        Ok(AlterActionKind::AddColumn { if_not_exists, column })
    }

    fn set_of_relation(&mut self) -> Result<AlterActionKind> {
        use AlterActionKind as K;
        if self.is_sign(b'(') {
            return Ok(K::SetOptions(self.storage_options(true)?));
        }
        Ok(match self.one_of(&["without", "logged", "unlogged", "access", "tablespace"])?.name.as_str() {
            "without" => match self.either("oids", "cluster")? {
                true => K::SetWithoutOids,
                false => K::SetWithoutCluster,
            },
            "logged" => K::SetLogged(true),
            "unlogged" => K::SetLogged(false),
            "access" => {
                self.expect_word("method")?;
                K::SetAccessMethod(self.ident()?)
            }
            _ => K::SetTablespace(self.ident()?),
        })
    }

    fn enable(&mut self, enabled: bool) -> Result<AlterActionKind> {
        if self.take_word("row") {
            self.expect_words(&["level", "security"])?;
            return Ok(AlterActionKind::RowSecurity(enabled));
        }
        let has_mode = enabled && self.is_one_of(&["always", "replica"]);
        let mode = has_mode.then(|| self.take_ident());
        let is_rule = !self.either("trigger", "rule")?;
        let which = if !is_rule && mode.is_none() && self.take_word("all") {
            EnableWhich::All
        } else if !is_rule && mode.is_none() && self.take_word("user") {
            EnableWhich::User
        } else {
            EnableWhich::Named(self.ident()?)
        };
        Ok(AlterActionKind::Enable(Enable { enabled, mode, is_rule, which }))
    }

    fn alter_column(&mut self) -> Result<AlterActionKind> {
        use AlterActionKind as K;
        if self.take_word("constraint") {
            let name = self.ident()?;
            let attributes = self.constraint_attributes()?;
            for (what, is_said) in [("NOT VALID", attributes.not_valid), ("NO INHERIT", attributes.no_inherit)] {
                if is_said {
                    let message = format!("FOREIGN KEY constraints cannot be marked {what}");
                    return Err(ParseError::new(sqlstate::FEATURE_NOT_SUPPORTED, message, attributes.span.start));
                }
            }
            return Ok(K::AlterConstraint(name, attributes));
        }
        self.take_word("column");
        if self.is_integer(0) {
            let at = self.span();
            let number = self.integer()?;
            self.expect_words(&["set", "statistics"])?;
            let statistics = self.signed_integer()?;
            if !(1..=32_767).contains(&number) {
                let message = "column number must be in range from 1 to 32767";
                return Err(ParseError::new(sqlstate::INVALID_PARAMETER_VALUE, message, at.start));
            }
            return Ok(K::AlterColumnNumber { number, statistics });
        }
        let name = self.ident()?;
        let change = Box::new(self.column_change()?);
        Ok(K::AlterColumn { name, change })
    }

    fn column_change(&mut self) -> Result<ColumnChange> {
        use ColumnChange as C;
        if self.is_word("options") {
            return Ok(C::ForeignOptions(self.foreign_options(true)?));
        }
        if self.is_identity_change() {
            return self.identity_changes();
        }
        match self.one_of(&["set", "drop", "reset", "add", "type"])?.name.as_str() {
            "set" => {
                if self.is_sign(b'(') {
                    return Ok(C::SetOptions(self.storage_options(true)?));
                }
                match self.one_of(&["default", "not", "statistics", "storage", "compression", "data"])?.name.as_str() {
                    "default" => Ok(C::Default(Some(self.kept(Self::expr)?))),
                    "not" => {
                        self.expect_word("null")?;
                        Ok(C::NotNull(true))
                    }
                    "statistics" => Ok(C::Statistics(self.signed_integer()?)),
                    "storage" => Ok(C::Storage(self.ident()?)),
                    "compression" => Ok(C::Compression(self.ident_or_default()?)),
                    _ => {
                        self.expect_word("type")?;
                        self.new_type()
                    }
                }
            }
            "drop" => match self.one_of(&["default", "not", "expression", "identity"])?.name.as_str() {
                "default" => Ok(C::Default(None)),
                "not" => {
                    self.expect_word("null")?;
                    Ok(C::NotNull(false))
                }
                "expression" => Ok(C::DropExpression(self.if_exists_alone()?)),
                _ => Ok(C::DropIdentity(self.if_exists_alone()?)),
            },
            "reset" => Ok(C::ResetOptions(self.storage_options(true)?)),
            "add" => {
                self.expect_word("generated")?;
                let always = self.generated_when()?;
                self.expect_words(&["as", "identity"])?;
                Ok(C::AddIdentity { always, options: self.sequence_options_in_parentheses()? })
            }
            _ => self.new_type(),
        }
    }

    /// IF EXISTS at a place where no name may come.
    fn if_exists_alone(&mut self) -> Result<bool> {
        let comes = self.take_word("if");
        if comes {
            self.expect_word("exists")?;
        }
        Ok(comes)
    }

    fn new_type(&mut self) -> Result<ColumnChange> {
        let type_name = self.type_name()?;
        let collation = if self.take_word("collate") { Some(self.name()?) } else { None };
        let using = if self.take_word("using") { Some(self.kept(Self::expr)?) } else { None };
        Ok(ColumnChange::Type { type_name, collation, using })
    }

    fn is_identity_change(&self) -> bool {
        let is_set = self.is_word("set")
            && matches!(
                self.word_ahead(1),
                Some(
                    "generated"
                        | "as"
                        | "cache"
                        | "cycle"
                        | "increment"
                        | "maxvalue"
                        | "minvalue"
                        | "logged"
                        | "no"
                        | "unlogged"
                        | "owned"
                        | "restart"
                        | "sequence"
                        | "start"
                )
            );
        is_set || self.is_word("restart")
    }

    fn identity_changes(&mut self) -> Result<ColumnChange> {
        let mut changes = Vec::new();
        while self.is_identity_change() || !changes.is_empty() && self.is_word("set") {
            if self.is_word("restart") {
                changes.push(IdentityChange::Option(self.sequence_option()?));
                continue;
            }
            self.at += 1;
            if self.take_word("generated") {
                changes.push(IdentityChange::Generated(self.generated_when()?));
                continue;
            }
            let option = self.sequence_option()?;
            let refused = match option.kind {
                SequenceOptionKind::Type(_) => "as",
                SequenceOptionKind::Restart(_) => "restart",
                SequenceOptionKind::OwnedBy(_) => "owned_by",
                _ => "",
            };
            if !refused.is_empty() {
                let message = format!("sequence option \"{refused}\" not supported here");
                return Err(ParseError::at(message, option.span));
            }
            changes.push(IdentityChange::Option(option));
        }
        Ok(ColumnChange::Identity(changes))
    }

    /// Whether a text comes this many tokens ahead.
    pub(super) fn is_text(&self, ahead: usize) -> bool {
        matches!(self.kind_ahead(ahead), Kind::String(_))
    }
}
