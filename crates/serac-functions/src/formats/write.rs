//! to_char: from a time, or an interval, to text.

use super::pattern::{Case, Field, Piece};
use chrono::{Datelike, NaiveDateTime, Timelike};
use serac_values::SqlError;
use serac_values::intervals::Parts;
use serac_values::time_zones::Reading;

pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// The numbers of months in Roman digits, from the last on, so that none is a prefix of a later
/// one.
pub(super) const ROMAN_MONTHS: [&str; 12] = ["XII", "XI", "X", "IX", "VIII", "VII", "VI", "V", "IV", "III", "II", "I"];
/// Width of the longest of these.
const ROMAN_WIDTH: usize = 4;
/// From Sunday on.
pub(super) const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
/// Width of the longest of both.
const NAME_WIDTH: usize = 9;
/// The Julian day before the first one of the year 1.
pub(super) const JULIAN_DAYS_BEFORE: i32 = 1_721_425;

fn in_case(text: &str, case: Case) -> String {
    match case {
        Case::Upper => text.to_uppercase(),
        Case::Title => text.into(),
        Case::Lower => text.to_lowercase(),
    }
}

fn ordinal_of(number: i64) -> &'static str {
    match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    }
}

/// Year 0 is 1 BC.
fn of_era(year: i32) -> i64 {
    if year > 0 { year.into() } else { 1 - i64::from(year) }
}

/// The time in the words of the pattern. `zone` gives its time zone, if it has one.
pub(super) fn write(pieces: &[Piece], time: NaiveDateTime, zone: &dyn Fn() -> Option<Reading>) -> String {
    let mut out = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) | Piece::Separator(text) => out.push_str(text),
            Piece::Exact => {}
            Piece::Field { field, case, bare, ordinal, word: _ } => {
                write_field(&mut out, *field, *case, *bare, *ordinal, time, zone)
            }
        }
    }
    out
}

fn write_field(
    out: &mut String,
    field: Field,
    case: Case,
    bare: bool,
    ordinal: Option<Case>,
    time: NaiveDateTime,
    zone: &dyn Fn() -> Option<Reading>,
) {
    let mut name = |text: &str, width: usize| {
        let text = in_case(text, case);
        out.push_str(&if bare { text } else { format!("{text:width$}") });
    };
    let dotted = |text: &str, dots: bool| match dots {
        true => text.chars().flat_map(|letter| [letter, '.']).collect(),
        false => text.to_owned(),
    };
    let (number, width): (i64, usize) = match field {
        Field::MonthName => return name(MONTHS[time.month0() as usize], NAME_WIDTH),
        Field::MonthAbbreviated => return name(&MONTHS[time.month0() as usize][..3], 0),
        Field::RomanMonth => return name(ROMAN_MONTHS[11 - time.month0() as usize], ROMAN_WIDTH),
        Field::DayName => return name(DAYS[time.weekday().num_days_from_sunday() as usize], NAME_WIDTH),
        Field::DayAbbreviated => return name(&DAYS[time.weekday().num_days_from_sunday() as usize][..3], 0),
        Field::HalfDay { dots } => return name(&dotted(if time.hour() < 12 { "AM" } else { "PM" }, dots), 0),
        Field::Era { dots } => return name(&dotted(if time.year() > 0 { "AD" } else { "BC" }, dots), 0),
        Field::Zone => return name(&zone().map_or_else(String::new, |reading| reading.abbreviation), 0),
        Field::ZoneOffset | Field::ZoneHours | Field::ZoneMinutes => {
            let seconds = zone().map_or(0, |reading| reading.seconds);
            let (hours, minutes) = (seconds.abs() / 3_600, seconds.abs() / 60 % 60);
            if field != Field::ZoneMinutes {
                out.push_str(&format!("{}{hours:02}", if seconds < 0 { '-' } else { '+' }));
            }
            match field {
                Field::ZoneMinutes => out.push_str(&format!("{minutes:02}")),
                Field::ZoneOffset if minutes != 0 => out.push_str(&format!(":{minutes:02}")),
                _ => {}
            }
            return;
        }
        Field::YearWithComma => {
            let year = of_era(time.year());
            return out.push_str(&format!("{},{:03}", year / 1_000, year % 1_000));
        }
        Field::Year { digits, iso } => {
            let year = of_era(if iso { time.iso_week().year() } else { time.year() });
            let shown = if digits == 4 { year } else { year % 10i64.pow(digits.into()) };
            (shown, digits.into())
        }
        Field::Century => ((of_era(time.year()) + 99) / 100, 2),
        Field::Quarter => (time.quarter().into(), 1),
        Field::Month => (time.month().into(), 2),
        Field::DayOfMonth => (time.day().into(), 2),
        Field::DayOfYear { iso: false } => (time.ordinal().into(), 3),
        Field::DayOfYear { iso: true } => {
            ((time.iso_week().week0() * 7 + time.weekday().number_from_monday()).into(), 3)
        }
        Field::DayOfWeek { iso: false } => ((time.weekday().num_days_from_sunday() + 1).into(), 1),
        Field::DayOfWeek { iso: true } => (time.weekday().number_from_monday().into(), 1),
        Field::WeekOfMonth => ((time.day0() / 7 + 1).into(), 1),
        Field::WeekOfYear { iso: false } => ((time.ordinal0() / 7 + 1).into(), 2),
        Field::WeekOfYear { iso: true } => (time.iso_week().week().into(), 2),
        Field::JulianDay => ((time.num_days_from_ce() + JULIAN_DAYS_BEFORE).into(), 1),
        Field::Hour => (time.hour().into(), 2),
        Field::Hour12 => (time.hour12().1.into(), 2),
        Field::Minute => (time.minute().into(), 2),
        Field::Second => (time.second().into(), 2),
        Field::Fraction(digits) => ((time.nanosecond() / 10u32.pow(9 - u32::from(digits))).into(), digits.into()),
        Field::SecondOfDay => (time.num_seconds_from_midnight().into(), 1),
    };
    write_number(out, field, (number, width), bare, ordinal);
}

fn write_number(out: &mut String, field: Field, (number, width): (i64, usize), bare: bool, ordinal: Option<Case>) {
    // The digits of a fraction are no whole number: leading zeros are significant.
    let width = if bare && !matches!(field, Field::Fraction(_)) { 0 } else { width };
    out.push_str(&format!("{number:0width$}"));
    if let Some(case) = ordinal {
        out.push_str(&in_case(ordinal_of(number), case));
    }
}

/// The interval in the words of the pattern.
///
/// # Errors
/// 22007 for a field that only times have.
pub(super) fn write_interval(pieces: &[Piece], interval: Parts) -> Result<String, SqlError> {
    let mut out = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) | Piece::Separator(text) => out.push_str(text),
            Piece::Exact => {}
            Piece::Field { field, case, bare, ordinal, word: _ } => match field_of_interval(*field, interval)? {
                OfInterval::Nothing => {}
                OfInterval::Written(text) => out.push_str(&text),
                OfInterval::Word(word, width) => {
                    let word = in_case(word, *case);
                    out.push_str(&if *bare { word } else { format!("{word:width$}") });
                }
                OfInterval::Number(number, width) => write_number(&mut out, *field, (number, width), *bare, *ordinal),
            },
        }
    }
    Ok(out)
}

/// The value of an interval's field.
enum OfInterval {
    Nothing,
    Written(String),
    /// With its width.
    Word(&'static str, usize),
    /// With its width.
    Number(i64, usize),
}

fn field_of_interval(field: Field, interval: Parts) -> Result<OfInterval, SqlError> {
    use OfInterval::{Nothing, Number, Word, Written};
    let Parts { months, days, micros } = interval;
    let (years, months, days) = (i64::from(months / 12), i64::from(months % 12), i64::from(days));
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    let hours = seconds / 3_600;
    let day_of_year = (years * 12 + months) * 30 + days;
    // A sign is not among the digits.
    let wide = |digits: usize, sign: i64| if sign < 0 { digits + 1 } else { digits };
    Ok(match field {
        Field::Hour => Number(hours, wide(2, hours)),
        Field::Hour12 => Number(if hours % 12 == 0 { 12 } else { hours % 12 }, wide(2, hours)),
        Field::Minute => Number(seconds / 60 % 60, wide(2, seconds / 60 % 60)),
        Field::Second => Number(seconds % 60, wide(2, seconds % 60)),
        Field::Fraction(digits) => Number(micros / 10i64.pow(6 - u32::from(digits)), digits.into()),
        Field::SecondOfDay => Number(seconds, 1),
        Field::HalfDay { dots } => Word(
            match (hours % 24 >= 12, dots) {
                (false, false) => "AM",
                (false, true) => "A.M.",
                (true, false) => "PM",
                (true, true) => "P.M.",
            },
            0,
        ),
        Field::Month => Number(months, wide(2, months)),
        Field::RomanMonth if months == 0 && years == 0 => Nothing,
        Field::RomanMonth => {
            let at = match months {
                0 if years >= 0 => 0,
                0 => 11,
                ..0 => -(months + 1),
                _ => 12 - months,
            };
            Word(ROMAN_MONTHS[at as usize], ROMAN_WIDTH)
        }
        Field::DayOfMonth => Number(days, 2),
        Field::DayOfYear { iso: false } => Number(day_of_year, 3),
        Field::WeekOfMonth => Number((days - 1) / 7 + 1, 1),
        Field::WeekOfYear { iso: false } => Number((day_of_year - 1) / 7 + 1, 2),
        Field::Quarter if months == 0 => Nothing,
        Field::Quarter => Number((months - 1) / 3 + 1, 1),
        Field::Century => Number(years / 100, wide(2, years / 100)),
        Field::YearWithComma => Written(format!("{},{:03}", years / 1_000, years % 1_000)),
        Field::Year { digits, iso: false } => {
            let shown = if digits == 4 { years } else { years % 10i64.pow(digits.into()) };
            Number(shown, wide(digits.into(), years))
        }
        Field::JulianDay
        | Field::Year { iso: true, .. }
        | Field::DayOfYear { iso: true }
        | Field::WeekOfYear { iso: true } => {
            return Err(SqlError::unsupported("to_char of an interval by weeks or Julian days"));
        }
        _ => {
            return Err(SqlError::new(
                sqlstate::INVALID_DATETIME_FORMAT,
                "invalid format specification for an interval value",
            )
            .explained("Intervals are not tied to specific calendar dates."));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::pattern::parse;
    use super::*;

    /// As PostgreSQL writes them.
    #[test]
    fn intervals_are_written() {
        let write = |months, days, micros, pattern: &str| {
            write_interval(&parse(pattern), Parts { months, days, micros }).unwrap()
        };
        let hour = 3_600_000_000;
        assert_eq!(write(14, 3, 4 * hour + 306_700_000, "YYYY MM DD HH24:MI:SS.MS"), "0001 02 03 04:05:06.700");
        assert_eq!(write(0, 0, 27 * hour, "HH24 HH12"), "27 03");
        assert_eq!(write(0, 0, -5 * hour - 367_080_000, "HH24:MI:SS.US"), "-05:-06:-07.-80000");
        assert_eq!(write(0, 1, -hour, "DD HH24"), "01 -01");
        assert_eq!(write(3, 0, 0, "RM|FMrm|Q"), "III |iii|1");
        assert_eq!(write(0, 400, 15 * hour, "DDD WW W Q CC Y,YYY YYY AM"), "400 58 58  00 0,000 000 PM");
        assert!(write_interval(&parse("Month"), Parts { months: 1, days: 0, micros: 0 }).is_err());
    }
}
