//! Dates that are compared with times: `day >= now() - INTERVAL '7 days'`,
//! `day < DATE '1995-01-01' + INTERVAL '1 year'`.
//!
//! The date is cast to the midnight it begins with, which neither indexes nor zone maps recognise.
//! Here the constant becomes a date. If the constant is not a midnight, the midnights after it
//! begin with the next day.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, lit};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use serac_engine::Infinity;
use serac_functions::{operand_of_cast, rewrite_typed};
use std::cell::Cell;

/// Compares dates with constants as dates.
#[derive(Debug, Default)]
pub struct DateComparisons;

fn is_comparison(expr: &Expr) -> bool {
    use Operator::{Gt, GtEq, Lt, LtEq};
    matches!(expr, Expr::BinaryExpr(BinaryExpr { left, op: Lt | LtEq | Gt | GtEq | Operator::Eq, right })
    if match (&**left, &**right) {
        (time, Expr::Literal(..)) | (Expr::Literal(..), time) => operand_of_cast(time).is_some(),
        _ => false,
    })
}

/// The day of a time, and whether the time is its beginning.
fn day(time: &ScalarValue) -> Option<(i32, bool)> {
    const SECONDS_PER_DAY: i64 = 86_400;
    let (ticks, per_second) = match time {
        ScalarValue::TimestampSecond(Some(ticks), _) => (*ticks, 1),
        ScalarValue::TimestampMillisecond(Some(ticks), _) => (*ticks, 1_000),
        ScalarValue::TimestampMicrosecond(Some(ticks), _) if let Some(infinity) = Infinity::of_micros(*ticks) => {
            return Some((infinity.days(), true));
        }
        ScalarValue::TimestampMicrosecond(Some(ticks), _) => (*ticks, 1_000_000),
        ScalarValue::TimestampNanosecond(Some(ticks), _) => (*ticks, 1_000_000_000),
        _ => return None,
    };
    let per_day = SECONDS_PER_DAY * per_second;
    Some((i32::try_from(ticks.div_euclid(per_day)).ok()?, ticks.rem_euclid(per_day) == 0))
}

/// The equivalent comparison of dates; `None` if it is no comparison of a date and a time.
fn of_dates(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return None };
    let (cast, op, time) = match (&**left, &**right) {
        (cast, Expr::Literal(time, _)) => (cast, *op, time),
        (Expr::Literal(time, _), cast) => (cast, op.swap()?, time),
        _ => return None,
    };
    let (date, to) = operand_of_cast(cast)?;
    if !matches!(to, DataType::Timestamp(..)) || date.get_type(schema).ok()? != DataType::Date32 {
        return None;
    }
    let (day, begins) = day(time)?;
    let op = match (op, begins) {
        (Operator::Eq | Operator::Lt | Operator::GtEq, true) | (Operator::LtEq | Operator::Gt, _) => op,
        (Operator::Lt, false) => Operator::LtEq,
        (Operator::GtEq, false) => Operator::Gt,
        _ => return None,
    };
    let right = Box::new(lit(ScalarValue::Date32(Some(day))));
    Some(Expr::BinaryExpr(BinaryExpr { left: Box::new(date.clone()), op, right }))
}

impl OptimizerRule for DateComparisons {
    fn name(&self) -> &str {
        "date_comparisons"
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let changed = Cell::new(false);
        let plan = rewrite_typed(plan, is_comparison, |expr, schema| {
            Ok(match of_dates(&expr, schema) {
                Some(dates) => {
                    changed.set(true);
                    Transformed::yes(dates)
                }
                None => Transformed::no(expr),
            })
        })?;
        Ok(Transformed::new_transformed(plan, changed.get()))
    }
}
