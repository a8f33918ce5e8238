//! Reads the log back and judges its end.
//!
//! Frames are read in order until one is missing or invalid. What follows decides what that means. If a later frame is valid and says
//! that the missing one had been synced when it was written, something durable was lost: the log is *corrupt* and the database does not
//! open (unless told to salvage what lies before). Otherwise the missing frame was on its way to the disk when the process or the machine
//! died, nobody was told that it was durable, and the *torn tail* is cut.

use super::frame::{Frame, SEGMENT_HEADER_BYTES, is_segment_header, read_frame};
use crate::error::{Result, StorageError};
use std::path::{Path, PathBuf};

/// The segments of a log, in memory.
pub struct LogFiles {
    segments: Vec<(u64, PathBuf, Vec<u8>)>,
}

impl LogEnd {
    /// The number that the next segment gets, once a torn tail is cut.
    pub fn next_segment(&self) -> u64 {
        match self.torn {
            Some((number, 0, _)) => number.max(1),
            Some((number, ..)) => number + 1,
            None => self.last_segment + 1,
        }
    }
}

/// Where a log ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// Sequence number of the last good frame.
    pub last_sequence: u64,
    /// Number of the newest segment (zero: none).
    pub last_segment: u64,
    /// Where to cut: segment number and offset (zero: the whole segment goes), and how many bytes of unfinished frames lie there.
    pub torn: Option<(u64, u64, u64)>,
}

impl LogFiles {
    /// Reads the segments in `directory`.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn read(directory: &Path) -> Result<Self> {
        let listing = std::fs::read_dir(directory)
            .map_err(|e| StorageError::io(format!("cannot read {}", directory.display()), e))?;
        let mut segments = Vec::new();
        for entry in listing {
            let path = entry.map_err(|e| StorageError::io(format!("cannot read {}", directory.display()), e))?.path();
            let number = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".wal"));
            if let Some(number) = number.and_then(|n| n.parse().ok()) {
                let bytes =
                    std::fs::read(&path).map_err(|e| StorageError::io(format!("cannot read {}", path.display()), e))?;
                segments.push((number, path, bytes));
            }
        }
        segments.sort_by_key(|s| s.0);
        Ok(Self { segments })
    }

    /// The segments' numbers, ascending.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.segments.iter().map(|s| s.0)
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|s| s.2.len() as u64).sum()
    }

    /// Hands the good frames to `each`, with their segment's number, and judges the end.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] when something durable is damaged and `salvage` is off; whatever `each` returns.
    pub fn frames<'a>(&'a self, salvage: bool, mut each: impl FnMut(u64, Frame<'a>) -> Result<()>) -> Result<LogEnd> {
        let mut end = LogEnd { last_sequence: 0, last_segment: self.segments.last().map_or(0, |s| s.0), torn: None };
        let mut expected: Option<u64> = None;
        for (i, (number, path, bytes)) in self.segments.iter().enumerate() {
            let follows = i == 0 || self.segments[i - 1].0 + 1 == *number;
            let mut at = SEGMENT_HEADER_BYTES;
            let broken = !follows || !is_segment_header(bytes, *number);
            while let Some((frame, length)) = (!broken).then(|| bytes.get(at..).and_then(read_frame)).flatten() {
                if expected.is_some_and(|e| frame.sequence != e) {
                    break;
                }
                expected = Some(frame.sequence + 1);
                end.last_sequence = frame.sequence;
                each(*number, frame)?;
                at += length;
            }
            if !broken && bytes[at.min(bytes.len())..].iter().all(|&b| b == 0) {
                continue; // the unused rest of a segment
            }
            let missing = expected.unwrap_or(1);
            if let Some(detail) = self.later_witness(i, at, missing)
                && !salvage
            {
                return Err(StorageError::Corrupt { file: path.clone(), offset: at as u64, detail });
            }
            let lost = bytes[at.min(bytes.len())..].iter().filter(|&&b| b != 0).count() as u64
                + self.segments[i + 1..]
                    .iter()
                    .map(|s| s.2[SEGMENT_HEADER_BYTES.min(s.2.len())..].iter().filter(|&&b| b != 0).count() as u64)
                    .sum::<u64>();
            end.torn = Some((*number, if broken { 0 } else { at as u64 }, lost));
            return Ok(end);
        }
        Ok(end)
    }

    /// Whether a valid frame from segment index `from` and offset `at` on says that frame `missing` was durable.
    fn later_witness(&self, from: usize, at: usize, missing: u64) -> Option<String> {
        for (i, (number, _, bytes)) in self.segments.iter().enumerate().skip(from) {
            let mut at = if i == from { at } else { SEGMENT_HEADER_BYTES };
            while at + 8 < bytes.len() {
                if let Some((frame, length)) = read_frame(&bytes[at..]) {
                    if frame.sequence > missing && frame.synced >= missing {
                        return Some(format!(
                            "record {missing} is missing or damaged, but record {} in segment {number} was written after it was durable",
                            frame.sequence
                        ));
                    }
                    at += length;
                } else {
                    at += 8;
                }
            }
        }
        None
    }

    /// Cuts a torn tail off the files.
    ///
    /// # Errors
    /// When a file cannot be changed.
    pub fn cut(&self, torn: (u64, u64, u64), files: &dyn crate::file_system::FileSystem) -> Result<()> {
        for (number, path, _) in &self.segments {
            let cut = |result: std::io::Result<()>| {
                result.map_err(|e| StorageError::io(format!("cannot cut the torn tail off {}", path.display()), e))
            };
            if *number > torn.0 || (*number == torn.0 && torn.1 == 0) {
                cut(files.remove(path))?;
            } else if *number == torn.0 {
                cut(files.open(path).and_then(|file| {
                    file.set_len(torn.1)?;
                    file.sync()
                }))?;
            }
        }
        Ok(())
    }

    /// Makes the kept segments durable: the next records say that everything before them is.
    ///
    /// # Errors
    /// When a file cannot be synced.
    pub fn sync(
        &self,
        directory: &Path,
        kept: impl Iterator<Item = u64>,
        files: &dyn crate::file_system::FileSystem,
    ) -> Result<()> {
        let kept: Vec<u64> = kept.collect();
        for (_, path, _) in self.segments.iter().filter(|(number, ..)| kept.contains(number)) {
            files
                .open(path)
                .and_then(|file| file.sync())
                .map_err(|e| StorageError::io(format!("cannot sync {}", path.display()), e))?;
        }
        files.sync_dir(directory).map_err(|e| StorageError::io(format!("cannot sync {}", directory.display()), e))
    }
}
