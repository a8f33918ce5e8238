//! Inner equi-joins of two vectors of keys: all pairs of places whose keys are equal, in no
//! promised order.
//!
//! | method | how | by several threads |
//! |---|---|---|
//! | nested loop | every key with every key | each takes parts of the longer side |
//! | block nested loop | the same, a block of 32,768 keys of the one side at a time, which stays in the cache | the same |
//! | naive hash | one table over the smaller side, which the larger one probes | one builds, each probes with parts of the longer side |
//! | Grace | both sides are parted by bits of the hash, so that each part's table fits the cache; then part by part | each parts segments, then joins parts |
//!
//! A table has its entries (key and place) in the order of their buckets, and the first entry of
//! each bucket. It has as many buckets as entries, or up to twice as many. Entries of one bucket
//! lie side by side, so a key with many entries does not cost a cache miss for each. With eight
//! entries a key, probing takes a third to a half of the time of a chained table or of open
//! addressing. With one entry a key it takes about the same.

use crate::tasks;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The method of a join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinMethod {
    /// Each with each.
    NestedLoop,
    /// Each with each, by blocks.
    BlockNestedLoop,
    /// One hash table.
    NaiveHash,
    /// Hash tables of parts.
    Grace,
    /// The faster hash join for these sides.
    Hash,
}

/// The longest vector of keys that can be joined: places and bounds of buckets are 32-bit numbers.
pub const MOST_KEYS: usize = u32::MAX as usize - 1;
/// Keys of a block of a nested loop.
const BLOCK: usize = 32 << 10;
/// Comparisons, or probes, between two calls of `go_on`.
const STEPS: usize = 1 << 18;
/// Keys of a part of a Grace join: its table of about 24 bytes a key fits a second-level cache.
const PART: usize = 1 << 15;
/// Parts at the most: more streams than that are too many to write to at a time.
const MOST_PARTS: usize = 1 << 10;
/// Keys of both sides up to which a join is for one thread.
const FEW_KEYS: usize = 1 << 15;

/// Places in the first and in the second vector, pair by pair.
pub type Pairs = (Vec<u32>, Vec<u32>);

/// The pairs of places with equal keys, by one thread. `go_on` is asked time and again with the
/// number of pairs so far, and ends the join by failing.
///
/// # Errors
/// The errors of `go_on`.
///
/// # Panics
/// When a side has more than [`MOST_KEYS`] keys.
pub fn join<E>(
    left: &[i64],
    right: &[i64],
    method: JoinMethod,
    go_on: &mut dyn FnMut(usize) -> Result<(), E>,
) -> Result<Pairs, E> {
    // The smaller side is built, or stays in the cache.
    if left.len() > right.len() {
        return join(right, left, method, go_on).map(|(right, left)| (left, right));
    }
    assert!(right.len() <= MOST_KEYS, "places are 32-bit numbers");
    let mut out = Output { pairs: Pairs::default(), steps: 0, go_on };
    match chosen(method, left.len()) {
        Chosen::Loop { block } => nested_loop(left, right, 0, block, &mut out)?,
        Chosen::Table => Table::new(&[Keys::all(left)]).probe(&Keys::all(right), &mut out)?,
        Chosen::Parts { bits } => {
            let (left, right) = ([part(Keys::all(left), bits)], [part(Keys::all(right), bits)]);
            (0..1 << bits).try_for_each(|at| join_part(&left, &right, at, &mut out))?;
        }
    }
    (out.go_on)(out.pairs.0.len())?;
    Ok(out.pairs)
}

/// As [`join`], by at most `threads` threads, which may call `go_on` at the same time. At the end
/// memory holds the pairs twice, until they are in one pair of vectors.
///
/// # Errors
/// The errors of `go_on`.
///
/// # Panics
/// When a side has more than [`MOST_KEYS`] keys.
pub fn join_on_threads<E: Send>(
    left: &[i64],
    right: &[i64],
    method: JoinMethod,
    threads: usize,
    go_on: &(dyn Fn(usize) -> Result<(), E> + Sync),
) -> Result<Pairs, E> {
    if left.len() > right.len() {
        return join_on_threads(right, left, method, threads, go_on).map(|(right, left)| (left, right));
    }
    assert!(right.len() <= MOST_KEYS, "places are 32-bit numbers");
    let few = match method {
        JoinMethod::NestedLoop | JoinMethod::BlockNestedLoop => left.len().saturating_mul(right.len()) < STEPS,
        _ => left.len() + right.len() < FEW_KEYS,
    };
    if threads <= 1 || few {
        return join(left, right, method, &mut |pairs| go_on(pairs));
    }
    let joined = Joined { total: AtomicUsize::new(0), go_on };
    // Several segments a thread, so that threads end together.
    let segment = |keys: usize| keys.div_ceil(threads * 4).max(1);
    let segments = |keys: &[i64]| keys.len().div_ceil(segment(keys.len()));
    let segment_of = |keys, at| Keys::segment(keys, at * segment(keys.len()), segment(keys.len()));
    let outputs = match chosen(method, left.len()) {
        Chosen::Loop { block } => joined.run(threads, segments(right), |at, out| {
            let first = at * segment(right.len());
            let end = (first + segment(right.len())).min(right.len());
            nested_loop(left, &right[first..end], first, block, out)
        })?,
        Chosen::Table => {
            let table = Table::new(&[Keys::all(left)]);
            go_on(0)?;
            joined.run(threads, segments(right), |at, out| table.probe(&segment_of(right, at), out))?
        }
        Chosen::Parts { bits } => {
            // Each thread has enough parts to even out repeated keys.
            let bits = bits.max((threads * 4).next_power_of_two().trailing_zeros()).min(MOST_PARTS.trailing_zeros());
            let parted = |keys| {
                let parted: Vec<Mutex<Parted>> = (0..segments(keys)).map(|_| Mutex::default()).collect();
                tasks::run(threads, parted.len(), |at| {
                    go_on(0)?;
                    *lock(&parted[at]) = part(segment_of(keys, at), bits);
                    Ok(())
                })?;
                Ok(parted.into_iter().map(|parted| parted.into_inner().unwrap_or_else(|e| e.into_inner())).collect())
            };
            let (left, right): (Vec<Parted>, Vec<Parted>) = (parted(left)?, parted(right)?);
            joined.run(threads, 1 << bits, |at, out| join_part(&left, &right, at, out))?
        }
    };
    joined.put_together(threads, outputs)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Bytes that a join of sides of these lengths takes beside its pairs, about.
pub fn bytes(left: usize, right: usize, method: JoinMethod) -> u64 {
    // For each entry of a table: the key, its place, and up to two starts of buckets. For each key
    // of a part: the key and its place.
    const ENTRY: usize = size_of::<(i64, u32)>() + 2 * size_of::<u32>();
    const PARTED: usize = size_of::<i64>() + size_of::<u32>();
    let shorter = left.min(right);
    let bytes = match chosen(method, shorter) {
        Chosen::Loop { .. } => 0,
        Chosen::Table => shorter.saturating_mul(ENTRY),
        Chosen::Parts { .. } => left.saturating_add(right).saturating_mul(PARTED),
    };
    bytes as u64
}

/// A method for sides of known length.
enum Chosen {
    Loop { block: usize },
    Table,
    Parts { bits: u32 },
}

fn chosen(method: JoinMethod, shorter: usize) -> Chosen {
    let parts = shorter.div_ceil(PART).next_power_of_two().clamp(1, MOST_PARTS);
    match method {
        JoinMethod::NestedLoop => Chosen::Loop { block: usize::MAX },
        JoinMethod::BlockNestedLoop => Chosen::Loop { block: BLOCK },
        JoinMethod::NaiveHash => Chosen::Table,
        JoinMethod::Hash if shorter <= 2 * PART => Chosen::Table,
        JoinMethod::Hash | JoinMethod::Grace => Chosen::Parts { bits: parts.trailing_zeros() },
    }
}

/// The results of a join's tasks.
struct Joined<'g, E> {
    /// The pairs of all tasks, as far as the tasks have reported them.
    total: AtomicUsize,
    go_on: &'g (dyn Fn(usize) -> Result<(), E> + Sync),
}

impl<E: Send> Joined<'_, E> {
    fn run(
        &self,
        threads: usize,
        tasks: usize,
        work: impl Fn(usize, &mut Output<'_, E>) -> Result<(), E> + Sync,
    ) -> Result<Vec<Mutex<Pairs>>, E> {
        let outputs: Vec<Mutex<Pairs>> = (0..tasks).map(|_| Mutex::default()).collect();
        tasks::run(threads, tasks, |at| {
            let mut told = 0;
            let mut go_on = |pairs: usize| {
                // Relaxed: a sum that limits memory.
                let total = self.total.fetch_add(pairs - told, Ordering::Relaxed) + pairs - told;
                told = pairs;
                (self.go_on)(total)
            };
            let mut out = Output { pairs: Pairs::default(), steps: 0, go_on: &mut go_on };
            work(at, &mut out)?;
            (out.go_on)(out.pairs.0.len())?;
            *lock(&outputs[at]) = out.pairs;
            Ok(())
        })?;
        Ok(outputs)
    }

    fn put_together(&self, threads: usize, outputs: Vec<Mutex<Pairs>>) -> Result<Pairs, E> {
        let lens: Vec<usize> = outputs.iter().map(|pairs| lock(pairs).0.len()).collect();
        let total: usize = lens.iter().sum();
        let mut all = (vec![0; total], vec![0; total]);
        let (mut left, mut right) = (all.0.as_mut_slice(), all.1.as_mut_slice());
        let mut places = Vec::with_capacity(lens.len());
        for len in lens {
            let ((here, behind), (here_too, behind_too)) = (left.split_at_mut(len), right.split_at_mut(len));
            places.push(Mutex::new((here, here_too)));
            (left, right) = (behind, behind_too);
        }
        tasks::run(threads, outputs.len(), |at| {
            (self.go_on)(total)?;
            let (left, right) = std::mem::take(&mut *lock(&outputs[at]));
            let mut place = lock(&places[at]);
            place.0.copy_from_slice(&left);
            place.1.copy_from_slice(&right);
            Ok(())
        })?;
        drop(places);
        Ok(all)
    }
}

struct Output<'g, E> {
    pairs: Pairs,
    steps: usize,
    go_on: &'g mut dyn FnMut(usize) -> Result<(), E>,
}

impl<E> Output<'_, E> {
    fn steps(&mut self, steps: usize) -> Result<(), E> {
        self.steps += steps;
        if self.steps >= STEPS {
            self.steps = 0;
            (self.go_on)(self.pairs.0.len())?;
        }
        Ok(())
    }

    #[inline]
    fn push(&mut self, left: u32, right: u32) {
        self.pairs.0.push(left);
        self.pairs.1.push(right);
    }
}

/// The first key of `right` has the place `first_right`.
fn nested_loop<E>(
    left: &[i64],
    right: &[i64],
    first_right: usize,
    block: usize,
    out: &mut Output<'_, E>,
) -> Result<(), E> {
    for (at, keys) in left.chunks(block.min(left.len().max(1))).enumerate() {
        let first = at * block.min(left.len());
        for (j, &wanted) in right.iter().enumerate() {
            for (part, some) in keys.chunks(STEPS).enumerate() {
                for (i, &key) in some.iter().enumerate() {
                    if key == wanted {
                        out.push((first + part * STEPS + i) as u32, (first_right + j) as u32);
                    }
                }
                out.steps(some.len())?;
            }
        }
    }
    Ok(())
}

/// Fibonacci hashing: the upper bits of the product depend on all bits of the key.
#[inline]
fn hash(key: i64) -> u64 {
    let key = key as u64;
    (key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The positions of keys in their vector.
#[derive(Clone, Copy)]
enum Places<'p> {
    From(u32),
    Of(&'p [u32]),
}

/// Keys and their places.
#[derive(Clone, Copy)]
struct Keys<'k> {
    keys: &'k [i64],
    places: Places<'k>,
}

impl<'k> Keys<'k> {
    fn all(keys: &'k [i64]) -> Self {
        Self { keys, places: Places::From(0) }
    }

    fn segment(keys: &'k [i64], from: usize, len: usize) -> Self {
        let end = (from + len).min(keys.len());
        Self { keys: &keys[from.min(end)..end], places: Places::From(from as u32) }
    }

    #[inline]
    fn place(&self, at: usize) -> u32 {
        match self.places {
            Places::From(first) => first + at as u32,
            Places::Of(places) => places[at],
        }
    }
}

/// A hash table; see the module.
struct Table {
    /// By bucket, its first entry, with a further number for the end.
    starts: Vec<u32>,
    entries: Vec<(i64, u32)>,
    bits: u32,
}

impl Table {
    fn new(built: &[Keys<'_>]) -> Self {
        let keys: usize = built.iter().map(|keys| keys.keys.len()).sum();
        let bits = keys.next_power_of_two().trailing_zeros().max(1);
        let mut table = Self { starts: vec![0; (1 << bits) + 1], entries: vec![(0, 0); keys], bits };
        for &key in built.iter().flat_map(|keys| keys.keys) {
            let bucket = table.bucket(key);
            table.starts[bucket] += 1;
        }
        let mut end = 0;
        for start in &mut table.starts {
            end += *start;
            *start = end;
        }
        // Backwards, so that each bucket's end becomes its start, and places with one key come in
        // their order.
        for keys in built.iter().rev() {
            for (at, &key) in keys.keys.iter().enumerate().rev() {
                let bucket = table.bucket(key);
                table.starts[bucket] -= 1;
                table.entries[table.starts[bucket] as usize] = (key, keys.place(at));
            }
        }
        table
    }

    #[inline]
    fn bucket(&self, key: i64) -> usize {
        // The bits below those by which Grace parts.
        (hash(key) << MOST_PARTS.trailing_zeros() >> (u64::BITS - self.bits)) as usize
    }

    fn probe<E>(&self, probing: &Keys<'_>, out: &mut Output<'_, E>) -> Result<(), E> {
        if self.entries.is_empty() {
            return Ok(());
        }
        for (at, &wanted) in probing.keys.iter().enumerate() {
            let bucket = self.bucket(wanted);
            let entries = &self.entries[self.starts[bucket] as usize..self.starts[bucket + 1] as usize];
            for some in entries.chunks(STEPS) {
                for &(key, place) in some {
                    if key == wanted {
                        out.push(place, probing.place(at));
                    }
                }
                out.steps(some.len())?;
            }
            out.steps(1)?;
        }
        Ok(())
    }
}

/// Keys and their places, part by part, and where each part lies.
#[derive(Default)]
struct Parted {
    keys: Vec<i64>,
    places: Vec<u32>,
    parts: Vec<Range<usize>>,
}

impl Parted {
    fn part(&self, at: usize) -> Keys<'_> {
        let range = self.parts[at].clone();
        Keys { keys: &self.keys[range.clone()], places: Places::Of(&self.places[range]) }
    }
}

/// Parts keys by the upper `bits` bits of their hash: counts, then writes each to its part's place.
fn part(keys: Keys<'_>, bits: u32) -> Parted {
    let part_of = |key: i64| if bits == 0 { 0 } else { (hash(key) >> (u64::BITS - bits)) as usize };
    let mut ends = vec![0usize; 1 << bits];
    keys.keys.iter().for_each(|&key| ends[part_of(key)] += 1);
    let mut end = 0;
    let parts: Vec<Range<usize>> = ends
        .iter()
        .map(|count| {
            let from = end;
            end += count;
            from..end
        })
        .collect();
    let mut cursors: Vec<usize> = parts.iter().map(|range| range.start).collect();
    let (mut parted, mut places) = (vec![0; keys.keys.len()], vec![0; keys.keys.len()]);
    for (at, &key) in keys.keys.iter().enumerate() {
        let cursor = &mut cursors[part_of(key)];
        parted[*cursor] = key;
        places[*cursor] = keys.place(at);
        *cursor += 1;
    }
    Parted { keys: parted, places, parts }
}

/// Joins one part of both sides, each of which was parted by segments.
fn join_part<E>(left: &[Parted], right: &[Parted], at: usize, out: &mut Output<'_, E>) -> Result<(), E> {
    let left: Vec<Keys<'_>> = left.iter().map(|segment| segment.part(at)).collect();
    let table = Table::new(&left);
    right.iter().try_for_each(|segment| table.probe(&segment.part(at), out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(left: &[i64], right: &[i64], method: JoinMethod) -> Vec<(u32, u32)> {
        let (l, r) = join::<()>(left, right, method, &mut |_| Ok(())).unwrap();
        let mut pairs: Vec<_> = l.into_iter().zip(r).collect();
        pairs.sort_unstable();
        for threads in [2, 3] {
            let (l, r) = join_on_threads::<()>(left, right, method, threads, &|_| Ok(())).unwrap();
            let mut of_threads: Vec<_> = l.into_iter().zip(r).collect();
            of_threads.sort_unstable();
            assert!(of_threads == pairs, "{method:?} by {threads} threads");
        }
        pairs
    }
    const ALL: [JoinMethod; 5] = [
        JoinMethod::NestedLoop,
        JoinMethod::BlockNestedLoop,
        JoinMethod::NaiveHash,
        JoinMethod::Grace,
        JoinMethod::Hash,
    ];

    proptest! {
        #[test]
        fn every_method_gives_all_pairs(
            left in prop::collection::vec(prop_oneof![-3i64..3, any::<i64>()], 0..60),
            right in prop::collection::vec(prop_oneof![-3i64..3, any::<i64>()], 0..60),
        ) {
            let mut expected = Vec::new();
            for (i, l) in left.iter().enumerate() {
                expected.extend((0..right.len()).filter(|&j| right[j] == *l).map(|j| (i as u32, j as u32)));
            }
            for method in ALL {
                prop_assert_eq!(pairs(&left, &right, method), expected.clone(), "{:?}", method);
            }
        }
    }

    #[test]
    fn long_sides_are_parted() {
        let left: Vec<i64> = (0..100_000).map(|i| i * 7).collect();
        let right: Vec<i64> = (0..150_000).rev().collect();
        let expected: Vec<(u32, u32)> =
            (0..100_000u32).filter(|i| i * 7 < 150_000).map(|i| (i, 149_999 - i * 7)).collect();
        for method in [JoinMethod::NaiveHash, JoinMethod::Grace, JoinMethod::Hash] {
            assert_eq!(pairs(&left, &right, method), expected, "{method:?}");
        }
        let (left, right) = (&left[..3_000], &right[..4_000]);
        let expected: Vec<(u32, u32)> =
            (0..3_000u32).filter(|i| (146_000..150_000).contains(&(i * 7))).map(|i| (i, 149_999 - i * 7)).collect();
        for method in [JoinMethod::NestedLoop, JoinMethod::BlockNestedLoop] {
            assert_eq!(pairs(left, right, method), expected, "{method:?}");
        }
    }

    #[test]
    fn memory_goes_with_the_sides() {
        for method in ALL {
            let takes = !matches!(method, JoinMethod::NestedLoop | JoinMethod::BlockNestedLoop);
            for (left, right) in [(1_000, 1_000_000), (1_000_000, 1_000_000), (usize::MAX, usize::MAX)] {
                let takes_some = bytes(left, right, method) >= left.min(right) as u64;
                assert_eq!(takes_some, takes, "{method:?} of {left} and {right}");
                assert_eq!(bytes(left, right, method), bytes(right, left, method));
            }
            assert_eq!(bytes(0, 0, method), 0);
        }
    }

    #[test]
    fn a_join_ends_when_it_is_told_to() {
        let keys = vec![1; 20_000];
        for method in ALL {
            let mut most = 0;
            let ended = join(&keys, &keys, method, &mut |pairs| {
                most = most.max(pairs);
                if pairs > 1_000_000 { Err(()) } else { Ok(()) }
            });
            assert!(ended.is_err(), "{method:?}");
            assert!(most < 2_000_000, "{method:?}: {most}");
            let most = AtomicUsize::new(0);
            let ended = join_on_threads(&keys, &keys, method, 2, &|pairs| {
                most.fetch_max(pairs, Ordering::Relaxed);
                if pairs > 1_000_000 { Err(()) } else { Ok(()) }
            });
            assert!(ended.is_err(), "{method:?}");
            assert!(most.into_inner() < 3_000_000, "{method:?}");
        }
    }
}
