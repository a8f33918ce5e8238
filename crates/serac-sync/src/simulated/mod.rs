//! The names as a simulation has them.

pub mod atomic;
mod lock;
mod once;
pub mod simulation;
pub mod thread;
pub mod time;

pub use lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult};
pub use once::OnceLock;
pub use simulation::{limit, linger, point, probe};

/// A hasher, the same in all executions: decisions by hashes must come again with the seed.
pub fn random_state() -> ahash::RandomState {
    ahash::RandomState::with_seeds(1, 2, 3, 4)
}

/// Deferred reclamation by epochs: crossbeam's, with a collector for each execution and a
/// participant for each task.
pub mod epoch {
    use super::{point, simulation};
    use crossbeam_epoch as real;
    pub use real::{Collector, Guard, LocalHandle, Owned, Pointable, Pointer, Shared, unprotected};
    use std::ops::{Deref, DerefMut};
    use std::sync::atomic::Ordering;

    shuttle::thread_local! {
        static HANDLE: LocalHandle = collector().register();
    }

    fn collector() -> Collector {
        simulation::collector().unwrap_or_else(|| real::default_collector().clone())
    }

    /// The execution's collector.
    pub fn default_collector() -> &'static Collector {
        simulation::static_collector().unwrap_or_else(|| real::default_collector())
    }

    /// Pins the task.
    #[track_caller]
    pub fn pin() -> Guard {
        point();
        if simulation::running()
            && let Ok(guard) = HANDLE.try_with(LocalHandle::pin)
        {
            return guard;
        }
        collector().register().pin()
    }

    /// An atomic pointer.
    #[derive(Debug)]
    pub struct Atomic<T>(real::Atomic<T>);

    impl<T> Atomic<T> {
        /// To a new value.
        pub fn new(value: T) -> Self {
            Self(real::Atomic::new(value))
        }

        /// To nothing.
        pub const fn null() -> Self {
            Self(real::Atomic::null())
        }

        /// Loads the pointer.
        #[track_caller]
        pub fn load<'g>(&self, order: Ordering, guard: &'g Guard) -> Shared<'g, T> {
            point();
            self.0.load(order, guard)
        }

        /// Stores a pointer.
        #[track_caller]
        pub fn store<P: Pointer<T>>(&self, new: P, order: Ordering) {
            point();
            self.0.store(new, order);
        }

        /// Exchanges the pointer.
        #[track_caller]
        pub fn swap<'g, P: Pointer<T>>(&self, new: P, order: Ordering, guard: &'g Guard) -> Shared<'g, T> {
            point();
            self.0.swap(new, order, guard)
        }

        /// Exchanges the pointer if it is `current`.
        #[allow(clippy::type_complexity)]
        ///
        /// # Errors
        /// The present pointer, if it differs.
        #[track_caller]
        pub fn compare_exchange<'g, P: Pointer<T>>(
            &self,
            current: Shared<'_, T>,
            new: P,
            success: Ordering,
            failure: Ordering,
            guard: &'g Guard,
        ) -> Result<Shared<'g, T>, real::CompareExchangeError<'g, T, P>> {
            point();
            self.0.compare_exchange(current, new, success, failure, guard)
        }

        /// Takes the pointer's target.
        ///
        /// # Safety
        /// As crossbeam's.
        pub unsafe fn into_owned(self) -> Owned<T> {
            // SAFETY: the caller's.
            unsafe { self.0.into_owned() }
        }

        /// Takes the pointer's target, if the pointer is not null.
        ///
        /// # Safety
        /// As crossbeam's.
        pub unsafe fn try_into_owned(self) -> Option<Owned<T>> {
            // SAFETY: the caller's.
            unsafe { self.0.try_into_owned() }
        }
    }
    impl<T> Default for Atomic<T> {
        fn default() -> Self {
            Self::null()
        }
    }
    impl<T> From<Owned<T>> for Atomic<T> {
        fn from(owned: Owned<T>) -> Self {
            Self(owned.into())
        }
    }
    impl<'g, T> From<Shared<'g, T>> for Atomic<T> {
        fn from(shared: Shared<'g, T>) -> Self {
            Self(shared.into())
        }
    }
    impl<T> Deref for Atomic<T> {
        type Target = real::Atomic<T>;
        fn deref(&self) -> &Self::Target {
            &self.0
        }
    }
    impl<T> DerefMut for Atomic<T> {
        fn deref_mut(&mut self) -> &mut Self::Target {
            &mut self.0
        }
    }
}
