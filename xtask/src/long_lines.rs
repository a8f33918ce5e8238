//! Lines of prose with more than [`COLUMNS`] columns, in comments, docstrings and Markdown.
//!
//! Rows of tables and blocks of code may be longer. The targets of links do not count.

/// The columns that a line of prose may have.
const COLUMNS: usize = 100;

/// The numbers of the comment lines of a source file that are too long.
pub fn in_comments(source: &str) -> Vec<usize> {
    let mut prose = Prose::default();
    let mut long = Vec::new();
    for (at, line) in source.lines().enumerate() {
        match comment(line) {
            Some(text) if prose.is_too_long(line, text) => long.push(at + 1),
            Some(_) => {}
            None => prose = Prose::default(),
        }
    }
    long
}

/// The numbers of the lines of comments and docstrings of a Python file that are too long. A
/// docstring is the first string of a file, or of what a colon begins.
pub fn in_python(source: &str) -> Vec<usize> {
    const QUOTES: &str = "\"\"\"";
    let mut prose = Prose::default();
    let mut long = Vec::new();
    // Within a string of several lines: whether it is a docstring.
    let mut string = None;
    let mut follows_colon = true;
    for (at, line) in source.lines().enumerate() {
        let text = line.trim_start();
        let begins_docstring = follows_colon && text.starts_with(QUOTES);
        let is_prose = string.unwrap_or(begins_docstring || text.starts_with('#'));
        if line.matches(QUOTES).count() % 2 == 1 {
            string = if string.is_none() { Some(begins_docstring) } else { None };
        }
        if !text.is_empty() && !text.starts_with('#') {
            follows_colon = text.trim_end().ends_with(':');
        }
        if is_prose && prose.is_too_long(line, text) {
            long.push(at + 1);
        }
    }
    long
}

/// The numbers of the lines of a Markdown file that are too long.
pub fn in_markdown(text: &str) -> Vec<usize> {
    let mut prose = Prose::default();
    let long = text.lines().enumerate().filter(|(_, line)| prose.is_too_long(line, line));
    long.map(|(at, _)| at + 1).collect()
}

/// The text of a line that is nothing but a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.strip_prefix(['/', '!']).unwrap_or(text))
}

/// The state of a walk over lines: whether they are in a block of code.
#[derive(Default)]
struct Prose {
    is_in_code: bool,
}

impl Prose {
    /// Whether the next `line`, whose prose is `text`, is too long.
    fn is_too_long(&mut self, line: &str, text: &str) -> bool {
        let text = text.trim_start();
        if text.starts_with("```") {
            self.is_in_code = !self.is_in_code;
            return false;
        }
        !self.is_in_code && !text.starts_with('|') && line.chars().count() > COLUMNS && width(line) > COLUMNS
    }
}

/// The columns of a line without the targets of its links.
fn width(line: &str) -> usize {
    let mut columns = line.chars().count();
    for (at, _) in line.match_indices("](") {
        let target = &line[at + 2..];
        let end = target.find(')').unwrap_or(target.len());
        columns -= target[..end].chars().count();
    }
    for (at, _) in line.match_indices("://") {
        let is_target = line[..at].rfind("](").is_some_and(|link| !line[link..at].contains(')'));
        if !is_target {
            let target = &line[at..];
            columns -= target[..target.find([' ', '>', ')']).unwrap_or(target.len())].chars().count();
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(start: &str) -> String {
        format!("{start}{}\n", "x".repeat(101 - start.chars().count()))
    }

    #[test]
    fn comments_are_counted_and_code_is_not() {
        let text = [long("//! "), long("    /// "), long("// "), long("let x = \""), "// short\n".to_owned()].concat();
        assert_eq!(in_comments(&text), [1, 2, 3]);
        let fits = format!("// {}\n", "ä".repeat(97));
        assert!(in_comments(&fits).is_empty());
    }

    #[test]
    fn comments_and_docstrings_of_python_are_counted() {
        let docstring = [long("    \"\"\""), long("    "), "    \"\"\"\n".to_owned(), long("x = ")].concat();
        assert_eq!(in_python(&[&long("# "), docstring.as_str()].concat()), [1, 2, 3]);
        assert_eq!(in_python(&["import y\n\ndef x():\n", docstring.as_str()].concat()), [4, 5]);
        assert!(in_python(&["execute(\n", docstring.as_str()].concat()).is_empty());
        let text = ["\"\"\"One line.\"\"\"\n".to_owned(), long("x = "), "x = \"\"\"\n".to_owned(), long("# ")];
        assert!(in_python(&[&text.concat(), "\"\"\"\n", &long("y = ")].concat()).is_empty());
    }

    #[test]
    fn tables_and_code_blocks_may_be_long() {
        let text = [long("//! |"), "//! ```text\n".to_owned(), long("//! "), "//! ```\n".to_owned(), long("//! ")];
        assert_eq!(in_comments(&text.concat()), [5]);
        let text = [long("| "), "```sh\n".to_owned(), long("x"), "```\n".to_owned(), long("x")].concat();
        assert_eq!(in_markdown(&text), [5]);
        // A block that is left open ends with the comment.
        let text = ["// ```\n".to_owned(), "let x;\n".to_owned(), long("// ")].concat();
        assert_eq!(in_comments(&text), [3]);
    }

    #[test]
    fn what_links_lead_to_takes_no_columns() {
        let target = "y".repeat(90);
        assert!(in_markdown(&format!("See [the page](https://{target}/a) and [another](b.md).\n")).is_empty());
        assert!(in_markdown(&format!("See https://{target} for it.\n")).is_empty());
        assert_eq!(in_markdown(&format!("See [{target}](a.md) and [this](b.md).\n")), [1]);
    }
}
