//! Expressions that tables keep as texts.

use serac_binder::Place;
use serac_engine::catalog::definition::{ColumnDefinition, TableDefinition};

/// The text of an expression that stands in no query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptExpression<'t> {
    pub(crate) text: &'t str,
    pub(crate) place: Place,
    /// The table of its columns.
    pub(crate) table: Option<&'t TableDefinition>,
    /// The column to which its values are assigned.
    pub(crate) column: Option<&'t ColumnDefinition>,
}

impl<'t> KeptExpression<'t> {
    /// The default of a column, if it has one.
    pub(crate) fn default_of(column: &'t ColumnDefinition) -> Option<Self> {
        let text = column.default.as_deref()?;
        Some(Self { text, place: Place::Default, table: None, column: Some(column) })
    }

    /// The expression of a generated column.
    pub(crate) fn generation(table: &'t TableDefinition, column: &'t ColumnDefinition) -> Option<Self> {
        let place = if column.hidden { Place::Index } else { Place::Generation };
        Some(Self { text: column.generation.as_deref()?, place, table: Some(table), column: Some(column) })
    }

    /// An expression over a table whose values are assigned to no column.
    pub(crate) fn over(table: &'t TableDefinition, text: &'t str, place: Place) -> Self {
        Self { text, place, table: Some(table), column: None }
    }
}
