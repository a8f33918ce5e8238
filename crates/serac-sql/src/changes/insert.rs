//! INSERT.

use super::Written;
use crate::changes::written::{Done, nothing_of, table_of};
use crate::deep;
use crate::error::Result;
use crate::point::literal::{constant_rows, constants_of};
use crate::query::is_apart;
use crate::result::StatementResult;
use crate::session::Session;
use crate::table_schema::{nullable_schema, visible_rows};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::{concat_batches, interleave};
use datafusion::arrow::datatypes::{Int64Type, SchemaRef};
use datafusion::dataframe::DataFrame;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::TryStreamExt;
use serac_binder::{BoundInsert, InsertSource};
use serac_engine::Table;
use serac_engine::security::Privilege;
use serac_parser::tree::Insert;
use serac_values::assignment::assign;
use std::sync::Arc;

/// Rows that are there.
fn given_rows(rows: RecordBatch) -> SendableRecordBatchStream {
    Box::pin(RecordBatchStreamAdapter::new(rows.schema(), futures::stream::iter([Ok(rows)])))
}

impl Session {
    /// Runs an INSERT of constants alone, each exactly a value of its column. It needs no binding
    /// or planning, which for thousands of constants takes longer than to store them. `None` for
    /// another INSERT.
    pub(crate) async fn insert_constants(&mut self, insert: &Insert) -> Result<Option<StatementResult>> {
        let Some(values) = constants_of(insert) else { return Ok(None) };
        // The binding of names reports errors of the name.
        let Ok(table) = self.table(&insert.table) else { return Ok(None) };
        let mut targets = Vec::new();
        for (column, parts) in &insert.columns {
            match table.definition.column(&column.name).filter(|at| parts.is_empty() && !targets.contains(at)) {
                Some(at) => targets.push(at),
                // The binder reports the error.
                None => return Ok(None),
            }
        }
        if targets.is_empty() {
            targets = (0..table.definition.visible_columns().len()).collect();
        }
        let Some(rows) = constant_rows(&table, &targets, values) else { return Ok(None) };
        if rows.num_columns() < targets.len() && !insert.columns.is_empty() {
            return Ok(None);
        }
        targets.truncate(rows.num_columns());
        if targets.iter().any(|&at| table.definition.columns[at].is_generated()) {
            return Ok(None);
        }
        self.check_privilege(&table, Privilege::Insert, &targets)?;
        let all: Vec<usize> = (0..table.definition.columns.len()).collect();
        let batch = table.fit(&all, &self.complete_many_rows(&table, &targets, &rows).await?)?;
        let mut affected = 0;
        for batch in self.clustered(&table, vec![batch])? {
            affected += self.insert_rows(&table, batch, None).await?;
        }
        Ok(Some(StatementResult::Command { tag: format!("INSERT 0 {affected}"), rows: affected as u64 }))
    }

    pub(super) async fn insert(
        &mut self,
        insert: BoundInsert,
        written: &Written,
        names: Option<SchemaRef>,
    ) -> Result<Done> {
        let BoundInsert { target, columns, are_named, source, defaults, conflict, returning } = insert;
        let table = table_of(&target)?;
        self.check_privilege(&table, Privilege::Insert, if are_named { &columns } else { &[] })?;
        let mut rows = match source {
            InsertSource::Defaults(count) => given_rows(nothing_of(count)?),
            InsertSource::Plan(plan) => {
                let frame = DataFrame::new(self.storing_state(), plan);
                // The views in it may be deep.
                let is_apart = deep::with_room(|| is_apart(frame.logical_plan(), &table))?;
                let rows = self.stream(frame).await?;
                if is_apart { rows } else { self.completed(rows).await? }
            }
        };
        self.check_privilege(&table, Privilege::Insert, &columns)?;
        if let Some(conflict) = &conflict {
            self.check_conflict(&table, conflict)?;
            written.check(&table, None)?;
        }
        let may_update = conflict.as_ref().is_some_and(|conflict| conflict.update.is_some());
        let all: Vec<usize> = (0..table.definition.columns.len()).collect();
        let (mut count, mut inserted, mut together) = (0, Vec::new(), Vec::new());
        let is_returned = returning.is_some();
        // Rows that must be sorted, or are looked at together, are collected.
        let is_together = conflict.is_some() || !table.definition.cluster.is_empty();
        while let Some(batch) = rows.try_next().await? {
            let batch = match has_numbers(&defaults) {
                true => self.with_defaults(&table, &columns, &defaults, &batch)?,
                false => batch,
            };
            let batch = table.fit(&all, &self.complete_many_rows(&table, &columns, &batch).await?)?;
            match is_together {
                true => together.push(batch),
                false => count += self.insert_rows(&table, batch, is_returned.then_some(&mut inserted)).await?,
            }
        }
        match conflict {
            None => {
                for batch in self.clustered(&table, together)? {
                    count += self.insert_rows(&table, batch, is_returned.then_some(&mut inserted)).await?;
                }
            }
            Some(conflict) => {
                let all = concat_batches(&nullable_schema(&table), &together)?;
                self.check_many_rows(&table, &all).await?;
                let rows = self.insert_or(&table, conflict, &all).await?;
                count = rows.num_rows();
                inserted = vec![rows];
            }
        }
        let returned = match returning {
            Some(returning) => {
                let rows = inserted.iter().map(|batch| visible_rows(&table, batch)).collect::<Result<_>>()?;
                Some(self.returned(returning, rows, names).await?)
            }
            None => None,
        };
        Ok(Done { count, rows: (!may_update).then(Vec::new), returned })
    }

    /// Rows of VALUES with the columns' defaults where these say DEFAULT. The last column numbers
    /// them.
    fn with_defaults(
        &self,
        table: &Table,
        columns: &[usize],
        defaults: &[Vec<usize>],
        batch: &RecordBatch,
    ) -> Result<RecordBatch> {
        let numbers = batch.column(batch.num_columns() - 1).as_primitive::<Int64Type>().clone();
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(columns.len());
        for ((&column, defaults), given) in columns.iter().zip(defaults).zip(batch.columns()) {
            let definition = &table.definition.columns[column];
            let is_default = |number: i64| defaults.binary_search(&(number as usize)).is_ok();
            let count = numbers.values().iter().filter(|number| is_default(**number)).count();
            if count == 0 {
                arrays.push(given.clone());
                continue;
            }
            let given = assign(given, definition.sql_type, &definition.name)?;
            let values = self.column_default(definition, count)?;
            let mut next = 0..;
            let places = numbers.values().iter().enumerate().map(|(row, number)| match is_default(*number) {
                true => (1, next.next().unwrap_or_default()),
                false => (0, row),
            });
            arrays.push(interleave(&[&given as &dyn Array, &values], &places.collect::<Vec<_>>())?);
        }
        let fields = arrays.iter().zip(columns).map(|(array, column)| {
            let name = &table.definition.columns[*column].name;
            datafusion::arrow::datatypes::Field::new(name, array.data_type().clone(), true)
        });
        let schema = Arc::new(datafusion::arrow::datatypes::Schema::new(fields.collect::<Vec<_>>()));
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(schema, arrays, &options)?)
    }

    /// Inserts whole rows, puts them to those that are returned, and gives their number.
    async fn insert_rows(
        &mut self,
        table: &Arc<Table>,
        rows: RecordBatch,
        returned: Option<&mut Vec<RecordBatch>>,
    ) -> Result<usize> {
        self.check_many_rows(table, &rows).await?;
        self.txn_of(table)?.insert_batch(table, &rows)?;
        let count = rows.num_rows();
        returned.into_iter().for_each(|all| all.push(rows.clone()));
        Ok(count)
    }
}

/// Whether rows of VALUES are numbered: a row says DEFAULT.
fn has_numbers(defaults: &[Vec<usize>]) -> bool {
    defaults.iter().any(|rows| !rows.is_empty())
}
