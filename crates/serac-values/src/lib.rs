//! Values of PostgreSQL's types in Arrow's arrays, and errors as SQL's clients know them.
//!
//! | module | what it has |
//! |---|---|
//! | [`error`] | [`SqlError`]: SQLSTATE, message, detail, position |
//! | [`sql_terms`] | Arrow's types and DataFusion's constants as SQL writes them, in messages |
//! | [`type_names`] | PostgreSQL's types: their numbers and names |
//! | [`text_types`], [`time_range`] | which types are texts; which dates and times there are |
//! | [`wire`] | values as clients and COPY write and read them, as text and in binary form |
//! | [`arrow_input`] | columns that come as Arrow from outside |
//! | [`assignment`] | values of one type as values of another, as columns take them |
//! | [`texts_as_times`], [`texts_as_intervals`], [`time_zones`], [`hex`] | texts as values |
//! | [`free_numbers`] | NUMERICs with digits of their own on their way in and out |
//! | [`time_style`] | a session's settings of times |
//! | [`intervals`] | intervals in PostgreSQL's units |
#![warn(missing_docs)]

pub mod arrow_input;
pub mod assignment;
pub mod error;
pub mod free_numbers;
pub mod hex;
pub mod intervals;
pub mod sql_terms;
pub mod text_types;
pub mod texts_as_intervals;
pub mod texts_as_times;
pub mod time_range;
pub mod time_style;
mod time_words;
pub mod time_zones;
pub mod type_names;
pub mod wire;

pub use error::{Result, SqlError};
pub use time_style::TimeStyle;
pub use time_words::Unit;
