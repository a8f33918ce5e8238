//! `serac`: the shell, and the commands around a database.

mod blocks;
mod demo;
mod ending;
mod load;
mod memory;
mod operators;
mod output;
mod quoting;
mod run;
mod script;
mod serve;
mod settings;
mod shell;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use ending::with_session;
use output::Mode;
use serac_engine::Database;
use serac_server::LocalPrograms;
use serac_server::folder::{FolderDatabase, FolderSession, Opening, SessionOptions};
use serac_sql::{SqlDatabase, SqlOptions};
use serac_storage::{Durability, StorageOptions};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: serac_sql::CountingAllocator<mimalloc::MiMalloc> = serac_sql::CountingAllocator(mimalloc::MiMalloc);

/// SeracDB: an embedded database for transactions and analysis whose storage is Apache Arrow.
#[derive(Parser, Debug)]
#[command(name = "serac", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    open: OpenArguments,
    #[command(flatten)]
    access: AccessOptions,
    /// Runs this SQL and ends; may be given several times.
    #[arg(short = 'c', value_name = "SQL", allow_hyphen_values = true)]
    commands: Vec<String>,
    /// Runs this file and ends; may be given several times.
    #[arg(short = 'f', value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How results are shown.
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
    /// Goes on with the next statement after an error.
    #[arg(long)]
    continue_on_error: bool,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Loads TPC-H data, runs the 22 queries beside refresh transactions, and shows what happened.
    Demo(demo::DemoArguments),
    /// Shows the blocks of a database's tables by state, as a map.
    Blocks {
        #[command(flatten)]
        open: OpenArguments,
        /// One table (TABLE or SCHEMA.TABLE); without it, all.
        table: Option<String>,
        /// Draws again and again, until Ctrl-C.
        #[arg(long)]
        watch: bool,
    },
    /// Loads files (CSV, Parquet, Arrow) into a table, with a progress bar.
    Load(load::LoadArguments),
    /// Runs statements of the operator language from the standard input, on a server or on a
    /// database of its own.
    Operators(operators::OperatorsArguments),
    /// Runs a program on a snapshot of tables, apart from the system, and shows its rows.
    Run(Box<run::RunArguments>),
    /// Serves a database to clients on the network until it is interrupted.
    Serve(serve::ServeArguments),
}

#[derive(clap::Args, Debug, Clone)]
struct OpenArguments {
    /// Folder of the database; without it, or with `:memory:`, the database is in memory.
    path: Option<PathBuf>,
    #[command(flatten)]
    options: OpenOptions,
}

/// The role of a process in a database, and whether other processes work there, too.
#[derive(clap::Args, Debug, Clone)]
pub struct AccessOptions {
    /// The role whose rights hold; without it, the superuser's.
    #[arg(long, value_name = "ROLE")]
    user: Option<String>,
    /// Has the database for this process alone: fails if another process has it open, and lets no
    /// other work through this one.
    #[arg(long)]
    standalone: bool,
    /// How long the end of this process waits for statements and transactions of other processes
    /// that work through it, before it ends them.
    #[arg(long, value_name = "SECONDS", default_value_t = ending::WAIT_SECONDS)]
    wait: u64,
}

/// How a database is opened. These options hold for the process that opens it.
#[derive(clap::Args, Debug, Clone)]
pub struct OpenOptions {
    /// When a commit is acknowledged: full, if it is not said.
    #[arg(long, value_enum)]
    durability: Option<DurabilityLevel>,
    /// Memory for queries, such as 512MB or 4GB; beyond it they spill or fail.
    #[arg(long, value_parser = parse_bytes)]
    memory_limit: Option<usize>,
    /// Threads of a query.
    #[arg(long)]
    threads: Option<usize>,
    /// Opens a database of which something is damaged or missing, with what is whole; keeps the
    /// rest in a folder of its own.
    #[arg(long)]
    salvage: bool,
}

#[derive(ValueEnum, Debug, Clone, Copy)]
enum DurabilityLevel {
    /// When it is on the disk.
    Full,
    /// At once; a crash may lose the last 10 milliseconds or so.
    Relaxed,
    /// At once; only a clean end keeps it.
    Off,
}

fn parse_bytes(text: &str) -> Result<usize, String> {
    let lower = text.to_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_alphabetic());
    let unit = match lower[digits.len()..].trim_end_matches('b').trim_end_matches('i') {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1usize << 30,
        other => return Err(format!("\"{other}\" is no unit of memory")),
    };
    digits.trim().parse::<usize>().map(|n| n * unit).map_err(|_| format!("\"{text}\" is no amount of memory"))
}

/// The folder that a path names; `None` for a database in memory.
fn folder(path: &Option<PathBuf>) -> Option<PathBuf> {
    path.clone().filter(|path| path.as_os_str() != ":memory:")
}

/// Makes sure that the parent of a database's folder exists. A path with a missing parent is most
/// likely mistyped.
///
/// # Errors
/// The parent that does not exist.
pub fn check_folder(path: &Path) -> Result<(), String> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => {
            Err(format!("{}: the folder {} does not exist", path.display(), parent.display()))
        }
        _ => Ok(()),
    }
}

/// The command that was probably meant by a path that is a word and no folder.
fn meant_command(path: &Path) -> Option<String> {
    let word = path.to_str().filter(|word| !path.exists() && word.chars().all(char::is_alphabetic))?;
    let most = if word.len() < 5 { 1 } else { 2 };
    let commands = Arguments::command();
    let distance = |name: &str| strsim::damerau_levenshtein(&word.to_lowercase(), name);
    let nearest = commands.get_subcommands().map(clap::Command::get_name).chain(["help"]);
    let nearest = nearest.min_by_key(|name| distance(name)).filter(|name| distance(name) <= most)?;
    Some(format!(
        "there is no command and no database \"{word}\"; did you mean `serac {nearest}`? A new database of that name: serac ./{word}"
    ))
}

/// The words of the command line, with options that stand before a subcommand behind it.
fn with_options_behind(words: Vec<OsString>) -> Vec<OsString> {
    let command = Arguments::command();
    let takes_value = |word: &str| {
        let name = word.trim_start_matches('-');
        let is_named = |arg: &clap::Arg| match word.starts_with("--") {
            true => arg.get_long() == Some(name),
            false => name.chars().eq(arg.get_short()),
        };
        let commands = std::iter::once(&command).chain(command.get_subcommands());
        let found = commands.flat_map(clap::Command::get_arguments).find(|arg| is_named(arg));
        found.is_some_and(|arg| arg.get_action().takes_values() && !arg.is_require_equals_set())
    };
    let mut at = 1;
    while let Some(word) = words.get(at).and_then(|word| word.to_str()) {
        if !word.starts_with('-') || word == "-" {
            let mut words = words.clone();
            if command.find_subcommand(word).is_some() {
                words[1..=at].rotate_right(1);
            }
            return words;
        }
        if word == "--" {
            break;
        }
        at += if takes_value(word) { 2 } else { 1 };
    }
    words
}

impl OpenOptions {
    fn storage(&self, path: Option<PathBuf>) -> StorageOptions {
        let durability = match self.durability {
            None | Some(DurabilityLevel::Full) => Durability::Full,
            Some(DurabilityLevel::Relaxed) => Durability::Relaxed,
            Some(DurabilityLevel::Off) => Durability::Off,
        };
        StorageOptions { path, durability, salvage: self.salvage, ..StorageOptions::default() }
    }

    fn sql(&self) -> SqlOptions {
        SqlOptions {
            memory_limit: self.memory_limit,
            threads: self.threads,
            programs: LocalPrograms::shared(),
            ..SqlOptions::default()
        }
    }

    /// The given options that hold for the process that opens the database.
    fn said(&self) -> Vec<&'static str> {
        let all = [
            ("--durability", self.durability.is_some()),
            ("--memory-limit", self.memory_limit.is_some()),
            ("--threads", self.threads.is_some()),
            ("--salvage", self.salvage),
        ];
        all.into_iter().filter(|(_, is_said)| *is_said).map(|(name, _)| name).collect()
    }

    /// Opens the database in a folder, or one in memory, for this process alone.
    fn open(&self, path: &Option<PathBuf>) -> Result<SqlDatabase, String> {
        let path = folder(path);
        path.as_deref().map_or(Ok(()), check_folder)?;
        let database = Database::open_with(self.storage(path)).map_err(|e| e.to_string())?;
        tell_recovery(&database);
        SqlDatabase::new(database, &self.sql()).map_err(|e| e.to_string())
    }

    /// Opens the database in a folder, or one in memory, or finds the process that has it open.
    fn attach(&self, path: &Option<PathBuf>, is_standalone: bool) -> Result<FolderDatabase, String> {
        let path = folder(path);
        path.as_deref().map_or(Ok(()), check_folder)?;
        let opening = Opening { is_standalone, hands_over: true, ..Opening::with(self.storage(path), self.sql()) };
        let database = FolderDatabase::open(opening).map_err(|error| error.to_string())?;
        match database.held() {
            Some(db) => tell_recovery(db.database()),
            None if self.said().is_empty() => {}
            None => {
                return Err(format!(
                    "{} cannot be chosen: the database is open in another process, which has chosen (leave that out, or end that process)",
                    self.said().join(" and ")
                ));
            }
        }
        Ok(database)
    }
}

/// Prints the findings of opening.
fn tell_recovery(database: &Database) {
    let report = database.recovery_report();
    if report.transactions_replayed > 0 {
        eprintln!(
            "recovered {} transactions from {:.1} MB of log in {:.2} s",
            report.transactions_replayed,
            report.log_bytes as f64 / 1e6,
            report.replay_time.as_secs_f64()
        );
    }
    for lost in &report.lost {
        eprintln!("damaged, and left out: {lost}");
    }
    if let Some(cut) = &report.cut {
        eprintln!("the log had an unfinished end, never acknowledged: {cut}");
    }
    if let Some(folder) = &report.kept_aside {
        eprintln!("the parts that were left out are kept in {}", folder.display());
    }
}

async fn show_blocks(mut session: FolderSession, table: &str, watch: bool) -> Result<(), String> {
    if watch {
        return blocks::watch(&mut session, table).await;
    }
    print!("{}", blocks::Canvas::stdout().draw(&blocks::tables_in(&mut session, table).await?));
    Ok(())
}

fn main() -> ExitCode {
    memory::keep_freed();
    let arguments = Arguments::parse_from(with_options_behind(std::env::args_os().collect()));
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = match &arguments.command {
        Some(Command::Demo(demo)) => runtime.block_on(demo::run(demo)),
        Some(Command::Blocks { open, table, watch }) => open.options.attach(&open.path, false).and_then(|db| {
            let options = SessionOptions { application: "serac blocks".into(), ..SessionOptions::default() };
            let table = table.as_deref().unwrap_or_default();
            let wait = ending::WAIT_SECONDS;
            with_session(&runtime, &db, options, wait, |session| show_blocks(session, table, *watch))
        }),
        Some(Command::Load(load)) => {
            load.options.attach(&Some(load.path.clone()), load.access.standalone).and_then(|db| {
                let (role, application) = (load.access.user.clone(), "serac load".into());
                let options = SessionOptions { role, application, ..SessionOptions::default() };
                with_session(&runtime, &db, options, load.access.wait, |session| load::load(session, load))
            })
        }
        Some(Command::Operators(arguments)) => operators::run(&runtime, arguments),
        Some(Command::Run(arguments)) => run::run(&runtime, arguments),
        Some(Command::Serve(serve)) => serve::run(&runtime, serve),
        None => match arguments.open.path.as_deref().and_then(meant_command) {
            Some(meant) => Err(meant),
            None => arguments.open.options.attach(&arguments.open.path, arguments.access.standalone),
        }
        .and_then(|db| {
            let role = arguments.access.user;
            let options = SessionOptions { role: role.clone(), application: "serac".into(), postgresql_names: true };
            let shell = shell::ShellOptions {
                commands: arguments.commands,
                files: arguments.files,
                mode: arguments.mode,
                continue_on_error: arguments.continue_on_error,
                path: folder(&arguments.open.path),
                role,
            };
            with_session(&runtime, &db, options, arguments.access.wait, |session| shell::run(session, shell))
        }),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            if !message.is_empty() {
                eprintln!("{message}");
            }
            ExitCode::FAILURE
        }
    }
}
