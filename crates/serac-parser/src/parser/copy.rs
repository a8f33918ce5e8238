//! COPY.

use super::Parser;
use crate::error::{ParseError, Result};
use crate::lexer::Kind;
use crate::tree::{Copy, CopyOption, CopySubject, CopyValue, Ident, StatementKind, Text, Value};

impl Parser<'_> {
    pub(super) fn copy(&mut self) -> Result<StatementKind> {
        self.at += 1;
        let mut options = Vec::new();
        let subject = if self.is_sign(b'(') {
            let statement = self.in_parentheses(Self::preparable)?;
            CopySubject::Query(Box::new(statement))
        } else {
            self.word_option("binary", "format", &mut options);
            let name = self.relation_name()?;
            CopySubject::Table { name, columns: self.column_list()? }
        };
        let is_table = matches!(subject, CopySubject::Table { .. });
        let from = match is_table {
            true => self.either("from", "to")?,
            false => {
                self.expect_word("to")?;
                false
            }
        };
        let at = self.last_span();
        let program = self.take_word("program");
        let file = match self.is_one_of(&["stdin", "stdout"]) {
            true => {
                self.at += 1;
                None
            }
            false => Some(self.text()?),
        };
        if is_table {
            self.delimiters(&mut options)?;
        }
        self.take_word("with");
        if self.is_sign(b'(') {
            options.extend(self.in_parentheses(|parser| parser.list(Self::copy_option))?);
        } else {
            self.old_options(&mut options)?;
        }
        let where_at = self.span();
        let filter = if is_table && self.take_word("where") { Some(self.expr()?) } else { None };
        if program && file.is_none() {
            return Err(ParseError::at("STDIN/STDOUT not allowed with PROGRAM", at));
        }
        if !from && filter.is_some() {
            return Err(ParseError::at("WHERE clause not allowed with COPY TO", where_at));
        }
        Ok(StatementKind::Copy(Box::new(Copy { subject, from, program, file, options, filter })))
    }

    /// `[USING] DELIMITERS 'x'`, as it was long ago.
    fn delimiters(&mut self, options: &mut Vec<CopyOption>) -> Result<()> {
        let start = self.span();
        if self.take_word("using") && !self.is_word("delimiters") {
            return Err(self.unexpected());
        }
        if self.take_word("delimiters") {
            let name = Self::named("delimiter", self.last_span());
            let value = Some(CopyValue::Text(self.text()?));
            options.push(CopyOption { name, value, span: start.to(self.last_span()) });
        }
        Ok(())
    }

    /// A word that is an option with a value, if it comes: BINARY is `format binary`.
    fn word_option(&mut self, word: &str, name: &str, options: &mut Vec<CopyOption>) -> bool {
        let comes = self.is_word(word);
        if comes {
            let span = self.span();
            let value = self.take_ident();
            // FREEZE and HEADER are switched on by their words.
            let value = if name == word { None } else { Some(CopyValue::Word(value)) };
            options.push(CopyOption { name: Self::named(name, span), value, span });
        }
        comes
    }

    /// An option in parentheses.
    fn copy_option(&mut self) -> Result<CopyOption> {
        let start = self.span();
        let name = self.label()?;
        let value = match self.kind() {
            Kind::Sign(b',' | b')') => None,
            Kind::Sign(b'(') => Some(CopyValue::List(self.in_parentheses(|parser| {
                parser.list(|parser| {
                    Ok(match parser.word_or_text()? {
                        Value::Text(Text { text, span }) => Ident { name: text, span },
                        Value::Word(word) => word,
                        Value::Number(_) => return Err(parser.unexpected()),
                    })
                })
            })?)),
            Kind::Operator(symbol) if symbol == "*" => {
                self.at += 1;
                Some(CopyValue::Star)
            }
            _ => Some(match self.value()? {
                Value::Word(word) => CopyValue::Word(word),
                Value::Text(text) => CopyValue::Text(text),
                Value::Number(number) => CopyValue::Number(number),
            }),
        };
        Ok(CopyOption { name, value, span: start.to(self.last_span()) })
    }

    /// Options without parentheses.
    fn old_options(&mut self, options: &mut Vec<CopyOption>) -> Result<()> {
        loop {
            let is_word = self.word_option("binary", "format", options)
                || self.word_option("csv", "format", options)
                || self.word_option("freeze", "freeze", options)
                || self.word_option("header", "header", options);
            if is_word {
                continue;
            }
            let start = self.span();
            let (name, value) = if self.is_one_of(&["delimiter", "null", "quote", "escape", "encoding"]) {
                let name = self.take_ident();
                if name.name != "encoding" {
                    self.take_word("as");
                }
                (name, CopyValue::Text(self.text()?))
            } else if self.take_word("force") {
                let word = self.one_of(&["quote", "not", "null"])?;
                let name = match word.name.as_str() {
                    "quote" => "force_quote",
                    "null" => "force_null",
                    _ => {
                        self.expect_word("null")?;
                        "force_not_null"
                    }
                };
                let name = Self::named(name, start.to(self.last_span()));
                let value = match name.name == "force_quote" && self.take_operator("*") {
                    true => CopyValue::Star,
                    false => CopyValue::List(self.list(Self::ident)?),
                };
                (name, value)
            } else {
                return Ok(());
            };
            options.push(CopyOption { name, value: Some(value), span: start.to(self.last_span()) });
        }
    }
}
