//! `serac load`: files and streams into a table, with detection of their form.

mod sniff;

use crate::output::{CopyBar, progress_bar, texts};
use crate::quoting::{constant, identifier};
use crate::{AccessOptions, OpenOptions};
use arrow::datatypes::Schema;
use serac_client::wire::Failure;
use serac_server::folder::FolderSession;
use sniff::{Said, Sniffed, whole_lines};
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes at the beginning of a CSV file from which its form is detected.
const SAMPLE_BYTES: u64 = 1 << 20;

#[derive(clap::Args, Debug)]
pub struct LoadArguments {
    /// Folder of the database.
    pub path: PathBuf,
    /// The files: CSV, also compressed (.gz), Parquet and Arrow; `-` is the standard input.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The table.
    #[arg(long)]
    table: String,
    /// Makes the table, with the columns of the first file, if it is not there. Types in CSV are
    /// told by its first MiB.
    #[arg(long)]
    create: bool,
    /// Whether CSV files have a line of column names; found out if it is not said.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    header: Option<bool>,
    /// The delimiter between the columns of CSV, a character or `tab`; found out if it is not
    /// given.
    #[arg(long, value_parser = parse_character)]
    delimiter: Option<u8>,
    /// The quote around texts in CSV; found out if it is not given.
    #[arg(long, value_parser = parse_character)]
    quote: Option<u8>,
    #[command(flatten)]
    pub options: OpenOptions,
    #[command(flatten)]
    pub access: AccessOptions,
}

fn parse_character(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        _ if text == "tab" || text == "\\t" => Ok(b'\t'),
        [byte] => Ok(*byte),
        _ => Err("a single character of one byte is needed, or \"tab\"".into()),
    }
}

/// The form in which a file is read.
enum Form {
    /// The database reads the file itself, at several places at once.
    File,
    /// CSV from a stream, whose beginning has been read already.
    Csv { sample: Vec<u8>, rest: Box<dyn Read + Send> },
    /// A stream of Arrow IPC.
    Arrow(Box<dyn Read + Send>),
}

/// A file to load.
struct Input {
    /// Its name in messages.
    name: String,
    form: Form,
    /// The length in bytes, of the compressed file if it is compressed; 0 if it is not known.
    size: u64,
    /// Bytes that were read.
    read: Arc<AtomicU64>,
}

/// Counts the bytes that are read.
struct Counted<R>(R, Arc<AtomicU64>);

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.0.read(buffer)?;
        // Relaxed: a figure to be shown.
        self.1.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl Input {
    fn open(path: &Path) -> Result<Self, String> {
        let is_stdin = path.as_os_str() == "-";
        let name = if is_stdin { "the standard input".to_owned() } else { path.display().to_string() };
        let failed = |error: std::io::Error| format!("{name}: {error}");
        let read = Arc::new(AtomicU64::new(0));
        let mut size = 0;
        let opened: Box<dyn Read + Send> = if is_stdin {
            Box::new(std::io::stdin())
        } else {
            let file = File::open(path)
                .map_err(|error| format!("ERROR 58P01: could not open file \"{}\": {error}", path.display()))?;
            let metadata = file.metadata().map_err(failed)?;
            if metadata.is_dir() {
                return Err(format!("{name} is a folder"));
            }
            let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_lowercase();
            if metadata.is_file() {
                size = metadata.len();
                if matches!(extension.as_str(), "parquet" | "arrow" | "ipc" | "feather") {
                    return Ok(Self { name, form: Form::File, size, read });
                }
            }
            Box::new(file)
        };
        let mut bytes = BufReader::new(Counted(opened, read.clone()));
        let is_gzip = bytes.fill_buf().map_err(failed)?.starts_with(&[0x1f, 0x8b]);
        let mut bytes: BufReader<Box<dyn Read + Send>> = match is_gzip {
            true => BufReader::new(Box::new(flate2::bufread::MultiGzDecoder::new(bytes))),
            false => BufReader::new(Box::new(bytes)),
        };
        let start = bytes.fill_buf().map_err(failed)?;
        if start.starts_with(b"PAR1") {
            return Err(format!("{name} is Parquet, which is read from a file whose name ends in .parquet"));
        }
        if start.starts_with(b"ARROW1") {
            return Err(format!("{name} is an Arrow file, which is read from a file whose name ends in .arrow"));
        }
        let form = if start.starts_with(&[0xff; 4]) {
            Form::Arrow(Box::new(bytes))
        } else {
            let mut sample = Vec::new();
            bytes.by_ref().take(SAMPLE_BYTES).read_to_end(&mut sample).map_err(failed)?;
            Form::Csv { sample, rest: Box::new(bytes) }
        };
        Ok(Self { name, form, size, read })
    }
}

/// A table's schema, if one is given, and its name, as SQL reads them.
fn parts_of(table: &str) -> (Option<String>, String) {
    let fold = |name: &str| match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => name.to_lowercase(),
    };
    match table.split_once('.') {
        Some((schema, table)) => (Some(fold(schema)), fold(table)),
        None => (None, fold(table)),
    }
}

/// The names of a table's columns; `None` if it does not exist.
async fn columns_of(session: &mut FolderSession, table: &str) -> Option<Vec<String>> {
    let columns = session.columns(&format!("SELECT * FROM {table} LIMIT 0")).await.ok()?;
    Some(columns.fields().iter().map(|field| field.name().clone()).collect())
}

/// A table's generated columns, which no file has.
async fn generated_columns(session: &mut FolderSession, schema: &str, table: &str) -> Result<Vec<String>, Failure> {
    let sql = format!(
        "SELECT column_name::text FROM information_schema.columns WHERE table_schema = {} AND table_name = {} \
         AND is_generated = 'ALWAYS'",
        constant(schema),
        constant(table)
    );
    let batches = session.query(&sql).await?;
    Ok(batches.iter().flat_map(|batch| texts(batch, "")).flatten().collect())
}

/// Columns as COPY writes them.
fn list<'n>(names: impl IntoIterator<Item = &'n String>) -> String {
    format!("({})", names.into_iter().map(|name| identifier(name)).collect::<Vec<_>>().join(", "))
}

/// The table's columns for a file with these names; `None` if the names are not the table's, whose
/// columns are then taken by position.
fn columns_named<'k>(sniffed: &Sniffed, known: &'k [String]) -> Option<Vec<&'k String>> {
    if !sniffed.header {
        return None;
    }
    let of_name = |name: &String| {
        known.iter().find(|k| *k == name).or_else(|| known.iter().find(|k| k.eq_ignore_ascii_case(name)))
    };
    sniffed.names.iter().map(of_name).collect()
}

/// Loads the files, all or nothing, and prints the detected form.
pub async fn load(mut session: FolderSession, arguments: &LoadArguments) -> Result<(), String> {
    let text = |error: Failure| error.to_string();
    let (schema, table) = parts_of(&arguments.table);
    let qualified = schema.iter().chain([&table]).map(|name| identifier(name)).collect::<Vec<_>>().join(".");
    let (namespace, name) = (schema, table);
    let table = &qualified;
    let said = Said { header: arguments.header, delimiter: arguments.delimiter, quote: arguments.quote };
    let mut known = columns_of(&mut session, table).await;
    let generated =
        generated_columns(&mut session, namespace.as_deref().unwrap_or("public"), &name).await.map_err(text)?;
    let total = arguments.files.iter().filter_map(|f| f.metadata().ok()).filter(|m| m.is_file()).map(|m| m.len()).sum();
    let bar = progress_bar(total, "loading");
    session.execute("BEGIN").await.map_err(text)?;
    let mut rows = 0;
    for path in &arguments.files {
        let input = Input::open(path)?;
        let at = |error: Failure| format!("{}: {error}", input.name);
        bar.set_message(path.file_name().unwrap_or_default().to_string_lossy().into_owned());
        let file = constant(&path.to_string_lossy());
        let (schema, copy) = match input.form {
            Form::File => {
                let schema = if arguments.create {
                    Some(serac_sql::file_schema(&path.to_string_lossy()).map_err(|error| error.to_string())?)
                } else {
                    None
                };
                (schema, format!("COPY {table} FROM {file}"))
            }
            Form::Arrow(stream) => {
                if arguments.create && known.is_none() {
                    return Err(format!("{}: make the table first: a stream is read only once", input.name));
                }
                session.set_copy_input(stream);
                (None, format!("COPY {table} FROM STDIN WITH (FORMAT arrow)"))
            }
            Form::Csv { sample, rest } => {
                let is_whole = (sample.len() as u64) < SAMPLE_BYTES;
                let seen = if is_whole { &sample[..] } else { whole_lines(&sample) };
                let sniffed = Sniffed::new(seen, said, known.as_deref());
                let schema: Schema = sniffed.schema();
                let named = known.as_deref().and_then(|known| columns_named(&sniffed, known));
                let columns = named.as_ref().map_or(String::new(), |names| format!(" {}", list(names.iter().copied())));
                let by_place = || match &known {
                    Some(known) => known.iter().filter(|name| !generated.contains(name)).cloned().collect(),
                    None => schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>(),
                };
                let filled = named.map_or_else(by_place, |names| names.into_iter().cloned().collect());
                // Empty fields are NULL even in quotes, as they were when types were detected.
                let force = if filled.is_empty() { String::new() } else { format!(", FORCE_NULL {}", list(&filled)) };
                let (delimiter, quote) = (char::from(sniffed.delimiter), char::from(sniffed.quote));
                let copy = format!(
                    "COPY {table}{columns} FROM STDIN WITH (FORMAT csv, HEADER {}, DELIMITER {}, QUOTE {}{force})",
                    sniffed.header,
                    constant(&delimiter.to_string()),
                    constant(&quote.to_string())
                );
                let header = if sniffed.header { "a line of names" } else { "no line of names" };
                bar.suspend(|| {
                    eprintln!("{}: CSV with {header}, columns separated by {delimiter:?}, quotes {quote}", input.name);
                });
                if known.is_none() && sniffed.names.is_empty() {
                    return Err(format!("{}: it is empty, so that it says no columns", input.name));
                }
                session.set_copy_input(Box::new(Cursor::new(sample).chain(rest)));
                (Some(Arc::new(schema)), copy)
            }
        };
        if let (true, Some(schema)) = (arguments.create && known.is_none(), schema) {
            session.create_table(namespace.as_deref(), &name, &schema).await.map_err(at)?;
            known = Some(schema.fields().iter().map(|field| field.name().clone()).collect());
        }
        let (before, progress) = (bar.position(), session.progress());
        let copy = session.execute(&copy);
        tokio::pin!(copy);
        let mut ticks = tokio::time::interval(CopyBar::TICK);
        let result = loop {
            tokio::select! {
                result = &mut copy => break result,
                _ = ticks.tick() => {
                    // The progress is a number of bytes if this process reads the file, and a share
                    // if the database does.
                    let (done, total) = progress.input();
                    let share = if total > 0 { input.size as f64 * done as f64 / total as f64 } else { 0.0 };
                    bar.set_position(before + input.read.load(Ordering::Relaxed).max(share as u64));
                }
            }
        };
        rows += result.map_err(at)?;
        bar.set_position(before + input.size);
    }
    session.execute("COMMIT").await.map_err(text)?;
    bar.finish_and_clear();
    println!("{rows} rows loaded into {}", arguments.table);
    Ok(())
}
