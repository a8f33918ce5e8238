//! Expressions: which operator, type and cast each part means.

use crate::binder::Binder;
use crate::blanks::{given_blanks, keeps_blanks, read, with_blanks, without_blanks};
use crate::bound::{Bound, is_alike, no_cast, number_constant};
use crate::environment::TimeField;
use crate::error::{BindError, NO_PLACE, Result};
use crate::limits::{LEVELS_OF_COPIES, MOST_IN_A_ROW};
use crate::number_forms::arrays_of_one_form;
use crate::operators::{checked, comparable, comparison, resolved, shown, symbol, taken, types_of};
use crate::plan_parts::{binary, joined, levels_of, repeatable, with_elements};
use crate::row;
use crate::scope::Context;
use crate::subquery::Comparison;
use crate::types::{self, arrow_type, comparable_values, dimensions, integer_digits, is_stored_as, stored_as};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{Case, InList, Like};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, cast as cast_to, lit};
use serac_numeric::{Numeric, NumericError};
use serac_parser::tree::{
    Expr as Tree, ExprKind, IntervalFields, IsTest, LikeKind, Literal, Operator as Symbol, Postfix, Quantity, Span,
    Special, TypeName,
};
use serac_pg::types::{Category, interval_fields};
use serac_pg::{CastContext, ModifiedType, NO_MODIFIER, Signature, TypeId, resolve};

impl Binder<'_> {
    /// An expression.
    pub(crate) fn expression(&self, tree: &Tree, context: Context<'_>) -> Result<Bound> {
        match &tree.kind {
            ExprKind::Literal(literal) => constant(literal, tree.span),
            ExprKind::Name(name) => self.column(name, context),
            ExprKind::Parameter(number) => self.parameters.reference(*number, tree.span),
            _ => self.deeper(1, || self.composed(tree, context)),
        }
    }

    /// An expression of which there are several copies in the plan.
    pub(crate) fn copied(&self, tree: &Tree, context: Context<'_>) -> Result<Bound> {
        match &tree.kind {
            ExprKind::Literal(_) | ExprKind::Name(_) | ExprKind::Parameter(_) => self.expression(tree, context),
            _ => self.deeper(LEVELS_OF_COPIES, || self.composed(tree, context)),
        }
    }

    /// An expression with others in it.
    fn composed(&self, tree: &Tree, context: Context<'_>) -> Result<Bound> {
        self.makes(1)?;
        let span = tree.span;
        let boolean = |expr| Ok(Bound::new(expr, TypeId::BOOL, first_place(tree)));
        match &tree.kind {
            ExprKind::Call(call) => self.call(call, span, context),
            ExprKind::Or(operands) => boolean(self.logic("OR", operands, Operator::Or, context)?),
            ExprKind::And(operands) => boolean(self.logic("AND", operands, Operator::And, context)?),
            ExprKind::Not(operand) => boolean(Expr::Not(Box::new(self.condition("NOT", operand, context)?))),
            ExprKind::Operators(first, rest) => self.operators(first, rest, context),
            ExprKind::Prefix(operators, operand) => self.prefixes(operators, operand, context),
            ExprKind::Postfix(operand, rest) => self.postfixes(operand, rest, context),
            ExprKind::Between { operand, negated, symmetric, low, high } => {
                self.between(operand, low, high, *negated, *symmetric, context)
            }
            ExprKind::InList { operand, negated, list } => match row::fields(operand) {
                Some(fields) => self.row_in_list(fields, list, *negated, span, context),
                None => {
                    // PostgreSQL points to the word IN.
                    boolean(self.in_list(operand, list, *negated, NO_PLACE, context)?)
                }
            },
            ExprKind::InQuery { operand, negated, query } => {
                let operator = if *negated { "<>" } else { "=" };
                self.quantified(Comparison { left: operand, operator, at: None, is_all: *negated, query }, context)
            }
            ExprKind::Quantified { left, operator, all, right: Quantity::Query(query) } => {
                self.quantified_operator(left, operator, *all, query, context)
            }
            ExprKind::Quantified { left, operator, all, right: Quantity::Array(array) } => {
                self.quantified_array(left, operator, *all, array, context)
            }
            ExprKind::Array(items) => self.array(items, span, context),
            ExprKind::ArrayQuery(query) => self.array_query(query, span, context),
            ExprKind::Exists(query) => self.exists(query, span, context),
            ExprKind::Subquery(query) => self.scalar_subquery(query, span, context),
            ExprKind::Grouping(arguments) => self.grouping(arguments, span, context),
            ExprKind::Like { operand, negated, kind, pattern, escape, at } => {
                let (operand, pattern) = (self.expression(operand, context)?, self.expression(pattern, context)?);
                let start = operand.span;
                // PostgreSQL points to the word NOT before it, if it is there.
                let at = if *negated { NO_PLACE } else { *at };
                let pattern = match (kind, escape.as_deref()) {
                    (LikeKind::Similar, escape) => {
                        let escape = escape.map(|escape| self.expression(escape, context)).transpose()?;
                        let arguments = [pattern].into_iter().chain(escape).collect();
                        self.scalar_call("similar_to_escape", arguments, span, context)?
                    }
                    (_, Some(escape)) if !is_backslash(escape) => {
                        let arguments = vec![pattern, self.expression(escape, context)?];
                        self.scalar_call("like_escape", arguments, span, context)?
                    }
                    _ => pattern,
                };
                Ok(self.like(*kind, *negated, vec![operand, pattern], at, context)?.at(start))
            }
            ExprKind::Case { operand, whens, otherwise } => {
                self.case(operand.as_deref(), whens, otherwise.as_deref(), span, context)
            }
            ExprKind::Cast { operand, to } => {
                if let (ExprKind::Array(items), 1..) = (&operand.kind, to.dimensions) {
                    return self.array_as(items, to, span, operand.span, context);
                }
                self.meant_type(to)?;
                let operand = self.expression(operand, context)?;
                let start = if operand.id == TypeId::UNKNOWN { operand.span } else { span };
                Ok(self.explicit(operand, to, span, context.schema)?.at(start))
            }
            ExprKind::Special(special) => self.special(special, span, context),
            ExprKind::Row { fields, .. } => self.row_value(fields, span, context),
            // As an argument, it is the row.
            ExprKind::Wildcard(Some(name)) => self.row_of_item(name, context).map(|row| row.at(span)),
            ExprKind::Wildcard(None) => Err(BindError::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                "row expansion via \"*\" is not supported here",
                span,
            )),
            ExprKind::Default => {
                Err(BindError::new(sqlstate::SYNTAX_ERROR, "DEFAULT is not allowed in this context", span))
            }
            _ => Err(BindError::unsupported("an expression of this kind", span)),
        }
    }

    /// A condition of a clause.
    pub(crate) fn condition(&self, clause: &str, tree: &Tree, context: Context<'_>) -> Result<Expr> {
        Ok(self.truth(clause, self.expression(tree, context)?, context)?.expr)
    }

    /// A value as the condition of a clause.
    pub(crate) fn truth(&self, clause: &str, bound: Bound, context: Context<'_>) -> Result<Bound> {
        match bound.id {
            TypeId::BOOL => Ok(bound),
            TypeId::UNKNOWN => self.implicitly(bound, TypeId::BOOL, context.schema),
            other => {
                let message = format!("argument of {clause} must be type boolean, not type {other}");
                Err(BindError::new(sqlstate::DATATYPE_MISMATCH, message, bound.span))
            }
        }
    }

    fn logic(&self, clause: &str, operands: &[Tree], operator: Operator, context: Context<'_>) -> Result<Expr> {
        let operands = operands.iter().map(|operand| self.condition(clause, operand, context));
        Ok(joined(operands.collect::<Result<_>>()?, operator))
    }

    fn operators(&self, first: &Tree, rest: &[(Symbol, Tree)], context: Context<'_>) -> Result<Bound> {
        if rest.len() > MOST_IN_A_ROW {
            return self.long_row(first, rest, context);
        }
        let mut rest = rest.iter();
        let of_rows = match rest.clone().next() {
            Some((operator, right)) => self.rows_operated(first, operator, right, context)?,
            None => None,
        };
        let mut left = match of_rows {
            Some(of_rows) => {
                rest.next();
                of_rows
            }
            None => self.expression(first, context)?,
        };
        for (operator, right) in rest {
            let right = self.expression(right, context)?;
            let start = left.span;
            left = self.operate(symbol(operator)?, operator.span, vec![left, right], context)?.at(start);
        }
        Ok(left)
    }

    /// A long row of operators. It becomes no deep tree in the plan: texts may be joined in any
    /// order, and one function adds a list of numbers.
    fn long_row(&self, first: &Tree, rest: &[(Symbol, Tree)], context: Context<'_>) -> Result<Bound> {
        use TypeId as T;
        let unsupported = || {
            let what = format!("an expression of more than {MOST_IN_A_ROW} of these operators in a row");
            BindError::unsupported(what, first.span)
        };
        let (begin, rest) = rest.split_at(1);
        let begin = self.operators(first, begin, context)?;
        let (of, span) = (begin.id, begin.span);
        let is_text = of == T::TEXT;
        if !is_text && !matches!(of, T::INT2 | T::INT4 | T::INT8 | T::FLOAT4 | T::FLOAT8) {
            return Err(unsupported());
        }
        let (mut operators, mut operands) = (String::new(), vec![begin.expr]);
        for (operator, operand) in rest {
            let name = symbol(operator)?;
            let operand = self.expression(operand, context)?;
            let is_such = if is_text { name == "||" } else { matches!(name, "+" | "-") };
            if !is_such || resolved(name, operator.span, &[of, operand.id])?.result != of {
                return Err(unsupported());
            }
            operators.push_str(name);
            operands.push(match is_text {
                true => self.cast(operand, of, context.schema)?.expr,
                false => self.implicitly(operand, of, context.schema)?.expr,
            });
        }
        if is_text {
            return Ok(Bound::new(joined(operands, Operator::StringConcat), of, span));
        }
        operands.insert(0, lit(operators));
        checked(self.known_scalar("serac chain")?.call(operands), of, span, context.schema)
    }

    fn prefixes(&self, operators: &[Symbol], operand: &Tree, context: Context<'_>) -> Result<Bound> {
        let mut operators = operators;
        let is_number = matches!(operand.kind, ExprKind::Prefix(..));
        let mut operand = match &operand.kind {
            // Signs are part of the number behind them: there is one more number below zero than
            // above.
            ExprKind::Literal(Literal::Integer(digits)) => {
                let (mut start, mut sign) = (operand.span, "");
                while let Some((operator, rest)) = operators.split_last() {
                    if symbol(operator)? != "-" {
                        break;
                    }
                    sign = if sign.is_empty() { "-" } else { "" };
                    (start, operators) = (operator.span, rest);
                }
                constant(&Literal::Integer(format!("{sign}{digits}")), start.to(operand.span))?
            }
            _ => self.expression(operand, context)?,
        };
        for operator in operators.iter().rev() {
            let signed = match (symbol(operator)?, negative(&operand)) {
                ("-", Some(negative)) => negative,
                // The negative of the least number that is written so is one of the next type.
                ("-", None) if is_number && is_least(&operand) => {
                    let number = ScalarValue::Int64(Some(-i64::from(i32::MIN)));
                    Bound::new(Expr::Literal(number, None), TypeId::INT8, operand.span)
                }
                (symbol, _) => self.operate(symbol, operator.span, vec![operand], context)?,
            };
            operand = signed.at(operator.span);
        }
        Ok(operand)
    }

    fn postfixes(&self, operand: &Tree, rest: &[Postfix], context: Context<'_>) -> Result<Bound> {
        if rest.len() > MOST_IN_A_ROW {
            return Err(BindError::new(sqlstate::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded", operand.span));
        }
        // The type is determined before the operand is bound.
        for postfix in rest {
            if let Postfix::Cast(to, _) = postfix {
                self.meant_type(to)?;
            }
        }
        let mut rest = rest;
        let is_of_rows = matches!(rest, [Postfix::Is { test: IsTest::Null | IsTest::DistinctFrom(_), .. }, ..]);
        let record = if is_of_rows { self.record(operand, context)? } else { None };
        let mut operand = match (record, rest) {
            (Some(record), [Postfix::Is { negated, test: IsTest::Null, at }, others @ ..]) => {
                rest = others;
                Self::row_is_null(record, *negated, *at)?
            }
            (Some(record), [Postfix::Is { negated, test: IsTest::DistinctFrom(other), at }, others @ ..]) => {
                rest = others;
                let other = self.record(other, context)?;
                let other =
                    other.ok_or_else(|| BindError::unsupported("a row beside a value that is none", NO_PLACE))?;
                self.row_is_distinct(record, other, *negated, *at, context)?
            }
            (None, [Postfix::Field(field), others @ ..]) if self.columns_of_row(operand, context)?.is_some() => {
                rest = others;
                let ExprKind::Name(name) = &operand.kind else {
                    return Err(BindError::unsupported("a row in this place", NO_PLACE));
                };
                let parts = name.parts.iter().chain([field]).cloned().collect();
                self.column(&serac_parser::tree::Name { parts, span: name.span }, context)?
            }
            (None, [Postfix::Cast(to, at), others @ ..]) if to.dimensions > 0 => match &operand.kind {
                ExprKind::Array(items) => {
                    rest = others;
                    self.array_as(items, to, *at, operand.span, context)?
                }
                _ => self.expression(operand, context)?,
            },
            _ => self.expression(operand, context)?,
        };
        while let Some((postfix, behind)) = rest.split_first() {
            let start = operand.span;
            let is_subscript = |postfix: &Postfix| matches!(postfix, Postfix::Index(_) | Postfix::Slice(..));
            if is_subscript(postfix) {
                let count = rest.iter().take_while(|postfix| is_subscript(postfix)).count();
                let (subscripts, behind) = rest.split_at(count);
                operand = self.subscripted(operand, subscripts, context)?.at(start);
                rest = behind;
                continue;
            }
            rest = behind;
            operand = match postfix {
                Postfix::Cast(to, at) => self.explicit(operand, to, *at, context.schema)?,
                Postfix::Is { negated, test, at } => self.is(operand, *negated, test, *at, context)?,
                Postfix::AtTimeZone(zone, at) => {
                    let arguments = vec![self.expression(zone, context)?, operand];
                    self.scalar_call("timezone", arguments, *at, context)?
                }
                Postfix::Collate(name) => collated(operand, name)?,
                Postfix::Field(field) => self.field_of_row(&operand, field, context)?,
                Postfix::AllFields(at) => {
                    return Err(BindError::new(
                        sqlstate::FEATURE_NOT_SUPPORTED,
                        "row expansion via \"*\" is not supported here",
                        *at,
                    ));
                }
                // They are taken together above.
                Postfix::Index(_) | Postfix::Slice(..) => operand,
            };
            operand = operand.at(start);
        }
        Ok(operand)
    }

    fn is(&self, operand: Bound, negated: bool, test: &IsTest, at: Span, context: Context<'_>) -> Result<Bound> {
        if let (TypeId::RECORD, IsTest::Null) = (operand.id, test) {
            let fields = self.fields_of_row(&operand, context.schema)?.into_iter().map(|(_, value)| value);
            return Self::row_is_null(fields.collect(), negated, at);
        }
        let boolean = |clause: &str, operand: Bound| match operand.id {
            TypeId::BOOL | TypeId::UNKNOWN => {
                Ok(Box::new(self.implicitly(operand, TypeId::BOOL, context.schema)?.expr))
            }
            other => {
                let message = format!("argument of {clause} must be type boolean, not type {other}");
                Err(BindError::new(sqlstate::DATATYPE_MISMATCH, message, operand.span))
            }
        };
        let expr = match (test, negated) {
            (IsTest::Null, false) => Expr::IsNull(Box::new(operand.expr)),
            (IsTest::Null, true) => Expr::IsNotNull(Box::new(operand.expr)),
            (IsTest::True, false) => Expr::IsTrue(boolean("IS TRUE", operand)?),
            (IsTest::True, true) => Expr::IsNotTrue(boolean("IS NOT TRUE", operand)?),
            (IsTest::False, false) => Expr::IsFalse(boolean("IS FALSE", operand)?),
            (IsTest::False, true) => Expr::IsNotFalse(boolean("IS NOT FALSE", operand)?),
            (IsTest::Unknown, false) => Expr::IsUnknown(boolean("IS UNKNOWN", operand)?),
            (IsTest::Unknown, true) => Expr::IsNotUnknown(boolean("IS NOT UNKNOWN", operand)?),
            (IsTest::DistinctFrom(other), negated) => {
                let other = self.expression(other, context)?;
                let operator = if negated { Operator::IsNotDistinctFrom } else { Operator::IsDistinctFrom };
                let signature = resolved("=", at, &[operand.id, other.id])?;
                let [left, right] = self.alike(vec![operand, other], &signature, context.schema)?;
                Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
            }
            (IsTest::Normalized(form), negated) => {
                let form = form.as_ref().map_or("NFC", |form| form.name.as_str()).to_owned();
                let arguments = vec![operand, constant(&Literal::String(form), at)?];
                let is_normalized = self.scalar_call("is_normalized", arguments, at, context)?.expr;
                if negated { Expr::Not(Box::new(is_normalized)) } else { is_normalized }
            }
            (IsTest::Document, _) => {
                let message = format!("argument of IS DOCUMENT must be type xml, not type {}", operand.id);
                return Err(BindError::new(sqlstate::DATATYPE_MISMATCH, message, operand.span));
            }
            (IsTest::Json(_), _) => return Err(BindError::unsupported("IS JSON", at)),
        };
        Ok(Bound::new(expr, TypeId::BOOL, at))
    }

    fn between(
        &self,
        operand: &Tree,
        low: &Tree,
        high: &Tree,
        negated: bool,
        symmetric: bool,
        context: Context<'_>,
    ) -> Result<Bound> {
        let (from, to) = if negated { ("<", ">") } else { (">=", "<=") };
        if let (Some(fields), Some(low), Some(high), false) =
            (row::fields(operand), row::fields(low), row::fields(high), symmetric)
        {
            let compare = |symbol, other| self.compare_rows(symbol, NO_PLACE, fields, other, context);
            let both = self.deeper(LEVELS_OF_COPIES, || Ok((compare(from, low)?, compare(to, high)?)))?;
            let join = if negated { Operator::Or } else { Operator::And };
            let expr = BinaryExpr::new(Box::new(both.0.expr), join, Box::new(both.1.expr));
            return Ok(Bound::new(Expr::BinaryExpr(expr), TypeId::BOOL, both.0.span));
        }
        let (join, other) = if negated { (Operator::Or, Operator::And) } else { (Operator::And, Operator::Or) };
        let bind = |tree| if symmetric { self.copied(tree, context) } else { self.expression(tree, context) };
        let operand = self.copied(operand, context)?;
        let at = operand.span;
        // PostgreSQL points to the word BETWEEN. It binds the operand again for each comparison, so
        // that a parameter has the type that the one before has decided.
        let compare = |symbol: &str, bound: &Bound| {
            let operands = vec![self.copy(&operand)?.renewed()?, self.copy(bound)?.renewed()?];
            Ok::<_, BindError>(self.operate(symbol, NO_PLACE, operands, context)?.expr)
        };
        let both = |one, operator, other| Expr::BinaryExpr(BinaryExpr::new(Box::new(one), operator, Box::new(other)));
        let low = bind(low)?;
        let above = compare(from, &low)?;
        let high = bind(high)?;
        let mut expr = both(above, join, compare(to, &high)?);
        if symmetric {
            let swapped = both(compare(from, &high)?, join, compare(to, &low)?);
            expr = both(expr, other, swapped);
        }
        Ok(Bound::new(expr, TypeId::BOOL, at))
    }

    /// `a IN (1, 2, b)`. Constants become one list, in their common type; other items are compared
    /// singly.
    pub(crate) fn in_list(
        &self,
        operand: &Tree,
        list: &[Tree],
        negated: bool,
        span: Span,
        context: Context<'_>,
    ) -> Result<Expr> {
        let operand = self.operand_of_list(operand, list, context)?;
        let list = list.iter().map(|item| self.expression(item, context)).collect::<Result<_>>()?;
        self.in_bound_list(operand, list, negated, span, context)
    }

    /// The operand of `a IN (…)`.
    pub(crate) fn operand_of_list(&self, operand: &Tree, list: &[Tree], context: Context<'_>) -> Result<Bound> {
        let is_simple = list.iter().all(|item| matches!(item.kind, ExprKind::Literal(_) | ExprKind::Parameter(_)));
        if is_simple { self.expression(operand, context) } else { self.copied(operand, context) }
    }

    /// As [`in_list`](Self::in_list).
    pub(crate) fn in_bound_list(
        &self,
        mut operand: Bound,
        list: Vec<Bound>,
        negated: bool,
        span: Span,
        context: Context<'_>,
    ) -> Result<Expr> {
        let is_constant = |item: &Bound| levels_of(std::slice::from_ref(&item.expr), context.schema) == (false, false);
        let (constants, others): (Vec<Bound>, Vec<Bound>) = list.into_iter().partition(is_constant);
        let (symbol, join) = if negated { ("<>", Operator::And) } else { ("=", Operator::Or) };
        let mut all = Vec::new();
        let types: Vec<TypeId> = [&operand].into_iter().chain(&constants).map(|item| item.id).collect();
        let mut single = others;
        match resolve::common(&types) {
            Ok(common) if constants.len() > 1 => {
                all.push(self.in_constants(operand.clone(), constants, common, negated, span, context)?);
                // It has decided the type of a parameter.
                operand = operand.renewed()?;
            }
            _ => single.extend(constants),
        }
        for item in single {
            all.push(self.operate(symbol, span, vec![self.copy(&operand)?, item], context)?.expr);
        }
        Ok(joined(all, join))
    }

    pub(crate) fn in_constants(
        &self,
        operand: Bound,
        constants: Vec<Bound>,
        common: TypeId,
        negated: bool,
        span: Span,
        context: Context<'_>,
    ) -> Result<Expr> {
        let signature = resolved("=", span, &[operand.id, common])?;
        let mut all = vec![operand];
        for item in constants {
            all.push(self.implicitly(item, common, context.schema)?);
        }
        let mut exprs = self.compared_values(all, comparable(&signature)?, context.schema)?;
        let operand = exprs.remove(0);
        Ok(Expr::InList(InList::new(Box::new(operand), exprs, negated)))
    }

    fn like(
        &self,
        kind: LikeKind,
        negated: bool,
        operands: Vec<Bound>,
        at: Span,
        context: Context<'_>,
    ) -> Result<Bound> {
        let symbol = match (kind, negated) {
            (LikeKind::Like, false) => "~~",
            (LikeKind::Like, true) => "!~~",
            (LikeKind::ILike, false) => "~~*",
            (LikeKind::ILike, true) => "!~~*",
            (LikeKind::Similar, false) => "~",
            (LikeKind::Similar, true) => "!~",
        };
        if kind == LikeKind::Similar {
            return self.operate(symbol, at, operands, context);
        }
        let signature = resolved(symbol, at, &[operands[0].id, operands[1].id])?;
        let [left, right] = taken(operands)?;
        let left = match signature.arguments[..] {
            [to @ (TypeId::TEXT | TypeId::NAME), TypeId::TEXT] => self.implicitly(left, to, context.schema)?,
            [TypeId::BPCHAR, TypeId::TEXT] => self.padded(left)?,
            _ => return Err(BindError::unsupported(format!("operator {}", shown(symbol, &signature.arguments)), at)),
        };
        let (operand, pattern) = (left.expr, self.implicitly(right, TypeId::TEXT, context.schema)?.expr);
        let is_any_case = kind == LikeKind::ILike;
        let pattern = self.checked_pattern(&operand, pattern, is_any_case)?;
        let like = Like::new(negated, Box::new(operand), Box::new(pattern), None, is_any_case);
        Ok(Bound::new(Expr::Like(like), TypeId::BOOL, at))
    }

    /// A pattern of LIKE, which is an error where it ends too early.
    fn checked_pattern(&self, operand: &Expr, pattern: Expr, is_any_case: bool) -> Result<Expr> {
        let text = pattern.as_literal().and_then(|value| value.try_as_str());
        // A number of backslashes at the end may be half as many that stand for themselves.
        if text.is_some_and(|text| !text.is_some_and(|text| text.ends_with('\\'))) {
            return Ok(pattern);
        }
        let function = self.known_scalar(if is_any_case { "ilike_pattern" } else { "like_pattern" })?;
        Ok(function.call(vec![operand.clone(), pattern]))
    }

    fn case(
        &self,
        operand: Option<&Tree>,
        whens: &[(Tree, Tree)],
        otherwise: Option<&Tree>,
        span: Span,
        context: Context<'_>,
    ) -> Result<Bound> {
        // Only the rows of one branch would be there.
        let context = Context { may_have_sets: false, ..context };
        let operand = match operand {
            None => None,
            Some(operand) => {
                let operand = match whens.len() {
                    1 => self.expression(operand, context)?,
                    _ => self.copied(operand, context)?,
                };
                // A constant of no type is a text to all of them.
                Some(operand.into_text()?)
            }
        };
        // An operand that may change its value is computed once.
        let is_once = whens.len() > 1 && operand.as_ref().is_some_and(|operand| repeatable(&operand.expr).is_err());
        let (mut conditions, mut compared, mut thens) = (Vec::new(), Vec::new(), Vec::new());
        for (when, then) in whens {
            match &operand {
                None => conditions.push(self.condition("CASE/WHEN", when, context)?),
                Some(_) if is_once => compared.push(self.expression(when, context)?),
                Some(operand) => {
                    let when = self.expression(when, context)?;
                    // PostgreSQL points to the word WHEN.
                    conditions.push(self.operate("=", NO_PLACE, vec![self.copy(operand)?, when], context)?.expr);
                }
            }
            thens.push(self.expression(then, context)?);
        }
        let operand = match operand {
            Some(operand) if is_once => {
                let operand_and_values = self.compared_once(operand, compared, context.schema)?;
                conditions = operand_and_values.1;
                Some(Box::new(operand_and_values.0))
            }
            _ => None,
        };
        // For the type, the result of ELSE counts first.
        let mut results = vec![match otherwise {
            Some(otherwise) => self.expression(otherwise, context)?,
            None => constant(&Literal::Null, span)?,
        }];
        results.extend(thens);
        let (mut results, of) = self.unified("CASE", results, context.schema)?;
        if keeps_blanks(of) {
            results = results.into_iter().map(with_blanks).collect();
        }
        let mut results = results.into_iter().map(Box::new);
        let otherwise = results.next().filter(|_| otherwise.is_some());
        let whens = conditions.into_iter().map(Box::new).zip(results).collect();
        Ok(Bound::of_type(read(Expr::Case(Case::new(operand, whens, otherwise)), of), of, span))
    }

    /// The operand of a CASE and the values that it is compared with, in one type that Arrow
    /// compares.
    fn compared_once(&self, operand: Bound, values: Vec<Bound>, schema: &DFSchema) -> Result<(Expr, Vec<Expr>)> {
        let mut common: Option<TypeId> = None;
        for value in &values {
            let own = comparable(&resolved("=", NO_PLACE, &[operand.id, value.id])?)?;
            if common.replace(own).is_some_and(|other| other != own) {
                let what = "a CASE of a volatile value that is compared in several types";
                return Err(BindError::unsupported(what, operand.span));
            }
        }
        let common = common.unwrap_or(operand.id);
        let all = std::iter::once(operand).chain(values).collect();
        let mut exprs = self.compared_values(all, common, schema)?;
        Ok((exprs.remove(0), exprs))
    }

    /// Expressions as values of their common type, which has a modifier if all have it.
    pub(crate) fn unified(&self, what: &str, all: Vec<Bound>, schema: &DFSchema) -> Result<(Vec<Expr>, ModifiedType)> {
        let types: Vec<TypeId> = all.iter().map(|one| one.id).collect();
        let common = match resolve::common(&types) {
            Ok(common) => common,
            Err((one, other)) => {
                let at = all.iter().find(|bound| bound.id == other).map_or(Span::default(), |bound| bound.span);
                if one.category() == other.category() {
                    let at = all.iter().find(|bound| bound.id == one).map_or(at, |bound| bound.span);
                    return Err(BindError::new(
                        sqlstate::CANNOT_COERCE,
                        format!("{what} could not convert type {one} to {other}"),
                        at,
                    ));
                }
                let message = format!("{what} types {one} and {other} cannot be matched");
                return Err(BindError::new(sqlstate::DATATYPE_MISMATCH, message, at));
            }
        };
        let of = ModifiedType::common(common, all.iter().map(Bound::modified_type));
        let all = match keeps_blanks(of) {
            true => all.into_iter().map(|one| self.with_own_blanks(one)).collect::<Result<_>>()?,
            false => all,
        };
        Ok((self.of_one_type(all, common, schema)?, of))
    }

    /// An operator's application.
    pub(crate) fn operate(&self, symbol: &str, at: Span, operands: Vec<Bound>, context: Context<'_>) -> Result<Bound> {
        let types = types_of(&operands);
        let signature = resolved(symbol, at, &types)?;
        // Whole rows are compared elsewhere.
        let refused = |error: BindError| match types.contains(&TypeId::RECORD) {
            true => error,
            false => error.refused(format!("operator {}", shown(symbol, &types)), at),
        };
        self.operation(symbol, at, operands, signature, context).map_err(refused)
    }

    /// The application of an operator that has been found.
    fn operation(
        &self,
        symbol: &str,
        at: Span,
        mut operands: Vec<Bound>,
        mut signature: Signature,
        context: Context<'_>,
    ) -> Result<Bound> {
        let like = match symbol {
            "~~" => Some((LikeKind::Like, false)),
            "!~~" => Some((LikeKind::Like, true)),
            "~~*" => Some((LikeKind::ILike, false)),
            "!~~*" => Some((LikeKind::ILike, true)),
            _ => None,
        };
        if let (Some((kind, negated)), 2) = (like, operands.len()) {
            return self.like(kind, negated, operands, at, context);
        }
        // Patterns see the blanks of a CHAR(n).
        if signature.arguments == [TypeId::BPCHAR, TypeId::TEXT] {
            operands[0] = self.padded(operands[0].clone())?;
            signature.arguments[0] = TypeId::TEXT;
        }
        if let Some(name) = signature.arguments.first().and_then(|left| function_of_operator(symbol, *left, &signature))
        {
            return self.operator_call((symbol, name), operands, &signature, at, context);
        }
        let expr = match (symbol, &signature.arguments[..]) {
            ("=" | "<>" | "<" | "<=" | ">" | ">=", [_, _]) => {
                let [left, right] = self.alike(operands, &signature, context.schema)?;
                self.environment.operate(comparison(symbol), left, right, context.schema)?
            }
            ("||", [..]) if signature.result.element().is_some() => {
                self.joined_arrays(operands, &signature, context.schema)?
            }
            ("||", [..]) if signature.result == TypeId::TEXT => {
                let [left, right] = taken(operands)?;
                let text = |operand| Ok::<_, BindError>(self.cast(operand, TypeId::TEXT, context.schema)?.expr);
                self.environment.operate(Operator::StringConcat, text(left)?, text(right)?, context.schema)?
            }
            (_, [_, _]) => self.arithmetic(symbol, operands, &signature, context)?,
            ("+", [to]) => {
                let [operand] = taken(operands)?;
                let operand = self.implicitly(operand, *to, context.schema)?;
                return Ok(Bound { modifier: NO_MODIFIER, origin: None, ..operand });
            }
            ("~", [to]) if integer_digits(*to).is_some() => {
                let [operand] = taken(operands)?;
                let operand = self.implicitly(operand, *to, context.schema)?.expr;
                let ones = Expr::Literal(ScalarValue::Int64(Some(-1)), None);
                let ones = cast_to(ones, operand.get_type(context.schema)?);
                Expr::BinaryExpr(BinaryExpr::new(Box::new(operand), Operator::BitwiseXor, Box::new(ones)))
            }
            ("-", [to]) => {
                let [operand] = taken(operands)?;
                let operand = self.implicitly(operand, *to, context.schema)?;
                match operand.id {
                    TypeId::NUMERIC => self.numeric_negative(operand.expr, context.schema)?,
                    _ => Expr::Negative(Box::new(operand.expr)),
                }
            }
            ("@", [TypeId::NUMERIC]) => return self.scalar_call("abs", operands, at, context),
            _ => return Err(BindError::unsupported(format!("operator {}", shown(symbol, &signature.arguments)), at)),
        };
        checked(expr, signature.result, at, context.schema)
    }

    /// An operator that is a function.
    fn operator_call(
        &self,
        (symbol, name): (&str, &str),
        operands: Vec<Bound>,
        signature: &Signature,
        at: Span,
        context: Context<'_>,
    ) -> Result<Bound> {
        let function = self.known_scalar(name)?;
        let operands = operands.into_iter().zip(&signature.arguments);
        let mut exprs = Vec::new();
        for (operand, to) in operands {
            exprs.push(self.implicitly(operand, *to, context.schema)?.expr);
        }
        if signature.arguments.iter().all(|id| id.element().is_some()) {
            exprs = arrays_of_one_form(exprs, false, context.schema)?;
        }
        if symbol == "<@" && name == "array_has_all" {
            exprs.reverse();
        }
        checked(function.call(exprs), signature.result, at, context.schema)
    }

    fn arithmetic(
        &self,
        symbol: &str,
        operands: Vec<Bound>,
        signature: &Signature,
        context: Context<'_>,
    ) -> Result<Expr> {
        if signature.arguments == [TypeId::NUMERIC, TypeId::NUMERIC] {
            let [left, right] = taken(operands)?;
            let left = self.implicitly(left, TypeId::NUMERIC, context.schema)?.expr;
            let right = self.implicitly(right, TypeId::NUMERIC, context.schema)?.expr;
            return self.numeric_operation(symbol, left, right, context.schema);
        }
        let operator = match symbol {
            "+" => Operator::Plus,
            "-" => Operator::Minus,
            "*" => Operator::Multiply,
            "/" => Operator::Divide,
            "%" => Operator::Modulo,
            "~" => Operator::RegexMatch,
            "~*" => Operator::RegexIMatch,
            "!~" => Operator::RegexNotMatch,
            "!~*" => Operator::RegexNotIMatch,
            "&" => Operator::BitwiseAnd,
            "|" => Operator::BitwiseOr,
            "#" => Operator::BitwiseXor,
            "<<" if integer_digits(signature.result).is_some() => Operator::BitwiseShiftLeft,
            ">>" if integer_digits(signature.result).is_some() => Operator::BitwiseShiftRight,
            _ => {
                let what = format!("operator {}", shown(symbol, &signature.arguments));
                return Err(BindError::unsupported(what, NO_PLACE));
            }
        };
        if let Some(expr) = self.dates(symbol, &operands, signature, context)? {
            return Ok(expr);
        }
        if let (Operator::BitwiseShiftLeft | Operator::BitwiseShiftRight, TypeId::INT2) = (operator, signature.result) {
            let [left, right] = taken(operands)?;
            let left = self.implicitly(left, TypeId::INT4, context.schema)?.expr;
            let right = self.implicitly(right, TypeId::INT4, context.schema)?.expr;
            return Ok(last_bits(binary(left, operator, right)));
        }
        let is_number = |id: &TypeId| integer_digits(*id).is_some() || matches!(*id, TypeId::FLOAT4 | TypeId::FLOAT8);
        let value = |operand, to: &TypeId| {
            let operand = self.implicitly(operand, *to, context.schema)?;
            // Numbers of different types are computed in the result's.
            let operand = match is_number(to) && is_number(&signature.result) {
                true => self.implicitly(operand, signature.result, context.schema)?,
                false => operand,
            };
            Ok::<_, BindError>(operand.expr)
        };
        let [left, right] = taken(operands)?;
        let (left, right) = (value(left, &signature.arguments[0])?, value(right, &signature.arguments[1])?);
        if is_of_bits(operator) {
            return Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right))));
        }
        self.environment.operate(operator, left, right, context.schema)
    }

    /// Arithmetic of dates: days are numbers, and a day with an interval is a point of time.
    fn dates(
        &self,
        symbol: &str,
        operands: &[Bound],
        signature: &Signature,
        context: Context<'_>,
    ) -> Result<Option<Expr>> {
        use TypeId as T;
        let operator = match symbol {
            "+" => Operator::Plus,
            "-" => Operator::Minus,
            "*" => Operator::Multiply,
            "/" => Operator::Divide,
            _ => return Ok(None),
        };
        let [left, right] = operands else { return Ok(None) };
        let [of_left, of_right] = signature.arguments[..] else { return Ok(None) };
        let value =
            |operand: &Bound, to| Ok::<_, BindError>(self.implicitly(operand.clone(), to, context.schema)?.expr);
        let point = |operand: &Bound, of| match of {
            T::DATE => value(&self.implicitly(operand.clone(), T::DATE, context.schema)?, T::TIMESTAMP),
            other => value(operand, other),
        };
        let operate = |left, right| self.environment.operate(operator, left, right, context.schema);
        let count = |days| cast_to(days, DataType::Int64);
        let after = |date: &Bound, days| {
            let date = value(date, T::DATE)?;
            Ok::<_, BindError>(self.known_scalar("date_after")?.call(vec![date, days]))
        };
        let negative = |days| operate(Expr::Literal(ScalarValue::Int64(Some(0)), None), days);
        // Days and months are counted as the session's clocks do.
        if matches!((of_left, of_right), (T::TIMESTAMPTZ, T::INTERVAL) | (T::INTERVAL, T::TIMESTAMPTZ)) {
            self.is_immutable.set(false);
        }
        Ok(Some(match (of_left, of_right) {
            (T::DATE, T::DATE) => {
                self.known_scalar("days_between")?.call(vec![value(left, T::DATE)?, value(right, T::DATE)?])
            }
            (T::DATE, T::INT4) if operator == Operator::Minus => after(left, negative(count(value(right, T::INT4)?))?)?,
            (T::DATE, T::INT4) => after(left, count(value(right, T::INT4)?))?,
            (T::INT4, T::DATE) => after(right, count(value(left, T::INT4)?))?,
            (T::DATE | T::TIMESTAMP, T::INTERVAL) => operate(point(left, of_left)?, value(right, T::INTERVAL)?)?,
            (T::INTERVAL, T::DATE | T::TIMESTAMP) => operate(point(right, of_right)?, value(left, T::INTERVAL)?)?,
            (left, right)
                if [left, right].iter().any(|id| {
                    matches!(*id, T::DATE | T::TIME | T::TIMESTAMP | T::TIMESTAMPTZ | T::INTERVAL | T::TIMETZ)
                }) =>
            {
                operate(value(&operands[0], left)?, value(&operands[1], right)?)?
            }
            _ => return Ok(None),
        }))
    }

    fn special(&self, special: &Special, span: Span, context: Context<'_>) -> Result<Bound> {
        let context = Context { may_have_sets: false, ..context };
        let all = |trees: &[Tree]| trees.iter().map(|tree| self.expression(tree, context)).collect::<Result<Vec<_>>>();
        let chosen = |name: &'static str, what: &str, trees: &[Tree]| {
            let (exprs, of) = self.unified(what, all(trees)?, context.schema)?;
            let call = match name {
                "coalesce" => {
                    let unsupported = || BindError::unsupported(what, span);
                    let function = self.environment.scalar(name).ok_or_else(unsupported)?;
                    match keeps_blanks(of) {
                        true => without_blanks(function.call(exprs.into_iter().map(with_blanks).collect())),
                        false => function.call(exprs),
                    }
                }
                _ if of.id == TypeId::JSON => {
                    let message = format!("could not identify a comparison function for type {}", of.id);
                    return Err(BindError::without_place(sqlstate::UNDEFINED_FUNCTION, message));
                }
                name => {
                    let refused = |error: BindError| error.refused(format!("{what} of values of type {}", of.id), span);
                    comparable_values(of.id).map_err(refused)?;
                    self.extreme(name, exprs, context.schema).map_err(refused)?
                }
            };
            Ok(Bound { modifier: of.modifier, ..checked(call, of.id, span, context.schema)? })
        };
        let named = |name: &str, arguments: Vec<Bound>| self.scalar_call(name, arguments, span, context);
        match special {
            Special::Coalesce(trees) => chosen("coalesce", "COALESCE", trees),
            Special::Greatest(trees) => chosen("greatest", "GREATEST", trees),
            Special::Least(trees) => chosen("least", "LEAST", trees),
            Special::Position(part, text) => {
                named("position", vec![self.expression(text, context)?, self.expression(part, context)?])
            }
            Special::Substring { operand, from, length } => {
                let mut arguments = vec![self.expression(operand, context)?];
                arguments.push(match from {
                    Some(from) => self.expression(from, context)?,
                    None => constant(&Literal::Integer("1".into()), span)?,
                });
                if let Some(length) = length {
                    let length = self.expression(length, context)?;
                    arguments.push(match from {
                        Some(_) => length,
                        None => self.cast(length, TypeId::INT4, context.schema)?,
                    });
                }
                named("substring", arguments)
            }
            Special::SubstringSimilar(operand, pattern, escape) => {
                let arguments = [operand, pattern, escape].into_iter();
                named("substring", arguments.map(|tree| self.expression(tree, context)).collect::<Result<_>>()?)
            }
            Special::Normalize(operand, form) => {
                let mut arguments = vec![self.expression(operand, context)?];
                let form = form.as_ref().map_or("NFC", |form| form.name.as_str());
                arguments.push(constant(&Literal::String(form.to_owned()), span)?);
                named("normalize", arguments)
            }
            Special::Overlay(arguments) => named("overlay", all(arguments)?),
            Special::Extract(field, operand) => {
                self.date_part("extract", field, self.expression(operand, context)?, span, context)
            }
            Special::Trim { side, arguments } => {
                let name = match side {
                    serac_parser::tree::TrimSide::Both => "btrim",
                    serac_parser::tree::TrimSide::Leading => "ltrim",
                    serac_parser::tree::TrimSide::Trailing => "rtrim",
                };
                named(name, all(arguments)?)
            }
            Special::NullIf(left, right) => {
                let (left, right) = (self.copied(left, context)?, self.expression(right, context)?);
                // PostgreSQL points to the word NULLIF.
                let signature = resolved("=", span, &[left.id, right.id])?;
                repeatable(&left.expr)?;
                let left = self.implicitly(left, signature.arguments[0], context.schema)?;
                let of = left.modified_type();
                let given = left.expr.get_type(context.schema)?;
                let equal = self.operate("=", span, vec![left.clone(), right], context)?;
                let null = Box::new(Expr::Literal(ScalarValue::try_from(&given)?, None));
                let whens = vec![(Box::new(equal.expr), null)];
                Ok(Bound::of_type(Expr::Case(Case::new(None, whens, Some(Box::new(left.expr)))), of, span))
            }
            Special::CurrentDate => {
                let unsupported = || BindError::unsupported("CURRENT_DATE", span);
                let function = self.environment.scalar("current_date").ok_or_else(unsupported)?;
                self.is_immutable.set(false);
                checked(function.call(Vec::new()), TypeId::DATE, span, context.schema)
            }
            Special::CurrentTimestamp(digits) => self.now_as(TypeId::TIMESTAMPTZ, digits.as_ref(), span, context),
            Special::LocalTimestamp(digits) => self.now_as(TypeId::TIMESTAMP, digits.as_ref(), span, context),
            Special::LocalTime(digits) => self.now_as(TypeId::TIME, digits.as_ref(), span, context),
            Special::CurrentTime(_) => Err(BindError::unsupported("CURRENT_TIME", span)),
            Special::CurrentUser | Special::CurrentRole | Special::User => self.name_of("current_user", span, context),
            Special::SessionUser => self.name_of("session_user", span, context),
            Special::CurrentSchema => self.name_of("current_schema", span, context),
            Special::CurrentCatalog => self.name_of("current_database", span, context),
            _ => Err(BindError::unsupported("a function of this form", span)),
        }
    }

    /// The time at which the transaction began, with `digits` digits of a second.
    fn now_as(&self, id: TypeId, digits: Option<&Tree>, span: Span, context: Context<'_>) -> Result<Bound> {
        let now = self.scalar_call("now", Vec::new(), span, context)?;
        let digits = digits.map(modifier).transpose()?;
        self.modified(self.cast(now, id, context.schema)?, digits.as_slice(), context.schema).map(|now| now.at(span))
    }

    /// The result of a function without arguments, which is a name.
    fn name_of(&self, function: &str, span: Span, context: Context<'_>) -> Result<Bound> {
        let unsupported = || BindError::unsupported(format!("function {function}()"), span);
        let function = self.environment.scalar(function).ok_or_else(unsupported)?;
        self.is_immutable.set(false);
        checked(function.call(Vec::new()), TypeId::NAME, span, context.schema)
    }

    /// A field of a time: `extract(year FROM t)`, which is a NUMERIC, or `date_part('year', t)`.
    pub(crate) fn date_part(
        &self,
        name: &str,
        field: &str,
        operand: Bound,
        span: Span,
        context: Context<'_>,
    ) -> Result<Bound> {
        let found = self.chosen_scalar(name, &[TypeId::TEXT, operand.id], span)?;
        let is_extract = found.signature.result == TypeId::NUMERIC;
        let unsupported = || BindError::unsupported(format!("the field {field} of a time"), span);
        let TimeField { function, argument, is_endless } =
            self.environment.date_part(field, is_extract).ok_or_else(unsupported)?;
        let of = found.signature.arguments[1];
        let operand = self.implicitly(operand, of, context.schema)?.expr;
        let may_be_infinite = is_endless && matches!(of, TypeId::DATE | TypeId::TIMESTAMP | TypeId::TIMESTAMPTZ);
        if may_be_infinite
            && is_extract
            && let Some(infinity) = infinite_constant(&operand)
        {
            return Ok(Bound::new(number_constant(&infinity), TypeId::NUMERIC, span));
        }
        let time = operand.clone();
        let operand = match may_be_infinite && !is_extract {
            true => self.known_scalar("finite_time")?.call(vec![operand]),
            false => operand,
        };
        let field = argument.map(|field| Expr::Literal(ScalarValue::Utf8(Some(field)), None));
        let call = function.call(field.into_iter().chain([operand]).collect());
        // Each field has digits of its own behind the point, the same for all values.
        let expr = match (is_extract, call.get_type(context.schema)?) {
            (true, DataType::Int32) => cast_to(call, DataType::Decimal128(10, 0)),
            (true, DataType::Decimal128(..)) => call,
            (false, DataType::Int32 | DataType::Decimal128(..)) => {
                let part = cast_to(call, DataType::Float64);
                match may_be_infinite {
                    true => self.known_scalar("part_or_infinity")?.call(vec![part, time]),
                    false => part,
                }
            }
            _ => return Err(BindError::unsupported(format!("{name} of a field with these digits"), span)),
        };
        Ok(Bound::new(expr, found.signature.result, span))
    }
}

/// The number that an endless field of a constant time is, if the time is infinite.
fn infinite_constant(time: &Expr) -> Option<Numeric> {
    let (sign, infinity) = match time {
        Expr::Cast(cast) => return infinite_constant(&cast.expr),
        Expr::Literal(ScalarValue::Date32(Some(days)), _) => (*days < 0, matches!(*days, i32::MIN | i32::MAX)),
        Expr::Literal(ScalarValue::TimestampMicrosecond(Some(micros), _), _) => {
            (*micros < 0, matches!(*micros, i64::MIN | i64::MAX))
        }
        Expr::Literal(text, _) => {
            let text = text.try_as_str().flatten()?.trim();
            let digits = text.strip_prefix('-');
            (digits.is_some(), digits.unwrap_or(text).eq_ignore_ascii_case("infinity"))
        }
        _ => return None,
    };
    let text = if sign { "-Infinity" } else { "Infinity" };
    text.parse().ok().filter(|_| infinity)
}

/// Whether a cast may have other results under other settings, of times in most cases, so that
/// PostgreSQL does not call it immutable. Constants are read when a statement is bound.
pub(crate) fn depends_on_settings(from: TypeId, to: TypeId) -> bool {
    use TypeId as T;
    // PostgreSQL does not look at the elements of arrays as texts.
    if from != T::UNKNOWN && from.element().is_some() != to.element().is_some() {
        return true;
    }
    let (from, to) = (from.element().unwrap_or(from), to.element().unwrap_or(to));
    let is_text = |id: TypeId| id.category() == Category::String;
    match (from, to) {
        (T::UNKNOWN, _) => false,
        (T::TIMESTAMPTZ, to) => to != T::TIMESTAMPTZ,
        (T::DATE | T::TIMESTAMP, to) => to == T::TIMESTAMPTZ || is_text(to),
        (T::INTERVAL, to) => is_text(to),
        (from, T::DATE | T::TIME | T::TIMESTAMP | T::TIMESTAMPTZ | T::INTERVAL) => is_text(from),
        _ => false,
    }
}

/// The last sixteen bits of an INTEGER as a SMALLINT.
fn last_bits(value: Expr) -> Expr {
    let bits = binary(value, Operator::BitwiseAnd, lit(0xFFFF_i32));
    let sign = binary(bits, Operator::BitwiseXor, lit(0x8000_i32));
    cast_to(binary(sign, Operator::Minus, lit(0x8000_i32)), DataType::Int16)
}

fn is_of_bits(operator: Operator) -> bool {
    use Operator::{BitwiseAnd, BitwiseOr, BitwiseShiftLeft, BitwiseShiftRight, BitwiseXor};
    matches!(operator, BitwiseAnd | BitwiseOr | BitwiseXor | BitwiseShiftLeft | BitwiseShiftRight)
}

/// PostgreSQL's place of an expression: that of its first operand. For a constant with the name of
/// its type, it is the place of the constant.
fn first_place(tree: &Tree) -> Span {
    let mut tree = tree;
    loop {
        tree = match &tree.kind {
            ExprKind::Or(operands) | ExprKind::And(operands) => match operands.first() {
                Some(first) => first,
                None => return tree.span,
            },
            ExprKind::Operators(first, _) | ExprKind::Postfix(first, _) => first,
            ExprKind::Between { operand, .. }
            | ExprKind::InList { operand, .. }
            | ExprKind::InQuery { operand, .. }
            | ExprKind::Like { operand, .. } => operand,
            ExprKind::Quantified { left, .. } => left,
            ExprKind::Cast { operand, .. } if matches!(operand.kind, ExprKind::Literal(Literal::String(_))) => operand,
            _ => return tree.span,
        };
    }
}

fn is_backslash(escape: &Tree) -> bool {
    matches!(&escape.kind, ExprKind::Literal(Literal::String(text)) if text == "\\")
}

/// A text of a collation. All compare bytes.
fn collated(operand: Bound, name: &serac_parser::tree::Name) -> Result<Bound> {
    let is_known = match &name.parts[..] {
        [schema, name] if schema.name == "pg_catalog" => is_of_bytes(&name.name),
        [name] => is_of_bytes(&name.name),
        _ => false,
    };
    match operand.id.element().unwrap_or(operand.id) {
        _ if !is_known => {
            let message = format!("collation \"{name}\" for encoding \"UTF8\" does not exist");
            Err(BindError::without_place(sqlstate::UNDEFINED_OBJECT, message))
        }
        TypeId::UNKNOWN | TypeId::TEXT | TypeId::VARCHAR | TypeId::BPCHAR | TypeId::NAME => operand.into_text(),
        _ => {
            // PostgreSQL points to the word COLLATE.
            let message = format!("collations are not supported by type {}", operand.id);
            Err(BindError::without_place(sqlstate::DATATYPE_MISMATCH, message))
        }
    }
}

fn is_of_bytes(collation: &str) -> bool {
    matches!(collation, "default" | "C" | "POSIX" | "ucs_basic")
}

/// The function that an operator is; `None` for operators that are operators here, too.
fn function_of_operator(symbol: &str, left: TypeId, signature: &Signature) -> Option<&'static str> {
    let is_jsonb = left == TypeId::JSONB;
    let is_array = left.element().is_some();
    Some(match (symbol, signature.arguments.len()) {
        ("->", 2) if left == TypeId::JSON => "json_get",
        ("->>", 2) if left == TypeId::JSON => "json_get_text",
        ("#>", 2) if left == TypeId::JSON => "json_at_path",
        ("#>>", 2) if left == TypeId::JSON => "json_at_path_text",
        ("->", 2) if is_jsonb => "jsonb_get",
        ("->>", 2) if is_jsonb => "jsonb_get_text",
        ("#>", 2) if is_jsonb => "jsonb_at_path",
        ("#>>", 2) if is_jsonb => "jsonb_at_path_text",
        ("#-", 2) if is_jsonb => "jsonb_delete_path",
        ("-", 2) if is_jsonb => "jsonb_delete",
        ("||", 2) if is_jsonb => "jsonb_concat",
        ("@>", 2) if is_jsonb => "jsonb_contains",
        ("<@", 2) if is_jsonb => "jsonb_contained",
        ("?", 2) if is_jsonb => "jsonb_exists",
        ("?|", 2) if is_jsonb => "jsonb_exists_any",
        ("?&", 2) if is_jsonb => "jsonb_exists_all",
        ("@>" | "<@", 2) if is_array => "array_has_all",
        ("&&", 2) if is_array => "array_has_any",
        ("||", 2) if left == TypeId::BYTEA => "byteacat",
        ("^@", 2) => "starts_with",
        ("^", 2) if left == TypeId::FLOAT8 => "power",
        ("|/", 1) => "sqrt",
        ("||/", 1) => "cbrt",
        ("@", 1) if left != TypeId::NUMERIC => "abs",
        _ => return None,
    })
}

/// A constant.
fn constant(literal: &Literal, span: Span) -> Result<Bound> {
    let (value, id) = match literal {
        Literal::Integer(digits) => match (digits.parse::<i32>(), digits.parse::<i64>()) {
            (Ok(number), _) => (ScalarValue::Int32(Some(number)), TypeId::INT4),
            (_, Ok(number)) => (ScalarValue::Int64(Some(number)), TypeId::INT8),
            _ => return number(digits, span),
        },
        Literal::Numeric(digits) => return number(digits, span),
        Literal::String(text) => (ScalarValue::Utf8(Some(text.clone())), TypeId::UNKNOWN),
        Literal::Boolean(value) => (ScalarValue::Boolean(Some(*value)), TypeId::BOOL),
        Literal::Null => (ScalarValue::Utf8(None), TypeId::UNKNOWN),
        Literal::Bits(_) | Literal::HexBits(_) => return Err(BindError::unsupported("a bit string", span)),
    };
    Ok(Bound::new(Expr::Literal(value, None), id, span))
}

fn number(digits: &str, span: Span) -> Result<Bound> {
    match digits.parse() {
        Ok(number) => Ok(Bound::new(number_constant(&number), TypeId::NUMERIC, span)),
        Err(NumericError { sqlstate, message, .. }) => Err(BindError::new(sqlstate, message, span)),
    }
}

fn is_least(operand: &Bound) -> bool {
    matches!(operand.expr, Expr::Literal(ScalarValue::Int32(Some(i32::MIN)), _))
}

/// The negative of a constant; `None` if it is no constant, or has no negative.
fn negative(operand: &Bound) -> Option<Bound> {
    let Expr::Literal(value, _) = &operand.expr else { return None };
    let value = match value {
        ScalarValue::Int32(Some(number)) => ScalarValue::Int32(Some(number.checked_neg()?)),
        ScalarValue::Int64(Some(number)) => ScalarValue::Int64(Some(number.checked_neg()?)),
        ScalarValue::Decimal128(Some(number), precision, scale) => {
            ScalarValue::Decimal128(Some(-number), *precision, *scale)
        }
        ScalarValue::LargeBinary(Some(bytes)) => {
            ScalarValue::LargeBinary(Some(Numeric::of_stored(bytes).ok()?.negated().to_stored()))
        }
        _ => return None,
    };
    Some(Bound::new(Expr::Literal(value, None), operand.id, operand.span))
}

/// The words of an interval's fields.
fn words(fields: IntervalFields) -> &'static str {
    match fields {
        IntervalFields::Year => "YEAR",
        IntervalFields::Month => "MONTH",
        IntervalFields::Day => "DAY",
        IntervalFields::Hour => "HOUR",
        IntervalFields::Minute => "MINUTE",
        IntervalFields::Second => "SECOND",
        IntervalFields::YearToMonth => "YEAR TO MONTH",
        IntervalFields::DayToHour => "DAY TO HOUR",
        IntervalFields::DayToMinute => "DAY TO MINUTE",
        IntervalFields::DayToSecond => "DAY TO SECOND",
        IntervalFields::HourToMinute => "HOUR TO MINUTE",
        IntervalFields::HourToSecond => "HOUR TO SECOND",
        IntervalFields::MinuteToSecond => "MINUTE TO SECOND",
    }
}

/// `'3'` of a single field, with its unit in the text.
fn with_unit(operand: &Bound, fields: IntervalFields) -> Option<Bound> {
    let unit = match fields {
        IntervalFields::Year => "year",
        IntervalFields::Month => "month",
        IntervalFields::Day => "day",
        IntervalFields::Hour => "hour",
        IntervalFields::Minute => "minute",
        IntervalFields::Second => "second",
        _ => return None,
    };
    match (&operand.expr, operand.id) {
        (Expr::Literal(ScalarValue::Utf8(Some(text)), _), TypeId::UNKNOWN) if text.parse::<i32>().is_ok() => {
            let text = Expr::Literal(ScalarValue::Utf8(Some(format!("{text} {unit}"))), None);
            Some(Bound::new(text, TypeId::UNKNOWN, operand.span))
        }
        _ => None,
    }
}

/// Names of types that PostgreSQL does not have.
const OTHER_NAMES: [(&str, TypeId); 4] =
    [("blob", TypeId::BYTEA), ("double", TypeId::FLOAT8), ("string", TypeId::TEXT), ("varbinary", TypeId::BYTEA)];

/// The type of a name.
///
/// # Errors
/// 42704 if the type does not exist; 0A000 if it is not supported here.
pub fn type_of(to: &TypeName) -> Result<TypeId> {
    let shown = || format!("{}{}", to.name, if to.dimensions > 0 { "[]" } else { "" });
    if to.is_set || to.of_column {
        return Err(BindError::unsupported("a type of this form", to.span));
    }
    let name = match &to.name.parts[..] {
        [name] => Some(name.name.as_str()),
        [schema, name] if schema.name == "pg_catalog" => Some(name.name.as_str()),
        _ => None,
    };
    let other = || OTHER_NAMES.iter().find(|(other, _)| Some(*other) == name).map(|(_, id)| *id);
    let unsupported = || BindError::unsupported(format!("type {}", shown()), to.span);
    let Some(id) = name.and_then(TypeId::by_name).or_else(other) else {
        let is_left_out = name.is_some_and(serac_pg::types::is_left_out) || to.name.parts.len() > 2;
        return Err(match is_left_out || to.name.parts[0].name == "information_schema" {
            true => unsupported(),
            false => {
                BindError::new(sqlstate::UNDEFINED_OBJECT, format!("type \"{}\" does not exist", shown()), to.span)
            }
        });
    };
    match to.dimensions {
        0 => Ok(id),
        // An array of arrays is one of their elements.
        _ if id.element().is_some() && !id.is_vector() => Ok(id),
        _ => id.array().ok_or_else(unsupported),
    }
}

/// Arrays, possibly nested, that must have the same number of dimensions. NULL is one of any.
fn arrays_of_one_dimension(mut arrays: Vec<Expr>, schema: &DFSchema) -> Result<Vec<Expr>> {
    let is_null = |expr: &Expr| matches!(expr, Expr::Literal(value, _) if value.is_null());
    let mut stored: Option<DataType> = None;
    for array in arrays.iter().filter(|array| !is_null(array)) {
        let given = array.get_type(schema)?;
        if stored.as_ref().is_some_and(|stored| dimensions(stored) != dimensions(&given)) {
            return Err(BindError::unsupported("an expression that gives arrays of several dimensions", NO_PLACE));
        }
        stored = Some(given);
    }
    if let Some(stored) = stored {
        for null in arrays.iter_mut().filter(|array| is_null(array)) {
            *null = Expr::Literal(ScalarValue::try_from(&stored)?, None);
        }
    }
    Ok(arrays)
}

impl Binder<'_> {
    /// Operands of a comparison, as values that Arrow compares.
    pub(crate) fn alike(&self, operands: Vec<Bound>, signature: &Signature, schema: &DFSchema) -> Result<[Expr; 2]> {
        let to = comparable(signature)?;
        let operands = operands.into_iter().zip(&signature.arguments);
        let operands = operands.map(|(operand, own)| self.implicitly(operand, *own, schema)).collect::<Result<_>>()?;
        let mut exprs = self.compared_values(operands, to, schema)?;
        let right = exprs.swap_remove(1);
        Ok([exprs.swap_remove(0), right])
    }

    /// Expressions as values of a type that Arrow compares.
    fn compared_values(&self, all: Vec<Bound>, to: TypeId, schema: &DFSchema) -> Result<Vec<Expr>> {
        let exprs = self.of_type(all, to, schema)?;
        match to {
            TypeId::NUMERIC => crate::number_forms::compared(exprs, schema),
            _ => exprs.into_iter().map(|expr| self.key(expr, schema)).collect(),
        }
    }

    /// Expressions as values of a type, which are stored in one form.
    fn of_one_type(&self, all: Vec<Bound>, to: TypeId, schema: &DFSchema) -> Result<Vec<Expr>> {
        let exprs = self.of_type(all, to, schema)?;
        match to {
            TypeId::NUMERIC => crate::number_forms::of_one_form(exprs, schema),
            _ if to.element() == Some(TypeId::NUMERIC) => arrays_of_one_form(exprs, true, schema),
            _ => Ok(exprs),
        }
    }

    /// Expressions as values of a type. Numbers may have several forms.
    fn of_type(&self, all: Vec<Bound>, to: TypeId, schema: &DFSchema) -> Result<Vec<Expr>> {
        let exprs =
            all.into_iter().map(|one| Ok(self.implicitly(one, to, schema)?.expr)).collect::<Result<Vec<_>>>()?;
        // Rows are decided elsewhere.
        if to == TypeId::RECORD {
            return Err(BindError::unsupported("an expression that gives one of several rows", NO_PLACE));
        }
        if arrow_type(to).is_none() && to.element() != Some(TypeId::NUMERIC) {
            return Err(BindError::unsupported(format!("an expression of type {to}"), NO_PLACE));
        }
        match to.element() {
            Some(_) => arrays_of_one_dimension(exprs, schema),
            None => Ok(exprs),
        }
    }

    /// A value of another type where `context` allows that, by the environment where Arrow's cast
    /// has other rules.
    pub(crate) fn as_type(&self, bound: Bound, to: TypeId, context: CastContext, schema: &DFSchema) -> Result<Bound> {
        let (from, span) = (bound.id, bound.span);
        // Values without a type, and rows, are handled elsewhere.
        let is_typed = from != TypeId::RECORD && !types::is_no_type(from) && bound.parameter.is_none();
        let cast = self.cast_value(bound, to, context, schema);
        match is_typed {
            true => cast.map_err(|error| error.refused(format!("a cast of type {from} to {to}"), span)),
            false => cast,
        }
    }

    fn cast_value(&self, bound: Bound, to: TypeId, context: CastContext, schema: &DFSchema) -> Result<Bound> {
        let (from, span) = (bound.id, bound.span);
        let is_told = serac_pg::casts::cast(from, to, context).is_some();
        let is_text = matches!(to, TypeId::TEXT | TypeId::VARCHAR);
        if from == TypeId::RECORD && is_text && context != CastContext::Implicit {
            return self.row_text(bound).map(|text| Bound { id: to, ..text });
        }
        if from != to && is_told && bound.parameter.is_none() {
            if depends_on_settings(from, to) {
                self.is_immutable.set(false);
            }
            if let Some(expr) = self.environment.cast_by_settings(&bound.expr, from, to, span, schema)? {
                return Ok(Bound::new(expr, to, span));
            }
        }
        if from == to || !is_told || bound.parameter.is_some() || (from != TypeId::UNKNOWN && is_alike(from, to)) {
            return bound.into_type(to, context, schema);
        }
        if let (TypeId::UNKNOWN, Some(element), Expr::Literal(ScalarValue::Utf8(Some(text)), _)) =
            (from, to.element(), &bound.expr)
        {
            return self.array_of_text(text, to, span, schema, &|bound| self.implicitly(bound, element, schema));
        }
        if let Some(plain) = bound.clone().plain(to, context, schema)? {
            return Ok(plain);
        }
        if let (Some(of), Some(TypeId::NUMERIC)) = (from.element(), to.element())
            && let Some(digits) = integer_digits(of)
        {
            let numbers = with_elements(&bound.expr.get_type(schema)?, DataType::Decimal128(digits, 0));
            return Ok(Bound::new(cast_to(bound.expr, numbers), to, span));
        }
        if from == TypeId::JSONB && matches!(to.category(), Category::Numeric | Category::Boolean) {
            let name = if to == TypeId::BOOL { "jsonb_bool" } else { "jsonb_numeric" };
            let value = self.known_scalar(name)?.call(vec![bound.expr, lit(to.to_string())]);
            return match to {
                TypeId::BOOL => Ok(Bound::new(value, to, span)),
                _ => self.cast(Bound::new(value, TypeId::NUMERIC, span), to, schema),
            };
        }
        if to.element() == Some(TypeId::BPCHAR)
            && from.element().is_some_and(|element| stored_as(element) == TypeId::TEXT)
        {
            let function = self.known_scalar("texts_trimmed")?;
            return Ok(Bound::new(function.call(vec![bound.expr]), to, span));
        }
        if to == TypeId::NAME
            && from.category() == Category::String
            && let Some(function) = self.environment.scalar("text_name")
        {
            return checked(function.call(vec![bound.expr]), to, span, schema);
        }
        if to.element() == Some(TypeId::NUMERIC) {
            let texts = match (from.category(), from.element()) {
                (Category::String, _) => match TypeId::TEXT.array() {
                    Some(texts) => self.environment.cast(&bound.expr, from, texts, schema)?,
                    None => None,
                },
                (_, Some(element)) if stored_as(element) == TypeId::TEXT => Some(bound.expr.clone()),
                _ => None,
            };
            if let Some(texts) = texts {
                return Ok(Bound::new(serac_numeric_functions::lists::free(texts), to, span));
            }
        }
        // Bytes are read from the text that is shown.
        if (from, to) == (TypeId::BPCHAR, TypeId::BYTEA) {
            let text = self.padded(bound)?;
            return self.as_type(text, to, context, schema);
        }
        // Arrow makes bytes of a text that is a number. It keeps blanks that a CHAR(n) does not
        // have, and takes a text for an element of an array.
        let is_read =
            to.element().is_none_or(|element| from.category() != Category::String || is_read_in_arrays(element));
        if to == TypeId::NUMERIC || to.element() == Some(TypeId::BPCHAR) || !is_read {
            return Err(no_cast(from, to, span));
        }
        match self.environment.cast(&bound.expr, from, to, schema)? {
            Some(expr) if is_stored_as(&expr.get_type(schema)?, to) => Ok(Bound::new(expr, to, span)),
            _ => Err(no_cast(from, to, span)),
        }
    }

    /// Converts a value to another type by an implicit cast.
    pub(crate) fn implicitly(&self, bound: Bound, to: TypeId, schema: &DFSchema) -> Result<Bound> {
        self.as_type(bound, to, CastContext::Implicit, schema)
    }

    /// Converts a value to several types in turn by implicit casts.
    pub(crate) fn as_values(&self, bound: Bound, types: &[TypeId], schema: &DFSchema) -> Result<Bound> {
        types.iter().try_fold(bound, |bound, to| self.implicitly(bound, *to, schema))
    }

    /// Converts a value to another type by an explicit cast.
    pub(crate) fn cast(&self, bound: Bound, to: TypeId, schema: &DFSchema) -> Result<Bound> {
        self.as_type(bound, to, CastContext::Explicit, schema)
    }

    /// A value that is assigned to a column or a parameter of a type, where that is allowed.
    pub(crate) fn assigned(&self, bound: Bound, to: TypeId, schema: &DFSchema) -> Result<Bound> {
        self.cast(bound, to, schema)
    }

    /// A CHAR as a text with the blanks that its length adds, or that it has been given.
    pub(crate) fn padded(&self, bound: Bound) -> Result<Bound> {
        let Some(length) = bound.modified_type().length() else {
            let text = match (given_blanks(&bound.expr), &bound.expr) {
                (Some(text), _) => text.clone(),
                (None, constant @ Expr::Literal(..)) => constant.clone(),
                (None, _) => {
                    let message = "the blanks at the end of such a CHAR without a length are not supported";
                    return Err(BindError::new(sqlstate::FEATURE_NOT_SUPPORTED, message, bound.span));
                }
            };
            return Ok(Bound::new(text, TypeId::TEXT, bound.span));
        };
        let function = self.known_scalar("rpad")?;
        let length = Expr::Literal(ScalarValue::Int64(Some(i64::from(length))), None);
        let text = cast_to(function.call(vec![bound.expr, length]), DataType::Utf8View);
        Ok(Bound::new(text, TypeId::TEXT, bound.span))
    }

    /// A CHAR(n) as one without a length, which keeps the blanks that its length has added. Other
    /// values stay as they are.
    pub(crate) fn with_own_blanks(&self, bound: Bound) -> Result<Bound> {
        match bound.modified_type().length() {
            Some(_) if bound.id == TypeId::BPCHAR => {
                let text = self.padded(bound)?;
                Ok(Bound::new(without_blanks(text.expr), TypeId::BPCHAR, text.span))
            }
            _ => Ok(bound),
        }
    }

    /// An interval restricted to fields, or to digits of a second.
    fn interval(
        &self,
        operand: Bound,
        fields: Option<IntervalFields>,
        digits: &[i32],
        at: Span,
        schema: &DFSchema,
    ) -> Result<Bound> {
        let told = |fields: Option<IntervalFields>, digits: Option<i64>| {
            let fields = fields.and_then(|fields| interval_fields(words(fields)));
            ModifiedType::of_interval(fields, digits.and_then(|digits| u16::try_from(digits).ok())).modifier
        };
        let span = if operand.id == TypeId::UNKNOWN { operand.span } else { at };
        if let (Some(fields), []) = (fields, digits)
            && let Some(whole) = with_unit(&operand, fields)
        {
            return Ok(Bound { modifier: told(Some(fields), None), ..self.cast(whole, TypeId::INTERVAL, schema)? });
        }
        let operand = match (operand.id, &operand.expr) {
            // The fields tell how it is read.
            (TypeId::UNKNOWN, Expr::Literal(..)) => operand.into_text()?,
            _ => self.cast(operand, TypeId::INTERVAL, schema)?,
        };
        let digits = match digits {
            [] => None,
            [digits] => Some(i64::from((*digits).min(6))),
            _ => return Err(BindError::new(sqlstate::INVALID_PARAMETER_VALUE, "invalid INTERVAL type modifier", at)),
        };
        let function = self.environment.scalar("interval_modified");
        let function = function.ok_or_else(|| BindError::unsupported("an interval of these fields", span))?;
        let modifier = told(fields, digits);
        let fields = fields.map(|fields| words(fields).to_owned());
        let fields = Expr::Literal(ScalarValue::Utf8View(fields), None);
        let digits = Expr::Literal(ScalarValue::Int64(digits), None);
        let interval = checked(function.call(vec![operand.expr, fields, digits]), TypeId::INTERVAL, span, schema)?;
        Ok(Bound { modifier, ..interval })
    }

    /// The type of a name, which may be that of a relation for the type of its rows.
    pub(crate) fn meant_type(&self, to: &TypeName) -> Result<TypeId> {
        let is_relation = || self.environment.relation(&to.name).is_ok() || self.environment.target(&to.name).is_ok();
        type_of(to).map_err(|error| match &error {
            BindError::Statement(known) if known.sqlstate == sqlstate::UNDEFINED_OBJECT && is_relation() => {
                BindError::unsupported(format!("the type of the rows of relation \"{}\"", to.name), to.span)
            }
            _ => error,
        })
    }

    /// Binds an explicit cast.
    pub(crate) fn explicit(&self, operand: Bound, to: &TypeName, at: Span, schema: &DFSchema) -> Result<Bound> {
        let id = type_of(to)?;
        if let (TypeId::RECORD, TypeId::UNKNOWN, Expr::Literal(value, _)) = (id, operand.id, &operand.expr) {
            let message = "input of anonymous composite types is not implemented";
            return match value.is_null() {
                true => Bound::null(id, operand.span),
                false => Err(BindError::new(sqlstate::FEATURE_NOT_SUPPORTED, message, operand.span)),
            };
        }
        let modifiers = to.modifiers.iter().map(modifier).collect::<Result<Vec<i32>>>()?;
        if id == TypeId::INTERVAL && (to.fields.is_some() || !modifiers.is_empty()) {
            return self.interval(operand, to.fields, &modifiers, at, schema);
        }
        if arrow_type(operand.id).is_none()
            && !matches!(operand.id, TypeId::UNKNOWN | TypeId::RECORD)
            && operand.id.element() != Some(TypeId::NUMERIC)
        {
            return Err(no_cast(operand.id, id, at));
        }
        check_modifiers(id, to, &modifiers)?;
        let (from, place) = (operand.id, if operand.id == TypeId::UNKNOWN { operand.span } else { at });
        let operand = operand.at(place);
        if let (TypeId::UNKNOWN, Some(element), Expr::Literal(ScalarValue::Utf8(Some(text)), _)) =
            (from, id.element(), &operand.expr)
            && !modifiers.is_empty()
        {
            let cast = |bound| self.modified(self.cast(bound, element, schema)?, &modifiers, schema);
            let array = self.array_of_text(text, id, place, schema, &cast);
            // An array has the modifier of its elements.
            let array = array.and_then(|array| {
                let ModifiedType { modifier, .. } = cast(Bound::null(element, place)?)?.modified_type();
                Ok(Bound { modifier, ..array })
            });
            return array.map_err(|error| error.refused(format!("a cast of a text to {id}"), place));
        }
        let operand =
            if id == TypeId::BPCHAR && modifiers.is_empty() { self.with_own_blanks(operand)? } else { operand };
        let bound = self.modified(self.cast(operand, id, schema)?, &modifiers, schema);
        bound.map_err(|error| error.refused(format!("a cast of type {from} to {id} with a modifier"), place))
    }

    /// A value of a type with modifiers.
    fn modified(&self, bound: Bound, modifiers: &[i32], schema: &DFSchema) -> Result<Bound> {
        let (id, span) = (bound.id, bound.span);
        match (id.element().unwrap_or(id), modifiers) {
            // `bpchar` has no length, and the length of CHAR is written out.
            (_, []) => {
                let origin = bound.origin.filter(|_| bound.modifier == NO_MODIFIER);
                Ok(Bound { modifier: NO_MODIFIER, origin, ..bound })
            }
            (TypeId::NUMERIC, [precision, scale @ ..]) => {
                let (precision, scale) = (*precision, scale.first().copied().unwrap_or(0));
                if id == TypeId::NUMERIC {
                    let expr = crate::number_forms::with_digits(bound.expr, precision, scale, schema)?;
                    let (Ok(precision), Ok(scale)) = (u16::try_from(precision), i16::try_from(scale)) else {
                        return Ok(Bound::new(expr, id, span));
                    };
                    return Ok(Bound::of_type(expr, ModifiedType::of_digits(precision, scale), span));
                }
                let (Ok(all @ 1..=38), Ok(behind @ 0..), false) =
                    (u8::try_from(precision), i8::try_from(scale), scale > precision)
                else {
                    return Err(BindError::unsupported(format!("type numeric({precision},{scale})[]"), span));
                };
                let numbers = with_elements(&bound.expr.get_type(schema)?, DataType::Decimal128(all, behind));
                let ModifiedType { modifier, .. } = ModifiedType::of_digits(all.into(), behind.into());
                Ok(Bound { modifier, ..Bound::new(cast_to(bound.expr, numbers), id, span) })
            }
            (TypeId::VARCHAR, [length]) if id.element().is_some() => {
                let ModifiedType { modifier, .. } = ModifiedType::of_length(TypeId::VARCHAR, length.unsigned_abs());
                let length = Expr::Literal(ScalarValue::Int64(Some(i64::from(*length))), None);
                let cut = self.known_scalar("texts_cut")?.call(vec![bound.expr, length]);
                Ok(Bound { modifier, ..checked(cut, id, span, schema)? })
            }
            _ if id.element().is_some() => Err(BindError::unsupported(format!("type {id} with a modifier"), span)),
            (TypeId::TIME | TypeId::TIMESTAMP | TypeId::TIMESTAMPTZ, [digits]) => {
                let function = self.known_scalar("time_rounded")?;
                let modifier = (*digits).min(6);
                let digits = Expr::Literal(ScalarValue::Int64(Some(i64::from(modifier))), None);
                Ok(Bound { modifier, ..checked(function.call(vec![bound.expr, digits]), id, span, schema)? })
            }
            // An explicit cast cuts a long text.
            (TypeId::VARCHAR | TypeId::BPCHAR, [length]) => {
                let of = ModifiedType::of_length(id, length.unsigned_abs());
                if bound.modified_type() == of {
                    return Ok(bound);
                }
                let length = Expr::Literal(ScalarValue::Int64(Some(i64::from(*length))), None);
                let first = Expr::Literal(ScalarValue::Int64(Some(1)), None);
                let function = self.known_scalar("substr")?;
                let cut = checked(function.call(vec![bound.expr, first, length]), TypeId::TEXT, span, schema)?;
                Ok(Bound { modifier: of.modifier, ..cut.into_type(id, CastContext::Explicit, schema)? })
            }
            _ => Err(BindError::unsupported(format!("type {id} with a modifier"), span)),
        }
    }
}

/// Elements that arrays in texts may have.
fn is_read_in_arrays(element: TypeId) -> bool {
    use TypeId as T;
    integer_digits(element).is_some()
        || matches!(
            element,
            T::CHAR | T::BOOL | T::FLOAT4 | T::FLOAT8 | T::TEXT | T::VARCHAR | T::BYTEA | T::JSON | T::JSONB
        )
        || matches!(element, T::DATE | T::TIME | T::TIMESTAMP | T::TIMESTAMPTZ | T::INTERVAL)
}

/// A modifier of a type: a whole number.
fn modifier(tree: &Tree) -> Result<i32> {
    let number = |tree: &Tree, sign: &str| match &tree.kind {
        ExprKind::Literal(Literal::Integer(digits)) => format!("{sign}{digits}").parse().ok(),
        _ => None,
    };
    let number = match &tree.kind {
        ExprKind::Prefix(operators, operand) => match &operators[..] {
            [operator] if symbol(operator)? == "-" => number(operand, "-"),
            _ => None,
        },
        _ => number(tree, ""),
    };
    number.ok_or_else(|| BindError::unsupported("a type modifier that is no whole number", tree.span))
}

/// The type that a definition names, and the modifiers behind it. Modifiers of intervals are not
/// checked.
///
/// # Errors
/// As for a cast to the type.
pub fn type_with_modifiers(to: &TypeName) -> Result<(TypeId, Vec<i32>)> {
    let id = type_of(to)?;
    let modifiers = to.modifiers.iter().map(modifier).collect::<Result<Vec<i32>>>()?;
    if id != TypeId::INTERVAL {
        check_modifiers(id, to, &modifiers)?;
    }
    Ok((id, modifiers))
}

/// Checks that a type has these modifiers.
fn check_modifiers(id: TypeId, to: &TypeName, modifiers: &[i32]) -> Result<()> {
    /// Characters that a text may be limited to.
    const MOST_CHARACTERS: i32 = 10_485_760;
    let wrong = |sqlstate, message: String| Err(BindError::new(sqlstate, message, to.span));
    match (id.element().unwrap_or(id), modifiers) {
        (_, []) => Ok(()),
        (TypeId::NUMERIC, [precision, ..]) if !(1..=1000).contains(precision) => wrong(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("NUMERIC precision {precision} must be between 1 and 1000"),
        ),
        (TypeId::NUMERIC, [_, scale]) if !(-1000..=1000).contains(scale) => {
            wrong(sqlstate::INVALID_PARAMETER_VALUE, format!("NUMERIC scale {scale} must be between -1000 and 1000"))
        }
        (TypeId::NUMERIC, [_] | [_, _]) => Ok(()),
        (TypeId::NUMERIC, _) => wrong(sqlstate::INVALID_PARAMETER_VALUE, "invalid NUMERIC type modifier".into()),
        (text @ (TypeId::VARCHAR | TypeId::BPCHAR), [length]) => {
            let name = if text == TypeId::VARCHAR { "varchar" } else { "char" };
            match *length {
                ..=0 => wrong(sqlstate::INVALID_PARAMETER_VALUE, format!("length for type {name} must be at least 1")),
                1..=MOST_CHARACTERS => Ok(()),
                _ => wrong(
                    sqlstate::INVALID_PARAMETER_VALUE,
                    format!("length for type {name} cannot exceed {MOST_CHARACTERS}"),
                ),
            }
        }
        (TypeId::TIME | TypeId::TIMESTAMP | TypeId::TIMESTAMPTZ, [_]) => Ok(()),
        (other, _) => wrong(sqlstate::SYNTAX_ERROR, format!("type modifier is not allowed for type \"{other}\"")),
    }
}
