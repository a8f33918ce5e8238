//! Every source file begins with a header in `//!` that says what the file is.

use crate::files::File;

/// Complaints about files without a header.
pub fn check(sources: &[File]) -> Vec<String> {
    let without = sources.iter().filter(|file| !file.text.starts_with("//!"));
    without.map(|file| format!("{}: the file does not begin with `//!`", file.path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_begins_with_code_is_named() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let complaints = check(&[file("a.rs", "//! A.\nuse b;\n"), file("b.rs", "use a;\n//! B.\n")]);
        assert_eq!(complaints, ["b.rs: the file does not begin with `//!`"]);
    }
}
