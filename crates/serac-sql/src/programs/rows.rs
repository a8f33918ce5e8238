//! A job's inputs and output: the queries of its inputs, and its rows, read without trust.

use crate::error::{Result, SqlError};
use crate::parsed::{Source, parse};
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use serac_copy::ArrowStream;
use serac_storage::ColumnType;
use serac_values::arrow_input::given_batch;
use serac_values::assignment::assign;
use serac_values::assignment::stored_type;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tells a job to end when it is not waited for any more.
pub(crate) struct EndAtDrop(pub(crate) Arc<AtomicBool>);

impl Drop for EndAtDrop {
    fn drop(&mut self) {
        // Relaxed: a reader only stops.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The query of an input, which changes nothing.
pub(crate) fn input_query(query: &str) -> Result<Source> {
    let not_a_query = || SqlError::new(sqlstate::SYNTAX_ERROR, "an input of a job is one query");
    let mut statements = parse(query)?;
    let statement = statements.pop().filter(|_| statements.is_empty()).ok_or_else(not_a_query)?;
    match statement.only_shows() {
        true => Ok(statement.into_source()),
        false => Err(not_a_query()),
    }
}

/// Checks that a text may be an input of a job: one query, without changes.
///
/// # Errors
/// 42601 for another text.
pub fn check_job_input(query: &str) -> Result<()> {
    input_query(query).map(|_| ())
}

/// Batches of a stream from outside, whose columns have types of table columns.
///
/// # Errors
/// The errors of the stream. `grow` is told how many bytes each batch has, and may refuse.
pub(crate) fn read_rows(
    input: impl Read,
    mut grow: impl FnMut(usize) -> Result<()>,
) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let stream = ArrowStream::new(input)?;
    let stored = |field: &Arc<Field>| match field.extension_type_name() {
        Some("arrow.json") => Ok(ColumnType::Json),
        _ => Ok(stored_type(field.data_type())?.column_type),
    };
    let types = stream.schema().fields().iter().map(stored).collect::<Result<Vec<ColumnType>>>()?;
    let field = |(field, column_type): (&Arc<Field>, &ColumnType)| {
        serac_storage::marked(Field::new(field.name(), column_type.arrow(), true))
    };
    let schema = Arc::new(Schema::new(stream.schema().fields().iter().zip(&types).map(field).collect::<Vec<_>>()));
    let mut batches = Vec::new();
    for batch in stream {
        let batch = given_batch(batch?)?;
        // A value that its column's type does not have is an error, and no NULL.
        let columns = batch.columns().iter().zip(&types).zip(schema.fields());
        let columns = columns.map(|((column, column_type), field)| assign(column, (*column_type).into(), field.name()));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(schema.clone(), columns, &options)?;
        grow(batch.get_array_memory_size())?;
        batches.push(batch);
    }
    Ok((schema, batches))
}

/// Reads the output of a job that ran elsewhere. As for the rows of a local job, columns have types
/// of table columns.
///
/// # Errors
/// The errors of the stream.
pub fn read_job_output(output: impl Read) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    read_rows(output, |_| Ok(()))
}
