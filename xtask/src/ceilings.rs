//! Ceilings on the lines that break a rule of style, as long as some still do.
//!
//! `ceilings.txt` has a number for each crate, or document, that has such lines. A number may only
//! become smaller: tidy fails where there are more, and where there are fewer, until the ceiling
//! follows.

use crate::files::{File, documents, python, sources};
use crate::{long_lines, sqlstates};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

/// Documents that are generated from code.
const GENERATED: [&str; 1] = ["docs/functions.md"];

/// The kinds that are counted: the name in the table, and the complaint.
const KINDS: [(&str, &str); 3] = [
    ("comments", "lines of comments have more than 100 columns"),
    ("sqlstates", "SQLSTATEs are written out as literals"),
    ("markdown", "lines have more than 100 columns"),
];

/// A kind, and a crate or a document.
type Of = (&'static str, String);

/// The places of each kind: `docs/STYLE.md:12`.
type Places = BTreeMap<Of, Vec<String>>;

/// The ceilings that are above 0.
type Ceilings = BTreeMap<Of, usize>;

/// The most places that a complaint names. It names places only where the ceiling is 0.
const NAMED: usize = 5;

fn path(workspace: &Path) -> std::path::PathBuf {
    workspace.join("xtask/ceilings.txt")
}

/// Complaints about numbers that differ from their ceilings.
///
/// # Errors
/// If a file cannot be read, or a line of the table is malformed.
pub fn check(workspace: &Path, sources: &[File]) -> io::Result<Vec<String>> {
    let ceilings = read(&fs::read_to_string(path(workspace))?)?;
    Ok(differences(&places(sources, &python(workspace)?, &documents(workspace)?), &ceilings))
}

/// Lowers the ceilings to the present numbers. Returns complaints about numbers above their
/// ceilings.
///
/// # Errors
/// If a file cannot be read or written.
pub fn lower(workspace: &Path) -> io::Result<Vec<String>> {
    let old = fs::read_to_string(path(workspace))?;
    let ceilings = read(&old)?;
    let places = places(&sources(workspace)?, &python(workspace)?, &documents(workspace)?);
    let lower = |(of, ceiling): (&Of, &usize)| Some((of.clone(), places.get(of)?.len().min(*ceiling)));
    let lowered: Ceilings = ceilings.iter().filter_map(lower).collect();
    fs::write(path(workspace), written(&old, &lowered))?;
    Ok(differences(&places, &lowered))
}

fn places(sources: &[File], python: &[File], documents: &[File]) -> Places {
    let mut places = Places::new();
    let mut add = |kind, of: &str, file: &File, lines: Vec<usize>| {
        if !lines.is_empty() {
            let found = lines.into_iter().map(|line| format!("{}:{line}", file.path));
            places.entry((kind, of.to_owned())).or_default().extend(found);
        }
    };
    for file in sources {
        add("comments", file.crate_name(), file, long_lines::in_comments(&file.text));
        add("sqlstates", file.crate_name(), file, sqlstates::in_source(file));
    }
    for file in python {
        add("comments", file.crate_name(), file, long_lines::in_python(&file.text));
    }
    for file in documents.iter().filter(|file| !GENERATED.contains(&&*file.path)) {
        add("markdown", &file.path, file, long_lines::in_markdown(&file.text));
    }
    places
}

fn differences(places: &Places, ceilings: &Ceilings) -> Vec<String> {
    let mut complaints = Vec::new();
    for (kind, what) in KINDS {
        let of: BTreeSet<&Of> = places.keys().chain(ceilings.keys()).filter(|of| of.0 == kind).collect();
        for of in of {
            let found = places.get(of).map_or(&[][..], |found| found);
            let (number, ceiling) = (found.len(), ceilings.get(of).copied().unwrap_or(0));
            if number > ceiling {
                let named = if ceiling == 0 { found.len().min(NAMED) } else { 0 };
                let named: String = found[..named].iter().map(|place| format!("\n  {place}")).collect();
                complaints.push(format!("{}: {number} {what}, {ceiling} may{named}", of.1));
            } else if number < ceiling {
                let lower = "`cargo xtask lower` lowers it";
                complaints.push(format!("{}: {number} {what}, and the ceiling is {ceiling}: {lower}", of.1));
            }
        }
    }
    complaints
}

/// Reads the table: kind, crate or document, number.
fn read(table: &str) -> io::Result<Ceilings> {
    let mut ceilings = Ceilings::new();
    for line in table.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("ceilings.txt: {line}"));
        let [kind, of, number] = line.split_whitespace().collect::<Vec<_>>()[..] else { return Err(wrong()) };
        let (kind, _) = KINDS.into_iter().find(|(name, _)| *name == kind).ok_or_else(wrong)?;
        let number = number.parse().map_err(|_| wrong())?;
        ceilings.insert((kind, of.to_owned()), number);
    }
    Ok(ceilings)
}

/// The text of the table: the first comment of the old one, and these ceilings.
fn written(old: &str, ceilings: &Ceilings) -> String {
    let comment = old.lines().take_while(|line| line.starts_with('#'));
    let mut table: String = comment.map(|line| format!("{line}\n")).collect();
    for (kind, _) in KINDS {
        table.push('\n');
        for ((_, of), number) in ceilings.iter().filter(|((its, _), _)| *its == kind) {
            table += &format!("{kind:<10} {of:<34} {number:>5}\n");
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# What this is.\n\ncomments serac-a 2\nmarkdown README.md 1\n";

    fn ceilings(numbers: &[(&'static str, &str, usize)]) -> Ceilings {
        numbers.iter().map(|(kind, of, number)| ((*kind, (*of).to_owned()), *number)).collect()
    }

    fn found(numbers: &[(&'static str, &str, usize)]) -> Places {
        let places = |number: usize| (1..=number).map(|line| format!("a:{line}")).collect();
        numbers.iter().map(|(kind, of, number)| ((*kind, (*of).to_owned()), places(*number))).collect()
    }

    #[test]
    fn numbers_are_what_their_ceilings_are() {
        let ceilings = read(TABLE).unwrap();
        let same = found(&[("comments", "serac-a", 2), ("markdown", "README.md", 1)]);
        assert!(differences(&same, &ceilings).is_empty());
        let complaints = differences(&found(&[("comments", "serac-a", 3), ("sqlstates", "serac-b", 7)]), &ceilings);
        assert_eq!(
            complaints,
            [
                "serac-a: 3 lines of comments have more than 100 columns, 2 may",
                "serac-b: 7 SQLSTATEs are written out as literals, 0 may\n  a:1\n  a:2\n  a:3\n  a:4\n  a:5",
                "README.md: 0 lines have more than 100 columns, and the ceiling is 1: `cargo xtask lower` lowers it",
            ]
        );
    }

    #[test]
    fn what_is_written_is_read_again() {
        let ceilings = ceilings(&[("comments", "serac-a", 1), ("sqlstates", "serac-b", 12)]);
        let table = written(TABLE, &ceilings);
        assert!(table.starts_with("# What this is.\n\ncomments"), "{table}");
        assert_eq!(read(&table).unwrap(), ceilings);
        assert!(read("comments serac-a many\n").is_err());
        assert!(read("colours serac-a 1\n").is_err());
    }

    #[test]
    fn places_are_those_of_a_crate_or_a_document() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let long = format!("//! {}\n", "x".repeat(100));
        let sources = [
            file("crates/serac-a/src/lib.rs", &format!("{long}f(\"42601\");\n")),
            file("crates/serac-a/tests/a.rs", &long),
        ];
        let documents = [file("README.md", &"x".repeat(101)), file(GENERATED[0], &"x".repeat(101))];
        let python = [file("crates/serac-a/tests/a.py", &format!("# {}\n", "x".repeat(100)))];
        let places = places(&sources, &python, &documents);
        let of = |kind, of: &str| places[&(kind, of.to_owned())].clone();
        assert_eq!(
            of("comments", "serac-a"),
            ["crates/serac-a/src/lib.rs:1", "crates/serac-a/tests/a.rs:1", "crates/serac-a/tests/a.py:1"]
        );
        assert_eq!(of("sqlstates", "serac-a"), ["crates/serac-a/src/lib.rs:2"]);
        assert_eq!(of("markdown", "README.md"), ["README.md:1"]);
        assert_eq!(places.len(), 3);
    }
}
