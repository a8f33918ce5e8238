//! Queries.

use super::Parser;
use super::primary::Inside;
use crate::error::{ParseError, Result};
use crate::lexer::Kind;
use crate::tree::{
    CommonTable, Cycle, Distinct, Expr, ExprKind, GroupBy, GroupItem, Ident, Into, Lock, LockStrength, LockWait, Query,
    QueryBody, Search, Select, SelectItem, SetKind, SetOperator, Span, With,
};

impl Parser<'_> {
    /// A query, without the parentheses around it.
    pub(super) fn query(&mut self) -> Result<Query> {
        self.deeper(|parser| {
            let start = parser.span();
            let with = parser.with()?;
            parser.query_behind(with, start)
        })
    }

    /// A query whose WITH has been read.
    pub(super) fn query_behind(&mut self, with: Option<With>, start: Span) -> Result<Query> {
        let body = self.body_part()?;
        self.query_from(with, body, start)
    }

    /// The rest of a query whose first part has been read.
    pub(super) fn query_from(&mut self, with: Option<With>, first: QueryBody, start: Span) -> Result<Query> {
        let body = self.set_operations(first)?;
        let mut query = Query { with, ..Query::of(body, start) };
        self.tail(&mut query)?;
        query.span = start.to(self.last_span());
        Ok(query)
    }

    /// Whether a query in parentheses is part of a query: it ends with them, or goes on as one.
    pub(super) fn goes_on_as_query(&self) -> bool {
        self.is_sign(b')')
            || self.is_one_of(&["union", "intersect", "except", "order", "limit", "offset", "fetch", "for"])
    }

    /// WITH, if it comes.
    pub(super) fn with(&mut self) -> Result<Option<With>> {
        let start = self.span();
        if !self.take_word("with") {
            return Ok(None);
        }
        let recursive = self.is_word("recursive") && self.is_column_name(1);
        if recursive {
            self.at += 1;
        }
        let tables = self.list(Self::common_table)?;
        Ok(Some(With { recursive, tables, span: start.to(self.last_span()) }))
    }

    fn common_table(&mut self) -> Result<CommonTable> {
        let name = self.ident()?;
        let columns = self.column_list()?;
        self.expect_word("as")?;
        let materialized = if self.take_word("not") {
            self.expect_word("materialized")?;
            Some(false)
        } else {
            self.take_word("materialized").then_some(true)
        };
        let statement = Box::new(self.in_parentheses(Self::preparable)?);
        let search = if self.take_word("search") {
            let breadth = self.take_word("breadth");
            if !breadth {
                self.expect_word("depth")?;
            }
            self.expect_word("first")?;
            self.expect_word("by")?;
            let by = self.list(Self::ident)?;
            self.expect_word("set")?;
            Some(Search { breadth, by, column: self.ident()? })
        } else {
            None
        };
        let cycle = if self.take_word("cycle") { Some(self.cycle()?) } else { None };
        Ok(CommonTable { name, columns, materialized, statement, search, cycle })
    }

    fn cycle(&mut self) -> Result<Cycle> {
        let columns = self.list(Self::ident)?;
        self.expect_word("set")?;
        let mark = self.ident()?;
        let values = match self.take_word("to") {
            true => {
                let value = self.mark()?;
                self.expect_word("default")?;
                Some((value, self.mark()?))
            }
            false => None,
        };
        self.expect_word("using")?;
        Ok(Cycle { columns, mark, values, path: self.ident()? })
    }

    /// A constant that marks a cycle.
    fn mark(&mut self) -> Result<Expr> {
        if self.is_word("default") { Err(self.unexpected()) } else { self.primary() }
    }

    fn set_operations(&mut self, first: QueryBody) -> Result<QueryBody> {
        let first = self.intersections(first)?;
        let mut rest = Vec::new();
        while let Some(operator) = self.set_operator(false)? {
            let part = self.body_part()?;
            rest.push((operator, self.intersections(part)?));
        }
        Ok(joined(first, rest))
    }

    fn intersections(&mut self, first: QueryBody) -> Result<QueryBody> {
        let mut rest = Vec::new();
        while let Some(operator) = self.set_operator(true)? {
            rest.push((operator, self.body_part()?));
        }
        Ok(joined(first, rest))
    }

    fn set_operator(&mut self, intersects: bool) -> Result<Option<SetOperator>> {
        let span = self.span();
        let kind = match self.word() {
            Some("union") if !intersects => SetKind::Union,
            Some("except") if !intersects => SetKind::Except,
            Some("intersect") if intersects => SetKind::Intersect,
            _ => return Ok(None),
        };
        self.at += 1;
        let all = self.take_word("all");
        if !all {
            self.take_word("distinct");
        }
        let by_name = self.take_words(&["by", "name"]);
        Ok(Some(SetOperator { kind, all, by_name, span }))
    }

    /// A part of set operations.
    fn body_part(&mut self) -> Result<QueryBody> {
        let start = self.span();
        match self.word() {
            Some("select") => Ok(QueryBody::Select(Box::new(self.select(Vec::new(), start)?))),
            Some("values") => {
                self.at += 1;
                Ok(QueryBody::Values(self.list(|parser| parser.in_parentheses(Self::exprs))?))
            }
            Some("table") => {
                self.at += 1;
                let relation = self.relation()?;
                Ok(QueryBody::Table(relation, start.to(self.last_span())))
            }
            Some("from") => {
                self.at += 1;
                let from = self.list(Self::table)?;
                Ok(QueryBody::Select(Box::new(self.select(from, start)?)))
            }
            None if self.is_sign(b'(') && self.opens_query(self.at) => match self.parenthesis()? {
                Inside::Query(query) => Ok(QueryBody::Nested(query)),
                Inside::Exprs(_) => {
                    self.at -= 1;
                    Err(self.unexpected())
                }
            },
            None if self.is_sign(b'(') => Err(self.unexpected_inside()),
            _ => Err(self.unexpected()),
        }
    }

    /// Whether a query comes, or what gives rows and is no table: a function or a file.
    pub(super) fn is_query_or_rows(&self) -> bool {
        self.is_one_of(&["select", "values", "with", "from"])
            || self.is_sign(b'(')
            || matches!(self.kind(), Kind::String(_))
            || self.is_function_in_from()
    }

    /// A query, or the query of all rows of a table, a function or a file.
    pub(super) fn query_or_table(&mut self) -> Result<Query> {
        if self.is_one_of(&["select", "values", "with", "from", "table"]) || self.is_sign(b'(') {
            return self.query();
        }
        let start = self.span();
        let from = vec![self.single_table()?];
        let span = start.to(self.last_span());
        let expr = Expr { kind: ExprKind::Wildcard(None), span };
        let select = Select { from, ..Select::of(vec![expr], span) };
        Ok(Query::of(QueryBody::Select(Box::new(select)), span))
    }

    /// SELECT. If it begins with FROM, that has been read.
    fn select(&mut self, mut from: Vec<crate::tree::TableExpr>, start: Span) -> Result<Select> {
        let is_from_first = !from.is_empty();
        let mut distinct = Distinct::All;
        let mut items = Vec::new();
        let mut into = None;
        if self.take_word("select") {
            if self.take_word("distinct") {
                distinct = match self.take_word("on") {
                    true => Distinct::On(self.in_parentheses(Self::exprs)?),
                    false => Distinct::Rows,
                };
            } else {
                self.take_word("all");
            }
            let is_empty = matches!(distinct, Distinct::All)
                && self.ends_clause(&["from", "into", "where", "group", "having", "window", "with", "on", "returning"]);
            if !is_empty {
                items = self.list(Self::select_item)?;
            }
            if self.take_word("into") {
                into = Some(self.into()?);
            }
            if !is_from_first && self.take_word("from") {
                from = self.list(Self::table)?;
            }
        } else {
            let span = self.last_span();
            let expr = Expr { kind: ExprKind::Wildcard(None), span };
            items.push(SelectItem { expr, alias: None, exclude: Vec::new(), replace: Vec::new() });
        }
        let filter = if self.take_word("where") { Some(self.expr()?) } else { None };
        let group_by = self.group_by()?;
        let having = if self.take_word("having") { Some(self.expr()?) } else { None };
        let mut windows = Vec::new();
        if self.take_word("window") {
            windows = self.list(|parser| {
                let name = parser.ident()?;
                parser.expect_word("as")?;
                Ok((name, parser.window()?))
            })?;
        }
        let qualify = if self.take_word("qualify") { Some(self.expr()?) } else { None };
        let span = start.to(self.last_span());
        Ok(Select { distinct, items, into, from, filter, group_by, having, windows, qualify, span })
    }

    /// Whether a clause is empty: the end of the query comes, or one of the clauses behind it.
    fn ends_clause(&self, next: &[&str]) -> bool {
        matches!(self.kind(), Kind::End | Kind::Sign(b')' | b';')) || self.is_one_of(next) || self.goes_on_as_query()
    }

    fn into(&mut self) -> Result<Into> {
        let _ = self.take_word("local") || self.take_word("global");
        let temporary = self.take_word("temporary") || self.take_word("temp");
        if !temporary {
            self.take_word("unlogged");
        }
        self.take_word("table");
        Ok(Into { name: self.relation_name()?, temporary })
    }

    /// An item of SELECT or RETURNING.
    pub(super) fn select_item(&mut self) -> Result<SelectItem> {
        let span = self.span();
        let expr = match self.take_operator("*") {
            true => Expr { kind: ExprKind::Wildcard(None), span },
            false => {
                let nesting = self.nesting();
                let around = std::mem::replace(&mut self.item, nesting);
                let expr = self.expr();
                self.item = around;
                expr?
            }
        };
        let mut item = SelectItem { expr, alias: None, exclude: Vec::new(), replace: Vec::new() };
        if matches!(item.expr.kind, ExprKind::Wildcard(_)) {
            if self.is_word("exclude") {
                self.at += 1;
                item.exclude = match self.is_sign(b'(') {
                    true => self.in_parentheses(|parser| parser.list(Self::ident))?,
                    false => vec![self.ident()?],
                };
            }
            if self.is_word("replace") && *self.kind_ahead(1) == Kind::Sign(b'(') {
                self.at += 1;
                item.replace = self.in_parentheses(|parser| {
                    parser.list(|parser| {
                        let value = parser.expr()?;
                        parser.expect_word("as")?;
                        Ok((value, parser.label()?))
                    })
                })?;
            }
            let is_qualified = matches!(item.expr.kind, ExprKind::Wildcard(Some(_)));
            if !is_qualified || !item.exclude.is_empty() || !item.replace.is_empty() {
                return Ok(item);
            }
        }
        item.alias = match self.take_word("as") {
            true => Some(self.label()?),
            false => self.bare_label(),
        };
        Ok(item)
    }

    fn group_by(&mut self) -> Result<GroupBy> {
        if !self.take_word("group") {
            return Ok(GroupBy::Items { distinct: false, items: Vec::new() });
        }
        self.expect_word("by")?;
        let distinct = self.take_word("distinct");
        if !distinct && self.take_word("all") && self.ends_clause(&["having", "window", "qualify"]) {
            return Ok(GroupBy::All);
        }
        Ok(GroupBy::Items { distinct, items: self.list(Self::group_item)? })
    }

    fn group_item(&mut self) -> Result<GroupItem> {
        let opens = *self.kind_ahead(1) == Kind::Sign(b'(');
        if self.is_sign(b'(') && *self.kind_ahead(1) == Kind::Sign(b')') {
            self.at += 2;
            return Ok(GroupItem::Empty);
        }
        if self.is_word("rollup") && opens {
            self.at += 1;
            return Ok(GroupItem::Rollup(self.in_parentheses(Self::exprs)?));
        }
        if self.is_word("cube") && opens {
            self.at += 1;
            return Ok(GroupItem::Cube(self.in_parentheses(Self::exprs)?));
        }
        if self.take_words(&["grouping", "sets"]) {
            let sets = self.deeper(|parser| parser.in_parentheses(|parser| parser.list(Self::group_item)))?;
            return Ok(GroupItem::Sets(sets));
        }
        Ok(GroupItem::Expr(self.expr()?))
    }

    /// ORDER BY, LIMIT, OFFSET, FETCH and FOR.
    fn tail(&mut self, query: &mut Query) -> Result<()> {
        if self.are_words(&["order", "by", "all"]) && self.ends_order_by_all() {
            self.at += 3;
            let descending = self.take_word("desc");
            if !descending {
                self.take_word("asc");
            }
            let nulls = if self.take_words(&["nulls", "first"]) {
                Some(true)
            } else {
                self.take_words(&["nulls", "last"]).then_some(false)
            };
            query.order_by_all = Some((descending, nulls));
        } else {
            query.order_by = self.order_by()?;
        }
        let (mut has_limits, mut has_locks) = (false, false);
        loop {
            if !has_limits && self.is_one_of(&["limit", "fetch", "offset"]) {
                has_limits = true;
                let is_offset = self.is_word("offset");
                self.limit_or_offset(query)?;
                let is_other = if is_offset { self.is_one_of(&["limit", "fetch"]) } else { self.is_word("offset") };
                if is_other {
                    self.limit_or_offset(query)?;
                }
            } else if !has_locks && self.is_word("for") {
                has_locks = true;
                if self.take_words(&["for", "read", "only"]) {
                    continue;
                }
                while self.is_word("for") {
                    let lock = self.lock()?;
                    query.locks.push(lock);
                }
            } else {
                break;
            }
        }
        self.check_tail(query)
    }

    fn limit_or_offset(&mut self, query: &mut Query) -> Result<()> {
        let at = self.span();
        match self.word() {
            Some("limit") => {
                self.at += 1;
                if !self.take_word("all") {
                    query.limit = Some(self.expr()?);
                }
                if self.is_sign(b',') {
                    return Err(ParseError::at("LIMIT #,# syntax is not supported", at));
                }
            }
            Some("offset") => {
                self.at += 1;
                // ROWS stands behind what FETCH may have.
                let first = self.fetched()?;
                query.offset = Some(match first {
                    Some(count) if self.is_one_of(&["row", "rows"]) => {
                        self.at += 1;
                        count
                    }
                    Some(first) => self.expr_from(first)?,
                    None => self.expr()?,
                });
            }
            _ => self.fetch(query)?,
        }
        Ok(())
    }

    /// Refuses clauses behind a query in parentheses that the query has itself.
    fn check_tail(&self, query: &Query) -> Result<()> {
        let has_order = |query: &Query| !query.order_by.is_empty() || query.order_by_all.is_some();
        let (mut is_ordered, mut inner) = (has_order(query), &query.body);
        let place = |expr: Option<&Expr>| expr.map_or(query.span, |expr| expr.span);
        while let QueryBody::Nested(nested) = inner {
            let again = if has_order(nested) && has_order(query) {
                Some(("ORDER BY", place(query.order_by.first().map(|item| &item.expr))))
            } else if nested.offset.is_some() && query.offset.is_some() {
                Some(("OFFSET", place(query.offset.as_ref())))
            } else if nested.limit.is_some() && query.limit.is_some() {
                Some(("LIMIT", place(query.limit.as_ref())))
            } else if let (Some(_), Some(with)) = (&nested.with, &query.with) {
                Some(("WITH", with.span))
            } else {
                None
            };
            if let Some((clause, at)) = again {
                return Err(ParseError::at(format!("multiple {clause} clauses not allowed"), at));
            }
            is_ordered |= has_order(nested);
            inner = &nested.body;
        }
        let ties = query.limit.as_ref().map_or(query.span, |limit| limit.span);
        if query.with_ties && !is_ordered {
            return Err(ParseError::at("WITH TIES cannot be specified without ORDER BY clause", ties));
        }
        if query.with_ties && query.locks.iter().any(|lock| lock.wait == LockWait::SkipLocked) {
            return Err(ParseError::at("SKIP LOCKED and WITH TIES options cannot be used together", ties));
        }
        Ok(())
    }

    /// Whether the tokens behind DuckDB's ORDER BY ALL may stand there.
    fn ends_order_by_all(&self) -> bool {
        match self.kind_ahead(3) {
            Kind::End | Kind::Sign(b')' | b';') => true,
            Kind::Word(word, _) => {
                matches!(word.as_str(), "asc" | "desc" | "nulls" | "limit" | "offset" | "fetch" | "for" | "with" | "on")
            }
            _ => false,
        }
    }

    fn fetch(&mut self, query: &mut Query) -> Result<()> {
        self.at += 1;
        if !self.take_word("first") {
            self.expect_word("next")?;
        }
        let at = self.last_span();
        query.limit = Some(match self.is_one_of(&["row", "rows"]) {
            true => Expr { kind: ExprKind::Literal(crate::tree::Literal::Integer("1".into())), span: at },
            false => self.fetched()?.ok_or_else(|| self.unexpected())?,
        });
        if !self.take_word("row") {
            self.expect_word("rows")?;
        }
        query.with_ties = self.take_word("with");
        self.expect_word(if query.with_ties { "ties" } else { "only" })?;
        Ok(())
    }

    /// The count of FETCH: a number with its sign, or an operand without casts. `None` for other
    /// beginnings of an expression.
    fn fetched(&mut self) -> Result<Option<Expr>> {
        let start = self.span();
        let is_number = matches!(self.kind_ahead(1), Kind::Integer(_) | Kind::Numeric(_));
        match self.kind() {
            Kind::Operator(sign) if is_number && matches!(sign.as_str(), "+" | "-") => {
                let symbol = crate::tree::Operator { schema: None, symbol: sign.clone(), span: start };
                self.at += 1;
                let count = self.operand_with_parts()?;
                let span = start.to(count.span);
                Ok(Some(Expr { kind: ExprKind::Prefix(vec![symbol], Box::new(count)), span }))
            }
            Kind::Operator(_) => Ok(None),
            Kind::Word(word, _) if matches!(word.as_str(), "not" | "operator" | "default") => Ok(None),
            _ => self.operand_with_parts().map(Some),
        }
    }

    fn lock(&mut self) -> Result<Lock> {
        let start = self.span();
        self.at += 1;
        self.acts += 1;
        self.claims += 1;
        let strength = if self.take_word("update") {
            LockStrength::Update
        } else if self.take_word("no") {
            self.expect_words(&["key", "update"])?;
            LockStrength::NoKeyUpdate
        } else if self.take_word("share") {
            LockStrength::Share
        } else {
            self.expect_word("key")?;
            self.expect_word("share")?;
            LockStrength::KeyShare
        };
        let of = if self.take_word("of") { self.list(Self::name)? } else { Vec::new() };
        let wait = if self.take_word("nowait") {
            LockWait::NoWait
        } else if self.take_words(&["skip", "locked"]) {
            LockWait::SkipLocked
        } else {
            LockWait::Wait
        };
        Ok(Lock { strength, of, wait, span: start.to(self.last_span()) })
    }

    /// Names with what may stand behind them in a list of columns.
    pub(super) fn target(&mut self) -> Result<(Ident, Vec<crate::tree::Postfix>)> {
        let name = self.ident()?;
        let mut rest = Vec::new();
        loop {
            if self.is_sign(b'[') {
                rest.push(self.subscript()?);
            } else if self.take_sign(b'.') {
                rest.push(crate::tree::Postfix::Field(self.label()?));
            } else {
                return Ok((name, rest));
            }
        }
    }
}

fn joined(first: QueryBody, rest: Vec<(SetOperator, QueryBody)>) -> QueryBody {
    if rest.is_empty() { first } else { QueryBody::SetOperations(Box::new(first), rest) }
}
