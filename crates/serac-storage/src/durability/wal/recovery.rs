//! Recovery of the log. It puts transactions together from their frames and hands them on, cuts an
//! unfinished end, and prepares the place where the next process continues.

use super::frame::{Frame, FrameKind, Place};
use super::reader::{LogEnd, LogReader, Next};
use super::segments::{LogPosition, first_place, remove_segments_before, segment_path};
use crate::durability::file_system::FileSystem;
use crate::durability::salvage::Aside;
use crate::error::{Result, StorageError};
use crate::ids::Timestamp;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// From where the log is needed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogStart {
    /// From where the manifest says.
    At(LogPosition),
    /// There is no manifest: all of the log is wanted, also transactions that the data files may
    /// have.
    Anywhere,
}

/// The settings of a recovery.
pub(crate) struct LogRecovery<'a> {
    /// Folder of the segments.
    pub(crate) directory: &'a Path,
    /// Files.
    pub(crate) files: &'a dyn FileSystem,
    /// From where it is needed.
    pub(crate) start: LogStart,
    /// Transactions committed up to here are in the checkpoint.
    pub(crate) checkpoint_ts: Timestamp,
}

/// The result of recovery.
#[derive(Debug)]
pub(crate) struct RecoveredLog {
    /// The newest commit.
    pub(crate) newest: Timestamp,
    /// Transactions handed on.
    pub(crate) transactions: u64,
    /// Bytes read.
    pub(crate) bytes: u64,
    /// Commits whose first parts are missing, in words: left out if there is no manifest.
    pub(crate) lost: Vec<String>,
    /// The description of the part that was cut off.
    pub(crate) cut: Option<String>,
    /// Whether a durable part is missing.
    pub(crate) is_damaged: bool,
    /// The place where the log goes on.
    pub(crate) tail: LogTail,
}

/// The end of a log, where its next process goes on.
#[derive(Debug)]
pub(crate) struct LogTail {
    /// The segments that are there.
    pub(super) segments: Vec<TailSegment>,
    /// The number of the next segment.
    pub(super) next_segment: u64,
    /// The next frame's number.
    pub(super) next_sequence: u64,
    /// The last frame's checksum.
    pub(super) checksum: u32,
    /// Whether the last frame marks the opening of the database, and lies in the last segment.
    pub(super) is_open: bool,
}

/// A segment of an earlier process.
#[derive(Clone, Copy, Debug)]
pub(super) struct TailSegment {
    pub(super) number: u64,
    pub(super) end: u64,
    /// As in the log manager.
    pub(super) newest_commit: u64,
    /// Sequence number of its first frame.
    pub(super) first_sequence: u64,
}

impl LogTail {
    /// The position that a manifest names if a checkpoint has all that is in the log, and no
    /// process writes to it.
    pub(crate) fn position_behind(&self) -> LogPosition {
        let (segment, sequence) = (self.next_segment, self.next_sequence);
        LogPosition { segment, sequence, durable: sequence - 1 }
    }

    /// Keeps the segments as they are now. Nothing more is written to any but the last.
    pub(crate) fn keep(&self, directory: &Path, aside: &mut Aside<'_>) -> Result<()> {
        let Some((last, earlier)) = self.segments.split_last() else { return Ok(()) };
        earlier.iter().try_for_each(|segment| aside.link(&segment_path(directory, segment.number)))?;
        aside.copy(&segment_path(directory, last.number))
    }

    /// The position of all that is there.
    pub(crate) fn position(&self) -> LogPosition {
        let durable = self.next_sequence - 1;
        match self.segments.first() {
            Some(first) => LogPosition { segment: first.number, sequence: first.first_sequence, durable },
            None => self.position_behind(),
        }
    }
}

/// A transaction of which parts have been read.
#[derive(Default)]
struct Parts {
    redo: Vec<u8>,
    /// Frames read.
    count: u32,
    /// The segment in which the first one lies.
    first_segment: u64,
    /// Earlier frames have not been read.
    begins_late: bool,
}

impl Parts {
    /// Adds a frame's payload, if it is the next one.
    fn add(&mut self, segment: u64, frame: &Frame<'_>) {
        if self.count == 0 {
            self.first_segment = segment;
        }
        let offset = frame.head.redo_offset as usize;
        self.begins_late |= frame.head.part != self.count || offset > self.redo.len();
        self.redo.truncate(offset);
        self.redo.extend_from_slice(frame.payload);
        self.count += 1;
    }
}

/// Reads the log and hands commit timestamp and redo of each transaction newer than the checkpoint
/// to `replay`, in commit order. Then makes the log durable up to there. With `salvage`, damage is
/// no reason to refuse the log before it; the log behind it is kept in that folder.
///
/// # Errors
/// [`StorageError::Corrupt`] if durable data is missing or damaged; an I/O error if files cannot be
/// read or changed; the errors of `replay`.
pub(crate) fn recover(
    options: &LogRecovery<'_>,
    mut salvage: Option<&mut Aside<'_>>,
    replay: &mut dyn FnMut(Timestamp, &[u8]) -> Result<()>,
) -> Result<RecoveredLog> {
    let LogRecovery { directory, files, checkpoint_ts, .. } = *options;
    let (start, anywhere) = match options.start {
        LogStart::At(position) => (position, false),
        LogStart::Anywhere => (LogReader::new(directory, files, 0)?.first_position()?, true),
    };
    let mut lost = Vec::new();
    let reader = LogReader::new(directory, files, start.segment)?;
    let mut segments: BTreeMap<u64, TailSegment> = BTreeMap::new();
    let mut parts: HashMap<u64, Parts> = HashMap::new();
    let (mut newest, mut last_commit, mut transactions) = (checkpoint_ts, Timestamp::ZERO, 0);
    let end = reader.frames(start, |Place { segment, .. }, frame| {
        let head = &frame.head;
        let new = TailSegment { number: segment, end: 0, newest_commit: 0, first_sequence: head.sequence };
        segments.entry(segment).or_insert(new);
        match head.kind {
            FrameKind::Mark => {}
            FrameKind::Open => parts.clear(),
            FrameKind::Part => parts.entry(head.txn_no).or_default().add(segment, frame),
            FrameKind::Commit => {
                if head.commit_ts <= last_commit {
                    let (ts, last) = (head.commit_ts.0, last_commit.0);
                    return Ok(Next::Stop(format!("a commit at timestamp {ts} follows one at {last}")));
                }
                last_commit = head.commit_ts;
                newest = newest.max(head.commit_ts);
                let whole = parts.remove(&head.txn_no);
                let first_segment = whole.as_ref().map_or(segment, |parts| parts.first_segment);
                let needed = segments.get_mut(&first_segment).expect("its part was read");
                needed.newest_commit = head.commit_ts.0;
                if anywhere || head.commit_ts > checkpoint_ts {
                    let mut all = whole.unwrap_or_default();
                    let is_alone = head.part == 0 && all.count == 0;
                    if !is_alone {
                        all.add(segment, frame);
                    }
                    if !all.begins_late {
                        replay(head.commit_ts, if is_alone { frame.payload } else { &all.redo })?;
                        transactions += 1;
                        return Ok(Next::Frame);
                    }
                    let (ts, count) = (head.commit_ts.0, head.part);
                    let reason = format!("parts of the commit at timestamp {ts} are missing ({count} in all)");
                    if !anywhere {
                        return Ok(Next::Stop(reason));
                    }
                    lost.push(reason);
                }
            }
        }
        Ok(Next::Frame)
    })?;
    // A new segment without a frame gets one, which proves the frames before it.
    let ends_with_no_frame = end.segments.last().is_some_and(|last| last.end == first_place(last.number).offset);
    let mut recovered = RecoveredLog {
        newest,
        transactions,
        bytes: end.bytes,
        lost,
        cut: None,
        is_damaged: false,
        tail: LogTail {
            segments: Vec::new(),
            next_segment: end.segments.last().map_or(start.segment, |last| last.number + 1),
            next_sequence: end.next_sequence,
            checksum: end.checksum,
            is_open: end.last_kind == Some(FrameKind::Open) && !ends_with_no_frame,
        },
    };
    cut(options, salvage.as_deref_mut(), &reader, &end, &mut recovered)?;
    for read in &end.segments {
        let new = TailSegment { number: read.number, end: 0, newest_commit: 0, first_sequence: end.next_sequence };
        let segment = segments.remove(&read.number).unwrap_or(new);
        recovered.tail.segments.push(TailSegment { end: read.end, ..segment });
    }
    if salvage.is_none() {
        remove_segments_before(directory, start.segment, files)?;
    }
    make_durable(directory, files, &recovered.tail)?;
    Ok(recovered)
}

/// Cuts the bytes behind the end.
fn cut(
    options: &LogRecovery<'_>,
    mut salvage: Option<&mut Aside<'_>>,
    reader: &LogReader<'_>,
    end: &LogEnd,
    recovered: &mut RecoveredLog,
) -> Result<()> {
    let LogRecovery { directory, files, .. } = *options;
    let Some(gap) = &end.gap else { return Ok(()) };
    let Place { segment, offset } = gap.place;
    let path = segment_path(directory, segment);
    if let Some(proof) = &gap.proof {
        recovered.is_damaged = true;
        if salvage.is_none() {
            return Err(StorageError::Corrupt { file: path, offset, detail: proof.clone() });
        }
    }
    let cannot = |e| StorageError::io(format!("cannot cut the end of the log at {}", path.display()), e);
    // Before any proof goes away: if this is stopped, the next opening may take the rest for an
    // unfinished end.
    if let (Some(aside), true) = (&mut salvage, offset > 0 && gap.bytes > 0) {
        aside.copy(&path)?;
    }
    // The newest first, each for good: no segment is ever there without those before.
    let is_behind = |number: &&u64| **number > segment || **number == segment && offset == 0;
    for &number in reader.numbers().iter().rev().filter(is_behind) {
        let path = segment_path(directory, number);
        match &mut salvage {
            Some(aside) => aside.take(&path)?,
            None => files.remove(&path).map_err(cannot)?,
        }
        files.sync_dir(directory).map_err(cannot)?;
    }
    if offset > 0 {
        let file = files.open(&path).map_err(cannot)?;
        file.set_len(offset).and_then(|()| file.sync()).map_err(cannot)?;
    }
    if gap.bytes > 0 || gap.proof.is_some() {
        let (bytes, last) = (gap.bytes, end.next_sequence - 1);
        let cut = format!("{bytes} bytes of log after record {last} were cut (segment {segment}, byte {offset})");
        recovered.cut = Some(cut);
    }
    Ok(())
}

/// Syncs the recovered log. A process that was killed may have left it in the operating system's
/// cache, and the next frames say that it is durable.
fn make_durable(directory: &Path, files: &dyn FileSystem, tail: &LogTail) -> Result<()> {
    for segment in &tail.segments {
        let path = segment_path(directory, segment.number);
        files
            .open(&path)
            .and_then(|file| file.sync())
            .map_err(|e| StorageError::io(format!("cannot sync {}", path.display()), e))?;
    }
    files.sync_dir(directory).map_err(|e| StorageError::io(format!("cannot sync {}", directory.display()), e))
}
