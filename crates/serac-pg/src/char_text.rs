//! Values of the type `"char"`, a single byte, as texts: the byte as a character of ASCII, `\\303`
//! for another, and the empty text for 0.

/// The byte that a text stands for: its first one, unless it is written by its octal digits.
pub fn char_of_text(text: &str) -> u8 {
    match text.as_bytes() {
        [b'\\', digits @ ..] if digits.len() == 3 && digits.iter().all(|digit| matches!(digit, b'0'..=b'7')) => {
            digits.iter().fold(0u8, |byte, digit| (byte << 3) | (digit - b'0'))
        }
        bytes => bytes.first().copied().unwrap_or(0),
    }
}

/// A byte as a text.
pub fn text_of_char(byte: u8) -> String {
    match byte {
        0 => String::new(),
        1..=0x7f => char::from(byte).to_string(),
        _ => format!("\\{byte:03o}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_back() {
        assert!((0..=u8::MAX).all(|byte| char_of_text(&text_of_char(byte)) == byte));
        assert_eq!(["abc", "é", "\\303", "\\30", "\\389"].map(char_of_text), [b'a', 0xc3, 0xc3, b'\\', b'\\']);
        assert_eq!([0, b'x', 0xc3].map(text_of_char), ["", "x", "\\303"]);
    }
}
