//! What tests of SeracDB share. This crate uses no crate of SeracDB, so unit tests of each crate
//! may use it.
//!
//! | module | what |
//! |---|---|
//! | `seeds` | seeds that a run prints and `SERAC_SEED` repeats; `SERAC_STRESS` |
#![warn(missing_docs)]

mod seeds;

pub use seeds::{given_seed, number, rng, seed, seeds, seeds_from, stress};
