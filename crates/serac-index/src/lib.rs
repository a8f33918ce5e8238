//! Indexes over row ids. They know keys, row ids, timestamps and bitmaps; no tables.
#![warn(missing_docs)]

pub mod cubit;
pub mod ordered;
pub mod sorting;
