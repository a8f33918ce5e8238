//! Rows of parameters for prepared statements.
//!
//! They stay in the columns in which they came until a row is executed. A row of values takes many
//! times its size in columns, and in a column of NULLs it takes no space.

use super::status::{error, of_arrow, status_of};
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use serac_sql::SqlError;
use serac_sql::arrow_input::given;
use serac_storage::ColumnType;
use tonic::Status;

/// The rows of parameters that a client has bound.
pub(super) struct Parameters(Vec<Batch>);

struct Batch {
    rows: usize,
    /// The columns, in the parameters' types if these are known.
    columns: Vec<ArrayRef>,
}

impl Parameters {
    /// One row, for a statement without parameters.
    pub(super) fn none() -> Self {
        Self(vec![Batch { rows: 1, columns: Vec::new() }])
    }

    /// Each value of its parameter's type where that is known.
    pub(super) fn new(batches: &[RecordBatch], types: &[Option<ColumnType>]) -> Result<Self, Status> {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let columns_of = |batch: &RecordBatch| {
            if batch.num_columns() != types.len() {
                let (given, wanted) = (batch.num_columns(), types.len());
                return Err(error(
                    sqlstate::PROTOCOL_VIOLATION,
                    format!("{given} parameters are given, but the statement has {wanted}"),
                ));
            }
            let columns = batch.columns().iter().zip(types).map(|(column, wanted)| {
                let column = given(column).map_err(|error| status_of(&error))?;
                match wanted.map(|t| t.arrow()) {
                    // A value that becomes a document is still a text.
                    Some(DataType::LargeUtf8) => cast_with_options(&column, &DataType::Utf8, &options),
                    Some(wanted) if *column.data_type() != wanted && can_cast_types(column.data_type(), &wanted) => {
                        cast_with_options(&column, &wanted, &options)
                    }
                    _ => Ok(column),
                }
                .map_err(of_arrow)
            });
            Ok(Batch { rows: batch.num_rows(), columns: columns.collect::<Result<_, _>>()? })
        };
        batches.iter().map(columns_of).collect::<Result<_, _>>().map(Self)
    }

    /// The number of rows.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|batch| batch.rows).sum()
    }

    /// The rows, each made when it is wanted.
    pub(super) fn rows(&self) -> impl Iterator<Item = Result<Vec<ScalarValue>, SqlError>> + Send {
        let places = self.0.iter().flat_map(|batch| (0..batch.rows).map(move |row| (&batch.columns, row)));
        places.map(|(columns, row)| {
            let values = columns.iter().map(|column| ScalarValue::try_from_array(column, row));
            values.collect::<Result<_, _>>().map_err(SqlError::from)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Int64Array, NullArray};
    use std::sync::Arc;

    #[test]
    fn rows_come_in_order_and_have_the_parameters_types() {
        let batch = |column: ArrayRef| RecordBatch::try_from_iter([("a", column)]).unwrap();
        let batches = [batch(Arc::new(Int64Array::from(vec![1, 2]))), batch(Arc::new(NullArray::new(1)))];
        let parameters = Parameters::new(&batches, &[Some(ColumnType::Int32)]).unwrap();
        let rows: Vec<_> = parameters.rows().collect::<Result<_, _>>().unwrap();
        assert_eq!(rows, [Some(1), Some(2), None].map(|number| vec![ScalarValue::Int32(number)]));
        assert_eq!((parameters.len(), Parameters::none().len()), (3, 1));
        assert!(Parameters::none().rows().all(|row| row.unwrap().is_empty()));
        assert!(Parameters::new(&batches, &[]).is_err());
    }
}
