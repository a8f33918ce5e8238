//! From bound expressions, analysed as DataFusion's are, to [`RowExpr`]s.

use super::expression::{Arithmetic, ArrowExpr, RowExpr, Typed, column_type_of, integer_bits, owned, scale_of};
use super::steps::in_steps;
use crate::error::Result;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::execution::SessionState;
use datafusion::functions::string::rtrim::RtrimFunc;
use datafusion::logical_expr::{BinaryExpr, Case, Cast, Expr, ExprSchemable, Operator, cast};
use datafusion::prelude::Column;
use serac_query::optimizer::{operator_of, unguarded};
use serac_storage::ColumnType;
use std::cell::Cell;
use std::sync::Arc;

/// The name of the parameter, behind the statement's own, that has the time of the transaction.
const TRANSACTION_TIME: &str = "$now";
const TRANSACTION_TIME_TYPE: ColumnType = ColumnType::Timestamp { utc: true };

/// Makes [`RowExpr`]s of DataFusion's expressions.
pub(super) struct Compiler<'s> {
    pub(super) state: &'s SessionState,
    /// Set by an expression that calls functions.
    computes: &'s Cell<bool>,
    /// The columns of the row, behind them the parameters, and behind those the time of the
    /// transaction.
    pub(super) schema: DFSchema,
    /// The number of the row's columns.
    pub(super) columns: usize,
    /// The columns that are used, in the order of the row that is evaluated; `None` if that row has
    /// all of them.
    pub(super) used: Option<Vec<usize>>,
}

impl<'s> Compiler<'s> {
    /// For rows of `columns` and `parameters`. `all`: the row that is evaluated has all columns,
    /// otherwise those that are [`used`](Self::used).
    pub(super) fn new(
        state: &'s SessionState,
        computes: &'s Cell<bool>,
        columns: impl Iterator<Item = DataType>,
        parameters: &[ColumnType],
        all: bool,
    ) -> Result<Self> {
        let mut fields: Vec<Field> =
            columns.enumerate().map(|(i, data_type)| Field::new(format!("c{i}"), data_type, true)).collect();
        let columns = fields.len();
        let parameters = parameters.iter().enumerate();
        fields.extend(parameters.map(|(i, t)| Field::new(format!("${}", i + 1), t.arrow(), true)));
        fields.push(Field::new(TRANSACTION_TIME, TRANSACTION_TIME_TYPE.arrow(), false));
        let schema = DFSchema::try_from(Schema::new(fields))?;
        Ok(Self { state, computes, schema, columns, used: (!all).then(Vec::new) })
    }

    /// The position of a column in the row that is evaluated.
    pub(super) fn position(&mut self, column: usize) -> usize {
        let Some(used) = &mut self.used else { return column };
        used.iter().position(|&c| c == column).unwrap_or_else(|| {
            used.push(column);
            used.len() - 1
        })
    }

    fn column(&mut self, column: &Column) -> Option<Typed> {
        let at = self.schema.index_of_column(column).ok()?;
        let column_type = column_type_of(self.schema.field(at).data_type())?;
        let expr = match at.checked_sub(self.columns) {
            Some(parameter) => RowExpr::Parameter(parameter),
            None => RowExpr::Column(self.position(at)),
        };
        Some(Typed { expr, column_type })
    }

    /// Compiles an expression over the schema, whose types are coerced already; `None` if the point
    /// path does not support it.
    pub(super) fn compile(&mut self, expr: &Expr) -> Option<Typed> {
        if let Some(native) = self.native(expr) {
            return Some(native);
        }
        self.arrow(expr)
    }

    /// As [`compile`](Self::compile), for a condition.
    pub(super) fn condition(&mut self, expr: &Expr) -> Option<RowExpr> {
        self.compile(expr).filter(|typed| typed.column_type == ColumnType::Boolean).map(|typed| typed.expr)
    }

    fn pair(&mut self, left: &Expr, right: &Expr) -> Option<(Typed, Typed)> {
        Some((self.compile(left)?, self.compile(right)?))
    }

    fn native(&mut self, expr: &Expr) -> Option<Typed> {
        let boolean = |expr| Some(Typed { expr, column_type: ColumnType::Boolean });
        match expr {
            Expr::Alias(alias) => self.compile(&alias.expr),
            Expr::Column(column) => self.column(column),
            Expr::Literal(value, _) => {
                let column_type = column_type_of(&value.data_type())?;
                let value = owned(&value.to_array().ok()?, column_type).ok()?;
                Some(Typed { expr: RowExpr::Literal(value), column_type })
            }
            Expr::Not(operand) => {
                let operand = self.condition(operand)?;
                boolean(RowExpr::Not(Box::new(operand)))
            }
            Expr::IsNull(operand) => boolean(RowExpr::IsNull(Box::new(self.compile(operand)?.expr))),
            Expr::IsNotNull(operand) => {
                let is_null = RowExpr::IsNull(Box::new(self.compile(operand)?.expr));
                boolean(RowExpr::Not(Box::new(is_null)))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => self.binary(left, *op, right),
            Expr::ScalarFunction(call) => match &call.args[..] {
                [left, right] => self.binary(left, operator_of(&call.func)?, right),
                // CHAR(n) is compared without blanks at its end.
                [text] if call.func.inner().downcast_ref::<RtrimFunc>().is_some() => {
                    let Typed { expr, column_type } = self.compile(text)?;
                    let is_text = column_type == ColumnType::Utf8;
                    is_text.then(|| Typed { expr: RowExpr::WithoutBlanks(Box::new(expr)), column_type })
                }
                _ => None,
            },
            Expr::Between(between) => {
                let low = self.binary(&between.expr, Operator::GtEq, &between.low)?.expr;
                let high = self.binary(&between.expr, Operator::LtEq, &between.high)?.expr;
                let inside = RowExpr::And(Box::new([low, high]));
                boolean(if between.negated { RowExpr::Not(Box::new(inside)) } else { inside })
            }
            // Arrow computes a CASE with an operand, and evaluates the operand once.
            Expr::Case(case) if case.expr.is_none() => self.case(case),
            Expr::Cast(to) => {
                // Rows are computed one by one, which guards branches as well.
                if let Some(plain) = unguarded(to) {
                    return self.compile(&plain);
                }
                let operand = self.compile(&to.expr)?;
                let target = column_type_of(to.field.data_type())?;
                self.convert(operand, target)
            }
            _ => None,
        }
    }

    fn case(&mut self, case: &Case) -> Option<Typed> {
        let mut types = Vec::new();
        let mut result = |compiler: &mut Self, expr: &Expr| {
            let Typed { expr, column_type } = compiler.compile(expr)?;
            types.push(column_type);
            Some(expr)
        };
        let branches = case.when_then_expr.iter();
        let branches = branches.map(|(when, then)| Some([self.condition(when)?, result(self, then)?]));
        let branches = branches.collect::<Option<_>>()?;
        let otherwise = match &case.else_expr {
            Some(otherwise) => Some(Box::new(result(self, otherwise)?)),
            None => None,
        };
        let column_type = *types.first()?;
        let expr = RowExpr::Case { branches, otherwise };
        types.iter().all(|t| *t == column_type).then_some(Typed { expr, column_type })
    }

    /// A conversion that cannot lose digits.
    fn convert(&self, operand: Typed, target: ColumnType) -> Option<Typed> {
        if operand.column_type == target {
            return Some(Typed { expr: operand.expr, column_type: target });
        }
        let up = scale_of(target)?.checked_sub(scale_of(operand.column_type)?).filter(|up| *up >= 0)?;
        let factor = 10i128.checked_pow(up as u32)?;
        let expr = RowExpr::Convert { operand: Box::new(operand.expr), factor, target };
        Some(Typed { expr, column_type: target })
    }

    fn binary(&mut self, left: &Expr, operator: Operator, right: &Expr) -> Option<Typed> {
        let (a, b) = self.pair(left, right)?;
        let (left_type, right_type) = (a.column_type, b.column_type);
        let operands = Box::new([a.expr, b.expr]);
        let boolean = |expr| Some(Typed { expr, column_type: ColumnType::Boolean });
        let operation = match operator {
            Operator::And | Operator::Or if left_type != ColumnType::Boolean || right_type != left_type => return None,
            Operator::And => return boolean(RowExpr::And(operands)),
            Operator::Or => return boolean(RowExpr::Or(operands)),
            Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => {
                let comparable = match (left_type, right_type) {
                    (ColumnType::Decimal { scale: a, .. }, ColumnType::Decimal { scale: b, .. }) => a == b,
                    (ColumnType::Interval | ColumnType::Uuid | ColumnType::Numeric, _) => false,
                    (a, b) => a == b,
                };
                return comparable.then_some(()).and_then(|()| boolean(RowExpr::Compare(operator, operands)));
            }
            Operator::Plus => Arithmetic::Add,
            Operator::Minus => Arithmetic::Subtract,
            Operator::Multiply => Arithmetic::Multiply,
            Operator::Divide => Arithmetic::Divide,
            _ => return None,
        };
        match (left_type, right_type) {
            (ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64, other)
                if other == left_type && operation != Arithmetic::Divide =>
            {
                let bits = integer_bits(left_type)?;
                Some(Typed { expr: RowExpr::Integer { operation, bits, operands }, column_type: left_type })
            }
            (ColumnType::Float32 | ColumnType::Float64, other) if other == left_type => {
                Some(Typed { expr: RowExpr::Float(operation, operands), column_type: left_type })
            }
            (ColumnType::Decimal { scale: a, .. }, ColumnType::Decimal { scale: b, .. })
                if operation != Arithmetic::Divide =>
            {
                let operator_expr =
                    Expr::BinaryExpr(BinaryExpr::new(left.clone().into(), operator, right.clone().into()));
                let column_type = column_type_of(&operator_expr.get_type(&self.schema).ok()?)?;
                let ColumnType::Decimal { precision, scale } = column_type else { return None };
                let factors = match operation {
                    Arithmetic::Multiply if scale == a.checked_add(b)? => [1, 1],
                    Arithmetic::Multiply => return None,
                    _ => {
                        let factor = |own: i8| 10i128.checked_pow(u32::try_from(scale - own).ok()?);
                        [factor(a)?, factor(b)?]
                    }
                };
                // Arrow decides about a value with more digits than its type has.
                let expr = RowExpr::Decimal { operation, factors, narrow: precision <= 18, operands };
                Some(Typed { expr, column_type })
            }
            _ => None,
        }
    }

    /// The expression as DataFusion evaluates it.
    fn arrow(&mut self, expr: &Expr) -> Option<Typed> {
        let mut columns: Vec<Column> = Vec::new();
        let mut known = true;
        expr.apply(|part| {
            match part {
                Expr::Column(column) if !columns.contains(column) => columns.push(column.clone()),
                Expr::AggregateFunction(_)
                | Expr::WindowFunction(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
                | Expr::ScalarSubquery(_)
                | Expr::ScalarVariable(..)
                | Expr::Placeholder(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::Unnest(_)
                | Expr::GroupingSet(_) => known = false,
                // A function that waits takes the other path.
                Expr::ScalarFunction(call) if call.func.as_async().is_some() => known = false,
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })
        .ok()?;
        if !known {
            return None;
        }
        let output = column_type_of(&expr.get_type(&self.schema).ok()?)?;
        let mut inputs = Vec::new();
        let mut fields = Vec::new();
        for column in &columns {
            let at = self.schema.index_of_column(column).ok()?;
            fields.push(self.schema.field(at).as_ref().clone());
            let input = self.column(column)?;
            inputs.push((input.expr, input.column_type));
        }
        let schema = Arc::new(Schema::new(fields));
        self.computes.set(true);
        let physical = self.state.create_physical_expr(expr.clone(), &DFSchema::try_from(schema.clone()).ok()?).ok()?;
        let physical = in_steps(physical).ok()?;
        let expr =
            RowExpr::Arrow(Arc::new(ArrowExpr { physical, schema, inputs, output, is_volatile: expr.is_volatile() }));
        Some(Typed { expr, column_type: output })
    }
}

/// The expression with the time of the transaction in place of `now()`, whose nanoseconds are then
/// whole microseconds. Also whether there was any `now()`.
pub(super) fn with_transaction_time(expr: Expr) -> Option<(Expr, bool)> {
    let time = || Expr::Column(Column::from_name(TRANSACTION_TIME));
    let is_time = |expr: &Expr| matches!(expr, Expr::Column(column) if column.name == TRANSACTION_TIME);
    let replaced = expr.transform_up(|part| {
        Ok(match part {
            Expr::ScalarFunction(ref call) if call.func.name() == "now" && call.args.is_empty() => {
                Transformed::yes(cast(time(), part.get_type(&DFSchema::empty())?))
            }
            // Fewer digits are cut off as well without the cast to nanoseconds.
            Expr::Cast(outer) if matches!(outer.field.data_type(), DataType::Timestamp(..) | DataType::Date32) => {
                match *outer.expr {
                    Expr::Cast(inner) if is_time(&inner.expr) => {
                        Transformed::yes(cast(time(), outer.field.data_type().clone()))
                    }
                    operand => Transformed::no(Expr::Cast(Cast { expr: Box::new(operand), ..outer })),
                }
            }
            part => Transformed::no(part),
        })
    });
    let replaced = replaced.ok()?;
    let expr = match replaced.data {
        Expr::Cast(outer) if is_time(&outer.expr) && column_type_of(outer.field.data_type()).is_none() => *outer.expr,
        expr => expr,
    };
    Some((expr, replaced.transformed))
}

/// Whether the expression calls a function whose result holds only for a time (`current_date`).
pub(super) fn is_of_statement(expr: &Expr) -> bool {
    expr.exists(|part| Ok(serac_functions::is_of_statement(part))).unwrap_or(true)
}

/// The expression with every column replaced.
pub(super) fn replace_columns(expr: Expr, replace: impl Fn(&Column) -> Option<Expr>) -> Option<Expr> {
    let mut known = true;
    let replaced = expr
        .transform_up(|part| match &part {
            Expr::Column(column) => match replace(column) {
                Some(new) => Ok(Transformed::yes(new)),
                None => {
                    known = false;
                    Ok(Transformed::no(part))
                }
            },
            _ => Ok(Transformed::no(part)),
        })
        .ok()?
        .data;
    known.then_some(replaced)
}
