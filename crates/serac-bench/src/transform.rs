//! Transactions beside the transformation of cold blocks (figure 10 of the paper), and the price of
//! the cold threshold.

use crate::report::{Report, median};
use crate::setup::{Folder, OneTable, cpu_seconds, text, thread_cpu_seconds};
use arrow::array::{Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use indicatif::ProgressBar;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_engine::{Database, EngineError, Table, Transaction};
use serac_storage::block::{Block, Temperature};
use serac_storage::{
    BlockNo, ColumnId, ColumnSchema, ColumnType, DataTable, Durability, FreezeFormat, RowBuffer, RowId, Storage,
    StorageError, StorageOptions, TableId, TableSchema, Value,
};
use serde_json::{Value as Json, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(clap::Args, Debug)]
pub struct TransformArguments {
    /// orders: new orders with their lines, payments, deliveries and reads, as fast as they go.
    /// uniform: updates of single rows all over a table, at a fixed rate.
    #[arg(long, default_value = "orders")]
    workload: String,
    /// Numbers of worker threads.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    workers: Vec<usize>,
    /// Cold thresholds in milliseconds, each compared with no transformation.
    #[arg(long, value_delimiter = ',', default_value = "10,10000")]
    thresholds: Vec<u64>,
    /// Formats to freeze for, each with each threshold: view (gather), utf8, dictionary, compact.
    #[arg(long, value_delimiter = ',', default_value = "view,dictionary")]
    formats: Vec<FreezeFormat>,
    /// Collector threads.
    #[arg(long)]
    gc_threads: Option<usize>,
    /// Seconds per run.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Runs of each kind, in turn.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Orders of a worker that wait for their delivery, once it has made so many.
    #[arg(long, default_value_t = 9_000)]
    undelivered: i64,
    /// uniform: updates per second and worker.
    #[arg(long, default_value_t = 2_000)]
    rate: u64,
    /// uniform: rows.
    #[arg(long, default_value_t = 4_000_000)]
    rows: usize,
    /// orders: with a log (relaxed durability).
    #[arg(long)]
    log: bool,
}

/// The settings that are compared: no transformation, or one at a threshold into a format.
type Kind = Option<(Duration, FreezeFormat)>;

/// The figures of a run.
struct Outcome {
    rate: f64,
    /// Microseconds of processor time of the workers per transaction. It does not include the wait
    /// for a processor, or the work of the collectors, except work that a worker does for them.
    worker_cpu: f64,
    /// A figure for each column of the workload's own.
    figures: Vec<(String, f64)>,
}

pub fn run(arguments: &TransformArguments, report: &mut Report) -> Result<(), String> {
    let measure: fn(&TransformArguments, usize, Kind) -> Result<Outcome, String> = match arguments.workload.as_str() {
        "orders" => orders,
        "uniform" => uniform,
        other => return Err(format!("no workload \"{other}\": orders or uniform")),
    };
    let mut kinds: Vec<Kind> = vec![None];
    for &format in &arguments.formats {
        kinds.extend(arguments.thresholds.iter().map(|&ms| Some((Duration::from_millis(ms), format))));
    }
    report.note("of off: the median over the rounds of the ratio to the run without transformation in the same round, and its extremes".into());
    let bar = ProgressBar::new((arguments.workers.len() * arguments.rounds * kinds.len()) as u64);
    for &workers in &arguments.workers {
        let mut outcomes: Vec<Vec<Outcome>> = kinds.iter().map(|_| Vec::new()).collect();
        for round in 0..arguments.rounds {
            // The kinds take turns at being the first of a round, so that the state of the machine
            // affects all alike.
            for kind in (0..kinds.len()).map(|i| (i + round) % kinds.len()) {
                outcomes[kind].push(measure(arguments, workers, kinds[kind])?);
                bar.inc(1);
            }
        }
        for (kind, of_kind) in kinds.iter().zip(&outcomes) {
            let each = |figure: &dyn Fn(&Outcome) -> f64| median(of_kind.iter().map(figure).collect());
            let ratios = |figure: fn(&Outcome) -> f64| {
                let mut ratios: Vec<f64> =
                    of_kind.iter().zip(&outcomes[0]).map(|(a, b)| figure(a) / figure(b)).collect();
                ratios.sort_by(f64::total_cmp);
                format!("{:.3} ({:.2}–{:.2})", median(ratios.clone()), ratios[0], ratios[ratios.len() - 1])
            };
            let (threshold, format) = match kind {
                None => ("off".into(), "–"),
                Some((threshold, format)) => (format!("{} ms", threshold.as_millis()), format.name()),
            };
            let unit = if arguments.workload == "orders" { "transactions/s" } else { "updates/s while busy" };
            let mut row: Vec<(&str, Json)> = vec![
                ("workers", json!(workers)),
                ("threshold", json!(threshold)),
                ("format", json!(format)),
                (unit, json!(each(&|outcome| outcome.rate))),
                ("of off", json!(ratios(|outcome| outcome.rate))),
                ("worker CPU µs", json!(each(&|outcome| outcome.worker_cpu))),
                ("CPU of off", json!(ratios(|outcome| outcome.worker_cpu))),
            ];
            let names: Vec<String> = of_kind[0].figures.iter().map(|(name, _)| name.clone()).collect();
            for (i, name) in names.iter().enumerate() {
                row.push((name, json!(each(&|outcome| outcome.figures[i].1))));
            }
            report.row(&row);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn options(arguments: &TransformArguments, kind: Kind) -> StorageOptions {
    let default = StorageOptions::default();
    StorageOptions {
        durability: Durability::Off,
        gc_threads: arguments.gc_threads.unwrap_or(default.gc_threads),
        freeze_after: kind.map(|(threshold, _)| threshold),
        ..default
    }
}

/// The share of a table's frozen blocks, and the share of its blocks that are frozen, cooling or
/// freezing.
pub fn shares(table: &DataTable) -> (f64, f64) {
    let (mut frozen, mut cooling, mut all) = (0, 0, 0);
    for block in (0..table.block_count()).filter_map(|no| table.block(BlockNo(no))) {
        all += 1;
        match &*block {
            Block::Frozen(_) => frozen += 1,
            Block::Hot(block) => cooling += u32::from(block.temperature() != Temperature::Hot),
        }
    }
    let of_all = |n: u32| f64::from(n) / f64::from(all.max(1));
    (of_all(frozen), of_all(frozen + cooling))
}

// ---- orders

const ORDER_TABLES: [(&str, &str); 3] = [
    (
        "orders",
        "CREATE TABLE orders (o_w_id INTEGER NOT NULL, o_id BIGINT NOT NULL, o_c_id INTEGER NOT NULL, o_entry_d TIMESTAMP NOT NULL, \
         o_carrier_id INTEGER, o_ol_cnt INTEGER NOT NULL, o_all_local INTEGER NOT NULL, PRIMARY KEY (o_w_id, o_id))",
    ),
    (
        "order_line",
        "CREATE TABLE order_line (ol_w_id INTEGER NOT NULL, ol_o_id BIGINT NOT NULL, ol_number INTEGER NOT NULL, ol_i_id INTEGER NOT NULL, \
         ol_supply_w_id INTEGER NOT NULL, ol_delivery_d TIMESTAMP, ol_quantity INTEGER NOT NULL, ol_amount DECIMAL(6, 2) NOT NULL, \
         ol_dist_info CHAR(24) NOT NULL, PRIMARY KEY (ol_w_id, ol_o_id, ol_number))",
    ),
    (
        "history",
        "CREATE TABLE history (h_w_id INTEGER NOT NULL, h_c_id INTEGER NOT NULL, h_date TIMESTAMP NOT NULL, h_amount DECIMAL(6, 2) NOT NULL, \
         h_data VARCHAR(24) NOT NULL)",
    ),
];
const ORDERS_PER_DELIVERY: i64 = 10;
const ORDERS_PER_STOCK_LEVEL: i64 = 20;

/// One client, with a warehouse of its own.
struct Client {
    database: Database,
    warehouse: i32,
    rng: StdRng,
    orders: Arc<Table>,
    order_line: Arc<Table>,
    history: Arc<Table>,
    next_order: i64,
    next_delivery: i64,
    undelivered: i64,
}

fn letters(rng: &mut StdRng, out: &mut [u8]) {
    out.iter_mut().for_each(|byte| *byte = b'a' + rng.random_range(0..26));
}

impl Client {
    fn transaction(&mut self) -> Result<(), EngineError> {
        let mut txn = self.database.begin();
        match self.rng.random_range(0..100) {
            0..45 => self.new_order(&mut txn)?,
            45..88 => self.payment(&mut txn)?,
            88..92 => self.delivery(&mut txn)?,
            92..96 => self.read_orders(&txn, 1)?,
            _ => self.read_orders(&txn, ORDERS_PER_STOCK_LEVEL)?,
        }
        txn.commit()?;
        Ok(())
    }

    fn new_order(&mut self, txn: &mut Transaction) -> Result<(), EngineError> {
        let (id, lines, now) = (self.next_order, self.rng.random_range(5..=15), self.next_order);
        let [w, customer] = [self.warehouse, self.rng.random_range(0..30_000)];
        let order = [
            Value::Int32(w),
            Value::Int64(id),
            Value::Int32(customer),
            Value::Int64(now),
            Value::Null,
            Value::Int32(lines),
            Value::Int32(1),
        ];
        txn.insert_row(&self.orders, &order)?;
        for number in 1..=lines {
            let mut info = [0; 24];
            letters(&mut self.rng, &mut info);
            let line = [
                Value::Int32(w),
                Value::Int64(id),
                Value::Int32(number),
                Value::Int32(self.rng.random_range(0..100_000)),
                Value::Int32(w),
                Value::Null,
                Value::Int32(5),
                Value::Int64(self.rng.random_range(1..999_999)),
                Value::Bytes(&info),
            ];
            txn.insert_row(&self.order_line, &line)?;
        }
        self.next_order += 1;
        Ok(())
    }

    fn payment(&mut self, txn: &mut Transaction) -> Result<(), EngineError> {
        let mut data = [0; 24];
        let len = self.rng.random_range(12..=24);
        letters(&mut self.rng, &mut data[..len]);
        let customer = self.rng.random_range(0..30_000);
        let row = [
            Value::Int32(self.warehouse),
            Value::Int32(customer),
            Value::Int64(self.next_order),
            Value::Int64(self.rng.random_range(100..500_000)),
            Value::Bytes(&data[..len]),
        ];
        txn.insert_row(&self.history, &row)?;
        Ok(())
    }

    /// The row of an order and those of its lines.
    fn find(&self, txn: &Transaction, id: i64) -> Result<(Vec<RowId>, Vec<RowId>), EngineError> {
        let key = [Value::Int32(self.warehouse), Value::Int64(id)];
        let order = txn.lookup(&self.orders, &self.orders.indexes[0], &key)?;
        let mut buffer = RowBuffer::default();
        let count = match order.first() {
            Some(&row) if txn.read_row(&self.orders, row, &mut buffer)? => match buffer.value(5) {
                Value::Int32(count) => count,
                other => unreachable!("an integer, not {other:?}"),
            },
            _ => 0,
        };
        let mut lines = Vec::new();
        for number in 1..=count {
            let key = [key[0], key[1], Value::Int32(number)];
            lines.extend(txn.lookup(&self.order_line, &self.order_line.indexes[0], &key)?);
        }
        Ok((order, lines))
    }

    fn delivery(&mut self, txn: &mut Transaction) -> Result<(), EngineError> {
        for _ in 0..ORDERS_PER_DELIVERY {
            if self.next_order - self.next_delivery <= self.undelivered {
                return Ok(());
            }
            let (order, lines) = self.find(txn, self.next_delivery)?;
            let carrier = batch("o_carrier_id", Arc::new(arrow::array::Int32Array::from(vec![7; order.len()])));
            txn.update_batch(&self.orders, &order, &[4], &carrier)?;
            let dates = TimestampMicrosecondArray::from(vec![self.next_order; lines.len()]);
            txn.update_batch(&self.order_line, &lines, &[5], &batch("ol_delivery_d", Arc::new(dates)))?;
            self.next_delivery += 1;
        }
        Ok(())
    }

    fn read_orders(&mut self, txn: &Transaction, count: i64) -> Result<(), EngineError> {
        let mut buffer = RowBuffer::default();
        for id in (self.next_order - count).max(0)..self.next_order {
            for row in self.find(txn, id)?.1 {
                std::hint::black_box(txn.read_row(&self.order_line, row, &mut buffer)?);
            }
        }
        Ok(())
    }
}

fn batch(name: &str, array: arrow::array::ArrayRef) -> RecordBatch {
    RecordBatch::try_from_iter([(name, array)]).expect("one column")
}

fn orders(arguments: &TransformArguments, workers: usize, kind: Kind) -> Result<Outcome, String> {
    let folder = Folder::new("transform");
    let mut options = options(arguments, kind);
    if arguments.log {
        (options.path, options.durability) = (Some(folder.0.clone()), Durability::Relaxed);
    }
    let database = Database::open_with(options).map_err(text)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
    let sql = serac_sql::SqlDatabase::new(database.clone(), &serac_sql::SqlOptions::default()).map_err(text)?;
    let mut session = serac_sql::Session::new(&sql);
    for (_, create) in ORDER_TABLES {
        runtime.block_on(session.execute(create)).map_err(text)?;
    }
    drop((session, sql));
    let catalog = database.catalog();
    let table = |name: &str| catalog.table("public", name).map_err(text).cloned();
    let [orders, order_line, history] = [table("orders")?, table("order_line")?, table("history")?];
    if let Some((_, format)) = kind {
        [&orders, &order_line, &history].into_iter().for_each(|table| table.data.set_freeze_format(format));
    }
    let stop = AtomicBool::new(false);
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let (done, worker_cpu): (u64, f64) = std::thread::scope(|scope| {
        let work = |warehouse: usize| {
            let mut client = Client {
                database: database.clone(),
                warehouse: warehouse as i32,
                rng: StdRng::seed_from_u64(warehouse as u64),
                orders: orders.clone(),
                order_line: order_line.clone(),
                history: history.clone(),
                next_order: 0,
                next_delivery: 0,
                undelivered: arguments.undelivered,
            };
            let stop = &stop;
            scope.spawn(move || -> Result<(u64, f64), EngineError> {
                let mut done = 0;
                while !stop.load(Ordering::Relaxed) {
                    client.transaction()?;
                    done += 1;
                }
                Ok((done, thread_cpu_seconds()))
            })
        };
        let threads: Vec<_> = (0..workers).map(work).collect();
        std::thread::sleep(Duration::from_secs_f64(arguments.seconds));
        stop.store(true, Ordering::Relaxed);
        let results: Result<Vec<_>, _> =
            threads.into_iter().map(|thread| thread.join().expect("a worker does not panic")).collect();
        results.map(|all| all.into_iter().fold((0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1)))
    })
    .map_err(text)?;
    let rate = done as f64 / started.elapsed().as_secs_f64();
    let mut figures = vec![("all CPU µs".to_owned(), (cpu_seconds() - cpu) * 1e6 / done as f64)];
    for (name, table) in [("order", &orders), ("order_line", &order_line), ("history", &history)] {
        let (frozen, _) = shares(&table.data);
        figures.push((format!("{name} blocks"), f64::from(table.data.block_count())));
        figures.push((format!("{name} frozen"), frozen));
    }
    database.close().map_err(text)?;
    Ok(Outcome { rate, worker_cpu: worker_cpu * 1e6 / done as f64, figures })
}

// ---- uniform

fn uniform(arguments: &TransformArguments, workers: usize, kind: Kind) -> Result<Outcome, String> {
    let column = |name: &str, column_type| ColumnSchema { name: name.into(), column_type, nullable: true };
    let schema = TableSchema {
        columns: vec![
            column("id", ColumnType::Int64),
            column("balance", ColumnType::Int64),
            column("name", ColumnType::Utf8),
        ],
    };
    let (storage, _) = Storage::open(options(arguments, kind), &mut OneTable(schema.clone())).map_err(text)?;
    let table = storage.create_table(TableId(1), "t", schema).map_err(text)?;
    let mut ids: Vec<u64> = Vec::with_capacity(arguments.rows);
    for from in (0..arguments.rows).step_by(65_536) {
        let numbers = from as i64..(from + 65_536).min(arguments.rows) as i64;
        let names: StringArray = numbers.clone().map(|i| Some(format!("a customer named {i:07}"))).collect();
        let id: Int64Array = numbers.collect::<Vec<_>>().into();
        let batch = RecordBatch::try_from_iter([
            ("id", Arc::new(id.clone()) as _),
            ("b", Arc::new(id) as _),
            ("n", Arc::new(names) as _),
        ]);
        let mut txn = storage.begin();
        ids.extend(table.append(&mut txn, &batch.map_err(text)?).map_err(text)?.into_iter().flatten());
        txn.commit().map_err(text)?;
    }
    // The run begins in the state to which the threshold leads.
    if let Some((_, format)) = kind {
        table.set_freeze_format(format);
        storage.freeze_table(&table, Duration::from_secs(30));
    }
    let (stop, cpu) = (AtomicBool::new(false), cpu_seconds());
    let (done, busy, worker_cpu): (u64, f64, f64) = std::thread::scope(|scope| {
        let work = |worker: usize| {
            let (storage, table, ids, stop) = (&storage, &table, &ids, &stop);
            scope.spawn(move || -> Result<(u64, f64, f64), StorageError> {
                let mut rng = StdRng::seed_from_u64(worker as u64);
                let (started, mut busy, mut done) = (Instant::now(), Duration::ZERO, 0u64);
                while !stop.load(Ordering::Relaxed) {
                    let due = (started.elapsed().as_secs_f64() * arguments.rate as f64) as u64;
                    let begun = Instant::now();
                    while done < due && !stop.load(Ordering::Relaxed) {
                        let row = RowId::from_u64(ids[rng.random_range(0..ids.len())]);
                        let mut txn = storage.begin();
                        match table.update(&mut txn, row, &[ColumnId(1)], &[Value::Int64(done as i64)]) {
                            Ok(()) => txn.commit().map(|_| ())?,
                            Err(StorageError::WriteConflict { .. }) => {}
                            Err(error) => return Err(error),
                        }
                        done += 1;
                    }
                    busy += begun.elapsed();
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok((done, busy.as_secs_f64(), thread_cpu_seconds()))
            })
        };
        let threads: Vec<_> = (0..workers).map(work).collect();
        std::thread::sleep(Duration::from_secs_f64(arguments.seconds));
        stop.store(true, Ordering::Relaxed);
        let results: Result<Vec<_>, _> =
            threads.into_iter().map(|thread| thread.join().expect("a worker does not panic")).collect();
        results.map(|all| all.into_iter().fold((0, 0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2)))
    })
    .map_err(text)?;
    let (frozen, on_the_way) = shares(&table);
    let figures = vec![
        ("all CPU µs".to_owned(), (cpu_seconds() - cpu) * 1e6 / done as f64),
        ("updates/s asked for".to_owned(), (arguments.rate * workers as u64) as f64),
        ("blocks".to_owned(), f64::from(table.block_count())),
        ("frozen".to_owned(), frozen),
        ("frozen or cooling".to_owned(), on_the_way),
        ("MB".to_owned(), table.metrics().bytes as f64 / 1e6),
    ];
    storage.close().map_err(text)?;
    Ok(Outcome { rate: done as f64 / busy, worker_cpu: worker_cpu * 1e6 / done as f64, figures })
}
