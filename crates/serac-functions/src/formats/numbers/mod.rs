//! Numbers by patterns, such as `FM999,990.00`: to_char and to_number.
//!
//! Signs, the decimal point and the separator of thousands are those of the locale C. `D` is `.`,
//! `G` is `,`, and `L`, the currency, is a blank.

mod digits;
mod pattern;
mod read;
mod write;

pub(super) use digits::Number;
pub(super) use pattern::NumberPattern;
pub(super) use read::read;
pub(super) use write::write;
