//! Blocks in `compact` format: what they save, and that reads, selections, checkpoints, reopening
//! and thaws find in them what was written.

#[path = "block_scans/datum.rs"]
mod datum;
mod one_table;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, Date32Array, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringViewArray,
};
use datum::{Datum, random_datum};
use one_table::{checkpoint, column, open_table, required};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_storage::durability::checkpoint::DATA_FOLDER;
use serac_storage::*;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Whether values in this order compare as asked.
type Test = fn(Ordering) -> bool;
const COMPARISONS: [(Comparison, Test); 6] = [
    (Comparison::Equal, Ordering::is_eq),
    (Comparison::NotEqual, Ordering::is_ne),
    (Comparison::Less, Ordering::is_lt),
    (Comparison::LessOrEqual, Ordering::is_le),
    (Comparison::Greater, Ordering::is_gt),
    (Comparison::GreaterOrEqual, Ordering::is_ge),
];

fn slots_of(selection: &Selection) -> Vec<u32> {
    match selection {
        Selection::All(n) => (0..*n).collect(),
        Selection::Positions(slots) => slots.clone(),
    }
}

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
    let mut rng = serac_testing::rng();
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
    let mut rng = serac_testing::rng();
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
    let mut rng = serac_testing::rng();
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
    for (comparison, test) in COMPARISONS {
        for part in [0.05, 0.7, 1.0] {
            let slots: Vec<u32> = (0..len).filter(|_| rng.random_bool(part)).collect();
            let selection =
                if slots.len() == len as usize { Selection::All(len) } else { Selection::Positions(slots.clone()) };
            for constant in [i64::MIN, 8034, 8035, 9_000, 10_591, 10_592] {
                let found = reader.select(column_no("shipdate"), comparison, constant, &selection).unwrap();
                let holds = |slot: &u32| test(i64::from(dates.value(*slot as usize)).cmp(&constant));
                assert_eq!(slots_of(&found), slots.iter().copied().filter(holds).collect::<Vec<_>>());
            }
            for constant in [-51, -50, 0, 17, 49, 50] {
                let found = reader.select(column_no("some"), comparison, constant, &selection).unwrap();
                let holds = |slot: &u32| {
                    let at = *slot as usize;
                    some.is_valid(at) && test(some.value(at).cmp(&constant))
                };
                assert_eq!(slots_of(&found), slots.iter().copied().filter(holds).collect::<Vec<_>>());
            }
            for constant in ["", "AIR", "AIRS", "MAIL", "RAIL", "REG", "TRUCK", "TRUCKS"] {
                let found =
                    reader.select_bytes(column_no("shipmode"), comparison, constant.as_bytes(), &selection).unwrap();
                let holds = |slot: &u32| test(modes.value(*slot as usize).cmp(constant));
                assert_eq!(slots_of(&found), slots.iter().copied().filter(holds).collect::<Vec<_>>());
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
    let mut rng = serac_testing::rng();
    let folder = tempfile::tempdir().unwrap();
    let (storage, table) = open(Some(folder.path()));
    table.set_freeze_format(FreezeFormat::Compact);
    let written = fill(&storage, &table, 1, &mut rng);
    checkpoint(&storage).unwrap();
    drop((table, storage));
    let data = folder.path().join(DATA_FOLDER);
    let file = std::fs::read_dir(&data).unwrap().next().unwrap().unwrap().path();
    let whole = std::fs::read(&file).unwrap();
    let dates = written[10].as_primitive::<Date32Type>();
    let early: Vec<u32> = (0..dates.len() as u32).filter(|&slot| dates.value(slot as usize) < 9_000).collect();
    let mut found = 0;
    for _ in 0..40 {
        let mut damaged = whole.clone();
        let at = rng.random_range(0..damaged.len());
        damaged[at] ^= 1 << rng.random_range(0..8);
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, &damaged).unwrap();
        let options = StorageOptions { path: Some(folder.path().to_owned()), freeze_after: None, ..Default::default() };
        let (storage, table) = match open_table(options, schema()) {
            Ok((storage, table, _)) => (storage, table),
            Err(StorageError::Corrupt { .. }) => {
                found += 1;
                continue;
            }
            Err(other) => panic!("byte {at}: {other}"),
        };
        let txn = storage.begin();
        let mut reader = table.read_block(txn.snapshot(), BlockNo(0)).unwrap();
        let all = reader.visible().clone();
        if let Some(selected) = reader.select(column_no("shipdate"), Comparison::Less, 9_000, &all) {
            assert_eq!(slots_of(&selected), early, "byte {at}");
        }
        let mut is_found = false;
        for (i, column) in written.iter().enumerate() {
            match reader.columns(&[ScanColumn::arrow(ColumnId(i as u16))], &all) {
                Ok(arrays) => assert_eq!(arrays[0].to_data(), column.to_data(), "byte {at}"),
                Err(StorageError::Corrupt { .. }) => is_found = true,
                Err(other) => panic!("byte {at}: {other}"),
            }
        }
        found += u32::from(is_found);
    }
    assert!(found >= 35, "{found} of 40: gaps between buffers are checked with them");
}

/// Columns of every type that a block may pack, and of those that it may not.
fn every_type() -> TableSchema {
    let types = [
        ColumnType::Boolean,
        ColumnType::Int16,
        ColumnType::Int32,
        ColumnType::Int64,
        ColumnType::Float32,
        ColumnType::Float64,
        ColumnType::Decimal { precision: 18, scale: 3 },
        ColumnType::Decimal { precision: 38, scale: 2 },
        ColumnType::Date,
        ColumnType::Time,
        ColumnType::Timestamp { utc: true },
        ColumnType::Interval,
        ColumnType::Uuid,
        ColumnType::Utf8,
        ColumnType::Binary,
        ColumnType::Json,
        ColumnType::Numeric,
    ];
    TableSchema { columns: types.iter().enumerate().map(|(i, &kind)| column(&format!("c{i}"), kind)).collect() }
}

/// How the values of a column are drawn.
#[derive(Clone, Copy, Debug)]
enum Spread {
    Null,
    /// Any value of the type.
    Any,
    /// Integers from a base on that need so many bits, and NULL now and then.
    Bits {
        base: i64,
        width: u32,
        nulls: bool,
    },
    /// The smallest and the largest integer alone.
    Ends,
}

fn any_spread(rng: &mut StdRng) -> Spread {
    match rng.random_range(0..8) {
        0 => Spread::Null,
        1 => Spread::Any,
        2 => Spread::Ends,
        _ => Spread::Bits { base: rng.random(), width: rng.random_range(0..=64), nulls: rng.random() },
    }
}

/// The integer in the column's type; `None` if the type has no such value.
fn integer(column_type: ColumnType, value: i64) -> Option<Datum> {
    Some(match column_type {
        ColumnType::Int16 => Datum::Int16(value.try_into().ok()?),
        ColumnType::Int32 | ColumnType::Date => Datum::Int32(value.try_into().ok()?),
        ColumnType::Int64 | ColumnType::Time | ColumnType::Timestamp { .. } => Datum::Int64(value),
        ColumnType::Decimal { precision: 19.., .. } => Datum::Int128(value.into()),
        ColumnType::Decimal { .. } if value.unsigned_abs() < 10u64.pow(18) => Datum::Int64(value),
        _ => return None,
    })
}

/// A value of the column. Where the drawn integer does not fit the type, its lowest bits do.
fn drawn(rng: &mut StdRng, column: &ColumnSchema, spread: Spread) -> Datum {
    let fitting = |value: i64| {
        let cut = match column.column_type {
            ColumnType::Int16 => (value as i16).into(),
            ColumnType::Int32 | ColumnType::Date => (value as i32).into(),
            _ => value % 10i64.pow(18),
        };
        integer(column.column_type, value).or_else(|| integer(column.column_type, cut))
    };
    let value = match spread {
        Spread::Null => return Datum::Null,
        Spread::Any => None,
        Spread::Bits { nulls: true, .. } if rng.random_bool(0.2) => return Datum::Null,
        Spread::Bits { base, width, .. } => {
            let most = u64::MAX.checked_shr(64 - width).unwrap_or(0);
            fitting(base.wrapping_add(rng.random_range(0..=most) as i64))
        }
        Spread::Ends => match column.column_type {
            ColumnType::Int16 => Some(Datum::Int16(if rng.random() { i16::MIN } else { i16::MAX })),
            ColumnType::Int32 | ColumnType::Date => Some(Datum::Int32(if rng.random() { i32::MIN } else { i32::MAX })),
            _ => fitting(if rng.random() { i64::MIN } else { i64::MAX }),
        },
    };
    value.unwrap_or_else(|| random_datum(rng, column))
}

type Model = BTreeMap<u64, Vec<Datum>>;

fn integer_of(datum: &Datum) -> Option<i64> {
    match datum {
        Datum::Int16(v) => Some((*v).into()),
        Datum::Int32(v) => Some((*v).into()),
        Datum::Int64(v) => Some(*v),
        Datum::Int128(v) => i64::try_from(*v).ok(),
        _ => None,
    }
}

/// Checks all blocks against the model: whole columns, rows, and selections. The number of columns
/// that answered selections.
fn check_model(storage: &Storage, table: &Arc<DataTable>, model: &Model, rng: &mut StdRng) -> usize {
    let (txn, schema) = (storage.begin(), table.schema());
    let (mut seen, mut answered) = (0, 0);
    let mut buffer = RowBuffer::default();
    let ids: Vec<ColumnId> = (0..schema.columns.len() as u16).map(ColumnId).collect();
    for no in (0..table.block_count()).map(BlockNo) {
        let Some(mut reader) = table.read_block(txn.snapshot(), no) else { continue };
        let visible = reader.visible().clone();
        let slots = slots_of(&visible);
        let rows: Vec<&Vec<Datum>> = slots.iter().map(|&slot| &model[&RowId::new(no, Slot(slot)).as_u64()]).collect();
        seen += rows.len();
        let some: Vec<usize> = (0..slots.len()).filter(|_| rng.random_bool(0.1)).collect();
        let picked = Selection::Positions(some.iter().map(|&at| slots[at]).collect());
        for &id in &ids {
            let column_type = schema.columns[id.0 as usize].column_type;
            for (selection, taken) in [(&visible, (0..slots.len()).collect()), (&picked, some.clone())] {
                let wanted = [ScanColumn::arrow(id), ScanColumn { id, form: ColumnForm::Stored }];
                let arrays = reader.columns(&wanted, selection).unwrap();
                arrays.iter().for_each(|array| array.to_data().validate_full().unwrap());
                for (at, row) in taken.into_iter().enumerate() {
                    assert_eq!(
                        Datum::scanned(&arrays[0], column_type, at),
                        rows[row][id.0 as usize],
                        "{column_type:?}"
                    );
                }
            }
            let known: Vec<i64> = rows.iter().filter_map(|row| integer_of(&row[id.0 as usize])).collect();
            let mut constants = vec![i64::MIN, -1, 0, i64::MAX];
            if !known.is_empty() {
                let one = known[rng.random_range(0..known.len())];
                constants.extend([one, one.saturating_add(1), *known.iter().min().unwrap()]);
            }
            for (comparison, test) in COMPARISONS {
                let constant = constants[rng.random_range(0..constants.len())];
                let selection = if rng.random() { &visible } else { &picked };
                let Some(found) = reader.select(id, comparison, constant, selection) else { continue };
                let holds = |slot: &u32| {
                    let value = integer_of(&model[&RowId::new(no, Slot(*slot)).as_u64()][id.0 as usize]);
                    value.is_some_and(|value| test(value.cmp(&constant)))
                };
                let expected: Vec<u32> = slots_of(selection).into_iter().filter(holds).collect();
                assert_eq!(slots_of(&found), expected, "{column_type:?} {comparison:?} {constant}");
                answered += 1;
            }
        }
        for &at in &some {
            assert!(table.read(txn.snapshot(), RowId::new(no, Slot(slots[at])), &ids, &mut buffer).unwrap());
            let found: Vec<Datum> = (0..ids.len()).map(|i| Datum::of(buffer.value(i))).collect();
            assert_eq!(&found, rows[at]);
        }
    }
    assert_eq!(seen, model.len());
    table.verify();
    answered
}

/// Random values of every width and type: through freezing, a checkpoint, recovery, thaws,
/// deletions and other formats.
#[test]
fn values_of_every_width_live_through_everything() {
    let first = serac_testing::seeds(12, 300);
    for seed in first {
        println!("SERAC_SEED={seed}");
        live_through_everything(&mut StdRng::seed_from_u64(seed));
    }
}

fn live_through_everything(rng: &mut StdRng) {
    let folder = tempfile::tempdir().unwrap();
    let schema = every_type();
    let open = || {
        let options = StorageOptions { path: Some(folder.path().to_owned()), freeze_after: None, ..Default::default() };
        let (storage, table, _) = open_table(options, schema.clone()).unwrap();
        table.set_freeze_format(FreezeFormat::Compact);
        (storage, table)
    };
    let freeze = |storage: &Arc<Storage>, table: &Arc<DataTable>| {
        let (frozen, blocks) = storage.freeze_table(table, Duration::from_secs(60));
        assert_eq!(frozen, blocks);
    };
    let spreads: Vec<Spread> = schema.columns.iter().map(|_| any_spread(rng)).collect();
    let draw = |rng: &mut StdRng| -> Vec<Datum> {
        schema.columns.iter().zip(&spreads).map(|(column, &spread)| drawn(rng, column, spread)).collect()
    };
    let mut model = Model::new();
    let (storage, table) = open();
    let insert = |storage: &Storage, table: &Arc<DataTable>, model: &mut Model, count: usize, rng: &mut StdRng| {
        let mut txn = storage.begin();
        let rows: Vec<Vec<Datum>> = (0..count).map(|_| draw(rng)).collect();
        if rng.random() {
            for row in rows {
                let id = table.insert(&mut txn, &row.iter().map(Datum::value).collect::<Vec<_>>()).unwrap();
                model.insert(id.as_u64(), row);
            }
        } else {
            let columns = schema.columns.iter().enumerate().map(|(i, column)| {
                datum::array(column.column_type, &rows.iter().map(|row| &row[i]).collect::<Vec<_>>())
            });
            let batch = RecordBatch::try_new(schema.arrow(), columns.collect()).unwrap();
            let ids = table.append(&mut txn, &batch).unwrap().into_iter().flatten();
            model.extend(ids.zip(rows));
        }
        txn.commit().unwrap().wait().unwrap();
    };
    let change = |storage: &Storage, table: &Arc<DataTable>, model: &mut Model, rng: &mut StdRng| {
        let mut txn = storage.begin();
        for id in model.keys().copied().collect::<Vec<_>>() {
            let row = RowId::from_u64(id);
            match rng.random_range(0..30) {
                0 => {
                    table.delete(&mut txn, row).unwrap();
                    model.remove(&id);
                }
                1 => {
                    let at = rng.random_range(0..schema.columns.len());
                    let value = random_datum(rng, &schema.columns[at]);
                    table.update(&mut txn, row, &[ColumnId(at as u16)], &[value.value()]).unwrap();
                    model.get_mut(&id).unwrap()[at] = value;
                }
                _ => {}
            }
        }
        txn.commit().unwrap().wait().unwrap();
    };
    // Few rows, rows that do not fill a group of 64, and more.
    let count = [1, 2, 63, 64, 65, 700, 2_000][rng.random_range(0..7)];
    insert(&storage, &table, &mut model, count, rng);
    let is_changed = rng.random();
    if is_changed {
        change(&storage, &table, &mut model, rng);
        storage.run_gc();
    }
    // A checkpoint writes hot blocks as it sees them, and frozen ones as they are.
    if rng.random() {
        checkpoint(&storage).unwrap();
        check_model(&storage, &table, &model, rng);
    }
    freeze(&storage, &table);
    // Compaction may have moved rows.
    let mut model = moved(&storage, &table, model);
    let answered = check_model(&storage, &table, &model, rng);
    let is_packed = |spread: &Spread| matches!(spread, Spread::Bits { width: 0..=14, .. });
    assert!(is_changed || answered > 0 || !spreads[2..4].iter().any(is_packed), "{spreads:?}");
    checkpoint(&storage).unwrap();
    check_model(&storage, &table, &model, rng);
    drop((table, storage));
    for _ in 0..2 {
        let (storage, table) = open();
        check_model(&storage, &table, &model, rng);
        change(&storage, &table, &mut model, rng);
        insert(&storage, &table, &mut model, 5, rng);
        check_model(&storage, &table, &model, rng);
        if rng.random() {
            storage.run_gc();
            freeze(&storage, &table);
            model = moved(&storage, &table, model);
            check_model(&storage, &table, &model, rng);
        }
        if rng.random() {
            checkpoint(&storage).unwrap();
            check_model(&storage, &table, &model, rng);
        }
    }
    let (storage, table) = open();
    for format in [FreezeFormat::Utf8, FreezeFormat::Compact, FreezeFormat::View, FreezeFormat::Compact] {
        table.set_freeze_format(format);
        freeze(&storage, &table);
        model = moved(&storage, &table, model);
        check_model(&storage, &table, &model, rng);
    }
}

/// The model by the row ids that rows have now: freezing a table compacts it, too.
fn moved(storage: &Storage, table: &Arc<DataTable>, model: Model) -> Model {
    let txn = storage.begin();
    let ids: Vec<ColumnId> = (0..table.schema().columns.len() as u16).map(ColumnId).collect();
    let mut buffer = RowBuffer::default();
    let mut found = Model::new();
    for no in (0..table.block_count()).map(BlockNo) {
        let Some(reader) = table.read_block(txn.snapshot(), no) else { continue };
        for slot in slots_of(reader.visible()) {
            let row = RowId::new(no, Slot(slot));
            assert!(table.read(txn.snapshot(), row, &ids, &mut buffer).unwrap());
            found.insert(row.as_u64(), (0..ids.len()).map(|i| Datum::of(buffer.value(i))).collect());
        }
    }
    // The same rows, wherever they are.
    let sorted = |model: &Model| {
        let mut rows: Vec<String> = model.values().map(|row| format!("{row:?}")).collect();
        rows.sort_unstable();
        rows
    };
    assert_eq!(sorted(&found), sorted(&model));
    found
}
