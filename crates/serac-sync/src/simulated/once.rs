//! A value that is made once. A task that comes while it is made waits.

use super::lock::Mutex;
use std::ops::{Deref, DerefMut};

/// See [`std::sync::OnceLock`].
#[derive(Debug)]
pub struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    making: Mutex<()>,
}

#[allow(missing_docs)]
impl<T> OnceLock<T> {
    pub const fn new() -> Self {
        Self { value: std::sync::OnceLock::new(), making: Mutex::new(()) }
    }

    #[track_caller]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        super::point();
        if self.value.get().is_none() {
            let _making = self.making.lock();
            if self.value.get().is_none() {
                let _ = self.value.set(make());
            }
        }
        self.value.get().expect("it has just been set")
    }

    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }
}
impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}
impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), making: Mutex::new(()) }
    }
}
impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        Self { value: value.into(), making: Mutex::new(()) }
    }
}
impl<T> Deref for OnceLock<T> {
    type Target = std::sync::OnceLock<T>;
    fn deref(&self) -> &Self::Target {
        &self.value
    }
}
impl<T> DerefMut for OnceLock<T> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.value
    }
}
