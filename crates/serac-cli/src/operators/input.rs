//! The lines of the standard input, as frames in a channel. Runs on a thread of its own, which may
//! wait for the user, for a file, and for room in the channel.

use super::client::Progress;
use crate::output::progress_bar;
use indicatif::ProgressBar;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{Context, Editor, Helper, Highlighter, Hinter, Validator};
use serac_column_language::OperatorError;
use serac_column_language::Statement;
use serac_column_language::frames::{ClientFrame, MOST_CHUNK_BYTES, MOST_LINE_BYTES};
use serac_column_language::parse::parse;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use tokio::sync::mpsc::Sender;

/// Frames are sent once they have so many bytes.
const SEND_BYTES: usize = 64 << 10;

const COMMANDS: &[&str] = &[
    "create(db,",
    "create(tbl,",
    "create(col,",
    "create(idx,",
    "load(",
    "relational_insert(",
    "relational_delete(",
    "relational_update(",
    "select(",
    "fetch(",
    "min(",
    "max(",
    "sum(",
    "avg(",
    "add(",
    "sub(",
    "join(",
    "print(",
    "batch_queries()",
    "batch_execute()",
    "single_core()",
    "single_core_execute()",
    "time(",
    "set(",
    "info()",
    "shutdown",
    "clustered",
    "unclustered",
    "sorted",
    "btree",
    "nested-loop",
    "grace-hash",
    "naive-hash",
];

/// Puts statements into the channel.
pub struct Input<'a> {
    progress: &'a Progress,
    frames: Sender<Vec<u8>>,
    out: Vec<u8>,
    /// Whether the progress of loads is shown.
    has_bars: bool,
    /// Whether graphs are drawn.
    draws: bool,
}

/// The text after a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    GoesOn,
    /// The server ends, or has gone.
    Ends,
}

impl<'a> Input<'a> {
    pub fn new(progress: &'a Progress, frames: Sender<Vec<u8>>, has_bars: bool, draws: bool) -> Self {
        Self { progress, frames, out: Vec::new(), has_bars, draws }
    }

    /// Sends the written frame; false if the receiver has gone.
    fn send(&mut self) -> bool {
        self.out.is_empty() || self.frames.blocking_send(std::mem::take(&mut self.out)).is_ok()
    }

    fn put(&mut self, frame: &ClientFrame<'_>) -> bool {
        frame.put(&mut self.out);
        self.out.len() < SEND_BYTES || self.send()
    }

    /// Sends a line's statement, if it has one, and its file.
    fn line(&mut self, line: u64, bytes: &[u8]) -> Next {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_ascii();
        if text.is_empty() || text.starts_with("--") {
            return Next::GoesOn;
        }
        if text.len() > MOST_LINE_BYTES {
            self.progress.fail(line, &OperatorError::LineTooLong(MOST_LINE_BYTES).to_string());
            return Next::GoesOn;
        }
        let statement = parse(text);
        self.progress.sent(line);
        if let Ok(Some(Statement::Shutdown)) = statement {
            self.progress.shuts_down(line);
        }
        if self.draws && matches!(statement, Ok(Some(Statement::Info))) {
            self.progress.asks_for_graph(line);
        }
        let mut is_taken = self.put(&ClientFrame::Statement { line, text });
        match statement {
            Ok(Some(Statement::Load { path })) => is_taken = is_taken && self.file(line, &path),
            Ok(Some(Statement::Shutdown)) => {
                let ends = !self.send() || self.progress.wait() != Some(false);
                return if ends { Next::Ends } else { Next::GoesOn };
            }
            // The server reports the error.
            _ => {}
        }
        if is_taken { Next::GoesOn } else { Next::Ends }
    }

    /// Sends a file; false if the receiver has gone. The rest is left out once the load has failed.
    fn file(&mut self, line: u64, path: &str) -> bool {
        if !self.put(&ClientFrame::LoadBegin) {
            return false;
        }
        let mut buffer = vec![0; MOST_CHUNK_BYTES / 4];
        let opened = File::open(path).and_then(|file| {
            let size = file.metadata()?.len();
            Ok((file, if self.has_bars { progress_bar(size, "loading") } else { ProgressBar::hidden() }))
        });
        let end = opened.and_then(|(mut file, bar)| {
            while self.progress.wants_file(line) {
                match file.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => {
                        bar.inc(count as u64);
                        if !self.put(&ClientFrame::LoadChunk(&buffer[..count])) {
                            break;
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            bar.finish_and_clear();
            Ok(())
        });
        let why = end.map_err(|error| error.to_string());
        self.put(&ClientFrame::LoadEnd(why.as_ref().map(|_| ()).map_err(String::as_str)))
    }

    /// Sends all lines of a stream. Lines that are available together are sent together.
    pub fn stream(&mut self, stream: impl Read) {
        let mut reader = BufReader::with_capacity(SEND_BYTES, stream);
        let (mut line, mut bytes) = (0, Vec::new());
        loop {
            bytes.clear();
            let most = MOST_LINE_BYTES as u64 + 2;
            match reader.by_ref().take(most).read_until(b'\n', &mut bytes) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    self.progress.fail(line + 1, &format!("the standard input cannot be read: {error}"));
                    break;
                }
            }
            line += 1;
            if bytes.len() as u64 == most && !bytes.ends_with(b"\n") {
                self.progress.fail(line, &OperatorError::LineTooLong(MOST_LINE_BYTES).to_string());
                if skip_line(&mut reader).is_err() {
                    break;
                }
            } else if self.line(line, &bytes) == Next::Ends {
                return;
            }
            if !reader.buffer().contains(&b'\n') && !self.send() {
                return;
            }
        }
        self.send();
    }

    /// Lets the user type lines, each of which is answered before the next one.
    pub fn terminal(&mut self) -> Result<(), String> {
        println!("Statements of the operator language, one a line. Ctrl-C cancels, Ctrl-D ends.");
        let config = rustyline::Config::builder().auto_add_history(false).build();
        let mut editor: Editor<Words, DefaultHistory> = Editor::with_config(config).map_err(|e| e.to_string())?;
        let history = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".serac_operators_history"));
        if let Some(history) = &history {
            let _ = editor.load_history(history);
        }
        let words = COMMANDS.iter().map(ToString::to_string).collect();
        editor.set_helper(Some(Words { words, files: FilenameCompleter::new() }));
        let mut line = 0;
        let result = loop {
            match editor.readline("operators> ") {
                Ok(text) => {
                    line += 1;
                    if !text.trim().is_empty() {
                        let _ = editor.add_history_entry(text.trim_end());
                    }
                    if let Some(helper) = editor.helper_mut() {
                        helper.know(&text);
                    }
                    if self.line(line, text.as_bytes()) == Next::Ends || !self.send() || self.progress.wait().is_none()
                    {
                        break Ok(());
                    }
                }
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => break Ok(()),
                Err(error) => break Err(error.to_string()),
            }
        };
        if let Some(history) = &history {
            let _ = editor.save_history(history);
        }
        result
    }
}

/// Skips the rest of a line.
fn skip_line(reader: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = reader.fill_buf()?;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let (count, is_over) = (end.map_or(buffer.len(), |end| end + 1), end.is_some() || buffer.is_empty());
        reader.consume(count);
        if is_over {
            return Ok(());
        }
    }
}

/// The words that Tab completes: commands, earlier input, and files.
#[derive(Helper, Hinter, Highlighter, Validator)]
struct Words {
    words: BTreeSet<String>,
    files: FilenameCompleter,
}

fn is_of_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_' || character == '.'
}

impl Words {
    /// Keeps the names in a line.
    fn know(&mut self, line: &str) {
        let names = line.split(|character| !is_of_word(character));
        let names = names.filter(|name| name.len() > 1 && !name.starts_with(|first: char| first.is_ascii_digit()));
        self.words.extend(names.map(str::to_owned));
    }
}

impl Completer for Words {
    type Candidate = Pair;
    fn complete(&self, line: &str, at: usize, context: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = &line[..at];
        if before.trim_start().starts_with("load") && before.matches('"').count() == 1 {
            return self.files.complete(line, at, context);
        }
        let start = before.rfind(|character| !is_of_word(character)).map_or(0, |place| place + 1);
        let prefix = &before[start..];
        if prefix.is_empty() {
            return Ok((start, Vec::new()));
        }
        let matching = self.words.iter().filter(|word| word.starts_with(prefix) && word.len() > prefix.len());
        Ok((start, matching.map(|word| Pair { display: word.clone(), replacement: word.clone() }).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_line_is_skipped() {
        let mut reader = BufReader::with_capacity(4, &b"long line\nnext"[..]);
        skip_line(&mut reader).unwrap();
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "next");
        skip_line(&mut reader).unwrap();
    }

    #[test]
    fn names_that_were_typed_are_completed() {
        let mut words = Words { words: BTreeSet::new(), files: FilenameCompleter::new() };
        words.know("wet=select(w.rain.mm,1,null) -- x");
        let history = DefaultHistory::new();
        let (start, found) = words.complete("f=fetch(w.", 10, &Context::new(&history)).unwrap();
        let found: Vec<&str> = found.iter().map(|pair| pair.replacement.as_str()).collect();
        assert_eq!((start, found), (8, vec!["w.rain.mm"]));
    }
}
