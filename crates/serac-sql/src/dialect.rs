//! PostgreSQL's grammar, read in time that is linear in the text.
//!
//! The parser's own dialect lets the name of a named argument be any expression, so the parser
//! reads each argument of a function twice, and what is nested n deep 2^n times. [`PostgreSql`] is
//! that dialect without this: names of arguments are identifiers. Other productions are tried and
//! taken back only where a text is wrong, which nests as well. So expressions are counted while a
//! script is parsed ([`Steps`]): a text that has the parser begin many more of them than it has
//! tokens is refused. The count also is where a parser notices that nobody waits for it.

use crate::{deep, nesting};
use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use std::any::TypeId;
use std::cell::Cell;

/// Expressions that the parser may begin for each token of a text. Of a right one it begins two or
/// three.
const STEPS_PER_TOKEN: usize = 64;
/// The same for a text of hardly any token.
const FIRST_STEPS: usize = 10_000;
/// Between two looks whether anybody waits for the parser.
const STEPS_BETWEEN_LOOKS: u64 = 256;

/// PostgreSQL's dialect. See the [module](self).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PostgreSql;

const INNER: PostgreSqlDialect = PostgreSqlDialect {};

/// A parser of a text that is nested as deep as statements may be.
pub(crate) fn parser(sql: &str) -> Result<Parser<'static>, ParserError> {
    Parser::new(&PostgreSql).with_recursion_limit(nesting::PARSER_CALLS).try_with_sql(sql)
}

macro_rules! as_postgresql {
    ($($feature:ident)*) => { $(fn $feature(&self) -> bool { INNER.$feature() })* };
}

impl Dialect for PostgreSql {
    // The parser asks for the type where it has no method for a feature.
    fn dialect(&self) -> TypeId {
        TypeId::of::<PostgreSqlDialect>()
    }
    fn parse_prefix(&self, _: &mut Parser) -> Option<Result<Expr, ParserError>> {
        Steps::take().err().map(Err)
    }
    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }
    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        INNER.identifier_quote_style(identifier)
    }
    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        INNER.is_delimited_identifier_start(ch)
    }
    fn is_identifier_start(&self, ch: char) -> bool {
        INNER.is_identifier_start(ch)
    }
    fn is_identifier_part(&self, ch: char) -> bool {
        INNER.is_identifier_part(ch)
    }
    fn is_reserved_for_identifier(&self, keyword: Keyword) -> bool {
        INNER.is_reserved_for_identifier(keyword)
    }
    fn is_custom_operator_part(&self, ch: char) -> bool {
        INNER.is_custom_operator_part(ch)
    }
    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        INNER.get_next_precedence(parser)
    }
    fn prec_value(&self, precedence: Precedence) -> u8 {
        INNER.prec_value(precedence)
    }
    as_postgresql! {
        supports_unicode_string_literal supports_filter_during_aggregation supports_group_by_expr allow_extract_custom
        allow_extract_single_quotes supports_create_index_with_clause supports_explain_with_utility_options
        supports_listen_notify supports_factorial_operator supports_bitwise_shift_operators supports_comment_on
        supports_load_extension supports_named_fn_args_with_colon_operator supports_empty_projections
        supports_nested_comments supports_string_escape_constant supports_numeric_literal_underscores
        supports_array_typedef_with_brackets supports_geometric_types supports_set_names
        supports_alter_column_type_using supports_notnull_operator supports_interval_options
        supports_insert_table_alias supports_create_table_like_parenthesized supports_select_wildcard_with_alias
        supports_comma_separated_trim supports_xml_expressions supports_comment_optimizer_hint
    }
}

thread_local! {
    /// What is left of the steps of the text that this thread parses.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// The steps of one text, for as long as it is parsed.
pub(crate) struct Steps(u64);

impl Steps {
    /// For a text of so many tokens.
    pub(crate) fn of(tokens: usize) -> Self {
        let steps = tokens.saturating_mul(STEPS_PER_TOKEN).saturating_add(FIRST_STEPS);
        Self(LEFT.replace(steps as u64))
    }
    fn take() -> Result<(), ParserError> {
        let left = LEFT.get();
        // The only error that the parser does not take for a reason to try something else.
        if left == 0 || left.is_multiple_of(STEPS_BETWEEN_LOOKS) && deep::is_abandoned() {
            LEFT.set(0);
            return Err(ParserError::RecursionLimitExceeded);
        }
        LEFT.set(left - 1);
        Ok(())
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        LEFT.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    #[test]
    fn what_is_nested_is_parsed_once_and_what_is_wrong_not_for_ever() {
        let steps = |sql: &str| {
            let _steps = Steps::of(1_000_000);
            let before = LEFT.get();
            let parsed = parser(sql).unwrap().parse_statement();
            (before - LEFT.get(), parsed)
        };
        let nested = |open: &str, close: &str| format!("SELECT {}1{}", open.repeat(40), close.repeat(40));
        let calls = [("abs(", ")"), ("coalesce(1, ", ", 2)"), ("ARRAY[", "]"), ("ROW(1, ", ")"), ("f(a => ", ")")];
        for (open, close) in calls {
            let (count, parsed) = steps(&nested(open, close));
            parsed.unwrap();
            assert!(count < 40 * 6, "{open}: {count} steps");
        }
        // Each CAST is tried again as a call of a function of this name, which has others inside.
        let wrong = format!("SELECT {}1", "CAST(".repeat(60));
        let _steps = Steps::of(Tokenizer::new(&PostgreSql, &wrong).tokenize().unwrap().len());
        let parsed = parser(&wrong).unwrap().parse_statement();
        parsed.unwrap_err();
    }
}
