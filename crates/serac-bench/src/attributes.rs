//! Single-row inserts and updates for 1 to 64 attributes of 8 bytes, in column layout and in row
//! layout (figure 11 of *Mainlining Databases*).
//!
//! The row layout is one attribute as wide as all attributes together: an update writes a whole new
//! value.
//!
//! Memory stays bounded for any number of rows: rows are written in rounds, each into a table of
//! its own that fits the budget. Filling and updating are timed; making and freeing the tables are
//! not. With a log, a phase ends when its log is on the disk, so the rates can be sustained.

use crate::report::Report;
use crate::setup::{Folder, open, resident_bytes, schema, text};
use indicatif::{ProgressBar, ProgressStyle};
use serac_storage::durability::storage::Storage;
use serac_storage::{ColumnId, ColumnType, DataTable, Durability, RowId, Transaction, Value};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(clap::Args, Debug)]
pub struct AttributesArguments {
    /// Rows to insert and to update in each measurement.
    #[arg(long, default_value_t = 10_000_000)]
    rows: usize,
    /// Operations per transaction.
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Numbers of attributes.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64])]
    attributes: Vec<usize>,
    /// Only with this log: "none" or "relaxed".
    #[arg(long)]
    log: Option<String>,
    /// Megabytes that a table may take.
    #[arg(long, default_value_t = 1_000)]
    memory: usize,
}

/// Operations between two looks at the progress bar, at least.
const STEP: usize = 1 << 16;

/// The layout of the attributes.
#[derive(Clone, Copy)]
enum Layout {
    /// An integer column per attribute.
    Columns(usize),
    /// One binary column of 8 bytes per attribute.
    Row(usize),
}

impl Layout {
    fn schema(self) -> serac_storage::TableSchema {
        match self {
            Self::Columns(attributes) => schema(attributes, ColumnType::Int64),
            Self::Row(_) => schema(1, ColumnType::Binary),
        }
    }

    /// Bytes of a row that was inserted and updated once: its slot, its row id here, and the values
    /// that an update leaves in the heap.
    fn bytes_per_row(self) -> usize {
        match self {
            Self::Columns(attributes) => 8 * attributes + 24,
            Self::Row(attributes) => 2 * 8 * attributes + 40,
        }
    }

    /// Calls `write` with the values of a row: every attribute is `number`.
    fn with_values<T>(self, number: i64, write: impl FnOnce(&[Value<'_>]) -> T) -> T {
        match self {
            Self::Columns(attributes) => write(&[Value::Int64(number); 64][..attributes]),
            Self::Row(attributes) => {
                let mut bytes = [0; 64 * 8];
                bytes.chunks_exact_mut(8).take(attributes).for_each(|b| b.copy_from_slice(&number.to_le_bytes()));
                write(&[Value::Bytes(&bytes[..8 * attributes])])
            }
        }
    }
}

/// One measurement under way.
struct Measurement<'a> {
    storage: Arc<Storage>,
    table: Arc<DataTable>,
    batch: usize,
    bar: &'a ProgressBar,
}

impl Measurement<'_> {
    /// Runs `operation` for every number below `count` and waits for the log. Returns the time.
    fn phase(
        &self,
        count: usize,
        mut operation: impl FnMut(&Arc<DataTable>, &mut Transaction, usize) -> serac_storage::Result<()>,
    ) -> Result<Duration, String> {
        let mut time = Duration::ZERO;
        let mut i = 0;
        while i < count {
            let (started, end) = (Instant::now(), count.min(i + STEP.max(self.batch)));
            let from = i;
            while i < end {
                let mut txn = self.storage.begin();
                for _ in 0..self.batch.min(end - i) {
                    operation(&self.table, &mut txn, i).map_err(text)?;
                    i += 1;
                }
                txn.commit().map_err(text)?;
            }
            time += started.elapsed();
            self.bar.inc((i - from) as u64);
        }
        let started = Instant::now();
        if let Some(log) = self.storage.manager().log() {
            log.flush().map_err(text)?;
        }
        Ok(time + started.elapsed())
    }
}

/// A step that visits all of `rows` rows once, out of order.
fn stride(rows: usize) -> usize {
    if rows.is_multiple_of(7_919) { 7_907 } else { 7_919 }
}

/// Inserts and updates per second, and the largest resident size seen between the two.
fn measure(
    layout: Layout,
    durability: Durability,
    arguments: &AttributesArguments,
    bar: &ProgressBar,
) -> Result<(f64, f64, f64), String> {
    let per_round = (arguments.memory * 1_000_000 / layout.bytes_per_row()).clamp(1, arguments.rows);
    let columns: Vec<ColumnId> = (0..layout.schema().columns.len() as u16).map(ColumnId).collect();
    let (mut inserting, mut updating, mut resident) = (Duration::ZERO, Duration::ZERO, 0f64);
    let mut done = 0;
    while done < arguments.rows {
        let rows = per_round.min(arguments.rows - done);
        let folder = Folder::new("attributes");
        let path = (durability != Durability::Off).then(|| folder.0.clone());
        let (storage, table) = open(path, durability, &layout.schema())?;
        let measurement = Measurement { storage, table, batch: arguments.batch.max(1), bar };
        let mut ids: Vec<RowId> = Vec::with_capacity(rows);
        inserting += measurement.phase(rows, |table, txn, i| {
            ids.push(layout.with_values(i as i64, |values| table.insert(txn, values))?);
            Ok(())
        })?;
        let stride = stride(rows);
        updating += measurement.phase(rows, |table, txn, i| {
            layout.with_values(-(i as i64), |values| table.update(txn, ids[i * stride % rows], &columns, values))
        })?;
        resident = resident.max(resident_bytes());
        // Uncollected versions would keep their table in memory.
        while measurement.storage.manager().gc().backlog() > 0 {
            measurement.storage.run_gc();
        }
        measurement.storage.close().map_err(text)?;
        done += rows;
    }
    let rate = |time: Duration| arguments.rows as f64 / time.as_secs_f64();
    Ok((rate(inserting), rate(updating), resident))
}

pub fn run(arguments: &AttributesArguments, report: &mut Report) -> Result<(), String> {
    if let Some(attributes) = arguments.attributes.iter().find(|n| !(1..=64).contains(*n)) {
        return Err(format!("{attributes} attributes: from 1 to 64 can be measured"));
    }
    let logs = [("none", Durability::Off), ("relaxed", Durability::Relaxed)];
    let logs: Vec<_> =
        logs.iter().filter(|(name, _)| arguments.log.as_deref().is_none_or(|log| log == *name)).collect();
    if logs.is_empty() || arguments.rows == 0 {
        return Err("nothing to measure: the log is \"none\" or \"relaxed\", and there must be rows".into());
    }
    let operations = logs.len() * arguments.attributes.len() * 2 * 2 * arguments.rows;
    let bar = ProgressBar::new(operations as u64);
    let style = "{msg:28} {wide_bar} {percent}% {per_sec}, {eta} left";
    bar.set_style(ProgressStyle::with_template(style).map_err(text)?);
    for (name, durability) in logs {
        for &attributes in &arguments.attributes {
            bar.set_message(format!("log {name}, {attributes} attributes"));
            let (inserts, updates, resident) = measure(Layout::Columns(attributes), *durability, arguments, &bar)?;
            let (row_inserts, row_updates, row_resident) =
                measure(Layout::Row(attributes), *durability, arguments, &bar)?;
            report.row(&[
                ("log", json!(name)),
                ("attributes", json!(attributes)),
                ("inserts/s", json!(inserts)),
                ("updates/s", json!(updates)),
                ("row layout inserts/s", json!(row_inserts)),
                ("row layout updates/s", json!(row_updates)),
                ("resident MB", json!(resident.max(row_resident) / 1e6)),
            ]);
        }
    }
    bar.finish_and_clear();
    Ok(())
}
