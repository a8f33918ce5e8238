//! Deferred reclamation by epochs, as far as models see it. In an execution that [frees
//! early](free_early), a deferred call runs as soon as all guards that were held at the time are
//! gone. Otherwise it runs at the [end](free_all), and a pin is no step that loom counts.
//!
//! Pins order no more than crossbeam's do when the epoch moves on in between. A thread that frees
//! has seen everything that the threads it waited for have done. A thread that pins after a call
//! was deferred has seen everything that came before the deferral.
//!
//! The memory of a value that is [destroyed](Guard::defer_destroy) stays until the end, so that a
//! model notices a thread that reaches it.

use super::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::rc::Rc;

type Deferred = Box<dyn FnOnce()>;

#[derive(Default)]
struct Epochs {
    /// Guards made so far.
    guards: u64,
    /// The numbers of live guards.
    pinned: BTreeSet<u64>,
    /// Deferred calls, each with the guards that it waits for.
    deferred: Vec<(BTreeSet<u64>, Deferred)>,
    /// Counts deferred calls, pins and guards that have gone, in an execution that frees early.
    events: Option<Rc<AtomicUsize>>,
    /// Whether a call was deferred in this execution.
    has_deferred: bool,
    /// Addresses of destroyed values, and the calls that give their memory back.
    destroyed: HashSet<usize>,
    graves: Vec<Deferred>,
}

thread_local! {
    // The threads of a model are coroutines of one thread. Loom does not see this: `events` gives
    // the order.
    static EPOCHS: RefCell<Epochs> = RefCell::default();
}

/// Keeps the memory that the thread reaches from being freed.
#[derive(Debug)]
pub struct Guard {
    /// `None` in a guard that keeps nothing.
    number: Option<u64>,
}

/// Pins the thread.
pub fn pin() -> Guard {
    let (number, events) = EPOCHS.with_borrow_mut(|epochs| {
        epochs.guards += 1;
        epochs.pinned.insert(epochs.guards);
        (epochs.guards, epochs.events.clone().filter(|_| epochs.has_deferred))
    });
    if let Some(events) = events {
        // Acquire: pairs with the Release of whoever has deferred something.
        events.fetch_add(1, Ordering::Acquire);
    }
    Guard { number: Some(number) }
}

/// A guard for a caller that no other thread disturbs.
///
/// # Safety
/// As crossbeam's.
pub unsafe fn unprotected() -> &'static Guard {
    static UNPROTECTED: Guard = Guard { number: None };
    &UNPROTECTED
}

/// From now on, in this execution, deferred calls run as early as they may.
pub fn free_early() {
    EPOCHS.with_borrow_mut(|epochs| epochs.events = Some(Rc::new(AtomicUsize::new(0))));
}

/// Ends an execution: all deferred calls run now.
pub fn free_all() {
    let epochs = EPOCHS.take();
    assert!(epochs.pinned.is_empty(), "somebody is pinned still");
    epochs.deferred.into_iter().for_each(|(_, f)| f());
    // What has just been destroyed, too.
    epochs.graves.into_iter().chain(EPOCHS.take().graves).for_each(|f| f());
}

impl Guard {
    /// Calls `f` when all guards that are held now have gone.
    pub fn defer<F: FnOnce() -> R + Send + 'static, R>(&self, f: F) {
        // SAFETY: it can go to another thread, and refers to nothing that does not live.
        unsafe { self.defer_unchecked(f) }
    }

    /// As [`defer`](Self::defer).
    ///
    /// # Safety
    /// `f` can be called then, by any thread.
    pub unsafe fn defer_unchecked<F: FnOnce() -> R, R>(&self, f: F) {
        let f: Box<dyn FnOnce() + '_> = Box::new(move || drop(f()));
        // SAFETY: what it refers to lives until it is called, by the caller's promise.
        let f: Deferred = unsafe { std::mem::transmute::<Box<dyn FnOnce() + '_>, Deferred>(f) };
        assert!(self.number.is_some(), "who defers is pinned");
        if let Some(events) = EPOCHS.with_borrow(|epochs| epochs.events.clone()) {
            // Release: pairs with the Acquire of whoever pins later.
            events.fetch_add(1, Ordering::Release);
        }
        EPOCHS.with_borrow_mut(|epochs| {
            epochs.has_deferred = true;
            epochs.deferred.push((epochs.pinned.clone(), f));
        });
    }

    /// Destroys the pointer's target when all guards that are held now have gone.
    ///
    /// # Safety
    /// As crossbeam's.
    pub unsafe fn defer_destroy<T>(&self, pointer: Shared<'_, T>) {
        let raw = pointer.raw;
        let destroy = move || {
            EPOCHS.with_borrow_mut(|epochs| {
                assert!(epochs.destroyed.insert(raw.addr()), "it is destroyed twice");
                // SAFETY: made from a box, and nobody has it any more, by the caller's promise.
                let bury = move || drop(unsafe { Box::from_raw(raw) });
                let bury: Box<dyn FnOnce() + '_> = Box::new(bury);
                // SAFETY: as in `defer_unchecked`.
                epochs.graves.push(unsafe { std::mem::transmute::<Box<dyn FnOnce() + '_>, Deferred>(bury) });
            });
        };
        // SAFETY: by the caller's promise.
        unsafe { self.defer_unchecked(destroy) }
    }

    /// Does nothing: deferred calls need no push.
    pub fn flush(&self) {}
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A model that fails frees nothing.
        let Some(number) = self.number.filter(|_| !std::thread::panicking()) else { return };
        let events = EPOCHS.with_borrow(|epochs| epochs.events.clone());
        if let Some(events) = &events {
            // Release: pairs with the Acquire fence of whoever frees.
            events.fetch_add(1, Ordering::Release);
        }
        let mut due = Vec::new();
        EPOCHS.with_borrow_mut(|epochs| {
            epochs.pinned.remove(&number);
            if events.is_some() {
                epochs.deferred.iter_mut().for_each(|(waits, _)| _ = waits.remove(&number));
                due.extend(epochs.deferred.extract_if(.., |(waits, _)| waits.is_empty()));
            }
        });
        if let Some(events) = events.filter(|_| !due.is_empty()) {
            // Read-modify-write: it reads from the last guard that has gone, whoever's.
            events.fetch_add(1, Ordering::AcqRel);
            fence(Ordering::Acquire);
        }
        due.into_iter().for_each(|(_, f)| f());
    }
}

fn assert_alive<T>(raw: *const T) {
    EPOCHS.with_borrow(|epochs| assert!(!epochs.destroyed.contains(&raw.addr()), "it was destroyed, and is reached"));
}

/// An atomic pointer.
#[derive(Debug)]
pub struct Atomic<T>(AtomicPtr<T>);

/// A pointer that was loaded under a guard.
#[derive(Debug)]
pub struct Shared<'g, T> {
    raw: *mut T,
    guard: PhantomData<&'g T>,
}

/// A value that nobody else reaches.
#[derive(Debug)]
pub struct Owned<T>(Box<T>);

/// A pointer that an atomic pointer can be given.
pub trait Pointer<T> {
    /// The address.
    fn into_raw(self) -> *mut T;
    /// Takes [`into_raw`](Self::into_raw) back.
    ///
    /// # Safety
    /// It came from there, and nobody else has it.
    unsafe fn from_raw(raw: *mut T) -> Self;
}

/// The error of an exchange that has found another pointer.
#[derive(Debug)]
pub struct CompareExchangeError<'g, T, P> {
    /// The pointer that is there.
    pub current: Shared<'g, T>,
    /// The pointer that was not put there.
    pub new: P,
}

impl<T> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Shared<'_, T> {}

impl<T> From<*const T> for Shared<'_, T> {
    fn from(raw: *const T) -> Self {
        Self { raw: raw.cast_mut(), guard: PhantomData }
    }
}

impl<T> Pointer<T> for Shared<'_, T> {
    fn into_raw(self) -> *mut T {
        self.raw
    }

    unsafe fn from_raw(raw: *mut T) -> Self {
        Self { raw, guard: PhantomData }
    }
}

#[allow(missing_docs)]
impl<'g, T> Shared<'g, T> {
    pub fn null() -> Self {
        Self { raw: ptr::null_mut(), guard: PhantomData }
    }

    pub fn is_null(&self) -> bool {
        self.raw.is_null()
    }

    pub fn as_raw(&self) -> *const T {
        self.raw
    }

    /// # Safety
    /// As crossbeam's.
    pub unsafe fn deref(&self) -> &'g T {
        // SAFETY: by the caller's promise.
        unsafe { self.as_ref() }.expect("it is not null")
    }

    /// # Safety
    /// As crossbeam's.
    pub unsafe fn as_ref(&self) -> Option<&'g T> {
        assert_alive(self.raw);
        // SAFETY: its memory stays until the end of the execution.
        unsafe { self.raw.as_ref() }
    }

    /// # Safety
    /// As crossbeam's.
    pub unsafe fn into_owned(self) -> Owned<T> {
        assert_alive(self.raw);
        // SAFETY: by the caller's promise.
        unsafe { Owned::from_raw(self.raw) }
    }
}

impl<T> Pointer<T> for Owned<T> {
    fn into_raw(self) -> *mut T {
        Box::into_raw(self.0)
    }

    unsafe fn from_raw(raw: *mut T) -> Self {
        // SAFETY: by the caller's promise.
        Self(unsafe { Box::from_raw(raw) })
    }
}

#[allow(missing_docs)]
impl<T> Owned<T> {
    pub fn new(value: T) -> Self {
        Self(Box::new(value))
    }

    pub fn into_shared(self, _: &Guard) -> Shared<'_, T> {
        Shared { raw: self.into_raw(), guard: PhantomData }
    }
}
impl<T> Deref for Owned<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}
impl<T> DerefMut for Owned<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> From<Shared<'_, T>> for Atomic<T> {
    fn from(shared: Shared<'_, T>) -> Self {
        Self(AtomicPtr::new(shared.raw))
    }
}

#[allow(missing_docs)]
impl<T> Atomic<T> {
    pub fn new(value: T) -> Self {
        Self(AtomicPtr::new(Owned::new(value).into_raw()))
    }

    pub fn null() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    #[track_caller]
    pub fn load<'g>(&self, order: Ordering, _: &'g Guard) -> Shared<'g, T> {
        Shared { raw: self.0.load(order), guard: PhantomData }
    }

    /// # Errors
    /// The pointer that is there, if it is not `current`.
    #[track_caller]
    pub fn compare_exchange<'g, P: Pointer<T>>(
        &self,
        current: Shared<'_, T>,
        new: P,
        success: Ordering,
        failure: Ordering,
        _: &'g Guard,
    ) -> Result<Shared<'g, T>, CompareExchangeError<'g, T, P>> {
        let new = new.into_raw();
        match self.0.compare_exchange(current.raw, new, success, failure) {
            Ok(_) => Ok(Shared { raw: new, guard: PhantomData }),
            Err(found) => Err(CompareExchangeError {
                current: Shared { raw: found, guard: PhantomData },
                // SAFETY: it was not put there, so it is still the caller's.
                new: unsafe { P::from_raw(new) },
            }),
        }
    }
}
