//! Errors of constant expressions, which are those of the statement, whatever rows there are: `1 / 0`
//! is an error in a filter over an empty table, and beside a NULL that decides the result. DataFusion's
//! simplifier leaves an expression alone that it cannot compute, and drops operands whose value does
//! not matter.
//!
//! As in PostgreSQL, nothing is computed that a constant condition rules out: the other branches of
//! CASE and COALESCE, and what stands behind a false operand of AND or a true one of OR. Columns of
//! subqueries are left out, as it is not known yet which of them are needed.

use crate::accounted::folding;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::Schema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion, TreeNodeVisitor};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{BinaryExpr, ColumnarValue, Expr, LogicalPlan, Operator, Volatility};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr::create_physical_expr;
use serac_values::SqlError;
use std::cell::OnceCell;
use std::sync::Arc;

/// Finds the errors. Comes when expressions are in the form in which they are computed.
#[derive(Debug)]
pub struct ConstantErrors;

impl AnalyzerRule for ConstantErrors {
    fn name(&self) -> &str {
        "constant_errors"
    }
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let constants = Constants { config, props: OnceCell::new() };
        constants.check_result(&plan)?;
        plan.apply_with_subqueries(|plan| {
            if matches!(plan, LogicalPlan::Filter(_) | LogicalPlan::Join(_)) {
                plan.apply_expressions(|expr| constants.value(expr).map(|_| TreeNodeRecursion::Continue))?;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(plan)
    }
}

/// Computes constants.
struct Constants<'p> {
    config: &'p ConfigOptions,
    /// What functions are told, once one is called.
    props: OnceCell<ExecutionProps>,
}

impl Constants<'_> {
    /// Checks the expressions of the operators that make the statement's result: up to its columns,
    /// and the aggregates and orders that these are of.
    fn check_result(&self, plan: &LogicalPlan) -> Result<()> {
        let mut plan = plan;
        let mut has_columns = false;
        loop {
            match plan {
                LogicalPlan::Union(union) if !has_columns => {
                    return union.inputs.iter().try_for_each(|input| self.check_result(input));
                }
                LogicalPlan::Projection(_) if has_columns => return Ok(()),
                LogicalPlan::Projection(_) => has_columns = true,
                LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) | LogicalPlan::Sort(_) => {}
                // Its condition is checked with all others.
                LogicalPlan::Filter(_) | LogicalPlan::Limit(_) => {}
                _ => return Ok(()),
            }
            if !matches!(plan, LogicalPlan::Filter(_) | LogicalPlan::Limit(_)) {
                plan.apply_expressions(|expr| self.value(expr).map(|_| TreeNodeRecursion::Continue))?;
            }
            let inputs = plan.inputs();
            let [input] = inputs[..] else { return Ok(()) };
            plan = input;
        }
    }
    /// The value of an expression, if it is a constant; none otherwise.
    ///
    /// # Errors
    /// That of a constant in it, which is computed whatever the others are.
    fn value(&self, expr: &Expr) -> Result<Option<ScalarValue>> {
        match expr {
            Expr::Literal(value, _) => return Ok(Some(value.clone())),
            Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => {
                return self.joined(expr, *op);
            }
            Expr::Case(case) => return self.case(case),
            Expr::ScalarFunction(call) if call.name() == "coalesce" => return self.first(&call.args),
            _ => {}
        }
        let mut finder = Finder { constants: self, frames: vec![Frame::default()] };
        expr.visit(&mut finder)?;
        let root = finder.frames.pop().unwrap_or_default();
        match (root.is_constant, &root.constants[..]) {
            (true, [constant]) => self.computed(constant),
            _ => Ok(None),
        }
    }
    /// The value of operands that AND or OR joins, however many there are.
    fn joined(&self, expr: &Expr, operator: Operator) -> Result<Option<ScalarValue>> {
        let deciding = ScalarValue::Boolean(Some(operator == Operator::Or));
        let mut value = Some(ScalarValue::Boolean(Some(operator == Operator::And)));
        let mut open = vec![expr];
        while let Some(expr) = open.pop() {
            if let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr
                && *op == operator
            {
                open.extend([&**right, &**left]);
                continue;
            }
            match self.value(expr)? {
                Some(decided) if decided == deciding => return Ok(Some(decided)),
                Some(null) if null.is_null() => value = value.map(|_| ScalarValue::Boolean(None)),
                Some(_) => {}
                None => value = None,
            }
        }
        Ok(value)
    }
    /// The value of the branch that is taken, where constants decide it.
    fn case(&self, case: &Case) -> Result<Option<ScalarValue>> {
        let operand = case.expr.as_ref().map(|operand| self.value(operand)).transpose()?;
        let mut is_decided = true;
        for (when, then) in &case.when_then_expr {
            let when = self.value(when)?;
            let is_true = match &operand {
                None => when,
                Some(operand) => match (operand, when) {
                    (Some(operand), Some(when)) => {
                        let equal = Expr::BinaryExpr(BinaryExpr {
                            left: Box::new(Expr::Literal(operand.clone(), None)),
                            op: Operator::Eq,
                            right: Box::new(Expr::Literal(when, None)),
                        });
                        self.computed(&equal)?
                    }
                    _ => None,
                },
            };
            match is_true {
                Some(ScalarValue::Boolean(Some(true))) => {
                    let value = self.value(then)?;
                    return Ok(value.filter(|_| is_decided));
                }
                Some(_) => {}
                None => {
                    is_decided = false;
                    self.value(then)?;
                }
            }
        }
        let value = case.else_expr.as_ref().map(|otherwise| self.value(otherwise)).transpose()?;
        Ok(value.unwrap_or(Some(ScalarValue::Null)).filter(|_| is_decided))
    }
    /// The value of COALESCE.
    fn first(&self, operands: &[Expr]) -> Result<Option<ScalarValue>> {
        let mut value = Some(ScalarValue::Null);
        for operand in operands {
            match self.value(operand)? {
                Some(found) if !found.is_null() => return Ok(value.map(|_| found)),
                Some(_) => {}
                None => value = None,
            }
        }
        Ok(value)
    }
    /// The value of an expression without columns; none if it is left to the execution.
    ///
    /// # Errors
    /// One that the expression's values have.
    fn computed(&self, expr: &Expr) -> Result<Option<ScalarValue>> {
        let computed = || {
            let props = self.props.get_or_init(|| {
                let mut props = ExecutionProps::new();
                props.config_options = Some(Arc::new(self.config.clone()));
                props
            });
            let physical = create_physical_expr(expr, &DFSchema::empty(), props, &PhysicalPlanningContext::default())?;
            let one_row = RecordBatchOptions::new().with_row_count(Some(1));
            let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &one_row)?;
            match physical.evaluate(&row)? {
                ColumnarValue::Scalar(value) => Ok(value),
                ColumnarValue::Array(values) => ScalarValue::try_from_array(&values, 0),
            }
        };
        match folding(computed) {
            Ok(value) => Ok(Some(value)),
            // Errors of data (classes 22 and 21), and none of what cannot be computed here.
            Err(error) if matches!(SqlError::from(&error).sqlstate.get(..2), Some("22" | "21")) => Err(error),
            Err(_) => Ok(None),
        }
    }
}

/// The operands that an expression has had so far.
struct Frame<'e> {
    /// Whether all are constants.
    is_constant: bool,
    /// Those that are.
    constants: Vec<&'e Expr>,
}

impl Default for Frame<'_> {
    fn default() -> Self {
        Self { is_constant: true, constants: Vec::new() }
    }
}

/// Finds the largest constants of an expression, and computes those that are not all of it.
struct Finder<'c, 'e> {
    constants: &'c Constants<'c>,
    /// Those of the expressions around the present one; the first is that of the result.
    frames: Vec<Frame<'e>>,
}

impl<'e> TreeNodeVisitor<'e> for Finder<'_, 'e> {
    type Node = Expr;

    fn f_down(&mut self, expr: &'e Expr) -> Result<TreeNodeRecursion> {
        let is_lazy = match expr {
            Expr::BinaryExpr(BinaryExpr { op, .. }) => matches!(op, Operator::And | Operator::Or),
            Expr::Case(_) => true,
            Expr::ScalarFunction(call) => call.name() == "coalesce",
            _ => false,
        };
        if !is_lazy {
            self.frames.push(Frame::default());
            return Ok(TreeNodeRecursion::Continue);
        }
        let is_constant = self.constants.value(expr)?.is_some();
        self.frames.push(Frame { is_constant, constants: Vec::new() });
        Ok(TreeNodeRecursion::Jump)
    }
    fn f_up(&mut self, expr: &'e Expr) -> Result<TreeNodeRecursion> {
        let operands = self.frames.pop().unwrap_or_default();
        let is_constant = operands.is_constant && may_be_constant(expr);
        if !is_constant {
            for constant in operands.constants.into_iter().filter(|constant| !matches!(constant, Expr::Literal(..))) {
                self.constants.computed(constant)?;
            }
        }
        if let Some(around) = self.frames.last_mut() {
            around.is_constant &= is_constant;
            around.constants.extend(is_constant.then_some(expr));
        }
        Ok(TreeNodeRecursion::Continue)
    }
}

/// Whether an expression is a constant where its operands are.
fn may_be_constant(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(call) => call.func.signature().volatility == Volatility::Immutable,
        Expr::Literal(..)
        | Expr::Alias(_)
        | Expr::BinaryExpr(_)
        | Expr::Like(_)
        | Expr::SimilarTo(_)
        | Expr::Not(_)
        | Expr::IsNotNull(_)
        | Expr::IsNull(_)
        | Expr::IsTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNotFalse(_)
        | Expr::IsNotUnknown(_)
        | Expr::Negative(_)
        | Expr::Between(_)
        | Expr::Case(_)
        | Expr::Cast(_)
        | Expr::InList(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::DataType;
    use datafusion::logical_expr::{cast, col, lit, when};

    fn check(expr: &Expr) -> Result<Option<ScalarValue>> {
        Constants { config: &ConfigOptions::new(), props: OnceCell::new() }.value(expr)
    }
    fn wrong() -> Expr {
        cast(lit("x"), DataType::Int32).eq(lit(1))
    }

    #[test]
    fn constants_that_fail_are_errors_beside_columns() {
        for expr in [
            wrong(),
            col("a").and(wrong()),
            wrong().and(lit(false)),
            col("a").eq(lit(1)).or(wrong().is_null()),
            lit(ScalarValue::Boolean(None)).eq(wrong()),
            when(col("a"), wrong()).end().unwrap(),
            when(col("a"), lit(true)).otherwise(wrong()).unwrap(),
        ] {
            assert!(check(&expr).is_err(), "{expr}");
        }
    }

    #[test]
    fn what_constants_rule_out_is_not_computed() {
        for expr in [
            col("a"),
            col("a").and(lit(false)).and(wrong()),
            lit(true).or(wrong()),
            when(lit(false), wrong()).otherwise(col("a")).unwrap(),
            when(lit(true), col("a")).otherwise(wrong()).unwrap(),
        ] {
            check(&expr).unwrap();
        }
        assert_eq!(check(&lit(1).eq(lit(1)).and(lit(true))).unwrap(), Some(ScalarValue::Boolean(Some(true))));
        assert_eq!(check(&when(col("a"), lit(1)).otherwise(lit(2)).unwrap()).unwrap(), None);
    }
}
