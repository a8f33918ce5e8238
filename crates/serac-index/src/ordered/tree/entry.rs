//! Entries: the words of a key and a row, the ends of long keys, and probes.

use super::super::RowId;
use std::cmp::Ordering as Order;
use std::ptr;

/// Bytes of a key in the words of an entry.
pub(super) const SHORT_BYTES: usize = 24;
/// Bytes of a long key before those that its third word points to.
const HEAD_BYTES: usize = 16;

pub(super) type Words = [u64; 4];

/// The end of a long key: its length and bytes.
pub(super) struct Tail;

impl Tail {
    pub(super) fn allocate(bytes: &[u8]) -> u64 {
        if bytes.is_empty() {
            return 0;
        }
        let mut memory = Vec::with_capacity(8 + bytes.len());
        memory.extend_from_slice(&(bytes.len() as u64).to_ne_bytes());
        memory.extend_from_slice(bytes);
        Box::into_raw(memory.into_boxed_slice()).cast::<u8>() as u64
    }

    /// # Safety
    /// The word came from `allocate`, and the tail has not been freed.
    pub(super) unsafe fn bytes<'t>(word: u64) -> &'t [u8] {
        if word == 0 {
            return &[];
        }
        let memory = word as *const u8;
        // SAFETY: `allocate` wrote a length and as many bytes.
        unsafe { std::slice::from_raw_parts(memory.add(8), memory.cast::<u64>().read_unaligned() as usize) }
    }

    /// # Safety
    /// As for `bytes`, and the tail is not used any more.
    pub(super) unsafe fn free(word: u64) {
        if word != 0 {
            let memory = word as *mut u8;
            // SAFETY: the box of `allocate`, given up once.
            unsafe {
                let len = 8 + memory.cast::<u64>().read_unaligned() as usize;
                drop(Box::from_raw(ptr::slice_from_raw_parts_mut(memory, len)));
            }
        }
    }
}

/// The target of a search: a key (or the place before or behind all keys with a prefix) and a row.
#[derive(Clone, Copy)]
pub struct Probe<'k> {
    pub(super) words: Words,
    /// The bytes of a long key behind the head.
    pub(super) tail: &'k [u8],
    /// Whether more than the tail is meant: the place behind all keys that begin with it.
    after: bool,
}

fn head_words(key: &[u8], pad: u8) -> [u64; 3] {
    let mut bytes = [pad; SHORT_BYTES];
    let len = key.len().min(SHORT_BYTES);
    bytes[..len].copy_from_slice(&key[..len]);
    let word = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    [word(0), word(8), word(16)]
}

impl<'k> Probe<'k> {
    fn with_pad(key: &'k [u8], row: u64, long: bool, after: bool) -> Self {
        let pad = if after { u8::MAX } else { 0 };
        if long {
            let (head, tail) = key.split_at(key.len().min(HEAD_BYTES));
            let [a, b, _] = head_words(head, pad);
            Self { words: [a, b, 0, row], tail, after }
        } else {
            assert!(key.len() <= SHORT_BYTES, "the index was made for short keys");
            let [a, b, c] = head_words(key, pad);
            Self { words: [a, b, c, row], tail: &[], after: false }
        }
    }

    pub(super) fn entry(key: &'k [u8], row: RowId, long: bool) -> Self {
        Self::with_pad(key, row.as_u64(), long, false)
    }

    /// Before all entries whose keys begin with `prefix`, or behind them.
    pub fn limit(prefix: &'k [u8], after: bool, long: bool) -> Self {
        Self::with_pad(prefix, if after { u64::MAX } else { 0 }, long, after)
    }

    /// # Safety
    /// The entry is one of the tree's, and the caller has been pinned since it was there.
    pub(super) unsafe fn at(words: Words, long: bool) -> Probe<'k> {
        // SAFETY: as the caller promises.
        let tail = if long { unsafe { Tail::bytes(words[2]) } } else { &[] };
        Probe { words, tail, after: false }
    }

    /// The tail of an entry against the probe's.
    pub(super) fn compare_tail(&self, entry: &[u8]) -> Order {
        if self.after && entry.starts_with(self.tail) { Order::Less } else { entry.cmp(self.tail) }
    }
}

/// The key of an entry that a scan has come to.
#[derive(Clone, Copy, Debug)]
pub struct EntryKey<'e> {
    pub(super) words: [u64; 3],
    pub(super) tail: Option<&'e [u8]>,
}

impl EntryKey<'_> {
    /// Whether it is this key.
    #[inline]
    pub fn is(&self, key: &[u8]) -> bool {
        match self.tail {
            None => key.len() <= SHORT_BYTES && head_words(key, 0) == self.words,
            Some(tail) => {
                let (head, rest) = key.split_at(key.len().min(HEAD_BYTES));
                head_words(head, 0)[..2] == self.words[..2] && rest == tail
            }
        }
    }
}
