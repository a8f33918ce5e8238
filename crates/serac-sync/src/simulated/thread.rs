//! Threads as tasks of the simulation's scheduler.

use super::simulation;
use super::time::Instant;
pub use shuttle::thread::{
    Builder, JoinHandle, Scope, ScopedJoinHandle, Thread, ThreadId, current, park, scope, spawn,
};
use std::io;
use std::num::NonZeroUsize;
use std::time::Duration;

/// A number that the calling task has alone.
pub fn ordinal() -> usize {
    if simulation::running() { current().id().into() } else { 0 }
}

/// A task of `scope` that helps with what the caller does, too; one in eight is refused.
pub fn spawn_helper<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Option<ScopedJoinHandle<'scope, T>> {
    (!simulation::one_in(8)).then(|| scope.spawn(work))
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
/// None.
pub fn available_parallelism() -> io::Result<NonZeroUsize> {
    Ok(NonZeroUsize::new(2).expect("two is not zero"))
}
