//! Models of the lock-free protocols, small enough for loom to try every interleaving.
//!
//! | model (`tests/`) | protocol | what is the real code |
//! |---|---|---|
//! | `protocols` | install, read, commit, abort, begin, unlink | none |
//! | `slots` | a free slot that an inserter and compaction want | none |
//! | `freezing` | cooling, freezing, thawing | the temperature of a block |
//! | `vacuum` | values that move within a heap | none |
//! | `waits` | transactions that wait for others | none |
//! | `pins` | rows that are kept beside compaction | the pins |
//! | `parent_pins` | foreign keys | the pins |
//! | `tree` | the tree of the ordered index | the tree |
//! | `cubit` | the Delta Log and merges of bitmap indexes | which tasks of a merge are done |
//! | `registrations` | memory that other machines read | keys and leases |
//!
//! What is not the real code restates the steps that the header of the protocol's module describes,
//! with the same orderings. The header of a model names these modules (`Of:`), and theirs name the
//! model (`Model:`); `cargo xtask tidy` checks both. `scripts/test` runs the models:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p serac-models`.
