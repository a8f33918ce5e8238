//! Functions in FROM.

use super::function::{CheckedBody, CheckedFunction, Still, check_returned};
use crate::error::{Result, SqlError};
use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use serac_files::{Frame, FrameRows, ValueType};
use std::sync::Arc;

/// The code of a function in FROM.
pub trait TableBody: Send + Sync {
    /// The rows for these arguments. `columns`: the names of the columns, and the Arrow types in
    /// which they are kept; by their position, others that SQL assigns to them will do. `still` is
    /// asked by code that computes for long, also for the rows.
    ///
    /// # Errors
    /// Those of the code.
    fn rows(&self, arguments: &[ScalarValue], columns: &SchemaRef, still: &Still) -> Result<FrameRows>;
}

/// A call of a function in FROM.
pub(crate) struct CalledRows {
    function: Arc<CheckedFunction>,
    /// The values of its arguments; `None` while parameters of the statement have none.
    arguments: Option<Vec<ScalarValue>>,
    schema: SchemaRef,
    still: Still,
}

impl CalledRows {
    /// A call; `None` if the function is none of FROM.
    pub(crate) fn new(
        function: &Arc<CheckedFunction>,
        arguments: Option<Vec<ScalarValue>>,
        still: Still,
    ) -> Option<Self> {
        let CheckedBody::Table { columns, .. } = &function.body else { return None };
        let fields = columns.iter().map(|(name, of)| Field::new(name, of.arrow(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Some(Self { function: function.clone(), arguments, schema, still })
    }

    /// The types of its columns.
    pub(crate) fn types(&self) -> Arc<[ValueType]> {
        match &self.function.body {
            CheckedBody::Table { columns, .. } => columns.iter().map(|(_, of)| of.clone()).collect(),
            _ => Arc::default(),
        }
    }
}

impl Frame for CalledRows {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn read(&self) -> Result<FrameRows> {
        let name = self.function.name.clone();
        let CheckedBody::Table { body, .. } = &self.function.body else {
            return Err(SqlError::new(sqlstate::INTERNAL_ERROR, format!("function {name} gives no rows")));
        };
        let missing = || SqlError::new(sqlstate::UNDEFINED_PARAMETER, format!("an argument of {name} has no value"));
        let arguments = self.arguments.as_ref().ok_or_else(missing)?;
        let rows = body.rows(arguments, &self.schema, &self.still)?;
        let function = self.function.clone();
        Ok(Box::new(rows.map(move |batch| -> Result<RecordBatch> {
            let batch = batch?;
            check_batch(&batch, &function)?;
            Ok(batch)
        })))
    }
}

/// Refuses a batch that the code has given with other columns than the function says.
fn check_batch(batch: &RecordBatch, function: &CheckedFunction) -> Result<()> {
    let (name, CheckedBody::Table { columns, .. }) = (&function.name, &function.body) else {
        return Err(SqlError::new(sqlstate::INTERNAL_ERROR, "a function of other kind gives rows"));
    };
    if batch.num_columns() != columns.len() {
        let (given, wanted) = (batch.num_columns(), columns.len());
        let message = format!("function {name} gave rows of {given} columns instead of {wanted}");
        return Err(SqlError::new(sqlstate::DATATYPE_MISMATCH, message).named(name));
    }
    for (given, (column, of)) in batch.columns().iter().zip(columns) {
        let what = format!("the column \"{column}\" of function {name}");
        check_returned(given.data_type(), of, &what).map_err(|error| error.named(name))?;
    }
    Ok(())
}
