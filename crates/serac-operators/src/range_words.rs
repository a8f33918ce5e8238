//! Range predicates over a slice of integers as bitmaps of 64-bit words, and the rows that a bitmap has.
//!
//! A predicate is an interval with both ends included, so that an unbounded side is the type's own end. The portable loops compare 64 values into 64 bytes, which
//! the compiler vectorises, and pack the bytes by multiplication. With AVX-512 a comparison gives the mask itself.

/// What a column may hold for range predicates.
pub trait RangeValue: Copy + Ord + Send + Sync + Into<i64> + 'static {
    /// The smallest value.
    const MIN: i64;
    /// The largest value.
    const MAX: i64;
    /// A number between [`MIN`](Self::MIN) and [`MAX`](Self::MAX) as a value.
    fn of(number: i64) -> Self;
    /// Writes for each value whether it lies in `low..=high`, a bit each, from the lowest bit on. Bits behind the last value are 0.
    ///
    /// # Panics
    /// When there is no word for each 64 values begun.
    fn range_words(values: &[Self], low: Self, high: Self, words: &mut [u64]);
    /// Writes the places of values whose bucket is marked, and returns how many there are. `places` is longer than `values` by 16 or more.
    fn candidates(values: &[Self], buckets: &Buckets, places: &mut [u32]) -> usize;
}

/// Whether each of 64 bytes is 1 (the others are 0), a bit each.
#[inline(always)]
fn pack(bytes: &[u8; 64]) -> u64 {
    let (eights, _) = bytes.as_chunks::<8>();
    // Byte i, moved by 56 − 7 i bits, has its lowest bit at 56 + i; no two products meet.
    let packed = |eight: &[u8; 8]| u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    eights.iter().enumerate().fold(0, |word, (i, eight)| word | packed(eight) << (8 * i))
}

#[inline(always)]
fn range_words_portable<T: Copy + Ord>(values: &[T], low: T, high: T, words: &mut [u64]) {
    assert!(words.len() >= values.len().div_ceil(64), "a word for every 64 values");
    let within = |value: T| (value >= low) & (value <= high);
    let (whole, rest) = values.as_chunks::<64>();
    for (values, word) in whole.iter().zip(&mut *words) {
        *word = pack(&values.map(|value| u8::from(within(value))));
    }
    if !rest.is_empty() {
        words[whole.len()] = rest.iter().enumerate().fold(0, |word, (i, &value)| word | u64::from(within(value)) << i);
    }
}

/// Which parts of the numbers hold a value that some predicate wants: the span from the first to the last bound, cut into at most [`Buckets::MOST`] parts of one
/// width, and one bucket for all numbers outside.
#[derive(Debug)]
pub struct Buckets {
    first: i64,
    last: i64,
    shift: u32,
    /// The bucket of all numbers outside the span.
    outside: u32,
    /// A bit for each bucket.
    marks: [u64; Self::MOST / 64],
    /// A byte for each bucket.
    bytes: Vec<u8>,
}

impl Buckets {
    /// Buckets at the most, with the one for the numbers outside. Their bits fill four registers of 512 bits.
    pub const MOST: usize = 2048;

    /// No bucket of the span from `first` to `last` is marked.
    pub fn new(first: i64, last: i64) -> Self {
        let span = last.wrapping_sub(first).cast_unsigned();
        let bits = Self::MOST.trailing_zeros();
        // One bucket is left for the numbers outside.
        let mut shift = (u64::BITS - span.leading_zeros()).saturating_sub(bits);
        while span >> shift >= Self::MOST as u64 - 1 {
            shift += 1;
        }
        let outside = (span >> shift) as u32 + 1;
        Self { first, last, shift, outside, marks: [0; Self::MOST / 64], bytes: vec![0; outside as usize + 1] }
    }
    /// Marks the buckets of the numbers from `low` to `high`; none means that the side is open.
    pub fn mark(&mut self, low: Option<i64>, high: Option<i64>) {
        let within = |number: i64| self.bucket(number);
        let from = low.map_or(0, within);
        let to = high.map_or(self.outside, within);
        let open = low.is_none() || high.is_none();
        let buckets: Vec<u32> = match (from == self.outside, to == self.outside) {
            // The bounds of what is marked lie in the span, or their side is open.
            (true, _) => vec![self.outside],
            (false, true) => (from..=self.outside).collect(),
            (false, false) => (from..=to).chain(open.then_some(self.outside)).collect(),
        };
        buckets.into_iter().for_each(|bucket| self.mark_one(bucket));
    }
    fn mark_one(&mut self, bucket: u32) {
        self.marks[bucket as usize / 64] |= 1 << (bucket % 64);
        self.bytes[bucket as usize] = 1;
        // The distance of a number below the span wraps around, and may fall into the last bucket of the span.
        if bucket == self.outside {
            let last = bucket - 1;
            self.marks[last as usize / 64] |= 1 << (last % 64);
            self.bytes[last as usize] = 1;
        }
    }
    /// The bucket of a number.
    #[inline]
    pub fn bucket(&self, number: i64) -> u32 {
        let distance = number.wrapping_sub(self.first).cast_unsigned() >> self.shift;
        distance.min(self.outside.into()) as u32
    }
    /// The first number of each bucket of the span.
    pub fn firsts(&self) -> impl Iterator<Item = i64> + '_ {
        (0..u64::from(self.outside)).map(|bucket| self.first.wrapping_add_unsigned(bucket << self.shift))
    }

    #[inline]
    fn candidates_portable<T: RangeValue>(&self, values: &[T], places: &mut [u32]) -> usize {
        assert!(places.len() > values.len(), "a place for each value");
        let mut end = 0;
        for (i, &value) in values.iter().enumerate() {
            // `end <= i < values.len()`.
            places[end] = i as u32;
            end += usize::from(self.bytes[self.bucket(value.into()) as usize]);
        }
        end
    }
}

macro_rules! range_value {
    ($type:ty, $values:ident, $low:ident, $high:ident, $words:ident, $fast:block,
     $buckets:ident, $places:ident, $fast_candidates:block) => {
        impl RangeValue for $type {
            const MIN: i64 = <$type>::MIN as i64;
            const MAX: i64 = <$type>::MAX as i64;
            #[inline]
            fn of(number: i64) -> Self {
                debug_assert!((<Self as RangeValue>::MIN..=<Self as RangeValue>::MAX).contains(&number));
                number as $type
            }
            fn range_words($values: &[Self], $low: Self, $high: Self, $words: &mut [u64]) {
                $fast
                range_words_portable($values, $low, $high, $words);
            }
            fn candidates($values: &[Self], $buckets: &Buckets, $places: &mut [u32]) -> usize {
                $fast_candidates
                $buckets.candidates_portable($values, $places)
            }
        }
    };
}

range_value!(i16, values, low, high, words, {}, buckets, places, {});
range_value!(
    i32,
    values,
    low,
    high,
    words,
    {
        #[cfg(target_arch = "x86_64")]
        if *crate::simd::AVX512 {
            // SAFETY: the processor has the features.
            return unsafe { avx512::range_words_i32(values, low, high, words) };
        }
    },
    buckets,
    places,
    {
        #[cfg(target_arch = "x86_64")]
        if *crate::simd::AVX512
            && let (Ok(first), Ok(_)) = (i32::try_from(buckets.first), i32::try_from(buckets.last))
        {
            // SAFETY: the processor has the features.
            return unsafe { avx512::candidates_i32(values, first, buckets, places) };
        }
    }
);
range_value!(
    i64,
    values,
    low,
    high,
    words,
    {
        #[cfg(target_arch = "x86_64")]
        if *crate::simd::AVX512 {
            // SAFETY: the processor has the features.
            return unsafe { avx512::range_words_i64(values, low, high, words) };
        }
    },
    buckets,
    places,
    {
        #[cfg(target_arch = "x86_64")]
        if *crate::simd::AVX512 {
            // SAFETY: the processor has the features.
            return unsafe { avx512::candidates_i64(values, buckets, places) };
        }
    }
);

/// Calls `f` with the number of each set bit.
#[inline]
pub fn for_each_bit(words: &[u64], mut f: impl FnMut(usize)) {
    for (i, &word) in words.iter().enumerate() {
        let mut rest = word;
        while rest != 0 {
            f(i * 64 + rest.trailing_zeros() as usize);
            rest &= rest - 1;
        }
    }
}

/// How many bits are set.
pub fn count(words: &[u64]) -> usize {
    words.iter().map(|word| word.count_ones() as usize).sum()
}

/// The numbers of the set bits, of which there are `count`.
///
/// # Panics
/// When there are not.
pub fn places(words: &[u64], count: usize) -> Vec<u32> {
    let mut places = vec![0u32; count + SLACK];
    let mut end = 0;
    #[cfg(target_arch = "x86_64")]
    if *crate::simd::AVX512 {
        // SAFETY: the processor has the features.
        end = unsafe { avx512::places(words, &mut places) };
        assert_eq!(end, count, "as many places as bits");
        places.truncate(end);
        return places;
    }
    for_each_bit(words, |bit| {
        places[end] = bit as u32;
        end += 1;
    });
    assert_eq!(end, count, "as many places as bits");
    places.truncate(end);
    places
}

/// Places that a vector register holds more than it may need.
pub const SLACK: usize = 16;

/// Writes the rows of the set bits, the first of which is `first_row`, and returns how many there are.
///
/// # Panics
/// When `rows` is too short.
pub fn rows(words: &[u64], first_row: u64, rows: &mut [u64]) -> usize {
    let mut end = 0;
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    if *crate::simd::AVX512 {
        // SAFETY: the processor has the features.
        (done, end) = unsafe { avx512::rows(words, first_row, rows) };
    }
    for_each_bit(&words[done..], |bit| {
        rows[end] = first_row + (done * 64 + bit) as u64;
        end += 1;
    });
    end
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{Buckets, SLACK, for_each_bit, range_words_portable};
    use std::arch::x86_64::*;

    /// Up to so many bits of a word are taken out one by one.
    const FEW_BITS: u32 = 6;

    #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
    pub(super) fn range_words_i32(values: &[i32], low: i32, high: i32, words: &mut [u64]) {
        assert!(words.len() >= values.len().div_ceil(64), "a word for every 64 values");
        if low > high {
            words[..values.len().div_ceil(64)].fill(0);
            return;
        }
        // One comparison without a sign: values below `low` wrap around to distances above the span.
        let (lows, span) = (_mm512_set1_epi32(low), _mm512_set1_epi32(high.wrapping_sub(low)));
        let (whole, rest) = values.as_chunks::<64>();
        for (values, word) in whole.iter().zip(&mut *words) {
            let masks: [u64; 4] = std::array::from_fn(|i| {
                // SAFETY: 16 values from there on are among the 64.
                let some = unsafe { _mm512_loadu_si512(values.as_ptr().add(16 * i).cast()) };
                _mm512_cmple_epu32_mask(_mm512_sub_epi32(some, lows), span).into()
            });
            *word = masks[0] | masks[1] << 16 | masks[2] << 32 | masks[3] << 48;
        }
        range_words_portable(rest, low, high, &mut words[whole.len()..]);
    }

    #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
    pub(super) fn range_words_i64(values: &[i64], low: i64, high: i64, words: &mut [u64]) {
        assert!(words.len() >= values.len().div_ceil(64), "a word for every 64 values");
        if low > high {
            words[..values.len().div_ceil(64)].fill(0);
            return;
        }
        let (lows, span) = (_mm512_set1_epi64(low), _mm512_set1_epi64(high.wrapping_sub(low)));
        let (whole, rest) = values.as_chunks::<64>();
        for (values, word) in whole.iter().zip(&mut *words) {
            let masks: [u64; 8] = std::array::from_fn(|i| {
                // SAFETY: 8 values from there on are among the 64.
                let some = unsafe { _mm512_loadu_si512(values.as_ptr().add(8 * i).cast()) };
                _mm512_cmple_epu64_mask(_mm512_sub_epi64(some, lows), span).into()
            });
            *word = masks.iter().enumerate().fold(0, |word, (i, mask)| word | mask << (8 * i));
        }
        range_words_portable(rest, low, high, &mut words[whole.len()..]);
    }

    /// The four registers of the marks.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
    fn marks(buckets: &Buckets) -> [__m512i; 4] {
        let (eights, _) = buckets.marks.as_chunks::<8>();
        // SAFETY: each has eight words.
        std::array::from_fn(|i| unsafe { _mm512_loadu_si512(eights[i].as_ptr().cast()) })
    }

    #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
    pub(super) fn candidates_i32(values: &[i32], first: i32, buckets: &Buckets, places: &mut [u32]) -> usize {
        assert!(places.len() >= values.len() + SLACK, "a register is written at a time");
        let [a, b, c, d] = marks(buckets);
        let (first, outside) = (_mm512_set1_epi32(first), _mm512_set1_epi32(buckets.outside.cast_signed()));
        let (shift, one) = (_mm_cvtsi32_si128(buckets.shift.cast_signed()), _mm512_set1_epi32(1));
        let mut lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let (whole, rest) = values.as_chunks::<16>();
        let mut end = 0;
        for values in whole {
            // SAFETY: there are 16 values.
            let some = unsafe { _mm512_loadu_si512(values.as_ptr().cast()) };
            let bucket = _mm512_min_epu32(_mm512_srl_epi32(_mm512_sub_epi32(some, first), shift), outside);
            // 32 bits a lane: the word is the bucket / 32, of which the lower five bits choose in two registers.
            let word = _mm512_srli_epi32::<5>(bucket);
            let (low, high) = (_mm512_permutex2var_epi32(a, word, b), _mm512_permutex2var_epi32(c, word, d));
            let is_high = _mm512_test_epi32_mask(word, _mm512_set1_epi32(32));
            let bits = _mm512_mask_blend_epi32(is_high, low, high);
            let bit = _mm512_sllv_epi32(one, _mm512_and_si512(bucket, _mm512_set1_epi32(31)));
            let marked = _mm512_test_epi32_mask(bits, bit);
            // SAFETY: `end` is at most the number of values before these, and 16 more places follow.
            unsafe {
                _mm512_storeu_si512(places.as_mut_ptr().add(end).cast(), _mm512_maskz_compress_epi32(marked, lanes));
            }
            end += marked.count_ones() as usize;
            lanes = _mm512_add_epi32(lanes, _mm512_set1_epi32(16));
        }
        for (i, &value) in rest.iter().enumerate() {
            places[end] = (whole.len() * 16 + i) as u32;
            end += usize::from(buckets.bytes[bucket_i32(value, buckets)]);
        }
        end
    }

    #[inline]
    fn bucket_i32(value: i32, buckets: &Buckets) -> usize {
        buckets.bucket(value.into()) as usize
    }

    #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
    pub(super) fn candidates_i64(values: &[i64], buckets: &Buckets, places: &mut [u32]) -> usize {
        assert!(places.len() >= values.len() + SLACK, "a register is written at a time");
        let [a, b, c, d] = marks(buckets);
        let (first, outside) = (_mm512_set1_epi64(buckets.first), _mm512_set1_epi64(buckets.outside.into()));
        let (shift, one) = (_mm_cvtsi32_si128(buckets.shift.cast_signed()), _mm512_set1_epi64(1));
        let mut lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let (whole, rest) = values.as_chunks::<8>();
        let mut end = 0;
        for values in whole {
            // SAFETY: there are 8 values.
            let some = unsafe { _mm512_loadu_si512(values.as_ptr().cast()) };
            let bucket = _mm512_min_epu64(_mm512_srl_epi64(_mm512_sub_epi64(some, first), shift), outside);
            // 64 bits a lane: the word is the bucket / 64, of which the lower four bits choose in two registers.
            let word = _mm512_srli_epi64::<6>(bucket);
            let (low, high) = (_mm512_permutex2var_epi64(a, word, b), _mm512_permutex2var_epi64(c, word, d));
            let is_high = _mm512_test_epi64_mask(word, _mm512_set1_epi64(16));
            let bits = _mm512_mask_blend_epi64(is_high, low, high);
            let bit = _mm512_sllv_epi64(one, _mm512_and_si512(bucket, _mm512_set1_epi64(63)));
            let marked = _mm512_test_epi64_mask(bits, bit);
            // SAFETY: `end` is at most the number of values before these, and 16 more places follow.
            unsafe {
                _mm256_storeu_si256(places.as_mut_ptr().add(end).cast(), _mm256_maskz_compress_epi32(marked, lanes));
            }
            end += marked.count_ones() as usize;
            lanes = _mm256_add_epi32(lanes, _mm256_set1_epi32(8));
        }
        for (i, &value) in rest.iter().enumerate() {
            places[end] = (whole.len() * 8 + i) as u32;
            end += usize::from(buckets.bytes[buckets.bucket(value) as usize]);
        }
        end
    }

    #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
    pub(super) fn places(words: &[u64], places: &mut [u32]) -> usize {
        let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let mut end = 0;
        for (i, &word) in words.iter().enumerate() {
            let bits = word.count_ones();
            if bits <= FEW_BITS {
                for_each_bit(&[word], |bit| {
                    places[end] = (i * 64 + bit) as u32;
                    end += 1;
                });
                continue;
            }
            assert!(places.len() - end >= bits as usize + SLACK, "a register is written at a time");
            for part in 0..4 {
                let (first, mask) = ((i * 64 + part * 16) as u32, (word >> (part * 16)) as u16);
                let numbers = _mm512_add_epi32(lanes, _mm512_set1_epi32(first.cast_signed()));
                // SAFETY: the word's bits before these have been written, and a register's length is left.
                unsafe {
                    let at = places.as_mut_ptr().add(end);
                    _mm512_storeu_si512(at.cast(), _mm512_maskz_compress_epi32(mask, numbers));
                }
                end += mask.count_ones() as usize;
            }
        }
        end
    }

    /// How many words were taken, and how many rows written. It ends before a register could be written past the end.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
    pub(super) fn rows(words: &[u64], first_row: u64, rows: &mut [u64]) -> (usize, usize) {
        let lanes = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
        let mut end = 0;
        for (i, &word) in words.iter().enumerate() {
            let bits = word.count_ones();
            if rows.len() - end < bits as usize + SLACK {
                return (i, end);
            }
            let first = first_row + i as u64 * 64;
            if bits <= FEW_BITS {
                for_each_bit(&[word], |bit| {
                    rows[end] = first + bit as u64;
                    end += 1;
                });
                continue;
            }
            for part in 0..8 {
                let mask = (word >> (part * 8)) as u8;
                let numbers = _mm512_add_epi64(lanes, _mm512_set1_epi64((first + part * 8).cast_signed()));
                // SAFETY: the word's bits before these have been written, and a register's length is left.
                unsafe {
                    let at = rows.as_mut_ptr().add(end);
                    _mm512_storeu_si512(at.cast(), _mm512_maskz_compress_epi64(mask, numbers));
                }
                end += mask.count_ones() as usize;
            }
        }
        (words.len(), end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits_of(words: &[u64], len: usize) -> Vec<bool> {
        (0..len).map(|i| words[i / 64] >> (i % 64) & 1 == 1).collect()
    }

    /// The words of the dispatched and of the portable loop, which are to be the same.
    fn both<T: RangeValue>(values: &[T], low: i64, high: i64) -> Vec<bool> {
        let mut words = [vec![u64::MAX; values.len().div_ceil(64)], vec![u64::MAX; values.len().div_ceil(64)]];
        T::range_words(values, T::of(low), T::of(high), &mut words[0]);
        range_words_portable(values, T::of(low), T::of(high), &mut words[1]);
        assert_eq!(words[0], words[1]);
        bits_of(&words[0], values.len())
    }

    fn any_number() -> impl Strategy<Value = i64> {
        prop_oneof![
            -20i64..20,
            Just(i64::MIN),
            Just(i64::MAX),
            Just(i32::MIN.into()),
            Just(i32::MAX.into()),
            any::<i64>(),
            any::<i32>().prop_map(i64::from),
        ]
    }

    proptest! {
        #[test]
        fn words_agree_with_a_plain_loop(
            values in prop::collection::vec(any_number(), 0..300), (low, high) in (any_number(), any_number()),
        ) {
            let expected: Vec<bool> = values.iter().map(|v| *v >= low && *v <= high).collect();
            prop_assert_eq!(both(&values, low, high), expected);
            let narrow: Vec<i32> = values.iter().map(|v| *v as i32).collect();
            let (low32, high32) = (low as i32, high as i32);
            let expected: Vec<bool> = narrow.iter().map(|v| *v >= low32 && *v <= high32).collect();
            prop_assert_eq!(both(&narrow, low32.into(), high32.into()), expected);
            let short: Vec<i16> = values.iter().map(|v| *v as i16).collect();
            let (low16, high16) = (low as i16, high as i16);
            let expected: Vec<bool> = short.iter().map(|v| *v >= low16 && *v <= high16).collect();
            prop_assert_eq!(both(&short, low16.into(), high16.into()), expected);
        }

        #[test]
        fn rows_of_bitmaps_agree_with_a_plain_loop(
            words in prop::collection::vec(prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), (0u32..64).prop_map(|bit| 1 << bit)], 0..40),
            spare in 0usize..20,
        ) {
            let expected: Vec<u32> =
                (0..words.len() * 64).filter(|i| words[i / 64] >> (i % 64) & 1 == 1).map(|i| i as u32).collect();
            prop_assert_eq!(count(&words), expected.len());
            prop_assert_eq!(places(&words, expected.len()), expected.clone());
            let mut written = vec![0; expected.len() + spare];
            prop_assert_eq!(rows(&words, 1 << 40, &mut written), expected.len());
            written.truncate(expected.len());
            prop_assert_eq!(written, expected.iter().map(|at| (1 << 40) + u64::from(*at)).collect::<Vec<_>>());
        }

        #[test]
        fn no_value_in_a_marked_range_is_passed_over(
            values in prop::collection::vec(any_number(), 0..300), mut bounds in prop::collection::vec(any_number(), 1..6),
            open in (any::<bool>(), any::<bool>()),
        ) {
            bounds.sort_unstable();
            let (first, last) = (bounds[0], bounds[bounds.len() - 1]);
            let mut buckets = Buckets::new(first, last);
            let ranges: Vec<(Option<i64>, Option<i64>)> = bounds.chunks(2)
                .map(|pair| (Some(pair[0]).filter(|_| !open.0), pair.last().copied().filter(|_| !open.1)))
                .collect();
            ranges.iter().for_each(|&(low, high)| buckets.mark(low, high));
            let wanted = |v: i64| ranges.iter().any(|(low, high)| low.is_none_or(|l| v >= l) && high.is_none_or(|h| v <= h));
            let mut places = vec![0; values.len() + SLACK];
            let end = i64::candidates(&values, &buckets, &mut places);
            let found = places[..end].to_vec();
            let end = buckets.candidates_portable(&values, &mut places);
            prop_assert_eq!(&found, &places[..end]);
            prop_assert!(found.is_sorted_by(|a, b| a < b));
            for (i, &value) in values.iter().enumerate() {
                prop_assert!(!wanted(value) || found.contains(&(i as u32)), "{}", value);
            }
            let narrow: Vec<i32> = values.iter().map(|v| *v as i32).collect();
            let mut places = vec![0; values.len() + SLACK];
            let end = i32::candidates(&narrow, &buckets, &mut places);
            for (i, &value) in narrow.iter().enumerate() {
                prop_assert!(!wanted(value.into()) || places[..end].contains(&(i as u32)), "{}", value);
            }
        }
    }
}
