//! Conditions of an Arrow scan: `column <comparison> constant`, or `column IN (constants)`, tested
//! on the columns of a block.
//!
//! Integers, dates, times and short decimals are compared as raw integers by the operators' select
//! kernels; the block's zone map may say beforehand that no row qualifies. Other types are compared
//! by Arrow's kernels. A NULL on either side never qualifies.

use crate::error::{EngineError, Result};
use crate::table::Table;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Int16Type, Int32Type, Int64Type, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, BinaryArray, Datum, Scalar, UInt32Array};
use arrow_ord::cmp;
use arrow_schema::{ArrowError, DataType};
use arrow_select::take::take;
use serac_numeric::Numeric;
use serac_operators::select::{Comparison, positions_of, select};
use serac_storage::{BlockReader, ColumnForm, ColumnId, ColumnType, ScanColumn, Selection, StorageError};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// A condition on the rows of a table.
#[derive(Clone, Debug)]
pub struct ColumnFilter {
    /// The column's position in the table's definition.
    pub column: usize,
    /// The comparison.
    pub comparison: Comparison,
    /// The operand: an array of one value, of the column's Arrow type. With [`Comparison::Equal`]
    /// it may have any number of values, one of which the column's value has to be.
    pub constant: ArrayRef,
}

#[derive(Clone, Debug)]
enum Constant {
    /// NULL, with which no comparison holds; or no value at all.
    Null,
    /// In the column's raw form.
    Raw(i64),
    /// Any of these, in the column's raw form; ascending.
    RawOneOf(Vec<i64>),
    /// This one.
    One(Scalar<ArrayRef>),
    /// Any of these, as [`with_bytes`] shows them.
    BytesOneOf(HashSet<Box<[u8]>>),
}

/// A condition that is known to fit its table.
#[derive(Clone, Debug)]
pub(crate) struct BoundFilter {
    column: ScanColumn,
    column_type: ColumnType,
    comparison: Comparison,
    constant: Constant,
}

/// Values without NULLs in their raw form.
fn raw_values<T: ArrowPrimitiveType<Native: Into<i64>>>(constants: &ArrayRef) -> Vec<i64> {
    constants.as_primitive::<T>().values().iter().map(|&value| value.into()).collect()
}

/// The positions of the values that are not NULL and that `qualifies`.
fn positions_where<V>(values: impl Iterator<Item = Option<V>>, qualifies: impl Fn(V) -> bool) -> Vec<u32> {
    (0..).zip(values).filter_map(|(at, value)| value.is_some_and(&qualifies).then_some(at)).collect()
}

/// Lends the values as bytes, which are the same exactly where Arrow calls the values equal: floats
/// are equal to Arrow if all their bits are.
fn with_bytes<R>(values: &ArrayRef, look: impl FnOnce(&mut dyn Iterator<Item = Option<&[u8]>>) -> R) -> R {
    let width = match values.data_type() {
        DataType::Boolean => {
            let bytes = |value: bool| if value { &[1][..] } else { &[0] };
            return look(&mut values.as_boolean().iter().map(|value| value.map(bytes)));
        }
        DataType::Utf8View => return look(&mut values.as_string_view().iter().map(|text| text.map(str::as_bytes))),
        DataType::LargeUtf8 => return look(&mut values.as_string::<i64>().iter().map(|text| text.map(str::as_bytes))),
        DataType::BinaryView => return look(&mut values.as_binary_view().iter()),
        DataType::Binary => return look(&mut values.as_binary::<i32>().iter()),
        DataType::FixedSizeBinary(width) => *width as usize,
        other => other.primitive_width().expect("all other types of columns have a fixed width"),
    };
    let data = values.to_data();
    let bytes = &data.buffers()[0][data.offset() * width..];
    look(&mut (0..data.len()).map(|at| data.is_valid(at).then(|| &bytes[at * width..][..width])))
}

/// The keys of numbers in their stored form, which Arrow compares as the numbers.
fn keys_of(stored: &ArrayRef) -> std::result::Result<ArrayRef, ArrowError> {
    let key = |stored: &[u8]| Numeric::of_stored(stored).map(|number| number.to_key());
    let keys = stored.as_binary::<i64>().iter().map(|stored| stored.map(key).transpose());
    let keys = keys.collect::<std::result::Result<BinaryArray, _>>();
    keys.map(|keys| Arc::new(keys) as ArrayRef).map_err(|error| ArrowError::ExternalError(Box::new(error)))
}

impl BoundFilter {
    /// The position of the column.
    pub(crate) fn column(&self) -> usize {
        self.column.id.0 as usize
    }

    /// # Errors
    /// [`EngineError::InvalidDefinition`] if the column is not there, or the constant is not one
    /// value of its type.
    pub(crate) fn new(table: &Table, filter: &ColumnFilter) -> Result<Self> {
        let invalid = |message| Err(EngineError::InvalidDefinition(message));
        let Some(column) = table.data.schema().columns.get(filter.column) else {
            return invalid(format!("relation \"{}\" has no column {}", table.name(), filter.column));
        };
        let (column_type, constant) = (column.column_type, &filter.constant);
        let is_list = filter.comparison == Comparison::Equal;
        if (constant.len() != 1 && !is_list) || *constant.data_type() != column_type.arrow() {
            let name = &table.definition.columns[filter.column].name;
            let (wanted, got) = (column_type.arrow(), constant.data_type());
            return invalid(format!(
                "column \"{name}\" is compared with one value of type {wanted}, not with {} of type {got}",
                constant.len()
            ));
        }
        // NULL equals nothing: it has no part in a list.
        let constant = &match constant.nulls().filter(|nulls| nulls.null_count() > 0) {
            Some(nulls) => {
                take(constant, &UInt32Array::from_iter_values(nulls.valid_indices().map(|i| i as u32)), None)
                    .map_err(StorageError::from)?
            }
            None => constant.clone(),
        };
        let mut form = ColumnForm::Arrow;
        let raw = match column_type {
            ColumnType::Int16 => Some(raw_values::<Int16Type>(constant)),
            ColumnType::Int32 => Some(raw_values::<Int32Type>(constant)),
            ColumnType::Date => Some(raw_values::<Date32Type>(constant)),
            ColumnType::Int64 => Some(raw_values::<Int64Type>(constant)),
            ColumnType::Time => Some(raw_values::<Time64MicrosecondType>(constant)),
            ColumnType::Timestamp { .. } => Some(raw_values::<TimestampMicrosecondType>(constant)),
            ColumnType::Decimal { precision, .. } if precision <= 18 => {
                form = ColumnForm::Scaled64;
                let values = constant.as_primitive::<Decimal128Type>().values();
                match values.iter().map(|&value| value.try_into()).collect::<std::result::Result<_, _>>() {
                    Ok(values) => Some(values),
                    Err(_) => return invalid(format!("the constant has more than {precision} digits")),
                }
            }
            _ => None,
        };
        let constant = match raw {
            Some(values) => match values[..] {
                [] => Constant::Null,
                [value] => Constant::Raw(value),
                _ => Constant::RawOneOf(BTreeSet::from_iter(values).into_iter().collect()),
            },
            None => {
                let constant = match column_type {
                    ColumnType::Numeric => &keys_of(constant).map_err(StorageError::from)?,
                    _ => constant,
                };
                match constant.len() {
                    0 => Constant::Null,
                    1 => Constant::One(Scalar::new(constant.clone())),
                    _ => Constant::BytesOneOf(with_bytes(constant, |all| all.flatten().map(Box::from).collect())),
                }
            }
        };
        let column = ScanColumn { id: ColumnId(filter.column as u16), form };
        Ok(Self { column, column_type, comparison: filter.comparison, constant })
    }

    /// The column's values in the form of the constant.
    fn comparable(&self, values: &ArrayRef) -> std::result::Result<ArrayRef, ArrowError> {
        match self.column_type {
            ColumnType::Numeric => keys_of(values),
            _ => Ok(values.clone()),
        }
    }

    /// Whether the zone map says that no row of the block qualifies.
    pub(crate) fn excludes(&self, block: &BlockReader<'_>) -> bool {
        match &self.constant {
            Constant::Null => true,
            &Constant::Raw(value) => block
                .zone(self.column.id)
                .is_some_and(|zone| self.comparison.never_holds(zone.min..=zone.max, value..=value)),
            Constant::RawOneOf(values) => block.zone(self.column.id).is_some_and(|zone| {
                let next = values.partition_point(|&value| value < zone.min);
                values.get(next).is_none_or(|&value| value > zone.max)
            }),
            Constant::One(_) | Constant::BytesOneOf(_) => false,
        }
    }

    /// The selected rows that qualify.
    pub(crate) fn select(
        &self,
        block: &mut BlockReader<'_>,
        selection: Selection,
    ) -> std::result::Result<Selection, ArrowError> {
        let arrays =
            block.columns(&[self.column], &selection).map_err(|error| ArrowError::ExternalError(Box::new(error)))?;
        let values = &arrays[0];
        fn raw<T: ArrowPrimitiveType>(values: &ArrayRef, comparison: Comparison, constant: T::Native) -> Vec<u32> {
            select(values.as_primitive::<T>().values(), values.nulls(), comparison, constant)
        }
        let comparison = self.comparison;
        let positions = match &self.constant {
            Constant::Null => Vec::new(),
            // A constant of a narrow column was that narrow before.
            &Constant::Raw(constant) => match self.column_type {
                ColumnType::Int16 => raw::<Int16Type>(values, comparison, constant as i16),
                ColumnType::Int32 => raw::<Int32Type>(values, comparison, constant as i32),
                ColumnType::Date => raw::<Date32Type>(values, comparison, constant as i32),
                ColumnType::Time => raw::<Time64MicrosecondType>(values, comparison, constant),
                ColumnType::Timestamp { .. } => raw::<TimestampMicrosecondType>(values, comparison, constant),
                _ => raw::<Int64Type>(values, comparison, constant),
            },
            Constant::RawOneOf(constants) => {
                fn one_of<T: ArrowPrimitiveType<Native: Into<i64>>>(values: &ArrayRef, constants: &[i64]) -> Vec<u32> {
                    let is_one = |value: T::Native| constants.binary_search(&value.into()).is_ok();
                    positions_where(values.as_primitive::<T>().iter(), is_one)
                }
                match self.column_type {
                    ColumnType::Int16 => one_of::<Int16Type>(values, constants),
                    ColumnType::Int32 => one_of::<Int32Type>(values, constants),
                    ColumnType::Date => one_of::<Date32Type>(values, constants),
                    ColumnType::Time => one_of::<Time64MicrosecondType>(values, constants),
                    ColumnType::Timestamp { .. } => one_of::<TimestampMicrosecondType>(values, constants),
                    _ => one_of::<Int64Type>(values, constants),
                }
            }
            Constant::One(constant) => {
                let (values, constant): (&dyn Datum, &dyn Datum) = (&self.comparable(values)?, constant);
                let outcome = match comparison {
                    Comparison::Equal => cmp::eq(values, constant),
                    Comparison::NotEqual => cmp::neq(values, constant),
                    Comparison::Less => cmp::lt(values, constant),
                    Comparison::LessOrEqual => cmp::lt_eq(values, constant),
                    Comparison::Greater => cmp::gt(values, constant),
                    Comparison::GreaterOrEqual => cmp::gt_eq(values, constant),
                }?;
                positions_of(outcome.values(), outcome.nulls())
            }
            Constant::BytesOneOf(constants) => {
                with_bytes(&self.comparable(values)?, |all| positions_where(all, |value| constants.contains(value)))
            }
        };
        Ok(if positions.len() == selection.len() { selection } else { selection.narrow(&positions) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::types::IntervalMonthDayNanoType;
    use arrow_array::{
        BinaryViewArray, BooleanArray, Decimal128Array, FixedSizeBinaryArray, Float32Array, Float64Array,
        IntervalMonthDayNanoArray, LargeStringArray, StringViewArray,
    };

    #[test]
    fn bytes_are_the_same_where_arrow_calls_values_equal() {
        let floats = [0.0, -0.0, 1.5, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.5];
        let texts = ["", "a", "a ", "a text that is not within its view", "ü", "a", "\0", ""];
        let numbers = [0, 1, -1, i128::MAX, i128::MIN, 1 << 64, 1, 0];
        let interval = |&(months, days): &(i32, i32)| IntervalMonthDayNanoType::make_value(months, days, 0);
        let intervals = [(1, 0), (0, 30), (0, 0), (1, 0)];
        let uuids = [[0_u8; 16], [1; 16], [255; 16], [1; 16]];
        let columns: [ArrayRef; 10] = [
            Arc::new(BooleanArray::from(vec![Some(true), None, Some(false), Some(true)])),
            Arc::new(Float64Array::from_iter_values(floats)),
            Arc::new(Float32Array::from_iter_values(floats.map(|float| float as f32))),
            Arc::new(Decimal128Array::from_iter_values(numbers)),
            Arc::new(IntervalMonthDayNanoArray::from_iter_values(intervals.iter().map(interval))),
            Arc::new(FixedSizeBinaryArray::try_from_iter(uuids.iter()).unwrap()),
            Arc::new(StringViewArray::from_iter_values(texts)),
            Arc::new(LargeStringArray::from_iter_values(texts)),
            Arc::new(BinaryViewArray::from_iter_values(texts)),
            Arc::new(BinaryArray::from_iter(texts.map(|text| (text != "ü").then_some(text)))),
        ];
        for column in columns {
            for part in [column.clone(), column.slice(1, column.len() - 1)] {
                let bytes = with_bytes(&part, |all| all.map(|value| value.map(Box::<[u8]>::from)).collect::<Vec<_>>());
                for (at, one) in bytes.iter().enumerate() {
                    assert_eq!(one.is_none(), part.is_null(at));
                    let equal = cmp::eq(&part, &Scalar::new(part.slice(at, 1))).unwrap();
                    let found = bytes.iter().map(|other| Some(one.as_ref()? == other.as_ref()?));
                    assert!(found.eq(equal.iter()), "value {at} of {part:?}");
                }
            }
        }
    }
}
