//! INSERT, UPDATE, DELETE and MERGE.

use super::Parser;
use crate::error::Result;
use crate::lexer::Kind;
use crate::tree::{
    Assignment, Condition, ConflictTarget, Delete, Ident, Insert, Merge, MergeAction, MergeMatch, MergeWhen,
    OnConflict, Postfix, SelectItem, Statement, StatementKind, Update, With,
};

impl Parser<'_> {
    /// A statement that may begin with WITH.
    pub(super) fn change_or_query(&mut self) -> Result<StatementKind> {
        let start = self.span();
        let with = self.with()?;
        self.acts += usize::from(self.is_one_of(&["insert", "update", "delete", "merge"]));
        match self.word() {
            Some("insert") => Ok(StatementKind::Insert(Box::new(self.insert(with)?))),
            Some("update") => Ok(StatementKind::Update(Box::new(self.update(with)?))),
            Some("delete") => Ok(StatementKind::Delete(Box::new(self.delete(with)?))),
            Some("merge") => Ok(StatementKind::Merge(Box::new(self.merge(with)?))),
            _ => Ok(StatementKind::Query(Box::new(self.query_behind(with, start)?))),
        }
    }

    /// A statement of WITH.
    pub(super) fn preparable(&mut self) -> Result<Statement> {
        self.deeper(|parser| {
            let start = parser.start();
            let kind = match parser.word() {
                Some("insert" | "update" | "delete" | "merge" | "with") => parser.change_or_query()?,
                _ => StatementKind::Query(Box::new(parser.query()?)),
            };
            Ok(parser.read_since(start, kind))
        })
    }

    fn alias_of_target(&mut self) -> Result<Option<Ident>> {
        if self.take_word("as") {
            return self.ident().map(Some);
        }
        let is_alias = self.is_column_name(0) && !self.is_word("set");
        Ok(is_alias.then(|| self.take_ident()))
    }

    fn returning(&mut self) -> Result<Vec<SelectItem>> {
        if self.take_word("returning") { self.list(Self::select_item) } else { Ok(Vec::new()) }
    }

    fn overriding(&mut self) -> Result<Option<bool>> {
        if !self.take_word("overriding") {
            return Ok(None);
        }
        let is_system = self.take_word("system");
        if !is_system {
            self.expect_word("user")?;
        }
        self.expect_word("value")?;
        Ok(Some(is_system))
    }

    fn insert(&mut self, with: Option<With>) -> Result<Insert> {
        self.at += 1;
        self.expect_word("into")?;
        let table = self.relation_name()?;
        let alias = if self.take_word("as") { Some(self.ident()?) } else { None };
        let columns = self.targets_before_values()?;
        let overriding_system = self.overriding()?;
        let may_be_default = columns.is_empty() && overriding_system.is_none();
        let source = match may_be_default && self.take_word("default") {
            true => {
                self.expect_word("values")?;
                None
            }
            false => Some(Box::new(self.query()?)),
        };
        let on_conflict = if self.is_word("on") { Some(self.on_conflict()?) } else { None };
        Ok(Insert { with, table, alias, columns, overriding_system, source, on_conflict, returning: self.returning()? })
    }

    /// Columns in parentheses, where a query in parentheses might come, too.
    fn targets_before_values(&mut self) -> Result<Vec<(Ident, Vec<Postfix>)>> {
        if self.is_sign(b'(') && !self.opens_query(self.at) {
            if *self.kind_ahead(1) == Kind::Sign(b'(') {
                return Err(self.unexpected_inside());
            }
            return self.in_parentheses(|parser| parser.list(Self::target));
        }
        Ok(Vec::new())
    }

    fn on_conflict(&mut self) -> Result<OnConflict> {
        let start = self.span();
        self.at += 1;
        self.expect_word("conflict")?;
        let target = if self.take_word("on") {
            self.expect_word("constraint")?;
            Some(ConflictTarget::Constraint(self.ident()?))
        } else if self.is_sign(b'(') {
            let columns = self.in_parentheses(|parser| parser.list(Self::index_element))?;
            let filter = if self.take_word("where") { Some(self.expr()?) } else { None };
            Some(ConflictTarget::Index(columns, filter))
        } else {
            None
        };
        self.expect_word("do")?;
        let update = match self.take_word("nothing") {
            true => None,
            false => {
                self.expect_word("update")?;
                self.expect_word("set")?;
                let assignments = self.list(Self::assignment)?;
                let filter = if self.take_word("where") { Some(self.expr()?) } else { None };
                Some((assignments, filter))
            }
        };
        Ok(OnConflict { target, update, span: start.to(self.last_span()) })
    }

    fn assignment(&mut self) -> Result<Assignment> {
        let in_parentheses = self.is_sign(b'(');
        let targets = match in_parentheses {
            true => self.in_parentheses(|parser| parser.list(Self::target))?,
            false => vec![self.target()?],
        };
        if !self.take_operator("=") {
            return Err(self.unexpected());
        }
        Ok(Assignment { targets, in_parentheses, value: self.expr()? })
    }

    fn condition_of_change(&mut self) -> Result<Option<Condition>> {
        if !self.take_word("where") {
            return Ok(None);
        }
        if self.take_words(&["current", "of"]) {
            return Ok(Some(Condition::CurrentOf(self.ident()?)));
        }
        Ok(Some(Condition::Expr(self.expr()?)))
    }

    fn update(&mut self, with: Option<With>) -> Result<Update> {
        self.at += 1;
        let table = self.relation()?;
        let alias = self.alias_of_target()?;
        self.expect_word("set")?;
        let assignments = self.list(Self::assignment)?;
        let from = if self.take_word("from") { self.list(Self::table)? } else { Vec::new() };
        let filter = self.condition_of_change()?;
        Ok(Update { with, table, alias, assignments, from, filter, returning: self.returning()? })
    }

    fn delete(&mut self, with: Option<With>) -> Result<Delete> {
        self.at += 1;
        self.expect_word("from")?;
        let table = self.relation()?;
        let alias = self.alias_of_target()?;
        let using = if self.take_word("using") { self.list(Self::table)? } else { Vec::new() };
        let filter = self.condition_of_change()?;
        Ok(Delete { with, table, alias, using, filter, returning: self.returning()? })
    }

    fn merge(&mut self, with: Option<With>) -> Result<Merge> {
        self.at += 1;
        self.expect_word("into")?;
        let table = self.relation()?;
        let alias = self.alias_of_target()?;
        self.expect_word("using")?;
        let source = self.table()?;
        self.expect_word("on")?;
        let on = self.expr()?;
        let mut whens = Vec::new();
        while self.is_word("when") {
            whens.push(self.merge_when()?);
        }
        if whens.is_empty() {
            return Err(self.unexpected());
        }
        Ok(Merge { with, table, alias, source, on, whens, returning: self.returning()? })
    }

    fn merge_when(&mut self) -> Result<MergeWhen> {
        let start = self.span();
        self.at += 1;
        let is_not = self.take_word("not");
        self.expect_word("matched")?;
        let matched = match (is_not, self.take_words(&["by", "source"])) {
            (false, false) => MergeMatch::Matched,
            (true, true) => MergeMatch::NotMatchedBySource,
            (true, false) => {
                self.take_words(&["by", "target"]);
                MergeMatch::NotMatchedByTarget
            }
            (false, true) => {
                self.at -= 2;
                return Err(self.unexpected());
            }
        };
        let condition = if self.take_word("and") { Some(self.expr()?) } else { None };
        self.expect_word("then")?;
        let action = self.merge_action(matched)?;
        Ok(MergeWhen { matched, condition, action, span: start.to(self.last_span()) })
    }

    fn merge_action(&mut self, matched: MergeMatch) -> Result<MergeAction> {
        let inserts = matched == MergeMatch::NotMatchedByTarget;
        match self.word() {
            Some("do") => {
                self.at += 1;
                self.expect_word("nothing")?;
                Ok(MergeAction::Nothing)
            }
            Some("delete") if !inserts => {
                self.at += 1;
                Ok(MergeAction::Delete)
            }
            Some("update") if !inserts => {
                self.at += 1;
                self.expect_word("set")?;
                Ok(MergeAction::Update(self.list(Self::assignment)?))
            }
            Some("insert") if inserts => {
                self.at += 1;
                let columns = match self.is_sign(b'(') {
                    true => self.in_parentheses(|parser| parser.list(Self::target))?,
                    false => Vec::new(),
                };
                let overriding_system = self.overriding()?;
                let may_be_default = columns.is_empty() && overriding_system.is_none();
                let values = match may_be_default && self.take_word("default") {
                    true => {
                        self.expect_word("values")?;
                        None
                    }
                    false => {
                        self.expect_word("values")?;
                        Some(self.in_parentheses(Self::exprs)?)
                    }
                };
                Ok(MergeAction::Insert { columns, overriding_system, values })
            }
            _ => Err(self.unexpected()),
        }
    }
}
