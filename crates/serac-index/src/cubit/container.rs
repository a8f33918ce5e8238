//! A container: the rows of one block (at most 65,536 slots) in one bitvector, in the smallest of
//! three forms.
//!
//! Three forms: sorted slots (2 bytes each), a bitmap that ends with its last set word (8 bytes per
//! 64 slots), or runs (4 bytes each; a full block is one run). Containers are immutable and cheap
//! to clone, so that versions of a bitvector share those that no change touched.

use super::kernels;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Form {
    /// Ascending.
    Array(Arc<[u16]>),
    /// The last word is not zero.
    Bitmap(Arc<[u64]>),
    /// First and last slot, both included; ascending, with gaps between.
    Runs(Arc<[(u16, u16)]>),
}

/// The set slots of one block; never empty.
#[derive(Clone, Debug)]
pub struct Container {
    cardinality: u32,
    form: Form,
}

/// Words of a block's bitmap.
const WORDS: usize = 1024;

/// A bitmap of one block to work in.
#[derive(Debug, Default)]
pub struct Words {
    /// All words of a block; empty before the first use.
    words: Vec<u64>,
    /// Words from here on are zero.
    used: usize,
}

impl Words {
    /// All words, of which the first `length` are about to be written.
    #[inline]
    fn room(&mut self, length: usize) -> &mut [u64; WORDS] {
        if self.words.is_empty() {
            self.words.resize(WORDS, 0);
        }
        self.used = self.used.max(length);
        self.words.first_chunk_mut().expect("it has all words")
    }

    fn used(&self) -> &[u64] {
        &self.words[..self.used]
    }

    /// Whether the bit of `slot` is set.
    #[inline]
    pub(crate) fn has(&self, slot: u16) -> bool {
        self.words.get(slot as usize >> 6).is_some_and(|word| word >> (slot & 63) & 1 == 1)
    }

    /// Sets the bit of `slot`.
    #[inline]
    pub fn set(&mut self, slot: u16) {
        let word = slot as usize >> 6;
        self.room(word + 1)[word] |= 1 << (slot & 63);
    }

    /// Clears the bit of `slot`.
    #[inline]
    pub fn clear(&mut self, slot: u16) {
        if let Some(word) = self.words.get_mut(slot as usize >> 6) {
            *word &= !(1 << (slot & 63));
        }
    }

    fn set_run(&mut self, first: u16, last: u16) {
        let (a, b) = (first as usize >> 6, last as usize >> 6);
        let words = self.room(b + 1);
        let (low, high) = (u64::MAX << (first & 63), u64::MAX >> (63 - (last & 63)));
        if a == b {
            words[a] |= low & high;
        } else {
            words[a] |= low;
            words[a + 1..b].fill(u64::MAX);
            words[b] |= high;
        }
    }

    /// Sets the bits of another bitmap, and clears that.
    pub(crate) fn take_from(&mut self, other: &mut Self) {
        let used = other.used;
        kernels::or(self.room(used), other.used());
        other.words[..used].fill(0);
        other.used = 0;
    }

    /// The bits, 64 slots to a word: all words of a block, or no words before the first use.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Makes the container of the bits that are set, if any, and clears them all.
    pub fn take(&mut self) -> Option<Container> {
        let container = Container::from_words(self.used());
        self.words[..self.used].fill(0);
        self.used = 0;
        container
    }
}

impl Container {
    /// The container of ascending slots; `None` without slots.
    pub fn from_sorted(slots: &[u16]) -> Option<Self> {
        let last = *slots.last()?;
        debug_assert!(slots.is_sorted_by(|a, b| a < b));
        let runs = 1 + slots.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count();
        let (array_bytes, bitmap_bytes, run_bytes) = (2 * slots.len(), 8 * (last as usize / 64 + 1), 4 * runs);
        let form = if run_bytes < array_bytes.min(bitmap_bytes) {
            let mut list: Vec<(u16, u16)> = Vec::with_capacity(runs);
            for &slot in slots {
                match list.last_mut() {
                    Some(run) if run.1 + 1 == slot => run.1 = slot,
                    _ => list.push((slot, slot)),
                }
            }
            Form::Runs(list.into())
        } else if array_bytes <= bitmap_bytes {
            Form::Array(slots.into())
        } else {
            let mut words = vec![0u64; last as usize / 64 + 1];
            for &slot in slots {
                words[slot as usize >> 6] |= 1 << (slot & 63);
            }
            Form::Bitmap(words.into())
        };
        Some(Self { cardinality: slots.len() as u32, form })
    }

    /// The container of a bitmap; `None` if no bit is set.
    pub fn from_words(words: &[u64]) -> Option<Self> {
        let length = words.iter().rposition(|w| *w != 0)? + 1;
        let words = &words[..length];
        let cardinality = kernels::popcount(words);
        let (array_bytes, bitmap_bytes, run_bytes) = (2 * cardinality, 8 * length as u32, 4 * kernels::runs(words));
        let form = if run_bytes < array_bytes.min(bitmap_bytes) {
            let mut list: Vec<(u16, u16)> = Vec::with_capacity(run_bytes as usize / 4);
            for_each_bit(words, |slot| match list.last_mut() {
                Some(run) if run.1 + 1 == slot => run.1 = slot,
                _ => list.push((slot, slot)),
            });
            Form::Runs(list.into())
        } else if array_bytes <= bitmap_bytes {
            let mut list = Vec::with_capacity(cardinality as usize);
            for_each_bit(words, |slot| list.push(slot));
            Form::Array(list.into())
        } else {
            Form::Bitmap(words.into())
        };
        Some(Self { cardinality, form })
    }

    /// Rows.
    pub fn cardinality(&self) -> u32 {
        self.cardinality
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        16 + match &self.form {
            Form::Array(slots) => size_of_val::<[u16]>(slots),
            Form::Bitmap(words) => size_of_val::<[u64]>(words),
            Form::Runs(runs) => size_of_val::<[(u16, u16)]>(runs),
        }
    }

    /// Whether the slot is set.
    #[inline]
    pub fn contains(&self, slot: u16) -> bool {
        match &self.form {
            Form::Array(slots) => slots.binary_search(&slot).is_ok(),
            Form::Bitmap(words) => words.get(slot as usize >> 6).is_some_and(|w| w >> (slot & 63) & 1 == 1),
            Form::Runs(runs) => {
                let after = runs.partition_point(|run| run.0 <= slot);
                after > 0 && slot <= runs[after - 1].1
            }
        }
    }

    /// Calls `f` with every slot, ascending.
    #[inline]
    pub fn for_each(&self, mut f: impl FnMut(u16)) {
        match &self.form {
            Form::Array(slots) => slots.iter().for_each(|&slot| f(slot)),
            Form::Bitmap(words) => for_each_bit(words, f),
            Form::Runs(runs) => runs.iter().for_each(|&(first, last)| (first..=last).for_each(&mut f)),
        }
    }

    /// Adds the slots to a bitmap.
    pub fn or_into(&self, into: &mut Words) {
        match &self.form {
            Form::Array(slots) => {
                let words = into.room(slots[slots.len() - 1] as usize / 64 + 1);
                for &slot in slots.iter() {
                    words[slot as usize >> 6] |= 1 << (slot & 63);
                }
            }
            Form::Bitmap(words) => {
                kernels::or(into.room(words.len()), words);
            }
            Form::Runs(runs) => runs.iter().for_each(|&(first, last)| into.set_run(first, last)),
        }
    }

    /// Takes the slots out of a bitmap.
    pub(crate) fn and_not_into(&self, into: &mut Words) {
        match &self.form {
            Form::Bitmap(words) => kernels::and_not(into.room(0), words),
            _ => self.for_each(|slot| into.clear(slot)),
        }
    }

    fn filter(slots: &[u16], keep: impl Fn(u16) -> bool) -> Option<Self> {
        Self::from_sorted(&slots.iter().copied().filter(|&slot| keep(slot)).collect::<Vec<_>>())
    }

    /// Rows in both.
    pub fn and(&self, other: &Self, scratch: &mut Words) -> Option<Self> {
        match (&self.form, &other.form) {
            (Form::Array(a), Form::Array(b)) if b.len() < a.len() => Self::filter(b, |slot| self.contains(slot)),
            (Form::Array(a), _) => Self::filter(a, |slot| other.contains(slot)),
            (_, Form::Array(b)) => Self::filter(b, |slot| self.contains(slot)),
            (Form::Bitmap(a), Form::Bitmap(b)) => {
                let both = a.len().min(b.len());
                let words = &mut scratch.room(both)[..both];
                words.copy_from_slice(&a[..both]);
                kernels::and(words, b);
                scratch.take()
            }
            (Form::Runs(_), Form::Runs(_)) | (Form::Runs(_), Form::Bitmap(_)) => Self::and_runs(other, self, scratch),
            (Form::Bitmap(_), Form::Runs(_)) => Self::and_runs(self, other, scratch),
        }
    }

    fn and_runs(of: &Self, runs: &Self, scratch: &mut Words) -> Option<Self> {
        let mut mask = Words::default();
        runs.or_into(&mut mask);
        of.or_into(scratch);
        // The mask has all words, zeros after its last.
        kernels::and(scratch.room(0), mask.room(0));
        scratch.take()
    }

    /// The number of rows that are in both.
    pub fn and_cardinality(&self, other: &Self, scratch: &mut Words) -> u32 {
        match (&self.form, &other.form) {
            (Form::Bitmap(a), Form::Bitmap(b)) => kernels::and_popcount(a, b),
            (Form::Array(a), _) => a.iter().filter(|&&slot| other.contains(slot)).count() as u32,
            (_, Form::Array(b)) => b.iter().filter(|&&slot| self.contains(slot)).count() as u32,
            _ => self.and(other, scratch).map_or(0, |both| both.cardinality),
        }
    }

    /// Rows in `self` that are not in `other`.
    pub fn and_not(&self, other: &Self, scratch: &mut Words) -> Option<Self> {
        if let Form::Array(slots) = &self.form {
            return Self::filter(slots, |slot| !other.contains(slot));
        }
        self.or_into(scratch);
        other.and_not_into(scratch);
        scratch.take()
    }

    /// Rows in either.
    pub fn or(&self, other: &Self, scratch: &mut Words) -> Self {
        self.or_into(scratch);
        other.or_into(scratch);
        scratch.take().expect("neither is empty")
    }

    /// The container after `changes`: ascending slots, each with the bit that it gets.
    pub fn with_changes(before: Option<&Self>, changes: &[(u16, bool)], scratch: &mut Words) -> Option<Self> {
        match before.map(|c| (&c.form, c.cardinality)) {
            None => Self::from_sorted(&changes.iter().filter(|c| c.1).map(|c| c.0).collect::<Vec<_>>()),
            Some((Form::Array(slots), _)) => {
                let after = changes.iter().fold(slots.len(), |length, &(slot, bit)| {
                    match (slots.binary_search(&slot).is_ok(), bit) {
                        (false, true) => length + 1,
                        (true, false) => length - 1,
                        _ => length,
                    }
                });
                // Written where it stays: containers are what a merge copies most.
                let mut array: Arc<[u16]> = std::iter::repeat_n(0, after).collect();
                let places = Arc::get_mut(&mut array).expect("it is not shared yet");
                let (mut rest, mut written) = (&slots[..], 0);
                for &(slot, bit) in changes {
                    let at = rest.partition_point(|s| *s < slot);
                    places[written..written + at].copy_from_slice(&rest[..at]);
                    (written, rest) = (written + at, &rest[at..]);
                    if rest.first() == Some(&slot) {
                        rest = &rest[1..];
                    }
                    if bit {
                        places[written] = slot;
                        written += 1;
                    }
                }
                places[written..].copy_from_slice(rest);
                match array.last() {
                    // Runs are looked for when the array has become long.
                    Some(last) if 2 * after <= 8 * (*last as usize / 64 + 1) => {
                        Some(Self { cardinality: after as u32, form: Form::Array(array) })
                    }
                    _ => Self::from_sorted(&array),
                }
            }
            Some((Form::Bitmap(words), mut cardinality)) => {
                let has = |slot: u16| words.get(slot as usize >> 6).is_some_and(|w| w >> (slot & 63) & 1 == 1);
                if changes.iter().all(|&(slot, bit)| has(slot) == bit) {
                    return before.cloned();
                }
                let last_set = changes.iter().rfind(|c| c.1).map_or(0, |c| c.0 as usize / 64 + 1);
                let mut copy: Arc<[u64]> = if last_set > words.len() {
                    words.iter().copied().chain(std::iter::repeat_n(0, last_set - words.len())).collect()
                } else {
                    words[..].into()
                };
                let after = Arc::get_mut(&mut copy).expect("it is not shared yet");
                for &(slot, bit) in changes {
                    let Some(word) = after.get_mut(slot as usize >> 6) else { continue };
                    let was = *word >> (slot & 63) & 1 == 1;
                    *word = *word & !(1 << (slot & 63)) | u64::from(bit) << (slot & 63);
                    cardinality = cardinality + u32::from(bit) - u32::from(was);
                }
                if after.last() == Some(&0) || cardinality < 2 * after.len() as u32 {
                    return Self::from_words(after);
                }
                Some(Self { cardinality, form: Form::Bitmap(copy) })
            }
            Some((Form::Runs(runs), _)) => {
                runs.iter().for_each(|&(first, last)| scratch.set_run(first, last));
                for &(slot, bit) in changes {
                    if bit { scratch.set(slot) } else { scratch.clear(slot) }
                }
                scratch.take()
            }
        }
    }
}

#[inline]
fn for_each_bit(words: &[u64], mut f: impl FnMut(u16)) {
    for (i, &word) in words.iter().enumerate() {
        let mut word = word;
        while word != 0 {
            f((i * 64) as u16 + word.trailing_zeros() as u16);
            word &= word - 1;
        }
    }
}
