//! Histories of concurrent sessions at each level of isolation, recorded and checked
//! ([`crate::histories`]). The objects are lists that are appended to, registers that are read and
//! overwritten, and sets that are searched and inserted into. A minute of each with
//! `SERAC_STRESS=1`.

use crate::histories::{Event, History, Level};
use rand::prelude::*;
use serac_engine::Database;
use serac_sql::{Prepared, Rows, Session, SqlDatabase, SqlError, SqlOptions, StatementResult};
use serac_storage::Value;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

const SESSIONS: usize = 4;
/// Objects that are used at a time.
const OBJECTS: usize = 4;
/// Writes after which an object is used no more.
const WRITES_PER_OBJECT: i64 = 40;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Workload {
    /// Reads, and appends of numbers to texts.
    Lists,
    /// Each write overwrites what the transaction has read.
    Registers,
    /// Searches by an index and inserts.
    Sets,
}

/// An operation, with the numbers that were seen and written.
#[derive(Clone, Debug)]
enum Step {
    Read(usize, Vec<i64>),
    Write(usize, i64),
}

struct Client<'r> {
    session: Session,
    runtime: &'r tokio::runtime::Runtime,
    rows: Rows,
    read: Prepared,
    write: Prepared,
    workload: Workload,
    begin: String,
}

impl<'r> Client<'r> {
    fn new(db: &SqlDatabase, runtime: &'r tokio::runtime::Runtime, workload: Workload, level: Level) -> Self {
        let mut session = Session::new(db);
        let (read, write) = match workload {
            Workload::Lists => ("SELECT v FROM lists WHERE k = $1", "UPDATE lists SET v = v || $2 WHERE k = $1"),
            Workload::Registers => ("SELECT v FROM registers WHERE k = $1", "UPDATE registers SET v = $2 WHERE k = $1"),
            Workload::Sets => ("SELECT v FROM sets WHERE k = $1", "INSERT INTO sets VALUES ($1, $2)"),
        };
        let (read, write) = (session.prepare(read).unwrap(), session.prepare(write).unwrap());
        let begin = match level {
            Level::ReadCommitted => "BEGIN ISOLATION LEVEL READ COMMITTED",
            Level::Snapshot => "BEGIN",
            Level::Serializable => "BEGIN ISOLATION LEVEL SERIALIZABLE",
        };
        Self { session, runtime, rows: Rows::default(), read, write, workload, begin: begin.into() }
    }

    fn execute(&mut self, sql: &str) -> Result<Vec<StatementResult>, SqlError> {
        self.runtime.block_on(self.session.execute(sql))
    }

    fn read(&mut self, object: usize) -> Result<Vec<i64>, SqlError> {
        let key = [Value::Int64(object as i64)];
        self.session.run_prepared(&mut self.read, &key, &mut self.rows)?.expect("a point statement");
        Ok((0..self.rows.len())
            .flat_map(|row| match self.rows.value(row, 0) {
                Value::Bytes(text) => {
                    let text = std::str::from_utf8(text).unwrap();
                    text.split(',').filter(|n| !n.is_empty()).map(|n| n.parse().unwrap()).collect::<Vec<i64>>()
                }
                Value::Int64(number) => vec![number],
                other => panic!("{other:?}"),
            })
            .collect())
    }

    fn write(&mut self, object: usize, number: i64) -> Result<(), SqlError> {
        let text = format!(",{number}");
        let value = match self.workload {
            Workload::Lists => Value::Bytes(text.as_bytes()),
            _ => Value::Int64(number),
        };
        let parameters = [Value::Int64(object as i64), value];
        if self.session.run_prepared(&mut self.write, &parameters, &mut self.rows)?.is_some() {
            return Ok(());
        }
        // A READ COMMITTED statement that has to wait.
        let value = match self.workload {
            Workload::Lists => text.clone().into(),
            _ => number.into(),
        };
        let parameters = [(object as i64).into(), value];
        self.runtime.block_on(self.session.execute_prepared(&mut self.write, &parameters)).map(|_| ())
    }

    /// One transaction on `objects`; `None` if it did not commit.
    fn transaction(&mut self, random: &mut StdRng, objects: &[usize], next: &AtomicI64) -> Option<Vec<Step>> {
        let begin = self.begin.clone();
        self.execute(&begin).unwrap();
        let mut steps = Vec::new();
        let chosen: Vec<usize> = (0..random.random_range(1..5)).map(|_| *objects.choose(random).unwrap()).collect();
        let result = chosen.into_iter().try_for_each(|object| {
            let write = random.random_bool(0.5);
            if !write || self.workload == Workload::Registers {
                let seen = self.read(object)?;
                steps.push(Step::Read(object, seen));
            }
            if random.random_bool(0.3) {
                std::thread::yield_now();
            }
            if write {
                let number = next.fetch_add(1, Ordering::Relaxed);
                self.write(object, number)?;
                steps.push(Step::Write(object, number));
            }
            Ok::<(), SqlError>(())
        });
        if let Err(error) = &result {
            assert!(matches!(error.sqlstate, "40001" | "40P01"), "{error}");
        }
        let commit = result.is_ok() && random.random_bool(0.95);
        match self.execute(if commit { "COMMIT" } else { "ROLLBACK" }) {
            Ok(_) => commit.then_some(steps),
            Err(error) => {
                assert_eq!(error.sqlstate, "40001", "{error}");
                None
            }
        }
    }
}

/// The steps as events of a history, with the versions that the numbers are. `last`: the final
/// content of the objects.
fn history(
    workload: Workload,
    done: Vec<(usize, Vec<Step>)>,
    last: &HashMap<usize, Vec<i64>>,
) -> Result<History, String> {
    // The versions of each object, in order.
    let mut versions: HashMap<(usize, i64), usize> = HashMap::new();
    match workload {
        Workload::Lists => {
            for (&object, list) in last {
                versions.extend(list.iter().enumerate().map(|(i, &number)| ((object, number), i + 1)));
            }
        }
        Workload::Registers => {
            let mut next: HashMap<(usize, i64), i64> = HashMap::new();
            for (_, steps) in &done {
                for pair in steps.windows(2) {
                    if let [Step::Read(object, seen), Step::Write(_, number)] = pair
                        && let Some(other) = next.insert((*object, seen[0]), *number)
                    {
                        return Err(format!("lost update: {other} and {number} overwrote {} of {object}", seen[0]));
                    }
                }
            }
            for &object in last.keys() {
                let (mut number, mut version) = (0, 0);
                while let Some(&following) = next.get(&(object, number)) {
                    version += 1;
                    versions.insert((object, following), version);
                    number = following;
                }
            }
        }
        Workload::Sets => {}
    }
    let mut history = History::default();
    for (session, steps) in done {
        let mut own: Vec<i64> = Vec::new();
        let mut events = Vec::new();
        for step in steps {
            match step {
                Step::Read(set, mut elements) if workload == Workload::Sets => {
                    elements.retain(|element| !own.contains(element));
                    events.push(Event::Find { set, elements });
                }
                Step::Write(set, element) if workload == Workload::Sets => {
                    own.push(element);
                    events.push(Event::Insert { set, element });
                }
                Step::Read(object, seen) => {
                    if workload == Workload::Lists && !last[&object].starts_with(&seen) {
                        return Err(format!("{seen:?} was read of {object}, whose versions are {:?}", last[&object]));
                    }
                    // Its own write is no dependency.
                    let version = match seen.last() {
                        Some(number) if own.contains(number) => continue,
                        None | Some(0) => 0,
                        Some(number) => match versions.get(&(object, *number)) {
                            Some(version) => *version,
                            None => return Err(format!("G1a: {number} was read of {object}")),
                        },
                    };
                    events.push(Event::Read { object, version });
                }
                Step::Write(object, number) => {
                    own.push(number);
                    let version = versions.get(&(object, number));
                    let version = *version.ok_or_else(|| format!("{number} of {object} is lost"))?;
                    events.push(Event::Write { object, version });
                }
            }
        }
        history.transactions.push((session, events));
    }
    Ok(history)
}

fn storm(workload: Workload, level: Level, time: Duration) {
    let db = SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions { threads: Some(1), ..Default::default() });
    let db = db.unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime
        .block_on(Session::new(&db).execute(
            "CREATE TABLE lists (k BIGINT PRIMARY KEY, v TEXT NOT NULL);
             CREATE TABLE registers (k BIGINT PRIMARY KEY, v BIGINT NOT NULL);
             CREATE TABLE sets (k BIGINT, v BIGINT, PRIMARY KEY (k, v));
             INSERT INTO lists SELECT value, '' FROM generate_series(0, 9999) AS s (value);
             INSERT INTO registers SELECT value, 0 FROM generate_series(0, 9999) AS s (value)",
        ))
        .unwrap();
    let seed = serac_testing::seed();
    let next = AtomicI64::new(1);
    let (done, tried) = (Mutex::new(Vec::new()), AtomicI64::new(0));
    let end = Instant::now() + time;
    // A history is checked when its objects are used up: 10,000 of them at the most.
    let limit = (10_000 / OBJECTS - 1) as i64 * WRITES_PER_OBJECT * OBJECTS as i64;
    std::thread::scope(|scope| {
        for session in 0..SESSIONS {
            let (db, runtime, next, done, tried) = (&db, &runtime, &next, &done, &tried);
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(seed ^ session as u64);
                let mut client = Client::new(db, runtime, workload, level);
                while Instant::now() < end && next.load(Ordering::Relaxed) < limit {
                    let first = next.load(Ordering::Relaxed) / (WRITES_PER_OBJECT * OBJECTS as i64) * OBJECTS as i64;
                    let objects: Vec<usize> = (first as usize..first as usize + OBJECTS).collect();
                    tried.fetch_add(1, Ordering::Relaxed);
                    if let Some(steps) = client.transaction(&mut random, &objects, next) {
                        done.lock().unwrap().push((session, steps));
                    }
                }
            });
        }
    });
    let mut client = Client::new(&db, &runtime, workload, level);
    let used = (next.load(Ordering::Relaxed) / WRITES_PER_OBJECT) as usize + 2 * OBJECTS;
    let last: HashMap<usize, Vec<i64>> = (0..used).map(|object| (object, client.read(object).unwrap())).collect();
    // Each session's transactions are in its order; between sessions the order says nothing.
    let done = done.into_inner().unwrap();
    let (committed, tried) = (done.len(), tried.into_inner());
    let checked = history(workload, done, &last).and_then(|history| history.check(level));
    checked.unwrap_or_else(|violation| panic!("{workload:?} at {level:?}, seed {seed}: {violation}"));
    println!("{workload:?} at {level:?}: {committed} of {tried} transactions committed");
    assert!(committed > 20, "{committed} of {tried} committed");
}

fn time() -> Duration {
    if serac_testing::stress() { Duration::from_secs(60) } else { Duration::from_millis(500) }
}

#[test]
fn serializable_histories_have_no_cycle() {
    for workload in [Workload::Lists, Workload::Registers, Workload::Sets] {
        storm(workload, Level::Serializable, time());
    }
}

#[test]
fn snapshot_histories_have_no_cycle_but_of_adjacent_anti_dependencies() {
    for workload in [Workload::Lists, Workload::Registers, Workload::Sets] {
        storm(workload, Level::Snapshot, time());
    }
}

#[test]
fn read_committed_histories_have_no_cycle_of_dependencies() {
    for workload in [Workload::Lists, Workload::Sets] {
        storm(workload, Level::ReadCommitted, time());
    }
}
