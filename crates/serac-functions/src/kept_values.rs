//! The values of many groups, without NULLs, kept until all are there. [`super::ordered_sets`]
//! chooses among them.
//!
//! Values come in any order of groups, and are appended with the numbers of their groups. When
//! groups leave, their values are put in the order of the groups: the number of values of each
//! group is known, so each value has a place.
//!
//! | values | kept as |
//! |---|---|
//! | of one fixed width, ordered as numbers | numbers in chunks ([`Numbers`]) |
//! | others | the arrays that came ([`Arrays`]) |

use super::array_aggregate::Texts;
use super::array_keys::ordered;
use super::distinct_groups::retyped;
use super::group_lists::too_many;
use super::zeros::with_one_nan;
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray, UInt32Array,
    make_comparator, new_empty_array,
};
use datafusion::arrow::buffer::{BooleanBuffer, ScalarBuffer};
use datafusion::arrow::compute::{SortOptions, concat, filter, take};
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use serac_values::SqlError;
use std::cmp::Ordering;
use std::mem::take as taken;

/// The values of groups.
pub(super) trait Kept: Send + 'static {
    /// A value among those that were taken.
    type Value: Copy;
    /// Values that were taken.
    type Taken;
    type Order: Order<Self::Value>;

    /// Appends the values of the rows that are selected, all if `None`. None of these is NULL.
    fn append(&mut self, values: &ArrayRef, groups: &[u32], selected: Option<&BooleanBuffer>) -> Result<()>;

    /// Removes the values of the groups before `count`, and subtracts `count` from the others. The
    /// values of a group begin at its place in `starts`, and there are `total` of them.
    fn take(&mut self, count: usize, starts: Vec<usize>, total: usize) -> Result<Self::Taken>;

    /// Values that were taken as an array.
    fn array(&self, taken: Self::Taken) -> Result<ArrayRef>;

    /// Calls `choose` with the values and their order in which equal ones are next to each other,
    /// and makes an array of those chosen. NULL stands for none.
    fn chosen(
        &self,
        taken: Self::Taken,
        choose: impl FnOnce(&mut [Self::Value], &Self::Order) -> Vec<Option<Self::Value>>,
    ) -> Result<ArrayRef>;

    fn size(&self) -> usize;
}

/// The order of values.
pub(super) trait Order<V> {
    /// Equal values may differ here, as -0 and 0 do.
    fn compare(&self, a: &V, b: &V) -> Ordering;
    fn are_equal(&self, a: &V, b: &V) -> bool;
    /// The value at a share of the way between two.
    fn between(&self, first: V, second: V, share: f64) -> V;
}

/// A number of Arrow's types.
pub(super) trait Number: ArrowNativeTypeOp {
    /// The number at a share of the way between two. Floats alone are asked for it.
    fn between(first: Self, _second: Self, _share: f64) -> Self {
        first
    }
}

impl Number for i16 {}
impl Number for i32 {}
impl Number for i64 {}
impl Number for i128 {}
impl Number for f32 {}
impl Number for f64 {
    fn between(first: f64, second: f64, share: f64) -> f64 {
        if share == 0.0 { first } else { first + share * (second - first) }
    }
}

/// Values of a chunk, after which the next one begins.
const CHUNK: usize = 1 << 15;

/// The bits of values of one width; `T` is a type of numbers of this width and order.
pub(super) struct Numbers<T: ArrowPrimitiveType> {
    of: DataType,
    /// Numbers with their groups. Chunks do not grow for long, so that they are not copied often.
    chunks: Vec<(Vec<u32>, Vec<T::Native>)>,
    /// The bytes of all chunks before the last one.
    bytes: usize,
}

impl<T: ArrowPrimitiveType> Numbers<T> {
    pub(super) fn new(of: &DataType) -> Self {
        Self { of: of.clone(), chunks: Vec::new(), bytes: 0 }
    }

    /// A chunk for `rows` more.
    fn chunk(&mut self, rows: usize) -> &mut (Vec<u32>, Vec<T::Native>) {
        if self.chunks.last().is_none_or(|(groups, _)| groups.len() + rows > CHUNK && !groups.is_empty()) {
            self.bytes += self.chunks.last().map_or(0, Self::bytes_of);
            self.chunks.push((Vec::new(), Vec::new()));
        }
        let last = self.chunks.len() - 1;
        &mut self.chunks[last]
    }

    fn bytes_of((groups, numbers): &(Vec<u32>, Vec<T::Native>)) -> usize {
        groups.capacity() * size_of::<u32>() + numbers.capacity() * size_of::<T::Native>()
    }
}

/// The order of numbers: that of Arrow. -0 is less than 0, but equal to it.
pub(super) struct Natural;

impl<N: Number> Order<N> for Natural {
    fn compare(&self, a: &N, b: &N) -> Ordering {
        ArrowNativeTypeOp::compare(*a, *b)
    }

    fn are_equal(&self, a: &N, b: &N) -> bool {
        // -0 + 0 is 0.
        a.add_wrapping(N::ZERO).is_eq(b.add_wrapping(N::ZERO))
    }

    fn between(&self, first: N, second: N, share: f64) -> N {
        N::between(first, second, share)
    }
}

impl<T: ArrowPrimitiveType<Native: Number>> Kept for Numbers<T> {
    type Value = T::Native;
    type Taken = Vec<T::Native>;
    type Order = Natural;

    fn append(&mut self, values: &ArrayRef, groups: &[u32], selected: Option<&BooleanBuffer>) -> Result<()> {
        let values = retyped(values, &T::DATA_TYPE)?;
        // A NaN with a sign would be the least of all.
        let values = with_one_nan(ColumnarValue::Array(values))?.into_array(groups.len())?;
        let values = values.as_primitive::<T>().values();
        match selected {
            None => {
                let (of_chunk, numbers) = self.chunk(groups.len());
                of_chunk.extend_from_slice(groups);
                numbers.extend_from_slice(values);
            }
            Some(selected) => {
                let (of_chunk, numbers) = self.chunk(selected.count_set_bits());
                of_chunk.extend(selected.set_indices().map(|row| groups[row]));
                numbers.extend(selected.set_indices().map(|row| values[row]));
            }
        }
        Ok(())
    }

    fn take(&mut self, count: usize, mut starts: Vec<usize>, total: usize) -> Result<Self::Taken> {
        let mut found = vec![T::Native::default(); total];
        self.bytes = 0;
        for (groups, numbers) in taken(&mut self.chunks) {
            let mut stays = 0;
            for (group, number) in groups.iter().zip(&numbers) {
                match starts.get_mut(*group as usize) {
                    Some(place) => {
                        found[*place] = *number;
                        *place += 1;
                    }
                    None => stays += 1,
                }
            }
            if stays > 0 {
                let (of_chunk, kept) = self.chunk(stays);
                for (group, number) in groups.iter().zip(&numbers) {
                    if let Some(group) = (*group as usize).checked_sub(count) {
                        // It is less than the group was.
                        of_chunk.push(group as u32);
                        kept.push(*number);
                    }
                }
            }
        }
        Ok(found)
    }

    fn array(&self, found: Self::Taken) -> Result<ArrayRef> {
        retyped(&PrimitiveArray::<T>::new(ScalarBuffer::from(found), None), &self.of)
    }

    fn chosen(
        &self,
        mut found: Self::Taken,
        choose: impl FnOnce(&mut [T::Native], &Natural) -> Vec<Option<T::Native>>,
    ) -> Result<ArrayRef> {
        let chosen: PrimitiveArray<T> = choose(&mut found, &Natural).into_iter().collect();
        retyped(&chosen, &self.of)
    }

    fn size(&self) -> usize {
        self.bytes
            + self.chunks.last().map_or(0, Self::bytes_of)
            + self.chunks.capacity() * size_of::<(Vec<u32>, Vec<T::Native>)>()
    }
}

/// Values of any type.
pub(super) struct Arrays {
    of: DataType,
    arrays: Vec<ArrayRef>,
    groups: Vec<u32>,
    /// The bytes of the arrays, without texts.
    bytes: usize,
    texts: Texts,
}

impl Arrays {
    pub(super) fn new(of: &DataType) -> Self {
        Self { of: of.clone(), arrays: Vec::new(), groups: Vec::new(), bytes: 0, texts: Texts::default() }
    }

    fn push(&mut self, array: ArrayRef) {
        if !array.is_empty() {
            self.texts.add(&array);
            self.bytes += array.to_data().get_slice_memory_size().unwrap_or_default();
            self.arrays.push(array);
        }
    }
}

impl Kept for Arrays {
    type Value = u32;
    /// In the order of the groups.
    type Taken = ArrayRef;
    type Order = ByKey;

    fn append(&mut self, values: &ArrayRef, groups: &[u32], selected: Option<&BooleanBuffer>) -> Result<()> {
        match selected {
            None => {
                self.groups.extend_from_slice(groups);
                self.push(values.clone());
            }
            Some(selected) => {
                self.groups.extend(selected.set_indices().map(|row| groups[row]));
                self.push(filter(values, &BooleanArray::new(selected.clone(), None))?);
            }
        }
        Ok(())
    }

    fn take(&mut self, count: usize, mut starts: Vec<usize>, total: usize) -> Result<ArrayRef> {
        let (arrays, groups) = (taken(&mut self.arrays), taken(&mut self.groups));
        (self.bytes, self.texts) = (0, Texts::default());
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        let all = if arrays.is_empty() { new_empty_array(&self.of) } else { concat(&arrays)? };
        if u32::try_from(all.len()).is_err() {
            return Err(too_many("values"));
        }
        let mut order = vec![0_u32; total];
        let mut rest = Vec::new();
        for (row, group) in groups.iter().enumerate() {
            match starts.get_mut(*group as usize) {
                Some(place) => {
                    order[*place] = row as u32;
                    *place += 1;
                }
                None => rest.push(row as u32),
            }
        }
        if !rest.is_empty() {
            self.groups = rest.iter().map(|row| groups[*row as usize] - count as u32).collect();
            self.push(take(&all, &UInt32Array::from(rest), None)?);
        }
        Ok(take(&all, &UInt32Array::from(order), None)?)
    }

    fn array(&self, found: ArrayRef) -> Result<ArrayRef> {
        Ok(found)
    }

    fn chosen(&self, found: ArrayRef, choose: impl FnOnce(&mut [u32], &ByKey) -> Vec<Option<u32>>) -> Result<ArrayRef> {
        let by_key = match found.is_empty() {
            true => ByKey(Box::new(|_, _| Ordering::Equal)),
            false => {
                let keys = ordered(&found).map_err(SqlError::external)?;
                ByKey(make_comparator(&keys, &keys, SortOptions::default())?)
            }
        };
        // `take` has checked that the numbers fit.
        let mut rows: Vec<u32> = (0..found.len() as u32).collect();
        let chosen: UInt32Array = choose(&mut rows, &by_key).into_iter().collect();
        Ok(take(&found, &chosen, None)?)
    }

    fn size(&self) -> usize {
        self.bytes
            + self.texts.bytes()
            + self.groups.capacity() * size_of::<u32>()
            + self.arrays.capacity() * size_of::<ArrayRef>()
    }
}

/// Rows in the order of their keys.
pub(super) struct ByKey(Box<dyn Fn(usize, usize) -> Ordering + Send + Sync>);

impl Order<u32> for ByKey {
    fn compare(&self, a: &u32, b: &u32) -> Ordering {
        (self.0)(*a as usize, *b as usize)
    }

    fn are_equal(&self, a: &u32, b: &u32) -> bool {
        self.compare(a, b).is_eq()
    }

    fn between(&self, first: u32, _: u32, _: f64) -> u32 {
        first
    }
}
