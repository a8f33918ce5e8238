//! A hash table of groups with their accumulators, and rows that wait for it.

use super::keys::{KeyLayout, KeyRows, Keys, MOST_TEXT_BYTES, Packed};
use super::plan::{AggregatePlan, Kind};
use datafusion::arrow::array::{Array, ArrayRef, BooleanArray};
use datafusion::arrow::compute::concat;
use datafusion::common::{DataFusionError, Result, resources_err};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

/// A place that has no group.
const EMPTY: u64 = u64::MAX;
/// Places at the beginning, as a power of two.
const FIRST_BITS: u32 = 8;

/// Groups. A place has the hash of a group and its number:
///
/// ```text
/// | hash | number |
/// ```
///
/// The first bits of the hash say where the search begins. So places can be moved without the keys.
pub(super) struct Table<P, const TEXT: bool> {
    keys: Keys<P>,
    places: Vec<u64>,
    /// The bits of a hash that do not name a place.
    shift: u32,
    accumulators: Vec<Box<dyn GroupsAccumulator>>,
    /// The groups of the rows that are looked up.
    groups: Vec<usize>,
    /// Columns of the aggregates' constants, as long as the most rows so far.
    constants: Vec<ArrayRef>,
}

impl<P: Packed, const TEXT: bool> Table<P, TEXT> {
    pub(super) fn new(plan: &AggregatePlan) -> Result<Self> {
        Ok(Self {
            keys: Keys::default(),
            places: Vec::new(),
            shift: 32 - FIRST_BITS,
            accumulators: plan.accumulators()?,
            groups: Vec::new(),
            constants: Vec::new(),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The bytes that it takes.
    pub(super) fn size(&self) -> usize {
        let accumulators: usize = self.accumulators.iter().map(|accumulator| accumulator.size()).sum();
        let places = self.places.capacity() * size_of::<u64>() + self.groups.capacity() * size_of::<usize>();
        self.keys.size() + places + accumulators
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.keys.heap_bytes()
    }

    /// Adds rows or states.
    pub(super) fn add(
        &mut self,
        plan: &AggregatePlan,
        kind: Kind,
        keys: KeyRows<'_, P>,
        hashes: &[u32],
        columns: &[ArrayRef],
    ) -> Result<()> {
        let mut groups = std::mem::take(&mut self.groups);
        self.find(keys, hashes, &mut groups)?;
        let all = self.keys.len();
        match kind {
            Kind::Rows => {
                let rows = hashes.len();
                if self.constants.first().is_some_and(|constant| constant.len() < rows) || self.constants.is_empty() {
                    self.constants = plan.constants(rows)?;
                }
                let constants: Vec<ArrayRef> = self.constants.iter().map(|constant| constant.slice(0, rows)).collect();
                for (accumulator, inputs) in self.accumulators.iter_mut().zip(&plan.inputs) {
                    let arguments = inputs.arguments(columns, &constants);
                    let filter: Option<&BooleanArray> = inputs.filter(columns);
                    accumulator.update_batch(&arguments, &groups, filter, all)?;
                }
            }
            Kind::States => {
                let mut rest = columns;
                for (accumulator, states) in self.accumulators.iter_mut().zip(&plan.states) {
                    let (own, others) = rest.split_at(*states);
                    accumulator.merge_batch(own, &groups, all)?;
                    rest = others;
                }
            }
        }
        self.groups = groups;
        Ok(())
    }

    /// The group of each row.
    fn find(&mut self, rows: KeyRows<'_, P>, hashes: &[u32], groups: &mut Vec<usize>) -> Result<()> {
        groups.clear();
        groups.resize(hashes.len(), 0);
        if self.places.is_empty() {
            self.places.resize(1 << FIRST_BITS, EMPTY);
        }
        let mut row = 0;
        while let Some(place) = self.find_known(rows, hashes, groups, &mut row) {
            groups[row] = self.insert(rows, row, hashes[row], place)?;
            row += 1;
        }
        Ok(())
    }

    /// The groups of rows from `row` on, until one has a new group. Returns the place for it.
    #[inline]
    fn find_known(&self, rows: KeyRows<'_, P>, hashes: &[u32], groups: &mut [usize], row: &mut usize) -> Option<usize> {
        let (places, shift) = (self.places.as_slice(), self.shift);
        let mask = places.len() - 1;
        let first = *row;
        for (at, (hash, known)) in (first..).zip(hashes[first..].iter().zip(&mut groups[first..])) {
            let mut place = (hash >> shift) as usize;
            loop {
                let found = places[place & mask];
                if found == EMPTY {
                    *row = at;
                    return Some(place & mask);
                }
                let group = found as u32 as usize;
                if (found >> 32) as u32 == *hash && self.keys.is_equal::<TEXT>(group, rows, at) {
                    *known = group;
                    break;
                }
                place += 1;
            }
        }
        None
    }

    fn insert(&mut self, rows: KeyRows<'_, P>, row: usize, hash: u32, place: usize) -> Result<usize> {
        let group = self.keys.len();
        if self.shift == 1 && 2 * group >= self.places.len() {
            return resources_err!("a hash table has too many groups");
        }
        self.places[place] = u64::from(hash) << 32 | group as u64;
        self.keys.push::<TEXT>(rows, row);
        if self.keys.heap_bytes() > MOST_TEXT_BYTES {
            return resources_err!("the texts of groups take too many bytes");
        }
        if 2 * self.keys.len() > self.places.len() {
            self.grow();
        }
        Ok(group)
    }

    /// Takes twice as many places.
    fn grow(&mut self) {
        self.shift -= 1;
        let all = 2 * self.places.len();
        let old = std::mem::replace(&mut self.places, vec![EMPTY; all]);
        for found in old.into_iter().filter(|found| *found != EMPTY) {
            let mut place = ((found >> 32) as u32 >> self.shift) as usize;
            while self.places[place] != EMPTY {
                place = (place + 1) & (all - 1);
            }
            self.places[place] = found;
        }
    }

    /// The keys of all groups, and their states or results. The table is empty then.
    pub(super) fn take(&mut self, layout: &KeyLayout, kind: Taken) -> Result<(Vec<ArrayRef>, Vec<ArrayRef>)> {
        let keys = layout.unpack(std::mem::take(&mut self.keys))?;
        (self.places, self.shift) = (Vec::new(), 32 - FIRST_BITS);
        let mut columns = Vec::new();
        for accumulator in &mut self.accumulators {
            match kind {
                Taken::States => columns.extend(accumulator.state(EmitTo::All)?),
                Taken::Results => columns.push(accumulator.evaluate(EmitTo::All)?),
            }
        }
        Ok((keys, columns))
    }
}

/// The output of a table.
#[derive(Clone, Copy)]
pub(super) enum Taken {
    States,
    Results,
}

/// Rows or states of a bucket that wait for its table.
#[derive(Default)]
pub(super) struct Waiting<P> {
    pub(super) keys: Keys<P>,
    pub(super) hashes: Vec<u32>,
    /// Pieces of columns: those of each batch.
    pub(super) pieces: Vec<Vec<ArrayRef>>,
}

impl<P: Packed> Waiting<P> {
    pub(super) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Adds them to a table, and forgets them.
    pub(super) fn merge<const TEXT: bool>(
        &mut self,
        table: &mut Table<P, TEXT>,
        plan: &AggregatePlan,
        kind: Kind,
    ) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let columns = self.pieces.iter().map(|pieces| {
            let pieces: Vec<&dyn Array> = pieces.iter().map(|piece| piece.as_ref()).collect();
            concat(&pieces).map_err(DataFusionError::from)
        });
        let columns: Vec<ArrayRef> = columns.collect::<Result<_>>()?;
        self.pieces.iter_mut().for_each(Vec::clear);
        table.add(plan, kind, self.keys.rows(&[self.keys.heap()]), &self.hashes, &columns)?;
        self.keys.clear();
        self.hashes.clear();
        Ok(())
    }
}
