//! Values of the type `tid`, the places of rows in their tables: the number of a page and that of
//! a row in it, in six bytes whose order is that of the values. The bytes are the binary form; as a
//! text it is `(page,row)`.

/// The bytes of a page's number and a row's.
pub fn bytes_of_tid(page: u32, row: u16) -> [u8; 6] {
    let ([a, b, c, d], [e, f]) = (page.to_be_bytes(), row.to_be_bytes());
    [a, b, c, d, e, f]
}

/// The numbers of a page and of a row in it; `None` for bytes that are no place.
pub fn tid_of_bytes(bytes: &[u8]) -> Option<(u32, u16)> {
    let &[a, b, c, d, e, f] = bytes else { return None };
    Some((u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f])))
}

/// The bytes of the place that a text names. A page may be a negative number, which stands for one
/// of the upper half.
pub fn tid_of_text(text: &str) -> Option<[u8; 6]> {
    let (page, row) = text.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
    let is_number = |number: &str| number.bytes().all(|byte| byte.is_ascii_digit());
    let (page, row) = (page.trim_ascii_start(), row.trim_ascii_start());
    let page = match page.strip_prefix('-') {
        Some(digits) if is_number(digits) => page.parse::<i32>().ok()?.cast_unsigned(),
        None if is_number(page) => page.parse().ok()?,
        _ => return None,
    };
    let row = Some(row).filter(|row| is_number(row))?.parse().ok()?;
    Some(bytes_of_tid(page, row))
}

/// A place as a text; its bytes are six.
pub fn text_of_tid(bytes: &[u8]) -> String {
    let (page, row) = tid_of_bytes(bytes).unwrap_or_default();
    format!("({page},{row})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_back() {
        for (page, row) in [(0, 0), (0, 1), (7, 512), (u32::MAX, u16::MAX)] {
            let bytes = bytes_of_tid(page, row);
            assert_eq!((tid_of_bytes(&bytes), tid_of_text(&text_of_tid(&bytes))), (Some((page, row)), Some(bytes)));
        }
        assert_eq!(tid_of_text("(-1,0)"), Some(bytes_of_tid(u32::MAX, 0)));
        assert_eq!(tid_of_text("( 3, 4)"), Some(bytes_of_tid(3, 4)));
    }

    #[test]
    fn other_texts_are_no_places() {
        let wrong =
            ["", "0,1", "(0)", "(0,1", "0,1)", "(0,1,2)", "(0,65536)", "(4294967296,0)", "(0,-1)", "(,)", "(+1,1)"];
        assert!(wrong.into_iter().all(|text| tid_of_text(text).is_none()));
        assert_eq!(tid_of_bytes(&[0; 5]), None);
    }

    #[test]
    fn bytes_have_the_order_of_places() {
        let places = [(0, 0), (0, 1), (0, 256), (1, 0), (255, 9), (256, 0), (u32::MAX, 1)];
        assert!(places.map(|(page, row)| bytes_of_tid(page, row)).is_sorted());
    }
}
