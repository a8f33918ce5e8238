//! Results on their way to the client.

use super::WireError;
use super::message::{message, put_i16, put_i32, put_string};
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use serac_engine::values::value_at;
use serac_sql::wire::{as_told, column, type_of, write_binary, write_text};
use serac_sql::{Rows, SqlError};
use serac_storage::{ColumnType, Value};

/// The formats in which a client wants columns.
#[derive(Debug, Clone, Default)]
pub(super) struct Formats {
    /// Whether they are binary: none for text, one for all, or one each.
    pub(super) binary: Vec<bool>,
    /// The columns as the client knows them, if they have been described.
    pub(super) told: Option<SchemaRef>,
}

impl Formats {
    pub(super) fn is_binary(&self, column: usize) -> bool {
        match &self.binary[..] {
            [] => false,
            [all] => *all,
            each => each.get(column).copied().unwrap_or(false),
        }
    }
}

/// Says which columns a result has.
pub(super) fn describe(out: &mut Vec<u8>, schema: &Schema, formats: &Formats) {
    message(out, b'T', |out| {
        put_i16(out, schema.fields().len() as i16);
        for (i, field) in schema.fields().iter().enumerate() {
            let column = type_of(field.data_type());
            put_string(out, field.name());
            // No table, no number in it.
            put_i32(out, 0);
            put_i16(out, 0);
            put_i32(out, column.oid as i32);
            put_i16(out, column.size);
            put_i32(out, column.modifier);
            put_i16(out, formats.is_binary(i).into());
        }
    });
}

fn put_value(out: &mut Vec<u8>, value: Value<'_>, column_type: ColumnType, binary: bool) {
    if value.is_null() {
        return put_i32(out, -1);
    }
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    if binary {
        write_binary(out, value, column_type)
    } else {
        write_text(out, value, column_type)
    };
    let length = (out.len() - start - 4) as i32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// The columns of a batch as they are sent.
pub(super) struct WireBatch {
    columns: Vec<(ArrayRef, ColumnType)>,
    rows: usize,
}

impl WireBatch {
    pub(super) fn new(batch: &RecordBatch, formats: &Formats) -> Result<Self, WireError> {
        let sent = |(i, array): (usize, &ArrayRef)| {
            let told = formats.told.as_ref().and_then(|told| told.fields().get(i));
            let array = told.map_or_else(|| Ok(array.clone()), |told| as_told(array, told.data_type()))?;
            Ok(column(&array, formats.is_binary(i)).map_err(SqlError::from)?)
        };
        let columns = batch.columns().iter().enumerate().map(sent).collect::<Result<_, WireError>>()?;
        Ok(Self { columns, rows: batch.num_rows() })
    }
    pub(super) fn rows(&self) -> usize {
        self.rows
    }
    /// Writes a row.
    pub(super) fn put(&self, out: &mut Vec<u8>, row: usize, formats: &Formats) {
        message(out, b'D', |out| {
            put_i16(out, self.columns.len() as i16);
            for (i, (array, column_type)) in self.columns.iter().enumerate() {
                put_value(out, value_at(array, row, *column_type), *column_type, formats.is_binary(i));
            }
        });
    }
}

/// Writes a row of the point path.
pub(super) fn put_point_row(out: &mut Vec<u8>, rows: &Rows, row: usize, types: &[ColumnType], formats: &Formats) {
    message(out, b'D', |out| {
        put_i16(out, types.len() as i16);
        for (i, (value, column_type)) in rows.row(row).zip(types).enumerate() {
            put_value(out, value, *column_type, formats.is_binary(i));
        }
    });
}
