//! The parts of a compiled statement.

use super::access::Access;
use super::expression::{Assignment, RowExpr};
use crate::row_locks::OnHeld;
use datafusion::arrow::datatypes::SchemaRef;
use serac_engine::{ColumnUpdate, IndexAccess, Table, TableIndex};
use serac_storage::ColumnType;
use std::sync::Arc;

/// A compiled statement.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) action: Action,
    /// The types of the parameters, in order.
    pub(super) parameters: Vec<ColumnType>,
    /// Whether the time of the transaction follows as an additional one.
    pub(super) has_time: bool,
    /// The columns of the result; `None` for a statement without rows.
    pub(super) schema: Option<SchemaRef>,
    pub(super) types: Vec<ColumnType>,
    /// The number of characters that the columns of CHAR(n) show ([`crate::wire::widths`]).
    pub(super) widths: Vec<Option<usize>>,
    /// Whether expressions call functions, which may take long.
    pub(super) computes: bool,
    /// Whether sequence functions, also those in defaults that referential actions may call for,
    /// look at the session's view of the database.
    pub(super) needs_view: bool,
}

impl Plan {
    /// Its access to rows, for EXPLAIN; `None` if it finds no rows.
    pub(super) fn shown(&self) -> Option<String> {
        let (table, find, sorted) = match &self.action {
            Action::Select { table, query, .. } => (table, &query.find, !query.order.is_empty()),
            Action::Update { table, find, .. } | Action::Delete { table, find, .. } => (table, find, false),
            Action::Row(_) | Action::Insert { .. } => return None,
        };
        let (table, access, filters) = (table.name(), find.access.shown(), find.filters.len());
        let filters = if filters > 0 { format!(", filters={filters}") } else { String::new() };
        let sorted = if sorted { ", sorted" } else { "" };
        Some(format!("SeracPointExec: table={table}, {access}{filters}{sorted}"))
    }
}

/// The action of a statement.
#[derive(Debug)]
pub(super) enum Action {
    /// One row, of no table.
    Row(Vec<RowExpr>),
    Select {
        table: Arc<Table>,
        query: Query,
        lock: Option<OnHeld>,
    },
    Insert {
        table: Arc<Table>,
        insert: Insert,
    },
    Update {
        table: Arc<Table>,
        find: Find,
        change: Change,
        after: After,
        update: ColumnUpdate,
    },
    Delete {
        table: Arc<Table>,
        find: Find,
        change: Change,
        after: After,
    },
}

/// The rows of a table that pass a filter.
#[derive(Debug)]
pub(super) struct Find {
    pub(super) access: Access,
    /// Reads the columns in the order in which expressions see them.
    pub(super) index_access: IndexAccess,
    pub(super) filters: Vec<RowExpr>,
}

/// An aggregate over all rows.
#[derive(Debug)]
pub(super) enum Aggregate {
    /// Rows, or those where the expression is not NULL.
    Count(Option<RowExpr>),
    /// A sum of integers or decimals.
    Sum(RowExpr, ColumnType),
    Min(RowExpr),
    Max(RowExpr),
}

/// A query on the point path: a [`Shape`](super::shape::Shape) whose expressions are compiled.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) find: Find,
    pub(super) aggregates: Option<Vec<Aggregate>>,
    /// Whether the aggregate's result is that of the first row found where its argument is not
    /// NULL.
    pub(super) first_is_enough: bool,
    pub(super) outputs: Vec<RowExpr>,
    /// Expressions, whether ascending, and whether NULLs come first. Empty where the index gives
    /// the order.
    pub(super) order: Vec<(RowExpr, bool, bool)>,
    pub(super) skip: Option<RowExpr>,
    pub(super) fetch: Option<RowExpr>,
}

/// The handling of each row that is found: its new values are collected, and behind them the
/// unchanged old ones that are needed afterwards. A row that is to be deleted has no assignments.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) set: Vec<Assignment>,
    /// The columns assigned to.
    pub(super) columns: Vec<usize>,
    /// The old values, by their places in the row that is read.
    pub(super) kept: Vec<usize>,
    /// The columns that [`After`] uses, by their places in the collected values.
    pub(super) seen: Vec<usize>,
}

/// The new row after a write, and its result.
#[derive(Debug)]
pub(super) struct After {
    /// Names and conditions of CHECK constraints.
    pub(super) checks: Vec<(String, RowExpr)>,
    pub(super) returning: Option<Vec<RowExpr>>,
}

#[derive(Debug)]
pub(super) struct Insert {
    /// By row, a value for every column of the table.
    pub(super) rows: Vec<Vec<Assignment>>,
    /// Generated columns, and their expressions over the row's other columns.
    pub(super) generated: Vec<(usize, Assignment)>,
    pub(super) on_conflict: Option<OnConflict>,
    /// Over all columns.
    pub(super) after: After,
}

#[derive(Debug)]
pub(super) struct OnConflict {
    /// The arbiter index, whose keys may collide; `None` for any.
    pub(super) index: Option<Arc<TableIndex>>,
    /// `None`: DO NOTHING.
    pub(super) update: Option<ConflictUpdate>,
}

/// DO UPDATE: over the columns of the row that is there, and those of the row that was to be
/// inserted.
#[derive(Debug)]
pub(super) struct ConflictUpdate {
    pub(super) filters: Vec<RowExpr>,
    pub(super) change: Change,
    pub(super) update: ColumnUpdate,
}
