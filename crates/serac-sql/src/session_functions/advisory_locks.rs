//! Functions of advisory locks.

use crate::advisory_locks::{Hold, Key, Mode};
use crate::error::SqlError;
use crate::session_env::SessionEnv;
use async_trait::async_trait;
use datafusion::arrow::array::{Array, AsArray, BooleanArray, Int64Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The action of a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Action {
    /// Waits for the lock.
    Lock,
    /// Says whether it could be had.
    Try,
    /// Returns whether a lock was released.
    Unlock,
}

pub(crate) struct Function {
    name: &'static str,
    action: Action,
    mode: Mode,
    of_transaction: bool,
    signature: Signature,
    shared: Arc<SessionEnv>,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// The functions of a session.
pub(crate) fn functions(shared: &Arc<SessionEnv>) -> Vec<ScalarUDF> {
    use Action::{Lock, Try, Unlock};
    use Mode::{Exclusive, Shared};
    let functions = [
        ("pg_advisory_lock", Lock, Exclusive, false),
        ("pg_advisory_lock_shared", Lock, Shared, false),
        ("pg_advisory_xact_lock", Lock, Exclusive, true),
        ("pg_advisory_xact_lock_shared", Lock, Shared, true),
        ("pg_try_advisory_lock", Try, Exclusive, false),
        ("pg_try_advisory_lock_shared", Try, Shared, false),
        ("pg_try_advisory_xact_lock", Try, Exclusive, true),
        ("pg_try_advisory_xact_lock_shared", Try, Shared, true),
        ("pg_advisory_unlock", Unlock, Exclusive, false),
        ("pg_advisory_unlock_shared", Unlock, Shared, false),
    ];
    let function = |(name, action, mode, of_transaction)| {
        let keys = [vec![DataType::Int64], vec![DataType::Int64, DataType::Int64]];
        let signature = Signature::one_of(keys.map(TypeSignature::Exact).into(), Volatility::Volatile);
        let function = Function { name, action, mode, of_transaction, signature, shared: shared.clone() };
        match action {
            Lock => AsyncScalarUDF::new(Arc::new(function)).into_scalar_udf(),
            Try | Unlock => ScalarUDF::from(function),
        }
    };
    functions.into_iter().map(function).collect()
}

/// The keys of rows, `None` if an argument is NULL.
pub(crate) fn keys(args: &ScalarFunctionArgs) -> Result<Vec<Option<Key>>> {
    let arrays = args.args.iter().map(|value| value.to_array(args.number_rows)).collect::<Result<Vec<_>>>()?;
    let value = |array: &Arc<dyn Array>, row: usize| {
        let numbers: &Int64Array = array.as_primitive::<Int64Type>();
        numbers.is_valid(row).then(|| numbers.value(row))
    };
    let half = |number: i64| {
        i32::try_from(number)
            .map_err(|_| SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "integer out of range").external())
    };
    let key = |row: usize| {
        let Some(first) = value(&arrays[0], row) else { return Ok(None) };
        let Some(second) = arrays.get(1) else { return Ok(Some(Key { number: first, of_two: false })) };
        let Some(second) = value(second, row) else { return Ok(None) };
        let number = (i64::from(half(first)?) << 32) | i64::from(half(second)? as u32);
        Ok(Some(Key { number, of_two: true }))
    };
    (0..args.number_rows).map(key).collect()
}

impl Function {
    fn wanted(&self) -> Hold {
        let process = self.shared.identity.get().map_or(0, |identity| identity.process);
        self.shared.advisory_locks.wanted(self.mode, self.of_transaction, process)
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(if self.action == Action::Lock { DataType::Utf8 } else { DataType::Boolean })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (locks, wanted) = (&self.shared.advisory_locks, self.wanted());
        let run = |key: Key| match self.action {
            Action::Try => Ok(locks.try_lock(key, &wanted)),
            Action::Unlock => Ok(locks.unlock(key, self.mode)),
            Action::Lock => Err(SqlError::unsupported(format!("{} at this place", self.name)).external()),
        };
        let results = keys(&args)?.into_iter().map(|key| key.map(run).transpose());
        Ok(ColumnarValue::Array(Arc::new(results.collect::<Result<BooleanArray>>()?)))
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for Function {
    async fn invoke_async_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let wanted = self.wanted();
        let mut nothing = Vec::new();
        for key in keys(&args)? {
            if let Some(key) = key {
                self.shared.advisory_locks.lock(key, &wanted).await.map_err(SqlError::external)?;
            }
            nothing.push(key.map(|_| ""));
        }
        Ok(ColumnarValue::Array(Arc::new(StringArray::from(nothing))))
    }
}
