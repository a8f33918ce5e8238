//! SELECT … FOR UPDATE and its kin.
//!
//! The rows come in the order of the query, and each is claimed in turn until LIMIT is reached.
//! Rows that OFFSET skips are claimed, too, as in PostgreSQL.

use crate::changes::written::table_of;
use crate::error::{Result, SqlError};
use crate::row_locks::OnHeld;
use crate::session::Session;
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, UInt32Array};
use datafusion::arrow::compute::take_record_batch;
use datafusion::arrow::datatypes::{DataType, UInt64Type};
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use futures::TryStreamExt;
use serac_binder::{BoundClaim, ClaimedTable};
use serac_engine::Table;
use serac_engine::security::Privilege;
use serac_storage::RowId;
use std::collections::HashMap;
use std::sync::Arc;

/// A table of which rows are claimed.
struct Claimed {
    table: Arc<Table>,
    on_held: OnHeld,
    /// Whether rows that have come are claimed, or left out: a join may give a row several times.
    rows: HashMap<RowId, bool>,
}

/// The number of rows of a clause; `None` for all.
fn count(expr: Option<&Expr>, sqlstate: &'static str, clause: &str) -> Result<Option<usize>> {
    let number = match expr {
        None => return Ok(None),
        Some(Expr::Cast(cast)) => return count(Some(&cast.expr), sqlstate, clause),
        Some(Expr::Literal(number, _)) => number.cast_to(&DataType::Int64)?,
        Some(_) => return Err(SqlError::unsupported(format!("a {clause} that is no number beside FOR UPDATE"))),
    };
    match number {
        ScalarValue::Int64(Some(number)) => match usize::try_from(number) {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(SqlError::new(sqlstate, format!("{clause} must not be negative"))),
        },
        _ => Ok(None),
    }
}

impl Session {
    /// The table of which rows are to be claimed, if the current user may claim them.
    pub(crate) fn claimable(&self, claimed: &ClaimedTable) -> Result<Arc<Table>> {
        let table = table_of(&claimed.target)?;
        if table.definition.materialized.is_some() {
            let message = format!("cannot lock rows in materialized view \"{}\"", table.name());
            return Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message).named(table.name()));
        }
        self.check_privilege(&table, Privilege::Update, &[])?;
        self.check_privilege(&table, Privilege::Select, &[])?;
        Ok(table)
    }

    /// Claims the rows that a query gives; these, as far as they are claimed and selected.
    pub(super) async fn claim(&mut self, claim: BoundClaim) -> Result<Vec<RecordBatch>> {
        let BoundClaim { mut plan, tables } = claim;
        let mut claimed = Vec::with_capacity(tables.len());
        for claimed_table in &tables {
            let table = self.claimable(claimed_table)?;
            let ClaimedTable { strength, wait, .. } = claimed_table;
            // Also where no row is found.
            self.txn_of(&table).map_err(|error| match error.sqlstate {
                sqlstate::READ_ONLY_SQL_TRANSACTION => {
                    let words = strength.words();
                    SqlError::new(
                        sqlstate::READ_ONLY_SQL_TRANSACTION,
                        format!("cannot execute SELECT {words} in a read-only transaction"),
                    )
                }
                _ => error,
            })?;
            claimed.push(Claimed { table, on_held: OnHeld::from(*wait), rows: HashMap::new() });
        }
        let (mut skipped, mut left) = (0, usize::MAX);
        if let LogicalPlan::Limit(limit) = plan {
            skipped = count(limit.skip.as_deref(), sqlstate::INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE, "OFFSET")?
                .unwrap_or(0);
            let fetch = count(limit.fetch.as_deref(), sqlstate::INVALID_ROW_COUNT_IN_LIMIT_CLAUSE, "LIMIT")?;
            left = fetch.unwrap_or(usize::MAX);
            plan = Arc::unwrap_or_clone(limit.input);
            // Each row counts if no row is left out.
            if fetch.is_some() && claimed.iter().all(|claimed| claimed.on_held != OnHeld::Skip) {
                plan = LogicalPlanBuilder::from(plan).limit(0, Some(skipped.saturating_add(left)))?.build()?;
            }
        }
        let memory = self.work_memory.used();
        let mut rows = self.stream(DataFrame::new(self.state(), plan)).await?;
        let shown: Vec<usize> = (0..rows.schema().fields().len() - claimed.len()).collect();
        let mut given = Vec::new();
        while left > 0
            && let Some(batch) = rows.try_next().await?
        {
            let mut kept: Vec<u32> = Vec::new();
            for row in 0..batch.num_rows() {
                if left == 0 {
                    break;
                }
                if !self.claim_row(&batch.columns()[shown.len()..], row, &mut claimed)? {
                    continue;
                }
                match skipped {
                    0 => {
                        kept.push(row as u32);
                        left -= 1;
                    }
                    _ => skipped -= 1,
                }
            }
            given.push(take_record_batch(&batch.project(&shown)?, &UInt32Array::from(kept))?);
        }
        // The other rows are not wanted, and may hold memory that the next steps need.
        drop(rows);
        if left == 0 {
            self.work_memory.given_back(memory).await;
        }
        Ok(given)
    }

    /// Claims a row of each table, in their order; false if a row is left out.
    fn claim_row(&mut self, ids: &[ArrayRef], row: usize, claimed: &mut [Claimed]) -> Result<bool> {
        for (ids, Claimed { table, on_held, rows }) in ids.iter().zip(claimed) {
            let id = RowId::from_u64(ids.as_primitive::<UInt64Type>().value(row));
            let is_claimed = match rows.get(&id) {
                Some(known) => *known,
                None => {
                    let is_claimed = on_held.claim(self.txn_of(table)?, table, id)?;
                    rows.insert(id, is_claimed);
                    is_claimed
                }
            };
            if !is_claimed {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
