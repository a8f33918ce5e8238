//! The log against a model of its content. Steps come in any order: parts, commits, aborts,
//! rollbacks to savepoints, checkpoints in all their steps, restarts, kills and losses of power.
//!
//! `SERAC_SEED=n` replays a seed; `SERAC_STRESS=1` makes it many more.

use super::frame::{
    FRAME_HEAD_BYTES, FrameHead, FrameKind, Place, SEGMENT_HEADER_BYTES, frame_bytes, segment_header, write_frame,
};
use super::recovery::{LogRecovery, LogStart, RecoveredLog, recover};
use super::segments::{LogPosition, segment_numbers, segment_path};
use super::{Durability, LogManager, LogOptions};
use crate::durability::file_system::{FaultFileSystem, FileSystem, FolderGuard, RealFileSystem, StorageFile};
use crate::durability::redo::{RedoBuffer, RedoMark};
use crate::error::{Result, StorageError};
use crate::ids::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_sync::thread::JoinHandle;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

fn options(directory: &Path, files: Arc<dyn FileSystem>) -> LogOptions {
    LogOptions {
        directory: directory.to_owned(),
        segment_bytes: 2_048,
        allocation_bytes: 512,
        spill_bytes: 100,
        durability: Durability::Full,
        file_system: files,
        guard: FolderGuard::default(),
    }
}

/// The result of a restart from `start` with a checkpoint at `checkpoint_ts`: the transactions in
/// their order, and the rest.
fn read(
    directory: &Path,
    files: &dyn FileSystem,
    start: LogPosition,
    checkpoint_ts: Timestamp,
) -> Result<(Vec<Vec<u8>>, RecoveredLog)> {
    let mut transactions = Vec::new();
    let recovery = LogRecovery { directory, files, start: LogStart::At(start), checkpoint_ts };
    let recovered = recover(&recovery, None, &mut |_, redo| {
        transactions.push(redo.to_vec());
        Ok(())
    })?;
    Ok((transactions, recovered))
}

/// A running transaction: its redo, the expected redo, and its savepoints.
struct Running {
    txn_no: u64,
    redo: RedoBuffer,
    expected: Vec<u8>,
    savepoints: Vec<(RedoMark, usize)>,
}

/// The end of a process.
#[derive(Clone, Copy, PartialEq)]
enum Ending {
    Clean,
    /// All written bytes are there.
    Killed,
    /// All synced bytes are there, and pieces of the rest, chosen by this seed.
    PowerLost(u64),
}

/// A checkpoint between its steps.
enum Step {
    Begun,
    Snapshot(Timestamp),
    Position(Timestamp, LogPosition),
    Published(LogPosition),
}

/// The log, and its expected content.
struct Model {
    directory: PathBuf,
    files: FaultFileSystem,
    log: Option<(Arc<LogManager>, JoinHandle<()>)>,
    clock: u64,
    next_txn: u64,
    running: Vec<Running>,
    /// The committed redo, by timestamp.
    committed: BTreeMap<u64, Vec<u8>>,
    /// The newest commit that was durable when the process ended.
    acknowledged: Timestamp,
    /// The manifest: timestamp and position.
    manifest: (Timestamp, LogPosition),
    checkpoint: Option<Step>,
    restarts: u32,
    dropped: u64,
}

impl Model {
    fn new(directory: &Path) -> Self {
        let mut model = Self {
            directory: directory.to_owned(),
            files: FaultFileSystem::with_disk(),
            log: None,
            clock: 0,
            next_txn: 0,
            running: Vec::new(),
            committed: BTreeMap::new(),
            acknowledged: Timestamp::ZERO,
            manifest: (Timestamp::ZERO, LogPosition::BEGINNING),
            checkpoint: None,
            restarts: 0,
            dropped: 0,
        };
        model.open();
        model
    }

    fn log(&self) -> &LogManager {
        &self.log.as_ref().expect("open").0
    }

    fn open(&mut self) {
        let (checkpoint_ts, start) = self.manifest;
        let (found, recovered) = read(&self.directory, &self.files, start, checkpoint_ts).unwrap();
        self.clock = recovered.newest.0;
        // Commits that were not acknowledged may be missing, the newest first.
        assert!(self.clock >= self.acknowledged.0, "after restart {}", self.restarts);
        self.committed.retain(|ts, _| *ts <= recovered.newest.0);
        let expected: Vec<&Vec<u8>> = self.committed.range(checkpoint_ts.0 + 1..).map(|(_, redo)| redo).collect();
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "after restart {}", self.restarts);
        self.next_txn = 0;
        self.log = Some(
            LogManager::start(options(&self.directory, Arc::new(self.files.clone())), recovered.newest, recovered.tail)
                .unwrap(),
        );
    }

    fn begin(&mut self) {
        self.next_txn += 1;
        let (redo, expected, savepoints) = (RedoBuffer::new(true), Vec::new(), Vec::new());
        self.running.push(Running { txn_no: self.next_txn, redo, expected, savepoints });
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        let running = &mut self.running[at];
        // As a record of the engine's, of which the redo needs a length.
        running.redo.meta(bytes);
        running.expected.push(5);
        running.expected.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        running.expected.extend_from_slice(bytes);
    }

    fn spill(&mut self, at: usize) {
        let log = self.log.as_ref().expect("open").0.clone();
        let running = &mut self.running[at];
        if running.redo.pending_bytes() > 0 {
            log.append_parts(running.txn_no, &mut running.redo).unwrap();
        }
    }

    fn commit(&mut self, at: usize) {
        let mut running = self.running.swap_remove(at);
        let log = self.log.as_ref().expect("open").0.clone();
        self.clock += 1;
        let reservation = log.reserve(running.redo.pending_bytes()).unwrap();
        reservation.enqueue(running.txn_no, Timestamp(self.clock), running.redo.pending());
        self.committed.insert(self.clock, std::mem::take(&mut running.expected));
    }

    fn abort(&mut self, at: usize) {
        let running = self.running.swap_remove(at);
        if running.redo.has_parts() {
            self.log().forget_parts(running.txn_no);
        }
        self.clock += 1;
        self.log().skip(Timestamp(self.clock));
    }

    /// The next step of a checkpoint.
    fn checkpoint(&mut self) {
        self.checkpoint = match self.checkpoint.take() {
            None => {
                self.log().begin_checkpoint();
                Some(Step::Begun)
            }
            Some(Step::Begun) => {
                self.log().wait_durable(Timestamp(self.clock)).unwrap();
                Some(Step::Snapshot(Timestamp(self.clock)))
            }
            Some(Step::Snapshot(ts)) => Some(Step::Position(ts, self.log().position_for(ts).unwrap())),
            Some(Step::Position(ts, position)) => {
                self.manifest = (ts, position);
                Some(Step::Published(position))
            }
            Some(Step::Published(position)) => {
                let before = segment_numbers(&self.directory, &self.files).unwrap().len();
                self.log().truncate_before(position).unwrap();
                let left = segment_numbers(&self.directory, &self.files).unwrap();
                self.dropped += (before - left.len()) as u64;
                assert_eq!(left[0], position.segment, "no more is dropped, and no less");
                None
            }
        };
    }

    /// Ends the process, and starts the next one.
    fn restart(&mut self, ending: Ending) {
        let clean = ending == Ending::Clean;
        for running in std::mem::take(&mut self.running) {
            if clean && running.redo.has_parts() {
                self.log().forget_parts(running.txn_no);
            }
        }
        let durable = if clean { Timestamp(self.clock) } else { self.log().durable_ts() };
        let acknowledged = self.committed.range(..=durable.0).next_back();
        self.acknowledged = acknowledged.map_or(Timestamp::ZERO, |(ts, _)| Timestamp(*ts));
        if !clean {
            self.files.faults().halt_in.store(1, std::sync::atomic::Ordering::SeqCst);
        }
        let (log, thread) = self.log.take().expect("open");
        log.close();
        thread.join().unwrap();
        assert_eq!(log.end().is_ok(), !self.files.halted());
        drop(log);
        match ending {
            Ending::PowerLost(seed) => self.files.power_returns(seed).unwrap(),
            _ => self.files.process_restarts(),
        }
        self.checkpoint = None;
        self.restarts += 1;
        self.open();
    }
}

#[test]
fn in_any_order_of_steps_the_log_has_what_the_checkpoint_lacks() {
    let (mut dropped, mut restarts, mut refused) = (0, 0, 0);
    for seed in serac_testing::seeds(100, 5_000) {
        println!("SERAC_SEED={seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let folder = tempfile::tempdir().unwrap();
        let mut model = Model::new(folder.path());
        model.files.faults().unordered_removals.store(rng.random(), std::sync::atomic::Ordering::SeqCst);
        for _ in 0..rng.random_range(20..400) {
            let some = (!model.running.is_empty()).then(|| rng.random_range(0..model.running.len()));
            match (rng.random_range(0..100), some) {
                (0..12, _) | (_, None) if model.running.len() < 5 => model.begin(),
                (0..40, Some(at)) => {
                    let bytes = vec![rng.random(); rng.random_range(0..400)];
                    model.write(at, &bytes);
                }
                (40..60, Some(at)) => model.spill(at),
                (60..78, Some(at)) => model.commit(at),
                (78..82, Some(at)) => model.abort(at),
                (82..86, Some(at)) => {
                    let running = &mut model.running[at];
                    running.savepoints.push((running.redo.mark(), running.expected.len()));
                }
                (86..88, Some(at)) => {
                    let running = &mut model.running[at];
                    if let Some(&(mark, length)) = running.savepoints.last() {
                        running.redo.truncate(mark);
                        running.expected.truncate(length);
                    }
                }
                (88..98, _) => model.checkpoint(),
                (98, _) => model.restart(Ending::Clean),
                _ if rng.random() => model.restart(Ending::Killed),
                _ => model.restart(Ending::PowerLost(rng.random())),
            }
        }
        model.restart(Ending::Clean);
        dropped += model.dropped;
        restarts += model.restarts;
        refused += u64::from(is_missed(&mut model, &mut rng));
    }
    assert!(dropped > 0 && restarts > 0 && refused > 0, "{dropped} dropped, {restarts} restarts, {refused} refused");
}

/// Removes, cuts or empties a durable part of the log, and checks that it is missed. False if there
/// was nothing to remove.
fn is_missed(model: &mut Model, rng: &mut StdRng) -> bool {
    let (log, thread) = model.log.take().unwrap();
    log.close();
    thread.join().unwrap();
    let (ts, start) = model.manifest;
    let segments = segment_numbers(&model.directory, &model.files).unwrap();
    let needed: Vec<u64> = segments.into_iter().filter(|&number| number >= start.segment).collect();
    let number = needed[rng.random_range(0..needed.len())];
    let path = segment_path(&model.directory, number);
    // Frames behind the last one that a later frame, or the manifest, knows to be durable may be
    // missing.
    let is_last = Some(&number) == needed.last();
    if is_last && (start.durable < start.sequence || number != start.segment) {
        return false;
    }
    if is_last || rng.random() {
        std::fs::remove_file(&path).unwrap();
    } else {
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..64]).unwrap();
    }
    match read(&model.directory, &model.files, start, ts) {
        Err(StorageError::Corrupt { file, .. }) => assert_eq!(file, path),
        other => panic!("segment {number} was missing, and nobody noticed: {other:?}"),
    }
    true
}

/// A file system whose syncs of the log's frames wait for permission.
#[derive(Debug, Default)]
struct GatedFiles {
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    /// Syncs that may go on (`None`: all), and the number that have begun.
    state: Mutex<(Option<u32>, u32)>,
    changed: Condvar,
}

impl Gate {
    fn close(&self) {
        self.state.lock().unwrap().0 = Some(0);
    }

    fn let_through(&self) {
        *self.state.lock().unwrap().0.as_mut().unwrap() += 1;
        self.changed.notify_all();
    }

    fn open(&self) {
        self.state.lock().unwrap().0 = None;
        self.changed.notify_all();
    }

    fn wait_for_syncs(&self, count: u32) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| state.1 < count).unwrap());
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        if state.0.is_some() {
            state.1 += 1;
            self.changed.notify_all();
        }
        let mut state = self.changed.wait_while(state, |state| state.0 == Some(0)).unwrap();
        if let Some(left) = &mut state.0 {
            *left -= 1;
        }
    }
}

#[derive(Debug)]
struct GatedFile(Arc<dyn StorageFile>, Arc<Gate>);

impl StorageFile for GatedFile {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.0.read_at(bytes, offset)
    }

    fn length(&self) -> std::io::Result<u64> {
        self.0.length()
    }

    fn sync(&self) -> std::io::Result<()> {
        self.1.pass();
        self.0.sync()
    }

    fn allocate(&self, len: u64) -> std::io::Result<()> {
        self.0.allocate(len)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.set_len(len)
    }
}

impl FileSystem for GatedFiles {
    fn create(&self, path: &Path) -> std::io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(GatedFile(RealFileSystem.create(path)?, self.gate.clone())))
    }

    fn open(&self, path: &Path) -> std::io::Result<Arc<dyn StorageFile>> {
        RealFileSystem.open(path)
    }

    fn open_to_read(&self, path: &Path) -> std::io::Result<Arc<dyn StorageFile>> {
        RealFileSystem.open_to_read(path)
    }

    fn map(&self, path: &Path) -> std::io::Result<arrow_buffer::Buffer> {
        RealFileSystem.map(path)
    }

    fn list(&self, folder: &Path) -> std::io::Result<Vec<String>> {
        RealFileSystem.list(folder)
    }

    fn exists(&self, path: &Path) -> std::io::Result<bool> {
        RealFileSystem.exists(path)
    }

    fn create_folder(&self, path: &Path) -> std::io::Result<()> {
        RealFileSystem.create_folder(path)
    }

    fn link(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        RealFileSystem.link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        RealFileSystem.rename(from, to)
    }

    fn remove(&self, path: &Path) -> std::io::Result<()> {
        RealFileSystem.remove(path)
    }

    fn sync_dir(&self, path: &Path) -> std::io::Result<()> {
        RealFileSystem.sync_dir(path)
    }

    fn lock(
        &self,
        path: &Path,
        holder: &str,
    ) -> std::io::Result<std::result::Result<Arc<dyn crate::durability::file_system::FolderLock>, String>> {
        RealFileSystem.lock(path, holder)
    }
}

/// A log in an empty folder.
fn start(directory: &Path, files: Arc<dyn FileSystem>) -> (Arc<LogManager>, JoinHandle<()>) {
    let (_, recovered) = read(directory, &RealFileSystem, LogPosition::BEGINNING, Timestamp::ZERO).unwrap();
    LogManager::start(options(directory, files), recovered.newest, recovered.tail).unwrap()
}

fn commit(log: &LogManager, ts: u64, bytes: &[u8]) {
    let mut redo = RedoBuffer::new(true);
    redo.meta(bytes);
    log.reserve(redo.pending_bytes()).unwrap().enqueue(ts, Timestamp(ts), redo.pending());
}

#[test]
fn frames_of_parts_hold_no_timestamp_up() {
    let folder = tempfile::tempdir().unwrap();
    let files = GatedFiles::default();
    let gate = files.gate.clone();
    let (log, thread) = start(folder.path(), Arc::new(files));
    commit(&log, 1, b"one");
    log.wait_durable(Timestamp(1)).unwrap();
    gate.close();
    let mut redo = RedoBuffer::new(true);
    for round in 1..6 {
        // While one part is being written, the next one waits already.
        redo.meta(b"a part");
        log.append_parts(7, &mut redo).unwrap();
        gate.wait_for_syncs(round);
        redo.meta(b"a part");
        log.append_parts(7, &mut redo).unwrap();
        let aborted = Timestamp(1 + u64::from(round));
        log.skip(aborted);
        gate.let_through();
        gate.wait_for_syncs(round + 1);
        assert_eq!(log.durable_ts(), aborted, "round {round}");
    }
    gate.open();
    log.close();
    thread.join().unwrap();
}

#[test]
fn a_timestamp_behind_a_commit_that_waits_is_not_durable() {
    let folder = tempfile::tempdir().unwrap();
    let files = GatedFiles::default();
    let gate = files.gate.clone();
    let (log, thread) = start(folder.path(), Arc::new(files));
    log.position_for(Timestamp::ZERO).unwrap();
    gate.close();
    log.skip(Timestamp(1));
    assert_eq!(log.durable_ts(), Timestamp(1), "nothing waits");
    commit(&log, 2, b"two");
    gate.wait_for_syncs(1);
    log.skip(Timestamp(3));
    commit(&log, 4, b"four");
    log.skip(Timestamp(5));
    assert_eq!(log.durable_ts(), Timestamp(1), "two is being written");
    gate.let_through();
    gate.wait_for_syncs(2);
    assert_eq!(log.durable_ts(), Timestamp(3), "four waits");
    gate.open();
    log.wait_durable(Timestamp(5)).unwrap();
    log.close();
    thread.join().unwrap();
}

#[test]
fn a_callback_that_panics_ends_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let files = GatedFiles::default();
    let gate = files.gate.clone();
    let (log, thread) = start(folder.path(), Arc::new(files));
    log.flush().unwrap();
    gate.close();
    commit(&log, 1, b"one");
    log.on_acknowledged(Timestamp(1), Box::new(|_| panic!("on purpose")));
    gate.open();
    log.wait_durable(Timestamp(1)).unwrap();
    commit(&log, 2, b"two");
    log.wait_durable(Timestamp(2)).unwrap();
    log.close();
    thread.join().unwrap();
}

/// The only table is number 1.
struct NoCatalog;

impl crate::durability::storage::RecoveryCatalog for NoCatalog {
    fn restore(&mut self, _: &crate::durability::storage::Storage, _: &str) -> Result<()> {
        Ok(())
    }

    fn apply_meta(&mut self, _: &crate::durability::storage::Storage, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

#[test]
fn what_was_read_is_waited_for_until_it_is_durable_and_nothing_else_is() {
    use crate::durability::storage::{Storage, StorageOptions};
    use crate::{ColumnId, ColumnSchema, ColumnType, RowBuffer, TableId, TableSchema, Value};
    let folder = tempfile::tempdir().unwrap();
    let files = GatedFiles::default();
    let gate = files.gate.clone();
    let path = Some(folder.path().to_owned());
    let options = StorageOptions { path, file_system: Arc::new(files), gc_threads: 0, ..Default::default() };
    let (storage, _) = Storage::open(options, &mut NoCatalog).unwrap();
    let columns = vec![ColumnSchema { name: "a".into(), column_type: ColumnType::Int64, nullable: false }];
    let table = storage.create_table(TableId(1), "t", TableSchema { columns }).unwrap();
    let insert = |value: i64| {
        let mut txn = storage.begin();
        let row = table.insert(&mut txn, &[Value::Int64(value)]).unwrap();
        (row, txn.commit().unwrap())
    };
    let (old, ticket) = insert(1);
    ticket.wait().unwrap();
    storage.manager().log().unwrap().flush().unwrap();
    gate.close();
    let (new, _) = insert(2);
    let (txn, mut buffer) = (storage.begin(), RowBuffer::default());
    let mut read = |row| assert!(table.read(txn.snapshot(), row, &[ColumnId(0)], &mut buffer).unwrap());
    assert!(txn.snapshot().unacknowledged_reads().is_none(), "nothing was read");
    read(old);
    assert!(txn.snapshot().unacknowledged_reads().is_none(), "what was read is durable");
    read(new);
    let ticket = txn.snapshot().unacknowledged_reads().expect("it is not durable yet");
    assert!(!ticket.is_acknowledged());
    gate.open();
    ticket.wait().unwrap();
    assert!(txn.snapshot().unacknowledged_reads().is_none());
    drop(txn);
    storage.close().unwrap();
}

#[test]
fn damaged_bytes_full_of_lengths_are_judged_in_time() {
    let folder = tempfile::tempdir().unwrap();
    // Every word could be the length of a frame of many megabytes, and every head but its checksum
    // could be one.
    let mut payload = Vec::new();
    let head = FrameHead {
        sequence: 1,
        synced: 0,
        kind: FrameKind::Part,
        txn_no: 1,
        commit_ts: Timestamp::ZERO,
        redo_offset: 0,
        part: 0,
        previous: 0,
    };
    while payload.len() < 16 << 20 {
        payload.extend_from_slice(&(8_u32 << 20).to_le_bytes());
    }
    let mut bytes = segment_header(1, 1).to_vec();
    write_frame(&mut bytes, Place { segment: 1, offset: 64 }, &head, &payload);
    assert_eq!(bytes.len(), 64 + frame_bytes(payload.len()));
    bytes[64 + FRAME_HEAD_BYTES - 30] ^= 1;
    std::fs::write(segment_path(folder.path(), 1), &bytes).unwrap();
    let (found, recovered) = read(folder.path(), &RealFileSystem, LogPosition::BEGINNING, Timestamp::ZERO).unwrap();
    assert!(found.is_empty() && recovered.cut.is_some());
}

/// At any end of the file, the next process continues after whole frames, and the one after it
/// finds the frames of both.
#[test]
fn a_file_that_ends_anywhere_goes_on_behind_its_last_whole_frame() {
    let folder = tempfile::tempdir().unwrap();
    let whole = {
        let (log, thread) = start(folder.path(), Arc::new(RealFileSystem));
        for ts in 1..4 {
            commit(&log, ts, &[7; 13]);
        }
        log.close();
        thread.join().unwrap();
        std::fs::read(segment_path(folder.path(), 1)).unwrap()
    };
    let end = whole.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    for length in 0..end.next_multiple_of(8) + 1 {
        std::fs::write(segment_path(folder.path(), 1), &whole[..length]).unwrap();
        let (log, thread) = start(folder.path(), Arc::new(RealFileSystem));
        let found = log.durable_ts().0;
        assert_eq!(found == 3, length >= end.next_multiple_of(8), "{length}");
        commit(&log, found + 1, b"another");
        log.close();
        thread.join().unwrap();
        let (transactions, _) = read(folder.path(), &RealFileSystem, LogPosition::BEGINNING, Timestamp::ZERO).unwrap();
        assert_eq!(transactions.len() as u64, found + 1, "{length}");
    }
}

/// The log's thread syncs a segment before it writes to the next one. So a frame in the next one is
/// a proof, even one of the same group of commits.
#[test]
fn a_frame_in_a_later_segment_proves_what_was_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut segments = [segment_header(1, 1).to_vec(), segment_header(2, 3).to_vec()];
    let mut previous = 0;
    for sequence in 1..5 {
        let number = 1 + u64::from(sequence > 2);
        let bytes = &mut segments[number as usize - 1];
        let (kind, commit_ts) = (FrameKind::Commit, Timestamp(sequence));
        let head =
            FrameHead { sequence, synced: 0, kind, txn_no: sequence, commit_ts, redo_offset: 0, part: 0, previous };
        let place = Place { segment: number, offset: bytes.len() as u64 };
        previous = write_frame(bytes, place, &head, b"some redo");
    }
    let put = |number: u64| std::fs::write(segment_path(folder.path(), number), &segments[number as usize - 1]);
    put(1).unwrap();
    put(2).unwrap();
    let found = read(folder.path(), &RealFileSystem, LogPosition::BEGINNING, Timestamp::ZERO).unwrap();
    assert_eq!(found.0.len(), 4);
    let mut damaged = segments[0].clone();
    // The last byte of nine; seven zeros follow.
    *damaged.iter_mut().nth_back(7).unwrap() ^= 1;
    let cut_short = segments[0][..SEGMENT_HEADER_BYTES + frame_bytes(9)].to_vec();
    for first in [damaged, cut_short] {
        put(2).unwrap();
        std::fs::write(segment_path(folder.path(), 1), first).unwrap();
        match read(folder.path(), &RealFileSystem, LogPosition::BEGINNING, Timestamp::ZERO) {
            Err(StorageError::Corrupt { file, .. }) => assert_eq!(file, segment_path(folder.path(), 1)),
            other => panic!("{other:?}"),
        }
    }
}

/// A process was killed when it had made an empty segment. The next process, which writes nothing
/// else, makes sure that earlier frames would be missed.
#[test]
fn what_lies_before_a_segment_without_a_frame_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let (log, thread) = start(folder.path(), Arc::new(RealFileSystem));
    commit(&log, 1, b"one");
    log.close();
    thread.join().unwrap();
    for _ in 0..2 {
        // The last frame marks an opening.
        let (log, thread) = start(folder.path(), Arc::new(RealFileSystem));
        log.close();
        thread.join().unwrap();
    }
    let (_, recovered) = read(folder.path(), &RealFileSystem, LogPosition::BEGINNING, Timestamp::ZERO).unwrap();
    let second = segment_header(2, recovered.tail.next_sequence);
    std::fs::write(segment_path(folder.path(), 2), second).unwrap();
    let (log, thread) = start(folder.path(), Arc::new(RealFileSystem));
    log.close();
    thread.join().unwrap();
    let first = segment_path(folder.path(), 1);
    let bytes = std::fs::read(&first).unwrap();
    std::fs::write(&first, &bytes[..SEGMENT_HEADER_BYTES]).unwrap();
    match read(folder.path(), &RealFileSystem, LogPosition::BEGINNING, Timestamp::ZERO) {
        Err(StorageError::Corrupt { file, .. }) => assert_eq!(file, first),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_log_of_another_version_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut header = [0; 64];
    header[..8].copy_from_slice(b"SERACWAL");
    header[8] = 1;
    header[12] = 1;
    let crc = crc32fast::hash(&header[..20]);
    header[20..24].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(segment_path(folder.path(), 1), header).unwrap();
    let error = read(folder.path(), &RealFileSystem, LogPosition::BEGINNING, Timestamp::ZERO).unwrap_err();
    assert!(error.to_string().contains("0000000001.wal") && error.to_string().contains("version 1"), "{error}");
}

#[test]
fn a_frame_of_another_history_is_not_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    for (directory, text) in [(&one, b'1'), (&other, b'2')] {
        std::fs::create_dir(directory).unwrap();
        let (log, thread) = start(directory, Arc::new(RealFileSystem));
        for ts in 1..20 {
            commit(&log, ts, &[text; 200]);
            log.wait_durable(Timestamp(ts)).unwrap();
        }
        log.close();
        thread.join().unwrap();
    }
    let second = segment_path(&one, 2);
    std::fs::copy(segment_path(&other, 2), &second).unwrap();
    let error = read(&one, &RealFileSystem, LogPosition::BEGINNING, Timestamp::ZERO).unwrap_err();
    assert!(matches!(&error, StorageError::Corrupt { file, .. } if *file == second), "{error}");
}
