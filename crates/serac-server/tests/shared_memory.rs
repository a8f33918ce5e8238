//! Tables in shared memory through a folder's socket: transactions, roles, leases, and clients and
//! holders that are killed while others write.

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use serac_client::client::{Client, Error, Options};
use serac_client::image::{SnapshotRequest, Table, TableRequest};
use serac_engine::Database;
use serac_server::folder::{
    FolderDatabase, FolderOptions, FolderServer, Opening, SessionOptions, SharedMemory, shared_memory,
};
use serac_sql::{Session, SqlDatabase, SqlOptions};
use serac_storage::StorageOptions;
use serac_testing::{Process, this_test};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Accounts, and their constant total.
const ACCOUNTS: i64 = 20_000;
const TOTAL: i64 = ACCOUNTS * 100;

struct Holder {
    db: SqlDatabase,
    server: Option<FolderServer>,
    memory: SharedMemory,
}

impl Holder {
    fn open(folder: &Path) -> Self {
        let storage = StorageOptions {
            path: Some(folder.into()),
            serves_others: true,
            freeze_after: None,
            ..StorageOptions::default()
        };
        let db = SqlDatabase::new(Database::open_with(storage).unwrap(), &SqlOptions::default()).unwrap();
        let memory = SharedMemory::default();
        let options = FolderOptions { images: Some(shared_memory(memory.clone())), ..FolderOptions::default() };
        let server = FolderServer::start(db.clone(), folder, options).unwrap();
        Self { db, server: Some(server), memory }
    }

    fn execute(&self, sql: &str) {
        run(&self.db, sql);
    }

    fn freeze(&self, name: &str) {
        let table = self.db.database().catalog().table("public", name).unwrap().clone();
        self.db.database().storage().freeze_table(&table.data, Duration::from_millis(100));
    }

    fn make_accounts(&self) {
        self.execute("CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, note TEXT)");
        self.execute(&format!(
            "INSERT INTO account SELECT i, 100, 'a note that is long, of account ' || i FROM generate_series(1, {ACCOUNTS}) AS s (i)"
        ));
    }

    fn wait_for_no_copies(&self) {
        serac_testing::wait_for("copies are dropped", || self.memory.copied_bytes(), |bytes| *bytes == 0);
    }

    fn close(mut self) {
        self.server.take().unwrap().stop();
        self.db.database().close().unwrap();
    }
}

fn run(db: &SqlDatabase, sql: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(Session::new(db).execute(sql)).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

fn connect(folder: &Path, role: Option<&str>) -> Client {
    Client::connect(folder, &Options { role: role.map(str::to_owned), ..Options::default() }).unwrap()
}

fn do_all(client: &mut Client, sql: &str) {
    client.execute(sql).unwrap().for_each(|answer| drop(answer.unwrap()));
}

fn of(table: &str) -> SnapshotRequest {
    SnapshotRequest::new([("public", table)])
}

fn columns(table: &str, columns: &[&str]) -> SnapshotRequest {
    let columns = Some(columns.iter().map(|&name| name.to_owned()).collect());
    let table = TableRequest { schema: "public".into(), table: table.into(), columns };
    SnapshotRequest { tables: vec![table], ..SnapshotRequest::default() }
}

fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Statement(failure)) => failure.sqlstate.into(),
        other => panic!("{other:?}"),
    }
}

fn sum(table: &Table, column: &str) -> i64 {
    let of = |batch: &RecordBatch| {
        batch.column_by_name(column).unwrap().as_primitive::<Int64Type>().iter().flatten().sum::<i64>()
    };
    table.batches.iter().map(of).sum()
}

fn count(table: &Table) -> i64 {
    table.batches.iter().map(|batch| batch.num_rows() as i64).sum()
}

/// Looks at all that an image of the accounts must be.
fn check_accounts(table: &Table) {
    assert_eq!((count(table), sum(table, "balance")), (ACCOUNTS, TOTAL));
    for batch in &table.batches {
        let (ids, notes) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(2).as_string_view());
        for i in 0..batch.num_rows() {
            assert_eq!(notes.value(i).rsplit(' ').next(), Some(ids.value(i).to_string().as_str()));
        }
    }
}

#[test]
fn an_image_shows_what_its_transaction_sees() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("db");
    let holder = Holder::open(&folder);
    holder.make_accounts();
    let (mut one, mut two) = (connect(&folder, None), connect(&folder, None));
    do_all(&mut one, "BEGIN; UPDATE account SET balance = 0 WHERE id = 1; DELETE FROM account WHERE id = 2");
    let own = one.snapshot(&of("account")).unwrap();
    assert_eq!((count(&own.tables[0]), sum(&own.tables[0], "balance")), (ACCOUNTS - 1, TOTAL - 200));
    check_accounts(&two.snapshot(&of("account")).unwrap().tables[0]);
    do_all(&mut two, "UPDATE account SET balance = balance + 1 WHERE id = 3");
    let again = one.snapshot(&of("account")).unwrap();
    assert_eq!(sum(&again.tables[0], "balance"), TOTAL - 200, "it is the transaction's snapshot");
    do_all(&mut one, "ROLLBACK");
    assert_eq!(sum(&one.snapshot(&of("account")).unwrap().tables[0], "balance"), TOTAL + 1);
    assert_eq!(sum(&own.tables[0], "balance"), TOTAL - 200, "what was read stays");
    // An error is one of the transaction, and a serializable one notes its reads.
    do_all(&mut one, "BEGIN");
    assert_eq!(refusal(one.snapshot(&of("nowhere"))), "42P01");
    assert_eq!(refusal(one.snapshot(&of("account"))), "25P02");
    do_all(&mut one, "ROLLBACK; BEGIN ISOLATION LEVEL SERIALIZABLE");
    one.snapshot(&of("account")).unwrap();
    do_all(&mut two, "UPDATE account SET balance = balance - 1 WHERE id = 3");
    do_all(&mut one, "CREATE TABLE other (a INTEGER)");
    let failed = one.execute("COMMIT").unwrap().find_map(Result::err);
    assert!(failed.is_some_and(|error| error.to_string().contains("40001")));
    drop((one, two));
    holder.close();
}

#[test]
fn roles_and_requests_are_checked() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("db");
    let holder = Holder::open(&folder);
    holder.make_accounts();
    holder.execute("CREATE ROLE ada LOGIN; GRANT SELECT (id, note) ON account TO ada; CREATE ROLE bob LOGIN");
    holder.freeze("account");
    holder.db.database().checkpoint().unwrap();
    let mut ada = connect(&folder, Some("ada"));
    assert_eq!(refusal(ada.snapshot(&of("account"))), "42501");
    assert_eq!(refusal(ada.snapshot(&columns("account", &["balance"]))), "42501");
    let snapshot = ada.snapshot(&columns("account", &["id", "note"])).unwrap();
    assert_eq!((snapshot.shared_bytes, count(&snapshot.tables[0])), (0, ACCOUNTS));
    assert_eq!(refusal(connect(&folder, Some("bob")).snapshot(&columns("account", &["id"]))), "42501");
    let mut client = connect(&folder, None);
    assert_eq!(client.snapshot(&of("account")).unwrap().copied_bytes, 0);
    do_all(&mut client, "SET ROLE ada");
    assert_eq!(refusal(client.snapshot(&of("account"))), "42501");
    assert!(client.snapshot(&columns("account", &["note"])).unwrap().copied_bytes > 0);
    do_all(&mut client, "RESET ROLE");
    assert_eq!(refusal(client.snapshot(&columns("account", &["gone"]))), "42703");
    assert_eq!(refusal(client.snapshot(&SnapshotRequest::default())), "22023");

    let seed = serac_testing::seed();
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let whole = columns("account", &["id"]).encode();
    for _ in 0..500 {
        let mut request = whole.clone();
        match next() % 4 {
            0 => request.truncate(next() % request.len()),
            1 => request = vec![b'['; next() % 100_000],
            2 => {
                let at = next() % request.len();
                request[at] = next() as u8;
            }
            _ => request = (0..next() % 1_000).map(|_| next() as u8).collect(),
        }
        match client.snapshot_bytes(&request) {
            Ok(image) => client.end_lease(image.lease).unwrap(),
            Err(Error::Statement(failure)) => {
                assert!(["22023", "42P01", "42703", "3F000"].contains(&&*failure.sqlstate), "{failure}");
            }
            Err(error) => panic!("{error}"),
        }
    }
    let many = vec![("public", "account"); 2_000];
    assert_eq!(refusal(client.snapshot(&SnapshotRequest::new(many))), "22023");
    drop((snapshot, ada, client));
    holder.wait_for_no_copies();
    holder.close();
}

#[test]
fn leases_end_when_they_are_given_back_or_at_their_time_or_with_the_connection() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("db");
    let holder = Holder::open(&folder);
    holder.make_accounts();
    let mut client = connect(&folder, None);
    let given_back = client.snapshot(&of("account")).unwrap();
    assert!(holder.memory.copied_bytes() >= given_back.copied_bytes && given_back.copied_bytes > 0);
    client.end_lease(given_back.lease).unwrap();
    holder.wait_for_no_copies();
    let short = SnapshotRequest { lease_ms: Some(50), ..of("account") };
    let timed = client.snapshot(&short).unwrap();
    assert!(timed.until <= Instant::now() + Duration::from_millis(50));
    holder.wait_for_no_copies();
    // Many, then too many, and zero when the client has gone.
    let mut kept = Vec::new();
    let error = loop {
        match client.snapshot(&columns("account", &["id"])) {
            Ok(snapshot) => kept.push(snapshot),
            error => break error,
        }
    };
    assert_eq!((kept.len(), refusal(error)), (256, "53400".to_owned()));
    drop(client);
    holder.wait_for_no_copies();
    holder.close();
    for snapshot in [&given_back, &timed] {
        check_accounts(&snapshot.tables[0]);
    }
    assert!(kept.iter().all(|snapshot| count(&snapshot.tables[0]) == ACCOUNTS));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_reads_the_same_in_the_holder_and_beside_it() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("db");
    let here = FolderDatabase::open(Opening::of(&folder)).unwrap();
    let there = FolderDatabase::open(Opening::of(&folder)).unwrap();
    let mut session = here.session(SessionOptions::default()).await.unwrap();
    session
        .execute("CREATE ROLE ada LOGIN; CREATE TABLE t (a BIGINT, b TEXT); GRANT SELECT (a) ON t TO ada")
        .await
        .unwrap();
    session
        .execute("INSERT INTO t SELECT i, 'a long text of row ' || i FROM generate_series(1, 1000) AS s (i)")
        .await
        .unwrap();
    let mut guest = there.session(SessionOptions::default()).await.unwrap();
    assert!(session.holder().is_none() && guest.holder().is_some());
    let (own, shared) = (session.snapshot(&of("t")).await.unwrap(), guest.snapshot(&of("t")).await.unwrap());
    assert!(own.shared.is_none() && shared.shared.is_some());
    assert_eq!(own.tables[0].batches, shared.tables[0].batches);
    guest.end_snapshot(shared);
    for database in [&here, &there] {
        let role = SessionOptions { role: Some("ada".into()), ..SessionOptions::default() };
        let mut ada = database.session(role).await.unwrap();
        assert_eq!(&*ada.snapshot(&of("t")).await.unwrap_err().sqlstate, "42501");
        assert_eq!(count(&ada.snapshot(&columns("t", &["a"])).await.unwrap().tables[0]), 1_000);
    }
    drop((session, guest));
    there.close().unwrap();
    here.close().unwrap();
}

/// The part of a process that a test starts. It is in a variable of the environment, so that the
/// process is this same binary.
const PART: &str = "SERAC_TEST_PART";

#[test]
fn part_of_another_test() {
    let Ok(part) = std::env::var(PART) else { return };
    let (part, folder) = part.split_once(' ').unwrap();
    match part {
        "reader" => read_for_ever(Path::new(folder)),
        "holder" => hold_for_ever(Path::new(folder)),
        other => panic!("there is no part {other}"),
    }
}

fn start(part: &str, folder: &Path) -> Process {
    let mut command = this_test("part_of_another_test");
    command.arg("--test-threads=1").env(PART, format!("{part} {}", folder.display())).stdin(Stdio::piped());
    Process::start(&mut command)
}

fn read_for_ever(folder: &Path) {
    let mut kept = Vec::new();
    for round in 0.. {
        let mut client = connect(folder, None);
        for _ in 0..20 {
            let snapshot = client.snapshot(&of("account")).unwrap();
            check_accounts(&snapshot.tables[0]);
            match rand::random::<u8>() % 3 {
                0 => client.end_lease(snapshot.lease).unwrap(),
                1 if kept.len() < 3 => kept.push(snapshot),
                _ => {}
            }
        }
        // The rows read before have not changed.
        kept.drain(..).for_each(|snapshot| check_accounts(&snapshot.tables[0]));
        if round == 0 {
            println!("\nread");
            std::io::stdout().flush().unwrap();
        }
    }
}

/// Moves money between accounts until it is told to stop; how often.
fn transfer(db: &SqlDatabase, stop: &AtomicBool) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut session, mut transfers) = (Session::new(db), 0);
    while !stop.load(Ordering::Relaxed) {
        let [from, to, amount] = [(); 3].map(|()| rand::random::<u32>() as i64);
        let (from, to, amount) = (from % ACCOUNTS + 1, to % ACCOUNTS + 1, amount % 50);
        let sql = format!(
            "BEGIN; UPDATE account SET balance = balance - {amount} WHERE id = {from}; UPDATE account SET balance = balance + {amount} WHERE id = {to}; COMMIT"
        );
        // A conflict with another writer.
        match runtime.block_on(session.execute(&sql)) {
            Ok(_) => transfers += 1,
            Err(_) => drop(runtime.block_on(session.execute("ROLLBACK"))),
        }
    }
    transfers
}

#[test]
fn readers_that_are_killed_leave_nothing_and_hold_up_nobody() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("db");
    let holder = Holder::open(&folder);
    holder.make_accounts();
    let seed = serac_testing::seed();
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..2)
        .map(|_| {
            let (db, stop) = (holder.db.clone(), stop.clone());
            std::thread::spawn(move || transfer(&db, &stop))
        })
        .collect();
    let mut readers: Vec<Process> = (0..3).map(|_| start("reader", &folder)).collect();
    readers.iter_mut().for_each(|reader| reader.read_to("read"));
    let mut state = seed;
    for round in 0..12 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_millis(20 + (state >> 33) % 200));
        let reader = &mut readers[round % 3];
        assert!(reader.is_running(), "a reader has found what cannot be");
        reader.kill();
        *reader = start("reader", &folder);
        if round % 4 == 1 {
            holder.freeze("account");
            holder.db.database().checkpoint().unwrap();
        }
    }
    for reader in &mut readers {
        assert!(reader.is_running(), "a reader has found what cannot be");
        reader.kill();
    }
    drop(readers);
    stop.store(true, Ordering::Relaxed);
    let transfers: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
    assert!(transfers > 0);
    holder.wait_for_no_copies();
    // Sockets of clients that have gone; a checkpoint's log may have one more segment.
    serac_testing::wait_for("descriptors are closed", descriptors, |open| *open <= before + 2);
    check_accounts(&connect(&folder, None).snapshot(&of("account")).unwrap().tables[0]);
    holder.close();
}

fn hold_for_ever(folder: &Path) {
    let holder = Holder::open(folder);
    if holder.db.database().catalog().table("public", "account").is_err() {
        holder.make_accounts();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| transfer(&holder.db, &stop));
        println!("\nserves");
        std::io::stdout().flush().unwrap();
        loop {
            std::thread::sleep(Duration::from_millis(30));
            holder.freeze("account");
            holder.db.database().checkpoint().unwrap();
        }
    });
}

#[test]
fn what_was_read_stays_when_the_holder_is_killed() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("db");
    let mut kept = Vec::new();
    for _ in 0..4 {
        let mut holder = start("holder", &folder);
        holder.read_to("serves");
        let mut client = connect(&folder, None);
        let until = Instant::now() + Duration::from_millis(rand::random::<u64>() % 400);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
                holder.kill();
            });
            // Up to wherever the end meets it.
            let error = loop {
                match client.snapshot(&of("account")) {
                    Ok(snapshot) => {
                        check_accounts(&snapshot.tables[0]);
                        client.end_lease(snapshot.lease).ok();
                        kept.truncate(8);
                        kept.push(snapshot);
                    }
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::Lost(_) | Error::NotRun(_)), "{error}");
        });
        kept.iter().for_each(|snapshot| check_accounts(&snapshot.tables[0]));
    }
    let holder = Holder::open(&folder);
    check_accounts(&connect(&folder, None).snapshot(&of("account")).unwrap().tables[0]);
    holder.close();
}
