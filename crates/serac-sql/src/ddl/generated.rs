//! The rules for the expression of a generated column.

use crate::error::{Result, SqlError};
use crate::expressions::named_columns;
use crate::generated::{compute, parts};
use crate::kept_expression::KeptExpression;
use crate::session::Session;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::DFSchema;
use datafusion::execution::SessionState;
use serac_binder::Place;
use serac_engine::catalog::definition::{ReferentialAction, TableDefinition};

impl Session {
    /// Refuses a generated column whose expression cannot be meant, or not to be stored: its value
    /// must depend on the row's other columns alone.
    pub(crate) async fn check_generation(&self, table: &TableDefinition, at: usize) -> Result<()> {
        let column = &table.columns[at];
        let Some(expression) = &column.generation else { return Ok(()) };
        if column.default.is_some() {
            let what = format!("for column \"{}\" of table \"{}\"", column.name, table.name);
            return Err(SqlError::new(
                sqlstate::SYNTAX_ERROR,
                format!("both default and generation expression specified {what}"),
            ));
        }
        let changes = |action| !matches!(action, ReferentialAction::NoAction | ReferentialAction::Restrict);
        for key in table.foreign_keys.iter().filter(|key| key.columns.contains(&at)) {
            let deletes = key.on_delete == ReferentialAction::Cascade;
            if changes(key.on_update) || (changes(key.on_delete) && !deletes) {
                let name = &key.name;
                let message =
                    format!("the action of foreign key \"{name}\" would change generated column \"{}\"", column.name);
                return Err(SqlError::new(sqlstate::SYNTAX_ERROR, message));
            }
        }
        let (bytes, table) = (expression.len(), table.clone());
        let check = move |state: &SessionState| {
            let Some(expression) = KeptExpression::generation(&table, &table.columns[at]) else { return Ok(()) };
            check_computed(state, &table, &expression)?;
            let rows = RecordBatch::new_empty(table.storage_schema().arrow());
            compute(state, &table, &[at], &rows).map(drop)
        };
        self.planning_kept(bytes, check).await
    }
}

/// Refuses an expression over a table whose value cannot be computed once for all from a row's
/// columns that are not computed themselves.
pub(super) fn check_computed(
    state: &SessionState,
    table: &TableDefinition,
    expression: &KeptExpression<'_>,
) -> Result<()> {
    let place = expression.place;
    let named = named_columns(table, expression.text)?;
    if let Some(&other) = named.iter().find(|&&named| table.columns[named].generation.is_some()) {
        let other = &table.columns[other].name;
        let message = format!("cannot use generated column \"{other}\" in {}", place.name());
        return Err(match place {
            Place::Generation => {
                let detail = Some("A generated column cannot reference another generated column.".into());
                SqlError { detail, ..SqlError::new(sqlstate::INVALID_OBJECT_DEFINITION, message) }
            }
            _ => SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message),
        });
    }
    let columns = DFSchema::try_from(table.storage_schema().arrow().project(&parts(table).1)?)?;
    if expression.bound(state, &columns)?.is_immutable {
        return Ok(());
    }
    Err(SqlError::new(
        sqlstate::INVALID_OBJECT_DEFINITION,
        match place {
            Place::Generation => "generation expression is not immutable".to_owned(),
            _ => format!("functions in {} must be marked IMMUTABLE", place.name()),
        },
    ))
}
