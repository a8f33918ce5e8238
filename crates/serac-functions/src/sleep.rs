//! pg_sleep. It takes no thread while it waits, and ends when its statement does.

use async_trait::async_trait;
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use serac_values::SqlError;
use std::sync::Arc;
use std::time::Duration;

/// pg_sleep (seconds): waits that long for each row. The result is the empty text, which stands for
/// PostgreSQL's void.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Sleep(Signature);

pub(super) fn function() -> ScalarUDF {
    let sleep = Sleep(Signature::exact(vec![DataType::Float64], Volatility::Volatile));
    AsyncScalarUDF::new(Arc::new(sleep)).into_scalar_udf()
}

impl ScalarUDFImpl for Sleep {
    fn name(&self) -> &str {
        "pg_sleep"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(SqlError::unsupported("pg_sleep at this place").external())
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for Sleep {
    async fn invoke_async_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let seconds = args.args[0].to_array(args.number_rows)?;
        let all: f64 = seconds.as_primitive::<Float64Type>().iter().flatten().filter(|seconds| *seconds > 0.0).sum();
        // As good as for ever.
        let most = Duration::from_secs(u32::MAX.into());
        tokio::time::sleep(Duration::try_from_secs_f64(all).unwrap_or(most).min(most)).await;
        let nothing = |row| if seconds.is_null(row) { None } else { Some("") };
        let nothing: datafusion::arrow::array::StringArray = (0..seconds.len()).map(nothing).collect();
        Ok(match args.args[0] {
            ColumnarValue::Scalar(_) if seconds.len() == 1 => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&nothing, 0)?)
            }
            _ => ColumnarValue::Array(Arc::new(nothing)),
        })
    }
}
