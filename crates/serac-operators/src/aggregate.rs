//! Counts, sums and extremes by groups, whose numbers are dense.
//!
//! [`Groups`] holds the state of each group. Each thread has its own, and they are read as one
//! ([`Merged`]). Zeros are never written, so a thread whose rows are of few groups touches the
//! memory of those alone. If that would take too much memory, threads may add to the same groups.
//! Sums are kept as 64 bits per group. Their carries go into a map that stays empty as long as sums
//! fit. So results are exact to 128 bits, and no more memory is touched than needed.
//!
//! The kernels below add up a column: under a bitmap of the rows (with AVX-512's masked additions,
//! if the processor has them), or by runs of rows of one group.

use crate::arithmetic::{Numbers, Overflow};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The aggregates of each group, besides whether it has rows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct States {
    /// Whether rows are counted.
    pub rows: bool,
    /// Counts of rows without NULL in a set of columns.
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
    /// By sum and group: the number of times that 2⁶⁴ is to be added to the 64 bits.
    carries: Mutex<HashMap<(usize, usize), i128>>,
    /// For each, whether it is the smallest, and by group the value as [`encode`] makes it.
    extremes: Vec<(bool, Box<[AtomicU64]>)>,
}

/// Memory is prefetched this many groups ahead: the processor cannot predict the order of groups.
const AHEAD: usize = 16;

/// Prefetches the memory of a cell, if there is one.
#[inline]
fn prefetch<T>(cells: &[T], at: Option<usize>) {
    #[cfg(target_arch = "x86_64")]
    if let Some(cell) = at.and_then(|at| cells.get(at)) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect but on caches.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(cell).cast()) };
    }

    #[cfg(not(target_arch = "x86_64"))]
    let _ = (cells, at);
}

/// A value as a number that is larger the better it is as an extreme, and 0 for the worst.
#[inline]
fn encode(smallest: bool, value: i64) -> u64 {
    let ordered = (value ^ i64::MIN).cast_unsigned();
    if smallest { !ordered } else { ordered }
}
#[inline]
fn decode(smallest: bool, encoded: u64) -> i64 {
    let ordered = if smallest { !encoded } else { encoded };
    ordered.cast_signed() ^ i64::MIN
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
        let extreme = |&smallest: &bool| (smallest, zeroed(len));
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

    /// The number of groups, with those that have no rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no group.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    // Relaxed throughout: additions commute, and a reader of the results has waited for the threads
    // that add.
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

    /// Adds to a sum. Its carry is exact far beyond 128 bits.
    pub fn add_wide(&self, sum: usize, group: usize, n: i128) {
        let low = n as i64;
        self.add(sum, group, low);
        // The low bits are taken as a signed number: a negative one takes 2⁶⁴ back.
        let carry = (n >> 64) + i128::from(low < 0);
        if carry != 0 {
            self.carry(sum, group, carry);
        }
    }

    #[cold]
    fn carry(&self, sum: usize, group: usize, carry: i128) {
        let mut carries = self.carries.lock().expect("no thread panics with the lock");
        *carries.entry((sum, group)).or_default() += carry;
    }

    /// Notes a value that may be the smallest or largest.
    #[inline]
    pub fn note(&self, extreme: usize, group: usize, value: i64) {
        let (smallest, cells) = &self.extremes[extreme];
        let (cell, value) = (&cells[group], encode(*smallest, value));
        if value > cell.load(Ordering::Relaxed) {
            cell.fetch_max(value, Ordering::Relaxed);
        }
    }

    #[inline]
    fn has(&self, group: usize) -> bool {
        self.met[group / 64].load(Ordering::Relaxed) >> (group % 64) & 1 == 1
    }
}

/// The groups of several threads, read as one. For a group that a thread has not met, only its flag
/// is read.
#[derive(Debug)]
pub struct Merged(Vec<Groups>);

impl Merged {
    /// # Panics
    /// When the list is empty, or the parts differ in number.
    pub fn new(parts: Vec<Groups>) -> Self {
        assert!(parts.iter().all(|part| part.len == parts[0].len), "all have the same groups");
        Self(parts)
    }

    /// The number of groups, with those that have no rows.
    pub fn len(&self) -> usize {
        self.0[0].len
    }

    /// Whether there is no group.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn having(&self, group: usize) -> impl Iterator<Item = &Groups> {
        self.0.iter().filter(move |part| part.has(group))
    }

    /// The groups of a range that have rows.
    pub fn met(&self, groups: Range<usize>) -> Vec<usize> {
        let mut met = Vec::new();
        for at in groups.start / 64..groups.end.div_ceil(64) {
            let word = self.0.iter().fold(0, |word, part| word | part.met[at].load(Ordering::Relaxed));
            for_each_bit(&[word], |bit| met.push(at * 64 + bit));
        }
        met.retain(|group| groups.contains(group));
        met
    }

    /// Rows of a group; 1 for a group with rows if they are not counted.
    pub fn rows(&self, group: usize) -> u64 {
        let of_part = |part: &Groups| part.rows.as_ref().map(|rows| rows[group].load(Ordering::Relaxed));
        self.having(group).map(of_part).fold(0, |sum, rows| rows.map_or(1, |rows| sum + rows))
    }

    /// A count of a group.
    pub fn count(&self, count: usize, group: usize) -> u64 {
        self.having(group).map(|part| part.counts[count][group].load(Ordering::Relaxed)).sum()
    }

    /// A sum of each of these groups.
    ///
    /// # Errors
    /// When one of them has more than 128 bits.
    pub fn sums(&self, sum: usize, groups: &[usize]) -> Result<Vec<i128>, Overflow> {
        let mut sums = vec![0i128; groups.len()];
        // By place, the carry above the low 64 bits.
        let mut carried: HashMap<usize, i128> = HashMap::new();
        for part in &self.0 {
            let carries = part.carries.lock().expect("no thread panics with the lock");
            for (at, (total, &group)) in sums.iter_mut().zip(groups).enumerate() {
                let next = groups.get(at + AHEAD).copied();
                prefetch(&part.sums[sum], next.filter(|&next| part.has(next)));
                if !part.has(group) {
                    continue;
                }
                *total += i128::from(part.sums[sum][group].load(Ordering::Relaxed));
                if !carries.is_empty()
                    && let Some(carry) = carries.get(&(sum, group))
                {
                    *carried.entry(at).or_default() += carry;
                }
            }
        }
        for (at, carry) in carried {
            let (above, low) = (carry + (sums[at] >> 64), sums[at] & i128::from(u64::MAX));
            sums[at] = (i128::from(i64::try_from(above).map_err(|_| Overflow)?) << 64) + low;
        }
        Ok(sums)
    }

    /// The smallest or largest value of a group; without meaning if the group has noted no value.
    pub fn extreme(&self, extreme: usize, group: usize) -> i64 {
        let smallest = self.0[0].extremes[extreme].0;
        let of_part = |part: &Groups| part.extremes[extreme].1[group].load(Ordering::Relaxed);
        decode(smallest, self.having(group).map(of_part).max().unwrap_or(0))
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

/// The sum of the numbers whose bits are set. `None` if the bound does not ensure that it fits 128
/// bits: then the numbers are added one at a time.
pub fn sum_of_bits(numbers: &Numbers<'_>, mask: &[u64]) -> Option<i128> {
    let bits = || mask.iter().map(|word| i128::from(word.count_ones())).sum::<i128>();
    Some(match *numbers {
        Numbers::Constant(constant) => constant.checked_mul(bits())?,
        Numbers::Narrow(values, bound) if fits(bound, values.len()) => masked_sum(values, mask).into(),
        Numbers::Narrow(values, _) => {
            let mut sum = 0i128;
            for_each_bit(mask, |row| sum += i128::from(values[row]));
            sum
        }
        Numbers::Wide(values, bound) if fits_wide(bound, values.len()) => {
            let mut sum = 0i128;
            for_each_bit(mask, |row| sum += values[row]);
            sum
        }
        Numbers::Wide(..) | Numbers::Unbounded => return None,
    })
}

/// Whether the sum of this many numbers with this bound fits 64 bits.
fn fits(bound: u128, numbers: usize) -> bool {
    bound.saturating_mul(numbers as u128) <= i64::MAX as u128
}

/// As [`fits`], of 128 bits.
fn fits_wide(bound: u128, numbers: usize) -> bool {
    bound.saturating_mul(numbers as u128) <= i128::MAX as u128
}

/// Consecutive rows of one group: the group, and the row behind the last.
pub type Run = (u32, u32);

/// The ends of runs of equal keys: behind the last row of each.
pub fn run_ends(keys: &[i64], ends: &mut Vec<u32>) {
    ends.clear();
    if keys.is_empty() {
        return;
    }

    #[cfg(target_arch = "x86_64")]
    if *crate::simd::AVX512 {
        // SAFETY: the processor has the features.
        return unsafe { run_ends_avx512(keys, ends) };
    }
    ends.extend((1..keys.len()).filter(|&row| keys[row] != keys[row - 1]).map(|row| row as u32));
    ends.push(keys.len() as u32);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn run_ends_avx512(keys: &[i64], ends: &mut Vec<u32>) {
    use std::arch::x86_64::{
        _mm512_add_epi32, _mm512_cmpneq_epi64_mask, _mm512_loadu_si512, _mm512_maskz_compress_epi32, _mm512_set1_epi32,
        _mm512_setr_epi32, _mm512_storeu_si512,
    };
    const LANES: usize = 16;
    // Every row may end a run, and whole registers are written.
    ends.reserve(keys.len() + LANES);
    let mut rows = _mm512_setr_epi32(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16);
    let (mut row, mut count) = (0, 0);
    while row + LANES < keys.len() {
        // SAFETY: the keys up to `row + LANES`, included, are there; `count <= row`, so there is
        // room for 16 ends more.
        unsafe {
            let at = keys.as_ptr().add(row);
            let differ = |at: *const i64| {
                _mm512_cmpneq_epi64_mask(_mm512_loadu_si512(at.cast()), _mm512_loadu_si512(at.add(1).cast()))
            };
            let last = u16::from(differ(at)) | u16::from(differ(at.add(LANES / 2))) << 8;
            _mm512_storeu_si512(ends.as_mut_ptr().add(count).cast(), _mm512_maskz_compress_epi32(last, rows));
            count += last.count_ones() as usize;
        }
        rows = _mm512_add_epi32(rows, _mm512_set1_epi32(LANES as i32));
        row += LANES;
    }
    // SAFETY: this many have been written.
    unsafe { ends.set_len(count) };
    ends.extend((row + 1..keys.len()).filter(|&row| keys[row] != keys[row - 1]).map(|row| row as u32));
    ends.push(keys.len() as u32);
}

/// Adds rows to the groups of their runs, which begin with row 0.
pub fn add_run_rows(groups: &Groups, runs: &[Run]) {
    let (mut word, mut met) = (0, 0);
    let mut first = 0;
    for &(group, end) in runs {
        let group = group as usize;
        // Neighbours stand in one word, mostly.
        if group / 64 != word {
            groups.meet(word, met);
            (word, met) = (group / 64, 0);
        }
        met |= u64::from(end > first) << (group % 64);
        if let Some(rows) = &groups.rows {
            groups.count_up(&rows[group], (end - first).into());
        }
        first = end;
    }
    groups.meet(word, met);
}

/// Adds numbers to the groups of their runs, which begin with row 0. Rows whose bit is not set add
/// nothing. False, and nothing is added, if the bound does not ensure that a sum fits 128 bits.
pub fn add_runs(
    groups: &Groups,
    sum: usize,
    numbers: &Numbers<'_>,
    runs: &[Run],
    valid: Option<&[u64]>,
    sums: &mut Vec<i64>,
) -> bool {
    let is_valid = |row: usize| valid.is_none_or(|valid| valid[row / 64] >> (row % 64) & 1 == 1);
    let rows = runs.last().map_or(0, |run| run.1 as usize);
    match *numbers {
        Numbers::Narrow(values, bound) if fits(bound, rows) => {
            // Sums of all rows up to each row. So no branch depends on how long runs are.
            sums.clear();
            sums.push(0);
            let mut total = 0;
            match valid {
                None => sums.extend(values[..rows].iter().map(|value| {
                    total += value;
                    total
                })),
                Some(_) => sums.extend(values[..rows].iter().enumerate().map(|(row, value)| {
                    total += value * i64::from(is_valid(row));
                    total
                })),
            }
            let mut before = 0;
            for (at, &(group, end)) in runs.iter().enumerate() {
                prefetch(&groups.sums[sum], runs.get(at + AHEAD).map(|run| run.0 as usize));
                let through = sums[end as usize];
                groups.add(sum, group as usize, through - before);
                before = through;
            }
        }
        Numbers::Unbounded => return false,
        Numbers::Constant(constant) if !fits_wide(constant.unsigned_abs(), rows) => return false,
        Numbers::Wide(_, bound) if !fits_wide(bound, rows) => return false,
        _ => {
            let number = |row: usize| match *numbers {
                Numbers::Constant(constant) => constant,
                Numbers::Narrow(values, _) => values[row].into(),
                Numbers::Wide(values, _) => values[row],
                Numbers::Unbounded => unreachable!("excluded above"),
            };
            let mut first = 0;
            for &(group, end) in runs {
                let rows = (first..end as usize).filter(|&row| is_valid(row));
                let total = rows.map(number).sum();
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

        /// Beyond 128 bits, and back.
        #[test]
        fn wide_sums_are_exact(values in prop::collection::vec(prop_oneof![any::<i128>(), Just(i128::MAX), Just(i128::MIN)], 0..20)) {
            let groups = Groups::new(1, &States { rows: true, counts: 0, sums: 1, extremes: Vec::new() }, false);
            groups.add_rows(0, 1);
            let (mut high, mut low) = (0i128, 0i128);
            for &value in &values {
                groups.add_wide(0, 0, value);
                high += value >> 64;
                low += value & i128::from(u64::MAX);
            }
            high += low >> 64;
            low &= i128::from(u64::MAX);
            let expected = i64::try_from(high).ok().map(|high| (i128::from(high) << 64) + low);
            prop_assert_eq!(Merged::new(vec![groups]).sums(0, &[0]).ok(), expected.map(|sum| vec![sum]));
        }

        #[test]
        fn runs_end_where_keys_change(lengths in prop::collection::vec(1usize..6, 0..60), around in any::<i64>()) {
            let mut keys = Vec::new();
            let mut expected = Vec::new();
            for (at, &length) in lengths.iter().enumerate() {
                keys.extend(std::iter::repeat_n(around.wrapping_add(at as i64 % 3), length));
                expected.push(keys.len() as u32);
            }
            let mut ends = vec![1, 2];
            run_ends(&keys, &mut ends);
            prop_assert_eq!(ends, expected);
        }

        #[test]
        fn groups_agree_with_a_map(
            parts in prop::collection::vec(prop::collection::vec((0u32..5, any_number(), any::<bool>(), 1u32..4), 0..40), 1..4),
            shared: bool, in_64_bits: bool, counted: bool,
        ) {
            let states = States { rows: counted, counts: 1, sums: 1, extremes: vec![true, false] };
            let together = Groups::new(5, &states, true);
            let mut expected: HashMap<usize, (u64, u64, i128, i64, i64)> = HashMap::new();
            let mut found: Vec<Groups> = std::thread::scope(|scope| {
                let mut threads = Vec::new();
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
                    let together = &together;
                    let states = &states;
                    threads.push(scope.spawn(move || {
                        let own = Groups::new(5, states, false);
                        let to = if shared { together } else { &own };
                        let numbers: Vec<i64> = values.iter().map(|v| v.0).collect();
                        let wide: Vec<i128> = numbers.iter().map(|&v| v.into()).collect();
                        let mut valid = vec![0u64; values.len().div_ceil(64)];
                        values.iter().enumerate().filter(|(_, v)| v.1).for_each(|(i, _)| valid[i / 64] |= 1 << (i % 64));
                        let bound = numbers.iter().map(|v| v.unsigned_abs()).max().unwrap_or(0).into();
                        let numbers = if in_64_bits { Numbers::Narrow(&numbers, bound) } else { Numbers::Wide(&wide, bound) };
                        assert!(add_runs(to, 0, &numbers, &runs, Some(&valid), &mut vec![7; 3]));
                        add_run_rows(to, &runs);
                        let mut first = 0;
                        for &(group, end) in &runs {
                            let group = group as usize;
                            for (value, valid) in &values[first..end as usize] {
                                if *valid {
                                    to.add_count(0, group, 1);
                                    to.note(0, group, *value);
                                    to.note(1, group, *value);
                                }
                            }
                            first = end as usize;
                        }
                        own
                    }));
                }
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            found.push(together);
            let all = Merged::new(found);
            let met = all.met(0..5);
            let mut groups: Vec<usize> = expected.keys().copied().collect();
            groups.sort_unstable();
            prop_assert_eq!(&met, &groups);
            for (&group, sum) in met.iter().zip(all.sums(0, &met).unwrap()) {
                let found = (all.rows(group), all.count(0, group), sum, all.extreme(0, group), all.extreme(1, group));
                let rows = if counted { expected[&group].0 } else { 1 };
                prop_assert_eq!(found, (rows, expected[&group].1, expected[&group].2, expected[&group].3, expected[&group].4));
            }
        }
    }
}
