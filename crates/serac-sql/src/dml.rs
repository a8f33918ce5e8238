//! What statements that change or claim rows share: rows of a table as they are written, completed,
//! checked and read again.

use crate::error::Result;
use crate::expressions;
use crate::generated;
use crate::session::Session;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::common::ScalarValue;
use serac_engine::Table;
use serac_engine::definition::ColumnDefinition;
use serac_query::scan::fetch_rows;
use serac_storage::RowId;
use serac_values::assignment::assign;
use std::sync::Arc;

/// The name of the table that is changed, in plans.
pub(crate) const TARGET: &str = "__serac_target";

fn nullable(columns: &[ColumnDefinition]) -> Arc<Schema> {
    let fields = columns.iter().map(|c| Field::new(&c.name, c.sql_type.column_type.arrow(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
/// The table's columns, all nullable.
pub(crate) fn nullable_schema(table: &Table) -> Arc<Schema> {
    nullable(&table.definition.columns)
}
/// The columns that users see, all nullable.
pub(crate) fn visible_schema(table: &Table) -> Arc<Schema> {
    nullable(table.definition.visible_columns())
}
/// Whole rows of a table as users see them.
pub(crate) fn visible_rows(table: &Table, rows: &RecordBatch) -> Result<RecordBatch> {
    let visible: Vec<usize> = (0..table.definition.visible_columns().len()).collect();
    Ok(rows.project(&visible)?.with_schema(visible_schema(table))?)
}

/// Checks constants that no row has been assigned: PostgreSQL looks at them when it plans.
///
/// # Errors
/// Those of an assignment.
pub(crate) fn check_constants(table: &Table, columns: &[usize], constants: &[Option<ScalarValue>]) -> Result<()> {
    for (&column, constant) in columns.iter().zip(constants) {
        let definition = &table.definition.columns[column];
        if let Some(constant) = constant.as_ref().filter(|constant| !constant.is_null()) {
            let value = assign(&constant.to_array()?, definition.sql_type, &definition.name)?;
            let schema = Arc::new(nullable_schema(table).project(&[column])?);
            table.fit(&[column], &RecordBatch::try_new(schema, vec![value])?)?;
        }
    }
    Ok(())
}

impl Session {
    /// A column's default for `rows` rows.
    pub(crate) fn column_default(&self, definition: &ColumnDefinition, rows: usize) -> Result<ArrayRef> {
        expressions::column_default(&self.state(), definition, rows)
    }
    /// Checks the table's CHECK constraints on whole rows.
    pub(crate) fn check_rows(&self, table: &Table, rows: &RecordBatch) -> Result<()> {
        if table.definition.checks.is_empty() {
            return Ok(());
        }
        expressions::check_rows(&self.state(), table, rows)
    }

    /// Whole rows of the table from the values of some columns.
    pub(crate) fn complete_rows(&self, table: &Table, targets: &[usize], source: &RecordBatch) -> Result<RecordBatch> {
        if let Some(&at) = targets.iter().find(|&&at| table.definition.columns[at].generation.is_some()) {
            return Err(generated::not_inserted(&table.definition.columns[at]));
        }
        let columns: Vec<ArrayRef> = table
            .definition
            .columns
            .iter()
            .enumerate()
            .map(|(i, column)| match targets.iter().position(|&t| t == i) {
                Some(at) => assign(source.column(at), column.sql_type, &column.name),
                None => self.column_default(column, source.num_rows()),
            })
            .collect::<Result<_>>()?;
        // The engine reports NULLs in NOT NULL columns with the constraint's own error, so the batch may hold them.
        let options = RecordBatchOptions::new().with_row_count(Some(source.num_rows()));
        let rows = RecordBatch::try_new_with_options(nullable_schema(table), columns, &options)?;
        generated::complete(&self.state(), table, rows)
    }

    pub(crate) fn write_update(
        &mut self,
        table: &Arc<Table>,
        rows: &[RowId],
        columns: &[usize],
        new: &RecordBatch,
    ) -> Result<()> {
        match self.with_generated(table, rows, columns, new)? {
            Some((columns, new)) => self.txn_of(table)?.update_batch(table, rows, &columns, &new)?,
            None => self.txn_of(table)?.update_batch(table, rows, columns, new)?,
        }
        if !table.definition.checks.is_empty() && !rows.is_empty() {
            let now = self.rows_now(table, rows)?;
            self.check_rows(table, &now)?;
        }
        Ok(())
    }

    pub(crate) fn rows_now(&self, table: &Table, rows: &[RowId]) -> Result<RecordBatch> {
        let snapshot = self.snapshot_of(table);
        Ok(fetch_rows(table, &snapshot, rows)?)
    }
}
