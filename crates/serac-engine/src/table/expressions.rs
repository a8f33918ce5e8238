//! The engine's questions to the layer that knows SQL.

use crate::catalog::definition::ColumnDefinition;
use crate::error::Result;
use crate::table::Table;
use arrow_array::{ArrayRef, RecordBatch};
use serac_storage::{RowId, Snapshot};
use std::fmt::Debug;

/// Evaluates the SQL texts that definitions keep, where rows change by themselves (ON DELETE SET
/// DEFAULT, ON UPDATE CASCADE) or by callers without SQL (`Transaction::insert_given`).
pub trait Expressions: Debug + Send + Sync {
    /// The column's default, as an array of one value in the column's type.
    ///
    /// # Errors
    /// The error in the default.
    fn default_value(&self, column: &ColumnDefinition) -> Result<ArrayRef>;

    /// The values of the generated columns that change with the `changed` ones, in rows that the
    /// snapshot sees: positions and values of the columns.
    ///
    /// # Errors
    /// The errors of the expression.
    fn generated_values(
        &self,
        table: &Table,
        snapshot: &Snapshot,
        rows: &[RowId],
        changed: &[usize],
    ) -> Result<Option<(Vec<usize>, RecordBatch)>>;

    /// Whole rows of a table with values of `columns` (positions), as the table keeps them: other
    /// columns have their defaults, generated ones are computed, NOT NULL and CHECK hold.
    ///
    /// # Errors
    /// Values that do not fit, violated constraints, and the errors of the texts.
    fn new_rows(&self, table: &Table, columns: &[usize], values: &RecordBatch) -> Result<RecordBatch>;

    /// Checks the table's CHECK constraints on rows that the snapshot sees.
    ///
    /// # Errors
    /// [`crate::EngineError::Check`].
    fn check_rows(&self, table: &Table, snapshot: &Snapshot, rows: &[RowId]) -> Result<()>;
}
