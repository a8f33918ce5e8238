//! Row pins, and tables that keep the order of insertion.

mod one_table;

use one_table::{OneTable, column, open_table};
use serac_storage::durability::storage::{Storage, StorageOptions};
use serac_storage::freeze::compact::NobodyFollows;
use serac_storage::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Wide rows, so that blocks have few slots.
fn schema() -> TableSchema {
    let mut columns = vec![column("id", ColumnType::Int64)];
    columns.extend((0..60).map(|_| column("wide", ColumnType::Uuid)));
    TableSchema { columns }
}

fn options() -> StorageOptions {
    StorageOptions { gc_threads: 0, freeze_after: None, ..Default::default() }
}

fn open(options: StorageOptions) -> (Arc<Storage>, Arc<DataTable>) {
    let (storage, table, _) = open_table(options, schema()).unwrap();
    storage.set_follower(Arc::new(NobodyFollows));
    (storage, table)
}

/// As in the engine: the table is set to be ordered before recovery ends.
struct Ordered(OneTable);

impl RecoveryCatalog for Ordered {
    fn restore(&mut self, storage: &Storage, state: &str) -> Result<()> {
        self.0.restore(storage, state)?;
        storage.table(TableId(1)).unwrap().set_ordered(true);
        Ok(())
    }

    fn apply_meta(&mut self, storage: &Storage, payload: &[u8]) -> Result<()> {
        self.0.apply_meta(storage, payload)?;
        storage.table(TableId(1)).unwrap().set_ordered(true);
        Ok(())
    }
}

fn open_ordered(options: StorageOptions) -> (Arc<Storage>, Arc<DataTable>) {
    if !options.path.as_ref().unwrap().exists() {
        let (storage, _) = open(options.clone());
        storage.close().unwrap();
    }
    let (storage, _) = Storage::open(options, &mut Ordered(OneTable(schema()))).unwrap();
    storage.set_follower(Arc::new(NobodyFollows));
    let table = storage.table(TableId(1)).unwrap();
    (storage, table)
}

fn insert(table: &Arc<DataTable>, txn: &mut Transaction, id: i64) -> RowId {
    let mut row = vec![Value::Int64(id)];
    row.resize(61, Value::Null);
    table.insert(txn, &row).unwrap()
}

fn id_of(table: &DataTable, snapshot: &Snapshot, row: RowId) -> Option<i64> {
    let mut buffer = RowBuffer::default();
    table.read(snapshot, row, &[ColumnId(0)], &mut buffer).unwrap().then(|| buffer.integer(0).unwrap())
}

/// The ids that a snapshot sees, in row order, with their rows.
fn rows(table: &DataTable, snapshot: &Snapshot) -> Vec<(i64, RowId)> {
    let mut found = Vec::new();
    for no in 0..table.block_count() {
        let Some(reader) = table.read_block(snapshot, BlockNo(no)) else { continue };
        let ids = reader.row_ids(reader.visible());
        found.extend(ids.values().iter().map(|&row| {
            let row = RowId::from_u64(row);
            (id_of(table, snapshot, row).unwrap(), row)
        }));
    }
    found
}

fn fill(storage: &Storage, table: &Arc<DataTable>, blocks: i64) -> Vec<RowId> {
    let mut txn = storage.begin();
    let count = blocks * i64::from(table.layout().slot_count());
    let ids = (0..count).map(|id| insert(table, &mut txn, id)).collect();
    txn.commit().unwrap();
    ids
}

fn delete(storage: &Storage, table: &Arc<DataTable>, rows: impl Iterator<Item = RowId>) {
    let mut txn = storage.begin();
    rows.for_each(|row| table.delete(&mut txn, row).unwrap());
    txn.commit().unwrap().wait().unwrap();
}

#[test]
fn pinned_rows_stay_and_their_blocks_are_not_recycled() {
    let (storage, table) = open(options());
    let ids = fill(&storage, &table, 4);
    let slots = table.layout().slot_count() as usize;
    // The first block is emptied, the others by half.
    delete(&storage, &table, ids[..slots].iter().copied());
    delete(&storage, &table, ids[slots..].iter().copied().step_by(2));
    let pins = (table.pin_rows(), table.pin_rows());
    let seen = rows(&table, storage.begin().snapshot());
    for left in [true, false] {
        storage.run_gc();
        assert_eq!(storage.compact_table(&table).unwrap().moved, 0, "both pins: {left}");
        storage.freeze_table(&table, std::time::Duration::from_millis(20));
        assert!(table.block(BlockNo(0)).is_some(), "an emptied block is kept");
        if left {
            assert!(pins.0.table().is_some_and(|pinned| Arc::ptr_eq(&pinned, &table)));
        }
    }
    assert_eq!(rows(&table, storage.begin().snapshot()), seen);
    drop(pins.0);
    assert_eq!(storage.compact_table(&table).unwrap().moved, 0, "one pin is left");
    drop(pins.1);
    assert!(storage.compact_table(&table).unwrap().moved > 0);
    storage.freeze_table(&table, std::time::Duration::from_secs(2));
    assert!(table.block(BlockNo(0)).is_none(), "nobody needs it any more");
}

/// A holder of row ids does not keep a dropped table in memory.
#[test]
fn a_pin_does_not_keep_a_dropped_table() {
    let (storage, table) = open(options());
    fill(&storage, &table, 1);
    let (pin, kept) = (table.pin_rows(), Arc::downgrade(&table));
    drop(table);
    assert!(pin.table().is_some());
    storage.drop_table(TableId(1));
    // The undo of its rows goes first, an epoch after the collector has come by.
    let is_freed = (0..1_000).any(|_| {
        storage.run_gc();
        std::thread::sleep(std::time::Duration::from_millis(1));
        kept.upgrade().is_none()
    });
    assert!(is_freed && pin.table().is_none());
}

/// A reader that pins before its snapshot finds the rows at the snapshot's row ids while the pin
/// lives, also during compaction.
#[test]
fn rows_found_under_a_pin_are_there_until_it_goes() {
    let (storage, table) = open(options());
    let ids = fill(&storage, &table, 8);
    delete(&storage, &table, ids.iter().copied().step_by(2));
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Compaction always has work.
            for round in 0.. {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                storage.run_gc();
                storage.compact_table(&table).unwrap();
                storage.freeze_table(&table, std::time::Duration::from_millis(2));
                let found = rows(&table, storage.begin().snapshot());
                if round % 4 == 0 {
                    delete(&storage, &table, found.iter().map(|(_, row)| *row).step_by(5));
                    let mut txn = storage.begin();
                    found.iter().step_by(5).for_each(|(id, _)| _ = insert(&table, &mut txn, *id));
                    txn.commit().unwrap();
                }
            }
        });
        for _ in 0..200 {
            let pin = table.pin_rows();
            let found: BTreeMap<RowId, i64> =
                rows(&table, storage.begin().snapshot()).into_iter().map(|(id, row)| (row, id)).collect();
            for _ in 0..3 {
                std::thread::yield_now();
                let now = storage.begin();
                for (&row, &id) in &found {
                    // Deleted, or unchanged.
                    assert!(id_of(&table, now.snapshot(), row).is_none_or(|now| now == id), "{row:?}");
                }
            }
            drop(pin);
        }
        ended.store(true, Ordering::Relaxed);
    });
}

fn in_order(table: &DataTable, storage: &Storage) -> Vec<i64> {
    rows(table, storage.begin().snapshot()).into_iter().map(|(id, _)| id).collect()
}

#[test]
fn an_ordered_table_keeps_the_order_of_insertion() {
    use arrow_array::{ArrayRef, Int64Array, RecordBatch, new_null_array};
    let folder = tempfile::tempdir().unwrap();
    let on_disk = StorageOptions { path: Some(folder.path().join("db")), ..options() };
    let (mut storage, mut table) = open_ordered(on_disk.clone());
    let mut next = 0;
    for round in 0..3 {
        // Single rows, from threads that would have different insertion heads.
        for _ in 0..6 {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut txn = storage.begin();
                    insert(&table, &mut txn, next);
                    txn.commit().unwrap();
                });
            });
            next += 1;
        }
        // A load of more than two blocks, behind the single rows.
        let count = i64::from(table.layout().slot_count()) * 2 + 5;
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(next..next + count));
        let arrow = table.schema().arrow();
        let mut columns = vec![ids];
        columns.extend((1..arrow.fields().len()).map(|at| new_null_array(arrow.field(at).data_type(), count as usize)));
        let batch = RecordBatch::try_new(arrow, columns).unwrap();
        // A rolled-back append leaves numbers that are not used again.
        let mut lost = storage.begin();
        table.append(&mut lost, &batch).unwrap();
        drop(lost);
        let mut txn = storage.begin();
        table.append(&mut txn, &batch).unwrap();
        txn.commit().unwrap().wait().unwrap();
        next += count;
        storage.run_gc();
        storage.run_gc();
        // No row was deleted, so no row moves, however empty blocks are.
        storage.freeze_table(&table, std::time::Duration::from_millis(200));
        assert!(in_order(&table, &storage).into_iter().eq(0..next), "round {round}");
        if round == 1 {
            drop(table);
            storage.close().unwrap();
            drop(storage);
            (storage, table) = open_ordered(on_disk.clone());
        }
    }
    // From the first deleted row on, it is compacted like others.
    let found = rows(&table, storage.begin().snapshot());
    delete(&storage, &table, found.iter().map(|(_, row)| *row).step_by(2));
    storage.run_gc();
    storage.run_gc();
    assert!(storage.compact_table(&table).unwrap().moved > 0);
}
