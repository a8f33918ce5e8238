//! Identifiers. A [`RowId`] is logical and dense (`block number << 20 | slot`): it names a place in
//! a table, never a place in memory. So blocks can be copied, mapped from a file or moved without
//! touching an index, and the log replays to the same ids.

use std::fmt;

/// Bits of a row id that hold the slot.
pub const SLOT_BITS: u32 = 20;
/// A block has at most this many slots, so that a bitmap container is exactly a block.
pub const MAX_SLOTS_PER_BLOCK: u32 = 65_536;
/// A table has at most this many blocks (1 TiB of blocks).
pub const MAX_BLOCKS_PER_TABLE: u32 = 1 << 20;
/// Size of a block in bytes.
pub const BLOCK_BYTES: usize = 1 << 20;

/// Number of a block within its table: an index into the table's block table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockNo(pub u32);

/// Number of a slot within its block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u32);

/// Identifies a row of one table until the row is deleted or compaction moves it (§3.2, with a
/// block number in place of an address).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(u64);

impl RowId {
    /// The row id of `slot` in block `block`.
    #[inline]
    pub const fn new(block: BlockNo, slot: Slot) -> Self {
        Self(((block.0 as u64) << SLOT_BITS) | slot.0 as u64)
    }

    /// A row id from its 64-bit form.
    #[inline]
    pub const fn from_u64(raw: u64) -> Self {
        Self(raw)
    }

    /// The 64-bit form.
    #[inline]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The block that holds the row.
    #[inline]
    pub const fn block(self) -> BlockNo {
        BlockNo((self.0 >> SLOT_BITS) as u32)
    }

    /// The row's slot in its block.
    #[inline]
    pub const fn slot(self) -> Slot {
        Slot((self.0 & ((1 << SLOT_BITS) - 1)) as u32)
    }
}

impl fmt::Debug for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowId({}:{})", self.block().0, self.slot().0)
    }
}

/// Number of a table within its database; never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct TableId(pub u32);

/// Position of a column in its table's physical schema.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ColumnId(pub u16);

/// A point in the database's one history. Start and commit timestamps come from the same counter.
///
/// The sign bit marks *uncommitted*: compared as unsigned numbers, an uncommitted timestamp is
/// later than every snapshot, so an uncommitted version is never visible (§3.1). A version is
/// visible to a snapshot iff `commit_ts <= start_ts`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The sign bit.
    pub const UNCOMMITTED_BIT: u64 = 1 << 63;
    /// Before everything: data that was loaded by recovery.
    pub const ZERO: Self = Self(0);

    /// The timestamp that marks versions of the running transaction numbered `txn_no`.
    #[inline]
    pub const fn uncommitted(txn_no: u64) -> Self {
        Self(txn_no | Self::UNCOMMITTED_BIT)
    }

    /// The number of the running transaction whose versions carry this timestamp; `None` if it has
    /// ended.
    #[inline]
    pub const fn running(self) -> Option<u64> {
        if self.is_committed() { None } else { Some(self.0 & !Self::UNCOMMITTED_BIT) }
    }

    /// Whether the version that carries this timestamp has been committed.
    #[inline]
    pub const fn is_committed(self) -> bool {
        self.0 & Self::UNCOMMITTED_BIT == 0
    }

    /// Whether a version with this commit timestamp is visible to a snapshot that started at
    /// `start`.
    #[inline]
    pub const fn visible_at(self, start: Timestamp) -> bool {
        self.0 <= start.0
    }
}
