//! Select: from a column and a predicate to a position list, without branches.
//!
//! The loop writes every position and moves the end of the list on by the predicate's outcome (0 or
//! 1). So its speed does not depend on the selectivity or on branch prediction.

use arrow_buffer::{BooleanBuffer, NullBuffer};
use std::ops::RangeInclusive;

/// A comparison of a column with a constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// =
    Equal,
    /// <>
    NotEqual,
    /// <
    Less,
    /// <=
    LessOrEqual,
    /// >
    Greater,
    /// >=
    GreaterOrEqual,
}

impl Comparison {
    /// The comparison with its sides exchanged: `a < b` is `b > a`.
    pub const fn flipped(self) -> Self {
        match self {
            Self::Equal | Self::NotEqual => self,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
        }
    }

    /// Whether it is false for all pairs of values between these bounds (both inclusive): the
    /// answer of a zone map for a block.
    pub fn never_holds(self, left: RangeInclusive<i64>, right: RangeInclusive<i64>) -> bool {
        let ((left_min, left_max), (right_min, right_max)) = (left.into_inner(), right.into_inner());
        match self {
            Self::Equal => left_max < right_min || left_min > right_max,
            Self::NotEqual => left_min == left_max && right_min == right_max && left_min == right_min,
            Self::Less => left_min >= right_max,
            Self::LessOrEqual => left_min > right_max,
            Self::Greater => left_max <= right_min,
            Self::GreaterOrEqual => left_max < right_min,
        }
    }
}

#[inline]
fn positions_where(len: usize, mut holds: impl FnMut(usize) -> bool) -> Vec<u32> {
    let mut positions = vec![0u32; len];
    let mut end = 0;
    for i in 0..len {
        // `end <= i < len`.
        positions[end] = i as u32;
        end += usize::from(holds(i));
    }
    positions.truncate(end);
    positions
}

/// The positions of the valid values for which `holds`.
#[inline]
pub(crate) fn positions_by<T: Copy>(values: &[T], nulls: Option<&NullBuffer>, holds: impl Fn(T) -> bool) -> Vec<u32> {
    match nulls {
        None => positions_where(values.len(), |i| holds(values[i])),
        Some(nulls) => positions_where(values.len(), |i| holds(values[i]) & nulls.is_valid(i)),
    }
}

/// The positions of the values for which `value <comparison> constant` holds. NULLs (invalid in
/// `nulls`) never qualify.
pub fn select<T: Copy + PartialOrd>(
    values: &[T],
    nulls: Option<&NullBuffer>,
    comparison: Comparison,
    constant: T,
) -> Vec<u32> {
    match comparison {
        Comparison::Equal => positions_by(values, nulls, |v| v == constant),
        Comparison::NotEqual => positions_by(values, nulls, |v| v != constant),
        Comparison::Less => positions_by(values, nulls, |v| v < constant),
        Comparison::LessOrEqual => positions_by(values, nulls, |v| v <= constant),
        Comparison::Greater => positions_by(values, nulls, |v| v > constant),
        Comparison::GreaterOrEqual => positions_by(values, nulls, |v| v >= constant),
    }
}

/// The positions of the valid values for which `holds`, which should be free of branches:
/// `(low <= v) & (v < high)`.
pub fn select_by<T: Copy>(values: &[T], nulls: Option<&NullBuffer>, holds: impl Fn(T) -> bool) -> Vec<u32> {
    positions_by(values, nulls, holds)
}

/// As [`select_by`], as a bitvector.
pub fn select_bits<T: Copy>(values: &[T], nulls: Option<&NullBuffer>, holds: impl Fn(T) -> bool) -> BooleanBuffer {
    let bits = BooleanBuffer::collect_bool(values.len(), |i| holds(values[i]));
    match nulls {
        None => bits,
        Some(nulls) => &bits & nulls.inner(),
    }
}

/// The number of valid values for which `holds` is true.
pub fn count_by<T: Copy>(values: &[T], nulls: Option<&NullBuffer>, holds: impl Fn(T) -> bool) -> usize {
    match nulls {
        None => values.iter().map(|&value| usize::from(holds(value))).sum(),
        Some(_) => select_bits(values, nulls, holds).count_set_bits(),
    }
}

/// The positions of the codes that are marked.
///
/// # Panics
/// When a code is not below the number of marks.
pub fn select_marked(codes: &[u16], marked: &[bool]) -> Vec<u32> {
    positions_where(codes.len(), |i| marked[codes[i] as usize])
}

/// Constants up to which [`select_views`] beats a hash table.
pub const MAX_VIEW_CONSTANTS: usize = 8;
/// Values of up to this many bytes lie in their view.
const INLINE_BYTES: usize = 12;
/// The number of a value's bytes in the first half of its view, behind the length.
const PREFIX_BYTES: usize = 4;

/// The positions of the values that are one of the `constants`, of which there are at most
/// [`MAX_VIEW_CONSTANTS`]. The values are Arrow views; `bytes_at` gives all bytes of one of them.
/// NULLs (invalid in `nulls`) never qualify.
///
/// The first halves of the views (length and prefix) decide most values. A value that passes there
/// is looked at again: the second half, or the bytes of a long value.
pub fn select_views<'a>(
    views: &[u128],
    nulls: Option<&NullBuffer>,
    constants: &[impl AsRef<[u8]>],
    bytes_at: impl Fn(usize) -> &'a [u8],
) -> Vec<u32> {
    assert!(constants.len() <= MAX_VIEW_CONSTANTS, "{} constants", constants.len());
    let constants: Vec<(&[u8], u128)> = constants.iter().map(|c| (c.as_ref(), view_of(c.as_ref()))).collect();
    let halves: Vec<u64> = constants.iter().map(|(_, view)| *view as u64).collect();
    let mut positions = match halves[..] {
        [a] => positions_by(views, nulls, |view| view as u64 == a),
        [a, b] => positions_by(views, nulls, |view| (view as u64 == a) | (view as u64 == b)),
        [a, b, c] => positions_by(views, nulls, |view| (view as u64 == a) | (view as u64 == b) | (view as u64 == c)),
        _ => positions_by(views, nulls, |view| halves.contains(&(view as u64))),
    };
    if constants.iter().any(|(bytes, _)| bytes.len() > INLINE_BYTES) {
        positions.retain(|&at| {
            let view = views[at as usize];
            constants.iter().any(|&(bytes, wanted)| match bytes.len() {
                ..=INLINE_BYTES => view == wanted,
                _ => view as u64 == wanted as u64 && bytes == bytes_at(at as usize),
            })
        });
    } else if constants.iter().any(|(bytes, _)| bytes.len() > PREFIX_BYTES) {
        let mut end = 0;
        for i in 0..positions.len() {
            let at = positions[i];
            positions[end] = at;
            end += usize::from(constants.iter().fold(false, |hit, (_, wanted)| hit | (views[at as usize] == *wanted)));
        }
        positions.truncate(end);
    }
    positions
}

/// The view of a value; of a long one only its first half.
fn view_of(bytes: &[u8]) -> u128 {
    let shown = if bytes.len() <= INLINE_BYTES { bytes } else { &bytes[..PREFIX_BYTES] };
    let mut view = [0; 16];
    view[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    view[4..4 + shown.len()].copy_from_slice(shown);
    u128::from_le_bytes(view)
}

/// The positions at which `left <comparison> right` holds, for two columns of the same rows.
///
/// # Panics
/// When the columns differ in length.
pub fn select_pairs<T: Copy + PartialOrd>(
    left: &[T],
    right: &[T],
    nulls: Option<&NullBuffer>,
    comparison: Comparison,
) -> Vec<u32> {
    assert_eq!(left.len(), right.len(), "columns of the same rows");
    fn run<T: Copy>(l: &[T], r: &[T], nulls: Option<&NullBuffer>, holds: impl Fn(T, T) -> bool) -> Vec<u32> {
        match nulls {
            None => positions_where(l.len(), |i| holds(l[i], r[i])),
            Some(nulls) => positions_where(l.len(), |i| holds(l[i], r[i]) & nulls.is_valid(i)),
        }
    }
    match comparison {
        Comparison::Equal => run(left, right, nulls, |l, r| l == r),
        Comparison::NotEqual => run(left, right, nulls, |l, r| l != r),
        Comparison::Less => run(left, right, nulls, |l, r| l < r),
        Comparison::LessOrEqual => run(left, right, nulls, |l, r| l <= r),
        Comparison::Greater => run(left, right, nulls, |l, r| l > r),
        Comparison::GreaterOrEqual => run(left, right, nulls, |l, r| l >= r),
    }
}

/// The positions of the set bits of a predicate's outcome; NULL outcomes do not qualify.
pub fn positions_of(outcome: &BooleanBuffer, nulls: Option<&NullBuffer>) -> Vec<u32> {
    match nulls {
        None => outcome.set_indices_u32().collect(),
        Some(nulls) => (outcome & nulls.inner()).set_indices_u32().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn views_are_found_as_texts_are(
            texts in prop::collection::vec(prop::option::weighted(0.9, "[ab]{0,3}|abcd[ab]{7,10}"), 0..200),
            constants in prop::collection::vec("[ab]{0,3}|abcd[ab]{7,10}", 0..=MAX_VIEW_CONSTANTS),
        ) {
            let views: Vec<u128> = texts.iter().enumerate().map(|(i, text)| {
                let bytes = text.as_deref().unwrap_or("garbage").as_bytes();
                let mut view = [0xee; 16];
                view[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
                if bytes.len() <= INLINE_BYTES {
                    view[4..].fill(0);
                    view[4..4 + bytes.len()].copy_from_slice(bytes);
                } else {
                    view[4..8].copy_from_slice(&bytes[..4]);
                    view[8] = i as u8;
                }
                u128::from_le_bytes(view)
            }).collect();
            let nulls = NullBuffer::from_iter(texts.iter().map(Option::is_some));
            let found = select_views(&views, Some(&nulls), &constants, |at| texts[at].as_deref().unwrap().as_bytes());
            let expected: Vec<u32> = (0..texts.len() as u32)
                .filter(|&at| texts[at as usize].as_ref().is_some_and(|text| constants.contains(text)))
                .collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn bounds_exclude_only_what_no_pair_of_values_fulfils() {
        let holds = |l: i64, comparison, r: i64| !select(&[l], None, comparison, r).is_empty();
        let all = [
            Comparison::Equal,
            Comparison::NotEqual,
            Comparison::Less,
            Comparison::LessOrEqual,
            Comparison::Greater,
            Comparison::GreaterOrEqual,
        ];
        for comparison in all {
            for (a, b, c, d) in (0..256).map(|i| (i & 3, i >> 2 & 3, i >> 4 & 3, i >> 6 & 3)) {
                if a > b || c > d {
                    continue;
                }
                let any = (a..=b).any(|l| (c..=d).any(|r| holds(l, comparison, r)));
                assert_eq!(comparison.never_holds(a..=b, c..=d), !any, "[{a}, {b}] {comparison:?} [{c}, {d}]");
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_row_by_row_oracle(
            values in prop::collection::vec((-3i64..3, any::<bool>()), 0..300), constant in -3i64..3, with_nulls: bool,
        ) {
            let (numbers, valid): (Vec<i64>, Vec<bool>) = values.into_iter().unzip();
            let nulls = with_nulls.then(|| NullBuffer::from(valid.clone()));
            type Holds = fn(&i64, &i64) -> bool;
            let cases: [(Comparison, Holds); 6] = [
                (Comparison::Equal, i64::eq), (Comparison::NotEqual, i64::ne), (Comparison::Less, i64::lt),
                (Comparison::LessOrEqual, i64::le), (Comparison::Greater, i64::gt), (Comparison::GreaterOrEqual, i64::ge),
            ];
            for (comparison, holds) in cases {
                let expected: Vec<u32> = (0..numbers.len())
                    .filter(|&i| holds(&numbers[i], &constant) && (!with_nulls || valid[i]))
                    .map(|i| i as u32)
                    .collect();
                prop_assert_eq!(&select(&numbers, nulls.as_ref(), comparison, constant), &expected);
                let flipped: Vec<u32> = (0..numbers.len())
                    .filter(|&i| select(&[constant], None, comparison.flipped(), numbers[i]).len() == 1 && (!with_nulls || valid[i]))
                    .map(|i| i as u32)
                    .collect();
                prop_assert_eq!(&flipped, &expected);
                let constants = vec![constant; numbers.len()];
                prop_assert_eq!(&select_pairs(&numbers, &constants, nulls.as_ref(), comparison), &expected);
            }
            let within = |n: i64| (n >= constant) & (n < constant + 2);
            let expected: Vec<u32> = (0..numbers.len())
                .filter(|&i| within(numbers[i]) && (!with_nulls || valid[i]))
                .map(|i| i as u32)
                .collect();
            let bits = select_bits(&numbers, nulls.as_ref(), within);
            prop_assert_eq!(bits.set_indices_u32().collect::<Vec<_>>(), expected.clone());
            prop_assert_eq!(count_by(&numbers, nulls.as_ref(), within), expected.len());
            prop_assert_eq!(select_by(&numbers, nulls.as_ref(), within), expected);
            let codes: Vec<u16> = numbers.iter().map(|n| (n + 3) as u16).collect();
            let marked: Vec<bool> = (-3..3).map(|n| n > constant).collect();
            prop_assert_eq!(select_marked(&codes, &marked), select(&numbers, None, Comparison::Greater, constant));
            let outcome: BooleanBuffer = numbers.iter().map(|n| *n > 0).collect();
            prop_assert_eq!(positions_of(&outcome, nulls.as_ref()), select(&numbers, nulls.as_ref(), Comparison::Greater, 0));
        }
    }
}
