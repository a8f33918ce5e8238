//! Operands: constants, names, calls, CASE, and operands in parentheses.

use super::Parser;
use crate::error::{ParseError, Result};
use crate::lexer::Kind;
use crate::tree::{
    Argument, Call, Exclude, Expr, ExprKind, Frame, FrameBound, FrameUnit, Ident, Literal, Name, OrderItem, Over,
    Postfix, Query, QueryBody, Span, TypeName, Window,
};

/// The content of parentheses.
pub(super) enum Inside {
    /// A query.
    Query(Box<Query>),
    /// Expressions, with commas between them if there are several.
    Exprs(Vec<Expr>),
}

impl Parser<'_> {
    /// An operand, with subscripts, fields and casts behind it.
    pub(super) fn primary(&mut self) -> Result<Expr> {
        let (operand, has_parts) = self.operand()?;
        self.postfixes(operand, has_parts, true)
    }

    /// An operand without casts behind it.
    pub(super) fn operand_with_parts(&mut self) -> Result<Expr> {
        let (operand, has_parts) = self.operand()?;
        self.postfixes(operand, has_parts, false)
    }

    /// The postfixes that bind closest. Columns, parameters and operands in parentheses have parts:
    /// subscripts and fields.
    fn postfixes(&mut self, operand: Expr, mut has_parts: bool, has_casts: bool) -> Result<Expr> {
        let is_name = matches!(operand.kind, ExprKind::Name(_));
        let mut all = Vec::new();
        loop {
            let at = self.span();
            match self.kind() {
                Kind::Cast if has_casts => {
                    self.at += 1;
                    has_parts = false;
                    all.push(Postfix::Cast(Box::new(self.type_name()?), at));
                }
                Kind::Sign(b'[') if has_parts => all.push(self.subscript()?),
                Kind::Sign(b'.') if has_parts && (!is_name || !all.is_empty()) => {
                    self.at += 1;
                    if self.is_operator("*") {
                        self.at += 1;
                        has_parts = false;
                        all.push(Postfix::AllFields(at.to(self.last_span())));
                    } else {
                        all.push(Postfix::Field(self.label()?));
                    }
                }
                _ => break,
            }
        }
        if all.is_empty() {
            return Ok(operand);
        }
        let span = operand.span.to(self.last_span());
        Ok(Expr { kind: ExprKind::Postfix(Box::new(operand), all), span })
    }
    pub(super) fn subscript(&mut self) -> Result<Postfix> {
        self.sign(b'[')?;
        if self.take_sign(b':') {
            let to = if self.is_sign(b']') { None } else { Some(self.expr()?) };
            self.sign(b']')?;
            return Ok(Postfix::Slice(None, to));
        }
        let from = self.expr()?;
        let subscript = match self.take_sign(b':') {
            true => Postfix::Slice(Some(from), if self.is_sign(b']') { None } else { Some(self.expr()?) }),
            false => Postfix::Index(from),
        };
        self.sign(b']')?;
        Ok(subscript)
    }

    /// An operand, and whether it has parts.
    fn operand(&mut self) -> Result<(Expr, bool)> {
        let start = self.span();
        let literal = |literal| ExprKind::Literal(literal);
        let kind = match self.kind().clone() {
            Kind::Integer(digits) => literal(Literal::Integer(digits)),
            Kind::Numeric(digits) => literal(Literal::Numeric(digits)),
            Kind::String(text) => literal(Literal::String(text)),
            Kind::Bits(digits) => literal(Literal::Bits(digits)),
            Kind::HexBits(digits) => literal(Literal::HexBits(digits)),
            Kind::Parameter(number) => ExprKind::Parameter(number),
            Kind::Sign(b'(') => return self.parenthesized(),
            Kind::Word(..) | Kind::Quoted(_) => {
                let operand = self.of_word()?;
                let has_parts = matches!(operand.kind, ExprKind::Name(_));
                return Ok((operand, has_parts));
            }
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        let has_parts = matches!(kind, ExprKind::Parameter(_));
        Ok((Expr { kind, span: start }, has_parts))
    }

    fn parenthesized(&mut self) -> Result<(Expr, bool)> {
        let start = self.span();
        let inside = self.parenthesis()?;
        let span = start.to(self.last_span());
        let kind = match inside {
            Inside::Query(query) => ExprKind::Subquery(query),
            Inside::Exprs(mut exprs) if exprs.len() == 1 => {
                let Some(expr) = exprs.pop() else { return Err(self.unexpected()) };
                // Behind it a field may be named, where a name alone would go on.
                return match (&expr.kind, self.kind()) {
                    (ExprKind::Name(_), Kind::Sign(b'.')) => self.field_of(expr, span),
                    // The operand has its own place, without the parentheses, as PostgreSQL reports
                    // it.
                    _ => Ok((expr, true)),
                };
            }
            Inside::Exprs(fields) => {
                let row = Expr { kind: ExprKind::Row { fields, explicit: false }, span };
                let row = if self.is_word("overlaps") { self.overlaps(row)? } else { row };
                return Ok((row, false));
            }
        };
        Ok((Expr { kind, span }, true))
    }

    /// `(a).b`.
    fn field_of(&mut self, row: Expr, span: Span) -> Result<(Expr, bool)> {
        self.at += 1;
        let is_all = self.take_operator("*");
        let field = match is_all {
            true => Postfix::AllFields(self.last_span()),
            false => Postfix::Field(self.label()?),
        };
        let span = span.to(self.last_span());
        Ok((Expr { kind: ExprKind::Postfix(Box::new(row), vec![field]), span }, !is_all))
    }

    /// The content of a parenthesis. Only behind an inner query is it known whether the content is
    /// a query or an expression that begins with one. So both are read here.
    pub(super) fn parenthesis(&mut self) -> Result<Inside> {
        self.deeper(|parser| {
            parser.sign(b'(')?;
            let inside = if parser.starts_query(0) {
                Inside::Query(Box::new(parser.query()?))
            } else if parser.is_sign(b'(') && parser.opens_query(parser.at) {
                parser.nested_parenthesis()?
            } else {
                Inside::Exprs(parser.exprs()?)
            };
            parser.sign(b')')?;
            Ok(inside)
        })
    }

    fn nested_parenthesis(&mut self) -> Result<Inside> {
        let start = self.span();
        let (first, has_parts) = match self.parenthesis()? {
            Inside::Query(query) => {
                if self.goes_on_as_query() {
                    return Ok(Inside::Query(Box::new(self.query_from(None, QueryBody::Nested(query), start)?)));
                }
                (Expr { kind: ExprKind::Subquery(query), span: start.to(self.last_span()) }, true)
            }
            Inside::Exprs(mut exprs) => {
                let span = start.to(self.last_span());
                match (exprs.pop(), exprs.is_empty()) {
                    (Some(only), true) => (only, true),
                    (Some(last), false) => {
                        exprs.push(last);
                        (Expr { kind: ExprKind::Row { fields: exprs, explicit: false }, span }, false)
                    }
                    (None, _) => return Err(self.unexpected()),
                }
            }
        };
        let first = self.postfixes(first, has_parts, true)?;
        let mut exprs = vec![self.expr_from(first)?];
        while self.take_sign(b',') {
            exprs.push(self.expr()?);
        }
        Ok(Inside::Exprs(exprs))
    }

    fn of_word(&mut self) -> Result<Expr> {
        let start = self.span();
        let word = self.word().unwrap_or_default().to_owned();
        let opens = *self.kind_ahead(1) == Kind::Sign(b'(');
        let kind = match word.as_str() {
            "true" | "false" => {
                self.at += 1;
                ExprKind::Literal(Literal::Boolean(word == "true"))
            }
            "null" => {
                self.at += 1;
                ExprKind::Literal(Literal::Null)
            }
            "default" => {
                self.at += 1;
                ExprKind::Default
            }
            "case" => self.case()?,
            "exists" if opens => {
                self.at += 1;
                ExprKind::Exists(Box::new(self.in_parentheses(Self::query)?))
            }
            "array" => {
                self.at += 1;
                match self.is_sign(b'(') {
                    true => ExprKind::ArrayQuery(Box::new(self.in_parentheses(Self::query)?)),
                    false => self.array()?,
                }
            }
            "row" if opens => {
                self.at += 1;
                self.sign(b'(')?;
                let fields = if self.is_sign(b')') { Vec::new() } else { self.exprs()? };
                self.sign(b')')?;
                let row = Expr { kind: ExprKind::Row { fields, explicit: true }, span: start.to(self.last_span()) };
                return if self.is_word("overlaps") { self.overlaps(row) } else { Ok(row) };
            }
            "unique" => {
                self.at += 1;
                self.nulls_distinct()?;
                self.in_parentheses(Self::query)?;
                return Err(ParseError::new(
                    sqlstate::FEATURE_NOT_SUPPORTED,
                    "UNIQUE predicate is not yet implemented",
                    start.start,
                ));
            }
            "treat" if opens => {
                self.at += 1;
                self.treat()?
            }
            "cast" => {
                self.at += 1;
                self.cast()?
            }
            "grouping" if opens => {
                self.at += 1;
                ExprKind::Grouping(self.in_parentheses(Self::exprs)?)
            }
            _ => match self.special(&word)? {
                Some(special) => ExprKind::Special(Box::new(special)),
                None => return self.name_or_call(),
            },
        };
        Ok(Expr { kind, span: start.to(self.last_span()) })
    }

    /// `[a, b]`, or `[[a, b], [c, d]]`.
    fn array(&mut self) -> Result<ExprKind> {
        self.deeper(|parser| {
            parser.sign(b'[')?;
            if parser.take_sign(b']') {
                return Ok(ExprKind::Array(Vec::new()));
            }
            // All of them are arrays, or none is.
            let is_nested = parser.is_sign(b'[');
            let items = parser.list(|parser| {
                let start = parser.span();
                if is_nested && !parser.is_sign(b'[') {
                    return Err(parser.unexpected());
                }
                match is_nested {
                    true => Ok(Expr { kind: parser.array()?, span: start.to(parser.last_span()) }),
                    false => parser.expr(),
                }
            })?;
            parser.sign(b']')?;
            Ok(ExprKind::Array(items))
        })
    }

    fn case(&mut self) -> Result<ExprKind> {
        self.at += 1;
        let operand = if self.is_word("when") { None } else { Some(Box::new(self.expr()?)) };
        let mut whens = Vec::new();
        self.expect_word("when")?;
        loop {
            let when = self.expr()?;
            self.expect_word("then")?;
            whens.push((when, self.expr()?));
            if !self.take_word("when") {
                break;
            }
        }
        let otherwise = if self.take_word("else") { Some(Box::new(self.expr()?)) } else { None };
        self.expect_word("end")?;
        Ok(ExprKind::Case { operand, whens, otherwise })
    }

    /// A column, a call, or a constant behind the name of its type.
    fn name_or_call(&mut self) -> Result<Expr> {
        let start = self.span();
        if let Some(constant) = self.typed_constant()? {
            return Ok(constant);
        }
        if !self.is_column_name(0) && !self.is_function_name(0) {
            return Err(self.unexpected());
        }
        let (is_column, is_function) = (self.is_column_name(0), self.is_function_name(0));
        let first = self.take_ident();
        let mut parts = vec![first];
        while is_column && self.is_sign(b'.') {
            if matches!(self.kind_ahead(1), Kind::Operator(star) if star == "*") {
                self.at += 2;
                let name = Name { span: start.to(parts[parts.len() - 1].span), parts };
                let name = self.without_database(name, 3);
                return Ok(Expr { kind: ExprKind::Wildcard(Some(name)), span: start.to(self.last_span()) });
            }
            self.at += 1;
            parts.push(self.label()?);
        }
        let name = Name { span: start.to(self.last_span()), parts };
        if self.is_sign(b'(') && (is_function || name.parts.len() > 1) {
            let opening = self.at;
            let call = self.call(name)?;
            // `f(5) 'text'` is a constant of a type with a modifier.
            if let Kind::String(text) = self.kind().clone()
                && !matches!(&self.tokens[opening + 1].kind, Kind::Word(word, _) if word == "all")
                && let Some(to) = type_of_call(&call, start.to(self.last_span()))
            {
                let literal = Expr { kind: ExprKind::Literal(Literal::String(text)), span: self.span() };
                self.at += 1;
                let kind = ExprKind::Cast { operand: Box::new(literal), to: Box::new(to) };
                return Ok(Expr { kind, span: start.to(self.last_span()) });
            }
            return Ok(Expr { kind: ExprKind::Call(Box::new(call)), span: start.to(self.last_span()) });
        }
        if let Kind::String(text) = self.kind().clone()
            && (is_function || name.parts.len() > 1)
        {
            let literal = Expr { kind: ExprKind::Literal(Literal::String(text)), span: self.span() };
            self.at += 1;
            let span = name.span;
            let to = TypeName::of(name, Vec::new(), span);
            let kind = ExprKind::Cast { operand: Box::new(literal), to: Box::new(to) };
            return Ok(Expr { kind, span: start.to(self.last_span()) });
        }
        if !is_column {
            return Err(self.unexpected());
        }
        let span = name.span;
        Ok(Expr { kind: ExprKind::Name(self.without_database(name, 4)), span })
    }

    /// `TREAT(a AS t)`, whose word has been read: a call of the function that has the type's name.
    fn treat(&mut self) -> Result<ExprKind> {
        self.in_parentheses(|parser| {
            let value = parser.expr()?;
            parser.expect_word("as")?;
            let TypeName { name, .. } = parser.type_name()?;
            Ok(ExprKind::Call(Box::new(Call {
                arguments: vec![Argument { name: None, value }],
                ..Call::without_arguments(name)
            })))
        })
    }

    /// The call of a function whose name has been read.
    fn call(&mut self, name: Name) -> Result<Call> {
        let mut call = self.windowless_call(name)?;
        let within = self.span();
        if self.take_word("within") {
            self.expect_word("group")?;
            call.within_group = self.in_parentheses(|parser| match parser.is_word("order") {
                true => parser.order_by(),
                false => Err(parser.unexpected()),
            })?;
            let refused = [
                ("multiple ORDER BY clauses", !call.order_by.is_empty()),
                ("DISTINCT", call.distinct),
                ("VARIADIC", call.variadic),
            ];
            if let Some((what, _)) = refused.into_iter().find(|(_, is_said)| *is_said) {
                let message = format!("cannot use {what} with WITHIN GROUP");
                return Err(ParseError::at(message, within));
            }
        }
        if self.take_word("filter") {
            let filter = self.in_parentheses(|parser| {
                parser.expect_word("where")?;
                parser.expr()
            })?;
            call.filter = Some(filter);
        }
        if self.take_words(&["ignore", "nulls"]) {
            call.ignores_nulls = Some(true);
        } else if self.take_words(&["respect", "nulls"]) {
            call.ignores_nulls = Some(false);
        }
        if self.take_word("over") {
            call.over = Some(match self.is_sign(b'(') {
                true => Over::Window(self.window()?),
                false => Over::Named(self.ident()?),
            });
        }
        Ok(call)
    }

    /// A call as it may stand in FROM.
    pub(super) fn windowless_call(&mut self, name: Name) -> Result<Call> {
        self.sign(b'(')?;
        let mut call = Call::without_arguments(name);
        if self.take_operator("*") {
            call.star = true;
        } else if !self.is_sign(b')') {
            if self.take_word("distinct") {
                call.distinct = true;
            } else {
                self.take_word("all");
            }
            loop {
                call.variadic = self.take_word("variadic");
                call.arguments.push(self.argument()?);
                if call.variadic || !self.take_sign(b',') {
                    break;
                }
            }
            call.order_by = self.order_by()?;
        }
        self.sign(b')')?;
        Ok(call)
    }

    fn argument(&mut self) -> Result<Argument> {
        let is_named = matches!(self.kind_ahead(1), Kind::Arrow | Kind::Assign) && self.is_function_name(0);
        let name = is_named.then(|| {
            let name = self.take_ident();
            self.at += 1;
            name
        });
        Ok(Argument { name, value: self.expr()? })
    }

    /// ORDER BY, if it comes.
    pub(super) fn order_by(&mut self) -> Result<Vec<OrderItem>> {
        if !self.take_word("order") {
            return Ok(Vec::new());
        }
        self.expect_word("by")?;
        self.list(Self::order_item)
    }

    fn order_item(&mut self) -> Result<OrderItem> {
        let expr = self.expr()?;
        let mut using = None;
        let descending = if self.take_word("using") {
            using = Some(match self.kind() {
                Kind::Operator(symbol) => {
                    let operator = crate::tree::Operator { schema: None, symbol: symbol.clone(), span: self.span() };
                    self.at += 1;
                    operator
                }
                Kind::Word(word, _) if word == "operator" => self.named_operator()?,
                _ => return Err(self.unexpected()),
            });
            false
        } else {
            let descending = self.take_word("desc");
            if !descending {
                self.take_word("asc");
            }
            descending
        };
        let nulls_first = if self.take_words(&["nulls", "first"]) {
            Some(true)
        } else if self.take_words(&["nulls", "last"]) {
            Some(false)
        } else {
            None
        };
        Ok(OrderItem { expr, descending, using, nulls_first })
    }

    /// A window in parentheses.
    pub(super) fn window(&mut self) -> Result<Window> {
        let start = self.span();
        self.sign(b'(')?;
        let is_clause = matches!(self.word(), Some("partition" | "order" | "rows" | "range" | "groups"));
        let base = if !is_clause && self.is_column_name(0) { Some(self.take_ident()) } else { None };
        let partition_by = match self.take_word("partition") {
            true => {
                self.expect_word("by")?;
                self.exprs()?
            }
            false => Vec::new(),
        };
        let order_by = self.order_by()?;
        let frame = self.frame()?;
        self.sign(b')')?;
        Ok(Window { base, partition_by, order_by, frame, span: start.to(self.last_span()) })
    }

    fn frame(&mut self) -> Result<Option<Frame>> {
        let start = self.span();
        let unit = match self.word() {
            Some("rows") => FrameUnit::Rows,
            Some("range") => FrameUnit::Range,
            Some("groups") => FrameUnit::Groups,
            _ => return Ok(None),
        };
        self.at += 1;
        let is_between = self.take_word("between");
        if is_between && self.is_word("between") {
            return Err(self.unexpected());
        }
        let start_at = self.span();
        let first = self.bound()?;
        let mut end_at = start_at;
        let mut end = None;
        if is_between {
            self.expect_word("and")?;
            end_at = self.span();
            end = Some(self.bound()?);
        }
        check_frame(&first, end.as_ref(), start_at, end_at)?;
        let exclude = match self.take_word("exclude") {
            false => Exclude::NoOthers,
            true => match self.one_of(&["current", "group", "ties", "no"])?.name.as_str() {
                "current" => {
                    self.expect_word("row")?;
                    Exclude::CurrentRow
                }
                "group" => Exclude::Group,
                "ties" => Exclude::Ties,
                _ => {
                    self.expect_word("others")?;
                    Exclude::NoOthers
                }
            },
        };
        Ok(Some(Frame { unit, start: first, end, exclude, span: start.to(self.last_span()) }))
    }

    fn bound(&mut self) -> Result<FrameBound> {
        if self.take_words(&["current", "row"]) {
            return Ok(FrameBound::CurrentRow);
        }
        if self.take_words(&["unbounded", "preceding"]) {
            return Ok(FrameBound::UnboundedPreceding);
        }
        if self.take_words(&["unbounded", "following"]) {
            return Ok(FrameBound::UnboundedFollowing);
        }
        let offset = Box::new(self.expr()?);
        if self.take_word("preceding") {
            return Ok(FrameBound::Preceding(offset));
        }
        self.expect_word("following")?;
        Ok(FrameBound::Following(offset))
    }
}

/// Refuses a frame that ends before it begins, as the grammar does.
fn check_frame(first: &FrameBound, end: Option<&FrameBound>, start_at: Span, end_at: Span) -> Result<()> {
    use FrameBound::{CurrentRow, Following, Preceding, UnboundedFollowing, UnboundedPreceding};
    let (message, at) = match (first, end) {
        (UnboundedFollowing, _) => ("frame start cannot be UNBOUNDED FOLLOWING", start_at),
        (_, Some(UnboundedPreceding)) => ("frame end cannot be UNBOUNDED PRECEDING", end_at),
        (Following(_), None) => ("frame starting from following row cannot end with current row", start_at),
        (CurrentRow, Some(Preceding(_))) => ("frame starting from current row cannot have preceding rows", end_at),
        (Following(_), Some(Preceding(_) | CurrentRow)) => {
            ("frame starting from following row cannot have preceding rows", end_at)
        }
        _ => return Ok(()),
    };
    Err(ParseError::new(sqlstate::WINDOWING_ERROR, message, at.start))
}

/// `f(5)` as a type with modifiers; `None` if it can only be a call.
fn type_of_call(call: &Call, span: Span) -> Option<TypeName> {
    let is_plain = !call.star
        && !call.distinct
        && !call.variadic
        && call.order_by.is_empty()
        && call.within_group.is_empty()
        && call.filter.is_none()
        && call.over.is_none()
        && !call.arguments.is_empty()
        && call.arguments.iter().all(|argument| argument.name.is_none());
    let modifiers = call.arguments.iter().map(|argument| argument.value.clone()).collect();
    is_plain.then(|| TypeName::of(call.name.clone(), modifiers, span))
}

impl Call {
    fn without_arguments(name: Name) -> Self {
        Self {
            name,
            arguments: Vec::new(),
            star: false,
            distinct: false,
            variadic: false,
            order_by: Vec::new(),
            within_group: Vec::new(),
            filter: None,
            ignores_nulls: None,
            over: None,
        }
    }
}

impl TypeName {
    /// A type without anything beside its name and its modifiers.
    pub(super) fn of(name: Name, modifiers: Vec<Expr>, span: Span) -> Self {
        Self { name, modifiers, fields: None, dimensions: 0, is_set: false, of_column: false, span }
    }

    /// One of PostgreSQL's own types.
    pub(super) fn own(name: &str, modifiers: Vec<Expr>, span: Span) -> Self {
        let ident = Ident { name: name.to_owned(), span };
        Self::of(Name { parts: vec![ident], span }, modifiers, span)
    }
}
