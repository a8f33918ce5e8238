//! The rows of RETURNING: rows that were changed, numbered and put beside other columns.

use super::rows::beside;
use crate::error::Result;
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use std::sync::Arc;

/// Rows with their numbers behind their columns.
pub(super) fn numbered(batches: Vec<RecordBatch>) -> Result<Vec<RecordBatch>> {
    let mut next = 0i64;
    let mut all = Vec::with_capacity(batches.len());
    for batch in batches {
        let end = next + batch.num_rows() as i64;
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(next..end));
        all.push(beside(&batch, &[numbers])?);
        next = end;
    }
    Ok(all)
}
