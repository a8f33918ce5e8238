//! Arrow out in process: batches of frozen blocks are the blocks' own memory, valid Arrow, and
//! never change.

mod common;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, Int32Array, Int64Array, RecordBatch, RecordBatchReader, StringViewArray, new_null_array,
};
use arrow_ord::ord::make_comparator;
use arrow_schema::{DataType, SortOptions};
use common::column;
use serac_engine::catalog::definition::TableDefinition;
use serac_engine::{ArrowScan, ColumnFilter, Comparison, Database, DecimalForm, Table, Transaction, VarlenForm};
use serac_storage::{BlockNo, ColumnType, FreezeFormat, RowId, Slot, Value};
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
    let columns = TYPES.map(|(name, column_type)| column(name, column_type));
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
    txn.scan_arrow(table, &ALL, &[]).unwrap().with_decimals(DecimalForm::Decimal64).collect::<Result<_, _>>().unwrap()
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
    let wide = txn.scan_arrow(&table, &[2], &[]).unwrap().next().unwrap().unwrap();
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
    // Lent arrays outlive the database.
    drop((table, db));
    assert_eq!(held, before);
}

const COMPARISONS: [Comparison; 6] = [
    Comparison::Equal,
    Comparison::NotEqual,
    Comparison::Less,
    Comparison::LessOrEqual,
    Comparison::Greater,
    Comparison::GreaterOrEqual,
];

/// The ids of the rows that qualify, row by row.
fn expected(all: &[RecordBatch], filter: &[ColumnFilter]) -> Vec<i64> {
    let mut ids = Vec::new();
    for batch in all {
        let comparators: Vec<_> = filter
            .iter()
            .map(|f| make_comparator(batch.column(f.column), &f.constant, SortOptions::default()).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let holds = |(f, compare): (&ColumnFilter, &arrow_ord::ord::DynComparator)| {
                let holds_for = |constant: usize| {
                    let order = compare(row, constant);
                    match f.comparison {
                        Comparison::Equal => order.is_eq(),
                        Comparison::NotEqual => order.is_ne(),
                        Comparison::Less => order.is_lt(),
                        Comparison::LessOrEqual => order.is_le(),
                        Comparison::Greater => order.is_gt(),
                        Comparison::GreaterOrEqual => order.is_ge(),
                    }
                };
                !batch.column(f.column).is_null(row)
                    && (0..f.constant.len()).any(|constant| !f.constant.is_null(constant) && holds_for(constant))
            };
            if filter.iter().zip(&comparators).all(holds) {
                ids.push(batch.column(0).as_primitive::<Int64Type>().value(row));
            }
        }
    }
    ids
}

#[test]
fn filters_agree_with_a_row_by_row_oracle_on_hot_and_frozen_blocks() {
    let (db, table) = filled();
    // Thaw a block, put versions into it, and leave empty slots.
    let mut txn = db.begin();
    txn.delete_batch(&table, &(10..500).step_by(3).map(RowId::from_u64).collect::<Vec<_>>()).unwrap();
    txn.commit().unwrap().wait().unwrap();
    let txn = db.begin();
    let all: Vec<RecordBatch> = txn.scan_arrow(&table, &ALL, &[]).unwrap().collect::<Result<_, _>>().unwrap();
    let mut filters: Vec<Vec<ColumnFilter>> = Vec::new();
    let one = |column: usize, comparison, batch: usize, row: usize| ColumnFilter {
        column,
        comparison,
        constant: all[batch].column(column).slice(row, 1),
    };
    for comparison in COMPARISONS {
        filters.extend(ALL.map(|column| vec![one(column, comparison, 0, 8)]));
        filters.extend(ALL.map(|column| vec![one(column, comparison, 2, 5)]));
        filters.push(vec![
            one(0, Comparison::GreaterOrEqual, 1, 3),
            one(1, comparison, 1, 4),
            one(2, Comparison::Less, 2, 1),
        ]);
        filters.push(vec![ColumnFilter {
            column: 2,
            comparison,
            constant: new_null_array(&DataType::Decimal128(15, 2), 1),
        }]);
    }
    // Lists, with NULLs where the column has some.
    for (batch, at, count) in [(0, 6, 20), (2, 5, 2), (1, 7, 1), (1, 7, 0)] {
        let list = |column: usize| all[batch].column(column).slice(at, count);
        filters.extend(
            ALL.map(|column| vec![ColumnFilter { column, comparison: Comparison::Equal, constant: list(column) }]),
        );
    }
    let (mut some, mut none) = (0, 0);
    for filter in filters {
        let found: Vec<RecordBatch> = txn.scan_arrow(&table, &[0], &filter).unwrap().collect::<Result<_, _>>().unwrap();
        let ids: Vec<i64> =
            found.iter().flat_map(|b| b.column(0).as_primitive::<Int64Type>().values().to_vec()).collect();
        assert_eq!(ids, expected(&all, &filter), "{filter:?}");
        if ids.is_empty() { none += 1 } else { some += 1 }
    }
    assert!(some > 30 && none > 3, "{some} filters find rows, {none} do not");
}

#[test]
fn forms_and_ranges_of_blocks_give_the_same_rows() {
    let (db, table) = filled();
    let txn = db.begin();
    let scan = txn.scan_arrow(&table, &ALL, &[]).unwrap();
    let whole: Vec<RecordBatch> = scan.clone().collect::<Result<_, _>>().unwrap();
    let blocks = scan.blocks();
    let pieces = blocks.clone().flat_map(|no| scan.clone().within(no..no + 1)).collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(pieces, whole);
    let offsets: Vec<RecordBatch> = scan.clone().with_varlen(VarlenForm::Offsets).collect::<Result<_, _>>().unwrap();
    for (view, offset) in whole.iter().zip(&offsets) {
        assert_eq!(offset.schema().field(1).data_type(), &DataType::Utf8);
        assert_eq!(offset.schema().field(5).data_type(), &DataType::Binary);
        offset.columns().iter().for_each(|column| column.to_data().validate_full().unwrap());
        let (view, offset) = (view.column(1).as_string_view(), offset.column(1).as_string::<i32>());
        assert!(view.iter().eq(offset.iter()));
    }
    assert_eq!(
        scan.clone().with_varlen(VarlenForm::Offsets).with_varlen(VarlenForm::View).next().unwrap().unwrap(),
        whole[0]
    );
}

/// The buffers of an array; for a dictionary, the codes and the buffers of the words.
fn own(array: &ArrayRef) -> Vec<*const u8> {
    let data = array.to_data();
    let words = data.child_data().iter().flat_map(|words| words.buffers());
    data.buffers().iter().chain(words).map(|buffer| buffer.as_ptr()).collect()
}

#[test]
fn blocks_lend_what_they_have_in_the_form_asked_for_and_make_the_rest() {
    for (form, format) in [
        (VarlenForm::View, FreezeFormat::View),
        (VarlenForm::Offsets, FreezeFormat::Utf8),
        (VarlenForm::Dictionary, FreezeFormat::Dictionary),
    ] {
        let (db, table) = filled();
        table.data.set_freeze_format(format);
        let (frozen, blocks) = db.storage().freeze_table(&table.data, Duration::from_secs(20));
        assert_eq!(frozen, blocks);
        // Block 1 is hot and has holes and versions; block 2 has been that and is frozen again with
        // holes, unless compaction filled them.
        let rows =
            |no: u32| (5..900).step_by(7).map(move |slot| RowId::new(BlockNo(no), Slot(slot))).collect::<Vec<_>>();
        let delete = |no| {
            let mut txn = db.begin();
            txn.delete_batch(&table, &rows(no)).unwrap();
            txn.commit().unwrap().wait().unwrap();
        };
        delete(2);
        let (frozen, _) = db.storage().freeze_table(&table.data, Duration::from_secs(20));
        assert!(frozen > 1);
        delete(1);
        let txn = db.begin();
        let plain = txn.scan_arrow(&table, &ALL, &[]).unwrap();
        let scan = plain.clone().with_varlen(form).with_decimals(DecimalForm::Decimal64);
        let (mut lent, mut made) = (0, 0);
        for no in scan.blocks() {
            let Some(batch) = scan.clone().within(no..no + 1).next().transpose().unwrap() else { continue };
            assert_eq!(batch.schema(), scan.schema(), "block {no}");
            let expected = plain.clone().within(no..no + 1).next().unwrap().unwrap();
            for (got, expected) in batch.columns().iter().zip(expected.columns()) {
                got.to_data().validate_full().unwrap();
                assert_eq!(&*arrow_cast::cast(got, expected.data_type()).unwrap(), &**expected, "block {no}");
            }
            let block = table.data.block(BlockNo(no)).unwrap();
            match block.frozen().filter(|block| block.presence().is_none()) {
                None => made += 1,
                Some(block) => {
                    for (got, stored) in batch.columns().iter().zip(block.arrays(table.data.schema())) {
                        if got.data_type() == stored.data_type() {
                            assert_eq!(own(got), own(&stored), "block {no}: {} is copied", got.data_type());
                            lent += 1;
                        }
                    }
                }
            }
        }
        // A dictionary of texts that are all different would not pay: the column is not lent.
        let columns = if form == VarlenForm::Dictionary { ALL.len() - 1 } else { ALL.len() };
        assert!(
            lent >= columns && lent % columns == 0 && made > 0,
            "{form:?}: {lent} columns lent, {made} blocks made"
        );
        // With a condition, the survivors of frozen blocks are taken from the same arrays.
        let condition = [ColumnFilter {
            column: 0,
            comparison: Comparison::Less,
            constant: Arc::new(Int64Array::from(vec![ROWS - 100])),
        }];
        let some = |scan: ArrowScan| scan.collect::<Result<Vec<_>, _>>().unwrap();
        let filtered = txn.scan_arrow(&table, &ALL, &condition).unwrap();
        let got = some(filtered.clone().with_varlen(form));
        let expected = some(filtered);
        assert_eq!(got.len(), expected.len());
        for (got, expected) in got.iter().zip(&expected) {
            let got = arrow_cast::cast(got.column(1), &DataType::Utf8View).unwrap();
            assert_eq!(&*got, &**expected.column(1));
        }
        // One column in another form.
        let one =
            plain.with_varlen(VarlenForm::Offsets).with_varlen_where(VarlenForm::Dictionary, |column| column == 5);
        let types: Vec<DataType> = one.schema().fields().iter().map(|field| field.data_type().clone()).collect();
        let dictionary = DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Binary));
        assert_eq!((&types[1], &types[5]), (&DataType::Utf8, &dictionary));
        assert_eq!(one.schema(), one.clone().next().unwrap().unwrap().schema());
    }
}

/// Blocks that have values packed give the same Arrow as others: decoded copies, in every form.
#[test]
fn compact_blocks_leave_as_the_arrow_of_other_blocks() {
    let (db, table) = filled();
    let forms = [VarlenForm::View, VarlenForm::Offsets, VarlenForm::Dictionary];
    let condition = [ColumnFilter {
        column: 0,
        comparison: Comparison::GreaterOrEqual,
        constant: Arc::new(Int64Array::from(vec![ROWS / 2])),
    }];
    let all = |db: &Database| {
        let txn = db.begin();
        let mut batches = Vec::new();
        for filter in [&[][..], &condition] {
            let plain = txn.scan_arrow(&table, &ALL, filter).unwrap();
            for decimals in [DecimalForm::Decimal64, DecimalForm::Decimal128] {
                let scans = forms.map(|form| plain.clone().with_varlen(form).with_decimals(decimals));
                batches.extend(scans.into_iter().map(|scan| scan.collect::<Result<Vec<_>, _>>().unwrap()));
            }
        }
        batches
    };
    let expected = all(&db);
    table.data.set_freeze_format(FreezeFormat::Compact);
    let (frozen, blocks) = db.storage().freeze_table(&table.data, Duration::from_secs(20));
    assert_eq!(frozen, blocks);
    let found = all(&db);
    for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
        found.columns().iter().for_each(|column| column.to_data().validate_full().unwrap());
        // Codes may name other words.
        let plain = |batch: &RecordBatch| -> Vec<ArrayRef> {
            let plain = |column: &ArrayRef| match column.data_type() {
                DataType::Dictionary(_, words) => arrow_cast::cast(column, words).unwrap(),
                _ => column.clone(),
            };
            batch.columns().iter().map(plain).collect()
        };
        assert_eq!(found.schema(), expected.schema());
        assert_eq!(plain(found), plain(expected));
    }
    // The form that most blocks have is one that leaves, too, and nothing of it lies in a block.
    let txn = db.begin();
    let scan = txn.scan_arrow(&table, &[1, 5], &[]).unwrap().as_stored();
    let types: Vec<DataType> = scan.schema().fields().iter().map(|field| field.data_type().clone()).collect();
    let words = DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Binary));
    assert_eq!(types, [DataType::Utf8, words]);
    let scan = txn.scan_arrow(&table, &[0], &[]).unwrap().as_stored();
    for no in scan.blocks() {
        let Some(batch) = scan.clone().within(no..no + 1).next().transpose().unwrap() else { continue };
        let memory = scan.frozen_memory(no);
        assert!(!memory.is_empty());
        assert!(addresses(&[batch]).iter().all(|address| memory.iter().all(|range| !range.contains(address))));
    }
}

#[test]
fn what_does_not_fit_the_table_is_refused() {
    let (db, table) = filled();
    let txn = db.begin();
    let filter = |column, constant| [ColumnFilter { column, comparison: Comparison::Equal, constant }];
    let message =
        |columns: &[usize], filter: &[ColumnFilter]| txn.scan_arrow(&table, columns, filter).unwrap_err().to_string();
    assert_eq!(message(&[6], &[]), "relation \"t\" has no column 6");
    assert_eq!(message(&[], &filter(9, Arc::new(Int64Array::from(vec![1])))), "relation \"t\" has no column 9");
    let wrong = "column \"id\" is compared with one value of type Int64, not with 1 of type Int32";
    assert_eq!(message(&[0], &filter(0, Arc::new(Int32Array::from(vec![1])))), wrong);
    // A list is compared with Equal alone.
    let wrong = "column \"id\" is compared with one value of type Int64, not with 2 of type Int64";
    let two = Arc::new(Int64Array::from(vec![1, 2]));
    let less = ColumnFilter { column: 0, comparison: Comparison::Less, constant: two.clone() };
    assert_eq!(message(&[0], &[less]), wrong);
    assert!(txn.scan_arrow(&table, &[0], &filter(0, two)).is_ok());
    // No columns: the rows are counted.
    let rows = txn.scan_arrow(&table, &[], &[]).unwrap().map(|batch| batch.unwrap().num_rows()).sum::<usize>();
    assert_eq!(rows, ROWS as usize);
}
