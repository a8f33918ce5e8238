//! Sets of values of an indexed column: ascending intervals of keys, and NULL.

use serac_engine::table::bitmap::BitmapReader;
use serac_index::cubit::{Key, Predicate, Selected};
use serac_operators::select::Comparison;
use std::ops::Bound;

/// A cut between keys: before (false) or behind (true) a key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Cut {
    Lowest,
    At(Key, bool),
    Highest,
}

/// A set of index keys, as ascending intervals. Intervals do not touch and are not empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ValueSet {
    intervals: Vec<(Cut, Cut)>,
    null: bool,
}

/// The terms by which a set is asked for.
#[derive(Default)]
struct Parts<'s> {
    /// Single values, ascending, NULL with them.
    points: Vec<Key>,
    /// Intervals of several.
    ranges: Vec<(Bound<&'s Key>, Bound<&'s Key>)>,
    /// Every value but NULL.
    unbounded: bool,
}

impl ValueSet {
    /// NULL alone.
    pub(super) fn null() -> Self {
        Self { intervals: Vec::new(), null: true }
    }

    /// Every value but NULL.
    pub(super) fn not_null() -> Self {
        Self { intervals: vec![(Cut::Lowest, Cut::Highest)], null: false }
    }

    /// These values.
    pub(super) fn of(mut keys: Vec<Key>) -> Self {
        keys.sort_unstable();
        keys.dedup();
        let point = |key: Key| (Cut::At(key.clone(), false), Cut::At(key, true));
        Self { intervals: keys.into_iter().map(point).collect(), null: false }
    }

    /// The taken values among all values, ascending (NULL last). Neighbours become one interval.
    pub(super) fn of_all(values: impl IntoIterator<Item = (Key, bool)>) -> Self {
        let (mut intervals, mut null): (Vec<(Cut, Cut)>, _) = (Vec::new(), false);
        let mut neighbour = false;
        for (key, taken) in values {
            if key == Key::null() {
                null = taken;
                continue;
            }
            match intervals.last_mut().filter(|_| neighbour && taken) {
                Some(last) => last.1 = Cut::At(key, true),
                None if taken => intervals.push((Cut::At(key.clone(), false), Cut::At(key, true))),
                None => {}
            }
            neighbour = taken;
        }
        Self { intervals, null }
    }

    /// The values that compare with `key` as `comparison` says.
    pub(super) fn compared(comparison: Comparison, key: Key) -> Self {
        let (low, high) = match comparison {
            Comparison::Equal => return Self::of(vec![key]),
            Comparison::NotEqual => return Self::of(vec![key]).others(),
            Comparison::Less => (Cut::Lowest, Cut::At(key, false)),
            Comparison::LessOrEqual => (Cut::Lowest, Cut::At(key, true)),
            Comparison::Greater => (Cut::At(key, true), Cut::Highest),
            Comparison::GreaterOrEqual => (Cut::At(key, false), Cut::Highest),
        };
        Self { intervals: vec![(low, high)], null: false }
    }

    /// The values, NULL not among them, that are not in the set: where a comparison is false.
    pub(super) fn others(&self) -> Self {
        let mut intervals = Vec::new();
        let mut from = Cut::Lowest;
        for (low, high) in &self.intervals {
            if from < *low {
                intervals.push((from, low.clone()));
            }
            from = high.clone();
        }
        if from < Cut::Highest {
            intervals.push((from, Cut::Highest));
        }
        Self { intervals, null: false }
    }

    /// Everything that is not in the set.
    pub(super) fn complement(&self) -> Self {
        Self { null: !self.null, ..self.others() }
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        let (mut a, mut b) = (self.intervals.iter().peekable(), other.intervals.iter().peekable());
        let mut intervals = Vec::new();
        while let (Some((low, high)), Some((other_low, other_high))) = (a.peek(), b.peek()) {
            let (from, to) = (low.max(other_low), high.min(other_high));
            if from < to {
                intervals.push((from.clone(), to.clone()));
            }
            if high < other_high {
                a.next()
            } else {
                b.next()
            };
        }
        Self { intervals, null: self.null && other.null }
    }

    pub(super) fn or(&self, other: &Self) -> Self {
        self.complement().and(&other.complement()).complement()
    }

    fn parts(&self) -> Parts<'_> {
        let Parts { mut points, mut ranges, mut unbounded } = Parts::default();
        for interval in &self.intervals {
            let low = match &interval.0 {
                Cut::At(key, false) => Bound::Included(key),
                Cut::At(key, true) => Bound::Excluded(key),
                Cut::Lowest | Cut::Highest => Bound::Unbounded,
            };
            let high = match &interval.1 {
                Cut::At(key, false) => Bound::Excluded(key),
                Cut::At(key, true) => Bound::Included(key),
                Cut::Lowest | Cut::Highest => Bound::Unbounded,
            };
            match (low, high) {
                (Bound::Included(a), Bound::Included(b)) if a == b => points.push(a.clone()),
                (Bound::Unbounded, Bound::Unbounded) => unbounded = true,
                range => ranges.push(range),
            }
        }
        if self.null {
            points.push(Key::null());
        }
        Parts { points, ranges, unbounded }
    }

    /// Calls `f` with predicates that select the set, each row by one of them.
    pub(super) fn for_each_predicate(&self, mut f: impl FnMut(Predicate<'_>)) {
        let Parts { points, ranges, unbounded } = self.parts();
        // An interval without bounds ends before NULL, which is last.
        let null = Key::null();
        if unbounded {
            f(Predicate::Range(Bound::Unbounded, Bound::Excluded(&null)));
        }
        ranges.into_iter().for_each(|(low, high)| f(Predicate::Range(low, high)));
        match &points[..] {
            [] => {}
            [key] => f(Predicate::Equals(key)),
            keys => f(Predicate::In(keys)),
        }
    }

    /// The number of rows that have one of the values.
    pub(super) fn count(&self, index: &BitmapReader) -> u64 {
        let mut count = 0;
        self.for_each_predicate(|predicate| count += index.count(predicate));
        count
    }

    /// See [`serac_index::cubit::Cubit::effort`].
    pub(super) fn effort(&self, index: &BitmapReader, vector: f64, row: f64) -> f64 {
        let mut effort = 0.0;
        self.for_each_predicate(|predicate| effort += index.effort(predicate, vector, row));
        effort
    }

    /// The rows that have one of the values.
    pub(super) fn select(&self, index: &BitmapReader) -> Vec<Selected> {
        let mut parts = Vec::new();
        self.for_each_predicate(|predicate| parts.push(index.select(predicate)));
        parts
    }
}

impl ValueSet {
    /// The set for a person, with how many values (bitvectors) of the index lie in its ranges.
    pub(super) fn describe(&self, index: &BitmapReader) -> String {
        let Parts { points, ranges, unbounded } = self.parts();
        let (single, several) = (points.len() - usize::from(self.null), ranges.len() + usize::from(unbounded));
        let counted = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let mut parts = Vec::new();
        if single > 0 {
            parts.push(counted(single, "value"));
        }
        if several > 0 {
            let ranges = Self { intervals: self.intervals.clone(), null: false };
            let mut all = 0;
            ranges.for_each_predicate(|predicate| all += index.counts(predicate).len());
            parts.push(format!("{} of {}", counted(several, "range"), counted(all.saturating_sub(single), "value")));
        }
        if self.null {
            parts.push("NULL".into());
        }
        if parts.is_empty() { "nothing".into() } else { parts.join(" + ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::ops::RangeBounds;

    const COMPARISONS: [Comparison; 6] = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ];

    fn key(value: u8) -> Key {
        Key::new(&[1, value])
    }

    /// The values from 0 to 9, and 10 for NULL, that the set's predicates select, each once.
    fn members(set: &ValueSet) -> BTreeSet<u8> {
        let mut found = BTreeSet::new();
        set.for_each_predicate(|predicate| {
            let selects = |key: &Key| match predicate {
                Predicate::Equals(one) => one == key,
                Predicate::In(keys) => keys.contains(key),
                Predicate::Range(low, Bound::Unbounded) => (low, Bound::Excluded(&Key::null())).contains(key),
                Predicate::Range(low, high) => (low, high).contains(key),
            };
            for value in 0..=10 {
                if selects(&if value == 10 { Key::null() } else { key(value) }) {
                    assert!(found.insert(value), "{value} twice");
                }
            }
        });
        found
    }

    proptest! {
        #[test]
        fn sets_are_what_their_parts_make_them(steps in prop::collection::vec((0usize..6, 0u8..10, 0usize..5), 1..12)) {
            let all: BTreeSet<u8> = (0..=10).collect();
            let (mut set, mut expected) = (ValueSet::null(), BTreeSet::from([10]));
            for (comparison, value, action) in steps {
                let comparison = COMPARISONS[comparison];
                let other = ValueSet::compared(comparison, key(value));
                let others: BTreeSet<u8> = (0..10).filter(|v| match comparison {
                    Comparison::Equal => *v == value,
                    Comparison::NotEqual => *v != value,
                    Comparison::Less => *v < value,
                    Comparison::LessOrEqual => *v <= value,
                    Comparison::Greater => *v > value,
                    Comparison::GreaterOrEqual => *v >= value,
                }).collect();
                prop_assert_eq!(&members(&other), &others);
                (set, expected) = match action {
                    0 => (set.and(&other), &expected & &others),
                    1 => (set.complement(), &all - &expected),
                    2 => (set.or(&ValueSet::null()), &expected | &BTreeSet::from([10])),
                    3 => (set.others(), &(&all - &BTreeSet::from([10])) - &expected),
                    _ => (set.or(&other), &expected | &others),
                };
                prop_assert_eq!(&members(&set), &expected);
            }
            prop_assert_eq!(members(&ValueSet::of(vec![key(3), key(1), key(3)])), BTreeSet::from([1, 3]));
        }

        #[test]
        fn what_is_taken_of_all_values(taken in prop::collection::vec(any::<bool>(), 11)) {
            let of = |n: usize| if n == 10 { Key::null() } else { key(n as u8) };
            let set = ValueSet::of_all((0..11).map(|n| (of(n), taken[n])));
            prop_assert_eq!(members(&set), (0..11u8).filter(|&n| taken[n as usize]).collect());
        }
    }
}
