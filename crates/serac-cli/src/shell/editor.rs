//! The input line: prompts, history, and completion by Tab.

use crate::script::Within;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{Context, Editor, Helper, Highlighter, Hinter, Validator};
use serac_sql::TransactionStatus;
use std::path::PathBuf;

const KEYWORDS: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "ORDER BY",
    "HAVING",
    "LIMIT",
    "INSERT INTO",
    "VALUES",
    "UPDATE",
    "SET",
    "DELETE FROM",
    "CREATE TABLE",
    "CREATE VIEW",
    "CREATE INDEX",
    "ALTER TABLE",
    "DROP TABLE",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT",
    "EXPLAIN",
    "EXPLAIN ANALYZE",
    "COPY",
    "JOIN",
    "LEFT JOIN",
    "ON CONFLICT",
    "RETURNING",
    "PRIMARY KEY",
    "REFERENCES",
    "NOT NULL",
    "DISTINCT",
    "BETWEEN",
    "LIKE",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "TRUNCATE",
];

#[derive(Helper, Hinter, Highlighter, Validator)]
struct ShellHelper {
    words: Vec<String>,
    files: FilenameCompleter,
}

/// Whether a file is named at the end of this line: behind \i and \o, and in quotes behind FROM or
/// TO of a COPY.
fn names_file(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or_default().to_lowercase();
    match first.as_str() {
        "\\i" | "\\o" | "\\g" | "\\gx" => line.contains(char::is_whitespace),
        "copy" | "\\copy" => {
            let (before, _) = line.rsplit_once('\'').unwrap_or_default();
            let last = before.split_whitespace().next_back().unwrap_or_default().to_lowercase();
            matches!(last.as_str(), "from" | "to") && line.matches('\'').count() % 2 == 1
        }
        _ => false,
    }
}

impl Completer for ShellHelper {
    type Candidate = Pair;
    fn complete(&self, line: &str, at: usize, context: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        if names_file(&line[..at]) {
            return self.files.complete(line, at, context);
        }
        let start = line[..at].rfind(|c: char| !(c.is_alphanumeric() || c == '_' || c == '\\')).map_or(0, |n| n + 1);
        let prefix = line[start..at].to_lowercase();
        if prefix.is_empty() {
            return Ok((start, Vec::new()));
        }
        let pair = |word: &String| Pair { display: word.clone(), replacement: word.clone() };
        Ok((start, self.words_with(&prefix).map(pair).collect()))
    }
}

impl ShellHelper {
    /// A helper that knows SQL's keywords and functions, and these names.
    fn new(names: Vec<String>) -> Self {
        let functions = serac_pg::reference::names();
        let words = KEYWORDS.iter().chain(&functions).map(ToString::to_string).chain(names).collect();
        Self { words, files: FilenameCompleter::new() }
    }

    /// The words that begin with small letters.
    fn words_with(&self, prefix: &str) -> impl Iterator<Item = &String> {
        self.words.iter().filter(move |word| word.to_lowercase().starts_with(prefix))
    }
}

/// The user's input.
pub enum Typed {
    Line(String),
    /// Ctrl-C: the begun input is dropped.
    Interrupted,
    /// Ctrl-D.
    End,
}

/// The prompt of a session. `within`: the open token of a statement that has begun.
pub fn prompt(status: TransactionStatus, within: Option<Within>) -> String {
    let status = match status {
        TransactionStatus::Idle => "",
        TransactionStatus::Open => "*",
        TransactionStatus::Failed => "!",
    };
    format!("serac{}{status}> ", within.map_or(String::new(), |within| within.sign().to_string()))
}

/// The terminal's line editor, with the history of a file.
pub struct LineEditor {
    editor: Editor<ShellHelper, DefaultHistory>,
    history: Option<PathBuf>,
}

impl LineEditor {
    /// # Errors
    /// When the terminal cannot be used.
    pub fn new() -> Result<Self, String> {
        let config = rustyline::Config::builder().auto_add_history(false).build();
        let mut editor = Editor::with_config(config).map_err(|e| e.to_string())?;
        let history = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".serac_history"));
        if let Some(history) = &history {
            let _ = editor.load_history(history);
        }
        Ok(Self { editor, history })
    }

    /// Replaces the names of tables and columns that Tab completes.
    pub fn know(&mut self, names: Vec<String>) {
        self.editor.set_helper(Some(ShellHelper::new(names)));
    }

    /// Waits for a line.
    ///
    /// # Errors
    /// When the terminal cannot be read.
    pub fn read(&mut self, prompt: &str) -> Result<Typed, String> {
        match tokio::task::block_in_place(|| self.editor.readline(prompt)) {
            Ok(line) => Ok(Typed::Line(line)),
            Err(ReadlineError::Interrupted) => Ok(Typed::Interrupted),
            Err(ReadlineError::Eof) => Ok(Typed::End),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Puts an input into the history.
    pub fn remember(&mut self, text: &str) {
        let _ = self.editor.add_history_entry(text.trim_end());
    }
}

impl Drop for LineEditor {
    fn drop(&mut self) {
        if let Some(history) = &self.history {
            let _ = self.editor.save_history(history);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_tell_of_transactions_and_of_what_is_open() {
        assert_eq!(prompt(TransactionStatus::Idle, None), "serac> ");
        assert_eq!(prompt(TransactionStatus::Open, Some(Within::Statement)), "serac-*> ");
        assert_eq!(prompt(TransactionStatus::Failed, Some(Within::Quote('\''))), "serac'!> ");
    }

    #[test]
    fn words_functions_and_names_are_completed() {
        let helper = ShellHelper::new(vec!["Regions".to_owned()]);
        let words = |prefix| helper.words_with(prefix).collect::<Vec<_>>();
        assert_eq!(words("reg").first().map(|word| word.as_str()), Some("regexp_count"));
        assert_eq!(words("reg").last().map(|word| word.as_str()), Some("Regions"));
        assert_eq!(words("regexp_rep"), ["regexp_replace"]);
        assert_eq!(words("trunca"), ["TRUNCATE"]);
    }

    #[test]
    fn files_are_completed_where_they_are_named() {
        for (line, wanted) in [
            ("\\i scr", true),
            ("\\i", false),
            ("COPY t FROM '/tmp/x", true),
            ("\\copy (SELECT 'a') TO 'x", true),
            ("\\copy (SELECT 'a", false),
            ("COPY t FROM 'x' ", false),
            ("SELECT 'x", false),
        ] {
            assert_eq!(names_file(line), wanted, "{line}");
        }
    }
}
