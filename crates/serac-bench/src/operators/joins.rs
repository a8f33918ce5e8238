//! Joins of two vectors of keys.

use super::{Recorder, milliseconds};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_operators::join::{JoinMethod, join_on_threads};
use serde_json::json;
use std::convert::Infallible;

/// Pairs of a join at the most, so that its result fits the memory of a small machine.
const MOST_PAIRS: usize = 200_000_000;

pub(super) fn run(recorder: &mut Recorder<'_>) -> Result<(), String> {
    let probing = recorder.arguments.rows;
    let mut rng = StdRng::seed_from_u64(1);
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
                    recorder.row(&[
                        ("shape", json!(shape)),
                        ("smaller side", json!(built)),
                        ("larger side", json!(probing)),
                        ("method", json!(name)),
                        ("threads", json!(threads)),
                        ("pairs", json!(pairs)),
                        ("ms", json!(ms)),
                        ("ns a key", json!(ms * 1e6 / (built + probing) as f64)),
                    ]);
                    if repeats == 1 {
                        recorder.point(&format!("{name}, {threads} threads"), built as f64, ms);
                    }
                }
            }
        }
    }
    Ok(())
}
