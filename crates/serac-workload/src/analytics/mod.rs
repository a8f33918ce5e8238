//! Workloads of analytical queries, each of generated tables and of queries as text: the Star
//! Schema Benchmark, group-bys and joins of the shapes of the database-like ops benchmark, and web
//! analytics.
//!
//! The texts are SQL that PostgreSQL and DuckDB give the same meaning. The same sizes give the same
//! rows.

mod columns;
mod groups;
mod joins;
mod ssb;
mod web;

use crate::random::{Random, mixed};
use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

/// Rows of a chunk, for all tables but `lineorder`.
const CHUNK_ROWS: u64 = 65_536;
/// Threads that generate the chunks of a table.
const THREADS: u64 = 2;

/// Tables, and the queries on them.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The tables.
    pub tables: Vec<Table>,
    /// The queries.
    pub queries: Vec<Query>,
}

impl Workload {
    /// The Star Schema Benchmark at a scale factor: 6 million rows of `lineorder` at 1.
    pub fn ssb(scale: f64) -> Self {
        Self { tables: ssb::tables(scale), queries: ssb::queries() }
    }

    /// Ten aggregations over one table.
    pub fn groups(rows: u64) -> Self {
        Self { tables: vec![groups::table(rows)], queries: groups::queries() }
    }

    /// Five joins of a table with three others, the largest of which has as many rows.
    pub fn joins(rows: u64) -> Self {
        Self { tables: joins::tables(rows), queries: joins::queries() }
    }

    /// 43 queries on a wide table of page views.
    pub fn web(rows: u64) -> Self {
        Self { tables: vec![web::table(rows)], queries: web::queries() }
    }
}

/// A query.
#[derive(Clone, Debug)]
pub struct Query {
    /// Name.
    pub name: String,
    /// SQL.
    pub sql: String,
    /// The part of the answer that is the same in every engine.
    pub answer: Answer,
}

/// The part of a query's answer that is the same in every engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// All rows, in their order.
    Rows,
    /// The number of rows: which ones they are is open.
    Count,
    /// The number of rows, and these aggregates over them: there are too many rows to look at each.
    Sums(&'static str),
}

impl Query {
    fn new(name: impl Into<String>, sql: impl Into<String>, answer: Answer) -> Self {
        Self { name: name.into(), sql: sql.into(), answer }
    }

    /// A query that computes the aggregates of [`Answer::Sums`].
    pub fn sums(&self) -> Option<String> {
        match self.answer {
            Answer::Sums(sums) => Some(format!("SELECT {sums} FROM ({}) AS answer", self.sql)),
            Answer::Rows | Answer::Count => None,
        }
    }
}

/// Gives the chunk of a number.
type Chunk = Arc<dyn Fn(u64) -> RecordBatch + Send + Sync>;

/// A table whose rows are generated in chunks, each of which depends on its number alone.
#[derive(Clone)]
pub struct Table {
    /// Name.
    pub name: &'static str,
    /// Rows.
    pub rows: u64,
    chunks: u64,
    chunk: Chunk,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("name", &self.name).field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl Table {
    /// A table of `rows` rows. `generate` makes those of a range, with random numbers that belong
    /// to the chunk.
    fn new(
        name: &'static str,
        rows: u64,
        generate: impl Fn(Range<u64>, Random) -> RecordBatch + Send + Sync + 'static,
    ) -> Self {
        Self::of_groups(name, rows, rows, CHUNK_ROWS, generate)
    }

    /// As [`new`](Self::new), with ranges of `groups` groups of rows, `size` groups a chunk.
    fn of_groups(
        name: &'static str,
        rows: u64,
        groups: u64,
        size: u64,
        generate: impl Fn(Range<u64>, Random) -> RecordBatch + Send + Sync + 'static,
    ) -> Self {
        let seed = name.bytes().fold(0, |seed, byte| mixed(seed ^ u64::from(byte)));
        let chunk =
            move |at: u64| generate(at * size..groups.min((at + 1) * size), Random::new(mixed(seed.wrapping_add(at))));
        Self { name, rows, chunks: groups.div_ceil(size), chunk: Arc::new(chunk) }
    }

    /// CREATE TABLE. No column may be NULL.
    pub fn create_sql(&self) -> String {
        let sql_type = |data_type: &DataType| match data_type {
            DataType::Int16 => "SMALLINT",
            DataType::Int32 => "INTEGER",
            DataType::Int64 => "BIGINT",
            DataType::Float64 => "DOUBLE PRECISION",
            DataType::Date32 => "DATE",
            DataType::Timestamp(..) => "TIMESTAMP",
            _ => "VARCHAR",
        };
        let schema = (self.chunk)(0).schema();
        let columns = schema.fields().iter().map(|f| format!("{} {} NOT NULL", f.name(), sql_type(f.data_type())));
        format!("CREATE TABLE {} ({})", self.name, columns.collect::<Vec<_>>().join(", "))
    }

    /// The rows, chunk by chunk. Threads of their own generate them ahead.
    pub fn batches(&self) -> impl Iterator<Item = RecordBatch> + use<> {
        let chunks = self.chunks;
        let generator = |first: u64| {
            let (sender, receiver) = sync_channel(1);
            let chunk = self.chunk.clone();
            // A receiver that is gone wants no more of them.
            std::thread::spawn(move || {
                (first..chunks).step_by(THREADS as usize).try_for_each(|at| sender.send(chunk(at)))
            });
            receiver
        };
        let generators: Vec<_> = (0..THREADS).map(generator).collect();
        (0..chunks).map(move |at| generators[(at % THREADS) as usize].recv().expect("generators do not panic"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_the_rows_that_they_promise_each_time() {
        let workloads = [Workload::ssb(0.02), Workload::groups(70_000), Workload::joins(70_000), Workload::web(70_000)];
        for table in workloads.iter().flat_map(|workload| &workload.tables) {
            let batches: Vec<_> = table.batches().collect();
            assert_eq!(batches.iter().map(|batch| batch.num_rows() as u64).sum::<u64>(), table.rows, "{table:?}");
            assert!(batches == table.batches().collect::<Vec<_>>(), "{table:?}");
            assert!(batches.iter().all(|batch| batch.columns().iter().all(|column| column.null_count() == 0)));
        }
        assert_eq!(workloads[3].tables[0].batches().next().map(|batch| batch.num_columns()), Some(96));
        assert_eq!(workloads.map(|workload| workload.queries.len()), [13, 10, 5, 43]);
    }
}
