//! The rows that the parts of a statement have written, for the later parts.

use crate::error::{Result, SqlError};
use crate::session::Session;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::LogicalPlan;
use serac_binder::Target;
use serac_engine::Table;
use serac_query::scan::SeracTable;
use serac_storage::RowId;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A table by its schema and name.
pub(super) type TableName = (String, String);

fn name_of(table: &Table) -> TableName {
    (table.definition.schema.clone(), table.definition.name.clone())
}

/// The tables that parts of a statement have written to.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// For each table, the rows that existed before and were changed; `None` if these are not
    /// known.
    tables: HashMap<TableName, Option<HashSet<RowId>>>,
}

impl Written {
    /// Notes that rows of a table have been changed, and possibly rows of `others` with them.
    pub(super) fn note(&mut self, table: &Table, rows: Option<Vec<RowId>>, others: HashSet<TableName>) {
        let known = self.tables.entry(name_of(table)).or_insert_with(|| Some(HashSet::new()));
        match (known, rows) {
            (Some(known), Some(rows)) => known.extend(rows),
            (known, _) => *known = None,
        }
        self.tables.extend(others.into_iter().map(|name| (name, None)));
    }

    /// Refuses to change rows again. Conflicts of an INSERT may be with any row: then `rows` is
    /// `None`.
    pub(super) fn check(&self, table: &Table, rows: Option<&[RowId]>) -> Result<()> {
        let is_again = match (self.tables.get(&name_of(table)), rows) {
            (None, _) | (_, Some([])) => false,
            (Some(Some(written)), Some(rows)) => rows.iter().any(|row| written.contains(row)),
            (Some(_), _) => true,
        };
        if is_again {
            let name = table.name();
            let message = format!("changing rows of table \"{name}\" that the WITH of the statement may have changed");
            return Err(SqlError::unsupported(message));
        }
        Ok(())
    }
}

impl Session {
    /// The tables whose rows may change with those of a table, by their foreign keys.
    pub(super) fn children_of(&self, table: &Table) -> HashSet<TableName> {
        let view = self.shared.view().expect("a statement is running");
        let catalog = view.of(&table.definition.schema).0;
        let (mut found, mut left) = (HashSet::new(), vec![&table.definition]);
        while let Some(parent) = left.pop() {
            let children = catalog.children_of(parent).filter(|(child, _)| found.insert(name_of(child)));
            left.extend(children.map(|(child, _)| &child.definition).collect::<Vec<_>>());
        }
        found
    }

    /// A table and the tables whose rows may change with its own.
    pub(super) fn touched_by(&self, table: &Arc<Table>) -> HashSet<TableName> {
        let mut touched = self.children_of(table);
        touched.insert(name_of(table));
        touched
    }
}

/// Puts the tables that a plan reads to `read`.
pub(super) fn tables_of(plan: &LogicalPlan, read: &mut HashSet<TableName>) -> Result<()> {
    let mut views = Vec::new();
    plan.apply_with_subqueries(|plan| {
        if let LogicalPlan::TableScan(scan) = plan {
            let source = source_as_provider(&scan.source)?;
            if let Some(table) = source.downcast_ref::<SeracTable>() {
                read.insert(name_of(table.table()));
            } else if let Some(view) = source.get_logical_plan() {
                views.push(view.into_owned());
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    // Views know the views below them: their number is bounded as that of a plan's operators is.
    for view in views {
        crate::deep::check()?;
        tables_of(&view, read)?;
    }
    Ok(())
}

/// The result of a change.
pub(crate) struct Done {
    /// The number of changed rows.
    pub(super) count: usize,
    /// The existing rows that it has changed; `None` if these are not known.
    pub(super) rows: Option<Vec<RowId>>,
    /// The rows of RETURNING.
    pub(super) returned: Option<(SchemaRef, Vec<RecordBatch>)>,
}

/// The table of a target.
pub(crate) fn table_of(target: &Target) -> Result<Arc<Table>> {
    let provider = source_as_provider(&target.relation.source)?;
    match provider.downcast_ref::<SeracTable>() {
        Some(table) => Ok(table.table().clone()),
        None => Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, format!("\"{}\" is not a table", target.name))),
    }
}

/// `rows` rows without a column.
pub(crate) fn nothing_of(rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options)?)
}
