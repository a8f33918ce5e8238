//! Planning with the tables' own statistics: cardinality estimates and the order of joins; and predicates below joins.

mod estimate;
mod join_order;
mod text_predicates;

pub use join_order::JoinOrder;
pub use text_predicates::TextPredicates;
