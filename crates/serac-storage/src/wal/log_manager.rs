//! Writes the log: commits queue up, a thread writes and syncs what has gathered (group commit), then acknowledges.
//!
//! ```text
//! commit (in its critical section): reserve(bytes).enqueue(ts, redo)           log thread: take the queue -> write -> sync -> durable := ts
//! ```
//! `reserve` gives the frame its place in a segment whose disk space is already allocated, so a full disk fails a commit *before* it is
//! visible, and nothing after that can run out of space. A failed write or sync is different: nobody knows what is on the disk, so the log is
//! *poisoned*: this process acknowledges nothing any more.

use super::frame::{Frame, FrameKind, SEGMENT_HEADER_BYTES, frame_bytes, segment_header, write_frame};
use crate::background;
use crate::error::{Result, StorageError};
use crate::file_system::{FileSystem, StorageFile};
use crate::ids::Timestamp;
use serac_sync::atomic::{AtomicU64, Ordering};
use serac_sync::time::{Duration, Instant};
use serac_sync::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// When a commit is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// When its log is on the disk.
    #[default]
    Full,
    /// At once; the log follows within about [`RELAXED_INTERVAL`]. A crash of the machine or the process loses at most what was
    /// committed in that window, and never a part of a transaction.
    Relaxed,
    /// At once, and no log is written: only a checkpoint or a clean close keeps what was committed.
    Off,
}

/// The loss window of [`Durability::Relaxed`].
pub const RELAXED_INTERVAL: Duration = Duration::from_millis(10);

/// Payloads up to this many bytes are copied into the queue's common bytes.
const LARGEST_COMMON_PAYLOAD: usize = 16 << 10;
/// Buffers of the log thread keep up to this many bytes.
const LARGEST_SPARE_BYTES: usize = 8 << 20;
/// Commits wait while more than this is queued: the log must not fall behind without bound.
const LARGEST_QUEUE_BYTES: usize = 64 << 20;

/// How the log is kept.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Folder of the segments.
    pub directory: PathBuf,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// When commits are acknowledged.
    pub durability: Durability,
    /// Files.
    pub file_system: Arc<dyn FileSystem>,
}

type Callback = Box<dyn FnOnce(Result<()>) + Send>;

#[derive(Debug)]
struct Segment {
    number: u64,
    file: Arc<dyn StorageFile>,
    capacity: u64,
    assigned: u64,
    newest_commit: u64,
}

struct Queued {
    segment: usize,
    offset: u64,
    sequence: u64,
    kind: FrameKind,
    txn_no: u64,
    commit_ts: Timestamp,
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
}

impl Queue {
    /// Empties the queue; its memory is kept for the next frames, unless it has become large.
    fn clear(&mut self) {
        self.frames.clear();
        self.common.clear();
        self.common.shrink_to(LARGEST_SPARE_BYTES);
        self.bytes = 0;
    }
}

struct State {
    /// Segments of this process that still hold something, and their index from the start.
    segments: VecDeque<Segment>,
    first_index: usize,
    /// Segments before this process, by number, with the newest commit in each.
    old_segments: Vec<(u64, u64)>,
    queue: Queue,
    /// The emptied queue of the last write, for the next one.
    spare: Queue,
    writing: bool,
    next_sequence: u64,
    newest: Timestamp,
    /// First segment number in which an unfinished transaction has a part.
    open_parts: HashMap<u64, u64>,
    callbacks: BTreeMap<u64, Vec<Callback>>,
    failed: Option<String>,
    shutdown: bool,
}

impl State {
    /// Queues a frame, for which there is room in the last segment.
    fn push(&mut self, kind: FrameKind, txn_no: u64, commit_ts: Timestamp, redo: &mut Vec<u8>) {
        let segment = self.first_index + self.segments.len() - 1;
        let last = self.segments.back_mut().expect("there is always a segment");
        let offset = last.assigned;
        last.assigned += frame_bytes(redo.len()) as u64;
        last.newest_commit = last.newest_commit.max(commit_ts.0);
        if kind == FrameKind::Part {
            self.open_parts.entry(txn_no).or_insert(last.number);
        }
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let queue = &mut self.queue;
        queue.bytes += redo.len();
        let redo = if redo.len() > LARGEST_COMMON_PAYLOAD {
            Redo::Own(std::mem::take(redo))
        } else {
            let from = queue.common.len();
            queue.common.extend_from_slice(redo);
            Redo::Common(from..queue.common.len())
        };
        queue.frames.push(Queued { segment, offset, sequence, kind, txn_no, commit_ts, redo });
    }

    fn finish_parts(&mut self, txn_no: u64) {
        if !self.open_parts.is_empty() {
            self.open_parts.remove(&txn_no);
        }
    }
}

/// Space in the log for a commit. The log is latched meanwhile.
pub struct Reservation<'a> {
    log: &'a LogManager,
    state: MutexGuard<'a, State>,
}

impl std::fmt::Debug for Reservation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reservation").finish_non_exhaustive()
    }
}

impl Reservation<'_> {
    /// Takes the commit's redo, of no more bytes than reserved; a long one leaves an empty vector behind.
    pub fn enqueue(mut self, txn_no: u64, commit_ts: Timestamp, redo: &mut Vec<u8>) {
        let state = &mut *self.state;
        state.newest = commit_ts;
        state.finish_parts(txn_no);
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
    synced_sequence: AtomicU64,
    // Figures, which the log's thread alone writes.
    bytes_written: AtomicU64,
    syncs: AtomicU64,
    frames_written: AtomicU64,
    flushing_nanos: AtomicU64,
}

/// What a log has done in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogFigures {
    /// Bytes written.
    pub bytes: u64,
    /// Syncs: one for each group of commits, and each segment that it touches.
    pub syncs: u64,
    /// Commits and parts of transactions written.
    pub frames: u64,
    /// Time spent on writing and syncing.
    pub flushing: Duration,
}

impl std::fmt::Debug for LogManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogManager").field("directory", &self.options.directory).finish_non_exhaustive()
    }
}

/// The file name of a segment.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:010}.wal")
}

impl LogManager {
    /// A log that goes on after `newest` and frame `last_sequence`, in a new segment `next_segment`.
    pub(crate) fn start(
        options: LogOptions,
        newest: Timestamp,
        last_sequence: u64,
        next_segment: u64,
        old_segments: Vec<(u64, u64)>,
    ) -> Result<(Arc<Self>, serac_sync::thread::JoinHandle<()>)> {
        let log = Arc::new(Self {
            state: Mutex::new(State {
                segments: VecDeque::new(),
                first_index: 0,
                old_segments,
                queue: Queue::default(),
                spare: Queue::default(),
                writing: false,
                next_sequence: last_sequence + 1,
                newest,
                open_parts: HashMap::new(),
                callbacks: BTreeMap::new(),
                failed: None,
                shutdown: false,
            }),
            options,
            work: Condvar::new(),
            done: Condvar::new(),
            durable: AtomicU64::new(newest.0),
            synced_sequence: AtomicU64::new(last_sequence),
            bytes_written: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            frames_written: AtomicU64::new(0),
            flushing_nanos: AtomicU64::new(0),
        });
        {
            let mut state = log.state.lock();
            log.add_segment(&mut state, next_segment, 0)?;
            log.push(&mut state, FrameKind::Open, 0, &mut Vec::new())?;
        }
        let thread = {
            let log = log.clone();
            background::spawn("serac-log".into(), move || log.run())
                .map_err(|e| StorageError::io("cannot start the log thread", e))?
        };
        Ok((log, thread))
    }

    fn add_segment(&self, state: &mut State, number: u64, at_least: u64) -> Result<()> {
        let path = self.options.directory.join(segment_name(number));
        let capacity = self.options.segment_bytes.max(SEGMENT_HEADER_BYTES as u64 + at_least);
        let make = || -> std::io::Result<Arc<dyn StorageFile>> {
            let file = self.options.file_system.create(&path)?;
            file.allocate(capacity)?;
            file.write_all_at(&segment_header(number), 0)?;
            file.sync()?;
            self.options.file_system.sync_dir(&self.options.directory)?;
            Ok(file)
        };
        let file = make().map_err(|error| {
            let _ = self.options.file_system.remove(&path);
            if error.raw_os_error() == Some(libc::ENOSPC) {
                StorageError::DiskFull
            } else {
                StorageError::io(format!("cannot make log segment {}", path.display()), error)
            }
        })?;
        let assigned = SEGMENT_HEADER_BYTES as u64;
        state.segments.push_back(Segment { number, file, capacity, assigned, newest_commit: 0 });
        Ok(())
    }

    fn check(state: &State) -> Result<()> {
        match &state.failed {
            Some(reason) => Err(StorageError::LogFailed(reason.clone())),
            None => Ok(()),
        }
    }

    fn make_room(&self, state: &mut State, payload: usize) -> Result<()> {
        Self::check(state)?;
        if payload > u32::MAX as usize / 2 {
            return Err(StorageError::Limit("a log record can have at most 2 GiB".into()));
        }
        let need = frame_bytes(payload) as u64;
        let last = state.segments.back().expect("there is always a segment");
        if last.capacity - last.assigned < need {
            self.add_segment(state, last.number + 1, need)?;
        }
        Ok(())
    }

    /// Makes room for a frame and queues it.
    fn push(&self, state: &mut State, kind: FrameKind, txn_no: u64, redo: &mut Vec<u8>) -> Result<()> {
        self.make_room(state, redo.len())?;
        state.push(kind, txn_no, Timestamp::ZERO, redo);
        Ok(())
    }

    /// Makes sure that a commit of `bytes` of redo finds its space. Called in the commit critical section.
    ///
    /// # Errors
    /// [`StorageError::DiskFull`], or [`StorageError::LogFailed`] once the log is poisoned.
    pub fn reserve(&self, bytes: usize) -> Result<Reservation<'_>> {
        let mut state = self.state_with_room();
        self.make_room(&mut state, bytes)?;
        Ok(Reservation { log: self, state })
    }

    /// The latched state, once the log thread is not too far behind.
    fn state_with_room(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        while state.queue.bytes > LARGEST_QUEUE_BYTES && state.failed.is_none() {
            self.done.wait(&mut state);
        }
        state
    }

    /// Takes a part of a running transaction's redo.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub fn append_part(&self, txn_no: u64, mut redo: Vec<u8>) -> Result<()> {
        self.push(&mut self.state_with_room(), FrameKind::Part, txn_no, &mut redo)?;
        self.work.notify_one();
        Ok(())
    }

    /// A timestamp that needs no log passed (an abort, a tick of the clock).
    pub(crate) fn skip(&self, aborted: Option<u64>, timestamp: Timestamp) {
        let mut state = self.state.lock();
        state.newest = timestamp;
        if let Some(txn_no) = aborted {
            state.finish_parts(txn_no);
        }
        if state.queue.frames.is_empty() && !state.writing && state.failed.is_none() {
            // Release: pairs with `durable_ts`.
            self.durable.store(timestamp.0, Ordering::Release);
        }
    }

    /// When commits are acknowledged.
    pub fn durability(&self) -> Durability {
        self.options.durability
    }
    /// The newest timestamp up to which everything is durable.
    pub fn durable_ts(&self) -> Timestamp {
        // Acquire: pairs with the log thread's Release.
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

    /// Writes and syncs everything that was committed before the call.
    ///
    /// # Errors
    /// [`StorageError::LogFailed`].
    pub fn flush(&self) -> Result<()> {
        let newest = self.state.lock().newest;
        self.work.notify_one();
        self.wait_durable(newest)
    }

    /// What the log has done in this process.
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

    /// Drops segments that hold nothing newer than `checkpoint`.
    pub(crate) fn truncate_before(&self, checkpoint: Timestamp) -> Result<()> {
        let mut state = self.state.lock();
        let oldest_part = state.open_parts.values().copied().min().unwrap_or(u64::MAX);
        // From the oldest on: a segment that is kept keeps all after it, so that no gap arises.
        let unneeded = state.old_segments.iter().take_while(|(_, newest)| *newest <= checkpoint.0).count();
        let mut dropped: Vec<u64> = state.old_segments.drain(..unneeded).map(|(number, _)| number).collect();
        if state.old_segments.is_empty() {
            let oldest_queued = state.queue.frames.first().map_or(usize::MAX, |q| q.segment);
            while state.segments.len() > 1 && !state.writing && state.first_index < oldest_queued {
                let front = state.segments.front().expect("there are two");
                if front.newest_commit > checkpoint.0 || front.number >= oldest_part {
                    break;
                }
                dropped.push(front.number);
                state.segments.pop_front();
                state.first_index += 1;
            }
        }
        drop(state);
        for number in dropped {
            let path = self.options.directory.join(segment_name(number));
            self.options
                .file_system
                .remove(&path)
                .map_err(|e| StorageError::io(format!("cannot remove log segment {}", path.display()), e))?;
        }
        Ok(())
    }

    /// The newest commit that stands in the log.
    pub(crate) fn newest_commit(&self) -> Timestamp {
        let state = self.state.lock();
        let old = state.old_segments.iter().map(|(_, newest)| *newest);
        Timestamp(old.chain(state.segments.iter().map(|segment| segment.newest_commit)).max().unwrap_or(0))
    }
    /// Bytes of log that a restart would have to read, roughly.
    pub fn live_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.segments.iter().map(|s| s.assigned).sum::<u64>()
            + state.old_segments.len() as u64 * self.options.segment_bytes
    }

    pub(crate) fn shut_down(&self) {
        self.state.lock().shutdown = true;
        self.work.notify_all();
    }

    fn run(&self) {
        let mut bytes = Vec::new();
        loop {
            let (mut batch, newest, files) = {
                let mut state = self.state.lock();
                while state.queue.frames.is_empty() && !state.shutdown {
                    self.work.wait(&mut state);
                }
                if self.options.durability == Durability::Relaxed && !state.shutdown {
                    drop(state);
                    serac_sync::thread::sleep(RELAXED_INTERVAL / 2);
                    state = self.state.lock();
                }
                if state.queue.frames.is_empty() {
                    return; // shut down, and nothing left
                }
                state.writing = true;
                let spare = std::mem::take(&mut state.spare);
                let batch = std::mem::replace(&mut state.queue, spare);
                let files: Vec<(usize, Arc<dyn StorageFile>)> =
                    state.segments.iter().enumerate().map(|(i, s)| (state.first_index + i, s.file.clone())).collect();
                (batch, state.newest, files)
            };
            let newest_commit = batch.frames.iter().map(|q| q.commit_ts).max().unwrap_or(Timestamp::ZERO);
            let newest_sequence = batch.frames.last().expect("not empty").sequence;
            let began = Instant::now();
            let result = self.write(&batch, &files, &mut bytes);
            self.frames_written.fetch_add(batch.frames.len() as u64, Ordering::Relaxed);
            self.flushing_nanos.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
            let mut state = self.state.lock();
            state.writing = false;
            batch.clear();
            state.spare = batch;
            match result {
                Ok(()) => {
                    self.synced_sequence.store(newest_sequence, Ordering::Relaxed);
                    let durable = if state.queue.frames.is_empty() { state.newest.max(newest) } else { newest_commit };
                    // Release: pairs with `durable_ts`. Never backwards: a batch of parts alone has no commit.
                    self.durable.fetch_max(durable.0, Ordering::Release);
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
                callback(answer.clone().map_or(Ok(()), |reason| Err(StorageError::LogFailed(reason))));
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
        files: &[(usize, Arc<dyn StorageFile>)],
        bytes: &mut Vec<u8>,
    ) -> std::io::Result<()> {
        let synced = self.synced_sequence.load(Ordering::Relaxed);
        let frames = &batch.frames;
        let mut at = 0;
        while at < frames.len() {
            let index = frames[at].segment;
            let run = frames[at..].iter().take_while(|q| q.segment == index).count();
            bytes.clear();
            bytes.shrink_to(LARGEST_SPARE_BYTES);
            for queued in &frames[at..at + run] {
                write_frame(
                    bytes,
                    &Frame {
                        sequence: queued.sequence,
                        synced,
                        kind: queued.kind,
                        txn_no: queued.txn_no,
                        commit_ts: queued.commit_ts,
                        payload: match &queued.redo {
                            Redo::Own(redo) => redo,
                            Redo::Common(range) => &batch.common[range.clone()],
                        },
                    },
                );
            }
            let (_, file) = files.iter().find(|(i, _)| *i == index).expect("the frame's segment");
            file.write_all_at(bytes, frames[at].offset)?;
            file.sync()?;
            self.bytes_written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            self.syncs.fetch_add(1, Ordering::Relaxed);
            at += run;
        }
        Ok(())
    }
}
