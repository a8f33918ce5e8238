//! Results and progress, for people and for programs.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Date32Type, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use clap::ValueEnum;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};
use console::measure_text_width;
use indicatif::{ProgressBar, ProgressStyle};
use serac_engine::Infinity;
use serac_server::folder::FolderProgress;
use serac_sql::TimeStyle;
use serac_sql::wire::{Purpose, style_of_schema, to_wire, with_texts};
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most rows that the modes for people and Markdown show.
const SHOWN_ROWS: usize = 1_000;

/// The least width of a column of texts in a table that is fitted to a terminal.
const NARROWEST: usize = 12;

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

/// The text of an infinite date or time; `None` for other values.
fn infinite_time(array: &ArrayRef, row: usize) -> Option<&'static str> {
    let infinity = match array.data_type() {
        _ if array.is_null(row) => None,
        DataType::Date32 => Infinity::of_days(array.as_primitive::<Date32Type>().value(row)),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Infinity::of_micros(array.as_primitive::<TimestampMicrosecondType>().value(row))
        }
        _ => None,
    };
    infinity.map(Infinity::name)
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
        DataType::Struct(_) | DataType::FixedSizeBinary(1 | 6) => match to_wire(array) {
            Ok(rows) => text_of(&rows, null),
            Err(error) => vec![error.to_string(); array.len()],
        },
        _ => {
            let options = FormatOptions::default()
                .with_null(null)
                .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
                .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:z"));
            match ArrayFormatter::try_new(array, &options) {
                Ok(formatter) => {
                    let finite = |row| formatter.value(row).to_string();
                    let text = |row| infinite_time(array, row).map_or_else(|| finite(row), str::to_owned);
                    (0..array.len()).map(text).collect()
                }
                Err(error) => vec![error.to_string(); array.len()],
            }
        }
    }
}

/// The values of the rows as texts, with `null` for NULL.
pub fn texts(batch: &RecordBatch, null: &'static str) -> impl Iterator<Item = Vec<String>> + use<> {
    let columns: Vec<Vec<String>> = batch.columns().iter().map(|c| text_of(c, null)).collect();
    (0..batch.num_rows()).map(move |i| columns.iter().map(|c| c[i].clone()).collect())
}

/// Rows whose times are texts, as a session's settings have them; `None` if that is impossible.
fn in_style(batch: &RecordBatch, style: &TimeStyle) -> Option<RecordBatch> {
    let texts = |column: &ArrayRef| with_texts(column, style, Purpose::Text).ok();
    let columns = batch.columns().iter().map(texts).collect::<Option<Vec<_>>>()?;
    let given = batch.schema();
    let fields = given.fields().iter().zip(&columns).map(|(field, column)| {
        Arc::new(field.as_ref().clone().with_data_type(column.data_type().clone()).with_nullable(true))
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema, columns, &options).ok()
}

fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// The values of an array as JSON.
fn json_of(array: &ArrayRef) -> Vec<String> {
    let each = |json: &dyn Fn(usize) -> String| -> Vec<String> {
        (0..array.len()).map(|row| if array.is_null(row) { "null".into() } else { json(row) }).collect()
    };
    let list = |elements: ArrayRef| format!("[{}]", json_of(&elements).join(", "));
    match array.data_type() {
        DataType::Null => vec!["null".into(); array.len()],
        DataType::List(_) => each(&|row| list(array.as_list::<i32>().value(row))),
        DataType::LargeList(_) => each(&|row| list(array.as_list::<i64>().value(row))),
        DataType::FixedSizeList(..) => each(&|row| list(array.as_fixed_size_list().value(row))),
        DataType::Struct(fields) => {
            let columns: Vec<Vec<String>> = array.as_struct().columns().iter().map(json_of).collect();
            each(&|row| {
                let field = |(field, column): (&arrow::datatypes::FieldRef, &Vec<String>)| {
                    format!("{}: {}", serde_json::Value::from(field.name().as_str()), column[row])
                };
                format!("{{{}}}", fields.iter().zip(&columns).map(field).collect::<Vec<_>>().join(", "))
            })
        }
        data_type => {
            let texts = text_of(array, "");
            // Large texts are documents.
            let bare = data_type.is_integer()
                || matches!(data_type, DataType::Boolean | DataType::Decimal128(..) | DataType::LargeUtf8);
            let is_float = data_type.is_floating();
            each(&|row| match texts[row].as_str() {
                text if bare || (is_float && !text.contains(['N', 'i'])) => text.to_owned(),
                text => serde_json::Value::from(text).to_string(),
            })
        }
    }
}

/// A text with escapes in place of characters that would control the terminal: control characters,
/// and those that change the direction of writing. With `keep_lines`, ends of lines stay.
pub fn printable(text: &str, keep_lines: bool) -> String {
    let steers = |c: char| {
        (c.is_control() && !(keep_lines && c == '\n'))
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(steers) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' if !keep_lines => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if steers(c) && c.is_ascii() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if steers(c) => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// Writes rows as they come. CSV and JSON write each batch when it comes; the other modes keep the
/// first rows and write them at the end.
pub struct RowsWriter {
    schema: SchemaRef,
    mode: Mode,
    /// The first rows, in the modes that write at the end.
    shown: Vec<Vec<String>>,
    total: usize,
    /// The settings of times of the rows' session; `None` for the defaults.
    style: Option<TimeStyle>,
}

impl RowsWriter {
    /// A writer of rows with these columns.
    pub fn new(schema: SchemaRef, mode: Mode) -> Self {
        let style = style_of_schema(&schema);
        Self { schema, mode, shown: Vec::new(), total: 0, style }
    }

    fn names(&self) -> Vec<&str> {
        self.schema.fields().iter().map(|f| f.name().as_str()).collect()
    }

    /// The text before the first row.
    pub fn start(&self) -> String {
        match self.mode {
            Mode::Csv => self.names().into_iter().map(csv_field).collect::<Vec<_>>().join(",") + "\n",
            Mode::Json => "[".into(),
            _ => String::new(),
        }
    }

    /// The text of a batch of rows.
    pub fn rows(&mut self, batch: &RecordBatch) -> String {
        let styled = self.style.as_ref().and_then(|style| in_style(batch, style));
        let batch = styled.as_ref().unwrap_or(batch);
        let mut out = String::new();
        match self.mode {
            Mode::Csv => {
                for row in texts(batch, "") {
                    let row: Vec<String> = row.iter().map(|f| csv_field(f)).collect();
                    let _ = writeln!(out, "{}", row.join(","));
                }
            }
            Mode::Json => {
                let (names, columns) = (self.names(), batch.columns());
                let values: Vec<Vec<String>> = columns.iter().map(json_of).collect();
                for row in 0..batch.num_rows() {
                    let fields = names
                        .iter()
                        .zip(&values)
                        .map(|(name, values)| format!("{}: {}", serde_json::Value::from(*name), values[row]));
                    let separator = if self.total + row > 0 { ",\n " } else { "" };
                    let _ = write!(out, "{separator}{{{}}}", fields.collect::<Vec<_>>().join(", "));
                }
            }
            _ => {
                let batch = batch.slice(0, batch.num_rows().min(SHOWN_ROWS - self.shown.len()));
                let keep_lines = self.mode != Mode::Markdown;
                let rows = texts(&batch, "NULL");
                self.shown.extend(rows.map(|row| row.iter().map(|text| printable(text, keep_lines)).collect()));
            }
        }
        self.total += batch.num_rows();
        out
    }

    /// The text after the last row, ending with a newline. `width`: columns of the terminal, if it
    /// goes to one.
    pub fn finish(self, width: Option<usize>) -> String {
        let names: Vec<String> = self.names().into_iter().map(|name| printable(name, false)).collect();
        match self.mode {
            Mode::Csv => String::new(),
            Mode::Json => "]\n".into(),
            // A plan is text.
            Mode::Table if names == ["QUERY PLAN"] => self.shown.iter().map(|row| format!("{}\n", row[0])).collect(),
            Mode::Markdown => format!("{}\n", self.table(&names)),
            Mode::Expanded => self.expanded(&names) + &footer(self.total),
            Mode::Table => {
                let mut table = self.table(&names);
                let natural = table.lines().map(|line| measure_text_width(&line)).max().unwrap_or(0);
                match width.filter(|width| natural > *width) {
                    Some(width) if self.fit(&mut table, width) => format!("{table}\n{}", footer(self.total)),
                    Some(_) => self.expanded(&names) + &footer(self.total),
                    None => format!("{table}\n{}", footer(self.total)),
                }
            }
        }
    }

    fn table(&self, names: &[String]) -> Table {
        let mut table = Table::new();
        let is_markdown = self.mode == Mode::Markdown;
        table.load_style(if is_markdown { presets::ASCII_MARKDOWN } else { presets::UTF8_BORDERS_ONLY });
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(names);
        for (i, field) in self.schema.fields().iter().enumerate() {
            if field.data_type().is_numeric()
                && let Some(column) = table.column_mut(i)
            {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.add_rows(&self.shown);
        table
    }

    /// Breaks texts so that the table is no wider; false where too little room is left for that.
    /// Numbers are not broken.
    fn fit(&self, table: &mut Table, width: usize) -> bool {
        let widths = table.column_max_content_widths();
        let breaks = |at: usize| !self.schema.field(at).data_type().is_numeric() && usize::from(widths[at]) > NARROWEST;
        let needed: usize =
            (0..widths.len()).map(|at| 3 + if breaks(at) { NARROWEST } else { usize::from(widths[at]) }).sum();
        if needed + 1 > width {
            return false;
        }
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
        for at in 0..widths.len() {
            if let (false, Some(column)) = (breaks(at), table.column_mut(at)) {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        true
    }

    fn expanded(&self, names: &[String]) -> String {
        let mut out = String::new();
        let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
        for (i, row) in self.shown.iter().enumerate() {
            let _ = writeln!(out, "-[ row {} ]{}", i + 1, "-".repeat(width));
            for (name, value) in names.iter().zip(row) {
                let _ = writeln!(out, "{name:width$} | {value}");
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

/// Shows the progress of a COPY that takes long.
pub struct CopyBar {
    progress: FolderProgress,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl CopyBar {
    /// Time between two looks.
    pub const TICK: Duration = Duration::from_millis(100);
    /// Shorter copies show nothing.
    const PATIENCE: Duration = Duration::from_millis(500);

    /// The bar of a COPY that starts now.
    pub fn new(progress: FolderProgress) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, ListArray, NullArray, StringArray};
    use arrow::datatypes::{Field, Int64Type, Schema};
    use std::sync::Arc;

    fn shown(columns: Vec<(&str, ArrayRef)>, mode: Mode, width: Option<usize>) -> String {
        let fields: Vec<Field> =
            columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
        let schema = Arc::new(Schema::new(fields));
        let batch =
            RecordBatch::try_new(schema.clone(), columns.into_iter().map(|(_, array)| array).collect()).unwrap();
        let mut writer = RowsWriter::new(schema, mode);
        let start = writer.start();
        start + &writer.rows(&batch) + &writer.finish(width)
    }

    #[test]
    fn arrays_and_nulls_are_json() {
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(1), None]), None]);
        let columns = vec![("l", Arc::new(lists) as ArrayRef), ("n", Arc::new(NullArray::new(2)))];
        let text = shown(columns, Mode::Json, None);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value, serde_json::json!([{"l": [1, null], "n": null}, {"l": null, "n": null}]));
    }

    #[test]
    fn what_would_steer_the_terminal_is_shown_as_signs() {
        assert_eq!(printable("\u{1b}[31mred\u{7}\t\u{202e}\u{9b}", true), "\\x1b[31mred\\x07\\t\\u202e\\u009b");
        assert_eq!((printable("a\nb", true), printable("a\nb", false)), ("a\nb".into(), "a\\nb".into()));
        let text = shown(vec![("\u{1b}c", Arc::new(StringArray::from(vec!["\u{1b}]0;x\u{7}"])))], Mode::Table, None);
        assert!(!text.contains('\u{1b}') && text.contains("\\x1b]0;x\\x07"), "{text}");
    }

    #[test]
    fn wide_tables_are_fitted() {
        let texts = || Arc::new(StringArray::from(vec!["word ".repeat(30)])) as ArrayRef;
        let numbers = || Arc::new(Int64Array::from(vec![1_234_567_890_123])) as ArrayRef;
        let columns = || vec![("n", numbers()), ("a", texts()), ("b", texts())];
        for width in [60, 100, 200] {
            let text = shown(columns(), Mode::Table, Some(width));
            assert!(text.lines().all(|line| measure_text_width(line) <= width), "{width}\n{text}");
            assert!(text.contains("1234567890123") && text.matches("word").count() == 60, "{width}\n{text}");
        }
        // The terminal is too narrow for columns beside each other.
        let text = shown(columns(), Mode::Table, Some(30));
        assert!(text.starts_with("-[ row 1 ]"), "{text}");
    }
}
