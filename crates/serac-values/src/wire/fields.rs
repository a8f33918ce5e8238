//! PostgreSQL's type of a result's column, if its Arrow type does not determine it. A VARCHAR and a
//! CHAR are texts to Arrow, and only a NUMERIC has its modifier there. It stands in the metadata of
//! the field.

use super::array::{WireColumn, type_of};
use super::types::{JSON, JSONB, TEXT, VOID};
use crate::error::{Result, SqlError};
use datafusion::arrow::datatypes::{Field, Schema};
use serac_engine::TYPE_KEY;
use serac_storage::Value;

/// NAME's number.
const NAME: u32 = 19;
/// CHAR's number.
const BPCHAR: u32 = 1042;
/// VARCHAR's number.
const VARCHAR: u32 = 1043;

/// The number of UNKNOWN: constants of no type.
const UNKNOWN: u32 = 705;
/// The numbers of arrays of texts.
const TEXT_ARRAY: u32 = 1009;
const VARCHAR_ARRAY: u32 = 1015;
const BPCHAR_ARRAY: u32 = 1014;
const NAME_ARRAY: u32 = 1003;
/// The number of arrays of JSON.
const JSON_ARRAY: u32 = 199;
/// The number of arrays of JSONB.
const JSONB_ARRAY: u32 = 3807;

/// Characters that the columns of CHAR(n) in a row may show together.
pub const MOST_WIDTH: usize = 1 << 28;

/// The field with a type and a modifier, -1 for no modifier.
pub fn with_type(field: Field, oid: u32, modifier: i32) -> Field {
    let own = type_of(field.data_type());
    if (own.oid, own.modifier) == (oid, modifier) {
        return field;
    }
    serac_engine::with_type(field, oid, modifier)
}

/// The key of the column of a table or a view that a field is, in the field's metadata.
const ORIGIN_KEY: &str = "postgresql.column";

/// The field as the column with a number (`pg_attribute.attnum`) of the relation with a number.
pub fn with_origin(field: Field, relation: u32, column: i16) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.insert(ORIGIN_KEY.into(), format!("{relation}:{column}"));
    field.with_metadata(metadata)
}

/// The numbers of the relation and the column that a field is; `None` for a computed one.
pub fn origin(field: &Field) -> Option<(u32, i16)> {
    let (relation, column) = field.metadata().get(ORIGIN_KEY)?.split_once(':')?;
    Some((relation.parse().ok()?, column.parse().ok()?))
}

/// The type and the modifier that a field has been given; `None` if its Arrow type determines them.
pub fn told_type(field: &Field) -> Option<(u32, i32)> {
    let (oid, modifier) = field.metadata().get(TYPE_KEY)?.split_once(':')?;
    Some((oid.parse().ok()?, modifier.parse().ok()?))
}

/// The type of a column on the wire. A type is left out if its values would have another form than
/// those of its Arrow type.
pub fn field_type(field: &Field) -> WireColumn {
    let own = type_of(field.data_type());
    match told_type(field) {
        Some((oid, modifier)) if oid == own.oid => WireColumn { modifier, ..own },
        Some((oid @ (BPCHAR | VARCHAR), modifier)) if own.oid == TEXT => WireColumn { oid, modifier, ..own },
        Some((oid @ JSON, _)) if own.oid == JSONB => WireColumn { oid, ..own },
        Some((oid @ JSON_ARRAY, _)) if own.oid == JSONB_ARRAY => WireColumn { oid, ..own },
        Some((NAME, modifier)) if own.oid == TEXT => WireColumn { oid: NAME, size: 64, modifier },
        Some((UNKNOWN, modifier)) if own.oid == TEXT => WireColumn { oid: UNKNOWN, size: -2, modifier },
        Some((oid @ (VARCHAR_ARRAY | BPCHAR_ARRAY | NAME_ARRAY), modifier)) if own.oid == TEXT_ARRAY => {
            WireColumn { oid, modifier, ..own }
        }
        Some((VOID, modifier)) if own.oid == TEXT => WireColumn { oid: VOID, size: 4, modifier },
        _ => own,
    }
}

/// Whether the values of a column are JSON, or arrays of it, which Arrow does not tell from JSONB.
pub fn is_json(field: &Field) -> bool {
    matches!(field_type(field).oid, JSON | JSON_ARRAY)
}

/// The number of characters that a column of CHAR(n) shows: values are kept without the blanks that
/// the length adds.
pub fn width(field: &Field) -> Option<usize> {
    let WireColumn { oid, modifier, .. } = field_type(field);
    let length = usize::try_from(modifier.checked_sub(4)?).ok()?;
    (oid == BPCHAR).then_some(length)
}

/// The [widths](width) of all columns; empty without any.
pub fn widths(schema: &Schema) -> Vec<Option<usize>> {
    let widths: Vec<_> = schema.fields().iter().map(|field| width(field)).collect();
    if widths.iter().all(Option::is_none) { Vec::new() } else { widths }
}

/// Checks how many characters the columns of CHAR(n) in a row show together.
///
/// # Errors
/// 54000 for more than [`MOST_WIDTH`].
pub fn check_widths(widths: impl Iterator<Item = Option<usize>>) -> Result<()> {
    if widths.flatten().sum::<usize>() > MOST_WIDTH {
        let message = format!("a row shows more than {MOST_WIDTH} characters of CHAR(n)");
        return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message));
    }
    Ok(())
}

/// Writes the blanks behind a value of a column with a [width], which has been written.
pub fn write_blanks(out: &mut Vec<u8>, value: Value<'_>, width: Option<usize>) {
    if let (Some(width), Value::Bytes(text)) = (width, value) {
        out.extend(std::iter::repeat_n(b' ', missing_blanks(text, width)));
    }
}

/// The number of blanks that a text lacks to this many characters.
pub fn missing_blanks(text: &[u8], width: usize) -> usize {
    // Bytes that go on with a character begin with the bits 10.
    let characters = text.iter().filter(|byte| **byte & 0xC0 != 0x80).count();
    width.saturating_sub(characters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::DataType;

    #[test]
    fn fields_keep_their_types() {
        let text = || Field::new("a", DataType::Utf8View, true);
        assert_eq!(told_type(&with_type(text(), TEXT, -1)), None);
        let varchar = with_type(text(), VARCHAR, 9);
        assert_eq!((told_type(&varchar), field_type(&varchar).oid, width(&varchar)), (Some((VARCHAR, 9)), 1043, None));
        let numeric = with_type(Field::new("n", DataType::Decimal128(10, 2), true), 1700, -1);
        assert_eq!((field_type(&numeric).oid, field_type(&numeric).modifier), (1700, -1));
        let document = || Field::new("d", DataType::LargeUtf8, true);
        let json = with_type(document(), JSON, -1);
        assert_eq!((field_type(&json).oid, is_json(&json)), (JSON, true));
        assert_eq!((field_type(&document()).oid, is_json(&document())), (JSONB, false));
        let list = Field::new("l", DataType::new_list(DataType::LargeUtf8, true), true);
        assert_eq!(field_type(&with_type(list.clone(), JSON_ARRAY, -1)).oid, JSON_ARRAY);
        assert_eq!(field_type(&list).oid, JSONB_ARRAY);
        let column = with_origin(varchar, 16_384, 2);
        assert_eq!((origin(&column), field_type(&column).oid, origin(&text())), (Some((16_384, 2)), VARCHAR, None));
        // Numbers of objects are shown as names, which are no numbers on the wire.
        assert_eq!(field_type(&with_type(text(), 2205, -1)).oid, TEXT);
    }

    #[test]
    fn characters_are_shown_with_their_blanks() {
        let of = with_type(Field::new("a", DataType::Utf8View, true), BPCHAR, 7);
        assert_eq!(width(&of), Some(3));
        let missing = ["a", "äöü", "", "abcd"].map(|text| missing_blanks(text.as_bytes(), 3));
        assert_eq!(missing, [2, 0, 3, 0]);
        let mut out = b"ab".to_vec();
        write_blanks(&mut out, Value::Bytes(b"ab"), width(&of));
        write_blanks(&mut out, Value::Bytes(b"ab"), None);
        write_blanks(&mut out, Value::Null, width(&of));
        assert_eq!(out, b"ab ");
        assert!(check_widths([Some(MOST_WIDTH), None].into_iter()).is_ok());
        let error = check_widths([Some(MOST_WIDTH), None, Some(1)].into_iter()).unwrap_err();
        assert_eq!(error.sqlstate, sqlstate::PROGRAM_LIMIT_EXCEEDED);
    }
}
