//! Inner equi-joins of two vectors of keys: all pairs of places whose keys are equal, in no promised order.
//!
//! | method | how |
//! |---|---|
//! | nested loop | every key with every key |
//! | block nested loop | the same, a block of 32,768 keys of the one side at a time, which stays in the cache |
//! | naive hash | one chained table over the smaller side, which the larger one probes |
//! | Grace | both sides are parted by bits of the hash, so that each part's table fits the cache; then part by part |
//!
//! A table is two arrays: the first place of each bucket, and behind each place the next one. It has as many buckets as places, or up to twice as many.

use std::ops::Range;

/// How a join is computed.
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
    /// Whichever hash join is faster for these sides.
    Hash,
}

/// The longest vector of keys that can be joined: places are 32-bit numbers, the largest of which is none.
pub const MOST_KEYS: usize = u32::MAX as usize - 1;
/// Keys of a block of a nested loop.
const BLOCK: usize = 32 << 10;
/// Comparisons, or probes, between two questions whether to go on.
const STEPS: usize = 1 << 18;
/// Keys of a part of a Grace join: its table of 12 bytes a key fits a second-level cache.
const PART: usize = 1 << 15;
/// Parts at the most: more streams than that are too many to write to at a time.
const MOST_PARTS: usize = 1 << 10;
const NONE: u32 = u32::MAX;

/// Places in the first and in the second vector, pair by pair.
pub type Pairs = (Vec<u32>, Vec<u32>);

/// The pairs of places with equal keys. `go_on` is asked time and again with the number of pairs so far, and ends the join by failing.
///
/// # Errors
/// Those of `go_on`.
///
/// # Panics
/// When a side has more than [`MOST_KEYS`] keys.
pub fn join<E>(
    left: &[i64],
    right: &[i64],
    method: JoinMethod,
    go_on: &mut dyn FnMut(usize) -> Result<(), E>,
) -> Result<Pairs, E> {
    assert!(left.len().max(right.len()) <= MOST_KEYS, "places are 32-bit numbers");
    // The smaller side is built, or stays in the cache.
    if left.len() > right.len() {
        return join(right, left, method, go_on).map(|(right, left)| (left, right));
    }
    let method = match method {
        JoinMethod::Hash if left.len() > 2 * PART => JoinMethod::Grace,
        JoinMethod::Hash => JoinMethod::NaiveHash,
        chosen => chosen,
    };
    let mut pairs = Output { pairs: Pairs::default(), steps: 0, go_on };
    match method {
        JoinMethod::NestedLoop => nested_loop(left, right, usize::MAX, &mut pairs)?,
        JoinMethod::BlockNestedLoop => nested_loop(left, right, BLOCK, &mut pairs)?,
        JoinMethod::Grace => grace(left, right, &mut pairs)?,
        JoinMethod::NaiveHash | JoinMethod::Hash => {
            let places = |keys: &[i64]| (0..keys.len() as u32).collect::<Vec<_>>();
            hash_join((left, &places(left)), (right, &places(right)), &mut pairs)?;
        }
    }
    (pairs.go_on)(pairs.pairs.0.len())?;
    Ok(pairs.pairs)
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

fn nested_loop<E>(left: &[i64], right: &[i64], block: usize, out: &mut Output<'_, E>) -> Result<(), E> {
    for (at, keys) in left.chunks(block.min(left.len().max(1))).enumerate() {
        let first = at * block.min(left.len());
        for (j, &wanted) in right.iter().enumerate() {
            for (part, some) in keys.chunks(STEPS).enumerate() {
                for (i, &key) in some.iter().enumerate() {
                    if key == wanted {
                        out.push((first + part * STEPS + i) as u32, j as u32);
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

/// Joins keys with the places that stand beside them.
fn hash_join<E>(
    (built, built_places): (&[i64], &[u32]),
    (probing, probing_places): (&[i64], &[u32]),
    out: &mut Output<'_, E>,
) -> Result<(), E> {
    if built.is_empty() || probing.is_empty() {
        return Ok(());
    }
    let bits = built.len().next_power_of_two().trailing_zeros().max(1);
    // The bits below those by which Grace parts.
    let bucket = |key: i64| (hash(key) << MOST_PARTS.trailing_zeros() >> (64 - bits)) as usize;
    let (mut heads, mut next) = (vec![NONE; 1 << bits], vec![NONE; built.len()]);
    // Backwards, so that places with one key come in their order.
    for (i, &key) in built.iter().enumerate().rev() {
        let head = &mut heads[bucket(key)];
        next[i] = *head;
        *head = i as u32;
    }
    for (&key, &place) in probing.iter().zip(probing_places) {
        let mut at = heads[bucket(key)];
        let mut steps = 1;
        while at != NONE {
            if built[at as usize] == key {
                out.push(built_places[at as usize], place);
            }
            at = next[at as usize];
            steps += 1;
            if steps == STEPS {
                out.steps(steps)?;
                steps = 0;
            }
        }
        out.steps(steps)?;
    }
    Ok(())
}

/// Keys and their places, part by part, and where each part lies.
struct Parted {
    keys: Vec<i64>,
    places: Vec<u32>,
    parts: Vec<Range<usize>>,
}

/// Parts keys by the upper `bits` bits of their hash: counts, then writes each to its part's place.
fn part(keys: &[i64], bits: u32) -> Parted {
    let part_of = |key: i64| if bits == 0 { 0 } else { (hash(key) >> (64 - bits)) as usize };
    let mut ends = vec![0usize; 1 << bits];
    keys.iter().for_each(|&key| ends[part_of(key)] += 1);
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
    let (mut parted, mut places) = (vec![0; keys.len()], vec![0; keys.len()]);
    for (place, &key) in keys.iter().enumerate() {
        let cursor = &mut cursors[part_of(key)];
        parted[*cursor] = key;
        places[*cursor] = place as u32;
        *cursor += 1;
    }
    Parted { keys: parted, places, parts }
}

fn grace<E>(left: &[i64], right: &[i64], out: &mut Output<'_, E>) -> Result<(), E> {
    let parts = left.len().div_ceil(PART).next_power_of_two().clamp(1, MOST_PARTS);
    let bits = parts.trailing_zeros();
    let (left, right) = (part(left, bits), part(right, bits));
    for (l, r) in left.parts.iter().zip(&right.parts) {
        hash_join(
            (&left.keys[l.clone()], &left.places[l.clone()]),
            (&right.keys[r.clone()], &right.places[r.clone()]),
            out,
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(left: &[i64], right: &[i64], method: JoinMethod) -> Vec<(u32, u32)> {
        let (l, r) = join::<()>(left, right, method, &mut |_| Ok(())).unwrap();
        let mut pairs: Vec<_> = l.into_iter().zip(r).collect();
        pairs.sort_unstable();
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
    }

    #[test]
    fn a_join_ends_when_it_is_told_to() {
        let keys = vec![1; 10_000];
        for method in ALL {
            let mut most = 0;
            let ended = join(&keys, &keys, method, &mut |pairs| {
                most = most.max(pairs);
                if pairs > 1_000_000 { Err(()) } else { Ok(()) }
            });
            assert!(ended.is_err(), "{method:?}");
            assert!(most < 2_000_000, "{method:?}: {most}");
        }
    }
}
