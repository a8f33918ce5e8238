//! What tests of SeracDB share. This crate uses no crate of SeracDB, so unit tests of each crate
//! may use it.
//!
//! | module | what |
//! |---|---|
//! | `seeds` | seeds that a run prints and `SERAC_SEED` repeats; `SERAC_STRESS` |
//! | `wait` | waiting for a condition, for a minute |
#![warn(missing_docs)]

mod seeds;
mod wait;

pub use seeds::{given_seed, number, rng, seed, seeds, seeds_from, stress};
#[cfg(feature = "tokio")]
pub use wait::until;
pub use wait::{PATIENCE, wait_for, wait_until};
