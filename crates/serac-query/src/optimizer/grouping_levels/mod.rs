//! Grouping sets are aggregated level by level, and not each from all rows.
//!
//! DataFusion hashes each row once for each set of GROUP BY ROLLUP, CUBE and GROUPING SETS. Here
//! the first step of the aggregation groups rows once, by the keys of all sets together: the finest
//! level. [`GroupingLevelsExec`] makes the groups of each set from the states of a finer one, and
//! gives the rows that the first step gave, which the last step merges as before:
//!
//! ```text
//! Aggregate(Final, a, b, __grouping_id)          Aggregate(Final, a, b, __grouping_id)
//!   Repartition(a, b, __grouping_id)               Repartition(a, b, __grouping_id)
//!     Aggregate(Partial, ROLLUP (a, b))   becomes    GroupingLevels((a, b), (a), ())
//!                                                      Aggregate(Partial, a, b)
//! ```
//!
//! It is done if the states of all aggregates can be merged in any order, and more than once: a sum
//! of floats is then rounded otherwise, as it is by parallel plans. Aggregates with ORDER BY, those
//! that list values, and those of programs keep DataFusion's plan. So do sets of which none has the
//! keys of all, as in GROUPING SETS ((a), (b)), if (a, b) is expected to have many groups.

mod exec;
mod levels;
mod rounds;

pub use exec::GroupingLevelsExec;
pub use rounds::RoundLimits;

use self::levels::with_mode;
use crate::optimizer::unknown::Unknown;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::logical_expr::Volatility;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use std::sync::Arc;

/// Puts the operator into plans. Comes after the rules that choose the steps of an aggregation and
/// the order of its rows.
#[derive(Debug)]
pub struct GroupingLevels {
    /// How much the operators read at once.
    pub limits: RoundLimits,
    /// If no set has the keys of all: groups of the finest level, for each row, that are expected
    /// at the most. With more, its groups are not worth making.
    pub most_finest: f64,
}

impl Default for GroupingLevels {
    fn default() -> Self {
        Self { limits: RoundLimits::default(), most_finest: 0.5 }
    }
}

/// Aggregates whose results do not depend on the order of rows, nor on that in which states are
/// merged. Those that list values are not among them.
pub(crate) const MERGED: [&str; 33] = [
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "bool_and",
    "bool_or",
    "bit_and",
    "bit_or",
    "bit_xor",
    "var_samp",
    "var_pop",
    "stddev",
    "stddev_pop",
    "covar_samp",
    "covar_pop",
    "corr",
    "regr_slope",
    "regr_intercept",
    "regr_count",
    "regr_r2",
    "regr_avgx",
    "regr_avgy",
    "regr_sxx",
    "regr_syy",
    "regr_sxy",
    "numeric_sum",
    "numeric_avg",
    "numeric_var_samp",
    "numeric_var_pop",
    "numeric_stddev_samp",
    "numeric_stddev_pop",
    "shifted_sums",
];

/// Whether the states of an aggregate can be merged in any order, and more than once. An aggregate
/// that a program lends may have any name, but is volatile.
fn merges(aggregate: &AggregateFunctionExpr) -> bool {
    let function = aggregate.fun();
    MERGED.contains(&function.name())
        && function.signature().volatility == Volatility::Immutable
        && aggregate.order_bys().is_empty()
}

/// Whether the operator can take the place of the first step of an aggregation.
fn has_levels(first: &AggregateExec) -> bool {
    let by = first.group_expr();
    // DataFusion gives the number of a set a bit for each key, and says so if there are too many.
    by.has_grouping_set()
        && by.groups().len() > 1
        && (1..=64).contains(&by.expr().len())
        && first.limit_options().is_none()
        && first.aggr_expr().iter().all(|aggregate| merges(aggregate))
}

impl PhysicalOptimizerRule for GroupingLevels {
    fn name(&self) -> &str {
        "grouping_levels"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            // The operator states nothing about its rows itself.
            if node.is::<Unknown>() && node.children()[0].is::<GroupingLevelsExec>() {
                return Ok(Transformed::yes(node.children()[0].clone()));
            }
            let aggregate = node.downcast_ref::<AggregateExec>().filter(|aggregate| has_levels(aggregate));
            Ok(match aggregate.map(|aggregate| self.in_levels(aggregate)).transpose()?.flatten() {
                Some(other) => Transformed::yes(other),
                None => Transformed::no(node),
            })
        })
        .data()
    }
}

impl GroupingLevels {
    /// The aggregation in levels; `None` for a step that has no states to merge.
    fn in_levels(&self, aggregate: &AggregateExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        match aggregate.mode() {
            AggregateMode::Partial => {
                let levels = GroupingLevelsExec::new(aggregate, self.limits)?;
                Ok(self.is_worth(&levels, aggregate)?.then(|| Arc::new(levels) as _))
            }
            AggregateMode::Single => {
                let by = aggregate.group_expr();
                let first = with_mode(aggregate, AggregateMode::Partial, by.clone(), aggregate.input().clone())?;
                let levels = Arc::new(GroupingLevelsExec::new(&first, self.limits)?);
                if !self.is_worth(&levels, aggregate)? {
                    return Ok(None);
                }
                let last = with_mode(aggregate, AggregateMode::Final, by.as_final(), levels)?;
                Ok((last.schema() == aggregate.schema()).then(|| Arc::new(last) as _))
            }
            _ => Ok(None),
        }
    }

    /// Whether the finest level is one of the sets, or is expected to have few groups.
    fn is_worth(&self, levels: &GroupingLevelsExec, aggregate: &AggregateExec) -> Result<bool> {
        if levels.has_finest() {
            return Ok(true);
        }
        let statistics = StatisticsContext::new();
        let rows = |plan: &dyn ExecutionPlan| -> Result<Option<f64>> {
            let statistics = statistics.compute(plan, &StatisticsArgs::new())?;
            Ok(statistics.num_rows.get_value().map(|rows| *rows as f64))
        };
        let (groups, all) = (rows(levels.children()[0].as_ref())?, rows(aggregate.input().as_ref())?);
        Ok(groups.zip(all).is_none_or(|(groups, all)| groups <= all * self.most_finest))
    }
}
