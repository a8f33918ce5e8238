//! The files of the log, and places in it.

use super::frame::{Place, SEGMENT_HEADER_BYTES};
use crate::durability::file_system::FileSystem;
use crate::error::{Result, StorageError};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A checkpoint's position in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogPosition {
    /// The first segment that is needed.
    pub segment: u64,
    /// Sequence number of the first frame in it.
    pub sequence: u64,
    /// The newest sequence number that was durable. One before `sequence`: the segment need not be
    /// there.
    pub durable: u64,
}

impl LogPosition {
    /// The beginning of a new database's log.
    pub const BEGINNING: Self = Self { segment: 1, sequence: 1, durable: 0 };
}

impl Default for LogPosition {
    fn default() -> Self {
        Self::BEGINNING
    }
}

/// The path of a segment.
pub(super) fn segment_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:010}.wal"))
}

/// The numbers of the segments in `directory`, ascending.
pub(super) fn segment_numbers(directory: &Path, files: &dyn FileSystem) -> Result<Vec<u64>> {
    let names =
        files.list(directory).map_err(|e| StorageError::io(format!("cannot read {}", directory.display()), e))?;
    let number = |name: String| name.strip_suffix(".wal")?.parse().ok();
    let mut numbers: Vec<u64> = names.into_iter().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Removes the segments before number `first`, for good.
///
/// # Errors
/// When files cannot be removed; those that are left are removed the next time.
pub(crate) fn remove_segments_before(directory: &Path, first: u64, files: &dyn FileSystem) -> Result<()> {
    let unneeded: Vec<u64> = segment_numbers(directory, files)?.into_iter().filter(|&number| number < first).collect();
    if unneeded.is_empty() {
        return Ok(());
    }
    for number in unneeded {
        let path = segment_path(directory, number);
        files
            .remove(&path)
            .map_err(|e| StorageError::io(format!("cannot remove log segment {}", path.display()), e))?;
    }
    files.sync_dir(directory).map_err(|e| StorageError::io(format!("cannot sync {}", directory.display()), e))
}

/// A place behind a segment's header.
pub(super) const fn first_place(segment: u64) -> Place {
    Place { segment, offset: SEGMENT_HEADER_BYTES as u64 }
}
