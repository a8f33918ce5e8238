//! Durability: log, data files, checkpoints, recovery, and the handle over all.

pub mod checkpoint;
pub mod data_file;
pub mod file_system;
pub(crate) mod mapping;
pub(crate) mod redo;
pub(crate) mod salvage;
pub mod storage;
pub mod wal;
