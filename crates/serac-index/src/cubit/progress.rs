//! Which tasks of a plan are done, for helpers of which any may stop at any time.
//!
//! A task may be carried out by several threads; each says at the end that it is done. There is no
//! count of what is left, which a thread would have to lower after it has said so: one that stops
//! in between would keep the plan from ending. Whoever has done something looks whether all is
//! done, from the first task on that was not at the last look.
//!
//! The last one finds out: who looks puts a fence between what it has said and its look. Of two who
//! say something and then look, one sees what the other has said.
//!
//! Model: `serac-models/tests/cubit.rs`.

use serac_sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// See the module. Tasks have numbers from zero on.
#[derive(Debug)]
pub(super) struct Progress {
    done: Box<[AtomicBool]>,
    /// The first task that nobody has taken.
    next: AtomicUsize,
    /// All tasks before this one are done.
    settled: AtomicUsize,
}

impl Progress {
    /// Of so many tasks, none of which has begun.
    pub(super) fn new(tasks: usize) -> Self {
        let done = (0..tasks).map(|_| AtomicBool::new(false)).collect();
        Self { done, next: AtomicUsize::new(0), settled: AtomicUsize::new(0) }
    }
    /// A task that nobody has taken, if there is one.
    pub(super) fn take(&self) -> Option<usize> {
        // Relaxed: only divides the work.
        let is_left = self.next.load(Ordering::Relaxed) < self.done.len();
        is_left.then(|| self.next.fetch_add(1, Ordering::Relaxed)).filter(|&task| task < self.done.len())
    }
    /// Tasks that are not known to be done, taken or not.
    pub(super) fn open(&self) -> impl Iterator<Item = usize> {
        // Relaxed: what is done twice does no harm.
        (0..self.done.len()).filter(|&task| !self.done[task].load(Ordering::Relaxed))
    }
    /// Says that a task is done.
    pub(super) fn finish(&self, task: usize) {
        // Release: pairs with `is_complete`.
        self.done[task].store(true, Ordering::Release);
    }
    /// Whether all tasks are done; then the caller sees what was done in them. True for somebody
    /// who looks after the last task was finished.
    pub(super) fn is_complete(&self) -> bool {
        // See the module.
        fence(Ordering::SeqCst);
        // Acquire: pairs with the Release below, so that what others have seen done is seen.
        let known = self.settled.load(Ordering::Acquire);
        // Acquire: pairs with `finish`.
        let is_open = |done: &AtomicBool| !done.load(Ordering::Acquire);
        let settled = self.done[known..].iter().position(is_open).map_or(self.done.len(), |at| known + at);
        self.settled.fetch_max(settled, Ordering::AcqRel);
        settled == self.done.len()
    }
}
