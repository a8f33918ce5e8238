//! Tables as DataFusion's providers, and our parts of planning and running queries over them.
//!
//! | module | what it has |
//! |---|---|
//! | [`scan`] | tables in a snapshot, scans, lookups by key, bitmap indexes, aggregates of blocks, and the physical rules that bring them into plans |
//! | [`optimizer`] | rules of the analyzer and the optimizer: common types, checked arithmetic, subqueries, the order of joins |
//! | [`packed_sort`] | sorts whose keys are packed into numbers |
//! | [`radix_aggregate`] | aggregations by many groups, in buckets that fit into the cache |
//! | [`window`] | window functions over many partitions at once |
//! | [`deep`] | stacks for what is nested, and threads for planning |
//! | [`abandonable_join`] | joins and calls of functions that end when their rows are not wanted any more |
//! | [`shared`] | queries of WITH that a statement names several times and computes once |
//! | `spilling_join` | hash joins whose build side goes to files where it does not fit into the memory |
#![warn(missing_docs)]

pub mod abandonable_join;
mod allocations;
pub mod deep;
pub mod optimizer;
pub mod packed_sort;
pub mod radix_aggregate;
mod runtimes;
pub mod scan;
pub mod shared;
mod spilling_join;
pub mod window;

pub use allocations::CountingAllocator;
