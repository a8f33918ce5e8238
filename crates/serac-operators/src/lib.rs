//! Column-at-a-time operators over the columns of a block (column-store report). SQL scans filter with these kernels.
#![warn(missing_docs)]

pub mod key_set;
pub mod select;
