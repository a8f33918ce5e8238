//! Words that sqlparser does not know, in those that it does: passes over tokens.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

/// Statements and clauses that sqlparser does not know, in words that it does. What they ask for
/// beyond those is done anyway.
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
