//! Column-at-a-time operators over the columns of a block (column-store report). SQL scans filter
//! and aggregate with these kernels.
#![warn(missing_docs)]

pub mod aggregate;
pub mod arithmetic;
pub mod integer_rows;
pub mod integers;
pub mod join;
pub mod key_set;
pub mod multiselect;
pub mod range_words;
pub mod row_order;
pub mod segments;
pub mod select;
pub mod selection;
mod shared_bits;
mod simd;
pub mod tasks;
