//! A database whose cold data is several times the memory limit is opened, queried, updated and
//! written again.
//!
//! This test binary does the work as a child under RLIMIT_DATA: the kernel then refuses private
//! memory beyond the limit, while mapped files do not count. A checkpoint that was loaded, or a
//! block that stayed in memory after it was written, would end the child.
#![cfg(target_os = "linux")]

mod one_table;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use one_table::{checkpoint, open_table, required};
use serac_storage::*;
use serac_testing::{ran, this_test};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Private memory of the child.
const LIMIT_BYTES: u64 = 48 << 20;
/// About 3.6 times as much, when frozen.
const BLOCKS: u32 = 120;

fn schema() -> TableSchema {
    TableSchema { columns: vec![required("id", ColumnType::Int64), required("text", ColumnType::Utf8)] }
}

fn open(path: &Path) -> (Arc<Storage>, Arc<DataTable>) {
    let options = StorageOptions {
        path: Some(path.to_owned()),
        durability: Durability::Relaxed,
        freeze_after: None,
        log_segment_bytes: 1 << 20,
        ..Default::default()
    };
    let (storage, table, _) = open_table(options, schema()).unwrap();
    (storage, table)
}

/// A text of 20 bytes, too long to lie in its view.
fn text_of(id: i64) -> String {
    format!("row {id:016}")
}

/// Rows, the sum of the ids, and the bytes of the texts.
fn totals(storage: &Storage, table: &DataTable) -> (i64, i64, i64) {
    let (txn, mut totals) = (storage.begin(), (0, 0, 0));
    for no in (0..table.block_count()).map(BlockNo) {
        let Some(mut reader) = table.read_block(txn.snapshot(), no) else { continue };
        let visible = reader.visible().clone();
        let columns = reader.columns(&[0, 1].map(|c| ScanColumn::arrow(ColumnId(c))), &visible).unwrap();
        totals.0 += visible.len() as i64;
        totals.1 += columns[0].as_primitive::<Int64Type>().values().iter().sum::<i64>();
        totals.2 += columns[1].as_string_view().iter().flatten().map(|text| text.len() as i64).sum::<i64>();
    }
    totals
}

/// Loads the database without a limit. Returns its rows.
fn load(path: &Path) -> i64 {
    let (storage, table) = open(path);
    let slots = i64::from(table.layout().slot_count());
    for block in 0..i64::from(BLOCKS) {
        let ids = block * slots..(block + 1) * slots;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(ids.clone())),
            Arc::new(StringViewArray::from_iter_values(ids.map(text_of))),
        ];
        let mut txn = storage.begin();
        table.append(&mut txn, &RecordBatch::try_new(schema().arrow(), columns).unwrap()).unwrap();
        txn.commit().unwrap();
    }
    let (frozen, all) = storage.freeze_table(&table, Duration::from_secs(60));
    assert_eq!((frozen, all), (BLOCKS, BLOCKS));
    let report = checkpoint(&storage).unwrap();
    assert!(report.bytes > LIMIT_BYTES * 3, "{report:?}");
    assert_eq!(table.metrics().mapped_bytes, table.metrics().bytes, "what is written has left the memory");
    storage.close().unwrap();
    i64::from(BLOCKS) * slots
}

fn limit_memory() {
    let limit = libc::rlimit { rlim_cur: LIMIT_BYTES, rlim_max: LIMIT_BYTES };
    // SAFETY: a plain call with a pointer to a value of our own.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_DATA, &limit) }, 0);
    let too_much = Vec::<u8>::new().try_reserve_exact(LIMIT_BYTES as usize);
    assert!(too_much.is_err(), "the limit holds");
}

/// The child.
#[test]
fn limited_child() {
    let Ok(path) = std::env::var("SERAC_LIMITED_CHILD") else { return };
    let rows: i64 = std::env::var("SERAC_LIMITED_ROWS").unwrap().parse().unwrap();
    limit_memory();
    let expected = (rows, rows * (rows - 1) / 2, rows * 20);
    let (storage, table) = open(Path::new(&path));
    assert_eq!(table.metrics().mapped_bytes, table.metrics().bytes);
    assert_eq!(totals(&storage, &table), expected);

    // In all, more blocks thaw than fit the memory; a checkpoint makes room.
    let (mut changed, mut first) = (0, 0);
    while first < BLOCKS {
        let mut txn = storage.begin();
        for block in (first..BLOCKS).take(5) {
            let row = RowId::new(BlockNo(block), Slot(17));
            let values = [Value::Int64(0), Value::Bytes(b"this text has a length of 34 bytes")];
            table.update(&mut txn, row, &[ColumnId(0), ColumnId(1)], &values).unwrap();
            changed += 1;
        }
        txn.commit().unwrap().wait().unwrap();
        first += 10;
        storage.freeze_table(&table, Duration::from_secs(60));
        let report = checkpoint(&storage).unwrap();
        assert!(report.blocks_written >= 5, "{report:?}");
    }
    let slots = i64::from(table.layout().slot_count());
    let gone: i64 = (0..i64::from(BLOCKS)).filter(|block| block % 10 < 5).map(|block| block * slots + 17).sum();
    let expected = (rows, expected.1 - gone, expected.2 + 14 * changed);
    assert_eq!(totals(&storage, &table), expected);
    storage.close().unwrap();
    drop((storage, table));

    let (storage, table) = open(Path::new(&path));
    assert_eq!(totals(&storage, &table), expected);
    storage.close().unwrap();
}

#[test]
fn cold_data_may_exceed_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let rows = load(folder.path());
    let mut child = this_test("limited_child");
    child.env("SERAC_LIMITED_CHILD", folder.path()).env("SERAC_LIMITED_ROWS", rows.to_string());
    // The stacks of threads count as its memory.
    let (output, error, succeeded) = ran(child.env_remove("RUST_MIN_STACK"));
    assert!(succeeded, "{output}\n{error}");
    assert!(output.contains("1 passed"), "the child has run");
}
