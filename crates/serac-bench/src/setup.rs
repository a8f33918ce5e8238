//! Set-up of the measurements of the storage: a table in a storage, a temporary folder, a loop of
//! transactions.

use serac_engine::{Database, Table};
use serac_sql::{Session, SqlDatabase, SqlOptions};
use serac_storage::durability::storage::{Storage, StorageOptions};
use serac_storage::{
    ColumnSchema, ColumnType, DataTable, Durability, RecoveryCatalog, StorageError, TableId, TableSchema,
};
use serac_workload::tpcc;
use serac_workload::tpch::TABLES;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The catalog of a storage with one table.
pub struct OneTable(pub TableSchema);

impl RecoveryCatalog for OneTable {
    fn restore(&mut self, storage: &Storage, _: &str) -> Result<(), StorageError> {
        storage.create_table(TableId(1), "t", self.0.clone()).map(|_| ())
    }

    fn apply_meta(&mut self, storage: &Storage, _: &[u8]) -> Result<(), StorageError> {
        storage.create_table(TableId(1), "t", self.0.clone()).map(|_| ())
    }
}

pub fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The path of a temporary folder of this process. The caller makes the folder; it is removed when
/// this is dropped.
pub struct Folder(pub PathBuf);
impl Folder {
    pub fn new(name: &str) -> Self {
        let path = PathBuf::from(format!("target/bench-data/{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How long a table may take to be frozen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Freezes all blocks of a table, and frees what they replace.
pub fn freeze(database: &Database, table: &Table) -> Result<(), String> {
    let storage = database.storage();
    storage.run_gc();
    let (frozen, blocks) = storage.freeze_table(&table.data, PATIENCE);
    if frozen != blocks {
        return Err(format!("{frozen} of {blocks} blocks of {} are frozen", table.definition.name));
    }
    // Replaced memory is freed two epochs later.
    for _ in 0..3 {
        storage.run_gc();
    }
    Ok(())
}

/// Nullable columns c0, c1, … of one type.
pub fn schema(columns: usize, column_type: ColumnType) -> TableSchema {
    TableSchema {
        columns: (0..columns).map(|i| ColumnSchema { name: format!("c{i}"), column_type, nullable: true }).collect(),
    }
}

/// Opens a storage of one table, in a folder or in memory.
pub fn open(
    path: Option<PathBuf>,
    durability: Durability,
    schema: &TableSchema,
) -> Result<(Arc<Storage>, Arc<DataTable>), String> {
    let options = StorageOptions { path, durability, ..Default::default() };
    let (storage, _) = Storage::open(options, &mut OneTable(schema.clone())).map_err(text)?;
    let table = match storage.table(TableId(1)) {
        Some(table) => table,
        None => {
            let mut txn = storage.begin();
            txn.log_meta(b"table");
            let table = storage.create_table(TableId(1), "t", schema.clone()).map_err(text)?;
            txn.commit().map_err(text)?;
            table
        }
    };
    Ok((storage, table))
}

/// A database in memory with TPC-H's lineitem, hot and without indexes.
pub fn lineitem(sf: f64, options: StorageOptions) -> Result<(SqlDatabase, Arc<Table>), String> {
    let workload = TABLES.iter().find(|t| t.name == "lineitem").expect("a table of TPC-H");
    let database = Database::open_with(options).map_err(text)?;
    let db = SqlDatabase::new(database.clone(), &SqlOptions::default()).map_err(text)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
    runtime.block_on(Session::new(&db).execute(&workload.create_sql(false))).map_err(text)?;
    let mut txn = database.begin();
    let table = txn.catalog().table("public", workload.name).map_err(text)?.clone();
    for batch in workload.generate(sf, 65_536) {
        txn.insert_batch(&table, &batch).map_err(text)?;
    }
    txn.commit().map_err(text)?;
    database.storage().run_gc();
    Ok((db, table))
}

/// TPC-C's ORDER_LINE of `warehouses` warehouses, without its key.
pub fn order_line(warehouses: i32, options: StorageOptions) -> Result<(SqlDatabase, Arc<Table>), String> {
    let workload = tpcc::TABLES.iter().find(|t| t.name == "order_line").expect("a table of TPC-C");
    let database = Database::open_with(options).map_err(text)?;
    let db = SqlDatabase::new(database.clone(), &SqlOptions::default()).map_err(text)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
    let create = tpcc::TpccTable { primary_key: "", ..*workload }.create_sql();
    runtime.block_on(Session::new(&db).execute(&create)).map_err(text)?;
    let mut txn = database.begin();
    let table = txn.catalog().table("public", workload.name).map_err(text)?.clone();
    let mut population = tpcc::Population::new(1, 1_600_000_000_000_000);
    for warehouse in 1..=warehouses {
        for (_, batch) in population.warehouse(warehouse).into_iter().filter(|(name, _)| *name == workload.name) {
            txn.insert_batch(&table, &batch).map_err(text)?;
        }
    }
    txn.commit().map_err(text)?;
    database.storage().run_gc();
    Ok((db, table))
}

/// Runs `operation` for every number below `count`, `batch` of them per transaction; returns
/// operations per second.
pub fn rate(
    storage: &Storage,
    count: usize,
    batch: usize,
    mut operation: impl FnMut(&mut serac_storage::Transaction, usize) -> Result<(), StorageError>,
) -> Result<f64, String> {
    let started = Instant::now();
    let mut i = 0;
    while i < count {
        let mut txn = storage.begin();
        for _ in 0..batch.min(count - i) {
            operation(&mut txn, i).map_err(text)?;
            i += 1;
        }
        txn.commit().map_err(text)?;
    }
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

/// Seconds of processor time, in the program and in the system for it.
fn usage(who: libc::c_int) -> (f64, f64) {
    // SAFETY: plain numbers, for which zero is a value, filled by the call.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(who, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (seconds(usage.ru_utime), seconds(usage.ru_stime))
}

/// Seconds of processor time that all threads of this process have used, in the program and in the
/// system for it.
pub fn cpu_times() -> (f64, f64) {
    usage(libc::RUSAGE_SELF)
}

/// The sum of [`cpu_times`]. It is steadier than the clock's time if others use the machine, too.
pub fn cpu_seconds() -> f64 {
    let (program, system) = cpu_times();
    program + system
}

/// Seconds of processor time that this thread has used.
pub fn thread_cpu_seconds() -> f64 {
    let (program, system) = usage(libc::RUSAGE_THREAD);
    program + system
}

/// Seconds of processor time of those threads of this process whose names begin with `name`. A
/// thread that has ended does not count.
pub fn named_threads_cpu_seconds(name: &str) -> f64 {
    threads_cpu_seconds(std::process::id(), |own| own.starts_with(name))
}

/// Seconds of processor time of those threads of a process whose names count. A thread that has
/// ended does not count.
pub fn threads_cpu_seconds(process: u32, counts: impl Fn(&str) -> bool) -> f64 {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return 0.0 };
    let seconds = |thread: PathBuf| {
        std::fs::read_to_string(thread.join("comm")).ok().filter(|own| counts(own.trim_end()))?;
        let figures = std::fs::read_to_string(thread.join("schedstat")).ok()?;
        let nanoseconds: f64 = figures.split_whitespace().next()?.parse().ok()?;
        Some(nanoseconds / 1e9)
    };
    threads.flatten().filter_map(|thread| seconds(thread.path())).sum()
}

/// Bytes of this process in memory that are its own: without pages of files, such as the program's
/// code.
pub fn resident_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Vec<f64> = statm.split_whitespace().filter_map(|pages| pages.parse().ok()).collect();
    pages.get(1..3).map_or(0.0, |pages| (pages[0] - pages[1]) * 4096.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_named_thread_is_told_from_the_others() {
        const NAME: &str = "named-thread";
        let ((busy, is_busy), (done, is_done)) = (channel(), channel::<()>());
        let thread = std::thread::Builder::new().name(format!("{NAME}-1")).spawn(move || {
            let begun = thread_cpu_seconds();
            while thread_cpu_seconds() - begun < 0.05 {}
            busy.send(()).unwrap();
            let _ = is_done.recv();
        });
        is_busy.recv().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(named_threads_cpu_seconds(NAME) >= 0.04);
        assert_eq!(named_threads_cpu_seconds("no such thread"), 0.0);
        drop(done);
        thread.unwrap().join().unwrap();
    }
}
