//! PostgreSQL's regression suite against SeracDB: each statement of its scripts goes to PostgreSQL
//! and to `serac serve`, and the two answers are compared.
//!
//! ```text
//! script ── script.rs ──> statement ──┬──> PostgreSQL ──┐
//!           psql's rules              └──> SeracDB ─────┴──> compare.rs ──> class ──> counts.rs
//!                                                            follow.rs: does it follow from an
//!                                                            earlier difference?
//! ```
//!
//! Each script finds the tables of `test_setup.sql` and nothing else: PostgreSQL copies a template
//! database, and SeracDB's server starts on a copy of a folder. After each statement, SeracDB's
//! session is brought into the transaction state of PostgreSQL's, if that is possible.

mod absent;
mod client;
mod compare;
mod counts;
mod follow;
mod lexer;
mod script;
mod side;

use crate::postgres::{Cluster, Installation, PostgresArguments};
use crate::report::Report;
use crate::serac::free_address;
use crate::setup::{Folder, text};
use clap::Args;
use client::{Answer, Outcome, Row};
use compare::{Class, Verdict};
use counts::Counts;
use follow::Taint;
use indicatif::{ProgressBar, ProgressStyle};
use lexer::Token;
use script::{Item, Piece, Script, Statement, render};
use serde_json::{Value as Json, json};
use side::{SeracServer, Side, copy_folder};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
pub struct RegressArguments {
    /// Folder of PostgreSQL's suite (`src/test/regress`), with `sql` and `data` in it.
    #[arg(long)]
    suite: PathBuf,
    /// Scripts to run, without `.sql`; by default all.
    #[arg(long, num_args = 1..)]
    only: Vec<String>,
    /// Folder for `differences.jsonl`, with a line per difference, and `classes.json`.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Folder for the temporary cluster of PostgreSQL, whose user must be able to enter it.
    #[arg(long)]
    cluster: Option<PathBuf>,
    #[command(flatten)]
    postgres: PostgresArguments,
    /// The `serac` binary; by default the one beside this one.
    #[arg(long)]
    serac: Option<PathBuf>,
}

const SETUP: &str = "test_setup";
const TEMPLATE: &str = "regression_setup";
const DATABASE: &str = "regression";
/// The settings that pg_regress gives its sessions.
const SETTINGS: [(&str, &str); 3] =
    [("TimeZone", "PST8PDT"), ("DateStyle", "Postgres, MDY"), ("IntervalStyle", "postgres_verbose")];
const UNDO: &str = "ROLLBACK TO SAVEPOINT before_statement";
/// Variables that name libraries in C, which come with PostgreSQL's sources and not with its
/// packages.
const LIBRARIES: [&str; 3] = ["regresslib", "autoinclib", "refintlib"];
/// Rows of a difference that are written out, of each side.
const SHOWN_ROWS: usize = 8;
/// Characters of a statement or a value that are written out.
const SHOWN_CHARACTERS: usize = 4_000;
/// Kinds of differences that are shown at the end.
const SHOWN_CLASSES: usize = 15;

fn shortened(text: &str) -> String {
    text.chars().take(SHOWN_CHARACTERS).collect()
}

fn shown_rows<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Json {
    let cells = |row: &Row| row.iter().map(|cell| cell.as_deref().map(shortened)).collect::<Vec<_>>();
    rows.into_iter().take(SHOWN_ROWS).map(cells).collect::<Vec<_>>().into()
}

/// An outcome beside another one.
fn shown(outcome: &Outcome, other: &Outcome) -> Json {
    let answer = match outcome {
        Outcome::TimedOut => return json!({ "timeout": true }),
        Outcome::Lost(why) => return json!({ "lost": why }),
        Outcome::Answered(answer) => answer,
    };
    if let Some(error) = &answer.error {
        return json!({ "code": error.code, "message": shortened(&error.message) });
    }
    let other = if let Outcome::Answered(other) = other { other.results.as_slice() } else { &[] };
    let results = answer.results.iter().enumerate().map(|(at, result)| {
        let others = other.get(at).map_or(&[][..], |result| &result.rows);
        let only = compare::only_in(&result.rows, others);
        // Where only the order differs, the first rows show it.
        let rows = if only.is_empty() { shown_rows(&result.rows) } else { shown_rows(only) };
        let count = result.rows.len() + result.further_rows;
        json!({ "tag": result.tag, "columns": result.columns, "count": count, "rows": rows })
    });
    json!({ "results": results.collect::<Vec<_>>() })
}

/// Differences of a kind.
#[derive(Default)]
struct Kind {
    count: usize,
    example: String,
}

/// All that is counted and written.
struct Findings {
    file: String,
    counts: Counts,
    kinds: HashMap<(&'static str, String), Kind>,
    /// The number of statements and commands that were not sent, by reason.
    skipped: HashMap<String, usize>,
    out: Option<BufWriter<File>>,
}

impl Findings {
    fn skip(&mut self, reason: &str) {
        *self.skipped.entry(reason.to_owned()).or_default() += 1;
    }

    fn add(
        &mut self,
        line: usize,
        sql: &str,
        theirs: &Outcome,
        ours: &Outcome,
        verdict: &Verdict,
    ) -> Result<(), String> {
        self.counts.add(verdict, theirs.succeeded());
        let same = matches!(verdict.class, Class::Same | Class::SameError);
        if same && !verdict.names_differ && !verdict.types_differ {
            return Ok(());
        }
        let kind = match (verdict.class, theirs, ours) {
            (Class::Same, ..) if verdict.names_differ => "names of columns".into(),
            (Class::Same, ..) => "types of columns".into(),
            (Class::Absent | Class::Unstable, ..) => verdict.reason.unwrap_or_default().into(),
            (Class::Lenient, ..) => theirs
                .error()
                .map_or(String::new(), |error| format!("{} {}", error.code, compare::blanked(&error.message))),
            (Class::DifferentError, ..) => {
                let code = |outcome: &Outcome| outcome.error().map_or(String::new(), |error| error.code.clone());
                let message = ours.error().map_or(String::new(), |error| compare::blanked(&error.message));
                format!("{} became {} {message}", code(theirs), code(ours))
            }
            (_, Outcome::Answered(theirs), Outcome::Answered(ours @ Answer { error: None, .. })) => {
                let catalog = if compare::reads_catalog(&lexer::tokens(sql)) { "in a catalog: " } else { "" };
                format!("{catalog}{}", compare::difference(theirs, ours))
            }
            (_, _, ours) => ours
                .error()
                .map_or(String::new(), |error| format!("{} {}", error.code, compare::blanked(&error.message))),
        };
        let class = if same { "columns" } else { verdict.class.name() };
        if verdict.follows.is_none() {
            let counted = self.kinds.entry((class, kind.clone())).or_default();
            counted.count += 1;
            if counted.example.is_empty() {
                counted.example =
                    format!("{}:{line}: {}", self.file, sql.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        }
        if let Some(out) = &mut self.out {
            let line = json!({
                "file": self.file, "line": line, "class": class, "kind": kind, "follows": verdict.follows,
                "reason": verdict.reason, "statement": shortened(sql),
                "postgres": shown(theirs, ours), "serac": shown(ours, theirs),
                "names_differ": verdict.names_differ, "types_differ": verdict.types_differ,
            });
            writeln!(out, "{line}").map_err(text)?;
        }
        Ok(())
    }

    /// Kinds of a class, the most frequent first.
    fn most_frequent(&self, class: &str) -> Vec<(&str, &Kind)> {
        let of_class = self.kinds.iter().filter(|((of, _), _)| *of == class);
        let mut kinds: Vec<(&str, &Kind)> = of_class.map(|((_, kind), counted)| (kind.as_str(), counted)).collect();
        kinds.sort_by_key(|(kind, counted)| (std::cmp::Reverse(counted.count), *kind));
        kinds
    }
}

/// The two servers, and the state of one script.
struct Runner {
    postgres: Side,
    serac: Side,
    server: SeracServer,
    taint: Taint,
    /// The names that are tainted since the set-up.
    set_up_taint: Taint,
    findings: Findings,
    /// The variables that `\getenv` finds, for PostgreSQL and for SeracDB.
    environment: [HashMap<&'static str, String>; 2],
}

/// Whether a condition of `\if` holds, as psql reads it.
fn is_true(value: &str) -> bool {
    let value = value.trim().to_lowercase();
    value == "1" || value == "on" || (!value.is_empty() && ("true".starts_with(&value) || "yes".starts_with(&value)))
}

impl Runner {
    /// Gives both servers new sessions. A server that has ended is started again.
    fn connect(&mut self) -> Result<(), String> {
        self.postgres.connect().map_err(|error| format!("PostgreSQL: {error}"))?;
        self.connect_serac()
    }

    fn connect_serac(&mut self) -> Result<(), String> {
        if !self.server.is_running() {
            self.findings.counts.restarts += 1;
            self.server.start()?;
        }
        if self.serac.connect().is_ok() {
            return Ok(());
        }
        // The server runs, but accepts no connection.
        self.findings.counts.restarts += 1;
        self.server.start()?;
        self.serac.connect().map_err(|error| format!("SeracDB: {error}"))
    }

    /// Brings SeracDB's transaction to the state of PostgreSQL's.
    fn align(&mut self, theirs: &Outcome, ours: &Outcome) {
        const ABORT: &str = "THE OTHER SERVER HAS FAILED";
        let mut none = || None;
        match (self.postgres.status(), self.serac.status()) {
            (b'E', b'T') => _ = self.serac.query(ABORT, &mut none),
            (b'T', b'I') => _ = self.serac.query("BEGIN", &mut none),
            (b'E', b'I') => {
                self.serac.query("BEGIN", &mut none);
                self.serac.query(ABORT, &mut none);
            }
            (b'I', b'I') => {
                let tag = |outcome: &Outcome| match outcome {
                    Outcome::Answered(answer) => answer.results.last().map(|result| result.tag.clone()),
                    _ => None,
                };
                let undone = tag(theirs).as_deref() == Some("COMMIT") && tag(ours).as_deref() != Some("COMMIT");
                self.taint.block_ended(undone);
            }
            (b'I', _) => {
                self.serac.query("ROLLBACK", &mut none);
                self.taint.block_ended(true);
            }
            _ => {}
        }
    }

    /// Runs a statement on both servers and compares their answers. Returns both outcomes.
    fn statement(&mut self, statement: &Statement, script: &mut Script) -> Result<Option<[Outcome; 2]>, String> {
        if LIBRARIES.iter().any(|library| statement.names_variable(library)) {
            self.findings.skip("a library in C");
            return Ok(None);
        }
        let sql = [&self.postgres, &self.serac].map(|side| render(&statement.pieces, &side.variables));
        let tokens = lexer::tokens(&sql[0]);
        let guarded = self.guard(&tokens);
        let mut copied = Vec::new();
        let theirs = self.postgres.query(&sql[0], &mut || {
            copied.push(script.copy_data());
            copied.last().cloned()
        });
        let mut again = copied.iter().cloned();
        let ours = self.serac.query(&sql[1], &mut || again.next());
        script.standard_strings = self.postgres.standard_strings();
        let effect = follow::effect(&tokens);
        let verdict = compare::judge(&tokens, &theirs, &ours, &self.taint);
        self.findings.add(statement.line, &sql[0], &theirs, &ours, &verdict)?;
        let failed = theirs.succeeded() && ours.error().is_some();
        if guarded && failed {
            self.serac.query(UNDO, &mut || None);
        }
        if !(failed && self.said_otherwise(&sql[1], &copied, guarded)) {
            compare::remember(&mut self.taint, &tokens, &effect, &verdict, theirs.succeeded());
        }
        if guarded && self.serac.status() == b'T' {
            self.serac.query("RELEASE SAVEPOINT before_statement", &mut || None);
        }
        self.undo_setting(&tokens, &theirs, &ours);
        if !self.postgres.is_connected() {
            self.postgres.connect().map_err(|error| format!("PostgreSQL: {error}"))?;
        }
        if !self.serac.is_connected() {
            self.taint.reconnected();
            self.connect_serac()?;
        }
        self.align(&theirs, &ours);
        Ok(Some([theirs, ours]))
    }

    /// In a block, sets a savepoint in SeracDB before the statement. It keeps the block alive if
    /// only SeracDB fails, as psql's `ON_ERROR_ROLLBACK` does. True if the savepoint was set.
    fn guard(&mut self, tokens: &[Token]) -> bool {
        const CONTROLS: [&str; 12] = [
            "begin",
            "start",
            "commit",
            "end",
            "rollback",
            "abort",
            "savepoint",
            "release",
            "prepare",
            "set",
            "vacuum",
            "lock",
        ];
        let controls = tokens.first().is_none_or(|first| CONTROLS.contains(&first.text.as_str()));
        let sets_transaction = tokens.iter().take(4).any(|token| token.is("transaction"));
        let is_set = tokens.first().is_some_and(|first| first.is("set")) && !sets_transaction;
        let in_block = self.postgres.status() == b'T' && self.serac.status() == b'T';
        in_block && (!controls || is_set) && self.serac.run("SAVEPOINT before_statement").is_ok()
    }

    /// Rephrases a statement that may fail only for a column of type `name` or for COPY's default
    /// format, because many scripts read its table. True if the other statement has worked.
    fn said_otherwise(&mut self, sql: &str, copied: &[String], guarded: bool) -> bool {
        if !guarded && self.serac.status() != b'I' {
            return false;
        }
        let word = sql.split_whitespace().next().unwrap_or_default().to_lowercase();
        let other = match word.as_str() {
            "copy" => format!("{sql} (FORMAT text)"),
            "create" => follow::names_as_texts(sql),
            _ => return false,
        };
        let mut again = copied.iter().cloned();
        let worked = other != sql && self.serac.query(&other, &mut || again.next()).succeeded();
        if worked {
            self.findings.skip("said in another way for SeracDB");
        } else if guarded {
            self.serac.query(UNDO, &mut || None);
        }
        worked
    }

    /// Resets a setting in PostgreSQL that SeracDB does not accept, so that later rows look alike.
    fn undo_setting(&mut self, tokens: &[Token], theirs: &Outcome, ours: &Outcome) {
        let Some(setting) = follow::setting(tokens) else { return };
        if theirs.succeeded() && ours.error().is_some() {
            self.postgres.query(&format!("RESET {setting}"), &mut || None);
        }
    }

    /// Keeps a row's values as variables. SeracDB's variables get PostgreSQL's values if SeracDB's
    /// result is not a single row.
    fn set_from_row(&mut self, outcomes: &[Outcome; 2], prefix: &str) {
        let [theirs, ours] = [0, 1].map(|at| match &outcomes[at] {
            Outcome::Answered(Answer { error: None, results }) => {
                results.last().filter(|result| result.rows.len() == 1)
            }
            _ => None,
        });
        let Some(theirs) = theirs else { return };
        let ours = ours.unwrap_or(theirs);
        for (side, result) in [(&mut self.postgres, theirs), (&mut self.serac, ours)] {
            for ((name, _), value) in result.columns.iter().zip(&result.rows[0]) {
                let name = format!("{prefix}{name}");
                match value {
                    Some(value) => side.variables.insert(name, value.clone()),
                    None => side.variables.remove(&name),
                };
            }
        }
    }

    /// Carries out a command that is not about conditions.
    fn command(
        &mut self,
        name: &str,
        arguments: &[Vec<Piece>],
        buffer: Option<&Statement>,
        script: &mut Script,
    ) -> Result<(), String> {
        let rendered = |side: &Side| -> Vec<String> {
            arguments.iter().map(|argument| render(argument, &side.variables)).collect()
        };
        let words = [rendered(&self.postgres), rendered(&self.serac)];
        let first = words[0].first().cloned().unwrap_or_default();
        match (name, buffer) {
            ("g" | "gx" | "crosstabview", Some(statement)) => _ = self.statement(statement, script)?,
            ("gset", Some(statement)) => {
                if let Some(outcomes) = self.statement(statement, script)? {
                    self.set_from_row(&outcomes, &first);
                }
            }
            ("gexec", Some(statement)) => {
                let outcomes = self.statement(statement, script)?;
                let Some([Outcome::Answered(answer), _]) = outcomes else { return Ok(()) };
                let cells = answer.results.into_iter().flat_map(|result| result.rows).flatten().flatten();
                for cell in cells {
                    let made = Statement { line: statement.line, pieces: vec![Piece::Text(cell)] };
                    self.statement(&made, script)?;
                }
            }
            ("set", _) => {
                for (side, words) in [&mut self.postgres, &mut self.serac].into_iter().zip(&words) {
                    if let Some((name, values)) = words.split_first() {
                        side.variables.insert(name.clone(), values.concat());
                    }
                }
            }
            ("unset", _) => {
                self.postgres.variables.remove(&first);
                self.serac.variables.remove(&first);
            }
            ("getenv", _) => {
                let wanted = words[0].get(1).map(String::as_str).unwrap_or_default();
                for (at, side) in [&mut self.postgres, &mut self.serac].into_iter().enumerate() {
                    if let Some(value) = self.environment[at].get(wanted) {
                        side.variables.insert(first.clone(), value.clone());
                    }
                }
            }
            ("c" | "connect", _) => self.reconnect(words[0].get(1))?,
            ("copy", _) => {
                let has = |wanted: &str| words[0].iter().any(|word| word.eq_ignore_ascii_case(wanted));
                if has("from") && (has("stdin") || has("pstdin")) {
                    script.copy_data();
                }
                self.findings.skip("\\copy");
            }
            // These commands change how psql shows results.
            ("pset" | "x" | "echo" | "t" | "a" | "timing" | "qecho" | "warn" | "p" | "o", _) => {}
            _ => self.findings.skip(&format!("\\{name}")),
        }
        Ok(())
    }

    /// A session of another user, or a new one of the same.
    fn reconnect(&mut self, user: Option<&String>) -> Result<(), String> {
        if let Some(user) = user.filter(|user| *user != "-") {
            self.postgres.user.clone_from(user);
            self.serac.user.clone_from(user);
        }
        if self.postgres.connect().is_err() {
            // psql would end here. The script goes on with its first user.
            self.postgres.user = "serac".into();
            self.serac.user = "serac".into();
            self.postgres.connect()?;
        }
        self.taint.reconnected();
        if self.serac.connect().is_err() {
            self.serac.user = "serac".into();
            self.taint.add(&[], &follow::Effect { role: true, ..Default::default() });
            self.connect_serac()?;
        }
        Ok(())
    }

    /// Runs a script on both servers.
    fn script(&mut self, name: &str, source: &str, bar: &ProgressBar) -> Result<(), String> {
        self.findings.file = format!("{name}.sql");
        self.findings.counts = Counts::default();
        self.taint = self.set_up_taint.clone();
        for side in [&mut self.postgres, &mut self.serac] {
            side.variables.clear();
            side.user = "serac".into();
        }
        self.connect()?;
        let mut script = Script::new(source);
        // The open \if commands: whether this branch runs, and whether one has run.
        let mut conditions: Vec<(bool, bool)> = Vec::new();
        let (begun, mut last) = (bar.position(), None);
        while let Some(item) = script.next() {
            bar.set_position(begun + script.position() as u64);
            let active = conditions.iter().all(|(runs, _)| *runs);
            let (name, arguments, buffer) = match item {
                Item::Statement(statement) => {
                    if active {
                        self.statement(&statement, &mut script)?;
                        last = Some(statement);
                    }
                    continue;
                }
                Item::Command { name, arguments, buffer, .. } => (name, arguments, buffer),
            };
            let condition = || {
                let words = arguments.iter().map(|argument| render(argument, &self.postgres.variables));
                is_true(&words.collect::<Vec<_>>().join(" "))
            };
            match (name.as_str(), conditions.last_mut()) {
                ("if", _) => {
                    let holds = condition();
                    conditions.push((holds, holds));
                }
                ("elif", Some(open)) => {
                    let holds = !open.1 && condition();
                    *open = (holds, open.1 || holds);
                    script.reset();
                }
                ("else", Some(open)) => {
                    *open = (!open.1, true);
                    script.reset();
                }
                ("endif", _) => {
                    if conditions.pop().is_some_and(|(runs, _)| !runs) {
                        script.reset();
                    }
                }
                _ if !active => {}
                ("q" | "quit", _) => break,
                (name, _) => {
                    // Without anything in the buffer, psql sends the last statement again.
                    let buffer = buffer.or_else(|| last.clone());
                    self.command(name, &arguments, buffer.as_ref(), &mut script)?;
                    last = buffer;
                }
            }
        }
        self.postgres.disconnect();
        self.serac.disconnect();
        bar.set_position(begun + source.len() as u64);
        Ok(())
    }
}

/// Gives PostgreSQL a fresh database, and removes the roles and settings that an earlier script has
/// left.
fn refresh_postgres(owner: &mut Side, template: &str) -> Result<(), String> {
    if !owner.is_connected() {
        owner.connect()?;
    }
    for database in owner.values("SELECT datname FROM pg_database WHERE datname LIKE 'regress%'") {
        if database != TEMPLATE {
            owner.run(&format!("DROP DATABASE \"{database}\" WITH (FORCE)"))?;
        }
    }
    for role in owner.values("SELECT rolname FROM pg_roles WHERE rolname !~ '^pg_' AND rolname <> current_user") {
        // A role on which other objects depend stays.
        let _ = owner.run(&format!("DROP ROLE \"{}\"", role.replace('"', "\"\"")));
    }
    let _ = owner.run("ALTER SYSTEM RESET ALL");
    let database = if template == "template0" { TEMPLATE } else { DATABASE };
    owner.run(&format!("CREATE DATABASE {database} TEMPLATE {template}"))
}

/// Names of settings and their values.
type Settings = Vec<(String, String)>;

/// pg_regress's settings. A setting that SeracDB does not accept has SeracDB's own value. Also
/// returns the names of those settings.
fn settings(serac: &mut Side) -> Result<(Settings, Vec<&'static str>), String> {
    let (mut settings, mut refused) = (Settings::new(), Vec::new());
    serac.connect()?;
    for (name, value) in SETTINGS {
        let taken = serac.run(&format!("SET {name} = '{value}'")).is_ok();
        let shown = serac.values(&format!("SHOW {name}")).pop();
        settings.push((name.to_owned(), shown.unwrap_or_else(|| value.to_owned())));
        if !taken {
            refused.push(name);
        }
    }
    serac.disconnect();
    Ok((settings, refused))
}

fn scripts(arguments: &RegressArguments) -> Result<Vec<(String, String)>, String> {
    let folder = arguments.suite.join("sql");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))? {
        let path = entry.map_err(text)?.path();
        if path.extension().is_some_and(|extension| extension == "sql") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    let wanted: Vec<&str> = arguments.only.iter().map(|name| name.trim_end_matches(".sql")).collect();
    if let Some(missing) = wanted.iter().find(|wanted| !names.iter().any(|name| name == *wanted)) {
        return Err(format!("the suite has no script {missing}"));
    }
    names.retain(|name| name == SETUP || wanted.is_empty() || wanted.contains(&name.as_str()));
    // The other scripts need the tables of the set-up.
    names.sort_by_key(|name| (name != SETUP, name.clone()));
    let read = |name: String| {
        let bytes = fs::read(folder.join(format!("{name}.sql"))).map_err(text)?;
        Ok((name, String::from_utf8_lossy(&bytes).into_owned()))
    };
    names.into_iter().map(read).collect()
}

/// The variables that name the folders from which scripts read files, and to which they write.
fn environment(suite: &Path, written: &Path) -> Result<HashMap<&'static str, String>, String> {
    fs::create_dir_all(written.join("results")).map_err(text)?;
    fs::set_permissions(written.join("results"), fs::Permissions::from_mode(0o777)).map_err(text)?;
    Ok(HashMap::from([
        ("PG_ABS_SRCDIR", suite.display().to_string()),
        ("PG_ABS_BUILDDIR", written.display().to_string()),
        ("PG_LIBDIR", "/nonexistent".into()),
        ("PG_DLSUFFIX", ".so".into()),
    ]))
}

fn say_kinds(findings: &Findings, report: &mut Report) {
    for class in [Class::Failure, Class::DifferentRows, Class::DifferentError, Class::Lenient, Class::Absent] {
        let kinds = findings.most_frequent(class.name());
        let lines = kinds.iter().take(SHOWN_CLASSES).map(|(kind, counted)| {
            let example: String = counted.example.chars().take(160).collect();
            format!("\n  {:5}  {kind}\n         {example}", counted.count)
        });
        report.note(format!("{}, {} kinds:{}", class.name(), kinds.len(), lines.collect::<String>()));
    }
    let mut skipped: Vec<_> = findings.skipped.iter().collect();
    skipped.sort_by_key(|(reason, count)| (std::cmp::Reverse(**count), (*reason).clone()));
    let skipped: Vec<String> = skipped.into_iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    report.note(format!("not sent: {}", skipped.join(", ")));
}

fn write_kinds(findings: &Findings, folder: &Path) -> Result<(), String> {
    let mut kinds: Vec<_> = findings.kinds.iter().collect();
    kinds.sort_by_key(|((class, kind), counted)| (*class, std::cmp::Reverse(counted.count), kind.clone()));
    let lines = kinds.into_iter().map(|((class, kind), counted)| {
        json!({ "class": class, "kind": kind, "count": counted.count, "example": shortened(&counted.example) })
    });
    fs::write(folder.join("classes.json"), Json::Array(lines.collect()).to_string()).map_err(text)
}

/// Runs the comparison.
pub fn run(arguments: &RegressArguments, report: &mut Report) -> Result<(), String> {
    let installation = Installation::find(arguments.postgres.major)?;
    let scripts = scripts(arguments)?;
    // PostgreSQL runs as a user of its own, which may not be able to enter the project's folder.
    let parent = arguments.cluster.clone().unwrap_or_else(std::env::temp_dir);
    let folder = Folder(parent.join(format!("serac-regress-{}", std::process::id())));
    fs::create_dir_all(&folder.0).map_err(text)?;
    let cluster = Cluster::create(installation, &folder.0)?;
    let (ours, theirs) = (free_address()?, free_address()?);
    let server = cluster.start_at(theirs, &["fsync=off", "max_prepared_transactions=2", "max_connections=40"])?;
    let suite = folder.0.join("suite");
    copy_folder(&arguments.suite.join("data"), &suite.join("data"))?;
    let out = match &arguments.out {
        Some(out) => {
            fs::create_dir_all(out).map_err(text)?;
            Some(BufWriter::new(File::create(out.join("differences.jsonl")).map_err(text)?))
        }
        None => None,
    };
    let mut runner = Runner {
        postgres: Side::new(theirs, TEMPLATE),
        serac: Side::new(ours, DATABASE),
        server: SeracServer::new(arguments.serac.clone(), ours, cluster.sockets(), folder.0.join("serac")),
        taint: Taint::default(),
        set_up_taint: Taint::default(),
        findings: Findings {
            file: String::new(),
            counts: Counts::default(),
            kinds: HashMap::new(),
            skipped: HashMap::new(),
            out,
        },
        environment: [
            environment(&suite, &folder.0.join("written-by-postgres"))?,
            environment(&suite, &folder.0.join("written-by-serac"))?,
        ],
    };
    runner.server.start()?;
    let (settings, refused) = settings(&mut runner.serac)?;
    runner.serac.settings.clone_from(&settings);
    runner.postgres.settings = settings;
    let bar = ProgressBar::new(scripts.iter().map(|(_, source)| source.len() as u64).sum());
    bar.set_style(ProgressStyle::with_template("{msg:24} {wide_bar} {percent} %, {eta} left").map_err(text)?);
    let mut owner = Side::new(theirs, "postgres");
    let (template, mut all) = (folder.0.join("template"), Counts::default());
    for (name, source) in &scripts {
        bar.set_message(name.clone());
        refresh_postgres(&mut owner, if name == SETUP { "template0" } else { TEMPLATE })?;
        if name != SETUP {
            runner.postgres.database = DATABASE.into();
            runner.server.start_from(&template)?;
        }
        // One script that cannot go on leaves the others alone.
        if let Err(error) = runner.script(name, source, &bar) {
            bar.suspend(|| eprintln!("{name}.sql ends early: {error}"));
            runner.findings.skip("the rest of a script");
        }
        if name == SETUP {
            for (kind, counted) in runner.findings.most_frequent(Class::Failure.name()).into_iter() {
                bar.suspend(|| eprintln!("not loaded as it is written: {}: {kind}", counted.example));
            }
            runner.set_up_taint = runner.taint.clone();
            runner.server.stop();
            copy_folder(&runner.server.folder, &template)?;
        }
        runner.findings.counts.report(&runner.findings.file, report);
        all.merge(&runner.findings.counts);
    }
    bar.finish_and_clear();
    runner.server.stop();
    all.report("all", report);
    if let Some(out) = &mut runner.findings.out {
        out.flush().map_err(text)?;
    }
    if let Some(out) = &arguments.out {
        write_kinds(&runner.findings, out)?;
    }
    say_kinds(&runner.findings, report);
    let refused = if refused.is_empty() { "none".into() } else { refused.join(", ") };
    report.note(format!("{}; settings of pg_regress that SeracDB does not take: {refused}", cluster.version()));
    drop(server);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_as_psql_reads_them() {
        assert!(["t", "TRUE", "yes", "y", "on", "1"].iter().all(|value| is_true(value)));
        assert!(!["f", "", "off", "0", "o", ":undefined"].iter().any(|value| is_true(value)));
    }

    #[test]
    fn a_difference_shows_the_rows_that_only_one_side_has() {
        let answer = |values: &[&str]| {
            let rows: Vec<Row> = values.iter().map(|value| vec![Some((*value).to_owned())]).collect();
            let result = client::ResultSet { rows, tag: "SELECT".into(), ..Default::default() };
            Outcome::Answered(Answer { results: vec![result], error: None })
        };
        let (theirs, ours) = (answer(&["1", "2", "2"]), answer(&["2", "3"]));
        assert_eq!(shown(&theirs, &ours)["results"][0]["rows"], json!([["1"], ["2"]]));
        assert_eq!(shown(&ours, &theirs)["results"][0]["rows"], json!([["3"]]));
    }
}
