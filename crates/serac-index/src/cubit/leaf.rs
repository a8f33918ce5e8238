//! A leaf: the value bitvectors (VBs) of neighbouring values, at one point in time.
//!
//! A value with few rows costs 4 bytes per row and a few bytes of key: its rows follow those of its
//! neighbours in one list. A value with many has a [`Bitvector`]. A leaf with several of those, or
//! with many rows, also keeps the union of its values. With this summary, a range query takes one
//! vector for the whole leaf. Leaves are immutable; [`Leaf::apply`] makes the next one and shares
//! every vector that did not change.

use super::bitvector::Bitvector;
use super::container::Words;
use super::key::{Key, Keys};
use super::version::Bit;
use std::borrow::Cow;
use std::ops::{Bound, Range};
use std::sync::Arc;

/// A value with fewer rows has no bitvector.
const DENSE_ROWS: usize = 2048;
/// A value with fewer rows per block has no bitvector either: a container costs about 50 bytes
/// before its first row, a row in a list costs 4.
const DENSE_ROWS_PER_BLOCK: usize = 12;
/// A value with more rows has a bitvector in any case, so that a merge never copies a longer list.
const SPARSE_ROWS: usize = 65_536;
/// The most values that a leaf holds.
const MAX_VALUES: usize = 256;
const MAX_DENSE: usize = 32;
const MAX_SPARSE_ROWS: usize = 65_536;
/// Values with bitvectors from which on a leaf keeps the union of its values.
const UNION_VALUES: usize = 4;
/// Rows from which on a leaf with fewer bitvectors, but with so many values, keeps the union, if
/// they are not too thin for a bitvector.
const UNION_ROWS: u64 = 16_384;
/// The union may lag by one row for this many rows of the leaf, within the bounds below. Its
/// containers are large, so they change seldom.
const ROWS_PER_LATE_ROW: u64 = 512;
const LATE_ROWS: Range<u64> = 64..8192;
/// A union serves a part of its values if at most this many listed rows are left out.
const MOST_LEFT_OUT: usize = 4096;
/// When a union has too many late rows, the surplus goes into its vector, with one part in this
/// many of the allowed number.
const SETTLED_SHARE: usize = 16;

/// The rows of one value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Vector<'a> {
    /// Ascending, in compact form.
    Sparse(&'a [u32]),
    Dense(&'a Arc<Bitvector>),
}

impl Vector<'_> {
    pub(crate) fn cardinality(&self) -> u64 {
        match self {
            Vector::Sparse(rows) => rows.len() as u64,
            Vector::Dense(vector) => vector.cardinality(),
        }
    }

    pub(crate) fn contains(&self, row: u64) -> bool {
        match self {
            Vector::Sparse(rows) => u32::try_from(row).is_ok_and(|row| rows.binary_search(&row).is_ok()),
            Vector::Dense(vector) => vector.contains_compact(row),
        }
    }

    pub(crate) fn to_bitvector(self) -> Bitvector {
        match self {
            Vector::Sparse(rows) => Bitvector::from_sorted_compact(rows.iter().map(|&row| row as u64)),
            Vector::Dense(vector) => (**vector).clone(),
        }
    }
}

/// The rows of one value of a leaf that is being made.
#[derive(Clone, Debug)]
pub(crate) enum Entry<'a> {
    Sparse(Cow<'a, [u32]>),
    Dense(Arc<Bitvector>),
}

impl<'a> Entry<'a> {
    /// The form that suits ascending rows; `None` without rows.
    pub(crate) fn from_sorted(rows: Vec<u32>) -> Option<Self> {
        let blocks = || 1 + rows.windows(2).filter(|pair| pair[0] >> 16 != pair[1] >> 16).count();
        match rows.len() {
            0 => None,
            n if n < DENSE_ROWS || (n <= SPARSE_ROWS && n < DENSE_ROWS_PER_BLOCK * blocks()) => {
                Some(Self::Sparse(Cow::Owned(rows)))
            }
            _ => Some(Self::Dense(Arc::new(Bitvector::from_sorted_compact(rows.into_iter().map(u64::from))))),
        }
    }

    fn of(vector: Vector<'_>) -> Option<Self> {
        match vector {
            Vector::Sparse(rows) => Self::from_sorted(rows.to_vec()),
            Vector::Dense(vector) => Some(Self::Dense(vector.clone())),
        }
    }

    /// Whether a bitvector has become so thin that a list is better; half of the limit above which
    /// it was made.
    fn is_thin(vector: &Bitvector) -> bool {
        let rows = vector.cardinality() as usize;
        rows < DENSE_ROWS / 2 || (rows <= SPARSE_ROWS / 2 && rows < DENSE_ROWS_PER_BLOCK / 2 * vector.block_count())
    }

    /// The rows of both.
    fn with_rows(self, more: Vector<'_>) -> Option<Self> {
        match (self, more) {
            (Self::Sparse(rows), Vector::Sparse(more)) => {
                let mut all = [&rows[..], more].concat();
                all.sort();
                all.dedup();
                Self::from_sorted(all)
            }
            (Self::Dense(vector), more) => Some(Self::Dense(Arc::new(vector.or(&more.to_bitvector())))),
            (Self::Sparse(rows), more) => {
                let vector = Vector::Sparse(&rows).to_bitvector();
                Some(Self::Dense(Arc::new(vector.or(&more.to_bitvector()))))
            }
        }
    }

    /// The rows after `changes` (ascending by row).
    fn changed(before: Option<Vector<'a>>, changes: &[(u64, bool)], scratch: &mut Words) -> Option<Self> {
        // Rows beyond the compact form's 32 bits live in bitvectors only.
        let narrow = changes.last().is_none_or(|last| u32::try_from(last.0).is_ok());
        match before {
            Some(Vector::Dense(vector)) => {
                let mut vector = (**vector).clone();
                vector.apply(changes, scratch);
                if Self::is_thin(&vector) {
                    let rows: Result<Vec<u32>, _> =
                        vector.rows().into_iter().map(|row| u32::try_from(super::bitvector::compact(row))).collect();
                    if let Ok(rows) = rows {
                        return Self::from_sorted(rows);
                    }
                }
                Some(Self::Dense(Arc::new(vector)))
            }
            _ if narrow => {
                let mut rest = if let Some(Vector::Sparse(rows)) = before { rows } else { &[] };
                let mut after = Vec::with_capacity(rest.len() + changes.len());
                for &(row, bit) in changes {
                    let row = row as u32;
                    let at = rest.partition_point(|r| *r < row);
                    after.extend_from_slice(&rest[..at]);
                    rest = &rest[at..];
                    if rest.first() == Some(&row) {
                        rest = &rest[1..];
                    }
                    if bit {
                        after.push(row);
                    }
                }
                after.extend_from_slice(rest);
                Self::from_sorted(after)
            }
            _ => {
                let mut vector = before.map_or_else(Bitvector::default, Vector::to_bitvector);
                vector.apply(changes, scratch);
                (!vector.is_empty()).then(|| Self::Dense(Arc::new(vector)))
            }
        }
    }
}

/// One leaf: consecutive values with their rows.
#[derive(Debug, Default)]
pub(crate) struct Leaf {
    keys: Arc<Keys>,
    /// The ends of the values' rows in `rows`.
    ends: Box<[u32]>,
    rows: Box<[u32]>,
    /// Values with bitvectors, by place.
    dense: Box<[(u32, Arc<Bitvector>)]>,
    union: Option<Union>,
    row_count: u64,
}

/// The rows of all values of a leaf: those of the vector, but for the late ones.
#[derive(Clone, Debug)]
pub(crate) struct Union {
    pub(crate) vector: Bitvector,
    /// Ascending rows with their bits.
    pub(crate) late: Box<[(u64, bool)]>,
    /// The row from which on late rows go into the vector next.
    next_row: u64,
}

impl Union {
    fn new(vector: Bitvector) -> Self {
        Self { vector, late: Box::default(), next_row: 0 }
    }

    /// The union after `rows`, ascending, have got their bits; `count` rows are in the leaf.
    fn after(&self, rows: &[(u64, bool)], count: u64, scratch: &mut Words) -> Self {
        let mut late = [&self.late[..], rows].concat();
        late.sort_by_key(|row| row.0);
        let mut late = last_of_rows(&late);
        let (mut vector, mut next_row) = (self.vector.clone(), self.next_row);
        let most = (count / ROWS_PER_LATE_ROW).clamp(LATE_ROWS.start, LATE_ROWS.end) as usize;
        if late.len() > most {
            // As pending bits go into a leaf: a range of blocks after the other, and round again.
            let count = late.len() - most + most / SETTLED_SHARE;
            let first = late.partition_point(|row| row.0 < next_row);
            late.rotate_left(first);
            let last_block = late[count - 1].0 >> 16;
            let more = late[count..].iter().take_while(|row| row.0 >> 16 == last_block).count();
            let mut settled: Vec<(u64, bool)> = late.drain(..count + more).collect();
            settled.sort_unstable();
            late.sort_unstable();
            vector.apply(&settled, scratch);
            next_row = (last_block + 1) << 16;
        }
        Self { vector, late: late.into(), next_row }
    }
}

/// The last of each row's entries, which stand together.
pub(crate) fn last_of_rows(rows: &[(u64, bool)]) -> Vec<(u64, bool)> {
    rows.chunk_by(|a, b| a.0 == b.0).map(|group| group[group.len() - 1]).collect()
}

impl Leaf {
    fn assemble<'a>(keys: Arc<Keys>, entries: impl Iterator<Item = Entry<'a>>) -> Self {
        let (mut ends, mut rows, mut dense) = (Vec::with_capacity(keys.len()), Vec::new(), Vec::new());
        let mut row_count = 0;
        for (at, entry) in entries.enumerate() {
            match entry {
                Entry::Sparse(list) => {
                    row_count += list.len() as u64;
                    rows.extend_from_slice(&list);
                }
                Entry::Dense(vector) => {
                    row_count += vector.cardinality();
                    dense.push((at as u32, vector));
                }
            }
            ends.push(rows.len() as u32);
        }
        debug_assert_eq!(ends.len(), keys.len());
        Self { keys, ends: ends.into(), rows: rows.into(), dense: dense.into(), union: None, row_count }
    }

    /// The leaf of ascending values.
    pub(crate) fn from_entries(entries: Vec<(Key, Entry<'_>)>) -> Self {
        let (keys, entries): (Vec<Key>, Vec<Entry<'_>>) = entries.into_iter().unzip();
        let mut leaf = Self::assemble(Arc::new(Keys::from_sorted(&keys)), entries.into_iter());
        leaf.make_union();
        leaf
    }

    fn wants_union(&self) -> bool {
        if self.dense.len() >= UNION_VALUES {
            return true;
        }
        if self.len() < UNION_VALUES || self.row_count < UNION_ROWS {
            return false;
        }
        let ends = (0..self.len()).filter_map(|at| match self.vector(at) {
            Vector::Sparse(rows) => Some((rows.first()? >> 16, rows.last()? >> 16)),
            Vector::Dense(_) => None,
        });
        let (first, last) = ends.fold((u32::MAX, 0), |all, ends| (all.0.min(ends.0), all.1.max(ends.1)));
        self.row_count as usize >= DENSE_ROWS_PER_BLOCK * (last.saturating_sub(first) as usize + 1)
    }

    fn make_union(&mut self) {
        if self.wants_union() {
            let mut rows = self.rows.to_vec();
            rows.sort_unstable();
            let sparse = Vector::Sparse(&rows).to_bitvector();
            let vectors: Vec<&Bitvector> = self.dense.iter().map(|(_, v)| &**v).chain([&sparse]).collect();
            self.union = Some(Union::new(Bitvector::or_many(&vectors)));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Rows of values without bitvectors.
    pub(crate) fn listed_rows(&self) -> u64 {
        self.rows.len() as u64
    }

    pub(crate) fn union(&self) -> Option<&Union> {
        self.union.as_ref()
    }

    pub(crate) fn key(&self, at: usize) -> Key {
        self.keys.get(at)
    }

    pub(crate) fn find(&self, key: &Key) -> Result<usize, usize> {
        self.keys.find(key)
    }

    pub(crate) fn vector(&self, at: usize) -> Vector<'_> {
        if let Ok(dense) = self.dense.binary_search_by_key(&(at as u32), |d| d.0) {
            return Vector::Dense(&self.dense[dense].1);
        }
        Vector::Sparse(self.listed(at..at + 1))
    }

    /// The rows of the values at `places` that have no bitvectors, in the order of the values.
    pub(crate) fn listed(&self, places: Range<usize>) -> &[u32] {
        let end = |at: usize| if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.rows[end(places.start)..end(places.end)]
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Vector<'_>> {
        self.find(key).ok().map(|at| self.vector(at))
    }

    /// The bitvector of a value, if it has one.
    pub(crate) fn dense(&self, at: usize) -> Option<&Bitvector> {
        let dense = self.dense.binary_search_by_key(&(at as u32), |dense| dense.0).ok()?;
        Some(&self.dense[dense].1)
    }

    /// The values outside `places`, if subtracting them from the union is less work than uniting
    /// the values at `places`: those with bitvectors, and the ascending rows of the rest.
    pub(crate) fn left_out(&self, places: &Range<usize>) -> Option<(Vec<usize>, Vec<u64>)> {
        self.union()?;
        let (before, behind) = (self.listed(0..places.start), self.listed(places.end..self.len()));
        if 2 * places.len() <= self.len() || before.len() + behind.len() > MOST_LEFT_OUT {
            return None;
        }
        let others = (0..places.start).chain(places.end..self.len());
        let mut rows: Vec<u64> = before.iter().chain(behind).map(|&row| u64::from(row)).collect();
        rows.sort_unstable();
        Some((others.filter(|&place| self.dense(place).is_some()).collect(), rows))
    }

    /// The places of the values between two bounds.
    pub(crate) fn places(&self, low: Bound<&Key>, high: Bound<&Key>) -> Range<usize> {
        let start = match low {
            Bound::Unbounded => 0,
            Bound::Included(key) => self.find(key).unwrap_or_else(|at| at),
            Bound::Excluded(key) => self.find(key).map_or_else(|at| at, |at| at + 1),
        };
        let end = match high {
            Bound::Unbounded => self.len(),
            Bound::Included(key) => self.find(key).map_or_else(|at| at, |at| at + 1),
            Bound::Excluded(key) => self.find(key).unwrap_or_else(|at| at),
        };
        start..end.max(start)
    }

    fn entry(&self, at: usize) -> Entry<'_> {
        match self.vector(at) {
            Vector::Sparse(rows) => Entry::Sparse(Cow::Borrowed(rows)),
            Vector::Dense(vector) => Entry::Dense(vector.clone()),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.keys.bytes()
            + size_of_val(&self.ends[..])
            + size_of_val(&self.rows[..])
            + self.dense.iter().map(|(_, v)| 40 + size_of::<Bitvector>() + v.bytes()).sum::<usize>()
            + self.union.as_ref().map_or(0, |union| union.vector.bytes() + size_of_val(&union.late[..]))
    }

    /// The leaf after `bits`, by value and row.
    pub(crate) fn apply(&self, bits: &[Bit]) -> Self {
        let mut scratch = Words::default();
        enum From<'k> {
            Old(usize),
            Changes(&'k Key),
        }
        let (mut keys, mut entries) = (Vec::with_capacity(self.len() + 1), Vec::with_capacity(self.len() + 1));
        let (mut at, mut same_keys) = (0, true);
        for group in bits.chunk_by(|a, b| a.key == b.key) {
            let key = &group[0].key;
            let (found, place) = match self.find(key) {
                Ok(place) => (true, place),
                Err(place) => (false, place),
            };
            for i in at..place {
                keys.push(From::Old(i));
                entries.push(self.entry(i));
            }
            let before = found.then(|| self.vector(place));
            at = place + usize::from(found);
            let rows: Vec<(u64, bool)> = group.iter().map(|bit| (bit.row(), bit.bit())).collect();
            let after = Entry::changed(before, &rows, &mut scratch);
            same_keys &= found == after.is_some();
            if let Some(entry) = after {
                keys.push(From::Changes(key));
                entries.push(entry);
            }
        }
        for i in at..self.len() {
            keys.push(From::Old(i));
            entries.push(self.entry(i));
        }
        // An added and a removed value at the same place would leave the number as it is:
        // `same_keys` saw both.
        let keys = if same_keys {
            self.keys.clone()
        } else {
            let keys: Vec<Key> = keys
                .into_iter()
                .map(|from| match from {
                    From::Old(at) => self.key(at),
                    From::Changes(key) => key.clone(),
                })
                .collect();
            Arc::new(Keys::from_sorted(&keys))
        };
        let mut leaf = Self::assemble(keys, entries.into_iter());
        match &self.union {
            Some(union) if leaf.wants_union() => {
                // A row that goes from one value of the leaf to another stays.
                let mut rows: Vec<(u64, bool)> = bits.iter().map(|bit| (bit.row(), bit.bit())).collect();
                rows.sort_unstable();
                leaf.union = Some(union.after(&last_of_rows(&rows), leaf.row_count, &mut scratch));
            }
            _ => leaf.make_union(),
        }
        leaf
    }

    /// The leaf with more rows, by ascending values.
    pub(crate) fn with_rows<'a>(&self, more: impl Iterator<Item = (Key, Vector<'a>)>) -> Self {
        let (mut entries, mut at) = (Vec::with_capacity(self.len()), 0);
        let mut rows: Vec<Cow<'_, Bitvector>> = Vec::new();
        for (key, vector) in more {
            rows.push(match vector {
                Vector::Dense(vector) => Cow::Borrowed(&**vector),
                Vector::Sparse(_) => Cow::Owned(vector.to_bitvector()),
            });
            let (place, found) = self.find(&key).map_or_else(|place| (place, false), |place| (place, true));
            entries.extend((at..place).map(|at| (self.key(at), self.entry(at))));
            at = place + usize::from(found);
            let entry = if found { self.entry(place).with_rows(vector) } else { Entry::of(vector) };
            entries.extend(entry.map(|entry| (key, entry)));
        }
        entries.extend((at..self.len()).map(|at| (self.key(at), self.entry(at))));
        let (keys, entries): (Vec<Key>, Vec<Entry<'_>>) = entries.into_iter().unzip();
        let mut leaf = Self::assemble(Arc::new(Keys::from_sorted(&keys)), entries.into_iter());
        match &self.union {
            Some(union) if leaf.wants_union() => {
                let rows = Bitvector::or_many(&rows.iter().map(|rows| &**rows).collect::<Vec<_>>());
                let late = union.late.iter().copied().filter(|(row, _)| !rows.contains_compact(*row)).collect();
                leaf.union = Some(Union { vector: union.vector.or(&rows), late, next_row: union.next_row });
            }
            _ => leaf.make_union(),
        }
        leaf
    }

    fn weight(values: usize, dense: usize, rows: usize) -> bool {
        values > MAX_VALUES || dense > MAX_DENSE || (rows > MAX_SPARSE_ROWS && values > 1)
    }

    /// Whether it is time to split.
    pub(crate) fn is_too_large(&self) -> bool {
        Self::weight(self.len(), self.dense.len(), self.rows.len())
    }

    fn part(&self, range: Range<usize>) -> Self {
        Self::from_entries(range.map(|at| (self.key(at), self.entry(at))).collect())
    }

    /// The parts that begin at the ascending `keys`, and the part before them.
    pub(crate) fn cut(&self, keys: &[Key]) -> Vec<Self> {
        let mut start = 0;
        let places = keys.iter().map(|key| self.find(key).unwrap_or_else(|at| at)).chain([self.len()]);
        places.map(|end| self.part(std::mem::replace(&mut start, end)..end)).collect()
    }

    /// The split keys: the first values of the later parts.
    pub(crate) fn split_keys(&self) -> Vec<Key> {
        if !self.is_too_large() {
            return Vec::new();
        }
        let (mut keys, mut start, mut dense) = (Vec::new(), 0, 0);
        for at in 0..self.len() {
            let first_row = if start == 0 { 0 } else { self.ends[start - 1] };
            let rows = (self.ends[at] - first_row) as usize;
            dense += usize::from(self.dense.binary_search_by_key(&(at as u32), |d| d.0).is_ok());
            if at > start && Self::weight(2 * (at + 1 - start), 2 * dense, 2 * rows) {
                keys.push(self.key(at));
                start = at;
                dense = usize::from(matches!(self.vector(at), Vector::Dense(_)));
            }
        }
        keys
    }
}

/// Cuts a long ascending list of values into leaves with free room.
pub(crate) fn leaves(entries: impl IntoIterator<Item = (Key, Entry<'static>)>) -> Vec<(Key, Leaf)> {
    let (mut done, mut part, mut dense, mut rows) = (Vec::new(), Vec::new(), 0, 0);
    let mut finish = |part: &mut Vec<(Key, Entry<'static>)>| {
        if let Some((first, _)) = part.first() {
            done.push((first.clone(), Leaf::from_entries(std::mem::take(part))));
        }
    };
    for (key, entry) in entries {
        let (d, r) = match &entry {
            Entry::Sparse(list) => (0, list.len()),
            Entry::Dense(_) => (1, 0),
        };
        if 4 * (part.len() + 1) > 3 * MAX_VALUES
            || 4 * (dense + d) > 3 * MAX_DENSE
            || 4 * (rows + r) > 3 * MAX_SPARSE_ROWS
        {
            finish(&mut part);
            (dense, rows) = (0, 0);
        }
        (dense, rows) = (dense + d, rows + r);
        part.push((key, entry));
    }
    finish(&mut part);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(vector: Vector<'_>) -> Vec<u64> {
        vector.to_bitvector().rows().into_iter().map(super::super::bitvector::compact).collect()
    }

    fn bit(key: &Key, row: u64, bit: bool) -> Bit {
        Bit::new(key.clone(), row, bit)
    }

    #[test]
    fn a_value_has_the_form_that_suits_its_rows() {
        let key = Key::new(&[1, 7]);
        let is_dense = |leaf: &Leaf| matches!(leaf.get(&key).unwrap(), Vector::Dense(_));
        let leaf = |rows: Vec<u32>| Leaf::from_entries(vec![(key.clone(), Entry::from_sorted(rows).unwrap())]);
        assert!(!is_dense(&leaf((0..1000).collect())), "few rows");
        assert!(!is_dense(&leaf((0..10_000).map(|row| row << 14).collect())), "few rows per block");
        assert!(is_dense(&leaf((0..100_000).map(|row| row << 15).collect())), "many rows");

        // From a list to a bitvector, and back when most rows are gone.
        let mut leaf = leaf((0..1500).collect());
        let more: Vec<Bit> = (1500..5000).map(|row| bit(&key, row, true)).collect();
        leaf = leaf.apply(&more);
        assert!(is_dense(&leaf));
        assert_eq!(rows(leaf.get(&key).unwrap()), (0..5000).collect::<Vec<_>>());
        let fewer: Vec<Bit> = (10..5000).map(|row| bit(&key, row, false)).collect();
        leaf = leaf.apply(&fewer);
        assert!(!is_dense(&leaf));
        assert_eq!(rows(leaf.get(&key).unwrap()), (0..10).collect::<Vec<_>>());
        let last: Vec<Bit> = (0..10).map(|row| bit(&key, row, false)).collect();
        assert_eq!(leaf.apply(&last).len(), 0);
    }

    #[test]
    fn the_union_follows_rows_that_change_their_value_within_the_leaf() {
        let keys: Vec<Key> = (0..5).map(|byte| Key::new(&[1, byte])).collect();
        let part = |value: u32| Entry::from_sorted((0..3000).map(|row| row * 5 + value).collect()).unwrap();
        let leaf = Leaf::from_entries(keys.iter().cloned().zip((0..5).map(part)).collect());
        let all = |leaf: &Leaf| {
            let union = leaf.union().unwrap();
            let mut vector = union.vector.clone();
            vector.apply(&union.late, &mut Words::default());
            vector.rows().into_iter().map(super::super::bitvector::compact).collect::<Vec<_>>()
        };
        let mut expected: Vec<u64> = (0..15_000).collect();
        assert_eq!(all(&leaf), expected);
        // Row 4 goes from the last value to the first: in order of values the set comes first.
        let after = leaf.apply(&[bit(&keys[0], 4, true), bit(&keys[1], 1, false), bit(&keys[4], 4, false)]);
        expected.remove(1);
        assert_eq!((all(&after), all(&leaf).len()), (expected.clone(), 15_000));
        // Few rows are late; many are not, and those that come back are there.
        assert_eq!(after.union().unwrap().late.len(), 2);
        let gone: Vec<Bit> = (3..300).map(|row| bit(&keys[2], row * 5 + 2, false)).collect();
        let after = after.apply(&gone);
        assert!(after.union().unwrap().late.is_empty());
        expected.retain(|row| row % 5 != 2 || !(15..1500).contains(row));
        assert_eq!(all(&after), expected);
        let after = after.apply(&[bit(&keys[2], 17, true)]);
        expected.push(17);
        expected.sort_unstable();
        assert_eq!(all(&after), expected);
    }
}
