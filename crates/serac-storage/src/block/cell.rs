//! A cell: what a block has of one row in one column.

/// The raw content of one column of one row: a null flag and up to 16 bytes, zero-extended. A torn
/// cell is possible: see [`crate::block`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// Whether the value is NULL (then `bits` has no meaning).
    pub null: bool,
    /// The value's bytes, little-endian; of a variable-length value its view.
    pub bits: u128,
}

impl Cell {
    /// NULL.
    pub const NULL: Self = Self { null: true, bits: 0 };
}
