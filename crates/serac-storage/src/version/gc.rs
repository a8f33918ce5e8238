//! Garbage collection: version chains are pruned, then their memory is freed (§3.3).
//!
//! **Step one, unlink.** The watermark is the oldest start timestamp of a running transaction, or
//! the clock if none runs. It is never newer than the newest commit that may be acknowledged: the
//! newest durable one, or, with a relaxed log or none, the newest one. Every snapshot sees the
//! change that a record committed at or before the watermark undoes. So the collector cuts off that
//! record and all older ones of its chain.
//!
//! Of newer records, those are taken out that intervals make superfluous (`pruning.rs`).
//!
//! Collectors may run side by side. They take finished transactions from one queue. A fixed set of
//! latches, chosen by the row, protects the pruning of a row's chain. Writers take no latch: they
//! install at the head, by compare-and-swap. A collector that removes the head does so by
//! compare-and-swap, too, and starts over when it loses.
//!
//! **Step two, free.** A context without linked records is retired. Readers pin an epoch while they
//! walk a chain. When all that could be walking have unpinned, the segments return to the pool. The
//! text has a second timestamp in place of the epochs; with that, a transaction that is open but
//! does not read would keep memory from being freed.
//!
//! **Values in heaps.** The collector releases the values that an unlinked record names in its
//! block's heap, and those of a row that is gone for everybody. It does so under the row's latch:
//! no other collector may meanwhile unlink the record of a transaction that has just deleted the
//! row and takes that back. Rows of a bulk append that is undone release theirs at once. A
//! collector that finds a heap with much garbage vacuums it (`crate::freeze::vacuum`).
//!
//! **Deferred actions** run in the order of their timestamps, once the watermark has reached theirs
//! and the records of all transactions up to it are unlinked: an action may ask which versions a
//! chain still reaches. A transaction is submitted before its actions are, so a run takes actions
//! first and transactions afterwards. It puts back the actions that are not older than the
//! transactions that another run has in hand, or has put down unfinished because its watermark was
//! lower. An action looks at rows without being a transaction. So the present is held
//! (`TransactionManager::hold`) while it runs. The newest record of a change that is rolled back
//! meanwhile stays on its chain, and so a reader of the row notices.
//!
//! **Cooling blocks** are frozen once the watermark has reached the timestamp at which they began
//! to cool ([`crate::freeze`]). Every run takes blocks from one queue until it is empty, so
//! collectors share a backlog block by block.
//!
//! **The number of collectors.** One comes by every few milliseconds. The others sleep until there
//! is more work than for one (finished transactions, blocks to freeze). The collector that finds it
//! wakes them; they sleep again when it is done.
//!
//! The chains are pruned by `pruning.rs`, which has the model.

use crate::block::atomic_copy::prefetch;
use crate::block::view::is_in_heap;
use crate::block::{Block, HotBlock};
use crate::freeze::vacuum::{garbage_floor, vacuum};
use crate::ids::{BlockNo, RowId, TableId, Timestamp};
use crate::table::data_table::DataTable;
use crate::uptime::now_ms;
use crate::version::chain::VersionHead;
use crate::version::pruning::{Gone, Horizon};
use crate::version::transaction::{Action, Readers, TransactionManager};
use crate::version::undo::{ContextPtr, OwnedContext, UndoContext, UndoKind, UndoPool, UndoRecord};
use serac_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use serac_sync::epoch;
use serac_sync::time::Duration;
use serac_sync::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::ptr;
use std::sync::Arc;

const PRUNING_LATCHES: usize = 256;
/// Finished transactions that a run takes from the queue at a time.
const BATCH: u64 = 1024;
/// Finished transactions in the queue from which on committing threads collect too, so that memory
/// stays bounded.
const OVERRUN: u64 = 16_384;

/// Work from which on one more collector is woken, in finished transactions.
const HELP_FROM: u64 = 4_096;
/// Gathering a block is about as much work as collecting so many transactions.
const BLOCK_WORK: usize = 1_024;

/// The place where the background threads wait for work, and for the end.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    stopped: Mutex<bool>,
    /// Notified at the end.
    pub(crate) end: Condvar,
    /// Notified at the end, and when there is work for more than one collector.
    pub(crate) work: Condvar,
}

impl Parking {
    /// Ends all waits, now and later.
    pub(crate) fn stop(&self) {
        *self.stopped.lock() = true;
        self.end.notify_all();
        self.work.notify_all();
    }
    pub(crate) fn is_stopped(&self) -> bool {
        *self.stopped.lock()
    }

    /// Waits for `signal`, one of the two above, but no longer than `pause`. False if the thread is
    /// to end.
    pub(crate) fn park(&self, signal: &Condvar, pause: Duration) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            signal.wait_for(&mut stopped, pause);
        }
        !*stopped
    }
}

/// The figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcStats {
    /// Records cut off their chains.
    pub unlinked: usize,
    /// Transactions whose undo memory was given up.
    pub retired: usize,
    /// Deferred actions run.
    pub deferred_run: usize,
    /// Transactions still waiting for the watermark.
    pub waiting: usize,
    /// The watermark.
    pub watermark: u64,
    /// Blocks whose heaps were vacuumed.
    pub vacuumed: usize,
    /// Blocks frozen.
    pub frozen: usize,
}

/// A run under way.
struct Run {
    stats: GcStats,
    /// Contexts that no chain reaches any more.
    retired: Vec<ContextPtr>,
    /// When it began, in milliseconds, as the access observer counts.
    now: u64,
}

/// The collector's queues. Runs are made by [`run_once`](Self::run_once), from any thread.
#[derive(Debug)]
pub struct GarbageCollector {
    /// Finished transactions with their timestamps, in about the order of these.
    incoming: Mutex<VecDeque<(u64, ContextPtr)>>,
    pool: Arc<UndoPool>,
    waiting: Mutex<BTreeMap<u64, ContextPtr>>,
    /// The lowest timestamps of the transactions that runs have taken from the two queues above and
    /// have not worked through yet. A run enters them under the latch of the queue.
    in_hand: Mutex<Vec<u64>>,
    deferred: Mutex<BTreeMap<u64, Vec<DeferredAction>>>,
    /// Blocks that freeze once the watermark has reached the timestamp, unless a transaction writes
    /// to them.
    cooling: Mutex<BTreeMap<u64, Vec<CoolingRound>>>,
    /// Blocks for which the watermark has reached their timestamp, with their rounds. Collectors
    /// take these blocks one by one.
    cooled: Mutex<VecDeque<(Arc<DataTable>, BlockNo, u64)>>,
    cooled_count: AtomicUsize,
    latches: Vec<Mutex<()>>,
    parking: Arc<Parking>,
    /// Blocks that the runs under way have found to be in need of a vacuum.
    littered: Mutex<BTreeMap<(TableId, BlockNo), Arc<Block>>>,
    backlog: AtomicUsize,
    unprocessed: AtomicUsize,
    /// Timestamp of the transaction at which the last run had to stop taking from the queue.
    stalled_at: AtomicU64,
    unlinked_total: AtomicU64,
}

/// Blocks of a table that began to cool together.
#[derive(Debug)]
pub(crate) struct CoolingRound {
    pub(crate) table: Arc<DataTable>,
    /// No other round of the table has it.
    pub(crate) number: u64,
    pub(crate) blocks: Vec<BlockNo>,
}

struct DeferredAction(Action);
impl std::fmt::Debug for DeferredAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DeferredAction")
    }
}

impl Default for GarbageCollector {
    fn default() -> Self {
        Self {
            incoming: Mutex::default(),
            pool: Arc::default(),
            waiting: Mutex::default(),
            in_hand: Mutex::default(),
            deferred: Mutex::default(),
            cooling: Mutex::default(),
            cooled: Mutex::default(),
            cooled_count: AtomicUsize::new(0),
            parking: Arc::default(),
            latches: (0..PRUNING_LATCHES).map(|_| Mutex::new(())).collect(),
            littered: Mutex::default(),
            backlog: AtomicUsize::new(0),
            unprocessed: AtomicUsize::new(0),
            stalled_at: AtomicU64::new(0),
            unlinked_total: AtomicU64::new(0),
        }
    }
}

impl Drop for GarbageCollector {
    /// Frees what the collectors have left. Transactions and snapshots hold the manager that owns
    /// this, so all of them have ended.
    fn drop(&mut self) {
        // No reader of frozen blocks is left.
        self.cooling.get_mut().clear();
        self.cooled.get_mut().clear();
        let everything = i64::MAX as u64;
        let horizon = Horizon::of(Readers::new(Vec::new(), everything));
        self.collect(&horizon, None);
        // The memory is free two epochs later, as at the end of a close.
        (0..2).for_each(|_| epoch::pin().flush());
    }
}

impl GarbageCollector {
    /// Takes over the undo records of a finished transaction.
    pub(crate) fn submit(&self, context: OwnedContext) {
        self.backlog.fetch_add(1, Ordering::Relaxed);
        let timestamp = context.timestamp().0;
        let mut incoming = self.incoming.lock();
        incoming.push_back((timestamp, context.submit()));
        self.unprocessed.store(incoming.len(), Ordering::Relaxed);
    }

    /// Undo segments.
    pub(crate) fn undo_pool(&self) -> &UndoPool {
        &self.pool
    }

    /// Runs `action` once no snapshot older than `timestamp` is alive.
    pub(crate) fn defer(&self, timestamp: Timestamp, action: Action) {
        self.backlog.fetch_add(1, Ordering::Relaxed);
        self.deferred.lock().entry(timestamp.0).or_default().push(DeferredAction(action));
    }

    /// Freezes the blocks of `round` that go on cooling in it, once no transaction older than
    /// `timestamp` is alive.
    pub(crate) fn freeze(&self, timestamp: Timestamp, round: CoolingRound) {
        self.backlog.fetch_add(round.blocks.len(), Ordering::Relaxed);
        self.cooling.lock().entry(timestamp.0).or_default().push(round);
    }
    pub(crate) fn parking(&self) -> &Arc<Parking> {
        &self.parking
    }

    /// Whether there is work for `collectors` threads. Transactions that wait for the log are no
    /// work.
    pub(crate) fn has_work_for(&self, collectors: usize, manager: &TransactionManager) -> bool {
        let blocks = self.cooled_count.load(Ordering::Relaxed);
        let stalled = self.stalled_at.load(Ordering::Relaxed) > manager.acknowledged().0;
        let transactions = if stalled { 0 } else { self.unprocessed.load(Ordering::Relaxed) };
        transactions + blocks * BLOCK_WORK
            >= (collectors - 1) * serac_sync::limit("work for a helper", HELP_FROM, 1) as usize
    }

    /// Wakes other collectors if there is enough work.
    pub(crate) fn call_for_help(&self, manager: &TransactionManager) {
        if self.has_work_for(2, manager) {
            self.parking.work.notify_all();
        }
    }

    /// Finished transactions, deferred actions and cooling blocks that wait for a run or for the
    /// watermark.
    pub fn backlog(&self) -> usize {
        self.backlog.load(Ordering::Relaxed)
    }

    /// Whether finished transactions come in faster than the collectors take them. Then a
    /// committing thread helps, unless the transactions only wait for the log.
    pub(crate) fn is_overrun(&self, manager: &TransactionManager) -> bool {
        self.unprocessed.load(Ordering::Relaxed) as u64 > serac_sync::limit("a collector's queue", OVERRUN, 4)
            && self.stalled_at.load(Ordering::Relaxed) <= manager.acknowledged().0
    }

    /// Records unlinked since the start.
    pub fn unlinked_total(&self) -> u64 {
        self.unlinked_total.load(Ordering::Relaxed)
    }

    /// One pass over everything that has finished since the last pass or that the watermark has
    /// reached.
    pub fn run_once(&self, manager: &TransactionManager) -> GcStats {
        let horizon = Horizon::of(manager.readers());
        let mut stats = self.collect(&horizon, Some(manager));
        self.freeze_cooled(horizon.watermark, &mut stats);
        stats
    }

    /// The part of a pass with which a committing thread helps: it collects, but does not freeze.
    pub(crate) fn lend_a_hand(&self, manager: &TransactionManager) {
        self.collect(&Horizon::of(manager.readers()), Some(manager));
    }

    /// Without a manager there are no transactions any more.
    fn collect(&self, horizon: &Horizon, manager: Option<&TransactionManager>) -> GcStats {
        let watermark = horizon.watermark;
        let mut run = Run { stats: GcStats { watermark, ..GcStats::default() }, retired: Vec::new(), now: now_ms() };
        let actions = {
            let mut deferred = self.deferred.lock();
            let later = deferred.split_off(&(watermark + 1));
            std::mem::replace(&mut *deferred, later)
        };

        // The queue is taken up to the first transaction that is not settled: no record of it, or
        // of a transaction that finished after it, can be unlinked yet.
        loop {
            let batch: Vec<(u64, ContextPtr)> = {
                let mut incoming = self.incoming.lock();
                let take = incoming
                    .iter()
                    .take(serac_sync::limit("a collector's batch", BATCH, 1) as usize)
                    .take_while(|(ts, _)| *ts <= horizon.readers.settled())
                    .count();
                self.stalled_at.store(incoming.get(take).map_or(0, |(ts, _)| *ts), Ordering::Relaxed);
                self.take_in_hand(incoming.range(..take).map(|(ts, _)| *ts));
                let batch = incoming.drain(..take).collect();
                self.unprocessed.store(incoming.len(), Ordering::Relaxed);
                batch
            };
            if batch.is_empty() {
                break;
            }
            let guard = epoch::pin();
            let mut emptied = Emptied::new(&guard);
            for (i, (_, context)) in batch.iter().enumerate() {
                prefetch_ahead(&batch[i..], &guard);
                self.process(*context, horizon, &mut run, &mut emptied, true);
            }
            drop(emptied);
            self.put_down(batch.iter().map(|(ts, _)| *ts));
            self.give_up(&mut run, &guard);
            drop(guard);
            self.vacuum_heaps(&mut run.stats);
        }
        let reached = {
            let mut waiting = self.waiting.lock();
            let later = waiting.split_off(&(watermark + 1));
            let reached = std::mem::replace(&mut *waiting, later);
            // SAFETY: a waiting context is linked, so it is alive. Its count goes up under the
            // latch under which a retirement removes it.
            reached.values().for_each(|context| unsafe { &*context.0 }.acquire());
            self.take_in_hand(reached.keys().copied());
            reached
        };
        let guard = epoch::pin();
        let mut emptied = Emptied::new(&guard);
        for context in reached.values() {
            self.process(*context, horizon, &mut run, &mut emptied, false);
        }
        drop(emptied);
        self.put_down(reached.keys().copied());
        self.give_up(&mut run, &guard);
        drop(guard);
        let mut stats = run.stats;
        self.vacuum_heaps(&mut stats);
        self.run_actions(actions, manager, &mut stats);
        stats.waiting = self.waiting.lock().len();
        self.unlinked_total.fetch_add(stats.unlinked as u64, Ordering::Relaxed);
        // Push this thread's garbage on, so that an idle system gives its memory back.
        epoch::pin().flush();
        stats
    }

    /// Freezes blocks that are due, beside other collectors that do the same.
    fn freeze_cooled(&self, watermark: u64, stats: &mut GcStats) {
        let due = {
            let mut cooling = self.cooling.lock();
            let later = cooling.split_off(&(watermark + 1));
            std::mem::replace(&mut *cooling, later)
        };
        if !due.is_empty() {
            let mut cooled = self.cooled.lock();
            for CoolingRound { table, number, blocks } in due.into_values().flatten() {
                cooled.extend(blocks.into_iter().map(|no| (table.clone(), no, number)));
            }
            self.cooled_count.store(cooled.len(), Ordering::Relaxed);
            drop(cooled);
            self.parking.work.notify_all();
        }
        loop {
            let next = {
                let mut cooled = self.cooled.lock();
                let next = cooled.pop_front();
                self.cooled_count.store(cooled.len(), Ordering::Relaxed);
                next
            };
            let Some((table, no, round)) = next else { return };
            stats.frozen += usize::from(table.freeze_cooled(no, round));
            self.backlog.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Vacuums the heaps in which pruning has found much garbage.
    fn vacuum_heaps(&self, stats: &mut GcStats) {
        let littered = std::mem::take(&mut *self.littered.lock());
        stats.vacuumed += littered.len();
        for ((_, no), block) in littered {
            self.vacuum(&block, no, false);
        }
    }

    /// See [`crate::freeze::vacuum`].
    pub(crate) fn vacuum(&self, block: &Block, no: BlockNo, all: bool) {
        vacuum(block, no, all, |row| self.latch_of(row).lock());
    }

    fn latch_of(&self, row: RowId) -> &Mutex<()> {
        &self.latches[(row.as_u64() ^ (row.as_u64() >> 20)) as usize % PRUNING_LATCHES]
    }

    /// Releases the values in the heap that the before-images of `gone` name, and those of the row
    /// itself if it is gone. The caller holds the row's pruning latch.
    fn release_values(&self, table: &DataTable, row: RowId, block: &HotBlock, gone: &[&UndoRecord]) {
        if !block.layout().has_views() || gone.is_empty() {
            return;
        }
        let mut latch = None;
        for before in gone.iter().flat_map(|record| record.before()).filter(|before| block.is_view(before.column)) {
            let cell = before.cell();
            if !cell.null && is_in_heap(cell.bits) {
                latch.get_or_insert_with(|| block.heap().latch()).release(before.column, cell.bits);
            }
        }
        drop(latch);
        if !block.is_present(row.slot()) {
            block.release_row(row.slot());
        }
        if block.heap().wants_vacuum(garbage_floor())
            && let Some(block) = table.block(row.block())
        {
            self.littered.lock().insert((table.id(), row.block()), block);
        }
    }

    fn take_in_hand(&self, timestamps: impl Iterator<Item = u64>) {
        self.in_hand.lock().extend(timestamps.min());
    }

    fn put_down(&self, timestamps: impl Iterator<Item = u64>) {
        if let Some(lowest) = timestamps.min() {
            let mut in_hand = self.in_hand.lock();
            let at = in_hand.iter().position(|&ts| ts == lowest).expect("it was taken in hand");
            in_hand.swap_remove(at);
        }
    }

    /// Runs the `actions` that come before all transactions whose records may still be linked; the
    /// others wait for the next run.
    fn run_actions(
        &self,
        mut actions: BTreeMap<u64, Vec<DeferredAction>>,
        manager: Option<&TransactionManager>,
        stats: &mut GcStats,
    ) {
        if actions.is_empty() {
            return;
        }
        // The order matters. The queue comes first: a transaction that leaves it is in hand by
        // then. Another collector with a lower watermark may just have put down a transaction that
        // it could not unlink: that one waits, and this run has not taken it up. A transaction that
        // leaves the waiting ones is in hand before their latch is free.
        let queued = self.incoming.lock().iter().map(|(ts, _)| *ts).min();
        let (waiting, in_hand) = {
            let waiting = self.waiting.lock();
            (waiting.keys().next().copied(), self.in_hand.lock().iter().copied().min())
        };
        let unfinished = queued.into_iter().chain(waiting).chain(in_hand).min().unwrap_or(u64::MAX);
        for (timestamp, mut early) in actions.split_off(&unfinished) {
            let mut deferred = self.deferred.lock();
            let actions = deferred.entry(timestamp).or_default();
            early.append(actions);
            *actions = early;
        }
        for DeferredAction(action) in actions.into_values().flatten() {
            serac_sync::linger();
            // Held anew for each action: the watermark stays where it is meanwhile.
            let _present = manager.map(TransactionManager::hold);
            action();
            stats.deferred_run += 1;
            self.backlog.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Prunes the chains of all rows that `context` changed. The caller holds one count of the
    /// context.
    fn process<'g>(
        &self,
        context: ContextPtr,
        horizon: &Horizon,
        run: &mut Run,
        emptied: &mut Emptied<'g>,
        first_time: bool,
    ) {
        // SAFETY: the held count keeps the context alive, and then the guard of `emptied`: it is
        // freed, and its tables are let go of, an epoch after its retirement.
        let undo: &'g UndoContext = unsafe { &*context.0 };
        let observed = (!undo.is_unobserved()).then_some(run.now);
        for record in undo.records().filter(|record| !record.is_unlinked()) {
            self.prune(record, observed, horizon, run, emptied);
        }
        if first_time {
            if undo.is_unreachable() {
                // The common case: everything is pruned at once, so no other run knows the context.
                run.retired.push(context);
                return;
            }
            self.waiting.lock().insert(undo.timestamp().0, context);
        }
        if undo.release() {
            self.retire(context, run);
        }
    }

    /// Step two for a context that nothing links. The caller has pinned an epoch since before the
    /// count fell to zero.
    fn retire(&self, context: ContextPtr, run: &mut Run) {
        // SAFETY: the count was taken to zero by the caller, who is the only one to retire it.
        let timestamp = unsafe { &*context.0 }.timestamp().0;
        {
            let mut waiting = self.waiting.lock();
            // Another run may be about to look at the context: it counted up under this latch, and
            // its own release will retire the context.
            // SAFETY: the context is freed an epoch after its retirement at the earliest, and the
            // caller is pinned.
            if !unsafe { &*context.0 }.claim_retirement() {
                return;
            }
            waiting.remove(&timestamp);
        }
        run.retired.push(context);
    }

    /// Sends contexts that nothing reaches back to the pool, an epoch from now.
    fn give_up(&self, run: &mut Run, guard: &epoch::Guard) {
        if !run.retired.is_empty() {
            run.stats.retired += run.retired.len();
            self.backlog.fetch_sub(run.retired.len(), Ordering::Relaxed);
            let (pool, batch) = (self.pool.clone(), std::mem::take(&mut run.retired));
            // SAFETY: no chain reaches the contexts' records any more; readers that are still in
            // the middle of one have pinned an epoch.
            unsafe { guard.defer_unchecked(move || pool.expire(batch)) };
        }
        self.pool.recycle_expired();
    }

    /// Prunes the chain of a record's row. The record was linked a moment ago. A linked record is
    /// in a hot block: a block with versions does not freeze, and whoever takes the last version
    /// off marks its record under the row's latch.
    fn prune<'g>(
        &self,
        record: &'g UndoRecord,
        observed: Option<u64>,
        horizon: &Horizon,
        run: &mut Run,
        emptied: &mut Emptied<'g>,
    ) {
        let (table, row, kind) = (record.table(), record.row(), record.kind());
        let _latch = self.latch_of(row).lock();
        // Another collector has met the row meanwhile.
        if record.is_unlinked() {
            return;
        }
        let block = table.blocks().get(row.block(), emptied.guard).and_then(Block::hot);
        let block = block.expect("a block with versions stays hot");
        // The access observer: the collector meets every change sooner or later.
        if let Some(now) = observed.filter(|now| *now != block.last_touched().load(Ordering::Relaxed)) {
            block.last_touched().store(now, Ordering::Relaxed);
        }
        let mut gone = Gone::new();
        let mut is_empty = false;
        if kind == UndoKind::Append {
            // SAFETY: linked records are alive. Acquire: pairs with the Release that set the
            // marker.
            let record = unsafe { block.append_marker().load(Ordering::Acquire).as_ref() };
            gone.extend(record.filter(|record| horizon.everyone_sees(record.timestamp())));
        } else {
            horizon.prune_chain(block.version_head(row.slot()), &mut gone, || is_empty = true);
        }
        run.stats.unlinked += gone.len();
        self.release_values(table, row, block, &gone);
        // These two come last: a block that is calm by them may freeze in place, so no thread
        // writes to it from here on. Release: pairs with the Acquire of the freezer and of readers.
        // Only the collector clears the marker, under the latch.
        if is_empty {
            emptied.add((table.id(), row.block()), block);
        }
        if kind == UndoKind::Append && !gone.is_empty() {
            block.note_settled();
            block.append_marker().store(ptr::null_mut(), Ordering::Release);
        }
        for record in gone {
            if let Some(context) = record.mark_unlinked() {
                self.retire(ContextPtr(context), run);
            }
        }
    }
}

/// Blocks whose emptied slots are gathered at a time.
const EMPTIED_BLOCKS: usize = 64;

/// Slots whose last version was taken off, by block, while the blocks still count them. A batch has
/// many slots of a block, and the block's count is in the cache of the thread that writes to the
/// block: so each count changes once for a batch.
struct Emptied<'g> {
    /// Keeps the blocks.
    guard: &'g epoch::Guard,
    blocks: [Option<(&'g HotBlock, u32)>; EMPTIED_BLOCKS],
}

impl<'g> Emptied<'g> {
    fn new(guard: &'g epoch::Guard) -> Self {
        Self { guard, blocks: [None; EMPTIED_BLOCKS] }
    }

    /// By name, not by address: which blocks meet in a place is the same whenever a simulation's
    /// seed runs.
    fn add(&mut self, (table, no): (TableId, BlockNo), block: &'g HotBlock) {
        let mixed = (u64::from(table.0) << 32 | u64::from(no.0)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let place = &mut self.blocks[(mixed >> 32) as usize % EMPTIED_BLOCKS];
        match place {
            Some((known, slots)) if ptr::eq(*known, block) => *slots += 1,
            _ => place.replace((block, 1)).into_iter().for_each(Self::settle),
        }
    }

    fn settle((block, slots): (&HotBlock, u32)) {
        block.note_settled();
        // The heads are null already.
        block.versioned().lower(slots);
    }
}

impl Drop for Emptied<'_> {
    fn drop(&mut self) {
        self.blocks.iter_mut().filter_map(Option::take).for_each(Self::settle);
    }
}

/// The head of the chain that a record was installed on, if its block is hot still.
fn head_of<'g>(record: &'g UndoRecord, guard: &'g epoch::Guard) -> Option<&'g VersionHead> {
    let block = record.table().blocks().get(record.row().block(), guard)?.hot()?;
    Some(block.version_head(record.row().slot()))
}

/// Prefetches the memory that `process` will touch of the contexts behind the first: it lies in the
/// caches of other cores. Each step follows a pointer that the step before has fetched.
fn prefetch_ahead(batch: &[(u64, ContextPtr)], guard: &epoch::Guard) {
    if let Some((_, context)) = batch.get(12) {
        prefetch(context.0);
    }
    // SAFETY: contexts in the batch are alive: the caller holds a count of each.
    let first_record = |at: usize| batch.get(at).and_then(|(_, context)| unsafe { &*context.0 }.records().next());
    if let Some(record) = first_record(8) {
        prefetch(record);
    }
    if let Some(head) = first_record(4).and_then(|record| head_of(record, guard)) {
        prefetch(head);
    }
    // Under a long-running reader the chain goes on.
    for (at, links) in [(3, 0), (2, 1), (1, 2)] {
        if let Some(head) = first_record(at).and_then(|record| head_of(record, guard)) {
            let mut reached = head.newest();
            for _ in 0..links {
                // SAFETY: linked when it was loaded, and the caller is pinned.
                reached = unsafe { reached.as_ref() }.map_or(ptr::null_mut(), UndoRecord::next);
            }
            prefetch(reached);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{ColumnSchema, ColumnType, TableSchema};
    use crate::{ColumnId, RowBuffer, Value};

    /// The action itself does the work of another collector meanwhile.
    #[test]
    fn what_is_taken_back_beside_an_action_stays_on_its_chain() {
        let column = ColumnSchema { name: "a".into(), column_type: ColumnType::Int64, nullable: true };
        let table = DataTable::new(TableId(1), "t", TableSchema { columns: vec![column] }).unwrap();
        let manager = TransactionManager::new(Timestamp(0), None);
        let mut txn = manager.begin();
        let row = table.insert(&mut txn, &[Value::Int64(1)]).unwrap();
        txn.commit().unwrap();
        manager.gc().run_once(&manager);
        let (other, changed, found) = (manager.clone(), table.clone(), Arc::new(Mutex::new(Vec::new())));
        let versions = move |table: &DataTable| {
            let mut versions = Vec::new();
            let mut note = |version: &RowBuffer| {
                versions.push(version.integer(0));
                false
            };
            assert!(!table.any_version_matches(row, &[ColumnId(0)], None, &mut note).unwrap());
            versions
        };
        let seen = found.clone();
        manager.defer(Box::new(move || {
            let mut txn = other.begin();
            changed.update(&mut txn, row, &[ColumnId(0)], &[Value::Int64(3)]).unwrap();
            txn.abort();
            other.gc().run_once(&other);
            *seen.lock() = versions(&changed);
        }));
        manager.gc().run_once(&manager);
        assert_eq!(*found.lock(), [Some(1), Some(1)], "the newest state, and what the change had replaced");
        manager.gc().run_once(&manager);
        assert_eq!((versions(&table), manager.gc().backlog()), (vec![Some(1)], 0));
        assert_eq!(manager.active_count(), 0);
    }

    /// The newer change of the transaction has no before-image of the column, and a committed
    /// record covers the older one: the chain keeps the newer.
    #[test]
    fn what_is_taken_back_while_versions_are_visited_is_among_them() {
        let column = |name: &str| ColumnSchema { name: name.into(), column_type: ColumnType::Int64, nullable: true };
        let schema = TableSchema { columns: vec![column("a"), column("b")] };
        let table = DataTable::new(TableId(1), "t", schema).unwrap();
        let manager = TransactionManager::new(Timestamp(0), None);
        let (mut txn, one) = (manager.begin(), Value::Int64(1));
        let row = table.insert(&mut txn, &[one, one]).unwrap();
        txn.commit().unwrap();
        manager.gc().run_once(&manager);

        let visitor = manager.begin();
        let mut txn = manager.begin();
        table.update(&mut txn, row, &[ColumnId(0)], &[Value::Int64(2)]).unwrap();
        txn.commit().unwrap();
        let mut taken_back = manager.begin();
        table.update(&mut taken_back, row, &[ColumnId(0)], &[Value::Int64(3)]).unwrap();
        table.update(&mut taken_back, row, &[ColumnId(1)], &[Value::Int64(3)]).unwrap();

        let (mut found, mut taken_back) = (Vec::new(), Some(taken_back));
        let mut note = |version: &RowBuffer| {
            found.push(version.integer(0));
            if let Some(txn) = taken_back.take() {
                txn.abort();
                assert_eq!(manager.gc().run_once(&manager).unlinked, 1);
            }
            false
        };
        assert!(!table.any_version_matches(row, &[ColumnId(0)], None, &mut note).unwrap());
        assert!(found.contains(&Some(2)), "the row is 2 again, but only {found:?} were found");
        drop(visitor);
    }
}
