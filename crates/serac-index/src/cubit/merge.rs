//! Merging: the log's settled part goes into the value bitvectors, and the anchor follows.
//!
//! A *plan* lists the work of a merge: a timestamp up to which to merge (the clock's), the older
//! snapshots, and one task for each bin that the settled entries touch. Anybody may carry out any
//! task (*helping*): the background does all, UDIs that find the log long do a few each. A task
//! makes the bin's next chain and swings it in by compare-and-swap; a bin that has got that far is
//! left alone. The thread that finds all tasks done moves the anchor ([`Progress`]).
//!
//! Why no latch is needed:
//! - A plan is a pure function of the log and of the running readers. A task may be done by several
//!   threads or by none for a while: a thread that loses the swing looks again and finds the bin
//!   done. A thread that stops inside a task is overtaken by whoever comes when the plan is late.
//! - Readers replay the log from the anchor over whatever version of a bin they find. Bits are
//!   absolute, so replaying merged entries changes nothing: the merge of one bin is correct by
//!   itself, and the anchor may follow later.
//! - The plan knows the snapshots that are running when it is made. The merged chain has a version
//!   exactly for each, so they need no log once the anchor has passed it. A snapshot that begins
//!   later is not older than the plan's timestamp.
//! - A plan that comes late (made from an anchor that has moved) does no harm: its tasks find bins
//!   that are newer, and its anchor's serial number does not fit.
//!
//! Model: `serac-models/tests/cubit.rs`.

use super::Cubit;
use super::bulk::Bulk;
use super::delta::Ule;
use super::directory::{Bin, Chain};
use super::fate::Fate;
use super::key::Key;
use super::log::{Anchor, Node};
use super::progress::Progress;
use super::version::{Bit, Change};
use serac_storage::version::transaction::Readers;
use serac_sync::atomic::Ordering;
use serac_sync::epoch::{Guard, Owned, Shared};
use serac_sync::thread::ThreadId;
use std::sync::Arc;

#[derive(Debug)]
enum Task {
    /// Merge what is between two values: one bin, when the plan was made.
    Merge { low: Key, high: Option<Key> },
    /// Old versions of the bin may go.
    Prune(Arc<Bin>),
}

/// The tasks of one merge.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The running readers. Changes that were published by then are merged.
    readers: Readers,
    /// The anchor's, when the plan was made.
    serial: u64,
    end: *const Node,
    carried: Arc<[Ule]>,
    /// By value and row, in log order for each.
    changes: Vec<Change>,
    /// By commit timestamp.
    bulks: Vec<(u64, Arc<Bulk>)>,
    /// Bulk inserts that will have left the log, aborted ones included.
    bulks_passed: u64,
    tasks: Vec<Task>,
    progress: Progress,
    planner: ThreadId,
}

// SAFETY: `end` is only followed through an anchor whose serial number says that the node is alive.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

impl Plan {
    /// Commits up to here are merged.
    fn ts(&self) -> u64 {
        self.readers.settled()
    }
}

impl Cubit {
    /// Merges everything that is committed by now. False if there was nothing to do. For the
    /// background, and after large transactions.
    pub fn merge(&self) -> bool {
        if self.is_building() {
            return false;
        }
        let guard = &serac_sync::epoch::pin();
        // A plan that is there already may be from before the last commits.
        let helped = !self.plan.load(Ordering::Acquire, guard).is_null() && self.help(usize::MAX, true, guard);
        self.help(usize::MAX, true, guard) || helped
    }

    /// Whether the log is long enough to merge.
    pub(crate) fn has_long_log(&self) -> bool {
        self.log.length(&serac_sync::epoch::pin()).0 >= self.options.merge_threshold
    }

    /// The part of a merge that a UDI does if it finds this many bits in the log, from the
    /// threshold on.
    pub(crate) fn merge_share(&self, bits: u64, guard: &Guard) {
        let background = self.background.get();
        if let Some(background) = background {
            background.wake();
        }
        let (budget, is_late) = match bits / self.options.merge_threshold {
            1 if background.is_some() => return,
            ..4 => (self.options.tasks_per_udi, false),
            4..8 => (usize::MAX, false),
            _ => (usize::MAX, true),
        };
        self.help(budget, is_late, guard);
    }

    /// Does up to `budget` tasks of the current plan; makes a plan if there is no current one. If
    /// the plan is late, tasks that other threads have begun are done again.
    fn help(&self, budget: usize, is_late: bool, guard: &Guard) -> bool {
        // Acquire: pairs with the Release that published the plan.
        let mut shared = self.plan.load(Ordering::Acquire, guard);
        if shared.is_null() {
            let Some(plan) = self.make_plan(guard) else { return false };
            // AcqRel: publishes the plan; on failure another plan is there to help with.
            let published = self.plan.compare_exchange(
                Shared::null(),
                Owned::new(plan),
                Ordering::AcqRel,
                Ordering::Acquire,
                guard,
            );
            shared = match published {
                Ok(plan) => plan,
                Err(lost) => {
                    for task in &lost.new.tasks {
                        if let Task::Prune(bin) = task {
                            self.list(bin);
                        }
                    }
                    if lost.current.is_null() {
                        return false;
                    }
                    lost.current
                }
            };
        }
        // SAFETY: not null; freed an epoch after it leaves its place.
        let plan = unsafe { shared.deref() };
        for _ in 0..budget {
            let Some(task) = plan.progress.take() else { break };
            self.carry_out(plan, task, guard);
        }
        if is_late {
            plan.progress.open().for_each(|task| self.carry_out(plan, task, guard));
        }
        if plan.progress.is_complete() {
            self.finish(shared, plan, guard);
        }
        true
    }

    fn make_plan(&self, guard: &Guard) -> Option<Plan> {
        // The anchor first: the clock is then not older than it.
        // SAFETY: never null; alive while the guard is held.
        let anchor = unsafe { self.log.anchor(guard).deref() };
        // The clock before the walk: every commit up to it was linked and stamped before the clock
        // showed it.
        let readers = self.manager.readers_of_published();
        let (mut changes, mut bulks, mut carried, mut entries) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let mut bulks_passed = 0;
        let end = self.log.walk(anchor, guard, |ule| {
            entries += 1;
            match ule.fate() {
                Fate::Committed(ts) if ts <= readers.settled() => {
                    bulks.extend(ule.bulk().map(|bulk| (ts, bulk.clone())));
                    ule.for_each(|key, row, bit| changes.push(Change { bit: Bit::new(key.clone(), row, bit), ts }));
                }
                Fate::Aborted => {}
                _ => {
                    carried.push(ule.clone());
                    return;
                }
            }
            bulks_passed += u64::from(ule.bulk().is_some());
        });
        let chained = self.take_listed(&readers);
        if entries == carried.len() && chained.is_empty() {
            return None;
        }
        changes.sort_by(|a: &Change, b| a.place().cmp(&b.place()));
        bulks.sort_by_key(|bulk| bulk.0);
        let (mut tasks, mut at, mut from): (Vec<Task>, usize, Option<Key>) = (Vec::new(), 0, None);
        loop {
            let change = changes.get(at).map(|change| change.bit.key.clone());
            let Some(low) = bulks.iter().filter_map(|(_, bulk)| bulk.first_from(from.as_ref())).chain(change).min()
            else {
                break;
            };
            let chain = self.directory.locate(&low, guard).2;
            at += changes[at..].partition_point(|change| chain.covers(&change.bit.key));
            from = chain.high.clone();
            tasks.push(Task::Merge { low, high: chain.high.clone() });
            if from.is_none() {
                break;
            }
        }
        tasks.extend(chained.into_iter().map(Task::Prune));
        Some(Plan {
            readers,
            serial: anchor.serial,
            end,
            carried: carried.into(),
            changes,
            bulks,
            bulks_passed,
            progress: Progress::new(tasks.len()),
            tasks,
            planner: serac_sync::thread::current().id(),
        })
    }

    /// Notes that the bin has old versions, which the next snapshot's end may set free.
    fn list(&self, bin: &Arc<Bin>) {
        // Relaxed: a bin that is listed twice or once too little is merely looked at twice, or when
        // it is merged again.
        if !bin.listed.swap(true, Ordering::Relaxed) {
            self.listed.lock().push(bin.clone());
        }
    }

    /// The bins whose old versions may go, if the oldest snapshot has changed since the last call.
    fn take_listed(&self, readers: &Readers) -> Vec<Arc<Bin>> {
        let oldest = readers.oldest().unwrap_or(readers.settled());
        if self.oldest.swap(oldest, Ordering::Relaxed) == oldest {
            return Vec::new();
        }
        let bins = std::mem::take(&mut *self.listed.lock());
        bins.iter().for_each(|bin| bin.listed.store(false, Ordering::Relaxed));
        bins
    }

    fn carry_out(&self, plan: &Plan, task: usize, guard: &Guard) {
        match &plan.tasks[task] {
            Task::Prune(bin) => self.prune_bin(plan, bin, guard),
            Task::Merge { low, high } => {
                let first = plan.changes.partition_point(|change| change.bit.key < *low);
                let mut rest = &plan.changes[first..];
                let mut low = Some(low.clone());
                while let Some(from) = low {
                    let (bin, _, _) = self.directory.locate(&from, guard);
                    let end;
                    (rest, end) = self.merge_bin(plan, bin, &from, rest, guard);
                    // A thread that has split the bin since may have merged its parts or not.
                    low = end.filter(|end| high.as_ref().is_none_or(|high| end < high));
                }
            }
        }
        // A task that is done twice is done: the later work had no effect.
        plan.progress.finish(task);
        #[cfg(test)]
        super::tests::stall(super::tests::Place::AfterTask);
        self.counters.merges.fetch_add(1, Ordering::Relaxed);
        if plan.planner != serac_sync::thread::current().id() {
            self.counters.helps.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn prune_bin(&self, plan: &Plan, bin: &Arc<Bin>, guard: &Guard) {
        let (shared, chain) = bin.load(guard);
        if chain.versions.len() == 1 {
            return;
        }
        if let Some(pruned) = chain.pruned(&plan.readers) {
            let left = pruned.versions.len();
            let _latch = self.log.latch.as_ref().map(serac_sync::Mutex::lock);
            // A thread that has swung the chain first has pruned, too, or lists the bin again.
            if bin.swing(shared, pruned, guard) && left == 1 {
                return;
            }
        }
        self.list(bin);
    }

    /// Merges the first of `changes` that `bin` covers from `low` on; returns the others, and the
    /// bin's end.
    fn merge_bin<'p>(
        &self,
        plan: &Plan,
        bin: &Arc<Bin>,
        low: &Key,
        changes: &'p [Change],
        guard: &Guard,
    ) -> (&'p [Change], Option<Key>) {
        loop {
            let (shared, chain) = bin.load(guard);
            let (covered, rest) = changes.split_at(changes.partition_point(|change| chain.covers(&change.bit.key)));
            let ends = (rest, chain.high.clone());
            let touched = !covered.is_empty()
                || plan.bulks.iter().any(|(_, bulk)| bulk.range(low, chain.high.as_ref()).next().is_some());
            if chain.newest().ts >= plan.ts() || !touched {
                return ends;
            }
            let (merged, bins) = chain.merged(covered, &plan.bulks, low, &plan.readers);
            let has_old_versions = merged.versions.len() > 1;
            let values = |chain: &Chain| chain.newest().leaf.len() as u64;
            let more = values(&merged) + bins.iter().map(|bin| values(bin.load(guard).1)).sum::<u64>();
            let more = more.wrapping_sub(values(chain));
            #[cfg(test)]
            super::tests::stall(super::tests::Place::BeforeSwing);
            let _latch = self.log.latch.as_ref().map(serac_sync::Mutex::lock);
            if bin.swing(shared, merged, guard) {
                bins.iter().for_each(|bin| self.directory.add(bin, guard));
                // Relaxed: an estimate, which goes down by wrapping around.
                self.counters.values.fetch_add(more, Ordering::Relaxed);
                if has_old_versions {
                    bins.iter().chain([bin]).for_each(|bin| self.list(bin));
                }
                return ends;
            }
        }
    }

    fn finish(&self, shared: Shared<'_, Plan>, plan: &Plan, guard: &Guard) {
        let to = Anchor { ts: plan.ts(), serial: plan.serial + 1, after: plan.end, carried: plan.carried.clone() };
        if self.log.advance(to, plan.bulks_passed, guard) {
            self.counters.rounds.fetch_add(1, Ordering::Relaxed);
        }
        // AcqRel: the thread that makes the next plan sees this one's work.
        let left = self.plan.compare_exchange(shared, Shared::null(), Ordering::AcqRel, Ordering::Relaxed, guard);
        if left.is_ok() {
            // SAFETY: no thread can load it any more.
            unsafe { guard.defer_destroy(shared) };
        }
    }
}
