//! Results and progress, for people and for programs.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use clap::ValueEnum;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Write;

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
            uuids.iter().map(|u| u.map_or(null.into(), serac_sql::format_uuid)).collect()
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

fn rows_of(batches: &[RecordBatch], null: &'static str, limit: usize) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for batch in batches {
        let batch = batch.slice(0, batch.num_rows().min(limit - rows.len()));
        let columns: Vec<Vec<String>> = batch.columns().iter().map(|c| text_of(c, null)).collect();
        rows.extend((0..batch.num_rows()).map(|i| columns.iter().map(|c| c[i].clone()).collect()));
        if rows.len() >= limit {
            break;
        }
    }
    rows
}

fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

fn json_value(array: &ArrayRef, row: usize, text: &str) -> String {
    if array.is_null(row) {
        return "null".into();
    }
    let bare = array.data_type().is_integer()
        || matches!(array.data_type(), DataType::Boolean | DataType::Decimal128(..))
        || (array.data_type().is_floating() && !text.contains(['N', 'i']));
    if bare {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if (c as u32) < 32 => {
                let _ = write!(quoted, "\\u{:04x}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// The rows as text, ending with a newline.
pub fn format_rows(schema: &SchemaRef, batches: &[RecordBatch], mode: Mode) -> String {
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    let total: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let mut out = String::new();
    match mode {
        Mode::Csv => {
            let header: Vec<String> = names.iter().map(|n| csv_field(n)).collect();
            let _ = writeln!(out, "{}", header.join(","));
            for row in rows_of(batches, "", usize::MAX) {
                let row: Vec<String> = row.iter().map(|f| csv_field(f)).collect();
                let _ = writeln!(out, "{}", row.join(","));
            }
        }
        Mode::Json => {
            let mut objects = Vec::with_capacity(total);
            for batch in batches {
                let columns: Vec<Vec<String>> = batch.columns().iter().map(|c| text_of(c, "")).collect();
                objects.extend((0..batch.num_rows()).map(|row| {
                    let fields = names.iter().zip(batch.columns()).zip(&columns).map(|((name, array), texts)| {
                        format!("{}: {}", serde_json::Value::from(*name), json_value(array, row, &texts[row]))
                    });
                    format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
                }));
            }
            let _ = writeln!(out, "[{}]", objects.join(",\n "));
        }
        Mode::Expanded => {
            let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
            for (i, row) in rows_of(batches, "NULL", SHOWN_ROWS).iter().enumerate() {
                let _ = writeln!(out, "-[ row {} ]{}", i + 1, "-".repeat(width));
                for (name, value) in names.iter().zip(row) {
                    let _ = writeln!(out, "{name:width$} | {value}");
                }
            }
            out.push_str(&footer(total));
        }
        Mode::Table | Mode::Markdown => {
            let mut table = Table::new();
            table.load_style(if mode == Mode::Markdown { presets::ASCII_MARKDOWN } else { presets::UTF8_BORDERS_ONLY });
            table.set_content_arrangement(ContentArrangement::Disabled);
            table.set_header(names);
            for (i, field) in schema.fields().iter().enumerate() {
                if field.data_type().is_numeric()
                    && let Some(column) = table.column_mut(i)
                {
                    column.set_cell_alignment(CellAlignment::Right);
                }
            }
            table.add_rows(rows_of(batches, "NULL", SHOWN_ROWS));
            let _ = writeln!(out, "{table}");
            if mode == Mode::Table {
                out.push_str(&footer(total));
            }
        }
    }
    out
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
