//! Statements of one row by a caller without SQL, which keep what SQL's texts say of the table:
//! defaults, generated columns, CHECK constraints.
//!
//! Tables without such texts are written as by [`Transaction::insert`] and
//! [`Transaction::update`]. For the others the transaction needs an evaluator
//! ([`Expressions`]), as those of sessions have. The texts then cost what they cost in SQL.

use crate::catalog::definition::ColumnDefinition;
use crate::error::{EngineError, ExpressionError, Result};
use crate::table::Table;
use crate::table::expressions::Expressions;
use crate::table::statement::ColumnUpdate;
use crate::transaction::Transaction;
use crate::values::{OwnedValue, array_of};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema};
use serac_storage::{RowId, StorageError, Value};
use std::sync::Arc;

impl Table {
    /// Refuses changes of a materialized view's rows.
    ///
    /// # Errors
    /// [`EngineError::OtherKind`].
    pub fn check_changeable(&self) -> Result<()> {
        match self.definition.materialized {
            None => Ok(()),
            Some(_) => {
                let name = self.name().to_owned();
                Err(EngineError::OtherKind { wanted: "table", name, kind: "materialized view" })
            }
        }
    }

    /// Refuses values for columns that have none of the user's.
    fn check_given(&self, columns: &[usize], message: impl Fn(&str) -> String) -> Result<()> {
        let all = &self.definition.columns;
        let Some(column) = columns.iter().map(|&at| &all[at]).find(|column| column.is_generated()) else {
            return Ok(());
        };
        let ColumnDefinition { name, generation, .. } = column;
        let detail = match generation {
            Some(_) => format!("Column \"{name}\" is a generated column."),
            None => format!("Column \"{name}\" is an identity column defined as GENERATED ALWAYS."),
        };
        Err(EngineError::Expression(Box::new(ExpressionError {
            sqlstate: sqlstate::GENERATED_ALWAYS,
            message: message(name),
            detail: Some(detail),
            hint: None,
            name: Some(name.clone()),
            table: None,
            row: None,
        })))
    }

    fn has_generated_columns(&self) -> bool {
        self.definition.columns.iter().any(|column| column.generation.is_some())
    }
}

impl Transaction {
    fn evaluator(&self, table: &Table) -> Result<Arc<dyn Expressions>> {
        self.expressions.clone().ok_or_else(|| {
            let name = table.name();
            let message =
                format!("a row of \"{name}\", whose definition has SQL, in a transaction without expressions");
            EngineError::Unsupported(message)
        })
    }

    /// Inserts a row with values of `columns` (positions, each once). The other columns take their
    /// defaults, generated ones are computed, and CHECK constraints must hold.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert), and of the definition's SQL; 428C9 for a value of a
    /// generated column. The row is not there then.
    pub fn insert_given(&mut self, table: &Arc<Table>, columns: &[usize], values: &[Value<'_>]) -> Result<RowId> {
        assert_eq!(columns.len(), values.len(), "a value for each column");
        table.check_changeable()?;
        table.check_given(columns, |name| format!("cannot insert a non-DEFAULT value into column \"{name}\""))?;
        let all = &table.definition.columns;
        let has_default = |at: usize| all[at].default.is_some() && !columns.contains(&at);
        if table.definition.checks.is_empty() && !table.has_generated_columns() && !(0..all.len()).any(has_default) {
            let mut row = vec![Value::Null; all.len()];
            columns.iter().zip(values).for_each(|(&at, &value)| row[at] = value);
            return self.insert(table, &row);
        }
        let given = one_row(table, columns, values)?;
        let rows = self.evaluator(table)?.new_rows(table, columns, &given)?;
        self.insert(table, &table.row_of(&rows, 0))
    }

    /// Updates a row: a value for every column of the plan. Columns that are generated from these
    /// change with them, and CHECK constraints must hold.
    ///
    /// # Errors
    /// Those of [`update`](Self::update), and of the definition's SQL; 428C9 for a value of a
    /// generated column. The row is as it was then.
    pub fn update_given(&mut self, plan: &ColumnUpdate, row: RowId, values: &[Value<'_>]) -> Result<()> {
        let table = &plan.table;
        table.check_changeable()?;
        table.check_given(&plan.columns, |name| format!("column \"{name}\" can only be updated to DEFAULT"))?;
        if table.definition.checks.is_empty() && !table.has_generated_columns() {
            return self.update(plan, row, values);
        }
        let expressions = self.evaluator(table)?;
        self.statement(|txn| {
            txn.update(plan, row, values)?;
            let snapshot = txn.snapshot().clone();
            if let Some((generated, values)) = expressions.generated_values(table, &snapshot, &[row], &plan.columns)? {
                txn.update_batch(table, &[row], &generated, &values)?;
            }
            expressions.check_rows(table, &snapshot, &[row])
        })
    }
}

/// Values of columns as a batch of one row.
fn one_row(table: &Table, columns: &[usize], values: &[Value<'_>]) -> Result<RecordBatch> {
    let (mut fields, mut arrays): (Vec<Field>, Vec<ArrayRef>) = Default::default();
    for (&at, value) in columns.iter().zip(values) {
        let ColumnDefinition { name, sql_type, .. } = &table.definition.columns[at];
        if !sql_type.column_type.accepts(value) {
            let message = format!("{value:?} is no value of column \"{name}\" of type {sql_type}");
            return Err(StorageError::InvalidInput(message).into());
        }
        fields.push(Field::new(name, sql_type.column_type.arrow(), true));
        arrays.push(array_of(&[OwnedValue::from(value)], sql_type.column_type));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options);
    Ok(batch.map_err(StorageError::from)?)
}
