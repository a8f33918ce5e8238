//! Values as those of columns, by a session's settings of times.

use crate::error::{Result, SqlError};
use datafusion::arrow::array::ArrayRef;
use serac_engine::catalog::definition::SqlType;
use serac_functions::StyledFunctions;
use serac_values::assignment::assign;

/// Values as a column of a type and a name takes them.
///
/// # Errors
/// The errors of an assignment.
pub(crate) fn assigned_in_style(
    style: Option<&StyledFunctions>,
    values: &ArrayRef,
    sql_type: SqlType,
    column: &str,
) -> Result<ArrayRef> {
    let read = style.map(|style| style.array(values, &sql_type.column_type.arrow()));
    let read = read.transpose().map_err(|error| {
        let detail = || Some(format!("column \"{column}\" is of type {sql_type}"));
        SqlError { detail: error.detail.clone().or_else(detail), ..error }
    })?;
    assign(read.flatten().as_ref().unwrap_or(values), sql_type, column)
}
