//! Functions of the session's identity, and of the server.

use crate::clock::micros;
use crate::error::SqlError;
use crate::limits::cancelled;
use crate::session_env::SessionEnv;
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, create_udf,
};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::SystemTime;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Question {
    CurrentUser,
    SessionUser,
    Database,
    Schema,
    Version,
    Process,
    InRecovery,
    UnlockAll,
    ExportSnapshot,
    Started,
}

pub(crate) const FUNCTIONS: [(&str, Question); 13] = [
    ("current_user", Question::CurrentUser),
    ("current_role", Question::CurrentUser),
    ("session_user", Question::SessionUser),
    ("user", Question::CurrentUser),
    ("current_database", Question::Database),
    ("current_catalog", Question::Database),
    ("current_schema", Question::Schema),
    ("version", Question::Version),
    ("pg_backend_pid", Question::Process),
    ("pg_is_in_recovery", Question::InRecovery),
    ("pg_advisory_unlock_all", Question::UnlockAll),
    ("pg_export_snapshot", Question::ExportSnapshot),
    ("pg_postmaster_start_time", Question::Started),
];

#[derive(Debug)]
pub(crate) struct IdentityFunction {
    name: &'static str,
    question: Question,
    signature: Signature,
    shared: Arc<SessionEnv>,
}

impl PartialEq for IdentityFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for IdentityFunction {}

impl Hash for IdentityFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// The functions of a session.
pub(crate) fn functions(shared: &Arc<SessionEnv>) -> Vec<ScalarUDF> {
    let function = |(name, question)| {
        let acts = matches!(question, Question::UnlockAll | Question::ExportSnapshot);
        let volatility = if acts { Volatility::Volatile } else { Volatility::Stable };
        let signature = Signature::nullary(volatility);
        ScalarUDF::from(IdentityFunction { name, question, signature, shared: shared.clone() })
    };
    FUNCTIONS.into_iter().map(function).chain([clock_timestamp()]).collect()
}

/// The time at which it is asked, which goes on while a transaction runs.
pub(crate) fn clock_timestamp() -> ScalarUDF {
    let utc = || Some("UTC".into());
    let now = move |_: &[ColumnarValue]| {
        let now = Some(micros(SystemTime::now()));
        Ok(ColumnarValue::Scalar(ScalarValue::TimestampMicrosecond(now, utc())))
    };
    let returned = DataType::Timestamp(TimeUnit::Microsecond, utc());
    create_udf("clock_timestamp", Vec::new(), returned, Volatility::Volatile, Arc::new(now))
}

impl ScalarUDFImpl for IdentityFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.question {
            Question::Process => DataType::Int32,
            Question::InRecovery => DataType::Boolean,
            Question::Started => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            _ => DataType::Utf8,
        })
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let identity = self.shared.identity.get().cloned().unwrap_or_default();
        let text = |text: String| ScalarValue::Utf8(Some(text));
        Ok(ColumnarValue::Scalar(match self.question {
            Question::CurrentUser | Question::SessionUser => {
                let roles = self.shared.roles.read().clone();
                let role = if self.question == Question::CurrentUser { roles.current } else { roles.session };
                let view = self.shared.view();
                let catalog = view.map_or_else(|| self.shared.database.catalog(), |view| view.catalog);
                text(roles.name(role, &catalog.security))
            }
            Question::Database => text(identity.database),
            Question::Schema => ScalarValue::Utf8(self.shared.view().and_then(|view| view.path.first().cloned())),
            Question::UnlockAll => {
                self.shared.advisory_locks.release_session();
                text(String::new())
            }
            Question::ExportSnapshot => {
                let view = self.shared.view().ok_or_else(|| cancelled().external())?;
                text(self.shared.exports.export(view.transaction, &view.snapshot).map_err(SqlError::external)?)
            }
            Question::Started => {
                ScalarValue::TimestampMicrosecond(Some(micros(self.shared.sql.started)), Some("UTC".into()))
            }
            Question::Version => {
                let version = env!("CARGO_PKG_VERSION");
                text(format!("PostgreSQL 15.0 (SeracDB {version}) on {}", std::env::consts::ARCH))
            }
            Question::Process => ScalarValue::Int32(Some(identity.process)),
            Question::InRecovery => ScalarValue::Boolean(Some(false)),
        }))
    }
}
