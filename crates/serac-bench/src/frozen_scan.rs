//! Scans of lineitem: hot, frozen in each format, and as plain record batches in a `MemTable` of DataFusion.

use crate::report::{Report, median};
use crate::setup::{lineitem, text};
use datafusion::arrow::compute::cast;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
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

/// The median of some runs of every query, in milliseconds.
async fn measure<F: AsyncFnMut(&str) -> Result<(), String>>(runs: usize, mut query: F) -> Result<Vec<f64>, String> {
    let mut medians = Vec::new();
    for (_, sql) in QUERIES {
        let mut times = Vec::new();
        for _ in 0..runs + 1 {
            let started = Instant::now();
            query(sql).await?;
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
        times.remove(0);
        medians.push(median(times));
    }
    Ok(medians)
}

async fn run_all(
    db: &SqlDatabase,
    table: &Arc<DataTable>,
    sf: f64,
    runs: usize,
) -> Result<Vec<(&'static str, Vec<f64>)>, String> {
    let workload = TABLES.iter().find(|t| t.name == "lineitem").expect("a table of TPC-H");
    let mut session = Session::new(db);
    let mut results = Vec::new();
    let plain = {
        let schema = table.schema().arrow();
        let partitions = std::thread::available_parallelism().map_or(1, usize::from);
        let mut batches = vec![Vec::new(); partitions];
        for (i, batch) in workload.generate(sf, 8_192).enumerate() {
            let arrays =
                batch.columns().iter().zip(schema.fields()).map(|(array, field)| cast(array, field.data_type()));
            let arrays = arrays.collect::<Result<_, _>>().map_err(text)?;
            batches[i % partitions].push(RecordBatch::try_new(schema.clone(), arrays).map_err(text)?);
        }
        let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(partitions));
        let plain = MemTable::try_new(schema, batches).map_err(text)?;
        context.register_table("lineitem", Arc::new(plain)).map_err(text)?;
        measure(runs, async |sql| {
            let frame = context.sql(sql).await.map_err(text)?;
            frame.collect().await.map(drop).map_err(text)
        })
        .await?
    };
    results.push(("plain", plain));
    let mut serac = async |name| -> Result<(), String> {
        let times = measure(runs, async |sql| session.execute(sql).await.map(drop).map_err(text)).await?;
        results.push((name, times));
        Ok(())
    };
    serac("hot").await?;
    for format in [FreezeFormat::View, FreezeFormat::Utf8, FreezeFormat::Dictionary] {
        table.set_freeze_format(format);
        let (frozen, blocks) = db.database().storage().freeze_table(table, Duration::from_secs(60));
        if frozen < blocks {
            return Err(format!("{frozen} of {blocks} blocks froze"));
        }
        serac(format.name()).await?;
    }
    Ok(results)
}

pub fn run(sf: f64, runs: usize, report: &mut Report) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(text)?;
    let (db, table) = lineitem(sf, StorageOptions { freeze_after: None, ..StorageOptions::default() })?;
    let results = runtime.block_on(run_all(&db, &table.data, sf, runs))?;
    report
        .note("milliseconds; plain: record batches of 8192 rows in a MemTable; view, utf8, dictionary: frozen".into());
    for (i, (name, _)) in QUERIES.iter().enumerate() {
        let mut row = vec![("query", json!(name))];
        row.extend(results.iter().map(|(column, times)| (*column, json!(times[i]))));
        row.push(("view / plain", json!(results[2].1[i] / results[0].1[i])));
        report.row(&row);
    }
    Ok(())
}
