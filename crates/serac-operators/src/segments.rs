//! Numbers by segment. The bounds of many predicates cut the numbers into segments, and a value is
//! encoded as the number of its segment, a byte.
//!
//! Each value is looked up among the cuts once, for any number of predicates: a binary search
//! without branches, a register of values at a time. The cuts of its first steps lie in two
//! registers, those of the later ones in the cache. A predicate on values is an interval of codes
//! then, and a register holds four times as many codes as 32-bit values.

use crate::range_words::pack;
#[cfg(target_arch = "x86_64")]
use crate::simd;

/// Segments of the numbers.
#[derive(Debug)]
pub struct Segments {
    cuts: usize,
    /// The steps of the binary search.
    steps: u32,
    /// The first number of each segment but the first one, ascending, and the largest number up to
    /// a length of 2 ^ steps − 1.
    limits: Vec<i64>,
    /// The same for values of 32 bits.
    limits_32: Vec<i32>,
}

impl Segments {
    /// Cuts at the most: there is one segment more.
    pub const MOST_CUTS: usize = 255;

    /// The segments that begin with these numbers, and one below all of them.
    ///
    /// # Panics
    /// When more than [`MOST_CUTS`](Self::MOST_CUTS) of them differ.
    pub fn new(mut cuts: Vec<i64>) -> Self {
        cuts.sort_unstable();
        cuts.dedup();
        assert!(cuts.len() <= Self::MOST_CUTS, "a code is a byte");
        let (count, steps) = (cuts.len(), usize::BITS - cuts.len().leading_zeros());
        cuts.resize((1 << steps) - 1, i64::MAX);
        // Cuts beyond 32 bits are not asked for by values of 32 bits.
        let narrow = |&cut: &i64| cut.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        Self { cuts: count, steps, limits_32: cuts.iter().map(narrow).collect(), limits: cuts }
    }

    /// The number of segments.
    pub fn count(&self) -> usize {
        self.cuts + 1
    }

    /// The segment of a number.
    #[inline]
    pub fn of(&self, number: i64) -> u8 {
        let mut segment = 0;
        for step in (0..self.steps).rev() {
            // `segment` is a multiple of 2 ^ (step + 1) below 2 ^ steps.
            segment += usize::from(number >= self.limits[segment + (1 << step) - 1]) << step;
        }
        // The largest number is not below the filler of the limits.
        segment.min(self.cuts) as u8
    }

    /// Writes the segment of each value.
    pub(crate) fn encode_portable<T: Copy + Into<i64>>(&self, values: &[T], codes: &mut [u8]) {
        codes[..values.len()].iter_mut().zip(values).for_each(|(code, &value)| *code = self.of(value.into()));
    }
}

/// The codes that a select wants: 1 for each, 0 for the others.
pub(crate) type Marks = [u8; 256];

/// Writes for each code whether it is marked, a bit each, from the lowest bit on. Bits behind the
/// last code are 0.
///
/// # Panics
/// When there is no word for each 64 codes begun.
pub(crate) fn marked_words(codes: &[u8], marks: &Marks, words: &mut [u64]) {
    let (whole, rest) = codes.as_chunks::<64>();
    let (words, last) = words[..codes.len().div_ceil(64)].split_at_mut(whole.len());
    #[cfg(target_arch = "x86_64")]
    let done = *simd::AVX512_BYTES && {
        // SAFETY: the processor has the features.
        unsafe { avx512::marked_words(whole, marks, words) };
        true
    };
    #[cfg(not(target_arch = "x86_64"))]
    let done = false;
    if !done {
        marked_words_portable(whole, marks, words);
    }
    let mark = |word, (i, &code): (usize, &u8)| word | u64::from(marks[usize::from(code)]) << i;
    last.iter_mut().for_each(|word| *word = rest.iter().enumerate().fold(0, mark));
}

fn marked_words_portable(codes: &[[u8; 64]], marks: &Marks, words: &mut [u64]) {
    words.iter_mut().zip(codes).for_each(|(word, codes)| *word = pack(&codes.map(|code| marks[usize::from(code)])));
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512 {
    use super::{Marks, Segments};
    use std::arch::x86_64::*;

    /// Encodes values of one width, of which a register has `$lanes`.
    macro_rules! encode {
        ($name:ident, $value:ty, $lanes:literal, $mask:ty, $load:expr, $limits:ident: $limit:ty, $set1:ident,
         $add:ident, $add_where:ident, $shift:ident, $min:ident, $less_or_equal:ident, $choose:ident,
         $gather:ident, $bytes:literal, $store:ident) => {
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
            pub(crate) fn $name(values: &[$value], segments: &Segments, codes: &mut [u8]) {
                // Two registers have the limits of so many steps.
                const MOST_FIRST: u32 = (2 * $lanes as u32).ilog2();
                let limits = &segments.$limits;
                assert!(limits.len() == (1 << segments.steps) - 1, "a limit for each step and place");
                let first = segments.steps.min(MOST_FIRST);
                let later = segments.steps - first;
                let top: [$limit; 2 * $lanes] =
                    std::array::from_fn(|i| limits.get(((i + 1) << later) - 1).copied().unwrap_or(<$limit>::MAX));
                // SAFETY: each of the halves fills a register.
                let top = unsafe {
                    [_mm512_loadu_si512(top.as_ptr().cast()), _mm512_loadu_si512(top.as_ptr().add($lanes).cast())]
                };
                let (most, shift) = ($set1(segments.cuts as $limit), _mm_cvtsi32_si128(later.cast_signed()));
                let codes = &mut codes[..values.len()];
                for (values, codes) in values.chunks($lanes).zip(codes.chunks_mut($lanes)) {
                    // A lane for each value.
                    let lanes = <$mask>::MAX >> ($lanes - values.len());
                    let some = $load(lanes, values.as_ptr());
                    let mut segment = _mm512_setzero_si512();
                    for step in (0..first).rev() {
                        let (half, before) = ($set1(1 << step), $set1((1 << step) - 1));
                        let limit = $choose(top[0], $add(segment, before), top[1]);
                        segment = $add_where(segment, $less_or_equal(limit, some), segment, half);
                    }
                    segment = $shift(segment, shift);
                    for step in (0..later).rev() {
                        let (half, before) = ($set1(1 << step), $set1((1 << step) - 1));
                        // SAFETY: the segment is a multiple of 2 ^ (step + 1) below 2 ^ steps, so
                        // that its place is one of the 2 ^ steps − 1 limits.
                        let limit = unsafe { $gather::<$bytes>($add(segment, before), limits.as_ptr().cast()) };
                        segment = $add_where(segment, $less_or_equal(limit, some), segment, half);
                    }
                    // SAFETY: there are as many codes as values, and as lanes of the mask.
                    unsafe { $store(codes.as_mut_ptr().cast(), lanes, $min(segment, most)) };
                }
            }
        };
    }

    /// The 16-bit values of the given lanes, as 32-bit numbers.
    ///
    /// # Safety
    /// There are values for the lanes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn load_i16(lanes: __mmask16, values: *const i16) -> __m512i {
        // SAFETY: the caller's.
        _mm512_cvtepi16_epi32(unsafe { _mm256_maskz_loadu_epi16(lanes, values) })
    }

    encode!(
        encode_i16, i16, 16, __mmask16,
        // SAFETY: there are values for the lanes.
        |lanes, values| unsafe { load_i16(lanes, values) },
        limits_32: i32, _mm512_set1_epi32, _mm512_add_epi32, _mm512_mask_add_epi32, _mm512_sll_epi32, _mm512_min_epi32,
        _mm512_cmple_epi32_mask, _mm512_permutex2var_epi32, _mm512_i32gather_epi32, 4,
        _mm512_mask_cvtepi32_storeu_epi8
    );
    encode!(
        encode_i32, i32, 16, __mmask16,
        // SAFETY: there are values for the lanes.
        |lanes, values| unsafe { _mm512_maskz_loadu_epi32(lanes, values) },
        limits_32: i32, _mm512_set1_epi32, _mm512_add_epi32, _mm512_mask_add_epi32, _mm512_sll_epi32,
        _mm512_min_epi32, _mm512_cmple_epi32_mask, _mm512_permutex2var_epi32, _mm512_i32gather_epi32, 4,
        _mm512_mask_cvtepi32_storeu_epi8
    );
    encode!(
        encode_i64, i64, 8, __mmask8,
        // SAFETY: there are values for the lanes.
        |lanes, values| unsafe { _mm512_maskz_loadu_epi64(lanes, values) },
        limits: i64, _mm512_set1_epi64, _mm512_add_epi64, _mm512_mask_add_epi64, _mm512_sll_epi64,
        _mm512_min_epi64, _mm512_cmple_epi64_mask, _mm512_permutex2var_epi64, _mm512_i64gather_epi64, 8,
        _mm512_mask_cvtepi64_storeu_epi8
    );

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
    pub(super) fn marked_words(codes: &[[u8; 64]], marks: &Marks, words: &mut [u64]) {
        let (quarters, _) = marks.as_chunks::<64>();
        // SAFETY: each has 64 bytes.
        let [a, b, c, d]: [__m512i; 4] =
            std::array::from_fn(|i| unsafe { _mm512_loadu_si512(quarters[i].as_ptr().cast()) });
        for (codes, word) in codes.iter().zip(words) {
            // SAFETY: there are 64 codes.
            let some = unsafe { _mm512_loadu_si512(codes.as_ptr().cast()) };
            // Seven bits of a code choose in two registers, and the eighth between pairs of these.
            let (low, high) = (_mm512_permutex2var_epi8(a, some, b), _mm512_permutex2var_epi8(c, some, d));
            let marks = _mm512_mask_blend_epi8(_mm512_movepi8_mask(some), low, high);
            *word = _mm512_test_epi8_mask(marks, marks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range_words::RangeValue;
    use proptest::prelude::*;

    fn any_number() -> impl Strategy<Value = i64> {
        let ends = [i64::MIN, i64::MAX, i32::MIN.into(), i32::MAX.into(), i16::MIN.into(), i16::MAX.into()];
        prop_oneof![3 => -300i64..300, 1 => prop::sample::select(ends.to_vec()), 1 => any::<i64>(), 1 => any::<i32>().prop_map(i64::from)]
    }

    fn check<T: RangeValue>(numbers: &[i64], cuts: &[i64]) -> Result<(), TestCaseError> {
        let within = |number: &&i64| (T::MIN..=T::MAX).contains(*number);
        let cuts: Vec<i64> = cuts.iter().filter(within).filter(|cut| **cut > T::MIN).copied().collect();
        let values: Vec<T> = numbers.iter().filter(within).map(|number| T::of(*number)).collect();
        let segments = Segments::new(cuts.clone());
        let mut sorted = cuts;
        sorted.sort_unstable();
        sorted.dedup();
        prop_assert_eq!(segments.count(), sorted.len() + 1);
        let expected: Vec<u8> =
            values.iter().map(|&value| sorted.partition_point(|cut| *cut <= value.into()) as u8).collect();
        let mut codes = vec![7; values.len() + 3];
        T::encode(&values, &segments, &mut codes);
        prop_assert_eq!(&codes[..values.len()], &expected);
        prop_assert_eq!(&codes[values.len()..], &[7; 3], "nothing is written behind the codes");
        segments.encode_portable(&values, &mut codes);
        prop_assert_eq!(&codes[..values.len()], &expected);
        Ok(())
    }

    proptest! {
        #[test]
        fn a_code_is_the_number_of_cuts_up_to_the_value(
            numbers in prop::collection::vec(any_number(), 0..200), cuts in prop::collection::vec(any_number(), 0..255),
            few in 0usize..255,
        ) {
            for cuts in [&cuts[..], &cuts[..few.min(cuts.len())], &cuts[..few.min(cuts.len()) % 5]] {
                check::<i16>(&numbers, cuts)?;
                check::<i32>(&numbers, cuts)?;
                check::<i64>(&numbers, cuts)?;
            }
        }

        #[test]
        fn marked_codes_are_found(codes in prop::collection::vec(any::<u8>(), 0..300), marked in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut marks: Marks = [0; 256];
            marked.iter().for_each(|code| marks[usize::from(*code)] = 1);
            let mut words = vec![u64::MAX; codes.len().div_ceil(64)];
            marked_words(&codes, &marks, &mut words);
            for at in 0..words.len() * 64 {
                let expected = codes.get(at).is_some_and(|code| marked.contains(code));
                prop_assert_eq!(words[at / 64] >> (at % 64) & 1 == 1, expected);
            }
            let (whole, _) = codes.as_chunks::<64>();
            let mut portable = vec![0; whole.len()];
            marked_words_portable(whole, &marks, &mut portable);
            prop_assert_eq!(&portable, &words[..whole.len()]);
        }
    }
}
