//! Frames of the program in FROM: `SELECT … FROM df`.
//!
//! A program that embeds the database gives a session a
//! [`FrameProvider`](serac_files::FrameProvider). The binder asks it for a name that no table, view
//! or query of WITH has, when the name stands alone, without a schema. So the database comes first,
//! and a frame cannot hide a table.
//!
//! **When.** The provider is asked while a statement is planned, on a thread that plans. The thread
//! holds no lock, and may wait. It is asked once for each name of a statement, and again for the
//! next execution: a plan with a frame is not kept.
//!
//! **Limits.** A frame is read, and not changed. What the database keeps cannot name one: a view
//! would lose it with the session. The query of a view does not see the frames of whoever reads it.

use crate::error::{Result, SqlError};
use crate::lent::{is_lent, is_lent_aggregate};
use crate::session_env::SessionEnv;
use crate::styled_values::assigned_in_style;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, LogicalPlan, WindowFunctionDefinition};
use serac_files::{Assign, FrameTable};
use std::collections::HashSet;
use std::sync::Arc;

/// How values that come from the program become those of SQL, by the session's settings.
pub(crate) fn assignment(shared: &SessionEnv) -> Assign {
    let style = shared.styled_functions();
    Arc::new(move |values, sql_type, name| assigned_in_style(style.as_ref(), values, sql_type, name))
}

/// The session's frame of a name, as a relation.
///
/// # Errors
/// The provider's; 42701 for a frame with two columns of one name.
pub(crate) fn frame_table(shared: &SessionEnv, name: &str) -> Result<Option<FrameTable>> {
    let Some(provider) = shared.frames.get() else { return Ok(None) };
    let Some(frame) = provider.frame(name)? else { return Ok(None) };
    let (schema, mut names) = (frame.schema(), HashSet::new());
    if let Some(twice) = schema.fields().iter().find(|field| !names.insert(field.name())) {
        return Err(SqlError::column_twice(twice.name()));
    }
    Ok(Some(FrameTable::new(name, frame, assignment(shared))))
}

/// Refuses a plan that reads a frame, or calls a function, of the program, for what the database
/// keeps.
///
/// # Errors
/// 0A000.
pub(crate) fn refuse_lent(plan: &LogicalPlan, what: &str) -> Result<()> {
    let mut found = None;
    plan.apply_with_subqueries(|plan| {
        if let LogicalPlan::TableScan(scan) = plan
            && source_as_provider(&scan.source)?.is::<FrameTable>()
        {
            found = Some("a frame");
        }
        plan.apply_expressions(|expr| {
            expr.apply(|part| {
                let is_lent = match part {
                    Expr::ScalarFunction(call) => is_lent(&call.func),
                    Expr::AggregateFunction(call) => is_lent_aggregate(&call.func),
                    Expr::WindowFunction(call) => match &call.fun {
                        WindowFunctionDefinition::AggregateUDF(function) => is_lent_aggregate(function),
                        WindowFunctionDefinition::WindowUDF(_) => false,
                    },
                    _ => false,
                };
                if is_lent {
                    found = Some("a function");
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    match found {
        Some(lent) => Err(SqlError::unsupported(format!("{what} over {lent} of the program"))),
        None => Ok(()),
    }
}
