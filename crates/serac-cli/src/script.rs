//! Scripts taken apart: statements, backslash lines, and the data that follows COPY … FROM STDIN.
//!
//! A script may come a few lines at a time. [`Script`] hands out the parts that are complete and
//! keeps the rest until more lines come. It reads nothing twice but the token that is open.

/// A piece of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// A statement, without its semicolon.
    Statement(String),
    /// A backslash command, and the statement that it ends, if it does not stand alone: `SELECT 1
    /// \\gx`.
    Command { line: String, statement: String },
}

/// The token in whose middle an incomplete statement is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Within {
    Statement,
    Quote(char),
    Comment,
}

impl Within {
    /// The character that stands for it in the prompt.
    pub fn sign(self) -> char {
        match self {
            Self::Statement => '-',
            Self::Quote(quote) => quote,
            Self::Comment => '*',
        }
    }
}

/// The end of the quoted text at the beginning of `text`; `None` if it is open. With `escapes`, a
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

/// The length of a comment in `/*` and `*/`, with nested ones; `None` if it is open.
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

/// Whether nothing but comments is left.
fn is_blank(text: &str) -> bool {
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let length = match rest.as_bytes() {
            [b'-', b'-', ..] => rest.find('\n').unwrap_or(rest.len()),
            [b'/', b'*', ..] => match comment_length(rest) {
                Some(length) => length,
                None => return false,
            },
            _ => return false,
        };
        rest = rest[length..].trim_start();
    }
    true
}

/// A script, taken apart from its beginning.
#[derive(Default)]
pub struct Script {
    /// Whole lines. Only the last line of the script may lack its end.
    text: String,
    /// The beginning of the next part.
    start: usize,
    /// The beginning of the next token.
    at: usize,
    /// Whether the data of a COPY comes next.
    is_data: bool,
}

impl Script {
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Adds lines at the end.
    pub fn push(&mut self, lines: &str) {
        self.text.drain(..self.start);
        self.at -= self.start;
        self.start = 0;
        self.text.push_str(lines);
    }

    /// Puts the beginning of a statement before all that is left.
    pub fn put_back(&mut self, statement: &str) {
        self.text.insert_str(self.start, statement);
        self.at = self.start;
    }

    /// The next complete part; an empty statement is skipped. The error names the token in whose
    /// middle the rest is.
    fn part(&mut self) -> Result<Part, Within> {
        while self.at < self.text.len() {
            let (start, at) = (self.start, self.at);
            let rest = &self.text[at..];
            match rest.as_bytes()[0] {
                b'\\' => {
                    let end = rest.find('\n').map_or(self.text.len(), |n| at + n);
                    let statement = self.text[start..at].trim();
                    let statement = if is_blank(statement) { "" } else { statement }.to_owned();
                    let line = self.text[at..end].trim().to_owned();
                    (self.start, self.at) = (end, end);
                    return Ok(Part::Command { line, statement });
                }
                quote @ (b'\'' | b'"') => {
                    let escapes = quote == b'\'' && {
                        let mut before = self.text[start..at].chars().rev();
                        matches!(before.next(), Some('e' | 'E'))
                            && !before.next().is_some_and(|c| c.is_alphanumeric() || c == '_')
                    };
                    self.at += quoted_length(rest, quote, escapes).ok_or(Within::Quote(quote.into()))?;
                }
                b'-' if rest.starts_with("--") => self.at += rest.find('\n').unwrap_or(rest.len()),
                b'/' if rest.starts_with("/*") => self.at += comment_length(rest).ok_or(Within::Comment)?,
                b'$' => {
                    let tag_end = rest[1..].find('$').map(|n| n + 2);
                    let is_word = |c: char| c.is_alphanumeric() || c == '_';
                    // A `$` within a word is a part of it, and a `$` before a digit begins a
                    // parameter.
                    let opens = !self.text[start..at].ends_with(|c| is_word(c) || c == '$')
                        && !rest[1..].starts_with(|c: char| c.is_ascii_digit());
                    let tag = tag_end.map(|n| &rest[..n]).filter(|t| opens && t[1..t.len() - 1].chars().all(is_word));
                    self.at += match tag {
                        Some(tag) => {
                            let length = rest[tag.len()..].find(tag).ok_or(Within::Quote('$'))?;
                            length + 2 * tag.len()
                        }
                        None => 1,
                    }
                }
                b';' => {
                    let statement = self.text[start..at].trim();
                    let part = (!is_blank(statement)).then(|| Part::Statement(statement.to_owned()));
                    (self.start, self.at) = (at + 1, at + 1);
                    if let Some(part) = part {
                        return Ok(part);
                    }
                }
                _ => self.at += rest.chars().next().map_or(1, char::len_utf8),
            }
        }
        Err(Within::Statement)
    }

    /// The next complete part.
    pub fn next_complete(&mut self) -> Option<Part> {
        self.part().ok()
    }

    /// The last statement, which need not end in a semicolon.
    pub fn last(&mut self) -> Option<Part> {
        let last = self.incomplete().map(|last| Part::Statement(last.trim().to_owned()));
        *self = Self::default();
        last
    }

    /// The rest, if that is more than blanks and comments.
    pub fn incomplete(&self) -> Option<&str> {
        Some(&self.text[self.start..]).filter(|rest| !is_blank(rest))
    }

    /// The token that the rest is in the middle of, once the complete parts are taken.
    pub fn within(&mut self) -> Within {
        self.part().err().unwrap_or(Within::Statement)
    }

    /// Begins to read data, with the line behind that of the last statement.
    pub fn begin_data(&mut self) {
        let from = self.text[self.start..].find('\n').map_or(self.text.len(), |n| self.start + n + 1);
        (self.start, self.at, self.is_data) = (from, from, true);
    }

    /// Whether more data may come.
    pub fn is_in_data(&self) -> bool {
        self.is_data
    }

    /// The available data: the lines up to one that is `\.`, which ends it, or all lines.
    pub fn data(&mut self) -> &str {
        if !self.is_data {
            return "";
        }
        let from = self.start;
        let mut to = from;
        for line in self.text[from..].split_inclusive('\n') {
            if line.trim_end() == "\\." {
                (self.start, self.at, self.is_data) = (to + line.len(), to + line.len(), false);
                return &self.text[from..to];
            }
            to += line.len();
        }
        (self.start, self.at) = (to, to);
        &self.text[from..to]
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

    fn split(script: &str) -> (Vec<Part>, Script) {
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
        assert_eq!((left.last(), left.last()), (Some(statement("select 3")), None));
        assert_eq!(split("-- only a comment\n").1.incomplete(), None);
        assert_eq!(
            split(r"select E'it\'s; '; select 'a\'; x").0,
            [statement(r"select E'it\'s; '"), statement(r"select 'a\'")]
        );
        assert_eq!(
            split("select a$1$, b$x$; select $1$;\nselect $x$;$x$").0,
            [statement("select a$1$, b$x$"), statement("select $1$"),]
        );
        assert_eq!(split("/* only */ -- comments\n/* ; */;").0, []);
        assert_eq!(split("/* a */ \\dt\n").0, [command("", "\\dt")]);
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
            let mut script = Script::new(text);
            assert_eq!(script.within(), within);
            assert_eq!(script.incomplete(), Some(text));
        }
    }

    #[test]
    fn data_ends_at_its_mark() {
        let mut script = Script::new("COPY t FROM STDIN;\n1,';'\n2,\n\\.\nSELECT 1;");
        assert_eq!(script.next_complete(), Some(statement("COPY t FROM STDIN")));
        script.begin_data();
        assert_eq!(script.data(), "1,';'\n2,\n");
        assert!(!script.is_in_data());
        assert_eq!(script.next_complete(), Some(statement("SELECT 1")));
        let mut script = Script::new("COPY t FROM STDIN; \n1\n");
        script.next_complete();
        script.begin_data();
        assert_eq!(script.data(), "1\n");
        script.push("2\n\\.\nSELECT 1;\n");
        assert_eq!(script.data(), "2\n");
        assert!(!script.is_in_data());
        assert_eq!(script.next_complete(), Some(statement("SELECT 1")));
    }

    #[test]
    fn a_script_that_comes_line_by_line_is_taken_apart_the_same_way() {
        let whole = "select 1;; select 'a;\n;b', /* ;\n */ $x$;\n$x$;\nselect 2 -- ;\n;\n\\dt\nselect E'\\';\n' \\gx\n";
        let mut script = Script::default();
        let mut parts = Vec::new();
        for line in whole.split_inclusive('\n') {
            script.push(line);
            parts.extend(std::iter::from_fn(|| script.next_complete()));
        }
        assert_eq!(parts, split(whole).0);
        assert_eq!((parts.len(), script.incomplete()), (5, None));
    }

    #[test]
    fn what_is_put_back_comes_before_the_rest() {
        let mut script = Script::new("select 1 \\p\n, 2;");
        assert_eq!(script.next_complete(), Some(command("select 1", "\\p")));
        script.put_back("select 1");
        assert_eq!(script.next_complete(), Some(statement("select 1\n, 2")));
    }
}
