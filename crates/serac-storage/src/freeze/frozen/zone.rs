//! Zones: the smallest and the largest value of a column of a block.

use crate::types::ColumnType;
use arrow_buffer::{BooleanBuffer, Buffer};
use serde::{Deserialize, Serialize};

/// The smallest and the largest value of a column in a block: integers, dates, times and scaled
/// decimals as 64-bit integers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Zone {
    /// Smallest.
    pub min: i64,
    /// Largest.
    pub max: i64,
}

/// The zone of those values that are there; `None` for other types, and without a value.
pub(super) fn zone_of(column_type: ColumnType, values: &Buffer, holds: Option<&BooleanBuffer>) -> Option<Zone> {
    fn of<T: Copy + Ord + Into<i64>>(values: &[T], holds: Option<&BooleanBuffer>) -> Option<Zone> {
        let add = |zone: Option<(T, T)>, values: &[T]| {
            let first = *values.first()?;
            Some(
                values
                    .iter()
                    .fold(zone.unwrap_or((first, first)), |(min, max), &value| (min.min(value), max.max(value))),
            )
        };
        let (min, max) = match holds {
            None => add(None, values),
            Some(holds) => holds.set_slices().fold(None, |zone, (from, to)| add(zone, &values[from..to])),
        }?;
        Some(Zone { min: min.into(), max: max.into() })
    }
    match column_type {
        ColumnType::Int16 => of(values.typed_data::<i16>(), holds),
        ColumnType::Int32 | ColumnType::Date => of(values.typed_data::<i32>(), holds),
        ColumnType::Int64 | ColumnType::Time | ColumnType::Timestamp { .. } => of(values.typed_data::<i64>(), holds),
        ColumnType::Decimal { precision, .. } if precision <= 18 => of(values.typed_data::<i64>(), holds),
        _ => None,
    }
}
