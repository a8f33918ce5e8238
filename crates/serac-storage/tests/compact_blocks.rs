//! Blocks in `compact` format: what they save, and that reads, selections, checkpoints, reopening
//! and thaws find in them what was written.

mod one_table;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, Date32Array, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringViewArray,
};
use one_table::{checkpoint, column, open_table, required};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_storage::durability::checkpoint::DATA_FOLDER;
use serac_storage::*;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const PRICE: ColumnType = ColumnType::Decimal { precision: 15, scale: 2 };
const WIDE: ColumnType = ColumnType::Decimal { precision: 30, scale: 2 };

/// The columns of TPC-H's lineitem, and what they lack: NULLs, a wide decimal, a constant.
fn schema() -> TableSchema {
    TableSchema {
        columns: vec![
            required("orderkey", ColumnType::Int64),
            required("partkey", ColumnType::Int64),
            required("suppkey", ColumnType::Int64),
            required("linenumber", ColumnType::Int32),
            required("quantity", PRICE),
            required("extendedprice", PRICE),
            required("discount", PRICE),
            required("tax", PRICE),
            required("returnflag", ColumnType::Utf8),
            required("linestatus", ColumnType::Utf8),
            required("shipdate", ColumnType::Date),
            required("commitdate", ColumnType::Date),
            required("receiptdate", ColumnType::Date),
            required("shipinstruct", ColumnType::Utf8),
            required("shipmode", ColumnType::Utf8),
            required("comment", ColumnType::Utf8),
            column("wide", WIDE),
            column("some", ColumnType::Int64),
            column("constant", ColumnType::Int32),
        ],
    }
}
const LINEITEM: usize = 16;

fn column_no(name: &str) -> ColumnId {
    ColumnId(schema().columns.iter().position(|column| column.name == name).unwrap() as u16)
}

/// Rows as TPC-H's scale factor 1 has them.
fn rows(count: usize, rng: &mut StdRng) -> Vec<ArrayRef> {
    fn pick(rng: &mut StdRng, words: &[&'static str], count: usize) -> ArrayRef {
        let words = (0..count).map(|_| words[rng.random_range(0..words.len())]);
        Arc::new(StringViewArray::from_iter_values(words))
    }
    fn longs(rng: &mut StdRng, from: i64, to: i64, count: usize) -> ArrayRef {
        Arc::new(Int64Array::from_iter_values((0..count).map(|_| rng.random_range(from..=to))))
    }
    fn decimals(rng: &mut StdRng, from: i128, to: i128, count: usize) -> ArrayRef {
        let values = (0..count).map(|_| rng.random_range(from..=to));
        Arc::new(Decimal128Array::from_iter_values(values).with_precision_and_scale(15, 2).unwrap())
    }
    fn dates(rng: &mut StdRng, count: usize) -> ArrayRef {
        Arc::new(Date32Array::from_iter_values((0..count).map(|_| rng.random_range(8035..=10_591))))
    }
    let nouns = ["deposits", "packages", "theodolites", "accounts", "requests", "pinto beans", "instructions"];
    let comments = (0..count).map(|_| {
        let mut text = String::new();
        let len = rng.random_range(10..=43);
        while text.len() < len {
            text.push_str(nouns[rng.random_range(0..nouns.len())]);
            text.push(if rng.random_bool(0.1) { 's' } else { ' ' });
        }
        text.truncate(len);
        text
    });
    let comments: ArrayRef = Arc::new(StringViewArray::from_iter_values(comments));
    let wide = (0..count).map(|i| (i % 7 != 0).then(|| i128::from(rng.random_range(-4_000i32..4_000))));
    let wide = wide.collect::<Decimal128Array>().with_precision_and_scale(30, 2).unwrap();
    let some: Int64Array = (0..count).map(|i| (i % 5 != 0).then(|| rng.random_range(-50..50))).collect();
    vec![
        Arc::new(Int64Array::from_iter_values((0..count as i64).map(|i| i / 4 * 4 + 1))),
        longs(rng, 1, 200_000, count),
        longs(rng, 1, 10_000, count),
        Arc::new(Int32Array::from_iter_values((0..count as i32).map(|i| i % 7 + 1))),
        decimals(rng, 100, 5_000, count),
        decimals(rng, 90_000, 10_494_950, count),
        decimals(rng, 0, 10, count),
        decimals(rng, 0, 8, count),
        pick(rng, &["A", "N", "R"], count),
        pick(rng, &["F", "O"], count),
        dates(rng, count),
        dates(rng, count),
        dates(rng, count),
        pick(rng, &["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"], count),
        pick(rng, &["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"], count),
        comments,
        Arc::new(wide),
        Arc::new(some),
        Arc::new(Int32Array::from(vec![42; count])),
    ]
}

fn open(path: Option<&Path>) -> (Arc<Storage>, Arc<DataTable>) {
    let options = StorageOptions { path: path.map(Path::to_owned), freeze_after: None, ..Default::default() };
    let (storage, table, _) = open_table(options, schema()).unwrap();
    (storage, table)
}

/// Fills a number of blocks, which freeze.
fn fill(storage: &Storage, table: &Arc<DataTable>, blocks: u32, rng: &mut StdRng) -> Vec<ArrayRef> {
    let columns = rows((blocks * table.layout().slot_count()) as usize, rng);
    let mut txn = storage.begin();
    table.append(&mut txn, &RecordBatch::try_new(schema().arrow(), columns.clone()).unwrap()).unwrap();
    txn.commit().unwrap().wait().unwrap();
    assert_eq!(storage.freeze_table(table, Duration::from_secs(60)), (blocks, blocks));
    columns
}

fn check(storage: &Storage, table: &DataTable, columns: &[ArrayRef], rng: &mut StdRng) {
    let (txn, mut from) = (storage.begin(), 0);
    let wanted: Vec<ScanColumn> = (0..columns.len()).map(|i| ScanColumn::arrow(ColumnId(i as u16))).collect();
    for no in (0..table.block_count()).map(BlockNo) {
        let mut reader = table.read_block(txn.snapshot(), no).unwrap();
        let all = reader.visible().clone();
        let len = all.len();
        for (column, found) in columns.iter().zip(reader.columns(&wanted, &all).unwrap()) {
            found.to_data().validate_full().unwrap();
            assert_eq!(found.to_data(), column.slice(from, len).to_data());
        }
        for part in [0.01, 0.5] {
            let slots: Vec<u32> = (0..len as u32).filter(|_| rng.random_bool(part)).collect();
            let positions = arrow_array::UInt32Array::from(slots.clone());
            let found = reader.columns(&wanted, &Selection::Positions(slots)).unwrap();
            for (column, found) in columns.iter().zip(found) {
                let taken = arrow_select::take::take(&column.slice(from, len), &positions, None).unwrap();
                assert_eq!(found.to_data(), taken.to_data());
            }
        }
        from += len;
    }
    assert_eq!(from, columns[0].len());
}

#[test]
fn lineitem_takes_half_of_arrows_bytes() {
    let seed = rand::rng().random();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let (storage, table) = open(None);
    let columns = fill(&storage, &table, 2, &mut rng);
    let plain = table.metrics().bytes;
    table.set_freeze_format(FreezeFormat::Compact);
    assert_eq!(storage.freeze_table(&table, Duration::from_secs(60)), (2, 2));
    let compact = table.metrics().bytes;
    println!("views {plain} bytes, compact {compact} bytes");
    let block = table.block(BlockNo(0)).unwrap();
    let frozen = block.frozen().unwrap();
    let rows = f64::from(frozen.rows());
    for (i, column) in schema().columns.iter().enumerate() {
        println!("{:14} {:6.2} bytes a value", column.name, frozen.column_bytes(ColumnId(i as u16)) as f64 / rows);
    }
    let lineitem: usize = (0..LINEITEM as u16).map(|i| frozen.column_bytes(ColumnId(i))).sum();
    // Arrow with short decimals of 64 bits, and offsets.
    let texts = columns[..LINEITEM].iter().filter_map(|column| column.as_string_view_opt());
    let text_bytes: usize = texts.map(|texts| texts.iter().flatten().map(str::len).sum::<usize>()).sum();
    let arrow = 7.0 * 8.0 + 4.0 * 4.0 + 5.0 * 4.0 + text_bytes as f64 / columns[0].len() as f64;
    println!("lineitem {:.1} bytes a row, Arrow {arrow:.1}", lineitem as f64 / rows);
    assert!(lineitem as f64 / rows < arrow / 1.9, "Arrow with offsets");
    assert!(compact * 2 < plain, "the blocks with their views");
    check(&storage, &table, &columns, &mut rng);
    table.verify();
}

/// Also after a checkpoint, after reopening and after a thaw.
#[test]
fn compact_blocks_keep_their_values() {
    let seed = rand::rng().random();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().unwrap();
    let (storage, table) = open(Some(folder.path()));
    table.set_freeze_format(FreezeFormat::Compact);
    let columns = fill(&storage, &table, 2, &mut rng);
    check(&storage, &table, &columns, &mut rng);
    assert_eq!(checkpoint(&storage).unwrap().blocks_written, 2);
    assert!(table.block(BlockNo(0)).unwrap().frozen().unwrap().is_mapped());
    check(&storage, &table, &columns, &mut rng);
    drop((table, storage));

    let (storage, table) = open(Some(folder.path()));
    table.set_freeze_format(FreezeFormat::Compact);
    assert_eq!(table.block(BlockNo(1)).unwrap().frozen().unwrap().format(), FreezeFormat::Compact);
    check(&storage, &table, &columns, &mut rng);
    // The mapped bits answer selections.
    let txn = storage.begin();
    let reader = table.read_block(txn.snapshot(), BlockNo(0)).unwrap();
    assert!(reader.select(column_no("shipdate"), Comparison::Less, 9_000, reader.visible()).is_some());
    drop(reader);
    drop(txn);
    assert_eq!(checkpoint(&storage).unwrap().blocks_written, 0);

    // A write thaws, and the block can freeze again.
    let row = RowId::new(BlockNo(0), Slot(3));
    let mut txn = storage.begin();
    table.update(&mut txn, row, &[column_no("shipmode")], &[Value::Bytes(b"a long way by a slow ship")]).unwrap();
    table.update(&mut txn, row, &[column_no("some")], &[Value::Int64(i64::MIN)]).unwrap();
    txn.commit().unwrap().wait().unwrap();
    assert!(table.block(BlockNo(0)).unwrap().frozen().is_none());
    let (modes, some) = (columns[14].as_string_view(), columns[17].as_primitive::<Int64Type>());
    let mut changed = columns.clone();
    let mode = |i| if i == 3 { "a long way by a slow ship" } else { modes.value(i) };
    changed[14] = Arc::new(StringViewArray::from_iter_values((0..modes.len()).map(mode)));
    let value = |i| if i == 3 { Some(i64::MIN) } else { some.is_valid(i).then(|| some.value(i)) };
    changed[17] = Arc::new((0..some.len()).map(value).collect::<Int64Array>());
    check(&storage, &table, &changed, &mut rng);
    assert_eq!(storage.freeze_table(&table, Duration::from_secs(60)), (2, 2));
    check(&storage, &table, &changed, &mut rng);
    checkpoint(&storage).unwrap();
    check(&storage, &table, &changed, &mut rng);
    for format in [FreezeFormat::View, FreezeFormat::Compact, FreezeFormat::Dictionary, FreezeFormat::Utf8] {
        table.set_freeze_format(format);
        assert_eq!(storage.freeze_table(&table, Duration::from_secs(60)), (2, 2));
        check(&storage, &table, &changed, &mut rng);
    }
    table.verify();
}

#[test]
fn selections_find_the_same_rows_as_comparisons() {
    let seed = rand::rng().random();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let (storage, table) = open(None);
    table.set_freeze_format(FreezeFormat::Compact);
    let columns = fill(&storage, &table, 1, &mut rng);
    let txn = storage.begin();
    let reader = table.read_block(txn.snapshot(), BlockNo(0)).unwrap();
    let len = reader.visible().len() as u32;
    let (dates, some, modes) = (
        columns[10].as_primitive::<Date32Type>(),
        columns[17].as_primitive::<Int64Type>(),
        columns[14].as_string_view(),
    );
    type Test = fn(std::cmp::Ordering) -> bool;
    let comparisons: [(Comparison, Test); 6] = [
        (Comparison::Equal, |order| order.is_eq()),
        (Comparison::NotEqual, |order| order.is_ne()),
        (Comparison::Less, |order| order.is_lt()),
        (Comparison::LessOrEqual, |order| order.is_le()),
        (Comparison::Greater, |order| order.is_gt()),
        (Comparison::GreaterOrEqual, |order| order.is_ge()),
    ];
    let slots_of = |selection: Selection| match selection {
        Selection::All(n) => (0..n).collect::<Vec<_>>(),
        Selection::Positions(slots) => slots,
    };
    for (comparison, test) in comparisons {
        for part in [0.05, 0.7, 1.0] {
            let slots: Vec<u32> = (0..len).filter(|_| rng.random_bool(part)).collect();
            let selection =
                if slots.len() == len as usize { Selection::All(len) } else { Selection::Positions(slots.clone()) };
            for constant in [i64::MIN, 8034, 8035, 9_000, 10_591, 10_592] {
                let found = reader.select(column_no("shipdate"), comparison, constant, &selection).unwrap();
                let holds = |slot: &u32| test(i64::from(dates.value(*slot as usize)).cmp(&constant));
                assert_eq!(slots_of(found), slots.iter().copied().filter(holds).collect::<Vec<_>>());
            }
            for constant in [-51, -50, 0, 17, 49, 50] {
                let found = reader.select(column_no("some"), comparison, constant, &selection).unwrap();
                let holds = |slot: &u32| {
                    let at = *slot as usize;
                    some.is_valid(at) && test(some.value(at).cmp(&constant))
                };
                assert_eq!(slots_of(found), slots.iter().copied().filter(holds).collect::<Vec<_>>());
            }
            for constant in ["", "AIR", "AIRS", "MAIL", "RAIL", "REG", "TRUCK", "TRUCKS"] {
                let found =
                    reader.select_bytes(column_no("shipmode"), comparison, constant.as_bytes(), &selection).unwrap();
                let holds = |slot: &u32| test(modes.value(*slot as usize).cmp(constant));
                assert_eq!(slots_of(found), slots.iter().copied().filter(holds).collect::<Vec<_>>());
            }
        }
    }
    // Other columns are left to others.
    assert!(reader.select(column_no("comment"), Comparison::Equal, 1, reader.visible()).is_none());
    assert!(reader.select_bytes(column_no("comment"), Comparison::Equal, b"1", reader.visible()).is_none());
}

/// Bytes of a file change: a reader gets the right values or an error.
#[test]
fn damage_of_packed_values_is_found() {
    let seed = rand::rng().random();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().unwrap();
    let (storage, table) = open(Some(folder.path()));
    table.set_freeze_format(FreezeFormat::Compact);
    fill(&storage, &table, 1, &mut rng);
    checkpoint(&storage).unwrap();
    drop((table, storage));
    let data = folder.path().join(DATA_FOLDER);
    let file = std::fs::read_dir(&data).unwrap().next().unwrap().unwrap().path();
    let whole = std::fs::read(&file).unwrap();
    let mut found = 0;
    for _ in 0..40 {
        let mut damaged = whole.clone();
        let at = rng.random_range(0..damaged.len());
        damaged[at] ^= 1 << rng.random_range(0..8);
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, &damaged).unwrap();
        let options = StorageOptions { path: Some(folder.path().to_owned()), freeze_after: None, ..Default::default() };
        let Ok((storage, table, _)) = open_table(options, schema()) else {
            found += 1;
            continue;
        };
        let txn = storage.begin();
        let mut reader = table.read_block(txn.snapshot(), BlockNo(0)).unwrap();
        let all = reader.visible().clone();
        let columns: Vec<ScanColumn> = (0..19).map(|i| ScanColumn::arrow(ColumnId(i))).collect();
        reader.select(column_no("shipdate"), Comparison::Less, 9_000, &all);
        found += u32::from(reader.columns(&columns, &all).is_err());
    }
    assert!(found >= 35, "{found} of 40: gaps between buffers are checked with them");
}
