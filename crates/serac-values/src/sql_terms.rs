//! Types and constants as SQL writes them, in texts in which DataFusion and Arrow write their own:
//! messages of errors, and plans.

use crate::type_names::name_of as type_name;
use datafusion::arrow::datatypes::DataType;

/// Types that are words of everyday messages, too, and never columns' types.
const WORDS: [&str; 3] = ["Null", "Map", "Union"];

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The end of the part that begins with an opening parenthesis.
fn parenthesized(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(end), c) if c == end => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            (None, _) => {}
        }
    }
    None
}

/// A constant of a type, as SQL writes it. `inner`: as DataFusion writes it, between the
/// parentheses.
fn constant(type_name: &str, inner: &str) -> Option<String> {
    let text = |inner: &str| format!("'{}'", inner.replace('\'', "''"));
    if inner == "NULL" {
        return Some("NULL".into());
    }
    Some(match type_name {
        "Boolean" | "Int8" | "Int16" | "Int32" | "Int64" | "UInt8" | "UInt16" | "UInt32" | "UInt64" | "Float32"
        | "Float64" => inner.to_owned(),
        "Utf8" | "Utf8View" | "LargeUtf8" | "Date32" | "IntervalMonthDayNano" => {
            text(inner.strip_prefix('"')?.strip_suffix('"')?)
        }
        "Decimal32" | "Decimal64" | "Decimal128" => {
            let (number, rest) = inner.strip_prefix("Some(")?.split_once(')')?;
            let scale: usize = rest.rsplit(',').next()?.trim().parse().ok()?;
            let (sign, digits) = number.strip_prefix('-').map_or(("", number), |digits| ("-", digits));
            let digits = format!("{digits:0>width$}", width = scale + 1);
            let (whole, fraction) = digits.split_at(digits.len() - scale);
            let point = if scale > 0 { "." } else { "" };
            format!("{sign}{whole}{point}{fraction}")
        }
        _ => return None,
    })
}

/// The type or constant that a text begins with, as SQL writes it, and its length in the text.
fn term(text: &str) -> Option<(String, usize)> {
    let word = &text[..text.find(|c| !is_of_word(c)).unwrap_or(text.len())];
    if WORDS.contains(&word) {
        return None;
    }
    if let Some(length) = text[word.len()..].starts_with('(').then(|| parenthesized(&text[word.len()..])).flatten() {
        let end = word.len() + length;
        if let Ok(data_type) = text[..end].parse::<DataType>() {
            return Some((type_name(&data_type), end));
        }
        if let Some(constant) = constant(word, &text[word.len() + 1..end - 1]) {
            return Some((constant, end));
        }
    }
    Some((type_name(&word.parse::<DataType>().ok()?), word.len()))
}

/// The text with Arrow's types, and DataFusion's constants, in SQL's form. Text in quotes stays.
pub fn in_sql_terms(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut before) = (text, ' ');
    while let Some(c) = rest.chars().next() {
        let is_quote = matches!(c, '"' | '\'' | '`') && !is_of_word(before);
        let quoted = is_quote.then(|| rest[1..].find(c)).flatten().map(|end| {
            // A column without a name of its own has its expression for a name.
            let inner = &rest[1..=end];
            let inner = if c == '"' && inner.contains('(') { in_sql_terms(inner) } else { inner.to_owned() };
            (format!("{c}{inner}{c}"), end + 2)
        });
        let found = if c.is_ascii_uppercase() && !is_of_word(before) { term(rest) } else { quoted };
        let (written, length) = found.unwrap_or_else(|| (c.to_string(), c.len_utf8()));
        out.push_str(&written);
        before = rest[..length].chars().next_back().unwrap_or(' ');
        rest = &rest[length..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::in_sql_terms;

    #[test]
    fn types_and_constants_are_written_as_in_sql() {
        for (text, wanted) in [
            ("CAST(a AS Int64)", "CAST(a AS bigint)"),
            ("Cannot coerce Utf8View + Int32", "Cannot coerce text + integer"),
            ("count(Int64(1)), Utf8(\"it's\") = b", "count(1), 'it''s' = b"),
            ("a > Decimal128(Some(-5),15,2), Decimal128(15, 2)", "a > -0.05, numeric"),
            ("Timestamp(µs), Timestamp(µs, \"UTC\")", "timestamp without time zone, timestamp with time zone"),
            ("List(Int64) and Boolean(true)", "bigint[] and true"),
            ("column \"Int64\" of MyInt64, Null values, Int64s", "column \"Int64\" of MyInt64, Null values, Int64s"),
            ("Int32(NULL)", "NULL"),
            ("column \"sum(t.a) + Int64(1)\" is", "column \"sum(t.a) + 1\" is"),
            ("don't cast to Float64 (yet", "don't cast to double precision (yet"),
        ] {
            assert_eq!(in_sql_terms(text), wanted);
        }
    }
}
