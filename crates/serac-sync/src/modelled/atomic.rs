//! Loom's atomics, with the accesses that its search needs to find all of their races.
//!
//! Loom tries another order of two accesses when it comes upon the second. It compares each access
//! with the last one that it depends on: so a store behind a load of the same thread is compared
//! with that load, and loads of other threads before it are passed over. Most protocols load what
//! they are about to change. So each thread that loads notes that in a word of its own, and a
//! thread that changes an atomic after such a load writes to the words of the others first. These
//! accesses race as the real ones behind them do, and nothing hides them. They are Relaxed, and
//! order nothing.

pub use loom::sync::atomic::{Ordering, fence};

use loom::sync::atomic as real;
use std::sync::atomic::{AtomicU8 as Bits, AtomicUsize as Counter};

/// Threads of a model, the first one among them: as many as loom can have.
const THREADS: usize = 5;

loom::lazy_static! {
    /// Threads of the execution that have met an atomic.
    static ref MET: Counter = Counter::new(0);
}
loom::thread_local! {
    static NUMBER: usize = MET.fetch_add(1, Ordering::Relaxed);
}

/// The threads that have loaded an atomic.
#[derive(Debug)]
struct Loads {
    /// A word for each thread.
    words: [real::AtomicBool; THREADS],
    /// The threads that have loaded since the last change, by bit. Loom does not see this.
    since_change: Bits,
}

impl Loads {
    fn new() -> Self {
        Self { words: std::array::from_fn(|_| real::AtomicBool::new(false)), since_change: Bits::new(0) }
    }

    #[track_caller]
    fn load(&self) {
        let me = NUMBER.with(|number| *number);
        self.words[me].load(Ordering::Relaxed);
        self.since_change.fetch_or(1 << me, Ordering::Relaxed);
    }

    #[track_caller]
    fn change(&self) {
        let me = NUMBER.with(|number| *number);
        let loads = self.since_change.load(Ordering::Relaxed);
        if loads & 1 << me != 0 {
            let others = (0..THREADS).filter(|other| *other != me && loads & 1 << other != 0);
            others.for_each(|other| self.words[other].store(false, Ordering::Relaxed));
        }
        self.since_change.store(0, Ordering::Relaxed);
    }
}

macro_rules! atomic {
    ($name:ident $(<$type:ident>)?, $value:ty) => {
        #[doc = concat!("See [`std::sync::atomic::", stringify!($name), "`].")]
        #[derive(Debug)]
        pub struct $name $(<$type>)? {
            value: real::$name $(<$type>)?,
            loads: Loads,
        }

        #[allow(missing_docs)]
        impl $(<$type>)? $name $(<$type>)? {
            pub fn new(value: $value) -> Self {
                Self { value: real::$name::new(value), loads: Loads::new() }
            }
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                self.loads.load();
                self.value.load(order)
            }
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                self.loads.change();
                self.value.store(value, order);
            }
            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                self.loads.change();
                self.value.swap(value, order)
            }
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.loads.change();
                self.value.compare_exchange(current, new, success, failure)
            }
        }
    };
}

macro_rules! change {
    ($name:ident, $value:ty, $($method:ident)*) => {
        #[allow(missing_docs)]
        impl $name {
            $(#[track_caller]
            pub fn $method(&self, value: $value, order: Ordering) -> $value {
                self.loads.change();
                self.value.$method(value, order)
            })*
        }
        impl Default for $name {
            fn default() -> Self {
                Self::new(<$value>::default())
            }
        }
    };
}

macro_rules! integers {
    ($($name:ident $value:ty),*) => {
        $(atomic!($name, $value);
        change!($name, $value, fetch_add fetch_sub fetch_and fetch_or fetch_xor fetch_max fetch_min);)*
    };
}

integers!(AtomicU8 u8, AtomicU32 u32, AtomicU64 u64, AtomicUsize usize, AtomicI64 i64);
atomic!(AtomicBool, bool);
change!(AtomicBool, bool, fetch_and fetch_or fetch_xor);
atomic!(AtomicPtr<T>, *mut T);

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(std::ptr::null_mut())
    }
}
