//! Texts and names as SQL has them.

/// A text as a constant.
pub fn constant(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A name as an identifier.
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
