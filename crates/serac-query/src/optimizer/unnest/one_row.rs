//! The value of a subquery. `serac_one_row(value, rows)` gives the value, and fails with 21000 if
//! there are more rows. `serac_one_row(value)` gives the value, but the planner takes it as
//! nullable, and as no constant: it is NULL if there is no row.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use serac_functions::is_folding;
use serac_values::SqlError;
use std::sync::{Arc, LazyLock};

const NAME: &str = "serac_one_row";

#[derive(Debug, PartialEq, Eq, Hash)]
struct OneRow(Signature);

impl ScalarUDFImpl for OneRow {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(rows) = args.args.get(1) else {
            if is_folding() {
                // A constant in its place would never be NULL.
                return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, "no constant").external());
            }
            return Ok(args.args[0].clone());
        };
        let rows = rows.to_array(args.number_rows)?;
        if rows.as_primitive::<Int64Type>().iter().flatten().any(|rows| rows > 1) {
            let message = "more than one row returned by a subquery used as an expression";
            return Err(SqlError::new(sqlstate::CARDINALITY_VIOLATION, message).external());
        }
        Ok(args.args[0].clone())
    }
}

static FUNCTION: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arc::new(ScalarUDF::from(OneRow(Signature::variadic_any(Volatility::Immutable)))));

/// The value; 21000 if `rows`, the number of values, is more than 1.
pub(super) fn one_row(value: Expr, rows: Expr) -> Expr {
    FUNCTION.call(vec![value, rows])
}

/// The value, or NULL.
pub(super) fn optional(value: Expr) -> Expr {
    FUNCTION.call(vec![value])
}
