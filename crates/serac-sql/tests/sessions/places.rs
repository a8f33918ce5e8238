//! Parts of tables by the places of rows (`ctid`), and snapshots that several sessions share.
//!
//! `SERAC_STRESS=1` runs the storm for longer; `SERAC_SEED=n` replays a seed.

use crate::support::{batches, in_memory, open, refused, run, text};
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_sql::{Session, SqlDatabase};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The numbers in the one row of a query.
async fn numbers(session: &mut Session, sql: &str) -> Vec<i64> {
    let batches = batches(session, sql).await;
    let batch = batches.iter().find(|batch| batch.num_rows() == 1).unwrap_or_else(|| panic!("{sql}: one row"));
    batch.columns().iter().map(|column| column.as_primitive::<Int64Type>().value(0)).collect()
}

/// A measurement of the scan in EXPLAIN ANALYZE.
fn measured(plan: &str, name: &str) -> usize {
    let scan = plan.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("no {name}\n{plan}"));
    let behind = scan.split(&format!("{name}=")).nth(1).unwrap();
    behind.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn only_the_blocks_of_a_part_are_read() {
    let mut session = Session::new(&in_memory());
    let create = "CREATE TABLE t (id BIGINT, name TEXT);
                  INSERT INTO t SELECT i, 'a name ' || i FROM generate_series(1, 300000) AS g (i)";
    run(&mut session, create).await;
    let blocks = numbers(&mut session, "SELECT count(*) FROM serac_blocks WHERE table_name = 't'").await[0] as usize;
    assert!(blocks > 6, "{blocks} blocks");
    for form in ["", "FREEZE TABLE t"] {
        if !form.is_empty() {
            run(&mut session, form).await;
        }
        let parts = [
            ("ctid >= '(256,0)'::tid AND ctid < '(512,0)'::tid", 2, "places=[(256,1)..(512,1)]"),
            ("ctid BETWEEN '(128,0)' AND '(256,0)'", 1, "places=[(128,1)..(256,1)]"),
            ("ctid = '(400,3)'", 1, "places=[(400,3)..(400,4)]"),
            ("ctid IN ('(0,1)', '(300,1)')", 2, "places=[(0,1)..(0,2), (300,1)..(300,2)]"),
            ("ctid >= '(640,0)' AND id > 0", blocks - 5, "places=[(640,1)..]"),
            ("ctid < '(0,1)'", 0, "places=[]"),
        ];
        for (filter, read, shown) in parts {
            let plan = text(&mut session, &format!("EXPLAIN ANALYZE SELECT id FROM t WHERE {filter}")).await;
            let touched: usize =
                ["blocks_frozen", "blocks_bulk", "blocks_patched"].map(|name| measured(&plan, name)).iter().sum();
            assert!(touched <= read && plan.contains(shown), "{filter}: {read} blocks, {shown}\n{plan}");
            let tested = text(&mut session, &format!("SELECT count(*), sum(id) FROM t WHERE {filter}")).await;
            // The same condition, tested for each row.
            let by_row = format!("SELECT count(*), sum(id) FROM t WHERE ({filter}) IS TRUE");
            assert_eq!(tested, text(&mut session, &by_row).await, "{filter}");
        }
    }
}

#[tokio::test]
async fn a_snapshot_is_shared() {
    let db = in_memory();
    let [mut first, mut second, mut third] = [(); 3].map(|()| Session::new(&db));
    run(&mut first, "CREATE TABLE t (a BIGINT); INSERT INTO t VALUES (1)").await;
    run(&mut first, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    let exported = batches(&mut first, "SELECT pg_export_snapshot() AS name").await;
    let name = exported[0].column(0).as_string::<i32>().value(0).to_owned();
    run(&mut first, "INSERT INTO t VALUES (2)").await;
    run(&mut third, "INSERT INTO t VALUES (3); CREATE TABLE later (a INT)").await;
    let adopt = format!("SET TRANSACTION SNAPSHOT '{name}'");
    run(&mut second, &format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {adopt}")).await;
    // Neither what the exporting transaction has written nor what came later is seen.
    assert_eq!(numbers(&mut second, "SELECT count(*), sum(a)::BIGINT FROM t").await, [1, 1]);
    assert_eq!(refused(&mut second, "SELECT * FROM later").await.sqlstate, "42P01");
    run(&mut second, "ROLLBACK").await;
    // A transaction that may write meets the first updater.
    run(&mut second, &format!("BEGIN ISOLATION LEVEL REPEATABLE READ; {adopt}")).await;
    run(&mut third, "UPDATE t SET a = 10 WHERE a = 1").await;
    assert_eq!(refused(&mut second, "UPDATE t SET a = 20 WHERE a = 1").await.sqlstate, "40001");
    run(&mut second, "ROLLBACK").await;
    for (begin, sqlstate) in [
        ("BEGIN ISOLATION LEVEL READ COMMITTED", "0A000"),
        ("BEGIN ISOLATION LEVEL SERIALIZABLE", "0A000"),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1", "25001"),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ; SAVEPOINT s", "25001"),
    ] {
        run(&mut second, begin).await;
        assert_eq!(refused(&mut second, &adopt).await.sqlstate, sqlstate, "{begin}");
        run(&mut second, "ROLLBACK").await;
    }
    // Another level would give the snapshot up, or not know its reads.
    for refusal in [
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SET transaction_isolation = 'read committed'",
        adopt.as_str(),
    ] {
        run(&mut second, &format!("BEGIN ISOLATION LEVEL REPEATABLE READ; {adopt}")).await;
        assert_eq!(refused(&mut second, refusal).await.sqlstate, "25001", "{refusal}");
        run(&mut second, "ROLLBACK").await;
    }
    // A transaction that has the snapshot keeps it; nobody else gets it once it has ended.
    run(&mut second, &format!("BEGIN ISOLATION LEVEL REPEATABLE READ; {adopt}")).await;
    run(&mut first, "COMMIT").await;
    run(&mut third, "DELETE FROM t").await;
    assert_eq!(numbers(&mut second, "SELECT count(*), sum(a)::BIGINT FROM t").await, [1, 1]);
    run(&mut second, "COMMIT; BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    let gone = refused(&mut second, &adopt).await;
    assert_eq!((gone.sqlstate, gone.message), ("22023", format!("invalid snapshot identifier: \"{name}\"")));
    run(&mut second, "ROLLBACK").await;
    // Nor once it has failed.
    run(&mut first, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    let exported = batches(&mut first, "SELECT pg_export_snapshot() AS name").await;
    let name = exported[0].column(0).as_string::<i32>().value(0).to_owned();
    refused(&mut first, "SELECT 1 / 0").await;
    run(&mut second, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    assert_eq!(refused(&mut second, &format!("SET TRANSACTION SNAPSHOT '{name}'")).await.sqlstate, "22023");
}

/// Names that have the letters of `ctid` in them do not.
#[tokio::test]
async fn statements_with_the_word_leave_the_point_path() {
    let mut session = Session::new(&in_memory());
    run(&mut session, "CREATE TABLE t (productid INT PRIMARY KEY, ctid_ TEXT)").await;
    for (sql, is_point) in [
        ("SELECT ctid_ FROM t WHERE productid = $1", true),
        ("SELECT ctid_ AS \"a ctid\" FROM t WHERE productid = $1", false),
        ("SELECT ctid_ FROM t WHERE productid = $1 AND t.CTID >= '(0,0)'", false),
    ] {
        assert_eq!(session.prepare(sql).unwrap().is_point(), is_point, "{sql}");
    }
}

/// A transaction that goes on behind a savepoint has other snapshots than before.
#[tokio::test]
async fn no_name_is_given_twice() {
    let db = in_memory();
    let [mut first, mut second] = [(); 2].map(|()| Session::new(&db));
    let export = "SELECT pg_export_snapshot() AS name";
    run(&mut first, "BEGIN ISOLATION LEVEL READ COMMITTED; SAVEPOINT s").await;
    let before = text(&mut first, export).await;
    refused(&mut first, "SELECT 1 / 0").await;
    run(&mut first, "ROLLBACK TO s").await;
    run(&mut second, "CREATE TABLE t (a INT)").await;
    assert_ne!(text(&mut first, export).await, before);
}

/// One round of a reader: several sessions read parts of the table in a shared snapshot.
async fn read_in_parts(db: &SqlDatabase, rng: &mut StdRng) {
    let mut whole = Session::new(db);
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ";
    run(&mut whole, begin).await;
    let exported = batches(&mut whole, "SELECT pg_export_snapshot() AS name").await;
    let name = exported[0].column(0).as_string::<i32>().value(0).to_owned();
    let pages = batches(&mut whole, "SELECT relpages FROM pg_class WHERE relname = 't'").await;
    let pages = pages[0].column(0).as_primitive::<datafusion::arrow::datatypes::Int32Type>().value(0);
    let mut cuts: Vec<i32> = (0..rng.random_range(3..9)).map(|_| rng.random_range(0..=pages)).collect();
    cuts.extend([0, pages]);
    cuts.sort_unstable();
    cuts.dedup();
    let mut parts: Vec<(i32, i32)> = cuts.windows(2).map(|pair| (pair[0], pair[1])).collect();
    rand::seq::SliceRandom::shuffle(&mut parts[..], rng);
    let shares = (0..4).map(|reader| {
        let (db, name, between) = (db.clone(), name.clone(), rng.random_bool(0.5));
        let own: Vec<_> = parts.iter().copied().skip(reader).step_by(4).collect();
        tokio::spawn(async move {
            let mut session = Session::new(&db);
            run(&mut session, &format!("{begin} READ ONLY; SET TRANSACTION SNAPSHOT '{name}'")).await;
            let mut all = [0; 3];
            for (from, to) in own {
                let condition = match between {
                    true => format!("ctid BETWEEN '({from},0)'::tid AND '({to},0)'::tid"),
                    false => format!("ctid >= '({from},0)'::tid AND ctid < '({to},0)'::tid"),
                };
                let sql = format!("SELECT count(*), coalesce(sum(id), 0)::BIGINT, coalesce(sum(n), 0)::BIGINT FROM t WHERE {condition}");
                numbers(&mut session, &sql).await.into_iter().zip(&mut all).for_each(|(part, all)| *all += part);
                tokio::task::yield_now().await;
            }
            all
        })
    });
    let mut all = [0; 3];
    for share in shares.collect::<Vec<_>>() {
        share.await.unwrap().into_iter().zip(&mut all).for_each(|(part, all)| *all += part);
    }
    let sql = "SELECT count(*), coalesce(sum(id), 0)::BIGINT, coalesce(sum(n), 0)::BIGINT FROM t";
    assert_eq!(numbers(&mut whole, sql).await, all, "{pages} pages, cut at {cuts:?}");
    // One transaction that reads part after part finds the same.
    let mut one = [0; 3];
    for (from, to) in parts {
        let part = format!("{sql} WHERE ctid >= '({from},0)' AND ctid < '({to},0)'");
        numbers(&mut whole, &part).await.into_iter().zip(&mut one).for_each(|(part, one)| *one += part);
    }
    assert_eq!(one, all, "{pages} pages, cut at {cuts:?}");
}

/// Parts of a snapshot have each row once, beside writers and beside blocks that are emptied, moved
/// together and frozen.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parts_have_each_row_once_beside_moving_rows() {
    let seed = std::env::var("SERAC_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("SERAC_SEED={seed}");
    let rounds = if std::env::var_os("SERAC_STRESS").is_some() { 200 } else { 12 };
    let mut rng = StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().unwrap();
    let (db, mut session) = open(folder.path());
    let create = "CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT, filler TEXT);
                  INSERT INTO t SELECT i, 1, 'some text that is longer than twelve bytes' FROM generate_series(1, 60000) AS g (i)";
    run(&mut session, create).await;
    let (ended, moved) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let writers: Vec<_> = (0..3u64)
        .map(|writer| {
            let (db, ended, moved) = (db.clone(), ended.clone(), moved.clone());
            let mut rng = StdRng::seed_from_u64(seed ^ writer << 32);
            tokio::spawn(async move {
                let mut session = Session::new(&db);
                while !ended.load(Ordering::Relaxed) {
                    let from = rng.random_range(0..60_000);
                    let sql = match (writer, rng.random_range(0..4)) {
                        // Whoever freezes moves rows first.
                        (0, _) => "FREEZE TABLE t".to_owned(),
                        (_, 0) => format!("DELETE FROM t WHERE id BETWEEN {from} AND {}", from + 3_000),
                        (_, 1) => format!("UPDATE t SET n = n + 1 WHERE id BETWEEN {from} AND {}", from + 500),
                        _ => format!(
                            "INSERT INTO t SELECT i, 1, 'another text that is long' FROM \
                             generate_series({from}, {}) AS g (i) ON CONFLICT DO NOTHING",
                            from + 2_000
                        ),
                    };
                    // Writers meet each other.
                    if session.execute(&sql).await.is_ok() {
                        moved.fetch_add(1, Ordering::Relaxed);
                    }
                    tokio::time::sleep(std::time::Duration::from_millis(rng.random_range(0..5))).await;
                }
            })
        })
        .collect();
    for _ in 0..rounds {
        read_in_parts(&db, &mut rng).await;
    }
    ended.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    assert!(moved.load(Ordering::Relaxed) > rounds, "nothing went on beside the readers");
}
