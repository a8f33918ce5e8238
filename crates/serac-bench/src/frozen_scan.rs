//! Scans of lineitem: hot, frozen in each format, and as plain record batches in a `MemTable` of
//! DataFusion.

use crate::report::{Report, median};
use crate::setup::{lineitem, text};
use datafusion::arrow::compute::cast;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::MemTable;
use datafusion::functions_aggregate::expr_fn::{count, count_distinct, max, sum};
use datafusion::prelude::{Expr, SessionConfig, SessionContext, col, lit};
use serac_sql::{Session, SqlDatabase};
use serac_storage::{DataTable, FreezeFormat, StorageOptions};
use serac_workload::tpch::TABLES;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

const QUERIES: [(&str, &str); 9] = [
    ("sums of integers", "SELECT sum(l_orderkey), sum(l_partkey), sum(l_suppkey), sum(l_linenumber) FROM lineitem"),
    ("sums of decimals", "SELECT sum(l_quantity), sum(l_extendedprice), sum(l_discount) FROM lineitem"),
    (
        "filter on a date",
        "SELECT count(*), sum(l_partkey) FROM lineitem WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1994-02-01'",
    ),
    (
        "filter on decimals",
        "SELECT count(*), sum(l_partkey) FROM lineitem WHERE l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    ),
    ("text = constant", "SELECT count(*), sum(l_partkey) FROM lineitem WHERE l_shipinstruct = 'DELIVER IN PERSON'"),
    ("text in constants", "SELECT count(*) FROM lineitem WHERE l_shipmode IN ('AIR', 'REG AIR', 'no mode')"),
    ("text like", "SELECT count(*) FROM lineitem WHERE l_shipinstruct LIKE '%BACK%'"),
    ("group by text", "SELECT l_returnflag, l_linestatus, count(*), sum(l_suppkey) FROM lineitem GROUP BY 1, 2"),
    ("distinct text values", "SELECT count(DISTINCT l_shipinstruct), max(l_comment) FROM lineitem"),
];

/// The `number`th query as a plan over the plain batches.
fn planned(number: usize, lineitem: DataFrame) -> datafusion::error::Result<DataFrame> {
    let date = |days| lit(ScalarValue::Date32(Some(days)));
    let decimal = |hundredths| lit(ScalarValue::Decimal128(Some(hundredths), 15, 2));
    let sums = |columns: &[&str]| columns.iter().map(|column| sum(col(*column))).collect::<Vec<_>>();
    let rows = || count(lit(1_i64));
    let (condition, groups, aggregates): (Option<Expr>, Vec<Expr>, Vec<Expr>) = match number {
        0 => (None, vec![], sums(&["l_orderkey", "l_partkey", "l_suppkey", "l_linenumber"])),
        1 => (None, vec![], sums(&["l_quantity", "l_extendedprice", "l_discount"])),
        2 => {
            // January 1994.
            let shipped = col("l_shipdate");
            let month = shipped.clone().gt_eq(date(8_766)).and(shipped.lt(date(8_797)));
            (Some(month), vec![], vec![rows(), sum(col("l_partkey"))])
        }
        3 => {
            let cheap = col("l_discount").between(decimal(5), decimal(7)).and(col("l_quantity").lt(decimal(2_400)));
            (Some(cheap), vec![], vec![rows(), sum(col("l_partkey"))])
        }
        4 => {
            let equal = col("l_shipinstruct").eq(lit("DELIVER IN PERSON"));
            (Some(equal), vec![], vec![rows(), sum(col("l_partkey"))])
        }
        5 => {
            let modes = vec![lit("AIR"), lit("REG AIR"), lit("no mode")];
            (Some(col("l_shipmode").in_list(modes, false)), vec![], vec![rows()])
        }
        6 => (Some(col("l_shipinstruct").like(lit("%BACK%"))), vec![], vec![rows()]),
        7 => (None, vec![col("l_returnflag"), col("l_linestatus")], vec![rows(), sum(col("l_suppkey"))]),
        _ => (None, vec![], vec![count_distinct(col("l_shipinstruct")), max(col("l_comment"))]),
    };
    let rows = match condition {
        Some(condition) => lineitem.filter(condition)?,
        None => lineitem,
    };
    rows.aggregate(groups, aggregates)
}

/// Median times of a query, in milliseconds.
#[derive(Clone, Copy)]
struct Pair {
    plain: f64,
    serac: f64,
}

async fn timed<E: std::fmt::Display>(query: impl Future<Output = Result<(), E>>) -> Result<f64, String> {
    let started = Instant::now();
    query.await.map_err(text)?;
    Ok(started.elapsed().as_secs_f64() * 1e3)
}

/// Runs every query `runs` times, on the plain batches and in SeracDB by turns, so that a slow
/// minute of the machine affects both.
async fn measure(runs: usize, plain: &SessionContext, session: &mut Session) -> Result<Vec<Pair>, String> {
    let mut medians = Vec::new();
    for (number, (_, sql)) in QUERIES.into_iter().enumerate() {
        let (mut of_plain, mut of_serac) = (Vec::new(), Vec::new());
        for run in 0..=runs {
            let plain_ms =
                timed(async { planned(number, plain.table("lineitem").await?)?.collect().await.map(drop) }).await?;
            let serac_ms = timed(async { session.execute(sql).await.map(drop) }).await?;
            // The first run warms up.
            if run > 0 {
                of_plain.push(plain_ms);
                of_serac.push(serac_ms);
            }
        }
        medians.push(Pair { plain: median(of_plain), serac: median(of_serac) });
    }
    Ok(medians)
}

/// The same rows as record batches of 8192 rows in a `MemTable`.
fn plain(table: &DataTable, sf: f64) -> Result<SessionContext, String> {
    let workload = TABLES.iter().find(|t| t.name == "lineitem").expect("a table of TPC-H");
    let schema = table.schema().arrow();
    let partitions = std::thread::available_parallelism().map_or(1, usize::from);
    let mut batches = vec![Vec::new(); partitions];
    for (i, batch) in workload.generate(sf, 8_192).enumerate() {
        let arrays = batch.columns().iter().zip(schema.fields()).map(|(array, field)| cast(array, field.data_type()));
        let arrays = arrays.collect::<Result<_, _>>().map_err(text)?;
        batches[i % partitions].push(RecordBatch::try_new(schema.clone(), arrays).map_err(text)?);
    }
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(partitions));
    let plain = MemTable::try_new(schema, batches).map_err(text)?;
    context.register_table("lineitem", Arc::new(plain)).map_err(text)?;
    Ok(context)
}

async fn run_all(
    db: &SqlDatabase,
    table: &Arc<DataTable>,
    sf: f64,
    runs: usize,
) -> Result<Vec<(&'static str, Vec<Pair>)>, String> {
    let plain = plain(table, sf)?;
    let mut session = Session::new(db);
    let mut results = vec![("hot", measure(runs, &plain, &mut session).await?)];
    for format in [FreezeFormat::View, FreezeFormat::Utf8, FreezeFormat::Dictionary, FreezeFormat::Compact] {
        table.set_freeze_format(format);
        let (frozen, blocks) = db.database().storage().freeze_table(table, Duration::from_secs(60));
        if frozen < blocks {
            return Err(format!("{frozen} of {blocks} blocks froze"));
        }
        results.push((format.name(), measure(runs, &plain, &mut session).await?));
    }
    Ok(results)
}

pub fn run(sf: f64, runs: usize, report: &mut Report) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(text)?;
    let (db, table) = lineitem(sf, StorageOptions { freeze_after: None, ..StorageOptions::default() })?;
    let results = runtime.block_on(run_all(&db, &table.data, sf, runs))?;
    report.note(
        "milliseconds; plain: record batches of 8192 rows in a MemTable, by turns with view; view, utf8, dictionary, compact: frozen".into(),
    );
    for (i, (name, _)) in QUERIES.iter().enumerate() {
        let view = results[1].1[i];
        let mut row = vec![("query", json!(name)), ("plain", json!(view.plain))];
        row.extend(results.iter().map(|(column, pairs)| (*column, json!(pairs[i].serac))));
        row.push(("view / plain", json!(view.serac / view.plain)));
        report.row(&row);
    }
    Ok(())
}
