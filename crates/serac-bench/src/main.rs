//! `serac-bench`: measurements of SeracDB, with peers in the same run where they can be had
//! (`scripts/peers`).
//!
//! Every subcommand prints its setting and a table; with `--json`, one JSON object per row.

mod affinity;
mod analytics;
mod answers;
mod attributes;
mod bitmaps;
mod ch;
mod checkpoint;
mod commits;
mod compaction;
mod connections;
mod cubit;
mod duckdb;
mod export;
mod export_clients;
mod freeze;
mod frozen_scan;
mod gather;
mod micro;
mod operators;
mod ordered;
mod peer;
mod pg_client;
mod pgbench;
mod plot;
mod point;
mod postgres;
mod python_package;
mod recorder;
mod refresh;
mod regress;
mod remote_reads;
mod report;
mod results;
mod scale_out;
mod serac;
mod setup;
mod shared_memory;
mod shared_scans;
mod spark;
mod tpcc;
mod tpcc_sql;
mod tpch;
mod transform;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: serac_sql::CountingAllocator<mimalloc::MiMalloc> = serac_sql::CountingAllocator(mimalloc::MiMalloc);

#[derive(Parser, Debug)]
#[command(name = "serac-bench", version)]
struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
    /// One JSON object per row in place of a table.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum Benchmark {
    /// Bitmap indexes under updates: CUBIT-lf, CUBIT-lk, UpBit+, UCB+, In-place+ (the evaluation of
    /// the CUBIT paper).
    Cubit(cubit::CubitArguments),
    /// Bitmap indexes at rest: build rate, memory and query times by number of values.
    CubitSizes {
        /// Rows.
        #[arg(long, default_value_t = 10_000_000)]
        rows: u64,
    },
    /// Bitmap indexes in the engine: transactions that write, with 0, 1, 4 and 8 of them.
    Bitmaps {
        /// Values of each column.
        #[arg(long, default_value_t = 100)]
        values: u64,
        /// Measured runs.
        #[arg(long, default_value_t = 5)]
        runs: usize,
    },
    /// The 22 TPC-H queries in memory, results compared with DuckDB's.
    Tpch(tpch::TpchArguments),
    /// Analytical queries in memory, results compared with DuckDB's: the Star Schema Benchmark,
    /// group-bys, joins, and web analytics.
    Analytics(analytics::AnalyticsArguments),
    /// The ordered index's tree beside scc's TreeIndex, crossbeam's skip list and congee.
    Ordered(ordered::OrderedArguments),
    /// Column operators: shared scans, joins and hash tables (figures of the column-store report).
    Operators(operators::OperatorsArguments),
    /// Scans that SQL clients share: what sharing can give, and throughput of clients with it and
    /// without.
    SharedScans(shared_scans::SharedScansArguments),
    /// TPC-C as stored procedures: throughput by threads, durability, contention and transformation
    /// of cold blocks (figure 10 of the paper).
    Tpcc(tpcc::TpccArguments),
    /// The twelve TPC-H queries on bitmap indexes with refresh functions beside them, queries to
    /// refreshes 98 to 2.
    Refresh(refresh::RefreshArguments),
    /// CH-benCHmark's Q1 and Q6 on bitmap indexes, beside transactions of TPC-C.
    Ch(ch::ChArguments),
    /// Bulk load of lineitem from Arrow batches in memory.
    Load {
        /// Scale factor.
        #[arg(long, default_value_t = 1.0)]
        sf: f64,
        /// Compare with DuckDB.
        #[arg(long)]
        peer: bool,
    },
    /// Single-row inserts and updates for 1 to 64 attributes of 8 bytes, in column layout and in
    /// row layout (figure 11 of the paper).
    Attributes(attributes::AttributesArguments),
    /// Durable commits per second with several connections, beside SQLite and PostgreSQL.
    Commits {
        /// Seconds per measurement.
        #[arg(long, default_value_t = 3.0)]
        seconds: f64,
        #[command(flatten)]
        postgres: postgres::PostgresArguments,
    },
    /// Idle and busy connections of clients of PostgreSQL: memory of each, and how long statements
    /// wait.
    Connections(connections::ConnectionsArguments),
    /// Statements on single rows by key: prepared, as text, and without the point path, beside
    /// SQLite and DuckDB.
    Point(point::PointArguments),
    /// pgbench over PostgreSQL's protocol, against the server and against PostgreSQL.
    Pgbench(pgbench::PgbenchArguments),
    /// Random queries, the same to the server and to PostgreSQL: fails if an answer differs.
    Answers(answers::AnswersArguments),
    /// The statements of PostgreSQL's regression suite, to the server and to PostgreSQL: where
    /// they differ.
    Regress(regress::RegressArguments),
    /// TPC-C through prepared SQL statements in process, beside SQLite and DuckDB.
    TpccSql(tpcc_sql::TpccSqlArguments),
    /// Compaction of blocks with empty slots (figures 13 and 14 of the paper).
    Compaction {
        /// The part that is measured.
        #[arg(value_enum)]
        part: compaction::Part,
        /// Blocks.
        #[arg(long, default_value_t = 500)]
        blocks: u32,
        /// Threads that compact and freeze, one table for each number.
        #[arg(long, value_delimiter = ',', default_values_t = [1])]
        threads: Vec<usize>,
    },
    /// Freezing lineitem: time per block, size, and the time to hand it out as Arrow.
    Freeze {
        /// Scale factor.
        #[arg(long, default_value_t = 1.0)]
        sf: f64,
        /// Collector threads that freeze beside the thread that asks for it.
        #[arg(long, default_value_t = 0)]
        gc_threads: usize,
    },
    /// Transactions beside the transformation of cold blocks, on orders and their lines (figure 10
    /// of the paper), and the price of the cold threshold.
    Transform(transform::TransformArguments),
    /// Gathering blocks with empty slots into each format, against Snapshot and In-Place (figure 12
    /// of the paper).
    Gather(gather::GatherArguments),
    /// Scans of lineitem, hot and frozen in each format, against the same rows as plain record
    /// batches in DataFusion.
    FrozenScan {
        /// Scale factor.
        #[arg(long, default_value_t = 1.0)]
        sf: f64,
        /// Runs of each query, of which the median is shown.
        #[arg(long, default_value_t = 7)]
        runs: usize,
    },
    /// Checkpoints of lineitem: what they write, what memory they give back, and how long opening
    /// takes.
    Checkpoint {
        /// Scale factor.
        #[arg(long, default_value_t = 1.0)]
        sf: f64,
    },
    /// Lineitem on its way out as Arrow, frozen and hot: in process, over Flight to pyarrow beside
    /// a server that does nothing but send, and over two wires that are not Arrow; with
    /// --linear-unit, by each mechanism of figure 15 of the paper to a client that computes.
    Export(export::ExportArguments),
    /// Lineitem in shared memory: from a request to record batches in another process, and a writer
    /// beside readers.
    SharedMemory(shared_memory::SharedMemoryArguments),
    /// Lineitem into a pandas DataFrame by psycopg, COPY, connectorx and ADBC, from SeracDB and
    /// from PostgreSQL (figure 1 of the paper).
    ExportClients(export_clients::ExportClientsArguments),
    /// The Python package beside sqlite3, psycopg and DuckDB.
    Python(python_package::PythonArguments),
    /// Lineitem in PySpark, from SeracDB over Flight, from PostgreSQL by JDBC, and from Parquet.
    Spark(spark::SparkArguments),
    /// Transactions on one processor beside workers of other machines that scan lineitem on the
    /// others: rate, waits, and freshness of the snapshots. Fails if a snapshot lacks an
    /// acknowledged transaction.
    RemoteReads(remote_reads::RemoteReadsArguments),
    /// How far scans by many workers go: service times of this machine, a simulation from them, and
    /// its comparison with workers on this machine.
    ScaleOut(scale_out::ScaleOutArguments),
    /// Time to open a database, from its log and from a checkpoint.
    Recovery,
    /// Memory under a steady update load with a long-running reader, and after it has ended.
    Gc(micro::GcArguments),
    /// Writes the tables of docs/benchmarks.md and the plots from the results in
    /// docs/benchmarks/results, or adds a run to them.
    Report(results::ReportArguments),
}

fn main() -> Result<(), String> {
    // As `serac` does: `mi_option_purge_delay` in `mimalloc.h`, in milliseconds.
    // SAFETY: the program has started no other thread yet, and the option is a number.
    unsafe { libmimalloc_sys::mi_option_set(15, 1000) };
    let arguments = Arguments::parse();
    let mut report = report::Report::new(arguments.json);
    match arguments.benchmark {
        Benchmark::Cubit(arguments) => cubit::run(&arguments, &mut report),
        Benchmark::CubitSizes { rows } => cubit::sizes(rows, &mut report),
        Benchmark::Bitmaps { values, runs } => bitmaps::run(values, runs, &mut report),
        Benchmark::Tpch(tpch) => tpch::run(&tpch, &mut report),
        Benchmark::Analytics(arguments) => analytics::run(&arguments, &mut report),
        Benchmark::Refresh(refresh) => refresh::run(&refresh, &mut report),
        Benchmark::Ch(ch) => ch::run(&ch, &mut report),
        Benchmark::Load { sf, peer } => tpch::load(sf, peer, &mut report),
        Benchmark::Attributes(attributes) => attributes::run(&attributes, &mut report),
        Benchmark::TpccSql(tpcc) => tpcc_sql::run(&tpcc, &mut report),
        Benchmark::Pgbench(arguments) => pgbench::run(&arguments, &mut report),
        Benchmark::Answers(arguments) => answers::run(&arguments, &mut report),
        Benchmark::Regress(arguments) => regress::run(&arguments, &mut report),
        Benchmark::Connections(connections) => connections::run(&connections, &mut report),
        Benchmark::Point(point) => point::run(&point, &mut report),
        Benchmark::Commits { seconds, postgres } => commits::run(seconds, postgres, &mut report),
        Benchmark::Compaction { part, blocks, threads } => compaction::run(part, blocks, &threads, &mut report),
        Benchmark::Freeze { sf, gc_threads } => freeze::run(sf, gc_threads, &mut report),
        Benchmark::Ordered(arguments) => ordered::run(&arguments, &mut report),
        Benchmark::Operators(arguments) => operators::run(&arguments, &mut report),
        Benchmark::SharedScans(arguments) => shared_scans::run(&arguments, &mut report),
        Benchmark::Tpcc(arguments) => tpcc::run(&arguments, &mut report),
        Benchmark::Transform(transform) => transform::run(&transform, &mut report),
        Benchmark::FrozenScan { sf, runs } => frozen_scan::run(sf, runs, &mut report),
        Benchmark::Gather(gather) => gather::run(&gather, &mut report),
        Benchmark::Checkpoint { sf } => checkpoint::run(sf, &mut report),
        Benchmark::Export(export) => export::run(&export, &mut report),
        Benchmark::ExportClients(clients) => export_clients::run(&clients, &mut report),
        Benchmark::SharedMemory(arguments) => shared_memory::run(&arguments, &mut report),
        Benchmark::Python(arguments) => python_package::run(&arguments, &mut report),
        Benchmark::Spark(arguments) => spark::run(&arguments, &mut report),
        Benchmark::RemoteReads(arguments) => remote_reads::run(&arguments, &mut report),
        Benchmark::ScaleOut(arguments) => scale_out::run(&arguments, &mut report),
        Benchmark::Recovery => micro::recovery(&mut report),
        Benchmark::Gc(gc) => micro::gc(&gc, &mut report),
        Benchmark::Report(arguments) => return results::run(&arguments),
    }?;
    report.finish();
    Ok(())
}
