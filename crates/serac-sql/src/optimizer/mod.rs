//! Planning with the tables' own statistics: cardinality estimates and the order of joins.

mod estimate;
mod join_order;

pub use join_order::JoinOrder;
