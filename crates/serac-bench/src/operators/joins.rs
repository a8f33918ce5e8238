//! Joins of two vectors of keys, beside DuckDB's.

use super::{Recorder, duckdb, milliseconds};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_operators::join::{JoinMethod, join_on_threads};
use serde_json::{Value as Json, json};
use std::convert::Infallible;

/// The most pairs of a join, so that its result fits the memory of a small machine.
const MOST_PAIRS: usize = 200_000_000;

pub(super) fn run(recorder: &mut Recorder<'_>) -> Result<(), String> {
    let probing = recorder.arguments.rows;
    let mut rng = StdRng::seed_from_u64(1);
    let most_threads = recorder.arguments.threads.iter().copied().max().unwrap_or(1);
    let mut peer = duckdb(recorder, most_threads);
    recorder.chart("Joins: smaller side with distinct keys", "keys of the smaller side", "ms", true);
    for (shape, repeats) in [("n:1", 1), ("n:m, 8 of a key", 8)] {
        for part in [10_000, 100, 10, 1] {
            let built = probing / part;
            if built == 0 || probing.saturating_mul(repeats) > MOST_PAIRS {
                continue;
            }
            let keys = (built / repeats).max(1) as i64;
            let left: Vec<i64> = (0..built as i64).map(|at| at % keys).collect();
            let right: Vec<i64> = (0..probing).map(|_| rng.random_range(0..keys * 2)).collect();
            let sizes = [("shape", json!(shape)), ("smaller side", json!(built)), ("larger side", json!(probing))];
            for (name, method) in [
                ("nested loop", JoinMethod::NestedLoop),
                ("block nested loop", JoinMethod::BlockNestedLoop),
                ("naive hash", JoinMethod::NaiveHash),
                ("Grace", JoinMethod::Grace),
                ("hash", JoinMethod::Hash),
            ] {
                let is_loop = matches!(method, JoinMethod::NestedLoop | JoinMethod::BlockNestedLoop);
                if is_loop && built.saturating_mul(probing) > 1 << 32 {
                    continue;
                }
                for &threads in &recorder.arguments.threads {
                    let mut pairs = 0;
                    let ms = milliseconds(recorder.arguments.runs, || {
                        let Ok((l, _)) = join_on_threads::<Infallible>(&left, &right, method, threads, &|_| Ok(()));
                        pairs = l.len();
                        Ok(())
                    })?;
                    record(recorder, &sizes, name, threads, Some(pairs), ms);
                    if repeats == 1 {
                        recorder.point(&format!("{name}, {threads} threads"), built as f64, ms);
                    }
                }
            }
            let Some(peer) = &mut peer else { continue };
            // The same keys on the smaller side, and keys of the same distribution on the larger
            // one.
            peer.ask(&format!("control CREATE OR REPLACE TABLE l AS SELECT range % {keys} AS k FROM range({built})"))?;
            let other = format!("SELECT (hash(range) % {})::BIGINT AS k FROM range({probing})", keys * 2);
            peer.ask(&format!("control CREATE OR REPLACE TABLE r AS {other}"))?;
            for (name, sql) in [
                ("DuckDB, count", "SELECT count(*) FROM l JOIN r USING (k)"),
                (
                    "DuckDB, row ids",
                    "control CREATE OR REPLACE TEMP TABLE p AS SELECT l.rowid AS a, r.rowid AS b FROM l JOIN r USING (k)",
                ),
            ] {
                let ms = milliseconds(recorder.arguments.runs, || peer.ask(sql).map(|_| ()))?;
                record(recorder, &sizes, name, most_threads, None, ms);
                if repeats == 1 {
                    recorder.point(&format!("{name}, {most_threads} threads"), built as f64, ms);
                }
            }
        }
    }
    Ok(())
}

fn record(
    recorder: &mut Recorder<'_>,
    sizes: &[(&'static str, Json); 3],
    method: &str,
    threads: usize,
    pairs: Option<usize>,
    ms: f64,
) {
    let keys = (sizes[1].1.as_u64().unwrap_or(0) + sizes[2].1.as_u64().unwrap_or(0)) as f64;
    let mut row = sizes.to_vec();
    row.extend([
        ("method", json!(method)),
        ("threads", json!(threads)),
        ("pairs", json!(pairs)),
        ("ms", json!(ms)),
        ("ns a key", json!(ms * 1e6 / keys)),
    ]);
    recorder.row(&row);
}
