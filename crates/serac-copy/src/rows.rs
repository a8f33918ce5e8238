//! Rows that COPY FROM has read.

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringViewBuilder};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use serac_values::{Result, SqlError};
use std::sync::Arc;

/// Rows of a batch.
pub(super) const BATCH_ROWS: usize = 8_192;

/// The most bytes of a row of CSV or the text format. Without a limit, a client that never ends a
/// row would have the server keep all that it sends.
pub(super) const MAX_LINE: usize = 64 << 20;

/// Bytes of rows from which on a batch is complete.
pub(super) const BATCH_BYTES: usize = 16 << 20;

/// The first of some rows that fails `run`, which is given a number of rows from a first one on,
/// and its error. All of them together have failed with `error`.
pub fn first_failing<E>(rows: usize, mut error: E, mut run: impl FnMut(usize, usize) -> Result<(), E>) -> (usize, E) {
    // Rows before `good` are right, and a row from there to `wrong` is wrong.
    let (mut good, mut wrong) = (0, rows);
    while wrong - good > 1 {
        let middle = good + (wrong - good) / 2;
        match run(good, middle - good) {
            Ok(()) => good = middle,
            Err(first) => (wrong, error) = (middle, first),
        }
    }
    // An error found in several rows may belong to another row.
    if let Err(first) = run(good, 1) {
        error = first;
    }
    (good, error)
}

/// Says in which file an error happened.
#[must_use]
pub fn in_file(mut error: SqlError, name: &str) -> SqlError {
    error.detail = Some(match error.detail.take() {
        Some(detail) => format!("\"{name}\", {detail}"),
        None => format!("in \"{name}\""),
    });
    error
}

/// Says in which line an error happened.
#[must_use]
pub fn at_place(mut error: SqlError, place: &str) -> SqlError {
    error.detail = Some(match error.detail.take() {
        Some(detail) => format!("{place}; {detail}"),
        None => place.to_owned(),
    });
    error
}

/// The error of a row that is longer.
pub(super) fn row_too_long() -> SqlError {
    SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, format!("a row has more than {} MiB", MAX_LINE >> 20))
}

/// Rows that were read, and the line on which each begins, from 1. There are no lines if the format
/// has none.
pub struct Rows {
    /// The rows.
    pub batch: RecordBatch,
    /// Lines, one for each row; empty if the format has none.
    pub lines: Vec<u64>,
}

impl Rows {
    /// Reads up to `most` rows of texts; `None` behind the last. `read` appends the texts of a row
    /// and returns the line on which it begins. It is told whether rows have been read. It returns
    /// `None` if there is no next row, or if rows have been read and the next one does not come
    /// soon. The error of a row behind others waits in `failed`, because those rows may have
    /// errors, too.
    pub(super) fn gather(
        columns: usize,
        most: usize,
        failed: &mut Option<SqlError>,
        mut read: impl FnMut(&mut [StringViewBuilder], bool) -> Result<Option<u64>>,
    ) -> Result<Option<Self>> {
        let mut columns: Vec<StringViewBuilder> = (0..columns).map(|_| StringViewBuilder::new()).collect();
        let mut lines = Vec::new();
        while lines.len() < most {
            match read(&mut columns, !lines.is_empty()) {
                Ok(Some(line)) => lines.push(line),
                Ok(None) => break,
                Err(error) if lines.is_empty() => return Err(error),
                Err(error) => {
                    *failed = Some(error);
                    break;
                }
            }
        }
        if lines.is_empty() { Ok(None) } else { Self::of_texts(&mut columns, lines).map(Some) }
    }

    /// Rows of texts, one for each line. A column may have one text more, of a row with an error.
    fn of_texts(columns: &mut [StringViewBuilder], lines: Vec<u64>) -> Result<Self> {
        let field = |i: usize| Field::new(format!("c{i}"), DataType::Utf8View, true);
        let schema = Arc::new(Schema::new((0..columns.len()).map(field).collect::<Vec<_>>()));
        let array = |column: &mut StringViewBuilder| Arc::new(column.finish().slice(0, lines.len())) as ArrayRef;
        let arrays = columns.iter_mut().map(array).collect();
        // A table may have no column.
        let options = RecordBatchOptions::new().with_row_count(Some(lines.len()));
        let batch = RecordBatch::try_new_with_options(schema, arrays, &options)?;
        Ok(Self { batch, lines })
    }
}

impl From<RecordBatch> for Rows {
    fn from(batch: RecordBatch) -> Self {
        Self { batch, lines: Vec::new() }
    }
}
