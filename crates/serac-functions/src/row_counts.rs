//! limit_count and offset_count: the numbers of rows that LIMIT and OFFSET name, where these are
//! expressions.

use super::definition::{Definition, Types};
use crate::sql_result::SqlResult;
use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use serac_values::SqlError;

fn types(given: &[DataType]) -> Option<Types> {
    (given.len() == 1).then(|| (vec![DataType::Int64], DataType::Int64))
}

/// The numbers, of which none may be negative.
fn counts(args: &[ArrayRef], sqlstate: &'static str, clause: &str) -> SqlResult<ArrayRef> {
    match args[0].as_primitive::<Int64Type>().iter().flatten().any(|count| count < 0) {
        true => Err(SqlError::new(sqlstate, format!("{clause} must not be negative"))),
        false => Ok(args[0].clone()),
    }
}

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "limit_count",
        types,
        body: |args| counts(args, sqlstate::INVALID_ROW_COUNT_IN_LIMIT_CLAUSE, "LIMIT"),
    },
    Definition {
        name: "offset_count",
        types,
        body: |args| counts(args, sqlstate::INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE, "OFFSET"),
    },
];
