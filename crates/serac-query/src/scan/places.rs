//! The places of rows as SQL names them: the system column `ctid`, of type `tid`.
//!
//! A block is shown as [`PAGES_PER_BLOCK`] pages of up to [`ROWS_PER_PAGE`] rows, which are
//! numbered from 1 as PostgreSQL's are. A block has 1 MiB and a page 8 KiB, so clients that divide
//! a table by its pages get parts of about the size that they expect. Places have the order of row
//! ids.
//!
//! A condition on `ctid` alone is ranges of places ([`Places`]), and a scan reads the blocks in
//! these ranges alone. A snapshot sees a row in one place: compaction moves a row by a transaction,
//! which deletes it here and inserts it there. So ranges that together have all places give each
//! row of a snapshot once.

use datafusion::arrow::array::{ArrayRef, FixedSizeBinaryArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Expr, Operator};
use serac_engine::Table;
use serac_storage::{BlockNo, MAX_SLOTS_PER_BLOCK, RowId, Selection, Slot};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The name of the system column.
pub const CTID_COLUMN: &str = "ctid";
/// The bytes of a place: the page in four, the row in it in two, the highest first.
const PLACE_BYTES: i32 = 6;
/// The Arrow type of places.
pub(super) const CTID_TYPE: DataType = DataType::FixedSizeBinary(PLACE_BYTES);

/// Pages of a block.
const PAGES_PER_BLOCK: u32 = 128;
/// Rows of a page at the most.
const ROWS_PER_PAGE: u32 = MAX_SLOTS_PER_BLOCK / PAGES_PER_BLOCK;
/// Behind the places of all pages that have a number.
const END: u64 = (1 << 32) * ROWS_PER_PAGE as u64;
/// Ranges of a condition at the most. Each row is tested against longer conditions.
const MOST_RANGES: usize = 1 << 16;

/// The number of a table's pages: all its rows lie in pages with lower numbers.
pub fn pages(table: &Table) -> u32 {
    table.data.block_count().saturating_mul(PAGES_PER_BLOCK)
}

/// The number of a row's place among all places, from 0 on.
fn number_of(block: BlockNo, slot: Slot) -> u64 {
    u64::from(block.0) * u64::from(MAX_SLOTS_PER_BLOCK) + u64::from(slot.0)
}

/// The places of rows.
pub(super) fn places_of(rows: &[u64]) -> Result<ArrayRef> {
    let mut bytes = Vec::with_capacity(rows.len() * PLACE_BYTES as usize);
    for row in rows.iter().copied().map(RowId::from_u64) {
        let page = row.block().0 * PAGES_PER_BLOCK + row.slot().0 / ROWS_PER_PAGE;
        let in_page = row.slot().0 % ROWS_PER_PAGE + 1;
        bytes.extend_from_slice(&page.to_be_bytes());
        bytes.extend_from_slice(&(in_page as u16).to_be_bytes());
    }
    Ok(Arc::new(FixedSizeBinaryArray::try_new(PLACE_BYTES, bytes.into(), None)?))
}

/// The number of the first place that is not before that of a row of a page.
fn first_from(page: u32, in_page: u16) -> u64 {
    u64::from(page) * u64::from(ROWS_PER_PAGE) + u64::from(in_page.saturating_sub(1)).min(ROWS_PER_PAGE.into())
}

/// The places that a condition allows, as ranges of their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// Ascending, none of them empty, with gaps between them.
    ranges: Vec<Range<u64>>,
}

impl Places {
    /// The places that a condition allows; `None` if it is not one on `ctid` and constants alone,
    /// or if it is too long.
    pub(super) fn of(condition: &Expr) -> Option<Self> {
        match condition {
            Expr::BinaryExpr(binary) => match binary.op {
                Operator::And => Some(Self::of(&binary.left)?.and(&Self::of(&binary.right)?)),
                Operator::Or => Self::any(vec![Self::of(&binary.left)?, Self::of(&binary.right)?]),
                op => match (is_ctid(&binary.left), is_ctid(&binary.right)) {
                    (true, false) => Self::compared(op, &binary.right),
                    (false, true) => Self::compared(op.swap()?, &binary.left),
                    _ => None,
                },
            },
            Expr::Between(between) if !between.negated && is_ctid(&between.expr) => {
                let lower = Self::compared(Operator::GtEq, &between.low)?;
                Some(lower.and(&Self::compared(Operator::LtEq, &between.high)?))
            }
            Expr::InList(list) if !list.negated && is_ctid(&list.expr) => {
                Self::any(list.list.iter().map(|place| Self::compared(Operator::Eq, place)).collect::<Option<_>>()?)
            }
            _ => None,
        }
    }

    /// The places that compare so with a constant; none with NULL.
    fn compared(op: Operator, constant: &Expr) -> Option<Self> {
        use Operator::{Eq, Gt, GtEq, Lt, LtEq};
        let Expr::Literal(ScalarValue::FixedSizeBinary(PLACE_BYTES, place), _) = constant else { return None };
        // Others may be true with NULL: IS DISTINCT FROM is.
        if !matches!(op, Eq | Lt | LtEq | Gt | GtEq) {
            return None;
        }
        let Some(place) = place else { return Some(Self { ranges: Vec::new() }) };
        let &[a, b, c, d, e, f] = &place[..] else { return None };
        let (page, in_page) = (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]));
        let from = first_from(page, in_page);
        let behind = if in_page == u16::MAX { first_from(page, in_page) } else { first_from(page, in_page + 1) };
        let range = match op {
            Eq => from..behind,
            Lt => 0..from,
            LtEq => 0..behind,
            Gt => behind..END,
            GtEq => from..END,
            _ => return None,
        };
        Some(Self { ranges: Some(range).filter(|range| !range.is_empty()).into_iter().collect() })
    }

    /// The places that one of the conditions allows; `None` if they are too many ranges.
    fn any(all: Vec<Self>) -> Option<Self> {
        let mut given: Vec<Range<u64>> = all.into_iter().flat_map(|places| places.ranges).collect();
        given.sort_unstable_by_key(|range| range.start);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for range in given {
            match ranges.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => ranges.push(range),
            }
        }
        (ranges.len() <= MOST_RANGES).then_some(Self { ranges })
    }

    /// The places that both allow.
    pub(super) fn and(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.ranges.iter().peekable(), other.ranges.iter().peekable());
        let mut ranges = Vec::new();
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            let both = a.start.max(b.start)..a.end.min(b.end);
            if !both.is_empty() {
                ranges.push(both);
            }
            let _ = if a.end < b.end { left.next() } else { right.next() };
        }
        Self { ranges }
    }

    /// The ranges that have places of a block, and what they have of it, as slots.
    fn within(&self, block: BlockNo) -> impl Iterator<Item = Range<u32>> {
        let (start, end) = (number_of(block, Slot(0)), number_of(BlockNo(block.0 + 1), Slot(0)));
        let first = self.ranges.partition_point(|range| range.end <= start);
        let ranges = self.ranges[first..].iter().take_while(move |range| range.start < end);
        ranges.map(move |range| (range.start.max(start) - start) as u32..(range.end.min(end) - start) as u32)
    }

    /// Whether they have none of a block.
    pub(super) fn skips(&self, block: BlockNo) -> bool {
        self.within(block).next().is_none()
    }

    /// Whether a row lies in one of them.
    pub(super) fn has(&self, row: RowId) -> bool {
        self.within(row.block()).any(|slots| slots.contains(&row.slot().0))
    }

    /// The slots of a block that lie in them.
    pub(super) fn narrow(&self, block: BlockNo, slots: &Selection) -> Selection {
        if self.within(block).next() == Some(0..MAX_SLOTS_PER_BLOCK) {
            return slots.clone();
        }
        let kept = self.within(block).flat_map(|range| match slots {
            Selection::All(count) => (range.start..range.end.min(*count)).collect::<Vec<_>>(),
            Selection::Positions(slots) => {
                let from = slots.partition_point(|slot| *slot < range.start);
                slots[from..].iter().copied().take_while(|slot| *slot < range.end).collect()
            }
        });
        Selection::Positions(kept.collect())
    }

    /// The blocks from the first to the last of a table's that they have places of.
    pub(super) fn blocks(&self, count: u32) -> Range<u32> {
        let (Some(first), Some(last)) = (self.ranges.first(), self.ranges.last()) else { return 0..0 };
        let block = |place: u64| (place / u64::from(MAX_SLOTS_PER_BLOCK)).min(count.into()) as u32;
        block(first.start)..block(last.end - 1).saturating_add(1).min(count)
    }

    /// The share of a table of so many blocks that they have.
    pub(super) fn share(&self, count: u32) -> f64 {
        let all = number_of(BlockNo(count), Slot(0));
        let own: u64 = self.ranges.iter().map(|range| range.end.min(all).saturating_sub(range.start)).sum();
        if all == 0 { 1.0 } else { own as f64 / all as f64 }
    }
}

fn is_ctid(expr: &Expr) -> bool {
    matches!(expr, Expr::Column(column) if column.name == CTID_COLUMN)
}

/// As conditions on places: `(0,1)..(10,1)`, with the end left out.
impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The ranges that are shown.
        const SHOWN: usize = 4;
        let rows = u64::from(ROWS_PER_PAGE);
        for (at, range) in self.ranges.iter().take(SHOWN).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}({},{})..", range.start / rows, range.start % rows + 1)?;
            if range.end < END {
                write!(f, "({},{})", range.end / rows, range.end % rows + 1)?;
            }
        }
        if self.ranges.len() > SHOWN { write!(f, ", … of {}", self.ranges.len()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::AsArray;
    use datafusion::logical_expr::{binary_expr, col, lit};

    fn place(page: u32, in_page: u16) -> Expr {
        let bytes = [&page.to_be_bytes()[..], &in_page.to_be_bytes()].concat();
        lit(ScalarValue::FixedSizeBinary(PLACE_BYTES, Some(bytes)))
    }

    fn rows(condition: &Expr) -> Vec<(u32, u32)> {
        let places = Places::of(condition).unwrap();
        let all = (0..3).flat_map(|block| (0..MAX_SLOTS_PER_BLOCK).map(move |slot| (block, slot)));
        let found: Vec<_> = all.filter(|(block, slot)| places.has(RowId::new(BlockNo(*block), Slot(*slot)))).collect();
        let narrowed = (0..3).flat_map(|block| {
            let Selection::Positions(slots) =
                places.narrow(BlockNo(block), &Selection::Positions((0..MAX_SLOTS_PER_BLOCK).collect()))
            else {
                panic!("positions stay positions")
            };
            slots.into_iter().map(move |slot| (block, slot))
        });
        assert_eq!(narrowed.collect::<Vec<_>>(), found);
        let blocks = places.blocks(3);
        assert!(found.iter().all(|(block, _)| blocks.contains(block) && !places.skips(BlockNo(*block))));
        found
    }

    /// The rows that a condition allows are those whose places satisfy it.
    #[test]
    fn conditions_are_ranges_of_rows() {
        let column = || col(CTID_COLUMN);
        let all: Vec<u64> = (0..3)
            .flat_map(|block| (0..MAX_SLOTS_PER_BLOCK).map(move |slot| RowId::new(BlockNo(block), Slot(slot)).as_u64()))
            .collect();
        let places = places_of(&all).unwrap();
        let places = places.as_fixed_size_binary();
        for (page, in_page) in
            [(0, 0), (0, 1), (0, 512), (0, 513), (0, 65_535), (1, 0), (127, 512), (128, 0), (300, 7), (u32::MAX, 1)]
        {
            let bytes = [&u32::to_be_bytes(page)[..], &u16::to_be_bytes(in_page)].concat();
            let such = |is_such: &dyn Fn(&[u8]) -> bool| -> Vec<(u32, u32)> {
                let found = (0..all.len()).filter(|at| is_such(places.value(*at)));
                found.map(|at| RowId::from_u64(all[at])).map(|row| (row.block().0, row.slot().0)).collect()
            };
            assert_eq!(rows(&column().lt(place(page, in_page))), such(&|other| other < &bytes[..]));
            assert_eq!(rows(&column().lt_eq(place(page, in_page))), such(&|other| other <= &bytes[..]));
            assert_eq!(rows(&column().gt(place(page, in_page))), such(&|other| other > &bytes[..]));
            assert_eq!(rows(&place(page, in_page).lt_eq(column())), such(&|other| other >= &bytes[..]));
            assert_eq!(rows(&column().eq(place(page, in_page))), such(&|other| other == &bytes[..]));
        }
    }

    #[test]
    fn conditions_are_combined() {
        let column = || col(CTID_COLUMN);
        let part = column().between(place(1, 0), place(2, 0)).and(column().lt(place(1, 3)));
        assert_eq!(rows(&part), [(0, 512), (0, 513)]);
        let listed = column().in_list(vec![place(128, 1), place(0, 2), place(0, 2), place(0, 3), place(0, 0)], false);
        assert_eq!(rows(&listed), [(0, 1), (0, 2), (1, 0)]);
        assert_eq!(Places::of(&listed).unwrap().to_string(), "(0,2)..(0,4), (128,1)..(128,2)");
        let either = column().eq(place(0, 1)).or(column().gt_eq(place(383, 512)));
        assert_eq!(rows(&either), [(0, 0), (2, 65_535)]);
        let null = lit(ScalarValue::FixedSizeBinary(PLACE_BYTES, None));
        assert!(rows(&column().eq(null.clone())).is_empty());
        let compared = |op, other: &Expr| binary_expr(column(), op, other.clone());
        let distinct = |other: &Expr| compared(Operator::IsDistinctFrom, other);
        let same = |other: &Expr| compared(Operator::IsNotDistinctFrom, other);
        for other in [
            column().not_eq(place(0, 1)),
            column().eq(column()),
            col("a").eq(place(0, 1)),
            distinct(&null),
            distinct(&place(0, 1)),
            same(&null),
            same(&place(0, 1)),
        ] {
            assert_eq!(Places::of(&other.clone().and(column().lt(place(1, 1)))), None, "{other}");
        }
    }

    #[test]
    fn shares_are_of_the_table() {
        let column = || col(CTID_COLUMN);
        let half = Places::of(&column().lt(place(PAGES_PER_BLOCK, 0))).unwrap();
        assert_eq!((half.share(2), half.share(0), half.blocks(2), half.blocks(0)), (0.5, 1.0, 0..1, 0..0));
        let last = Places::of(&column().gt_eq(place(PAGES_PER_BLOCK, 0))).unwrap();
        assert_eq!((last.share(2), last.blocks(2), last.blocks(1)), (0.5, 1..2, 1..1));
    }
}
