//! Results and progress, for people and for programs.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use clap::ValueEnum;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serac_sql::CopyProgress;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rows that table and markdown modes show at the most.
const SHOWN_ROWS: usize = 1_000;

/// How results are shown.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Aligned, with lines.
    #[default]
    Table,
    /// Comma-separated, with a header.
    Csv,
    /// An array of objects.
    Json,
    /// A Markdown table.
    Markdown,
    /// A line per column.
    Expanded,
}

fn text_of(array: &ArrayRef, null: &'static str) -> Vec<String> {
    match array.data_type() {
        DataType::FixedSizeBinary(16) => {
            let uuids = array.as_fixed_size_binary();
            uuids.iter().map(|u| u.map_or(null.into(), serac_engine::values::format_uuid)).collect()
        }
        DataType::BinaryView => {
            let hex = |bytes: &[u8]| {
                bytes.iter().fold("\\x".to_owned(), |mut s, b| {
                    let _ = write!(s, "{b:02x}");
                    s
                })
            };
            array.as_binary_view().iter().map(|b| b.map_or(null.into(), hex)).collect()
        }
        _ => {
            let options = FormatOptions::default()
                .with_null(null)
                .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
                .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:z"));
            match ArrayFormatter::try_new(array, &options) {
                Ok(formatter) => (0..array.len()).map(|i| formatter.value(i).to_string()).collect(),
                Err(error) => vec![error.to_string(); array.len()],
            }
        }
    }
}

fn rows_of(batch: &RecordBatch, null: &'static str) -> impl Iterator<Item = Vec<String>> {
    let columns: Vec<Vec<String>> = batch.columns().iter().map(|c| text_of(c, null)).collect();
    (0..batch.num_rows()).map(move |i| columns.iter().map(|c| c[i].clone()).collect())
}

fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

fn json_value(array: &ArrayRef, row: usize, text: &str) -> String {
    if array.is_null(row) {
        return "null".into();
    }
    let bare = array.data_type().is_integer()
        // Large texts are documents.
        || matches!(array.data_type(), DataType::Boolean | DataType::Decimal128(..) | DataType::LargeUtf8)
        || (array.data_type().is_floating() && !text.contains(['N', 'i']));
    if bare {
        return text.to_owned();
    }
    serde_json::Value::from(text).to_string()
}

/// Writes rows as they come: the modes for programs write all at once, those for people the first rows at the end.
pub struct RowsWriter {
    schema: SchemaRef,
    mode: Mode,
    /// The first rows, in the modes for people.
    shown: Vec<Vec<String>>,
    total: usize,
}

impl RowsWriter {
    /// A writer of rows with these columns.
    pub fn new(schema: SchemaRef, mode: Mode) -> Self {
        Self { schema, mode, shown: Vec::new(), total: 0 }
    }
    fn names(&self) -> Vec<&str> {
        self.schema.fields().iter().map(|f| f.name().as_str()).collect()
    }
    /// What stands before the first row.
    pub fn start(&self) -> String {
        match self.mode {
            Mode::Csv => self.names().into_iter().map(csv_field).collect::<Vec<_>>().join(",") + "\n",
            Mode::Json => "[".into(),
            _ => String::new(),
        }
    }
    /// The text of some rows.
    pub fn rows(&mut self, batch: &RecordBatch) -> String {
        let mut out = String::new();
        match self.mode {
            Mode::Csv => {
                for row in rows_of(batch, "") {
                    let row: Vec<String> = row.iter().map(|f| csv_field(f)).collect();
                    let _ = writeln!(out, "{}", row.join(","));
                }
            }
            Mode::Json => {
                let (names, columns) = (self.names(), batch.columns());
                let texts: Vec<Vec<String>> = columns.iter().map(|c| text_of(c, "")).collect();
                for row in 0..batch.num_rows() {
                    let fields = names.iter().zip(columns).zip(&texts).map(|((name, array), texts)| {
                        format!("{}: {}", serde_json::Value::from(*name), json_value(array, row, &texts[row]))
                    });
                    let separator = if self.total + row > 0 { ",\n " } else { "" };
                    let _ = write!(out, "{separator}{{{}}}", fields.collect::<Vec<_>>().join(", "));
                }
            }
            _ => {
                let batch = batch.slice(0, batch.num_rows().min(SHOWN_ROWS - self.shown.len()));
                self.shown.extend(rows_of(&batch, "NULL"));
            }
        }
        self.total += batch.num_rows();
        out
    }

    /// What stands after the last row, ending with a newline.
    pub fn finish(self) -> String {
        let mut out = String::new();
        match self.mode {
            Mode::Csv => {}
            Mode::Json => out.push_str("]\n"),
            Mode::Expanded => {
                let names = self.names();
                let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
                for (i, row) in self.shown.iter().enumerate() {
                    let _ = writeln!(out, "-[ row {} ]{}", i + 1, "-".repeat(width));
                    for (name, value) in names.iter().zip(row) {
                        let _ = writeln!(out, "{name:width$} | {value}");
                    }
                }
                out.push_str(&footer(self.total));
            }
            Mode::Table | Mode::Markdown => {
                let markdown = self.mode == Mode::Markdown;
                let mut table = Table::new();
                table.load_style(if markdown { presets::ASCII_MARKDOWN } else { presets::UTF8_BORDERS_ONLY });
                table.set_content_arrangement(ContentArrangement::Disabled);
                table.set_header(self.names());
                for (i, field) in self.schema.fields().iter().enumerate() {
                    if field.data_type().is_numeric()
                        && let Some(column) = table.column_mut(i)
                    {
                        column.set_cell_alignment(CellAlignment::Right);
                    }
                }
                table.add_rows(self.shown);
                let _ = writeln!(out, "{table}");
                if !markdown {
                    out.push_str(&footer(self.total));
                }
            }
        }
        out
    }
}

fn footer(total: usize) -> String {
    match total {
        1 => "(1 row)\n".into(),
        n if n > SHOWN_ROWS => format!("({n} rows, the first {SHOWN_ROWS} shown; csv and json modes show all)\n"),
        n => format!("({n} rows)\n"),
    }
}

/// A progress bar; invisible where standard error is no terminal.
pub fn progress_bar(total: u64, message: &str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    let style = ProgressStyle::with_template("{msg:12} [{bar:40.cyan}] {percent:>3}% {elapsed}").expect("a constant");
    bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
    bar.set_message(message.to_owned());
    bar
}

/// Shows how far a COPY is, once it takes a while.
pub struct CopyBar {
    progress: Arc<CopyProgress>,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl CopyBar {
    /// Time between two looks.
    pub const TICK: Duration = Duration::from_millis(100);
    /// Shorter copies show nothing.
    const PATIENCE: Duration = Duration::from_millis(500);

    /// For a COPY that starts now.
    pub fn new(progress: Arc<CopyProgress>) -> Self {
        Self { progress, started: Instant::now(), bar: None }
    }
    /// Shows the present state.
    pub fn tick(&mut self) {
        if self.started.elapsed() < Self::PATIENCE {
            return;
        }
        let (done, total) = self.progress.input();
        let bar = self
            .bar
            .get_or_insert_with(|| if total > 0 { progress_bar(total, "copying") } else { ProgressBar::new_spinner() });
        bar.set_position(done);
        bar.set_message(format!("{} rows", self.progress.rows()));
    }
}

impl Drop for CopyBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
