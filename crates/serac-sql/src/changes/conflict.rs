//! ON CONFLICT.

use super::rows::set_values;
use crate::error::{Result, SqlError};
use crate::expressions::named_columns;
use crate::rows_to_come::fill;
use crate::session::Session;
use crate::table_schema::{nullable_schema, visible_rows};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, UInt32Array};
use datafusion::arrow::compute::{concat_batches, interleave_record_batch, take_record_batch};
use datafusion::arrow::datatypes::{Field, Int64Type, Schema};
use datafusion::dataframe::DataFrame;
use serac_binder::{BoundConflict, Target};
use serac_engine::catalog::definition::{KeyDefinition, TableDefinition};
use serac_engine::security::Privilege;
use serac_engine::values::value_at;
use serac_engine::{Table, TableIndex};
use serac_storage::RowId;
use std::collections::HashSet;
use std::sync::Arc;

/// The unique index of a conflict.
pub(crate) fn index_of(table: &Table, conflict: &BoundConflict) -> Option<Arc<TableIndex>> {
    table.indexes.iter().filter(|index| index.definition.unique).nth(conflict.index?).cloned()
}

/// The columns that users see of which an index tells.
fn told_columns(table: &TableDefinition, key: &KeyDefinition) -> Result<Vec<usize>> {
    let mut told = Vec::new();
    for &column in &key.columns {
        match table.columns[column].generation.as_deref().filter(|_| table.columns[column].hidden) {
            Some(values) => told.extend(named_columns(table, values)?),
            None => told.push(column),
        }
    }
    Ok(told)
}

/// Whether an update may change a key of a unique index, so that a later row of the statement finds
/// another conflict.
fn changes_keys(table: &Table, conflict: &BoundConflict) -> Result<bool> {
    let Some(update) = &conflict.update else { return Ok(false) };
    let (definition, all) = (&table.definition, Target::set_columns(&update.set));
    let unique = table.indexes.iter().map(|index| &index.definition).filter(|index| index.unique);
    for (at, index) in unique.enumerate() {
        // The key of the conflict is that of both rows.
        let is_kept = |column: &usize| conflict.index == Some(at) && update.as_excluded.contains(column);
        let set: Vec<usize> = all.iter().copied().filter(|column| !is_kept(column)).collect();
        let is_set = |column: usize| -> Result<bool> {
            Ok(match &definition.columns[column].generation {
                Some(values) => named_columns(definition, values)?.iter().any(|column| set.contains(column)),
                None => set.contains(&column),
            })
        };
        if index.predicate.is_some() && !set.is_empty() {
            return Ok(true);
        }
        for &column in &index.columns {
            if is_set(column)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn second_time() -> SqlError {
    let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
    let hint = "Ensure that no rows proposed for insertion within the same command have duplicate constrained values.";
    SqlError::new(sqlstate::CARDINALITY_VIOLATION, message).hinted(hint)
}

impl Session {
    /// Checks that all that ON CONFLICT may do is allowed, whether or not there is a conflict.
    pub(super) fn check_conflict(&self, table: &Table, conflict: &BoundConflict) -> Result<()> {
        if let Some(index) = index_of(table, conflict) {
            self.check_privilege(table, Privilege::Select, &told_columns(&table.definition, &index.definition)?)?;
        }
        if let Some(update) = &conflict.update {
            self.check_privilege(table, Privilege::Update, &Target::set_columns(&update.set))?;
        }
        Ok(())
    }

    /// INSERT … ON CONFLICT of whole rows. Returns the rows inserted or updated, in the order of
    /// these.
    pub(super) async fn insert_or(
        &mut self,
        table: &Arc<Table>,
        conflict: BoundConflict,
        rows: &RecordBatch,
    ) -> Result<RecordBatch> {
        // Rows that this statement has inserted or is to update.
        let mut own = HashSet::new();
        if !changes_keys(table, &conflict)? {
            return self.insert_or_at_once(table, &conflict, rows, &mut own).await;
        }
        // One row after the other: each finds the keys that the one before has left.
        let mut done = Vec::with_capacity(rows.num_rows());
        for row in 0..rows.num_rows() {
            done.push(self.insert_or_at_once(table, &conflict, &rows.slice(row, 1), &mut own).await?);
        }
        Ok(concat_batches(&rows.schema(), &done)?)
    }

    /// The same where no update changes a key: conflicts of all rows are found before one is
    /// updated.
    async fn insert_or_at_once(
        &mut self,
        table: &Arc<Table>,
        conflict: &BoundConflict,
        rows: &RecordBatch,
        own: &mut HashSet<RowId>,
    ) -> Result<RecordBatch> {
        let index = index_of(table, conflict);
        let updates = conflict.update.is_some();
        let types: Vec<_> = table.definition.columns.iter().map(|c| c.sql_type.column_type).collect();
        let (mut inserted, mut conflicting) = (Vec::new(), Vec::new());
        let checks_newest = !updates && !self.is_read_committed();
        for i in 0..rows.num_rows() {
            let values: Vec<_> = rows.columns().iter().zip(&types).map(|(c, t)| value_at(c, i, *t)).collect();
            match self.txn_of(table)?.find_conflict(table, index.as_deref(), &values)? {
                None => {
                    own.insert(self.txn_of(table)?.insert_free_row(table, index.as_deref(), &values)?);
                    inserted.push(i);
                }
                Some(row) => {
                    if updates && own.contains(&row) {
                        return Err(second_time());
                    }
                    if checks_newest {
                        self.txn_of(table)?.check_newest(table, row)?;
                    }
                    conflicting.push((i, row));
                }
            }
        }
        let inserted_at = |place: usize| (0, place);
        let mut places: Vec<(usize, (usize, usize))> = inserted.iter().map(|&i| (i, inserted_at(i))).collect();
        let mut now = rows.slice(0, 0);
        if let (Some(update), false) = (&conflict.update, conflicting.is_empty()) {
            let ids: Vec<RowId> = conflicting.iter().map(|(_, row)| *row).collect();
            let before = visible_rows(table, &self.rows_now(table, &ids)?)?;
            let at = UInt32Array::from_iter_values(conflicting.iter().map(|(i, _)| *i as u32));
            let excluded = visible_rows(table, &take_record_batch(rows, &at)?)?;
            let mut columns = before.columns().to_vec();
            columns.extend_from_slice(excluded.columns());
            columns.push(Arc::new(Int64Array::from_iter_values(0..ids.len() as i64)));
            let number =
                |(at, array): (usize, &ArrayRef)| Field::new(format!("c{at}"), array.data_type().clone(), true);
            let fields: Vec<Field> = columns.iter().enumerate().map(number).collect();
            fill(&update.rows, vec![RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?])?;
            let (schema, found) = self.collect_with_schema(DataFrame::new(self.state(), update.plan.clone())).await?;
            fill(&update.rows, Vec::new())?;
            let found = concat_batches(&schema, &found)?;
            let numbers = found.column(0).as_primitive::<Int64Type>().values().to_vec();
            let (columns, values) = set_values(self, table, &update.set, &found.columns()[1..], numbers.len())?;
            let mut passes = vec![false; ids.len()];
            numbers.iter().for_each(|&n| passes[n as usize] = true);
            for (&row, passes) in ids.iter().zip(passes) {
                if own.contains(&row) {
                    return Err(second_time());
                }
                match passes {
                    true => _ = own.insert(row),
                    // Claimed all the same, as in PostgreSQL: the filter has seen its newest state.
                    false => self.txn_of(table)?.lock_row(table, row)?,
                }
            }
            let changed: Vec<RowId> = numbers.iter().map(|&n| ids[n as usize]).collect();
            self.write_update(table, &changed, &columns, &values)?;
            now = self.rows_now(table, &changed)?.with_schema(nullable_schema(table))?;
            places.extend(numbers.iter().enumerate().map(|(at, &n)| (conflicting[n as usize].0, (1, at))));
        }
        places.sort_unstable();
        let places: Vec<(usize, usize)> = places.into_iter().map(|(_, place)| place).collect();
        Ok(interleave_record_batch(&[rows, &now], &places)?)
    }
}
