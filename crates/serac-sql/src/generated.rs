//! The values of generated columns, GENERATED ALWAYS AS (…) STORED. They are computed from the
//! row's other columns where whole rows are made (INSERT, MERGE, COPY, record batches) and where
//! their source columns change, referential actions included. No other code may give them values.

use crate::error::{Result, SqlError};
use crate::expressions::named_columns;
use crate::kept_expression::KeptExpression;
use crate::table_schema::nullable_schema;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::execution::SessionState;
use serac_engine::Table;
use serac_engine::catalog::definition::{ColumnDefinition, TableDefinition};

/// The error of a user's value for a column without assigned values.
pub(crate) fn refused(column: &ColumnDefinition, message: &str) -> SqlError {
    let name = &column.name;
    let detail = match column.generation {
        Some(_) => format!("Column \"{name}\" is a generated column."),
        None => format!("Column \"{name}\" is an identity column defined as GENERATED ALWAYS."),
    };
    SqlError { detail: Some(detail), ..SqlError::new(sqlstate::GENERATED_ALWAYS, message) }
}
/// The error of a user's value that INSERT or record batches give to a generated column.
pub(crate) fn not_inserted(column: &ColumnDefinition) -> SqlError {
    refused(column, &format!("cannot insert a non-DEFAULT value into column \"{}\"", column.name))
}

/// The positions of the columns that are computed, and of all others.
pub(crate) fn parts(table: &TableDefinition) -> (Vec<usize>, Vec<usize>) {
    (0..table.columns.len()).partition(|&at| table.columns[at].generation.is_some())
}

/// The generated columns that change with others: those among `changed`, and those computed from
/// one of them.
pub(crate) fn changing(table: &TableDefinition, changed: &[usize]) -> Result<Vec<usize>> {
    let mut changing = Vec::new();
    for (at, column) in table.columns.iter().enumerate() {
        let Some(expression) = &column.generation else { continue };
        if changed.contains(&at) || named_columns(table, expression)?.iter().any(|named| changed.contains(named)) {
            changing.push(at);
        }
    }
    Ok(changing)
}

/// The values of generated columns for whole rows, whose generated columns are empty yet.
pub(crate) fn compute(
    state: &SessionState,
    table: &TableDefinition,
    columns: &[usize],
    rows: &RecordBatch,
) -> Result<Vec<ArrayRef>> {
    let rows = rows.project(&parts(table).1)?;
    let value = |&at: &usize| {
        KeptExpression::generation(table, &table.columns[at]).expect("a generated column").assigned(state, &rows)
    };
    columns.iter().map(value).collect()
}

/// The values of one generated column for rows of the others.
pub(crate) fn compute_one(
    state: &SessionState,
    table: &TableDefinition,
    at: usize,
    rows: &RecordBatch,
) -> Result<ArrayRef> {
    compute(state, table, &[at], rows).map(|mut values| values.remove(0))
}

/// Whole rows of a table, their generated columns computed from the others.
pub(crate) fn complete(state: &SessionState, table: &Table, rows: RecordBatch) -> Result<RecordBatch> {
    let (computed, given) = parts(&table.definition);
    if computed.is_empty() {
        return Ok(rows);
    }
    // What is computed from a value is computed from what the table makes of it.
    let fitting = table.fit_values(&given, &rows.project(&given)?)?;
    let (schema, mut columns, count) = rows.into_parts();
    given.iter().zip(fitting.columns()).for_each(|(&at, values)| columns[at] = values.clone());
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    let rows = RecordBatch::try_new_with_options(schema.clone(), columns.clone(), &options)?;
    computed.iter().zip(compute(state, &table.definition, &computed, &rows)?).for_each(|(&at, values)| {
        columns[at] = values;
    });
    Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
}

/// The generated columns that change when rows, which are `now` so, get `new` values of `columns`;
/// and their values.
pub(crate) fn changes(
    state: &SessionState,
    table: &Table,
    columns: &[usize],
    new: &RecordBatch,
    now: impl FnOnce() -> Result<RecordBatch>,
) -> Result<Option<(Vec<usize>, RecordBatch)>> {
    let changing = changing(&table.definition, columns)?;
    if changing.is_empty() {
        return Ok(None);
    }
    let (_, mut whole, count) = now()?.into_parts();
    columns.iter().zip(new.columns()).for_each(|(&at, values)| whole[at] = values.clone());
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    let rows = RecordBatch::try_new_with_options(nullable_schema(table), whole, &options)?;
    let rows = complete(state, table, rows)?;
    Ok(Some((changing.clone(), rows.project(&changing)?)))
}
