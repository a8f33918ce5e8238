//! DataFusion's rule for one DISTINCT in aggregates groups twice: by the distinct values as well,
//! and then without them. A sum becomes the sum of sums. If that has more digits than the sum, the
//! operators above know it by the wrong type. Such aggregations are left as they are.

use super::Optimizing;
use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use std::sync::Arc;

/// The rule, but for sums whose sum has another type.
#[derive(Debug)]
pub struct SingleDistinct(Optimizing);

impl SingleDistinct {
    /// The rule that leaves these aggregations out.
    pub fn around(rule: Optimizing) -> Optimizing {
        Arc::new(Self(rule))
    }
}

/// Whether a sum of this aggregate's results has another type than they.
fn sum_is_wider(expr: &Expr, input: &LogicalPlan) -> Result<bool> {
    let Expr::AggregateFunction(call) = expr.clone().unalias() else { return Ok(false) };
    if call.func.name() != "sum" || call.params.distinct {
        return Ok(false);
    }
    let sum = Expr::AggregateFunction(call.clone()).get_type(input.schema())?;
    Ok(call.func.return_type(std::slice::from_ref(&sum))? != sum)
}

impl OptimizerRule for SingleDistinct {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Aggregate(aggregate) = &plan {
            for expr in &aggregate.aggr_expr {
                if sum_is_wider(expr, &aggregate.input)? {
                    return Ok(Transformed::no(plan));
                }
            }
        }
        self.0.rewrite(plan, config)
    }
}
