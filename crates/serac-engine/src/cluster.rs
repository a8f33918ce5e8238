//! Sorted clustering: the rows of a table in the order of a key, so that the smallest and largest values of a frozen block lie close together and scans for ranges
//! of the key skip the others.
//!
//! CLUSTER writes all rows anew, in order, as ADD COLUMN does: into new data, under a lock that keeps writers away. Rows that are inserted later lie where they come;
//! [`sorted`] orders those of one load.

use crate::definition::ColumnOrder;
use crate::error::{EngineError, Result};
use crate::transaction::Transaction;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_ord::sort::{SortColumn, SortOptions, lexsort_to_indices};
use arrow_select::concat::concat;
use arrow_select::interleave::interleave_record_batch;
use serac_storage::StorageError;

/// Rows of a batch of sorted rows: about what a block takes.
const BATCH_ROWS: usize = 65_536;

/// The rows of `batches` in the order of some of their columns, in batches of up to 65,536 rows.
///
/// # Errors
/// When Arrow cannot order such columns.
pub fn sorted(batches: &[RecordBatch], key: &[(usize, ColumnOrder)]) -> Result<Vec<RecordBatch>> {
    let arrow = StorageError::from;
    let column = |&(column, order): &(usize, ColumnOrder)| {
        let parts: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(column).as_ref()).collect();
        let values: ArrayRef = concat(&parts).map_err(arrow)?;
        let options = SortOptions { descending: order.descending, nulls_first: order.nulls_first };
        Ok::<_, EngineError>(SortColumn { values, options: Some(options) })
    };
    if batches.is_empty() || key.is_empty() {
        return Ok(batches.to_vec());
    }
    let columns = key.iter().map(column).collect::<Result<Vec<_>>>()?;
    let order = lexsort_to_indices(&columns, None).map_err(arrow)?;
    let places: Vec<(usize, usize)> =
        batches.iter().enumerate().flat_map(|(at, batch)| (0..batch.num_rows()).map(move |row| (at, row))).collect();
    let batches: Vec<&RecordBatch> = batches.iter().collect();
    let batch = |rows: &[u32]| {
        let rows: Vec<(usize, usize)> = rows.iter().map(|&row| places[row as usize]).collect();
        Ok(interleave_record_batch(&batches, &rows).map_err(arrow)?)
    };
    order.values().chunks(BATCH_ROWS).map(batch).collect()
}

impl Transaction {
    /// CLUSTER: puts the rows of a table into the order of these columns, which is the table's from now on. The rows are in memory meanwhile.
    ///
    /// # Errors
    /// [`EngineError::Missing`], [`EngineError::Denied`]; what Arrow cannot order.
    pub fn cluster(&mut self, schema: &str, name: &str, key: Vec<(usize, ColumnOrder)>) -> Result<()> {
        let table = self.catalog.table(schema, name)?.clone();
        self.check_owner(schema, name)?;
        self.lock_rows_for_ddl(&table)?;
        let batches = self.all_rows(&table)?;
        let rows = sorted(&batches, &key)?;
        drop(batches);
        let mut definition = table.definition.clone();
        definition.cluster = key;
        let new = self.replace_data(&table, definition)?;
        for batch in rows {
            self.insert_batch(&new, &batch)?;
        }
        Ok(())
    }
}
