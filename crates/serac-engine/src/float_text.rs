//! Floats as texts, as PostgreSQL writes them.

use std::io::Write;

/// Writes a REAL.
pub fn write_real(out: &mut Vec<u8>, value: f32) {
    write_float(out, value.into(), ryu::Buffer::new().format(value), 6);
}

/// Writes a DOUBLE PRECISION.
pub fn write_double(out: &mut Vec<u8>, value: f64) {
    write_float(out, value, ryu::Buffer::new().format(value), 15);
}

/// Room for the digits of a float as `ryu` writes them, with zeros behind them.
const LONGEST_FLOAT: usize = 32;

/// Writes a float as PostgreSQL does: the shortest digits that give the number, and of two that are
/// equally near, the even one. A number that is far from 1 has an exponent. `shortest` has these
/// digits in any form, and `sure` is the number of digits that the type keeps.
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
        let sign = if power < 0 { '-' } else { '+' };
        return write!(out, "e{sign}{:02}", power.abs()).expect("memory takes what is written");
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
