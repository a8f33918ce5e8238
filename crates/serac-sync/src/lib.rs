//! Threads, locks, atomics, epochs and clocks of the storage, the indexes and the engine.
//!
//! In production these names are the standard library's, parking_lot's and crossbeam's: nothing is added to them.
//! Built with `--cfg shuttle`, they are a simulation's: every thread is a task of one scheduler, each atomic
//! operation and each lock is a place where another task may go on, time is a number, and one seed decides it
//! all ([`simulation`]). So the real code runs under schedules that a machine would show once in a year, and
//! the seed shows them again.
//!
//! Two rules keep a simulation whole. Code that runs in it takes these names from here. A lock that is not from
//! here (the standard library's, inside a test's file system, say) is never held across anything that is.
//!
//! The simulation executes atomics in one order that all tasks see. What weaker orderings allow is the models'
//! part (`serac-models`).

#![warn(missing_docs)]

#[cfg(not(shuttle))]
mod real;
#[cfg(shuttle)]
mod simulated;

#[cfg(not(shuttle))]
pub use real::*;
#[cfg(shuttle)]
pub use simulated::*;
