//! [`Claims`] collects the rows that a query with FOR UPDATE or the like claims, while the binder
//! binds it.

use crate::error::{BindError, NO_PLACE, Result};
use crate::plan_parts::has_part;
use crate::statement::ClaimedTable;
use datafusion::common::DFSchema;
use datafusion::logical_expr::Expr;
use serac_parser::tree::{Distinct, Lock, Select};

/// The claims of a query, while it is bound.
pub(crate) struct Claims {
    pub(crate) locks: Vec<Lock>,
    /// The columns that tell rows, and the tables that these are of.
    pub(crate) tables: Vec<(Expr, ClaimedTable)>,
}

impl Claims {
    /// The columns that tell which rows are claimed, over the rows of FROM.
    pub(crate) fn rows(&self, schema: &DFSchema) -> Result<Vec<Expr>> {
        let row = |(row, _): &(Expr, ClaimedTable)| match row {
            Expr::Column(column) if schema.has_column(column) => Ok(row.clone()),
            _ => Err(BindError::unsupported("a claim of rows under the alias of a join", NO_PLACE)),
        };
        self.tables.iter().map(row).collect()
    }

    /// Refuses a SELECT whose rows are not rows of its tables; `exprs` has its items and sort keys.
    pub(crate) fn check(&self, select: &Select, is_grouped: bool, exprs: &[Expr]) -> Result<()> {
        let has = |is_such: fn(&Expr) -> bool| exprs.iter().any(|expr| has_part(expr, is_such));
        let refused = [
            (!matches!(select.distinct, Distinct::All), "DISTINCT clause"),
            (is_grouped, "GROUP BY clause"),
            (select.having.is_some(), "HAVING clause"),
            (has(|part| matches!(part, Expr::AggregateFunction(_))), "aggregate functions"),
            (has(|part| matches!(part, Expr::WindowFunction(_))), "window functions"),
            (has(|part| matches!(part, Expr::Unnest(_))), "set-returning functions in the target list"),
        ];
        match (self.locks.first(), refused.iter().find(|(is_there, _)| *is_there)) {
            (Some(lock), Some((_, with))) => Err(not_with(lock, with)),
            _ => Ok(()),
        }
    }
}

pub(crate) fn not_with(lock: &Lock, with: &str) -> BindError {
    BindError::without_place(
        sqlstate::FEATURE_NOT_SUPPORTED,
        format!("{} is not allowed with {with}", lock.strength.words()),
    )
}
