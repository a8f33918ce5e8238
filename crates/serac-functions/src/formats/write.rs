//! to_char: from a time to text.

use super::pattern::{Case, Field, Piece};
use chrono::{Datelike, NaiveDateTime, Timelike};

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

/// The time, of a time zone (UTC) or of none, in the words of the pattern.
pub(super) fn write(pieces: &[Piece], time: NaiveDateTime, utc: bool) -> String {
    let mut out = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Field { field, case, bare, ordinal } => {
                write_field(&mut out, *field, *case, *bare, *ordinal, time, utc)
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
    utc: bool,
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
        Field::DayName => return name(DAYS[time.weekday().num_days_from_sunday() as usize], NAME_WIDTH),
        Field::DayAbbreviated => return name(&DAYS[time.weekday().num_days_from_sunday() as usize][..3], 0),
        Field::HalfDay { dots } => return name(&dotted(if time.hour() < 12 { "AM" } else { "PM" }, dots), 0),
        Field::Era { dots } => return name(&dotted(if time.year() > 0 { "AD" } else { "BC" }, dots), 0),
        Field::Zone => return name(if utc { "UTC" } else { "" }, 0),
        Field::ZoneOffset | Field::ZoneHours => return out.push_str("+00"),
        Field::ZoneMinutes => return out.push_str("00"),
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
    // The digits of a fraction are not a number's: zeros at their front mean something.
    let width = if bare && !matches!(field, Field::Fraction(_)) { 0 } else { width };
    out.push_str(&format!("{number:0width$}"));
    if let Some(case) = ordinal {
        out.push_str(&in_case(ordinal_of(number), case));
    }
}
