//! Functions about their arguments themselves: num_nulls, num_nonnulls, nullif, pg_typeof.

use super::compared_types::compared_type;
use super::definition::{Definition, Types};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array, StringArray};
use datafusion::arrow::compute::{cast, nullif};
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr_common::datum::apply_cmp;
use serac_values::SqlError;
use serac_values::text_types::{is_text, is_text_or_null};
use std::sync::Arc;

fn any(given: &[DataType]) -> Option<Types> {
    (!given.is_empty()).then(|| (given.to_vec(), DataType::Int32))
}

/// The number of arguments that are NULL, or are not, row by row.
fn count(args: &[ArrayRef], null: bool) -> Result<ArrayRef, SqlError> {
    let nulls: Vec<_> = args.iter().map(|array| array.logical_nulls()).collect();
    let is_null = |i: usize, row| nulls[i].as_ref().is_some_and(|nulls| nulls.is_null(row));
    let of_row = |row| (0..args.len()).filter(|i| is_null(*i, row) == null).count() as i32;
    Ok(Arc::new((0..args[0].len()).map(of_row).collect::<Int32Array>()))
}

/// The type in which two values are compared. A literal in quotes has the other's type.
fn common(given: &[DataType]) -> Option<DataType> {
    let [left, right] = given else { return None };
    match (is_text(left), is_text(right)) {
        (true, false) if !right.is_null() => Some(right.clone()),
        (false, true) if !left.is_null() => Some(left.clone()),
        _ => compared_type(left, right),
    }
}

/// The first of two values, of its own type, or NULL where they are equal.
fn null_if(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let types: Vec<DataType> = args.iter().map(|array| array.data_type().clone()).collect();
    let in_common = |array: &ArrayRef| match common(&types) {
        Some(common) => Ok(cast(array, &common)?),
        None => Ok::<_, SqlError>(array.clone()),
    };
    // As `=` does it, for which floats have one zero.
    let [left, right] = [in_common(&args[0])?, in_common(&args[1])?].map(ColumnarValue::Array);
    let are_equal = apply_cmp(Operator::Eq, &left, &right)?.into_array(args[0].len())?;
    Ok(nullif(&args[0], are_equal.as_boolean())?)
}

fn null_if_types(given: &[DataType]) -> Option<Types> {
    let common = common(given)?;
    let of = |argument: &DataType| if is_text_or_null(argument) { common.clone() } else { argument.clone() };
    Some((given.iter().map(of).collect(), of(&given[0])))
}

pub(super) static DEFINITIONS: &[Definition] = &[
    Definition { name: "num_nulls", types: any, body: |args| count(args, true) },
    Definition { name: "num_nonnulls", types: any, body: |args| count(args, false) },
    Definition { name: "nullif", types: null_if_types, body: null_if },
    Definition {
        name: "pg_typeof",
        types: |given| (given.len() == 1).then(|| (given.to_vec(), DataType::Utf8)),
        body: |args| {
            let name = serac_values::type_names::name_of(args[0].data_type());
            Ok(Arc::new(StringArray::from(vec![name; args[0].len()])))
        },
    },
];
