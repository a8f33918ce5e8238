//! Threads as tasks of the simulation's scheduler.

use super::lock::Waiters;
use super::simulation;
use super::time::Instant;
pub use shuttle::thread::{
    Builder, JoinHandle, Scope, ScopedJoinHandle, Thread, ThreadId, current, park, scope, spawn,
};
use std::io;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A number that the calling task has alone.
pub fn ordinal() -> usize {
    if simulation::running() { current().id().into() } else { 0 }
}

/// The handle of a helper. Shuttle's own cannot be joined inside the scope. The end of the scope's
/// last task wakes the task that opened the scope, for whatever it waits. If destructors of the
/// task's locals let other tasks go on, this happens before Shuttle stores the result.
#[derive(Debug)]
pub struct Helper<T>(Arc<(Mutex<Option<T>>, Waiters)>);

impl<T> Helper<T> {
    /// Waits for the helper's result.
    ///
    /// # Errors
    /// No error: a panic ends the simulation.
    ///
    /// # Panics
    /// Never: the wait ends when there is a result.
    pub fn join(self) -> std::thread::Result<T> {
        let (result, waiters) = &*self.0;
        waiters.wait_until(|| result.lock().expect("no task panics").is_some());
        Ok(result.lock().expect("no task panics").take().expect("waited for"))
    }
}

/// A task of `scope` that helps with the caller's work; one of eight requests is refused.
pub fn spawn_helper<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Option<Helper<T>> {
    let shared = Arc::new((Mutex::new(None), Waiters::new()));
    let own = shared.clone();
    (!simulation::one_in(8)).then(|| {
        scope.spawn(move || {
            let result = work();
            *own.0.lock().expect("no task panics") = Some(result);
            own.1.wake();
        });
        Helper(shared)
    })
}

/// Lets other tasks go on.
pub fn yield_now() {
    if simulation::running() {
        shuttle::thread::yield_now();
    }
}

/// Sleeps in simulated time.
pub fn sleep(time: Duration) {
    simulation::sleep_until((Instant::now() + time).0, || false);
}

/// Two, on any machine.
///
/// # Errors
/// No error.
pub fn available_parallelism() -> io::Result<NonZeroUsize> {
    Ok(NonZeroUsize::new(2).expect("two is not zero"))
}
