//! Threads, locks, atomics, epochs and clocks of the storage, the indexes and the engine.
//!
//! In production these names are the standard library's, parking_lot's and crossbeam's: nothing is
//! added to them. Built with `--cfg shuttle`, they are a simulation's: every thread is a task of
//! one scheduler, and each atomic operation and each lock is a place where another task may go on.
//! Time is a number, and one seed decides all choices (`simulated/simulation.rs`). So the real code
//! runs under schedules that a machine would show once in a year, and the seed shows them again.
//!
//! Two rules keep a simulation whole. Code that runs in it takes these names from here. While a
//! foreign lock is held (the standard library's, inside a test's file system, say), code must not
//! use the primitives of this crate.
//!
//! A limit or a threshold is made small for tests in one of two ways. If a user may choose it, or a
//! test must know its value, it is an option (`StorageOptions` of serac-storage has those of the
//! log and the data files). Otherwise it is a constant behind [`limit`]: production has the
//! constant, a simulation any value down to the least that the code promises to work with. A limit
//! that decides the form of a file or a block must be the same in all executions on one database
//! (`simulation::run` takes the seed of the limits apart). A limit that clients are told of must
//! not be one of these.
//!
//! A decision that depends on a hash must come again with the seed: hashers come from
//! [`random_state`]. The order of a hash map, and addresses, must not affect the tasks.
//!
//! The simulation executes atomics in one order that all tasks see. The models (`serac-models`) try
//! the executions that weaker orderings allow. Built with `--cfg loom`, the names are loom's, for
//! the sources of single modules that the models run.

#![warn(missing_docs)]

#[cfg(loom)]
mod modelled;
#[cfg(not(any(loom, shuttle)))]
mod real;
#[cfg(shuttle)]
mod simulated;

#[cfg(loom)]
pub use modelled::*;
#[cfg(not(any(loom, shuttle)))]
pub use real::*;
#[cfg(shuttle)]
pub use simulated::*;
