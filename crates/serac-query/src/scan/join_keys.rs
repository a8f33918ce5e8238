//! The keys of a join's build side: noted by a [key filter](super::key_filter), tested by scans.

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use datafusion::arrow::datatypes::{DataType, Date32Type, Int16Type, Int32Type, Int64Type};
use parking_lot::RwLock;
use serac_operators::key_set::KeySet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The keys of a join's build side, once they are known.
#[derive(Debug)]
pub(super) struct KeyFilter {
    /// Partitions of the build side.
    partitions: usize,
    state: RwLock<State>,
    /// Up to this many keys are kept as a list, too.
    most_listed: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    parts: Vec<Vec<i64>>,
    keys: Option<Arc<KeySet>>,
    /// Ascending and different, if there are few enough.
    list: Option<Arc<Vec<i64>>>,
}

impl KeyFilter {
    /// For a build side with this many partitions.
    pub(super) fn new(partitions: usize) -> Self {
        Self { partitions, state: RwLock::default(), most_listed: AtomicUsize::new(0) }
    }

    /// The keys, if they are known by now.
    pub(super) fn keys(&self) -> Option<Arc<KeySet>> {
        self.state.read().keys.clone()
    }

    /// Makes the filter keep up to `most` keys as a list. Called at planning.
    pub(super) fn list_keys(&self, most: usize) {
        // Relaxed: execution begins after planning.
        self.most_listed.store(most, Ordering::Relaxed);
    }

    /// The keys, ascending and different, if they are known by now and a list was asked for.
    pub(super) fn listed(&self) -> Option<Arc<Vec<i64>>> {
        self.state.read().list.clone()
    }

    /// Adds the keys of a partition that has ended.
    pub(super) fn finish_partition(&self, keys: Vec<i64>) {
        let mut state = self.state.write();
        state.parts.push(keys);
        if state.parts.len() == self.partitions {
            let parts = std::mem::take(&mut state.parts);
            if parts.iter().map(Vec::len).sum::<usize>() <= self.most_listed.load(Ordering::Relaxed) {
                let mut list = parts.concat();
                list.sort_unstable();
                list.dedup();
                state.list = Some(Arc::new(list));
            }
            state.keys = Some(Arc::new(KeySet::new(&parts)));
        }
    }

    /// Forgets everything, for another execution of the same plan.
    pub(super) fn reset(&self) {
        *self.state.write() = State::default();
    }
}

/// Whether values of a type can be keys of this kind.
pub(super) fn is_key_type(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Date32)
}

/// Adds the keys that are not NULL.
pub(super) fn note_keys(array: &ArrayRef, keys: &mut Vec<i64>) {
    fn note<T: ArrowPrimitiveType<Native: Into<i64>>>(array: &ArrayRef, keys: &mut Vec<i64>) {
        let array = array.as_primitive::<T>();
        match array.null_count() {
            0 => keys.extend(array.values().iter().map(|&v| v.into())),
            _ => keys.extend(array.iter().flatten().map(Into::into)),
        }
    }
    match array.data_type() {
        DataType::Int16 => note::<Int16Type>(array, keys),
        DataType::Int32 => note::<Int32Type>(array, keys),
        DataType::Int64 => note::<Int64Type>(array, keys),
        DataType::Date32 => note::<Date32Type>(array, keys),
        _ => unreachable!("the types were checked when the filter was planned"),
    }
}
