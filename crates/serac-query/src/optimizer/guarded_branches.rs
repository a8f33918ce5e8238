//! Boolean CASE and `coalesce` whose branches may fail.
//!
//! DataFusion's simplifier makes AND and OR of a boolean CASE, and CASE of `coalesce`. Operands of
//! AND and OR are evaluated for rows that reach no such branch: `CASE WHEN x <> 0 THEN 10 / x > 5
//! END` would divide by zero. So the branches become numbers, of which the simplifier makes nothing
//! else. An expression whose branches cannot fail stays as it is.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, cast};
use datafusion::optimizer::AnalyzerRule;
use serac_functions::rewrite_typed;

/// The type of the numbers that stand for booleans.
const NUMBER: DataType = DataType::Int8;

/// An expression, whose types are coerced, that evaluates branches for no other rows than theirs.
///
/// # Errors
/// When a column is not in the schema.
pub fn with_guarded_branches(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    Ok(expr.transform_up(|expr| rewrite(expr, schema))?.data)
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
        rewrite_typed(plan, |part| results(part).is_some(), rewrite)
    }
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

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
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

/// Whether the evaluation of an expression may fail, or may do something: a function may.
fn may_fail(expr: &Expr, schema: &DFSchema) -> bool {
    expr.exists(|part| {
        Ok(match part {
            Expr::BinaryExpr(binary) => !is_comparison(binary.op),
            Expr::Cast(to) => {
                let from = to.expr.get_type(schema);
                !from.is_ok_and(|from| is_widened(&from, to.field.data_type()))
            }
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
            // What stands for a CHAR(n) where it is compared.
            Expr::ScalarFunction(call) => call.func.name() != "rtrim",
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
    let width = |of: &DataType| of.is_signed_integer().then(|| of.primitive_width()).flatten();
    match (width(from), to) {
        _ if from == to || from.is_null() => true,
        (Some(from), to) if width(to).is_some_and(|to| to >= from) => true,
        (Some(_), DataType::Float64) => true,
        (Some(_), DataType::Decimal128(precision, scale)) => i16::from(*precision) - i16::from(*scale) >= 19,
        _ => matches!((from, to), (DataType::Float32, DataType::Float64)),
    }
}
