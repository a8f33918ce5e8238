//! Hints: the rows at which lookups of whole unique keys found them last. The next lookup goes to
//! the row without going down the tree. (An adaptive hash index, kept by lookups alone: changes to
//! the index do not touch it.)
//!
//! **A hint promises nothing.** Its row may have gone, may have another key, or may be of another
//! key with the same bits of hash. A lookup that follows a hint reads the row in a snapshot,
//! compares the key, and asks the tree where they differ. A snapshot sees at most one row with a
//! unique key, so a row found this way is the right one; hints need not be taken back. So a hint is
//! one word that orders nothing, and the row behind it is read as any scan of the table would.
//!
//! **The table** has buckets of eight hints, a cache line each. A hint for which its bucket has no
//! room takes another's place. When the lost hints are half as many as the table's places, an empty
//! table of four times the size takes this one's place, up to one hint per row. The old one is
//! freed an epoch later.

use super::RowId;
use serac_storage::{MAX_BLOCKS_PER_TABLE, SLOT_BITS};
use serac_sync::atomic::{AtomicU64, Ordering};
use serac_sync::epoch::{self, Atomic, Guard, Owned, Shared};

/// Hints in a bucket.
const WAYS: usize = 8;
/// Buckets of the first table.
const FEWEST_BUCKETS: usize = 64;
/// Low bits of a hint, which are the row. The others are of the key's hash, and the lowest of those
/// is set: no hint is 0.
const ROW_BITS: u32 = SLOT_BITS + MAX_BLOCKS_PER_TABLE.ilog2();

/// A cache line of hints; 0 means no hint.
#[derive(Default)]
#[repr(align(64))]
struct Bucket([AtomicU64; WAYS]);

struct Table {
    /// A power of two of them.
    buckets: Box<[Bucket]>,
    /// Hints that others have taken the place of.
    lost: AtomicU64,
}

impl Table {
    fn new(buckets: usize) -> Self {
        Self { buckets: std::iter::repeat_with(Bucket::default).take(buckets).collect(), lost: AtomicU64::new(0) }
    }

    fn bucket(&self, hash: u64) -> &Bucket {
        &self.buckets[hash as usize & (self.buckets.len() - 1)]
    }

    /// Hints that there is room for.
    fn room(&self) -> u64 {
        (self.buckets.len() * WAYS) as u64
    }
}

/// The bits of a hash that a hint has.
fn tag(hash: u64) -> u64 {
    (hash >> ROW_BITS | 1) << ROW_BITS
}

fn is_of(hint: u64, tag: u64) -> bool {
    hint >> ROW_BITS == tag >> ROW_BITS
}

/// The hints of an index.
pub(super) struct Hints {
    /// `None` before the first hint.
    table: Atomic<Table>,
    hasher: ahash::RandomState,
}

impl Default for Hints {
    fn default() -> Self {
        Self { table: Atomic::null(), hasher: serac_sync::random_state() }
    }
}

impl Hints {
    /// The hash by which the other functions know a key.
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    fn table<'g>(&self, guard: &'g Guard) -> (Shared<'g, Table>, Option<&'g Table>) {
        // Acquire: pairs with the Release in `grow`.
        let table = self.table.load(Ordering::Acquire, guard);
        // SAFETY: the table was there while we were pinned, and is freed an epoch after it was
        // replaced.
        (table, unsafe { table.as_ref() })
    }

    /// Asks the memory for the bucket of a key.
    pub(super) fn prefetch(&self, hash: u64, guard: &Guard) {
        let Some(table) = self.table(guard).1 else { return };
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch has no effect that a program could see.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(table.bucket(hash)).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = table;
    }

    /// The row that is noted for a key, which may be wrong.
    pub(super) fn row(&self, hash: u64, guard: &Guard) -> Option<RowId> {
        let (bucket, tag) = (self.table(guard).1?.bucket(hash), tag(hash));
        // Relaxed, here and below: a hint orders nothing.
        let hint = bucket.0.iter().map(|hint| hint.load(Ordering::Relaxed)).find(|&hint| is_of(hint, tag))?;
        Some(RowId::from_u64(hint & ((1 << ROW_BITS) - 1)))
    }

    /// Notes the row that a key was found at. `rows` tells how many rows the index leads to, about.
    pub(super) fn note(&self, hash: u64, row: RowId, rows: impl FnOnce() -> u64) {
        let guard = epoch::pin();
        let (shared, Some(table)) = self.table(&guard) else {
            return self.grow(Shared::null(), FEWEST_BUCKETS, &guard);
        };
        let (bucket, tag) = (table.bucket(hash), tag(hash));
        let place = bucket.0.iter().find(|hint| {
            let hint = hint.load(Ordering::Relaxed);
            hint == 0 || is_of(hint, tag)
        });
        let place = place.unwrap_or_else(|| {
            let lost = table.lost.fetch_add(1, Ordering::Relaxed) + 1;
            if lost >= table.room() / 2 {
                // Also where there is a hint per row: not to ask each time.
                table.lost.store(0, Ordering::Relaxed);
                let most = rows().next_power_of_two();
                if table.room() < most {
                    let room = most.min(table.room() * 4);
                    self.grow(shared, room as usize / WAYS, &guard);
                }
            }
            &bucket.0[(hash >> (u64::BITS - WAYS.ilog2())) as usize ^ (lost as usize % WAYS)]
        });
        place.store(tag | row.as_u64(), Ordering::Relaxed);
    }

    /// Puts an empty table in the place of `old`, unless another thread has done so.
    fn grow(&self, old: Shared<'_, Table>, buckets: usize, guard: &Guard) {
        let new = Owned::new(Table::new(buckets));
        // Release: pairs with the Acquire in `table`.
        let replaced = self.table.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed, guard);
        if replaced.is_ok() && !old.is_null() {
            // SAFETY: no thread finds the old table any more, and the exchange succeeds for one
            // alone.
            unsafe { guard.defer_destroy(old) };
        }
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        // SAFETY: no other thread has the hints any more.
        unsafe { drop(std::mem::replace(&mut self.table, Atomic::null()).try_into_owned()) };
    }
}

impl std::fmt::Debug for Hints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hints").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(i: u64) -> RowId {
        RowId::from_u64(i)
    }

    #[test]
    fn most_of_what_is_looked_up_again_and_again_is_found_in_no_more_room_than_rows() {
        let hints = Hints::default();
        let rows = 10_000u64;
        let hash = |i: u64| hints.hash(&i.to_be_bytes());
        let mut found = 0;
        for round in 0..20 {
            for i in 0..rows {
                let known = hints.row(hash(i), &epoch::pin());
                found += u64::from(round == 19 && known == Some(row(i)));
                if known != Some(row(i)) {
                    hints.note(hash(i), row(i), || rows);
                }
            }
        }
        assert!(found > rows * 8 / 10, "{found} of {rows} keys");
        let guard = epoch::pin();
        assert_eq!(hints.table(&guard).1.unwrap().room(), rows.next_power_of_two());
    }

    #[test]
    fn the_newest_row_of_a_key_is_the_hint() {
        let hints = Hints::default();
        let hash = hints.hash(b"key");
        assert_eq!(hints.row(hash, &epoch::pin()), None);
        for i in [0, 1, 7, (1 << ROW_BITS) - 1] {
            // The first makes the table.
            hints.note(hash, row(i), || 1);
            hints.note(hash, row(i), || 1);
            assert_eq!(hints.row(hash, &epoch::pin()), Some(row(i)));
        }
    }

    #[test]
    fn threads_that_note_at_once_leave_hints_of_the_keys_own() {
        let hints = Hints::default();
        serac_sync::thread::scope(|scope| {
            for thread in 0..4u64 {
                let hints = &hints;
                scope.spawn(move || {
                    for i in (0..200_000u64).map(|i| i.wrapping_mul(0x9E37_79B9 + thread) % 5_000) {
                        let hash = hints.hash(&i.to_be_bytes());
                        // Two keys may have the same bits of their hashes, but of 5,000 hardly any.
                        if hints.row(hash, &epoch::pin()) != Some(row(i)) {
                            hints.note(hash, row(i), || 5_000);
                        }
                    }
                });
            }
        });
        let right =
            (0..5_000u64).filter(|&i| hints.row(hints.hash(&i.to_be_bytes()), &epoch::pin()) == Some(row(i))).count();
        assert!(right > 4_000, "{right}");
    }
}
