//! Blocks freeze by themselves once they are cold; frozen blocks are read, thaw and freeze again.

mod one_table;

use arrow_array::Array;
use one_table::{column, open_table};
use serac_storage::durability::storage::{Storage, StorageOptions};
use serac_storage::*;
use std::sync::Arc;
use std::time::Duration;

fn open() -> (Arc<Storage>, Arc<DataTable>) {
    let options = StorageOptions { freeze_after: Some(Duration::from_millis(20)), ..Default::default() };
    let schema = TableSchema { columns: vec![column("id", ColumnType::Int64), column("text", ColumnType::Utf8)] };
    let (storage, table, _) = open_table(options, schema).unwrap();
    (storage, table)
}

/// Waits until `frozen` blocks are frozen.
fn wait_for(table: &DataTable, frozen: u32) {
    serac_testing::wait_for("blocks freeze", || table.metrics().frozen_blocks, |now| *now == frozen);
}

#[test]
fn full_blocks_freeze_by_themselves_and_the_insertion_block_does_not() {
    let (storage, table) = open();
    let slots = table.layout().slot_count();
    let mut txn = storage.begin();
    let text = "a text that lies in the heap of its block";
    let ids: Vec<RowId> = (0..3 * i64::from(slots) + 10)
        .map(|i| table.insert(&mut txn, &[Value::Int64(i), Value::Bytes(text.as_bytes())]).unwrap())
        .collect();
    txn.commit().unwrap();
    wait_for(&table, 3);
    assert_eq!(table.block_count(), 4);

    // A reader from before the thaw, an update, a delete, an abort.
    let before = storage.begin();
    let mut txn = storage.begin();
    table.update(&mut txn, ids[5], &[ColumnId(1)], &[Value::Null]).unwrap();
    table.delete(&mut txn, ids[6]).unwrap();
    txn.commit().unwrap();
    assert_eq!(table.metrics().frozen_blocks, 2);
    let thawed = table.metrics().bytes;
    let mut txn = storage.begin();
    table.update(&mut txn, ids[7], &[ColumnId(0)], &[Value::Int64(-1)]).unwrap();
    txn.abort();
    let columns = [ColumnId(0), ColumnId(1)];
    let mut row = RowBuffer::default();
    assert!(table.read(before.snapshot(), ids[5], &columns, &mut row).unwrap());
    assert_eq!(row.value(1), Value::Bytes(text.as_bytes()));
    assert!(table.read(before.snapshot(), ids[6], &columns, &mut row).unwrap());
    // As long as the old reader is there, the block has versions.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(table.metrics().frozen_blocks, 2);
    drop(before);
    wait_for(&table, 3);
    assert!(table.metrics().bytes < thawed, "a frozen block is smaller");

    let now = storage.begin();
    assert!(table.read(now.snapshot(), ids[5], &columns, &mut row).unwrap() && row.value(1) == Value::Null);
    assert!(!table.read(now.snapshot(), ids[6], &columns, &mut row).unwrap());
    assert!(table.read(now.snapshot(), ids[7], &columns, &mut row).unwrap() && row.value(0) == Value::Int64(7));
    assert_eq!(table.read_latest(now.snapshot(), ids[6], &columns, &mut row).unwrap(), LatestState::Absent);
    let block = table.block(ids[5].block()).unwrap();
    let frozen = block.frozen().unwrap();
    assert_eq!((frozen.rows(), frozen.slot_limit()), (slots - 1, slots));
    assert_eq!(frozen.zone(ColumnId(0)), Some(Zone { min: 0, max: i64::from(slots) - 1 }));
    drop(now);
    table.verify();
}

#[test]
fn blocks_do_not_freeze_under_a_transaction_that_may_write_them() {
    let (storage, table) = open();
    let mut txn = storage.begin();
    let rows = table.layout().slot_count() + 1;
    let ids: Vec<RowId> =
        (0..rows).map(|i| table.insert(&mut txn, &[Value::Int64(i.into()), Value::Null]).unwrap()).collect();
    txn.commit().unwrap();
    wait_for(&table, 1);
    // A writer that stays, and writes again and again: the block thaws once and stays hot.
    let mut writer = storage.begin();
    for &id in &ids[..40] {
        table.update(&mut writer, id, &[ColumnId(0)], &[Value::Int64(-1)]).unwrap();
        assert_eq!(table.metrics().frozen_blocks, 0);
        std::thread::sleep(Duration::from_millis(5));
    }
    writer.commit().unwrap();
    wait_for(&table, 1);
    table.verify();
}

#[test]
fn a_thawed_block_goes_on_with_the_long_values_of_the_frozen_one() {
    for format in [FreezeFormat::View, FreezeFormat::Utf8, FreezeFormat::Dictionary, FreezeFormat::Compact] {
        let (storage, table) = open();
        table.set_freeze_format(format);
        let text = |i: u32| format!("a text that lies in the heap of its block: {}", i % 100);
        let mut txn = storage.begin();
        let row = |i: u32| [Value::Int64(i.into()), Value::Null];
        let ids: Vec<RowId> = (0..2_000).map(|i| table.insert(&mut txn, &row(i)).unwrap()).collect();
        for (i, &id) in ids.iter().enumerate().filter(|(i, _)| i % 3 > 0) {
            table.update(&mut txn, id, &[ColumnId(1)], &[Value::Bytes(text(i as u32).as_bytes())]).unwrap();
        }
        txn.commit().unwrap();
        let read = |i: usize| {
            let (txn, mut row) = (storage.begin(), RowBuffer::default());
            assert!(table.read(txn.snapshot(), ids[i], &[ColumnId(1)], &mut row).unwrap());
            let text = text(i as u32);
            row.value(0) == if i.is_multiple_of(3) { Value::Null } else { Value::Bytes(text.as_bytes()) }
        };
        let mut heap_bytes = Vec::new();
        for round in 0..20 {
            assert_eq!(storage.freeze_table(&table, Duration::from_secs(30)), (1, 1));
            let frozen = table.block(BlockNo(0)).unwrap();
            let lent = frozen.frozen().unwrap().arrays(table.schema())[1].to_data();
            let lent = match format {
                FreezeFormat::Dictionary | FreezeFormat::Compact => lent.child_data()[0].buffers()[1].clone(),
                _ => lent.buffers()[1].clone(),
            };
            let mut txn = storage.begin();
            table.update(&mut txn, ids[round], &[ColumnId(0)], &[Value::Int64(-1)]).unwrap();
            txn.commit().unwrap();
            let thawed = table.block(BlockNo(0)).unwrap();
            let heap = thawed.hot().unwrap().heap().buffers(ColumnId(1));
            assert!(heap.iter().any(|buffer| buffer.as_ptr() == lent.as_ptr()), "{format:?}: no copy");
            assert!((0..ids.len()).all(read));
            heap_bytes.push(thawed.hot().unwrap().heap().bytes());
        }
        assert_eq!(heap_bytes.first(), heap_bytes.last(), "{format:?}: nothing piles up");
        // The block drops a chunk with the chunk's last value. A holder of a lent buffer keeps it.
        let frozen = table.block(BlockNo(0)).unwrap().hot().unwrap().heap().buffers(ColumnId(1));
        let mut txn = storage.begin();
        for &id in &ids {
            table.update(&mut txn, id, &[ColumnId(1)], &[Value::Null]).unwrap();
        }
        txn.commit().unwrap();
        while table.metrics().heap_bytes > 0 || storage.metrics().gc_backlog > 0 {
            storage.run_gc();
        }
        table.verify();
        assert!(frozen.iter().any(|buffer| buffer.starts_with(b"a text that lies in the heap")));
    }
}

#[test]
fn collectors_share_the_blocks_that_freeze_and_stop_at_the_close() {
    let options = StorageOptions { freeze_after: None, gc_threads: 3, ..Default::default() };
    let (storage, table, _) =
        open_table(options, TableSchema { columns: vec![column("a", ColumnType::Int64)] }).unwrap();
    let blocks = 40;
    let slots = table.layout().slot_count() as usize;
    for block in 0..blocks {
        let column: arrow_array::Int64Array =
            (0..slots as i64).map(|i| block * 1_000_000 + i).collect::<Vec<_>>().into();
        let batch = arrow_array::RecordBatch::try_from_iter([("a", Arc::new(column) as _)]).unwrap();
        let mut txn = storage.begin();
        table.append(&mut txn, &batch).unwrap();
        txn.commit().unwrap();
    }
    // While transactions write everywhere, so that blocks thaw, too.
    std::thread::scope(|scope| {
        for worker in 0..2u32 {
            let (storage, table) = (&storage, &table);
            scope.spawn(move || {
                for i in 0..20_000u32 {
                    let row = RowId::new(BlockNo(i % 20 * 2 + worker), Slot(i / 20));
                    let mut txn = storage.begin();
                    table.update(&mut txn, row, &[ColumnId(0)], &[Value::Int64(-1)]).unwrap();
                    txn.commit().unwrap();
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..10 {
                    storage.freeze_table(&table, Duration::from_millis(1));
                }
            });
        }
    });
    assert_eq!(storage.freeze_table(&table, Duration::from_secs(60)), (blocks as u32, blocks as u32));
    let now = storage.begin();
    let mut row = RowBuffer::default();
    for (block, slot, value) in [(0, 0, -1), (1, 999, -1), (7, 999, -1), (39, 999, -1), (39, 1_000, 39_001_000)] {
        assert!(table.read(now.snapshot(), RowId::new(BlockNo(block), Slot(slot)), &[ColumnId(0)], &mut row).unwrap());
        assert_eq!(row.value(0), Value::Int64(value), "block {block}, slot {slot}");
    }
    drop(now);
    table.verify();
    storage.close().unwrap();
}

#[test]
fn blocks_take_the_tables_format_when_they_freeze_and_when_they_are_told() {
    let (storage, table) = open();
    let slots = table.layout().slot_count();
    let words = ["in the view", "a word that needs the heap of its block", "another word that needs the heap"];
    let text = |i: u32| (i % 5 < 3).then(|| words[i as usize % 5]);
    let mut txn = storage.begin();
    let ids: Vec<RowId> = (0..2 * slots)
        .map(|i| {
            let text = text(i).map_or(Value::Null, |text| Value::Bytes(text.as_bytes()));
            table.insert(&mut txn, &[Value::Int64(i.into()), text]).unwrap()
        })
        .collect();
    table.set_freeze_format(FreezeFormat::Never);
    txn.commit().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(storage.freeze_table(&table, Duration::from_secs(1)), (0, 2), "never means never");

    let mut sizes = Vec::new();
    let mut lent = Vec::new();
    for format in [FreezeFormat::Dictionary, FreezeFormat::Utf8, FreezeFormat::View, FreezeFormat::Dictionary] {
        table.set_freeze_format(format);
        assert_eq!(storage.freeze_table(&table, Duration::from_secs(20)), (2, 2));
        sizes.push(table.metrics().bytes);
        for no in 0..2 {
            let block = table.block(BlockNo(no)).unwrap();
            let frozen = block.frozen().unwrap();
            assert_eq!((frozen.format(), frozen.rows()), (format, slots));
            lent.push((no, frozen.arrays(table.schema())));
        }
        let txn = storage.begin();
        let mut row = RowBuffer::default();
        for i in (0..2 * slots).step_by(101) {
            assert!(table.read(txn.snapshot(), ids[i as usize], &[ColumnId(1), ColumnId(0)], &mut row).unwrap());
            assert_eq!(row.value(0), text(i).map_or(Value::Null, |text| Value::Bytes(text.as_bytes())));
            assert_eq!(row.value(1), Value::Int64(i.into()));
        }
    }
    assert_eq!(sizes[0], sizes[3]);
    assert!(sizes[0] < sizes[1] && sizes[1] < sizes[2], "dictionary < utf8 < view for few words: {sizes:?}");

    // A write thaws; the column that does not pay as a dictionary keeps views, in its block alone.
    let mut txn = storage.begin();
    for i in 0..slots {
        let own = format!("a text of its own, {i}");
        table.update(&mut txn, ids[i as usize], &[ColumnId(1)], &[Value::Bytes(own.as_bytes())]).unwrap();
    }
    txn.commit().unwrap();
    wait_for(&table, 2);
    let txn = storage.begin();
    let dictionary = |no| table.read_block(txn.snapshot(), BlockNo(no)).unwrap().dictionary(ColumnId(1));
    assert!(dictionary(0).is_none());
    let dictionary = dictionary(1).unwrap();
    assert_eq!(dictionary.word_count(), 3);
    let mut sorted = words;
    sorted.sort_unstable();
    for (code, word) in sorted.iter().enumerate() {
        assert_eq!(dictionary.find(word.as_bytes()), Some(code as u16));
    }
    assert_eq!((dictionary.find(b""), dictionary.find(b"zzz"), dictionary.find(b"another")), (None, None, None));

    // Lent arrays are unchanged.
    for (no, arrays) in lent {
        arrays.iter().for_each(|array| array.to_data().validate_full().unwrap());
        let texts = arrow_cast::cast(&arrays[1], &arrow_schema::DataType::Utf8).unwrap();
        let texts = arrow_array::cast::AsArray::as_string::<i32>(&texts);
        for i in (0..slots).step_by(97) {
            let found = texts.is_valid(i as usize).then(|| texts.value(i as usize));
            assert_eq!(found, text(no * slots + i));
        }
    }
    drop(txn);
    table.verify();
}
