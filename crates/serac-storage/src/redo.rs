//! Redo: the after-images of a transaction's changes, in the order they occur (§3.4).
//!
//! ```text
//! operation := kind u8, then
//!   Insert: table u32, row u64, count u16, value*            Update: table u32, row u64, count u16, (column u16, value)*
//!   Delete: table u32, row u64                               Append: table u32, first row u64, length u32, Arrow IPC stream of the rows
//!   Meta: length u32, bytes                                  Truncate: position u64
//! value := tag u8, then 0, 1, 2, 4, 8, 16 bytes little-endian, or a u32 length and bytes
//! ```
//! A position counts the bytes of the transaction's redo so far, handed to the log or not; `Truncate` takes back every operation that
//! begins at or after its position (a ROLLBACK TO of something that is already in the log).

use crate::error::{Result, StorageError};
use crate::ids::{ColumnId, RowId, TableId};
use crate::value::Value;
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::DataType;
use std::cell::Cell;
use std::sync::Arc;

/// A redo buffer longer than this is handed to the log before the commit.
const SPILL_BYTES: usize = 4 << 20;

const INSERT: u8 = 1;
const UPDATE: u8 = 2;
const DELETE: u8 = 3;
const APPEND: u8 = 4;
const META: u8 = 5;
const TRUNCATE: u8 = 6;

/// A position in a transaction's redo.
#[derive(Clone, Copy, Debug)]
pub struct RedoMark(u64);

thread_local! {
    /// The buffer of the thread's last transaction, for its next one.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}
/// A longer buffer is not kept.
const LARGEST_SPARE_BYTES: usize = 64 << 10;

/// The redo of one running transaction that the log does not have yet.
#[derive(Debug)]
pub struct RedoBuffer {
    enabled: bool,
    bytes: Vec<u8>,
    handed_over: u64,
}

impl RedoBuffer {
    /// An empty buffer; a disabled one (no log) records nothing.
    pub fn new(enabled: bool) -> Self {
        Self { enabled, bytes: if enabled { SPARE.take() } else { Vec::new() }, handed_over: 0 }
    }
    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.handed_over == 0
    }
    /// Bytes that the log does not have yet.
    pub fn pending_bytes(&self) -> usize {
        self.bytes.len()
    }
    pub(crate) fn wants_spill(&self) -> bool {
        self.bytes.len() > SPILL_BYTES
    }
    pub(crate) fn take_part(&mut self) -> Vec<u8> {
        self.handed_over += self.bytes.len() as u64;
        std::mem::take(&mut self.bytes)
    }
    /// What the log does not have yet.
    pub(crate) fn pending(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
    /// The present position.
    pub fn mark(&self) -> RedoMark {
        RedoMark(self.handed_over + self.bytes.len() as u64)
    }
    /// Takes back everything since `mark`.
    pub fn truncate(&mut self, mark: RedoMark) {
        if !self.enabled {
        } else if mark.0 >= self.handed_over {
            self.bytes.truncate((mark.0 - self.handed_over) as usize);
        } else {
            self.bytes.clear();
            self.bytes.push(TRUNCATE);
            self.bytes.extend_from_slice(&mark.0.to_le_bytes());
        }
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
        if self.enabled {
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
            let length = (self.bytes.len() - length_at - 4) as u32;
            self.bytes[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
        }
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
            SPARE.set(std::mem::take(&mut self.bytes));
        }
    }
}

/// The columns, those of views with only their own bytes: a slice of a view array drags all buffers of the whole along.
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

/// Reads a transaction's whole redo, with what was taken back left out.
pub(crate) fn read_operations(redo: &[u8]) -> Result<Vec<RedoOperation<'_>>> {
    let mut reader = Reader(redo);
    let mut operations: Vec<(u64, RedoOperation<'_>)> = Vec::new();
    while !reader.0.is_empty() {
        let position = (redo.len() - reader.0.len()) as u64;
        let kind = reader.array::<1>()?[0];
        let operation = match kind {
            META => {
                let len = reader.u32()? as usize;
                RedoOperation::Meta(reader.bytes(len)?)
            }
            TRUNCATE => {
                let to = reader.u64()?;
                while operations.last().is_some_and(|(at, _)| *at >= to) {
                    operations.pop();
                }
                continue;
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
        };
        operations.push((position, operation));
    }
    Ok(operations.into_iter().map(|(_, operation)| operation).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_come_back_and_truncation_reaches_into_the_log() {
        let mut redo = RedoBuffer::new(true);
        let (table, row) = (TableId(7), RowId::from_u64(1 << 20 | 5));
        redo.insert(table, row, &[Value::Null, Value::Int64(-1), Value::Bytes(b"abc"), Value::Bool(true)]);
        let mark = redo.mark();
        redo.delete(table, row);
        let mut log = redo.take_part();
        redo.meta(b"ddl");
        redo.truncate(mark);
        redo.update(table, row, &[ColumnId(3)], &[Value::Float64(0.5)]);
        log.append(redo.pending());
        let operations = read_operations(&log).unwrap();
        assert_eq!(operations.len(), 2);
        assert!(matches!(&operations[0], RedoOperation::Insert { values, .. } if values[2] == Value::Bytes(b"abc")));
        assert!(matches!(&operations[1], RedoOperation::Update { columns, .. } if columns[0] == ColumnId(3)));
        assert!(read_operations(&log[..log.len() - 1]).is_err());
    }
}
