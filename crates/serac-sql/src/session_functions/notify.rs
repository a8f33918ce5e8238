//! Functions of notifications: `pg_notify` and `pg_listening_channels`.

use crate::error::SqlError;
use crate::session_env::SessionEnv;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, create_udf,
};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// pg_notify (channel, payload): as NOTIFY, for each row. It returns the empty text, of which
/// nothing is shown.
#[derive(Debug)]
pub(crate) struct NotifyFunction {
    signature: Signature,
    shared: Arc<SessionEnv>,
}

impl PartialEq for NotifyFunction {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for NotifyFunction {}

impl Hash for NotifyFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.signature.hash(state);
    }
}

impl ScalarUDFImpl for NotifyFunction {
    fn name(&self) -> &str {
        "pg_notify"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> datafusion::error::Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> datafusion::error::Result<ColumnarValue> {
        let rows = args.number_rows;
        let text = |at: usize| cast(&args.args[at].to_array(rows)?, &DataType::Utf8).map_err(Into::into);
        let [channels, payloads]: [datafusion::error::Result<ArrayRef>; 2] = [text(0), text(1)];
        let (channels, payloads) = (channels?, payloads?);
        let (channels, payloads) = (channels.as_string::<i32>(), payloads.as_string::<i32>());
        for row in 0..rows {
            // A NULL channel is one without a name; a NULL text is empty.
            let channel = if channels.is_null(row) { "" } else { channels.value(row) };
            let payload = if payloads.is_null(row) { "" } else { payloads.value(row) };
            self.shared.listener.say(channel, payload).map_err(SqlError::external)?;
        }
        Ok(ColumnarValue::Array(Arc::new(StringArray::from(vec![""; rows]))))
    }
}

/// The functions of a session.
pub(crate) fn functions(shared: &Arc<SessionEnv>) -> [ScalarUDF; 2] {
    let signature = Signature::exact(vec![DataType::Utf8, DataType::Utf8], Volatility::Volatile);
    let channels = shared.listener.channels.clone();
    let usage = move |_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(ScalarValue::Float64(Some(channels.usage()))));
    [
        ScalarUDF::from(NotifyFunction { signature, shared: shared.clone() }),
        create_udf("pg_notification_queue_usage", vec![], DataType::Float64, Volatility::Volatile, Arc::new(usage)),
    ]
}
