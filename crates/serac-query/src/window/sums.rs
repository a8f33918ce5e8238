//! Counts and sums over frames.
//!
//! Integers and decimals are summed once over the chunk: the sum of a frame is the difference of
//! the sums up to its end and up to its start. It is exact, whatever the frame. Floats are not:
//! there the rows of a frame are two queues, of which the older has the sum from each of its rows
//! on, as in `serac-functions/src/sliding.rs`. Frames of a partition do not move backwards.

use super::chunk::{Chunk, FrameBounds};
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Float64Array, Int64Array, PrimitiveArray,
};
use datafusion::arrow::buffer::{BooleanBuffer, NullBuffer};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type, i256};
use datafusion::common::{Result, internal_err};
use serac_functions::{checked_sum, sum_of_floats_overflows};

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

/// The number of values in each frame.
fn counts<'a>(
    chunk: &Chunk,
    before: Option<&'a [u32]>,
    frames: &'a FrameBounds,
    last: &LastSum,
) -> impl Iterator<Item = u64> + 'a {
    let (continued, earlier) = (chunk.continued_rows(), last.count);
    frames.iter().enumerate().map(move |(row, (start, end))| {
        let of_chunk = match before {
            Some(before) => u64::from(before[end] - before[start]),
            None => (end - start) as u64,
        };
        if row < continued { of_chunk + earlier } else { of_chunk }
    })
}

/// The number of values in each frame that are not NULL; of rows without values.
pub(super) fn counted(chunk: &Chunk, values: Option<&ArrayRef>, frames: &FrameBounds, last: &mut LastSum) -> ArrayRef {
    let before = values.and_then(|values| counts_before(values.as_ref()));
    let counts: Vec<i64> = counts(chunk, before.as_deref(), frames, last).map(|count| count as i64).collect();
    last.count = counts.last().copied().unwrap_or(0) as u64;
    std::sync::Arc::new(Int64Array::from(counts))
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
    let counts: Vec<u64> = counts(chunk, before.as_deref(), frames, last).collect();
    let is_there = |row: usize| numbers.is_valid(row);
    let number = |row: usize| -> i128 { if is_there(row) { numbers.value(row).into() } else { 0 } };
    let continued = chunk.continued_rows();
    let earlier = |row: usize| if row < continued { last.sum } else { 0 };
    // Sums of 128 bits, unless one of them overflows.
    let mut sums: Vec<i128> = Vec::with_capacity(chunk.rows + 1);
    let (mut sum, mut overflows) = (0_i128, false);
    sums.push(0);
    match before {
        None => sums.extend(numbers.values().iter().map(|&value| {
            let (next, carries) = sum.overflowing_add(value.into());
            (sum, overflows) = (next, overflows | carries);
            sum
        })),
        Some(_) => sums.extend((0..chunk.rows).map(|row| {
            let (next, carries) = sum.overflowing_add(number(row));
            (sum, overflows) = (next, overflows | carries);
            sum
        })),
    }
    let of_frame = |row: usize, start: usize, end: usize| {
        sums[end].checked_sub(sums[start]).and_then(|sum| sum.checked_add(earlier(row)))
    };
    let mut results: Vec<i128> = Vec::with_capacity(chunk.rows);
    if !overflows {
        for (row, (start, end)) in frames.iter().enumerate() {
            match of_frame(row, start, end) {
                Some(sum) => results.push(sum),
                None => {
                    overflows = true;
                    break;
                }
            }
        }
    }
    if overflows {
        let mut sums: Vec<i256> = Vec::with_capacity(chunk.rows + 1);
        let mut sum = i256::ZERO;
        sums.push(sum);
        // 2³² values of 128 bits are far from 256 bits.
        sums.extend((0..chunk.rows).map(|row| {
            sum = sum.wrapping_add(i256::from_i128(number(row)));
            sum
        }));
        results.clear();
        for (row, (start, end)) in frames.iter().enumerate() {
            let sum = sums[end].wrapping_sub(sums[start]).wrapping_add(i256::from_i128(earlier(row)));
            results.push(checked_sum(sum.to_i128(), data_type)?);
        }
    }
    let mut natives: Vec<T::Native> = Vec::with_capacity(chunk.rows);
    for (sum, count) in results.iter().zip(&counts) {
        let sum = if *count == 0 { 0 } else { checked_sum(Some(*sum), data_type)? };
        natives.push(T::native(sum));
    }
    if let (Some(sum), Some(count)) = (results.last(), counts.last()) {
        (last.sum, last.count) = (*sum, *count);
    }
    let nulls = NullBuffer::new(BooleanBuffer::collect_bool(chunk.rows, |row| counts[row] > 0));
    let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
    let sums = PrimitiveArray::<T>::try_new(natives.into(), nulls)?.with_data_type(data_type.clone());
    Ok(std::sync::Arc::new(sums))
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
    let counts: Vec<u64> = counts(chunk, before.as_deref(), frames, last).collect();
    let is_there = |row: usize| before.is_none() || numbers.is_valid(row);
    let mut sums: Vec<f64> = Vec::with_capacity(chunk.rows);
    let mut partitions = chunk.partitions();
    let mut partition_end = 0;
    // The older rows of the frame, those from `older` to `newer`, and the newer ones up to `end`.
    let (mut older, mut newer, mut end) = (0, 0, 0);
    // The sum from each of the older rows on, the first row last.
    let mut from_older: Vec<f64> = Vec::new();
    let (mut of_newer, mut has_infinite) = (0.0, false);
    for (row, (first, to)) in frames.iter().enumerate() {
        if row >= partition_end {
            partition_end = partitions.next().map_or(chunk.rows, |partition| partition.end);
            (of_newer, has_infinite) = match row == 0 && chunk.continues {
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
                has_infinite |= value.is_infinite();
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
        if sum.is_infinite() && !has_infinite && counts[row] > 0 {
            return Err(sum_of_floats_overflows());
        }
        sums.push(sum);
    }
    if let (Some(sum), Some(count)) = (sums.last(), counts.last()) {
        *last = LastSum { of_floats: *sum, count: *count, has_infinite, ..*last };
    }
    if averages {
        sums.iter_mut().zip(&counts).for_each(|(sum, count)| *sum /= *count as f64);
    }
    let nulls = NullBuffer::new(BooleanBuffer::collect_bool(chunk.rows, |row| counts[row] > 0));
    let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
    Ok(std::sync::Arc::new(Float64Array::try_new(sums.into(), nulls)?))
}
