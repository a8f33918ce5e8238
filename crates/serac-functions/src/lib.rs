//! Functions that PostgreSQL has and DataFusion has not, or has with another meaning, and the rules
//! and planners that bring them into plans.
//!
//! | modules | what they have |
//! |---|---|
//! | `definition` | a function as a name, the types that it takes, and a body; each family of functions is a list of these |
//! | `texts`, `bytes`, `padding`, `options`, `regexes`, `like`, `digests`, `json`, `arrays`, `array_keys`, `elements`, `powers`, `records`, `rounding`, `times`, `intervals` and others | families |
//! | `formats` | what reads and writes by patterns: to_char, to_date, to_number |
//! | `styled` | what depends on a session's settings of times |
//! | `array_aggregate` | array_agg that counts the texts that it keeps |
//! | `aggregates` and its `sum`, `average`, `exact_sums`, `float_sums` | aggregates of ours |
//! | `sliding` and its `variances`, `regressions`, `float_states`, `distinct`, `distinct_groups`, `any_values`, `extremes` | a wrapper of DataFusion's aggregates with accumulators of ours, also over moving frames |
//! | `ordered_sets`, `kept_values`, `group_lists` | accumulators of groups that keep the values |
//! | `shifted_sums` | many sums of an integer with constants added to it |
//! | `casts`, `uuids`, `chains`, `quotients`, `zeros` | operators and casts with PostgreSQL's meaning |
//! | `accounted` | functions whose results may be large take their memory from the session's |
//! | `constant_errors`, `strict_nulls` | errors of constants, found when a statement is planned, and calls that are NULL |
//! | `typed`, `compared_types` | what rules over expressions share |
#![warn(missing_docs)]

mod accounted;
mod aggregates;
mod any_values;
mod arguments;
mod arithmetic;
mod array_aggregate;
mod array_keys;
mod array_search;
mod arrays;
mod average;
mod bytes;
mod casts;
mod chains;
mod chosen;
mod compared_types;
mod constant_errors;
mod date_parts;
mod definition;
mod digests;
mod distinct;
mod distinct_groups;
mod elements;
mod exact_sums;
mod extremes;
mod float_errors;
mod float_states;
mod float_sums;
mod formats;
mod group_lists;
mod integer_results;
mod interval_fields;
mod interval_operators;
mod intervals;
mod json;
mod kept_values;
mod like;
mod operators;
mod options;
mod ordered_sets;
mod padding;
mod powers;
mod quotients;
mod records;
mod regexes;
mod regressions;
mod rounding;
mod row_counts;
mod series;
mod shifted_sums;
mod sleep;
mod sliding;
mod sql_result;
mod strict_nulls;
mod styled;
mod sum;
mod text_aggregate;
mod texts;
mod time_zones;
mod times;
mod truncated_times;
mod typed;
mod uuids;
mod variances;
mod zeros;

pub use accounted::{Accounts, LongTexts, SmallConstants, accounted, folding, for_rows, is_folding};
pub use aggregates::functions as aggregates;
pub use array_aggregate::bytes_of;
pub use casts::{Casts, cast_of_text, cast_value, is_of_statement, operand_of_cast, with_own_casts};
pub use compared_types::{OperandPurpose, common_type, is_decimal, is_plain_text};
pub use constant_errors::ConstantErrors;
pub use date_parts::{function_of as date_part_function, is_endless_part};
pub use exact_sums::checked_sum;
pub use float_errors::{check_floats, float_error};
pub use float_sums::sum_of_floats_overflows;
pub use integer_results::windows;
pub use like::escape as like_escape;
pub use operators::operate;
pub use regexes::patterns::Patterns;
pub use shifted_sums::{shifted_sum_name, shifted_sums};
pub use sliding::{SLIDING, sliding};
pub use strict_nulls::StrictNulls;
pub use styled::{StyledFunctions, depends_on_style};
pub use times::with_zone;
pub use typed::{has_part, has_part_anywhere, map_named, rewrite_any, rewrite_typed, rewrite_whole};
pub use uuids::UuidTypes;
pub use zeros::{has_one_zero, one_zero, with_one_nan};

use datafusion::logical_expr::ScalarUDF;

/// The functions that are the same in every session.
pub fn functions() -> impl Iterator<Item = ScalarUDF> {
    let definitions = [
        arguments::DEFINITIONS,
        arithmetic::DEFINITIONS,
        array_keys::DEFINITIONS,
        array_search::DEFINITIONS,
        arrays::DEFINITIONS,
        bytes::DEFINITIONS,
        date_parts::DEFINITIONS,
        digests::DEFINITIONS,
        elements::DEFINITIONS,
        intervals::DEFINITIONS,
        like::DEFINITIONS,
        options::DEFINITIONS,
        padding::DEFINITIONS,
        powers::DEFINITIONS,
        records::DEFINITIONS,
        regexes::DEFINITIONS,
        row_counts::DEFINITIONS,
        texts::DEFINITIONS,
        interval_fields::DEFINITIONS,
        time_zones::DEFINITIONS,
        times::DEFINITIONS,
        truncated_times::DEFINITIONS,
    ];
    let defined = definitions.into_iter().flatten().map(ScalarUDF::from);
    let others = integer_results::functions()
        .into_iter()
        .chain([sleep::function(), chains::function()])
        .chain(elements::functions())
        .chain(rounding::functions())
        .chain(date_parts::functions())
        .chain(chosen::functions())
        .chain(like::functions());
    let others = others
        .chain(times::clocks())
        .chain([times::age()])
        .chain(uuids::functions())
        .chain([series::function(), records::function()]);
    defined.chain(json::functions()).chain(formats::functions()).chain(others)
}
