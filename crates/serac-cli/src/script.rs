//! Scripts taken apart: statements, backslash lines, and the data that follows COPY … FROM STDIN.

/// A piece of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// A statement, without its semicolon.
    Statement(String),
    /// A backslash command, and the statement that it ends, if it does not stand alone: `SELECT 1
    /// \\gx`.
    Command { line: String, statement: String },
}

/// What a statement that is not complete yet is in the middle of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Within {
    Statement,
    Quote(char),
    Comment,
}

impl Within {
    /// The sign that a prompt has for it.
    pub fn sign(self) -> char {
        match self {
            Self::Statement => '-',
            Self::Quote(quote) => quote,
            Self::Comment => '*',
        }
    }
}

/// Where the text in quotes ends that `text` begins with; none if it is open. With `escapes`, a
/// backslash hides the character behind it.
fn quoted_length(text: &str, quote: u8, escapes: bool) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if escapes => at += 2,
            byte if byte == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
    None
}

/// The length of a comment in `/*` and `*/`, in which others may stand; none if it is open.
fn comment_length(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0, 0);
    while at + 1 < text.len() {
        match &text.as_bytes()[at..at + 2] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// The first complete part, and how many bytes of the script it takes; an empty statement is none.
/// If there is no complete part: what the rest is in the middle of.
fn next_part(script: &str) -> Result<(Part, usize), Within> {
    let mut start = 0;
    let bytes = script.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &script[at..];
        match bytes[at] {
            b'\\' => {
                let end = rest.find('\n').map_or(script.len(), |n| at + n);
                let statement = script[start..at].trim();
                let statement = if is_blank(statement) { "" } else { statement };
                let line = script[at..end].trim().to_owned();
                return Ok((Part::Command { line, statement: statement.to_owned() }, end));
            }
            quote @ (b'\'' | b'"') => {
                let escapes = quote == b'\'' && {
                    let mut before = script[start..at].chars().rev();
                    matches!(before.next(), Some('e' | 'E'))
                        && !before.next().is_some_and(|c| c.is_alphanumeric() || c == '_')
                };
                at += quoted_length(rest, quote, escapes).ok_or(Within::Quote(quote.into()))?;
            }
            b'-' if rest.starts_with("--") => at += rest.find('\n').unwrap_or(rest.len()),
            b'/' if rest.starts_with("/*") => at += comment_length(rest).ok_or(Within::Comment)?,
            b'$' => {
                let tag_end = rest[1..].find('$').map(|n| n + 2);
                let is_word = |c: char| c.is_alphanumeric() || c == '_';
                let tag = tag_end.map(|n| &rest[..n]).filter(|t| t[1..t.len() - 1].chars().all(is_word));
                match tag {
                    Some(tag) => {
                        let length = rest[tag.len()..].find(tag).ok_or(Within::Quote('$'))?;
                        at += length + 2 * tag.len();
                    }
                    None => at += 1,
                }
            }
            b';' => {
                let statement = script[start..at].trim();
                at += 1;
                if !is_blank(statement) {
                    return Ok((Part::Statement(statement.to_owned()), at));
                }
                start = at;
            }
            _ => at += rest.chars().next().map_or(1, char::len_utf8),
        }
    }
    Err(Within::Statement)
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
    /// The next complete part.
    pub fn next_complete(&mut self) -> Option<Part> {
        let (part, used) = next_part(self.rest).ok()?;
        self.rest = &self.rest[used..];
        Some(part)
    }
    /// The next part; the last statement may do without a semicolon.
    pub fn next(&mut self) -> Option<Part> {
        self.next_complete().or_else(|| {
            let last = std::mem::take(&mut self.rest);
            (!is_blank(last)).then(|| Part::Statement(last.trim().to_owned()))
        })
    }
    /// What is left, if that is more than blanks and comments.
    pub fn incomplete(&self) -> Option<&'s str> {
        (!is_blank(self.rest)).then_some(self.rest)
    }
    /// What the rest is in the middle of.
    pub fn within(&self) -> Within {
        next_part(self.rest).err().unwrap_or(Within::Statement)
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
    use super::{Part, Script, Within};

    fn statement(text: &str) -> Part {
        Part::Statement(text.into())
    }
    fn command(statement: &str, line: &str) -> Part {
        Part::Command { line: line.into(), statement: statement.into() }
    }
    fn split(script: &str) -> (Vec<Part>, Script<'_>) {
        let mut script = Script::new(script);
        (std::iter::from_fn(|| script.next_complete()).collect(), script)
    }

    #[test]
    fn scripts_are_split_at_semicolons_outside_of_quotes_and_comments() {
        let (parts, mut left) = split("select ';', \";\"; -- no; end\nselect 2 /* ; */;;\\dt\nselect $$;$$; select 3");
        let wanted = [
            statement("select ';', \";\""),
            statement("-- no; end\nselect 2 /* ; */"),
            command("", "\\dt"),
            statement("select $$;$$"),
        ];
        assert_eq!(parts, wanted);
        assert_eq!(left.incomplete().map(str::trim), Some("select 3"));
        assert_eq!((left.next(), left.next()), (Some(statement("select 3")), None));
        assert_eq!(split("-- only a comment\n").1.incomplete(), None);
        assert_eq!(
            split(r"select E'it\'s; '; select 'a\'; x").0,
            [statement(r"select E'it\'s; '"), statement(r"select 'a\'")]
        );
        assert_eq!(split("select /* a /* b; */ c; */ 1;").0, [statement("select /* a /* b; */ c; */ 1")]);
    }

    #[test]
    fn commands_end_statements() {
        let (parts, _) = split("select 1 \\gx\nselect 2\n\\watch 1\n\\g\n-- no statement\n\\d t\n");
        let wanted =
            [command("select 1", "\\gx"), command("select 2", "\\watch 1"), command("", "\\g"), command("", "\\d t")];
        assert_eq!(parts, wanted);
    }

    #[test]
    fn what_is_open_is_told() {
        for (text, within) in [
            ("select", Within::Statement),
            ("select 'a;", Within::Quote('\'')),
            ("select \"a", Within::Quote('"')),
            ("select $x$ a; $$", Within::Quote('$')),
            ("/* a; /* */", Within::Comment),
        ] {
            let script = Script::new(text);
            assert_eq!((script.within(), script.incomplete()), (within, Some(text)));
        }
    }

    #[test]
    fn data_ends_at_its_mark() {
        let mut script = Script::new("COPY t FROM STDIN;\n1,';'\n2,\n\\.\nSELECT 1;");
        assert_eq!(script.next(), Some(statement("COPY t FROM STDIN")));
        assert_eq!(script.data(), "1,';'\n2,\n");
        assert_eq!(script.next(), Some(statement("SELECT 1")));
        let mut script = Script::new("COPY t FROM STDIN; \n1");
        script.next();
        assert_eq!((script.data(), script.next()), ("1", None));
    }
}
