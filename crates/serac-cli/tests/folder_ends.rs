//! How processes that work in one folder end: signals, pipes between them, files that block, and
//! servers that start anew.

mod common;
#[path = "common/shells.rs"]
mod shells;

use common::{start, text};
use serac_testing::wait_until;
use shells::{ENDLESS, Shell, check_acknowledged, folder, run, wait_for_endless};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Threads of a process that read or write the files of COPYs.
fn copying_threads(process: u32) -> usize {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let name = |thread: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(thread.unwrap().path().join("comm")).unwrap_or_default()
    };
    threads.map(name).filter(|name| name.trim() == "serac-copy").count()
}

const COPIES: &str = "SELECT count(*) AS n FROM pg_stat_activity WHERE query LIKE 'COPY t %' AND state = 'active';";

#[test]
fn a_copy_at_a_pipe_holds_nobody_up() {
    let (outer, db) = folder();
    let mut holder = Shell::ready(&db);
    holder.ask("CREATE TABLE t (a INT); INSERT INTO t SELECT x FROM generate_series(1, 200000) AS g (x);");
    // The other ends of these are not opened, and the third is opened by a process that does not
    // read.
    let [unread, unwritten, stuck] = ["unread", "unwritten", "stuck.csv"].map(|name| outer.path().join(name));
    [&unread, &unwritten, &stuck].into_iter().for_each(|path| make_pipe(path));
    let reader = File::options().read(true).write(true).open(&stuck).unwrap();
    let to_unread = format!("COPY t TO '{}';", unread.display());
    let copies = [
        to_unread.clone(),
        format!("COPY t FROM '{}';", unwritten.display()),
        format!("COPY t TO '{}';", stuck.display()),
    ];
    // More of each than threads that serve connections.
    let mut guests: Vec<Shell> = (0..15).map(|_| Shell::ready(&db)).collect();
    guests.iter_mut().enumerate().for_each(|(i, guest)| guest.send(&copies[i % 3]));
    wait_until("the COPYs run", || holder.ask(COPIES) == ["n", "15"]);
    let began = Instant::now();
    assert_eq!(run(&db, &["-c", "SELECT count(*) AS n FROM t"], "").0, "n\n200000\n");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());

    // A timeout ends a statement, here and there; so do Ctrl-C, an administrator, and the client's
    // end.
    for shell in [&mut holder, &mut Shell::ready(&db)] {
        for copy in &copies {
            let began = Instant::now();
            shell.ask(&format!("SET statement_timeout = '200ms'; {copy} RESET statement_timeout;"));
            assert!(began.elapsed() < Duration::from_secs(2), "{copy}: {:?}", began.elapsed());
        }
    }
    guests[..3].iter().for_each(|guest| signal(&guest.child, "-INT"));
    wait_until("Ctrl-C ends them", || holder.ask(COPIES) == ["n", "12"]);
    guests[3..6].iter_mut().for_each(Shell::kill);
    wait_until("a client's end ends them", || holder.ask(COPIES) == ["n", "9"]);
    let ended = holder.ask(
        "SELECT count(pg_terminate_backend(pid)) AS n FROM pg_stat_activity \
         WHERE query LIKE 'COPY t %' AND state = 'active';",
    );
    assert_eq!(ended, ["n", "9"]);
    wait_until("an administrator ends them", || holder.ask(COPIES) == ["n", "0"]);
    wait_until("their threads end", || copying_threads(holder.child.id()) == 0);
    drop(reader);

    // With a reader at the other end, all of it goes through.
    let mut guest = Shell::ready(&db);
    let read = std::thread::spawn({
        let unread = unread.clone();
        move || std::fs::read_to_string(unread).unwrap()
    });
    assert!(guest.ask(&to_unread).is_empty());
    assert_eq!(read.join().unwrap().lines().count(), 200_000);
    let rows: String = (0..100_000).map(|n| format!("{n}\n")).collect();
    let write = std::thread::spawn({
        let unwritten = unwritten.clone();
        move || std::fs::write(unwritten, rows).unwrap()
    });
    assert!(guest.ask(&copies[1]).is_empty());
    write.join().unwrap();
    assert_eq!(guest.ask("SELECT count(*) AS n FROM t;"), ["n", "300000"]);
    let file = outer.path().join("whole.parquet");
    assert!(guest.ask(&format!("COPY t TO '{}'; TRUNCATE t; COPY t FROM '{0}';", file.display())).is_empty());
    assert_eq!(guest.ask("SELECT count(*) AS n FROM t;"), ["n", "300000"]);
    let (error, succeeded) = guest.finish();
    assert!(succeeded, "{error}");

    // The end of the holder is not held up either.
    let mut guest = Shell::ready(&db);
    guest.send(&copies[0]);
    wait_until("the COPY runs", || holder.ask(COPIES) == ["n", "1"]);
    let began = Instant::now();
    signal(&holder.child, "-TERM");
    assert_eq!(holder.child.wait().unwrap().code(), Some(143));
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    guest.kill();
}

#[test]
fn piped_commands_do_not_wait_for_each_other() {
    let (_outer, db) = folder();
    assert!(run(&db, &["-c", "CREATE TABLE t (a INT)"], "").2);
    let piped = |script: &str| {
        let began = Instant::now();
        let program = env!("CARGO_BIN_EXE_serac");
        let output = Command::new("bash").args(["-c", script]).env("SERAC", program).env("DB", &db).output().unwrap();
        (text(&output.stdout), text(&output.stderr), began.elapsed())
    };
    // The first holds the folder, and the second reads its output to the end.
    for (i, error) in ["", "2>&1"].into_iter().enumerate() {
        let script = format!(
            "(echo 'COPY (SELECT 7) TO STDOUT;'; sleep 1) | \"$SERAC\" \"$DB\" {error} \
             | (sleep 0.3; exec \"$SERAC\" \"$DB\" -c 'COPY t FROM STDIN')"
        );
        let (_, error, took) = piped(&script);
        assert!(took < Duration::from_secs(20), "{took:?}: {error}");
        let sevens = "7\n".repeat(1 + i);
        assert_eq!(run(&db, &["-c", "SELECT a FROM t"], "").0, format!("a\n{sevens}"), "{error}");
    }
    // The second ends while the first reads the output of the third, which comes last.
    let (shown, error, took) = piped(
        "((sleep 1.5; exec \"$SERAC\" \"$DB\" -c 'COPY (SELECT 8) TO STDOUT') \
         | (sleep 0.5; exec \"$SERAC\" \"$DB\" -c 'COPY t FROM STDIN')) & \
         \"$SERAC\" \"$DB\" --mode csv -c 'SELECT pg_sleep(1)'; wait; \
         \"$SERAC\" \"$DB\" --mode csv -c 'DELETE FROM t WHERE a = 8 RETURNING a'",
    );
    assert!(shown.ends_with("a\n8\n") && took < Duration::from_secs(20), "{took:?}: {shown}{error}");
    // The second holds it, and does not read the output of the first.
    let (shown, error, took) = piped(
        "(sleep 0.5; exec \"$SERAC\" \"$DB\" -c 'COPY (SELECT x FROM generate_series(1, 3000000) AS g (x)) TO STDOUT') \
         | \"$SERAC\" \"$DB\" --mode csv -c 'SELECT pg_sleep(2)' -c 'SELECT count(*) AS n FROM t'",
    );
    assert!(shown.ends_with("n\n2\n") && took < Duration::from_secs(20), "{took:?}: {shown}{error}");
}

#[test]
fn a_holder_that_ends_waits_for_a_bounded_time() {
    let (_outer, db) = folder();
    let mut holder = Shell::start(&db, &["--wait", "2"]);
    assert_eq!(holder.ask("CREATE TABLE t (a INT); SELECT 1 AS one;"), ["one", "1"]);
    let mut guest = Shell::ready(&db);
    guest.send(ENDLESS);
    wait_for_endless(&mut holder, 1);
    let began = Instant::now();
    let (error, succeeded) = holder.finish();
    let took = began.elapsed();
    assert!(succeeded && error.contains("2 seconds at most"), "{error}");
    assert!(took > Duration::from_secs(2) && took < Duration::from_secs(20), "{took:?}");
    // The names of the columns of its statement had come before the end.
    assert_eq!(guest.ask("INSERT INTO t VALUES (1); SELECT a FROM t;"), ["count", "a", "1"]);
    let (error, _) = guest.finish();
    assert!(error.contains("ERROR 57P01"), "{error}");
}

#[test]
fn a_holder_that_is_told_to_end_ends_in_order() {
    let (_outer, db) = folder();
    // Only an orderly end keeps acknowledged commits.
    let mut holder = Shell::start(&db, &["--durability", "off"]);
    holder.ask("CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1);");
    let (mut idle, mut running, mut open) = (Shell::ready(&db), Shell::ready(&db), Shell::ready(&db));
    assert!(idle.ask("INSERT INTO t VALUES (2);").is_empty());
    assert!(open.ask("BEGIN; INSERT INTO t VALUES (3);").is_empty());
    running.send(ENDLESS);
    wait_for_endless(&mut holder, 1);
    // Its own statement is cancelled, and those behind it do not run.
    holder.ask("INSERT INTO t VALUES (4);");
    holder.send(&format!("{ENDLESS} INSERT INTO t VALUES (5);"));
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    signal(&holder.child, "-TERM");
    // This one may still commit, or is told that it has not.
    let is_committed = open.ask("COMMIT; SELECT 6 AS six;").ends_with(&["six".into(), "6".into()]);
    assert!(is_committed);
    let mut error = String::new();
    holder.child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert_eq!(holder.child.wait().unwrap().code(), Some(143), "{error}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let (open_error, _) = open.finish();
    let rows = if open_error.is_empty() || !open_error.contains("ERROR") { "3" } else { "" };
    let kept = idle.ask("SELECT a FROM t ORDER BY a;");
    let expected: Vec<&str> = ["a", "1", "2", rows, "4"].into_iter().filter(|row| !row.is_empty()).collect();
    assert_eq!(kept, expected, "{open_error}");
    running.ask("");
    let (error, _) = running.finish();
    assert!(error.contains("ERROR 57P01"), "{error}");
    // A guest that is told to end ends at once, and so does a shell alone.
    let mut guest = Shell::ready(&db);
    guest.ask("BEGIN; INSERT INTO t VALUES (7);");
    signal(&guest.child, "-TERM");
    assert_eq!(guest.child.wait().unwrap().code(), Some(143));
    signal(&idle.child, "-HUP");
    assert_eq!(idle.child.wait().unwrap().code(), Some(129));
    assert!(!db.join("SOCKET").exists());
    assert_eq!(run(&db, &["-c", "SELECT count(*) AS n FROM t WHERE a > 4"], "").0, "n\n0\n");
}

/// `serac serve` for a folder, when it is ready.
fn serve(db: &Path) -> Child {
    let mut server = Command::new(env!("CARGO_BIN_EXE_serac"))
        .args(["serve", db.to_str().unwrap(), "--pg", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("serving "), "{line}");
    server
}

fn stop(mut server: Child) {
    signal(&server, "-TERM");
    assert!(server.wait().unwrap().success());
}

/// The process that has the folder open.
fn holder_of(db: &Path) -> String {
    let lock = std::fs::read_to_string(db.join("LOCK")).unwrap_or_default();
    lock.split(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn a_server_gets_its_folder_back() {
    let (_outer, db) = folder();
    let first = serve(&db);
    let (mut guest, mut other) = (Shell::ready(&db), Shell::ready(&db));
    guest.ask("CREATE TABLE t (a INT);");
    stop(first);
    // One of its clients takes the folder.
    assert!(guest.ask("INSERT INTO t VALUES (1);").is_empty());
    assert!(other.ask("INSERT INTO t VALUES (2);").is_empty());
    assert_eq!(holder_of(&db), guest.child.id().to_string());
    // It has a transaction, which the server waits for.
    assert!(guest.ask("BEGIN; INSERT INTO t VALUES (3);").is_empty());
    let second = std::thread::scope(|scope| {
        let second = scope.spawn(|| serve(&db));
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(holder_of(&db), guest.child.id().to_string());
        assert!(guest.ask("COMMIT;").is_empty());
        second.join().unwrap()
    });
    assert_eq!(holder_of(&db), second.id().to_string());
    for shell in [&mut guest, &mut other] {
        assert_eq!(shell.ask("SELECT count(*) AS n FROM t;"), ["n", "3"]);
    }
    // Another server is refused, and so is a standalone one.
    let output = Command::new(env!("CARGO_BIN_EXE_serac"))
        .args(["serve", db.to_str().unwrap(), "--pg", "127.0.0.1:0"])
        .output()
        .unwrap();
    assert!(!output.status.success() && text(&output.stderr).contains("open in another process"), "{output:?}");
    // State of a session is lost with the hand-over, and that is told.
    stop(second);
    guest.ask("CREATE TEMP TABLE own (a INT);");
    let third = serve(&db);
    assert_eq!(holder_of(&db), third.id().to_string());
    assert!(guest.ask("INSERT INTO t VALUES (4);").is_empty());
    assert_eq!(guest.ask("SELECT count(*) AS n FROM t;"), ["n", "3"]);
    let (error, _) = guest.finish();
    assert!(error.matches("ERROR 08006").count() == 1 && error.contains("handed the database over"), "{error}");
    let (error, succeeded) = other.finish();
    assert!(succeeded, "{error}");
    stop(third);
}

#[test]
fn a_server_starts_anew_while_others_write() {
    let (_outer, db) = folder();
    assert!(run(&db, &["-c", "CREATE TABLE t (writer INT, n INT, PRIMARY KEY (writer, n))"], "").2);
    const WRITERS: usize = 4;
    let acknowledged: [AtomicU64; WRITERS] = Default::default();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (writer, acknowledged) in acknowledged.iter().enumerate() {
            let (db, ended) = (&db, &ended);
            scope.spawn(move || {
                let mut shell = Shell::start(db, &[]);
                let mut n = 0u64;
                // Relaxed: the figures are read when the threads have ended.
                while !ended.load(Ordering::Relaxed) {
                    let rows = shell.ask(&format!("INSERT INTO t VALUES ({writer}, {n}) RETURNING n;"));
                    acknowledged.fetch_add(u64::from(rows.get(1) == Some(&n.to_string())), Ordering::Relaxed);
                    n += 1;
                }
                let (error, _) = shell.finish();
                assert!(!error.contains("panicked"), "{error}");
            });
        }
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(300));
            let server = serve(&db);
            std::thread::sleep(Duration::from_millis(300));
            stop(server);
        }
        ended.store(true, Ordering::Relaxed);
    });
    check_acknowledged(&db, &acknowledged);
}

#[test]
fn a_load_that_is_told_to_end_leaves_nothing() {
    let (_outer, db) = folder();
    assert!(run(&db, &["-c", "CREATE TABLE t (a INT)"], "").2);
    let mut load = start(&["load", db.to_str().unwrap(), "-", "--table", "t"]);
    let mut input = load.stdin.take().unwrap();
    write!(input, "{}", "1\n".repeat(1 << 20)).unwrap();
    let mut guest = Shell::ready(&db);
    signal(&load, "-TERM");
    assert_eq!(load.wait().unwrap().code(), Some(143));
    assert_eq!(guest.ask("SELECT count(*) AS n FROM t;"), ["n", "0"]);
    assert!(guest.finish().1);
}
