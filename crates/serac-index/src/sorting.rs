//! A sort that can be given up on the way.

use std::cmp::Ordering;

/// Items that are sorted between two calls of `go_on`: a few tens of milliseconds.
const PART: usize = 1 << 18;

/// Sorts items in place; items that are equal come in any order. `go_on` is asked time and again,
/// and ends the sort by failing. The order of the items is then undefined.
///
/// # Errors
/// The errors of `go_on`.
pub fn sort<T, E>(
    items: &mut [T],
    compare: impl Fn(&T, &T) -> Ordering,
    mut go_on: impl FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let mut parts = vec![items];
    while let Some(part) = parts.pop() {
        go_on()?;
        if part.len() <= PART {
            part.sort_unstable_by(&compare);
            continue;
        }
        // Items that belong before the middle are moved there, in linear time.
        let (below, _, above) = part.select_nth_unstable_by(part.len() / 2, &compare);
        parts.push(above);
        parts.push(below);
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn items_are_sorted_unless_the_sort_is_given_up() {
        let mixed = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        for len in [0, 1, 1_000, PART, PART + 1, 3 * PART + 7] {
            for different in [1, 100, u64::MAX] {
                let items: Vec<u64> = (0..len as u64).map(|i| mixed(i) % different).collect();
                let (mut sorted, mut expected, mut asked) = (items.clone(), items, 0);
                expected.sort_unstable();
                let all = sort(&mut sorted, Ord::cmp, || {
                    asked += 1;
                    Ok::<_, ()>(())
                });
                assert_eq!(all, Ok(()));
                assert_eq!(sorted, expected);
                assert!(asked >= len.div_ceil(PART), "{asked} questions for {len} items");
            }
        }
        let (mut items, mut asked) = ((0..4 * PART).rev().collect::<Vec<_>>(), 0);
        let ended = sort(&mut items, Ord::cmp, || {
            asked += 1;
            if asked == 3 { Err("given up") } else { Ok(()) }
        });
        assert_eq!(ended, Err("given up"));
        items.sort_unstable();
        assert!(items.into_iter().eq(0..4 * PART), "no item is lost");
    }
}
