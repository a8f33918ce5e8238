//! Foreign keys, checked at the end of each statement, after its referential actions
//! ([`crate::constraint::referential_action`]).
//!
//! A new child's parent must exist in its newest state; a parent that goes must leave no child
//! behind. Under snapshot isolation neither would see a concurrent transaction's other half, so
//! both announce themselves. A child *pins* its parent row until its transaction ends, and a
//! parent's delete conflicts with a pin of a transaction that its snapshot does not see. A child
//! finds a concurrently deleted parent by its uncommitted or newer version. The child pins first
//! and looks afterwards, the parent deletes first and looks for pins afterwards, so one of the two
//! sees the other. Children of one parent do not disturb each other. Compaction, which moves
//! parents, is like a delete here: it leaves pinned rows where they are.
//!
//! Pins name rows of the parent's data ([`crate::constraint::parent_pins`]). DDL that puts other
//! data in its place excludes transactions that add children ([`crate::table::lock`]), and sees the
//! children of all that have committed, or fails. So new data begins without pins.
//!
//! Model: `serac-models/tests/parent_pins.rs`.

use crate::catalog::definition::{ForeignKeyDefinition, ReferentialAction};
use crate::constraint::end_key::EndKey;
use crate::constraint::parent_pins::Pinned;
use crate::constraint::pending::{PendingAction, PendingForeignKey};
use crate::error::{EngineError, Result};
use crate::table::Table;
use crate::table::index::NewestHolder;
use crate::transaction::{Transaction, changed};
use crate::values::OwnedValue;
use serac_storage::{Blocker, RowId, Value};
use serac_sync::atomic::{AtomicU64, Ordering};
use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Whether two values are the same, bit by bit.
fn is_same_form(a: &Value<'_>, b: &Value<'_>) -> bool {
    match (a, b) {
        (Value::Float32(a), Value::Float32(b)) => a.to_bits() == b.to_bits(),
        (Value::Float64(a), Value::Float64(b)) => a.to_bits() == b.to_bits(),
        _ => a == b,
    }
}

impl Transaction {
    pub(crate) fn is_referenced(&self, table: &Table) -> bool {
        self.catalog.children_of(&table.definition).next().is_some()
    }

    pub(crate) fn note_new_child(&mut self, table: &Arc<Table>, row: &[Value<'_>]) {
        for (i, foreign_key) in table.definition.foreign_keys.iter().enumerate() {
            if let Some(key) = EndKey::of(table, row, &foreign_key.columns) {
                self.pending.push(PendingForeignKey::Child { table: table.clone(), foreign_key: i, key });
            }
        }
    }

    pub(crate) fn note_gone_parent(
        &mut self,
        parent: &Arc<Table>,
        row: RowId,
        before: &[Value<'_>],
        after: Option<&[Value<'_>]>,
    ) -> Result<()> {
        let children: Vec<_> =
            self.catalog.children_of(&parent.definition).map(|(child, i)| (child.clone(), i)).collect();
        let mut gone = false;
        for (child, i) in children {
            let definition = &child.definition.foreign_keys[i];
            let columns = &definition.parent_columns;
            let Some(key) = EndKey::of(parent, before, columns) else { continue };
            // Equal keys of other forms, as 1.0 and 1.00, go on to the children, too.
            if after.is_some_and(|after| columns.iter().all(|&c| is_same_form(&before[c], &after[c]))) {
                continue;
            }
            gone = true;
            let action = if after.is_some() { definition.on_update } else { definition.on_delete };
            match action {
                ReferentialAction::NoAction | ReferentialAction::Restrict => {
                    let restrict = action == ReferentialAction::Restrict;
                    let parent = parent.clone();
                    self.pending.push(PendingForeignKey::Parent { parent, child, foreign_key: i, restrict, key });
                }
                _ => {
                    let new_key = after.map(|after| columns.iter().map(|&c| OwnedValue::from(&after[c])).collect());
                    if let Some(key) = key.at(&child, &definition.columns).map(Cow::into_owned) {
                        self.actions.push(PendingAction { child, foreign_key: i, action, key, new_key });
                    }
                }
            }
        }
        if gone {
            let start = self.snapshot().start().0;
            let number = self.number();
            let message = || format!("a concurrent transaction references a row of \"{}\"", parent.name());
            serac_sync::linger();
            match parent.parent_pins.of(row, number, start) {
                Pinned::Free => {}
                Pinned::Since => return Err(EngineError::Conflict(message())),
                Pinned::By(holder) => {
                    let pins = parent.parent_pins.clone();
                    let holds = move || pins.is_pinned_by(row, holder);
                    let blocker = Blocker::new(self.snapshot(), holder, (parent.data.id(), row), holds);
                    return Err(EngineError::Blocked(message(), blocker));
                }
            }
        }
        Ok(())
    }

    /// Marks a parent row as referenced by this transaction until its end.
    fn pin(&mut self, parent: &Arc<Table>, row: RowId) {
        let pins = self.own_pins.len();
        match self.own_pins.entry((parent.data.id(), row)) {
            Entry::Occupied(_) => return,
            Entry::Vacant(entry) => _ = entry.insert(pins),
        }
        let number = self.number();
        parent.parent_pins.pin(row, number);
        serac_sync::linger();
        let pins = parent.parent_pins.clone();
        self.storage().on_abort(Box::new(move || pins.unpin(row, number, None)));
        // Relaxed: ordered by the collector's queue, which takes the action after the commit.
        let committed = Arc::new(AtomicU64::new(0));
        let (pins, at) = (parent.parent_pins.clone(), committed.clone());
        self.storage().on_commit(Box::new(move |timestamp| {
            pins.unpin(row, number, Some(timestamp.0));
            at.store(timestamp.0, Ordering::Relaxed);
        }));
        let pins = parent.parent_pins.clone();
        self.storage().on_obsolete(Box::new(move || pins.forget(row, committed.load(Ordering::Relaxed))));
    }

    /// Runs the referential actions and the checks that wait for the end of the statement.
    ///
    /// # Errors
    /// [`EngineError::ForeignKey`], or a conflict.
    pub fn check_statement_end(&mut self) -> Result<()> {
        self.run_actions()?;
        for check in std::mem::take(&mut self.pending) {
            match check {
                PendingForeignKey::Child { table, foreign_key, key } => self.check_child(&table, foreign_key, &key)?,
                PendingForeignKey::Parent { parent, child, foreign_key, restrict, key } => {
                    let replaced = !restrict && self.has_parent(&parent, &child, foreign_key, &key.bytes)?;
                    if !replaced {
                        self.check_no_child(&parent, &child, foreign_key, &key)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn check_child(&mut self, table: &Arc<Table>, foreign_key: usize, key: &EndKey) -> Result<()> {
        let definition = table.definition.foreign_keys[foreign_key].clone();
        // The row may have been changed or deleted again by the same statement; then its key is not
        // held by any child.
        let parent = self.catalog.table(&definition.parent_schema, &definition.parent_table)?.clone();
        self.lock_for_reference(&parent)?;
        let wanted = key.at(&parent, &definition.parent_columns);
        let parent_row = |txn: &Self| match &wanted {
            Some(wanted) => txn.find_latest(&parent, &definition.parent_columns, wanted),
            None => Ok(None),
        };
        while let Some(row) = parent_row(self)? {
            self.pin(&parent, row);
            // If the table has other indexes or other data by now, parents may have gone of which
            // these do not know.
            if parent.lock.last_change() > self.snapshot().start().0 {
                return Err(changed(&parent));
            }
            // Looked up again now that the pin is seen: the parent may have been moved.
            if parent_row(self)? == Some(row) {
                return Ok(());
            }
        }
        if self.find_latest(table, &definition.columns, &key.bytes)?.is_none() {
            return Ok(());
        }
        Err(self.missing_parent(table, &definition, &key.shown(table, &definition.columns)))
    }

    pub(crate) fn missing_parent(&self, table: &Table, definition: &ForeignKeyDefinition, shown: &str) -> EngineError {
        let names: Vec<_> = definition.columns.iter().map(|&c| table.definition.columns[c].name.as_str()).collect();
        EngineError::ForeignKey {
            operation: "insert or update",
            table: table.name().into(),
            child: Box::new((table.definition.schema.clone(), table.name().into())),
            constraint: definition.name.clone(),
            detail: format!(
                "Key ({})=({shown}) is not present in table \"{}\".",
                names.join(", "),
                definition.parent_table
            ),
        }
    }

    fn has_parent(&self, parent: &Table, child: &Table, foreign_key: usize, wanted: &[u8]) -> Result<bool> {
        let columns = &child.definition.foreign_keys[foreign_key].parent_columns;
        Ok(self.find_latest(parent, columns, wanted)?.is_some())
    }

    fn check_no_child(&self, parent: &Table, child: &Table, foreign_key: usize, key: &EndKey) -> Result<()> {
        let definition = &child.definition.foreign_keys[foreign_key];
        let Some(wanted) = key.at(child, &definition.columns) else { return Ok(()) };
        if self.find_latest(child, &definition.columns, &wanted)?.is_none() {
            return Ok(());
        }
        let shown = key.shown(parent, &definition.parent_columns);
        let names: Vec<_> =
            definition.parent_columns.iter().map(|&c| parent.definition.columns[c].name.as_str()).collect();
        Err(EngineError::ForeignKey {
            operation: "update or delete",
            table: parent.name().into(),
            child: Box::new((child.definition.schema.clone(), child.name().into())),
            constraint: definition.name.clone(),
            detail: format!(
                "Key ({})=({shown}) is still referenced from table \"{}\".",
                names.join(", "),
                child.name()
            ),
        })
    }

    /// A row whose newest state has `wanted` in `columns` (in this order), found through the index
    /// on them.
    pub(crate) fn find_latest(&self, table: &Table, columns: &[usize], wanted: &[u8]) -> Result<Option<RowId>> {
        let index = table.index_for_key(columns);
        match index.newest_holder(&table.data, self.snapshot(), wanted, None)? {
            NewestHolder::Nobody { .. } => Ok(None),
            NewestHolder::Row(row) => Ok(Some(row)),
            NewestHolder::Open(blocker) => {
                let name = table.name();
                let message = format!("a concurrent transaction has written a row of \"{name}\" with the same key");
                Err(EngineError::Blocked(message, blocker))
            }
        }
    }
}
