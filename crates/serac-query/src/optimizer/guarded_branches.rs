//! Boolean CASE and `coalesce` whose branches may fail, and AND and OR whose right side may fail.
//!
//! DataFusion's simplifier makes AND and OR of a boolean CASE, and CASE of `coalesce`. Operands of
//! AND and OR are evaluated for rows that reach no such branch: `CASE WHEN x <> 0 THEN 10 / x > 5
//! END` would divide by zero. So the branches become numbers, of which the simplifier makes nothing
//! else. An expression whose branches cannot fail stays as it is.
//!
//! AND and OR are evaluated from left to right, as in PostgreSQL, where the right side may fail for
//! values of columns: they become such a CASE. DataFusion evaluates the right side for all rows of
//! a batch unless few are left. Operands of AND in a filter stay as they are: they are tested one
//! after the other, and indexes serve them. So do those of very long expressions.

use crate::optimizer::checked_arithmetic::operator_of;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunction, Case, ScalarFunction, Sort, WindowFunction};
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, cast, lit};
use datafusion::optimizer::AnalyzerRule;
use serac_functions::{operand_of_cast, rewrite_whole};
use serac_values::text_types::is_text;
use std::collections::HashSet;

/// The type of the numbers that stand for booleans.
const NUMBER: DataType = DataType::Int8;

/// An expression, whose types are coerced, that evaluates branches for no other rows than theirs. A
/// condition keeps the operands of AND, which are tested one after the other.
///
/// # Errors
/// When a column is not in the schema.
pub fn with_guarded_branches(expr: Expr, schema: &DFSchema, is_condition: bool) -> Result<Expr> {
    Ok(guarded(expr, schema, is_condition)?.data)
}

/// Guards the branches in a plan. Comes after all rules that make CASE, and after those that make
/// functions of operators.
#[derive(Debug)]
pub struct GuardedBranches;

impl AnalyzerRule for GuardedBranches {
    fn name(&self) -> &str {
        "guarded_branches"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let is_meant = |part: &Expr| results(part).is_some() || logical(part).is_some() || filter_of(part).is_some();
        rewrite_whole(plan, is_meant, guarded)
    }
}

fn guarded(expr: Expr, schema: &DFSchema, is_condition: bool) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) if is_condition => {
            let left = guarded(*left, schema, true)?;
            let right = guarded(*right, schema, true)?;
            let is_new = left.transformed || right.transformed;
            let both = BinaryExpr::new(Box::new(left.data), Operator::And, Box::new(right.data));
            Ok(Transformed::new_transformed(Expr::BinaryExpr(both), is_new))
        }
        // The name of a group would be lost, and a long chain would become a deep one.
        expr if matches!(expr, Expr::GroupingSet(_)) || !has_at_most(&expr, MOST_GUARDED) => {
            expr.transform_up(|part| rewrite_results(part, schema))
        }
        expr => expr.transform_up(|part| rewrite(part, schema)),
    }
}

/// The expression that has been guarded so; `None` for another cast.
pub fn unguarded(guarded: &Cast) -> Option<Expr> {
    let Expr::Case(Case { expr: operand, when_then_expr, else_expr }) = &*guarded.expr else { return None };
    if guarded.field.data_type() != &DataType::Boolean {
        return None;
    }
    let boolean = |number: &Expr| match number {
        Expr::Cast(to) if to.field.data_type() == &NUMBER => Some(to.expr.clone()),
        Expr::Literal(ScalarValue::Int8(number), _) => {
            Some(Box::new(lit(ScalarValue::Boolean(number.map(|n| n != 0)))))
        }
        _ => None,
    };
    if let (Some(left), [(decisive, _), (_, right)]) = (operand, &when_then_expr[..]) {
        let Expr::Literal(ScalarValue::Boolean(Some(decisive)), _) = **decisive else { return None };
        let op = if decisive { Operator::Or } else { Operator::And };
        let plain = Expr::BinaryExpr(BinaryExpr::new(left.clone(), op, boolean(right)?));
        // It may be a CASE that somebody wrote.
        return (left_first(plain.clone()) == Expr::Cast(guarded.clone())).then_some(plain);
    }
    let branches = when_then_expr.iter().map(|(when, then)| Some((when.clone(), boolean(then)?)));
    let otherwise = match else_expr {
        Some(otherwise) => Some(boolean(otherwise)?),
        None => None,
    };
    Some(Expr::Case(Case::new(operand.clone(), branches.collect::<Option<_>>()?, otherwise)))
}

/// The first result of a CASE or a `coalesce`, and the operands that rows may not reach.
fn results(expr: &Expr) -> Option<(&Expr, Vec<&Expr>)> {
    match expr {
        Expr::Case(case) => {
            let (first, others) = case.when_then_expr.split_first()?;
            let others = others.iter().flat_map(|(when, then)| [when, then]);
            let late = std::iter::once(&first.1).chain(others).chain(&case.else_expr).map(|late| &**late);
            Some((&first.1, late.collect()))
        }
        Expr::ScalarFunction(call) if call.func.name() == "coalesce" => {
            let (first, others) = call.args.split_first()?;
            Some((first, others.iter().collect()))
        }
        _ => None,
    }
}

/// The operands of AND and OR.
fn logical(expr: &Expr) -> Option<(&Expr, &Expr)> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => Some((left, right)),
        _ => None,
    }
}

/// The FILTER of an aggregate.
fn filter_of(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::AggregateFunction(call) => call.params.filter.as_deref(),
        Expr::WindowFunction(call) => call.params.filter.as_deref(),
        _ => None,
    }
}

/// The arguments and the sort keys of an aggregate with FILTER that may fail, for the rows alone
/// that it leaves.
fn filtered(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Some(filter) = filter_of(&expr).filter(|filter| is_small(filter)).cloned() else {
        return Ok(Transformed::no(expr));
    };
    let (args, order_by): (_, &mut [Sort]) = match &mut expr {
        Expr::AggregateFunction(AggregateFunction { params, .. }) => (&mut params.args, &mut params.order_by),
        Expr::WindowFunction(call) => {
            let WindowFunction { params, .. } = call.as_mut();
            (&mut params.args, &mut [])
        }
        _ => return Ok(Transformed::no(expr)),
    };
    let mut is_new = false;
    for value in args.iter_mut().chain(order_by.iter_mut().map(|key| &mut key.expr)) {
        if has_hazard(value, schema) {
            let branch = (Box::new(filter.clone()), Box::new(std::mem::take(value)));
            *value = rewrite_results(Expr::Case(Case::new(None, vec![branch], None)), schema)?.data;
            is_new = true;
        }
    }
    Ok(Transformed::new_transformed(expr, is_new))
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if filter_of(&expr).is_some() {
        return filtered(expr, schema);
    }
    if let Some((left, right)) = logical(&expr) {
        return Ok(match is_small(right) && is_guarded_by(right, left, schema) {
            true => Transformed::yes(left_first(expr)),
            false => Transformed::no(expr),
        });
    }
    rewrite_results(expr, schema)
}

fn rewrite_results(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Some((first, late)) = results(&expr) else { return Ok(Transformed::no(expr)) };
    if !late.into_iter().any(|operand| may_fail(operand, schema)) || first.get_type(schema)? != DataType::Boolean {
        return Ok(Transformed::no(expr));
    }
    let number = |value: Box<Expr>| Box::new(cast(*value, NUMBER));
    let numbers = match expr {
        Expr::Case(Case { expr, when_then_expr, else_expr }) => {
            let branches = when_then_expr.into_iter().map(|(when, then)| (when, number(then)));
            Expr::Case(Case::new(expr, branches.collect(), else_expr.map(number)))
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) => Expr::ScalarFunction(ScalarFunction {
            func,
            args: args.into_iter().map(|value| cast(value, NUMBER)).collect(),
        }),
        other => return Ok(Transformed::no(other)),
    };
    Ok(Transformed::yes(cast(numbers, DataType::Boolean)))
}

/// AND or OR as a CASE over its left side. The right side is evaluated where that does not decide.
fn left_first(expr: Expr) -> Expr {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return expr };
    // The value that decides.
    let decisive = op == Operator::Or;
    let number = |value: bool| Box::new(lit(ScalarValue::Int8(Some(i8::from(value)))));
    // Beside NULL, the right side has no say unless it decides.
    let condition = if decisive { right.clone() } else { Box::new(!*right.clone()) };
    let beside_null = Expr::Case(Case::new(None, vec![(condition, number(decisive))], None));
    let branches =
        vec![(Box::new(lit(decisive)), number(decisive)), (Box::new(lit(!decisive)), Box::new(cast(*right, NUMBER)))];
    cast(Expr::Case(Case::new(Some(left), branches, Some(Box::new(beside_null)))), DataType::Boolean)
}

/// Parts of an expression whose AND and OR are evaluated from left to right.
const MOST_GUARDED: usize = 1_000;
/// Parts of a right side, which is written down twice.
const MOST_PARTS: usize = 64;

/// Whether an expression may be written down twice: it is small, and has no subquery.
fn is_small(expr: &Expr) -> bool {
    has_at_most(expr, MOST_PARTS) && !expr.exists(|part| Ok(is_subquery(part))).unwrap_or(true)
}

fn has_at_most(expr: &Expr, most: usize) -> bool {
    let mut parts = 0;
    let counted = expr.apply(|_| {
        parts += 1;
        Ok(if parts > most { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    counted.is_ok() && parts <= most
}

fn is_subquery(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_))
}

/// Functions that fail for no value of their columns.
const SAFE: [&str; 20] = [
    "rtrim",
    "ltrim",
    "btrim",
    "lower",
    "upper",
    "initcap",
    "reverse",
    "md5",
    "ascii",
    "strpos",
    "starts_with",
    "concat",
    "length",
    "character_length",
    "octet_length",
    "bit_length",
    "date_part",
    "date_trunc",
    "coalesce",
    "nullif",
];

/// Whether an expression fails for some values of columns, at which a condition beside it may be
/// aimed: a quotient, a cast, a function. Sums that do not fit are not among them.
fn is_hazard(expr: &Expr, schema: &DFSchema) -> bool {
    let fails = match expr {
        Expr::BinaryExpr(binary) => matches!(binary.op, Operator::Divide | Operator::Modulo),
        expr if operand_of_cast(expr).is_some() => !is_safe_cast(expr, schema),
        Expr::ScalarFunction(call) => match operator_of(&call.func) {
            Some(operator) => operator == Operator::Divide,
            None => !SAFE.contains(&call.func.name()),
        },
        _ => false,
    };
    fails && has_columns(expr)
}

/// Whether a part of an expression fails for some values of columns.
pub(crate) fn has_hazard(expr: &Expr, schema: &DFSchema) -> bool {
    expr.exists(|part| Ok(is_hazard(part, schema))).unwrap_or(true)
}

fn has_columns(expr: &Expr) -> bool {
    expr.exists(|part| Ok(matches!(part, Expr::Column(_)))).unwrap_or(true)
}

/// Parts of a left side that are looked at.
const MOST_LOOKED_AT: usize = 256;

/// Whether the right side of AND or OR may fail where the left side decides, and not before on the
/// left side.
fn is_guarded_by(right: &Expr, left: &Expr, schema: &DFSchema) -> bool {
    if !has_hazard(right, schema) {
        return false;
    }
    let (mut parts, mut has_column, mut evaluated) = (0, false, HashSet::new());
    let walked = left.apply(|part| {
        parts += 1;
        has_column |= matches!(part, Expr::Column(_) | Expr::Case(_)) || parts > MOST_LOOKED_AT;
        if is_hazard(part, schema) {
            evaluated.insert(part);
        }
        Ok(match part {
            _ if parts > MOST_LOOKED_AT => TreeNodeRecursion::Stop,
            // A branch may not be reached.
            part if results(part).is_some() => TreeNodeRecursion::Jump,
            _ => TreeNodeRecursion::Continue,
        })
    });
    // A constant is looked at before its rows.
    walked.is_err()
        || has_column && right.exists(|part| Ok(is_hazard(part, schema) && !evaluated.contains(part))).unwrap_or(true)
}

/// Whether an expression is a cast for which each value has a place in the other type.
fn is_safe_cast(expr: &Expr, schema: &DFSchema) -> bool {
    operand_of_cast(expr).is_some_and(|(operand, to)| operand.get_type(schema).is_ok_and(|from| is_widened(&from, to)))
}

/// Whether the evaluation of an expression may fail, or may do something: a function may.
fn may_fail(expr: &Expr, schema: &DFSchema) -> bool {
    expr.exists(|part| {
        Ok(match part {
            Expr::BinaryExpr(binary) => !is_comparison(binary.op),
            part if operand_of_cast(part).is_some() => !is_safe_cast(part, schema),
            // A pattern may end too early.
            Expr::Like(like) => !matches!(*like.pattern, Expr::Literal(..)),
            Expr::Alias(_)
            | Expr::Column(_)
            | Expr::OuterReferenceColumn(..)
            | Expr::Literal(..)
            | Expr::Placeholder(_)
            | Expr::Not(_)
            | Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::IsTrue(_)
            | Expr::IsFalse(_)
            | Expr::IsUnknown(_)
            | Expr::IsNotTrue(_)
            | Expr::IsNotFalse(_)
            | Expr::IsNotUnknown(_)
            | Expr::Between(_)
            | Expr::InList(_)
            | Expr::Case(_)
            // Joins compute these before.
            | Expr::Exists(_)
            | Expr::InSubquery(_)
            | Expr::SetComparison(_) => false,
            Expr::ScalarFunction(call) => !SAFE.contains(&call.func.name()),
            _ => true,
        })
    })
    .unwrap_or(true)
}

fn is_comparison(operator: Operator) -> bool {
    use Operator::{And, Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq, Or};
    matches!(operator, And | Or | Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// Whether each value of one type has a place in the other.
fn is_widened(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Decimal128, Float32, Float64, Int16, Int32, Int64, Timestamp};
    // The digits before the point, and behind it.
    let digits = |of: &DataType| match of {
        Int16 => Some((5, 0)),
        Int32 => Some((10, 0)),
        Int64 => Some((19, 0)),
        Decimal128(precision, scale) => Some((i16::from(*precision) - i16::from(*scale), i16::from(*scale))),
        _ => None,
    };
    match (from, to) {
        _ if from == to || from.is_null() => true,
        (&NUMBER, DataType::Boolean) | (DataType::Boolean, &NUMBER) => true,
        (from, to) if is_text(to) => is_text(from) || digits(from).is_some(),
        (from, Float64) => digits(from).is_some() || *from == Float32,
        (Date32 | Timestamp(..), Timestamp(..)) => true,
        (from, to) => digits(from).zip(digits(to)).is_some_and(|(from, to)| from.0 <= to.0 && from.1 <= to.1),
    }
}
