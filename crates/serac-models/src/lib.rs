//! Models of the lock-free protocols, small enough for loom to try every interleaving.
//!
//! A model includes the sources of the real modules: these take atomics, locks and epochs from
//! `serac_sync`, which is loom's here (`serac-sync/src/modelled`). A model takes them there, too,
//! because loom searches its own atomics with gaps (see `modelled/atomic.rs`). Two things have no
//! place in a model, and are restated as small as possible: raw memory, which loom does not see,
//! and the surroundings of a protocol.
//!
//! | model (`tests/`) | protocol | real code | restated |
//! |---|---|---|---|
//! | `protocols` | install, read, commit, abort, begin, unlink | chains, clock, pruning, undo records | the row's value |
//! | `slots` | a free slot that an inserter and compaction want | the same | the slot's value |
//! | `freezing` | cooling, freezing, thawing | temperature, clock | the block table, the gather |
//! | `vacuum` | values that move within a heap | vacuum, heap, records, chains | the block's memory |
//! | `waits` | transactions that wait for others | the queues | rows that are waited for |
//! | `pins` | rows that are kept beside compaction | the pins | rows that move |
//! | `parent_pins` | foreign keys | the pins, the clock | the parent's row |
//! | `tree` | the tree of the ordered index | the tree | nothing |
//! | `cubit` | the Delta Log and merges of bitmap indexes | log, fates, progress of plans, clock | bins |
//! | `registrations` | memory that other machines read | keys, leases | the block table |
//!
//! A module in `src/` stands in a model for one that the real sources refer to. The header of a
//! model names the modules that it is of (`Of:`), and theirs name the model (`Model:`), which
//! `cargo xtask tidy` checks. It also names changes of the real code that make the model fail:
//! whoever changes a model checks that it still fails. `scripts/test` runs the models:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p serac-models`.
