//! Planning with the tables' own statistics: cardinality estimates and the order of joins; predicates below joins; lists of IN;
//! correlated subqueries; arithmetic that does not wrap around.

mod asking;
mod checked_arithmetic;
mod common_types;
mod date_comparisons;
mod estimate;
mod filters;
mod float_cases;
mod float_zeros;
mod grouping_sets;
mod in_lists;
mod join_order;
mod list_guards;
mod lost_orders;
mod null_safe;
mod set_operations;
mod text_predicates;
mod typed;
mod unnest;

pub use asking::{AskingAnalyzer, AskingPhysical, AskingRule};
pub use checked_arithmetic::{CheckedArithmetic, check_floats, checked, float_error, operator_of};
pub use common_types::{CommonTypes, compared_type, with_common_types};
pub use date_comparisons::DateComparisons;
pub use filters::Filters;
pub use float_cases::FloatCases;
pub use float_zeros::FloatZeros;
pub use grouping_sets::GroupingSets;
pub use in_lists::{InLists, without_lists_of_expressions};
pub use join_order::JoinOrder;
pub use lost_orders::LostOrders;
pub use null_safe::NullSafe;
pub use set_operations::SetOperations;
pub use text_predicates::TextPredicates;
pub use typed::{has_part, rewrite_typed};
pub use unnest::Unnest;
