//! Crash storms over DDL, indexes, constraints and sequences: no acknowledged transaction is lost,
//! no unacknowledged one is half there, and all indexes and constraints hold.
//!
//! The harness runs this test binary again as a child that works under load and kills it at a
//! random moment. Then it opens and checks the child's database. `SERAC_STRESS=1` kills 200 times;
//! `SERAC_SEED=n` replays a seed's choices (the moment of the kill is the machine's).

mod check;
#[path = "../common/mod.rs"]
mod common;
mod schema;
mod work;

use rand::Rng;
use serac_engine::Database;
use serac_testing::{killed_after, this_test};
use std::path::Path;
use std::time::Duration;

const CHILD: &str = "SERAC_CRASH_STORM_CHILD";
const CHILD_SEED: &str = "SERAC_CRASH_STORM_SEED";
/// Kills of one database. The next kills have a new one, which keeps the checks short.
const KILLS_PER_DATABASE: usize = 10;

/// The child of the harness.
#[test]
fn crash_child() {
    let (Ok(path), Ok(seed)) = (std::env::var(CHILD), std::env::var(CHILD_SEED)) else { return };
    work::run(Path::new(&path), seed.parse().unwrap());
}

/// Runs a child for a time and kills it. Enters the acknowledged transactions.
fn run_and_kill(path: &Path, seed: u64, time: Duration, acknowledged: &mut check::Acknowledged) {
    let parse = |line: &String| {
        let (thread, number) = line.strip_prefix("ack ")?.split_once(' ')?;
        Some((thread.parse::<i64>().ok()?, number.parse::<i64>().ok()?))
    };
    let mut child = this_test("crash_child");
    let lines = killed_after(child.env(CHILD, path).env(CHILD_SEED, seed.to_string()), time);
    for (thread, number) in lines.iter().filter_map(parse) {
        acknowledged.insert(thread, number);
    }
}

#[test]
fn definitions_indexes_and_rows_survive_kills() {
    let mut rng = serac_testing::rng();
    let kills = if serac_testing::stress() { 200 } else { 8 };
    let mut folder = tempfile::tempdir().unwrap();
    let mut acknowledged = check::Acknowledged::new();
    let (mut of_writers, mut of_ddl) = (0, 0);
    for kill in 0..kills {
        if kill % KILLS_PER_DATABASE == 0 {
            folder = tempfile::tempdir().unwrap();
            acknowledged.clear();
        }
        let path = folder.path().join("db");
        let before = acknowledged.clone();
        run_and_kill(&path, rng.random(), Duration::from_millis(rng.random_range(50..350)), &mut acknowledged);
        for (thread, number) in &acknowledged {
            let new = number - before.get(thread).copied().unwrap_or(-1);
            *if *thread == schema::DDL_THREAD { &mut of_ddl } else { &mut of_writers } += new;
        }
        let db = Database::open_with(work::options(&path)).unwrap();
        println!("kill {kill}: {acknowledged:?}, {:?}", db.recovery_report());
        acknowledged = check::check(&db, &acknowledged);
        if rng.random_bool(0.3) {
            db.checkpoint().unwrap();
        }
        db.close().unwrap();
    }
    println!("{of_writers} transactions of writers and {of_ddl} of DDL were acknowledged");
    assert!(of_writers > 0 && of_ddl > 0, "the children did something");
}
