//! The reference of functions, operators and casts: a line and examples of each that can be called.
//!
//! A file of `reference/` is a section: its title behind `= `, and entries. An entry begins with
//! the names of functions that are one, or an operator's symbol and the family of its operands, or
//! the target type of casts. A description follows behind `: `, and examples stand below, behind
//! two blanks. An example is the text behind SELECT, or statements, and its result behind ` → `:
//! values are separated by ` | `, rows by `; `. An empty text is `''`.

use crate::operators::Operator;
use crate::types::{Category, TypeId};
use std::collections::HashMap;
use std::sync::LazyLock;

/// An example: a question and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Example {
    /// The text behind SELECT, or statements.
    pub text: &'static str,
    /// The rows of the last statement.
    pub result: &'static str,
}

impl Example {
    /// The statements that ask it.
    pub fn statements(&self) -> String {
        let is_whole = ["CREATE ", "SELECT ", "VALUES ", "WITH "].iter().any(|start| self.text.starts_with(start));
        if is_whole { self.text.to_owned() } else { format!("SELECT {}", self.text) }
    }
}

/// The description of functions of given names, of the operators of a symbol, or of the casts to a
/// type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The names; the symbol of operators, and SQL's name of a type.
    pub names: Vec<&'static str>,
    /// The operands of operators: the name of a family of types. Empty for other entries.
    pub family: &'static str,
    /// The description.
    pub text: &'static str,
    /// At least one.
    pub examples: Vec<Example>,
}

/// Entries that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The section's subject.
    pub title: &'static str,
    /// In the order of the file.
    pub entries: Vec<Entry>,
}

/// The separator of an example and its result.
const GIVES: &str = " → ";

impl Section {
    fn new(text: &'static str, is_of_operators: bool) -> Self {
        let mut lines = text.lines();
        let title = lines.next().and_then(|line| line.strip_prefix("= ")).expect("the file begins with a title");
        let mut entries: Vec<Entry> = Vec::new();
        for line in lines {
            if let Some(example) = line.strip_prefix("  ") {
                let (text, result) = example.rsplit_once(GIVES).expect("an example has a result");
                let entry = entries.last_mut().expect("an example follows an entry");
                entry.examples.push(Example { text, result });
                continue;
            }
            let (head, text) = line.split_once(": ").expect("an entry says what it does");
            let (names, family) = match is_of_operators {
                false => (head.split(", ").collect(), ""),
                true => head.split_once(' ').map(|(symbol, family)| (vec![symbol], family)).expect("a family"),
            };
            entries.push(Entry { names, family, text, examples: Vec::new() });
        }
        Self { title, entries }
    }
}

/// The functions, section by section.
pub fn functions() -> &'static [Section] {
    static SECTIONS: LazyLock<Vec<Section>> = LazyLock::new(|| {
        let texts = [
            include_str!("reference/text.txt"),
            include_str!("reference/numbers.txt"),
            include_str!("reference/times.txt"),
            include_str!("reference/aggregates.txt"),
            include_str!("reference/window.txt"),
            include_str!("reference/json.txt"),
            include_str!("reference/arrays.txt"),
            include_str!("reference/sets.txt"),
            include_str!("reference/binary.txt"),
            include_str!("reference/control.txt"),
            include_str!("reference/system.txt"),
            include_str!("reference/arrow.txt"),
        ];
        texts.into_iter().map(|text| Section::new(text, false)).collect()
    });
    &SECTIONS
}

/// The operators.
pub fn operators() -> &'static Section {
    static SECTION: LazyLock<Section> = LazyLock::new(|| Section::new(include_str!("reference/operators.txt"), true));
    &SECTION
}

/// The casts, by the types that they give.
pub fn casts() -> &'static Section {
    static SECTION: LazyLock<Section> = LazyLock::new(|| Section::new(include_str!("reference/casts.txt"), false));
    &SECTION
}

/// All sections.
pub fn sections() -> impl Iterator<Item = &'static Section> {
    functions().iter().chain([operators(), casts()])
}

/// The entries of a name; aggregates may also be functions of windows.
fn entries_of(name: &str) -> &'static [&'static Entry] {
    static ENTRIES: LazyLock<HashMap<&'static str, Vec<&'static Entry>>> = LazyLock::new(|| {
        let mut entries: HashMap<_, Vec<_>> = HashMap::new();
        for entry in functions().iter().flat_map(|section| &section.entries) {
            entry.names.iter().for_each(|name| entries.entry(*name).or_default().push(entry));
        }
        entries
    });
    ENTRIES.get(name).map_or(&[], Vec::as_slice)
}

/// The entry of a function; `None` if it cannot be called.
pub fn of_function(name: &str) -> Option<&'static Entry> {
    entries_of(name).first().copied()
}

/// The names of all that can be called, in their order.
pub fn names() -> Vec<&'static str> {
    let entries = functions().iter().flat_map(|section| &section.entries);
    let mut names: Vec<&str> = entries.flat_map(|entry| entry.names.iter().copied()).collect();
    names.sort_unstable();
    names
}

/// The entry of an operator; `None` if it cannot be applied.
pub fn of_operator(operator: &Operator) -> Option<&'static Entry> {
    let family = family_of(&operator.signature.arguments);
    let is_it = |entry: &&Entry| entry.names == [operator.symbol] && [family, ANY_VALUES].contains(&entry.family);
    operators().entries.iter().find(is_it)
}

/// The entry of the casts to a type; `None` if the type has no values here.
pub fn of_type(id: TypeId) -> Option<&'static Entry> {
    casts().entries.iter().find(|entry| entry.names == [id.sql_name()])
}

/// The family of operands of any type.
const ANY_VALUES: &str = "values";

/// The family of operators with these operands.
fn family_of(operands: &[TypeId]) -> &'static str {
    let has = |is_such: &dyn Fn(TypeId) -> bool| operands.iter().any(|id| is_such(*id));
    let is_array =
        |id: TypeId| id.category() == Category::Array || matches!(id, TypeId::ANYARRAY | TypeId::ANYCOMPATIBLEARRAY);
    match () {
        () if has(&|id| matches!(id, TypeId::JSON | TypeId::JSONB)) => "JSON",
        () if has(&is_array) => "arrays",
        () if has(&|id| id == TypeId::BYTEA) => "bytes",
        () if has(&|id| id == TypeId::RECORD) => "rows",
        () if has(&|id| matches!(id.category(), Category::DateTime | Category::Timespan)) => "times",
        () if has(&|id| id.category() == Category::String) => "texts",
        () if has(&|id| id.category() == Category::Numeric) => "numbers",
        () => ANY_VALUES,
    }
}

#[cfg(test)]
mod page;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::named;

    #[test]
    fn every_entry_is_of_something_that_there_is() {
        let mut names = names();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all, "a name has two entries");
        for name in names {
            assert!(named(name).next().is_some(), "{name} has an entry and is in no table");
        }
        for entry in &operators().entries {
            let has = |operator: &&Operator| of_operator(operator) == Some(entry);
            assert!(crate::operators::all().iter().any(|operator| has(&operator)), "{entry:?} is of no operator");
        }
        for entry in &casts().entries {
            let mut casts = crate::casts::callable();
            assert!(casts.any(|cast| of_type(cast.to) == Some(entry)), "{entry:?} is of no cast");
        }
    }

    #[test]
    fn every_entry_has_a_sentence_and_an_example_of_each() {
        for (entry, is_operator) in
            sections().flat_map(|section| section.entries.iter().map(|e| (e, !e.family.is_empty())))
        {
            assert!(entry.text.ends_with('.'), "{entry:?}");
            assert!(entry.text.starts_with(|first: char| !first.is_lowercase()), "{entry:?}");
            assert!(entry.examples.iter().any(|example| example.text.contains(entry.names[0])), "{entry:?}");
            assert!(is_operator || entry.names.is_sorted(), "{entry:?}");
        }
    }

    #[test]
    fn entries_stand_in_the_order_of_names() {
        for section in functions().iter().chain([casts()]) {
            assert!(section.entries.is_sorted_by_key(|entry| entry.names[0]), "{}", section.title);
        }
    }
}
