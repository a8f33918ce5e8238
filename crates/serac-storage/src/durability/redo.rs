//! Redo: the after-images of a transaction's changes, in the order they occur (§3.4).
//!
//! ```text
//! operation := kind u8, then
//!   Insert: table u32, row u64, count u16, value*            Update: table u32, row u64, count u16, (column u16, value)*
//!   Delete: table u32, row u64                               Append: table u32, first row u64, length u32, Arrow IPC stream of the rows
//!   Meta: length u32, bytes
//! value := tag u8, then 0, 1, 2, 4, 8, 16 bytes little-endian, or a u32 length and bytes
//! ```
//! A position counts the bytes of the transaction's redo so far, handed to the log or not. Each
//! piece that is handed over says at which position it begins. If that is before the end of the
//! log's bytes, a ROLLBACK TO has taken the rest back. The log gets bytes, not operations: it may
//! cut them anywhere.

use crate::error::{Result, StorageError};
use crate::ids::{ColumnId, RowId, TableId};
use crate::value::Value;
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::DataType;
use std::cell::Cell;
use std::sync::Arc;

const INSERT: u8 = 1;
const UPDATE: u8 = 2;
const DELETE: u8 = 3;
const APPEND: u8 = 4;
const META: u8 = 5;

/// A position in a transaction's redo.
#[derive(Clone, Copy, Debug)]
pub struct RedoMark(u64);

thread_local! {
    /// The buffer of the thread's last transaction, for its next one.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}
/// A longer buffer is not kept.
const LARGEST_SPARE_BYTES: usize = 64 << 10;
/// Bytes of rows that one record of a bulk append may have: its length has four bytes. Unit tests
/// reach the limit with less.
const LARGEST_APPEND: usize = if cfg!(test) { 1 << 20 } else { u32::MAX as usize };

/// The redo of one running transaction that the log does not have yet.
#[derive(Debug)]
pub struct RedoBuffer {
    enabled: bool,
    bytes: Vec<u8>,
    /// The position at which `bytes` begin.
    from: u64,
    /// The number of times that redo was handed over.
    parts: u32,
}

/// Redo that goes to the log.
#[derive(Debug)]
pub(crate) struct Pending<'a> {
    /// The bytes. A long vector may be taken.
    pub(crate) bytes: &'a mut Vec<u8>,
    /// The position at which they begin.
    pub(crate) offset: u64,
    /// The number of pieces that were handed over before.
    pub(crate) part: u32,
}

impl RedoBuffer {
    /// An empty buffer; a disabled one (no log) records nothing.
    pub fn new(enabled: bool) -> Self {
        // A thread that ends may have no spare buffer any more.
        let spare = || SPARE.try_with(Cell::take).unwrap_or_default();
        Self { enabled, bytes: if enabled { spare() } else { Vec::new() }, from: 0, parts: 0 }
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.parts == 0
    }

    /// Bytes that the log does not have yet.
    pub fn pending_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the log has a part of it.
    pub(crate) fn has_parts(&self) -> bool {
        self.parts > 0
    }

    /// The redo that the log does not have yet.
    pub(crate) fn pending(&mut self) -> Pending<'_> {
        Pending { bytes: &mut self.bytes, offset: self.from, part: self.parts }
    }

    /// Hands the redo that the log does not have yet to `take`, in pieces of `largest` bytes at the
    /// most. A piece that `take` refuses, and the pieces after it, stay.
    ///
    /// # Errors
    /// The error of `take`.
    pub(crate) fn hand_over(&mut self, largest: usize, mut take: impl FnMut(Pending<'_>) -> Result<()>) -> Result<()> {
        let length = self.bytes.len();
        if length <= largest {
            take(self.pending())?;
            self.bytes.clear();
            self.from += length as u64;
            self.parts += 1;
            return Ok(());
        }
        let mut taken = 0;
        let mut result = Ok(());
        while taken < length && result.is_ok() {
            let end = length.min(taken + largest);
            let mut piece = self.bytes[taken..end].to_vec();
            result = take(Pending { bytes: &mut piece, offset: self.from + taken as u64, part: self.parts });
            if result.is_ok() {
                taken = end;
                self.parts += 1;
            }
        }
        self.bytes.drain(..taken);
        self.from += taken as u64;
        result
    }

    /// The present position.
    pub fn mark(&self) -> RedoMark {
        RedoMark(self.from + self.bytes.len() as u64)
    }

    /// Takes back everything since `mark`.
    pub fn truncate(&mut self, mark: RedoMark) {
        self.bytes.truncate(mark.0.saturating_sub(self.from) as usize);
        self.from = self.from.min(mark.0);
    }

    fn row_head(&mut self, kind: u8, table: TableId, row: RowId) {
        let mut head = [kind; 13];
        head[1..5].copy_from_slice(&table.0.to_le_bytes());
        head[5..].copy_from_slice(&row.as_u64().to_le_bytes());
        self.bytes.extend_from_slice(&head);
    }

    /// Appends `value`.
    #[inline]
    fn value(&mut self, value: &Value<'_>) {
        match value {
            Value::Null => self.tagged(0, []),
            Value::Bool(v) => self.tagged(1, [*v as u8]),
            Value::Int16(v) => self.tagged(2, v.to_le_bytes()),
            Value::Int32(v) => self.tagged(3, v.to_le_bytes()),
            Value::Int64(v) => self.tagged(4, v.to_le_bytes()),
            Value::Int128(v) => self.tagged(5, v.to_le_bytes()),
            Value::Float32(v) => self.tagged(6, v.to_le_bytes()),
            Value::Float64(v) => self.tagged(7, v.to_le_bytes()),
            Value::Bytes(v) => {
                self.tagged(8, (v.len() as u32).to_le_bytes());
                self.bytes.extend_from_slice(v);
            }
        }
    }

    #[inline]
    fn tagged<const N: usize>(&mut self, tag: u8, bytes: [u8; N]) {
        self.bytes.push(tag);
        self.bytes.extend_from_slice(&bytes);
    }

    pub(crate) fn insert(&mut self, table: TableId, row: RowId, values: &[Value<'_>]) {
        if self.enabled {
            self.row_head(INSERT, table, row);
            self.bytes.extend_from_slice(&(values.len() as u16).to_le_bytes());
            values.iter().for_each(|value| self.value(value));
        }
    }

    pub(crate) fn update(&mut self, table: TableId, row: RowId, columns: &[ColumnId], values: &[Value<'_>]) {
        if self.enabled {
            self.row_head(UPDATE, table, row);
            self.bytes.extend_from_slice(&(values.len() as u16).to_le_bytes());
            for (column, value) in columns.iter().zip(values) {
                self.bytes.extend_from_slice(&column.0.to_le_bytes());
                self.value(value);
            }
        }
    }

    pub(crate) fn delete(&mut self, table: TableId, row: RowId) {
        if self.enabled {
            self.row_head(DELETE, table, row);
        }
    }

    pub(crate) fn append(&mut self, table: TableId, first: RowId, batch: &RecordBatch) -> Result<()> {
        if !self.enabled {
            return Ok(());
        }
        let mark = self.mark();
        let result = self.append_rows(table, first, batch);
        if result.is_err() {
            self.truncate(mark);
        }
        result
    }

    fn append_rows(&mut self, table: TableId, first: RowId, batch: &RecordBatch) -> Result<()> {
        self.row_head(APPEND, table, first);
        let length_at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let own = without_foreign_bytes(batch.columns());
        let batch = RecordBatch::try_new_with_options(batch.schema(), own, &options)?;
        let mut writer = arrow_ipc::writer::StreamWriter::try_new(&mut self.bytes, &batch.schema())?;
        writer.write(&batch)?;
        writer.finish()?;
        drop(writer);
        let length = self.bytes.len() - length_at - 4;
        if length > LARGEST_APPEND {
            return Err(StorageError::Limit("the rows of a block can have at most 4 GiB when they are loaded".into()));
        }
        self.bytes[length_at..length_at + 4].copy_from_slice(&(length as u32).to_le_bytes());
        Ok(())
    }

    pub(crate) fn meta(&mut self, payload: &[u8]) {
        if self.enabled {
            self.bytes.push(META);
            self.bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
            self.bytes.extend_from_slice(payload);
        }
    }
}

impl Drop for RedoBuffer {
    fn drop(&mut self) {
        if self.enabled && self.bytes.capacity() <= LARGEST_SPARE_BYTES {
            self.bytes.clear();
            let _ = SPARE.try_with(|spare| spare.set(std::mem::take(&mut self.bytes)));
        }
    }
}

/// The columns, those of views with only their own bytes: a slice of a view array drags all buffers
/// of the whole along.
pub(crate) fn without_foreign_bytes(columns: &[ArrayRef]) -> Vec<ArrayRef> {
    let gathered = |column: &ArrayRef| match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()) as ArrayRef,
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => column.clone(),
    };
    columns.iter().map(gathered).collect()
}

/// An operation read back.
#[derive(Debug)]
pub(crate) enum RedoOperation<'a> {
    Insert { table: TableId, row: RowId, values: Vec<Value<'a>> },
    Update { table: TableId, row: RowId, columns: Vec<ColumnId>, values: Vec<Value<'a>> },
    Delete { table: TableId, row: RowId },
    Append { table: TableId, first: RowId, ipc: &'a [u8] },
    Meta(&'a [u8]),
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let (head, rest) = self
            .0
            .split_at_checked(len)
            .ok_or_else(|| StorageError::InvalidInput("a redo record ends too early".into()))?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.bytes(N)?.try_into().expect("the length was asked for"))
    }

    fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn value(&mut self) -> Result<Value<'a>> {
        Ok(match self.array::<1>()?[0] {
            0 => Value::Null,
            1 => Value::Bool(self.array::<1>()?[0] != 0),
            2 => Value::Int16(i16::from_le_bytes(self.array()?)),
            3 => Value::Int32(i32::from_le_bytes(self.array()?)),
            4 => Value::Int64(i64::from_le_bytes(self.array()?)),
            5 => Value::Int128(i128::from_le_bytes(self.array()?)),
            6 => Value::Float32(f32::from_le_bytes(self.array()?)),
            7 => Value::Float64(f64::from_le_bytes(self.array()?)),
            8 => {
                let len = self.u32()? as usize;
                Value::Bytes(self.bytes(len)?)
            }
            tag => return Err(StorageError::InvalidInput(format!("unknown value tag {tag} in a redo record"))),
        })
    }
}

/// Reads a transaction's whole redo.
pub(crate) fn read_operations(redo: &[u8]) -> Result<Vec<RedoOperation<'_>>> {
    let mut reader = Reader(redo);
    let mut operations = Vec::new();
    while !reader.0.is_empty() {
        let kind = reader.array::<1>()?[0];
        operations.push(match kind {
            META => {
                let len = reader.u32()? as usize;
                RedoOperation::Meta(reader.bytes(len)?)
            }
            INSERT | UPDATE | DELETE | APPEND => {
                let (table, row) = (TableId(reader.u32()?), RowId::from_u64(reader.u64()?));
                match kind {
                    INSERT => {
                        let count = reader.u16()?;
                        let values = (0..count).map(|_| reader.value()).collect::<Result<_>>()?;
                        RedoOperation::Insert { table, row, values }
                    }
                    UPDATE => {
                        let (mut columns, mut values) = (Vec::new(), Vec::new());
                        for _ in 0..reader.u16()? {
                            columns.push(ColumnId(reader.u16()?));
                            values.push(reader.value()?);
                        }
                        RedoOperation::Update { table, row, columns, values }
                    }
                    DELETE => RedoOperation::Delete { table, row },
                    _ => {
                        let len = reader.u32()? as usize;
                        RedoOperation::Append { table, first: row, ipc: reader.bytes(len)? }
                    }
                }
            }
            kind => return Err(StorageError::InvalidInput(format!("unknown redo record {kind}"))),
        });
    }
    Ok(operations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn operations_come_back() {
        let mut redo = RedoBuffer::new(true);
        let (table, row) = (TableId(7), RowId::from_u64(1 << 20 | 5));
        redo.insert(table, row, &[Value::Null, Value::Int64(-1), Value::Bytes(b"abc"), Value::Bool(true)]);
        let mark = redo.mark();
        redo.delete(table, row);
        redo.meta(b"ddl");
        redo.truncate(mark);
        redo.update(table, row, &[ColumnId(3)], &[Value::Float64(0.5)]);
        let log = std::mem::take(redo.pending().bytes);
        let operations = read_operations(&log).unwrap();
        assert_eq!(operations.len(), 2);
        assert!(matches!(&operations[0], RedoOperation::Insert { values, .. } if values[2] == Value::Bytes(b"abc")));
        assert!(matches!(&operations[1], RedoOperation::Update { columns, .. } if columns[0] == ColumnId(3)));
        assert!(read_operations(&log[..log.len() - 1]).is_err());
    }

    /// Redo of a transaction that a thread-local value keeps: it is dropped when the thread's spare
    /// buffer may be gone.
    #[test]
    fn redo_may_outlive_its_thread_s_spare_buffer() {
        struct Late(Cell<Option<RedoBuffer>>);
        impl Drop for Late {
            fn drop(&mut self) {
                drop(self.0.take());
                drop(RedoBuffer::new(true));
                DROPPED.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        }
        static DROPPED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        thread_local! {
            static FIRST: Late = const { Late(Cell::new(None)) };
            static LAST: Late = const { Late(Cell::new(None)) };
        }
        std::thread::spawn(|| {
            FIRST.with(|late| late.0.take());
            let redo = || Some(RedoBuffer::new(true));
            drop(redo());
            LAST.with(|late| late.0.set(redo()));
            FIRST.with(|late| late.0.set(redo()));
        })
        .join()
        .unwrap();
        assert_eq!(DROPPED.load(std::sync::atomic::Ordering::SeqCst), 2, "before and after the spare buffer");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(usize),
        /// Hands over in pieces of so many bytes, of which so many are taken.
        HandOver(usize, u32),
        Savepoint,
        RollBack(prop::sample::Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..40_usize).prop_map(Step::Write),
            (1..30_usize, 0..4_u32).prop_map(|(largest, taken)| Step::HandOver(largest, taken)),
            Just(Step::Savepoint),
            any::<prop::sample::Index>().prop_map(Step::RollBack),
        ]
    }

    proptest! {
        #[test]
        fn what_was_handed_over_and_what_is_left_are_what_was_not_taken_back(
            steps in prop::collection::vec(step(), 0..40),
        ) {
            let mut redo = RedoBuffer::new(true);
            let (mut written, mut log, mut parts, mut next) = (Vec::new(), Vec::new(), 0, 0_u8);
            let mut savepoints = Vec::new();
            let read = |log: &mut Vec<u8>, offset: u64, bytes: &[u8]| {
                assert!(offset as usize <= log.len());
                log.truncate(offset as usize);
                log.extend_from_slice(bytes);
            };
            for step in steps {
                match step {
                    Step::Write(count) => {
                        let bytes = vec![next; count];
                        next = next.wrapping_add(1);
                        redo.bytes.extend_from_slice(&bytes);
                        written.extend(bytes);
                    }
                    Step::HandOver(largest, taken) => {
                        let mut left = taken;
                        let _ = redo.hand_over(largest, |pending| {
                            left = left.checked_sub(1).ok_or(StorageError::DiskFull)?;
                            assert!(pending.bytes.len() <= largest && pending.part == parts);
                            read(&mut log, pending.offset, pending.bytes);
                            parts += 1;
                            Ok(())
                        });
                    }
                    Step::Savepoint => savepoints.push((redo.mark(), written.len())),
                    Step::RollBack(which) if !savepoints.is_empty() => {
                        savepoints.truncate(which.index(savepoints.len()) + 1);
                        let (mark, length) = savepoints[savepoints.len() - 1];
                        redo.truncate(mark);
                        written.truncate(length);
                    }
                    Step::RollBack(_) => {}
                }
                prop_assert_eq!(redo.mark().0, written.len() as u64);
            }
            let Pending { bytes, offset, part } = redo.pending();
            prop_assert_eq!(part, parts);
            read(&mut log, offset, bytes);
            prop_assert_eq!(log, written);
        }
    }
}
