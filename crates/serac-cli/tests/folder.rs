//! Several processes that work in one folder, through the process that has it open.

mod common;
#[path = "common/shells.rs"]
mod shells;

use common::{serac, start, text};
use serac_testing::{wait_for, wait_until};
use shells::{ENDLESS, ENDLESS_RUNNING, Shell, check_acknowledged, folder, run, wait_for_endless};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

#[test]
fn a_second_shell_works_through_the_first() {
    let (_outer, db) = folder();
    let mut holder = Shell::ready(&db);
    assert!(holder.ask("CREATE TABLE t (id INT PRIMARY KEY, v TEXT); INSERT INTO t VALUES (1, 'one');").is_empty());
    let (shown, error, succeeded) =
        run(&db, &["-c", "SELECT * FROM t; INSERT INTO t VALUES (2, NULL) RETURNING id"], "");
    assert_eq!((shown.as_str(), succeeded), ("id,v\n1,one\nid\n2\n", true), "{error}");
    assert_eq!(holder.ask("SELECT count(*) AS n FROM t;"), ["n", "2"]);

    // Transactions: isolated from each other, and the first updater wins.
    let mut guest = Shell::ready(&db);
    assert!(guest.ask("BEGIN ISOLATION LEVEL REPEATABLE READ; UPDATE t SET v = 'guest' WHERE id = 1;").is_empty());
    assert_eq!(holder.ask("SELECT v FROM t WHERE id = 1;"), ["v", "one"]);
    assert!(holder.ask("SET lock_timeout = '50ms'; UPDATE t SET v = 'holder' WHERE id = 1;").is_empty());
    assert!(guest.ask("COMMIT;").is_empty());
    assert_eq!(holder.ask("SELECT v FROM t WHERE id = 1;"), ["v", "guest"]);
    // Objects that a session has made for itself are private, and are dropped with it.
    assert!(guest.ask("CREATE TEMP TABLE own (a INT); PREPARE p AS SELECT 5 AS five;").is_empty());
    assert_eq!(guest.ask("EXECUTE p; SELECT count(*) AS n FROM own;"), ["five", "5", "n", "0"]);
    assert!(holder.ask("BEGIN; SAVEPOINT s;").is_empty());
    let (error, succeeded) = guest.finish();
    assert!(succeeded, "{error}");
    holder.ask("ROLLBACK; SELECT count(*) AS n FROM own;");
    let (error, _) = holder.finish();
    assert!(
        (error.contains("ERROR 55P03") || error.contains("ERROR 40001")) && error.contains("ERROR 42P01"),
        "{error}"
    );
    // Now another process opens the folder.
    assert_eq!(run(&db, &["-c", "SELECT count(*) AS n FROM t"], "").0, "n\n2\n");
}

#[test]
fn errors_and_notices_of_the_holder_are_those_of_the_guest() {
    let (_outer, db) = folder();
    let _holder = Shell::ready(&db);
    let (shown, error, succeeded) = run(&db, &[], "SELECT 1 AS a;\nSELECT 1,\n  nothing;\nSELECT 2 AS b;");
    assert_eq!((shown.as_str(), succeeded), ("a\n1\n", false));
    assert!(
        error.contains("ERROR 42703") && error.contains("LINE 2:   nothing") && error.contains("          ^"),
        "{error}"
    );
    let (_, error, succeeded) = run(&db, &["-c", "DROP TABLE IF EXISTS missing"], "");
    assert!(succeeded && error.contains("NOTICE: ") && error.contains("missing"), "{error}");
    let output = serac(&[db.to_str().unwrap(), "-c", "CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2)"], "");
    let shown = text(&output.stdout);
    assert!(shown.contains("CREATE TABLE\n") && shown.contains("INSERT 0 2\n"), "{shown}");
    let mut guest = Shell::ready(&db);
    guest.ask("LISTEN c;");
    assert!(run(&db, &["-c", "NOTIFY c, 'told'"], "").2);
    guest.ask("SELECT 1 AS a;");
    let (error, _) = guest.finish();
    assert!(error.contains("\"c\" with payload \"told\""), "{error}");
    let (shown, error, succeeded) =
        run(&db, &["-c", "\\d t", "-c", "\\conninfo", "-c", "\\metrics", "-c", "\\blocks t", "-c", "\\dt"], "");
    assert!(succeeded && shown.contains("integer") && shown.contains("committed"), "{shown}{error}");
    let holder = std::fs::read_to_string(db.join("LOCK")).unwrap();
    let pid = holder.split(' ').next().unwrap();
    assert!(shown.contains(pid), "{shown}");
}

#[test]
fn copies_go_through_the_socket() {
    let (outer, db) = folder();
    let mut holder = Shell::ready(&db);
    holder.ask("CREATE TABLE t (a INT, b TEXT);");
    let script = "COPY t FROM STDIN;\n1,one\n2,\"two; 'quoted'\"\n\\.\nCOPY (SELECT * FROM t ORDER BY a) TO STDOUT;\n";
    let (shown, error, succeeded) = run(&db, &[], script);
    assert_eq!((shown.as_str(), succeeded), ("1,one\n2,two; 'quoted'\n", true), "{error}");
    let lines: String = (0..300_000).map(|n| format!("{n},{}\n", "x".repeat(n % 50))).collect();
    let (_, error, succeeded) = run(&db, &["-c", "COPY t FROM STDIN"], &lines);
    assert!(succeeded, "{error}");
    assert_eq!(holder.ask("SELECT count(*) AS n FROM t;"), ["n", "300002"]);
    let (_, error, succeeded) = run(&db, &[], "COPY t FROM STDIN;\n7,seven\nx,eight\n\\.\nSELECT 1;");
    assert!(!succeeded && error.contains("22P02"), "{error}");
    let (shown, ..) = run(&db, &["-c", "COPY (SELECT a, b FROM t WHERE a >= 3) TO STDOUT"], "");
    assert_eq!(shown.lines().count(), 299_997);
    // A client that goes in the middle of its data leaves nothing.
    let mut guest = Shell::ready(&db);
    guest.send("COPY t FROM STDIN;");
    guest.send(&"1,gone\n".repeat(100_000));
    guest.kill();
    assert_eq!(holder.ask("SELECT count(*) AS n FROM t WHERE b = 'gone';"), ["n", "0"]);
    // `serac load` as well.
    let csv = outer.path().join("people.csv");
    std::fs::write(&csv, "name,age\nAda,36\nAlan,41\n").unwrap();
    let loaded = serac(&["load", db.to_str().unwrap(), csv.to_str().unwrap(), "--table", "people", "--create"], "");
    assert!(loaded.status.success(), "{}", text(&loaded.stderr));
    assert_eq!(holder.ask("SELECT name, age FROM people ORDER BY age;"), ["name,age", "Ada,36", "Alan,41"]);
}

/// The largest size in memory that a process has had, in bytes.
fn peak(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn large_results_are_streamed() {
    let (_outer, db) = folder();
    let holder = Shell::ready(&db);
    let before = peak(holder.child.id());
    let sql = "SELECT value AS n, repeat('x', 1000) AS t FROM generate_series(1, 1000000) AS g (value)";
    let mut guest = Shell::start(&db, &["-c", sql]);
    let mut count = 0;
    let mut most = 0;
    for line in guest.lines.by_ref() {
        count += 1;
        assert!(count == 1 || line.unwrap().len() > 1000);
        if count % 100_000 == 0 {
            most = most.max(peak(guest.child.id()));
        }
    }
    assert_eq!(count, 1_000_001);
    assert!(guest.finish().1);
    // A gigabyte went through both.
    let (holder, guest) = (peak(holder.child.id()) - before, most);
    assert!(holder < 400 << 20 && guest < 400 << 20, "{holder} and {guest} bytes");
}

#[test]
fn a_guest_that_goes_is_rolled_back_and_its_statement_ends() {
    let (_outer, db) = folder();
    let mut holder = Shell::ready(&db);
    holder.ask("CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1);");
    let mut guest = Shell::ready(&db);
    guest.ask("BEGIN; DELETE FROM t;");
    guest.send(ENDLESS);
    wait_for_endless(&mut holder, 1);
    guest.kill();
    wait_for_endless(&mut holder, 0);
    assert_eq!(holder.ask("DELETE FROM t RETURNING a;"), ["a", "1"]);
}

#[test]
fn an_interrupt_cancels_a_statement_in_the_holder() {
    let (_outer, db) = folder();
    let mut holder = Shell::ready(&db);
    let mut guest = Shell::ready(&db);
    guest.send(ENDLESS);
    wait_for_endless(&mut holder, 1);
    let interrupted = Command::new("kill").args(["-INT", &guest.child.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    assert!(guest.ask("SELECT 3 AS c;").ends_with(&["c".into(), "3".into()]));
    let (error, _) = guest.finish();
    assert!(error.contains("ERROR 57014"), "{error}");
    assert_eq!(holder.ask(ENDLESS_RUNNING), ["n", "0"]);
}

#[test]
fn a_guest_takes_over_when_the_holder_is_killed() {
    let (_outer, db) = folder();
    let mut holder = Shell::ready(&db);
    holder.ask("CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1);");
    let (mut first, mut second) = (Shell::ready(&db), Shell::ready(&db));
    assert!(first.ask("INSERT INTO t VALUES (2);").is_empty());
    assert!(second.ask("BEGIN; INSERT INTO t VALUES (3);").is_empty());
    holder.kill();
    // One of them opens the folder, and the other works through it. The open transaction is gone,
    // and its session reports that before the next statement runs.
    assert_eq!(first.ask("SELECT a FROM t ORDER BY a;"), ["a", "1", "2"]);
    assert!(second.ask("INSERT INTO t VALUES (4); SELECT a FROM t; COMMIT;").is_empty());
    assert_eq!(second.ask("SELECT a FROM t ORDER BY a;"), ["a", "1", "2"]);
    assert!(second.ask("INSERT INTO t VALUES (5);").is_empty());
    assert_eq!(first.ask("SELECT count(*) AS n FROM t;"), ["n", "3"]);
    let (error, _) = second.finish();
    assert!(error.contains("ERROR 08006"), "{error}");
    let (error, succeeded) = first.finish();
    assert!(succeeded, "{error}");
    assert_eq!(run(&db, &["-c", "SELECT count(*) AS n FROM t"], "").0, "n\n3\n");
}

#[test]
fn the_rest_of_a_lost_transaction_does_not_commit() {
    let (_outer, db) = folder();
    let mut holder = Shell::ready(&db);
    holder.ask("CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1);");
    let (mut idle, mut running) = (Shell::ready(&db), Shell::ready(&db));
    idle.ask("BEGIN; INSERT INTO t VALUES (2);");
    running.ask("BEGIN; INSERT INTO t VALUES (12);");
    running.send(ENDLESS);
    wait_for_endless(&mut holder, 1);
    holder.kill();
    // The running client learns of it by its statement, the idle one by its next statement.
    for (guest, row) in [(&mut idle, 3), (&mut running, 13)] {
        let rest = format!("INSERT INTO t VALUES ({row}); INSERT INTO t VALUES (100 + {row}); SAVEPOINT s;");
        assert!(guest.ask(&rest).is_empty());
        assert!(guest.ask("COMMIT;").is_empty());
        assert_eq!(guest.ask("SELECT a FROM t;"), ["a", "1"]);
    }
    for (guest, aborted) in [(idle, 2), (running, 3)] {
        let (error, _) = guest.finish();
        assert_eq!(
            (error.matches("ERROR 08006").count(), error.matches("ERROR 25P02").count()),
            (1, aborted),
            "{error}"
        );
        assert!(!error.contains("no transaction in progress"), "{error}");
    }
}

#[test]
fn a_session_with_state_does_not_go_on_silently() {
    let states = [
        ("SET search_path = s;", "INSERT INTO t VALUES (99);"),
        ("CREATE TEMP TABLE t (a INT);", "DELETE FROM t;"),
        ("SET ROLE app;", "DELETE FROM t;"),
        ("SET default_transaction_read_only = on;", "DELETE FROM t;"),
        ("PREPARE p AS SELECT 5 AS five;", "EXECUTE p;"),
        ("LISTEN c;", "DELETE FROM t;"),
        ("SELECT pg_advisory_lock(1);", "DELETE FROM t;"),
    ];
    for is_killed in [true, false] {
        let (_outer, db) = folder();
        let mut first = Shell::ready(&db);
        first.ask("CREATE TABLE t (a INT); INSERT INTO t VALUES (1); CREATE SCHEMA s; CREATE TABLE s.t (a INT); CREATE ROLE app;");
        assert!(first.finish().1);
        let mut holder = Shell::ready(&db);
        let mut guests: Vec<Shell> = states.iter().map(|_| Shell::ready(&db)).collect();
        // One of these has no state any more.
        let mut without = Shell::ready(&db);
        without.ask("SET search_path = s; CREATE TEMP TABLE own (a INT); PREPARE p AS SELECT 1; DISCARD ALL;");
        without
            .ask("BEGIN; SET LOCAL search_path = s; COMMIT; SET statement_timeout = '5min'; RESET statement_timeout;");
        for (guest, (state, _)) in guests.iter_mut().zip(states) {
            guest.ask(state);
        }
        if is_killed {
            holder.kill();
        } else {
            assert!(holder.finish().1);
        }
        for (mut guest, (state, statement)) in guests.into_iter().zip(states) {
            assert!(guest.ask(statement).is_empty(), "{state}");
            assert_eq!(guest.ask("SELECT a FROM public.t UNION ALL SELECT a FROM s.t;"), ["a", "1"], "{state}");
            let (error, _) = guest.finish();
            assert_eq!(error.matches("ERROR 08006").count(), 1, "{state}: {error}");
            assert!(error.contains("settings, temporary tables"), "{state}: {error}");
        }
        assert_eq!(without.ask("SELECT a FROM t;"), ["a", "1"]);
        let (error, succeeded) = without.finish();
        assert!(succeeded, "{error}");
    }
}

#[test]
fn a_folder_that_is_moved_leaves_the_database_at_its_old_place_alone() {
    let (outer, db) = folder();
    let moved = outer.path().join("moved");
    let mut first = Shell::ready(&db);
    first.ask("CREATE TABLE t (a INT); INSERT INTO t VALUES (1);");
    std::fs::rename(&db, &moved).unwrap();
    let mut second = Shell::ready(&db);
    second.ask("CREATE TABLE u (a INT); INSERT INTO u VALUES (100);");
    first.ask("CHECKPOINT; INSERT INTO t VALUES (2);");
    second.ask("INSERT INTO u VALUES (101);");
    let (error, succeeded) = first.finish();
    assert!(!succeeded && error.matches("ERROR 58030").count() == 2, "{error}");
    second.kill();
    assert_eq!(run(&db, &["-c", "SELECT a FROM u ORDER BY a"], "").0, "a\n100\n101\n");
    assert_eq!(run(&moved, &["-c", "SELECT a FROM t WHERE a = 1"], "").0, "a\n1\n");
}

#[test]
fn a_folder_without_its_lock_has_one_holder() {
    let (_outer, db) = folder();
    let mut holder = Shell::start(&db, &["--standalone"]);
    holder.ask("CREATE TABLE t (a INT); INSERT INTO t VALUES (1);");
    std::fs::remove_file(db.join("LOCK")).unwrap();
    let (_, error, succeeded) = run(&db, &["-c", "SELECT 1"], "");
    assert!(!succeeded && error.contains("open in another process"), "{error}");
    holder.ask("INSERT INTO t VALUES (2);");
    let (error, succeeded) = holder.finish();
    assert!(!succeeded && error.contains("ERROR 58030") && error.contains("LOCK"), "{error}");
    assert_eq!(run(&db, &["-c", "SELECT a FROM t WHERE a = 1"], "").0, "a\n1\n");
}

#[test]
fn what_is_no_database_of_its_own_is_told() {
    let (outer, db) = folder();
    let file = outer.path().join("file");
    std::fs::write(&file, "").unwrap();
    let (_, error, succeeded) = run(&file, &["-c", "SELECT 1"], "");
    assert!(!succeeded && error.contains("file") && !error.contains("process"), "{error}");
    // A socket of another database.
    let mut holder = Shell::ready(&db);
    holder.ask("CREATE TABLE t (a INT);");
    let linked = outer.path().join("linked");
    std::fs::create_dir(&linked).unwrap();
    for link in [std::os::unix::fs::symlink::<PathBuf, PathBuf>, std::fs::hard_link::<PathBuf, PathBuf>] {
        link(db.join("SOCKET"), linked.join("SOCKET")).unwrap();
        let (_, error, succeeded) = run(&linked, &["-c", "SELECT * FROM t"], "");
        assert!(!succeeded && error.contains("link"), "{error}");
        std::fs::remove_file(linked.join("SOCKET")).unwrap();
    }
    assert!(holder.finish().1);
}

#[test]
fn an_interrupt_ends_the_search_for_a_holder() {
    let (_outer, db) = folder();
    let signal = |shell: &Shell, name: &str| {
        assert!(Command::new("kill").args([name, &shell.child.id().to_string()]).status().unwrap().success());
    };
    let mut holder = Shell::ready(&db);
    let mut guest = Shell::ready(&db);
    holder.kill();
    let mut next = Shell::ready(&db);
    signal(&next, "-STOP");
    let began = std::time::Instant::now();
    guest.send("SELECT 42;");
    // It looks for the holder by then.
    std::thread::sleep(Duration::from_secs(2));
    signal(&guest, "-INT");
    assert_eq!(guest.try_ask(""), Some(Vec::new()));
    assert!(began.elapsed() < Duration::from_secs(30), "it has waited for its patience's end");
    signal(&next, "-CONT");
    assert_eq!(guest.ask("SELECT 43 AS a;"), ["a", "43"]);
    assert_eq!(next.ask("SELECT 44 AS a;"), ["a", "44"]);
    let (error, _) = guest.finish();
    assert!(error.contains("ERROR 57014"), "{error}");
}

#[test]
fn a_guest_goes_on_when_the_holder_ends() {
    let (_outer, db) = folder();
    let mut holder = Shell::ready(&db);
    holder.ask("CREATE TABLE t (a INT PRIMARY KEY);");
    let mut guest = Shell::ready(&db);
    guest.ask("INSERT INTO t VALUES (1);");
    assert!(holder.finish().1);
    assert_eq!(guest.ask("INSERT INTO t VALUES (2) RETURNING a; SELECT count(*) AS n FROM t;"), ["a", "2", "n", "2"]);
    assert!(guest.finish().1);
}

#[test]
fn a_holder_that_ends_waits_for_the_statements_of_others() {
    let (_outer, db) = folder();
    let mut holder = Shell::ready(&db);
    holder.ask("CREATE TABLE t (a INT);");
    // A load whose data come for longer than an ending holder waits.
    let mut load = start(&["load", db.to_str().unwrap(), "-", "--table", "t"]);
    let mut input = load.stdin.take().unwrap();
    let mut idle = Shell::ready(&db);
    write!(input, "{}", "1\n".repeat(1 << 20)).unwrap();
    let copies = "SELECT count(*) AS n FROM pg_stat_activity WHERE query LIKE 'COPY%' AND state = 'active';";
    wait_for("the load's COPY runs", || holder.ask(copies), |shown| shown[1] != "0");
    drop(holder.input.take());
    std::thread::sleep(Duration::from_secs(7));
    assert!(holder.child.try_wait().unwrap().is_none(), "it waits");
    writeln!(input, "2").unwrap();
    drop(input);
    let loaded = load.wait_with_output().unwrap();
    assert!(loaded.status.success(), "{}", text(&loaded.stderr));
    assert_eq!(idle.ask("SELECT count(*) AS n FROM t;"), ["n", "1048577"]);
    let (error, succeeded) = holder.finish();
    assert!(succeeded && error.contains("waiting for 1 statements"), "{error}");

    // Ctrl-C ends the wait. The statement above may still have run in the holder that was ending.
    assert_eq!(idle.ask("SELECT 1 AS a;"), ["a", "1"]);
    let mut guest = Shell::ready(&db);
    guest.send(ENDLESS);
    wait_for_endless(&mut idle, 1);
    drop(idle.input.take());
    std::thread::sleep(Duration::from_millis(1500));
    assert!(Command::new("kill").args(["-INT", &idle.child.id().to_string()]).status().unwrap().success());
    // The columns' names may have come before.
    let shown = guest.ask("");
    assert!(shown.len() <= 1, "{shown:?}");
    let (error, _) = guest.finish();
    assert!(error.contains("ERROR 57P01"), "{error}");
}

#[test]
fn a_transaction_goes_on_while_its_holder_ends() {
    let (_outer, db) = folder();
    let mut holder = Shell::ready(&db);
    holder.ask("CREATE TABLE t (a INT);");
    let mut guest = Shell::ready(&db);
    guest.ask("BEGIN; INSERT INTO t VALUES (1);");
    drop(holder.input.take());
    std::thread::sleep(Duration::from_millis(500));
    assert!(guest.ask("INSERT INTO t VALUES (2); COMMIT;").is_empty());
    assert_eq!(guest.ask("SELECT count(*) AS n FROM t;"), ["n", "2"]);
    assert!(holder.finish().1);
    let (error, succeeded) = guest.finish();
    assert!(succeeded, "{error}");
}

#[test]
fn rows_that_nobody_wants_do_not_fail_a_transaction() {
    let (_outer, db) = folder();
    let mut holder = Shell::ready(&db);
    holder.ask("CREATE TABLE t (a INT);");
    let many = "SELECT x FROM generate_series(1, 2000000) AS g (x)";
    let commands = ["-c", "BEGIN", "-c", "INSERT INTO t VALUES (1)", "-c", many, "-c", "COMMIT"];
    let mut guest = start(&[&[db.to_str().unwrap(), "--mode", "csv"][..], &commands].concat());
    let mut lines = BufReader::new(guest.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "x");
    drop(lines);
    assert!(guest.wait().unwrap().success());
    assert_eq!(holder.ask("SELECT count(*) AS n FROM t;"), ["n", "1"]);
    assert!(holder.finish().1);
}

#[test]
fn a_take_over_makes_no_new_database() {
    let (outer, db) = folder();
    let mut holder = Shell::ready(&db);
    holder.ask("CREATE TABLE t (a INT);");
    let mut guest = Shell::ready(&db);
    assert!(holder.finish().1);
    std::fs::rename(&db, outer.path().join("moved")).unwrap();
    assert!(guest.ask("CREATE TABLE IF NOT EXISTS t (a INT); INSERT INTO t VALUES (1);").is_empty());
    assert!(!db.exists());
    std::fs::rename(outer.path().join("moved"), &db).unwrap();
    assert_eq!(guest.ask("SELECT count(*) AS n FROM t;"), ["n", "0"]);
    let (error, _) = guest.finish();
    assert!(error.matches("ERROR 08001").count() == 2 && error.contains("was moved"), "{error}");
}

#[test]
fn a_server_is_worked_through() {
    let (_outer, db) = folder();
    let mut server = Command::new(env!("CARGO_BIN_EXE_serac"))
        .args(["serve", db.to_str().unwrap(), "--pg", "127.0.0.1:0"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the server listens", || db.join("SOCKET").exists());
    let (shown, error, succeeded) = run(&db, &["-c", "CREATE TABLE t AS SELECT 1 AS a; SELECT * FROM t"], "");
    assert_eq!((shown.as_str(), succeeded), ("a\n1\n", true), "{error}");
    let pid = server.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(server.wait().unwrap().success());
    assert!(!db.join("SOCKET").exists());
    assert_eq!(run(&db, &["-c", "SELECT * FROM t"], "").0, "a\n1\n");
}

#[test]
fn a_standalone_process_has_the_folder_alone() {
    let (_outer, db) = folder();
    let mut holder = Shell::start(&db, &["--standalone"]);
    holder.ask("CREATE TABLE t (a INT);");
    assert!(!db.join("SOCKET").exists());
    for arguments in [&["-c", "SELECT 1"][..], &["--standalone", "-c", "SELECT 1"]] {
        let (_, error, succeeded) = run(&db, arguments, "");
        assert!(
            !succeeded && error.contains(&format!("open in another process (pid {})", holder.child.id())),
            "{error}"
        );
    }
    holder.finish();
    let holder = Shell::ready(&db);
    let (_, error, succeeded) = run(&db, &["--standalone", "-c", "SELECT 1"], "");
    assert!(!succeeded && error.contains("open in another process"), "{error}");
    // An option that only the opening process can choose is not ignored.
    let (_, error, succeeded) = run(&db, &["--durability", "off", "-c", "SELECT 1"], "");
    assert!(!succeeded && error.contains("--durability"), "{error}");
    assert!(holder.finish().1);
}

#[test]
fn a_role_has_its_own_rights() {
    let (_outer, db) = folder();
    let mut holder = Shell::ready(&db);
    holder.ask("CREATE ROLE reader LOGIN; CREATE ROLE nobody; CREATE TABLE t (a INT, b INT); INSERT INTO t VALUES (1, 2); GRANT SELECT (a) ON t TO reader;");
    assert_eq!(run(&db, &["--user", "reader", "-c", "SELECT a FROM t"], "").0, "a\n1\n");
    for (role, sql, state) in
        [("reader", "SELECT b FROM t", "42501"), ("nobody", "SELECT 1", "28000"), ("missing", "SELECT 1", "28000")]
    {
        let (_, error, succeeded) = run(&db, &["--user", role, "-c", sql], "");
        assert!(!succeeded && error.contains(state), "{role}: {error}");
    }
    assert!(holder.finish().1);
}

#[test]
fn folders_may_have_long_names_and_old_sockets() {
    let outer = tempfile::tempdir().unwrap();
    let inner = outer.path().join("a".repeat(200));
    std::fs::create_dir(&inner).unwrap();
    let db = inner.join("db");
    let mut holder = Shell::ready(&db);
    holder.ask("CREATE TABLE t (a INT);");
    assert_eq!(run(&db, &["-c", "SELECT count(*) AS n FROM t"], "").0, "n\n0\n");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(db.join("SOCKET")).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    holder.kill();
    assert!(db.join("SOCKET").exists(), "it was killed before it could take it away");
    let mut holder = Shell::ready(&db);
    assert_eq!(run(&db, &["-c", "SELECT count(*) AS n FROM t"], "").0, "n\n0\n");
    holder.ask("DROP TABLE t;");
    assert!(holder.finish().1);
    assert!(!db.join("SOCKET").exists());
}

/// Numbers that look random and are the same in each run of a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

#[test]
fn malformed_frames_leave_the_holder_alive() {
    let (_outer, db) = folder();
    let mut holder = Shell::ready(&db);
    let connect = || UnixStream::connect(db.join("SOCKET"));
    let count = serac_testing::number("SERAC_MESSAGES").unwrap_or(2_000);
    let seed = serac_testing::given_seed().unwrap_or(0x5eed);
    println!("SERAC_SEED={seed}");
    let mut numbers = Numbers(seed);
    // A Hello as the client sends it, from a client.
    let hello = {
        let (outer, other) = folder();
        std::fs::create_dir(&other).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(other.join("SOCKET")).unwrap();
        let client = std::thread::spawn(move || {
            let options = serac_client::client::Options::default();
            serac_client::client::Client::connect(&other, &options).is_err()
        });
        let (mut stream, _) = listener.accept().unwrap();
        let mut header = [0; 5];
        std::io::Read::read_exact(&mut stream, &mut header).unwrap();
        let mut hello = vec![0; u32::from_be_bytes(header[1..].try_into().unwrap()) as usize];
        std::io::Read::read_exact(&mut stream, &mut hello).unwrap();
        drop((stream, listener));
        assert!(client.join().unwrap());
        drop(outer);
        [&header[..], &hello].concat()
    };
    for _ in 0..count {
        let mut bytes = hello.clone();
        for _ in 0..numbers.below(4) {
            let length = numbers.below(64) as usize;
            let kind = numbers.below(256) as u8;
            let said = if numbers.below(4) == 0 { numbers.below(1 << 32) as u32 } else { length as u32 };
            bytes.push(kind);
            bytes.extend(said.to_be_bytes());
            bytes.extend((0..length).map(|_| numbers.below(256) as u8));
        }
        for _ in 0..numbers.below(3) {
            let at = numbers.below(bytes.len() as u64) as usize;
            bytes[at] = numbers.below(256) as u8;
        }
        bytes.truncate(1 + numbers.below(bytes.len() as u64) as usize + bytes.len() / 2);
        let mut stream = connect().unwrap();
        // The holder may have closed it already.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = std::io::Read::read_to_end(&mut stream, &mut answer);
    }
    assert_eq!(holder.ask("SELECT 7 AS seven;"), ["seven", "7"]);
    assert!(peak(holder.child.id()) < 1 << 30);
    let (error, succeeded) = holder.finish();
    assert!(succeeded && !error.contains("panicked"), "{error}");
}

#[test]
fn nothing_acknowledged_is_lost_while_holders_are_killed() {
    let (_outer, db) = folder();
    let seed = serac_testing::seed();
    let rounds = if serac_testing::stress() { 100 } else { 12 };
    {
        let mut first = Shell::ready(&db);
        first.ask("CREATE TABLE t (writer INT, n INT, PRIMARY KEY (writer, n));");
        assert!(first.finish().1);
    }
    const WRITERS: usize = 4;
    let acknowledged: [AtomicU64; WRITERS] = Default::default();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (writer, acknowledged) in acknowledged.iter().enumerate() {
            let (db, ended) = (&db, &ended);
            scope.spawn(move || {
                let mut shell = None;
                let mut n = 0u64;
                // Relaxed: the figures are read when the threads have ended.
                while !ended.load(Ordering::Relaxed) {
                    let open = shell.get_or_insert_with(|| Shell::start(db, &[]));
                    match open.try_ask(&format!("INSERT INTO t VALUES ({writer}, {n}) RETURNING n;")) {
                        // Without a row it was an error: the holder has died meanwhile.
                        Some(rows) => {
                            let is_there = rows.get(1) == Some(&n.to_string());
                            acknowledged.fetch_add(is_there.into(), Ordering::Relaxed);
                        }
                        None => {
                            // It was the holder itself.
                            open.kill();
                            shell = None;
                        }
                    }
                    n += 1;
                }
                if let Some(mut shell) = shell {
                    shell.kill();
                }
            });
        }
        let mut numbers = Numbers(seed | 1);
        for _ in 0..rounds {
            std::thread::sleep(Duration::from_millis(100 + numbers.below(400)));
            let lock = std::fs::read_to_string(db.join("LOCK")).unwrap_or_default();
            if let Ok(pid) = lock.split(' ').next().unwrap_or_default().parse::<u32>() {
                // The number of a process that has ended is not reused so soon.
                let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    check_acknowledged(&db, &acknowledged);
}
