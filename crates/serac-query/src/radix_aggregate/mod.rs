//! Aggregation by many groups, in buckets that fit into the cache.
//!
//! DataFusion groups rows in two steps: each thread groups its own rows, and the groups are
//! distributed and grouped again. With many groups, each row is looked for in a table that fits
//! into no cache, and most of them twice. Here one operator does both steps:
//!
//! ```text
//! Aggregate(FinalPartitioned, a, b)
//!   Repartition(a, b)                    becomes   RadixAggregate(a, b)
//!     Aggregate(Partial, a, b)
//! ```
//!
//! A thread groups its rows in a small table while that makes them many times fewer (`worker`).
//! Otherwise it deals them out into buckets by their hashes, with their keys packed into words
//! (`keys`). Each bucket has a table that all threads share (`table`, `groups`). It is worked on by
//! one thread at a time, with many rows at once. When the rows end, each partition of the plan
//! gives the groups of its buckets. Partitions have the rows that DataFusion's would have.
//!
//! Aggregates are DataFusion's and ours (`GroupsAccumulator`).
//!
//! **Memory.** Twice what rows and groups take is reserved. If that fails, the workers stop, and
//! DataFusion's operators go on, which write to disk: their input are the states of the groups so
//! far, and those of the rows that were not read.
//!
//! **Limits.** Keys are numbers, times and booleans of up to 128 bits together, and one text. Other
//! keys stay DataFusion's, as do grouping sets, aggregates with ORDER BY, rows that are in order,
//! and a DISTINCT with a limit. So do few rows, and groups that are known to be few.

mod exec;
mod groups;
mod keys;
mod plan;
mod table;
#[cfg(test)]
mod tests;
mod worker;

pub use exec::RadixAggregateExec;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

/// Puts the operator into plans. Comes after the rules that know DataFusion's aggregations.
#[derive(Debug)]
pub struct RadixAggregation;

impl PhysicalOptimizerRule for RadixAggregation {
    fn name(&self) -> &str {
        "radix_aggregation"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            Ok(match RadixAggregateExec::in_place_of(&node)? {
                Some(aggregate) => Transformed::yes(Arc::new(aggregate) as _),
                None => Transformed::no(node),
            })
        })
        .data()
    }
}
