//! The columns of a table as batches of its rows have them, and rows and constants that fit them.

use crate::error::Result;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::common::ScalarValue;
use serac_engine::Table;
use serac_engine::catalog::definition::ColumnDefinition;
use serac_values::assignment::assign;
use std::sync::Arc;

/// The name of the table that is changed, in plans.
pub(crate) const TARGET: &str = "__serac_target";

pub(crate) fn nullable(columns: &[ColumnDefinition]) -> Arc<Schema> {
    let fields = columns.iter().map(|c| Field::new(&c.name, c.sql_type.column_type.arrow(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The table's columns, all nullable.
pub(crate) fn nullable_schema(table: &Table) -> Arc<Schema> {
    nullable(&table.definition.columns)
}

/// The columns that users see, all nullable.
pub(crate) fn visible_schema(table: &Table) -> Arc<Schema> {
    nullable(table.definition.visible_columns())
}

/// Whole rows of a table as users see them.
pub(crate) fn visible_rows(table: &Table, rows: &RecordBatch) -> Result<RecordBatch> {
    let visible: Vec<usize> = (0..table.definition.visible_columns().len()).collect();
    Ok(rows.project(&visible)?.with_schema(visible_schema(table))?)
}

/// Checks constants that no row has been assigned: PostgreSQL looks at them when it plans.
///
/// # Errors
/// The errors of an assignment.
pub(crate) fn check_constants(table: &Table, columns: &[usize], constants: &[Option<ScalarValue>]) -> Result<()> {
    for (&column, constant) in columns.iter().zip(constants) {
        let definition = &table.definition.columns[column];
        if let Some(constant) = constant.as_ref().filter(|constant| !constant.is_null()) {
            let value = assign(&constant.to_array()?, definition.sql_type, &definition.name)?;
            let schema = Arc::new(nullable_schema(table).project(&[column])?);
            table.fit(&[column], &RecordBatch::try_new(schema, vec![value])?)?;
        }
    }
    Ok(())
}
