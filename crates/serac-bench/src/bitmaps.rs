//! Bitmap indexes in the engine: their cost for transactions that write.

use crate::report::{Report, median};
use crate::setup::text;
use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use serac_engine::Database;
use serac_engine::catalog::definition::{BitmapDefinition, ColumnDefinition, TableDefinition};
use serac_storage::{ColumnType, RowId};
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;

const COLUMNS: usize = 8;
const ROWS: usize = 1_000_000;
/// Transactions per measurement.
const TRANSACTIONS: usize = 50_000;
const INDEXES: [usize; 4] = [0, 1, 4, 8];

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn rows(count: usize, values: u64, state: &mut u64) -> Result<RecordBatch, String> {
    let columns = (0..COLUMNS).map(|c| {
        let values = (0..count).map(|_| (random(state) % values) as i64);
        (format!("c{c}"), Arc::new(Int64Array::from_iter_values(values)) as ArrayRef)
    });
    RecordBatch::try_from_iter(columns.collect::<Vec<_>>()).map_err(text)
}

struct Case {
    database: Database,
    ids: Vec<RowId>,
    times: [Vec<f64>; 3],
}

impl Case {
    fn new(indexes: usize, values: u64) -> Result<Self, String> {
        let database = Database::in_memory().map_err(text)?;
        let column = |c| ColumnDefinition::new(format!("c{c}"), ColumnType::Int64);
        let mut txn = database.begin();
        let definition = TableDefinition::new("public", "t", (0..COLUMNS).map(column).collect());
        let table = txn.create_table(definition).map_err(text)?;
        let mut ids = Vec::new();
        let mut state = 0x9E37_79B9;
        for _ in 0..ROWS / 50_000 {
            let ranges = txn.insert_batch(&table, &rows(50_000, values, &mut state)?).map_err(text)?;
            ids.extend(ranges.into_iter().flatten().map(RowId::from_u64));
        }
        txn.commit().map_err(text)?;
        let mut txn = database.begin();
        for column in 0..indexes {
            let bitmap = BitmapDefinition { name: format!("i{column}"), column };
            txn.create_bitmap_index("public", "t", bitmap).map_err(text)?;
        }
        txn.commit().map_err(text)?;
        Ok(Self { database, ids, times: Default::default() })
    }

    /// Transactions of one statement each: updates of one column, of all columns, and inserts of
    /// one row.
    fn run(&mut self, values: u64, state: &mut u64) -> Result<(), String> {
        let new = rows(1_000, values, state)?;
        let all: Vec<usize> = (0..COLUMNS).collect();
        for (kind, times) in self.times.iter_mut().enumerate() {
            let started = Instant::now();
            for i in 0..TRANSACTIONS {
                let mut txn = self.database.begin();
                let table = txn.catalog().table("public", "t").map_err(text)?.clone();
                let row = new.slice(i % 1_000, 1);
                let id = self.ids[random(state) as usize % self.ids.len()];
                match kind {
                    0 => txn.update_batch(&table, &[id], &[0], &row.project(&[0]).map_err(text)?).map_err(text)?,
                    1 => txn.update_batch(&table, &[id], &all, &row).map_err(text)?,
                    _ => drop(txn.insert_batch(&table, &row).map_err(text)?),
                }
                txn.commit().map_err(text)?;
            }
            times.push(TRANSACTIONS as f64 / started.elapsed().as_secs_f64());
        }
        Ok(())
    }
}

pub fn run(values: u64, runs: usize, report: &mut Report) -> Result<(), String> {
    let mut state = 1;
    let mut cases = INDEXES.into_iter().map(|n| Case::new(n, values)).collect::<Result<Vec<_>, _>>()?;
    // The cases take turns, so that other work of the machine affects all alike.
    for _ in 0..runs {
        for case in &mut cases {
            case.run(values, &mut state)?;
        }
    }
    for (indexes, case) in INDEXES.into_iter().zip(cases) {
        let [one, all, insert] = case.times.map(median);
        report.row(&[
            ("bitmap indexes", json!(indexes)),
            ("updates of one column/s", json!(one)),
            ("updates of 8 columns/s", json!(all)),
            ("inserts/s", json!(insert)),
        ]);
    }
    report.note(format!("{ROWS} rows of 8 columns with {values} values each; one thread, one row per transaction, in memory; medians of {runs}"));
    Ok(())
}
