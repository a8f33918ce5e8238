//! Compaction: rows move together and blocks become free, beside everybody else.

mod one_table;

use one_table::{checkpoint, column, open_table};
use serac_storage::durability::storage::{Storage, StorageOptions};
use serac_storage::freeze::compact::{FollowMoves, NobodyFollows, RowFollower};
use serac_storage::*;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// Wide rows, so that blocks have few slots.
fn schema() -> TableSchema {
    let mut columns = vec![column("id", ColumnType::Int64), column("text", ColumnType::Utf8)];
    columns.extend((0..60).map(|_| column("wide", ColumnType::Uuid)));
    TableSchema { columns }
}

fn text(id: i64) -> String {
    format!("row {id} with a text that lies in the heap")
}

fn insert(table: &Arc<DataTable>, txn: &mut Transaction, id: i64) -> RowId {
    let text = text(id);
    let mut row = vec![Value::Int64(id), Value::Bytes(text.as_bytes())];
    row.resize(62, Value::Null);
    table.insert(txn, &row).unwrap()
}

/// The rows that `snapshot` sees, by id; scan and point reads must agree.
fn rows(table: &Arc<DataTable>, snapshot: &Snapshot) -> BTreeMap<i64, RowId> {
    let (mut found, mut buffer) = (BTreeMap::new(), RowBuffer::default());
    for no in 0..table.block_count() {
        let Some(reader) = table.read_block(snapshot, BlockNo(no)) else { continue };
        for &row in reader.row_ids(reader.visible()).values() {
            let row = RowId::from_u64(row);
            assert!(table.read(snapshot, row, &[ColumnId(0), ColumnId(1)], &mut buffer).unwrap());
            let Value::Int64(id) = buffer.value(0) else { panic!() };
            assert_eq!(buffer.value(1), Value::Bytes(text(id).as_bytes()));
            assert!(found.insert(id, row).is_none(), "row {id} twice");
        }
    }
    found
}

fn options() -> StorageOptions {
    StorageOptions { gc_threads: 0, freeze_after: None, log_segment_bytes: 1 << 20, ..Default::default() }
}

fn open(options: StorageOptions) -> (Arc<Storage>, Arc<DataTable>) {
    let (storage, table, _) = open_table(options, schema()).unwrap();
    storage.set_follower(Arc::new(NobodyFollows));
    (storage, table)
}

/// Fills blocks, then deletes the rows that `goes` names.
fn fill(storage: &Storage, table: &Arc<DataTable>, blocks: i64, goes: impl Fn(i64) -> bool) -> BTreeSet<i64> {
    let count = blocks * i64::from(table.layout().slot_count());
    let mut txn = storage.begin();
    let ids: Vec<RowId> = (0..count).map(|id| insert(table, &mut txn, id)).collect();
    txn.commit().unwrap();
    let mut txn = storage.begin();
    (0..count).filter(|&id| goes(id)).for_each(|id| table.delete(&mut txn, ids[id as usize]).unwrap());
    txn.commit().unwrap().wait().unwrap();
    (0..count).filter(|&id| !goes(id)).collect()
}

#[test]
fn half_empty_blocks_become_full_and_free_ones_under_a_held_snapshot_and_recovery() {
    let folder = tempfile::tempdir().unwrap();
    let on_disk = StorageOptions { path: Some(folder.path().join("db")), ..options() };
    let (storage, table) = open(on_disk.clone());
    let left = fill(&storage, &table, 6, |id| id % 2 == 1);
    storage.run_gc();
    let before = storage.begin();
    let old = rows(&table, before.snapshot());
    let report = storage.compact_table(&table).unwrap();
    assert!(report.moved > 0 && report.stayed == 0, "{report:?}");
    // The old snapshot sees no move; a newer one sees all rows, a part of them elsewhere.
    assert_eq!(rows(&table, before.snapshot()), old);
    let now = storage.begin();
    let moved = rows(&table, now.snapshot());
    assert_eq!(moved.keys().copied().collect::<BTreeSet<_>>(), left);
    assert_eq!(moved.iter().filter(|(id, row)| old[id] != **row).count(), report.moved);
    drop(now);
    // Blocks that the old snapshot sees rows in stay.
    assert_eq!(storage.freeze_table(&table, Duration::from_millis(20)).1, 6);
    assert_eq!(rows(&table, before.snapshot()), old);
    drop(before);
    assert_eq!(storage.freeze_table(&table, Duration::from_secs(10)), (3, 3));
    table.verify();
    for block in (0..table.block_count()).filter_map(|no| table.block(BlockNo(no))) {
        let frozen = block.frozen().unwrap();
        assert!(frozen.presence().is_none() && frozen.rows() == table.layout().slot_count());
    }
    // There is no work left.
    assert_eq!(storage.compact_table(&table).unwrap(), Default::default());
    // Later inserts go to the free numbers.
    let mut txn = storage.begin();
    let more = i64::from(table.layout().slot_count());
    let new: Vec<RowId> = (0..more).map(|i| insert(&table, &mut txn, 1_000_000 + i)).collect();
    txn.commit().unwrap();
    assert!(new.iter().all(|row| row.block().0 < 6));
    let expected = rows(&table, storage.begin().snapshot());
    assert_eq!(expected.len(), left.len() + new.len());
    // The log replays the moves to the same row ids; so does a checkpoint.
    storage.close().unwrap();
    drop((storage, table));
    for from in ["the log", "a checkpoint"] {
        let (storage, table) = open(on_disk.clone());
        assert_eq!(rows(&table, storage.begin().snapshot()), expected, "from {from}");
        assert_eq!(table.metrics().blocks, 4);
        table.verify();
        checkpoint(&storage).unwrap();
        storage.close().unwrap();
    }
}

#[test]
fn holes_are_closed_within_a_block_and_its_end_takes_inserts_again_after_a_thaw() {
    let (storage, table) = open(options());
    let left = fill(&storage, &table, 1, |id| id % 5 == 0);
    assert_eq!(storage.freeze_table(&table, Duration::from_secs(10)), (1, 1));
    let block = table.block(BlockNo(0)).unwrap();
    let frozen = block.frozen().unwrap();
    assert_eq!((frozen.slot_limit() as usize, frozen.presence()), (left.len(), None));
    assert_eq!(rows(&table, storage.begin().snapshot()).into_keys().collect::<BTreeSet<_>>(), left);
    table.verify();
    // A second small block: its rows can go behind those of the first.
    let mut txn = storage.begin();
    for i in 0..50 {
        insert(&table, &mut txn, 1_000_000 + i);
    }
    txn.commit().unwrap();
    assert_eq!(storage.freeze_table(&table, Duration::from_secs(10)), (1, 1));
    assert_eq!(rows(&table, storage.begin().snapshot()).len(), left.len() + 50);
    table.verify();
}

#[test]
fn blocks_are_compacted_and_recycled_by_themselves() {
    let by_itself =
        StorageOptions { gc_threads: 1, freeze_after: Some(Duration::from_millis(40)), ..StorageOptions::default() };
    let (storage, table) = open(by_itself);
    let left = fill(&storage, &table, 5, |id| id % 5 != 0);
    // The insertion block stays.
    serac_testing::wait_for("blocks go", || table.metrics().blocks, |blocks| *blocks <= 2);
    assert_eq!(rows(&table, storage.begin().snapshot()).into_keys().collect::<BTreeSet<_>>(), left);
    table.verify();
}

/// A user who changes a row while its copy is being made.
struct Interferes {
    storage: std::sync::Weak<Storage>,
    row: Mutex<Option<RowId>>,
    keeps: Option<RowId>,
}

impl RowFollower for Interferes {
    fn follow(&self, table: &DataTable, _: &mut Transaction) -> Option<Box<dyn FollowMoves>> {
        let storage = self.storage.upgrade()?;
        let table = storage.table(table.id())?;
        Some(Box::new(Interference { storage, table, row: self.row.lock().unwrap().take(), keeps: self.keeps }))
    }
}

struct Interference {
    storage: Arc<Storage>,
    table: Arc<DataTable>,
    row: Option<RowId>,
    keeps: Option<RowId>,
}

impl FollowMoves for Interference {
    fn copied(&mut self, _: &mut Transaction, row: RowId, _: RowId, _: &[Value<'_>]) {
        if self.row == Some(row) {
            let mut txn = self.storage.begin();
            self.table.update(&mut txn, row, &[ColumnId(1)], &[Value::Bytes(b"changed")]).expect("users win");
            txn.commit().unwrap();
        }
    }

    fn may_leave(&mut self, _: &Transaction, row: RowId) -> bool {
        self.keeps != Some(row)
    }

    fn finish(&mut self, _: &mut Transaction, _: &[bool]) {}
}

#[test]
fn a_user_who_changes_a_row_while_it_is_copied_wins() {
    let (storage, table, _) = open_table(options(), schema()).unwrap();
    // The third block takes inserts and stays as it is.
    fill(&storage, &table, 3, |id| id % 2 == 1);
    storage.run_gc();
    let txn = storage.begin();
    let old = rows(&table, txn.snapshot());
    drop(txn);
    // Blocks are equally full: the rows of the second go to the first.
    let slots = i64::from(table.layout().slot_count());
    let (changed, kept) = (slots + slots % 2 + 10, slots + slots % 2 + 20);
    storage.set_follower(Arc::new(Interferes {
        storage: Arc::downgrade(&storage),
        row: Mutex::new(Some(old[&changed])),
        keeps: Some(old[&kept]),
    }));
    let report = storage.compact_table(&table).unwrap();
    assert_eq!(report.stayed, 2, "{report:?}");
    let (now, mut buffer) = (storage.begin(), RowBuffer::default());
    assert!(table.read(now.snapshot(), old[&changed], &[ColumnId(1)], &mut buffer).unwrap());
    assert_eq!(buffer.value(0), Value::Bytes(b"changed"));
    let mut seen = BTreeSet::new();
    for no in 0..table.block_count() {
        let Some(reader) = table.read_block(now.snapshot(), BlockNo(no)) else { continue };
        for &row in reader.row_ids(reader.visible()).values() {
            assert!(table.read(now.snapshot(), RowId::from_u64(row), &[ColumnId(0)], &mut buffer).unwrap());
            let Value::Int64(id) = buffer.value(0) else { panic!() };
            assert!(seen.insert(id), "{id} twice");
            assert_eq!(old[&id].as_u64() == row, id == kept || id == changed || old[&id].block() != BlockNo(1));
        }
    }
    assert_eq!(seen, old.keys().copied().collect());
    drop(now);
    storage.run_gc();
    table.verify();
}

/// Notes the moves of rows, and their number.
#[derive(Clone, Default)]
struct NotesMoves {
    threads: Arc<Mutex<HashSet<ThreadId>>>,
    moved: Arc<AtomicUsize>,
}

impl RowFollower for NotesMoves {
    fn follow(&self, _: &DataTable, _: &mut Transaction) -> Option<Box<dyn FollowMoves>> {
        self.threads.lock().unwrap().insert(std::thread::current().id());
        // A pause, so that the threads that share the backlog get their turn on a busy machine.
        std::thread::sleep(Duration::from_millis(1));
        Some(Box::new(self.clone()))
    }
}
impl FollowMoves for NotesMoves {
    fn copied(&mut self, _: &mut Transaction, _: RowId, _: RowId, _: &[Value<'_>]) {}
    fn may_leave(&mut self, _: &Transaction, _: RowId) -> bool {
        true
    }

    fn finish(&mut self, _: &mut Transaction, moved: &[bool]) {
        self.moved.fetch_add(moved.iter().filter(|moved| **moved).count(), Ordering::Relaxed);
    }
}

#[test]
fn several_threads_share_a_backlog_beside_users_and_lose_nothing() {
    for compaction in [CompactionGroups::Fixed(3), CompactionGroups::Adaptive] {
        let several = StorageOptions { compaction, compaction_threads: 3, ..options() };
        let (storage, table, _) = open_table(several, schema()).unwrap();
        let notes = NotesMoves::default();
        storage.set_follower(Arc::new(notes.clone()));
        let mut left = fill(&storage, &table, 40, |id| id % 2 == 1);
        storage.run_gc();
        let busy = AtomicUsize::new(2);
        let user = |user: i64| {
            let mut deleted = Vec::new();
            for round in 0..12i64 {
                // The second half finds moved rows, however fast the first was.
                let waiting = Instant::now();
                while round == 6 && notes.moved.load(Ordering::Relaxed) == 0 {
                    assert!(waiting.elapsed() < Duration::from_secs(60), "nothing was moved");
                    std::thread::yield_now();
                }
                let mut txn = storage.begin();
                let rows = rows(&table, txn.snapshot());
                let mut gone = Vec::new();
                for (id, row) in rows.into_iter().filter(|(id, _)| id / 2 % 2 == user && id / 4 % 20 == round) {
                    let text = text(id);
                    // A row that has moved since the snapshot is a conflict.
                    if id % 3 == 0 {
                        gone.extend(table.delete(&mut txn, row).ok().map(|()| id));
                    } else {
                        let _ = table.update(&mut txn, row, &[ColumnId(1)], &[Value::Bytes(text.as_bytes())]);
                    }
                }
                if round % 4 == 3 {
                    txn.abort();
                } else {
                    txn.commit().unwrap();
                    deleted.extend(gone);
                }
            }
            busy.fetch_sub(1, Ordering::Relaxed);
            deleted
        };
        std::thread::scope(|scope| {
            let user = &user;
            let users: Vec<_> = (0..2).map(|number| scope.spawn(move || user(number))).collect();
            while busy.load(Ordering::Relaxed) > 0 {
                storage.compact_table(&table).unwrap();
                storage.freeze_table(&table, Duration::from_millis(1));
            }
            for deleted in users.into_iter().flat_map(|user| user.join().unwrap()) {
                assert!(left.remove(&deleted), "row {deleted} was deleted twice");
            }
        });
        assert_eq!(rows(&table, storage.begin().snapshot()).into_keys().collect::<BTreeSet<_>>(), left);
        table.verify();
        assert!(notes.threads.lock().unwrap().len() > 1, "the groups were shared, {compaction:?}");
        let (frozen, blocks) = storage.freeze_table(&table, Duration::from_secs(20));
        assert_eq!(frozen, blocks);
        if compaction == CompactionGroups::Adaptive {
            assert!(blocks <= (left.len() as u32).div_ceil(table.layout().slot_count()) + 1, "{blocks} blocks");
        }
        assert_eq!(rows(&table, storage.begin().snapshot()).into_keys().collect::<BTreeSet<_>>(), left);
        table.verify();
    }
}
