//! Names of types, of several words some of them, and constants behind them.

use super::Parser;
use crate::error::Result;
use crate::lexer::Kind;
use crate::tree::{Expr, ExprKind, IntervalFields, Literal, Name, Span, TypeName};

impl Parser<'_> {
    /// A type, perhaps an array or a set of it.
    pub(super) fn type_name(&mut self) -> Result<TypeName> {
        let start = self.span();
        let is_set = self.take_word("setof");
        let mut name = self.simple_type()?;
        name.is_set = is_set;
        if self.take_word("array") {
            name.dimensions = 1;
            if self.take_sign(b'[') {
                self.bound_of_array()?;
                self.sign(b']')?;
            }
        } else {
            while self.take_sign(b'[') {
                if !self.is_sign(b']') {
                    self.bound_of_array()?;
                }
                self.sign(b']')?;
                name.dimensions += 1;
            }
        }
        name.span = start.to(self.last_span());
        Ok(name)
    }

    fn bound_of_array(&mut self) -> Result<()> {
        self.integer().map(drop)
    }

    /// A type without SETOF and array brackets.
    pub(super) fn simple_type(&mut self) -> Result<TypeName> {
        match self.type_of_words(true)? {
            Some(name) => Ok(name),
            None => self.generic_type(),
        }
    }

    fn generic_type(&mut self) -> Result<TypeName> {
        if !self.is_function_name(0) {
            return Err(self.unexpected());
        }
        let first = self.take_ident();
        let name = self.qualified(first)?;
        let span = name.span;
        let modifiers = self.modifiers()?;
        Ok(TypeName::of(name, modifiers, span))
    }

    /// The type of a parameter or of a function's result, which may be that of a column.
    pub(super) fn function_type(&mut self) -> Result<TypeName> {
        let start = self.span();
        let mut of = self.type_name()?;
        let may_be_column = of.name.parts.len() > 1 && of.modifiers.is_empty() && of.dimensions == 0;
        if may_be_column && self.is_operator("%") {
            self.at += 1;
            self.expect_word("type")?;
            of.of_column = true;
            of.span = start.to(self.last_span());
        }
        Ok(of)
    }

    fn modifiers(&mut self) -> Result<Vec<Expr>> {
        if self.is_sign(b'(') { self.in_parentheses(Self::exprs) } else { Ok(Vec::new()) }
    }

    /// A whole number in parentheses, if it comes.
    pub(super) fn digits(&mut self) -> Result<Vec<Expr>> {
        if !self.is_sign(b'(') {
            return Ok(Vec::new());
        }
        self.in_parentheses(|parser| {
            let span = parser.span();
            let digits = parser.integer()?.to_string();
            Ok(vec![Expr { kind: ExprKind::Literal(Literal::Integer(digits)), span }])
        })
    }

    /// A type that the grammar has words for, if one comes; with its modifiers, and an interval's
    /// fields, where these may stand before a constant, too.
    fn type_of_words(&mut self, has_fields: bool) -> Result<Option<TypeName>> {
        let start = self.span();
        let Kind::Word(word, Some(_)) = self.kind().clone() else { return Ok(None) };
        let simple = match word.as_str() {
            "int" | "integer" => Some("int4"),
            "smallint" => Some("int2"),
            "bigint" => Some("int8"),
            "real" => Some("float4"),
            "boolean" => Some("bool"),
            _ => None,
        };
        let own = |name: &str, modifiers, parser: &Self| {
            Ok(Some(TypeName::own(name, modifiers, start.to(parser.last_span()))))
        };
        if let Some(name) = simple {
            self.at += 1;
            return own(name, Vec::new(), self);
        }
        match word.as_str() {
            "float" => {
                self.at += 1;
                let modifiers = self.digits()?;
                let name = match &modifiers[..] {
                    [] => "float8",
                    [Expr { kind: ExprKind::Literal(Literal::Integer(digits)), span }] => match digits.parse::<u32>() {
                        Ok(1..=24) => "float4",
                        Ok(25..=53) => "float8",
                        Ok(0) => return Err(invalid("precision for type float must be at least 1 bit", *span)),
                        _ => return Err(invalid("precision for type float must be less than 54 bits", *span)),
                    },
                    _ => return Err(self.unexpected()),
                };
                own(name, Vec::new(), self)
            }
            "double" if self.word_ahead(1) == Some("precision") => {
                self.at += 2;
                own("float8", Vec::new(), self)
            }
            "decimal" | "dec" | "numeric" => {
                self.at += 1;
                let modifiers = self.modifiers()?;
                own("numeric", modifiers, self)
            }
            "bit" => {
                self.at += 1;
                let name = if self.take_word("varying") { "varbit" } else { "bit" };
                let modifiers = self.modifiers()?;
                own(name, modifiers, self)
            }
            "character" | "char" | "nchar" | "national" | "varchar" => {
                self.at += 1;
                if word == "national" && !self.take_word("character") {
                    self.expect_word("char")?;
                }
                let is_varying = word == "varchar" || self.take_word("varying");
                let mut modifiers = self.digits()?;
                // CHAR is CHAR(1), but before a constant it is of any length.
                if !is_varying && modifiers.is_empty() && has_fields {
                    let kind = ExprKind::Literal(Literal::Integer("1".into()));
                    modifiers.push(Expr { kind, span: start.to(self.last_span()) });
                }
                own(if is_varying { "varchar" } else { "bpchar" }, modifiers, self)
            }
            "time" | "timestamp" => {
                self.at += 1;
                let modifiers = self.digits()?;
                let has_zone = self.take_words(&["with", "time"]);
                if has_zone {
                    self.expect_word("zone")?;
                } else if self.take_word("without") {
                    self.expect_words(&["time", "zone"])?;
                }
                let name = match (word.as_str(), has_zone) {
                    ("time", false) => "time",
                    ("time", true) => "timetz",
                    (_, false) => "timestamp",
                    (_, true) => "timestamptz",
                };
                own(name, modifiers, self)
            }
            "interval" => {
                self.at += 1;
                let mut modifiers = self.digits()?;
                let fields =
                    if has_fields && modifiers.is_empty() { self.interval_fields(&mut modifiers)? } else { None };
                let of = TypeName::own("interval", modifiers, start.to(self.last_span()));
                Ok(Some(TypeName { fields, ..of }))
            }
            _ => Ok(None),
        }
    }

    /// `DAY TO SECOND(3)`.
    pub(super) fn interval_fields(&mut self, digits: &mut Vec<Expr>) -> Result<Option<IntervalFields>> {
        use IntervalFields as F;
        let Some(first) = self.word().map(str::to_owned) else { return Ok(None) };
        if !matches!(first.as_str(), "year" | "month" | "day" | "hour" | "minute" | "second") {
            return Ok(None);
        }
        self.at += 1;
        let goes_on = matches!(first.as_str(), "year" | "day" | "hour" | "minute");
        let last = match goes_on && self.take_word("to") {
            true => match self.word() {
                Some(word @ ("month" | "hour" | "minute" | "second")) => Some(word.to_owned()),
                _ => return Err(self.unexpected()),
            },
            false => None,
        };
        let fields = match (first.as_str(), last.as_deref()) {
            ("year", None) => F::Year,
            ("month", None) => F::Month,
            ("day", None) => F::Day,
            ("hour", None) => F::Hour,
            ("minute", None) => F::Minute,
            ("second", None) => F::Second,
            ("year", Some("month")) => F::YearToMonth,
            ("day", Some("hour")) => F::DayToHour,
            ("day", Some("minute")) => F::DayToMinute,
            ("day", Some("second")) => F::DayToSecond,
            ("hour", Some("minute")) => F::HourToMinute,
            ("hour", Some("second")) => F::HourToSecond,
            ("minute", Some("second")) => F::MinuteToSecond,
            _ => return Err(self.unexpected()),
        };
        if last.is_some() {
            self.at += 1;
        }
        if matches!(fields, F::Second | F::DayToSecond | F::HourToSecond | F::MinuteToSecond) {
            *digits = self.digits()?;
        }
        Ok(Some(fields))
    }

    /// A constant such as `date '2020-01-01'` of a type that the grammar has words for, if one
    /// comes.
    pub(super) fn typed_constant(&mut self) -> Result<Option<Expr>> {
        let start = self.span();
        if !self.is_constant() {
            return Ok(None);
        }
        let Some(mut to) = self.type_of_words(false)? else { return Ok(None) };
        let Kind::String(text) = self.kind().clone() else { return Err(self.unexpected()) };
        let literal = Expr { kind: ExprKind::Literal(Literal::String(text)), span: self.span() };
        self.at += 1;
        if to.name.parts[0].name == "interval" && to.modifiers.is_empty() {
            let mut digits = Vec::new();
            to.fields = self.interval_fields(&mut digits)?;
            to.modifiers = digits;
        }
        let kind = ExprKind::Cast { operand: Box::new(literal), to: Box::new(to) };
        Ok(Some(Expr { kind, span: start.to(self.last_span()) }))
    }

    /// Whether the word of a type that comes is no column's name: a string, a parenthesis or a
    /// further word of the type follows.
    fn is_constant(&self) -> bool {
        let word = self.word().unwrap_or_default();
        match self.kind_ahead(1) {
            Kind::String(_) => true,
            Kind::Sign(b'(') => matches!(
                word,
                "float"
                    | "decimal"
                    | "dec"
                    | "numeric"
                    | "bit"
                    | "character"
                    | "char"
                    | "nchar"
                    | "varchar"
                    | "time"
                    | "timestamp"
                    | "interval"
            ),
            Kind::Word(next, _) => match next.as_str() {
                "precision" => word == "double",
                "varying" => matches!(word, "bit" | "character" | "char" | "nchar"),
                "character" | "char" => word == "national",
                "with" => matches!(word, "time" | "timestamp") && self.word_ahead(2) == Some("time"),
                "without" => matches!(word, "time" | "timestamp"),
                _ => false,
            },
            _ => false,
        }
    }

    /// The name of a function.
    pub(super) fn function_name(&mut self) -> Result<Name> {
        let (is_column, is_function) = (self.is_column_name(0), self.is_function_name(0));
        if !is_column && !is_function {
            return Err(self.unexpected());
        }
        let first = self.take_ident();
        if is_column && matches!(self.kind(), Kind::Sign(b'.' | b'[')) {
            return self.indirection(first);
        }
        if !is_function {
            return Err(self.unexpected());
        }
        Ok(Name { span: first.span, parts: vec![first] })
    }
}

fn invalid(message: &str, span: Span) -> crate::ParseError {
    crate::ParseError::new(sqlstate::INVALID_PARAMETER_VALUE, message, span.start)
}
