//! CREATE TABLE … (LIKE table INCLUDING … EXCLUDING …, …): the columns of another table, and what else of it is asked for.
//!
//! The parser knows LIKE alone between the parentheses. So each becomes a column, whose name nobody else gives and whose default says the rest.

use super::builder::TableBuilder;
use super::indexes::index_base_name;
use crate::dialect::parser;
use crate::error::{Result, SqlError};
use datafusion::sql::sqlparser::ast::{ColumnDef, ColumnOption, Expr, ObjectName, Value};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use serac_engine::definition::{BitmapDefinition, ColumnDefinition, KeyDefinition, TableDefinition};

const NAME: &str = "__serac_like";
/// What may be taken over, beside columns with their types and NOT NULL.
const PARTS: [&str; 10] = [
    "comments",
    "compression",
    "constraints",
    "defaults",
    "generated",
    "identity",
    "indexes",
    "statistics",
    "storage",
    "all",
];

fn is(token: &Token, text: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text))
}

/// The tokens of statements with columns in the place of LIKE.
pub(crate) fn likes_as_columns(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|token| is(&token.token, "like")) || !tokens.iter().any(|token| is(&token.token, "create")) {
        return tokens;
    }
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    // Whether the statement is a CREATE … TABLE, and how many parentheses are open.
    let (mut words, mut depth) = (Vec::new(), 0);
    let mut before = Token::SemiColon;
    let mut rest = tokens.into_iter().peekable();
    while let Some(token) = rest.next() {
        if matches!(token.token, Token::Whitespace(_)) {
            out.push(token);
            continue;
        }
        let in_list = depth == 1 && matches!(before, Token::LParen | Token::Comma);
        let creates = words.first().is_some_and(|word| is(word, "create")) && words.iter().any(|w| is(w, "table"));
        match &token.token {
            Token::SemiColon => (words, depth) = (Vec::new(), 0),
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            word if in_list && creates && is(word, "like") => {
                let mut said = String::new();
                while let Some(part) = rest.next_if(|t| !matches!(t.token, Token::Comma | Token::RParen | Token::EOF)) {
                    said.push_str(&part.token.to_string());
                }
                let column = [
                    Token::make_word(NAME, Some('"')),
                    Token::make_keyword("TEXT"),
                    Token::make_keyword("DEFAULT"),
                    Token::SingleQuotedString(said),
                ];
                out.extend(column.map(|column| TokenWithSpan { token: column, span: token.span }));
                before = Token::EOF;
                continue;
            }
            word if depth == 0 && words.len() < 5 => words.push(word.clone()),
            _ => {}
        }
        before = token.token.clone();
        out.push(token);
    }
    out
}

/// What stands for a LIKE: the table, and what is taken over of it.
pub(super) struct Like {
    pub(super) table: ObjectName,
    parts: Vec<&'static str>,
}

impl Like {
    /// What a column says, if it stands for a LIKE.
    pub(super) fn of(column: &ColumnDef) -> Result<Option<Self>> {
        let Some(ColumnOption::Default(Expr::Value(said))) =
            column.options.first().map(|option| &option.option).filter(|_| column.name.value == NAME)
        else {
            return Ok(None);
        };
        let Value::SingleQuotedString(said) = &said.value else { return Ok(None) };
        let mut parser = parser(said)?;
        let table = parser.parse_object_name(false)?;
        let mut parts: Vec<&'static str> = Vec::new();
        loop {
            let mut next = || match parser.next_token().token {
                Token::EOF => Ok(None),
                Token::Word(word) => Ok(Some(word.value.to_ascii_lowercase())),
                other => Err(SqlError::new("42601", format!("syntax error at or near \"{other}\""))),
            };
            let Some(switch) = next()? else { break };
            let part = next()?.unwrap_or_default();
            let Some(&part) = PARTS.iter().find(|known| **known == part) else {
                return Err(SqlError::new("42601", format!("syntax error at or near \"{part}\"")));
            };
            let named = PARTS.iter().filter(|known| part == "all" || **known == part);
            match switch.as_str() {
                "including" => parts.extend(named),
                "excluding" => parts.retain(|known| part != "all" && *known != part),
                other => return Err(SqlError::new("42601", format!("syntax error at or near \"{other}\""))),
            }
        }
        Ok(Some(Self { table, parts }))
    }
    pub(super) fn has(&self, part: &str) -> bool {
        self.parts.contains(&part)
    }
}

impl TableBuilder {
    /// Adds the columns of another table, and what is asked for.
    pub(super) fn like(&mut self, like: &Like, source: &TableDefinition) -> Result<()> {
        let base = self.definition.columns.len();
        let key = source.primary_key();
        for (i, column) in source.visible_columns().iter().enumerate() {
            let own_sequence = column.always_generated && like.has("identity");
            self.definition.columns.push(ColumnDefinition {
                nullable: column.nullable && !key.is_some_and(|key| key.columns.contains(&i)),
                default: column.default.clone().filter(|_| like.has("defaults") && !column.always_generated),
                always_generated: own_sequence,
                generation: column.generation.clone().filter(|_| like.has("generated")),
                ..column.clone()
            });
            if own_sequence {
                self.own_sequence(base + i, &[])?;
            }
        }
        let moved = |columns: &[usize]| columns.iter().map(|&column| base + column).collect::<Vec<_>>();
        if like.has("constraints") {
            self.definition.checks.extend(source.checks.iter().cloned());
        }
        if like.has("indexes") {
            // An index that a foreign key has made for itself belongs to that.
            for key in source.keys.iter().filter(|key| key.unique || !key.constraint) {
                let (columns, include) = (moved(&key.columns), moved(&key.include));
                if key.expressions.is_empty() {
                    let name = self.index_name(&columns, key.primary, key.constraint);
                    self.definition.keys.push(KeyDefinition { name, columns, include, ..key.clone() });
                } else {
                    let parts = (0..columns.len()).map(|i| key.shown(i, source));
                    let name = self.free_name(index_base_name(&self.definition.name, parts));
                    self.expression_keys.push(KeyDefinition { name, columns, include, ..key.clone() });
                }
            }
            for bitmap in &source.bitmaps {
                let column = base + bitmap.column;
                let name = self.index_name(&[column], false, false);
                self.definition.bitmaps.push(BitmapDefinition { name, column });
            }
        }
        if like.has("storage") {
            self.definition.freeze_format = source.freeze_format;
        }
        Ok(())
    }
}
