//! Intervals in PostgreSQL's units: months, days, and microseconds of a time within 292 years
//! either way.

use crate::error::{Result, SqlError};
use datafusion::arrow::array::{ArrayRef, AsArray, IntervalMonthDayNanoArray};
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit};

/// The type of intervals.
pub const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
/// Days of a month that is not known.
pub const DAYS_PER_MONTH: i32 = 30;
const SECONDS_PER_DAY: f64 = 86_400.0;
/// Microseconds of a day.
pub const MICROS_PER_DAY: i64 = 86_400_000_000;

/// The error of an interval that does not exist.
pub fn out_of_range() -> SqlError {
    SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "interval out of range")
}

/// Whether it is an interval, or the difference of two times.
pub fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_) | DataType::Duration(_))
}

/// An interval in PostgreSQL's units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parts {
    /// Months.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Microseconds.
    pub micros: i64,
}

impl Parts {
    /// The parts of an interval; nanoseconds are cut off.
    pub fn of(interval: IntervalMonthDayNano) -> Self {
        Self { months: interval.months, days: interval.days, micros: interval.nanoseconds / 1_000 }
    }

    /// The interval of these parts.
    ///
    /// # Errors
    /// 22008 if its time is out of range.
    pub fn interval(self) -> Result<IntervalMonthDayNano> {
        let nanos = self.micros.checked_mul(1_000).ok_or_else(out_of_range)?;
        Ok(IntervalMonthDayNano::new(self.months, self.days, nanos))
    }

    /// Moves whole days from the time to the days.
    pub fn justify_hours(mut self) -> Option<Self> {
        self.days = self.days.checked_add(i32::try_from(self.micros / MICROS_PER_DAY).ok()?)?;
        self.micros %= MICROS_PER_DAY;
        if self.days > 0 && self.micros < 0 {
            (self.days, self.micros) = (self.days - 1, self.micros + MICROS_PER_DAY);
        } else if self.days < 0 && self.micros > 0 {
            (self.days, self.micros) = (self.days + 1, self.micros - MICROS_PER_DAY);
        }
        Some(self)
    }

    /// Moves whole months of thirty days from the days to the months.
    pub fn justify_days(mut self) -> Option<Self> {
        self.months = self.months.checked_add(self.days / DAYS_PER_MONTH)?;
        self.days %= DAYS_PER_MONTH;
        if self.months > 0 && self.days < 0 {
            (self.months, self.days) = (self.months - 1, self.days + DAYS_PER_MONTH);
        } else if self.months < 0 && self.days > 0 {
            (self.months, self.days) = (self.months + 1, self.days - DAYS_PER_MONTH);
        }
        Some(self)
    }

    /// Does both, and gives all parts one sign.
    pub fn justify_interval(mut self) -> Option<Self> {
        // With one sign, adding days of the time might overflow: whole months are taken first.
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

    /// Every part times (or over) a number, with the fractions of months carried to days, and of
    /// days to time.
    pub fn scaled(self, scale: impl Fn(f64) -> f64) -> Option<Self> {
        let whole = |value: f64| {
            (value.is_finite() && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&value)).then_some(value as i32)
        };
        // Rounded to microseconds, as the product of floats has more digits.
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

/// An array as one of intervals.
///
/// # Panics
/// If it is no array of intervals.
pub fn intervals(array: &ArrayRef) -> &IntervalMonthDayNanoArray {
    array.as_primitive::<IntervalMonthDayNanoType>()
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
