//! Literals of SQLSTATEs: five capital letters or digits between quotes, of a class that PostgreSQL
//! has.
//!
//! They belong in one file, [`HOME`], as constants with PostgreSQL's names. Tests may write them
//! out.

use crate::files::File;

/// The file in which SQLSTATEs have names.
const HOME: &str = "crates/serac-sqlstate/src/lib.rs";

/// The classes of PostgreSQL's SQLSTATEs (its manual, appendix A).
const CLASSES: [&str; 43] = [
    "00", "01", "02", "03", "08", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "20", "21", "22", "23", "24", "25", "26",
    "27", "28", "2B", "2D", "2F", "34", "38", "39", "3B", "3D", "3F", "40", "42", "44", "53", "54", "55", "57", "58",
    "72", "F0", "HV", "P0", "XX",
];

/// Texts that only look like SQLSTATEs.
const OTHERS: [&str; 1] = ["256MB"];

/// The numbers of the lines at which a source file has literals of SQLSTATEs outside of its tests,
/// one for each literal.
pub fn in_source(file: &File) -> Vec<usize> {
    let is_code = file.path.contains("/src/") && !file.path.ends_with("/tests.rs") && file.path != HOME;
    if !is_code {
        return Vec::new();
    }
    // Tests stand at the end of a file.
    let code = file.text.find("#[cfg(test)]\nmod ").map_or(&*file.text, |tests| &file.text[..tests]);
    let lines = code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    lines.flat_map(|(at, line)| std::iter::repeat_n(at + 1, in_line(line))).collect()
}

fn in_line(line: &str) -> usize {
    let parts: Vec<&str> = line.split('"').collect();
    // Between two quotes stands every part but the first and the last.
    let between = parts.iter().skip(1).take(parts.len().saturating_sub(2));
    between.filter(|part| is_sqlstate(part)).count()
}

fn is_sqlstate(text: &str) -> bool {
    let letters = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
    text.len() == 5 && text.bytes().all(letters) && CLASSES.contains(&&text[..2]) && !OTHERS.contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        in_source(&File { path: path.to_owned(), text: text.to_owned() })
    }

    #[test]
    fn literals_are_counted_outside_of_tests_and_their_home() {
        let text = "//! \"42601\"\nf(\"42601\", \"message\"); g(&[\"0A000\", \"XX000\"]);\n\"BEGIN\" \"99999\" \"4260\"\n\
            #[cfg(test)]\nmod tests { f(\"42601\") }\n";
        assert_eq!(found("crates/serac-sql/src/a.rs", text), [2, 2, 2]);
        assert!(found("crates/serac-sql/tests/a.rs", text).is_empty());
        assert!(found("crates/serac-sql/src/a/tests.rs", text).is_empty());
        assert!(found(HOME, text).is_empty());
    }
}
