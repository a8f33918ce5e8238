//! Tables of blocks: rows in and out, one at a time and block by block.

pub mod append;
pub mod column_form;
pub(crate) mod column_values;
pub mod data_table;
pub(crate) mod order;
pub mod row_buffer;
pub(crate) mod row_pins;
pub mod scan;
