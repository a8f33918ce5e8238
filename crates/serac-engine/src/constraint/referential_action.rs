//! Referential actions: the changes of the children when a parent's key is deleted or changed.
//!
//! They run at the end of the statement, level by level. All children of a level are found before
//! the first of them is changed, so keys that a statement swaps or shifts
//! (`UPDATE p SET id = id + 1`) carry each child along once. The rows that a level changes may be
//! parents of the next level. Only then are foreign keys checked. Children that the snapshot does
//! not see are no concern here: their pins made the parent's change a conflict.

use crate::catalog::definition::{ColumnDefinition, ReferentialAction};
use crate::constraint::end_key::{converted, types_of};
use crate::constraint::pending::PendingAction;
use crate::error::{EngineError, Result};
use crate::table::Table;
use crate::table::statement::{ColumnUpdate, RowsUpdate};
use crate::transaction::Transaction;
use crate::values::{OwnedValue, value_at};
use serac_storage::{RowBuffer, RowId, TableId, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Children of one table whose columns of one foreign key change.
struct ChildrenUpdate {
    child: Arc<Table>,
    foreign_key: usize,
    rows: Vec<(RowId, Arc<[OwnedValue]>)>,
}

/// A value as the column keeps it.
fn fit<'v>(table: &Table, column: &ColumnDefinition, value: Value<'v>) -> Result<Value<'v>> {
    match (value, column.sql_type.length) {
        (Value::Null, _) if !column.nullable => Err(table.null_in(&column.name)),
        (Value::Int64(micros), Some(_)) => match column.sql_type.rounded(micros) {
            Some(rounded) => Ok(Value::Int64(rounded)),
            None => Err(EngineError::TooLong { sql_type: column.sql_type.to_string() }),
        },
        (Value::Int128(bits), Some(_)) => Ok(Value::Int128(column.sql_type.rounded_interval(bits))),
        (Value::Bytes(bytes), Some(_)) => {
            let text = std::str::from_utf8(bytes).expect("columns of lengths have texts");
            Ok(Value::Bytes(column.sql_type.kept(text)?.as_bytes()))
        }
        _ => Ok(value),
    }
}

impl Transaction {
    /// Runs the actions that the statement has called for, and those that these call for.
    pub(crate) fn run_actions(&mut self) -> Result<()> {
        while !self.actions.is_empty() {
            let level = std::mem::take(&mut self.actions);
            let snapshot = self.snapshot().clone();
            let mut deletes: BTreeMap<TableId, (Arc<Table>, BTreeSet<RowId>)> = BTreeMap::new();
            let mut updates: BTreeMap<(TableId, usize), ChildrenUpdate> = BTreeMap::new();
            for PendingAction { child, foreign_key, action, key, new_key } in level {
                let index = child.index_of_foreign_key(foreign_key);
                let rows = index.lookup_key(&child.data, &snapshot, &key)?;
                if rows.is_empty() {
                    continue;
                }
                let id = child.data.id();
                if action == ReferentialAction::Cascade && new_key.is_none() {
                    deletes.entry(id).or_insert_with(|| (child, BTreeSet::new())).1.extend(rows);
                    continue;
                }
                let values = self.children_values(&child, foreign_key, action, new_key)?;
                let update = updates.entry((id, foreign_key)).or_insert_with(|| ChildrenUpdate {
                    child,
                    foreign_key,
                    rows: Vec::new(),
                });
                update.rows.extend(rows.into_iter().map(|row| (row, values.clone())));
            }
            for (child, rows) in deletes.into_values() {
                self.delete_batch(&child, &rows.into_iter().collect::<Vec<_>>())?;
            }
            for update in updates.into_values() {
                self.update_children(&update)?;
            }
        }
        Ok(())
    }

    /// The new values of the foreign key's columns.
    fn children_values(
        &self,
        child: &Table,
        foreign_key: usize,
        action: ReferentialAction,
        new_key: Option<Vec<OwnedValue>>,
    ) -> Result<Arc<[OwnedValue]>> {
        let definition = &child.definition.foreign_keys[foreign_key];
        let columns = &definition.columns;
        if let (ReferentialAction::Cascade, Some(new_key)) = (action, new_key) {
            let parent = self.catalog.table(&definition.parent_schema, &definition.parent_table)?;
            let given = new_key.iter().zip(types_of(parent, &definition.parent_columns)).zip(columns);
            let kept = given.map(|((value, from), &c)| {
                let column = &child.definition.columns[c];
                let out_of_range = || EngineError::OutOfRange { sql_type: column.sql_type.to_string() };
                converted(&value.as_value(), from, column.sql_type.column_type).ok_or_else(out_of_range)
            });
            return kept.collect();
        }
        columns
            .iter()
            .map(|&c| {
                let column = &child.definition.columns[c];
                match (action, &column.default, &self.expressions) {
                    (ReferentialAction::SetDefault, Some(_), Some(expressions)) => {
                        let value = expressions.default_value(column)?;
                        Ok(OwnedValue::from(&value_at(&value, 0, column.sql_type.column_type)))
                    }
                    (ReferentialAction::SetDefault, Some(_), None) => {
                        Err(EngineError::Unsupported("SET DEFAULT in a transaction without expressions".into()))
                    }
                    _ => Ok(OwnedValue::Fixed(Value::Null)),
                }
            })
            .collect()
    }

    fn update_children(&mut self, update: &ChildrenUpdate) -> Result<()> {
        let child = &update.child;
        let columns = &child.definition.foreign_keys[update.foreign_key].columns;
        let snapshot = self.snapshot().clone();
        self.lock_for_write(child)?;
        let plan = ColumnUpdate::new(&self.catalog, child, columns);
        let mut rows = RowsUpdate::new(&plan, std::mem::take(&mut self.old));
        let mut changed = Vec::with_capacity(update.rows.len());
        for (row, values) in &update.rows {
            // Another foreign key's action may have deleted it.
            if !child.data.read(&snapshot, *row, &[], &mut RowBuffer::default())? {
                continue;
            }
            let given = columns.iter().zip(values.iter());
            let fitting: Result<Vec<Value<'_>>> =
                given.map(|(&c, value)| fit(child, &child.definition.columns[c], value.as_value())).collect();
            let values = match fitting {
                Ok(values) => values,
                Err(error) => {
                    let values: Vec<Value<'_>> = values.iter().map(OwnedValue::as_value).collect();
                    return Err(self.of_changed_row(error, child, *row, columns, &values));
                }
            };
            self.update_row(&mut rows, *row, &values)?;
            changed.push(*row);
        }
        self.finish_update(rows)?;
        let Some(expressions) = self.expressions.clone() else { return Ok(()) };
        if let Some((generated, values)) = expressions.generated_values(child, &snapshot, &changed, columns)? {
            self.update_batch(child, &changed, &generated, &values)?;
        }
        if child.definition.checks.is_empty() { Ok(()) } else { expressions.check_rows(child, &snapshot, &changed) }
    }
}
