//! Sort keys that stand twice in an ORDER BY of an aggregate, or of DISTINCT ON, which becomes
//! aggregates: the second decides nothing. DataFusion drops it from the order, but still hands its
//! values to the accumulators, which then look for too many keys. Keys may also become the same
//! when they are simplified.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{Aggregate, Distinct, DistinctOn};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};
use serac_functions::rewrite_typed;

/// Drops sort keys that stand twice.
#[derive(Debug, Default)]
pub struct RepeatedKeys;

fn repeats(keys: &[Sort]) -> bool {
    (1..keys.len()).any(|at| keys[..at].iter().any(|key| key.expr == keys[at].expr))
}

fn each_once(keys: Vec<Sort>) -> Vec<Sort> {
    let mut once: Vec<Sort> = Vec::with_capacity(keys.len());
    for key in keys {
        if once.iter().all(|known| known.expr != key.expr) {
            once.push(key);
        }
    }
    once
}

fn has_repeated(expr: &Expr) -> bool {
    matches!(expr, Expr::AggregateFunction(function) if repeats(&function.params.order_by))
}

fn rewrite(expr: Expr, _: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::AggregateFunction(mut function) if repeats(&function.params.order_by) => {
            function.params.order_by = each_once(function.params.order_by);
            Transformed::yes(Expr::AggregateFunction(function))
        }
        expr => Transformed::no(expr),
    })
}

impl AnalyzerRule for RepeatedKeys {
    fn name(&self) -> &str {
        "repeated_keys"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Distinct(Distinct::On(DistinctOn {
                on_expr,
                sort_expr: Some(keys),
                select_expr,
                input,
                schema,
            })) if repeats(&keys) => {
                let on_expr = each_once(on_expr.into_iter().map(|on| on.sort(true, false)).collect());
                Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::On(DistinctOn {
                    on_expr: on_expr.into_iter().map(|on| on.expr).collect(),
                    sort_expr: Some(each_once(keys)),
                    select_expr,
                    input,
                    schema,
                }))))
            }
            plan => Ok(Transformed::no(plan)),
        })?;
        rewrite_typed(plan.data, has_repeated, rewrite)
    }
}

impl OptimizerRule for RepeatedKeys {
    fn name(&self) -> &str {
        "repeated_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Aggregate(Aggregate { input, group_expr, aggr_expr, schema, .. })
                if aggr_expr.iter().any(|call| call.exists(|part| Ok(has_repeated(part))).unwrap_or(true)) =>
            {
                let names = NamePreserver::new_for_projection();
                let calls = aggr_expr.into_iter().map(|call| {
                    let name = names.save(&call);
                    Ok(name.restore(call.transform_up(|part| rewrite(part, &schema)).data()?))
                });
                let calls = calls.collect::<Result<Vec<_>>>()?;
                let aggregate = Aggregate::try_new_with_schema(input, group_expr, calls, schema.clone())?;
                Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
            }
            other => Ok(Transformed::no(other)),
        }
    }
}
