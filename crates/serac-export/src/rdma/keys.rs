//! Keys to memory, and their one promise: when a key has been revoked, no access by it is running,
//! and none will be allowed.
//!
//! An access finds its entry under the table's lock, and holds the entry's own lock, shared, as
//! long as it runs. A revocation takes the entry out of the table, so that no access finds it any
//! more. Then it takes the memory under the entry's exclusive lock: it waits for accesses that have
//! found the entry before. An access that comes second finds no memory in the entry.
//!
//! Model: `serac-models/tests/registrations.rs`.

use serac_sync::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;

/// Keys of one protection domain.
#[derive(Debug)]
pub(crate) struct Keys<M> {
    table: Mutex<Table<M>>,
}

/// The memory behind a key; `None` once it is revoked.
type Entry<M> = Arc<RwLock<Option<M>>>;

#[derive(Debug)]
struct Table<M> {
    entries: HashMap<u32, Entry<M>>,
    next: u32,
}

impl<M> Keys<M> {
    /// The first key is `first`.
    pub(crate) fn new(first: u32) -> Self {
        Self { table: Mutex::new(Table { entries: HashMap::new(), next: first }) }
    }

    /// A key to this memory; `None` when there are `most` already. A key is not used twice, until
    /// all others have been.
    pub(crate) fn insert(&self, memory: M, most: usize) -> Option<u32> {
        let mut table = self.table.lock();
        if table.entries.len() >= most.min(u32::MAX as usize) {
            return None;
        }
        while table.entries.contains_key(&table.next) {
            table.next = table.next.wrapping_add(1);
        }
        let key = table.next;
        table.next = key.wrapping_add(1);
        table.entries.insert(key, Arc::new(RwLock::new(Some(memory))));
        Some(key)
    }

    /// Calls `access` with the memory, which stays open as long as the call runs; `None` if the key
    /// is invalid.
    pub(crate) fn with<T>(&self, key: u32, access: impl FnOnce(&M) -> T) -> Option<T> {
        let entry = self.table.lock().entries.get(&key).cloned()?;
        let memory = entry.read();
        memory.as_ref().map(access)
    }

    /// Closes the memory and gives it back.
    pub(crate) fn revoke(&self, key: u32) -> Option<M> {
        let entry = self.table.lock().entries.remove(&key)?;
        entry.write().take()
    }

    /// Closes everything.
    pub(crate) fn revoke_all(&self) {
        let entries = std::mem::take(&mut self.table.lock().entries);
        entries.into_values().for_each(|entry| drop(entry.write().take()));
    }
}
