//! A sort whose keys are packed into one number with the place of the row.
//!
//! DataFusion sorts each batch by itself, and merges as many streams as there are batches. Here,
//! numbers, times and booleans become places in their own range: a key whose values go from 1 to
//! 50,000 takes 16 bits. If the keys of a row and its place fit into 64 or 128 bits, rows are
//! sorted as numbers:
//!
//! ```text
//! | NULL? | key 1 - least | NULL? | key 2 - least | batch | row |
//! ```
//!
//! Numbers are divided by their first bits once all rows are there. Each part is sorted when its
//! rows go out, and rows are copied once. Equal rows keep their order.
//!
//! **Limits.** The rows must fit into memory, and their keys into 128 bits. If not, the rows that
//! are there and those that come are DataFusion's, which writes to disk. Texts, and a sort with a
//! LIMIT, are always DataFusion's.

mod exec;
mod keys;
mod sorted;

pub(crate) use exec::Given;
pub use exec::PackedSortExec;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

/// Puts the operator into plans. Comes after the rules that choose where rows are sorted.
#[derive(Debug)]
pub struct PackedSort;

impl PhysicalOptimizerRule for PackedSort {
    fn name(&self) -> &str {
        "packed_sort"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            Ok(match PackedSortExec::in_place_of(&node)? {
                Some(sort) => Transformed::yes(Arc::new(sort) as _),
                None => Transformed::no(node),
            })
        })
        .data()
    }
}
