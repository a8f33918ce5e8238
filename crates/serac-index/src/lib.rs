//! Indexes over row ids. They know keys, row ids and (for CUBIT, a later room beside [`ordered`]) timestamps and bitmaps; no tables.
#![warn(missing_docs)]

pub mod ordered;
