//! The least and the greatest value of frames.
//!
//! Rows that may still become the extreme of a later frame stand in a queue, each more extreme than
//! those after it. A frame that grows from the first row of a partition needs no queue.

use super::chunk::{Chunk, FrameBounds};
use super::plan::{Bound, Frame};
use super::positions::values_at;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanBufferBuilder, UInt32Array, make_comparator};
use datafusion::arrow::compute::{SortOptions, concat, take};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::Result;
use std::cmp::Ordering;
use std::collections::VecDeque;

/// The extreme of the last partition so far, as a column of one row; `None` if all values are NULL.
pub(super) type LastExtreme = Option<ArrayRef>;

/// The least or the greatest values of frames.
pub(super) fn extremes(
    chunk: &Chunk,
    values: &ArrayRef,
    frame: Frame,
    frames: &FrameBounds,
    is_greatest: bool,
    last: &mut LastExtreme,
) -> Result<ArrayRef> {
    let grows = frame.start == Bound::Partition;
    let continued = chunk.continued_rows();
    // The extreme of earlier rows becomes the first row of the first partition.
    let (values, added) = match last.as_ref().filter(|_| chunk.continues) {
        Some(last) => (concat(&[last.as_ref(), values.as_ref()])?, 1),
        None => (values.clone(), 0),
    };
    let bounds = frames.iter().enumerate().map(|(row, (start, end))| match row < continued {
        true => (start, end + added),
        false => (start + added, end + added),
    });
    let (rows, are_there) = match values.data_type() {
        DataType::Int16 => by_order::<Int16Type>(&values, bounds, grows, is_greatest, i16::cmp),
        DataType::Int32 => by_order::<Int32Type>(&values, bounds, grows, is_greatest, i32::cmp),
        DataType::Int64 => by_order::<Int64Type>(&values, bounds, grows, is_greatest, i64::cmp),
        DataType::Date32 => by_order::<Date32Type>(&values, bounds, grows, is_greatest, i32::cmp),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            by_order::<TimestampMicrosecondType>(&values, bounds, grows, is_greatest, i64::cmp)
        }
        DataType::Decimal128(..) => by_order::<Decimal128Type>(&values, bounds, grows, is_greatest, i128::cmp),
        DataType::Float32 => by_order::<Float32Type>(&values, bounds, grows, is_greatest, |a, b| {
            a.is_nan().cmp(&b.is_nan()).then(a.total_cmp(b))
        }),
        DataType::Float64 => by_order::<Float64Type>(&values, bounds, grows, is_greatest, |a, b| {
            a.is_nan().cmp(&b.is_nan()).then(a.total_cmp(b))
        }),
        _ => {
            let compare = make_comparator(&values, &values, SortOptions::default())?;
            let is_better = |new: usize, old: usize| compare(new, old) == better(is_greatest);
            places(&values, bounds, grows, is_better)
        }
    };
    let of_last = rows.last().copied().filter(|_| !rows.is_empty() && are_there.value(rows.len() - 1));
    *last = of_last.map(|row| take(&values, &UInt32Array::from(vec![row]), None)).transpose()?;
    values_at(&values, rows, are_there)
}

/// The order of a more extreme value to the extreme so far.
fn better(is_greatest: bool) -> Ordering {
    if is_greatest { Ordering::Greater } else { Ordering::Less }
}

type Places = (Vec<u32>, datafusion::arrow::buffer::BooleanBuffer);

fn by_order<T: ArrowPrimitiveType>(
    values: &ArrayRef,
    bounds: impl Iterator<Item = (usize, usize)>,
    grows: bool,
    is_greatest: bool,
    compare: impl Fn(&T::Native, &T::Native) -> Ordering,
) -> Places {
    let numbers: &[T::Native] = values.as_primitive::<T>().values();
    let wanted = better(is_greatest);
    places(values, bounds, grows, |new, old| compare(&numbers[new], &numbers[old]) == wanted)
}

/// The rows of the extremes of frames. Frames do not move backwards, but for the first one of a
/// partition that has none of the rows before.
fn places(
    values: &ArrayRef,
    bounds: impl Iterator<Item = (usize, usize)>,
    grows: bool,
    is_better: impl Fn(usize, usize) -> bool,
) -> Places {
    let nulls = values.nulls().filter(|nulls| nulls.null_count() > 0);
    let is_there = |row: usize| nulls.is_none_or(|nulls| nulls.is_valid(row));
    let mut rows: Vec<u32> = Vec::with_capacity(values.len());
    let mut are_there = BooleanBufferBuilder::new(values.len());
    let mut push = |row: Option<usize>| {
        are_there.append(row.is_some());
        rows.push(row.unwrap_or(0) as u32);
    };
    let mut read = 0;
    if grows {
        let (mut best, mut partition) = (None, usize::MAX);
        for (start, end) in bounds {
            if start != partition {
                (best, partition, read) = (None, start, start);
            }
            for row in read..end {
                if is_there(row) && best.is_none_or(|best| is_better(row, best)) {
                    best = Some(row);
                }
            }
            read = read.max(end);
            push(best.filter(|_| start < end));
        }
    } else {
        let mut queue: VecDeque<usize> = VecDeque::new();
        for (start, end) in bounds {
            while queue.front().is_some_and(|front| *front < start) {
                queue.pop_front();
            }
            for row in read.max(start)..end {
                if is_there(row) {
                    while queue.back().is_some_and(|back| is_better(row, *back)) {
                        queue.pop_back();
                    }
                    queue.push_back(row);
                }
            }
            read = read.max(end);
            push(queue.front().copied().filter(|_| start < end));
        }
    }
    (rows, are_there.finish())
}
