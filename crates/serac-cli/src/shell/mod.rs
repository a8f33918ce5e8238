//! The shell: statements and backslash commands, from a terminal, a file or a pipe.

mod commands;
mod describe;
mod editor;
mod source;

use crate::ending::Interrupts;
use crate::output::{CopyBar, Mode, RowsWriter, printable};
use crate::script::Part;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use console::Term;
use editor::{LineEditor, Typed, prompt};
use parking_lot::Mutex;
use serac_client::wire::Failure;
use serac_server::folder::{CancelRunning, FolderSession, Sink};
use serac_sql::{TransactionStatus, is_copy, parse, reads_stdin};
use source::Source;
use std::fs::File;
use std::io::{BufWriter, Cursor, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

pub struct ShellOptions {
    pub commands: Vec<String>,
    pub files: Vec<PathBuf>,
    pub mode: Mode,
    pub continue_on_error: bool,
    pub path: Option<PathBuf>,
    /// The session's role; `None` for the superuser.
    pub role: Option<String>,
}

/// The source of the data of COPY … FROM STDIN.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Data {
    /// The data stands in the script, behind the statement.
    Script,
    /// The data comes on the process's standard input.
    Stdin,
    /// The user types it.
    Terminal,
}

struct Shell {
    session: FolderSession,
    /// Folder of the database; `None` if it is in memory.
    path: Option<PathBuf>,
    /// The session's role; `None` for the superuser.
    role: Option<String>,
    display: Display,
    continue_on_error: bool,
    data: Data,
    /// The settings of a shell at a terminal.
    editor: Option<LineEditor>,
    /// The statement that ran last, for \g, \watch and \e.
    last: String,
    /// The number of files that are running, nested by \i.
    nested: usize,
}

/// The target and the form of results.
struct Display {
    mode: Mode,
    timing: bool,
    pager: bool,
    output: Option<File>,
    /// Whether a person types at a terminal.
    is_interactive: bool,
    /// Writes the result that is being shown.
    writer: Option<RowsWriter>,
    /// The beginning of the statement.
    started: Instant,
    /// The progress of the running COPY.
    bar: Arc<Mutex<Option<CopyBar>>>,
    /// Whether names of tables and columns may have changed since Tab learned them.
    names_changed: bool,
}

/// The status of a program that Ctrl-C has ended.
const INTERRUPTED: i32 = 130;

/// Waits for `work`; Ctrl-C cancels it, and `tick` is called now and then. If it runs in another
/// process, the third Ctrl-C ends this one: that process may be stopped, and never answer.
async fn cancellable<T>(
    work: impl Future<Output = T>,
    cancel: &CancelRunning,
    holder: Option<u32>,
    mut tick: impl FnMut(),
) -> T {
    tokio::pin!(work);
    let mut ticks = tokio::time::interval(CopyBar::TICK);
    let (mut signals, mut interrupts) = (Interrupts::listen(), 0);
    loop {
        tokio::select! {
            result = &mut work => return result,
            () = signals.next() => {
                cancel.cancel();
                interrupts += 1;
                match holder {
                    Some(holder) if interrupts == 2 => eprintln!(
                        "process {holder}, which has the database open, has not answered yet; Ctrl-C again ends this \
                         shell, and it is not known then whether the statement has been committed"
                    ),
                    Some(_) if interrupts > 2 => std::process::exit(INTERRUPTED),
                    _ => {}
                }
            }
            _ = ticks.tick() => tick(),
        }
    }
}

/// Writes a text. False if the output is closed (head, less), which is not an error of the shell.
fn write_to(output: &mut Option<File>, text: &str) -> bool {
    let result = match output {
        Some(file) => file.write_all(text.as_bytes()),
        None => std::io::stdout().write_all(text.as_bytes()),
    };
    result.is_ok()
}

/// The names that Tab completes, of a database that is open in another process.
const NAMES: &str = "SELECT DISTINCT table_name FROM information_schema.tables \
    WHERE table_schema NOT IN ('pg_catalog', 'information_schema') \
    UNION SELECT DISTINCT column_name FROM information_schema.columns \
    WHERE table_schema NOT IN ('pg_catalog', 'information_schema')";

/// Shows a text a page at a time; false if there is no pager.
fn page(text: &str) -> bool {
    let pager = std::env::var("PAGER").ok().filter(|pager| !pager.trim().is_empty());
    let mut command = Command::new("sh");
    // The options of less: it ends at once if a page is enough, does not wrap lines, and leaves the
    // text on the screen.
    command.args(["-c", &pager.unwrap_or_else(|| "less -FSRX".into())]).stdin(Stdio::piped());
    let Ok(mut child) = command.spawn() else { return false };
    // A pager that ends early closes its end.
    let _ = child.stdin.take().expect("it is piped").write_all(text.as_bytes());
    child.wait().is_ok_and(|status| status.code() != Some(127))
}

/// An error as a person reads it: SQLSTATE, message, and a caret under the place.
fn show_error(error: &Failure, sql: &str) -> String {
    let mut text = error.to_string();
    if let Some((line, column)) = error.position
        && let Some(source) = sql.lines().nth(line.saturating_sub(1) as usize)
    {
        let number = format!("LINE {line}: ");
        let indent = " ".repeat(number.len() + (column as usize).saturating_sub(1));
        text.push_str(&format!("\n{number}{source}\n{indent}^"));
    }
    printable(&text, true)
}

/// A statement as one text of SQL: \copy is COPY.
fn as_sql(part: &Part) -> Option<String> {
    match part {
        Part::Statement(sql) => Some(sql.clone()),
        Part::Command { line, statement } if statement.is_empty() => {
            let rest = line.strip_prefix("\\copy").filter(|rest| rest.starts_with(char::is_whitespace))?;
            Some(format!("COPY{}", rest.trim_end_matches(';')))
        }
        Part::Command { .. } => None,
    }
}

impl Display {
    fn write(&mut self, text: &str) {
        write_to(&mut self.output, text);
    }

    /// Shows the result of a query, or of a command.
    fn show(&mut self, text: &str) -> bool {
        let term = Term::stdout();
        let (height, width) = term.size_checked().unwrap_or((u16::MAX, u16::MAX));
        let is_long = text.lines().count() >= usize::from(height)
            || text.lines().any(|line| console::measure_text_width(line) > usize::from(width));
        let is_paged = self.pager && self.is_interactive && self.output.is_none() && term.is_term() && is_long;
        (is_paged && page(text)) || write_to(&mut self.output, text)
    }

    /// Whether a person reads the results.
    fn is_for_people(&self) -> bool {
        matches!(self.mode, Mode::Table | Mode::Expanded)
    }
}

impl Sink for Display {
    fn rows(&mut self, schema: &SchemaRef) -> bool {
        let writer = self.writer.insert(RowsWriter::new(schema.clone(), self.mode));
        write_to(&mut self.output, &writer.start())
    }

    fn batch(&mut self, batch: &RecordBatch) -> bool {
        let Some(writer) = &mut self.writer else { unreachable!("the columns come first") };
        write_to(&mut self.output, &writer.rows(batch))
    }

    fn complete(&mut self, tag: &str, _rows: u64, is_data: bool) {
        drop(self.bar.lock().take());
        let shown = match self.writer.take() {
            Some(writer) => {
                let term = Term::stdout();
                let is_seen = self.output.is_none() && term.is_term();
                let size = term.size_checked().filter(|_| is_seen);
                writer.finish(size.map(|(_, width)| usize::from(width)))
            }
            None if self.is_for_people() && !is_data => format!("{tag}\n"),
            None => String::new(),
        };
        self.show(&shown);
        self.names_changed |= ["CREATE", "ALTER", "DROP"].iter().any(|word| tag.starts_with(word));
        let took = std::mem::replace(&mut self.started, Instant::now()).elapsed();
        if self.timing {
            self.write(&format!("Time: {:.3} ms\n", took.as_secs_f64() * 1e3));
        }
    }

    fn notice(&mut self, severity: &str, message: &str) {
        eprintln!("{severity}: {}", printable(message, true));
    }

    fn notification(&mut self, process: i32, channel: &str, payload: &str) {
        let text = if payload.is_empty() { String::new() } else { format!(" with payload \"{payload}\"") };
        let (channel, text) = (printable(channel, false), printable(&text, false));
        eprintln!("Asynchronous notification \"{channel}\"{text} received from server process with PID {process}.");
    }

    fn moved(&mut self, why: &str, holder: Option<u32>) {
        self.names_changed = true;
        let place = holder.map_or("in this process".into(), |holder| format!("in process {holder}"));
        let why = printable(why, true);
        eprintln!("NOTICE: {why}; the session goes on as a new one, with the database open {place}");
    }
}

impl Shell {
    fn write(&mut self, text: &str) {
        self.display.write(text);
    }

    fn show(&mut self, text: &str) -> bool {
        self.display.show(text)
    }

    async fn sql(&mut self, sql: &str) -> Result<(), Failure> {
        let Self { session, display, .. } = self;
        // First a search for the word: most statements lack it, and need not be parsed.
        let copies = sql.as_bytes().windows(4).any(|word| word.eq_ignore_ascii_case(b"copy"))
            && parse(sql).is_ok_and(|statements| statements.iter().any(is_copy));
        if copies {
            let file = display.output.as_ref().and_then(|file| file.try_clone().ok());
            session.set_copy_output(match file {
                Some(file) => Box::new(BufWriter::new(file)),
                None => Box::new(BufWriter::new(std::io::stdout())),
            });
        }
        let bar = display.bar.clone();
        *bar.lock() = copies.then(|| CopyBar::new(session.progress()));
        let tick = || {
            if let Some(bar) = &mut *bar.lock() {
                bar.tick();
            }
        };
        display.started = Instant::now();
        let (cancel, holder) = (session.cancel_handle(), session.holder());
        let result = cancellable(session.run(sql, display), &cancel, holder, tick).await;
        display.writer = None;
        drop(bar.lock().take());
        result
    }

    /// Runs the user's statement, and keeps it for \g.
    async fn statement(&mut self, sql: &str) -> Result<(), String> {
        self.last = sql.to_owned();
        self.sql(sql).await.map_err(|error| show_error(&error, sql))
    }

    /// Lets the user type the data of a COPY.
    fn typed_data(&mut self) -> String {
        println!(
            "Enter data to be copied followed by a newline.\nEnd with a backslash and a period on a line by itself, or Ctrl-D."
        );
        let mut data = String::new();
        if let Some(editor) = &mut self.editor {
            while let Ok(Typed::Line(line)) = editor.read(">> ")
                && line.trim_end() != "\\."
            {
                data.push_str(&line);
                data.push('\n');
            }
        }
        data
    }

    /// Runs one part of a script; Ok(false) if it said \q.
    async fn part(&mut self, part: Part, source: &Source) -> Result<bool, String> {
        match as_sql(&part) {
            Some(sql) => {
                match sql.trim().to_lowercase().as_str() {
                    "exit" | "quit" => return Ok(false),
                    "help" => {
                        self.write(commands::GREETING);
                        return Ok(true);
                    }
                    _ => {}
                }
                if !reads_stdin(&sql) {
                    return self.statement(&sql).await.map(|()| true);
                }
                let data: Box<dyn Read + Send> = match self.data {
                    Data::Stdin => Box::new(std::io::stdin()),
                    Data::Script => Box::new(source.data()),
                    Data::Terminal => Box::new(Cursor::new(self.typed_data().into_bytes())),
                };
                self.session.set_copy_input(data);
                let result = self.statement(&sql).await;
                source.skip_data().await.map_err(|error| error.to_string())?;
                result.map(|()| true)
            }
            None => {
                let Part::Command { line, statement } = part else { unreachable!("a statement is SQL") };
                self.command(&line, statement, source).await
            }
        }
    }

    /// Runs a part, and prints its error; Ok(false) if the script ends here.
    async fn run(&mut self, part: Part, source: &Source) -> Result<bool, ()> {
        self.part(part, source).await.or_else(|message| {
            if !message.is_empty() {
                eprintln!("{message}");
            }
            if self.continue_on_error { Ok(true) } else { Err(()) }
        })
    }

    /// Runs the parts of a script that are complete; Ok(false) if it said \q.
    async fn run_complete(&mut self, source: &Source) -> Result<bool, ()> {
        while let Some(part) = source.next_complete() {
            if !self.run(part, source).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Runs a whole script; Ok(false) if it said \q.
    async fn script(&mut self, source: &Source) -> Result<bool, ()> {
        while let Some(part) = source.next().await.map_err(|error| eprintln!("{error}"))? {
            if !self.run(part, source).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The names of tables and columns, if they may have changed.
    async fn names(&mut self) -> Option<Vec<String>> {
        if let Some(session) = self.session.here() {
            let mut names = Vec::new();
            for table in session.database().catalog().tables() {
                names.push(table.name().to_owned());
                names.extend(table.definition.visible_columns().iter().map(|c| c.name.clone()));
            }
            return Some(names);
        }
        // A query in a transaction would be part of it.
        let may_ask = self.display.names_changed && self.session.transaction_status() == TransactionStatus::Idle;
        if !may_ask || self.session.holder().is_none() {
            return None;
        }
        let batches = self.session.query_aside(NAMES).await?;
        self.display.names_changed = false;
        Some(batches.iter().flat_map(|batch| crate::output::texts(batch, "")).flatten().collect())
    }

    async fn interactive(&mut self) -> Result<(), String> {
        let place = self.path.as_ref().map_or("in memory".into(), |p| p.display().to_string());
        println!("SeracDB {} ({place}). \\? for help, \\q to quit.", env!("CARGO_PKG_VERSION"));
        self.editor = Some(LineEditor::new()?);
        self.display.is_interactive = true;
        self.continue_on_error = true;
        self.data = Data::Terminal;
        let source = Source::text("");
        // All lines since the statement began, for the history.
        let mut typed = String::new();
        loop {
            let within = source.incomplete().map(|(_, within)| within);
            let prompt = prompt(self.session.transaction_status(), within);
            let names = self.names().await;
            let editor = self.editor.as_mut().expect("it is interactive");
            if let Some(names) = names {
                editor.know(names);
            }
            match editor.read(&prompt)? {
                Typed::Line(line) => {
                    let word = line.trim().trim_end_matches(';').to_lowercase();
                    let line = match word.as_str() {
                        "exit" | "quit" | "help" if within.is_none() => format!("{word};"),
                        "exit" | "quit" => {
                            println!("Use \\q to quit.");
                            line
                        }
                        _ => line,
                    };
                    typed.push_str(&line);
                    typed.push('\n');
                    source.push(&format!("{line}\n"));
                    let goes_on = self.run_complete(&source).await.unwrap_or(true);
                    if source.incomplete().is_none() {
                        // The rest is nothing but comments.
                        source.clear();
                        let entry = std::mem::take(&mut typed);
                        if let Some(editor) = self.editor.as_mut().filter(|_| !entry.trim().is_empty()) {
                            editor.remember(&entry);
                        }
                    }
                    if !goes_on {
                        break;
                    }
                }
                Typed::Interrupted => {
                    source.clear();
                    typed.clear();
                }
                Typed::End => break,
            }
        }
        Ok(())
    }
}

/// Runs the shell.
pub async fn run(session: FolderSession, options: ShellOptions) -> Result<(), String> {
    let display = Display {
        mode: options.mode,
        timing: false,
        pager: true,
        output: None,
        is_interactive: false,
        writer: None,
        started: Instant::now(),
        bar: Arc::default(),
        names_changed: true,
    };
    let mut shell = Shell {
        session,
        path: options.path,
        role: options.role,
        display,
        continue_on_error: options.continue_on_error,
        data: Data::Script,
        editor: None,
        last: String::new(),
        nested: 0,
    };
    let failed = |result: Result<bool, ()>| result.map_err(|()| String::new());
    if options.commands.is_empty() && options.files.is_empty() {
        if std::io::stdin().is_terminal() {
            return shell.interactive().await;
        }
        let source = Source::stream(std::io::stdin()).map_err(|error| error.to_string())?;
        failed(shell.script(&source).await)?;
    }
    shell.data = Data::Stdin;
    for command in &options.commands {
        if !failed(shell.script(&Source::text(command)).await)? {
            return Ok(());
        }
    }
    shell.data = Data::Script;
    for file in &options.files {
        let script = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        if !failed(shell.script(&Source::text(script)).await)? {
            return Ok(());
        }
    }
    Ok(())
}
