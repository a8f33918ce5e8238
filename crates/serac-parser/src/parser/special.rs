//! Functions that the grammar has words for.

use super::Parser;
use crate::error::{ParseError, Result};
use crate::lexer::Kind;
use crate::tree::{Expr, ExprKind, Special, TrimSide};

/// Functions of XML, which SeracDB does not have.
const XML: [&str; 9] =
    ["xmlconcat", "xmlelement", "xmlexists", "xmlforest", "xmlparse", "xmlpi", "xmlroot", "xmlserialize", "xmltable"];

impl Parser<'_> {
    /// Such a function, if the word that comes begins one.
    pub(super) fn special(&mut self, word: &str) -> Result<Option<Special>> {
        let opens = *self.kind_ahead(1) == Kind::Sign(b'(');
        let alone = match word {
            "current_date" => Some(Special::CurrentDate),
            "current_role" => Some(Special::CurrentRole),
            "current_user" => Some(Special::CurrentUser),
            "session_user" => Some(Special::SessionUser),
            "user" => Some(Special::User),
            "current_catalog" => Some(Special::CurrentCatalog),
            "current_schema" if !opens && !self.is_text(1) => Some(Special::CurrentSchema),
            _ => None,
        };
        if alone.is_some() {
            self.at += 1;
            return Ok(alone);
        }
        let of_time: Option<fn(Option<Expr>) -> Special> = match word {
            "current_time" => Some(Special::CurrentTime),
            "current_timestamp" => Some(Special::CurrentTimestamp),
            "localtime" => Some(Special::LocalTime),
            "localtimestamp" => Some(Special::LocalTimestamp),
            _ => None,
        };
        if let Some(of_time) = of_time {
            self.at += 1;
            return Ok(Some(of_time(self.digits()?.pop())));
        }
        if word == "collation" && self.word_ahead(1) == Some("for") {
            self.at += 2;
            return Ok(Some(Special::CollationFor(self.in_parentheses(Self::expr)?)));
        }
        if !opens {
            return Ok(None);
        }
        if XML.contains(&word) {
            // As PostgreSQL does where it was built without XML.
            return Err(ParseError::new(sqlstate::FEATURE_NOT_SUPPORTED, "unsupported XML feature", self.span().start));
        }
        let parse: fn(&mut Self) -> Result<Special> = match word {
            "extract" => Self::extract,
            "overlay" => Self::overlay,
            "position" => Self::position,
            "substring" => Self::substring,
            "trim" => Self::trim,
            "coalesce" => |parser| Ok(Special::Coalesce(parser.exprs()?)),
            "greatest" => |parser| Ok(Special::Greatest(parser.exprs()?)),
            "least" => |parser| Ok(Special::Least(parser.exprs()?)),
            "nullif" => |parser| {
                let left = parser.expr()?;
                parser.sign(b',')?;
                Ok(Special::NullIf(left, parser.expr()?))
            },
            "normalize" => |parser| {
                let text = parser.expr()?;
                let form = match parser.take_sign(b',') {
                    true => Some(parser.one_of(&["nfc", "nfd", "nfkc", "nfkd"])?),
                    false => None,
                };
                Ok(Special::Normalize(text, form))
            },
            _ => return Ok(None),
        };
        self.at += 1;
        self.deeper(|parser| parser.in_parentheses(parse)).map(Some)
    }

    /// `CAST(a AS t)`, whose word has been read.
    pub(super) fn cast(&mut self) -> Result<ExprKind> {
        self.in_parentheses(|parser| {
            let operand = Box::new(parser.expr()?);
            parser.expect_word("as")?;
            Ok(ExprKind::Cast { operand, to: Box::new(parser.type_name()?) })
        })
    }

    fn extract(&mut self) -> Result<Special> {
        let field = match self.kind() {
            Kind::Word(text, None) => text.clone(),
            Kind::Word(text, _) if matches!(text.as_str(), "year" | "month" | "day" | "hour" | "minute" | "second") => {
                text.clone()
            }
            Kind::Quoted(text) | Kind::String(text) => text.to_lowercase(),
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        self.expect_word("from")?;
        Ok(Special::Extract(field, self.expr()?))
    }

    fn overlay(&mut self) -> Result<Special> {
        let mut arguments = vec![self.expr()?];
        if self.take_word("placing") {
            arguments.push(self.expr()?);
            self.expect_word("from")?;
            arguments.push(self.expr()?);
            if self.take_word("for") {
                arguments.push(self.expr()?);
            }
        } else {
            while self.take_sign(b',') {
                arguments.push(self.expr()?);
            }
        }
        Ok(Special::Overlay(arguments))
    }

    fn position(&mut self) -> Result<Special> {
        let part = self.restricted_expr()?;
        self.expect_word("in")?;
        Ok(Special::Position(part, self.restricted_expr()?))
    }

    fn substring(&mut self) -> Result<Special> {
        let nesting = self.nesting();
        let around = std::mem::replace(&mut self.substring, nesting);
        let operand = self.expr();
        self.substring = around;
        let operand = operand?;
        let (mut from, mut length) = (None, None);
        if self.take_word("similar") {
            let pattern = self.expr()?;
            self.expect_word("escape")?;
            return Ok(Special::SubstringSimilar(operand, pattern, self.expr()?));
        }
        if self.take_sign(b',') {
            from = Some(self.expr()?);
            if self.take_sign(b',') {
                length = Some(self.expr()?);
            }
            return Ok(Special::Substring { operand, from, length });
        }
        loop {
            if from.is_none() && self.take_word("from") {
                from = Some(self.expr()?);
            } else if length.is_none() && self.take_word("for") {
                length = Some(self.expr()?);
            } else {
                return Ok(Special::Substring { operand, from, length });
            }
        }
    }

    fn trim(&mut self) -> Result<Special> {
        let side = match self.word() {
            Some("both") => Some(TrimSide::Both),
            Some("leading") => Some(TrimSide::Leading),
            Some("trailing") => Some(TrimSide::Trailing),
            _ => None,
        };
        if side.is_some() {
            self.at += 1;
        }
        let side = side.unwrap_or(TrimSide::Both);
        if self.take_word("from") {
            return Ok(Special::Trim { side, arguments: self.exprs()? });
        }
        let first = self.expr()?;
        if self.take_word("from") {
            let mut arguments = self.exprs()?;
            arguments.push(first);
            return Ok(Special::Trim { side, arguments });
        }
        let mut arguments = vec![first];
        while self.take_sign(b',') {
            arguments.push(self.expr()?);
        }
        Ok(Special::Trim { side, arguments })
    }

    /// `(a, b) OVERLAPS (c, d)`, whose first row has been read.
    pub(super) fn overlaps(&mut self, row: Expr) -> Result<Expr> {
        let start = row.span;
        self.at += 1;
        let ExprKind::Row { fields: mut all, .. } = row.kind else { return Err(self.unexpected()) };
        let is_row = self.is_sign(b'(') || self.is_word("row") && *self.kind_ahead(1) == Kind::Sign(b'(');
        if !is_row {
            return Err(self.unexpected());
        }
        let other = self.operand_with_parts()?;
        let ExprKind::Row { fields, .. } = other.kind else {
            // A parenthesis that ends before its second field.
            return Err(self.unexpected_at(self.last_span()));
        };
        for (side, count, at) in [("left", all.len(), start), ("right", fields.len(), other.span)] {
            if count != 2 {
                let message = format!("wrong number of parameters on {side} side of OVERLAPS expression");
                return Err(ParseError::at(message, at));
            }
        }
        all.extend(fields);
        let kind = ExprKind::Special(Box::new(Special::Overlaps(all)));
        Ok(Expr { kind, span: start.to(self.last_span()) })
    }
}
