//! What a block keeps of the order of its columns' values: see `table/order.rs`.

use crate::ids::ColumnId;
use serac_sync::Mutex;

/// The known order of a column's values in a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ColumnOrder {
    pub(crate) column: ColumnId,
    /// The block's count of settlements when this was found out.
    pub(crate) settlements: u64,
    /// Slots below which the rows lie.
    pub(crate) limit: u32,
    /// Whether each of these has a row.
    pub(crate) is_full: bool,
    /// The smallest and the largest value; `None` if there is no value.
    pub(crate) zone: Option<(i64, i64)>,
    pub(crate) has_nulls: bool,
    /// Whether no row has a smaller value than the row before it. Never so with NULLs.
    pub(crate) ascends: bool,
}

/// The known orders of a block's columns: an entry for each column that was asked for.
#[derive(Debug, Default)]
pub(crate) struct ColumnOrders(Mutex<Vec<ColumnOrder>>);

impl ColumnOrders {
    pub(crate) fn get(&self, column: ColumnId, settlements: u64) -> Option<ColumnOrder> {
        let is_wanted = |known: &&ColumnOrder| known.column == column && known.settlements == settlements;
        self.0.lock().iter().find(is_wanted).copied()
    }

    pub(crate) fn put(&self, order: ColumnOrder) {
        let mut known = self.0.lock();
        known.retain(|other| other.column != order.column);
        known.push(order);
    }
}
