//! The values of an indexed column, as memory-comparable bytes ([`crate::ordered::key`]).
//!
//! Up to 15 bytes lie in the key itself: two words that compare as the bytes do (zero-padded, the
//! length in the last byte).

use std::cmp::Ordering;

const INLINE_BYTES: usize = 15;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Form {
    Inline(u64, u64),
    Heap(Box<[u8]>),
}

/// A value of the indexed column.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Form);

impl Key {
    /// The key of NULL, which has a bitvector of its own.
    pub fn null() -> Self {
        Self::new(&[2])
    }

    /// A key from its memory-comparable bytes.
    #[inline]
    pub fn new(bytes: &[u8]) -> Self {
        if bytes.len() > INLINE_BYTES {
            return Self(Form::Heap(bytes.into()));
        }
        let mut padded = [0; 16];
        padded[..bytes.len()].copy_from_slice(bytes);
        padded[INLINE_BYTES] = bytes.len() as u8;
        let word = |at: usize| u64::from_be_bytes(*padded[at..].first_chunk().expect("two words"));
        Self(Form::Inline(word(0), word(8)))
    }

    /// Calls `f` with the bytes.
    #[inline]
    pub fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        match &self.0 {
            Form::Heap(bytes) => f(bytes),
            Form::Inline(high, low) => {
                let padded = (u128::from(*high) << 64 | u128::from(*low)).to_be_bytes();
                f(&padded[..padded[INLINE_BYTES] as usize])
            }
        }
    }

    /// One of 64 bits, by hash.
    #[inline]
    pub(crate) fn mask(&self) -> u64 {
        let word = match &self.0 {
            Form::Inline(high, low) => high ^ low.rotate_left(32),
            Form::Heap(bytes) => {
                bytes.iter().fold(0, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
            }
        };
        1 << (word.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58)
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        if let Form::Heap(bytes) = &self.0 { bytes.len() } else { 0 }
    }
}

impl Ord for Key {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Form::Inline(a, b), Form::Inline(c, d)) => (a, b).cmp(&(c, d)),
            _ => self.with_bytes(|a| other.with_bytes(|b| a.cmp(b))),
        }
    }
}
impl PartialOrd for Key {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.with_bytes(|bytes| write!(f, "Key({bytes:02x?})"))
    }
}

/// Ascending keys, packed: the prefix that all share once, then the rest of each.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    prefix: Box<[u8]>,
    count: usize,
    /// Bytes of each key after the prefix; `None` if the keys differ in length, and then `ends` has
    /// their ends in `rest`.
    width: Option<usize>,
    ends: Box<[u32]>,
    rest: Box<[u8]>,
}

impl Keys {
    pub(crate) fn from_sorted(keys: &[Key]) -> Self {
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return Self::default() };
        debug_assert!(keys.is_sorted_by(|a, b| a < b));
        let common = first.with_bytes(|a| last.with_bytes(|b| a.iter().zip(b).take_while(|(a, b)| a == b).count()));
        let length = |key: &Key| key.with_bytes(|bytes| bytes.len() - common);
        let width = Some(length(first)).filter(|width| keys.iter().all(|key| length(key) == *width));
        let mut rest = Vec::new();
        let mut ends = Vec::new();
        for key in keys {
            key.with_bytes(|bytes| rest.extend_from_slice(&bytes[common..]));
            if width.is_none() {
                ends.push(rest.len() as u32);
            }
        }
        let prefix = first.with_bytes(|bytes| bytes[..common].into());
        Self { prefix, count: keys.len(), width, ends: ends.into(), rest: rest.into() }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    fn rest(&self, at: usize) -> &[u8] {
        match self.width {
            Some(width) => &self.rest[at * width..(at + 1) * width],
            None => {
                let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
                &self.rest[start..self.ends[at] as usize]
            }
        }
    }

    pub(crate) fn get(&self, at: usize) -> Key {
        let rest = self.rest(at);
        let (mut short, length) = ([0; 16], self.prefix.len() + rest.len());
        if length <= short.len() {
            short[..self.prefix.len()].copy_from_slice(&self.prefix);
            short[self.prefix.len()..length].copy_from_slice(rest);
            return Key::new(&short[..length]);
        }
        Key::new(&[&self.prefix[..], rest].concat())
    }

    /// The place of `key`, or the place where it would go.
    pub(crate) fn find(&self, key: &Key) -> Result<usize, usize> {
        key.with_bytes(|bytes| {
            let common = bytes.len().min(self.prefix.len());
            match bytes[..common].cmp(&self.prefix[..common]) {
                Ordering::Less => return Err(0),
                Ordering::Greater => return Err(self.count),
                // A key that is a part of the prefix comes before all.
                Ordering::Equal if bytes.len() < self.prefix.len() => return Err(0),
                Ordering::Equal => {}
            }
            let (mut low, mut high) = (0, self.count);
            while low < high {
                let middle = (low + high) / 2;
                match self.rest(middle).cmp(&bytes[common..]) {
                    Ordering::Less => low = middle + 1,
                    Ordering::Equal => return Ok(middle),
                    Ordering::Greater => high = middle,
                }
            }
            Err(low)
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.prefix.len() + self.rest.len() + size_of_val(&self.ends[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn keys_compare_as_their_bytes(a in prop::collection::vec(0u8..3, 0..20), b in prop::collection::vec(0u8..3, 0..20)) {
            prop_assert_eq!(Key::new(&a).cmp(&Key::new(&b)), a.cmp(&b));
            prop_assert_eq!(Key::new(&a).with_bytes(<[u8]>::to_vec), a);
        }

        #[test]
        fn packed_keys_are_found(keys in prop::collection::btree_set(prop::collection::vec(0u8..4, 0..20), 0..20), other in prop::collection::vec(0u8..4, 0..20), fixed in any::<bool>()) {
            let keys: BTreeSet<Key> = keys.iter().map(|key| if fixed { let mut key = key.clone(); key.resize(9, 1); Key::new(&key) } else { Key::new(key) }).collect();
            let keys: Vec<Key> = keys.into_iter().collect();
            let packed = Keys::from_sorted(&keys);
            prop_assert_eq!(packed.len(), keys.len());
            for (i, key) in keys.iter().enumerate() {
                prop_assert_eq!(&packed.get(i), key);
                prop_assert_eq!(packed.find(key), Ok(i));
            }
            let other = Key::new(&other);
            prop_assert_eq!(packed.find(&other), keys.binary_search(&other));
        }
    }
}
