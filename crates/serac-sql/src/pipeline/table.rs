//! The table of all passes; see the module above.

use crate::binding::BIND;
use crate::foreign::table::summarized;
use crate::pipeline::pass::Origin::{Around, DataFusion, Ours};
use crate::pipeline::pass::{Origin, Pass, Stage, Work};
use serac_functions::{Accounts, Casts, ConstantErrors, LongTexts, Patterns, SmallConstants, StrictNulls, UuidTypes};
use serac_query::optimizer::{
    Analyzing, BranchConstants, CheckedArithmetic, CommonTypes, ComputedKeys, CrossJoins, DateComparisons,
    EmptyBranches, Filters, FloatCases, FloatZeros, GivenOrders, GroupingLevels, GroupingSets, GuardedBranches,
    InLists, JoinClaims, JoinModes, JoinOrder, LostRequirements, NullSafe, Optimizing, OuterJoins, Physical,
    RepeatedKeys, SetOperations, ShiftedSums, SingleDistinct, SourceOrder, SubqueryErrors, TextPredicates, Unnest,
    VolatileCalls, VolatileColumns, WindowKeys,
};
use serac_query::packed_sort::PackedSort;
use serac_query::radix_aggregate::RadixAggregation;
use serac_query::scan::{BitmapAggregation, BitmapCounts, BitmapJoin, BlockAggregation, ByNames, KeyFilterPushdown};
use serac_query::shared::{SharedQueries, WithQueries};
use serac_query::window::WindowChunks;
use serac_remote::RemoteSummaries;
use std::sync::Arc;

const fn elsewhere(stage: Stage, name: &'static str, description: &'static str) -> Pass {
    Pass { name, is_optional: false, description, work: Work::Elsewhere(stage) }
}
const fn analyzer(name: &'static str, origin: Origin<Analyzing>, description: &'static str) -> Pass {
    Pass { name, is_optional: false, description, work: Work::Analyzer(origin) }
}
const fn logical(name: &'static str, origin: Origin<Optimizing>, description: &'static str) -> Pass {
    Pass { name, is_optional: false, description, work: Work::Logical(origin) }
}
const fn physical(name: &'static str, origin: Origin<Physical>, description: &'static str) -> Pass {
    Pass { name, is_optional: false, description, work: Work::Physical(origin) }
}
/// A pass without which results are the same.
const fn optional(pass: Pass) -> Pass {
    Pass { is_optional: true, ..pass }
}

/// The pass that optimizes the queries of WITH by the other rules.
pub(super) const WITH_QUERIES: &str = "with_queries";

/// All passes, in the order in which they work. The passes of the logical stage repeat while they
/// change the plan, at most `datafusion.optimizer.max_passes` times.
#[rustfmt::skip]
pub(super) static PASSES: &[Pass] = &[
    // From the parser's tree to a logical plan.
    elsewhere(Stage::Planner, BIND, "Makes a logical plan of a query or a change by PostgreSQL's rules, or refuses it."),

    // Logical plans: their meaning.
    analyzer("uuid_types", Ours(|_| Arc::new(UuidTypes)), "Gives UUIDs in IN, BETWEEN and casts to text their type."),
    analyzer("long_texts", Ours(|_| Arc::new(LongTexts)), "Makes views of long constant texts, which the rows of a batch share."),
    analyzer("common_types", Ours(|_| Arc::new(CommonTypes)), "Casts operands of several types to the one that PostgreSQL gives them."),
    analyzer("resolve_grouping_function", DataFusion, "Computes GROUPING() from the number of the grouping set."),
    analyzer("type_coercion", DataFusion, "Casts the operands and arguments whose types do not fit."),
    analyzer("set_operations", Ours(|_| Arc::new(SetOperations)), "Numbers the copies of rows for EXCEPT ALL and INTERSECT ALL."),
    analyzer("given_orders", Ours(|_| Arc::new(GivenOrders::default())), "Gives aggregates and windows over a sorted subquery its order."),
    optional(analyzer("shared_queries", Ours(|_| Arc::new(SharedQueries)), "Finds queries of WITH and views that are named several times and take longer than to keep their rows.")),
    analyzer("repeated_keys", Ours(|_| Arc::new(RepeatedKeys)), "Drops sort keys of aggregates that stand twice, which accumulators would take for more."),
    analyzer("casts", Ours(|_| Arc::new(Casts)), "Makes functions of the casts that mean something else in DataFusion."),
    analyzer("patterns", Ours(|_| Arc::new(Patterns)), "Puts PostgreSQL's regular expressions in the words of those that are run."),
    analyzer("in_lists", Ours(|_| Arc::new(InLists)), "Leaves nothing but constants in lists of IN, which the simplifier takes for sets."),
    analyzer("null_safe", Ours(|_| Arc::new(NullSafe)), "Compares with IS NOT DISTINCT FROM by values that are never NULL."),
    analyzer("float_cases", Ours(|_| Arc::new(FloatCases)), "Lets 0 and -0 be equal in CASE x WHEN and IN."),
    analyzer("unnest", Ours(|_| Arc::new(Unnest::default())), "Makes joins of correlated subqueries for which DataFusion has no rule."),
    analyzer("volatile_columns", Ours(|_| Arc::new(VolatileColumns)), "Keeps columns with volatile functions that nobody reads."),
    analyzer("volatile_calls", Ours(|_| Arc::new(VolatileCalls)), "Gives each call of a volatile function an identity, by which it is neither another nor a constant."),
    analyzer("checked_arithmetic", Ours(|_| Arc::new(CheckedArithmetic)), "Lets arithmetic fail where its result does not fit."),
    analyzer("strict_nulls", Ours(|_| Arc::new(StrictNulls)), "Puts NULL in the place of strict calls of NULL, so that their other arguments are not computed."),
    analyzer("guarded_branches", Ours(|_| Arc::new(GuardedBranches)), "Evaluates branches of boolean CASE, and right sides of AND and OR, that may fail for no other rows than theirs."),
    analyzer("accounts", Ours(|resources| Arc::new(Accounts(resources.work_memory.clone()))), "Counts the memory of functions whose results may be large."),
    analyzer("computed_keys", Ours(|_| Arc::new(ComputedKeys)), "Computes keys with functions below the windows and aggregates that sort by them, where DataFusion sees the order."),

    // Logical plans: how they are computed. Three rules of DataFusion's list are left out:
    // `optimize_unions`, `extract_leaf_expressions` and `push_down_leaf_projections`. They read a
    // field of a row below a projection that gives another column its name.
    logical(WITH_QUERIES, Ours(|resources| Arc::new(WithQueries::new(resources.logical_rules.clone()))), "Puts scans of their rows in the places of queries of WITH that are computed once."),
    logical("constant_errors", Ours(|_| Arc::new(ConstantErrors)), "Finds the errors of constants, for which no row needs to ask."),
    logical("rewrite_set_comparison", DataFusion, "Makes EXISTS of ANY and ALL over subqueries."),
    optional(logical("unions_to_filter", DataFusion, "Makes one filter of a union of filters over one input.")),
    logical("simplify_expressions", Ours(|_| Arc::new(SmallConstants::default())), "Computes constants, now() among them, and simplifies expressions, some functions into others that can run."),
    logical("float_cases", Ours(|_| Arc::new(FloatCases)), "Lets 0 and -0 be equal in lists that have been made of equalities."),
    logical("strict_nulls", Ours(|_| Arc::new(StrictNulls)), "Puts NULL in the place of strict calls of what has become NULL."),
    optional(logical("date_comparisons", Ours(|_| Arc::new(DateComparisons)), "Compares dates with dates in the place of times, so that indexes and zone maps serve.")),
    optional(logical("shifted_sums", Ours(|_| Arc::new(ShiftedSums)), "Computes many sums of one integer with constants added from one sum.")),
    logical("replace_distinct_aggregate", DataFusion, "Makes aggregations of DISTINCT, which has no operator."),
    optional(logical("eliminate_join", DataFusion, "Drops joins that give nothing, or nothing more than one of their sides.")),
    logical("decorrelate_predicate_subquery", DataFusion, "Makes joins of IN and EXISTS over subqueries."),
    logical("scalar_subquery_to_join", DataFusion, "Makes joins of correlated subqueries that give one value."),
    logical("decorrelate_lateral_join", DataFusion, "Makes ordinary joins of lateral ones."),
    logical("extract_equijoin_predicate", DataFusion, "Makes keys of the equalities in a join's condition, without which NOT IN takes NULL for a value like others."),
    optional(logical("eliminate_duplicated_expr", DataFusion, "Drops sort keys and groups that stand twice.")),
    logical("eliminate_filter", DataFusion, "Drops filters that are true, and what stands below false ones: subqueries of one value do not expect that nothing comes."),
    optional(logical("eliminate_cross_join", Ours(|_| Arc::new(CrossJoins::default())), "Makes joins of cross joins and the conditions above them.")),
    optional(logical("eliminate_limit", DataFusion, "Drops limits that take nothing away, and what stands below those that leave nothing.")),
    logical("propagate_empty_relation", Ours(|_| Arc::new(EmptyBranches::default())), "Drops operators over relations that are known to be empty, so that a subquery of one value is NULL there."),
    optional(logical("filter_null_join_keys", DataFusion, "Filters NULLs from the keys of joins.")),
    optional(logical("eliminate_outer_join", DataFusion, "Makes inner joins of outer joins whose added rows a filter drops.")),
    optional(logical("outer_joins", Ours(|_| Arc::new(OuterJoins)), "Makes inner joins and anti-joins of outer joins whose added rows, or other rows, joins and filters above drop.")),
    logical("push_down_limit", DataFusion, "Brings limits down to what they limit, so that the order below them is kept."),
    logical("push_down_filter", Ours(|_| Arc::new(Filters::default())), "Brings filters down to the tables whose columns they name, in a form that does not tell 0 from -0."),
    logical("single_distinct_aggregation_to_group_by", Around(SingleDistinct::around), "Makes a second grouping of a DISTINCT in aggregates, in which 0 and -0 are one value."),
    optional(logical("eliminate_group_by_constant", DataFusion, "Drops constants from groups.")),
    optional(logical("common_sub_expression_eliminate", DataFusion, "Computes what stands twice in an operator once.")),
    optional(logical("text_predicates", Ours(|_| Arc::new(TextPredicates)), "Tests predicates on texts below joins that would carry the texts for nothing else.")),
    optional(logical("join_order", Ours(|_| Arc::new(JoinOrder)), "Puts joins in the order that estimates find cheapest, once filters have reached the tables.")),
    logical("optimize_projections", DataFusion, "Reads only the columns that are needed, which alone need privileges."),
    logical("repeated_keys", Ours(|_| Arc::new(RepeatedKeys)), "Drops sort keys of aggregates that have become the same."),
    logical("float_zeros", Ours(|_| Arc::new(FloatZeros)), "Makes 0 of -0 where DataFusion orders or joins floats by their bits."),

    // Physical plans.
    elsewhere(Stage::Physical, "physical_planner", "Makes operators of the logical plan."),
    physical("grouping_sets", Ours(|_| Arc::new(GroupingSets)), "Keeps DataFusion from false conclusions about rows of several grouping sets."),
    physical("OutputRequirements", DataFusion, "Marks the order that the result must have, so that no rule loses it."),
    optional(physical("aggregate_statistics", DataFusion, "Takes counts, minima and maxima from exact statistics.")),
    physical("join_selection", DataFusion, "Chooses how a join runs, and which side is built."),
    optional(physical("join_modes", Ours(|_| Arc::new(JoinModes)), "Lets one thread build a join's hash table where distributing the rows costs more.")),
    optional(physical("LimitedDistinctAggregation", DataFusion, "Ends a DISTINCT once it has as many rows as its limit.")),
    optional(physical("FilterPushdown", Around(ByNames::around), "Hands filters down to the scans.")),
    optional(physical("WindowTopN", DataFusion, "Keeps the first rows of each partition of a window alone.")),
    physical("join_claims", Ours(|_| Arc::new(JoinClaims)), "Keeps joins from false conclusions about the order of their rows."),
    physical("branch_constants", Ours(|_| Arc::new(BranchConstants)), "Keeps the constants of a union's branches among the keys by which it is sorted."),
    physical("window_keys", Ours(|_| Arc::new(WindowKeys)), "Lets windows see that their rows are in order where columns are equal."),
    physical("EnsureRequirements", DataFusion, "Sorts and distributes rows as operators need them."),
    physical("source_order", Ours(|_| Arc::new(SourceOrder)), "Keeps the order of a single stream of rows."),
    optional(physical("CombinePartialFinalAggregate", DataFusion, "Makes one aggregation of two steps between which nothing is distributed.")),
    optional(physical("OptimizeAggregateOrder", DataFusion, "Uses the order that rows have for aggregates that want one.")),
    optional(physical("ProjectionPushdown", DataFusion, "Brings projections down into the operators below.")),
    physical("OutputRequirements", DataFusion, "Takes the mark away."),
    optional(physical("LimitAggregation", DataFusion, "Limits the groups of an aggregation to those that a sort with a limit keeps.")),
    optional(physical("LimitPushPastWindows", DataFusion, "Brings limits down below windows.")),
    optional(physical("HashJoinBuffering", DataFusion, "Reads the probe side of a join ahead while its other side is built.")),
    optional(physical("LimitPushdown", DataFusion, "Brings limits down into the operators below.")),
    optional(physical("TopKRepartition", DataFusion, "Keeps the first rows of a sort with a limit before rows are distributed.")),
    optional(physical("ProjectionPushdown", DataFusion, "Brings projections down once more, past what has been put in.")),
    optional(physical("PushdownSort", DataFusion, "Hands sorts down to sources that give rows in order.")),
    optional(physical("grouping_levels", Ours(|_| Arc::new(GroupingLevels::default())), "Makes the groups of grouping sets from the states of finer sets, and not each from all rows.")),
    optional(physical("window_chunks", Ours(|_| Arc::new(WindowChunks)), "Computes window functions over many partitions at once, and not each by itself.")),
    physical("EnsureCooperative", DataFusion, "Lets operators give their thread back, so that a query can be cancelled."),
    optional(physical("FilterPushdown(Post)", Around(ByNames::around), "Hands the filters down that joins and sorts find while they run.")),
    physical("lost_requirements", Ours(|_| Arc::new(LostRequirements)), "Sorts and distributes rows where rules have lost that."),
    physical("SanityCheckPlan", DataFusion, "Refuses plans whose operators do not get the order that they need."),
    physical("subquery_errors", Ours(|resources| Arc::new(SubqueryErrors(resources.work_memory.clone()))), "Lets a subquery that gives one value fail where the value is read, as in a branch of CASE, and not before."),
    optional(physical("remote_summaries", Ours(|_| Arc::new(RemoteSummaries::of_scans(summarized))), "Lets servers of foreign tables compute aggregates and first rows.")),
    optional(physical("bitmap_join", Ours(|_| Arc::new(BitmapJoin)), "Answers semi- and anti-joins with few keys from bitmap indexes.")),
    optional(physical("key_filter_pushdown", Ours(|_| Arc::new(KeyFilterPushdown)), "Tells the scans of a join's probe side which keys the other side has.")),
    optional(physical("bitmap_counts", Ours(|_| Arc::new(BitmapCounts)), "Counts from bitmap indexes alone.")),
    optional(physical("block_aggregation", Ours(|resources| Arc::new(BlockAggregation { memory: resources.work_memory.clone() })), "Aggregates numbers on the blocks, without batches.")),
    optional(physical("bitmap_aggregation", Ours(|_| Arc::new(BitmapAggregation)), "Groups by columns with bitmap indexes without reading them.")),
    optional(physical("radix_aggregation", Ours(|_| Arc::new(RadixAggregation)), "Groups by many groups in buckets that fit into the cache.")),
    optional(physical("packed_sort", Ours(|_| Arc::new(PackedSort)), "Sorts numbers and times as numbers that hold the keys and the place of a row.")),
];
