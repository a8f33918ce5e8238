//! PostgreSQL's limits of what a clause may ask for, without which a short text is the work of
//! hours.

use crate::error::{Result, SqlError};
use crate::visits::visit;
use datafusion::sql::sqlparser::ast::{Expr, GroupByExpr, Query, Select, SetExpr, Statement, Visitor};
use std::ops::ControlFlow;

/// Columns of CUBE.
const MAX_CUBE: usize = 12;
/// Sets of columns by which rows are grouped.
const MAX_GROUPING_SETS: usize = 4_096;
/// Columns of a result.
pub(crate) const MAX_COLUMNS: usize = 1_664;

/// Too many columns of a result.
pub(crate) fn too_many_columns() -> SqlError {
    SqlError::new("54011", format!("target lists can have at most {MAX_COLUMNS} entries"))
}

fn check_select(select: &Select) -> Result<()> {
    if select.projection.len() > MAX_COLUMNS {
        return Err(too_many_columns());
    }
    let GroupByExpr::Expressions(groups, _) = &select.group_by else { return Ok(()) };
    let mut sets = 1usize;
    for group in groups {
        let count = match group {
            Expr::Cube(columns) if columns.len() > MAX_CUBE => {
                return Err(SqlError::new("54011", format!("CUBE is limited to {MAX_CUBE} elements")));
            }
            Expr::Cube(columns) => 1 << columns.len(),
            Expr::Rollup(columns) => columns.len() + 1,
            Expr::GroupingSets(sets) => sets.len(),
            _ => 1,
        };
        sets = sets.saturating_mul(count);
    }
    if sets > MAX_GROUPING_SETS {
        let message = format!("too many grouping sets present (maximum {MAX_GROUPING_SETS})");
        return Err(SqlError::new("54001", message));
    }
    Ok(())
}

/// Refuses clauses beyond their limits.
///
/// # Errors
/// 54011 and 54001.
pub(crate) fn check(statement: &Statement) -> Result<()> {
    struct Clauses;
    fn in_body(body: &SetExpr) -> ControlFlow<SqlError> {
        let mut body = body;
        loop {
            match body {
                SetExpr::Select(select) => match check_select(select) {
                    Ok(()) => return ControlFlow::Continue(()),
                    Err(error) => return ControlFlow::Break(error),
                },
                SetExpr::SetOperation { left, right, .. } => {
                    in_body(right)?;
                    body = left;
                }
                _ => return ControlFlow::Continue(()),
            }
        }
    }
    impl Visitor for Clauses {
        type Break = SqlError;
        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
            in_body(&query.body)
        }
    }
    match visit(statement, &mut Clauses) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}
