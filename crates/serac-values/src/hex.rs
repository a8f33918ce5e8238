//! Hexadecimal digits.

use crate::error::{Result, SqlError};

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message)
}

/// Pairs of hexadecimal digits, between which there may be blanks.
///
/// # Errors
/// 22023 for any other character.
pub fn bytes_of_digits(digits: &str) -> Result<Vec<u8>> {
    let is_blank = |c: char| matches!(c, ' ' | '\n' | '\t' | '\r');
    let digit = |c: char| {
        let value = c.to_digit(16).map(|digit| digit as u8);
        value.ok_or_else(|| invalid(format!("invalid hexadecimal digit: \"{c}\"")))
    };
    let (mut bytes, mut rest) = (Vec::with_capacity(digits.len() / 2), digits.chars());
    while let Some(first) = rest.next() {
        if is_blank(first) {
            continue;
        }
        let first = digit(first)?;
        let second = rest.next().ok_or_else(|| invalid("invalid hexadecimal data: odd number of digits"))?;
        bytes.push(first << 4 | digit(second)?);
    }
    Ok(bytes)
}
