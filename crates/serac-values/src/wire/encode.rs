//! Values as the protocol writes them: as text, in PostgreSQL's own spelling, and in binary form.

use crate::time_style::{DateFormat, DateOrder, IntervalStyle, TimeStyle};
use serac_engine::float_text::{write_double, write_real};
use serac_engine::values::{format_uuid, infinity_of};
use serac_numeric::Numeric;
use serac_storage::{ColumnType, Value};
use std::io::Write;

/// Days and microseconds from 1970-01-01 to 2000-01-01. Arrow counts from the first date,
/// PostgreSQL from the second.
pub(super) const EPOCH_DAYS: i32 = 10_957;
pub(super) const DAY_MICROS: i64 = 86_400_000_000;
pub(super) const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * DAY_MICROS;

/// The prefix of a document's text in binary form.
pub(super) const JSONB_VERSION: u8 = 1;

fn write(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writes to memory succeed");
}

/// The number in a value of an integer or decimal type.
fn integer(value: Value<'_>) -> i128 {
    match value {
        Value::Int16(v) => v.into(),
        Value::Int32(v) => v.into(),
        Value::Int64(v) => v.into(),
        Value::Int128(v) => v,
        other => unreachable!("{other:?} is not a number of a fixed width"),
    }
}

/// Months, days and nanoseconds.
fn interval(value: Value<'_>) -> (i32, i32, i64) {
    let bits = integer(value) as u128;
    (bits as i32, (bits >> 32) as i32, (bits >> 64) as i64)
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
fn civil(days: i64) -> (i64, u32, u32) {
    // Eras of 400 years, which begin in March, so that the leap day is a year's last.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month as u32, day as u32)
}

fn write_date(out: &mut Vec<u8>, days: i64) -> bool {
    let (year, month, day) = civil(days);
    let before_christ = year <= 0;
    let year = if before_christ { 1 - year } else { year };
    write(out, format_args!("{year:04}-{month:02}-{day:02}"));
    before_christ
}
fn write_time(out: &mut Vec<u8>, micros: i64) {
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    write(out, format_args!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60));
    write_fraction(out, micros);
}
/// Microseconds behind a point, without zeros at the end.
fn write_fraction(out: &mut Vec<u8>, micros: i64) {
    if micros > 0 {
        write(out, format_args!(".{micros:06}"));
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
}

/// Writes an interval as PostgreSQL's `interval_out` does in the style "postgres".
fn write_interval(out: &mut Vec<u8>, (months, days, nanos): (i32, i32, i64)) {
    let start = out.len();
    let mut negative = false;
    let mut part = |out: &mut Vec<u8>, count: i32, unit: &str| {
        if count != 0 {
            let space = if out.len() > start { " " } else { "" };
            // Behind a negative part, a positive one has its sign.
            let sign = if negative && count > 0 { "+" } else { "" };
            let plural = if count == 1 { "" } else { "s" };
            write(out, format_args!("{space}{sign}{count} {unit}{plural}"));
            negative = count < 0;
        }
    };
    part(out, months / 12, "year");
    part(out, months % 12, "mon");
    part(out, days, "day");
    let micros = nanos / 1_000;
    if micros != 0 || out.len() == start {
        let space = if out.len() > start { " " } else { "" };
        let sign = if micros < 0 {
            "-"
        } else if negative {
            "+"
        } else {
            ""
        };
        write(out, format_args!("{space}{sign}"));
        write_time(out, micros.saturating_abs());
    }
}

/// An interval's parts, with counts that have a common sign.
struct IntervalFields {
    years: i32,
    months: i32,
    days: i32,
    hours: i64,
    minutes: i64,
    seconds: i64,
    micros: i64,
}

impl IntervalFields {
    fn of((months, days, nanos): (i32, i32, i64)) -> Self {
        let micros = nanos / 1_000;
        let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
        let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        Self { years: months / 12, months: months % 12, days, hours, minutes, seconds, micros }
    }

    fn has_time(&self) -> bool {
        (self.hours, self.minutes, self.seconds, self.micros) != (0, 0, 0, 0)
    }

    /// Hours, minutes and seconds without their sign.
    fn write_clock(&self, out: &mut Vec<u8>) {
        write(out, format_args!("{}:{:02}:{:02}", self.hours.abs(), self.minutes.abs(), self.seconds.abs()));
        write_fraction(out, self.micros.abs());
    }

    /// Seconds with a fraction, and a sign if `is_signed`.
    fn write_seconds(&self, out: &mut Vec<u8>, is_signed: bool) {
        let sign = if is_signed && (self.seconds < 0 || self.micros < 0) { "-" } else { "" };
        write(out, format_args!("{sign}{}", self.seconds.abs()));
        write_fraction(out, self.micros.abs());
    }

    /// `@ 1 year 2 mons ago`. The first part tells the sign of all.
    fn write_verbose(&self, out: &mut Vec<u8>) {
        let (mut is_first, mut is_before) = (true, false);
        out.push(b'@');
        let mut sign = |count: i64| {
            if std::mem::take(&mut is_first) {
                is_before = count < 0;
                return count.abs();
            }
            if is_before { -count } else { count }
        };
        let parts = [
            (i64::from(self.years), "year"),
            (self.months.into(), "mon"),
            (self.days.into(), "day"),
            (self.hours, "hour"),
            (self.minutes, "min"),
        ];
        for (count, unit) in parts.into_iter().filter(|(count, _)| *count != 0) {
            let count = sign(count);
            write(out, format_args!(" {count} {unit}{}", if count == 1 { "" } else { "s" }));
        }
        if (self.seconds, self.micros) != (0, 0) {
            let signum = sign(if self.seconds < 0 || self.micros < 0 { -1 } else { 1 });
            out.extend_from_slice(if signum < 0 { b" -" } else { b" " });
            self.write_seconds(out, false);
            let is_one = self.seconds.abs() == 1 && self.micros == 0;
            out.extend_from_slice(if is_one { b" sec" } else { b" secs" });
        }
        if is_first {
            out.extend_from_slice(b" 0");
        }
        if is_before {
            out.extend_from_slice(b" ago");
        }
    }

    /// `1-2`, `3 4:05:06`, `+1-2 +3 +4:05:06`: the form of SQL's standard if it can hold the
    /// interval.
    fn write_standard(&self, out: &mut Vec<u8>) {
        let days = i64::from(self.days);
        let counts = [self.years.into(), self.months.into(), days, self.hours, self.minutes, self.seconds, self.micros];
        let (has_negative, has_positive) = (counts.iter().any(|n| *n < 0), counts.iter().any(|n| *n > 0));
        let (has_months, has_days) = ((self.years, self.months) != (0, 0), self.days != 0);
        if !has_negative && !has_positive {
            return out.push(b'0');
        }
        let is_standard = !(has_negative && has_positive) && !(has_months && (has_days || self.has_time()));
        let (years, months) = (self.years.unsigned_abs(), self.months.unsigned_abs());
        if !is_standard {
            let sign = |is_negative: bool| if is_negative { '-' } else { '+' };
            let of_months = sign(self.years < 0 || self.months < 0);
            let (of_days, days) = (sign(days < 0), days.abs());
            let of_time = sign([self.hours, self.minutes, self.seconds, self.micros].iter().any(|n| *n < 0));
            write(out, format_args!("{of_months}{years}-{months} {of_days}{days} {of_time}"));
            return self.write_clock(out);
        }
        if has_negative {
            out.push(b'-');
        }
        if has_months {
            return write(out, format_args!("{years}-{months}"));
        }
        if has_days {
            write(out, format_args!("{} ", days.abs()));
        }
        self.write_clock(out);
    }

    /// `P1Y2M3DT4H5M6S`.
    fn write_iso(&self, out: &mut Vec<u8>) {
        let part = |out: &mut Vec<u8>, count: i64, unit: char| {
            if count != 0 {
                write(out, format_args!("{count}{unit}"));
            }
        };
        let start = out.len();
        out.push(b'P');
        part(out, self.years.into(), 'Y');
        part(out, self.months.into(), 'M');
        part(out, self.days.into(), 'D');
        if self.has_time() {
            out.push(b'T');
            part(out, self.hours, 'H');
            part(out, self.minutes, 'M');
            if (self.seconds, self.micros) != (0, 0) {
                self.write_seconds(out, true);
                out.push(b'S');
            }
        } else if out.len() == start + 1 {
            out.extend_from_slice(b"T0S");
        }
    }
}

/// A date in a style; returns whether it is before the first year.
fn write_styled_date(out: &mut Vec<u8>, days: i64, style: &TimeStyle) -> bool {
    let (year, month, day) = civil(days);
    let before_christ = year <= 0;
    let year = if before_christ { 1 - year } else { year };
    let (first, second) = if style.order == DateOrder::Dmy { (day, month) } else { (month, day) };
    match style.format {
        DateFormat::Iso => write(out, format_args!("{year:04}-{month:02}-{day:02}")),
        DateFormat::Sql => write(out, format_args!("{first:02}/{second:02}/{year:04}")),
        DateFormat::Postgres => write(out, format_args!("{first:02}-{second:02}-{year:04}")),
        DateFormat::German => write(out, format_args!("{day:02}.{month:02}.{year:04}")),
    }
    before_christ
}

/// The amount by which clocks are ahead: `+02`, `-03:30`.
fn write_offset(out: &mut Vec<u8>, seconds: i64, with_minutes: bool) {
    let (sign, away) = (if seconds < 0 { '-' } else { '+' }, seconds.abs());
    write(out, format_args!("{sign}{:02}", away / 3_600));
    if with_minutes || away % 3_600 != 0 {
        write(out, format_args!(":{:02}", away / 60 % 60));
    }
    if away % 60 != 0 {
        write(out, format_args!(":{:02}", away % 60));
    }
}

/// Writes a time in a style. A time with a zone is UTC, and is shown in the style's zone.
fn write_styled_time(out: &mut Vec<u8>, micros: i64, has_zone: bool, style: &TimeStyle) {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let reading = has_zone.then(|| style.zone.reading(micros));
    let ahead = reading.as_ref().map_or(0, |reading| reading.seconds * 1_000_000);
    let local = micros.saturating_add(ahead);
    let (days, time) = (local.div_euclid(DAY_MICROS), local.rem_euclid(DAY_MICROS));
    let before_christ = if style.format == DateFormat::Postgres {
        let (year, month, day) = civil(days);
        let (name, month) = (DAYS[days.rem_euclid(7) as usize], MONTHS[month as usize - 1]);
        match style.order {
            DateOrder::Dmy => write(out, format_args!("{name} {day:02} {month} ")),
            _ => write(out, format_args!("{name} {month} {day:02} ")),
        }
        write_time(out, time);
        let before_christ = year <= 0;
        write(out, format_args!(" {:04}", if before_christ { 1 - year } else { year }));
        before_christ
    } else {
        let before_christ = write_styled_date(out, days, style);
        out.push(b' ');
        write_time(out, time);
        before_christ
    };
    match reading {
        Some(reading) if style.format == DateFormat::Iso => write_offset(out, reading.seconds, false),
        Some(reading) => write(out, format_args!(" {}", reading.abbreviation)),
        None => {}
    }
    if before_christ {
        out.extend_from_slice(b" BC");
    }
}

/// Writes the text of a value that is not NULL, in the form that a session's settings ask for.
pub fn write_styled_text(out: &mut Vec<u8>, value: Value<'_>, column_type: ColumnType, style: &TimeStyle) {
    match (column_type, value) {
        _ if let Some(infinity) = infinity_of(value, column_type) => out.extend_from_slice(infinity.name().as_bytes()),
        (ColumnType::Date, value) => {
            if write_styled_date(out, integer(value) as i64, style) {
                out.extend_from_slice(b" BC");
            }
        }
        (ColumnType::Timestamp { utc }, value) => write_styled_time(out, integer(value) as i64, utc, style),
        (ColumnType::Interval, value) => {
            let parts = interval(value);
            match style.intervals {
                IntervalStyle::Postgres => write_interval(out, parts),
                IntervalStyle::PostgresVerbose => IntervalFields::of(parts).write_verbose(out),
                IntervalStyle::SqlStandard => IntervalFields::of(parts).write_standard(out),
                IntervalStyle::Iso8601 => IntervalFields::of(parts).write_iso(out),
            }
        }
        (column_type, value) => write_text(out, value, column_type),
    }
}

/// Writes a date or a time in the form of documents, for any style: `2020-12-31T10:00:00+00:00` in
/// the style's zone. Other values are written as in results.
pub fn write_document_text(out: &mut Vec<u8>, value: Value<'_>, column_type: ColumnType, style: &TimeStyle) {
    let iso = |has_zone: bool, micros: i64, out: &mut Vec<u8>| {
        let ahead = if has_zone { style.zone.reading(micros).seconds } else { 0 };
        let local = micros.saturating_add(ahead * 1_000_000);
        let before_christ = write_date(out, local.div_euclid(DAY_MICROS));
        out.push(b'T');
        write_time(out, local.rem_euclid(DAY_MICROS));
        if has_zone {
            write_offset(out, ahead, true);
        }
        if before_christ {
            out.extend_from_slice(b" BC");
        }
    };
    match (column_type, value) {
        (ColumnType::Date, value) => write_text(out, value, ColumnType::Date),
        _ if infinity_of(value, column_type).is_some() => write_text(out, value, column_type),
        (ColumnType::Timestamp { utc }, value) => iso(utc, integer(value) as i64, out),
        (column_type, value) => write_styled_text(out, value, column_type, style),
    }
}

fn write_decimal(out: &mut Vec<u8>, unscaled: i128, scale: usize) {
    let sign = if unscaled < 0 { "-" } else { "" };
    let digits = unscaled.unsigned_abs();
    if scale == 0 {
        return write(out, format_args!("{sign}{digits}"));
    }
    let unit = 10u128.pow(scale as u32);
    write(out, format_args!("{sign}{}.{:0scale$}", digits / unit, digits % unit));
}

/// Writes the text of a value that is not NULL.
pub fn write_text(out: &mut Vec<u8>, value: Value<'_>, column_type: ColumnType) {
    match (column_type, value) {
        (_, Value::Bool(value)) => out.push(if value { b't' } else { b'f' }),
        (_, Value::Float32(value)) => write_real(out, value),
        (_, Value::Float64(value)) => write_double(out, value),
        (ColumnType::Binary, Value::Bytes(bytes)) => {
            out.extend_from_slice(b"\\x");
            bytes.iter().for_each(|byte| write(out, format_args!("{byte:02x}")));
        }
        (ColumnType::Numeric, Value::Bytes(stored)) => match Numeric::of_stored(stored) {
            Ok(number) => write(out, format_args!("{number}")),
            Err(error) => write(out, format_args!("{error}")),
        },
        (_, Value::Bytes(text)) => out.extend_from_slice(text),
        (ColumnType::Decimal { scale, .. }, value) => write_decimal(out, integer(value), scale.max(0) as usize),
        _ if let Some(infinity) = infinity_of(value, column_type) => out.extend_from_slice(infinity.name().as_bytes()),
        (ColumnType::Date, value) => {
            if write_date(out, integer(value) as i64) {
                out.extend_from_slice(b" BC");
            }
        }
        (ColumnType::Time, value) => write_time(out, integer(value) as i64),
        (ColumnType::Timestamp { utc }, value) => {
            let micros = integer(value) as i64;
            let before_christ = write_date(out, micros.div_euclid(DAY_MICROS));
            out.push(b' ');
            write_time(out, micros.rem_euclid(DAY_MICROS));
            if utc {
                out.extend_from_slice(b"+00");
            }
            if before_christ {
                out.extend_from_slice(b" BC");
            }
        }
        (ColumnType::Interval, value) => write_interval(out, interval(value)),
        (ColumnType::Uuid, value) => out.extend_from_slice(format_uuid(&integer(value).to_le_bytes()).as_bytes()),
        (_, value) => {
            let mut digits = itoa::Buffer::new();
            out.extend_from_slice(digits.format(integer(value) as i64).as_bytes());
        }
    }
}

/// Digits to the base of 10,000.
fn put_numeric(out: &mut Vec<u8>, unscaled: i128, scale: usize) {
    let mut groups = Vec::new();
    // The point is to lie between two groups.
    let pad = (4 - scale % 4) % 4;
    let mut rest = unscaled.unsigned_abs();
    let mut weight = -1 - ((scale + pad) / 4) as i32;
    let mut digits = 10_000 / 10u128.pow(pad as u32);
    let mut shift = 10u128.pow(pad as u32);
    while rest > 0 {
        groups.push(((rest % digits) * shift) as i16);
        rest /= digits;
        (digits, shift) = (10_000, 1);
        weight += 1;
    }
    groups.reverse();
    // The last group stands for the smallest digits.
    while groups.last() == Some(&0) {
        groups.pop();
    }
    let weight = if groups.is_empty() { 0 } else { weight };
    let sign: u16 = if unscaled < 0 { 0x4000 } else { 0 };
    out.extend_from_slice(&(groups.len() as i16).to_be_bytes());
    out.extend_from_slice(&(weight as i16).to_be_bytes());
    out.extend_from_slice(&sign.to_be_bytes());
    out.extend_from_slice(&(scale as i16).to_be_bytes());
    groups.iter().for_each(|group| out.extend_from_slice(&group.to_be_bytes()));
}

/// Writes the binary form of a value that is not NULL.
pub fn write_binary(out: &mut Vec<u8>, value: Value<'_>, column_type: ColumnType) {
    match (column_type, value) {
        (_, Value::Bool(value)) => out.push(value.into()),
        (_, Value::Float32(value)) => out.extend_from_slice(&value.to_be_bytes()),
        (_, Value::Float64(value)) => out.extend_from_slice(&value.to_be_bytes()),
        (ColumnType::Json, Value::Bytes(text)) => {
            out.push(JSONB_VERSION);
            out.extend_from_slice(text);
        }
        // The engine keeps no other bytes in such a column.
        (ColumnType::Numeric, Value::Bytes(stored)) => {
            Numeric::of_stored(stored).unwrap_or(Numeric::NaN).write_wire(out);
        }
        (_, Value::Bytes(bytes)) => out.extend_from_slice(bytes),
        (ColumnType::Decimal { scale, .. }, value) => put_numeric(out, integer(value), scale.max(0) as usize),
        // PostgreSQL's infinite times are those of the same bits, too.
        (ColumnType::Date, value) if infinity_of(value, column_type).is_none() => {
            out.extend_from_slice(&(integer(value) as i32).saturating_sub(EPOCH_DAYS).to_be_bytes());
        }
        (ColumnType::Timestamp { .. }, value) if infinity_of(value, column_type).is_none() => {
            out.extend_from_slice(&(integer(value) as i64).saturating_sub(EPOCH_MICROS).to_be_bytes());
        }
        (ColumnType::Interval, value) => {
            let (months, days, nanos) = interval(value);
            out.extend_from_slice(&(nanos / 1_000).to_be_bytes());
            out.extend_from_slice(&days.to_be_bytes());
            out.extend_from_slice(&months.to_be_bytes());
        }
        (ColumnType::Uuid, value) => out.extend_from_slice(&integer(value).to_le_bytes()),
        (_, Value::Int16(value)) => out.extend_from_slice(&value.to_be_bytes()),
        (_, Value::Int32(value)) => out.extend_from_slice(&value.to_be_bytes()),
        (_, Value::Int64(value)) => out.extend_from_slice(&value.to_be_bytes()),
        (_, value) => out.extend_from_slice(&integer(value).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: Value<'_>, column_type: ColumnType) -> String {
        let mut out = Vec::new();
        write_text(&mut out, value, column_type);
        String::from_utf8(out).unwrap()
    }

    /// As PostgreSQL 15 writes them.
    #[test]
    fn texts_follow_the_settings() {
        use crate::time_zones::Zone;
        let shown = |style: &TimeStyle, value: Value<'_>, column_type: ColumnType| {
            let mut out = Vec::new();
            write_styled_text(&mut out, value, column_type, style);
            String::from_utf8(out).unwrap()
        };
        let zone = Zone::of_full_name("America/New_York").unwrap();
        // 2020-07-01 10:00:00.5 in UTC.
        let time = Value::Int64(1_593_597_600_500_000);
        for (format, order, date, of_time, with_zone) in [
            (DateFormat::Iso, DateOrder::Dmy, "2020-07-01", "2020-07-01 10:00:00.5", "2020-07-01 06:00:00.5-04"),
            (DateFormat::Sql, DateOrder::Mdy, "07/01/2020", "07/01/2020 10:00:00.5", "07/01/2020 06:00:00.5 EDT"),
            (DateFormat::Sql, DateOrder::Dmy, "01/07/2020", "01/07/2020 10:00:00.5", "01/07/2020 06:00:00.5 EDT"),
            (
                DateFormat::Postgres,
                DateOrder::Mdy,
                "07-01-2020",
                "Wed Jul 01 10:00:00.5 2020",
                "Wed Jul 01 06:00:00.5 2020 EDT",
            ),
            (
                DateFormat::Postgres,
                DateOrder::Dmy,
                "01-07-2020",
                "Wed 01 Jul 10:00:00.5 2020",
                "Wed 01 Jul 06:00:00.5 2020 EDT",
            ),
            (DateFormat::German, DateOrder::Dmy, "01.07.2020", "01.07.2020 10:00:00.5", "01.07.2020 06:00:00.5 EDT"),
        ] {
            let style = TimeStyle { zone: zone.clone(), format, order, ..TimeStyle::default() };
            assert_eq!(shown(&style, Value::Int32(18_444), ColumnType::Date), date);
            assert_eq!(shown(&style, time, ColumnType::Timestamp { utc: false }), of_time);
            assert_eq!(shown(&style, time, ColumnType::Timestamp { utc: true }), with_zone);
        }
        let style = TimeStyle { zone, ..TimeStyle::default() };
        let mut document = Vec::new();
        write_document_text(&mut document, time, ColumnType::Timestamp { utc: true }, &style);
        assert_eq!(document, b"2020-07-01T06:00:00.5-04:00");
        for (months, days, micros, verbose, standard, iso) in [
            (0, 0, 0, "@ 0", "0", "PT0S"),
            (14, 0, 0, "@ 1 year 2 mons", "1-2", "P1Y2M"),
            (-14, 0, 0, "@ 1 year 2 mons ago", "-1-2", "P-1Y-2M"),
            (0, 3, 4_005_000_000, "@ 3 days 1 hour 6 mins 45 secs", "3 1:06:45", "P3DT1H6M45S"),
            (0, -3, -500_000, "@ 3 days 0.5 secs ago", "-3 0:00:00.5", "P-3DT-0.5S"),
            (1, -1, 1_000_000, "@ 1 mon -1 days 1 sec", "+0-1 -1 +0:00:01", "P1M-1DT1S"),
            (-1, 1, -1_000_000, "@ 1 mon -1 days 1 sec ago", "-0-1 +1 -0:00:01", "P-1M1DT-1S"),
            (1, 0, -1_500_000, "@ 1 mon -1.5 secs", "+0-1 +0 -0:00:01.5", "P1MT-1.5S"),
        ] {
            let bits = i128::from(micros * 1_000_i64) << 64 | i128::from(days as u32) << 32 | i128::from(months as u32);
            let of = |intervals| {
                let style = TimeStyle { intervals, ..TimeStyle::default() };
                shown(&style, Value::Int128(bits), ColumnType::Interval)
            };
            assert_eq!(of(IntervalStyle::PostgresVerbose), verbose);
            assert_eq!(of(IntervalStyle::SqlStandard), standard);
            assert_eq!(of(IntervalStyle::Iso8601), iso);
        }
    }

    fn binary(value: Value<'_>, column_type: ColumnType) -> Vec<u8> {
        let mut out = Vec::new();
        write_binary(&mut out, value, column_type);
        out
    }

    fn decimal(precision: u8, scale: i8) -> ColumnType {
        ColumnType::Decimal { precision, scale }
    }

    #[test]
    fn texts_are_postgresqls() {
        let micros = |days: i64, rest: i64| Value::Int64(days * DAY_MICROS + rest);
        let interval = |months: i32, days: i32, micros: i64| {
            let nanos = i128::from(micros) * 1_000;
            let bits = nanos << 64 | i128::from(days as u32) << 32 | i128::from(months as u32);
            text(Value::Int128(bits), ColumnType::Interval)
        };
        assert_eq!(text(Value::Bool(true), ColumnType::Boolean), "t");
        assert_eq!(text(Value::Int64(i64::MIN), ColumnType::Int64), "-9223372036854775808");
        assert_eq!(text(Value::Int64(-5), decimal(12, 2)), "-0.05");
        assert_eq!(text(Value::Int128(12_345), decimal(30, 0)), "12345");
        assert_eq!(text(Value::Float64(0.1), ColumnType::Float64), "0.1");
        assert_eq!(text(Value::Float64(1e15), ColumnType::Float64), "1e+15");
        assert_eq!(text(Value::Float64(1e14), ColumnType::Float64), "100000000000000");
        assert_eq!(text(Value::Float64(-1.5e-7), ColumnType::Float64), "-1.5e-07");
        assert_eq!(text(Value::Float64(f64::NEG_INFINITY), ColumnType::Float64), "-Infinity");
        assert_eq!(text(Value::Float32(1e6), ColumnType::Float32), "1e+06");
        assert_eq!(text(Value::Float32(0.1), ColumnType::Float32), "0.1");
        assert_eq!(text(Value::Float32(f32::NAN), ColumnType::Float32), "NaN");
        assert_eq!(text(Value::Bytes(b"\x00\xff"), ColumnType::Binary), "\\x00ff");
        assert_eq!(text(Value::Int32(0), ColumnType::Date), "1970-01-01");
        assert_eq!(text(Value::Int32(11_016), ColumnType::Date), "2000-02-29");
        assert_eq!(text(Value::Int32(-719_529), ColumnType::Date), "0002-12-31 BC");
        assert_eq!(text(micros(1, 1_500_000), ColumnType::Timestamp { utc: true }), "1970-01-02 00:00:01.5+00");
        assert_eq!(text(Value::Int64(-1), ColumnType::Timestamp { utc: false }), "1969-12-31 23:59:59.999999");
        assert_eq!(text(Value::Int64(3_661_000_010), ColumnType::Time), "01:01:01.00001");
        assert_eq!(interval(14, -3, 1_000_000), "1 year 2 mons -3 days +00:00:01");
        assert_eq!(interval(0, 0, 0), "00:00:00");
        assert_eq!(interval(-1, 0, -90_000_000), "-1 mons -00:01:30");
        let uuid = Value::Int128(i128::from_le_bytes(std::array::from_fn(|i| i as u8)));
        assert_eq!(text(uuid, ColumnType::Uuid), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }

    #[test]
    fn binary_numerics_are_groups_of_four_digits() {
        let numeric = |unscaled: i128, scale: i8| {
            let bytes = binary(Value::Int128(unscaled), decimal(38, scale));
            bytes.chunks(2).map(|pair| i16::from_be_bytes([pair[0], pair[1]])).collect::<Vec<_>>()
        };
        assert_eq!(numeric(0, 2), [0, 0, 0, 2]);
        assert_eq!(numeric(12_345, 2), [2, 0, 0, 2, 123, 4_500]);
        assert_eq!(numeric(-12_345_678, 0), [2, 1, 0x4000, 0, 1_234, 5_678]);
        assert_eq!(numeric(5, 4), [1, -1, 0, 4, 5]);
        assert_eq!(numeric(1, 8), [1, -2, 0, 8, 1]);
        assert_eq!(numeric(100_000_000, 2), [1, 1, 0, 2, 100]);
    }

    #[test]
    fn binary_times_count_from_the_year_2000() {
        assert_eq!(binary(Value::Int32(EPOCH_DAYS), ColumnType::Date), [0; 4]);
        assert_eq!(binary(Value::Int64(EPOCH_MICROS + 1), ColumnType::Timestamp { utc: true }), 1i64.to_be_bytes());
    }

    #[test]
    fn infinite_times_are_words_and_the_ends_of_their_types() {
        let (day, time) = (ColumnType::Date, ColumnType::Timestamp { utc: true });
        assert_eq!(text(Value::Int32(i32::MAX), day), "infinity");
        assert_eq!(text(Value::Int64(i64::MIN), time), "-infinity");
        let zone = crate::time_zones::Zone::of_full_name("America/New_York").unwrap();
        let style = TimeStyle { zone, format: DateFormat::German, ..TimeStyle::default() };
        for write in [write_styled_text, write_document_text] {
            let mut out = Vec::new();
            write(&mut out, Value::Int32(i32::MIN), day, &style);
            write(&mut out, Value::Int64(i64::MAX), time, &style);
            assert_eq!(out, b"-infinityinfinity");
        }
        assert_eq!(binary(Value::Int32(i32::MIN), day), i32::MIN.to_be_bytes());
        assert_eq!(binary(Value::Int64(i64::MAX), time), i64::MAX.to_be_bytes());
        let read = crate::wire::decode::of_binary(&i64::MAX.to_be_bytes(), time).unwrap();
        assert_eq!(read, serac_engine::values::OwnedValue::Fixed(Value::Int64(i64::MAX)));
    }
}
