//! The work of one task of an aggregation on the blocks that it takes.

use super::super::exec::{BlockRows, BlockScan};
use super::super::group_columns::{BlockGroups, GroupColumn};
use super::program::Compiled;
use super::values::{KnownNumbers, SharedNumbers};
use super::{Grouping, Plan};
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Int16Type, Int32Type, Int64Type, Time64MicrosecondType, TimestampMicrosecondType,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use parking_lot::Mutex;
use serac_operators::aggregate::{Groups, Merged, Run, States, add_run_rows, add_runs, run_ends, sum_of_bits};
use serac_operators::arithmetic::{Column, Numbers, Overflow, Scratch};
use serac_storage::{BlockNo, Selection, Slot};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Up to this many combinations of bitvectors, rows are added under masks.
pub(super) const MASKED_GROUPS: usize = 16;

/// Groups outside the expected ones that are many, …
const MANY_GROUPS: usize = 16_384;
/// … and rows of them.
const MANY_ROWS: u64 = 1 << 20;

/// Groups with keys outside the range that was expected.
#[derive(Debug, Default)]
pub(super) struct Outside {
    groups: Mutex<HashMap<i64, OutsideGroup>>,
    is_large: AtomicBool,
}

#[derive(Debug)]
struct OutsideGroup {
    rows: u64,
    counts: Vec<u64>,
    sums: Vec<i128>,
    extremes: Vec<i64>,
}

impl Outside {
    /// Whether there are many groups or rows outside, so that another way to group is faster.
    pub(super) fn is_large(&self) -> bool {
        // Relaxed: a task that does not see it yet looks again after its next block.
        self.is_large.load(Ordering::Relaxed)
    }

    /// Adds rows, with the keys of their groups. The lock is not taken for none.
    fn add(&self, found: impl Iterator<Item = (i64, usize)>, rows: &Rows<'_>, states: &States) -> Result<()> {
        let mut found = found.peekable();
        if found.peek().is_none() {
            return Ok(());
        }
        let mut groups = self.groups.lock();
        for (key, row) in found {
            rows.add_outside(&mut groups, key, row, states)?;
        }
        if groups.len() > MANY_GROUPS || groups.values().map(|group| group.rows).sum::<u64>() > MANY_ROWS {
            self.is_large.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The keys, and the groups in their order; `None` if there are no groups.
    pub(super) fn into_groups(self, states: &States) -> Option<(Vec<i64>, Merged)> {
        let found = self.groups.into_inner();
        if found.is_empty() {
            return None;
        }
        let groups = Groups::new(found.len(), states, false);
        let mut keys = Vec::with_capacity(found.len());
        for (at, (key, group)) in found.into_iter().enumerate() {
            keys.push(key);
            groups.add_rows(at, group.rows);
            group.counts.iter().enumerate().for_each(|(count, &n)| groups.add_count(count, at, n));
            group.sums.iter().enumerate().for_each(|(sum, &n)| groups.add_wide(sum, at, n));
            group.extremes.iter().enumerate().for_each(|(extreme, &value)| groups.note(extreme, at, value));
        }
        Some((keys, Merged::new(vec![groups])))
    }
}

/// One task of a block aggregation.
#[derive(Debug)]
pub(super) struct Worker {
    plan: Arc<Plan>,
    columns: Arc<[GroupColumn]>,
    groups: Arc<Groups>,
    outside: Arc<Outside>,
    masked: bool,
    widened: Vec<Vec<i64>>,
    scratch: Scratch,
    by_slot: BlockGroups,
    /// For groups by values: the numbers of all tasks, those that this one has met, and those of
    /// the block's rows.
    numbers: Option<Arc<SharedNumbers>>,
    known: KnownNumbers,
    by_row: Vec<u32>,
    /// The groups of a block that has few, with their rows; by group, one more than its place
    /// there.
    masks: Vec<(u32, Vec<u64>)>,
    places: Vec<u8>,
    /// The ends of runs of equal keys.
    ends: Vec<u32>,
    runs: Vec<Run>,
    /// Sums up to each row.
    sums: Vec<i64>,
}

pub(super) fn overflow(_: Overflow) -> DataFusionError {
    ArrowError::ArithmeticOverflow("a decimal of an aggregate exceeds 38 digits".into()).into()
}

/// The array's values; `widened` has them where they are narrower.
fn integers<'a>(array: &'a ArrayRef, widened: &'a mut Vec<i64>) -> Result<&'a [i64]> {
    fn widen<'a, T: Copy + Into<i64>>(values: &[T], widened: &'a mut Vec<i64>) -> &'a [i64] {
        widened.clear();
        widened.extend(values.iter().map(|&value| value.into()));
        widened
    }
    Ok(match array.data_type() {
        DataType::Int16 => widen(array.as_primitive::<Int16Type>().values(), widened),
        DataType::Int32 => widen(array.as_primitive::<Int32Type>().values(), widened),
        DataType::Date32 => widen(array.as_primitive::<Date32Type>().values(), widened),
        DataType::Int64 => array.as_primitive::<Int64Type>().values(),
        DataType::Time64(_) => array.as_primitive::<Time64MicrosecondType>().values(),
        DataType::Timestamp(..) => array.as_primitive::<TimestampMicrosecondType>().values(),
        other => return Err(DataFusionError::Internal(format!("{other} is not aggregated as integers"))),
    })
}

fn is_set(bits: &[u64], at: usize) -> bool {
    bits[at / 64] >> (at % 64) & 1 == 1
}
fn ones(bits: &[u64]) -> u64 {
    bits.iter().map(|word| u64::from(word.count_ones())).sum()
}
fn and(a: &[u64], b: &[u64]) -> Vec<u64> {
    a.iter().zip(b).map(|(a, b)| a & b).collect()
}
fn all_ones(rows: usize) -> Vec<u64> {
    let mut bits = vec![u64::MAX; rows.div_ceil(64)];
    if !rows.is_multiple_of(64) {
        bits[rows / 64] = (1 << (rows % 64)) - 1;
    }
    bits
}
pub(super) fn positions(bits: &[u64]) -> impl Iterator<Item = usize> {
    bits.iter().enumerate().flat_map(|(i, &word)| {
        std::iter::successors((word != 0).then_some(word), |rest| Some(rest & (rest - 1)).filter(|rest| *rest != 0))
            .map(move |rest| i * 64 + rest.trailing_zeros() as usize)
    })
}

/// The least and the greatest value of the rows whose bits are set.
fn extremes_of(values: &[i64], mask: &[u64]) -> Option<(i64, i64)> {
    let both = |(least, greatest): (i64, i64), value: &i64| (least.min(*value), greatest.max(*value));
    let mut found = (i64::MAX, i64::MIN);
    for (values, &word) in values.chunks(64).zip(mask) {
        found = match word {
            u64::MAX => values.iter().fold(found, both),
            _ => positions(&[word]).map(|row| &values[row]).fold(found, both),
        };
    }
    Some(found).filter(|(least, greatest)| least <= greatest)
}

/// The groups of the wanted rows, with these as bits. False if there are more than
/// [`MASKED_GROUPS`], or one of them is not below `len`.
fn masks_of(
    numbers: &[u32],
    len: u32,
    wanted: Option<&[u64]>,
    masks: &mut Vec<(u32, Vec<u64>)>,
    places: &mut Vec<u8>,
) -> bool {
    masks.drain(..).for_each(|(group, _)| places[group as usize] = 0);
    let mut note = |row: usize| {
        let group = numbers[row];
        let at = group as usize;
        if at >= places.len() {
            if group >= len {
                return false;
            }
            places.resize(at + 1, 0);
        }
        if places[at] == 0 {
            if masks.len() == MASKED_GROUPS {
                return false;
            }
            masks.push((group, vec![0; numbers.len().div_ceil(64)]));
            places[at] = masks.len() as u8;
        }
        masks[usize::from(places[at]) - 1].1[row / 64] |= 1 << (row % 64);
        true
    };
    match wanted {
        None => (0..numbers.len()).all(note),
        Some(wanted) => positions(wanted).all(&mut note),
    }
}

/// For each set of columns that may be NULL, the rows without NULLs; `None` if all rows are.
fn validity(compiled: &Compiled, arrays: &[ArrayRef]) -> Vec<Option<Vec<u64>>> {
    let of_set = |set: &Vec<usize>| {
        let nulls = set.iter().filter_map(|&at| arrays[at].nulls().filter(|nulls| nulls.null_count() > 0));
        nulls.map(|nulls| nulls.inner().bit_chunks().iter_padded().collect::<Vec<u64>>()).reduce(|a, b| and(&a, &b))
    };
    compiled.nullable.iter().map(of_set).collect()
}

/// The rows of a block as an aggregation sees them.
struct Rows<'a> {
    compiled: &'a Compiled,
    columns: &'a [Column<'a>],
    valid: &'a [Option<Vec<u64>>],
    scratch: &'a Scratch,
}

impl Rows<'_> {
    fn valid(&self, set: Option<usize>) -> Option<&[u64]> {
        self.valid[set?].as_deref()
    }

    fn numbers(&self, step: usize) -> Numbers<'_> {
        self.compiled.program.numbers(step, self.columns, self.scratch)
    }

    fn number(&self, step: usize, row: usize) -> Result<i128> {
        self.compiled.program.row(step, self.columns, row).map_err(overflow)
    }

    /// Adds the rows whose bits are set to one group.
    fn add_bits(&self, groups: &Groups, group: usize, mask: &[u64]) -> Result<()> {
        let masked = |set: Option<usize>| match self.valid(set) {
            Some(valid) => Cow::Owned(and(mask, valid)),
            None => Cow::Borrowed(mask),
        };
        groups.add_rows(group, ones(mask));
        for set in 0..self.valid.len() {
            groups.add_count(set, group, ones(&masked(Some(set))));
        }
        for (sum, &(step, set)) in self.compiled.sums.iter().enumerate() {
            let mask = masked(set);
            match sum_of_bits(&self.numbers(step), &mask) {
                Some(total) => groups.add_wide(sum, group, total),
                None => positions(&mask)
                    .try_for_each(|row| self.number(step, row).map(|n| groups.add_wide(sum, group, n)))?,
            }
        }
        for (extreme, &(column, set)) in self.compiled.extremes.iter().enumerate() {
            if let Some((least, greatest)) = extremes_of(self.columns[column].values(), &masked(set)) {
                groups.note(extreme, group, least);
                groups.note(extreme, group, greatest);
            }
        }
        Ok(())
    }

    /// Adds all rows to the groups of their runs, but for those of the group `ignored`.
    fn add_runs(&self, groups: &Groups, runs: &[Run], ignored: u32, sums: &mut Vec<i64>) -> Result<()> {
        let ranges = |f: &mut dyn FnMut(u32, Range<usize>) -> Result<()>| {
            let mut first = 0;
            runs.iter()
                .try_for_each(|&(group, end)| f(group, std::mem::replace(&mut first, end as usize)..end as usize))
        };
        add_run_rows(groups, runs);
        for set in 0..self.valid.len() {
            let valid = self.valid(Some(set));
            ranges(&mut |group, rows| {
                let n = valid.map_or(rows.len(), |valid| rows.filter(|&row| is_set(valid, row)).count());
                groups.add_count(set, group as usize, n as u64);
                Ok(())
            })?;
        }
        for (sum, &(step, set)) in self.compiled.sums.iter().enumerate() {
            let valid = self.valid(set);
            if !add_runs(groups, sum, &self.numbers(step), runs, valid, sums) {
                ranges(&mut |group, rows| {
                    let mut rows = rows.filter(|&row| group != ignored && valid.is_none_or(|valid| is_set(valid, row)));
                    rows.try_for_each(|row| self.number(step, row).map(|n| groups.add_wide(sum, group as usize, n)))
                })?;
            }
        }
        for (extreme, &(column, set)) in self.compiled.extremes.iter().enumerate() {
            let (values, valid) = (self.columns[column].values(), self.valid(set));
            ranges(&mut |group, rows| {
                let rows = rows.filter(|&row| valid.is_none_or(|valid| is_set(valid, row)));
                rows.for_each(|row| groups.note(extreme, group as usize, values[row]));
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Adds one row to the group of a key outside the range.
    fn add_outside(
        &self,
        groups: &mut HashMap<i64, OutsideGroup>,
        key: i64,
        row: usize,
        states: &States,
    ) -> Result<()> {
        let group = groups.entry(key).or_insert_with(|| OutsideGroup {
            rows: 0,
            counts: vec![0; states.counts],
            sums: vec![0; states.sums],
            extremes: states.extremes.iter().map(|&smallest| if smallest { i64::MAX } else { i64::MIN }).collect(),
        });
        let is_valid = |set: Option<usize>| self.valid(set).is_none_or(|valid| is_set(valid, row));
        group.rows += 1;
        for (set, count) in group.counts.iter_mut().enumerate() {
            *count += u64::from(is_valid(Some(set)));
        }
        for (sum, &(step, set)) in group.sums.iter_mut().zip(&self.compiled.sums) {
            if is_valid(set) {
                *sum = sum.checked_add(self.number(step, row)?).ok_or_else(|| overflow(Overflow))?;
            }
        }
        for ((extreme, &smallest), &(column, set)) in
            group.extremes.iter_mut().zip(&states.extremes).zip(&self.compiled.extremes)
        {
            if is_valid(set) {
                let value = self.columns[column].values()[row];
                *extreme = if smallest { value.min(*extreme) } else { value.max(*extreme) };
            }
        }
        Ok(())
    }
}

impl Worker {
    pub(super) fn new(
        plan: Arc<Plan>,
        columns: Arc<[GroupColumn]>,
        groups: Arc<Groups>,
        outside: Arc<Outside>,
        numbers: Option<Arc<SharedNumbers>>,
    ) -> Self {
        let masked = match plan.grouping {
            Grouping::Nothing | Grouping::Values { .. } => true,
            Grouping::Bitmaps(_) => GroupColumn::combinations(&columns) <= MASKED_GROUPS,
            Grouping::Keys { .. } => false,
        };
        let widened = vec![Vec::new(); plan.compiled.columns.len()];
        let (scratch, by_slot, ends, runs, sums) = Default::default();
        let (known, by_row, masks, places) = Default::default();
        Self {
            plan,
            columns,
            groups,
            outside,
            masked,
            widened,
            scratch,
            by_slot,
            numbers,
            known,
            by_row,
            masks,
            places,
            ends,
            runs,
            sums,
        }
    }

    /// Adds a block's rows.
    pub(super) fn add(&mut self, blocks: &mut BlockScan, no: BlockNo) -> Result<()> {
        let compiled = &self.plan.compiled;
        let read = match &self.plan.grouping {
            Grouping::Values { columns, .. } => Cow::Owned([&compiled.columns[..], columns].concat()),
            _ => Cow::Borrowed(&compiled.columns),
        };
        let Some(BlockRows { no, slots, wanted, columns: mut arrays }) = blocks.rows(no, &read, self.masked)? else {
            return Ok(());
        };
        let by = arrays.split_off(compiled.columns.len());
        let columns = arrays.iter().zip(&mut self.widened);
        let columns = columns.map(|(array, widened)| integers(array, widened).map(Column::new));
        let columns: Vec<Column<'_>> = columns.collect::<Result<_>>()?;
        let valid = validity(compiled, &arrays);
        compiled.program.run(&columns, slots.len(), &mut self.scratch);
        let rows = Rows { compiled, columns: &columns, valid: &valid, scratch: &self.scratch };
        let runs = &mut self.runs;
        runs.clear();
        match self.plan.grouping {
            Grouping::Nothing => {
                let mask = wanted.unwrap_or_else(|| all_ones(slots.len()));
                rows.add_bits(&self.groups, 0, &mask)
            }
            Grouping::Bitmaps(_) => {
                if let (Selection::All(all), true) = (&slots, self.masked) {
                    let mask = wanted.unwrap_or_else(|| all_ones(*all as usize));
                    let mut outcome = Ok(());
                    GroupColumn::for_each_group(&self.columns, no, &mask, |group, mask| {
                        if outcome.is_ok() {
                            outcome = rows.add_bits(&self.groups, group, mask);
                        }
                    });
                    return outcome;
                }
                self.by_slot.load(no, &self.columns);
                let mut run_on = |row: usize, group: u32| match runs.last_mut() {
                    Some(last) if last.0 == group => last.1 = row as u32 + 1,
                    _ => runs.push((group, row as u32 + 1)),
                };
                match &slots {
                    Selection::All(all) => {
                        (0..*all).for_each(|slot| run_on(slot as usize, self.by_slot.number(Slot(slot))));
                    }
                    Selection::Positions(slots) => {
                        slots.iter().enumerate().for_each(|(row, &slot)| run_on(row, self.by_slot.number(Slot(slot))));
                    }
                }
                rows.add_runs(&self.groups, runs, u32::MAX, &mut self.sums)
            }
            Grouping::Values { len, .. } => {
                let Some(shared) = &self.numbers else { return Err(super::without_numbers()) };
                self.known.number(&by, wanted.as_deref(), shared, &mut self.by_row)?;
                let numbers = &self.by_row;
                if masks_of(numbers, len as u32, wanted.as_deref(), &mut self.masks, &mut self.places) {
                    let mut masks = self.masks.iter();
                    return masks.try_for_each(|(group, mask)| rows.add_bits(&self.groups, *group as usize, mask));
                }
                let ignored = len as u32;
                let is_wanted = |row: usize| wanted.as_deref().is_none_or(|wanted| is_set(wanted, row));
                let mut outside = Vec::new();
                for (row, &number) in numbers.iter().enumerate() {
                    let group = if !is_wanted(row) {
                        ignored
                    } else if number < ignored {
                        number
                    } else {
                        outside.push(row);
                        ignored
                    };
                    match runs.last_mut() {
                        Some(last) if last.0 == group => last.1 = row as u32 + 1,
                        _ => runs.push((group, row as u32 + 1)),
                    }
                }
                rows.add_runs(&self.groups, runs, ignored, &mut self.sums)?;
                let found = outside.into_iter().map(|row| (numbers[row].into(), row));
                self.outside.add(found, &rows, &self.plan.states)
            }
            Grouping::Keys { column, first, len } => {
                let (null, ignored) = (len as u32, len as u32 + 1);
                let keys = columns[column].values();
                let nulls = arrays[column].nulls().filter(|nulls| nulls.null_count() > 0);
                match nulls {
                    None => run_ends(keys, &mut self.ends),
                    Some(nulls) => {
                        let differs =
                            |&row: &usize| keys[row] != keys[row - 1] || nulls.is_null(row) != nulls.is_null(row - 1);
                        self.ends.clear();
                        self.ends.extend((1..keys.len()).filter(differs).chain([keys.len()]).map(|row| row as u32));
                    }
                }
                let mut outside: Vec<Range<usize>> = Vec::new();
                let mut begin = 0;
                runs.extend(self.ends.iter().map(|&end| {
                    let row = end as usize - 1;
                    let number = keys[row].wrapping_sub(first).cast_unsigned();
                    let group = if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                        null
                    } else if number < len as u64 {
                        number as u32
                    } else {
                        outside.push(begin..end as usize);
                        ignored
                    };
                    begin = end as usize;
                    (group, end)
                }));
                rows.add_runs(&self.groups, runs, ignored, &mut self.sums)?;
                let found = outside.into_iter().flatten().map(|row| (keys[row], row));
                self.outside.add(found, &rows, &self.plan.states)
            }
        }
    }
}
