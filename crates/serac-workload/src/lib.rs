//! Benchmark workloads as data and text: their tables, queries and changes. This crate knows no
//! engine, so every engine under test gets the same workload.

pub mod analytics;
mod random;
pub mod tpcc;
pub mod tpch;
