//! Locks on which tasks wait. A woken task tries again, in the order that the scheduler chooses.

use super::simulation::{self, point};
use super::time::{Duration, Instant};
use lock_api::GuardNoSend;
use shuttle::thread::{Thread, current};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering::SeqCst};

/// A mutex.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// The right to the data of a mutex.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
/// A lock of many readers or one writer.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// The right to read.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// The right to write.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

/// Tasks that wait.
#[derive(Debug)]
pub(super) struct Waiters(std::sync::Mutex<Vec<Thread>>);

impl Waiters {
    pub(super) const fn new() -> Self {
        Self(std::sync::Mutex::new(Vec::new()))
    }

    /// Waits until `goes_on`; no other task runs between a try and the wait for the next one.
    pub(super) fn wait_until(&self, mut goes_on: impl FnMut() -> bool) {
        while !goes_on() {
            assert!(simulation::running(), "a lock is held by a task that is no more");
            self.0.lock().unwrap().push(current());
            shuttle::thread::park();
        }
    }

    pub(super) fn wake(&self) {
        let waiting = std::mem::take(&mut *self.0.lock().unwrap());
        if simulation::running() {
            waiting.iter().for_each(Thread::unpark);
        }
    }
}

/// A mutex without its data.
#[derive(Debug)]
pub struct RawMutex {
    locked: AtomicBool,
    waiters: Waiters,
}

// SAFETY: `locked` is set by one task at a time, which clears it.
unsafe impl lock_api::RawMutex for RawMutex {
    type GuardMarker = GuardNoSend;
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self { locked: AtomicBool::new(false), waiters: Waiters::new() };
    #[track_caller]
    fn lock(&self) {
        point();
        self.waiters.wait_until(|| !self.locked.swap(true, SeqCst));
    }

    #[track_caller]
    fn try_lock(&self) -> bool {
        point();
        !self.locked.swap(true, SeqCst)
    }

    #[track_caller]
    unsafe fn unlock(&self) {
        self.locked.store(false, SeqCst);
        self.waiters.wake();
        point();
    }

    fn is_locked(&self) -> bool {
        self.locked.load(SeqCst)
    }
}

/// A lock of many readers or one writer, without its data.
#[derive(Debug)]
pub struct RawRwLock {
    /// Readers, or -1 for a writer.
    state: AtomicIsize,
    waiters: Waiters,
}

impl RawRwLock {
    fn enter(&self) -> bool {
        let readers = self.state.load(SeqCst);
        if readers >= 0 {
            self.state.store(readers + 1, SeqCst);
        }
        readers >= 0
    }

    fn take(&self) -> bool {
        self.state.compare_exchange(0, -1, SeqCst, SeqCst).is_ok()
    }
}

// SAFETY: `state` counts readers, or is -1 for one writer.
unsafe impl lock_api::RawRwLock for RawRwLock {
    type GuardMarker = GuardNoSend;
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self { state: AtomicIsize::new(0), waiters: Waiters::new() };
    #[track_caller]
    fn lock_shared(&self) {
        point();
        self.waiters.wait_until(|| self.enter());
    }

    #[track_caller]
    fn try_lock_shared(&self) -> bool {
        point();
        self.enter()
    }

    #[track_caller]
    unsafe fn unlock_shared(&self) {
        self.state.fetch_sub(1, SeqCst);
        self.waiters.wake();
        point();
    }

    #[track_caller]
    fn lock_exclusive(&self) {
        point();
        self.waiters.wait_until(|| self.take());
    }

    #[track_caller]
    fn try_lock_exclusive(&self) -> bool {
        point();
        self.take()
    }

    #[track_caller]
    unsafe fn unlock_exclusive(&self) {
        self.state.store(0, SeqCst);
        self.waiters.wake();
        point();
    }

    fn is_locked(&self) -> bool {
        self.state.load(SeqCst) != 0
    }
}

/// One wait for a condition.
#[derive(Debug)]
struct Wait {
    task: Thread,
    woken: AtomicBool,
}

/// A condition that tasks wait for.
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Mutex<Vec<Arc<Wait>>>);

/// Whether a wait ended by its time.
#[derive(Debug, Clone, Copy)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether it did.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

#[allow(missing_docs)]
impl Condvar {
    pub const fn new() -> Self {
        Self(std::sync::Mutex::new(Vec::new()))
    }

    fn begin(&self) -> Arc<Wait> {
        let wait = Arc::new(Wait { task: current(), woken: AtomicBool::new(false) });
        self.0.lock().unwrap().push(wait.clone());
        wait
    }

    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        let wait = self.begin();
        MutexGuard::unlocked(guard, || {
            while !wait.woken.load(SeqCst) {
                shuttle::thread::park();
            }
        });
    }

    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) -> WaitTimeoutResult {
        let until = Instant::now() + time;
        self.wait_until(guard, until)
    }

    pub fn wait_until<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, until: Instant) -> WaitTimeoutResult {
        let wait = self.begin();
        MutexGuard::unlocked(guard, || simulation::sleep_until(until.0, || wait.woken.load(SeqCst)));
        let woken = wait.woken.load(SeqCst);
        if !woken {
            self.0.lock().unwrap().retain(|other| !Arc::ptr_eq(other, &wait));
        }
        WaitTimeoutResult(!woken)
    }

    fn wake(wait: &Wait) {
        wait.woken.store(true, SeqCst);
        simulation::awaken(wait.task.id());
        wait.task.unpark();
    }

    #[track_caller]
    pub fn notify_one(&self) -> bool {
        point();
        let mut waits = self.0.lock().unwrap();
        if waits.is_empty() {
            return false;
        }
        let one = simulation::below(waits.len());
        let wait = waits.remove(one);
        drop(waits);
        Self::wake(&wait);
        true
    }

    #[track_caller]
    pub fn notify_all(&self) -> usize {
        point();
        let waits = std::mem::take(&mut *self.0.lock().unwrap());
        waits.iter().for_each(|wait| Self::wake(wait));
        waits.len()
    }
}
