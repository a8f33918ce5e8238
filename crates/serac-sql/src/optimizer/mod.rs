//! Planning with the tables' own statistics: cardinality estimates and the order of joins; predicates below joins; lists of IN.

mod estimate;
mod in_lists;
mod join_order;
mod text_predicates;

pub use in_lists::{InLists, without_lists_of_expressions};
pub use join_order::JoinOrder;
pub use text_predicates::TextPredicates;
