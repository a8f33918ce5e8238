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
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, Datum, Scalar, UInt32Array};
use arrow_ord::cmp;
use arrow_schema::ArrowError;
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
    /// Any of these texts or binary values.
    BytesOneOf(HashSet<Box<[u8]>>),
    /// Any of these, at least one.
    OneOf(Vec<Scalar<ArrayRef>>),
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
                match (constant.len(), column_type) {
                    (0, _) => Constant::Null,
                    (2.., ColumnType::Utf8) => Constant::BytesOneOf(
                        constant.as_string_view().iter().flatten().map(|text| text.as_bytes().into()).collect(),
                    ),
                    (2.., ColumnType::Binary) => {
                        Constant::BytesOneOf(constant.as_binary_view().iter().flatten().map(Box::from).collect())
                    }
                    (count, _) => Constant::OneOf((0..count).map(|i| Scalar::new(constant.slice(i, 1))).collect()),
                }
            }
        };
        let column = ScanColumn { id: ColumnId(filter.column as u16), form };
        Ok(Self { column, column_type, comparison: filter.comparison, constant })
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
            Constant::BytesOneOf(_) | Constant::OneOf(_) => false,
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
            Constant::BytesOneOf(constants) => match values.as_string_view_opt() {
                Some(values) => positions_where(values.iter(), |value| constants.contains(value.as_bytes())),
                None => positions_where(values.as_binary_view().iter(), |value| constants.contains(value)),
            },
            Constant::OneOf(constants) => {
                let values = match self.column_type {
                    ColumnType::Numeric => &keys_of(values)?,
                    _ => values,
                };
                let mut qualifying: Option<BooleanArray> = None;
                for constant in constants {
                    let (values, constant): (&dyn Datum, &dyn Datum) = (values, constant);
                    let outcome = match comparison {
                        Comparison::Equal => cmp::eq(values, constant),
                        Comparison::NotEqual => cmp::neq(values, constant),
                        Comparison::Less => cmp::lt(values, constant),
                        Comparison::LessOrEqual => cmp::lt_eq(values, constant),
                        Comparison::Greater => cmp::gt(values, constant),
                        Comparison::GreaterOrEqual => cmp::gt_eq(values, constant),
                    }?;
                    // Where the column is NULL, every outcome is.
                    qualifying = Some(match qualifying {
                        Some(others) => BooleanArray::new(others.values() | outcome.values(), outcome.nulls().cloned()),
                        None => outcome,
                    });
                }
                qualifying.map_or_else(Vec::new, |all| positions_of(all.values(), all.nulls()))
            }
        };
        Ok(if positions.len() == selection.len() { selection } else { selection.narrow(&positions) })
    }
}
