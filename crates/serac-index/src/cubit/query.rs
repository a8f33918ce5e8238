//! Queries: the version of each bitvector that the snapshot sees, with the bits of the log on top.
//!
//! A query loads the anchor first and the bins' chains afterwards. So all entries that the anchor
//! counts as merged are in the chains that it finds. If the snapshot is older than the anchor, its
//! versions are exact and there is no log to walk. Otherwise it replays the committed entries that
//! it sees, in log order, and at last the transaction's own changes. Queries take no latch and
//! repeat nothing: they are wait-free but for the directory's skip list. The exception is a query
//! that must see a bulk insert in the log: it merges the log first and begins again. A query's
//! result is [`Selected`], from which bitvectors are made afterwards.

use super::Cubit;
use super::bitvector::Bitvector;
use super::delta::Changes;
use super::directory::Chain;
use super::fate::Fate;
use super::key::Key;
use super::leaf::last_of_rows;
use super::log::Anchor;
use super::selected::Selected;
use super::version::{Bit, Version, balance};
use serac_storage::Timestamp;
use serac_storage::version::transaction::Snapshot;
use serac_sync::epoch::Guard;
use std::cell::Cell;
use std::ops::{Bound, Range};

/// A snapshot that the transaction manager knows as running.
pub trait ReadView {
    /// Commits up to here are seen.
    fn start(&self) -> Timestamp;
    /// The answer contains a commit of this time, which has to be durable before the answer leaves.
    fn note_read(&self, _commit: Timestamp) {}
}

impl ReadView for Snapshot {
    fn start(&self) -> Timestamp {
        Snapshot::start(self)
    }

    fn note_read(&self, commit: Timestamp) {
        Snapshot::note_read(self, commit);
    }
}

/// The values that are asked for. NULL is in no range with a bound; ask for [`Key::null`].
#[derive(Clone, Copy, Debug)]
pub enum Predicate<'a> {
    /// One value.
    Equals(&'a Key),
    /// Any of these, which are ascending and different.
    In(&'a [Key]),
    /// A range of values, with NULL only if both ends are open.
    Range(Bound<&'a Key>, Bound<&'a Key>),
}

/// A snapshot's view of a bin: the places of the values that are asked for, and their pending bits.
struct Part<'g> {
    version: &'g Version,
    places: Range<usize>,
    pending: &'g [Bit],
}

impl Part<'_> {
    fn is_whole(&self) -> bool {
        self.places.len() == self.version.leaf.len()
    }
}

/// The rows of bits that are set, or of those that are not.
fn rows_of(bits: &[Bit], set: bool) -> impl Iterator<Item = u64> {
    bits.iter().filter(move |bit| bit.bit() == set).map(Bit::row)
}

impl Cubit {
    /// A query's view of a log without bulk inserts in its part: those are merged first.
    fn reader<'a: 'g, 'g>(&'a self, view: &impl ReadView, own: Option<&Changes>, guard: &'g Guard) -> Reader<'a, 'g> {
        assert!(own.is_none_or(|own| !own.has_bulk()), "no query looks into own bulk inserts");
        loop {
            let has_bulks = self.log.has_bulks();
            let reader = Reader::new(self, view.start().0, guard);
            if !(has_bulks && reader.sees_bulk()) {
                return reader;
            }
            // The next plan is made from a clock that has passed the insert, whether or not there
            // is a plan now.
            self.merge();
        }
    }

    /// The rows that the predicate selects in a running snapshot, with its transaction's own
    /// changes, if any.
    ///
    /// # Panics
    /// If the snapshot is older than [`Cubit::valid_from`], or its own changes have a bulk insert.
    pub fn query(&self, predicate: Predicate<'_>, view: &impl ReadView, own: Option<&Changes>) -> Bitvector {
        self.select(predicate, view, own).rows(0..u32::MAX)
    }

    /// As [`query`](Self::query), up to the point from where threads go on alone, each with a range
    /// of blocks.
    pub fn select(&self, predicate: Predicate<'_>, view: &impl ReadView, own: Option<&Changes>) -> Selected {
        let guard = &serac_sync::epoch::pin();
        let reader = self.reader(view, own, guard);
        let mut selected = Selected::new();
        let mut changes: Vec<(u64, bool)> = Vec::new();
        reader.for_each_part(predicate, |_, part| {
            let leaf = &part.version.leaf;
            if let (Some(union), Some((others, mut without))) = (leaf.union(), leaf.left_out(&part.places)) {
                // If a row goes from one value to another, the set bit counts, and pending bits are
                // newer than late ones.
                let mut pending: Vec<(u64, bool)> = part.pending.iter().map(|bit| (bit.row(), bit.bit())).collect();
                pending.sort_unstable();
                // A row that is late to the union may be a value's that is left out.
                let is_left_out = |row: u64| {
                    without.binary_search(&row).is_ok() || others.iter().any(|&at| leaf.vector(at).contains(row))
                };
                let late = union.late.iter().copied().filter(|&(row, bit)| !(bit && is_left_out(row)));
                let mut rows: Vec<(u64, bool)> = late.chain(pending).collect();
                rows.sort_by_key(|row| row.0);
                let rows = last_of_rows(&rows);
                without.extend(rows.iter().filter(|(_, bit)| !bit).map(|(row, _)| *row));
                without.sort_unstable();
                selected.push_union(leaf, others, without);
                changes.extend(rows.into_iter().filter(|(_, bit)| *bit));
                return;
            }
            changes.extend(rows_of(part.pending, true).map(|row| (row, true)));
            for place in part.places {
                // Only a value's own vector is without the rows that left the value: another
                // value's may have them.
                let pending = if part.pending.is_empty() { &[] } else { part.version.pending_of(&leaf.key(place)) };
                selected.push_value(leaf, place, rows_of(pending, false).collect());
            }
        });
        changes.sort();
        reader.for_each_delta(predicate, own, |_, _, row, bit| changes.push((row, bit)));
        changes.sort_by_key(|change| change.0);
        view.note_read(Timestamp(reader.newest.get()));
        selected.finish(last_of_rows(&changes))
    }

    /// An estimate of the cost to make the predicate's bitvector. A value's or leaf's vector costs
    /// `row` for each of its rows, and `vector` at the most.
    pub fn effort(&self, predicate: Predicate<'_>, view: &impl ReadView, vector: f64, row: f64) -> f64 {
        let guard = &serac_sync::epoch::pin();
        let of = |rows: u64| (rows as f64 * row).min(vector);
        let mut effort = 0.0;
        self.reader(view, None, guard).for_each_part(predicate, |_, part| {
            let leaf = &part.version.leaf;
            let of_values = |places: &mut dyn Iterator<Item = usize>| -> f64 {
                places.map(|place| of(leaf.vector(place).cardinality())).sum()
            };
            effort += match leaf.left_out(&part.places) {
                Some((others, rows)) => {
                    of(leaf.row_count()) + of_values(&mut others.into_iter()) + rows.len() as f64 * row
                }
                None => of_values(&mut part.places.clone()),
            };
        });
        effort
    }

    /// The number of rows that the predicate selects. No bitvector is made: vectors know their
    /// cardinalities.
    pub fn count(&self, predicate: Predicate<'_>, view: &impl ReadView, own: Option<&Changes>) -> u64 {
        let guard = &serac_sync::epoch::pin();
        let reader = self.reader(view, own, guard);
        let mut count = 0;
        if let Predicate::Equals(key) = predicate {
            // The usual case without a list of parts. The bits that the version lacks alternate for
            // each row, beginning with the opposite of its own bit. So their sum is the change of
            // the last bits.
            let version = reader.version(self.directory.locate(key, guard).2);
            count = version.cardinality(key, version.pending_of(key)) as i64;
            reader.for_each_delta(predicate, own, |ts, _, _, bit| {
                if ts > version.ts {
                    count += if bit { 1 } else { -1 };
                }
            });
        } else {
            reader.for_each_count(predicate, own, |part, _, n| {
                count += match part {
                    Some(part) if part.is_whole() && part.pending.len() == part.version.pending().len() => {
                        part.version.row_count() as i64
                    }
                    Some(part) => {
                        let cardinality = |place| part.version.leaf.vector(place).cardinality() as i64;
                        part.places.clone().map(cardinality).sum::<i64>() + balance(part.pending)
                    }
                    None => n,
                };
            });
        }
        view.note_read(Timestamp(reader.newest.get()));
        u64::try_from(count).expect("a count is not negative")
    }

    /// The values that the predicate selects and that have rows, ascending, with how many.
    pub fn counts(&self, predicate: Predicate<'_>, view: &impl ReadView, own: Option<&Changes>) -> Vec<(Key, u64)> {
        let guard = &serac_sync::epoch::pin();
        let reader = self.reader(view, own, guard);
        let mut counts: std::collections::BTreeMap<Key, i64> = Default::default();
        reader.for_each_count(predicate, own, |part, key, n| match part {
            Some(part) => {
                let leaf = &part.version.leaf;
                for place in part.places.clone() {
                    counts.insert(leaf.key(place), leaf.vector(place).cardinality() as i64);
                }
                for bits in part.pending.chunk_by(|a, b| a.key == b.key) {
                    *counts.entry(bits[0].key.clone()).or_default() += balance(bits);
                }
            }
            None => *counts.entry(key.expect("a difference has a value").clone()).or_default() += n,
        });
        view.note_read(Timestamp(reader.newest.get()));
        counts.into_iter().filter(|(_, n)| *n > 0).map(|(key, n)| (key, n as u64)).collect()
    }
}

/// One query's view of the index.
struct Reader<'a, 'g> {
    index: &'a Cubit,
    start: u64,
    guard: &'g Guard,
    /// `None` if the snapshot is older.
    anchor: Option<&'g Anchor>,
    /// The newest commit that the answer depends on.
    newest: Cell<u64>,
}

impl<'a: 'g, 'g> Reader<'a, 'g> {
    fn new(index: &'a Cubit, start: u64, guard: &'g Guard) -> Self {
        assert!(start >= index.valid_from().0, "a snapshot from before the index was built");
        // SAFETY: never null; alive while the guard is held.
        let anchor = unsafe { index.log.anchor(guard).deref() };
        Reader { index, start, guard, anchor: (anchor.ts <= start).then_some(anchor), newest: Cell::new(0) }
    }

    fn sees_bulk(&self) -> bool {
        let mut sees = false;
        if let Some(anchor) = self.anchor {
            self.index.log.walk(anchor, self.guard, |ule| {
                sees |= ule.bulk().is_some() && matches!(ule.fate(), Fate::Committed(ts) if ts <= self.start);
            });
        }
        sees
    }

    fn version(&self, chain: &'g Chain) -> &'g Version {
        let version = chain.at(self.start);
        self.newest.set(self.newest.get().max(version.newest_commit));
        version
    }

    fn for_each_part(&self, predicate: Predicate<'_>, mut f: impl FnMut(&'g Chain, Part<'g>)) {
        let directory = &self.index.directory;
        match predicate {
            Predicate::Equals(key) => self.for_each_part(Predicate::In(std::slice::from_ref(key)), f),
            Predicate::In(mut keys) => {
                while let Some(first) = keys.first() {
                    let chain = directory.locate(first, self.guard).2;
                    let version = self.version(chain);
                    let here;
                    (here, keys) = keys.split_at(keys.partition_point(|key| chain.covers(key)));
                    for key in here {
                        let places = version.leaf.find(key).map_or(0..0, |place| place..place + 1);
                        let pending = version.pending_of(key);
                        if !(places.is_empty() && pending.is_empty()) {
                            f(chain, Part { version, places, pending });
                        }
                    }
                }
            }
            Predicate::Range(low, high) => {
                let first = match low {
                    Bound::Included(key) | Bound::Excluded(key) => Some(key),
                    Bound::Unbounded => None,
                };
                let null = Key::null();
                let high = if matches!((low, high), (Bound::Included(_) | Bound::Excluded(_), Bound::Unbounded)) {
                    Bound::Excluded(&null)
                } else {
                    high
                };
                for chain in directory.chains_from(first, self.guard) {
                    let version = self.version(chain);
                    let (places, pending) = (version.leaf.places(low, high), version.pending_within(low, high));
                    if !(places.is_empty() && pending.is_empty()) {
                        f(chain, Part { version, places, pending });
                    }
                    let ends = match (high, &chain.high) {
                        (Bound::Included(high) | Bound::Excluded(high), Some(end)) => high < end,
                        (_, end) => end.is_none(),
                    };
                    if ends {
                        break;
                    }
                }
            }
        }
    }

    /// The bits that the snapshot sees and the versions may lack, in order: (commit timestamp,
    /// later than all for own ones; value, row, bit).
    fn for_each_delta(&self, predicate: Predicate<'_>, own: Option<&Changes>, mut f: impl FnMut(u64, &Key, u64, bool)) {
        let null = Key::null();
        let predicate = match predicate {
            Predicate::Range(low @ (Bound::Included(_) | Bound::Excluded(_)), Bound::Unbounded) => {
                Predicate::Range(low, Bound::Excluded(&null))
            }
            other => other,
        };
        let mask = if let Predicate::Equals(key) = predicate { key.mask() } else { u64::MAX };
        if let Some(anchor) = self.anchor {
            self.index.log.walk(anchor, self.guard, |ule| {
                if !ule.may_have(mask) {
                    return;
                }
                let Fate::Committed(ts) = ule.fate() else { return };
                if ts > self.start {
                    return;
                }
                let mut g = |key: &Key, row, bit| {
                    self.newest.set(self.newest.get().max(ts));
                    f(ts, key, row, bit);
                };
                match predicate {
                    Predicate::Equals(key) => ule.for_key(key, |row, bit| g(key, row, bit)),
                    Predicate::In(keys) => ule.for_keys(keys, g),
                    Predicate::Range(low, high) => ule.for_range(low, high, g),
                }
            });
        }
        if let Some(own) = own {
            own.for_each(|key, row, bit| {
                let selected = match predicate {
                    Predicate::Equals(value) => key == value,
                    Predicate::In(keys) => keys.binary_search(key).is_ok(),
                    Predicate::Range(low, high) => std::ops::RangeBounds::contains(&(low, high), key),
                };
                if selected {
                    f(u64::MAX, key, row, bit);
                }
            });
        }
    }

    /// Calls `f` with every part, and with every value's difference from its vector's count.
    fn for_each_count(
        &self,
        predicate: Predicate<'_>,
        own: Option<&Changes>,
        mut f: impl FnMut(Option<&Part<'g>>, Option<&Key>, i64),
    ) {
        let mut flips: Vec<(Key, u64, bool)> = Vec::new();
        self.for_each_delta(predicate, own, |_, key, row, bit| flips.push((key.clone(), row, bit)));
        flips.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        let mut chains: Vec<&Chain> = Vec::new();
        self.for_each_part(predicate, |chain, part| {
            if !chains.last().is_some_and(|last| std::ptr::eq(*last, chain)) {
                chains.push(chain);
            }
            f(Some(&part), None, 0);
        });
        let mut chains = chains.into_iter().peekable();
        for group in flips.chunk_by(|a, b| (&a.0, a.1) == (&b.0, b.1)) {
            let (key, row, bit) = &group[group.len() - 1];
            while chains.next_if(|chain| !chain.covers(key)).is_some() {}
            // A chain that was not looked at has no pending bit of this row. A chain that was
            // looked at must be the same again, not a newer one.
            let was = chains.peek().is_some_and(|chain| self.version(chain).contains(key, *row));
            f(None, Some(key), i64::from(*bit) - i64::from(was));
        }
    }
}
