//! Sorted clustering: the rows of a table in the order of a key. The smallest and largest values of
//! a frozen block then lie close together, and scans for ranges of the key skip the other blocks.
//!
//! CLUSTER writes all rows anew, in order, as ADD COLUMN does: into new data, under a lock that
//! keeps writers away. Rows that are inserted later lie where they come; [`sorted`] orders those of
//! one load. Rows with equal keys stay in the order in which they were.

use crate::catalog::definition::ColumnOrder;
use crate::error::{EngineError, Result};
use crate::transaction::Transaction;
use crate::watch::{Watch, go_on};
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int16Type, Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_ord::ord::{DynComparator, make_comparator};
use arrow_ord::sort::SortOptions;
use arrow_schema::DataType;
use arrow_select::concat::concat;
use arrow_select::interleave::interleave_record_batch;
use serac_index::sorting::sort;
use serac_storage::StorageError;
use std::cmp::Ordering;
use std::sync::Arc;

/// Rows of a batch of sorted rows: about a block's.
const BATCH_ROWS: usize = 65_536;
/// Rows are numbered among those of all batches by 32 bits.
const MOST_ROWS: usize = u32::MAX as usize;

type Key = [(usize, ColumnOrder)];

/// The rows of batches in the order of a key, in batches of up to 65,536 rows.
#[derive(Debug)]
pub struct SortedRows<'b> {
    batches: &'b [RecordBatch],
    /// By batch, the number of rows up to its end.
    ends: Vec<usize>,
    /// Rows by their numbers among all.
    order: Vec<u32>,
    /// The number of these that were given out.
    given: usize,
    watch: Option<&'b dyn Watch>,
}

impl SortedRows<'_> {
    /// The batch of a row, and its place there.
    fn place(&self, row: u32) -> (usize, usize) {
        let row = row as usize;
        let batch = self.ends.partition_point(|end| *end <= row);
        (batch, row - batch.checked_sub(1).map_or(0, |before| self.ends[before]))
    }

    fn batch(&self, rows: &[u32]) -> Result<RecordBatch> {
        go_on(self.watch, self.order.capacity() as u64 * 4)?;
        let places: Vec<(usize, usize)> = rows.iter().map(|&row| self.place(row)).collect();
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        Ok(interleave_record_batch(&batches, &places).map_err(StorageError::from)?)
    }
}

impl Iterator for SortedRows<'_> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let rows = self.order.get(self.given..self.order.len().min(self.given + BATCH_ROWS))?;
        if rows.is_empty() {
            return None;
        }
        self.given += rows.len();
        Some(self.batch(rows))
    }
}

/// The numbers of keyed rows in order: of equal keys, the smaller number first. This many bytes are
/// held `beside`.
fn ordered<K: Copy>(
    mut rows: Vec<(K, u32)>,
    compare: impl Fn(K, K) -> Ordering,
    beside: usize,
    watch: Option<&dyn Watch>,
) -> Result<Vec<u32>> {
    let bytes = beside + rows.capacity() * size_of::<(K, u32)>();
    sort(&mut rows, |one, other| compare(one.0, other.0).then(one.1.cmp(&other.1)), || go_on(watch, bytes as u64))?;
    go_on(watch, (bytes + rows.len() * 4) as u64)?;
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

/// [`ordered`] by a column of integers without NULLs.
fn by_integers<T: ArrowPrimitiveType<Native: Ord>>(
    batches: &[RecordBatch],
    column: usize,
    descending: bool,
    watch: Option<&dyn Watch>,
) -> Result<Vec<u32>> {
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    go_on(watch, (rows * size_of::<(T::Native, u32)>()) as u64)?;
    let mut keyed = Vec::with_capacity(rows);
    for batch in batches {
        keyed.extend(batch.column(column).as_primitive::<T>().values().iter().copied().zip(keyed.len() as u32..));
    }
    ordered(keyed, |one, other| if descending { other.cmp(&one) } else { one.cmp(&other) }, 0, watch)
}

/// [`ordered`] by any columns.
fn by_any(batches: &[RecordBatch], key: &Key, watch: Option<&dyn Watch>) -> Result<Vec<u32>> {
    let comparator = |&(column, order): &(usize, ColumnOrder)| {
        let parts: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(column).as_ref()).collect();
        let values = concat(&parts).map_err(StorageError::from)?;
        let options = SortOptions { descending: order.descending, nulls_first: order.nulls_first };
        let comparator = make_comparator(&values, &values, options).map_err(StorageError::from)?;
        Ok::<_, EngineError>((comparator, values.get_array_memory_size()))
    };
    let columns = key.iter().map(comparator).collect::<Result<Vec<_>>>()?;
    let (comparators, bytes): (Vec<DynComparator>, Vec<usize>) = columns.into_iter().unzip();
    let (bytes, rows): (usize, usize) = (bytes.iter().sum(), batches.iter().map(RecordBatch::num_rows).sum());
    go_on(watch, bytes as u64)?;
    let compare = |one: u32, other: u32| {
        let order = |by: &DynComparator| by(one as usize, other as usize);
        comparators.iter().map(order).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    };
    ordered((0..rows as u32).map(|row| (row, row)).collect(), compare, bytes, watch)
}

/// The rows of `batches` in the order of a key. Rows that are equal in these stay in their order.
/// The watch is told of the memory that the sort takes beside the batches.
///
/// # Errors
/// An error when Arrow cannot order the columns; [`EngineError::Unsupported`] for more than 2³² − 1
/// rows; the errors of the watch.
pub fn sorted<'b>(batches: &'b [RecordBatch], key: &Key, watch: Option<&'b dyn Watch>) -> Result<SortedRows<'b>> {
    let ends: Vec<usize> = batches
        .iter()
        .scan(0, |end, batch| {
            *end += batch.num_rows();
            Some(*end)
        })
        .collect();
    let rows = ends.last().copied().unwrap_or(0);
    if rows > MOST_ROWS {
        return Err(EngineError::Unsupported(format!("sorting {rows} rows: at most {MOST_ROWS} are sorted at a time")));
    }
    let of_integers = |&(column, order): &(usize, ColumnOrder)| {
        let has_nulls = batches.iter().any(|batch| batch.column(column).null_count() > 0);
        let data_type = batches.first()?.column(column).data_type().clone();
        (!has_nulls).then_some((column, order.descending, data_type))
    };
    let order = match key {
        [] => (0..rows as u32).collect(),
        [only] => match of_integers(only) {
            Some((column, descending, DataType::Int16)) => by_integers::<Int16Type>(batches, column, descending, watch),
            Some((column, descending, DataType::Int32)) => by_integers::<Int32Type>(batches, column, descending, watch),
            Some((column, descending, DataType::Int64)) => by_integers::<Int64Type>(batches, column, descending, watch),
            _ if rows == 0 => Ok(Vec::new()),
            _ => by_any(batches, key, watch),
        }?,
        _ if rows == 0 => Vec::new(),
        _ => by_any(batches, key, watch)?,
    };
    Ok(SortedRows { batches, ends, order, given: 0, watch })
}

impl Transaction {
    /// CLUSTER: puts the rows of a table into the order of these columns, which is the table's from
    /// now on. The rows are in memory meanwhile.
    ///
    /// # Errors
    /// [`EngineError::Missing`], [`EngineError::Denied`]; an error when Arrow cannot order the
    /// columns; the errors of the transaction's watch.
    pub fn cluster(&mut self, schema: &str, name: &str, key: Vec<(usize, ColumnOrder)>) -> Result<()> {
        let table = self.catalog.table(schema, name)?.clone();
        self.check_owner(schema, name)?;
        self.lock_rows_for_ddl(&table)?;
        let (batches, held) = self.all_rows(&table)?;
        let watch = self.watch.clone().map(|watch| Held { watch, bytes: held });
        let rows = sorted(&batches, &key, watch.as_ref().map(|watch| watch as &dyn Watch))?;
        let mut definition = table.definition.clone();
        definition.cluster = key;
        let new = self.replace_data(&table, definition)?;
        for batch in rows {
            self.insert_batch(&new, &batch?)?;
        }
        Ok(())
    }
}

/// A watch that counts held memory, too.
#[derive(Debug)]
struct Held {
    watch: Arc<dyn Watch>,
    bytes: u64,
}

impl Watch for Held {
    fn go_on(&self, bytes: u64) -> Result<()> {
        self.watch.go_on(self.bytes + bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int64Array, StringViewArray, UInt32Array};
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicU64, Ordering as Order};

    /// Batches of a column, and of the numbers of the rows.
    fn batches<T>(lens: &[usize], values: &[T], of: impl Fn(&[T]) -> ArrayRef) -> Vec<RecordBatch> {
        let mut from = 0;
        let batch = |&len: &usize| {
            let (begin, end) = (from, (from + len).min(values.len()));
            from = end;
            let rows: ArrayRef = Arc::new(UInt32Array::from_iter_values(begin as u32..end as u32));
            RecordBatch::try_from_iter_with_nullable([("k", of(&values[begin..end]), true), ("row", rows, false)])
        };
        lens.iter().chain([&values.len()]).map(batch).collect::<Result<_, _>>().unwrap()
    }

    fn rows(sorted: SortedRows<'_>) -> Vec<u32> {
        let rows = |batch: RecordBatch| batch.column(1).as_primitive::<arrow_array::types::UInt32Type>().clone();
        sorted.flat_map(|batch| rows(batch.unwrap()).values().to_vec()).collect()
    }

    proptest! {
        #[test]
        fn equal_keys_stay_in_their_order(
            keys in prop::collection::vec(prop_oneof![5 => (-3i64..3).prop_map(Some), 1 => Just(None)], 0..300),
            lens in prop::collection::vec(0usize..90, 0..5), descending: bool, nulls_first: bool, width in 0..4,
        ) {
            let order = ColumnOrder { descending, nulls_first };
            // Integers, also without NULLs, which take another path.
            let keys: Vec<Option<i64>> =
                if width < 3 && nulls_first { keys.into_iter().map(|key| key.or(Some(0))).collect() } else { keys };
            let mut expected: Vec<u32> = (0..keys.len() as u32).collect();
            expected.sort_by(|one, other| match (keys[*one as usize], keys[*other as usize]) {
                (Some(one), Some(other)) if descending => other.cmp(&one),
                (Some(one), Some(other)) => one.cmp(&other),
                (one, other) if nulls_first => one.is_some().cmp(&other.is_some()),
                (one, other) => one.is_none().cmp(&other.is_none()),
            });
            let batches = batches(&lens, &keys, |part: &[Option<i64>]| match width {
                0 => Arc::new(part.iter().map(|key| key.map(|key| key as i16)).collect::<arrow_array::Int16Array>()),
                1 => Arc::new(part.iter().map(|key| key.map(|key| key as i32)).collect::<arrow_array::Int32Array>()),
                2 => Arc::new(part.iter().copied().collect::<Int64Array>()),
                _ => Arc::new(part.iter().map(|key| key.map(|key| char::from(b'd'.wrapping_add(key as u8)).to_string())).collect::<StringViewArray>()) as ArrayRef,
            });
            prop_assert_eq!(rows(sorted(&batches, &[(0, order)], None).unwrap()), expected.clone());
            // A second column that is the same everywhere.
            prop_assert_eq!(rows(sorted(&batches, &[(0, order), (0, order)], None).unwrap()), expected);
        }
    }

    /// A watch that ends the work at its n-th question, and notes the most that it was told of.
    #[derive(Debug)]
    struct Patience {
        left: AtomicU64,
        most: AtomicU64,
    }
    impl Watch for Patience {
        fn go_on(&self, bytes: u64) -> Result<()> {
            self.most.fetch_max(bytes, Order::Relaxed);
            let left = self.left.fetch_update(Order::Relaxed, Order::Relaxed, |left| left.checked_sub(1));
            left.map(drop).map_err(|_| EngineError::Cancelled)
        }
    }

    #[test]
    fn a_sort_can_be_given_up_at_any_question() {
        let keys: Vec<i64> = (0..400_000).map(|i| i * 7 % 1_000).collect();
        let batches = batches(&[100_000, 200_000], &keys, |part| Arc::new(Int64Array::from(part.to_vec())));
        for key in [&[(0, ColumnOrder::default())][..], &[(0, ColumnOrder::default()), (1, ColumnOrder::default())]] {
            let mut questions = 0;
            loop {
                let watch = Patience { left: questions.into(), most: 0.into() };
                let all = sorted(&batches, key, Some(&watch)).and_then(|rows| rows.collect::<Result<Vec<_>>>());
                match all {
                    Ok(all) => {
                        assert_eq!(all.iter().map(RecordBatch::num_rows).sum::<usize>(), keys.len());
                        assert!(watch.most.into_inner() >= keys.len() as u64 * 8, "the sort says what it takes");
                        break;
                    }
                    Err(error) => assert!(matches!(error, EngineError::Cancelled), "{error}"),
                }
                questions += 1;
            }
            assert!(questions > 8, "{questions} questions");
        }
    }
}
