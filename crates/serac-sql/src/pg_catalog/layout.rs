//! The tables of the system as data: their columns (`tables.txt`), and rows of few kinds of values
//! that become a batch.
//!
//! A line of `tables.txt` is a table: its schema and name, its number in PostgreSQL (0 if that is
//! not fixed), its kind (`r`, `v`), and its columns with the names of their types. A row names the
//! columns that it fills; the others have the default value of their types.

use super::routines;
use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Float32Array, Int16Array, Int32Array, Int64Array, IntervalMonthDayNanoArray,
    LargeListArray, ListArray, RecordBatch, RecordBatchOptions, StringArray, TimestampMicrosecondArray, UInt32Array,
    new_null_array,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{DataType, Field, IntervalMonthDayNano, Schema, SchemaRef, TimeUnit};
use datafusion::error::Result;
use serac_pg::{NO_MODIFIER, TypeId};
use serac_values::intervals::INTERVAL;
use serac_values::wire::with_type;
use std::sync::{Arc, LazyLock};

/// A column of a system table.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    /// PostgreSQL's name of the type, with `[]` for an array.
    pub(super) type_name: &'static str,
}

impl Column {
    /// Whether its values are the numbers of functions.
    fn is_function(&self) -> bool {
        self.type_name == "regproc"
    }
}

/// The layout of a system table.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) schema: &'static str,
    pub(super) name: &'static str,
    /// Its number in PostgreSQL; 0 where that differs between installations.
    pub(super) oid: u32,
    pub(super) kind: &'static str,
    pub(super) columns: Vec<Column>,
}

/// All system tables, in the order of `tables.txt`.
pub(super) static LAYOUTS: LazyLock<Vec<Layout>> = LazyLock::new(|| {
    let layout = |line: &'static str| {
        let (name, rest) = line.split_once(' ').expect("schema.name, number, kind, columns");
        let (schema, name) = name.split_once('.').expect("schema.name");
        let (oid, rest) = rest.split_once(' ').expect("number, kind, columns");
        let (kind, columns) = rest.split_once(' ').expect("kind, columns");
        let column = |text: &'static str| {
            let (name, type_name) = text.split_once(' ').expect("name and type");
            Column { name, type_name }
        };
        let oid = oid.parse().expect("a number");
        Layout { schema, name, oid, kind, columns: columns.split(", ").map(column).collect() }
    };
    include_str!("tables.txt").lines().map(layout).collect()
});

/// The system table with this name.
pub(super) fn find(schema: &str, name: &str) -> Option<&'static Layout> {
    LAYOUTS.iter().find(|layout| layout.schema == schema && layout.name == name)
}

/// An array of this element type.
pub(super) fn list_of(element: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(element, true)))
}
/// A vector, as indexes have them: its first element has the number 0, and its text no braces.
/// Nothing else is a large list here.
pub(super) fn vector_of(element: DataType) -> DataType {
    DataType::LargeList(Arc::new(Field::new_list_field(element, true)))
}

/// How values of one of PostgreSQL's types are kept: numbers of objects as unsigned integers, which
/// nothing else is.
pub(super) fn arrow_type(type_name: &str) -> DataType {
    match type_name {
        "oid" | "regproc" | "regtype" => DataType::UInt32,
        "bool" => DataType::Boolean,
        "int2" => DataType::Int16,
        "int4" => DataType::Int32,
        "int8" | "xid" | "cid" => DataType::Int64,
        "float4" => DataType::Float32,
        "float8" => DataType::Float64,
        "bytea" => DataType::Binary,
        "numeric" => DataType::LargeBinary,
        "timestamptz" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        "interval" => INTERVAL,
        "int2vector" => vector_of(DataType::Int16),
        "oidvector" => vector_of(DataType::UInt32),
        "oid[]" | "regtype[]" => list_of(DataType::UInt32),
        "int2[]" => list_of(DataType::Int16),
        "bool[]" => list_of(DataType::Boolean),
        "float4[]" => list_of(DataType::Float32),
        "float8[]" => list_of(DataType::Float64),
        array if array.ends_with("[]") => list_of(DataType::Utf8),
        _ => DataType::Utf8,
    }
}

impl Layout {
    pub(super) fn arrow(&self) -> SchemaRef {
        let field = |column: &Column| {
            let field = Field::new(column.name, arrow_type(column.type_name), true);
            // Their values are seen as names.
            match column.type_name {
                "regproc" => with_type(field, TypeId::REGPROC.0, NO_MODIFIER),
                "regtype" => with_type(field, TypeId::REGTYPE.0, NO_MODIFIER),
                "regtype[]" => with_type(field, TypeId::REGTYPE.array().expect("it has arrays").0, NO_MODIFIER),
                _ => field,
            }
        };
        Arc::new(Schema::new(self.columns.iter().map(field).collect::<Vec<_>>()))
    }
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Null,
    Bool(bool),
    Int(i64),
    Float(f32),
    Text(String),
    Ints(Vec<i16>),
    Oids(Vec<u32>),
    Texts(Vec<String>),
}

macro_rules! cell_of {
    ($($from:ty: |$value:ident| $cell:expr),* $(,)?) => {
        $(impl From<$from> for Cell {
            fn from($value: $from) -> Self {
                $cell
            }
        })*
    };
}
cell_of! {
    bool: |v| Self::Bool(v),
    i16: |v| Self::Int(v.into()),
    i32: |v| Self::Int(v.into()),
    i64: |v| Self::Int(v),
    u32: |v| Self::Int(v.into()),
    usize: |v| Self::Int(v as i64),
    f32: |v| Self::Float(v),
    &str: |v| Self::Text(v.into()),
    &String: |v| Self::Text(v.clone()),
    String: |v| Self::Text(v),
    Vec<i16>: |v| Self::Ints(v),
    Vec<u32>: |v| Self::Oids(v),
    Vec<String>: |v| Self::Texts(v),
}
impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// The default value of a column: NULL in the information schema; in `pg_catalog`, where most
/// columns are never NULL, the zero of the type.
fn usual(layout: &Layout, column: &Column) -> Cell {
    if layout.schema != crate::identifiers::CATALOG_SCHEMA {
        return Cell::Null;
    }
    match column.type_name {
        "bool" => Cell::Bool(false),
        "oid" | "regproc" | "int2" | "int4" | "int8" | "xid" => Cell::Int(0),
        "float4" => Cell::Float(0.0),
        "char" => Cell::Text(String::new()),
        _ => Cell::Null,
    }
}

/// Rows of a table, column by column.
pub(super) struct Rows {
    layout: &'static Layout,
    columns: Vec<Vec<Cell>>,
}

impl Rows {
    pub(super) fn new(layout: &'static Layout) -> Self {
        Self { layout, columns: layout.columns.iter().map(|_| Vec::new()).collect() }
    }

    /// Adds a row with the given columns. A function may be given by its name.
    ///
    /// # Panics
    /// If the table has no such column.
    pub(super) fn add<'a>(&mut self, cells: impl IntoIterator<Item = (&'a str, Cell)>) {
        for (column, into) in self.layout.columns.iter().zip(&mut self.columns) {
            into.push(usual(self.layout, column));
        }
        for (name, cell) in cells {
            let position = self.layout.columns.iter().position(|column| column.name == name);
            let position = position.unwrap_or_else(|| panic!("{} has no column {name}", self.layout.name));
            let cell = match cell {
                Cell::Text(function) if self.layout.columns[position].is_function() => {
                    routines::number_of(&function).into()
                }
                cell => cell,
            };
            *self.columns[position].last_mut().expect("a row was added") = cell;
        }
    }

    /// The rows as a batch.
    pub(super) fn batch(self) -> Result<RecordBatch> {
        let schema = self.layout.arrow();
        let arrays = schema.fields().iter().zip(&self.columns).map(|(field, cells)| array(field.data_type(), cells));
        let count = self.columns.first().map_or(0, Vec::len);
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(schema.clone(), arrays.collect(), &options)?)
    }
}

/// Cells as an array of one of the types of [`arrow_type`]; a cell of another kind is NULL.
fn array(data_type: &DataType, cells: &[Cell]) -> ArrayRef {
    let ints = || {
        cells.iter().map(|cell| match cell {
            Cell::Int(value) => Some(*value),
            _ => None,
        })
    };
    match data_type {
        DataType::Boolean => Arc::new(
            cells
                .iter()
                .map(|cell| match cell {
                    Cell::Bool(value) => Some(*value),
                    _ => None,
                })
                .collect::<BooleanArray>(),
        ),
        DataType::Int16 => Arc::new(ints().map(|v| v.map(|v| v as i16)).collect::<Int16Array>()),
        DataType::Int32 => Arc::new(ints().map(|v| v.map(|v| v as i32)).collect::<Int32Array>()),
        DataType::UInt32 => Arc::new(ints().map(|v| v.map(|v| v as u32)).collect::<UInt32Array>()),
        DataType::Int64 => Arc::new(ints().collect::<Int64Array>()),
        DataType::Timestamp(..) => Arc::new(ints().collect::<TimestampMicrosecondArray>().with_timezone("UTC")),
        // A number of seconds.
        DataType::Interval(_) => Arc::new(
            ints()
                .map(|seconds| seconds.map(|seconds| IntervalMonthDayNano::new(0, 0, seconds * 1_000_000_000)))
                .collect::<IntervalMonthDayNanoArray>(),
        ),
        DataType::Float32 => Arc::new(
            cells
                .iter()
                .map(|cell| match cell {
                    Cell::Float(value) => Some(*value),
                    _ => None,
                })
                .collect::<Float32Array>(),
        ),
        DataType::List(element) | DataType::LargeList(element) => {
            let is_list = matches!(data_type, DataType::List(_));
            // The elements of all lists, and where each list begins and ends.
            let lengths = cells.iter().map(|cell| match cell {
                Cell::Ints(values) => values.len(),
                Cell::Oids(values) => values.len(),
                Cell::Texts(values) => values.len(),
                _ => 0,
            });
            let valid = NullBuffer::from_iter(
                cells.iter().map(|cell| matches!(cell, Cell::Ints(_) | Cell::Oids(_) | Cell::Texts(_))),
            );
            let elements: Vec<Cell> = cells
                .iter()
                .flat_map(|cell| -> Vec<Cell> {
                    match cell {
                        Cell::Ints(values) => values.iter().map(|v| Cell::from(*v)).collect(),
                        Cell::Oids(values) => values.iter().map(|v| Cell::from(*v)).collect(),
                        Cell::Texts(values) => values.iter().map(Cell::from).collect(),
                        _ => Vec::new(),
                    }
                })
                .collect();
            let values = array(element.data_type(), &elements);
            if is_list {
                let offsets = OffsetBuffer::from_lengths(lengths);
                Arc::new(ListArray::new(element.clone(), offsets, values, Some(valid)))
            } else {
                let offsets = OffsetBuffer::from_lengths(lengths);
                Arc::new(LargeListArray::new(element.clone(), offsets, values, Some(valid)))
            }
        }
        DataType::Utf8 => Arc::new(
            cells
                .iter()
                .map(|cell| match cell {
                    Cell::Text(value) => Some(value.as_str()),
                    _ => None,
                })
                .collect::<StringArray>(),
        ),
        // No table has rows with values of other types.
        other => new_null_array(other, cells.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_can_be_empty_and_have_a_usual_row() {
        for layout in LAYOUTS.iter() {
            assert_eq!(Rows::new(layout).batch().unwrap().num_rows(), 0);
            let mut rows = Rows::new(layout);
            rows.add([]);
            assert_eq!(rows.batch().unwrap().num_rows(), 1, "{}", layout.name);
        }
    }

    #[test]
    fn cells_become_values_of_their_columns() {
        let mut rows = Rows::new(find("pg_catalog", "pg_index").unwrap());
        rows.add([("indexrelid", 7u32.into()), ("indkey", vec![3i16, 1].into()), ("indisunique", true.into())]);
        let batch = rows.batch().unwrap();
        let text = datafusion::arrow::util::pretty::pretty_format_batches(&[batch]).unwrap().to_string();
        assert!(text.contains("[3, 1]") && text.contains("true"), "{text}");
    }

    #[test]
    fn functions_are_kept_as_their_numbers() {
        let mut rows = Rows::new(find("pg_catalog", "pg_operator").unwrap());
        rows.add([("oid", 96u32.into()), ("oprcode", "int4eq".into())]);
        let batch = rows.batch().unwrap();
        let code = batch.column_by_name("oprcode").unwrap();
        assert_eq!(code.as_ref(), &UInt32Array::from(vec![65]));
    }
}
