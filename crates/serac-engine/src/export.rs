//! Arrow out, in process: a table's rows as a transaction sees them, as a reader of record batches (Mainlining Databases §5).

use crate::table::Table;
use crate::transaction::Transaction;
use arrow_array::{RecordBatch, RecordBatchOptions, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use serac_storage::{BlockNo, ColumnForm, ColumnId, ColumnType, ScanColumn, Snapshot};
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

/// The rows of a table, one record batch per block. Batches of frozen blocks are the blocks' own buffers; they never change and live as long as
/// anybody holds them, also after the reader, the transaction and the database have gone.
#[derive(Debug)]
pub struct ArrowScan {
    table: Arc<Table>,
    snapshot: Snapshot,
    schema: SchemaRef,
    columns: Vec<ScanColumn>,
    next: u32,
}

impl Transaction {
    /// Reads `columns` (positions in the table's definition) of all rows that the transaction sees. The reader keeps the snapshot.
    pub fn scan_arrow(&self, table: &Arc<Table>, columns: &[usize], decimals: DecimalForm) -> ArrowScan {
        let all = &table.data.schema().columns;
        let narrow = |column_type| {
            decimals == DecimalForm::Decimal64
                && matches!(column_type, ColumnType::Decimal { precision, .. } if precision <= 18)
        };
        let fields: Vec<Field> = columns
            .iter()
            .map(|&c| {
                let data_type = match all[c].column_type {
                    ColumnType::Decimal { precision, scale } if narrow(all[c].column_type) => {
                        DataType::Decimal64(precision, scale)
                    }
                    column_type => column_type.arrow(),
                };
                Field::new(&table.definition.columns[c].name, data_type, table.definition.columns[c].nullable)
            })
            .collect();
        let columns = columns
            .iter()
            .map(|&c| ScanColumn {
                id: ColumnId(c as u16),
                form: if narrow(all[c].column_type) { ColumnForm::Decimal64 } else { ColumnForm::Arrow },
            })
            .collect();
        ArrowScan {
            table: table.clone(),
            snapshot: self.snapshot().clone(),
            schema: Arc::new(Schema::new(fields)),
            columns,
            next: 0,
        }
    }
}

impl Iterator for ArrowScan {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.next < self.table.data.block_count() {
            let no = BlockNo(self.next);
            self.next += 1;
            let Some(mut reader) = self.table.data.read_block(&self.snapshot, no) else { continue };
            let selection = reader.visible().clone();
            let options = RecordBatchOptions::new().with_row_count(Some(selection.len()));
            let batch = reader
                .columns(&self.columns, &selection)
                .map_err(|error| ArrowError::ExternalError(Box::new(error)))
                .and_then(|arrays| RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options));
            return Some(batch);
        }
        None
    }
}

impl RecordBatchReader for ArrowScan {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
