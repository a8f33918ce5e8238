//! MERGE: one query finds the action of each WHEN, then the engine runs the actions.

use super::Written;
use super::returned::numbered;
use super::rows::{beside, set_values};
use crate::changes::written::{Done, nothing_of, table_of};
use crate::error::{Result, SqlError};
use crate::rows_to_come::fill;
use crate::session::Session;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use datafusion::arrow::compute::{concat_batches, take};
use datafusion::arrow::datatypes::{Field, Int32Type, Schema, UInt64Type};
use datafusion::dataframe::DataFrame;
use serac_binder::{ActionValues, BoundAction, BoundMerge, Target};
use serac_engine::Table;
use serac_engine::security::Privilege;
use serac_storage::RowId;
use std::collections::HashSet;
use std::sync::Arc;

/// The changes of a MERGE, found before the first write.
#[derive(Default)]
struct Changes {
    deletes: Vec<RowId>,
    updates: Vec<(Vec<usize>, Vec<RowId>, RecordBatch)>,
    inserts: Vec<RecordBatch>,
}

impl Session {
    /// Checks that all that the WHENs do is allowed, whether or not they find rows.
    pub(super) fn check_merge(&self, table: &Table, actions: &[BoundAction]) -> Result<()> {
        for action in actions {
            match action {
                BoundAction::Nothing => {}
                BoundAction::Delete => self.check_privilege(table, Privilege::Delete, &[])?,
                BoundAction::Update(set) => {
                    self.check_privilege(table, Privilege::Update, &Target::set_columns(set))?;
                }
                BoundAction::Insert(set) => {
                    let columns: Vec<usize> = set.iter().map(|(column, _)| *column).collect();
                    self.check_privilege(table, Privilege::Insert, &columns)?;
                }
            }
        }
        Ok(())
    }

    /// The values of an action that are computed for the rows that it has taken.
    async fn values_of_action(
        &self,
        values: ActionValues,
        found: &RecordBatch,
        places: &UInt32Array,
    ) -> Result<RecordBatch> {
        let columns = values.columns.iter().map(|column| take(found.column(2 + column), places, None));
        let rows = beside(&nothing_of(places.len())?, &columns.collect::<Result<Vec<_>, _>>()?)?;
        fill(&values.rows, numbered(vec![rows])?)?;
        let (schema, computed) = self.collect_with_schema(DataFrame::new(self.state(), values.plan)).await?;
        fill(&values.rows, Vec::new())?;
        Ok(concat_batches(&schema, &computed)?)
    }

    pub(super) async fn merge(&mut self, merge: BoundMerge, written: &Written) -> Result<Done> {
        let BoundMerge { target, plan, actions, values: own_values } = merge;
        let table = table_of(&target)?;
        self.check_merge(&table, &actions)?;
        let (schema, found) = self.collect_with_schema(DataFrame::new(self.state(), plan)).await?;
        let found = concat_batches(&schema, &found)?;
        let rows = found.column(0).as_primitive::<UInt64Type>();
        let numbers = found.column(1).as_primitive::<Int32Type>();
        let mut changes = Changes::default();
        let mut seen = HashSet::new();
        let mut of_action: Vec<Vec<u32>> = vec![Vec::new(); actions.len()];
        for at in (0..found.num_rows()).filter(|&at| numbers.is_valid(at)) {
            of_action[numbers.value(at) as usize].push(at as u32);
        }
        for ((action, own_values), places) in actions.iter().zip(own_values).zip(of_action) {
            if places.is_empty() {
                continue;
            }
            let places = UInt32Array::from(places);
            let ids: Vec<RowId> = places.values().iter().map(|&at| RowId::from_u64(rows.value(at as usize))).collect();
            if let BoundAction::Delete | BoundAction::Update(_) = action
                && !ids.iter().all(|id| seen.insert(*id))
            {
                return Err(SqlError::new(
                    sqlstate::CARDINALITY_VIOLATION,
                    "MERGE command cannot affect row a second time",
                ));
            }
            let own_values = match own_values {
                Some(values) => Some(self.values_of_action(values, &found, &places).await?),
                None => None,
            };
            let value = |value: usize| match &own_values {
                Some(values) => Ok(values.column(value).clone()),
                None => take(found.column(2 + value), &places, None),
            };
            match action {
                BoundAction::Nothing => {}
                BoundAction::Delete => changes.deletes.extend(ids),
                BoundAction::Update(set) => {
                    // Only the values of this WHEN are looked at.
                    let mut values: Vec<ArrayRef> = Vec::with_capacity(set.len());
                    let mut own = set.clone();
                    for column in &mut own {
                        if let Some(place) = &mut column.value {
                            values.push(value(*place)?);
                            *place = values.len() - 1;
                        }
                    }
                    let (columns, batch) = set_values(self, &table, &own, &values, ids.len())?;
                    changes.updates.push((columns, ids, batch));
                }
                BoundAction::Insert(set) => {
                    let (columns, places): (Vec<usize>, Vec<usize>) = set.iter().copied().unzip();
                    let arrays = places.into_iter().map(value).collect::<Result<Vec<_>, _>>()?;
                    let field =
                        |(at, array): (usize, &ArrayRef)| Field::new(format!("c{at}"), array.data_type().clone(), true);
                    let fields: Vec<Field> = arrays.iter().enumerate().map(field).collect();
                    let options = RecordBatchOptions::new().with_row_count(Some(ids.len()));
                    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?;
                    changes.inserts.push(self.complete_rows(&table, &columns, &batch)?);
                }
            }
        }
        let changed: Vec<RowId> = seen.into_iter().collect();
        written.check(&table, Some(&changed))?;
        let mut count = changed.len();
        self.txn_of(&table)?.delete_batch(&table, &changes.deletes)?;
        for (columns, rows, batch) in &changes.updates {
            self.write_update(&table, rows, columns, batch)?;
        }
        for batch in &changes.inserts {
            self.check_rows(&table, batch)?;
            self.txn_of(&table)?.insert_batch(&table, batch)?;
            count += batch.num_rows();
        }
        Ok(Done { count, rows: Some(changed), returned: None })
    }
}
