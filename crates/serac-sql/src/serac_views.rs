//! The views `serac_…` of the system.

use crate::backends;
use crate::database::SqlDatabase;
use crate::pipeline::rules;
use crate::statement_snapshot::StatementSnapshot;
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use datafusion::catalog::{MemTable, TableProvider};
use serac_index::cubit::Statistics;
use serac_storage::BlockNo;
use serac_storage::block::Block;
use std::sync::Arc;
use std::time::SystemTime;

/// Views of the system, by names that no schema has.
pub(crate) const SYSTEM_VIEWS: [&str; 6] =
    ["serac_blocks", "serac_indexes", "serac_activity", "serac_locks", "serac_metrics", "serac_passes"];

/// One of [`SYSTEM_VIEWS`], or PostgreSQL's view of sessions, if it has the name.
pub(crate) fn system_view(
    name: &str,
    view: &StatementSnapshot,
    sql: &SqlDatabase,
) -> datafusion::error::Result<Option<Arc<dyn TableProvider>>> {
    match name {
        "serac_blocks" => blocks_view(view).map(Some),
        "serac_indexes" => indexes_view(view).map(Some),
        "serac_activity" => backends::activity_view(sql, &view.access).map(Some),
        "serac_locks" => backends::locks_view(sql, view).map(Some),
        "serac_metrics" => backends::metrics_view(sql, &view.access).map(Some),
        "serac_passes" => {
            let passes = rules::view()?;
            Ok(Some(Arc::new(MemTable::try_new(passes.schema(), vec![vec![passes]])?)))
        }
        "pg_stat_activity" => backends::pg_stat_activity(sql, &view.access).map(Some),
        _ => Ok(None),
    }
}

pub(crate) fn text(values: Vec<String>) -> ArrayRef {
    Arc::new(StringArray::from(values))
}

/// Every index of every table, with the figures of the bitmap indexes as they are now.
pub(crate) fn indexes_view(view: &StatementSnapshot) -> datafusion::error::Result<Arc<dyn TableProvider>> {
    let mut texts: [Vec<String>; 5] = Default::default();
    let mut numbers: [Vec<Option<i64>>; 11] = Default::default();
    let mut row = |names: [&str; 5], figures: [Option<u64>; 11]| {
        texts.iter_mut().zip(names).for_each(|(column, name)| column.push(name.to_owned()));
        numbers.iter_mut().zip(figures).for_each(|(column, figure)| column.push(figure.map(|n| n as i64)));
    };
    for (schema, entry) in &view.catalog.schemas {
        for (name, table) in entry.tables.iter().filter(|(_, table)| view.may_look_into(table)) {
            let columns = &table.definition.columns;
            for index in &table.indexes {
                let key = &index.definition;
                let names: Vec<_> = (0..key.columns.len()).map(|i| key.shown(i, &table.definition)).collect();
                let mut figures = [None; 11];
                figures[1] = Some(index.entries.len() as u64);
                row([schema, name, &index.definition.name, "btree", &names.join(", ")], figures);
            }
            for index in &table.bitmaps {
                let Statistics {
                    values,
                    rows,
                    bytes,
                    log_entries,
                    log_bits,
                    pending_bits,
                    publications,
                    merges,
                    helps,
                    longest_chain,
                    versions,
                    ..
                } = index.entries.statistics();
                let names = [schema, name, &index.definition.name, "bitmap", &columns[index.definition.column].name];
                let contents = [values, rows, bytes, log_entries, log_bits, pending_bits];
                let work = [publications, merges, helps, longest_chain, versions];
                let mut figures = contents.into_iter().chain(work);
                row(names, std::array::from_fn(|_| figures.next()));
            }
        }
    }
    let names = ["schema_name", "table_name", "index_name", "method", "columns"];
    let texts = names.into_iter().zip(texts).map(|(name, values)| (name, text(values), false));
    let names = [
        "values",
        "entries",
        "bytes",
        "log_entries",
        "log_bits",
        "pending_bits",
        "publications",
        "merges",
        "helps",
        "longest_chain",
        "versions",
    ];
    let numbers =
        names.into_iter().zip(numbers).map(|(name, values)| (name, Arc::new(Int64Array::from(values)) as _, true));
    let batch = RecordBatch::try_from_iter_with_nullable(texts.chain(numbers))?;
    Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
}

/// Every block of every table, as it is now.
pub(crate) fn blocks_view(view: &StatementSnapshot) -> datafusion::error::Result<Arc<dyn TableProvider>> {
    let (mut schemas, mut tables, mut states, mut touched) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut numbers: [Vec<i64>; 8] = Default::default();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut formats: Vec<Option<&'static str>> = Vec::new();
    for (schema_name, schema) in &view.catalog.schemas {
        for (table_name, table) in schema.tables.iter().filter(|(_, table)| view.may_look_into(table)) {
            for no in 0..table.data.block_count() {
                let Some(block) = table.data.block(BlockNo(no)) else { continue };
                // The block table has it, and this function.
                let pins = Arc::strong_count(&block).saturating_sub(2);
                let (state, rows, versions, heap, garbage, bytes, idle) = match &*block {
                    Block::Hot(hot) => {
                        let versions = hot.versioned().get();
                        let (heap, garbage) = (hot.heap().bytes(), hot.heap().garbage_bytes());
                        let state = format!("{:?}", hot.temperature()).to_lowercase();
                        (state, hot.rows(), versions, heap, garbage, hot.bytes(), Some(hot.idle()))
                    }
                    Block::Frozen(frozen) => {
                        ("frozen".to_owned(), frozen.rows(), 0, frozen.heap_bytes(), 0, frozen.bytes(), None)
                    }
                };
                schemas.push(schema_name.clone());
                tables.push(table_name.clone());
                states.push(state);
                formats.push(block.frozen().map(|frozen| frozen.format().name()));
                touched.push(idle.map(|idle| now.saturating_sub(idle).as_micros() as i64));
                let empty = block.slot_limit() - rows;
                let counts = [no, rows, empty, versions].map(i64::from);
                let sizes = [heap, garbage, bytes, pins].map(|size| size as i64);
                numbers.iter_mut().zip(counts.into_iter().chain(sizes)).for_each(|(column, value)| column.push(value));
            }
        }
    }
    let [block, rows, empty, versions, heap, garbage, bytes, pins] =
        numbers.map(|values| Arc::new(Int64Array::from(values)) as ArrayRef);
    let touched = TimestampMicrosecondArray::from(touched).with_timezone("UTC");
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("schema_name", text(schemas), false),
        ("table_name", text(tables), false),
        ("block", block, false),
        ("state", text(states), false),
        ("format", Arc::new(StringArray::from(formats)) as ArrayRef, true),
        ("rows", rows, false),
        ("empty_slots", empty, false),
        ("versions", versions, false),
        ("heap_bytes", heap, false),
        ("garbage_bytes", garbage, false),
        ("bytes", bytes, false),
        ("pins", pins, false),
        ("last_touched", Arc::new(touched), true),
    ])?;
    Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
}
