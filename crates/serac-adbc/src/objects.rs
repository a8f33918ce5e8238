//! The database's objects: schemas, tables, columns and constraints, from the system catalog.
//!
//! Names are patterns of LIKE. `pg_catalog` and `information_schema` are left out.

use crate::connection::CATALOG;
use crate::error::{Result, of_sql};
use crate::nested::{field_of, lists, structs};
use adbc_core::options::ObjectDepth;
use adbc_core::schemas::{
    COLUMN_SCHEMA, CONSTRAINT_SCHEMA, GET_OBJECTS_SCHEMA, OBJECTS_DB_SCHEMA_SCHEMA, TABLE_SCHEMA, USAGE_SCHEMA,
};
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int16Array, Int32Array, RecordBatch, StringArray, new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use serac_connection::{Connection, Outcome, RowReader, Statement};
use seracdb::{ScalarValue, SqlError};
use std::collections::HashMap;
use std::sync::Arc;

/// The types of tables.
pub const TABLE_TYPES: [&str; 5] = ["TABLE", "VIEW", "MATERIALIZED VIEW", "LOCAL TEMPORARY", "FOREIGN TABLE"];

/// The objects that a caller wants.
pub struct Wanted<'a> {
    pub depth: ObjectDepth,
    pub catalog: Option<&'a str>,
    pub schema: Option<&'a str>,
    pub table: Option<&'a str>,
    pub types: Option<&'a [&'a str]>,
    pub column: Option<&'a str>,
}

/// A row of the system catalog, as texts.
type Row = Vec<Option<String>>;

const SCHEMAS: &str = "SELECT nspname FROM pg_catalog.pg_namespace \
    WHERE nspname NOT IN ('pg_catalog', 'information_schema') \
    AND ($1::TEXT IS NULL OR nspname LIKE $1) ORDER BY nspname";

const TABLES: &str = "SELECT n.nspname, c.relname, \
    CASE WHEN c.relpersistence = 't' THEN 'LOCAL TEMPORARY' WHEN c.relkind = 'v' THEN 'VIEW' \
    WHEN c.relkind = 'm' THEN 'MATERIALIZED VIEW' WHEN c.relkind = 'f' THEN 'FOREIGN TABLE' ELSE 'TABLE' END, c.oid \
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind IN ('r', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema') \
    AND ($1::TEXT IS NULL OR n.nspname LIKE $1) AND ($2::TEXT IS NULL OR c.relname LIKE $2) \
    ORDER BY n.nspname, c.relname";

const COLUMNS: &str = "SELECT a.attrelid, a.attname, a.attnum, \
    pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_catalog.pg_get_expr(d.adbin, d.adrelid), \
    a.attidentity, a.attgenerated, a.atttypmod \
    FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
    WHERE a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum";

const CONSTRAINTS: &str = "SELECT k.conrelid, k.conname, k.contype, pg_catalog.array_to_string(k.conkey, ','), \
    n.nspname, c.relname, pg_catalog.array_to_string(k.confkey, ','), k.confrelid FROM pg_catalog.pg_constraint k \
    LEFT JOIN pg_catalog.pg_class c ON c.oid = k.confrelid \
    LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE k.contype IN ('p', 'u', 'f', 'c') ORDER BY k.conrelid, k.conname";

/// The rows of a query as texts.
fn rows(connection: &Connection, query: &str, parameters: &[Option<&str>]) -> Result<Vec<Row>, SqlError> {
    let parameters: Vec<_> = parameters.iter().map(|text| ScalarValue::Utf8(text.map(ToOwned::to_owned))).collect();
    let Outcome::Rows(found) = Statement::new(connection, query)?.execute(&parameters)? else {
        return Ok(Vec::new());
    };
    let mut rows = Vec::new();
    for batch in RowReader::new(found).collect_all()? {
        let columns = batch.columns().iter().map(|column| cast(column, &DataType::Utf8));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let text =
            |column: &ArrayRef, row| column.is_valid(row).then(|| column.as_string::<i32>().value(row).to_owned());
        rows.extend((0..batch.num_rows()).map(|row| columns.iter().map(|column| text(column, row)).collect::<Row>()));
    }
    Ok(rows)
}

/// The rows by the text of their first column.
fn by_first(rows: Vec<Row>) -> HashMap<String, Vec<Row>> {
    let mut groups: HashMap<String, Vec<Row>> = HashMap::new();
    for row in rows {
        groups.entry(row[0].clone().unwrap_or_default()).or_default().push(row);
    }
    groups
}

fn texts<'a>(texts: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(texts.collect::<StringArray>())
}

fn text(row: &Row, column: usize) -> Option<&str> {
    row[column].as_deref()
}

/// The name of a type, without its modifiers: its number in ODBC, the base of its digits, and
/// whether it has the date, the time or both.
fn xdbc_type(name: &str) -> Option<(i16, Option<i16>, Option<i16>)> {
    let name = name.split_once('(').map_or(name.to_owned(), |(before, rest)| {
        format!("{before}{}", rest.split_once(')').map_or("", |(_, after)| after))
    });
    Some(match name.as_str() {
        "boolean" => (-7, None, None),
        "smallint" => (5, Some(2), None),
        "integer" => (4, Some(2), None),
        "bigint" => (-5, Some(2), None),
        "real" => (7, Some(2), None),
        "double precision" => (8, Some(2), None),
        "numeric" => (2, Some(10), None),
        "character" => (1, None, None),
        "character varying" | "text" | "json" | "jsonb" | "name" => (12, None, None),
        "bytea" => (-3, None, None),
        "uuid" => (-11, None, None),
        "date" => (91, None, Some(1)),
        "time without time zone" => (92, None, Some(2)),
        "timestamp without time zone" | "timestamp with time zone" => (93, None, Some(3)),
        _ => return None,
    })
}

/// The digits or characters of a type, and the digits behind the point, as far as it tells them.
fn size(name: &str, modifier: Option<&str>) -> (Option<i32>, Option<i16>) {
    let modifier = modifier.and_then(|text| text.parse::<i32>().ok()).filter(|modifier| *modifier >= 4);
    let told = modifier.map(|modifier| modifier - 4);
    match name.split_once('(').map_or(name, |(before, _)| before) {
        "smallint" => (Some(16), Some(0)),
        "integer" => (Some(32), Some(0)),
        "bigint" => (Some(64), Some(0)),
        "real" => (Some(24), None),
        "double precision" => (Some(53), None),
        "numeric" => (told.map(|told| told >> 16), told.map(|told| told as i16)),
        "character varying" | "character" => (told, None),
        _ => (None, None),
    }
}

/// The columns of tables, as structs.
fn columns(of_tables: &[Vec<&Row>]) -> ArrayRef {
    let all: Vec<&Row> = of_tables.iter().flatten().copied().collect();
    let data_type = |row: &Row| xdbc_type(text(row, 3)?);
    let sizes: Vec<_> = all.iter().map(|row| size(text(row, 3).unwrap_or_default(), text(row, 8))).collect();
    let nullable = |row: &Row| text(row, 4) != Some("true");
    let is_generated = |row: &Row| text(row, 7).is_some_and(|kind| !kind.is_empty());
    let default = |row: &&Row| text(row, 5).filter(|_| !is_generated(row)).map(ToOwned::to_owned);
    let nothing = |name: &str| new_null_array(field_of(&COLUMN_SCHEMA, name), all.len());
    structs(
        &COLUMN_SCHEMA,
        vec![
            texts(all.iter().map(|row| text(row, 1))),
            Arc::new(all.iter().map(|row| text(row, 2)?.parse::<i32>().ok()).collect::<Int32Array>()),
            nothing("remarks"),
            Arc::new(all.iter().map(|row| Some(data_type(row)?.0)).collect::<Int16Array>()),
            texts(all.iter().map(|row| text(row, 3))),
            Arc::new(sizes.iter().map(|size| size.0).collect::<Int32Array>()),
            Arc::new(sizes.iter().map(|size| size.1).collect::<Int16Array>()),
            Arc::new(all.iter().map(|row| data_type(row)?.1).collect::<Int16Array>()),
            Arc::new(all.iter().map(|row| Some(i16::from(nullable(row)))).collect::<Int16Array>()),
            Arc::new(all.iter().map(default).collect::<StringArray>()),
            // ODBC has one number for dates and times, and one for what they are.
            Arc::new(
                all.iter()
                    .map(|row| data_type(row).map(|(number, _, time)| time.map_or(number, |_| 9)))
                    .collect::<Int16Array>(),
            ),
            Arc::new(all.iter().map(|row| data_type(row)?.2).collect::<Int16Array>()),
            nothing("xdbc_char_octet_length"),
            texts(all.iter().map(|row| Some(if nullable(row) { "YES" } else { "NO" }))),
            nothing("xdbc_scope_catalog"),
            nothing("xdbc_scope_schema"),
            nothing("xdbc_scope_table"),
            Arc::new(
                all.iter().map(|row| Some(text(row, 6).is_some_and(|kind| !kind.is_empty()))).collect::<BooleanArray>(),
            ),
            Arc::new(all.iter().map(|row| Some(is_generated(row))).collect::<BooleanArray>()),
        ],
    )
}

/// The names of the columns whose numbers a text lists.
fn named<'a>(columns: &'a HashMap<String, Vec<Row>>, table: &str, numbers: Option<&str>) -> Vec<&'a str> {
    let own = columns.get(table).map(Vec::as_slice).unwrap_or_default();
    let name = |number: &str| own.iter().find(|row| text(row, 2) == Some(number)).and_then(|row| text(row, 1));
    numbers.unwrap_or_default().split(',').filter_map(name).collect()
}

/// The constraints of tables, as structs.
fn constraints(of_tables: &[&[Row]], columns: &HashMap<String, Vec<Row>>) -> ArrayRef {
    let all: Vec<&Row> = of_tables.iter().copied().flatten().collect();
    let kind = |row: &&Row| {
        Some(match text(row, 2)? {
            "p" => "PRIMARY KEY",
            "u" => "UNIQUE",
            "f" => "FOREIGN KEY",
            _ => "CHECK",
        })
    };
    let names: Vec<Vec<&str>> =
        all.iter().map(|row| named(columns, text(row, 0).unwrap_or_default(), text(row, 3))).collect();
    // The columns that a foreign key refers to.
    let usages: Vec<Vec<(&Row, &str)>> = all
        .iter()
        .map(|row| {
            let referred = if text(row, 2) == Some("f") { text(row, 6) } else { None };
            let names = named(columns, text(row, 7).unwrap_or_default(), referred);
            names.into_iter().map(|name| (*row, name)).collect()
        })
        .collect();
    let flat: Vec<&(&Row, &str)> = usages.iter().flatten().collect();
    let usage = structs(
        &USAGE_SCHEMA,
        vec![
            texts(flat.iter().map(|_| Some(CATALOG))),
            texts(flat.iter().map(|(row, _)| text(row, 4))),
            texts(flat.iter().map(|(row, _)| text(row, 5))),
            texts(flat.iter().map(|(_, name)| Some(*name))),
        ],
    );
    let lengths = usages.iter().zip(&all).map(|(usage, row)| (text(row, 2) == Some("f")).then_some(usage.len()));
    structs(
        &CONSTRAINT_SCHEMA,
        vec![
            texts(all.iter().map(|row| text(row, 1))),
            texts(all.iter().map(kind)),
            lists(
                field_of(&CONSTRAINT_SCHEMA, "constraint_column_names"),
                names.iter().map(|names| Some(names.len())),
                texts(names.iter().flatten().copied().map(Some)),
            ),
            lists(field_of(&CONSTRAINT_SCHEMA, "constraint_column_usage"), lengths, usage),
        ],
    )
}

/// The tables of schemas, as structs.
fn tables(connection: &Connection, wanted: &Wanted<'_>, of_schemas: &[Vec<Row>]) -> Result<ArrayRef, SqlError> {
    let all: Vec<&Row> = of_schemas.iter().flatten().collect();
    let lists_of = |name: &str, lengths: Vec<Option<usize>>, elements: ArrayRef| {
        lists(field_of(&TABLE_SCHEMA, name), lengths.into_iter(), elements)
    };
    let (own_columns, own_constraints) = if wanted.depth == ObjectDepth::All || wanted.depth == ObjectDepth::Columns {
        let every = by_first(rows(connection, COLUMNS, &[])?);
        let matching = match wanted.column {
            None => None,
            Some(pattern) => {
                let query = format!("SELECT DISTINCT attname FROM ({COLUMNS}) AS columns WHERE attname LIKE $1");
                let names = rows(connection, &query, &[Some(pattern)])?;
                Some(names.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect::<Vec<_>>())
            }
        };
        let is_wanted = |row: &&Row| {
            let is_named = |names: &Vec<String>| names.iter().any(|name| text(row, 1) == Some(name));
            matching.as_ref().is_none_or(is_named)
        };
        let of = |table: &Row| every.get(text(table, 3).unwrap_or_default()).map(Vec::as_slice).unwrap_or_default();
        let of_tables: Vec<Vec<&Row>> = all.iter().map(|table| of(table).iter().filter(is_wanted).collect()).collect();
        let found = by_first(rows(connection, CONSTRAINTS, &[])?);
        let of = |table: &&Row| found.get(text(table, 3).unwrap_or_default()).map(Vec::as_slice).unwrap_or_default();
        let of_constraints: Vec<&[Row]> = all.iter().map(of).collect();
        let lengths = of_tables.iter().map(|columns| Some(columns.len())).collect();
        let column_lists = lists_of("table_columns", lengths, columns(&of_tables));
        let lengths = of_constraints.iter().map(|constraints| Some(constraints.len())).collect();
        (column_lists, lists_of("table_constraints", lengths, constraints(&of_constraints, &every)))
    } else {
        let nothing = |name: &str| new_null_array(field_of(&TABLE_SCHEMA, name), all.len());
        (nothing("table_columns"), nothing("table_constraints"))
    };
    let names = texts(all.iter().map(|row| text(row, 1)));
    let types = texts(all.iter().map(|row| text(row, 2)));
    Ok(structs(&TABLE_SCHEMA, vec![names, types, own_columns, own_constraints]))
}

fn schemas(connection: &Connection, wanted: &Wanted<'_>) -> Result<(usize, ArrayRef), SqlError> {
    let found = rows(connection, SCHEMAS, &[wanted.schema])?;
    let names = texts(found.iter().map(|row| text(row, 0)));
    let own_tables = if wanted.depth == ObjectDepth::Schemas {
        new_null_array(field_of(&OBJECTS_DB_SCHEMA_SCHEMA, "db_schema_tables"), found.len())
    } else {
        let mut by_schema = by_first(rows(connection, TABLES, &[wanted.schema, wanted.table])?);
        let is_wanted =
            |row: &Row| wanted.types.is_none_or(|types| types.iter().any(|name| text(row, 2) == Some(*name)));
        let mut of = |schema: &Row| by_schema.remove(text(schema, 0)?);
        let mut of_schemas: Vec<Vec<Row>> = found.iter().map(|schema| of(schema).unwrap_or_default()).collect();
        of_schemas.iter_mut().for_each(|tables| tables.retain(is_wanted));
        let lengths: Vec<_> = of_schemas.iter().map(|tables| Some(tables.len())).collect();
        let elements = tables(connection, wanted, &of_schemas)?;
        lists(field_of(&OBJECTS_DB_SCHEMA_SCHEMA, "db_schema_tables"), lengths.into_iter(), elements)
    };
    Ok((found.len(), structs(&OBJECTS_DB_SCHEMA_SCHEMA, vec![names, own_tables])))
}

/// The objects that fit.
///
/// # Errors
/// Those of queries to the system catalog.
pub fn objects(connection: &Connection, wanted: &Wanted<'_>) -> Result<RecordBatch> {
    let schema = GET_OBJECTS_SCHEMA.clone();
    let fits = match wanted.catalog {
        None => true,
        Some(pattern) => {
            let fits = rows(connection, "SELECT $1 LIKE $2", &[Some(CATALOG), Some(pattern)]).map_err(of_sql)?;
            fits.first().is_some_and(|row| text(row, 0) == Some("true"))
        }
    };
    if !fits {
        return Ok(RecordBatch::new_empty(schema));
    }
    let own_schemas = if wanted.depth == ObjectDepth::Catalogs {
        new_null_array(schema.field(1).data_type(), 1)
    } else {
        let (count, elements) = schemas(connection, wanted).map_err(of_sql)?;
        lists(schema.field(1).data_type(), std::iter::once(Some(count)), elements)
    };
    Ok(RecordBatch::try_new(schema, vec![texts(std::iter::once(Some(CATALOG))), own_schemas])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_their_numbers_and_sizes() {
        assert_eq!(xdbc_type("numeric(10,2)"), Some((2, Some(10), None)));
        assert_eq!(xdbc_type("timestamp(3) without time zone"), Some((93, None, Some(3))));
        assert_eq!(xdbc_type("integer[]"), None);
        let modifier = ((10 << 16 | 2) + 4).to_string();
        assert_eq!(size("numeric(10,2)", Some(&modifier)), (Some(10), Some(2)));
        assert_eq!(size("character varying(20)", Some("24")), (Some(20), None));
        assert_eq!(size("numeric", Some("-1")), (None, None));
    }
}
