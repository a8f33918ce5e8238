//! Expressions, by the precedence of their operators.
//!
//! | level | operators | |
//! |---|---|---|
//! | 1 | OR | list |
//! | 2 | AND | list |
//! | 3 | NOT | prefix |
//! | 4 | IS, ISNULL, NOTNULL | postfix |
//! | 5 | `< > = <= >= <>` | none beside another |
//! | 6 | BETWEEN, IN, LIKE, ILIKE, SIMILAR | none beside another |
//! | 7 | other operators, also as prefixes | from the left |
//! | 8 | `+ -` | from the left |
//! | 9 | `* / %` | from the left |
//! | 10 | `^` | from the left |
//! | 11 | AT TIME ZONE | from the left |
//! | 12 | COLLATE | postfix |
//! | 13 | the signs `+ -` | prefix |
//!
//! Subscripts, fields and `::` bind closer still; [`super::primary`] has them.

use super::Parser;
use crate::error::Result;
use crate::lexer::Kind;
use crate::tree::{Expr, ExprKind, Ident, IsTest, LikeKind, Operator, Postfix, Quantity, Span};

const OR: u8 = 1;
const AND: u8 = 2;
const NOT: u8 = 3;
const IS: u8 = 4;
const COMPARISON: u8 = 5;
const BETWEEN: u8 = 6;
const OTHER: u8 = 7;
const SUM: u8 = 8;
const PRODUCT: u8 = 9;
const POWER: u8 = 10;
const ZONE: u8 = 11;
const COLLATE: u8 = 12;
const SIGN: u8 = 13;

/// The operators that an expression may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kinds {
    /// All.
    All,
    /// Those that may stand before the AND of BETWEEN.
    Restricted,
}

/// The operand that has been read, and the operators that may still be added to it.
struct Left {
    expr: Expr,
    /// The level of the operand's list, if the list has been made here.
    open: Option<u8>,
    /// The level whose operators must not come again beside it.
    closed: Option<u8>,
}

impl Parser<'_> {
    /// An expression.
    pub(super) fn expr(&mut self) -> Result<Expr> {
        self.at_level(OR, Kinds::All)
    }

    /// An expression without AND, OR, NOT, IN, LIKE and most of IS.
    pub(super) fn restricted_expr(&mut self) -> Result<Expr> {
        self.at_level(OR, Kinds::Restricted)
    }

    /// Expressions in a row.
    pub(super) fn exprs(&mut self) -> Result<Vec<Expr>> {
        self.list(Self::expr)
    }

    /// The rest of an expression whose first operand has been read.
    pub(super) fn expr_from(&mut self, first: Expr) -> Result<Expr> {
        self.rest(first, OR, Kinds::All)
    }

    fn at_level(&mut self, least: u8, kinds: Kinds) -> Result<Expr> {
        self.deeper(|parser| {
            let first = parser.prefixed(kinds)?;
            parser.rest(first, least, kinds)
        })
    }

    fn prefixed(&mut self, kinds: Kinds) -> Result<Expr> {
        let start = self.span();
        if kinds == Kinds::All && self.take_word("not") {
            let mut count = 1usize;
            while self.take_word("not") {
                count += 1;
            }
            let at = self.at;
            let operand = self.at_level(NOT + 1, kinds).map_err(|error| {
                // An error at NOT itself belongs to the token behind it.
                let is_here = self.at == at && error.position == self.last_span().start;
                if is_here { self.unexpected_at(self.span()) } else { error }
            })?;
            return Ok(self.negated(operand, count, start));
        }
        let mut prefixes = Vec::new();
        let mut level = SIGN;
        while let Some(operator) = self.prefix_operator()? {
            let is_sign = matches!(operator.symbol.as_str(), "+" | "-");
            if !is_sign {
                level = OTHER + 1;
            }
            prefixes.push(operator);
            if !is_sign {
                break;
            }
        }
        if prefixes.is_empty() {
            // DEFAULT and UNIQUE stand where all operators may.
            if kinds == Kinds::Restricted && self.is_one_of(&["default", "unique"]) {
                return Err(self.unexpected());
            }
            return self.primary();
        }
        let operand = match level {
            SIGN if kinds == Kinds::All && self.is_word("not") => self.deeper(|parser| parser.prefixed(kinds))?,
            SIGN => self.primary()?,
            level => self.at_level(level, kinds)?,
        };
        let span = start.to(operand.span);
        Ok(Expr { kind: ExprKind::Prefix(prefixes, Box::new(operand)), span })
    }

    /// A row of NOTs is a tower of nodes. Two of them only require that the operand is a condition.
    fn negated(&self, operand: Expr, count: usize, start: Span) -> Expr {
        let span = start.to(operand.span);
        // An even number keeps two NOTs, which still require that the operand is a condition.
        let kept = if count > 2 { 2 - count % 2 } else { count };
        (0..kept).fold(operand, |operand, _| Expr { kind: ExprKind::Not(Box::new(operand)), span })
    }

    fn prefix_operator(&mut self) -> Result<Option<Operator>> {
        Ok(match self.kind() {
            Kind::Operator(symbol)
                if !matches!(symbol.as_str(), "*" | "/" | "%" | "^" | "<" | ">" | "=" | "<=" | ">=" | "<>") =>
            {
                Some(self.take_symbol())
            }
            Kind::Word(word, _) if word == "operator" && *self.kind_ahead(1) == Kind::Sign(b'(') => {
                Some(self.named_operator()?)
            }
            _ => None,
        })
    }

    fn take_symbol(&mut self) -> Operator {
        let span = self.span();
        let symbol = match self.kind() {
            Kind::Operator(symbol) => symbol.clone(),
            _ => String::new(),
        };
        self.at += 1;
        Operator { schema: None, symbol, span }
    }

    /// `OPERATOR(schema.+)`.
    pub(super) fn named_operator(&mut self) -> Result<Operator> {
        let start = self.span();
        self.at += 1;
        self.sign(b'(')?;
        let mut schema = None;
        while self.is_column_name(0) {
            schema = Some(self.take_ident());
            self.sign(b'.')?;
        }
        let Kind::Operator(_) = self.kind() else { return Err(self.unexpected()) };
        let operator = self.take_symbol();
        self.sign(b')')?;
        Ok(Operator { schema, span: start.to(self.last_span()), ..operator })
    }

    /// The level of the operator that comes; `None` if no operator comes.
    fn level(&self, kinds: Kinds) -> Option<u8> {
        let of_word = |word: &str| match word {
            "or" => Some(OR),
            "and" => Some(AND),
            "is" => Some(IS),
            "isnull" | "notnull" => Some(IS),
            // SUBSTRING has the word alone.
            "similar" if self.word_ahead(1) != Some("to") && self.is_part(self.substring) => None,
            "between" | "in" | "like" | "ilike" | "similar" => Some(BETWEEN),
            "not" => {
                let is_known = matches!(self.word_ahead(1), Some("between" | "in" | "like" | "ilike" | "similar"));
                is_known.then_some(BETWEEN)
            }
            "at" => Some(ZONE),
            "collate" => Some(COLLATE),
            "operator" => Some(OTHER),
            _ => None,
        };
        let level = match self.kind() {
            Kind::Word(word, _) => of_word(word),
            Kind::Operator(symbol) => Some(match symbol.as_str() {
                "<" | ">" | "=" | "<=" | ">=" | "<>" => COMPARISON,
                "+" | "-" => SUM,
                "*" | "/" | "%" => PRODUCT,
                "^" => POWER,
                _ => OTHER,
            }),
            _ => None,
        }?;
        let is_allowed = match kinds {
            Kinds::All => true,
            Kinds::Restricted => matches!(level, COMPARISON | OTHER | SUM | PRODUCT | POWER) || self.is_word("is"),
        };
        is_allowed.then_some(level)
    }

    /// Whether the word that comes can only be the label of an item of SELECT, because the item
    /// ends with it.
    fn is_label(&self) -> bool {
        if !matches!(self.kind(), Kind::Word(_, Some(keyword)) if keyword.is_bare_label) {
            return false;
        }
        let ends = match self.kind_ahead(1) {
            Kind::End | Kind::Sign(b',' | b')' | b';') => true,
            Kind::Word(next, _) => matches!(
                next.as_str(),
                "from"
                    | "into"
                    | "where"
                    | "group"
                    | "having"
                    | "window"
                    | "union"
                    | "intersect"
                    | "except"
                    | "order"
                    | "limit"
                    | "offset"
                    | "fetch"
                    | "for"
            ),
            _ => false,
        };
        ends && self.is_part(self.item)
    }

    /// Whether the token that comes stands in as many parentheses as the expression that is read.
    fn is_part(&self, nesting: Option<u32>) -> bool {
        nesting.is_some() && nesting == self.nesting()
    }

    fn rest(&mut self, first: Expr, least: u8, kinds: Kinds) -> Result<Expr> {
        let mut left = Left { expr: first, open: None, closed: None };
        loop {
            // What is no operand has been read: a cast of all that stands before it.
            if *self.kind() == Kind::Cast {
                let at = self.span();
                self.at += 1;
                let to = Box::new(self.type_name()?);
                left = followed(left, Postfix::Cast(to, at), self.last_span(), COLLATE);
                continue;
            }
            if least == OR && self.is_label() {
                break;
            }
            let Some(level) = self.level(kinds).filter(|level| *level >= least) else { break };
            if left.closed == Some(level) {
                return Err(self.unexpected());
            }
            left = match level {
                OR | AND => self.logic(left, level, kinds)?,
                IS => self.is(left, kinds)?,
                BETWEEN => self.between(left, kinds)?,
                ZONE => {
                    let at = self.span();
                    self.at += 1;
                    self.expect_words(&["time", "zone"])?;
                    let zone = self.at_level(ZONE + 1, kinds)?;
                    followed(left, Postfix::AtTimeZone(zone, at), self.last_span(), ZONE)
                }
                COLLATE => {
                    self.at += 1;
                    let name = self.name()?;
                    followed(left, Postfix::Collate(name), self.last_span(), COLLATE)
                }
                _ => self.binary(left, level, kinds)?,
            };
        }
        Ok(left.expr)
    }

    fn logic(&mut self, left: Left, level: u8, kinds: Kinds) -> Result<Left> {
        self.at += 1;
        let right = self.at_level(level + 1, kinds)?;
        let span = left.expr.span.to(right.span);
        let mut operands = match (left.open, left.expr) {
            (Some(open), Expr { kind: ExprKind::Or(all) | ExprKind::And(all), .. }) if open == level => all,
            (_, expr) => vec![expr],
        };
        operands.push(right);
        let kind = if level == OR { ExprKind::Or(operands) } else { ExprKind::And(operands) };
        Ok(Left { expr: Expr { kind, span }, open: Some(level), closed: None })
    }

    fn binary(&mut self, left: Left, level: u8, kinds: Kinds) -> Result<Left> {
        let operator = match self.kind() {
            Kind::Operator(_) => self.take_symbol(),
            _ => self.named_operator()?,
        };
        if kinds == Kinds::All && matches!(self.word(), Some("any" | "some" | "all")) {
            return self.quantified(left, operator);
        }
        let right = self.at_level(level + 1, kinds)?;
        let span = left.expr.span.to(right.span);
        let is_open = left.open == Some(level);
        let (first, mut rest) = match left.expr {
            Expr { kind: ExprKind::Operators(first, rest), .. } if is_open => (first, rest),
            expr => (Box::new(expr), Vec::new()),
        };
        rest.push((operator, right));
        let closed = (level == COMPARISON).then_some(COMPARISON);
        Ok(Left { expr: Expr { kind: ExprKind::Operators(first, rest), span }, open: Some(level), closed })
    }

    fn quantified(&mut self, left: Left, operator: Operator) -> Result<Left> {
        let all = self.is_word("all");
        self.at += 1;
        let right = match self.opens_query(self.at) && self.starts_query(1) {
            true => Quantity::Query(Box::new(self.in_parentheses(Self::query)?)),
            false => Quantity::Array(Box::new(self.in_parentheses(Self::expr)?)),
        };
        let span = left.expr.span.to(self.last_span());
        let kind = ExprKind::Quantified { left: Box::new(left.expr), operator, all, right };
        Ok(Left { expr: Expr { kind, span }, open: None, closed: None })
    }

    fn is(&mut self, left: Left, kinds: Kinds) -> Result<Left> {
        let at = self.span();
        let test = |negated, test| Postfix::Is { negated, test, at };
        let word = self.word().unwrap_or_default().to_owned();
        self.at += 1;
        match word.as_str() {
            "isnull" => return Ok(followed(left, test(false, IsTest::Null), self.last_span(), IS)),
            "notnull" => return Ok(followed(left, test(true, IsTest::Null), self.last_span(), IS)),
            _ => {}
        }
        let negated = self.take_word("not");
        // Before the AND of BETWEEN, IS allows only two tests.
        if kinds == Kinds::Restricted && !self.is_one_of(&["distinct", "document"]) {
            return Err(self.unexpected());
        }
        let asked = match self.word() {
            Some("null") => IsTest::Null,
            Some("true") => IsTest::True,
            Some("false") => IsTest::False,
            Some("unknown") => IsTest::Unknown,
            Some("document") => IsTest::Document,
            Some("normalized") => IsTest::Normalized(None),
            Some("nfc" | "nfd" | "nfkc" | "nfkd") => {
                let form = self.take_ident();
                if !self.is_word("normalized") {
                    return Err(self.unexpected());
                }
                IsTest::Normalized(Some(form))
            }
            Some("json") => {
                let has_kind = matches!(self.word_ahead(1), Some("value" | "scalar" | "array" | "object"));
                if has_kind {
                    self.at += 1;
                }
                let kind = Ident { name: self.word().unwrap_or_default().to_owned(), span: self.span() };
                IsTest::Json(has_kind.then_some(kind))
            }
            Some("distinct") => {
                self.at += 1;
                self.expect_word("from")?;
                let right = self.at_level(IS + 1, kinds)?;
                let mut left =
                    followed(left, test(negated, IsTest::DistinctFrom(Box::new(right))), self.last_span(), IS);
                left.closed = Some(IS);
                return Ok(left);
            }
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        Ok(followed(left, test(negated, asked), self.last_span(), IS))
    }

    fn between(&mut self, left: Left, kinds: Kinds) -> Result<Left> {
        let negated = self.take_word("not");
        let at = self.span();
        let word = self.word().unwrap_or_default().to_owned();
        self.at += 1;
        let operand = Box::new(left.expr);
        let start = operand.span;
        let mut closed = Some(BETWEEN);
        let kind = match word.as_str() {
            "between" => {
                let symmetric = self.take_word("symmetric");
                if !symmetric {
                    self.take_word("asymmetric");
                }
                let low = Box::new(self.restricted_expr()?);
                self.expect_word("and")?;
                let high = Box::new(self.at_level(BETWEEN + 1, kinds)?);
                ExprKind::Between { operand, negated, symmetric, low, high }
            }
            "in" => {
                closed = None;
                if self.is_sign(b'(') && self.opens_query(self.at) && self.starts_query(1) {
                    let query = Box::new(self.in_parentheses(Self::query)?);
                    ExprKind::InQuery { operand, negated, query }
                } else if self.is_sign(b'(') && self.opens_query(self.at) {
                    self.in_nested(operand, negated)?
                } else {
                    let list = self.in_parentheses(Self::exprs)?;
                    ExprKind::InList { operand, negated, list }
                }
            }
            _ => {
                let kind = match word.as_str() {
                    "like" => LikeKind::Like,
                    "ilike" => LikeKind::ILike,
                    _ => {
                        self.expect_word("to")?;
                        LikeKind::Similar
                    }
                };
                if kind != LikeKind::Similar && matches!(self.word(), Some("any" | "some" | "all")) {
                    let symbol = match (kind, negated) {
                        (LikeKind::Like, false) => "~~",
                        (LikeKind::Like, true) => "!~~",
                        (_, false) => "~~*",
                        (_, true) => "!~~*",
                    };
                    let operator = Operator { schema: None, symbol: symbol.into(), span: at };
                    return self.quantified(Left { expr: *operand, open: None, closed: None }, operator);
                }
                let pattern = Box::new(self.at_level(BETWEEN + 1, kinds)?);
                let escape = match self.take_word("escape") {
                    true => Some(Box::new(self.at_level(BETWEEN + 1, kinds)?)),
                    false => None,
                };
                ExprKind::Like { operand, negated, kind, pattern, escape, at }
            }
        };
        let span = start.to(self.last_span());
        Ok(Left { expr: Expr { kind, span }, open: None, closed })
    }

    /// `IN ((SELECT …) …)`: a query in parentheses, or a list that begins with one.
    fn in_nested(&mut self, operand: Box<Expr>, negated: bool) -> Result<ExprKind> {
        Ok(match self.parenthesis()? {
            super::primary::Inside::Query(query) => ExprKind::InQuery { operand, negated, query },
            super::primary::Inside::Exprs(list) => ExprKind::InList { operand, negated, list },
        })
    }
}

/// An operand with something behind it.
fn followed(left: Left, postfix: Postfix, end: Span, level: u8) -> Left {
    let span = left.expr.span.to(end);
    // A list of postfixes goes on at any of its levels.
    let is_open = matches!(left.open, Some(IS | ZONE | COLLATE));
    let kind = match left.expr {
        Expr { kind: ExprKind::Postfix(operand, mut all), .. } if is_open => {
            all.push(postfix);
            ExprKind::Postfix(operand, all)
        }
        expr => ExprKind::Postfix(Box::new(expr), vec![postfix]),
    };
    Left { expr: Expr { kind, span }, open: Some(level), closed: None }
}
