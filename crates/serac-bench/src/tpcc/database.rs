//! The database of the benchmark: made, loaded, checked.

use crate::setup::text;
use arrow::array::cast::AsArray;
use arrow::array::types::{Int32Type, Int64Type};
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions, StatementResult};
use serac_storage::{Durability, FreezeFormat, StorageOptions};
use serac_workload::tpcc::{CONDITIONS, INDEXES, Population, TABLES};
use std::path::Path;
use std::time::Duration;

/// The tables whose rows go cold.
pub const COLD_TABLES: [&str; 4] = ["orders", "order_line", "history", "item"];

/// A database, and SQL for it.
pub struct Loaded {
    pub database: Database,
    sql: SqlDatabase,
    runtime: tokio::runtime::Runtime,
}

impl Loaded {
    fn open(path: &Path, options: StorageOptions) -> Result<Self, String> {
        let on_disk = options.durability != Durability::Off;
        if on_disk {
            std::fs::create_dir_all(path).map_err(text)?;
        }
        let database =
            Database::open_with(StorageOptions { path: on_disk.then(|| path.to_owned()), ..options }).map_err(text)?;
        // One thread for queries, so that workers keep the other processors.
        let sql =
            SqlDatabase::new(database.clone(), &SqlOptions { threads: Some(1), ..Default::default() }).map_err(text)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
        Ok(Self { database, sql, runtime })
    }

    /// The number that a query answers.
    pub fn count(&self, query: &str) -> Result<i64, String> {
        let of_batch = |batch: &arrow::array::RecordBatch| -> i64 {
            batch.column(0).as_primitive::<Int64Type>().iter().flatten().sum()
        };
        Ok(self.query(query)?.iter().map(of_batch).sum())
    }

    fn execute(&self, statement: &str) -> Result<(), String> {
        self.runtime.block_on(Session::new(&self.sql).execute(statement)).map(|_| ()).map_err(text)
    }

    /// The rows that a query answers.
    pub fn query(&self, statement: &str) -> Result<Vec<arrow::array::RecordBatch>, String> {
        let answers = self.runtime.block_on(Session::new(&self.sql).execute(statement)).map_err(text)?;
        let rows = |answer| match answer {
            StatementResult::Rows { batches, .. } => batches,
            StatementResult::Command { .. } => Vec::new(),
        };
        Ok(answers.into_iter().flat_map(rows).collect())
    }
}

/// Makes the tables and loads the initial population.
pub fn load(
    path: &Path,
    durability: Durability,
    (format, threshold): (FreezeFormat, Duration),
    warehouses: i32,
    bitmap: bool,
) -> Result<Loaded, String> {
    let freeze_after = (format != FreezeFormat::Never).then_some(threshold);
    let loaded = Loaded::open(path, StorageOptions { durability, freeze_after, ..Default::default() })?;
    for statement in TABLES.iter().map(|table| table.create_sql()).chain(INDEXES.map(str::to_owned)) {
        loaded.execute(&statement)?;
    }
    if bitmap {
        loaded.execute("CREATE INDEX stock_quantity ON stock USING bitmap (s_quantity)")?;
    }
    for table in loaded.database.catalog().tables() {
        let cold = COLD_TABLES.contains(&table.name());
        table.data.set_freeze_format(if cold { format } else { FreezeFormat::Never });
    }
    let mut population = Population::new(1, 1_600_000_000_000_000);
    let insert = |name: &str, batch: &arrow::array::RecordBatch| -> Result<(), String> {
        loaded
            .database
            .transact(|txn| {
                let table = txn.catalog().table("public", name)?.clone();
                txn.insert_batch(&table, batch).map(|_| ())
            })
            .map_err(text)
    };
    insert("item", &population.items())?;
    for warehouse in 1..=warehouses {
        population.warehouse(warehouse).iter().try_for_each(|(name, batch)| insert(name, batch))?;
    }
    while loaded.database.storage().run_gc().waiting > 0 {}
    Ok(loaded)
}

/// Checks the consistency conditions.
pub fn check(loaded: &Loaded) -> Result<(), String> {
    for (i, condition) in CONDITIONS.iter().enumerate() {
        let violations = loaded.count(condition).map_err(|error| format!("condition {}: {error}", i + 1))?;
        if violations > 0 {
            return Err(format!("consistency condition {} is violated {violations} times", i + 1));
        }
    }
    let catalog = loaded.database.catalog();
    let txn = loaded.database.begin();
    catalog.tables().for_each(|table| table.verify(txn.snapshot()));
    Ok(())
}

/// Opens a database that was made before, and checks it.
pub fn check_only(path: &Path) -> Result<(), String> {
    let loaded = Loaded::open(path, StorageOptions::default())?;
    for batch in loaded.query("SELECT d_w_id, d_id, d_next_o_id FROM district ORDER BY 1, 2")? {
        let columns: Vec<_> = (0..3).map(|i| batch.column(i).as_primitive::<Int32Type>()).collect();
        for row in 0..batch.num_rows() {
            println!("next {} {} {}", columns[0].value(row), columns[1].value(row), columns[2].value(row));
        }
    }
    check(&loaded)?;
    println!("consistent");
    loaded.database.close().map_err(text)
}
