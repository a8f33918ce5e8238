//! Files by name as relations of queries: CSV, JSON, Parquet and Arrow IPC; and frames of Arrow
//! that the program lends.
//!
//! | module | what |
//! |---|---|
//! | `request` | what a query asks for: files, format, options |
//! | `pattern` | the files that a pattern names |
//! | `value_type` | which SQL type a column of a file has, and its values as such |
//! | `guess` | types of columns from samples of texts |
//! | `csv`, `json` | what a sample tells about a file of texts |
//! | `found` | files, their columns, and where each column is in each file |
//! | `open` | from a request to these |
//! | `text_scan` | the operator that reads CSV, JSON and Arrow IPC |
//! | `parquet` | Parquet for DataFusion's operator, and the operator that gives values SQL types |
//! | `table` | the relation, for DataFusion |
//! | `frame` | the same of a frame of the program |
//! | `narrow` | slices of its columns, counted as what they are |
//!
//! [`FileTable::open`] looks at the files when a statement is planned: the columns and their types
//! are those of that moment. A file is read as it was then ([`serac_copy::KnownFile`]), or the
//! statement ends with 55000.
//!
//! **Bounds.** A sample is at most `SAMPLE_BYTES` long, a pattern visits a bounded number of
//! names, and a statement reads a bounded number of files. Looking asks the caller again and again
//! whether anybody still waits. Rows come in batches of bounded size, on threads that end when
//! nobody takes them.
#![warn(missing_docs)]

mod csv;
mod found;
mod frame;
mod guess;
mod json;
mod narrow;
mod open;
mod parquet;
mod pattern;
mod request;
mod table;
mod text_scan;
mod value_type;

pub use frame::{Frame, FrameProvider, FrameRows, FrameTable, is_frame_scan};
pub use request::{Assign, FileFormat, FileRequest, Given};
pub use table::{FileTable, is_file_scan};
pub use value_type::ValueType;
