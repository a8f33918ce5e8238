//! Other words for clauses and operators: `FETCH FIRST`, `TABLE t`, VALUES with subqueries, `~ x`, `@ x`, `|/ x`, `||/ x`, `localtime`.

use super::rewrite::{call, cast_to};
use crate::query::query_of;
use crate::same_names::has_subquery;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, Expr, Fetch, Function, FunctionArguments, LimitClause, Query, SetExpr, UnaryOperator,
    Value,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// `FETCH FIRST n ROWS ONLY` as `LIMIT n`. WITH TIES stays, and is refused by the planner (0A000).
pub(super) fn fetch(query: &mut Query) {
    let Some(Fetch { with_ties: false, percent: false, quantity }) = &query.fetch else { return };
    let limit = Some(quantity.clone().unwrap_or_else(|| Expr::value(Value::Number("1".into(), false))));
    let offset = match &query.limit_clause {
        None => None,
        Some(LimitClause::LimitOffset { limit: None, offset, limit_by }) if limit_by.is_empty() => offset.clone(),
        // LIMIT and FETCH together are an error.
        Some(_) => return,
    };
    query.limit_clause = Some(LimitClause::LimitOffset { limit, offset, limit_by: Vec::new() });
    query.fetch = None;
}

/// VALUES with subqueries as SELECTs: the planner computes VALUES before any subquery has run.
pub(super) fn values(body: &mut SetExpr) {
    let SetExpr::Values(values) = &*body else { return };
    if !has_subquery(values) {
        return;
    }
    let name = |i: usize| format!("column{}", i + 1);
    // Rows come in the order they are written in.
    let select = |(number, row): (usize, &[Expr])| {
        let items = row.iter().enumerate().map(|(i, expr)| format!("{expr} AS {}", name(i)));
        format!("SELECT {number} AS number, {}", items.collect::<Vec<_>>().join(", "))
    };
    let selects =
        values.rows.iter().map(|row| &row[..]).enumerate().map(select).collect::<Vec<_>>().join(" UNION ALL ");
    let names = (0..values.rows.first().map_or(0, |row| row.len())).map(name).collect::<Vec<_>>().join(", ");
    if let Ok(query) = query_of(&format!("SELECT {names} FROM ({selects}) AS r ORDER BY r.number")) {
        *body = SetExpr::Query(Box::new(query));
    }
}

/// Operators before an operand, as functions and operators that the planner knows.
pub(super) fn operator(op: UnaryOperator, operand: &Expr) -> Option<Expr> {
    let function = |name: &str| Some(call(name, vec![operand.clone()]));
    match op {
        // Of a type that does not widen the operand's.
        UnaryOperator::BitwiseNot => {
            let minus_one = Expr::value(Value::Number("-1".into(), false));
            let all_ones = Box::new(cast_to(minus_one, DataType::SmallInt(None)));
            let left = Box::new(Expr::Nested(Box::new(operand.clone())));
            let flipped = Expr::BinaryOp { left, op: BinaryOperator::PGBitwiseXor, right: all_ones };
            Some(Expr::Nested(Box::new(flipped)))
        }
        // The planner puts the sign before the text.
        UnaryOperator::Minus if matches!(operand, Expr::Interval(_)) => {
            let minus_one = Box::new(Expr::value(Value::Number("-1".into(), false)));
            let times =
                Expr::BinaryOp { left: Box::new(operand.clone()), op: BinaryOperator::Multiply, right: minus_one };
            Some(Expr::Nested(Box::new(times)))
        }
        UnaryOperator::PGAbs => function("abs"),
        UnaryOperator::PGSquareRoot => function("sqrt"),
        UnaryOperator::PGCubeRoot => function("cbrt"),
        _ => None,
    }
}

/// `localtime`, a word that calls a function without parentheses.
pub(super) fn localtime(name: &str, function: &Function) -> Option<Expr> {
    (name == "localtime" && function.args == FunctionArguments::None).then(|| call("current_time", Vec::new()))
}

/// `TABLE t`, where a query may begin, as `SELECT * FROM t`.
pub(crate) fn table_queries(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let begins_query = |before: &Token| match before {
        Token::EOF | Token::SemiColon | Token::LParen => true,
        Token::Word(word) => {
            use Keyword::{ALL, AS, EXCEPT, EXPLAIN, INTERSECT, UNION};
            matches!(word.keyword, ALL | AS | EXCEPT | EXPLAIN | INTERSECT | UNION) && word.quote_style.is_none()
        }
        _ => false,
    };
    let is_table =
        |token: &Token| matches!(token, Token::Word(w) if w.keyword == Keyword::TABLE && w.quote_style.is_none());
    if !tokens.iter().any(|token| is_table(&token.token)) {
        return tokens;
    }
    let (mut before, mut replaced) = (Token::EOF, Vec::with_capacity(tokens.len() + 8));
    for token in tokens {
        if matches!(token.token, Token::Whitespace(_)) {
            replaced.push(token);
            continue;
        }
        let last = std::mem::replace(&mut before, token.token.clone());
        if !(is_table(&token.token) && begins_query(&last)) {
            replaced.push(token);
            continue;
        }
        for word in [Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")] {
            replaced.push(TokenWithSpan { token: word, span: token.span });
        }
    }
    replaced
}
