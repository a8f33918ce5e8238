//! The ordered index's tree beside other concurrent ordered structures: keys of three 64-bit
//! columns with a row id each, as an index of several columns has them. congee takes keys of 8
//! bytes alone, so it is shown with one column.

use crate::report::{Report, median};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serac_index::ordered::{Limit, OrderedIndex};
use serac_storage::RowId;
use serde_json::{Value as Json, json};
use std::hint::black_box;
use std::ops::{Bound, ControlFlow};
use std::time::Instant;

type Entry = [u64; 4];

#[derive(clap::Args, Debug)]
pub struct OrderedArguments {
    /// Entries.
    #[arg(long, default_value_t = 1_000_000)]
    entries: u64,
    /// Threads.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Runs of each structure, in turn.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// An ordered structure under test. Keys are the first three words.
trait Ordered: Sync {
    fn insert(&self, entry: Entry);
    /// The number of entries with the key.
    fn get(&self, key: Entry) -> u64;
    /// Visits `count` entries from `from` on.
    fn scan(&self, from: Entry, count: usize);
    fn remove(&self, entry: Entry);
}

fn bytes(entry: Entry) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes.chunks_exact_mut(8).zip(entry).for_each(|(out, word)| out.copy_from_slice(&word.to_be_bytes()));
    bytes
}
fn bounds([a, b, c, _]: Entry) -> (Entry, Entry) {
    ([a, b, c, 0], [a, b, c, u64::MAX])
}

struct Serac(OrderedIndex);
impl Ordered for Serac {
    fn insert(&self, entry: Entry) {
        self.0.insert(&bytes(entry), RowId::from_u64(entry[3]));
    }

    fn get(&self, key: Entry) -> u64 {
        let (key, mut found) = (bytes(key), 0);
        let _ = self.0.scan(Limit::before(&key), Limit::after(&key), false, |_, row| -> ControlFlow<()> {
            black_box(row);
            found += 1;
            ControlFlow::Continue(())
        });
        found
    }

    fn scan(&self, from: Entry, count: usize) {
        let mut left = count;
        let _ = self.0.scan(Limit::before(&bytes(from)), Limit::after(&[]), false, |_, row| {
            black_box(row);
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }

    fn remove(&self, entry: Entry) {
        self.0.remove(&bytes(entry), RowId::from_u64(entry[3]));
    }
}

#[derive(Default)]
struct SkipList(crossbeam_skiplist::SkipSet<Entry>);
impl Ordered for SkipList {
    fn insert(&self, entry: Entry) {
        self.0.insert(entry);
    }

    fn get(&self, key: Entry) -> u64 {
        let (from, to) = bounds(key);
        self.0.range::<Entry, _>((Bound::Included(from), Bound::Included(to))).count() as u64
    }

    fn scan(&self, from: Entry, count: usize) {
        self.0.range::<Entry, _>(from..).take(count).for_each(|entry| drop(black_box(entry)));
    }

    fn remove(&self, entry: Entry) {
        self.0.remove(&entry);
    }
}

#[derive(Default)]
struct TreeIndex(scc::TreeIndex<Entry, ()>);
impl Ordered for TreeIndex {
    fn insert(&self, entry: Entry) {
        let _ = self.0.insert_sync(entry, ());
    }

    fn get(&self, key: Entry) -> u64 {
        let (from, to) = bounds(key);
        self.0.range::<Entry, _>((Bound::Included(from), Bound::Included(to)), &scc::Guard::new()).count() as u64
    }

    fn scan(&self, from: Entry, count: usize) {
        let guard = scc::Guard::new();
        self.0.range::<Entry, _>(from.., &guard).take(count).for_each(|entry| {
            black_box(entry);
        });
    }

    fn remove(&self, entry: Entry) {
        self.0.remove_sync(&entry);
    }
}

/// The row id alone is the key.
#[derive(Default)]
struct Congee(congee::Congee<usize, usize>);
impl Ordered for Congee {
    fn insert(&self, entry: Entry) {
        let _ = self.0.insert(entry[3] as usize, entry[3] as usize, &self.0.pin());
    }

    fn get(&self, key: Entry) -> u64 {
        u64::from(self.0.get(&(key[3] as usize), &self.0.pin()).is_some())
    }

    fn scan(&self, from: Entry, count: usize) {
        let (from, mut out) = (from[3] as usize, vec![(0, 0); count]);
        black_box(self.0.range(&from, &(from + count), &mut out, &self.0.pin()));
    }

    fn remove(&self, entry: Entry) {
        black_box(self.0.remove(&(entry[3] as usize), &self.0.pin()));
    }
}

/// Warehouse, district and order, as in the keys of a workload, and a row id.
fn entry(number: u64) -> Entry {
    [number / 30_000 + 1, number / 3_000 % 10 + 1, number % 3_000, number + 1]
}

/// Nanoseconds per operation and thread of `operation`, which each thread does for its share of the
/// numbers.
fn time(threads: usize, numbers: &[u64], operation: impl Fn(u64) + Sync) -> f64 {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for share in numbers.chunks(numbers.len().div_ceil(threads)) {
            let operation = &operation;
            scope.spawn(move || share.iter().for_each(|&number| operation(number)));
        }
    });
    begun.elapsed().as_nanos() as f64 * threads as f64 / numbers.len() as f64
}

const OPERATIONS: [&str; 4] = ["insert ns", "get ns", "scan of 200 ns", "remove ns"];

fn measure(ordered: &dyn Ordered, threads: usize, numbers: &[u64], lookups: &[u64]) -> [f64; 4] {
    [
        time(threads, numbers, |number| ordered.insert(entry(number))),
        time(threads, lookups, |number| assert_eq!(ordered.get(entry(number)), 1)),
        time(threads, &lookups[..lookups.len() / 50], |number| ordered.scan(entry(number), 200)),
        time(threads, numbers, |number| ordered.remove(entry(number))),
    ]
}

pub fn run(arguments: &OrderedArguments, report: &mut Report) -> Result<(), String> {
    type Make = fn() -> Box<dyn Ordered>;
    let peers: [(&str, Make); 5] = [
        ("serac, keys up to 24 bytes", || Box::new(Serac(OrderedIndex::new(Some(24))))),
        ("serac, keys of any length", || Box::new(Serac(OrderedIndex::new(None)))),
        ("scc TreeIndex", || Box::<TreeIndex>::default()),
        ("crossbeam SkipSet", || Box::<SkipList>::default()),
        ("congee, 8-byte keys", || Box::<Congee>::default()),
    ];
    let mut rng = StdRng::seed_from_u64(1);
    let mut numbers: Vec<u64> = (0..arguments.entries).collect();
    numbers.shuffle(&mut rng);
    let lookups: Vec<u64> = (0..arguments.entries).map(|_| rng.random_range(0..arguments.entries)).collect();
    for &threads in &arguments.threads {
        let mut figures: Vec<Vec<[f64; 4]>> = peers.iter().map(|_| Vec::new()).collect();
        for _ in 0..arguments.rounds {
            for ((_, make), of_peer) in peers.iter().zip(&mut figures) {
                of_peer.push(measure(&*make(), threads, &numbers, &lookups));
            }
        }
        for ((name, _), of_peer) in peers.iter().zip(&figures) {
            let mut row: Vec<(&str, Json)> = vec![("structure", json!(name)), ("threads", json!(threads))];
            for (i, operation) in OPERATIONS.iter().enumerate() {
                row.push((operation, json!(median(of_peer.iter().map(|figures| figures[i]).collect()))));
            }
            report.row(&row);
        }
    }
    report.note("keys in random order; get and scan look the key up as a range".into());
    Ok(())
}
