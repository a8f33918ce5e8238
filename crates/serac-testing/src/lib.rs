//! Seeds, waiting, processes and servers for tests of SeracDB. This crate uses no crate of SeracDB,
//! so unit tests of each crate may use it.
//!
//! | module | what |
//! |---|---|
//! | `seeds` | seeds that a run prints and `SERAC_SEED` repeats; `SERAC_STRESS` |
//! | `process` | processes that end with the test, children that run this test binary, kills |
//! | `served` (feature `tokio`) | servers in the process of the test |
//! | `wait` | waiting for a condition, for a minute |
#![warn(missing_docs)]

mod process;
mod seeds;
#[cfg(feature = "tokio")]
mod served;
mod wait;

pub use process::{Process, killed_after, ran, this_test};
pub use seeds::{given_seed, number, rng, seed, seeds, seeds_from, stress};
#[cfg(feature = "tokio")]
pub use served::{Served, Stop};
#[cfg(feature = "tokio")]
pub use wait::until;
pub use wait::{PATIENCE, wait_for, wait_until};
