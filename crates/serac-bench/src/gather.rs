//! Transformation of hot blocks into Arrow, with more and more empty slots (figure 12 of the
//! paper): Hybrid-Gather in `view` and `utf8` format, Hybrid-Compress (`dictionary`), Snapshot,
//! In-Place, all on one thread.
//!
//! Blocks are filled by transactional inserts, then random rows are deleted. The hybrid algorithm
//! is *compaction*, which moves rows together, *collection* of the versions that the moves leave,
//! and the *gather* of the blocks that are left, from hot to frozen, published. *Snapshot* reads
//! each block row by row in a transaction and appends to Arrow builders. *In-Place* writes every
//! variable-length value (every value, if there are none) anew by transactional updates, a
//! transaction per block. Milliseconds are per block of the table before compaction.

use crate::report::{Report, median};
use crate::setup::{OneTable, text};
use arrow::array::{ArrayRef, Int64Builder, RecordBatch, StringBuilder};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_storage::freeze::compact::NobodyFollows;
use serac_storage::{
    BlockNo, ColumnId, ColumnSchema, ColumnType, CompactionGroups, DataTable, FreezeFormat, RowBuffer, RowId, Slot,
    Storage, StorageOptions, TableId, TableSchema, Value,
};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(clap::Args, Debug)]
pub struct GatherArguments {
    /// Blocks of 1 MiB.
    #[arg(long, default_value_t = 500)]
    blocks: u32,
    /// One column of 8 bytes and one of 12 to 24 bytes of text (mixed), two of the first kind
    /// (fixed), or two of the second (varlen).
    #[arg(long, value_enum, default_value_t = Columns::Mixed)]
    columns: Columns,
    /// Percentages of empty slots.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1, 5, 10, 20, 40, 60, 80])]
    empty: Vec<u32>,
    /// Different texts; 0 for all different.
    #[arg(long, default_value_t = 0)]
    words: u32,
    /// Gather blocks as they are.
    #[arg(long)]
    without_compaction: bool,
}

/// The phases of the hybrid algorithm, in milliseconds per block.
struct Phases {
    compaction: f64,
    collection: f64,
    gather: f64,
}

impl Phases {
    fn total(&self) -> f64 {
        self.compaction + self.collection + self.gather
    }
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq)]
enum Columns {
    Mixed,
    Fixed,
    Varlen,
}

impl GatherArguments {
    fn schema(&self) -> TableSchema {
        let types = match self.columns {
            Columns::Mixed => [ColumnType::Int64, ColumnType::Utf8],
            Columns::Fixed => [ColumnType::Int64; 2],
            Columns::Varlen => [ColumnType::Utf8; 2],
        };
        let columns = types.into_iter().enumerate().map(|(i, column_type)| ColumnSchema {
            name: format!("c{i}"),
            column_type,
            nullable: true,
        });
        TableSchema { columns: columns.collect() }
    }

    /// The text of number `n`: 12 to 24 bytes.
    fn write_text(&self, n: u64, out: &mut String) {
        use std::fmt::Write;
        let n = if self.words == 0 { n } else { n % u64::from(self.words) };
        let len = 12 + (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % 13;
        out.clear();
        write!(out, "{n:0len$}").expect("memory");
    }

    fn fill(&self, empty: u32) -> Result<(Arc<Storage>, Arc<DataTable>), String> {
        let compaction = if self.without_compaction { CompactionGroups::Off } else { CompactionGroups::Adaptive };
        let options = StorageOptions { freeze_after: None, gc_threads: 0, compaction, ..Default::default() };
        let (storage, _) = Storage::open(options, &mut OneTable(self.schema())).map_err(text)?;
        storage.set_follower(Arc::new(NobodyFollows));
        let table = storage.create_table(TableId(1), "t", self.schema()).map_err(text)?;
        let rows = u64::from(self.blocks) * u64::from(table.layout().slot_count());
        let mut rng = StdRng::seed_from_u64(7);
        let (mut first, mut second) = (String::new(), String::new());
        let mut n = 0;
        while n < rows {
            let mut txn = storage.begin();
            for n in n..rows.min(n + 10_000) {
                self.write_text(n, &mut first);
                self.write_text(n + rows, &mut second);
                let row = match self.columns {
                    Columns::Mixed => [Value::Int64(n as i64), Value::Bytes(first.as_bytes())],
                    Columns::Fixed => [Value::Int64(n as i64), Value::Int64(-(n as i64))],
                    Columns::Varlen => [Value::Bytes(first.as_bytes()), Value::Bytes(second.as_bytes())],
                };
                table.insert(&mut txn, &row).map_err(text)?;
            }
            txn.commit().map_err(text)?;
            n += 10_000;
        }
        for no in 0..table.block_count() {
            let mut txn = storage.begin();
            let limit = table.block(BlockNo(no)).map_or(0, |block| block.slot_limit());
            for slot in (0..limit).filter(|_| rng.random_range(0..100) < empty) {
                table.delete(&mut txn, RowId::new(BlockNo(no), Slot(slot))).map_err(text)?;
            }
            txn.commit().map_err(text)?;
        }
        settle(&storage);
        Ok((storage, table))
    }

    fn hybrid(&self, storage: &Storage, table: &Arc<DataTable>, format: FreezeFormat) -> Result<Phases, String> {
        let blocks = f64::from(table.block_count());
        let rows = table.approximate_rows();
        table.set_freeze_format(format);
        let mut times = Vec::new();
        let mut timed = |phase: &dyn Fn() -> Result<(), String>| {
            let started = Instant::now();
            phase()?;
            times.push(started.elapsed().as_secs_f64() * 1e3 / blocks);
            Ok::<_, String>(())
        };
        timed(&|| storage.compact_table(table).map(drop).map_err(text))?;
        timed(&|| {
            settle(storage);
            Ok(())
        })?;
        timed(&|| match storage.freeze_table(table, Duration::from_secs(60)) {
            (frozen, blocks) if frozen < blocks => Err(format!("{frozen} of {blocks} blocks froze")),
            _ => Ok(()),
        })?;
        if table.approximate_rows() != rows {
            return Err("rows were lost".into());
        }
        Ok(Phases { compaction: times[0], collection: times[1], gather: times[2] })
    }
}

/// Collects all versions.
fn settle(storage: &Storage) {
    let started = Instant::now();
    while storage.metrics().gc_backlog > 0 && started.elapsed() < Duration::from_secs(30) {
        storage.run_gc();
    }
}

/// Milliseconds per block.
fn snapshot(storage: &Storage, table: &Arc<DataTable>) -> Result<f64, String> {
    let columns = [ColumnId(0), ColumnId(1)];
    let schema = Arc::new(arrow::datatypes::Schema::new(
        table
            .schema()
            .columns
            .iter()
            .map(|c| {
                let data_type = match c.column_type {
                    ColumnType::Utf8 => arrow::datatypes::DataType::Utf8,
                    other => other.arrow(),
                };
                arrow::datatypes::Field::new(&c.name, data_type, true)
            })
            .collect::<Vec<_>>(),
    ));
    let started = Instant::now();
    let (mut row, mut batches) = (RowBuffer::default(), Vec::new());
    for no in (0..table.block_count()).map(BlockNo) {
        let txn = storage.begin();
        let (mut numbers, mut texts) =
            ([Int64Builder::new(), Int64Builder::new()], [StringBuilder::new(), StringBuilder::new()]);
        for slot in 0..table.block(no).map_or(0, |block| block.slot_limit()) {
            if !table.read(txn.snapshot(), RowId::new(no, Slot(slot)), &columns, &mut row).map_err(text)? {
                continue;
            }
            for i in 0..2 {
                match row.value(i) {
                    Value::Int64(value) => numbers[i].append_value(value),
                    Value::Bytes(bytes) => texts[i].append_value(std::str::from_utf8(bytes).map_err(text)?),
                    other => return Err(format!("{other:?}")),
                }
            }
        }
        let arrays = (0..2).map(|i| match table.schema().columns[i].column_type {
            ColumnType::Utf8 => Arc::new(texts[i].finish()) as ArrayRef,
            _ => Arc::new(numbers[i].finish()) as ArrayRef,
        });
        batches.push(RecordBatch::try_new(schema.clone(), arrays.collect()).map_err(text)?);
    }
    Ok(started.elapsed().as_secs_f64() * 1e3 / f64::from(table.block_count()))
}

/// Milliseconds per block.
fn in_place(storage: &Storage, table: &Arc<DataTable>) -> Result<f64, String> {
    let all = [ColumnId(0), ColumnId(1)];
    let is_text = |column: &ColumnId| table.schema().columns[column.0 as usize].column_type == ColumnType::Utf8;
    let mut columns: Vec<ColumnId> = all.into_iter().filter(is_text).collect();
    if columns.is_empty() {
        columns = all.to_vec();
    }
    let started = Instant::now();
    let mut row = RowBuffer::default();
    for no in (0..table.block_count()).map(BlockNo) {
        let mut txn = storage.begin();
        for slot in 0..table.block(no).map_or(0, |block| block.slot_limit()) {
            let id = RowId::new(no, Slot(slot));
            if table.read(txn.snapshot(), id, &columns, &mut row).map_err(text)? {
                table.update(&mut txn, id, &columns, &row.values()).map_err(text)?;
            }
        }
        txn.commit().map_err(text)?;
    }
    let time = started.elapsed().as_secs_f64() * 1e3 / f64::from(table.block_count());
    settle(storage);
    Ok(time)
}

pub fn run(arguments: &GatherArguments, report: &mut Report) -> Result<(), String> {
    report.note(format!("{arguments:?}; milliseconds per block"));
    // The first run of each algorithm in the process is not measured.
    let warm_up = GatherArguments { blocks: 8, words: 0, empty: Vec::new(), ..*arguments };
    let (storage, table) = warm_up.fill(20)?;
    warm_up.hybrid(&storage, &table, FreezeFormat::View)?;
    drop((storage, table));
    for &empty in &arguments.empty {
        let hybrid = |format| {
            let (storage, table) = arguments.fill(empty)?;
            arguments.hybrid(&storage, &table, format)
        };
        let view = hybrid(FreezeFormat::View)?;
        let utf8 = hybrid(FreezeFormat::Utf8)?;
        let dictionary = hybrid(FreezeFormat::Dictionary)?;
        let (storage, table) = arguments.fill(empty)?;
        let snapshot = snapshot(&storage, &table)?;
        let in_place = in_place(&storage, &table)?;
        let of_three = |phase: fn(&Phases) -> f64| median([&view, &utf8, &dictionary].map(phase).to_vec());
        report.row(&[
            ("empty %", json!(empty)),
            ("compaction", json!(of_three(|phases| phases.compaction))),
            ("collection", json!(of_three(|phases| phases.collection))),
            ("gather, view", json!(view.gather)),
            ("gather, utf8", json!(utf8.gather)),
            ("compress, dictionary", json!(dictionary.gather)),
            ("hybrid, view", json!(view.total())),
            ("hybrid, utf8", json!(utf8.total())),
            ("hybrid, dictionary", json!(dictionary.total())),
            ("snapshot", json!(snapshot)),
            ("in place", json!(in_place)),
        ]);
    }
    Ok(())
}
