//! Arrow out in process: batches of frozen blocks are the blocks' own memory, valid Arrow, and never change.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, RecordBatch, StringViewArray};
use arrow_schema::DataType;
use serac_engine::definition::{ColumnDefinition, TableDefinition};
use serac_engine::{Database, DecimalForm, Table, Transaction};
use serac_storage::{ColumnType, RowId, Value};
use std::sync::Arc;
use std::time::Duration;

const TYPES: [(&str, ColumnType); 6] = [
    ("id", ColumnType::Int64),
    ("text", ColumnType::Utf8),
    ("price", ColumnType::Decimal { precision: 15, scale: 2 }),
    ("wide", ColumnType::Decimal { precision: 30, scale: 4 }),
    ("flag", ColumnType::Boolean),
    ("bytes", ColumnType::Binary),
];
const ALL: [usize; 6] = [0, 1, 2, 3, 4, 5];
const ROWS: i64 = 60_000;

fn filled() -> (Database, Arc<Table>) {
    let db = Database::in_memory().unwrap();
    let columns = TYPES.map(|(name, column_type)| ColumnDefinition {
        name: name.into(),
        sql_type: column_type.into(),
        nullable: true,
        default: None,
        always_generated: false,
    });
    let mut txn = db.begin();
    txn.create_table(TableDefinition::new("public", "t", columns.to_vec())).unwrap();
    let table = txn.catalog().table("public", "t").unwrap().clone();
    for id in 0..ROWS {
        let text = format!("the text of row {id}");
        let row = [
            Value::Int64(id),
            if id % 7 == 0 { Value::Null } else { Value::Bytes(text.as_bytes()) },
            Value::Int64(id * 100),
            Value::Int128(-i128::from(id)),
            Value::Bool(id % 2 == 0),
            Value::Bytes(b"\xff\x00"),
        ];
        txn.insert_row(&table, &row).unwrap();
    }
    txn.commit().unwrap().wait().unwrap();
    let (frozen, blocks) = db.storage().freeze_table(&table.data, Duration::from_secs(20));
    assert!(frozen == blocks && blocks > 2, "{frozen} of {blocks} blocks are frozen");
    (db, table)
}

fn scan(txn: &Transaction, table: &Arc<Table>) -> Vec<RecordBatch> {
    txn.scan_arrow(table, &ALL, DecimalForm::Decimal64).collect::<Result<_, _>>().unwrap()
}

/// The addresses of all buffers.
fn addresses(batches: &[RecordBatch]) -> Vec<usize> {
    let data = batches.iter().flat_map(|batch| batch.columns()).map(|column| column.to_data());
    data.flat_map(|data| data.buffers().iter().map(|buffer| buffer.as_ptr() as usize).collect::<Vec<_>>()).collect()
}

#[test]
fn frozen_batches_are_valid_arrow_and_not_copied() {
    let (db, table) = filled();
    let txn = db.begin();
    let (one, two) = (scan(&txn, &table), scan(&txn, &table));
    assert_eq!(addresses(&one), addresses(&two), "two readers get the same memory");
    assert_eq!(one.iter().map(RecordBatch::num_rows).sum::<usize>(), ROWS as usize);
    let mut ids = Vec::new();
    for batch in &one {
        batch.columns().iter().for_each(|column| column.to_data().validate_full().unwrap());
        assert_eq!(batch.schema().field(2).data_type(), &DataType::Decimal64(15, 2));
        for row in 0..batch.num_rows() {
            let id = batch.column(0).as_primitive::<Int64Type>().value(row);
            let text = batch.column(1).as_string_view();
            assert_eq!(text.is_null(row), id % 7 == 0);
            assert!(text.is_null(row) || text.value(row) == format!("the text of row {id}"));
            ids.push(id);
        }
    }
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..ROWS));
    let wide = txn.scan_arrow(&table, &[2], DecimalForm::Decimal128).next().unwrap().unwrap();
    assert_eq!(wide.schema().field(0).data_type(), &DataType::Decimal128(15, 2));
}

#[test]
fn a_held_batch_neither_stops_writers_nor_changes() {
    let (db, table) = filled();
    let held = scan(&db.begin(), &table);
    let before: Vec<RecordBatch> =
        held.iter().map(|batch| arrow_select::concat::concat_batches(&batch.schema(), [batch]).unwrap()).collect();
    let mut txn = db.begin();
    let rows: Vec<RowId> = (0..50).map(RowId::from_u64).collect();
    let text = Arc::new(StringViewArray::from(vec!["changed beside the reader"; rows.len()]));
    let new = RecordBatch::try_from_iter([("text", text as ArrayRef)]).unwrap();
    txn.update_batch(&table, &rows, &[1], &new).unwrap();
    txn.delete_batch(&table, &[RowId::from_u64(60)]).unwrap();
    txn.commit().unwrap().wait().unwrap();
    assert_eq!(held, before);
    let now = scan(&db.begin(), &table);
    assert_eq!(now.iter().map(RecordBatch::num_rows).sum::<usize>(), ROWS as usize - 1);
    assert_eq!(now[0].column(1).as_string_view().value(3), "changed beside the reader");
    // What was lent out outlives the database.
    drop((table, db));
    assert_eq!(held, before);
}
