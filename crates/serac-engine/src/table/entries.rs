//! A running transaction's changes to ordered indexes.
//!
//! Entries are added when a version is written. If that is undone, they are removed again, unless
//! another version has the key. The entry of a key that a row has lost stays until no snapshot can
//! see the row with it. Both are noted here in the order in which they happened. The keys lie one
//! behind the other in one buffer, so that a note costs no allocation. Savepoints mark the length.
//!
//! A rollback leaves its records on the version chains for a while, and with them states that no
//! snapshot sees: of a row whose key was changed twice, or that was inserted and deleted. The entry
//! of such a state stays at the rollback. It is looked at again like the entry of a lost key, after
//! the commit or after the rollback of the whole transaction.

use crate::table::Table;
use crate::table::index::remove_if_unused;
use serac_storage::{RowId, Value};
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Added,
    /// The row has another key now, or is gone.
    Lost,
    /// The addition was rolled back, but a version had the key, possibly a rolled-back one.
    Kept,
}

#[derive(Clone, Copy, Debug)]
struct Note {
    change: Change,
    /// Place in [`EntryNotes::tables`].
    table: u32,
    /// Position in the table's indexes.
    index: u32,
    row: RowId,
    /// The key's end in the buffer.
    key_end: usize,
}

/// The notes of a transaction.
#[derive(Debug, Default)]
pub(crate) struct EntryNotes {
    /// The tables of the notes, each once: threads that count in a table with every note would wait
    /// for each other.
    tables: Vec<Arc<Table>>,
    notes: Vec<Note>,
    keys: Vec<u8>,
}

impl EntryNotes {
    fn note(
        &mut self,
        change: Change,
        table: &Arc<Table>,
        index: usize,
        row: RowId,
        values: &[Value<'_>],
    ) -> (&[u8], bool) {
        let key_start = self.keys.len();
        let complete = table.indexes[index].encode(values, &mut self.keys);
        let known = self.tables.iter().position(|known| Arc::ptr_eq(known, table));
        let at = known.unwrap_or_else(|| {
            self.tables.push(table.clone());
            self.tables.len() - 1
        });
        let (at, index) = (at as u32, index as u32);
        self.notes.push(Note { change, table: at, index, row, key_end: self.keys.len() });
        (&self.keys[key_start..], complete)
    }

    /// An entry is added, for these values of the row. Returns its key, and whether that has no
    /// NULL.
    pub(crate) fn added(
        &mut self,
        table: &Arc<Table>,
        index: usize,
        row: RowId,
        values: &[Value<'_>],
    ) -> (&[u8], bool) {
        self.note(Change::Added, table, index, row, values)
    }

    /// The row no longer has the key that is in these values.
    pub(crate) fn lost(&mut self, table: &Arc<Table>, index: usize, row: RowId, values: &[Value<'_>]) {
        self.note(Change::Lost, table, index, row, values);
    }

    /// The present length, for [`roll_back`](Self::roll_back).
    pub(crate) fn mark(&self) -> usize {
        self.notes.len()
    }

    /// The notes since `from` but those of `other` changes.
    fn each_but(&self, from: usize, other: Change) -> impl DoubleEndedIterator<Item = (&Note, &[u8])> {
        self.notes[from..].iter().enumerate().filter(move |(_, note)| note.change != other).map(move |(i, note)| {
            let key_start = (from + i).checked_sub(1).map_or(0, |before| self.notes[before].key_end);
            (note, &self.keys[key_start..note.key_end])
        })
    }

    /// Whether the entry is gone.
    fn remove_entry_if_unused(&self, note: &Note, key: &[u8]) -> bool {
        let table = &self.tables[note.table as usize];
        remove_if_unused(&table.data, &table.indexes[note.index as usize], note.row, key, None)
    }

    /// Removes the entries that were added since `mark`, newest first. The versions are undone
    /// already.
    pub(crate) fn roll_back(&mut self, mark: usize) {
        let added = self.each_but(mark, Change::Lost).rev();
        let used = added.filter(|(note, key)| !self.remove_entry_if_unused(note, key));
        let kept: Vec<(Note, Vec<u8>)> = used.map(|(note, key)| (*note, key.to_vec())).collect();
        self.notes.truncate(mark);
        self.keys.truncate(self.notes.last().map_or(0, |note| note.key_end));
        for (note, key) in kept {
            self.keys.extend(key);
            self.notes.push(Note { change: Change::Kept, key_end: self.keys.len(), ..note });
        }
        if self.notes.is_empty() {
            self.tables.clear();
        }
    }

    /// The entries to remove after the commit or the full rollback, once no snapshot sees the rows
    /// with the keys that they have lost. `None` if no key was lost.
    pub(crate) fn lost_keys(&self) -> Option<Self> {
        let mut lost = Self::default();
        for (note, key) in self.each_but(0, Change::Added) {
            lost.keys.extend_from_slice(key);
            lost.notes.push(Note { key_end: lost.keys.len(), ..*note });
        }
        lost.tables.clone_from(&self.tables);
        (!lost.notes.is_empty()).then_some(lost)
    }

    /// Removes the entries of keys that were lost.
    pub(crate) fn remove_lost(&self) {
        self.each_but(0, Change::Added).for_each(|(note, key)| _ = self.remove_entry_if_unused(note, key));
    }

    /// Forgets everything, but keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.tables.clear();
        self.notes.clear();
        self.keys.clear();
    }
}
