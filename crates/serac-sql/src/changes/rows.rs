//! UPDATE and DELETE.

use super::Written;
use crate::changes::written::{Done, table_of};
use crate::error::Result;
use crate::planner;
use crate::session::Session;
use crate::table_schema::{check_constants, visible_rows};
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use datafusion::arrow::compute::{concat_batches, take};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef, UInt64Type};
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{Expr, LogicalPlan};
use serac_binder::{BoundRows, SetColumn, Target};
use serac_engine::Table;
use serac_engine::security::Privilege;
use serac_storage::RowId;
use serac_values::assignment::assign;
use std::collections::HashSet;
use std::sync::Arc;

/// Rows of a table that a query has found, and the computed values for each.
pub(super) struct Found {
    pub(super) rows: Vec<RowId>,
    pub(super) computed: Vec<ArrayRef>,
}

impl Found {
    /// Each row once, with its first computed values: a row that joins with several others is
    /// changed once, by any of them.
    fn once(self) -> Result<Self> {
        let mut seen = HashSet::new();
        let first: Vec<u32> = (0..self.rows.len() as u32).filter(|&i| seen.insert(self.rows[i as usize])).collect();
        if first.len() == self.rows.len() {
            return Ok(self);
        }
        let rows = first.iter().map(|&i| self.rows[i as usize]).collect();
        let at = UInt32Array::from(first);
        let computed = self.computed.iter().map(|array| take(array, &at, None)).collect::<Result<_, _>>()?;
        Ok(Self { rows, computed })
    }
}

/// The columns of SET and their values, in the types of the columns.
pub(super) fn set_values(
    session: &Session,
    table: &Table,
    set: &[SetColumn],
    computed: &[ArrayRef],
    count: usize,
) -> Result<(Vec<usize>, RecordBatch)> {
    let mut arrays = Vec::with_capacity(set.len());
    for SetColumn { column, value } in set {
        let definition = &table.definition.columns[*column];
        arrays.push(match value {
            Some(value) => assign(&computed[*value], definition.sql_type, &definition.name)?,
            None => session.column_default(definition, count)?,
        });
    }
    let columns = Target::set_columns(set);
    let field = |&column: &usize| {
        let definition = &table.definition.columns[column];
        Field::new(&definition.name, definition.sql_type.column_type.arrow(), true)
    };
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    Ok((columns, RecordBatch::try_new_with_options(schema, arrays, &options)?))
}

/// The values that a query computes behind the row.
fn values_of(plan: &LogicalPlan) -> &[Expr] {
    match plan {
        LogicalPlan::Projection(projection) => projection.expr.get(1..).unwrap_or_default(),
        _ => &[],
    }
}

impl Session {
    pub(super) async fn change_rows(
        &mut self,
        change: BoundRows,
        written: &Written,
        names: Option<SchemaRef>,
    ) -> Result<Done> {
        let BoundRows { target, plan, set, returning } = change;
        let table = table_of(&target)?;
        let columns = set.as_deref().map(Target::set_columns);
        match &columns {
            Some(columns) => self.check_privilege(&table, Privilege::Update, columns)?,
            None => self.check_privilege(&table, Privilege::Delete, &[])?,
        }
        let set = set.unwrap_or_default();
        let frame = DataFrame::new(self.state(), plan);
        let valued: Vec<usize> = set.iter().filter(|set| set.value.is_some()).map(|set| set.column).collect();
        let constants = self.constants(values_of(frame.logical_plan()).get(..valued.len()).unwrap_or_default());
        let Found { rows, computed } = self.found(frame).await?.once()?;
        written.check(&table, Some(&rows))?;
        if rows.is_empty() {
            check_constants(&table, &valued, &constants)?;
        }
        let is_update = columns.is_some();
        let now = match is_update {
            true => {
                let (columns, values) = set_values(self, &table, &set, &computed, rows.len())?;
                self.write_update(&table, &rows, &columns, &values)?;
                returning.as_ref().map(|_| self.rows_now(&table, &rows)).transpose()?
            }
            false => {
                let before = returning.as_ref().map(|_| self.rows_now(&table, &rows)).transpose()?;
                self.txn_of(&table)?.delete_batch(&table, &rows)?;
                before
            }
        };
        let returned = match (returning, now) {
            (Some(returning), Some(now)) => {
                let now = beside(&visible_rows(&table, &now)?, &computed[valued.len()..])?;
                Some(self.returned(returning, vec![now], names).await?)
            }
            _ => None,
        };
        Ok(Done { count: rows.len(), rows: Some(rows), returned })
    }

    /// The values that are the same for all rows: PostgreSQL looks at them when it plans.
    fn constants(&self, values: &[Expr]) -> Vec<Option<datafusion::common::ScalarValue>> {
        let state = self.state();
        let constant = |expression: &Expr| {
            // Columns, and expressions that fail, are no constants.
            let computed = planner::computed(&state, vec![expression.clone().unalias()]).ok()?;
            computed.first().and_then(|expression| expression.as_literal().cloned())
        };
        values.iter().map(constant).collect()
    }

    /// The rows that a query finds, and the computed values for each.
    pub(super) async fn found(&self, frame: DataFrame) -> Result<Found> {
        let (schema, found) = self.collect_with_schema(frame).await?;
        let found = concat_batches(&schema, &found)?;
        let ids = found.column(0).as_primitive::<UInt64Type>().values();
        let rows = ids.iter().map(|&id| RowId::from_u64(id)).collect();
        Ok(Found { rows, computed: found.columns()[1..].to_vec() })
    }
}

/// Rows with further columns.
pub(super) fn beside(rows: &RecordBatch, others: &[ArrayRef]) -> Result<RecordBatch> {
    let mut fields: Vec<Field> = rows.schema().fields().iter().map(|field| field.as_ref().clone()).collect();
    let mut columns = rows.columns().to_vec();
    for (at, other) in others.iter().enumerate() {
        fields.push(Field::new(format!("other{at}"), other.data_type().clone(), true));
        columns.push(other.clone());
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
}
