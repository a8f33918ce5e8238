//! The pipeline: all passes over a statement from its text to the plan that runs, in order.
//!
//! ```text
//! text ──▶ tree ──▶ bind ──▶ analyzer ──▶ logical ──▶ physical ──▶ rows     queries and changes
//! text ──▶ tree ──▶ what runs the statement                                 other statements
//! ```
//! [`PASSES`](table::PASSES) is the one table of them. The rules of a session's DataFusion are made
//! from it ([`Rules`](rules::Rules)). The binder is named in it and called by [`crate::binding`].
//!
//! Optional passes only make a plan faster. A session can disable them (`switches`). The others
//! give PostgreSQL's results, check privileges, or make a plan that can run. `EXPLAIN (STEPS)`
//! shows the plan after each pass that changed it (`steps`), and the view `serac_passes` shows the
//! table ([`view`](rules::view)).
//!
//! Statements of the point path ([`crate::point`]) are compiled after the analyzer's passes, and
//! skip those behind them.

pub(crate) mod pass;
pub(crate) mod rules;
mod steps;
mod switches;
mod table;

pub(crate) use steps::steps_schema;
