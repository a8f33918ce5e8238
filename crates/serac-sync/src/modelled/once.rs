//! A value that is made once. A thread that comes meanwhile waits.

use super::Mutex;
use super::atomic::{AtomicBool, Ordering};

/// See [`std::sync::OnceLock`].
#[derive(Debug)]
pub struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    /// Loom decides by this flag whether other threads see the value.
    is_made: AtomicBool,
    making: Mutex<()>,
}

#[allow(missing_docs)]
impl<T> OnceLock<T> {
    pub fn new() -> Self {
        Self { value: std::sync::OnceLock::new(), is_made: AtomicBool::new(false), making: Mutex::new(()) }
    }

    #[track_caller]
    pub fn get(&self) -> Option<&T> {
        // Acquire: pairs with the Release in `get_or_init`.
        if self.is_made.load(Ordering::Acquire) { self.value.get() } else { None }
    }

    #[track_caller]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if self.get().is_none() {
            let _making = self.making.lock();
            self.value.get_or_init(make);
            // Release: pairs with the Acquire in `get`.
            self.is_made.store(true, Ordering::Release);
        }
        self.value.get().expect("it has just been set")
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}
