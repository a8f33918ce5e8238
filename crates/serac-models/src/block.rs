//! In place of `serac_storage::block`, for undo records: the content of a cell.

/// See `serac_storage::block::Cell`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    pub null: bool,
    pub bits: u128,
}

pub mod view {
    /// See `serac_storage::block::view::ArrowView`.
    pub type ArrowView = u128;
}
