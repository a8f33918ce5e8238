//! The storage and transaction core of SeracDB: relaxed Arrow blocks under multi-version
//! concurrency control.
//!
//! It knows Arrow's memory format, row ids, timestamps and files. It does not know SQL, constraints
//! or index keys.
//!
//! | module | concept (Mainlining Databases) |
//! |---|---|
//! | [`ids`] | `RowId`, `BlockNo`, `Slot`, `Timestamp` (§3.2) |
//! | [`types`], [`value`] | column types, their Arrow types and physical widths; one value |
//! | [`block`] | PAX blocks of 1 MiB, their layout, varlen views and heap chunks (§3.2, §4.1) |
//! | [`version::undo`] | before-images in segments that never move (§3.1) |
//! | [`version::chain`] | heads of version chains: install, walk, cut (§3.1) |
//! | [`version::transaction`] | timestamps, snapshots, commit and abort protocols (§3.1) |
//! | [`version::waits`] | waits for the ends of transactions, their order, deadlocks |
//! | [`version::gc`] | unlink, then free; deferred actions (§3.3) |
//! | [`table::data_table`], [`table::scan`] | insert, update, delete, read, block scans |
//! | `table::order` | blocks whose values ascend, and ranges of values in them |
//! | [`freeze`], [`freeze::frozen`] | hot, cooling, freezing, frozen; gather (§4.1 to §4.4) |
//! | [`freeze::compact`] | rows of cold blocks move together (§4.3) |
//! | `freeze::background` | threads that give way to those of clients |
//! | [`durability::wal`] | redo records, group commit, log segments (§3.4) |
//! | [`durability::checkpoint`], [`durability::data_file`] | Arrow files, the manifest, recovery (§3.4) |
//! | [`durability::storage`] | all of the above behind one handle that a database opens |
//!
//! Blocks, versions, tables and freezing are parts of one protocol, whose steps their headers
//! describe. A block has the heads of version chains, a version names its table, and a table has
//! blocks: so these stand on one floor. A module uses those of its own line and of the lines before
//! it.
//!
//! | modules | what |
//! |---|---|
//! | `block::{atomic_copy, block_memory, cell, column_orders, heap, layout, view}` `durability::{file_system, mapping}` `error` `freeze::{background, temperature}` `freeze::frozen::{column, format, packed, strings, zone}` `ids` `table::{column_form, column_values}` `types` `uptime` `value` `version::{blocker, clock, wait_queues}` | what blocks, versions and files are made of |
//! | `durability::{redo, salvage, wal}` | the log |
//! | `block` `durability::data_file` `freeze::{frozen, vacuum}` `table` `version` | blocks, versions, tables and transactions |
//! | `freeze` `table::{order, scan}` `version::waits` | scans, freezing, waits |
//! | `durability` | checkpoints and recovery |
#![warn(missing_docs)]

pub mod block;
pub mod durability;
pub mod error;
pub mod freeze;
pub mod ids;
pub mod table;
pub mod types;
mod uptime;
pub mod value;
pub mod version;

pub use durability::mapping::{MappedFile, mapped_file};
pub use durability::storage::{RecoveryCatalog, RecoveryReport, Storage, StorageOptions};
pub use durability::wal::Durability;
pub use error::{Result, StorageError};
pub use freeze::compact::selection::CompactionGroups;
pub use freeze::frozen::{ColumnDictionary, Comparison, FreezeFormat, Zone, with_offsets};
pub use ids::{
    BlockNo, ColumnId, MAX_BLOCKS_PER_TABLE, MAX_SLOTS_PER_BLOCK, RowId, SLOT_BITS, Slot, TableId, Timestamp,
};
pub use table::column_form::{ColumnForm, ScanColumn, Selection};
pub use table::data_table::{DataTable, LatestState};
pub use table::row_buffer::RowBuffer;
pub use table::row_pins::RowPin;
pub use table::scan::{BlockReadStats, BlockReader};
pub use types::{ColumnSchema, ColumnType, TableSchema, marked};
pub use value::{FromValue, Value};
pub use version::blocker::{Blocker, Waiting};
pub use version::transaction::{CommitTicket, Savepoint, Snapshot, Transaction};
pub use version::waits::Turn;

/// Pins the calling thread: memory that its operations may reach is not freed while the guard
/// lives. Each operation pins for itself; a pin around several operations saves each of them a
/// fence. The guard must not be held for long, because nothing is freed meanwhile.
pub fn pin() -> serac_sync::epoch::Guard {
    serac_sync::epoch::pin()
}
