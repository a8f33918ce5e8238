//! WAH-compressed bitvectors, as the peers of the evaluation use them: 32-bit words, a literal of
//! 31 bits or (top bit set) a fill of up to 2³⁰ groups of equal bits.

const GROUP: u64 = 31;
const ALL: u32 = (1 << 31) - 1;
const FILL: u32 = 1 << 31;
const FILL_BIT: u32 = 1 << 30;
const COUNT: u32 = FILL_BIT - 1;

/// A compressed bitvector. Bits beyond its end are zero.
#[derive(Clone, Default)]
pub struct Wah {
    words: Vec<u32>,
}

/// Walks over groups in stretches: (literal or repeated group, how many).
struct Stretches<'a> {
    words: std::slice::Iter<'a, u32>,
    group: u32,
    left: u32,
}

impl<'a> Stretches<'a> {
    fn new(wah: &'a Wah) -> Self {
        let mut this = Self { words: wah.words.iter(), group: 0, left: 0 };
        this.refill();
        this
    }

    fn refill(&mut self) {
        (self.group, self.left) = match self.words.next() {
            None => (0, u32::MAX),
            Some(&word) if word & FILL == 0 => (word, 1),
            Some(&word) => (if word & FILL_BIT == 0 { 0 } else { ALL }, word & COUNT),
        };
    }

    fn skip(&mut self, groups: u32) {
        self.left -= groups;
        if self.left == 0 {
            self.refill();
        }
    }

    fn at_end(&self) -> bool {
        self.left > COUNT
    }
}

impl Wah {
    pub fn from_sorted(bits: &[u64]) -> Self {
        let mut wah = Self::default();
        let mut groups = 0;
        for bits in bits.chunk_by(|a, b| a / GROUP == b / GROUP) {
            let group = bits[0] / GROUP;
            wah.push_fill(0, group - groups);
            wah.push_group(bits.iter().fold(0, |word, bit| word | 1 << (bit % GROUP)));
            groups = group + 1;
        }
        wah
    }

    fn push_fill(&mut self, value: u32, groups: u64) {
        if groups == 0 {
            return;
        }
        let kind = FILL | if value == 0 { 0 } else { FILL_BIT };
        match self.words.last_mut() {
            Some(last) if *last & !COUNT == kind => *last += groups as u32,
            _ => self.words.push(kind | groups as u32),
        }
    }

    fn push_group(&mut self, group: u32) {
        if group == 0 || group == ALL { self.push_fill(group, 1) } else { self.words.push(group) }
    }

    /// Flips one bit: decodes up to it and encodes the rest again.
    pub fn flip(&mut self, bit: u64) {
        let (target, flipped) = (bit / GROUP, 1 << (bit % GROUP));
        let mut groups = 0;
        for (at, &word) in self.words.iter().enumerate() {
            let here = if word & FILL == 0 { 1 } else { (word & COUNT) as u64 };
            if target >= groups + here {
                groups += here;
                continue;
            }
            let mut after = Self { words: Vec::with_capacity(self.words.len() + 2) };
            after.words.extend_from_slice(&self.words[..at]);
            if word & FILL == 0 {
                after.push_group(word ^ flipped);
            } else {
                let value = if word & FILL_BIT == 0 { 0 } else { ALL };
                after.push_fill(value, target - groups);
                after.push_group(value ^ flipped);
                after.push_fill(value, groups + here - target - 1);
            }
            let mut rest = &self.words[at + 1..];
            if let Some((&first, others)) = rest.split_first()
                && first & FILL != 0
            {
                after.push_fill(first & FILL_BIT, (first & COUNT) as u64);
                rest = others;
            }
            after.words.extend_from_slice(rest);
            *self = after;
            return;
        }
        self.push_fill(0, target - groups);
        self.push_group(flipped);
    }

    pub fn count(&self) -> u64 {
        let bits = self.words.iter().map(|&word| match word {
            word if word & FILL == 0 => word.count_ones() as u64,
            word if word & FILL_BIT == 0 => 0,
            word => (word & COUNT) as u64 * GROUP,
        });
        bits.sum()
    }

    fn combine(&self, other: &Self, mut f: impl FnMut(u32, u32, u32)) {
        let (mut a, mut b) = (Stretches::new(self), Stretches::new(other));
        while !(a.at_end() && b.at_end()) {
            let groups = a.left.min(b.left);
            f(a.group, b.group, groups);
            if !a.at_end() {
                a.skip(groups);
            }
            if !b.at_end() {
                b.skip(groups);
            }
        }
    }

    pub fn and_count(&self, other: &Self) -> u64 {
        let mut count = 0;
        self.combine(other, |a, b, groups| count += (a & b).count_ones() as u64 * groups as u64);
        count
    }

    pub fn xor_count(&self, other: &Self) -> u64 {
        let mut count = 0;
        self.combine(other, |a, b, groups| count += (a ^ b).count_ones() as u64 * groups as u64);
        count
    }

    fn combined(&self, other: &Self, f: impl Fn(u32, u32) -> u32) -> Self {
        let mut result = Self { words: Vec::with_capacity(self.words.len()) };
        self.combine(other, |a, b, groups| match f(a, b) {
            group if group == 0 || group == ALL => result.push_fill(group, groups as u64),
            group => (0..groups).for_each(|_| result.push_group(group)),
        });
        result
    }

    pub fn xor(&self, other: &Self) -> Self {
        self.combined(other, |a, b| a ^ b)
    }

    pub fn and(&self, other: &Self) -> Self {
        self.combined(other, |a, b| a & b)
    }

    /// The positions of the bits that are set, ascending.
    pub fn rows(&self) -> Vec<u64> {
        let (mut rows, mut first) = (Vec::new(), 0);
        for &word in &self.words {
            if word & FILL == 0 {
                let mut left = word;
                while left != 0 {
                    rows.push(first + u64::from(left.trailing_zeros()));
                    left &= left - 1;
                }
                first += GROUP;
            } else {
                let end = first + u64::from(word & COUNT) * GROUP;
                if word & FILL_BIT != 0 {
                    rows.extend(first..end);
                }
                first = end;
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeSet;

    #[test]
    fn agrees_with_sets() {
        let mut rng = rand::rngs::StdRng::seed_from_u64(1);
        let mut set = |n: usize, end: u64| -> BTreeSet<u64> { (0..n).map(|_| rng.random_range(0..end)).collect() };
        for _ in 0..50 {
            let (mut a, b) = (set(300, 500), set(40, 3000));
            let list = |set: &BTreeSet<u64>| set.iter().copied().collect::<Vec<_>>();
            let (mut x, y) = (Wah::from_sorted(&list(&a)), Wah::from_sorted(&list(&b)));
            for bit in set(60, 600) {
                x.flip(bit);
                if !a.remove(&bit) {
                    a.insert(bit);
                }
                assert_eq!(x.count(), a.len() as u64);
            }
            assert_eq!(x.and_count(&y), (&a & &b).len() as u64);
            assert_eq!(x.and(&y).rows(), list(&(&a & &b)));
            assert_eq!(x.rows(), list(&a));
            assert_eq!(x.xor_count(&y), (&a ^ &b).len() as u64);
            assert_eq!(x.xor(&y).count(), (&a ^ &b).len() as u64);
            assert_eq!(x.xor(&y).xor(&y).xor_count(&x), 0);
        }
    }
}
