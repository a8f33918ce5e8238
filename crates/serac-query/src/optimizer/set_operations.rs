//! EXCEPT ALL and INTERSECT ALL, which count how often a row is there.
//!
//! DataFusion makes a semi or anti join of them: it keeps each row of the left side with a match on
//! the right, or each one without. So the copies of a row are numbered on both sides, and the
//! number becomes one more join column. EXCEPT ALL keeps the second 1 of the left side if there is
//! no second 1 on the right.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, JoinType, NullEquality, Result};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::logical_plan::{Distinct, Join};
use datafusion::logical_expr::{Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

/// Plans INTERSECT ALL and EXCEPT ALL over numbered copies. Comes after types are coerced, and
/// before the other joins for which NULL equals NULL are made.
#[derive(Debug)]
pub struct SetOperations;

/// The name of the number of a copy, which no column has.
const COPY: &str = "__serac_copy";

/// The plan with the number of each row among its equals.
fn numbered(plan: &LogicalPlan, row: Vec<Expr>, side: &str) -> Result<(LogicalPlan, Expr)> {
    let name = format!("{COPY}_{side}");
    let number = row_number().partition_by(row).build()?.alias(&name);
    let plan = LogicalPlanBuilder::from(plan.clone()).window(vec![number])?.build()?;
    Ok((plan, Expr::Column(Column::new_unqualified(name))))
}

fn counted(join: &Join) -> Result<LogicalPlan> {
    let (left, right): (Vec<Expr>, Vec<Expr>) = join.on.iter().cloned().unzip();
    let (left, left_number) = numbered(&join.left, left, "left")?;
    let (right, right_number) = numbered(&join.right, right, "right")?;
    let mut on = join.on.clone();
    on.push((left_number, right_number));
    let joined = Join { left: Arc::new(left), right: Arc::new(right), on, ..join.clone() };
    let joined = LogicalPlan::Join(joined).recompute_schema()?;
    let shown: Vec<Expr> = join.left.schema().columns().into_iter().map(Expr::Column).collect();
    LogicalPlanBuilder::from(joined).project(shown)?.build()
}

impl AnalyzerRule for SetOperations {
    fn name(&self) -> &str {
        "set_operations"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|plan| match &plan {
            // Without ALL the left side is made distinct; where it is that anyhow, each row is
            // there once.
            LogicalPlan::Join(join)
                if join.null_equality == NullEquality::NullEqualsNull
                    && matches!(join.join_type, JoinType::LeftAnti | JoinType::LeftSemi)
                    && !matches!(*join.left, LogicalPlan::Distinct(Distinct::All(_))) =>
            {
                Ok(Transformed::yes(counted(join)?))
            }
            _ => Ok(Transformed::no(plan)),
        });
        Ok(plan?.data)
    }
}
