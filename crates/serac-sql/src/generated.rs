//! Generated columns, GENERATED ALWAYS AS (…) STORED: computed from the row's other columns wherever whole rows come to be (INSERT, MERGE, COPY, record
//! batches) and wherever columns change that they are computed from, referential actions included. Nobody else may give them values.

use crate::dml::nullable_schema;
use crate::error::{Result, SqlError};
use crate::expressions::{KeptExpression, named_columns};
use crate::session::Session;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::common::DFSchema;
use datafusion::execution::SessionState;
use serac_binder::Place;
use serac_engine::Table;
use serac_engine::definition::{ColumnDefinition, ReferentialAction, TableDefinition};
use serac_storage::RowId;

/// What is wrong with a value of the user's for a column that takes none.
pub(crate) fn refused(column: &ColumnDefinition, message: &str) -> SqlError {
    let name = &column.name;
    let detail = match column.generation {
        Some(_) => format!("Column \"{name}\" is a generated column."),
        None => format!("Column \"{name}\" is an identity column defined as GENERATED ALWAYS."),
    };
    SqlError { detail: Some(detail), ..SqlError::new("428C9", message) }
}
/// A value of the user's that INSERT or record batches give to such a column.
pub(crate) fn not_inserted(column: &ColumnDefinition) -> SqlError {
    refused(column, &format!("cannot insert a non-DEFAULT value into column \"{}\"", column.name))
}

/// The positions of the columns that are computed, and of all others.
pub(crate) fn parts(table: &TableDefinition) -> (Vec<usize>, Vec<usize>) {
    (0..table.columns.len()).partition(|&at| table.columns[at].generation.is_some())
}

/// The generated columns that change with others: those among `changed`, and those computed from one of them.
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

/// The values of generated columns for whole rows, whose generated columns say nothing yet.
fn compute(
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
    let fitting = table.fit(&given, &rows.project(&given)?)?;
    let (schema, mut columns, count) = rows.into_parts();
    given.iter().zip(fitting.columns()).for_each(|(&at, values)| columns[at] = values.clone());
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    let rows = RecordBatch::try_new_with_options(schema.clone(), columns.clone(), &options)?;
    computed.iter().zip(compute(state, &table.definition, &computed, &rows)?).for_each(|(&at, values)| {
        columns[at] = values;
    });
    Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
}

/// The generated columns that change when rows, which are `now` so, get `new` values of `columns`; and their values.
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

impl Session {
    /// What an UPDATE of `columns` writes, the generated columns that change with them included; none if there are none.
    pub(crate) fn with_generated(
        &self,
        table: &Table,
        rows: &[RowId],
        columns: &[usize],
        new: &RecordBatch,
    ) -> Result<Option<(Vec<usize>, RecordBatch)>> {
        let changes = changes(&self.state(), table, columns, new, || self.rows_now(table, rows))?;
        let Some((generated, values)) = changes else { return Ok(None) };
        let given = (0..columns.len()).filter(|&i| !generated.contains(&columns[i]));
        let (mut all, mut arrays): (Vec<usize>, Vec<ArrayRef>) =
            given.map(|i| (columns[i], new.column(i).clone())).unzip();
        all.extend(&generated);
        arrays.extend_from_slice(values.columns());
        let schema = nullable_schema(table).project(&all)?;
        Ok(Some((all, RecordBatch::try_new(schema.into(), arrays)?)))
    }

    /// Refuses a generated column whose expression cannot be meant, or not to be stored: its value must depend on the row's other columns alone.
    pub(crate) fn check_generation(&self, table: &TableDefinition, at: usize) -> Result<()> {
        let column = &table.columns[at];
        let Some(expression) = KeptExpression::generation(table, column) else { return Ok(()) };
        if column.default.is_some() {
            let what = format!("for column \"{}\" of table \"{}\"", column.name, table.name);
            return Err(SqlError::new("42601", format!("both default and generation expression specified {what}")));
        }
        let changes = |action| !matches!(action, ReferentialAction::NoAction | ReferentialAction::Restrict);
        for key in table.foreign_keys.iter().filter(|key| key.columns.contains(&at)) {
            let deletes = key.on_delete == ReferentialAction::Cascade;
            if changes(key.on_update) || (changes(key.on_delete) && !deletes) {
                let name = &key.name;
                let message =
                    format!("the action of foreign key \"{name}\" would change generated column \"{}\"", column.name);
                return Err(SqlError::new("42601", message));
            }
        }
        self.check_computed(table, &expression)?;
        let rows = RecordBatch::new_empty(table.storage_schema().arrow());
        compute(&self.state(), table, &[at], &rows).map(drop)
    }

    /// Refuses an expression over a table whose value cannot be computed once for all from a row's
    /// columns that are not computed themselves.
    pub(crate) fn check_computed(&self, table: &TableDefinition, expression: &KeptExpression<'_>) -> Result<()> {
        let place = expression.place;
        let named = named_columns(table, expression.text)?;
        if let Some(&other) = named.iter().find(|&&named| table.columns[named].generation.is_some()) {
            let other = &table.columns[other].name;
            let message = format!("cannot use generated column \"{other}\" in {}", place.name());
            return Err(match place {
                Place::Generation => {
                    let detail = Some("A generated column cannot reference another generated column.".into());
                    SqlError { detail, ..SqlError::new("42P17", message) }
                }
                _ => SqlError::new("0A000", message),
            });
        }
        let columns = DFSchema::try_from(table.storage_schema().arrow().project(&parts(table).1)?)?;
        if expression.bound(&self.state(), &columns)?.is_immutable {
            return Ok(());
        }
        Err(SqlError::new(
            "42P17",
            match place {
                Place::Generation => "generation expression is not immutable".to_owned(),
                _ => format!("functions in {} must be marked IMMUTABLE", place.name()),
            },
        ))
    }
}
