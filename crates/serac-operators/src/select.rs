//! Select: from a column and a predicate to a position list, without branches.
//!
//! The loop writes every position and moves the end of the list on by the predicate's outcome (0 or 1), so that its speed does not depend on how many rows
//! qualify or on whether that can be predicted.

use arrow_buffer::{BooleanBuffer, NullBuffer};
use std::ops::RangeInclusive;

/// How a column is compared with a constant.
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

    /// Whether it holds for no pair of values between these bounds (both inclusive): what a zone map says about a block.
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

/// The positions of the values for which `value <comparison> constant` holds. NULLs (invalid in `nulls`) never qualify.
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

/// The positions of the codes that are marked.
///
/// # Panics
/// When a code is not below the number of marks.
pub fn select_marked(codes: &[u16], marked: &[bool]) -> Vec<u32> {
    positions_where(codes.len(), |i| marked[codes[i] as usize])
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
            let codes: Vec<u16> = numbers.iter().map(|n| (n + 3) as u16).collect();
            let marked: Vec<bool> = (-3..3).map(|n| n > constant).collect();
            prop_assert_eq!(select_marked(&codes, &marked), select(&numbers, None, Comparison::Greater, constant));
            let outcome: BooleanBuffer = numbers.iter().map(|n| *n > 0).collect();
            prop_assert_eq!(positions_of(&outcome, nulls.as_ref()), select(&numbers, nulls.as_ref(), Comparison::Greater, 0));
        }
    }
}
