//! `serac`: the shell, and the commands around a database.

mod blocks;
mod demo;
mod output;
mod script;
mod serve;
mod settings;
mod shell;

use clap::{Parser, Subcommand, ValueEnum};
use output::Mode;
use serac_engine::Database;
use serac_sql::{SqlDatabase, SqlOptions};
use serac_storage::{Durability, StorageOptions};
use std::path::PathBuf;
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
    #[arg(short = 'c', value_name = "SQL")]
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
    Load {
        #[command(flatten)]
        open: OpenArguments,
        /// The table.
        #[arg(long)]
        table: String,
        /// Makes the table, with the columns of the first file, if it is not there. Types in CSV are told by its first 10,000 lines.
        #[arg(long)]
        create: bool,
        /// The files have a line of column names (CSV).
        #[arg(long)]
        header: bool,
        /// The files.
        #[arg(required = true, last = true)]
        files: Vec<PathBuf>,
    },
    /// Serves a database to clients on the network until it is interrupted.
    Serve(serve::ServeArguments),
}

#[derive(clap::Args, Debug, Clone)]
struct OpenArguments {
    /// Folder of the database; without it, or with `:memory:`, the database is in memory.
    path: Option<PathBuf>,
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

impl OpenArguments {
    fn open(&self) -> Result<SqlDatabase, String> {
        let durability = match self.durability {
            DurabilityLevel::Full => Durability::Full,
            DurabilityLevel::Relaxed => Durability::Relaxed,
            DurabilityLevel::Off => Durability::Off,
        };
        let options =
            StorageOptions { path: folder(&self.path), durability, salvage: self.salvage, ..StorageOptions::default() };
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

async fn load(db: &SqlDatabase, table: &str, create: bool, header: bool, files: &[PathBuf]) -> Result<(), String> {
    let mut session = serac_sql::Session::new(db);
    let total = files.iter().filter_map(|f| f.metadata().ok()).map(|m| m.len()).sum();
    let bar = output::progress_bar(total, "loading");
    session.execute("BEGIN").await.map_err(|e| e.to_string())?;
    if create {
        let schema = serac_sql::file_schema(&files[0].to_string_lossy(), header).map_err(|e| e.to_string())?;
        // As SQL reads names.
        let fold = |name: &str| match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
            Some(quoted) => quoted.to_owned(),
            None => name.to_lowercase(),
        };
        let (of, name) = table.split_once('.').map_or((None, table), |(of, name)| (Some(of), name));
        let target = serac_sql::IngestTarget { schema: of.map(fold), table: fold(name), create, ..Default::default() };
        session.ingest(&target, &schema, futures::stream::empty()).await.map_err(|e| e.to_string())?;
    }
    let mut rows = 0;
    for file in files {
        bar.set_message(file.file_name().unwrap_or_default().to_string_lossy().into_owned());
        let path = file.to_string_lossy().replace('\'', "''");
        let options = if header { " WITH (HEADER true)" } else { "" };
        let size = file.metadata().map_or(0, |m| m.len());
        let (before, progress) = (bar.position(), session.copy_progress());
        let copy = format!("COPY {table} FROM '{path}'{options}");
        let copy = session.execute(&copy);
        tokio::pin!(copy);
        let mut ticks = tokio::time::interval(output::CopyBar::TICK);
        let result = loop {
            tokio::select! {
                result = &mut copy => break result,
                _ = ticks.tick() => {
                    let (done, total) = progress.input();
                    bar.set_position(before + (size as f64 * done as f64 / total.max(1) as f64) as u64);
                }
            }
        };
        match result.map_err(|e| e.to_string())?.pop() {
            Some(serac_sql::StatementResult::Command { rows: n, .. }) => rows += n,
            _ => unreachable!("COPY is a command"),
        }
        bar.set_position(before + size);
    }
    session.execute("COMMIT").await.map_err(|e| e.to_string())?;
    bar.finish_and_clear();
    println!("{rows} rows loaded into {table}");
    Ok(())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
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
        Some(Command::Load { open, table, create, header, files }) => open.open().and_then(|db| {
            let result = runtime.block_on(load(&db, table, *create, *header, files));
            result.and(db.database().close().map_err(|e| e.to_string()))
        }),
        Some(Command::Serve(serve)) => serve::run(&runtime, serve),
        None => arguments.open.open().and_then(|db| {
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
