//! array_key (a): bytes in PostgreSQL's order of arrays, equal for equal ones.
//!
//! Arrays are compared by their elements in order, where NULL is the last and equal to NULL; then
//! by the number of elements, and then by their dimensions. Elements are bytes of Arrow's rows,
//! which never begin like the end of an array: with [`END`].

use super::definition::{Definition, Types};
use super::elements::as_lists;
use super::json::{JSON, document, whole_key};
use super::zeros::single;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryBuilder, Decimal128Array, LargeStringArray, ListArray};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, IntervalUnit};
use datafusion::arrow::row::{RowConverter, Rows, SortField};
use serac_numeric::Numeric;
use serac_values::SqlError;
use serac_values::intervals::{DAYS_PER_MONTH, MICROS_PER_DAY, intervals};
use std::sync::Arc;

/// Stands behind the last element.
const END: u8 = 0;

/// Values of one type as values that Arrow's rows have in PostgreSQL's order.
pub(super) fn ordered(elements: &ArrayRef) -> Result<ArrayRef, SqlError> {
    let numbers = |of: &dyn Fn(usize) -> Result<Numeric, SqlError>| {
        keys(elements, |row, key| {
            of(row)?.write_key(key);
            Ok(())
        })
    };
    match elements.data_type() {
        DataType::Decimal128(_, scale) => {
            let decimals = elements.as_primitive::<Decimal128Type>();
            numbers(&|row| Ok(Numeric::of_decimal(decimals.value(row), *scale)))
        }
        DataType::LargeBinary => {
            let stored = elements.as_binary::<i64>();
            let wrong = |error: serac_numeric::NumericError| SqlError::new(error.sqlstate, error.message);
            numbers(&|row| Numeric::of_stored(stored.value(row)).map_err(wrong))
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let nanos = intervals(elements).iter().map(|interval| {
                interval.map(|of| {
                    let days = i128::from(of.months) * i128::from(DAYS_PER_MONTH) + i128::from(of.days);
                    days * i128::from(MICROS_PER_DAY) * 1_000 + i128::from(of.nanoseconds)
                })
            });
            Ok(Arc::new(nanos.collect::<Decimal128Array>()))
        }
        data_type if *data_type == JSON => {
            let documents: &LargeStringArray = elements.as_string();
            keys(elements, |row, key| {
                whole_key(&document(documents.value(row))?, key);
                Ok(())
            })
        }
        _ => Ok(single(elements)),
    }
}

/// Bytes for each row that has a value.
fn keys(values: &ArrayRef, write: impl Fn(usize, &mut Vec<u8>) -> Result<(), SqlError>) -> Result<ArrayRef, SqlError> {
    let (mut all, mut key) = (BinaryBuilder::new(), Vec::new());
    for row in 0..values.len() {
        if values.is_null(row) {
            all.append_null();
            continue;
        }
        key.clear();
        write(row, &mut key)?;
        all.append_value(&key);
    }
    Ok(Arc::new(all.finish()))
}

/// The levels of arrays of arrays, the outermost first, and the elements of the innermost.
fn levels(array: &ArrayRef) -> Result<(Vec<ListArray>, ArrayRef), SqlError> {
    let mut all = vec![as_lists(array)?];
    loop {
        let values = all[all.len() - 1].values().clone();
        match values.data_type() {
            DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => all.push(as_lists(&values)?),
            _ => return Ok((all, values)),
        }
    }
}

/// Writes the elements of an array, and notes how many each level has.
fn write(levels: &[ListArray], row: usize, elements: &Rows, lengths: &mut Vec<usize>, key: &mut Vec<u8>) {
    let [list, rest @ ..] = levels else {
        key.extend_from_slice(elements.row(row).as_ref());
        return;
    };
    let offsets = list.value_offsets();
    let (start, end) = (offsets[row] as usize, offsets[row + 1] as usize);
    let depth = lengths.len();
    for at in start..end {
        lengths.truncate(depth);
        lengths.push(end - start);
        write(rest, at, elements, lengths, key);
    }
}

fn array_key(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let (levels, elements) = levels(&args[0])?;
    let elements = ordered(&elements)?;
    let last = SortOptions { descending: false, nulls_first: false };
    let rows = RowConverter::new(vec![SortField::new_with_options(elements.data_type().clone(), last)])?;
    let rows = rows.convert_columns(&[elements])?;
    let outermost: ArrayRef = Arc::new(levels[0].clone());
    keys(&outermost, |row, key| {
        let mut lengths = Vec::new();
        write(&levels, row, &rows, &mut lengths, key);
        key.push(END);
        key.push(lengths.len() as u8);
        lengths.iter().for_each(|length| key.extend((*length as u64).to_be_bytes()));
        Ok(())
    })
}

fn types(given: &[DataType]) -> Option<Types> {
    let is_array =
        |of: &DataType| matches!(of, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..));
    matches!(given, [array] if is_array(array)).then(|| (given.to_vec(), DataType::Binary))
}

pub(super) static DEFINITIONS: &[Definition] = &[Definition { name: "array_key", types, body: array_key }];

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::types::{Float64Type, Int32Type};

    #[test]
    fn arrays_are_ordered_as_in_postgresql() {
        let sorted = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![]),
            Some(vec![Some(-5)]),
            Some(vec![Some(1)]),
            Some(vec![Some(1), Some(2)]),
            Some(vec![Some(1), Some(2), Some(0)]),
            Some(vec![Some(1), None]),
            Some(vec![Some(256)]),
            Some(vec![None]),
            Some(vec![None, None]),
        ]);
        let keys = array_key(&[Arc::new(sorted)]).unwrap();
        let keys: Vec<_> = keys.as_binary::<i32>().iter().map(Option::unwrap).collect();
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{keys:?}");
        let equal = ListArray::from_iter_primitive::<Float64Type, _, _>([
            Some(vec![Some(0.0), Some(f64::NAN)]),
            Some(vec![Some(-0.0), Some(-f64::NAN)]),
        ]);
        let keys = array_key(&[Arc::new(equal)]).unwrap();
        assert_eq!(keys.as_binary::<i32>().value(0), keys.as_binary::<i32>().value(1));
    }
}
