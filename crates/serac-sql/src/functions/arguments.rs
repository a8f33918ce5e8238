//! Functions of their arguments as such: num_nulls, num_nonnulls, pg_typeof.

use super::{Definition, Types};
use crate::error::SqlError;
use datafusion::arrow::array::{Array, ArrayRef, Int32Array, StringArray};
use datafusion::arrow::datatypes::DataType;
use std::sync::Arc;

fn any(given: &[DataType]) -> Option<Types> {
    (!given.is_empty()).then(|| (given.to_vec(), DataType::Int32))
}

/// How many of the arguments are NULL, or are not, row by row.
fn count(args: &[ArrayRef], null: bool) -> Result<ArrayRef, SqlError> {
    let nulls: Vec<_> = args.iter().map(|array| array.logical_nulls()).collect();
    let is_null = |i: usize, row| nulls[i].as_ref().is_some_and(|nulls| nulls.is_null(row));
    let of_row = |row| (0..args.len()).filter(|i| is_null(*i, row) == null).count() as i32;
    Ok(Arc::new((0..args[0].len()).map(of_row).collect::<Int32Array>()))
}

pub(super) static DEFINITIONS: &[Definition] = &[
    Definition { name: "num_nulls", types: any, body: |args| count(args, true) },
    Definition { name: "num_nonnulls", types: any, body: |args| count(args, false) },
    Definition {
        name: "pg_typeof",
        types: |given| (given.len() == 1).then(|| (given.to_vec(), DataType::Utf8)),
        body: |args| {
            let name = crate::pg_catalog::type_name(args[0].data_type());
            Ok(Arc::new(StringArray::from(vec![name; args[0].len()])))
        },
    },
];
