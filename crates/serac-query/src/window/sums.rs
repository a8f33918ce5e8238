//! Counts and sums over frames.
//!
//! Integers and decimals are summed once over the chunk: the sum of a frame is the difference of
//! the sums up to its end and up to its start. It is exact, whatever the frame. Floats are not:
//! there the rows of a frame are two queues, of which the older has the sum from each of its rows
//! on, as in `serac-functions/src/sliding.rs`. Frames of a partition do not move backwards.

use super::chunk::{Chunk, FrameBounds};
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanBufferBuilder, Float64Array, Int64Array, PrimitiveArray,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type, i256};
use datafusion::common::{Result, internal_err};
use serac_functions::{checked_sum, sum_of_floats_overflows};
use std::sync::Arc;

/// The sum of the last partition so far, for a chunk with more of its rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastSum {
    /// Values that are not NULL, or rows.
    count: u64,
    sum: i128,
    of_floats: f64,
    has_infinite: bool,
}

/// The number of values that are not NULL, up to each row; `None` if no value is NULL.
fn counts_before(values: &dyn Array) -> Option<Vec<u32>> {
    let nulls = values.logical_nulls().filter(|nulls| nulls.null_count() > 0)?;
    let mut counts = Vec::with_capacity(values.len() + 1);
    let mut count = 0;
    counts.push(0);
    counts.extend(nulls.iter().map(|is_there| {
        count += u32::from(is_there);
        count
    }));
    Some(counts)
}

/// The number of values in each frame that are not NULL, or of its rows.
struct Counts<'a> {
    before: Option<&'a [u32]>,
    continued: usize,
    earlier: u64,
}

impl<'a> Counts<'a> {
    fn new(chunk: &Chunk, before: Option<&'a [u32]>, last: &LastSum) -> Self {
        Self { before, continued: chunk.continued_rows(), earlier: last.count }
    }

    /// The number of values in the frame of a row.
    #[inline]
    fn of(&self, row: usize, start: usize, end: usize) -> u64 {
        let of_chunk = match self.before {
            Some(before) => u64::from(before[end] - before[start]),
            None => (end - start) as u64,
        };
        if row < self.continued { of_chunk + self.earlier } else { of_chunk }
    }
}

/// The number of values in each frame that are not NULL; of rows without values.
pub(super) fn counted(chunk: &Chunk, values: Option<&ArrayRef>, frames: &FrameBounds, last: &mut LastSum) -> ArrayRef {
    let before = values.and_then(|values| counts_before(values.as_ref()));
    let of_frames = Counts::new(chunk, before.as_deref(), last);
    let rows = frames.iter().enumerate();
    let counts: Vec<i64> = rows.map(|(row, (start, end))| of_frames.of(row, start, end) as i64).collect();
    last.count = counts.last().copied().unwrap_or(0) as u64;
    Arc::new(Int64Array::from(counts))
}

/// Numbers that are added exactly.
trait Exact: ArrowPrimitiveType<Native: Into<i128>> {
    /// A number that is one of the type.
    fn native(number: i128) -> Self::Native;
}

impl Exact for Int64Type {
    fn native(number: i128) -> i64 {
        number as i64
    }
}
impl Exact for Decimal128Type {
    fn native(number: i128) -> i128 {
        number
    }
}

/// The sums of frames of integers or decimals.
///
/// # Errors
/// 22003 for a sum that is not one of the type.
pub(super) fn exact_sums(
    chunk: &Chunk,
    values: &ArrayRef,
    frames: &FrameBounds,
    last: &mut LastSum,
    data_type: &DataType,
) -> Result<ArrayRef> {
    match data_type {
        DataType::Int64 => exact::<Int64Type>(chunk, values, frames, last, data_type),
        DataType::Decimal128(..) => exact::<Decimal128Type>(chunk, values, frames, last, data_type),
        other => internal_err!("an exact sum of {other}"),
    }
}

fn exact<T: Exact>(
    chunk: &Chunk,
    values: &ArrayRef,
    frames: &FrameBounds,
    last: &mut LastSum,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let numbers = values.as_primitive::<T>();
    let before = counts_before(numbers);
    let counts = Counts::new(chunk, before.as_deref(), last);
    let number = |row: usize| -> i128 { if numbers.is_valid(row) { numbers.value(row).into() } else { 0 } };
    let (continued, of_last) = (chunk.continued_rows(), last.sum);
    let earlier = |row: usize| if row < continued { of_last } else { 0 };
    // Sums of 128 bits, unless one of them overflows.
    let mut sums: Vec<i128> = Vec::with_capacity(chunk.rows + 1);
    let (mut sum, mut overflows) = (0_i128, false);
    let mut add = |value: i128| {
        let (next, carries) = sum.overflowing_add(value);
        (sum, overflows) = (next, overflows | carries);
        sum
    };
    sums.push(0);
    match &before {
        None => sums.extend(numbers.values().iter().map(|&value| add(value.into()))),
        Some(_) => sums.extend((0..chunk.rows).map(|row| add(number(row)))),
    }
    let short = match overflows {
        true => None,
        false => {
            let sum =
                |row: usize, start: usize, end: usize| sums[end].checked_sub(sums[start])?.checked_add(earlier(row));
            finished::<T>(frames, &counts, data_type, sum)?
        }
    };
    drop(sums);
    let (results, nulls) = match short {
        Some(results) => results,
        None => {
            let mut sums: Vec<i256> = Vec::with_capacity(chunk.rows + 1);
            let mut sum = i256::ZERO;
            sums.push(sum);
            // 2³² values of 128 bits are far from 256 bits.
            sums.extend((0..chunk.rows).map(|row| {
                sum = sum.wrapping_add(i256::from_i128(number(row)));
                sum
            }));
            let sum = |row: usize, start: usize, end: usize| {
                let sum = sums[end].wrapping_sub(sums[start]).wrapping_add(i256::from_i128(earlier(row)));
                // More than 128 bits do not fit, either.
                Some(sum.to_i128().unwrap_or(if sum < i256::ZERO { i128::MIN } else { i128::MAX }))
            };
            match finished::<T>(frames, &counts, data_type, sum)? {
                Some(results) => results,
                None => return internal_err!("a sum of 256 bits is known"),
            }
        }
    };
    if let (Some(sum), Some((start, end))) = (results.last(), frames.iter().last()) {
        (last.sum, last.count) = ((*sum).into(), counts.of(chunk.rows - 1, start, end));
    }
    let sums = PrimitiveArray::<T>::try_new(results.into(), nulls)?.with_data_type(data_type.clone());
    Ok(Arc::new(sums))
}

/// Sums, and which of them are not NULL.
type Sums<T> = (Vec<<T as ArrowPrimitiveType>::Native>, Option<NullBuffer>);

/// The sums of frames; `None` if one is not known.
fn finished<T: Exact>(
    frames: &FrameBounds,
    counts: &Counts<'_>,
    data_type: &DataType,
    sum: impl Fn(usize, usize, usize) -> Option<i128>,
) -> Result<Option<Sums<T>>> {
    let rows = frames.starts.len();
    let mut results: Vec<T::Native> = Vec::with_capacity(rows);
    let mut are_there = BooleanBufferBuilder::new(rows);
    for (row, (start, end)) in frames.iter().enumerate() {
        let is_there = counts.of(row, start, end) > 0;
        are_there.append(is_there);
        results.push(T::native(match is_there {
            true => match sum(row, start, end) {
                Some(sum) => checked_sum(Some(sum), data_type)?,
                None => return Ok(None),
            },
            false => 0,
        }));
    }
    let nulls = NullBuffer::new(are_there.finish());
    Ok(Some((results, Some(nulls).filter(|nulls| nulls.null_count() > 0))))
}

/// The sums of frames of floats, or their averages.
///
/// # Errors
/// 22003 for an infinite sum of finite values.
pub(super) fn float_sums(
    chunk: &Chunk,
    values: &ArrayRef,
    frames: &FrameBounds,
    last: &mut LastSum,
    averages: bool,
) -> Result<ArrayRef> {
    let numbers = values.as_primitive::<Float64Type>();
    let before = counts_before(numbers);
    let counts = Counts::new(chunk, before.as_deref(), last);
    let mut are_there = BooleanBufferBuilder::new(chunk.rows);
    let (mut last_sum, mut last_count) = (0.0, 0);
    let is_there = |row: usize| before.is_none() || numbers.is_valid(row);
    let mut sums: Vec<f64> = Vec::with_capacity(chunk.rows);
    let mut partitions = chunk.partitions();
    let mut partition_end = 0;
    // The older rows of the frame, those from `older` to `newer`, and the newer ones up to `end`.
    let (mut older, mut newer, mut end) = (0, 0, 0);
    // The sum from each of the older rows on, the first row last.
    let mut from_older: Vec<f64> = Vec::new();
    // Whether the rows before a chunk have an infinite value; the last row here that has one.
    let (mut of_newer, mut before_is_infinite, mut last_infinite) = (0.0, false, None);
    let mut has_infinite = false;
    for (row, (first, to)) in frames.iter().enumerate() {
        if row >= partition_end {
            partition_end = partitions.next().map_or(chunk.rows, |partition| partition.end);
            last_infinite = None;
            (of_newer, before_is_infinite) = match row == 0 && chunk.continues {
                true => (last.of_floats, last.has_infinite),
                false => (0.0, false),
            };
            from_older.clear();
            (older, newer, end) = (first, first, first);
        }
        if first > end {
            // All rows leave, and some never enter.
            from_older.clear();
            of_newer = 0.0;
            (older, newer, end) = (first, first, first);
        }
        while end < to {
            if is_there(end) {
                let value = numbers.value(end);
                if value.is_infinite() {
                    last_infinite = Some(end);
                }
                of_newer += value;
            }
            end += 1;
        }
        while older < first {
            if from_older.is_empty() {
                // The newer rows become older ones.
                let mut sum = 0.0;
                from_older.extend((older..end).rev().map(|row| {
                    if is_there(row) {
                        sum += numbers.value(row);
                    }
                    sum
                }));
                (newer, of_newer) = (end, 0.0);
            }
            from_older.pop();
            older += 1;
        }
        debug_assert!(older <= newer && newer <= end);
        let sum = from_older.last().copied().unwrap_or(0.0) + of_newer;
        let count = counts.of(row, first, to);
        has_infinite = before_is_infinite || last_infinite.is_some_and(|at| at >= first);
        if sum.is_infinite() && !has_infinite && count > 0 {
            return Err(sum_of_floats_overflows());
        }
        are_there.append(count > 0);
        (last_sum, last_count) = (sum, count);
        sums.push(if averages { sum / count as f64 } else { sum });
    }
    *last = LastSum { of_floats: last_sum, count: last_count, has_infinite, ..*last };
    let nulls = NullBuffer::new(are_there.finish());
    let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
    Ok(Arc::new(Float64Array::try_new(sums.into(), nulls)?))
}
