//! DISTINCT aggregates by group. One binary: each one that links DataFusion takes long to build.

mod accumulators;
mod plans;
