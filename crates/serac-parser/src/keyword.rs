//! Keywords, and the places in which they may be names.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The places in which a keyword may be a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Category {
    /// In all places.
    Unreserved,
    /// As a name of columns and tables, not of functions and types.
    ColumnName,
    /// As a name of functions and types, not of columns and tables.
    TypeOrFunction,
    /// As a label only.
    Reserved,
}

/// A keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keyword {
    pub(crate) category: Category,
    /// Whether it may be the label of a column without AS.
    pub(crate) is_bare_label: bool,
}

static KEYWORDS: LazyLock<HashMap<&'static str, Keyword>> = LazyLock::new(|| {
    let rows = include_str!("facts/keywords.txt").lines().filter(|line| !line.starts_with("# "));
    let keyword = |line: &'static str| {
        let mut words = line.split(' ');
        let word = words.next()?;
        let category = match words.next()? {
            "U" => Category::Unreserved,
            "C" => Category::ColumnName,
            "T" => Category::TypeOrFunction,
            _ => Category::Reserved,
        };
        Some((word, Keyword { category, is_bare_label: words.next() == Some("bare") }))
    };
    rows.filter_map(keyword).collect()
});

/// The keyword for a word in lower case; `None` if it is no keyword.
pub(crate) fn keyword(word: &str) -> Option<Keyword> {
    KEYWORDS.get(word).copied()
}
