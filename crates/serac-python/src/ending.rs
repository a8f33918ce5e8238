//! The end of Python, while threads are inside Python code or on their way back to it.
//!
//! Before 3.14, Python ends a thread that asks for its lock once it is ending, wherever the thread
//! is: below it stand frames of Rust and C++, which do not survive that. So Python does not end
//! while such a thread is about.
//!
//! - A thread of the database is [`Inside`] while it calls Python code. [`begin`] refuses new
//!   calls, and cancels the statements; [`finish`] raises an exception in the code, and waits for
//!   the threads.
//! - A thread of Python waits for the database with the lock released ([`released`]). When Python
//!   is ending, it stays where it is, without the lock.
//!
//! **Code that does not end.** After [`PATIENCE`] the threads that are still inside are stopped
//! where they are, by a signal whose handler never returns. They have no lock of Python's then:
//! whoever stops them has it.

use crate::raising;
use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;
use serac_connection::{PerProcess, SharedSession};
use seracdb::SqlError;
use std::ffi::c_ulong;
use std::io;
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// The time between two looks at the threads.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// The time that Python code has to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time in which code ends whose statement is cancelled, without an exception that is raised in
/// it.
const GRACE: Duration = Duration::from_millis(200);
/// The time that a thread needs for a step of a few instructions.
const STEP: Duration = Duration::from_secs(1);

/// A thread inside Python code.
struct Thread {
    number: libc::pthread_t,
    /// Whether it has left the code, or must not leave it any more: whoever is first says so.
    decided: AtomicBool,
}

#[derive(Default)]
struct Ending {
    /// Whether Python code is refused. Relaxed where it is read without the lock of `threads`.
    begun: AtomicBool,
    /// Whether no thread but the one that ends Python goes back to it. `SeqCst`, as `returning`: a
    /// thread that goes back sees this, or the ending one sees the thread.
    over: AtomicBool,
    /// Threads on the way back to Python.
    returning: AtomicUsize,
    /// The thread that ends Python.
    ender: Mutex<Option<ThreadId>>,
    threads: Mutex<Vec<Arc<Thread>>>,
    left: Condvar,
    sessions: Mutex<Vec<Weak<SharedSession>>>,
}

static ENDING: PerProcess<Ending> = PerProcess::new();

/// That code cannot be called any more.
pub fn refused() -> SqlError {
    SqlError::new(sqlstate::ADMIN_SHUTDOWN, "Python is ending")
}

/// Notes a session, whose statements are cancelled when Python ends.
pub fn note(session: &Arc<SharedSession>) {
    let mut sessions = ENDING.get().sessions.lock();
    // When it would grow: so each session costs a few looks in all.
    if sessions.len() == sessions.capacity() {
        sessions.retain(|session| session.strong_count() > 0);
    }
    sessions.push(Arc::downgrade(session));
}

/// This thread is inside Python code, or asks for Python's lock, until this is dropped.
pub struct Inside(Arc<Thread>);

impl Inside {
    /// Enters; `None` if Python is ending.
    pub fn enter() -> Option<Self> {
        let ending = ENDING.get();
        // SAFETY: it has no conditions.
        let number = unsafe { libc::pthread_self() };
        // Before the lock, too, which a thread that was stopped may wait for.
        if ending.begun.load(Ordering::Relaxed) {
            return None;
        }
        let mut threads = ending.threads.lock();
        if ending.begun.load(Ordering::Relaxed) {
            return None;
        }
        let thread = Arc::new(Thread { number, decided: false.into() });
        threads.push(thread.clone());
        Some(Self(thread))
    }

    /// Calls Python code with Python's lock; `None` if Python is ending.
    pub fn attach<T>(code: impl FnOnce(Python<'_>) -> T) -> Option<T> {
        let inside = Self::enter()?;
        let called = Python::try_attach(code);
        drop(inside);
        called
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.0.decided.swap(true, Ordering::AcqRel) {
            stay();
        }
        let ending = ENDING.get();
        ending.threads.lock().retain(|thread| !Arc::ptr_eq(thread, &self.0));
        ending.left.notify_all();
    }
}

/// Never returns.
fn stay() -> ! {
    loop {
        std::thread::park();
    }
}

/// Does work with Python's lock released, as [`Python::detach`] does. When Python is ending, it
/// does not return, but in the thread that ends Python.
pub fn released<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let done = py.detach(|| {
        let done = work();
        ENDING.get().go_back();
        done
    });
    ENDING.get().returning.fetch_sub(1, Ordering::SeqCst);
    done
}

impl Ending {
    /// This thread, which has not Python's lock, will take it. Undone when it has it.
    fn go_back(&self) {
        self.returning.fetch_add(1, Ordering::SeqCst);
        if self.over.load(Ordering::SeqCst) && *self.ender.lock() != Some(std::thread::current().id()) {
            self.returning.fetch_sub(1, Ordering::SeqCst);
            stay();
        }
    }

    fn cancel_statements(&self) {
        let sessions = self.sessions.lock();
        for session in sessions.iter().filter_map(Weak::upgrade) {
            session.cancel_handle().cancel();
        }
    }

    /// Waits until no thread is inside, for a time. Whether that is so.
    fn wait(&self, time: Duration) -> bool {
        let mut threads = self.threads.lock();
        if !threads.is_empty() {
            self.left.wait_for(&mut threads, time);
        }
        threads.is_empty()
    }

    /// Stops the threads that are still inside. The caller has Python's lock, so that they do not.
    fn stop_threads(&self, _: Python<'_>) -> io::Result<()> {
        let threads = self.threads.lock();
        let inside: Vec<_> = threads.iter().filter(|thread| !thread.decided.swap(true, Ordering::AcqRel)).collect();
        let mut numbers: Vec<libc::pthread_t> = inside.iter().map(|thread| thread.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.is_empty() {
            return Ok(());
        }
        let signal = parking_signal()?;
        let before = PARKED.load(Ordering::Acquire);
        let sent = numbers.iter().filter(|number| {
            // SAFETY: the thread runs: it does not leave the code any more, and is in the list.
            unsafe { libc::pthread_kill(**number, signal) == 0 }
        });
        let sent = sent.count();
        let until = Instant::now() + STEP;
        while PARKED.load(Ordering::Acquire) - before < sent && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Threads that a signal has stopped.
static PARKED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn park(_: libc::c_int) {
    PARKED.fetch_add(1, Ordering::Release);
    loop {
        // SAFETY: it has no conditions, and may be called in a handler.
        unsafe { libc::pause() };
    }
}

/// A signal that nobody uses, whose handler stops its thread for ever.
fn parking_signal() -> io::Result<libc::c_int> {
    #[cfg(target_os = "linux")]
    let signals = (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev();
    #[cfg(not(target_os = "linux"))]
    let signals = [libc::SIGUSR2, libc::SIGUSR1, libc::SIGURG];
    for signal in signals {
        // SAFETY: a struct of integers and of a pointer, for which zeros are values.
        let mut action: libc::sigaction = unsafe { zeroed() };
        // SAFETY: the pointers are null or valid.
        let known = unsafe { libc::sigaction(signal, null_mut(), &raw mut action) } == 0;
        if !known || action.sa_sigaction != libc::SIG_DFL {
            continue;
        }
        action.sa_sigaction = park as *const () as libc::sighandler_t;
        action.sa_flags = 0;
        // SAFETY: the handler calls what a handler may call, and this library is never unloaded.
        if unsafe { libc::sigaction(signal, &raw const action, null_mut()) } == 0 {
            return Ok(signal);
        }
    }
    Err(io::Error::other("all signals have handlers"))
}

/// Refuses Python code from now on, and cancels the statements.
pub fn begin(_: Python<'_>) {
    let ending = ENDING.get();
    *ending.ender.lock() = Some(std::thread::current().id());
    let threads = ending.threads.lock();
    ending.begun.store(true, Ordering::Relaxed);
    drop(threads);
    ending.cancel_statements();
}

/// Waits until no thread is in Python code, and lets no other thread than this go back to it.
///
/// # Errors
/// If threads that do not end cannot be stopped; the exception that a signal's handler raised, once
/// they are.
pub fn finish(py: Python<'_>) -> PyResult<()> {
    let ending = ENDING.get();
    let began = Instant::now();
    let mut interrupted = Ok(());
    while !py.detach(|| ending.wait(BETWEEN_LOOKS)) {
        interrupted = py.check_signals();
        if began.elapsed() > PATIENCE || interrupted.is_err() {
            break;
        }
        // Again and again: a statement may just have begun.
        ending.cancel_statements();
        if began.elapsed() > GRACE {
            let inside: Vec<_> = ending.threads.lock().iter().map(|thread| thread.number).collect();
            for number in inside {
                #[allow(clippy::unnecessary_cast, reason = "another type of the same size elsewhere")]
                raising::raise_in(py, number as c_ulong);
            }
        }
    }
    ending.over.store(true, Ordering::SeqCst);
    ending.stop_threads(py)?;
    py.detach(|| {
        let until = Instant::now() + STEP;
        while ending.returning.load(Ordering::SeqCst) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    interrupted
}
