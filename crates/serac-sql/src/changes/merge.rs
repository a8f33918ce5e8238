//! MERGE: one query finds what each WHEN does, then the engine does it.

use super::rows::set_values;
use super::{Done, table_of};
use crate::error::{Result, SqlError};
use crate::session::Session;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use datafusion::arrow::compute::{concat_batches, take};
use datafusion::arrow::datatypes::{Field, Int32Type, Schema, UInt64Type};
use datafusion::dataframe::DataFrame;
use serac_binder::{BoundAction, BoundMerge, Target};
use serac_engine::Table;
use serac_engine::roles::Privilege;
use serac_storage::RowId;
use std::collections::HashSet;
use std::sync::Arc;

/// What is done, found before anything is written.
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

    pub(super) async fn merge(&mut self, merge: BoundMerge) -> Result<Done> {
        let BoundMerge { target, plan, actions } = merge;
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
        for (action, places) in actions.iter().zip(of_action) {
            let places = UInt32Array::from(places);
            let ids: Vec<RowId> = places.values().iter().map(|&at| RowId::from_u64(rows.value(at as usize))).collect();
            if let BoundAction::Delete | BoundAction::Update(_) = action
                && !ids.iter().all(|id| seen.insert(*id))
            {
                return Err(SqlError::new("21000", "MERGE command cannot affect row a second time"));
            }
            let value = |value: usize| take(found.column(2 + value), &places, None);
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
                    if batch.num_rows() > 0 {
                        changes.inserts.push(self.complete_rows(&table, &columns, &batch)?);
                    }
                }
            }
        }
        let mut count = seen.len();
        self.txn_of(&table)?.delete_batch(&table, &changes.deletes)?;
        for (columns, rows, batch) in &changes.updates {
            self.write_update(&table, rows, columns, batch)?;
        }
        for batch in &changes.inserts {
            self.check_rows(&table, batch)?;
            self.txn_of(&table)?.insert_batch(&table, batch)?;
            count += batch.num_rows();
        }
        Ok(Done { count, returned: None })
    }
}
