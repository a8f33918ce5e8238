//! Window functions over many partitions at once.
//!
//! DataFusion's operators evaluate a window partition by partition, with a slice, an accumulator
//! and values of one row for each. With ten rows in a partition, that costs more than the sort
//! below. [`WindowExec`] takes the place of such an operator. Its rows come in the same order. It
//! computes each function over a chunk, which has the rows of many partitions:
//!
//! ```text
//! batches in order ─▶ pieces: values of keys and arguments, rows where partitions and peers begin
//!                  ─▶ chunk: whole partitions, or all rows that are there
//!                  ─▶ a column for each function ─▶ batches with these columns
//! ```
//!
//! | module | what it has |
//! |---|---|
//! | `plan` | what is computed: the functions that are known, their arguments and frames |
//! | `chunk` | pieces of the input, chunks, and the frame of each row |
//! | `stream` | which rows make a chunk, their memory, and the batches that go out |
//! | `exec` | the operator |
//! | `ranks`, `positions` | functions of a row's place, and values of other rows |
//! | `sums`, `extremes`, `groups` | aggregates over frames, and over whole partitions |
//!
//! **Chunks.** If all functions of an operator look back only (`rank`, a running sum), a chunk is
//! what has come, and each function keeps what it knows of the last partition. Functions that look
//! at rows nearby (`lag`, a frame of some rows) see the rows around the chunk as well. With any
//! other function a chunk has whole partitions: a large one is held in memory, which is counted.
//!
//! **Limits.** A function that is not known here leaves the operator to DataFusion. These are RANGE
//! and GROUPS with an offset, IGNORE NULLS, FILTER, and aggregates other than `count`, `sum`,
//! `avg`, `min` and `max` over a part of a partition.

mod chunk;
mod exec;
mod extremes;
mod groups;
mod plan;
mod positions;
mod ranks;
mod stream;
mod sums;

pub use exec::WindowExec;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

/// Puts the operator into plans. Comes after the rules that choose how windows get their rows.
#[derive(Debug)]
pub struct WindowChunks;

impl PhysicalOptimizerRule for WindowChunks {
    fn name(&self) -> &str {
        "window_chunks"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            Ok(match WindowExec::in_place_of(&node)? {
                Some(windows) => Transformed::yes(Arc::new(windows) as _),
                None => Transformed::no(node),
            })
        })
        .data()
    }
}
