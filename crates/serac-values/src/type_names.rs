//! The types of PostgreSQL that clients may ask for (`types.txt`), their numbers, and their names
//! in SQL.
//!
//! A line of `types.txt` has the fields of a row of `pg_type` that differ between types; the array
//! of each type is derived from it.

use crate::wire;
use datafusion::arrow::datatypes::DataType;
use serac_engine::catalog::definition::SqlType;
use serac_pg::{ModifiedType, NO_MODIFIER, TypeId};
use std::sync::LazyLock;

/// A type.
#[derive(Debug, Clone, Copy)]
pub struct PgType {
    /// Its number.
    pub oid: u32,
    /// Its name in `pg_type`.
    pub name: &'static str,
    /// Bytes of a value; negative where they vary.
    pub length: i16,
    /// `typbyval`.
    pub by_value: bool,
    /// `typtype`.
    pub kind: &'static str,
    /// `typcategory`.
    pub category: &'static str,
    /// `typispreferred`.
    pub preferred: bool,
    /// The number of its array type; 0 without one.
    pub array: u32,
    /// `typelem`.
    pub element: u32,
    /// `typinput`.
    pub input: &'static str,
    /// `typoutput`.
    pub output: &'static str,
    /// `typreceive`.
    pub receive: &'static str,
    /// `typsend`.
    pub send: &'static str,
    /// `typalign`.
    pub alignment: &'static str,
    /// `typstorage`.
    pub storage: &'static str,
    /// `typcollation`.
    pub collation: u32,
    /// `typmodin`.
    pub modifier_input: &'static str,
    /// `typmodout`.
    pub modifier_output: &'static str,
}

/// All of them.
pub static TYPES: LazyLock<Vec<PgType>> = LazyLock::new(|| {
    let parsed = |line: &'static str| {
        let mut fields = line.split(' ');
        let mut text = || fields.next().expect("18 fields");
        let number = |text: &str| text.parse().expect("a number");
        PgType {
            oid: number(text()),
            name: text(),
            length: text().parse().expect("a length"),
            by_value: text() == "1",
            kind: text(),
            category: text(),
            preferred: text() == "1",
            array: number(text()),
            element: number(text()),
            input: text(),
            output: text(),
            receive: text(),
            send: text(),
            alignment: text(),
            storage: text(),
            collation: number(text()),
            modifier_input: text(),
            modifier_output: text(),
        }
    };
    include_str!("types.txt").lines().map(parsed).collect()
});

/// A type, or the element's type and true for an array.
pub fn find(oid: u32) -> Option<(&'static PgType, bool)> {
    TYPES.iter().find_map(|t| match oid {
        0 => None,
        _ if t.oid == oid => Some((t, false)),
        _ if t.array == oid => Some((t, true)),
        _ => None,
    })
}

/// The number of a type by PostgreSQL's name of it in `pg_type`, with `[]` for an array; 0 for an
/// unknown name.
pub fn named(name: &str) -> u32 {
    match name.strip_suffix("[]") {
        Some(element) => TYPES.iter().find(|t| t.name == element).map_or(0, |t| t.array),
        None => TYPES.iter().find(|t| t.name == name).map_or(0, |t| t.oid),
    }
}

/// The number of the type of arrays of a type.
pub fn array_type(element: u32) -> Option<u32> {
    TYPES.iter().find(|t| t.oid == element && t.array > 0).map(|t| t.array)
}
/// The number of the type of an array's elements; `None` for another type.
pub fn element_type(array: u32) -> Option<u32> {
    TYPES.iter().find(|t| array > 0 && t.array == array).map(|t| t.oid)
}

/// Names of types in SQL that differ from those in `pg_type`.
const SQL_NAMES: [(&str, &str); 19] = [
    ("boolean", "bool"),
    ("smallint", "int2"),
    ("integer", "int4"),
    ("int", "int4"),
    ("bigint", "int8"),
    ("real", "float4"),
    ("double precision", "float8"),
    ("float", "float8"),
    ("decimal", "numeric"),
    ("character varying", "varchar"),
    ("character", "bpchar"),
    ("string", "text"),
    ("timestamp without time zone", "timestamp"),
    ("timestamp with time zone", "timestamptz"),
    ("time without time zone", "time"),
    ("time with time zone", "timetz"),
    ("\"char\"", "char"),
    ("char", "bpchar"),
    ("dec", "numeric"),
];

/// The number of the type that a text names, in any spelling: `int4`, `INTEGER`,
/// `pg_catalog.numeric(5,2)`, `text[]`, `_text`.
pub fn of_text(text: &str) -> Option<u32> {
    let text = text.trim();
    let text = ["pg_catalog.", "\"pg_catalog\"."].iter().find_map(|s| text.strip_prefix(s)).unwrap_or(text);
    let lower = if text.starts_with('"') { text.to_owned() } else { text.to_lowercase() };
    if let Some(element) = lower.strip_suffix("[]") {
        return of_text(element).and_then(find).map(|(t, _)| t.array).filter(|oid| *oid > 0);
    }
    // The modifier may stand in the middle: timestamp(3) with time zone.
    let plain = match (lower.find('('), lower.find(')')) {
        (Some(from), Some(to)) if from < to => format!("{}{}", lower[..from].trim_end(), &lower[to + 1..]),
        _ => lower,
    };
    let name = SQL_NAMES.iter().find(|(sql, _)| *sql == plain).map_or(plain.trim_matches('"'), |(_, name)| *name);
    let found = named(name);
    let found =
        if found > 0 { found } else { name.strip_prefix('_').map_or(0, |element| named(&format!("{element}[]"))) };
    Some(found).filter(|oid| *oid > 0)
}

/// The number and the modifier of a column's type.
pub fn of_sql(sql_type: SqlType) -> (u32, i32) {
    let column_type = sql_type.column_type;
    sql_type.told().unwrap_or_else(|| (wire::oid(column_type), wire::modifier(column_type)))
}

/// A type as SQL writes it, with its modifier unless that is -1. A CHAR of any length also has -1:
/// CHARACTER alone is the name of the type itself.
pub fn format(oid: u32, modifier: Option<i32>) -> String {
    let Some((found, is_array)) = find(oid) else { return if oid == 0 { "-".into() } else { "???".into() } };
    let is_told = modifier.is_some();
    let modifier = modifier.filter(|modifier| *modifier >= 0);
    let digits = || modifier.map_or(String::new(), |digits| format!("({digits})"));
    let name = match found.name {
        "bool" => "boolean".into(),
        "int2" => "smallint".into(),
        "int4" => "integer".into(),
        "int8" => "bigint".into(),
        "float4" => "real".into(),
        "float8" => "double precision".into(),
        "char" => "\"char\"".into(),
        "any" => "\"any\"".into(),
        "varchar" => match modifier {
            Some(modifier) => format!("character varying({})", modifier - 4),
            None => "character varying".into(),
        },
        "bpchar" => match modifier {
            Some(modifier) => format!("character({})", modifier - 4),
            None if is_told => "bpchar".into(),
            None => "character".into(),
        },
        "numeric" => match modifier {
            Some(modifier) => ModifiedType { id: TypeId::NUMERIC, modifier }.to_string(),
            None => "numeric".into(),
        },
        "interval" => ModifiedType { id: TypeId::INTERVAL, modifier: modifier.unwrap_or(NO_MODIFIER) }.to_string(),
        "time" => format!("time{} without time zone", digits()),
        "timetz" => format!("time{} with time zone", digits()),
        "timestamp" => format!("timestamp{} without time zone", digits()),
        "timestamptz" => format!("timestamp{} with time zone", digits()),
        other => other.to_owned(),
    };
    if is_array { name + "[]" } else { name }
}

/// The name of PostgreSQL's type for values of an Arrow type.
pub fn name_of(data_type: &DataType) -> String {
    match data_type {
        DataType::Null => "unknown".into(),
        DataType::UInt32 => "oid".into(),
        DataType::LargeBinary => "numeric".into(),
        DataType::LargeList(element) if *element.data_type() == DataType::UInt32 => "oidvector".into(),
        DataType::LargeList(_) => "int2vector".into(),
        // Arrays of arrays are of the same type.
        DataType::List(element) if matches!(element.data_type(), DataType::List(_)) => name_of(element.data_type()),
        DataType::List(element) | DataType::FixedSizeList(element, _) => name_of(element.data_type()) + "[]",
        DataType::Struct(_) => "record".into(),
        DataType::Duration(_) => "interval".into(),
        other => format(wire::oid(wire::wire_type(other)), None),
    }
}

/// The name of a type in `pg_type`.
pub fn short_name(oid: u32) -> String {
    match find(oid) {
        Some((found, false)) => found.name.into(),
        Some((found, true)) => format!("_{}", found.name),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serac_storage::ColumnType;

    #[test]
    fn types_are_found_in_all_spellings() {
        for (text, oid) in [
            ("int4", 23),
            ("INTEGER", 23),
            ("pg_catalog.int8", 20),
            ("\"pg_catalog\".\"int4\"", 23),
            ("character varying(20)", 1043),
            ("timestamp(3) with time zone", 1184),
            ("numeric(12,2)", 1700),
            ("text[]", 1009),
            ("_int4", 1007),
            ("\"char\"", 18),
            ("char", 1042),
        ] {
            assert_eq!(of_text(text), Some(oid), "{text}");
        }
        assert_eq!(of_text("nothing"), None);
    }

    #[test]
    fn types_are_written_as_in_sql() {
        let of = |sql_type| {
            let (oid, modifier) = of_sql(sql_type);
            format(oid, Some(modifier))
        };
        let text = |length, fixed_length| SqlType { length, fixed_length, ..ColumnType::Utf8.into() };
        for sql_type in [
            text(None, false),
            text(Some(40), false),
            text(Some(3), true),
            text(None, true),
            SqlType::NAME,
            SqlType { without_modifier: true, ..ColumnType::Utf8.into() },
            ColumnType::Numeric.into(),
            ColumnType::Int16.into(),
            ColumnType::Float64.into(),
            ColumnType::Decimal { precision: 12, scale: 2 }.into(),
            ColumnType::Timestamp { utc: true }.into(),
            ColumnType::Uuid.into(),
        ] {
            assert_eq!(of(sql_type), sql_type.to_string());
        }
        assert_eq!((format(1007, None), format(1700, None)), ("integer[]".into(), "numeric".into()));
    }
}
