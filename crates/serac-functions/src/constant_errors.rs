//! The errors of constant expressions, which PostgreSQL finds when it plans a statement, although
//! no row may ask for them: `SELECT 1 / 0 FROM t` fails for an empty table, too.
//!
//! Constants are computed as PostgreSQL does it. An operator or an immutable function is computed
//! once all of its operands are constants. What a constant decides is left out: the operands of AND
//! behind one that is false, the branches of CASE that are not reached, the arguments of COALESCE
//! behind a value. A strict call of NULL is NULL. Columns of subqueries that nobody reads are left
//! out, and so are the columns of EXISTS. A part that is left out reads no column. The values are
//! of no use here: `simplify_expressions` computes them again.
//!
//! Few plans have constants that may fail. So a plan is first looked through for an expression that
//! [`may_be_computed`] from its own operands, and left alone without one.

use crate::accounted::folding;
use crate::strict_nulls::is_strict;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, Result, ScalarValue};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::expr::{Case, Exists, ScalarFunction};
use datafusion::logical_expr::logical_plan::Subquery;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{ColumnarValue, Distinct, Expr, ExprSchemable, LogicalPlan, Operator, Volatility};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_expr::create_physical_expr;
use serac_pg::functions::{Volatility as PgVolatility, of_name};
use serac_values::SqlError;
use serac_values::text_types::is_text;
use std::cell::RefCell;
use std::sync::Arc;

/// Stack that must be left, and that is added if it is not.
const STACK: (usize, usize) = (128 << 10, 1 << 20);

/// Finds the errors of constant expressions.
#[derive(Debug, Default)]
pub struct ConstantErrors;

impl OptimizerRule for ConstantErrors {
    fn name(&self) -> &str {
        "constant_errors"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        None
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if !has_computed(&plan)? {
            return Ok(Transformed::no(plan));
        }
        let mut properties = ExecutionProps::new();
        properties.config_options = Some(config.options());
        let constants = Constants { properties, read: RefCell::default() };
        let all = vec![true; plan.schema().fields().len()];
        folding(|| constants.check(&plan, &all))?;
        Ok(Transformed::no(plan))
    }
}

/// Whether an expression of a plan, or of its subqueries, [`may_be_computed`].
fn has_computed(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expr| {
            found = found || expr.exists(|part| Ok(may_be_computed(part)))?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

/// Whether an expression may be a constant though it is not written as one, by its direct operands.
/// Every larger constant has such a part. Casts of literals that cannot fail count as literals.
pub(crate) fn may_be_computed(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(binary) if matches!(binary.op, Operator::And | Operator::Or) => {
            is_literal(&binary.left) || is_literal(&binary.right)
        }
        Expr::Case(case) => match &case.expr {
            Some(operand) => is_literal(operand),
            None => case.when_then_expr.iter().any(|(when, _)| is_literal(when)),
        },
        Expr::ScalarFunction(call) if call.func.name() == "coalesce" => call.args.first().is_some_and(is_literal),
        Expr::ScalarFunction(call) if call.func.signature().volatility != Volatility::Immutable => false,
        Expr::Cast(cast) => is_literal(&cast.expr) && !is_literal(expr),
        _ if matches!(expr, Expr::ScalarFunction(_) | Expr::BinaryExpr(_)) || is_test(expr) => {
            let mut all = true;
            let walked = expr.apply_children(|operand| {
                all = all && is_literal(operand);
                Ok(if all { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
            });
            all || walked.is_err()
        }
        _ => false,
    }
}

/// Whether the expression is a literal, or a cast of one that cannot fail.
fn is_literal(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(..) => true,
        Expr::Cast(cast) => {
            matches!(&*cast.expr, Expr::Literal(value, _) if is_widened(&value.data_type(), cast.field.data_type()))
        }
        _ => false,
    }
}

/// Whether numbers of one type all have a place in the other, or both are of texts.
fn is_widened(from: &DataType, to: &DataType) -> bool {
    let integer = |of: &DataType| of.is_signed_integer().then(|| of.primitive_width()).flatten();
    match (integer(from), to) {
        (Some(from), to) if integer(to).is_some_and(|to| to >= from) => true,
        (Some(_), DataType::Float64) => true,
        (Some(_), DataType::Decimal128(precision, scale)) => i16::from(*precision) - i16::from(*scale) >= 19,
        (None, to) => is_text(from) && is_text(to),
        _ => false,
    }
}

/// Computes constants.
struct Constants {
    properties: ExecutionProps,
    /// The columns that the present expressions read.
    read: RefCell<Vec<Column>>,
}

impl Constants {
    /// Checks a plan of whose columns these are read.
    fn check(&self, plan: &LogicalPlan, is_read: &[bool]) -> Result<()> {
        stacker::maybe_grow(STACK.0, STACK.1, || self.check_plan(plan, is_read))
    }

    fn check_plan(&self, plan: &LogicalPlan, is_read: &[bool]) -> Result<()> {
        let all = |plan: &LogicalPlan| vec![true; plan.schema().fields().len()];
        match plan {
            LogicalPlan::Projection(projection) => {
                let read =
                    || projection.expr.iter().zip(is_read).filter(|(_, is_read)| **is_read).map(|(expr, _)| expr);
                let columns = self.columns_of(read())?;
                let mut below = vec![false; projection.input.schema().fields().len()];
                mark(&columns, projection.input.schema(), &mut below);
                self.check(&projection.input, &below)
            }
            LogicalPlan::Filter(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Aggregate(_) => {
                let input = plan.inputs()[0];
                let width = input.schema().fields().len();
                let mut below = match plan {
                    LogicalPlan::Aggregate(_) => vec![false; width],
                    // Columns of windows stand behind those of the input.
                    _ => is_read[..width.min(is_read.len())].to_vec(),
                };
                mark(&self.columns_of(&plan.expressions())?, input.schema(), &mut below);
                self.check(input, &below)
            }
            LogicalPlan::Join(join) => {
                let widths = [&join.left, &join.right].map(|side| side.schema().fields().len());
                let first = |width: usize| is_read[..width.min(is_read.len())].to_vec();
                let mut sides = match join.join_type {
                    JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
                        [first(widths[0]), is_read[widths[0].min(is_read.len())..].to_vec()]
                    }
                    JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                        [first(widths[0]), vec![false; widths[1]]]
                    }
                    JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                        [vec![false; widths[0]], first(widths[1])]
                    }
                };
                let conditions = join.on.iter().flat_map(|(left, right)| [left, right]).chain(&join.filter);
                let columns = self.columns_of(conditions)?;
                mark(&columns, join.left.schema(), &mut sides[0]);
                mark(&columns, join.right.schema(), &mut sides[1]);
                self.check(&join.left, &sides[0])?;
                self.check(&join.right, &sides[1])
            }
            // Rows of VALUES are computed where they are read.
            LogicalPlan::Values(_) => Ok(()),
            LogicalPlan::Distinct(Distinct::All(input)) => self.check(input, &all(input)),
            _ => {
                self.columns_of(&plan.expressions())?;
                plan.inputs().into_iter().try_for_each(|input| self.check(input, &all(input)))
            }
        }
    }

    /// Checks a subquery, which reads columns of the plan around it.
    fn check_subquery(&self, subquery: &Subquery, is_read: bool) -> Result<()> {
        let plan = &subquery.subquery;
        self.check(plan, &vec![is_read; plan.schema().fields().len()])?;
        let columns = subquery.outer_ref_columns.iter().filter_map(|reference| match reference {
            Expr::OuterReferenceColumn(_, column) => Some(column.clone()),
            _ => None,
        });
        self.read.borrow_mut().extend(columns);
        Ok(())
    }

    /// The columns that the expressions of a plan read, once they are checked.
    fn columns_of<'e>(&self, exprs: impl IntoIterator<Item = &'e Expr>) -> Result<Vec<Column>> {
        let around = self.read.take();
        let checked = exprs.into_iter().try_for_each(|expr| self.value(expr).map(drop));
        let columns = self.read.replace(around);
        checked.map(|()| columns)
    }

    /// The value of an expression; `None` if that is no constant, or is not computed here, as what
    /// has to do with times. CASE checks the branch behind a condition that has no value here,
    /// although PostgreSQL may know that condition.
    ///
    /// # Errors
    /// The error of a constant in it that PostgreSQL would compute.
    fn value(&self, expr: &Expr) -> Result<Option<ScalarValue>> {
        match expr {
            Expr::Literal(value, _) => Ok(Some(value.clone())),
            Expr::Column(column) => {
                self.read.borrow_mut().push(column.clone());
                Ok(None)
            }
            Expr::OuterReferenceColumn(..) | Expr::Placeholder(_) => Ok(None),
            _ => stacker::maybe_grow(STACK.0, STACK.1, || self.computed(expr)),
        }
    }

    fn computed(&self, expr: &Expr) -> Result<Option<ScalarValue>> {
        match expr {
            Expr::Alias(alias) => self.value(&alias.expr),
            Expr::BinaryExpr(binary) if matches!(binary.op, Operator::And | Operator::Or) => {
                let decides = |value: &Option<ScalarValue>| matches!(value, Some(ScalarValue::Boolean(Some(truth))) if *truth == (binary.op == Operator::Or));
                let left = self.value(&binary.left)?;
                if decides(&left) {
                    return Ok(left);
                }
                let right = self.value(&binary.right)?;
                if decides(&right) {
                    return Ok(right);
                }
                // Neither decides, so that NULL is the result if one of them is.
                Ok(left.zip(right).map(|(left, right)| if left.is_null() { left } else { right }))
            }
            Expr::Case(case) => self.case(case),
            Expr::ScalarFunction(call) if call.func.name() == "coalesce" => {
                let mut is_first = true;
                for argument in &call.args {
                    match self.value(argument)? {
                        Some(value) if value.is_null() => {}
                        // What stands behind it is never reached.
                        Some(value) => return Ok(is_first.then_some(value)),
                        None => is_first = false,
                    }
                }
                Ok(None)
            }
            Expr::Exists(Exists { subquery, .. }) => self.check_subquery(subquery, false).map(|()| None),
            Expr::ScalarSubquery(subquery) => self.check_subquery(subquery, true).map(|()| None),
            Expr::InSubquery(in_subquery) => {
                self.value(&in_subquery.expr)?;
                self.check_subquery(&in_subquery.subquery, true).map(|()| None)
            }
            Expr::SetComparison(comparison) => {
                self.value(&comparison.expr)?;
                self.check_subquery(&comparison.subquery, true).map(|()| None)
            }
            _ => self.of_operands(expr),
        }
    }

    /// CASE: conditions that are not true, and branches behind one that is, are left out. Nothing
    /// is equal to NULL.
    fn case(&self, case: &Case) -> Result<Option<ScalarValue>> {
        let operand = case.expr.as_ref().map(|operand| self.value(operand)).transpose()?;
        let is_null = |value: &Option<ScalarValue>| value.as_ref().is_some_and(ScalarValue::is_null);
        let mut is_open = false;
        for (when, then) in &case.when_then_expr {
            let condition = match (&operand, self.value(when)?) {
                (None, condition) => condition,
                (Some(operand), value) if is_null(operand) || is_null(&value) => Some(ScalarValue::Boolean(None)),
                (Some(Some(operand)), Some(value)) => {
                    let literal = |value: &ScalarValue| Expr::Literal(value.clone(), None);
                    self.evaluated(&literal(operand).eq(literal(&value)))?
                }
                (Some(_), _) => None,
            };
            match condition {
                Some(ScalarValue::Boolean(Some(true))) => {
                    let result = self.value(then)?;
                    return Ok(result.filter(|_| !is_open));
                }
                Some(_) => {}
                None => {
                    is_open = true;
                    self.value(then)?;
                }
            }
        }
        let otherwise = case.else_expr.as_ref().map(|otherwise| self.value(otherwise)).transpose()?;
        Ok(otherwise.flatten().filter(|_| !is_open))
    }

    /// An expression of whose operands all are computed first.
    fn of_operands(&self, expr: &Expr) -> Result<Option<ScalarValue>> {
        let mut values = Vec::new();
        let mut is_constant = true;
        expr.apply_children(|operand| {
            if is_constant || !matches!(operand, Expr::Literal(..)) {
                match self.value(operand)? {
                    Some(value) => values.push(value),
                    None => is_constant = false,
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        if values.iter().any(ScalarValue::is_null) && is_strict(expr) {
            // The type may be that of a column, which is not known here.
            let null = |data_type: DataType| ScalarValue::try_from(&data_type);
            return Ok(Some(expr.get_type(&DFSchema::empty()).and_then(null).unwrap_or(ScalarValue::Null)));
        }
        if !is_constant || !is_computed(expr, &values) {
            return Ok(None);
        }
        let mut values = values.into_iter();
        let over = expr.clone().map_children(|operand| {
            Ok(match values.next() {
                Some(value) => Transformed::yes(Expr::Literal(value, None)),
                None => Transformed::no(operand),
            })
        })?;
        self.evaluated(&over.data)
    }

    /// The value of an expression of constants; `None` if it cannot be computed here.
    ///
    /// # Errors
    /// Errors of values, as 22012.
    fn evaluated(&self, expr: &Expr) -> Result<Option<ScalarValue>> {
        let schema = DFSchema::empty();
        let Ok(physical) = create_physical_expr(expr, &schema, &self.properties, &PhysicalPlanningContext::default())
        else {
            return Ok(None);
        };
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)?;
        match physical.evaluate(&row) {
            Ok(ColumnarValue::Scalar(value)) => Ok(Some(value)),
            Ok(ColumnarValue::Array(array)) => Ok(ScalarValue::try_from_array(&array, 0).ok()),
            Err(error) if SqlError::from(&error).sqlstate.starts_with("22") => Err(error),
            Err(_) => Ok(None),
        }
    }
}

/// Whether an expression of these operands is computed when a statement is planned: its value does
/// not depend on settings.
fn is_computed(expr: &Expr, operands: &[ScalarValue]) -> bool {
    let has_time = || operands.iter().any(|value| value.data_type().is_temporal());
    match expr {
        Expr::ScalarFunction(call) => {
            let facts = of_name(call.func.name());
            call.func.signature().volatility == Volatility::Immutable
                && facts.iter().all(|function| function.volatility == PgVolatility::Immutable)
                && !has_time()
                && !gives_time(call, operands)
        }
        Expr::Cast(cast) => !cast.field.data_type().is_temporal() && !has_time(),
        Expr::BinaryExpr(_) => !has_time(),
        _ => is_test(expr),
    }
}

/// Whether an expression is a test of its operands, or a sign: an operator that depends on no
/// setting.
fn is_test(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Not(_)
            | Expr::Negative(_)
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
            | Expr::Like(_)
    )
}

/// Whether a function reads or makes a time.
fn gives_time(call: &ScalarFunction, operands: &[ScalarValue]) -> bool {
    let types: Vec<DataType> = operands.iter().map(ScalarValue::data_type).collect();
    // A function that needs more to tell its type is taken for one.
    call.func.return_type(&types).map_or(true, |of| of.is_temporal())
}

/// Marks those of the columns that a plan has.
fn mark(columns: &[Column], schema: &DFSchema, is_read: &mut [bool]) {
    for column in columns {
        if let Some(is_read) = schema.maybe_index_of_column(column).and_then(|at| is_read.get_mut(at)) {
            *is_read = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::logical_expr::{LogicalPlanBuilder, cast, col, lit, table_scan, when};
    use datafusion::scalar::ScalarValue;

    /// The plan of `SELECT … FROM a, b, … WHERE …` over as many tables.
    fn joined(tables: usize, condition: impl Fn(Expr) -> Expr) -> LogicalPlan {
        let schema = Schema::new(vec![datafusion::arrow::datatypes::Field::new("id", DataType::Int32, true)]);
        let scan = |at: usize| table_scan(Some(format!("t{at}")), &schema, None).unwrap().build().unwrap();
        let id = |at: usize| Column::new(Some(format!("t{at}")), "id");
        let mut plan = LogicalPlanBuilder::from(scan(0));
        for at in 1..tables {
            plan = plan.join(scan(at), JoinType::Inner, (vec![id(at - 1)], vec![id(at)]), None).unwrap();
        }
        let filtered = plan.filter(condition(Expr::Column(id(0)))).unwrap();
        filtered.project(vec![Expr::Column(id(0)).alias("x")]).unwrap().build().unwrap()
    }

    #[test]
    fn plans_without_computed_constants_are_left_alone() {
        for tables in [1, 10] {
            let plain = joined(tables, |id| id.clone().gt(lit(10)).and((id.clone() + lit(1)).eq(lit(3))));
            assert!(!has_computed(&plain).unwrap());
            let chosen = |id: Expr| when(id.clone().gt(lit(1)), lit(1)).otherwise(lit(0)).unwrap().eq(lit(1));
            assert!(!has_computed(&joined(tables, chosen)).unwrap());
            let wide = |id: Expr| cast(id, DataType::Int64).gt(cast(lit(1), DataType::Int64));
            assert!(!has_computed(&joined(tables, wide)).unwrap());
            for computed in [
                lit(1) / lit(0),
                cast(lit(1), DataType::Int64) / cast(lit(0), DataType::Int64),
                lit(1) / (lit(0) * col("t0.id")) + -lit(1),
                cast(lit(70_000), DataType::Int16),
                when(lit(true), lit(0)).otherwise(col("t0.id")).unwrap(),
                Expr::Literal(ScalarValue::Boolean(Some(true)), None).or(col("t0.id").gt(lit(1))),
            ] {
                let plan = joined(tables, |id| id.is_null().or(computed.clone().is_null()));
                assert!(has_computed(&plan).unwrap(), "{computed}");
            }
        }
    }
}
