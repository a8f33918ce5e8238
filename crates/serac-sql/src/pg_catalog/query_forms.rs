//! Other words for clauses and operators: `FETCH FIRST`, `TABLE t`, VALUES with subqueries, `LIKE ANY`, `~ x`, `@ x`, `|/ x`, `||/ x`, `localtime`.

use super::rewrite::{arguments_of, cast_to, elements, function_name, literal, text};
use crate::calls::call;
use crate::identifiers::fold;
use crate::planner::is_scalar_function;
use crate::query::query_of;
use crate::result_names::is_wildcard;
use crate::same_names::has_subquery;
use crate::visits::visit_expressions;
use crate::wire::array_elements;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, ExactNumberInfo, Expr, Fetch, Function, FunctionArguments, GroupByExpr, Ident,
    LimitClause, OrderByKind, Query, Select, SelectItem, SetExpr, UnaryOperator, Value, ValueWithSpan,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};
use std::ops::ControlFlow;

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

/// `ORDER BY 1` of a query with groups, where the first item is computed of them, as ORDER BY of
/// that item: the planner looks for a group of the item's name.
pub(super) fn numbers_in_order(query: &mut Query) {
    let (SetExpr::Select(select), Some(order)) = (&*query.body, &mut query.order_by) else { return };
    let (GroupByExpr::Expressions(groups, _), OrderByKind::Expressions(keys)) = (&select.group_by, &mut order.kind)
    else {
        return;
    };
    let named = |ident: &Ident| {
        let alias =
            |item: &SelectItem| matches!(item, SelectItem::ExprWithAlias { alias, .. } if fold(alias) == fold(ident));
        select.projection.iter().any(alias)
    };
    let is_aggregate = |function: &Function| function.over.is_none() && !is_scalar_function(&function_name(function));
    for key in keys {
        let Expr::Value(ValueWithSpan { value: Value::Number(number, _), .. }) = &key.expr else { continue };
        let Some(at) = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1)) else { continue };
        let Some(SelectItem::UnnamedExpr(item)) = select.projection.get(at) else { continue };
        let mut has_aggregate = false;
        // Names of the result go before those of the input, and windows may have names, too.
        let is_same_there = visit_expressions(item, |expr| match expr {
            Expr::Identifier(ident) if named(ident) => ControlFlow::Break(()),
            Expr::Function(function) if function.over.is_some() => ControlFlow::Break(()),
            Expr::Function(function) => {
                has_aggregate |= is_aggregate(function);
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Continue(()),
        })
        .is_continue();
        let is_found = match item {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) => true,
            Expr::Function(function) => is_aggregate(function),
            other => groups.contains(other),
        };
        let is_grouped = has_aggregate || !groups.is_empty();
        let has_wildcard = select.projection[..at].iter().any(is_wildcard);
        if is_grouped && is_same_there && !is_found && !has_wildcard && !has_subquery(item) {
            key.expr = item.clone();
        }
    }
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

/// `1e3`, a decimal number as in PostgreSQL, without its exponent. One that is longer than decimal numbers are here is a double.
pub(super) fn power_of_ten(written: &str) -> Option<Expr> {
    /// Digits of a decimal number.
    const MOST: i64 = 38;
    let (number, exponent) = written.split_once(['e', 'E'])?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    // Where the point is, counted from the first digit.
    let point = i64::from(exponent.parse::<i32>().ok()?) + whole.len() as i64;
    let count = digits.len() as i64;
    if point.abs().max(count).max(count - point) > MOST {
        return Some(cast_to(text(written), DataType::DoublePrecision));
    }
    Some(if point >= count {
        let zeros = "0".repeat((point - count) as usize);
        let precision = ExactNumberInfo::PrecisionAndScale(point.max(1) as u64, 0);
        cast_to(text(format!("{digits}{zeros}")), DataType::Numeric(precision))
    } else {
        let zeros = "0".repeat((-point).max(0) as usize);
        let (before, after) = digits.split_at(point.max(0) as usize);
        let before = if before.is_empty() { "0" } else { before };
        Expr::value(Value::Number(format!("{before}.{zeros}{after}"), false))
    })
}

/// `x LIKE ANY (array)` and `x LIKE ALL (array)`, of an array that is written out: a comparison with each of its elements.
pub(super) fn patterns(expr: &Expr) -> Option<Expr> {
    let (Expr::Like { any, pattern, .. } | Expr::ILike { any, pattern, .. }) = expr else { return None };
    let (op, array) = match &**pattern {
        pattern if *any => (BinaryOperator::Or, pattern.clone()),
        // Which the parser takes for a function.
        Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("all") => {
            (BinaryOperator::And, arguments_of(function).pop()?)
        }
        _ => return None,
    };
    let patterns = match literal(&array) {
        Some(written) => {
            array_elements(written)?.into_iter().map(|e| e.map_or(Expr::value(Value::Null), text)).collect()
        }
        None => elements(&array)?,
    };
    let compared = patterns.into_iter().map(|element| {
        let mut compared = expr.clone();
        if let Expr::Like { any, pattern, .. } | Expr::ILike { any, pattern, .. } = &mut compared {
            *any = false;
            **pattern = element;
        }
        compared
    });
    let both = |left, right| Expr::BinaryOp { left: Box::new(left), op: op.clone(), right: Box::new(right) };
    Some(Expr::Nested(Box::new(compared.reduce(both)?)))
}

/// `localtime`, a word that calls a function without parentheses.
pub(super) fn localtime(name: &str, function: &Function) -> Option<Expr> {
    (name == "localtime" && function.args == FunctionArguments::None).then(|| call("current_time", Vec::new()))
}

/// Statements and clauses that the parser does not know, in words that it does. What they ask for beyond those is done anyway.
///
/// | written | becomes |
/// |---|---|
/// | `ABORT` | `ROLLBACK` |
/// | `CREATE UNLOGGED TABLE` | `CREATE TABLE`: it is logged |
/// | `DROP INDEX CONCURRENTLY` | `DROP INDEX` |
/// | `trim(both FROM x)` | `trim(both x)` |
pub(crate) fn statement_words(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_of_these = |token: &TokenWithSpan| match &token.token {
        Token::Word(word) => {
            ["abort", "unlogged", "concurrently", "trim"].iter().any(|w| word.value.eq_ignore_ascii_case(w))
        }
        _ => false,
    };
    if !tokens.iter().any(is_of_these) {
        return tokens;
    }
    let word = |token: &TokenWithSpan| match &token.token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_ascii_lowercase(),
        Token::LParen => "(".into(),
        Token::SemiColon => ";".into(),
        _ => String::new(),
    };
    let words: Vec<usize> = (0..tokens.len()).filter(|&i| !matches!(tokens[i].token, Token::Whitespace(_))).collect();
    let mut before = [";".to_owned(), ";".to_owned(), ";".to_owned()];
    for at in words {
        let now = word(&tokens[at]);
        match (before.each_ref().map(String::as_str), now.as_str()) {
            ([.., ";"], "abort") => tokens[at].token = Token::make_keyword("ROLLBACK"),
            ([_, _, "create"], "unlogged") | ([_, "drop", "index"], "concurrently") => {
                tokens[at].token = Token::Whitespace(Whitespace::Space);
            }
            (["trim", "(", "both" | "leading" | "trailing"], "from") => {
                tokens[at].token = Token::Whitespace(Whitespace::Space);
            }
            _ => {}
        }
        before.rotate_left(1);
        before[2] = now;
    }
    tokens
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
/// ROLLUP and CUBE with an expression twice or with several in parentheses, as the sets that they stand for: the planner takes neither.
pub(super) fn grouping_sets(select: &mut Select) {
    /// The most columns of a CUBE that is written out.
    const MOST: usize = 12;
    let GroupByExpr::Expressions(groups, _) = &mut select.group_by else { return };
    for group in groups.iter_mut() {
        let (Expr::Rollup(parts) | Expr::Cube(parts)) = &*group else { continue };
        let repeats = (1..parts.len()).any(|i| parts[..i].contains(&parts[i]));
        if parts.len() > MOST || !(repeats || parts.iter().any(|part| part.len() != 1)) {
            continue;
        }
        let sets: Vec<Vec<Expr>> = match &*group {
            Expr::Rollup(_) => (0..=parts.len()).rev().map(|n| parts[..n].concat()).collect(),
            _ => {
                let set = |number: usize| {
                    let is_in = |at: &usize| (number >> at) & 1 == 1;
                    (0..parts.len()).filter(is_in).flat_map(|at| parts[at].clone()).collect()
                };
                (0..1_usize << parts.len()).rev().map(set).collect()
            }
        };
        *group = Expr::GroupingSets(sets);
    }
    let is_sets = |group: &Expr| matches!(group, Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_));
    if !groups.iter().any(is_sets) {
        return;
    }
    // Beside sets, a column is a set of its own: what depends on it would else stand in every set, also
    // where that is a column of others.
    for group in groups {
        let place = match &*group {
            Expr::Value(value) => value.to_string().parse::<usize>().ok(),
            _ => None,
        };
        let column = match place {
            Some(place) => select.projection.get(place.wrapping_sub(1)).and_then(|item| match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr.clone()),
                _ => None,
            }),
            None => Some(group.clone()),
        };
        if let Some(column @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) = column {
            *group = Expr::GroupingSets(vec![vec![column]]);
        }
    }
}
