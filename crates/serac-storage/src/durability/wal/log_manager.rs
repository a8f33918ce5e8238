//! Writes the log: commits queue up, a thread writes and syncs the queue (group commit), then
//! acknowledges.
//!
//! ```text
//! commit (in its critical section): reserve(bytes).enqueue(ts, redo)           log thread: take the queue -> write -> sync -> durable := ts
//! ```
//! `reserve` gives the frame its place in a segment whose disk space is already allocated. So a
//! full disk fails a commit *before* it is visible, and nothing after that can run out of space. A
//! failed write or sync is different: the content of the disk is unknown, so the log is *poisoned*:
//! this process acknowledges nothing any more. The same holds once the folder is not where it was
//! opened. This is checked after each sync, before the acknowledgement, and before a segment is
//! made.
//!
//! **Durable timestamps.** Timestamps are given under the commit latch, and each comes here, under
//! the log's latch, in its order: with a frame ([`Reservation::enqueue`]) or without (`skip`). So
//! all commits that are older than the oldest one that waits or is being written are durable. If
//! none waits, all commits up to the newest timestamp are durable. Frames of parts have no
//! timestamp and delay no commit.
//!
//! **The end.** Once the log is closed, it takes no frame any more; its queue is written, and then
//! its thread ends. So a commit beside the close is refused, or written and acknowledged.

use super::frame::{
    FrameHead, FrameKind, LARGEST_PAYLOAD, Place, SEGMENT_HEADER_BYTES, frame_bytes, segment_header, write_frame,
};
use super::recovery::LogTail;
use super::segments::{LogPosition, remove_segments_before, segment_path};
use crate::durability::file_system::{FileSystem, FolderGuard, StorageFile, is_disk_full};
use crate::durability::redo::{Pending, RedoBuffer};
use crate::error::{Result, StorageError};
use crate::freeze::background;
use crate::ids::Timestamp;
use serac_sync::atomic::{AtomicU64, Ordering};
use serac_sync::thread::JoinHandle;
use serac_sync::time::{Duration, Instant};
use serac_sync::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

/// The point at which a commit is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// Once its log is on the disk.
    #[default]
    Full,
    /// At once; the log follows within about 10 ms (`RELAXED_INTERVAL`). A crash of the machine or
    /// the process loses at most the commits of that window, and never a part of a transaction.
    Relaxed,
    /// At once, and no log is written: only a checkpoint or a clean close keeps the commits.
    Off,
}

/// The loss window of [`Durability::Relaxed`].
pub const RELAXED_INTERVAL: Duration = Duration::from_millis(10);

/// Payloads up to this many bytes are copied into the queue's common bytes.
const LARGEST_COMMON_PAYLOAD: u64 = 16 << 10;
/// Buffers of the log thread keep up to this many bytes.
const LARGEST_SPARE_BYTES: usize = 8 << 20;
/// Commits wait while more than this is queued: the log must not fall behind without bound.
const LARGEST_QUEUE_BYTES: u64 = 64 << 20;

/// The settings of the log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Folder of the segments.
    pub directory: PathBuf,
    /// Bytes of a segment, unless one frame is longer.
    pub segment_bytes: u64,
    /// Bytes that the file of a small segment has; a longer one has a power of two times as many.
    pub allocation_bytes: u64,
    /// Redo of a running transaction that is longer goes to the log before the commit.
    pub spill_bytes: usize,
    /// The point at which commits are acknowledged.
    pub durability: Durability,
    /// Files.
    pub file_system: Arc<dyn FileSystem>,
    /// Whether the folder is still this process's own.
    pub guard: FolderGuard,
}

/// A checkpoint begins a new segment if the present one has more than this many times the bytes of
/// the smallest file.
const LONG_SEGMENT: u64 = 4;
/// A new segment's file begins with about one part in this many of the bytes that the one before
/// has.
const FIRST_ALLOCATION: u64 = 4;
/// Redo of up to so many times the bytes at which it is spilled goes into one frame.
const LARGEST_PART: usize = 4;

type Callback = Box<dyn FnOnce(Result<()>) + Send>;

#[derive(Debug)]
struct Segment {
    number: u64,
    /// Sequence number of its first frame.
    first_sequence: u64,
    /// Open while frames may have to be written.
    file: Option<Arc<dyn StorageFile>>,
    /// Bytes for which there is space.
    allocated: u64,
    /// Bytes given to frames.
    assigned: u64,
    /// The newest commit that needs this and later segments: a commit in it, or of a transaction
    /// whose first part is in it.
    newest_commit: u64,
}

struct Queued {
    place: Place,
    kind: FrameKind,
    part: u32,
    sequence: u64,
    txn_no: u64,
    commit_ts: Timestamp,
    redo_offset: u64,
    redo: Redo,
}

/// A frame's payload: by itself, or a range of the queue's common bytes.
enum Redo {
    Own(Vec<u8>),
    Common(Range<usize>),
}

/// Frames that wait for the log thread.
#[derive(Default)]
struct Queue {
    frames: Vec<Queued>,
    common: Vec<u8>,
    /// Bytes of all payloads.
    bytes: usize,
    /// The oldest commit among the frames.
    first_commit: Option<Timestamp>,
}

impl Queue {
    /// Empties the queue; its memory is kept for the next frames, unless it has become large.
    fn clear(&mut self) {
        self.frames.clear();
        self.common.clear();
        self.common.shrink_to(LARGEST_SPARE_BYTES);
        self.bytes = 0;
        self.first_commit = None;
    }
}

struct State {
    /// The segments that are there, with consecutive numbers. Frames go to the last one. Each has a
    /// frame, the last one from the next push on.
    segments: VecDeque<Segment>,
    /// Segments before this number have no open file.
    first_open: u64,
    /// The number that the first segment gets, if there is no segment.
    next_segment: u64,
    queue: Queue,
    /// The emptied queue of the last write, for the next one.
    spare: Queue,
    /// The oldest commit among the frames that are being written.
    writing: Option<Timestamp>,
    next_sequence: u64,
    newest: Timestamp,
    /// First segment number in which an unfinished transaction has a part.
    open_parts: HashMap<u64, u64>,
    callbacks: BTreeMap<u64, Vec<Callback>>,
    /// The place where this process begins is not marked yet: the first frame will be that.
    is_unmarked: bool,
    failed: Option<String>,
    closed: bool,
}

impl State {
    fn last_segment(&mut self) -> &mut Segment {
        self.segments.back_mut().expect("room was made in a segment")
    }

    /// Queues a frame, for which there is room in the last segment.
    fn push(&mut self, kind: FrameKind, txn_no: u64, commit_ts: Timestamp, pending: Pending<'_>) {
        let Pending { bytes: redo, offset: redo_offset, part } = pending;
        let last = self.last_segment();
        let place = Place { segment: last.number, offset: last.assigned };
        last.assigned += frame_bytes(redo.len()) as u64;
        last.newest_commit = last.newest_commit.max(commit_ts.0);
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let queue = &mut self.queue;
        queue.bytes += redo.len();
        if kind == FrameKind::Commit && queue.first_commit.is_none() {
            queue.first_commit = Some(commit_ts);
        }
        let redo = if redo.len() as u64 > serac_sync::limit("bytes of a common payload", LARGEST_COMMON_PAYLOAD, 16) {
            Redo::Own(std::mem::take(redo))
        } else {
            let from = queue.common.len();
            queue.common.extend_from_slice(redo);
            Redo::Common(from..queue.common.len())
        };
        queue.frames.push(Queued { place, kind, part, sequence, txn_no, commit_ts, redo_offset, redo });
    }

    /// Queues a frame that holds nothing.
    fn push_empty(&mut self, kind: FrameKind) {
        self.push(kind, 0, Timestamp::ZERO, Pending { bytes: &mut Vec::new(), offset: 0, part: 0 });
    }

    /// The timestamp up to which all commits are durable by now; `durable` may not have reached it
    /// yet.
    fn settled(&self) -> Timestamp {
        match self.writing.or(self.queue.first_commit) {
            Some(commit) => Timestamp(commit.0 - 1),
            None => self.newest,
        }
    }

    /// A transaction with parts has committed: its first segment is needed as long as the commit
    /// is.
    fn commit_parts(&mut self, txn_no: u64, commit_ts: Timestamp) {
        let first = self.open_parts.remove(&txn_no).expect("a transaction with parts is known");
        // A segment with an open part is never dropped.
        let at = (first - self.segments[0].number) as usize;
        self.segments[at].newest_commit = self.segments[at].newest_commit.max(commit_ts.0);
    }

    /// Closes the files of segments to which nothing will be written.
    fn close_files(&mut self) {
        let (Some(front), Some(last)) = (self.segments.front(), self.segments.back()) else { return };
        let (front, last) = (front.number, last.number);
        let first_open = self.queue.frames.first().map_or(last, |queued| queued.place.segment);
        for number in self.first_open.max(front)..first_open {
            self.segments[(number - front) as usize].file = None;
        }
        self.first_open = self.first_open.max(first_open);
    }
}

/// Space in the log for a commit. The log is latched meanwhile.
pub(crate) struct Reservation<'a> {
    log: &'a LogManager,
    state: MutexGuard<'a, State>,
}

impl Reservation<'_> {
    /// Takes the commit's redo, of no more bytes than reserved; a long one leaves an empty vector
    /// behind.
    pub(crate) fn enqueue(mut self, txn_no: u64, commit_ts: Timestamp, redo: Pending<'_>) {
        let state = &mut *self.state;
        state.newest = commit_ts;
        if redo.part > 0 {
            state.commit_parts(txn_no, commit_ts);
        }
        state.push(FrameKind::Commit, txn_no, commit_ts, redo);
        drop(self.state);
        self.log.work.notify_one();
    }
}

/// The log of an open database.
pub struct LogManager {
    options: LogOptions,
    state: Mutex<State>,
    work: Condvar,
    done: Condvar,
    durable: AtomicU64,
    /// The newest frame that is durable. Stored under the state's latch, loaded under it or by the
    /// log's thread.
    synced_sequence: AtomicU64,
    // Figures, which the log's thread alone writes.
    bytes_written: AtomicU64,
    syncs: AtomicU64,
    frames_written: AtomicU64,
    flushing_nanos: AtomicU64,
}

/// The log's figures in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogFigures {
    /// Bytes written.
    pub bytes: u64,
    /// Syncs: one for each group of commits, and each segment that it touches.
    pub syncs: u64,
    /// Frames written: commits, parts of transactions, and marks.
    pub frames: u64,
    /// Time spent on writing and syncing.
    pub flushing: Duration,
}

impl std::fmt::Debug for LogManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogManager").field("directory", &self.options.directory).finish_non_exhaustive()
    }
}

/// The smallest `step`, doubled any number of times, that has room for `bytes`.
fn doubled(step: u64, bytes: u64) -> u64 {
    step * bytes.div_ceil(step).next_power_of_two()
}

impl LogManager {
    /// A log that continues after the recovered one, and after timestamp `newest`.
    ///
    /// # Errors
    /// An error when files cannot be opened or made, or there is no thread.
    pub(crate) fn start(options: LogOptions, newest: Timestamp, tail: LogTail) -> Result<(Arc<Self>, JoinHandle<()>)> {
        let old = |segment: super::recovery::TailSegment| Segment {
            number: segment.number,
            first_sequence: segment.first_sequence,
            file: None,
            allocated: segment.end,
            assigned: segment.end,
            newest_commit: segment.newest_commit,
        };
        let log = Arc::new(Self {
            state: Mutex::new(State {
                segments: tail.segments.into_iter().map(old).collect(),
                first_open: tail.next_segment - 1,
                next_segment: tail.next_segment,
                queue: Queue::default(),
                spare: Queue::default(),
                writing: None,
                next_sequence: tail.next_sequence,
                newest,
                open_parts: HashMap::new(),
                callbacks: BTreeMap::new(),
                is_unmarked: !tail.is_open,
                failed: None,
                closed: false,
            }),
            options,
            work: Condvar::new(),
            done: Condvar::new(),
            durable: AtomicU64::new(newest.0),
            synced_sequence: AtomicU64::new(tail.next_sequence - 1),
            bytes_written: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            frames_written: AtomicU64::new(0),
            flushing_nanos: AtomicU64::new(0),
        });
        {
            let mut state = log.state.lock();
            if let Some(last) = state.segments.back_mut() {
                let path = segment_path(&log.options.directory, last.number);
                let open = log.options.file_system.open(&path);
                last.file = Some(open.map_err(|e| StorageError::io(format!("cannot open {}", path.display()), e))?);
            }
            // On a full disk the database can still be read.
            match log.mark_opening(&mut state) {
                Err(StorageError::DiskFull) => {}
                result => result?,
            }
        }
        let thread = {
            let log = log.clone();
            background::spawn("serac-log".into(), "the log", move || log.run(tail.checksum))?
        };
        Ok((log, thread))
    }

    fn add_segment(&self, state: &mut State, at_least: u64) -> Result<()> {
        // A segment of this name may be another process's log.
        self.options.guard.check().map_err(|error| StorageError::LogFailed(error.to_string()))?;
        let (number, before) = match state.segments.back() {
            Some(last) => (last.number + 1, last.assigned),
            None => (state.next_segment, 0),
        };
        let path = segment_path(&self.options.directory, number);
        let need = SEGMENT_HEADER_BYTES as u64 + at_least;
        let first_sequence = state.next_sequence;
        let make = |allocated: u64| -> std::io::Result<Arc<dyn StorageFile>> {
            let file = self.options.file_system.create(&path)?;
            file.allocate(allocated)?;
            file.write_all_at(&segment_header(number, first_sequence), 0)?;
            file.sync()?;
            self.options.file_system.sync_dir(&self.options.directory)?;
            Ok(file)
        };
        let usual = self.allocation(need.max(before / FIRST_ALLOCATION), need);
        let (file, allocated) = self.where_there_is_space(usual, need, make).map_err(|error| {
            let _ = self.options.file_system.remove(&path);
            self.no_room(error, "make", number)
        })?;
        let assigned = SEGMENT_HEADER_BYTES as u64;
        let file = Some(file);
        state.segments.push_back(Segment { number, first_sequence, file, allocated, assigned, newest_commit: 0 });
        Ok(())
    }

    /// The length to which the file of a segment grows that has `wanted` bytes; `need` at least.
    fn allocation(&self, wanted: u64, need: u64) -> u64 {
        doubled(self.options.allocation_bytes, wanted).min(self.options.segment_bytes).max(need)
    }

    /// Tries with the usual number of bytes, and with `need` bytes if the disk has less room.
    /// Returns the number that was used.
    fn where_there_is_space<T>(
        &self,
        usual: u64,
        need: u64,
        make: impl Fn(u64) -> std::io::Result<T>,
    ) -> std::io::Result<(T, u64)> {
        match make(usual) {
            Err(error) if is_disk_full(&error) && need < usual => Ok((make(need)?, need)),
            result => Ok((result?, usual)),
        }
    }

    fn no_room(&self, error: std::io::Error, what: &str, number: u64) -> StorageError {
        if is_disk_full(&error) {
            return StorageError::DiskFull;
        }
        let path = segment_path(&self.options.directory, number);
        StorageError::io(format!("cannot {what} log segment {}", path.display()), error)
    }

    fn check(state: &State) -> Result<()> {
        match &state.failed {
            Some(reason) => Err(StorageError::LogFailed(reason.clone())),
            None => Ok(()),
        }
    }

    /// Makes room for a frame with `payload` bytes at the end of the last segment, or in a new one.
    fn make_room(&self, state: &mut State, payload: usize) -> Result<()> {
        Self::check(state)?;
        if state.closed {
            return Err(StorageError::Closed);
        }
        self.mark_opening(state)?;
        self.find_room(state, payload)
    }

    /// Puts a frame where this process begins to write, before any other.
    fn mark_opening(&self, state: &mut State) -> Result<()> {
        if state.is_unmarked {
            self.find_room(state, 0)?;
            state.push_empty(FrameKind::Open);
            state.is_unmarked = false;
            self.work.notify_one();
        }
        Ok(())
    }

    fn find_room(&self, state: &mut State, payload: usize) -> Result<()> {
        assert!(payload <= LARGEST_PAYLOAD, "long redo is handed over in parts");
        let bytes = frame_bytes(payload) as u64;
        let Some(last) = state.segments.back_mut() else { return self.add_segment(state, bytes) };
        let need = last.assigned + bytes;
        if need <= last.allocated {
            return Ok(());
        }
        if need > self.options.segment_bytes {
            return self.add_segment(state, bytes);
        }
        let file = last.file.as_ref().expect("the last segment is open");
        let longer = self.where_there_is_space(self.allocation(need, need), need, |bytes| file.allocate(bytes));
        last.allocated = longer.map_err(|error| self.no_room(error, "lengthen", last.number))?.1;
        Ok(())
    }

    /// Makes sure that a commit of `bytes` of redo finds its space. Called in the commit critical
    /// section.
    ///
    /// # Errors
    /// [`StorageError::DiskFull`], [`StorageError::LogFailed`] once the log is poisoned,
    /// [`StorageError::Closed`].
    pub(crate) fn reserve(&self, bytes: usize) -> Result<Reservation<'_>> {
        let mut state = self.state_with_room();
        self.make_room(&mut state, bytes)?;
        Ok(Reservation { log: self, state })
    }

    /// The latched state, once the log thread is not too far behind.
    fn state_with_room(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        while state.queue.bytes as u64 > serac_sync::limit("bytes of the log's queue", LARGEST_QUEUE_BYTES, 1 << 10)
            && state.failed.is_none()
        {
            self.done.wait(&mut state);
        }
        state
    }

    /// Bytes of a running transaction's redo from which on it is handed over.
    pub(crate) fn spill_bytes(&self) -> usize {
        self.options.spill_bytes
    }

    /// Takes the redo of a running transaction. The redo that it could not take stays in the
    /// buffer.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub(crate) fn append_parts(&self, txn_no: u64, redo: &mut RedoBuffer) -> Result<()> {
        let largest = self.options.spill_bytes.saturating_mul(LARGEST_PART).clamp(1, LARGEST_PAYLOAD);
        redo.hand_over(largest, |pending| {
            let mut state = self.state_with_room();
            self.make_room(&mut state, pending.bytes.len())?;
            if pending.part == 0 {
                let segment = state.last_segment().number;
                state.open_parts.insert(txn_no, segment);
            }
            state.push(FrameKind::Part, txn_no, Timestamp::ZERO, pending);
            self.work.notify_one();
            Ok(())
        })
    }

    /// A timestamp that needs no log passed (an abort, a tick of the clock).
    pub(crate) fn skip(&self, timestamp: Timestamp) {
        let mut state = self.state.lock();
        state.newest = timestamp;
        if state.failed.is_none() {
            // Release: pairs with `durable_ts`. Never backwards: the settled timestamp only grows,
            // and it is known under the latch.
            self.durable.store(state.settled().0, Ordering::Release);
        }
    }

    /// A transaction with parts in the log has been rolled back.
    pub(crate) fn forget_parts(&self, txn_no: u64) {
        self.state.lock().open_parts.remove(&txn_no);
    }

    /// The point at which commits are acknowledged.
    pub fn durability(&self) -> Durability {
        self.options.durability
    }

    /// The newest timestamp up to which everything is durable.
    pub fn durable_ts(&self) -> Timestamp {
        // Acquire: pairs with the Release of the log thread and of `skip`.
        Timestamp(self.durable.load(Ordering::Acquire))
    }

    /// Waits until a commit at `timestamp` may be acknowledged.
    ///
    /// # Errors
    /// [`StorageError::LogFailed`].
    pub fn wait_acknowledged(&self, timestamp: Timestamp) -> Result<()> {
        if self.options.durability == Durability::Full {
            self.wait_durable(timestamp)
        } else {
            Self::check(&self.state.lock())
        }
    }

    /// Waits until everything up to `timestamp` is durable.
    ///
    /// # Errors
    /// [`StorageError::LogFailed`].
    pub fn wait_durable(&self, timestamp: Timestamp) -> Result<()> {
        if self.durable_ts() >= timestamp {
            return Ok(());
        }
        let mut state = self.state.lock();
        while self.durable_ts() < timestamp {
            Self::check(&state)?;
            self.done.wait(&mut state);
        }
        Ok(())
    }

    /// Whether a commit at `timestamp` may be acknowledged by now.
    pub fn is_acknowledged(&self, timestamp: Timestamp) -> bool {
        match self.options.durability {
            Durability::Full => self.durable_ts() >= timestamp,
            _ => Self::check(&self.state.lock()).is_ok(),
        }
    }

    /// Calls `callback` when a commit at `timestamp` may be acknowledged.
    pub fn on_acknowledged(&self, timestamp: Timestamp, callback: Callback) {
        let mut state = self.state.lock();
        let answer = match Self::check(&state) {
            Ok(()) if self.options.durability == Durability::Full && self.durable_ts() < timestamp => {
                state.callbacks.entry(timestamp.0).or_default().push(callback);
                return;
            }
            answer => answer,
        };
        drop(state);
        callback(answer);
    }

    /// The log's figures in this process.
    pub fn figures(&self) -> LogFigures {
        // Relaxed: figures.
        let of = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        LogFigures {
            bytes: of(&self.bytes_written),
            syncs: of(&self.syncs),
            frames: of(&self.frames_written),
            flushing: Duration::from_nanos(of(&self.flushing_nanos)),
        }
    }

    /// Whether a write or a sync has failed: nothing can be committed any more.
    pub fn has_failed(&self) -> bool {
        self.state.lock().failed.is_some()
    }

    /// Waits until everything is durable that the log has taken before the call.
    ///
    /// # Errors
    /// [`StorageError::LogFailed`].
    pub fn flush(&self) -> Result<()> {
        self.flushed().map(|_| ())
    }

    fn flushed(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        let taken = state.next_sequence - 1;
        // Relaxed: under the latch under which it is stored.
        while self.synced_sequence.load(Ordering::Relaxed) < taken {
            Self::check(&state)?;
            self.done.wait(&mut state);
        }
        Ok(state)
    }

    /// A checkpoint begins, and takes its snapshot afterwards. Unless the current segment is short,
    /// later frames go to a new segment, so that the checkpoint makes the older ones unneeded.
    pub(crate) fn begin_checkpoint(&self) {
        let mut state = self.state.lock();
        let Some(last) = state.segments.back() else { return };
        let is_long = last.assigned > LONG_SEGMENT * self.options.allocation_bytes;
        // A disk that is full is no reason not to make a checkpoint, which gives space back; of
        // other errors the next commit tells.
        if is_long
            && Self::check(&state).is_ok()
            && !state.closed
            && !state.is_unmarked
            && self.add_segment(&mut state, frame_bytes(0) as u64).is_ok()
        {
            state.push_empty(FrameKind::Mark);
            self.work.notify_one();
        }
    }

    /// The log position that a checkpoint at `checkpoint` needs. Syncs the log so far: the
    /// position's segment has a durable frame, unless this process has neither found nor written
    /// one.
    ///
    /// # Errors
    /// [`StorageError::LogFailed`].
    pub(crate) fn position_for(&self, checkpoint: Timestamp) -> Result<LogPosition> {
        let state = self.flushed()?;
        // Relaxed: under the latch under which it is stored.
        let durable = self.synced_sequence.load(Ordering::Relaxed);
        let oldest_part = state.open_parts.values().copied().min().unwrap_or(u64::MAX);
        let is_needed = |segment: &&Segment| segment.newest_commit > checkpoint.0 || segment.number >= oldest_part;
        let needed = state.segments.iter().find(is_needed).or(state.segments.back());
        let (segment, sequence) = match needed {
            Some(segment) => (segment.number, segment.first_sequence),
            // No frame was written yet.
            None => (state.next_segment, state.next_sequence),
        };
        Ok(LogPosition { segment, sequence, durable })
    }

    /// Drops the segments before `position`, which the manifest names.
    ///
    /// # Errors
    /// An error when files cannot be removed.
    pub(crate) fn truncate_before(&self, position: LogPosition) -> Result<()> {
        {
            let mut state = self.state.lock();
            while state.segments.front().is_some_and(|front| front.number < position.segment) {
                state.segments.pop_front();
            }
        }
        remove_segments_before(&self.options.directory, position.segment, &*self.options.file_system)
    }

    /// The newest commit that stands in the log.
    pub(crate) fn newest_commit(&self) -> Timestamp {
        let state = self.state.lock();
        Timestamp(state.segments.iter().map(|segment| segment.newest_commit).max().unwrap_or(0))
    }

    /// Bytes of log that a restart would have to read.
    pub fn live_bytes(&self) -> u64 {
        self.state.lock().segments.iter().map(|segment| segment.assigned).sum()
    }

    /// Takes no frame any more. The log's thread ends when it has written those that were taken.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.work.notify_all();
    }

    /// How the log has ended, once its thread has: whether all that it has taken is durable.
    ///
    /// # Errors
    /// [`StorageError::LogFailed`].
    pub(crate) fn end(&self) -> Result<()> {
        Self::check(&self.state.lock())
    }

    /// The log's thread. `checksum` is that of the frame before the first one it writes.
    fn run(&self, mut checksum: u32) {
        let (mut bytes, mut files) = (Vec::new(), Vec::new());
        loop {
            let mut batch = {
                let mut state = self.state.lock();
                while state.queue.frames.is_empty() && !state.closed {
                    self.work.wait(&mut state);
                }
                if self.options.durability == Durability::Relaxed && !state.closed {
                    drop(state);
                    serac_sync::thread::sleep(RELAXED_INTERVAL / 2);
                    state = self.state.lock();
                }
                if state.queue.frames.is_empty() {
                    return; // closed, and nothing left
                }
                let spare = std::mem::take(&mut state.spare);
                let batch = std::mem::replace(&mut state.queue, spare);
                state.writing = batch.first_commit;
                let open = state.segments.iter().rev().map_while(|s| Some((s.number, s.file.clone()?)));
                files.extend(open);
                batch
            };
            let newest_sequence = batch.frames.last().expect("not empty").sequence;
            let began = Instant::now();
            let result = self.write(&batch, &files, &mut bytes, &mut checksum);
            // A file that was removed takes writes as any other.
            let result = result.and_then(|()| self.options.guard.check());
            files.clear();
            self.frames_written.fetch_add(batch.frames.len() as u64, Ordering::Relaxed);
            self.flushing_nanos.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
            let mut state = self.state.lock();
            state.writing = None;
            batch.clear();
            state.spare = batch;
            match result {
                Ok(()) => {
                    // Relaxed: under the latch.
                    self.synced_sequence.store(newest_sequence, Ordering::Relaxed);
                    state.close_files();
                    // Release: pairs with `durable_ts`. Never backwards, as in `skip`.
                    self.durable.store(state.settled().0, Ordering::Release);
                }
                Err(error) => {
                    state.failed = Some(error.to_string());
                    state.queue.clear();
                }
            }
            let ready = if state.failed.is_some() {
                std::mem::take(&mut state.callbacks)
            } else {
                let later = state.callbacks.split_off(&(self.durable_ts().0 + 1));
                std::mem::replace(&mut state.callbacks, later)
            };
            let answer = Self::check(&state).err().map(|e| e.to_string());
            let failed = state.failed.is_some();
            drop(state);
            self.done.notify_all();
            for callback in ready.into_values().flatten() {
                let answer = answer.clone().map_or(Ok(()), |reason| Err(StorageError::LogFailed(reason)));
                // A callback that panics has reported it. The log goes on: other commits wait for
                // it.
                let _ = catch_unwind(AssertUnwindSafe(|| callback(answer)));
            }
            if failed {
                return;
            }
        }
    }

    /// Writes the frames, neighbours in one write, and syncs the segments touched.
    fn write(
        &self,
        batch: &Queue,
        files: &[(u64, Arc<dyn StorageFile>)],
        bytes: &mut Vec<u8>,
        checksum: &mut u32,
    ) -> std::io::Result<()> {
        // Relaxed: this thread alone stores it.
        let synced = self.synced_sequence.load(Ordering::Relaxed);
        let frames = &batch.frames;
        let mut at = 0;
        while at < frames.len() {
            let Place { segment, offset } = frames[at].place;
            let run = frames[at..].iter().take_while(|queued| queued.place.segment == segment).count();
            bytes.clear();
            bytes.shrink_to(LARGEST_SPARE_BYTES);
            for queued in &frames[at..at + run] {
                let head = FrameHead {
                    sequence: queued.sequence,
                    synced,
                    kind: queued.kind,
                    txn_no: queued.txn_no,
                    commit_ts: queued.commit_ts,
                    redo_offset: queued.redo_offset,
                    part: queued.part,
                    previous: *checksum,
                };
                let payload = match &queued.redo {
                    Redo::Own(redo) => redo,
                    Redo::Common(range) => &batch.common[range.clone()],
                };
                *checksum = write_frame(bytes, queued.place, &head, payload);
            }
            let (_, file) = files.iter().find(|(number, _)| *number == segment).expect("the frame's segment is open");
            file.write_all_at(bytes, offset)?;
            file.sync()?;
            self.bytes_written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            self.syncs.fetch_add(1, Ordering::Relaxed);
            at += run;
        }
        Ok(())
    }
}
