//! Threads that work for terminals.

use super::database::{COLD_TABLES, Loaded};
use super::procedures::{Answer, INVALID_ITEM, Procedures, StockLevel};
use super::queries::{Acknowledged, Answered, ask};
use crate::affinity::{self, KeptFree};
use crate::report::median;
use crate::setup::{cpu_seconds, text, thread_cpu_seconds};
use crate::transform::shares;
use serac_engine::{Database, EngineError, RetryPolicy};
use serac_storage::CommitTicket;
use serac_workload::tpcc::{Input, Terminal};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// A run.
pub struct Run {
    pub threads: usize,
    pub warehouses: i32,
    /// Transactions of a thread that wait for the log at the most.
    pub clients: usize,
    pub time: Duration,
    pub stock_level: StockLevel,
    pub print_orders: bool,
    /// Whether queries are asked meanwhile.
    pub queries: bool,
    /// Whether workers have processors of their own.
    pub pin: bool,
}

/// The figures of a run.
pub struct Outcome {
    pub seconds: f64,
    /// Acknowledged transactions, including those that had to be rolled back.
    pub transactions: u64,
    pub new_orders: u64,
    pub retries: u64,
    /// Microseconds of processor time of the worker per transaction.
    pub worker_cpu: f64,
    /// Microseconds of processor time of all threads per transaction.
    pub all_cpu: f64,
    /// Microseconds until the acknowledgement at the 50th, 99th and 99.9th percentile.
    pub latencies: [f64; 3],
    /// Median of Stock-Level, in microseconds.
    pub stock_level_median: f64,
    /// The rate of the queries beside the transactions.
    pub queries_per_second: f64,
    /// Their median, in milliseconds.
    pub query_median: f64,
    /// For each cold table, the shares of blocks that are cooling or freezing, and of those that
    /// are frozen.
    pub shares: [(f64, f64); 4],
}

impl Outcome {
    pub fn per_second(&self) -> f64 {
        self.transactions as f64 / self.seconds
    }
}

#[derive(Default)]
struct Counted {
    transactions: u64,
    new_orders: u64,
    retries: u64,
    cpu: f64,
    nanoseconds: Vec<u32>,
    stock_level: Vec<u32>,
}

/// A transaction whose acknowledgement its client waits for.
struct Waiting {
    begun: Instant,
    ticket: CommitTicket,
    answer: Answer,
}

struct Worker<'r> {
    database: &'r Database,
    procedures: &'r Procedures,
    run: &'r Run,
    terminal: Terminal,
    waiting: VecDeque<Waiting>,
    counted: Counted,
    acknowledged: &'r Acknowledged,
}

impl Worker<'_> {
    fn acknowledge(&mut self) -> Result<(), String> {
        let Some(Waiting { begun, ticket, answer }) = self.waiting.pop_front() else { return Ok(()) };
        ticket.wait().map_err(text)?;
        self.counted.transactions += 1;
        self.counted.nanoseconds.push(begun.elapsed().as_nanos().min(u32::MAX.into()) as u32);
        if let Answer::NewOrder(district, number) = answer {
            self.counted.new_orders += 1;
            // Release: pairs with the Acquire of the queries' thread.
            self.acknowledged.fetch_add(1, Ordering::Release);
            if self.run.print_orders {
                let line = format!("order {} {district} {number}\n", self.terminal.warehouse);
                std::io::stdout().write_all(line.as_bytes()).map_err(text)?;
            }
        }
        Ok(())
    }

    fn transaction(&mut self) -> Result<(), String> {
        let input = self.terminal.next_input();
        let (begun, attempts) = (Instant::now(), Cell::new(0));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(text)?.as_micros() as i64;
        let policy = RetryPolicy { attempts: 10_000, ..Default::default() };
        let outcome = self.database.transact_with(&policy, |txn| {
            attempts.set(attempts.get() + 1);
            self.procedures.run(txn, self.terminal.warehouse, &input, now)
        });
        self.counted.retries += attempts.get() - 1;
        match outcome {
            Ok((answer, ticket)) => self.waiting.push_back(Waiting { begun, ticket, answer }),
            Err(EngineError::Raised(message)) if message == INVALID_ITEM => self.counted.transactions += 1,
            Err(error) => return Err(text(error)),
        }
        if matches!(input, Input::StockLevel { .. }) {
            self.counted.stock_level.push(begun.elapsed().as_nanos().min(u32::MAX.into()) as u32);
        }
        if self.waiting.len() >= self.run.clients { self.acknowledge() } else { Ok(()) }
    }
}

/// Lets the workers work for some time.
pub fn run(loaded: &Loaded, run: &Run) -> Result<Outcome, String> {
    let database = &loaded.database;
    let _kept_free = if run.pin { Some(KeptFree::new(run.threads)?) } else { None };
    let acknowledged = Acknowledged::new(0);
    let procedures = Procedures::new(run.stock_level);
    let stop = AtomicBool::new(false);
    let (started, cpu) = (Instant::now(), cpu_seconds());
    type Results = Result<(Vec<(Counted, Duration)>, Answered), String>;
    let results: Results = std::thread::scope(|scope| {
        let queries = run.queries.then(|| scope.spawn(|| ask(loaded, &acknowledged, &stop)));
        let work = |thread: usize| {
            let terminal = Terminal::new(thread as i32 % run.warehouses + 1, run.warehouses, thread as u64 + 1);
            let mut worker = Worker {
                database,
                procedures: &procedures,
                run,
                terminal,
                waiting: VecDeque::new(),
                counted: Counted::default(),
                acknowledged: &acknowledged,
            };
            let stop = &stop;
            scope.spawn(move || {
                if run.pin {
                    affinity::pin_this_thread(thread)?;
                }
                while !stop.load(Ordering::Relaxed) {
                    worker.transaction()?;
                }
                while !worker.waiting.is_empty() {
                    worker.acknowledge()?;
                }
                worker.counted.cpu = thread_cpu_seconds();
                Ok((worker.counted, started.elapsed()))
            })
        };
        let threads: Vec<_> = (0..run.threads).map(work).collect();
        // Ends early if a worker has failed.
        while started.elapsed() < run.time && !threads.iter().any(|thread| thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
        let results: Result<Vec<_>, String> =
            threads.into_iter().map(|thread| thread.join().expect("a worker does not panic")).collect();
        let answered = queries.map(|queries| queries.join().expect("asking does not panic")).transpose()?;
        Ok((results?, answered.unwrap_or_default()))
    });
    let (results, answered) = results?;
    let all_cpu = cpu_seconds() - cpu;
    let mut all = Counted::default();
    let mut seconds = 0.0f64;
    for (counted, time) in results {
        seconds = seconds.max(time.as_secs_f64());
        all.transactions += counted.transactions;
        all.new_orders += counted.new_orders;
        all.retries += counted.retries;
        all.cpu += counted.cpu;
        all.nanoseconds.extend(counted.nanoseconds);
        all.stock_level.extend(counted.stock_level);
    }
    let percentile = |values: &mut Vec<u32>, share: f64| {
        let at = (values.len() as f64 * share) as usize;
        if values.is_empty() { 0.0 } else { f64::from(*values.select_nth_unstable(at).1) / 1e3 }
    };
    let catalog = database.catalog();
    let share = |name: &str| {
        let table = catalog.table("public", name).expect("a table of TPC-C");
        let (frozen, on_the_way) = shares(&table.data);
        (on_the_way - frozen, frozen)
    };
    Ok(Outcome {
        seconds,
        transactions: all.transactions,
        new_orders: all.new_orders,
        retries: all.retries,
        worker_cpu: all.cpu * 1e6 / all.transactions as f64,
        all_cpu: all_cpu * 1e6 / all.transactions as f64,
        latencies: [0.5, 0.99, 0.999].map(|share| percentile(&mut all.nanoseconds, share)),
        queries_per_second: answered.queries as f64 / seconds,
        query_median: if answered.queries > 0 { median(answered.latencies) } else { 0.0 },
        stock_level_median: percentile(&mut all.stock_level, 0.5),
        shares: COLD_TABLES.map(share),
    })
}
