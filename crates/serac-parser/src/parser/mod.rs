//! Recursive descent over the tokens.
//!
//! | module | what |
//! |---|---|
//! | [`expression`] | operators by their precedence, and what follows an operand |
//! | [`primary`] | operands: constants, names, calls, what stands in parentheses |
//! | [`special`] | functions that the grammar has words for |
//! | [`types`] | names of types |
//! | [`query`] | SELECT, VALUES, WITH, set operations, ORDER BY, LIMIT |
//! | [`table`] | FROM |
//! | [`change`] | INSERT, UPDATE, DELETE, MERGE |
//! | [`statement`] | which statement it is, EXPLAIN |
//! | [`values`] | numbers, texts, options and roles, as many statements have them |
//! | [`define`] | CREATE TABLE |
//! | [`foreign`] | servers and foreign tables |
//! | [`constraint`] | constraints, elements of indexes, partitions |
//! | [`create`] | CREATE of indexes, views, sequences, schemas, databases, types, domains |
//! | [`function`] | functions and procedures, CALL, DO |
//! | [`alter`] | ALTER of relations |
//! | [`alter_object`] | ALTER of other things |
//! | [`drop`](mod@drop) | DROP, COMMENT |
//! | [`copy`] | COPY |
//! | [`session`] | SET, RESET, SHOW, transactions |
//! | [`cursor`] | prepared statements, cursors, LISTEN |
//! | [`role`] | roles, GRANT, REVOKE |
//! | [`maintenance`] | TRUNCATE, LOCK, VACUUM and its kin |

mod alter;
mod alter_object;
mod change;
mod constraint;
mod copy;
mod create;
mod cursor;
mod define;
mod drop;
mod expression;
mod foreign;
mod function;
mod maintenance;
mod primary;
mod query;
mod role;
mod session;
mod special;
mod statement;
mod table;
mod types;
mod values;

use crate::MAX_DEPTH;
use crate::error::{ParseError, Result};
use crate::keyword::Category;
use crate::lexer::{Kind, Token, tokens};
use crate::tree::{Expr, Ident, KeptExpr, Name, Span, Statement, StatementKind, TypeName};

/// Bytes of stack below which a new stack is taken, and bytes of the new stack.
const STACK: (usize, usize) = (256 << 10, 4 << 20);

/// The unread rest of a text.
pub(crate) struct Parser<'t> {
    sql: &'t str,
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    /// The depth in parentheses of the SELECT item that is being read.
    item: Option<u32>,
    /// The depth in parentheses of the first argument of SUBSTRING that is being read.
    substring: Option<u32>,
    /// Whether an element of CREATE SCHEMA is being read, which may not be CREATE TABLE … AS.
    in_schema: bool,
    /// Changes and claims of rows so far.
    acts: usize,
    /// Claims of rows so far.
    claims: usize,
    /// Databases in names so far, each once.
    databases: Vec<Ident>,
}

/// The beginning of a statement.
#[derive(Clone, Copy)]
struct Start {
    span: Span,
    acts: usize,
    claims: usize,
}

impl<'t> Parser<'t> {
    pub(crate) fn new(sql: &'t str) -> Result<Self> {
        let tokens = tokens(sql)?;
        let databases = Vec::new();
        let (item, substring, in_schema, acts, claims) = (None, None, false, 0, 0);
        Ok(Self { sql, tokens, at: 0, depth: 0, item, substring, in_schema, acts, claims, databases })
    }
    pub(crate) fn script(&mut self) -> Result<Vec<Statement>> {
        let mut statements = Vec::new();
        loop {
            while self.take_sign(b';') {}
            if self.is_end() {
                return Ok(statements);
            }
            self.databases.clear();
            statements.push(self.statement()?);
            if !self.is_end() && !self.is_sign(b';') {
                return Err(self.unexpected());
            }
        }
    }

    /// The beginning of the statement that comes.
    fn start(&self) -> Start {
        Start { span: self.span(), acts: self.acts, claims: self.claims }
    }

    /// The statement that has been read since `start`.
    fn read_since(&self, start: Start, kind: StatementKind) -> Statement {
        let span = start.span.to(self.last_span());
        let databases = self.databases.clone();
        Statement { kind, span, acts: self.acts > start.acts, claims: self.claims > start.claims, databases }
    }

    /// An expression, and nothing behind it.
    pub(crate) fn expression_alone(&mut self) -> Result<Expr> {
        let expr = self.expr()?;
        if self.is_end() { Ok(expr) } else { Err(self.unexpected()) }
    }

    /// A type, and nothing behind it.
    pub(crate) fn type_alone(&mut self) -> Result<TypeName> {
        let name = self.type_name()?;
        if self.is_end() { Ok(name) } else { Err(self.unexpected()) }
    }

    /// An expression, as `read` reads it, with its text.
    fn kept(&mut self, read: fn(&mut Self) -> Result<Expr>) -> Result<KeptExpr> {
        let start = self.span();
        let expr = read(self)?;
        Ok(KeptExpr { expr, text: start.to(self.last_span()) })
    }
    // ---- tokens

    fn kind(&self) -> &Kind {
        self.kind_ahead(0)
    }

    fn kind_ahead(&self, ahead: usize) -> &Kind {
        self.tokens.get(self.at + ahead).map_or(&Kind::End, |token| &token.kind)
    }

    fn span(&self) -> Span {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(Span::default(), |token| token.span)
    }

    /// The span of the token before.
    fn last_span(&self) -> Span {
        self.at.checked_sub(1).and_then(|at| self.tokens.get(at)).map_or(Span::default(), |token| token.span)
    }

    /// The depth in parentheses of the token that comes.
    fn nesting(&self) -> Option<u32> {
        self.tokens.get(self.at).map(|token| token.nesting)
    }

    fn is_end(&self) -> bool {
        matches!(self.kind(), Kind::End)
    }

    fn word(&self) -> Option<&str> {
        self.word_ahead(0)
    }

    fn word_ahead(&self, ahead: usize) -> Option<&str> {
        match self.kind_ahead(ahead) {
            Kind::Word(word, _) => Some(word),
            _ => None,
        }
    }

    fn is_word(&self, word: &str) -> bool {
        self.word() == Some(word)
    }

    fn is_one_of(&self, words: &[&str]) -> bool {
        self.word().is_some_and(|word| words.contains(&word))
    }

    fn are_words(&self, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(ahead, word)| self.word_ahead(ahead) == Some(word))
    }

    fn take_word(&mut self, word: &str) -> bool {
        self.take_words(&[word])
    }

    /// Takes these words if all of them come.
    fn take_words(&mut self, words: &[&str]) -> bool {
        let come = self.are_words(words);
        if come {
            self.at += words.len();
        }
        come
    }

    fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.take_word(word) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn is_sign(&self, sign: u8) -> bool {
        *self.kind() == Kind::Sign(sign)
    }

    fn take_sign(&mut self, sign: u8) -> bool {
        let comes = self.is_sign(sign);
        if comes {
            self.at += 1;
        }
        comes
    }

    fn sign(&mut self, sign: u8) -> Result<()> {
        if self.take_sign(sign) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn is_operator(&self, symbol: &str) -> bool {
        matches!(self.kind(), Kind::Operator(operator) if operator == symbol)
    }

    fn take_operator(&mut self, symbol: &str) -> bool {
        let comes = self.is_operator(symbol);
        if comes {
            self.at += 1;
        }
        comes
    }

    /// The error of the token that comes.
    fn unexpected(&self) -> ParseError {
        if let Kind::Wrong(error) = self.kind() {
            return ParseError::clone(error);
        }
        let is_pair = self.at.checked_sub(1).is_some_and(|before| self.is_pair(before));
        self.unexpected_at(if is_pair { self.last_span() } else { self.span() })
    }

    /// The error of a token.
    fn unexpected_at(&self, span: Span) -> ParseError {
        if self.is_end() {
            return ParseError::at("syntax error at end of input", Span { start: span.end, end: span.end });
        }
        let text = self.sql.get(span.start as usize..span.end as usize).unwrap_or_default();
        ParseError::at(format!("syntax error at or near \"{text}\""), span)
    }

    /// Whether the word at a token has a meaning of its own because of the one behind it, so that
    /// it is no name.
    fn is_pair(&self, at: usize) -> bool {
        let word = |at: usize| match self.tokens.get(at).map(|token| &token.kind) {
            Some(Kind::Word(word, _)) => word.as_str(),
            _ => "",
        };
        match word(at) {
            "not" => matches!(word(at + 1), "between" | "in" | "like" | "ilike" | "similar"),
            "nulls" => matches!(word(at + 1), "first" | "last"),
            "with" => matches!(word(at + 1), "time" | "ordinality"),
            _ => false,
        }
    }

    /// The error behind parentheses that should open a query.
    fn unexpected_inside(&mut self) -> ParseError {
        while self.take_sign(b'(') {}
        self.take_word("values");
        self.unexpected()
    }

    /// Runs `parse` a level deeper.
    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= MAX_DEPTH {
            return Err(ParseError::new(
                sqlstate::STATEMENT_TOO_COMPLEX,
                "stack depth limit exceeded",
                self.span().start,
            ));
        }
        self.depth += 1;
        let result = stacker::maybe_grow(STACK.0, STACK.1, || parse(self));
        self.depth -= 1;
        result
    }

    /// One or more elements, with commas between them.
    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut all = vec![one(self)?];
        while self.take_sign(b',') {
            all.push(one(self)?);
        }
        Ok(all)
    }

    fn in_parentheses<T>(&mut self, inside: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.sign(b'(')?;
        let inside = inside(self)?;
        self.sign(b')')?;
        Ok(inside)
    }

    // ---- names

    /// Whether the token this many tokens ahead is a name. Keywords of these categories are names.
    fn is_name(&self, ahead: usize, categories: &[Category]) -> bool {
        if self.is_pair(self.at + ahead) {
            return false;
        }
        match self.kind_ahead(ahead) {
            Kind::Quoted(_) => true,
            Kind::Word(_, keyword) => keyword.is_none_or(|keyword| categories.contains(&keyword.category)),
            _ => false,
        }
    }

    fn is_column_name(&self, ahead: usize) -> bool {
        self.is_name(ahead, &[Category::Unreserved, Category::ColumnName])
    }

    fn is_function_name(&self, ahead: usize) -> bool {
        self.is_name(ahead, &[Category::Unreserved, Category::TypeOrFunction])
    }

    fn take_ident(&mut self) -> Ident {
        let span = self.span();
        let name = match self.kind() {
            Kind::Word(name, _) | Kind::Quoted(name) => name.clone(),
            _ => String::new(),
        };
        self.at += 1;
        Ident { name, span }
    }

    /// The name of a column, a table and the like.
    fn ident(&mut self) -> Result<Ident> {
        if self.is_column_name(0) { Ok(self.take_ident()) } else { Err(self.unexpected()) }
    }

    /// A name where any word is one.
    fn label(&mut self) -> Result<Ident> {
        match self.kind() {
            Kind::Word(..) | Kind::Quoted(_) if !self.is_pair(self.at) => Ok(self.take_ident()),
            _ => Err(self.unexpected()),
        }
    }

    /// A label without AS, if one comes.
    fn bare_label(&mut self) -> Option<Ident> {
        let is_label = match self.kind() {
            Kind::Quoted(_) => true,
            Kind::Word(_, keyword) => keyword.is_none_or(|keyword| keyword.is_bare_label),
            _ => false,
        };
        is_label.then(|| self.take_ident())
    }

    /// A name with qualifiers.
    fn name(&mut self) -> Result<Name> {
        let first = self.ident()?;
        self.qualified(first)
    }

    /// The name without its first part, if it has so many that this is a database.
    fn without_database(&mut self, mut name: Name, parts: usize) -> Name {
        if name.parts.len() == parts {
            let database = name.parts.remove(0);
            if self.databases.iter().all(|known| known.name != database.name) {
                self.databases.push(database);
            }
        }
        name
    }

    /// The rest of a name.
    fn qualified(&mut self, first: Ident) -> Result<Name> {
        let mut parts = vec![first];
        while self.take_sign(b'.') {
            parts.push(self.label()?);
        }
        let span = parts[0].span.to(self.last_span());
        Ok(Name { parts, span })
    }

    /// The rest of a name behind which PostgreSQL's grammar has subscripts and `.*`, to refuse them
    /// once they have come.
    fn indirection(&mut self, first: Ident) -> Result<Name> {
        let mut parts = vec![first];
        let mut is_wrong = false;
        loop {
            if self.is_sign(b'[') {
                is_wrong = true;
                self.subscript()?;
            } else if !self.take_sign(b'.') {
                break;
            } else if self.take_operator("*") {
                is_wrong = true;
            } else {
                parts.push(self.label()?);
            }
        }
        if is_wrong {
            return Err(self.unexpected());
        }
        let span = parts[0].span.to(self.last_span());
        Ok(Name { parts, span })
    }

    /// Names in parentheses, if they come.
    fn column_list(&mut self) -> Result<Vec<Ident>> {
        if self.is_sign(b'(') { self.in_parentheses(|parser| parser.list(Self::ident)) } else { Ok(Vec::new()) }
    }

    // ---- what a parenthesis opens

    /// Whether the parenthesis at a token opens a query, or one in further parentheses.
    fn opens_query(&self, at: usize) -> bool {
        let mut at = at;
        while self.tokens.get(at).is_some_and(|token| token.kind == Kind::Sign(b'(')) {
            at += 1;
        }
        self.starts_query(at - self.at)
    }

    /// Whether a query without parentheses starts this many tokens ahead.
    fn starts_query(&self, ahead: usize) -> bool {
        match self.word_ahead(ahead) {
            // It is a name elsewhere.
            Some("values") => *self.kind_ahead(ahead + 1) == Kind::Sign(b'('),
            word => matches!(word, Some("select" | "with" | "table")),
        }
    }
}

#[cfg(test)]
mod statement_tests;
#[cfg(test)]
mod tests;
