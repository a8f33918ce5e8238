//! Intervals: justify_days, justify_hours and justify_interval, make_interval, age of two times.
//!
//! An interval has months, days and nanoseconds, of which PostgreSQL's microseconds are used; its time is within 292 years either way.

use super::{Definition, Types};
use crate::error::SqlError;
use chrono::{Datelike, NaiveDateTime, Timelike};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, IntervalMonthDayNanoArray, PrimitiveArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{
    DataType, Float64Type, Int32Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    TimestampMicrosecondType,
};
use datafusion::sql::sqlparser::ast::{Expr as AstExpr, Function, FunctionArg, FunctionArgExpr, FunctionArguments};
use std::sync::Arc;

pub(super) const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
pub(super) const DAYS_PER_MONTH: i32 = 30;
const SECONDS_PER_DAY: f64 = 86_400.0;
pub(super) const MICROS_PER_DAY: i64 = 86_400_000_000;
const MICROS_PER_SECOND: i64 = 1_000_000;

pub(super) type Outcome<T> = std::result::Result<T, SqlError>;

pub(super) fn out_of_range() -> SqlError {
    SqlError::new("22008", "interval out of range")
}

/// Whether it is an interval, or the difference of two times.
pub(super) fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_) | DataType::Duration(_))
}

/// An interval in PostgreSQL's units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Parts {
    pub(super) months: i32,
    pub(super) days: i32,
    pub(super) micros: i64,
}

impl Parts {
    pub(super) fn of(interval: IntervalMonthDayNano) -> Self {
        Self { months: interval.months, days: interval.days, micros: interval.nanoseconds / 1_000 }
    }
    pub(super) fn interval(self) -> Outcome<IntervalMonthDayNano> {
        let nanos = self.micros.checked_mul(1_000).ok_or_else(out_of_range)?;
        Ok(IntervalMonthDayNano::new(self.months, self.days, nanos))
    }

    /// Whole days out of the time.
    pub(super) fn justify_hours(mut self) -> Option<Self> {
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
    pub(super) fn scaled(self, scale: impl Fn(f64) -> f64) -> Option<Self> {
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

pub(super) fn intervals(array: &ArrayRef) -> &IntervalMonthDayNanoArray {
    array.as_primitive::<IntervalMonthDayNanoType>()
}

/// Applies `f` to each interval.
fn each(array: &ArrayRef, f: impl Fn(Parts) -> Option<Parts>) -> Outcome<ArrayRef> {
    let result = intervals(array).try_unary::<_, IntervalMonthDayNanoType, SqlError>(|interval| {
        f(Parts::of(interval)).ok_or_else(out_of_range)?.interval()
    });
    Ok(Arc::new(result?))
}

pub(super) fn one_interval(given: &[DataType]) -> Option<Types> {
    match given {
        [interval] if is_interval(interval) || crate::types::is_text_or_null(interval) => {
            Some((vec![INTERVAL], INTERVAL))
        }
        _ => None,
    }
}
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
