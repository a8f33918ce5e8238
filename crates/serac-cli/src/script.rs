//! Scripts taken apart: statements, backslash lines, and the data that follows COPY … FROM STDIN.

/// The first complete statement or backslash line, and how many bytes of the script it takes; an empty statement is none.
fn next_part(script: &str) -> Option<(String, usize)> {
    let mut start = 0;
    let bytes = script.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &script[at..];
        match bytes[at] {
            b'\\' if script[start..at].trim().is_empty() => {
                let end = rest.find('\n').map_or(script.len(), |n| at + n);
                return Some((script[at..end].trim().to_owned(), end));
            }
            quote @ (b'\'' | b'"') => {
                at += 1 + script[at + 1..].find(quote as char).unwrap_or(script.len() - at - 1) + 1;
                at = at.min(bytes.len());
            }
            b'-' if rest.starts_with("--") => at += rest.find('\n').unwrap_or(rest.len()),
            b'/' if rest.starts_with("/*") => at += rest.find("*/").map_or(rest.len(), |n| n + 2),
            b'$' => {
                let tag_end = rest[1..].find('$').map(|n| n + 2);
                let tag = tag_end.map(|n| &rest[..n]).filter(|t| t[1..t.len() - 1].chars().all(char::is_alphanumeric));
                match tag.and_then(|t| rest[t.len()..].find(t).map(|n| n + 2 * t.len())) {
                    Some(length) => at += length,
                    None => at += 1,
                }
            }
            b';' => {
                let statement = script[start..at].trim();
                at += 1;
                if !statement.is_empty() {
                    return Some((statement.to_owned(), at));
                }
                start = at;
            }
            _ => at += rest.chars().next().map_or(1, char::len_utf8),
        }
    }
    None
}

/// Whether nothing but comments is left.
fn is_blank(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with("--"))
}

/// A script, taken apart from its beginning.
pub struct Script<'s> {
    rest: &'s str,
}

impl<'s> Script<'s> {
    pub fn new(script: &'s str) -> Self {
        Self { rest: script }
    }
    /// The next complete statement, without its semicolon, or backslash line.
    pub fn next_complete(&mut self) -> Option<String> {
        let (part, used) = next_part(self.rest)?;
        self.rest = &self.rest[used..];
        Some(part)
    }
    /// The next statement or backslash line; the last may do without a semicolon.
    pub fn next(&mut self) -> Option<String> {
        self.next_complete().or_else(|| {
            let last = std::mem::take(&mut self.rest);
            (!is_blank(last)).then(|| last.to_owned())
        })
    }
    /// Whether something incomplete is left.
    pub fn is_incomplete(&self) -> bool {
        !is_blank(self.rest)
    }
    /// The data after a COPY … FROM STDIN: the lines up to one that is `\.`, or all there are.
    pub fn data(&mut self) -> &'s str {
        let from = self.rest.find('\n').map_or(self.rest.len(), |n| n + 1);
        let rest = &self.rest[from..];
        let mut at = 0;
        for line in rest.split_inclusive('\n') {
            if line.trim_end() == "\\." {
                self.rest = &rest[at + line.len()..];
                return &rest[..at];
            }
            at += line.len();
        }
        self.rest = "";
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::Script;

    fn split(script: &str) -> (Vec<String>, Script<'_>) {
        let mut script = Script::new(script);
        (std::iter::from_fn(|| script.next_complete()).collect(), script)
    }

    #[test]
    fn scripts_are_split_at_semicolons_outside_of_quotes_and_comments() {
        let (parts, mut left) = split("select ';', \";\"; -- no; end\nselect 2 /* ; */;;\\dt\nselect $$;$$; select 3");
        assert_eq!(parts, ["select ';', \";\"", "-- no; end\nselect 2 /* ; */", "\\dt", "select $$;$$"]);
        assert!(left.is_incomplete());
        assert_eq!(left.next().as_deref().map(str::trim), Some("select 3"));
        assert_eq!(left.next(), None);
        assert!(!split("-- only a comment\n").1.is_incomplete());
        assert!(split("select 'open").1.is_incomplete());
    }

    #[test]
    fn data_ends_at_its_mark() {
        let mut script = Script::new("COPY t FROM STDIN;\n1,';'\n2,\n\\.\nSELECT 1;");
        assert_eq!(script.next().as_deref(), Some("COPY t FROM STDIN"));
        assert_eq!(script.data(), "1,';'\n2,\n");
        assert_eq!(script.next().as_deref(), Some("SELECT 1"));
        let mut script = Script::new("COPY t FROM STDIN; \n1");
        script.next();
        assert_eq!((script.data(), script.next()), ("1", None));
    }
}
