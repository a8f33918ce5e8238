//! Whether the filters of a query contradict the CHECK constraints of a foreign table, so that it
//! has no row for the query.
//!
//! CHECK constraints are declared, and believed, as PostgreSQL believes them. A row satisfies one
//! that is true or NULL, and qualifies where all filters are true. Two proofs are tried, conjunct
//! by conjunct:
//!
//! - **Values.** A filter, or a constraint on a column that a filter compares, leaves a column a
//!   few values (`=`, `IN`). All filters and constraints on such columns are evaluated for each
//!   combination of values. If none is left, the table has no row. So `CHECK (id % 3 = 1)` and
//!   `id = 5` exclude each other.
//! - **Ranges.** The bounds of a column in filters and constraints leave no value between them.
//!
//! A column that no filter compares may be NULL, so its constraints prove nothing. Constraints that
//! are not immutable are left out, such as those that depend on the session's time zone, and so are
//! types where equal values may differ (floats, NUMERIC without digits, CHAR).

use crate::error::Result;
use crate::kept_expression::KeptExpression;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr_rewriter::unnormalize_col;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, Volatility};
use serac_binder::Place;
use serac_engine::catalog::definition::TableDefinition;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most combinations of values that are tried.
const MOST_COMBINATIONS: usize = 4_096;

/// Whether equal values of a type are the same, and their order is that of SQL.
fn is_exact(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(data_type, DataType::Boolean | DataType::Decimal128(..) | DataType::Utf8View | DataType::BinaryView)
        || matches!(data_type, DataType::Date32 | DataType::Time64(_) | DataType::Timestamp(..))
}

/// The columns of a table that the proofs look at.
struct ExactColumns<'t> {
    definition: &'t TableDefinition,
    schema: &'t Schema,
}

impl ExactColumns<'_> {
    /// The name of a column, if an expression is one, and its type.
    fn column<'e>(&self, expr: &'e Expr) -> Option<(&'e str, &DataType)> {
        let Expr::Column(column) = expr else { return None };
        let at = self.definition.column(&column.name)?;
        let data_type = self.schema.field(at).data_type();
        let is_char = self.definition.columns[at].sql_type.fixed_length;
        (is_exact(data_type) && !is_char).then_some((column.name.as_str(), data_type))
    }

    /// A comparison of a column with a constant of its type that is not NULL, with the column on
    /// the left.
    fn comparison<'e>(&self, expr: &'e Expr) -> Option<(&'e str, Operator, &'e ScalarValue)> {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return None };
        let (column, operator, constant) = match (left.as_ref(), right.as_ref()) {
            (column, Expr::Literal(constant, _)) => (column, *op, constant),
            (Expr::Literal(constant, _), column) => (column, op.swap()?, constant),
            _ => return None,
        };
        let (name, data_type) = self.column(column)?;
        (!constant.is_null() && constant.data_type() == *data_type).then_some((name, operator, constant))
    }

    /// The values that a condition leaves a column; `None` if they are not a few. A NULL among the
    /// constants is taken out if the condition `is_filter`: it makes no row qualify.
    fn values<'e>(&self, expr: &'e Expr, is_filter: bool) -> Option<(&'e str, Vec<ScalarValue>)> {
        if let Some((name, Operator::Eq, constant)) = self.comparison(expr) {
            return Some((name, vec![constant.clone()]));
        }
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
                let (name, mut values) = self.values(left, is_filter)?;
                let (_, more) = self.values(right, is_filter).filter(|(other, _)| *other == name)?;
                values.extend(more);
                Some((name, values))
            }
            Expr::InList(list) if !list.negated => {
                let (name, data_type) = self.column(&list.expr)?;
                let mut values = Vec::with_capacity(list.list.len());
                for item in &list.list {
                    match item {
                        Expr::Literal(value, _) if value.is_null() && is_filter => {}
                        Expr::Literal(value, _) if !value.is_null() && value.data_type() == *data_type => {
                            values.push(value.clone());
                        }
                        _ => return None,
                    }
                }
                Some((name, values))
            }
            // A condition of its own.
            Expr::Column(_) => match self.column(expr)? {
                (name, DataType::Boolean) => Some((name, vec![true.into()])),
                _ => None,
            },
            Expr::Not(inner) => match self.column(inner)? {
                (name, DataType::Boolean) => Some((name, vec![false.into()])),
                _ => None,
            },
            _ => None,
        }
    }

    /// The column that is not NULL where a filter is true, if it compares one.
    fn compared<'e>(&self, filter: &'e Expr) -> Option<&'e str> {
        let comparison = self.comparison(filter).filter(|(_, operator, _)| {
            matches!(operator, Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq)
        });
        let values = || self.values(filter, true).map(|(name, _)| name);
        comparison.map(|(name, ..)| name).or_else(values)
    }
}

/// The number that stands for a value of a type whose values are whole numbers, or units of time or
/// of a fixed number's last digit.
fn whole(value: &ScalarValue) -> Option<i128> {
    match value {
        ScalarValue::Int16(number) => number.map(i128::from),
        ScalarValue::Int32(number) | ScalarValue::Date32(number) => number.map(i128::from),
        ScalarValue::Int64(number)
        | ScalarValue::Time64Microsecond(number)
        | ScalarValue::TimestampMicrosecond(number, _) => number.map(i128::from),
        ScalarValue::Decimal128(number, ..) => *number,
        _ => None,
    }
}

/// The bounds of a column: a value, and whether the column may have it.
#[derive(Default)]
struct Bounds<'e> {
    lower: Option<(&'e ScalarValue, bool)>,
    upper: Option<(&'e ScalarValue, bool)>,
}

impl<'e> Bounds<'e> {
    fn narrow(&mut self, operator: Operator, value: &'e ScalarValue) {
        let (is_lower, is_upper, is_inside) = match operator {
            Operator::Eq => (true, true, true),
            Operator::Gt | Operator::GtEq => (true, false, operator == Operator::GtEq),
            Operator::Lt | Operator::LtEq => (false, true, operator == Operator::LtEq),
            _ => return,
        };
        // Of two equal bounds, the one that leaves out the value is the narrower.
        let narrows = |known: Option<(&ScalarValue, bool)>, narrower: Ordering| {
            known.is_none_or(|(known, _)| match value.partial_cmp(known) {
                Some(Ordering::Equal) => !is_inside,
                order => order == Some(narrower),
            })
        };
        if is_lower && narrows(self.lower, Ordering::Greater) {
            self.lower = Some((value, is_inside));
        }
        if is_upper && narrows(self.upper, Ordering::Less) {
            self.upper = Some((value, is_inside));
        }
    }

    fn is_empty(&self) -> bool {
        let (Some((lower, has_lower)), Some((upper, has_upper))) = (self.lower, self.upper) else { return false };
        // The next whole numbers that are left.
        if let (Some(lower), Some(upper)) = (whole(lower), whole(upper)) {
            return lower + i128::from(!has_lower) > upper - i128::from(!has_upper);
        }
        match lower.partial_cmp(upper) {
            Some(Ordering::Greater) => true,
            Some(Ordering::Equal) => !(has_lower && has_upper),
            _ => false,
        }
    }
}

/// Whether all functions in an expression give the same result at any time.
fn is_immutable(expr: &Expr) -> bool {
    let mut is_so = true;
    // The closure does not fail.
    let _ = expr.apply(|part| {
        is_so &= match part {
            Expr::ScalarFunction(call) => call.func.signature().volatility == Volatility::Immutable,
            Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::OuterReferenceColumn(..) => false,
            _ => true,
        };
        Ok(if is_so { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    is_so
}

/// All combinations of values as rows, with a column for each of `values`.
fn combinations(values: &BTreeMap<&str, Vec<ScalarValue>>, schema: &Schema) -> Result<RecordBatch> {
    let rows: usize = values.values().map(Vec::len).product();
    let (mut fields, mut columns) = (Vec::new(), Vec::<ArrayRef>::new());
    let mut repeats = rows;
    for (name, values) in values {
        repeats /= values.len().max(1);
        fields.push(schema.field_with_name(name)?.clone());
        let column = (0..rows).map(|row| values[row / repeats % values.len()].clone());
        columns.push(match rows {
            0 => datafusion::arrow::array::new_empty_array(fields[fields.len() - 1].data_type()),
            _ => ScalarValue::iter_to_array(column)?,
        });
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

/// A condition for the rows of a batch; `None` if it names other columns, or fails for a row.
fn evaluated(state: &SessionState, condition: &Expr, rows: &RecordBatch) -> Option<BooleanArray> {
    let names = rows.schema();
    if !condition.column_refs().iter().all(|column| names.column_with_name(&column.name).is_some()) {
        return None;
    }
    let schema = DFSchema::try_from(names.as_ref().clone()).ok()?;
    let condition = state.create_physical_expr(condition.clone(), &schema).ok()?;
    let values = condition.evaluate(rows).ok()?.into_array(rows.num_rows()).ok()?;
    values.as_boolean_opt().cloned()
}

/// Whether no row that satisfies the CHECK constraints of a table fulfils all of `filters`. Columns
/// of the filters are those of the schema.
///
/// # Errors
/// Those of values that cannot be put into a batch.
pub(crate) fn is_excluded(
    state: &SessionState,
    definition: &TableDefinition,
    schema: &SchemaRef,
    filters: &[Expr],
) -> Result<bool> {
    if definition.checks.is_empty() || filters.is_empty() {
        return Ok(false);
    }
    let all = DFSchema::try_from(schema.as_ref().clone())?;
    let planned = definition.checks.iter().filter_map(|check| {
        let check = KeptExpression::over(definition, &check.expression, Place::Check);
        // One that cannot be planned any more proves nothing, nor does one that is another under
        // other settings of the session: the server's rows satisfy it under those of their writer.
        let is_immutable = check.bound(state, &all).is_ok_and(|bound| bound.is_immutable);
        is_immutable.then(|| check.planned(state, &all).ok()).flatten()
    });
    let (planned, filters): (Vec<Expr>, Vec<Expr>) =
        (planned.collect(), filters.iter().cloned().map(unnormalize_col).collect());
    let conjuncts = |all: &'_ [Expr]| -> Vec<Expr> {
        let parts = all.iter().flat_map(|expr| split_conjunction(expr));
        parts.filter(|part| is_immutable(part)).cloned().collect()
    };
    contradict(state, &ExactColumns { definition, schema }, &conjuncts(&filters), &conjuncts(&planned))
}

fn contradict(state: &SessionState, columns: &ExactColumns<'_>, filters: &[Expr], checks: &[Expr]) -> Result<bool> {
    let compared: Vec<&str> = filters.iter().filter_map(|filter| columns.compared(filter)).collect();
    let about_compared = |name: &str| compared.contains(&name);
    let mut bounds: BTreeMap<&str, Bounds<'_>> = BTreeMap::new();
    for (name, operator, value) in filters.iter().chain(checks).filter_map(|part| columns.comparison(part)) {
        if about_compared(name) {
            bounds.entry(name).or_default().narrow(operator, value);
        }
    }
    if bounds.values().any(Bounds::is_empty) {
        return Ok(true);
    }
    let of_filters = filters.iter().filter_map(|filter| columns.values(filter, true));
    let of_checks = checks.iter().filter_map(|check| columns.values(check, false));
    let mut values: BTreeMap<&str, Vec<ScalarValue>> = BTreeMap::new();
    let mut rows = 1usize;
    for (name, few) in of_filters.chain(of_checks.filter(|(name, _)| about_compared(name))) {
        // The first values that are known of a column; the others are conditions on them.
        if !values.contains_key(name) && rows.saturating_mul(few.len()) <= MOST_COMBINATIONS {
            rows *= few.len();
            values.insert(name, few);
        }
    }
    if values.is_empty() {
        return Ok(false);
    }
    let batch = combinations(&values, columns.schema)?;
    let mut left = vec![true; rows];
    for (conditions, is_filter) in [(filters, true), (checks, false)] {
        for found in conditions.iter().filter_map(|condition| evaluated(state, condition, &batch)) {
            for (row, left) in left.iter_mut().enumerate() {
                *left &= match found.is_null(row) {
                    true => !is_filter,
                    false => found.value(row),
                };
            }
        }
    }
    Ok(!left.contains(&true))
}
