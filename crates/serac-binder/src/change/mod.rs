//! INSERT, UPDATE, DELETE and MERGE: their computations, as plans.
//!
//! A change is bound whole, its WITH, ON CONFLICT and RETURNING included. Its plans are over
//! relations as they are before it, and over [rows to come](Environment::rows_to_come): the changed
//! rows, for RETURNING, and the rows in conflict. The caller gives these rows before it runs the
//! plans over them.
//!
//! | module | what |
//! |---|---|
//! | [`target`] | the table, its columns and unique indexes |
//! | [`insert`] | the rows of INSERT |
//! | [`conflict`] | ON CONFLICT |
//! | [`update`] | UPDATE and DELETE |
//! | [`assignment`] | SET |
//! | [`merge`] | MERGE |
//! | [`returning`] | RETURNING |

mod assignment;
mod conflict;
mod insert;
mod merge;
mod returning;
mod target;
mod update;

use crate::binder::Binder;
use crate::environment::Environment;
use crate::error::{BindError, NO_PLACE, Result};
use crate::limits::LEVELS_OF_QUERY;
use crate::selected::Selected;
use crate::statement::{BoundChange, BoundPart, OutputColumn, PartBody};
use crate::target::Target;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::TableReference;
use datafusion::logical_expr::{LogicalPlanBuilder, TableSource};
use serac_parser::tree::{StatementKind, With};
use std::sync::Arc;

/// The WITH of a change; `None` without a WITH, and for another statement.
pub(crate) fn with_of(statement: &StatementKind) -> Option<&With> {
    match statement {
        StatementKind::Insert(insert) => insert.with.as_ref(),
        StatementKind::Update(update) => update.with.as_ref(),
        StatementKind::Delete(delete) => delete.with.as_ref(),
        StatementKind::Merge(merge) => merge.with.as_ref(),
        _ => None,
    }
}

/// Whether a statement is a change.
pub(crate) fn is_change(statement: &StatementKind) -> bool {
    matches!(
        statement,
        StatementKind::Insert(_) | StatementKind::Update(_) | StatementKind::Delete(_) | StatementKind::Merge(_)
    )
}

/// Whether a change gives rows.
pub(crate) fn has_returning(statement: &StatementKind) -> bool {
    let items = match statement {
        StatementKind::Insert(insert) => &insert.returning,
        StatementKind::Update(update) => &update.returning,
        StatementKind::Delete(delete) => &delete.returning,
        StatementKind::Merge(merge) => &merge.returning,
        _ => return false,
    };
    !items.is_empty()
}

impl Binder<'_> {
    /// A change. `is_top`: its WITH may have changes, too.
    pub(crate) fn change(&self, statement: &StatementKind, is_top: bool) -> Result<BoundChange> {
        self.deeper(LEVELS_OF_QUERY, || {
            let before = self.tables.borrow().len();
            let with = with_of(statement).map_or(Ok(()), |with| self.with(with, None, is_top));
            let bound = with.and_then(|()| self.change_itself(statement));
            self.tables.borrow_mut().truncate(before);
            bound
        })
    }

    /// A change without its WITH.
    fn change_itself(&self, statement: &StatementKind) -> Result<BoundChange> {
        Ok(match statement {
            StatementKind::Insert(insert) => BoundChange::Insert(Box::new(self.insert(insert)?)),
            StatementKind::Update(update) => BoundChange::Rows(Box::new(self.update(update)?)),
            StatementKind::Delete(delete) => BoundChange::Rows(Box::new(self.delete(delete)?)),
            StatementKind::Merge(merge) => BoundChange::Merge(Box::new(self.merge(merge)?)),
            _ => return Err(BindError::unsupported("a change of this kind", NO_PLACE)),
        })
    }

    /// A part that runs before the rest of the statement, and its resulting rows. `columns` is
    /// empty for a change without RETURNING.
    pub(crate) fn part(&self, body: PartBody, schema: SchemaRef, columns: Vec<OutputColumn>) -> Result<Selected> {
        let rows = self.environment.rows_to_come(schema, None);
        let name = TableReference::bare(self.qualifier("#part"));
        let plan = LogicalPlanBuilder::scan(name, rows.clone(), None)?.build()?;
        self.done_before.borrow_mut().push(BoundPart { rows, body });
        Ok(Selected::new(plan, columns))
    }
}

/// A relation of rows that are not there yet, made by the environment.
pub(crate) fn to_come(environment: &dyn Environment, fields: Vec<Field>, target: &Target) -> Arc<dyn TableSource> {
    environment.rows_to_come(Arc::new(Schema::new(fields)), Some(target))
}
