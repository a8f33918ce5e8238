//! Shared parts of statements that change or claim rows: rows of a table as they are written,
//! completed, checked and read again.

use crate::error::{Result, SqlError};
use crate::session::Session;
use crate::session_env::SessionEnv;
use crate::styled_values::assigned_in_style;
use crate::table_schema::nullable_schema;
use crate::{expressions, generated};
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::execution::context::SessionState;
use serac_engine::Table;
use serac_engine::catalog::definition::ColumnDefinition;
use serac_query::scan::fetch_rows;
use serac_storage::RowId;
use std::sync::Arc;

/// Values as those of a column, by the session's settings of times where these count.
///
/// # Errors
/// The errors of an assignment.
pub(crate) fn assigned(shared: &SessionEnv, values: &ArrayRef, column: &ColumnDefinition) -> Result<ArrayRef> {
    assigned_in_style(shared.styled_functions().as_ref(), values, column.sql_type, &column.name)
}

/// Rows whose expressions are computed where they come from.
const FEW_ROWS: usize = 16;

/// Checks NOT NULL, and CHECKs in a state of the session.
fn check_rows(state: Option<&SessionState>, table: &Table, rows: &RecordBatch) -> Result<()> {
    let all: Vec<usize> = (0..table.definition.columns.len()).collect();
    let checked = match table.check_not_null(&all, rows) {
        Ok(()) => state.map_or(Ok(()), |state| expressions::check_rows(state, table, rows)),
        Err(missing) => Err(missing.into()),
    };
    checked.map_err(|error| table.fit_values(&all, rows).map_or_else(SqlError::from, |_| error))
}

impl Session {
    /// A column's default for `rows` rows.
    pub(crate) fn column_default(&self, definition: &ColumnDefinition, rows: usize) -> Result<ArrayRef> {
        expressions::column_default(&self.state(), definition, rows)
    }

    /// Checks NOT NULL and the table's CHECK constraints on whole rows. What does not fit its
    /// column is found before both.
    pub(crate) fn check_rows(&self, table: &Table, rows: &RecordBatch) -> Result<()> {
        let state = (!table.definition.checks.is_empty()).then(|| self.state());
        check_rows(state.as_ref(), table, rows)
    }

    /// As [`check_rows`](Self::check_rows). CHECKs of many rows leave the connections' thread.
    pub(crate) async fn check_many_rows(&self, table: &Arc<Table>, rows: &RecordBatch) -> Result<()> {
        if table.definition.checks.is_empty() || rows.num_rows() <= FEW_ROWS {
            return self.check_rows(table, rows);
        }
        let (state, table, rows) = (self.state(), table.clone(), rows.clone());
        self.planning(async move { check_rows(Some(&state), &table, &rows) }).await
    }

    /// As [`complete_rows`](Self::complete_rows). Generated columns of many rows are computed away
    /// from the thread of the connections.
    pub(crate) async fn complete_many_rows(
        &self,
        table: &Arc<Table>,
        targets: &[usize],
        source: &RecordBatch,
    ) -> Result<RecordBatch> {
        let given = self.given_rows(table, targets, source)?;
        let is_computed = table.definition.columns.iter().any(ColumnDefinition::is_generated);
        if !is_computed || given.num_rows() <= FEW_ROWS {
            return generated::complete(&self.state(), table, given);
        }
        let (state, table) = (self.state(), table.clone());
        self.planning(async move { generated::complete(&state, &table, given) }).await
    }

    /// Whole rows of the table from the values of the target columns.
    pub(crate) fn complete_rows(&self, table: &Table, targets: &[usize], source: &RecordBatch) -> Result<RecordBatch> {
        generated::complete(&self.state(), table, self.given_rows(table, targets, source)?)
    }

    /// Rows of the table from the values of the target columns, with defaults for the others, and
    /// NULLs in generated columns.
    pub(crate) fn given_rows(&self, table: &Table, targets: &[usize], source: &RecordBatch) -> Result<RecordBatch> {
        if let Some(&at) = targets.iter().find(|&&at| table.definition.columns[at].generation.is_some()) {
            return Err(generated::not_inserted(&table.definition.columns[at]));
        }
        let columns: Vec<ArrayRef> = table
            .definition
            .columns
            .iter()
            .enumerate()
            .map(|(i, column)| match targets.iter().position(|&t| t == i) {
                Some(at) => assigned(&self.shared, source.column(at), column),
                None => self.column_default(column, source.num_rows()),
            })
            .collect::<Result<_>>()?;
        // The engine reports NULLs in NOT NULL columns with the constraint's own error, so the
        // batch may hold them.
        let options = RecordBatchOptions::new().with_row_count(Some(source.num_rows()));
        Ok(RecordBatch::try_new_with_options(nullable_schema(table), columns, &options)?)
    }

    /// The columns that an UPDATE of `columns` writes, with the generated columns that change with
    /// them; `None` if there are no generated ones.
    pub(crate) fn with_generated(
        &self,
        table: &Table,
        rows: &[RowId],
        columns: &[usize],
        new: &RecordBatch,
    ) -> Result<Option<(Vec<usize>, RecordBatch)>> {
        let changes = generated::changes(&self.state(), table, columns, new, || self.rows_now(table, rows))?;
        let Some((computed, values)) = changes else { return Ok(None) };
        let given = (0..columns.len()).filter(|&i| !computed.contains(&columns[i]));
        let (mut all, mut arrays): (Vec<usize>, Vec<ArrayRef>) =
            given.map(|i| (columns[i], new.column(i).clone())).unzip();
        all.extend(&computed);
        arrays.extend_from_slice(values.columns());
        let schema = nullable_schema(table).project(&all)?;
        Ok(Some((all, RecordBatch::try_new(schema.into(), arrays)?)))
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
