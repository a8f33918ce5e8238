//! Functions whose results depend only on their arguments: a name, the argument types, and a body.

use datafusion::arrow::array::{Array, ArrayRef, UInt32Array, new_null_array};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use serac_values::SqlError;
use std::hash::{Hash, Hasher};

/// The types that a function's arguments become, and the type of its result.
pub type Types = (Vec<DataType>, DataType);

/// A function whose result depends only on its arguments.
pub struct Definition {
    pub(super) name: &'static str,
    /// The types for arguments of given types; `None` if it does not take them. The function maps
    /// its own answer to itself.
    pub(super) types: fn(&[DataType]) -> Option<Types>,
    /// The results of rows, one or all of those of a batch.
    pub(super) body: fn(&[ArrayRef]) -> Result<ArrayRef, SqlError>,
}

struct DefinedFunction {
    definition: &'static Definition,
    is_strict: bool,
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
        let is_strict = is_strict(definition.name);
        Self::from(DefinedFunction { definition, is_strict, signature: Signature::user_defined(Volatility::Immutable) })
    }
}

/// Whether PostgreSQL's functions of the name give NULL where an argument is NULL.
fn is_strict(name: &str) -> bool {
    let functions = serac_pg::functions::of_name(name);
    !functions.is_empty() && functions.iter().all(|function| function.is_strict)
}

/// The results of a strict function. A row with a NULL among its arguments has the result NULL, and
/// no error: if the body fails on it, the body is applied to the other rows alone.
pub(super) fn strict_results(
    args: &[ArrayRef],
    body: impl Fn(&[ArrayRef]) -> Result<ArrayRef, SqlError>,
) -> Result<ArrayRef, SqlError> {
    let error = match body(args) {
        Ok(results) => return Ok(results),
        Err(error) => error,
    };
    let nulls = args.iter().map(|argument| argument.logical_nulls());
    let Some(nulls) = nulls.fold(None, |all, own| NullBuffer::union(all.as_ref(), own.as_ref())) else {
        return Err(error);
    };
    if nulls.null_count() == 0 {
        return Err(error);
    }
    let rows = UInt32Array::from_iter_values(nulls.valid_indices().map(|row| row as u32));
    let known = args.iter().map(|argument| Ok(take(argument, &rows, None)?));
    let results = body(&known.collect::<Result<Vec<_>, SqlError>>()?)?;
    if rows.is_empty() {
        return Ok(new_null_array(results.data_type(), nulls.len()));
    }
    let mut next = 0;
    let places = nulls.iter().map(|is_known| {
        is_known.then(|| {
            next += 1;
            next - 1
        })
    });
    Ok(take(&results, &places.collect::<UInt32Array>(), None)?)
}

/// The error of a call with arguments that a function does not take.
pub(super) fn no_function(name: &str, given: &[DataType]) -> datafusion::error::DataFusionError {
    let shown = given.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    SqlError::new(sqlstate::UNDEFINED_FUNCTION, format!("function {name}({shown}) does not exist"))
        .named(name)
        .external()
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
        let body = self.definition.body;
        let apply = |arrays: &[ArrayRef]| {
            let results = if self.is_strict { strict_results(arrays, body) } else { body(arrays) };
            results.map_err(SqlError::external)
        };
        make_scalar_function(apply, Vec::new())(&args.args)
    }
}
