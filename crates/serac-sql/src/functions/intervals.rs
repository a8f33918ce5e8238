//! Intervals: products with numbers, justify_days, justify_hours and justify_interval, make_interval, age of two times.
//!
//! An interval has months, days and nanoseconds, of which PostgreSQL's microseconds are used; its time is within 292 years either way.

use super::{Definition, Types};
use crate::error::SqlError;
use chrono::{Datelike, NaiveDateTime, Timelike};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Float64Array, IntervalMonthDayNanoArray, PrimitiveArray,
    TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{
    DataType, DurationMicrosecondType, Field, FieldRef, Float64Type, Int32Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Column, DFSchema, ScalarValue, TableReference};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, ScalarUDF, cast};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType as AstType, Expr as AstExpr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Interval, Value,
};
use std::sync::{Arc, LazyLock};

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const DAYS_PER_MONTH: i32 = 30;
const SECONDS_PER_DAY: f64 = 86_400.0;
const MICROS_PER_DAY: i64 = 86_400_000_000;
const MICROS_PER_SECOND: i64 = 1_000_000;

type Outcome<T> = std::result::Result<T, SqlError>;

pub(super) fn out_of_range() -> SqlError {
    SqlError::new("22008", "interval out of range")
}

/// Whether it is an interval, or the difference of two times.
pub(super) fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_) | DataType::Duration(_))
}

/// An interval in PostgreSQL's units.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Parts {
    months: i32,
    days: i32,
    micros: i64,
}

impl Parts {
    fn of(interval: IntervalMonthDayNano) -> Self {
        Self { months: interval.months, days: interval.days, micros: interval.nanoseconds / 1_000 }
    }
    fn interval(self) -> Outcome<IntervalMonthDayNano> {
        let nanos = self.micros.checked_mul(1_000).ok_or_else(out_of_range)?;
        Ok(IntervalMonthDayNano::new(self.months, self.days, nanos))
    }

    /// Whole days out of the time.
    fn justify_hours(mut self) -> Option<Self> {
        self.days = self.days.checked_add(i32::try_from(self.micros / MICROS_PER_DAY).ok()?)?;
        self.micros %= MICROS_PER_DAY;
        if self.days > 0 && self.micros < 0 {
            (self.days, self.micros) = (self.days - 1, self.micros + MICROS_PER_DAY);
        } else if self.days < 0 && self.micros > 0 {
            (self.days, self.micros) = (self.days + 1, self.micros - MICROS_PER_DAY);
        }
        Some(self)
    }
    /// Whole months of thirty days out of the days.
    fn justify_days(mut self) -> Option<Self> {
        self.months = self.months.checked_add(self.days / DAYS_PER_MONTH)?;
        self.days %= DAYS_PER_MONTH;
        if self.months > 0 && self.days < 0 {
            (self.months, self.days) = (self.months - 1, self.days + DAYS_PER_MONTH);
        } else if self.months < 0 && self.days > 0 {
            (self.months, self.days) = (self.months + 1, self.days - DAYS_PER_MONTH);
        }
        Some(self)
    }
    /// Both, and one sign for all.
    fn justify_interval(mut self) -> Option<Self> {
        // Before the days come in from the time where they could only overflow together.
        if (self.days > 0) == (self.micros > 0) {
            self.months = self.months.checked_add(self.days / DAYS_PER_MONTH)?;
            self.days %= DAYS_PER_MONTH;
        }
        self.days = self.days.checked_add(i32::try_from(self.micros / MICROS_PER_DAY).ok()?)?;
        self.micros %= MICROS_PER_DAY;
        self.months = self.months.checked_add(self.days / DAYS_PER_MONTH)?;
        self.days %= DAYS_PER_MONTH;
        if self.months > 0 && (self.days < 0 || (self.days == 0 && self.micros < 0)) {
            (self.months, self.days) = (self.months - 1, self.days + DAYS_PER_MONTH);
        } else if self.months < 0 && (self.days > 0 || (self.days == 0 && self.micros > 0)) {
            (self.months, self.days) = (self.months + 1, self.days - DAYS_PER_MONTH);
        }
        if self.days > 0 && self.micros < 0 {
            (self.days, self.micros) = (self.days - 1, self.micros + MICROS_PER_DAY);
        } else if self.days < 0 && self.micros > 0 {
            (self.days, self.micros) = (self.days + 1, self.micros - MICROS_PER_DAY);
        }
        Some(self)
    }

    /// Every part times (or over) a number, and what is left of months as days, of days as time.
    fn scaled(self, scale: impl Fn(f64) -> f64) -> Option<Self> {
        let whole = |value: f64| {
            (value.is_finite() && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&value)).then_some(value as i32)
        };
        // To microseconds, where the product of floats has more digits.
        let rounded = |value: f64| (value * 1e6).round_ties_even() / 1e6;
        let (of_months, of_days) = (scale(self.months.into()), scale(self.days.into()));
        let (months, mut days) = (whole(of_months)?, whole(of_days)?);
        let rest_days = rounded((of_months - f64::from(months)) * f64::from(DAYS_PER_MONTH));
        let mut seconds = rounded((of_days - f64::from(days) + rest_days - rest_days.trunc()) * SECONDS_PER_DAY);
        if seconds.abs() >= SECONDS_PER_DAY {
            let more = (seconds / SECONDS_PER_DAY).trunc();
            days = days.checked_add(more as i32)?;
            seconds -= more * SECONDS_PER_DAY;
        }
        days = days.checked_add(rest_days as i32)?;
        let micros = (scale(self.micros as f64) + seconds * 1e6).round_ties_even();
        (micros.is_finite() && micros.abs() < 9.2e18).then_some(Self { months, days, micros: micros as i64 })
    }
}

fn intervals(array: &ArrayRef) -> &IntervalMonthDayNanoArray {
    array.as_primitive::<IntervalMonthDayNanoType>()
}

/// Applies `f` to each interval.
fn each(array: &ArrayRef, f: impl Fn(Parts) -> Option<Parts>) -> Outcome<ArrayRef> {
    let result = intervals(array).try_unary::<_, IntervalMonthDayNanoType, SqlError>(|interval| {
        f(Parts::of(interval)).ok_or_else(out_of_range)?.interval()
    });
    Ok(Arc::new(result?))
}

/// Applies `f` to intervals and numbers.
fn scale(args: &[ArrayRef], f: impl Fn(Parts, f64) -> Outcome<Parts>) -> Outcome<ArrayRef> {
    let numbers: &Float64Array = args[1].as_primitive::<Float64Type>();
    let scaled = |(interval, number): (Option<IntervalMonthDayNano>, Option<f64>)| match (interval, number) {
        (Some(interval), Some(number)) => f(Parts::of(interval), number)?.interval().map(Some),
        _ => Ok(None),
    };
    let result: Outcome<IntervalMonthDayNanoArray> = intervals(&args[0]).iter().zip(numbers).map(scaled).collect();
    Ok(Arc::new(result?))
}

fn one_interval(given: &[DataType]) -> Option<Types> {
    match given {
        [interval] if is_interval(interval) || interval.is_null() || crate::uuids::is_text(interval) => {
            Some((vec![INTERVAL], INTERVAL))
        }
        _ => None,
    }
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
/// The same with the number first, under a name of its own, as the names of columns are made of names of functions.
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
            0.0 => Err(SqlError::new("22012", "division by zero")),
            _ => parts.scaled(|part| part / divisor).ok_or_else(out_of_range),
        })
    },
};

pub(super) static DEFINITIONS: &[Definition] = &[
    Definition { name: "justify_days", types: one_interval, body: |args| each(&args[0], Parts::justify_days) },
    Definition { name: "justify_hours", types: one_interval, body: |args| each(&args[0], Parts::justify_hours) },
    Definition { name: "justify_interval", types: one_interval, body: |args| each(&args[0], Parts::justify_interval) },
    Definition {
        name: "make_interval",
        types: |given| {
            let all = given.iter().all(|argument| argument.is_numeric() || argument.is_null());
            let mut types = vec![DataType::Int32; 6];
            types.push(DataType::Float64);
            (given.len() == PARTS.len() && all).then_some((types, INTERVAL))
        },
        body: make_interval,
    },
];

/// The arguments of make_interval, which may be named.
const PARTS: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];

/// A call of make_interval with all of its arguments in their order, of one that names them or leaves some out. None if it names others, or one twice.
pub(crate) fn positional(function: &Function) -> Option<AstExpr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let mut values: [Option<&AstExpr>; PARTS.len()] = [None; PARTS.len()];
    let unnamed = |argument: &FunctionArg| matches!(argument, FunctionArg::Unnamed(_));
    if list.args.len() == PARTS.len() && list.args.iter().all(unnamed) {
        return None;
    }
    for (i, argument) in list.args.iter().enumerate() {
        let (at, value) = match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => (i, value),
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
                let name = crate::session::fold(name);
                (PARTS.iter().position(|part| *part == name)?, value)
            }
            FunctionArg::ExprNamed { name: AstExpr::Identifier(name), arg: FunctionArgExpr::Expr(value), .. } => {
                let name = crate::session::fold(name);
                (PARTS.iter().position(|part| *part == name)?, value)
            }
            _ => return None,
        };
        if values.get_mut(at)?.replace(value).is_some() {
            return None;
        }
    }
    let mut call = function.clone();
    let zero = crate::ddl::parse_expression("0").ok()?;
    if let FunctionArguments::List(list) = &mut call.args {
        let value = |value: Option<&AstExpr>| value.unwrap_or(&zero).clone();
        list.args = values.into_iter().map(|v| FunctionArg::Unnamed(FunctionArgExpr::Expr(value(v)))).collect();
    }
    Some(AstExpr::Function(call))
}

fn make_interval(args: &[ArrayRef]) -> Outcome<ArrayRef> {
    let numbers: Vec<_> = args[..6].iter().map(|array| array.as_primitive::<Int32Type>()).collect();
    let seconds = args[6].as_primitive::<Float64Type>();
    let one = |row: usize| -> Outcome<IntervalMonthDayNano> {
        let [years, months, weeks, days, hours, minutes] = std::array::from_fn(|i| numbers[i].value(row));
        let parts = || {
            let months = years.checked_mul(12)?.checked_add(months)?;
            let days = weeks.checked_mul(7)?.checked_add(days)?;
            let seconds = (seconds.value(row) * 1e6).round_ties_even();
            let seconds = (seconds.is_finite() && seconds.abs() < 9.2e18).then_some(seconds as i64)?;
            let minutes = i64::from(hours) * 60 + i64::from(minutes);
            let micros = minutes.checked_mul(60 * MICROS_PER_SECOND)?.checked_add(seconds)?;
            Some(Parts { months, days, micros })
        };
        parts().ok_or_else(out_of_range)?.interval()
    };
    let rows = 0..seconds.len();
    let result: Outcome<IntervalMonthDayNanoArray> =
        rows.map(|row| args.iter().all(|a| a.is_valid(row)).then(|| one(row)).transpose()).collect();
    Ok(Arc::new(result?))
}

fn days_of_month(year: i32, month: i32) -> i32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// From `earlier` to `later` in years, months, days and time, as one would count on a calendar.
fn age(later: NaiveDateTime, earlier: NaiveDateTime) -> Parts {
    let negative = later < earlier;
    // Counted from the earlier to the later; the month whose days are borrowed is that of the second argument.
    let (to, from) = if negative { (earlier, later) } else { (later, earlier) };
    let of_day = |time: NaiveDateTime| {
        i64::from(time.num_seconds_from_midnight()) * MICROS_PER_SECOND + i64::from(time.nanosecond() / 1_000)
    };
    let mut micros = of_day(to) - of_day(from);
    let mut days = to.day() as i32 - from.day() as i32;
    let mut months = (to.year() - from.year()) * 12 + to.month() as i32 - from.month() as i32;
    if micros < 0 {
        micros += MICROS_PER_DAY;
        days -= 1;
    }
    // The month of the earlier time has always enough days.
    while days < 0 {
        days += days_of_month(from.year(), from.month() as i32);
        months -= 1;
    }
    let parts = Parts { months, days, micros };
    if negative { Parts { months: -months, days: -days, micros: -micros } } else { parts }
}

/// The ages of times, as intervals.
pub(super) fn ages(later: &TimestampMicrosecondArray, earlier: &TimestampMicrosecondArray) -> Outcome<ArrayRef> {
    let time = |array: &PrimitiveArray<TimestampMicrosecondType>, row| {
        array.value_as_datetime(row).ok_or_else(|| SqlError::new("22008", "timestamp out of range"))
    };
    let one = |row: usize| match later.is_valid(row) && earlier.is_valid(row) {
        true => age(time(later, row)?, time(earlier, row)?).interval().map(Some),
        false => Ok(None),
    };
    let result: Outcome<IntervalMonthDayNanoArray> = (0..later.len()).map(one).collect();
    Ok(Arc::new(result?))
}

static TIMES_FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new((&TIMES).into()));
static TIMES_AFTER_FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new((&TIMES_AFTER).into()));
static OVER_FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new((&OVER).into()));

/// A difference of two times as an interval of days and a time.
static OF_DURATION: Definition = Definition {
    name: "interval_of",
    types: |given| {
        let micros = DataType::Duration(TimeUnit::Microsecond);
        matches!(given, [DataType::Duration(_)]).then(|| (vec![micros], INTERVAL))
    },
    body: |args| {
        let interval = |micros: i64| -> Outcome<IntervalMonthDayNano> {
            let parts = Parts { months: 0, days: 0, micros }.justify_hours();
            parts.ok_or_else(out_of_range)?.interval()
        };
        let durations = args[0].as_primitive::<DurationMicrosecondType>();
        Ok(Arc::new(durations.try_unary::<_, IntervalMonthDayNanoType, SqlError>(interval)?))
    },
};
static OF_DURATION_FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new((&OF_DURATION).into()));

/// The length of an interval in microseconds, of months of thirty days, by which intervals are compared.
static LENGTH: Definition = Definition {
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

/// A plan whose rows have intervals where they had differences of times, which are of a type that PostgreSQL has not.
pub(crate) fn of_durations(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !plan.schema().fields().iter().any(|field| matches!(field.data_type(), DataType::Duration(_))) {
        return Ok(plan);
    }
    let column = |(qualifier, field): (Option<&TableReference>, &FieldRef)| {
        let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
        match field.data_type() {
            DataType::Duration(_) => {
                OF_DURATION_FUNCTION.call(vec![column]).alias_qualified(qualifier.cloned(), field.name())
            }
            _ => column,
        }
    };
    let columns: Vec<Expr> = plan.schema().iter().map(column).collect();
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}

/// `INTERVAL '1 day 02:03:04'`, of which the planner knows the parts only, as a cast; none for what it knows.
pub(crate) fn as_cast(interval: &Interval) -> Option<AstExpr> {
    let AstExpr::Value(value) = &*interval.value else { return None };
    let Value::SingleQuotedString(text) = &value.value else { return None };
    if interval.leading_field.is_some() || !text.contains(':') {
        return None;
    }
    crate::wire::interval(text)?;
    Some(AstExpr::Cast {
        kind: CastKind::Cast,
        expr: interval.value.clone(),
        data_type: AstType::Interval { fields: None, precision: None },
        array: false,
        format: None,
    })
}

/// Plans `interval * number`, `number * interval`, `interval / number`, and comparisons of intervals, of which `36 hours` and `1 day 12 hours` are equal.
#[derive(Debug)]
pub(crate) struct IntervalArithmetic;

/// What an operand is to an interval.
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

fn is_constant_text(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(value, _) if crate::uuids::is_text(&value.data_type()))
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

impl ExprPlanner for IntervalArithmetic {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let RawBinaryExpr { op, left, right } = expr;
        use BinaryOperator::{Divide, Eq, Gt, GtEq, Lt, LtEq, Multiply, NotEq};
        if !matches!(op, Multiply | Divide | Eq | NotEq | Lt | LtEq | Gt | GtEq) {
            return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }));
        }
        if !matches!(op, Multiply | Divide) {
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
            let (left, right) = if both { (length(left), length(right)) } else { (left, right) };
            return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }));
        }
        let planned = match (&op, operand(&left, schema), operand(&right, schema)) {
            (Multiply, Operand::Interval, Operand::Number) => TIMES_FUNCTION.call(vec![left, as_number(right)]),
            (Multiply, Operand::Number, Operand::Interval) => TIMES_AFTER_FUNCTION.call(vec![as_number(left), right]),
            (Divide, Operand::Interval, Operand::Number) => OVER_FUNCTION.call(vec![left, as_number(right)]),
            _ => return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right })),
        };
        Ok(PlannerResult::Planned(planned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(months: i32, days: i32, micros: i64) -> Parts {
        Parts { months, days, micros }
    }

    #[test]
    fn what_is_left_of_a_part_goes_down() {
        assert_eq!(parts(1, 0, 0).scaled(|part| part * 1.5), Some(parts(1, 15, 0)));
        assert_eq!(parts(0, 1, 0).scaled(|part| part / 2.0), Some(parts(0, 0, MICROS_PER_DAY / 2)));
        assert_eq!(parts(1, 0, 0).scaled(|part| part * f64::NAN), None);
        assert_eq!(parts(i32::MAX, 0, 0).scaled(|part| part * 2.0), None);
    }

    #[test]
    fn signs_are_made_one() {
        assert_eq!(parts(1, 0, -3_600_000_000).justify_interval(), Some(parts(0, 29, 82_800_000_000)));
        assert_eq!(parts(0, 35, 0).justify_days(), Some(parts(1, 5, 0)));
        assert_eq!(parts(0, -1, 3_600_000_000).justify_hours(), Some(parts(0, 0, -82_800_000_000)));
        assert_eq!(parts(i32::MAX, 60, 0).justify_days(), None);
    }
}
