//! Rows that bitmap indexes name.

use super::segments::BySegment;
use serac_engine::table::bitmap::BitmapReader;
use serac_index::cubit::container::Words;
use serac_index::cubit::{Bitvector, Key, Predicate, Shared};
use serac_storage::types::ColumnType;
use serac_storage::{BlockNo, Selection, Value};
use std::sync::Arc;

/// Keys that are looked up at once.
const KEYS_PER_PART: usize = 4_096;

/// Rows of a table, or of a segment, in a snapshot.
#[derive(Debug)]
pub(super) enum Rows {
    Only(Bitvector),
    Except(Bitvector),
}

impl Rows {
    fn inverse(self) -> Self {
        match self {
            Self::Only(rows) => Self::Except(rows),
            Self::Except(rows) => Self::Only(rows),
        }
    }

    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Only(a), Self::Only(b)) => Self::Only(a.and(&b)),
            (Self::Only(a), Self::Except(b)) | (Self::Except(b), Self::Only(a)) => Self::Only(a.and_not(&b)),
            (Self::Except(a), Self::Except(b)) => Self::Except(a.or(&b)),
        }
    }

    pub(super) fn or(self, other: Self) -> Self {
        self.inverse().and(other.inverse()).inverse()
    }

    /// Whether no row of the block is among them.
    pub(super) fn skips(&self, no: BlockNo) -> bool {
        matches!(self, Self::Only(rows) if rows.block(no).is_none())
    }

    /// The rows of a block, whose visible rows are given.
    pub(super) fn select(&self, no: BlockNo, visible: &Selection) -> Selection {
        let (rows, container) = match self {
            Self::Only(rows) => (true, rows.block(no)),
            Self::Except(rows) => (false, rows.block(no)),
        };
        let Some(container) = container else {
            return if rows { Selection::All(0) } else { visible.clone() };
        };
        let listed = container.cardinality() as usize;
        if rows {
            debug_assert!(listed <= visible.len(), "the index has rows that the table has not");
            if listed == visible.len() {
                return visible.clone();
            }
            let mut slots = Vec::with_capacity(listed);
            container.for_each(|slot| slots.push(u32::from(slot)));
            return Selection::Positions(slots);
        }
        let mut slots = Vec::with_capacity(visible.len().saturating_sub(listed));
        match visible {
            Selection::All(n) => {
                let mut next = 0;
                container.for_each(|slot| {
                    slots.extend(next..u32::from(slot));
                    next = u32::from(slot) + 1;
                });
                slots.extend(next..*n);
            }
            Selection::Positions(positions) => {
                slots.extend(positions.iter().copied().filter(|&slot| !container.contains(slot as u16)));
            }
        }
        Selection::Positions(slots)
    }

    /// The rows of a block that has the rows 0 to `all` − 1, as bits, if they are more than half of
    /// them.
    pub(super) fn bits(&self, no: BlockNo, all: u32) -> Option<Vec<u64>> {
        let (rows, container) = match self {
            Self::Only(rows) => (true, rows.block(no)?),
            Self::Except(rows) => (false, rows.block(no)?),
        };
        if (container.cardinality() * 2 > all) != rows {
            return None;
        }
        let mut words = Words::default();
        container.or_into(&mut words);
        let mut bits = words.words().to_vec();
        bits.resize((all as usize).div_ceil(64), 0);
        if !rows {
            bits.iter_mut().for_each(|word| *word = !*word);
            if !all.is_multiple_of(64) {
                bits[all as usize / 64] &= (1 << (all % 64)) - 1;
            }
        }
        Some(bits)
    }

    /// The rows among the slots of a block.
    pub(super) fn narrow(&self, no: BlockNo, slots: &[u32]) -> Selection {
        let (rows, container) = match self {
            Self::Only(rows) => (true, rows.block(no)),
            Self::Except(rows) => (false, rows.block(no)),
        };
        let keep = |slot: &u32| container.is_some_and(|container| container.contains(*slot as u16)) == rows;
        Selection::Positions(slots.iter().copied().filter(keep).collect())
    }
}

/// The rows of a table with, or without, one of the keys of a join in an indexed column.
#[derive(Debug)]
pub(super) struct KeyRows {
    index: BitmapReader,
    /// Ascending and different.
    keys: Arc<Vec<i64>>,
    anti: bool,
    /// The bitvectors of the keys, part by part.
    found: Shared<Bitvector>,
    rows: BySegment<Rows>,
}

impl KeyRows {
    /// The rows with one of the ascending `keys` (`anti`: with other keys) in a table of `blocks`
    /// blocks. The index's column has integers or dates.
    pub(super) fn new(index: BitmapReader, keys: Arc<Vec<i64>>, anti: bool, blocks: u32) -> Self {
        let found = Shared::new(keys.len().div_ceil(KEYS_PER_PART));
        Self { index, keys, anti, found, rows: BySegment::new(blocks) }
    }

    fn find(&self, part: usize) -> Bitvector {
        let keys = &self.keys[part * KEYS_PER_PART..];
        let index = self.index.index();
        let value = |&key: &i64| match index.column_type {
            ColumnType::Int16 => Value::Int16(key as i16),
            ColumnType::Int32 | ColumnType::Date => Value::Int32(key as i32),
            _ => Value::Int64(key),
        };
        let keys: Vec<Key> = keys.iter().take(KEYS_PER_PART).map(|key| index.key(value(key))).collect();
        self.index.query(Predicate::In(&keys))
    }

    /// The rows in the segment of a block.
    pub(super) fn rows(&self, no: BlockNo) -> &Rows {
        self.rows.get(self.rows.of(no), |blocks| {
            let parts: Vec<&Bitvector> = self.found.all(|part| self.find(part)).collect();
            let rows = Bitvector::or_within(&parts, blocks);
            if self.anti { Rows::Except(rows) } else { Rows::Only(rows) }
        })
    }
}
