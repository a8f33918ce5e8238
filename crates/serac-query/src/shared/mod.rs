//! Queries that a statement names several times and computes once: those of WITH, and views.
//!
//! ```text
//! binder              Shared ─ the query's plan, at each place where it is named
//! passes over these   shared_queries decides, by count and cost; with_queries puts a scan
//! logical plan        TableScan of a `SharedTable`, a leaf for all other passes
//! physical plan       SharedScanExec, and one SharedQueryExec for each query below WithExec
//! ```
//!
//! The binder puts `Shared` above the query's plan at each place. All of these have
//! the number of the query. [`settled`] takes it away where a query is named once. The analyzer
//! works through each copy. The pass [`SharedQueries`] decides which of the queries are computed
//! once. The others stand at each place as if they had been written there. [`WithQueries`] then
//! optimizes one copy, and puts a scan into the place of all. So filters and columns reach the scan
//! as they reach a table.
//!
//! The physical planner (`plan`) sees all scans of a query. It leaves out the columns that none
//! of them reads. If all of them have filters, the query's plan gets a filter that lets a row pass
//! if one of them does. Then the plan is optimized once more, so that the filter gets to the
//! tables.
//!
//! Rows are computed when the first reader asks for them, by tasks of their own (`exec`). They
//! are kept in a `buffer` until the statement ends. A reader takes rows as they come. No task waits
//! for a reader, so neither readers that stop early nor those that wait for each other matter. All
//! state belongs to a run of `WithExec` and is found in the context of its tasks.

mod buffer;
mod exec;
mod node;
mod pass;
mod plan;
mod sources;
mod table;

pub use exec::SharedScanExec;
pub(crate) use exec::{SharedQueryExec, WithExec};
pub(crate) use node::Shared;
pub use node::{Sharing, anew, settled, shared, volatile_queries};
pub use pass::{LogicalRules, SharedQueries, WithQueries};
pub(crate) use plan::planned;
pub use sources::with_sources;
pub(crate) use table::SharedTable;
