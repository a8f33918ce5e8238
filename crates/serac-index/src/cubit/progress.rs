//! The finished tasks of a plan, for helpers of which any may stop at any time.
//!
//! A task may be carried out by several threads; each says at the end that it is done. There is no
//! count of unfinished tasks, which a thread would have to lower after it has set its flag: a
//! thread that stops in between would keep the plan from ending. A thread that has finished a task
//! checks whether all are done, from the first task on that was not done at its last look.
//!
//! The last thread finds out, because a fence stands between the thread's store and its look. If
//! two threads each store and then look, one sees the other's store.
//!
//! Model: `serac-models/tests/cubit.rs`.

use serac_sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// The flags of a plan's finished tasks. Tasks have numbers from zero on.
#[derive(Debug)]
pub(super) struct Progress {
    done: Box<[AtomicBool]>,
    /// The first free task.
    next: AtomicUsize,
    /// All tasks before this one are done.
    settled: AtomicUsize,
}

impl Progress {
    /// For `tasks` tasks, all of them open.
    pub(super) fn new(tasks: usize) -> Self {
        let done = (0..tasks).map(|_| AtomicBool::new(false)).collect();
        Self { done, next: AtomicUsize::new(0), settled: AtomicUsize::new(0) }
    }

    /// A free task, if there is one.
    pub(super) fn take(&self) -> Option<usize> {
        // Relaxed: only divides the work.
        let is_left = self.next.load(Ordering::Relaxed) < self.done.len();
        is_left.then(|| self.next.fetch_add(1, Ordering::Relaxed)).filter(|&task| task < self.done.len())
    }

    /// Tasks that are not known to be done, taken or not.
    pub(super) fn open(&self) -> impl Iterator<Item = usize> {
        // Relaxed: doing a task twice does no harm.
        (0..self.done.len()).filter(|&task| !self.done[task].load(Ordering::Relaxed))
    }

    /// Says that a task is done.
    pub(super) fn finish(&self, task: usize) {
        // Release: pairs with `is_complete`.
        self.done[task].store(true, Ordering::Release);
    }

    /// Whether all tasks are done; then the caller sees their work. True for every look after the
    /// last task was finished.
    pub(super) fn is_complete(&self) -> bool {
        // SeqCst: between this thread's store and its look (see the header).
        fence(Ordering::SeqCst);
        // Acquire: pairs with the Release below, so that the tasks that other threads have seen
        // done are seen.
        let known = self.settled.load(Ordering::Acquire);
        // Acquire: pairs with `finish`.
        let is_open = |done: &AtomicBool| !done.load(Ordering::Acquire);
        let settled = self.done[known..].iter().position(is_open).map_or(self.done.len(), |at| known + at);
        self.settled.fetch_max(settled, Ordering::AcqRel);
        settled == self.done.len()
    }
}
