//! Plans as texts.

use datafusion::logical_expr::LogicalPlan;
use serac_values::sql_terms::in_sql_terms;

/// A logical plan, an operator a line.
pub(crate) fn logical_text(plan: &LogicalPlan) -> String {
    in_sql_terms(&plan.display_indent().to_string())
}
