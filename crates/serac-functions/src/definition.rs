//! Functions whose results follow from their arguments: a name, the types that they take, and a
//! body.

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use serac_values::SqlError;
use std::hash::{Hash, Hasher};

/// The types that a function's arguments become, and the type of its result.
pub type Types = (Vec<DataType>, DataType);

/// A function whose result follows from its arguments.
pub struct Definition {
    pub(super) name: &'static str,
    /// What becomes of arguments of given types; none if it does not take such. Of its own answer it says the same again.
    pub(super) types: fn(&[DataType]) -> Option<Types>,
    /// The results of rows, one or all of those of a batch.
    pub(super) body: fn(&[ArrayRef]) -> Result<ArrayRef, SqlError>,
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
pub(super) fn no_function(name: &str, given: &[DataType]) -> datafusion::error::DataFusionError {
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
