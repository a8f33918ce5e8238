//! Expressions that tables keep, evaluated for the engine with a session's functions.

use crate::error::{Result, SqlError};
use crate::expressions::{check_rows, column_default, into_engine};
use crate::generated;
use crate::session_env::SessionEnv;
use crate::table_schema::nullable_schema;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::execution::SessionState;
use serac_engine::catalog::definition::ColumnDefinition;
use serac_engine::{Expressions, Table};
use serac_query::scan::fetch_rows;
use serac_storage::{RowId, Snapshot};
use std::sync::{Arc, Weak};

/// Evaluates for the engine, with a session's functions.
#[derive(Debug)]
pub(crate) struct SessionExpressions(pub(crate) Arc<SessionEnv>);

impl SessionExpressions {
    fn state(&self) -> Result<SessionState> {
        let state = self.0.state.get().and_then(Weak::upgrade);
        let state = state.ok_or_else(|| SqlError::new(sqlstate::INTERNAL_ERROR, "the session has ended"))?;
        Ok(self.0.at_its_time(&state))
    }
}

impl Expressions for SessionExpressions {
    fn default_value(&self, column: &ColumnDefinition) -> serac_engine::Result<ArrayRef> {
        self.state().and_then(|state| column_default(&state, column, 1)).map_err(into_engine)
    }

    fn generated_values(
        &self,
        table: &Table,
        snapshot: &Snapshot,
        rows: &[RowId],
        changed: &[usize],
    ) -> serac_engine::Result<Option<(Vec<usize>, RecordBatch)>> {
        let values = || {
            let now = fetch_rows(table, snapshot, rows)?;
            generated::changes(&self.state()?, table, changed, &now.project(changed)?, || Ok(now))
        };
        values().map_err(into_engine)
    }

    fn new_rows(&self, table: &Table, columns: &[usize], values: &RecordBatch) -> serac_engine::Result<RecordBatch> {
        let rows = || {
            let (state, count) = (self.state()?, values.num_rows());
            let of_column = |(at, column): (usize, &ColumnDefinition)| match columns
                .iter()
                .position(|given| *given == at)
            {
                Some(given) => Ok(values.column(given).clone()),
                None if column.generation.is_some() => Ok(new_null_array(&column.sql_type.column_type.arrow(), count)),
                None => column_default(&state, column, count),
            };
            let arrays = table.definition.columns.iter().enumerate().map(of_column).collect::<Result<_>>()?;
            let options = RecordBatchOptions::new().with_row_count(Some(count));
            let rows = RecordBatch::try_new_with_options(nullable_schema(table), arrays, &options)?;
            let all: Vec<usize> = (0..rows.num_columns()).collect();
            let rows = table.fit(&all, &generated::complete(&state, table, rows)?)?;
            check_rows(&state, table, &rows)?;
            Ok(rows)
        };
        rows().map_err(into_engine)
    }

    fn check_rows(&self, table: &Table, snapshot: &Snapshot, rows: &[RowId]) -> serac_engine::Result<()> {
        let check = || check_rows(&self.state()?, table, &fetch_rows(table, snapshot, rows)?);
        check().map_err(into_engine)
    }
}
