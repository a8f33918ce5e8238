//! Loom's locks, with the face of parking_lot's.

pub use loom::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// A mutex.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

#[allow(missing_docs)]
impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap()
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap()
    }
}

/// A lock of many readers or one writer.
#[derive(Debug, Default)]
pub struct RwLock<T>(loom::sync::RwLock<T>);

#[allow(missing_docs)]
impl<T> RwLock<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::RwLock::new(value))
    }

    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap()
    }

    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap()
    }
}
