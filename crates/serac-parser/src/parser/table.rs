//! FROM.

use super::Parser;
use crate::error::Result;
use crate::lexer::Kind;
use crate::tree::{
    Alias, ColumnType, Expr, ExprKind, Join, JoinKind, JoinOn, Query, QueryBody, Relation, Sample, TableExpr, TableKind,
};

/// The content of a parenthesis of FROM.
enum Inside {
    /// A query.
    Query(Box<Query>),
    /// A join.
    Table(TableExpr),
}

/// The names of an item, and their types if these are written.
#[derive(Default)]
struct Names {
    alias: Option<Alias>,
    columns: Vec<ColumnType>,
}

impl Parser<'_> {
    /// An item of FROM.
    pub(super) fn table(&mut self) -> Result<TableExpr> {
        self.deeper(|parser| {
            let first = parser.single_table()?;
            parser.joins(first)
        })
    }

    /// The joins behind a table.
    fn joins(&mut self, first: TableExpr) -> Result<TableExpr> {
        let mut joins = Vec::new();
        while let Some(join) = self.join()? {
            joins.push(join);
        }
        Ok(self.joined(first, joins))
    }

    /// The joins up to one without a condition of its own: the condition that comes then belongs to
    /// the join around them.
    fn inner_joins(&mut self, first: TableExpr) -> Result<TableExpr> {
        let mut joins = Vec::new();
        while !matches!(self.word(), Some("on" | "using")) {
            match self.join()? {
                Some(join) => joins.push(join),
                None => return Err(self.unexpected()),
            }
        }
        Ok(self.joined(first, joins))
    }

    fn joined(&self, left: TableExpr, joins: Vec<Join>) -> TableExpr {
        if joins.is_empty() {
            return left;
        }
        let span = left.span.to(self.last_span());
        TableExpr { kind: TableKind::Join { left: Box::new(left), joins }, span }
    }

    /// A join with a further table, if one comes.
    fn join(&mut self) -> Result<Option<Join>> {
        let Some((kind, is_natural)) = self.join_kind()? else { return Ok(None) };
        let mut right = self.single_table()?;
        let on = if kind == JoinKind::Cross {
            JoinOn::Nothing
        } else if is_natural {
            JoinOn::Natural
        } else {
            // `a JOIN b JOIN c ON … ON …`: further joins belong to the right side until its own
            // condition comes.
            if !matches!(self.word(), Some("on" | "using")) {
                right = self.deeper(|parser| parser.inner_joins(right))?;
            }
            self.condition_of_join()?
        };
        Ok(Some(Join { kind, on, right }))
    }

    fn join_kind(&mut self) -> Result<Option<(JoinKind, bool)>> {
        if self.take_word("cross") {
            self.expect_word("join")?;
            return Ok(Some((JoinKind::Cross, false)));
        }
        let is_natural = self.take_word("natural");
        let kind = match self.word() {
            Some("join") => JoinKind::Inner,
            Some("inner") => {
                self.at += 1;
                JoinKind::Inner
            }
            Some(word @ ("left" | "right" | "full")) => {
                let kind = match word {
                    "left" => JoinKind::Left,
                    "right" => JoinKind::Right,
                    _ => JoinKind::Full,
                };
                self.at += 1;
                self.take_word("outer");
                kind
            }
            _ if is_natural => return Err(self.unexpected()),
            _ => return Ok(None),
        };
        self.expect_word("join")?;
        Ok(Some((kind, is_natural)))
    }

    fn condition_of_join(&mut self) -> Result<JoinOn> {
        if self.take_word("on") {
            return Ok(JoinOn::Condition(self.expr()?));
        }
        self.expect_word("using")?;
        let columns = self.in_parentheses(|parser| parser.list(Self::ident))?;
        let alias = if self.take_word("as") { Some(self.ident()?) } else { None };
        Ok(JoinOn::Using(columns, alias))
    }

    pub(super) fn single_table(&mut self) -> Result<TableExpr> {
        let start = self.span();
        if let Kind::String(path) = self.kind().clone() {
            self.at += 1;
            let alias = self.names(false)?.alias;
            return Ok(TableExpr { kind: TableKind::File { path, alias }, span: start.to(self.last_span()) });
        }
        let lateral = self.take_word("lateral");
        let kind = if self.is_sign(b'(') {
            let inside = match lateral {
                true => self.parenthesis_of_query()?,
                false => self.parenthesis_of_table()?,
            };
            match inside {
                Inside::Query(query) => {
                    let alias = self.names(false)?.alias;
                    TableKind::Query { lateral, query, alias }
                }
                Inside::Table(table) => {
                    let alias = self.names(false)?.alias;
                    TableKind::Nested { table: Box::new(table), alias }
                }
            }
        } else if self.are_words(&["rows", "from"]) {
            self.at += 2;
            let calls = self.in_parentheses(|parser| {
                parser.list(|parser| {
                    let call = parser.function_in_from()?;
                    let columns = match parser.take_word("as") {
                        true => parser.in_parentheses(|parser| parser.list(Self::column_type))?,
                        false => Vec::new(),
                    };
                    Ok((call, columns))
                })
            })?;
            let ordinality = self.take_words(&["with", "ordinality"]);
            let Names { alias, columns } = self.names(true)?;
            TableKind::Functions { lateral, calls, rows_from: true, ordinality, alias, columns }
        } else if self.is_function_in_from() {
            let calls = vec![(self.function_in_from()?, Vec::new())];
            let ordinality = self.take_words(&["with", "ordinality"]);
            let Names { alias, columns } = self.names(true)?;
            TableKind::Functions { lateral, calls, rows_from: false, ordinality, alias, columns }
        } else if lateral || !self.is_column_name(0) && self.is_function_name(0) {
            // A name that is no table's name here is a function's.
            self.function_name()?;
            return Err(self.unexpected());
        } else {
            let relation = self.relation()?;
            let alias = self.names(false)?.alias;
            let sample = if self.take_word("tablesample") { Some(Box::new(self.sample()?)) } else { None };
            TableKind::Relation { relation, alias, sample }
        };
        Ok(TableExpr { kind, span: start.to(self.last_span()) })
    }

    /// The name of a table where its rows are read.
    pub(super) fn relation(&mut self) -> Result<Relation> {
        if self.take_word("only") {
            let name =
                if self.is_sign(b'(') { self.in_parentheses(Self::relation_name)? } else { self.relation_name()? };
            return Ok(Relation { name, only: true });
        }
        let name = self.relation_name()?;
        self.take_operator("*");
        Ok(Relation { name, only: false })
    }

    /// Whether a call comes: a name with a parenthesis behind it, or a function known by its word.
    pub(super) fn is_function_in_from(&self) -> bool {
        if let Some(word) = self.word() {
            if word == "only" {
                return false;
            }
            let has_none = matches!(
                word,
                "cast"
                    | "current_date"
                    | "current_time"
                    | "current_timestamp"
                    | "localtime"
                    | "localtimestamp"
                    | "current_role"
                    | "current_user"
                    | "session_user"
                    | "user"
                    | "current_catalog"
                    | "current_schema"
            );
            if has_none || word == "collation" && self.word_ahead(1) == Some("for") {
                return true;
            }
        }
        let mut ahead = 0;
        loop {
            match (self.kind_ahead(ahead), self.kind_ahead(ahead + 1)) {
                (Kind::Word(..) | Kind::Quoted(_), Kind::Sign(b'.')) => ahead += 2,
                (Kind::Word(..) | Kind::Quoted(_), Kind::Sign(b'(')) => return true,
                _ => return false,
            }
        }
    }
    pub(super) fn function_in_from(&mut self) -> Result<Expr> {
        let start = self.span();
        let word = self.word().unwrap_or_default().to_owned();
        if word == "cast" {
            self.at += 1;
            let kind = self.cast()?;
            return Ok(Expr { kind, span: start.to(self.last_span()) });
        }
        let kind = match self.special(&word)? {
            Some(special) => ExprKind::Special(Box::new(special)),
            None => {
                let name = self.function_name()?;
                ExprKind::Call(Box::new(self.windowless_call(name)?))
            }
        };
        Ok(Expr { kind, span: start.to(self.last_span()) })
    }

    fn parenthesis_of_table(&mut self) -> Result<Inside> {
        self.deeper(|parser| {
            parser.sign(b'(')?;
            let inside = if parser.starts_query(0) || parser.is_word("from") {
                Inside::Query(Box::new(parser.query()?))
            } else if parser.is_sign(b'(') {
                parser.nested_table()?
            } else {
                let first = parser.single_table()?;
                let at = parser.at;
                let table = parser.joins(first)?;
                if parser.at == at {
                    // A table alone has no parentheses.
                    return Err(parser.unexpected());
                }
                Inside::Table(table)
            };
            parser.sign(b')')?;
            Ok(inside)
        })
    }

    /// The parenthesis of LATERAL, which has a query.
    fn parenthesis_of_query(&mut self) -> Result<Inside> {
        let query = self.deeper(|parser| parser.in_parentheses(Self::query))?;
        Ok(Inside::Query(Box::new(query)))
    }

    fn nested_table(&mut self) -> Result<Inside> {
        let start = self.span();
        let (first, is_alone) = match self.parenthesis_of_table()? {
            Inside::Query(query) => {
                if self.goes_on_as_query() {
                    return Ok(Inside::Query(Box::new(self.query_from(None, QueryBody::Nested(query), start)?)));
                }
                let alias = self.names(false)?.alias;
                (TableKind::Query { lateral: false, query, alias }, false)
            }
            Inside::Table(table) => {
                let alias = self.names(false)?.alias;
                let is_alone = alias.is_none();
                (TableKind::Nested { table: Box::new(table), alias }, is_alone)
            }
        };
        let first = TableExpr { kind: first, span: start.to(self.last_span()) };
        let at = self.at;
        let table = self.joins(first)?;
        if self.at == at && !is_alone {
            // A table alone has no parentheses.
            return Err(self.unexpected());
        }
        Ok(Inside::Table(table))
    }

    /// The names behind an item, if any come.
    fn names(&mut self, may_have_types: bool) -> Result<Names> {
        let is_said = self.take_word("as");
        if is_said && may_have_types && self.is_sign(b'(') {
            let columns = self.in_parentheses(|parser| parser.list(Self::column_type))?;
            return Ok(Names { alias: None, columns });
        }
        if !is_said && !self.is_alias() {
            return Ok(Names::default());
        }
        let name = self.ident()?;
        let mut names = Names { alias: Some(Alias { name, columns: Vec::new() }), columns: Vec::new() };
        if self.is_sign(b'(') {
            let has_types = may_have_types && !matches!(self.kind_ahead(2), Kind::Sign(b',' | b')'));
            if has_types {
                names.columns = self.in_parentheses(|parser| parser.list(Self::column_type))?;
            } else if let Some(alias) = &mut names.alias {
                alias.columns = self.column_list()?;
            }
        }
        Ok(names)
    }

    /// Whether a name comes that is an alias without AS.
    fn is_alias(&self) -> bool {
        // These words are names elsewhere, and begin a clause here.
        self.is_column_name(0) && !self.is_word("qualify") && !self.are_words(&["cluster", "by"])
    }
    pub(super) fn column_type(&mut self) -> Result<ColumnType> {
        let name = self.ident()?;
        let type_name = self.type_name()?;
        let collation = if self.take_word("collate") { Some(self.name()?) } else { None };
        Ok(ColumnType { name, type_name, collation })
    }

    fn sample(&mut self) -> Result<Sample> {
        let method = self.function_name()?;
        let arguments = self.in_parentheses(Self::exprs)?;
        let seed = if self.take_word("repeatable") { Some(self.in_parentheses(Self::expr)?) } else { None };
        Ok(Sample { method, arguments, seed })
    }
}
