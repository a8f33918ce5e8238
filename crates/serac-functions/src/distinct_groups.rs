//! `count(DISTINCT x)`, `sum(DISTINCT x)` and `avg(DISTINCT x)` of many groups.
//!
//! One set has the pairs of a group and a value, for all groups. DataFusion has such a set for
//! integers alone; for other types it makes an accumulator with a set of its own for each group.
//!
//! | values | set |
//! |---|---|
//! | of one fixed width | a hash set of the values' bits ([`Bits`]) |
//! | texts, bytes, booleans, rows | the pairs interned as a grouping by two columns ([`Interned`]) |
//!
//! Both zeros are one value, and so is every NaN. NULL is not counted. A state is the list of the
//! values of a group, as DataFusion's accumulators have it.

use super::group_lists::{lists, lists_of_rows, selected, spread, starts, too_many};
use super::zeros::single;
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Int64Array, PrimitiveArray, UInt32Array, make_array,
};
use datafusion::arrow::buffer::ScalarBuffer;
use datafusion::arrow::compute::{filter, take};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, Field, FieldRef, Schema, SchemaRef, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use datafusion::common::HashSet;
use datafusion::common::exec_datafusion_err;
use datafusion::common::hash_utils::RandomState;
use datafusion::error::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::accumulate::accumulate;
use std::hash::Hash;
use std::sync::Arc;

/// Whether [`counts`] counts distinct values of a type. Others are compared as their keys, or one
/// by one.
pub(super) fn is_counted(of: &DataType) -> bool {
    use DataType::{
        Binary, BinaryView, Boolean, FixedSizeBinary, Interval, LargeBinary, LargeUtf8, Null, Utf8, Utf8View,
    };
    match of {
        Interval(_) | Null | DataType::Float16 => false,
        Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView | Boolean | FixedSizeBinary(_) => true,
        DataType::Struct(fields) => !fields.is_empty() && fields.iter().all(|field| is_counted(field.data_type())),
        other => other.is_primitive(),
    }
}

/// The accumulator of the numbers of distinct values of a type by group; `None` for a type that is
/// not [counted](is_counted).
///
/// # Errors
/// When there is no way to keep values of the type.
pub(super) fn counts(of: &DataType) -> Result<Option<Box<dyn GroupsAccumulator>>> {
    if !is_counted(of) {
        return Ok(None);
    }
    Ok(Some(match (of, of.primitive_width()) {
        (DataType::FixedSizeBinary(16), _) | (_, Some(16)) => counted(of, Bits::<Decimal128Type>::new(of)),
        (_, Some(1)) => counted(of, Bits::<UInt8Type>::new(of)),
        (_, Some(2)) => counted(of, Bits::<UInt16Type>::new(of)),
        (_, Some(4)) => counted(of, Bits::<UInt32Type>::new(of)),
        (_, Some(8)) => counted(of, Bits::<UInt64Type>::new(of)),
        (_, Some(32)) => counted(of, Bits::<Decimal256Type>::new(of)),
        _ => counted(of, Interned::new(of)?),
    }))
}

/// The accumulator that adds the distinct values of each group to `inner`.
///
/// # Errors
/// When the type is not [counted](is_counted).
pub(super) fn distinct(of: &DataType, inner: impl GroupsAccumulator) -> Result<Box<dyn GroupsAccumulator>> {
    let values = counts(of)?.ok_or_else(|| exec_datafusion_err!("distinct values of type {of} by group"))?;
    Ok(Box::new(OfDistinct { values, inner }))
}

fn counted<S: Pairs>(of: &DataType, pairs: S) -> Box<dyn GroupsAccumulator> {
    Box::new(Counts { pairs, counts: Vec::new(), value: Arc::new(Field::new_list_field(of.clone(), true)) })
}

/// A set of pairs of a group and a value.
trait Pairs: Send + 'static {
    /// Adds the pairs of rows whose value is not NULL and whose filter is true. Adds 1 to the
    /// count of a group for each pair that is new.
    fn insert(
        &mut self,
        values: &ArrayRef,
        groups: &[usize],
        filter: Option<&BooleanArray>,
        counts: &mut [i64],
    ) -> Result<()>;

    /// Removes the pairs of the groups before `count`, and subtracts `count` from the others. The
    /// result has the values that were removed; those of a group begin at its place in `starts`.
    fn take(&mut self, count: usize, starts: Vec<usize>, total: usize) -> Result<ArrayRef>;

    /// Removes the pairs of the groups before `count`, and subtracts `count` from the others.
    fn forget(&mut self, count: usize) -> Result<()>;

    /// Removes all pairs and gives their memory back.
    fn clear(&mut self) -> Result<()>;

    fn size(&self) -> usize;
}

/// The bits of values of one width; `K` is a type of this width.
struct Bits<K: ArrowPrimitiveType<Native: Eq + Hash>> {
    of: DataType,
    pairs: HashSet<(u32, K::Native), RandomState>,
}

impl<K: ArrowPrimitiveType<Native: Eq + Hash>> Bits<K> {
    fn new(of: &DataType) -> Self {
        Self { of: of.clone(), pairs: HashSet::default() }
    }

    /// The pairs of the groups from `count` on, which is subtracted, and the others.
    fn split(&mut self, count: usize, mut removed: impl FnMut(usize, K::Native)) {
        let mut rest = HashSet::default();
        for (group, value) in std::mem::take(&mut self.pairs) {
            match (group as usize).checked_sub(count) {
                // It is less than `group`.
                Some(group) => _ = rest.insert((group as u32, value)),
                None => removed(group as usize, value),
            }
        }
        self.pairs = rest;
    }
}

/// An array whose values have the same bits and another type of the same width.
pub(super) fn retyped(array: &dyn Array, to: &DataType) -> Result<ArrayRef> {
    if array.data_type() == to {
        return Ok(make_array(array.to_data()));
    }
    Ok(make_array(array.to_data().into_builder().data_type(to.clone()).align_buffers(true).build()?))
}

impl<K: ArrowPrimitiveType<Native: Eq + Hash> + Send> Pairs for Bits<K> {
    fn insert(
        &mut self,
        values: &ArrayRef,
        groups: &[usize],
        filter: Option<&BooleanArray>,
        counts: &mut [i64],
    ) -> Result<()> {
        let values = retyped(&single(values), &K::DATA_TYPE)?;
        accumulate(groups, values.as_primitive::<K>(), filter, |group, value| {
            // `Counts` checks that the groups fit.
            if self.pairs.insert((group as u32, value)) {
                counts[group] += 1;
            }
        });
        Ok(())
    }

    fn take(&mut self, count: usize, mut starts: Vec<usize>, total: usize) -> Result<ArrayRef> {
        let mut values = vec![K::Native::default(); total];
        self.split(count, |group, value| {
            values[starts[group]] = value;
            starts[group] += 1;
        });
        retyped(&PrimitiveArray::<K>::new(ScalarBuffer::from(values), None), &self.of)
    }

    fn forget(&mut self, count: usize) -> Result<()> {
        self.split(count, |_, _| ());
        Ok(())
    }

    fn clear(&mut self) -> Result<()> {
        self.pairs = HashSet::default();
        Ok(())
    }

    fn size(&self) -> usize {
        // Seven of eight buckets are used at most, and each has one more byte.
        self.pairs.capacity().div_ceil(7) * 8 * (size_of::<(u32, K::Native)>() + 1)
    }
}

/// Pairs whose values have no fixed width.
struct Interned {
    schema: SchemaRef,
    pairs: Box<dyn GroupValues>,
    /// The numbers of the pairs of a batch.
    numbers: Vec<usize>,
}

impl Interned {
    fn new(of: &DataType) -> Result<Self> {
        let group = Field::new("group", DataType::UInt32, false);
        let schema = Arc::new(Schema::new(vec![group, Field::new("value", of.clone(), true)]));
        Ok(Self { pairs: new_group_values(schema.clone(), &GroupOrdering::None)?, schema, numbers: Vec::new() })
    }

    /// All pairs, as the groups and the values. The set is empty then.
    fn drained(&mut self) -> Result<(UInt32Array, ArrayRef)> {
        let mut columns = match self.pairs.is_empty() {
            true => Vec::new(),
            false => self.pairs.emit(EmitTo::All)?,
        };
        self.clear()?;
        let values = columns.pop();
        let groups = columns.pop();
        Ok(match (groups, values) {
            (Some(groups), Some(values)) => (groups.as_primitive::<UInt32Type>().clone(), values),
            _ => (
                UInt32Array::from(Vec::<u32>::new()),
                datafusion::arrow::array::new_empty_array(self.schema.field(1).data_type()),
            ),
        })
    }

    /// Puts the pairs of the groups from `count` on back.
    fn put_back(&mut self, groups: &UInt32Array, values: &ArrayRef, count: usize) -> Result<()> {
        let stays = |group: &u32| *group as usize >= count;
        let kept: Vec<u32> =
            groups.values().iter().filter(|group| stays(group)).map(|group| group - count as u32).collect();
        if kept.is_empty() {
            return Ok(());
        }
        let mask = BooleanArray::from_iter(groups.values().iter().map(|group| Some(stays(group))));
        let values = filter(values, &mask)?;
        self.pairs.intern(&[Arc::new(UInt32Array::from(kept)), values], &mut self.numbers)
    }
}

impl Pairs for Interned {
    fn insert(
        &mut self,
        values: &ArrayRef,
        groups: &[usize],
        of_rows: Option<&BooleanArray>,
        counts: &mut [i64],
    ) -> Result<()> {
        let selected = selected(values, of_rows);
        // `Counts` checks that the groups fit.
        let (values, groups): (_, Vec<u32>) = match &selected {
            None => (values.clone(), groups.iter().map(|group| *group as u32).collect()),
            Some(rows) => {
                let groups = rows.set_indices().map(|row| groups[row] as u32).collect();
                (filter(values, &BooleanArray::new(rows.clone(), None))?, groups)
            }
        };
        if groups.is_empty() {
            return Ok(());
        }
        let (groups, before) = (UInt32Array::from(groups), self.pairs.len());
        self.pairs.intern(&[Arc::new(groups.clone()), values], &mut self.numbers)?;
        let mut is_counted = vec![false; self.pairs.len() - before];
        for (number, group) in self.numbers.iter().zip(groups.values()) {
            if let Some(new) = number.checked_sub(before)
                && !std::mem::replace(&mut is_counted[new], true)
            {
                counts[*group as usize] += 1;
            }
        }
        Ok(())
    }

    fn take(&mut self, count: usize, mut starts: Vec<usize>, total: usize) -> Result<ArrayRef> {
        let (groups, values) = self.drained()?;
        let mut order = vec![0_u32; total];
        for (row, group) in groups.values().iter().enumerate() {
            if let Some(start) = starts.get_mut(*group as usize) {
                order[*start] = u32::try_from(row).map_err(|_| too_many("values"))?;
                *start += 1;
            }
        }
        self.put_back(&groups, &values, count)?;
        Ok(take(&values, &UInt32Array::from(order), None)?)
    }

    fn forget(&mut self, count: usize) -> Result<()> {
        let (groups, values) = self.drained()?;
        self.put_back(&groups, &values, count)
    }

    fn clear(&mut self) -> Result<()> {
        self.pairs = new_group_values(self.schema.clone(), &GroupOrdering::None)?;
        self.numbers = Vec::new();
        Ok(())
    }

    fn size(&self) -> usize {
        self.pairs.size() + self.numbers.capacity() * size_of::<usize>()
    }
}

/// The numbers of distinct values by group.
struct Counts<S> {
    pairs: S,
    counts: Vec<i64>,
    /// The field of the values in a state.
    value: FieldRef,
}

impl<S: Pairs> Counts<S> {
    fn insert(
        &mut self,
        values: &ArrayRef,
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        if u32::try_from(total).is_err() {
            return Err(too_many("groups"));
        }
        self.counts.resize(total, 0);
        self.pairs.insert(values, groups, filter, &mut self.counts)
    }
}

impl<S: Pairs> GroupsAccumulator for Counts<S> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.insert(&values[0], groups, filter, total)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        match emit_to {
            EmitTo::All => self.pairs.clear()?,
            EmitTo::First(count) => self.pairs.forget(count)?,
        }
        Ok(Arc::new(Int64Array::from(emit_to.take_needed(&mut self.counts))))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let counts = emit_to.take_needed(&mut self.counts);
        // A count is the size of a part of the set.
        let (starts, total) = starts(counts.iter().map(|count| *count as usize));
        let values = self.pairs.take(counts.len(), starts.clone(), total)?;
        Ok(vec![lists(&self.value, &starts, values)?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        let (values, groups) = spread(&states[0], groups);
        self.insert(&values, &groups, None, total)
    }

    fn convert_to_state(&self, values: &[ArrayRef], of_rows: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        Ok(vec![lists_of_rows(&self.value, &values[0], of_rows)?])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.pairs.size() + self.counts.capacity() * size_of::<i64>()
    }
}

/// Another aggregate of the distinct values of groups.
struct OfDistinct<I> {
    values: Box<dyn GroupsAccumulator>,
    /// It has no rows until groups are evaluated.
    inner: I,
}

impl<I: GroupsAccumulator> GroupsAccumulator for OfDistinct<I> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.values.update_batch(values, groups, filter, total)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let states = self.values.state(emit_to)?;
        let places: Vec<usize> = (0..states[0].len()).collect();
        let (values, groups) = spread(&states[0], &places);
        self.inner.update_batch(&[values], &groups, None, places.len())?;
        self.inner.evaluate(EmitTo::All)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.values.state(emit_to)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.values.merge_batch(states, groups, total)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.values.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.values.size() + self.inner.size()
    }
}
