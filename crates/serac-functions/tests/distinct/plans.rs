//! Plans with DISTINCT aggregates by group equal the groups of distinct rows: two partitions,
//! partial and final steps, filters, few and many groups, and states that go to disk.
//!
//! `SERAC_STRESS=1` asks more queries; `SERAC_SEED=n` replays a seed.

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float64Array,
    Int32Array, Int64Array, RecordBatch, StringArray, StringViewArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigNonZeroUsize;
use datafusion::datasource::MemTable;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{AggregateUDF, Expr, lit, when};
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{DataFrame, SessionConfig, SessionContext, col};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::collections::BTreeMap;
use std::sync::Arc;

const COLUMNS: [&str; 9] = ["i", "dec", "day", "at", "f", "flag", "id", "view", "text"];

/// Rows with values below `values`, of which each is NULL at times.
fn batch(rng: &mut StdRng, rows: usize, groups: i64, values: i64) -> RecordBatch {
    let keys: Vec<Option<i64>> =
        (0..rows).map(|_| rng.random_bool(0.99).then(|| rng.random_range(0..groups))).collect();
    let mut numbers = || -> Vec<Option<i64>> {
        (0..rows).map(|_| rng.random_bool(0.9).then(|| rng.random_range(0..values))).collect()
    };
    let text = |n: i64| if n % 3 == 0 { format!("t{n}") } else { format!("a text that is not kept in its view {n}") };
    let float = |(at, n): (usize, Option<i64>)| {
        n.map(|n| match (n % 50, at % 2) {
            (0, 0) => -0.0,
            (0, _) => 0.0,
            (1, 0) => -f64::NAN,
            (1, _) => f64::NAN,
            _ => n as f64 / 4.0,
        })
    };
    let decimals = numbers().into_iter().map(|n| n.map(|n| i128::from(n) << 60)).collect::<Decimal128Array>();
    let ids = numbers().into_iter().map(|n| n.map(|n| (i128::from(n) * 0x0123_4567_89ab_cdef_1234_5678).to_be_bytes()));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("k", Arc::new(Int64Array::from(keys))),
        ("n", Arc::new(Int64Array::from(numbers()))),
        ("i", Arc::new(numbers().into_iter().map(|n| n.map(|n| n as i32)).collect::<Int32Array>())),
        ("dec", Arc::new(decimals.with_precision_and_scale(38, 3).unwrap())),
        ("day", Arc::new(numbers().into_iter().map(|n| n.map(|n| n as i32)).collect::<Date32Array>())),
        ("at", Arc::new(TimestampMicrosecondArray::from(numbers()).with_timezone("UTC"))),
        ("f", Arc::new(numbers().into_iter().enumerate().map(float).collect::<Float64Array>())),
        ("flag", Arc::new(numbers().into_iter().map(|n| n.map(|n| n % 2 == 0)).collect::<BooleanArray>())),
        ("id", Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(ids, 16).unwrap())),
        ("view", Arc::new(numbers().into_iter().map(|n| n.map(text)).collect::<StringViewArray>())),
        ("text", Arc::new(numbers().into_iter().map(|n| n.map(text)).collect::<StringArray>())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

/// A table `t` of two partitions, of many batches each.
fn context(rng: &mut StdRng, rows: usize, groups: i64, values: i64, memory: Option<usize>) -> SessionContext {
    let partitions: Vec<Vec<RecordBatch>> =
        (0..2).map(|_| (0..rows / 2000).map(|_| batch(rng, 1000, groups, values)).collect()).collect();
    let mut config = SessionConfig::new().with_target_partitions(2).with_batch_size(1000);
    // As sessions set it: more batches in one file may wait for each other.
    config.options_mut().execution.max_spill_file_size_bytes = ConfigNonZeroUsize::try_new(1).unwrap();
    let runtime = match memory {
        Some(bytes) => RuntimeEnvBuilder::new().with_memory_limit(bytes, 1.0),
        None => RuntimeEnvBuilder::new(),
    };
    let context = SessionContext::new_with_config_rt(config, runtime.build_arc().unwrap());
    let table = MemTable::try_new(partitions[0][0].schema(), partitions).unwrap();
    context.register_table("t", Arc::new(table)).unwrap();
    context
}

fn call(function: AggregateUDF, of: Expr, is_distinct: bool, filter: Option<Expr>) -> Expr {
    let filter = filter.map(Box::new);
    Expr::AggregateFunction(AggregateFunction::new_udf(Arc::new(function), vec![of], is_distinct, filter, vec![], None))
}

fn count() -> AggregateUDF {
    serac_functions::sliding(count_udaf())
}

/// Results by key, and whether anything went to disk.
async fn results(context: &SessionContext, frame: DataFrame) -> (BTreeMap<Option<i64>, Vec<i64>>, bool) {
    let plan = frame.create_physical_plan().await.unwrap();
    let mut results = BTreeMap::new();
    for batch in collect(plan.clone(), context.task_ctx()).await.unwrap() {
        let keys = batch.column(0).as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            let value = |column: &ArrayRef| match ScalarValue::try_from_array(column, row).unwrap() {
                ScalarValue::Int64(value) => value.unwrap_or(i64::MIN),
                other => panic!("{other} is no number"),
            };
            let key = keys.is_valid(row).then(|| keys.value(row));
            let before = results.insert(key, batch.columns()[1..].iter().map(value).collect());
            assert!(before.is_none(), "{key:?} comes twice");
        }
    }
    (results, has_spilled(&plan))
}

fn has_spilled(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let of_this = plan.metrics().and_then(|metrics| metrics.spill_count()).unwrap_or(0);
    of_this > 0 || plan.children().into_iter().any(has_spilled)
}

/// Compares a plan of some DISTINCT aggregates with a plan of each over distinct rows. The result
/// is whether the first has spilled.
async fn check(context: &SessionContext, rng: &mut StdRng) -> bool {
    let table = async || context.table("t").await.unwrap();
    let filters = [None, Some(col("n").gt(lit(10_i64))), Some(col("n").lt(lit(-1_i64)))];
    let sum = || serac_functions::aggregates().into_iter().find(|function| function.name() == "sum").unwrap();
    let mut columns: Vec<&str> = COLUMNS.choose_multiple(rng, 3).copied().collect();
    columns.push("n");
    let (mut calls, mut expected) = (vec![call(count(), lit(1_i64), false, None).alias("rows")], Vec::new());
    for (at, name) in columns.iter().enumerate() {
        let function = || if *name == "n" { sum() } else { count() };
        let filter = filters.choose(rng).unwrap();
        calls.push(call(function(), col(*name), true, filter.clone()).alias(format!("c{at}")));
        let value = match filter {
            Some(filter) => when(filter.clone(), col(*name)).end().unwrap(),
            None => col(*name),
        };
        let value = if *name == "f" { serac_functions::one_zero(value) } else { value };
        let rows = table().await.select(vec![col("k"), value.alias("x")]).unwrap().distinct().unwrap();
        let frame = rows.aggregate(vec![col("k")], vec![call(function(), col("x"), false, None)]).unwrap();
        expected.push((*name, filter.clone(), results(context, frame).await.0));
    }
    let (found, has_spilled) = results(context, table().await.aggregate(vec![col("k")], calls).unwrap()).await;
    for (at, (name, filter, expected)) in expected.iter().enumerate() {
        assert_eq!(found.len(), expected.len());
        for (key, values) in &found {
            assert_eq!(values[at + 1], expected[key][0], "DISTINCT {name} of group {key:?}, filter {filter:?}");
        }
    }
    has_spilled
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_groups() {
    let mut rng = serac_testing::rng();
    let context = context(&mut rng, 20_000, 7, 3000, None);
    for _ in 0..if serac_testing::stress() { 200 } else { 6 } {
        check(&context, &mut rng).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_groups() {
    let mut rng = serac_testing::rng();
    let context = context(&mut rng, 120_000, 100_000, 500, None);
    for _ in 0..if serac_testing::stress() { 30 } else { 1 } {
        check(&context, &mut rng).await;
    }
}

/// Which queries need the disk depends on the columns that they name, so that one may not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_groups_in_little_memory() {
    let mut rng = serac_testing::rng();
    let context = context(&mut rng, 120_000, 50_000, 2000, Some(12 << 20));
    let (mut asked, mut spilled) = (0, 0);
    while spilled == 0 || serac_testing::stress() && asked < 30 {
        assert!(asked < 10 || spilled > 0, "nothing went to disk");
        spilled += usize::from(check(&context, &mut rng).await);
        asked += 1;
    }
}
