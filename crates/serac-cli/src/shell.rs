//! The shell: statements and backslash commands, from a terminal, a file or a pipe.

use crate::blocks::{Canvas, tables_named, watch};
use crate::output::{CopyBar, Mode, RowsWriter};
use crate::script::Script;
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Editor, Helper, Highlighter, Hinter};
use serac_engine::definition::{KeyDefinition, TableDefinition};
use serac_sql::{
    CancelHandle, Notification, Session, SqlDatabase, SqlError, StatementStream, TransactionStatus, reads_stdin,
};
use std::io::{BufWriter, Cursor, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::time::Instant;

pub struct ShellOptions {
    pub commands: Vec<String>,
    pub files: Vec<PathBuf>,
    pub mode: Mode,
    pub continue_on_error: bool,
    pub path: Option<PathBuf>,
}

struct Shell {
    session: Session,
    mode: Mode,
    timing: bool,
    continue_on_error: bool,
    output: Option<std::fs::File>,
    /// Whether COPY … FROM STDIN reads the process's standard input; otherwise its data follows in the script.
    free_stdin: bool,
}

/// Waits for `work`; Ctrl-C cancels it, and `tick` is called now and then.
async fn cancellable<T>(work: impl Future<Output = T>, cancel: &CancelHandle, mut tick: impl FnMut()) -> T {
    tokio::pin!(work);
    let mut ticks = tokio::time::interval(CopyBar::TICK);
    loop {
        tokio::select! {
            result = &mut work => return result,
            _ = tokio::signal::ctrl_c() => cancel.cancel(),
            _ = ticks.tick() => tick(),
        }
    }
}

/// False where nobody reads any more (head, less), which is no error of ours.
fn write_to(output: &mut Option<std::fs::File>, text: &str) -> bool {
    let result = match output {
        Some(file) => file.write_all(text.as_bytes()),
        None => std::io::stdout().write_all(text.as_bytes()),
    };
    result.is_ok()
}

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

const HELP: &str = "\
\\d [NAME]        tables and views, or one of them
\\dt \\dv \\di \\dn \\ds  tables, views, indexes, schemas, sequences
\\timing          show how long statements take
\\mode MODE       table, csv, json, markdown, expanded
\\x               expanded on or off
\\copy …          COPY, as in SQL; FROM STDIN reads what follows, up to a line \\.
\\i FILE          run a file
\\o [FILE]        write results to a file
\\blocks [TABLE]  the blocks by state, as a map; \\blocks+ draws it again and again, until Ctrl-C
\\metrics         figures of the database
\\checkpoint      write a checkpoint
\\q               quit
Statements end with a semicolon. Ctrl-C cancels what runs.
";

#[derive(Helper, Hinter, Highlighter)]
struct ShellHelper {
    words: Vec<String>,
}

impl Completer for ShellHelper {
    type Candidate = Pair;
    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let start = line[..at].rfind(|c: char| !(c.is_alphanumeric() || c == '_' || c == '\\')).map_or(0, |n| n + 1);
        let prefix = line[start..at].to_lowercase();
        if prefix.is_empty() {
            return Ok((start, Vec::new()));
        }
        let matches = |word: &&String| word.to_lowercase().starts_with(&prefix);
        let pair = |word: &String| Pair { display: word.clone(), replacement: word.clone() };
        Ok((start, self.words.iter().filter(matches).map(pair).collect()))
    }
}

impl Validator for ShellHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let mut script = Script::new(context.input());
        while script.next_complete().is_some() {}
        Ok(if script.is_incomplete() { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

/// An error as a person reads it: SQLSTATE, message, and a caret under the place.
fn show_error(error: &SqlError, sql: &str) -> String {
    let mut text = error.to_string();
    if let Some((line, column)) = error.position
        && let Some(source) = sql.lines().nth(line.saturating_sub(1) as usize)
    {
        let number = format!("LINE {line}: ");
        let indent = " ".repeat(number.len() + (column as usize).saturating_sub(1));
        text.push_str(&format!("\n{number}{source}\n{indent}^"));
    }
    text
}

impl Shell {
    fn write(&mut self, text: &str) {
        write_to(&mut self.output, text);
    }

    /// Shows what this session has been told in channels.
    fn tell(&self) {
        for Notification { process, channel, payload } in self.session.notifications().take() {
            let text = if payload.is_empty() { String::new() } else { format!(" with payload \"{payload}\"") };
            eprintln!("Asynchronous notification \"{channel}\"{text} received from server process with PID {process}.");
        }
    }

    async fn sql(&mut self, sql: &str) -> Result<(), SqlError> {
        let copies = sql.trim_start().get(..4).is_some_and(|word| word.eq_ignore_ascii_case("copy"));
        for (i, statement) in self.session.parse(sql)?.into_iter().enumerate() {
            let started = Instant::now();
            let cancel = self.session.cancel_handle();
            let mut bar = copies.then(|| CopyBar::new(self.session.copy_progress()));
            if copies {
                let file = self.output.as_ref().and_then(|file| file.try_clone().ok());
                self.session.set_copy_output(match file {
                    Some(file) => Box::new(BufWriter::new(file)),
                    None => Box::new(BufWriter::new(std::io::stdout())),
                });
            }
            let tick = || {
                if let Some(bar) = &mut bar {
                    bar.tick();
                }
            };
            let people = self.mode == Mode::Table || self.mode == Mode::Expanded;
            let notices = self.session.notices();
            let result = cancellable(self.session.stream_statement(statement), &cancel, tick).await;
            for notice in notices.take() {
                eprintln!("{}: {}", notice.severity.name(), notice.message);
            }
            match result.map_err(|error| error.located(sql, i))? {
                StatementStream::Rows(mut rows) => {
                    let mut writer = RowsWriter::new(rows.schema().clone(), self.mode);
                    let mut wanted = write_to(&mut self.output, &writer.start());
                    while wanted && let Some(batch) = cancellable(rows.next(), &cancel, || {}).await? {
                        wanted = write_to(&mut self.output, &writer.rows(&batch));
                    }
                    write_to(&mut self.output, &writer.finish());
                }
                StatementStream::Command { tag, .. } if people => {
                    drop(bar);
                    write_to(&mut self.output, &format!("{tag}\n"));
                }
                StatementStream::Command { .. } => {}
            }
            self.tell();
            if self.timing {
                let time = started.elapsed().as_secs_f64() * 1e3;
                self.write(&format!("Time: {time:.3} ms\n"));
            }
        }
        Ok(())
    }

    /// Runs a whole script; Ok(false) if it said \q.
    async fn script(&mut self, script: &str) -> Result<bool, ()> {
        let mut script = Script::new(script);
        while let Some(part) = script.next() {
            let sql = part.strip_prefix("\\copy").map_or(part.clone(), |rest| format!("COPY{rest}"));
            if reads_stdin(sql.trim_end_matches(';')) {
                let data: Box<dyn Read + Send> = match self.free_stdin {
                    true => Box::new(std::io::stdin()),
                    false => Box::new(Cursor::new(script.data().as_bytes().to_vec())),
                };
                self.session.set_copy_input(data);
            }
            let result = if part.starts_with('\\') {
                match self.command(&part).await {
                    Ok(true) => Ok(()),
                    Ok(false) => return Ok(false),
                    Err(message) => Err(message),
                }
            } else {
                self.sql(&part).await.map_err(|error| show_error(&error, &part))
            };
            if let Err(message) = result {
                eprintln!("{message}");
                if !self.continue_on_error {
                    return Err(());
                }
            }
        }
        Ok(true)
    }

    async fn command(&mut self, line: &str) -> Result<bool, String> {
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let argument = argument.trim();
        let list = |sql: &str| sql.to_owned();
        let listing = match name {
            "\\q" => return Ok(false),
            "\\?" | "\\h" => {
                self.write(HELP);
                return Ok(true);
            }
            "\\timing" => {
                self.timing = !self.timing;
                self.write(if self.timing { "Timing is on.\n" } else { "Timing is off.\n" });
                return Ok(true);
            }
            "\\x" => {
                self.mode = if self.mode == Mode::Expanded { Mode::Table } else { Mode::Expanded };
                return Ok(true);
            }
            "\\mode" => {
                self.mode = clap::ValueEnum::from_str(argument, true)
                    .map_err(|_| format!("no mode \"{argument}\": table, csv, json, markdown or expanded"))?;
                return Ok(true);
            }
            "\\o" => {
                self.output = match argument {
                    "" => None,
                    path => Some(std::fs::File::create(path).map_err(|e| format!("{path}: {e}"))?),
                };
                return Ok(true);
            }
            "\\i" => {
                let script = std::fs::read_to_string(argument).map_err(|e| format!("{argument}: {e}"))?;
                return Box::pin(self.script(&script)).await.map_err(|()| String::new());
            }
            "\\copy" => format!("COPY {}", argument.trim_end_matches(';')),
            "\\checkpoint" => {
                let report = self.session.database().checkpoint().map_err(|e| e.to_string())?;
                let megabytes = report.bytes as f64 / 1e6;
                self.write(&format!("{} tables, {} rows, {megabytes:.1} MB\n", report.tables, report.rows));
                return Ok(true);
            }
            "\\blocks" => {
                let canvas = match &self.output {
                    Some(_) => Canvas::PLAIN,
                    None => Canvas::stdout(),
                };
                let map = canvas.draw(&tables_named(self.session.database(), argument)?);
                self.write(&map);
                return Ok(true);
            }
            "\\blocks+" => {
                watch(self.session.database(), argument).await?;
                return Ok(true);
            }
            "\\metrics" => {
                let text = metrics(&self.session);
                self.write(&text);
                return Ok(true);
            }
            "\\dt" => list(
                "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type <> 'VIEW' AND table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2",
            ),
            "\\dv" => list(
                "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'VIEW' AND table_schema NOT IN ('pg_catalog', 'information_schema') UNION ALL SELECT schemaname, matviewname FROM pg_matviews ORDER BY 1, 2",
            ),
            "\\d" if argument.is_empty() => list(
                "SELECT table_schema, table_name, table_type FROM information_schema.tables WHERE table_schema NOT IN ('pg_catalog', 'information_schema') UNION ALL SELECT schemaname, matviewname, 'MATERIALIZED VIEW' FROM pg_matviews ORDER BY 1, 2",
            ),
            "\\d" | "\\di" | "\\dn" | "\\ds" => {
                let text = self.describe(name, argument)?;
                self.write(&text);
                return Ok(true);
            }
            other => return Err(format!("unknown command {other}; \\? lists them")),
        };
        self.sql(&listing).await.map_err(|error| show_error(&error, &listing))?;
        Ok(true)
    }

    fn describe(&self, command: &str, argument: &str) -> Result<String, String> {
        use comfy_table::{Table, presets};
        let catalog = self.session.database().catalog();
        let mut out = Table::new();
        out.load_style(presets::UTF8_BORDERS_ONLY);
        match command {
            "\\dn" => {
                out.set_header(["schema"]);
                out.add_rows(catalog.schemas.keys().map(|name| [name]));
            }
            "\\di" => {
                out.set_header(["index", "table", "method", "columns", "unique"]);
                for table in catalog.tables() {
                    for key in &table.definition.keys {
                        out.add_row([
                            key.name.as_str(),
                            table.name(),
                            "btree",
                            &shown_columns(key, &table.definition),
                            if key.unique { "yes" } else { "no" },
                        ]);
                    }
                    for bitmap in &table.definition.bitmaps {
                        let column = &table.definition.columns[bitmap.column].name;
                        out.add_row([&bitmap.name, table.name(), "bitmap", column, "no"]);
                    }
                }
            }
            "\\ds" => {
                out.set_header(["sequence", "last value"]);
                for sequence in catalog.schemas.values().flat_map(|s| s.sequences.values()) {
                    let last = sequence.last().map_or("-".into(), |v| v.to_string());
                    out.add_row([sequence.definition.name.clone(), last]);
                }
            }
            _ => {
                let name = argument.trim_end_matches(';');
                let (schema, short) = name.split_once('.').unwrap_or(("public", name));
                let temporary = self.session.temporary_catalog().filter(|_| schema == "pg_temp" || !name.contains('.'));
                let temporary = temporary.and_then(|catalog| catalog.table("pg_temp", short).ok().cloned());
                let table = match temporary {
                    Some(table) => table,
                    None => catalog.table(schema, short).map_err(|e| e.to_string())?.clone(),
                };
                let schema = &table.definition.schema;
                let definition = &table.definition;
                out.set_header(["column", "type", "nullable", "default"]);
                for c in definition.visible_columns() {
                    let nullable = if c.nullable { "" } else { "not null" };
                    out.add_row([
                        c.name.clone(),
                        c.sql_type.to_string(),
                        nullable.into(),
                        match &c.generation {
                            Some(expression) => format!("generated always as ({expression}) stored"),
                            None => c.default.clone().unwrap_or_default(),
                        },
                    ]);
                }
                let mut text = format!("Table \"{schema}.{short}\"\n{out}\n");
                let names = |columns: &[usize], of: &TableDefinition| {
                    columns.iter().map(|&c| of.columns[c].name.clone()).collect::<Vec<_>>().join(", ")
                };
                for key in &definition.keys {
                    let kind = match (key.primary, key.unique) {
                        (true, _) => "PRIMARY KEY",
                        (_, true) => "UNIQUE",
                        _ => "index",
                    };
                    let include = match &key.include[..] {
                        [] => String::new(),
                        include => format!(" INCLUDE ({})", names(include, definition)),
                    };
                    let columns = shown_columns(key, definition);
                    let condition = key.predicate.as_ref().map_or(String::new(), |text| format!(" WHERE {text}"));
                    text.push_str(&format!("  \"{}\" {kind} ({columns}){include}{condition}\n", key.name));
                }
                for bitmap in &definition.bitmaps {
                    let column = &definition.columns[bitmap.column].name;
                    text.push_str(&format!("  \"{}\" index USING bitmap ({column})\n", bitmap.name));
                }
                for check in &definition.checks {
                    text.push_str(&format!("  \"{}\" CHECK ({})\n", check.name, check.expression));
                }
                for key in &definition.foreign_keys {
                    let columns = names(&key.columns, definition);
                    text.push_str(&format!(
                        "  \"{}\" FOREIGN KEY ({columns}) REFERENCES {} ON DELETE {} ON UPDATE {}\n",
                        key.name, key.parent_table, key.on_delete, key.on_update
                    ));
                }
                if definition.freeze_format != Default::default() {
                    text.push_str(&format!("  WITH (freeze_format = {})\n", definition.freeze_format));
                }
                return Ok(text);
            }
        }
        Ok(format!("{out}\n"))
    }

    async fn interactive(&mut self, path: Option<&PathBuf>) -> Result<(), String> {
        let place = path.map_or("in memory".into(), |p| p.display().to_string());
        println!("SeracDB {} ({place}). \\? for help.", env!("CARGO_PKG_VERSION"));
        let config = rustyline::Config::builder().auto_add_history(true).build();
        let mut editor: Editor<ShellHelper, _> = Editor::with_config(config).map_err(|e| e.to_string())?;
        let history = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".serac_history"));
        if let Some(history) = &history {
            let _ = editor.load_history(history);
        }
        self.continue_on_error = true;
        loop {
            let mut words: Vec<String> = KEYWORDS.iter().map(ToString::to_string).collect();
            for table in self.session.database().catalog().tables() {
                words.push(table.name().to_owned());
                words.extend(table.definition.visible_columns().iter().map(|c| c.name.clone()));
            }
            editor.set_helper(Some(ShellHelper { words }));
            let prompt = match self.session.transaction_status() {
                TransactionStatus::Idle => "serac> ",
                TransactionStatus::Open => "serac*> ",
                TransactionStatus::Failed => "serac!> ",
            };
            match tokio::task::block_in_place(|| editor.readline(prompt)) {
                Ok(mut line) => {
                    if let Some(last) = last_part(&line).filter(|last| reads_stdin(last)) {
                        println!("Enter the data for {last}; end it with a line \\.");
                        line.push('\n');
                        while let Ok(data) = tokio::task::block_in_place(|| editor.readline("data> "))
                            && data.trim_end() != "\\."
                        {
                            line.push_str(&data);
                            line.push('\n');
                        }
                    }
                    if !self.script(&line).await.unwrap_or(true) {
                        break;
                    }
                }
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => break,
                Err(error) => return Err(error.to_string()),
            }
        }
        if let Some(history) = &history {
            let _ = editor.save_history(history);
        }
        Ok(())
    }
}

/// The last statement of what was typed.
/// The columns of an index, those that are expressions included.
fn shown_columns(key: &KeyDefinition, table: &TableDefinition) -> String {
    (0..key.columns.len()).map(|i| key.shown(i, table)).collect::<Vec<_>>().join(", ")
}

fn last_part(line: &str) -> Option<String> {
    let mut script = Script::new(line);
    std::iter::from_fn(|| script.next_complete()).last()
}

fn metrics(session: &Session) -> String {
    let m = session.database().metrics();
    let mut text = format!(
        "transactions  {} committed, {} rolled back, {} snapshots held\n\
         collector     {} waiting, {} versions unlinked, {:.1} MB of undo\n\
         log           {:.1} MB written, {} syncs\n\
         hot blocks    {:.1} MB, and {:.1} MB of idle halves of huge pages\n",
        m.commits,
        m.aborts,
        m.active_snapshots,
        m.gc_backlog,
        m.gc_unlinked,
        m.undo_bytes as f64 / 1e6,
        m.log_bytes_written as f64 / 1e6,
        m.log_syncs,
        m.block_memory_bytes as f64 / 1e6,
        m.idle_block_memory_bytes as f64 / 1e6,
    );
    for (_, name, table) in &m.tables {
        text.push_str(&format!(
            "table {name}: {} rows, {} blocks ({} frozen, {} with versions), {:.1} MB of hot heaps, {:.1} of it garbage\n",
            table.rows,
            table.blocks,
            table.frozen_blocks,
            table.versioned_blocks,
            table.heap_bytes as f64 / 1e6,
            table.garbage_bytes as f64 / 1e6
        ));
    }
    text
}

/// Runs the shell.
pub async fn run(db: &SqlDatabase, options: ShellOptions) -> Result<(), String> {
    let mut shell = Shell {
        session: Session::new(db),
        mode: options.mode,
        timing: false,
        continue_on_error: options.continue_on_error,
        output: None,
        free_stdin: false,
    };
    let failed = |result: Result<bool, ()>| result.map_err(|()| String::new());
    if options.commands.is_empty() && options.files.is_empty() {
        if std::io::stdin().is_terminal() {
            return shell.interactive(options.path.as_ref()).await;
        }
        let mut script = String::new();
        std::io::stdin().read_to_string(&mut script).map_err(|e| e.to_string())?;
        failed(shell.script(&script).await)?;
    }
    shell.free_stdin = true;
    for command in &options.commands {
        failed(shell.script(command).await)?;
    }
    shell.free_stdin = false;
    for file in &options.files {
        let script = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        failed(shell.script(&script).await)?;
    }
    Ok(())
}
