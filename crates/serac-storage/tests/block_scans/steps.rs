//! Random layouts and random histories.

use proptest::prelude::*;
use serac_storage::{ColumnSchema, ColumnType, FreezeFormat, TableSchema};

/// The steps of a run. Transactions and readers are named by small numbers, rows by a number among
/// those that the transaction sees.
#[derive(Clone, Debug)]
pub enum Step {
    Insert { txn: usize, seed: u64 },
    Append { txn: usize, rows: usize, seed: u64 },
    Update { txn: usize, row: u64, seed: u64 },
    Delete { txn: usize, row: u64 },
    Savepoint { txn: usize },
    RollbackTo { txn: usize },
    Commit { txn: usize },
    Abort { txn: usize },
    OpenReader,
    CloseReader { reader: u64 },
    Collect,
    Freeze { format: FreezeFormat },
    CheckTransaction { txn: usize, seed: u64 },
    CheckReader { reader: u64, seed: u64 },
}

/// Transactions that may run at a time.
pub const TRANSACTIONS: usize = 3;

fn any_type() -> impl Strategy<Value = ColumnType> + Clone {
    prop_oneof![
        Just(ColumnType::Boolean),
        Just(ColumnType::Int16),
        Just(ColumnType::Int32),
        Just(ColumnType::Int64),
        Just(ColumnType::Float32),
        Just(ColumnType::Float64),
        (1u8..=38).prop_flat_map(
            |precision| (0..=precision as i8).prop_map(move |scale| ColumnType::Decimal { precision, scale })
        ),
        Just(ColumnType::Date),
        Just(ColumnType::Time),
        any::<bool>().prop_map(|utc| ColumnType::Timestamp { utc }),
        Just(ColumnType::Interval),
        Just(ColumnType::Utf8),
        Just(ColumnType::Json),
        Just(ColumnType::JsonText),
        Just(ColumnType::Binary),
        Just(ColumnType::Numeric),
        Just(ColumnType::Uuid),
    ]
}

/// Narrow and wide tables; the wide ones have few rows a block, so that a case has several blocks.
pub fn any_schema() -> impl Strategy<Value = TableSchema> {
    let column = (any_type(), prop::bool::weighted(0.7));
    prop_oneof![
        prop::collection::vec(column.clone(), 1..6),
        prop::collection::vec(column.clone(), 6..24),
        prop::collection::vec(column, 80..160),
    ]
    .prop_map(|columns| TableSchema {
        columns: columns
            .into_iter()
            .enumerate()
            .map(|(i, (column_type, nullable))| ColumnSchema { name: format!("c{i}"), column_type, nullable })
            .collect(),
    })
}

pub fn any_format() -> impl Strategy<Value = FreezeFormat> {
    prop_oneof![
        Just(FreezeFormat::View),
        Just(FreezeFormat::Utf8),
        Just(FreezeFormat::Dictionary),
        Just(FreezeFormat::Compact)
    ]
}

pub fn any_step() -> impl Strategy<Value = Step> {
    let txn = 0..TRANSACTIONS;
    let (row, seed) = (any::<u64>, any::<u64>);
    prop_oneof![
        6 => (txn.clone(), seed()).prop_map(|(txn, seed)| Step::Insert { txn, seed }),
        2 => (txn.clone(), 1usize..900, seed()).prop_map(|(txn, rows, seed)| Step::Append { txn, rows, seed }),
        8 => (txn.clone(), row(), seed()).prop_map(|(txn, row, seed)| Step::Update { txn, row, seed }),
        4 => (txn.clone(), row()).prop_map(|(txn, row)| Step::Delete { txn, row }),
        1 => txn.clone().prop_map(|txn| Step::Savepoint { txn }),
        1 => txn.clone().prop_map(|txn| Step::RollbackTo { txn }),
        4 => txn.clone().prop_map(|txn| Step::Commit { txn }),
        1 => txn.clone().prop_map(|txn| Step::Abort { txn }),
        2 => Just(Step::OpenReader),
        1 => row().prop_map(|reader| Step::CloseReader { reader }),
        1 => Just(Step::Collect),
        1 => any_format().prop_map(|format| Step::Freeze { format }),
        1 => (txn, seed()).prop_map(|(txn, seed)| Step::CheckTransaction { txn, seed }),
        1 => (row(), seed()).prop_map(|(reader, seed)| Step::CheckReader { reader, seed }),
    ]
}
