//! Joins that spill, compared with DataFusion's join in memory.

use super::*;
use datafusion::arrow::array::{ArrayRef, Int64Array, StringViewArray};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::config::ConfigNonZeroUsize;
use datafusion::common::{JoinSide, NullEquality};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::{collect_partitioned, displayable};
use datafusion::prelude::SessionConfig;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const TYPES: [JoinType; 10] = [
    JoinType::Inner,
    JoinType::Left,
    JoinType::Right,
    JoinType::Full,
    JoinType::LeftSemi,
    JoinType::RightSemi,
    JoinType::LeftAnti,
    JoinType::RightAnti,
    JoinType::LeftMark,
    JoinType::RightMark,
];

/// The keys of a side's rows.
#[derive(Debug, Clone, Copy)]
enum Keys {
    /// Each is there a few times.
    Many,
    /// Half the rows have one key.
    OneOfHalf,
    /// All rows have one key, or none.
    One,
    /// Nine of ten rows have no key.
    Few,
    /// There are no rows.
    None,
}

/// The columns: a key that may be NULL, a second key as text, a number, and a text of `width`
/// bytes.
fn side(rng: &mut StdRng, keys: Keys, rows: usize, partitions: usize, width: usize) -> Arc<dyn ExecutionPlan> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("t", DataType::Utf8View, true),
        Field::new("n", DataType::Int64, true),
        Field::new("w", DataType::Utf8View, true),
    ]));
    let rows = if matches!(keys, Keys::None) { 0 } else { rows };
    let batch = |rng: &mut StdRng, count: usize| {
        let key = |rng: &mut StdRng| match keys {
            Keys::Many | Keys::Few => rng.random_range(0..rows as i64 / 3 + 1),
            Keys::OneOfHalf if rng.random() => rng.random_range(0..rows as i64 / 3 + 1),
            _ => 7,
        };
        let nulls = if matches!(keys, Keys::Few) { 0.9 } else { 0.02 };
        let numbers: Vec<Option<i64>> = (0..count).map(|_| (!rng.random_bool(nulls)).then(|| key(rng))).collect();
        let texts =
            StringViewArray::from_iter(numbers.iter().map(|key| key.map(|key| format!("key number {}", key / 2))));
        let values = Int64Array::from_iter_values((0..count).map(|_| rng.random_range(0..100)));
        let wide = StringViewArray::from_iter_values((0..count).map(|_| format!("{:0width$}", rng.random::<u16>())));
        let columns: Vec<ArrayRef> =
            vec![Arc::new(Int64Array::from(numbers)), Arc::new(texts), Arc::new(values), Arc::new(wide)];
        RecordBatch::try_new(schema.clone(), columns).unwrap()
    };
    let mut parts = vec![Vec::new(); partitions];
    let mut left = rows;
    while left > 0 {
        let count = left.min(rng.random_range(1..700));
        let rows = batch(rng, count);
        parts[rng.random_range(0..partitions)].push(rows);
        left -= count;
    }
    MemorySourceConfig::try_new_exec(&parts, schema.clone(), None).unwrap()
}

fn context(pool: Option<usize>) -> Arc<TaskContext> {
    let mut runtime = RuntimeEnvBuilder::new();
    if let Some(bytes) = pool {
        runtime = runtime.with_memory_pool(Arc::new(FairSpillPool::new(bytes)));
    }
    let mut config = SessionConfig::new().with_batch_size(500).with_sort_spill_reservation_bytes(10_000);
    // As sessions set it.
    config.options_mut().execution.max_spill_file_size_bytes = ConfigNonZeroUsize::try_new(1).unwrap();
    let context = TaskContext::default().with_session_config(config);
    Arc::new(context.with_runtime(Arc::new(runtime.build().unwrap())))
}

/// All rows in one order.
async fn sorted(plan: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>) -> Result<Vec<String>> {
    let schema = plan.schema();
    let parts = collect_partitioned(plan, context).await?;
    let batches: Vec<RecordBatch> = parts.into_iter().flatten().collect();
    let all = concat_batches(&schema, &batches)?;
    let mut rows: Vec<String> = pretty_format_batches(&[all])?.to_string().lines().map(str::to_owned).collect();
    rows.sort();
    Ok(rows)
}

fn spilled(plan: &Arc<dyn ExecutionPlan>) -> usize {
    plan.metrics().and_then(|metrics| metrics.spilled_rows()).unwrap_or_default()
}

/// Tasks that are aborted end when they next yield.
async fn all_is_given_back(context: &TaskContext, case: &str) {
    let kept = || (context.memory_pool().reserved(), context.runtime_env().disk_manager.used_disk_space());
    for _ in 0..500 {
        if kept() == (0, 0) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{case}: memory and disk are kept: {:?}", kept());
}

/// `left.n < right.n`.
fn smaller() -> JoinFilter {
    let schema = Schema::new(vec![Field::new("l", DataType::Int64, true), Field::new("r", DataType::Int64, true)]);
    let smaller = BinaryExpr::new(Arc::new(Column::new("l", 0)), Operator::Lt, Arc::new(Column::new("r", 1)));
    let columns = [JoinSide::Left, JoinSide::Right].map(|side| ColumnIndex { index: 2, side });
    JoinFilter::new(Arc::new(smaller), columns.to_vec(), Arc::new(schema))
}

/// A join of random rows by random properties.
fn random_join(rng: &mut StdRng, join_type: JoinType, keys: (Keys, Keys)) -> HashJoinExec {
    let is_shared = rng.random();
    let partitions = rng.random_range(1..3);
    let (left_rows, right_rows) = (rng.random_range(500..6000), rng.random_range(500..4000));
    // Rows with equal keys are in one partition where each has a build side of its own.
    let left_partitions = if is_shared { 1 } else { partitions };
    let repartitioned = |input: Arc<dyn ExecutionPlan>, on: Vec<Arc<dyn PhysicalExpr>>| -> Arc<dyn ExecutionPlan> {
        use datafusion::physical_expr::Partitioning;
        use datafusion::physical_plan::repartition::RepartitionExec;
        if is_shared || partitions == 1 {
            return input;
        }
        Arc::new(RepartitionExec::try_new(input, Partitioning::Hash(on, partitions)).unwrap())
    };
    // Fewer pairs where all rows have one key.
    let few = matches!(keys, (Keys::One | Keys::OneOfHalf, Keys::One | Keys::OneOfHalf));
    let right_rows = if few { right_rows / 200 } else { right_rows };
    let left = side(rng, keys.0, left_rows, left_partitions, 60);
    let right = side(rng, keys.1, right_rows, partitions, 20);
    let mut on: Vec<(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)> =
        vec![(Arc::new(Column::new("k", 0)), Arc::new(Column::new("k", 0)))];
    match rng.random_range(0..3) {
        0 => on.push((Arc::new(Column::new("t", 1)), Arc::new(Column::new("t", 1)))),
        1 => on[0] = (Arc::new(Column::new("t", 1)), Arc::new(Column::new("t", 1))),
        _ => {}
    }
    let left = repartitioned(left, on.iter().map(|(left, _)| left.clone()).collect());
    let right = repartitioned(right, on.iter().map(|(_, right)| right.clone()).collect());
    let mode = if is_shared { PartitionMode::CollectLeft } else { PartitionMode::Partitioned };
    let join = datafusion::physical_plan::joins::HashJoinExecBuilder::new(left, right, on, join_type);
    let nulls = if rng.random() { NullEquality::NullEqualsNull } else { NullEquality::NullEqualsNothing };
    let join = join.with_partition_mode(mode).with_null_equality(nulls);
    let join = join.with_filter(rng.random::<bool>().then(smaller)).build().unwrap();
    let width = join.schema().fields().len();
    match rng.random_range(0..3) {
        0 => join.with_projection(Some(vec![width - 1, 0])).unwrap(),
        _ => join,
    }
}

async fn compare(seed: u64, join_type: JoinType, keys: (Keys, Keys)) {
    let mut rng = StdRng::seed_from_u64(seed);
    let join = random_join(&mut rng, join_type, keys);
    let nulls = join.null_equality();
    let plain: Arc<dyn ExecutionPlan> = Arc::new(join);
    let case = format!("seed {seed}, {keys:?}, {}", displayable(plain.as_ref()).one_line());
    let expected = sorted(plain.clone(), context(None)).await.unwrap();
    let fresh = || reset_plan_states(plain.clone()).unwrap();
    for bytes in [rng.random_range(1_000..60_000), 1 << 30] {
        let plan = spilling(&fresh()).unwrap().expect("it may spill");
        let context = context(Some(bytes));
        match sorted(plan.clone(), context.clone()).await {
            Ok(rows) => assert!(rows == expected, "{case}, {bytes} bytes: {} rows, not {}", rows.len(), expected.len()),
            // Neither side of a full join may have more rows with one key than fit. NULL is one if
            // it is equal to NULL.
            Err(error) => {
                let is_one = match keys.0 {
                    Keys::Few => nulls == NullEquality::NullEqualsNull,
                    keys => !matches!(keys, Keys::Many),
                };
                let is_skewed = is_one && join_type == JoinType::Full;
                assert!(is_skewed && error.to_string().contains("full join"), "{case}, {bytes} bytes: {error}");
            }
        }
        match bytes == 1 << 30 {
            true => assert_eq!(spilled(&plan), 0, "{case}"),
            false => assert!(spilled(&plan) > 0 || matches!(keys.0, Keys::None), "{case}, {bytes} bytes"),
        }
        drop(plan);
        all_is_given_back(&context, &case).await;
    }
}

/// All types of joins, keys and places of memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_that_spills_has_the_rows_of_one_that_does_not() {
    let first = u64::from(rand::random::<u32>());
    for (number, join_type) in TYPES.into_iter().cycle().take(60).enumerate() {
        let kinds = [Keys::Many, Keys::Many, Keys::OneOfHalf, Keys::One, Keys::None, Keys::Few];
        let keys = match kinds[number / 10] {
            Keys::Few => (Keys::Few, Keys::Many),
            left => (left, kinds[number / 13]),
        };
        compare(first + number as u64, join_type, keys).await;
    }
}

/// A join that gives the order of the other side gives it also from files.
#[tokio::test]
async fn a_promised_order_is_kept() {
    use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
    let seed = rand::random::<u32>().into();
    let mut rng = StdRng::seed_from_u64(seed);
    let left = side(&mut rng, Keys::Many, 300_000, 1, 60);
    let order = LexOrdering::new([PhysicalSortExpr::new_default(Arc::new(Column::new("n", 2)))]).unwrap();
    let right = Arc::new(SortExec::new(order, side(&mut rng, Keys::Many, 3000, 1, 20)));
    let on = vec![(Arc::new(Column::new("k", 0)) as _, Arc::new(Column::new("k", 0)) as _)];
    let join = datafusion::physical_plan::joins::HashJoinExecBuilder::new(left, right, on, JoinType::Inner);
    let join = join.with_partition_mode(PartitionMode::CollectLeft).build_exec().unwrap();
    assert!(join.output_ordering().is_some());
    let plan = spilling(&join).unwrap().unwrap();
    let batches = collect_partitioned(plan.clone(), context(Some(64_000_000))).await.unwrap();
    assert!(spilled(&plan) > 0, "seed {seed}");
    let rows = concat_batches(&plan.schema(), &batches[0]).unwrap();
    let numbers = rows.column(6).as_any().downcast_ref::<Int64Array>().unwrap();
    assert!(numbers.len() > 1000 && numbers.values().is_sorted(), "seed {seed}");
}

/// The files go when the rows are dropped half-way.
#[tokio::test]
async fn a_join_that_is_dropped_gives_all_back() {
    let mut rng = StdRng::seed_from_u64(rand::random());
    let join: Arc<dyn ExecutionPlan> = Arc::new(random_join(&mut rng, JoinType::Left, (Keys::Many, Keys::Many)));
    let plan = spilling(&join).unwrap().unwrap();
    let context = context(Some(20_000));
    let mut rows = plan.execute(0, context.clone()).unwrap();
    rows.try_next().await.unwrap().expect("it has rows");
    assert!(context.memory_pool().reserved() > 0 && context.runtime_env().disk_manager.used_disk_space() > 0);
    drop((rows, plan, join));
    all_is_given_back(&context, "dropped half-way").await;
}

/// So does one that is dropped while it reads its build side.
#[tokio::test]
async fn a_join_that_is_dropped_early_gives_all_back() {
    let mut rng = StdRng::seed_from_u64(rand::random());
    let (left, right) = (side(&mut rng, Keys::Many, 3000, 1, 60), side(&mut rng, Keys::Many, 100, 2, 20));
    for bytes in [20_000, 1 << 30] {
        let context = context(Some(bytes));
        // The last rows never come.
        let rows = left.execute(0, context.clone()).unwrap().chain(stream::pending());
        let rows = StreamOnce::new(Box::pin(RecordBatchStreamAdapter::new(left.schema(), rows)));
        let on = vec![(Arc::new(Column::new("k", 0)) as _, Arc::new(Column::new("k", 0)) as _)];
        let join = datafusion::physical_plan::joins::HashJoinExecBuilder::new(
            Arc::new(rows),
            right.clone(),
            on,
            JoinType::Inner,
        );
        let join = join.with_partition_mode(PartitionMode::CollectLeft).build_exec().unwrap();
        let plan = spilling(&join).unwrap().unwrap();
        let mut rows = plan.execute(0, context.clone()).unwrap();
        let waits = tokio::time::timeout(std::time::Duration::from_millis(200), rows.try_next()).await;
        assert!(waits.is_err() && context.memory_pool().reserved() > 0, "{bytes} bytes");
        drop((rows, plan, join));
        assert_eq!(context.memory_pool().reserved(), 0, "{bytes} bytes");
        assert_eq!(context.runtime_env().disk_manager.used_disk_space(), 0, "{bytes} bytes");
    }
}
