//! Expressions: which operator, type and cast each part means.

use crate::bound::{Bound, decimal, is_alike};
use crate::error::{BindError, Result};
use crate::scope::{Outer, Scope};
use crate::subquery::{Comparison, levels_of, repeatable};
use crate::types::{arrow_type, comparable_values, integer_digits};
use crate::{Binder, row, types};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{Case, Cast, InList, Like};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, cast as cast_to};
use serac_parser::tree::{Expr as Tree, Operator as Symbol};
use serac_parser::tree::{
    ExprKind, Ident, IntervalFields, IsTest, LikeKind, Literal, Postfix, Quantity, Span, Special, TypeName, Window,
};
use serac_pg::resolve::{self, Resolved};
use serac_pg::{CastContext, Signature, TypeId};

/// Operators one behind the other, up to which a plan is a tower of them.
pub(crate) const MOST_IN_A_ROW: usize = 100;
/// Where an operator stands of which the tree has no place: BETWEEN, IN and their kin. Errors of it
/// are unknown.
pub(crate) const NO_PLACE: Span = Span { start: 0, end: 0 };
/// What an operand counts as that stands in the plan more than once: such operands in each other
/// would make it grow with each level twofold.
pub(crate) const LEVELS_OF_COPIES: usize = 80;

/// Where an expression stands.
#[derive(Clone, Copy)]
pub(crate) struct Context<'c> {
    /// The columns that it may name.
    pub(crate) scope: &'c Scope,
    /// Those of the plan below.
    pub(crate) schema: &'c DFSchema,
    /// What is around the query.
    pub(crate) outer: Option<&'c Outer<'c>>,
    /// The windows that have names.
    pub(crate) named_windows: &'c [(Ident, Window)],
    /// The clause, if aggregates are not allowed in it: `WHERE`.
    pub(crate) without_aggregates: Option<&'static str>,
    /// The same for window functions.
    pub(crate) without_windows: Option<&'static str>,
}

impl<'c> Context<'c> {
    /// An expression over these columns, where all functions may stand.
    pub(crate) fn new(scope: &'c Scope, schema: &'c DFSchema, outer: Option<&'c Outer<'c>>) -> Self {
        Self { scope, schema, outer, named_windows: &[], without_aggregates: None, without_windows: None }
    }
    /// The same, where neither aggregates nor window functions may stand.
    pub(crate) fn in_clause(self, clause: &'static str) -> Self {
        Self { without_aggregates: Some(clause), without_windows: Some(clause), ..self }
    }
    /// The same, where no window function may stand.
    pub(crate) fn without_windows(self, clause: &'static str) -> Self {
        Self { without_windows: Some(clause), ..self }
    }
}

/// `a AND b AND c` as a tree that is as flat as can be.
pub(crate) fn joined(mut exprs: Vec<Expr>, operator: Operator) -> Option<Expr> {
    while exprs.len() > 1 {
        let mut halves = Vec::with_capacity(exprs.len().div_ceil(2));
        let mut rest = exprs.into_iter();
        while let Some(left) = rest.next() {
            halves.push(match rest.next() {
                Some(right) => Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right))),
                None => left,
            });
        }
        exprs = halves;
    }
    exprs.pop()
}

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
    fn copied(&self, tree: &Tree, context: Context<'_>) -> Result<Bound> {
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
            ExprKind::Exists(query) => self.exists(query, span, context),
            ExprKind::Subquery(query) => self.scalar_subquery(query, span, context),
            ExprKind::Grouping(arguments) => self.grouping(arguments, span, context),
            ExprKind::Like { operand, negated, kind, pattern, escape, at } => {
                let (operand, pattern) = (self.expression(operand, context)?, self.expression(pattern, context)?);
                let start = operand.span;
                let escape = match escape.as_deref() {
                    None => None,
                    Some(escape) => Some(one_character(escape)?),
                };
                // PostgreSQL points to the word NOT before it, if there is one.
                let at = if *negated { NO_PLACE } else { *at };
                Ok(self.like(*kind, *negated, vec![operand, pattern], escape, at, context)?.at(start))
            }
            ExprKind::Case { operand, whens, otherwise } => {
                self.case(operand.as_deref(), whens, otherwise.as_deref(), span, context)
            }
            ExprKind::Cast { operand, to } => {
                type_of(to)?;
                let operand = self.expression(operand, context)?;
                let start = if operand.id == TypeId::UNKNOWN { operand.span } else { span };
                Ok(self.explicit(operand, to, span, context.schema)?.at(start))
            }
            ExprKind::Special(special) => self.special(special, span, context),
            _ => Err(BindError::Unknown("an expression of this kind")),
        }
    }
    /// A condition of a clause.
    pub(crate) fn condition(&self, clause: &str, tree: &Tree, context: Context<'_>) -> Result<Expr> {
        let bound = self.expression(tree, context)?;
        match bound.id {
            TypeId::BOOL => Ok(bound.expr),
            TypeId::UNKNOWN => Ok(bound.implicitly(TypeId::BOOL, context.schema)?.expr),
            other => {
                let message = format!("argument of {clause} must be type boolean, not type {other}");
                Err(BindError::new("42804", message, bound.span))
            }
        }
    }
    fn logic(&self, clause: &str, operands: &[Tree], operator: Operator, context: Context<'_>) -> Result<Expr> {
        let operands = operands.iter().map(|operand| self.condition(clause, operand, context));
        joined(operands.collect::<Result<_>>()?, operator).ok_or(BindError::Unknown("nothing to join"))
    }
    fn operators(&self, first: &Tree, rest: &[(Symbol, Tree)], context: Context<'_>) -> Result<Bound> {
        if rest.len() > MOST_IN_A_ROW {
            return Err(BindError::Unknown("so many operators in a row"));
        }
        let mut rest = rest.iter();
        let mut left = match (row::fields(first), rest.clone().next()) {
            (Some(fields), Some((operator, right))) => {
                rest.next();
                let right = row::fields(right).ok_or(BindError::Unknown("a row beside something else"))?;
                let compare = || self.compare_rows(symbol(operator)?, operator.span, fields, right, context);
                self.deeper(LEVELS_OF_COPIES, compare)?
            }
            _ => self.expression(first, context)?,
        };
        for (operator, right) in rest {
            let right = self.expression(right, context)?;
            let start = left.span;
            left = self.operate(symbol(operator)?, operator.span, vec![left, right], context)?.at(start);
        }
        Ok(left)
    }
    fn prefixes(&self, operators: &[Symbol], operand: &Tree, context: Context<'_>) -> Result<Bound> {
        let mut operators = operators;
        let mut operand = match &operand.kind {
            // Signs are part of the number behind them, of which there is one more below zero than
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
                (symbol, _) => self.operate(symbol, operator.span, vec![operand], context)?,
            };
            operand = signed.at(operator.span);
        }
        Ok(operand)
    }
    fn postfixes(&self, operand: &Tree, rest: &[Postfix], context: Context<'_>) -> Result<Bound> {
        if rest.len() > MOST_IN_A_ROW {
            return Err(BindError::Unknown("so much behind an operand"));
        }
        // What type is meant is asked before the operand is bound.
        for postfix in rest {
            if let Postfix::Cast(to, _) = postfix {
                type_of(to)?;
            }
        }
        let mut rest = rest;
        let mut operand = match (row::fields(operand), rest) {
            (Some(fields), [Postfix::Is { negated, test: IsTest::Null, at }, others @ ..]) => {
                rest = others;
                self.row_is_null(fields, *negated, *at, context)?
            }
            _ => self.expression(operand, context)?,
        };
        for postfix in rest {
            let start = operand.span;
            operand = match postfix {
                Postfix::Cast(to, at) => self.explicit(operand, to, *at, context.schema)?,
                Postfix::Is { negated, test, at } => self.is(operand, *negated, test, *at, context)?,
                _ => return Err(BindError::Unknown("what follows an operand")),
            };
            operand = operand.at(start);
        }
        Ok(operand)
    }
    fn is(&self, operand: Bound, negated: bool, test: &IsTest, at: Span, context: Context<'_>) -> Result<Bound> {
        let boolean = |clause: &str, operand: Bound| match operand.id {
            TypeId::BOOL | TypeId::UNKNOWN => Ok(Box::new(operand.implicitly(TypeId::BOOL, context.schema)?.expr)),
            other => {
                let message = format!("argument of {clause} must be type boolean, not type {other}");
                Err(BindError::new("42804", message, operand.span))
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
                let [left, right] = alike(vec![operand, other], signature, context.schema)?;
                Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
            }
            _ => return Err(BindError::Unknown("what IS asks")),
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
    /// `a IN (1, 2, b)`. Constants are looked for in one list, in their common type; others one by
    /// one.
    fn in_list(&self, operand: &Tree, list: &[Tree], negated: bool, span: Span, context: Context<'_>) -> Result<Expr> {
        let is_simple = list.iter().all(|item| matches!(item.kind, ExprKind::Literal(_) | ExprKind::Parameter(_)));
        let mut operand = if is_simple { self.expression(operand, context)? } else { self.copied(operand, context)? };
        let list: Vec<Bound> = list.iter().map(|item| self.expression(item, context)).collect::<Result<_>>()?;
        let is_constant = |item: &Bound| levels_of(std::slice::from_ref(&item.expr), context.schema) == (false, false);
        let (constants, others): (Vec<Bound>, Vec<Bound>) = list.into_iter().partition(is_constant);
        let (symbol, join) = if negated { ("<>", Operator::And) } else { ("=", Operator::Or) };
        let mut all = Vec::new();
        let types: Vec<TypeId> = [&operand].into_iter().chain(&constants).map(|item| item.id).collect();
        let mut single = others;
        match resolve::common(&types) {
            Ok(common) if constants.len() > 1 => {
                all.push(self.in_constants(operand.clone(), constants, common, negated, span, context)?);
                // It has decided what a parameter is.
                operand = operand.renewed()?;
            }
            _ => single.extend(constants),
        }
        for item in single {
            all.push(self.operate(symbol, span, vec![self.copy(&operand)?, item], context)?.expr);
        }
        joined(all, join).ok_or(BindError::Unknown("an empty list"))
    }
    fn in_constants(
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
            all.push(item.implicitly(common, context.schema)?);
        }
        let mut exprs = of_one_type(all, comparable(signature)?, true, context.schema)?.into_iter();
        let operand = exprs.next().ok_or(BindError::Unknown("an empty list"))?;
        Ok(Expr::InList(InList::new(Box::new(operand), exprs.collect(), negated)))
    }
    fn like(
        &self,
        kind: LikeKind,
        negated: bool,
        operands: Vec<Bound>,
        escape: Option<char>,
        at: Span,
        context: Context<'_>,
    ) -> Result<Bound> {
        if escape.is_some_and(|escape| escape != '\\') {
            return Err(BindError::Unknown("LIKE with another ESCAPE"));
        }
        let symbol = match (kind, negated) {
            (LikeKind::Like, false) => "~~",
            (LikeKind::Like, true) => "!~~",
            (LikeKind::ILike, false) => "~~*",
            (LikeKind::ILike, true) => "!~~*",
            (LikeKind::Similar, _) => return Err(BindError::Unknown("SIMILAR TO")),
        };
        let signature = resolved(symbol, at, &[operands[0].id, operands[1].id])?;
        if signature.arguments != [TypeId::TEXT, TypeId::TEXT] {
            return Err(BindError::Unknown("LIKE of these types"));
        }
        let [operand, pattern] = alike(operands, signature, context.schema)?;
        let is_any_case = kind == LikeKind::ILike;
        let like = Like::new(negated, Box::new(operand), Box::new(pattern), escape, is_any_case);
        Ok(Bound::new(Expr::Like(like), TypeId::BOOL, at))
    }
    fn case(
        &self,
        operand: Option<&Tree>,
        whens: &[(Tree, Tree)],
        otherwise: Option<&Tree>,
        span: Span,
        context: Context<'_>,
    ) -> Result<Bound> {
        let operand = match operand {
            None => None,
            Some(operand) => {
                let operand = match whens.len() {
                    1 => self.expression(operand, context)?,
                    _ => self.copied(operand, context)?,
                };
                repeatable(&operand.expr)?;
                // A constant of no type is a text to all of them.
                Some(match operand.id {
                    TypeId::UNKNOWN => operand.implicitly(TypeId::TEXT, context.schema)?,
                    _ => operand,
                })
            }
        };
        let (mut conditions, mut thens) = (Vec::new(), Vec::new());
        for (when, then) in whens {
            conditions.push(match &operand {
                None => self.condition("CASE/WHEN", when, context)?,
                Some(operand) => {
                    let when = self.expression(when, context)?;
                    // PostgreSQL points to the word WHEN.
                    self.operate("=", NO_PLACE, vec![self.copy(operand)?, when], context)?.expr
                }
            });
            thens.push(self.expression(then, context)?);
        }
        // The result of ELSE is the first whose type counts.
        let mut results = vec![match otherwise {
            Some(otherwise) => self.expression(otherwise, context)?,
            None => constant(&Literal::Null, span)?,
        }];
        results.extend(thens);
        let (results, id, is_ragged) = self.unified_numbers("CASE", results, context.schema)?;
        let mut results = results.into_iter().map(Box::new);
        let otherwise = results.next().filter(|_| otherwise.is_some());
        let whens = conditions.into_iter().map(Box::new).zip(results).collect();
        Ok(Bound::new(Expr::Case(Case::new(None, whens, otherwise)), id, span).ragged(is_ragged))
    }
    /// Expressions as values of their common type.
    pub(crate) fn unified(&self, what: &str, all: Vec<Bound>, schema: &DFSchema) -> Result<(Vec<Expr>, TypeId)> {
        match self.unified_numbers(what, all, schema)? {
            (exprs, id, false) => Ok((exprs, id)),
            _ => Err(BindError::Unknown("numbers of different digits")),
        }
    }
    /// The same, and whether they are numbers that have digits of their own in PostgreSQL.
    fn unified_numbers(&self, what: &str, all: Vec<Bound>, schema: &DFSchema) -> Result<(Vec<Expr>, TypeId, bool)> {
        let types: Vec<TypeId> = all.iter().map(|one| one.id).collect();
        let common = match resolve::common(&types) {
            Ok(common) => common,
            Err((one, other)) => {
                let at = all.iter().find(|bound| bound.id == other).map_or(Span::default(), |bound| bound.span);
                if one.category() == other.category() {
                    let at = all.iter().find(|bound| bound.id == one).map_or(at, |bound| bound.span);
                    return Err(BindError::new("42846", format!("{what} could not convert type {one} to {other}"), at));
                }
                let message = format!("{what} types {one} and {other} cannot be matched");
                return Err(BindError::new("42804", message, at));
            }
        };
        let all: Vec<Bound> = all.into_iter().map(|one| one.implicitly(common, schema)).collect::<Result<_>>()?;
        // Each value of PostgreSQL's has its own digits behind the point; here all of an expression
        // have the same.
        let mut is_ragged = false;
        if common == TypeId::NUMERIC {
            is_ragged = all.iter().any(|one| one.is_ragged);
            let mut first = None;
            for one in all.iter().filter(|one| !matches!(&one.expr, Expr::Literal(value, _) if value.is_null())) {
                let DataType::Decimal128(_, scale) = one.expr.get_type(schema)? else {
                    return Err(BindError::Unknown("a number of another form"));
                };
                is_ragged |= *first.get_or_insert(scale) != scale;
            }
        }
        Ok((of_one_type(all, common, false, schema)?, common, is_ragged))
    }
    /// An operator's application.
    pub(crate) fn operate(&self, symbol: &str, at: Span, operands: Vec<Bound>, context: Context<'_>) -> Result<Bound> {
        let types: Vec<TypeId> = operands.iter().map(|operand| operand.id).collect();
        let is_ragged = operands.iter().any(|operand| operand.is_ragged);
        let signature = resolved(symbol, at, &types)?;
        let like = match symbol {
            "~~" => Some((LikeKind::Like, false)),
            "!~~" => Some((LikeKind::Like, true)),
            "~~*" => Some((LikeKind::ILike, false)),
            "!~~*" => Some((LikeKind::ILike, true)),
            _ => None,
        };
        if let (Some((kind, negated)), 2) = (like, operands.len()) {
            return self.like(kind, negated, operands, Some('\\'), at, context);
        }
        let expr = match (symbol, &signature.arguments[..]) {
            ("=" | "<>" | "<" | "<=" | ">" | ">=", [_, _]) => {
                let [left, right] = alike(operands, signature, context.schema)?;
                self.environment.operate(comparison(symbol), left, right, context.schema)?
            }
            ("||", [..]) => {
                let mut operands = operands.into_iter();
                let mut text = || match operands.next() {
                    Some(operand) => Ok(self.cast(operand, TypeId::TEXT, context.schema)?.expr),
                    None => Err(BindError::Unknown("an operator without an operand")),
                };
                let (left, right) = (text()?, text()?);
                if signature.result != TypeId::TEXT {
                    return Err(BindError::Unknown("|| of these types"));
                }
                self.environment.operate(Operator::StringConcat, left, right, context.schema)?
            }
            (_, [_, _]) => self.arithmetic(symbol, operands, signature, context)?,
            ("+", [_]) if matches!(operands[..], [Bound { expr: Expr::Literal(..), .. }]) => return one(operands),
            ("-", [_]) if signature.result.category() == serac_pg::types::Category::Numeric => {
                let operand = one(operands)?.implicitly(signature.arguments[0], context.schema)?;
                Expr::Negative(Box::new(operand.expr))
            }
            _ => return Err(BindError::Unknown("this operator")),
        };
        let is_ragged = is_ragged && signature.result == TypeId::NUMERIC;
        Ok(checked(expr, signature.result, at, context.schema)?.ragged(is_ragged))
    }
    fn arithmetic(
        &self,
        symbol: &str,
        operands: Vec<Bound>,
        signature: &Signature,
        context: Context<'_>,
    ) -> Result<Expr> {
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
            _ => return Err(BindError::Unknown("this operator")),
        };
        if let Some(expr) = self.dates(symbol, &operands, signature, context)? {
            return Ok(expr);
        }
        let is_number = |id: &TypeId| integer_digits(*id).is_some() || matches!(*id, TypeId::FLOAT4 | TypeId::FLOAT8);
        let mut exprs = Vec::new();
        for (operand, to) in operands.into_iter().zip(&signature.arguments) {
            let operand = operand.implicitly(*to, context.schema)?;
            // Numbers of different types are computed in the result's.
            let operand = match is_number(to) && is_number(&signature.result) {
                true => operand.implicitly(signature.result, context.schema)?,
                false => operand,
            };
            exprs.push(operand.expr);
        }
        let (Some(right), Some(left)) = (exprs.pop(), exprs.pop()) else {
            return Err(BindError::Unknown("an operator without an operand"));
        };
        let is_simplified = signature.result == TypeId::NUMERIC && (is_unit(&left) || is_unit(&right));
        let result = self.environment.operate(operator, left, right, context.schema)?;
        // DataFusion makes `0` of `0 * d`, and `d` of `d / 1`, whatever their digits are.
        match is_simplified {
            true => {
                let digits = result.get_type(context.schema)?;
                Ok(Expr::Cast(Cast::new(Box::new(result), digits)))
            }
            false => Ok(result),
        }
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
            _ => return Ok(None),
        };
        let [left, right] = operands else { return Ok(None) };
        let [of_left, of_right] = signature.arguments[..] else { return Ok(None) };
        let value = |operand: &Bound, to| Ok::<_, BindError>(operand.clone().implicitly(to, context.schema)?.expr);
        let days = |operand: &Bound| Ok::<_, BindError>(cast_to(value(operand, T::DATE)?, DataType::Int32));
        let point = |operand: &Bound, of| match of {
            T::DATE => value(&operand.clone().implicitly(T::DATE, context.schema)?, T::TIMESTAMP),
            other => value(operand, other),
        };
        let operate = |left, right| self.environment.operate(operator, left, right, context.schema);
        Ok(Some(match (of_left, of_right) {
            (T::DATE, T::DATE) => operate(days(left)?, days(right)?)?,
            (T::DATE, T::INT4) => cast_to(operate(days(left)?, value(right, T::INT4)?)?, DataType::Date32),
            (T::INT4, T::DATE) => cast_to(operate(value(left, T::INT4)?, days(right)?)?, DataType::Date32),
            (T::DATE | T::TIMESTAMP, T::INTERVAL) => operate(point(left, of_left)?, value(right, T::INTERVAL)?)?,
            (T::INTERVAL, T::DATE | T::TIMESTAMP) => operate(point(right, of_right)?, value(left, T::INTERVAL)?)?,
            (left, right)
                if [left, right].iter().any(|id| {
                    matches!(*id, T::DATE | T::TIME | T::TIMESTAMP | T::TIMESTAMPTZ | T::INTERVAL | T::TIMETZ)
                }) =>
            {
                return Err(BindError::Unknown("arithmetic of these times"));
            }
            _ => return Ok(None),
        }))
    }
    fn special(&self, special: &Special, span: Span, context: Context<'_>) -> Result<Bound> {
        let all = |trees: &[Tree]| trees.iter().map(|tree| self.expression(tree, context)).collect::<Result<Vec<_>>>();
        let chosen = |name: &'static str, what: &str, trees: &[Tree]| {
            let (exprs, id, is_ragged) = self.unified_numbers(what, all(trees)?, context.schema)?;
            if name != "coalesce" {
                comparable_values(id)?;
            }
            let function = self.environment.scalar(name).ok_or(BindError::Unknown("this function"))?;
            Ok(checked(function.call(exprs), id, span, context.schema)?.ragged(is_ragged))
        };
        let named = |name: &str, arguments: Vec<Bound>| self.scalar_call(name, arguments, span, context);
        match special {
            Special::Coalesce(trees) => chosen("coalesce", "COALESCE", trees),
            Special::Greatest(trees) => chosen("greatest", "GREATEST", trees),
            Special::Least(trees) => chosen("least", "LEAST", trees),
            Special::Position(part, text) => {
                named("strpos", vec![self.expression(text, context)?, self.expression(part, context)?])
            }
            Special::Substring { operand, from: Some(from), length } => {
                let mut arguments = vec![self.expression(operand, context)?, self.expression(from, context)?];
                if let Some(length) = length {
                    arguments.push(self.expression(length, context)?);
                }
                named("substring", arguments)
            }
            Special::Overlay(arguments) => named("overlay", all(arguments)?),
            Special::Extract(field, operand) => {
                let field = Expr::Literal(ScalarValue::Utf8View(Some(field.clone())), None);
                let field = Bound::new(field, TypeId::TEXT, span);
                named("extract", vec![field, self.expression(operand, context)?])
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
                let left = left.implicitly(signature.arguments[0], context.schema)?;
                let id = left.id;
                let given = left.expr.get_type(context.schema)?;
                let equal = self.operate("=", span, vec![left.clone(), right], context)?;
                let null = Box::new(Expr::Literal(ScalarValue::try_from(&given)?, None));
                let whens = vec![(Box::new(equal.expr), null)];
                Ok(Bound::new(Expr::Case(Case::new(None, whens, Some(Box::new(left.expr)))), id, span)
                    .ragged(left.is_ragged))
            }
            Special::CurrentDate => {
                let function = self.environment.scalar("current_date").ok_or(BindError::Unknown("this function"))?;
                checked(function.call(Vec::new()), TypeId::DATE, span, context.schema)
            }
            Special::CurrentTimestamp(None) => named("now", Vec::new()),
            _ => Err(BindError::Unknown("this function")),
        }
    }
}

/// Where an expression stands for PostgreSQL: where its first operand does, which of a constant with the
/// name of its type is the constant.
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

fn one(operands: Vec<Bound>) -> Result<Bound> {
    operands.into_iter().next().ok_or(BindError::Unknown("an operator without an operand"))
}

pub(crate) fn symbol(operator: &Symbol) -> Result<&str> {
    match operator.schema.as_ref().map(|schema| schema.name.as_str()) {
        None | Some("pg_catalog") => Ok(&operator.symbol),
        Some(_) => Err(BindError::Unknown("an operator of another schema")),
    }
}

pub(crate) fn comparison(symbol: &str) -> Operator {
    match symbol {
        "=" => Operator::Eq,
        "<>" => Operator::NotEq,
        "<" => Operator::Lt,
        "<=" => Operator::LtEq,
        ">" => Operator::Gt,
        _ => Operator::GtEq,
    }
}

fn one_character(escape: &Tree) -> Result<char> {
    let ExprKind::Literal(Literal::String(text)) = &escape.kind else {
        return Err(BindError::Unknown("an escape that is no constant"));
    };
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(one), None) => Ok(one),
        _ => Err(BindError::Unknown("an escape that is no character")),
    }
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
        Literal::Bits(_) | Literal::HexBits(_) => return Err(BindError::Unknown("bit strings")),
    };
    Ok(Bound::new(Expr::Literal(value, None), id, span))
}

fn number(digits: &str, span: Span) -> Result<Bound> {
    let number = decimal(digits).ok_or(BindError::Unknown("this number"))?;
    Ok(Bound::new(number, TypeId::NUMERIC, span))
}

/// The negative of a constant; none if it is no constant, or has none.
fn negative(operand: &Bound) -> Option<Bound> {
    let Expr::Literal(value, _) = &operand.expr else { return None };
    let value = match value {
        ScalarValue::Int32(Some(number)) => ScalarValue::Int32(Some(number.checked_neg()?)),
        ScalarValue::Int64(Some(number)) => ScalarValue::Int64(Some(number.checked_neg()?)),
        ScalarValue::Decimal128(Some(number), precision, scale) => {
            ScalarValue::Decimal128(Some(-number), *precision, *scale)
        }
        _ => return None,
    };
    Some(Bound::new(Expr::Literal(value, None), operand.id, operand.span))
}

/// The operator that is meant.
pub(crate) fn resolved(symbol: &str, at: Span, operands: &[TypeId]) -> Result<&'static Signature> {
    let (sqlstate, what, hint) = match resolve::operator(symbol, operands) {
        Resolved::One(signature) => return Ok(signature),
        _ if at == NO_PLACE => return Err(BindError::Unknown("the place of an error")),
        Resolved::None => (
            "42883",
            "operator does not exist",
            "No operator matches the given name and argument types. You might need to add explicit type casts.",
        ),
        Resolved::Several => (
            "42725",
            "operator is not unique",
            "Could not choose a best candidate operator. You might need to add explicit type casts.",
        ),
    };
    let operator = match operands {
        [left, right] => format!("{left} {symbol} {right}"),
        _ => format!("{symbol} {}", operands.first().copied().unwrap_or(TypeId::UNKNOWN)),
    };
    Err(BindError::new(sqlstate, format!("{what}: {operator}"), at).hinted(hint))
}

/// The type in which operands of a comparison are compared.
pub(crate) fn comparable(signature: &Signature) -> Result<TypeId> {
    use TypeId as T;
    let [left, right] = signature.arguments[..] else { return Err(BindError::Unknown("this comparison")) };
    comparable_values(left)?;
    comparable_values(right)?;
    let rank = |id: TypeId| match id {
        T::INT2 | T::FLOAT4 | T::DATE => Some(0),
        T::INT4 | T::FLOAT8 | T::TIMESTAMP => Some(1),
        T::INT8 | T::TIMESTAMPTZ => Some(2),
        _ => None,
    };
    match (left, right) {
        (left, right) if left == right => Ok(left),
        (left, right) => match (rank(left), rank(right)) {
            (Some(a), Some(b)) => Ok(if a < b { right } else { left }),
            _ => Err(BindError::Unknown("this comparison")),
        },
    }
}

/// Operands of a comparison, in one type.
pub(crate) fn alike(operands: Vec<Bound>, signature: &Signature, schema: &DFSchema) -> Result<[Expr; 2]> {
    let to = comparable(signature)?;
    let operands = operands.into_iter().zip(&signature.arguments);
    let operands = operands.map(|(operand, own)| operand.implicitly(*own, schema)).collect::<Result<_>>()?;
    let exprs = of_one_type(operands, to, true, schema)?;
    exprs.try_into().map_err(|_| BindError::Unknown("this comparison"))
}

/// Expressions as values of a type. Those of NUMERIC get as many digits as the longest has.
fn of_one_type(all: Vec<Bound>, to: TypeId, is_compared: bool, schema: &DFSchema) -> Result<Vec<Expr>> {
    let all: Vec<Bound> = all.into_iter().map(|one| one.implicitly(to, schema)).collect::<Result<_>>()?;
    if to != TypeId::NUMERIC {
        let is_stored = arrow_type(to).is_some();
        return match is_stored {
            true => Ok(all.into_iter().map(|one| one.expr).collect()),
            false => Err(BindError::Unknown("values of this type")),
        };
    }
    let mut given = Vec::new();
    for one in &all {
        match one.expr.get_type(schema)? {
            DataType::Decimal128(precision, scale) => given.push((i16::from(precision), i16::from(scale))),
            _ => return Err(BindError::Unknown("a number of another form")),
        }
    }
    let scale = given.iter().map(|(_, scale)| *scale).max().unwrap_or(0);
    let whole = given.iter().map(|(precision, scale)| precision - scale).max().unwrap_or(0);
    let (Ok(precision), Ok(scale)) = (u8::try_from(whole + scale), i8::try_from(scale)) else {
        return Err(BindError::Unknown("numbers of so many digits"));
    };
    // What is only compared may have twice as many.
    let wanted = match precision {
        0..=38 => DataType::Decimal128(precision, scale),
        39..=76 if is_compared => DataType::Decimal256(precision, scale),
        _ => return Err(BindError::Unknown("numbers of so many digits")),
    };
    let exprs = all.into_iter().zip(given).map(|(one, (own_precision, own_scale))| {
        match precision <= 38 && own_precision == i16::from(precision) && own_scale == i16::from(scale) {
            true => one.expr,
            false => cast_to(one.expr, wanted.clone()),
        }
    });
    Ok(exprs.collect())
}

/// Whether it is a decimal constant that is zero, or one.
fn is_unit(expr: &Expr) -> bool {
    let Expr::Literal(ScalarValue::Decimal128(Some(value), _, scale), _) = expr else { return false };
    let one = u32::try_from(*scale).ok().and_then(|scale| 10i128.checked_pow(scale));
    *value == 0 || one.is_some_and(|one| value.abs() == one)
}

/// `'3' MONTH`, with its unit in the text. Other forms would drop what the fields leave out.
fn of_fields(operand: Bound, fields: IntervalFields) -> Result<Bound> {
    let unknown = BindError::Unknown("an interval of these fields");
    let unit = match fields {
        IntervalFields::Year => "year",
        IntervalFields::Month => "month",
        IntervalFields::Day => "day",
        IntervalFields::Hour => "hour",
        IntervalFields::Minute => "minute",
        IntervalFields::Second => "second",
        _ => return Err(unknown),
    };
    match (&operand.expr, operand.id) {
        (Expr::Literal(ScalarValue::Utf8(Some(text)), _), TypeId::UNKNOWN) if text.parse::<i32>().is_ok() => {
            let text = Expr::Literal(ScalarValue::Utf8(Some(format!("{text} {unit}"))), None);
            Ok(Bound::new(text, TypeId::UNKNOWN, operand.span))
        }
        _ => Err(unknown),
    }
}

/// The type of a name.
fn type_of(to: &TypeName) -> Result<TypeId> {
    if to.dimensions > 0 || to.is_set || to.of_column {
        return Err(BindError::Unknown("a type of this form"));
    }
    let name = match &to.name.parts[..] {
        [name] => name,
        [schema, name] if schema.name == "pg_catalog" => name,
        _ => return Err(BindError::Unknown("a type of another schema")),
    };
    TypeId::by_name(&name.name).ok_or(BindError::Unknown("this type"))
}

/// An expression of which it is known what it gives; refused if DataFusion gives something else.
pub(crate) fn checked(expr: Expr, id: TypeId, span: Span, schema: &DFSchema) -> Result<Bound> {
    let given = expr.get_type(schema)?;
    if types::type_of_arrow(&given) == Some(id) || arrow_type(id).as_ref() == Some(&given) {
        return Ok(Bound::new(expr, id, span));
    }
    // Functions of DataFusion count in other integers than PostgreSQL's, and give other texts.
    match (arrow_type(id), given) {
        (Some(wanted), given) if wanted.is_integer() && given.is_integer() => {
            Ok(Bound::new(cast_to(expr, wanted), id, span))
        }
        (Some(wanted @ DataType::Utf8View), DataType::Utf8 | DataType::LargeUtf8) => {
            Ok(Bound::new(cast_to(expr, wanted), id, span))
        }
        _ => Err(BindError::Unknown("a result of another type")),
    }
}

impl Binder<'_> {
    /// A decimal number that is rounded to so many digits behind the point, halves away from zero.
    /// A cast would do that, too, but DataFusion compares `CAST(1.25 AS DECIMAL(5, 1)) = 1.3` as
    /// `1.25 = 1.30`.
    fn rounded(&self, expr: Expr, scale: i8, schema: &DFSchema) -> Result<Expr> {
        let unknown = BindError::Unknown("a number to round");
        let DataType::Decimal128(precision, own) = expr.get_type(schema)? else { return Err(unknown) };
        if own <= scale {
            return Ok(expr);
        }
        let function = self.environment.scalar("round").ok_or(BindError::Unknown("a number to round"))?;
        let digits = Expr::Literal(ScalarValue::Int32(Some(scale.into())), None);
        let rounded = function.call(vec![expr, digits]);
        let DataType::Decimal128(_, given) = rounded.get_type(schema)? else { return Err(unknown) };
        // What is cast from it has no digits left to round.
        let whole = i16::from(precision) - i16::from(own) + 1;
        let precision = u8::try_from((whole + i16::from(scale)).clamp(1, 38)).unwrap_or(38);
        Ok(if given == scale { rounded } else { cast_to(rounded, DataType::Decimal128(precision, scale)) })
    }
    /// A value of another type, by the environment where Arrow's cast has other rules.
    fn cast(&self, bound: Bound, to: TypeId, schema: &DFSchema) -> Result<Bound> {
        let from = bound.id;
        let is_allowed = serac_pg::casts::cast(from, to, CastContext::Explicit).is_some();
        if from != to && is_allowed && !is_alike(from, to) {
            let cast = self.environment.cast(&bound.expr, from, to, schema)?;
            let is_stored = |expr: &Expr| Ok::<_, BindError>(arrow_type(to) == Some(expr.get_type(schema)?));
            if let Some(expr) = cast
                && is_stored(&expr)?
            {
                return Ok(Bound::new(expr, to, bound.span));
            }
        }
        bound.into_type(to, CastContext::Explicit, schema)
    }
    /// A value that is assigned to a column or a parameter of a type, where that is allowed.
    pub(crate) fn assigned(&self, bound: Bound, to: TypeId, schema: &DFSchema) -> Result<Bound> {
        self.cast(self.rounded_for(bound, to, schema)?, to, schema)
    }
    /// A number that is to become a whole one of type `to`, rounded to one.
    fn rounded_for(&self, bound: Bound, to: TypeId, schema: &DFSchema) -> Result<Bound> {
        Ok(match bound.id {
            TypeId::NUMERIC if integer_digits(to).is_some() => {
                Bound { expr: self.rounded(bound.expr, 0, schema)?, ..bound }
            }
            _ => bound,
        })
    }
    /// A cast that is told.
    fn explicit(&self, operand: Bound, to: &TypeName, at: Span, schema: &DFSchema) -> Result<Bound> {
        let id = type_of(to)?;
        let mut modifiers = Vec::new();
        for modifier in &to.modifiers {
            match &modifier.kind {
                ExprKind::Literal(Literal::Integer(digits)) => modifiers.push(digits.parse::<u32>().ok()),
                _ => return Err(BindError::Unknown("a modifier that is no number")),
            }
        }
        let operand = match to.fields {
            Some(fields) => of_fields(operand, fields)?,
            None => operand,
        };
        // A number that is read from a text or a float has digits that are not known here.
        let is_open = matches!(operand.id, TypeId::NUMERIC | TypeId::UNKNOWN) || integer_digits(operand.id).is_some();
        if id == TypeId::NUMERIC && !is_open {
            return Err(BindError::Unknown("a number of this type"));
        }
        if arrow_type(operand.id).is_none() && !matches!(operand.id, TypeId::NUMERIC | TypeId::UNKNOWN) {
            return Err(BindError::Unknown("a cast of this type"));
        }
        let operand = self.rounded_for(operand, id, schema)?;
        let place = if operand.id == TypeId::UNKNOWN { operand.span } else { at };
        let bound = self.cast(operand.at(place), id, schema)?;
        match (id, &modifiers[..]) {
            (_, []) => Ok(bound),
            (TypeId::NUMERIC, [Some(precision), scale @ ..]) => {
                let scale = match scale {
                    [] => 0,
                    [Some(scale)] if scale <= precision => *scale,
                    _ => return Err(BindError::Unknown("such digits")),
                };
                let (Ok(precision @ 1..=38), Ok(scale)) = (u8::try_from(*precision), i8::try_from(scale)) else {
                    return Err(BindError::Unknown("such digits"));
                };
                let wanted = DataType::Decimal128(precision, scale);
                let rounded = self.rounded(bound.expr, scale, schema)?;
                Ok(Bound::new(cast_to(rounded, wanted), TypeId::NUMERIC, bound.span))
            }
            // A cast that is told cuts what is too long.
            (TypeId::VARCHAR, [Some(length)]) if *length > 0 => {
                let length = Expr::Literal(ScalarValue::Int64(Some(i64::from(*length))), None);
                let first = Expr::Literal(ScalarValue::Int64(Some(1)), None);
                let function = self.environment.scalar("substr").ok_or(BindError::Unknown("a type with a modifier"))?;
                let start = bound.span;
                checked(function.call(vec![bound.expr, first, length]), TypeId::TEXT, start, schema)
                    .map(|bound| Bound { id: TypeId::VARCHAR, ..bound })
            }
            _ => Err(BindError::Unknown("a type with a modifier")),
        }
    }
}
