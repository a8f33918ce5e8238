//! Statistics for planning: estimates from a sample of blocks, kept until the table has changed a
//! good deal.

use ahash::RandomState;
use serac_storage::{BlockNo, ColumnForm, ColumnId, ColumnType, DataTable, ScanColumn, Snapshot};
use serac_sync::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

/// Blocks sampled.
const SAMPLED_BLOCKS: u32 = 8;

/// The estimates for a table.
#[derive(Clone, Debug, Default)]
pub struct TableStatistics {
    /// Rows when the sample was taken.
    pub rows: u64,
    /// Per column, the number of different values; `None` if it is not known.
    pub distinct: Vec<Option<u64>>,
}

/// Statistics that are taken when first asked for.
#[derive(Debug, Default)]
pub(crate) struct StatisticsCache(Mutex<Option<Arc<TableStatistics>>>);

/// The domain size D, from a sample of `seen` rows with `distinct` values. A sample of n rows has
/// D(1 − (1 − 1/D)^n) distinct values on average; this is solved for D.
fn domain_size(seen: f64, distinct: f64) -> f64 {
    if distinct >= seen {
        return f64::INFINITY;
    }
    let expected = |domain: f64| domain * (1.0 - (-seen / domain).exp());
    let (mut low, mut high) = (distinct, distinct * 2.0);
    while expected(high) < distinct && high < 1e15 {
        high *= 2.0;
    }
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if expected(middle) < distinct { low = middle } else { high = middle }
    }
    high
}

impl StatisticsCache {
    /// Statistics since which the number of rows has changed by at most a fifth.
    pub(crate) fn get(&self, data: &DataTable, snapshot: &Snapshot) -> Arc<TableStatistics> {
        let rows = data.approximate_rows();
        let mut cache = self.0.lock();
        if let Some(known) = &*cache
            && known.rows.abs_diff(rows) * 5 <= rows
        {
            return known.clone();
        }
        let taken = Arc::new(take(data, snapshot, rows));
        *cache = Some(taken.clone());
        taken
    }
}

fn take(data: &DataTable, snapshot: &Snapshot, rows: u64) -> TableStatistics {
    let types: Vec<ColumnType> = data.schema().columns.iter().map(|c| c.column_type).collect();
    let mut columns: Vec<(usize, ScanColumn)> = Vec::new();
    for (i, column_type) in types.iter().enumerate() {
        let form = match column_type {
            ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64 | ColumnType::Date => ColumnForm::Arrow,
            ColumnType::Decimal { precision, .. } if *precision <= 18 => ColumnForm::Scaled64,
            _ => continue,
        };
        columns.push((i, ScanColumn { id: ColumnId(i as u16), form }));
    }
    let wanted: Vec<ScanColumn> = columns.iter().map(|(_, c)| *c).collect();
    let mut sets = vec![(HashSet::<u64, RandomState>::default(), 0usize); columns.len()];
    let (blocks, mut seen) = (data.block_count(), 0usize);
    let sampled = blocks.min(SAMPLED_BLOCKS);
    for i in 0..sampled {
        let no = (2 * u64::from(i) + 1) * u64::from(blocks) / (2 * u64::from(sampled));
        let Some(mut reader) = data.read_block(snapshot, BlockNo(no as u32)) else { continue };
        let visible = reader.visible().clone();
        let Ok(arrays) = reader.columns(&wanted, &visible) else { continue };
        seen += visible.len();
        for ((all, per_block), array) in sets.iter_mut().zip(arrays) {
            let values = array.to_data();
            let Some(width) = values.data_type().primitive_width() else { continue };
            let bytes = &values.buffers()[0].as_slice()[values.offset() * width..][..values.len() * width];
            let block: HashSet<u64, RandomState> = bytes
                .chunks_exact(width)
                .map(|v| v.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
                .collect();
            *per_block += block.len();
            all.extend(block);
        }
    }
    let mut distinct = vec![None; types.len()];
    for ((i, _), (all, per_block)) in columns.iter().zip(&sets) {
        if seen == 0 {
            continue;
        }
        // A column whose values hardly ever return in another block grows with the table; other
        // columns have a fixed domain.
        let estimate = if all.len() as f64 > 0.95 * *per_block as f64 && sampled > 1 {
            rows as f64 * all.len() as f64 / seen as f64
        } else {
            domain_size(seen as f64, all.len() as f64).min(rows as f64)
        };
        distinct[*i] = Some((estimate as u64).clamp(1, rows.max(1)));
    }
    TableStatistics { rows, distinct }
}

#[cfg(test)]
mod tests {
    use super::domain_size;

    #[test]
    fn the_domain_is_found_from_a_sample() {
        // 50,000 draws from 200,000 values give about 44,240 different ones.
        let estimate = domain_size(50_000.0, 44_240.0);
        assert!((180_000.0..220_000.0).contains(&estimate), "{estimate}");
        let few = domain_size(50_000.0, 25.0);
        assert!((24.0..26.0).contains(&few), "{few}");
    }
}
