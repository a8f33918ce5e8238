//! Durable commits per second: SeracDB, SQLite and PostgreSQL in turn, on the same disk, each with
//! the same number of connections.

use crate::postgres::{Cluster, Installation, PostgresArguments};
use crate::report::Report;
use crate::setup::{Folder, open, schema, text};
use rusqlite::Connection;
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions};
use serac_storage::{ColumnType, Durability, Value};
use serde_json::{Value as Json, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The number of commits, and the seconds that they took.
struct Counted {
    commits: u64,
    seconds: f64,
}

impl Counted {
    fn per_second(&self) -> f64 {
        self.commits as f64 / self.seconds
    }
}

/// Lets every connection commit on a thread of its own for some time. A connection commits once per
/// call, and returns when the commit is durable.
fn count_commits<C>(connections: Vec<C>, time: Duration) -> Result<Counted, String>
where
    C: FnMut() -> Result<(), String> + Send,
{
    let (stop, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    let started = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = connections
            .into_iter()
            .map(|mut commit| {
                let (stop, commits) = (&stop, &commits);
                scope.spawn(move || -> Result<(), String> {
                    while !stop.load(Ordering::Relaxed) {
                        commit()?;
                        commits.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        std::thread::sleep(time);
        // Read before the threads end: commits that they finish after the time do not count.
        let counted = Counted { commits: commits.load(Ordering::Relaxed), seconds: started.elapsed().as_secs_f64() };
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a connection panicked")?)?;
        Ok(counted)
    })
}

/// Through the embedded API of the storage. Also returns the commits per sync of the log.
fn serac(path: &Path, connections: usize, time: Duration) -> Result<(f64, f64), String> {
    let (storage, table) = open(Some(path.to_owned()), Durability::Full, &schema(1, ColumnType::Int64))?;
    let syncs_before = storage.metrics().log_syncs;
    let connection = || {
        let (storage, table) = (storage.clone(), table.clone());
        move || {
            let mut txn = storage.begin();
            table.insert(&mut txn, &[Value::Int64(1)]).map_err(text)?;
            txn.commit().map_err(text)?.wait().map_err(text).map(|_| ())
        }
    };
    let counted = count_commits((0..connections).map(|_| connection()).collect(), time)?;
    let syncs = storage.metrics().log_syncs - syncs_before;
    storage.close().map_err(text)?;
    Ok((counted.per_second(), counted.commits as f64 / syncs.max(1) as f64))
}

/// Through SQL: sessions that parse, plan and run the statement as text each time.
fn serac_sql(path: &Path, connections: usize, time: Duration) -> Result<f64, String> {
    let db = SqlDatabase::new(Database::open(path).map_err(text)?, &SqlOptions::default()).map_err(text)?;
    let runtime = tokio::runtime::Runtime::new().map_err(text)?;
    runtime.block_on(Session::new(&db).execute("CREATE TABLE t (a BIGINT)")).map_err(text)?;
    let (stop, commits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let started = Instant::now();
    let sessions: Vec<_> = (0..connections)
        .map(|_| {
            let (mut session, stop, commits) = (Session::new(&db), stop.clone(), commits.clone());
            runtime.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    session.execute("INSERT INTO t VALUES (1)").await.map_err(text)?;
                    commits.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<(), String>(())
            })
        })
        .collect();
    std::thread::sleep(time);
    let counted = Counted { commits: commits.load(Ordering::Relaxed), seconds: started.elapsed().as_secs_f64() };
    stop.store(true, Ordering::Relaxed);
    for session in sessions {
        runtime.block_on(session).map_err(text)??;
    }
    db.database().close().map_err(text)?;
    Ok(counted.per_second())
}

/// SQLite in the same process: WAL mode, a prepared statement, every commit synced.
fn sqlite(path: &Path, connections: usize, time: Duration) -> Result<f64, String> {
    let connect = || -> Result<Connection, String> {
        let connection = Connection::open(path).map_err(text)?;
        connection.busy_timeout(Duration::from_secs(60)).map_err(text)?;
        let mode: String =
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0)).map_err(text)?;
        if mode != "wal" {
            return Err(format!("SQLite's journal mode is {mode}, not wal"));
        }
        connection.pragma_update(None, "synchronous", "FULL").map_err(text)?;
        Ok(connection)
    };
    connect()?.execute_batch("CREATE TABLE t (a INTEGER)").map_err(text)?;
    let connections = (0..connections)
        .map(|_| {
            let connection = connect()?;
            Ok(move || {
                let mut insert = connection.prepare_cached("INSERT INTO t VALUES (?1)").map_err(text)?;
                insert.execute([1]).map(|_| ()).map_err(text)
            })
        })
        .collect::<Result<Vec<_>, String>>()?;
    Ok(count_commits(connections, time)?.per_second())
}

/// Runs the measurement; a peer that is not installed is left out with a note.
pub fn run(seconds: f64, postgres: PostgresArguments, report: &mut Report) -> Result<(), String> {
    let time = Duration::from_secs_f64(seconds);
    let folder = Folder::new("commits");
    std::fs::create_dir_all(&folder.0).map_err(text)?;
    let cluster = match Installation::find(postgres.major) {
        Ok(installation) => Some(Cluster::create(installation, &folder.0)?),
        Err(missing) => {
            report.note(format!("{missing}; it is left out"));
            None
        }
    };
    for connections in [1usize, 8, 64] {
        eprintln!("{connections} connections …");
        let (ours, per_sync) = serac(&folder.0.join(format!("serac-{connections}")), connections, time)?;
        let ours_sql = serac_sql(&folder.0.join(format!("serac-sql-{connections}")), connections, time)?;
        let sqlite = sqlite(&folder.0.join(format!("sqlite-{connections}.db")), connections, time)?;
        let postgres = match &cluster {
            Some(cluster) => json!(cluster.start()?.commits_per_second(connections, time)?),
            None => Json::from("-"),
        };
        report.row(&[
            ("connections", json!(connections)),
            ("serac commits/s", json!(ours)),
            ("commits per sync", json!(per_sync)),
            ("serac SQL commits/s", json!(ours_sql)),
            ("sqlite commits/s", json!(sqlite)),
            ("postgres commits/s", postgres),
        ]);
    }
    let postgres = cluster.as_ref().map_or(String::new(), |cluster| format!(", {}", cluster.version()));
    report.note(format!("peers: SQLite {}{postgres}", rusqlite::version()));
    Ok(())
}
