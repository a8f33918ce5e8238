//! option_names and option_values: the parts of options of foreign data, which are an array of
//! texts `name=value`. The binder makes the rows of `pg_options_to_table` of them. An option
//! without a value has the value NULL.

use super::definition::{Definition, Types};
use datafusion::arrow::array::{ArrayRef, AsArray, ListBuilder, StringViewBuilder};
use datafusion::arrow::datatypes::{DataType, Field};
use serac_values::SqlError;
use serac_values::text_types::is_text_or_null;
use std::sync::Arc;

fn types(given: &[DataType]) -> Option<Types> {
    let is_texts = |of: &DataType| match of {
        DataType::List(element) | DataType::LargeList(element) => is_text_or_null(element.data_type()),
        other => other.is_null(),
    };
    let [options] = given else { return None };
    let texts = DataType::new_list(DataType::Utf8View, true);
    is_texts(options).then(|| (vec![texts.clone()], texts))
}

/// A part of each option.
fn parts(args: &[ArrayRef], part: fn(&str) -> Option<&str>) -> Result<ArrayRef, SqlError> {
    let element = Field::new_list_field(DataType::Utf8View, true);
    let mut all = ListBuilder::new(StringViewBuilder::new()).with_field(element);
    for options in args[0].as_list::<i32>().iter() {
        let Some(options) = options else {
            all.append_null();
            continue;
        };
        for option in options.as_string_view().iter() {
            all.values().append_option(option.and_then(part));
        }
        all.append(true);
    }
    Ok(Arc::new(all.finish()))
}

pub(super) static DEFINITIONS: &[Definition] = &[
    Definition {
        name: "option_names",
        types,
        body: |args| parts(args, |option| Some(option.split_once('=').map_or(option, |(name, _)| name))),
    },
    Definition {
        name: "option_values",
        types,
        body: |args| parts(args, |option| option.split_once('=').map(|(_, value)| value)),
    },
];
