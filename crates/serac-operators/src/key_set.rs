//! Key set: which keys the build side of a join has, as a filter for the scan of the other side (a
//! semi-join reducer).
//!
//! Keys that lie close together become a bitmap and the answer is exact. Others go into a Bloom
//! filter of one 64-bit word per key; the join itself removes its false positives.

use arrow_buffer::NullBuffer;

/// A bitmap may have this many bits per key, …
const BITS_PER_KEY: u64 = 256;
/// … or this many for any number of keys, …
const SMALL_BITMAP_BITS: u64 = 1 << 20;
/// … but never more than this (64 MiB).
const LARGEST_BITMAP_BITS: u64 = 1 << 29;
/// Bits of a Bloom filter per key, before rounding up to a power of two of words.
const BLOOM_BITS_PER_KEY: usize = 16;

/// A set of integer keys; see the module.
#[derive(Debug)]
pub enum KeySet {
    /// A bit for every key from `first` on.
    Bitmap {
        /// Key of the first bit.
        first: i64,
        /// The bits.
        bits: Vec<u64>,
    },
    /// A register-blocked Bloom filter: all bits of a key lie in one word.
    Bloom {
        /// The words, a power of two of them.
        words: Vec<u64>,
    },
}

/// The word of a key and its four bits there, from two rounds of multiplicative hashing.
#[inline]
fn bloom_place(key: i64, words: usize) -> (usize, u64) {
    const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;
    let hash = (key as u64).wrapping_mul(GOLDEN_RATIO);
    let hash = (hash ^ hash >> 32).wrapping_mul(GOLDEN_RATIO);
    let word = (hash >> 40) as usize & (words - 1);
    let mask = 1 << (hash & 63) | 1 << (hash >> 6 & 63) | 1 << (hash >> 12 & 63) | 1 << (hash >> 18 & 63);
    (word, mask)
}

impl KeySet {
    /// The set of all keys in `parts`.
    pub fn new(parts: &[Vec<i64>]) -> Self {
        let keys = || parts.iter().flatten().copied();
        let count: usize = parts.iter().map(Vec::len).sum();
        let (Some(first), Some(last)) = (keys().min(), keys().max()) else {
            return Self::Bitmap { first: 0, bits: Vec::new() };
        };
        let span = last.abs_diff(first);
        let allowed = (count as u64).saturating_mul(BITS_PER_KEY).clamp(SMALL_BITMAP_BITS, LARGEST_BITMAP_BITS);
        if span < allowed {
            let mut bits = vec![0u64; span as usize / 64 + 1];
            for key in keys() {
                let at = key.abs_diff(first) as usize;
                bits[at / 64] |= 1 << (at % 64);
            }
            return Self::Bitmap { first, bits };
        }
        let mut words = vec![0u64; (count * BLOOM_BITS_PER_KEY / 64).next_power_of_two().clamp(64, 1 << 24)];
        for key in keys() {
            let (word, mask) = bloom_place(key, words.len());
            words[word] |= mask;
        }
        Self::Bloom { words }
    }

    /// Whether a key between `min` and `max` may be in the set.
    pub fn may_hold(&self, min: i64, max: i64) -> bool {
        match self {
            Self::Bitmap { first, bits } => {
                let last = i128::from(*first) + 64 * bits.len() as i128;
                max >= *first && i128::from(min) < last
            }
            Self::Bloom { .. } => true,
        }
    }

    /// The positions of the values that may be in the set. NULLs (invalid in `nulls`) never are.
    pub fn select<T: Copy + Into<i64>>(&self, values: &[T], nulls: Option<&NullBuffer>) -> Vec<u32> {
        match self {
            Self::Bitmap { first, bits } => {
                let first = *first as u64;
                crate::select::positions_by(values, nulls, |value| {
                    // Keys before the first wrap around to numbers past the last.
                    let at = (value.into() as u64).wrapping_sub(first);
                    let word = bits.get((at / 64) as usize).copied().unwrap_or(0);
                    word >> (at % 64) & 1 == 1
                })
            }
            Self::Bloom { words } => crate::select::positions_by(values, nulls, |value| {
                let (word, mask) = bloom_place(value.into(), words.len());
                words[word] & mask == mask
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn dense_keys_are_told_exactly(
            keys in prop::collection::vec(-500i64..500, 0..80), probes in prop::collection::vec((-700i64..700, any::<bool>()), 0..200),
        ) {
            let set = KeySet::new(&[keys[..keys.len() / 2].to_vec(), keys[keys.len() / 2..].to_vec()]);
            let (values, valid): (Vec<i64>, Vec<bool>) = probes.into_iter().unzip();
            let nulls = NullBuffer::from(valid.clone());
            let expected: Vec<u32> =
                (0..values.len()).filter(|&i| valid[i] && keys.contains(&values[i])).map(|i| i as u32).collect();
            prop_assert_eq!(set.select(&values, Some(&nulls)), expected);
        }

        #[test]
        fn no_sparse_key_is_missed(keys in prop::collection::vec(any::<i64>(), 1..400)) {
            let set = KeySet::new(std::slice::from_ref(&keys));
            prop_assert_eq!(set.select(&keys, None).len(), keys.len());
        }
    }

    #[test]
    fn extreme_keys_and_few_false_positives() {
        let set = KeySet::new(&[vec![i64::MIN, i64::MAX, 0]]);
        assert_eq!(set.select(&[i64::MAX, 0, i64::MIN], None), [0, 1, 2]);
        let sparse: Vec<i64> = (0..10_000i64).map(|i| i * 1_000_003 + 17).collect();
        let set = KeySet::new(&[sparse]);
        assert!(matches!(set, KeySet::Bloom { .. }));
        let others: Vec<i64> = (0..10_000i64).map(|i| i * 1_000_003 + 18).collect();
        assert!(set.select(&others, None).len() < 500);
    }
}
