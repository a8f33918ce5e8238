//! The functions that the program lends a session ([`crate::lent`]): their names, and calls of them
//! in statements.

use crate::error::{Result, SqlError};
use crate::files::reads_files;
use crate::frames::assignment;
use crate::lent::{CalledRows, CheckedBody, CheckedFunction, Still, aggregate_of, scalar_of};
use crate::limits::cancelled;
use crate::planner::{Names, computed, functions};
use crate::session_env::SessionEnv;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::execution::SessionState;
use datafusion::logical_expr::Expr;
use serac_binder::LentImplementation;
use serac_files::FrameTable;
use serac_pg::TypeId;
use serac_pg::functions::of_name;
use std::sync::Arc;

/// Whether the session's running statement still runs.
fn still(shared: &Arc<SessionEnv>) -> Still {
    // Weak: the functions of a plan that is kept do not keep the session.
    let shared = Arc::downgrade(shared);
    Arc::new(move || match shared.upgrade() {
        Some(shared) => shared.check_running(),
        None => Err(cancelled()),
    })
}

/// A function of the session by its name. A name in small letters also finds the only one that
/// differs from it in capital letters.
pub(crate) fn lent_function(shared: &SessionEnv, name: &str) -> Option<Arc<CheckedFunction>> {
    let lent = shared.lent_functions.read();
    if let Some(function) = lent.get(name) {
        return Some(function.clone());
    }
    if lent.is_empty() || name != name.to_lowercase() {
        return None;
    }
    let mut alike = lent.values().filter(|function| function.name.to_lowercase() == name);
    alike.next().filter(|_| alike.next().is_none()).cloned()
}

/// What computes a function in a statement.
pub(crate) fn implementation(shared: &Arc<SessionEnv>, function: &Arc<CheckedFunction>) -> LentImplementation {
    let (assign, still) = (assignment(shared), still(shared));
    match &function.body {
        CheckedBody::Scalar { .. } => scalar_of(function, assign, still).map(LentImplementation::Scalar),
        CheckedBody::Aggregate { .. } => aggregate_of(function, assign, still).map(LentImplementation::Aggregate),
        CheckedBody::Table { .. } => None,
    }
    .unwrap_or(LentImplementation::Rows)
}

/// The rows of a function in FROM. `values`: those of the statement's parameters, as far as they
/// are given.
///
/// # Errors
/// 0A000 for arguments that are no constants.
pub(crate) fn rows(
    state: &SessionState,
    shared: &Arc<SessionEnv>,
    function: &Arc<CheckedFunction>,
    arguments: &[Expr],
    values: Option<&[ScalarValue]>,
) -> Result<FrameTable> {
    let assign = assignment(shared);
    let name = &function.name;
    let mut constants = Some(Vec::with_capacity(arguments.len()));
    for (argument, of) in arguments.iter().zip(&function.parameter_types) {
        let mut lacks_value = false;
        let known = argument.clone().transform(|part| {
            let Expr::Placeholder(parameter) = &part else { return Ok(Transformed::no(part)) };
            let number = parameter.id.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
            let value = values.zip(number).and_then(|(values, number)| values.get(number.checked_sub(1)?));
            match value {
                Some(value) => Ok(Transformed::yes(Expr::Literal(value.clone(), None))),
                None => {
                    lacks_value = true;
                    Ok(Transformed::no(part))
                }
            }
        });
        let known = known.data()?;
        if lacks_value {
            constants = None;
            break;
        }
        let given = match computed(state, vec![known])?.pop() {
            Some(Expr::Literal(value, _)) => value,
            _ => {
                let message = format!("the arguments of function {name} in FROM must be constants");
                return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message).named(name));
            }
        };
        // Numbers have their form already.
        let value = match given {
            ScalarValue::LargeBinary(_) => given,
            given => ScalarValue::try_from_array(&of.values(&given.to_array()?, name, &assign)?, 0)?,
        };
        constants.iter_mut().for_each(|constants| constants.push(value.clone()));
    }
    let no_rows = || SqlError::new(sqlstate::INTERNAL_ERROR, format!("function {name} gives no rows"));
    let called = CalledRows::new(function, constants, still(shared)).ok_or_else(no_rows)?;
    let types = called.types();
    Ok(FrameTable::of_types(name, Arc::new(called), types, assign))
}

/// Whether a name in a call means something else than a lent function.
pub(crate) fn is_taken(state: &SessionState, name: &str) -> bool {
    let names = Names::new(state);
    !of_name(name).is_empty()
        || TypeId::by_name(name).is_some()
        || reads_files(name)
        || names.scalar(name).is_some()
        || names.aggregate(name).is_some()
        || names.window(name).is_some()
        || functions(state).is_table_function(name)
}
