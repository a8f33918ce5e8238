//! A bitmap that several threads write, each in ranges of its own.
//!
//! Ranges need not begin with a word. Other threads may also write the words at both ends of a
//! range, so these words take its bits by an atomic OR. The words between belong to the writer
//! alone. All accesses are `Relaxed`: a thread that reads the bits, or takes the words, has
//! synchronised with the writers first.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};

const _: () = assert!(align_of::<AtomicU64>() == align_of::<u64>() && size_of::<AtomicU64>() == size_of::<u64>());

/// A bitmap.
#[derive(Debug)]
pub(crate) struct SharedBits(Vec<AtomicU64>);

/// `upper` moved up by `shift` bits, with the lost bits of `lower` below.
#[inline]
fn moved(lower: u64, upper: u64, shift: usize) -> u64 {
    // Two shifts, because a shift by 64 bits has no effect.
    upper << shift | lower >> 1 >> (63 - shift)
}

impl SharedBits {
    /// `bits` bits, all of them zero. The memory comes zeroed from the allocator, so a page is
    /// first touched by the thread that writes to it.
    pub(crate) fn new(bits: usize) -> Self {
        let mut words = ManuallyDrop::new(vec![0u64; bits.div_ceil(64)]);
        // SAFETY: the vector is given away. An atomic integer has the size and the alignment of the
        // plain one (checked above), and every bit pattern is valid for both.
        Self(unsafe { Vec::from_raw_parts(words.as_mut_ptr().cast(), words.len(), words.capacity()) })
    }

    /// Its words.
    pub(crate) fn into_words(self) -> Vec<u64> {
        let mut words = ManuallyDrop::new(self.0);
        // SAFETY: as in `new`.
        unsafe { Vec::from_raw_parts(words.as_mut_ptr().cast(), words.len(), words.capacity()) }
    }

    /// Sets `len` unwritten bits from `first` on to those of `words`, which has no others.
    pub(crate) fn write(&self, first: usize, len: usize, words: &[u64]) {
        if len == 0 {
            return;
        }
        let words = &words[..len.div_ceil(64)];
        let (at, shift, last) = (first / 64, first % 64, (first + len - 1) / 64);
        self.0[at].fetch_or(words[0] << shift, Ordering::Relaxed);
        if last == at {
            return;
        }
        for (place, pair) in self.0[at + 1..last].iter().zip(words.windows(2)) {
            place.store(moved(pair[0], pair[1], shift), Ordering::Relaxed);
        }
        let (before, end) = (words[last - at - 1], words.get(last - at).copied().unwrap_or(0));
        self.0[last].fetch_or(moved(before, end, shift), Ordering::Relaxed);
    }

    /// `len` bits from `first` on.
    pub(crate) fn read(&self, first: usize, len: usize) -> Vec<u64> {
        let word = |at: usize| self.0.get(at).map_or(0, |word| word.load(Ordering::Relaxed));
        let (at, shift) = (first / 64, first % 64);
        let part = |i: usize| word(at + i) >> shift | word(at + i + 1) << 1 << (63 - shift);
        let mut words: Vec<u64> = (0..len.div_ceil(64)).map(part).collect();
        if let Some(last) = words.last_mut().filter(|_| !len.is_multiple_of(64)) {
            *last &= (1 << (len % 64)) - 1;
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_are_written_beside_each_other(lens in prop::collection::vec(0usize..300, 0..12), seed: u64) {
            let bit = |at: usize| (seed.rotate_left((at * 7 % 64) as u32) ^ (at as u64 * 0x9e37)) & 1 == 1;
            let shared = SharedBits::new(lens.iter().sum());
            let mut firsts = vec![0];
            lens.iter().for_each(|len| firsts.push(firsts.last().unwrap() + len));
            // By two threads, in another order than theirs.
            let write = |parity: usize| {
                for (i, &len) in lens.iter().enumerate().rev().filter(|(i, _)| i % 2 == parity) {
                    let mut words = vec![0; len.div_ceil(64)];
                    (0..len).filter(|at| bit(firsts[i] + at)).for_each(|at| words[at / 64] |= 1 << (at % 64));
                    shared.write(firsts[i], len, &words);
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| write(0));
                write(1);
            });
            for (&first, &len) in firsts.iter().zip(&lens) {
                let words = shared.read(first, len);
                prop_assert!((0..words.len() * 64).all(|at| (words[at / 64] >> (at % 64) & 1 == 1) == (at < len && bit(first + at))));
            }
            let words = shared.into_words();
            let all = *firsts.last().unwrap();
            prop_assert!((0..words.len() * 64).all(|at| (words[at / 64] >> (at % 64) & 1 == 1) == (at < all && bit(at))));
        }
    }
}
