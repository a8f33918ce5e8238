//! The formats of COPY: CSV, PostgreSQL's text and binary formats, Parquet, Arrow IPC; files and
//! streams.
//!
//! [`Source`] reads, on a thread of its own, and gives [`Rows`]. [`Sink`] writes to a stream,
//! [`FileSink`] to a file. [`ArrowMessages`] are Arrow's messages from outside, read without trust.
#![warn(missing_docs)]

mod arrival;
mod arrow_messages;
mod binary;
mod csv;
mod file;
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
pub use file::FileSink;
pub use options::{Format, Nulls, Options, Quotes};
pub use progress::CopyProgress;
pub use rows::Rows;
pub use sink::Sink;
pub use source::{Input, Source, file_schema};
