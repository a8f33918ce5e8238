//! Rules of ours beside DataFusion's: those that make a plan give PostgreSQL's rows, and those that
//! make it faster. The pipeline of `serac-sql` (`pipeline/table.rs`) says in which order they work.
//!
//! | module | what it has |
//! |---|---|
//! | `common_types` | the common type of operands and of the branches of a union |
//! | `checked_arithmetic` | arithmetic that fails where its result does not fit |
//! | `in_lists`, `list_guards` | IN over more than constants; several lists about one value |
//! | `guarded_branches` | boolean CASE, AND and OR whose branches may fail |
//! | `null_safe` | comparisons for which NULL is equal to NULL |
//! | `float_zeros`, `float_cases` | -0 is 0 where floats are compared by their bits |
//! | `set_operations` | EXCEPT ALL and INTERSECT ALL |
//! | `unnest` | correlated subqueries as joins |
//! | `volatile_columns` | volatile functions in columns that nobody reads |
//! | `volatile_calls` | calls of volatile functions that are written alike |
//! | `grouping_sets`, `join_claims`, `branch_constants`, `true_keys`, `repeated_keys` | what DataFusion concludes without reason |
//! | `grouping_levels` | grouping sets from the states of finer ones |
//! | `computed_keys`, `window_keys` | orders that DataFusion does not see |
//! | `unknown` | an operator that states nothing about its rows |
//! | `given_orders`, `source_order`, `lost_requirements` | orders and distributions of rows that DataFusion does not keep |
//! | `filters`, `cross_joins`, `empty_branches` | DataFusion's `push_down_filter`, `eliminate_cross_join` and `propagate_empty_relation`, kept from what they would lose |
//! | `subquery_errors` | errors of subqueries whose values nobody reads |
//! | `date_comparisons` | dates compared with times, as dates |
//! | `shifted_sums` | many sums of one integer with constants added |
//! | `single_distinct` | no sums of sums that have another type |
//! | `estimate`, `join_order` | cardinalities by samples and statistics, and the order of joins |
//! | `outer_joins`, `join_modes` | outer joins that can be simpler ones; joins whose rows are not distributed |
//! | `text_predicates` | predicates on texts below joins |
//! | `asking` | the end of planning that nobody waits for |

mod asking;
mod branch_constants;
mod checked_arithmetic;
mod common_types;
mod computed_keys;
mod cross_joins;
mod date_comparisons;
mod empty_branches;
mod estimate;
mod filters;
mod float_cases;
mod float_zeros;
mod given_orders;
mod grouping_levels;
mod grouping_sets;
mod guarded_branches;
mod in_lists;
mod join_claims;
mod join_modes;
mod join_order;
mod list_guards;
mod lost_requirements;
mod null_safe;
mod outer_joins;
mod repeated_keys;
mod set_operations;
mod shifted_sums;
mod single_distinct;
mod source_order;
mod subquery_errors;
mod text_predicates;
mod true_keys;
mod unknown;
mod unnest;
mod volatile_calls;
mod volatile_columns;
mod window_keys;

pub use asking::{Analyzing, AskingAnalyzer, AskingPhysical, AskingRule, Optimizing, Physical};
pub use branch_constants::BranchConstants;
pub use checked_arithmetic::{CheckedArithmetic, checked, operator_of};
pub use common_types::{CommonTypes, with_common_types};
pub use computed_keys::ComputedKeys;
pub use cross_joins::CrossJoins;
pub use date_comparisons::DateComparisons;
pub use empty_branches::EmptyBranches;
pub use filters::Filters;
pub use float_cases::FloatCases;
pub use float_zeros::FloatZeros;
pub use given_orders::GivenOrders;
pub(crate) use grouping_levels::MERGED;
pub use grouping_levels::{GroupingLevels, GroupingLevelsExec, RoundLimits};
pub use grouping_sets::GroupingSets;
pub(crate) use guarded_branches::has_hazard;
pub use guarded_branches::{GuardedBranches, unguarded, with_guarded_branches};
pub use in_lists::{InLists, without_lists_of_expressions};
pub use join_claims::JoinClaims;
pub use join_modes::JoinModes;
pub use join_order::JoinOrder;
pub use lost_requirements::LostRequirements;
pub use null_safe::NullSafe;
pub use outer_joins::OuterJoins;
pub use repeated_keys::RepeatedKeys;
pub use set_operations::SetOperations;
pub use shifted_sums::ShiftedSums;
pub use single_distinct::SingleDistinct;
pub use source_order::SourceOrder;
pub use subquery_errors::SubqueryErrors;
pub use text_predicates::TextPredicates;
pub use true_keys::TrueKeys;
pub use unnest::Unnest;
pub(crate) use unnest::{is_repeatable, subquery_of};
pub use volatile_calls::VolatileCalls;
pub use volatile_columns::{Planner, VolatileColumns, has_volatile};
pub use window_keys::WindowKeys;
