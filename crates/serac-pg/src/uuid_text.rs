//! UUIDs as texts.

/// The bytes of a text of 32 hexadecimal digits, perhaps in braces. A hyphen may stand behind each
/// fourth digit.
pub fn uuid_of_text(text: &str) -> Option<[u8; 16]> {
    let bare = match text.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}')?,
        None => text,
    };
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (mut bytes, mut rest) = ([0; 16], bare.as_bytes());
    for (at, byte) in bytes.iter_mut().enumerate() {
        if let (&[b'-', ref behind @ ..], 2 | 4 | 6 | 8 | 10 | 12 | 14) = (rest, at) {
            rest = behind;
        }
        let &[high, low, ref behind @ ..] = rest else { return None };
        *byte = digit(high)? << 4 | digit(low)?;
        rest = behind;
    }
    rest.is_empty().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hyphens_stand_behind_four_digits() {
        let uuid = Some(*b"\xa0\xee\xbc\x99\x9c\x0b\x4e\xf8\xbb\x6d\x6b\xb9\xbd\x38\x0a\x11");
        for text in [
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "A0EEBC999C0B4EF8BB6D6BB9BD380A11",
            "{a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11}",
        ] {
            assert_eq!(uuid_of_text(text), uuid, "{text}");
        }
        for text in [
            "",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11-",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a112",
            "a0eebc9-99c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc99--9c0b-4ef8-bb6d-6bb9bd380a11",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1g",
        ] {
            assert_eq!(uuid_of_text(text), None, "{text}");
        }
    }
}
