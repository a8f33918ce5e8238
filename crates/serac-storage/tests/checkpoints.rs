//! Checkpoints write a frozen block once, name its file while the block is unchanged, and map it
//! back. Committed rows are there after every sequence of events.

mod one_table;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringViewArray};
use one_table::{OneTable, checkpoint, column, open_table, required};
use rand::Rng;
use rand::rngs::StdRng;
use serac_storage::durability::checkpoint::{CheckpointReport, DATA_FOLDER, MANIFEST, Manifest};
use serac_storage::durability::data_file::PRESENCE_COLUMN;
use serac_storage::durability::file_system::FaultFileSystem;
use serac_storage::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const ID: ColumnId = ColumnId(0);
const TEXT: ColumnId = ColumnId(1);
const ALL: [ColumnId; 3] = [ColumnId(0), ColumnId(1), ColumnId(2)];

fn schema() -> TableSchema {
    TableSchema {
        columns: vec![
            required("id", ColumnType::Int64),
            column("text", ColumnType::Utf8),
            column("price", ColumnType::Decimal { precision: 12, scale: 2 }),
        ],
    }
}

fn options(path: &Path, files: &FaultFileSystem) -> StorageOptions {
    StorageOptions {
        path: Some(path.to_owned()),
        file_system: Arc::new(files.clone()),
        freeze_after: None,
        log_segment_bytes: 1 << 18,
        ..Default::default()
    }
}

fn open(path: &Path, files: &FaultFileSystem) -> Result<(Arc<Storage>, Arc<DataTable>)> {
    let (storage, table, _) = open_table(options(path, files), schema())?;
    Ok((storage, table))
}

fn text_of(id: i64) -> Option<String> {
    (id % 11 != 3).then(|| format!("the text of {id}, {}", "x".repeat((id % 23) as usize)))
}

/// Appends `rows` rows with ids from `first` on.
fn append(storage: &Storage, table: &Arc<DataTable>, first: i64, rows: i64) {
    let ids = first..first + rows;
    let prices = Decimal128Array::from_iter_values(ids.clone().map(i128::from));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(ids.clone())),
        Arc::new(StringViewArray::from_iter(ids.map(text_of))),
        Arc::new(prices.with_precision_and_scale(12, 2).unwrap()),
    ];
    let mut txn = storage.begin();
    table.append(&mut txn, &RecordBatch::try_new(schema().arrow(), columns).unwrap()).unwrap();
    txn.commit().unwrap().wait().unwrap();
}

/// A table of full blocks, frozen and in a checkpoint. Returns the checkpoint's report.
fn filled(storage: &Storage, table: &Arc<DataTable>, blocks: u32) -> CheckpointReport {
    append(storage, table, 0, i64::from(blocks * table.layout().slot_count()));
    let (frozen, all) = storage.freeze_table(table, Duration::from_secs(60));
    assert_eq!((frozen, all), (blocks, blocks));
    checkpoint(storage).unwrap()
}

fn update(storage: &Storage, table: &Arc<DataTable>, row: RowId, text: &str) -> Result<()> {
    let mut txn = storage.begin();
    table.update(&mut txn, row, &[TEXT], &[Value::Bytes(text.as_bytes())])?;
    txn.commit()?.wait().map(|_| ())
}

/// Every row's id and text, by row id.
fn rows(storage: &Storage, table: &DataTable) -> BTreeMap<RowId, (i64, Option<String>)> {
    let (txn, mut found) = (storage.begin(), BTreeMap::new());
    for no in 0..table.block_count() {
        let Some(mut reader) = table.read_block(txn.snapshot(), BlockNo(no)) else { continue };
        let visible = reader.visible().clone();
        let columns = reader.columns(&[ScanColumn::arrow(ID), ScanColumn::arrow(TEXT)], &visible).unwrap();
        let (ids, texts) = (columns[0].as_primitive::<Int64Type>(), columns[1].as_string_view());
        for (i, &row) in reader.row_ids(&visible).values().iter().enumerate() {
            let text = texts.is_valid(i).then(|| texts.value(i).to_owned());
            found.insert(RowId::from_u64(row), (ids.value(i), text));
        }
    }
    found
}

fn data_files(path: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(path.join(DATA_FOLDER)).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn a_second_checkpoint_writes_only_what_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, files) = (folder.path(), FaultFileSystem::default());
    let (storage, table) = open(path, &files).unwrap();
    let written = || files.bytes_written(&path.join(DATA_FOLDER));
    // The digits of a file's own checksum are written twice.
    let of_file = |bytes| if bytes > 0 { bytes + 8 } else { 0 };
    let first = filled(&storage, &table, 6);
    assert_eq!((first.blocks_written, first.blocks_kept), (6, 0));
    assert_eq!((written(), data_files(path).len()), (of_file(first.bytes), 1), "one file for many blocks");
    let block_bytes = first.bytes / 6;

    let second = checkpoint(&storage).unwrap();
    assert_eq!((second.blocks_written, second.blocks_kept, second.bytes), (0, 6, 0));
    assert_eq!(
        (written(), second.rows),
        (of_file(first.bytes), first.rows),
        "nothing is written, and everything is there"
    );

    // One block is touched: it alone is written, hot and once more when it has frozen again; then
    // never again.
    update(&storage, &table, RowId::new(BlockNo(2), Slot(5)), "changed").unwrap();
    for round in 0..3 {
        let before = written();
        let report = checkpoint(&storage).unwrap();
        let expected = if round == 2 { (0, 6) } else { (1, 5) };
        assert_eq!((report.blocks_written, report.blocks_kept), expected, "round {round}");
        assert_eq!(written() - before, of_file(report.bytes));
        assert!(report.bytes < block_bytes * 5 / 4, "{} bytes for a block of {block_bytes}", report.bytes);
        storage.freeze_table(&table, Duration::from_secs(60));
    }
    assert_eq!(data_files(path).len(), 2, "the first file, with a hole, and the changed block's");

    let expected = rows(&storage, &table);
    storage.close().unwrap();
    drop((storage, table));
    let (storage, table) = open(path, &files).unwrap();
    assert_eq!(table.metrics().frozen_blocks, 6, "frozen from the first moment");
    assert_eq!(table.metrics().mapped_bytes, table.metrics().bytes);
    assert_eq!(rows(&storage, &table), expected);
    let report = checkpoint(&storage).unwrap();
    assert_eq!((report.blocks_written, report.blocks_kept), (0, 6), "also after a restart");
    table.verify();
}

#[test]
fn hot_blocks_keep_their_place_in_a_file_until_somebody_writes() {
    let folder = tempfile::tempdir().unwrap();
    let (path, files) = (folder.path(), FaultFileSystem::default());
    let hot = StorageOptions { gc_threads: 0, ..options(path, &files) };
    let (storage, table, _) = open_table(hot, schema()).unwrap();
    append(&storage, &table, 0, i64::from(8 * table.layout().slot_count()));
    let counts = || {
        let report = checkpoint(&storage).unwrap();
        assert_eq!(report.rows, 8 * u64::from(table.layout().slot_count()));
        assert_eq!(report.bytes == 0, report.blocks_written == 0);
        (report.blocks_written, report.blocks_kept)
    };
    assert_eq!(counts(), (8, 0), "the append is not settled");
    storage.run_gc();
    assert_eq!((counts(), counts(), counts()), ((8, 0), (0, 8), (0, 8)));

    // The block is written as it was before, and once more when the writer is gone, with or without
    // a change.
    let mut writer = storage.begin();
    table.update(&mut writer, RowId::new(BlockNo(3), Slot(7)), &[TEXT], &[Value::Bytes(b"taken back")]).unwrap();
    assert_eq!((counts(), counts()), ((1, 7), (1, 7)));
    writer.abort();
    storage.run_gc();
    assert_eq!((counts(), counts()), ((1, 7), (0, 8)));

    // An update that is committed but not settled, and one that is.
    update(&storage, &table, RowId::new(BlockNo(5), Slot(0)), "changed once").unwrap();
    assert_eq!(counts(), (1, 7));
    storage.run_gc();
    assert_eq!((counts(), counts()), ((1, 7), (0, 8)));
    update(&storage, &table, RowId::new(BlockNo(5), Slot(0)), "changed twice").unwrap();
    update(&storage, &table, RowId::new(BlockNo(6), Slot(1)), "another text for the heap").unwrap();
    storage.run_gc();
    assert_eq!((counts(), counts()), ((2, 6), (0, 8)));
    // A vacuum moves values, and changes none.
    storage.vacuum_table(&table);
    assert_eq!(counts(), (0, 8));

    let expected = rows(&storage, &table);
    assert_eq!(expected[&RowId::new(BlockNo(5), Slot(0))].1.as_deref(), Some("changed twice"));
    storage.close().unwrap();
    drop((storage, table));
    let (storage, table) = open(path, &files).unwrap();
    assert_eq!(rows(&storage, &table), expected);
    table.verify();
}

#[test]
fn files_with_more_holes_than_blocks_are_written_anew_and_small_ones_together() {
    let folder = tempfile::tempdir().unwrap();
    let (path, files) = (folder.path(), FaultFileSystem::default());
    let (storage, table) = open(path, &files).unwrap();
    filled(&storage, &table, 5);
    let first = data_files(path);
    for block in 0..3 {
        assert_eq!(data_files(path)[..1], first, "{block} holes");
        update(&storage, &table, RowId::new(BlockNo(block), Slot(0)), "changed").unwrap();
        storage.freeze_table(&table, Duration::from_secs(60));
        checkpoint(&storage).unwrap();
    }
    // The third hole is one too many.
    assert!(!data_files(path).contains(&first[0]));
    assert_eq!(data_files(path).len(), 3, "two changed blocks, and the third with what was left");
    for i in 0..20 {
        update(&storage, &table, RowId::new(BlockNo(i % 5), Slot(i)), "changed again").unwrap();
        storage.freeze_table(&table, Duration::from_secs(60));
        let report = checkpoint(&storage).unwrap();
        assert_eq!(report.blocks_written + report.blocks_kept, 5);
        assert!(data_files(path).len() < 8);
    }
    let expected = rows(&storage, &table);
    storage.close().unwrap();
    drop((storage, table));
    let (storage, table) = open(path, &files).unwrap();
    assert_eq!(rows(&storage, &table), expected);
}

#[test]
fn any_arrow_reader_finds_the_rows_of_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let files = FaultFileSystem::default();
    let (storage, table) = open(folder.path(), &files).unwrap();
    filled(&storage, &table, 2);
    let mut txn = storage.begin();
    for slot in [0, 7, 8, 100] {
        table.delete(&mut txn, RowId::new(BlockNo(1), Slot(slot))).unwrap();
    }
    txn.commit().unwrap().wait().unwrap();
    update(&storage, &table, RowId::new(BlockNo(1), Slot(9)), "changed").unwrap();
    let mut expected: Vec<_> = rows(&storage, &table).into_values().collect();
    for state in ["hot", "frozen"] {
        let report = checkpoint(&storage).unwrap();
        assert_eq!((report.rows, report.blocks_written), (expected.len() as u64, 1), "{state}");
        let mut found = Vec::new();
        for file in data_files(folder.path()) {
            let manifest = Manifest::read(&folder.path().join(MANIFEST), &files).unwrap().unwrap();
            let name = file.file_name().unwrap().to_str().unwrap();
            let entry = manifest.tables[0].files.iter().find(|entry| entry.seal.name == name).unwrap();
            let reader = arrow_ipc::reader::FileReader::try_new(std::fs::File::open(&file).unwrap(), None).unwrap();
            for (i, batch) in reader.enumerate() {
                let batch = batch.unwrap();
                if !entry.batches.contains(&(i as u32)) {
                    continue;
                }
                for column in batch.columns() {
                    column.to_data().validate_full().unwrap();
                }
                let present = batch.column_by_name(PRESENCE_COLUMN).map(|column| column.as_boolean());
                assert_eq!(present.is_some(), name.ends_with("-gaps.arrow"));
                let ids = batch.column_by_name("id").unwrap().as_primitive::<Int64Type>();
                let texts = batch.column_by_name("text").unwrap().as_string_view();
                for i in (0..batch.num_rows()).filter(|&i| present.is_none_or(|present| present.value(i))) {
                    found.push((ids.value(i), texts.is_valid(i).then(|| texts.value(i).to_owned())));
                }
            }
        }
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{state}");
        storage.freeze_table(&table, Duration::from_secs(60));
    }
}

#[test]
fn damage_is_an_error_of_those_who_need_the_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let files = FaultFileSystem::default();
    let (storage, table) = open(folder.path(), &files).unwrap();
    filled(&storage, &table, 2);
    storage.close().unwrap();
    drop((storage, table));
    // A text in the second block.
    let file = data_files(folder.path()).pop().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let text = (i64::from(schema_slots()) + 20_000..).find_map(text_of).unwrap();
    let at = bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&file, &bytes).unwrap();

    let (storage, table) = open(folder.path(), &files).unwrap();
    let txn = storage.begin();
    let (whole, damaged) = (RowId::new(BlockNo(0), Slot(3)), RowId::new(BlockNo(1), Slot(3)));
    let mut buffer = RowBuffer::default();
    let is_corrupt =
        |result: Result<()>| matches!(result, Err(StorageError::Corrupt { file: found, .. }) if found == file);
    assert!(table.read(txn.snapshot(), whole, &ALL, &mut buffer).unwrap());
    assert!(table.read(txn.snapshot(), damaged, &[ID], &mut buffer).unwrap(), "another column is whole");
    assert!(is_corrupt(table.read(txn.snapshot(), damaged, &ALL, &mut buffer).map(|_| ())));
    assert!(is_corrupt(table.read_latest(txn.snapshot(), damaged, &[TEXT], &mut buffer).map(|_| ())));
    let mut reader = table.read_block(txn.snapshot(), BlockNo(1)).unwrap();
    let visible = reader.visible().clone();
    assert!(reader.columns(&[ScanColumn::arrow(ID)], &visible).is_ok());
    assert!(is_corrupt(reader.columns(&[ScanColumn::arrow(TEXT)], &visible).map(|_| ())));
    assert!(is_corrupt(update(&storage, &table, damaged, "changed")));
    update(&storage, &table, whole, "changed").unwrap();
    drop(txn);
    // The damaged file stays in checkpoints as it is; nothing is lost by making one.
    checkpoint(&storage).unwrap();
    storage.close().unwrap();
    drop((storage, table));

    // Salvaged, the whole block and its changes are there.
    let salvage = StorageOptions { salvage: true, ..options(folder.path(), &files) };
    let (storage, report) = Storage::open(salvage.clone(), &mut OneTable(schema())).unwrap();
    let left = rows(&storage, &storage.table(TableId(1)).unwrap());
    assert_eq!((left.len() as u32, report.lost.len()), (schema_slots(), 1), "{:?}", report.lost);
    assert_eq!(left[&whole].1.as_deref(), Some("changed"));
    storage.close().unwrap();
    drop(storage);

    // The parts that opening needs must be whole.
    let tail = bytes.len() - 40;
    bytes[tail] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    assert!(matches!(open(folder.path(), &files), Err(StorageError::Corrupt { .. })));
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(open(folder.path(), &files), Err(StorageError::Io { .. })));
    let (storage, report) = Storage::open(salvage, &mut OneTable(schema())).unwrap();
    assert_eq!((report.lost.len(), report.rows_loaded), (1, schema_slots().into()), "the block that was written hot");
    storage.close().unwrap();
}

/// Damage in one block keeps no checkpoint from being made, also when the other blocks of its file
/// have changed.
#[test]
fn a_damaged_block_stays_where_it_is_when_the_rest_of_its_file_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let files = FaultFileSystem::default();
    let (storage, table) = open(folder.path(), &files).unwrap();
    filled(&storage, &table, 4);
    storage.close().unwrap();
    drop((storage, table));
    let file = data_files(folder.path()).pop().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let text = (3 * i64::from(schema_slots()) + 20_000..).find_map(text_of).unwrap();
    let at = bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&file, &bytes).unwrap();

    let changed = |no| RowId::new(BlockNo(no), Slot(3));
    let (storage, table) = open(folder.path(), &files).unwrap();
    (0..3).for_each(|no| update(&storage, &table, changed(no), "changed").unwrap());
    checkpoint(&storage).unwrap();
    storage.close().unwrap();
    drop((storage, table));
    let (storage, table) = open(folder.path(), &files).unwrap();
    let (txn, mut buffer) = (storage.begin(), RowBuffer::default());
    for no in 0..3 {
        assert!(table.read(txn.snapshot(), changed(no), &[TEXT], &mut buffer).unwrap());
        assert!(matches!(buffer.value(0), Value::Bytes(b"changed")));
    }
    assert!(table.read(txn.snapshot(), changed(3), &[ID], &mut buffer).unwrap(), "another column is whole");
    let result = table.read(txn.snapshot(), changed(3), &[TEXT], &mut buffer);
    assert!(matches!(result, Err(StorageError::Corrupt { file: found, .. }) if found == file));
}

fn schema_slots() -> u32 {
    block::layout::BlockLayout::new(&schema()).unwrap().slot_count()
}

#[test]
fn exported_arrays_outlive_the_thaw_and_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let files = FaultFileSystem::default();
    let (storage, table) = open(folder.path(), &files).unwrap();
    filled(&storage, &table, 1);
    let lend = || {
        let txn = storage.begin();
        let mut reader = table.read_block(txn.snapshot(), BlockNo(0)).unwrap();
        let visible = reader.visible().clone();
        reader.columns(&ALL.map(|id| ScanColumn { id, form: ColumnForm::Stored }), &visible).unwrap()
    };
    let (lent, again) = (lend(), lend());
    for (a, b) in lent.iter().zip(&again) {
        assert_eq!(a.to_data().buffers()[0].as_ptr(), b.to_data().buffers()[0].as_ptr(), "the mapping's own bytes");
    }
    let old = data_files(folder.path());
    for slot in 0..schema_slots() {
        if slot % 1_000 == 0 {
            update(&storage, &table, RowId::new(BlockNo(0), Slot(slot)), "changed").unwrap();
        }
    }
    checkpoint(&storage).unwrap();
    assert!(!old[0].exists());
    storage.close().unwrap();
    drop((storage, table));
    for array in &lent {
        array.to_data().validate_full().unwrap();
    }
    let (ids, texts) = (lent[0].as_primitive::<Int64Type>(), lent[1].as_string_view());
    for i in 0..ids.len() {
        assert_eq!(texts.is_valid(i).then(|| texts.value(i)), text_of(ids.value(i)).as_deref());
    }
}

#[test]
fn another_format_version_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (storage, table) = open(folder.path(), &FaultFileSystem::default()).unwrap();
    checkpoint(&storage).unwrap();
    storage.close().unwrap();
    drop((storage, table));
    let path = folder.path().join(MANIFEST);
    let text = std::fs::read_to_string(&path).unwrap();
    let json = text.split_once('\n').unwrap().1.replacen("\"format_version\":4", "\"format_version\":99", 1);
    std::fs::write(&path, format!("{:08x}\n{json}", crc32fast::hash(json.as_bytes()))).unwrap();
    let error = open(folder.path(), &FaultFileSystem::default()).unwrap_err().to_string();
    assert!(error.contains("format version 99") && error.contains("reads 4"), "{error}");
}

/// A table of a few rows does not get a block with each session: inserts go on in those that the
/// checkpoint has.
#[test]
fn inserts_go_on_in_the_blocks_of_the_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let files = FaultFileSystem::default();
    for session in 0..12i64 {
        let (storage, table) = open(folder.path(), &files).unwrap();
        let before = rows(&storage, &table);
        assert_eq!(before.len() as i64, session);
        let mut txn = storage.begin();
        table.insert(&mut txn, &[Value::Int64(session), Value::Null, Value::Null]).unwrap();
        txn.commit().unwrap().wait().unwrap();
        // Threads insert into four blocks.
        assert!(table.block_count() <= 4, "session {session}: {} blocks", table.block_count());
        checkpoint(&storage).unwrap();
        storage.close().unwrap();
        table.verify();
    }
}

/// Random work with checkpoints and freezing in between, and an end at a random file operation:
/// exactly the acknowledged commits are there. `SERAC_STRESS=1` makes it long; `SERAC_SEED=n`
/// replays a seed.
#[test]
fn checkpoints_survive_an_end_at_any_operation() {
    let mut rng = serac_testing::rng();
    let databases = if serac_testing::stress() { 200 } else { 6 };
    let (mut kept, mut written) = (0, 0);
    for _ in 0..databases {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        let mut model: BTreeMap<RowId, (i64, Option<String>)> = BTreeMap::new();
        for round in 0..12 {
            let files = FaultFileSystem::with_disk();
            files.faults().halt_in.store(rng.random_range(1..150), Ordering::SeqCst);
            // The changes of the transaction that was open at the end.
            let mut open_ended = None;
            if let Ok((storage, table)) = open(&path, &files) {
                assert_eq!(rows(&storage, &table), model, "round {round}");
                while !files.halted() {
                    match rng.random_range(0..10) {
                        0..=1 => {
                            if let Ok(report) = checkpoint(&storage) {
                                kept += report.blocks_kept;
                                written += report.blocks_written;
                            }
                        }
                        2..=3 => {
                            storage.freeze_table(&table, Duration::from_millis(20));
                        }
                        _ => {
                            let after = change(&mut rng, &storage, &table, &model);
                            match after {
                                (after, true) => model = after,
                                (after, false) => open_ended = Some(after),
                            }
                        }
                    }
                }
                let _ = storage.close();
            }
            if rng.random_bool(0.5) {
                files.power_returns(rng.random()).unwrap();
            } else {
                files.process_restarts();
            }
            let (storage, table) = open(&path, &files).unwrap_or_else(|error| panic!("round {round}: {error}"));
            let found = rows(&storage, &table);
            if found != model {
                assert_eq!(Some(&found), open_ended.as_ref(), "round {round}");
            }
            model = found;
            table.verify();
            storage.close().unwrap();
        }
    }
    assert!(kept > 0 && written > 0, "{kept} blocks kept, {written} written");
}

type Rows = BTreeMap<RowId, (i64, Option<String>)>;

/// One transaction of a few changes. Returns the rows with it, and whether it was acknowledged.
fn change(rng: &mut StdRng, storage: &Storage, table: &Arc<DataTable>, model: &Rows) -> (Rows, bool) {
    let (mut after, mut txn) = (model.clone(), storage.begin());
    for _ in 0..rng.random_range(1..20) {
        let known = (!after.is_empty() && rng.random_bool(0.6)).then(|| {
            let at = rng.random_range(0..after.len());
            *after.keys().nth(at).expect("counted")
        });
        match known {
            Some(row) if rng.random_bool(0.3) => {
                table.delete(&mut txn, row).unwrap();
                after.remove(&row);
            }
            Some(row) => {
                let text = format!("changed to {}, and long enough for the heap", rng.random::<u32>());
                table.update(&mut txn, row, &[TEXT], &[Value::Bytes(text.as_bytes())]).unwrap();
                after.get_mut(&row).expect("known").1 = Some(text);
            }
            None => {
                let id = rng.random::<u32>().into();
                let text = text_of(id);
                let value = text.as_ref().map_or(Value::Null, |text| Value::Bytes(text.as_bytes()));
                let row = table.insert(&mut txn, &[Value::Int64(id), value, Value::Int64(id)]).unwrap();
                after.insert(row, (id, text));
            }
        }
    }
    let acknowledged = txn.commit().and_then(|ticket| ticket.wait()).is_ok();
    (after, acknowledged)
}
