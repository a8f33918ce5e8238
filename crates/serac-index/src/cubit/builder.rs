//! Rows with their values, on their way into leaves.

use super::bitvector::{Bitvector, compact};
use super::container::Words;
use super::key::Key;
use super::leaf::{Entry, Leaf, leaves};
use serac_storage::RowId;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// Multiplies and folds: an adversary who chooses keys gains no more than a slow build.
#[derive(Default)]
struct WordHasher(u64);

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_ne_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(u64::from(byte));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

/// Collects rows with their values: of a table, or of a bulk insert.
#[derive(Default)]
pub struct Builder {
    ids: HashMap<Key, u32, BuildHasherDefault<WordHasher>>,
    last: Option<(Key, u32)>,
    /// (value, row) of rows whose compact form has 32 bits.
    pairs: Vec<(u32, u32)>,
    wide: Vec<(u32, u64)>,
}

impl Builder {
    /// Adds a row. In ascending order if possible.
    pub fn push(&mut self, key: &Key, row: RowId) {
        let id = match &self.last {
            Some((last, id)) if last == key => *id,
            _ => {
                let next = self.ids.len() as u32;
                let id = match self.ids.get(key) {
                    Some(id) => *id,
                    None => *self.ids.entry(key.clone()).or_insert(next),
                };
                self.last = Some((key.clone(), id));
                id
            }
        };
        let row = compact(row);
        match u32::try_from(row) {
            Ok(row) => self.pairs.push((id, row)),
            Err(_) => self.wide.push((id, row)),
        }
    }

    /// The rows as leaves, each with its first value.
    pub(crate) fn into_leaves(self) -> Vec<(Key, Leaf)> {
        let Self { ids, pairs, mut wide, .. } = self;
        let mut values: Vec<(Key, u32)> = ids.into_iter().collect();
        values.sort_unstable();
        // Rows grouped by value, in the order in which they came.
        let mut ends = vec![0u32; values.len() + 1];
        pairs.iter().for_each(|(id, _)| ends[*id as usize + 1] += 1);
        for at in 1..ends.len() {
            ends[at] += ends[at - 1];
        }
        let starts = ends.clone();
        let mut rows = vec![0u32; pairs.len()];
        for (id, row) in pairs {
            let at = &mut ends[id as usize];
            rows[*at as usize] = row;
            *at += 1;
        }
        wide.sort_unstable();
        let entries = values.into_iter().filter_map(|(key, id)| {
            let mut rows = rows[starts[id as usize] as usize..ends[id as usize] as usize].to_vec();
            if !rows.is_sorted() {
                rows.sort_unstable();
            }
            let first = wide.partition_point(|(i, _)| *i < id);
            let wide: Vec<(u64, bool)> =
                wide[first..].iter().take_while(|(i, _)| *i == id).map(|(_, row)| (*row, true)).collect();
            if wide.is_empty() {
                return Entry::from_sorted(rows).map(|entry| (key, entry));
            }
            let mut vector = Bitvector::from_sorted_compact(rows.into_iter().map(u64::from));
            vector.apply(&wide, &mut Words::default());
            Some((key, Entry::Dense(Arc::new(vector))))
        });
        leaves(entries)
    }
}
