//! The named objects of a client: prepared statements, portals.
//!
//! The unnamed object, which nearly all clients use, stands apart: a map would hash and compare the
//! empty name several times for each statement. If the C library masks its loads, a comparison of
//! no bytes takes a tenth of a microsecond.

use std::collections::HashMap;

#[derive(Debug)]
pub(super) struct Names<T> {
    unnamed: Option<T>,
    named: HashMap<String, T>,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self { unnamed: None, named: HashMap::new() }
    }
}

impl<T> Names<T> {
    pub(super) fn get(&self, name: &str) -> Option<&T> {
        if name.is_empty() { self.unnamed.as_ref() } else { self.named.get(name) }
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        if name.is_empty() { self.unnamed.as_mut() } else { self.named.get_mut(name) }
    }

    pub(super) fn insert(&mut self, name: &str, thing: T) {
        if name.is_empty() {
            self.unnamed = Some(thing);
        } else {
            self.named.insert(name.to_owned(), thing);
        }
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<T> {
        if name.is_empty() { self.unnamed.take() } else { self.named.remove(name) }
    }

    /// Forgets all that has a name.
    pub(super) fn retain_unnamed(&mut self) {
        self.named.clear();
    }
}
