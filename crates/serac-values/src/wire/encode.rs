//! Values as the protocol writes them: as text, in PostgreSQL's own spelling, and in binary form.

use serac_engine::values::format_uuid;
use serac_storage::{ColumnType, Value};
use std::io::Write;

/// Days and microseconds from 1970-01-01, where Arrow counts from, to 2000-01-01, where PostgreSQL does.
pub(super) const EPOCH_DAYS: i32 = 10_957;
pub(super) const DAY_MICROS: i64 = 86_400_000_000;
pub(super) const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * DAY_MICROS;

/// What stands before the text of a document in binary form.
pub(super) const JSONB_VERSION: u8 = 1;

fn write(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("memory takes what is written");
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

/// As `interval_out` does in the style "postgres".
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

fn write_decimal(out: &mut Vec<u8>, unscaled: i128, scale: usize) {
    let sign = if unscaled < 0 { "-" } else { "" };
    let digits = unscaled.unsigned_abs();
    if scale == 0 {
        return write(out, format_args!("{sign}{digits}"));
    }
    let unit = 10u128.pow(scale as u32);
    write(out, format_args!("{sign}{}.{:0scale$}", digits / unit, digits % unit));
}

/// Bytes of the shortest digits of a float, of any form that has no exponent beyond its zeros.
const LONGEST_FLOAT: usize = 32;

/// As PostgreSQL writes them: the shortest digits that say the number, of two that are equally near the
/// even one, with an exponent where it is far from 1. `shortest` has these digits in any form, and
/// `sure` is how many of them the type keeps.
fn write_float(out: &mut Vec<u8>, value: f64, shortest: &str, sure: i32) {
    if value.is_nan() {
        return out.extend_from_slice(b"NaN");
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    if value.is_infinite() {
        return out.extend_from_slice(b"Infinity");
    }
    let shortest = shortest.trim_start_matches('-');
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((shortest, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let (mut buffer, mut length) = ([0; LONGEST_FLOAT], 0);
    for digit in whole.bytes().chain(fraction.bytes()).skip_while(|digit| *digit == b'0') {
        (buffer[length], length) = (digit, length + 1);
    }
    if length == 0 {
        return out.push(b'0');
    }
    let zeros = (whole.len() + fraction.len() - length) as i32;
    while buffer[length - 1] == b'0' {
        length -= 1;
    }
    let digits = &buffer[..length];
    // The power of ten of the first digit.
    let power = exponent.parse::<i32>().expect("a number") + whole.len() as i32 - 1 - zeros;
    if !(-4..sure).contains(&power) {
        out.push(digits[0]);
        if length > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        return write(out, format_args!("e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs()));
    }
    if power < 0 {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + (-power - 1) as usize, b'0');
        return out.extend_from_slice(digits);
    }
    let whole = power as usize + 1;
    if length <= whole {
        out.extend_from_slice(digits);
        return out.resize(out.len() + whole - length, b'0');
    }
    out.extend_from_slice(&digits[..whole]);
    out.push(b'.');
    out.extend_from_slice(&digits[whole..]);
}

/// Writes the text of a value that is not NULL.
pub fn write_text(out: &mut Vec<u8>, value: Value<'_>, column_type: ColumnType) {
    match (column_type, value) {
        (_, Value::Bool(value)) => out.push(if value { b't' } else { b'f' }),
        (_, Value::Float32(value)) => write_float(out, value.into(), ryu::Buffer::new().format(value), 6),
        (_, Value::Float64(value)) => write_float(out, value, ryu::Buffer::new().format(value), 15),
        (ColumnType::Binary, Value::Bytes(bytes)) => {
            out.extend_from_slice(b"\\x");
            bytes.iter().for_each(|byte| write(out, format_args!("{byte:02x}")));
        }
        (_, Value::Bytes(text)) => out.extend_from_slice(text),
        (ColumnType::Decimal { scale, .. }, value) => write_decimal(out, integer(value), scale.max(0) as usize),
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
        (_, Value::Bytes(bytes)) => out.extend_from_slice(bytes),
        (ColumnType::Decimal { scale, .. }, value) => put_numeric(out, integer(value), scale.max(0) as usize),
        (ColumnType::Date, value) => {
            out.extend_from_slice(&(integer(value) as i32).saturating_sub(EPOCH_DAYS).to_be_bytes());
        }
        (ColumnType::Timestamp { .. }, value) => {
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
}
