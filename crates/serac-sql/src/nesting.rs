//! How deep a statement for sqlparser is nested: what bounds it, and what makes it less. Our own
//! parser and the binder bound queries and changes.
//!
//! Before a text is parsed, its tokens say how deep the tree can become at the most ([`estimate`]):
//! beyond [`MAX_ESTIMATE`] it is not parsed. Then chains of AND, of OR and of UNION, which the
//! parser puts one into the other, become balanced trees ([`balance`]): the same operands in the
//! same order, so that they are written as before. What is still deeper than [`MAX_DEPTH`] is
//! refused ([`check`]).

use crate::error::{Result, SqlError};
use crate::visits::{visit, visit_mut};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Query, SetExpr, SetOperator, SetQuantifier, Statement, TableFactor, Value, Values, VisitMut,
    Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Levels of a statement: expressions in expressions, queries in queries. A pair of parentheses is
/// none.
const MAX_DEPTH: usize = 200;
/// Levels from which on a part of a statement is deep.
const DEEP: usize = 32;
/// Levels of all deep parts together.
const MAX_DEEP: usize = 200_000;
/// Levels, and pairs of parentheses.
const MAX_LENGTH: usize = 12_000;
/// Levels that the tokens of a text may make.
pub(crate) const MAX_ESTIMATE: usize = 40_000;
/// Levels that any stack holds, in each phase.
pub(crate) const SHALLOW: usize = 16;
/// Dimensions of an array's type, and subscripts behind a value; types in types of a statement.
const MAX_BRACKETS: usize = 64;
/// Calls of the parser inside each other. A pair of parentheses takes up to four.
pub(crate) const PARSER_CALLS: usize = 5_000;
/// Operands from which on a chain is balanced.
const LONG: usize = 16;

/// What is known of the tokens between one parenthesis and its other half.
#[derive(Default)]
struct Level {
    /// Those of outer levels.
    below: usize,
    /// Set operations, which commas do not end.
    sets: usize,
    /// Clauses and conditions since the last comma.
    clauses: usize,
    /// Operators and words since the last clause.
    operators: usize,
    is_case: bool,
}

impl Level {
    fn depth(&self) -> usize {
        self.below + self.sets + self.clauses + self.operators
    }
}

/// How deep what is parsed from the tokens can be: more than it is, in most cases.
///
/// # Errors
/// 54001 for brackets in such numbers that their tree cannot be handled.
pub(crate) fn estimate(tokens: &[TokenWithSpan]) -> Result<usize> {
    let mut levels = vec![Level::default()];
    let (mut deepest, mut brackets) = (0, 0);
    let mut ends_bracket = false;
    // Trees that the parser's visitors do not enter, so that nothing else would bound them.
    let (mut hidden, mut before) = (0, Keyword::NoKeyword);
    for token in tokens.iter().map(|token| &token.token).filter(|token| !matches!(token, Token::Whitespace(_))) {
        let level = levels.last_mut().expect("the first stays");
        let (mut opens, mut closes) = (false, false);
        let mut is_case = false;
        match token {
            Token::SemiColon => {
                levels.clear();
                levels.push(Level::default());
            }
            Token::Comma => (level.clauses, level.operators) = (0, 0),
            Token::LParen | Token::LBracket => {
                level.operators += 1;
                opens = true;
            }
            Token::RParen | Token::RBracket => closes = true,
            Token::Word(word) if word.quote_style.is_some() => {}
            Token::Word(word) => match word.keyword {
                Keyword::NoKeyword => {}
                Keyword::CASE => {
                    level.operators += 1;
                    (opens, is_case) = (true, true);
                }
                Keyword::END if level.is_case => closes = true,
                Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT => {
                    level.sets += 1;
                    level.operators = 0;
                }
                Keyword::AND
                | Keyword::OR
                | Keyword::SELECT
                | Keyword::FROM
                | Keyword::WHERE
                | Keyword::GROUP
                | Keyword::ORDER
                | Keyword::HAVING
                | Keyword::JOIN
                | Keyword::ON
                | Keyword::USING
                | Keyword::WHEN
                | Keyword::THEN
                | Keyword::ELSE
                | Keyword::VALUES
                | Keyword::AS => {
                    level.clauses += 1;
                    level.operators = 0;
                }
                _ => level.operators += 1,
            },
            Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::Placeholder(_)
            | Token::Period
            | Token::EOF => {}
            _ => level.operators += 1,
        }
        if *token == Token::LBracket {
            brackets = if ends_bracket { brackets + 1 } else { 1 };
            if brackets > MAX_BRACKETS {
                return Err(SqlError::too_deep());
            }
        }
        ends_bracket = *token == Token::RBracket;
        let word = match token {
            Token::Word(word) => word.keyword,
            _ => Keyword::NoKeyword,
        };
        let begins_type = match token {
            Token::Lt => matches!(before, Keyword::ARRAY | Keyword::STRUCT),
            Token::LParen => matches!(before, Keyword::TABLE | Keyword::STRUCT | Keyword::MAP),
            _ => matches!(word, Keyword::NESTED | Keyword::SETOF),
        };
        hidden += usize::from(begins_type);
        if hidden > MAX_BRACKETS {
            return Err(SqlError::too_deep());
        }
        before = word;
        let depth = levels.last().expect("the first stays").depth();
        deepest = deepest.max(depth);
        if opens {
            levels.push(Level { below: depth, is_case, ..Level::default() });
        } else if closes && levels.len() > 1 {
            levels.pop();
        }
    }
    Ok(deepest)
}

/// Makes balanced trees of long chains of AND, OR and UNION.
pub(crate) fn balance(parsed: &mut impl VisitMut) {
    #[derive(Default)]
    struct Balancer {
        /// Where the expressions of a recursive WITH are.
        recursive: HashSet<*const Query>,
    }
    impl VisitorMut for Balancer {
        type Break = ();

        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
            if let Some(with) = query.with.as_ref().filter(|with| with.recursive) {
                self.recursive.extend(with.cte_tables.iter().map(|cte| &raw const *cte.query));
            }
            let is_recursive = self.recursive.remove(&(&raw const *query));
            let mut body = &mut *query.body;
            // Its first operation parts what is done once from what is done for each round.
            if is_recursive && let SetExpr::SetOperation { left, .. } = body {
                body = left;
            }
            loop {
                balance_sets(body);
                match body {
                    SetExpr::SetOperation { left, .. } => body = left,
                    _ => return ControlFlow::Continue(()),
                }
            }
        }
        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            balance_conditions(expr);
            ControlFlow::Continue(())
        }
    }
    let _ = visit_mut(parsed, &mut Balancer::default());
}

/// A tree of the operands in their order, each of which is at most one level deeper than another.
fn tree<T>(operands: Vec<T>, join: &impl Fn(T, T) -> T) -> T {
    fn part<T>(operands: &mut std::vec::IntoIter<T>, count: usize, join: &impl Fn(T, T) -> T) -> T {
        if count == 1 {
            return operands.next().expect("they are counted");
        }
        let left = part(operands, count.div_ceil(2), join);
        join(left, part(operands, count / 2, join))
    }
    let count = operands.len();
    part(&mut operands.into_iter(), count, join)
}

/// What may be a link of a chain, whose left side may be the next.
trait Linked: Sized {
    /// What joins two operands.
    type Operator;
    /// What stands where something has been taken from.
    fn nothing() -> Self;
    fn left(&self) -> Option<&Self>;
    /// Left side, operator and right side; itself if it has none.
    fn parts(self) -> std::result::Result<(Self, Self::Operator, Self), Self>;
}

impl Linked for Expr {
    type Operator = BinaryOperator;

    fn nothing() -> Self {
        Self::value(Value::Null)
    }
    fn left(&self) -> Option<&Self> {
        match self {
            Self::BinaryOp { left, .. } => Some(left),
            _ => None,
        }
    }
    fn parts(self) -> std::result::Result<(Self, BinaryOperator, Self), Self> {
        match self {
            Self::BinaryOp { left, op, right } => Ok((*left, op, *right)),
            other => Err(other),
        }
    }
}

impl Linked for SetExpr {
    type Operator = ();

    fn nothing() -> Self {
        Self::Values(Values { explicit_row: false, value_keyword: false, rows: Vec::new() })
    }
    fn left(&self) -> Option<&Self> {
        match self {
            Self::SetOperation { left, .. } => Some(left),
            _ => None,
        }
    }
    fn parts(self) -> std::result::Result<(Self, (), Self), Self> {
        match self {
            Self::SetOperation { left, right, .. } => Ok((*left, (), *right)),
            other => Err(other),
        }
    }
}

/// Takes the operands of a chain, and the operators between them, if there are at least `least`
/// operands. A part of it that `goes_on` is a link.
fn operands<T: Linked>(
    chain: &mut T,
    least: usize,
    goes_on: impl Fn(&T) -> bool,
) -> Option<(Vec<T>, Vec<T::Operator>)> {
    let mut count = 1;
    let mut rest = &*chain;
    while goes_on(rest)
        && let Some(left) = rest.left()
    {
        count += 1;
        rest = left;
    }
    if count < least {
        return None;
    }
    let (mut operands, mut operators) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let mut rest = std::mem::replace(chain, T::nothing());
    let first = loop {
        if !goes_on(&rest) {
            break rest;
        }
        match rest.parts() {
            Ok((left, operator, right)) => {
                operands.push(right);
                operators.push(operator);
                rest = left;
            }
            Err(first) => break first,
        }
    };
    operands.push(first);
    operands.reverse();
    operators.reverse();
    Some((operands, operators))
}

fn balance_conditions(expr: &mut Expr) {
    let Expr::BinaryOp { op: chained @ (BinaryOperator::And | BinaryOperator::Or), .. } = expr else { return };
    let chained = chained.clone();
    let goes_on = |expr: &Expr| matches!(expr, Expr::BinaryOp { op, .. } if *op == chained);
    let Some((operands, _)) = operands(expr, LONG, goes_on) else { return };
    *expr = tree(operands, &|left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: chained.clone(),
        right: Box::new(right),
    });
}

fn balance_sets(body: &mut SetExpr) {
    let union = |body: &SetExpr| match body {
        SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, .. } => match set_quantifier {
            SetQuantifier::All => Some(SetQuantifier::All),
            SetQuantifier::None | SetQuantifier::Distinct => Some(SetQuantifier::None),
            _ => None,
        },
        _ => None,
    };
    let Some(quantifier) = union(body) else { return };
    let Some((operands, _)) = operands(body, LONG, |body| union(body) == Some(quantifier)) else { return };
    *body = tree(operands, &|left, right| SetExpr::SetOperation {
        op: SetOperator::Union,
        set_quantifier: quantifier,
        left: Box::new(left),
        right: Box::new(right),
    });
}

/// Refuses a statement that is nested too deeply.
///
/// # Errors
/// 54001.
pub(crate) fn check(statement: &Statement) -> Result<()> {
    struct Depth {
        level: usize,
        /// Of all deep parts so far.
        deep: usize,
        length: usize,
        /// By how much each node above has made the level deeper.
        above: Vec<usize>,
    }
    impl Depth {
        fn enter(&mut self, by: usize, length: usize) -> ControlFlow<()> {
            self.above.push(by);
            self.level += by;
            self.length += length;
            if by > 0 && self.level > DEEP {
                self.deep += self.level;
            }
            match self.level > MAX_DEPTH || self.deep > MAX_DEEP || self.length > MAX_LENGTH {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
        fn leave(&mut self, length: usize) -> ControlFlow<()> {
            let by = self.above.pop().expect("it was entered");
            self.level -= by;
            self.length -= length;
            ControlFlow::Continue(())
        }
    }
    fn sets(query: &Query) -> usize {
        let (mut count, mut body) = (1, &*query.body);
        while let SetExpr::SetOperation { left, .. } = body {
            count += 1;
            body = left;
        }
        count
    }
    impl Visitor for Depth {
        type Break = ();

        fn pre_visit_statement(&mut self, _: &Statement) -> ControlFlow<()> {
            self.enter(1, 1)
        }
        fn post_visit_statement(&mut self, _: &Statement) -> ControlFlow<()> {
            self.leave(1)
        }
        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            let sets = sets(query);
            self.enter(sets, sets)
        }
        fn post_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            self.leave(sets(query))
        }
        fn pre_visit_table_factor(&mut self, _: &TableFactor) -> ControlFlow<()> {
            self.enter(1, 1)
        }
        fn post_visit_table_factor(&mut self, _: &TableFactor) -> ControlFlow<()> {
            self.leave(1)
        }
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            self.enter(usize::from(!matches!(expr, Expr::Nested(_))), 1)
        }
        fn post_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
            self.leave(1)
        }
    }
    match visit(statement, &mut Depth { level: 0, deep: 0, length: 0, above: Vec::new() }) {
        ControlFlow::Break(()) => Err(SqlError::too_deep()),
        ControlFlow::Continue(()) => Ok(()),
    }
}
