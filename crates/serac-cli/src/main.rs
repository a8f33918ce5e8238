//! `serac`: the shell, and the commands around a database.

mod blocks;
mod demo;
mod load;
mod operators;
mod output;
mod script;
mod serve;
mod settings;
mod shell;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use output::Mode;
use serac_engine::Database;
use serac_sql::{SqlDatabase, SqlOptions};
use serac_storage::{Durability, StorageOptions};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// SeracDB: an embedded database for transactions and analysis whose storage is Apache Arrow.
#[derive(Parser, Debug)]
#[command(name = "serac", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    open: OpenArguments,
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
    /// Runs statements of the operator language from the standard input, on a server or on a database of its own.
    Operators(operators::OperatorsArguments),
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

/// How a database is opened.
#[derive(clap::Args, Debug, Clone)]
pub struct OpenOptions {
    /// When a commit is acknowledged.
    #[arg(long, value_enum, default_value_t)]
    durability: DurabilityLevel,
    /// Memory for queries, such as 512MB or 4GB; beyond it they spill or fail.
    #[arg(long, value_parser = parse_bytes)]
    memory_limit: Option<usize>,
    /// Threads of a query.
    #[arg(long)]
    threads: Option<usize>,
    /// Opens a database of which something is damaged or missing, with what is whole; keeps the rest in a folder of its own.
    #[arg(long)]
    salvage: bool,
}

#[derive(ValueEnum, Debug, Clone, Copy, Default)]
enum DurabilityLevel {
    /// When it is on the disk.
    #[default]
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

/// The folder that a path names; none: the database is in memory.
fn folder(path: &Option<PathBuf>) -> Option<PathBuf> {
    path.clone().filter(|path| path.as_os_str() != ":memory:")
}

/// A database is made in a folder that is there: another is most likely a slip of the pen.
///
/// # Errors
/// What is missing.
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

impl OpenArguments {
    fn open(&self) -> Result<SqlDatabase, String> {
        self.options.open(&self.path)
    }
}

impl OpenOptions {
    /// Opens the database in a folder, or one in memory.
    fn open(&self, path: &Option<PathBuf>) -> Result<SqlDatabase, String> {
        let path = folder(path);
        path.as_deref().map_or(Ok(()), check_folder)?;
        let durability = match self.durability {
            DurabilityLevel::Full => Durability::Full,
            DurabilityLevel::Relaxed => Durability::Relaxed,
            DurabilityLevel::Off => Durability::Off,
        };
        let options = StorageOptions { path, durability, salvage: self.salvage, ..StorageOptions::default() };
        let database = Database::open_with(options).map_err(|e| e.to_string())?;
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
            eprintln!("what was left out is kept in {}", folder.display());
        }
        let options = SqlOptions { memory_limit: self.memory_limit, threads: self.threads, ..SqlOptions::default() };
        SqlDatabase::new(database, &options).map_err(|e| e.to_string())
    }
}

async fn show_blocks(database: &Database, table: &str, watch: bool) -> Result<(), String> {
    if watch {
        return blocks::watch(database, table).await;
    }
    print!("{}", blocks::Canvas::stdout().draw(&blocks::tables_named(database, table)?));
    Ok(())
}

fn main() -> ExitCode {
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
        Some(Command::Blocks { open, table, watch }) => open.open().and_then(|db| {
            let table = table.as_deref().unwrap_or_default();
            let result = runtime.block_on(show_blocks(db.database(), table, *watch));
            result.and(db.database().close().map_err(|e| e.to_string()))
        }),
        Some(Command::Load(load)) => load.options.open(&Some(load.path.clone())).and_then(|db| {
            let result = runtime.block_on(load::load(&db, load));
            result.and(db.database().close().map_err(|e| e.to_string()))
        }),
        Some(Command::Operators(arguments)) => operators::run(&runtime, arguments),
        Some(Command::Serve(serve)) => serve::run(&runtime, serve),
        None => match arguments.open.path.as_deref().and_then(meant_command) {
            Some(meant) => Err(meant),
            None => arguments.open.open(),
        }
        .and_then(|db| {
            let result = runtime.block_on(shell::run(
                &db,
                shell::ShellOptions {
                    commands: arguments.commands,
                    files: arguments.files,
                    mode: arguments.mode,
                    continue_on_error: arguments.continue_on_error,
                    path: folder(&arguments.open.path),
                },
            ));
            result.and(db.database().close().map_err(|e| e.to_string()))
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
