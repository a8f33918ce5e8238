//! The transactions: those of pgbench's TPC-B-like script, each with a row that numbers it.

use super::freshness::Clients;
use crate::affinity::pin_this_thread;
use crate::pg_client::{Client, Failure};
use crate::setup::thread_cpu_seconds;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::{Duration, Instant};

/// Tellers and accounts of a branch.
const TELLERS: i64 = 10;
const ACCOUNTS: i64 = 100_000;
/// The most attempts of one transaction.
const MOST_ATTEMPTS: usize = 1_000;

/// The statements that make the tables, for a number of branches and of clients.
pub fn tables(scale: u32, clients: usize) -> Vec<String> {
    let (tellers, accounts) = (i64::from(scale) * TELLERS, i64::from(scale) * ACCOUNTS);
    vec![
        "CREATE TABLE pgbench_branches (bid INTEGER PRIMARY KEY, bbalance BIGINT NOT NULL, filler CHAR(88))".into(),
        "CREATE TABLE pgbench_tellers (tid INTEGER PRIMARY KEY, bid INTEGER NOT NULL, tbalance BIGINT NOT NULL, \
         filler CHAR(84))"
            .into(),
        "CREATE TABLE pgbench_accounts (aid INTEGER PRIMARY KEY, bid INTEGER NOT NULL, abalance BIGINT NOT NULL, \
         filler CHAR(84))"
            .into(),
        "CREATE TABLE pgbench_history (tid INTEGER, bid INTEGER, aid INTEGER, delta BIGINT, mtime TIMESTAMP, \
         filler CHAR(22))"
            .into(),
        "CREATE TABLE progress (client INTEGER PRIMARY KEY, number BIGINT NOT NULL, micros BIGINT NOT NULL, \
         moved BIGINT NOT NULL)"
            .into(),
        format!("INSERT INTO pgbench_branches SELECT x, 0, '' FROM generate_series(1, {scale}) AS a (x)"),
        format!(
            "INSERT INTO pgbench_tellers SELECT x, (x - 1) / {TELLERS} + 1, 0, '' \
             FROM generate_series(1, {tellers}) AS a (x)"
        ),
        format!(
            "INSERT INTO pgbench_accounts SELECT x, (x - 1) / {ACCOUNTS} + 1, 0, '' \
             FROM generate_series(1, {accounts}) AS a (x)"
        ),
        format!("INSERT INTO progress SELECT x, 0, 0, 0 FROM generate_series(0, {}) AS a (x)", clients - 1),
    ]
}

const STATEMENTS: [(&str, &str); 8] = [
    ("begin", "BEGIN"),
    ("account", "UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2"),
    ("balance", "SELECT abalance FROM pgbench_accounts WHERE aid = $1"),
    ("teller", "UPDATE pgbench_tellers SET tbalance = tbalance + $1 WHERE tid = $2"),
    ("branch", "UPDATE pgbench_branches SET bbalance = bbalance + $1 WHERE bid = $2"),
    ("history", "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)"),
    ("progress", "UPDATE progress SET number = $1, micros = $2, moved = moved + $3 WHERE client = $4"),
    ("commit", "COMMIT"),
];

/// A client with its connection.
pub struct Terminal {
    client: Client,
    number: usize,
    scale: i64,
    random: StdRng,
    transactions: u64,
}

/// The transactions of some terminals in a phase.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// All of them.
    pub transactions: usize,
    /// Seconds of processor time that the clients have used for all of them.
    pub cpu_seconds: f64,
    /// Microseconds of each measured transaction.
    pub latencies: Vec<f64>,
    /// Attempts after conflicts of the measured transactions.
    pub retries: usize,
}

impl Terminal {
    pub fn connect(address: &str, number: usize, scale: u32) -> Result<Self, String> {
        let mut client = Client::new(address)?;
        for (name, sql) in STATEMENTS {
            client.prepare(name, sql)?;
        }
        let random = StdRng::seed_from_u64(number as u64);
        Ok(Self { client, number, scale: scale.into(), random, transactions: 0 })
    }

    /// One transaction, again after conflicts. Returns the number of conflicts.
    fn transaction(&mut self, clients: &Clients) -> Result<usize, String> {
        let counter = clients.counter(self.number);
        self.transactions += 1;
        counter.begin(self.transactions);
        let account = self.random.random_range(1..=self.scale * ACCOUNTS);
        let teller = self.random.random_range(1..=self.scale * TELLERS);
        let branch = self.random.random_range(1..=self.scale);
        let delta = self.random.random_range(-5_000..=5_000);
        for conflicts in 0..MOST_ATTEMPTS {
            match self.attempt(clients, account, teller, branch, delta) {
                Ok(()) => {
                    counter.acknowledge(self.transactions);
                    return Ok(conflicts);
                }
                Err(Failure::Refused(error))
                    if [sqlstate::SERIALIZATION_FAILURE, sqlstate::DEADLOCK_DETECTED].contains(&&*error.code) =>
                {
                    self.client.simple("ROLLBACK")?;
                }
                Err(failure) => return Err(failure.into()),
            }
        }
        Err(format!("a transaction has met {MOST_ATTEMPTS} conflicts"))
    }

    fn attempt(
        &mut self,
        clients: &Clients,
        account: i64,
        teller: i64,
        branch: i64,
        delta: i64,
    ) -> Result<(), Failure> {
        let (client, number) = (&mut self.client, self.transactions as i64);
        client.execute("begin", &[])?;
        client.execute("account", &[delta, account])?;
        client.execute("balance", &[account])?;
        client.execute("teller", &[delta, teller])?;
        client.execute("branch", &[delta, branch])?;
        client.execute("history", &[teller, branch, account, delta])?;
        client.execute("progress", &[number, clients.micros(), delta, self.number as i64])?;
        client.execute("commit", &[])
    }
}

/// Lets all terminals work from now until `end`, each on a thread of its own on the first
/// processor. Transactions that begin before `from` are not measured.
pub fn work(terminals: &mut [Terminal], clients: &Clients, from: Instant, end: Instant) -> Result<Work, String> {
    let work = |terminal: &mut Terminal| -> Result<Work, String> {
        pin_this_thread(0)?;
        let (mut work, cpu_begun) = (Work::default(), thread_cpu_seconds());
        let mut begun = Instant::now();
        while begun < end {
            let conflicts = terminal.transaction(clients)?;
            let done = Instant::now();
            work.transactions += 1;
            if begun >= from {
                work.latencies.push((done - begun).as_secs_f64() * 1e6);
                work.retries += conflicts;
            }
            begun = done;
        }
        work.cpu_seconds = thread_cpu_seconds() - cpu_begun;
        Ok(work)
    };
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = terminals.iter_mut().map(|terminal| scope.spawn(move || work(terminal))).collect();
        let mut all = Work::default();
        let results: Vec<_> =
            threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect();
        for result in results {
            let one = result?;
            all.transactions += one.transactions;
            all.cpu_seconds += one.cpu_seconds;
            all.latencies.extend(one.latencies);
            all.retries += one.retries;
        }
        Ok(all)
    })
}

/// The time at the beginning of a phase in which nothing is measured: half a second, or less in a
/// short phase.
pub fn settling(seconds: f64) -> Duration {
    Duration::from_secs_f64((seconds / 4.0).min(0.5))
}
