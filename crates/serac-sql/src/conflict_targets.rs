//! ON CONFLICT (expression, …) WHERE condition: which unique index is meant.
//!
//! The parser takes names of columns alone. What else there is becomes ON CONSTRAINT with a name that no index has and that says it all.

use crate::ddl::parse_expression;
use crate::dialect::parser;
use crate::error::{Result, SqlError};
use crate::expressions::named_columns;
use crate::session::fold;
use crate::visits::visit_expressions_mut;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Ident};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};
use serac_engine::definition::{KeyDefinition, TableDefinition};
use serac_engine::{Table, TableIndex};
use std::ops::ControlFlow;
use std::sync::Arc;

const PREFIX: &str = "__serac_conflict ";
/// Stands between the list and the condition.
const WHERE: char = '\u{1}';

/// Puts names in the place of targets that the parser does not take.
pub(crate) fn conflict_targets(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut from = 0;
    while let Some((start, end, name)) = next_target(&tokens, from) {
        let span = tokens[start].span;
        let quoted = Token::Word(Word { value: name, quote_style: Some('"'), keyword: Keyword::NoKeyword });
        let named = [Token::make_keyword("ON"), Token::make_keyword("CONSTRAINT"), quoted];
        tokens.splice(start..end, named.map(|token| TokenWithSpan { token, span }));
        from = start;
    }
    tokens
}

/// The next target that needs a name: from its parenthesis on, up to DO; and the name.
fn next_target(tokens: &[TokenWithSpan], from: usize) -> Option<(usize, usize, String)> {
    let is = |at: usize, wanted: &str| match tokens.get(at).map(|token| &token.token) {
        Some(Token::Word(word)) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted),
        _ => false,
    };
    let next = |at: usize| (at..tokens.len()).find(|&at| !matches!(tokens[at].token, Token::Whitespace(_)));
    let text =
        |from: usize, to: usize| tokens[from..to].iter().map(|token| token.token.to_string()).collect::<String>();
    for on in (from..tokens.len()).filter(|&at| is(at, "on")) {
        let Some(conflict) = next(on + 1).filter(|&at| is(at, "conflict")) else { continue };
        let Some(open) = next(conflict + 1).filter(|&at| tokens[at].token == Token::LParen) else { continue };
        let mut depth = 0;
        let close = (open..tokens.len()).find(|&at| {
            depth += i32::from(tokens[at].token == Token::LParen) - i32::from(tokens[at].token == Token::RParen);
            depth == 0
        })?;
        let after = next(close + 1)?;
        let end = (after..tokens.len()).find(|&at| is(at, "do"))?;
        let is_plain =
            |token: &TokenWithSpan| matches!(token.token, Token::Word(_) | Token::Comma | Token::Whitespace(_));
        if end == after && tokens[open + 1..close].iter().all(is_plain) {
            continue;
        }
        let mut name = PREFIX.to_owned() + &text(open + 1, close);
        if is(after, "where") {
            name.push(WHERE);
            name += &text(after + 1, end);
        } else if end != after {
            continue;
        }
        return Some((open, end, name));
    }
    None
}

/// An expression as it is compared with others: names folded, without parentheses around it.
fn normal(mut expr: Expr) -> String {
    while let Expr::Nested(inner) = expr {
        expr = *inner;
    }
    let _ = visit_expressions_mut(&mut expr, |expr| {
        if let Expr::Identifier(name) = expr {
            *name = Ident::with_quote('"', fold(name));
        }
        ControlFlow::<()>::Continue(())
    });
    expr.to_string()
}

fn conjuncts(expr: Expr, all: &mut Vec<String>) {
    match expr {
        Expr::Nested(inner) => conjuncts(*inner, all),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            conjuncts(*left, all);
            conjuncts(*right, all);
        }
        other => all.push(normal(other)),
    }
}

/// What an index is over, and its condition.
fn parts(table: &TableDefinition, key: &KeyDefinition) -> Result<(Vec<String>, Vec<String>)> {
    let part = |i: usize| match key.expressions.get(i) {
        Some(Some(text)) => Ok(normal(parse_expression(text)?)),
        _ => Ok(normal(Expr::Identifier(Ident::with_quote('"', &table.columns[key.columns[i]].name)))),
    };
    let mut condition = Vec::new();
    if let Some(text) = &key.predicate {
        conjuncts(parse_expression(text)?, &mut condition);
    }
    Ok(((0..key.columns.len()).map(part).collect::<Result<_>>()?, condition))
}

/// The unique index that a name of [`conflict_targets`] means, if it is one and there is one: over all that is named and nothing else, its condition within
/// what is given.
pub(crate) fn index_of_target(table: &Table, name: &str) -> Option<Result<Option<Arc<TableIndex>>>> {
    let target = name.strip_prefix(PREFIX)?;
    let find = || {
        let (list, condition) = target.split_once(WHERE).map_or((target, None), |(list, text)| (list, Some(text)));
        let mut parser = parser(list)?;
        let list = parser.parse_comma_separated(Parser::parse_expr)?;
        parser.expect_token(&Token::EOF)?;
        let named: Vec<String> = list.into_iter().map(normal).collect();
        let mut given = Vec::new();
        if let Some(condition) = condition {
            conjuncts(parse_expression(condition)?, &mut given);
        }
        for index in table.indexes.iter().filter(|index| index.definition.unique) {
            let (parts, condition) = parts(&table.definition, &index.definition)?;
            let is_over_it = named.iter().all(|n| parts.contains(n)) && parts.iter().all(|p| named.contains(p));
            if is_over_it && condition.iter().all(|c| given.contains(c)) {
                return Ok(Some(index.clone()));
            }
        }
        Ok::<_, SqlError>(None)
    };
    Some(find())
}

/// The columns that users see of which an index tells.
pub(crate) fn told_columns(table: &TableDefinition, key: &KeyDefinition) -> Result<Vec<usize>> {
    let mut told = Vec::new();
    for &column in &key.columns {
        match table.columns[column].generation.as_deref().filter(|_| table.columns[column].hidden) {
            Some(values) => told.extend(named_columns(table, values)?),
            None => told.push(column),
        }
    }
    Ok(told)
}
