//! A row, or a choice of its columns, copied out of its block.

use crate::block::layout::{BlockLayout, ValueKind};
use crate::block::view::{ArrowView, view_len};
use crate::block::{Block, Cell, HotBlock};
use crate::error::{Result, StorageError};
use crate::ids::ColumnId;
use crate::value::{FromValue, Value};

/// An owned copy of a choice of columns of one row. Reused from row to row, it allocates nothing in
/// the long run.
#[derive(Debug, Default, Clone)]
pub struct RowBuffer {
    pub(crate) cells: Vec<Cell>,
    /// The columns' kinds, and where a value of variable length starts in `bytes`.
    kinds: Vec<(ValueKind, usize)>,
    bytes: Vec<u8>,
}

/// The views among cells, with their columns.
fn views<'a>(
    cells: &'a [Cell],
    kinds: &'a [(ValueKind, usize)],
    columns: &'a [ColumnId],
) -> impl Iterator<Item = (ColumnId, ArrowView)> + Clone {
    let cells = cells.iter().zip(columns).zip(kinds);
    let views = cells.filter(|((cell, _), (kind, _))| *kind == ValueKind::Bytes && !cell.null);
    views.map(|((cell, column), _)| (*column, cell.bits))
}

impl RowBuffer {
    /// Columns in the buffer.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether the buffer holds no column.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Fetches the bytes that the cells' views name.
    ///
    /// # Safety
    /// The cells are final: patched to the reader's snapshot. They were read under a pin that the
    /// caller still has.
    pub(crate) unsafe fn resolve(&mut self, block: &Block, layout: &BlockLayout, columns: &[ColumnId]) {
        match block {
            // SAFETY: as the caller promises.
            Block::Hot(block) => unsafe { self.resolve_hot(block, layout, columns) },
            Block::Frozen(block) => {
                if self.note_kinds(layout, columns) {
                    block.read_views(views(&self.cells, &self.kinds, columns), &mut self.bytes);
                }
            }
        }
    }

    /// As [`resolve`](Self::resolve).
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn resolve_hot(&mut self, block: &HotBlock, layout: &BlockLayout, columns: &[ColumnId]) {
        if self.note_kinds(layout, columns) {
            // SAFETY: as the caller promises.
            unsafe { block.heap().read(views(&self.cells, &self.kinds, columns), &mut self.bytes) };
        }
    }

    /// Notes the columns' kinds; says whether there are bytes to fetch.
    fn note_kinds(&mut self, layout: &BlockLayout, columns: &[ColumnId]) -> bool {
        self.kinds.clear();
        self.bytes.clear();
        let mut end = 0;
        self.kinds.extend(self.cells.iter().zip(columns).map(|(cell, column)| {
            let (kind, start) = (layout.column(*column).kind, end);
            if kind == ValueKind::Bytes && !cell.null {
                end += view_len(cell.bits);
            }
            (kind, start)
        }));
        end > 0
    }

    /// The value of the `i`-th column that was asked for.
    #[inline]
    pub fn value(&self, i: usize) -> Value<'_> {
        let cell = self.cells[i];
        if cell.null {
            return Value::Null;
        }
        let (kind, start) = self.kinds[i];
        match kind {
            ValueKind::Bool => Value::Bool(cell.bits != 0),
            ValueKind::Int(2) => Value::Int16(cell.bits as i16),
            ValueKind::Int(4) => Value::Int32(cell.bits as i32),
            ValueKind::Int(8) => Value::Int64(cell.bits as i64),
            ValueKind::Int(_) => Value::Int128(cell.bits as i128),
            ValueKind::Float(4) => Value::Float32(f32::from_bits(cell.bits as u32)),
            ValueKind::Float(_) => Value::Float64(f64::from_bits(cell.bits as u64)),
            ValueKind::Bytes => Value::Bytes(&self.bytes[start..start + view_len(cell.bits)]),
        }
    }

    /// [`Value::integer`] of the `i`-th column that was asked for.
    #[inline]
    pub fn integer(&self, i: usize) -> Option<i64> {
        let cell = &self.cells[i];
        let value = match self.kinds[i].0 {
            ValueKind::Int(2) => i64::from(cell.bits as i16),
            ValueKind::Int(4) => i64::from(cell.bits as i32),
            ValueKind::Int(8) => cell.bits as i64,
            _ => return None,
        };
        (!cell.null).then_some(value)
    }

    /// Whether the `i`-th column that was asked for has this value, which is of its type.
    #[inline]
    pub fn holds(&self, i: usize, value: &Value<'_>) -> bool {
        match (self.integer(i), value.integer()) {
            (Some(own), Some(value)) => own == value,
            _ => self.value(i) == *value,
        }
    }

    /// The value of the `i`-th column that was asked for, as a Rust type.
    ///
    /// # Errors
    /// [`StorageError::InvalidInput`] when the value is not of the type (NULL is one of `Option`
    /// types alone).
    #[inline]
    pub fn get<'a, T: FromValue<'a>>(&'a self, i: usize) -> Result<T> {
        let value = self.value(i);
        T::from_value(value).ok_or_else(|| {
            StorageError::InvalidInput(format!(
                "column {i} holds {value:?}, which is no {}",
                std::any::type_name::<T>()
            ))
        })
    }

    /// All values.
    pub fn values(&self) -> Vec<Value<'_>> {
        (0..self.len()).map(|i| self.value(i)).collect()
    }
}
