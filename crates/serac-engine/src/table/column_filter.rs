//! Conditions of an Arrow scan: `column <comparison> constant`, tested on the columns of a block.
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
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, BinaryArray, Datum, Scalar};
use arrow_ord::cmp;
use arrow_schema::ArrowError;
use serac_numeric::Numeric;
use serac_operators::select::{Comparison, positions_of, select};
use serac_storage::{BlockReader, ColumnForm, ColumnId, ColumnType, ScanColumn, Selection, StorageError};
use std::sync::Arc;

/// A condition on the rows of a table.
#[derive(Clone, Debug)]
pub struct ColumnFilter {
    /// The column's position in the table's definition.
    pub column: usize,
    /// The comparison.
    pub comparison: Comparison,
    /// The operand: an array of one value, of the column's Arrow type.
    pub constant: ArrayRef,
}

#[derive(Clone, Debug)]
enum Constant {
    /// NULL, with which no comparison holds.
    Null,
    /// In the column's raw form.
    Raw(i64),
    Value(Scalar<ArrayRef>),
}

/// A condition that is known to fit its table.
#[derive(Clone, Debug)]
pub(crate) struct BoundFilter {
    column: ScanColumn,
    column_type: ColumnType,
    comparison: Comparison,
    constant: Constant,
}

fn first<T: ArrowPrimitiveType>(constant: &ArrayRef) -> T::Native {
    constant.as_primitive::<T>().value(0)
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
        if constant.len() != 1 || *constant.data_type() != column_type.arrow() {
            let name = &table.definition.columns[filter.column].name;
            let (wanted, got) = (column_type.arrow(), constant.data_type());
            return invalid(format!(
                "column \"{name}\" is compared with one value of type {wanted}, not with {} of type {got}",
                constant.len()
            ));
        }
        let mut form = ColumnForm::Arrow;
        let constant = if constant.is_null(0) {
            Constant::Null
        } else {
            match column_type {
                ColumnType::Int16 => Constant::Raw(first::<Int16Type>(constant).into()),
                ColumnType::Int32 => Constant::Raw(first::<Int32Type>(constant).into()),
                ColumnType::Date => Constant::Raw(first::<Date32Type>(constant).into()),
                ColumnType::Int64 => Constant::Raw(first::<Int64Type>(constant)),
                ColumnType::Time => Constant::Raw(first::<Time64MicrosecondType>(constant)),
                ColumnType::Timestamp { .. } => Constant::Raw(first::<TimestampMicrosecondType>(constant)),
                ColumnType::Decimal { precision, .. } if precision <= 18 => {
                    let Ok(value) = first::<Decimal128Type>(constant).try_into() else {
                        return invalid(format!("the constant has more than {precision} digits"));
                    };
                    form = ColumnForm::Scaled64;
                    Constant::Raw(value)
                }
                ColumnType::Numeric => Constant::Value(Scalar::new(keys_of(constant).map_err(StorageError::from)?)),
                _ => Constant::Value(Scalar::new(constant.clone())),
            }
        };
        let column = ScanColumn { id: ColumnId(filter.column as u16), form };
        Ok(Self { column, column_type, comparison: filter.comparison, constant })
    }

    /// Whether the zone map says that no row of the block qualifies.
    pub(crate) fn excludes(&self, block: &BlockReader<'_>) -> bool {
        match self.constant {
            Constant::Null => true,
            Constant::Raw(value) => block
                .zone(self.column.id)
                .is_some_and(|zone| self.comparison.never_holds(zone.min..=zone.max, value..=value)),
            Constant::Value(_) => false,
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
            Constant::Value(constant) => {
                let values = match self.column_type {
                    ColumnType::Numeric => &keys_of(values)?,
                    _ => values,
                };
                let (values, constant): (&dyn Datum, &dyn Datum) = (values, constant);
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
        };
        Ok(if positions.len() == selection.len() { selection } else { selection.narrow(&positions) })
    }
}
