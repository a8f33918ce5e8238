//! The SQL type of a column of a file or a frame, and its values as values of that type.

use crate::request::Assign;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray, new_null_array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field};
use serac_engine::catalog::definition::SqlType;
use serac_storage::{ColumnType, marked};
use serac_values::arrow_input::given;
use serac_values::assignment::stored_type;
use serac_values::type_names::of_sql;
use serac_values::wire::with_type;
use serac_values::{Result, SqlError};
use std::sync::Arc;

/// The type of a column.
#[derive(Clone, PartialEq, Debug)]
pub enum ValueType {
    /// A type that columns of tables have.
    Plain(SqlType),
    /// An array of values of such a type.
    List(SqlType),
    /// No type: the column may be there, and cannot be read. The Arrow type that it has.
    Refused(DataType),
}

impl ValueType {
    /// The type for values of an Arrow type.
    pub fn of_arrow(data_type: &DataType) -> Self {
        let refused = || Self::Refused(data_type.clone());
        match data_type {
            DataType::List(element) | DataType::LargeList(element) | DataType::FixedSizeList(element, _) => {
                let of_element = stored_type(element.data_type()).ok();
                let is_list = |of: &SqlType| !of.column_type.is_document();
                of_element.filter(is_list).map_or_else(refused, Self::List)
            }
            DataType::Dictionary(_, values) if !matches!(Self::of_arrow(values), Self::Plain(_)) => refused(),
            // Bytes; numbers with digits of their own have this type only among us.
            DataType::LargeBinary => Self::Plain(ColumnType::Binary.into()),
            plain => stored_type(plain).map_or_else(|_| refused(), Self::Plain),
        }
    }

    /// The Arrow type of its values in a plan.
    pub fn arrow(&self) -> DataType {
        match self {
            Self::Plain(sql_type) => sql_type.column_type.arrow(),
            Self::List(element) => DataType::new_list(element.column_type.arrow(), true),
            Self::Refused(data_type) => data_type.clone(),
        }
    }

    /// A column of a plan.
    pub fn field(&self, name: &str) -> Field {
        let field = marked(Field::new(name, self.arrow(), true));
        match self {
            Self::Plain(sql_type) => {
                let (oid, modifier) = of_sql(*sql_type);
                with_type(field, oid, modifier)
            }
            Self::List(_) | Self::Refused(_) => field,
        }
    }

    /// Refuses a column that cannot be read.
    ///
    /// # Errors
    /// 0A000.
    pub fn check(&self, column: &str) -> Result<()> {
        match self {
            Self::Refused(data_type) => {
                let what = format!("column \"{column}\" of the Arrow type {data_type}");
                Err(SqlError::unsupported(what).named(column))
            }
            Self::Plain(_) | Self::List(_) => Ok(()),
        }
    }

    /// Values that have come from outside as values of this type.
    ///
    /// # Errors
    /// The error of a value that is none.
    pub fn values(&self, came: &ArrayRef, column: &str, assign: &Assign) -> Result<ArrayRef> {
        let plain = |values: &ArrayRef, of: SqlType| {
            // Words of a dictionary need not be used.
            let values = match values.data_type() {
                DataType::Dictionary(_, words) => cast(values, words)?,
                _ => values.clone(),
            };
            let values = assign(&given(&values)?, of, column)?;
            Ok::<_, SqlError>(of.fit(&values)?)
        };
        match self {
            Self::Plain(of) => plain(came, *of),
            Self::List(of) => {
                let element = match came.data_type() {
                    DataType::List(element) | DataType::LargeList(element) | DataType::FixedSizeList(element, _) => {
                        element.data_type()
                    }
                    // Rows of another file, which does not have the column.
                    _ => return Ok(new_null_array(&self.arrow(), came.len())),
                };
                let lists = cast(came, &DataType::new_list(element.clone(), true))?;
                let lists: &ListArray = lists.as_list();
                let field = Arc::new(Field::new_list_field(of.column_type.arrow(), true));
                let values = plain(lists.values(), *of)?;
                Ok(Arc::new(ListArray::try_new(field, lists.offsets().clone(), values, lists.nulls().cloned())?))
            }
            Self::Refused(_) => Err(self.check(column).expect_err("it cannot be read")),
        }
    }
}

/// The type that has the values of two, for a column of several files; `None` if there is none.
pub(crate) fn united(a: &DataType, b: &DataType) -> Option<DataType> {
    if a == b {
        return Some(a.clone());
    }
    let rank = |of: &DataType| match of {
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => Some(0),
        DataType::UInt16 | DataType::Int32 => Some(1),
        DataType::UInt32 | DataType::Int64 => Some(2),
        _ => None,
    };
    let is_text = |of: &DataType| matches!(of, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let is_float = |of: &DataType| matches!(of, DataType::Float16 | DataType::Float32 | DataType::Float64);
    match (a, b) {
        (DataType::Null, other) | (other, DataType::Null) => Some(other.clone()),
        _ if is_text(a) && is_text(b) => Some(DataType::Utf8View),
        _ if is_float(a) && is_float(b) => Some(DataType::Float64),
        (DataType::Timestamp(_, None) | DataType::Date32, DataType::Timestamp(_, None) | DataType::Date32) => {
            stored_type(&DataType::Date64).ok().map(|of| of.column_type.arrow())
        }
        (DataType::Timestamp(_, Some(_)), DataType::Timestamp(_, Some(_))) => {
            stored_type(a).ok().map(|of| of.column_type.arrow())
        }
        _ => Some(match rank(a)?.max(rank(b)?) {
            0 => DataType::Int16,
            1 => DataType::Int32,
            _ => DataType::Int64,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Int32Array, StringArray, TimestampNanosecondArray, UInt64Array};
    use datafusion::arrow::datatypes::{Int32Type, Int64Type, TimeUnit};

    fn assign() -> Assign {
        Arc::new(serac_values::assignment::assign)
    }

    #[test]
    fn values_get_the_types_of_columns() {
        let shown = |array: ArrayRef| {
            let of = ValueType::of_arrow(array.data_type());
            let values = of.values(&array, "c", &assign()).unwrap();
            assert_eq!(*values.data_type(), of.arrow());
            let texts = cast(&values, &DataType::Utf8).unwrap();
            texts.as_string::<i32>().iter().map(|text| text.unwrap_or("NULL").to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(shown(Arc::new(UInt64Array::from(vec![u64::MAX]))), ["18446744073709551615"]);
        let nanoseconds = TimestampNanosecondArray::from(vec![Some(1_500), None]);
        assert_eq!(shown(Arc::new(nanoseconds)), ["1970-01-01T00:00:00.000001", "NULL"]);
        let words: datafusion::arrow::array::DictionaryArray<Int32Type> = vec!["a", "b", "a"].into_iter().collect();
        assert_eq!(shown(Arc::new(words)), ["a", "b", "a"]);
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), None]), None]);
        assert_eq!(shown(Arc::new(lists)), ["[1, ]", "NULL"]);
    }

    #[test]
    fn what_has_no_type_is_refused_by_name() {
        let structure = DataType::Struct(vec![Field::new("a", DataType::Int32, true)].into());
        for refused in [structure.clone(), DataType::new_list(structure, true)] {
            let error = ValueType::of_arrow(&refused).check("odd").unwrap_err();
            assert_eq!((error.sqlstate, error.name.as_deref()), (sqlstate::FEATURE_NOT_SUPPORTED, Some("odd")));
        }
    }

    #[test]
    fn a_value_that_does_not_fit_is_an_error() {
        let of = ValueType::Plain(SqlType { length: Some(1), ..ColumnType::Utf8.into() });
        let long: ArrayRef = Arc::new(StringArray::from(vec!["ab"]));
        assert!(of.values(&long, "c", &assign()).is_err());
        let days: ArrayRef = Arc::new(datafusion::arrow::array::Date32Array::from(vec![i32::MAX - 1]));
        let error = ValueType::of_arrow(days.data_type()).values(&days, "c", &assign()).unwrap_err();
        assert_eq!(error.sqlstate, sqlstate::DATETIME_FIELD_OVERFLOW);
        let _ = Int32Array::from(vec![1]);
    }

    #[test]
    fn files_agree_on_a_type() {
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        for (a, b, wanted) in [
            (DataType::Int32, DataType::Int64, Some(DataType::Int64)),
            (DataType::UInt16, DataType::Int8, Some(DataType::Int32)),
            (DataType::Float32, DataType::Float64, Some(DataType::Float64)),
            (DataType::Utf8, DataType::LargeUtf8, Some(DataType::Utf8View)),
            (DataType::Date32, DataType::Timestamp(TimeUnit::Second, None), Some(micros)),
            (DataType::Null, DataType::Boolean, Some(DataType::Boolean)),
            (DataType::Int32, DataType::Utf8, None),
            (DataType::Boolean, DataType::Int32, None),
        ] {
            assert_eq!(united(&a, &b), wanted);
            assert_eq!(united(&b, &a), wanted);
        }
    }
}
