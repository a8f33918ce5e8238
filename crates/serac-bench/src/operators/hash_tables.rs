//! The hash tables of the column-store report (§5.1, §5.2), integer to integer, repeated keys
//! allowed: chained over a pool allocator, and Robin Hood with a maximum load. They are measured
//! here beside hashbrown; the engine's joins have a table of their own.

/// A table under test.
pub trait IntegerTable {
    /// A table with room for `entries` entries; 0 for a table that is to grow.
    fn with_capacity(entries: usize) -> Self;
    /// Adds an entry.
    fn insert(&mut self, key: i32, value: i32);
    /// The value of an entry with the key.
    fn get(&self, key: i32) -> Option<i32>;
    /// Removes an entry with the key, if there is one, and returns its value.
    fn remove(&mut self, key: i32) -> Option<i32>;
    /// Bytes in memory.
    fn bytes(&self) -> usize;
}

const SMALLEST: usize = 16;
const NONE: u32 = u32::MAX;

/// The upper bits of the product depend on all bits of the key.
#[inline]
fn hash(key: i32) -> u64 {
    u64::from(key.cast_unsigned()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A chunk of the pool: an entry and the next chunk of its chain, or of the free list.
#[derive(Clone, Copy)]
struct Chunk {
    key: i32,
    value: i32,
    next: u32,
}

const BLOCK_CHUNKS: usize = 1 << 16;

/// A pool allocator: blocks of equal chunks, whose free chunks form a list. A chunk is known by its
/// number.
struct Pool {
    blocks: Vec<Box<[Chunk]>>,
    /// The allocation pointer.
    free: u32,
}

impl Pool {
    fn with_capacity(chunks: usize) -> Self {
        let mut pool = Self { blocks: Vec::new(), free: NONE };
        (0..chunks.div_ceil(BLOCK_CHUNKS)).for_each(|_| pool.add_block());
        pool
    }

    fn add_block(&mut self) {
        let first = self.blocks.len() * BLOCK_CHUNKS;
        assert!(first + BLOCK_CHUNKS < NONE as usize, "chunks have 32-bit numbers");
        let chunk = |at: usize| {
            let next = if at + 1 == BLOCK_CHUNKS { self.free } else { (first + at + 1) as u32 };
            Chunk { key: 0, value: 0, next }
        };
        let block = (0..BLOCK_CHUNKS).map(chunk).collect();
        self.blocks.push(block);
        self.free = first as u32;
    }

    #[inline]
    fn chunk(&self, at: u32) -> &Chunk {
        &self.blocks[at as usize / BLOCK_CHUNKS][at as usize % BLOCK_CHUNKS]
    }

    #[inline]
    fn chunk_mut(&mut self, at: u32) -> &mut Chunk {
        &mut self.blocks[at as usize / BLOCK_CHUNKS][at as usize % BLOCK_CHUNKS]
    }

    #[inline]
    fn allocate(&mut self) -> u32 {
        if self.free == NONE {
            self.add_block();
        }
        let at = self.free;
        self.free = self.chunk(at).next;
        at
    }

    #[inline]
    fn release(&mut self, at: u32) {
        self.chunk_mut(at).next = self.free;
        self.free = at;
    }
}

/// Buckets of linked chunks. The number of buckets doubles when the entries exceed 90 % of it.
pub struct Chained {
    buckets: Vec<u32>,
    pool: Pool,
    len: usize,
}

impl Chained {
    #[inline]
    fn bucket(&self, key: i32) -> usize {
        (hash(key) >> (u64::BITS - self.buckets.len().trailing_zeros())) as usize
    }

    fn grow(&mut self) {
        let wanted = self.buckets.len() * 2;
        let old = std::mem::replace(&mut self.buckets, vec![NONE; wanted]);
        for mut at in old {
            while at != NONE {
                let Chunk { key, next, .. } = *self.pool.chunk(at);
                let bucket = self.bucket(key);
                self.pool.chunk_mut(at).next = self.buckets[bucket];
                self.buckets[bucket] = at;
                at = next;
            }
        }
    }
}

impl IntegerTable for Chained {
    fn with_capacity(entries: usize) -> Self {
        let buckets = (entries * 10 / 9 + 1).next_power_of_two().max(SMALLEST);
        Self { buckets: vec![NONE; buckets], pool: Pool::with_capacity(entries), len: 0 }
    }

    fn insert(&mut self, key: i32, value: i32) {
        if (self.len + 1) * 10 > self.buckets.len() * 9 {
            self.grow();
        }
        let (bucket, at) = (self.bucket(key), self.pool.allocate());
        *self.pool.chunk_mut(at) = Chunk { key, value, next: self.buckets[bucket] };
        self.buckets[bucket] = at;
        self.len += 1;
    }

    fn get(&self, key: i32) -> Option<i32> {
        let mut at = self.buckets[self.bucket(key)];
        while at != NONE {
            let chunk = self.pool.chunk(at);
            if chunk.key == key {
                return Some(chunk.value);
            }
            at = chunk.next;
        }
        None
    }

    fn remove(&mut self, key: i32) -> Option<i32> {
        let bucket = self.bucket(key);
        let (mut before, mut at) = (NONE, self.buckets[bucket]);
        while at != NONE {
            let chunk = *self.pool.chunk(at);
            if chunk.key == key {
                match before {
                    NONE => self.buckets[bucket] = chunk.next,
                    before => self.pool.chunk_mut(before).next = chunk.next,
                }
                self.pool.release(at);
                self.len -= 1;
                return Some(chunk.value);
            }
            (before, at) = (at, chunk.next);
        }
        None
    }

    fn bytes(&self) -> usize {
        self.buckets.len() * size_of::<u32>() + self.pool.blocks.len() * BLOCK_CHUNKS * size_of::<Chunk>()
    }
}

/// A slot of an open table. `distance` is 0 in a free slot, and otherwise 1 more than the distance
/// from the key's home slot.
#[derive(Clone, Copy, Default)]
struct Slot {
    key: i32,
    value: i32,
    distance: u32,
}

/// Open addressing: an entry that is further from its home slot takes the slot of an entry that is
/// less far (Celis, Larson and Munro 1985). The number of slots doubles when more than `MAX_LOAD`
/// percent are taken. With [`FALLING`], that percentage falls as the table grows. Removal moves the
/// following entries back by one slot.
pub struct RobinHood<const MAX_LOAD: usize> {
    slots: Vec<Slot>,
    len: usize,
}

/// The maximum load that falls while a table grows: the report's open question (§5.2).
pub const FALLING: usize = 0;

impl<const MAX_LOAD: usize> RobinHood<MAX_LOAD> {
    /// The percentage of `slots` slots that may be taken.
    fn max_load(slots: usize) -> usize {
        match (MAX_LOAD, slots.ilog2()) {
            (FALLING, ..17) => 90,
            (FALLING, ..23) => 70,
            (FALLING, ..26) => 50,
            (FALLING, _) => 20,
            (fixed, _) => fixed,
        }
    }

    #[inline]
    fn home(&self, key: i32) -> usize {
        (hash(key) >> (u64::BITS - self.slots.len().trailing_zeros())) as usize
    }

    fn place(&mut self, key: i32, value: i32) {
        let mask = self.slots.len() - 1;
        let mut at = self.home(key);
        let mut entry = Slot { key, value, distance: 1 };
        loop {
            let slot = &mut self.slots[at];
            if slot.distance == 0 {
                *slot = entry;
                return;
            }
            if slot.distance < entry.distance {
                std::mem::swap(slot, &mut entry);
            }
            entry.distance += 1;
            at = (at + 1) & mask;
        }
    }

    /// The slot of an entry with the key.
    #[inline]
    fn find(&self, key: i32) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let (mut at, mut distance) = (self.home(key), 1);
        loop {
            let slot = &self.slots[at];
            // An entry with the key would have taken the slot of this entry, which is less far from
            // its home.
            if slot.distance < distance {
                return None;
            }
            if slot.key == key {
                return Some(at);
            }
            distance += 1;
            at = (at + 1) & mask;
        }
    }
}

impl<const MAX_LOAD: usize> IntegerTable for RobinHood<MAX_LOAD> {
    fn with_capacity(entries: usize) -> Self {
        let mut slots = SMALLEST;
        while entries * 100 > slots * Self::max_load(slots) {
            slots *= 2;
        }
        Self { slots: vec![Slot::default(); slots], len: 0 }
    }

    fn insert(&mut self, key: i32, value: i32) {
        if (self.len + 1) * 100 > self.slots.len() * Self::max_load(self.slots.len()) {
            let wanted = self.slots.len() * 2;
            let old = std::mem::replace(&mut self.slots, vec![Slot::default(); wanted]);
            old.iter().filter(|slot| slot.distance > 0).for_each(|slot| self.place(slot.key, slot.value));
        }
        self.place(key, value);
        self.len += 1;
    }

    fn get(&self, key: i32) -> Option<i32> {
        self.find(key).map(|at| self.slots[at].value)
    }

    fn remove(&mut self, key: i32) -> Option<i32> {
        let mask = self.slots.len() - 1;
        let mut at = self.find(key)?;
        let value = self.slots[at].value;
        loop {
            let next = (at + 1) & mask;
            let mut moved = self.slots[next];
            if moved.distance <= 1 {
                self.slots[at] = Slot::default();
                break;
            }
            moved.distance -= 1;
            self.slots[at] = moved;
            at = next;
        }
        self.len -= 1;
        Some(value)
    }

    fn bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot>()
    }
}

/// hashbrown's table with the same hash, its halves folded, because hashbrown takes the slot from
/// the lower bits.
pub struct Hashbrown(hashbrown::HashTable<(i32, i32)>);

#[inline]
fn folded(key: i32) -> u64 {
    let hash = hash(key);
    hash ^ hash >> 32
}

impl IntegerTable for Hashbrown {
    fn with_capacity(entries: usize) -> Self {
        Self(hashbrown::HashTable::with_capacity(entries))
    }

    fn insert(&mut self, key: i32, value: i32) {
        self.0.insert_unique(folded(key), (key, value), |(key, _)| folded(*key));
    }

    fn get(&self, key: i32) -> Option<i32> {
        self.0.find(folded(key), |(other, _)| *other == key).map(|(_, value)| *value)
    }

    fn remove(&mut self, key: i32) -> Option<i32> {
        let entry = self.0.find_entry(folded(key), |(other, _)| *other == key).ok()?;
        Some(entry.remove().0.1)
    }

    fn bytes(&self) -> usize {
        self.0.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::collections::HashMap;

    fn storm<T: IntegerTable>(capacity: usize, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut table, mut model) = (T::with_capacity(capacity), HashMap::<i32, Vec<i32>>::new());
        for step in 0..20_000 {
            let key = rng.random_range(-600..600);
            let held = model.entry(key).or_default();
            match rng.random_range(0..10) {
                0..5 => {
                    table.insert(key, step);
                    held.push(step);
                }
                5..7 => match table.get(key) {
                    Some(value) => assert!(held.contains(&value), "seed {seed}"),
                    None => assert!(held.is_empty(), "seed {seed}"),
                },
                _ => match table.remove(key) {
                    Some(value) => {
                        let at = held.iter().position(|other| *other == value);
                        held.swap_remove(at.unwrap_or_else(|| panic!("seed {seed}: {value} is not there")));
                    }
                    None => assert!(held.is_empty(), "seed {seed}"),
                },
            }
        }
        for (key, held) in model {
            for _ in 0..held.len() {
                assert!(table.remove(key).is_some_and(|value| held.contains(&value)), "seed {seed}");
            }
            assert_eq!(table.get(key), None, "seed {seed}");
        }
    }

    #[test]
    fn tables_agree_with_a_map_of_lists() {
        for seed in 0..4 {
            for capacity in [0, 1_000, 20_000] {
                storm::<Chained>(capacity, seed);
                storm::<RobinHood<20>>(capacity, seed);
                storm::<RobinHood<50>>(capacity, seed);
                storm::<RobinHood<90>>(capacity, seed);
                storm::<RobinHood<FALLING>>(capacity, seed);
                storm::<Hashbrown>(capacity, seed);
            }
        }
    }
}
