//! The memory and build time of a bitmap index, and the time of its queries when nothing else runs.

use super::peers::{Ours, key, row_id};
use crate::report::{Report, median};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_index::cubit::{Bitvector, Builder, Cubit, Key, Options, Predicate};
use serac_storage::Timestamp;
use serac_storage::version::transaction::TransactionManager;
use serde_json::json;
use std::ops::Bound;
use std::time::Instant;

/// Median microseconds of some runs.
fn time<T>(runs: usize, mut f: impl FnMut() -> T) -> f64 {
    let run = |_| {
        let started = Instant::now();
        std::hint::black_box(f());
        started.elapsed().as_secs_f64() * 1e6
    };
    median((0..runs).map(run).collect())
}

/// Builds indexes of several cardinalities over `rows` rows, and asks them.
pub fn sizes(rows: u64, report: &mut Report) -> Result<(), String> {
    for cardinality in [10usize, 100, 2526, 10_000, 60_000] {
        let mut rng = StdRng::seed_from_u64(3);
        let column: Vec<u16> = (0..rows).map(|_| rng.random_range(0..cardinality) as u16).collect();
        let started = Instant::now();
        let ours = Ours::new(&column, cardinality, Options::default(), false);
        let build = started.elapsed().as_secs_f64();
        let (index, manager) = (&ours.index, ours.manager());
        let txn = manager.begin();
        let view = txn.snapshot();
        let one = key(cardinality / 2);
        let (low, high) = (key(cardinality / 4), key(cardinality / 4 + cardinality * 365 / 2526));
        let range = Predicate::Range(Bound::Included(&low), Bound::Excluded(&high));
        let equals = Predicate::Equals(&one);
        let vectors: Vec<Bitvector> = (0..cardinality * 365 / 2526)
            .map(|i| index.query(Predicate::Equals(&key(cardinality / 4 + i)), view, None))
            .collect();
        let statistics = index.statistics();
        report.row(&[
            ("values", json!(cardinality)),
            ("build M rows/s", json!(rows as f64 / build / 1e6)),
            ("bytes/row", json!(statistics.bytes as f64 / rows as f64)),
            ("count µs", json!(time(1001, || index.count(equals, view, None)))),
            ("vector µs", json!(time(1001, || index.query(equals, view, None)))),
            ("row ids µs", json!(time(51, || index.query(equals, view, None).rows()))),
            ("range values", json!(vectors.len())),
            ("range count µs", json!(time(101, || index.count(range, view, None)))),
            ("range vector µs", json!(time(21, || index.query(range, view, None)))),
            ("OR one by one µs", json!(time(5, || Bitvector::or_many(&vectors.iter().collect::<Vec<_>>())))),
            (
                "counts of all µs",
                json!(time(21, || { index.counts(Predicate::Range(Bound::Unbounded, Bound::Unbounded), view, None) })),
            ),
        ]);
    }
    // Keys of a fact table: four rows each, in order.
    let manager = TransactionManager::new(Timestamp(1), None);
    let (values, mut builder) = (rows / 4, Builder::default());
    let value_key = |value: u64| Key::new(&[&[1], &((value * 4) ^ 1 << 63).to_be_bytes()[..]].concat());
    let started = Instant::now();
    for row in 0..rows {
        builder.push(&value_key(row / 4), row_id(row));
    }
    let index: Cubit = builder.finish(manager.now(), manager.clone(), Options::default());
    let build = started.elapsed().as_secs_f64();
    let bytes = index.statistics().bytes as f64;
    let txn = manager.begin();
    let mut rng = StdRng::seed_from_u64(5);
    let mut keys: Vec<u64> = (0..values / 42).map(|_| rng.random_range(0..values)).collect();
    keys.sort_unstable();
    keys.dedup();
    let keys: Vec<Key> = keys.into_iter().map(value_key).collect();
    let started = Instant::now();
    let found = index.query(Predicate::In(&keys), txn.snapshot(), None).cardinality();
    let join = started.elapsed().as_secs_f64() * 1e3;
    report.note(format!(
        "{values} values of 4 rows in order: built at {:.1} M rows/s, {:.1} bytes per value and 4 per row; a set of {} values gives {found} rows in {join:.1} ms",
        rows as f64 / build / 1e6,
        (bytes - 4.0 * rows as f64) / values as f64,
        keys.len(),
    ));
    Ok(())
}
