//! Functions that PostgreSQL has and DataFusion has not, or has with another meaning. What reads and writes by patterns is in `formats`.

mod accounted;
mod aggregates;
mod arguments;
mod arithmetic;
mod arrays;
mod average;
mod casts;
mod chosen;
mod date_parts;
mod digests;
mod exact_sums;
mod float_sums;
mod integer_results;
mod interval_operators;
mod intervals;
mod json;
mod like;
mod powers;
mod quotients;
mod regexes;
mod rounding;
mod sequences;
mod series;
mod sleep;
mod sliding;
mod sum;
mod text_aggregate;
mod texts;
mod texts_as_intervals;
mod texts_as_times;
mod time_words;
mod time_zones;
mod times;
mod truncated_times;
mod variances;
mod zeros;

pub(crate) use accounted::{Accounts, LongTexts, SmallConstants, accounted};
pub(crate) use aggregates::functions as aggregates;
pub(crate) use casts::{Casts, with_own_casts};
pub(crate) use chosen::Arrays;
pub(crate) use date_parts::function_of as date_part_function;
pub(crate) use integer_results::windows;
pub(crate) use interval_operators::{
    IntervalArithmetic, as_cast as cast_interval, modified as modified_interval, of_durations,
};
pub(crate) use intervals::positional as positional_interval;
pub(crate) use json::JsonOperators;
pub(crate) use like::escape as like_escape;
pub(crate) use quotients::Quotients;
pub(crate) use regexes::patterns::Patterns;
pub(crate) use sequences::SequenceValues;
pub(crate) use sliding::{SUMS, sliding};
pub(crate) use texts::bytes_of_digits;
pub(crate) use texts_as_intervals::{MODIFIED as MODIFIED_INTERVAL, interval as read_interval};
pub(crate) use texts_as_times::read as read_times;
pub(crate) use zeros::{has_one_zero, one_zero};

use crate::catalog::Shared;
use crate::error::SqlError;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The types that a function's arguments become, and the type of its result.
type Types = (Vec<DataType>, DataType);

/// A function whose result follows from its arguments.
struct Definition {
    name: &'static str,
    /// What becomes of arguments of given types; none if it does not take such. Of its own answer it says the same again.
    types: fn(&[DataType]) -> Option<Types>,
    /// The results of rows, one or all of those of a batch.
    body: fn(&[ArrayRef]) -> Result<ArrayRef, SqlError>,
}

struct DefinedFunction {
    definition: &'static Definition,
    signature: Signature,
}

impl std::fmt::Debug for DefinedFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.definition.name)
    }
}
impl PartialEq for DefinedFunction {
    fn eq(&self, other: &Self) -> bool {
        self.definition.name == other.definition.name
    }
}
impl Eq for DefinedFunction {}
impl Hash for DefinedFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.definition.name.hash(state);
    }
}

impl From<&'static Definition> for ScalarUDF {
    fn from(definition: &'static Definition) -> Self {
        Self::from(DefinedFunction { definition, signature: Signature::user_defined(Volatility::Immutable) })
    }
}

/// The error of a call with arguments that a function does not take.
fn no_function(name: &str, given: &[DataType]) -> datafusion::error::DataFusionError {
    let shown = given.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    SqlError::new("42883", format!("function {name}({shown}) does not exist")).named(name).external()
}

impl ScalarUDFImpl for DefinedFunction {
    fn name(&self) -> &str {
        self.definition.name
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let types = (self.definition.types)(given).ok_or_else(|| no_function(self.name(), given))?;
        Ok(types.0)
    }
    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        let types = (self.definition.types)(given).ok_or_else(|| no_function(self.name(), given))?;
        Ok(types.1)
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let apply = |arrays: &[ArrayRef]| (self.definition.body)(arrays).map_err(SqlError::external);
        make_scalar_function(apply, Vec::new())(&args.args)
    }
}

/// The functions that are the same in every session.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    let definitions = [
        arguments::DEFINITIONS,
        arithmetic::DEFINITIONS,
        arrays::DEFINITIONS,
        date_parts::DEFINITIONS,
        digests::DEFINITIONS,
        intervals::DEFINITIONS,
        like::DEFINITIONS,
        powers::DEFINITIONS,
        regexes::DEFINITIONS,
        texts::DEFINITIONS,
        texts_as_intervals::DEFINITIONS,
        time_zones::DEFINITIONS,
        times::DEFINITIONS,
        truncated_times::DEFINITIONS,
    ];
    let defined = definitions.into_iter().flatten().map(ScalarUDF::from);
    let others = integer_results::functions()
        .into_iter()
        .chain([sleep::function()])
        .chain(rounding::functions())
        .chain(date_parts::functions())
        .chain(chosen::functions());
    let others = others.chain(times::clocks()).chain([series::function()]);
    defined.chain(json::functions()).chain(others)
}

/// Those that know their session.
pub(crate) fn of_session(shared: &Arc<Shared>) -> impl Iterator<Item = ScalarUDF> + use<> {
    let functions = times::functions(shared).into_iter().chain(sequences::functions(shared));
    functions.chain(crate::channels::functions(shared))
}
