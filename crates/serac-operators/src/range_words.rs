//! Range predicates over a slice of integers as bitmaps of 64-bit words, and the positions of the
//! bits that a bitmap has.
//!
//! A predicate is an interval with both ends included, so that an unbounded side is the type's own
//! end. The portable loops compare 64 values into 64 bytes, which the compiler vectorises, and pack
//! the bytes by multiplication. With AVX-512 a comparison gives the mask itself.
//!
//! Positions are written without a branch for each bit. The numbers of a word's bits are put side
//! by side as bytes: by one compression of a register, or eight bits at a time from a table. Then
//! they are widened and written, `LANES` at a time and at least once, also if fewer are there:
//! the next write overwrites the rest.

use crate::segments::Segments;
#[cfg(target_arch = "x86_64")]
use crate::simd;
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};

/// A column's value type for range predicates.
pub trait RangeValue: Copy + Ord + Send + Sync + Into<i64> + 'static {
    /// The smallest value.
    const MIN: i64;
    /// The largest value.
    const MAX: i64;
    /// A number between [`MIN`](Self::MIN) and [`MAX`](Self::MAX) as a value.
    fn of(number: i64) -> Self;
    /// Writes for each value whether it lies in `low..=high`, a bit each, from the lowest bit on.
    /// Bits behind the last value are 0.
    ///
    /// # Panics
    /// When there is no word for each 64 values begun.
    fn range_words(values: &[Self], low: Self, high: Self, words: &mut [u64]);
    /// Writes the segment of each value.
    ///
    /// # Panics
    /// When there are fewer codes than values.
    fn encode(values: &[Self], segments: &Segments, codes: &mut [u8]) {
        segments.encode_portable(values, codes);
    }
}

/// Whether each of 64 bytes is 1 (the others are 0), a bit each.
#[inline(always)]
pub(crate) fn pack(bytes: &[u8; 64]) -> u64 {
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

macro_rules! range_value {
    ($type:ty, $range_words:ident $(, $encode:ident)?) => {
        impl RangeValue for $type {
            const MIN: i64 = <$type>::MIN as i64;
            const MAX: i64 = <$type>::MAX as i64;
            #[inline]
            fn of(number: i64) -> Self {
                debug_assert!((<Self as RangeValue>::MIN..=<Self as RangeValue>::MAX).contains(&number));
                number as $type
            }

            fn range_words(values: &[Self], low: Self, high: Self, words: &mut [u64]) {
                #[cfg(target_arch = "x86_64")]
                if *simd::AVX512 {
                    // SAFETY: the processor has the features.
                    return unsafe { avx512::$range_words(values, low, high, words) };
                } else if *simd::AVX2 {
                    // SAFETY: the processor has the features.
                    return unsafe { avx2::range_words(values, low, high, words) };
                }
                range_words_portable(values, low, high, words);
            }
            $(fn encode(values: &[Self], segments: &Segments, codes: &mut [u8]) {
                #[cfg(target_arch = "x86_64")]
                if *simd::AVX512 {
                    // SAFETY: the processor has the features.
                    return unsafe { crate::segments::avx512::$encode(values, segments, codes) };
                }
                segments.encode_portable(values, codes);
            })?
        }
    };
}

range_value!(u8, range_words_u8);
range_value!(i16, range_words_i16, encode_i16);
range_value!(i32, range_words_i32, encode_i32);
range_value!(i64, range_words_i64, encode_i64);

/// The values that lie in `low..=high` and are not NULL.
pub fn range_bits<T: RangeValue>(values: &[T], nulls: Option<&NullBuffer>, low: T, high: T) -> BooleanBuffer {
    let mut words = vec![0; values.len().div_ceil(64)];
    T::range_words(values, low, high, &mut words);
    let bits = BooleanBuffer::new(Buffer::from_vec(words), 0, values.len());
    match nulls {
        Some(nulls) => &bits & nulls.inner(),
        None => bits,
    }
}

/// Whether loops over values use registers of 512 bits.
pub(crate) fn has_vectors() -> bool {
    #[cfg(target_arch = "x86_64")]
    return *simd::AVX512;
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[inline(always)]
fn count_portable(words: &[u64]) -> usize {
    words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>() as usize
}

/// The number of bits that are set.
pub fn count(words: &[u64]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if *simd::AVX512_BYTES {
        // SAFETY: the processor has the features.
        return unsafe { avx512::count(words) };
    } else if *simd::AVX2 {
        // SAFETY: the processor has the features.
        return unsafe { avx2::count(words) };
    }
    count_portable(words)
}

/// Positions that are written at a time.
const LANES: usize = 16;

/// The integer type of a bit's number.
trait Position: Copy {
    /// The position plus `more`.
    fn plus(self, more: u8) -> Self;
}

impl Position for u32 {
    #[inline(always)]
    fn plus(self, more: u8) -> Self {
        self.wrapping_add(more.into())
    }
}

impl Position for u64 {
    #[inline(always)]
    fn plus(self, more: u8) -> Self {
        self.wrapping_add(more.into())
    }
}

/// Writes the positions of the set bits, the first of which is `first`, and returns how many there
/// are. `expand` puts the numbers of a word's bits into the first of 64 bytes.
#[inline(always)]
fn write_positions<P: Position>(
    words: &[u64],
    mut first: P,
    positions: &mut [P],
    expand: impl Fn(u64, &mut [u8; 64]),
) -> usize {
    let (mut end, mut bits) = (0, [0; 64]);
    for &word in words {
        expand(word, &mut bits);
        let (count, rest) = (word.count_ones() as usize, &mut positions[end..]);
        // Once also for no bit, as a branch would be guessed wrong where few words have any.
        let times = count.div_ceil(LANES).max(1);
        if rest.len() >= times * LANES {
            let (parts, _) = rest.as_chunks_mut::<LANES>();
            for (part, bits) in parts[..times].iter_mut().zip(bits.as_chunks::<LANES>().0) {
                part.iter_mut().zip(bits).for_each(|(position, &bit)| *position = first.plus(bit));
            }
        } else {
            rest[..count].iter_mut().zip(&bits).for_each(|(position, &bit)| *position = first.plus(bit));
        }
        end += count;
        first = first.plus(64);
    }
    end
}

/// By eight bits, the numbers of those that are set, ascending, the first in the lowest byte.
static BITS_OF_BYTE: [u64; 256] = {
    let (mut table, mut byte) = ([0; 256], 0);
    while byte < 256 {
        let (mut bit, mut found) = (0, 0);
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                table[byte] |= bit << (8 * found);
                found += 1;
            }
            bit += 1;
        }
        byte += 1;
    }
    table
};

#[inline(always)]
fn expand_by_table(word: u64, bits: &mut [u8; 64]) {
    if word == 0 {
        return;
    }
    let mut end = 0;
    for (at, byte) in word.to_le_bytes().into_iter().enumerate() {
        // No byte of the sum is larger than 63. `end` is at most 8 times `at`.
        let some = BITS_OF_BYTE[usize::from(byte)] + at as u64 * 0x0808_0808_0808_0808;
        bits[end..end + 8].copy_from_slice(&some.to_le_bytes());
        end += byte.count_ones() as usize;
    }
}

fn positions<P: Position>(words: &[u64], first: P, positions: &mut [P]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if *simd::AVX512_BYTES {
        // SAFETY: the processor has the features.
        return unsafe { avx512::write_positions(words, first, positions) };
    } else if *simd::AVX2 {
        // SAFETY: the processor has the features.
        return unsafe { avx2::write_positions(words, first, positions) };
    }
    write_positions(words, first, positions, expand_by_table)
}

/// The numbers of the set bits, of which there are `count`.
///
/// # Panics
/// When there are not.
pub fn places(words: &[u64], count: usize) -> Vec<u32> {
    let mut places = vec![0; count + LANES];
    assert_eq!(positions(words, 0u32, &mut places), count, "as many places as bits");
    places.truncate(count);
    places
}

/// Writes the rows of the set bits, the first of which is `first_row`, and returns how many there
/// are.
///
/// # Panics
/// When `rows` is too short.
pub fn rows(words: &[u64], first_row: u64, rows: &mut [u64]) -> usize {
    positions(words, first_row, rows)
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Position, count_portable, expand_by_table, range_words_portable};

    #[target_feature(enable = "avx2,popcnt")]
    pub(super) fn range_words<T: Copy + Ord>(values: &[T], low: T, high: T, words: &mut [u64]) {
        range_words_portable(values, low, high, words);
    }

    #[target_feature(enable = "avx2,popcnt")]
    pub(super) fn count(words: &[u64]) -> usize {
        count_portable(words)
    }

    #[target_feature(enable = "avx2,popcnt")]
    pub(super) fn write_positions<P: Position>(words: &[u64], first: P, positions: &mut [P]) -> usize {
        super::write_positions(words, first, positions, expand_by_table)
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{Position, count_portable, range_words_portable};
    use std::arch::x86_64::*;

    /// [`super::RangeValue::range_words`] for values of one width, a register of which has
    /// `$lanes`.
    macro_rules! range_words {
        ($name:ident, $type:ty, $lanes:literal, $set1:ident, $sub:ident, $less_or_equal:ident) => {
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
            pub(super) fn $name(values: &[$type], low: $type, high: $type, words: &mut [u64]) {
                assert!(words.len() >= values.len().div_ceil(64), "a word for every 64 values");
                if low > high {
                    words[..values.len().div_ceil(64)].fill(0);
                    return;
                }
                // One comparison without a sign: values below `low` wrap around to distances above
                // the span.
                let (lows, span) = ($set1(low as _), $set1(high.wrapping_sub(low) as _));
                let (whole, rest) = values.as_chunks::<64>();
                for (values, word) in whole.iter().zip(&mut *words) {
                    *word = (0..64 / $lanes).fold(0, |word, i| {
                        // SAFETY: `$lanes` values from there on are among the 64.
                        let some = unsafe { _mm512_loadu_si512(values.as_ptr().add($lanes * i).cast()) };
                        word | u64::from($less_or_equal($sub(some, lows), span)) << ($lanes * i)
                    });
                }
                range_words_portable(rest, low, high, &mut words[whole.len()..]);
            }
        };
    }
    range_words!(range_words_u8, u8, 64, _mm512_set1_epi8, _mm512_sub_epi8, _mm512_cmple_epu8_mask);
    range_words!(range_words_i16, i16, 32, _mm512_set1_epi16, _mm512_sub_epi16, _mm512_cmple_epu16_mask);
    range_words!(range_words_i32, i32, 16, _mm512_set1_epi32, _mm512_sub_epi32, _mm512_cmple_epu32_mask);
    range_words!(range_words_i64, i64, 8, _mm512_set1_epi64, _mm512_sub_epi64, _mm512_cmple_epu64_mask);

    #[target_feature(enable = "avx512f,avx512vpopcntdq")]
    pub(super) fn count(words: &[u64]) -> usize {
        count_portable(words)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt")]
    pub(super) fn write_positions<P: Position>(words: &[u64], first: P, positions: &mut [P]) -> usize {
        let numbers: [u8; 64] = std::array::from_fn(|i| i as u8);
        // SAFETY: there are 64 bytes.
        let numbers = unsafe { _mm512_loadu_si512(numbers.as_ptr().cast()) };
        super::write_positions(words, first, positions, |word, bits| {
            // SAFETY: there are 64 bytes.
            unsafe { _mm512_storeu_si512(bits.as_mut_ptr().cast(), _mm512_maskz_compress_epi8(word, numbers)) };
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits_of(words: &[u64], len: usize) -> Vec<bool> {
        (0..len).map(|i| words[i / 64] >> (i % 64) & 1 == 1).collect()
    }

    /// The words of the dispatched and of the other loops, which are to be the same.
    fn all<T: RangeValue>(values: &[T], low: i64, high: i64) -> Vec<bool> {
        let (low, high) = (T::of(low), T::of(high));
        let mut words = vec![u64::MAX; values.len().div_ceil(64)];
        T::range_words(values, low, high, &mut words);
        let mut others = vec![u64::MAX; words.len()];
        range_words_portable(values, low, high, &mut others);
        assert_eq!(words, others);
        #[cfg(target_arch = "x86_64")]
        if *simd::AVX2 {
            others.fill(u64::MAX);
            // SAFETY: the processor has the features.
            unsafe { avx2::range_words(values, low, high, &mut others) };
            assert_eq!(words, others);
        }
        bits_of(&words, values.len())
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
            prop_assert_eq!(all(&values, low, high), expected);
            let narrow: Vec<i32> = values.iter().map(|v| *v as i32).collect();
            let (low32, high32) = (low as i32, high as i32);
            let expected: Vec<bool> = narrow.iter().map(|v| *v >= low32 && *v <= high32).collect();
            prop_assert_eq!(all(&narrow, low32.into(), high32.into()), expected);
            let short: Vec<i16> = values.iter().map(|v| *v as i16).collect();
            let (low16, high16) = (low as i16, high as i16);
            let expected: Vec<bool> = short.iter().map(|v| *v >= low16 && *v <= high16).collect();
            prop_assert_eq!(all(&short, low16.into(), high16.into()), expected);
            let codes: Vec<u8> = values.iter().map(|v| *v as u8).collect();
            let (low8, high8) = (low as u8, high as u8);
            let expected: Vec<bool> = codes.iter().map(|v| *v >= low8 && *v <= high8).collect();
            prop_assert_eq!(all(&codes, low8.into(), high8.into()), expected);
        }

        #[test]
        fn rows_of_bitmaps_agree_with_a_plain_loop(
            words in prop::collection::vec(prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), (0u32..64).prop_map(|bit| 1 << bit)], 0..40),
            spare in 0usize..20,
        ) {
            let expected: Vec<u32> =
                (0..words.len() * 64).filter(|i| words[i / 64] >> (i % 64) & 1 == 1).map(|i| i as u32).collect();
            prop_assert_eq!(count(&words), expected.len());
            prop_assert_eq!(count_portable(&words), expected.len());
            let mut by_table = vec![0; expected.len() + spare];
            prop_assert_eq!(write_positions(&words, 0u32, &mut by_table, expand_by_table), expected.len());
            prop_assert_eq!(&by_table[..expected.len()], &expected);
            prop_assert_eq!(places(&words, expected.len()), expected.clone());
            let mut written = vec![0; expected.len() + spare];
            prop_assert_eq!(rows(&words, 1 << 40, &mut written), expected.len());
            written.truncate(expected.len());
            prop_assert_eq!(written, expected.iter().map(|at| (1 << 40) + u64::from(*at)).collect::<Vec<_>>());
        }
    }
}
