//! Random aggregations give the groups that DataFusion's plan gives, with and without a limit of
//! the memory.

use super::RadixAggregation;
use datafusion::arrow::array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Int16Array, Int32Array, Int64Array, RecordBatch,
    StringViewArray,
};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::config::ConfigNonZeroUsize;
use datafusion::datasource::MemTable;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::functions_aggregate::expr_fn::{avg, count, count_distinct, max, min, sum};
use datafusion::logical_expr::{Expr, ExprFunctionExt, col, lit};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::sync::Arc;
use std::time::{Duration, Instant};

const COLUMNS: [&str; 8] = ["i16", "i32", "i64", "bool", "date", "decimal", "text", "unique"];

/// A column of values of which there are up to `most`.
fn column(rng: &mut StdRng, name: &str, rows: usize, first: usize, most: i64) -> ArrayRef {
    let values: Vec<Option<i64>> = (0..rows)
        .map(|row| match name {
            "unique" => Some((first + row) as i64),
            _ => rng.random_bool(0.95).then(|| rng.random_range(0..most)),
        })
        .collect();
    let values = values.into_iter();
    match name {
        "i16" => Arc::new(values.map(|value| value.map(|value| value as i16)).collect::<Int16Array>()),
        "i32" => Arc::new(values.map(|value| value.map(|value| value as i32 - 1000)).collect::<Int32Array>()),
        "bool" => Arc::new(values.map(|value| value.map(|value| value % 3 == 0)).collect::<BooleanArray>()),
        "date" => Arc::new(values.map(|value| value.map(|value| value as i32)).collect::<Date32Array>()),
        "decimal" => {
            let values = values.map(|value| value.map(|value| i128::from(value) << 40));
            Arc::new(values.collect::<Decimal128Array>().with_precision_and_scale(30, 2).unwrap())
        }
        "text" => {
            let text = |value: i64| match value % 3 {
                0 => format!("t{value}"),
                1 => format!("a text that is longer than a view {value}"),
                _ => "x".repeat(value as usize % 40),
            };
            Arc::new(values.map(|value| value.map(text)).collect::<StringViewArray>())
        }
        _ => Arc::new(values.map(|value| value.map(|value| value * 1_000_003)).collect::<Int64Array>()),
    }
}

/// A table of two partitions, and the name of each column.
fn table(rng: &mut StdRng) -> MemTable {
    let all = rng.random_range(66_000..100_000);
    let most = [5, 1_000, 30_000, 1_000_000][rng.random_range(0..4)];
    let batch_rows = [700, 4_000, 9_000][rng.random_range(0..3)];
    let (mut partitions, mut first) = (vec![Vec::new(), Vec::new()], 0);
    let mut schema = None;
    while first < all {
        let columns = COLUMNS.map(|name| column(rng, name, batch_rows, first, most));
        let fields = COLUMNS.iter().zip(&columns);
        let fields: Vec<Field> =
            fields.map(|(name, column)| Field::new(*name, column.data_type().clone(), *name != "unique")).collect();
        let schema = schema.get_or_insert_with(|| Arc::new(Schema::new(fields)));
        let batch = RecordBatch::try_new(schema.clone(), columns.to_vec()).unwrap();
        partitions[usize::from(rng.random_bool(0.5))].push(batch);
        first += batch_rows;
    }
    MemTable::try_new(schema.unwrap(), partitions).unwrap()
}

fn aggregate(rng: &mut StdRng, at: usize) -> Expr {
    let name = COLUMNS[rng.random_range(0..COLUMNS.len())];
    let is_number = !["bool", "date", "text"].contains(&name);
    let made = match rng.random_range(0..7) {
        0 => count(lit(1)),
        1 => count(col(name)),
        2 if is_number => sum(col(name)),
        3 if is_number => avg(col(name)),
        4 => min(col(name)),
        5 if name != "bool" => count_distinct(col("i16")),
        _ => max(col(name)),
    };
    let filters = [col("bool"), col("i32").gt(lit(10)), col("text").is_not_null(), lit(false)];
    let made = match rng.random_bool(0.2) {
        true => made.filter(filters.choose(rng).unwrap().clone()).build().unwrap(),
        false => made,
    };
    made.alias(format!("a{at}"))
}

async fn rows(plan: Arc<dyn ExecutionPlan>, context: &SessionContext) -> Vec<String> {
    let batches = collect(plan, context.task_ctx()).await.unwrap();
    let options = FormatOptions::default();
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<ArrayFormatter<'_>> =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap()).collect();
        rows.extend(
            (0..batch.num_rows())
                .map(|row| columns.iter().map(|column| format!("{}|", column.value(row))).collect::<String>()),
        );
    }
    rows.sort_unstable();
    rows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_are_those_of_two_steps() {
    let mut rng = serac_testing::rng();
    let (mut replaced, mut handed_over) = (0, 0);
    for _ in 0..4 {
        let table = Arc::new(table(&mut rng));
        for _ in 0..5 {
            let limit = [None, None, Some(8 << 20)][rng.random_range(0..3)];
            let mut runtime = RuntimeEnvBuilder::new();
            if let Some(limit) = limit {
                runtime = runtime.with_memory_pool(Arc::new(FairSpillPool::new(limit)));
            }
            let mut config = SessionConfig::new().with_target_partitions(2).with_batch_size(1_000);
            // As sessions set it: more batches in one file may wait for each other.
            config.options_mut().execution.max_spill_file_size_bytes = ConfigNonZeroUsize::try_new(1).unwrap();
            let limited = SessionContext::new_with_config_rt(config.clone(), runtime.build_arc().unwrap());
            let context = SessionContext::new_with_config(config);
            let key_count = rng.random_range(1..4);
            let keys: Vec<&str> = COLUMNS.choose_multiple(&mut rng, key_count).copied().collect();
            let keys: Vec<Expr> = keys.into_iter().map(col).collect();
            let aggregates: Vec<Expr> = (0..rng.random_range(0..4)).map(|at| aggregate(&mut rng, at)).collect();
            let shown = format!("{keys:?} {aggregates:?}");
            let rows_of = context.read_table(table.clone()).unwrap().aggregate(keys, aggregates).unwrap();
            let plan = || async { rows_of.clone().create_physical_plan().await.unwrap() };
            let expected = rows(plan().await, &context).await;
            let ours = RadixAggregation.optimize(plan().await, &Default::default()).unwrap();
            let found = rows(ours.clone(), &limited).await;
            let ours = DisplayableExecutionPlan::with_metrics(ours.as_ref()).indent(false).to_string();
            replaced += usize::from(ours.contains("RadixAggregateExec"));
            handed_over += usize::from(ours.contains("handed_over=1"));
            assert_eq!(found.len(), expected.len(), "{shown}\n{ours}");
            if let Some(at) = (0..found.len()).find(|at| found[*at] != expected[*at]) {
                panic!("{shown}: row {at} is {}, not {}\n{ours}", found[at], expected[at]);
            }
        }
    }
    assert!(replaced > 8, "{replaced} plans have the operator, {handed_over} were handed over");
}

/// The workers of an aggregation that nobody waits for end, and give their memory back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_aggregation_ends() {
    let mut rng = serac_testing::rng();
    let table = Arc::new(table(&mut rng));
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
    let pool = context.runtime_env().memory_pool.clone();
    for _ in 0..20 {
        let groups = context.read_table(table.clone()).unwrap().aggregate(vec![col("unique"), col("text")], vec![]);
        let plan = groups.unwrap().create_physical_plan().await.unwrap();
        let plan = RadixAggregation.optimize(plan, &Default::default()).unwrap();
        let rows = tokio::spawn(collect(plan, context.task_ctx()));
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..20))).await;
        rows.abort();
        // Its rows, if it was done before.
        drop(rows.await);
        let began = Instant::now();
        while pool.reserved() > 0 {
            assert!(began.elapsed() < Duration::from_secs(10), "{} bytes are reserved", pool.reserved());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
