//! ON CONFLICT (expression, …) WHERE condition, which sqlparser does not take: it has names of
//! columns alone. The binder reads the target from its own tree.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};

/// Stands for a target in sqlparser's tree. No constraint is called so.
const NAME: &str = "";

/// Puts names in the place of targets that the parser does not take.
pub(crate) fn conflict_targets(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut from = 0;
    while let Some((start, end)) = next_target(&tokens, from) {
        let span = tokens[start].span;
        let quoted = Token::Word(Word { value: NAME.to_owned(), quote_style: Some('"'), keyword: Keyword::NoKeyword });
        let named = [Token::make_keyword("ON"), Token::make_keyword("CONSTRAINT"), quoted];
        tokens.splice(start..end, named.map(|token| TokenWithSpan { token, span }));
        from = start;
    }
    tokens
}

/// The next target that needs a name: from its parenthesis on, up to DO.
fn next_target(tokens: &[TokenWithSpan], from: usize) -> Option<(usize, usize)> {
    let is = |at: usize, wanted: &str| match tokens.get(at).map(|token| &token.token) {
        Some(Token::Word(word)) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted),
        _ => false,
    };
    let next = |at: usize| (at..tokens.len()).find(|&at| !matches!(tokens[at].token, Token::Whitespace(_)));
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
        if end != after && !is(after, "where") {
            continue;
        }
        return Some((open, end));
    }
    None
}
