//! `coalesce`, `greatest`, `least` and array constructors: DataFusion's, which also take a literal
//! in quotes beside values of another type, and then give it that type. `CommonTypes` casts it.

use super::accounted::coerced;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result;
use datafusion::functions::core;
use datafusion::functions_nested::make_array::make_array_udf;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// A function of DataFusion.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Chosen {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

fn chosen(inner: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(Chosen { inner, signature: Signature::user_defined(Volatility::Immutable) })
}

/// The functions.
pub(super) fn functions() -> [ScalarUDF; 4] {
    [core::coalesce(), core::greatest(), core::least(), make_array_udf()].map(chosen)
}

/// The type of values beside literals in quotes, which have the type of no column of texts.
fn of_others(given: &[DataType]) -> Option<&DataType> {
    let mut others = given.iter().filter(|given| !matches!(given, DataType::Utf8 | DataType::Null));
    let first = others.next()?;
    others.all(|other| other == first).then_some(first)
}

impl ScalarUDFImpl for Chosen {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match (coerced(&self.inner, given), of_others(given)) {
            (Err(_), Some(one)) => Ok(vec![one.clone(); given.len()]),
            (coerced, _) => coerced,
        }
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        self.inner.return_type(given)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.simplify(args, context)
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(args)
    }
}
