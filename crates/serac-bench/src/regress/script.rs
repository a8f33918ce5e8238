//! A script of psql, cut into statements and backslash commands by psql's rules.
//!
//! The script is cut lazily, because the cuts depend on the server: the rows of `COPY … FROM STDIN`
//! are in the script only where the server asks for them, and `standard_conforming_strings`
//! determines the meaning of a backslash in quotes.

use super::lexer::{Kind, next};
use std::collections::HashMap;

/// psql's variables.
pub type Variables = HashMap<String, String>;

/// The form in which a variable's value is put into a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quoting {
    /// `:name`
    Plain,
    /// `:'name'`
    Literal,
    /// `:"name"`
    Name,
    /// `:{?name}`: TRUE if the variable exists, otherwise FALSE.
    Exists,
}

/// A part of a statement, or of a command's argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    Variable { name: String, quoting: Quoting, written: String },
}

/// The text with values in place of variables. A variable without value stays as it is written.
pub fn render(pieces: &[Piece], variables: &Variables) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Text(text) => text.clone(),
        Piece::Variable { name, quoting, written } => match (quoting, variables.get(name)) {
            (Quoting::Exists, value) => if value.is_some() { "TRUE" } else { "FALSE" }.into(),
            (Quoting::Plain, Some(value)) => value.clone(),
            (Quoting::Literal, Some(value)) => format!("'{}'", value.replace('\'', "''")),
            (Quoting::Name, Some(value)) => format!("\"{}\"", value.replace('"', "\"\"")),
            (_, None) => written.clone(),
        },
    };
    pieces.iter().map(piece).collect()
}

/// A statement for the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    /// Line of its first word, from 1 on.
    pub line: usize,
    pub pieces: Vec<Piece>,
}

impl Statement {
    fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    fn push(&mut self, text: &str) {
        match self.pieces.last_mut() {
            Some(Piece::Text(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Text(text.into())),
        }
    }

    /// Whether a variable of this name is in it.
    pub fn names_variable(&self, wanted: &str) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Variable { name, .. } if name == wanted))
    }
}

/// The next part of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Statement(Statement),
    /// A backslash command, with the content of the buffer if the command sends it.
    Command {
        name: String,
        arguments: Vec<Vec<Piece>>,
        buffer: Option<Statement>,
        line: usize,
    },
}

/// Commands that send the buffer.
const SENDERS: [&str; 7] = ["g", "gx", "gset", "gexec", "gdesc", "crosstabview", "watch"];

/// The nesting at a place in a statement. A semicolon ends the statement outside of parentheses and
/// of `BEGIN ATOMIC … END`.
#[derive(Default)]
struct Nesting {
    parentheses: usize,
    begins: usize,
    /// First letters of the keywords among the first four words that tell a function from other
    /// statements.
    initials: String,
    words: usize,
}

impl Nesting {
    fn word(&mut self, word: &str) {
        let word = word.to_ascii_lowercase();
        if self.words < 4 && ["create", "function", "procedure", "or", "replace"].contains(&word.as_str()) {
            self.initials.push_str(&word[..1]);
        }
        self.words += 1;
        if self.parentheses > 0 || !["cf", "cp", "corf", "corp"].iter().any(|start| self.initials.starts_with(start)) {
            return;
        }
        match word.as_str() {
            "begin" => self.begins += 1,
            "case" if self.begins > 0 => self.begins += 1,
            "end" => self.begins = self.begins.saturating_sub(1),
            _ => {}
        }
    }
}

/// A script that is being read.
pub struct Script<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    buffer: Statement,
    nesting: Nesting,
    /// The server's `standard_conforming_strings`.
    pub standard_strings: bool,
}

impl<'a> Script<'a> {
    pub fn new(text: &'a str) -> Self {
        let (buffer, nesting) = (Statement::default(), Nesting::default());
        Self { text, at: 0, line: 1, buffer, nesting, standard_strings: true }
    }

    /// The number of bytes that have been read.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Drops the statement that has begun.
    pub fn reset(&mut self) {
        self.take();
    }

    fn take(&mut self) -> Statement {
        self.nesting = Nesting::default();
        std::mem::take(&mut self.buffer)
    }

    /// Goes on to a place, and returns the text up to it.
    fn advance(&mut self, end: usize) -> &'a str {
        // A lone backslash before a character leads to a place within the character. The whole
        // character is passed.
        let end = (end.min(self.text.len())..=self.text.len()).find(|&end| self.text.is_char_boundary(end));
        let passed = &self.text[self.at..end.unwrap_or(self.text.len())];
        self.line += passed.matches('\n').count();
        self.at += passed.len();
        passed
    }

    fn push(&mut self, text: &str) {
        if self.buffer.is_empty() {
            self.buffer.line = self.line;
        }
        self.buffer.push(text);
    }

    /// A variable that begins here, and where it ends.
    fn variable(&self) -> Option<(Piece, usize)> {
        let rest = self.text[self.at..].strip_prefix(':')?;
        if self.text[..self.at].ends_with(':') {
            return None;
        }
        let in_name = |c: char| c.is_alphanumeric() || c == '_';
        let (quoting, open, close) = match rest.as_bytes().first()? {
            b'\'' => (Quoting::Literal, "'", "'"),
            b'"' => (Quoting::Name, "\"", "\""),
            b'{' => (Quoting::Exists, "{?", "}"),
            _ => (Quoting::Plain, "", ""),
        };
        let inner = rest.strip_prefix(open)?;
        let length = inner.find(|c| !in_name(c)).unwrap_or(inner.len());
        if length == 0 || !inner[length..].starts_with(close) {
            return None;
        }
        let end = self.at + 1 + open.len() + length + close.len();
        let written = self.text[self.at..end].to_owned();
        Some((Piece::Variable { name: inner[..length].into(), quoting, written }, end))
    }

    /// Rows for COPY, up to a line `\.`, which is passed too. They begin on the line behind the
    /// statement.
    pub fn copy_data(&mut self) -> String {
        let line_end = self.text[self.at..].find('\n').map_or(self.text.len(), |length| self.at + length + 1);
        self.advance(line_end);
        let mut data = String::new();
        while self.at < self.text.len() {
            let end = self.text[self.at..].find('\n').map_or(self.text.len(), |length| self.at + length + 1);
            let line = self.advance(end);
            if line.trim_end_matches(['\r', '\n']) == "\\." {
                break;
            }
            data.push_str(line);
        }
        data
    }

    /// The value of an argument in quotes, which may have escapes.
    fn quoted_argument(&mut self) -> String {
        let (bytes, mut end, mut value) = (self.text.as_bytes(), self.at + 1, Vec::new());
        while end < bytes.len() && bytes[end] != b'\n' {
            let (byte, length) = match (bytes[end], bytes.get(end + 1)) {
                (b'\'', Some(b'\'')) => (b'\'', 2),
                (b'\'', _) => break,
                (b'\\', Some(b'n')) => (b'\n', 2),
                (b'\\', Some(b't')) => (b'\t', 2),
                (b'\\', Some(&other)) => (other, 2),
                (byte, _) => (byte, 1),
            };
            value.push(byte);
            end += length;
        }
        self.advance(end + 1);
        String::from_utf8_lossy(&value).into_owned()
    }

    /// The arguments of a command: words up to the end of the line or the next backslash.
    fn arguments(&mut self) -> Vec<Vec<Piece>> {
        let mut arguments = Vec::new();
        let mut word: Option<Vec<Piece>> = None;
        while let Some(c) = self.text[self.at..].chars().next() {
            if c == '\n' || c == '\\' {
                break;
            }
            if c.is_whitespace() {
                arguments.extend(word.take());
                self.advance(self.at + c.len_utf8());
                continue;
            }
            let word = word.get_or_insert_default();
            if let Some((piece, end)) = self.variable() {
                self.advance(end);
                word.push(piece);
                continue;
            }
            if c == '\'' {
                let value = self.quoted_argument();
                word.push(Piece::Text(value));
                continue;
            }
            let text = self.advance(self.at + c.len_utf8());
            word.push(Piece::Text(text.into()));
        }
        arguments.extend(word);
        arguments
    }

    /// A backslash command; `None` if it concerns the buffer only.
    fn command(&mut self) -> Option<Item> {
        let line = self.line;
        self.advance(self.at + 1);
        if self.text[self.at..].starts_with(';') {
            self.advance(self.at + 1);
            self.push(";");
            return None;
        }
        if self.text[self.at..].starts_with('\\') {
            self.advance(self.at + 1);
            return None;
        }
        let rest = &self.text[self.at..];
        let length = rest.find(|c: char| c.is_whitespace() || c == '\\').unwrap_or(rest.len());
        let name = self.advance(self.at + length).to_owned();
        let arguments = self.arguments();
        if name == "r" || name == "reset" {
            self.reset();
            return None;
        }
        let sends = SENDERS.contains(&name.as_str());
        let buffer = if sends && !self.buffer.is_empty() { Some(self.take()) } else { None };
        Some(Item::Command { name, arguments, buffer, line })
    }
}

impl Iterator for Script<'_> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        while self.at < self.text.len() {
            if let Some((piece, end)) = self.variable() {
                self.push("");
                self.buffer.pieces.push(piece);
                self.advance(end);
                continue;
            }
            let (kind, end) = next(self.text.as_bytes(), self.at, self.standard_strings);
            let first = self.text.as_bytes()[self.at];
            match kind {
                Kind::Space | Kind::Comment if self.buffer.is_empty() => {
                    self.advance(end);
                    continue;
                }
                Kind::Symbol if first == b'\\' => {
                    if let Some(command) = self.command() {
                        return Some(command);
                    }
                    continue;
                }
                Kind::Symbol if first == b';' && self.nesting.parentheses == 0 && self.nesting.begins == 0 => {
                    self.advance(end);
                    let statement = self.take();
                    if statement.is_empty() {
                        continue;
                    }
                    return Some(Item::Statement(statement));
                }
                Kind::Symbol if first == b'(' => self.nesting.parentheses += 1,
                Kind::Symbol if first == b')' => {
                    self.nesting.parentheses = self.nesting.parentheses.saturating_sub(1);
                }
                Kind::Word => self.nesting.word(&self.text[self.at..end]),
                _ => {}
            }
            let line = self.line;
            let text = self.advance(end);
            if self.buffer.is_empty() {
                self.buffer.line = line;
            }
            self.buffer.push(text);
        }
        let rest = self.take();
        (!rest.is_empty()).then_some(Item::Statement(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Statements as text, with their lines, and names of commands with the buffers that they send.
    fn cut(text: &str) -> Vec<String> {
        let none = Variables::new();
        Script::new(text)
            .map(|item| match item {
                Item::Statement(statement) => format!("{}: {}", statement.line, render(&statement.pieces, &none)),
                Item::Command { name, arguments, buffer, line } => {
                    let arguments: Vec<String> = arguments.iter().map(|pieces| render(pieces, &none)).collect();
                    let sent = buffer.map(|statement| render(&statement.pieces, &none));
                    format!("{line}: \\{name} {arguments:?} {sent:?}")
                }
            })
            .collect()
    }

    #[test]
    fn semicolons_in_quotes_comments_and_parentheses_end_nothing() {
        assert_eq!(
            cut("-- a;\nSELECT ';' /* ; /* */ ; */;;\n\nSELECT $a$;$$;$a$, \";\";\nCREATE RULE r AS DO (a; b);"),
            ["2: SELECT ';' /* ; /* */ ; */", "4: SELECT $a$;$$;$a$, \";\"", "5: CREATE RULE r AS DO (a; b)",]
        );
    }

    #[test]
    fn bodies_of_functions_hold_statements() {
        let function =
            "CREATE OR REPLACE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE a WHEN 1 THEN 2 END; END";
        assert_eq!(
            cut(&format!("{function};\nBEGIN; END;")),
            [format!("1: {function}"), "2: BEGIN".into(), "2: END".into()]
        );
    }

    #[test]
    fn commands_end_with_the_line_and_some_send_the_buffer() {
        assert_eq!(
            cut(
                "SELECT 1 AS x \\gset p_ \\echo hi\n\\set a 'b c' d\nSELECT 2\\; SELECT 3;\nSELECT 4 \\r\n\\d t\nSELECT 5"
            ),
            [
                "1: \\gset [\"p_\"] Some(\"SELECT 1 AS x \")",
                "1: \\echo [\"hi\"] None",
                "2: \\set [\"a\", \"b c\", \"d\"] None",
                "3: SELECT 2; SELECT 3",
                "5: \\d [\"t\"] None",
                "6: SELECT 5",
            ]
        );
    }

    #[test]
    fn variables_are_told_from_casts_and_slices() {
        let variables = Variables::from([("a".into(), "it's".into())]);
        let item = Script::new("SELECT :a, :'a', :\"a\", x::a, y[1:b], ':a', :{?a}, :{?b}, :'c';").next();
        let Some(Item::Statement(statement)) = item else { panic!("{item:?}") };
        assert_eq!(
            render(&statement.pieces, &variables),
            "SELECT it's, 'it''s', \"it's\", x::a, y[1:b], ':a', TRUE, FALSE, :'c'"
        );
    }

    #[test]
    fn copied_rows_are_no_statements() {
        let mut script = Script::new("COPY t FROM STDIN; -- rows\n1;\t'\n\\N\n\\.\nSELECT 1;");
        assert!(matches!(script.next(), Some(Item::Statement(_))));
        assert_eq!(script.copy_data(), "1;\t'\n\\N\n");
        assert!(matches!(script.next(), Some(Item::Statement(Statement { line: 5, .. }))));
        assert_eq!(script.next(), None);
    }

    #[test]
    fn characters_of_several_bytes_are_kept() {
        assert_eq!(cut("SELECT 'ä' AS ö; \\echo ü"), ["1: SELECT 'ä' AS ö", "1: \\echo [\"ü\"] None"]);
    }
}
