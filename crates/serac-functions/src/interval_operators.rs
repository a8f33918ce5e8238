//! Intervals and operators: products with numbers, comparisons, sums of times and intervals,
//! differences of times, and operands that the planner does not read as intervals.

use super::definition::{Definition, Types};
use super::intervals::one_interval;
use crate::sql_result::SqlResult;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Float64Array, IntervalMonthDayNanoArray, TimestampMicrosecondArray,
};
use datafusion::arrow::compute::kernels::numeric::{add, sub};
use datafusion::arrow::datatypes::{
    DataType, DurationMicrosecondType, Field, Float64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    cast,
};
use datafusion::physical_expr_common::datum::apply;
use serac_engine::Infinity;
use serac_values::SqlError;
use serac_values::intervals::{DAYS_PER_MONTH, INTERVAL, MICROS_PER_DAY, Parts, intervals, is_interval, out_of_range};
use serac_values::time_range::has_infinite;
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

/// Applies `f` to intervals and numbers.
fn scale(args: &[ArrayRef], f: impl Fn(Parts, f64) -> SqlResult<Parts>) -> SqlResult<ArrayRef> {
    let numbers: &Float64Array = args[1].as_primitive::<Float64Type>();
    let scaled = |(interval, number): (Option<IntervalMonthDayNano>, Option<f64>)| match (interval, number) {
        (Some(interval), Some(number)) => f(Parts::of(interval), number)?.interval().map(Some),
        _ => Ok(None),
    };
    let result: SqlResult<IntervalMonthDayNanoArray> = intervals(&args[0]).iter().zip(numbers).map(scaled).collect();
    Ok(Arc::new(result?))
}

fn interval_and_number(given: &[DataType]) -> Option<Types> {
    match given {
        [interval, number]
            if (is_interval(interval) || interval.is_null()) && (number.is_numeric() || number.is_null()) =>
        {
            Some((vec![INTERVAL, DataType::Float64], INTERVAL))
        }
        _ => None,
    }
}

static TIMES: Definition = Definition {
    name: "interval_times",
    types: interval_and_number,
    body: |args| scale(args, |parts, factor| parts.scaled(|part| part * factor).ok_or_else(out_of_range)),
};
/// The same with the number first, under a name of its own, as the names of columns are made of
/// names of functions.
static TIMES_AFTER: Definition = Definition {
    name: "times_interval",
    types: |given| match given {
        [number, interval] => interval_and_number(&[interval.clone(), number.clone()])
            .map(|(_, result)| (vec![DataType::Float64, INTERVAL], result)),
        _ => None,
    },
    body: |args| (TIMES.body)(&[args[1].clone(), args[0].clone()]),
};
static OVER: Definition = Definition {
    name: "interval_over",
    types: interval_and_number,
    body: |args| {
        scale(args, |parts, divisor| match divisor {
            0.0 => Err(SqlError::new(sqlstate::DIVISION_BY_ZERO, "division by zero")),
            _ => parts.scaled(|part| part / divisor).ok_or_else(out_of_range),
        })
    },
};

static TIMES_FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new((&TIMES).into()));
static TIMES_AFTER_FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new((&TIMES_AFTER).into()));
static OVER_FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new((&OVER).into()));

/// Applies `f` to each part of two intervals.
fn each_part(args: &[ArrayRef], f: fn(i64, i64) -> Option<i64>) -> SqlResult<ArrayRef> {
    let sum = |(left, right): (Option<IntervalMonthDayNano>, Option<IntervalMonthDayNano>)| {
        let Some((left, right)) = left.zip(right) else { return Ok(None) };
        let (left, right) = (Parts::of(left), Parts::of(right));
        let parts = || {
            let months = i32::try_from(f(left.months.into(), right.months.into())?).ok()?;
            let days = i32::try_from(f(left.days.into(), right.days.into())?).ok()?;
            Some(Parts { months, days, micros: f(left.micros, right.micros)? })
        };
        parts().ok_or_else(out_of_range)?.interval().map(Some)
    };
    let sums: SqlResult<IntervalMonthDayNanoArray> =
        intervals(&args[0]).iter().zip(intervals(&args[1])).map(sum).collect();
    Ok(Arc::new(sums?))
}

fn two_intervals(given: &[DataType]) -> Option<Types> {
    let are_intervals = given.len() == 2 && given.iter().all(|t| matches!(t, DataType::Interval(_)) || t.is_null());
    are_intervals.then(|| (vec![INTERVAL; 2], INTERVAL))
}

static PLUS: Definition =
    Definition { name: "interval_pl", types: two_intervals, body: |args| each_part(args, i64::checked_add) };
static MINUS: Definition =
    Definition { name: "interval_mi", types: two_intervals, body: |args| each_part(args, i64::checked_sub) };
static PLUS_FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new((&PLUS).into()));
static MINUS_FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new((&MINUS).into()));

/// Differences of times as intervals of days and times.
pub(super) fn as_intervals(durations: &ArrayRef) -> SqlResult<ArrayRef> {
    let interval = |micros: i64| -> SqlResult<IntervalMonthDayNano> {
        let parts = Parts { months: 0, days: 0, micros }.justify_hours();
        parts.ok_or_else(out_of_range)?.interval()
    };
    let micros = datafusion::arrow::compute::cast(durations, &DataType::Duration(TimeUnit::Microsecond))?;
    let durations = micros.as_primitive::<DurationMicrosecondType>();
    Ok(Arc::new(durations.try_unary::<_, IntervalMonthDayNanoType, SqlError>(interval)?))
}

/// The length of an interval in microseconds, of months of thirty days, by which intervals are
/// compared.
pub(super) static LENGTH: Definition = Definition {
    name: "interval_length",
    types: |given| one_interval(given).map(|(types, _)| (types, DataType::Decimal128(38, 0))),
    body: |args| {
        let length = |interval| {
            let Parts { months, days, micros } = Parts::of(interval);
            let days = i128::from(months) * i128::from(DAYS_PER_MONTH) + i128::from(days);
            days * i128::from(MICROS_PER_DAY) + i128::from(micros)
        };
        let lengths: Decimal128Array = intervals(&args[0]).iter().map(|interval| interval.map(length)).collect();
        Ok(Arc::new(lengths.with_data_type(DataType::Decimal128(38, 0))))
    },
};
static LENGTH_FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new((&LENGTH).into()));

/// The operand beside an interval.
enum Operand {
    Interval,
    Number,
    Other,
}

fn operand(expr: &Expr, schema: &DFSchema) -> Operand {
    match expr {
        // A parameter beside an interval is a number.
        Expr::Placeholder(Placeholder { field: None, .. }) => return Operand::Number,
        Expr::Literal(ScalarValue::Null, _) => return Operand::Number,
        _ => {}
    }
    match expr.get_type(schema) {
        Ok(data_type) if is_interval(&data_type) => Operand::Interval,
        Ok(data_type) if data_type.is_numeric() || data_type.is_null() => Operand::Number,
        _ => Operand::Other,
    }
}

/// A date to which an interval is added or from which it is taken, as the time at which it begins:
/// so is the sum.
fn with_time(date: Expr, interval: &Expr, schema: &DFSchema) -> Expr {
    let is = |expr: &Expr, is: fn(&DataType) -> bool| expr.get_type(schema).is_ok_and(|data_type| is(&data_type));
    if !is(interval, is_interval) || !is(&date, |data_type| *data_type == DataType::Date32) {
        return date;
    }
    cast(date, DataType::Timestamp(TimeUnit::Microsecond, None))
}

fn is_constant_text(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(value, _) if serac_values::text_types::is_text(&value.data_type()))
}

fn as_number(expr: Expr) -> Expr {
    match expr {
        Expr::Placeholder(Placeholder { id, field: None }) => {
            let field = Arc::new(Field::new("", DataType::Float64, true));
            Expr::Placeholder(Placeholder { id, field: Some(field) })
        }
        other => cast(other, DataType::Float64),
    }
}

/// The difference of two times, an interval of days and a time.
static DIFFERENCE: Definition = Definition {
    name: "timestamp_mi",
    types: |given| match given {
        [DataType::Timestamp(_, zone), DataType::Timestamp(_, other)] => {
            let [left, right] = [zone, other].map(|zone| DataType::Timestamp(TimeUnit::Microsecond, zone.clone()));
            Some((vec![left, right], INTERVAL))
        }
        _ => None,
    },
    body: |args| {
        let [left, right] = [&args[0], &args[1]].map(|times| times.as_primitive::<TimestampMicrosecondType>());
        let difference = |(left, right): (Option<i64>, Option<i64>)| -> SqlResult<_> {
            let Some((left, right)) = left.zip(right) else { return Ok(None) };
            if [left, right].into_iter().any(|micros| Infinity::of_micros(micros).is_some()) {
                let message = "cannot subtract infinite timestamps";
                return Err(SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, message));
            }
            let micros = left.checked_sub(right).ok_or_else(out_of_range)?;
            Parts { months: 0, days: 0, micros }.justify_hours().ok_or_else(out_of_range)?.interval().map(Some)
        };
        let differences: SqlResult<IntervalMonthDayNanoArray> = left.iter().zip(right).map(difference).collect();
        Ok(Arc::new(differences?))
    },
};
static DIFFERENCE_FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new((&DIFFERENCE).into()));

/// The time after an interval, or before one. An infinite time stays what it is.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeSum {
    operator: Operator,
    signature: Signature,
}

static SUMS: LazyLock<[Arc<ScalarUDF>; 2]> = LazyLock::new(|| {
    [Operator::Plus, Operator::Minus].map(|operator| {
        let signature = Signature::any(2, Volatility::Immutable);
        Arc::new(ScalarUDF::from(TimeSum { operator, signature }))
    })
});

impl ScalarUDFImpl for TimeSum {
    fn name(&self) -> &str {
        if self.operator == Operator::Plus { "timestamp_pl_interval" } else { "timestamp_mi_interval" }
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(format!("{} {} {}", args[0].schema_name(), self.operator, args[1].schema_name()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(given[0].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_infinite = match &args.args[0] {
            ColumnarValue::Array(times) => has_infinite(times),
            ColumnarValue::Scalar(time) => has_infinite(&time.to_array()?),
        };
        let operate = if self.operator == Operator::Plus { add } else { sub };
        if !is_infinite {
            return apply(&args.args[0], &args.args[1], operate);
        }
        let sums = |args: &[ArrayRef]| -> Result<ArrayRef> {
            let (times, intervals) = (args[0].as_primitive::<TimestampMicrosecondType>(), intervals(&args[1]));
            let finite = times.unary_opt::<_, TimestampMicrosecondType>(|time| match Infinity::of_micros(time) {
                None => Some(time),
                Some(_) => None,
            });
            let finite = finite.with_timezone_opt(times.timezone().map(Arc::from));
            let sums = operate(&finite, intervals)?;
            let sums = sums.as_primitive::<TimestampMicrosecondType>();
            let sum = |row: usize| match times.is_valid(row) && intervals.is_valid(row) {
                true if Infinity::of_micros(times.value(row)).is_some() => Some(times.value(row)),
                true => Some(sums.value(row)),
                false => None,
            };
            let sums: TimestampMicrosecondArray = (0..times.len()).map(sum).collect();
            Ok(Arc::new(sums.with_timezone_opt(times.timezone().map(Arc::from))))
        };
        make_scalar_function(sums, Vec::new())(&args.args)
    }
}

/// Break: handles `interval * number`, `number * interval`, `interval / number`, sums of intervals
/// and differences of times. Continue: returns the operands of other operators, in sums of dates
/// and intervals and in comparisons of intervals, where `36 hours` equals `1 day 12 hours`.
pub(super) fn operate(
    operator: Operator,
    left: Expr,
    right: Expr,
    schema: &DFSchema,
) -> ControlFlow<Expr, (Expr, Expr)> {
    use ControlFlow::{Break, Continue};
    use Operator::{Divide, Eq, Gt, GtEq, Lt, LtEq, Minus, Multiply, NotEq, Plus};
    match operator {
        Plus | Minus => {
            let is = |expr: &Expr, wanted: fn(&DataType) -> bool| expr.get_type(schema).is_ok_and(|t| wanted(&t));
            let is_date = |expr: &Expr| is(expr, |t| *t == DataType::Date32);
            let is_time = |expr: &Expr| is(expr, |t| matches!(t, DataType::Time64(_)));
            let is_sum = |expr: &Expr| is(expr, |t| matches!(t, DataType::Interval(_)));
            if is_sum(&left) && is_sum(&right) {
                let function = if operator == Plus { &PLUS_FUNCTION } else { &MINUS_FUNCTION };
                return Break(function.call(vec![left, right]));
            }
            let is_point = |expr: &Expr| is(expr, |t| matches!(t, DataType::Timestamp(..)));
            if operator == Minus && is_point(&left) && is_point(&right) {
                return Break(DIFFERENCE_FUNCTION.call(vec![left, right]));
            }
            // A date and a time of day.
            let (left, right) = match operator {
                Plus if is_date(&left) && is_time(&right) => (left, cast(right, INTERVAL)),
                Plus if is_time(&left) && is_date(&right) => (cast(left, INTERVAL), right),
                _ => (left, right),
            };
            let left = with_time(left, &right, schema);
            let right = if operator == Plus { with_time(right, &left, schema) } else { right };
            let sum = |time: Expr, interval: Expr| SUMS[usize::from(operator == Minus)].call(vec![time, interval]);
            let is_micros = |expr: &Expr| is(expr, |t| matches!(t, DataType::Timestamp(TimeUnit::Microsecond, _)));
            if is_micros(&left) && is_sum(&right) {
                return Break(sum(left, right));
            }
            if operator == Plus && is_sum(&left) && is_micros(&right) {
                return Break(sum(right, left));
            }
            Continue((left, right))
        }
        Eq | NotEq | Lt | LtEq | Gt | GtEq => {
            let both = match (operand(&left, schema), operand(&right, schema)) {
                (Operand::Interval, Operand::Interval) => true,
                (Operand::Interval, _) => is_constant_text(&right),
                (_, Operand::Interval) => is_constant_text(&left),
                _ => false,
            };
            let length = |expr: Expr| match is_constant_text(&expr) {
                true => LENGTH_FUNCTION.call(vec![cast(expr, INTERVAL)]),
                false => LENGTH_FUNCTION.call(vec![expr]),
            };
            Continue(if both { (length(left), length(right)) } else { (left, right) })
        }
        Multiply | Divide => match (operator, operand(&left, schema), operand(&right, schema)) {
            (Multiply, Operand::Interval, Operand::Number) => Break(TIMES_FUNCTION.call(vec![left, as_number(right)])),
            (Multiply, Operand::Number, Operand::Interval) => {
                Break(TIMES_AFTER_FUNCTION.call(vec![as_number(left), right]))
            }
            (Divide, Operand::Interval, Operand::Number) => Break(OVER_FUNCTION.call(vec![left, as_number(right)])),
            _ => Continue((left, right)),
        },
        _ => Continue((left, right)),
    }
}
