//! The sources and items that ARCHITECTURE.md and CONTRIBUTING.md name are there.
//!
//! A name stands between backticks: the end of a path (`cubit/merge.rs`), of several paths
//! (`tests/{slots,pins}.rs`), or a path and an item in it (`gc.rs::run_once`).

use crate::files::File;

const DOCUMENTS: [&str; 2] = ["ARCHITECTURE.md", "CONTRIBUTING.md"];

/// Complaints about names in `documents` that lead to no source.
pub fn check(documents: &[File], sources: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for document in documents.iter().filter(|file| DOCUMENTS.contains(&file.path.as_str())) {
        // Every second part stands between backticks; blocks of code have three of them.
        for name in document.text.split('`').skip(1).step_by(2) {
            let (path, item) = name.split_once("::").unwrap_or((name, ""));
            if !path.ends_with(".rs") || path.contains(char::is_whitespace) {
                continue;
            }
            for path in each(path) {
                let files: Vec<&File> = sources.iter().filter(|file| is_end(&file.path, &path)).collect();
                let item = item.rsplit("::").next().unwrap_or_default();
                if files.is_empty() {
                    complaints.push(format!("{}: there is no {path}", document.path));
                } else if !item.is_empty() && !files.iter().any(|file| defines(&file.text, item)) {
                    complaints.push(format!("{}: {path} does not define {item}", document.path));
                }
            }
        }
    }
    complaints
}

/// The paths that `path` means: `a/{b,c}.rs` means two.
fn each(path: &str) -> Vec<String> {
    match path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
        Some((before, (names, behind))) => names.split(',').map(|name| format!("{before}{name}{behind}")).collect(),
        None => vec![path.to_owned()],
    }
}

fn is_end(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

fn defines(text: &str, name: &str) -> bool {
    ["fn ", "struct ", "enum ", "trait "].iter().flat_map(|keyword| text.split(keyword).skip(1)).any(|rest| {
        rest.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(|next: char| next != '_' && !next.is_alphanumeric()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let sources = [file("crates/a/src/b.rs", "pub fn one<T>() {}"), file("crates/a/tests/c.rs", "")];
        check(&[file("ARCHITECTURE.md", text), file("docs/other.md", "`no.rs`")], &sources)
    }

    #[test]
    fn names_lead_to_sources() {
        assert!(complaints("`a/src/b.rs::one` and `tests/c.rs`, `run` of `b.rs::T::one`").is_empty());
        assert_eq!(complaints("`rc/b.rs`"), ["ARCHITECTURE.md: there is no rc/b.rs"]);
        assert_eq!(complaints("`tests/{c,d}.rs`"), ["ARCHITECTURE.md: there is no tests/d.rs"]);
        assert_eq!(complaints("`b.rs::on`"), ["ARCHITECTURE.md: b.rs does not define on"]);
    }
}
