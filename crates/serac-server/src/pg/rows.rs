//! Results on their way to the client.

use super::WireError;
use super::message::{message, put_i16, put_i32, put_string};
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use serac_engine::values::value_at;
use serac_sql::wire::{
    Purpose, as_told, check_widths, column_of, field_type, origin, width, with_texts, write_binary, write_blanks,
    write_styled_text, write_text,
};
use serac_sql::{Rows, SqlError, TimeStyle};
use serac_storage::{ColumnType, Value};
use std::sync::Arc;

/// The formats in which a client wants columns.
#[derive(Debug, Clone, Default)]
pub(super) struct Formats {
    /// Whether they are binary: an empty list for text, a single entry for all, or an entry each.
    pub(super) binary: Vec<bool>,
    /// The columns as the client knows them, if they have been described.
    pub(super) told: Option<SchemaRef>,
    /// The session's settings of times; `None` for the defaults.
    pub(super) style: Option<Arc<TimeStyle>>,
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
            let column = field_type(field);
            put_string(out, field.name());
            let (relation, number) = origin(field).unwrap_or_default();
            put_i32(out, relation as i32);
            put_i16(out, number);
            put_i32(out, column.oid as i32);
            put_i16(out, column.size);
            put_i32(out, column.modifier);
            put_i16(out, formats.is_binary(i).into());
        }
    });
}

/// The form of a value.
#[derive(Clone, Copy)]
struct Form<'s> {
    binary: bool,
    /// The width to which the blanks behind a CHAR(n) fill the value.
    width: Option<usize>,
    /// The session's settings of times; `None` for the defaults.
    style: Option<&'s TimeStyle>,
}

/// Writes a value.
fn put_value(out: &mut Vec<u8>, value: Value<'_>, column_type: ColumnType, form: Form<'_>) {
    let Form { binary, width, style } = form;
    if value.is_null() {
        return put_i32(out, -1);
    }
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    match (binary, style) {
        (true, _) => write_binary(out, value, column_type),
        (false, None) => write_text(out, value, column_type),
        (false, Some(style)) => write_styled_text(out, value, column_type, style),
    }
    write_blanks(out, value, width);
    let length = (out.len() - start - 4) as i32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// The columns of a batch as they are sent.
pub(super) struct WireBatch {
    columns: Vec<(ArrayRef, ColumnType, Option<usize>)>,
    rows: usize,
}

impl WireBatch {
    pub(super) fn new(batch: &RecordBatch, formats: &Formats) -> Result<Self, WireError> {
        let schema = batch.schema();
        let sent = |(i, array): (usize, &ArrayRef)| {
            let told = formats.told.as_ref().and_then(|told| told.fields().get(i));
            let styled = match (&formats.style, told) {
                // They become texts on their way to the announced type.
                (Some(style), Some(told)) if matches!(told.data_type(), DataType::Utf8 | DataType::Utf8View) => {
                    with_texts(array, style, Purpose::Text)?
                }
                _ => array.clone(),
            };
            let array = told.map_or(Ok(styled.clone()), |told| as_told(&styled, told.data_type()))?;
            let field = told.unwrap_or(&schema.fields()[i]);
            let array = match &formats.style {
                // Arrays and rows are texts before their values are written.
                Some(style) if !formats.is_binary(i) && array.data_type().is_nested() => {
                    with_texts(&array, style, Purpose::Text)?
                }
                _ => array,
            };
            let (array, column_type) =
                column_of(&array, formats.is_binary(i), field_type(field).oid).map_err(SqlError::from)?;
            Ok((array, column_type, width(field)))
        };
        let columns = batch.columns().iter().enumerate().map(sent).collect::<Result<Vec<_>, WireError>>()?;
        check_widths(columns.iter().map(|(_, _, width)| *width))?;
        Ok(Self { columns, rows: batch.num_rows() })
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Writes a row.
    pub(super) fn put(&self, out: &mut Vec<u8>, row: usize, formats: &Formats) {
        message(out, b'D', |out| {
            put_i16(out, self.columns.len() as i16);
            for (i, (array, column_type, width)) in self.columns.iter().enumerate() {
                let form = Form { binary: formats.is_binary(i), width: *width, style: formats.style.as_deref() };
                put_value(out, value_at(array, row, *column_type), *column_type, form);
            }
        });
    }
}

/// Writes a row of the point path. `widths` are those of its columns ([`serac_sql::wire::widths`]).
pub(super) fn put_point_row(
    out: &mut Vec<u8>,
    rows: &Rows,
    row: usize,
    (types, widths): (&[ColumnType], &[Option<usize>]),
    formats: &Formats,
) {
    message(out, b'D', |out| {
        put_i16(out, types.len() as i16);
        for (i, (value, column_type)) in rows.row(row).zip(types).enumerate() {
            let width = widths.get(i).copied().flatten();
            let form = Form { binary: formats.is_binary(i), width, style: formats.style.as_deref() };
            put_value(out, value, *column_type, form);
        }
    });
}
