//! Arrow's C stream interface: arrays that another language holds neither stop writers nor change,
//! and are released from any thread.

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchReader, StringViewArray};
use serac_engine::catalog::definition::{ColumnDefinition, TableDefinition};
use serac_engine::{Database, DecimalForm, Table};
use serac_export::c_stream;
use serac_storage::{ColumnType, RowId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const ROWS: i64 = 100_000;

fn filled() -> (Database, Arc<Table>) {
    let db = Database::in_memory().unwrap();
    let column = |name: &str, column_type: ColumnType| ColumnDefinition::new(name, column_type);
    let columns = vec![column("id", ColumnType::Int64), column("text", ColumnType::Utf8)];
    let mut txn = db.begin();
    txn.create_table(TableDefinition::new("public", "t", columns)).unwrap();
    let table = txn.catalog().table("public", "t").unwrap().clone();
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS));
    let texts: StringViewArray = (0..ROWS).map(|i| (i % 5 != 0).then(|| format!("the text of row {i}"))).collect();
    txn.insert_batch(&table, &RecordBatch::try_from_iter([("id", ids), ("text", Arc::new(texts) as _)]).unwrap())
        .unwrap();
    txn.commit().unwrap().wait().unwrap();
    let (frozen, blocks) = db.storage().freeze_table(&table.data, Duration::from_secs(20));
    assert!(frozen == blocks && blocks > 2, "{frozen} of {blocks} blocks are frozen");
    (db, table)
}

/// Does the work of a C program: moves the struct out of a raw pointer, and reads.
fn import(mut stream: FFI_ArrowArrayStream) -> ArrowArrayStreamReader {
    // SAFETY: the pointer is to a stream that was just exported; `from_raw` leaves an empty one
    // behind.
    unsafe { ArrowArrayStreamReader::from_raw(&mut stream) }.unwrap()
}

fn check(batches: &[RecordBatch]) {
    let mut id = 0;
    for batch in batches {
        batch.columns().iter().for_each(|column| column.to_data().validate_full().unwrap());
        let (ids, texts) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_string_view());
        for row in 0..batch.num_rows() {
            assert_eq!(ids.value(row), id);
            assert_eq!(texts.is_null(row), id % 5 == 0);
            assert!(texts.is_null(row) || texts.value(row) == format!("the text of row {id}"));
            id += 1;
        }
    }
    assert_eq!(id, ROWS);
}

#[test]
fn the_memory_is_the_blocks_and_outlives_them() {
    let (db, table) = filled();
    let scan = db.begin().scan_arrow(&table, &[0, 1], &[]).unwrap();
    let lent = scan.clone().next().unwrap().unwrap();
    let reader = import(c_stream(scan));
    assert_eq!(reader.schema(), lent.schema());
    let held: Vec<RecordBatch> = reader.collect::<Result<_, _>>().unwrap();
    let address = |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().as_ptr();
    assert_eq!(address(&held[0]), address(&lent), "nothing was copied");
    let text = |batch: &RecordBatch| batch.column(1).as_string_view().data_buffers()[0].as_ptr();
    assert_eq!(text(&held[0]), text(&lent), "nothing was copied");
    drop((lent, table, db));
    std::thread::spawn(move || check(&held)).join().unwrap();
}

#[test]
fn a_stream_that_is_held_sees_its_snapshot_while_writers_go_on() {
    let (db, table) = filled();
    let mut reader = import(c_stream(db.begin().scan_arrow(&table, &[0, 1], &[]).unwrap()));
    let mut held = vec![reader.next().unwrap().unwrap()];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut row = 0;
            while !stop.load(Ordering::Relaxed) {
                let rows: Vec<RowId> = (row..row + 50).map(|i| RowId::from_u64(i * 7 % 500)).collect();
                let text = Arc::new(StringViewArray::from(vec!["changed while the stream is held"; rows.len()]));
                let mut txn = db.begin();
                txn.update_batch(
                    &table,
                    &rows,
                    &[1],
                    &RecordBatch::try_from_iter([("text", text as ArrayRef)]).unwrap(),
                )
                .unwrap();
                txn.commit().unwrap().wait().unwrap();
                db.storage().run_gc();
                row += 50;
                if row % 1000 == 0 {
                    db.storage().freeze_table(&table.data, Duration::from_millis(100));
                }
            }
        });
        // The rest is read while blocks thaw and freeze.
        for batch in reader.by_ref() {
            held.push(batch.unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
    });
    check(&held);
    // The stream and the arrays are given back by another thread, after which nothing holds the
    // snapshot.
    std::thread::spawn(move || drop((reader, held))).join().unwrap();
    assert_eq!(db.storage().manager().active_count(), 0);
}

#[test]
fn a_stream_released_unread_or_half_read_leaves_nothing_behind() {
    let (db, table) = filled();
    let scan = || db.begin().scan_arrow(&table, &[1], &[]).unwrap().with_decimals(DecimalForm::Decimal64);
    drop(c_stream(scan()));
    let mut half = import(c_stream(scan()));
    half.next().unwrap().unwrap();
    assert_eq!(db.storage().manager().active_count(), 1);
    drop(half);
    assert_eq!(db.storage().manager().active_count(), 0);
}
