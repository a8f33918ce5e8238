//! Figures 4, 5 and 7: batches by heuristic and threads; and 100 selects beside DuckDB.

use super::language::{Client, batch, bounds, write_csv};
use super::{Recorder, duckdb, milliseconds};
use crate::setup::Folder;
use serde_json::{Value as Json, json};

/// A client with a table `d.t` of some columns.
fn client(rows: usize, columns: &[&str]) -> Result<(Client, Folder), String> {
    let folder = Folder::new("operators");
    let path = folder.0.join("t.csv");
    write_csv(&path, "t", columns, rows)?;
    let mut client = Client::new()?;
    client.create_table("t", columns)?;
    client.run(&format!("load(\"{}\")", path.display()))?;
    Ok((client, folder))
}

fn select(at: usize, selects: usize, share: f64) -> String {
    let (low, high) = bounds(at, selects, share);
    format!("s{at}=select(d.t.a,{low},{high})")
}

/// The share of the work that runs in parallel, from a speed-up by Amdahl's law.
fn amdahl(speedup: f64, threads: usize) -> Json {
    if threads < 2 {
        return Json::Null;
    }
    let threads = threads as f64;
    json!((1.0 - 1.0 / speedup) * threads / (threads - 1.0))
}

/// The report's time with this number of threads.
fn of_report(figures: &[(usize, f64)], threads: usize) -> Json {
    figures.iter().find(|(with, _)| *with == threads).map_or(Json::Null, |(_, ms)| json!(ms))
}

/// Figure 4: a level of 20 selects, and a graph of five levels, by threads.
pub(super) fn breadth(recorder: &mut Recorder<'_>) -> Result<(), String> {
    const SELECTS: usize = 20;
    const REPORT_SELECTS: [(usize, f64); 8] =
        [(1, 4200.0), (2, 2200.0), (3, 1550.0), (4, 1200.0), (5, 1000.0), (6, 880.0), (7, 800.0), (16, 550.0)];
    const REPORT_LEVELS: [(usize, f64); 9] =
        [(1, 2170.0), (2, 1250.0), (3, 950.0), (4, 815.0), (5, 765.0), (6, 615.0), (7, 580.0), (8, 580.0), (16, 595.0)];
    let (mut client, _folder) = client(recorder.arguments.rows, &["a", "b"])?;
    client.run("set(batch_heuristic,breadth)")?;
    let level: Vec<String> = (0..SELECTS).map(|at| select(at, SELECTS, 0.1)).collect();
    let levels: Vec<String> = (0..6)
        .map(|at| select(at, 6, 0.2))
        .chain(
            [
                "f0=fetch(d.t.a,s0)",
                "f1=fetch(d.t.b,s0)",
                "f2=fetch(d.t.a,s1)",
                "f3=fetch(d.t.b,s1)",
                "a0=add(f0,f1)",
                "a1=add(f2,f3)",
                "m0=sum(a0)",
                "m1=sum(a1)",
                "m=add(m0,m1)",
            ]
            .map(String::from),
        )
        .collect();
    for (name, statements, report) in
        [("20 selects", &level, &REPORT_SELECTS[..]), ("6, 4, 2, 2 and 1 operators", &levels, &REPORT_LEVELS[..])]
    {
        recorder.chart(&format!("Breadth, {name} (figure 4)"), "threads", "ms", false);
        let mut alone = None;
        for &threads in &recorder.arguments.threads {
            client.run(&format!("set(threads,{threads})"))?;
            let ms = milliseconds(recorder.arguments.runs, || client.run(&batch(statements)).map(|_| ()))?;
            let speedup = *alone.get_or_insert(ms) / ms;
            recorder.row(&[
                ("graph", json!(name)),
                ("threads", json!(threads)),
                ("ms", json!(ms)),
                ("speed-up", json!(speedup)),
                ("parallel part", amdahl(speedup, threads)),
                ("report ms", of_report(report, threads)),
            ]);
            recorder.point("ours", threads as f64, ms);
        }
        report.iter().for_each(|&(threads, ms)| recorder.point("report", threads as f64, ms));
    }
    Ok(())
}

/// The slope of a line through points, by least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let (above, below) = points.iter().fold((0.0, 0.0), |(above, below), point| {
        (above + (point.0 - x) * (point.1 - y), below + (point.0 - x).powi(2))
    });
    above / below
}

/// Figure 5: the time of a batch by the number of its queries, and that of a query by threads.
pub(super) fn queries(recorder: &mut Recorder<'_>) -> Result<(), String> {
    const REPORT: [(usize, f64); 6] = [(1, 175.0), (2, 92.0), (4, 46.0), (8, 23.5), (16, 21.0), (32, 21.0)];
    let (mut client, _folder) = client(recorder.arguments.rows, &["a"])?;
    client.run("set(batch_heuristic,breadth)")?;
    recorder.chart("Breadth by the number of queries (figure 5)", "queries", "ms", false);
    for &threads in &recorder.arguments.threads {
        client.run(&format!("set(threads,{threads})"))?;
        let mut points = Vec::new();
        for queries in [4, 8, 16, 24, 32] {
            let statements: Vec<String> = (0..queries).map(|at| select(at, queries, 0.1)).collect();
            let ms = milliseconds(recorder.arguments.runs, || client.run(&batch(&statements)).map(|_| ()))?;
            points.push((queries as f64, ms));
            recorder.point(&format!("{threads} threads"), queries as f64, ms);
        }
        recorder.row(&[
            ("threads", json!(threads)),
            ("ms of 32 queries", json!(points.last().map(|point| point.1))),
            ("ms a query", json!(slope(&points))),
            ("report ms a query", of_report(&REPORT, threads)),
        ]);
    }
    Ok(())
}

/// Figure 7: ten selects by their mean selectivity and the heuristic.
pub(super) fn heuristics(recorder: &mut Recorder<'_>) -> Result<(), String> {
    const SELECTS: usize = 10;
    const SHARES: [f64; 9] = [0.26, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.96];
    let heuristics = [
        ("breadth", "breadth", "auto", "off", [101.0, 158.0, 246.0, 286.0, 307.0, 305.0, 306.0, 304.0, 314.0]),
        (
            "NO_BLOCK, inverse",
            "breadth_multiselect",
            "no_block",
            "on",
            [91.0, 112.0, 180.0, 213.0, 163.0, 141.0, 89.0, 61.0, 40.0],
        ),
        (
            "BLOCK, inverse",
            "breadth_multiselect",
            "block",
            "on",
            [106.0, 180.0, 350.0, 392.0, 329.0, 256.0, 128.0, 90.0, 50.0],
        ),
        (
            "BLOCK",
            "breadth_multiselect",
            "block",
            "off",
            [78.0, 108.0, 173.0, 227.0, 239.0, 252.0, 280.0, 254.0, 266.0],
        ),
        ("smart", "smart", "auto", "auto", [81.0, 107.0, 181.0, 190.0, 159.0, 140.0, 86.0, 61.0, 39.0]),
    ];
    let (mut client, _folder) = client(recorder.arguments.rows, &["a"])?;
    for &threads in &recorder.arguments.threads {
        recorder.chart(&format!("Ten selects, {threads} threads (figure 7)"), "mean selectivity", "ms", false);
        client.run(&format!("set(threads,{threads})"))?;
        for (name, heuristic, append, inverse, report) in &heuristics {
            client
                .run(&format!("set(batch_heuristic,{heuristic})\nset(multiselect,{append})\nset(inverse,{inverse})"))?;
            for (&share, report_ms) in SHARES.iter().zip(report) {
                // Around the mean, a percent apart.
                let own = |at: usize| (share + (at as f64 - 4.5) * 0.008).min(1.0);
                let statements: Vec<String> = (0..SELECTS).map(|at| select(at, SELECTS, own(at))).collect();
                let ms = milliseconds(recorder.arguments.runs, || client.run(&batch(&statements)).map(|_| ()))?;
                recorder.row(&[
                    ("heuristic", json!(name)),
                    ("threads", json!(threads)),
                    ("mean selectivity", json!(share)),
                    ("ms", json!(ms)),
                    ("report ms, 16 threads", json!(report_ms)),
                ]);
                recorder.point(name, share, ms);
            }
        }
    }
    recorder.chart("Ten selects, as the report has them (figure 7)", "mean selectivity", "ms", false);
    for (name, .., report) in &heuristics {
        SHARES.iter().zip(report).for_each(|(share, ms)| recorder.point(name, *share, *ms));
    }
    Ok(())
}

/// 100 selects as a batch, one by one by one thread and by more, and in DuckDB.
pub(super) fn hundred(recorder: &mut Recorder<'_>) -> Result<(), String> {
    const SELECTS: usize = 100;
    let (mut client, folder) = client(recorder.arguments.rows, &["a"])?;
    let threads = recorder.arguments.threads.iter().copied().max().unwrap_or(1);
    let mut peer = duckdb(recorder, threads);
    if let Some(peer) = &mut peer {
        let path = folder.0.join("t.csv");
        peer.ask(&format!("control CREATE TABLE t AS SELECT column0 AS a FROM read_csv('{}', header = false, skip = 1, columns = {{'column0': 'INTEGER'}})", path.display()))?;
    }
    recorder.chart("100 selects (what must be shown, 2)", "selectivity", "ms", true);
    let runs = recorder.arguments.runs;
    for share in [0.001, 0.01, 0.1, 0.5, 0.9] {
        let statements: Vec<String> = (0..SELECTS).map(|at| select(at, SELECTS, share)).collect();
        client.run("set(threads,1)")?;
        let alone = milliseconds(runs, || client.run(&statements.join("\n")).map(|_| ()))?;
        let batched_alone = milliseconds(runs, || client.run(&batch(&statements)).map(|_| ()))?;
        client.run(&format!("set(threads,{threads})"))?;
        let single: Vec<String> = statements.iter().map(|one| batch(std::slice::from_ref(one))).collect();
        let apart = milliseconds(runs, || client.run(&single.join("\n")).map(|_| ()))?;
        let batched = milliseconds(runs, || client.run(&batch(&statements)).map(|_| ()))?;
        let (mut counts, mut positions) = (Json::Null, Json::Null);
        if let Some(peer) = &mut peer {
            let mut all = |sql: &dyn Fn(i64, i64) -> String| {
                milliseconds(runs, || {
                    (0..SELECTS).try_for_each(|at| {
                        let (low, high) = bounds(at, SELECTS, share);
                        peer.ask(&sql(low, high)).map(|_| ())
                    })
                })
            };
            counts = json!(all(&|low, high| format!("SELECT count(*) FROM t WHERE a >= {low} AND a < {high}"))?);
            positions = json!(all(&|low, high| format!(
                "control CREATE OR REPLACE TEMP TABLE p AS SELECT rowid AS r FROM t WHERE a >= {low} AND a < {high}"
            ))?);
        }
        let against = |ms: &Json| ms.as_f64().map_or(Json::Null, |ms| json!(ms / batched));
        recorder.row(&[
            ("selectivity", json!(share)),
            ("threads", json!(threads)),
            ("one by one, 1 thread ms", json!(alone)),
            ("batch, 1 thread ms", json!(batched_alone)),
            ("factor (goal 5)", json!(alone / batched_alone)),
            ("one by one ms", json!(apart)),
            ("batch ms", json!(batched)),
            ("factor (goal 1.5)", json!(apart / batched)),
            ("DuckDB, counts ms", counts.clone()),
            ("DuckDB, row ids ms", positions.clone()),
            ("factor to counts", against(&counts)),
            ("factor to row ids (goal 3)", against(&positions)),
        ]);
        recorder.point("one by one, 1 thread", share, alone);
        recorder.point("batch, 1 thread", share, batched_alone);
        recorder.point(&format!("one by one, {threads} threads"), share, apart);
        recorder.point(&format!("batch, {threads} threads"), share, batched);
        for (name, ms) in [("DuckDB, counts", &counts), ("DuckDB, row ids", &positions)] {
            ms.as_f64().into_iter().for_each(|ms| recorder.point(name, share, ms));
        }
    }
    Ok(())
}
