//! The storage and transaction core of SeracDB: relaxed Arrow blocks under multi-version concurrency control.
//!
//! What it knows: Arrow's memory format, row ids, timestamps, files. What it does not know: SQL, constraints, index keys.
//!
//! | module | concept (Mainlining Databases) |
//! |---|---|
//! | [`ids`] | `RowId`, `BlockNo`, `Slot`, `Timestamp` (§3.2) |
//! | [`types`] | column types, their Arrow types and their physical widths |
//! | [`layout`], [`block`], `block_memory`, [`heap`], [`block_table`] | PAX blocks of 1 MiB, varlen views and heap chunks (§3.2, §4.1) |
//! | [`undo`] | before-images in segments that never move (§3.1) |
//! | [`transaction`] | timestamps, snapshots, commit and abort protocols (§3.1) |
//! | [`waits`] | who waits for whose end, and in which order; deadlocks |
//! | [`data_table`], [`scan`] | the Data Table API: insert, update, delete, read, block scans |
//! | `version_column`, `racy` | the heads of version chains; copies beside writers |
//! | `append` | bulk loads from Arrow arrays |
//! | `order` | blocks whose values ascend, and ranges of values in them |
//! | `row_pins` | row ids that are kept beyond their snapshot |
//! | `vacuum` | garbage in the heaps of hot blocks |
//! | [`compact`] | rows of cold blocks move together (§4.3) |
//! | [`freeze`], `temperature`, [`frozen`] | hot, cooling, freezing, frozen; gather into a target format (§4.1 to §4.4) |
//! | `background` | threads that give way to those of clients |
//! | [`gc`] | unlink, then free; deferred actions (§3.3) |
//! | [`wal`] | redo records, group commit, log segments (§3.4) |
//! | [`checkpoint`], [`data_file`], `mapping` | Arrow files of blocks, written once and mapped; the manifest; recovery (§3.4) |
//! | `salvage` | what becomes of damaged files when a database is salvaged |
//! | [`file_system`] | the one trait through which files are reached; tests put a disk with faults behind it |
//! | [`storage`] | all of the above behind one handle that a database opens |
#![warn(missing_docs)]

pub mod append;
mod background;
pub mod block;
mod block_memory;
pub mod block_table;
pub mod checkpoint;
mod column_values;
pub mod compact;
pub mod data_file;
pub mod data_table;
pub mod error;
pub mod file_system;
pub mod freeze;
pub mod frozen;
pub mod gc;
pub mod heap;
pub mod ids;
pub mod layout;
mod mapping;
mod order;
mod racy;
mod redo;
pub mod row_buffer;
mod row_pins;
mod salvage;
pub mod scan;
pub mod storage;
mod temperature;
pub mod transaction;
pub mod types;
pub mod undo;
mod vacuum;
pub mod value;
mod version_column;
pub mod waits;
pub mod wal;

pub use compact::selection::CompactionGroups;
pub use data_table::{DataTable, LatestState};
pub use error::{Result, StorageError};
pub use frozen::{ColumnDictionary, FreezeFormat, Zone, with_offsets};
pub use ids::{BlockNo, ColumnId, MAX_BLOCKS_PER_TABLE, RowId, SLOT_BITS, Slot, TableId, Timestamp};
pub use mapping::{MappedFile, mapped_file};
pub use row_buffer::RowBuffer;
pub use row_pins::RowPin;
pub use scan::{BlockReadStats, BlockReader, ColumnForm, ScanColumn, Selection};
pub use storage::{RecoveryCatalog, RecoveryReport, Storage, StorageOptions};
pub use transaction::{CommitTicket, Savepoint, Snapshot, Transaction};
pub use types::{ColumnSchema, ColumnType, TableSchema, marked};
pub use value::{FromValue, Value};
pub use waits::{Blocker, Turn, Waiting};
pub use wal::Durability;

/// Keeps what operations of the calling thread may reach from being freed, as each of them does for itself. Around several of them, it saves each a fence; it must not
/// be held for long, because nothing is freed meanwhile.
pub fn pin() -> serac_sync::epoch::Guard {
    serac_sync::epoch::pin()
}
