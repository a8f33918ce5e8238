//! Functions of rows.

use super::function::{CheckedBody, CheckedFunction, Still, in_form, known_rows, returned};
use crate::error::{Result, SqlError};
use datafusion::arrow::array::{Array, ArrayRef, UInt32Array, new_null_array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as PlanResult, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use serac_files::{Assign, ValueType};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The code of a function of rows.
pub trait ScalarBody: Send + Sync {
    /// The values of `rows` rows, at least one. `arguments`: a column for each parameter, of its
    /// Arrow type: numbers with their own digits are `LargeBinary` ([`crate::free_numbers`]).
    /// `returns`: the Arrow type in which the values are kept; others that SQL assigns to it will
    /// do, and texts stand for numbers and documents. `check` fails when the statement has ended.
    ///
    /// # Errors
    /// Those of the code, and of `check`.
    fn call(
        &self,
        arguments: &[ArrayRef],
        rows: usize,
        returns: &DataType,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<ArrayRef>;
}

/// A function in a statement.
struct LentScalar {
    function: Arc<CheckedFunction>,
    signature: Signature,
    assign: Assign,
    still: Still,
}

impl fmt::Debug for LentScalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentScalar").field("name", &self.function.name).finish_non_exhaustive()
    }
}

impl PartialEq for LentScalar {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.function, &other.function)
    }
}

impl Eq for LentScalar {}

impl Hash for LentScalar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.name.hash(state);
    }
}

/// The signature of arguments of exactly these types.
pub(super) fn exactly(types: &[DataType], volatility: Volatility) -> Signature {
    match types.is_empty() {
        true => Signature::new(TypeSignature::Nullary, volatility),
        false => Signature::exact(types.to_vec(), volatility),
    }
}

/// A function of rows for a statement; `None` for another function.
pub(crate) fn scalar_of(function: &Arc<CheckedFunction>, assign: Assign, still: Still) -> Option<Arc<ScalarUDF>> {
    let CheckedBody::Scalar { volatility, .. } = &function.body else { return None };
    let signature = exactly(&function.parameters, *volatility);
    Some(Arc::new(ScalarUDF::from(LentScalar { function: function.clone(), signature, assign, still })))
}

/// Whether it is a function that the program lends.
pub(crate) fn is_lent(function: &ScalarUDF) -> bool {
    function.inner().is::<LentScalar>()
}

/// How a call's code, and its result, are used.
struct Call<'c> {
    returns: &'c ValueType,
    body: &'c dyn ScalarBody,
    function: &'c LentScalar,
}

impl Call<'_> {
    fn values(&self, arguments: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let LentScalar { function, assign, still, .. } = self.function;
        if rows == 0 {
            return Ok(new_null_array(&self.returns.arrow(), 0));
        }
        still()?;
        let given = self.body.call(arguments, rows, &self.returns.arrow(), &**still)?;
        let name = &function.name;
        if given.len() != rows {
            let message = format!("function {name} gave {} values for {rows} rows", given.len());
            return Err(SqlError::new(sqlstate::EXTERNAL_ROUTINE_INVOCATION_EXCEPTION, message).named(name));
        }
        returned(&given, self.returns, &format!("function {name}"), assign).map_err(|error| error.named(name))
    }

    /// The same where rows with a NULL among their arguments have the value NULL.
    fn strict_values(&self, arguments: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let Some(known) = known_rows(arguments) else { return self.values(arguments, rows) };
        let picked = UInt32Array::from(known);
        let arguments = arguments.iter().map(|argument| Ok(take(argument, &picked, None)?));
        let values = self.values(&arguments.collect::<Result<Vec<_>>>()?, picked.len())?;
        if picked.is_empty() {
            return Ok(new_null_array(values.data_type(), rows));
        }
        let mut places = vec![None; rows];
        for (place, row) in picked.values().iter().enumerate() {
            places[*row as usize] = Some(place as u32);
        }
        Ok(take(&values, &UInt32Array::from(places), None)?)
    }
}

impl ScalarUDFImpl for LentScalar {
    fn name(&self) -> &str {
        &self.function.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        match &self.function.body {
            CheckedBody::Scalar { returns, .. } => Ok(returns.arrow()),
            _ => internal_err!("{} is no function of rows", self.function.name),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let CheckedBody::Scalar { returns, volatility, is_strict, body } = &self.function.body else {
            return internal_err!("{} is no function of rows", self.function.name);
        };
        let is_one = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
        // A volatile function is computed for each row, whatever its arguments are.
        let one = *volatility != Volatility::Volatile && args.args.iter().all(is_one);
        let rows = if one { 1 } else { args.number_rows };
        let call = Call { returns, body: &**body, function: self };
        let arguments = args.args.iter().zip(&self.function.parameters);
        let arguments = arguments.map(|(argument, wanted)| in_form(&argument.to_array(rows)?, wanted));
        let computed = arguments.collect::<Result<Vec<_>>>().and_then(|arguments| match is_strict {
            true => call.strict_values(&arguments, rows),
            false => call.values(&arguments, rows),
        });
        let computed = computed.map_err(SqlError::external)?;
        Ok(if one { ColumnarValue::Scalar(ScalarValue::try_from_array(&computed, 0)?) } else { computed.into() })
    }
}
