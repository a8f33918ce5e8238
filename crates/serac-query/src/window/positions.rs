//! Values of other rows: those at a distance, and those of a place in the frame.

use super::chunk::{Chunk, FrameBounds};
use super::plan::Nth;
use datafusion::arrow::array::{ArrayRef, BooleanArray, BooleanBufferBuilder, UInt32Array};
use datafusion::arrow::buffer::{BooleanBuffer, NullBuffer};
use datafusion::arrow::compute::kernels::zip::zip;
use datafusion::arrow::compute::{concat, take};
use datafusion::common::{Result, ScalarValue};

/// The values at rows, and NULL where there is none.
pub(super) fn values_at(values: &ArrayRef, rows: Vec<u32>, are_there: BooleanBuffer) -> Result<ArrayRef> {
    let rows = UInt32Array::new(rows.into(), Some(NullBuffer::new(are_there)));
    Ok(take(values.as_ref(), &rows, None)?)
}

/// The value of the row at a distance within the partition, or else the default.
pub(super) fn shifted(chunk: &Chunk, values: &ArrayRef, distance: i64, default: &ScalarValue) -> Result<ArrayRef> {
    let mut rows: Vec<u32> = Vec::with_capacity(chunk.rows);
    let mut are_there = BooleanBufferBuilder::new(chunk.rows);
    let far = usize::try_from(distance.unsigned_abs()).unwrap_or(usize::MAX);
    for partition in chunk.partitions() {
        let absent = far.min(partition.len());
        let present = partition.len() - absent;
        let first = partition.start as u32;
        if distance < 0 {
            rows.resize(rows.len() + absent, 0);
            are_there.append_n(absent, false);
            rows.extend(first..first + present as u32);
            are_there.append_n(present, true);
        } else {
            rows.extend(first + absent as u32..partition.end as u32);
            are_there.append_n(present, true);
            rows.resize(rows.len() + absent, 0);
            are_there.append_n(absent, false);
        }
    }
    let are_there = are_there.finish();
    let shifted = values_at(values, rows, are_there.clone())?;
    match default.is_null() {
        true => Ok(shifted),
        false => Ok(zip(&BooleanArray::new(are_there, None), &shifted, &default.to_scalar()?)?),
    }
}

/// The state of the last partition, for a chunk with more of its rows.
#[derive(Default)]
pub(super) struct LastNth {
    /// Rows of the partition so far.
    rows: usize,
    /// The value from the start of the partition that is asked for, as a column of one row.
    value: Option<ArrayRef>,
}

/// The value of a row of the frame.
pub(super) fn nth_values(
    chunk: &Chunk,
    values: &ArrayRef,
    frames: &FrameBounds,
    nth: Nth,
    last: &mut LastNth,
) -> Result<ArrayRef> {
    let continued = chunk.continued_rows();
    // What has been found in earlier rows becomes the last value.
    let found = last.value.take().filter(|_| chunk.continues);
    let earlier = if chunk.continues { last.rows } else { 0 };
    let row = |at: usize, (start, end): (usize, usize)| match nth {
        Nth::FromStart(_) if at < continued && found.is_some() => Some(chunk.rows),
        Nth::FromStart(number) => {
            let before = if at < continued { earlier } else { 0 };
            let distance = usize::try_from(number).ok()?.checked_sub(before)?;
            distance.checked_add(start).filter(|row| *row < end)
        }
        Nth::FromEnd(number) => {
            let distance = usize::try_from(number).ok()?.checked_add(1)?;
            end.checked_sub(distance).filter(|row| *row >= start)
        }
        Nth::None => None,
    };
    let mut are_there = BooleanBufferBuilder::new(chunk.rows);
    let rows = frames.iter().enumerate().map(|(at, frame)| {
        let row = row(at, frame);
        are_there.append(row.is_some());
        row.unwrap_or(0) as u32
    });
    let rows = rows.collect();
    let values = match &found {
        Some(found) => &concat(&[values.as_ref(), found.as_ref()])?,
        None => values,
    };
    let results = values_at(values, rows, are_there.finish())?;
    // The last row shows what the next one of its partition finds.
    if let (Nth::FromStart(number), Some(of_last)) = (nth, chunk.partitions().last()) {
        let before = if of_last.start == 0 { earlier } else { 0 };
        last.rows = before + of_last.len();
        let is_found = usize::try_from(number).is_ok_and(|number| number < last.rows);
        last.value =
            is_found.then(|| take(&results, &UInt32Array::from(vec![chunk.rows as u32 - 1]), None)).transpose()?;
    }
    Ok(results)
}
