//! Scans of one table that go round it together: the setting, the figures, and that each scan finds
//! the same rows as alone.
//!
//! `SERAC_STRESS=1` asks more queries; `SERAC_SEED=n` replays a seed.

use crate::support::{in_memory, text};
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions, StatementStream, parse};
use serac_storage::StorageOptions;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Makes a table `t (id, v, …)` of wide rows, so that few of them fill many blocks. `v` adds up to
/// 0, with that of the next row if `id` is even.
async fn fill(session: &mut Session, rows: u32) {
    let wide: Vec<String> = (0..40).map(|i| format!("w{i} NUMERIC(30,0)")).collect();
    session.execute(&format!("CREATE TABLE t (id BIGINT, v INTEGER, {})", wide.join(", "))).await.unwrap();
    let values = "SELECT i, CASE WHEN i % 2 = 0 THEN i ELSE 1 - i END";
    let insert = format!("INSERT INTO t (id, v) {values} FROM generate_series(0, {}) AS g (i)", rows - 1);
    session.execute(&insert).await.unwrap();
}

fn figure(db: &SqlDatabase, name: &str, label: &str) -> u64 {
    let metrics = db.metrics();
    let metric = metrics.iter().find(|metric| metric.name == name).unwrap();
    metric.samples.iter().find(|sample| sample.labels_text().contains(label)).unwrap().value as u64
}

/// Waits until no scan is attached: the tasks of a query that was given up end by and by.
async fn wait_until_detached(db: &SqlDatabase) {
    while figure(db, "serac_shared_scans", "") > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn the_setting_is_auto_on_or_off() {
    let db = in_memory();
    let mut session = Session::new(&db);
    let shown = async |session: &mut Session| {
        let text = text(session, "SHOW shared_scans").await;
        text.lines().nth(3).unwrap().trim_matches(['|', ' ']).to_owned()
    };
    assert_eq!(shown(&mut session).await, "auto");
    for value in ["on", "off", "'auto'", "ON", "Off"] {
        session.execute(&format!("SET shared_scans = {value}")).await.unwrap();
        assert_eq!(shown(&mut session).await, value.trim_matches('\'').to_lowercase());
    }
    for value in ["maybe", "1", "true", "''"] {
        let error = session.execute(&format!("SET shared_scans = {value}")).await.unwrap_err();
        assert_eq!((error.sqlstate, error.detail.as_deref()), ("22023", Some("It can be auto, on or off.")), "{value}");
    }
    assert_eq!(shown(&mut session).await, "off");
    session.execute("BEGIN; SET shared_scans = on").await.unwrap();
    assert_eq!(shown(&mut session).await, "on");
    session.execute("ROLLBACK").await.unwrap();
    assert_eq!(shown(&mut session).await, "off");
    session.execute("BEGIN; SET LOCAL shared_scans = on; COMMIT").await.unwrap();
    assert_eq!(shown(&mut session).await, "off");
    session.execute("RESET shared_scans").await.unwrap();
    assert_eq!(shown(&mut session).await, "auto");
    session.execute("SET shared_scans = on; RESET ALL").await.unwrap();
    assert_eq!(shown(&mut session).await, "auto");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_says_who_goes_with_others() {
    let db = in_memory();
    let mut session = Session::new(&db);
    fill(&mut session, 10_000).await;
    // For `auto` the table is too small.
    for (setting, attaches) in [("auto", false), ("off", false), ("on", true)] {
        session.execute(&format!("SET shared_scans = {setting}")).await.unwrap();
        for query in ["SELECT count(*) FROM t WHERE v > 3", "SELECT id FROM t WHERE v > 3", "SELECT id + v FROM t"] {
            let plan = text(&mut session, &format!("EXPLAIN ANALYZE {query}")).await;
            let line = plan.lines().find(|line| line.contains("shared_scan_followed="));
            assert_eq!(line.is_some(), attaches, "{setting}: {query}\n{plan}");
            // Alone, it does not follow.
            assert!(line.is_none_or(|line| line.contains("shared_scan_followed=0, shared_scan_left=0")), "{plan}");
        }
    }
    session.execute("CREATE TABLE empty (v INTEGER)").await.unwrap();
    assert!(!text(&mut session, "EXPLAIN ANALYZE SELECT * FROM empty").await.contains("shared_scan"));
    assert_eq!(figure(&db, "serac_shared_scans_total", ""), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_finds_the_blocks_that_another_has_read() {
    const ROWS: u32 = 100_000;
    let db = in_memory();
    let (mut slow, mut fast) = (Session::new(&db), Session::new(&db));
    fill(&mut slow, ROWS).await;
    let blocks = u64::from(db.database().catalog().table("public", "t").unwrap().data.block_count());
    assert!(blocks > 40, "{blocks} blocks");
    slow.execute("SET shared_scans = on").await.unwrap();
    fast.execute("SET shared_scans = on").await.unwrap();
    let query = parse("SELECT id FROM t").unwrap().pop().unwrap();
    let StatementStream::Rows(mut stream) = slow.stream_statement(query.clone()).await.unwrap() else { panic!() };
    // It has begun, and waits for the reader of its rows.
    let mut batches = vec![stream.next().await.unwrap().unwrap()];
    assert_eq!(figure(&db, "serac_shared_scans", ""), 1);
    let counted = "SELECT count(*) AS n, sum(v) AS total FROM t WHERE id >= 0";
    assert!(text(&mut fast, counted).await.contains(&format!("| {ROWS} | 0     |")));
    while let Some(batch) = stream.next().await.unwrap() {
        batches.push(batch);
    }
    drop(stream);
    let ids = batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().iter().copied());
    let ids: Vec<i64> = ids.collect();
    assert_eq!(ids.len(), ROWS as usize);
    assert_eq!(ids.into_iter().collect::<HashSet<_>>().len(), ROWS as usize);
    let taken = |how: &str| figure(&db, "serac_shared_scan_blocks_total", how);
    assert_eq!(taken("followed") + taken("led"), 2 * blocks);
    // The blocks that the fast one has read while the slow one waited.
    assert!(taken("followed") > 0 && taken("led") < 2 * blocks);
    assert_eq!(figure(&db, "serac_shared_scans", ""), 0);

    // A scan without a reader detaches: at a LIMIT, and when the rows are not wanted.
    for limited in ["SELECT id FROM t LIMIT 5", "SELECT id FROM t WHERE v > 10 ORDER BY v LIMIT 5"] {
        assert_eq!(slow.execute(limited).await.unwrap()[0].row_count(), 5);
        wait_until_detached(&db).await;
    }
    let StatementStream::Rows(mut stream) = slow.stream_statement(query).await.unwrap() else { panic!() };
    stream.next().await.unwrap().unwrap();
    assert_eq!(figure(&db, "serac_shared_scans", ""), 1);
    drop(stream);
    wait_until_detached(&db).await;
}

/// Rows that are always there.
const KEPT: i64 = 30_000;

/// Moves values between rows, and adds and deletes rows whose values add up to 0, until the stop.
async fn write(db: SqlDatabase, seed: u64, stop: Arc<AtomicBool>) {
    let (mut session, mut rng) = (Session::new(&db), StdRng::seed_from_u64(seed));
    while !stop.load(Ordering::Relaxed) {
        let (a, b, n) = (rng.random_range(0..KEPT), rng.random_range(0..KEPT), rng.random_range(1..1_000));
        let new = KEPT + rng.random_range(0..1_000_000);
        let sql = match rng.random_range(0..4) {
            0 => format!("UPDATE t SET v = v + {n} WHERE id = {a}; UPDATE t SET v = v - {n} WHERE id = {b}"),
            1 => format!(
                "UPDATE t SET v = CASE id WHEN {a} THEN v + {n} ELSE v - {n} END WHERE id IN ({a}, {})",
                (a + 1) % KEPT
            ),
            2 => format!(
                "INSERT INTO t (id, v) SELECT {new} * 2 + i % 2, CASE i % 2 WHEN 0 THEN {n} ELSE -{n} END \
                 FROM generate_series(0, {}) AS g (i)",
                2 * rng.random_range(1..2_000) - 1
            ),
            _ => format!("DELETE FROM t WHERE id / 2 >= {} AND id >= {KEPT}", rng.random_range(0..1_000_000)),
        };
        let end = if rng.random_bool(0.9) { "COMMIT" } else { "ROLLBACK" };
        if let Err(error) = session.execute(&format!("BEGIN; {sql}; {end}")).await {
            assert_eq!(error.sqlstate, "40001", "{sql}: {error}");
            session.execute("ROLLBACK").await.unwrap();
        }
    }
}

/// A query whose result does not depend on the order in which blocks come.
fn query(rng: &mut StdRng) -> String {
    let (m, v) = (rng.random_range(2..20), rng.random_range(-KEPT..KEPT));
    let filter = match rng.random_range(0..4) {
        0 => format!("id % {m} = {}", rng.random_range(0..m)),
        1 => format!("v > {v}"),
        2 => format!("id >= {} AND v < {v}", rng.random_range(0..2 * KEPT)),
        _ => "TRUE".into(),
    };
    match rng.random_range(0..6) {
        0 => format!("SELECT count(*), sum(v), sum(id), min(id), max(v) FROM t WHERE {filter}"),
        1 => format!("SELECT id % 10, count(*), sum(v) FROM t WHERE {filter} GROUP BY 1 ORDER BY 1"),
        2 => format!("SELECT id, v FROM t WHERE {filter} ORDER BY id, v LIMIT 2000"),
        3 => format!("SELECT v, id FROM t WHERE {filter} ORDER BY v DESC, id LIMIT 5"),
        4 => format!(
            "SELECT count(*) FROM (SELECT id FROM t WHERE {filter} LIMIT {}) AS few",
            rng.random_range(1..5_000)
        ),
        _ => format!(
            "SELECT count(*), count(DISTINCT a.id), sum(a.v) FROM t AS a JOIN t AS b ON a.id = b.id WHERE b.{}",
            if filter == "TRUE" { "id >= 0" } else { "v < 500" }
        ),
    }
}

/// Asks in one snapshot with others and alone.
async fn ask(db: SqlDatabase, seed: u64, queries: usize) {
    let (mut session, mut rng) = (Session::new(&db), StdRng::seed_from_u64(seed));
    for _ in 0..queries {
        let query = query(&mut rng);
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL shared_scans = on").await.unwrap();
        let shared = text(&mut session, &query).await;
        let kept = format!("SELECT count(*) AS n, sum(v) AS total, count(DISTINCT id) AS ids FROM t WHERE id < {KEPT}");
        let kept = text(&mut session, &kept).await;
        let all = text(&mut session, "SELECT sum(v) AS total FROM t").await;
        session.execute("SET LOCAL shared_scans = off").await.unwrap();
        assert_eq!(shared, text(&mut session, &query).await, "{query}");
        session.execute("COMMIT").await.unwrap();
        assert!(kept.contains(&format!("| {KEPT} | 0     | {KEPT} |")), "{kept}");
        assert!(all.contains("| 0     |"), "{all}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_row_comes_once_beside_writers_and_blocks_that_freeze_and_move() {
    let seed = serac_testing::seed();
    let queries = if serac_testing::stress() { 300 } else { 12 };
    let options = StorageOptions { freeze_after: Some(Duration::from_millis(20)), ..StorageOptions::default() };
    let database = Database::open_with(options).unwrap();
    let db = SqlDatabase::new(database.clone(), &SqlOptions { threads: Some(2), ..SqlOptions::default() }).unwrap();
    fill(&mut Session::new(&db), KEPT as u32).await;
    let table = database.catalog().table("public", "t").unwrap().clone();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..2).map(|i| tokio::spawn(write(db.clone(), seed + i, stop.clone()))).collect();
    let until = stop.clone();
    let upkeep = tokio::task::spawn_blocking(move || {
        while !until.load(Ordering::Relaxed) {
            database.storage().freeze_table(&table.data, Duration::from_millis(50));
        }
    });
    let readers: Vec<_> = (0..6).map(|i| tokio::spawn(ask(db.clone(), seed + 100 + i, queries))).collect();
    let mut failed = None;
    for reader in readers {
        failed = failed.or(reader.await.err());
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    upkeep.await.unwrap();
    assert!(failed.is_none(), "SERAC_SEED={seed}: {failed:?}");
    assert!(figure(&db, "serac_shared_scans_total", "") >= 6 * 3 * queries as u64);
    wait_until_detached(&db).await;
}
