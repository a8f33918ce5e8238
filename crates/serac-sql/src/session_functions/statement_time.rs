//! statement_timestamp: the time at which the statement began.

use crate::session_env::SessionEnv;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use serac_functions::with_zone;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The function of a session.
pub(super) fn function(shared: &Arc<SessionEnv>) -> ScalarUDF {
    ScalarUDF::from(StatementTime { signature: Signature::nullary(Volatility::Stable), shared: shared.clone() })
}

#[derive(Debug)]
struct StatementTime {
    signature: Signature,
    shared: Arc<SessionEnv>,
}

impl PartialEq for StatementTime {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}
impl Eq for StatementTime {}
impl Hash for StatementTime {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl ScalarUDFImpl for StatementTime {
    fn name(&self) -> &str {
        "statement_timestamp"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(with_zone())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let time = ScalarValue::TimestampMicrosecond(Some(self.shared.statement_time()), None);
        Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&cast(&time.to_array()?, &with_zone())?, 0)?))
    }
}
