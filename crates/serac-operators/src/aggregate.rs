//! Counts, sums and extremes by groups, whose numbers are dense.
//!
//! [`Groups`] holds the state of each group. Two threads may add to the same groups where these are many; where they are few, each thread has its own
//! and they are [merged](Groups::merge). Sums are kept as 64 bits per group; what they carry over goes into a map that stays
//! empty as long as sums fit, so that results are exact to 128 bits and memory is touched no more than it must.
//!
//! The kernels below add up a column: under a bitmap of the rows (AVX-512's masked additions, where the processor has them), or by runs of rows of one group.

use crate::arithmetic::Numbers;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// What is kept of each group, besides whether it has rows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct States {
    /// Whether rows are counted.
    pub rows: bool,
    /// Counts of rows that are not NULL somewhere.
    pub counts: usize,
    /// Sums.
    pub sums: usize,
    /// Smallest (true) or largest values.
    pub extremes: Vec<bool>,
}

impl States {
    /// Words of 64 bits for a group.
    pub fn words(&self) -> usize {
        usize::from(self.rows) + self.counts + self.sums + self.extremes.len()
    }
}

/// The state of all groups; see the module.
#[derive(Debug)]
pub struct Groups {
    shared: bool,
    len: usize,
    /// By bit, the groups that have rows.
    met: Box<[AtomicU64]>,
    rows: Option<Box<[AtomicU64]>>,
    counts: Vec<Box<[AtomicU64]>>,
    sums: Vec<Box<[AtomicI64]>>,
    /// By sum and group: how often 2⁶⁴ is to be added to the 64 bits.
    carries: Mutex<HashMap<(usize, usize), i128>>,
    extremes: Vec<(bool, Box<[AtomicI64]>)>,
}

fn zeroed<T: Zeroable>(len: usize) -> Box<[T]> {
    // SAFETY: see the trait.
    unsafe { Box::new_zeroed_slice(len).assume_init() }
}

/// # Safety
/// All bits zero must be a value of the type.
unsafe trait Zeroable {}
// SAFETY: an atomic has the representation of its integer.
unsafe impl Zeroable for AtomicU64 {}
// SAFETY: as above.
unsafe impl Zeroable for AtomicI64 {}

impl Groups {
    /// `len` groups without rows. Only `shared` ones may be added to by several threads.
    pub fn new(len: usize, states: &States, shared: bool) -> Self {
        let extreme = |&smallest: &bool| {
            let first = if smallest { i64::MAX } else { i64::MIN };
            (smallest, (0..len).map(|_| AtomicI64::new(first)).collect())
        };
        Self {
            shared,
            len,
            met: zeroed(len.div_ceil(64)),
            rows: states.rows.then(|| zeroed(len)),
            counts: (0..states.counts).map(|_| zeroed(len)).collect(),
            sums: (0..states.sums).map(|_| zeroed(len)).collect(),
            carries: Mutex::default(),
            extremes: states.extremes.iter().map(extreme).collect(),
        }
    }
    /// How many groups, with those that have no rows.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether there is no group.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    // Relaxed throughout: additions commute, and who reads the results has waited for the threads that add.
    #[inline]
    fn count_up(&self, cell: &AtomicU64, n: u64) {
        if self.shared {
            cell.fetch_add(n, Ordering::Relaxed);
        } else {
            cell.store(cell.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        }
    }
    /// Adds rows to a group.
    #[inline]
    pub fn add_rows(&self, group: usize, n: u64) {
        self.meet(group / 64, u64::from(n > 0) << (group % 64));
        if let Some(rows) = &self.rows {
            self.count_up(&rows[group], n);
        }
    }
    #[inline]
    fn meet(&self, word: usize, groups: u64) {
        let word = &self.met[word];
        let known = word.load(Ordering::Relaxed);
        if known | groups == known {
            return;
        }
        if self.shared {
            word.fetch_or(groups, Ordering::Relaxed);
        } else {
            word.store(known | groups, Ordering::Relaxed);
        }
    }
    /// Adds to a count.
    #[inline]
    pub fn add_count(&self, count: usize, group: usize, n: u64) {
        self.count_up(&self.counts[count][group], n);
    }
    /// Adds to a sum.
    #[inline]
    pub fn add(&self, sum: usize, group: usize, n: i64) {
        let cell = &self.sums[sum][group];
        let before = if self.shared {
            cell.fetch_add(n, Ordering::Relaxed)
        } else {
            let before = cell.load(Ordering::Relaxed);
            cell.store(before.wrapping_add(n), Ordering::Relaxed);
            before
        };
        if before.checked_add(n).is_none() {
            self.carry(sum, group, if n < 0 { -1 } else { 1 });
        }
    }
    /// Adds to a sum; beyond 128 bits it wraps around.
    pub fn add_wide(&self, sum: usize, group: usize, n: i128) {
        let low = n as i64;
        self.add(sum, group, low);
        let carry = n.wrapping_sub(low.into()) >> 64;
        if carry != 0 {
            self.carry(sum, group, carry);
        }
    }
    #[cold]
    fn carry(&self, sum: usize, group: usize, carry: i128) {
        let mut carries = self.carries.lock().expect("nobody panics with the lock");
        let carried = carries.entry((sum, group)).or_default();
        *carried = carried.wrapping_add(carry);
    }
    /// Notes a value that may be the smallest or largest.
    #[inline]
    pub fn note(&self, extreme: usize, group: usize, value: i64) {
        let (smallest, cells) = &self.extremes[extreme];
        let cell = &cells[group];
        let known = cell.load(Ordering::Relaxed);
        if if *smallest { value < known } else { value > known } {
            if *smallest {
                cell.fetch_min(value, Ordering::Relaxed);
            } else {
                cell.fetch_max(value, Ordering::Relaxed);
            }
        }
    }

    /// Adds what others have found for the same groups.
    ///
    /// # Panics
    /// When they have more groups.
    pub fn merge(&self, other: &Self) {
        other.met.iter().enumerate().for_each(|(at, groups)| self.meet(at, groups.load(Ordering::Relaxed)));
        if let (Some(rows), Some(others)) = (&self.rows, &other.rows) {
            rows.iter().zip(others).for_each(|(rows, n)| self.count_up(rows, n.load(Ordering::Relaxed)));
        }
        for (count, cells) in other.counts.iter().enumerate() {
            cells.iter().enumerate().for_each(|(group, n)| self.add_count(count, group, n.load(Ordering::Relaxed)));
        }
        for (sum, cells) in other.sums.iter().enumerate() {
            cells.iter().enumerate().for_each(|(group, n)| self.add(sum, group, n.load(Ordering::Relaxed)));
        }
        for (extreme, (_, cells)) in other.extremes.iter().enumerate() {
            cells.iter().enumerate().for_each(|(group, v)| self.note(extreme, group, v.load(Ordering::Relaxed)));
        }
        for (&(sum, group), &carry) in &*other.carries.lock().expect("nobody panics with the lock") {
            self.carry(sum, group, carry);
        }
    }

    /// Those of a range of groups that have rows.
    pub fn met(&self, groups: Range<usize>) -> Vec<usize> {
        let mut met = Vec::new();
        for at in groups.start / 64..groups.end.div_ceil(64) {
            for_each_bit(&[self.met[at].load(Ordering::Relaxed)], |bit| met.push(at * 64 + bit));
        }
        met.retain(|group| groups.contains(group));
        met
    }
    /// Rows of a group; 1 for any that has some if they are not counted.
    pub fn rows(&self, group: usize) -> u64 {
        match &self.rows {
            Some(rows) => rows[group].load(Ordering::Relaxed),
            None => self.met[group / 64].load(Ordering::Relaxed) >> (group % 64) & 1,
        }
    }
    /// A count of a group.
    pub fn count(&self, count: usize, group: usize) -> u64 {
        self.counts[count][group].load(Ordering::Relaxed)
    }
    /// A sum of each of these groups, to 128 bits.
    pub fn sums(&self, sum: usize, groups: &[usize]) -> Vec<i128> {
        let carries = self.carries.lock().expect("nobody panics with the lock");
        let low = |group: usize| i128::from(self.sums[sum][group].load(Ordering::Relaxed));
        if carries.is_empty() {
            return groups.iter().map(|&group| low(group)).collect();
        }
        let carried = |group| carries.get(&(sum, group)).map_or(0, |carry| carry << 64);
        groups.iter().map(|&group| low(group).wrapping_add(carried(group))).collect()
    }
    /// The smallest or largest value of a group; of no meaning for one that has noted none.
    pub fn extreme(&self, extreme: usize, group: usize) -> i64 {
        self.extremes[extreme].1[group].load(Ordering::Relaxed)
    }
}

/// Bits of a bitmap, by word.
#[inline]
fn for_each_bit(mask: &[u64], mut f: impl FnMut(usize)) {
    for (i, &word) in mask.iter().enumerate() {
        let mut rest = word;
        while rest != 0 {
            f(i * 64 + rest.trailing_zeros() as usize);
            rest &= rest - 1;
        }
    }
}

/// The sum of the values whose bits are set, modulo 2⁶⁴.
///
/// # Panics
/// When the bitmap is longer than the values.
pub fn masked_sum(values: &[i64], mask: &[u64]) -> i64 {
    assert!(mask.len() <= values.len().div_ceil(64), "a bit for every value at the most");
    #[cfg(target_arch = "x86_64")]
    if *crate::simd::AVX512 {
        // SAFETY: the processor has the features.
        return unsafe { masked_sum_avx512(values, mask) };
    }
    let mut sum = 0i64;
    for_each_bit(mask, |row| sum = sum.wrapping_add(values[row]));
    sum
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn masked_sum_avx512(values: &[i64], mask: &[u64]) -> i64 {
    use std::arch::x86_64::{_mm512_loadu_si512, _mm512_mask_add_epi64, _mm512_reduce_add_epi64, _mm512_setzero_si512};
    let (mut even, mut odd) = (_mm512_setzero_si512(), _mm512_setzero_si512());
    let whole = (values.len() / 64).min(mask.len());
    for (values, &word) in values.chunks_exact(64).zip(&mask[..whole]) {
        if word == 0 {
            continue;
        }
        for pair in 0..4 {
            let (first, bits) = (pair * 16, word >> (pair * 16));
            // SAFETY: 16 values from `first` on are among the 64.
            let (a, b) = unsafe {
                let at = values.as_ptr().add(first);
                (_mm512_loadu_si512(at.cast()), _mm512_loadu_si512(at.add(8).cast()))
            };
            even = _mm512_mask_add_epi64(even, bits as u8, even, a);
            odd = _mm512_mask_add_epi64(odd, (bits >> 8) as u8, odd, b);
        }
    }
    let mut sum = _mm512_reduce_add_epi64(even).wrapping_add(_mm512_reduce_add_epi64(odd));
    for_each_bit(&mask[whole..], |row| sum = sum.wrapping_add(values[whole * 64 + row]));
    sum
}

/// The sum of the numbers whose bits are set; beyond 128 bits it wraps around. None if they are not bounded.
pub fn sum_of_bits(numbers: &Numbers<'_>, mask: &[u64]) -> Option<i128> {
    let bits = || mask.iter().map(|word| u128::from(word.count_ones())).sum::<u128>();
    Some(match *numbers {
        Numbers::Constant(constant) => constant.wrapping_mul(bits() as i128),
        Numbers::Narrow(values, bound) if fits(bound, values.len()) => masked_sum(values, mask).into(),
        Numbers::Narrow(values, _) => {
            let mut sum = 0i128;
            for_each_bit(mask, |row| sum += i128::from(values[row]));
            sum
        }
        Numbers::Wide(values, _) => {
            let mut sum = 0i128;
            for_each_bit(mask, |row| sum = sum.wrapping_add(values[row]));
            sum
        }
        Numbers::Unbounded => return None,
    })
}

/// Whether the sum of so many numbers with this bound fits 64 bits.
fn fits(bound: u128, numbers: usize) -> bool {
    bound.saturating_mul(numbers as u128) <= i64::MAX as u128
}

/// Consecutive rows of one group: the group, and the row behind the last.
pub type Run = (u32, u32);

/// Adds numbers to the groups of their runs, which begin with row 0. Of rows whose bit is not set nothing is added. False if the numbers are not bounded.
pub fn add_runs(groups: &Groups, sum: usize, numbers: &Numbers<'_>, runs: &[Run], valid: Option<&[u64]>) -> bool {
    let is_valid = |row: usize| valid.is_none_or(|valid| valid[row / 64] >> (row % 64) & 1 == 1);
    let rows = runs.last().map_or(0, |run| run.1 as usize);
    let mut first = 0;
    match *numbers {
        Numbers::Narrow(values, bound) if fits(bound, rows) => match valid {
            None => {
                for &(group, end) in runs {
                    let mut total = 0;
                    for value in &values[first..end as usize] {
                        total += value;
                    }
                    groups.add(sum, group as usize, total);
                    first = end as usize;
                }
            }
            Some(_) => {
                for &(group, end) in runs {
                    let total = (first..end as usize).filter(|&row| is_valid(row)).map(|row| values[row]).sum();
                    groups.add(sum, group as usize, total);
                    first = end as usize;
                }
            }
        },
        Numbers::Unbounded => return false,
        _ => {
            let number = |row: usize| match *numbers {
                Numbers::Constant(constant) => constant,
                Numbers::Narrow(values, _) => values[row].into(),
                Numbers::Wide(values, _) => values[row],
                Numbers::Unbounded => unreachable!("excluded above"),
            };
            for &(group, end) in runs {
                let rows = (first..end as usize).filter(|&row| is_valid(row));
                let total = rows.map(number).fold(0i128, i128::wrapping_add);
                groups.add_wide(sum, group as usize, total);
                first = end as usize;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_number() -> impl Strategy<Value = i64> {
        prop_oneof![-1000i64..1000, any::<i64>(), Just(i64::MIN), Just(i64::MAX)]
    }

    proptest! {
        #[test]
        fn sums_of_bits(rows in prop::collection::vec((any_number(), any::<bool>()), 0..300), bound_is_known: bool) {
            let values: Vec<i64> = rows.iter().map(|r| r.0).collect();
            let mut mask = vec![0u64; rows.len().div_ceil(64)];
            rows.iter().enumerate().filter(|(_, r)| r.1).for_each(|(i, _)| mask[i / 64] |= 1 << (i % 64));
            let expected: i128 = rows.iter().filter(|r| r.1).map(|r| i128::from(r.0)).sum();
            prop_assert_eq!(masked_sum(&values, &mask), expected as i64);
            let bound = if bound_is_known { values.iter().map(|v| v.unsigned_abs()).max().unwrap_or(0).into() } else { 1 << 100 };
            prop_assert_eq!(sum_of_bits(&Numbers::Narrow(&values, bound), &mask), Some(expected));
            let wide: Vec<i128> = values.iter().map(|&v| v.into()).collect();
            prop_assert_eq!(sum_of_bits(&Numbers::Wide(&wide, bound), &mask), Some(expected));
        }

        #[test]
        fn groups_agree_with_a_map(
            parts in prop::collection::vec(prop::collection::vec((0u32..5, any_number(), any::<bool>(), 1u32..4), 0..40), 1..4),
            shared: bool, in_64_bits: bool, counted: bool,
        ) {
            let states = States { rows: counted, counts: 1, sums: 1, extremes: vec![true, false] };
            let all = Groups::new(5, &states, true);
            let mut expected: HashMap<usize, (u64, u64, i128, i64, i64)> = HashMap::new();
            std::thread::scope(|scope| {
                for part in &parts {
                    let mut values = Vec::new();
                    let mut runs = Vec::new();
                    for &(group, value, valid, repeated) in part {
                        for _ in 0..repeated {
                            values.push((value, valid));
                            let e = expected.entry(group as usize).or_insert((0, 0, 0, i64::MAX, i64::MIN));
                            e.0 += 1;
                            if valid {
                                *e = (e.0, e.1 + 1, e.2 + i128::from(value), e.3.min(value), e.4.max(value));
                            }
                        }
                        runs.push((group, values.len() as u32));
                    }
                    let all = &all;
                    let states = &states;
                    scope.spawn(move || {
                        let own = Groups::new(5, states, false);
                        let to = if shared { all } else { &own };
                        let numbers: Vec<i64> = values.iter().map(|v| v.0).collect();
                        let wide: Vec<i128> = numbers.iter().map(|&v| v.into()).collect();
                        let mut valid = vec![0u64; values.len().div_ceil(64)];
                        values.iter().enumerate().filter(|(_, v)| v.1).for_each(|(i, _)| valid[i / 64] |= 1 << (i % 64));
                        let bound = numbers.iter().map(|v| v.unsigned_abs()).max().unwrap_or(0).into();
                        let numbers = if in_64_bits { Numbers::Narrow(&numbers, bound) } else { Numbers::Wide(&wide, bound) };
                        assert!(add_runs(to, 0, &numbers, &runs, Some(&valid)));
                        let mut first = 0;
                        for &(group, end) in &runs {
                            let group = group as usize;
                            to.add_rows(group, u64::from(end) - first as u64);
                            for (value, valid) in &values[first..end as usize] {
                                if *valid {
                                    to.add_count(0, group, 1);
                                    to.note(0, group, *value);
                                    to.note(1, group, *value);
                                }
                            }
                            first = end as usize;
                        }
                        if !shared {
                            all.merge(&own);
                        }
                    });
                }
            });
            let met = all.met(0..5);
            let mut groups: Vec<usize> = expected.keys().copied().collect();
            groups.sort_unstable();
            prop_assert_eq!(&met, &groups);
            for (&group, sum) in met.iter().zip(all.sums(0, &met)) {
                let found = (all.rows(group), all.count(0, group), sum, all.extreme(0, group), all.extreme(1, group));
                let rows = if counted { expected[&group].0 } else { 1 };
                prop_assert_eq!(found, (rows, expected[&group].1, expected[&group].2, expected[&group].3, expected[&group].4));
            }
        }
    }
}
