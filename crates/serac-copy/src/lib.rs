//! The formats of COPY: CSV, PostgreSQL's text and binary formats, Parquet, Arrow IPC; files and
//! streams. Queries read files in the same formats, and in JSON.
//!
//! [`Source`] reads, on a thread of its own, and gives [`Rows`]. [`Sink`] writes to a stream,
//! [`FileSink`] to a file. [`ArrowMessages`] are Arrow's messages from outside, read without trust.
#![warn(missing_docs)]

mod arrival;
mod arrow_messages;
mod binary;
mod csv;
mod file;
mod json;
mod line_end;
mod options;
mod progress;
mod rows;
mod sink;
mod source;
mod text;
mod writer;

pub use arrival::{COPY_PATIENCE, CopyInput, SteadyInput};
pub use arrow_messages::{ArrowMessage, ArrowMessages, ArrowStream};
pub use csv::{SampleField, csv_sample};
pub use file::{FileSink, KnownFile, open_regular};
pub use json::{JsonDocuments, json_members};
pub use options::{ForceQuote, Format, Nulls, Options, Quotes};
pub use progress::CopyProgress;
pub use rows::{Rows, at_place, first_failing, in_file};
pub use sink::Sink;
pub use source::{Input, Source, file_schema};
