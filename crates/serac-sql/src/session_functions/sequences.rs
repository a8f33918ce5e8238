//! nextval, currval, lastval, setval.

use crate::error::SqlError;
use crate::identifiers::{TEMPORARY_SCHEMA, split_relation_name};
use crate::session_env::SessionEnv;
use crate::statement_snapshot::StatementSnapshot;
use datafusion::arrow::array::{Array, AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use serac_engine::security::{Columns, Object, Privilege};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Function {
    Next,
    Current,
    /// The last value of nextval, of any sequence.
    Last,
    Set,
}

#[derive(Debug)]
struct SequenceFunction {
    function: Function,
    signature: Signature,
    shared: Arc<SessionEnv>,
}

impl PartialEq for SequenceFunction {
    fn eq(&self, other: &Self) -> bool {
        self.function == other.function && Arc::ptr_eq(&self.shared, &other.shared)
    }
}
impl Eq for SequenceFunction {}
impl Hash for SequenceFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.hash(state);
    }
}

/// The functions of a session.
pub(crate) fn functions(shared: &Arc<SessionEnv>) -> Vec<ScalarUDF> {
    [Function::Next, Function::Current, Function::Last, Function::Set]
        .into_iter()
        .map(|function| {
            let arguments = match function {
                Function::Last => vec![TypeSignature::Nullary],
                Function::Set => [DataType::Utf8, DataType::Utf8View]
                    .into_iter()
                    .flat_map(|text| {
                        [vec![text.clone(), DataType::Int64], vec![text, DataType::Int64, DataType::Boolean]]
                    })
                    .map(TypeSignature::Exact)
                    .collect(),
                _ => vec![TypeSignature::Exact(vec![DataType::Utf8]), TypeSignature::Exact(vec![DataType::Utf8View])],
            };
            let signature = Signature::one_of(arguments, Volatility::Volatile);
            ScalarUDF::from(SequenceFunction { function, signature, shared: shared.clone() })
        })
        .collect()
}

impl SequenceFunction {
    /// A role that may insert into a table may draw from the sequences of its columns.
    fn check_access(&self, view: &StatementSnapshot, schema: &str, name: &str) -> Result<(), SqlError> {
        let object = Object::relation(schema, name);
        let enough = match self.function {
            Function::Next => [Privilege::Usage, Privilege::Update],
            Function::Current | Function::Last => [Privilege::Usage, Privilege::Select],
            Function::Set => [Privilege::Update, Privilege::Update],
        };
        view.access.check_usage(schema)?;
        let sequence = view.catalog.sequence(schema, name)?;
        let of_table = || {
            let (table, _) = sequence.definition.owner.as_ref()?;
            let table = view.catalog.table(schema, table).ok()?;
            Some(view.access.columns(&table.definition, Privilege::Insert) != Columns::None)
        };
        let for_insert = self.function != Function::Set && of_table() == Some(true);
        if for_insert || enough.iter().any(|privilege| view.access.may(&object, *privilege)) {
            return Ok(());
        }
        Ok(view.access.check(&object, enough[0])?)
    }

    /// The value that nextval gave last in this session.
    fn last(&self) -> Result<i64, SqlError> {
        let values = self.shared.sequence_values.read();
        let last = values.last.as_ref().and_then(|name| values.by_name.get(name)).copied();
        last.ok_or_else(|| {
            SqlError::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, "lastval is not yet defined in this session")
        })
    }

    fn call(&self, name: &str, argument: Option<(i64, bool)>) -> Result<i64, SqlError> {
        let view = self
            .shared
            .view()
            .ok_or_else(|| SqlError::new(sqlstate::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction"))?;
        let (schema, short) = found(&self.shared, &view, name)?;
        let (schema, short) = (schema.as_str(), short.as_str());
        let full = format!("{schema}.{short}");
        let database = match self.shared.temporary_database.get() {
            Some(temporary) if schema == TEMPORARY_SCHEMA => temporary,
            _ => &self.shared.database,
        };
        let (catalog, snapshot) = view.of(schema);
        let changes = matches!(self.function, Function::Next | Function::Set);
        if changes && self.shared.values.modes().read_only && schema != TEMPORARY_SCHEMA {
            let message = format!("cannot execute {}() in a read-only transaction", self.name());
            return Err(SqlError::new(sqlstate::READ_ONLY_SQL_TRANSACTION, message));
        }
        if schema != TEMPORARY_SCHEMA && !view.access.is_superuser() {
            self.check_access(&view, schema, short)?;
        }
        match self.function {
            Function::Next => {
                let value = database.next_value(snapshot, catalog, schema, short)?;
                let mut values = self.shared.sequence_values.write();
                values.by_name.insert(full.clone(), value);
                values.last = Some(full);
                Ok(value)
            }
            Function::Last => self.last(),
            Function::Current => self.shared.sequence_values.read().by_name.get(&full).copied().ok_or_else(|| {
                SqlError::new(
                    sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                    format!("currval of sequence \"{short}\" is not yet defined in this session"),
                )
            }),
            Function::Set => {
                let (value, is_called) =
                    argument.ok_or_else(|| SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, "setval takes a value"))?;
                database.set_value(snapshot, catalog, schema, short, value, is_called)?;
                if is_called {
                    self.shared.sequence_values.write().by_name.insert(full, value);
                }
                Ok(value)
            }
        }
    }
}

/// Schema and name of the sequence that a text means. Defaults of columns name theirs as they are,
/// without quotes.
///
/// # Errors
/// As for [`split_relation_name`].
fn found(shared: &SessionEnv, view: &StatementSnapshot, name: &str) -> Result<(String, String), SqlError> {
    let placed = |(schema, short): (Option<String>, String)| {
        (schema.unwrap_or_else(|| view.schema_of(&short).to_owned()), short)
    };
    let as_it_is = placed(match name.split_once('.') {
        Some((schema, short)) => (Some(schema.to_owned()), short.to_owned()),
        None => (None, name.to_owned()),
    });
    let is_there = view.of(&as_it_is.0).0.sequence(&as_it_is.0, &as_it_is.1).is_ok();
    if is_there {
        return Ok(as_it_is);
    }
    split_relation_name(name, |database| shared.is_own_database(database)).map(placed)
}

impl ScalarUDFImpl for SequenceFunction {
    fn name(&self) -> &str {
        match self.function {
            Function::Next => "nextval",
            Function::Current => "currval",
            Function::Last => "lastval",
            Function::Set => "setval",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if self.function == Function::Last {
            let last = self.last().map_err(SqlError::external)?;
            return Ok(ColumnarValue::Scalar(ScalarValue::Int64(Some(last))));
        }
        let rows = args.number_rows;
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        // All arguments may be constants, yet every row wants its own value.
        let at = |array: &dyn Array, row: usize| if array.len() == 1 { 0 } else { row };
        let names = cast(&arrays[0], &DataType::Utf8View)?;
        let names = names.as_string_view();
        let values = arrays.get(1).map(|v| v.as_primitive::<Int64Type>());
        let called = arrays.get(2).map(|v| v.as_boolean());
        let result: Int64Array = (0..rows)
            .map(|row| {
                if arrays.iter().any(|array| array.is_null(at(array, row))) {
                    return Ok(None);
                }
                let is_called = called.is_none_or(|c| c.value(at(c, row)));
                let argument = values.map(|v| (v.value(at(v, row)), is_called));
                self.call(names.value(at(names, row)), argument).map(Some)
            })
            .collect::<Result<_, SqlError>>()
            .map_err(SqlError::external)?;
        Ok(ColumnarValue::Array(Arc::new(result)))
    }
}
