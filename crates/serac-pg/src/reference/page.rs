//! The page of the reference in `docs/`, which is made of the registry.

use super::{Entry, Section, casts, functions, of_type, operators, sections};
use crate::CastContext;
use crate::functions::{FunctionKind, named};
use std::collections::BTreeSet;
use std::fmt::Write;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/functions.md");

const HEAD: &str = "\
# Functions, operators and casts

This page is made of the registry of functions (`crates/serac-pg/src`): `SERAC_WRITE_DOCS=1 cargo test -p serac-pg` writes it anew, and tests run its
examples. What it does not list, SeracDB does not have; a call of a function that PostgreSQL has, or of types that SeracDB does not take, is an error
(0A000). Functions marked with * are not PostgreSQL's. In results, `|` stands between the values of a row, and `;` between rows. `pg_proc`,
`pg_operator`, `pg_cast` and `pg_aggregate` list the same, and so does `\\df` in [the shell](book/src/reference/shell.md).

";

/// A text as code, between signs that it does not have.
fn code(text: &str) -> String {
    let sign = if text.contains('`') { "``" } else { "`" };
    format!("{sign}{text}{sign}")
}

fn title(section: &Section) -> String {
    format!("\n## {}\n\n", section.title)
}

/// The examples of an entry, a line each.
fn examples(out: &mut String, entry: &Entry) {
    for example in &entry.examples {
        writeln!(out, "  - {} → {}", code(example.text), code(example.result)).expect("a text takes all");
    }
}

/// The arguments and results of a name, one of PostgreSQL's forms behind the other.
fn forms(name: &str) -> Vec<String> {
    let forms = named(name).filter(|function| function.kind != FunctionKind::Syntax);
    forms.map(|function| format!("{name}({}) {}", function.arguments_text(), function.result_text())).collect()
}

fn page() -> String {
    let mut out = HEAD.to_owned();
    for section in sections() {
        let anchor = section.title.to_lowercase().replace(' ', "-");
        writeln!(out, "- [{}](#{anchor})", section.title).expect("a text takes all");
    }
    for section in functions() {
        out.push_str(&title(section));
        for entry in &section.entries {
            let is_own = entry.names.iter().any(|name| named(name).any(|function| function.is_own));
            let names: Vec<String> = entry.names.iter().map(|name| format!("**{name}**")).collect();
            let mark = if is_own { "\\*" } else { "" };
            writeln!(out, "- {}{mark}: {}", names.join(", "), entry.text).expect("a text takes all");
            let forms: Vec<String> = forms(entry.names[0]).iter().map(|form| code(form)).collect();
            if !forms.is_empty() {
                writeln!(out, "  {}", forms.join(", ")).expect("a text takes all");
            }
            examples(&mut out, entry);
        }
    }
    out.push_str(&title(operators()));
    for entry in &operators().entries {
        writeln!(out, "- {} of {}: {}", code(entry.names[0]), entry.family, entry.text).expect("a text takes all");
        examples(&mut out, entry);
    }
    out.push_str(&title(casts()));
    for entry in &casts().entries {
        writeln!(out, "- **{}**: {}", entry.names[0], entry.text).expect("a text takes all");
        let ways = [
            (CastContext::Implicit, "By itself from"),
            (CastContext::Assignment, "Where it is assigned, from"),
            (CastContext::Explicit, "By CAST from"),
        ];
        for (context, way) in ways {
            let from = crate::casts::callable().filter(|cast| cast.context == context && cast.from != cast.to);
            let from = from.filter(|cast| of_type(cast.to) == Some(entry)).map(|cast| cast.from.to_string());
            let from: BTreeSet<String> = from.collect();
            if !from.is_empty() {
                writeln!(out, "  {way} {}.", from.into_iter().collect::<Vec<_>>().join(", "))
                    .expect("a text takes all");
            }
        }
        examples(&mut out, entry);
    }
    out
}

#[test]
fn the_page_is_that_of_the_registry() {
    if std::env::var_os("SERAC_WRITE_DOCS").is_some() {
        std::fs::write(PAGE, page()).unwrap();
    }
    let written = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(written == page(), "docs/functions.md is not what SERAC_WRITE_DOCS=1 cargo test -p serac-pg writes");
}
