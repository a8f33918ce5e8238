//! Aggregates by group, of distinct values and of all. One binary: each one that links DataFusion
//! takes long to build.

mod accumulators;
mod families;
mod plans;
