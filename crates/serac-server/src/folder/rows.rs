//! Record batches as messages of Arrow IPC.
//!
//! A message has at most a few MiB, unless one row is larger. Larger batches are cut into parts, so
//! that neither side needs more memory for large results than for small ones. Arrays of views hold
//! just the bytes that they name when they are sent: the heaps of hot blocks hold more, and part of
//! that is private.

use datafusion::arrow::array::{Array, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::{
    DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions, write_message,
};
use serac_client::wire::{MOST_ROWS_BYTES, MOST_SCHEMA_BYTES};
use serac_export::flight::exact;
use serac_sql::SqlError;
use std::ops::Range;

/// Bytes of a part, unless one row has more.
const PART_BYTES: usize = 2 << 20;

/// The messages of one result.
pub(super) struct Messages {
    schema: SchemaRef,
    generator: IpcDataGenerator,
    options: IpcWriteOptions,
    dictionaries: DictionaryTracker,
    context: IpcWriteContext,
}

/// About the bytes of the values in a range of rows.
fn bytes_of(array: &dyn Array, rows: Range<usize>) -> usize {
    let named = |views: &[u128]| views[rows.clone()].iter().map(|view| 16 + *view as u32 as usize).sum();
    if let Some(text) = array.as_string_view_opt() {
        named(text.views())
    } else if let Some(bytes) = array.as_binary_view_opt() {
        named(bytes.views())
    } else {
        let part = array.slice(rows.start, rows.len()).to_data();
        part.get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size())
    }
}

impl Messages {
    /// An encoder of rows with these columns. Also the first message, which has the columns.
    ///
    /// # Errors
    /// When the columns are too many.
    pub(super) fn new(schema: &SchemaRef) -> Result<(Self, Vec<u8>), SqlError> {
        let mut messages = Self {
            schema: schema.clone(),
            generator: IpcDataGenerator::default(),
            options: IpcWriteOptions::default(),
            dictionaries: DictionaryTracker::new(false),
            context: IpcWriteContext::default(),
        };
        let first = messages.first(schema)?;
        if first.len() > MOST_SCHEMA_BYTES {
            return Err(SqlError::new(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                "the columns of the result are too many to be sent",
            ));
        }
        Ok((messages, first))
    }

    fn first(&mut self, schema: &Schema) -> Result<Vec<u8>, ArrowError> {
        let Self { generator, options, dictionaries, .. } = self;
        let encoded = generator.schema_to_bytes_with_dictionary_tracker(schema, dictionaries, options);
        let mut bytes = Vec::new();
        write_message(&mut bytes, encoded, options)?;
        Ok(bytes)
    }

    /// The ranges of rows that are sent together.
    pub(super) fn parts(batch: &RecordBatch) -> Vec<Range<usize>> {
        let (mut parts, mut open): (_, Vec<_>) = (Vec::new(), std::iter::once(0..batch.num_rows()).collect());
        while let Some(rows) = open.pop() {
            let bytes: usize = batch.columns().iter().map(|column| bytes_of(column, rows.clone())).sum();
            if bytes <= PART_BYTES || rows.len() <= 1 {
                parts.push(rows);
            } else {
                let middle = rows.start + rows.len() / 2;
                open.extend([middle..rows.end, rows.start..middle]);
            }
        }
        parts
    }

    /// The messages of a range of rows of a batch.
    ///
    /// # Errors
    /// When a row is too long.
    pub(super) fn rows(&mut self, batch: &RecordBatch, rows: Range<usize>) -> Result<Vec<u8>, SqlError> {
        let part = batch.slice(rows.start, rows.len());
        let columns = part.columns().iter().map(exact).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(part.num_rows()));
        // The stream's schema is the announced one: a batch's own may be less precise about NULLs.
        let part = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        let Self { generator, options, dictionaries, context, .. } = self;
        let (words, encoded) = generator.encode(&part, dictionaries, options, context)?;
        let mut bytes = Vec::with_capacity(encoded.arrow_data.len() + encoded.ipc_message.len() + 64);
        for message in words.into_iter().chain([encoded]) {
            write_message(&mut bytes, message, options)?;
        }
        if bytes.len() > MOST_ROWS_BYTES {
            return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "a row of the result is too long to be sent"));
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, Int64Array, StringViewArray};
    use std::sync::Arc;

    #[test]
    fn large_batches_are_cut_by_the_bytes_of_their_rows() {
        let texts: Vec<String> = (0..100).map(|i| "x".repeat(if i == 50 { 5 << 20 } else { 100 << 10 })).collect();
        let columns: [(&str, ArrayRef); 2] = [
            ("n", Arc::new(Int64Array::from_iter_values(0..100))),
            ("t", Arc::new(StringViewArray::from_iter_values(&texts))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let parts = Messages::parts(&batch);
        assert!(parts.len() > 5 && parts.contains(&(50..51)), "{parts:?}");
        assert!(parts.windows(2).all(|two| two[0].end == two[1].start), "{parts:?}");
        assert_eq!((parts[0].start, parts[parts.len() - 1].end), (0, 100));
        let (mut messages, _) = Messages::new(&batch.schema()).unwrap();
        for rows in parts {
            let most = if rows == (50..51) { 6 << 20 } else { PART_BYTES + (64 << 10) };
            assert!(messages.rows(&batch, rows).unwrap().len() < most);
        }
        let empty = batch.slice(0, 0);
        assert!(Messages::parts(&empty).into_iter().eq(std::iter::once(0..0)));
    }
}
