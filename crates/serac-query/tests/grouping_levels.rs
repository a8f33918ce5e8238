//! Random grouping sets in levels give what DataFusion's aggregation of all rows gives.

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SessionState, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::expr::{AggregateFunction, GroupingSet};
use datafusion::logical_expr::{AggregateUDF, Expr, LogicalPlanBuilder};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, col, lit};
use rand::Rng;
use rand::rngs::StdRng;
use serac_query::optimizer::{GroupingLevels, GroupingLevelsExec, RoundLimits};
use std::sync::Arc;

const KEYS: [&str; 4] = ["a", "b", "c", "d"];

/// RoundLimits that make a round of a few batches.
const SMALL: RoundLimits = RoundLimits { first_rows: 40, rows: 100, bytes: 1 << 20, least_seen: 20, few_rows: 0 };

/// Each set from its parent, however few rows this has.
const NEVER_FEW: RoundLimits =
    RoundLimits { first_rows: 1 << 17, rows: 1 << 20, bytes: 64 << 20, least_seen: 1 << 15, few_rows: 0 };

fn state(partitions: usize, memory: Option<usize>) -> SessionState {
    let mut runtime = RuntimeEnvBuilder::new();
    if let Some(memory) = memory {
        runtime = runtime.with_memory_pool(Arc::new(FairSpillPool::new(memory)));
    }
    let config = SessionConfig::new().with_target_partitions(partitions).with_batch_size(16);
    SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(Arc::new(runtime.build().unwrap()))
        .with_default_features()
        .build()
}

/// A column of random numbers from 1, with NULL among them.
fn numbers(rng: &mut StdRng, rows: usize, most: i64) -> Vec<Option<i64>> {
    (0..rows).map(|_| Some(rng.random_range(0..=most)).filter(|number| *number > 0)).collect()
}

/// Rows with keys a to d, each with NULL and so many values, and a number v. Each partition has so
/// many rows, in batches of 16.
fn rows(rng: &mut StdRng, partitions: usize, rows: usize, values: [i64; 4]) -> Arc<MemTable> {
    let batch = |rng: &mut StdRng| {
        let mut number = |most| Arc::new(Int64Array::from(numbers(rng, 16, most))) as ArrayRef;
        let [a, b, c, d] = values;
        let (a, c, d, v) = (number(a), number(c), number(d), number(100));
        let b = numbers(rng, 16, b).into_iter().map(|key| key.map(|key| format!("text {key}")));
        let b = Arc::new(b.collect::<StringViewArray>()) as ArrayRef;
        let columns = [("a", a), ("b", b), ("c", c), ("d", d), ("v", v)];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
    };
    let schema = batch(rng).schema();
    let partitions = (0..partitions).map(|_| (0..rows / 16).map(|_| batch(rng)).collect()).collect();
    Arc::new(MemTable::try_new(schema, partitions).unwrap())
}

fn aggregates(rng: &mut StdRng) -> Vec<Expr> {
    let ours: [AggregateUDF; 7] = serac_functions::aggregates();
    let named = |name: &str| ours.iter().find(|function| function.name() == name).unwrap().clone();
    let sum = Arc::new(serac_functions::sliding(Arc::new(named("sum"))));
    let builtin = datafusion::functions_aggregate::all_default_aggregate_functions();
    let builtin = |name: &str| builtin.iter().find(|function| function.name() == name).unwrap().clone();
    let call = |function: Arc<AggregateUDF>, of: Expr, distinct: bool, filter: Option<Expr>, name: &str| {
        let filter = filter.map(Box::new);
        Expr::AggregateFunction(AggregateFunction::new_udf(function, vec![of], distinct, filter, Vec::new(), None))
            .alias(name)
    };
    let all = [
        call(builtin("count"), lit(1), false, None, "rows"),
        call(builtin("count"), col("v"), false, Some(col("c").gt(lit(1))), "filtered"),
        call(sum, col("v"), false, None, "sum"),
        call(builtin("min"), col("b"), false, None, "min"),
        call(builtin("max"), col("v"), false, Some(col("v").lt(lit(50))), "max"),
        call(builtin("count"), col("v"), true, None, "distinct"),
        call(builtin("bit_xor"), col("v"), false, None, "xor"),
    ];
    all.into_iter().filter(|_| rng.random_bool(0.5)).collect()
}

/// ROLLUP, CUBE, or any sets, some of them twice.
fn sets(rng: &mut StdRng) -> Expr {
    let keys = |keys: &[&str]| keys.iter().map(|key| col(*key)).collect::<Vec<_>>();
    let some = rng.random_range(1..=KEYS.len());
    Expr::GroupingSet(match rng.random_range(0..3) {
        0 => GroupingSet::Rollup(keys(&KEYS[..some])),
        1 => GroupingSet::Cube(keys(&KEYS[..some])),
        _ => {
            let set = |rng: &mut StdRng| KEYS.into_iter().filter(|_| rng.random_bool(0.5)).collect::<Vec<_>>();
            let mut sets: Vec<Vec<&str>> = (0..rng.random_range(1..6)).map(|_| set(rng)).collect();
            sets.push(sets[0].clone());
            GroupingSet::GroupingSets(sets.iter().map(|set| keys(set)).collect())
        }
    })
}

/// Rows in order, as texts.
async fn result(plan: Arc<dyn ExecutionPlan>, state: &SessionState) -> Vec<String> {
    let batches = collect(plan, Arc::new(TaskContext::from(state))).await.unwrap();
    let drawn = pretty_format_batches(&batches).unwrap().to_string();
    let mut rows: Vec<String> = drawn.lines().skip(3).map(str::to_owned).collect();
    rows.sort_unstable();
    rows
}

/// The sum of a count of the operators of a plan; `None` if it has no such operator.
fn counted(plan: &Arc<dyn ExecutionPlan>, name: &str) -> Option<usize> {
    let mut found = None;
    plan.apply(|node| {
        if node.is::<GroupingLevelsExec>() {
            let counted = node.metrics().as_ref().and_then(|metrics: &MetricsSet| metrics.sum_by_name(name));
            found = Some(found.unwrap_or(0) + counted.map_or(0, |value| value.as_usize()));
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .unwrap();
    found
}

/// The plans of DataFusion and of the rule.
async fn plans(
    state: &SessionState,
    table: Arc<MemTable>,
    (sets, aggregates): (Expr, Vec<Expr>),
    limits: RoundLimits,
) -> (Arc<dyn ExecutionPlan>, Arc<dyn ExecutionPlan>) {
    let scan = LogicalPlanBuilder::scan("t", provider_as_source(table), None).unwrap();
    let query = scan.aggregate([sets], aggregates).unwrap().build().unwrap();
    let usual = state.create_physical_plan(&query).await.unwrap();
    let levels =
        GroupingLevels { limits, most_finest: f64::MAX }.optimize(usual.clone(), state.config_options()).unwrap();
    (usual, levels)
}

#[tokio::test]
async fn levels_give_the_groups_of_all_rows() {
    let mut rng = serac_testing::rng();
    let (mut in_levels, mut merged, mut passed, mut rounds) = (0, 0, 0, 0);
    for _ in 0..100 {
        let partitions = rng.random_range(1..=3);
        let state = state(partitions, None);
        let values = std::array::from_fn(|_| if rng.random_bool(0.2) { 10_000 } else { rng.random_range(0..6) });
        let count = [0, 16, 64, 400][rng.random_range(0..4)];
        let table = rows(&mut rng, partitions, count, values);
        let query = (sets(&mut rng), aggregates(&mut rng));
        let limits = if rng.random_bool(0.7) { SMALL } else { RoundLimits::default() };
        let shown = format!("{query:?} of {count} rows in {partitions} partitions, {values:?}");
        let (usual, levels) = plans(&state, table, query, limits).await;
        assert_eq!(usual.schema(), levels.schema(), "{shown}");
        assert_eq!(result(usual, &state).await, result(levels.clone(), &state).await, "{shown}");
        in_levels += counted(&levels, "rounds").map_or(0, |_| 1);
        merged += counted(&levels, "merged_rows").unwrap_or(0);
        passed += counted(&levels, "passed_rows").unwrap_or(0);
        rounds += counted(&levels, "rounds").unwrap_or(0);
    }
    println!("{in_levels} queries in levels, {rounds} rounds, {merged} rows merged, {passed} passed on");
    assert!(in_levels > 75 && merged > 5_000 && passed > 500 && rounds > 100);
}

/// A coarser set is made from the smallest of those that contain it, not from all rows.
#[tokio::test]
async fn a_parent_is_the_smallest_set() {
    let mut rng = serac_testing::rng();
    let state = state(1, None);
    // (a, c) has 63 groups, (a, b) has 9.
    let table = rows(&mut rng, 1, 16_000, [2, 2, 20, 1]);
    let set = |keys: &[&str]| keys.iter().map(|key| col(*key)).collect::<Vec<_>>();
    let sets = GroupingSet::GroupingSets(vec![set(&["a", "b", "c"]), set(&["a", "c"]), set(&["a", "b"]), set(&["a"])]);
    let (usual, levels) = plans(&state, table, (Expr::GroupingSet(sets), vec![count_of_v()]), NEVER_FEW).await;
    assert_eq!(result(usual, &state).await, result(levels.clone(), &state).await);
    // Two sets from the 3 * 3 * 21 finest groups, one from the 9 groups of (a, b).
    assert_eq!(counted(&levels, "merged_rows"), Some(2 * 3 * 3 * 21 + 9));
}

/// With little memory, rounds are small and states are not kept, but the groups are the same.
#[tokio::test]
async fn little_memory_gives_the_same_groups() {
    let mut rng = serac_testing::rng();
    let (rollup, cube): (fn(_) -> _, fn(_) -> _) = (GroupingSet::Rollup, GroupingSet::Cube);
    for (sets, partitions) in [(rollup, 2), (cube, 2), (cube, 1)] {
        let keys = KEYS[..3].iter().map(|key| col(*key)).collect();
        let query = (Expr::GroupingSet(sets(keys)), vec![count_of_v()]);
        let table = rows(&mut rng, partitions, 16_000, [30, 200, 400, 1]);
        let plenty = state(partitions, None);
        let (usual, _) = plans(&plenty, table.clone(), query.clone(), RoundLimits::default()).await;
        let expected = result(usual, &plenty).await;
        let little = state(partitions, Some(partitions << 20));
        let (_, levels) = plans(&little, table, query, RoundLimits::default()).await;
        assert_eq!(expected, result(levels.clone(), &little).await);
        assert!(counted(&levels, "rounds") > Some(partitions), "the memory was not too little");
    }
}

fn count_of_v() -> Expr {
    let count = datafusion::functions_aggregate::count::count_udaf();
    Expr::AggregateFunction(AggregateFunction::new_udf(count, vec![col("v")], false, None, Vec::new(), None))
}
