//! Rows in ascending order.

/// Up to this many rows are sorted by comparison.
const FEW: usize = 4_096;
/// Bits of a digit: its counters stay in the first-level cache.
const DIGIT: u32 = 11;

/// Sorts row numbers, and leaves one of each. Many rows are sorted digit by digit, in linear time.
/// That takes as much memory again as the rows.
pub fn sort_rows(rows: &mut Vec<u64>) {
    if !rows.is_sorted() {
        if rows.len() <= FEW {
            rows.sort_unstable();
        } else {
            sort_by_digits(rows);
        }
    }
    rows.dedup();
}

fn sort_by_digits(rows: &mut Vec<u64>) {
    let used = rows.iter().fold(0, |bits, row| bits | row);
    let mut sorted = vec![0; rows.len()];
    for shift in (0..u64::BITS - used.leading_zeros()).step_by(DIGIT as usize) {
        let digit = |row: u64| (row >> shift) as usize & ((1 << DIGIT) - 1);
        let mut next = [0usize; 1 << DIGIT];
        rows.iter().for_each(|row| next[digit(*row)] += 1);
        if next.contains(&rows.len()) {
            continue;
        }
        let mut first = 0;
        for next in &mut next {
            first += std::mem::replace(next, first);
        }
        for &row in rows.iter() {
            let place = &mut next[digit(row)];
            sorted[*place] = row;
            *place += 1;
        }
        std::mem::swap(rows, &mut sorted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_are_sorted_and_different(
            rows in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..1_000, (0u64..50, 0u64..40_000).prop_map(|(b, s)| b << 20 | s)], 0..300),
            times in 1usize..40,
        ) {
            let mut expected = rows.clone();
            expected.sort_unstable();
            expected.dedup();
            let mut sorted = rows.repeat(times);
            sort_rows(&mut sorted);
            prop_assert_eq!(&sorted, &expected);
            let mut by_digits = rows;
            sort_by_digits(&mut by_digits);
            by_digits.dedup();
            prop_assert_eq!(&by_digits, &expected);
        }
    }
}
