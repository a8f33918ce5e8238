//! Arrow out, in process: a table's rows as a transaction sees them, as a reader of record batches (Mainlining Databases §5).

use crate::column_filter::{BoundFilter, ColumnFilter};
use crate::error::{EngineError, Result};
use crate::table::Table;
use crate::transaction::Transaction;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use serac_storage::{BlockNo, ColumnForm, ColumnId, ColumnType, ScanColumn, Snapshot};
use std::ops::Range;
use std::sync::Arc;

/// How DECIMAL columns of up to 18 digits are handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DecimalForm {
    /// As Decimal128, which every Arrow implementation knows. The values are copied.
    #[default]
    Decimal128,
    /// As Decimal64, the form in which they are stored: nothing is copied.
    Decimal64,
}

/// How columns of variable length are handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum VarlenForm {
    /// As Utf8View and BinaryView, the form in which they are stored: nothing is copied.
    #[default]
    View,
    /// As Utf8 and Binary, for readers that do not know views. The values are copied.
    Offsets,
}

/// The rows of a table, one record batch per block. Batches of frozen blocks are the blocks' own buffers; they never change and live as long as
/// anybody holds them, also after the reader, the transaction and the database have gone.
#[derive(Clone, Debug)]
pub struct ArrowScan {
    table: Arc<Table>,
    snapshot: Snapshot,
    schema: SchemaRef,
    columns: Vec<ScanColumn>,
    filter: Vec<BoundFilter>,
    blocks: Range<u32>,
}

impl Transaction {
    /// Reads `columns` (positions in the table's definition) of all rows that the transaction sees and that fulfil every condition of `filter`.
    /// The reader keeps the snapshot.
    ///
    /// # Errors
    /// [`EngineError::InvalidDefinition`] if a column is not there, or a condition does not fit its column.
    pub fn scan_arrow(&self, table: &Arc<Table>, columns: &[usize], filter: &[ColumnFilter]) -> Result<ArrowScan> {
        let all = &table.definition.columns;
        if let Some(column) = columns.iter().find(|&&column| column >= all.len()) {
            let message = format!("relation \"{}\" has no column {column}", table.name());
            return Err(EngineError::InvalidDefinition(message));
        }
        let stored = &table.data.schema().columns;
        let field = |&c: &usize| Field::new(&all[c].name, stored[c].column_type.arrow(), all[c].nullable);
        Ok(ArrowScan {
            table: table.clone(),
            snapshot: self.snapshot().clone(),
            schema: Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>())),
            columns: columns.iter().map(|&c| ScanColumn::arrow(ColumnId(c as u16))).collect(),
            filter: filter.iter().map(|filter| BoundFilter::new(table, filter)).collect::<Result<_>>()?,
            // Every row that the snapshot sees lies in a block that there is already.
            blocks: 0..table.data.block_count(),
        })
    }
}

fn external(error: serac_storage::StorageError) -> ArrowError {
    ArrowError::ExternalError(Box::new(error))
}

impl ArrowScan {
    /// The same rows with short decimals in this form.
    #[must_use]
    pub fn with_decimals(mut self, decimals: DecimalForm) -> Self {
        let stored = &self.table.data.schema().columns;
        let mut fields = Vec::with_capacity(self.columns.len());
        for (column, field) in self.columns.iter_mut().zip(self.schema.fields()) {
            let column_type = stored[column.id.0 as usize].column_type;
            fields.push(match column_type {
                ColumnType::Decimal { precision, scale } if precision <= 18 => {
                    let (form, data_type) = match decimals {
                        DecimalForm::Decimal128 => (ColumnForm::Arrow, column_type.arrow()),
                        DecimalForm::Decimal64 => (ColumnForm::Decimal64, DataType::Decimal64(precision, scale)),
                    };
                    column.form = form;
                    field.as_ref().clone().with_data_type(data_type)
                }
                _ => field.as_ref().clone(),
            });
        }
        self.schema = Arc::new(Schema::new(fields));
        self
    }

    /// The same rows with columns of variable length in this form.
    #[must_use]
    pub fn with_varlen(mut self, form: VarlenForm) -> Self {
        let field = |field: &Arc<Field>| {
            let data_type = match (field.data_type(), form) {
                (DataType::Utf8View, VarlenForm::Offsets) => DataType::Utf8,
                (DataType::BinaryView, VarlenForm::Offsets) => DataType::Binary,
                (DataType::Utf8, VarlenForm::View) => DataType::Utf8View,
                (DataType::Binary, VarlenForm::View) => DataType::BinaryView,
                (other, _) => other.clone(),
            };
            field.as_ref().clone().with_data_type(data_type)
        };
        self.schema = Arc::new(Schema::new(self.schema.fields().iter().map(field).collect::<Vec<_>>()));
        self
    }

    /// The rows in those of the blocks that are still to be read whose numbers lie in `blocks`.
    #[must_use]
    pub fn within(mut self, blocks: Range<u32>) -> Self {
        self.blocks = self.blocks.start.max(blocks.start)..self.blocks.end.min(blocks.end);
        self
    }

    /// The blocks that are still to be read.
    pub fn blocks(&self) -> Range<u32> {
        self.blocks.clone()
    }

    /// Reads the next block; none after the last, and no batch if none of the block's rows qualify. What [`Iterator::next`] repeats.
    ///
    /// # Errors
    /// What Arrow refuses.
    pub fn next_block(&mut self) -> Option<std::result::Result<Option<RecordBatch>, ArrowError>> {
        let no = self.blocks.next()?;
        Some(self.read(BlockNo(no)))
    }

    fn read(&self, no: BlockNo) -> std::result::Result<Option<RecordBatch>, ArrowError> {
        let Some(mut reader) = self.table.data.read_block(&self.snapshot, no) else { return Ok(None) };
        if self.filter.iter().any(|filter| filter.excludes(&reader)) {
            return Ok(None);
        }
        let mut selection = reader.visible().clone();
        for filter in &self.filter {
            selection = filter.select(&mut reader, selection)?;
            if selection.is_empty() {
                return Ok(None);
            }
        }
        let arrays = reader.columns(&self.columns, &selection).map_err(external)?;
        let arrays = arrays.into_iter().zip(self.schema.fields()).map(|(array, field)| into_type(array, field));
        let options = RecordBatchOptions::new().with_row_count(Some(selection.len()));
        RecordBatch::try_new_with_options(self.schema.clone(), arrays.collect::<std::result::Result<_, _>>()?, &options)
            .map(Some)
    }
}

fn into_type(array: ArrayRef, field: &Field) -> std::result::Result<ArrayRef, ArrowError> {
    if array.data_type() == field.data_type() {
        return Ok(array);
    }
    arrow_cast::cast(&array, field.data_type())
}

impl Iterator for ArrowScan {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        std::iter::from_fn(|| self.next_block()).find_map(std::result::Result::transpose)
    }
}

impl RecordBatchReader for ArrowScan {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
