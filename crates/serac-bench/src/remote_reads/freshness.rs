//! The figures and the promises of snapshots that readers take beside transactions.
//!
//! Each client numbers its transactions. In every transaction it writes the number, the time and
//! the sum of all amounts that it has moved into a row of its own. A snapshot's row tells a reader
//! the client's latest transaction in the snapshot.
//!
//! ```text
//! client:   begun = n ─▶ UPDATE progress … n ─▶ COMMIT ─▶ acknowledged = n
//! reader:         acknowledged is read ─▶ a snapshot is asked for ─▶ it is there ─▶ begun is read
//! ```
//! A snapshot has every transaction that was acknowledged before it was asked for, and none that
//! began after it was there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The numbers of one client's transactions.
#[derive(Debug, Default)]
pub struct Counter {
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

impl Counter {
    pub fn begin(&self, number: u64) {
        // Release: pairs with the Acquire in `Clients::begun`.
        self.begun.store(number, Ordering::Release);
    }

    pub fn acknowledge(&self, number: u64) {
        // Release: pairs with the Acquire in `Clients::acknowledged`.
        self.acknowledged.store(number, Ordering::Release);
    }
}

/// The counters of all clients, and the clock that they share with the readers.
#[derive(Debug)]
pub struct Clients {
    counters: Vec<Counter>,
    epoch: Instant,
}

impl Clients {
    pub fn new(count: usize) -> Self {
        Self { counters: (0..count).map(|_| Counter::default()).collect(), epoch: Instant::now() }
    }

    pub fn counter(&self, client: usize) -> &Counter {
        &self.counters[client]
    }

    /// Microseconds on the shared clock.
    pub fn micros(&self) -> i64 {
        self.epoch.elapsed().as_micros() as i64
    }

    pub fn begun(&self) -> Vec<u64> {
        self.counters.iter().map(|counter| counter.begun.load(Ordering::Acquire)).collect()
    }

    pub fn acknowledged(&self) -> Vec<u64> {
        self.counters.iter().map(|counter| counter.acknowledged.load(Ordering::Acquire)).collect()
    }
}

/// A client's row in a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub client: i32,
    /// The latest transaction.
    pub number: i64,
    /// When it was about to commit, on the shared clock; 0 before the first transaction.
    pub micros: i64,
    /// The sum of all amounts that the client has moved.
    pub moved: i64,
}

/// The times and the counters around the taking of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Taking {
    /// Acknowledged transactions of each client before the snapshot was asked for.
    pub acknowledged: Vec<u64>,
    /// Begun transactions of each client when the snapshot was there.
    pub begun: Vec<u64>,
    /// When the snapshot was asked for, in microseconds of the shared clock.
    pub asked: i64,
    /// When it was there.
    pub taken: i64,
}

/// The figures and the broken promises of all snapshots.
#[derive(Clone, Debug, Default)]
pub struct Freshness {
    pub snapshots: usize,
    /// Milliseconds from the newest transaction of each snapshot to the moment when the reader has
    /// the snapshot. It is at most that old.
    pub ages: Vec<f64>,
    /// Milliseconds from the request of each snapshot to its answer.
    pub requests: Vec<f64>,
    /// A text for each broken promise.
    pub violations: Vec<String>,
}

impl Freshness {
    /// Judges the clients' rows in a snapshot.
    pub fn judge(&mut self, taking: &Taking, rows: &[Progress]) {
        self.snapshots += 1;
        self.requests.push((taking.taken - taking.asked) as f64 / 1e3);
        if let Some(newest) = rows.iter().map(|row| row.micros).max().filter(|newest| *newest > 0) {
            // A commit may come between the snapshot and its answer, not before the snapshot.
            self.ages.push((taking.taken - newest) as f64 / 1e3);
        }
        let bounds = taking.acknowledged.iter().zip(&taking.begun);
        for (client, (acknowledged, begun)) in bounds.enumerate() {
            let mut own = rows.iter().filter(|row| row.client as usize == client);
            match (own.next(), own.next()) {
                (Some(row), None) if row.number < *acknowledged as i64 => self.violations.push(format!(
                    "client {client}: transaction {acknowledged} was acknowledged, and the snapshot ends with {}",
                    row.number
                )),
                (Some(row), None) if row.number > *begun as i64 => self.violations.push(format!(
                    "client {client}: transaction {begun} was the last to begin, and the snapshot has {}",
                    row.number
                )),
                (Some(_), None) => {}
                _ => self.violations.push(format!("client {client}: the snapshot does not have one row of it")),
            }
        }
    }

    /// Judges whether figures that must be the same in one snapshot are so.
    pub fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, expected: &T, found: &T) {
        if expected != found {
            self.violations.push(format!("{what}: {expected:?} and {found:?} in one snapshot"));
        }
    }

    pub fn add(&mut self, other: Self) {
        self.snapshots += other.snapshots;
        self.ages.extend(other.ages);
        self.requests.extend(other.requests);
        self.violations.extend(other.violations);
    }

    /// An error if a promise was broken.
    pub fn check(&self) -> Result<(), String> {
        match self.violations.first() {
            None => Ok(()),
            Some(first) => Err(format!(
                "{} broken promises in {} snapshots; the first: {first}",
                self.violations.len(),
                self.snapshots
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taking() -> Taking {
        Taking { acknowledged: vec![5, 7], begun: vec![6, 9], asked: 10_000, taken: 12_000 }
    }

    fn rows(numbers: [i64; 2]) -> Vec<Progress> {
        let row = |(client, number)| Progress { client, number, micros: 9_000 + i64::from(client) * 500, moved: 0 };
        (0..).zip(numbers).map(row).collect()
    }

    #[test]
    fn a_snapshot_between_the_bounds_keeps_its_promises() {
        for numbers in [[5, 7], [6, 9], [5, 8]] {
            let mut freshness = Freshness::default();
            freshness.judge(&taking(), &rows(numbers));
            freshness.check().unwrap();
            assert_eq!(
                (freshness.snapshots, &freshness.ages[..], &freshness.requests[..]),
                (1, &[2.5][..], &[2.0][..])
            );
        }
    }

    #[test]
    fn a_missing_acknowledged_transaction_is_a_violation() {
        let mut freshness = Freshness::default();
        freshness.judge(&taking(), &rows([5, 6]));
        freshness.judge(&taking(), &rows([4, 7]));
        assert_eq!(freshness.violations.len(), 2);
        assert!(freshness.check().unwrap_err().contains("client 1: transaction 7 was acknowledged"));
    }

    #[test]
    fn a_transaction_of_later_is_a_violation() {
        let mut freshness = Freshness::default();
        freshness.judge(&taking(), &rows([7, 7]));
        assert!(freshness.check().unwrap_err().contains("client 0: transaction 6 was the last to begin"));
    }

    #[test]
    fn a_client_has_one_row() {
        let mut freshness = Freshness::default();
        freshness.judge(&taking(), &rows([5, 7])[..1]);
        freshness.judge(&taking(), &[rows([5, 7]), rows([5, 7])].concat());
        assert_eq!(freshness.violations.len(), 3);
    }

    #[test]
    fn figures_that_differ_are_a_violation() {
        let mut freshness = Freshness::default();
        freshness.same("sums", &4, &4);
        assert!(freshness.check().is_ok());
        freshness.same("sums", &4, &5);
        let mut all = Freshness::default();
        all.add(freshness);
        assert!(all.check().unwrap_err().contains("sums: 4 and 5"));
    }
}
