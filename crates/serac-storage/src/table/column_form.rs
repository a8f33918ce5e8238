//! What is wanted of a block: columns, each in a form, of a choice of slots.

use crate::ids::ColumnId;

/// The wanted form of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ColumnForm {
    /// The column's Arrow type.
    Arrow,
    /// The unscaled values of a DECIMAL of at most 18 digits, as 64-bit integers.
    Scaled64,
    /// The block's own form. A DECIMAL of at most 18 digits is Arrow's Decimal64. Values of
    /// variable length are views or, in a frozen block that has them so, offsets (Utf8, Binary) or
    /// a dictionary with 16-bit codes.
    Stored,
}

/// A column of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ScanColumn {
    /// The column.
    pub id: ColumnId,
    /// The form.
    pub form: ColumnForm,
}

impl ScanColumn {
    /// The column in its Arrow type.
    pub const fn arrow(id: ColumnId) -> Self {
        Self { id, form: ColumnForm::Arrow }
    }
}

/// Slots of a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selection {
    /// Slots 0 to n − 1.
    All(u32),
    /// These slots, ascending.
    Positions(Vec<u32>),
}

impl Selection {
    /// The number of slots.
    pub fn len(&self) -> usize {
        match self {
            Self::All(n) => *n as usize,
            Self::Positions(positions) => positions.len(),
        }
    }

    /// Whether no slot is selected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `count` slots of the selection, or all if there are fewer.
    #[must_use]
    pub fn first(self, count: usize) -> Self {
        match self {
            Self::All(n) => Self::All(n.min(u32::try_from(count).unwrap_or(u32::MAX))),
            Self::Positions(mut slots) => {
                slots.truncate(count);
                Self::Positions(slots)
            }
        }
    }

    /// The selected slots at `positions` of the selection.
    pub fn narrow(&self, positions: &[u32]) -> Self {
        Self::Positions(match self {
            Self::All(_) => positions.to_vec(),
            Self::Positions(slots) => positions.iter().map(|&at| slots[at as usize]).collect(),
        })
    }
}
