//! jsonb_bool (document, type) and jsonb_numeric (document, type): the truth value or the number in
//! a document. The type is for the error message.

use super::documents::{JSON, document, documents};
use crate::definition::Definition;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, LargeBinaryArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use serac_engine::json::Json;
use serac_numeric::Numeric;
use serac_values::SqlError;
use std::sync::Arc;

pub(super) static DEFINITIONS: &[Definition] = &[
    Definition {
        name: "jsonb_bool",
        types: |given| (given.len() == 2).then(|| (vec![JSON, DataType::Utf8View], DataType::Boolean)),
        body: |args| {
            let truth = |json: &Json| if let Json::Bool(truth) = json { Some(*truth) } else { None };
            Ok(Arc::new(each(args, truth)?.into_iter().collect::<BooleanArray>()))
        },
    },
    Definition {
        name: "jsonb_numeric",
        types: |given| (given.len() == 2).then(|| (vec![JSON, DataType::Utf8View], DataType::LargeBinary)),
        body: |args| {
            let number = |json: &Json| match json {
                Json::Number(digits) => Some(digits.parse::<Numeric>().map(|number| number.to_stored())),
                _ => None,
            };
            let numbers = each(args, number)?.into_iter().map(Option::transpose);
            Ok(Arc::new(numbers.collect::<Result<LargeBinaryArray, _>>()?))
        },
    },
];

/// The value in each document; NULL for NULL.
///
/// # Errors
/// 22023 for a document of another kind.
fn each<T>(args: &[ArrayRef], of: impl Fn(&Json) -> Option<T>) -> Result<Vec<Option<T>>, SqlError> {
    let (given, types) = (documents(&args[0]), cast(&args[1], &DataType::Utf8View)?);
    let one = |row: usize| {
        if given.is_null(row) {
            return Ok(None);
        }
        let json = document(given.value(row))?;
        let kind = match &json {
            Json::Null => "null",
            Json::Bool(_) => "boolean",
            Json::Number(_) => "numeric",
            Json::String(_) => "string",
            Json::Array(_) => "array",
            Json::Object(_) => "object",
        };
        let wanted = types.as_string_view().value(row);
        let wrong =
            || SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("cannot cast jsonb {kind} to type {wanted}"));
        of(&json).map(Some).ok_or_else(wrong)
    };
    (0..given.len()).map(one).collect()
}
