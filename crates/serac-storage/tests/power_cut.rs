//! Loss of power at random moments: the disk holds any pieces of the unsynced bytes (torn pages).
//! No acknowledged transaction is lost and no unacknowledged one is half there.
//!
//! A round writes under load with checkpoints beside, stops at a random file operation, opens a
//! possible state of the disk, and compares. `SERAC_STRESS=1` makes 1,000 rounds; `SERAC_SEED=n`
//! replays a seed's file operations and losses (the threads' order is the machine's).

mod one_table;

use one_table::{checkpoint, open_table, required};
use rand::Rng;
use serac_storage::durability::file_system::FaultFileSystem;
use serac_storage::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const THREADS: i32 = 3;
const ALL: [ColumnId; 4] = [ColumnId(0), ColumnId(1), ColumnId(2), ColumnId(3)];
/// The number of the row that holds a thread's newest number.
const TALLY: i64 = -1;

/// A row names the thread and the number of its transaction, its number in it, and the
/// transaction's row count.
fn schema() -> TableSchema {
    TableSchema {
        columns: vec![
            required("thread", ColumnType::Int32),
            required("number", ColumnType::Int64),
            required("part", ColumnType::Int64),
            required("text", ColumnType::Utf8),
        ],
    }
}

fn open(path: &Path, files: &FaultFileSystem) -> Result<(Arc<Storage>, Arc<DataTable>, RecoveryReport)> {
    let options = StorageOptions {
        path: Some(path.to_owned()),
        file_system: Arc::new(files.clone()),
        log_segment_bytes: 1 << 14,
        log_allocation_bytes: 1 << 10,
        // Larger transactions go to the log in parts.
        log_spill_bytes: 300,
        ..Default::default()
    };
    open_table(options, schema())
}

/// The number of rows that a transaction inserts: few as a rule, now and then more than a page of
/// log.
fn parts(number: i64) -> i64 {
    if number % 13 == 5 { 150 } else { 1 + number % 4 }
}

fn content(number: i64, part: i64) -> String {
    format!("part {part} of {number}, with a text that lives in the heap")
}

/// One transaction: its rows, and the thread's tally brought up to it.
fn write(storage: &Storage, table: &Arc<DataTable>, tally: &mut Option<RowId>, thread: i32, number: i64) -> Result<()> {
    let mut txn = storage.begin();
    for part in 0..parts(number) {
        let text = content(number, part);
        let row = [Value::Int32(thread), Value::Int64(number), Value::Int64(part), Value::Bytes(text.as_bytes())];
        table.insert(&mut txn, &row)?;
    }
    match tally {
        Some(row) => table.update(&mut txn, *row, &[ColumnId(2)], &[Value::Int64(number)])?,
        None => {
            let row = [Value::Int32(thread), Value::Int64(TALLY), Value::Int64(number), Value::Bytes(b"")];
            *tally = Some(table.insert(&mut txn, &row)?);
        }
    }
    txn.commit()?.wait()?;
    Ok(())
}

/// A thread's rows, as far as they are there.
#[derive(Default)]
struct Found {
    tally: Option<(RowId, i64)>,
    parts: BTreeMap<i64, Vec<i64>>,
}

fn find(storage: &Storage, table: &Arc<DataTable>) -> BTreeMap<i32, Found> {
    let (txn, mut buffer) = (storage.begin(), RowBuffer::default());
    let mut found: BTreeMap<i32, Found> = BTreeMap::new();
    for no in 0..table.block_count() {
        let Some(reader) = table.read_block(txn.snapshot(), BlockNo(no)) else { continue };
        for &id in reader.row_ids(reader.visible()).values() {
            let row = RowId::from_u64(id);
            assert!(table.read(txn.snapshot(), row, &ALL, &mut buffer).unwrap());
            let (Value::Int32(thread), Value::Int64(number), Value::Int64(part), Value::Bytes(text)) =
                (buffer.value(0), buffer.value(1), buffer.value(2), buffer.value(3))
            else {
                panic!("a row of other types: {:?}", buffer.values());
            };
            let entry = found.entry(thread).or_default();
            if number == TALLY {
                assert!(entry.tally.replace((row, part)).is_none(), "thread {thread} has two tallies");
            } else {
                assert_eq!(text, content(number, part).as_bytes());
                entry.parts.entry(number).or_default().push(part);
            }
        }
    }
    found
}

/// Every transaction up to the tally is there with all its rows, nothing else is, and nothing
/// acknowledged is missing. Returns the tallies.
fn check(storage: &Storage, table: &Arc<DataTable>, acknowledged: &[Option<i64>]) -> Vec<Option<(RowId, i64)>> {
    let mut found = find(storage, table);
    (0..THREADS)
        .map(|thread| {
            let Found { tally, parts: mut numbers } = found.remove(&thread).unwrap_or_default();
            let last = tally.map(|(_, last)| last);
            assert!(last >= acknowledged[thread as usize], "thread {thread}: {last:?} < {acknowledged:?}");
            let there: Vec<i64> = numbers.keys().copied().collect();
            let expected: Vec<i64> = last.map_or(Vec::new(), |last| (0..=last).collect());
            assert_eq!(there, expected, "thread {thread}'s transactions");
            for (number, found) in &mut numbers {
                found.sort_unstable();
                assert_eq!(*found, (0..parts(*number)).collect::<Vec<_>>(), "transaction {number} of thread {thread}");
            }
            tally
        })
        .collect()
}

/// Works until the file system halts. Notes the acknowledged commits.
fn work(path: &Path, files: &FaultFileSystem, acknowledged: &mut [Option<i64>]) -> Result<()> {
    let (storage, table, _) = open(path, files)?;
    let tallies = check(&storage, &table, acknowledged);
    std::thread::scope(|scope| {
        for ((thread, tally), acknowledged) in (0..).zip(tallies).zip(acknowledged) {
            let (storage, table) = (&storage, &table);
            scope.spawn(move || {
                let (mut row, last) = tally.unzip();
                for number in last.map_or(0, |last| last + 1).. {
                    if write(storage, table, &mut row, thread, number).is_err() {
                        return;
                    }
                    *acknowledged = Some(number);
                }
            });
        }
        scope.spawn(|| {
            while !files.halted() {
                std::thread::sleep(Duration::from_millis(1));
                if checkpoint(&storage).is_err() {
                    return;
                }
            }
        });
    });
    assert!(files.halted(), "only the halt ends the work");
    let _ = storage.close();
    Ok(())
}

#[test]
fn what_was_acknowledged_survives_a_loss_of_power() {
    let mut rng = serac_testing::rng();
    let rounds = if serac_testing::stress() { 1_000 } else { 60 };
    let (mut cut, mut replayed, mut written) = (0, 0, 0);
    let mut folder = tempfile::tempdir().unwrap();
    let mut acknowledged = vec![None; THREADS as usize];
    for round in 0..rounds {
        if round % 20 == 0 {
            // A database of its own for a few rounds keeps each round short.
            written += acknowledged.iter().flatten().sum::<i64>();
            folder = tempfile::tempdir().unwrap();
            acknowledged.fill(None);
        }
        let path = folder.path().join("db");
        let files = FaultFileSystem::with_disk();
        files.faults().unordered_removals.store(rng.random(), Ordering::SeqCst);
        let operations = if rng.random_bool(0.3) { 20 } else { 400 };
        files.faults().halt_in.store(rng.random_range(1..operations), Ordering::SeqCst);
        let _ = work(&path, &files, &mut acknowledged);
        files.power_returns(rng.random()).unwrap();
        let (storage, table, report) = open(&path, &files).unwrap_or_else(|error| panic!("round {round}: {error}"));
        cut += u32::from(report.cut.is_some());
        replayed += report.transactions_replayed;
        check(&storage, &table, &acknowledged);
        table.verify();
        storage.close().unwrap();
    }
    written += acknowledged.iter().flatten().sum::<i64>();
    assert!(written > 0 && replayed > 0, "{written} transactions were acknowledged, {replayed} replayed");
    assert!(cut > 0, "some rounds leave a torn tail");
}

/// A process that stops leaves its writes in the operating system's cache: the next process finds
/// them, and goes on. When the power goes then, the state that the next process has built upon must
/// be there.
#[test]
fn what_was_acknowledged_survives_a_stop_followed_by_a_loss_of_power() {
    let mut rng = serac_testing::rng();
    let rounds = if serac_testing::stress() { 500 } else { 40 };
    for round in 0..rounds {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        let files = FaultFileSystem::with_disk();
        files.faults().unordered_removals.store(rng.random(), Ordering::SeqCst);
        let mut acknowledged = vec![None; THREADS as usize];
        for _ in 0..2 {
            files.faults().halt_in.store(rng.random_range(20..200), Ordering::SeqCst);
            let _ = work(&path, &files, &mut acknowledged);
            files.process_restarts();
        }
        files.faults().halt_in.store(rng.random_range(1..60), Ordering::SeqCst);
        let _ = work(&path, &files, &mut acknowledged);
        files.power_returns(rng.random()).unwrap();
        let (storage, table, _) = open(&path, &files).unwrap_or_else(|error| panic!("round {round}: {error}"));
        check(&storage, &table, &acknowledged);
        storage.close().unwrap();
    }
}

/// A checkpoint of the same moment as the last one must not touch the last one's files.
#[test]
fn a_checkpoint_that_is_made_again_and_not_finished_leaves_the_first_one_whole() {
    for halt_in in 1..30 {
        let folder = tempfile::tempdir().unwrap();
        let files = FaultFileSystem::with_disk();
        let (storage, table, _) = open(folder.path(), &files).unwrap();
        let mut tally = None;
        write(&storage, &table, &mut tally, 0, 0).unwrap();
        checkpoint(&storage).unwrap();
        files.faults().halt_in.store(halt_in, Ordering::SeqCst);
        let done = checkpoint(&storage).is_ok();
        assert_eq!(done, !files.halted());
        let _ = storage.close();
        drop((storage, table));
        files.power_returns(halt_in).unwrap();
        let (storage, table, _) = open(folder.path(), &files).unwrap_or_else(|error| panic!("{halt_in}: {error}"));
        check(&storage, &table, &[Some(0), None, None]);
        if done {
            return;
        }
    }
    panic!("the checkpoint has fewer operations");
}
