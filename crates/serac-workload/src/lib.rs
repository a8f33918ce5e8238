//! Benchmark workloads as data and text: what they load, what they ask, what they change. No engine
//! is known here, so that every engine under test is given the same.

pub mod tpcc;
pub mod tpch;
