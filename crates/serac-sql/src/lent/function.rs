//! What a program says of a function, and the types that it names.

use super::aggregate::AggregateBody;
use super::rows::TableBody;
use super::scalar::ScalarBody;
use crate::ast_types::sql_type;
use crate::column_types::of_column;
use crate::error::{Result, SqlError};
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::Volatility;
use serac_binder::arrow_type;
use serac_engine::catalog::definition::SqlType;
use serac_files::{Assign, ValueType};
use serac_parser::tree::TypeName;
use serac_pg::{Signature, TypeId};
use serac_storage::ColumnType;
use serac_values::assignment::check_assignment;
use serac_values::text_types::is_text;
use std::sync::Arc;

/// The most parameters, and columns, that a function has.
const MOST_PARAMETERS: usize = 100;
const MOST_COLUMNS: usize = 1_600;

/// A function that a program lends a session. Types are SQL's, as texts: `bigint`, `text[]`.
pub struct LentFunction {
    /// Its name. It is taken as it is: a statement writes capital letters in quotes.
    pub name: String,
    /// The types of its parameters.
    pub parameters: Vec<String>,
    /// What it computes.
    pub body: FunctionBody,
}

/// What a function computes.
pub enum FunctionBody {
    /// A value for each row.
    Scalar {
        /// The type of the value.
        returns: String,
        /// When the same arguments give the same value.
        volatility: Volatility,
        /// Whether it is NULL where an argument is NULL, and not called for such rows.
        is_strict: bool,
        /// The code.
        body: Arc<dyn ScalarBody>,
    },
    /// A value for each group of rows.
    Aggregate {
        /// The type of the value.
        returns: String,
        /// Whether rows where an argument is NULL are left out.
        is_strict: bool,
        /// The code.
        body: Arc<dyn AggregateBody>,
    },
    /// Rows, in FROM. Its arguments are constants.
    Table {
        /// The names and types of their columns.
        columns: Vec<(String, String)>,
        /// The code.
        body: Arc<dyn TableBody>,
    },
}

/// Whether a statement still runs: asked now and then by code that computes for long.
pub type Still = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// A function whose types are known.
pub(crate) struct CheckedFunction {
    pub(crate) name: String,
    pub(crate) signature: Signature,
    /// The Arrow types of its parameters.
    pub(crate) parameters: Vec<DataType>,
    pub(crate) parameter_types: Vec<ValueType>,
    pub(crate) body: CheckedBody,
}

/// The same of its code.
pub(crate) enum CheckedBody {
    Scalar { returns: ValueType, volatility: Volatility, is_strict: bool, body: Arc<dyn ScalarBody> },
    Aggregate { returns: ValueType, is_strict: bool, body: Arc<dyn AggregateBody> },
    Table { columns: Vec<(String, ValueType)>, body: Arc<dyn TableBody> },
}

/// The type that a text names.
fn type_named(text: &str) -> Result<(ValueType, TypeId)> {
    let named = serac_parser::parse_type(text)
        .map_err(|_| SqlError::new(sqlstate::SYNTAX_ERROR, format!("\"{text}\" is no type")))?;
    if named.is_set || named.of_column {
        return Err(SqlError::new(sqlstate::SYNTAX_ERROR, format!("\"{text}\" is no type of values")));
    }
    let is_list = named.dimensions > 0;
    let element = sql_type(&TypeName { dimensions: 0, ..named })?;
    let id = of_column(element).id;
    if !is_list {
        return Ok((ValueType::Plain(element), id));
    }
    match id.array().filter(|array| arrow_type(*array).is_some()) {
        Some(array) => Ok((ValueType::List(element), array)),
        None => Err(SqlError::unsupported(format!("the type \"{text}\" in a function of the program"))),
    }
}

impl CheckedFunction {
    /// The function with its types.
    ///
    /// # Errors
    /// 42704 for a type that does not exist, 0A000 for one that no function has here, 42601 for a
    /// text that is no type, 54023 for too many parameters, 42P16 for no columns or too many, 42701
    /// for a column twice, 42602 without a name.
    pub(crate) fn new(function: LentFunction) -> Result<Self> {
        let LentFunction { name, parameters, body } = function;
        if name.is_empty() {
            return Err(SqlError::new(sqlstate::INVALID_NAME, "a function needs a name"));
        }
        if parameters.len() > MOST_PARAMETERS {
            let message = format!("functions cannot have more than {MOST_PARAMETERS} arguments");
            return Err(SqlError::new(sqlstate::TOO_MANY_ARGUMENTS, message).named(&name));
        }
        let told = |error: SqlError| error.also(format!("in the types of function {name}"));
        let known = parameters.iter().map(|text| type_named(text).map_err(told)).collect::<Result<Vec<_>>>()?;
        let (parameter_types, arguments): (Vec<ValueType>, Vec<TypeId>) = known.into_iter().unzip();
        // Modifiers of parameters have no meaning: a number has its own digits.
        let stored =
            |id: &TypeId| arrow_type(*id).ok_or_else(|| SqlError::unsupported(format!("a parameter of type {id}")));
        let stored = arguments.iter().map(stored).collect::<Result<Vec<_>>>()?;
        let of = |text: &str| type_named(text).map_err(told);
        let (result, body) = match body {
            FunctionBody::Scalar { returns, volatility, is_strict, body } => {
                let (returns, id) = of(&returns)?;
                (id, CheckedBody::Scalar { returns, volatility, is_strict, body })
            }
            FunctionBody::Aggregate { returns, is_strict, body } => {
                let (returns, id) = of(&returns)?;
                (id, CheckedBody::Aggregate { returns, is_strict, body })
            }
            FunctionBody::Table { columns, body } => {
                if columns.is_empty() || columns.len() > MOST_COLUMNS {
                    let message = format!("function {name} must give between 1 and {MOST_COLUMNS} columns");
                    return Err(SqlError::new(sqlstate::INVALID_TABLE_DEFINITION, message).named(&name));
                }
                let mut checked: Vec<(String, ValueType)> = Vec::with_capacity(columns.len());
                for (column, text) in columns {
                    if checked.iter().any(|(other, _)| *other == column) {
                        return Err(SqlError::column_twice(&column));
                    }
                    let (of, _) = of(&text)?;
                    checked.push((column, of));
                }
                (TypeId::RECORD, CheckedBody::Table { columns: checked, body })
            }
        };
        let signature = Signature { arguments, result };
        Ok(Self { name, signature, parameters: stored, parameter_types, body })
    }
}

/// Whether SQL assigns values of an Arrow type to a column of a type. Texts stand for documents and
/// numbers, as they do in results of Arrow.
fn is_assigned(given: &DataType, to: SqlType) -> bool {
    let of = to.column_type;
    let given = match given {
        DataType::Dictionary(_, words) => words,
        // Bytes: numbers have this form only among us.
        DataType::LargeBinary => &DataType::BinaryView,
        given => given,
    };
    // Otherwise every value would be written as a text.
    if of == ColumnType::Utf8 {
        return is_text(given) || given.is_null();
    }
    let stands = of.is_document() || matches!(of, ColumnType::Numeric | ColumnType::Decimal { .. });
    check_assignment(given, to, "").is_ok() || (stands && is_text(given))
}

/// Refuses values that code has given, `what` in messages, if SQL would not assign them to the type
/// that it says.
///
/// # Errors
/// 42804.
pub(super) fn check_returned(given: &DataType, wanted: &ValueType, what: &str) -> Result<()> {
    let is_such = match (wanted, given) {
        (ValueType::Plain(of), given) => is_assigned(given, *of),
        (ValueType::List(_), DataType::Null) => true,
        (ValueType::List(of), list) => match list {
            DataType::List(element) | DataType::LargeList(element) | DataType::FixedSizeList(element, _) => {
                is_assigned(element.data_type(), *of)
            }
            _ => false,
        },
        (ValueType::Refused(_), _) => false,
    };
    if is_such {
        return Ok(());
    }
    let wanted = match wanted {
        ValueType::Plain(of) => of.to_string(),
        ValueType::List(of) => format!("{of}[]"),
        ValueType::Refused(of) => of.to_string(),
    };
    let message = format!("{what} gave values of the Arrow type {given}, not of type {wanted}");
    Err(SqlError::new(sqlstate::DATATYPE_MISMATCH, message))
}

/// Values that code has given as those of the type that it says.
///
/// # Errors
/// 42804 for values of another type, and the error of a value that does not fit.
pub(super) fn returned(given: &ArrayRef, wanted: &ValueType, what: &str, assign: &Assign) -> Result<ArrayRef> {
    check_returned(given.data_type(), wanted, what)?;
    wanted.values(given, what, assign).map_err(|error| error.also(format!("in a value that {what} gave")))
}

/// The rows of arguments in which none is NULL; `None` if these are all.
pub(super) fn known_rows(arguments: &[ArrayRef]) -> Option<Vec<u32>> {
    let nulls = arguments.iter().map(|argument| argument.logical_nulls());
    let nulls = nulls.fold(None, |all, own| NullBuffer::union(all.as_ref(), own.as_ref()))?;
    (nulls.null_count() > 0).then(|| nulls.valid_indices().map(|row| row as u32).collect())
}

/// Arrays of texts and bytes in the form that their type says: functions give them in others, too.
pub(super) fn in_form(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef> {
    match array.data_type() == wanted {
        true => Ok(array.clone()),
        false => Ok(cast(array, wanted)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{
        AsArray, BooleanArray, Int32Array, Int64Array, LargeBinaryArray, ListArray, StringArray,
    };
    use datafusion::arrow::datatypes::Int64Type;

    fn assign() -> Assign {
        Arc::new(serac_values::assignment::assign)
    }

    #[test]
    fn types_are_named_as_in_sql() {
        let of = |text: &str| type_named(text).map(|(of, id)| (of.arrow(), id));
        assert_eq!(of("bigint").unwrap(), (DataType::Int64, TypeId::INT8));
        assert_eq!(of("numeric(10, 2)").unwrap(), (DataType::Decimal128(10, 2), TypeId::NUMERIC));
        assert_eq!(of("text[]").unwrap().1, TypeId::TEXT.array().unwrap());
        assert_eq!(of("colour").unwrap_err().sqlstate, sqlstate::UNDEFINED_OBJECT);
        assert_eq!(of("a b c").unwrap_err().sqlstate, sqlstate::SYNTAX_ERROR);
        assert_eq!(of("numeric[]").unwrap_err().sqlstate, sqlstate::FEATURE_NOT_SUPPORTED);
    }

    #[test]
    fn values_are_assigned_or_refused() {
        let returned =
            |given: ArrayRef, wanted: &str| returned(&given, &type_named(wanted).unwrap().0, "function f", &assign());
        let whole: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None]));
        let small = returned(whole.clone(), "int").unwrap();
        assert_eq!(small.as_ref(), &Int32Array::from(vec![Some(7), None]) as &dyn Array);
        assert_eq!(*returned(whole.clone(), "numeric").unwrap().data_type(), DataType::LargeBinary);
        assert_eq!(returned(whole.clone(), "text").unwrap_err().sqlstate, sqlstate::DATATYPE_MISMATCH);
        let truth: ArrayRef = Arc::new(BooleanArray::from(vec![true]));
        assert_eq!(returned(truth, "int").unwrap_err().sqlstate, sqlstate::DATATYPE_MISMATCH);
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["1.50"]));
        assert_eq!(*returned(texts.clone(), "numeric(5, 2)").unwrap().data_type(), DataType::Decimal128(5, 2));
        assert_eq!(*returned(texts.clone(), "jsonb").unwrap().data_type(), DataType::LargeUtf8);
        assert_eq!(returned(texts, "bigint").unwrap_err().sqlstate, sqlstate::DATATYPE_MISMATCH);
        let bytes: ArrayRef = Arc::new(LargeBinaryArray::from(vec![b"1".as_slice()]));
        assert_eq!(*returned(bytes.clone(), "bytea").unwrap().data_type(), DataType::BinaryView);
        assert_eq!(returned(bytes, "numeric").unwrap_err().sqlstate, sqlstate::DATATYPE_MISMATCH);
        let large: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX]));
        assert_eq!(returned(large, "smallint").unwrap_err().sqlstate, sqlstate::NUMERIC_VALUE_OUT_OF_RANGE);
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1)]), None]));
        let lists = returned(lists, "int[]").unwrap();
        assert_eq!(lists.as_list::<i32>().value(0).as_ref(), &Int32Array::from(vec![1]) as &dyn Array);
    }

    #[test]
    fn rows_with_null_are_found() {
        let a: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
        let b: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(2), None]));
        assert_eq!(known_rows(&[a.clone(), b]), Some(vec![0]));
        assert_eq!(known_rows(&[a.slice(0, 1)]), None);
        assert_eq!(known_rows(&[]), None);
    }
}
