//! The files that a pattern names: `dir/*.csv`, `**/part-[0-9]?.parquet`.
//!
//! `*` stands for any characters but `/`, `?` for one, `[a-z]` and `[!a-z]` for one of a set, and
//! `**` as a whole part of the path for any number of directories. Names that begin with a point
//! are found only by a part that begins with one. `**` does not follow symbolic links.

use serac_values::{Result, SqlError};
use std::fs;
use std::path::{Path, PathBuf};

/// Names that a pattern may look at.
const MOST_VISITED: usize = 200_000;

/// Whether a path has characters with a meaning.
fn is_pattern(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// Whether a set, which stands behind `[` with its `]`, has a character; and its length.
fn in_set(set: &[char], character: char) -> Option<(bool, usize)> {
    let is_negated = matches!(set.first(), Some('!' | '^'));
    let first = usize::from(is_negated);
    // A bracket at the beginning is one of the set.
    let end = first + 1 + set.get(first + 1..)?.iter().position(|c| *c == ']')?;
    let (mut at, mut has) = (first, false);
    while at < end {
        if at + 2 < end && set[at + 1] == '-' {
            has |= (set[at]..=set[at + 2]).contains(&character);
            at += 3;
        } else {
            has |= set[at] == character;
            at += 1;
        }
    }
    Some((has != is_negated, end + 1))
}

/// Whether a part of a pattern stands for a name.
fn fits(part: &[char], name: &[char]) -> bool {
    let (mut at, mut of_name) = (0, 0);
    // The last star, and the first character of the name that it does not take.
    let mut star: Option<(usize, usize)> = None;
    while of_name < name.len() {
        let step = match part.get(at) {
            Some('*') => {
                star = Some((at, of_name));
                at += 1;
                continue;
            }
            Some('?') => Some(1),
            Some('[') => match in_set(&part[at + 1..], name[of_name]) {
                Some((has, length)) => has.then_some(length + 1),
                None => (name[of_name] == '[').then_some(1),
            },
            Some(character) => (*character == name[of_name]).then_some(1),
            None => None,
        };
        match (step, star) {
            (Some(step), _) => {
                at += step;
                of_name += 1;
            }
            // The star takes one more.
            (None, Some((place, taken))) => {
                star = Some((place, taken + 1));
                (at, of_name) = (place + 1, taken + 1);
            }
            (None, None) => return false,
        }
    }
    part[at..].iter().all(|rest| *rest == '*')
}

/// A walk through directories.
struct Walk<'c> {
    visited: usize,
    check: &'c dyn Fn() -> Result<()>,
    found: Vec<PathBuf>,
}

impl Walk<'_> {
    fn visit(&mut self) -> Result<()> {
        self.visited += 1;
        if self.visited > MOST_VISITED {
            let message = format!("the pattern looks at more than {MOST_VISITED} names");
            return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message));
        }
        (self.check)()
    }

    /// The names in a directory, in order; none if it is no directory, or cannot be read.
    fn names(&mut self, directory: &Path) -> Result<Vec<String>> {
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let mut names = Vec::new();
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            self.visit()?;
            // A name that is no text cannot be written in a statement.
            names.extend(entry.file_name().into_string().ok());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn walk(&mut self, before: &Path, parts: &[&str]) -> Result<()> {
        let Some((part, rest)) = parts.split_first() else {
            if before.is_file() {
                self.found.push(before.to_owned());
            }
            return Ok(());
        };
        if *part == "**" {
            self.walk(before, rest)?;
            for name in self.names(before)? {
                let inside = before.join(&name);
                let is_directory = fs::symlink_metadata(&inside).is_ok_and(|found| found.is_dir());
                if is_directory && !name.starts_with('.') {
                    self.walk(&inside, parts)?;
                }
            }
            return Ok(());
        }
        if !is_pattern(part) {
            let inside = before.join(part);
            return if inside.exists() { self.walk(&inside, rest) } else { Ok(()) };
        }
        let pattern: Vec<char> = part.chars().collect();
        for name in self.names(before)? {
            let characters: Vec<char> = name.chars().collect();
            if fits(&pattern, &characters) && (pattern[0] == '.' || characters[0] != '.') {
                self.walk(&before.join(&name), rest)?;
            }
        }
        Ok(())
    }
}

/// The files of a name or a pattern, in order. A file that has the pattern as its name comes first.
///
/// # Errors
/// 58P01 if there is none, 54000 if the pattern looks at too many names, and those of `check`,
/// which says whether the files are still wanted.
pub(crate) fn files_of(path: &str, check: &dyn Fn() -> Result<()>) -> Result<Vec<String>> {
    if !is_pattern(path) || Path::new(path).exists() {
        return Ok(vec![path.to_owned()]);
    }
    let mut walk = Walk { visited: 0, check, found: Vec::new() };
    let (root, rest) = match path.strip_prefix('/') {
        Some(rest) => (Path::new("/"), rest),
        None => (Path::new(""), path),
    };
    // `**/**` means the same as `**`, and would find files twice.
    let mut parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).collect();
    parts.dedup_by(|a, b| *a == "**" && a == b);
    walk.walk(root, &parts)?;
    // Nothing is found twice below one `**`; below two, it may be.
    let mut found = walk.found;
    found.sort_unstable();
    found.dedup();
    let found: Vec<String> = found.into_iter().filter_map(|found| found.into_os_string().into_string().ok()).collect();
    match found.is_empty() {
        true => Err(SqlError::new(sqlstate::UNDEFINED_FILE, format!("no file fits the pattern \"{path}\""))),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stand_for_names() {
        let fits = |part: &str, name: &str| fits(&part.chars().collect::<Vec<_>>(), &name.chars().collect::<Vec<_>>());
        for (part, name) in [
            ("*.csv", "a.csv"),
            ("*", "a"),
            ("a*b*c", "a-b-b-c"),
            ("?ä?", "xäy"),
            ("[a-c]1", "b1"),
            ("[!a]", "b"),
            ("[]]", "]"),
            ("[", "["),
            ("a[", "a["),
            ("[a-]", "-"),
            ("**", "x"),
        ] {
            assert!(fits(part, name), "{part} {name}");
        }
        for (part, name) in [("*.csv", "a.csv.gz"), ("?", "ab"), ("[a-c]", "d"), ("[!a]", "a"), ("a", "A"), ("a", "")] {
            assert!(!fits(part, name), "{part} {name}");
        }
        // In time that does not grow with a power of the number of stars.
        assert!(!fits(&"*a".repeat(500), &"a".repeat(400)));
    }

    #[test]
    fn files_are_found_in_order_and_hidden_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let inside = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        for directory in ["b", "a/c", ".hidden"] {
            fs::create_dir_all(inside(directory)).unwrap();
        }
        for file in ["b/2.csv", "b/1.csv", "b/.3.csv", "a/c/4.csv", "a/5.txt", ".hidden/6.csv", "odd[1].csv"] {
            fs::write(inside(file), "").unwrap();
        }
        let found = |pattern: &str| {
            let found = files_of(&inside(pattern), &|| Ok(()));
            found.map(|found| found.iter().map(|file| file[inside("").len()..].to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(found("b/*.csv").unwrap(), ["b/1.csv", "b/2.csv"]);
        assert_eq!(found("b/.*").unwrap(), ["b/.3.csv"]);
        assert_eq!(found("**/*.csv").unwrap(), ["a/c/4.csv", "b/1.csv", "b/2.csv", "odd[1].csv"]);
        assert_eq!(found("**/**/[4-5].*").unwrap(), ["a/5.txt", "a/c/4.csv"]);
        assert_eq!(found("odd[1].csv").unwrap(), ["odd[1].csv"]);
        assert_eq!(found("*.parquet").unwrap_err().sqlstate, sqlstate::UNDEFINED_FILE);
        let cancelled = || Err(SqlError::new(sqlstate::QUERY_CANCELED, "cancelled"));
        assert_eq!(files_of(&inside("b/*"), &cancelled).unwrap_err().sqlstate, sqlstate::QUERY_CANCELED);
    }
}
