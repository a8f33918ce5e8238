//! Atomics at which another task may go on. They have the size and the representation of the
//! standard library's, because blocks lay them over raw memory.

use super::point;
use std::sync::atomic as real;
pub use std::sync::atomic::Ordering;

/// No effect: all tasks see one order.
#[track_caller]
pub fn fence(_: Ordering) {
    point();
}

macro_rules! common {
    ($name:ident, $value:ty) => {
        #[doc = concat!("See [`std::sync::atomic::", stringify!($name), "`].")]
        #[repr(transparent)]
        #[derive(Debug, Default)]
        pub struct $name(real::$name);

        #[allow(missing_docs)]
        impl $name {
            #[inline]
            pub const fn new(value: $value) -> Self {
                Self(real::$name::new(value))
            }

            #[inline]
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                point();
                self.0.load(order)
            }

            #[inline]
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                point();
                self.0.store(value, order);
            }

            #[inline]
            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.swap(value, order)
            }

            #[inline]
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                self.0.compare_exchange(current, new, success, failure)
            }

            #[inline]
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                // Now and then it fails without a reason, as it may.
                if super::simulation::one_in(16) {
                    return Err(self.0.load(failure));
                }
                self.0.compare_exchange(current, new, success, failure)
            }

            #[track_caller]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut update: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut previous = self.load(fetch);
                while let Some(next) = update(previous) {
                    match self.compare_exchange_weak(previous, next, set, fetch) {
                        Ok(before) => return Ok(before),
                        Err(now) => previous = now,
                    }
                }
                Err(previous)
            }

            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }
        }
        impl From<$value> for $name {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }
    };
}

macro_rules! change {
    ($name:ident, $value:ty, $($method:ident)*) => {
        #[allow(missing_docs)]
        impl $name {
            $(#[inline]
            #[track_caller]
            pub fn $method(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.$method(value, order)
            })*
        }
    };
}

macro_rules! integers {
    ($($name:ident $value:ty),*) => {
        $(common!($name, $value);
        change!($name, $value, fetch_add fetch_sub fetch_and fetch_or fetch_xor fetch_max fetch_min);)*
    };
}

integers!(AtomicU8 u8, AtomicU16 u16, AtomicU32 u32, AtomicU64 u64, AtomicUsize usize, AtomicI64 i64);
common!(AtomicBool, bool);
change!(AtomicBool, bool, fetch_and fetch_or fetch_xor);

/// See [`std::sync::atomic::AtomicPtr`].
#[repr(transparent)]
#[derive(Debug)]
pub struct AtomicPtr<T>(real::AtomicPtr<T>);

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self(real::AtomicPtr::default())
    }
}

#[allow(missing_docs)]
impl<T> AtomicPtr<T> {
    #[inline]
    pub const fn new(value: *mut T) -> Self {
        Self(real::AtomicPtr::new(value))
    }

    #[inline]
    #[track_caller]
    pub fn load(&self, order: Ordering) -> *mut T {
        point();
        self.0.load(order)
    }

    #[inline]
    #[track_caller]
    pub fn store(&self, value: *mut T, order: Ordering) {
        point();
        self.0.store(value, order);
    }

    #[inline]
    #[track_caller]
    pub fn swap(&self, value: *mut T, order: Ordering) -> *mut T {
        point();
        self.0.swap(value, order)
    }

    #[inline]
    #[track_caller]
    pub fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        point();
        self.0.compare_exchange(current, new, success, failure)
    }

    #[inline]
    #[track_caller]
    pub fn compare_exchange_weak(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        point();
        if super::simulation::one_in(16) {
            return Err(self.0.load(failure));
        }
        self.0.compare_exchange(current, new, success, failure)
    }

    pub fn get_mut(&mut self) -> &mut *mut T {
        self.0.get_mut()
    }

    pub fn into_inner(self) -> *mut T {
        self.0.into_inner()
    }
}
