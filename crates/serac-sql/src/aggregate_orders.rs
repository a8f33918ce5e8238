//! ORDER BY in the arguments of aggregates to whose result the order of the rows is nothing: `avg(f ORDER BY x)`.
//!
//! DataFusion hands the expressions of such an order to the accumulators as further arguments, of which these want one.

use crate::identifiers::fold;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArgumentClause, FunctionArguments, Statement, visit_expressions_mut,
};
use std::ops::ControlFlow;

/// The aggregates.
const WITHOUT_ORDER: [&str; 18] = [
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "count",
    "every",
    "max",
    "median",
    "min",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "var_pop",
    "var_samp",
    "variance",
];

fn has_no_order(function: &Function) -> bool {
    let name = function.name.0.last().and_then(|part| part.as_ident()).map(fold);
    function.over.is_none() && name.is_some_and(|name| WITHOUT_ORDER.contains(&name.as_str()))
}

/// Takes such orders out of a statement.
pub(crate) fn drop_orders(statement: &mut Statement) {
    let _ = visit_expressions_mut(statement, |expr| {
        if let Expr::Function(function) = expr
            && has_no_order(function)
            && let FunctionArguments::List(arguments) = &mut function.args
        {
            arguments.clauses.retain(|clause| !matches!(clause, FunctionArgumentClause::OrderBy(_)));
        }
        ControlFlow::<()>::Continue(())
    });
}
