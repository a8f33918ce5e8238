//! Constraints of columns and tables, elements of indexes, bounds of partitions.

use super::Parser;
use crate::error::{ParseError, Result};
use crate::lexer::{Kind, Token};
use crate::tree::{
    ColumnConstraint, ColumnConstraintKind, ConstraintAttributes, Exclusion, Expr, ExprKind, Ident, IndexElement,
    KeyAction, KeyStorage, Name, Operator, PartitionBounds, PartitionBy, References, Span, TableConstraint,
    TableConstraintKind,
};

impl Parser<'_> {
    // ---- of columns

    /// The constraints behind a column's type.
    pub(super) fn column_constraints(&mut self) -> Result<Vec<ColumnConstraint>> {
        let mut all = Vec::new();
        loop {
            let start = self.span();
            let kind = match self.word() {
                Some("constraint") => {
                    self.at += 1;
                    let name = self.ident()?;
                    let kind = self.column_constraint()?;
                    all.push(ColumnConstraint { name: Some(name), kind, span: start.to(self.last_span()) });
                    continue;
                }
                Some("collate") => {
                    let is_again = |said: &ColumnConstraint| matches!(said.kind, ColumnConstraintKind::Collate(_));
                    let is_again = all.iter().any(is_again);
                    self.at += 1;
                    let name = self.name()?;
                    if is_again {
                        return Err(ParseError::at("multiple COLLATE clauses not allowed", start));
                    }
                    ColumnConstraintKind::Collate(name)
                }
                Some("deferrable") => {
                    self.at += 1;
                    ColumnConstraintKind::Deferrable(true)
                }
                Some("not") if self.word_ahead(1) == Some("deferrable") => {
                    self.at += 2;
                    ColumnConstraintKind::Deferrable(false)
                }
                Some("initially") => {
                    self.at += 1;
                    ColumnConstraintKind::InitiallyDeferred(self.either("deferred", "immediate")?)
                }
                Some("not" | "null" | "unique" | "primary" | "check" | "default" | "generated" | "references") => {
                    self.column_constraint()?
                }
                _ => return Ok(all),
            };
            all.push(ColumnConstraint { name: None, kind, span: start.to(self.last_span()) });
        }
    }

    fn column_constraint(&mut self) -> Result<ColumnConstraintKind> {
        use ColumnConstraintKind as K;
        let word = self.word().unwrap_or_default().to_owned();
        if !matches!(
            word.as_str(),
            "not" | "null" | "unique" | "primary" | "check" | "default" | "generated" | "references"
        ) {
            return Err(self.unexpected());
        }
        self.at += 1;
        Ok(match word.as_str() {
            "not" => {
                self.expect_word("null")?;
                K::NotNull
            }
            "null" => K::Null,
            "unique" => {
                let nulls_distinct = self.nulls_distinct()?;
                K::Unique { nulls_distinct, storage: self.key_storage()? }
            }
            "primary" => {
                self.expect_word("key")?;
                K::PrimaryKey(self.key_storage()?)
            }
            "check" => {
                let condition = self.in_parentheses(|parser| parser.kept(Self::expr))?;
                let no_inherit = self.take_word("no");
                if no_inherit {
                    self.expect_word("inherit")?;
                }
                K::Check { condition, no_inherit }
            }
            "default" => K::Default(self.kept(Self::restricted_expr)?),
            "references" => K::References(self.references()?),
            _ => {
                let at = self.span();
                let always = self.generated_when()?;
                self.expect_word("as")?;
                if self.take_word("identity") {
                    let options = self.sequence_options_in_parentheses()?;
                    K::Identity { always, options }
                } else {
                    let expr = self.in_parentheses(|parser| parser.kept(Self::expr))?;
                    self.expect_word("stored")?;
                    if !always {
                        let message = "for a generated column, GENERATED ALWAYS must be specified";
                        return Err(ParseError::at(message, at));
                    }
                    K::Generated(expr)
                }
            }
        })
    }

    /// ALWAYS (true) or BY DEFAULT.
    pub(super) fn generated_when(&mut self) -> Result<bool> {
        let always = self.take_word("always");
        if !always {
            self.expect_words(&["by", "default"])?;
        }
        Ok(always)
    }
    pub(super) fn nulls_distinct(&mut self) -> Result<Option<bool>> {
        if !self.take_word("nulls") {
            return Ok(None);
        }
        let is_not = self.take_word("not");
        self.expect_word("distinct")?;
        Ok(Some(!is_not))
    }

    fn key_storage(&mut self) -> Result<KeyStorage> {
        let options = self.with_options(false)?;
        let tablespace = match self.take_word("using") {
            true => {
                self.expect_words(&["index", "tablespace"])?;
                Some(self.ident()?)
            }
            false => None,
        };
        Ok(KeyStorage { options, tablespace })
    }

    fn references(&mut self) -> Result<References> {
        let table = self.relation_name()?;
        let columns = self.column_list()?;
        let mut references = References { table, columns, match_full: false, on_update: None, on_delete: None };
        if self.take_word("match") {
            let word = self.one_of(&["full", "partial", "simple"])?;
            if word.name == "partial" {
                return Err(ParseError::new(
                    sqlstate::FEATURE_NOT_SUPPORTED,
                    "MATCH PARTIAL not yet implemented",
                    word.span.start,
                ));
            }
            references.match_full = word.name == "full";
        }
        while self.is_word("on") {
            let at = self.span();
            self.at += 1;
            let is_free = |action: &Option<KeyAction>| action.is_none();
            if is_free(&references.on_update) && self.take_word("update") {
                let action = self.key_action(Some(at))?;
                references.on_update = Some(action);
            } else if is_free(&references.on_delete) && self.take_word("delete") {
                references.on_delete = Some(self.key_action(None)?);
            } else {
                return Err(self.unexpected());
            }
            if references.on_update.is_some() && references.on_delete.is_some() {
                break;
            }
        }
        Ok(references)
    }

    /// The action behind ON DELETE, or behind ON UPDATE, whose place is given.
    fn key_action(&mut self, update: Option<Span>) -> Result<KeyAction> {
        let word = self.one_of(&["no", "restrict", "cascade", "set"])?;
        let action = match word.name.as_str() {
            "no" => {
                self.expect_word("action")?;
                KeyAction::NoAction
            }
            "restrict" => KeyAction::Restrict,
            "cascade" => KeyAction::Cascade,
            _ => {
                let is_null = self.either("null", "default")?;
                let columns = self.column_list()?;
                if let Some(start) = update.filter(|_| !columns.is_empty()) {
                    let what = if is_null { "SET NULL" } else { "SET DEFAULT" };
                    let message = format!("a column list with {what} is only supported for ON DELETE actions");
                    return Err(ParseError::new(sqlstate::FEATURE_NOT_SUPPORTED, message, start.start));
                }
                if is_null { KeyAction::SetNull(columns) } else { KeyAction::SetDefault(columns) }
            }
        };
        Ok(action)
    }

    // ---- of tables

    /// Whether a constraint of a table comes.
    pub(super) fn is_table_constraint(&self) -> bool {
        match self.word() {
            Some("constraint" | "check" | "unique" | "primary" | "foreign") => true,
            // A column may have this name.
            Some("exclude") => *self.kind_ahead(1) == Kind::Sign(b'(') || self.word_ahead(1) == Some("using"),
            _ => false,
        }
    }
    pub(super) fn table_constraint(&mut self) -> Result<TableConstraint> {
        let start = self.span();
        let name = if self.take_word("constraint") { Some(self.ident()?) } else { None };
        let word = self.one_of(&["check", "unique", "primary", "foreign", "exclude"])?;
        let (kind, called) = match word.name.as_str() {
            "check" => {
                let condition = self.in_parentheses(|parser| parser.kept(Self::expr))?;
                (TableConstraintKind::Check(condition), "CHECK")
            }
            "unique" => (self.key(true)?, "UNIQUE"),
            "primary" => {
                self.expect_word("key")?;
                (self.key(false)?, "PRIMARY KEY")
            }
            "exclude" => (TableConstraintKind::Exclude(Box::new(self.exclusion()?)), "EXCLUDE"),
            _ => {
                self.expect_word("key")?;
                let columns = self.in_parentheses(|parser| parser.list(Self::ident))?;
                self.expect_word("references")?;
                let references = self.references()?;
                (TableConstraintKind::ForeignKey { columns, references }, "FOREIGN KEY")
            }
        };
        let attributes = self.constraint_attributes()?;
        let refused = |what: &str, is_said: bool| match is_said {
            true => {
                let message = format!("{called} constraints cannot be marked {what}");
                Err(ParseError::new(sqlstate::FEATURE_NOT_SUPPORTED, message, attributes.span.start))
            }
            false => Ok(()),
        };
        let is_deferred = attributes.deferrable == Some(true) || attributes.initially_deferred == Some(true);
        refused("DEFERRABLE", called == "CHECK" && is_deferred)?;
        refused("NOT VALID", !matches!(called, "CHECK" | "FOREIGN KEY") && attributes.not_valid)?;
        refused("NO INHERIT", called != "CHECK" && attributes.no_inherit)?;
        Ok(TableConstraint { name, kind, attributes, span: start.to(self.last_span()) })
    }

    fn key(&mut self, is_unique: bool) -> Result<TableConstraintKind> {
        let nulls_distinct = if is_unique { self.nulls_distinct()? } else { None };
        if nulls_distinct.is_none() && self.take_word("using") {
            self.expect_word("index")?;
            let index = self.ident()?;
            return Ok(match is_unique {
                true => TableConstraintKind::UniqueUsing(index),
                false => TableConstraintKind::PrimaryKeyUsing(index),
            });
        }
        let columns = self.in_parentheses(|parser| parser.list(Self::ident))?;
        let include = self.included_columns()?;
        let storage = self.key_storage()?;
        Ok(match is_unique {
            true => TableConstraintKind::Unique { nulls_distinct, columns, include, storage },
            false => TableConstraintKind::PrimaryKey { columns, include, storage },
        })
    }

    fn included_columns(&mut self) -> Result<Vec<Ident>> {
        match self.take_word("include") {
            true => self.in_parentheses(|parser| parser.list(Self::ident)),
            false => Ok(Vec::new()),
        }
    }

    fn exclusion(&mut self) -> Result<Exclusion> {
        let method = if self.take_word("using") { Some(self.ident()?) } else { None };
        let elements = self.in_parentheses(|parser| {
            parser.list(|parser| {
                let element = parser.index_element()?;
                parser.expect_word("with")?;
                Ok((element, parser.any_operator()?))
            })
        })?;
        let include = self.included_columns()?;
        let storage = self.key_storage()?;
        let filter = match self.take_word("where") {
            true => Some(self.in_parentheses(Self::expr)?),
            false => None,
        };
        Ok(Exclusion { method, elements, include, storage, filter })
    }

    /// An operator, with its schema perhaps, also in `OPERATOR(…)`.
    fn any_operator(&mut self) -> Result<Operator> {
        if self.is_word("operator") && *self.kind_ahead(1) == Kind::Sign(b'(') {
            return self.named_operator();
        }
        let start = self.span();
        let mut schema = None;
        while self.is_column_name(0) {
            schema = Some(self.take_ident());
            self.sign(b'.')?;
        }
        let Kind::Operator(symbol) = self.kind().clone() else { return Err(self.unexpected()) };
        self.at += 1;
        Ok(Operator { schema, symbol, span: start.to(self.last_span()) })
    }

    /// The attributes that may stand behind a constraint.
    pub(super) fn constraint_attributes(&mut self) -> Result<ConstraintAttributes> {
        let start = self.span();
        let behind = self.last_span().end;
        let none = Span { start: behind, end: behind };
        let mut all = ConstraintAttributes { span: none, ..ConstraintAttributes::default() };
        let first = self.at;
        loop {
            let at = self.span();
            let conflict = |message: &str| Err(ParseError::at(message, at));
            let mut is_double = false;
            match self.word() {
                Some("not") => {
                    self.at += 1;
                    match self.one_of(&["deferrable", "valid"])?.name.as_str() {
                        "valid" => all.not_valid = true,
                        _ => {
                            is_double = all.deferrable == Some(true);
                            all.deferrable = Some(false);
                        }
                    }
                }
                Some("deferrable") => {
                    self.at += 1;
                    is_double = all.deferrable == Some(false);
                    all.deferrable = Some(true);
                }
                Some("initially") => {
                    self.at += 1;
                    let deferred = self.either("deferred", "immediate")?;
                    is_double = all.initially_deferred == Some(!deferred);
                    all.initially_deferred = Some(deferred);
                }
                Some("no") => {
                    self.at += 1;
                    self.expect_word("inherit")?;
                    all.no_inherit = true;
                }
                _ => break,
            }
            if all.deferrable == Some(false) && all.initially_deferred == Some(true) {
                return conflict("constraint declared INITIALLY DEFERRED must be DEFERRABLE");
            }
            if is_double {
                return conflict("conflicting constraint properties");
            }
        }
        if self.at > first {
            all.span = start.to(self.last_span());
        }
        Ok(all)
    }

    // ---- of indexes and partitions

    pub(super) fn index_elements(&mut self) -> Result<Vec<IndexElement>> {
        self.in_parentheses(|parser| parser.list(Self::index_element))
    }

    /// A column or an expression of an index.
    pub(super) fn index_element(&mut self) -> Result<IndexElement> {
        let start = self.span();
        let (expr, text) = self.keyed()?;
        let (collation, class) = self.collation_and_class()?;
        let has_options = class.is_some() && self.is_sign(b'(');
        let class_options = if has_options { self.storage_options(true)? } else { Vec::new() };
        let descending = if self.take_word("desc") { Some(true) } else { self.take_word("asc").then_some(false) };
        let nulls_first = if self.take_words(&["nulls", "first"]) {
            Some(true)
        } else {
            self.take_words(&["nulls", "last"]).then_some(false)
        };
        let span = start.to(self.last_span());
        Ok(IndexElement { expr, text, collation, class, class_options, descending, nulls_first, span })
    }

    /// A column's name, a call, or an expression in parentheses; and its text.
    fn keyed(&mut self) -> Result<(Expr, Span)> {
        let start = self.span();
        if self.is_sign(b'(') {
            let first = self.at + 1;
            let inside = self.in_parentheses(Self::expr)?;
            let text = self.without_parentheses(first, self.at - 1, &inside);
            return Ok((Expr { kind: inside.kind, span: start.to(self.last_span()) }, text));
        }
        let goes_on = matches!(self.kind_ahead(1), Kind::Sign(b'(' | b'.' | b'['));
        if self.is_column_name(0) && !goes_on {
            let name = self.take_ident();
            let name = Name { parts: vec![name], span: start };
            return Ok((Expr { kind: ExprKind::Name(name), span: start }, start));
        }
        let call = self.function_in_from()?;
        let text = call.span;
        Ok((call, text))
    }

    /// The text of an expression that is the tokens from `first` up to `end`. Parentheses around
    /// all of it are left out, unless they make it a row or a subquery.
    fn without_parentheses(&self, first: usize, end: usize, expr: &Expr) -> Span {
        let tokens = &self.tokens[first..end];
        let is = |sign: u8| move |token: &&Token| token.kind == Kind::Sign(sign);
        let opened = tokens.iter().take_while(is(b'(')).count();
        let closed = tokens[opened..].iter().rev().take_while(is(b')')).count();
        let between = &tokens[opened..tokens.len() - closed];
        let outside = tokens.first().map_or(0, |token| token.nesting);
        let around = between.iter().map(|token| token.nesting.saturating_sub(outside) as usize).min();
        let around = around.unwrap_or_default().min(opened).min(closed);
        let needs_one = matches!(expr.kind, ExprKind::Row { explicit: false, .. } | ExprKind::Subquery(_));
        let outer = if needs_one { around.saturating_sub(1) } else { around };
        let of = |at: usize| tokens.get(at).map_or(Span::default(), |token| token.span);
        of(outer).to(of(tokens.len().saturating_sub(outer + 1)))
    }

    fn collation_and_class(&mut self) -> Result<(Option<Name>, Option<Name>)> {
        let collation = if self.take_word("collate") { Some(self.name()?) } else { None };
        let is_order = self.is_word("nulls") && matches!(self.word_ahead(1), Some("first" | "last"));
        let class = if self.is_column_name(0) && !is_order { Some(self.name()?) } else { None };
        Ok((collation, class))
    }
    pub(super) fn partition_by(&mut self) -> Result<Option<PartitionBy>> {
        let start = self.span();
        if !self.take_word("partition") {
            return Ok(None);
        }
        self.expect_word("by")?;
        let strategy = self.ident()?;
        let elements = self.in_parentheses(|parser| {
            parser.list(|parser| {
                let start = parser.span();
                let (expr, text) = parser.keyed()?;
                let (collation, class) = parser.collation_and_class()?;
                let span = start.to(parser.last_span());
                let (class_options, descending, nulls_first) = (Vec::new(), None, None);
                Ok(IndexElement { expr, text, collation, class, class_options, descending, nulls_first, span })
            })
        })?;
        Ok(Some(PartitionBy { strategy, elements, span: start.to(self.last_span()) }))
    }
    pub(super) fn partition_bounds(&mut self) -> Result<PartitionBounds> {
        if self.take_word("default") {
            return Ok(PartitionBounds::Default);
        }
        let start = self.span();
        self.expect_words(&["for", "values"])?;
        match self.one_of(&["in", "from", "with"])?.name.as_str() {
            "in" => Ok(PartitionBounds::In(self.in_parentheses(Self::exprs)?)),
            "from" => {
                let from = self.in_parentheses(Self::exprs)?;
                self.expect_word("to")?;
                Ok(PartitionBounds::Range(from, self.in_parentheses(Self::exprs)?))
            }
            _ => self.hash_bounds(start),
        }
    }

    fn hash_bounds(&mut self, start: Span) -> Result<PartitionBounds> {
        let parts = self.in_parentheses(|parser| {
            parser.list(|parser| {
                let name = parser.unreserved()?;
                Ok((name, parser.integer()?))
            })
        })?;
        let (mut modulus, mut remainder) = (None, None);
        for (name, value) in parts {
            let slot = match name.name.as_str() {
                "modulus" => &mut modulus,
                "remainder" => &mut remainder,
                other => {
                    let message = format!("unrecognized hash partition bound specification \"{other}\"");
                    return Err(ParseError::at(message, name.span));
                }
            };
            if slot.replace(value).is_some() {
                let message = format!("{} for hash partition provided more than once", name.name);
                return Err(ParseError::new(sqlstate::DUPLICATE_OBJECT, message, name.span.start));
            }
        }
        let missing = |what: &str| ParseError::at(format!("{what} for hash partition must be specified"), start);
        let modulus = modulus.ok_or_else(|| missing("modulus"))?;
        Ok(PartitionBounds::Hash(modulus, remainder.ok_or_else(|| missing("remainder"))?))
    }
}
